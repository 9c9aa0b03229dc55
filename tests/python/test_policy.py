# SPDX-License-Identifier: MIT
"""policy="auto" without a GPU: how calls are made of what a choice says; and what is told of it."""

import functools
import gc
import threading
import types
import unittest
import warnings
import weakref
from unittest import mock

import reprise
from fake_fast_path import give_fast_path
from fake_gradients import ADDRESS, Gradient, names, param, without_effects
from no_reads import give_none
from reprise._base import torch_private
from reprise._call import graphed, params, policy
from reprise._grad import gradients
from reprise._call.graphed import MOST_STALE
from reprise._shapes.shape import Shape

EAGER, GRAPH, CAPTURE = range(3)


class ScriptedChoice:
    """A choice that says what a test wants, and remembers what it was told."""

    def __init__(self, ways=(), rests=0):
        self.ways = list(ways)
        self.rests = rests
        self.told = []

    def begin(self, stream, ahead_us):
        assert stream == 7 and ahead_us > 0
        return (self.ways.pop(0), 0, 0)

    def end(self, turn, worked):
        self.told.append(("end", turn[0], worked))

    def captured(self, worked, ms):
        assert ms >= 0
        self.told.append(("captured", worked))

    def rest(self, most):
        return min(most, self.rests)

    def info(self):
        return {"choice": "eager"}


class Replayed(Shape):
    has_given = hands_on = False

    def __init__(self, *uses):
        self.graph, self.given, self.stale = types.SimpleNamespace(names=names(*uses)), (), False
        self._leaves, self.results, self.torch = (), (), types.SimpleNamespace(strided="strided")

    def replay(self, tensors):
        assert not self.stale
        return ("graph", len(tensors))

    def is_stale(self):
        return self.stale

    def parts(self):
        return (types.SimpleNamespace(graph=types.SimpleNamespace(
            info=lambda: {"lost_bytes": 4096}, left_others=lambda: False, where_lost=lambda: "")),)

    def short(self, tensors):
        return None


def judged(fn):
    """A callable as policy="auto" makes it, but for the GPU."""
    made = policy.Judged.__new__(policy.Judged)
    made._torch = types.SimpleNamespace(
        __version__="2.11.0",
        cuda=types.SimpleNamespace(is_current_stream_capturing=lambda: False,
                                   current_device=lambda: 0),
        _C=types.SimpleNamespace(_cuda_getCurrentRawStream=lambda index: 7),
        is_autocast_enabled=lambda: True, is_grad_enabled=lambda: made.grad, strided="strided",
        OutOfMemoryError=MemoryError, Tensor=type("Tensor", (), {}))
    made.grad = False
    made._fn, made._name, made._strict, made._verify = fn, "subject", False, None
    made._rest = 0
    give_fast_path(made)
    made._eager_runs = made._warmup = 1
    made._shapes, made._failures, made._stale, made._cases = {}, {}, {}, {}
    made._lock = threading.RLock()
    made._judges = {0: None}
    made._trained, made._drops = (), {}
    made._gradients = lambda: gradients.Gradients(made.params)
    without_effects(made)
    made.params = []
    made._spec = None
    give_none(made)
    made._key = lambda leaves, spec: ([], ("key", made._spec))
    made._is_split = lambda tensors: False
    made._why_aside = lambda: None
    made._shape_name = lambda tensors: "subject(3)"
    return made


class Calls(unittest.TestCase):
    def setUp(self):
        self.kept = policy._Choice
        patcher = mock.patch.object(gradients._C, "is_captured", lambda address: address != ADDRESS)
        self.addCleanup(patcher.stop)
        patcher.start()

    def tearDown(self):
        policy._Choice = self.kept

    def subject(self, ways, *, rests=0, capture=Replayed, fn=lambda x: ("eager", x)):
        choice = ScriptedChoice(ways, rests)
        policy._Choice = lambda judge: choice
        patcher = mock.patch.object(graphed.Graphed, "_take", lambda *args: capture())
        self.addCleanup(patcher.stop)
        patcher.start()
        return judged(fn), choice

    def test_calls_go_as_the_choice_says(self):
        made, choice = self.subject([EAGER, CAPTURE, GRAPH, EAGER, GRAPH])
        ways = [made(3)[0] for _ in range(4)]
        self.assertEqual(ways, ["eager", "graph", "eager", "graph"])
        self.assertEqual(choice.told, [("end", EAGER, True), ("captured", True),
                                       ("end", GRAPH, True), ("end", EAGER, True),
                                       ("end", GRAPH, True)])

    def test_what_cannot_be_captured_stays_eager_and_warns(self):
        def refuse():
            raise RuntimeError("it reads a value")
        made, choice = self.subject([CAPTURE, EAGER, EAGER], capture=refuse)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.assertEqual([made(3)[0] for _ in range(2)], ["eager"] * 2)
        self.assertEqual([t[:2] for t in choice.told],
                         [("captured", False), ("end", EAGER), ("end", EAGER)])
        self.assertEqual(len(said), 1)
        self.assertIn("it reads a value", made.failures()[0])
        made, choice = self.subject([CAPTURE], capture=refuse)
        made._strict = True
        with self.assertRaisesRegex(RuntimeError, "it reads a value"):
            made(3)

    def test_a_call_that_raises_is_not_measured(self):
        def fn(x):
            if x == 5:
                raise ValueError("five")
            return ("eager", x)
        made, choice = self.subject([EAGER, EAGER], fn=fn)
        with self.assertRaises(ValueError):
            made(5)
        made(4)
        self.assertEqual(choice.told, [("end", EAGER, False), ("end", EAGER, True)])

    def test_both_passes_are_one_call(self):
        """It ends behind the backward pass, once, and counts for nothing where none comes."""
        behind = []
        Tensor = type("Tensor", (), {})
        Node = type("Node", (), {"register_prehook": lambda self, hook: setattr(self, "hook", hook)})

        def fn(x):
            result = Tensor()
            result.grad_fn = Node()
            return result
        made, choice = self.subject([], fn=fn)
        choice.begin = lambda stream, ahead: (EAGER, 5, 0)
        made._torch.Tensor = Tensor
        made._is_split = lambda tensors: True
        with mock.patch.object(torch_private, "of", lambda torch: types.SimpleNamespace(
                raw_stream=lambda index: 7, queue_callback=behind.append)):
            result = made(3)
            self.assertEqual(choice.told, [])
            result.grad_fn.hook()
            self.assertEqual(choice.told, [])
            behind.pop()()
            result.grad_fn.hook()  # a second pass
            behind.pop()()
            del result
            self.assertEqual(choice.told, [("end", EAGER, True)])
            made(3)
            gc.collect()
        self.assertEqual(choice.told, [("end", EAGER, True), ("end", EAGER, False)])

    def test_eager_calls_rest(self):
        made, choice = self.subject([EAGER, EAGER], rests=6)
        for _ in range(1 + 6 + 1):
            self.assertEqual(made(3), ("eager", 3))
        self.assertEqual(choice.told, [("end", EAGER, True)] * 2)
        self.assertEqual(made._rest, 6)

    def test_the_fast_path_has_a_graph_before_its_first_call_or_forgets_the_shape(self):
        """It knows the shape for eager calls, and would lose the graph's first block."""
        for takes_graphs in (True, False):
            made, choice = self.subject([CAPTURE, GRAPH])
            told = choice.told
            made._fast_path.clear = lambda: told.append("cleared")

            def offer(case, *call):
                told.append(("offered", case.shape is not None))
                return case.shape is not None and takes_graphs
            made._offer = offer
            made(3)
            after = told[told.index(("captured", True)) + 1:]
            self.assertEqual(after, [("offered", True)] + ["cleared"] * (not takes_graphs) +
                             [("end", GRAPH, True)])

    def test_where_gradients_decide_the_fast_path_has_graphs_alone(self):
        """An eager call, that is, which it knew by its arguments, might be of another case."""
        made, choice = self.subject([])
        added, mine = [], param()
        give_fast_path(made, takes=True, add=lambda *call: added.append(call) or True)
        made._told_on_cpu = lambda *_: ("told",)
        case = policy._Case("subject(3)", choice, 0)
        made._trained = (mine,)
        self.assertFalse(made._offer(case, ("key", (True,)), (3,), {}, []))
        self.assertEqual(added, [])
        case.shape = Replayed()
        case.shape.used, case.shape.short = (), lambda *_: ((), "build")
        made._shapes[("key", (True,))] = case.shape
        self.assertTrue(made._offer(case, ("key", (True,)), (3,), {}, []))
        self.assertEqual(added, [(0, (3,), {}, case.shape.graph, (), "build", choice,
                                  ((mine, True, None),), ("told",), ())])
        made._trained, case.shape = (), None
        self.assertTrue(made._offer(case, ("key", None), (3,), {}, []))
        self.assertEqual(added[1][3:], (None, (), None, choice, (), ("told",)))

    def test_gradients_lie_with_whose_call_it_is(self):
        """Those of a capture are held by nobody behind it."""
        mine, other = param(Gradient()), param()
        earlier, made_in = mine.grad, []

        def capture():
            mine.grad = Gradient()
            made_in.append(weakref.ref(mine.grad))
            return Replayed()
        made, choice = self.subject([CAPTURE, EAGER], capture=capture)
        made.params = [mine, other]
        made.grad = True

        def twin(torch, grad, owner):
            twins.append((Gradient(), owner))
            return twins[-1][0]
        twins = []
        with mock.patch.object(gradients, "twin", twin):
            made(3)
        self.assertIs(mine.grad, earlier)
        self.assertIsNone(made_in[0]())
        shape, = made._shapes.values()
        gradients.give(shape.given)
        self.assertEqual([owner for _, owner in twins], [shape.graph])
        self.assertIs(mine.grad, twins[0][0])
        self.assertIsNone(other.grad)

    def test_a_graph_that_drops_gradients_looks_at_those_that_it_never_saw(self):
        here, other = param(Gradient()), param()

        def capture():
            here.grad, other.grad = Gradient(), None
            return Replayed()
        made, _ = self.subject([CAPTURE, GRAPH, CAPTURE, GRAPH], capture=capture)
        made.params = [here, other]
        made._key = lambda leaves, spec: ([], ("key", made._pattern("key")))
        with mock.patch.object(gradients, "twin", lambda torch, grad, owner: grad):
            made(3)
            self.assertIsNotNone(here.grad)
            other.grad = Gradient()  # another shape's
            made(3)
            for other.grad in (None, Gradient()):
                gradients.give(list(made._shapes.values())[-1].given)
                self.assertIsNone(other.grad)
        self.assertEqual(list(made._shapes), [("key", (True,)), ("key", None)])
        self.assertEqual(made._pattern("key"), None)

    def test_a_graph_that_uses_gradients_and_drops_them_looks_at_them(self):
        """As an optimizer's step with zero_grad() behind it does: they are part of the key, and their
        place is looked at. One that drops them unread is right wherever they lie."""
        for uses in ((), (ADDRESS,)):
            mine = param(Gradient())

            def capture():
                mine.grad = None
                return Replayed(*uses)
            made, _ = self.subject([CAPTURE, EAGER], capture=capture)
            made.params = [mine]
            made(3)
            shape, = made._shapes.values()
            self.assertEqual(shape.used, ((mine, ADDRESS),) if uses else ())
            self.assertEqual(made._pattern("key"), (False,) if uses else None)
            self.assertIsNotNone(mine.grad)
            gradients.give(shape.given)
            self.assertIsNone(mine.grad)

    def test_no_graph_adds_to_gradients_of_another(self):
        for bits in (1, 3):
            mine = param(Gradient())

            def capture():
                shape = Replayed()
                shape.graph.names = names(ADDRESS, bits=bits)
                return shape
            made, choice = self.subject([CAPTURE, EAGER], capture=capture)
            made.params = [mine]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made(3)
            self.assertEqual(choice.told[0], ("captured", bits == 1))
            self.assertEqual([s.used for s in made._shapes.values()],
                             [((mine, ADDRESS),)] if bits == 1 else [])
        self.assertIn("adds to gradients that another graph", made.failures()[0])

    def test_gradients_of_a_capture_that_fails_are_dropped(self):
        mine, kept = param(), param(Gradient())
        grad = kept.grad

        def capture():
            mine.grad, kept.grad = Gradient(), Gradient()
            raise RuntimeError("it reads a value")
        made, _ = self.subject([CAPTURE, EAGER], capture=capture)
        made.params = [mine, kept]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made(3)
        self.assertIsNone(mine.grad)
        self.assertIs(kept.grad, grad)

    def test_a_graph_that_is_stale_at_once_is_not_replayed(self):
        def capture():
            shape = Replayed()
            shape.stale = True
            return shape
        made, _ = self.subject([CAPTURE], capture=capture)
        self.assertEqual(made(3), ("eager", 3))
        self.assertEqual((made._cases, made._shapes), ({}, {}))
        self.assertEqual(list(made._stale.values()), [1])

    def test_a_graph_whose_memory_was_freed_is_judged_anew(self):
        """As often as graphs of that shape may be captured anew; then its choice hears of no graph."""
        choices = []

        def meet(judge):
            choices.append(ScriptedChoice([CAPTURE, GRAPH] if len(choices) < MOST_STALE else
                                          [EAGER, EAGER]))
            return choices[-1]
        made, _ = self.subject([])
        policy._Choice = meet
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for n in range(MOST_STALE):
                self.assertEqual(len(said), 0)
                self.assertEqual(made(3), ("graph", 0))
                self.assertEqual(made._stale, {("key", made._spec): n} if n else {})
                made._shapes["key", made._spec].stale = True
            self.assertEqual([made(3), made(3)], [("eager", 3)] * 2)
        self.assertEqual(len(choices), MOST_STALE + 1)
        self.assertEqual(choices[-1].told, [("captured", False), ("end", EAGER, True),
                                            ("end", EAGER, True)])
        self.assertEqual(len(said), 1)
        self.assertIn("4096 bytes, was freed after each of 4 captures", str(said[0].message))
        self.assertEqual(said[0].filename, __file__)
        self.assertIn("4096 bytes", made.failures()[0])
        made._forget()
        self.assertEqual((made._stale, made._failures), ({}, {}))


class Parameters(unittest.TestCase):
    def test_they_are_found_where_a_step_has_them(self):
        class Module:
            def __init__(self, *params):
                self.params = lambda: params
                self.parameters = "an attribute that has the name of a method"

            def parameters(self):
                return self.params()

        class Optimizer:
            def __init__(self, *params):
                self.param_groups = [{"params": list(params)}]

            def step(self):
                return None
        torch = types.SimpleNamespace(nn=types.SimpleNamespace(Module=Module),
                                      optim=types.SimpleNamespace(Optimizer=Optimizer))
        a, b, c, d = (types.SimpleNamespace() for _ in range(4))
        net, optimizer = Module(a), Optimizer(b, a)

        def step():
            return net, optimizer, late
        self.assertEqual(params.find_params(torch, step, [d]), [d, a, b])
        late = None
        net.params = lambda: self.fail("its parameters are known")
        self.assertEqual(params.find_params(torch, step, [a], [net]), [a, b])

        class Trainer:
            def __init__(self):
                self.net, self.optimizer, self.rate = Module(c), Optimizer(c), 0.1

            def step(self):
                return None
            def __call__(self):
                return None
        self.assertEqual(params.find_params(torch, Trainer().step, []), [c])
        self.assertEqual(params.find_params(torch, Trainer(), []), [c])
        script = {"net": Module(a), "optimizer": Optimizer(b), "unused": Module(d), "late": len}
        exec("def inner():\n    return net\n"
             "def step():\n    return inner, optimizer, late, step, missing\n", script)
        self.assertCountEqual(params.find_params(torch, script["step"], []), [a, b])
        script.update(net={"g": Module(a)}, optimizer=[3, Optimizer(c)], late=[Module(d)] * 100)
        self.assertCountEqual(params.find_params(torch, script["step"], []), [a, c])
        script["net"] = Module(a)
        around = functools.wraps(script["inner"])(lambda: None)
        self.assertEqual(params.find_params(torch, around, []), [a])
        self.assertEqual(params.find_params(torch, len, []), [])
        self.assertEqual(params.find_params(torch, Optimizer(d).step, []), [d])


class Told(unittest.TestCase):
    def test_a_policy_that_is_none(self):
        with self.assertRaisesRegex(ValueError, "always, auto or never"):
            reprise.graphed(lambda x: x, policy="often")

    def test_a_verdict_is_a_sentence(self):
        fact = {"shape": "net(8x64)", "choice": "graph", "reason": "measured to be the fastest",
                "eager_us": 61.23, "graph_us": 7.0, "judged_calls": 900, "measured_calls": 120,
                "bound_args": 3, "copied_args": 1, "own_exec": True, "exec_updates": 0}
        self.assertEqual(policy.verdict(fact),
                         "net(8x64): graph: measured to be the fastest (eager 61.2 us, graph 7.0 "
                         "us; 120 of 900 calls measured); its graph: 3 arguments bound, 1 copied, "
                         "an exec of its own")
        fact.update(own_exec=False, exec_updates=4)
        self.assertTrue(policy.verdict(fact).endswith("a shared exec, updated 4 times"))
        fact.update(passes="forward and backward")
        self.assertIn("the fastest, forward and backward as one (eager", policy.verdict(fact))


if __name__ == "__main__":
    unittest.main()
