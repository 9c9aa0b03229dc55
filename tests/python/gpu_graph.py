# SPDX-License-Identifier: MIT
"""reprise.graph and torch.cuda.graph on a GPU, under install() and without it: usage: gpu_graph.py
[--install] ..."""

import ctypes
import gc
import sys
import threading
import unittest

import torch

import reprise
from training_steps import mlp, whole_step
from reprise import _C

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()


def capture(fn, ways=reprise.graph, **options):
    """A graph of fn, and what fn returned; it ran before on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        fn()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with ways(graph, **options):
        out = fn()
    return graph, out


class Graphs(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def tearDown(self):
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        _C.sweep()
        self.assertEqual(_C.leases(), [])

    def test_replays_what_was_captured(self):
        for ways in (reprise.graph, torch.cuda.graph):
            net, x = mlp().eval(), torch.randn(16, 256, device="cuda")
            with torch.no_grad():
                graph, out = capture(lambda: net(x), ways)
                for _ in range(3):
                    x.copy_(torch.randn(16, 256, device="cuda"))
                    graph.replay()
                    self.assertTrue(torch.equal(out, net(x)))
            del graph, out

    @unittest.skipUnless(INSTALL, "PyTorch's own allocator places it")
    def test_dead_blocks_are_used_again(self):
        x = torch.zeros(1 << 18, device="cuda")  # 1 MiB

        def chain():
            y = x
            for _ in range(20):
                y = y + 1
            return y
        graph, out = capture(chain)
        facts, = _C.leases()
        self.assertEqual(facts["alive_bytes"], 1 << 20)
        self.assertEqual(facts["planned_bytes"], facts["lower_bound_bytes"])
        self.assertEqual(facts["planned_bytes"], 2 << 20)
        graph.replay()
        self.assertTrue((out == 20).all().item())
        del graph, out

    def test_pools_are_shared(self):
        x = torch.ones(1 << 18, device="cuda")

        def work(k):
            return lambda: ((x + k) * 2 + 0) * 1
        first, a = capture(work(1))
        pools = [first.pool(), torch.cuda.graph_pool_handle(), reprise.Pool("sequence"),
                 reprise.Pool("alternatives")]
        for pool in pools:
            graphs = [capture(work(k), pool=pool) for k in (2, 3, 4)]
            first.replay()  # the order of the captures: a later graph's result may lie in what it frees
            for graph, _ in graphs:
                graph.replay()
            for k, (_, out) in zip((2, 3, 4), graphs):
                self.assertTrue((out == 2 * (1 + k)).all().item())
            self.assertTrue((a == 4).all().item())
            if INSTALL and isinstance(pool, reprise.Pool):
                # three results, and room for one intermediate result
                self.assertEqual(pool.info()["planned_bytes"], 4 << 20)
                self.assertEqual(pool.info()["graphs"], 3)
            del graphs, graph, out
            gc.collect()
        del first, a, pools, pool

    def test_dropped_results_make_room(self):
        x = torch.ones(1 << 18, device="cuda")
        pool = reprise.Pool("sequence")
        graphs = []
        for k in range(5):
            graph, out = capture(lambda: (x + k) * 2, pool=pool)
            graphs.append(graph)
            graph.replay()
            self.assertTrue((out == 2 * (1 + k)).all().item())
            del out
        if INSTALL:
            self.assertEqual(pool.info()["planned_bytes"], 2 << 20)
        del graphs, graph

    def test_collections_wait_for_the_capture(self):
        x = torch.zeros(1 << 10, device="cuda")
        self.assertTrue(gc.isenabled())
        before = gc.get_threshold()

        class Around:
            def __init__(self, graph):
                self.graph, self.itself = graph, self

        def work():
            made = [Around(None) for _ in range(1000)]  # enough for a collection
            return x + len(made)
        try:
            lost = Around(capture(lambda: x + 1)[0])
            gc.collect()
            gc.set_threshold(10)
            graph = torch.cuda.CUDAGraph()
            with reprise.graph(graph):
                del lost
                self.assertFalse(gc.isenabled())
                out = work()
            self.assertTrue(gc.isenabled())
        finally:
            gc.set_threshold(*before)
        graph.replay()
        self.assertTrue((out == 1000).all().item())
        with self.assertRaises(ValueError), reprise.graph(torch.cuda.CUDAGraph()):
            x.add_(1)
            raise ValueError
        self.assertTrue(gc.isenabled())

    def test_eager_work_leaves_graphs_alone(self):
        x = torch.zeros(1 << 16, device="cuda")
        graph, y = capture(lambda: (x + 1) * 2)
        others = [torch.full((1 << 16,), 9.0, device="cuda") for _ in range(64)]
        x.fill_(3)
        graph.replay()
        torch.cuda.empty_cache()
        graph.replay()
        torch.cuda.synchronize()
        self.assertTrue((y == 8).all().item())
        self.assertTrue(all((o == 9).all().item() for o in others))
        del graph
        gc.collect()
        torch.cuda.empty_cache()
        self.assertTrue((y == 8).all().item())  # a tensor outlives its graph

    def test_side_streams(self):
        side = torch.cuda.Stream()
        x = torch.randn(1 << 16, device="cuda")

        def fork():
            y = x + 1
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                z = y * 2
                y.record_stream(side)
                z = z + 0
            del y
            w = x * 3
            w = w + 0
            torch.cuda.current_stream().wait_stream(side)
            z.record_stream(torch.cuda.current_stream())
            return w + z
        graph, out = capture(fork)
        for _ in range(5):
            x.normal_()
            graph.replay()
            self.assertTrue(torch.equal(out, x * 3 + (x + 1) * 2))
        del graph, out

    def test_random_numbers_are_pytorchs(self):
        def draw():
            return torch.rand(1000, device="cuda")
        graph, out = capture(draw)
        torch.manual_seed(9)
        got = []
        for _ in range(3):
            graph.replay()
            got.append(out.clone())
        self.assertFalse(torch.equal(got[0], got[1]))
        torch.manual_seed(9)
        graph.replay()
        self.assertTrue(torch.equal(out, got[0]))
        del graph, out

    def test_replays_come_after_what_the_capture_enqueued(self):
        """PyTorch before 2.12 fills a generator's words on the stream of the capture as it begins."""
        slow, go = torch.cuda.Stream(), threading.Event()
        wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait(60))
        driver = ctypes.CDLL("libcuda.so.1")

        class Behind(torch.cuda.CUDAGraph):
            def capture_begin(self, *args, **kwargs):
                stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
                assert driver.cuLaunchHostFunc(stream, wait, None) == 0
                super().capture_begin(*args, **kwargs)
        graph = Behind()
        try:
            with reprise.graph(graph, stream=slow):
                out = torch.rand(1000, device="cuda")
            self.assertFalse(torch.cuda.current_stream().query())
        finally:
            go.set()
        torch.manual_seed(11)
        want = torch.rand(1000, device="cuda")
        torch.manual_seed(11)
        graph.replay()
        self.assertTrue(torch.equal(out, want))
        del graph, out

    def test_whole_training_step(self):
        """Backward passes take their memory on autograd's threads."""
        def build():
            torch.manual_seed(2)
            net = mlp(128, 3)
            return whole_step(net, torch.optim.SGD(net.parameters(), lr=0.1))
        batches = [(torch.randn(32, 128, device="cuda"), torch.randn(32, 128, device="cuda"))
                   for _ in range(10)]
        x, y = batches[0][0].clone(), batches[0][1].clone()

        def losses(run):
            seen = []
            for a, b in batches:
                x.copy_(a)
                y.copy_(b)
                seen.append(run().item())
            return seen
        step = build()
        step(x, y)
        want = losses(lambda: step(x, y))
        step = build()
        x.copy_(batches[0][0])
        y.copy_(batches[0][1])
        graph, loss = capture(lambda: step(x, y))

        def replay():
            graph.replay()
            return loss
        got = losses(replay)
        torch.testing.assert_close(torch.tensor(got), torch.tensor(want))
        del graph, loss, replay, step

    def test_pytorchs_make_graphed_callables(self):
        net = mlp(64, 2)
        x = torch.randn(8, 64, device="cuda", requires_grad=True)
        want = net(x)
        want.sum().backward()
        want = want.detach()  # with its history, gradients would be added up on the default stream
        grads = [p.grad.clone() for p in net.parameters()]
        net.zero_grad(set_to_none=True)
        made = torch.cuda.make_graphed_callables(net, (torch.randn_like(x, requires_grad=True),))
        out = made(x)
        out.sum().backward()
        self.assertTrue(torch.allclose(out, want))
        for p, g in zip(net.parameters(), grads):
            self.assertTrue(torch.allclose(p.grad, g))
        del made, out, net, p, grads, g, want

    def test_a_failed_capture_spoils_nothing(self):
        before = torch.cuda.current_stream()
        x = torch.ones(100, device="cuda")
        for allocates in (True, False):
            graph = torch.cuda.CUDAGraph()
            with self.assertRaises(RuntimeError):
                with reprise.graph(graph):
                    y = x + 1 if allocates else x
                    torch.cuda.current_stream().synchronize()
            self.assertEqual(torch.cuda.current_stream(), before)
            del graph, y
        self.assertEqual(torch.rand(3, device="cuda").shape, (3,))
        good, out = capture(lambda: x * 2)
        good.replay()
        self.assertTrue((out == 2).all().item())
        del good, out

    def test_graphed_callables_use_what_a_graph_keeps(self):
        x = torch.ones(1000, device="cuda")
        graph, y = capture(lambda: x * 2)
        made = reprise.graphed(lambda a: a + y, strict=True)
        for _ in range(4):
            graph.replay()
            self.assertTrue((made(x) == 3).all().item())
            self.assertTrue((made(y) == 4).all().item())
        del graph, y, made

    def test_within_a_graph_a_graphed_callable_is_itself(self):
        net = mlp().eval()
        made = reprise.graphed(net, strict=True)
        x = torch.randn(4, 256, device="cuda")
        with torch.no_grad():
            for _ in range(3):
                made(x)
            graph, out = capture(lambda: made(x) * 2)
            graph.replay()
            self.assertTrue(torch.equal(out, net(x) * 2))
        del graph, out, made

    @unittest.skipUnless(INSTALL, "PyTorch's own statistics")
    def test_statistics_know_of_it(self):
        before = torch.cuda.memory_allocated()
        x = torch.zeros(1 << 18, device="cuda")
        graph, y = capture(lambda: x + 1)
        # PyTorch 2.12 keeps seed and offset of the graph there.
        self.assertIn(torch.cuda.memory_allocated() - before, (2 << 20, (2 << 20) + 1024))
        self.assertGreaterEqual(torch.cuda.memory_reserved(), torch.cuda.memory_allocated())
        del graph, y

    @unittest.skipUnless(INSTALL, "what PyTorch's own allocator says is its business")
    def test_out_of_memory_is_what_users_catch(self):
        graph = torch.cuda.CUDAGraph()
        with self.assertRaises(torch.OutOfMemoryError):
            with reprise.graph(graph):
                torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        del graph

    @unittest.skipIf(torch.cuda.device_count() < 2, "one GPU")
    def test_the_pool_is_of_the_device(self):
        with self.assertRaisesRegex(ValueError, "device 1"):
            reprise.graph(torch.cuda.CUDAGraph(), pool=reprise.Pool(device=1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
