# SPDX-License-Identifier: MIT
"""reprise.make_graphed_callables: PyTorch's function of that name, with planned memory."""

import contextlib
import functools
import types

from .._alloc.pool import Pool, pool_of
from .._base.need import need_gpu
from .._base.tree import flatten
from .._base.warn import warn
from .._capture import draws
from .._grad.nodes import Aliases
from .._grad.order import Schedule, parse
from .._reads.reads import is_compiled
from .._shapes.split import Split
from .body import body_of, clear_frames
from .cpu_values import CpuValues, Pair
from .kept import Kept


MOST_TOLD = 8  # reasons that one callable warns of


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False,
                           pool=None, *, order=None):
    """Accepts callables (functions or ``torch.nn.Module``\\ s) and returns graphed versions.

    As ``torch.cuda.make_graphed_callables``: each forward pass is a graph, each backward pass
    another, and both are one node of autograd. All lie in one sequence in the order in which they
    run: forward 1, 2 .. N, backward N .. 2, 1. Unlike there, arguments are not copied into static
    buffers and results are fresh tensors, and a backward pass whose intermediate results were
    overwritten by a later forward pass is an error.

    Arguments:
        callables (torch.nn.Module or function, or tuple of these): In the order in which they run.
        sample_args (tuple of Tensors, or tuple of such tuples): Arguments of each callable. Real ones
            have the same shapes; those of another type or with other strides are copied. Where one
            wants a gradient and its sample did not, the call runs eagerly, with a warning.
        num_warmup_iters (int): Eager iterations before the captures, on the current stream. Default:
            3.
        allow_unused_input (bool): Whether inputs that do not take part in the results are allowed.
        pool (reprise.Pool or handle, optional): A sequence, or a handle of
            :func:`torch.cuda.graph_pool_handle`: the callables that are given the same one share a
            sequence. Default: one of their own.
        order (list of int, optional): The passes of a pipeline with several microbatches, as they
            run: ``k`` is a forward pass of the k-th callable, counted from 1, ``-k`` a backward pass;
            the n-th of each is of the n-th microbatch. ``[1, 2, -2, -1]`` is what happens without
            it, ``[1, 1, -1, 1, -1, -1]`` one callable with three microbatches, of which two are
            under way at a time. Each microbatch has graphs of its own. All are planned as one
            sequence in that order: what the forward pass of a microbatch keeps is free for others
            after its backward pass. A call, or a backward pass, that is not the next in the order
            raises ``RuntimeError``, which names it and the one that is due; after the last the
            order begins again.

    Modules are changed in place and returned: their ``forward`` is the graphed one in the mode
    (``train`` or ``eval``) that they are in now, and the original in the other. Without gradients
    (``torch.no_grad``) the forward graph alone is replayed.

    What a callable moves from the CPU, forward or backward, is a constant of its graphs, as of the
    captures: it lies on the device from then on. Where it was computed of a tensor on the CPU that has
    changed since, a call raises ``RuntimeError``.

    What a callable reads beside its arguments, parameters' memory, hooks of the modules within, modes,
    autocast and PyTorch's switches have to be as they were when it was made. Calls that find something
    else run eagerly, with a warning that names it; with ``order`` they raise ``RuntimeError``.

    Example, for the stage of a pipeline::

        stage = reprise.make_graphed_callables(stage, (sample,), order=[1, 1, -1, 1, -1, -1])
    """
    torch = need_gpu()
    if torch.is_autocast_enabled() and torch.is_autocast_cache_enabled():
        raise RuntimeError("make_graphed_callables does not support autocast's cache: use "
                           "torch.autocast(..., cache_enabled=False)")
    single = not isinstance(callables, tuple)
    if single:
        callables, sample_args = (callables,), (sample_args,)
    _check(torch, callables, sample_args)
    count = len(callables)
    passes = parse([*range(1, count + 1), *range(-count, 0)] if order is None else order, count)
    device = _device(torch, callables, sample_args, pool)
    with torch.cuda.device(device):
        if pool is None:
            pool = Pool("sequence", name="callables")
        elif not isinstance(pool, Pool):
            pool = pool_of(pool, device.index, "callables")
        made = _make(torch, device, callables, sample_args, passes, order is not None, pool,
                     num_warmup_iters, allow_unused_input)
    return made[0] if single else made


def _device(torch, callables, sample_args, pool):
    """The GPU that all of it is on."""
    tensors = [t for args in sample_args for t in flatten(args)[0]]
    tensors += [p for fn in callables if isinstance(fn, torch.nn.Module) for p in fn.parameters()]
    indices = {t.device.index for t in tensors if t.is_cuda} or {torch.cuda.current_device()}
    if isinstance(pool, Pool):
        indices.add(pool.device)
    if len(indices) > 1:
        named = " and ".join(f"cuda:{i}" for i in sorted(indices))
        raise ValueError(f"sample_args, parameters and pool are on {named}, and a graph is of one GPU: "
                         "make the callables of each GPU by a call of its own")
    return torch.device("cuda", indices.pop())


def _make(torch, device, callables, sample_args, passes, ordered, pool, warmup, allow_unused_input):
    """The graphed callables, with their device current."""
    kept = [Kept(torch, fn.forward if isinstance(fn, torch.nn.Module) else fn,
                 fn if isinstance(fn, torch.nn.Module) else None) if warmup and not is_compiled(fn) else None
            for fn in callables]
    watched = draws.Watched(torch, ())
    _warm_up(torch, callables, sample_args, warmup, allow_unused_input, kept)
    may_draw = watched.may_draw() or not warmup
    cpu = CpuValues(torch, any(map(is_compiled, callables)))

    def new_split(which):
        fn, args = callables[which], sample_args[which]
        leaves, spec = flatten(args)
        modules = list(fn.modules()) if isinstance(fn, torch.nn.Module) else []
        aliases = Aliases(torch, modules, list(fn.parameters()) if modules else [])
        forward = aliases.around(fn.forward if modules else fn)
        attempt = cpu.attempt(device, None, (), False)
        body = body_of(torch, forward, leaves, spec, False, cpu=attempt)
        return Split(torch, device, body, leaves, aliases, (), allow_unused_input,
                     Pair(cpu, device, attempt), may_draw)

    splits = _capture(pool, callables, new_split, cpu, passes, ordered)
    replays = [of[0].replay for of in splits] if not ordered else \
        _in_order(torch, callables, splits, passes)
    made = tuple(_wrap(torch, fn, of[0].tensors, replay, not ordered, known, _check_of(fn, of))
                 for fn, of, replay, known in zip(callables, splits, replays, kept))
    for fn, known in zip(callables, kept):
        if known is not None:
            known.settle()
        if known is not None and known.unseen:
            warn(f"reprise: changes of what '{_name(fn)}' reads would go unseen: {known.unseen}")
    return made


def _capture(pool, callables, new_split, cpu, passes, ordered):
    """Captures the passes in their order; of each callable a Split for each microbatch."""
    splits = [[] for _ in callables]

    def capture_forward(which, name):
        split = new_split(which)
        with _clearing():
            split.capture_forward(pool, name)
        return split

    def capture_backward(split, name):
        with _clearing():
            split.capture_backward(pool, name)

    try:
        for which, microbatch, backward in passes:
            name = _name(callables[which])
            if ordered:
                name = f"{name}[{microbatch}]"
            if not backward:
                splits[which].append(cpu.moving(functools.partial(capture_forward, which, name)))
                continue
            split = splits[which][microbatch]
            cpu.moving(functools.partial(capture_backward, split, name))
            split.values.give(split, _never)
            split.values = None
            if ordered:
                split.release()
    finally:
        for split in (split for of in splits for split in of):
            split.drop_runs()  # of those whose backward pass was not captured
    return splits


@contextlib.contextmanager
def _clearing():
    """What fails holds no memory of a capture that a second attempt follows."""
    try:
        yield
    except BaseException as error:
        clear_frames(error)
        raise


def _never(tensor):
    """Is this tensor on the CPU compared by a key? Calls have none."""
    return False


def _check_of(fn, splits):
    """Raises where a tensor on the CPU is not what the callable was captured for; None: there is none."""
    parts = [part for split in splits for part in (split, *split.parts()) if part.cpu is not None]

    def check():
        if any(part.reads_other_values() for part in parts):
            raise RuntimeError(f"'{_name(fn)}' was captured for other values of a tensor on the CPU, which "
                               "its graphs hold as constants. Keep it on the GPU, or make the callable anew")
    return check if parts else None


def _in_order(torch, callables, splits, passes):
    """For each callable what a call does: the graphs of the microbatch that is due."""
    schedule = Schedule(passes, [_name(fn) for fn in callables])
    replays = [[split.replay for split in of] for of in splits]

    def replay_of(which):
        def replay(leaves):
            if not torch.is_grad_enabled():
                raise RuntimeError(f"'{_name(callables[which])}' was captured with an order of forward and "
                                   "backward passes, and gradients are disabled: call modules in the "
                                   "other mode, or what was passed to make_graphed_callables")
            return replays[which][schedule.forward(which)](leaves)
        return replay

    for which, of in enumerate(splits):
        for microbatch, split in enumerate(of):
            split.before_backward = functools.partial(schedule.backward, which, microbatch)
    return [replay_of(which) for which in range(len(callables))]


def _name(fn):
    return getattr(fn, "__name__", None) or type(fn).__name__


def _check(torch, callables, sample_args):
    if len(callables) != len(sample_args):
        raise ValueError(f"there are {len(callables)} callables and {len(sample_args)} sets of "
                         "sample arguments")
    for fn, args in zip(callables, sample_args):
        if isinstance(fn, torch.nn.Module):
            if fn._backward_hooks or fn._forward_hooks or fn._forward_pre_hooks:
                raise RuntimeError("modules must not have hooks when they are passed; hooks may be "
                                   "registered afterwards")
            if any(b.requires_grad for b in fn.buffers()):
                raise RuntimeError("only parameters may require gradients, and a buffer does")
        for leaf in flatten(args)[0]:
            if not isinstance(leaf, torch.Tensor):
                raise TypeError(f"sample_args holds a {type(leaf).__name__}: only tensors may be "
                                "passed")
            if not leaf.is_cuda:
                raise TypeError("sample_args holds a tensor on the CPU: only tensors on the GPU may be "
                                "passed, as what a callable moves there itself is a constant of its graphs")


def _warm_up(torch, callables, sample_args, iterations, allow_unused, kept):
    """Runs all eagerly, forward and backward, on the current stream: hundreds of launches on another
    one would slow all graphs of the process down (reprise.restore_pace)."""
    for fn, args, known in zip(callables, sample_args, kept):
        wanted = [a for a in flatten(args)[0] if a.requires_grad]
        if isinstance(fn, torch.nn.Module):
            wanted += [p for p in fn.parameters() if p.requires_grad]
        for _ in range(iterations):
            out = [o for o in flatten(known.warm_up(fn, args) if known else fn(*args))[0]
                   if isinstance(o, torch.Tensor) and o.requires_grad]
            if out and wanted:
                torch.autograd.grad(out, wanted, [torch.empty_like(o) for o in out],
                                    allow_unused=allow_unused)


def _like(tensor):
    return (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad)


def _are_like(leaves, wanted):
    try:
        return [_like(t) for t in leaves] == wanted
    except AttributeError:  # one is no tensor
        return False


def _fit(torch, leaf, sample):
    """The argument as the graph has it: of the sample's type and strides, for autograd a copy. Raises
    ValueError where it cannot be."""
    if not isinstance(leaf, torch.Tensor) or (leaf.shape, leaf.device) != (sample.shape, sample.device):
        raise ValueError
    if (leaf.dtype, leaf.stride()) == (sample.dtype, sample.stride()):
        return leaf
    made = torch.empty_strided(sample.shape, sample.stride(), dtype=sample.dtype, device=sample.device)
    return made.copy_(leaf)


def _wrap(torch, fn, samples, replay, may_run_eagerly, kept=None, check=None):
    """The graphed version of fn, captured for these leaves; replay: what a call of other leaves does;
    kept: what says whether all is there that it was captured for; check: called ahead of each call."""
    wanted = [_like(t) for t in samples]
    is_module = isinstance(fn, torch.nn.Module)
    original, warned, told = fn.forward if is_module else fn, [], set()

    def is_other(why):
        """Warns that something is not as it was captured for, once; where no call may be eager it raises."""
        text = (f"'{_name(fn)}' was captured for something else than there is now: {why}. Make the callable "
                "anew, or take reprise.graphed, which captures what changes")
        if not may_run_eagerly:
            raise RuntimeError(text)
        if why not in told and len(told) < MOST_TOLD:
            told.add(why)
            warn(f"reprise: this call runs without a graph, as {text}")

    def fitted(leaves):
        """The leaves for the graphs; None: they are not for these arguments, and the call is eager."""
        try:
            if len(leaves) != len(samples):
                raise ValueError
            if torch.is_grad_enabled() and any(
                    t.requires_grad and not s.requires_grad for t, s in zip(leaves, samples)):
                if not may_run_eagerly:
                    raise ValueError
                return None
            return [_fit(torch, t, s) for t, s in zip(leaves, samples)]
        except (AttributeError, ValueError):  # of other leaves
            raise ValueError(f"'{_name(fn)}' was captured for arguments of other shapes, types or "
                             "requires_grad than it is called with") from None

    def graphed(*args):
        if check is not None:
            check()
        why = kept.differs() if kept is not None else None
        if why is not None:
            is_other(why)
            return original(*args)
        leaves = flatten(args)[0]
        if not _are_like(leaves, wanted):
            leaves = fitted(leaves)
            if leaves is None:
                if not warned:
                    warned.append(True)
                    warn(f"reprise: '{_name(fn)}' runs without a graph where an argument wants a gradient "
                         "and its sample did not: let sample_args have the real requires_grad")
                return original(*args)
        return replay(leaves)

    if not is_module:
        return graphed
    mode = fn.training

    def forward(*args, **kwargs):
        if fn.training == mode and not kwargs:
            return graphed(*args)
        return original(*args, **kwargs)

    fn.forward = _Forward(forward, fn)
    return fn


class _Forward:
    """The graphed forward method of a module. A copy of the module has its class's: the graphs are of this
    one's parameters."""

    def __init__(self, call, module):
        self._call, self._module = call, module

    def __call__(self, *args, **kwargs):
        return self._call(*args, **kwargs)

    def __deepcopy__(self, memo):
        copied = memo.get(id(self._module))
        return self if copied is None else types.MethodType(type(copied).forward, copied)
