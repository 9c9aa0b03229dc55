# SPDX-License-Identifier: MIT
"""How the short way makes results: what of a storage a tensor fills."""

import types
import unittest

from reprise._shape import Shape, _filled, _made

FLOAT = types.SimpleNamespace(itemsize=4)
HALF = types.SimpleNamespace(itemsize=2)


class Results(unittest.TestCase):
    def test_bytes_that_a_tensor_spans(self):
        self.assertEqual(_filled((), (), FLOAT), 4)
        self.assertEqual(_filled((3, 5), (5, 1), FLOAT), 60)
        self.assertEqual(_filled((3, 5), (1, 3), HALF), 30)
        self.assertEqual(_filled((2, 2), (10, 2), HALF), 26)
        self.assertEqual(_filled((0, 4), (4, 1), FLOAT), 0)

    def test_a_tensor_that_fills_its_storage_is_made_as_it_is(self):
        self.assertEqual(_made(((3, 5), (5, 1), FLOAT), 60), ((3, 5), (5, 1), FLOAT))
        self.assertEqual(_made(((5, 3), (1, 5), FLOAT), 60), ((5, 3), (1, 5), FLOAT))
        self.assertEqual(_made(((0, 4), (4, 1), FLOAT), 0), ((0, 4), (4, 1), FLOAT))

    def test_a_dense_one_in_a_larger_storage_is_cut(self):
        self.assertEqual(_made(((), (), FLOAT), 256), ((64,), (1,), FLOAT, ()))
        self.assertEqual(_made(((3, 5), (5, 1), HALF), 64), ((32,), (1,), HALF, (3, 5)))
        self.assertEqual(_made(((3, 1, 5), (5, 7, 1), HALF), 64), ((32,), (1,), HALF, (3, 1, 5)))

    def test_all_others_take_the_long_way(self):
        self.assertIsNone(_made(None, 64))
        self.assertIsNone(_made(((3, 5), (1, 3), HALF), 64), "resize_ would change its strides")
        self.assertIsNone(_made(((3,), (2,), HALF), 64))
        self.assertIsNone(_made(((3,), (1,), FLOAT), 63), "no whole elements")
        self.assertIsNone(_made(((0, 5), (5, 1), HALF), 64))


class Stale(unittest.TestCase):
    def test_where_gradients_that_it_adds_to_lie_elsewhere(self):
        looks = []

        class Param:
            grad = property(lambda self: looks.append(self) or self.given)

        shape, param = Shape.__new__(Shape), Param()
        is_lost = False
        shape.graph = types.SimpleNamespace(is_stale=lambda: is_lost)
        shape.used = ((param, 4096),)
        for at, stale in ((4096, False), (8192, True), (None, True)):
            param.given = at and types.SimpleNamespace(data_ptr=lambda at=at: at)
            self.assertIs(shape.is_stale(), stale)
        self.assertEqual(len(looks), 3, "one for each")
        is_lost = True
        self.assertTrue(shape.is_stale())


if __name__ == "__main__":
    unittest.main()
