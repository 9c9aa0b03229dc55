# SPDX-License-Identifier: MIT
"""Python state that a run may change: each record knows one owner, what that held, and how to put it back.

    Mapping    a dict, also the attributes of an object     Cell      a variable that a function closes over
    Names      some names of a module                       Body      the attributes of a class
    Slotted    the slots of an object                       Elements  a list or a deque
    Members    a set                                        Pointing  where a tensor lies, and one on the CPU
    Contents   the elements of an array                     State     a generator of random numbers
    Bytes      a bytearray, or an array of Python's         Variable  a context variable
    Memo       a functools.lru_cache                        Progress  an iterator: it cannot be put back
    Length     a queue: it cannot be put back

A record compares by identity first, and looks closer only at what another object is now. A value that is
equal is no change: a run may leave a new object which says the same.
"""

import array
import collections
import ctypes
import functools
import operator
import sys
import types

from .. import _C
from .._base import generators
from .._base.constants import is_class
from .._base.memos import entries_of, take_out
from .._base.objects import dict_of
from .._capture import trackers
from .growth import Tail, tail_of

MOST_BYTES = 1 << 20   # of a tensor on the CPU, or an array, whose contents are kept
_EMPTY_DICTS = sys.intern("{}")
MOST_DEPTH = 8         # to which two containers are compared
MOST_COMPARED = 4096   # elements of a container up to which two are compared


class Absent:
    """In the place of a value where there is none."""

    def __repr__(self):
        return "nothing"


ABSENT = Absent()
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented), range,
         slice, type, types.BuiltinFunctionType, types.ModuleType)


def is_plain(value):
    """Is it a value that nobody changes, as a number, or a tuple of such?"""
    kind = type(value)
    if kind in PLAIN or value is ABSENT or is_class(value):
        return True
    if isinstance(value, (tuple, frozenset)):
        return all(map(is_plain, value))
    return kind.__module__ == "torch" and kind.__name__ in ("dtype", "device", "layout", "memory_format")


def same(one, other, depth=MOST_DEPTH):
    """Do two values say the same? Tensors, and objects that cannot be looked into, only if they are one."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other) or depth == 0:
        return False
    if kind in (float, complex):
        return repr(one) == repr(other)  # nan, and the sign of zero
    if isinstance(one, (tuple, list, collections.deque)):
        return _same_rows(one, other, depth)
    if isinstance(one, dict):
        return len(one) <= MOST_COMPARED and list(one) == list(other) and _same_rows(
            list(one.values()), list(other.values()), depth) and _same_attributes(one, other, depth)
    if kind in PLAIN or kind in (types.MethodType, set, frozenset) or is_plain(one):
        return bool(one == other)
    if kind.__module__ == "torch._C" and kind.__name__ == "Generator":
        return trackers.share(one, other)
    if kind is types.FunctionType:
        return one.__code__ is other.__code__ and _same_rows(_closed_over(one), _closed_over(other), depth)
    return _is_looked_into(kind) and _same_attributes(one, other, depth)


def _same_rows(one, other, depth):
    return len(one) == len(other) <= MOST_COMPARED and all(
        same(a, b, depth - 1) for a, b in zip(one, other))


def _closed_over(function):
    return [cell_value(cell) for cell in function.__closure__ or ()] + list(function.__defaults__ or ())


def _same_attributes(one, other, depth):
    one, other = dict_of(one) or {}, dict_of(other) or {}
    return one.keys() == other.keys() and all(same(one[k], other[k], depth - 1) for k in one)


def _is_looked_into(kind):
    """Are objects of this type told by their attributes alone?"""
    return kind.__flags__ & (1 << 9) != 0 and not slots_of(kind) and kind.__basicsize__ <= (
        object.__basicsize__ + 16) and kind.__module__.partition(".")[0] != "torch"


def slots_of(kind):
    """The descriptors of a type's slots, by name. Types of C's have such for words that nobody sets."""
    return {name: value for base in kind.__mro__ if "__slots__" in vars(base) for name, value in vars(base).items()
            if type(value) is types.MemberDescriptorType}


def cell_value(cell):
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return ABSENT


class Path(_C.Path):
    """How the program would write where something is: the owner's path, and what comes behind it."""

    __slots__ = ()

    def root(self):
        here = self
        while here.above is not None:
            here = here.above
        return here

    def __str__(self):
        parts, here = [], self
        while here is not None:
            parts.append(here._part())
            here = here.above
        return "".join(reversed(parts))

    def _part(self):
        if self.form == "[":
            return f"[{_brief(self.name)}]"
        return f".{self.name}" if self.form == "." else str(self.name)


def _brief(value):
    if isinstance(value, (str, int, float, tuple)):
        text = repr(value)
        return text if len(text) <= 40 else text[:37] + "..."
    return f"a {type(value).__name__}"


class Slot:
    """One place that holds one value."""

    __slots__ = ("record", "owner", "key", "path")

    def __init__(self, record, owner, key, path):
        self.record = record  # the class of the record
        self.owner = owner
        self.key = key
        self.path = path

    def get(self):
        return self.record.look(self.owner).get(self.key, ABSENT)

    def put(self, value):
        self.record.put(self.owner, self.key, value)

    def fits(self, kind_of, kind):
        """Is it right for replays what is there now? kind: of what was there before the capture."""
        return kind_of(self.get()) == kind

    def of(self, arguments):
        """The slot in a call with these arguments that are no tensors."""
        return self

    def places(self):
        """(owner, key) of what calls change beside it."""
        return []


class _Way:
    """How a slot is found again, from an object on. It keeps nothing of what that led to."""

    __slots__ = ("path", "_made", "_steps")

    def __init__(self, slot):
        self.path = slot.path
        self._made = (type(slot), slot.record, slot.key)
        self._steps = []
        here = slot.path
        while here.above is not None:
            self._steps.insert(0, (here.form, here.name))
            here = here.above

    def _owner_from(self, value):
        """The owner of the slot's record; None where the way leads nowhere."""
        try:
            for form, name in self._steps[:-1]:
                value = _step(value, form, name)
            is_attribute = self._steps and self._steps[-1][0] == "." and self._made[1] is not Slotted
            return vars(value) if is_attribute else value
        except (LookupError, AttributeError, TypeError, ValueError):
            return None

    def _slot_in(self, owner):
        kind, record, key = self._made
        return _NOWHERE if owner is None else kind(record, owner, key, self.path)


class ArgumentSlot(_Way):
    """A slot in an object among the arguments, found in that of each call by the same way. number: of the argument among
    those that are no tensors."""

    __slots__ = ("_number",)

    def __init__(self, slot, number):
        super().__init__(slot)
        self._number = number

    def owner(self, arguments):
        """The owner of the slot's record; None where the way leads nowhere."""
        return self._owner_from(arguments[self._number]) if self._number < len(arguments) else None

    def of(self, arguments):
        return self._slot_in(self.owner(arguments))


class FoundSlot(_Way):
    """A slot in an object for which the program may put another one, found from the callable on. root: that, or the
    names of a module or the closed variable where the way begins."""

    __slots__ = ("_root",)

    def __init__(self, slot, root):
        super().__init__(slot)
        self._root = root
        if type(root) in (dict, types.CellType):
            self._steps.insert(0, ("[" if type(root) is dict else ".", slot.path.root().name))

    def of(self, arguments=()):
        return self._slot_in(self._owner_from(self._root))

    def fits(self, kind_of, kind):
        return self.of().fits(kind_of, kind)

    def get(self):
        return self.of().get()

    def put(self, value):
        self.of().put(value)

    owner = property(lambda self: self.of().owner)
    key = property(lambda self: self._made[2])
    record = property(lambda self: self._made[1])

    def places(self):
        return []

    def is_pinned(self, module):
        """Does the way lead through modules alone, whose members are watched? module: their class."""
        value = self._root
        for form, name in self._steps[:-1]:
            value = _step(value, form, name)
            if not isinstance(value, module) and name != "_modules":
                return False
        return True


class _Nowhere:
    """In the place of a slot that a call does not have."""

    owner = key = None
    fits = staticmethod(lambda kind_of, kind: kind_of(ABSENT) == kind)
    get = staticmethod(lambda: ABSENT)
    put = staticmethod(lambda value: None)


_NOWHERE = _Nowhere()


def _step(value, form, name):
    """What an object has by a name, or a container by a key."""
    if type(value) is types.CellType:
        return value.cell_contents
    if form == "[":
        return value[name] if isinstance(value, tuple) else base_of(value).__getitem__(value, name)
    if isinstance(value, types.MethodType):
        value = value.__func__ if form == "" else value.__self__
    if form == "":  # what a function closes over or names
        function = getattr(value, "__wrapped__", value) if not isinstance(value, types.FunctionType) else value
        free = function.__code__.co_freevars
        return function.__closure__[free.index(name)].cell_contents if name in free else function.__globals__[name]
    attributes = dict_of(value) or {}
    if name in attributes:
        return attributes[name]
    for part in ("_modules", "_parameters", "_buffers"):
        if name in attributes.get(part, ()):
            return attributes[part][name]
    return slots_of(type(value))[name].__get__(value)


class Change:
    """What a run changed. slot: where another value is by now; None: the owner changed otherwise, as
    `what` tells."""

    def __init__(self, path, slot=None, before=ABSENT, after=ABSENT, what=None):
        self.path = path
        self.slot = slot
        self.before = before
        self.after = after
        self.what = what

    def is_of_new_or_gone(self):
        """Was there nothing before, or is there nothing now? Stand-ins refuse to be compared."""
        return self.before is ABSENT or self.after is ABSENT


class Record(_C.Record):
    """An owner, and what it held when this was made. registered: does PyTorch look for tensors here, as
    parameters or buffers?"""

    __slots__ = ()

    def __init__(self, owner, path):
        self.owner = owner
        self.path = path
        self.held = self.look(owner)

    @staticmethod
    def look(owner):
        """What the owner holds, by key."""
        raise NotImplementedError

    @staticmethod
    def put(owner, key, value):
        raise NotImplementedError

    def path_of(self, key):
        return Path(self.path, ".", key)

    def is_touched(self):
        """Are there other objects than before, which may be equal?"""
        now, held = self.look(self.owner), self.held
        return len(now) != len(held) or not all(map(operator.is_, now.values(), held.values())) or not all(
            map(operator.is_, now, held))

    def replaced(self):
        """The values in whose places others are by now."""
        if not isinstance(self.held, dict):
            return []
        now = self.look(self.owner)
        return [value for key, value in self.held.items() if now.get(key, ABSENT) is not value]

    def changes(self):
        """A Change for each key that has another value."""
        if not self.is_touched():
            return
        now, held = self.look(self.owner), self.held
        for key in dict.fromkeys((*held, *now)):
            before, after = held.get(key, ABSENT), now.get(key, ABSENT)
            if not same(before, after):
                yield Change(self.path_of(key), self.slot(key), before, after)

    def slot(self, key):
        return Slot(type(self), self.owner, key, self.path_of(key))

    def holders_of(self, value):
        """The slots that held this object."""
        held = self.held.items() if isinstance(self.held, dict) else ()
        return [self.slot(key) for key, there in held if there is value]

    def has_inside(self, value):
        """Was it held by a tuple or the like, which nothing takes apart?"""
        return any(_is_inside(value, there) for there in self._all_held())

    def _all_held(self):
        return self.held.values() if isinstance(self.held, dict) else ()

    def restore(self):
        if not self.is_touched():
            return
        now, held = self.look(self.owner), self.held
        for key in dict.fromkeys((*now, *held)):
            if now.get(key, ABSENT) is not held.get(key, ABSENT):
                self.put(self.owner, key, held.get(key, ABSENT))


def _is_inside(value, holder, depth=MOST_DEPTH):
    kind = type(holder)
    if kind is functools.partial:
        parts = (holder.args, holder.keywords)
    elif isinstance(holder, (tuple, frozenset)):
        parts = holder
    elif kind in (types.MethodType, types.BuiltinMethodType):
        parts = (holder.__self__,)
    else:
        return False
    return any(part is value or (depth > 0 and _is_inside(value, part, depth - 1)) for part in parts)


def base_of(owner):
    """The type whose methods reach the items of a dict or list, whatever a subclass makes of them."""
    if type(owner) in (dict, collections.OrderedDict, list):
        return type(owner)
    for kind in (collections.OrderedDict, dict, list, collections.deque, set):
        if isinstance(owner, kind):
            return kind
    raise TypeError(type(owner).__name__)


class Mapping(Record):
    """Made by csrc/reads/reach.c. form: of the paths of what it holds."""

    __slots__ = ()

    @staticmethod
    def look(owner):
        return dict(owner) if type(owner) is dict else dict(base_of(owner).items(owner))

    @staticmethod
    def put(owner, key, value):
        base = base_of(owner)
        if value is not ABSENT:
            base.__setitem__(owner, key, value)
        elif base.__contains__(owner, key):
            base.__delitem__(owner, key)

    def is_touched(self):
        owner, held, base = self.owner, self.held, base_of(self.owner)
        if not held:
            return base.__len__(owner) != 0
        return base.__len__(owner) != len(held) or not all(
            map(operator.is_, base.values(owner), held.values())) or not all(
            map(operator.is_, base.__iter__(owner), held))

    def path_of(self, key):
        return Path(self.path, self.form, key)

    def restore(self):
        if not self.is_touched():
            return
        super().restore()
        if self.is_touched():  # in another order
            for key, value in self.held.items():
                self.put(self.owner, key, ABSENT)
                self.put(self.owner, key, value)


class Empties(Record):
    """Empty dicts of modules, most of which stay so: those that do not get records of their own, by
    csrc/reads/reach.c. held: of each the dict, its module's path and its name there, one after the other."""

    __slots__ = ()

    def __init__(self, held):
        self.owner = self.path = None
        self.held, self.form, self.alike = held, _EMPTY_DICTS, (Mapping, Path)

    def is_touched(self):
        return any(self.held[::3])

    def changes(self):
        return ()

    def restore(self):
        for owner in filter(None, self.held[::3]):
            base_of(owner).clear(owner)


class Names(Record):
    """Some names in a dict: the others are nobody's business."""

    def __init__(self, owner, path):
        self.names = {}
        super().__init__(owner, path)
        self.alike = self.names

    @staticmethod
    def look(owner):
        return {}

    def replaced(self):
        return [value for name, value in self.held.items() if self.owner.get(name, ABSENT) is not value]

    def add(self, name):
        if name not in self.names:
            self.names[name] = None
            if name in self.owner:
                self.held[name] = self.owner[name]

    def is_touched(self):
        get, held = self.owner.get, self.held
        return any(get(name, ABSENT) is not held.get(name, ABSENT) for name in self.names)

    def changes(self):
        for name in self.names:
            before, after = self.held.get(name, ABSENT), self.owner.get(name, ABSENT)
            if not same(before, after):
                yield Change(self.path_of(name), self.slot(name), before, after)

    def slot(self, key):
        return Slot(Mapping, self.owner, key, self.path_of(key))

    def restore(self):
        for name in self.names:
            if self.owner.get(name, ABSENT) is not self.held.get(name, ABSENT):
                Mapping.put(self.owner, name, self.held.get(name, ABSENT))

    def path_of(self, key):
        return Path(self.path, "." if self.path else "", key)


class Cell(Record):
    def __init__(self, owner, path, name):
        self.name, self.form = name, "cell"
        super().__init__(owner, path)

    @staticmethod
    def look(owner):
        value = cell_value(owner)
        return {} if value is ABSENT else {0: value}

    @staticmethod
    def put(owner, key, value):
        if value is not ABSENT:
            owner.cell_contents = value
        elif cell_value(owner) is not ABSENT:
            del owner.cell_contents

    def path_of(self, key):
        return Path(self.path, "", self.name)


class Slotted(Record):
    @staticmethod
    def look(owner):
        found = {}
        for name, slot in slots_of(type(owner)).items():
            try:
                found[name] = slot.__get__(owner)
            except AttributeError:
                pass
        return found

    @staticmethod
    def put(owner, key, value):
        slot = slots_of(type(owner))[key]
        if value is not ABSENT:
            slot.__set__(owner, value)
        else:
            slot.__delete__(owner)


class Body(Record):
    def __init__(self, owner, path):
        super().__init__(owner, path)
        self.names = _C.dict_of_class(owner)
        if self.names is not None:
            self.alike = (self.names, dict(self.names))

    @staticmethod
    def look(owner):
        return _C.body_of(_C.dict_of_class(owner) or dict(vars(owner)))

    @staticmethod
    def put(owner, key, value):
        if value is not ABSENT:
            type.__setattr__(owner, key, value)
        elif key in vars(owner):
            type.__delattr__(owner, key)


class Elements(Record):
    """A list or a deque. One that is longer or shorter by now changed as a whole."""

    @staticmethod
    def look(owner):
        return list(base_of(owner).__iter__(owner))

    @staticmethod
    def put(owner, key, value):
        base_of(owner).__setitem__(owner, key, value)

    def is_touched(self):
        base = base_of(self.owner)
        return base.__len__(self.owner) != len(self.held) or not all(
            map(operator.is_, base.__iter__(self.owner), self.held))

    def changes(self):
        if not self.is_touched():
            return
        now, held = self.look(self.owner), self.held
        tail = tail_of(self.owner, held)
        if tail or len(now) != len(held):
            yield Change(self.path, Tail(self.owner, self.path) if tail else None, ABSENT, tail,
                         f"has {len(now)} elements behind a call that began with {len(held)}")
            return
        for i, (before, after) in enumerate(zip(held, now)):
            if not same(before, after):
                yield Change(Path(self.path, "[", i), self.slot(i), before, after)

    def slot(self, key):
        return _Element(Elements, self.owner, key, Path(self.path, "[", key))

    def holders_of(self, value):
        return [self.slot(i) for i, there in enumerate(self.held) if there is value]

    def _all_held(self):
        return self.held

    def restore(self):
        if self.is_touched():
            base = base_of(self.owner)
            base.clear(self.owner)
            base.extend(self.owner, self.held)


class _Element(Slot):
    def get(self):
        now = self.record.look(self.owner)
        return now[self.key] if self.key < len(now) else ABSENT


class Members(Record):
    @staticmethod
    def look(owner):
        return set(base_of(owner).__iter__(owner))

    def is_touched(self):
        return base_of(self.owner).__ne__(self.owner, self.held)

    def changes(self):
        if self.is_touched():
            yield Change(self.path, what="has other members behind a call")

    def restore(self):
        if self.is_touched():
            base = base_of(self.owner)
            base.clear(self.owner)
            base.update(self.owner, self.held)


class Pointing(Record):
    """Where a tensor lies, and what is in it where that is on the CPU."""

    def __init__(self, owner, path):
        super().__init__(owner, path)
        place, address, *_ = self.held
        if place.device.type != "cpu":
            self.alike = (address, place.numel())

    @staticmethod
    def look(owner):
        place = owner.detach()
        version = None if owner.is_inference() else owner._version
        kept = owner.device.type == "cpu" and owner.numel() * owner.element_size() <= MOST_BYTES
        return place, owner.data_ptr(), version, place.clone() if kept else None

    @property
    def registered(self):
        """Did the memory move that all which was captured reads, as where another parameter is registered?"""
        return self._is_elsewhere()

    def _is_elsewhere(self):
        place, address, *_ = self.held
        return self.owner.data_ptr() != address or self.owner.numel() != place.numel()

    def _has_other_values(self):
        place, _, version, kept = self.held
        if place.device.type != "cpu" or (version is not None and place._version == version):
            return False
        return kept is None or not _equal_bytes(place, kept)

    def is_touched(self):
        return self._is_elsewhere() or self._has_other_values()

    def changes(self):
        if self._is_elsewhere():
            yield Change(self.path, what="lies elsewhere behind a call (its .data was replaced)")
        elif self._has_other_values():
            yield Change(self.path, what="lies on the CPU, and a call writes to it")

    def restore(self):
        place, *_, kept = self.held
        if self._is_elsewhere():
            self.owner.data = place
        if kept is not None and self._has_other_values():
            place.copy_(kept)


def _equal_bytes(one, other):
    return one.shape == other.shape and _as_bytes(one) == _as_bytes(other)


def _as_bytes(tensor):
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
    import torch
    return bytes(tensor.contiguous().flatten().view(torch.uint8).numpy() if tensor.numel() else b"")


class Contents(Record):
    """A numpy array; of objects, which these are."""

    @staticmethod
    def look(owner):
        return owner.copy() if owner.nbytes <= MOST_BYTES else None

    def is_touched(self):
        return self.held is not None and self.owner.tobytes() != self.held.tobytes()

    def changes(self):
        if self.is_touched():
            yield Change(self.path, what="is an array on the CPU, and a call writes to it")

    def restore(self):
        if self.is_touched():
            self.owner[...] = self.held


class Bytes(Record):
    """A bytearray, or an array of Python's."""

    @staticmethod
    def look(owner):
        return owner[:] if memoryview(owner).nbytes <= MOST_BYTES else None

    def is_touched(self):
        return self.held is not None and memoryview(self.owner).tobytes() != memoryview(self.held).tobytes()

    def changes(self):
        if self.is_touched():
            yield Change(self.path, what=f"is a {type(self.owner).__name__}, and a call writes to it")

    def restore(self):
        if self.is_touched():
            base = bytearray if isinstance(self.owner, bytearray) else array.array
            base.__setitem__(self.owner, slice(None), self.held)


class Variable(Record):
    """A context variable, as the thread has it. One that had no value keeps what it was given: nothing takes it out."""

    @staticmethod
    def look(owner):
        try:
            return owner.get()
        except LookupError:
            return ABSENT

    def is_touched(self):
        return self.look(self.owner) is not self.held

    def changes(self):
        if self.is_touched() and not same(self.held, self.look(self.owner)):
            yield Change(self.path, what="is a context variable, and a call sets it")

    def restore(self):
        if self.is_touched() and self.held is not ABSENT:
            self.owner.set(self.held)


class Length(Record):
    """A queue that tells how much is in it, and no more: nothing puts it back."""

    @staticmethod
    def look(owner):
        return owner.qsize()

    def is_touched(self):
        return self.look(self.owner) != self.held

    def changes(self):
        if self.is_touched():
            yield Change(self.path, what="is a queue, and a call puts something into it or takes it out")

    def restore(self):
        pass


class State(Record):
    """A generator of random numbers: what tells its state, and what sets it. made: itself, where that is Python's or
    NumPy's."""

    def __init__(self, get, put, path, made=None):
        self.get = get
        self.set = put
        self.made = made
        self.owner, self.path = None, path
        self.held, self.mark = generators.state_of(made, get)

    def look(self, owner):
        return self.get()

    def is_touched(self):
        if self.mark is not None and generators.mark(self.made) == self.mark:
            return False
        return not _same_state(self.get(), self.held)

    def changes(self):
        if self.is_touched():
            yield Change(self.path, what="moves on: random numbers are drawn on the CPU in each call")

    def restore(self):
        if self.is_touched():
            self.set(self.held)


class Drawn(State):
    """PyTorch's generator on the CPU."""


def _same_state(one, other):
    if type(one) is tuple and all(type(part) in PLAIN or type(part) is tuple for part in one):
        return one == other
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_same_state, one, other))
    if isinstance(one, dict):
        return all(_same_state(one[k], other[k]) for k in one)
    if hasattr(one, "tobytes"):
        return one.tobytes() == other.tobytes()
    if hasattr(one, "data_ptr"):
        return _equal_bytes(one, other)
    return one == other


class Memo(Record):
    """A cache of a function's results. What a run adds is taken out again: a call is to make it, as it may hold random
    numbers, or what the program has changed since. An entry that made room for it comes back with no one."""

    def __init__(self, owner, path):
        super().__init__(owner, path)
        self.form = "memo"
        self.keys = None
        self.hold()

    @staticmethod
    def look(owner):
        info = owner.cache_info()
        return info.misses, info.currsize

    def hold(self):
        """Begins with what is there now."""
        self.held = self.look(self.owner)
        self.keys = list(entries_of(self.owner, self.held[1]) or ())

    def let_go(self):
        """Keeps no key until hold() is called."""
        self.keys = None

    def is_touched(self):
        return self.look(self.owner) != self.held

    def _added(self):
        """(the dict of the cache, keys that were not there before); (None, size): it cannot be looked into."""
        size = self.look(self.owner)[1]
        entries = entries_of(self.owner, size)
        if entries is None:
            return None, size
        known = set(map(id, self.keys))
        return entries, [key for key in list(entries) if id(key) not in known]

    def changes(self):
        if self.is_touched() and self._added()[1]:
            yield Change(self.path, what="is a cache of a function's results, and a call adds to it")

    def restore(self):
        if not self.is_touched():
            return
        entries, added = self._added()
        if entries is None:
            self.owner.cache_clear()
        else:
            take_out(entries, added)
        self.hold()


class Progress(Record):
    """How far an iterator is. Nothing puts it back."""

    @staticmethod
    def look(owner):
        return _position(owner, 3)

    def is_touched(self):
        return self.look(self.owner) != self.held

    def changes(self):
        if self.is_touched():
            yield Change(self.path, what="is an iterator that each call takes forward")

    def restore(self):
        pass


def _position(iterator, depth):
    """What tells how far it is: of a generator its line, of others numbers in what they are pickled as,
    also those of the iterators that they take from."""
    frame = getattr(iterator, "gi_frame", ABSENT)
    if frame is not ABSENT:
        return frame and (frame.f_lasti, frame.f_lineno)
    if isinstance(iterator, int):
        return iterator
    if isinstance(iterator, tuple):
        return tuple(_position(part, depth - 1) for part in iterator) if depth else None
    if not hasattr(type(iterator), "__next__"):
        return None
    try:
        return operator.length_hint(iterator, -1), _position(iterator.__reduce__()[1:], depth)
    except TypeError:
        return None
