# SPDX-License-Identifier: MIT
"""What calls return is put together as trees are, and records as their classes make them."""

import collections
import dataclasses
import functools
import gc
import random
import sys
import types
import unittest
import weakref
from unittest import mock

from reprise import _C
from reprise._base import records, tree

MADE, VALUE, AGAIN, VIEW, GIVEN = range(5)
Pair = collections.namedtuple("Pair", "left right")


class Box:
    """An object with attributes."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


class Swapped(Pair):
    """A named tuple that is made of others than its parts."""

    __slots__ = ()

    def __new__(cls, left, right):
        return tuple.__new__(cls, (right, left))


class Bag(list):
    """A container that pytree knows."""


def builder(spec, leaves, within=None):
    return _C.Builder(spec, tuple(leaves), within, records.make, records.attributes)


def known(*kinds):
    """Has torch.utils._pytree know them."""
    nodes = {kind: types.SimpleNamespace(flatten_fn=take, unflatten_fn=make) for kind, take, make in kinds}
    return mock.patch.dict(sys.modules, {"torch.utils._pytree": types.SimpleNamespace(SUPPORTED_NODES=nodes)})


BAG = (Bag, lambda bag: (list(bag), "bag"), lambda parts, context: Bag(parts))


class Trees(unittest.TestCase):
    def tree(self, pick, depth, objects):
        """A random one, of numbers."""
        kind = pick.randrange(9) if depth else 8
        some = [self.tree(pick, depth - 1, objects) for _ in range(pick.randrange(4))] if kind < 6 else []
        if kind == 0:
            return tuple(some)
        if kind == 1:
            return some
        if kind == 2:
            return {f"key{i}": value for i, value in enumerate(some)}
        if kind == 3 and len(some) == 2:
            return Pair(*some)
        if kind == 4:
            return Bag(some)
        if kind == 5:
            number = len(objects)
            objects.append(number)
            return tree.Parts(Box, number, tuple(f"name{i}" for i in range(len(some))), tuple(some))
        if kind == 6:
            return None
        return pick.randrange(1000)

    def test_named_tuples_have_the_parts_that_they_had(self):
        given = [Swapped(1, 2), Swapped(3, Swapped(4, 5))]
        leaves, spec = tree.flatten(given)
        for made in (tree.build(spec, leaves), builder(spec, [(VALUE, 0, value) for value in leaves])([])):
            self.assertEqual(made, given)
            self.assertEqual([type(one) for one in made], [Swapped, Swapped])

    def test_attributes_of_named_tuples_are_found(self):
        class Open(Pair):
            """With room for attributes."""
        plain, marked = Open(1, 2), Open(1, 2)
        marked.note = "here"
        for wrap in (lambda x: x, lambda x: [0, x], lambda x: {"a": (None, x)}, lambda x: Swapped(x, 1)):
            self.assertIsNone(tree.attributed(wrap(plain)))
            self.assertIs(tree.attributed(wrap(marked)), Open)

    def test_as_python_builds_them(self):
        pick = random.Random(5)
        with known(BAG):
            for _ in range(300):
                leaves, spec = tree.flatten(self.numbered(self.tree(pick, 4, [])))
                made = [object() for _ in leaves]
                want = tree.build(spec, made)
                build = builder(spec, [(MADE, i, None) for i in range(len(leaves))])
                for _ in range(2):
                    self.same(build(made), want)

    def numbered(self, value):
        """Objects are numbered in the order in which they are met."""
        leaves, spec = tree.flatten(value)
        count = iter(range(1000))

        def again(spec):
            if spec[0] in (5, 6):
                return spec
            if spec[0] == 7:
                spec = (*spec[:2], next(count), *spec[3:])
            return (*spec[:-1], tuple(map(again, spec[-1])))
        return tree.unflatten(again(spec), leaves)

    def same(self, got, want):
        self.assertIs(type(got), type(want))
        if isinstance(want, (list, tuple)):
            self.assertEqual(len(got), len(want))
            for a, b in zip(got, want):
                self.same(a, b)
        elif isinstance(want, dict):
            self.assertEqual(list(got), list(want))
            for key in want:
                self.same(got[key], want[key])
        elif isinstance(want, Box):
            self.same(vars(got), vars(want))
        else:
            self.assertIs(got, want)

    def test_where_leaves_come_from(self):
        spec = (0, ((5,),) * 6)
        build = builder(spec, [(MADE, 1, None), (VALUE, 0, 7.5), (AGAIN, 0, None), (VIEW, 0, "like"),
                               (GIVEN, 0, 1), (GIVEN, 0, "cache")], lambda tensor, like: (tensor, like))
        self.assertEqual(build(["a", "b"], (1, "second"), {"cache": "third"}),
                         ("b", 7.5, "b", ("a", "like"), "second", "third"))
        with self.assertRaises(IndexError):
            build(["a", "b"], (1,), {"cache": 2})
        with self.assertRaises(KeyError):
            build(["a", "b"], (1, 2), {})
        with self.assertRaisesRegex(ValueError, "takes 2 tensors"):
            build(["a"])

    def test_an_object_that_leads_to_itself(self):
        spec = (7, Box, 0, ("me", "other"), ((7, Box, 0, None, ()), (7, Box, 1, ("back",), ((7, Box, 0, None, ()),))))
        made = builder(spec, ())([])
        self.assertIs(made.me, made)
        self.assertIs(made.other.back, made)
        self.assertIsNot(builder(spec, ())([]), made)

    def test_what_is_no_tree(self):
        leaf = (MADE, 0, None)
        for spec, leaves in (((9,), ()), ((), ()), ((0,), ()), ((0, [(5,)]), (leaf,)), ((5,), ()), ((6,), (leaf,)),
                             ((2, ("a",), ()), ()), ((7, Box, 0, None, ()), ()), ((7, Box, 1, (), ()), ()),
                             ((7, 8, 0, (), ()), ()), ((5,), ((9, 0, None),)), ((5,), ((AGAIN, 0, None),)),
                             ((5,), ((GIVEN, 0, None),)), ((5,), ((MADE, -1, None),))):
            with self.subTest(spec=spec), self.assertRaises(ValueError):
                builder(spec, leaves)
        deep = (5,)
        for _ in range(100):
            deep = (0, (deep,))
        with self.assertRaises(ValueError):
            builder(deep, (leaf,))

    def test_what_fails_is_raised_and_keeps_nothing(self):
        class Held:
            pass

        def fail(parts, context):
            raise RuntimeError("not today")
        held = Held()
        left = weakref.ref(held)
        with known((Bag, BAG[1], fail)):
            build = builder((0, ((5,), (4, Bag, tree._Context("bag"), ((5,),)))), [(MADE, 0, None), (MADE, 0, None)])
            with self.assertRaisesRegex(RuntimeError, "not today"):
                build([held])
        del held
        self.assertIsNone(left())

    def test_a_circle_through_one_is_collected(self):
        box = Box()
        box.build = builder((5,), [(VALUE, 0, box)])
        left = weakref.ref(box)
        del box
        gc.collect()
        self.assertIsNone(left())


class Records(unittest.TestCase):
    """Of a ModelOutput as transformers has it."""

    def setUp(self):
        module = types.ModuleType("transformers.utils.generic")

        class ModelOutput(collections.OrderedDict):
            def __post_init__(self):
                for field in dataclasses.fields(self):
                    value = self.__dict__[field.name]
                    if value is not None:
                        self[field.name] = value

            def __setitem__(self, key, value):
                super().__setitem__(key, value)
                super().__setattr__(key, value)

            def __setattr__(self, name, value):
                if name in self.keys() and value is not None:
                    super().__setitem__(name, value)
                super().__setattr__(name, value)
        self.base = module.ModelOutput = ModelOutput
        self.made = []
        patch = mock.patch.dict(sys.modules, {"transformers.utils.generic": module})
        patch.start()
        self.addCleanup(patch.stop)

    def output(self, **ways):
        kind = dataclasses.make_dataclass("Output", [(name, object, None) for name in ("loss", "logits", "cache")],
                                          bases=(self.base,))
        for name, way in ways.items():
            setattr(kind, name, way)

        def make(parts, context):
            self.made.append(parts)
            return kind(**dict(zip(context, parts)))
        return kind, known((kind, lambda made: (list(made.values()), list(made.keys())), make))

    def calls(self, kind, patch, count=4):
        """How often the class was asked, of so many calls that are as it makes them."""
        with patch:
            leaves, spec = tree.flatten(kind(logits=1, cache=(2, 3)))
            build = builder(spec, [(MADE, i, None) for i in range(len(leaves))])
            for turn in range(count):
                values = [turn, "two", "three"]
                got, want = build(values), kind(logits=turn, cache=("two", "three"))
                self.assertIs(type(got), kind)
                self.assertEqual(list(collections.OrderedDict.items(got)), list(collections.OrderedDict.items(want)))
                self.assertEqual(list(vars(got).items()), list(vars(want).items()))
                got.logits = "another"
                self.assertEqual(got["logits"], "another")
                got.move_to_end("logits")
                self.assertEqual(list(got), ["cache", "logits"])
        return len(self.made)

    def test_the_class_is_asked_once(self):
        self.assertEqual(self.calls(*self.output()), 1)

    def test_one_with_ways_of_its_own_is_asked_each_time(self):
        def own(self, *args, **kwargs):
            init(self, *args, **kwargs)

        kind, patch = self.output()
        init = kind.__init__
        kind.__init__ = own
        self.assertEqual(self.calls(kind, patch), 4)
        for name in ("__post_init__", "__setattr__", "__setitem__"):
            self.made.clear()
            base = getattr(self.base, name)
            way = functools.wraps(base)(lambda self, *args, base=base: base(self, *args))
            with self.subTest(name=name):
                self.assertEqual(self.calls(*self.output(**{name: way})), 4)

    def test_one_that_looks_otherwise_is_asked_each_time(self):
        def more(self):
            first(self)
            object.__setattr__(self, "made", 1)
        first = self.base.__post_init__
        self.base.__post_init__ = more
        self.assertEqual(self.calls(*self.output()), 4)

    def test_other_containers_are_asked_each_time(self):
        with known(BAG):
            leaves, spec = tree.flatten(Bag([1, 2]))
            build = builder(spec, [(MADE, 0, None), (MADE, 1, None)])
            with mock.patch.object(records, "_is_known", return_value=False):
                self.assertEqual([build(["a", i]) for i in range(3)], [Bag(["a", i]) for i in range(3)])


if __name__ == "__main__":
    unittest.main()
