# SPDX-License-Identifier: MIT
"""A PyTorch callable as the work of one capture.

The library runs the work twice on its own capturing stream, and each run has its arguments at other
addresses: once as the rehearsal, which finds out what comes out, and once as the record
(docs/design/capture.md). To verify, what comes out is found by one run more, before these. Here is what
PyTorch needs around such a run:

    stream     PyTorch's current stream is the library's
    memory     with install() PyTorch's allocations are the run's blocks one by one; without it they
               come from a MemPool of the run, whose segments are the run's blocks
    cuBLAS     its workspaces are dropped before and after, so that they are blocks of the run
    autocast   its cache is dropped before and after for the same reason; it stays enabled, as to
               change that makes torch.compile compile anew
    random     PyTorch's generators know that a capture is on, and what the run drew is known behind it
               (_capture/draws.py), so that the numbers of a call are those of an eager run
    arguments  tensors that lie at the addresses the run was given
    results    their storages are named in the rehearsal, and arguments in what follows: fresh
               memory at every replay. What somebody else keeps of them stays, and is copied
"""

import contextlib
import gc
import sys
import threading
import weakref

from .. import _C
from .._alloc.install import drop_segment_pools, empty_cache, is_installed, segment_pool
from .._base import torch_private
from .._base.constants import are_constant
from .._base.collector import clear_frames, uncollected
from .._base.interrupts import Interrupts
from .._base.lazy import bits, resolved
from .._base.tree import attributed, flatten
from . import distributed, draws as _draws, stack, states, strays, trackers, workspaces
from .streams import on_stream, stream_at

IN, OUT, INOUT = 1, 2, 3
VERIFY = {None: 0, "capture": 1, "run": 2}


class _Captures:
    """Of the process. Who has the lock alone writes the rest."""

    def __init__(self):
        self.lock = threading.Lock()
        self.owner = None        # the thread that has it
        self.has_failed = False  # has a capture failed, whose tensors nobody looked for since?


_captures = _Captures()


def is_alone():
    """Does this thread capture?"""
    return _captures.owner == threading.get_ident()


def _collect_what_is_left():
    """Lets go of tensors of a record that failed: they lie where the next one's will, which PyTorch takes ill. Those
    are young, so most often nobody has to go through all objects there are, for a quarter of a second in a large
    program."""
    for generation in range(3):
        if _C.call_counts()[0] == 0:
            return
        gc.collect(generation)
        drop_segment_pools()


@contextlib.contextmanager
def alone():
    """One capture at a time, whatever its device: what PyTorch allocates meanwhile, its generators'
    states and what is replaced for the length of a run are the process's. And without Python's
    garbage collector, which would free tensors in one run and not in the next."""
    if is_alone():
        raise _C.Error("a capture begins within another one: capture one after the other")
    torch_private.let_captures_compile(is_alone)
    with _captures.lock, uncollected():
        _captures.owner = threading.get_ident()
        try:
            yield
        finally:
            _captures.owner = None


class Extent:
    """Memory that one argument or several that overlap lie in: start, bytes, and who lies where."""

    __slots__ = ("address", "bytes", "members")

    def __init__(self, address, nbytes, members):
        self.address = address
        self.bytes = nbytes
        self.members = members  # (index of the tensor, offset in bytes)


def span(tensor):
    """The bytes from a tensor's first element to behind its last."""
    if tensor.numel() == 0:
        return 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


def extents(tensors):
    """The extents of a list of tensors, in the order of their first members."""
    ranges = sorted((t.data_ptr(), span(t), i) for i, t in enumerate(tensors))
    made, end = [], -1
    for address, size, index in ranges:
        if made and address < end and size:
            last = made[-1]
            last.members.append((index, address - last.address))
            last.bytes = max(last.bytes, address + size - last.address)
        else:
            made.append(Extent(address, size, [(index, 0)]))
        end = max(end, address + size)
    made.sort(key=lambda e: min(e.members))
    return made


def tensor_at(torch, address, nbytes, device, like):
    """A tensor of the shape of `like` in memory that somebody else owns."""
    private = torch_private.of(torch)
    storage = private.storage_at(address, device, nbytes)
    return private.tensor_in(
        {"nbytes": nbytes, "data_ptr": address, "size": like.shape, "stride": like.stride(),
         "dtype": like.dtype, "device": device, "storage_offset": 0}, storage)


def _let_go(storages, addresses):
    """Frees the memory of results that lie where these go, which is not theirs after the run; as
    tensors that autograd knows they live on."""
    for start, (_, nbytes, storage) in storages.items():
        if nbytes and start in addresses:
            storage.resize_(0)


class Found(Exception):
    """The rehearsal told what comes out, and was for nothing else."""


class Held(Exception):
    """Somebody else than the caller has a result of the rehearsal, whose own place that was."""


class Run:
    """The surroundings of one run; kept until the capture is over."""

    def __init__(self, torch, device, stream, generators, draws, base):
        private = torch_private.of(torch)
        private.need(torch_private.CAPTURES)
        self.torch = torch
        self.device = device
        self.stream = stream_at(torch, stream, device)
        pool = None
        if not is_installed():
            private.need(torch_private.OWN_MEMORY)
            pool = segment_pool(torch, self)
        self.capture = _draws.new_capture(torch, device, self.stream, generators, draws, pool, base)

    @contextlib.contextmanager
    def around(self):
        torch = self.torch
        workspaces.drop(torch, self.stream)
        before = strays.current(torch, self.device.index)
        with on_stream(torch, self.stream):
            worked = False
            self.capture.begin()
            try:
                with self._watched(before):
                    yield
                    self.capture.states.finish()
                torch.clear_autocast_cache()  # the casts that it holds are memory of the run
                workspaces.drop(torch, self.stream)
                worked = True
            finally:
                if not worked:
                    torch.clear_autocast_cache()
                    workspaces.drop(torch, self.stream)
                self.capture.end(worked)

    @contextlib.contextmanager
    def _watched(self, before):
        """Random states are the run's. Collectives that cannot be captured are refused, and so is work on streams
        that are not captured. before: the caller's stream."""
        states.begin(self.capture.states)
        try:
            distributed.begin(self.torch)
            watch = strays.begin(self.torch, self.stream, before)
            try:
                yield
                if watch is not None:
                    watch.finish(sys._getframe(1))
            finally:
                if watch is not None:
                    strays.end(self.torch)
                distributed.end()
        finally:
            states.end(self.capture.states)


class Result:
    """A leaf of what the callable returned: where a call finds it.

        ("output", j, like)      in output storage j; like: (shape, stride, dtype, offset)
        ("input", i, like)       in the extent of argument i: a view of what the caller passed
        ("argument", i)          what the caller passed, itself
        ("again", k)             what leaf k is
        ("copy", tensor)         one on the CPU that each call makes, with the same values
        ("value", object)        the same at every call
    """


def _like(tensor, offset_bytes):
    return (tensor.shape, tensor.stride(), tensor.dtype, offset_bytes // tensor.element_size())


class Work:
    """The callable of one capture: `body(tensors)` is called in each run."""

    def __init__(self, torch, device, body, tensors, generators, keep=False, draws=True, base=None,
                 put_back=None, follows=False, own=()):
        self.torch = torch
        self.device = device
        self.keep = keep  # what the runs return lives until the owner drops `kept`
        self.kept = []
        # Does the callable draw random numbers? It may, where a capture can tell.
        self.draws = draws and not states.is_unreadable()
        self.has_drawn = False  # was it taken again for that? Runs may put generators back themselves
        self.put_back = put_back  # called before each run, which are to begin alike; or None
        self.follows = follows  # another work of its shape, which finishes behind it
        self._captures = False  # or only estimates
        self.held = set()  # numbers of the results that were found to stay
        self.base = base  # the States of the forward run, which a backward pass sets
        self.drawn = None  # what the record drew (_draws.Drawn); None: nothing
        self.ranges = []  # of the run: address and bytes of each argument
        self.strange = None  # where the last run that ended may draw from; None: none has ended
        self.active = None  # where PyTorch has tensors behind the run: start and end; None: not asked
        self.body = body
        self.tensors = tensors
        self.extents = extents(tensors)
        self._leave_out(own)
        self.generators = trackers.with_found(torch, device, generators)
        self.runs = []
        self.interrupts = Interrupts()
        self._forget()

    def _leave_out(self, own):
        """own: numbers of tensors that runs find as they are. They are empty as arguments of the graph, which reads and
        writes them where they lie."""
        for extent in self.extents if own else ():
            are_own = [index in own for index, _ in extent.members]
            if all(are_own):
                extent.bytes = 0
            elif any(are_own):
                raise _C.Error("an argument lies in memory of another one that the callable reads beside them too. Pass a "
                               "copy of it")

    @staticmethod
    def begins_anew():
        """Called where a capture is taken once more: what its runs noted is of no use."""

    def _forget(self):
        """Of the rehearsal: what came out."""
        self.outputs = None  # bytes of each output storage
        self.places = []     # (allocation, bytes) of each, or None
        self.results = None  # a Result of each leaf
        self.leaves = ()     # of the run: weak references to those that are tensors, and their numbers
        self.spec = None

    def _arguments(self, addresses):
        placed = [None] * len(self.tensors)
        for extent, address in zip(self.extents, addresses):
            for index, offset in extent.members:
                like = self.tensors[index]
                placed[index] = tensor_at(self.torch, address + offset, extent.bytes - offset,
                                          self.device, like)
        return placed

    def _same(self, k, leaves, placed):
        """The Result of a leaf that is an argument or another leaf; None where it is neither."""
        leaf = leaves[k]
        if self.keep or not isinstance(leaf, self.torch.Tensor):
            return None
        for i, argument in enumerate(placed):
            if leaf is argument:
                return ("argument", i)
        for i in range(k):
            if leaves[i] is leaf:
                return ("again", i)
        return None

    def _settled(self, before, now):
        """The Result of a leaf that the rehearsal and the record returned. What both have is there at every
        call; anything else each call makes."""
        if before[0] != "value" or now[0] != "value":
            return before[:2] if before[0] == "value" else before
        if now[-1] is before[-1]:
            is_kept = isinstance(now[-1], self.torch.Tensor) and now[-1].is_leaf and not self.keep
            return ("value", now[-1] if is_kept else before[1])
        if isinstance(now[1], self.torch.Tensor):
            return ("copy" if now[1].device.type == "cpu" else "value", before[1])
        if not are_constant(before[1], now[1]):
            kind = type(now[1]).__name__
            raise _C.Error(f"it returns {'an' if kind[:1] in 'AEIOUaeiou' else 'a'} {kind} that it makes, which "
                           "would be the same one at every replay. Return tensors, numbers, or containers that "
                           "PyTorch knows (torch.utils._pytree.register_pytree_node)")
        return before[:2]

    def _find(self, tensor, addresses, storages):
        """The Result of a leaf; storages: those seen so far, by address. Behind a value stands what was
        returned, until the record tells whether each call makes it."""
        if not isinstance(tensor, self.torch.Tensor):
            return ("value", tensor, tensor)
        if tensor.device != self.device:
            if tensor.is_cuda:
                raise _C.Error(f"a result lies on {tensor.device}, and the arguments on {self.device}: "
                               "a graph is of one GPU. Move it after the call")
            return ("value", tensor, tensor)
        self._check_kind(tensor)
        storage = tensor.untyped_storage()
        start, offset = storage.data_ptr(), tensor.storage_offset() * tensor.element_size()
        is_lazy = any(bits(tensor))
        for i, (extent, address) in enumerate(zip(self.extents, addresses)):
            if extent.bytes and address <= start + offset < address + extent.bytes:
                if is_lazy:
                    raise _C.Error("it returns a lazy view of an argument (conj(), or imag of such a view), which "
                                   "replays would not make. Return resolve_conj() or resolve_neg() of it")
                return ("input", i, _like(tensor, start + offset - address))
        if self._is_outside(start):
            return ("value", tensor.detach(), tensor)
        if is_lazy:
            return self._find(resolved(self.torch, tensor), addresses, storages)
        if start not in storages:
            storages[start] = (len(storages), storage.nbytes(), storage)
        return ("output", storages[start][0], _like(tensor, offset))

    def _check_kind(self, tensor):
        """Raises where replays would not make such a result."""
        if tensor.retains_grad:
            raise _C.Error("it returns or keeps a tensor that retains its gradient, by retain_grad(), which replays would "
                           "not give it. Take the gradient by torch.autograd.grad() and return it")
        torch, kind = self.torch, type(tensor)
        names = [name for name in tensor.__dict__ if not name.startswith("_dynamo")]
        is_plain = kind in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and (
            not tensor.is_nested)
        if is_plain and not names:
            return
        try:
            if self._is_outside(tensor.untyped_storage().data_ptr()):
                return
        except (RuntimeError, NotImplementedError):
            is_plain = False  # it has parts that lie in several places
        if is_plain:
            raise _C.Error(f"it returns a tensor with attributes of its own ({', '.join(names)}), which replays would "
                           "not have. Return them beside it")
        what = f"a {kind.__name__}, a subclass of Tensor" if kind not in (torch.Tensor, torch.nn.Parameter) else (
            "a nested tensor" if tensor.is_nested else "a sparse tensor")
        raise _C.Error(f"it returns {what}, which replays would not make. Return the tensors that it is made of")

    def _is_outside(self, start):
        """Is this memory that the run did not make?"""
        return start != 0 and _C.call_block(start) is None

    def run(self, stream, addresses):
        """What the library calls. PyTorch's current stream is another one still, and the default one,
        0, never captures."""
        if stream == 0 or not _C.capture_status(self.device.index, stream)[0]:
            with on_stream(self.torch, stream_at(self.torch, stream, self.device)):
                self._run_eagerly(addresses)
            return
        here = Run(self.torch, self.device, stream, self.generators, self.draws, self.base)
        here.capture.keeps = self.keep
        self.runs.append(here)
        self.active = None
        sizes = [e.bytes for e in self.extents] + (self.outputs or [])
        self.ranges = list(zip(addresses, sizes))
        with here.around():
            self.kept.clear()  # of a run that is over, and whose place this one may take
            if self.put_back is not None:
                self.put_back()
            stack.clean(self.torch, self.device)
            _C.clean_stack(None)  # of what PyTorch did to begin
            with self.interrupts.allowed(), torch_private.parametrized_anew(self.torch):
                placed = self._arguments(addresses)
                result = self.body(placed)
            leaves, spec = flatten(result)
            kind = attributed(result)
            if kind is not None:
                raise _C.Error(f"it returns a named tuple with attributes of its own ({kind.__name__}), which "
                               "replays would not have. Return them as parts, or as an object")
            if self.keep:
                self.kept.append(result)
            del result
            storages = {}
            found = [self._same(k, leaves, placed) or self._find(leaf, addresses, storages)
                     for k, leaf in enumerate(leaves)]
            self.leaves = [(weakref.ref(leaf), k) for k, leaf in enumerate(leaves) if isinstance(leaf, self.torch.Tensor)]
            placed.clear()
            rehearses = self.outputs is None
            if rehearses:
                into = self._name_results(found, spec, storages)
            else:
                into = addresses[len(self.extents):]
                self._check_results(storages)
                self.results = [*map(self._settled, self.results, found)]
            self._deliver(storages, into)
            if self.keep:
                _let_go(storages, into)
            # What is freed before this or behind it, while the capture goes on, PyTorch would record
            # events for: into the capture, and never be done with them.
            storages.clear()
            leaves.clear()
            del found
            gc.collect(0)  # cycles that the run left, which may have tensors where the next one's will lie
            if rehearses and not self.keep:
                self._notice_held()
        self._check_generators(here)

    def _check_generators(self, here):
        """From 2.14 on PyTorch lets any generator draw in a capture, from words of each capture: in memory
        of nobody's, and elsewhere in each run. Nobody would set them, nor those of a generator whose state was
        put back, which 2.12 allows: no count tells of its draws."""
        strange = {pair for pair in here.capture.words if not any(map(self._is_argument, pair))}
        before = strange if self.strange is None else self.strange
        self.strange = strange
        if strange - before and _draws.are_words(self.torch, strange - before):
            raise _C.Error("random numbers are drawn from a generator that the capture was not told of, or "
                           "whose state was put back in it, and replays would repeat them: pass it, "
                           "reprise.graphed(fn, generators=[generator]), and set no state in the call")

    def _is_argument(self, address):
        return any(start <= address < start + nbytes for start, nbytes in self.ranges)

    def _notice_held(self):
        """Behind the rehearsal: results that are there though nobody here has them (a module keeps what
        it returns, a step returns gradients) stay behind, and all begins anew."""
        held = self._those_held()
        if held:
            self._pass_through_autograd()
            held = self._those_held()
        if held:
            self.held |= held
            raise Held

    def _those_held(self):
        return {j for j, place in enumerate(self.places)
                if place is not None and _C.call_block(place[2]) is not None}

    def _pass_through_autograd(self):
        """A thread of autograd's lets go of a backward pass's results some time after the caller has them:
        before it does anything else. Takes no memory, and is no work for the device."""
        torch = self.torch
        with torch.inference_mode(False), torch.enable_grad():
            x = torch.empty(0, device=self.device, requires_grad=True)
            y = x.view(0)
            torch_private.gradients(torch, [y], [x], [y.detach()])

    def _run_eagerly(self, addresses):
        """Without a capture, to verify one: results are copied to where the outputs go."""
        if self.put_back is not None:
            self.put_back()
        storages = {}
        for leaf, result in zip(flatten(self.body(self._arguments(addresses)))[0], self.results):
            if result[0] == "output":
                storages[result[1]] = resolved(self.torch, leaf).untyped_storage()
        self._copy([(addresses[len(self.extents) + j], storage.data_ptr(), self.outputs[j])
                    for j, storage in storages.items()])

    def _name_results(self, found, spec, storages):
        """Names the output storages as results of the capture; where each goes. One that is a block
        of the run is its own place, unless it is held: each replay brings a result to other memory,
        and what stays has to be written where it is."""
        self.results, self.spec = found, spec
        self.outputs = [nbytes for _, nbytes, _ in storages.values()]
        into = []
        for j, (start, (_, nbytes, _)) in enumerate(storages.items()):
            block = _C.call_block(start) if is_installed() else None
            whole = block is not None and block[1:] == (nbytes, start) and j not in self.held
            self.places.append(block if whole else None)
            into.append(_C.call_result(nbytes, start if whole else 0))
        return into

    def _check_results(self, storages):
        if [nbytes for _, nbytes, _ in storages.values()] != self.outputs:
            raise _C.Error("the callable returned other tensors than when it was first captured: it "
                           "must do the same each time")

    def _deliver(self, storages, addresses):
        """Copies what does not lie where the outputs go: without install(), or when the run took
        its memory in another order than the one before."""
        self._copy([(address, start, nbytes)
                    for (start, (_, nbytes, _)), address in zip(storages.items(), addresses) if start != address])

    def _copy(self, copies):
        """By a kernel on the current stream: the driver lets a replay change a kernel's addresses to any
        memory, but those of a copy of its own only to memory of the same kind. Not by one of PyTorch's: its
        first use in a process takes 10 ms and more."""
        if copies:
            _C.copy(self.device.index, torch_private.of(self.torch).raw_stream(self.device.index), copies)

    def capture(self, pool, name, copy_args=False, verify=None, lead=0):
        """Rehearses and records; the graph, whose arguments are the extents and then the output
        storages. verify: as for graphed; to run it draws no random numbers. lead: bytes at the
        start of the pool that are left alone."""
        self._captures = True
        with self.interrupts, alone():
            args = self._prepare()
            try:
                return self._capture(args, pool, name, copy_args, verify, lead)
            except BaseException:
                _captures.has_failed = True
                self.runs.clear()  # and with them their pools: whoever handles the error has this
                raise

    def _capture(self, args, pool, name, copy_args, verify, lead):
        buffers = []  # the results' memory, while the capture takes

        def results(sizes):
            self._learn_draws()
            buffers[:] = [self.torch.empty(n, dtype=self.torch.uint8, device=self.device)
                          for n in sizes]
            return [b.data_ptr() for b in buffers], self._placed()

        def take(results, verify):
            stream = torch_private.of(self.torch).raw_stream(self.device.index)
            return _C.capture(pool, self.run, args, results, name, copy_args, VERIFY[verify], stream,
                              lead, self._is_in_use)

        if verify:
            self._find_out(pool, name, args, copy_args)
            addresses, places = results(self.outputs)
            args += [(a, n, OUT) for a, n in zip(addresses, self.outputs)]
            with self._drawing():
                graph = take(places, "capture" if verify and self.draws else verify)
        else:
            graph = self._until_known(lambda: take(results, None))
        self.drawn = self.runs[-1].capture.drawn
        if self.drawn is not None:
            graph.set_draws(self.drawn.pairs)
        if not self.keep:
            self.finish()
        return graph

    def _is_in_use(self, address):
        """Does a tensor lie there, in memory that an earlier run took? Without install() blocks are
        PyTorch's segments, of which it tells what lies in them."""
        if not _C.is_captured(address):
            return False
        if is_installed():
            return True
        if self.active is None:  # once for all words that are asked about behind a run
            self.active = [(block["address"], block["address"] + block["size"])
                           for segment in self.torch.cuda.memory_snapshot()
                           for block in segment["blocks"] if block["state"].startswith("active")]
        return any(start <= address < end for start, end in self.active)

    def _find_out(self, pool, name, args, copy_args):
        """Finds the results by a rehearsal of its own: captures that are compared by three have to
        have the same arguments in all of them."""
        def results(sizes):
            raise Found

        def find():
            try:
                _C.capture(pool, self.run, args, results, name, copy_args)
            except Found:
                pass
        self._until_known(find)

    def estimate(self, into, pool, name):
        """Rehearses: what a capture would take is added to a _C.Estimate. Of device memory only the
        rehearsals' is taken."""
        with self.interrupts, alone():
            args = self._prepare()

            def results(sizes):
                self._learn_draws()
                return [0] * len(sizes), self._placed()

            self._until_known(lambda: into.add(pool, self.run, args, results, name))
            if not self.keep:
                self.finish()

    def _prepare(self):
        """Makes what cannot be made during a capture; the arguments that are extents."""
        assert is_alone()
        gc.collect(0)  # or the collection at a run's end would free what is not of the run, within the capture
        drop_segment_pools()
        if _captures.has_failed:
            _collect_what_is_left()
        _captures.has_failed = False
        if _C.sweep():  # PyTorch may keep memory of theirs that no tensor needs
            gc.collect()
            empty_cache(self.torch)
            _C.sweep()
        self.torch.clear_autocast_cache()  # its casts keep nodes of other streams in backward passes
        stack.prepare(self.torch, self.device)
        self._forget()
        return [(e.address, e.bytes, INOUT) for e in self.extents]

    def _placed(self):
        """Allocations that are answered with the address of an output."""
        return [(place[0], place[1], len(self.extents) + j)
                for j, place in enumerate(self.places) if place is not None]

    def _until_known(self, take):
        """What take() returns. Before 2.12 PyTorch raises RuntimeError, and no kind of it, where numbers
        are drawn in a capture that the generators were not told of: then it is taken again, and they are.
        So it is where results were found to stay, and where it was not known yet how captures count."""
        try:
            with self._drawing():
                return take()
        except Exception as error:
            if not self._learns_from(error):
                raise
            clear_frames(error)
        self._begin_anew()
        return self._until_known(take)

    def _learns_from(self, error):
        """Is what ended the runs known now, so that they are taken again?"""
        if isinstance(error, Held):
            return True
        if isinstance(error, states.Unreadable):
            self.draws = False
            return True
        if not isinstance(error, RuntimeError) or states.is_unreadable():
            return False
        if states.is_wanted():
            states.learn(self.torch, self.device)
        elif self.draws or self.has_drawn or type(error) is not RuntimeError or (
                torch_private.of(self.torch).begins_captures):
            return False
        self.draws = self.has_drawn = True
        return True

    def _drawing(self):
        """Around runs; makes ahead of them what drawing takes, if they may draw."""
        if _draws.are_told(self.torch, self.draws):
            _draws.prepare(self.torch, self.device, self.generators)
        return _draws.in_order(self.torch, self.device)

    def _begin_anew(self):
        self._forget()
        self.begins_anew()

    def _learn_draws(self):
        """After the rehearsal: were random numbers drawn, where the generators were told of it?"""
        if self.draws:
            self.draws = self.runs[-1].capture.drawn is not None

    def finish(self):
        """Drops what the runs made. Behind the last work of a shape pools of PyTorch's are let go, later where
        another thread captures. What eager runs left in the allocator's cache goes back to the device behind a
        capture, as replays need it no more: torch.cuda.graph gives it back as well."""
        self.kept.clear()
        self.runs.clear()
        if _C.call_counts()[0]:
            gc.collect(0)  # cycles with what a forward pass kept
        if not self.follows and (is_alone() or not _captures.lock.locked()):
            if not drop_segment_pools() and self._captures:
                empty_cache(self.torch)
