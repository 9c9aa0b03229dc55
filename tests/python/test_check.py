# SPDX-License-Identifier: MIT
"""What reprise.check sees in eager runs, without a GPU: the CPU stands in for the device, so that
each of its values counts as a device's."""

import contextlib
import json
import pathlib
import subprocess
import sys
import textwrap
import threading
import unittest
import warnings
from unittest import mock

try:
    import torch
except ImportError:
    raise unittest.SkipTest("needs PyTorch") from None

import reprise
from reprise import _C, mends
from reprise._base.aside import aside
from reprise._base.lines import line_of, take_stack, tell_mend
from reprise._check.check import Check
from reprise._check.findings import CAUTIONS, Finding, Findings
from reprise._check.platform import Cuda, Streams

HERE = pathlib.Path(__file__)


class Cpu:
    """The CPU as an observed device."""

    def __init__(self, kind="cpu"):
        self.type = kind
        self.capturing = self.broken = False
        self.nodes = 0  # of the capture
        self.refused = None  # what the driver's tool tells: (function, code)

    def is_broken(self):
        return self.capturing and self.broken

    def captured_nodes(self):
        return self.nodes if self.capturing else 0

    def strays(self):
        return 0

    def watch_refusals(self):
        return self.refused is not None

    def end_refusals(self):
        return self.refused

    def random_state(self):
        return torch.get_rng_state()

    def set_random_state(self, state):
        torch.set_rng_state(state)

    def foreign_bytes(self):
        return 0

    def knows(self, generator, named):
        return any(generator._cdata == n._cdata for n in (torch.default_generator, *named))

    def enter(self, observer):
        pass

    def leave(self, observer):
        pass

    def worked(self, observer, name, stack):
        pass


def observe(fn, *args, kind="cpu", generators=(), **kwargs):
    """The findings of the observed runs alone."""
    return Check(torch, Cpu(kind), fn, args, kwargs, generators, (), capture=False).run()


def in_torch(source, name="made.py", **names):
    """The function `made` of some source that seems to be a file of PyTorch's."""
    file = str(pathlib.Path(torch.__file__).parent / name)
    exec(compile(textwrap.dedent(source), file, "exec"), names)
    return names["made"]


def line(marker):
    """The line of this file that ends in the marker."""
    lines = HERE.read_text(encoding="utf-8").splitlines()
    return next(i for i, text in enumerate(lines, 1) if text.endswith("# " + marker))


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def expect(self, findings, kind, marker, operation=None):
        """One finding of that kind, at the marked line."""
        found = [f for f in findings if f.kind == kind]
        self.assertTrue(found, f"no {kind} in:\n{findings}")
        self.assertIn((str(HERE), line(marker)), [f.where for f in found], str(findings))
        finding = next(f for f in found if f.where == (str(HERE), line(marker)))
        if operation:
            self.assertEqual(finding.operation, operation)
        self.assertTrue(finding.what and finding.mend)
        return finding

    def expect_none(self, findings):
        self.assertEqual(list(findings), [], str(findings))


class Reads(Case):
    def test_a_clean_function_gives_nothing(self):
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Dropout())

        def fn(x):
            y = net(x)
            return y.softmax(0), x[1:] * 2
        self.expect_none(observe(fn, torch.randn(3, 4)))

    def test_values(self):
        def fn(x):
            if x.sum() > 0:  # reads-bool
                x = x + 1
            total = x.sum()
            a = total.item()  # reads-item
            b = float(total)  # reads-float
            c = x.tolist()  # reads-list
            text = f"{total}"  # reads-text
            torch.equal(x, x)  # reads-equal
            return x, len((a, b, c, text))
        findings = observe(fn, torch.ones(4))
        for marker, operation in (("reads-bool", "Tensor.__bool__ (aten::_local_scalar_dense)"),
                                  ("reads-item", "Tensor.item (aten::_local_scalar_dense)"),
                                  ("reads-float", None), ("reads-list", "Tensor.tolist"),
                                  ("reads-text", "printing a tensor"),
                                  ("reads-equal", "torch.equal")):
            self.expect(findings, "host-read", marker, operation)
        self.assertFalse(any(f.kind != "host-read" for f in findings), str(findings))

    def test_shapes_of_data(self):
        def fn(x):
            a = x.nonzero()  # shape-nonzero
            b = x[x > 0]  # shape-mask
            c = torch.masked_select(x, x > 0)  # shape-select
            d = x.unique()  # shape-unique
            e = torch.repeat_interleave(x, torch.ones_like(x, dtype=torch.long))  # shape-repeat
            y = x.clone()
            y[x > 0] = x.sum()  # shape-put
            return a, b, c, d, e, y
        findings = observe(fn, torch.tensor([1.0, 2.0, 3.0]))
        for marker in ("shape-nonzero", "shape-mask", "shape-select", "shape-unique",
                       "shape-repeat"):
            self.expect(findings, "data-shape", marker)
        self.assertIn("nonzero_static", self.expect(findings, "data-shape", "shape-nonzero").mend)

    def test_what_has_a_fixed_shape_is_let_alone(self):
        def fn(x):
            x = x.clone()
            x[x > 2] = 0.0
            return x.index_select(0, torch.tensor([0, 1])), x.repeat_interleave(2), x[[0, 2]]
        self.expect_none(observe(fn, torch.tensor([1.0, 2.0, 3.0])))

    def test_a_module_of_pytorch_names_its_line_there(self):
        class Wait(torch.nn.Module):
            def forward(self, x):
                return x * x.max().item()  # reads-module
        findings = observe(torch.nn.Sequential(Wait()), torch.ones(3))
        finding = self.expect(findings, "host-read", "reads-module")
        self.assertEqual(finding.frames[0].source, "return x * x.max().item()  # reads-module")
        self.assertEqual(finding.frames[0].function, "forward")

    def test_tests_for_nan(self):
        def fn(x):
            if torch.isnan(x).any():  # nan-any
                raise ValueError
            assert torch.isfinite(x).all()  # nan-all
            return x * 2
        findings = observe(fn, torch.ones(3))
        self.expect(findings, "nan-check", "nan-any")
        self.expect(findings, "nan-check", "nan-all")

    def test_gradient_clipping(self):
        net = torch.nn.Linear(3, 3)

        def fn(x):
            net.zero_grad()
            net(x).sum().backward()
            norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0,
                                                  error_if_nonfinite=True)  # clips
            return norm
        findings = observe(fn, torch.ones(2, 3))
        found = [f for f in findings if f.kind == "gradient-clipping"]
        self.assertEqual(len(found), 1, str(findings))
        self.assertIn("clip_grad_norm_", found[0].frames[0].source)
        self.assertIs(found[0].fix, mends.clipped)
        self.expect_none(observe(findings.mended(), torch.ones(2, 3)))

    def test_random_numbers(self):
        generator = torch.Generator()

        def fn(x):
            return x + torch.rand(3, generator=generator) + torch.rand(3)  # draws
        findings = observe(fn, torch.ones(3))
        finding = self.expect(findings, "random-generator", "draws")
        self.assertEqual(finding.options["generators"][0]._cdata, generator._cdata)
        self.expect_none(observe(fn, torch.ones(3), generators=(generator,)))

    def test_named_generators_are_put_back(self):
        generator = torch.Generator().manual_seed(9)
        before = generator.get_state()

        def fn(x):
            return x + torch.rand(3, generator=generator)
        findings = Captured(fn, torch.ones(3), generators=(generator,)).run()
        self.expect_none(findings)
        self.assertTrue(findings.captured)
        self.assertTrue(torch.equal(generator.get_state(), before))

    def test_moves_to_the_device(self):
        table = torch.arange(4.0)

        def fn(x):
            y = table.to("meta")  # moves
            return x + y
        findings = observe(fn, torch.empty(4, device="meta"), kind="meta")
        self.assertIs(self.expect(findings, "copy-in", "moves").fix, mends.constants)

    def test_tensors_made_on_the_device_of_host_values(self):
        tensor = in_torch("""
            def made(data, **kwargs):  # waits as PyTorch's does, unseen by the dispatch mode
                if torch.overrides._is_torch_function_mode_enabled():
                    return torch.overrides.handle_torch_function(made, (), data, **kwargs)
                warnings.warn("called a synchronizing CUDA operation")
                with torch.utils._python_dispatch._disable_current_modes():
                    return torch.empty(2, **kwargs)
            made.__name__ = "tensor"
            """, torch=torch, warnings=warnings)

        def fn(x):
            y = x + tensor([1.0, 2.0], device="meta")  # made of numbers
            return y + torch.as_tensor([1.0, 2.0], device="meta")  # of numbers too
        findings = observe(fn, torch.empty(2, device="meta"), kind="meta")
        self.assertEqual([(f.kind, f.frames[0].line, f.fix) for f in findings],
                         [("copy-in", line("made of numbers"), mends.constants),
                          ("copy-in", line("of numbers too"), mends.constants)], str(findings))

        def reads(x):
            return x + tensor([x, x], device="meta")  # made of tensors
        findings = observe(reads, torch.empty(2, device="meta"), kind="meta")
        self.assertEqual([f.kind for f in findings], ["host-read"], str(findings))
        self.expect(findings, "host-read", "made of tensors")

    def test_what_a_mend_prepares_is_not_told(self):
        def first_call_in(context):
            state = []

            def fn(x):
                if not state:
                    with context:
                        warnings.warn("called a synchronizing CUDA operation")
                    state.append(1)
                return x * 2
            return fn
        self.expect_none(observe(first_call_in(aside), torch.ones(2)))
        findings = observe(first_call_in(contextlib.nullcontext()), torch.ones(2))
        self.assertEqual([f.kind for f in findings], ["lazy-state"])

    def test_scalars_of_the_host(self):
        scale = torch.tensor(3.0)

        def fn(x):
            return x * scale + torch.tensor(1.0)  # scales
        findings = observe(fn, torch.empty(4, device="meta"), kind="meta")
        self.expect(findings, "host-scalar", "scales")
        self.assertEqual(len(findings), 1, str(findings))

    def test_an_argument_on_the_cpu(self):
        findings = observe(lambda x: x, torch.ones(2), kind="meta")
        self.assertEqual([f.kind for f in findings], ["copy-in"])


class Differences(Case):
    def test_control_flow(self):
        def fn(x):
            if (x[0] < 1.5).all():  # decides
                return x * 2  # one way
            return x.exp()  # the other way
        findings = observe(fn, torch.tensor([1.0, 2.0, 3.0]))
        self.expect(findings, "host-read", "decides")
        self.expect(findings, "control-flow", "the other way")

    def test_counters(self):
        state = {"step": 0}

        def fn(x):
            state["step"] += 1
            return x * state["step"]  # counts
        finding = self.expect(observe(fn, torch.ones(3)), "frozen-value", "counts")
        self.assertIn("was given 2 in one call and 3 in the next", finding.what)

    def test_growing_shapes(self):
        state = []

        def fn(x):
            state.append(x.detach().clone())  # keeps
            return torch.cat(state).sum()  # grows
        findings = observe(fn, torch.ones(3))
        self.expect(findings, "kept-tensor", "keeps")
        self.expect(findings, "changing-shapes", "grows")

    def test_replaced_state(self):
        state = {"h": torch.zeros(3)}

        def fn(x):
            state["h"] = state["h"] * 2 + x  # replaces
            return state["h"].sum()
        findings = observe(fn, torch.ones(3))
        self.expect(findings, "kept-tensor", "replaces")
        self.expect(findings, "moved-tensor", "replaces")
        self.expect(findings, "freed-tensor", "replaces")

    def test_state_in_place_is_fine_and_put_back(self):
        state = torch.zeros(3)

        def fn(x):
            state.mul_(2).add_(x)
            return state.sum()
        self.expect_none(observe(fn, torch.ones(3)))
        self.assertTrue(torch.equal(state, torch.zeros(3)))

    def test_an_argument_that_is_kept(self):
        seen = []

        def fn(x):
            seen.append(x)
            return seen[0] * 2  # reads the first
        self.expect(observe(fn, torch.ones(3)), "kept-address", "reads the first")

    def test_lazy_state(self):
        state = {}

        def fn(x):
            if "table" not in state:
                state["table"] = torch.full((3,), 2.0)  # makes
            return x * state["table"]
        findings = observe(fn, torch.ones(3))
        self.assertEqual([f.kind for f in findings], ["lazy-state"], str(findings))
        self.assertTrue(self.expect(findings, "lazy-state", "makes").is_caution)
        self.expect_none(observe(fn, torch.ones(3)))

    def test_training_is_put_back(self):
        net = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        before = [p.detach().clone() for p in net.parameters()]

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss
        self.expect_none(observe(step, torch.ones(2, 3)))
        for parameter, value in zip(net.parameters(), before):
            self.assertTrue(torch.equal(parameter, value))
            self.assertIsNone(parameter.grad)

    def test_a_failure_is_told(self):
        def fn(x):
            raise ValueError("not today")  # fails
        finding = self.expect(observe(fn, torch.ones(3)), "fails-eagerly", "fails")
        self.assertEqual(finding.what, "not today")

    def test_values_that_are_not_for_the_function_are_left_out(self):
        def fn(x):
            if float(x[0]) != 1.0:  # asks
                raise ValueError("values were moved on")
            return x * 2
        findings = observe(fn, torch.tensor([1.0, 2.0]))
        self.assertEqual([f.kind for f in findings], ["host-read"])


class Captured(Check):
    """A check whose capture is a stand-in: it gives replay(fn), or the error that the fn raised, or
    another where the platform's capture was broken."""

    def __init__(self, fn, *args, replay=lambda fn: fn, generators=()):
        super().__init__(torch, Cpu(), fn, args, {}, generators, ())
        self.replay = replay

    def _try(self):
        self.platform.capturing, self.platform.broken, self.platform.nodes = True, False, 0
        try:
            self.call(self.tensors)
            if self.platform.broken:
                raise RuntimeError("CUDA error: operation failed due to a previous error during "
                                   "capture")
        except RuntimeError as error:
            return None, error
        finally:
            self.platform.capturing = False
        return self.replay(self.fn), None


class Captures(Case):
    def test_clean(self):
        findings = Captured(lambda x: x * 2, torch.ones(3)).run()
        self.assertTrue(findings.captured)
        self.assertIn("can be captured: its replays give what it gives", str(findings))

    def test_the_line_that_broke_it_is_found(self):
        def breaks():
            check.platform.broken = True  # breaks

        def fn(x):
            y = x * 2
            if check.platform.capturing:
                breaks()
            return y + 1
        check = Captured(fn, torch.ones(3))
        findings = check.run()
        finding = self.expect(findings, "capture-error", "breaks")
        self.assertIn("previous error during capture", finding.what)
        self.assertFalse(findings.captured)

    def test_the_call_that_was_refused_is_named(self):
        def fn(x):
            if check.platform.capturing:
                check.platform.broken = True  # refused
            return x * 2
        for function, code, kind, operation, what, mend in (
                ("cuMemAlloc_v2", 900, "allocation", "cuMemAlloc",
                 "device memory is taken from the driver: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)",
                 "before the capture"),
                ("cuLaunchKernel_ptsz", 906, "legacy-stream", "cuLaunchKernel",
                 "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT (906)", "stream"),
                ("cuSomethingNew_v3_ptsz", 900, "refused-call", "cuSomethingNew", "(900)", "")):
            check = Captured(fn, torch.ones(3))
            check.platform.refused = (function, code)
            findings = check.run()
            self.assertEqual(len(findings), 1, str(findings))
            finding = self.expect(findings, kind, "refused", operation)
            self.assertIn(what, finding.what)
            self.assertIn(mend, finding.mend)

    def test_the_line_of_a_node_is_named(self):
        def fn(x):
            check.platform.nodes = 3
            y = x * 2
            check.platform.nodes = 4  # captures node 3
            if check.platform.capturing:
                raise error
            return y + 1
        error = reprise.Error("'fn(3)': node 3 (kernel rotates) differs between two captures of the "
                              "same work: its grid changed. The callable must do the same each time")
        error.status, error.driver_code = "RP_ERROR_DIVERGED", 0
        check = Captured(fn, torch.ones(3))
        findings = check.run()
        self.assertEqual(len(findings), 1, str(findings))
        finding = self.expect(findings, "divergence", "captures node 3", "kernel rotates")
        self.assertIn("its grid changed", finding.what)

    def test_the_line_that_raised_is_found(self):
        def fn(x):
            if check.platform.capturing:
                raise RuntimeError("not in a capture")  # raised
            return x * 2
        check = Captured(fn, torch.ones(3))
        self.expect(check.run(), "callable-error", "raised")

    def test_what_the_capture_survived_is_a_caution(self):
        breaks = []

        def fn(x):
            torch.manual_seed(1)  # survived
            if breaks and check.platform.capturing:
                raise RuntimeError("not in a capture")
            return x * 2
        for survived in (True, False):
            breaks.extend([1] * (not survived))
            check = Captured(fn, torch.ones(3))
            check.findings.note("random-state", "torch.manual_seed")
            findings = check.run()
            self.assertEqual((findings[0].is_caution, findings.captured), (survived, survived))
            self.assertEqual(len(findings.obstacles), 0 if survived else 2, str(findings))

    def test_known_obstacles_are_not_told_twice(self):
        def fn(x):
            total = x.sum().item()  # known
            check.platform.broken = True
            return x * total
        check = Captured(fn, torch.ones(3))
        check._trace = lambda: (None, None)
        self.assertEqual([f.kind for f in check.run()], ["host-read"])

    def test_replays_are_compared(self):
        state = torch.zeros(3)

        def fn(x):
            state.add_(x)
            return x * 2
        x = torch.tensor([1.0, 2.0, 3.0])
        self.assertTrue(Captured(fn, x).run().captured)
        for replay, kind, operation in (
                (lambda fn: lambda x: fn(x) + 1, "other-results", "result 0 of a replay"),
                (lambda fn: lambda x: fn(x) * 0 + 2 * torch.tensor([1.0, 2.0, 3.0]),
                 "frozen-value", "result 0 of a replay"),
                (lambda fn: lambda x: x * 2, "other-results",
                 "what a replay writes beside its arguments"),
                (lambda fn: lambda x: fn(x.add_(1)) - 2, "other-results",
                 "argument 0 after a replay")):
            findings = Captured(fn, x, replay=replay).run()
            self.assertEqual([(f.kind, f.operation) for f in findings], [(kind, operation)],
                             str(findings))
            self.assertFalse(findings.captured)
        self.assertTrue(torch.equal(state, torch.zeros(3)))

    def test_what_is_not_repeatable_is_not_compared(self):
        calls = []

        def fn(x):
            calls.append(1)
            return x.clone().apply_(lambda v: v + len(calls))
        findings = Captured(fn, torch.ones(3)).run()
        self.assertEqual([f.kind for f in findings], ["not-repeatable"])


class Foreign(Case):
    def check(self, fn, others=lambda calls: 0, asked=None):
        """asked: what tells how often the driver was asked for memory; None: nothing does."""
        calls = [0]

        class Shared(Cpu):
            def foreign_bytes(self):
                calls[0] += 1
                return taken[0] + others(calls[0])

            def watch_refusals(self):
                return asked is not None

            def driver_allocations(self):
                return asked()
        taken = self.taken
        return Check(torch, Shared(), fn, (torch.ones(2),), {}, (), (), capture=False).run()

    def setUp(self):
        super().setUp()
        self.taken = [0]

    def take(self):
        self.taken[0] += 32 << 20  # takes
        return 1.0

    def test_the_line_is_named(self):
        def fn(x):
            y = x * self.take()
            return y + 1
        findings = self.check(fn)
        self.assertEqual(len(findings), 1, str(findings))
        finding = self.expect(findings, "allocation", "takes")
        self.assertIn("32 MiB of device memory", finding.what)

    def test_what_others_take_is_not_the_callables(self):
        def fn(x):
            y = x + 1
            z = y + 1
            return z + 1
        for others in (lambda calls: calls << 21,                # all the time
                       lambda calls: (calls * calls) << 21,
                       lambda calls: (calls % 5) << 21,
                       lambda calls: (2 << 20) * (calls > 4),    # once
                       lambda calls: -calls << 21):              # gives back
            with self.subTest():
                findings = self.check(fn, others)
                self.expect_none(findings)

    def test_what_others_take_at_one_line_is_not_the_callables(self):
        def fn(x):
            y = x * self.take()  # while this ran, others took as much each time
            return y + 1
        self.expect_none(self.check(fn, asked=lambda: 7))
        self.assertEqual(len(self.check(fn, asked=lambda: self.taken[0] >> 20)), 1)

    def test_less_than_the_driver_takes_is_not_told(self):
        def fn(x):
            self.taken[0] += 64 << 10
            return x + 1
        self.expect_none(self.check(fn))

    def test_the_rest_of_a_line_is_its_own(self):
        def one():
            return 1.0

        def fn(x):
            return x * one() + direct(x)  # both

        direct = in_torch("""
            def made(x):
                taken[0] += 2 << 20
                return x
            """, taken=self.taken)
        self.expect(self.check(fn), "allocation", "both")


class Surroundings(Case):
    def test_hooks(self):
        net = torch.nn.Linear(2, 2)

        def hook(module, args, result):  # hooks
            return None
        net.register_forward_hook(hook)
        finding = self.expect(observe(net, torch.ones(2)), "module-hooks", "hooks")
        self.assertTrue(finding.is_caution)

    def test_autocast(self):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            findings = observe(lambda x: x + 1, torch.ones(2))
            cached = []
            Captured(lambda x: cached.append(torch.is_autocast_cache_enabled()), torch.ones(2)).run()
            self.assertTrue(torch.is_autocast_cache_enabled())
        self.assertEqual((cached[:3], set(cached[3:])), ([True] * 3, {False}))
        self.assertEqual([f.kind for f in findings], ["autocast-cache"])
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            self.expect_none(observe(lambda x: x + 1, torch.ones(2)))

    def test_a_thread_that_pins_memory(self):
        stop = threading.Event()

        def _pin_memory_loop():
            stop.wait(60)
        thread = threading.Thread(target=_pin_memory_loop)
        thread.start()
        try:
            self.assertEqual([f.kind for f in observe(lambda x: x + 1, torch.ones(2))],
                             ["background-thread"])
        finally:
            stop.set()
            thread.join()

    def test_warnings_of_synchronisation_are_taken_down(self):
        def fn(x):
            y = x * 2
            warnings.warn("called a synchronizing CUDA operation")  # warns
            return y
        self.expect(observe(fn, torch.ones(2)), "synchronisation", "warns")

    def test_without_a_gpu_the_reason_is_told(self):
        if torch.cuda.is_available():
            self.skipTest("there is a GPU")
        with self.assertRaisesRegex(RuntimeError, "reprise needs an NVIDIA GPU"):
            reprise.check(print)


class Waits(unittest.TestCase):
    """Streams by their clocks."""

    class Event:
        pass

    def fork(self, streams, source, target):
        event = self.Event()
        streams.record(event, source)
        return streams.wait(event, target)

    def test_side_streams(self):
        streams = Streams(7)
        self.assertIsNone(streams.work(7, "a"))
        self.assertEqual(streams.work(0, "b"), "legacy-stream")
        self.assertEqual(streams.work(8, "c"), "outside-stream")
        self.assertTrue(self.fork(streams, 7, 8))
        self.assertIsNone(streams.work(8, "d"))
        self.assertEqual(streams.unjoined(), ["d"])
        self.assertTrue(self.fork(streams, 8, 7))
        self.assertEqual(streams.unjoined(), [])
        streams.work(8, "e")
        self.assertEqual(streams.unjoined(), ["e"])

    def test_joins_by_way_of_others(self):
        streams = Streams(7)
        self.fork(streams, 7, 8)
        self.fork(streams, 8, 9)
        streams.work(8, "a")
        streams.work(9, "b")
        self.fork(streams, 8, 9)
        self.fork(streams, 9, 7)
        self.assertEqual(streams.unjoined(), [])

    def test_waiting_for_what_is_outside(self):
        streams = Streams(7)
        self.assertFalse(self.fork(streams, 5, 7))
        self.assertTrue(self.fork(streams, 5, 6))


class PlainStream:
    """Of torch.cuda as much as the replaced entry points need."""

    def __init__(self, raw):
        self.cuda_stream = raw

    def synchronize(self):
        pass

    def query(self):
        return True

    def wait_stream(self, other):
        event = torch.cuda.Event()
        event.record(other)
        event.wait(self)


class PlainEvent:
    def record(self, stream=None):
        pass

    def wait(self, stream=None):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 0.0


class PlainCuda(Cuda):
    """The CUDA platform with all its replaced entry points, over a CPU."""

    type = "cpu"
    raw = 7

    def __init__(self):
        super().__init__(torch, torch.device("cuda", 0))

    def current(self):
        return self.raw

    random_state, set_random_state = Cpu.random_state, Cpu.set_random_state
    foreign_bytes, knows = Cpu.foreign_bytes, Cpu.knows


class EntryPoints(Case):
    def setUp(self):
        super().setUp()
        self.platform = PlainCuda()
        fakes = {"Stream": PlainStream, "Event": PlainEvent, "synchronize": lambda device=None: None,
                 "get_rng_state": lambda device=None: torch.zeros(1),
                 "get_sync_debug_mode": lambda: 0, "set_sync_debug_mode": lambda mode: None}
        for name, fake in fakes.items():
            patch = mock.patch.object(torch.cuda, name, fake)
            patch.start()
            self.addCleanup(patch.stop)

    def see(self, fn, *args):
        return Check(torch, self.platform, fn, args, {}, (), (), capture=False).run()

    def on(self, raw):
        """The current stream is another one."""
        return mock.patch.object(self.platform, "raw", raw)

    def test_waits_and_queries(self):
        def fn(x):
            event, stream = torch.cuda.Event(), torch.cuda.Stream(7)
            torch.cuda.synchronize()  # sync-device
            stream.synchronize()  # sync-stream
            event.synchronize()  # sync-event
            stream.query()  # query-stream
            event.query()  # query-event
            event.elapsed_time(event)  # elapsed
            return x + 1
        before = [vars(owner)[name] for owner, name in self.places()]
        findings = self.see(fn, torch.ones(2))
        for marker in ("sync-device", "sync-stream", "sync-event"):
            self.assertIs(self.expect(findings, "synchronisation", marker).fix, mends.unwaited)
        for marker in ("query-stream", "query-event", "elapsed"):
            self.assertIsNone(self.expect(findings, "synchronisation", marker).fix)
        self.assertEqual([vars(owner)[name] for owner, name in self.places()], before)
        self.assertEqual(len(self.see(findings.mended(), torch.ones(2))), 3)
        self.assertEqual([vars(owner)[name] for owner, name in self.places()], before)

    @staticmethod
    def places():
        cuda = torch.cuda
        return ((cuda, "synchronize"), (PlainStream, "synchronize"), (PlainEvent, "query"),
                (PlainEvent, "record"), (cuda, "get_rng_state"), (torch, "manual_seed"),
                (torch, "set_anomaly_enabled"), (torch.utils.data.DataLoader, "__iter__"))

    def test_streams(self):
        here, side, other = PlainStream(7), PlainStream(8), PlainStream(9)

        def fn(x):
            with self.on(0):
                x + 1  # on the legacy stream
            with self.on(9):
                x + 2  # on a stream outside
            side.wait_stream(here)
            with self.on(8):
                y = x * 2  # not joined
            event = torch.cuda.Event()
            event.record(other)
            event.wait(here)  # waits outside
            return y
        findings = self.see(fn, torch.ones(2))
        self.expect(findings, "legacy-stream", "on the legacy stream")
        self.expect(findings, "outside-stream", "on a stream outside")
        self.expect(findings, "outside-stream", "waits outside")
        self.assertIs(self.expect(findings, "unjoined-stream", "not joined").fix, mends.joined)

        def mended(x):
            side.wait_stream(here)
            with self.on(8):
                y = x * 2
            here.wait_stream(side)
            return y
        self.expect_none(self.see(mended, torch.ones(2)))

    def test_gradients_on_the_default_stream(self):
        weight = torch.ones(2, requires_grad=True)

        def fn(x):
            loss = (x * weight).sum()
            with self.on(0):
                return torch.autograd.grad(loss, weight)[0]  # grads
        self.expect(self.see(fn, torch.ones(2)), "grad-stream", "grads")

    def test_other_threads(self):
        def fn(x):
            thread = threading.Thread(target=poll)
            thread.start()
            thread.join()
            return x + 1

        def poll():
            torch.cuda.Event().query()  # polls
        findings = self.see(fn, torch.ones(2))
        self.assertTrue(self.expect(findings, "background-thread", "polls").is_caution)
        self.assertEqual(len(findings), 1)

    def test_states_of_generators(self):
        def fn(x):
            torch.manual_seed(1)  # seeds
            torch.cuda.get_rng_state()  # state
            return x + torch.rand(2)
        findings = self.see(fn, torch.ones(2))
        self.expect(findings, "random-state", "seeds")
        self.expect(findings, "random-state", "state")

    def test_checkpoints_states(self):
        save = in_torch("def made(): torch.cuda.get_rng_state()", "utils/checkpoint.py", torch=torch)

        def fn(x):
            save()  # checkpoints
            return x + 1
        finding = self.expect(self.see(fn, torch.ones(2)), "checkpoint", "checkpoints")
        self.assertIs(finding.fix, mends.checkpointed)

    def test_anomaly_detection(self):
        def fn(x):
            with torch.autograd.set_detect_anomaly(True):  # anomaly
                return x + 1
        findings = self.see(fn, torch.ones(2))
        self.expect(findings, "nan-check", "anomaly")
        self.expect_none(self.see(findings.mended(), torch.ones(2)))

    def test_loading(self):
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(2, 2)))

        def fn(x):
            for batch, in loader:  # loads
                x = x + batch
            return x
        self.expect(self.see(fn, torch.ones(2)), "data-loader", "loads")

    def test_optimizers(self):
        parameter = torch.nn.Parameter(torch.ones(2))
        parameter.grad = torch.ones(2)
        optimizer = torch.optim.Adam([parameter])
        optimizer.step()

        def fn(x):
            optimizer.step()  # steps
            return x + parameter
        findings = self.see(fn, torch.ones(2))
        self.assertTrue(self.expect(findings, "optimizer", "steps").fix)
        findings.mended()
        self.assertTrue(optimizer.param_groups[0]["capturable"])


class Mends(Case):
    def test_constants_are_moved_once(self):
        moved = []

        class Count(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                moved.append(func._schema.name)
                return func(*args, **(kwargs or {}))
        table = torch.arange(3.0)

        def fn(target):
            target.copy_(table)
            return target
        mended = mends.constants(fn)
        self.assertTrue(torch.equal(mended(torch.zeros(3)), table))
        with Count():
            mended(torch.zeros(3))
        self.assertNotIn("aten::_to_copy", moved)

    def test_what_is_made_where_it_is_stays_as_it_is(self):
        x = torch.ones(2, dtype=torch.float64)

        def fn(x):
            with torch.device("cpu"):
                a = torch.tensor([1, 2])
            return (a, x.new_tensor([3]), torch.as_tensor(x), torch.asarray([4.0]),
                    torch.tensor([5.0], requires_grad=True))
        for got, want in zip(mends.constants(fn)(x), fn(x)):
            self.assertTrue(torch.equal(got, want))
            self.assertEqual((got.dtype, got.requires_grad), (want.dtype, want.requires_grad))
        self.assertIs(mends.constants(fn)(x)[2], x)

    def test_values_of_the_host_are_made_on_the_host_and_moved(self):
        seen, there = [], torch.device("cuda", 0)

        class Seen(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                if func is torch.Tensor.to:
                    seen.append(args[1])
                    return args[0]  # as if it were there
                if func in (torch.tensor, torch.as_tensor):
                    seen.append(kwargs["device"])
                return func(*args, **(kwargs or {}))

        def fn():
            torch.tensor([1.0], device=there)
            torch.as_tensor([1.0], device="cuda:0")
            with torch.device(there):
                torch.tensor([1.0])
        with Seen():
            mends.constants(fn)()
        self.assertEqual(seen, ["cpu", there] * 3)

    def test_masks(self):
        def fn(x, v):
            return x.clone().index_put_((x > 1,), v)
        x, v = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([9.0])
        findings = observe(fn, x, v)
        self.assertEqual([(f.kind, f.fix) for f in findings], [("data-shape", mends.masked)])
        mended = findings.mended()
        self.assertTrue(torch.equal(mended(x, v), fn(x, v)))
        rows = torch.ones(2, 3)

        def fill(x, m, v):
            x = x.clone()
            x[m] = v
            return x
        mask = torch.tensor([True, False])
        self.assertTrue(torch.equal(mends.masked(fill)(rows, mask, v), fill(rows, mask, v)))
        self.expect_none(observe(mended, x, v))

    def test_clipping_does_not_read(self):
        parameter = torch.nn.Parameter(torch.ones(3))
        parameter.grad = torch.tensor([float("nan"), 1.0, 2.0])
        norm = mends.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)
        self.assertTrue(norm.isnan())
        parameter.grad = torch.full((3,), 10.0)
        self.assertAlmostEqual(mends.clip_grad_norm_([parameter], 1.0).item(), 300 ** 0.5, 3)
        self.assertAlmostEqual(parameter.grad.norm().item(), 1.0, 3)

    def test_optimizers(self):
        parameter = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.Adam([parameter])
        parameter.grad = torch.ones(3)
        optimizer.step()
        mends.capturable(optimizer)
        self.assertTrue(optimizer.param_groups[0]["capturable"])

    def test_anomaly_detection_is_put_back(self):
        def fn():
            with torch.autograd.set_detect_anomaly(True):
                return torch.is_anomaly_enabled()
        self.assertFalse(mends.without_anomaly_checks(fn)())
        self.assertTrue(fn())
        self.assertFalse(torch.is_anomaly_enabled())

    def test_checkpoints(self):
        from torch.utils.checkpoint import checkpoint
        seen = []

        def fn(x):
            module = torch.utils.checkpoint
            seen.append(module.checkpoint.__name__)
            return module.checkpoint(lambda y: y * 2, x, use_reentrant=False)
        self.assertEqual(mends.checkpointed(fn)(torch.ones(1)).item(), 2)
        self.assertIs(torch.utils.checkpoint.checkpoint, checkpoint)

    def test_modules_stay_known(self):
        from reprise._call.watch import find_modules
        net = torch.nn.Linear(2, 2)
        self.assertEqual(find_modules(torch, mends.constants(mends.masked(net))), [net])
        self.assertEqual(mends.constants(net)(torch.ones(2)).shape, (2,))


class Report(Case):
    def findings(self):
        def fn(x):
            return x * x.sum().item()  # told
        return observe(fn, torch.ones(3))

    def test_text(self):
        text = str(self.findings())
        self.assertIn(f"test_check.py:{line('told')} in fn: return x * x.sum().item()", text)
        self.assertIn("1  host-read: Tensor.item", text)
        self.assertIn("fn cannot be captured as it is: 1 obstacle", text)

    def test_json(self):
        facts = json.loads(self.findings().json())
        self.assertEqual(facts["findings"][0]["frames"][0]["line"], line("told"))
        self.assertEqual(facts["findings"][0]["kind"], "host-read")

    def test_raises(self):
        with self.assertRaisesRegex(reprise.Error, "host-read"):
            self.findings().raise_for_obstacles()
        Findings(print, "print").raise_for_obstacles()

    def test_every_kind_is_explained(self):
        for name in ("_check/observe.py", "_check/platform.py", "_check/check.py", "_check/compare.py"):
            source = (pathlib.Path(reprise.__file__).parent / name).read_text(encoding="utf-8")
            for word in source.split('"')[1::2]:
                if word in CAUTIONS or (_C.explain(word) or (None,))[0] == word:
                    self.assertTrue(Finding(word, "x").what)
        for kind in CAUTIONS:
            self.assertEqual(_C.explain(kind)[0], kind)

    def test_unknown_kinds_are_a_mistake(self):
        with self.assertRaises(TypeError):
            Finding("no such kind", "x")

    def test_lines_of_errors(self):
        try:
            torch.ones(2).view(3)  # raises
        except RuntimeError as error:
            self.assertEqual(line_of(error).line, line("raises"))
            other = KeyError("of a library")
            self.assertIsNone(line_of(other))
            other.__cause__ = error
            self.assertEqual(line_of(other).line, line("raises"))

    @unittest.skipUnless(hasattr(Exception, "add_note"), "Python 3.11 has notes")
    def test_errors_tell_what_to_do(self):
        for text, wanted in (
                ("Cannot copy between CPU and CUDA tensors during CUDA graph capture unless",
                 "'step' could not be captured: a copy from the host. To do: make it a tensor on the"),
                ("CUDA error: operation not permitted when stream is capturing", "To do: "),
                ("something else", "'step' could not be captured. reprise.check names everything")):
            error = RuntimeError(text)
            tell_mend(error, "step")
            self.assertEqual(len(error.__notes__), 1)
            self.assertIn(wanted, error.__notes__[0])
            self.assertIn("reprise.check names everything", error.__notes__[0])

    def test_stacks_end_where_they_should(self):
        def inner():
            return take_stack(sys._getframe(), TestCaseEnd.outer.__code__)

        class TestCaseEnd:
            @staticmethod
            def outer():
                return inner()
        self.assertEqual([f.function for f in TestCaseEnd.outer().frames], ["inner"])

    def test_on_threads_of_pytorch_the_waiting_program_is_named(self):
        file = str(pathlib.Path(torch.__file__).parent / "autograd" / "hooks.py")
        names = {}
        exec(compile("def run(): pass", file, "exec"), names)

        class Only:  # a stack that ends at its innermost frame
            f_code, f_lineno, f_back = names["run"].__code__, 1, None
        stack = take_stack(Only, caller=sys._getframe())
        self.assertEqual(stack.through, {"hooks.py"})
        self.assertEqual(stack.frames[0].file, str(HERE))
        self.assertEqual([f.function for f in take_stack(Only).frames], ["run"])

    def test_imports_without_torch(self):
        done = subprocess.run([sys.executable, "-c", "import sys; sys.modules['torch'] = None\n"
                               "import reprise\nprint(reprise.mends.__all__[0])"],
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), "capturable")


if __name__ == "__main__":
    unittest.main()
