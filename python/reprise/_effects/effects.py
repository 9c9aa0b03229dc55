# SPDX-License-Identifier: MIT
"""What the runs of a capture change of the program's Python state is put back, and looked at.

A capture calls the function more than once, and a replay not at all. So each run ends with the state it
began with, and what it changed is one of

    nothing       as it is for most functions: replays are right
    assigned      an attribute, an element or a variable that held tensors holds others that the run made,
                  as a module does that keeps its auxiliary loss. These are results of the graph: each
                  replay assigns fresh tensors, where the place holds the same kind of value as before the
                  capture
    repeated      a place that held None, a number or nothing was given the same kind of value by two attempts
                  that found it the same: replays assign that too. One that keys tell of may hold another by then
    set           an attribute or a global that no code reads was set, perhaps to what was there (unread.py):
                  replays set it, whatever is there
    stepped       a schedule of the learning rate made a step as the last thing in the call: replays step it
                  (schedules.py)
    grown         elements were appended to a list, or a counter was raised, alike by two attempts: replays do
                  so too, where no run reads what was there (growth.py)
    other         the function runs eagerly for these arguments: Changed, which names the places

The last is decided by the first run of an attempt. What is made lazily changes the state in a first call
only, so one attempt that fails is followed by another one at the next call.
"""

import collections
import contextlib
import sys
import types

from .. import _C
from .._base.objects import dict_of
from .._base.tree import flatten, unflatten
from .assignments import MOST_NAMED, Assignments, Constant, Same, kind_of
from .containers import Containers, Filled, Within
from .growth import Step, Tail, during, is_stand_in, step_of
from .kept import Kept, are_plain, found_for
from .python_state import (ABSENT, ArgumentSlot, Body, Cell, Change, Drawn, FoundSlot, Mapping, Memo, Names, Path,
                           Progress, Slot, State, is_plain, same)
from .reach import Reach
from .schedules import Schedules, Stepped
from .unread import Covered, UnreadSlot, containers_in, has_attributes, is_constant, is_made_of_plain, is_one, slots_for

CACHES = "transformers.cache_utils"  # whose classes grow, but for the static ones
_SETTING = frozenset((Slot, UnreadSlot, Step))  # slots which plain values are put in
_ANEW = frozenset((Memo, State, Drawn))  # which each capture looks at


class Changed(_C.Error):
    """A run changed Python state in a way that no replay repeats. kinds: types of the arguments that it
    hangs on; records: those that tell when it happens; is_hopeless: another attempt would find the same;
    found: as the next attempt wants to know it; is_registered: parameters or buffers are among it,
    or memory that a tensor left. is_drawn: it draws random numbers of PyTorch's on the CPU, and does nothing
    else."""

    def __init__(self, changes, why, kinds=(), records=(), is_hopeless=False, found=None,
                 is_registered=False):
        self.changes = changes
        self.is_registered = is_registered
        self.found = found or {}
        self.kinds = tuple(kinds)
        self.records = tuple(records)
        self.is_drawn = bool(changes) and len(self.records) == len(changes) and (
            all(isinstance(record, Drawn) for record in self.records))
        self.is_hopeless = is_hopeless
        super().__init__(f"it changes {_named(changes)} in each call, which replays would not{why}")


class Unobserved(_C.Error):
    """It finds iterators, and no eager call has told yet whether it takes them forward. records: theirs."""

    def __init__(self, records):
        self.records = tuple(records)
        super().__init__(f"it finds the iterator '{records[0].path}', which a capture might take forward")

    def changed(self):
        """Changed, where an eager call took some forward."""
        changes = [change for record in self.records for change in record.changes()]
        why = ". Take the values before the call, and pass them"
        return Changed(changes, why, is_hopeless=True) if changes else None


def _named(changes):
    texts = []
    for change in changes[:MOST_NAMED]:
        text = f"'{change.path}'"
        if change.what:
            text += f" ({change.what})"
        elif is_plain(change.before) and is_plain(change.after) and change.slot is not None:
            text += f" (from {change.before!r:.40} to {change.after!r:.40})"
        texts.append(text)
    more = len(changes) - len(texts)
    return " and ".join(texts) + (f" and {more} more" if more > 0 else "")


def _hooks_of_all_modules():
    """What PyTorch calls around each module's forward and backward pass."""
    module = sys.modules.get("torch.nn.modules.module")
    names = vars(module).items() if module is not None else ()
    return [hook for name, held in names if name.startswith("_global_") and name.endswith("_hooks") and
            isinstance(held, dict) for hook in held.values()]


class Effects:
    """The state before a capture, and what its runs do to it.

    arguments: (name, value) of each argument that is no tensor. known: changes that an earlier attempt
    found, by the text of their paths, as (kind before, kind after, by how much a number rose). keeps: may it take
    the records of an earlier capture of the callable, and leave its own? reads: what the callable reads, a Reads;
    None: nobody knows."""

    def __init__(self, torch, fn, arguments=(), known=None, keeps=False, reads=None):
        self.torch = torch
        reach = Reach(torch)
        self._fn = fn
        self._roots = {}    # of arguments: number and type by path
        self._kept, kept = found_for(fn, arguments) if keeps and not known else (None, None)
        if kept is None:
            self._look(reach, fn, arguments, keeps and are_plain(arguments))
        reach.follow_generators()
        self.records = (kept or []) + reach.finish()
        self._schedules = Schedules(torch, reach.schedules, _refuse_step)
        self.known = known or {}
        self.arguments = arguments
        self.slots = None   # what the runs assign: tuples (Slot, kind before); None: no run so far
        self.before = []    # tensors that were in these slots, but for those that nobody reads
        self.found = {}     # as known, of this attempt
        self.follows_draws = bool  # asked behind a run: do replays draw what it drew on the CPU?
        self._grown = []    # changes of what grows
        self._brought = ()  # ids of containers among the arguments of the run that is under way
        self._filled = []   # changes of containers among the arguments, of the run that is under way
        self._parts = None  # ids of what objects among the arguments are made of, once that was asked
        self._reads = reads
        self._places = reads.places() if reads is not None else None
        self._unread = None  # (record, slot) of what nobody reads, behind the first run of what it set there
        self._unread_behind = None  # likewise of all that nobody reads, for backward runs
        self._is_new = False     # did the first run execute code that no call did before?
        self._sets_more = False  # does that set what others don't?
        self._asks_anything = False  # may it read by any name?
        self._unread_names = frozenset()  # by which nobody seemed to read, ahead of it
        self._shared = None  # while changes are judged: how many of the program's and of what is set is an object
        self._set = []      # those of the run that is under way, behind it
        self._made = []     # the fixed parts of what the first run put in the places of slots
        self._values = None  # what calls set, where all of that is plain: results of the graph are none of it
        self._compared = set()  # (id of the owner, key) of places that changed, and that keys tell of
        self._is_restored = False  # did the last run end with the state that it began with?
        self.places = []    # (owner, key) of what a run changed, but of arguments; None: of all it holds

    def _look(self, reach, fn, arguments, keeps):
        """Finds what can be reached. keeps: are the records to be left to the next capture?"""
        for number, (name, value) in enumerate(arguments):
            path = Path(None, "", name)
            self._roots[path] = (number, type(value))
            reach.follow(value, path)
        reach.sum_up_empties()
        if keeps:
            reach.note()
        reach.follow(fn, Path(None, "", "self" if isinstance(fn, (self.torch.nn.Module, types.MethodType)) else "fn"))
        for hook in _hooks_of_all_modules():
            reach.follow(hook, Path(None, "", "a hook of all modules"))
        if keeps and Kept.may_be(reach):
            self._kept = Kept(fn, reach)

    def containers(self):
        """The lists, dicts and deques of the program, by their ids, but for those of arguments."""
        kinds, roots = (list, dict, collections.deque), self._roots
        return {id(record.owner): record.owner for record in self.records if isinstance(record.owner, kinds) and
                not (roots and record.path and record.path.root() in roots)}

    def has_found(self, path):
        """Does a path begin with the callable, and not with one of its arguments?"""
        return path.root() not in self._roots

    def iterators(self):
        """The records of what nothing puts back."""
        return [record for record in self.records if isinstance(record, Progress)]

    def restore(self):
        """Puts back what runs changed, where the latest has not done so as it ended."""
        if not self._is_restored:
            for record in self.touched():
                record.restore()
        self._is_restored = True

    def finish(self):
        """Behind the last run: lets go of the program's objects."""
        self.restore()
        self.records, self.before, self.arguments = [], [], ()
        self._unread, self._unread_behind, self._set, self._brought = [], [], [], ()
        self._fn = None

    def keep(self, watched):
        """Behind that, where the capture worked: what the next one of the callable finds, as long as somebody keeps
        it; None: nothing. watched gives tensors that somebody else keeps."""
        kept, self._kept = self._kept, None
        return kept if kept is not None and not self.slots and kept.put(watched()) else None

    def touched(self):
        found = _C.touched(self.records)
        if not all(type(record) in _ANEW for record in found):
            self._kept = None
        return found

    # ---- Runs ----

    def watched(self, body):
        """The body of a run, which ends with the state that it began with; behind its result is what it
        assigned, where it assigned anything."""
        if self._unread is None:
            self._unread = slots_for(self.records, self._places)

        def run(placed):
            touched, self._is_restored = self.records, False
            try:
                with self._schedules.left_out():
                    result = self._covered(lambda: self._beside_stand_ins(body, placed))
                touched = self.touched()
                return self._gather(result, touched)
            finally:
                for record in touched:
                    self._note_places(record)
                    record.restore()
                self._is_restored = touched is not self.records
        return run

    @property
    def may_mislead(self):
        """Did a run execute new code, which reads what nobody seemed to read, or sets more?"""
        if not self._is_new:
            return False
        names = self._unread_names.union(slot.key for slot, _ in self.slots or () if type(slot) is UnreadSlot)
        return self._sets_more or (bool(names) and (
            self._asks_anything or self._reads.executed.reads_any(names)))

    def _covered(self, run):
        """What a run returns. What nobody reads has stand-ins meanwhile, behind the first run that alone which it set."""
        if self._reads is None:
            return run()
        executed, covered = self._reads.executed, Covered(self._unread)
        known, known_untold = executed.size, executed.size_untold
        covered.put()
        try:
            result = run()
        finally:
            self._set = covered.take_away()
        if self.slots is None:
            self._is_new = executed.size != known
            self._sets_more = self._places is None or not executed.stored <= self._places.stored
            self._asks_anything = executed.size_untold != known_untold
            self._unread_names = {slot.key for _, slot in self._unread}
            self._unread = self._set
        return result

    def _covered_behind(self, run):
        """What a backward run returns: all that nobody reads has stand-ins meanwhile."""
        covered = Covered(self._unread_behind)
        covered.put()
        try:
            return run()
        finally:
            self._set = covered.take_away()

    def _beside_stand_ins(self, body, placed):
        """What a run returns. Behind the first one nothing tells it what it adds to."""
        growing = [slot for slot, _ in self.slots or () if isinstance(slot, (Step, Tail))]
        if not growing:
            return body(placed)
        result, error, read = during(growing, lambda: body(placed))
        if not read and error is None and any(map(is_stand_in, flatten(result)[0])):
            read = growing
        if read:
            changes = [c for c in self._grown if any(c.slot.owner is slot.owner for slot in read)]
            raise Changed(changes, ", as each call reads what is there", is_hopeless=True,
                          records=self._records_of(changes)) from error
        if error is not None:
            raise error
        return result

    def unchanging(self, body):
        """The body of a backward run, which may change nothing but what the forward pass assigns."""
        if self._unread_behind is None:  # ahead of the runs, as they are watched
            self._unread_behind = slots_for(self.records, self._reads.places() if self._reads is not None else None)

        def run(placed):
            self._is_restored = False
            try:
                result = self._covered_behind(lambda: body(placed))
                self._refuse_changes()
                return result
            finally:
                self.restore()
        return run

    @contextlib.contextmanager
    def filling(self, args, kwargs):
        """During a run with these arguments, which it may change."""
        containers = Containers(args, kwargs, len(self.arguments))
        self._brought = list(map(id, containers_in((args, kwargs))))
        yield
        self._filled = containers.changes()

    def _refuse_changes(self):
        assigned = {self._place_of(slot) for slot, _ in self.slots or ()}
        found = [(record, change) for record in self.touched() for change in record.changes()]
        self._add_set(found)
        found = [(record, change) for record, change in found
                 if change.slot is None or self._place(change) not in assigned]
        if found:
            records, changes = zip(*found)
            raise Changed(changes, self._advice(changes), self._kinds_under(changes), records)

    def _note_places(self, record):
        if record.owner is None or record.path and record.path.root() in self._roots:
            return
        for change in record.changes():
            is_new = change.slot is not None and change.is_of_new_or_gone()
            by_name = isinstance(record, (Names, Body)) or (
                isinstance(record, Mapping) and record.form == "." and not record.registered)
            self.places.append((record.owner, None if change.slot is None or (is_new and not by_name)
                                else change.slot.key))
            if self._tells_calls_apart(change):
                self._compared.add(self._place(change))

    def _tells_calls_apart(self, change):
        """May keys tell what was there before? What nobody reads they do not."""
        if any(self._place(change) == self._place_of(slot) for _, slot in self._set):
            return True
        return is_plain(change.before) and is_plain(change.after) and not change.is_of_new_or_gone() and (
            not self._is_grown(change))

    def _gather(self, result, touched):
        replaced = {id(value) for record in touched for value in record.replaced()}
        for record in touched:
            if id(record.owner) in replaced:
                record.restore()  # what it held tells whether the one in its place is another
        if self.follows_draws():
            touched = [record for record in touched if not isinstance(record, Drawn)]
        found = [(record, change) for record in touched for change in record.changes()]
        self._add_set(found)
        found += [(None, change) for change in self._filled]
        found += [(None, Change(slot.path, slot, None, None)) for slot in self._schedules.stepped]
        changes = [change for _, change in found]
        if self.slots is None:
            self.slots = self._judge(found)
            self._made = [self._fixed_parts(change.after) for change in changes]
        elif [self._place(c) for c in changes] != [self._place_of(slot) for slot, _ in self.slots]:
            raise _C.Error("it changes other Python state in each run of a capture: it must do the same "
                           "each time")
        self._refuse_stand_ins(changes)
        self._refuse_moved(result, [change for record, change in found if record is not None])
        if not same([self._fixed_parts(change.after) for change in changes], self._made):
            raise Changed(changes, ", and to another value in each run of a capture")
        if all(type(slot) in _SETTING and self._is_constant(change.after) for (slot, _), change in zip(self.slots, changes)):
            self._values = tuple(change.after for change in changes)
            return result
        numbers = {id(leaf): i for i, leaf in enumerate(flatten(result)[0])
                   if isinstance(leaf, self.torch.Tensor)}
        return (result, tuple(self._assigned(change.after, numbers, self.torch.Tensor) for change in changes))

    def _add_set(self, found):
        """Adds what runs set and nobody reads, to what they changed, (record, change) each. That tensors are others
        shows anyway."""
        places = self._places
        for record, change in found if places is not None else ():
            if type(change.slot) is Slot and change.slot.key in places.stored and has_attributes(record) and (
                    not places.asks_for(change.slot.key) and not places.tell(record.owner, change.slot.key)):
                change.slot = UnreadSlot.like(change.slot)
        known = {self._place(change): change for _, change in found}
        for record, slot in self._set:
            change = known.get(self._place_of(slot))
            if change is None:
                change = Change(slot.path, slot, record.held[slot.key], slot.get())
                found.append((record, change))
            change.slot = UnreadSlot.like(change.slot)

    @staticmethod
    def _place(change):
        return change.slot and Effects._place_of(change.slot)

    @staticmethod
    def _place_of(slot):
        return (id(slot.owner), slot.key)

    def _judge(self, found):
        """The slots, where replays can assign what this run did. found: (record, change) of all."""
        changes = [change for _, change in found]
        self.found = {str(c.path): (self._kind(c.before), self._kind(c.after), step_of(c)) for c in changes}
        self._shared = collections.Counter(id(part) for c in changes if c.slot is not None and type(c.after) in (
            list, tuple, dict) for part in containers_in(c.after))
        self._shared.update(id(record.owner) for record in self.records)
        self._shared.update(self._brought)
        wrong = [(record, c) for record, c in found if not self._is_repeatable(c)]
        self._shared = None
        if wrong:
            records, changes = zip(*wrong)
            records = tuple(filter(None, records))
            raise Changed(changes, self._advice(changes), self._kinds_under(changes), records,
                          found=self.found, is_registered=any(r.registered for r in records))
        self.before = [leaf for c in changes if type(c.slot) is not UnreadSlot for leaf in _leaves(c.before)
                       if isinstance(leaf, self.torch.Tensor) and leaf.is_cuda]
        self._grown = [c for c in changes if self._is_grown(c)]
        return [(Step(c.slot, step_of(c)) if c in self._grown and step_of(c) else c.slot, self._kind(c.before))
                for c in changes]

    def _kind(self, value):
        return kind_of(self.torch, value)

    def _kinds_under(self, changes):
        return [self._roots[c.path.root()][1] for c in changes if c.path and c.path.root() in self._roots]

    def is_part(self, value):
        """Is it a part of an object among the arguments?"""
        if self._parts is None:
            self._parts = {id(record.owner) for record in self.records
                           if record.path and record.path.root() in self._roots}
        return not is_plain(value) and not isinstance(value, self.torch.Tensor) and (
            id(value) in self._parts or id(dict_of(value)) in self._parts)

    def _slot_for(self, slot):
        """The slot where calls find it: one of an object among the arguments is in that of each call. None: it
        cannot be found there again."""
        if type(slot) in (Filled, Stepped):
            return slot
        root = slot.path.root()
        if root not in self._roots:
            return self.lasting(slot)
        if type(slot) is Tail:
            return None
        made = ArgumentSlot(slot, self._roots[root][0])
        return made if made.owner([value for _, value in self.arguments]) is slot.owner else None

    def lasting(self, slot):
        """The same, found again by each call where the program may put another object for its owner."""
        if type(slot) is Step:
            found = self.lasting(slot.slot)
            return slot if found is slot.slot else Step(found, slot.by)
        if type(slot) not in (Slot, UnreadSlot) or slot.path.above is None:
            return slot
        name = slot.path.root().name
        named = [record.owner for record in self.records if (type(record) is Cell and record.name == name) or (
            type(record) is Names and record.path is None and name in record.names)]
        for root in (self._fn, *named):
            found = FoundSlot(slot, root)
            if found.owner is slot.owner:
                return slot if found.is_pinned(self.torch.nn.Module) else found
        return slot

    def _is_repeatable(self, change):
        if type(change.slot) is Stepped:
            return True
        if type(change.slot) is Filled:
            return all(is_plain(leaf) or type(leaf) is Within or self._is_made(leaf)
                       for leaf in flatten(change.after)[0])
        if change.slot is None or self._is_registered(change) or self._slot_for(change.slot) is None:
            return False
        if type(change.slot) is UnreadSlot and (self._is_constant(change.after) or is_made_of_plain(change.after)):
            return not self._is_alias(change.after)  # what is made lazily hangs on something that is read
        if self._is_grown(change):
            return True
        if self._is_told(change):
            return str(change.path) in self.known
        if is_plain(change.before) and self.known.get(str(change.path)) != self.found[str(change.path)]:
            return False  # the first time, it may be made lazily
        if type(change.slot) is Tail:
            return False
        if is_plain(change.after):
            return is_plain(change.before)
        if self._is_growing(change):
            return False
        tensors = [leaf for leaf in _leaves(change.after) if not is_plain(leaf)]
        return bool(tensors) and all(map(self._is_made, tensors)) and all(
            is_plain(leaf) or isinstance(leaf, self.torch.Tensor) for leaf in _leaves(change.before))

    def _is_constant(self, value):
        """Is it what calls can set as it is: a constant, or an object that the program holds elsewhere too?"""
        if is_constant(value):
            return True
        if type(value) in (list, tuple, dict) or isinstance(value, self.torch.Tensor):
            return False
        of_program = (r for r in self.records if not (r.path and r.path.root() in self._roots))
        return any(record.holders_of(value) for record in of_program)

    def _fixed_parts(self, value):
        """What of a value has to be the same in all runs: plain leaves, and which object another constant is."""
        def fixed(leaf):
            if is_plain(leaf):
                return leaf
            return id(leaf) if type(leaf) is not types.MethodType and self._is_constant(leaf) else None
        return [fixed(leaf) for leaf in _leaves(value)]

    def _is_alias(self, value):
        """Does it share a list or dict with the program, the arguments, or another place that is set? Replays would make
        a copy. Another object among the arguments is another one in each call."""
        found = [part for part in containers_in(value) if type(part) is not tuple]
        if any(self._shared[id(part)] != 1 for part in found):
            return True
        return any(value is argument for _, argument in self.arguments) and not is_plain(value)

    def _is_told(self, change):
        """Is it another plain value in the place of one that keys tell of?"""
        slot = change.slot
        return self._places is not None and type(slot) is Slot and is_plain(change.before) and is_plain(change.after) and (
            not change.is_of_new_or_gone() and slot.path.root() not in self._roots) and (
                self._places.tell(slot.owner, slot.key))

    def _is_grown(self, change):
        """Was the same added by two attempts, to a list or a counter that no argument holds?"""
        known, found = self.known.get(str(change.path)), self.found.get(str(change.path))
        if known is None or found is None or type(change.slot) in (Filled, UnreadSlot) or change.slot.path.root() in self._roots:
            return False
        if type(change.slot) is not Tail:
            return known != found and found[2] is not None and known[2] == found[2]
        return known == found and change.slot.find_holders(self.records) and all(
            is_plain(leaf) or self._is_made(leaf) for leaf in flatten(change.after)[0])

    def _is_read_beside(self, slot):
        """May other calls read what this raises?"""
        return type(slot) is Step and self._places is not None and slot.path.form != "[" and (
            self._places.reads_beside(slot.path.name))

    def _records_of(self, changes):
        owners = {id(change.slot.owner) for change in changes}
        return [record for record in self.records if id(record.owner) in owners]

    def _is_growing(self, change):
        """Does an object among the arguments hold tensors of another shape now? Calls would be captured one by
        one, as those of a decoder whose cache grows."""
        return change.slot.path.root() in self._roots and not is_plain(change.before) and (
            self._form(change.before) != self._form(change.after))

    def _form(self, value):
        """Its kind, wherever its tensors lie: one that was on the CPU may be moved by the first call."""
        kind = self._kind(value)
        return kind if is_plain(value) else (kind[0], tuple(
            leaf[:3] if isinstance(leaf[0], type) else leaf for leaf in kind[1]))

    def _is_registered(self, change):
        """Is it a parameter, a buffer or a submodule? A graph would be captured anew for each other one."""
        return any(r.registered and r.owner is change.slot.owner for r in self.records)

    def _is_made(self, leaf):
        """Is it a tensor on the device, which the result of a graph can be?"""
        return type(leaf) is self.torch.Tensor and leaf.is_cuda and leaf.layout is self.torch.strided

    def _refuse_stand_ins(self, changes):
        kept = [c for c in changes if any(is_stand_in(leaf) or is_one(leaf) for leaf in _leaves(c.after))]
        if kept:
            raise Changed(self._grown or kept, ", as each call keeps it elsewhere too", is_hopeless=True,
                          records=self._records_of(self._grown or kept))

    @staticmethod
    def _assigned(value, numbers, tensor_class):
        """What a run assigned, as a tree for the results of the graph."""
        leaves, spec = flatten(value)
        made = [Same(numbers[id(leaf)]) if id(leaf) in numbers else
                leaf if isinstance(leaf, (tensor_class, Within)) else Constant(leaf) for leaf in leaves]
        return unflatten(spec, made)

    def _refuse_moved(self, result, changes):
        """Raises Changed where a tensor that was in the place of another one goes on elsewhere: calls would find that of
        the capture there. Where kernels read one, the graph tells (replayed)."""
        moved, replaced = flatten(result)[0], {}
        for change in changes:
            if change.slot is None:
                continue
            before, after = (dict(_tensors_by_place(self.torch, value)) for value in (change.before, change.after))
            moved += [tensor for place, tensor in after.items() if before.get(place) is not tensor]
            replaced.update((_memory_of(tensor), change) for place, tensor in before.items()
                            if after.get(place) is not tensor)
        if not replaced:
            return
        replaced.pop(0, None)
        found = [replaced[at] for at in (_memory_of(x) for x in moved if _has_memory(self.torch, x)) if at in replaced]
        if found:
            raise self._read_and_replaced([change.slot for change in found])

    def _read_and_replaced(self, slots):
        changes = [Change(slot.path, slot, what="is read and replaced") for slot in slots]
        return Changed(changes, ". Write into the tensor instead, copy_(), or pass it as an argument",
                       self._kinds_under(changes), self._records_of(changes), is_hopeless=True)

    def _advice(self, changes):
        if any(c.what and "random numbers" in c.what for c in changes):
            return ". Draw on the GPU, with torch, or pass the numbers as tensors"
        if any(kind.__module__ == CACHES and "Static" not in kind.__name__ for kind in self._kinds_under(changes)):
            return '. A cache that keeps its size goes by graphs: StaticCache, or generate(cache_implementation="static")'
        return ""

    # ---- Behind the captures ----

    def left(self):
        """Those of `places` that tell no calls apart."""
        return [(owner, key) for owner, key in self.places if (id(owner), key) not in self._compared]

    def replayed(self, shape):
        """What the calls of a captured shape assign, or None. Raises Changed where its graphs read what lay
        there before, which is elsewhere by the next call."""
        if not self.slots:
            return None
        ranges = tuple((t.data_ptr(), _span(t)) for t in self.before)
        for part in shape.parts() if ranges else ():
            if any(part.graph.names(ranges)):
                raise self._read_and_replaced([slot for slot, _ in self.slots])
        beside = [Change(slot.path, slot, what="is raised") for slot, _ in self.slots if self._is_read_beside(slot)]
        if beside:
            raise Changed(beside, ", as other calls may read it", is_hopeless=True, records=self._records_of(beside))
        for slot, _ in self.slots:
            self.places += slot.places()
        return Assignments(self.torch, [(self._slot_for(slot), kind) for slot, kind in self.slots], self._values)


def _refuse_step(path, line):
    raise Changed([Change(path, what="by a step")], f" (at {line}). A schedule goes by graphs where its step() comes last: "
                  "before no more than zero_grad(), detach() and the return", is_hopeless=True)


def _leaves(value):
    return [] if value is ABSENT else flatten(value)[0]


def _has_memory(torch, value):
    return isinstance(value, torch.Tensor) and value.is_cuda and value.layout is torch.strided


def _memory_of(tensor):
    """Where its storage begins; 0: it is empty."""
    return tensor.untyped_storage().data_ptr()


def _tensors_by_place(torch, value, place=()):
    """(place, tensor) of each tensor in a value, where lists, tuples and dicts have it."""
    if type(value) in (list, tuple):
        value = dict(enumerate(value))
    if type(value) is dict:
        for key, part in value.items():
            yield from _tensors_by_place(torch, part, (*place, key))
    elif _has_memory(torch, value):
        yield place, value


def _span(tensor):
    from .._capture.record import span
    return span(tensor)


class Before:
    """What a capture leaves as it was: the gradients of some parameters, and Python state.

    noted: of two graphs what a backward run began with (_reads/behind.py)."""

    noted = None

    def __init__(self, gradients, effects):
        self.gradients = gradients
        self.effects = effects

    def finish(self):
        """Behind the capture."""
        try:
            self.effects.finish()
        finally:
            self.gradients.restore()


def records_of(args, kwargs):
    """Of containers among the arguments of a call, and what they hold."""
    reach = Reach(None)
    for name, arg in (*enumerate(args, 1), *kwargs.items()):
        if isinstance(arg, (dict, list, tuple)):
            reach.follow(arg, Path(None, "", f"argument {name!r}"))
    return reach.finish()
