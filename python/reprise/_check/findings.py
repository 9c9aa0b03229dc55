# SPDX-License-Identifier: MIT
"""What a check found: obstacles with the line of the program that makes them.

The texts are the library's (src/explain/obstacles.def): `reprise explain KIND` tells the same.
"""

import json

from .. import _C

# Kinds that a capture survives: something to know, not an obstacle.
CAUTIONS = frozenset(("module-hooks", "lazy-state", "autocast-cache", "background-thread",
                      "nccl-watchdog", "host-scalar", "not-repeatable"))
# Kinds that a capture may survive, which the capture tells.
_MAYBE = frozenset(("checkpoint", "random-state"))


class Finding:
    """One thing that stands in the way of a capture.

    Attributes:
        kind (str): One of those that ``reprise explain --list`` lists: ``"host-read"``, ...
        operation (str): What the program called, as ``"Tensor.item"``.
        what (str): What it does.
        mend (str): What to do instead.
        frames (tuple): The program's lines, innermost first; each has ``file``, ``line``,
            ``function`` and ``source``.
        fix (callable or None): Takes the callable and returns one without this obstacle.
        is_caution (bool): The capture survives it.
        count (int): How often it was met.
    """

    def __init__(self, kind, operation, what=None, mend=None, frames=(), fix=None, options=None):
        known = _C.explain(kind)
        self.kind = kind
        self.operation = operation
        self.what = what or known[3]
        self.mend = mend or known[2]
        self.frames = tuple(frames)
        self.fix = fix
        self.options = options or {}
        self.count = 1
        self.survived = False

    @property
    def is_caution(self):
        return self.kind in CAUTIONS or self.survived

    @property
    def where(self):
        """``(file, line)`` of the innermost frame, or None."""
        return self.frames[0][:2] if self.frames else None

    def lines(self):
        times = f", {self.count} times" if self.count > 1 else ""
        yield f"{self.kind}: {self.operation}{times}" + (" (caution)" if self.is_caution else "")
        yield f"   {self.what}"
        for i, frame in enumerate(self.frames):
            yield ("   at    " if i == 0 else "         ") + str(frame)
        yield f"   fix   {self.mend}"
        if self.fix or self.options:
            yield "   fix   findings.mended() and findings.graphed() apply it"

    def facts(self):
        return {"kind": self.kind, "operation": self.operation, "what": self.what,
                "mend": self.mend, "caution": self.is_caution, "count": self.count,
                "fix": getattr(self.fix, "__name__", None),
                "frames": [{**f._asdict(), "source": f.source} for f in self.frames]}

    def __repr__(self):
        where = f" at {self.frames[0]}" if self.frames else ""
        return f"<{self.kind}: {self.operation}{where}>"


class Findings:
    """What :func:`reprise.check` returns: findings in the order in which they were met.

    It is a sequence, false when nothing was found; as text it is a report.
    """

    def __init__(self, fn, name):
        self.fn = fn
        self.name = name
        self.captured = False  # the capture worked, and replays gave what eager runs give
        self._all = []

    # ---- Making ----

    def note(self, kind, operation, *, what=None, mend=None, frames=(), fix=None, options=None):
        """Adds one, or counts it where that kind was found at that line; the Finding."""
        where = frames[0][:2] if frames else None
        for known in self._all:
            if known.kind == kind and known.where == where and (where or
                                                                known.operation == operation):
                known.count += 1
                known.fix = known.fix or fix
                return known
        made = Finding(kind, operation, what, mend, frames, fix, options)
        self._all.append(made)
        return made

    def survive(self):
        """The capture worked, and replays gave what eager runs give."""
        self.captured = True
        for finding in self._all:
            finding.survived = finding.kind in _MAYBE

    def keep(self, wanted):
        """Drops what a function of the finding does not want."""
        self._all = [f for f in self._all if wanted(f)]

    # ---- Reading ----

    def __len__(self):
        return len(self._all)

    def __iter__(self):
        return iter(self._all)

    def __getitem__(self, index):
        return self._all[index]

    @property
    def obstacles(self):
        """Those that keep a capture from working, or make replays wrong."""
        return [f for f in self._all if not f.is_caution]

    def _verdict(self):
        obstacles = len(self.obstacles)
        cautions = len(self._all) - obstacles
        also = f"; {cautions} to know of" if cautions else ""
        if obstacles:
            return (f"{self.name} cannot be captured as it is: {obstacles} "
                    f"obstacle{'s' if obstacles > 1 else ''}{also}")
        if not self.captured:
            return f"{self.name} was not captured{also}"
        return f"{self.name} can be captured: its replays give what it gives{also}"

    def __str__(self):
        lines = []
        for i, finding in enumerate(self._all, 1):
            first, *rest = finding.lines()
            lines += [f"{i}  {first}", *rest, ""]
        return "\n".join([*lines, self._verdict()])

    __repr__ = __str__

    def json(self):
        """The same as a JSON object."""
        return json.dumps({"name": self.name, "captured": self.captured,
                           "findings": [f.facts() for f in self._all]})

    def raise_for_obstacles(self):
        """Raises :class:`reprise.Error` with the report where there is an obstacle."""
        if self.obstacles:
            raise _C.Error(str(self))

    # ---- Mending ----

    def mended(self):
        """The callable with all fixes applied that there are."""
        fn = self.fn
        for fix in dict.fromkeys(f.fix for f in self._all if f.fix):
            fn = fix(fn)
        return fn

    def graphed(self, **options):
        """:func:`reprise.graphed` of the mended callable, with the options that findings ask for."""
        from .._call.make import graphed
        for finding in self._all:
            for key, value in finding.options.items():
                options[key] = (*options.get(key, ()), *value)
        mended = self.mended()
        if mended is not self.fn and hasattr(self.fn, "parameters"):
            options.setdefault("grad", "split")  # as of a module, which it is no more
        return graphed(mended, **options)
