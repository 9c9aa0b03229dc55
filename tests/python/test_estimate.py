# SPDX-License-Identifier: MIT
"""Estimates without a GPU: what the table says, and what is refused."""

import contextlib
import types
import unittest
from unittest import mock

from fake_gradients import Gradient, NoEffects, fake_torch, param
from no_reads import give_none

import reprise
from reprise import _C
from reprise._alloc import execs
from reprise._call import body, estimate as _estimate, graphed, make
from reprise._effects.effects import Before
from reprise._grad.gradients import Gradients
from reprise._base.tree import flatten


def made(**changes):
    info = {"shapes": 2, "planned_bytes": 3 << 20, "mapped_bytes": 4 << 20,
            "lower_bound_bytes": 3 << 20, "exec_bytes": 100 << 20, "rehearsal_bytes": 2 << 20,
            "ms": 1.5}
    shapes = [{"name": f"net({n}x64)", "nodes": 7, "planned_bytes": n << 20,
               "lower_bound_bytes": n << 20, "exec_bytes": 50 << 20, "ms": 0.5} for n in (3, 1)]
    options = {"failures": [], "budget": 64 << 20, "exact": True, **changes}
    return reprise.Estimate(info, shapes, **options)


class Table(unittest.TestCase):
    def test_device_memory_is_pool_execs_within_budget_and_chunk(self):
        self.assertEqual(made().device_bytes, (4 + 64 + 2) << 20)
        self.assertEqual(made(budget=1).device_bytes, (4 + 50 + 2) << 20)  # one is made always
        self.assertEqual(made(budget=execs.ONE_EACH).device_bytes, (4 + 100 + 2) << 20)

    def test_prints_a_row_for_each_graph(self):
        text = str(made(failures=[("net(9x64)", "Error: it waits\nfor the device")]))
        lines = text.splitlines()
        self.assertEqual(lines[0].split(), ["graph", "nodes", "planned", "least", "exec", "ms"])
        self.assertEqual(lines[1].split(), ["net(3x64)", "7", "3.0", "3.0", "50.0", "0.5"])
        self.assertEqual(len({len(line) for line in lines[:3]}), 1)
        self.assertEqual(lines[3], "net(9x64): no graph: Error: it waits")
        self.assertIn("3.0 MiB planned, 4.0 MiB taken", lines[4])
        self.assertIn("70.0 MiB with 2.0 MiB for rehearsals", lines[5])

    def test_says_when_pytorch_places(self):
        self.assertIn("or so: PyTorch places it", str(made(exact=False)))
        self.assertIn("one each", str(made(budget=execs.ONE_EACH)))

    def test_is_short_where_it_is_not_printed(self):
        self.assertEqual(repr(made()), "<reprise.Estimate: 3.0 MiB planned for 2 graphs, 70.0 MiB "
                                       "of device memory>")

    def test_an_estimate_of_nothing(self):
        into = _C.Estimate()
        self.assertEqual(into.shapes(), [])
        empty = reprise.Estimate(into.info(), into.shapes(), [], 64 << 20, True)
        self.assertEqual(empty.device_bytes, 0)
        self.assertIn("0.0 MiB planned", str(empty))


class Refused(unittest.TestCase):
    def test_budgets_that_cannot_be(self):
        self.assertEqual(execs.budget_bytes(1 << 20), 1 << 20)
        self.assertEqual(execs.budget_bytes("one each"), 2**64 - 1)
        for budget in (0, -1, 2.5, "all", True, None, 2**64 - 1):
            with self.assertRaisesRegex(ValueError, "one each"):
                execs.budget_bytes(budget)

    def test_devices_that_cannot_be(self):
        with self.assertRaisesRegex(reprise.Error, "no device 1000"):
            _C.exec_budget(1000, 1)
        _C.exec_budget(0, 1 << 20)  # before the device is opened
        _C.exec_budget(0, 0)

    def test_only_pools_are_added_to(self):
        with self.assertRaises(TypeError):
            _C.Estimate().add(None, print, [], [], "x")
        with self.assertRaises(TypeError):
            _C.Estimate(1)

    def test_heap_options_are_complete(self):
        with self.assertRaisesRegex(ValueError, "16 divisions"):
            _C.heap_configure(0.0, 0, 0, (1, 2))


class Rehearsed(unittest.TestCase):
    def test_gradients_are_brought_home_as_in_a_capture(self):
        class Work:
            def __init__(self, torch, device, body, *args, **options):
                self.body = body

            def estimate(self, into, pool, name):
                into.append(self.body(()))
        there, none = param(), param()
        no = lambda: False  # noqa: E731
        torch = fake_torch(Tensor=bytes, is_grad_enabled=no, is_inference_mode_enabled=no)
        torch.cuda.device = contextlib.nullcontext
        fn = graphed.Graphed.__new__(graphed.Graphed)
        give_none(fn)
        fn._torch, fn._name, fn._fn, fn._generators, fn._draws = torch, "step", lambda: "ran", (), True
        fn._device = fn._is_split = lambda tensors: None
        fn._grad = "whole"
        fn._own_pool = lambda device, is_split: types.SimpleNamespace(native=None)
        brought, into = [], []
        with mock.patch.object(graphed, "Work", Work), \
                mock.patch.object(body, "homes", types.SimpleNamespace(
                    of=lambda p: Gradient() if p is there else None,
                    bring=lambda torch, params: brought.append(params) or {})):
            for params in ([none], [none, there]):
                fn._rehearse(Before(Gradients(params), NoEffects()), None, into, [], [], flatten(())[1], None,
                             [])
        self.assertEqual((into, brought), (["ran", "ran"], [[none, there]]))


class Order(unittest.TestCase):
    def test_the_largest_comes_first(self):
        class Tensor:
            def __init__(self, n):
                self.numel = lambda: n
        a, b, c = Tensor(3), Tensor(9), Tensor(5)
        torch = types.SimpleNamespace(Tensor=Tensor)
        self.assertEqual(make.by_size(torch, [(a,), [b], (c, a, 7)]), [(b,), (c, a, 7), (a,)])


class Names(unittest.TestCase):
    def test_all_of_the_module_is_there(self):
        for name in reprise.__all__:
            self.assertTrue(hasattr(reprise, name), name)
        self.assertTrue(callable(_estimate.estimate))


if __name__ == "__main__":
    unittest.main()
