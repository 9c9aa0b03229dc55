# SPDX-License-Identifier: MIT
"""Gradients that captured callables read, add to, make and drop, on a GPU: parameters after some steps
are those of eager runs, to the bit. Usage: gpu_gradients.py [--install] ..."""

import copy
import functools
import gc
import sys
import threading
import unittest
import warnings
import weakref
from unittest import mock

import torch
from torch.nn.utils import parametrize

import needs
import reprise
from reprise._call.waiting import MOST_BESIDE, MOST_KEPT, MOST_UNSURE
from reprise._grad.gradients import homes
from reprise._shapes.shape import Shape
from trained import Trained
from training_steps import whole_step

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

NET = OPTIMIZER = None  # what a script's step names


def script_step(x):
    loss = NET(x).square().mean()
    loss.backward()
    return loss.detach()


class Same(unittest.TestCase):
    """A tensor that is two arguments."""

    def test_one_gradient(self):
        def fn(a, b):
            return (a * a * b).sin() if a is b else a * a + b

        def found(call):
            values = []
            for i in range(6):
                w = torch.linspace(0, 1, 8, device="cuda").requires_grad_()
                a = w if i % 2 else w * (i + 1)
                call(a, a).sum().backward()
                values.append(w.grad)
                if i % 2:
                    once, = torch.autograd.grad(call(w, w).sum(), w, create_graph=True)
                    values += [once.detach(), *torch.autograd.grad(once.square().sum(), w)]
            return values

        made = reprise.graphed(fn)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for i, (got, want) in enumerate(zip(found(made), found(fn))):
                torch.testing.assert_close(got, want, msg=lambda text, i=i: f"{i}: {text}")
        self.assertFalse(made.failures(), made.failures())
        self.assertGreater(sum(s["replays"] for s in made.shapes()), 8)
        self.assertTrue(all("gradients of gradients" in str(w.message) for w in said if "reprise" in str(w.message)))


class OfOtherCalls(unittest.TestCase):
    """Gradients that one call left, behind a call of the same callable that leaves others or none."""

    def trained(self, step_of, graphed, width=8, **options):
        torch.manual_seed(0)
        net = torch.nn.ModuleDict({"body": torch.nn.Linear(8, width), "a": torch.nn.Linear(width, 2),
                                   "b": torch.nn.Linear(width, 3)}).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)

        def run(x, y, head, train=True):
            loss = torch.nn.functional.cross_entropy(net[head](net["body"](x).tanh()), y)
            if train:
                loss.backward()
            return loss.detach()
        self.made = reprise.graphed(run, **options) if graphed else run
        numbers, losses = torch.Generator().manual_seed(5), []

        def call(*args, rows=4, **kwargs):
            x, y = torch.randn(rows, 8, generator=numbers), torch.randint(2, (rows,), generator=numbers)
            losses.append(self.made(x.cuda(), y.cuda(), *args, **kwargs).item())
        for _ in range(12):
            optimizer.zero_grad()
            step_of(call)
            optimizer.step()
            losses += [float(p.grad.double().square().sum()) for p in net.parameters() if p.grad is not None]
        return losses, [p.tolist() for p in net.parameters()]

    def compare(self, step_of, shapes, width=8, **options):
        eager = self.trained(step_of, False, width)
        self.assertTrue(self.trained(step_of, True, width, **options) == eager)
        found = self.made.shapes()
        self.assertEqual(len(found), shapes, self.made.failures())
        self.assertGreaterEqual(sum(shape["replays"] for shape in found), 4 * shapes)

    def test_a_validation_between_backward_and_optimizer(self):
        def step(call):
            call("a")
            call("b")
            call("a", False)
        self.compare(step, 3)

    def test_tasks_with_heads_of_their_own(self):
        def step(call):
            call("a")
            call("b")
            call("a", rows=3)
        # How wide the layer is decides whether graphs work where gradients of others lie, before any sets them aside.
        for width in (8, 64, 128):
            with self.subTest(width=width):
                self.compare(step, 3, width, grad="whole")

    def test_tasks_in_turns(self):
        def step(call):
            step.turn = getattr(step, "turn", 0) + 1
            for head in ("ab", "ba")[step.turn % 2]:
                call(head)
        self.compare(step, 4, grad="whole")


class KeptGraphs(unittest.TestCase):
    """Backward passes that keep their graph, which may come once more behind other calls."""

    def compare(self, step, dims=8):
        found = []
        for graphed in (False, True):
            torch.manual_seed(0)
            net = torch.nn.Sequential(torch.nn.Linear(dims, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).cuda()
            made = reprise.graphed(net) if graphed else net
            optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.1), []
            for _ in range(8):
                optimizer.zero_grad()
                losses.append(step(made, list(net.parameters())).item())
                optimizer.step()
            found.append((losses, [p.tolist() for p in net.parameters()]))
        self.assertTrue(found[0] == found[1])
        self.assertGreaterEqual(sum(shape["replays"] for shape in made.shapes()), 8)

    def new(self, rows=4):
        return torch.randn(rows, 8, device="cuda")

    def test_another_call_ahead_of_the_second(self):
        def step(net, params):
            first = net(self.new())
            grads = torch.autograd.grad(first.square().mean(), params, retain_graph=True)
            loss = first.abs().mean() / torch.stack([g.norm() for g in grads]).norm()
            loss = loss + net(self.new()).square().mean()
            loss.backward()
            return loss.detach()
        self.compare(step)

    def test_an_evaluation_ahead_of_the_second(self):
        def step(net, params):
            loss = net(self.new()).square().mean()
            loss.backward(retain_graph=True)
            with torch.no_grad():
                told = net(self.new()).mean()
            loss.backward()
            return loss.detach() + told
        self.compare(step)

    def test_gradients_of_arguments_and_other_points(self):
        """As nets that solve differential equations are trained."""
        def step(net, params):
            x = self.new(5).requires_grad_()
            slope, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
            loss = (slope - 1).square().mean() + net(self.new(2)).square().mean()
            loss.backward()
            return loss.detach()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # gradients of gradients are eager
            self.compare(step)


class Parametrized(unittest.TestCase):
    """Weights that are computed, which torch.nn.utils.parametrize.cached() keeps for the length of a step."""

    def test_cached(self):
        class Double(torch.nn.Module):
            def forward(self, x):
                return x * 2

        for parts in (False, True):
            found = []
            for graphed in (False, True):
                torch.manual_seed(0)
                net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8)).cuda()
                parametrize.register_parametrization(net[0], "weight", Double())
                made = reprise.graphed(net, parts=parts) if graphed else net
                values = []
                for i in range(10):
                    net.zero_grad()
                    with parametrize.cached():
                        both = [made(torch.randn(4, 8, device="cuda")) for _ in range(1 + (i > 5))]
                        kept = net[0].weight  # what eager code gets in between
                    sum(out.square().sum() for out in both).backward()
                    values += [kept.tolist(), *(out.tolist() for out in both), *(p.grad.tolist() for p in net.parameters())]
                found.append(values)
            self.assertTrue(found[0] == found[1])
            self.assertGreaterEqual(sum(shape["replays"] for shape in made.shapes()), 6)


class Derived(unittest.TestCase):
    """Results that autograd made of arguments and of each other, changed in place behind the call."""

    def setUp(self):
        torch.manual_seed(0)
        self.weight = torch.randn(6, 6, device="cuda")
        self.inputs = [torch.randn(4, 6, device="cuda") for _ in range(5)]

    def found(self, call, changed, wants):
        """What each call gives, and where its results lie, behind changes in place of these results."""
        values, facts = [], []
        weight = self.weight.clone().requires_grad_()
        for x in self.inputs:
            first = x.clone().requires_grad_(wants)
            argument = first + 1  # no leaf: one that is may not be changed in place
            results = call(argument, weight)
            for k in changed:
                results[k].mul_(3.0)
            together = (*results, argument)
            facts.append([[a is b, a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr(), a.requires_grad,
                           a.is_leaf] for a in together for b in together])
            grads = torch.autograd.grad(sum(r.square().sum() for r in results if r.requires_grad),
                                        [weight, first] if wants else [weight], allow_unused=True)
            values += [*(r.detach().clone() for r in together), *grads]
        return values, facts

    def check(self, fn, changed=((), (0,), (1,), (0, 1)), wants=(True, False), is_captured=True):
        for these in changed:
            for one in wants:
                with self.subTest(changed=these, wants=one), warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    made = reprise.graphed(lambda x, w: fn(x, w))
                    got, want = self.found(made, these, one), self.found(fn, these, one)
                    for a, b in zip(got[0], want[0], strict=True):
                        torch.testing.assert_close(a, b)
                    self.assertEqual(got[1], want[1])
                    self.assertEqual(bool(made.failures()), not is_captured, made.failures())
                    if is_captured:
                        self.assertGreaterEqual(sum(s["replays"] for s in made.shapes()), 6)
                        self.assertEqual([str(w.message) for w in said], [])

    def test_a_tensor_that_is_two_results(self):
        def fn(x, w):
            y = torch.tanh(x @ w)
            return y, y, y * 2
        self.check(fn, changed=((), (2,)))  # what tanh saved may not change

    def test_views_of_a_result(self):
        for view in (lambda y: y.view(-1), lambda y: y[:, 0], lambda y: y.t(), lambda y: y.view_as(y)):
            def fn(x, w, view=view):
                y = x @ w
                return y, view(y)
            self.check(fn)

    def test_a_view_ahead_of_what_it_is_one_of(self):
        def fn(x, w):
            y = x @ w
            return y[1], y, y[1:3, :2]
        self.check(fn, changed=((), (0,), (1,), (2,), (0, 1, 2)))

    def test_views_side_by_side(self):
        def fn(x, w):
            y = x @ w
            return y[:2], y[2:], y[2:].view(-1)
        self.check(fn, changed=((), (0,), (1,), (2,)))

    def test_views_between_one_another(self):
        """Mean and variance of an encoder are two halves of its last dimension."""
        for halves in (lambda y: (y[:, :3], y[:, 3:]), lambda y: (y[:, ::2], y[:, 1::2]), lambda y: (y.t()[1], y[:, 2:])):
            self.check(lambda x, w, halves=halves: halves(x @ w), changed=((), (0,), (1,)))
        self.check(lambda x, w: (x @ w).chunk(2, -1), changed=((),))
        self.check(lambda x, w: (x @ w).unbind(1)[::2], changed=((),))

    def test_slices_that_overlap_are_refused(self):
        def fn(x, w):
            y = x @ w
            return y[:3], y[1:]
        self.check(fn, is_captured=False)

    def test_arguments(self):
        for view in (lambda x: x, lambda x: x.view(-1), lambda x: x[:, 1], lambda x: x.detach()):
            def fn(x, w, view=view):
                return view(x), x @ w, view(x)
            self.check(fn, changed=((), (1,)))  # x is saved

    def test_arguments_that_are_changed(self):
        for view in (lambda x: x, lambda x: x.view(-1), lambda x: x[:, 1]):
            def fn(x, w, view=view):
                return view(x), x * 2 + w[0]
            self.check(fn)

    def test_one_argument_alone(self):
        def fn(x, w):
            return x, w[0] * 2
        self.check(fn)


class Overlapping(unittest.TestCase):
    """Gradients of which one is a view of another, as those of a class token and of positions with a batch of one."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.token = torch.nn.Parameter(torch.ones(3, 4))
            self.places = torch.nn.Parameter(torch.ones(1, 3, 4))

        def forward(self, x):
            return (self.token.unsqueeze(0) + self.places) * x

    def told(self, wrap, use, rows):
        """The gradients behind each of some steps of two backward passes."""
        net = self.Net().cuda()
        fn, found = wrap(net), []
        for i in range(6):
            net.zero_grad()
            for _ in range(2):
                fn(torch.full((rows(i), 3, 4), 1.0 + i, device="cuda")).sum().backward()
                use(net)
            found.append([p.grad.clone() for p in net.parameters()])
        return found, fn

    def test_each_is_its_own(self):
        uses = (lambda net: None, lambda net: torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5),
                lambda net: net.token.grad.mul_(3.0))
        for use in uses:
            for rows in (lambda i: 1, lambda i: 1 + i % 2):
                want, _ = self.told(lambda net: net, use, rows)
                got, fn = self.told(reprise.graphed, use, rows)
                for of_step, wanted in zip(got, want):
                    for one, other in zip(of_step, wanted):
                        torch.testing.assert_close(one, other)
                self.assertGreater(sum(s["replays"] for s in fn.shapes()), 8)


class MadeLeaves(unittest.TestCase):
    """Tensors that a call makes and that require gradients by themselves, as encoders of speech have the views that
    they make of their inputs. Nobody finds their gradients."""

    def steps(self, layer, wrap):
        """Losses and gradients of some steps, what hooks noted, and what was wrapped. layer(linear, x, net)."""
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(4, 4)
                self.noted, self.kept = [], None

            def forward(self, x):
                return layer(self.linear, x, self)
        torch.manual_seed(0)
        net = Net().cuda()
        call, found = wrap(net), []
        for i in range(7):
            net.zero_grad()
            loss = call(torch.full((3, 4), i + 1.0, device="cuda")).square().sum()
            loss.backward()
            found.append((loss.item(), *(None if p.grad is None else p.grad.sum().item() for p in net.parameters()),
                          None if net.kept is None else net.kept.grad.sum().item(), len(net.noted)))
        return found, call

    def follow(self, layer, refusal=None):
        """Beside eager steps. refusal: what the warning has; None: graphs are called."""
        want, _ = self.steps(layer, lambda net: net)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found, call = self.steps(layer, reprise.graphed)
        graphed = reprise.graphed_of(call)
        self.assertEqual(found, want)
        if refusal is None:
            self.assertEqual(graphed.failures(), [])
            self.assertGreaterEqual(sum(shape["replays"] for shape in graphed.shapes()), 5)
        else:
            self.assertIn(refusal, " ".join(str(one.message) for one in said))

    @staticmethod
    def of_view(x):
        view = x[:, None]
        view.requires_grad = True
        return view

    def test_a_view_of_an_argument(self):
        self.follow(lambda linear, x, net: linear(self.of_view(x)))

    def test_memory_of_its_own(self):
        self.follow(lambda linear, x, net: linear(x.clone().requires_grad_()))

    def test_hooks_of_them(self):
        for make in (self.of_view, lambda x: x.clone().requires_grad_()):
            for register in ("register_hook", "register_post_accumulate_grad_hook"):
                def layer(linear, x, net, make=make, register=register):
                    made = make(x)
                    getattr(made, register)(lambda grad: net.noted.append(1))
                    return linear(made)
                with self.subTest(register):
                    self.follow(layer, "it registers a hook for the gradient of a tensor that it makes")

    def test_one_that_is_kept(self):
        for make in (self.of_view, lambda x: x.clone().requires_grad_()):
            def layer(linear, x, net, make=make):
                net.kept = make(x)
                return linear(net.kept)
            self.follow(layer, "it returns a tensor that it makes and that requires gradients")

    def test_one_in_memory_of_the_programs(self):
        """Each run finds another tensor to go back to."""
        self.follow(lambda linear, x, net: torch.nn.functional.linear(x, linear.weight.detach().requires_grad_()) + linear.bias,
                    "that each run makes anew")


class OfArguments(unittest.TestCase):
    """Backward passes within the callable, of whose arguments one requires gradients."""

    def setUp(self):
        torch.manual_seed(0)
        self.net = torch.nn.Linear(4, 4).cuda()

    def step(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss.detach()

    def test_they_are_added(self):
        for grad in (None, "whole"):
            call = reprise.graphed(self.step, **({"grad": grad} if grad else {}))
            with self.subTest(grad), warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                for i in range(6):
                    found = []
                    for fn in (self.step, call):
                        self.net.zero_grad()
                        x = torch.full((2, 4), i + 1.0, device="cuda", requires_grad=True)
                        found.append((fn(x).item(), x.grad.tolist(), self.net.weight.grad.tolist()))
                    self.assertEqual(*found)
                self.assertIn("one of its arguments requires gradients", " ".join(str(one.message) for one in said))

    def test_pytorchs_code_asks_for_them(self):
        """What stands in the place of arguments has none."""
        clip, other = reprise.graphed(torch.nn.utils.clip_grad_norm_), torch.nn.utils.clip_grad_norm_
        params = list(self.net.parameters())
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for i in range(6):
                found = []
                for call in (clip, other):
                    self.net.zero_grad()
                    self.net(torch.full((2, 4), i + 1.0, device="cuda")).square().mean().backward()
                    found.append((call(params, 0.1).item(), [p.grad.tolist() for p in params]))
                self.assertEqual(*found)
        self.assertIn("its gradient, in PyTorch's code", " ".join(str(one.message) for one in said))

    def test_one_that_is_taken_is_a_result(self):
        def taken(x):
            return torch.autograd.grad(self.net(x).square().mean(), x)[0]
        call = reprise.graphed(taken, grad="whole")
        for i in range(6):
            x = torch.full((2, 4), i + 1.0, device="cuda", requires_grad=True)
            self.assertEqual(call(x).tolist(), taken(x).tolist())
        self.assertEqual(call.failures(), [])


class Retained(unittest.TestCase):
    def test_the_gradient_of_what_a_call_keeps(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

            def forward(self, x):
                self.inner = self.one(x)
                self.inner.retain_grad()
                return self.two(self.inner.tanh())

        def graphed_step(net):
            return reprise.graphed(lambda x: step(net, x))

        def step(net, x):
            net.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            return loss.detach()
        for wrap in (graphed_step, lambda net: functools.partial(step, reprise.graphed_(net))):
            torch.manual_seed(0)
            net = Net().cuda()
            other = copy.deepcopy(net)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                call = wrap(net)
                for i in range(6):
                    x = torch.full((2, 4), i + 1.0, device="cuda")
                    self.assertEqual(call(x).item(), step(other, x).item())
                    self.assertEqual(net.inner.grad.tolist(), other.inner.grad.tolist())
            self.assertIn("retains its gradient", " ".join(str(one.message) for one in said))


class Threads(unittest.TestCase):
    """Several threads go back through calls of one callable, beside each other."""

    def train(self, made, fn, params, count):
        inputs = [torch.randn(4, 16, device="cuda") for _ in range(count)]
        wanted = [torch.autograd.grad(fn(x), params) for x in inputs]
        said = []

        def work(k):
            for _ in range(25):
                try:
                    torch.testing.assert_close(torch.autograd.grad(made(inputs[k]), params), wanted[k])
                except Exception as error:
                    said.append(str(error))
        threads = [threading.Thread(target=work, args=(k,)) for k in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return said

    def test_no_call_runs_over_another_threads(self):
        for count in (4, 2, 4):
            net = torch.nn.Linear(16, 16).cuda()

            def fn(x, net=net):
                return net(x).square().mean()
            made = reprise.graphed(fn)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                self.assertEqual(self.train(made, fn, list(net.parameters()), count), [])
            self.assertTrue(any("other threads call it with gradients" in str(w.message) for w in told))

    def test_calls_beside_the_thread_that_captured(self):
        net = torch.nn.Linear(16, 16).cuda()

        def fn(x):
            return net(x).square().mean()
        made, params, x = reprise.graphed(fn), list(net.parameters()), torch.randn(4, 16, device="cuda")
        for _ in range(4):
            torch.autograd.grad(made(x), params)
        before = [shape["replays"] for shape in made.shapes()]
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            waits = made(x)
            self.assertEqual(self.train(made, fn, params, 1), [])
            torch.testing.assert_close(torch.autograd.grad(waits, params), torch.autograd.grad(fn(x), params))
        self.assertEqual([shape["replays"] - n for shape, n in zip(made.shapes(), before)], [1, 1])
        self.assertEqual(sum("other threads call it with gradients" in str(w.message) for w in told), 1)

    def test_one_that_takes_over_from_one_that_is_gone(self):
        net = torch.nn.Linear(16, 16).cuda()

        def fn(x):
            return net(x).square().mean()
        made = reprise.graphed(fn)
        for _ in range(3):
            self.assertEqual(self.train(made, fn, list(net.parameters()), 1), [])
        self.assertGreater(sum(s["replays"] for s in made.shapes()), 120)


class Batched(unittest.TestCase):
    def test_many_incoming_gradients_at_once(self):
        net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()).cuda()
        made = reprise.graphed(net)
        for _ in range(4):
            x = torch.randn(2, 3, device="cuda", requires_grad=True)
            many, wanted = torch.randn(5, 2, 2, device="cuda"), (x, net[0].weight)
            for graph in (False, True):
                got, want = (torch.autograd.grad(call(x), wanted, many, is_grads_batched=True, create_graph=graph)
                             for call in (made, net))
                torch.testing.assert_close(got, want)
                self.assertEqual([g.requires_grad for g in got], [graph] * 2)
            got, want = (torch.autograd.functional.jacobian(call, x.detach(), vectorize=True) for call in (made, net))
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(torch.autograd.grad(made(x).sum(), x), torch.autograd.grad(net(x).sum(), x))

    def test_arguments_that_are_gone_are_told(self):
        made = reprise.graphed(lambda x: x * x)
        for _ in range(3):
            x = torch.randn(3, device="cuda", requires_grad=True)
            argument = x * 2
            y = made(argument)
            with torch.no_grad():
                argument += 1
        with self.assertRaisesRegex(RuntimeError, "many incoming ones at once|modified by an inplace"):
            torch.autograd.grad(y, x, torch.randn(5, 3, device="cuda"), is_grads_batched=True)


class Waiting(unittest.TestCase):
    """Calls while earlier ones wait for their backward passes, beside an eager twin."""

    def nets(self):
        made = []
        for _ in range(2):
            torch.manual_seed(3)
            made.append(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16)).cuda())
        return made

    def check(self, loss_of, steps=8, **options):
        """Losses are equal, and gradients where their sums have one order: eager calls beside graphs may have
        another."""
        net, twin = self.nets()
        made = reprise.graphed(net, **options)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for step in range(steps):
                values = []
                for call, owner in ((made, net), (twin, twin)):
                    torch.manual_seed(step)
                    owner.zero_grad()
                    loss = loss_of(call)
                    loss.backward()
                    values.append((loss.item(), [p.grad.clone() for p in owner.parameters()]))
                (loss, got), (want_loss, want) = values
                self.assertEqual(loss, want_loss, step)
                for one, other in zip(got, want):
                    torch.testing.assert_close(one, other)
        return made, [str(w.message) for w in said if "reprise" in str(w.message)]

    @staticmethod
    def rows(count=4):
        return torch.randn(count, 16).cuda()

    def test_two_views(self):
        made, said = self.check(lambda net: (net(self.rows()) - net(self.rows())).square().mean())
        self.assertEqual(said, [])
        self.assertEqual([s["replays"] for s in made.shapes()], [8, 8, 6, 6])

    def test_four_calls(self):
        def loss(net):
            a, b, c, d = (net(self.rows()) for _ in range(4))
            return (a - b).square().mean() - (c - d).square().mean()
        made, said = self.check(loss, steps=10)
        self.assertEqual(said, [])
        self.assertEqual(len(made.shapes()), 2 * 4)
        self.assertGreater(sum(s["replays"] for s in made.shapes()), 10 * 4)

    def test_two_sizes(self):
        """Which lie in the same memory."""
        made, said = self.check(lambda net: net(self.rows()).mean() + net(self.rows(8)).square().mean())
        self.assertEqual(said, [])
        self.assertGreater(sum(s["replays"] for s in made.shapes()), 20)

    def test_a_target_without_gradients(self):
        """Its graph lies there too."""
        def loss(net):
            estimate = net(self.rows())
            with torch.no_grad():
                target = net(self.rows())
            return (estimate - target).square().mean()
        made, said = self.check(loss)
        self.assertEqual(said, [])
        self.assertGreater(sum(s["replays"] for s in made.shapes()), 15)

    def test_more_calls_than_graphs(self):
        def loss(net):
            state = self.rows().requires_grad_()
            for _ in range(MOST_BESIDE + 2):
                state = torch.tanh(net(state))
            return state.mean()
        made, said = self.check(loss, steps=14)
        self.assertEqual(len(said), 1, said)
        self.assertIn(f"{MOST_BESIDE} calls wait for their backward passes", said[0])
        self.assertEqual(len(made.shapes()), 2 * MOST_BESIDE)

    def test_results_that_nobody_goes_back_through(self):
        """Whether they are kept or not, calls go by one graph once that is seen."""
        for keep, calls in ((False, 20), (True, MOST_KEPT + 10)):
            net, twin = self.nets()
            made, kept = reprise.graphed(net, strict=True), []
            for _ in range(calls):
                x = self.rows()
                result = made(x)
                self.assertTrue(torch.equal(result, twin(x)))
                if keep:
                    kept.append(result)
            forward, _ = made.shapes()
            self.assertGreaterEqual(forward["replays"], calls - 2 * MOST_UNSURE if not keep else 8)

    def test_policy_auto(self):
        self.check(lambda net: (net(self.rows()) - net(self.rows())).square().mean(), steps=30, policy="auto")

    def test_reset(self):
        made, _ = self.check(lambda net: (net(self.rows()) - net(self.rows())).square().mean())
        reprise.graphed_of(made).reset()
        self.assertEqual(made.shapes(), [])


class Gradients(Trained):
    def setUp(self):
        super().setUp()
        self.heads = torch.nn.ModuleList(torch.nn.Linear(64, 8) for _ in range(2)).cuda()

    def check(self, train):
        """train(net, heads, optimizer, graphed): the callables that it had from graphed. Those of the
        graph side."""
        both = torch.nn.ModuleList([self.net, self.heads])
        return self.train_twice(lambda: copy.deepcopy(both), lambda both, optimizer, graphed:
                                train(*both, optimizer, graphed))

    def micro_step(self, net, optimizer, to_none):
        """Of a micro-batch; the last one steps, and zeroes or drops the gradients."""
        def step(x, last):
            loss = self.backward(net, x)
            if last:
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)
            return loss
        return step

    def test_what_backward_passes_read(self):
        """Code that nothing but backward passes runs is followed: here, that of a function that a hook calls."""
        def program(wrap):
            factor, found = [1.0], []

            def scaled(grad):
                return grad * factor[0]

            def fn(x, w):
                y = torch.tanh(x) * w
                y.register_hook(lambda grad: scaled(grad))
                return y * y
            call, w = wrap(fn), torch.full((8,), 1.5, device="cuda", requires_grad=True)
            for i in range(9):
                factor[0] = (1.0, 3.0, 1.0)[i // 3]
                x = torch.full((4, 8), 0.125 * i, device="cuda", requires_grad=True)
                call(x, w).sum().backward()
                found.append(x.grad.tolist())
            return found, call
        (eager, _), (graphed, call) = program(lambda fn: fn), program(reprise.graphed)
        self.assertEqual(graphed, eager)
        self.assertGreater(sum(shape["replays"] for shape in call.shapes()), 0)

    def test_what_backward_passes_change(self):
        """No replay would append to the list, so that it stays eager, with a warning."""
        def program(wrap):
            norms = []

            def fn(x):
                y = torch.tanh(x)
                y.register_hook(lambda grad: norms.append(grad.shape))
                return y * y
            call = wrap(fn)
            for i in range(6):
                x = torch.full((4, 8), 0.125 * i, device="cuda", requires_grad=True)
                call(x).sum().backward()
            return len(norms)
        with self.assertWarnsRegex(UserWarning, "it changes 'norms'"):
            self.assertEqual(program(reprise.graphed), 6)

    def test_micro_batches_of_which_the_last_steps_and_drops(self):
        """The graph of the first makes gradients that the others add to: they get homes."""
        def train(net, heads, optimizer, graphed):
            step = graphed(self.micro_step(net, optimizer, True), grad="whole", strict=True)
            for i, x in enumerate(self.inputs):
                step(x, i % 4 == 3)
        step, = self.check(train)
        self.assertEqual(len(step.shapes()), 3)

    def test_micro_batches_of_two_shapes_that_are_dropped_outside(self):
        """As most programs accumulate gradients, with clipping and an update that are graphs too."""
        def train(net, heads, optimizer, graphed):
            back = graphed(lambda x: self.backward(net, x), grad="whole", strict=True, watch=[net])
            params = list(net.parameters())

            def clip_and_step():
                torch.nn.utils.clip_grad_norm_(params, 0.01, foreach=True)
                optimizer.step()
            update = graphed(clip_and_step, strict=True, watch=[net])
            for i, x in enumerate(self.inputs * 2):
                back(x[:16 - 4 * (i // 3 % 2)])
                if i % 3 == 2:
                    update()
                    optimizer.zero_grad(set_to_none=True)
        back, update = self.check(train)
        self.assertEqual((len(back.shapes()), len(update.shapes())), (4, 1))
        self.assertEqual(back.failures() + update.failures(), [])

    @needs.fast_path
    def test_micro_batches_that_are_dropped_take_the_fast_path(self):
        def train(net, heads, optimizer, graphed):
            back = graphed(lambda x: self.backward(net, x), grad="whole", strict=True)
            for i, x in enumerate(self.inputs * 3):
                back(x)
                if i % 3 == 2:
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
        with mock.patch.object(Shape, "replay", autospec=True, side_effect=Shape.replay) as replay:
            back, = self.check(train)
        self.assertEqual(len(back.shapes()), 2)
        self.assertLessEqual(replay.call_count, 10)

    def test_gradients_that_the_program_holds_while_they_move(self):
        def train(net, heads, optimizer, graphed):
            back = graphed(lambda x: self.backward(net, x), grad="whole", watch=[net], strict=True)
            for i, x in enumerate(self.inputs):
                back(x)
                if i % 3 == 0:
                    held = [p.grad for p in net.parameters()]
                if i % 3 == 2:
                    torch._foreach_mul_(held, 1 / 3)
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
        back, = self.check(train)
        self.assertEqual(len(back.shapes()), 2)

    def test_gradients_that_a_step_returns(self):
        """They lie where the program reads them of the parameters too, also as graphs add to them."""
        def train(net, heads, optimizer, graphed):
            def step(x):
                loss = self.backward(net, x)
                return loss, [p.grad for p in net.parameters()]
            step = graphed(step, grad="whole", strict=True)
            for i, x in enumerate(self.inputs):
                _, grads = step(x)
                self.assertTrue(all(torch.equal(p.grad, g) for p, g in zip(net.parameters(), grads)))
                if i % 3 == 2:
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
        self.check(train)

    def test_returned_gradients_are_the_parameters(self):
        """The loop changes what a step returns, or keeps, ahead of the update. In micro-batches these are added up."""
        class Kept:
            last = None

        def returning(net, _):
            def step(x):
                net(x).square().mean().backward()
                return [p.grad for p in net.parameters()]
            return step

        def keeping(net, kept):
            def step(x):
                loss = net(x).square().mean()
                loss.backward()
                kept.last = [p.grad for p in net.parameters()]
                return loss.detach()
            return step

        def train(make, micro, wrap):
            torch.manual_seed(0)
            net, kept = torch.nn.Linear(8, 8).cuda(), Kept()
            optimizer, step = torch.optim.SGD(net.parameters(), lr=1.0), wrap(make(net, kept))
            told = []
            for i in range(12):
                found = step(torch.randn(4, 8, device="cuda"))
                found = found if kept.last is None else kept.last
                torch._foreach_mul_(found, 0.5)
                told.append([found, [g.tolist() for g in found], all(a is p.grad for a, p in zip(found, net.parameters()))])
                if i % micro == micro - 1:
                    optimizer.step()
                    optimizer.zero_grad()
            if micro == 1:
                told.append([g.tolist() for found, *_ in told for g in found])  # as they are by now
            return [told[i][1:] if i < 12 else told[i] for i in range(len(told))], net.weight.tolist()

        for make, micro in ((returning, 1), (returning, 2), (keeping, 1)):
            made = []

            def graphed(step, made=made):
                made.append(reprise.graphed(step, strict=True))
                return made[0]
            self.assertEqual(train(make, micro, graphed), train(make, micro, lambda step: step), (make, micro))
            self.assertGreaterEqual(sum(s["replays"] for s in made[0].shapes()), 6)

    def test_sparse_gradients_stay_eager(self):
        """Adding to one gives it other memory: that of the capture, where nothing was ever written."""
        def train(net, heads, optimizer, graphed):
            table = torch.nn.Embedding(50, 64, sparse=True, device="cuda")
            tokens = [ids for _ in range(4) for ids in torch.randperm(50, device="cuda")[:21].split(7)]
            sgd = torch.optim.SGD([*table.parameters(), *net.parameters()], lr=0.1)
            step = graphed(lambda ids: self.backward(lambda ids: net(table(ids)), ids), grad="whole",
                           watch=[table, net])
            update = graphed(sgd.step, watch=[table, net])
            for i, ids in enumerate(tokens):
                step(ids)
                if i % 3 == 2:
                    update()
                    sgd.zero_grad(set_to_none=True)
            heads[0].weight.data = table.weight.detach().clone()  # what is compared
        step, update = self.check(train)
        self.assertIn("sparse gradients", " ".join(step.failures()))
        self.assertEqual((step.shapes(), update.shapes()), ([], []))

    def test_homes_go_with_the_parameters(self):
        gc.collect()
        before = len(homes._homes)

        def train(net, heads, optimizer, graphed):
            step = graphed(self.micro_step(net, optimizer, True), grad="whole", strict=True)
            for i, x in enumerate(self.inputs):
                step(x, i % 4 == 3)
            self.seen = len(homes._homes) - before
        self.check(train)
        gc.collect()
        self.assertEqual((self.seen, len(homes._homes)), (4, before))

    def test_gradients_that_the_program_points_at_other_memory(self):
        """The tensors that graphs give lie elsewhere from then on, and graphs write where they did."""
        for micro_batches in (1, 2):
            def train(net, heads, optimizer, graphed):
                back = graphed(lambda x: self.backward(net, x), grad="whole", watch=[net])
                for i, x in enumerate(self.inputs * 2):
                    back(x)
                    if i % micro_batches != micro_batches - 1:
                        continue
                    if i in (9, 29):
                        for p in net.parameters():
                            p.grad.data = p.grad.data / 2
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
            with self.subTest(micro_batches=micro_batches):
                back, = self.check(train)
                self.assertTrue(back.shapes())

    def test_steps_that_point_gradients_at_other_memory(self):
        def train(net, heads, optimizer, graphed):
            def step(x):
                loss = self.backward(net, x)
                for p in net.parameters():
                    p.grad.data = p.grad.data / 2
                return loss
            step = graphed(step, grad="whole")
            for i, x in enumerate(self.inputs * 2):
                step(x)
                if i % 2:
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
        step, = self.check(train)
        self.assertTrue(step.shapes())

    def test_micro_batches_whose_gradients_stay(self):
        def train(net, heads, optimizer, graphed):
            step = graphed(self.micro_step(net, optimizer, False), grad="whole", strict=True)
            for p in net.parameters():
                p.grad = torch.zeros_like(p)
            for i, x in enumerate(self.inputs):
                step(x, i % 4 == 3)
        step, = self.check(train)
        self.assertEqual(sorted(s["calls"] for s in step.shapes()), [6, 17])

    def test_an_update_that_drops(self):
        """It reads gradients that eager backward passes made, where those happen to lie."""
        def train(net, heads, optimizer, graphed):
            def update():
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            update = graphed(update)
            held = []
            for i, x in enumerate(self.inputs):
                self.backward(net, x)
                if i % 5 == 4:  # gradients lie elsewhere from now on
                    held.append([torch.empty_like(p) for p in net.parameters()])
                update()
        self.check(train)

    def test_an_update_by_itself(self):
        def train(net, heads, optimizer, graphed):
            update = graphed(optimizer.step, strict=True)
            for x in self.inputs:
                optimizer.zero_grad(set_to_none=False)
                self.backward(net, x)
                update()
        update, = self.check(train)
        self.assertEqual([s["calls"] for s in update.shapes()], [23])

    def test_an_update_behind_graphs_of_several_shapes(self):
        def train(net, heads, optimizer, graphed):
            back = graphed(lambda x: self.backward(net, x), grad="whole", watch=[net])
            update = graphed(optimizer.step)
            for i, x in enumerate(self.inputs):
                optimizer.zero_grad(set_to_none=True)
                back(x[:16 - 4 * (i % 3)])
                update()
        back, update = self.check(train)
        self.assertEqual((len(back.shapes()), len(update.shapes())), (3, 1), update.failures())

    def test_an_update_in_the_pool_of_the_graphs_that_it_is_behind(self):
        """Alternatives lie over each other's gradients; what comes later in a sequence does not."""
        for kind in ("alternatives", "sequence"):
            def train(net, heads, optimizer, graphed):
                pool = reprise.Pool(kind)
                back = graphed(lambda x: self.backward(net, x), grad="whole", watch=[net], pool=pool)
                update = graphed(optimizer.step, pool=pool)
                for x in self.inputs:
                    optimizer.zero_grad(set_to_none=True)
                    back(x)
                    update()
            with self.subTest(kind=kind):
                back, update = self.check(train)
                self.assertEqual(len(back.shapes()), 1)
                self.assertEqual(len(update.shapes()), 1, update.failures())

    def test_memory_stays_while_work_on_it_is_under_way(self):
        """The graph goes, and its pool, with the last gradient there; the device is behind."""
        after = []
        for graph in (False, True):
            net = copy.deepcopy(self.net)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

            def back(x, net=net):
                return self.backward(net, x)
            if graph:
                back = reprise.graphed(back, grad="whole", watch=[net], strict=True)
            for x in self.inputs[:4]:
                optimizer.zero_grad(set_to_none=True)
                back(x)
                optimizer.step()
            gone = weakref.ref(back)
            torch.cuda._sleep(200_000_000)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            del back
            gc.collect()
            self.assertIsNone(gone())
            after.append([p.detach().clone() for p in net.parameters()])
            torch.cuda.synchronize()
        self.assertTrue(all(torch.equal(*pair) for pair in zip(*after)))

    def test_clipping_by_itself(self):
        def train(net, heads, optimizer, graphed):
            params = list(net.parameters())

            def clip():
                return torch.nn.utils.clip_grad_norm_(params, 0.01, foreach=True)
            clip = graphed(clip, watch=[net])
            for x in self.inputs:
                optimizer.zero_grad(set_to_none=False)
                self.backward(net, x)
                clip()
                optimizer.step()
        clip, = self.check(train)
        self.assertEqual([s["calls"] for s in clip.shapes()], [23])

    def test_heads_of_which_one_at_a_time_has_gradients(self):
        def train(net, heads, optimizer, graphed):
            def step(x, which):
                optimizer.zero_grad(set_to_none=True)
                return self.backward(lambda x: heads[which](net(x)), x)
            step = graphed(step, grad="whole", strict=True)
            for i, x in enumerate(self.inputs):
                step(x, int(i % 5 in (1, 3)))
                optimizer.step()
        step, = self.check(train)
        self.assertEqual(sum(s["calls"] for s in step.shapes()), 23)

    def check_short(self, train):
        """As check(), of one callable; all calls but a few go without Python."""
        with mock.patch.object(Shape, "replay", autospec=True, side_effect=Shape.replay) as replay:
            made, = self.check(train)
        calls = sum(s["calls"] for s in made.shapes())
        self.assertGreaterEqual(calls, len(self.inputs) - 2)
        self.assertLessEqual(replay.call_count, 3 * len(made.shapes()))
        return made

    @needs.fast_path
    def test_whole_steps_take_the_fast_path(self):
        for within in (True, False):  # does the optimizer step there?
            def train(net, heads, optimizer, graphed):
                step = graphed(whole_step(net, optimizer, moves=within), grad="whole", strict=True)
                for x in self.inputs:
                    step(x, torch.ones_like(x))
                    if not within:
                        optimizer.step()
            with self.subTest(within=within):
                self.check_short(train)

    @needs.fast_path
    def test_steps_whose_gradients_stay_take_the_fast_path(self):
        def train(net, heads, optimizer, graphed):
            def step(x):
                self.backward(net, x)
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
            step = graphed(step, grad="whole", strict=True)
            for x in self.inputs:
                step(x)
        self.check_short(train)

    @needs.fast_path
    def test_backward_passes_with_all_else_outside_take_the_fast_path(self):
        def train(net, heads, optimizer, graphed):
            def step(x):
                loss = self.backward(net, x)
                return {"loss": loss, "rate": 0.1, "pair": (loss * 2, None)}
            step = graphed(step, grad="whole", strict=True)
            for i, x in enumerate(self.inputs):
                optimizer.zero_grad(set_to_none=True)
                told = step(x)
                self.assertTrue(torch.equal(told["loss"] * 2, told["pair"][0]))
                self.assertEqual((told["rate"], told["pair"][1]), (0.1, None))
                if i % 3:  # else gradients are dropped unused
                    optimizer.step()
        self.check_short(train)

    @needs.fast_path
    def test_micro_batches_in_turns_take_the_fast_path(self):
        """Of the same arguments: which graph it is depends on gradients alone."""
        def train(net, heads, optimizer, graphed):
            step = graphed(lambda x: self.backward(net, x), grad="whole", strict=True)
            kept = [torch.zeros_like(p) for p in net.parameters()]
            for i, x in enumerate(self.inputs):
                for p, grad in zip(net.parameters(), kept):
                    p.grad = None if i % 2 else grad.zero_()
                step(x)
                optimizer.step()
        self.assertEqual(len(self.check_short(train).shapes()), 2)

    def test_a_layer_that_is_frozen_in_the_midst(self):
        def train(net, heads, optimizer, graphed):
            step = graphed(whole_step(net, optimizer), grad="whole", strict=True)
            for i, x in enumerate(self.inputs):
                net[0].requires_grad_(not 8 <= i < 16)
                step(x, torch.ones_like(x))
        made, = self.check(train)
        self.assertEqual(len(made.shapes()), 2)

    def test_a_script_whose_net_is_a_global(self):
        def train(net, heads, optimizer, graphed):
            global NET, OPTIMIZER
            NET, OPTIMIZER = net, optimizer
            step = graphed(script_step, grad="whole", strict=True)
            for x in self.inputs:
                OPTIMIZER.zero_grad(set_to_none=True)
                step(x)
                OPTIMIZER.step()
        step, = self.check(train)
        self.assertEqual([s["calls"] for s in step.shapes()], [23])

    def test_gradients_that_a_graph_of_pytorch_left(self):
        """A step that drops them does without; one that reads them is refused, or reads them."""
        def train(net, heads, optimizer, graphed):
            x = self.inputs[0].clone()
            self.backward(net, x)
            net.zero_grad(set_to_none=True)
            graph = torch.cuda.CUDAGraph()
            with reprise.graph(graph):
                self.backward(net, x)

            def update():
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            update = graphed(update)

            def step(x):
                optimizer.zero_grad(set_to_none=True)
                loss = self.backward(net, x)
                optimizer.step()
                return loss
            step = graphed(step, grad="whole")
            grads = [p.grad for p in net.parameters()]
            for given in self.inputs:
                for p, grad in zip(net.parameters(), grads):
                    p.grad = grad
                x.copy_(given)
                graph.replay()
                update()
                step(given)
        self.check(train)


if __name__ == "__main__":
    unittest.main()
