# SPDX-License-Identifier: MIT
"""Graphs for Megatron-core. Nothing of Megatron is imported here.

    import reprise.megatron

    reprise.megatron.capture_layers(model)                      # a graph a layer and pass, or
    forward_backward = reprise.megatron.full_iteration(get_forward_backward_func())
"""

import sys
from enum import Enum

from ._base.need import need_torch
from ._call.graphed import MOST_SHAPES
from ._layers.ddp_hooks import OfMegatron
from ._layers.iteration import Iteration
from ._layers.layers import MICROBATCHES, found_layers, of_chunks

_ATTENTION = ("self_attention", "cross_attention")  # of a transformer layer
_SCOPES = ("attn", "mlp", "moe", "moe_router", "mamba")
_WHOLE = "full"
_NO_MODULE = ("scope has 'moe_preprocess', which is a method of the token dispatcher and no module: leave it out. What "
              "is captured of routed experts otherwise, scope=['moe_router'] says, or no scope at all")
_LAYERS = (("megatron.core.transformer.transformer_layer", "TransformerLayer"),
           ("megatron.core.ssm.mamba_layer", "MambaLayer"))


def capture_layers(model, layers=None, *, microbatches=MICROBATCHES, pool=None, generators=(), strict=False,
                   max_shapes=MOST_SHAPES, ranks=None, scope=None):
    """:func:`reprise.capture_layers` for a model of Megatron's: in the place of ``cuda_graph_impl``.

    Layers are those that Megatron would make graphs of, transformer and Mamba layers, unless they are
    named. Wait hooks of its DistributedDataParallel (``overlap_param_gather``) run ahead of each call of a
    layer; hooks that add gradients up run behind each backward pass, and leave alone what the pass itself
    added to ``main_grad``. Generators of its tracker are found: it has to keep generators
    (``use_cudagraphable_rng=True``) where layers draw.

    Arguments:
        model (module or list of modules): The chunks, as Megatron's ``get_model`` returns them.
        layers, microbatches, pool, generators, strict, max_shapes: As for :func:`reprise.capture_layers`.
        ranks (process group or bool, optional): Likewise. Default: the ranks of the same pipeline stage, as
            Megatron's ``parallel_state`` has them; False: nobody is asked.
        scope (str, or list of these, optional): Parts of the layers, as ``cuda_graph_scope`` names them, by
            text, several with commas, or as its enumeration: ``"attn"``, self and cross attention; ``"mlp"``, dense ones; ``"moe"``,
            all of routed experts, and ``"moe_router"``, their router; ``"mamba"``, Mamba layers. Each module is
            graphs of its own; norms and sums around them stay eager. Default, and ``"full"``: whole layers.

    Call it behind what wraps the model, and ahead of the first step::

        model = get_model(...)
        graphs = reprise.megatron.capture_layers(model)
    """
    torch = need_torch()
    chunks = list(model) if isinstance(model, (list, tuple)) else [model]
    layers = _kinds() if layers is None else layers
    scope = _names_of(scope)
    found = [(chunk, found_layers(torch, chunk, layers)) for chunk in chunks]
    for _, some in found:
        for path, layer in some:
            if hasattr(layer, "cudagraph_manager"):
                raise ValueError(f"{path} has graphs of Megatron's: build the model with cuda_graph_impl='none'")
    if scope:
        found = [(chunk, [part for layer in some for part in _parts_in(torch, scope, *layer)]) for chunk, some in found]
        if not any(some for _, some in found):
            raise ValueError(f"no layer has anything of scope {sorted(scope)}")
    return of_chunks(torch, found, microbatches, pool, generators, strict, max_shapes, OfMegatron(torch),
                     _of_stage() if ranks is None else ranks)


def _names_of(scope):
    """The names of a scope, as a set."""
    scope = scope.replace(" ", "").split(",") if isinstance(scope, str) else scope
    given = () if scope is None else (scope,) if isinstance(scope, Enum) else tuple(scope)
    names = {getattr(one, "name", one) for one in given}
    if names == {_WHOLE}:  # as Megatron said it earlier
        return set()
    if "full_iteration" in names:
        raise ValueError("scope has 'full_iteration', which captures no layers: take reprise.megatron.full_iteration")
    if "moe_preprocess" in names:
        raise NotImplementedError(_NO_MODULE)
    if _WHOLE in names:
        raise ValueError(f"scope has {_WHOLE!r}, which is whole layers, beside parts of them: name one or the other")
    unknown = sorted(map(str, names - set(_SCOPES)))
    if unknown:
        raise ValueError(f"scope has {unknown[0]!r}, but may have {', '.join(_SCOPES)} alone")
    return names


def _parts_in(torch, scope, path, layer):
    """(path, module) of each part of a layer that a scope names; what has no parameters is left out, as layers have
    identities in the place of what they lack."""
    mlp, found = getattr(layer, "mlp", None), []
    if "mamba" in scope and not hasattr(layer, "self_attention") and mlp is None:
        return [(path, layer)]
    if "attn" in scope:
        found += [(name, getattr(layer, name, None)) for name in _ATTENTION]
    router = getattr(mlp, "router", None)
    if ("mlp" if router is None else "moe") in scope:
        found.append(("mlp", mlp))
    elif "moe_router" in scope:
        found.append(("mlp.router", router))
    return [(f"{path}.{name}", module) for name, module in found
            if isinstance(module, torch.nn.Module) and any(True for _ in module.parameters())]


def _kinds():
    """The classes that Megatron makes graphs of; None where it is not loaded, for layers in lists."""
    found = [getattr(sys.modules.get(module), name, None) for module, name in _LAYERS]
    return tuple(kind for kind in found if kind is not None) or None


def _of_stage():
    """The group of the ranks that have the same layers; None where Megatron has none."""
    state = sys.modules.get("megatron.core.parallel_state")
    find = getattr(state, "get_tensor_and_data_parallel_group", None)
    return None if find is None else find(check_initialized=False, with_context_parallel=True)


def full_iteration(forward_backward_func, cuda_graph_warmup_steps=1, *, update=None, pool=None, generators=(),
                   strict=False, watch=(), ranks=True):
    """Forward and backward passes of all microbatches as one graph: in the place of FullCudaGraphWrapper.

    Arguments:
        forward_backward_func (callable): What Megatron's ``get_forward_backward_func()`` returns, or any
            function that is called by keyword with ``forward_step_func``, ``data_iterator``, ``model``,
            ``num_microbatches`` and whatever else.
        cuda_graph_warmup_steps (int): As FullCudaGraphWrapper has it, taken without a difference: the first
            call of each kind is eager, and more are where it finds something to settle.
        update (callable, optional): Called behind the passes of a training step, within the graph, with
            nothing: an optimizer's step that waits for nothing.
        pool, generators, strict, watch: As for :func:`reprise.graphed`; the model is watched.
        ranks (process group or bool): Whose calls come in the same order, as for
            :func:`reprise.capture_layers`. Default: those of all ranks, where ``torch.distributed`` has
            several; False: nobody is asked.

    Returns:
        A callable of the same keyword arguments, which returns what the function returns.

    Each call takes the batches of its microbatches from the data iterators first; ``forward_step_func``
    gets iterators over them. Tensors on the CPU are copied to the GPU; none is copied to a static buffer.
    Training and validation (``forward_only``), numbers of microbatches and shapes have graphs of their own.
    The first call of each kind is eager. Results are fresh tensors.
    """
    return Iteration(need_torch(), forward_backward_func, update, pool, generators, strict, watch, ranks)
