# SPDX-License-Identifier: MIT
"""A function that torch.compile made, called through graphs.

Inductor's functions take a list of all that they read (parameters, activations, sizes) and return fresh
tensors: the contract of a graphed callable. Most of a net's inputs are parameters, which stay where they
are; those are no arguments of the graph, so that nothing is looked up or bound for them.

    Partition   a function of Inductor's; its graphs for each set of places of its fixed inputs
    Variant     such a set, and a Graphed of the inputs that are left
"""

import operator
import threading
import weakref

from .._alloc.pool import Pool
from .._base import torch_private
from .._base.warn import warn
from .._call.graphed import MOST_SHAPES, Graphed
from .._call.policy import Judged

ALIGNMENT = 16     # bytes; Inductor's kernels count on it
MOST_VARIANTS = 4  # sets of places; what lies elsewhere in so many is an argument from then on
MOST_SEEN = 1024   # sets of sizes that are remembered
_BY_GRAPH, _ONCE, _NEVER = range(3)  # how calls of a set of sizes go; _ONCE: one was made, without a graph

# By device: where graphs of all partitions lie.
_pools: weakref.WeakValueDictionary[object, Pool] = weakref.WeakValueDictionary()
# By where its storage begins, a weak reference to each input of forward passes that stays where it is:
# backward passes read those too.
_fixed: dict[int, weakref.ref] = {}
_lock = threading.RLock()


def _pool(device):
    """The pool of a device. What partitions keep is fresh, so they can lie over each other."""
    with _lock:
        pool = _pools.get(device)
        if pool is None:
            pool = _pools[device] = Pool("alternatives", name="torch.compile", device=device)
        return pool


class Variant:
    """A function of the inputs that are not fixed, and its graphs.

    Attributes:
        fixed (list): Numbers of the fixed inputs.
        places (list): Where each of them lies, at its number; None at those of others.
    """

    def __init__(self, partition, fixed, inputs):
        self.fixed = list(fixed)
        self.places = [None] * len(inputs)
        for i in fixed:
            self.places[i] = inputs[i].data_ptr()
        moving = [i for i, place in enumerate(self.places) if place is None]
        self._partition = partition
        self._moving = moving
        self._take = _taker(moving)
        self._here = threading.local()
        self._graphed = partition.kind(self._run, _pool(partition.device), partition.name, 1, False, False,
                                       (), (), "whole", True, None, MOST_SHAPES)

    def __call__(self, inputs):
        """The function's results; the list is empty afterwards, as Inductor's functions leave it."""
        moving = self._take(inputs)
        self._here.inputs = inputs
        try:
            return self._graphed(*moving)
        finally:
            self._here.inputs = None
            inputs.clear()

    def _run(self, *moving):
        """Runs the function, in captures with tensors of their own. The fixed inputs are those of the call
        that is under way: nothing keeps them else."""
        given = list(self._here.inputs)
        for i, value in zip(self._moving, moving):
            given[i] = value
        return self._partition.run(given)


def _taker(moving):
    """A function that picks these of a list, as a tuple."""
    if len(moving) > 1:
        return operator.itemgetter(*moving)
    return (lambda inputs: (inputs[moving[0]],)) if moving else (lambda inputs: ())


class Partition:
    """A function of Inductor's, of one list. Calls of several threads are safe.

    Arguments:
        torch: PyTorch.
        model: The function, which empties the list.
        fixed: Numbers of the inputs that Inductor takes for fixed. In backward passes those are saved
            activations too, which are not: they are fresh in each call here.
        written: Numbers of the inputs that it writes to.
        device (int): Index of the GPU.
        is_backward (bool): Is it a part of a backward pass?
        name (str): For reports and errors.
        policy (str): ``"always"`` or ``"auto"``: by graphs, or the faster way of each shape, as it is
            measured. Results are fresh either way, so forward and backward passes are chosen for each by
            itself, and their sum is the least. A backward pass of attention goes the way that its forward
            pass went: the two have to agree where the places of random numbers lie.
    """

    def __init__(self, torch, model, fixed, written, device, is_backward, name, policy="always"):
        self.kind = Judged if policy == "auto" else Graphed
        self.model = model
        self.device = device
        self.name = name
        self._torch = torch
        self._lie_at = torch_private.of(torch).lie_at
        self._captures = torch.cuda.is_current_stream_capturing
        self._told = frozenset(fixed)
        self._written = frozenset(written)
        self._is_backward = is_backward
        self._fixed = None      # numbers of inputs; None: there was no call yet
        self._aligned = ()      # of those that have to be
        self._variants = {}
        self._latest = None
        self._seeds = ()        # of a backward pass, single integers, on the CPU or not
        self._latest_seeds = None
        self._reads_seeds = False  # are they the places of attention's random numbers?
        self._sizes = {}        # symbolic integers of calls, and how these go
        self._take_sizes = None

    def __call__(self, inputs):
        if self._fixed is None:
            self._sort(inputs)
        if self._captures():  # a capture around it takes what the function launches, and measures nothing
            return self._without_graph(inputs)
        if self._take_sizes is not None:
            sizes = self._take_sizes(inputs)
            if self._sizes.get(sizes) != _BY_GRAPH and not self._meet(sizes):
                return self._without_graph(inputs)
        if self._seeds and self._is_new_seed(inputs):
            return self._without_graph(inputs)
        variant = self._latest
        if variant is None or not self._lie_at(inputs, variant.places, variant.fixed):
            variant = self._variant(inputs)
        copied = self._align(inputs)
        results = variant(inputs)
        return self._bring_back(results, copied) if copied else results

    def _is_new_seed(self, inputs):
        """Are there integers on the CPU that no call before had? Attention that drops out leaves them for its
        backward pass, where it drew random numbers eagerly; behind a graph they lie on the GPU. A graph
        would hold each for good, and attention in a graph takes the CPU's for addresses on the GPU."""
        seeds = [inputs[i].item() for i in self._seeds if inputs[i].is_cpu]
        if seeds and self._reads_seeds:
            return True
        if not seeds or seeds == self._latest_seeds:
            return False
        before, self._latest_seeds = self._latest_seeds, seeds
        return before is not None

    def _without_graph(self, inputs):
        copied = self._align(inputs)
        results = self.run(inputs)
        return self._bring_back(results, copied) if copied else results

    def run(self, inputs):
        """Runs the function. Attention's backward pass reads seed and offset on the host, unless it is captured
        (at::native::_efficient_attention_backward): those that a graph's forward pass left on the GPU come to
        the CPU, and the stream is synchronised."""
        if self._reads_seeds and not self._captures():
            for i in self._seeds:
                if inputs[i].is_cuda:
                    inputs[i] = inputs[i].cpu()
        return self.model(inputs)

    def _sort(self, inputs):
        """Which inputs stay where they are: by what Inductor says, where it is right, and parameters."""
        torch, fixed = self._torch, []
        for i, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor) or not value.is_cuda or value.data_ptr() % ALIGNMENT:
                continue
            if self._is_backward:
                if isinstance(value, torch.nn.Parameter) or _is_fixed(value):
                    fixed.append(i)
            elif isinstance(value, torch.nn.Parameter) or i in self._told:
                fixed.append(i)
                _note_fixed(value)
        sizes = [i for i, value in enumerate(inputs) if isinstance(value, int)]
        if self._is_backward:
            self._seeds = tuple(i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor) and (
                value.dtype is torch.int64 and value.dim() == 0))
            if self._seeds and _has_attention(self.model):
                self._reads_seeds, self.kind = True, Graphed
        with _lock:
            if self._fixed is None:
                self._take_sizes = operator.itemgetter(*sizes) if sizes else None
                self._set_fixed(fixed, inputs)

    def _meet(self, sizes):
        """Is a call of these sizes, which have no graph, to have one? Those that the configuration leaves out
        have none. Of more than its limit for warnings each has one from its second call on: where sizes do
        not come back, captures are for nothing."""
        config = torch_private.graph_options(self._torch)
        with _lock:
            had = self._sizes.get(sizes)
            if had is None and config.get("sizes") is not None and sizes not in config["sizes"]:
                had = self._sizes[sizes] = _NEVER
            if had == _NEVER:
                return False
            count = sum(way == _BY_GRAPH for way in self._sizes.values())
            limit = config.get("limit")
            if had is None and limit is not None and count >= limit:
                if count == limit and _ONCE not in self._sizes.values():
                    warn(f"reprise: '{self.name}' is called with more than {limit} sets of sizes, of which each "
                         "has a graph of its own. Further ones have one from their second call on. Where they "
                         "are many, mark fewer dimensions dynamic or pad to fewer sizes: "
                         "reprise.compile(fn, buckets=...)")
                if len(self._sizes) >= MOST_SEEN:
                    self._forget_once()
                self._sizes[sizes] = _ONCE
                return False
            self._sizes[sizes] = _BY_GRAPH
            return True

    def _forget_once(self):
        """Under the lock."""
        self._sizes = {key: way for key, way in self._sizes.items() if way != _ONCE}

    def _set_fixed(self, fixed, inputs):
        of_device = [i for i, v in enumerate(inputs) if isinstance(v, self._torch.Tensor) and v.is_cuda]
        self._aligned = tuple(sorted(set(of_device) - set(fixed)))
        self._fixed = tuple(fixed)
        self._variants.clear()
        self._latest = None

    def _variant(self, inputs):
        with _lock:
            places = tuple(inputs[i].data_ptr() for i in self._fixed)
            if places not in self._variants and len(self._variants) >= MOST_VARIANTS:
                self._free_those_that_move(places, inputs)
                places = tuple(inputs[i].data_ptr() for i in self._fixed)
            if places not in self._variants:
                self._variants[places] = Variant(self, self._fixed, inputs)
            self._latest = self._variants[places]
            return self._latest

    def _free_those_that_move(self, places, inputs):
        """Inputs that lay elsewhere in each of many calls are arguments from now on."""
        seen = list(zip(*self._variants, places))
        counts = [len(set(at)) for at in seen]
        most = max(counts)
        self._set_fixed([i for i, count in zip(self._fixed, counts) if count < most], inputs)

    def _align(self, inputs):
        """Copies inputs that lie where Inductor's kernels cannot read them. Returns (number, original, copy) of
        each."""
        copied = ()
        for i in self._aligned:
            value = inputs[i]
            if value.data_ptr() % ALIGNMENT:
                inputs[i] = _copy(value)
                copied = (*copied, (i, value, inputs[i]))
        return copied

    def _bring_back(self, results, copied):
        """What was written to copies; a copy that is a result is the original. A partition hands inputs on
        to the next one as results, which may write to them."""
        for i, original, copy in copied:
            if i in self._written:
                original.copy_(copy)
        return [next((original for _, original, copy in copied if self._is_same(result, copy)), result)
                for result in results]

    def _is_same(self, result, copy):
        return isinstance(result, self._torch.Tensor) and result.data_ptr() == copy.data_ptr() and (
            (result.shape, result.stride()) == (copy.shape, copy.stride()))


def _has_attention(function):
    """Does the function's own code name an operator of attention?"""
    code = getattr(function, "__code__", None)
    return code is not None and any("attention" in name for name in code.co_names)


def _note_fixed(tensor):
    begin = tensor.untyped_storage().data_ptr()
    _fixed[begin] = weakref.ref(tensor, lambda ref: _fixed.get(begin) is ref and _fixed.pop(begin))


def _is_fixed(tensor):
    """Does it lie in the memory of a fixed input that is there still? Others get that memory afterwards."""
    begin = tensor.untyped_storage().data_ptr()
    ref = _fixed.get(begin)
    kept = None if ref is None else ref()
    return kept is not None and kept.untyped_storage().data_ptr() == begin


def _copy(tensor):
    """A copy with the same strides, which Inductor's kernels count on as well."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    elements = last + 1 if tensor.numel() else 0
    return tensor.as_strided((elements,), (1,)).clone().as_strided(tensor.shape, tensor.stride())
