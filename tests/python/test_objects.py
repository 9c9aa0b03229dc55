# SPDX-License-Identifier: MIT
"""Objects among arguments: what tells calls with them apart, the tensors that they bring, and what runs find
in their place."""

import collections
import gc
import types
import unittest
import weakref
from unittest import mock

import walked_torch
from reprise import _C
from reprise._base import tree as tree_
from reprise._call.body import Joined, marks_given, with_given
from reprise._call.stand_ins import StandIns
from reprise._reads import arguments, walk
from reprise._shapes.shape import Given


class Device:
    type = "cuda"


class Tensor(walked_torch.Tensor):
    """One of the device. What it has by itself is in slots: attributes are the program's."""

    __slots__ = ("address", "shape")
    device, dtype, layout, requires_grad = Device(), "float", "strided", False
    is_cuda, is_nested = True, False
    is_conj = is_neg = lambda self: False

    def __init__(self, address, shape=(4, 16)):
        self.address, self.shape = address, shape

    def stride(self):
        return (self.shape[-1], 1)

    def data_ptr(self):
        return self.address


class Kept:
    pass


class Slots:
    __slots__ = ("hidden", "__weakref__")


FAKE = types.SimpleNamespace(**{**vars(walked_torch.torch), "Tensor": Tensor, "strided": "strided",
                                "nn": types.SimpleNamespace(Module=walked_torch.Module, Parameter=Tensor)})
NAMES = {"hidden", "inner", "some", "scale"}


def kept(**attributes):
    made = Kept()
    made.__dict__.update(attributes)
    return made


def walked(value, takes=lambda tensor: True):
    return walk.Walk(FAKE, names=NAMES, takes=takes).run((value, "it"))


class Walks(unittest.TestCase):
    def places(self, value):
        return [(ref().address, [(type(owner), key) for _, owner, key in places])
                for ref, places in walked(value).bound]

    def test_where_tensors_are_bound(self):
        slots = Slots()
        slots.hidden = Tensor(1)
        for value, want in ((kept(hidden=Tensor(1)), (dict, "hidden")), (slots, (Slots, "hidden")),
                            (kept(some=[0, Tensor(1)]), (list, 1)), (kept(some={"t": Tensor(1)}), (dict, "t")),
                            (types.SimpleNamespace(any=Tensor(1)), (dict, "any"))):
            self.assertEqual(self.places(value), [(1, [want])])

    def test_what_is_told_by_identity(self):
        t, module = Tensor(1), walked_torch.Module()
        for value in (kept(some=(t,)), kept(some={t: 1}, hidden=t), kept(hidden=t, some=(t,)),
                      kept(hidden=t, inner=module)):
            self.assertEqual(walked(value).bound, [], value.__dict__)
            self.assertFalse(walked(value).binds_all)
            self.assertTrue(any(token[:2] == ("tensor", 1) for token in walked(value).tokens
                                if isinstance(token, tuple)))
        self.assertEqual(walked(kept(hidden=t), lambda tensor: False).bound, [])

    def test_the_same_form_is_the_same_tokens(self):
        def tokens(*addresses, shape=(4, 16), scale=1.0):
            tensors = {at: Tensor(at, shape) for at in addresses}
            return walked(kept(some=[tensors[at] for at in addresses], scale=scale)).tokens
        first = tokens(1, 2)
        self.assertEqual(tokens(3, 4), first)
        for other in (tokens(1, 1), tokens(1), tokens(1, 2, shape=(2, 16)), tokens(1, 2, scale=-1.0)):
            self.assertNotEqual(other, first)

    def test_each_place_of_a_tensor(self):
        t = Tensor(1)
        self.assertEqual(self.places(kept(hidden=t, some=[t])), [(1, [(dict, "hidden"), (list, 0)])])

    def test_their_order_stays_when_more_is_read(self):
        value = kept(hidden=Tensor(1), apart=Tensor(2), scale=Tensor(3))
        with mock.patch.dict(globals(), NAMES=NAMES):
            few = [ref() for ref, _ in walked(value).bound]
            many = [ref() for ref, _ in walk.Walk(FAKE, names=NAMES | {"apart"}, takes=lambda tensor: True).run(
                (value, "it")).bound]
        self.assertEqual([t for t in many if t is not value.apart], few)


class Known(unittest.TestCase):
    def setUp(self):
        self.names, self.numbers = set(NAMES), {}
        self.own = ()
        self.found = arguments.Arguments(FAKE, self.number_of, self.numbers.setdefault, lambda: self.names,
                                         lambda tensor: tensor.address in self.own, lambda value: False)

    def number_of(self, tokens):
        return self.numbers.setdefault(tokens, len(self.numbers))

    def look(self, value):
        token, brought = self.found.look(value)
        return token, [tensor.address for tensor, _ in brought]

    def test_objects_of_a_form(self):
        first = self.look(kept(hidden=Tensor(1)))
        second = self.look(kept(hidden=Tensor(2)))
        self.assertEqual((first[0], first[1], second[1]), (second[0], [1], [2]))
        self.own = (3,)
        self.assertNotEqual(self.look(kept(hidden=Tensor(3))), (first[0], [3]))

    def test_what_was_found_is_kept_until_it_changes(self):
        value = kept(hidden=Tensor(1), scale=1.0)
        with mock.patch.object(walk.Walk, "run", autospec=True, side_effect=walk.Walk.run) as runs:
            first = self.look(value)
            self.assertEqual([self.look(value) for _ in range(3)], [first] * 3)
            value.scale = 2.0
            self.assertNotEqual(self.look(value)[0], first[0])
            self.assertEqual(runs.call_count, 1)
            value.hidden = Tensor(2)
            self.assertEqual(self.look(value)[1], [2])
            self.assertEqual(runs.call_count, 2)

    def test_nothing_keeps_an_object_alive(self):
        value = kept(inner=kept(hidden=Tensor(1)), some=[Tensor(2)])
        self.look(value)
        weak, handle, token, refs = self.found.short(value)
        self.assertEqual([ref().address for ref in refs], [1, 2])
        self.assertTrue(token.startswith(b"object "))
        left = [weak, *refs, weakref.ref(value.inner)]
        del value
        self.assertEqual([ref() for ref in left], [None] * 4)
        self.assertEqual(handle.counts(), (0, 0))
        self.assertEqual(self.found._known, {})

    def test_an_object_that_leads_back_to_itself(self):
        value = kept(inner=kept(hidden=Tensor(1)))
        value.inner.unread = [value]
        self.assertEqual(self.look(value)[1], [1])
        self.assertIsNone(self.found.short(value))
        left = weakref.ref(value)
        del value
        gc.collect()
        self.assertIsNone(left())

    def test_the_oldest_goes(self):
        some = [kept(hidden=Tensor(i)) for i in range(arguments.MOST_ARGUMENTS + 1)]
        for value in some:
            self.look(value)
        self.assertIsNone(self.found.short(some[0]))
        self.assertIsNotNone(self.found.short(some[1]))

    def test_names_that_come_to_be_known(self):
        """What is captured stays right for an object that did not change."""
        value, other = kept(hidden=Tensor(1), late=1), kept(hidden=Tensor(1), late=2)
        token = self.look(value)[0]
        self.assertEqual(self.look(other)[0], token)
        self.names = self.names | {"late"}
        self.assertEqual(self.look(value)[0], token)
        value.late = 3
        self.assertNotEqual(self.look(value)[0], token)
        self.assertNotEqual(self.look(kept(hidden=Tensor(1), late=5))[0], token)


class Shown(unittest.TestCase):
    def setUp(self):
        self.value = kept(hidden=Tensor(1), some=[Tensor(2)])
        self.before = (self.value.hidden, self.value.some[0])
        self.shown = StandIns()
        self.new = Tensor(11), Tensor(12)
        for (ref, places), new in zip(walked(self.value).bound, self.new):
            self.shown.add(ref(), places, new)

    def now(self):
        return self.value.hidden, self.value.some[0]

    def test_for_the_length_of_a_run(self):
        self.assertEqual(self.shown.during(self.now), self.new)
        self.assertEqual(self.now(), self.before)

    def test_behind_an_exception(self):
        def fail():
            self.value.some.insert(0, 1)
            raise KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            self.shown.during(fail)
        self.assertIs(self.value.hidden, self.before[0])

    def test_what_the_run_put_there_stays(self):
        def swap():
            self.value.hidden, self.value.some[0] = self.value.some[0], "put"
        self.shown.during(swap)
        self.assertEqual(self.now(), (self.new[1], "put"))

    def test_an_object_twice(self):
        for (ref, places), new in zip(walked(self.value).bound, self.new):
            self.shown.add(ref(), places, Tensor(new.address))
        self.assertEqual([t.address for t in self.shown.during(self.now)], [11, 12])
        self.assertEqual(self.now(), self.before)

    def test_an_object_that_changed(self):
        self.value.some[0] = Tensor(3)
        with self.assertRaisesRegex(_C.Error, "changed while"):
            self.shown.during(self.now)
        self.assertIs(self.value.hidden, self.before[0])


class Results(unittest.TestCase):
    def test_arguments_are_those_of_the_call(self):
        first, second, other = kept(), kept(), kept()
        body = marks_given(lambda placed: {"out": placed, "cache": second, "other": other}, [3, first, second],
                           lambda leaf: False)
        made = body(7)
        self.assertIsInstance(made["cache"], Given)
        self.assertEqual(with_given(made, [3, "a", "b"]), {"out": 7, "cache": "b", "other": other})
        self.assertIs(marks_given(len, [3, None], None), len)

    def test_parts_are_refused(self):
        first = kept(inner=kept())
        body = marks_given(lambda placed: (placed, first.inner), [first], lambda leaf: leaf is first.inner)
        with self.assertRaisesRegex(_C.Error, "a part of an object"):
            body(7)


class Joins(unittest.TestCase):
    """Containers among the arguments that are the same one, or one that is there besides."""

    def test_numbers_of_containers_within_others(self):
        inner = [1]
        tree = (inner, {"a": inner, "b": (inner, 2)}, (), collections.OrderedDict(c=3))
        self.assertEqual(tree_.identified_in(tree, False), [inner, tree[1], inner, inner])
        self.assertEqual(tree_.identified_in(tree, True), [tree, inner, tree[1], inner, tree[1]["b"], inner])

    def test_which_are_one(self):
        identity = tree_.Identity(True, (0, 1, 2, 1, 4, 1), ())
        made = Joined(identity, {}).tree(([1], {"a": [1], "b": ([1], 2)}))
        self.assertIs(made[0], made[1]["a"])
        self.assertIs(made[0], made[1]["b"][0])

    def test_one_that_is_there_besides(self):
        own = [1.0, (2, 3)]
        made = Joined(tree_.Identity(True, None, ((1, "place"),)), {1: own}).tree(([1.0, (2, 3)], [4]))
        self.assertIs(made[0], own)
        self.assertEqual(made[1], [4])

    def test_one_that_changed_meanwhile_is_refused(self):
        identity = tree_.Identity(True, None, ((1, "place"),))
        for other in ([2.0], [1], [1.0, 2.0], None):
            with self.assertRaisesRegex(_C.Error, "changed since the call began"):
                Joined(identity, {1: other}).tree(([1.0],))


if __name__ == "__main__":
    unittest.main()
