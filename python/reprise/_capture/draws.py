# SPDX-License-Identifier: MIT
"""Random numbers in captures.

A captured kernel that draws reads seed and offset from two words of device memory and adds the count
that it was captured with. PyTorch fills these words before it replays a graph and moves the generator on
by what the capture drew. The library does that here: the words are values of the graph, which its own
first node sets (rp_call_value), so a replay that draws is a replay with other values.

PyTorch has to know of the capture while it is on, or a generator refuses to draw:

    from 2.12 on    what a generator counts belongs to the capture that PyTorch began. So PyTorch begins
                    and ends the capture of each run, and the library takes a clone of its graph
    before          a generator counts while any graph that it is registered with captures. So PyTorch
                    captures next to nothing beside the run, on a stream of its own

Where the words are PyTorch does not tell: a kernel that draws is captured last, its parameters tell, and
it is left out of the graph (csrc/capture/draws.c).
"""

import contextlib
import threading
import weakref

from .. import _C
from .._alloc.install import is_installed
from .._base import torch_private
from . import states, trackers
from .streams import on_stream, side_stream

MARKER = 0x5A5A_5A50  # the count of the kernel that is asked; a multiple of four, as counts are

_failed: list[object] = []     # graphs that could not end, which PyTorch goes on to ask
_numbers: dict[int, object] = {}    # by the index of the device: what is drawn to find out
_streams: dict[int, object] = {}    # by the index of the device: where PyTorch captures beside a run
_keepers: list[tuple] = []    # (generator, graph that keeps its words where they are)
# By PyTorch's graph of a run: the words that were named there.
_named: weakref.WeakKeyDictionary[object, set] = weakref.WeakKeyDictionary()
WORD = 8         # bytes of a seed, and of an offset: each is an allocation


class Drawn:
    """What a captured run drew.

        pairs     (generator, by how much a replay moves it on) of each generator
        borrows   its numbers are those of the forward run's states
        kept      what keeps the words where they are
    """

    __slots__ = ("pairs", "borrows", "kept")

    def __init__(self, pairs, borrows, kept):
        self.pairs = tuple(pairs)
        self.borrows = borrows
        self.kept = kept


def prepare(torch, device, generators):
    """Makes what cannot be made during a capture that draws."""
    private = torch_private.of(torch)
    if device.index not in _numbers:
        with torch.inference_mode(False):
            _numbers[device.index] = torch.empty(4, device=device)  # a kernel that fills would be loaded first
    if private.begins_captures:
        return
    if device.index not in _streams:
        _streams[device.index] = side_stream(torch, device)
    for generator in (torch.cuda.default_generators[device.index], *generators):
        if all(generator is not kept for kept, _ in _keepers):
            graph = torch.cuda.CUDAGraph(keep_graph=True)
            graph.register_generator_state(generator)
            _keepers.append((generator, graph))


def are_words(torch, pairs):
    """Does an unnamed generator draw from one of these places? What kernels' parameters hold by chance looks
    like it: the unused part of a table of tensors has what lay on the stack, and libraries have structs of
    their own. The words of a generator are two tensors of PyTorch's that are alive, of one number each."""
    named = set().union(*_named.values())
    alive = {block["address"] for segment in torch.cuda.memory_snapshot() for block in segment["blocks"]
             if block["state"] == "active_allocated" and block["requested_size"] == WORD}
    return any(seed in alive and offset in alive and seed not in named for seed, offset in pairs)


@contextlib.contextmanager
def in_order(torch, device):
    """Around the runs of a capture. Before 2.12 PyTorch fills a generator's words as it begins a capture:
    behind what replays read that were enqueued on the current stream before, and ahead of what those
    fill that come after."""
    stream = _streams.get(device.index)
    if stream is None or torch_private.of(torch).begins_captures:
        yield
        return
    current = torch.cuda.current_stream(device)
    stream.wait_stream(current)
    try:
        yield
    finally:
        current.wait_stream(stream)


def abandon(torch, ordinal, pool, ended=True):
    """Does what PyTorch before 2.14 leaves undone where its capture fails: the allocator would go on serving
    the capture, refuse much else, and keep its memory. ended: the end failed, not the beginning."""
    if is_installed():
        _C.abandon()
    private = torch_private.of(torch)
    was_ended = ended and private.ends_pool_first
    if private.resets_failed or private.end_pool is None or (is_installed() and not was_ended):
        return
    try:
        if not was_ended:
            private.end_pool(ordinal, pool)
        private.release_pool(ordinal, pool)
    except RuntimeError:
        pass  # it had no memory yet, or none any more


class Capture:
    """PyTorch's part of the capture of one run. generators: those it may draw from; none: it draws
    nothing. stream: of the run. pool: PyTorch's, that the run's segments come from, or None."""

    def __init__(self, torch, device, stream, generators, pool, base=None):
        self.torch = torch
        self.device = device
        self.stream = stream
        self.generators = generators
        self.segments = pool
        self.keeps = False  # does what the run leaves in its segments outlive it?
        self.states = states.States(torch, device, generators[0] if generators else None, base)
        self.drawn = None  # Drawn, once the run has ended and drew
        self.pool = None   # of PyTorch's capture
        self.graph = self._new_graph() if generators else None
        self.named = set()  # the words that were named: addresses of seeds
        self.words = ()     # where kernels may draw from beside those: (seed, offset)

    def _new_graph(self):
        """Not on a stream that captures, where no generator can be registered."""
        graph = self.torch.cuda.CUDAGraph(keep_graph=True)  # never made launchable
        if torch_private.of(self.torch).registers_generators:
            for generator in self.generators[1:]:
                graph.register_generator_state(generator)
        return graph

    def _capture_begin(self, graph):
        """Until 2.13 the destructor of a graph that could not begin may end the process."""
        self.pool = self.torch.cuda.graph_pool_handle()
        try:
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
        except BaseException:
            _failed.append(graph)
            raise

    def _fill_empty(self):
        """A node, where none was captured on the current stream, as PyTorch warns of graphs without; what
        that is."""
        index = self.device.index
        stream = torch_private.of(self.torch).raw_stream(index)
        if _C.capture_status(index, stream) != (1, 0):
            return ()
        self.torch.cuda._sleep(1)
        return (_C.last_node(index, stream),)

    def _begin_segments(self):
        """What is allocated from here on comes from the run's segments."""
        if self.segments is not None:
            torch_private.of(self.torch).begin_pool(self.device.index, self.segments.id)

    def _end_segments(self, worked):
        """Segments that nothing lies in are freed as far as the capture goes, in the order in which the run took
        them: no later graph has to leave them alone. PyTorch has them until the pool goes. Only of runs whose
        memory is kept, as the snapshot is of all that the process has."""
        if self.segments is not None:
            private = torch_private.of(self.torch)
            private.end_pool(self.device.index, self.segments.id)
            if worked and self.keeps:
                empty = [segment["address"] for segment in self.torch.cuda.memory_snapshot()
                         if tuple(segment["segment_pool_id"]) == tuple(self.segments.id)
                         and segment["device"] == self.device.index and not segment["active_size"]]
                found = [(block[0], address) for address in empty for block in [_C.call_block(address)] if block]
                for _, address in sorted(found):
                    _C.call_leave(address)
            private.release_pool(self.device.index, self.segments.id)

    def _find_words(self, generator, nodes):
        """Names the words that kernels read which draw from the generator; the node that told."""
        torch, index = self.torch, self.device.index
        seed, _ = states.read(generator)
        states.write(torch, generator, seed, MARKER)
        _numbers[index].uniform_(generator=generator)
        found = _C.probe_words(index, torch_private.of(torch).raw_stream(index), MARKER)
        if found is None:
            raise torch_private.Missing(
                "random numbers in captures: off, as the kernels of PyTorch "
                f"{torch.__version__} read their seed from a place that is not known")
        nodes.append(found[0])
        self.named.add(found[1])
        _C.call_value(found[1])
        _C.call_value(found[2])

    def _look(self, kept):
        """Notes what the run drew; the nodes that were captured to find out."""
        pairs, nodes = [], []
        for generator in self.generators:
            count = states.read(generator)[1]
            own, drew = self.states.result(count) if generator is self.generators[0] else (count, count)
            if drew:
                pairs.append((generator, own))
        if pairs:
            states.need()
            for generator, _ in pairs:
                self._find_words(generator, nodes)
            self.drawn = Drawn(pairs, self.states.borrows, kept)
        return nodes


class Within(Capture):
    """PyTorch begins and ends the capture of the run."""

    def begin(self):
        private = torch_private.of(self.torch)
        self.begun = 1  # how often PyTorch was told to allocate from its pool
        _C.call_take_over()
        self._capture_begin(self.graph)
        try:
            for generator in self.generators:
                states.read(generator)  # makes its words, which are not to be memory of the run
            _C.call_begun()
            if self.segments is not None:
                private.end_pool(self.device.index, self.pool)
                try:
                    self._begin_segments()
                except BaseException:
                    self._give_back_pool()
                    raise
        except BaseException:
            self._close()
            raise

    def _give_back_pool(self):
        """PyTorch allocates from its capture's pool again, and ends that itself: where it cannot, the
        process ends with the graph."""
        torch_private.of(self.torch).begin_pool(self.device.index, self.pool)
        self.begun += 1

    def end(self, worked):
        """Ends it. worked: the run did; then what it drew is looked at, and the graph handed over."""
        nodes = ()
        try:
            if worked:
                nodes = self._look(self.graph)
            nodes = nodes or self._fill_empty()
        finally:
            if self.segments is not None:
                self._end_segments(worked)
                self._give_back_pool()
            ended = self._close(worked)
        if not ended or not worked:
            return
        graph = self.graph.raw_cuda_graph()
        _C.call_ended(graph, tuple(nodes))
        # Until 2.13 PyTorch refuses to draw from a generator that the capture was not told of; where its state
        # was put back, no count told of a draw.
        _named[self.graph] = self.named
        self.words = [w for w in _C.words_of(self.device.index, graph) if w[0] not in self.named]

    def _close(self, raises=False):
        """Ends PyTorch's capture; False where that failed and is not to raise."""
        try:
            self.graph.capture_end()
        except RuntimeError:
            self._abandon()
            if raises:
                raise
            return False
        finally:
            for _ in range(1, self.begun):
                torch_private.of(self.torch).release_pool(self.device.index, self.pool)
        return True

    def _abandon(self):
        if torch_private.of(self.torch).resets_failed:
            self.graph.reset()
            return
        abandon(self.torch, self.device.index, self.pool)
        _failed.append(self.graph)


class Beside(Capture):
    """The library begins the capture of the run, and PyTorch one beside it where there is to be drawn."""

    def begin(self):
        if self.generators:
            self._begin_beside(self.graph)
        try:
            self._begin_segments()
        except BaseException:
            self._end_captures(False)
            raise

    @property
    def side(self):
        return _streams[self.device.index]

    def _begin_beside(self, graph):
        with on_stream(self.torch, self.side):
            self._capture_begin(graph)

    def _end_beside(self, graph, worked):
        with on_stream(self.torch, self.side):
            try:
                if worked:
                    self._look(_keepers)
            finally:
                try:
                    self._fill_empty()
                finally:
                    graph.capture_end()  # or the stream would go on capturing

    def end(self, worked):
        """Ends both. A run that broke its capture may have broken this one, which would leave the
        generators as if a capture were on: another one is begun and ended then."""
        try:
            self._end_segments(worked)
        finally:
            self._end_captures(worked)

    def _end_captures(self, worked):
        if not self.generators:
            return
        try:
            self._end_beside(self.graph, worked)
        except RuntimeError:
            abandon(self.torch, self.device.index, self.pool)
            self.mend()
            if worked:
                raise

    def mend(self):
        """Ends the state of a capture that a broken one left the generators in."""
        with on_stream(self.torch, self.side):
            again = self._new_graph()
        self._begin_beside(again)
        self._end_beside(again, False)


def are_told(torch, draws):
    """Are the generators told of a capture? draws: its run may draw. From 2.12 on they always are."""
    return draws or torch_private.of(torch).begins_captures


def new_capture(torch, device, stream, generators, draws, pool, base):
    """PyTorch's part of a capture. draws: the run may draw; until 2.11 one that does not needs no capture
    beside it, and raises RuntimeError if it draws."""
    within = torch_private.of(torch).begins_captures
    known = (torch.cuda.default_generators[device.index], *generators) if are_told(torch, draws) else ()
    return (Within if within else Beside)(torch, device, stream, known, pool, base)


class Watched:
    """Tells whether captures like an eager run may draw random numbers of the devices' generators or of
    these, so that the generators have to be told of them. Until 2.11 other threads cannot draw while one is
    on of which they were. So where those may have drawn the numbers it is taken that the run did not: a
    capture that draws all the same is taken once more. Since then nobody is kept from it."""

    def __init__(self, torch, generators):
        self._always = torch_private.of(torch).begins_captures
        self._generators = () if self._always else (*torch.cuda.default_generators, *generators,
                                                    *trackers.generators(torch))
        self._before = self._offsets()

    def _offsets(self):
        return [generator.get_offset() for generator in self._generators]

    def may_draw(self):
        return self._always or (self._offsets() != self._before and threading.active_count() == 1)


def recover(torch, device):
    """After a capture of the program's own that failed: leaves generators as if there had been none."""
    if torch_private.of(torch).begins_captures:
        return
    prepare(torch, device, ())
    generators = (torch.cuda.default_generators[device.index],)
    with in_order(torch, device):
        Beside(torch, device, None, generators, None).mend()
