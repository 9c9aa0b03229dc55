# SPDX-License-Identifier: MIT
"""policy="auto" on a GPU, under install() and without it: usage: gpu_policy.py [--install] ...

What is chosen depends on what calls take. Where a test asks for a choice, eager calls are held up on
the host, which replays are not, or the graph copies half a gigabyte that eager calls do not touch: so
far apart that other work on the machine does not turn the order round.
"""

import itertools
import sys
import time
import unittest
import warnings
from unittest import mock

import torch

import needs
import reprise
from reprise._reads.reads import Reads
from training_steps import mlp, whole_step
from unseen import Unseen

if "--install" in sys.argv:
    sys.argv.remove("--install")
    reprise.install()


def held_up(seconds=0.01):
    """What a callable does whose eager calls wait on the host."""
    time.sleep(seconds)


def by_turns(step):
    """The step, of batches of three sizes in turn."""
    sizes = itertools.cycle((32, 16, 24))

    def of_a_part(x, y):
        n = next(sizes)
        return step(x[:n], y[:n])
    return of_a_part


class HeldUp(torch.nn.Module):
    """A module whose eager calls wait on the host. `runs` has them, and those of captures."""

    def __init__(self, net, seconds=0.004):
        super().__init__()
        self.net = net
        self.seconds = seconds
        self.runs = Unseen()

    def forward(self, x):
        self.runs.append(x.shape)
        held_up(self.seconds)
        return self.net(x)


def choice_of(made):
    choice, = made.choices()
    return choice


class Choices(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        patcher = mock.patch.object(Reads, "_observes", return_value=False)  # its modules wait
        self.addCleanup(patcher.stop)
        patcher.start()

    def run_until_settled(self, made, call, want, calls=3000):
        """Calls until the choice stands; every result is compared."""
        for i in range(calls):
            got, expected = call(i)
            if i % 100 == 99:  # in between, calls follow each other
                self.assertTrue(torch.equal(got, expected()))
                if choice_of(made)["settled"]:
                    break
        self.assertEqual(choice_of(made)["choice"], want, reprise.report())

    def test_a_launch_bound_module_goes_by_its_graph(self):
        net = mlp().eval()
        made = reprise.graphed(HeldUp(net).eval(), policy="auto", strict=True)
        inputs = [torch.randn(8, 256, device="cuda") for _ in range(8)]

        def call(i):
            x = inputs[i % 8]
            return made(x), lambda: net(x)
        with torch.no_grad():
            self.run_until_settled(made, call, "graph")
        fact = choice_of(made)
        self.assertGreater(fact["eager_us"], fact["graph_us"])
        self.assertLess(fact["measured_calls"], fact["judged_calls"])
        self.assertIn("measured to be the fastest", reprise.report())

    def test_copies_of_large_arguments_are_left_eager(self):
        def fn(x, y):
            return x[:64] + y[:64]
        made = reprise.graphed(fn, policy="auto", copy_args=True, strict=True)
        pairs = [(torch.randn(1 << 26, device="cuda"), torch.randn(1 << 26, device="cuda"))
                 for _ in range(2)]

        def call(i):
            x, y = pairs[i % 2]
            return made(x, y), lambda: fn(x, y)
        self.run_until_settled(made, call, "eager")
        self.assertGreater(choice_of(made)["graph_us"], choice_of(made)["eager_us"])

    def test_keywords_and_trees_of_arguments(self):
        net = mlp().eval()

        def fn(pair, *, scale):
            held_up()
            return {"out": net(pair[0] + pair[1]) * scale}
        made = reprise.graphed(fn, policy="auto", strict=True)
        a, b = torch.randn(8, 256, device="cuda"), torch.randn(8, 256, device="cuda")
        with torch.no_grad():
            self.run_until_settled(
                made, lambda i: (made((a, b), scale=3)["out"],
                                 lambda: net(a + b) * 3), "graph")

    def test_what_cannot_be_captured_stays_eager(self):
        made = reprise.graphed(lambda x: x * x.sum().item(), policy="auto")
        x = torch.ones(5, device="cuda")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(200):
                self.assertEqual(made(x).sum().item(), 25)
        self.assertEqual(len([w for w in said if "without a graph" in str(w.message)]), 1)
        self.assertEqual(choice_of(made)["reason"], "the callable could not be captured")

    def test_shapes_are_chosen_for_each_by_itself(self):
        net = mlp().eval()
        made = reprise.graphed(HeldUp(net).eval(), policy="auto", strict=True)
        with torch.no_grad():
            for n in (1, 2, 3):
                x = torch.randn(n, 256, device="cuda")
                for _ in range(200):
                    out = made(x)
                self.assertTrue(torch.equal(out, net(x)))
        self.assertEqual([c["choice"] for c in made.choices()], ["graph"] * 3)

    def test_dear_calls_are_captured_early(self):
        """A call that nobody judges, a block, a round, and what comes in late; a capture runs the
        module three times."""
        net = HeldUp(mlp().eval(), seconds=0.03).eval()
        made = reprise.graphed(net, policy="auto", strict=True)
        x = torch.randn(8, 256, device="cuda")
        with torch.no_grad():
            for _ in range(100):
                made(x)
        self.assertEqual(choice_of(made)["choice"], "graph")
        self.assertLess(len(net.runs), 1 + 2 + 3 + 2 + 8, reprise.report())

    def test_modes_and_moved_parameters_are_noticed(self):
        net = mlp().eval()
        made = reprise.graphed(net, policy="auto", strict=True)
        x = torch.randn(8, 256, device="cuda")
        with torch.no_grad():
            for _ in range(500):
                made(x)
            net[0].weight.data = torch.randn(256, 256, device="cuda")
            for _ in range(500):
                self.assertTrue(torch.equal(made(x), net(x)))
            net.train()
            for _ in range(20):
                self.assertTrue(torch.equal(made(x), net(x)))

    def test_random_numbers_are_those_of_eager_runs(self):
        net = torch.nn.Sequential(mlp(), torch.nn.Dropout(0.3)).train()
        x = torch.randn(32, 256, device="cuda")
        with torch.no_grad():
            made = reprise.graphed(HeldUp(net).train(), policy="auto", strict=True)
            torch.manual_seed(5)
            want = [net(x) for _ in range(150)]
            torch.manual_seed(5)
            got = [made(x) for _ in range(150)]
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(got, want)))
        self.assertIsNotNone(choice_of(made).get("bound_args"), "it was captured meanwhile")

    def test_never_is_the_callable_itself(self):
        made = reprise.graphed(lambda x: x + 1, policy="never")
        x = torch.ones(3, device="cuda")
        for _ in range(5):
            self.assertEqual(made(x).sum().item(), 6)
        self.assertEqual(made.shapes(), [])

    def test_captured_ahead(self):
        net = mlp().eval()
        x = torch.randn(8, 256, device="cuda")
        with torch.no_grad():
            made = reprise.graphed(HeldUp(net).eval(), policy="auto", strict=True, shapes=[(x,)])
            for _ in range(200):
                out = made(x)
            self.assertTrue(torch.equal(out, net(x)))
        self.assertEqual(choice_of(made)["choice"], "graph")
        self.assertEqual(len(made.shapes()), 1)

    @needs.triton
    def test_compiled(self):
        net = mlp().eval()
        compiled = HeldUp(torch.compile(net, dynamic=False)).eval()
        made = reprise.graphed(compiled, policy="auto", strict=True)
        x = torch.randn(16, 256, device="cuda")
        with torch.no_grad():
            for _ in range(200):
                out = made(x)
            torch.testing.assert_close(out, net(x), rtol=1e-4, atol=1e-4)
        self.assertEqual(choice_of(made)["choice"], "graph")


class Training(unittest.TestCase):
    def build(self):
        torch.manual_seed(2)
        net = mlp(128, 3)
        return net, torch.optim.Adam(net.parameters(), lr=1e-3, capturable=True)

    def batches(self):
        torch.manual_seed(7)
        return [(torch.randn(32, 128, device="cuda"), torch.randn(32, 128, device="cuda"))
                for _ in range(8)]

    def losses(self, step, count=120):
        batches = self.batches()
        return torch.stack([step(*batches[i % 8]) for i in range(count)]).tolist()

    def test_whole_steps(self):
        want = self.losses(whole_step(*self.build(), held_up))
        made = reprise.graphed(whole_step(*self.build(), held_up), policy="auto", strict=True)
        self.assertEqual(self.losses(made), want)
        self.assertEqual(choice_of(made)["choice"], "graph")

    def test_whole_steps_of_several_shapes(self):
        """Gradients of one shape's graph lie where the next one is captured."""
        want = self.losses(by_turns(whole_step(*self.build(), held_up)), 240)
        made = reprise.graphed(whole_step(*self.build(), held_up), policy="auto", strict=True)
        self.assertEqual(self.losses(by_turns(made), 240), want)
        self.assertEqual([c["choice"] for c in made.choices()], ["graph"] * 3)

    def test_gradients_that_others_read(self):
        """Forward and backward as one callable, the optimizer outside: what it reads is of the call
        before it, whichever way that went, and whichever shape that had."""
        def make(net, optimizer, wrap):
            passes = wrap(whole_step(net, optimizer, held_up, moves=False))

            def step(x, y):
                loss = passes(x, y)
                optimizer.step()
                return loss
            return step
        for turns in (lambda step: step, by_turns):
            want = self.losses(turns(make(*self.build(), lambda fn: fn)), 240)
            kept = []

            def wrap(fn):
                kept.append(reprise.graphed(fn, policy="auto", strict=True))
                return kept[0]
            self.assertEqual(self.losses(turns(make(*self.build(), wrap)), 240), want)
            self.assertGreater(min(shape["calls"] for shape in kept[0].shapes()), 8)

    def test_both_passes_are_judged_as_one(self):
        """Their eager calls wait in the forward or in the backward pass."""
        class Late(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                held_up(0.03)
                return gradient.clone()

        class LateBack(torch.nn.Module):
            def __init__(self, net):
                super().__init__()
                self.net = net

            def forward(self, x):
                return Late.apply(self.net(x))
        for kind in (lambda net: HeldUp(net, 0.03), LateBack):
            net, optimizer = self.build()
            want = self.losses(whole_step(kind(net), optimizer), 60)
            net, optimizer = self.build()
            forward = reprise.graphed(kind(net), policy="auto", strict=True)
            self.assertEqual(self.losses(whole_step(forward, optimizer), 60), want)
            fact = choice_of(forward)
            self.assertEqual(fact["choice"], "graph")
            self.assertGreater(fact["eager_us"], 30000)
            self.assertLess(fact["graph_us"], fact["eager_us"])

    def test_calls_without_a_backward_pass_are_not_measured(self):
        net, _ = self.build()
        made = reprise.graphed(HeldUp(net, 0.0005), policy="auto", strict=True)
        x = torch.randn(32, 128, device="cuda")
        for _ in range(100):
            self.assertTrue(torch.equal(made(x), net(x)))
        self.assertFalse(choice_of(made)["settled"])


if __name__ == "__main__":
    unittest.main(verbosity=1)
