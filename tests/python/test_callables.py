# SPDX-License-Identifier: MIT
"""What a call of make_graphed_callables does with its arguments, with a PyTorch that is played here."""

import gc
import types
import unittest
import warnings
from unittest import mock

from reprise._alloc import pool
from reprise._call import callables


class Tensor:
    device = "cuda:0"

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


class TestArguments(unittest.TestCase):
    def made(self, *samples, may_run_eagerly=True):
        """A graphed function, with what its graphs and it itself were called with."""
        self.torch, self.replayed, self.run = Fake(), [], []
        return callables._wrap(self.torch, lambda *args: self.run.append(args), samples,
                               self.replayed.append, may_run_eagerly)

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
        made = self.made(Tensor((2,), (1,)), may_run_eagerly=False)
        with self.assertRaisesRegex(ValueError, "requires_grad"):
            made(Tensor((2,), (1,), requires_grad=True))

    def test_what_does_not_fit(self):
        made = self.made(Tensor((2,), (1,)))
        for given in ((Tensor((3,), (1,)),), (), (Tensor((2,), (1,)), Tensor((2,), (1,))), (1.0,),
                      (Tensor((2,), (1,)), 1.0)):
            with self.subTest(given=given), self.assertRaisesRegex(ValueError, "other shapes"):
                made(*given)
        self.assertEqual(self.replayed, [])


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
