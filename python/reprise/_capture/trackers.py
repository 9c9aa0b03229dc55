# SPDX-License-Identifier: MIT
"""Generators that training frameworks keep beside PyTorch's.

Megatron and Transformer Engine draw dropout from generators of their own, a name for each kind of parallelism,
which they put in the place of the device's default one for a while (graphsafe_set_state). A capture has to be
told of them, so they are looked up where these frameworks keep them. Nothing is imported for that.

Their older way keeps states as tensors, which are set with set_state: a replay would draw the same numbers
again, so callables that draw from such a tracker are refused.
"""

import sys

MEND = ("Let the tracker keep generators: use_cudagraphable_rng=True of model_parallel_cuda_manual_seed, or the "
        "tracker of Transformer Engine (--te-rng-tracker, --cuda-graph-impl)")
STEP = 4


def _tables():
    """The states by name of each tracker that there is."""
    megatron = sys.modules.get("megatron.core.tensor_parallel.random")
    states = getattr(getattr(megatron, "_CUDA_RNG_STATE_TRACKER", None), "states_", None)
    if isinstance(states, dict):
        yield states
    engine = sys.modules.get("transformer_engine.pytorch.distributed")
    found = getattr(engine, "get_all_rng_states", dict)()
    if isinstance(found, dict):
        yield found


def generators(torch):
    """Those of the GPU that trackers keep."""
    return [state for table in _tables() for state in table.values()
            if isinstance(state, torch.Generator) and state.device.type == "cuda"]


def with_found(torch, device, given):
    """The generators that a capture on a device has to know of beside its default one: those given, and
    those of trackers. Each state once: a tracker makes another generator of it whenever it is used."""
    here = [g for g in generators(torch) if g.device.index == device.index]
    if not here:
        return tuple(given)
    states, found = [torch.cuda.default_generators[device.index]], []
    for generator in (*given, *here):
        if not any(share(generator, other) for other in states):
            states.append(generator)
            found.append(generator)
    return tuple(found)


def share(one, other):
    """Have two generators the same state? Moved on by one, it is seen by the other; in a capture too."""
    if one is other:
        return True
    if one.device != other.device:
        return False
    try:
        state, theirs = one.get_state(), other.get_state()
        if not state.equal(theirs):
            return False
        moved = state.clone()
        moved[8] ^= STEP  # of the offset, a multiple of four
        one.set_state(moved)
        try:
            return not other.get_state().equal(theirs)
        finally:
            one.set_state(state)
    except RuntimeError:  # in a capture that one is not told of
        return False


def is_table(value):
    """Is it where a tracker keeps its generators?"""
    return any(value is table for table in _tables())


class Tensors:
    """The states that trackers keep as tensors, as they were when this was made."""

    def __init__(self, torch):
        self._before = [(table, name, state) for table in _tables() for name, state in table.items()
                        if isinstance(state, torch.Tensor)]

    def drawn(self):
        """The name of one that was drawn from since; None: none was."""
        return next((name for table, name, state in self._before
                     if table.get(name) is not state and not _is_same(table.get(name), state)), None)

    def put_back(self):
        for table, name, state in self._before:
            table[name] = state


def _is_same(state, before):
    return state is not None and state.equal(before)
