# SPDX-License-Identifier: MIT
"""reprise.check on a GPU: for each obstacle a program that has it, whose line is named, and its mend,
with which the check finds nothing and the capture works. usage: gpu_check.py [--install] ..."""

import contextlib
import ctypes
import gc
import os
import pathlib
import sys
import threading
import unittest
from unittest import mock

import torch
from torch.utils.checkpoint import checkpoint

import reprise
from reprise import mends
from training_steps import group_beside_captures
from unseen import Unseen

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()
HERE = pathlib.Path(__file__).resolve()
LINES = HERE.read_text(encoding="utf-8").splitlines()


def line(marker):
    return next(i for i, text in enumerate(LINES, 1) if text.endswith("# " + marker))


def ones(*shape):
    return torch.ones(*shape, device="cuda")


def numbers(count=64):
    return torch.arange(1.0, count + 1, device="cuda")


def cuda_runtime():
    """The runtime as other libraries call it, where PyTorch does not look."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return ctypes.CDLL(next(row.split()[-1] for row in maps if "libcudart" in row))


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def tearDown(self):
        """A check leaves the modes of PyTorch as they were, and a test nothing to the next."""
        self.assertEqual(torch.cuda.current_stream(), torch.cuda.default_stream())
        self.assertEqual(torch.cuda.get_sync_debug_mode(), 0)
        self.assertFalse(torch.is_anomaly_enabled())
        self.assertFalse(torch.cuda.is_current_stream_capturing())
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()

    def find(self, kind, marker, fn, *args, **options):
        """The finding of that kind at the marked line, and all of them."""
        findings = reprise.check(fn, *args, **options)
        places = [f for f in findings if f.kind == kind and f.frames and
                  f.frames[0].line == line(marker) and
                  pathlib.Path(f.frames[0].file).resolve() == HERE]
        self.assertTrue(places, f"no {kind} at line {line(marker)} in:\n{findings}")
        text = str(findings)
        self.assertIn(f"gpu_check.py:{line(marker)} in ", text)
        for told in (places[0].operation, places[0].what, places[0].mend):
            self.assertTrue(told and told in text, text)
        return places[0], findings

    def clean(self, fn, *args, **options):
        findings = reprise.check(fn, *args, **options)
        self.assertEqual(list(findings), [], str(findings))
        self.assertTrue(findings.captured, str(findings))
        self.assertIn("can be captured", str(findings))

    def obstacle(self, kind, marker, fn, *args, mended=None):
        """Finds it; the mended program (by the offered fix, where none is given) is clean. What is
        offered can be captured and replayed, too."""
        finding, findings = self.find(kind, marker, fn, *args)
        if not finding.is_caution:
            self.assertFalse(findings.captured and findings.obstacles == [], str(findings))
        if mended is None:
            self.assertTrue(finding.fix or finding.options, str(findings))
            self.assertIn("findings.mended() and findings.graphed() apply it", str(findings))
            mended = findings.mended()
            made = findings.graphed(strict=True)
            for _ in range(3):
                made(*args)
            self.assertEqual(len(made.shapes()), 1)
        self.clean(mended, *args)


class Clean(Case):
    def test_inference(self):
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(),
                                  torch.nn.Linear(64, 8)).cuda().eval()
        with torch.no_grad():
            self.clean(net, torch.randn(4, 64, device="cuda"))

    def test_a_step_that_is_graphed(self):
        """The runs are of the step itself, and leave its graphs alone."""
        net = torch.nn.Linear(16, 16).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        @reprise.graphed
        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        x = torch.randn(4, 16, device="cuda")
        self.assertFalse(reprise.check(step, x).obstacles)
        self.assertEqual(step.shapes(), [])
        for _ in range(12):
            step(x)
        self.assertGreaterEqual(sum(shape["replays"] for shape in step.shapes()), 10)
        reads = reprise.graphed(lambda x: x * x.sum().item())
        self.assertTrue(reprise.check(reads, x).obstacles)

    def test_random_numbers(self):
        self.clean(lambda x: torch.nn.functional.dropout(x) + torch.rand_like(x), numbers())

    def test_a_whole_training_step(self):
        net = torch.nn.Linear(16, 4).cuda()
        optimizer = torch.optim.Adam(net.parameters(), capturable=True)

        def step(x):
            optimizer.zero_grad(set_to_none=True)
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        x = torch.randn(8, 16, device="cuda")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            step(x)
        torch.cuda.synchronize()
        before = [p.detach().clone() for p in net.parameters()]
        self.clean(step, x)
        for parameter, value in zip(net.parameters(), before):
            self.assertTrue(torch.equal(parameter, value))

    def test_side_streams_that_join(self):
        side = torch.cuda.Stream()

        def fn(x):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = x * 2
            z = x + 1
            torch.cuda.current_stream().wait_stream(side)
            y.record_stream(torch.cuda.current_stream())
            return y + z
        self.clean(fn, numbers())

    def test_copies_to_pinned_memory_that_stays(self):
        buffer = torch.empty(64, pin_memory=True)

        def fn(x):
            torch.cuda._sleep(5_000_000)  # what is copied is there some milliseconds after the call
            buffer.copy_(x, non_blocking=True)
            return x + 1
        self.clean(fn, numbers())

    def test_graphed_of_findings(self):
        def fn(x):
            return x * torch.tensor(3.0, device="cuda")
        made = reprise.check(fn, numbers()).graphed(strict=True)
        for _ in range(3):
            self.assertTrue(torch.equal(made(numbers()), numbers() * 3))
        self.assertEqual(len(made.shapes()), 1)


class Reads(Case):
    def test_item(self):
        def fn(x):
            return x * x.sum().item()  # item
        self.obstacle("host-read", "item", fn, numbers(), mended=lambda x: x * x.sum())

    def test_cpu(self):
        def fn(x):
            y = x.cpu()  # cpu
            return x * len(y)
        self.obstacle("copy-out", "cpu", fn, numbers(), mended=lambda x: x * len(x))

    def test_printing(self):
        def fn(x):
            str(x)  # printing
            return x * 2
        self.obstacle("host-read", "printing", fn, numbers(), mended=lambda x: x * 2)

    def test_nonzero(self):
        def fn(x):
            return (x > 5).nonzero()  # nonzero
        self.obstacle("data-shape", "nonzero", fn, numbers(),
                      mended=lambda x: (x > 5).nonzero_static(size=64, fill_value=-1))

    def test_boolean_index(self):
        def fn(x):
            return x[x > 5].sum()  # boolean
        self.obstacle("data-shape", "boolean", fn, numbers(),
                      mended=lambda x: torch.where(x > 5, x, 0).sum())

    def test_assignment_by_a_mask(self):
        def fn(x):
            x = x.clone()
            x[x > 5] = x.sum()  # assigned
            return x
        self.obstacle("data-shape", "assigned", fn, numbers())

    def test_filling_a_number_by_a_mask_is_fine(self):
        def fn(x):
            x = x.clone()
            x[x > 5] = 0.0
            return x
        self.clean(fn, numbers())

    def test_control_flow(self):
        def fn(x):
            if x[0] > 1.5:  # asks
                return x.exp()  # other way
            return x * 2
        self.find("host-read", "asks", fn, numbers())
        self.obstacle("control-flow", "other way", fn, numbers(),
                      mended=lambda x: torch.where(x[0] > 1.5, x.exp(), x * 2))

    def test_nan_check(self):
        def fn(x):
            y = x * 2
            if torch.isnan(y).any():  # nan
                raise ValueError("NaN")
            return y
        self.obstacle("nan-check", "nan", fn, numbers(),
                      mended=lambda x: (x * 2, torch.isnan(x * 2).any()))

    def test_anomaly_detection(self):
        weight = ones(64).requires_grad_()

        def fn(x):
            with torch.autograd.set_detect_anomaly(True):  # anomaly
                loss = (x * weight).sum()
                return torch.autograd.grad(loss, weight)[0]
        self.obstacle("nan-check", "anomaly", fn, numbers())

    def test_gradient_clipping(self):
        net = torch.nn.Linear(64, 4).cuda()

        def fn(x):
            net.zero_grad(set_to_none=True)
            net(x).sum().backward()
            return torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1, error_if_nonfinite=True)  # clip
        self.obstacle("gradient-clipping", "clip", fn, ones(2, 64))

    def test_gradient_scaler(self):
        net = torch.nn.Linear(64, 4).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")

        def fn(x):
            net.zero_grad(set_to_none=True)
            scaler.scale(net(x).sum()).backward()
            scaler.step(optimizer)  # scaler
            scaler.update()
            return net.weight.grad.sum()
        self.find("grad-scaler", "scaler", fn, ones(2, 64))

        fused = torch.optim.SGD(net.parameters(), lr=0.1, fused=True)
        other = torch.amp.GradScaler("cuda")

        def mended(x):
            net.zero_grad(set_to_none=True)
            other.scale(net(x).sum()).backward()
            other.step(fused)
            other.update()
            return net.weight.grad.sum()
        with torch.cuda.stream(torch.cuda.Stream()):
            mended(ones(2, 64))  # makes the scale
        torch.cuda.synchronize()
        self.clean(mended, ones(2, 64))


class Waits(Case):
    def test_device(self):
        def fn(x):
            y = x * 2
            torch.cuda.synchronize()  # device
            return y
        self.obstacle("synchronisation", "device", fn, numbers())

    def test_stream(self):
        def fn(x):
            y = x * 2
            torch.cuda.current_stream().synchronize()  # stream
            return y
        self.obstacle("synchronisation", "stream", fn, numbers())

    def test_event(self):
        def fn(x):
            event = torch.cuda.Event()
            event.record()
            event.synchronize()  # event
            return x * 2
        self.obstacle("synchronisation", "event", fn, numbers())

    def test_query(self):
        def fn(x):
            torch.cuda.current_stream().query()  # stream query
            event = torch.cuda.Event()
            event.record()
            event.query()  # event query
            return x * 2
        self.find("synchronisation", "stream query", fn, numbers())
        self.obstacle("synchronisation", "event query", fn, numbers(), mended=lambda x: x * 2)

    def test_libraries_that_wait_unseen(self):
        runtime = cuda_runtime()

        def fn(x):
            y = x * 2
            runtime.cudaDeviceSynchronize()  # unseen
            return y
        finding, findings = self.find("synchronisation", "unseen", fn, numbers())
        self.assertEqual(finding.operation, "cuCtxSynchronize", str(findings))
        self.clean(lambda x: x * 2, numbers())

    def test_operators_that_wait_unseen(self):
        def fn(x):
            return torch.linalg.inv(x + torch.eye(8, device="cuda"))  # inverse
        self.obstacle("host-read", "inverse", fn, ones(8, 8),
                      mended=lambda x: torch.linalg.inv_ex(x + torch.eye(8, device="cuda"))[0])


class StreamsAndThreads(Case):
    def test_legacy_stream(self):
        def fn(x):
            with torch.cuda.stream(torch.cuda.default_stream()):
                return x * 2  # legacy
        self.obstacle("legacy-stream", "legacy", fn, numbers(), mended=lambda x: x * 2)

    def test_outside_stream(self):
        side = torch.cuda.Stream()

        def fn(x):
            with torch.cuda.stream(side):
                y = x * 2  # outside
            torch.cuda.current_stream().wait_stream(side)
            return y + 1

        def mended(x):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = x * 2
            torch.cuda.current_stream().wait_stream(side)
            return y + 1
        self.obstacle("outside-stream", "outside", fn, numbers(), mended=mended)

    def test_waiting_for_work_outside(self):
        event = torch.cuda.Event()
        event.record(torch.cuda.Stream())

        def fn(x):
            event.wait()  # waits outside
            return x + 1
        self.obstacle("outside-stream", "waits outside", fn, numbers(), mended=lambda x: x + 1)

    def test_unjoined_stream(self):
        side = torch.cuda.Stream()
        total = torch.zeros(64, device="cuda")

        def fn(x):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                total.add_(x)  # unjoined
            return x + 1
        self.obstacle("unjoined-stream", "unjoined", fn, numbers())

    @contextlib.contextmanager
    def beside(self, work):
        """Gives a callable, during which another thread does some work. By locks, as a callable that waits for a
        thread otherwise is refused."""
        asked, answered, over = threading.Lock(), threading.Lock(), threading.Event()
        for lock in (asked, answered):
            lock.acquire()

        def wait():
            while not over.is_set():
                if asked.acquire(timeout=0.01):
                    work()
                    answered.release()

        def fn(x):
            asked.release()
            answered.acquire(timeout=5)
            return x * 2
        thread = threading.Thread(target=wait)
        thread.start()
        try:
            yield fn
        finally:
            over.set()
            thread.join()

    def test_background_thread(self):
        event = torch.cuda.Event()

        def poll():
            event.query()  # polls
        with self.beside(poll) as fn:
            finding, findings = self.find("background-thread", "polls", fn, numbers())
        self.assertTrue(finding.is_caution)
        self.assertTrue(findings.captured, str(findings))
        self.clean(lambda x: x * 2, numbers())

    def test_thread_that_takes_memory(self):
        with self.beside(lambda: torch.empty(1 << 20, device="cuda")) as fn:
            findings = reprise.check(fn, numbers())
        self.assertEqual([(f.kind, f.operation) for f in findings],
                         [("background-thread", "1 allocation")], str(findings))
        self.assertTrue(findings[0].is_caution and findings.captured, str(findings))

    def test_data_loader_that_pins_meanwhile(self):
        data = torch.utils.data.TensorDataset(torch.ones(4, 64))
        batches = iter(torch.utils.data.DataLoader(data, num_workers=1, pin_memory=True))
        next(batches)
        findings = reprise.check(lambda x: x * 2, numbers())  # pins
        self.assertEqual([(f.kind, f.operation, f.frames[0].line) for f in findings],
                         [("background-thread", "torch.utils.data.DataLoader", line("pins"))],
                         str(findings))
        self.assertTrue(findings.captured, str(findings))
        for _ in batches:
            pass
        del batches
        self.clean(lambda x: x * 2, numbers())

    def test_data_loader(self):
        data = torch.utils.data.TensorDataset(torch.ones(4, 64))
        loader = torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True)

        def fn(x):
            for batch, in loader:  # loader
                x = x + batch.cuda(non_blocking=True).sum(0)
            return x
        self.obstacle("data-loader", "loader", fn, numbers(), mended=lambda x: x + 4)

    def test_gradients_on_another_stream(self):
        net = torch.nn.Linear(64, 4).cuda()
        kept = net(ones(2, 64)).sum()  # on the default stream, which its gradients remember

        def fn(x):
            net.zero_grad(set_to_none=True)
            net(x).sum().backward()  # backward
            return net.weight.grad.clone()
        self.find("grad-stream", "backward", fn, ones(2, 64))
        del kept
        self.clean(fn, ones(2, 64))


class Memory(Case):
    def test_scalar_made_on_the_host(self):
        def fn(x):
            return x * torch.tensor(3.0, device="cuda")  # scalar
        self.obstacle("copy-in", "scalar", fn, numbers())
        self.assertEqual([f.kind for f in reprise.check(fn, numbers())], ["copy-in"])

    def test_tensor_made_like_another(self):
        def fn(x):
            return x * x.new_tensor([2.0])  # like another
        self.obstacle("copy-in", "like another", fn, numbers())

    def test_tensor_moved_in(self):
        table = torch.arange(64.0)

        def fn(x):
            return x + table.cuda()  # moved in
        self.obstacle("copy-in", "moved in", fn, numbers())

    def test_index_on_the_cpu(self):
        index = torch.tensor([3, 1])

        def fn(x):
            return x[index]  # cpu index
        there = index.cuda()
        self.obstacle("copy-in", "cpu index", fn, numbers(), mended=lambda x: x[there])

    def test_scalar_of_the_host(self):
        scale = torch.tensor(3.0)

        def fn(x):
            return x * scale  # host scalar
        there = scale.cuda()
        self.obstacle("host-scalar", "host scalar", fn, numbers(), mended=lambda x: x * there)

    def test_argument_on_the_cpu(self):
        findings = reprise.check(lambda x, y: x + y.cuda(), numbers(), torch.ones(64))
        self.assertIn("copy-in", [f.kind for f in findings])
        self.assertFalse(findings.captured)
        self.clean(lambda x, y: x + y, numbers(), ones(64))

    def test_counter(self):
        state = {"step": 0}

        def fn(x):
            state["step"] += 1
            return x * state["step"]  # counter
        steps = torch.zeros((), device="cuda")

        def mended(x):
            steps.add_(1)
            return x * steps
        self.obstacle("frozen-value", "counter", fn, numbers(), mended=mended)

    def test_changing_shapes(self):
        state = []

        def fn(x):
            state.append(None)
            return torch.zeros(len(state), device="cuda") + x[0]  # grows
        self.obstacle("changing-shapes", "grows", fn, numbers(),
                      mended=lambda x: torch.zeros(9, device="cuda") + x[0])

    def test_captures_that_differ(self):
        captures = Unseen()

        def fn(x):
            y = x + 1
            if torch.cuda.is_current_stream_capturing():
                captures.append(1)
            scratch = torch.zeros(1 + 50000 * len(captures), device="cuda")  # differs
            return y + scratch[0]
        finding, findings = self.find("divergence", "differs", fn, numbers())
        self.assertIn("differs between two captures", finding.what)
        self.assertFalse(findings.captured)
        self.clean(lambda x: x + 1 + torch.zeros(1, device="cuda"), numbers())

    def test_kept_argument(self):
        first = []

        def fn(x):
            first.append(x)
            return first[0] * 2  # first argument
        self.obstacle("kept-address", "first argument", fn, numbers(), mended=lambda x: x * 2)

    def test_moved_tensor(self):
        tables, turn = [ones(64), ones(64) * 2], [0]

        def fn(x):
            turn[0] += 1
            return x + tables[turn[0] % 2]  # in turn
        table = ones(64)
        self.obstacle("moved-tensor", "in turn", fn, numbers(), mended=lambda x: x + table)

    def test_freed_tensor(self):
        state = {"scratch": ones(64)}

        def fn(x):
            y = x + state["scratch"]  # freed
            state["scratch"] = torch.ones_like(x)
            return y
        scratch = ones(64)
        self.obstacle("freed-tensor", "freed", fn, numbers(), mended=lambda x: x + scratch)

    def test_kept_output(self):
        outputs = []

        def fn(x):
            y = x * 2  # kept
            outputs.append(y)
            return y + 1
        self.obstacle("kept-tensor", "kept", fn, numbers(), mended=lambda x: (x * 2, x * 2 + 1))

    def test_pinned_memory(self):
        values = torch.arange(64.0)

        def fn(x):
            torch.empty(64, pin_memory=True)  # pinned
            return x * 2
        self.obstacle("pinned-memory", "pinned", fn, numbers(), mended=lambda x: x * 2)

        def pins(x):
            return x + values.pin_memory().to("cuda", non_blocking=True)  # pins values
        there = values.cuda()
        self.obstacle("pinned-memory", "pins values", pins, numbers(), mended=lambda x: x + there)

    def test_cuda_malloc(self):
        runtime, taken = cuda_runtime(), []

        def fn(x):
            address = ctypes.c_void_p()
            runtime.cudaMalloc(ctypes.byref(address), 32 << 20)  # cudaMalloc
            taken.append(address)
            return x * 2
        try:
            self.obstacle("allocation", "cudaMalloc", fn, numbers(), mended=lambda x: x * 2)
        finally:
            for address in taken:
                runtime.cudaFree(address)

    def test_lazy_state(self):
        class Scaled(torch.nn.Module):
            table = None

            def forward(self, x):
                if self.table is None:
                    self.table = torch.full((64,), 2.0, device="cuda")  # lazy
                return x * self.table
        finding, findings = self.find("lazy-state", "lazy", Scaled(), numbers())
        self.assertTrue(finding.is_caution and findings.captured, str(findings))
        made = Scaled()
        made.table = torch.full((64,), 2.0, device="cuda")
        self.clean(made, numbers())


class Modules(Case):
    def test_generator(self):
        generator = torch.Generator(device="cuda")

        def fn(x):
            return x + torch.rand(64, device="cuda", generator=generator)  # generator
        _, findings = self.find("random-generator", "generator", fn, numbers())
        made = findings.graphed(strict=True)
        made(numbers())
        self.assertFalse(torch.equal(made(numbers()), made(numbers())))
        self.clean(fn, numbers(), generators=(generator,))

    def test_random_state(self):
        def fn(x):
            torch.cuda.manual_seed(3)  # seeds
            return x + torch.rand_like(x)
        self.obstacle("random-state", "seeds", fn, numbers(),
                      mended=lambda x: x + torch.rand_like(x))

    def test_autocast_cache(self):
        net = torch.nn.Linear(64, 64).cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            findings = reprise.check(net, numbers())  # autocast
        self.assertEqual([(f.kind, f.frames[0].line) for f in findings],
                         [("autocast-cache", line("autocast"))], str(findings))
        self.assertTrue(findings[0].is_caution and findings.captured, str(findings))
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            self.clean(net, numbers())

    def test_checkpoint(self):
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).cuda()

        def fn(x):
            net.zero_grad(set_to_none=True)
            checkpoint(net, x, use_reentrant=False).sum().backward()  # checkpoint
            return net[0].weight.grad.clone()
        self.obstacle("checkpoint", "checkpoint", fn, ones(2, 64))
        drops = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout()).cuda()

        def draws(x):
            drops.zero_grad(set_to_none=True)
            checkpoint(drops, x, use_reentrant=False).sum().backward()  # draws again
            return drops[0].weight.grad.clone()
        finding, findings = self.find("checkpoint", "draws again", draws, ones(2, 64))
        self.assertTrue(finding.is_caution and findings.captured, str(findings))

    def test_hooks(self):
        net = torch.nn.Linear(64, 64).cuda().requires_grad_(False)
        calls = []

        def hook(module, args, result):  # hook
            calls.append(1)
        handle = net.register_forward_hook(hook)
        finding, _ = self.find("module-hooks", "hook", net, numbers())
        self.assertTrue(finding.is_caution)
        handle.remove()
        self.clean(net, numbers())

    def test_optimizer(self):
        net = torch.nn.Linear(64, 4).cuda()
        optimizer = torch.optim.Adam(net.parameters())

        def fn(x):
            optimizer.zero_grad(set_to_none=True)
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()  # optimizer
            return loss.detach()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            fn(ones(2, 64))
        torch.cuda.synchronize()
        self.obstacle("optimizer", "optimizer", fn, ones(2, 64))

    def test_failing_callable(self):
        def fn(x):
            return x.view(7)  # fails
        finding, _ = self.find("fails-eagerly", "fails", fn, numbers())
        self.assertIn("shape", finding.what)

    def test_warnings_of_graphed_name_the_line(self):
        def fn(x):
            return x * x.sum().item()  # warned of
        made = reprise.graphed(fn)
        with self.assertWarnsRegex(UserWarning, rf"gpu_check.py:{line('warned of')} in fn"):
            for _ in range(4):
                made(numbers())
        with self.assertRaises(RuntimeError) as caught:
            reprise.graphed(fn, strict=True, warmup=0)(numbers())
        told = str(caught.exception) + "".join(getattr(caught.exception, "__notes__", ["To do: "]))
        self.assertIn("To do: ", told)


class Distributed(Case):
    """One process as a group of its own."""

    @classmethod
    def setUpClass(cls):
        cls.environment = mock.patch.dict(os.environ)
        cls.environment.start()
        os.environ.pop("TORCH_NCCL_ASYNC_ERROR_HANDLING", None)
        try:
            torch.distributed.init_process_group(group_beside_captures(INSTALL), rank=0, world_size=1,
                                                 store=torch.distributed.HashStore())
        except (RuntimeError, ValueError, AttributeError) as error:
            cls.environment.stop()
            raise unittest.SkipTest(f"no process group of NCCL: {error}") from error

    @classmethod
    def tearDownClass(cls):
        torch.distributed.destroy_process_group()
        cls.environment.stop()

    def test_collectives(self):
        def fn(x):
            y = x * 2
            torch.distributed.all_reduce(y)  # reduces
            return y
        torch.distributed.all_reduce(numbers())
        torch.cuda.synchronize()
        finding, _ = self.find("nccl-watchdog", "reduces", fn, numbers())
        self.assertTrue(finding.is_caution)
        with mock.patch.dict(os.environ, TORCH_NCCL_ASYNC_ERROR_HANDLING="0"):
            with mock.patch.object(torch.cuda.nccl, "version", lambda: (2, 8, 3)):
                finding, _ = self.find("nccl-version", "reduces", fn, numbers())
                self.assertIn("NCCL 2.8.3", finding.what)
            self.clean(fn, numbers())

    def test_data_parallel(self):
        def build():
            net = torch.nn.Linear(64, 4).cuda()
            return torch.nn.parallel.DistributedDataParallel(net, device_ids=[0])

        def step_of(net):
            def step(x):
                net.zero_grad(set_to_none=True)
                net(x).sum().backward()  # ddp
                return net.module.weight.grad.clone()
            return step
        self.find("ddp-stream", "ddp", step_of(build()), ones(2, 64))
        side = torch.cuda.Stream()
        with mock.patch.dict(os.environ, TORCH_NCCL_ASYNC_ERROR_HANDLING="0"):
            with torch.cuda.stream(side):
                step = step_of(build())
                for _ in range(11):
                    step(ones(2, 64))
            torch.cuda.synchronize()
            self.clean(step, ones(2, 64))


class Mends(Case):
    def test_clip_grad_norm(self):
        parameter = torch.nn.Parameter(ones(16))
        parameter.grad = ones(16) * 5
        twin = torch.nn.Parameter(ones(16))
        twin.grad = ones(16) * 5
        torch.cuda.set_sync_debug_mode("error")
        try:
            norm = mends.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        self.assertTrue(torch.equal(norm, torch.nn.utils.clip_grad_norm_([twin], 1.0)))
        self.assertTrue(torch.equal(parameter.grad, twin.grad))


if __name__ == "__main__":
    unittest.main(verbosity=2)
