# SPDX-License-Identifier: MIT
"""What a callable reads beside its arguments: that it is found, looked at again, and told by name."""

import abc
import collections
import contextvars
import copy
import ctypes
import functools
import gc
import inspect
import io
import operator
import os
import random
import signal
import sys
import threading
import time
import types
import unittest
import warnings
import weakref
from unittest import mock

import walked_torch
from no_memory import exhaust, needs_it
from fake_fast_path import give_fast_path
from reprise import _C
from reprise._call import graphed
from reprise._reads import code, marks, news, reads as _reads, runs, values as _values, walk as _walk
from reprise._reads.walk import (ATTRIBUTES, CALL, CELL, DICT, FUNCTION, ITEMS, LIST, NAMES, SET, TYPE, VARIABLE)

try:
    import numpy
    import numpy.random  # NumPy imports it when it is first asked for
except ImportError:
    numpy = None

NUMBER = 1.0


def helper(x):
    return x * NUMBER


class Looks(unittest.TestCase):
    """The extension: each kind of owner, each way to look at it."""

    def setUp(self):
        self.reads = _C.Reads(object)

    def set(self, kind, owner, values, keys=None, way=0):
        self.reads.set([(kind, way, owner, keys, values)])
        self.assertTrue(self.reads.holds())
        self.assertTrue(self.reads.holds())
        self.assertEqual(self.reads.changed(), [])

    def changes(self, *told):
        self.assertFalse(self.reads.holds())
        self.assertEqual(self.reads.changed(), list(told))
        self.assertFalse(self.reads.holds(), "nobody accepted it")

    def test_blind_looks_hold(self):
        names = {"a": 1}
        self.set(NAMES, names, (1,), ("a",))
        names["a"] = 2
        self.reads.blind(True)
        self.assertTrue(self.reads.holds())
        self.reads.blind(False)
        self.changes((0, 0, 2))

    def test_names_of_a_dict_in_each_way(self):
        for way in (0, marks.way_for("container")):
            names = {"a": 1.5, "b": 2}
            self.set(NAMES, names, (1.5, 2, _C.absent), ("a", "b", "c"), way)
            names["other"] = 3
            self.assertTrue(self.reads.holds())
            names["b"] = 3
            self.changes((0, 1, 3))
            self.reads.accept(0, 1, 3)
            self.assertTrue(self.reads.holds())
            names["c"] = "there"
            self.changes((0, 2, "there"))
            self.reads.accept(0, 2, "there")
            del names["c"]
            self.changes((0, 2, _C.absent))
            names.clear()
            self.assertEqual(len(self.reads.changed()), 3)

    def test_a_dict_that_is_written_beside_what_is_read(self):
        """By all owners of it, some of whose keys it has not. What looking at each value says is right."""
        class Value:
            pass
        chance, kept = random.Random(7), [Value() for _ in range(3)]
        values = [lambda: 1000 + chance.randrange(2), lambda: float(chance.randrange(2)), lambda: kept[chance.randrange(3)],
                  lambda: "".join(["te", chance.choice("xy")]), Value, lambda: None]

        def known(value):
            return value if value is None or type(value) is not Value or chance.random() < 0.5 else weakref.ref(value)

        def owners(names):
            asked = [chance.sample("abcdefgh", chance.randrange(1, 6)) for _ in range(3)]
            found = [(NAMES, tuple(keys), tuple(known(names[k]) if k in names else _C.absent for k in keys))
                     for keys in asked]
            if chance.random() < 0.2:
                found.append((ITEMS, tuple(names), tuple(map(known, names.values()))))
            return found
        said = [0, 0]
        for turn in range(300):
            names = {chance.choice("abcdefgh"): chance.choice(values)() for _ in range(5)}
            way = marks.way_for("container" if turn % 2 else "instance")
            if turn % 2 == 0:  # some instances share the table of their keys
                owner = Value()
                for key, value in names.items():
                    setattr(owner, key, value)
                names = vars(owner)
            found, by_value = owners(names), _C.Reads(object)
            self.reads.set([(kind, way, names, keys, some) for kind, keys, some in found])
            by_value.set([(kind, 0, names, keys, some) for kind, keys, some in found])
            self.assertTrue(self.reads.holds() and by_value.holds())
            for step in range(40):
                key = chance.choice("xyz" if chance.random() < 0.8 else "abcdefgh")
                how = chance.random()
                if how < 0.7:
                    names[key] = chance.choice(values)()
                elif how < 0.8:
                    names[key] = names.pop(key, None)
                elif how < 0.86 and names:
                    names[next(iter(names))] = names[next(iter(names))]
                elif how < 0.92:
                    names.pop(key, None)
                elif how < 0.97 and names:  # another key may get the place of the last
                    last, value = names.popitem()
                    names[chance.choice((key, last))] = value
                else:  # a table may get the address of the one before
                    before = list(names.items())
                    names.clear()
                    names.update(before)
                held = by_value.holds()
                self.assertEqual(self.reads.holds(), held, (turn, step))
                said[held] += 1
                if held:
                    continue
                changes = by_value.changed()
                self.assertEqual(self.reads.changed(), changes)
                if any(entry < 0 for _, entry, _ in changes):
                    break
                for which, entry, value in changes:
                    by_value.accept(which, entry, value)
                    self.reads.accept(which, entry, value)
                del changes, value
        self.assertGreater(min(said), 500, said)

    @unittest.skipUnless(marks.way_for("container") == marks.BY_TAG, "dicts have tags until CPython 3.11")
    def test_layouts_of_dicts_are_proved(self):
        self.assertTrue(_C.are_dicts_known())

    def test_owners_that_are_added_to_a_dict_are_looked_at(self):
        for way in (0, marks.way_for("container")):
            names = {"a": 1, "b": 2}
            first = (NAMES, way, names, ("a",), (1,))
            self.reads.set([first])
            self.assertTrue(self.reads.holds() and self.reads.holds())
            self.reads.add([first, (NAMES, way, names, ("b",), (3,))])
            self.changes((1, 0, 2))

    def test_equal_values_are_the_same_ones(self):
        names = {"a": 1000.5, "b": 10 ** 30, "c": "text", "d": b"bytes"}
        for way in (0, marks.way_for("container")):
            self.set(NAMES, names, tuple(names.values()), tuple(names), way)
            names.update(a=float("1000.5"), b=int("1" + "0" * 30), c="".join(["te", "xt"]),
                         d=bytes([98, 121, 116, 101, 115]))
            self.assertTrue(self.reads.holds())

    def test_values_that_python_takes_for_equal(self):
        for value, other in ((0.0, -0.0), (1, True), (1, 1.0), (float("nan"), -float("nan"))):
            cell = types.CellType(value)
            self.set(CELL, cell, (value,))
            cell.cell_contents = other
            self.changes((0, 0, other))

    def test_items_and_their_order(self):
        for way in (0, marks.way_for("container")):
            held = {"a": 1, "b": 2}
            self.set(ITEMS, held, (1, 2), ("a", "b"), way)
            held["b"] = 5
            self.changes((0, 1, 5))
            held["b"] = 2
            self.assertTrue(self.reads.holds())
            held["a"] = held.pop("a")
            self.changes((0, -1, None))
            del held["a"]
            self.changes((0, -1, None))

    def test_what_was_empty(self):
        held, some = {}, []
        for way in (0, marks.way_for("container")):
            held.clear()
            self.set(ITEMS, held, (), (), way)
            held["a"] = 1
            self.changes((0, -1, None))
        self.set(LIST, some, ())
        some.append(1)
        self.changes((0, -1, None))

    def test_another_in_the_place_of_one(self):
        for way in (0, marks.way_for("container")):
            first, second = {}, {}
            self.set(ITEMS, first, (), (), way)
            self.assertTrue(self.reads.replace(0, (ITEMS, way, second, (), ())))
            first["a"] = 1
            self.assertTrue(self.reads.holds(), "nobody looks there any more")
            second["a"] = 1
            self.changes((0, -1, None))
            self.assertFalse(self.reads.replace(0, (LIST, 0, [], None, ())))
        with self.assertRaises(IndexError):
            self.reads.replace(1, (LIST, 0, [], None, ()))
        with self.assertRaises(ValueError):
            self.reads.replace(0, (LIST, 0, {}, None, ()))

    def test_lists(self):
        held = [1, "two", None]
        self.set(LIST, held, (1, "two", None))
        held[2] = 3
        self.changes((0, 2, 3))
        held.pop()
        self.changes((0, -1, None))

    def test_lists_by_the_places_of_their_members(self):
        for count in (0, 1, 2, 7, 300):
            members = [f"member {i}" for i in range(count)]
            owner = list(members)
            self.set(LIST, owner, tuple(members))
            self.assertEqual(self.reads.counts(), (1, 0), "it is known by its words")
            for at in {0, count // 2, count - 1} if count else ():
                owner[at] = "another"
                self.changes((0, at, "another"))
                owner[at] = "".join(members[at])  # equal, another object
                self.assertTrue(self.reads.holds() and self.reads.holds(), (count, at))
                owner[at] = 7
                self.changes((0, at, 7))
                owner[at] = members[at]
                self.assertTrue(self.reads.holds() and self.reads.holds(), (count, at))
            owner.append("one more")
            self.changes((0, -1, None))
            owner.extend(range(10_000))  # lies elsewhere by now
            self.changes((0, -1, None))
            del owner[count:]
            self.assertTrue(self.reads.holds() and self.reads.holds(), count)
            owner.reverse()
            self.assertEqual(self.reads.holds(), count < 2)
            owner.clear()
            self.assertEqual(self.reads.holds(), count == 0)
            owner.extend(members)
            self.assertTrue(self.reads.holds() and self.reads.holds(), count)
            self.assertEqual(self.reads.counts(), (1, 0), "it still is")

    def test_a_list_that_lies_elsewhere_by_now(self):
        for count in (1, 2, 7, 40):
            members = [f"member {i}" for i in range(count)]
            owner = list(members)
            self.set(LIST, owner, tuple(members))
            owner.extend(range(10_000))
            twins = [list(members) for _ in range(200)]  # one of them has its memory now
            del owner[count:]
            owner[-1] = "another"
            self.changes((0, count - 1, "another"))
            self.assertEqual(twins[-1], members)

    def test_words_of_many_containers(self):
        rows = [[i, f"row {i}"] for i in range(40)]
        groups = [{f"group {i}", i} for i in range(40)]
        self.reads.set([owner for row, group in zip(rows, groups) for owner in (
            (LIST, 0, row, None, tuple(row)), (SET, 0, group, None, (frozenset(group),)))])
        self.assertEqual((self.reads.counts(), self.reads.holds()), ((80, 0), True))
        for i in (0, 17, 39):
            rows[i][1] = "other"
            self.assertFalse(self.reads.holds(), i)
            self.assertEqual(self.reads.changed(), [(2 * i, 1, "other")])
            rows[i][1] = f"row {i}"
            groups[i].remove(i)
            groups[i].add(i + 100)
            self.assertFalse(self.reads.holds(), i)
            groups[i].remove(i + 100)
            groups[i].add(i)
            self.assertTrue(self.reads.holds() and self.reads.holds(), i)
        self.assertTrue(self.reads.replace(2, (LIST, 0, other := [1, 2, 3], None, (1, 2, 3))))
        self.assertEqual((self.reads.counts(), self.reads.holds()), ((80, 1), True))
        rows[1].clear()
        self.assertTrue(self.reads.holds(), "nobody looks there any more")
        other[1] = 5
        self.changes((2, 1, 5))
        self.reads.accept(2, 1, 5)
        self.assertTrue(self.reads.holds())

    def test_what_was_accepted_is_known_of_a_list(self):
        owner = [1.5, 2.5]
        self.set(LIST, owner, (1.5, 2.5))
        owner[1] = new = 3.5
        self.changes((0, 1, 3.5))
        owner[1] = 2.5
        self.set(LIST, owner, tuple(owner))
        self.reads.accept(0, 1, new)
        self.assertFalse(self.reads.holds(), "it is what it was, and no more what is known")
        owner[1] = new
        self.assertTrue(self.reads.holds() and self.reads.holds())
        self.assertEqual(self.reads.counts(), (1, 0))

    def test_an_equal_member_that_is_gone_leaves_its_address_to_none(self):
        first = "".join(["member ", "1"])
        owner = [first]
        self.set(LIST, owner, (first,))
        for i in range(100):  # a new string soon has the address of one that ended
            owner[0] = "".join(["member ", "1"])
            self.assertTrue(self.reads.holds())
            owner[0] = None
            owner[0] = "".join(["member ", "2"])
            self.assertFalse(self.reads.holds(), i)

    def test_a_class_of_lists_that_tells_another_size(self):
        class Odd(list):
            def __len__(self):
                return 0

            def __getitem__(self, at):
                return 5
        owner = Odd([1, 2])
        self.set(LIST, owner, (1, 2))
        list.__setitem__(owner, 1, 3)
        self.changes((0, 1, 3))

    def test_a_list_of_what_is_known_weakly(self):
        member = Stands(len)
        owner = [member]
        self.set(LIST, owner, (weakref.ref(member),))
        self.assertEqual(self.reads.counts(), (1, 1), "its member is not kept, and has no word")
        owner[0] = Stands(len)
        self.assertFalse(self.reads.holds())
        owner[0] = member
        self.assertTrue(self.reads.holds())
        gone = weakref.ref(member)
        del member, owner[0]
        self.assertIsNone(gone())

    def test_variables_of_a_context(self):
        variable, other = contextvars.ContextVar("variable"), contextvars.ContextVar("other", default=1.5)
        self.reads.set([(VARIABLE, 0, variable, None, (_C.absent,)), (VARIABLE, 0, other, None, (_C.absent,))])
        self.assertTrue(self.reads.holds() and self.reads.holds())
        token = variable.set(0.0)
        self.changes((0, 0, 0.0))
        self.reads.accept(0, 0, 0.0)
        self.assertTrue(self.reads.holds())
        for value in (-0.0, False, None, "0.0"):
            variable.set(value)
            self.assertFalse(self.reads.holds(), value)
        variable.reset(token)
        self.changes((0, 0, _C.absent))
        self.reads.accept(0, 0, _C.absent)
        context = contextvars.copy_context()
        context.run(other.set, 2.5)
        self.assertFalse(context.run(self.reads.holds), "it is of the context that asks")
        self.assertTrue(self.reads.holds())
        other.set(2.5)
        self.changes((1, 0, 2.5))

    @unittest.skipUnless((3, 10) <= sys.version_info < (3, 14), "nobody saw where this CPython has them")
    def test_variables_of_a_context_are_not_asked_for(self):
        variable = contextvars.ContextVar("variable")
        self.reads.set([(VARIABLE, 0, variable, None, (_C.absent,))])
        self.assertEqual(self.reads.counts(), (1, 0))
        found = []
        thread = threading.Thread(target=lambda: found.extend((self.reads.holds(), variable.set(2.5),
                                                               self.reads.holds())))
        thread.start()
        thread.join()
        self.assertEqual(found[::2], [True, False], "another thread has a context of its own")
        self.assertTrue(self.reads.holds())

        class Kept:
            pass
        value, other = Kept(), contextvars.ContextVar("other")
        contextvars.copy_context().run(lambda: (other.set(value), self.reads.holds()))
        gone = weakref.ref(value)
        del value
        self.assertIsNone(gone(), "the values of a context are the program's")

    def test_cells(self):
        cell, first, second = types.CellType(1.5), object(), object()
        self.set(CELL, cell, (1.5,))
        cell.cell_contents = float("1.5")
        self.assertTrue(self.reads.holds())
        cell.cell_contents = first
        self.changes((0, 0, first))
        self.reads.accept(0, 0, first)
        self.assertTrue(self.reads.holds())
        cell.cell_contents = second
        self.reads.accept(0, 0, second)
        self.assertTrue(self.reads.holds())
        cell.cell_contents = first
        self.changes((0, 0, first))
        del cell.cell_contents
        self.changes((0, 0, _C.absent))
        self.set(CELL, types.CellType(), (_C.absent,))

    def test_functions(self):
        def subject(a=1, *, b=2):
            return a, b
        parts = (subject.__code__, subject.__defaults__, subject.__kwdefaults__)
        self.set(FUNCTION, subject, parts)
        for i, (name, value) in enumerate((("__code__", helper.__code__), ("__defaults__", (5,)),
                                           ("__kwdefaults__", {"b": 7}))):
            setattr(subject, name, value)
            self.changes((0, i, value))
            setattr(subject, name, parts[i])
            self.assertTrue(self.reads.holds())
        subject.__defaults__ = None
        self.changes((0, 1, None))

    def test_many_functions_of_which_one_is_changed(self):
        subjects = [types.FunctionType(helper.__code__, {}) for _ in range(5)]
        self.reads.set([(FUNCTION, 0, f, None, (f.__code__, None, None)) for f in subjects])
        for which in (3, 0, 4):
            self.assertTrue(self.reads.holds())
            subjects[which].__defaults__ = new = (which, 1)
            self.changes((which, 1, new))
            self.reads.accept(which, 1, new)
            types.FunctionType(helper.__code__, {}).__defaults__ = (1,)  # nobody's
            self.assertTrue(self.reads.holds())
            self.assertEqual(self.reads.changed(), [])
        subjects[1].__kwdefaults__ = {}
        other = types.FunctionType(helper.__code__, {})
        self.reads.set([(FUNCTION, 0, f, None, (helper.__code__, None, None)) for f in (subjects[1], other)])
        self.changes((0, 2, {}))  # so it was when it was set

    def test_words_wherever_they_lie(self):
        """They are looked at in the order of their addresses, and told by who has them."""
        kinds = [type(f"Kind{i}", (), {}) for i in range(2)]
        cells = [types.CellType(object()) for _ in range(40)]
        objects = [kinds[0]() for _ in range(40)]
        owners = [(CELL, 0, cell, None, (cell.cell_contents,)) for cell in cells]
        owners += [(TYPE, 0, one, None, (kinds[0],)) for one in objects]
        pick = random.Random(2)
        pick.shuffle(owners)
        self.reads.set(owners)
        self.assertTrue(self.reads.holds())
        for which in pick.sample(range(80), 30):
            kind, _, subject, *_ = owners[which]
            new = kinds[1] if kind == TYPE else object()
            if kind == TYPE:
                subject.__class__ = new
            else:
                subject.cell_contents = new
            self.changes((which, 0, new))
            self.reads.accept(which, 0, new)
            self.assertTrue(self.reads.holds())

    def test_what_functions_and_classes_say_is_words(self):
        class Above:
            pass

        class Some(Above):
            pass

        class Other:
            pass

        def some(x: int) -> int:
            return x
        for owner, names in ((some, code.OF_FUNCTIONS), (Some, (*_walk.OF_CLASSES, _walk.BASES))):
            for name in names:
                value = getattr(owner, name)
                other = (Other,) if name == _walk.BASES else {} if type(value) is dict else "other"
                self.set(ATTRIBUTES, owner, (value,), (name,))
                self.assertEqual(self.reads.counts(), (1, 0), name)
                is_told = name in ("__name__", "__qualname__", "__module__", "__bases__") and (owner, name) != (Some, "__module__")
                self.assertEqual(self.reads.words(), not is_told, name)
                setattr(owner, name, other)
                self.changes((0, 0, other))
                setattr(owner, name, value)
                self.assertTrue(self.reads.holds())
        self.reads.set([(ATTRIBUTES, 0, int, ("__bases__",), (int.__bases__,))])  # a class that C declares
        self.assertEqual(self.reads.counts(), (1, 1))
        self.assertTrue(self.reads.holds())

    def test_cells_that_no_code_sets(self):
        """They are looked at when the contents of any were set."""
        cell, other, empty = types.CellType(1.5), types.CellType(1.5), types.CellType()
        for subject, value in ((cell, 1.5), (empty, _C.absent)):
            self.set(CELL, subject, (value,), None, marks.BY_DESCRIPTOR)
            self.assertEqual((self.reads.counts(), self.reads.words()), ((1, 0), 0))
            self.assertTrue(self.reads.holds())
            other.cell_contents = 2.5
            self.assertTrue(self.reads.holds())
            subject.cell_contents = 2.5
            self.changes((0, 0, 2.5))
            self.reads.accept(0, 0, 2.5)
            self.assertTrue(self.reads.holds())
            del subject.cell_contents
            self.changes((0, 0, _C.absent))
        self.set(CELL, other, (2.5,), None)
        self.assertEqual(self.reads.words(), 1)

    def test_dicts_of_functions(self):
        def some():
            pass
        held = some.__dict__
        self.set(DICT, some, (held,), None)
        self.assertEqual((self.reads.counts(), self.reads.words()), ((1, 0), 0))
        some.__dict__ = {"a": 1}
        self.changes((0, 0, some.__dict__))
        some.__dict__ = held
        self.assertTrue(self.reads.holds())

    def test_what_is_set_through_descriptors_costs_no_word(self):
        class Some:
            pass
        some, function = Some(), types.FunctionType(helper.__code__, {}, argdefs=(1,))
        for kind, owner, values, name, new in (
                (DICT, some, (some.__dict__,), "__dict__", {"a": 1}),
                (FUNCTION, function, (helper.__code__, (1,), None), "__code__", (lambda x: x).__code__),
                (FUNCTION, function, (helper.__code__, (1,), None), "__defaults__", (2,)),
                (FUNCTION, function, (helper.__code__, (1,), None), "__kwdefaults__", {"x": 1})):
            before = getattr(owner, name)
            self.set(kind, owner, values if kind == DICT else _C.parts_of(function))
            self.assertEqual((self.reads.counts(), self.reads.words()), ((1, 0), 0), name)
            setattr(owner, name, new)
            self.assertFalse(self.reads.holds(), name)
            setattr(owner, name, before)
            self.assertTrue(self.reads.holds(), name)

    def test_how_often_classes_were_registered_is_a_word(self):
        known = abc.get_cache_token()
        self.set(CALL, abc.get_cache_token, (known,))
        self.assertEqual(self.reads.counts(), (1, 0))
        abc.ABCMeta("Any", (), {}).register(int)
        self.changes((0, 0, known + 1))
        self.reads.accept(0, 0, known + 1)
        self.assertTrue(self.reads.holds())

    def test_the_order_of_keys(self):
        def ids(ordered):
            return tuple(map(id, ordered))
        ordered = collections.OrderedDict.fromkeys(["first", "second", "third"])
        for way in (0, marks.BY_ORDER):
            ask = functools.partial(ids, ordered)
            self.set(CALL, ask, (ask(),), None, way)
            ordered["first"] = 2
            self.assertTrue(self.reads.holds())
            ordered.move_to_end("first")
            self.changes((0, 0, ids(ordered)))
            ordered.move_to_end("first", last=False)
            self.assertTrue(self.reads.holds())
            ordered["fourth"] = 1
            self.changes((0, 0, ids(ordered)))
            del ordered["fourth"]
            self.assertTrue(self.reads.holds())
            ordered.clear()
            self.changes((0, 0, ()))
            ordered.update(first=1, second=2, third=3)
        calls = []
        self.set(CALL, functools.partial(calls.append, ordered), (None,), None, marks.BY_ORDER)
        self.assertEqual(len(calls), 1, "it is not asked again while the order stays")
        self.set(CALL, functools.partial(calls.append, 7), (None,), None, marks.BY_ORDER)
        self.assertEqual(len(calls), 1 + 3, "a number has no order")

    def test_classes_and_dicts_of_objects(self):
        class One:
            pass

        class Other:
            pass
        subject = One()
        self.set(TYPE, subject, (One,))
        subject.__class__ = Other
        self.changes((0, 0, Other))
        self.set(DICT, subject, (subject.__dict__,))
        subject.name = 1
        self.assertTrue(self.reads.holds())
        subject.__dict__ = other = {}
        self.changes((0, 0, other))

    def test_sets_calls_and_attributes(self):
        held = {"a", 2}
        self.set(SET, held, (frozenset(held),))
        held.discard("a")
        held.add("b")
        self.changes((0, 0, {"b", 2}))
        answer = [1]
        self.set(CALL, lambda: list(answer), ([1],))
        answer.append(2)
        self.changes((0, 0, [1, 2]))
        local = threading.local()
        local.scale = 1
        self.set(ATTRIBUTES, local, (1, _C.absent), ("scale", "other"))
        local.other = 5
        self.changes((0, 1, 5))

    def test_sets_by_the_places_of_their_members(self):
        for count in (0, 1, 3, 47, 300):
            members = [f"member {i}" for i in range(count)]
            owner = set(members)
            self.set(SET, owner, (frozenset(members),))
            for gone in (members[:1], members[-1:], members):
                owner.difference_update(gone)
                if gone:
                    self.changes((0, 0, owner))
                owner.update(f"other {i}" for i in range(len(gone)))
                if gone:
                    self.changes((0, 0, owner))
                owner.add("one more")
                self.changes((0, 0, owner))
                owner.clear()
                owner.update(str(member.encode(), "ascii") for member in members)  # equal, other objects
                self.assertTrue(self.reads.holds(), (count, gone))
                self.assertTrue(self.reads.holds(), (count, gone))
            owner.update(range(10_000))
            self.changes((0, 0, owner))
            owner.difference_update(range(10_000))
            self.assertTrue(self.reads.holds(), count)

    def test_a_member_that_is_gone_leaves_its_address_to_none(self):
        class Member:
            pass
        owner = {Member() for _ in range(5)}
        self.set(SET, owner, (frozenset(owner),))
        for _ in range(100):  # a new object soon has the address of one that ended
            owner.pop()
            owner.add(Member())
            self.assertFalse(self.reads.holds())

    def test_what_raises_when_it_is_asked_has_changed(self):
        asked = []

        def ask():
            if asked:
                raise KeyError("mine")
            return 1
        self.set(CALL, ask, (1,))
        asked.append(1)
        self.assertFalse(self.reads.holds())
        with self.assertRaises(KeyError):
            self.reads.changed()

    def test_what_is_set_while_it_is_asked(self):
        reads = self.reads

        def ask():
            reads.set([])
            return 1
        reads.set([(CALL, 0, ask, None, (1,)), (CELL, 0, types.CellType(1), None, (1,))])
        self.assertFalse(reads.holds(), "it was another list that held")
        self.assertTrue(reads.holds())

    def test_two_look_at_one_dict(self):
        """Each with its own keys; one of them goes."""
        way, names = marks.way_for("container"), {"a": 1, "b": 2}
        other = _C.Reads(object)
        self.set(NAMES, names, (1,), ("a",), way)
        other.set([(NAMES, way, names, ("b",), (2,))])
        self.assertTrue(other.holds())
        names["b"] = 3
        self.assertTrue(self.reads.holds())
        self.assertFalse(other.holds())
        del other
        names["a"] = 4
        self.assertFalse(self.reads.holds())

    def test_few_of_many_dicts_are_written_to(self):
        way = marks.way_for("container")
        mine = [{"a": i, "b": i} for i in range(100)]
        others = [{"a": 0} for _ in range(100)]
        watching = _C.Reads(object)
        watching.set([(NAMES, way, other, ("a",), (0,)) for other in others])
        self.reads.set([owner for i, names in enumerate(mine) for owner in (
            (NAMES, way, names, ("a",), (i,)), (NAMES, way, names, ("b",), (i,)))])
        self.assertTrue(self.reads.holds())
        for count in (0, 1, 63, 64, 65, 100):
            for i, key in ((0, "a"), (41, "b"), (99, "b")):
                mine[i][key] = -1
                for other in others[:count]:
                    other["a"] += 1
                self.assertFalse(self.reads.holds(), (count, i))
                self.assertFalse(self.reads.holds(), (count, i))
                self.assertEqual(self.reads.changed(), [(2 * i + (key == "b"), 0, -1)])
                mine[i][key] = i
                self.assertTrue(self.reads.holds() and self.reads.holds(), (count, i))
        first = {"a": 1}
        self.assertTrue(self.reads.replace(0, (NAMES, way, first, ("a",), (1,))))
        self.assertTrue(self.reads.holds() and self.reads.holds())
        mine[0]["a"] = 5
        self.assertTrue(self.reads.holds(), "nobody looks there any more")
        first["a"] = 2
        self.changes((0, 0, 2))
        self.reads.accept(0, 0, 2)
        self.assertTrue(self.reads.holds())
        taken = _C.Reads(object)
        self.assertTrue(taken.take(self.reads))
        self.reads.set([])
        mine[50]["b"] = -1
        self.assertFalse(taken.holds())
        self.assertEqual(taken.changed(), [(101, 0, -1)])

    def test_what_another_looks_at_is_taken(self):
        t = 1.5

        def read():
            return t

        def put(value):
            nonlocal t
            t = value
        cell = read.__closure__[0]
        names, members, row = {"a": 1.5, "b": 2}, {1, 2}, [1, 2]
        for way in (0, marks.way_for("container")):
            self.reads.set([
                (NAMES, way, names, ("a", "c"), (1.5, _C.absent)), (LIST, 0, row, None, (1, 2)),
                (CELL, 0, cell, None, (1.5,)), (SET, 0, members, None, (frozenset(members),)),
                (FUNCTION, 0, helper, None, _C.parts_of(helper)), (ITEMS, way, names, ("a", "b"), (1.5, 2))])
            other = _C.Reads(object)
            self.assertTrue(other.take(self.reads))
            self.assertEqual(other.counts(), self.reads.counts())
            self.assertTrue(other.holds() and other.holds())
            for change, back in ((lambda: names.update(a=2.5), lambda: names.update(a=1.5)),
                                 (lambda: names.update(c=1), lambda: names.pop("c")),
                                 (lambda: members.add(3), lambda: members.remove(3)), (lambda: row.append(3), row.pop)):
                change()
                self.assertFalse(other.holds() or self.reads.holds())
                self.assertFalse(_C.Reads(object).take(self.reads))
                back()
                self.assertTrue(other.holds() and self.reads.holds())
            put(2.5)
            self.assertFalse(other.holds())
            other.accept(2, 0, 2.5)
            self.assertTrue(other.holds())
            self.assertFalse(self.reads.holds(), "each accepts for itself")
            put(1.5)
            self.reads.set([])
            self.assertFalse(other.holds())
            other.accept(2, 0, 1.5)
            self.assertTrue(other.holds())
        with self.assertRaises(TypeError):
            other.take(None)
        self.assertFalse(other.take(_C.Reads(object)), "it looks at nothing")

    def test_more_are_added(self):
        """Those that are there are not read again, and stay known as they were."""
        for way in (0, marks.way_for("container")):
            cells = [types.CellType(i) for i in range(8)]
            names, later, row, column = {"a": 1.5, "b": 2}, {"c": 3.5}, [1, 2], [3, 4]
            first = [(CELL, 0, cells[i], None, (i,)) for i in (5, 0, 3)] + [
                (NAMES, way, names, ("a",), (1.5,)), (LIST, 0, column, None, (3, 4))]
            more = [(CELL, 0, cells[i], None, (i,)) for i in (7, 1, 4)] + [
                (NAMES, way, names, ("b",), (2,)), (NAMES, way, later, ("c", "d"), (3.5, _C.absent)),
                (LIST, 0, row, None, (1, 2)), (FUNCTION, 0, helper, None, _C.parts_of(helper))]
            self.reads.set(list(first))
            self.assertTrue(self.reads.holds())
            self.reads.add([None] * len(first) + more)
            self.assertEqual(self.reads.counts()[0], len(first) + len(more))
            self.assertTrue(self.reads.holds() and self.reads.holds())
            for i in (5, 0, 3, 7, 1, 4):
                cells[i].cell_contents = -1
                self.assertFalse(self.reads.holds(), i)
                cells[i].cell_contents = i
                self.assertTrue(self.reads.holds(), i)
            for changed, key in ((names, "a"), (names, "b"), (later, "c"), (later, "d")):
                before = dict(changed)
                changed[key] = 9
                self.assertFalse(self.reads.holds(), key)
                changed.clear()
                changed.update(before)
                self.assertTrue(self.reads.holds(), key)
            for some in (row, column):
                some.append(1)
                self.assertFalse(self.reads.holds(), some)
                some.pop()
                self.assertTrue(self.reads.holds(), some)
            cells[3].cell_contents = cells[1].cell_contents = "another"
            self.reads.accept(2, 0, "another")
            self.assertFalse(self.reads.holds())
            self.reads.accept(len(first) + 1, 0, "another")
            self.assertTrue(self.reads.holds())
            self.reads.set(list(first))
            self.reads.add([*first, (NAMES, way, later, ("c",), (4.5,))])
            self.assertFalse(self.reads.holds(), "it was never so")
        for wrong in ([], [None]):
            with self.assertRaises(ValueError):
                self.reads.add(wrong)
        with self.assertRaises(TypeError):
            self.reads.add([*first, *more, None])
        with self.assertRaises(ValueError):
            _C.Reads(object).add([])

    def test_a_dict_outlives_who_looked_at_it(self):
        names = {"a": 1}
        for _ in range(3):
            reads = _C.Reads(object)
            reads.set([(NAMES, marks.way_for("container"), names, ("a",), (names["a"],))])
            self.assertTrue(reads.holds())
            del reads
            names["a"] += 1
        for _ in range(50):  # others in its place
            names = {"a": 1}
            self.set(NAMES, names, (1,), ("a",), marks.way_for("container"))
            names["a"] = 2
            self.assertFalse(self.reads.holds())

    def test_what_is_not_an_owner_is_refused(self):
        for wrong in ((NAMES, 0, [], (), ()), (NAMES, 0, {}, ("a",), ()), (LIST, 0, {}, None, ()),
                      (FUNCTION, 0, helper, None, (1,)), (99, 0, {}, (), ()), (CELL, 0, 1, ("a",), (1,)),
                      (CALL, 0, helper, None, ())):
            with self.assertRaises(ValueError, msg=wrong):
                self.reads.set([wrong])
        for wrong in (((),), [None]):
            with self.assertRaises(TypeError):
                self.reads.set(wrong)
        self.reads.set([(CELL, 0, types.CellType(1), None, (1,))])
        for which, entry in ((1, 0), (0, 1), (-1, 0), (0, -1)):
            with self.assertRaises(IndexError):
                self.reads.accept(which, entry, 1)

    def test_a_cycle_is_collected(self):
        class Owner:
            pass
        owner = Owner()
        owner.reads = _C.Reads(object)
        owner.reads.set([(NAMES, 0, owner.__dict__, ("reads",), (owner.reads,))])
        gone = weakref.ref(owner)
        del owner
        gc.collect()
        self.assertIsNone(gone())

    @needs_it
    def test_memory_that_runs_out(self):
        names = {"a": 1}
        owners = [(NAMES, marks.way_for("container"), names, ("a",), (1,)), (LIST, 0, [1], None, (1,))]
        exhaust(self, self.reads.set, owners)
        self.assertTrue(self.reads.holds())
        names["a"] = 2
        self.assertEqual(exhaust(self, self.reads.changed), [(0, 0, 2)])
        exhaust(self, self.reads.accept, 0, 0, 2)
        self.assertTrue(self.reads.holds())
        exhaust(self, self.reads.add, [*owners, (CELL, 0, types.CellType(1), None, (1,))])
        self.assertEqual((self.reads.counts()[0], self.reads.holds()), (3, True))


class Names(unittest.TestCase):
    """What code reads by name, as its instructions tell."""

    @staticmethod
    def subject(it, name, *rest):
        import json
        it.kept = 1
        if GLOBAL_OF_SUBJECT(it.kept):  # noqa: F821
            it.late = [lambda: rest.inner]
        return it.late, getattr(it, "asked"), json, MORE  # noqa: F821

    @staticmethod
    def asks(it, name):
        return getattr(it, name)

    @staticmethod
    def builds(it, i):
        return getattr(it, f"w{i}")

    @needs_it
    def test_globals_attributes_and_imports(self):
        for _ in (1, 2):
            exhaust(self, _C.read_instructions, self.subject.__code__, set(), set(), set())
            found = code.named.__wrapped__(self.subject.__code__)
            self.assertEqual(found.globals, {"GLOBAL_OF_SUBJECT", "MORE", "getattr"})
            self.assertEqual(found.imports, {"json"})
            self.assertLessEqual({"inner", "late", "asked"}, found.attributes)
            self.assertNotIn("kept", found.attributes, "it was stored on the one way there")
            self.assertIn("asked", found.maybe)
            self.assertFalse(found.dynamic)
        for makes in (self.asks, self.builds):
            self.assertTrue(code.named.__wrapped__(makes.__code__).dynamic)

    @needs_it
    def test_all_names(self):
        found = exhaust(self, _C.names_in, self.subject.__code__)
        self.assertEqual(found, {"json", "kept", "GLOBAL_OF_SUBJECT", "late", "inner", "getattr", "MORE"})

    def test_what_is_no_code_is_refused(self):
        for wrong in (1, self.subject):
            with self.assertRaises(AttributeError):
                _C.names_in(wrong)
            with self.assertRaises(AttributeError):
                _C.read_instructions(wrong, set(), set(), set())
        with self.assertRaises(TypeError):
            _C.read_instructions(self.subject.__code__, set(), set(), [])

    def test_arguments_longer_than_a_byte(self):
        """Of which an instruction ahead has the rest."""
        names = {}
        exec("def many(it):\n" + "".join(f"    it.a{i}\n    b{i}\n" for i in range(400)), names)
        found = code.named.__wrapped__(names["many"].__code__)
        self.assertEqual(found.attributes, {f"a{i}" for i in range(400)})
        self.assertEqual(found.globals, {f"b{i}" for i in range(400)})


class Marks(unittest.TestCase):
    def test_how_dicts_tell(self):
        want = marks.BY_WATCHER if sys.version_info >= (3, 12) else marks.BY_TAG
        for kind in marks._KINDS:
            self.assertEqual(marks.way_for(kind), want, kind)

    @unittest.skipUnless(sys.version_info >= (3, 13), "values do not lie in instances")
    def test_a_dict_that_is_given_a_table_is_as_it_was(self):
        class Owner:
            def __init__(self):
                self.a, self.b, self.c = [1], 2, "three"
        marks.way_for("instance")
        for _ in range(50):
            owner = Owner()
            names, before = vars(owner), list(vars(owner).items())
            walked = iter(names.items())
            found = [next(walked)]
            reads = _C.Reads(object)
            reads.set([(NAMES, marks.BY_WATCHER, names, ("a", "d"), (owner.a, _C.absent))])
            self.assertTrue(reads.holds())
            self.assertEqual(found + list(walked), before)
            self.assertIs(vars(owner), names)
            self.assertEqual((list(names.items()), owner.a is names["a"], owner.c), (before, True, "three"))
            owner.a = [1]
            self.assertFalse(reads.holds())
            self.assertIs(owner.a, names["a"])

    def test_a_write_to_any_of_some_dicts(self):
        """To a key that is read and to one that is not, in any order, whichever dict was written to last."""
        way = marks.way_for("container")
        for count in range(1, 11):
            dicts = [{"value": i, "other": 0} for i in range(count)]
            reads = _C.Reads(object)
            reads.set([(NAMES, way, names, ("value",), (names["value"],)) for names in dicts])
            self.assertTrue(reads.holds())
            for which in (*range(count), *reversed(range(count))):
                dicts[which]["other"] += 1
                dicts[which - 1]["other"] += 1
                self.assertTrue(reads.holds())
                dicts[which]["value"] += 0.5
                dicts[which - 1]["other"] += 1
                self.assertFalse(reads.holds(), (count, which))
                self.assertFalse(reads.holds(), (count, which))
                reads.accept(which, 0, dicts[which]["value"])
                self.assertTrue(reads.holds())

    def test_another_value_at_the_address_of_one_that_is_gone(self):
        class Value:
            __slots__ = ("__weakref__",)
        for way in (0, marks.way_for("container")):
            names, others = {"value": Value(), "other": 0}, []
            reads, address = _C.Reads(object), id(names["value"])
            reads.set([(NAMES, way, names, ("value",), (weakref.ref(names["value"]),))])
            for _ in range(3):
                names["other"] += 1
                self.assertTrue(reads.holds())
            names["value"] = None
            while not others or id(others[-1]) != address:
                self.assertLess(len(others), 1000)
                others.append(Value())
            names["value"] = others.pop()
            self.assertFalse(reads.holds())

    def test_many_dicts_are_written_to_between_two_looks(self):
        way, count = marks.way_for("container"), 75
        dicts = [{"value": i, "other": 0} for i in range(count)]
        reads = _C.Reads(object)
        reads.set([(NAMES, way, names, ("value",), (names["value"],)) for names in dicts])
        self.assertTrue(reads.holds())
        for which in range(count):
            for names in dicts[which % 3:]:
                names["other"] += 1
            self.assertTrue(reads.holds())
            for names in dicts:
                names["other"] += 1
            dicts[which]["value"] += 0.5
            self.assertFalse(reads.holds(), which)
            self.assertEqual(reads.changed(), [(which, 0, dicts[which]["value"])])
            reads.accept(which, 0, dicts[which]["value"])

    def test_a_look_within_a_look(self):
        """By a key that is compared with the one asked for. What it writes is seen by the next look."""
        class Key:
            def __hash__(self):
                return hash("value")

            def __eq__(self, other):
                if writes and other == "value":
                    writes.pop()
                    first["value"] = 2
                    last["other"] += 1
                    nested.append(reads.holds())
                return self is other

        way, nested, writes = marks.way_for("container"), [], []
        for _ in range(8):  # dicts are compared in the order of their addresses
            first, last, middle = {"value": 1, "other": 0}, {"value": 1, "other": 0}, {Key(): 0, "value": 1}
            reads = _C.Reads(object)
            reads.set([(NAMES, way, names, ("value",), (1,)) for names in (first, middle, last)])
            self.assertTrue(reads.holds())
            writes.append(None)
            last["other"] = middle["other"] = 1
            reads.holds()
            self.assertEqual((nested.pop(), reads.holds()), (False, False))
            first["value"] = 1
            self.assertTrue(reads.holds())

    def test_a_write_ahead_of_the_first_look(self):
        way = marks.way_for("container")
        for count in range(1, 11):
            for which in range(count):
                dicts = [{"value": i} for i in range(count)]
                owners = [(NAMES, way, names, ("value",), (names["value"],)) for names in dicts]
                dicts[which]["value"] = -1
                reads = _C.Reads(object)
                reads.set(owners)
                self.assertFalse(reads.holds(), (count, which))

    def test_a_way_that_misses_a_write_is_not_proved(self):
        """Where the dict is another one than is written to, as with values that lie in the instance."""
        for way in (marks.BY_WATCHER, marks.BY_TAG):
            self.assertFalse(marks._proves(way, lambda: ({"value": 0}, (lambda value: None,))))


class Found(unittest.TestCase):
    """The walk: what it finds by names, what it calls it, and what does not matter."""

    def values(self, fn, executed=None):
        self.found = _reads.Values(walked_torch.torch, [(fn, "self")], executed=executed)
        self.before = list(self.found.tokens()[0])
        self.paths = list(self.found.walk.paths)
        return self.found

    def notices(self, change, path=None):
        """It is noticed, named, and the tokens come back with the value."""
        old = (list(self.found.walk.tokens), self.found.walk.paths)
        self.assertTrue(self.found.handle.holds())
        change()
        self.assertFalse(self.found.handle.holds())
        tokens, changed = self.found.tokens()
        self.assertTrue(changed)
        self.assertNotEqual(tokens, old[0])
        if path is not None:
            told = _reads.differences(old, (tokens, self.found.walk.paths))
            self.assertIn(path, [name for name, _ in told])
        self.assertTrue(self.found.handle.holds())

    def comes_back(self):
        self.assertEqual(self.found.tokens()[0], self.before)

    def test_closures_and_what_they_hold(self):
        t, cfg, some = 1.5, {"a": [1, {"b": 2}]}, [1]

        def subject(x):
            return x * t * cfg["a"][1]["b"] * some[0]

        def set_t(value):
            nonlocal t
            t = value
        self.values(subject)
        self.notices(lambda: set_t(2.5), "t")
        self.notices(lambda: set_t(1.5))
        self.comes_back()
        self.notices(lambda: cfg["a"][1].update(b=3), "cfg['a'][1]['b']")
        self.notices(lambda: cfg["a"][1].update(b=2))
        self.comes_back()
        self.notices(lambda: some.append(2))
        self.notices(lambda: some.pop())
        self.comes_back()
        self.assertGreater(self.found.walks, 1)

    def test_an_equal_container_is_the_same(self):
        cfg = {"a": 1}

        def subject():
            return cfg["a"]

        def put(value):
            nonlocal cfg
            cfg = value
        self.values(subject)
        put({"a": 1})
        self.comes_back()
        put({"a": 2})
        self.assertNotEqual(self.found.tokens()[0], self.before)

    def test_begun_anew(self):
        """A new empty container in the place of an empty one costs no walk, and is looked at."""
        for kind, add in ((dict, lambda one: one.update(a=1)), (list, lambda one: one.append(1))):
            owner = types.SimpleNamespace(counts=kind(), other=1)
            self.values(lambda: (owner.counts, owner.other))
            walks = self.found.walks
            for turn in range(3):
                owner.counts, owner.other = kind(), turn
                self.assertFalse(self.found.handle.holds())
                self.assertIs(self.found.tokens()[1], True)
                owner.counts = kind()
                self.assertIs(self.found.tokens()[1], False)
                self.assertTrue(self.found.handle.holds())
            self.assertEqual(self.found.walks, walks)
            self.notices(lambda: add(owner.counts))
            self.assertGreater(self.found.walks, walks)

    def test_begun_anew_under_two_names(self):
        owner = types.SimpleNamespace(counts={})
        owner.same = owner.counts
        self.values(lambda: (owner.counts, owner.same))
        owner.counts = {}
        self.assertNotEqual(self.found.tokens()[0], self.before)
        self.values(lambda: (owner.counts, owner.same))
        owner.counts = owner.same
        self.assertNotEqual(self.found.tokens()[0], self.before)

    @unittest.skipUnless(hasattr(sys, "monitoring"), "runs do not tell of what code asks")
    def test_names_that_are_made_are_asked_of_what_was_asked(self):
        """Other objects have attributes that nobody reads, for all that code asks for."""
        class Asked:
            def __init__(self):
                self.w0, self.w1 = 1, 2

        class Bystander:
            def __init__(self):
                self.turn, self.own = 0, Asked()

        def ask(one, name):
            return getattr(one, name)

        def subject():
            return ask(other.own, "w" + str(0))

        def by_map():
            return list(map(getattr, (other.own,), ("w0",)))
        other = Bystander()
        for fn in (subject, by_map):
            executed = runs.Executed()
            with runs.Run(executed):
                fn()
            self.values(fn, executed)
            self.notices(lambda: setattr(other.own, "w1", other.own.w1 + 1), "other.own.w1")
            other.turn += 1
            self.assertEqual(self.found.handle.holds(), fn is subject, "nobody tells of what map asks")

    def test_globals_and_functions_that_are_called(self):
        global NUMBER
        self.values(lambda x: helper(x))
        self.addCleanup(globals().update, NUMBER=NUMBER)
        self.notices(lambda: globals().update(NUMBER=2.5), "NUMBER")
        self.notices(lambda: globals().update(NUMBER=1.0))
        self.comes_back()

    def test_defaults_and_code(self):
        def inner(x, y=1, *, z={"k": 1}):
            return x + y + z["k"]
        self.values(lambda: inner(1))
        self.notices(lambda: setattr(inner, "__defaults__", (2,)))
        self.notices(lambda: inner.__kwdefaults__["z"].update(k=2), "the defaults of inner['z']['k']")
        self.notices(lambda: setattr(inner, "__code__", (lambda x, y=1, *, z=None: x).__code__))

    def test_objects_by_the_names_that_are_used(self):
        class Config:
            shared = 1

            def __init__(self):
                self.scale, self.calls = 1.5, 0

            @property
            def twice(self):
                return self.scale * 2
        cfg = Config()
        self.values(lambda: [one.twice for one in (cfg,)][0] + (lambda: cfg.shared)())
        self.notices(lambda: setattr(cfg, "scale", 2.5), "cfg.scale")
        self.notices(lambda: setattr(Config, "shared", 2), "Config.shared")
        self.notices(lambda: setattr(cfg, "shared", 3), "cfg.shared")
        cfg.calls = 5
        self.assertTrue(self.found.handle.holds(), "nobody reads it")

    def test_what_it_stored_itself_is_not_read(self):
        """But where a branch goes around that, or it was read before."""
        class Owner:
            def __init__(self):
                self.last = self.kept = self.count = 0

            def run(self, x):
                self.last = x
                if x:
                    self.kept = x
                self.count += 1
                return self.last + self.kept + self.count
        owner = Owner()
        self.values(owner.run)
        owner.last = 5
        self.assertTrue(self.found.handle.holds())
        self.notices(lambda: setattr(owner, "kept", 5), "self.kept")
        self.notices(lambda: setattr(owner, "count", 5), "self.count")

    def test_names_that_are_asked_for(self):
        cfg, names = types.SimpleNamespace(), types.SimpleNamespace(w0=1)

        class Own:
            def __init__(self):
                self.w0 = 1
        own = Own()
        self.values(lambda: getattr(cfg, "scale", 1))
        self.notices(lambda: setattr(cfg, "scale", 2))
        self.values(lambda i: getattr(own, f"w{i}") + getattr(names, "w0"))
        self.notices(lambda: setattr(own, "w0", 2), "own.w0")

    def test_modules(self):
        Module = walked_torch.Module

        class Net(Module):
            def __init__(self):
                super().__init__()
                self.scale = 1.5
                self._modules["0"] = child = Module()
                child.p = 0.5

            def forward(self, x):
                return self.inner(x) * self.scale

            def inner(self, x):
                return x * self.p
        net = Net()
        self.values(net)
        self.assertEqual(self.found.walk.modules, [net, net._modules["0"]])
        self.notices(lambda: setattr(net, "scale", 2.5), "self.scale")
        self.notices(lambda: setattr(net._modules["0"], "p", 0.1), "self[0].p")
        self.notices(lambda: setattr(net, "inner", lambda x: x), "self.inner")
        self.notices(lambda: setattr(Net, "forward", lambda self, x: x))
        self.notices(lambda: net._modules.update(more=Module()))
        net._modules["0"]._forward_hooks[7] = lambda *_: NUMBER
        self.found.look_again()
        self.assertIn("a hook of self[0]", self.found.walk.paths)
        self.notices(lambda: net._modules["0"]._forward_hooks.clear())

    def layers(self):
        """Layers of one class, of which one has an attribute more, and what a net of theirs reads."""
        class Layer(walked_torch.Module):
            kept = 0

            def __init__(self):
                super().__init__()
                self.scale = 1.5

            def forward(self, x):
                return getattr(self, "bias", x) * self.scale + self.kept

        class Net(walked_torch.Module):
            def __init__(self):
                super().__init__()
                self._modules.update((str(i), Layer()) for i in range(6))
                self._modules["3"].other = self._modules["3"].kept = 1
                self._modules["5"].one = self._modules["5"].another = 1

            def forward(self, x):
                return self._modules["0"].forward(x) or self.later()

            def later(self):
                return self.other
        net = Net()
        executed = runs.Executed(map(runs.place_of, (Net.forward.__code__, Layer.forward.__code__)))
        self.values(net, executed)
        return net, list(net._modules.values()), executed

    def scopes_of(self, layers):
        found = {id(scope.object): scope for scope in self.found.walk._scopes}
        return [found[id(layer)] for layer in layers]

    def test_layers_are_looked_up_by_the_same_names(self):
        """Found once, but of one that has other names."""
        net, layers, executed = self.layers()
        for _ in range(2):
            *alike, odd, other = (scopes := self.scopes_of([layers[i] for i in (0, 1, 2, 4, 3, 5)]))
            self.assertEqual(len({id(scope.done) for scope in alike}), 1)
            self.assertEqual(len({id(scope.done) for scope in scopes}), 3)
            for scope in scopes:
                self.assertLessEqual({"scale", "bias", "kept"}, scope.done)
            executed.add(runs.place_of(type(net).later.__code__))
            self.found.look_further()
        self.assertEqual([path for path in self.found.walk.paths if path.endswith(".other")], ["self[3].other"])
        self.assertTrue("other" in odd.done and "other" not in other.done)
        for i, layer in enumerate(layers):
            self.notices(lambda layer=layer: setattr(layer, "scale", 2.5), f"self[{i}].scale")
            self.notices(lambda layer=layer: setattr(layer, "bias", 2.5), f"self[{i}].bias")
            self.notices(lambda layer=layer: setattr(layer, "kept", 2.5), f"self[{i}].kept")

    def test_a_layer_that_came_to_have_more_is_looked_up_by_that(self):
        """Where the others with the same names until then have not."""
        net, layers, executed = self.layers()
        before = {id(layer): scope.done for layer, scope in zip(layers, self.scopes_of(layers))}
        layers[4].other = 2.5
        executed.add(runs.place_of(type(net).later.__code__))
        self.found.look_further()
        self.assertEqual(sorted(path for path in self.found.walk.paths if path.endswith(".other")),
                         ["self[3].other", "self[4].other"])
        self.assertEqual({"other" in done for done in before.values()}, {False}, "those were others' as well")
        scopes = self.scopes_of(layers)
        self.assertEqual(["other" in scope.done for scope in scopes], [False, False, False, True, True, False])
        self.notices(lambda: setattr(layers[4], "other", 3.5), "self[4].other")

    def test_objects_that_are_all_unlike(self):
        class Some:
            def __init__(self, i):
                setattr(self, f"a{i}", i)
                self.p = i
        some = [Some(i) for i in range(300)]

        def subject():
            return [one.p for one in some]
        self.values(subject)
        for i in (0, 150, 299):
            self.notices(lambda i=i: setattr(some[i], "p", -1), f"some[{i}].p")

    def test_only_code_that_ran_is_followed(self):
        t = 1.5

        def other():
            return t

        def subject(flag):
            return other() if flag else 0
        executed = runs.Executed({runs.place_of(subject.__code__)})
        found = self.values(subject, executed)
        self.assertNotIn("t", self.paths)
        executed.add(runs.place_of(other.__code__))
        found.look_again()
        self.assertIn("t", found.walk.paths)

    def test_code_that_ran_meanwhile_is_followed(self):
        t, u = 1.5, 2.5

        def other():
            return t

        def subject(flag):
            return other() if flag else u

        def set_t():
            nonlocal t
            t = 5
        executed = runs.Executed({runs.place_of(subject.__code__)})
        found = self.values(subject, executed)
        executed.add(runs.place_of(other.__code__))
        walk, names = found.walk, found.walk.names
        found.look_further()
        self.assertIs(found.walk, walk)
        self.assertIsNot(found.walk.names, names)
        self.assertEqual(found.walk.paths.count("u"), 1)
        before = list(found.walk.tokens)
        self.notices(set_t, "t")
        t = 1.5
        found.look_again()
        self.assertEqual(found.walk.tokens, before)

    def test_what_came_to_be_meanwhile_is_found(self):
        class Some:
            pass

        def plain():
            return plain.made, MADE_MEANWHILE, Some.made  # noqa: F821

        def subject():
            import fractions_meanwhile  # noqa: F401
            return plain()
        executed = runs.Executed(map(runs.place_of, (subject.__code__, plain.__code__)))
        found = self.values(subject, executed)
        made = types.ModuleType("fractions_meanwhile")
        with mock.patch.dict(sys.modules, fractions_meanwhile=made), mock.patch.dict(
                globals(), MADE_MEANWHILE=1.5):
            plain.made = Some.made = 2.5
            found.look_further()
            self.assertLessEqual({"plain.made", "MADE_MEANWHILE", "Some.made", "fractions_meanwhile"},
                                 set(found.walk.paths))
            plain.made = 3.5
            self.assertTrue(found.tokens()[1])

    def test_names_that_come_to_exist_later(self):
        class Base:
            shared = 1.5

        class Middle(Base):
            def asked(self):
                return getattr(self, "in_case", 1.5)

        class Low(Middle):
            def tried(self):
                try:
                    return self.missing
                except AttributeError:
                    return 1.5

        class Answers:
            def __getattr__(self, name):
                return 1.5

        low, answers, settings = Low(), Answers(), types.ModuleType("settings_made_here")
        with mock.patch.dict(sys.modules, settings_made_here=settings):
            def helper():
                return getattr(helper, "in_case", 1.5)

            def subject():
                try:
                    found = NOT_THERE_YET  # noqa: F821
                except NameError:
                    found = 1.5
                return (low.asked() + low.tried() + low.shared + answers.lacking + helper() + found +
                        getattr(settings, "in_case", 1.5))
            for owner, name in ((low, "in_case"), (Base, "in_case"), (low, "missing"), (Middle, "missing"),
                                (Middle, "shared"), (Low, "asked"), (answers, "lacking"), (Answers, "lacking"),
                                (helper, "in_case"), (settings, "in_case")):
                with self.subTest(owner=owner, name=name):
                    self.values(subject)
                    self.notices(lambda owner=owner, name=name: setattr(owner, name, 2.5))
                    delattr(owner, name)
                    self.comes_back()
            self.values(subject)
            self.notices(lambda: globals().update(NOT_THERE_YET=2.5), "NOT_THERE_YET")
            del globals()["NOT_THERE_YET"]

    def test_what_makes_and_answers_comes_to_be_replaced(self):
        class Base:
            def __init__(self):
                self.value = 1.5

        class Made(Base):
            pass

        class Meta(type):
            def __getattr__(cls, name):
                return 1.5

        class Answers(metaclass=Meta):
            pass
        answering = types.ModuleType("answers_made_here")
        answering.__getattr__ = lambda name: 1.5

        class Held:
            pass
        held = Held()

        def subject():
            return Made().value + Answers.lacking + answering.lacking + vars(held).get("in_case", 1.5)

        def init(self):
            self.value = 2.5
        for owner, name, value in ((Made, "__init__", init), (Base, "__init__", init), (Answers, "lacking", 2.5),
                                   (answering, "lacking", 2.5), (held, "in_case", 2.5)):
            with self.subTest(owner=owner, name=name):
                before = vars(owner).get(name)
                self.values(subject)
                self.notices(lambda owner=owner, name=name, value=value: setattr(owner, name, value))
                delattr(owner, name) if before is None else setattr(owner, name, before)
                self.comes_back()

    def test_calls_of_getattr_that_are_told_no_more(self):
        owner = types.SimpleNamespace()
        owner.some = types.SimpleNamespace(hidden=1.5)

        class Net:
            def __init__(self):
                self.hidden = 1.5

        net = Net()

        def subject(name):
            return getattr(net, name)
        executed = runs.Executed({runs.place_of(subject.__code__)})
        executed.asked = set()
        found = self.values(subject, executed)
        self.assertNotIn("net.hidden", found.walk.paths)
        executed.asked = {"Found.test_calls_of_getattr_that_are_told_no_more.<locals>.Net"}
        found.look_further()
        self.assertIn("net.hidden", found.walk.paths)
        found = self.values(subject, executed)
        executed.asked = None
        found.look_further()
        self.assertTrue(found.walk.dynamic)

    def test_locks_are_asked_once_code_names_that(self):
        lock = threading.Lock()

        def later():
            return lock.locked()

        def subject(flag):
            with lock:
                return later() if flag else 0
        executed = runs.Executed({runs.place_of(subject.__code__)})
        found = self.values(subject, executed)
        self.assertNotIn("lock.locked()", found.walk.paths)
        executed.add(runs.place_of(later.__code__))
        found.look_further()
        self.assertIn("lock.locked()", found.walk.paths)

    def test_what_nobody_keeps_takes_another_walk(self):
        variable = contextvars.ContextVar("variable")
        token = variable.set((1, 2))
        self.addCleanup(variable.reset, token)
        executed = runs.Executed()
        self.assertTrue(self.values(lambda: 1, executed).walk.can_go_on)

        def subject():
            return variable.get()
        executed.add(runs.place_of(subject.__code__))
        found = self.values(subject, executed)
        walk = found.walk
        self.assertFalse(walk.can_go_on)
        found.look_further()
        self.assertIsNot(found.walk, walk)

    def test_tensors_are_seen_and_not_kept(self):
        walk = _C.Walk()
        walk._tensor_class = walked_torch.Tensor
        tensor, kept = walked_torch.Tensor(), object()
        walk.hold(tensor)
        walk.hold(kept)
        walk.weaken()
        self.assertTrue(walk.is_seen(tensor) and walk.is_seen(kept))
        at, reference = id(tensor), weakref.ref(tensor)
        del tensor
        self.assertIsNone(reference())
        others = [walked_torch.Tensor() for _ in range(1000)]
        self.assertFalse(any(map(walk.is_seen, others)))
        for other in others:
            walk.hold(other)
        self.assertTrue(all(map(walk.is_seen, others)), at in map(id, others))
        walk.let_go()
        self.assertFalse(walk.is_seen(kept))

    def test_what_wraps_others(self):
        t, variable = 1.5, contextvars.ContextVar("variable", default=1)

        @functools.lru_cache(maxsize=None)
        def cached():
            return t + variable.get()

        def set_t():
            nonlocal t
            t = 5
        part = functools.partial(cached)
        self.values(lambda: part())
        self.notices(set_t, "t")
        token = []
        self.notices(lambda: token.append(variable.set(2)), "variable.get()")
        variable.reset(token[0])

    def test_containers_of_all_sorts(self):
        sets, deque, raw = {1, 2}, collections.deque([1]), bytearray(b"abc")
        view = types.MappingProxyType(behind := {"a": 1})
        self.values(lambda: (sets, deque, raw, view))
        self.notices(lambda: sets.add(3))
        self.notices(lambda: deque.append(2))
        self.notices(lambda: raw.__setitem__(0, 1))
        self.notices(lambda: behind.update(a=2))

    def test_environment(self):
        with mock.patch.dict(os.environ):
            self.values(lambda: os.getenv("REPRISE_TESTED"))
            self.notices(lambda: os.environ.update(REPRISE_TESTED="1"))
            self.values(lambda: os.environ["REPRISE_TESTED"])
            self.notices(lambda: os.environ.pop("REPRISE_TESTED"))

    @unittest.skipIf(numpy is None, "needs NumPy")
    def test_arrays(self):
        some, large = numpy.ones(3), numpy.zeros(_walk.MOST_ARRAY)
        self.values(lambda: some)
        self.notices(lambda: some.__setitem__(1, 5))
        walk = self.values(lambda: large).walk
        self.assertIn("the NumPy array `large`", walk.obstacles[0])

    def test_limits_are_told(self):
        large = list(range(_walk.MOST_ITEMS + 1))
        walk = self.values(lambda: large).walk
        self.assertIn("`large`", walk.cautions[0])
        self.notices(lambda: large.append(1))
        with mock.patch.object(_walk, "MOST_VALUES", 5):
            some = list(range(10))
            self.assertIn("more than 5 values", self.values(lambda: (some, large)).walk.obstacles[0])

    def test_iterators(self):
        it = iter([1, 2])
        walk = self.values(lambda: next(it)).walk
        self.assertEqual(walk.iterators, [(it, "it")])

    def test_mocks_are_no_iterators(self):
        """Programs put one in the place of a library that is missing; it has each method that is asked for."""
        library = mock.MagicMock()

        class Tracker(library.Tracker):
            """Made by the mock: an object of its class."""

        walk = self.values(lambda: (library, Tracker)).walk
        self.assertEqual((walk.iterators, walk.obstacles), ([], []))
        self.assertIn("Tracker", walk.paths)

    def test_a_cycle_ends(self):
        some = []
        some.append(some)
        self.values(lambda: some)
        self.notices(lambda: some.append(1))

    def test_what_cannot_be_looked_through(self):
        class Odd:
            @property
            def __dict__(self):
                raise ValueError("mine")
        odd = Odd()
        with self.assertRaisesRegex(_reads.Unreadable, "ValueError: mine"):
            self.values(lambda: odd.name)


class Numbers(unittest.TestCase):
    """Reads: the same number for the same values."""

    def setUp(self):
        patcher = mock.patch.object(_reads.switches, "of", lambda torch: None)
        self.addCleanup(patcher.stop)
        patcher.start()

    def test_what_runs_change_themselves_tells_no_calls_apart(self):
        kept, log, other = types.SimpleNamespace(calls=0, scale=1.0), [], {"scale": 1.0}

        def fn():
            return kept.calls, kept.scale, log[0], other["scale"]
        reads = _reads.Reads(walked_torch.torch, fn)
        first = reads.state()
        reads.leave_out([(kept.__dict__, "calls"), (log, None)])
        self.assertEqual(reads.state(), first)
        kept.calls += 1
        log.append(1)
        self.assertEqual(reads.state(), first)
        kept.scale = 2.0
        second = reads.state()
        other["scale"] = 2.0
        self.assertEqual(len({first, second, reads.state()}), 3)
        kept.scale, other["scale"] = 1.0, 1.0
        self.assertEqual(reads.state(), first)

    def test_tensors_of_the_device_are_the_programs_to_free(self):
        class Device(walked_torch.torch.Tensor):
            device = type("", (), {"type": "cuda"})
            shape = dtype = requires_grad = None
            stride = data_ptr = staticmethod(lambda: 64)
        kept = {"tensor": Device()}
        reads = _reads.Reads(walked_torch.torch, lambda: kept["tensor"])
        first = reads.state()
        self.assertEqual(reads.state(), first)
        gone = weakref.ref(kept["tensor"])
        kept["tensor"] = None
        gc.collect()
        self.assertIsNone(gone())
        self.assertNotEqual(reads.state(), first)

    def test_a_value_that_comes_back_has_its_number(self):
        t = 1

        def put(value):
            nonlocal t
            t = value
            return reads.state()
        reads = _reads.Reads(walked_torch.torch, lambda: t)
        self.assertEqual([put(v) for v in (1, 2, 1, 1.0, 2, True)], [0, 1, 0, 2, 1, 3])

    def test_code_that_runs_later_leaves_the_number(self):
        t = 1

        def other():
            return t

        def subject():
            return other()

        def put(value):
            nonlocal t
            t = value
        reads = _reads.Reads(walked_torch.torch, subject)
        first = reads.state()
        put(2)
        self.assertEqual(reads.state(), first, "nothing that ran reads it")
        self.assertEqual(reads.eager_call(subject, (), {}), 2)
        self.assertEqual(reads.state(), first)
        put(3)
        self.assertNotEqual(reads.state(), first)
        put(2)
        self.assertEqual(reads.state(), first)

    def test_code_that_a_compiler_took_in_is_followed(self):
        """Nobody sees it run."""
        t = 1

        def helper_taken_in():
            return t

        def subject():
            return helper_taken_in()

        def put(value):
            nonlocal t
            t = value
        for is_compiled in (False, True):
            if is_compiled:
                subject._torchdynamo_orig_callable = subject
            put(1)
            reads = _reads.Reads(walked_torch.torch, subject)
            first = reads.state()
            put(2)
            self.assertEqual(reads.state() != first, is_compiled)
        with mock.patch.object(_values, "MOST_UNSEEN", 3), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            _reads.Reads(walked_torch.torch, subject).state()
        self.assertIn("too much to follow", str(said[0].message))

    def made_alike(self, held):
        """A callable; others that this makes have the same code."""
        def read_held():
            return held["value"], held["rest"]

        def subject(reads=False):
            return read_held() if reads else held["value"]
        return subject

    def captured(self, subject, *args):
        """Its Reads, behind two calls of which the second was captured."""
        reads = _reads.Reads(walked_torch.torch, subject)
        reads.state()
        reads.eager_call(subject, args, {})
        reads.state()
        reads.learn([])
        return reads

    def test_code_that_callables_alike_executed_is_followed(self):
        self.captured(self.made_alike({"value": 1, "rest": 2}), True)
        held = {"value": 1, "rest": 2}
        subject = self.made_alike(held)
        reads = _reads.Reads(walked_torch.torch, subject)
        reads.state()
        self.assertIn("read_held", {name for _, _, name in reads.executed})
        reads.eager_call(subject, (True,), {})
        reads.state()
        self.assertEqual(reads.walks, 1)
        alone = _reads.Reads(walked_torch.torch, self.made_alike([1]))
        self.assertNotIn("read_held", {name for _, _, name in alone.executed}, "its closure holds a list")

    def behind_a_first_call(self, subject, ran=()):
        """Its Reads, and whether the walk of its first call goes on to what that executed."""
        reads = _reads.Reads(walked_torch.torch, subject)
        reads.state()
        walk, learned = reads.values.walk, reads.executed.size
        reads.eager_call(subject, (), {})
        reads.executed.update(ran)  # before CPython 3.12 nobody tells what a compiled callable executes
        self.assertNotEqual(reads.executed.size, learned)
        reads.state()
        return reads, reads.values.walk is walk

    def test_a_walk_goes_on_behind_a_first_call(self):
        t, held = 1.5, types.SimpleNamespace(value=1.5)
        foreign = {}
        exec(compile("def wrap():\n    inner = None\n    def call():\n        return inner and inner()\n"
                     "    def fill():\n        nonlocal inner\n        inner = made\n        made()\n    return call, fill",
                     os.__file__, "exec"), foreign)
        call, fill = foreign["wrap"]()

        class Some:
            value = 1.5
        some = Some()

        def later():
            return t

        foreign["made"] = later

        def helper_here():
            return held.value, some.value, call()

        def subject(change=None):
            return helper_here(), change and change()

        def bare():
            return helper_here()

        def set_t(value):
            nonlocal t
            t = value

        def add_method():
            Some.__call__ = later

        def case(change):
            return self.behind_a_first_call(lambda: (held.value, some.value, call, subject(change)))
        reads, went_on = case(None)
        self.assertTrue(went_on)
        numbers = [reads.state()]
        for change in (lambda: setattr(held, "value", 2.5), lambda: setattr(held, "value", 1.5)):
            change()
            numbers.append(reads.state())
        reads.values.look_again()
        self.assertEqual(numbers, [0, 1, 0])
        self.assertFalse(case(lambda: held.__dict__.update(value=held.value + 1))[1], "it is compared")
        self.assertFalse(case(add_method)[1], "nobody compares it")
        del Some.__call__
        bare._torchdynamo_orig_callable = bare
        with mock.patch.object(_values, "MOST_UNSEEN", 1):
            self.assertFalse(self.behind_a_first_call(bare, [runs.place_of(helper_here.__code__)])[1],
                             "compilers change what nobody compares")
        reads, went_on = case(fill)
        self.assertTrue(went_on)
        first = reads.state()
        set_t(2.5)
        self.assertNotEqual(reads.state(), first, "what somebody else's function is around came to be")

    def test_code_of_callables_alike_that_stands_in_the_way_is_not_followed(self):
        self.captured(self.made_alike({"value": 1, "rest": 2}), True)
        held = {"value": 1, "rest": (ctypes.c_char * (_walk.MOST_ARRAY + 1))()}

        def make():
            def read_held():
                return held["value"]
            return read_held
        with mock.patch.object(_reads.alike, "alike", lambda torch, fn: "alike"):
            _reads.alike.learn("alike", runs.Executed({runs.place_of(make().__code__)}))

            def subject(reads=False, read_held=make()):
                return read_held() if reads else 1
            reads = _reads.Reads(walked_torch.torch, subject)
            first = reads.state()
            self.assertEqual(reads.state(), first)
            self.assertNotIn("read_held", {name for _, _, name in reads.executed})

    def test_what_was_found_of_the_same_object_is_taken(self):
        held = {"value": 1, "rest": 2}
        subject = self.made_alike(held)
        first = self.captured(subject)
        with mock.patch.object(_values.Values, "look_again", side_effect=AssertionError("it was found before")):
            further = _reads.Reads(walked_torch.torch, subject)
            before = further.state()
            self.assertEqual(further.state(), before)
            self.assertEqual(further.snapshot(), first.snapshot())
            held["value"] = 3
            self.assertNotEqual(further.state(), before)
            self.assertNotEqual(further.snapshot(), first.snapshot())
            self.assertNotEqual(first.state(), 0)
            held["value"] = 1
            self.assertEqual((further.state(), first.state()), (before, 0))

    def test_what_was_found_is_looked_for_where_it_changed(self):
        held = {"value": 1, "rest": 2}
        subject = self.made_alike(held)
        first = self.captured(subject)
        held["value"] = 3
        further = _reads.Reads(walked_torch.torch, subject)
        further.state()
        self.assertNotEqual(further.snapshot(), first.snapshot())
        first.leave_out([(held, "value")])
        other = _reads.Reads(walked_torch.torch, subject)
        other.state()
        self.assertEqual(other.snapshot(), further.snapshot(), "it leaves nothing out")

    def test_arguments_by_what_they_hold(self):
        reads = _reads.Reads(walked_torch.torch, lambda cfg: cfg.scale)
        reads.state()

        def cfg(scale):
            return types.SimpleNamespace(scale=scale, held=[1])
        one = cfg(1)
        first = reads.argument(one)
        self.assertEqual(reads.argument(cfg(1)), first)
        self.assertNotEqual(reads.argument(cfg(2)), first)
        one.held.append(2)
        self.assertNotEqual(reads.argument(one), first)
        with self.assertRaisesRegex(_reads.Unreadable, "is an iterator"):
            reads.argument(iter([1]))


class Stands(functools.partial):
    """For what it calls, of which nothing but this tells."""

    def __getattr__(self, name):
        return getattr(self.func, name)


class Plain:
    def __call__(self):
        return self

    def method(self):
        return self


class Effects(unittest.TestCase):
    """What a replay would not do again."""

    def run_of(self, fn, refuses=True, iterators=()):
        """What it raised, or the effects that were noted."""
        run = runs.Run(runs.Executed(), iterators, refuses)
        try:
            with run:
                fn()
        except runs.Effect as error:
            return str(error)
        return run.effects

    def test_they_are_refused_before_they_take_place(self):
        out, done, log = io.StringIO(), [], io.StringIO()
        own, state = random.Random(3), random.getstate()
        for fn, what in ((lambda: print("x", file=out), "prints"), (lambda: random.random(), "Python's"),
                         (lambda: random.randint(1, 6), "Python's"), (lambda: own.shuffle([1, 2]), "Python's"),
                         (lambda: time.perf_counter(), "time.perf_counter"), (lambda: os.urandom(1), "urandom"),
                         (lambda: log.write("x"), "a file"), (lambda: open(os.devnull), "opens a file")):
            told = self.run_of(lambda fn=fn: (fn(), done.append(what)))
            self.assertIn(what, told)
            self.assertRegex(told, r"\(at .*test_reads\.py:\d+ in ")
            self.assertIn("a replay would not do again", told)
        self.assertEqual((out.getvalue(), log.getvalue(), done, random.getstate() == state),
                         ("", "", [], True))

    def test_they_are_told_behind_others_of_the_same_types(self):
        log, own, plain = io.StringIO(), random.Random(3), Plain()
        stands, stands_for_none = Stands(own.random), Stands(own.getstate)
        cases = [("a file", lambda: log.getvalue(), lambda: log.write("x")),
                 ("a file", lambda: log.tell(), lambda: io.StringIO.write(log, "x")),
                 ("Python's", lambda: own.getstate(), lambda: own.random()),
                 ("time.time", lambda: plain().method(), lambda: time.time())]
        if hasattr(sys, "monitoring"):
            cases.append(("Python's", lambda: stands_for_none(), lambda: stands()))
        if numpy is not None:
            cases.append(("NumPy's", lambda: own.getstate(), lambda: numpy.random.rand()))
        for what, before, fn in cases:
            self.assertEqual(self.run_of(lambda before=before: (before(), before())), [])
            self.assertIn(what, self.run_of(lambda before=before, fn=fn: (before(), before(), fn())))
        self.assertEqual(log.getvalue(), "")

    def test_what_is_called_is_not_kept(self):
        found = []

        def subject():
            for _ in range(2):
                made = Plain()
                made().method()
                bound = functools.partial(made.method)
                bound()
                found.append(weakref.ref(made))
                del made, bound
        run = runs.Run(runs.Executed(), refuses=True)
        with run:
            subject()
            self.assertEqual([one() for one in found], [None, None])
        self.assertEqual(run.effects, [])

    def test_an_error_that_is_caught_is_raised_all_the_same(self):
        def subject():
            try:
                random.random()
            except Exception:
                pass
        self.assertIn("Python's", self.run_of(subject))

    def test_an_eager_run_notes_them(self):
        before = random.getstate()
        self.assertIn("Python's", self.run_of(random.random, refuses=False)[0]
                      if self.run_of(lambda: random.random(), refuses=False) else "")
        self.assertNotEqual(random.getstate(), before)

    def test_what_is_no_effect(self):
        def subject():
            return [next(iter([1])), sorted([2, 1]), "x".join("ab"), {}.get(1), time.strftime]
        self.assertEqual(self.run_of(subject), [])
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            with mock.patch("sys.stderr", io.StringIO()):
                self.assertEqual(self.run_of(lambda: warnings.warn("one", stacklevel=1)), [])

    def test_iterators_from_outside(self):
        it, other = iter([1, 2, 3]), (i for i in range(3))
        known = ((it, "it"), (other, "other"))
        self.assertIn("`it`" if hasattr(sys, "monitoring") else "moves the iterator",
                      self.run_of(lambda: next(it), iterators=known))
        self.assertEqual(next(it), 1, "it was not moved")
        for subject, path in ((it, "it"), (other, "other")):
            run = runs.Run(runs.Executed(), known)
            with run:
                for _ in subject:
                    break
            self.assertIn(f"`{path}`", run.unseen[0])

    @unittest.skipIf(numpy is None, "needs NumPy")
    def test_random_numbers_of_numpy(self):
        self.assertIn("NumPy's", self.run_of(lambda: numpy.random.rand()))

    def test_nobody_imports_the_random_numbers_of_numpy(self):
        package, module = types.ModuleType("numpy"), types.ModuleType("numpy.random")
        package.random, module.RandomState = module, random.Random
        module.get_state = lambda: ("MT19937", memoryview(b"1234"), 0)
        with mock.patch.dict(sys.modules, {"numpy": package}):
            sys.modules.pop("numpy.random", None)
            self.assertIsNone(runs._numpy_state())
            self.assertEqual(self.run_of(lambda: sys.modules.update({"numpy.random": module}), refuses=False), [])
            del sys.modules["numpy.random"]
            with self.assertRaisesRegex(runs.Effect, "NumPy's"), runs.Run(runs.Executed(), refuses=True):
                sys.modules["numpy.random"] = module

    def test_code_that_runs_is_noted(self):
        executed = runs.Executed()
        with runs.Run(executed):
            helper(1)
        self.assertIn(runs.place_of(helper.__code__), executed)

    def test_each_run_is_told_what_earlier_ones_were(self):
        """Of the same code: what was said of it is kept, and what it does is not."""
        def subject(name):
            return helper(1), getattr(Plain, name), list(map(getattr, [1], ["real"]))

        def constant():
            return getattr(Plain, "method", None)
        for _ in range(3):
            executed, other = runs.Executed(), runs.Executed()
            with runs.Run(executed):
                subject("method")
            with runs.Run(other):
                constant()
            self.assertLessEqual({runs.place_of(f.__code__) for f in (subject, helper)}, executed)
            if hasattr(sys, "monitoring"):
                self.assertEqual((executed.asked, other.asked), (None, set()), "by map nobody tells of what")
                with runs.Run(executed := runs.Executed()):
                    (lambda name: getattr(Plain, name))("method")
                self.assertEqual(executed.asked, {Plain.__qualname__})

    def test_events_that_python_is_told_of(self):
        """As sys.monitoring tells of them, on whatever interpreter."""
        def constant():
            return getattr(Plain, "method", None)

        def made(name):
            return getattr(Plain, name)

        def seed():
            pass
        calls, starts = [], []
        for _ in range(2):  # runs, which share what was said of code
            told = runs._told(lambda *event: calls.append(event[2:]), "no more", lambda *event: starts.append(event[0]))
            answers = [told.call(code.__code__, 0, function, first) for code, function, first in (
                (constant, getattr, Plain), (made, getattr, Plain), (constant, map, getattr), (constant, print, 1),
                (functools.wraps, getattr, Plain))]
            answers += [told.start(code.__code__, 0) for code in (constant, functools.wraps)]
            self.assertEqual(answers, [None] * 6 + ["no more"])
            with mock.patch.object(runs, "is_foreign_file", lambda file: True):
                told.start(seed.__code__, 0)
            self.assertEqual(calls, [(getattr, Plain), (map, getattr), (print, 1)])
            self.assertEqual(starts, [constant.__code__, seed.__code__])
            calls.clear()
            starts.clear()

    def test_objects_that_stand_for_functions_are_asked_again(self):
        """By a class that comes to have a method for that, or has one of its metaclass."""
        class Meta(type):
            def __getattr__(cls, name):
                raise AttributeError(name)

        class Later(metaclass=Meta):
            def __call__(self):
                return 1

        class Layer(Later):
            pass
        self.assertTrue(all(runs._is_harmless(kind, True) for kind in (Later, Layer, Plain)))
        Later.__getattr__ = lambda self, name: getattr(random, name)
        self.assertFalse(any(runs._is_harmless(kind, True) for kind in (Later, Layer, Stands)))
        del Later.__getattr__
        Later.__getattribute__ = object.__getattribute__
        self.assertFalse(runs._is_harmless(Layer, True))

    def test_what_others_ask_for_is_not_noted(self):
        """Code of Python's asks for attributes all the time, and is not looked at."""
        executed, asked = runs.Executed(), []
        note = runs._Askers._note

        def counted(askers, how):
            asked.append(how)
            note(askers, how)
        with mock.patch.object(runs._Askers, "_note", counted), runs.Run(executed, refuses=True):
            found = inspect.unwrap(lambda: 1), operator.attrgetter, copy.copy([1])
        self.assertEqual((len(asked), executed.made), (0, set()))
        with mock.patch.object(runs._Askers, "_note", counted), runs.Run(executed, refuses=True):
            getattr(found, "made_" + str(len(found)), None)
        self.assertEqual((len(asked), executed.made), (1, {"made_3"}))

    def test_an_interrupt_leaves_no_lock_held(self):
        """While this package says what a call is that the interpreter tells of, as the end of a lock's block."""
        lock, asked, said = threading.Lock(), [], runs._is_harmless

        def interrupted(kind, is_called):
            if kind is type(lock) and not asked:
                asked.append(lock.locked())
                signal.raise_signal(signal.SIGINT)
            return said(kind, is_called)

        def subject():
            with lock:
                pass
            return lock.locked()
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, handler)
        with mock.patch.object(runs, "_is_harmless", interrupted):
            with self.assertRaises(KeyboardInterrupt), runs.Run(runs.Executed(), refuses=True):
                subject()
        self.assertEqual((asked, lock.locked()), ([True], False))

    def test_a_profiler_goes_on(self):
        seen = []

        def profile(frame, event, argument):
            seen.append(event)
        sys.setprofile(profile)
        try:
            with runs.Run(runs.Executed()):
                helper(1)
            self.assertIs(sys.getprofile(), profile)
        finally:
            sys.setprofile(None)

    def test_a_run_within_a_run(self):
        outer, inner = runs.Executed(), runs.Executed()
        with runs.Run(outer), runs.Run(inner), runs.Run(runs.Executed()):
            helper(1)
        for executed in (outer, inner) if hasattr(sys, "monitoring") else ():
            self.assertIn(runs.place_of(helper.__code__), executed)

    def test_what_looks_at_a_run_is_no_part_of_it(self):
        run = runs.Run(runs.Executed(), refuses=True)
        with run:
            run.ending(lambda placed: None)(None)
            time.time()
        with self.assertRaises(runs.Effect), run:
            run.ending(lambda placed: time.time())(None)

    def told_until(self, begin, end):
        """What the interpreter tells of goes on living while Python is asked, though the run ends meanwhile. begin(told)
        registers what tells, and end() takes it back."""
        lived = []

        class Answer:
            pass

        def asked(*_):
            end()
            lived.append(answer() is not None)
            return True
        kept = Answer()
        answer = weakref.ref(kept)
        told = _C.Told(asked, frozenset(), kept, asked, (asked, asked, asked), asked, runs._KINDS, (getattr, hasattr))
        del kept
        begin(told)
        del told
        eval("len('a fresh piece of code')")
        end()
        self.assertEqual(lived[:1], [True])
        self.assertIsNone(answer())

    def test_a_run_that_ends_while_its_profile_is_told(self):
        self.told_until(lambda told: sys.setprofile(told.profile), lambda: sys.setprofile(None))

    @unittest.skipUnless(hasattr(sys, "monitoring"), "CPython has no sys.monitoring")
    def test_a_run_that_ends_while_an_event_is_told(self):
        tool, events = sys.monitoring.PROFILER_ID, sys.monitoring.events
        sys.monitoring.use_tool_id(tool, "test")
        self.addCleanup(sys.monitoring.free_tool_id, tool)

        def end():
            sys.monitoring.set_events(tool, 0)
            sys.monitoring.register_callback(tool, events.PY_START, None)
            sys.monitoring.register_callback(tool, events.CALL, None)
        for event, name in ((events.PY_START, "start"), (events.CALL, "call")):
            with self.subTest(name):
                def begin(told, event=event, name=name):
                    sys.monitoring.register_callback(tool, event, getattr(told, name))
                    sys.monitoring.set_events(tool, event)
                self.told_until(begin, end)


class New(unittest.TestCase):
    """Values that are new at every call."""

    def setUp(self):
        self.news = news.News()
        self.reads = types.SimpleNamespace(snapshot=lambda: ([self.token], ["self.scale"]))
        self.token = (float, "0.5")

    def call(self, key, known=False, value=1):
        self.news.notice("family", key, known, ((int, value),), self.reads, lambda: ["t"])
        return self.news.why("family")

    def test_the_argument_is_named(self):
        told = [self.call(i, value=i) for i in range(news.MOST_NEW + 1)]
        self.assertEqual(told[:-1], [None] * news.MOST_NEW)
        self.assertIn(f"the argument `t` (now {news.MOST_NEW})", told[-1])
        self.assertNotIn("self.scale", told[-1])
        self.assertIsNone(self.news.why("other"))

    def test_what_is_read_is_named(self):
        for i in range(news.MOST_NEW + 1):
            self.token = (float, repr(i / 2))
            told = self.call(i)
        self.assertIn("`self.scale`, which it reads, (now 4.0)", told)

    def test_a_value_that_was_met_before_begins_anew(self):
        for i in range(5 * news.MOST_NEW):
            self.assertIsNone(self.call(i, known=i % 5 == 4))
        for i in range(5 * news.MOST_NEW):
            self.assertIsNone(self.call(1000 + i // 2))

    def test_names_of_leaves(self):
        def subject(x, pair, **more):
            pass
        self.assertEqual(news.names_of_leaves(subject, (1, (2, {"k": 3})), {"late": [4]}),
                         ["x", "pair[0]", "pair[1]['k']", "late[0]"])


class Kept(unittest.TestCase):
    """At most so many graphs: the one that was not used for longest goes."""

    def test_the_least_recently_used_goes(self):
        class Shape:
            given = ()

            def __init__(self):
                self.replays, self.used_before = 0, -1
                self.graph = self

            def parts(self):
                return (self,)

            def info(self):
                return {"replays": self.replays}
        made = graphed.Graphed.__new__(graphed.Graphed)
        made._shapes, made._max_shapes = {}, 3
        give_fast_path(made)
        shapes = [Shape() for _ in range(6)]
        for i in range(4):
            made._keep(i, shapes[i])
            shapes[i].replays += 1
        self.assertEqual(len(made._shapes), 3)
        kept = [shapes.index(s) for s in made._shapes.values()]
        shapes[kept[0]].replays += 1  # the oldest
        made._keep(4, shapes[4])
        self.assertIn(shapes[kept[0]], made._shapes.values())
        self.assertNotIn(shapes[kept[1]], made._shapes.values())
        self.assertIn(shapes[4], made._shapes.values())


if __name__ == "__main__":
    unittest.main()
