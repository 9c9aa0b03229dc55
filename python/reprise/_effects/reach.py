# SPDX-License-Identifier: MIT
"""Which Python objects a call of a function may change: those that it finds by name, and those that hang on
these and on its arguments.

    functions   what they close over, defaults, and the globals that their code names; the functions among
                those likewise
    objects     their attributes and slots, what they hold as a dict, list or set; the class of an object of
                the program, with those of its methods whose names the code that was followed has
    the rest    the generators of random numbers of Python, numpy and of PyTorch on the CPU

Python's own library, and PyTorch but for modules, optimizers and the like, are taken as they are.
"""

import array
import collections
import collections.abc
import concurrent.futures
import enum
import gc
import functools
import queue
import random
import sys
import threading
import types
import weakref
from contextvars import ContextVar

from .. import _C
from .._base.constants import VIEWS
from .._base.memos import MEMO_TYPE, kept_by
from .._base.objects import dict_of
from .._base.torch_private import GRADIENT_HOOKS
from .._reads.code import once_for_code
from . import schedules
from .python_state import (Body, Bytes, Cell, Contents, Drawn, Elements, Empties, Length, Mapping,
                            Members, Memo, Names, Path, Pointing, Progress, Slotted, State, Variable, slots_of)

MOST_OWNERS = 200_000    # objects that are looked at
MOST_ELEMENTS = 10_000   # elements of a container up to which each of them is looked at

_OUTSIDE = frozenset(sys.stdlib_module_names) - {"__main__"} | {"reprise", "torch", "triton", "numpy"}
_OF_TORCH = ("torch.nn", "torch.optim", "torch.amp", "torch.cuda.amp", "torch._dynamo.eval_frame", "torch.utils.data.",
             "torch.distributions.")
_LIBRARY = (threading.local, collections.UserDict, collections.UserList, collections.Counter, types.SimpleNamespace,
            weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet, threading.Semaphore,
            threading.Event, threading.Condition, threading.Barrier, queue.Queue, concurrent.futures.Future,
            collections.ChainMap)
# Classes of modules that a program may not have imported.
_NAMED = frozenset(("argparse.Namespace", "asyncio.queues.Queue", "asyncio.locks.Event", "asyncio.locks.Semaphore",
                    "contextlib.ExitStack", "contextlib.AsyncExitStack"))


def _is_of_library(kind):
    """Is it a class of Python's own library whose objects are looked at as the program's are?"""
    return issubclass(kind, _LIBRARY) or any(f"{one.__module__}.{one.__qualname__}" in _NAMED for one in kind.__mro__)


_ATOMS = (type(None), bool, int, float, complex, str, bytes, range, slice, types.CodeType,
          type(Ellipsis), type(NotImplemented))
_EMPTY: tuple[collections.abc.Iterable, ...] = ([], (), {}, set(), "", range(0), {}.values(), {}.items())
_ITERATORS = tuple({type(iter(made)) for made in _EMPTY} | {
    zip, map, filter, enumerate, reversed, type(reversed([])), types.GeneratorType})


_OWNERS = (list, dict, set, bytearray, collections.deque, collections.OrderedDict, collections.defaultdict)

_looks: weakref.WeakKeyDictionary[type, object] = weakref.WeakKeyDictionary()  # by type: as _choose_look says


@functools.lru_cache(maxsize=4096)
def _is_outside(name):
    return _root(name) in _OUTSIDE


def _root(name):
    return (name or "").partition(".")[0]


names_of = once_for_code(_C.names_in)  # the names in a code object, and in those within it


class Reach(_C.Reach):
    """The records of all that was found. What is common is looked at by csrc/reads/reach.c."""

    def __init__(self, torch):
        self.begin((Path, Mapping, Elements, Members, Pointing, Cell, Body, collections.OrderedDict),
                   getattr(torch, "strided", None), MOST_OWNERS, MOST_ELEMENTS)
        self.torch = torch
        self.schedules = []  # (object, path) of those of learning rates
        self._schedule = schedules.kind(torch)

    # _ahead: (object, path) each; what is near comes first. _kinds: by type, what _find_look says. _spaces: Names by
    # the id of the dict.

    def sum_up_empties(self):
        """From here on the empty dicts of modules have one record together."""
        self._empties = []
        self.records.append(Empties(self._empties))

    def note(self):
        """From here on what leads the walk on is noted beside the records, as reached.h has it."""
        self.functions, self.objects = [], []

    def spaces(self):
        """The records of names of globals."""
        return self._spaces.values()

    def met(self):
        """(type, what looks at its objects) of all that was met."""
        return self._kinds.items()

    def finish(self):
        """The records. What was looked at is let go: who drops a tensor next wants it gone."""
        self.let_go()
        for kept in (self._ahead, self._spaces, self._modules, self._followed, self._waiting, self._kinds,
                     self._methods):
            kept.clear()
        return self.records

    def follow_generators(self):
        """The generators of random numbers that have no owner."""
        torch = self.torch
        self.records.append(State(random.getstate, random.setstate, Path(None, "", "random"),
                                  getattr(random.getstate, "__self__", None)))
        numpy = sys.modules.get("numpy.random")
        if numpy is not None:
            self.records.append(State(numpy.get_state, numpy.set_state, Path(None, "", "numpy.random"),
                                      getattr(numpy.get_state, "__self__", None)))
        if torch is not None:
            self.records.append(Drawn(torch.get_rng_state, torch.set_rng_state,
                                      Path(None, "", "torch's random numbers on the CPU")))

    # ---- By type ----

    def _look_of(self, kind):
        try:
            return self._kinds[kind]
        except KeyError:
            made = self._kinds[kind] = self._find_look(kind)
            return made

    def _find_look(self, kind):
        """What looks at objects of a type; None: nothing does; True: they are modules; False: functions; ...:
        tensors; NotImplemented: classes."""
        look = _looks.get(kind, "") if self.torch is sys.modules.get("torch") else ""
        if look == "":
            look = self._choose_look(kind)
            if self.torch is sys.modules.get("torch"):
                _looks[kind] = look
        return getattr(self, look) if type(look) is str else look

    def _choose_look(self, kind):
        """The same, methods by name."""
        torch = self.torch
        if kind in _ATOMS:
            return None
        if issubclass(kind, (enum.Enum, BaseException)):
            return "_member" if issubclass(kind, enum.Enum) else "_error"
        if issubclass(kind, type):
            return NotImplemented
        for of, look in ((types.FunctionType, False), (types.MethodType, "_method"),
                         ((types.BuiltinFunctionType, types.MethodWrapperType), "_bound"),
                         (functools.partial, "_partial"), (MEMO_TYPE, "_memo"),
                         (types.ModuleType, None), (_ITERATORS, "_iterator"),
                         ((staticmethod, classmethod), "_wrapped"), (property, "_property"),
                         (random.Random, "_random"), ((bytearray, array.array), "_bytes"),
                         (ContextVar, "_variable"), (queue.SimpleQueue, "_queue"), (VIEWS, "_view")):
            if issubclass(kind, of):
                return look
        if torch is not None and issubclass(kind, torch.Tensor):
            return ...
        if torch is not None and issubclass(kind, torch.Generator):
            return "_torch_generator"
        return self._find_look_by_origin(kind)

    def _find_look_by_origin(self, kind):
        torch, module = self.torch, kind.__module__ or ""
        if _root(module) == "numpy":
            return {"ndarray": "_array", "Generator": "_numpy_generator",
                    "RandomState": "_numpy_state"}.get(kind.__name__)
        if _root(module) == "itertools":
            return "_iterator"
        if issubclass(kind, (dict, list, set, collections.deque, tuple, frozenset)):
            return "_container"
        if torch is not None and issubclass(kind, torch.nn.Module):
            return True
        if _root(module) in _OUTSIDE and not _is_of_library(kind) and not module.startswith(_OF_TORCH):
            return None
        return "_object"

    # ---- Functions ----

    _is_outside, _names_of = staticmethod(_is_outside), staticmethod(names_of)

    def _meet_module(self, space, name, module):
        """A global that code names is a module."""
        if _root(module.__name__) not in _OUTSIDE:
            self._modules.setdefault(id(space.owner), {})[name] = None

    def _name_in_module(self, module, name, names):
        """Of a module those of its names that code has."""
        inner = self._space(vars(module), Path(None, "", name))
        for other in names & vars(module).keys():
            inner.add(other)
            value = vars(module)[other]
            if isinstance(value, types.ModuleType):
                self._meet_module(inner, other, value)
            else:
                self._ahead.append((value, inner.path_of(other)))

    def _space(self, beside, path):
        made = self._spaces.get(id(beside))
        if made is None:
            made = self._spaces[id(beside)] = Names(beside, path)
            self.records.append(made)
        return made

    def _method(self, method, path):
        owner = Path(None, "", "self") if method.__name__ == "forward" else path
        self._ahead.append((method.__self__, owner))
        self._ahead.append((method.__func__, path))

    def _bound(self, method, path):
        """Of an object of Python's own, which its name may lead to alone."""
        owner = getattr(method, "__self__", None)
        if type(owner) in _OWNERS or isinstance(owner, _ITERATORS):
            self._ahead.append((owner, path))

    def _partial(self, made, path):
        self._ahead += [(made.func, path), (made.args, path), (made.keywords, path)]

    def _wrapped(self, made, path):
        self._ahead.append((made.__func__, path))

    def _property(self, made, path):
        self._ahead += [(made.fget, path), (made.fset, path)]

    def _memo(self, cache, path):
        if cache.cache_parameters()["maxsize"] != 0:  # or it keeps nothing
            self.records.append(Memo(cache, path))
        self._ahead.append((cache.__wrapped__, path))
        for value in kept_by(cache):
            if self._look_of(type(value)) is not None:
                self.functions = self.objects = None  # others may come to be there
                self._ahead.append((value, path))

    # ---- Containers and objects ----

    def _container(self, value, path):
        if isinstance(value, dict):
            self.mapping(value, path, "[")
        elif isinstance(value, (list, collections.deque)):
            self.records.append(Elements(value, path))
            self._row(value, path)
        else:
            if isinstance(value, set):
                self.records.append(Members(value, path))
            self._row(value, path)
        if type(value).__module__ not in ("builtins", "collections"):
            self._object(value, path)

    def _row(self, values, path):
        if len(values) > MOST_ELEMENTS:
            return
        for i, value in enumerate(values):
            if self._look_of(type(value)) is not None:
                self._ahead.append((value, Path(path, "[", i)))

    def _object(self, value, path):
        attributes = dict_of(value)
        if self._schedule is not None and isinstance(value, self._schedule):
            self.schedules.append((value, path))
            self.functions = self.objects = None  # the next capture looks for them again
        if self.objects is not None:
            self.objects += (value, type(value), attributes, False)
        if type(attributes) is dict:
            self.mapping(attributes, path, ".")
        if slots_of(type(value)):
            record = Slotted(value, path)
            self.records.append(record)
            self._ahead += [(held, record.path_of(name)) for name, held in record.held.items()]
        self._ahead.append((type(value), Path(None, "", type(value).__name__)))

    def _class_by_view(self, kind, path):
        """One whose dict Python hides."""
        record = Body(kind, path)
        self.records.append(record)
        self.attributes(dict(vars(kind)), record.held, path)

    @staticmethod
    def _find_method(kind):
        """Do classes have functions as objects of this type? True; the name by which these have it; None: no."""
        if issubclass(kind, functools.cached_property):
            return "func"
        return True if issubclass(kind, (types.FunctionType, staticmethod, classmethod, property, MEMO_TYPE)) else None

    # ---- Values ----

    def _tensor(self, tensor, path):
        self.functions = self.objects = None  # it may come to have memory of the device
        try:
            tensor.data_ptr()
            if tensor.layout is not self.torch.strided or tensor.device.type == "meta":
                return
            self.records.append(Pointing(tensor, path))
        except (RuntimeError, NotImplementedError, AttributeError):
            return  # it has no memory of its own
        if tensor.__dict__:
            self.mapping(tensor.__dict__, path, ".")
        for name in GRADIENT_HOOKS:
            hooks = getattr(tensor, name, None)
            if hooks:
                self._hooks(hooks, name, path)

    def _hooks(self, hooks, name, path):
        """Hooks of a tensor's gradients, in a dict."""
        self._ahead.append((hooks, Path(path, ".", name)))

    def _bytes(self, value, path):
        self.records.append(Bytes(value, path))

    def _member(self, member, path):
        """Of an Enum: its value, and what else was put there."""
        self._ahead += [(held, path) for held in vars(member).values() if self._look_of(type(held)) is not None]

    def _error(self, error, path):
        self._row(error.args, path)
        self.mapping(error.__dict__, path, ".")

    def _view(self, view, path):
        self._ahead += [(held, path) for held in gc.get_referents(view) if isinstance(held, dict)]

    def _variable(self, variable, path):
        record = Variable(variable, path)
        self.records.append(record)
        if self._look_of(type(record.held)) is not None:
            self._ahead.append((record.held, path))

    def _queue(self, made, path):
        self.records.append(Length(made, path))

    def _array(self, array, path):
        self.records.append(Contents(array, path))
        if array.dtype == object:
            self._row(array.reshape(-1).tolist(), path)

    def _iterator(self, iterator, path):
        self.records.append(Progress(iterator, path))

    def _random(self, made, path):
        try:
            self.records.append(State(made.getstate, made.setstate, path, made))
        except NotImplementedError:  # the operating system's
            pass

    def _torch_generator(self, made, path):
        if made.device.type == "cpu":
            self.records.append(State(made.get_state, made.set_state, path))

    def _numpy_generator(self, made, path):
        bits = made.bit_generator
        self.records.append(State(lambda: bits.state, lambda state: setattr(bits, "state", state), path))

    def _numpy_state(self, made, path):
        self.records.append(State(made.get_state, made.set_state, path, made))
