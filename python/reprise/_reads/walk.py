# SPDX-License-Identifier: MIT
"""What a callable reads beside its arguments, found by following names.

From the callable on, functions are followed through their closures, defaults and the globals that they
name; objects through the attributes that any of this code names; modules through their children; dicts,
lists and tuples through all they hold. Code of Python's, PyTorch's and NumPy's is not followed.

Two things come of it. Owners: where each value lies, for csrc/reads/reads.h to look there again. Tokens: the
values themselves, in the order in which they were found, as something to compare and to hash: numbers
by their bits, containers by what they hold, tensors by their address, everything else by identity.
"""

import _abc
import abc
import array
import bisect
import builtins
import collections
import collections.abc
import decimal
import enum
import functools
import gc
import io
import logging
import operator
import os
import sys
import threading
import types
import weakref
from contextvars import ContextVar

from .. import _C
from .._base import torch_private
from .._base.constants import VIEWS, WRITTEN, is_class, is_plain, is_plain_type
from .._base.interrupts import let_through
from .._base.memos import MEMO_TYPE, kept_by
from .._base.objects import dict_of, has
from .._capture import trackers
from . import switches
from .closed import is_closed, running
from .code import MATCHED, OF_FUNCTIONS, VERSION, is_foreign_file, is_foreign_module, named
from .marks import BY_DESCRIPTOR, BY_ORDER, BY_VALUE, dict_of_class, way_for
from .runs import STREAM, current_stream, place_of

NAMES, ITEMS, LIST, CELL, FUNCTION, TYPE, TENSOR, DATA, ATTRIBUTES, CALL, SET, DICT, VARIABLE = range(13)
MOST_ITEMS = 4096    # of a container that are looked at one by one
MOST_OF_SET = 64     # of classes; of more only the number is looked at
MOST_MEMBERS = 1024  # likewise of sets of other objects
MOST_BYTES = 4096    # of a CPU tensor that are compared; of a larger one its version is
MOST_ARRAY = 1 << 16  # bytes of a NumPy array, which has no version
MOST_VALUES = 100_000

_ITERATORS: tuple[type, ...] = (
    types.GeneratorType, type(iter(())), type(iter([])), type(iter({})), type(iter("")), type(iter(range(1))),
    type(iter(set())), zip, map, filter, enumerate, reversed)
_OF_MODULE = frozenset(("__getattr__",))
_SKIPPED_DUNDERS = frozenset(("__del__", "__set_name__", "__init__", "__new__", "__post_init__", "__init_subclass__"))
_OF_AUTOGRAD = frozenset(("forward", "backward", "setup_context", "jvp"))
_MADE_WITH = frozenset(("__init__", "__new__", "__post_init__"))
_OF_PYDANTIC = "__pydantic_fields_set__"  # a slot of its models
_POSES = frozenset(("__class__", "__getattribute__"))  # by which an object says another class than its own
_OPEN_TYPES = (types.SimpleNamespace, collections.UserDict, collections.UserList, collections.ChainMap,
               weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)
# Of these modules of Python's objects are looked through whole: what they hold is the program's.
_OPEN_MODULES = frozenset(("threading", "queue", "configparser", "string", "multiprocessing.sharedctypes",
                           "concurrent.futures._base", "asyncio.locks", "asyncio.queues",
                           "multiprocessing.synchronize"))
_OPEN_PACKAGES = ("torch.distributions.", "torch.utils.data.")  # likewise, with what they inherit
_ASKED_IN_C = ("__array__", "__array_interface__", "__dlpack__")  # by NumPy and PyTorch, of what becomes an array
_OF_C = frozenset((types.MethodDescriptorType, types.WrapperDescriptorType))  # what a class of C has
_PLAIN_BASES = ((int, int.__int__), (float, float.__float__), (str, str.__str__))  # of classes, and what objects are then
_INTERPRETERS = "torch.fx.interpreter"  # whose objects go through a module of the program's
_MOCKS = "unittest.mock"  # whose objects answer to every name, so that they pass for iterators
_LOCKS = (type(threading.Lock()),)
_OF_PARTIAL = ("func", "args", "keywords")
_OF_OPTIMIZERS = frozenset(("step", "zero_grad"))
_BUILTINS = frozenset(vars(builtins))  # Python's own
_BARE = (dict, list, tuple, set, frozenset, weakref.ref, weakref.WeakMethod)  # have no attributes of the program's
_REGISTERED = (type, weakref.ref)  # what sets and keys of dicts have by the hundred
_PROXIES = (weakref.ProxyType, weakref.CallableProxyType)
OF_CLASSES = ("__name__", "__qualname__")
BASES = "__bases__"
_BELOW = "__subclasses__"
_SIGNATURES = frozenset(("signature", "getfullargspec", "get_type_hints", "get_annotations"))  # which ask by these:
_OF_SIGNATURES = frozenset(("__annotations__", "__signature__", "__wrapped__"))
_KIND_ASKERS = frozenset(("isinstance", "issubclass"))
_LEVEL = "_current_level"
_LOGGER = ("level", "disabled", "propagate", "parent")  # what tells whether it logs, of those above it too
_HANDLERS = frozenset(("handlers", "hasHandlers"))  # lists, which are looked at in each call


Same = _C.Same  # an object by its identity; it lives as long as this
_Scope = _C.Scope


def plain_token(value):
    """0.0 and -0.0 are equal, and work is not the same with them; nan is not equal to nan."""
    kind = type(value)
    return (kind, repr(value) if _is_written(kind) else value)


def _is_written(kind):
    return kind in (float, complex, slice) or kind.__module__ == "torch"


class _Plain(enum.Enum):
    """An Enum whose member has no attributes of its own."""

    MEMBER = ""


_PLAIN_MEMBER = len(vars(_Plain.MEMBER))  # attributes of such a one


class _While:
    """A tensor by its identity, for as long as it lives: another one may get its memory, and has its version."""

    __slots__ = ("_ref", "_id")

    def __init__(self, tensor):
        self._ref, self._id = weakref.ref(tensor), id(tensor)

    def __eq__(self, other):
        found = self._ref()
        return isinstance(other, _While) and found is not None and found is other._ref()

    def __hash__(self):
        return self._id


def _base_of(tensor):
    base = tensor._base
    return None if base is None else (base.data_ptr(), base.shape, base.stride())


# What code may ask of tensors that others in the same place do not answer alike. Keys have all else of them.
_OF_TENSORS = {"_base": _base_of, "_is_view": lambda tensor: tensor._is_view(), "is_leaf": lambda tensor: tensor.is_leaf,
               "grad_fn": lambda tensor: type(tensor.grad_fn)}
_asked: list = []  # PyTorch, and what _asked_of found of it


def _asked_of(torch):
    """As _find_asked says, found once."""
    if not _asked or _asked[0] is not torch:
        _asked[:] = torch, _find_asked(torch)
    return _asked[1]


def _find_asked(torch):
    """What code asks Python or PyTorch for: functions, and how their answers are asked for to be compared at each
    call. PyTorch's other switches are in each key (switches.py)."""
    asked = {ask: ask for ask in (os.getcwd, sys.getrecursionlimit, threading.current_thread, threading.active_count)}
    for name in ("get_num_threads", "get_num_interop_threads", "is_anomaly_enabled", "is_anomaly_check_nan_enabled",
                 "is_autocast_cpu_enabled", "is_autocast_cache_enabled", "is_warn_always_enabled"):
        if hasattr(torch, name):
            asked[getattr(torch, name)] = getattr(torch, name)
    for name in ("is_autocast_enabled", "get_autocast_dtype"):  # that of the device is in keys
        if hasattr(torch, name) and name not in switches.of(torch).told:
            asked[getattr(torch, name)] = functools.partial(getattr(torch, name), "cpu")
    return asked


class Walk(_C.Walk):
    """One walk from some roots; `run` does it. How values get tokens is in csrc/reads/walk.c."""

    def __init__(self, torch, known=(), names=None, executed=None, left=(), takes=None, most=None, foresees=False):
        self.torch = torch
        self._most = most or MOST_VALUES  # of more it is an obstacle, and the walk ends
        self.takes = takes      # of a tensor of the device: may calls bring another one? None: none may
        self.bound = []         # such tensors: (weak reference, its places)
        self.binds_all = True   # are all tensors of the device such?
        self._met = {}          # by id: (tensor, where its token is, its places), while it walks
        self.left = left or {}  # places that are not looked at, as Reads.leave_out has them
        self.executed = executed  # places of code that ran, which alone is followed; None: all is
        self.known = set(known) if foresees else known  # ids of tensors that somebody else looks at
        self.foresees = foresees  # are those of modules that it meets among them, as their tensors will be watched?
        self.modules = []       # nn.Modules and optimizers that were met
        self.optimizers = []
        self.optimizer_paths = []
        self.globals = set()    # that code names, modules that it imports among them
        self.iterators = []     # (iterator, path)
        self.obstacles = []     # sentences
        self.cautions = []
        self.names = {"forward", *_ASKED_IN_C} if names is None else set(names)
        self.stored = set()     # attributes and globals that code sets
        self.looked = set()     # those, and closed variables, that it reads for more than to set them anew
        self._setters = set()   # names in classes that were met: to set these executes code
        self._skipped = _SKIPPED_DUNDERS
        self._tensor_class = torch.Tensor
        self._ahead = collections.deque()
        self._scopes = []
        self._inherited = {}    # by class: as _inherited_from has them
        self._making = {}       # by class: as _makes_attributes says, while so many classes were met
        self._met_classes = 0
        self._shared = []       # those of classes, modules of Python's and functions
        self._functions = []    # (function, path) of the program's, also of those that did not run
        self._at_home = {}      # by name: likewise of those that lie where they were declared
        self._ahead_of = set()  # as of Named.ahead
        self._described = collections.Counter()  # by name of an attribute: of how many of them it was looked at
        self._kinds = set()     # whose classes were met
        self._met_names = {}    # by class: all names that it had then
        self._made = 0          # times that a class came to have more names that count
        self._module_base = frozenset(vars(torch.nn.Module()))
        self._module_parts = ("_modules", "_parameters", "_buffers", *sorted(
            n for n in self._module_base if n.endswith("_hooks")))
        self._without_hooks = ()  # modules whose `forward` is called, which calls no hooks of theirs
        self._used = set()      # types of modules whose own functions were looked at
        self._global_hooks = False  # were they looked at?
        self._optimizers_hooks = False  # likewise of all optimizers
        self._abstract = {}     # classes that others may be registered with: was it looked which are?
        self._under_way = None  # as closed.running() says, once it was asked
        self._scripted = False  # were modules of TorchScript met?
        self._functional = None  # the scope of torch.nn.functional, once a layer of PyTorch's was met
        self._news = News()
        self._extensions = {}   # by id of a class: has it parts in C that hold what Python cannot look at?
        self._loose = set()     # of Executed.loose what was looked at
        self.compares = False   # does code ask of objects whether they are the same one?
        self._goes_through = False  # does code go through all that objects have, as by vars()?
        self._gone_through = set()  # ids of their dicts
        self.can_go_on = False

    def run(self, *roots):
        """Walks from (value, path) each."""
        self._learn_made()
        self._without_hooks = tuple(value.__self__ for value, _ in roots if isinstance(value, types.MethodType)
                                    and value.__name__ == "forward")
        for value, path in roots:
            self.put(value, path)
        names = dict_of_class(self.torch.Tensor)
        if names is not None:  # a method may be replaced
            self._shared.append(_Scope(self.torch.Tensor, names, "Tensor.", way_for("class"), shallow=True,
                                       inherits=True))
        levels = getattr(getattr(self.torch, "autograd", None), "forward_ad", None)
        if hasattr(levels, _LEVEL):  # calls within one are eager
            self.own(NAMES, vars(levels), (_LEVEL,), None, (f"torch.autograd.forward_ad.{_LEVEL}",),
                     way_for("globals"))
        self._find_all()
        self._bind()
        return self

    def go_on(self, executed):
        """Follows code that is among what was executed by now, and what there is now of what was not there
        before. Nothing that was found may have changed; otherwise it takes another walk."""
        self.executed = executed
        self._under_way = None
        self._inherited.clear()
        self.names, self.paths = set(self.names), list(self.paths)  # others than those that somebody has
        self.stored, self.looked = set(self.stored), set(self.looked)
        self._learn_made()
        for scope in (*self._shared, *self._scopes):
            scope.look_again()
        self._news.follow(self)
        self._find_all()

    def _learn_made(self):
        """Names that runs made are asked for like those that code has as strings; and code that is no function's is
        followed, as eval executes it."""
        made = getattr(self.executed, "made", ())
        if STREAM in made and STREAM not in self.names:
            self._called(current_stream, "torch.cuda.current_stream()")
        self.names.update(made)
        self._maybe.update(made)
        for name, logger in getattr(self.executed, "loggers", {}).items():
            self.put(logger, f"logging.getLogger({name!r})")
        for code, names in getattr(self.executed, "loose", {}).items():
            if code not in self._loose:
                self._loose.add(code)
                self._learn(code, names, "")

    def _find_all(self):
        progress = None
        while progress != (progress := self._progress()):
            shared = None
            while shared != (shared := self._progress()):  # what names code, ahead of the many that are named
                self._drain()
                self.extend(self._shared, False)
            self._drain()
            self.extend(self._shared)  # what is not there leads to no names, and is asked for but once
            self._drain()
            self.extend(self._scopes)
            self.extend(self._news.scopes)
            self._news.ask_locks(self)
            self._drain()
            self._go_through()
            self._describe()
            self._ask_registered()
        if self.executed is None or self.takes is not None or self._news.is_loose:
            self.end()
        else:
            self._news.pause()
            self.weaken()
            self.can_go_on = True

    def has_its_classes(self):
        """Has each class that was met the names that it had?"""
        return all(tuple(scope.names) == self._met_names[kind] for kind, scope in self._classes.items())

    def _go_through(self):
        """Which attributes objects have, and in which order."""
        for scope in list(self._scopes) if self._goes_through else ():
            names = scope.names
            if type(names) is dict and id(names) not in self._gone_through and (
                    scope.is_open and names is dict_of(scope.object)):
                self._gone_through.add(id(names))
                self._items(names, scope.path.rstrip("."))
        self._drain()

    def _describe(self):
        """What code asks of functions, classes and tensors beside what they hold."""
        classes = [(kind, kind.__name__) for kind in self._classes]
        for objects, names in ((self._functions, OF_FUNCTIONS), (classes, (*OF_CLASSES, _BELOW))):
            for name in sorted(self.names.intersection(names)):
                for value, path in self._not_described(objects, (names, name)):
                    self._describe_by(value, name, f"{path}.{name}")
        tensors = self._news.tensors
        for name in sorted(_OF_TENSORS.keys() & self.names):
            for tensor, path in [(ref(), path) for ref, path in self._not_described(tensors, name)]:
                if tensor is not None:
                    self.tokens.append((name, _OF_TENSORS[name](tensor)))
                    self.paths.append(f"{path}.{name}")
        for name, asked in sorted(self._ahead_of):
            if asked == VERSION:
                for ref, path in self._not_described(tensors, (name, asked)):
                    self._own_version(ref, path, name)
                continue
            for value, path in self._not_described(self._at_home.get(name, ()), (name, asked)):
                self._describe_by(value, asked, f"{path}.{asked}")
        self._drain()

    def _not_described(self, objects, what):
        """Those that came since the last time."""
        known, self._described[what] = self._described[what], len(objects)
        return objects[known:]

    def _own_version(self, ref, path, name):
        tensor = ref()
        is_named = path == name or path.endswith((f".{name}", f"[{name!r}]"))
        if is_named and tensor is not None and not tensor.is_inference():
            self.own(ATTRIBUTES, ref, (VERSION,), (tensor._version,), (f"{path}.{VERSION}",))

    def _describe_by(self, value, name, path):
        if name == _BELOW:
            self._called(functools.partial(_ids_below, value), f"{path}()")
            self._news.is_loose = True
            for kind in type.__subclasses__(value):
                self._follow(Walk.put, kind, kind.__name__)
            return
        try:
            found = getattr(value, name)
        except Exception as error:  # annotations are code of the program's, from CPython 3.14 on
            let_through(error)
            return
        self.own(ATTRIBUTES, value, (name,), (found,), (path,))

    def _ask_registered(self):
        """Which classes are registered with abstract ones, where code asks for the classes of objects."""
        if _KIND_ASKERS.isdisjoint(self.globals) and MATCHED not in self.names:
            return
        for kind in [kind for kind, is_asked in self._abstract.items() if not is_asked]:
            if True not in self._abstract.values():
                self.look_at(CALL, abc.get_cache_token, (_Count(abc.get_cache_token()),))
            self._abstract[kind] = True
            self.tokens.append(("registered", Same(kind), _registered_with(kind)))
            self.paths.append(f"what is registered with {kind.__name__}")

    def end(self):
        """What was looked at is the program's to drop."""
        self.can_go_on = False
        self._abstract.clear()
        self._met_names.clear()
        self._functions.clear()
        self._at_home.clear()
        self.let_go()
        self._scopes.clear()
        self._shared.clear()
        self._news.clear()

    def leave_hooks(self, parts):
        """Of modules no more than these parts are looked at, beside what code names, their mode among it."""
        self._module_parts, self._global_hooks = parts, True
        self._module_base -= {"training"}

    def classes_by_dict(self):
        """The classes that were met, by the ids of their dicts."""
        return {id(scope.names): one for one, scope in self._classes.items()}

    def twin(self):
        """Another one, which found the same: of a walk that does not go on."""
        made = Walk(self.torch, self.known, self.names, self.executed, self.left, self.takes, self._most)
        made.names, made.stored, made.looked = self.names, self.stored, self.looked  # nobody adds to them
        made.paths = self.paths
        made.dynamic, made.has_memory, made.binds_all = self.dynamic, self.has_memory, self.binds_all
        made.compares = self.compares
        for mine, others in ((made.tokens, self.tokens), (made.first, self.first), (made.owners, self.owners),
                             (made.bound, self.bound), (made.modules, self.modules), (made.optimizers, self.optimizers),
                             (made.optimizer_paths, self.optimizer_paths), (made.iterators, self.iterators),
                             (made.obstacles, self.obstacles), (made.cautions, self.cautions)):
            mine += others
        made.globals |= self.globals
        made._maybe |= self._maybe
        made._dynamic_classes |= self._dynamic_classes
        made.know_classes(self._classes)
        return made

    def know_classes(self, classes):
        self._classes.update(classes)

    @property
    def asks_for_what_may_lack(self):
        """Does code ask for attributes that objects need not have?"""
        return bool(self._maybe or self.dynamic or self._dynamic_classes)

    def asks_for(self, name):
        """Does code ask for an attribute of this name?"""
        return name in self.names or ((self.dynamic or bool(self._dynamic_classes)) and not name.startswith("_"))

    def _progress(self):
        return (len(self.names), self.dynamic, len(self._dynamic_classes), len(self._shared), len(self._scopes),
                len(self._news.scopes), self._made)

    def _drain(self):
        while self._ahead:
            follow, value, path = self._ahead.popleft()
            if len(self.tokens) > self._most:
                self._find_no_more()
                return
            follow(self, value, path)

    def _find_no_more(self):
        """Nothing is followed any further, nor asked for names."""
        if not self.obstacles:
            self.obstacles.append(f"it may read more than {self._most} values beside its arguments")
        self._ahead.clear()
        self._scopes.clear()
        self._shared.clear()
        self._functions.clear()
        self._at_home.clear()
        self._abstract.clear()
        self._news.clear()

    # ---- Tokens and owners ----

    # tokens; paths: of each of them; owners: (kind, way, object, keys, values), as _C.Reads.set takes them; first:
    # of each owner the token of its first value; parts: what bound tensors are in, containers, and dicts of objects
    # or these; has_memory: does it hold tensors of the device? put() and own() add to them.

    def _kept(self, kind, object, keys, values, paths):
        """(kind, keys, values, paths) of an owner but for places that are left out; None: nothing is left."""
        before, had = keys, bool(values)
        keys, values, paths = self._without_left(kind, object, keys, values, paths)
        if kind == ITEMS and len(keys) < len(before):
            kind = NAMES  # it has more than these
        if had and not values and kind in (NAMES, ITEMS, ATTRIBUTES, CELL, LIST):
            return None
        return kind, keys, values, paths

    def place_of(self, entry):
        """Of a token by its number: (kind, owner, key) where its value lies in a dict or a cell where others
        may be put; None: it lies elsewhere."""
        which = bisect.bisect_right(self.first, entry) - 1
        if which < 0:
            return None
        kind, _, owner, keys, values = self.owners[which]
        at = entry - self.first[which]
        if at >= len(values) or values[at] is _C.absent or kind not in (NAMES, ITEMS, CELL) or (kind != CELL and (
                type(owner) is not dict or any(owner is s.names for s in self._classes.values()))):
            return None
        return kind, owner, None if kind == CELL else keys[at]

    def _meet(self, value, place):
        """Notes a tensor of the device, and where it was found; None: where none may be put."""
        if isinstance(value, self.torch.Tensor) and value.device.type != "cpu":
            self._met.setdefault(id(value), (value, len(self.tokens), []))[2].append(place)

    def _bind(self):
        """Of the tensors that were met those are bound which calls may bring others of: their tokens
        do not tell which they are."""
        is_plain_tree = not self.modules and not self.optimizers  # those are told by identity anyway
        found = []
        for tensor, at, places in self._met.values():
            if is_plain_tree and None not in places and self.takes(tensor):
                self.tokens[at] = ("bound", *self.tokens[at][2:])  # all but the address
                found.append((self.paths[at], weakref.ref(tensor), tuple(places)))
        self.binds_all = len(found) == len(self._met)
        self._met.clear()
        # In the order of their paths, which stays when more names come to be known.
        self.bound = [entry[1:] for entry in sorted(found, key=lambda entry: entry[0])]

    def _weak(self, value):
        """What is compared with a value later: whoever replaces a tensor of the device wants it gone."""
        if not isinstance(value, self.torch.Tensor) or value.device.type == "cpu":
            return value
        self.has_memory = True
        return weakref.ref(value)

    def _is_left(self, owner, key=None):
        return bool(self.left) and ((id(owner), key) in self.left or (id(owner), None) in self.left)

    def _without_left(self, kind, owner, keys, values, paths):
        if kind in (CELL, LIST):
            is_left = any(place[0] == id(owner) for place in self.left)
            return (keys, (), ()) if is_left else (keys, values, paths)
        if kind not in (NAMES, ITEMS, ATTRIBUTES):
            return keys, values, paths
        kept = [i for i, key in enumerate(keys) if not self._is_left(owner, key)]
        return tuple(tuple(some[i] for i in kept) for some in map(tuple, (keys, values, paths)))

    def look_at(self, kind, object, values=()):
        """An owner whose token is the one that is just being made."""
        self.owners.append((kind, BY_VALUE, object, None, tuple(values)))
        self.first.append(len(self.tokens))

    def _maker(self, kind):
        """What makes the tokens of a type's values; True, False: it is plain, as plain_token tells."""
        if is_plain_type(kind):
            return not _is_written(kind)
        if kind is self.torch.Tensor or kind is getattr(self.torch.nn, "Parameter", None):
            return _C.Walk._tensor_there
        make = _BY_TYPE.get(kind)
        if make is not None:
            return make
        if any(not _POSES.isdisjoint(vars(one)) for one in kind.__mro__[:-1]):
            return Walk._posing
        return next((make for of, make in self._by_base() if issubclass(kind, of)), Walk._object_token)

    def _posing(self, value, path):
        """An object that may say to be of another class than it is. To be of one of Python's own, as list[int] says to be
        a class on CPython 3.10, makes it none."""
        kind = type(value)
        make = next((make for of, make in self._by_base() if issubclass(kind, of) or (
            _is_class_of_torch(of) and isinstance(value, of))), Walk._object_token)
        return make(self, value, path)

    def _by_base(self):
        torch = self.torch
        return ((torch.Tensor, Walk._tensor), (torch.nn.Module, Walk._module),
                (torch.optim.Optimizer, Walk._optimizer), (type, Walk._class),
                (types.ModuleType, Walk._python_module), (enum.Enum, Walk._enum),
                (logging.Logger, Walk._logger), (dict, Walk._dict), (list, Walk._list), (tuple, Walk._tuple),
                (weakref.ref, Walk._weak_reference),
                ((set, frozenset), Walk._set), (_ITERATORS, Walk._iterator))

    def _identity(self, value, path):
        return Same(value)

    def _enum(self, value, path):
        """A member, whose value may be a container, and whose class may have methods."""
        held = getattr(value, "_value_", None)
        if not is_plain(held) and held is not value:
            self._follow(Walk.put, held, f"{path}.value")
        if len(vars(value)) > _PLAIN_MEMBER:  # the program put something there
            self._scope(value, vars(value), path + ".", "instance", is_open=True)
        self._meet_class(type(value))
        return Same(value)

    def _follow(self, how, value, path):
        self._ahead.append((how, value, path))

    # ---- Functions ----

    def _function(self, function, path):
        if function in _asked_of(self.torch):
            return self._asked(function, path)
        code = _C.parts_of(function)[0]
        if is_foreign_file(code.co_filename):
            if function.__closure__:
                self._news.wrappers.append((function, path))
                self._follow(Walk._foreign_cells, function, path)
            return Same(function)
        (self._at_home.setdefault(function.__name__, []) if _is_at_home(function) else self._functions).append(
            (function, path))
        if self.executed is not None and (place := place_of(code)) not in self.executed:
            self._news.idle.setdefault(place, []).append((function, path))
            if function.__dict__:
                self._shared.append(_Scope(function, function.__dict__, function.__name__ + ".", way_for("container"),
                                           inherits=True))
            return ("function", Same(code))
        self._follow(Walk._function_reads, function, path)
        return ("function",)

    def _asked(self, function, path):
        ask = _asked_of(self.torch)[function]
        self._follow(Walk._called if is_plain(ask()) else Walk._called_identity, ask, f"{path}()")
        return Same(function)

    def _getter(self, getter, path):
        """operator.attrgetter and methodcaller ask for attributes by names that they hold."""
        asked = getter.__reduce__()[1]
        if isinstance(getter, operator.attrgetter):
            self.names.update(part for name in asked for part in name.split("."))
        else:
            self.names.add(asked[0])
        return (type(getter), repr(getter)) if is_plain(asked) else Same(getter)

    def _logger(self, logger, path):
        """Of a logger of Python's what tells whether it logs: it writes nothing that a replay could do."""
        self._follow(Walk._logger_reads, logger, path)
        return Same(logger)

    def _logger_adapter(self, adapter, path):
        self._follow(Walk._logger_adapter_reads, adapter, path)
        return Same(adapter)

    def _logger_adapter_reads(self, adapter, path):
        self._own_held(adapter, ("logger",), path)

    def _logger_reads(self, logger, path):
        manager = logger.manager
        self._own_held(manager, ("_disable",) if "_disable" in vars(manager) else ("disable",), f"{path}.manager")
        names = _LOGGER if _HANDLERS.isdisjoint(self.names) else (*_LOGGER, "handlers")
        while logger is not None:
            self._own_held(logger, names, path)
            logger, path = logger.parent, f"{path}.parent"

    def _own_held(self, object, names, path):
        """Attributes of an object: told of where its dict has them, and else looked at in each call."""
        held, paths = vars(object), [f"{path}.{name}" for name in names]
        if all(name in held for name in names):
            self.own(NAMES, held, names, [held[name] for name in names], paths, way_for("instance"))
        else:
            self.own(ATTRIBUTES, object, names, [getattr(object, name) for name in names], paths)

    def _foreign_cells(self, function, path, is_again=False):
        """A decorator of somebody else's: what it wraps, or chooses from."""
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            if is_again and self.is_seen(value):
                continue
            if callable(value) and not is_class(value):
                self.put(value, getattr(value, "__name__", path))
            elif type(value) is dict and function.__module__ == "functools":  # of singledispatch
                self.put(value, path)

    def _function_reads(self, function, path):
        code, defaults, by_name = parts = _C.parts_of(function)
        name = function.__name__
        self.hold(code)
        self.owners.append((FUNCTION, BY_VALUE, function, None, parts))
        self.first.append(len(self.tokens))
        self.tokens.append(Same(code))
        self.paths.append(f"the code of {name}")
        self.put(defaults, f"the defaults of {name}")
        self.put(by_name, f"the defaults of {name}")
        for free, cell in zip(code.co_freevars, function.__closure__ or ()):
            try:
                value = cell.cell_contents
            except ValueError:
                value = _C.absent
            self.own(CELL, cell, None, (value,), (free,), self._way_for_cell(function, free))
        self._learn(code, function.__globals__, function.__qualname__.rpartition(".")[0])
        self._shared.append(_Scope(function, function.__dict__, name + ".", way_for("container"),
                                   inherits=True))
        self._own_dict(function, name)

    def _way_for_cell(self, function, name):
        if self._under_way is None:
            self._under_way = running()
        return BY_DESCRIPTOR if is_closed(function, name, self._under_way) else BY_VALUE

    def _own_dict(self, function, name):
        """A function may get another dict of attributes."""
        self.owners.append((DICT, BY_VALUE, function, None, (function.__dict__,)))
        self.first.append(len(self.tokens))
        self.tokens.append("dict")
        self.paths.append(f"the attributes of {name}")

    def _asks_anything(self, owner):
        """Code asks for names that it makes: a method most likely of its object, a function of any."""
        if owner and not owner.endswith("<locals>"):
            self._dynamic_classes.add(owner)
        else:
            self.dynamic = True

    def _are_calls_told(self):
        """Where runs tell of whose objects code asks by names that it makes, others are not asked."""
        asked = getattr(self.executed, "asked", None)
        if asked is not None:
            self._dynamic_classes |= asked
        return asked is not None

    def _learn(self, code, names, owner):
        """The names that code has are those that everything it can reach is asked for. owner: of the
        method that it is, the name of the class."""
        found = named(code)
        self.names |= found.attributes
        self.stored |= found.stored
        self.names |= self._setters & found.stored
        self.looked |= found.looked
        self.globals |= found.globals | found.imports
        self._maybe |= found.maybe
        self._ahead_of |= found.ahead
        self.compares |= found.compares or "id" in found.globals
        if not _SIGNATURES.isdisjoint(found.attributes | found.globals):
            self.names |= _OF_SIGNATURES
            self._maybe |= _OF_SIGNATURES
        if found.dynamic and not (found.by_calls and self._are_calls_told()):
            self._asks_anything(owner)
        elif found.dynamic:
            self._news.asking.append(owner)
        self._goes_through |= found.dynamic and not found.by_calls
        if MATCHED in found.attributes:
            for kind in self._classes:
                self._match(kind)
        keys = tuple(sorted(found.globals))
        self.own(NAMES, names, keys, None, keys, way_for("globals"))
        built_in = tuple(n for n in keys if n not in names and n not in _BUILTINS and hasattr(builtins, n))
        if built_in:  # which the program put there
            self.own(NAMES, vars(builtins), built_in, None, built_in, way_for("globals"))
        if "getenv" in found.globals or "getenv" in found.attributes:
            self.put(os.environ, "os.environ")
        there = tuple(name for name in sorted(found.imports) if sys.modules.get(name) is not None)
        self._news.imports.update(dict.fromkeys(found.imports.difference(there)))
        if there:  # others may take their place
            self.own(NAMES, sys.modules, there, None, there, way_for("container"))

    def _match(self, kind):
        """What code is asked of a class's objects by their places in a pattern."""
        names = vars(kind).get(MATCHED)
        if type(names) is tuple:
            self.names.update(names)

    def _dispatching(self, method, path):
        self._follow(Walk.put, method.dispatcher, path)
        self._follow(Walk.put, method.func, path)
        return Same(method)

    def _method(self, method, path):
        self._follow(Walk.put, method.__func__, path)
        self._follow(Walk.put, method.__self__, path.rpartition(".")[0] or "self")
        return ("method",)

    def _builtin(self, function, path):
        if function in _asked_of(self.torch):
            return self._asked(function, path)
        owner = getattr(function, "__self__", None)
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            self._follow(Walk.put, owner, path.rpartition(".")[0] or path)
        return Same(function)

    def _method_wrapper(self, method, path):
        """`__next__` and the like, which are another object each time that they are asked for."""
        self._follow(Walk.put, method.__self__, path.rpartition(".")[0] or path)
        return ("method", method.__name__)

    def _partial(self, partial, path):
        self._follow(Walk._partial_reads, partial, path)
        return (type(partial),)

    def _partial_reads(self, partial, path):
        self.own(ATTRIBUTES, partial, _OF_PARTIAL, [getattr(partial, name) for name in _OF_PARTIAL],
                 [f"{path}.{name}" for name in _OF_PARTIAL])
        if partial.__dict__:
            self._scope(partial, partial.__dict__, path + ".", "instance", is_open=True)

    def _wrapper(self, wrapper, path):
        inner = getattr(wrapper, "__wrapped__", None) or getattr(wrapper, "__func__", None)
        if inner is not None:
            self._follow(Walk.put, inner, path)
        return Same(wrapper)

    def _cached(self, wrapper, path):
        """A function with a cache: what it gives changes where the cache is emptied, or what is kept there. Those of
        typing's, which list[int] and such go through before CPython 3.11, give what they are asked for."""
        if getattr(wrapper, "__module__", None) in ("typing", "typing_extensions"):
            return self._wrapper(wrapper, path)
        ask = _Emptied.of(wrapper)
        self._follow(Walk._called, ask, f"the cache of {path}")
        self._news.caches.append((wrapper, path))
        self._follow(Walk._results, wrapper, path)
        return self._wrapper(wrapper, path)

    def _results(self, wrapper, path):
        for result in kept_by(wrapper)[:MOST_OF_SET]:
            if not self.is_seen(result):
                self.put(result, f"what {path} gave")

    def _property(self, value, path):
        for function in (value.fget, value.fset, value.fdel):
            if function is not None:
                self._follow(Walk.put, function, path)
        return Same(value)

    def _cached_property(self, value, path):
        self._follow(Walk.put, value.func, path)
        return Same(value)

    def _context_variable(self, variable, path):
        ask = functools.partial(_value_of, variable)
        value = ask()
        if is_plain(value) or value is _C.absent:
            self._follow(Walk._variable_value, variable, f"{path}.get()")
        else:
            self._follow(Walk._called_identity, ask, f"{path}.get()")
        return Same(variable)

    def _variable_value(self, variable, path):
        self.own(VARIABLE, variable, None, (variable.get(_C.absent),), (path,))

    def _called(self, ask, path):
        self.own(CALL, ask, None, (ask(),), (path,))

    def _called_identity(self, ask, path):
        value = ask()
        self._news.is_loose = True
        self.own(CALL, functools.partial(_id_of, ask), None, (id(value),), (path,))
        self.put(value, path)

    # ---- Containers ----

    def _too_many(self, container, path):
        """Of a very large container only its identity and length are looked at."""
        self.cautions.append(f"of `{path}`, which has {len(container)} elements, more than {MOST_ITEMS}, "
                             "only the number is watched")
        self._count(container, path)

    def _dict(self, value, path):
        if trackers.is_table(value):
            return Same(value)  # its generators are others behind each use, of the same states
        self._follow(Walk._items, value, path)
        if isinstance(value, collections.OrderedDict):
            self._follow(Walk._order, value, path)
        if isinstance(value, collections.defaultdict) and value.default_factory is not None:
            self._follow(Walk.put, value.default_factory, f"{path}.default_factory")
        self._more(value, path)
        return (type(value),)

    def _items(self, value, path):
        if len(value) > MOST_ITEMS:
            self._too_many(value, path)
            return
        if self._is_left(value):
            return
        keys = tuple(dict.keys(value))
        self.tokens.append(tuple(plain_token(k) if is_plain(k) else Same(k) for k in keys))
        self.paths.append(f"the keys of {path}")
        for key in keys if self.takes is not None else ():
            self._meet_key(key)
        for key in keys:
            if not is_plain(key) and not isinstance(key, (*_REGISTERED, self.torch.Tensor)) and not self.is_seen(key):
                self._follow(Walk.put, key, f"a key of {path}")
        self.own(ITEMS, value, keys, tuple(dict.values(value)), [f"{path}[{_key(k)}]" for k in keys],
                 way_for("container"), is_open=True)
        if self.left and any(self._is_left(value, key) for key in keys):  # others may come beside those that are left
            self._count(value, path)

    def _order(self, value, path):
        """An OrderedDict's own, which is not that of the dict that it is."""
        if len(value) <= MOST_ITEMS and not self._is_left(value):
            ask = functools.partial(_ids_of_keys, value)
            self.own(CALL, ask, None, (ask(),), (f"the order of {path}",), BY_ORDER)

    def _meet_key(self, key):
        """A tensor that something is found by stays the one it is."""
        if isinstance(key, self.torch.Tensor):
            self._meet(key, None)

    def _view(self, value, path):
        for behind in gc.get_referents(value):
            self._follow(Walk.put, behind, path)
        return (type(value),)

    def _list(self, value, path):
        self._follow(Walk._elements, value, path)
        self._more(value, path)
        return (type(value), None if self._is_left(value) else len(value))

    def _elements(self, value, path):
        if len(value) > MOST_ITEMS:
            self._too_many(value, path)
            return
        self.own(LIST, value, None, tuple(value), [f"{path}[{i}]" for i in range(len(value))], is_open=True)

    def _tuple(self, value, path):
        self._follow(Walk._members, value, path)
        self._more(value, path)
        return (type(value), len(value))

    def _members(self, value, path):
        if len(value) > MOST_ITEMS:
            self._too_many(value, path)
            return
        names = getattr(type(value), "_fields", None)
        for i, member in enumerate(value):
            self.put(member, f"{path}.{names[i]}" if names else f"{path}[{i}]")

    def _set(self, value, path):
        if self._is_left(value):
            return (type(value),)
        if type(value) is not frozenset:
            self._follow(Walk._set_members, value, path)
        self._more(value, path)
        for member in value if len(value) <= MOST_MEMBERS else ():
            if not is_plain(member) and not isinstance(member, _REGISTERED) and not self.is_seen(member):
                self._follow(Walk.put, member, f"a member of {path}")
        return (type(value), frozenset(plain_token(v) if is_plain(v) else Same(v) for v in value))

    def _set_members(self, value, path):
        if len(value) > (MOST_OF_SET if _has_classes(value) else MOST_MEMBERS) and not any(map(is_plain, value)):
            self._follow(Walk._count, value, path)
            return
        if all(map(_is_simple_to_compare, value)):
            self.owners.append((SET, BY_VALUE, value, None, (frozenset(value),)))
        else:
            ask = functools.partial(_ids_of, value)
            self.owners.append((CALL, BY_VALUE, ask, None, (ask(),)))
        self.first.append(len(self.tokens))
        self.tokens.append("set")
        self.paths.append(path)

    def _count(self, value, path):
        self.own(CALL, functools.partial(len, value), None, (len(value),), (f"len({path})",))

    def _deque(self, value, path):
        if self._is_left(value):
            return (type(value),)
        self._follow(Walk._deque_members, value, path)
        return (type(value), len(value))

    def _deque_members(self, value, path):
        ask = functools.partial(_ids_of, value)
        self.owners.append((CALL, BY_VALUE, ask, None, (ask(),)))
        self.first.append(len(self.tokens))
        self.tokens.append("deque")
        self.paths.append(path)
        self._news.is_loose = True
        for i, member in enumerate(list(value)[:MOST_ITEMS]):
            self.put(member, f"{path}[{i}]")

    def _iterator(self, value, path):
        self.iterators.append((value, path))
        return Same(value)

    def _environment(self, value, path):
        """os.environ: the strings behind it."""
        data = getattr(value, "_data", None)
        if type(data) is dict:
            self._follow(Walk._items, data, path)
        return ("environment",)

    # ---- Weak references ----

    def _weak_reference(self, reference, path):
        self._more(reference, path)
        if isinstance(reference, weakref.WeakMethod):  # which makes another method at each call
            method = reference()
            if method is None:
                return ("gone",)
            self._follow(Walk.put, method.__func__, path)
            reference = weakref.ref(method.__self__)
        self._follow(Walk._behind, reference, path)
        return Same(reference)

    def _proxy(self, proxy, path):
        """Attributes of a proxy are those of the object behind it, methods among them."""
        try:
            found = weakref.ref(proxy.__reduce_ex__.__self__)
        except ReferenceError:
            return ("gone",)
        self._follow(Walk._behind, found, path)
        return ("proxy",)

    def _behind(self, reference, path):
        """What a weak reference leads to, which this keeps no more alive than that does."""
        self.own(CALL, functools.partial(_id_of_live, reference), None, (_id_of_live(reference),), (path,))
        value = reference()
        if value is not None and not self.is_seen(value) and not is_ours(value):
            self._meet_class(type(value))
            hidden = frozenset(n for one in type(value).__mro__ if one in self._classes for n in vars(one))
            self._scopes.append(_Scope(_Weakly(reference), None, path + ".", BY_VALUE, own=hidden))

    # ---- Tensors and arrays ----

    def _tensor(self, tensor, path):
        torch = self.torch
        self._beside(tensor, path)
        self._meet_class(type(tensor))  # which may say what its operators do
        if self.executed is not None:
            self._news.tensors.append((weakref.ref(tensor), path))
        try:
            like = (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad)
            address = tensor.data_ptr()
        except (RuntimeError, NotImplementedError, AttributeError):
            return self._in_parts(tensor)
        if tensor.device.type != "cpu":
            if id(tensor) not in self.known and isinstance(tensor, torch.Tensor):
                self.look_at(TENSOR, self._weak(tensor))
            return ("tensor", address, *like)
        if tensor.layout is torch.strided and tensor.numel() * tensor.element_size() > MOST_ARRAY and (
                not self._is_left(tensor) and not tensor.untyped_storage().resizable() and not tensor.is_pinned()):
            self.obstacles.append(f"it may read the tensor `{path}` on the CPU, whose memory others may write to, as NumPy, "
                                  "and which is too large to compare at each call. Make it a tensor on the GPU")
        return ("tensor", self._contents(tensor, address), *like)

    def _in_parts(self, tensor):
        """One that lies nowhere, or in several places: nested, fake, of a subclass without memory, or sparse."""
        if getattr(tensor, "layout", None) not in _parts_by_layout(self.torch):
            return Same(tensor)
        ask = functools.partial(_places_of if tensor.device.type != "cpu" else _parts_of, self.torch, tensor)
        found = ask()
        self.look_at(CALL, ask, (found,))
        return (Same(tensor), found)

    def _beside(self, tensor, path, done=()):
        """Of a tensor, its hooks and the attributes that the program gave it. done: names that are known."""
        for hooks in (getattr(tensor, name, None) for name in torch_private.GRADIENT_HOOKS):
            if hooks is not None and not self.is_seen(hooks):
                self.hold(hooks)
                self._follow(Walk._items, hooks, f"the hooks of {path}")
        names = getattr(tensor, "__dict__", None)
        if names:
            scope = _Scope(tensor, names, path + ".", way_for("instance"), inherits=True)
            scope.note(done)
            self._news.scopes.append(scope)

    def _contents(self, tensor, address):
        nbytes = tensor.numel() * tensor.element_size()
        if self._is_left(tensor):
            return address
        if nbytes <= MOST_BYTES and tensor.is_contiguous() and not tensor.is_neg() and (
                not tensor.is_conj() and not tensor.is_quantized):
            found = _bytes_at(address, nbytes)
            self.look_at(DATA, tensor, (found,))
            return found
        if tensor.layout is self.torch.strided and _may_be_written(tensor, nbytes):
            found = _bytes_between(tensor)
            self.look_at(CALL, functools.partial(_bytes_between, tensor), (found,))
            return (_While(tensor), address, found)
        self.look_at(CALL, functools.partial(_version_of, tensor), (_version_of(tensor),))
        return (_While(tensor), address, _version_of(tensor))

    def cpu_tensors(self):
        """Those on the CPU whose values are among the tokens."""
        for kind, _, owner, _, _ in self.owners:
            if kind == DATA:
                yield owner
            elif kind == CALL and getattr(owner, "func", None) is _version_of:
                yield owner.args[0]

    def _buffer(self, value):
        found = bytes(value)
        self.look_at(CALL, functools.partial(bytes, value), (found,))
        return (type(value), found)

    def _ctypes(self, value, path):
        """Of ctypes: its bytes."""
        if sys.modules["ctypes"].sizeof(value) > MOST_ARRAY:
            self.obstacles.append(f"it may read `{path}` of ctypes, which is too large to compare at each call. "
                                  "Make it a tensor on the GPU")
            return Same(value)
        return self._buffer(value)

    def _mapped(self, value, path):
        """Memory of a file, or text that is written to like one."""
        ask = value.getvalue if hasattr(value, "getvalue") else functools.partial(_bytes_of_map, value)
        self.own(CALL, ask, None, (ask(),), (path,))
        return Same(value)

    def _objects(self, value, path):
        """An array of objects."""
        self._news.is_loose = True
        self._called(functools.partial(_ids_of_elements, value), f"the elements of {path}")
        for i, member in enumerate(value.flat):
            self.put(member, f"{path}[{i}]")

    def _array(self, value, path):
        if self._is_left(value):
            return Same(value)
        if value.dtype == object and value.size <= MOST_ITEMS:
            self._follow(Walk._objects, value, path)
            return Same(value)
        if value.dtype.hasobject:
            self.obstacles.append(f"it may read the NumPy array `{path}` of objects, which cannot be compared. "
                                  "Make it a list")
            return Same(value)
        mask = getattr(value, "_mask", None)
        if mask is not None and _is_array(mask):
            self._follow(Walk.put, mask, f"{path}.mask")
        if value.nbytes > MOST_ARRAY:
            self.obstacles.append(f"it may read the NumPy array `{path}` of {value.nbytes} bytes, too many "
                                  "to compare at each call. Make it a tensor on the GPU")
            return Same(value)
        found = value.tobytes()
        self.look_at(CALL, value.tobytes, (found,))
        return ("array", value.dtype.str, value.shape, found)

    # ---- Modules and optimizers ----

    def _module(self, module, path):
        if is_ours(module):
            return Same(module)
        self.modules.append(module)
        if self.foresees:
            self._foresee(module)
        self._follow(Walk._module_reads, module, path)
        return Same(module)

    def _foresee(self, module):
        for part in map(vars(module).get, ("_parameters", "_buffers")):
            self.known.update(id(tensor) for tensor in (part or {}).values() if tensor is not None)

    def _module_reads(self, module, path):
        kind = type(module)
        used = self._torch_names(kind)
        if isinstance(module, getattr(self.torch.nn, "ParameterList", ())):  # which has what is no tensor as attributes
            used = used | {name for name in vars(module) if name.isdigit()}
        elif isinstance(module, getattr(self.torch.nn, "ParameterDict", ())):
            used = used | set(module.keys())
        parts = self._module_parts
        if any(module is one for one in self._without_hooks):
            parts = tuple(part for part in parts if part not in ("_forward_hooks", "_forward_pre_hooks"))
        self._module_whole(module, path, used, self._module_base, parts, self._scopes,
                           (way_for("instance"), way_for("container")))
        if torch_private.is_scripted(self.torch, module):
            self._script_reads(module, path)
        if kind not in self._kinds:
            self._meet_class(kind)
        if used and kind not in self._used:
            self._used.add(kind)
            self._use_functional(used)
        if not self._global_hooks:
            self._look_at_global_hooks()

    def _script_reads(self, module, path):
        """What a module of TorchScript has as attributes. Only assignments of the program's are noticed."""
        writes = torch_private.script_writes(self.torch)
        found = torch_private.script_attributes(module) if writes is not None else {}
        if not found:
            return
        if not self._scripted:
            self._scripted = True
            ask = functools.partial(operator.attrgetter("count"), writes)
            self.look_at(CALL, ask, (_Count(writes.count),))
        self.tokens.append(("scripted", tuple((name, repr(value)) for name, value in sorted(found.items())
                                              if not isinstance(value, self.torch.Tensor))))
        self.paths.append(path)

    def _use_functional(self, names):
        """The functions that PyTorch's layers call may be replaced."""
        functional = self.torch.nn.functional
        if self._functional is None:
            self._functional = _Scope(functional, vars(functional), "torch.nn.functional.",
                                      way_for("globals"), shallow=True)
            self._shared.append(self._functional)
        self._made += 1
        self._functional.own |= {n for n in names if n in self._functional.names}

    def _look_at_global_hooks(self):
        """Those that PyTorch calls around all modules."""
        self._global_hooks = True
        module = getattr(getattr(self.torch.nn, "modules", None), "module", None)
        for name, held in sorted(vars(module).items()) if module is not None else ():
            if name.startswith(("_global_forward", "_global_backward")) and isinstance(held, dict):
                self._module_part(name, held, "torch.nn.modules.module", way_for("container"))

    @staticmethod
    @functools.lru_cache(maxsize=1024)
    def _torch_names(kind):
        """The attributes that PyTorch's own module classes read of themselves."""
        found = set()
        for one in kind.__mro__:
            if _module_of(one).startswith("torch.nn.") and one.__name__ != "Module":
                for name, value in vars(one).items():
                    if isinstance(value, types.FunctionType) and name not in (
                            "__init__", "extra_repr", "__repr__", "reset_parameters", "__setstate__"):
                        found |= named(value.__code__).attributes
        return frozenset(found)

    def _optimizer(self, optimizer, path):
        self.optimizers.append(optimizer)
        self.optimizer_paths.append(path)
        self._follow(Walk._optimizer_reads, optimizer, path)
        return Same(optimizer)

    def _optimizer_reads(self, optimizer, path):
        self._kind_of(optimizer, path)
        self._scope(optimizer, optimizer.__dict__, path + ".", "instance", inherits=True, own=frozenset((
            "param_groups", "state", "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")))
        for one in type(optimizer).__mro__ if type(optimizer) not in self._used else ():
            names = dict_of_class(one) if "step" in vars(one) else None
            if names is not None:
                self._shared.append(_Scope(one, names, one.__name__ + ".", way_for("class"), shallow=True,
                                           own=_OF_OPTIMIZERS))
        self._used.add(type(optimizer))
        if not self._optimizers_hooks:
            self._optimizers_hooks = True
            module = sys.modules.get(self.torch.optim.Optimizer.__module__)
            for name, held in sorted(vars(module).items()) if module is not None else ():
                if name.startswith("_global_optimizer") and isinstance(held, dict):
                    self._module_part(name, held, "torch.optim.optimizer", way_for("container"))

    # ---- Classes and objects ----

    def _scope(self, object, names, path, owner, **how):
        self._scopes.append(_Scope(object, names, path, way_for(owner), **how))
        if type(object) not in self._kinds:
            self._meet_class(type(object))

    def _class(self, kind, path):
        if issubclass(kind, enum.Enum):
            if not is_foreign_module(kind.__module__):
                self._follow(Walk._enum_class, kind, path)
            return Same(kind)
        if kind is getattr(self.torch.nn, "Parameter", None):  # under whatever name
            self.names.add(kind.__name__)
        if isinstance(kind, abc.ABCMeta):
            self._abstract.setdefault(kind, False)
        self._meet_class(kind, made=True)
        if kind is decimal.Decimal:
            self._follow(Walk._decimals, kind, path)
        self._meet_class(type(kind))  # what a metaclass has
        return Same(kind)

    def _enum_class(self, kind, path):
        """One whose members are plain, and that has no methods, is as it was declared for ever."""
        self._meet_class(kind)
        for name, member in kind.__members__.items():
            if not self.is_seen(member) and (not is_plain(member._value_) or len(vars(member)) > _PLAIN_MEMBER):
                self.put(member, f"{path}.{name}")

    def _decimals(self, kind, path):
        self._called(_precision, "decimal.getcontext()")

    def _meet_class(self, kind, made=False):
        """The classes that a class inherits from, but for those of others."""
        if kind in self._kinds and not made:
            return
        self._kinds.add(kind)
        function = self.torch.autograd.Function
        for one in kind.__mro__:
            own = _module_of(one).startswith("torch.nn.") and one.__name__ != "Module"
            names = None if one in self._classes else dict_of_class(one)
            if names is None or (is_foreign_module(_module_of(one)) and not own and not _is_made_anew(names)):
                continue
            dunders = {n for n, v in names.items() if n.startswith("__") and not own and
                       n not in _SKIPPED_DUNDERS and isinstance(v, (types.FunctionType, classmethod))}
            if not own and one.__bases__ != (object,):
                dunders |= _called_by_others(one, names)
            if issubclass(one, function):
                dunders |= _OF_AUTOGRAD
                self._run_by_autograd(names)
            self._met_names[one] = tuple(names)
            self._own_bases(one)
            if isinstance(one, abc.ABCMeta):
                self._abstract.setdefault(one, False)
            self._classes[one] = scope = _Scope(one, names, one.__name__ + ".", way_for("class"),
                                                own=frozenset(dunders), inherits=True)
            self._shared.append(scope)
            self._setters.update(n for n, v in names.items() if not n.startswith("__") and _sets_by_code(v))
            self.names |= self._setters & self.stored
            if MATCHED in self.names:
                self._match(one)
        if made:
            for one in kind.__mro__:
                if one in self._classes and not _MADE_WITH <= self._classes[one].own:
                    self._classes[one].own |= _MADE_WITH
                    self._made += 1

    def _own_bases(self, kind):
        """A class may come to have others. Those of C's have theirs for ever."""
        bases = kind.__bases__
        self.owners.append((ATTRIBUTES, BY_VALUE, kind, (BASES,), (bases,)))
        self.first.append(len(self.tokens))
        self.tokens.append(tuple(map(Same, bases)))
        self.paths.append(f"the bases of {kind.__name__}")

    def _run_by_autograd(self, names):
        """Backward passes run on threads of autograd's, where not every interpreter tells of them."""
        if self.executed is not None:
            for name in _OF_AUTOGRAD:
                code = getattr(getattr(names.get(name), "__func__", None), "__code__", None)
                if code is not None:
                    self.executed.add(place_of(code))

    def _python_module(self, module, path):
        name = module.__name__ if type(getattr(module, "__name__", None)) is str else ""
        names = vars(module)
        if type(names) is dict:
            is_foreign = is_foreign_module(name)
            self._shared.append(_Scope(module, names, path + ".", way_for("globals"), shallow=is_foreign,
                                       own=_OF_MODULE, inherits=not is_foreign))
            if module is decimal:
                self._follow(Walk._decimals, module, path)
        return Same(module)

    def _object_token(self, value, path):
        kind = type(value)
        if isinstance(value, io.BytesIO):
            return self._mapped(value, path)
        if has(kind, "__next__") and has(kind, "__iter__") and kind.__module__ != _MOCKS:
            return self._iterator(value, path)
        if _is_array(value):
            return self._array(value, path)
        if kind.__module__ == "decimal":
            self._follow(Walk._decimals, kind, path)
        if kind.__module__ in WRITTEN:
            return (kind, repr(value))
        if isinstance(value, (bytearray, memoryview, array.array)):
            return self._buffer(value)
        if _is_of_ctypes(kind):
            return self._ctypes(value, path)
        if isinstance(value, io.StringIO) or kind.__module__ == "mmap":
            return self._mapped(value, path)
        if kind.__module__ == "_multiprocessing" and kind.__name__ == "SemLock":  # of events that processes share
            self.look_at(CALL, value._get_value, (value._get_value(),))
            return Same(value)
        if kind.__module__ == "numpy" and hasattr(value, "tobytes"):
            found = value.tobytes()
            if hasattr(value, "setfield"):  # a record, whose fields may be set
                self.look_at(CALL, value.tobytes, (found,))
            return ("scalar", kind, found)
        if isinstance(value, BaseException):
            self._follow(Walk._error, value, path)
        if is_ours(value):
            self._ours(value, path)
            return Same(value)
        if isinstance(value, threading.local):
            self._scopes.append(_Scope(value, None, path + ".", BY_VALUE))
            return Same(value)
        names = dict_of(value)
        foreign = is_foreign_module(kind.__module__) and not isinstance(value, _OPEN_TYPES) and (
            kind.__name__ != "Namespace") and not _is_open(kind) and kind.__module__ != _INTERPRETERS
        if isinstance(value, _LOCKS):
            self._follow(Walk._lock, value, path)
            return Same(value)
        if foreign:
            return self._foreign_object(value, names, path)
        is_of_extension = self._is_of_extension(kind)
        if names is None and is_of_extension and _compares(value):
            return value
        self._follow(Walk._object_reads, value, path)
        if not is_of_extension:
            return (Same(kind),)
        for base, plain_of in _PLAIN_BASES:
            if isinstance(value, base):
                return (Same(kind), plain_token(plain_of(value)))
        return Same(value)  # it holds what nobody can look at

    def _is_of_extension(self, kind):
        found = self._extensions.get(id(kind))
        if found is None:
            found = self._extensions[id(kind)] = not issubclass(kind, (*_OPEN_TYPES, BaseException)) and any(
                map(_is_in_c, kind.__mro__[:-1]))
        return found

    def _error(self, error, path):
        self._scope(error, error.__dict__, path + ".", "instance", is_open=True)
        self.own(ATTRIBUTES, error, ("args",), (error.args,), (f"{path}.args",))

    def _ours(self, value, path):
        """Another graphed callable runs within as what it is made of."""
        if type(value).__name__ == "Graphed" and hasattr(value, "__wrapped__"):
            self._follow(Walk.put, value.__wrapped__, path)

    def _foreign_object(self, value, names, path):
        """Of an object of Python's or PyTorch's, numbers and tensors; of a wrapper what it wraps."""
        if has(type(value), "__wrapped__") or (type(names) is dict and "__wrapped__" in names):
            self._follow(Walk.put, value.__wrapped__, path)
        if type(names) is dict and type(value).__module__.startswith("numpy") and "pyfunc" in names:  # of vectorize
            self._follow(Walk.put, names["pyfunc"], path)
        if type(names) is dict and type(value).__module__.startswith("torch"):
            self._scopes.append(_Scope(value, names, path + ".", way_for("instance"), shallow=True,
                                       own=frozenset(names)))
        return Same(value)

    def _lock(self, lock, path):
        self._news.locks.append((lock, path))

    def _object_reads(self, value, path):
        names = dict_of(value)
        self._kind_of(value, path)
        if type(names) is dict and (isinstance(value, _OPEN_TYPES) or _is_open(type(value))):
            self._items(names, path)
            return
        if type(names) is dict and "module" in names and any(
                _module_of(one) == _INTERPRETERS for one in type(value).__mro__):
            self._follow(Walk.put, names["module"], f"{path}.module")
        if type(names) is dict and has(type(value), _OF_PYDANTIC):  # code in Rust goes through it
            self._items(names, path)
        self._scope(value, names if type(names) is dict else None, path + ".", "instance", is_open=True,
                    inherits=True)

    def _more(self, value, path):
        """Attributes of a container's subclass."""
        if type(value) not in _BARE and type(dict_of(value)) is dict and (
                not is_foreign_module(type(value).__module__)):
            self._follow(Walk._object_reads, value, path)

    # ---- Attributes by name ----

    def _has_slots(self, kind):
        return has(kind, "__slots__")

    def _ask(self, scope):
        """Looks at what an object does not have in a dict."""
        is_asked = isinstance(scope.object, (threading.local, _Weakly))
        self._extend_by_asking(scope, self.names if is_asked else self._slots(type(scope.object)))

    def _is_dynamic(self, kind):
        return any(one.__qualname__ in self._dynamic_classes for one in kind.__mro__)

    def _not_left(self, scope, names):
        return tuple(n for n in names if not self._is_left(scope.object, n) and not self._is_left(scope.names, n))

    def _shown(self, scope, present):
        """The names that a shallow scope is looked up by."""
        names, is_module = scope.names, isinstance(scope.object, types.ModuleType)
        return [n for n in present if self._is_shallow(names[n]) or (is_module and _is_small(names[n]))]

    def _is_shallow(self, value):
        torch = self.torch
        return is_plain(value) or isinstance(value, (
            types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType,
            types.GetSetDescriptorType, types.ModuleType, torch.Tensor, torch.dtype,
            torch.device, os._Environ if hasattr(os, "_Environ") else ())) or (
                type(value) in (type, abc.ABCMeta, torch.autograd.function.FunctionMeta))

    def _could_be(self, scope):
        """Names that an object has of its class, or that code asks for in case: it could come to have
        them itself."""
        owner = scope.object
        if owner is self.torch.Tensor:
            return {n for n in self.names if not n.startswith("__") and hasattr(owner, n)}
        if is_class(owner):
            return self._overridden(owner, scope.own) | self._maybe
        found = self._look_inherited(type(owner), scope.own) | self._maybe
        if isinstance(owner, self.torch.optim.Optimizer):  # schedules put functions of their own there
            found |= _OF_OPTIMIZERS
        if self._makes_attributes(type(owner)) or (
                isinstance(owner, types.ModuleType) and "__getattr__" in scope.names):
            found |= {n for n in self.names if not n.startswith("__")}
        return found

    def _overridden(self, kind, own):
        """The names that count of those which a class has of others: it could come to have its own."""
        found = set(own & _MADE_WITH)
        if issubclass(kind, self.torch.optim.Optimizer):
            found |= _OF_OPTIMIZERS
        for one in kind.__mro__[1:]:
            scope = self._classes.get(one)
            if scope is not None:
                names = scope.names.keys()
                found |= (names & scope.own) | ((names & self.names) - self._skipped)
        if self._makes_attributes(kind) or self._makes_attributes(type(kind)):
            found |= {n for n in self.names if not n.startswith("__")}
        return found

    def _makes_attributes(self, kind):
        """Do objects answer to names that they do not have, by a method of the program's?"""
        if self._met_classes != len(self._classes):
            self._making.clear()
            self._met_classes = len(self._classes)
        found = self._making.get(kind)
        if found is None:
            found = self._making[kind] = any(
                "__getattr__" in self._classes[one].names for one in kind.__mro__ if one in self._classes)
        return found

    def _look_inherited(self, kind, own):
        """The names that count of those which objects have of their class."""
        found = set()
        for one in kind.__mro__:
            if one in self._classes:
                names = self._inherited_from(one)
                found |= (names & self.names) | (names & own)
        return found

    def _inherited_from(self, one):
        """The names of a class that an object could have itself."""
        found = self._inherited.get(one)
        if found is None:
            found = self._inherited[one] = frozenset(
                name for name, value in self._classes[one].names.items()
                if not name.startswith("__") and not hasattr(type(value), "__set__"))
        return found

    def _slots(self, kind):
        slots = {n for one in kind.__mro__ if "__slots__" in vars(one) for n, v in vars(one).items()
                 if isinstance(v, types.MemberDescriptorType)}
        if "__getattribute__" in self.names:  # which takes any name
            return slots
        return {n for n in slots if n.startswith("__")} | (slots & (self.names | self._maybe))

    def _extend_by_asking(self, scope, names):
        keys = [n for n in sorted(names) if n not in scope.done and (not n.startswith("__") or names is not self.names)]
        if isinstance(scope.object, threading.local):
            keys = [n for n in keys if hasattr(scope.object, n) or n in self._maybe]
        if type(scope.object) is _Weakly:
            keys = [n for n in keys if scope.object._has(n) or n in self._maybe or n in scope.own]
        scope.note(keys)
        if keys:
            self.own(ATTRIBUTES, scope.object, tuple(keys),
                     [getattr(scope.object, n, _C.absent) for n in keys],
                     [scope.path.format(n) for n in keys], is_open=scope.is_open)


class News:
    """What a walk has to look at when it goes on: where there may be what was not there before."""

    def __init__(self):
        self.idle = {}        # by place: functions whose code was not executed, (function, path) each
        self.asking = []      # whose code asks by names that it makes, as Executed tells: as _asks_anything takes it
        self.imports = {}     # names of modules that code imports and nobody had imported
        self.wrappers = []    # functions that are not the program's, and close over something: (function, path)
        self.caches = []      # functions with a cache: (function, path)
        self.tensors = []     # (weak reference, path)
        self.scopes = []      # of tensors with attributes
        self.done = {}        # by id of a tensor: the names that its scope was looked up by, while the walk rests
        self.locks = []
        self.is_loose = False  # was something seen that no owner keeps? Its id may be another's by now

    def clear(self):
        self.__init__()

    def pause(self):
        """Keeps no tensor."""
        self.done = {id(scope.object): scope.done for scope in self.scopes}
        self.scopes = []

    def ask_locks(self, walk):
        if "locked" in walk.names:
            for lock, path in self.locks:
                walk.own(CALL, lock.locked, None, (lock.locked(),), (f"{path}.locked()",))
            self.locks.clear()

    def follow(self, walk):
        for place in [place for place in self.idle if place in walk.executed]:
            for function, path in self.idle.pop(place):
                walk._follow(Walk._function_reads, function, path)
        asked = getattr(walk.executed, "asked", None)
        if asked is None:
            for owner in self.asking:
                walk._asks_anything(owner)
        elif self.asking:
            walk._dynamic_classes |= asked
        self._follow_imports(walk)
        self._follow_tensors(walk)
        for function, path in list(self.wrappers):
            walk._foreign_cells(function, path, is_again=True)
        for wrapper, path in list(self.caches):
            walk._results(wrapper, path)

    def _follow_imports(self, walk):
        for name in [name for name in self.imports if name in sys.modules]:
            del self.imports[name]
            walk.put(sys.modules[name], name)

    def _follow_tensors(self, walk):
        for reference, path in self.tensors:
            tensor = reference()
            if tensor is not None:
                walk._beside(tensor, path, self.done.get(id(tensor), ()))


def _is_at_home(function):
    """Does it lie in the module or class that declares it? So do hundreds in a program, and code that asks for the name
    of one is mostly given it elsewhere."""
    first, *names = function.__qualname__.split(".")
    found = function.__globals__.get(first)
    for name in names:
        found = vars(found).get(name) if is_class(found) else None
    return getattr(found, "__func__", found) is function


class _Count(int):
    """A number that tells of changes, and is no value."""


def _registered_with(kind):
    """The classes that are registered with an abstract one or with those below it."""
    found, ahead = {kind: None}, [kind]
    while ahead:
        below = [one for one in type.__subclasses__(ahead.pop()) if isinstance(one, abc.ABCMeta) and one not in found]
        found.update(dict.fromkeys(below))
        ahead += below
    if not hasattr(_abc, "_get_dump"):
        return abc.get_cache_token()
    return frozenset(reference for one in found for reference in _abc._get_dump(one)[0])


def _is_made_anew(names):
    """Has a class of PyTorch's, by its dict, a forward that the program had it make, as torch.fx does?"""
    code = getattr(names.get("forward"), "__code__", None)
    return code is not None and not is_foreign_file(code.co_filename)


def _module_of(kind):
    """Of a class of Cython's no text."""
    name = kind.__module__
    return name if type(name) is str else ""


def _sets_by_code(value):
    """Does setting an attribute execute code, where a class has this by its name?"""
    return type(value) is property or (hasattr(type(value), "__set__") and not isinstance(value, (
        types.MemberDescriptorType, types.GetSetDescriptorType)))


def _called_by_others(kind, names):
    """The methods of a class, by its dict, that it has in the place of those of a class of Python's or PyTorch's, whose
    code calls them."""
    foreign = [one for one in kind.__mro__[1:-1] if is_foreign_module(_module_of(one))]
    return {name for name, held in names.items() if not name.startswith("__") and any(name in vars(one) for one in foreign)
            and isinstance(held, (types.FunctionType, classmethod, staticmethod, property))}


def _is_in_c(kind):
    """Is it a class of C, whose objects hold what Python can't look at?"""
    names = kind.__dict__
    return "__slots__" not in names and _OF_C.intersection(map(type, names.values())) and types.FunctionType not in map(
        type, names.values())


def _compares(value):
    """Is it equal to others that say the same?"""
    if type(value).__hash__ in (None, object.__hash__):
        return False
    try:
        hash(value)
    except Exception:  # of a part that has none
        return False
    return True


def _is_class_of_torch(kinds):
    return isinstance(kinds, type) and kinds.__module__.startswith("torch")


def _has_classes(members):
    return any(map(is_class, members))


def _is_simple_to_compare(value):
    """Without running code of the program's?"""
    kind = type(value)
    return is_plain(value) or (is_class(value) and kind.__hash__ is type.__hash__ and
                               kind.__eq__ is type.__eq__)


def _is_small(value):
    """A container of a few plain values?"""
    if type(value) not in (list, tuple, set, frozenset, dict) or len(value) > MOST_OF_SET:
        return False
    held = (*value, *value.values()) if type(value) is dict else value
    return all(map(is_plain, held))


def _is_open(kind):
    """Is an object of this class looked through whole?"""
    return kind.__module__ in _OPEN_MODULES or kind.__module__.startswith(_OPEN_PACKAGES)


def is_ours(value):
    return type(value).__module__.partition(".")[0] == "reprise"


def _key(key):
    return repr(key) if is_plain(key) else f"<{type(key).__name__}>"


def _id_of(ask):
    return id(ask())


def _ids_of(members):
    return tuple(map(id, members))


def _ids_below(kind):
    return _ids_of(type.__subclasses__(kind))


def _ids_of_keys(ordered):
    return tuple(map(id, collections.OrderedDict.keys(ordered)))


def _ids_of_elements(array):
    return tuple(map(id, array.flat))


def _id_of_live(reference):
    """Of the object that is there; another number than any object has once it is gone."""
    value = reference()
    return -1 if value is None else id(value)


def _is_array(value):
    return any(one.__name__ == "ndarray" and one.__module__ == "numpy" for one in type(value).__mro__)


def _is_of_ctypes(kind):
    return any(one.__name__ == "_CData" and one.__module__ == "_ctypes" for one in kind.__mro__)


def _bytes_of_map(mapped):
    return mapped[:MOST_ARRAY]


def _precision():
    context = decimal.getcontext()
    return f"{context.prec} {context.rounding}"


class _Weakly:
    """An object behind a weak reference, to ask for its attributes."""

    __slots__ = ("_reference",)

    def __init__(self, reference):
        self._reference = reference

    def __getattr__(self, name):
        return vars(self._reference())[name] if self._has(name) else _C.absent

    def _has(self, name):
        """Has it the attribute itself? No code of the program's runs for it."""
        names = dict_of(self._reference())
        return type(names) is dict and name in names


class _Emptied:
    """How often the cache of a function was seen to have been emptied, and how many results made room for others,
    to compare."""

    __slots__ = ("wrapper", "seen", "times")
    _all: weakref.WeakKeyDictionary[object, object] = weakref.WeakKeyDictionary()

    def __init__(self, wrapper):
        self.wrapper, self.seen, self.times = weakref.ref(wrapper), (0, 0), 0

    @classmethod
    def of(cls, wrapper):
        found = cls._all.get(wrapper)
        if found is None:
            found = cls._all[wrapper] = cls(wrapper)
        return found

    def __call__(self):
        wrapper = self.wrapper()
        if wrapper is None:
            return -1
        hits, misses, most, size = wrapper.cache_info()
        self.times += hits < self.seen[0] or misses < self.seen[1]
        self.seen = (hits, misses)
        return self.times, misses if size == most else 0


def _may_be_written(tensor, nbytes):
    """By those whose writes move no version: NumPy and others who have that memory too. What is small is always
    compared."""
    span = len(_bytes_between(tensor)) if nbytes <= MOST_BYTES else nbytes
    return span <= MOST_BYTES or (span <= MOST_ARRAY and not tensor.untyped_storage().resizable())


def _value_of(variable):
    try:
        return variable.get()  # its own default is asked for by no other one
    except LookupError:
        return _C.absent


def _bytes_between(tensor):
    """Those from its first element to behind the last, which may have others between them."""
    span = sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.stride())) + 1 if tensor.numel() else 0
    return _bytes_at(tensor.data_ptr(), span * tensor.element_size())


def _version_of(tensor):
    try:
        return (tensor.data_ptr(), tensor._version)
    except RuntimeError:  # an inference tensor has none
        return (tensor.data_ptr(), None)


def has_place(torch, tensor):
    """Does it lie somewhere, where the extension can look? Not so sparse, nested, quantized or fake ones, and
    those of the meta device."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_meta:
        return False
    try:
        tensor.data_ptr()
    except (RuntimeError, NotImplementedError, AttributeError, ValueError):  # the last of a lazy module's
        return False
    return True


@functools.cache
def _parts_by_layout(torch):
    """The names of what a sparse tensor is made of."""
    return {torch.sparse_coo: ("_indices", "_values"),
            **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), ("crow_indices", "col_indices", "values")),
            **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), ("ccol_indices", "row_indices", "values"))}


def _places_of(torch, tensor):
    """Of a sparse tensor: its form, and where its parts lie. What they are changes with its contents."""
    parts = [getattr(tensor, name)() for name in _parts_by_layout(torch)[tensor.layout]]
    return (tensor.shape, tensor.dtype, tensor.requires_grad,
            *((part.data_ptr(), part.shape, part.stride()) for part in parts))


def _parts_of(torch, tensor):
    """The same with what lies there, as a rule with the versions of that."""
    parts = [getattr(tensor, name)() for name in _parts_by_layout(torch)[tensor.layout]]
    return (*_places_of(torch, tensor),
            *(_bytes_between(part) if part.numel() * part.element_size() <= MOST_BYTES else _version_of(part)
              for part in parts))


def _bytes_at(address, nbytes):
    import ctypes
    return ctypes.string_at(address, nbytes) if nbytes else b""


_BY_TYPE: dict[type, collections.abc.Callable] = {
    types.FunctionType: Walk._function, types.MethodType: Walk._method,
    types.BuiltinFunctionType: Walk._builtin, types.MethodWrapperType: Walk._method_wrapper,
    functools.partial: Walk._partial, functools.partialmethod: Walk._partial,
    functools.singledispatchmethod: Walk._dispatching, operator.attrgetter: Walk._getter, operator.methodcaller: Walk._getter,
    logging.Logger: Walk._logger, logging.RootLogger: Walk._logger, logging.LoggerAdapter: Walk._logger_adapter,
    staticmethod: Walk._wrapper, classmethod: Walk._wrapper, property: Walk._property,
    functools.cached_property: Walk._cached_property, ContextVar: Walk._context_variable,
    dict: Walk._dict, list: Walk._list, tuple: Walk._tuple, set: Walk._set, frozenset: Walk._set,
    collections.deque: Walk._deque, type(os.environ): Walk._environment, type: Walk._class,
    types.ModuleType: Walk._python_module, weakref.ref: Walk._weak_reference,
    **dict.fromkeys(_PROXIES, Walk._proxy),
    **dict.fromkeys(VIEWS, Walk._view), types.CodeType: Walk._identity,
    MEMO_TYPE: Walk._cached,
    **{kind: Walk._iterator for kind in _ITERATORS},
}
