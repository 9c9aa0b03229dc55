# SPDX-License-Identifier: MIT
"""Random states that a captured callable saves and sets, as torch.utils.checkpoint does.

While a capture is on, a generator counts the random numbers that are drawn in it, from 0, and a
replay begins at the generator's own offset. In a capture a state that PyTorch tells is this count
beside the seed, and setting one sets it: right within one capture, wrong in another one, where the
same count stands for other numbers. So while a run is captured, torch.cuda.get_rng_state and
set_rng_state are others: what is saved there is a *token*, which is good in captures only, and names
the run that it was saved in:

    of this run      the count is set: what is recomputed draws again what was drawn
    of the forward   the backward graph is another one and has an offset of its own. All that it
                     draws has to be of the forward's states, and its replays begin at the offset
                     that the forward's replay began at; the generator stays where it is
    of no run        nothing was drawn where it was saved

That PyTorch keeps the count so is proved once, by a small capture of its own that draws from a
generator of ours. One that does not refuses such captures.
"""

import struct
import sys
import threading

from .._base import torch_private
from .streams import side_stream

MARK = b"reprise\0"  # of a token; a state of PyTorch's has 16 bytes, a token 24
OFFSET = 4000  # of the generator for the proof; no count of what that draws
MEND = "preserve_rng_state=False is right where nothing random is recomputed"

_keeps = None   # does PyTorch keep the count as described? None: not known yet
_wanted = False  # a capture asked
_why = ""
_is_unreadable = False


class Unknown(RuntimeError):
    """A state was saved in a capture before the proof."""


class Unreadable(RuntimeError):
    """This PyTorch does not tell the state of a generator in a capture, as those before 2.11 do not."""


def read(generator):
    """The seed and the offset, or in a capture the count, of a generator. Raises Unreadable."""
    global _is_unreadable
    try:
        state = generator.get_state()
    except RuntimeError as error:
        if not sys.modules["torch"].cuda.is_current_stream_capturing():
            raise
        _is_unreadable = True
        raise Unreadable(str(error)) from error
    return struct.unpack("QQ", bytes(state.tolist()))


def is_unreadable():
    """Was a capture refused a state before? Then none can be told what it draws."""
    return _is_unreadable


def write(torch, generator, seed, count):
    generator.set_state(torch.tensor(list(struct.pack("QQ", seed, count)), dtype=torch.uint8))


def is_wanted():
    """Did a capture save a state, since this was asked last, before the proof?"""
    global _wanted
    was, _wanted = _wanted, False
    return was


def _proves(torch, stream):
    """Does the count follow what a capture draws, and does drawing follow the count?"""
    generator = torch.Generator(stream.device)
    generator.set_offset(OFFSET)
    numbers = torch.empty(4, device=stream.device)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    if torch_private.of(torch).registers_generators:
        graph.register_generator_state(generator)
    pool = torch.cuda.graph_pool_handle()
    counts = []
    # The generator's words are memory of the current stream, and filled on that of the capture.
    current = torch.cuda.current_stream(stream.device)
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            for leap in (0, 1024):
                seed, count = read(generator)
                write(torch, generator, seed, count + leap)
                numbers.uniform_(generator=generator)
                counts += [count, read(generator)[1]]
        except BaseException:
            torch.cuda._sleep(1)  # a graph without a node is warned of
            raise
        finally:
            graph.capture_end()
            current.wait_stream(stream)
    before = generator.get_offset()
    graph.replay()
    step = counts[1]
    return before == OFFSET and 0 < step < 1024 and counts == [0, step, step, 1024 + 2 * step] and (
        generator.get_offset() - before == counts[-1])


def learn(torch, device):
    """Makes the proof, once. Not within a capture. Raises Missing with what to do where PyTorch is
    otherwise."""
    global _keeps, _why
    if _keeps is None:
        try:
            _keeps = _proves(torch, side_stream(torch, device))
        except (AttributeError, RuntimeError, struct.error) as error:
            _keeps, _why = False, f" ({str(error).splitlines()[0]})"
    if not _keeps:
        raise torch_private.Missing("random numbers in captures: off, as generators of PyTorch "
                               f"{torch.__version__} do not tell what a capture draws{_why}")


def need():
    """Raises Unknown before the proof."""
    global _wanted
    if not _keeps:
        _wanted = True
        raise Unknown("how PyTorch counts the random numbers of a capture is not known yet")


class States:
    """What a run saves and sets of the random state of its device. generator: the device's own;
    None: the run draws nothing. base: the States of the forward run, for a backward graph."""

    serials = 0

    def __init__(self, torch, device, generator, base=None):
        States.serials += 1
        self.serial = 0 if generator is None else States.serials
        self.torch = torch
        self.device = device
        self.generator = generator
        self.base = base
        self.used = False     # was a state saved or set?
        self.borrows = False  # are numbers drawn from states of the base?
        self._in_base = False
        self._own = 0         # the count of this run when one of the base was set
        self._seen = 0        # the count as it was last seen
        self._seed = None
        self._drew = False
        self._foreign = None  # of a run that draws nothing: a token of another capture's, which is set now

    def _look(self):
        """Notes what was drawn since the last look; the count."""
        need()
        self._seed, count = read(self.generator)
        if count != self._seen:
            self._seen = count
            self._drew = True
            self.borrows = self.borrows or self._in_base
        return count

    def _write(self, count):
        write(self.torch, self.generator, self._seed, count)
        self._seen = count

    def save(self):
        """A token of the state now."""
        if self._foreign is not None:
            return self.torch.frombuffer(bytearray(self._foreign), dtype=self.torch.uint8)
        value = 0 if self.generator is None else self._look()
        serial = self.base.serial if self._in_base else self.serial
        self.used = True
        return self.torch.frombuffer(bytearray(MARK + struct.pack("QQ", serial, value)),
                                     dtype=self.torch.uint8)

    def set(self, token):
        self.used = True
        data = bytes(token.tolist())
        if len(data) != 24 or data[:8] != MARK:
            raise RuntimeError("a random state is set in a capture that was saved outside of it, "
                               "which a replay would not see: set it before the call")
        serial, value = struct.unpack("QQ", data[8:])
        if self.generator is None:
            self._foreign = data if serial else None  # nothing is drawn from it, or the run is taken again
            return
        if serial == 0:
            return  # nothing was drawn there, and nothing will be
        self._look()
        if serial == self.serial:
            self._in_base = False
            self._write(value)
        elif self.base is not None and serial == self.base.serial:
            if not self._in_base:
                self._own = self._seen
            self._in_base = True
            self._write(value)
        else:
            raise RuntimeError("a random state of another capture is set in this one, whose replays "
                               f"know nothing of it: {MEND}")

    def finish(self):
        """The run is about to end, its generators' capture still on. Raises where its replays could
        not draw what it drew, or would leave another state."""
        if self._foreign is not None:
            raise RuntimeError("a random state of another capture is left by one that draws no random "
                               f"numbers: {MEND}")
        if not self.used or self.generator is None:
            return
        self._look()
        own = self._own if self._in_base else self._seen
        if self.borrows and own:
            raise RuntimeError("the backward pass draws random numbers of its own beside those that "
                               "a checkpoint draws again: one graph cannot have both. Capture the "
                               "whole step, or use torch.utils.checkpoint with "
                               "preserve_rng_state=False")
        self._own = own

    def result(self, count):
        """Behind finish: by how much a replay moves the generator on, and whether the run drew; count: the
        generator's."""
        return (self._own, self._drew) if self.used else (count, count != 0)


_active: dict[int, object] = {}  # by the index of the device: the states of the run that is captured there
_originals: list[tuple] = []
_lock = threading.Lock()


def _of(torch, device):
    """The states that a call of get_rng_state or set_rng_state is about, or None: PyTorch's."""
    if not _active or not torch.cuda.is_current_stream_capturing():
        return None
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    return _active.get(torch.cuda.current_device() if device.index is None else device.index)


def _replace(torch):
    get, put = torch.cuda.get_rng_state, torch.cuda.set_rng_state

    def get_rng_state(device="cuda"):
        states = _of(torch, device)
        return get(device) if states is None else states.save()

    def set_rng_state(new_state, device="cuda"):
        states = _of(torch, device)
        if states is None:
            put(new_state, device)
        else:
            states.set(new_state)

    for module in (torch.cuda, torch.cuda.random):
        _originals.append((module, module.get_rng_state, module.set_rng_state))
        module.get_rng_state, module.set_rng_state = get_rng_state, set_rng_state


def begin(states):
    """From now on captured work on the device saves and sets these."""
    with _lock:
        if not _active:
            _replace(states.torch)
        _active[states.device.index] = states


def end(states):
    """PyTorch's functions again, where nothing else is captured."""
    with _lock:
        _active.pop(states.device.index, None)
        while not _active and _originals:
            module, module.get_rng_state, module.set_rng_state = _originals.pop()
