# SPDX-License-Identifier: MIT
"""Several GPUs in one process, and one for each of several processes.
Usage: gpu_devices.py [--install] ..."""

import gc
import os
import sys
import threading
import unittest
import warnings

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import torch
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel

import reprise
from training_steps import mlp, whole_step

INSTALL = "--install" in sys.argv or os.environ.get("GPU_DEVICES_INSTALL") == "1"
if "--install" in sys.argv:
    sys.argv.remove("--install")
if INSTALL:
    os.environ["GPU_DEVICES_INSTALL"] = "1"  # for the ranks, which are processes of their own
    reprise.install()

TIMEOUT = 60  # of a rank, in seconds


def mlp_on(device, width=128):
    torch.manual_seed(1)
    return mlp(width, 3, device=f"cuda:{device}")


def said_in(body):
    """The texts of warnings while body() ran."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        body()
    return [str(w.message) for w in said]


class Case(unittest.TestCase):
    def setUp(self):
        if torch.cuda.device_count() < 2:
            self.skipTest("needs two GPUs")
        torch.cuda.set_device(0)
        torch.manual_seed(1)

    def tearDown(self):
        gc.collect()
        torch.cuda.set_device(0)

    def equal(self, got, want, device):
        self.assertEqual(got.device, torch.device("cuda", device))
        self.assertTrue(torch.equal(got, want))


class Callables(Case):
    """reprise.graphed, whatever device is current."""

    def check(self, current, device):
        net = mlp_on(device).eval()
        made = reprise.graphed(net, strict=True)
        outs, wants = [], []
        with torch.no_grad(), torch.cuda.device(current):
            for _ in range(6):
                x = torch.randn(16, 128, device=f"cuda:{device}")
                outs.append(made(x))
                wants.append(net(x))
                self.assertEqual(torch.cuda.current_device(), current)
        for got, want in zip(outs, wants):  # fresh: none was overwritten
            self.equal(got, want, device)
        facts, = made.shapes()
        self.assertEqual((facts["device"], facts["copied_args"], facts["bound_args"]),
                         (device, 0, 2))
        self.assertEqual(list(made.pools), [device])

    def test_second_device_while_the_first_is_current(self):
        self.check(0, 1)

    def test_first_device_while_the_second_is_current(self):
        self.check(1, 0)

    def test_second_device_while_it_is_current(self):
        self.check(1, 1)

    def test_one_callable_on_both(self):
        def fn(x, k):
            return x.sin() * k + 1
        made = reprise.graphed(fn, strict=True)
        for turn in range(5):
            for device in (0, 1):
                for current in (0, 1):
                    with torch.cuda.device(current):
                        x = torch.randn(1000, device=f"cuda:{device}")
                        self.equal(made(x, 3), fn(x, 3), device)
        facts = sorted(made.shapes(), key=lambda f: f["device"])
        self.assertEqual([f["device"] for f in facts], [0, 1])
        self.assertEqual(sum(f["calls"] for f in facts), 5 * 4 - 1)
        self.assertEqual({d: p.device for d, p in made.pools.items()}, {0: 0, 1: 1})
        for device in (0, 1):
            with torch.cuda.device(device):
                self.assertEqual(made.pool.device, device)

    def test_calls_without_tensors_are_of_the_current_device(self):
        def fn(n):
            return torch.arange(n, device="cuda").square()
        made = reprise.graphed(fn, strict=True)
        for _ in range(4):
            for device in (0, 1):
                with torch.cuda.device(device):
                    self.equal(made(100), fn(100), device)

    def test_arguments_of_both_run_eagerly(self):
        def fn(x, y):
            return x + y.to(x.device)
        made = reprise.graphed(fn)
        x, y = torch.randn(100, device="cuda:0"), torch.randn(100, device="cuda:1")

        def calls():
            for _ in range(3):
                self.equal(made(x, y), fn(x, y), 0)
                self.equal(made(y, x), fn(y, x), 1)
        said = said_in(calls)
        self.assertEqual(len([s for s in said if "arguments lie on cuda:0 and cuda:1" in s]), 1, said)
        strict = reprise.graphed(fn, strict=True)
        with self.assertRaisesRegex(reprise.Error, "arguments lie on cuda:0 and cuda:1"):
            strict(x, y)
        self.equal(strict(x, x), fn(x, x), 0)

    def test_parameters_of_another_device(self):
        """The copies between the devices cannot be captured, or are captured right."""
        class Away(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = mlp_on(1)

            def forward(self, x):
                return self.net(x.to("cuda:1")).to(x.device)
        away = Away().eval()
        made = reprise.graphed(away)

        def calls():
            with torch.no_grad():
                for _ in range(6):
                    x = torch.randn(16, 128, device="cuda:0")
                    self.equal(made(x), away(x), 0)
        said = said_in(calls)
        self.assertTrue(any("without a graph" in s for s in said), (said, made.shapes()))
        torch.cuda.synchronize(0), torch.cuda.synchronize(1)

    def test_results_of_another_device_are_refused(self):
        other = torch.ones(10, device="cuda:1")

        def fn(x):
            return x + 1, other * 2
        made = reprise.graphed(fn)

        def calls():
            for i in range(5):
                other.fill_(i)
                x = torch.randn(10, device="cuda:0")
                a, b = made(x)
                self.equal(a, x + 1, 0)
                self.equal(b, other * 2, 1)
        self.assertTrue(any("graph is of one GPU" in s for s in said_in(calls)))

    def test_autocast_and_random_numbers(self):
        net = torch.nn.Sequential(mlp_on(1), torch.nn.Dropout(0.4)).train()
        made = reprise.graphed(net, strict=True)
        xs = [torch.randn(16, 128, device="cuda:1") for _ in range(6)]
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
            torch.manual_seed(5)
            want = [net(x) for x in xs] + [torch.rand(4, device=f"cuda:{d}") for d in (0, 1)]
            torch.manual_seed(5)
            got = [made(x) for x in xs] + [torch.rand(4, device=f"cuda:{d}") for d in (0, 1)]
        for a, b in zip(got, want):
            self.assertTrue(torch.equal(a, b))
        self.assertEqual([(f["device"], f["random"]) for f in made.shapes()], [(1, True)])

    def test_several_streams_of_the_second_device(self):
        net = mlp_on(1).eval()
        made = reprise.graphed(net, strict=True)
        streams = [torch.cuda.Stream(1) for _ in range(3)]
        pairs = []
        with torch.no_grad():
            for i in range(12):
                with torch.cuda.stream(streams[i % 3]):
                    x = torch.randn(16, 128, device="cuda:1")
                    pairs.append((x, made(x)))
            torch.cuda.synchronize(1)
            for x, out in pairs:
                self.equal(out, net(x), 1)

    def test_verified(self):
        net = mlp_on(1).eval()
        for verify in ("capture", "run"):
            made = reprise.graphed(net, strict=True, verify=verify)
            with torch.no_grad():
                for _ in range(3):
                    x = torch.randn(16, 128, device="cuda:1")
                    self.equal(made(x), net(x), 1)
            facts, = made.shapes()
            self.assertEqual((facts["verified"], facts["unverified_args"]), (verify, 0),
                             facts["not_run"])

    def test_policy(self):
        net = mlp_on(1).eval()
        made = reprise.graphed(net, strict=True, policy="auto")
        with torch.no_grad():
            for i in range(600):
                x = torch.randn(16, 128, device="cuda:1")
                out = made(x)
                if i % 50 == 0:
                    self.equal(out, net(x), 1)
        case, = made.choices()
        self.assertIn(case["choice"], ("graph", "eager"))
        self.assertGreater(case["measured_calls"], 0)


class Copies(Case):
    """Tensors that cross devices, each way that PyTorch copies them."""

    def across(self, tensor, **options):
        for _ in range(3):
            there = tensor.to("cuda:1", **options)
            back = there.to("cuda:0", dtype=tensor.dtype)
            torch.cuda.synchronize(0), torch.cuda.synchronize(1)
            self.assertTrue(torch.equal(there.cpu(), tensor.cpu().to(there.dtype)))
            self.assertTrue(torch.equal(back, tensor))

    def test_whole(self):
        self.across(torch.randint(100, (1 << 20,), device="cuda:0"))

    def test_strided(self):
        self.across(torch.randint(100, (1000, 300), device="cuda:0").t())

    def test_converted(self):
        self.across(torch.randint(100, (1 << 20,), device="cuda:0"), dtype=torch.float32)

    def test_written_in_place(self):
        there = torch.zeros(300, 1000, device="cuda:1")
        here = torch.randn(1000, 300, device="cuda:0")
        there.copy_(here.t())
        there[::2, ::3].copy_(here.t()[::2, ::3] * 2)
        want = here.t().clone()
        want[::2, ::3] *= 2
        self.assertTrue(torch.equal(there.cpu(), want.cpu()))

    def test_results_of_graphs(self):
        made = reprise.graphed(lambda x: x * 2, strict=True)
        for device, other in ((0, 1), (1, 0)):
            for _ in range(4):
                x = torch.randn(200, 300, device=f"cuda:{device}")
                got = made(x)
                self.equal(got.to(f"cuda:{other}"), x.to(f"cuda:{other}") * 2, other)
                self.equal(got.t().to(f"cuda:{other}"), (x * 2).t().to(f"cuda:{other}"), other)

    def test_what_lies_in_a_pool(self):
        x = torch.ones(200, 300, device="cuda:0")
        graph = torch.cuda.CUDAGraph()
        with reprise.graph(graph):
            y = x * 3
        for i in range(3):
            x.fill_(i)
            graph.replay()
            self.assertTrue((y.to("cuda:1") == 3 * i).all().item())
            self.assertTrue((y.t().to("cuda:1") == 3 * i).all().item())

    def captured(self, fn, device, between=lambda: None):
        """Is right, in a graph or without one. between: called before each call."""
        made = reprise.graphed(fn)

        def calls():
            for _ in range(5):
                between()
                x = torch.randn(300, 200, device=f"cuda:{device}")
                got, want = made(x), fn(x)
                self.equal(got, want, want.device.index)
        said_in(calls)
        torch.cuda.synchronize(0), torch.cuda.synchronize(1)
        self.equal(torch.ones(3, device="cuda:0") + 1, torch.full((3,), 2.0, device="cuda:0"), 0)

    def test_captured_from_another_device(self):
        for device in (0, 1):
            source = torch.randn(300, 200, device=f"cuda:{1 - device}")
            self.captured(lambda x: x + source.to(x.device), device, source.normal_)

    def test_captured_to_another_device_and_back(self):
        for device in (0, 1):
            self.captured(lambda x: (x.to(f"cuda:{1 - device}") * 2).to(x.device), device)

    def test_captured_while_the_other_has_a_side_stream(self):
        """A stream that is not the default one may become part of the capture."""
        for device in (0, 1):
            other = torch.cuda.Stream(1 - device)
            source = torch.randn(300, 200, device=f"cuda:{1 - device}")

            def fn(x):
                with torch.cuda.stream(other):
                    scaled = source * 2
                    there = scaled.to(x.device)
                return x + there

            def between():
                source.normal_()
                torch.cuda.synchronize(1 - device)
            self.captured(fn, device, between)


class Pools(Case):
    def test_a_pool_of_another_device_is_refused(self):
        pool = reprise.Pool(name="first", device=0)
        made = reprise.graphed(lambda x: x + 1, pool=pool, strict=True)
        x = torch.ones(10, device="cuda:0")
        for _ in range(3):
            self.equal(made(x), x + 1, 0)
        y = torch.ones(10, device="cuda:1")
        with self.assertRaisesRegex(reprise.Error, "pool 'first' is of cuda:0.*lie on cuda:1"):
            made(y)
        lax = reprise.graphed(lambda x: x + 1, pool=pool)
        said = said_in(lambda: [self.equal(lax(y), y + 1, 1) for _ in range(3)])
        self.assertEqual(len([s for s in said if "pool 'first' is of cuda:0" in s]), 1, said)
        with torch.cuda.device(1), self.assertRaisesRegex(ValueError, "of device 0"):
            reprise.graph(torch.cuda.CUDAGraph(), pool=pool)

    def test_one_for_each_device(self):
        for device in (0, 1):
            pool = reprise.Pool("sequence", device=device)
            made = reprise.graphed(lambda x: x.cos() + 1, pool=pool, strict=True)
            for n in (1 << 20, 1 << 16, 1 << 20):
                x = torch.randn(n, device=f"cuda:{device}")
                for _ in range(2):
                    self.equal(made(x), x.cos() + 1, device)
            self.assertEqual(pool.info()["graphs"], 2)

    def test_memory_comes_from_its_device(self):
        def fn(x):
            return ((x @ x).relu() @ x).sum(0)
        made = reprise.graphed(fn, strict=True)
        def free():
            torch.cuda.synchronize(1)
            return [torch.cuda.mem_get_info(d)[0] for d in (0, 1)]
        for n in (4096, 5120, 6144, 7168):  # programs beside this one may take and give back too
            for _ in range(2):
                made(torch.randn(n, n, device="cuda:1"))
            before = free()
            made(torch.randn(n + 1024, n + 1024, device="cuda:1"))
            after = free()
            if abs(before[0] - after[0]) < 8 << 20 < before[1] - after[1]:
                return
        self.fail(f"free memory went from {before} to {after}")

    def test_facts(self):
        def double(x):
            return x * 2
        made = reprise.graphed(double, strict=True)
        for _ in range(3):
            for device in (0, 1):
                made(torch.ones(123, device=f"cuda:{device}"))
        text = reprise.report()
        self.assertIn("double on cuda:0", text)
        self.assertIn("double on cuda:1", text)
        for device in (0, 1):
            self.assertIn(f"device {device}: ", text)
            self.assertGreaterEqual(reprise.exec_info(device)["graphs"], 1)
            self.assertGreater(reprise.exec_info(torch.device("cuda", device))["bytes"], 0)

    def test_budgets_are_of_one_device(self):
        before = reprise.exec_info(0)["budget_bytes"]
        reprise.set_exec_budget(32 << 20, 1)
        try:
            self.assertEqual(reprise.exec_info(0)["budget_bytes"], before)
            self.assertEqual(reprise.exec_info(1)["budget_bytes"], 32 << 20)
        finally:
            reprise.set_exec_budget(64 << 20, 1)

    def test_estimates(self):
        net = mlp_on(1, 512).eval()
        sizes = (1, 8, 64)
        shapes = [(torch.empty(n, 512, device="cuda:1"),) for n in sizes]
        with torch.no_grad():
            made = reprise.graphed(net, strict=True)
            found = reprise.estimate(made, shapes)
            self.assertEqual((found.failures, len(found.shapes)), ([], 3))
            for n in sizes:
                x = torch.randn(n, 512, device="cuda:1")
                self.equal(made(x), net(x), 1)
        if INSTALL:
            self.assertEqual(made.pools[1].info()["planned_bytes"], found.planned_bytes)
        with torch.cuda.device(1), torch.no_grad():
            again = reprise.estimate(net, [(torch.empty(n, 512, device="meta"),) for n in sizes])
        self.assertEqual(again.failures, [])
        self.assertEqual(again.planned_bytes, found.planned_bytes)


class Graphs(Case):
    """Graphs that PyTorch replays itself, with the second device current."""

    def check(self, context):
        with torch.cuda.device(1):
            x = torch.zeros(1 << 16, device="cuda")
            graph = torch.cuda.CUDAGraph()
            with context(graph):
                y = (x + 1) * 2
            others = [torch.full((1 << 16,), 9.0, device="cuda") for _ in range(64)]
            for i in range(3):
                x.fill_(i)
                graph.replay()
                torch.cuda.synchronize()
                self.equal(y, (x + 1) * 2, 1)
            self.assertTrue(all((o == 9).all().item() for o in others))
        self.assertEqual(torch.cuda.current_device(), 0)

    def test_reprise(self):
        zero = torch.zeros(10, device="cuda:0")
        graph = torch.cuda.CUDAGraph()
        with reprise.graph(graph):  # its side stream is none of the second device's
            one = zero + 1
        self.check(reprise.graph)
        graph.replay()
        self.equal(one, torch.ones(10, device="cuda:0"), 0)

    def test_reprise_in_a_pool(self):
        pool = reprise.Pool("sequence", device=1)
        self.check(lambda graph: reprise.graph(graph, pool=pool))

    def test_pytorch(self):
        self.check(lambda graph: torch.cuda.graph(graph, stream=torch.cuda.Stream(1)))

    def test_a_failure_leaves_the_device_as_it_was(self):
        with torch.cuda.device(1):
            x = torch.ones(10, device="cuda")
            with self.assertRaises(RuntimeError):
                with reprise.graph(torch.cuda.CUDAGraph()):
                    (x + 1).sum().item()
            self.assertEqual(torch.cuda.current_device(), 1)
            self.equal(x + torch.rand(10, device="cuda").ceil(), torch.full_like(x, 2), 1)
        self.check(reprise.graph)


class Training(Case):
    def batches(self, count=16):
        torch.manual_seed(7)
        return [(torch.randn(32, 128, device="cuda:1"), torch.randn(32, 128, device="cuda:1"))
                for _ in range(count)]

    def build(self):
        net = torch.nn.Sequential(mlp_on(1), torch.nn.Dropout(0.2))
        return net, torch.optim.Adam(net.parameters(), lr=1e-3, capturable=True)

    def losses(self, step):
        data = self.batches()
        torch.manual_seed(11)
        return [step(x, y).item() for x, y in data]

    def test_whole_step(self):
        want = self.losses(whole_step(*self.build()))
        for current in (0, 1):
            with torch.cuda.device(current):
                made = reprise.graphed(whole_step(*self.build()), strict=True)
                self.assertEqual(self.losses(made), want)
            self.assertEqual([f["device"] for f in made.shapes()], [1])

    def test_forward_and_backward(self):
        want = self.losses(whole_step(*self.build()))
        for current in (0, 1):
            with torch.cuda.device(current):
                net, optimizer = self.build()
                made = reprise.graphed(net, strict=True)
                self.assertEqual(self.losses(whole_step(made, optimizer)), want)
            self.assertEqual([f["device"] for f in made.shapes()], [1, 1])

    def test_make_graphed_callables(self):
        want = self.losses(whole_step(*self.build()))
        for current in (0, 1):
            with torch.cuda.device(current):
                net, optimizer = self.build()
                sample = torch.randn(32, 128, device="cuda:1")
                reprise.make_graphed_callables(net[0], (sample,))
                self.assertEqual(self.losses(whole_step(net, optimizer)), want)
        with self.assertRaisesRegex(ValueError, "on cuda:0 and cuda:1"):
            reprise.make_graphed_callables(mlp_on(0), (sample,))
        with self.assertRaisesRegex(ValueError, "on cuda:0 and cuda:1"):
            reprise.make_graphed_callables(mlp_on(1), (sample,), pool=reprise.Pool("sequence", device=0))


@unittest.skipUnless(INSTALL, "of reprise.install()")
class Memory(Case):
    """PyTorch's figures and limits of the second device."""

    def setUp(self):
        super().setUp()
        for device in (0, 1):
            torch.ones(1, device=f"cuda:{device}")
            torch.cuda.synchronize(device)
        torch.cuda.empty_cache()

    def test_counts(self):
        before = [torch.cuda.memory_allocated(d) for d in (0, 1)]
        tensor = torch.empty(1 << 20, device="cuda:1")
        after = [torch.cuda.memory_allocated(d) for d in (0, 1)]
        self.assertEqual([a - b for a, b in zip(after, before)], [0, 4 << 20])
        self.assertEqual(torch.cuda.memory_stats(1)["allocated_bytes.all.current"], after[1])
        blocks = [(s["device"], b["requested_size"]) for s in torch.cuda.memory_snapshot()
                  for b in s["blocks"] if b["address"] == tensor.data_ptr()]
        self.assertEqual(blocks, [(1, 4 << 20)])
        del tensor
        self.assertEqual(torch.cuda.memory_allocated(1), before[1])

    def test_fraction(self):
        total = torch.cuda.mem_get_info(1)[1]
        torch.cuda.set_per_process_memory_fraction(0.02, 1)
        try:
            self.assertEqual(torch.cuda.get_per_process_memory_fraction(1), 0.02)
            with self.assertRaises(torch.OutOfMemoryError) as caught:
                torch.empty(int(0.03 * total), dtype=torch.uint8, device="cuda:1")
            self.assertIn("GPU 1 ", str(caught.exception))
            kept = torch.empty(int(0.03 * total), dtype=torch.uint8, device="cuda:0")
            del kept
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, 1)
        torch.empty(int(0.03 * total), dtype=torch.uint8, device="cuda:1")

    def test_out_of_memory_names_the_device(self):
        for device in (1, 0):
            with self.assertRaisesRegex(torch.OutOfMemoryError, f"GPU {device} "):
                torch.empty(1 << 50, dtype=torch.uint8, device=f"cuda:{device}")

    def recorded(self, side, device):
        """Memory of the device stays while a stream that was recorded may use it, and no longer."""
        tensor = torch.full((1 << 20,), 7, dtype=torch.int32, device=f"cuda:{device}")
        address = tensor.data_ptr()
        torch.cuda.synchronize(device)
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)
        tensor.record_stream(side)
        del tensor
        with torch.cuda.device(device):
            other = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
            self.assertNotEqual(other.data_ptr(), address)
            side.synchronize()
            torch.cuda.empty_cache()
        waiting = torch.cuda.memory_stats(device)
        self.assertEqual(waiting["active_bytes.all.current"],
                         waiting["allocated_bytes.all.current"])

    def test_recorded_streams(self):
        self.recorded(torch.cuda.Stream(1), 1)

    def test_recorded_streams_of_another_device(self):
        self.recorded(torch.cuda.Stream(0), 1)
        self.recorded(torch.cuda.Stream(1), 0)


class Threads(Case):
    """A thread for each device, capturing and replaying at once."""

    def together(self, work):
        wrong = []

        def run(device):
            try:
                torch.cuda.set_device(device)
                with torch.cuda.stream(torch.cuda.Stream(device)):
                    work(device)
                    torch.cuda.current_stream().synchronize()
            except BaseException as error:
                wrong.append((device, repr(error)))
                raise
        threads = [threading.Thread(target=run, args=(device,), daemon=True) for device in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
        self.assertEqual([t.is_alive() for t in threads], [False, False])
        self.assertEqual(wrong, [])

    def calls(self, made, net, device, seed):
        generator = torch.Generator(f"cuda:{device}").manual_seed(seed)
        for i in range(60):
            x = torch.randn(1 + i % 20, 128, device=f"cuda:{device}", generator=generator)
            if not torch.equal(made(x), net(x)):
                raise AssertionError(f"call {i} differs")

    def test_callables_of_their_own(self):
        nets = [mlp_on(device).eval() for device in (0, 1)]

        def work(device):
            with torch.no_grad():
                made = reprise.graphed(nets[device], strict=True)
                self.calls(made, nets[device], device, 3)
            self.assertEqual(len(made.shapes()), 20)
        self.together(work)

    def test_one_callable(self):
        def fn(x):
            return x.sin().cos() * 2
        made = reprise.graphed(fn, strict=True)
        self.together(lambda device: self.calls(made, fn, device, 5))
        self.assertEqual(sorted(f["device"] for f in made.shapes()), 20 * [0] + 20 * [1])

    def test_training(self):
        nets = [[mlp_on(device) for device in (0, 1)] for _ in range(2)]  # made one after the other

        def losses(net, device, graph):
            optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, capturable=True)
            step = whole_step(net, optimizer)
            step = reprise.graphed(step, strict=True) if graph else step
            generator = torch.Generator(f"cuda:{device}").manual_seed(4)
            data = [torch.randn(2, 16, 128, device=f"cuda:{device}", generator=generator)
                    for _ in range(20)]
            return [step(x[0].clone(), x[1].clone()).item() for x in data]
        want = [losses(nets[0][device], device, False) for device in (0, 1)]
        got = [None, None]

        def work(device):
            got[device] = losses(nets[1][device], device, True)
        self.together(work)
        self.assertEqual(got, want)


# ---- Ranks -------------------------------------------------------------------------------------


def start_group(rank, port):
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                                   world_size=2, device_id=torch.device("cuda", rank))
    distributed.all_reduce(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()


def rank_main(rank, port, work, results):
    """A rank: what work(rank) returns, or the error's text, goes to the parent."""
    import faulthandler
    import traceback
    faulthandler.dump_traceback_later(TIMEOUT - 10, exit=True)
    try:
        start_group(rank, port)
        results.put((rank, True, work(rank)))
        results.close()
        results.join_thread()
        gc.collect()
        torch.cuda.synchronize()
        distributed.destroy_process_group()
    except BaseException:
        results.put((rank, False, traceback.format_exc()))
        raise


def parallel_net(rank, graph, **options):
    torch.manual_seed(2)  # the same in both ranks
    net = torch.nn.Sequential(mlp_on(rank), torch.nn.Linear(128, 128)).to(f"cuda:{rank}")
    if graph is not None:
        net = graph(net)
    return DistributedDataParallel(net, device_ids=[rank], **options)


def train_parallel(rank, side, whole, graph, steps=24, warmup=11, **options):
    """After PyTorch's recipe: DistributedDataParallel made, warmed up and captured beside the default
    stream, at least 11 eager steps before the capture. Losses, gradients and parameters at the end."""
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        net = parallel_net(rank, graph, **options)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        torch.manual_seed(100 + rank)  # other data in each rank
        data = [torch.randn(2, 16, 128, device="cuda") for _ in range(steps)]
        made = step = whole_step(net, optimizer)
        if whole:
            made = reprise.graphed(step, strict=True, warmup=warmup)
        losses = [made(x[0].clone(), x[1].clone()).item() for x in data]
    torch.cuda.synchronize()
    calls = [f["calls"] for f in made.shapes()] if whole else []
    state = [t.detach().cpu().numpy().tobytes() for p in net.parameters() for t in (p, p.grad)]
    return losses, state, calls


def whole_steps(rank):
    side = torch.cuda.Stream()
    seen = []
    for options in ({}, {"bucket_cap_mb": 0.05}, {"gradient_as_bucket_view": True}):
        want = train_parallel(rank, side, False, None, **options)
        got = train_parallel(rank, side, True, None, **options)
        seen.append((got[0] == want[0], got[1] == want[1], got[2], want[0][0] != want[0][-1]))
    return seen, want[0]


def around_callables(rank):
    side = torch.cuda.Stream()

    def graph(net):
        return reprise.make_graphed_callables(net, (torch.randn(16, 128, device="cuda"),))
    want = train_parallel(rank, side, False, None)
    got = train_parallel(rank, side, False, graph)
    return got[0] == want[0], got[1] == want[1]


def collectives(rank):
    def fn(x):
        y = x * 2
        distributed.all_reduce(y)
        whole = torch.empty(2 * y.numel(), device="cuda")
        distributed.all_gather_into_tensor(whole, y + rank)
        part = torch.empty_like(y)
        distributed.reduce_scatter_tensor(part, whole, distributed.ReduceOp.AVG)
        work = distributed.all_reduce(part, async_op=True)
        other = x.square().sum()
        work.wait()
        return part + other
    made = reprise.graphed(fn, strict=True)
    same = []
    for n in (1000, 1000, 1000, 50, 50, 1000):
        x = torch.randn(n, device="cuda")
        want = fn(x)
        same.append(torch.equal(made(x), want))
    return same, sorted(f["calls"] for f in made.shapes())


class Ranks(Case):
    """Two processes, a GPU each, NCCL between them."""

    def run_ranks(self, work):
        if not distributed.is_nccl_available():
            self.skipTest("PyTorch has no NCCL")
        import socket
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        ranks = [context.Process(target=rank_main, args=(rank, port, work, results), daemon=True)
                 for rank in (0, 1)]
        for rank in ranks:
            rank.start()
        try:
            told = [results.get(timeout=TIMEOUT) for _ in ranks]
        finally:
            for rank in ranks:
                rank.join(10)
                if rank.is_alive():
                    rank.kill()
                    rank.join(10)
        for rank, worked, what in sorted(told, key=lambda t: t[0]):
            self.assertTrue(worked, f"rank {rank}: {what}")
        self.assertEqual([rank.exitcode for rank in ranks], [0, 0])
        return [what for _, _, what in sorted(told, key=lambda t: t[0])]

    def test_whole_steps(self):
        seen, losses = zip(*self.run_ranks(whole_steps))
        self.assertEqual(seen, 2 * (3 * [(True, True, [13], True)],))
        self.assertNotEqual(*losses)  # each rank had data of its own

    def test_around_callables(self):
        self.assertEqual(self.run_ranks(around_callables), 2 * [(True, True)])

    def test_collectives(self):
        for same, calls in self.run_ranks(collectives):
            self.assertEqual(same, 6 * [True])
            self.assertEqual(calls, [2, 3])


if __name__ == "__main__":
    unittest.main(verbosity=2)
