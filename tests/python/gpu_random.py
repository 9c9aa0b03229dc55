# SPDX-License-Identifier: MIT
"""Random numbers in graphs, under install() and without it: usage: gpu_random.py [--install] ...

Numbers are compared with eager's to the bit, on whichever PyTorch this is."""

import contextlib
import gc
import sys
import threading
import time
import unittest
import warnings
from unittest import mock

import torch

import needs
import reprise
from reprise import _C
from reprise._capture import states
from reprise._shapes import shape
from training_steps import mlp, whole_step
from unseen import Unseen

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

dropout = torch.nn.functional.dropout


def ones(n):
    return torch.ones(n, 100, device="cuda")


class Numbers(unittest.TestCase):
    def check(self, fn, inputs, between=lambda i: None, **options):
        """Calls of the graphed function give what eager calls give, and leave the generator there."""
        made = reprise.graphed(fn, strict=True, **options)
        shown = []
        for call in (fn, made):
            torch.manual_seed(4)
            results = []
            for i, x in enumerate(inputs):
                between(i)
                results.append(call(x))
            shown.append((results, torch.cuda.get_rng_state()))
        for want, got in zip(shown[0][0], shown[1][0]):
            self.assertTrue(torch.equal(got, want))
        self.assertTrue(torch.equal(shown[0][1], shown[1][1]))
        return made

    @needs.draws_in_captures
    def test_each_call_draws_others(self):
        made = self.check(lambda x: dropout(x, 0.5), [ones(16)] * 8)
        self.assertTrue(made.shapes()[0]["random"])
        first, second = made(ones(16)), made(ones(16))
        self.assertFalse(torch.equal(first, second))

    @needs.draws_in_captures
    def test_many_draws_of_many_kinds(self):
        def fn(x):
            y = dropout(x, 0.1) + torch.rand_like(x) + torch.randn(x.shape, device="cuda")
            return y + torch.randint_like(x, 9) + torch.empty_like(x).exponential_()
        self.check(fn, [ones(8), ones(24), ones(8), ones(24)])

    @needs.draws_in_captures
    def test_seeds_and_states_of_the_program_between_calls(self):
        saved = []

        def between(i):
            if i == 2:
                torch.manual_seed(99)
            if i == 4:
                saved.append(torch.cuda.get_rng_state())
            if i == 6:
                torch.cuda.set_rng_state(saved.pop())
            if i % 3 == 1:
                torch.rand(7, device="cuda")  # an eager draw
        self.check(lambda x: dropout(x, 0.5), [ones(16), ones(40)] * 5, between)

    @needs.draws_in_captures
    def test_large_offsets(self):
        generator = torch.cuda.default_generators[0]
        self.check(lambda x: dropout(x, 0.5), [ones(16)] * 5,
                   lambda i: generator.set_offset((1 << 40) + 4 * i))

    @needs.draws_in_captures
    def test_calls_that_draw_take_the_fast_path(self):
        made = reprise.graphed(lambda x: dropout(x, 0.5), strict=True)
        for _ in range(4):
            made(ones(16))
        with mock.patch.object(shape.Shape, "enqueue", side_effect=AssertionError("the slow path")):
            torch.manual_seed(1)
            got = [made(ones(16)) for _ in range(3)]
        torch.manual_seed(1)
        for one in got:
            self.assertTrue(torch.equal(one, dropout(ones(16), 0.5)))

    @needs.draws_in_captures
    def test_generators_beside_the_devices_own(self):
        other = torch.Generator("cuda")

        def fn(x):
            return dropout(x, 0.5) + torch.rand(x.shape, device="cuda", generator=other)

        def between(i):
            if i == 0:
                other.manual_seed(8)
        self.check(fn, [ones(16), ones(40), ones(16), ones(40), ones(16)], between,
                   generators=[other])

    def test_generators_that_are_not_passed_are_refused(self):
        other = torch.Generator("cuda")
        made = reprise.graphed(lambda x: x + torch.rand(x.shape, device="cuda", generator=other))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = [made(ones(16)) for _ in range(5)]
        self.assertEqual(made.shapes(), [])
        self.assertTrue(any("without a graph" in str(w.message) for w in caught))
        for a, b in zip(got, got[1:]):
            self.assertFalse(torch.equal(a, b))

    @needs.draws_in_captures
    def test_streams(self):
        made = reprise.graphed(lambda x: dropout(x, 0.5), strict=True)
        x, streams = ones(4096), [torch.cuda.Stream() for _ in range(3)]
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
        made(x), made(x)
        torch.manual_seed(2)
        want = [dropout(x, 0.5) for _ in range(12)]
        torch.cuda.synchronize()
        torch.manual_seed(2)
        got = []
        for i in range(12):
            with torch.cuda.stream(streams[i % 3]):
                got.append(made(x))
        torch.cuda.synchronize()
        for a, b in zip(got, want):
            self.assertTrue(torch.equal(a, b))

    def test_a_function_without_work_warns_of_nothing(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = reprise.graphed(lambda x: x, strict=True)
            for _ in range(4):
                made(ones(3))
        self.assertEqual([str(w.message) for w in caught if "empty" in str(w.message)], [])

    @needs.draws_in_captures
    def test_verified_by_capturing(self):
        made = self.check(lambda x: dropout(x, 0.5), [ones(16)] * 4, verify="capture")
        self.assertEqual(made.shapes()[0]["verified"], "capture")


class Suspects(unittest.TestCase):
    """What looks like a generator's words in the parameters of a captured kernel: from 2.14 on they are
    asked for, and any generator may draw."""

    def captured(self, found, fn=lambda x: x * 2):
        """Calls of a function whose runs are said to draw from what found(number of the run) tells."""
        runs = Unseen()

        def words_of(ordinal, graph):
            runs.append(1)
            return found(len(runs))
        made = reprise.graphed(fn, strict=True)
        with mock.patch.object(_C, "words_of", words_of):
            for _ in range(3):
                self.assertTrue(torch.equal(made(ones(16)), fn(ones(16))))
        self.assertEqual(len(made.shapes()), 1)
        self.asked = len(runs)

    def test_numbers_that_are_no_addresses(self):
        self.captured(lambda run: [(run << 40, run << 41)])

    def test_tensors_that_are_no_words(self):
        kept = [torch.zeros(64, device="cuda") for _ in range(32)]
        self.captured(lambda run: [(kept[2 * run].data_ptr(), kept[2 * run + 1].data_ptr())])

    def test_words_that_are_gone(self):
        gone = [torch.zeros(1, dtype=torch.long, device="cuda") for _ in range(32)]
        places = [t.data_ptr() for t in gone]
        del gone
        self.captured(lambda run: [(places[2 * run], places[2 * run + 1])])

    @needs.draws_in_captures
    def test_words_of_earlier_captures(self):
        noted = []

        def call_value(address, told=_C.call_value):
            noted.append(address)
            return told(address)
        with mock.patch.object(_C, "call_value", call_value):
            earlier = [reprise.graphed(lambda x: dropout(x, 0.5), strict=True) for _ in range(4)]
            for made in earlier:
                for _ in range(2):
                    made(ones(16))
        pairs = list(zip(noted[::2], noted[1::2]))[1::2]  # of the records, which the graphs keep
        self.captured(lambda run: [pairs[run]])
        self.assertEqual(len(earlier[0].shapes()), 1)

    def test_what_is_the_same_in_each_run(self):
        """Words that the callable has of its own."""
        kept = [torch.zeros(1, dtype=torch.long, device="cuda") for _ in range(2)]
        self.captured(lambda run: [tuple(t.data_ptr() for t in kept)])

    def test_what_is_the_same_behind_a_rehearsal_that_was_for_nothing(self):
        """A result that stays, under install(): the capture begins anew behind it."""
        kept = [torch.zeros(1, dtype=torch.long, device="cuda") for _ in range(2)]
        held = Unseen()

        def fn(x):
            y = x * 2
            held.append(y)
            return y
        self.captured(lambda run: [tuple(t.data_ptr() for t in kept)], fn)

    def test_words_of_nobody(self):
        kept = [torch.zeros(1, dtype=torch.long, device="cuda") for _ in range(64)]
        found = lambda run: [(kept[2 * run].data_ptr(), kept[2 * run + 1].data_ptr())]  # noqa: E731
        try:
            self.captured(found)
        except reprise.Error as error:
            self.assertIn("generators=[generator]", str(error))
        else:
            self.assertEqual(self.asked, 0)  # a PyTorch that refuses to draw itself


class Proof(unittest.TestCase):
    def test_it_leaves_nothing_to_be_written_later(self):
        """Its generator's words are memory of the current stream, which gives it to others right behind it."""
        stream, x = torch.cuda.Stream(), torch.ones(512, 512, device="cuda")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # is busy for a while: on the host driver with the products
            torch.cuda._sleep(100_000_000)
            for _ in range(4):
                x @ x
        with contextlib.suppress(states.Unreadable):
            states._proves(torch, stream)
        others = [torch.zeros(1, dtype=torch.int64, device="cuda") for _ in range(64)]
        torch.cuda.synchronize()
        self.assertEqual([other.item() for other in others], [0] * 64)


class Memory(unittest.TestCase):
    @needs.draws_in_captures
    def test_shapes_that_draw_take_no_execs_of_their_own(self):
        net = mlp(512, dropout=0.1)
        with torch.no_grad():
            one = reprise.graphed(net, strict=True)
            for _ in range(3):
                one(torch.randn(128, 512, device="cuda"))
            largest = one.pool.info()["planned_bytes"]
            del one
            gc.collect()
            made = reprise.graphed(net, strict=True)
            before = reprise.exec_info()["bytes"]
            for n in range(128, 0, -1):
                made(torch.randn(n, 512, device="cuda"))
        self.assertLessEqual(made.pool.info()["planned_bytes"], 1.02 * largest)
        self.assertLessEqual(reprise.exec_info()["bytes"] - before, 64 << 20)


class Training(unittest.TestCase):
    @needs.draws_in_captures
    def test_whole_steps_with_dropout_of_several_shapes(self):
        def train(wrap):
            torch.manual_seed(5)
            net = mlp(dropout=0.2)
            step = wrap(whole_step(net, torch.optim.Adam(net.parameters(), capturable=True)))
            return [step(torch.randn(n, 256, device="cuda"), torch.randn(n, 256, device="cuda")).item()
                    for n in (32, 16, 32, 16, 32, 16, 32)]
        self.assertEqual(train(lambda step: reprise.graphed(step, strict=True)), train(lambda step: step))


class Failures(unittest.TestCase):
    """What a capture that fails leaves behind."""

    @needs.draws_in_captures
    def test_after_a_failed_capture_all_is_well(self):
        class Mine(Exception):
            pass
        calls = Unseen()

        def fn(x):
            calls.append(1)
            y = dropout(x, 0.5)
            if torch.cuda.is_current_stream_capturing() and len(calls) < 4:
                raise Mine("in the midst of it")
            return y
        made = reprise.graphed(fn)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(5):
                made(ones(16))
        gc.collect()
        self.eager_and_graphs_work()

    @needs.draws_in_captures
    def test_after_a_synchronisation_in_a_capture_all_is_well(self):
        made = reprise.graphed(lambda x: dropout(x, 0.5) * x.sum().item())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(4):
                made(ones(16))
        self.assertTrue(any("without a graph" in str(w.message) for w in caught))
        gc.collect()
        self.eager_and_graphs_work()

    @needs.draws_in_captures
    def test_after_a_failed_capture_of_pytorchs_all_is_well(self):
        x = ones(16)
        dropout(x, 0.5)
        graph = torch.cuda.CUDAGraph()
        with self.assertRaises(RuntimeError):
            with reprise.graph(graph):
                dropout(x, 0.5).sum().item()
        del graph
        gc.collect()
        self.eager_and_graphs_work()

    def eager_and_graphs_work(self):
        torch.manual_seed(6)
        want = [dropout(ones(16), 0.5) for _ in range(3)]
        made = reprise.graphed(lambda x: dropout(x, 0.5), strict=True)
        torch.manual_seed(6)
        for one in want:
            self.assertTrue(torch.equal(made(ones(16)), one))
        graph, x = torch.cuda.CUDAGraph(), ones(16)
        with reprise.graph(graph):
            y = dropout(x, 0.5)
        torch.manual_seed(6)
        graph.replay()
        self.assertTrue(torch.equal(y, want[0]))


class Threads(unittest.TestCase):
    def test_others_draw_while_captures_go_on(self):
        """Until 2.11 PyTorch's generators are in a capture as a whole, which these captures do without."""
        errors, drawn, is_over = [], [0], threading.Event()

        def draw():
            with torch.cuda.stream(torch.cuda.Stream()):
                while not is_over.is_set():
                    try:
                        torch.randn(64, device="cuda")
                        drawn[0] += 1
                    except RuntimeError as error:
                        errors.append(str(error))
                    time.sleep(0.0005)

        thread = threading.Thread(target=draw)
        thread.start()
        try:
            for _ in range(5):
                nets = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU()).cuda() for _ in range(3)]
                inference, training = map(reprise.graphed, nets[:2])
                x = torch.ones(2, 16, device="cuda")
                callables = reprise.make_graphed_callables(nets[2], (x,))
                for _ in range(4):
                    with torch.no_grad():
                        self.assertTrue(torch.equal(inference(x), nets[0](x)))
                    training(x).sum().backward()
                    callables(x).sum().backward()
                self.assertEqual([len(inference.shapes()), len(training.shapes())], [1, 2])
        finally:
            is_over.set()
            thread.join()
        self.assertGreater(drawn[0], 0)
        self.assertEqual(errors, [])

    @needs.draws_in_captures
    def test_callables_that_draw_are_captured_beside_other_threads(self):
        """Nobody knows then whose numbers an eager run drew."""
        is_over = threading.Event()
        thread = threading.Thread(target=is_over.wait)
        thread.start()
        try:
            net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.5)).cuda()
            made, twin = reprise.graphed(net), net
            for call in range(5):
                x, losses = torch.ones(4, 16, device="cuda"), []
                for one in (made, twin):
                    torch.manual_seed(call)
                    net.zero_grad()
                    loss = one(x).square().sum()
                    loss.backward()
                    losses.append((loss.item(), net[0].weight.grad.sum().item()))
                self.assertEqual(*losses)
            self.assertEqual(len(made.shapes()), 2, made.failures())
        finally:
            is_over.set()
            thread.join()


if __name__ == "__main__":
    unittest.main(verbosity=2)
