# SPDX-License-Identifier: MIT
"""Symbolic sizes of torch.compile in buckets: what was compiled is called with arguments that are padded.

Dynamo hands a backend a graph of FX for each frame, whose sizes are numbers or symbols. Of a symbol that stands
for a named dimension (_call/buckets.py) a call takes the next bucket: inputs are padded, the symbol has the
bucket's size, and results are cut. Inductor compiles for the symbol as ever, so pieces have a graph for each
bucket. All that decides is in the graph: which sizes are the dimension, which results have it, and
what the frame writes to. Nothing has to run at true sizes to tell.

    PaddedFrame  what was compiled of a frame, in front of which inputs are padded
"""

import weakref

from .._base import torch_private
from .._base.warn import warn
from .._call.buckets import Use, padded, version_of

_LARGE = 1024  # sets of sizes that are remembered
_frames: weakref.WeakSet[object] = weakref.WeakSet()


def every_padded():
    """Those that there are."""
    return list(_frames)


class Unpadded(Exception):
    """Why a frame is called at its true sizes: a sentence's end."""


def traced(torch, model):
    """(node, value, was it written to?) of each input of a graph, as it was traced. To be asked before it is
    compiled, which may write to the value."""
    nodes = [node for node in model.graph.nodes if node.op == "placeholder"]
    return [(node, node.meta.get("example_value"), _is_written(torch, node)) for node in nodes]


def around(torch, compiled, model, inputs, buckets, name):
    """What was compiled of a graph, with its symbolic sizes in buckets; itself where it has none. inputs: as
    traced() told."""
    try:
        frame = PaddedFrame(torch, compiled, model, inputs, buckets, name)
    except Unpadded as why:
        warn(f"reprise: '{name}' takes each size as it is, not the next bucket: {why}")
        return compiled
    return frame if frame.symbols else compiled


class PaddedFrame:
    """Called as what was compiled, and from several threads.

    Arguments:
        model: The graph of FX.
        inputs: Its inputs, as traced() told of them.
        buckets: A Buckets.

    Attributes:
        symbols (dict): By symbol of a padded size: its dimension.
    """

    def __init__(self, torch, compiled, model, inputs, buckets, name):
        self.name = name
        self._torch = torch
        self._compiled = compiled
        self._inputs = [_Input(torch, value, is_written) for _, value, is_written in inputs]
        nodes = [node for node, _, _ in inputs]
        self.symbols = self._find_symbols(buckets, [torch_private.input_of(torch, node) for node in nodes])
        self._results = self._find_results(model, nodes) if self.symbols else []
        self._integers = [(i, one.symbol) for i, one in enumerate(self._inputs) if one.symbol is not None]
        self._padded = [(i, one) for i, one in enumerate(self._inputs) if one.axes]
        self._guards = torch_private.size_guards(
            [value for _, value, _ in inputs if isinstance(value, torch.SymInt)])
        self._can = {}    # by the sizes of all symbols in buckets: can they be called with these?
        self._uses = {}   # by the sizes of the dimensions
        _frames.add(self)

    # ---- What the graph tells ----

    def _find_symbols(self, buckets, origins):
        """By symbol its dimension. Tells each input which of its axes are padded, and with what."""
        found, by_dim = {}, {}
        for one, (name, position, _) in zip(self._inputs, origins):
            if one.sizes is None or name is None:
                continue
            one.rule = buckets.rule(name, position)
            for dim, axis in buckets.axes(name, position, len(one.sizes)):
                symbol = one.sizes[axis]
                if not _is_symbol(symbol):
                    continue
                if by_dim.setdefault(dim, symbol) != symbol:
                    raise Unpadded(f"the dimension '{dim.name}' has several symbolic sizes among its arguments. "
                                   "Name the axes that have it, axes={...}")
                found[symbol] = dim
                one.axes.append((axis, symbol))
        for one, (_, _, is_size) in zip(self._inputs, origins) if found else ():
            if one.symbol in found and not is_size:
                raise Unpadded(f"an integer among its inputs is the size of the dimension '{found[one.symbol].name}'")
            one.check(found, {other.symbol for other in self._inputs})
            if one.axes and sum(other.storage == one.storage for other in self._inputs) > 1:
                raise Unpadded(f"an input of shape {one.sizes} shares its memory with another one")
        return found

    def _find_results(self, model, nodes):
        """Of each result (axis, symbol) pairs that it is cut along; of a size an expression; else None."""
        reached = {node for node, one in zip(nodes, self._inputs)
                   if one.axes or one.is_written or one.symbol in self.symbols}
        for node in model.graph.nodes:
            if reached.intersection(node.all_input_nodes) or _is_written(self._torch, node):
                reached.add(node)
        output = next(node for node in model.graph.nodes if node.op == "output")
        results = output.args[0]
        results = results if isinstance(results, (list, tuple)) else (results,)
        return [self._result(i, node, node in reached) for i, node in enumerate(results)]

    def _result(self, number, node, is_reached):
        value = node.meta.get("example_value") if hasattr(node, "meta") else None
        if isinstance(value, self._torch.SymInt):
            size = _expression(value)
            return size if _free(size) & self.symbols.keys() else None
        if not isinstance(value, self._torch.Tensor):
            if is_reached and value is not None and not isinstance(value, int):
                raise Unpadded(f"result {number} is a {type(value).__name__}, and might depend on what lies beyond "
                               "the true sizes")
            return None
        places = [(axis, _expression(n)) for axis, n in enumerate(value.shape)
                  if _free(_expression(n)) & self.symbols.keys()]
        if any(not _is_symbol(symbol) for _, symbol in places) or (
                is_reached and {symbol for _, symbol in places} != set(self.symbols)):
            raise Unpadded(f"result {number}, of shape {tuple(value.shape)}, does not have each padded dimension "
                           "on an axis of its size, and might depend on what lies beyond the true sizes. Compute "
                           "it of the others, behind the call")
        return tuple(places)

    # ---- Calls ----

    def __call__(self, *inputs):
        true = {symbol: inputs[i].shape[axis] for i, one in self._padded for axis, symbol in one.axes}
        taken = {symbol: self.symbols[symbol].bucket(size) for symbol, size in true.items()}
        sizes = {symbol: inputs[i] for i, symbol in self._integers}
        if taken == true or not self._takes({**sizes, **taken}):
            self._note(true, true)
            return self._compiled(*inputs)
        self._note(true, taken)
        results, given = self._call_padded(inputs, {**sizes, **taken})
        for i, one, value, is_written in given:
            if is_written and value is not inputs[i]:
                inputs[i].detach().copy_(one.cut(value.detach(), inputs[i]))
        return self._cut(results, {**sizes, **true})

    def _call_padded(self, inputs, sizes):
        """What such a call returns, and of each padded input (number, input, tensor, was it written to?)."""
        given = list(inputs)
        for i, symbol in self._integers:
            given[i] = sizes[symbol]
        for i, one in self._padded:
            given[i] = one.padded(self._torch, inputs[i], sizes)
        before = [version_of(given[i]) for i, _ in self._padded]
        results = self._compiled(*given)
        return results, [(i, one, given[i], one.is_written or had is None or version_of(given[i]) != had)
                         for (i, one), had in zip(self._padded, before)]

    def _takes(self, sizes):
        """Was it compiled for calls of such sizes, and can inputs be laid out so?"""
        at = tuple(sizes.values())
        can = self._can.get(at)
        if can is None:
            can = self._guards([sizes[symbol] for _, symbol in self._integers]) and all(
                one.fits(sizes) for _, one in self._padded)
            if len(self._can) >= _LARGE:
                self._can.clear()
            self._can[at] = can
        return can

    def _cut(self, results, sizes):
        cut = []
        for value, places in zip(results, self._results):
            if isinstance(places, tuple):
                for axis, symbol in places:
                    value = value.narrow(axis, 0, sizes[symbol])
            elif places is not None:
                value = int(places.xreplace(sizes))
            cut.append(value)
        return type(results)(cut)

    def _note(self, true, taken):
        at = tuple((dim.name, taken[symbol]) for symbol, dim in self.symbols.items())
        self._uses.setdefault(at, Use()).note(true.values(), taken.values())

    # ---- Facts ----

    def buckets(self):
        """As Graphed.buckets()."""
        return [{"sizes": dict(at), **use.facts()} for at, use in list(self._uses.items())]


class _Input:
    """An input of a frame.

    Attributes:
        symbol: What stands for it, of a symbolic integer; else None.
        sizes, strides: Of a tensor, numbers and expressions; else None.
        storage: A number that those which share memory have in common.
        is_written: Was it written to while it was traced?
        axes (list): (axis, symbol) of each padded size.
        rule: What padding holds.
    """

    def __init__(self, torch, value, is_written):
        is_tensor = isinstance(value, torch.Tensor)
        self.symbol = _expression(value) if isinstance(value, torch.SymInt) else None
        self.sizes = tuple(map(_expression, value.shape)) if is_tensor else None
        self.strides = tuple(map(_expression, value.stride())) if is_tensor else None
        self.storage = value.untyped_storage()._cdata if is_tensor else None
        self.is_written = is_written
        self.axes, self.rule = [], "zeros"

    def check(self, padded_sizes, integers):
        """Raises where padding others would leave this one wrong, or where it cannot be padded. integers: symbols
        whose values calls give."""
        if self.sizes is None:
            return
        text = f"an input of shape {self.sizes}"
        at = {axis for axis, _ in self.axes}
        if any(axis not in at and _free(n) & padded_sizes.keys() for axis, n in enumerate(self.sizes)):
            raise Unpadded(f"{text} has a padded size on an axis that is none of the dimension's. Name the axes "
                           "that have it, axes={...}")
        if self.axes and not integers.issuperset(set().union(*map(_free, self.sizes + self.strides)) - {
                symbol for _, symbol in self.axes}):
            raise Unpadded(f"{text} has strides that calls do not tell. Give a contiguous one")
        if self.is_written and not self.axes:
            raise Unpadded(f"{text} is written to, where what lies beyond the true sizes might get to")

    def fits(self, sizes):
        """Has each element of a tensor of such sizes memory of its own?"""
        end = 1
        for stride, n in sorted(zip(_numbers(self.strides, sizes), _numbers(self.sizes, sizes))):
            if n > 1 and stride < end:
                return False
            end = max(end, (n - 1) * stride + 1)
        return True

    def padded(self, torch, value, sizes):
        """The tensor with more along its padded axes, laid out as it was compiled for."""
        given = value
        for axis, symbol in self.axes:
            if value.shape[axis] < sizes[symbol]:
                value = padded(torch, value, axis, sizes[symbol], self.rule)
        strides = tuple(_numbers(self.strides, sizes))
        if value is given or value.stride() == strides:
            return value
        return value.new_empty_strided(value.shape, strides).copy_(value)

    def cut(self, value, like):
        for axis, _ in self.axes:
            value = value.narrow(axis, 0, like.shape[axis])
        return value


def _expression(size):
    """What stands for a symbolic integer; a number itself."""
    return size if isinstance(size, int) else size.node.expr


def _is_symbol(size):
    return getattr(size, "is_Symbol", False)


def _free(size):
    """The symbols of a size."""
    return set() if isinstance(size, int) else set(size.free_symbols)


def _numbers(expressions, sizes):
    return [n if isinstance(n, int) else int(n.xreplace(sizes)) for n in expressions]


def _is_written(torch, node):
    """Is what a node makes written to by others? What gets there is not told apart."""
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and version_of(value) not in (0, None)
