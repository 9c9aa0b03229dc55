# SPDX-License-Identifier: MIT
"""What is refused of torch.distributed in captures.

NCCL's collectives are kernels, and are captured like others. Those of other backends (gloo) copy
through the host and wait, which breaks a capture; some of that happens on threads of theirs, later.
So they are refused before they begin. Two graphs of a DistributedDataParallel would leave its
reduction out: its hooks wait for gradients to be accumulated, which no captured backward pass does.

Tensors of several ranks (DTensor) wrap those of this one, and have no address. Modules with such parameters are
refused.

Modules that fully_shard shards have their parameters in other memory in each pass: hooks gather them into storages
that they make and free. A graph would read where they were once. So these are refused, and all modules in them.
"""

import gc
import sys
import threading

HOST_BACKENDS = ("gloo", "mpi")
QUESTIONS = ("get_", "set_", "_set_")  # what only asks about a group asks the same as collectives do
_lock = threading.Lock()
_guarded = 0      # how many captures are on
_original = None  # of torch.distributed, while any is


def _module():
    """torch.distributed's collectives, where the program has them."""
    return sys.modules.get("torch.distributed.distributed_c10d")


def _by_the_host(torch, c10d, group):
    """The name of the backend that reduces the group's tensors of the GPU through the host, or None."""
    group = group or c10d.GroupMember.WORLD
    try:
        name = group._get_backend(torch.device("cuda")).name()
    except (AttributeError, RuntimeError):  # no group, or none for the GPU: the collective says so
        return None
    return name if name in HOST_BACKENDS else None


def _refusal(what, backend):
    return RuntimeError(f"{what} over the backend '{backend}', which copies through the host and waits, "
                        "cannot be captured: use NCCL for tensors of the GPU, "
                        'torch.distributed.init_process_group("nccl")')


def _check(torch, c10d, group):
    backend = torch.cuda.is_current_stream_capturing() and _by_the_host(torch, c10d, group)
    if backend:
        raise _refusal("a collective", backend)


def begin(torch):
    """From now on captured collectives that cannot be are refused."""
    global _guarded, _original
    c10d = _module()
    with _lock:
        _guarded += 1
        if _original is not None or not hasattr(c10d, "_rank_not_in_group"):
            return
        original = _original = c10d._rank_not_in_group  # what every collective asks first

        def rank_not_in_group(group):
            if not sys._getframe(1).f_code.co_name.startswith(QUESTIONS):
                _check(torch, c10d, group)
            return original(group)

        c10d._rank_not_in_group = rank_not_in_group


def end():
    """Ends what the last begin began."""
    global _guarded, _original
    with _lock:
        _guarded -= 1
        if _guarded == 0 and _original is not None:
            _module()._rank_not_in_group = _original
            _original = None


def find_parallel(torch, modules):
    """Those of the modules that are DistributedDataParallel."""
    kind = getattr(torch.nn.parallel, "DistributedDataParallel", ())
    return [m for m in modules if isinstance(m, kind)]


SHARDED = ("{} is sharded by fully_shard, which gathers its parameters into other memory in each pass, and a graph "
           "would read where they were once. Let the layer's forward give the gathered ones to a graph as arguments, "
           "reprise.graphed(function)(x, *parameters), or take DistributedDataParallel")


SPREAD = ("the parameters of '{}' are tensors of several ranks (torch.distributed.tensor), which wrap those that a graph "
          "reads. Let the module's forward give their parts to a graph as arguments, reprise.graphed(function)(x, "
          "*[p.to_local() for p in parameters]), with collectives of NCCL within it or others around it")


def _sharding_kinds(torch):
    """The classes of modules that are sharded, where the program may have some: fully_shard makes one for each
    class of module, and none shards without a process group."""
    if _module() is None or not torch.distributed.is_initialized():
        return []
    homes = (("torch.distributed.fsdp._fully_shard._fully_shard", "FSDPModule"),
             ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"))
    found = [getattr(sys.modules.get(module), name, None) for module, name in homes]
    found = [kind for kind in found if kind is not None]
    for kind in found:  # grows with those of its classes
        found += [k for k in kind.__subclasses__() if k not in found]
    return found


def _instances(kinds):
    """All objects of these classes: each refers to its own."""
    return [] if not kinds else [o for o in gc.get_referrers(*kinds) if type(o) in kinds]


def _own(module):
    """Parameters, whatever a program calls `parameters` there."""
    return [p for p in vars(module).get("_parameters", {}).values() if p is not None]


def check_sharded(torch, modules):
    """Raises where parameters of these come and go, or are no tensors of this rank alone."""
    _check_gathered(torch, modules)
    spread = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    kinds = {type(p) for module in modules for p in _own(module)} if spread is not None else ()
    for module in modules if any(issubclass(kind, spread) for kind in kinds) else ():
        if any(isinstance(p, spread) for p in _own(module)):
            raise RuntimeError(SPREAD.format(type(module).__name__))


def _check_gathered(torch, modules):
    if not any(True for m in modules for _ in _own(m)):
        return
    inside = {}
    for outer in _instances(_sharding_kinds(torch)):
        inside.update((id(vars(m)), (m, outer)) for m in torch.nn.Module.modules(outer))
    for module in modules:
        if id(vars(module)) in inside:  # a module that is graphed in place has a twin of these attributes
            module, outer = inside[id(vars(module))]
            kinds_of = [type(m).__name__ for m in (module, outer)]
            raise RuntimeError(SHARDED.format(" in ".join(f"'{kind}'" for kind in dict.fromkeys(kinds_of))))


def check_modules(torch, modules, split):
    """Raises where a capture of these could not reduce, or reads parameters that come and go. split: forward and
    backward are two graphs."""
    check_sharded(torch, modules)
    for module in find_parallel(torch, modules):
        if split:
            raise RuntimeError(
                "forward and backward of a DistributedDataParallel as two graphs would leave its "
                "reduction out. Graph the module within it, "
                "DistributedDataParallel(reprise.make_graphed_callables(module, ...)), or capture the "
                "whole step, reprise.graphed(step), with the backward pass in it")
        backend = _by_the_host(torch, _module(), module.process_group)
        if backend:
            raise _refusal("DistributedDataParallel", backend)
