# SPDX-License-Identifier: MIT
"""CUDA tensors that are sent to other processes, with PyTorch's own allocator and with Reprise's in its
place; usage: gpu_shared.py [--install] ..."""

import functools
import gc
import inspect
import os
import signal
import sys
import time
import unittest
import warnings

import torch
import torch.multiprocessing as mp

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")  # processes that it starts have none
    import reprise
    reprise.install()

MIB = 1 << 20
WAIT = 60  # seconds, of a process that starts


def of_bytes(count, value=0):
    return torch.full((count,), value, dtype=torch.uint8, device="cuda")


def installs(wanted):
    """In a process that was started: under install() or not, whatever its parent is."""
    import reprise
    if wanted:
        reprise.install()


def first(tensor):
    return tensor.detach().flatten()[0].item()


def serve(ours, install, requests, answers):
    """Does what it is asked with what it is sent, until it is asked for nothing."""
    if ours:
        installs(install)
    kept = []
    while True:
        what, sent = requests.get()
        if what is None:
            return
        try:
            answers.put(globals()[what](sent, kept))
        except RuntimeError as error:
            answers.put(f"RuntimeError: {error}")
        del sent
        gc.collect()


def look(sent, kept):
    """The first and last elements of each."""
    return [(tuple(t.shape), first(t), t.detach().flatten()[-1].item()) for t in sent]


def write(sent, kept):
    for tensor in sent:
        tensor.detach().fill_(9)
    torch.cuda.synchronize()
    return [first(t) for t in sent]


def keep(sent, kept):
    kept.extend(sent)
    return len(kept)


def kept_values(sent, kept):
    return [first(t) for t in kept]


def drop(sent, kept):
    kept.clear()
    return 0


def same_storage(sent, kept):
    """Are they views of one storage, and is what is kept one too?"""
    places = {t.untyped_storage().data_ptr() for t in (*sent, *kept)}
    return len(places) == 1


def kinds(sent, kept):
    return [(type(t).__name__, t.requires_grad, t.is_leaf, str(t.dtype), t.stride()) for t in sent]


def make(sent, kept):
    """A tensor of the process that was started, which it keeps."""
    kept.append(torch.full(sent, 5.0, device="cuda"))
    return kept[-1]


@functools.cache
def shares():
    """Can memory of cudaMalloc be sent? On the thread that sends an error would be lost."""
    try:
        torch.ones(1, device="cuda").untyped_storage()._share_cuda_()
    except RuntimeError:
        return False
    return True


def make_of_pytorchs(sent, kept):
    return make(sent, kept) if shares() else "not here"


def forward(sent, kept):
    """What it was sent, sent on."""
    return sent[0]


def uses(sent, kept):
    """What becomes of each use."""
    said = []
    for use in (lambda t: t.sum(), torch.sum, lambda t: (t + 0).sum(), lambda t: t[:].sum()):
        try:
            said.append(use(sent[0]).item())
        except RuntimeError as error:
            said.append(str(error))
    return said


def parts(sent, kept):
    """What PyTorch sends of a tensor, by the names of its arguments, as programs send it by ways of their own."""
    kept.append(torch.ones(3, device="cuda"))
    names = list(inspect.signature(torch.multiprocessing.reductions.rebuild_cuda_tensor).parameters)
    if names[-1] != "event_sync_required":  # Reprise's has not all by name
        names = ["tensor_cls", "tensor_size", "tensor_stride", "tensor_offset", "storage_cls", "dtype",
                 "storage_device", "storage_handle", "storage_size_bytes", "storage_offset_bytes", "requires_grad",
                 "ref_counter_handle", "ref_counter_offset", "event_handle", "event_sync_required"]
    return dict(zip(names, torch.multiprocessing.reductions.reduce_tensor(kept[-1])[1]))


def identity(sent, kept):
    return os.getpid()


class Case(unittest.TestCase):
    method = "spawn"
    install = INSTALL  # of the process that is started

    def setUp(self):
        if not (INSTALL or shares()):
            self.skipTest("the driver shares no memory of cudaMalloc")
        self.context = mp.get_context(self.method)
        self.requests, self.answers = self.context.Queue(), self.context.Queue()
        self.child = self.context.Process(target=serve,
                                          args=(INSTALL, self.install, self.requests, self.answers))
        self.child.start()
        self.ask("identity")
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def tearDown(self):
        self.requests.put((None, None))
        self.child.join(WAIT)
        self.child.kill()

    def ask(self, what, *sent):
        self.requests.put((what, sent[0] if what.startswith("make") else sent))
        return self.answers.get(timeout=WAIT)

    def until(self, holds):
        """What another process sets off takes its time."""
        end = time.monotonic() + 10
        while not holds() and time.monotonic() < end:
            if hasattr(torch.cuda, "ipc_collect"):
                torch.cuda.ipc_collect()
            time.sleep(0.01)
        return holds()


class Everywhere:
    """What holds however the other process was started, whatever its allocator."""

    def test_values_arrive(self):
        x = torch.arange(10.0, device="cuda")
        self.assertEqual(self.ask("look", x, x[3:5], x.to(torch.half)),
                         [((10,), 0.0, 9.0), ((2,), 3.0, 4.0), ((10,), 0.0, 9.0)])

    def test_memory_is_the_same(self):
        x = torch.arange(10.0, device="cuda")
        self.assertEqual(self.ask("write", x[2:4]), [9.0])
        self.assertEqual(x.tolist(), [0, 1, 9, 9, 4, 5, 6, 7, 8, 9])
        self.assertEqual(self.ask("keep", x), 1)
        x.fill_(3)
        torch.cuda.synchronize()
        self.assertEqual(self.ask("kept_values"), [3.0])
        self.ask("drop")

    def test_a_tensor_over_several_mappings(self):
        before = of_bytes(15 * MIB)
        x = of_bytes(70 * MIB, 7)
        x[-1] = 8
        self.assertEqual(self.ask("look", x), [((70 * MIB,), 7, 8)])
        self.assertEqual(self.ask("write", x), [9])
        self.assertTrue((x == 9).all().item())
        self.assertTrue((before == 0).all().item())

    def test_it_is_freed_by_the_last_holder(self):
        x = of_bytes(30 * MIB, 4)
        with_it = torch.cuda.memory_allocated()
        self.ask("keep", x)
        self.ask("keep", x)
        del x
        others = [of_bytes(30 * MIB, 1) for _ in range(4)]
        self.assertEqual(self.ask("kept_values"), [4, 4])
        del others
        self.assertEqual(torch.cuda.memory_allocated(), with_it)
        self.ask("drop")
        self.assertTrue(self.until(lambda: torch.cuda.memory_allocated() <= with_it - 30 * MIB))

    def test_the_other_process_sends(self):
        x = self.ask("make", (3, 4))
        self.assertEqual(x.shape, (3, 4))
        self.assertEqual(first(x), 5)
        x.fill_(6)
        torch.cuda.synchronize()
        self.assertEqual(self.ask("kept_values"), [6])
        self.ask("drop")
        self.assertEqual(first(x), 6)

    def test_a_tensor_that_was_sent_and_received_says_why_it_is_not_sent_on(self):
        if not INSTALL:
            self.skipTest("PyTorch raises on the thread that sends, and the receiver waits")
        answer = self.ask("forward", torch.ones(3, device="cuda"))
        with self.assertRaisesRegex(RuntimeError, r"tensor\.clone\(\)"):
            answer + 1


class Spawned(Everywhere, Case):
    """Processes of which both have the allocator, and what has nothing to do with how they began."""

    def test_views_share_a_storage(self):
        x = torch.arange(10.0, device="cuda")
        self.assertIs(self.ask("same_storage", x, x[2:], x.view(2, 5)), True)
        self.ask("keep", x)
        self.assertIs(self.ask("same_storage", x[4:]), True)
        self.ask("drop")
        if INSTALL:
            from reprise._alloc import lending
            self.assertTrue(self.until(lambda: lending.loans() == 0))

    def test_kinds_of_tensors(self):
        x = torch.arange(10.0, device="cuda")
        leaf = torch.ones(3, device="cuda", requires_grad=True)
        weight = torch.nn.Parameter(torch.ones(2, 3, device="cuda").t())
        self.assertEqual(self.ask("kinds", x, leaf, weight, x.long()),
                         [("Tensor", False, True, "torch.float32", (1,)), ("Tensor", True, True, "torch.float32", (1,)),
                          ("Parameter", True, True, "torch.float32", (1, 3)),
                          ("Tensor", False, True, "torch.int64", (1,))])

    def test_empty_ones_and_those_of_the_cpu(self):
        self.assertEqual(self.ask("kinds", torch.empty(0, device="cuda"), torch.ones(2)),
                         [("Tensor", False, True, "torch.float32", (1,))] * 2)
        self.assertEqual(self.ask("look", torch.ones(2)), [((2,), 1.0, 1.0)])

    def test_a_module_of_hundreds_of_tensors(self):
        """No descriptor is kept of any."""
        net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(300))).cuda()
        files = len(os.listdir("/proc/self/fd"))
        values = self.ask("look", *net.parameters())
        self.assertEqual([v[1] for v in values], [first(p) for p in net.parameters()])
        self.assertLess(len(os.listdir("/proc/self/fd")), files + 20)
        if INSTALL:
            from reprise._alloc import lending
            self.assertTrue(self.until(lambda: lending.loans() == 0))

    def test_work_that_is_not_done_yet_is_waited_for(self):
        if not INSTALL:
            self.skipTest("PyTorch does not wait where a tensor is sent once more (H100, 2.14.1 and 2.15.0)")
        x = torch.zeros(16 * MIB, device="cuda")
        self.assertEqual(self.ask("look", x), [((16 * MIB,), 0.0, 0.0)])
        for round in (1, 2):
            for _ in range(100):
                x += 1
            self.assertEqual(self.ask("look", x), [((16 * MIB,), 100.0 * round, 100.0 * round)])
            self.ask("keep", x)
        self.ask("drop")

    def test_parts_that_were_sent_by_a_way_of_its_own(self):
        x = torch.multiprocessing.reductions.rebuild_cuda_tensor(**self.ask("parts"))
        self.assertEqual(x.tolist(), [1.0] * 3)

    def test_a_queue_of_this_process(self):
        queue = mp.Queue()
        for dtype in (torch.float32, torch.int64):
            queue.put(torch.tensor([], dtype=dtype, device="cuda"))
            got = queue.get(timeout=10)
            self.assertEqual((got.dtype, got.numel(), got.device.type), (dtype, 0, "cuda"))

    def test_many(self):
        """They are freed as they go."""
        before = None
        for i in range(200):
            x = torch.full((5,), i, device="cuda")
            self.assertEqual(self.ask("look", x), [((5,), i, i)])
            before = torch.cuda.memory_allocated() if i == 20 else before
        self.assertTrue(self.until(lambda: torch.cuda.memory_allocated() <= before))

    def test_it_is_freed_when_the_other_process_dies(self):
        if not INSTALL:
            self.skipTest("PyTorch keeps it")
        x = of_bytes(30 * MIB)
        with_it = torch.cuda.memory_allocated()
        self.ask("keep", x)
        del x
        self.assertEqual(torch.cuda.memory_allocated(), with_it)
        self.child.kill()
        self.assertTrue(self.until(lambda: torch.cuda.memory_allocated() <= with_it - 30 * MIB))

    def test_it_outlives_the_process_that_sent_it(self):
        if not INSTALL:
            self.skipTest("PyTorch demands that the sender lives")
        x = self.ask("make", (100,))
        os.kill(self.ask("identity"), signal.SIGKILL)
        self.child.join(WAIT)
        self.assertEqual(x.tolist(), [5.0] * 100)
        self.assertEqual((x + 1).sum().item(), 600)

    def test_memory_of_a_graph_says_why_it_is_not_sent(self):
        if not INSTALL:
            self.skipTest("PyTorch sends it")
        graph, x = torch.cuda.CUDAGraph(), torch.ones(4, device="cuda")
        with torch.cuda.graph(graph):
            y = x + 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            said = self.ask("uses", y)
        for text in said:
            self.assertRegex(str(text), r"shape \(4,\) cannot be sent .* a graph's own.*tensor\.clone\(\)")
        self.assertLessEqual(len([w for w in caught if "cannot be sent" in str(w.message)]), 1)
        graph.replay()
        self.assertEqual(self.ask("look", y.clone()), [((4,), 2.0, 2.0)])

    def test_a_sender_that_is_gone_is_named(self):
        if not INSTALL:
            self.skipTest("PyTorch raises where it is received")
        self.requests.put(("make", (3,)))
        while not self.answers._reader.poll(0.1):
            pass
        os.kill(self.child.pid, signal.SIGKILL)
        self.child.join(WAIT)
        x = self.answers.get(timeout=WAIT)
        with self.assertRaisesRegex(RuntimeError, "shape .3,. could not be received: .* is gone"):
            x.sum()

    def test_a_tensor_is_let_go_of_while_its_stream_captures(self):
        if not INSTALL:
            self.skipTest("PyTorch waits for the stream in a destructor, which ends the process")
        x = self.ask("make", (100,))
        y = torch.ones(4, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y += 1
            del x
        graph.replay()
        self.assertEqual(y.tolist(), [2.0] * 4)
        x = self.ask("make", (100,))
        self.assertEqual(x.sum().item(), 500)

    def test_graphs_take_what_was_received(self):
        if not INSTALL:
            self.skipTest("Reprise's graphs")
        x = self.ask("make", (64,))
        call = reprise.graphed(lambda t: t * 2)
        for _ in range(3):
            self.assertEqual(call(x).tolist(), [10.0] * 64)


class Forked(Everywhere, Case):
    """Of a server that forks."""
    method = "forkserver"


class WithoutInstall(Everywhere, Case):
    """The other process has PyTorch's own allocator."""
    install = False

    def test_the_other_process_sends(self):
        x = self.ask("make_of_pytorchs", (3,))
        if x == "not here":
            self.skipTest("the driver shares no memory of cudaMalloc")
        if not INSTALL:  # both have it
            self.assertEqual(x.tolist(), [5.0] * 3)
            return
        with self.assertRaisesRegex(RuntimeError, "shape .3,. could not be received: .*own allocator"):
            x + 1


class Arguments(unittest.TestCase):
    def setUp(self):  # not as this file is read, which each process does before it installs
        if not (INSTALL or shares()):
            self.skipTest("the driver shares no memory of cudaMalloc")

    def test_arguments_of_a_process(self):
        x = torch.zeros(4, device="cuda")
        for method in ("spawn", "forkserver"):
            x.zero_()
            child = mp.get_context(method).Process(target=fill, args=(INSTALL, x))
            child.start()
            child.join(WAIT)
            self.assertEqual(x.tolist(), [8.0] * 4)


def fill(install, tensor):
    tensor.fill_(8)
    torch.cuda.synchronize()


if __name__ == "__main__":
    unittest.main(verbosity=2)
