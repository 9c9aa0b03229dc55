# SPDX-License-Identifier: MIT
"""What a callable of make_graphed_callables was captured for: its calls have no keys, so one that reads
something else than the capture did is seen here.
"""

from .._reads.reads import Reads, differences, told
from .._reads.values import Unreadable
from .fast_path import FastPath
from .watch import Watch, find_modules

MOST_NAMED = 3


class Kept:
    """differs() of a call says what is not as at settle(), as text; None: all is. fn: the callable, of a
    module its forward method; module: that, or None; left: places that are
    looked at elsewhere, as of Reads.leave_out."""

    def __init__(self, torch, fn, module, left=()):
        self._torch, self._module = torch, module
        self._watch = Watch(torch, find_modules(torch, fn))
        self._reads = Reads(torch, fn, self._watch)
        if module is not None:  # what programs put around it, and ours: calls of what stands there come here
            self._reads.leave_out([(vars(module), "forward"), *left])
        self._fast = FastPath(torch, self._watch, self._reads, False)
        self._settled = self._snapshot = None
        self._members = self._members_now()
        self.unseen = None  # why what it reads can't be compared

    def warm_up(self, fn, args, kwargs):
        """A call, of which is noted what code it executes."""
        return self._reads.eager_call(fn, args, kwargs)

    def leave_out(self, places):
        """From now on these are looked at elsewhere."""
        self._reads.leave_out(places)

    def settle(self):
        """What is there now is what the callable was captured for."""
        try:
            self._settled = self._state()
        except Unreadable as why:
            self.unseen = str(why)
            return
        self._snapshot = self._reads.snapshot()
        self._guard()

    def _guard(self):
        """Calls like this one are looked at in short from now on."""
        if self._fast.takes_calls():
            self._fast.guard(False)

    def differs(self):
        if self._settled is None or self._fast.holds():
            return None
        try:
            now = self._state()
        except Unreadable as why:
            return str(why)
        if now == self._settled:
            self._guard()
            return None
        return self._told(now)

    def _state(self):
        torch, watch = self._torch, self._watch
        watch.has_changed_members()
        members = self._members_now()
        if members != self._members:
            self._members = members
            self._reads.look_anew()
        read = self._reads.state()
        autocast = torch.is_autocast_enabled("cuda")
        return {"what it reads": read, "memory of its parameters or buffers": watch.addresses(),
                "which parameters want gradients": watch.grads(), "a hook": members[2], "a mode of its modules": watch.modes(),
                "a switch of PyTorch's": self._reads.switches.key(),
                "autocast": autocast and torch.get_autocast_dtype("cuda")}

    def _members_now(self):
        """Hooks of the module itself run around its graphs."""
        watch = self._watch
        hooks = [some for module, some in zip(watch.modules, watch.hooks) if module is not self._module]
        return list(map(id, watch.modules)), list(map(id, watch.found)), hooks

    def _told(self, now):
        """What differs, as a person would say it."""
        others = [name for name, value in now.items() if value != self._settled[name]]
        found = [f"`{path}`, which it reads, (now {told(token)})"
                 for path, token in differences(self._snapshot, self._reads.snapshot())[:MOST_NAMED]]
        return " and ".join([*found, *(o for o in others if o != "what it reads" or not found)])
