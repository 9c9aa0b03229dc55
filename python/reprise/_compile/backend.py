# SPDX-License-Identifier: MIT
"""torch.compile(fn, backend="reprise"), and reprise.compile(fn)."""

from .._base import torch_private
from .._base.need import need_gpu
from .._call.buckets import Buckets
from . import padded, trees

MODE = "reduce-overhead"


def backend(model, inputs, *, mode=None, options=None):
    """What torch.compile calls with a graph of FX: Inductor, with graphs of ours. The package's entry point
    among ``torch_dynamo_backends``.

    Arguments:
        mode (str, optional): One of torch.compile's. Default: ``"reduce-overhead"``.
        options (dict, optional): Inductor's, as for torch.compile; they win over the mode's. And ``policy``:
            ``"always"``, or ``"auto"``: each piece of the forward and backward pass goes by its graph
            where that is measured to be faster, for each shape by itself. Default: ``"always"``. And
            ``buckets``, ``axes`` and ``fill``, as for :func:`compile`.

    Raises :class:`reprise.Error` where PyTorch lacks what it takes."""
    torch = need_gpu()
    private = torch_private.of(torch)
    private.need(torch_private.COMPILED)
    trees.serve()
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx
    options = dict(options or {})
    policy = options.pop("policy", "always")
    if policy not in ("always", "auto"):
        raise ValueError(f"policy is {policy!r}, but has to be always or auto")
    given, axes, fill = options.pop("buckets", None), options.pop("axes", None), options.pop("fill", "zeros")
    buckets = Buckets(None, given, axes, fill) if given else None
    context = private.compile_context.try_get()
    trees.ask_for(context, policy)
    patches = {**list_mode_options(mode or MODE), **options, "triton.cudagraphs": True}
    traced = padded.traced(torch, model) if buckets else None
    compiled = compile_fx(model, inputs, config_patches=patches)
    if buckets is None:
        return compiled
    name = f"compiled {'' if context is None else context.compile_id}"
    return padded.around(torch, compiled, model, traced, buckets, name)


def compile(fn=None, *, buckets=None, axes=None, fill="zeros", **options):
    """Compiles a callable or module with torch.compile, whose partitions are called through graphs.

    These graphs bind arguments and return fresh results as those of :func:`reprise.graphed` do, and lie over
    each other in one pool for each GPU: nothing has to be cloned, and no step marked. Inductor cuts a function where
    something cannot be captured, and each partition has a graph for each shape. Under
    :func:`reprise.install` ``torch.compile(fn, mode="reduce-overhead")`` does the same.

    Arguments:
        fn (callable or torch.nn.Module): As for ``torch.compile``.
        buckets (dict, optional): Named dimensions, along which calls of several sizes share graphs, as for
            :func:`reprise.graphed`, whose rules for results hold too. Only sizes that ``torch.compile`` has
            symbols for are padded: those that are marked (``torch._dynamo.mark_dynamic``), or met a second
            size. Each frame's arguments are padded and its results cut, so that Python between
            graph breaks sees true sizes. A frame is called at true sizes, with a warning, where a result
            lacks the dimension, or where it writes to what is not padded.
        axes (dict, optional): As for :func:`reprise.graphed`. Behind a graph break, names are those of the
            frame's variables.
        fill: As for :func:`reprise.graphed`.
        options: As for ``torch.compile``, without ``backend``. Default of ``mode``:
            ``"reduce-overhead"``.

    Returns:
        What ``torch.compile`` returns.

    Example::

        model = reprise.compile(model)
    """
    torch = need_gpu()
    if buckets:
        options["options"] = {**(options.get("options") or {}), "buckets": buckets, "axes": axes, "fill": fill}
    return torch.compile(fn, backend=backend, **options)
