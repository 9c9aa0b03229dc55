# SPDX-License-Identifier: MIT
"""reprise.check: what keeps a PyTorch callable from being captured, all at once and by line.

    1  first run     observed: what a first call does, lazily made state among it
    2  second run    the same on arguments at other addresses: what every call does
    3  third run     floating values moved on by one: does what is done follow from values?
    4  capture       as reprise.graphed does; where it breaks with nothing found so far, once more with
                     the program traced line by line, asking the driver after each for the capture
    5  replays       on other addresses and values, compared with eager runs

Everything that a run writes outside of its own memory is put back after it. Differences between the
runs tell what a graph would freeze.
"""

import contextlib
import gc
import inspect
import os
import re
import sys
import threading

from .. import _C
from .._base.lines import frame_of, is_own, line_of, take_stack
from .._base.need import need_gpu
from .._base.trace import traced_lines
from .._base.tree import flatten, unflatten
from .._call.graphed import Graphed
from .._call.module import graphed_of, plain_of
from .._effects.effects import Changed, records_of
from .._effects.refusals import traced_call
from .compare import copies, difference, elsewhere, first_other, moved, tensors_of
from .findings import Findings
from .observe import Observer, contents, put_back
from .platform import Cuda

_OLDEST_NCCL = (2, 9, 6)
_CODES = {904: "unjoined-stream", 906: "legacy-stream"}
_STATUSES = {"RP_ERROR_DIVERGED": "divergence", "RP_ERROR_UNSUPPORTED": "unsupported-node"}
_NODE = re.compile(r": node (\d+) \((.*?)\)")  # of an error that tells which node is to blame
_MOST_CALLS = 3  # until one is captured
_LEAST_TAKEN = 1 << 20  # bytes; less would be told as 0 MiB
_NAMING_RUNS = 3  # in which one line has to take the same memory from the driver


def named_values(fn):
    """What a callable closes over, and the globals that its code names."""
    fn = inspect.unwrap(fn)
    found = [fn, getattr(fn, "__self__", None)]
    fn = getattr(fn, "__func__", fn)
    for cell in getattr(fn, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not filled yet
            pass
    codes = [fn.__code__] if hasattr(fn, "__code__") else []
    for code in codes:
        found += [fn.__globals__[n] for n in code.co_names if n in fn.__globals__]
        codes += [c for c in code.co_consts if inspect.iscode(c)]
    return found


@contextlib.contextmanager
def uncached(torch):
    """Without autocast's cache: its casts keep nodes of a backward pass, and with them the streams of
    runs that are over."""
    cache = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cache)


class Check:
    """One check of a callable with some arguments."""

    def __init__(self, torch, platform, fn, args, kwargs, generators, caller, *, capture=True):
        self.torch = torch
        self.platform = platform
        self.fn = fn
        self.caller = caller
        self.captures = capture
        self.generators = tuple(generators)
        self.leaves, self.spec = flatten((args, kwargs))
        self.where = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = [self.leaves[i] for i in self.where]
        self.findings = Findings(fn, getattr(fn, "__name__", None) or type(fn).__name__)
        self.modules = [v for v in named_values(fn) if isinstance(v, torch.nn.Module)]
        self.params = [p for m in self.modules for p in m.parameters()]
        self.runs = []
        self.written = {}

    def call(self, tensors):
        """The callable with these in the place of its tensors."""
        leaves = list(self.leaves)
        for i, tensor in zip(self.where, tensors):
            leaves[i] = tensor
        args, kwargs = unflatten(self.spec, leaves)
        return self.fn(*args, **kwargs)

    # ---- Before anything runs ----

    def look_around(self):
        torch, note = self.torch, self.findings.note
        for i, tensor in enumerate(self.tensors):
            if tensor.device.type == "cpu" and self.platform.type != "cpu":
                note("copy-in", f"tensor {i} of the arguments", frames=self.caller,
                     what="an argument lies on the CPU, where a graph would not see it change",
                     mend="move it to the device before the call")
        if torch.amp.is_autocast_available(self.platform.type) and \
                torch.is_autocast_enabled(self.platform.type) and \
                torch.is_autocast_cache_enabled():
            note("autocast-cache", "torch.autocast", frames=self.caller)
        if torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled():
            from ..mends import without_anomaly_checks
            note("nan-check", "torch.autograd.detect_anomaly", frames=self.caller,
                 fix=without_anomaly_checks)
        self._look_at_hooks()
        self._look_at_threads()

    def _look_at_hooks(self):
        for module in dict.fromkeys(m for root in self.modules for m in root.modules()):
            for hooks in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks,
                          module._backward_pre_hooks):
                for hook in hooks.values():
                    frame = frame_of(hook)
                    if frame is not None and is_own(frame.file):
                        self.findings.note("module-hooks", f"a hook of {type(module).__name__}",
                                           frames=(frame,))

    def _look_at_threads(self):
        for thread in threading.enumerate():
            target = getattr(thread, "_target", None)
            if getattr(target, "__name__", "") == "_pin_memory_loop":
                self.findings.note("background-thread", "torch.utils.data.DataLoader",
                                   frames=self.caller,
                                   what="a DataLoader's thread pins memory meanwhile")

    # ---- Observed runs ----

    def observe(self):
        """Three observed runs; False where the callable fails by itself."""
        state = self.random_state()
        foreign = []
        for given in (lambda: self.tensors, lambda: elsewhere(self.torch, self.tensors),
                      lambda: elsewhere(self.torch, self.tensors, roll=True)):
            before = self.platform.foreign_bytes()
            self.set_random_state(state)
            error = self._observe_one(given())
            if error is not None and len(self.runs) < 2:
                frame = line_of(error)
                self.findings.note("fails-eagerly", type(error).__name__,
                                   what=(str(error) or "it failed").splitlines()[0],
                                   frames=(frame,) if frame else ())
                return False
            foreign.append(self.platform.foreign_bytes() - before)
        self.set_random_state(state)
        self._judge_runs()
        if any(taken > 0 for taken in foreign[1:]):
            self._name_allocations(state)
        return True

    def _observe_one(self, given):
        observer = Observer(self.torch, self.platform, given, self.params, self.generators,
                            Check.call.__code__)
        failure, results = None, []
        observer.begin()
        try:
            results = tensors_of(self.torch, self.call(given))
        except Exception as error:  # whatever the callable raises
            failure = error
        finally:
            observer.end_all()
        self.torch.clear_autocast_cache()  # which keeps casts until autocast is left
        observer.finish(results)
        observer.undo()
        for key, (ref, dtype, _) in observer.saved.items():
            self.written.setdefault(key, (ref, dtype))
        observer.saved.clear()
        if failure is None:
            self.runs.append(observer)
        return failure

    def _judge_runs(self):
        first, second, *third = self.runs
        for run in (second, *third):
            self._add_notes(run)
        self._judge_first(first, second)
        found = difference(second, third[0]) if third else None
        if found and not self._is_known(found[1].frames):
            kind, op, what = found
            self.findings.note(kind, op.name, what=what, frames=op.frames)
        for run in (second, *third):
            self._judge_memory(first, run)
        if third and (found is None or found[0] != "control-flow"):
            for kind, op in moved(second, third[0]):
                self.findings.note(kind, op.name, frames=op.frames)

    def _is_known(self, frames):
        """Does a finding tell of that line already?"""
        return bool(frames) and any(f.where == frames[0][:2] for f in self.findings)

    def _add_notes(self, run):
        distributed = any(isinstance(m, self.torch.nn.parallel.DistributedDataParallel)
                          for m in self.modules)
        known = {(f.kind, f.where) for f in self.findings}
        for note in run.notes:
            kind = "ddp-stream" if distributed and note.kind == "grad-stream" else note.kind
            frames = note.stack.frames
            if run is self.runs[1] or (kind, frames[0][:2] if frames else None) not in known:
                self.findings.note(kind, note.operation, what=note.what, mend=note.mend,
                                   frames=frames, fix=note.fix, options=note.options)
        for op in run.ops:
            if op.name.startswith(("c10d::", "_c10d_functional::")):
                self._judge_collective(op)

    def _judge_collective(self, op):
        """NCCL's rules, at the first collective operation."""
        torch = self.torch
        if not torch.distributed.is_initialized() or "nccl" not in torch.distributed.get_backend():
            return
        version = torch.cuda.nccl.version()
        if version < _OLDEST_NCCL:
            self.findings.note("nccl-version", op.name, frames=op.frames,
                               what=f"this is NCCL {'.'.join(map(str, version))}: collectives can "
                                    "be captured from 2.9.6 on")
        if os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING") != "0":
            self.findings.note("nccl-watchdog", op.name, frames=op.frames)

    def _judge_first(self, first, second):
        """What only the first call does is lazily made."""
        later = {(n.kind, n.stack.frames[:1]) for n in second.notes}
        for note in first.notes:
            if (note.kind, note.stack.frames[:1]) not in later and not self._is_known(
                    note.stack.frames):
                self.findings.note("lazy-state", note.operation, frames=note.stack.frames)
        found = difference(first, second)
        if found and len(first.ops) != len(second.ops) and not self._is_known(found[1].frames):
            self._note_lazy(first, second)
        places = [first.ops[i] for i in first.kept]
        again = {second.ops[i].frames[:1] for i in second.kept}
        for op in places:
            if op.frames[:1] not in again and not self._is_known(op.frames):
                self.findings.note("lazy-state", op.name, frames=op.frames)

    def _note_lazy(self, first, second):
        """The first line of the first run that the second does not have as often."""
        counts = {}
        for op in second.ops:
            place = (op.name, op.frames[:1])
            counts[place] = counts.get(place, 0) + 1
        for op in first.ops:
            place = (op.name, op.frames[:1])
            counts[place] = counts.get(place, 0) - 1
            if counts[place] < 0:
                self.findings.note("lazy-state", op.name, frames=op.frames)
                return

    def _judge_memory(self, first, run):
        note = self.findings.note
        for i in run.kept:
            note("kept-tensor", run.ops[i].name, frames=run.ops[i].frames)
        for i in run.freed:
            if i < len(run.ops):
                note("freed-tensor", run.ops[i].name, frames=run.ops[i].frames)
        for key, place in run.outside.items():
            if key in first.arguments and place.index < len(run.ops):
                op = run.ops[place.index]
                note("kept-address", op.name, frames=op.frames)

    # ---- Memory that is not PyTorch's ----

    def _name_allocations(self, state):
        """Finds the lines that take device memory from the driver in each call. The device's free
        memory tells, which other processes move too: a line counts that took the same in each of
        several runs, and asked the driver where CUPTI tells. Without a line nothing is said."""
        snapshot, common = self.snapshot(), None
        for _ in range(_NAMING_RUNS):
            self.set_random_state(state)
            taken = self._allocating_lines()
            common = taken if common is None else common & taken
            self.restore(snapshot)
            if not common:
                break
        self.set_random_state(state)
        for frame, nbytes in sorted(common):
            self.findings.note("allocation", "device memory outside of PyTorch's allocator",
                               what=f"{nbytes / 2**20:.0f} MiB of device memory are taken from the "
                                    "driver in each call",
                               mend="take it before the region, and keep it", frames=(frame,))

    def _allocating_lines(self):
        """One run: (Frame, bytes) of each line during which the driver's free memory fell, and did not
        go on changing behind it."""
        platform, taken = self.platform, set()
        given = elsewhere(self.torch, self.tensors)
        is_told = platform.watch_refusals()
        before = [platform.foreign_bytes(), platform.driver_allocations() if is_told else None]

        def look(frame):
            now = platform.foreign_bytes()
            asked = platform.driver_allocations() if is_told else None
            if now >= before[0] + _LEAST_TAKEN and now == platform.foreign_bytes() and (
                    asked is None or asked > before[1]):
                taken.add((frame, now - before[0]))
            before[:] = now, asked

        try:
            with contextlib.suppress(Exception), traced_lines(look):
                self.call(given)
        finally:
            if is_told:
                platform.end_refusals()
        return taken

    # ---- State ----

    def random_state(self):
        """That of the default generators and of those the caller named."""
        return self.platform.random_state(), [g.get_state() for g in self.generators]

    def set_random_state(self, state):
        self.platform.set_random_state(state[0])
        for generator, own in zip(self.generators, state[1]):
            generator.set_state(own)

    def snapshot(self):
        """The contents of all that the runs wrote outside, and gradients."""
        kept = []
        for ref, dtype in self.written.values():
            storage = None if ref.expired() else \
                self.torch.UntypedStorage._new_with_weak_ptr(ref.cdata)
            if storage is not None:
                kept.append((storage, dtype, contents(self.torch, storage)))
        return kept, [(p, p.grad) for p in self.params]

    def restore(self, snapshot):
        for storage, _, held in snapshot[0]:
            put_back(self.torch, storage, held)
        for parameter, grad in snapshot[1]:
            parameter.grad = grad

    # ---- Capture ----

    def capture(self):
        """Captures and replays, where the arguments allow it."""
        if any(t.device.type != self.platform.type for t in self.tensors):
            return
        state, snapshot = self.random_state(), self.snapshot()
        self.call(elsewhere(self.torch, self.tensors))  # unobserved: compilers do their work here
        self.restore(snapshot)
        made, error = self._try()
        if error is None:
            if self._compare(made):
                self.findings.survive()
            self._note_strays()
        else:
            self._judge_failure(error)
        self.restore(snapshot)
        self.set_random_state(state)

    def _try(self):
        """(graphed callable, None), or (None, the error)."""
        from .._call.make import graphed
        made = graphed(self.fn, strict=True, warmup=0, generators=self.generators,
                       name=self.findings.name)
        args, kwargs = self._elsewhere()
        try:
            for _ in range(_MOST_CALLS):  # those may be eager that make something lazily
                made(*args, **kwargs)
                if graphed_of(made).shapes():
                    break
        except Exception as error:  # whatever the callable raises in a capture
            return None, error
        return made, None

    def _elsewhere(self):
        """Arguments for another call."""
        leaves = list(self.leaves)
        for i, tensor in zip(self.where, elsewhere(self.torch, self.tensors)):
            leaves[i] = tensor
        return unflatten(self.spec, leaves)

    def _judge_failure(self, error):
        text = (str(error) or type(error).__name__).splitlines()[0]
        frame = self._line_of_change(error) if isinstance(error, Changed) else line_of(error)
        lines = {f.where for f in self.findings.obstacles}
        if frame is not None and frame[:2] in lines:
            return
        node = isinstance(error, _C.Error) and _NODE.search(text)
        operation = node[2] if node else type(error).__name__
        traced, refused = (self._trace_node(int(node[1])), None) if node else self._trace()
        if traced is None and lines - {None}:
            return  # an obstacle that is known explains it
        frames = (traced,) if traced else ((frame,) if frame else ())
        if frames and frames[0][:2] in lines:
            return
        if refused is not None:
            self._note_refused(*refused, frames)
            return
        known = _C.explain(str(error))
        self.findings.note(self._kind_of(error), operation, what=text,
                           mend=known[2] if known and known[2] else None, frames=frames)

    def _line_of_change(self, error):
        """The line that changes Python state which replays would not."""
        args, kwargs = self._elsewhere()
        return traced_call(self.fn, args, kwargs, error.records or records_of(args, kwargs))[1]

    def _note_refused(self, function, code, frames):
        """A call that the driver refused, by its name there: "cuMemAlloc_v2"."""
        name, reason = re.sub(r"(_v\d+|_ptsz|_ptds)+$", "", function), _C.explain(str(code))
        known = _C.explain(name)
        if known is None or known[0] != name:
            known = (None, None, reason[2], reason[3], _CODES.get(code, "refused-call"))
        self.findings.note(known[4], name, what=f"{known[3]}: {reason[0]} ({code})",
                           mend=known[2], frames=frames)

    @staticmethod
    def _kind_of(error):
        code = getattr(error, "driver_code", 0)
        if isinstance(error, _C.Error):
            return _STATUSES.get(getattr(error, "status", None), _CODES.get(code, "capture-error"))
        # Eager runs went well: what PyTorch raises in a capture, which is RuntimeError, is of that.
        return "capture-error" if isinstance(error, RuntimeError) else "callable-error"

    def _trace(self):
        """The program's line that broke the capture, or None where no single line did; and the call
        that the driver refused, (function, code), or None where it is not known."""
        broken = []

        def look(frame):
            if not broken and self.platform.is_broken():
                broken.append(frame)

        watching = self.platform.watch_refusals()
        try:
            with traced_lines(look):
                self._try()
        finally:
            refused = self.platform.end_refusals() if watching else None
        return (broken[0] if broken else None), refused

    def _trace_node(self, number):
        """The program's line that captures the node of that number; None where no line does."""
        found = []

        def look(frame):
            if not found and self.platform.captured_nodes() > number:
                found.append(frame)

        with traced_lines(look):
            self._try()
        return found[0] if found else None

    def _note_strays(self):
        strays = self.platform.strays()
        if strays and not any(f.kind == "outside-stream" for f in self.findings):
            self.findings.note("background-thread", f"{strays} allocation{'s' * (strays > 1)}",
                               what="device memory was allocated beside the capture, by another "
                                    "thread or on another stream")

    # ---- Replays ----

    def _results(self, callable, roll, state):
        """Contents of what a call returns, of its arguments and of what it writes outside."""
        snapshot = self.snapshot()
        given = elsewhere(self.torch, self.tensors, roll=roll)
        self.set_random_state(state)
        leaves = list(self.leaves)
        for i, tensor in zip(self.where, given):
            leaves[i] = tensor
        args, kwargs = unflatten(self.spec, leaves)
        result = callable(*args, **kwargs)
        found = copies(tensors_of(self.torch, result)) + copies(given)
        for storage, dtype, _ in snapshot[0]:
            held = contents(self.torch, storage)
            whole = held.numel() % dtype.itemsize == 0
            found.append(held.view(dtype) if whole else held)
        self.restore(snapshot)
        return found

    def _compare(self, made):
        """Do replays give what eager runs give?"""
        state = self.random_state()
        want = self._results(self.fn, False, state)
        again = self._results(self.fn, False, state)
        if first_other(self.torch, again, want) is not None:
            self.findings.note("not-repeatable", "two eager runs", frames=self.caller)
            return True
        for roll, kind in ((False, "other-results"), (True, "frozen-value")):
            if roll and len(self.runs) < 3:
                break  # such values are not for this callable
            if roll:
                want = self._results(self.fn, True, state)
            got = self._results(made, roll, state)
            index = first_other(self.torch, got, want)
            if index is not None:
                self.findings.note(kind, self._name_of(index, got), frames=self.caller)
                return False
        return True

    def _name_of(self, index, found):
        results = len(found) - len(self.tensors) - len(self.written)
        if index < results:
            return f"result {index} of a replay"
        index -= results
        if index < len(self.tensors):
            return f"argument {index} after a replay"
        return "what a replay writes beside its arguments"

    # ---- All of it ----

    def run(self):
        gc.collect()
        gc.freeze()  # what was there before need not be looked at for what a run leaves behind
        try:
            return self._run()
        finally:
            gc.unfreeze()

    def _run(self):
        self.look_around()
        if self.observe() and self.captures:
            with uncached(self.torch):
                self.capture()
        return self.findings


def check(fn, *args, generators=(), **kwargs):
    """Tries to capture a callable, and tells everything that stands in the way, with its line.

    ``fn(*args, **kwargs)`` is run a few times eagerly and once as a graph; nothing is left changed
    but what Python code changes (counters, lists, attributes) and what it makes on the way, as the state
    of an optimizer at its first step. Device memory for a second set of
    arguments, and for what ``fn`` writes, is taken meanwhile.

    Arguments:
        fn (callable or torch.nn.Module): As for :func:`reprise.graphed`.
        args, kwargs: What it is called with.
        generators (iterable of torch.Generator): Those it draws from beside the default one.

    Returns:
        Findings: one for each obstacle and each place in the program, empty where there is none.
        ``print(findings)`` is the report; ``findings.mended()`` is ``fn`` with the fixes applied that
        there are, ``findings.graphed()`` the same captured.

    Example::

        findings = reprise.check(step, x, y)
        print(findings)
        findings.raise_for_obstacles()
    """
    torch = need_gpu()
    fn = fn.__wrapped__ if isinstance(fn, Graphed) else plain_of(fn)
    if not callable(fn):
        raise TypeError(f"fn is a {type(fn).__name__}, which cannot be called")
    device = next((leaf.device for leaf in flatten((args, kwargs))[0]
                   if isinstance(leaf, torch.Tensor) and leaf.is_cuda),
                  torch.device("cuda", torch.cuda.current_device()))
    caller = take_stack(sys._getframe(1)).frames[:1]
    with torch.cuda.device(device):
        platform = Cuda(torch, device)
        with platform.beside():
            return Check(torch, platform, fn, args, kwargs, generators, caller).run()
