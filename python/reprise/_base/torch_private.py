# SPDX-License-Identifier: MIT
"""What the package uses of PyTorch that PyTorch does not promise to keep, all in this module.

Each name is looked up once, when a feature first needs PyTorch. A name that is gone turns off the
feature that it is for: using that raises Missing, whose text is one sentence, and missing() lists what is
off, for `reprise doctor`. Names that have a promised twin fall back to it, and turn nothing off.

What cannot be told from a name (how captures and generators are tied to each other) goes by the version
up to the newest that was tested, and is proved before it is relied on: _capture/states.py proves how a generator
counts, _capture/draws.py finds where a captured kernel reads its seed, _call/address.py learns where tensors keep
what the fast path reads. A newer PyTorch is taken for the newest that was tested.
"""

import contextlib
import functools
import importlib
import inspect
import os
import sys
import threading

from .. import _C
from .versions import NEWEST, numbers

CAPTURES = "graphs"
OWN_MEMORY = "graphs without reprise.install()"
PAIRS = "forward and backward as two graphs"
INSTALL = "reprise.install()"
STATISTICS = "memory statistics under reprise.install()"
STACKS = "stacks in memory histories under reprise.install()"
GLOO = "naming collectives of gloo that cannot be captured"
TWICE = "the error for gradients that are differentiated twice"
RECORDING = "reprise.record() without reprise.install()"
NCCL = "process groups of NCCL under reprise.install()"
COMPILED = "torch.compile through graphs of Reprise"
PARAMETRIZED = "graphs within torch.nn.utils.parametrize.cached()"

# Attribute here, its place below torch, the feature that it is for.
_NAMES = (
    ("storage_at", "_C._construct_storage_from_data_pointer", CAPTURES),
    ("tensor_in", "_C._construct_CUDA_Tensor_From_Storage_And_Metadata", CAPTURES),
    ("storage_users", "_C._storage_Use_Count", PAIRS),
    ("clear_workspaces", "_C._cuda_clearCublasWorkspaces", CAPTURES),
    ("begin_pool", "_C._cuda_beginAllocateToPool", OWN_MEMORY),
    ("begin_pool_here", "_C._cuda_beginAllocateCurrentThreadToPool", OWN_MEMORY),
    ("end_pool", "_C._cuda_endAllocateToPool", OWN_MEMORY),
    ("release_pool", "_C._cuda_releasePool", OWN_MEMORY),
    ("custom_allocator", "_C._cuda_customAllocator", OWN_MEMORY),
    ("change_allocator", "_C._cuda_changeCurrentAllocator", INSTALL),
    ("delayed_error", "_C._functions.DelayedError", TWICE),
)

# What only reprise.record uses, likewise.
_RECORDING_NAMES = (
    ("history_is_on", "_C._cuda_isHistoryEnabled", RECORDING),
    ("keep_history", "cuda.memory._record_memory_history", RECORDING),
    ("history", "cuda.memory._snapshot", RECORDING),
    ("dispatch_mode", "utils._python_dispatch.TorchDispatchMode", RECORDING),
)

# What only memory histories under reprise.install() use, likewise.
_HISTORY_NAMES = (
    ("gather_traceback", "_C._profiler.gather_traceback", STACKS),
    ("symbolize_tracebacks", "_C._profiler.symbolize_tracebacks", STACKS),
)

# What only torch.compile(backend="reprise") uses, likewise.
_COMPILE_NAMES = (
    ("compile_context", "_guards.CompileContext", COMPILED),
)

# Where Inductor asks for graphs, a module that takes a second to import, and what of it Reprise answers.
TREES = "torch._inductor.cudagraph_trees"
TREES_NAMES = ("cudagraphify_impl", "get_manager")

# Methods of what custom_allocator makes, and the hook (csrc/alloc/hooks.h) that each is given.
ALLOCATOR_HOOKS = (
    ("set_reset_fn", "reset"), ("set_memory_fraction_fn", "fraction"), ("set_base_alloc_fn", "base"),
    ("set_record_stream_fn", "use"), ("set_begin_allocate_to_pool", "begin_pool"),
    ("set_end_allocate_to_pool_fn", "end_pool"), ("set_release_pool", "release_pool"),
)

# What PyTorch asks for statistics, below torch._C; _alloc/install.py answers them.
STATISTICS_NAMES = (
    "_cuda_memoryStats", "_cuda_resetPeakMemoryStats", "_cuda_resetAccumulatedMemoryStats",
    "_cuda_setMemoryFraction", "_cuda_getMemoryFraction",
)
# How tensors get to other processes: methods of torch.UntypedStorage. _alloc/sharing.py answers them.
SHARING_NAMES = ("_share_cuda_", "_new_shared_cuda", "_release_ipc_counter_cuda")
# What attaches a function that is told where memory is short, and what switches caching off.
OBSERVER_NAMES = ("_cuda_attach_out_of_memory_observer", "_cuda_cudaCachingAllocator_enable")
# What PyTorch records and shows histories with; _alloc/history.py answers them.
HISTORY_NAMES = (
    "_cuda_record_memory_history", "_cuda_record_memory_history_legacy", "_cuda_isHistoryEnabled",
    "_cuda_memorySnapshot", "_cuda_setMemoryMetadata", "_cuda_getMemoryMetadata",
)
# What begins the use of a memory pool, of each kind; last, what ends it and what lets the pool go.
POOL_NAMES = ("_cuda_beginAllocateCurrentThreadToPool", "_cuda_endAllocateToPool", "_cuda_releasePool")
# What the allocators are that a memory pool may have.
ALLOCATOR_KIND = "_cuda_CUDAAllocator"
# What gives back what is cached.
EMPTY_NAME = "_cuda_emptyCache"
# What compares the blocks of a pool that are alive with those that should be, and what puts them back.
LIVE_NAMES = ("_cuda_checkPoolLiveAllocations", "_cuda_getCheckpointState", "_cuda_setCheckpointPoolState")
# What changes the allocator's settings while the program runs.
SETTINGS_NAME = "_accelerator_setAllocatorSettings"
# What switches the GPU trace on, and whose callbacks are called with addresses of memory.
TRACE_NAME = "_activate_gpu_trace"
_TRACED = "torch.cuda._gpu_trace", ("MemoryAllocationCallbacks", "MemoryDeallocationCallbacks")
# What profilers begin and end with: a module, and its functions.
_PROFILERS = (("autograd.profiler", "_enable_profiler", "_disable_profiler"),
              ("autograd.profiler_legacy", "_enable_profiler_legacy", "_disable_profiler_legacy"))
# Statistics once more, for torch.accelerator, which later versions have more of.
ACCELERATOR_NAMES = (
    "_accelerator_isAllocatorInitialized", "_accelerator_emptyCache", "_accelerator_getDeviceStats",
    "_accelerator_resetPeakStats", "_accelerator_resetAccumulatedStats",
)
# What register_hook() puts hooks into.
_HOOKS = "_backward_hooks"
GRADIENT_HOOKS = (_HOOKS, "_post_accumulate_grad_hooks")  # of tensors


class Missing(_C.Error):
    """PyTorch lacks what a feature needs; the text is a sentence."""


def _find(torch, path):
    """What lies below torch at a dotted path; None where it does not."""
    found = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _tried_hooks(torch, ignores_tracing):
    """Says whether there are hooks by forbidding them, which is refused then; None: there are none."""
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks("reprise asks"):
            return None
    except RuntimeError:
        return True


def _lie_at(tensors, addresses, indices):
    return all(tensors[i].data_ptr() == addresses[i] for i in indices)


def library(torch, name):
    """The path of a library of PyTorch's."""
    return os.path.join(os.path.dirname(torch.__file__), "lib", name)


def native(torch, name):
    """A function of PyTorch's extension, or None."""
    return _find(torch, f"_C.{name}")


def put_native(torch, name, function):
    """Puts a function in the place of one of PyTorch's extension."""
    setattr(torch._C, name, function)


def trace_registries():
    """Whose callbacks are called for an allocation and for a free; None: PyTorch has them no more."""
    path, names = _TRACED
    try:
        module = importlib.import_module(path)
    except ImportError:
        return None
    found = [getattr(module, name, None) for name in names]
    return None if None in found else found


def profilers(torch):
    """Modules with the names of their functions that begin and end a profiler."""
    found = [(_find(torch, path), names) for path, *names in _PROFILERS]
    return [(module, names) for module, names in found if all(hasattr(module, name) for name in names)]


class Private:
    """The names, each an attribute; None where PyTorch has it no more."""

    def __init__(self, torch):
        self.torch = torch
        self.version = version = numbers(torch.__version__) or NEWEST
        self.off = {}  # by feature: a sentence
        for name, path, feature in _NAMES + _RECORDING_NAMES + _HISTORY_NAMES + _COMPILE_NAMES:
            found = _find(torch, path)
            setattr(self, name, found)
            if found is None:
                self._lacks(feature, f"torch.{path}")
        self._find_allocator()
        self._find_streams()
        self._find_nccl()
        for name in STATISTICS_NAMES + HISTORY_NAMES[:1] + ("_cuda_memorySnapshot",):
            if _find(torch, f"_C.{name}") is None:
                self._lacks(STATISTICS, f"torch._C.{name}")
        # Whose cached() is told to keep nothing; None where it can't be told, or is not there.
        self.parametrize = _find(torch, "nn.utils.parametrize")
        self.parametrized = None  # of _parametrized
        if self.parametrize is not None and not hasattr(self.parametrize, "_cache_enabled"):
            self.parametrize = None
            self._lacks(PARAMETRIZED, "torch.nn.utils.parametrize._cache_enabled")
        # What compiled programs make tensors with: faster, and needed by nothing.
        self.quick_empty = _find(torch, "_C._dynamo.guards._empty_strided_cuda")
        # The hooks that take what autograd saves, of hooks_of_saved(False); None: there are none. Without the function
        # it is tried.
        self.hooks_of_saved = _find(torch, "_C._autograd._top_saved_tensors_default_hooks") or (
            functools.partial(_tried_hooks, torch))
        # Have the dimensions of a tensor names? From 2.15 on none have.
        self.has_names = _find(torch, "Tensor.has_names") or (lambda tensor: False)
        # Are functions transformed that are called now (torch.func)? And what lets go of tensors whose
        # transformation is over.
        self.is_transforming = _find(torch, "_C._are_functorch_transforms_active")
        self.unwrapped = _find(torch, "_C._functorch.unwrap_if_dead")
        # Is a tensor many at once, which lie nowhere (vmap, is_grads_batched)?
        self.batched = [ask for ask in (_find(torch, f"_C._functorch.is_{kind}batchedtensor") for kind in ("", "legacy_"))
                        if ask is not None]
        self.forward_levels = _find(torch, "autograd.forward_ad")
        # Do the tensors of a list with these indices lie where another list says? One call for
        # hundreds of them.
        self.lie_at = _find(torch, "_C._tensors_data_ptrs_at_indices_equal") or _lie_at
        # PyTorch 2.12 and later can drop the workspaces of one stream; before, they are taken out of its maps.
        self.drops_by_stream = self._learns_workspaces(by_maps=False)
        self.keeps_in_maps = version < (2, 12) and self._learns_workspaces(by_maps=True)
        # Since 2.14 histories may be of pinned memory too.
        self.history_of_host = "record_pinned_host_memory" in self._signature("_record_memory_history_impl")
        # From 2.12 on a generator keeps what it counts for each capture that PyTorch began; before it
        # counts wherever it draws, for as long as a graph that it is registered with captures.
        self.begins_captures = version >= (2, 12)
        # Until 2.13 a graph has to be told of generators beside the device's; since then it warns.
        self.registers_generators = version < (2, 14)
        # 2.9 does not let a MemPool go that has another use, and 2.10 was not asked.
        self.pools_have_one_use = version < (2, 11)
        # Since 2.14 reset() undoes all of a capture that failed to end.
        self.resets_failed = version >= (2, 14)
        # Since 2.14 tables of tensors, which are parameters of kernels, lie on the heap.
        _C.tables_lie_on_heap(version >= (2, 14))
        # 2.13 tells the allocator that a capture is over before it ends it.
        self.ends_pool_first = (2, 13) <= version < (2, 14)

    def _lacks(self, feature, name):
        self.off.setdefault(feature, f"{feature}: off, as PyTorch {self.torch.__version__} has no {name}")

    def _learns_workspaces(self, by_maps):
        locks_maps = self.version >= (2, 10)
        return hasattr(self.torch, "__file__") and _C.learn_workspaces(
            library(self.torch, "libtorch_cuda.so"), by_maps, locks_maps)

    def _signature(self, name):
        """Of a function of torch.cuda.memory, less the device: names and defaults."""
        function = _find(self.torch, f"cuda.memory.{name}")
        if not inspect.isfunction(function):
            return {}
        found = inspect.signature(function).parameters
        return {name: parameter.default for name, parameter in found.items() if name != "device"}

    def further_of_history(self, name, known, values):
        """Which parameters behind those that are known have another value than their default?"""
        behind = list(self._signature(name).items())[known:]
        return [name for (name, default), value in zip(behind, values) if value != default]

    def _find_allocator(self):
        """An allocator that is made and not put in place tells what hooks it has."""
        if self.custom_allocator is None:
            self._lacks(INSTALL, "torch._C._cuda_customAllocator")
            return
        hooks = _C.hooks()
        made = self.custom_allocator(hooks["alloc"], hooks["free"])
        for method, _ in ALLOCATOR_HOOKS:
            if not hasattr(made, method):
                self._lacks(INSTALL, f"torch.cuda.memory.CUDAPluggableAllocator.{method}")

    def _find_streams(self):
        """PyTorch's own contexts look for the devices there are at each entry, which a capture of few
        kernels would spend a tenth of its time on."""
        torch = self.torch
        raw = _find(torch, "_C._cuda_getCurrentRawStream")
        self.raw_stream = raw or (lambda index: torch.cuda.current_stream(index).cuda_stream)
        self.set_stream = _find(torch, "_C._cuda_setStream")
        self.get_stream = _find(torch, "_C._cuda_getCurrentStream")
        if self.get_stream is None:
            self.set_stream = None
        self.set_any_stream = _find(torch, "_C._accelerator_setStream")  # of torch.accelerator; None: it has none
        self.synchronize = _find(torch, "_C._cuda_synchronize") or (lambda: torch.cuda.synchronize())
        # What is called behind the backward pass that is under way.
        self.queue_callback = _find(torch, "autograd.Variable._execution_engine.queue_callback")
        # Does the one that is under way keep autograd's graph?
        self.keeps_graph = _find(torch, "_C._autograd._get_current_graph_task_keep_graph") or (lambda: True)
        self.task_id = _find(torch, "_C._current_graph_task_id") or (lambda: -1)

    def _find_nccl(self):
        """What makes "nccl" the process group of before 2.15; None where it is that one. Its successor,
        which 2.14 has by another name, asks PyTorch's own allocator for snapshots."""
        c10d = _find(self.torch, "distributed.distributed_c10d")
        registered = getattr(_find(c10d, "Backend._plugins"), "get", {}.get)("NCCL")
        newer = getattr(c10d, "_create_nccl2_process_group", None)
        name = "_register_builtin_nccl_as_legacy"
        self.register_earlier_nccl = None
        if registered is None:  # until a group is made, which then asks the environment
            asked = os.environ.get("TORCH_DIST_USE_NCCL2")
            is_newer = asked != "0" if self.version >= (2, 15) else asked == "1"
        else:
            is_newer = getattr(registered, "creator_fn", None) is newer
        if newer is not None and is_newer:
            self.register_earlier_nccl = getattr(c10d, name, None)
            if self.register_earlier_nccl is None:
                self._lacks(NCCL, f"torch.distributed.distributed_c10d.{name}")

    def applier(self, function):
        """What apply() of an autograd function does: apply(first, given, further), where only what is given, all
        tensors, may be torch.func's. PyTorch's looks at each argument in Python, parameters too."""
        raw = getattr(super(self.torch.autograd.Function, function), "apply", None)
        is_transforming, unwrapped = self.is_transforming, self.unwrapped
        if raw is None or is_transforming is None or unwrapped is None:
            return lambda first, given, further: function.apply(first, *given, *further)

        def apply(first, given, further):
            if is_transforming():
                return function.apply(first, *given, *further)
            return raw(first, *map(unwrapped, given), *further)
        return apply

    def transforms(self):
        """Is what is called now transformed (torch.func), or within a level of forward differentiation?"""
        return (self.is_transforming is not None and self.is_transforming()) or (
            getattr(self.forward_levels, "_current_level", -1) >= 0)

    def saves_elsewhere(self):
        """Do hooks take what autograd saves?"""
        return self.hooks_of_saved(False) is not None

    def need(self, feature):
        """Raises Missing where the feature is off."""
        if feature in self.off:
            raise Missing(self.off[feature])


_found = None


def of(torch):
    """The names of this PyTorch, looked up once."""
    global _found
    if _found is None or _found.torch is not torch:
        _found = Private(torch)
    return _found


def missing():
    """What is off on the PyTorch that is installed: (feature, sentence) each."""
    import torch
    return list(of(torch).off.items())


_surrounded = False  # are compilations?


def around_compilations(context):
    """Has the compilations of torch.compile, from when it is imported on, take place within context()."""
    global _surrounded
    kind = getattr(sys.modules.get("torch._dynamo.callback"), "CompilationCallbackHandler", None)
    before = getattr(kind, "install_callbacks", None)
    if _surrounded or before is None:
        return
    _surrounded = True

    @contextlib.contextmanager
    def install_callbacks(*args, **kwargs):
        with context(), before(*args, **kwargs):
            yield
    kind.install_callbacks = install_callbacks


def has_compiler():
    """Was torch.compile's part of PyTorch imported, so that around_compilations() surrounds what it does?"""
    return "torch._dynamo.callback" in sys.modules


def keep_compilers_out(torch, functions):
    """Has torch.compile neither take in these functions nor compile what they execute: a call that is traced ends there,
    and goes on behind it."""
    frames = _find(torch, "_C._dynamo.eval_frame")
    action = getattr(frames, "_FrameAction", None)
    for function in functions:
        function._torchdynamo_disable = True
        if action is not None:
            frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(action.SKIP, action.SKIP))


def fake_tensors():
    """(FakeTensorMode, FakeTensor, forbid), whose tensors have a device and no values; None where they are not.
    Behind forbid(tensor) an access to the address of its memory raises. Else code of C++ reads at address 0."""
    try:
        module = importlib.import_module("torch._subclasses.fake_tensor")
        forbid = importlib.import_module("torch._C")._set_throw_on_mutable_data_ptr
        return module.FakeTensorMode, module.FakeTensor, forbid
    except (ImportError, AttributeError):
        return None


def graph_options(torch):
    """What Inductor's configuration says of graphs for symbolic sizes: ``sizes``, those that have graphs, None:
    all; ``limit``, of how many to warn, None: of none."""
    triton = _find(torch, "_inductor.config.triton")
    return {"sizes": getattr(triton, "cudagraph_capture_sizes", None),
            "limit": getattr(triton, "cudagraph_dynamic_shape_warn_limit", None)}


def input_of(torch, node):
    """What Dynamo made an input of a graph of: the name of the argument and its position, of what an argument of
    the frame is or holds in containers, each None where it has none; and whether it is a size of a tensor. Of
    a tensor of which that is not told, as of attributes and globals, the name is None."""
    source = getattr(node, "_dynamo_source", None)
    path = []
    while source is not None and type(source).__name__ in ("GetItemSource", "DictGetItemSource"):
        path.insert(0, source.index)
        source = source.base
    kind = type(source).__name__
    if kind != "LocalSource" or getattr(source, "is_derefed_cell_contents", False):
        return None, None, kind == "TensorPropertySource"
    return (*_argument(_frame_code(torch), source.local_name, path), False)


def _frame_code(torch):
    """The code of the frame that Dynamo translates on this thread; None where it does not tell."""
    found = _find(torch, "_dynamo.symbolic_convert.InstructionTranslator.current_tx")
    return None if found is None else getattr(found(), "f_code", None)


def _argument(code, local, path):
    """Name and position of the argument that a local variable, or what it holds at a path, is."""
    if code is None or code.co_name.startswith("torch_dynamo_resume"):
        return local, None
    names = list(code.co_varnames)
    count = code.co_argcount + code.co_kwonlyargcount
    is_method = names[:1] == ["self"]
    has_more = bool(code.co_flags & inspect.CO_VARARGS)
    if has_more and path and local == names[count]:
        at = code.co_argcount + path[0] - is_method
        # Dynamo calls modules of PyTorch's by a function of theirs and of its own.
        return at, at
    if code.co_flags & inspect.CO_VARKEYWORDS and path and local == names[count + has_more]:
        return path[0], path[0]
    return local, names.index(local) - is_method if local in names[:code.co_argcount] else None


def size_guards(sizes):
    """What tells whether what was compiled for symbolic sizes is right for others: a function of a list of
    those."""
    code = sizes[0].node.shape_env.produce_guards_expression(sizes) if sizes else None
    holds = type(sizes[0].node.shape_env).evaluate_guards_expression if sizes else None
    return lambda values: not code or bool(holds(None, code, values))


def functions_of_trees(torch, trees):
    """The functions of TREES_NAMES in that module. Raises Missing."""
    found = [getattr(trees, name, None) for name in TREES_NAMES]
    if None in found:
        raise Missing(f"{COMPILED}: off, as PyTorch {torch.__version__} has no "
                      f"{TREES}.{TREES_NAMES[found.index(None)]}")
    return found


def has_context(torch, index):
    """Has this process a context on the device? Says so of each where PyTorch does not tell."""
    asked = _find(torch, "_C._cuda_hasPrimaryContext")
    return asked is None or asked(index)


def go_back(torch, root, gradient):
    """A backward pass that adds to the leaves, and takes nothing of Python's along. On 2.14 and 2.15 those
    that torch.autograd begins hold the caller's contextvars."""
    run = _find(torch, "autograd.Variable._execution_engine.run_backward")
    if run is None:
        root.backward(gradient)
    else:
        run((root,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def gradients(torch, roots, wanted, incoming, retain_graph=False, allow_unused=False):
    """What torch.autograd.grad gives for these gradients of the roots: tensors of the roots' shapes and types, of
    which there is one for each. That function imports SymPy to compare their shapes, which takes 0.2 s of a process
    that has not compiled or optimized yet. Where a mode or a subclass has a say, it is called all the same."""
    run = _find(torch, "autograd._engine_run_backward")
    tensors = [t for t in (*roots, *wanted) if isinstance(t, torch.Tensor)]
    if run is None or torch.overrides.has_torch_function(tensors):
        return torch.autograd.grad(roots, wanted, incoming, retain_graph=retain_graph, allow_unused=allow_unused)
    return run(tuple(roots), tuple(incoming), retain_graph, False, tuple(wanted), allow_unused, accumulate_grad=False)


class _Told:
    """Autograd's engine, of which somebody is told what one thread asks of it."""

    def __init__(self, engine, tell):
        self._engine, self._tell, self._thread = engine, tell, threading.get_ident()

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def run_backward(self, roots, *args, **kwargs):
        if threading.get_ident() == self._thread:
            keeps = args[1] if len(args) > 1 else kwargs.get("keep_graph", False)
            self._tell(roots, keeps, kwargs.get("accumulate_grad", False))
        return self._engine.run_backward(roots, *args, **kwargs)


@contextlib.contextmanager
def passes_told(torch, tell):
    """Calls tell(roots, does the graph stay, is it added to gradients of leaves) ahead of each backward pass that
    this thread begins meanwhile, from Python. No other thread may do the same."""
    kind, name = torch.autograd.Variable, "_execution_engine"
    engine = getattr(kind, name, None)
    if engine is None:
        yield
        return
    setattr(kind, name, _Told(engine, tell))
    try:
        yield
    finally:
        setattr(kind, name, engine)


def put_hooks(tensor, hooks):
    """Gives a tensor a dict of ours for what register_hook() is given, of which autograd is not told."""
    setattr(tensor, _HOOKS, hooks)


def around_each_pass(torch, around):
    """Backward passes that are begun from Python run as around(what runs them, *its arguments), from here on."""
    name = "_engine_run_backward"
    before = _find(torch, f"autograd.{name}")
    if before is not None:
        setattr(torch.autograd, name, functools.partial(around, before))


def pass_here():
    """The number of the backward pass that this thread is in; later ones have higher numbers. -1: in none."""
    torch = sys.modules.get("torch")
    return -1 if torch is None else of(torch).task_id()


def call_behind(torch, hook):
    """Has a thread of autograd's call hook(gradient), the one of the current device. It goes back through nothing,
    which launches nothing, by an engine of its own, of which nobody else is told. Without effect under modes, which
    would see that."""
    engine = _find(torch, "_C._ImperativeEngine")
    lengths = [_find(torch, f"_C._len_torch_{of}_stack") for of in ("function", "dispatch")]
    if engine is None or not torch.cuda.is_initialized() or any(of is None or of() for of in lengths):
        return
    with torch.inference_mode(False), torch.enable_grad():
        start = torch.empty(0, device="cuda", requires_grad=True)
        start.register_hook(hook)
        engine().run_backward((start.view_as(start),), (start.detach(),), False, False, (start,), True, False)


def after_each_pass(torch, function):
    """Calls the function behind each backward pass that is begun from Python, from here on."""
    name = "_engine_run_backward"
    before, task_id = _find(torch, f"autograd.{name}"), _find(torch, "_C._current_graph_task_id")
    if before is None or task_id is None:
        return

    def run(*args, **kwargs):
        try:
            return before(*args, **kwargs)
        finally:
            if task_id() == -1:  # else it is one within another, on a thread that must not wait for itself
                function()
    setattr(torch.autograd, name, run)


class _ScriptWrites:
    """How often attributes of modules of TorchScript were assigned, which lie in C++.

    Attributes:
        count (int): It grows with each.
    """

    def __init__(self, kind):
        self.count, before = 0, kind.__setattr__

        @functools.wraps(before)
        def assign(module, name, value):
            self.count += 1
            before(module, name, value)
        kind.__setattr__ = assign


@functools.cache
def script_writes(torch):
    """Counts those from here on; None: this PyTorch has no such modules."""
    kind = _find(torch, "jit.RecursiveScriptModule")
    return None if kind is None else _ScriptWrites(kind)


def is_scripted(torch, module):
    """Is it a module of TorchScript?"""
    kind = _find(torch, "jit.RecursiveScriptModule")
    return kind is not None and isinstance(module, kind)


def script_attributes(module):
    """What a module of TorchScript has in C++ beside its tensors and children, by name."""
    inner = vars(module).get("_c")
    names = getattr(vars(module).get("_concrete_type"), "get_attributes", dict)() if inner is not None else {}
    return {name: inner.getattr(name) for name in names}


def _parametrized(torch):
    """A module whose weight is computed at each use, except within cached(). It stays: cached() knows modules by
    their addresses."""
    class Copy(torch.nn.Module):
        def forward(self, weight):
            return weight.clone()

    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.zeros(1, device="cpu"), requires_grad=False)
    torch.nn.utils.parametrize.register_parametrization(module, "weight", Copy())
    return module


@contextlib.contextmanager
def parametrized_anew(torch):
    """Meanwhile torch.nn.utils.parametrize.cached() keeps nothing: what a run made would be the next eager call's.
    Raises Missing within cached() where PyTorch can't be told."""
    private = of(torch)
    module = private.parametrize
    if PARAMETRIZED in private.off:
        probe = private.parametrized = private.parametrized or _parametrized(torch)
        if probe.weight is probe.weight:
            private.need(PARAMETRIZED)
    before = getattr(module, "_cache_enabled", 0)
    if not before:
        yield
        return
    module._cache_enabled = 0
    try:
        yield
    finally:
        module._cache_enabled = before


def frames_compiled():
    """How many frames of Python torch.compile has looked at, to compile them."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return 0 if counters is None else counters["frames"]["total"]


def let_captures_compile(captures):
    """Since 2.14 dynamo raises an error where it is to compile while its stream captures, unless it is within
    a higher-order operator's compilation. From here on it compiles in threads for which captures() is true
    as well: what it launches breaks their capture, and the next one has what it made. Without effect where
    dynamo was not imported, or asks by another name."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    asks = getattr(module, "_in_hop_compile", None)
    if asks is None or getattr(asks, "captures", None) is captures:
        return

    def in_hop_compile():
        return captures() or asks()
    in_hop_compile.captures = captures
    module._in_hop_compile = in_hop_compile


_RECOMPUTING = (("megatron.core.tensor_parallel.random", "CheckpointFunction"),
                ("transformer_engine.pytorch.distributed", "_CheckpointFunction"))


def goes_back_reentrantly(torch, results):
    """Does the backward pass of these results run torch.utils.checkpoint's function for
    use_reentrant=True, or a framework's like it, which no call of torch.autograd.grad can?"""
    functions = [_find(torch, "utils.checkpoint.CheckpointFunction")]
    functions += [getattr(sys.modules.get(home), name, None) for home, name in _RECOMPUTING]
    kinds = tuple(kind for kind in (getattr(f, "_backward_cls", None) for f in functions) if kind is not None)
    ahead, seen = [r.grad_fn for r in results], set()
    while kinds and ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        if isinstance(node, kinds):
            return True
        seen.add(node)
        ahead += [before for before, _ in node.next_functions]
    return False
