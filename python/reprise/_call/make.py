# SPDX-License-Identifier: MIT
"""reprise.graphed and reprise.graphed_: what makes a graphed callable or module."""

import functools

from .._base import torch_private
from .._base.need import need_gpu, need_torch, why_no_gpu
from .._base.tree import flatten
from .._base.warn import warn
from .._capture.record import VERIFY
from . import module as modules
from .buckets import Bucketed, Buckets
from .graphed import MOST_SHAPES, Graphed
from .policy import Judged, Ungraphed, WithoutGpu
from .progress import Progress

_padding: dict[type, type] = {}  # classes whose calls are padded, by those whose are not
_warned = False  # that there is no GPU
_divided = None  # makes of a kind of Graphed that of callables in parts


def tell_divided(divided):
    """What makes callables in parts stands above (_parts/parts.py), and tells of itself here."""
    global _divided
    _divided = divided


def graphed(fn=None, *, shapes=None, warmup=1, pool=None, name=None, copy_args=False, strict=False,
            watch=(), generators=(), grad="auto", frozen=False, progress=False,
            policy="always", verify=None, max_shapes=MOST_SHAPES, parts=False, buckets=None, axes=None,
            fill="zeros"):
    """Captures a callable's GPU work once for each shape of its arguments, and replays it.

    Arguments:
        fn (callable or torch.nn.Module): Called with tensors and other values in any nesting of
            tuples, lists, dicts and registered containers. It may be a whole training step.
        shapes (iterable of tuples, optional): Arguments to capture ahead, largest first: each a
            tuple of what ``fn`` is called with. Nothing runs but the warm-up, an eager call with the first
            of them: what it trains, counts or draws stays as it leaves it.
        warmup (int): How many first calls run eagerly, so that what the callable creates lazily
            exists. Default: 1.
        pool (reprise.Pool, optional): Where its graphs lie: in it when it is one of alternatives,
            otherwise in such a pool within it. Default: a pool of its own.
        name (str, optional): For reports and errors.
        copy_args (bool): Copy arguments to where the capture had them, at every call: for callables
            that keep an argument's address in device memory, where no capture sees it.
        strict (bool): Raise what keeps a call from being captured, instead of running it eagerly
            and warning.
        watch (iterable): Modules and tensors that ``fn`` uses and that cannot be found as ``fn``
            itself, its owner or what it closes over. When their memory moves, all is captured anew.
            Under :func:`reprise.install` any tensor that ``fn`` uses is known once it is freed, and
            what used it is captured anew; watch those that are replaced while something keeps them.
        generators (iterable of torch.Generator): Those it draws from beside the default one.
        grad (str): ``"split"``: with gradients enabled, forward and backward are two graphs, and
            results take part in autograd. ``"whole"``: the callable is one graph, backward passes
            and optimizer steps inside it included, and results are detached. ``"auto"``: split
            where an argument requires a gradient, ``fn`` is a module with a parameter that does, or
            its results require gradients and no backward pass inside ``fn`` went through them. The
            tensors that these go back to are found in the graph that autograd makes. Where two
            graphs cannot give the gradients of eager calls, calls are eager, with a warning.
            Gradients that a whole graph leaves lie in its memory, until its next call. When the
            last of them is dropped after the graph, the stream of its last call, which has to exist
            then, is waited for. Where graphs read them or add to them (micro-batches, an optimizer's
            step) they get memory of their own instead, for as long as the parameters live, until the
            next call of any graph that makes gradients of these.
        frozen (bool): A promise that modules keep their parameters, buffers, modes and hooks from the
            first capture on, so that calls need not look at them: some 5 ns for each parameter,
            15 with gradients enabled, and, before CPython 3.12, 20 ns for each module. Values of
            parameters may change.
        progress (bool or callable): While ``shapes`` are captured: ``True`` writes a line to standard
            error that rewrites itself, where that is a terminal; a callable is called after each
            shape with how many are done, how many there are, and the facts of its graph.
        policy (str): ``"always"``: what can be captured goes by its graph. ``"auto"``: calls of a
            shape begin eagerly and are timed; it is captured once that may pay, then eager runs
            and graph are measured in turns, and calls go the faster way, looked at again from time
            to time. Forward and backward as two graphs are judged as one: a call is measured
            until the backward pass through its result is enqueued.
            ``"never"``: no graph.
        verify (str, optional): ``"capture"``: each shape is captured once more, to verify with
            arguments at other addresses what two captures prove; an argument that is found elsewhere
            is copied, with a warning in the log of the library. ``"run"``: besides, ``fn`` is run
            twice more and the graph replayed on copies of the arguments, and results have to be
            equal to the bit: for an ``fn`` that changes nothing but its arguments and results. Where
            it draws random numbers, wants gradients, or is captured ahead, ``"capture"`` it is.
        max_shapes (int): How many graphs are kept; of more the one goes that was not used for
            longest. Default: 1024.
        parts (bool): Where calls cannot be captured whole, make graphs of the largest modules in ``fn``
            that can. Its children (of a function: the modules that it uses) become graphed in place, and
            theirs where one is refused too; parts of fewer than three nodes are left eager. Which ones is
            found at the first calls, and told by :meth:`reprise.Graphed.parts` and
            :func:`reprise.report`. They become what they were with :meth:`reprise.Graphed.reset`, or once
            nobody has the result. Not with ``strict``, ``shapes`` or ``buckets``.
        buckets (dict, optional): Named dimensions of tensors among the arguments, along which calls of
            several sizes share a graph: arguments are padded up to the next bucket, and results cut to size.
            Each is a list of sizes, ascending (above the last a size stays as it is); ``"powers of two"``;
            or a number whose multiples are the buckets. Within the true sizes results may not depend on
            what lies beyond, as of an ``fn`` that treats each row by itself. A result without the dimension
            keeps calls of such sizes eager. What ``fn`` writes into arguments is brought back. The first
            padded call of a kind runs eagerly, at its true sizes.
        axes (dict, optional): By dimension, a dict: by argument, its name or position, the axis that has
            it. Default: of a dimension the first axis of all tensors among the arguments.
        fill: What padding holds: ``"zeros"``, so also False in a mask; ``"last"``, the last row again; or a
            number. A dict has them by argument, and those of all others by None. Default: zeros.

    Returns:
        A :class:`reprise.Graphed` with the same arguments. Of a module another module, which shares
        all that ``fn`` has (parameters, mode, hooks, attributes): a copy of it is graphed by itself,
        and what is pickled is ``fn``. Results are fresh tensors, as from ``fn``; no input is copied
        where two captures prove every place that holds its address. Work is enqueued on the current
        stream. Without a GPU calls run eagerly, with one warning, or an error where ``strict``.

    A capture calls ``fn`` more than once, and puts back what that changes of Python state: attributes,
    variables, containers, generators of random numbers. Tensors that ``fn`` assigns (``self.loss = ..``)
    are assigned afresh by each replay; lists among the arguments and dicts are filled, other lists appended
    to and counters raised, where no call reads what it adds to. Where calls change other state (a list whose
    length they use, a cache that is read and replaced), they run eagerly, with a warning that names the place
    and the line.
    State of C++ objects, and of Python's own library, is not looked at.

    Values that are no tensors are part of the key: another value, shape, stride, dtype, device, mode
    (``train``/``eval``, ``no_grad``, autocast) or overlap of arguments is captured anew. So is what
    ``fn`` reads beside its arguments: closures, defaults, globals, attributes of modules and objects,
    containers, small tensors on the CPU, PyTorch's switches. The graph of a value that comes back is
    found again. A value that is new at each of eight calls in a row is warned of by name, and such calls
    are eager from then on. What a replay would not do again (a line printed, a number of ``random`` or
    NumPy drawn, an iterator moved on, the time) is refused, with its line.

    A graph is of one GPU, that of the arguments, which is the current device while ``fn`` is
    captured; of calls without tensors it is the current device. Each GPU has a pool of its own.

    Example::

        model = reprise.graphed(model)
        with torch.no_grad():
            for batch in batches:
                out = model(batch)
    """
    if fn is None:
        return functools.partial(graphed, shapes=shapes, warmup=warmup, pool=pool, name=name,
                                 copy_args=copy_args, strict=strict, watch=watch,
                                 generators=generators, grad=grad, frozen=frozen,
                                 progress=progress, policy=policy, verify=verify,
                                 max_shapes=max_shapes, parts=parts, buckets=buckets, axes=axes, fill=fill)
    if policy not in ("always", "auto", "never"):
        raise ValueError(f"policy is {policy!r}, but has to be always, auto or never")
    if grad not in ("auto", "split", "whole"):
        raise ValueError(f"grad is {grad!r}, but has to be auto, split or whole")
    if not callable(fn):
        raise TypeError(f"fn is a {type(fn).__name__}, which cannot be called")
    if verify not in VERIFY:
        raise ValueError(f"verify is {verify!r}, but has to be None, 'capture' or 'run'")
    if not isinstance(max_shapes, int) or max_shapes < 1:
        raise ValueError(f"max_shapes is {max_shapes!r}, but has to be 1 or more")
    if parts and (strict or shapes is not None):
        raise ValueError("parts are found by calls that are refused: leave out strict and shapes")
    options = (pool, name, warmup, copy_args, strict, watch, generators, grad, frozen, verify,
               max_shapes)
    if parts and buckets:
        raise ValueError("parts have shapes of their own: leave out buckets, or give them to a part")
    if buckets:
        options += (Buckets(modules.plain_of(fn), buckets, axes, fill),)
    return _make(fn, policy, options, shapes, progress, parts)


def graphed_(module, **options):
    """Graphs a module in place: as :func:`reprise.graphed` with the same options, but the object itself
    becomes the graphed module, for whoever holds it.

    Example::

        reprise.graphed_(trainer.model.encoder)
    """
    torch = need_torch()
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module is a {type(module).__name__}, which is no torch.nn.Module: use "
                        "reprise.graphed")
    if modules.is_module(module):
        raise ValueError(f"this {type(module).__name__} is graphed already")
    if not modules.can_be(torch, module):
        raise TypeError(f"a {type(module).__name__} is of TorchScript, and cannot be graphed in place: use "
                        "reprise.graphed")
    plain = modules.twin_of(module)
    made = modules.graphed_of(graphed(plain, **options))
    return modules.change(torch, module, plain, made, functools.partial(graphed_, **options))


def _make(fn, policy, options, shapes, progress, parts):
    torch = need_torch()
    fn = modules.plain_of(fn)
    kind = _kind(torch, policy, options)
    if type(options[-1]) is Buckets:
        kind, options = _bucketed(kind, options)
    made = (_divided(kind) if parts and not kind.is_eager else kind)(fn, *options)
    if shapes is not None and not made.is_eager:
        _capture_ahead(torch, made, shapes, progress)
    if not isinstance(fn, torch.nn.Module) or not modules.can_be(torch, fn):
        return made
    return modules.wrap(torch, fn, made, lambda other: _make(other, policy, options, None, False, parts))


def _bucketed(kind, options):
    """A class whose calls are padded, and what it is made with; eager calls are not."""
    if kind.is_eager:
        return kind, options[:-1]
    if kind not in _padding:
        _padding[kind] = type(kind.__name__, (Bucketed, kind), {"__doc__": kind.__doc__})
    return _padding[kind], options


def _kind(torch, policy, options):
    """The class whose calls go as the policy says."""
    if torch.cuda.is_available():
        _keep_compilers_out(torch)
        return {"always": Graphed, "auto": Judged, "never": Ungraphed}[policy]
    if options[4]:  # strict
        need_gpu()
    global _warned
    if not _warned:
        _warned = True
        warn(f"reprise: what is graphed runs without graphs, as it is: {why_no_gpu(torch)}")
    return WithoutGpu


@functools.lru_cache(maxsize=1)
def _keep_compilers_out(torch):
    """A callable within what torch.compile takes in, as transformers does for a static cache, goes by its graphs."""
    torch_private.keep_compilers_out(torch, [kind.__call__ for kind in (Graphed, Judged, Bucketed)])


def by_size(torch, shapes):
    """The arguments of shapes as tuples, those with the most elements first."""
    def size(args):
        return sum(t.numel() for t in flatten(args)[0] if isinstance(t, torch.Tensor))

    return sorted(map(tuple, shapes), key=size, reverse=True)


def _capture_ahead(torch, made, shapes, progress):
    """Runs the warm-up on the largest, then captures all, largest first."""
    wanted = by_size(torch, shapes)
    progress = Progress(progress, made.name, len(wanted))
    try:
        for args in wanted:
            shape = made.captured(args, {})[0]
            progress(shape.parts()[-1].facts(), made.pools[shape.device.index].info())
    finally:
        progress.close()
