# SPDX-License-Identifier: MIT
"""Shapes whose graphs use memory that was freed, without a GPU: dropped, captured anew, and after some
times no more."""

import contextlib
import threading
import types
import unittest
import warnings
from unittest import mock

from fake_fast_path import give_fast_path
from fake_gradients import ADDRESS, Gradient, fake_torch, names, param, without_effects
from no_reads import give_none
from reprise import _C
from reprise._grad.gradients import Shared
from reprise._call.graphed import MOST_STALE, Graphed, all_graphed
from reprise._shapes.assigned import Assigned
from reprise._shapes.shape import Shape


class Part:
    """A shape of one graph."""

    effects, cpu, seat, lines, has_given, given, assigned = None, None, None, (), False, (), Assigned(())

    def __init__(self, number, lost=512):
        self.number = number
        self.stale = False
        self.graph = types.SimpleNamespace(info=lambda: {"lost_bytes": lost}, names=names(),
                                           left_others=lambda: False, where_lost=lambda: "kernel k, byte 8")

    def replay(self, tensors):
        assert not self.stale
        return self.number

    def is_stale(self):
        return self.stale

    def parts(self):
        return (self,)

    @staticmethod
    def reads_other_values():
        return False

    @staticmethod
    def has_its_scalars():
        return True

    @staticmethod
    def drawn_again():
        return contextlib.nullcontext()


class Nothing:
    """What no callable holds: modules, optimizers."""


class Dropped(unittest.TestCase):
    def setUp(self):
        self.captured = []
        self.made = made = Graphed.__new__(Graphed)
        made._fn, made._name, made._strict, made._verify = lambda: "eager", "subject", False, None
        made._shapes, made._failures, made._stale = {}, {}, {}
        made._trained, made._drops = (), {}
        give_none(made)
        made._eager_runs = made._warmup = 0
        made._frozen = False
        give_fast_path(made)
        self.param = param(Gradient())
        made._torch = fake_torch(nn=types.SimpleNamespace(Module=Nothing),
                                 optim=types.SimpleNamespace(Optimizer=Nothing),
                                 is_autocast_enabled=lambda: True)
        made._watch = types.SimpleNamespace(modules=[], params=[self.param])
        made._lock = threading.RLock()
        made._take = self.capture
        without_effects(made)
        patcher = mock.patch.object(_C, "is_captured", lambda address: address != ADDRESS)
        self.addCleanup(patcher.stop)
        patcher.start()

    def capture(self, *args):
        self.captured.append(Part(len(self.captured)))
        return self.captured[-1]

    def call(self, key="a"):
        return self.made._by_graph(key, [], [], None, (), {})

    def test_parameters_of_modules_that_calls_look_at_are_not_looked_for(self):
        class Net(Nothing):
            def parameters(self):
                return [late]
        late, net = param(Gradient()), Net()
        self.made._fn, self.made._watch.modules = lambda: net, [net]
        self.assertEqual(self.made._gradients().params, [self.param])
        self.made._frozen = True  # no call looks: it may have more by now
        self.assertEqual(self.made._gradients().params, [self.param, late])

    def test_captured_anew(self):
        self.assertEqual([self.call(), self.call(), self.call("b")], [0, 0, 1])
        self.captured[0].stale = True
        self.assertEqual([self.call(), self.call(), self.call("b")], [2, 2, 1])
        self.assertEqual(self.made._fast_path.clears, 1)
        self.assertEqual(self.made._stale, {"a": 1})

    def test_no_more_after_some_times(self):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for n in range(MOST_STALE):
                self.assertEqual(self.call(), n)
                self.assertEqual(said, [])
                self.captured[n].stale = True
            self.assertEqual([self.call(), self.call()], ["eager", "eager"])
            self.assertEqual(self.call("b"), MOST_STALE)  # another shape is none of that
        self.assertEqual(len(said), 1)
        self.assertIn("'subject' runs without a graph", str(said[0].message))
        text, = self.made.failures()
        self.assertIn("512 bytes (kernel k, byte 8), was freed after each of 4 captures", text)

    def test_gradients_that_lie_elsewhere_are_named(self):
        def capture(*args):
            part = Part(0, lost=0)
            part.stale = True
            return part
        self.made._take = capture
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertEqual(self.call(), "eager")
        text, = self.made.failures()
        self.assertIn("gradients that it uses lay elsewhere after each of 4 captures", text)
        self.assertIn("set_to_none=False", text)

    def test_stale_as_soon_as_it_was_captured(self):
        capture = self.capture

        def once(*args):
            part = capture(*args)
            part.stale = len(self.captured) == 1
            return part
        self.made._take = once
        self.assertEqual([self.call(), self.call()], [1, 1])
        self.assertEqual((len(self.captured), self.made._stale), (2, {"a": 1}))

    def test_a_capture_that_fails_leaves_those_before_it(self):
        def capture(*args):
            self.param.grad = Gradient()  # the rehearsal's
            raise RuntimeError("it kept an address")
        self.made._take = capture
        self.made._fn = lambda: self.param.grad
        for self.param.grad in (None, Gradient()):
            self.made._strict = False
            earlier = self.param.grad
            self.assertIs(self.call(earlier is None), earlier)
            self.made._strict = True
            self.assertRaises(RuntimeError, self.call, earlier is None)
            self.assertIs(self.param.grad, earlier)

    def test_a_capture_that_fails_leaves_gradients_that_it_added_to(self):
        def capture(*args):
            raise RuntimeError("it kept an address")
        self.made._take = capture
        self.made._fn = lambda: self.param.grad
        kept = self.param.grad
        self.assertIs(self.call(), kept)

    def giving(self, param):
        """A callable whose graph leaves a gradient of the parameter."""
        other = Graphed.__new__(Graphed)
        shape = Shape.__new__(Shape)
        shape.given = ((param, None),)
        other._shapes = {"a": shape, "b": Part(0)}
        give_fast_path(other)
        other._name, other._lock = "other", threading.RLock()
        all_graphed.add(other)
        return other

    def test_gradients_that_graphs_share_move_and_it_is_captured_again(self):
        """Those of other callables that leave them where they were are dropped."""
        self.param.grad = lent = Gradient()
        lent.is_lent_by_reprise = True
        lent.clone = Gradient
        other, stranger = self.giving(self.param), self.giving(param())
        homes = []

        def capture(*args):
            homes.append(self.param.grad)
            if self.param.grad is lent:
                raise Shared("it adds to gradients")
            return self.capture()
        self.made._take = capture
        self.assertEqual([self.call(), self.call()], [0, 0])
        self.assertIs(homes[0], lent)
        self.assertIsNot(homes[1], lent)
        self.assertEqual((len(homes), self.made._stale, self.made._failures), (2, {}, {}))
        self.assertEqual([list(g._shapes) for g in (other, stranger)], [["b"], ["a", "b"]])
        self.assertEqual([g._fast_path.clears for g in (other, stranger)], [1, 0])

    def test_gradients_that_others_share_stay(self):
        def capture(*args):
            raise Shared("it adds to gradients")
        self.made._take = capture
        kept = self.param.grad
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertEqual([self.call(), self.call()], ["eager"] * 2)
        self.assertIs(self.param.grad, kept)
        self.assertIn("it adds to gradients", self.made.failures()[0])

    def test_a_thread_drops_what_another_did_not(self):
        self.call()
        old = self.captured[0]
        old.stale = True

        def look():  # while this one has seen that it is stale, another captures anew
            old.is_stale = lambda: True
            self.made._shapes["a"] = Part(7)
            return True
        old.is_stale = look
        self.assertEqual(self.call(), 7)
        self.assertEqual((len(self.captured), self.made._stale), (1, {}))


if __name__ == "__main__":
    unittest.main()
