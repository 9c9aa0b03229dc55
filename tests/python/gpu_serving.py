# SPDX-License-Identifier: MIT
"""What a server does with graphs, on a GPU: models that come and go, memory that runs out and comes back,
many threads, batches in buckets. Usage: gpu_serving.py [--install] ..."""

import gc
import itertools
import sys
import threading
import unittest
import warnings
from unittest import mock

import torch

import reprise
from reprise._base import torch_private
from reprise._capture import workspaces

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

MIB = 1 << 20
WIDE = 64


def free_bytes():
    """Free memory of the device, behind all that a program can do for it."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


class Case(unittest.TestCase):
    def tearDown(self):
        """Tests of memory go by what is free."""
        free_bytes()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(WIDE, WIDE), torch.nn.ReLU(),
                                         torch.nn.Linear(WIDE, WIDE))

    def forward(self, x):
        return self.inner(x)


def inference():
    net = Net().cuda()
    graphed = reprise.graphed(net)

    def call(x):
        with torch.no_grad():
            return graphed(x)
    return graphed, call, net


def pair():
    net = Net().cuda()
    graphed = reprise.graphed(net)

    def call(x):
        graphed(x).square().mean().backward()
        net.zero_grad()
    return graphed, call, net


def gradients():
    net = Net().cuda()

    def step(x):
        net.zero_grad(set_to_none=True)
        loss = net(x).square().mean()
        loss.backward()
        return loss.detach()
    graphed = reprise.graphed(step, grad="whole")
    return graphed, graphed, net


def training():
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad(set_to_none=True)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    graphed = reprise.graphed(step)
    return graphed, graphed, net


KINDS = (inference, pair, gradients, training)


class Memory(Case):
    """Given back by callables that are deleted or reset."""

    def use(self, make, calls=3):
        graphed, call, net = make()
        for rows in (4, 8):
            for _ in range(calls):
                call(torch.ones(rows, WIDE, device="cuda"))
        self.assertTrue(graphed.shapes(), graphed.failures())
        return graphed, call, net

    def test_of_those_that_are_deleted(self):
        for make in KINDS:
            with self.subTest(make.__name__):
                self.use(make)
                before = free_bytes()
                for _ in range(5):
                    self.use(make)
                self.assertLessEqual(before - free_bytes(), 2 * MIB)

    def test_of_those_that_are_reset(self):
        for make in KINDS:
            with self.subTest(make.__name__):
                self.use(make)
                before = free_bytes()
                graphed, call, net = self.use(make)
                net.zero_grad(set_to_none=True)  # gradients may lie in memory of graphs
                graphed.reset()
                self.assertEqual(graphed.shapes(), [])
                self.assertIsNone(graphed.pool)
                parameters = 2 * MIB  # the net is there still
                self.assertLessEqual(before - free_bytes(), 2 * MIB + parameters)
                call(torch.ones(4, WIDE, device="cuda"))
                self.assertTrue(graphed.shapes(), graphed.failures())

    def test_of_gradients_that_outlive_their_graph(self):
        """What the last of them keeps goes with it, whatever comes then."""
        def leave():
            net = Net().cuda()

            def step(x):
                net.zero_grad(set_to_none=True)
                loss = net(x).square().mean()
                loss.backward()
                with torch.no_grad():
                    for p in net.parameters():
                        p.sub_(p.grad, alpha=0.1)
                return loss.detach()
            graphed = reprise.graphed(step)
            for _ in range(3):
                graphed(torch.ones(4, WIDE, device="cuda"))
            self.assertTrue(graphed.shapes(), graphed.failures())
            return net.inner[0].weight.grad
        leave()
        self.use(inference)  # its captures take with them what was left
        before = free_bytes()
        leave()
        self.assertLessEqual(before - free_bytes(), 2 * MIB)
        for _ in range(3):
            kept = leave()
            gc.collect()
            value = kept.clone()
            self.assertTrue(torch.equal(kept, value))
            del kept, value
        self.assertLessEqual(before - free_bytes(), 2 * MIB)

    def test_of_parts(self):
        """Those of graphs between which code runs eagerly."""
        mark = reprise.eager(lambda x: x * 2)
        graphed = reprise.graphed(lambda x: mark(x.repeat(1 << 17, 1) + 1).sum(), parts=True)
        before = free_bytes()
        with torch.no_grad():
            for _ in range(4):
                graphed(torch.ones(4, WIDE // 4, device="cuda"))
        self.assertEqual(graphed.parts()[0]["graphs"], 2, graphed.parts())
        self.assertLess(free_bytes(), before - 24 * MIB)
        del graphed
        self.assertGreaterEqual(free_bytes(), before - 4 * MIB)

    def test_of_a_pool_that_is_given(self):
        pool = reprise.Pool("alternatives", name="mine")
        graphed = reprise.graphed(Net().cuda(), pool=pool)
        with torch.no_grad():
            for _ in range(3):
                graphed(torch.ones(4, WIDE, device="cuda"))
            self.assertGreater(pool.info()["mapped_bytes"], 0)
            graphed.reset()
            self.assertEqual((pool.info()["graphs"], pool.info()["mapped_bytes"]), (0, 0))
            graphed(torch.ones(4, WIDE, device="cuda"))
            self.assertEqual(pool.info()["graphs"], 1)

    def test_a_reset_leaves_results_alone(self):
        graphed, call, _ = inference()
        x = torch.ones(4, WIDE, device="cuda")
        results = [call(x) for _ in range(3)]
        values = [r.clone() for r in results]
        graphed.reset()
        for one, value in zip(results, values):
            self.assertTrue(torch.equal(one, value))
        self.assertTrue(torch.equal(call(x), values[0]))

    def test_stays_flat_over_many_rounds(self):
        found = []
        for i in range(200):
            graphed, call, net = KINDS[i % 4]()
            for _ in range(3):
                call(torch.ones(4, WIDE, device="cuda"))
            del graphed, call, net
            if i % 40 == 39:
                found.append(free_bytes())
        self.assertLessEqual(max(found) - min(found), 2 * MIB, found)


class Buckets(Case):
    """Sizes that share a graph."""

    def test_reset_in_between(self):
        net = Net().cuda()
        graphed = reprise.graphed(net, buckets={"batch": [1, 2, 4]})
        with torch.no_grad():
            for i, rows in enumerate((2, 3, 2, 3, 2, 3, 2, 3)):
                x = torch.randn(rows, WIDE, device="cuda")
                self.assertTrue(torch.equal(graphed(x), net(x)))
                if i == 3:
                    graphed.reset()
        self.assertEqual(len(graphed.buckets()), 2)

    def check(self, fn, calls, graphs, grad=False, **options):
        graphed = reprise.graphed(fn, **options)
        with torch.set_grad_enabled(grad):
            for args in calls:
                self.assertTrue(torch.equal(graphed(*args), fn(*args)))
        facts = graphed.shapes()
        self.assertEqual(len(facts), graphs, [f["name"] for f in facts])
        return graphed

    def test_rows(self):
        net = Net().cuda()
        sizes = (8, 3, 5, 1, 2, 7, 4, 6, 8, 3)
        calls = [(torch.arange(n * WIDE, device="cuda").view(n, WIDE) / 100,) for n in sizes]
        graphed = self.check(net, calls, 4, buckets={"batch": [1, 2, 4, 8]})
        found = {f["sizes"]["batch"]: f for f in graphed.buckets()}
        self.assertEqual(sum(f["padded_calls"] for f in found.values()), 4)  # 5, 7, 6, 3; the first is eager
        self.assertEqual(found[8]["calls"], 5)
        self.assertAlmostEqual(found[8]["waste"], 1 - (8 + 5 + 7 + 6 + 8) / 40)
        self.assertEqual({f["bucket"]["batch"] for f in graphed.shapes()}, {1, 2, 4, 8})
        self.assertIn("bucket of batch 8: 3 of 5 calls were padded", reprise.report())

    def test_rules(self):
        for rule, expected in (("powers of two", {1, 4, 8}), (3, {3, 6}), ([5], {5, 6})):
            calls = [(torch.ones(n, 4, device="cuda"),) for n in (1, 3, 5, 6, 1, 3, 5, 6, 3)]
            graphed = self.check(lambda x: x * 2, calls, len(expected), buckets={"batch": rule})
            self.assertEqual({f["sizes"]["batch"] for f in graphed.buckets()}, expected)

    def test_several_dimensions_and_axes(self):
        def fn(x, y, bias):
            return (x + y.t()) * bias
        calls = [(torch.ones(n, m, device="cuda") * n, torch.ones(m, n, device="cuda") * m,
                  torch.tensor(1.5, device="cuda"))
                 for n, m in ((3, 5), (2, 7), (4, 8), (1, 3), (3, 3), (4, 5))]
        self.check(fn, calls, 2, buckets={"rows": [4], "columns": [4, 8]},
                   axes={"rows": {"x": 0, 1: 1}, "columns": {"x": 1, "y": 0}})

    def test_fills(self):
        def rows(x, scale):
            return x / scale

        calls = [(torch.ones(n, 4, device="cuda"), torch.full((n, 1), 2.0, device="cuda"))
                 for n in (3, 2, 3, 4)]
        self.check(rows, calls, 1, buckets={"batch": [4]}, fill={"scale": "last"})
        self.check(rows, calls, 1, buckets={"batch": [4]}, fill={"scale": 5.0, None: "zeros"})
        calls = [(torch.ones(n, 4, device="cuda"), torch.arange(n, device="cuda") % 2 == 0)
                 for n in (3, 2, 3, 4)]
        self.check(lambda x, mask: x.masked_fill(mask[:, None], 0.5), calls, 1, buckets={"batch": [4]})

    def test_what_is_written_to_arguments_is_brought_back(self):
        def fn(x, out):
            out.copy_(x * 2)
            return x + 1
        graphed = reprise.graphed(fn, buckets={"batch": [4, 8]})
        for n in (3, 2, 5, 4, 3, 1, 7):
            x, out = torch.ones(n, 4, device="cuda") * n, torch.zeros(n, 4, device="cuda")
            with torch.inference_mode(n % 2 == 0):
                self.assertTrue(torch.equal(graphed(x, out), x + 1))
                self.assertTrue(torch.equal(out, x * 2), n)

    def test_a_result_without_the_dimension_stays_eager(self):
        graphed = reprise.graphed(lambda x: (x * 2, x.sum()), buckets={"batch": [4]})
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for n in (3, 2, 4, 1, 4):
                x = torch.ones(n, 4, device="cuda")
                double, total = graphed(x)
                self.assertTrue(torch.equal(double, x * 2))
                self.assertEqual(total.item(), 4 * n)
        self.assertEqual(len(said), 1)
        self.assertIn("result 1, of shape (), does not have each padded dimension", str(said[0].message))
        with self.assertRaisesRegex(reprise.Error, "result 1"):
            reprise.graphed(lambda x: (x * 2, x.sum()), buckets={"batch": [4]}, strict=True)(
                torch.ones(3, 4, device="cuda"))

    def test_what_code_asks_of_an_argument_that_would_be_padded(self):
        """Its padded one would answer in another way."""
        held = {"x": torch.ones(3, 4, device="cuda")}
        more = torch.ones(8, 4, device="cuda")
        cases = ((lambda x: x * (2.0 if x is held["x"] else 1.0), held["x"], "reads beside them too"),
                 (lambda x: x * (2.0 if x.storage_offset() else 1.0), more[5:], "storage_offset"),
                 (lambda x, y: x * (2.0 if x is y else 1.0), None, None))
        for fn, other, why in cases:
            graphed = reprise.graphed(fn, buckets={"batch": [4]}, axes={"batch": {0: 0, 1: 0}} if why is None else None)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                for i in range(9):
                    x = torch.ones(3, 4, device="cuda")
                    args = (other if i // 3 == 1 else x,) if why else (x, x if i // 3 == 1 else x + 0)
                    self.assertTrue(torch.equal(graphed(*args), fn(*args)), (why, i))
            self.assertRegex(" ".join(str(w.message) for w in said), why or "^$")
            self.assertTrue(graphed.shapes())

    def test_trees_keywords_and_modules(self):
        class Two(torch.nn.Module):
            def forward(self, pair, scale=None):
                return {"a": pair[0] * scale, "b": (pair[1], 3)}
        graphed = reprise.graphed(Two(), buckets={"batch": [4, 8]})
        self.assertIsInstance(graphed, Two)
        for n in (3, 5, 2, 4, 7, 8):
            x = torch.ones(n, 4, device="cuda") * n
            made = graphed([x, x + 1], scale=x)
            self.assertTrue(torch.equal(made["a"], x * x))
            self.assertTrue(torch.equal(made["b"][0], x + 1))
            self.assertEqual(made["b"][1], 3)
        self.assertEqual(len(graphed.shapes()), 2)

    def test_forward_and_backward(self):
        """Exactly what eager runs of the padded batches give. Matrix products of other batch sizes may be
        others, whose sums are rounded otherwise."""
        net = Net().cuda()
        graphed = reprise.graphed(net, buckets={"batch": [4]})

        def padded(x):
            return net(torch.nn.functional.pad(x, (0, 0, 0, 4 - len(x))))[:len(x)]
        for _ in range(3):  # of these the first run eagerly, as they are
            graphed(torch.ones(3, WIDE, device="cuda", requires_grad=True))
        for n in (4, 3, 2, 3, 4, 1):
            found = []
            for call in (graphed, padded, net):
                net.zero_grad()
                x = (torch.ones(n, WIDE, device="cuda") * n).requires_grad_()
                out = call(x)
                out.square().sum().backward()
                found.append((out.detach(), x.grad, *(p.grad.clone() for p in net.parameters())))
            torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
            torch.testing.assert_close(found[0], found[2])
        self.assertEqual(len(graphed.shapes()), 2)

    def test_ahead_of_time_and_estimated(self):
        net, args = Net().cuda(), [(torch.empty(n, WIDE, device="meta"),) for n in (7, 3)]
        self.assertEqual(reprise.estimate(reprise.graphed(net, buckets={"batch": [4, 8]}), args).failures, [])
        graphed = reprise.graphed(net, buckets={"batch": [4, 8]},
                                  shapes=[(torch.ones(n, WIDE, device="cuda"),) for n in (7, 3, 6)])
        self.assertEqual(len(graphed.shapes()), 4)  # pairs

    def test_what_cannot_be(self):
        for options, text in (({"buckets": {"n": []}}, "have to be sizes in ascending order"),
                              ({"buckets": {"n": [4, 2]}}, "have to be sizes in ascending order"),
                              ({"buckets": {"n": "many"}}, "have to be sizes in ascending order"),
                              ({"buckets": {"n": [4]}, "axes": {"m": {"x": 0}}}, "names the dimension 'm'"),
                              ({"buckets": {"n": [4], "m": [4]}}, "only one may be without axes"),
                              ({"buckets": {"n": [4]}, "fill": "nothing"}, "fill is 'nothing'")):
            with self.assertRaisesRegex(ValueError, text):
                reprise.graphed(lambda x: x, **options)
        with self.assertRaisesRegex(ValueError, "'n' is 3 and 4 in arguments"):
            reprise.graphed(lambda x, y: x, buckets={"n": [4]})(torch.ones(3).cuda(), torch.ones(4).cuda())


class Threads(Case):
    """Eight that serve, with a stream each, and others that work eagerly meanwhile."""

    def test_every_shape_ends_captured(self):
        net = Net().cuda()
        graphed = reprise.graphed(net)
        wrong, start, stop = [], threading.Barrier(12), threading.Event()

        def serve(number):
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                start.wait()
                for i in range(40):
                    x = torch.full((1 + i % 20 + 20 * number, WIDE), 0.01 * number + 0.1 * i, device="cuda")
                    if not torch.equal(graphed(x), net(x)):
                        wrong.append((number, i))

        def work(number):
            """What is made by its first use: handles of cuBLAS, workspaces, kernels, autograd's threads."""
            types = (torch.float, torch.half, torch.double, torch.bfloat16)
            with torch.cuda.stream(torch.cuda.Stream()):
                start.wait()
                for i in itertools.count():
                    x = torch.ones(7 + i % 50 + number, 33 + i % 17, device="cuda", dtype=types[i % 4])
                    (x @ x.t()).sum().item()
                    if i % 7 == 0:
                        (torch.ones(2, 8, device="cuda", requires_grad=True) * 2).sum().backward()
                    if i % 16 == 0:
                        torch.cuda.empty_cache()
                    if stop.is_set():
                        break
        serving = [threading.Thread(target=serve, args=(n,)) for n in range(8)]
        working = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in serving + working:
            thread.start()
        for thread in serving:
            thread.join()
        stop.set()
        for thread in working:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(graphed.failures(), [])
        self.assertEqual(len(graphed.shapes()), 160)
        # The first call of all is the warm-up, which is eager; one more of each other thread may be, as
        # handles cannot be made in captures.
        self.assertGreaterEqual(sum(f["calls"] for f in graphed.shapes()), 8 * 40 - 8)


class Workspaces(Case):
    """A capture has workspaces of cuBLAS of its own; those of other streams stay where they are while
    other threads run, which may be about to launch kernels with them."""

    def workspaces(self):
        """Makes one of this thread for a stream of its own; the stream."""
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda.current_blas_handle()
        return stream

    def keeps_workspaces(self):
        """Does PyTorch keep one beyond the call that needs it? From 2.15 on it does not."""
        before = torch.cuda.memory_allocated()
        self.workspaces()
        return torch.cuda.memory_allocated() > before

    def capture(self):
        fn = reprise.graphed(lambda x: x @ x)
        with torch.no_grad():
            for _ in range(3):
                fn(torch.ones(8, 8, device="cuda"))
        self.assertEqual(len(fn.shapes()), 1, fn.failures())

    def test_those_of_other_threads_stay(self):
        if not self.keeps_workspaces():
            self.skipTest("this PyTorch takes one for each call, and frees it behind that")
        ready, stop = threading.Event(), threading.Event()

        def work():
            stream = self.workspaces()
            with torch.cuda.stream(stream):
                ready.set()
                stop.wait()
                again.append(torch.cuda.memory_allocated())
                torch.cuda.current_blas_handle()
                again.append(torch.cuda.memory_allocated())
        again, thread = [], threading.Thread(target=work)
        torch.cuda.empty_cache()
        none = torch.cuda.memory_allocated()
        thread.start()
        try:
            ready.wait()
            one = torch.cuda.memory_allocated()
            self.assertGreaterEqual(one - none, MIB)
            self.capture()
            torch.cuda.empty_cache()
            after = torch.cuda.memory_allocated()
            self.assertGreaterEqual(after, one)
            with torch.cuda.stream(torch.cuda.Stream()):
                like = torch.empty(one - none, dtype=torch.uint8, device="cuda")
            self.assertEqual(torch.cuda.memory_allocated() - after, like.numel())
        finally:
            stop.set()
            thread.join()
        self.assertEqual(again[1], again[0])  # it was taken again

    def test_those_of_one_stream_are_dropped(self):
        """Wherever PyTorch's map has it."""
        if not self.keeps_workspaces():
            self.skipTest("this PyTorch takes one for each call, and frees it behind that")
        torch_private.of(torch).clear_workspaces()
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait)
        thread.start()
        try:
            torch.cuda.current_blas_handle()  # of the default stream
            before = torch.cuda.memory_allocated()
            streams = [self.workspaces() for _ in range(20)]  # of a pool of 32
            made = torch.cuda.memory_allocated() - before
            self.assertEqual(made % len(streams), 0)
            for i, stream in enumerate(streams[1::2] + streams[::2], 1):
                workspaces.drop(torch, stream)
                self.assertEqual(torch.cuda.memory_allocated() - before, made - i * (made // len(streams)))
            torch.cuda.current_blas_handle()
            self.assertEqual(torch.cuda.memory_allocated(), before)
            workspaces.drop(torch, streams[0])  # where there is none
            self.assertEqual(torch.cuda.memory_allocated(), before)
        finally:
            stop.set()
            thread.join()


class Cold(Case):
    """A thread that captures before it made what libraries make by their first use."""

    def warm(self):
        """A callable that was run eagerly on this thread. As cuBLAS's handle, what it needs is one for each
        thread, and cannot be made in a capture."""
        made_here = threading.local()

        def fn(x):
            if not hasattr(made_here, "handle"):
                if torch.cuda.is_current_stream_capturing():
                    raise RuntimeError("a handle cannot be made in a capture")
                made_here.handle = True
            return x * 2
        graphed = reprise.graphed(fn)
        graphed(torch.ones(1, device="cuda"))
        return graphed

    def test_a_thread_that_never_ran_the_callable(self):
        graphed = self.warm()
        wrong = []

        def serve(n):
            for _ in range(4):
                x = torch.full((n,), float(n), device="cuda")
                if not torch.equal(graphed(x), x * 2):
                    wrong.append(n)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for n in range(2, 6):
                thread = threading.Thread(target=serve, args=(n,))
                thread.start()
                thread.join()
        self.assertEqual((wrong, graphed.failures()), ([], []))
        self.assertEqual([s["calls"] for s in graphed.shapes()], [3] * 4)

    def test_many_at_once(self):
        """Of the same shape, before any of them captured it."""
        graphed, begin = self.warm(), threading.Barrier(6)

        def serve():
            begin.wait()
            for _ in range(3):
                graphed(torch.ones(2, device="cuda"))
        threads = [threading.Thread(target=serve) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(graphed.shapes()), graphed.failures()), (1, []))

    def test_what_cannot_be_captured_is_told_all_the_same(self):
        graphed = reprise.graphed(lambda x: x * x.sum().item())
        graphed(torch.ones(1, device="cuda"))

        def serve():
            graphed(torch.ones(3, device="cuda"))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(16):
                thread = threading.Thread(target=serve)
                thread.start()
                thread.join()
        self.assertEqual(len(said), 1)
        self.assertEqual(len(graphed.failures()), 1)


class Shortage(Case):
    """Captures that memory does not suffice for."""

    def hog(self, leave):
        """All memory but so many bytes; the block is freed with what is returned."""
        free = free_bytes()
        return torch.empty(free - leave, dtype=torch.uint8, device="cuda")

    def needs(self, name):
        """A callable whose graph keeps 64 MiB; eager calls take as much, and give it back."""
        def fn(x):
            big = torch.zeros(64 * MIB // 4, device="cuda")
            return big[:x.numel()].view_as(x) + x
        fn.__name__ = name
        return fn

    def test_a_capture_is_tried_again_once_memory_is_free(self):
        graphed = reprise.graphed(self.needs("needs"))
        x = torch.ones(4, 4, device="cuda")
        graphed(x)
        held = self.hog(32 * MIB)
        called = []
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(40):
                try:
                    called.append(graphed(x))
                except torch.OutOfMemoryError:
                    pass  # an eager call has not enough either
        self.assertEqual(graphed.shapes(), [])
        self.assertEqual(len(said), 1, [str(w.message) for w in said])
        self.assertIn("until more memory is free", str(said[0].message))
        self.assertEqual(len(graphed.failures()), 1)
        del held
        for _ in range(80):
            self.assertTrue(torch.equal(graphed(x), x))
        self.assertEqual(len(graphed.shapes()), 1)
        self.assertGreater(graphed.shapes()[0]["calls"], 10)
        self.assertEqual(graphed.failures(), [])

    def test_it_is_not_tried_at_each_call(self):
        graphed = reprise.graphed(self.needs("counts"))
        x = torch.ones(4, 4, device="cuda")
        graphed(x)
        held = self.hog(32 * MIB)
        tidied = mock.patch.object(torch.cuda, "empty_cache", wraps=torch.cuda.empty_cache)
        with warnings.catch_warnings(), tidied as tidied:  # by each attempt that fails
            warnings.simplefilter("ignore")
            for _ in range(200):
                try:
                    graphed(x)
                except torch.OutOfMemoryError:
                    pass
        self.assertEqual(graphed.shapes(), [])
        self.assertGreater(tidied.call_count, 0)
        self.assertLessEqual(tidied.call_count, 12)
        del held

    def test_calls_rest_until_it_is_looked_for(self):
        """No call between makes its key."""
        graphed = reprise.graphed(self.needs("rests"))
        x = torch.ones(4, 4, device="cuda")
        graphed(x)
        held = self.hog(96 * MIB)
        short = mock.patch.object(graphed, "_capture", side_effect=torch.OutOfMemoryError("none is left"))
        keys = mock.patch.object(graphed, "_key", wraps=graphed._key)
        with warnings.catch_warnings(), short as short, keys as keys:
            warnings.simplefilter("ignore")
            for _ in range(200):
                graphed(x)
        self.assertEqual(short.call_count, 1)
        self.assertLessEqual(keys.call_count, 14)
        del held

    def test_what_nobody_uses_is_given_back_first(self):
        """Memory that other callables left behind, in cycles that were not collected yet."""
        gc.disable()
        try:
            def leave():
                graphed = reprise.graphed(self.needs("left"))
                graphed.me = graphed
                for _ in range(3):
                    graphed(torch.ones(4, 4, device="cuda"))
                self.assertEqual(len(graphed.shapes()), 1)
            leave()
            torch.cuda.empty_cache()
            held = torch.empty(torch.cuda.mem_get_info()[0] - 40 * MIB, dtype=torch.uint8, device="cuda")
            graphed = reprise.graphed(self.needs("next"), warmup=0)
            x = torch.ones(4, 4, device="cuda")
            self.assertTrue(torch.equal(graphed(x), x))
            self.assertEqual(len(graphed.shapes()), 1, graphed.failures())
            del held
        finally:
            gc.enable()


if __name__ == "__main__":
    unittest.main()
