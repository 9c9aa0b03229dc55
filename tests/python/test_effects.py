# SPDX-License-Identifier: MIT
"""What a run changes of Python state: it is found, named and put back."""

import collections
import collections.abc
import contextlib
import copy
import dataclasses
import functools
import gc
import random
import signal
import threading
import types
import unittest
import weakref
from unittest import mock

try:
    import torch
except ImportError:
    torch = None

import reprise
from reprise import _C
from reprise._effects.containers import MOST_REGIVEN, Containers, Regiven
from reprise._effects.assignments import kind_of
from reprise._effects.effects import Changed, Effects, Unobserved
from reprise._base.interrupts import Interrupts, is_of_handler, let_through
from reprise._effects import kept as kept_records, python_state
from reprise._effects.growth import Step, Tail, during, tail_of
from reprise._effects.python_state import Mapping, Path, Slot
from reprise._effects.reach import Reach
from reprise._effects.refusals import ATTEMPTS, FIRST_REST, MOST_FAILED, MOST_REFUSED, Refusals, traced_call
from reprise._effects.unread import Covered, StandIn, stand_in_for
from reprise._base.tree import argument_names, flatten
from unseen import Unseen
import walked_torch

COUNTER = 0
TABLE = {"calls": 0}
holder = None  # what the runs change


class Kept:
    __slots__ = ("value", "other")
    shared = []

    def __init__(self):
        self.value = 1


class StandIns(unittest.TestCase):
    """In the places that nobody reads: whoever does gets the program's value."""

    def test_it_answers_as_the_value_does(self):
        for value in (3, -1.5, True, None, "name", b"", (1, 2), [3], {"a": 1}, 1j):
            made = stand_in_for(value)
            self.assertIsNot(made, value)
            self.assertIsInstance(made, type(value))
            self.assertEqual((made, bool(made), repr(made), f"{made}", copy.copy(made)),
                             (value, bool(value), repr(value), f"{value}", value))
            self.assertEqual(made != value, False)
            if isinstance(value, collections.abc.Hashable):
                self.assertEqual(hash(made), hash(value))
            if isinstance(value, collections.abc.Sized):
                self.assertEqual((len(made), list(made)), (len(value), list(value)))
        self.assertEqual((StandIn(3) + 1, 1 + StandIn(3), -StandIn(3), StandIn(3) < 4, [1, 2, 3, 4][StandIn(3)]),
                         (4, 4, -3, True, 4))
        self.assertEqual((1 - StandIn(3), divmod(7, StandIn(3)), 1 << StandIn(2), [0] + StandIn([1]), ",".join(
            [stand_in_for("a")]), (1,) + stand_in_for((2,))), (-2, (2, 1), 4, [0, 1], "a", (1, 2)))
        self.assertEqual((StandIn("a").upper(), "b" in StandIn({"b": 1}), StandIn([5])[0]), ("A", True, 5))

    def test_what_was_set_and_what_was_not(self):
        names = {"set": 1, "same": 2, "left": 3}
        records = [python_state.Names(names, None)]
        for name in names:
            records[0].add(name)
        covered = Covered([(records[0], records[0].slot(name)) for name in names])
        covered.put()
        names["set"], names["same"] = 5, 2
        self.assertEqual([slot.key for _, slot in covered.take_away()], ["set", "same"])
        self.assertEqual(names, {"set": 5, "same": 2, "left": 3})
        self.assertIs(type(names["left"]), int)


class Ordered(collections.OrderedDict):
    """Whose items are not what its methods say."""

    def __setitem__(self, key, value):
        super().__setitem__(key, (value, "changed"))


@dataclasses.dataclass
class Config:
    size: int
    parts: list


class Cache:
    def __init__(self):
        self.layers = [Config(0, []), Config(1, [])]

    def update(self):
        self.layers[1].parts.append("more")
        self.layers[0].size += 1


class Net(walked_torch.Module):
    pass


def records_of(fn, *arguments):
    reach = Reach(torch)
    for argument in arguments:
        reach.follow(argument, None)
    reach.follow(fn, None)
    reach.follow_generators()
    return reach.finish()


class Device(walked_torch.Tensor):
    """A tensor of the device."""
    is_cuda, layout, alias, device = True, "strided", 0, types.SimpleNamespace(type="cuda")
    is_inference, numel = staticmethod(lambda: False), staticmethod(lambda: 4)
    _version = 0

    def __init__(self, address):
        self.data_ptr = lambda: address

    def detach(self):
        Device.alias += 1
        return types.SimpleNamespace(device=self.device)

    attributes: dict = {}
    __dict__ = property(lambda self: self.attributes)


class Further(unittest.TestCase):
    """What a capture found, taken by the next one of the same callable."""

    torch = types.SimpleNamespace(**vars(walked_torch.torch), Generator=type("Generator", (), {}), strided="strided")

    def reached(self, fn, *arguments):
        reach = Reach(self.torch)
        reach.sum_up_empties()
        reach.note()
        reach.follow(fn, Path(None, "", "fn"))
        self.assertTrue(kept_records.Kept.may_be(reach))
        made = kept_records.Kept(fn, reach)
        reach.finish()
        return made

    def owners(self, records):
        return {(type(r).__name__, id(r.owner)) for r in records} | {
            id(owner) for r in records if r.owner is None for owner in r.held[::3]}

    def taken(self, fn, change):
        """Were the records taken, which the change may not have made others?"""
        kept = self.reached(fn)
        self.assertTrue(kept.put(()))
        change()
        records = kept.take()
        if records is not None:
            self.assertEqual(self.owners(records), self.owners(self.reached(fn)._own))
            self.assertEqual(_C.touched(records), [])
        self.assertIsNone(kept.take(), "once")
        return records is not None

    def test_records_are_taken_where_a_walk_would_find_the_same(self):
        class Base:
            pass

        class Other(Base):
            pass

        class Layer(Net):
            shared = {"a": [1]}

            def forward(self, x, *, scale=None, sizes=[]):  # noqa: B006
                return self.helper(x), COUNTER, LATER, scale, sizes  # noqa: F821

            def helper(self, x):
                return x

        class Some(Base):
            def __init__(self):
                self.value = [1]
        net, some, slots, ordered, cell = Layer(), Some(), Kept(), collections.OrderedDict(a=1), 1
        net.some, net.slots, net.ordered, net.set, net.deque = some, slots, ordered, {1}, collections.deque([1])
        net.partial, net.row = functools.partial(max, key=None), ([1],)
        net._modules["inner"] = Layer()

        @functools.lru_cache
        def cached(x):
            return x  # nothing that leads on

        def inner(x):
            return cell

        exec("def aside():\n    return LATER", elsewhere := {"__name__": "made_here"})
        aside = elsewhere["aside"]  # it names what this module has not, before others do

        def fn(x, more=[1]):  # noqa: B006
            return aside, net(x), inner(x), cached(x)

        exec("def foreign():\n    pass", of_python := {"__name__": "os"})
        net.foreign = foreign = functools.wraps(inner)(of_python["foreign"])
        foreign.__module__ = "os"

        def set_cell():
            nonlocal cell
            cell = 2

        def replace_dict():
            some.__dict__ = dict(some.__dict__)

        def name_later(value=[]):  # noqa: B006
            globals()["LATER"] = value
        self.addCleanup(lambda: globals().pop("LATER", None))
        for name, change in {
                "attribute": lambda: setattr(net, "late", []), "other value": lambda: setattr(net, "row", ([1],)),
                "function's attribute": lambda: setattr(inner, "calls", []),
                "method's attribute": lambda: setattr(Layer.helper, "calls", []),
                "default": lambda: setattr(fn, "__defaults__", ([2],)),
                "default by name": lambda: Layer.forward.__kwdefaults__.update(scale=[]),
                "defaults by name": lambda: setattr(Layer.forward, "__kwdefaults__", {"scale": [], "sizes": []}),
                "code": lambda: setattr(Layer.helper, "__code__", (lambda self, x: COUNTER).__code__),
                "class": lambda: setattr(Layer, "more", []), "bases": lambda: setattr(Some, "__bases__", (Other,)),
                "its dict": replace_dict, "class of an object": lambda: setattr(some, "__class__", Other),
                "element": lambda: some.value.append([]), "item": lambda: Layer.shared.update(b=[]),
                "inner item": lambda: Layer.shared["a"].append(1), "member": lambda: net.set.add(2),
                "slot": lambda: setattr(slots, "other", []), "order": lambda: ordered.move_to_end("a") or ordered.update(b=1),
                "cell": set_cell, "deque": lambda: net.deque.append(1), "keyword": lambda: net.partial.keywords.update(b=[]),
                "wrapped": lambda: setattr(foreign, "__wrapped__", lambda: [cell]),
                "hook": lambda: net._forward_hooks.update({1: []}), "global": name_later,
                "global's value": lambda: name_later([1]), "in a tuple": lambda: net.row[0].append(2),
                "module": lambda: net._modules.update(second=Layer())}.items():
            with self.subTest(name=name):
                self.assertFalse(self.taken(fn, change))
        for name, change in {"nothing": lambda: None, "cache": lambda: cached(3)}.items():
            with self.subTest(name=name):
                self.assertTrue(self.taken(fn, change))

    def test_memory_of_others_is_not_kept(self):
        net = Net()
        net.weight = Device(64)

        def fn(x):
            return net(x)
        kept = self.reached(fn)
        self.assertFalse(kept.put(()))
        self.assertTrue(kept.put([net.weight]))
        self.assertEqual([record.held[0] for record in kept._tensors], [None])
        record, = (r for r in kept.take() if type(r).__name__ == "Pointing")
        self.assertIsNotNone(record.held[0])
        kept.put([net.weight])
        net.weight.data_ptr = lambda: 128
        self.assertIsNone(kept.take())

        net.other = walked_torch.Tensor()
        reach = Reach(self.torch)
        reach.note()
        reach.follow(fn, Path(None, "", "fn"))
        self.assertFalse(kept_records.Kept.may_be(reach), "it may come to lie somewhere")
        del net.other

        class Handle:
            pass
        Handle.__module__ = "torch.cuda"
        net.handle = Handle()
        reach = Reach(self.torch)
        reach.note()
        reach.follow(fn, Path(None, "", "fn"))
        self.assertFalse(kept_records.Kept.may_be(reach), "what it has is not known")

    def test_records_are_of_one_callable_and_no_argument(self):
        net, arguments = Net(), [("argument 1", 2)]

        def fn(x):
            return net
        for given, is_kept in ((arguments, True), ([("argument 1", [])], False)):
            kept = self.reached(fn)
            kept.put(())
            found = kept_records.found_for(fn, given)
            self.assertEqual(found[0] is kept, is_kept)
            self.assertEqual(kept_records.found_for(fn, given), (None, None), "they are a capture's")
        kept.put(())
        gone = weakref.ref(kept)
        del kept, found
        self.assertIsNone(gone())
        self.assertEqual(kept_records.found_for(fn, arguments), (None, None))

    def test_what_runs_change_is_not_kept(self):
        kept, changes = types.SimpleNamespace(count=1), []

        def fn(x):
            return kept.count, [change() for change in changes]

        def keeps(run):
            effects = Effects(self.torch, fn, keeps=True)
            try:
                effects.watched(lambda placed: run())(None)
            except Changed:
                pass
            effects.finish()
            return effects.keep(tuple) is not None
        generators = mock.patch.object(Reach, "follow_generators", lambda self: None)
        with generators, mock.patch.object(Effects, "_kind", lambda self, value: repr(value)):
            self.assertTrue(keeps(lambda: None))
            self.assertFalse(keeps(lambda: setattr(kept, "count", 2)))
            self.assertIsNone(Effects(self.torch, fn).keep(tuple))

class Found(unittest.TestCase):
    def changes(self, fn, *arguments, call=None):
        """The paths of what a call changes, which is put back."""
        records = records_of(fn, *arguments)
        self.assertEqual(self.touched(records), [])
        (call or fn)()
        self.touched(records)
        found = [str(change.path) for record in records for change in record.changes()]
        for record in records:
            record.restore()
        self.assertEqual(self.touched(records), [])
        return found

    def touched(self, records):
        """What the extension says, and Python."""
        found = _C.touched(records)
        self.assertEqual(found, [r for r in records if r.is_touched()])
        return found

    def test_nothing(self):
        value = {"a": [1, 2]}
        self.assertEqual(self.changes(lambda: value["a"][0] + COUNTER), [])

    def test_a_variable(self):
        count = 0

        def fn():
            nonlocal count
            count += 1
        self.assertEqual(self.changes(fn), ["count"])
        self.assertEqual(count, 0)

    def test_a_variable_that_was_not_there(self):
        def fn():
            nonlocal late
            late = 3
        self.assertEqual(self.changes(fn), ["late"])
        with self.assertRaises(NameError):
            print(late)
        late = None

    def test_globals(self):
        def fn():
            global COUNTER, MADE
            COUNTER += 1
            MADE = "there"
            TABLE["calls"] += 1
        self.assertEqual(sorted(self.changes(fn)), ["COUNTER", "MADE", "TABLE['calls']"])
        self.assertEqual((COUNTER, TABLE, "MADE" in globals()), (0, {"calls": 0}, False))

    def test_through_functions_methods_and_partials(self):
        log = []

        def inner(what):
            log.append(what)
        cache = Cache()
        self.assertEqual(self.changes(functools.partial(inner, 1)), ["log"])
        self.assertEqual(self.changes(cache.update),
                         [".layers[0].size", ".layers[1].parts"])
        self.assertEqual((log, cache.layers), ([], [Config(0, []), Config(1, [])]))

        def outer():
            inner(2)
        self.assertEqual(self.changes(outer), ["log"])

    def test_arguments(self):
        cache = Cache()
        self.assertEqual(self.changes(lambda: None, cache, call=cache.update),
                         [".layers[0].size", ".layers[1].parts"])

    def test_containers(self):
        table, row, queue, group = {"a": 1}, [1, 2], collections.deque([1], 5), {1}
        ordered, counted = Ordered(), collections.defaultdict(list)
        ordered["a"] = 1
        before = dict(ordered)

        def fn():
            del table["a"]
            row[1] = 7
            queue.append(2)
            group.add(2)
            ordered["b"] = 2
            counted["c"].append(1)
        found = self.changes(fn)
        self.assertEqual(sorted(found), ["counted['c']", "group", "ordered['b']", "queue", "row[1]",
                                         "table['a']"])
        self.assertEqual((table, row, list(queue), group, dict(ordered), dict(counted)),
                         ({"a": 1}, [1, 2], [1], {1}, before, {}))
        self.assertEqual(queue.maxlen, 5)

    def test_the_order_of_a_dict_is_put_back(self):
        for table in ({"a": 1, "b": 2}, collections.OrderedDict(a=1, b=2)):
            def fn():
                table["a"] = table.pop("a")  # noqa: B023
            self.assertEqual(self.changes(fn), [])
            self.assertEqual(list(table), ["a", "b"])

    def test_an_order_of_its_own_is_put_back(self):
        ordered, empty = collections.OrderedDict(a=1, b=2), collections.OrderedDict()

        def fn():
            ordered.move_to_end("a")
            empty["c"] = 3
        self.assertEqual(self.changes(fn), ["empty['c']"])
        self.assertEqual((list(ordered), list(empty)), (["a", "b"], []))

    def test_slots_and_classes(self):
        kept = Kept()

        def fn():
            kept.value += 1
            kept.other = "made"
            kept.shared.append(1)
            Kept.added = 3
        self.assertEqual(sorted(self.changes(fn)), ["Kept.added", "Kept.shared", "kept.other", "kept.value"])
        self.assertEqual((kept.value, hasattr(kept, "other"), Kept.shared, hasattr(Kept, "added")),
                         (1, False, [], False))

    def test_what_is_equal_is_no_change_and_is_put_back(self):
        holder = types.SimpleNamespace(last=(1, 2), config=Config(1, [2]), state=collections.defaultdict(int))
        before = (holder.last, holder.config, holder.state)

        def fn():
            holder.last = tuple([1, 2])
            holder.config = Config(1, [2])
            holder.state = collections.defaultdict(int)
        self.assertEqual(self.changes(fn), [])
        self.assertTrue(all(a is b for a, b in zip(before, (holder.last, holder.config, holder.state))))

    def test_values_that_only_look_equal(self):
        holder = types.SimpleNamespace(a=0.0, b=1, c=True)

        def fn():
            holder.a, holder.b, holder.c = -0.0, 1.0, 1
        self.assertEqual(sorted(self.changes(fn)), ["holder.a", "holder.b", "holder.c"])

    def test_random_numbers_of_python(self):
        own = random.Random(3)
        random.seed(5)
        want = (random.Random(5).random(), random.Random(3).random())
        found = self.changes(lambda: (random.random(), own.random()))
        self.assertEqual(sorted(found), ["own", "random"])
        self.assertEqual((random.random(), own.random()), want)

    def test_random_numbers_of_numpy_and_arrays(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("needs numpy")
        made, array = numpy.random.default_rng(1), numpy.zeros(4)

        def fn():
            numpy.random.rand()
            made.random()
            array[2] += 1
        self.assertEqual(sorted(self.changes(fn)), ["array", "made", "numpy.random"])
        self.assertEqual((made.random(), array.sum()), (numpy.random.default_rng(1).random(), 0))

    def test_a_memo_keeps_what_it_had(self):
        for most in (None, 4):
            @functools.lru_cache(maxsize=most)
            def made(x):
                return {x: object()}
            before = made(2)
            self.assertEqual(self.changes(lambda: made(2)), [])
            self.assertEqual(self.changes(lambda: (made(3), made(5), made(2))), ["made"])
            self.assertEqual(made.cache_info().currsize, 1)
            self.assertIs(made(2), before)
            self.assertIs(made(3), made(3))

    def test_a_memo_that_makes_room(self):
        @functools.lru_cache(maxsize=2)
        def square(x):
            return x * x
        square(1), square(2)
        self.assertEqual(self.changes(lambda: square(3)), ["square"])
        self.assertEqual([square(x) for x in (3, 2, 1, 3, 5)], [9, 4, 1, 9, 25])
        self.assertLessEqual(square.cache_info().currsize, 2)

    def test_what_a_memo_gave_in_a_run_is_let_go(self):
        """It may lie in memory of a capture."""
        class Made:
            pass
        for most, begin in ((None, 0), (128, 0), (128, 5), (2, 2), (2, 1)):
            @functools.lru_cache(maxsize=most)
            def make(key):
                return Made()
            before = [make(key) for key in range(begin)]
            self.assertEqual(self.changes(lambda: all(make(key) for key in "abc")), ["make"])
            gc.collect()
            self.assertEqual(sum(type(value) is Made for value in gc.get_objects()), len(before), (most, begin))
            kept = {key: make(key) for key in range(3)}
            self.assertEqual([make(key) is kept[key] for key in (1, 2)], [True, True])
            make.cache_clear()
            self.assertEqual(make.cache_info().currsize, 0)
            del before, kept

    def test_a_memo_of_nothing(self):
        @functools.lru_cache(maxsize=0)
        def square(x):
            return x * x
        self.assertEqual(self.changes(lambda: square(3)), [])

    def test_iterators_are_told_of(self):
        rows = iter([1, 2, 3])

        def numbers():
            yield 1
            yield 2
        made, paired = numbers(), zip(iter((1, 2)), [3, 4])
        next(made)
        for advance, name in ((lambda: next(rows), "rows"), (lambda: next(made), "made"),
                              (lambda: next(paired), "paired")):
            records = records_of(advance)
            self.assertEqual([r for r in records if r.is_touched()], [])
            advance()
            changed, = [c for r in records for c in r.changes()]
            self.assertEqual(str(changed.path), name)
            self.assertIn("'" + name, str(Unobserved([r for r in records if r.is_touched()])))

    @unittest.skipIf(torch is None, "needs PyTorch")
    def test_tensors_on_the_cpu(self):
        count, net = torch.zeros(()), torch.nn.Linear(2, 2)
        weight = net.weight.data_ptr()

        def fn():
            count.add_(1)
            net.weight.data = torch.ones(2, 2)
            net.bias = torch.nn.Parameter(torch.ones(2))
            torch.rand(3)
        state = torch.get_rng_state()
        found = self.changes(fn)
        self.assertEqual(sorted(found), ["count", "net.bias", "net.weight",
                                         "torch's random numbers on the CPU"])
        self.assertEqual((count.item(), net.weight.data_ptr()), (0, weight))
        self.assertTrue(torch.equal(torch.get_rng_state(), state))

    @unittest.skipIf(torch is None, "needs PyTorch")
    def test_modules_and_hooks(self):
        net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.1))
        seen = {}

        def hook(module, args, out):
            seen["out"] = out
            module.calls = getattr(module, "calls", 0) + 1
        net[0].register_forward_hook(hook)

        def fn():
            net[1].p = 0.5
            net(torch.zeros(1, 2))
        found = self.changes(fn)
        self.assertEqual(sorted(set(found) - {"torch's random numbers on the CPU"}),
                         ["net.0.calls", "net.1.p", "seen['out']"])
        self.assertEqual((net[1].p, seen, hasattr(net[0], "calls")), (0.1, {}, False))

    def test_empty_dicts_of_modules_have_one_record_until_they_are_filled(self):
        net = Net()
        net._modules["inner"] = inner = Net()

        def fill():
            inner._buffers["mean"] = 1
            net._forward_hooks[7] = len

        def look(sums_up):
            reach = Reach(types.SimpleNamespace(**vars(walked_torch.torch), Generator=Kept))
            if sums_up:
                reach.sum_up_empties()
            reach.follow(net, Path(None, "", "net"))
            records = reach.finish()
            self.assertEqual(_C.touched(records), [])
            return records
        found, counts = [], []
        for sums_up in (False, True):
            records = look(sums_up)
            counts.append(len(records))
            fill()
            touched = _C.touched(records)
            found.append(sorted((str(c.path), r.form, r.registered, c.slot.key) for r in touched for c in r.changes()))
            self.assertEqual([r for r in records if r in touched], touched)
            for record in touched:
                record.restore()
            self.assertEqual((_C.touched(records), inner._buffers, net._forward_hooks), ([], {}, {}))
        self.assertEqual(found[0], found[1])
        self.assertEqual([path for path, *_ in found[1]], ["net._forward_hooks[7]", "net.inner.mean"])
        self.assertLess(counts[1], counts[0] - 6)
        records = look(True)  # and a run that raises
        fill()
        self.assertTrue(any(record.is_touched() for record in records))
        for record in records:
            record.restore()
        self.assertEqual((inner._buffers, net._forward_hooks), ({}, {}))

    def test_what_was_looked_at_is_let_go(self):
        reach, fn = Reach(torch), lambda: COUNTER
        reach.follow(fn, None)
        self.assertTrue(reach.is_seen(fn))
        reach.finish()
        self.assertEqual([len(x) for x in (reach._ahead, reach._kinds)], [0, 0])
        self.assertFalse(reach.is_seen(fn))


class Tensor:
    """One that a run made, for what asks nothing more of it."""
    is_cuda, layout, shape, dtype, device = True, "strided", (4,), "float", types.SimpleNamespace(type="cuda")

    def __init__(self, address=0):
        self.address = address

    def data_ptr(self):
        return self.address

    def untyped_storage(self):
        return self

    def numel(self):
        return 4

    def stride(self):
        return (1,)

    def element_size(self):
        return 4

    def detach(self):
        return self

    def is_inference(self):
        return True


class Fake:
    """What of PyTorch the effects ask for."""
    strided, Tensor, Generator = "strided", Tensor, type("Generator", (), {})
    nn = types.SimpleNamespace(Module=type("Module", (), {}))
    get_rng_state = staticmethod(lambda: 0)
    set_rng_state = staticmethod(lambda state: None)


def shape_that_names(*addresses):
    graph = types.SimpleNamespace(names=lambda ranges: [start in addresses for start, _ in ranges])
    return types.SimpleNamespace(parts=lambda: [types.SimpleNamespace(graph=graph)])


class Runs(unittest.TestCase):
    def setUp(self):
        global holder
        holder = types.SimpleNamespace(last=Tensor(64), calls=0, log=[])
        self.before = dict(vars(holder))

    def effects(self, fn, known=None, arguments=()):
        self.found = Effects(Fake, fn, arguments, known)
        return self.found.watched(lambda placed: fn(*placed))

    def left_alone(self):
        self.assertTrue(all(vars(holder)[k] is v for k, v in self.before.items()))
        self.assertEqual(vars(holder).keys(), self.before.keys())

    def test_what_an_argument_is_given_is_given_to_that_of_each_call(self):
        def state():
            return types.SimpleNamespace(inner=[Config(0, {"last": Tensor(64)}), Kept()], last=None)
        first, second = state(), state()
        first.inner[1].value = second.inner[1].value = Tensor(64)

        def fn(x, given):
            given.inner[0].parts["last"] = Tensor()
            given.inner[0].size, given.inner[1].value = Tensor(), Tensor()
            return x
        known = {"state.inner[0].size": (("value", int, "0"), kind_of(Fake, Tensor()), None)}
        run = self.effects(fn, known, [("state", first)])
        run((1, first))
        made = self.found.replayed(shape_that_names())
        self.assertTrue(made.fit([first]) and made.fit([second]))
        before = first.inner[0].parts["last"]
        values = [Tensor() for _ in made.slots]
        self.assertEqual(made.deliver((7, values), [second]), 7)
        given = [second.inner[0].parts["last"], second.inner[0].size, second.inner[1].value]
        self.assertEqual(set(map(id, given)), set(map(id, values)))
        self.assertIs(first.inner[0].parts["last"], before)
        self.assertEqual(first.inner[0].size, 0)
        self.assertFalse(made.fit([types.SimpleNamespace(inner=[])]))
        left = weakref.ref(first.inner[0])
        del first, run, given
        self.found.finish()
        self.assertIsNone(left())

    def test_what_an_argument_has_in_a_set_is_not_found_again(self):
        given = types.SimpleNamespace(some={Kept()})

        def fn(x):
            next(iter(given.some)).value = Tensor()
        next(iter(given.some)).value = Tensor(64)
        with self.assertRaises(Changed):
            self.effects(fn, arguments=[("given", given)])((1,))

    def test_an_argument_that_grows(self):
        given = types.SimpleNamespace(keys=Tensor(64))

        def fn(x):
            given.keys = Tensor()
            given.keys.shape = (5, 3)
        with self.assertRaises(Changed):
            self.effects(fn, arguments=[("given", given)])((1,))

    def test_parts_of_arguments(self):
        given = types.SimpleNamespace(inner=Config(0, []), slots=Kept(), plain=3)
        self.effects(lambda x: x, arguments=[("given", given)])
        for part in (given.inner, given.inner.parts, given.slots):
            self.assertTrue(self.found.is_part(part))
        for other in (Config(0, []), 3, None, Tensor(64), holder):
            self.assertFalse(self.found.is_part(other))

    def test_no_effects(self):
        run = self.effects(lambda x: (x, holder.calls))
        self.assertEqual(run((1,)), (1, 0))
        self.assertIsNone(self.found.replayed(shape_that_names(64)))

    def assigning(self):
        def fn(x):
            holder.last = Tensor()
            return {"out": holder.last, "x": x}
        return fn

    def test_a_container_that_is_filled_and_replaced_by_its_like(self):
        kept = types.SimpleNamespace(stages=collections.defaultdict(dict))  # as torch.amp.GradScaler does

        def fn():
            kept.stages["optimizer"]["stage"] = 1
            kept.stages = collections.defaultdict(dict)
        before = kept.stages
        self.effects(fn)(())
        self.assertEqual(self.found.slots, [])
        self.assertIs(kept.stages, before)
        self.assertEqual(before, {})

    def test_a_global_container_that_grows(self):
        run = self.effects(lambda: TABLE.update(calls=TABLE["calls"] + 1))
        with self.assertRaisesRegex(Changed, r"TABLE\['calls'\]' \(from 0 to 1\)"):
            run(())
        self.assertEqual(TABLE, {"calls": 0})
        self.assertEqual([(owner is TABLE, key) for owner, key in self.found.places], [(True, "calls")])

    def test_tensors_that_are_assigned_are_results(self):
        run = self.effects(self.assigning())
        for _ in range(2):
            result, values = run((1,))
            self.left_alone()
            self.assertEqual(len(values), 1)
        assigned = self.found.replayed(shape_that_names())
        self.assertTrue(assigned.fit())
        made = ({"out": Tensor(), "x": 3}, values)
        self.assertIs(assigned.deliver(made), made[0])
        self.assertIs(holder.last, made[0]["out"])
        self.assertTrue(assigned.fit())
        holder.last = None
        self.assertFalse(assigned.fit())

    def test_a_tensor_that_is_read_and_replaced(self):
        run = self.effects(self.assigning())
        run((1,))
        with self.assertRaisesRegex(Changed, "holder.last' .is read and replaced") as caught:
            self.found.replayed(shape_that_names(64))
        self.assertTrue(caught.exception.is_hopeless)

    def test_a_number_like_the_address_of_what_nobody_reads(self):
        """It is a size, or what the stack had: no kernel can have it from there."""
        run = self.effects(self.assigning())
        self.found._places = types.SimpleNamespace(stored={"last"}, asks_for=lambda name: False,
                                                   tell=lambda owner, name: False)
        run((1,))
        self.assertTrue(self.found.replayed(shape_that_names(64)).fit())

    def test_runs_that_differ(self):
        def fn():
            taken.append(1)
            if len(taken) == 2:
                holder.last = Tensor()
        taken = Unseen()
        run = self.effects(fn)
        run(())
        with self.assertRaisesRegex(reprise.Error, "other Python state in each run"):
            run(())
        self.left_alone()

    def test_what_cannot_be_repeated_is_named_and_put_back(self):
        def fn():
            holder.calls += 1
            holder.log.append(Tensor())
        with self.assertRaises(Changed) as caught:
            self.effects(fn)(())
        self.assertIn("holder.calls' (from 0 to 1)", str(caught.exception))
        self.assertIn("holder.log' (has 1 elements behind a call that began with 0)", str(caught.exception))
        self.assertEqual(len(caught.exception.records), 2)
        self.left_alone()
        self.assertEqual(holder.log, [])

    def test_the_same_value_from_the_same_value_twice(self):
        def fn():
            holder.calls = 3
        with self.assertRaises(Changed) as caught:
            self.effects(fn)(())
        run = self.effects(fn, caught.exception.found)
        made = run(())
        self.left_alone()
        assigned = self.found.replayed(shape_that_names())
        assigned.deliver(made)
        self.assertEqual(holder.calls, 3)
        self.assertFalse(assigned.fit(), "it held 0 before the capture")
        with self.assertRaises(Changed):
            self.effects(lambda: setattr(holder, "calls", 5), caught.exception.found)(())

    def test_tensors_where_there_was_none_may_be_made_lazily(self):
        holder.last = self.before["last"] = None
        with self.assertRaises(Changed) as caught:
            self.effects(self.assigning())((1,))
        self.effects(self.assigning(), caught.exception.found)((1,))
        self.left_alone()

    def test_an_exception(self):
        def fn():
            holder.log.append(1)
            holder.last = None
            raise KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            self.effects(fn)(())
        self.left_alone()
        self.assertEqual(holder.log, [])

    def test_arguments_are_named_with_their_types(self):
        cache = Cache()
        with self.assertRaises(Changed) as caught:
            self.effects(cache.update, arguments=[("cache", cache)])(())
        self.assertEqual(caught.exception.kinds, (Cache, Cache))
        self.assertIn("'cache.layers[0].size'", str(caught.exception))
        self.assertEqual(cache.layers, [Config(0, []), Config(1, [])])

    def test_the_objects_are_let_go(self):
        class Big:
            pass
        kept = types.SimpleNamespace(big=Big())
        gone = weakref.ref(kept.big)
        run = self.effects(lambda: kept.big is None)
        run(())
        self.found.finish()
        kept.big = None
        self.assertIsNone(gone())


class Bodies(unittest.TestCase):
    """What the extension says of functions and classes, which Python's audit hooks do not hear of."""

    def test_parts_of_functions(self):
        def fn(one=1, *, two=2):
            return one + two
        self.assertEqual(_C.parts_of(fn), (fn.__code__, fn.__defaults__, fn.__kwdefaults__))
        bare = (lambda: 0)
        self.assertEqual(_C.parts_of(bare), (bare.__code__, None, None))
        self.assertRaises(TypeError, _C.parts_of, print)

    def test_bodies_of_classes(self):
        names = _C.dict_of_class(Kept)
        self.assertEqual(names, dict(vars(Kept)))
        self.assertIs(_C.dict_of_class(Kept), names)
        self.assertEqual(_C.body_of({"__module__": 1, "__own": 2, "_abc_data": 3, "_": 4, "__": 5, "own__": 6}),
                         {"__own": 2, "_": 4, "own__": 6})

    def test_methods_wait_for_their_names(self):
        class Owner:
            @functools.cached_property
            def cached(self):
                return late[0]

            @property
            def told(self):
                return later[0]

            def method(self):
                return latest[0]
        late, later, latest = [0], [0], [0]
        owner = Owner()

        def paths(fn):
            return {str(record.path) for record in records_of(fn) if type(record).__name__ == "Elements"}
        self.assertEqual(paths(lambda: owner), set())
        self.assertEqual(paths(lambda: owner.cached), {"late"})
        self.assertEqual(paths(lambda: (owner.told, owner.method)), {"later", "latest"})


class Names(unittest.TestCase):
    def test_of_arguments(self):
        _, spec = flatten((([1, 2], {"a": 3}), {"more": (4, None), "x": 5}))
        self.assertEqual(argument_names(spec, True),
                         ["argument 1", "argument 1", "argument 2", "more", "x"])
        _, spec = flatten((1, [2, 3]))
        self.assertEqual(argument_names(spec, False), ["argument 1", "argument 2", "argument 2"])


class Arguments(unittest.TestCase):
    def test_a_container_that_a_run_changes_is_named(self):
        def told(change, *args, **kwargs):
            containers = Containers(args, kwargs, 1)
            self.assertEqual(containers.changes(), [])
            change(*args, **kwargs)
            return [(str(c.path), c.what, c.slot.key, c.after) for c in containers.changes()]
        self.assertEqual(told(lambda a, b: b.append(1), 1, []),
                         [("argument 2", "a list that it changes", 1, [1])])
        self.assertEqual(told(lambda more: more["x"].update(a=1), more={"x": {}}),
                         [("argument 'more'", "a dict that it changes", 3, {"a": 1})])
        self.assertEqual(told(lambda pair: pair[0].__setitem__(0, "b"), (["a"],)),
                         [("argument 1", "a list that it changes", 1, ["b"])])
        self.assertEqual(told(lambda pair: pair.reverse(), [2, 2.0, 2]), [])

    def test_one_that_is_put_into_another(self):
        """It is that of each call by its number."""
        inner, outer = [1], {}
        containers = Containers((inner, outer), {}, 4)
        outer["two"] = (inner, [inner, 5])
        change, = containers.changes()
        one, (other, five) = change.after["two"]
        self.assertEqual((one.number, other.number, five), (4, 4, 5))
        given = [None] * 4 + [["mine"], {"old": 0}]
        filling = change.slot.of(given)
        self.assertTrue(filling.fits(None, None))
        filling.put({"two": given[4]})
        self.assertEqual(given[5], {"two": ["mine"]})
        given[4] = given[5]
        self.assertFalse(change.slot.of(given).fits(None, None), "it stands in two places")

    def test_those_that_come_again_with_what_calls_added(self):
        met, log = Regiven(), []
        for _ in range(MOST_REGIVEN + 1):
            log.append(0)
            met.note([log], [len(log) - 1])
            self.assertFalse(met.is_met(([1],), {}))
            found = met.is_met((log,), {})
        self.assertTrue(found)
        met.note([log], [len(log)])
        self.assertFalse(met.is_met((log,), {}), "nothing was added")


class Growth(unittest.TestCase):
    """Stand-ins, in the place of what each call adds to."""

    def during(self, slots, run):
        result, error, read = during(slots, run)
        return result if error is None else type(error), read

    def slots(self, kept, *names):
        return [Slot(Mapping, vars(kept), name, Path(None, "", name)) for name in names]

    def test_a_tail(self):
        for held, now, want in (([], [1], [1]), ([1], [1, 2, 3], [2, 3]), ([1, 2], [1], None), ([1], [2, 1], None),
                                ([1], [1], None)):
            self.assertEqual(tail_of(now, held), want, (held, now))
        for now, want in (([2, 3, 4], [4]), ([3, 4, 5], [4, 5]), ([7, 8, 9], [7, 8, 9])):
            self.assertEqual(tail_of(collections.deque(now, maxlen=3), [1, 2, 3]), want, now)
        self.assertEqual(tail_of(collections.deque([1, 2, 3], maxlen=3), [1]), [2, 3])
        self.assertIsNone(tail_of(Ordered(), []))

    def test_a_counter_takes_what_is_added_and_tells_nothing(self):
        kept = types.SimpleNamespace(calls=5)
        step = Step(self.slots(kept, "calls")[0], 3)

        def run():
            kept.calls += 4
            kept.calls = 1 + kept.calls - 2
            self.assertIsInstance(kept.calls, int)
            return "done"
        self.assertEqual(self.during([step], run), ("done", []))
        self.assertEqual((kept.calls, type(kept.calls)), (8, int))
        step.put(None)
        self.assertEqual(kept.calls, 11)
        for read in (bool, int, float, str, repr, hash, abs, lambda n: n % 2, lambda n: n == 5, lambda n: [0] * n,
                     lambda n: n * 2, lambda n: 2 - n, lambda n: n < 7, lambda n: f"{n:3d}", lambda n: n + 0.5,
                     lambda n: n.bit_length(), lambda n: -n, lambda n: {n}, lambda n: n // 2, lambda n: n & 1,
                     copy.deepcopy, round, lambda n: 10 ** n):
            self.assertEqual(self.during([step], lambda read=read: read(kept.calls)), (TypeError, [step]))
            self.assertEqual(kept.calls, 11)

    def test_one_that_is_read_and_nobody_hears(self):
        """The run drops the error, or reads a copy that it kept."""
        kept = types.SimpleNamespace(calls=5)
        step = Step(self.slots(kept, "calls")[0], 1)

        def run():
            before = kept.calls
            kept.calls += 1
            with contextlib.suppress(TypeError):
                return before % 2
        self.assertEqual(self.during([step], run), (None, [step]))
        self.assertEqual(kept.calls, 6)

    def test_one_that_is_replaced(self):
        kept = types.SimpleNamespace(calls=5, log=[])
        step, = self.slots(kept, "calls")
        step = Step(step, 1)
        self.assertEqual(self.during([step], lambda: setattr(kept, "calls", 6)), (None, [step]))
        self.assertEqual(kept.calls, 6)

    def test_a_list_takes_what_is_added_and_tells_nothing(self):
        kept = types.SimpleNamespace(log=[1], also=None)
        kept.also = kept.log
        log = kept.log
        tail = Tail(log, Path(None, "", "log"))
        tail.holders = self.slots(kept, "log", "also")

        def run():
            self.assertIsInstance(kept.log, list)
            kept.log.append(2)
            kept.also += [3, 4]
            kept.log.extend((5,))
            return kept.log[-1], kept.also[-4], kept.log is kept.also
        self.assertEqual(self.during([tail], run), ((5, 2, True), []))
        self.assertIs(kept.log, log)
        self.assertIs(kept.also, log)
        self.assertEqual(log, [1, 2, 3, 4, 5])
        for read in (len, bool, list, repr, lambda some: some[0], lambda some: some[-1], lambda some: some[:],
                     lambda some: 1 in some, lambda some: some + [1], lambda some: some.pop(), lambda some: [] == some,
                     lambda some: some.insert(0, 1), lambda some: some.clear(), lambda some: some * 2, copy.copy,
                     lambda some: [*some], sum, sorted, lambda some: some.__setitem__(0, 1)):
            result, found = self.during([tail], lambda read=read: read(kept.log))
            self.assertTrue(issubclass(result, TypeError), result)
            self.assertEqual((found, log), ([tail], [1, 2, 3, 4, 5]))

    def test_another_thread_gets_what_the_program_has(self):
        kept, found = types.SimpleNamespace(calls=5, log=[1]), []
        step, tail = Step(self.slots(kept, "calls")[0], 1), Tail(kept.log, Path(None, "", "log"))
        tail.holders = self.slots(kept, "log")

        def look():
            found.extend([kept.calls + 1, bool(kept.log), len(kept.log), copy.copy(kept.log), f"{kept.calls}",
                          complex(kept.calls), 2 * kept.calls, kept.log == [1], copy.deepcopy(kept.log)])

        def run():
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
        self.assertEqual(self.during([step, tail], run), (None, [step, tail]))
        self.assertEqual(found, [6, True, 1, [1], "5", 5 + 0j, 10, True, [1]])

    def test_lists_that_other_ways_lead_to(self):
        for wrap in (lambda log: (log,), lambda log: ((0, log),), lambda log: log.append,
                     lambda log: functools.partial(print, log), lambda log: frozenset([id]) and (log,)):
            kept = types.SimpleNamespace(log=[], other=None)
            kept.other = wrap(kept.log)
            tail, reach = Tail(kept.log, Path(None, "", "log")), Reach(Fake)
            reach.follow(kept, Path(None, "", "kept"))
            self.assertFalse(tail.find_holders(reach.finish()))
        kept = types.SimpleNamespace(log=[], other={"also": [0]})
        kept.other["also"].append(kept.log)
        tail, reach = Tail(kept.log, Path(None, "", "log")), Reach(Fake)
        reach.follow(kept, Path(None, "", "kept"))
        self.assertTrue(tail.find_holders(reach.finish()))
        self.assertEqual(sorted(str(holder.path) for holder in tail.holders), ["kept.log", "kept.other['also'][1]"])
        self.assertTrue(tail.fits(None, None))
        kept.log = []
        self.assertFalse(tail.fits(None, None), "two lists are in its places")


class Kinds(unittest.TestCase):
    def test_eager_for_good_after_some_attempts(self):
        refusals, key, error = Refusals(), "key", Changed([], "")
        self.assertEqual([refusals.note(key, error) for _ in range(ATTEMPTS)], [False, True])
        refusals.worked(key, [])
        self.assertFalse(refusals.note(key, error))
        self.assertTrue(refusals.note("hopeless", Changed([], "", is_hopeless=True)))
        self.assertEqual([refusals.covers(k, []) for k in (key, "hopeless", "other")], [True, True, False])

    def test_arguments_are_told_by_their_type(self):
        refusals, error = Refusals(), Changed([], "", kinds=[Cache, Cache])
        self.assertFalse(refusals.note("a", error))
        self.assertFalse(refusals.covers("other", [Cache()]))
        refusals.worked("b", [Cache()])
        self.assertEqual([refusals.note(key, error) for key in "cd"], [False, True])
        covered = [refusals.covers("other", [value]) for value in (Cache(), Kept(), 3)]
        self.assertEqual(covered, [True, False, False])

    def test_failures_with_another_object_each_time(self):
        refusals, config = Refusals(), Cache()
        self.assertEqual([refusals.failed([config, 3, None]) for _ in range(3)], [()] * 3)
        self.assertFalse(refusals.covers("other", [config]))
        told = [refusals.failed([Cache()]) for _ in range(ATTEMPTS)]
        self.assertEqual(told, [(Cache,)] * ATTEMPTS)
        self.assertTrue(refusals.covers("other", [config]))

    def test_a_callable_that_is_always_refused(self):
        refusals, error = Refusals(), Changed([], "", is_hopeless=True)
        for key in range(MOST_REFUSED):
            self.assertFalse(refusals.covers("other", []))
            refusals.note(key, error)
        self.assertTrue(refusals.covers("other", []))
        self.assertEqual([refusals.covers("other", []) for _ in range(2 * FIRST_REST)].count(False), 1)
        refusals.clear()
        self.assertFalse(refusals.covers("other", []))

    def test_buffers_that_are_others_after_each_call(self):
        refusals, error = Refusals(), Changed([], "", is_registered=True)
        self.assertFalse(refusals.note("a", error))
        refusals.clear()  # as it is where memory moved
        self.assertTrue(refusals.note("a", error))
        refusals.clear()
        self.assertTrue(refusals.covers("other", []))
        refusals.worked("a", [])
        self.assertFalse(refusals.covers("other", []))

    def test_captures_that_fail_where_each_call_forgets(self):
        refusals, told = Refusals(), []
        for _ in range(MOST_FAILED):
            refusals.clear()
            self.assertFalse(refusals.covers("key", []))
            told.append(refusals.tried())
        self.assertEqual(told, [False] * (MOST_FAILED - 1) + [True])
        refusals.clear()
        self.assertTrue(refusals.covers("key", []))
        for _ in range(2):
            refusals.covers("key", [])
        refusals.clear()  # once, as by a program that mends something
        self.assertFalse(refusals.covers("key", []))

    def test_the_line_is_found(self):
        log = []

        def fn(x):
            y = x + 1
            log.append(y)  # this one
            return y * 2
        result, line = traced_call(fn, (1,), {}, records_of(fn))
        self.assertEqual((result, log), (4, [2]))
        self.assertIn("# this one", line.source)
        self.assertEqual(line.file, __file__)


class CtrlC(unittest.TestCase):
    def setUp(self):  # a shell has programs in the background ignore the signal
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))

    def test_it_waits_until_it_is_allowed(self):
        def interrupt():
            signal.raise_signal(signal.SIGINT)
        before, reached = signal.getsignal(signal.SIGINT), []
        with self.assertRaises(KeyboardInterrupt):
            with Interrupts() as held:
                interrupt()
                reached.append("held back")
                with held.allowed():
                    reached.append("not this")
        self.assertEqual(reached, ["held back"])
        with self.assertRaises(KeyboardInterrupt):
            with Interrupts() as held:
                with held.allowed():
                    interrupt()
        with self.assertRaises(KeyboardInterrupt):
            with Interrupts():
                interrupt()
                reached.append("to the end")
        self.assertEqual(reached[1:], ["to the end"])
        self.assertIs(signal.getsignal(signal.SIGINT), before)

    def test_other_signals_wait_too(self):
        """In the order in which they came, each once; what one raises keeps none from being told."""
        told, numbers = [], (signal.SIGALRM, signal.SIGUSR1, signal.SIGTERM)

        def tell(number, frame):
            told.append(number)
            if number == signal.SIGUSR1:
                raise TimeoutError
        for number in numbers:
            self.addCleanup(signal.signal, number, signal.signal(number, tell))
        with self.assertRaises(TimeoutError):
            with Interrupts():
                for number in (signal.SIGUSR1, signal.SIGALRM, signal.SIGUSR1, signal.SIGTERM):
                    signal.raise_signal(number)
                self.assertEqual(told, [])
        self.assertEqual(told, [signal.SIGUSR1, signal.SIGALRM, signal.SIGTERM])
        with Interrupts() as held:
            with held.allowed():
                signal.raise_signal(signal.SIGALRM)
                self.assertEqual(told[3:], [signal.SIGALRM])
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.raise_signal(signal.SIGALRM)
            self.assertEqual(told[4:], [])
        self.assertEqual(told[4:], [signal.SIGALRM])
        self.assertEqual([signal.getsignal(number) for number in numbers], [tell, tell, signal.SIG_IGN])

    def test_whose_exception_it_is(self):
        def limit(*_):
            raise TimeoutError
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, limit))
        for fails, of_handler in ((lambda: signal.raise_signal(signal.SIGALRM), True), (lambda: int("x"), False)):
            try:
                fails()
            except Exception as error:
                self.assertEqual(is_of_handler(error), of_handler)
                if of_handler:
                    with self.assertRaises(TimeoutError):
                        let_through(error)
                else:
                    let_through(error)

    def test_on_other_threads_nothing_is_held_back(self):
        found = []

        def work():
            with Interrupts() as held, held.allowed():
                found.append(signal.getsignal(signal.SIGINT))
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual(found, [signal.getsignal(signal.SIGINT)])


if __name__ == "__main__":
    unittest.main()
