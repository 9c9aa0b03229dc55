# SPDX-License-Identifier: MIT
"""What a call of make_graphed_callables does with its arguments, with a PyTorch that is played here."""

import gc
import types
import unittest
import warnings
from unittest import mock

from reprise._alloc import pool
from reprise._grad import order
from reprise._layers import calls, chunks, form, options


class Tensor:
    device, is_cuda = "cuda:0", True

    def __init__(self, shape, stride, dtype="float32", requires_grad=False):
        self.shape, self._stride, self.dtype, self.requires_grad = shape, stride, dtype, requires_grad
        self.copied = None

    def stride(self):
        return self._stride

    def copy_(self, other):
        self.copied = other
        return self


class Fake:
    """What is asked of torch."""

    def __init__(self):
        self.grads = True
        self.Tensor = Tensor
        self.nn = types.SimpleNamespace(Module=type("Module", (), {}))

    def is_grad_enabled(self):
        return self.grads

    @staticmethod
    def empty_strided(shape, stride, dtype, device):
        return Tensor(shape, stride, dtype)


class Split:
    """Notes what is replayed."""

    def __init__(self):
        self.replayed = []

    def replay(self, tensors):
        self.replayed.append(tensors)


class TestArguments(unittest.TestCase):
    def made(self, *samples, ordered=False, fn=None, **named):
        """A graphed function, with what its graphs and it itself were called with."""
        self.torch, self.split, self.run = Fake(), Split(), []
        self.replayed = self.split.replayed
        fn = fn or (lambda *args: self.run.append(args))
        shape = form.Form(self.torch, fn, "fn", samples, named)
        shape.forget()
        common = (self.torch, fn, "fn", None, None, ())
        if ordered:
            schedule = order.Schedule(order.parse([1, -1], 1), ["fn"])
            made = calls.Ordered(schedule, 0, [(shape, self.split)], None, *common)
        else:
            made = calls.Single(shape, self.split, *common)
        return calls.function_of(made)

    def test_arguments_like_the_samples_are_passed_on(self):
        made, x = self.made(Tensor((2, 3), (3, 1))), Tensor((2, 3), (3, 1))
        made(x)
        self.assertIs(self.replayed[0][0], x)

    def test_other_types_and_strides_are_copied(self):
        made = self.made(Tensor((2, 3), (3, 1)), Tensor((2, 3), (3, 1)))
        given = Tensor((2, 3), (3, 1), "float16"), Tensor((2, 3), (1, 2))
        made(*given)
        for passed, x in zip(self.replayed[0], given):
            self.assertEqual((passed._stride, passed.dtype, passed.copied), ((3, 1), "float32", x))

    def test_gradients_that_the_graphs_do_not_have(self):
        made, x = self.made(Tensor((2,), (1,))), Tensor((2,), (1,), requires_grad=True)
        with self.assertWarnsRegex(UserWarning, "its sample did not"):
            made(x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it was told
            made(x)
        self.assertEqual((self.run, self.replayed), ([(x,), (x,)], []))
        self.torch.grads = False
        made(x)
        self.assertEqual(self.replayed, [[x]])

    def test_gradients_that_nobody_wants(self):
        made, x = self.made(Tensor((2,), (1,), requires_grad=True)), Tensor((2,), (1,))
        made(x)
        self.assertEqual((self.run, self.replayed), ([], [[x]]))

    def test_passes_in_an_order_are_never_eager(self):
        made = self.made(Tensor((2,), (1,)), ordered=True)
        with self.assertRaisesRegex(ValueError, "requires_grad"):
            made(Tensor((2,), (1,), requires_grad=True))
        made(Tensor((2,), (1,)))  # it is due still
        self.assertEqual((self.run, len(self.replayed)), ([], 1))

    def test_what_does_not_fit(self):
        made, x = self.made(Tensor((2,), (1,))), Tensor((2,), (1,))
        for given, said in (((Tensor((3,), (1,)),), "other shapes"), ((), "is called without it"),
                            ((x, x), "which its sample did not have"), ((1.0,), "other shapes"),
                            (([x],), "other containers")):
            with self.subTest(given=given), self.assertRaisesRegex(ValueError, said):
                made(*given)
        self.assertEqual(self.replayed, [])

    def test_calls_by_name(self):
        def fn(a, b, c=None, *, d=2):
            raise AssertionError("it runs eagerly")
        x, y = Tensor((2,), (1,)), Tensor((3,), (1,))
        made = self.made(x, b=y, d=3, fn=fn)
        for args, named in (((x, y), {"d": 3}), ((x,), {"d": 3, "b": y}), ((), {"b": y, "d": 3, "a": x}),
                            ((x, y, None), {"d": 3})):
            made(*args, **named)
            self.assertEqual(self.replayed.pop(), [x, y])
        for args, named, said in (((x, y), {}, "captured with d = 3, and is called with 2"),
                                  ((x, y, 0), {"d": 3}, "called with c = 0"),
                                  ((x, y), {"d": 3.0}, "called with 3.0"),
                                  ((x, x), {"d": 3}, "other shapes")):
            with self.subTest(named=named), self.assertRaisesRegex(ValueError, said):
                made(*args, **named)
        with self.assertRaisesRegex(TypeError, "multiple values"):
            made(x, y, a=x, d=3)


class TestPlans(unittest.TestCase):
    def test_chunks_go_back_the_other_way_round(self):
        plan = chunks.Plan([1, 2, -2, -1], 4, 4, 2)
        self.assertEqual([(p.callable + 1) * (-1 if p.backward else 1) for p in plan.passes],
                         [1, 2, 3, 4, -4, -3, -2, -1])

    def test_samples_are_numbered_by_chunk_microbatch_and_layer(self):
        plan = chunks.Plan([1, 2, 1, 2, -2, -1, -2, -1], 3, 6, [2, 1])
        self.assertEqual(plan.samples, {(0, 0): 0, (1, 0): 1, (0, 1): 2, (1, 1): 3, (2, 0): 4, (2, 1): 5})
        self.assertEqual(chunks.Plan([1, 1.0, -1, -1.0], 1, 1).microbatches, [2])

    def test_chunks_of_transformer_engine(self):
        plan = chunks.Plan([1, 2, -2, -1], 6, 6, None, True)
        self.assertEqual([list(c) for c in plan.chunks], [[0, 1, 2], [3, 4, 5]])


class TestOptions(unittest.TestCase):
    def test_names_of_then_are_those_of_now(self):
        self.assertEqual(options.renamed({"fp8_group": 1, "_num_layers_per_chunk": 2, "fp8_recipe": None}),
                         {"amax_reduction_group": 1, "num_layers_per_chunk": 2})
        with self.assertRaisesRegex(TypeError, "'fp8'"):
            options.renamed({"fp8": True})


class TestHandles(unittest.TestCase):
    class Pool:
        def __init__(self, kind, name, device):
            self.given = kind, name, device

    def test_a_handle_is_one_pool_as_long_as_anybody_has_it(self):
        with mock.patch.object(pool, "Pool", self.Pool):
            first = pool.pool_of((0, 71), 0, "callables")
            self.assertIs(pool.pool_of([0, 71], 0, "callables"), first)
            self.assertIsNot(pool.pool_of((0, 71), 1, "callables"), first)
            self.assertIsNot(pool.pool_of((0, 72), 0, "callables"), first)
            self.assertEqual(first.given, ("sequence", "callables", 0))
            del first
            gc.collect()
            self.assertNotIn(((0, 71), 0), pool._by_handle)


if __name__ == "__main__":
    unittest.main()
