# SPDX-License-Identifier: MIT
"""What one run of a capture does with values on the CPU.

A capture records no copy from pageable memory. So while a run takes, two modes of PyTorch answer what moves
a tensor from the CPU to the device: the result is made from memory of the device that holds the value, which
is brought there otherwise (_call/cpu_values.py). Two kinds of values are moved:

    constants   what the run makes of Python values, or finds: the same in every run, kept on the device
    computed    what hangs on an argument on the CPU, or on random numbers that are drawn there. The
                operators that lead there are noted; each call repeats them on the CPU, and copies what
                they give ahead of its launch

Where torch.compile runs parts of the callable, a run follows no values, but for what needs none (Compiled).

An argument that is used in another way says so, Wanted, and the next attempt gives it another level.
"""

import types

from .. import _C
from .._base import torch_private
from .._base.aside import tensors_in

MOVED, NUMBER, VALUE = range(3)  # levels: no part of the key; by its kind, in kernels' parameters; by value
DRAWN = -1  # in the place of an argument's number: what hangs on random numbers
ALIGN = 256
_INDEXING = frozenset(("aten::index", "aten::index_put", "aten::index_put_", "aten::_unsafe_index",
                       "aten::_index_put_impl_", "aten::_unsafe_index_put"))
_TAKES_SCALARS = frozenset(("aten::where",))  # which copy a 0-dimensional operand to the device
_UNSEEN = frozenset(("tolist", "numpy", "__array__", "data_ptr", "__dlpack__", "untyped_storage", "storage",
                     "const_data_ptr", "share_memory_", "__reduce_ex__", "__deepcopy__"))
_ADDRESSES = frozenset(("data_ptr", "__dlpack__"))
_FILL = frozenset(("aten::bernoulli_", "aten::cauchy_", "aten::exponential_", "aten::geometric_",  # all of a
                   "aten::log_normal_", "aten::normal_", "aten::random_", "aten::uniform_"))  # tensor, with draws
_OF_FORM = frozenset(("aten::detach", "aten::dim", "aten::is_contiguous", "aten::is_non_overlapping_and_dense",
                      "aten::is_strides_like_format", "aten::numel", "aten::size", "aten::storage_offset",
                      "aten::stride"))
_COMPARES = frozenset(("aten::lt", "aten::le", "aten::gt", "aten::ge"))


class Wanted(_C.Error):
    """An argument on the CPU is used in a way that takes another level."""

    def __init__(self, which, level):
        self.which, self.level = tuple(sorted(which)), level
        super().__init__("a tensor on the CPU is used by its value")


class NoRoom(_C.Error):
    """More is moved than there is room for: bytes of (constants, computed values)."""

    def __init__(self, needed):
        self.needed = needed
        super().__init__(f"{max(needed)} bytes are moved from the CPU")


class Refused(_C.Error):
    """A use of the CPU's memory that no replay would repeat."""


class Emitted:
    """A value that is copied to the device: where in the buffer, and its form; of computed ones which."""

    __slots__ = ("offset", "nbytes", "dtype", "shape", "of")

    def __init__(self, offset, nbytes, tensor, of=None):
        self.offset, self.nbytes = offset, nbytes
        self.dtype, self.shape, self.of = tensor.dtype, tensor.shape, of


class View:
    """A tensor in a storage that a replay makes, by its number."""

    __slots__ = ("number", "dtype", "size", "stride", "offset")

    def __init__(self, number, tensor):
        self.number, self.dtype = number, tensor.dtype
        self.size, self.stride, self.offset = tensor.shape, tensor.stride(), tensor.storage_offset()

    def of(self, torch, storages):
        storage = storages[self.number]
        made = torch.empty(0, dtype=self.dtype, device=storage.device)
        return made.set_(storage, self.offset, self.size, self.stride)


def storage_of(tensor):
    return tensor.untyped_storage()._cdata


def contents(torch, tensor):
    """The bytes of a tensor on the CPU, in the order of its elements."""
    if tensor.numel() == 0:
        return b""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy())


def _generator_state(torch):
    """The state of the CPU's generator, as bytes: to compare tensors would be an operator of a run."""
    return torch.get_rng_state().numpy().tobytes()


def map_tensors(torch, value, how):
    """A nesting of lists and tuples, with other tensors."""
    if isinstance(value, torch.Tensor):
        return how(value)
    if isinstance(value, (list, tuple)):
        return type(value)([map_tensors(torch, v, how) for v in value])
    return value


class Run:
    """One run. given: of each argument on the CPU its stand-in; levels: theirs; constants and packed:
    memory of the device; earlier: storages that an earlier run of this capture met, which it keeps;
    forward: of a backward pass the forward run, whose arguments it may use by their values only; follower: an
    answers.Follower, which has what the run reads of the device on the host, or None."""

    def __init__(self, torch, device, given, levels, constants, packed, earlier, may_number, forward=None,
                 follower=None):
        self.torch, self.device, self.may_number = torch, device, may_number
        self.follower = follower
        self.given, self.levels = given, levels
        self.constants_in, self.packed = constants, packed
        self.earlier = earlier
        self.steps = []      # (operator, arguments, keywords, numbers of what it gives) or Emitted
        self.constants = []  # (where in the buffer, bytes) each
        self.read = {}       # tensors on the CPU that operators read and that hang on no argument
        self.used = [0, 0]   # bytes of constants, and of computed values
        self.error = None    # what a run raised, which the program may have caught
        self.numbers = set()  # arguments that kernels' parameters may hold
        self.met = {}        # tensors whose storages were met, by those: so that no other takes the place
        self._known = {}     # storage: (number, the arguments that it hangs on)
        self._values = set()  # storages of arguments by value
        for i, (tensor, level) in enumerate(zip(given, levels)):
            self.met[storage_of(tensor)] = tensor
            if level == VALUE:
                self._values.add(storage_of(tensor))
            else:
                self._known[storage_of(tensor)] = (i, frozenset((i,)))
        self._is_behind = forward is not None
        if forward is not None:
            self._known, self._values = dict(forward._known), set(forward._values)
        self._count = len(given)
        self._same = {}      # by their bytes: constants
        self.is_busy = False
        self.has_drawn = False
        self.drawn = None    # the state of the CPU's generator behind the latest draw that was noted
        self._uniform = set()  # storages of numbers that were drawn from [0, 1)
        self._state = _generator_state(torch)

    # ---- What is asked of an operator ----

    def dispatch(self, func, args, kwargs):
        """In the place of an operator. What it asks itself, no mode is to answer."""
        before, self.is_busy = self.is_busy, True
        try:
            return self._dispatch(func, args, kwargs)
        finally:
            self.is_busy = before

    def _dispatch(self, func, args, kwargs):
        torch = self.torch
        name = func._schema.name
        if name == "aten::_to_copy" and self._is_device(kwargs.get("device")) and self._is_cpu(args[0]):
            return self._moved(args[0], kwargs)
        if name == "aten::copy_" and args[0].is_cuda and self._is_cpu(args[1]):
            args = (args[0], self._on_device(args[1].to(args[0].dtype)), *args[2:])
            return self._follow(func, args, kwargs, func(*args, **kwargs))
        tensors = tensors_in(torch, args, kwargs)
        if any(t.is_cuda for t in tensors):
            answer = self._answer(func, args, kwargs)
            if answer is not None:
                return self._meet(answer[0])
            args = self._with_operands(name, args, tensors)
            _C.clean_stack(None)  # of what Python left there, which would be in the padding of parameters
            return self._follow(func, args, kwargs, func(*args, **kwargs))
        hanging = []
        for tensor in tensors:
            if self._hangs(tensor):
                hanging.append(tensor)
            elif self._is_cpu(tensor):
                self._note_read(tensor)
        self._check_written(func, args, hanging)
        if torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None and (
                not self._is_device(kwargs.get("device"))):
            return self._draw(func, args, kwargs, hanging)
        if not hanging or self._is_decided(name, args):
            return self._meet(self._follow(func, args, kwargs, func(*args, **kwargs)))
        return self._compute(func, args, kwargs, hanging)

    def _is_decided(self, name, args):
        """Is it a comparison that all numbers in [0, 1) answer alike? `torch.rand([]) < layerdrop` with 0."""
        if name not in _COMPARES or storage_of(args[0]) not in self._uniform or type(args[1]) not in (int, float):
            return False
        return args[1] < 0 or args[1] >= 1 or (args[1] == 0 and name in ("aten::lt", "aten::ge"))

    def _answer(self, func, args, kwargs):
        """Of an operator that reads values of the device: (what is known of them,), or None."""
        if self.follower is None or any(map(self._hangs, tensors_in(self.torch, args[:1], {}))):
            return None
        try:
            answer = self.follower.answer(func, args, kwargs, self._on_device)
        except _C.Error as error:
            self.raises(error)
        if answer is not None:
            self._check_written(func, args, ())
        return answer

    def _follow(self, func, args, kwargs, result):
        if self.follower is not None:
            is_known = not any(map(self._hangs, tensors_in(self.torch, args, kwargs)))
            self.follower.follow(func, args, kwargs, result, is_known)
        return result

    def _draw(self, func, args, kwargs, hanging):
        """Runs an operator that draws from the CPU's generator. Replays repeat it, where they can."""
        torch = self.torch
        self.has_drawn = True
        was_followed = _generator_state(torch) == self._state
        fills = func._schema.is_mutable and not hanging
        if self._is_behind or func.namespace != "aten" or (fills and not self._is_filled(func, args[0])):
            return self._meet(func(*args, **kwargs))
        if fills:
            filled = args[0]
            self.steps.append((torch.ops.aten.zeros.default, (list(filled.shape),),
                               {"dtype": filled.dtype, "device": "cpu"}, (self._number(filled, {DRAWN}),)))
        result = self._compute(func, args, kwargs, hanging, draws=True)
        if func._schema.name == "aten::rand":
            self._uniform.add(storage_of(result))
        if was_followed:
            self._state = self.drawn = _generator_state(torch)
        return result

    @staticmethod
    def _is_filled(func, tensor):
        """Is all of its memory overwritten?"""
        return func._schema.name in _FILL and tensor.is_contiguous() and (
            tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes())

    def follows_draws(self):
        """Is each random number noted that was drawn on the CPU since the run began?"""
        return self.drawn is not None and _generator_state(self.torch) == self.drawn

    def _is_device(self, device):
        return device is not None and self.torch.device(device).type == "cuda"

    def _is_cpu(self, value):
        return isinstance(value, self.torch.Tensor) and value.device.type == "cpu" and (
            value.layout is self.torch.strided)

    def _hangs(self, tensor):
        if not self._is_cpu(tensor) or storage_of(tensor) not in self._known:
            return False
        if self._is_behind:  # calls compute nothing on the CPU between the two passes
            self.want(self._inputs([tensor]), VALUE)
        return True

    def _inputs(self, tensors):
        return frozenset().union(*(self._known[storage_of(t)][1] for t in tensors))

    def _note_read(self, tensor):
        at = storage_of(tensor)
        self.met.setdefault(at, tensor)
        if at not in self._values:
            self.read.setdefault(at, tensor)

    def _meet(self, result):
        for tensor in tensors_in(self.torch, (result,), {}):
            if self._is_cpu(tensor):
                self.met.setdefault(storage_of(tensor), tensor)
        return result

    def raises(self, error):
        self.error = self.error or error
        raise error

    def want(self, which, level):
        if DRAWN in which:
            self.raises(Refused("it reads random numbers that are drawn on the CPU. Draw them on the GPU, or "
                                "pass them as tensors"))
        self.raises(Wanted(which, level))

    def _check_written(self, func, args, hanging):
        """What an operator on the CPU writes to has to be the run's own."""
        if not func._schema.is_mutable:
            return
        for argument, value in zip(func._schema.arguments, args):
            if argument.alias_info is None or not argument.alias_info.is_write or not self._is_cpu(value):
                continue
            at = storage_of(value)
            self._uniform.discard(at)
            if at in self._values or self._known.get(at, (self._count, ()))[0] < len(self.given):
                self.raises(Refused("it writes to an argument on the CPU, which replays would not. Write to "
                                    "a copy of it"))
            if at in self.earlier:
                self.raises(Refused("it writes to a tensor on the CPU that lies outside of the call, which "
                                    "replays would not"))
            if hanging and at not in self._known:
                self.want(self._inputs(hanging), VALUE)
            self.met.setdefault(at, value)

    def _compute(self, func, args, kwargs, hanging, draws=False):
        """Runs an operator on the CPU that replays repeat."""
        torch = self.torch
        result = func(*args, **kwargs)
        inputs = self._inputs(hanging) | ({DRAWN} if draws else frozenset())
        made = result if isinstance(result, (list, tuple)) else [result]
        is_repeated = func.namespace == "aten" and (
            draws or torch.Tag.nondeterministic_seeded not in func.tags)
        if not is_repeated or not all(self._is_cpu(t) for t in made):
            self.want(inputs, VALUE)
        new = [t for t in made if storage_of(t) not in self._known]
        if not new and not func._schema.is_mutable:
            return result  # a view
        if any(storage_of(t) in self.met for t in new):
            self.want(inputs, VALUE)  # a view of what hangs on nothing
        self.steps.append((func, map_tensors(torch, args, self._reference),
                           {k: map_tensors(torch, v, self._reference) for k, v in kwargs.items()},
                           tuple(self._number(t, inputs) for t in made)))
        return result

    def _reference(self, tensor):
        if self._hangs(tensor):
            return View(self._known[storage_of(tensor)][0], tensor)
        return tensor.clone()

    def _number(self, tensor, inputs):
        at = storage_of(tensor)
        if at not in self._known:
            self._known[at] = (self._count, inputs)
            self._count += 1
            self.met[at] = tensor
        return self._known[at][0]

    # ---- Work of the device with operands on the CPU ----

    def _with_operands(self, name, args, tensors):
        """The arguments of an operator of the device: indices on the device, and 0-dimensional operands
        that lie on the CPU as they are."""
        if name in _INDEXING and args[0].is_cuda:
            args = (args[0], self._indices_on_device(args[1], name == "aten::index"), *args[2:])
            if len(args) > 2 and self._is_cpu(args[2]) and args[2].dim() == 0:
                args = (*args[:2], self._on_device(args[2]), *args[3:])
        elif name in _TAKES_SCALARS:
            args = map_tensors(self.torch, args,
                               lambda t: self._on_device(t) if self._is_cpu(t) and t.dim() == 0 else t)
        for tensor in tensors_in(self.torch, args, {}):
            if self._hangs(tensor):
                self._operand(tensor)
            elif self._is_cpu(tensor):
                self._note_read(tensor)
        return args

    def _operand(self, tensor):
        """A kernel's parameters hold it."""
        number, inputs = self._known[storage_of(tensor)]
        torch = self.torch
        followed = number < len(self.given) and is_number(torch, self.given[number]) and (
            tensor.dtype == self.given[number].dtype)
        if not followed or not self.may_number:
            self.want(inputs, VALUE)
        if self.levels[number] < NUMBER:
            self.want(inputs, NUMBER)
        self.numbers.add(number)

    def _mask_of(self, index):
        """What is known of a mask on the device: it on the CPU, or itself."""
        is_mask = index is not None and index.is_cuda and index.dtype in (self.torch.bool, self.torch.uint8)
        if self.follower is None or not is_mask:
            return index
        try:
            known = self.follower.value(index)
        except _C.Error as error:
            self.raises(error)
        return index if known is None else known

    def _indices_on_device(self, indices, is_read):
        found = []
        for index in indices:
            index = self._mask_of(index) if is_read else index  # other operators take masks as they are
            if not self._is_cpu(index):
                found.append(index)
            elif index.dtype not in (self.torch.bool, self.torch.uint8):
                found.append(self._on_device(index))
            elif self._hangs(index):
                self.want(self._inputs([index]), VALUE)  # how many are true decides the result's shape
            else:
                found += map(self._on_device, index.nonzero().unbind(1))
        return type(indices)(found)

    # ---- Moves ----

    def _moved(self, tensor, kwargs):
        """A copy of it on the device."""
        torch = self.torch
        dtype = kwargs.get("dtype") or tensor.dtype
        if dtype != tensor.dtype:
            cast = torch.ops.aten._to_copy.default
            tensor = self._compute(cast, (tensor,), {"dtype": dtype}, [tensor]) if self._hangs(tensor) \
                else cast(tensor, dtype=dtype)
        memory_format = kwargs.get("memory_format") or torch.preserve_format
        made = self._on_device(tensor)
        like = torch.empty_like(tensor, memory_format=memory_format)
        if like.stride() == made.stride():
            return made
        return torch.empty_strided(like.shape, like.stride(), dtype=dtype, device=self.device).copy_(made)

    def _on_device(self, tensor):
        """Its value, as fresh contiguous memory of the device."""
        torch = self.torch
        nbytes = tensor.numel() * tensor.element_size()
        hangs = self._hangs(tensor)
        if nbytes == 0:
            return torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device)
        offset = self._place_computed(tensor, nbytes) if hangs else self._place_constant(tensor, nbytes)
        room = self.packed if hangs else self.constants_in
        if room is None or offset + nbytes > room.numel():  # the run goes on, to tell how much it takes
            return torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device)
        found = room[offset:offset + nbytes]
        wide = found.view(torch.int64) if nbytes % 8 == 0 else found
        _C.clean_stack(None)
        made = torch.bitwise_or(wide, 0)  # by a kernel, as copies between kinds of memory stay where they are
        if self.follower is not None and not hangs:
            self.follower.bring(made, tensor)
        return made.view(tensor.dtype).view(tensor.shape)

    def _place_computed(self, tensor, nbytes):
        offset = self.used[1]
        self.used[1] = _aligned(offset + nbytes)
        self.steps.append(Emitted(offset, nbytes, tensor, View(self._known[storage_of(tensor)][0], tensor)))
        return offset

    def _place_constant(self, tensor, nbytes):
        """Where it is kept; those of the same bytes are one."""
        found = contents(self.torch, tensor)
        offset = self._same.get(found)
        if offset is None:
            offset = self._same[found] = self.used[0]
            self.used[0] = _aligned(offset + nbytes)
        self.constants.append((offset, found))
        self._note_read(tensor)
        return offset

    # ---- Behind the run ----

    def check_result(self, leaves):
        """No replay would make such results."""
        for leaf in leaves:
            if self._is_cpu(leaf) and (self._hangs(leaf) or storage_of(leaf) in self._values):
                self.raises(Refused("it returns a tensor on the CPU that hangs on its arguments, or on "
                                    "random numbers. Compute it outside of the call"))

    # ---- What is asked of a function ----

    def call(self, func, args, kwargs):
        """In the place of a function of PyTorch's."""
        torch = self.torch
        if self.is_busy:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if func in makers(torch):
            return self._make(func, args, kwargs)
        if name in ("__getitem__", "__setitem__") and isinstance(args[0], torch.Tensor) and args[0].is_cuda:
            args = (args[0], _with_indices(torch, args[1]), *args[2:])
        if name in _UNSEEN:
            for tensor in tensors_in(torch, args[:1], {}):
                if self._hangs(tensor):
                    self.want(self._inputs([tensor]), VALUE)
                if self.follower is not None and name in _ADDRESSES:
                    self.follower.lend(tensor)
        return func(*args, **kwargs)

    def _make(self, func, args, kwargs):
        """torch.tensor and its like: made on the CPU, and moved."""
        torch = self.torch
        at = int(func is torch.Tensor.new_tensor)
        found = tensors_in(torch, args[at:], kwargs)
        hanging = [t for t in found if self._hangs(t)]
        data = args[at] if len(args) > at else kwargs.get("data", kwargs.get("obj"))
        if hanging and not isinstance(data, torch.Tensor):
            self.want(self._inputs(hanging), VALUE)  # they are asked for their numbers, one by one
        device = kwargs.get("device")
        if device is None and at:
            device = args[0].device
        elif device is None and not isinstance(data, torch.Tensor):
            device = torch.get_default_device()
        device = torch.device("cuda", device) if isinstance(device, int) else device and torch.device(device)
        if device is None or device.type != "cuda" or any(t.is_cuda for t in found):
            return func(*args, **kwargs)
        kwargs = dict(kwargs, device="cpu")
        wants = kwargs.pop("requires_grad", False)
        made = func(*args, **kwargs).to(device)
        return made.requires_grad_() if wants else made


def _asks_no_value(func):
    """Does an operator ask for a tensor's form alone, or give a view? C++ asks for the device, strides and such
    where it takes no error."""
    name = func._schema.name
    return func.namespace == "prim" or name in _OF_FORM or name.startswith("aten::sym_")


class Compiled(Run):
    """A run of which torch.compile runs parts. Of what those launch no mode is told. So numbers that are drawn on
    the CPU have no value here: a comparison that all of them answer alike is answered, and whatever else asks for
    one raises. Calls draw them again."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._real = {}  # by the storage of what stands in: what was drawn
        self._mode, self._kind, self._forbid = torch_private.fake_tensors()

    def _dispatch(self, func, args, kwargs):
        if self._is_behind:
            return func(*args, **kwargs)
        stands_in = next((t for t in tensors_in(self.torch, args, kwargs) if isinstance(t, self._kind)), None)
        if stands_in is not None:
            if _asks_no_value(func):
                return func(*args, **kwargs)
            real = self._real.get(storage_of(stands_in))
            if real is None or stands_in is not args[0] or not self._is_decided(func._schema.name, args):
                self.want({DRAWN}, VALUE)
            return func(real, *args[1:], **kwargs)
        if func._schema.name != "aten::rand" or self._is_device(kwargs.get("device")):
            return func(*args, **kwargs)
        real = self._draw(func, args, kwargs, ())
        made = self._mode().from_tensor(real)
        self._forbid(made)  # compiled code takes its address, and reads
        at = storage_of(made)
        self._real[at], self._known[at] = real, self._known[storage_of(real)]
        self._uniform.add(at)
        self.met[at] = made
        return made


def _aligned(nbytes):
    return (nbytes + ALIGN - 1) // ALIGN * ALIGN


def is_number(torch, tensor):
    """Can kernels' parameters hold such an argument, so that replays are told another?"""
    return tensor.numel() == 1 and tensor.dtype in (torch.float32, torch.float64)


def makers(torch):
    return (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)


def _backward_passes(torch):
    """What calls functions of the program's; by what does the same and asks no mode."""
    return {func: _unasked(func) for func in (torch.Tensor.backward, torch.autograd.backward,
                                              torch.autograd.grad)}


def _unasked(func):
    asks_no_mode = dict.fromkeys(("has_torch_function", "has_torch_function_unary"), lambda *_: False)
    made = types.FunctionType(func.__code__, {**func.__globals__, **asks_no_mode}, func.__name__,
                              func.__defaults__, func.__closure__)
    made.__kwdefaults__ = func.__kwdefaults__
    return made


def _with_indices(torch, index):
    """An index, with tensors on the CPU for lists of numbers, which PyTorch would make on the device."""
    if isinstance(index, list) and index and all(type(i) in (int, bool) for i in index):
        return torch.tensor(index)
    if type(index) is tuple:
        return tuple(_with_indices(torch, one) for one in index)
    return index


_classes: dict[types.ModuleType, tuple[type, ...]] = {}


def follows_compiled(torch):
    """Can a mode stay on while compiled code runs? Else it would run as if it was not compiled."""
    return hasattr(torch_private.of(torch).dispatch_mode, "ignore_compile_internals") and (
        torch_private.fake_tensors() is not None)


def modes(torch, dispatch_mode, run):
    """The modes of a run, as context managers to be entered in their order. Of a compiled one none answers for
    functions: compiled code is of the modes for functions that it was compiled under."""
    if torch not in _classes:
        from torch.overrides import TorchFunctionMode
        passes = _backward_passes(torch)

        class Functions(TorchFunctionMode):
            def __init__(self, run):
                super().__init__()
                self.run = run

            def __torch_function__(self, func, types, args=(), kwargs=None):
                if func in passes:
                    with self:  # here it is off, and backward functions are asked too
                        return passes[func](*args, **kwargs or {})
                return self.run.call(func, args, kwargs or {})

        class Operators(dispatch_mode):
            def __init__(self, run):
                super().__init__()
                self.run = run

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                return self.run.dispatch(func, args, kwargs or {})

        class AroundCompiled(Operators):
            @classmethod
            def ignore_compile_internals(cls):
                return True

        _classes[torch] = (Functions, Operators, AroundCompiled)
    functions, operators, around_compiled = _classes[torch]
    return [around_compiled(run)] if isinstance(run, Compiled) else [functions(run), operators(run)]


_used: set[types.ModuleType] = set()


def use_once(torch, dispatch_mode):
    """PyTorch imports modules where a mode is first used, which may do what a capture refuses."""
    if torch in _used:
        return
    _used.add(torch)
    run = Run(torch, torch.device("cpu"), [torch.ones(())], [MOVED], None, None, {}, False)
    functions, operators = modes(torch, dispatch_mode, run)
    with functions, operators:
        (torch.tensor([1.0, 2.0]) * run.given[0] + 1).clone().to(torch.float64).sum()
