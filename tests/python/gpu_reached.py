# SPDX-License-Identifier: MIT
"""Gradients of functions that reach their parameters in any way, on a GPU: results require gradients where eager
results do, and give the same ones to the bit. Usage: gpu_reached.py [--install] ..."""

import functools
import gc
import sys
import types
import unittest
import warnings
import weakref

import torch
import torch.utils.checkpoint

import reprise

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

NET = None  # what a script's function names


def by_global(x):
    return NET(x)


def by_default(x, net=None):
    return net(x)


def by_argument(net, x):
    return net(x)


class Trainer:
    def __init__(self, net):
        self.net, self.loss = net, None

    def step_loss(self, x):
        return self.net(x).square().mean()

    def keep_loss(self, x):
        self.loss = self.net(x).square().mean()
        return self.loss.detach()


def inputs(i):
    return torch.full((3, 8), 0.125 * i + 0.125, device="cuda")


class Reached(unittest.TestCase):
    def setUp(self):
        global NET
        torch.manual_seed(0)
        NET = self.net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).cuda()
        self.weight = torch.randn(8, 8, device="cuda", requires_grad=True)

    def tearDown(self):
        gc.collect()

    def told_of(self, call, wanted, between, count, give):
        """Of each call: which results require gradients, what they are, and the gradients of what wanted() gives."""
        told = []
        for i in range(count):
            between(i)
            leaves = call(give(i))
            leaves = leaves if isinstance(leaves, tuple) else (leaves,)
            wants = [leaf.requires_grad for leaf in leaves]
            grads = []
            for tensor in wanted():
                tensor.grad = None
            if any(wants):
                sum(leaf.sum() for leaf in leaves if leaf.requires_grad).backward()
                grads = [t.grad if t.grad is None else t.grad.clone() for t in wanted()]
            told.append((wants, [leaf.detach().clone() for leaf in leaves], grads))
        return told

    def check(self, make, wanted=None, between=lambda i: None, count=8, give=inputs, warns=None, **options):
        """make(): a function, the same each time; wanted(): what has gradients, the net's parameters; between(i):
        called ahead of call i. The graphed one. warns: what a warning says; None: there is none, and graphs, but where
        times choose."""
        wanted = wanted or (lambda: list(self.net.parameters()))
        eager = self.told_of(make(), wanted, between, count, give)
        call = reprise.graphed(make(), **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            graphed = self.told_of(call, wanted, between, count, give)
        for one, other in zip(eager, graphed):
            self.assertEqual(other[0], one[0])
            torch.testing.assert_close(other[1:], one[1:], rtol=0, atol=0)
        texts = [str(w.message) for w in caught if "reprise" in str(w.message)]
        if warns is None:
            self.assertEqual(texts, [])
            if options.get("policy") != "auto":
                self.assertGreater(sum(shape["replays"] for shape in call.shapes()), 0)
        else:
            self.assertRegex(" ".join(texts), warns)
        return call

    def parts_of(self, call):
        return len(call.shapes())

    # ---- Functions that give gradients ----

    def test_ways_to_parameters(self):
        net, trainer = self.net, Trainer(self.net)
        by_closure = functools.partial(lambda x: net(x))
        by_default.__defaults__ = (net,)
        ways = {"closure": lambda x: net(x), "global": by_global, "default": by_default, "partial of a closure": by_closure,
                "partial": functools.partial(by_argument, net), "method": trainer.step_loss,
                "list": lambda x, some=[net]: some[0](x), "bound": net.forward}
        for name, fn in ways.items():
            with self.subTest(name):
                self.assertEqual(self.parts_of(self.check(lambda fn=fn: fn, strict=True)), 2)
        by_default.__defaults__ = (None,)

    def test_a_tensor_that_no_module_has(self):
        held = {"weight": self.weight}
        call = self.check(lambda: lambda x: torch.tanh(x @ held["weight"]), lambda: [self.weight], strict=True)
        self.assertEqual(self.parts_of(call), 2)

    def test_a_tensor_beside_a_module(self):
        """Of a module too, whose parameters alone were asked for gradients."""
        weight = self.weight

        class Net(torch.nn.Linear):
            def forward(self, x):
                return super().forward(x @ weight)
        net = Net(8, 4).cuda()
        self.check(lambda: net, lambda: [weight, *net.parameters()], strict=True)

    def test_a_tensor_that_is_watched(self):
        call = self.check(lambda: lambda x: x @ self.weight, lambda: [self.weight], watch=[self.weight], grad="split",
                          strict=True)
        self.assertEqual(self.parts_of(call), 2)

    def test_results_of_several_kinds(self):
        net = self.net
        self.check(lambda: lambda x: (net(x), x * 2, net(x).detach()), strict=True)

    def test_a_view_of_a_parameter(self):
        weight = self.weight
        self.check(lambda: lambda x: (weight[:2], x * 2), lambda: [weight], strict=True)

    def test_a_result_that_is_kept(self):
        """As a trainer does, whose step returns a number."""
        trainer = Trainer(self.net)
        step, grads = reprise.graphed(trainer.keep_loss, strict=True), []
        for i in range(6):
            self.net.zero_grad()
            loss = step(inputs(1))
            self.assertFalse(loss.requires_grad)
            trainer.loss.backward()
            grads.append(self.net[0].weight.grad.clone())
        self.assertTrue(all(torch.equal(grad, grads[0]) for grad in grads))
        self.assertEqual(self.parts_of(step), 2)

    def test_training(self):
        """With an optimizer outside, which writes the parameters."""
        after = []
        for wrap in (lambda fn: fn, functools.partial(reprise.graphed, strict=True)):
            torch.manual_seed(1)
            net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            loss_of = wrap(lambda x, net=net: net(x).square().mean())
            for i in range(8):
                optimizer.zero_grad()
                loss_of(inputs(i)).backward()
                optimizer.step()
            after.append([p.detach().clone() for p in net.parameters()])
        torch.testing.assert_close(after[1], after[0], rtol=0, atol=0)

    def trained(self, loss_of, wrap, count=8):
        """Parameters behind some steps. loss_of(net, optimizer): a function that returns the loss."""
        torch.manual_seed(1)
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        call = wrap(loss_of(net, optimizer))
        for i in range(count):
            call(inputs(i)).backward()
            if i % 3 != 2:
                optimizer.step()
        return [p.detach().clone() for p in net.parameters()], call

    def test_gradients_that_are_dropped_within(self):
        def loss_of(net, optimizer):
            def loss(x):
                optimizer.zero_grad()
                return net(x).square().mean()
            return loss
        eager, _ = self.trained(loss_of, lambda fn: fn)
        graphed, call = self.trained(loss_of, functools.partial(reprise.graphed, strict=True))
        torch.testing.assert_close(graphed, eager, rtol=0, atol=0)
        self.assertEqual(self.parts_of(call), 2)

    def test_optimizers_that_step_within(self):
        def loss_of(net, optimizer):
            def loss(x):
                optimizer.step()
                optimizer.zero_grad()
                return net(x).square().mean()
            return loss
        eager, _ = self.trained(loss_of, lambda fn: fn)
        with self.assertWarnsRegex(UserWarning, "reads or writes gradients, and its results require"):
            graphed, _ = self.trained(loss_of, reprise.graphed)
        torch.testing.assert_close(graphed, eager, rtol=0, atol=0)

    def test_shapes(self):
        net = self.net
        call = self.check(lambda: lambda x: net(x), give=lambda i: inputs(i)[:1 + i % 3], count=9, strict=True)
        self.assertEqual(self.parts_of(call), 6)

    def test_graphed_callables_within_each_other(self):
        net = self.net
        inner = reprise.graphed(lambda x: net(x))
        self.check(lambda: lambda x: inner(x) * 2, strict=True)

    def test_hooks_of_parameters(self):
        net = self.net
        handle = net[0].weight.register_hook(lambda grad: grad * 2)
        self.check(lambda: lambda x: net(x), strict=True)
        handle.remove()

    def test_a_choice_by_measured_times(self):
        net = self.net
        call = self.check(lambda: lambda x: net(x), count=60, policy="auto")
        self.assertEqual(call.choices()[0]["passes"], "forward and backward")

    def test_graphs_that_are_captured_ahead(self):
        net = self.net
        call = self.check(lambda: lambda x: net(x), strict=True, shapes=[(inputs(0),)])
        self.assertEqual(self.parts_of(call), 2)

    def test_gradients_of_gradients(self):
        net, x = self.net, inputs(1)

        def penalty(call):
            grads = torch.autograd.grad(call(x).square().sum(), list(net.parameters()), create_graph=True)
            net.zero_grad()
            sum(g.square().sum() for g in grads).backward()
            return [p.grad.clone() for p in net.parameters()]
        call = reprise.graphed(lambda x: net(x))
        eager = penalty(net)
        for _ in range(3):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.testing.assert_close(penalty(call), eager)

    # ---- Functions that give none ----

    def test_without_gradients(self):
        """The same function, in turns."""
        call, x = reprise.graphed(by_global, strict=True), inputs(1)
        eager = self.net(x)
        for i in range(9):
            with torch.set_grad_enabled(i % 3 == 0):
                result = call(x)
            self.assertEqual(result.requires_grad, i % 3 == 0)
            self.assertTrue(torch.equal(result, eager))
            with torch.inference_mode():
                self.assertFalse(call(x).requires_grad)

    def test_results_that_want_none_are_one_graph(self):
        net = self.net

        def within(x):
            with torch.no_grad():
                return net(x)
        for name, fn in {"detached": lambda x: net(x).detach(), "no_grad": within}.items():
            with self.subTest(name):
                self.assertEqual(self.parts_of(self.check(lambda fn=fn: fn, strict=True)), 1)
        net.requires_grad_(False)
        self.assertEqual(self.parts_of(self.check(lambda: lambda x: net(x), strict=True)), 1)

    def test_steps_stay_one_graph(self):
        """They have gone back through what they return."""
        net = self.net

        def step(x):
            out = net(x)
            loss = out.square().mean()
            (loss / 4).backward()
            return loss, out, loss * 4

        def by_grad(x):
            loss = net(x).square().mean()
            grads = torch.autograd.grad(loss, list(net.parameters()))
            return loss, [g * 2 for g in grads]

        def keeping(x):
            loss = net(x).square().mean()
            loss.backward(retain_graph=True)
            return loss, net[0].weight
        for name, fn in {"backward": step, "grad": by_grad, "retain_graph": keeping}.items():
            with self.subTest(name):
                call, grads = reprise.graphed(fn, strict=True), []
                for _ in range(6):
                    net.zero_grad()
                    call(inputs(1))
                    grads.append(net[0].weight.grad if fn is by_grad else net[0].weight.grad.clone())
                self.assertTrue(fn is by_grad or all(torch.equal(grad, grads[0]) for grad in grads))
                self.assertEqual(self.parts_of(call), 1)

    # ---- What changes between calls ----

    def test_wishes_that_change(self):
        net, weight = self.net, self.weight

        def turn(i):
            net.requires_grad_(i % 4 < 2)
            weight.requires_grad_(i % 6 >= 3)
        self.check(lambda: lambda x: net(torch.tanh(x @ weight)), lambda: [*net.parameters(), weight], turn, count=16,
                   strict=True)
        net.requires_grad_(True)

    def test_a_tensor_alone_whose_wish_changes(self):
        weight = self.weight
        self.check(lambda: lambda x: x @ weight, lambda: [weight], lambda i: weight.requires_grad_(i >= 4), count=10,
                   strict=True)

    def test_a_tensor_that_is_replaced(self):
        held = {}

        def replace(i):
            if i % 4 == 0:
                held["weight"] = (self.weight * (i + 1)).detach().requires_grad_()
        self.check(lambda: lambda x: x @ held["weight"], lambda: [held["weight"]], replace, count=12)

    def test_a_tensor_that_is_replaced_in_the_same_memory(self):
        held = {"weight": self.weight}

        def replace(i):
            if i in (0, 4, 6):
                held["weight"] = self.weight.detach().requires_grad_()
        self.check(lambda: lambda x: x @ held["weight"], lambda: [held["weight"]], replace, count=10)

    def test_a_tensor_that_is_new_in_each_call(self):
        """A loop that replaces what it trains: eager from some call on, and nothing is kept."""
        held, gone = {"weight": self.weight}, []

        def replace(i):
            held["weight"] = (self.weight * (i + 1)).detach().requires_grad_()
            gone.append(weakref.ref(held["weight"]))
        call = self.check(lambda: lambda x: x @ held["weight"], lambda: [held["weight"]], replace, count=24,
                          warns="runs without a graph")
        del call
        gc.collect()
        self.assertLessEqual(sum(ref() is not None for ref in gone), 2)

    # ---- What is eager, with a warning ----

    def test_backward_passes_beside_results_that_give_gradients(self):
        """As a network's own step, whose images another step goes back through."""
        net = self.net

        def step(x):
            net(x).sum().backward()
            return net(x).square().mean()
        self.check(lambda: step, warns="'step' runs without a graph.* beside it that require gradients.*Detach them")

        class Net(torch.nn.Linear):
            def forward(self, x):
                (self.weight * 2).sum().backward()
                return super().forward(x)
        own = Net(8, 4).cuda()
        self.check(lambda: own, lambda: list(own.parameters()), warns="beside it that require gradients")

    def test_gradients_within_that_are_gone_back_through(self):
        net = self.net

        def penalty(x):
            y = x.detach().requires_grad_()
            force, = torch.autograd.grad(net(y).sum(), y, create_graph=True)
            return force.square().sum()
        self.check(lambda: penalty, warns="'penalty' runs without a graph.* takes gradients itself.*whole step")

    def test_tensors_that_earlier_work_made(self):
        held = {}
        self.check(lambda: lambda x: x @ held["weight"], lambda: [self.weight],
                   lambda i: held.update(weight=self.weight * 2), warns="that earlier work made.*Pass it as an argument")

    def test_arguments_that_come_to_require_gradients(self):
        def fn(x):
            return x.requires_grad_().square().sum()
        self.check(lambda: fn, lambda: [], warns="has an argument require gradients.*ahead of the call")

        class Net(torch.nn.Linear):
            def forward(self, x):
                return super().forward(x.requires_grad_())
        own = Net(8, 4).cuda()
        self.check(lambda: own, lambda: list(own.parameters()), warns="has an argument require gradients")

    def test_parameters_that_come_to_require_gradients(self):
        net = self.net

        def fn(x):
            net.requires_grad_(True)
            return net(x)
        self.check(lambda: fn, between=lambda i: net.requires_grad_(False), warns="which parameters require gradients")

    def test_parameters_that_come_to_require_none(self):
        net = self.net

        def fn(x):
            result = net(x).detach()
            net.requires_grad_(False)
            return result
        call = reprise.graphed(fn)
        with self.assertWarnsRegex(UserWarning, "which parameters require gradients"):
            for i in range(6):
                net.requires_grad_(True)
                call(inputs(i))
                self.assertFalse(net[0].weight.requires_grad)

    def test_gradients_that_are_enabled_within(self):
        call, x = reprise.graphed(lambda x: torch.enable_grad()(self.net)(x)), inputs(1)
        with self.assertWarnsRegex(UserWarning, "enables gradients where its caller has disabled them"):
            for _ in range(4):
                with torch.no_grad():
                    self.assertTrue(call(x).requires_grad)

    def test_results_that_want_gradients_by_themselves(self):
        weight = self.weight
        self.check(lambda: lambda x: (weight * 2).detach().requires_grad_(), lambda: [],
                   warns="makes and that requires gradients by itself")

    def test_hooks_of_a_tensor_that_no_module_has(self):
        weight = self.weight
        weight.register_hook(lambda grad: grad * 2)
        self.check(lambda: lambda x: x @ weight, lambda: [weight], warns="a parameter with hooks is used beside")

    def test_layers_that_go_back_to_other_tensors(self):
        """PyTorch's function gives these no gradients."""
        weight = self.weight
        with self.assertRaisesRegex(RuntimeError, r"goes back to a tensor of the shape \(8, 8\).*pass it as an argument"):
            reprise.make_graphed_callables(lambda x: x @ weight, (inputs(0).requires_grad_(),))

    def test_errors_where_they_are_asked_for(self):
        call = reprise.graphed(lambda x: x.requires_grad_().sum(), strict=True)
        call(inputs(0))
        with self.assertRaisesRegex(RuntimeError, "has an argument require gradients"):
            call(inputs(1))

    def test_results_that_were_asked_to_be_detached(self):
        call = reprise.graphed(by_global, grad="whole", strict=True)
        self.assertEqual([call(inputs(0)).requires_grad for _ in range(3)], [True, False, False])
        self.assertEqual(self.parts_of(call), 1)

    # ---- What the forward pass leaves to the backward pass ----

    def pairs(self, i):
        return inputs(i), torch.full((3, 4), 0.25 * i + 0.5, device="cuda")

    def check_left(self, fn, warns=None):
        """fn(net, x, factor)."""
        self.check(lambda: lambda pair: fn(self.net, *pair), give=self.pairs, warns=warns)

    def test_arguments_that_are_left_to_the_backward_pass(self):
        checkpoint = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)

        class Scaling(torch.autograd.Function):
            @staticmethod
            def forward(ctx, y, factor):
                ctx.factor = factor
                return y * factor

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.factor, None

        def hooked(net, x, factor):
            y = net(x)
            y.register_hook(lambda grad: grad * factor)
            return y * 2
        ways = {"an attribute of a ctx": lambda net, x, factor: Scaling.apply(net(x), factor),
                "a keyword": lambda net, x, factor: checkpoint(lambda x, by: torch.tanh(net(x) * by), x, by=factor),
                "a closure": lambda net, x, factor: checkpoint(lambda x: torch.tanh(net(x) * factor), x),
                "a dict": lambda net, x, factor: checkpoint(lambda x, by: torch.tanh(net(x) * by["y"]), x, {"y": factor}),
                "a hook": hooked}
        for name, fn in ways.items():
            with self.subTest(name):
                self.check_left(fn)

    def test_views_of_arguments_that_are_left_to_the_backward_pass(self):
        def fn(net, x, factor):
            row = factor[:1]
            return torch.utils.checkpoint.checkpoint(lambda x: torch.tanh(net(x) * row), x, use_reentrant=False)
        self.check_left(fn, warns="a view of an argument is left to its backward pass")

    def test_objects_that_are_left_to_the_backward_pass(self):
        def give(i):
            x, factor = self.pairs(i)
            return types.SimpleNamespace(x=x, factor=factor)

        def recomputed(some, y):
            return torch.tanh(self.net(y) * some.factor)
        self.check(lambda: lambda some: torch.utils.checkpoint.checkpoint(recomputed, some, some.x, use_reentrant=False),
                   give=give, warns="reads a tensor of an object among its arguments")

    def test_arguments_that_nobody_is_left_may_be_written(self):
        """Autograd saves none of them, so that nothing finds out what they were."""
        def fn(pair):
            return self.net(pair[0]) + pair[1]
        grads = {}
        for wrap in (lambda fn: fn, reprise.graphed):
            call = wrap(fn)
            for i in range(5):
                x, factor = self.pairs(i)
                factor.requires_grad_()
                other = factor * 1
                y = call((x, other))
                with torch.no_grad():
                    other.mul_(2)
                y.square().sum().backward()
                grads.setdefault(i, []).append(factor.grad)
        for one, other in grads.values():
            torch.testing.assert_close(other, one, rtol=0, atol=0)

    def test_lazy_views(self):
        """Their memory holds what they negate: results, and what autograd saves."""
        def negated(x):
            return torch.view_as_complex(x.view(3, 2, 2)).conj().imag
        ways = {"result": lambda net, x, factor: negated(net(x)),
                "kept with others": lambda net, x, factor: (net(x), negated(net(x) * 2)),
                "saved": lambda net, x, factor: net(x)[:, :2] * negated(factor)}
        for name, fn in ways.items():
            with self.subTest(name):
                self.check_left(fn)
        self.check_left(lambda net, x, factor: (net(x), negated(factor).detach()))


class Transformed(unittest.TestCase):
    """Graphs know nothing of who transforms their call."""

    def setUp(self):
        torch.manual_seed(0)
        self.net = torch.nn.Linear(8, 4).cuda()
        self.call = reprise.graphed(self.function)

    def function(self, x):
        return self.net(x).tanh() * 2

    def check(self, transformed, grad=False):
        """Of calls as they are and of transformed ones, in turn. transformed(function, x): a tuple of tensors."""
        with torch.set_grad_enabled(grad), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for i in range(9):
                x = inputs(i)
                if i % 3 == 2:
                    made = transformed(self.call, x), transformed(self.function, x)
                else:
                    made = (self.call(x),), (self.function(x),)
                self.assertTrue(all(map(torch.equal, *made)), i)
        texts = [str(w.message) for w in seen if "reprise" in str(w.message)]
        self.assertEqual([True], ["transformation of torch.func" in text for text in texts])
        self.assertTrue(self.call.shapes())

    def test_levels_of_forward_differentiation(self):
        def transformed(function, x):
            with torch.autograd.forward_ad.dual_level():
                return tuple(torch.autograd.forward_ad.unpack_dual(
                    function(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))))
        self.check(transformed)

    def test_maps(self):
        self.check(lambda function, x: (torch.vmap(function)(x),))

    def test_gradients_of_functions(self):
        self.check(lambda function, x: (torch.func.grad(lambda z: function(z).sum())(x), *torch.func.jvp(
            function, (x,), (x,))), grad=True)


if __name__ == "__main__":
    unittest.main()
