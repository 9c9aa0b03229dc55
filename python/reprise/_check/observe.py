# SPDX-License-Identifier: MIT
"""One eager run of a callable, observed: its operators, what it does to the host, whose memory it uses.

Two of PyTorch's modes see it: the function mode knows what the program called ("Tensor.item"), the
dispatch mode which operators that became, backward passes included. Nothing is kept from running, so
one run meets all obstacles. Memory is known by storage:

    argument   an argument's
    made       made by an operator of the run
    outside    everything else: parameters, state, constants

What an operator writes outside is saved before, so that the run can be undone.
"""

import contextlib
import gc
import sys
import threading
import warnings
import weakref
from collections import namedtuple

from .._base import torch_private
from .._base.aside import aside, tensors_in
from .._base.lines import take_stack

Note = namedtuple("Note", "kind operation what mend stack fix options")
Op = namedtuple("Op", "name frames outputs values sources")
Place = namedtuple("Place", "ref index")  # a storage, weakly held, and the operator that showed it
_COPIES = ("aten::_to_copy", "aten::copy_")
_READS = frozenset(("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero",
                    "aten::_linalg_check_errors"))
_SIZES = frozenset(("aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim",
                    "aten::unique_consecutive", "aten::bincount"))
_INDEXING = frozenset(("aten::index", "aten::index_put", "aten::index_put_",
                       "aten::_index_put_impl_"))
# Functions of Python that read, and may hide their operators from the modes.
_READERS = frozenset(("item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__",
                      "__index__", "__complex__", "__repr__", "__str__", "__format__",
                      "__contains__"))
_MAKERS = frozenset(("tensor", "as_tensor", "asarray", "from_numpy", "new_tensor"))
_NAN_TESTS = frozenset(("isnan", "isinf", "isfinite"))
_NAN_PASSES = frozenset(("any", "all", "sum", "max", "min", "logical_or", "logical_and",
                         "logical_not", "bitwise_or", "bitwise_and", "bitwise_not", "__or__",
                         "__and__", "__invert__"))
_THROUGH = (  # PyTorch's own files, what reading a value there means, and the mend
    ("clip_grad.py", "gradient-clipping", "clipped"), ("grad_scaler.py", "grad-scaler", None),
    ("dataloader.py", "data-loader", None))
_SYNC_WARNING = "synchronizing CUDA operation"


def function_name(func):
    """What the program called it: "Tensor.item", "torch.nonzero"."""
    name = getattr(func, "__qualname__", None) or getattr(func, "__name__", str(func))
    owner, dot, last = name.rpartition(".")
    if owner in ("TensorBase", "Tensor") or (dot and owner.endswith("TensorBase")):
        return f"Tensor.{last}"
    if owner == "_VariableFunctionsClass":
        return f"torch.{last}"
    module = getattr(func, "__module__", None) or ""
    return f"{module}.{name}" if module.startswith("torch") and not dot else name


def storage_of(tensor):
    """A tensor's storage; None where it has none that can be had."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


class Observer:
    """The observation of one run: ``begin()``, the run, ``end_all()``, then ``finish(results)``.

    platform: what differs by device (see Cuda in _check/platform.py). end: the code object that calls the
    callable; the program's stack ends there.
    """

    def __init__(self, torch, platform, args, params, generators, end):
        self.torch = torch
        self.platform = platform
        self.type = platform.type
        self.end = end
        self.thread = threading.get_ident()
        self.generators = generators
        self.notes = []
        self.ops = []
        self.made = {}      # by storage: Place
        self.outside = {}
        self.saved = {}     # by storage: (weak reference, type, contents before the run)
        self.scalars = []   # CPU tensors of one element from outside: (Place, stack, function)
        self.arguments = {}
        self.functions = []  # that are under way, outermost first
        self.current = None  # the operator that is under way: (name, stack, count of notes)
        self.nan_tests = set()
        self.plain = (bool, int, float, complex, str, type(None), torch.dtype, torch.device,
                      torch.layout, torch.memory_format)
        self.quiet = 0
        self.grads = [(p, p.grad) for p in params]
        self.leaves = [weakref.ref(p) for p in params]
        for i, tensor in enumerate(args):
            storage = storage_of(tensor)
            if storage is not None:
                self.arguments[storage._cdata] = i

    # ---- Surroundings ----

    def begin(self):
        """From here on the run is observed."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("always")
            warnings.showwarning = self._warned
            self.platform.enter(self)
            stack.callback(self.platform.leave, self)
            stack.enter_context(_function_mode(self))
            stack.enter_context(_dispatch_mode(self))
            self.end_all = stack.pop_all().close

    def stack(self):
        """Where the program is. On autograd's threads it is where it waits for them."""
        caller = None
        if threading.get_ident() != self.thread:
            caller = sys._current_frames().get(self.thread)
        return take_stack(sys._getframe(1), self.end, caller=caller)

    # ---- Notes ----

    def note(self, kind, operation, *, stack=None, what=None, mend=None, fix=None, options=None):
        if aside.depth:
            return
        self.notes.append(Note(kind, operation, what, mend, stack or self.stack(), fix, options))

    def operation(self, name=None):
        """What the program called, and the operator where that is not plain."""
        called = function_name(self.functions[0]) if self.functions else None
        if name is None or called is None:
            return called or name or "a call"
        return called if called.rpartition(".")[2].strip("_") in name else f"{called} ({name})"

    def note_read(self, name, stack, tensor=None):
        """A host read; which one it is shows in the way it came."""
        from .. import mends
        for file, kind, fix in _THROUGH:
            if file in stack.through:
                self.note(kind, self.operation(name), stack=stack, fix=fix and getattr(mends, fix))
                return
        storage = storage_of(tensor) if tensor is not None else None
        if storage is not None and storage._cdata in self.nan_tests:
            self.note("nan-check", self.operation(name), stack=stack)
            return
        mend = _mend_of(name) if name else None
        printing = any(f.__name__ in ("__repr__", "__str__", "__format__")
                       for f in self.functions if hasattr(f, "__name__"))
        self.note("host-read", "printing a tensor" if printing else self.operation(name),
                  stack=stack, mend=None if printing else mend)

    def _warned(self, message, category, filename, lineno, file=None, line=None):
        text = str(message)
        if _SYNC_WARNING in text and not self.quiet:
            name, stack, before = self.current or (None, self.stack(), len(self.notes))
            if len(self.notes) > before:
                return  # the operator is known for it
            if self._reader() or name in _READS:
                self.note_read(name, stack)
            elif name in _INDEXING or name in _SIZES:
                self.note("data-shape", self.operation(name), stack=stack, mend=_mend_of(name))
            else:
                self.note("synchronisation", self.operation(name), stack=stack)

    def _reader(self):
        return any(getattr(f, "__name__", "") in _READERS for f in self.functions)

    # ---- Functions ----

    def function(self, func, args, kwargs):
        name = getattr(func, "__name__", "")
        before = len(self.notes)
        self.functions.append(func)
        try:
            result = func(*args, **kwargs)
            self._judge_function(name, args, kwargs, result, before)
        finally:
            self.functions.pop()
        return result

    def _judge_function(self, name, args, kwargs, result, before):
        first = args[0] if args else None
        is_tensor = isinstance(first, self.torch.Tensor)
        if len(self.notes) == before:
            if name in _READERS and is_tensor and first.device.type == self.type:
                self.note_read(None, self.stack(), first)
        if name in _MAKERS and isinstance(result, self.torch.Tensor):
            self._judge_maker(args[1:] if name == "new_tensor" else args, kwargs, result, before)
        if isinstance(result, self.torch.Tensor) and (name in _NAN_TESTS or (
                name in _NAN_PASSES and any(self._is_nan_test(a) for a in args))):
            storage = storage_of(result)
            if storage is not None:
                self.nan_tests.add(storage._cdata)

    def _judge_maker(self, args, kwargs, result, before):
        """A tensor on the device, made from values of the host: the modes do not see that copy, only
        PyTorch's warning tells of it, as of a wait."""
        if self.type == "cpu" or result.device.type != self.type:
            return
        given = tensors_in(self.torch, args, kwargs)
        waits = [n for n in self.notes[before:] if n.kind == "synchronisation"]
        if all(storage_of(t) is None or storage_of(t)._cdata != storage_of(result)._cdata
               for t in given):
            self._made(result, len(self.ops))
        if any(t.device.type == self.type for t in given):
            if waits:
                self._drop_notes(waits)
                self.note_read(None, waits[0].stack)
            return
        self._drop_notes(waits)
        if len(self.notes) == before:
            self._note_copy_in(None, self.stack())

    def _drop_notes(self, notes):
        self.notes[:] = [n for n in self.notes if all(n is not other for other in notes)]

    def _is_nan_test(self, value):
        if not isinstance(value, self.torch.Tensor):
            return False
        storage = storage_of(value)
        return storage is not None and storage._cdata in self.nan_tests

    # ---- Operators ----

    def dispatch(self, func, args, kwargs):
        name = func._schema.name
        stack = self.stack()
        tensors = tensors_in(self.torch, args, kwargs)
        count = len(self.notes)
        sources = [s for s in (self._source(t, name, len(self.ops)) for t in tensors) if s]
        self._judge(name, func, args, kwargs, tensors, stack)
        self._save_before_writes(func, args, kwargs)
        outer, self.current = self.current, (name, stack, count)
        try:
            result = func(*args, **kwargs)
        finally:
            self.current = outer
        made = tensors_in(self.torch, (result,), {})
        for tensor in made:
            self._made(tensor, len(self.ops))
        if sources or any(t.device.type == self.type for t in made):
            self.platform.worked(self, name, stack)
            self.ops.append(Op(name, stack.frames, tuple((tuple(t.shape), t.dtype) for t in made),
                               self._values(args, kwargs), tuple(sources)))
        return result

    def _source(self, tensor, name, index):
        """Where an operator's argument lies: its kind, number and address; None on other devices."""
        if tensor.device.type != self.type:
            return None
        storage = storage_of(tensor)
        if storage is None:
            return None
        key = storage._cdata
        if key in self.arguments:
            return ("argument", self.arguments[key], 0)
        if key in self.made or name == "aten::lift_fresh":
            return ("made", 0, 0)
        if key not in self.outside:
            self.outside[key] = Place(_weak(self.torch, storage), index)
            if tensor.requires_grad and tensor.is_leaf:
                self.leaves.append(weakref.ref(tensor))
        return ("outside", key, storage.data_ptr())

    def _values(self, args, kwargs):
        """The operator's arguments that are no tensors on the device, as text: numbers, and CPU
        tensors of one element by value."""
        return tuple(map(self._text, args)) + tuple(f"{k}={self._text(v)}"
                                                    for k, v in kwargs.items())

    def _text(self, value):
        torch = self.torch
        if isinstance(value, torch.Tensor):
            if self.type == "cpu" or value.device.type != "cpu" or value.numel() != 1:
                return "tensor"
            return repr(value.detach().item())
        if isinstance(value, (tuple, list)):
            return "(" + ", ".join(map(self._text, value)) + ")"
        return repr(value) if isinstance(value, self.plain) else type(value).__name__

    def _made(self, tensor, index):
        storage = storage_of(tensor)
        if storage is None or storage._cdata in self.outside or storage._cdata in self.arguments:
            return
        if storage._cdata not in self.made:
            self.made[storage._cdata] = Place(_weak(self.torch, storage), index)

    def _judge(self, name, func, args, kwargs, tensors, stack):
        on = [t for t in tensors if t.device.type == self.type]
        if on and name in _READS:
            self.note_read(name, stack, on[0])
        elif name in _COPIES:
            self._judge_copy(name, args, kwargs, stack)
        elif name == "aten::_pin_memory" or kwargs.get("pin_memory"):
            self.note("pinned-memory", self.operation(name), stack=stack)
        elif on and self._has_data_shape(name, func, args):
            from ..mends import is_fill, masked
            fix = masked if name == "aten::index_put_" and is_fill(self.torch, *args) else None
            self.note("data-shape", self.operation(name), stack=stack, mend=_mend_of(name), fix=fix)
        elif on and self.type != "cpu":
            self._judge_host_operands(name, tensors, stack)
        for value in kwargs.values():
            if isinstance(value, self.torch.Generator) and value.device.type == self.type and \
                    not self.platform.knows(value, self.generators):
                self.note("random-generator", self.operation(name), stack=stack,
                          options={"generators": (value,)})

    def _judge_copy(self, name, args, kwargs, stack):
        if name == "aten::_to_copy":
            source, device = args[0].device.type, kwargs.get("device")
            target = device.type if device is not None else source
        else:
            source, target = args[1].device.type, args[0].device.type
        if source == target or self.type not in (source, target) or (
                name == "aten::copy_" and self._is_enqueued(args, kwargs)):
            return
        if target == self.type:
            self._note_copy_in(name, stack)
        elif self._reader():
            self.note_read(name, stack, args[0] if name == "aten::_to_copy" else args[1])
        else:
            self.note("copy-out", self.operation(name), stack=stack)

    def _is_enqueued(self, args, kwargs):
        """Is a copy captured: from or to pinned memory that stays, with nobody waiting?"""
        waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        host = args[1] if args[0].device.type == self.type else args[0]
        storage = storage_of(host)
        return not waits and storage is not None and storage._cdata not in self.made and \
            host.is_pinned()

    def _note_copy_in(self, name, stack):
        from ..mends import constants
        kind = "data-loader" if "dataloader.py" in stack.through else "copy-in"
        self.note(kind, self.operation(name), stack=stack, fix=constants)

    def _has_data_shape(self, name, func, args):
        torch = self.torch
        if name in _SIZES:
            return True
        if name == "aten::repeat_interleave":
            return func._overloadname != "self_int" and len(args) < 3
        if name not in _INDEXING:
            return False
        masks = [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
        if name == "aten::index" or not masks:
            return bool(masks)
        value = args[2]  # a number is filled in by the mask, without counting its elements
        is_number = value.device.type == "cpu" and (self.type != "cpu" or not value.dim())
        return not (len(args[1]) == len(masks) == 1 and value.numel() == 1 and is_number)

    def _judge_host_operands(self, name, tensors, stack):
        """CPU tensors beside tensors on the device."""
        for tensor in tensors:
            if tensor.device.type != "cpu":
                continue
            if tensor.dim() and name in _INDEXING:
                self._note_copy_in(name, stack)
            elif not tensor.dim():
                storage = storage_of(tensor)
                if storage is not None and storage._cdata not in self.made:
                    self.scalars.append((_weak(self.torch, storage), stack, self.operation(name)))

    # ---- Undoing ----

    def _save_before_writes(self, func, args, kwargs):
        named = {a.name: v for a, v in zip(func._schema.arguments, args)} | kwargs
        for argument in func._schema.arguments:
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for tensor in tensors_in(self.torch, (named.get(argument.name),), {}):
                self._save(tensor)

    def _save(self, tensor):
        storage = storage_of(tensor)
        if storage is None or not storage.nbytes() or storage._cdata in self.made or \
                storage._cdata in self.saved:
            return
        self.saved[storage._cdata] = (_weak(self.torch, storage), tensor.dtype,
                                      contents(self.torch, storage))

    def undo(self):
        """Puts back what the run wrote outside of its own memory."""
        for ref, _, held in self.saved.values():
            storage = None if ref.expired() else \
                self.torch.UntypedStorage._new_with_weak_ptr(ref.cdata)
            if storage is not None and storage.nbytes() == held.numel():
                put_back(self.torch, storage, held)
        for parameter, grad in self.grads:
            parameter.grad = grad

    # ---- The end ----

    def finish(self, results):
        """Finds what the run left behind: kept and freed, as indices of operators. results: the
        tensors that it returned; only their storages are looked at."""
        allowed = {storage_of(t)._cdata for t in results if storage_of(t) is not None}
        results.clear()
        gc.collect()
        for ref in self.leaves:
            leaf = ref()
            if leaf is not None and leaf.grad is not None and storage_of(leaf.grad) is not None:
                allowed.add(storage_of(leaf.grad)._cdata)
        self.kept = [place.index for key, place in self.made.items()
                     if key not in allowed and place.index < len(self.ops) and
                     not place.ref.expired() and self._is_on_device(place.ref)]
        self.freed = [place.index for place in self.outside.values() if place.ref.expired()]
        for ref, stack, name in self.scalars:
            if not ref.expired():
                self.note("host-scalar", name, stack=stack)

    def _is_on_device(self, ref):
        storage = self.torch.UntypedStorage._new_with_weak_ptr(ref.cdata)
        return storage is not None and storage.device.type == self.type


# ---- Helpers --------------------------------------------------------------------------------------


def _mend_of(name):
    from .. import _C
    known = _C.explain(name)
    return known[2] if known and known[0] == name else None


def _weak(torch, storage):
    return torch.multiprocessing.reductions.StorageWeakRef(storage)


def _bytes(torch, storage):
    if storage.device.type == "cpu" and torch.cuda.is_initialized():
        torch_private.of(torch).synchronize()  # the device may still write to memory that is pinned, or read it
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def contents(torch, storage):
    """What a storage holds once all work is done that was enqueued, as a tensor of bytes of its own."""
    return _bytes(torch, storage).clone()


def put_back(torch, storage, held):
    """Writes what ``contents`` gave."""
    _bytes(torch, storage).copy_(held)


def _function_mode(observer):
    from torch.overrides import TorchFunctionMode

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return observer.function(func, args, kwargs or {})

    return Functions()


def _dispatch_mode(observer):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return observer.dispatch(func, args, kwargs or {})

    return Operators()
