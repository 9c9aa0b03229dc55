# SPDX-License-Identifier: MIT
"""reprise.capture_layers: the layers of a model become graphs by themselves, in whatever order a schedule calls
them."""

import gc

from .. import _C
from .._alloc.install import drop_segment_pools
from .._base.need import need_torch, why_no_gpu
from .._base.warn import warn
from .._call.graphed import MOST_SHAPES, Graphed
from .._parts.parts import Part, Parts
from .lane import LayerLane, Surroundings
from .ranks import Ranks

MICROBATCHES = 8


def capture_layers(model, layers=None, *, microbatches=MICROBATCHES, pool=None, generators=(), strict=False,
                   max_shapes=MOST_SHAPES, ranks=None):
    """Makes layers of a model graphs, in place, for training by any schedule of microbatches.

    The first call of each layer is eager; what it is called with decides what is captured. From then on
    forward and backward pass of each layer are a graph each. Microbatches that wait for their backward
    passes at the same time have graphs of their own, and those that do not share them: a pipeline has as
    many graphs of a layer as microbatches are under way at once, whatever their number in a step. No
    order is given: it follows from the calls.

    Arguments:
        model (torch.nn.Module, or list of these): What is called for each microbatch. Of a list, as the
            chunks of an interleaved pipeline, each has memory of its own.
        layers (iterable of modules, class, tuple of classes or function, optional): Which modules in it:
            these, those of a class, or those for which ``layers(module)`` is true. Of modules within one
            another the outer one is taken. Default: the items of ``torch.nn.ModuleList``\\ s of two or
            more of one class.
        microbatches (int): Most that wait for their backward passes at a time. Calls of more run
            eagerly, with a warning.
        pool (reprise.Pool, optional): What their memory lies in.
        generators (iterable of torch.Generator): Those that layers draw from beside the default one.
            Those of Megatron's and Transformer Engine's trackers are found.
        strict (bool): Raise what keeps a call from being captured, and microbatches too many.
        max_shapes (int): How many graphs a layer keeps.
        ranks (process group or bool, optional): A group of ``torch.distributed`` whose ranks call the same
            layers in the same order; True: all. At the first calls of each layer they tell one another, by
            the store, which way these go: a rank that goes another way, or does not come, raises
            ``RuntimeError``, which names it. Default: nobody is asked.

    Returns:
        A :class:`reprise.LayerGraphs`.

    All that :func:`reprise.graphed` tells of modules holds for each layer: keyword arguments, other
    shapes, values and modes have graphs of their own, hooks on parameters run in each call, what a layer
    reads is compared. A layer that cannot be captured is divided into its modules, and the rest of the
    model runs as it did. Without a GPU the model stays as it is, with a warning. Layers of the model that
    are graphs already are released first, as :meth:`LayerGraphs.release` does.

    Example::

        reprise.capture_layers(model)                 # before the first step
        for batch in batches:
            loss = loss_of(model(batch))
            loss.backward()
    """
    torch = need_torch()
    chunks = list(model) if isinstance(model, (list, tuple)) else [model]
    for chunk in chunks:
        if not isinstance(chunk, torch.nn.Module):
            raise TypeError(f"a model is a module, or a list of modules, and this is a {type(chunk).__name__}")
        _release_earlier(chunk)
    return of_chunks(torch, [(chunk, found_layers(torch, chunk, layers)) for chunk in chunks], microbatches, pool,
                     generators, strict, max_shapes, Surroundings(), ranks)


def of_chunks(torch, chunks, microbatches, pool, generators, strict, max_shapes, surroundings, ranks=None):
    """The LayerGraphs of chunks, each (module, layers), with what a framework does around them."""
    found = sum(len(layers) for _, layers in chunks)
    if not found:
        raise ValueError("no layers were found: name them, layers=[...], or their class, layers=Block")
    if microbatches < 1:
        raise ValueError(f"microbatches is {microbatches}, but has to be at least 1")
    if not torch.cuda.is_available():
        warn(f"reprise: the {found} layers run without graphs, as they are: {why_no_gpu(torch)}")
        chunks = []
    options = (pool, None, 1, False, strict, (), tuple(generators), "auto", False, None, max_shapes)
    asked = None if ranks is None or ranks is False else Ranks(torch, ranks)
    return LayerGraphs([_captured(torch, chunk, layers, options, microbatches, surroundings, asked)
                        for chunk, layers in chunks])


def _captured(torch, chunk, layers, options, microbatches, surroundings, ranks):
    parts = Parts(torch, type(chunk).__name__, Graphed, options, LayerLane, microbatches)
    parts.strict, parts.surroundings, parts.told_too_many = options[4], surroundings, False
    parts.ranks = ranks
    parts.root = Part(type(chunk).__name__, type(chunk).__name__)
    parts.root.children = parts.divide(parts.root, [(name, layer) for name, layer in layers])
    begin = _Begin(parts.rounds)
    return parts, begin, chunk.register_forward_pre_hook(begin)


def _release_earlier(chunk):
    """Layers that are graphs already become what they were."""
    for hook in list(chunk._forward_pre_hooks.values()):
        if type(hook) is _Begin and hook.graphs is not None:
            hook.graphs.release()


class _Begin:
    """A hook ahead of a microbatch: its round is one in which nothing waits. Copies of the model, whose layers have no
    graphs, have one that does nothing. graphs: the LayerGraphs that it is of."""

    def __init__(self, rounds=None):
        self.rounds = rounds
        self.graphs = None

    def __call__(self, *_):
        if self.rounds is not None:
            self.rounds.look()
            self.rounds.begin()

    def __reduce__(self):
        return _Begin, ()


def found_layers(torch, model, layers):
    """(name, module) of each, none within another."""
    if layers is None:
        return _of_lists(torch, model)
    if isinstance(layers, (type, tuple)) and all(isinstance(k, type) for k in _each(layers)):
        kinds = layers
        return _outermost(model, lambda module: isinstance(module, kinds))
    if callable(layers) and not isinstance(layers, torch.nn.Module):
        return _outermost(model, layers)
    wanted = {id(layer): layer for layer in _each(layers)}
    found = _outermost(model, lambda module: id(module) in wanted)
    missing = [type(layer).__name__ for layer in wanted.values() if all(layer is not f for _, f in found)]
    if missing:
        raise ValueError(f"{missing[0]} is no module of the model, or lies within another layer")
    return found


def _each(value):
    return value if isinstance(value, (tuple, list)) else (value,) if isinstance(value, type) else tuple(value)


def _of_lists(torch, model):
    def is_list(module):
        return isinstance(module, torch.nn.ModuleList) and len(module) > 1 and (
            len({type(layer) for layer in module}) == 1)
    return [(f"{name}.{i}", layer) for name, found in _outermost(model, is_list) for i, layer in enumerate(found)]


def _outermost(model, wanted, path=""):
    """(path, module) of those within the model for which that is true, and which lie in no other one. Each
    once."""
    found, seen = [], set()

    def look(module, path):
        for name, child in module.named_children():
            if id(child) in seen:
                continue
            seen.add(id(child))
            here = f"{path}.{name}" if path else name
            if wanted(child):
                found.append((here, child))
            else:
                look(child, here)
    look(model, path)
    return found


class LayerGraphs:
    """The graphs of a model's layers, as :func:`reprise.capture_layers` made them. The model keeps them alive."""

    def __init__(self, chunks):
        self._kept = [parts for parts, _, _ in chunks]
        for _, begin, _ in chunks:
            begin.graphs = self
        self._handles = [handle for _, _, handle in chunks]

    def layers(self):
        """What became of each layer: a list of dicts with ``name``, ``kind``, its class; ``way``, as of
        :meth:`reprise.Graphed.parts`; ``graphs``, how many it has; ``lanes``, of how many microbatches that
        wait at once; ``reason`` and ``line``, why a call of it was not captured, or None."""
        return [part.facts() for parts in self._kept for part in parts.known.values()]

    def release(self):
        """Makes the layers what they were before, and drops their graphs."""
        for parts in self._kept:
            parts.reset()
            parts.surroundings.give_back()
        for handle in self._handles:
            handle.remove()
        self._kept, self._handles = [], []
        gc.collect()  # what graphs were captured for may lead back to them
        drop_segment_pools()
        _C.sweep()
