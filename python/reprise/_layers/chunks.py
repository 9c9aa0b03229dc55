# SPDX-License-Identifier: MIT
"""Orders of passes, of callables and of chunks of several, and which sample each pass has."""

from .._grad.order import Pass, parse

NOBODY = ("order has {}, and no module of '{}' delays its weight gradients (none says need_backward_dw): they come "
          "with the backward pass. Leave the halves out, or build it with delay_wgrad_compute=True")
MISSING = ("'{}' delays its weight gradients ({} says need_backward_dw), and order does not say when they are due: "
           "put {} behind each {}")


class Plan:
    """passes: as they run; microbatches: how many each callable has; samples: by (callable, microbatch) the
    index of its sample; chunks: the callables of each, as ranges."""

    def __init__(self, order, count, samples, layers=None, of_engine=False, delayed=None, names=()):
        """order: None: all forward, and back. layers: how many callables each chunk has, a number or one for
        each; of_engine: without layers, chunks are as Transformer Engine takes them. delayed: by callable that
        delays its weight gradients the kind of module that does; names: of the callables."""
        delayed = delayed or {}
        if order is None:
            if layers is not None:
                raise ValueError("num_layers_per_chunk is given, and no order: chunks are those that order names")
            order = [*range(1, count + 1), *range(-count, 0)]
            # Behind all backward passes: so programs may call backward_dw() at once, or at the end.
            order += [-which - 1.5 for which in sorted(delayed, reverse=True)]
        order = [_whole(number) for number in order]
        self.chunks = _chunks(order, count, layers, of_engine)
        passes = parse(order, len(self.chunks))
        _check_delayed(passes, self.chunks, delayed, names)
        self.passes = [p for p in _expanded(passes, self.chunks) if not p.weights or p.callable in delayed]
        self.microbatches = [0] * count
        for one in self.passes:
            self.microbatches[one.callable] = max(self.microbatches[one.callable], one.microbatch + 1)
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


def _whole(number):
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _check_delayed(passes, chunks, delayed, names):
    """Each half has something to do, and who delays has halves."""
    halves = {p.callable for p in passes if p.weights}
    for at, chunk in enumerate(chunks):
        some = [i for i in chunk if i in delayed]
        if at in halves and not some:
            raise RuntimeError(NOBODY.format(-at - 1.5, "', '".join(names[i] for i in chunk)))
        if at not in halves and some:
            raise RuntimeError(MISSING.format(names[some[0]], delayed[some[0]], -at - 1.5, -at - 1))


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
    for chunk, *rest in passes:
        backward = rest[1]
        for which in reversed(chunks[chunk]) if backward else chunks[chunk]:
            yield Pass(which, *rest)
