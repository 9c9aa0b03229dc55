# SPDX-License-Identifier: MIT
"""Callables in parts, on a GPU: what cannot be captured whole is captured by its modules, and marks keep code
outside. Usage: gpu_parts.py [--install] ..."""

import copy
import gc
import pickle
import signal
import sys
import threading
import unittest
import warnings
import weakref

import torch
from torch.utils.checkpoint import checkpoint

import reprise

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

WIDTH = 8


def block(width=WIDTH):
    return torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, width),
                               torch.nn.Tanh())


class Asking(torch.nn.Module):
    """A number is read on the host in the middle."""

    def __init__(self, first=None, second=None):
        super().__init__()
        self.first = first or block()
        self.second = second or block()

    def forward(self, x):
        h = self.first(x)
        if h.sum().item() > 0:
            h = h * 2
        return self.second(h)


class Experts(torch.nn.Module):
    """A mixture of experts, whose rows are sorted out on the host."""

    def __init__(self, count=3):
        super().__init__()
        self.gate = torch.nn.Linear(WIDTH, count)
        self.experts = torch.nn.ModuleList(block() for _ in range(count))
        self.out = block()

    def forward(self, x):
        chosen = self.gate(x).argmax(dim=1).tolist()
        made = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = [r for r, c in enumerate(chosen) if c == i]
            if rows:
                made[rows] = expert(x[rows])
        return self.out(made)


class Detector(torch.nn.Module):
    """Scores every place, and looks closer at those above a threshold, however many these are."""

    def __init__(self):
        super().__init__()
        self.trunk = block()
        self.head = torch.nn.Linear(WIDTH, 1)
        self.closer = block()

    def forward(self, x):
        features = self.trunk(x)
        found = torch.nonzero(self.head(features).squeeze(1) > 0).squeeze(1)
        return found, self.closer(features[found])


class EarlyExit(torch.nn.Module):
    """Layers until the host finds the result good enough."""

    def __init__(self, depth=4):
        super().__init__()
        self.layers = torch.nn.ModuleList(block() for _ in range(depth))
        self.ran = 0

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if x.abs().mean().item() < 0.2:
                break
        return x


class Deep(torch.nn.Module):
    """The number is read two modules below."""

    def __init__(self):
        super().__init__()
        self.before = block()
        self.middle = torch.nn.Sequential(block(), Asking(), block())

    def forward(self, x):
        return self.middle(self.before(x)) + 1


class Iterated(torch.nn.Module):
    """A module whose own forward is never called."""

    def __init__(self):
        super().__init__()
        self.row = torch.nn.Sequential(block(), block())

    def forward(self, x):
        for item in self.row:
            x = item(x)
            x.sum().item()
        return x


class Twice(torch.nn.Module):
    """One module called three times in a call, by two parents."""

    def __init__(self):
        super().__init__()
        self.shared = block()
        self.asking = Asking(self.shared, block())

    def forward(self, x):
        return self.asking(self.shared(self.shared(x)))


def inputs(count, rows=6):
    torch.manual_seed(3)
    return [torch.randn(rows, WIDTH, device="cuda") for _ in range(count)]


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        warnings.simplefilter("error")

    def made(self, net, **options):
        self.plain = copy.deepcopy(net)
        return reprise.graphed(net, parts=True, **options)

    def ways(self, made):
        return {fact["name"].partition(".")[2]: fact["way"] for fact in reprise.graphed_of(made).parts()}

    def fact(self, made, name):
        return next(fact for fact in reprise.graphed_of(made).parts()
                    if fact["name"].partition(".")[2] == name)


class Inference(Case):
    def same(self, made, plain=None, calls=9, rows=6, given=None):
        with torch.no_grad():
            for x in given or inputs(calls, rows):
                want, got = (plain or self.plain)(x), made(x)
                for w, g in zip(*[(r if isinstance(r, tuple) else (r,)) for r in (want, got)]):
                    torch.testing.assert_close(g, w, rtol=1e-6, atol=1e-6)

    def test_a_number_read_in_the_middle(self):
        net = Asking().cuda()
        made = self.made(net)
        self.same(made)
        self.assertEqual(self.ways(made), {"": "parts", "first": "graph", "second": "graph"})
        fact = self.fact(made, "")
        self.assertIn("h.sum().item()", fact["line"])
        self.assertTrue(fact["reason"])
        before = sum(graph["calls"] for graph in net.first.shapes())
        self.same(made, calls=3)
        self.assertEqual(sum(graph["calls"] for graph in net.first.shapes()), before + 3)

    def test_a_part_that_draws_on_the_cpu(self):
        class Noisy(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(WIDTH, WIDTH)

            def forward(self, x):
                return self.layer(x) + torch.rand(WIDTH).to(x.device)
        for grad in (False, True):
            with self.subTest(grad=grad), torch.set_grad_enabled(grad):
                net = Asking(first=Noisy()).cuda()
                made, got, want = reprise.graphed(net, parts=True, name=f"noisy{grad}"), [], []
                for fn, into in ((net, want), (made, got)):
                    torch.manual_seed(3)
                    for i in range(6):
                        y = fn(torch.full((4, WIDTH), 0.1 * i, device="cuda"))
                        if grad:
                            y.square().sum().backward()
                        into += [y.detach().clone(), torch.get_rng_state()]
                self.assertTrue(all(map(torch.equal, got, want)))
                self.assertIn(f"noisy{grad}.first: graph", reprise.report())

    def test_a_net_that_can_be_captured_is_one_graph(self):
        net = torch.nn.Sequential(block(), block()).cuda()
        made = self.made(net)
        self.same(made)
        self.assertEqual(self.ways(made), {"": "graph"})
        self.assertIs(type(net[0]), torch.nn.Sequential)

    def test_experts(self):
        made = self.made(Experts().cuda())
        self.same(made, calls=40)
        ways = self.ways(made)
        self.assertEqual([ways[f"experts.{i}"] for i in range(3)], ["graph"] * 3)
        self.assertEqual(ways["out"], "graph")
        self.assertEqual(ways["gate"], "eager")
        self.assertIn("nodes", self.fact(made, "gate")["reason"])

    def test_a_detector(self):
        made = self.made(Detector().cuda())
        self.same(made, calls=20)
        self.assertEqual(self.ways(made)["trunk"], "graph")
        self.assertEqual(self.ways(made)["closer"], "graph")

    def test_an_early_exit(self):
        made = self.made(EarlyExit().cuda())
        self.same(made, calls=20)
        self.assertEqual(self.ways(made)["layers.0"], "graph")

    def test_the_refused_module_is_divided_too(self):
        made = self.made(Deep().cuda())
        self.same(made, calls=20)
        self.assertEqual(self.ways(made), {
            "": "parts", "before": "graph", "middle": "parts", "middle.0": "graph", "middle.1": "parts",
            "middle.1.first": "graph", "middle.1.second": "graph", "middle.2": "graph"})
        self.assertIn("h.sum().item()", self.fact(made, "middle.1")["line"])

    def test_a_module_that_is_not_called_is_divided(self):
        made = self.made(Iterated().cuda())
        self.same(made, calls=12)
        self.assertEqual(self.ways(made), {"": "parts", "row": "parts", "row.0": "graph", "row.1": "graph"})
        self.assertIn("not called", self.fact(made, "row")["reason"])

    def test_a_shared_module(self):
        net = Twice().cuda()
        made = self.made(net)
        self.same(made, calls=12)
        self.assertEqual(self.ways(made)["shared"], "graph")
        self.assertEqual(len(net.shared.shapes()), 1)

    def test_results_outlive_later_calls(self):
        made = self.made(Asking().cuda())
        xs = inputs(20)
        with torch.no_grad():
            kept = [made(x) for x in xs]
            firsts = [made.first(x) for x in xs]
            for x, y, first in zip(xs, kept, firsts):
                torch.testing.assert_close(y, self.plain(x))
                torch.testing.assert_close(first, self.plain.first(x))

    def test_shapes_that_are_captured_whole_beside_others(self):
        class Sometimes(Asking):
            def forward(self, x):
                return super().forward(x) if x.shape[0] > 4 else self.second(self.first(x))

        net = Sometimes().cuda()
        made = self.made(net)
        self.same(made, rows=3)
        self.assertEqual(self.ways(made), {"": "graph"})
        self.same(made, rows=6)
        self.assertEqual(self.ways(made), {"": "graph", "first": "graph", "second": "graph"})
        calls = len(net.first.shapes())
        self.same(made, rows=3)
        self.assertEqual(len(net.first.shapes()), calls)

    def test_refusals_are_not_repeated(self):
        class Scaled(Asking):
            scale = 1.0

            def forward(self, x):
                return super().forward(x * self.scale)

        net = Scaled().cuda()
        made = self.made(net)
        for i in range(1, 7):
            net.scale = self.plain.scale = float(i)
            self.same(made, calls=3)
        self.assertLessEqual(len(reprise.graphed_of(made).failures()), 2)
        self.assertEqual(self.ways(made)["first"], "graph")

    def test_a_function_s_modules(self):
        first, second = block().cuda(), block().cuda()

        def run(x):
            h = first(x)
            return second(h * 2 if h.sum().item() > 0 else h)

        plain = [copy.deepcopy(first), copy.deepcopy(second)]

        def eager(x):
            h = plain[0](x)
            return plain[1](h * 2 if h.sum().item() > 0 else h)

        made = reprise.graphed(run, parts=True)
        self.same(made, eager)
        self.assertEqual([fact["way"] for fact in made.parts()], ["parts", "graph", "graph"])
        made.reset()
        self.assertIs(type(first), torch.nn.Sequential)

    def test_reset(self):
        net = Deep().cuda()
        made = self.made(net)
        self.same(made, calls=20)
        reprise.graphed_of(made).reset()
        self.assertTrue(all("Graphed" not in type(module).__name__ for module in net.modules()))
        self.assertEqual(self.ways(made), {"": "untried"})
        self.same(made, calls=20)
        self.assertEqual(self.ways(made)["middle.1.first"], "graph")
        pool = made.before.pool
        reprise.graphed_of(made).reset()
        self.same(made, calls=20)
        self.assertIsNot(made.before.pool, pool)

    def test_modules_are_what_they_were_once_nobody_has_the_result(self):
        net = Asking().cuda()
        made = self.made(net)
        self.same(made)
        self.assertIsNot(type(net.first), torch.nn.Sequential)
        lane = weakref.ref(reprise.graphed_of(net.first))
        del made
        gc.collect()
        self.assertIs(type(net.first), torch.nn.Sequential)
        self.assertIsNone(lane())
        self.same(net)

    def test_copies_and_pickles(self):
        net = Asking().cuda()
        made = self.made(net)
        self.same(made)
        twin = copy.deepcopy(made)
        self.assertIs(type(twin.first), torch.nn.Sequential)
        self.same(twin)
        self.assertEqual(self.ways(twin)["first"], "graph")
        self.assertIsNot(twin.first, made.first)
        loaded = pickle.loads(pickle.dumps(made))
        self.assertIs(type(loaded), Asking)
        self.assertIs(type(loaded.first), torch.nn.Sequential)

    def test_in_place(self):
        net = Asking().cuda()
        self.plain = copy.deepcopy(net)
        self.assertIs(reprise.graphed_(net, parts=True), net)
        self.same(net)
        self.assertEqual(self.ways(net)["first"], "graph")

    def test_one_pool(self):
        made = self.made(Deep().cuda())
        self.same(made, calls=20)
        parts = [made.before, made.middle[0], made.middle[1].first]
        self.assertEqual(len({id(part.pool) for part in parts}), 1)
        # Nothing is kept from one to the next: all lie in the room of the largest.
        largest = max(graph["planned_bytes"] for part in parts for graph in part.shapes())
        self.assertEqual(made.before.pool.parent.parent.info()["planned_bytes"], largest)

    def test_a_module_that_is_replaced(self):
        net = Asking().cuda()
        made = self.made(net)
        self.same(made)
        net.second = Deep().cuda()
        self.plain.second = copy.deepcopy(net.second)
        self.same(made, calls=25)
        self.assertEqual(self.ways(made)["second.middle.1.first"], "graph")

    def test_measured_choices(self):
        net = Asking().cuda()
        made = self.made(net, policy="auto")
        self.same(made, calls=40)
        self.assertEqual(self.ways(made).keys(), {"", "first", "second"})
        self.assertTrue(net.first.choices())

    def test_a_copy_of_a_part_is_the_plain_module(self):
        made = self.made(Asking().cuda())
        self.same(made)
        self.assertIs(type(copy.deepcopy(made.first)), torch.nn.Sequential)
        self.assertEqual(list(made.state_dict()), list(self.plain.state_dict()))

    def test_threads(self):
        made = self.made(Deep().cuda())
        wrong = []
        # PyTorch lets no other thread draw while one captures.
        given = [list(inputs(30, 6)) for _ in range(3)]

        def work(given):
            try:
                torch.cuda.set_device(0)  # or PyTorch warns that the thread has no context
                self.same(made, given=given)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(one,)) for one in given]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_report(self):
        made = self.made(Asking().cuda(), name="asking")
        self.same(made)
        text = reprise.report()
        self.assertRegex(text, r"asking: parts: .*h\.sum\(\)\.item\(\)")
        self.assertRegex(text, r"asking\.first: graph")

    def test_what_has_no_modules_warns(self):
        made = reprise.graphed(lambda x: x * x.sum().item(), parts=True)
        with torch.no_grad(), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for x in inputs(5):
                made(x)
        self.assertIn("runs without a graph", str(told[0].message))

    def test_options(self):
        with self.assertRaisesRegex(ValueError, "strict"):
            reprise.graphed(Asking(), parts=True, strict=True)
        self.assertEqual(reprise.graphed(lambda x: x).parts(), [])


class Training(Case):
    def same(self, made, plain=None, steps=12, together=1):
        """Steps of SGD; together: how many calls are made ahead of their backward passes."""
        nets = (plain or self.plain, made)
        steppers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
        xs, kept = inputs(steps * together), {}
        for i in range(steps):
            losses = []
            for net, stepper in zip(nets, steppers):
                stepper.zero_grad()
                found = [net(x).square().mean() for x in xs[i * together:(i + 1) * together]]
                for loss in found:
                    loss.backward()
                losses.append([loss.item() for loss in found])
                kept[net] = found  # until the next step's are there, as programs do
                stepper.step()
            for want, got in zip(*losses):
                self.assertAlmostEqual(want, got, places=5)
        for want, got in zip(*[net.parameters() for net in nets]):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)

    def test_a_number_read_in_the_middle(self):
        made = self.made(Asking().cuda())
        self.same(made)
        self.assertEqual(self.ways(made), {"": "parts", "first": "graph", "second": "graph"})
        self.assertEqual(self.fact(made, "first")["graphs"], 2)
        self.assertEqual(self.fact(made, "first")["lanes"], 1)

    def test_experts(self):
        made = self.made(Experts().cuda())
        self.same(made, steps=30)
        self.assertEqual(self.ways(made)["out"], "graph")

    def test_deep(self):
        made = self.made(Deep().cuda())
        self.same(made, steps=20)
        self.assertEqual(self.ways(made)["middle.1.first"], "graph")
        self.assertLessEqual({fact["lanes"] for fact in made.parts()}, {0, 1})

    def test_modules_registered_in_another_order_than_called(self):
        class Late(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.head, self.middle, self.first = block(), Deep(), block()

            def forward(self, x):
                return self.head(self.middle(self.first(x)))

        made = self.made(Late().cuda())
        self.same(made, steps=20)
        self.assertEqual(self.ways(made)["middle.middle.1.second"], "graph")
        self.assertLessEqual({fact["lanes"] for fact in made.parts()}, {0, 1})

    def test_a_module_called_several_times(self):
        made = self.made(Twice().cuda())
        self.same(made, steps=20)
        self.assertEqual(self.fact(made, "shared")["lanes"], 3)

    def test_calls_ahead_of_their_backward_passes(self):
        made = self.made(Asking().cuda())
        self.same(made, steps=10, together=3)
        self.assertEqual(self.fact(made, "first")["lanes"], 3)

    def test_more_calls_than_lanes(self):
        made = self.made(Asking().cuda())
        self.same(made, steps=10, together=11)
        self.assertEqual(self.fact(made, "first")["lanes"], 8)

    def test_inference_between_a_call_and_its_backward_pass(self):
        made = self.made(Asking().cuda())
        with torch.no_grad():
            for x in inputs(8, rows=40):
                made(x)
        self.same(made)
        for x in inputs(6):
            loss = made(x).square().sum()
            with torch.no_grad():
                for other in (x[:3], x, x.repeat(10, 1)[:40]):
                    torch.testing.assert_close(made(other), self.plain(other), rtol=1e-4, atol=1e-5)
            made.zero_grad()
            loss.backward()
            want = copy.deepcopy(self.plain)
            want.load_state_dict(made.state_dict())
            want(x).square().sum().backward()
            for g, w in zip(made.parameters(), want.parameters()):
                torch.testing.assert_close(g.grad, w.grad, rtol=1e-4, atol=1e-5)

    def test_a_reset_between_steps(self):
        made = self.made(Deep().cuda())
        self.same(made, steps=15)
        reprise.graphed_of(made).reset()
        self.plain.load_state_dict(made.state_dict())
        self.same(made, steps=15)
        self.assertEqual(self.ways(made)["middle.1.first"], "graph")
        self.assertLessEqual({fact["lanes"] for fact in made.parts()}, {0, 1})

    def test_checkpoints(self):
        class Recomputed(Deep):
            def forward(self, x):
                return self.middle(checkpoint(self.before, x, use_reentrant=False)) + 1

        made = self.made(Recomputed().cuda())
        self.same(made, steps=20)
        self.assertEqual(self.ways(made)["middle.0"], "graph")
        self.assertIn("checkpoint", self.fact(made, "before")["reason"])

    def test_other_order_of_calls(self):
        class Turned(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.c = block(), block(), block()
                self.order = None

            def forward(self, x):
                parts = [self.a, self.b, self.c]
                order = (0, 1, 2) if x.sum().item() > 0 else (2, 0, 1)
                for i in self.order or order:
                    x = parts[i](x)
                return x

        made = self.made(Turned().cuda())
        for order, steps in (((0, 1, 2), 3), ((2, 1, 0), 6), (None, 30)):
            made.order = self.plain.order = order
            self.same(made, steps=steps)
        self.assertEqual(self.ways(made)["c"], "graph")


class Marks(Case):
    same = Inference.same

    def test_a_marked_module_stays_outside(self):
        net = torch.nn.Sequential(block(), block(), block()).cuda()
        self.assertIs(reprise.eager(net[1]), net[1])
        made = self.made(net)
        self.same(made)
        self.assertEqual(self.ways(made), {"": "parts", "0": "graph", "1": "eager", "2": "graph"})
        self.assertIn("reprise.eager", self.fact(made, "1")["reason"])
        self.assertIn("reprise.eager", self.fact(made, "")["reason"])

    def test_a_marked_block(self):
        class Looking(Asking):
            def forward(self, x):
                h = self.first(x)
                with reprise.eager():
                    h = h * 2
                return self.second(h)

        made = self.made(Looking().cuda())
        self.same(made)
        self.assertEqual(self.ways(made), {"": "parts", "first": "graph", "second": "graph"})

    def test_what_is_no_callable(self):
        with self.assertRaisesRegex(TypeError, "int"):
            reprise.eager(3)

    def test_above_static_and_class_methods(self):
        class Router:
            @reprise.eager
            @staticmethod
            def of_static(scores):
                return scores + 1

            @reprise.eager
            @classmethod
            def of_class(cls, scores):
                return cls, scores + 2

            @reprise.eager
            def of_object(self, scores):
                return self, scores + 3
        router = Router()
        self.assertEqual([router.of_static(1), Router.of_static(1)], [2, 2])
        self.assertEqual([router.of_class(1), Router.of_class(1)], [(Router, 3), (Router, 3)])
        self.assertEqual([router.of_object(1), Router.of_object(router, 1)], [(router, 4), (router, 4)])


class Cuts(Case):
    """Marked functions in callables without gradients."""

    same = Inference.same

    def segments(self, made):
        fact = reprise.graphed_of(made).parts()[0]
        return fact["graphs"] if fact["way"] == "segments" else fact

    def test_a_marked_function_runs_between_segments(self):
        seen, first, second = [], block().cuda(), block().cuda()

        @reprise.eager
        def look(x, by):
            seen.append(x.sum().item())
            return x * by

        def run(x):
            h = look(first(x), by=2) + 1
            return second(look(h, by=3)), h

        made = reprise.graphed(run, parts=True)
        self.same(made, run)
        self.assertEqual(len(seen), 2 * 2 * 9)  # twice in each call of both
        self.assertEqual(seen[2::4], seen[0::4])
        self.assertEqual(self.segments(made), 3)
        self.assertEqual(look.__name__, "look")
        self.assertIs(type(first), torch.nn.Sequential)

    def test_a_time_limit(self):
        """Which a signal's handler raises, in a marked function or in what is captured, goes to the caller."""
        class TimeLimit(Exception):
            pass

        def limit(*_):
            raise TimeLimit

        def trace(frame, event, arg):
            nonlocal runs
            if frame.f_code is code and event == "call":
                runs += 1
                if runs == late:
                    signal.raise_signal(signal.SIGALRM)
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, limit))
        net, x = block().cuda(), inputs(1)[0]

        def look(x):
            return x + float(x.sum().item() > 1e9)

        def run(x):
            return net(reprise_look(net(x)))
        reprise_look, found = reprise.eager(look), 0
        for code in (look.__code__, run.__code__):
            for late in range(1, 8):
                made, runs, limits = reprise.graphed(run, parts=True), 0, 0
                for _ in range(12):
                    sys.settrace(trace)
                    try:
                        with torch.no_grad():
                            got = made(x)
                    except TimeLimit:
                        limits += 1
                        continue
                    finally:
                        sys.settrace(None)
                    torch.testing.assert_close(got, run(x))
                self.assertEqual(limits, runs >= late, (code.co_name, late))
                found += limits
                self.assertEqual(self.segments(made), 2)
        self.assertGreater(found, 6)

    def test_results_are_the_caller_s(self):
        net = block().cuda()
        made = reprise.graphed(lambda x: (net(mark(net(x))), x), parts=True)
        mark = reprise.eager(lambda x: x + 1)
        xs = inputs(12)
        with torch.no_grad():
            kept = [made(x) for x in xs]
            for x, (y, same) in zip(xs, kept):
                torch.testing.assert_close(y, net(net(x) + 1))
                self.assertIs(same, x)
        self.assertEqual(self.segments(made), 2)

    def test_decisions_of_the_host_are_variants(self):
        class Exit(EarlyExit):
            @reprise.eager
            def is_enough(self, x):
                self.asked = getattr(self, "asked", 0) + 1
                return x.abs().mean().item() < self.limit

            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                    if self.is_enough(x):
                        break
                return x

        net = Exit().cuda()
        xs = inputs(30)
        with torch.no_grad():
            means = sorted(net.layers[1](net.layers[0](x)).abs().mean().item() for x in xs)
        net.limit = means[10]
        made = self.made(net)
        self.same(made, calls=30)
        self.assertEqual(net.asked, self.plain.asked)
        self.assertGreater(self.segments(made), 4)
        before = self.segments(made)
        self.same(made, calls=30)
        self.assertEqual(self.segments(made), before)

    def test_shapes_that_come_from_data_are_variants(self):
        class Marked(Detector):
            @staticmethod
            @reprise.eager
            def above(scores):
                return torch.nonzero(scores.squeeze(1) > 0).squeeze(1)

            def forward(self, x):
                features = self.trunk(x)
                found = self.above(self.head(features))
                return found, self.closer(features[found])

        made = self.made(Marked().cuda())
        self.same(made, calls=25)
        self.same(made, calls=25)
        self.assertGreater(self.segments(made), 2)

    def test_too_many_variants_are_eager(self):
        asked = []

        @reprise.eager
        def count(x):
            asked.append(x)
            return x.sum().item()

        def run(x):
            return x * 2 * count(x + 1)

        made = reprise.graphed(run, parts=True)
        self.same(made, run, calls=20)
        self.assertEqual(len(asked), 40)
        self.assertEqual(self.segments(made), 16)

    def test_experts_that_the_host_chooses(self):
        class Marked(Experts):
            @reprise.eager
            def work(self, x, scores):
                chosen = scores.argmax(dim=1).tolist()
                made = torch.zeros_like(x)
                for i, expert in enumerate(self.experts):
                    rows = [r for r, c in enumerate(chosen) if c == i]
                    if rows:
                        made[rows] = expert(x[rows])
                return made

            def forward(self, x):
                return self.out(self.work(x, self.gate(x)))

        made = self.made(Marked().cuda())
        self.same(made, calls=20)
        self.assertEqual(self.segments(made), 2)

    def test_what_a_marked_function_writes(self):
        @reprise.eager
        def double(x):
            x.mul_(2)
            return x

        def run(x):
            h = x + 1
            same = double(h)
            return h + same

        made = reprise.graphed(run, parts=True)
        self.same(made, run)
        self.assertEqual(self.segments(made), 2)

    def test_what_was_written_is_part_of_an_answer(self):
        @reprise.eager
        def double(x):
            x.mul_(2)
            return x.sum().item() > 0

        def run(x):
            h = x + 1
            return h + 1 if double(h) else h - 1

        made = reprise.graphed(run, parts=True)
        with torch.no_grad():
            for x in [*inputs(4), *[x - 3 for x in inputs(4)], *inputs(4)]:
                torch.testing.assert_close(made(x), run(x))
        self.assertEqual(self.segments(made), 4)

    def test_errors_of_marked_functions(self):
        class Wrong(Exception):
            pass

        asked = []

        @reprise.eager
        def check(x):
            asked.append(1)
            if x.sum().item() > 1e6:
                raise Wrong("too much")

        def run(x):
            h = x * 2
            check(h)
            return h + 1

        made = reprise.graphed(run, parts=True)
        self.same(made, run)
        count = len(asked)
        with torch.no_grad(), self.assertRaisesRegex(Wrong, "too much"):
            made(torch.full((6, WIDTH), 1e7, device="cuda"))
        self.assertEqual(len(asked), count + 1)
        self.same(made, run)
        self.assertEqual(self.segments(made), 2)

    def test_what_is_refused_runs_in_parts_and_asks_once(self):
        kept, asked = [], []

        @reprise.eager
        def look(x):
            asked.append(1)
            return x

        class Counting(Asking):
            def forward(self, x):
                h = look(self.first(x))
                kept.append(1)
                return self.second(h)

        made = self.made(Counting().cuda())
        self.same(made)
        self.assertEqual((len(asked), len(kept)), (18, 18))
        self.assertEqual(self.ways(made), {"": "parts", "first": "graph", "second": "graph"})
        self.assertIn("kept", self.fact(made, "")["reason"])

    def test_what_writes_outside_is_refused(self):
        mark = reprise.eager(lambda x: x.clone())

        class Counted(Asking):
            def __init__(self):
                super().__init__()
                self.register_buffer("calls", torch.zeros(1))

            def forward(self, x):
                h = mark(self.first(x))
                self.calls.add_(1)
                return self.second(h)

        made = self.made(Counted().cuda())
        self.same(made)
        self.assertEqual(made.calls.item(), self.plain.calls.item())
        self.assertIn("buffer", self.fact(made, "")["reason"])
        self.assertEqual(self.ways(made)["first"], "graph")

    def test_with_gradients_it_is_in_parts(self):
        mark = reprise.eager(lambda x: x * 2)

        class Marked(Asking):
            def forward(self, x):
                return self.second(mark(self.first(x)))

        made = self.made(Marked().cuda())
        Training.same(self, made)
        self.assertEqual(self.ways(made), {"": "parts", "first": "graph", "second": "graph"})

    def test_random_numbers(self):
        mark = reprise.eager(lambda x: x.sum().item() and x)
        net = torch.nn.Dropout(0.5)

        def run(x):
            return net(mark(net(x)))

        made = reprise.graphed(run, parts=True)
        found = []
        for fn in (run, made):
            torch.manual_seed(5)
            with torch.no_grad():
                found.append([fn(x) for x in inputs(9)])
            torch.manual_seed(5)
        for want, got in zip(*found):
            torch.testing.assert_close(got, want)
        self.assertEqual(self.segments(made), 2)

    def test_tensors_that_are_replaced(self):
        mark = reprise.eager(lambda x: x * 2)
        net, held = block().cuda(), [torch.ones(WIDTH, device="cuda")]

        def run(x):
            return net(mark(net(x))) + held[0]

        made = reprise.graphed(run, parts=True)
        self.same(made, run)
        net[0].weight.data.mul_(2)
        self.same(made, run)
        net[0].weight.data = torch.randn_like(net[0].weight)
        self.same(made, run)
        held[0] = torch.randn(WIDTH, device="cuda")
        self.same(made, run)
        self.assertEqual(made.parts()[0]["way"], "segments")

    def test_other_streams(self):
        mark = reprise.eager(lambda x: x * 2)

        def run(x):
            return mark(x + 1) + 3

        made = reprise.graphed(run, parts=True)
        self.same(made, run)
        other = torch.cuda.Stream()
        with torch.cuda.stream(other), torch.no_grad():
            y = made(inputs(1)[0])
        other.synchronize()
        torch.testing.assert_close(y, run(inputs(1)[0]))
        self.same(made, run)

    def test_marked_functions_are_copied_and_pickled_by_name(self):
        self.assertIs(copy.deepcopy(marked_here), marked_here)
        self.assertIs(pickle.loads(pickle.dumps(marked_here)), marked_here)
        self.assertEqual(marked_here(2), 3)


@reprise.eager
def marked_here(x):
    return x + 1


if __name__ == "__main__":
    unittest.main()
