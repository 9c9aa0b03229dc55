# SPDX-License-Identifier: MIT
"""Random numbers around warm-ups and captures: drawn, and given back."""

import contextlib

from .._capture import trackers


class DrawsFromTensors(RuntimeError):
    """Replays would draw the same numbers again."""


@contextlib.contextmanager
def kept(torch, device, generators):
    """Behind this the device's generator, these and the CPU's are where they were: what runs within leaves no
    trace in what the program draws. Yields a function that raises where states were drawn from which no graph
    can follow."""
    watched = [torch.cuda.default_generators[device.index], *generators]
    before = [(generator, generator.get_state()) for generator in watched]
    cpu, tensors = torch.get_rng_state(), trackers.Tensors(torch)

    def check(name):
        drawn = tensors.drawn()
        if drawn is not None:
            raise DrawsFromTensors(f"'{name}' draws from '{drawn}' of a tracker that keeps its states as tensors, "
                                   f"and each replay would draw the same numbers again. {trackers.MEND}")
    try:
        yield check
    finally:
        tensors.put_back()
        torch.set_rng_state(cpu)
        for generator, state in before:
            generator.set_state(state)
