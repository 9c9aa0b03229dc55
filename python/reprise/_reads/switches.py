# SPDX-License-Identifier: MIT
"""PyTorch's switches, which a captured graph has been decided by: TF32 and matmul precision, deterministic
algorithms, cuDNN, back ends of attention and linear algebra, the default dtype, modes on its stacks.

Each is read here for the key of a call, and in csrc/reads/switches.c by each call that takes the fast path.
There it is the function of PyTorch's own library that is asked; what that answers is compared with
Python's answer first, and what differs or is not there is asked through Python.
"""

from .. import _C
from .._base.interrupts import let_through
from .._base.torch_private import library as path_of, native

_CPU, _C10 = "libtorch_cpu.so", "libc10.so"
_PRECISIONS = ("none", "ieee", "tf32", "bf16")

# What Python asks of PyTorch's extension (torch_private.native); the library that answers, and how it is asked
# itself: symbol, two arguments, bytes of the answer.
_FLAGS = tuple((name, _CPU, f"_ZNK2at7Context{len(symbol)}{symbol}Ev", 0, 0, 1) for name, symbol in (
    ("_get_cudnn_enabled", "userEnabledCuDNN"),
    ("_get_cudnn_benchmark", "benchmarkCuDNN"),
    ("_get_cudnn_deterministic", "deterministicCuDNN"),
    ("_get_deterministic_algorithms", "deterministicAlgorithms"),
    ("_get_deterministic_algorithms_warn_only", "deterministicAlgorithmsWarnOnly"),
    ("_get_deterministic_fill_uninitialized_memory", "deterministicFillUninitializedMemory"),
    ("_get_flash_sdp_enabled", "userEnabledFlashSDP"),
    ("_get_fa3_sdp_enabled", "userEnabledFA3SDP"),
    ("_get_mem_efficient_sdp_enabled", "userEnabledMemEfficientSDP"),
    ("_get_math_sdp_enabled", "userEnabledMathSDP"),
    ("_get_cudnn_sdp_enabled", "userEnabledCuDNNSDP"),
    ("_get_overrideable_sdp_enabled", "userEnabledOverrideableSDP"),
    ("_get_math_sdp_allow_fp16_bf16_reduction", "allowFP16BF16ReductionMathSDP"),
    ("_get_cublas_allow_fp16_accumulation", "allowFP16AccumulationCuBLAS"),
))
_ENUMS = (
    ("_get_linalg_preferred_backend", _CPU, "_ZNK2at7Context22linalgPreferredBackendEv", 0, 0, 1),
    ("_get_blas_preferred_backend", _CPU, "_ZN2at7Context20blasPreferredBackendEv", 0, 0, 1),
)
# Their answers are an int or a pair of flags, which only has to stay.
_OTHERS = (
    ("_get_cublas_allow_fp16_reduced_precision_reduction", _CPU,
     "_ZNK2at7Context24allowFP16ReductionCuBLASEv", 0, 0, 1),
    ("_get_cublas_allow_bf16_reduced_precision_reduction", _CPU,
     "_ZNK2at7Context24allowBF16ReductionCuBLASEv", 0, 0, 1),
)
_STACKS = (("_len_torch_function_stack", _CPU, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", 0, 0, 8),
           ("_len_torch_dispatch_stack", _C10, "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv", 0, 0, 8))
_COMPILERS = ("torch._functorch.", "torch._inductor.", "torch._dynamo.")  # modules of modes
_PRECISION = "_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE"
# Of autocast on the CPU, which programs ask for on their way to the device's, by functions of torch; free functions
# of a kind of device, 0.
_AUTOCAST_TYPE = ("_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", 1, 0, 1, True)  # of the device's
_CPU_AUTOCAST = (("is_autocast_enabled", "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", 0, 0, 1, True),
                 ("get_autocast_dtype", "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", 0, 0, 1, True))
_FAST_PATH = "_is_fastpath_enabled"
_DTYPE = "_ZN3c1031get_default_dtype_as_scalartypeEv"
# Of the precision that PyTorch goes by: back end, operations, the numbers of these, and whether Python is asked where
# the library says something else.
_PRECISIONS_OF = (("cuda", "conv", 1, 1, True), ("cuda", "rnn", 1, 2, True), ("cuda", "matmul", 1, 3, True),
                  ("generic", "all", 0, 0, False), ("cuda", "all", 1, 0, False), ("mkldnn", "matmul", 2, 3, False))
# Only for keys: what these say is in others that each call asks for. They raise where the older and
# the newer way to set TF32 were mixed.
_SLOW = ("_get_cublas_allow_tf32", "_get_cudnn_allow_tf32", "_get_float32_matmul_precision",
         "_get_sdp_priority_order", "_cuda_get_cudnn_benchmark_limit", "_get_rocm_fa_preferred_backend")


def _as_int(value):
    """An enum's number, a flag's; None: it is none."""
    try:
        return int(getattr(value, "value", value))
    except (TypeError, ValueError):
        return None


class Switches:
    """Those of a PyTorch: keys(), and what the fast path asks."""

    def __init__(self, torch):
        self.torch = torch
        self.asked = []  # by Python, in each call of the fast path
        self.getters = [torch.get_default_dtype]
        self.found = 0
        self.told = set()  # names of functions of torch whose answers on the CPU are among these
        self._learn(torch)
        self.getters += [_guarded(get) for get in (native(torch, name) for name in _SLOW) if get]

    def _learn(self, torch):
        stacks = [native(torch, name) for name in (
            "_len_torch_function_stack", "_get_function_stack_at", "_len_torch_dispatch_stack",
            "_get_dispatch_stack_at")]
        self.stacks = None if None in stacks else stacks
        _C.learn_context(path_of(torch, _CPU))
        for name, library, *question in _FLAGS + _ENUMS + _OTHERS + _STACKS:
            get = native(torch, name)
            if get is None:
                continue
            if not name.startswith("_len"):
                self.getters.append(get)
            is_learned = self._ask(get, path_of(torch, library), question, (name, *question) not in [
                (n, *q) for n, _, *q in _OTHERS])
            if name.startswith("_len") and is_learned:
                _C.ask_modes(self._modes)
            elif name.startswith("_len"):
                self.asked.append(self._modes)
        precision = native(torch, "_get_fp32_precision_getter")
        for backend, operation, *numbers, asks in _PRECISIONS_OF if precision else ():
            self._learn_precision(_guarded(lambda named=(backend, operation): precision(*named)), path_of(torch, _CPU),
                                  numbers, asks)
        self._ask(lambda: _number_of(torch, torch.get_default_dtype()), path_of(torch, _C10),
                  (_DTYPE, 0, 0, 1), True)
        if hasattr(torch, "get_autocast_dtype"):
            def cast():
                return _number_of(torch, torch.get_autocast_dtype("cuda"))
            self.getters.append(cast)
            self._ask(cast, path_of(torch, _CPU), _AUTOCAST_TYPE, True)
        fast_path = getattr(getattr(torch.backends, "mha", None), "__dict__", None)
        if fast_path is not None and _FAST_PATH in fast_path:  # of attention
            self.getters.append(lambda: fast_path.get(_FAST_PATH))
            _C.ask_global(fast_path, _FAST_PATH)
        for name, *question in _CPU_AUTOCAST:
            self._learn_autocast(getattr(torch, name, None), name, path_of(torch, _CPU), question)
        order = native(torch, "_get_sdp_priority_order")
        if order is not None and not _C.learn_order(list(order())):
            self.asked.append(order)
        _C.ask_switches(tuple(self.asked))

    def _learn_precision(self, get, library, numbers, asks):
        self.getters.append(get)
        said = _C.learn_switch(library, _PRECISION, *numbers, 1)
        if said is not None and said < len(_PRECISIONS) and _PRECISIONS[said] == get():
            self.found += 1
            return
        if said is not None:
            _C.forget_switch()
        if asks:
            self.asked.append(get)

    def _learn_autocast(self, ask, name, library, question):
        """What the library does not say as Python does is left to callables that ask for it."""
        if ask is None:
            return
        answer, said = ask("cpu"), _C.learn_switch(library, *question)
        if said is not None and said == (_number_of(self.torch, answer) if name.startswith("get") else answer):
            self.found += 1
            self.told.add(name)
            self.getters.append(lambda: ask("cpu"))
        elif said is not None:
            _C.forget_switch()

    def _ask(self, get, library, question, compared):
        """The library is asked from now on if it says the same as Python, and Python otherwise. Is it the library?"""
        said = _C.learn_switch(library, *question)
        if said is not None and (not compared or said == _as_int(get())):
            self.found += 1
            return True
        if said is not None:
            _C.forget_switch()
        self.asked.append(get)
        return False

    def key(self):
        """How all stand, as a part of a call's key."""
        return (*[get() for get in self.getters], self._modes())

    def sees_operators(self):
        """Is a mode on the stacks which sees each operator of an eager call? One that a compiler pushes looks at what it
        compiled alone."""
        return any(type(key) is _ModeKey and not type(key.mode).__module__.startswith(_COMPILERS)
                   for key in self._modes() or ())

    def _modes(self):
        """What is on the stacks of PyTorch's modes, which see each operator of an eager call."""
        if self.stacks is None:
            return None
        functions, function_at, dispatchers, dispatcher_at = self.stacks
        count, others = functions(), dispatchers()
        if not count and not others:
            return None
        found = [function_at(i) for i in range(count)] + [dispatcher_at(i) for i in range(others)]
        return tuple(_mode_key(mode) for mode in found)


class _ModeKey:
    """A mode by its identity, which lives as long as the key."""

    __slots__ = ("mode",)

    def __init__(self, mode):
        self.mode = mode

    def __eq__(self, other):
        return isinstance(other, _ModeKey) and other.mode is self.mode

    def __hash__(self):
        return id(self.mode)


def _mode_key(mode):
    device = getattr(mode, "device", None)  # torch.set_default_device makes a new one each time
    if type(mode).__name__ == "DeviceContext" and device is not None:
        return str(device)
    return _ModeKey(mode)


def _guarded(get):
    def ask():
        try:
            value = get()
        except Exception as error:  # PyTorch's, of mixed ways to set it
            let_through(error)
            return type(error).__name__
        return tuple(value) if isinstance(value, list) else value
    return ask


def _number_of(torch, dtype):
    """PyTorch's number of a floating dtype."""
    return {torch.float16: 5, torch.float32: 6, torch.float64: 7, torch.bfloat16: 15}.get(dtype)


_found = None


def of(torch):
    """The switches of this PyTorch, learned once."""
    global _found
    if _found is None or _found.torch is not torch:
        _found = Switches(torch)
    return _found
