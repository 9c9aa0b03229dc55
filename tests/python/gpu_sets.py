# SPDX-License-Identifier: MIT
"""Plain values that calls set, beside an eager twin: what calls of several kinds leave, and what they read of each
other. Usage: gpu_sets.py [--install] ..."""

import ctypes
import enum
import importlib
import sys
import threading
import types
import unittest
import warnings
from unittest import mock

import torch

import reprise
from reprise._call.graphed import Graphed
from reprise._reads.runs import place_of
from reprise._reads.values import Values

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

WIDTH = 8
LAST = 0
ORDERS = ((2, 2, 3, 3), (2, 3), (2, 2, 2, 3), (3, 2, 2, 4, 4, 2, 3))  # of batch sizes: calls follow each other or not
CALLS = 28


class Slots:
    __slots__ = ("last",)

    def __init__(self):
        self.last = 0


class State:
    """Of a program, beside its nets. An object of Python's own would be looked at as a whole."""

    def __init__(self, **values):
        self.__dict__.update(values)


class Noting(torch.nn.Module):
    """Notes the size of its batch in each kind of place that nobody reads."""

    most = 0

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, WIDTH)
        self.last, self.extent, self.named, self.done, self.slots = 0, [0, 0], "", False, Slots()

    def forward(self, x):
        global LAST
        LAST = self.last = x.shape[0]
        self.extent = [x.shape[0], {"width": x.shape[1]}]
        self.slots.last = type(self).most = x.shape[0] * 2
        setattr(self, "named", "even" if x.shape[0] % 2 == 0 else "odd")
        self.done = True
        return self.inner(x)

    def left(self):
        return self.last, self.extent, self.slots.last, type(self).most, self.named, self.done, LAST


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def follow(self, make, orders=ORDERS, grad=False):
        """make() gives a function of an input, and what calls left. Returns what was graphed in each order."""
        made = []
        for order in orders:
            fn, left = make()
            twin, twin_left = make()
            graphed = reprise.graphed(fn)
            with warnings.catch_warnings(), torch.set_grad_enabled(grad):
                warnings.simplefilter("error")
                for i in range(CALLS):
                    x = torch.full((order[i % len(order)], WIDTH), 0.5 + i, device="cuda")
                    want = twin(x)
                    wanted = twin_left()
                    got = graphed(x)
                    self.assertTrue(torch.equal(got, want), (order, i))
                    self.assertEqual(left(), wanted, (order, i))
                    if grad:
                        got.sum().backward()
                        want.sum().backward()
            self.assertEqual(graphed.failures(), [])
            made.append(graphed)
        return made


class Unread(Case):
    @staticmethod
    def noting():
        torch.manual_seed(2)
        net = Noting().cuda()
        return net, net.left

    def test_each_kind_of_place(self):
        """A graph a shape, whatever a call of another one left."""
        for grad in (False, True):
            for order, graphed in zip(ORDERS, self.follow(self.noting, grad=grad)):
                shapes = graphed.shapes()
                self.assertEqual(len(shapes), len(set(order)) * (1 + grad))
                self.assertGreaterEqual(sum(s["replays"] for s in shapes), (CALLS - 2 * len(set(order))) * (1 + grad))

    def test_what_the_program_sets_itself(self):
        """It was there as the call was captured, and is another one by a later call."""
        net = Noting().cuda()
        net.done = True
        graphed = reprise.graphed(net)
        with torch.no_grad():
            for i in range(9):
                net.done, net.extent = i % 3 != 2, None
                graphed(torch.ones(2, WIDTH, device="cuda"))
                self.assertEqual((net.done, net.extent), (True, [2, {"width": WIDTH}]))
            kept = net.extent
            graphed(torch.ones(2, WIDTH, device="cuda"))
        self.assertIsNot(net.extent, kept, "each call makes a list of its own")
        self.assertEqual(len(graphed.shapes()), 1)
        self.assertGreater(graphed.shapes()[0]["replays"], 6)

    def test_an_attribute_of_an_argument(self):
        states = [State(last=0), State(last=0)]

        def fn(x, state):
            state.last = x.shape[0]
            return x + 1
        graphed = reprise.graphed(fn)
        for i in range(24):
            size, state = (2, 2, 3, 3, 3)[i % 5], states[i % 2]
            graphed(torch.ones(size, WIDTH, device="cuda"), state)
            self.assertEqual(state.last, size)
        self.assertEqual(graphed.failures(), [])
        self.assertGreaterEqual(sum(s["replays"] for s in graphed.shapes()), 16)

    def branch(self, ask):
        """Beside eager calls, a net whose forward sets `done`, and whose branch for larger arguments asks for it."""
        class Branching(Noting):
            def larger(self, y):
                return y * 2 if ask(self) is True else y * 3

            def forward(self, x):
                y = self.inner(x)
                if x.shape[0] > 3:
                    y = self.larger(y)
                self.done = True
                return y

        def make():
            torch.manual_seed(2)
            net = Branching().cuda()
            net.done = True
            return net, lambda: net.done
        self.follow(make, orders=((2, 2, 2, 5, 5), (5, 2)))

    def test_a_branch_that_a_capture_meets_first_reads_it(self):
        self.branch(lambda net: net.done)

    def test_such_a_branch_reads_it_by_a_name_that_it_makes(self):
        self.branch(lambda net: getattr(net, "".join(("do", "ne"))))

    def test_such_a_branch_reads_it_in_a_dict(self):
        self.branch(lambda net: vars(net)["".join(("do", "ne"))])

    def test_another_branch_takes_no_further_capture(self):
        class Branching(Noting):
            def larger(self, y):
                return y * 2

            def forward(self, x):
                self.done = True
                return self.larger(self.inner(x)) if x.shape[0] > 3 else self.inner(x)
        net = Branching().cuda()
        net.done, graphed = True, reprise.graphed(net)
        with torch.no_grad():
            for size in (2, 2):
                graphed(torch.ones(size, WIDTH, device="cuda"))
            captures = Graphed.captures
            graphed(torch.ones(5, WIDTH, device="cuda"))
        self.assertEqual(Graphed.captures - captures, 1)

    def test_another_thread_finds_the_values_of_the_program(self):
        """While runs have others there."""
        net, found, stop = Noting().cuda(), [], threading.Event()
        net.done = True

        def look():
            while not stop.is_set():
                found.append((bool(net.done), len(net.extent), net.last + 1 > 0, f"{net.last}".isdigit()))
        one = threading.Thread(target=look)
        one.start()
        try:
            with torch.no_grad():
                for size in range(1, 7):
                    graphed = reprise.graphed(net)
                    for _ in range(3):
                        graphed(torch.ones(size, WIDTH, device="cuda"))
        finally:
            stop.set()
            one.join()
        self.assertTrue(found)
        self.assertEqual(set(found), {(True, 2, True, True)})

    def test_the_fast_path_sets_them(self):
        """And raises counters."""
        def fn(x):
            net.last = x.shape[0]
            net.calls += 2
            return x + 1
        net, x = State(last=0, calls=0), torch.ones(2, WIDTH, device="cuda")
        graphed = reprise.graphed(fn)
        for _ in range(6):
            graphed(x)
        with mock.patch.object(graphed, "_call_missed", side_effect=AssertionError):
            calls, net.last = net.calls, None
            graphed(x)
            self.assertEqual((net.last, net.calls), (2, calls + 2))
        replays = graphed.shapes()[0]["replays"]
        net.calls = "none"  # the fast path adds to no such thing: an eager call says so
        with self.assertRaises(TypeError):
            graphed(x)
        self.assertEqual(net.calls, "none")
        net.calls = 5
        graphed(x)
        self.assertEqual(net.calls, 7)
        self.assertEqual(graphed.shapes()[0]["replays"], replays + 1)


class Tensors(Case):
    """What the graph makes, in places that nobody reads."""

    class Keeping(Noting):
        def forward(self, x):
            h = self.inner(x)
            self.last, self.extent, self.named = h.mean(), [h, {"twice": (h * 2, x.shape[0])}], x.shape[0]
            self.done = h + 1
            return self.done

    def left(self, net):
        first, other = net.extent
        return (net.named, other["twice"][1], *(t.detach().cpu().tolist() for t in (
            net.last, first, other["twice"][0], net.done)))

    def make(self):
        torch.manual_seed(2)
        net = self.Keeping().cuda()
        return net, lambda: self.left(net)

    def test_sizes_in_turn(self):
        for grad in (False, True):
            for order, graphed in zip(ORDERS, self.follow(self.make, grad=grad)):
                self.assertEqual(len(graphed.shapes()), len(set(order)) * (1 + grad))

    def test_the_fast_path_sets_them(self):
        net, _ = self.make()
        graphed, x = reprise.graphed(net), torch.ones(2, WIDTH, device="cuda")
        with torch.no_grad():
            for _ in range(6):
                graphed(x)
            kept, net.last = (net.extent, self.left(net)), None
            with mock.patch.object(reprise.graphed_of(graphed), "_call_missed", side_effect=AssertionError):
                result = graphed(x)
        self.assertIs(net.done, result)
        self.assertIsNot(net.extent, kept[0])
        self.assertEqual(self.left(net), kept[1])
        self.assertNotEqual(net.extent[0].data_ptr(), kept[0][0].data_ptr())


class Mode(enum.Enum):
    FIRST, NEXT = 1, 2


class Choice:
    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return self is other


STATES = [Choice("even"), Choice("odd")]


class Objects(Case):
    """Which calls set where nobody reads."""

    def kept(self, forward, grad=False, **state):
        def make():
            torch.manual_seed(2)
            net = Noting().cuda()
            net.__dict__.update({name: made() for name, made in state.items()})
            net.forward = types.MethodType(forward, net)
            return net, lambda: self.told(net)
        return make

    @staticmethod
    def told(net):
        return repr(net.last), net.extent, net.named

    def test_constants_and_objects_of_the_program(self):
        def forward(self, x):
            self.last = Mode.FIRST if x.shape[0] == 2 else Mode.NEXT
            self.named = (torch.relu, torch.tanh)[x.shape[0] % 2]
            self.extent = STATES[x.shape[0] % 2]
            return self.inner(x)
        for order, graphed in zip(ORDERS, self.follow(self.kept(forward))):
            self.assertEqual(len(graphed.shapes()), len(set(order)))

    def refused(self, forward, state=None, place="self.extent"):
        torch.manual_seed(2)
        net, said = Noting().cuda(), []
        net.logs, net.history = {2: [], 3: []}, []
        net.forward = types.MethodType(forward, net)
        graphed, options = reprise.graphed(net), {"size": 0}
        with torch.no_grad():
            for i in range(12):
                size = (2, 2, 3, 3)[i % 4]
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    graphed(torch.ones(size, WIDTH, device="cuda"), *(() if state is None else (options,)))
                said += [str(w.message) for w in told]
                yield net, size, options
        self.assertIn(f"'{place}'", said[0])
        self.assertEqual(graphed.shapes(), [])

    def test_a_list_of_the_program_stays_that_list(self):
        def forward(self, x):
            self.extent = self.logs[x.shape[0]]
            return self.inner(x)
        for net, size, _ in self.refused(forward):
            self.assertIs(net.extent, net.logs[size])

    def test_one_list_in_two_places_stays_one(self):
        def forward(self, x):
            self.extent = self.named = [x.shape[0]]
            return self.inner(x)
        for net, _, _ in self.refused(forward):
            self.assertIs(net.extent, net.named)

    def test_a_dict_among_the_arguments_stays_that(self):
        def forward(self, x, options):
            self.extent = options
            return self.inner(x)
        for net, _, options in self.refused(forward, state=True):
            self.assertIs(net.extent, options)

    def test_an_object_that_is_new_in_each_call(self):
        def forward(self, x):
            self.extent = State(size=x.shape[0])
            return self.inner(x)
        for net, size, _ in self.refused(forward):
            self.assertEqual(net.extent.size, size)

    def test_another_state_for_each_request(self):
        """Calls set it in the one that is there."""
        def forward(self, x):
            self.extent.size = x.shape[0]
            self.extent.calls += 1
            return self.inner(x)
        for grad in (False, True):
            torch.manual_seed(2)
            net = Noting().cuda()
            net.forward = types.MethodType(forward, net)
            graphed, calls = reprise.graphed(net), 0
            with torch.set_grad_enabled(grad):
                for i in range(30):
                    if i % 7 == 0:
                        net.extent, calls = State(size=0, calls=0), 0
                    size, calls = (2, 2, 3)[i % 3], calls + 1
                    result = graphed(torch.ones(size, WIDTH, device="cuda"))
                    if grad:
                        result.sum().backward()
                    self.assertEqual((net.extent.size, net.extent.calls), (size, calls))
            self.assertEqual(graphed.failures(), [])
            self.assertGreater(sum(s["replays"] for s in graphed.shapes()), 15)

    def test_another_state_for_a_function(self):
        """Which closes over it, so that nothing else tells the fast path."""
        def make():
            state = State(size=0)

            def fn(x):
                state.size = x.shape[0]
                return x + 1

            def renew():
                nonlocal state
                state = State(size=0)
                return state
            return fn, renew
        fn, renew = make()
        graphed, x = reprise.graphed(fn), torch.ones(2, WIDTH, device="cuda")
        for i in range(24):
            state = renew() if i % 6 == 0 else state
            state.size = None
            graphed(x)
            self.assertEqual(state.size, 2, i)
        self.assertEqual([s["replays"] for s in graphed.shapes()], [23])

    def test_a_property_with_a_setter(self):
        class Sized(Noting):
            @property
            def size(self):
                return self._size

            @size.setter
            def size(self, value):
                self._size = value * self.by
                self.sets += 1

            def forward(self, x):
                self.size = x.shape[0]
                return self.inner(x)

        def make():
            torch.manual_seed(2)
            net = Sized().cuda()
            net._size, net.sets, net.by = 0, 0, 2
            return net, lambda: (net.size, net.sets)
        for graphed in self.follow(make):
            self.assertGreater(sum(s["replays"] for s in graphed.shapes()), CALLS // 2)


class Behind(unittest.TestCase):
    def test_what_a_backward_pass_sets(self):
        class Scale(torch.autograd.Function):
            last = 0

            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                Scale.last = grad.shape[0]
                return grad * 2

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(WIDTH, WIDTH)

            def forward(self, x):
                return Scale.apply(self.inner(x))
        graphed, said = reprise.graphed(Net().cuda()), []
        for i in range(12):
            size = (2, 2, 3, 3)[i % 4]
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                graphed(torch.ones(size, WIDTH, device="cuda")).sum().backward()
            said += [str(w.message) for w in told]
            self.assertEqual(Scale.last, size)
        self.assertIn("'Scale.last'", said[0])


class Alike(unittest.TestCase):
    def test_code_that_callables_like_it_did_not_run(self):
        """It sets what nobody knew that it would: such a capture is taken again."""
        class Net(Noting):
            def __init__(self, note):
                super().__init__()
                self.note = note

            def forward(self, x):
                self.note(self, x)
                return self.inner(x)

        def nothing(net, x):
            pass

        def size(net, x):
            net.last = x.shape[0]
        for note in (nothing, size):
            net = Net(note).cuda()
            net.last, graphed = 2, reprise.graphed(net)
            with torch.no_grad():
                for i in range(10):
                    rows = (2, 2, 2, 3, 3)[i % 5]
                    graphed(torch.ones(rows, WIDTH, device="cuda"))
                    self.assertEqual(net.last, rows if note is size else 2)


class Moved(unittest.TestCase):
    """Tensors that the call before left, and that go on elsewhere without a kernel that reads them."""

    def follow(self, fn, is_refused=True):
        """fn(held, x), beside eager calls."""
        found = []
        for wrap in (lambda call: call, reprise.graphed):
            held = types.SimpleNamespace(last=None, before=None, rows=[], named={})
            call = wrap(lambda x, held=held: fn(held, x))
            with torch.no_grad(), warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                results = [call(torch.full((2,), i + 1.0, device="cuda")) for i in range(9)]
            found.append(([None if r is None else r.tolist() for r in results], repr(held)))
        self.assertEqual(*found)
        told = " ".join(str(one.message) for one in said)
        self.assertEqual("(is read and replaced)" in told, is_refused, told)
        self.assertEqual(sum(shape["replays"] for shape in call.shapes()) >= 5, not is_refused, call.failures())

    def test_a_result_is_that_of_the_call_before(self):
        def fn(held, x):
            before, held.last = held.last, x * 2
            return before
        self.follow(fn)

    def test_a_result_is_a_view_of_it(self):
        def fn(held, x):
            before, held.last = held.last, x * 2
            return None if before is None else before[:1]
        self.follow(fn)

    def test_another_attribute_has_it(self):
        def fn(held, x):
            held.before, held.last = held.last, x * 2
            return x + 1
        self.follow(fn)

    def test_rows_move_up(self):
        def fn(held, x):
            held.rows.append(x * 2)
            if len(held.rows) > 2:
                held.rows.pop(0)
            return x + 1
        self.follow(fn)

    def test_what_stays_in_its_place_does_not_move(self):
        first = torch.ones(2, device="cuda")

        def fn(held, x):
            held.named = {**held.named, "first": first, "last": x * 2}
            return x + 1
        self.follow(fn, is_refused=False)


class Row:
    """A node of trees, which the program's code takes apart."""

    def __init__(self, value):
        self.value = value


def take_apart(row):
    return [row.value], None


torch.utils._pytree.register_pytree_node(Row, take_apart, lambda values, _: Row(*values))


class Ahead(unittest.TestCase):
    """What a capture would find new is known from the first call on."""

    def executed(self, fn):
        graphed = reprise.graphed(fn)
        with torch.no_grad():
            graphed(torch.ones(2, WIDTH, device="cuda"))
            executed = graphed._reads.executed
            known = executed.size
            captures = Graphed.captures
            graphed(torch.ones(2, WIDTH, device="cuda"))
        self.assertEqual(Graphed.captures - captures, 1)
        self.assertEqual(executed.size, known)
        return executed

    def test_a_name_that_it_makes(self):
        """Where compilations can be told of: one that the call imports would meet what stands for getattr."""
        importlib.import_module("torch._dynamo")
        held = types.SimpleNamespace(scale=2.0)
        self.assertIn("scale", self.executed(lambda x: x * getattr(held, "".join(("sc", "ale")))).made)

    def test_what_takes_results_apart(self):
        self.assertIn(place_of(take_apart.__code__), self.executed(lambda x: Row(x * 2)))


class Once(unittest.TestCase):
    def test_what_a_capture_executes_is_followed_from_there(self):
        """All that is read is looked through once, also where results lie in containers."""
        def branch(x):
            return x * 3

        def inner(x):
            return branch(x) if torch.cuda.is_current_stream_capturing() else x * 2

        def fn(given):
            return {"y": inner(given["x"])}
        graphed = reprise.graphed(fn)
        with torch.no_grad(), mock.patch.object(Values, "look_again", autospec=True,
                                                side_effect=Values.look_again) as looked:
            for _ in range(4):
                graphed({"x": torch.ones(2, WIDTH, device="cuda")})
        self.assertIn(place_of(branch.__code__), graphed._reads.executed)
        self.assertEqual(looked.call_count, 1)


class Counters(Case):
    """Which one kind of call raises and another one sets."""

    def test_sets_beside_raises(self):
        def forward(self, x):
            if x.shape[0] == 2:
                self.last += 1
            else:
                self.last = 0
            return self.inner(x)
        torch.manual_seed(2)
        net, want, said = Noting().cuda(), 0, []
        net.forward = types.MethodType(forward, net)
        graphed = reprise.graphed(net)
        with torch.no_grad():
            for i in range(24):
                size = (2, 2, 3, 3, 2)[i % 5]
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    graphed(torch.ones(size, WIDTH, device="cuda"))
                said += told
                want = want + 1 if size == 2 else 0
                self.assertEqual(net.last, want, i)
        self.assertIn("'self.last'", str(said[0].message))


class InSegments(unittest.TestCase):
    def test_each_segment_sets_what_it_did(self):
        net, log = State(size=0, behind=0, kept=0), []

        @reprise.eager
        def note(y):
            log.append((net.size, net.behind))
            return y * 2

        def fn(x):
            net.size = x.shape[0]
            y = note(x + 1)
            net.behind = x.shape[0] * 3
            return y + 1
        graphed = reprise.graphed(fn, parts=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for i in range(24):
                size, before = (2, 2, 3, 3, 3)[i % 5], net.behind
                x = torch.full((size, WIDTH), 1.0 + i, device="cuda")
                self.assertTrue(torch.equal(graphed(x), (x + 1) * 2 + 1))
                self.assertEqual((net.size, net.behind, log[-1], len(log)), (size, size * 3, (size, before), i + 1))
        self.assertEqual(graphed.failures(), [])
        fact = reprise.graphed_of(graphed).parts()[0]
        self.assertEqual((fact["way"], fact["graphs"]), ("segments", 4))


    def test_another_state_for_each_request(self):
        """Segments set it in the one that is there."""
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.state = State(size=0)

            def forward(self, x):
                self.state.size = x.shape[0]
                return note(x + 1) + 1

        @reprise.eager
        def note(y):
            return y * 2
        net = Net().cuda()
        graphed = reprise.graphed(net, parts=True)
        with torch.no_grad():
            for i in range(20):
                if i % 6 == 0:
                    net.state = State(size=0)
                size = (2, 2, 3)[i % 3]
                graphed(torch.ones(size, WIDTH, device="cuda"))
                self.assertEqual(net.state.size, size, i)
        fact = reprise.graphed_of(graphed).parts()[0]
        self.assertEqual(fact["way"], "segments", fact)


class Read(Case):
    """What is set tells calls apart where code reads it."""

    def test_what_a_call_reads_and_sets(self):
        class Last(Noting):
            def forward(self, x):
                y = self.inner(x) + self.last
                self.last = x.shape[0]
                return y

        def make():
            torch.manual_seed(2)
            net = Last().cuda()
            return net, lambda: net.last
        for graphed in self.follow(make):
            self.assertGreater(sum(s["replays"] for s in graphed.shapes()), CALLS // 3)

    def test_what_layers_of_pytorch_read(self):
        """Code of PyTorch's is not followed, but what it looks at is."""
        class Dropping(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.table, self.act = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Embedding(4, WIDTH), torch.nn.LeakyReLU()
                self.register_buffer("row", torch.tensor([2]))
                self.act.negative_slope = 0.5

            def forward(self, x):
                y = self.act(self.inner(x) - 5)
                self.act.negative_slope = 0.25 if x.shape[0] == 2 else 0.75
                y = self.act(y) + self.table(self.row)
                self.table.padding_idx = None  # of which PyTorch asks whether it is that
                return y

        def make():
            torch.manual_seed(2)
            net = Dropping().cuda()
            return net, lambda: net.act.negative_slope
        self.follow(make)

    def test_an_item_of_a_dict(self):
        def make():
            state = {"size": 0, "name": ""}

            def fn(x):
                state["size"] = x.shape[0]
                state.update(name=str(x.shape[0]))
                return x + 1
            return fn, lambda: dict(state)
        for graphed in self.follow(make):
            self.assertGreater(sum(s["replays"] for s in graphed.shapes()), CALLS // 3)

    def kinds(self, make):
        """make() gives a function of an input and of whether to set, which else multiplies by what was set last."""
        torch.manual_seed(3)
        fn, said, last, sets = make(), [], 0, 0
        graphed = reprise.graphed(fn)
        for size, set_it in ((2, True), (2, False), (3, False), (3, True), (2, False), (2, True), (3, False)) * 6:
            x = torch.full((size, WIDTH), 1.5, device="cuda")
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                got = graphed(x, set_it)
            said += [str(w.message) for w in told]
            last, sets = (size, sets + 1) if set_it else (last, sets)
            self.assertTrue(torch.equal(got, x + 1 if set_it else x * fn.want(last, sets)), (size, set_it))
        return graphed, said

    def test_one_kind_of_call_sets_and_another_reads(self):
        def attribute():
            state = State(size=0)

            def fn(x, set_it):
                if set_it:
                    state.size = x.shape[0]
                    return x + 1
                return x * state.size
            return fn

        def item():
            state = {"size": 0}

            def fn(x, set_it):
                if set_it:
                    state["size"] = x.shape[0]
                    return x + 1
                return x * state["size"]
            return fn

        def variable():
            size = 0

            def fn(x, set_it):
                nonlocal size
                if set_it:
                    size = x.shape[0]
                    return x + 1
                return x * size
            return fn

        def of_the_module():
            def fn(x, set_it):
                global LAST
                if set_it:
                    LAST = x.shape[0]
                    return x + 1
                return x * LAST
            return fn
        for kind in (attribute, item, variable, of_the_module):
            with self.subTest(kind.__name__):
                def make(kind=kind):
                    fn = kind()
                    fn.want = lambda last, sets: last
                    return fn
                graphed, said = self.kinds(make)
                self.assertEqual(said, [])
                self.assertGreater(sum(s["replays"] for s in graphed.shapes()), 20)

    def test_one_kind_of_call_counts_and_another_reads(self):
        def make():
            state = State(calls=0)

            def fn(x, set_it):
                if set_it:
                    state.calls += 1
                    return x + 1
                return x * state.calls
            fn.want = lambda last, sets: sets
            return fn
        _, said = self.kinds(make)
        self.assertIn("'state.calls' (is raised) in each call, which replays would not, as other calls may read it", said[0])

    def test_another_value_in_each_run(self):
        """What nothing puts back counts here: calls are eager."""
        counter = ctypes.c_int(0)

        def fn(x):
            counter.value += 1
            state.last = counter.value
            return x + 1
        state, said = State(last=0), []
        graphed = reprise.graphed(fn)
        for _ in range(6):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                graphed(torch.ones(2, WIDTH, device="cuda"))
            said += [str(w.message) for w in told]
            self.assertEqual(state.last, counter.value)
        self.assertIn("'state.last'", said[0])
        self.assertIn("to another value in each run of a capture", said[0])
        self.assertEqual(graphed.shapes(), [])


if __name__ == "__main__":
    unittest.main()
