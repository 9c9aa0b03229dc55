# SPDX-License-Identifier: MIT
"""Orders of passes, of callables and of chunks of several, and which sample each pass has."""

import math

from .._grad.order import Pass, parse

HALVES = ("order[{}] is {}: weight gradients as graphs of their own (backward_dw, delay_wgrad_compute) are not "
          "captured. Leave them in the backward pass (delay_wgrad_compute=False), or capture the whole step, "
          "reprise.graphed(step, grad=\"whole\")")


class Plan:
    """passes: as they run; microbatches: how many each callable has; samples: by (callable, microbatch) the
    index of its sample; chunks: the callables of each, as ranges."""

    def __init__(self, order, count, samples, layers=None, of_engine=False):
        """order: None: all forward, and back. layers: how many callables each chunk has, a number or one for
        each; of_engine: without layers, chunks are as Transformer Engine takes them."""
        if order is None:
            if layers is not None:
                raise ValueError("num_layers_per_chunk is given, and no order: chunks are those that order names")
            order = [*range(1, count + 1), *range(-count, 0)]
        order = [_whole(place, number) for place, number in enumerate(order)]
        self.chunks = _chunks(order, count, layers, of_engine)
        self.passes = list(_expanded(parse(order, len(self.chunks)), self.chunks))
        self.microbatches = [0] * count
        for which, microbatch, _ in self.passes:
            self.microbatches[which] = max(self.microbatches[which], microbatch + 1)
        self.samples = self._samples(count, samples)

    def _samples(self, count, samples):
        every = [(i, m) for i in range(count) for m in range(self.microbatches[i])]
        if samples == count:
            return {(i, m): i for i, m in every}
        if samples != len(every):
            raise ValueError(f"there are {count} callables and {samples} sets of sample arguments: order has "
                             f"{len(every)} forward passes, so {count} or {len(every)} are wanted")
        return {place: i for i, place in enumerate(self.in_rows())}

    def in_rows(self):
        """(callable, microbatch) of each, as Transformer Engine numbers them: by chunk, by microbatch, by
        layer."""
        return [(i, m) for chunk in self.chunks for m in range(self.microbatches[chunk[0]]) for i in chunk]


def _whole(place, number):
    if isinstance(number, float):
        if number.is_integer():
            return int(number)
        if math.isfinite(number):
            raise NotImplementedError(HALVES.format(place, number))
    return number


def _chunks(order, count, layers, of_engine):
    if layers is None and of_engine:
        most = max((n for n in order if isinstance(n, int)), default=0)
        if most < 1 or count % most:
            raise ValueError(f"_order has {most} chunks, which {count} callables cannot be shared among alike: pass "
                             "num_layers_per_chunk")
        layers = count // most
    if layers is None:
        layers = [1] * count
    elif isinstance(layers, int):
        if layers < 1 or count % layers:
            raise ValueError(f"num_layers_per_chunk is {layers}, and there are {count} callables")
        layers = [layers] * (count // layers)
    if sum(layers) != count or min(layers, default=0) < 1:
        raise ValueError(f"num_layers_per_chunk has {sum(layers)} layers, and there are {count} callables")
    begins = [sum(layers[:i]) for i in range(len(layers))]
    return [range(begin, begin + size) for begin, size in zip(begins, layers)]


def _expanded(passes, chunks):
    for chunk, microbatch, backward in passes:
        for which in reversed(chunks[chunk]) if backward else chunks[chunk]:
            yield Pass(which, microbatch, backward)
