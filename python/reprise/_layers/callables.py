# SPDX-License-Identifier: MIT
"""reprise.make_graphed_callables: PyTorch's function of that name, and Transformer Engine's, with planned memory."""

from .._alloc.pool import Pool, pool_of
from .._base.need import need_gpu
from .._base.tree import flatten
from .._base.warn import warn
from .._capture import trackers
from .._capture.distributed import check_sharded
from .calls import Ordered, Single, check_of, function_of, in_place, schedule_of
from .captures import Captures, name_of
from .chunks import Plan
from .delayed import delaying
from .options import Hooks, names_of_calls, renamed
from .quantized import quantized_of


def make_graphed_callables(callables=None, sample_args=None, num_warmup_iters=3, allow_unused_input=False,
                           pool=None, *, order=None, sample_kwargs=None, num_layers_per_chunk=None,
                           generators=(), pre_warmup_hook=None, post_warmup_hook=None,
                           capture_time_hooks=None, **options):
    """Accepts callables (functions or ``torch.nn.Module``\\ s) and returns graphed versions.

    As ``torch.cuda.make_graphed_callables`` and ``transformer_engine.pytorch.make_graphed_callables``:
    each forward pass is a graph, each backward pass another, and both are one node of autograd. All lie in
    one sequence in the order in which they run: forward 1, 2 .. N, backward N .. 2, 1. Unlike there,
    arguments are not copied into static buffers and results are fresh tensors, and a backward pass whose
    intermediate results were overwritten by a later forward pass is an error.

    Arguments:
        callables (torch.nn.Module or function, or tuple of these): In the order in which they run;
            ``modules`` is the same.
        sample_args (tuple, or tuple of such tuples): Arguments of each callable by position: tensors,
            numbers, texts, None, and containers of these. Real tensors have the same shapes; those of
            another type or with other strides are copied. Where one wants a gradient and its sample did
            not, the call runs eagerly, with a warning. What is no tensor is a constant of the graphs:
            calls with another value raise ``ValueError``, which names it. With ``order`` there may be one
            for each pass forward: by chunk, by microbatch, by callable in the chunk.
        num_warmup_iters (int): Eager iterations before the captures, on the current stream. Default:
            3. Random numbers go on behind them as if they had not been, and buffers are as they were.
        allow_unused_input (bool): Whether inputs that do not take part in the results are allowed.
        pool (reprise.Pool or handle, optional): A sequence, or a handle of
            :func:`torch.cuda.graph_pool_handle`: the callables that are given the same one share a
            sequence. Default: one of their own.
        order (list of int, optional): The passes of a pipeline with several microbatches, as they
            run: ``k`` is a forward pass of the k-th callable or chunk, counted from 1, ``-k`` a backward
            pass; the n-th of each is of the n-th microbatch. ``[1, 2, -2, -1]`` is what happens without
            it, ``[1, 1, -1, 1, -1, -1]`` one callable with three microbatches, of which two are
            under way at a time. Each microbatch has graphs of its own. All are planned as one
            sequence in that order: what the forward pass of a microbatch keeps is free for others
            after its backward pass. A call, or a backward pass, that is not the next in the order
            raises ``RuntimeError``, which names it and the one that is due; after the last the
            order begins again.
        sample_kwargs (dict, or tuple of dicts): Arguments of each by name. Calls may name what the sample
            gave by position, and leave out what has its default.
        num_layers_per_chunk (int or list of int): How many callables each chunk of ``order`` has; a
            chunk runs its callables one behind the other, and back. Default: one.
        generators (iterable of torch.Generator): Those that callables draw from beside the default one.
            The generators of Megatron's and Transformer Engine's trackers are found.
        pre_warmup_hook, post_warmup_hook (callable): Called ahead of the warm-up, and behind it.
        capture_time_hooks (list of dict, optional): For each callable functions of the module, which run
            around its warm-up runs and captures and never within one: each dict may have
            ``forward_pre_hooks``, ``forward_hooks``, ``backward_pre_hooks`` and ``backward_hooks``, which
            are dicts of functions.
        options: What Transformer Engine's function has else, by its names of then and now. ``_order`` and
            ``_num_layers_per_chunk`` are ``order`` and ``num_layers_per_chunk``, but what is returned is a
            function for each sample and modules stay as they are. ``retain_graph_in_backward``,
            ``clone_param_grads_on_return`` and ``_reuse_graph_input_output_buffers`` make no difference.
            With ``cache_quantized_params`` calls take ``is_first_microbatch``. ``enabled`` (of all, or of
            each), ``recipe``, ``calibrating`` and ``amax_reduction_group`` are FP8 by Transformer Engine:
            scales and amax histories are put back behind the captures, and are updated between calls. A call
            outside of its autocast, of another recipe, or whose scales lie elsewhere by now raises
            ``RuntimeError``.

    Modules are changed in place and returned: their ``forward`` is the graphed one in the mode
    (``train`` or ``eval``) that they are in now, and the original in the other. Without gradients
    (``torch.no_grad``) the forward graph alone is replayed.

    Calls may have a ``cuda_graph_stream`` to replay on, and an event, ``cuda_graph_event``, which the current
    stream waits for in place of that stream. What is returned has ``reset()``, which drops its graphs, and
    ``backward_dw()``.

    Modules with ``delay_wgrad_compute`` leave weight gradients for later: these are a graph of their own, which
    ``backward_dw()`` replays, once behind each backward pass. With ``order`` they are passes too: ``-k - 0.5`` are
    the weight gradients of chunk k, those of the n-th microbatch where it is the n-th. ``param.grad`` becomes what
    the modules' own ``backward_dw`` makes of it, and their hooks for that run. Of other callables
    ``backward_dw()`` has nothing to do.

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
    callables, options = _callables(callables, options)
    if _are_dicts(pool):  # Transformer Engine's fifth argument
        pool, sample_kwargs = None, pool
    engine = options.get("_order")
    if engine is not None and order is not None:
        raise ValueError("_order is order, and both are given: pass one")
    layers = options.get("num_layers_per_chunk", num_layers_per_chunk)
    single = not isinstance(callables, tuple)
    if single:
        callables, sample_args = (callables,), (sample_args,)
        sample_kwargs = None if sample_kwargs is None else (sample_kwargs,)
    takes_flag = bool(options.get("cache_quantized_params"))
    samples = _samples(sample_args, sample_kwargs)
    _check(torch, callables)
    names = [name_of(fn) for fn in callables]
    delays = delaying(torch, callables, names)
    plan = Plan(order if engine is None else engine, len(callables), len(samples), layers, engine is not None,
                {which: one.kind for which, one in delays.items()}, names)
    device = _device(torch, callables, samples, pool)
    generators = trackers.with_found(torch, device, generators)
    captures = Captures(torch, device, callables, plan, samples, generators,
                        Hooks(capture_time_hooks, callables), order is not None or engine is not None,
                        quantized_of(torch, callables, options), delays)
    with torch.cuda.device(device):
        if pool is None:
            pool = Pool("sequence", name="callables")
        elif not isinstance(pool, Pool):
            pool = pool_of(pool, device.index, "callables")
        captures.run(pool, num_warmup_iters, allow_unused_input, pre_warmup_hook, post_warmup_hook)
    made = _made(torch, captures, pool, takes_flag, engine is not None)
    return made[0] if single and len(made) == 1 else made


def _callables(callables, options):
    """The callables, and the other options by their names of now."""
    if "modules" in options:
        if callables is not None:
            raise TypeError("modules is callables, and both are given: pass one")
        callables = options.pop("modules")
    if callables is None:
        raise TypeError("make_graphed_callables() misses its first argument, callables")
    return callables, renamed(options)


def _are_dicts(value):
    return isinstance(value, dict) or (isinstance(value, (tuple, list)) and len(value) > 0 and (
        all(isinstance(one, dict) for one in value)))


def _samples(sample_args, sample_kwargs):
    """(args, kwargs) of each sample."""
    sample_args = tuple(sample_args or ())
    if sample_kwargs is None:
        sample_kwargs = ({},) * len(sample_args)
    if len(sample_args) != len(sample_kwargs):
        raise ValueError(f"sample_args has {len(sample_args)} sets of arguments, and sample_kwargs "
                         f"{len(sample_kwargs)}: give both for each callable")
    return [(tuple(args), dict(kwargs)) for args, kwargs in zip(sample_args, sample_kwargs)]


def _made(torch, captures, pool, takes_flag, for_each_pass):
    """What the program gets: for each callable, or for each sample, in the order of samples."""
    schedule = schedule_of(captures) if captures.ordered else None
    plan, commons = captures.plan, []
    for which, fn in enumerate(captures.callables):
        splits = [captures.splits[which, m] for m in range(plan.microbatches[which])]
        name, known = captures.names[which], captures.kept[which]
        function = captures.functions[which]
        commons.append((torch, fn, name, known, check_of(name, splits), names_of_calls(function, takes_flag),
                        pool, captures.quantized and (which, captures.quantized), captures.delays.get(which)))

    def calls_of(which, microbatch=None):
        graphs = [(captures.forms[which, m], captures.splits[which, m]) for m in range(plan.microbatches[which])]
        if schedule is None:
            return Single(*graphs[0], *commons[which])
        return Ordered(schedule, which, graphs, microbatch, *commons[which])

    if for_each_pass:
        made = tuple(function_of(calls_of(*place)) for place in plan.in_rows())
    else:
        made = tuple((in_place if isinstance(fn, torch.nn.Module) else function_of)(calls_of(which))
                     for which, fn in enumerate(captures.callables))
    for known, name in zip(captures.kept, captures.names):
        if known is not None:
            known.settle()
        if known is not None and known.unseen:
            warn(f"reprise: changes of what '{name}' reads would go unseen: {known.unseen}")
    return made


def _device(torch, callables, samples, pool):
    """The GPU that all of it is on."""
    tensors = [t for sample in samples for t in flatten(sample)[0] if isinstance(t, torch.Tensor)]
    tensors += [p for fn in callables if isinstance(fn, torch.nn.Module) for p in fn.parameters()]
    indices = {t.device.index for t in tensors if t.is_cuda} or {torch.cuda.current_device()}
    if isinstance(pool, Pool):
        if pool.kind != "sequence":
            raise ValueError(f"pool is a reprise.Pool of {pool.kind}, and what a forward pass leaves lies there until its "
                             'backward pass has run: pass reprise.Pool("sequence")')
        indices.add(pool.device)
    if len(indices) > 1:
        named = " and ".join(f"cuda:{i}" for i in sorted(indices))
        raise ValueError(f"sample_args, parameters and pool are on {named}, and a graph is of one GPU: "
                         "make the callables of each GPU by a call of its own")
    return torch.device("cuda", indices.pop())


def _check(torch, callables):
    for fn in callables:
        if isinstance(fn, torch.nn.Module):
            check_sharded(torch, list(torch.nn.Module.modules(fn)))
            if fn._backward_hooks or fn._backward_pre_hooks or fn._forward_hooks or fn._forward_pre_hooks:
                raise RuntimeError("modules must not have hooks when they are passed; hooks may be registered "
                                   "afterwards. Those that a capture needs are passed as capture_time_hooks")
            if any(b.requires_grad for b in fn.buffers()):
                raise RuntimeError("only parameters may require gradients, and a buffer does")
