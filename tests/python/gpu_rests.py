# SPDX-License-Identifier: MIT
"""Calls that cannot be captured cost no more than eager ones: how often they are looked at, run under watch
and tried, by counts.

usage: gpu_rests.py [--install] ..."""

import collections
import contextlib
import sys
import unittest
import warnings
from unittest import mock

import torch

import reprise
from reprise._call import graphed as graphed_module
from reprise._call.graphed import Graphed
from reprise._call.rests import FIRST_REST, LOOKS
from reprise._effects import refusals
from reprise._reads.reads import Reads
from reprise._reads.values import Values

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

COUNTED = ((Graphed, "_key"), (Graphed, "_capture_here"), (Reads, "eager_call"), (Values, "look_again"))
FEW_FRESH = 24  # in the place of MOST_FRESH
SETTLED = 20  # calls behind which all is known


class Net(torch.nn.Module):
    def __init__(self, found=lambda net, y: None):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.found = found
        self.careful = True

    def forward(self, x):
        y = self.inner(x)
        self.found(self, y)
        return y * 2


def asks(_, y):
    y.sum().item()


def keeps(net, y):
    """What it reads is another object at each call, as the anchors of a detection net are."""
    net.anchors = [torch.zeros(3, device=y.device)]
    y.sum().item()


def draws(_, y):
    torch.rand([]).item()


def asks_where_careful(net, y):
    if net.careful:
        y.sum().item()


def asks_of_pairs(_, y):
    if y.shape[0] == 2:
        y.sum().item()


class Detector(Net):
    def forward(self, images, targets=None):
        return [{"scores": super(Detector, self).forward(image)} for image in images]


class Rests(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.counts = collections.Counter()
        self.said = []
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        for owner, name in COUNTED:
            stack.enter_context(mock.patch.object(owner, name, self.counting(name, getattr(owner, name))))
        stack.enter_context(torch.no_grad())
        stack.enter_context(mock.patch.object(graphed_module, "MOST_FRESH", FEW_FRESH))
        self.said = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")

    def counting(self, name, function):
        def call(*args, **kwargs):
            self.counts[name] += 1
            return function(*args, **kwargs)
        return call

    def calls(self, net, graphed, inputs, count):
        """Makes calls, and returns what they did besides."""
        self.counts.clear()
        for number in range(count):
            args = inputs(number)
            torch.testing.assert_close(graphed(*args), net(*args))
        return dict(self.counts)

    def of(self, made, **options):
        net = made.cuda().eval()
        return net, reprise.graphed(net, **options)

    @staticmethod
    def in_turns(make=lambda n: (torch.ones(n, 4, device="cuda"),)):
        both = (make(2), make(3))
        return lambda number: both[number % 2]

    def rest(self, made, inputs, **options):
        """Calls are looked at no more, once all is known."""
        net, graphed = self.of(made, **options)
        self.calls(net, graphed, inputs, SETTLED)
        self.assertEqual(self.calls(net, graphed, inputs, 2 * FIRST_REST - SETTLED), {})
        looks = self.calls(net, graphed, inputs, 8 * FIRST_REST)
        self.assertLessEqual(looks.pop("_key", 0), 6)
        self.assertLessEqual(looks.pop("look_again", 0), 6)
        self.assertEqual(looks, {})
        self.assertTrue(graphed.failures())
        return graphed

    def test_values_that_are_asked_for(self):
        self.rest(Net(asks), self.in_turns())

    def test_what_is_read_changes_at_each_call(self):
        self.rest(Net(keeps), self.in_turns())

    def test_random_numbers_of_the_cpu(self):
        self.rest(Net(draws), self.in_turns())

    def test_lists_of_images(self):
        self.rest(Detector(keeps), self.in_turns(
            lambda n: ([torch.ones(n, 4, device="cuda") for _ in range(n)],)))

    def test_arguments_that_no_graph_takes(self):
        net, graphed = self.of(Net())
        args = (Sub(torch.ones(2, 4, device="cuda")),)
        found = self.calls(net, graphed, lambda _: args, FIRST_REST)
        self.assertEqual(found, {"_key": LOOKS})

    def test_parts_of_modules(self):
        net, graphed = self.of(torch.nn.Sequential(Net(asks), Net(asks)), parts=True)
        inputs = self.in_turns()
        self.calls(net, graphed, inputs, 3 * SETTLED)
        found = self.calls(net, graphed, inputs, FIRST_REST // 2)
        self.assertNotIn("_capture_here", found)
        self.assertNotIn("eager_call", found)

    def test_auto(self):
        net, graphed = self.of(Net(keeps), policy="auto")
        inputs = self.in_turns()
        self.calls(net, graphed, inputs, 100)
        found = self.calls(net, graphed, inputs, 500)
        self.assertLessEqual(found.pop("_key", 0), 50)
        self.assertLessEqual(found.pop("look_again", 0), 50)
        self.assertEqual(found, {})

    # ---- New sizes at every call ----

    @staticmethod
    def new_sizes(number):
        return (torch.ones(number + 2, 4, device="cuda"),)

    def test_new_sizes_that_cannot_be_captured(self):
        net, graphed = self.of(Net(keeps))
        found = self.calls(net, graphed, self.new_sizes, 200)
        self.assertLessEqual(found["_capture_here"], 2 * refusals.MOST_FAILED)
        self.assertLessEqual(found["_key"], 2 + 2 * refusals.MOST_FAILED)
        self.assertEqual(len(self.said), 1, [str(w.message) for w in self.said])

    def test_new_sizes_of_lists_with_auto(self):
        net, graphed = self.of(Detector(), policy="auto")

        def lists(number):
            return ([torch.ones(number + 2, 4, device="cuda")],)

        found = self.calls(net, graphed, lists, 300)
        self.assertNotIn("_capture_here", found)
        self.assertLess(found["_key"], 90)

    def test_new_sizes_whose_graphs_nobody_calls(self):
        net, graphed = self.of(Net())
        found = self.calls(net, graphed, self.new_sizes, 3 * FEW_FRESH)
        self.assertLessEqual(found["_capture_here"], FEW_FRESH + 4)
        self.assertEqual(len(self.said), 1, [str(w.message) for w in self.said])
        self.assertIn("new shapes", str(self.said[0].message))
        captured = self.new_sizes(5)
        before = sum(fact["calls"] for fact in graphed.shapes())
        self.calls(net, graphed, lambda _: captured, 10)
        self.assertEqual(sum(fact["calls"] for fact in graphed.shapes()), before + 10)

    def test_sizes_that_come_again_are_captured(self):
        net, graphed = self.of(Net())
        for number in range(2 * FEW_FRESH):
            args = self.new_sizes(number)
            self.calls(net, graphed, lambda _: args, 3)
        self.assertEqual(len(graphed.shapes()), 2 * FEW_FRESH)
        self.assertEqual(self.said, [])

    # ---- Reasons that go away: of lists, whose calls the fast path does not take ----

    def test_another_shape_is_captured_at_once(self):
        net, graphed = self.of(Detector(asks_of_pairs))
        pair, three = ([torch.ones(2, 4, device="cuda")],), ([torch.ones(3, 4, device="cuda")],)
        self.calls(net, graphed, lambda _: pair, SETTLED)
        self.calls(net, graphed, lambda _: three, 3)
        self.assertEqual([fact["calls"] for fact in graphed.shapes()], [3])
        self.assertLessEqual(self.calls(net, graphed, lambda _: pair, FIRST_REST // 2).get("_key", 0), 1)

    def test_a_value_that_changes_is_seen(self):
        net, graphed = self.of(Detector(asks_where_careful))
        inputs = self.in_turns(lambda n: ([torch.ones(n, 4, device="cuda")],))
        self.calls(net, graphed, inputs, SETTLED)
        net.careful = False
        self.calls(net, graphed, inputs, 2 * FIRST_REST + 4)
        self.assertEqual(len(graphed.shapes()), 2)
        self.calls(net, graphed, inputs, 10)
        self.assertGreaterEqual(sum(fact["calls"] for fact in graphed.shapes()), 10)

    def test_values_in_turns_keep_their_graph(self):
        net, graphed = self.of(Detector(asks_where_careful))
        args = ([torch.ones(2, 4, device="cuda")],)
        net.careful = False
        self.calls(net, graphed, lambda _: args, 4)
        for number in range(4 * SETTLED):
            net.careful = number % 6 < 3
            self.calls(net, graphed, lambda _: args, 1)
        self.assertGreaterEqual(graphed.shapes()[0]["calls"], 2 * SETTLED)

    def test_a_module_that_is_replaced_is_seen_at_once(self):
        net, graphed = self.of(torch.nn.Sequential(Detector(keeps)))
        args = ([torch.ones(2, 4, device="cuda")],)
        self.calls(net, graphed, lambda _: args, SETTLED)
        net[0] = Detector().cuda().eval()
        self.calls(net, graphed, lambda _: args, 3)
        self.assertEqual(len(graphed.shapes()), 1)

    def test_modules_that_are_made_at_each_call(self):
        """They might be its own, but are not."""
        def make():
            torch.nn.Sequential(torch.nn.ReLU())

        net, graphed = self.of(Detector(keeps))
        args = ([torch.ones(2, 4, device="cuda")],)
        for _ in range(3 * SETTLED):
            make()
            self.calls(net, graphed, lambda _: args, 1)
        self.counts.clear()
        for _ in range(SETTLED):
            make()
            graphed(*args)
        self.assertLessEqual(self.counts["_key"], 2)

    def test_a_reset_forgets(self):
        net, graphed = self.of(Detector(asks_where_careful))
        args = ([torch.ones(2, 4, device="cuda")],)
        self.calls(net, graphed, lambda _: args, SETTLED)
        net.careful = False
        graphed.reset()
        self.calls(net, graphed, lambda _: args, LOOKS)
        self.assertEqual(len(graphed.shapes()), 1)


class Sub(torch.Tensor):
    """Of which no graph is made."""


if __name__ == "__main__":
    unittest.main()
