# SPDX-License-Identifier: MIT
"""How the fast path makes results: what of a storage a tensor fills."""

import functools
import types
import unittest

from reprise._shapes.shape import Given, Shape, _filled, _made
from reprise._base.tree import flatten

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

    def test_all_others_take_the_slow_path(self):
        self.assertIsNone(_made(None, 64))
        self.assertIsNone(_made(((3, 5), (1, 3), HALF), 64), "resize_ would change its strides")
        self.assertIsNone(_made(((3,), (2,), HALF), 64))
        self.assertIsNone(_made(((3,), (1,), FLOAT), 63), "no whole elements")
        self.assertIsNone(_made(((0, 5), (5, 1), HALF), 64))


class Short(unittest.TestCase):
    """What of a result the fast path makes: tensors in storages of their own, in their order."""

    def short(self, result, *places, tensor_ways=("cache",)):
        """What is built of a result whose leaves lie at these places."""
        shape = Shape.__new__(Shape)
        leaves, shape.spec = flatten(result)
        shape.drawn, shape.extents, shape.torch = None, [], types.SimpleNamespace(uint8="uint8")
        shape.has_given = any(isinstance(leaf, Given) for leaf in leaves)
        like = ((), (), FLOAT, 0)
        shape.results = [("value", leaf) if place is None else (*place, like)
                         for leaf, place in zip(leaves, places)]
        shape.outputs = [4 for place in places if place and place[0] == "output"]
        shape.alone = shape._alone_in_outputs()
        shape.hands_on = any(result[0] == "argument" for result in shape.results)
        shape.extents = [types.SimpleNamespace(members=((0, 0),))] if shape.hands_on else []
        found = shape.short([], [1, "cache"] if shape.has_given else (), tensor_ways if shape.hands_on else ())
        if found is None:
            return "refused"
        made, build = found
        tensors = ["a", "b"][:len(made)]
        return build(tensors, ("x", "first"), {"cache": "second"}) if build else tensors[0]

    def test_results(self):
        first, second = ("output", 0), ("output", 1)
        self.assertEqual(self.short(7, first), "a")
        self.assertEqual(self.short((7, [8]), first, second), ("a", ["b"]))
        self.assertEqual(self.short({"loss": 7, "rate": 0.1, "none": None, "more": 8},
                                    first, None, second),
                         {"loss": "a", "rate": 0.1, "none": None, "more": "b"})
        self.assertEqual(self.short(3, None), 3)
        self.assertIsNone(self.short(None))
        self.assertEqual(self.short(()), ())

    def test_arguments_among_the_results(self):
        """They are those of the call."""
        self.assertEqual(self.short({"out": 7, "cache": Given(1), "more": 8, "rate": 0.1, "first": Given(0)},
                                    ("output", 0), None, ("output", 1), None, None),
                         {"out": "a", "cache": "second", "more": "b", "rate": 0.1, "first": "first"})

    def test_results_in_another_order(self):
        self.assertEqual(self.short((7, 8), ("output", 1), ("output", 0)), ("b", "a"))

    def test_other_results(self):
        for places in ((("input", 0), ("output", 0)), (("copy", 0), ("output", 0))):
            self.assertEqual(self.short((7, 8), *places), "refused")

    def test_tensors_of_the_call_among_the_results(self):
        places = (("argument", 0), ("output", 0))
        self.assertEqual(self.short((7, 8), *places), ("second", "a"))
        self.assertEqual(self.short((7, 8), *places, tensor_ways=()), "refused", "an object brings it")


class Stale(unittest.TestCase):
    def test_a_gradient_that_it_leaves_was_pointed_elsewhere(self):
        shape, places = Shape.__new__(Shape), {"a": 1, "b": 2}
        shape.graph, shape.used = types.SimpleNamespace(is_stale=lambda: False), ()
        shape.left = tuple((types.SimpleNamespace(data_ptr=functools.partial(places.get, name)), at)
                           for name, at in places.items())
        self.assertFalse(shape.is_stale())
        places["b"] = 3
        self.assertTrue(shape.is_stale())

    def test_where_gradients_that_it_adds_to_lie_elsewhere(self):
        looks = []

        class Param:
            grad = property(lambda self: looks.append(self) or self.given)

        shape, param = Shape.__new__(Shape), Param()
        is_lost = False
        shape.graph = types.SimpleNamespace(is_stale=lambda: is_lost)
        shape.used, shape.left = ((param, 4096),), ()
        for at, stale in ((4096, False), (8192, True), (None, True)):
            param.given = at and types.SimpleNamespace(data_ptr=lambda at=at: at)
            self.assertIs(shape.is_stale(), stale)
        self.assertEqual(len(looks), 3, "one for each")
        is_lost = True
        self.assertTrue(shape.is_stale())


if __name__ == "__main__":
    unittest.main()
