# SPDX-License-Identifier: MIT
"""What code of a backward pass reads, and the program changes between a call and its backward pass: gradients are
eager's to the bit. Usage: gpu_behind.py [--install] ..."""

import collections
import functools
import sys
import unittest
import warnings

import torch
import torch.utils.checkpoint

import reprise

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

CALLS = 10
AT = 6  # the call behind which something changes
SIZE = 8
SETTINGS = {"scale": 1.0}
BEHIND = "which changed between the call and its backward pass"


class State:
    """Of a program, beside its nets."""

    def __init__(self, **values):
        self.__dict__.update(values)


class Scaled(torch.autograd.Function):
    factor = 1.0

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        return grad * SETTINGS["scale"] * Scaled.factor


class Behind(unittest.TestCase):
    def setUp(self):
        SETTINGS["scale"] = Scaled.factor = 1.0

    def trained(self, make, graphed, **options):
        """Of each call its result, the parameters' gradients, and what else the program has of tensors and numbers."""
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE), torch.nn.Tanh(), torch.nn.Linear(SIZE, 4)).cuda()
        fn, change = make(self.net)
        call = reprise.graphed(fn, **options) if graphed else fn
        torch.manual_seed(2)
        found = []
        for i in range(CALLS):
            y = call(torch.randn(3, SIZE, device="cuda"))
            more = change(i) or tuple
            y.square().mean().backward()
            found.append([y.detach().clone(), *(p.grad.clone() for p in self.net.parameters()), *more()])
            self.net.zero_grad()
        return found, call

    def check(self, make, warns=BEHIND, graphs=False, **options):
        """make(net): fn, and what is called between call i and its backward pass, and may return what gives more to
        compare. warns: what a warning says, or None. graphs: are calls captured still at the end?"""
        eager, _ = self.trained(make, False)
        SETTINGS["scale"] = Scaled.factor = 1.0
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            made, call = self.trained(make, True, **options)
        for i, rows in enumerate(zip(eager, made)):
            for one, other in zip(*rows, strict=True):
                self.assertTrue(torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other, i)
        texts = [str(w.message) for w in seen if "reprise" in str(w.message)]
        if warns is None:
            self.assertEqual([], texts)
        else:
            self.assertRegex(" ".join(texts), warns)
        self.assertEqual(graphs or warns is None, bool(call.shapes()))

    @staticmethod
    def hooked(net, hook, on_result=False):
        def fn(x):
            h = net[0](x)
            if h.requires_grad and not on_result:
                h.register_hook(hook)
            y = net[2](torch.tanh(h))
            if y.requires_grad and on_result:
                y.register_hook(hook)
            return y
        return fn

    def scaled(self, state, read=lambda state: state.scale, **how):
        """As make of check: a net with a hook; and what sets the state's scale behind call AT."""
        def make(net):
            def change(i):
                state.scale = 3.0 if i == AT else 1.0
            return self.hooked(net, lambda grad: grad * read(state), **how), change
        return make

    # ---- Where it is read ----

    def test_attribute_that_a_hook_reads(self):
        self.check(self.scaled(State(scale=1.0)))

    def test_attribute_that_a_hook_of_the_result_reads(self):
        self.check(self.scaled(State(scale=1.0), on_result=True))

    def test_attribute_that_a_hook_of_the_result_reads_and_that_changes_ahead_of_calls(self):
        """That is another key."""
        def make(net):
            state = State(scale=1.0)

            def change(i):
                return lambda: setattr(state, "scale", 1.0 + i // 3 % 2) or ()
            return self.hooked(net, lambda grad: grad * state.scale, on_result=True), change
        self.check(make, None)

    def test_global_that_a_function_reads(self):
        def make(net):
            return lambda x: net[2](Scaled.apply(net[0](x))), lambda i: SETTINGS.update(scale=2.0 if i == AT else 1.0)
        self.check(make, r"reads `SETTINGS\['scale'\]`, " + BEHIND)

    def test_attribute_of_a_class(self):
        def make(net):
            return lambda x: net[2](Scaled.apply(net[0](x))), lambda i: setattr(Scaled, "factor", 2.0 if i == AT else 1.0)
        self.check(make, "reads `Scaled.factor`, " + BEHIND)

    def test_what_a_context_has(self):
        class Kept(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, settings):
                ctx.settings = settings
                return x * 1.0

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.settings["scale"], None

        def make(net):
            settings = {"scale": 1.0}
            return lambda x: net[2](Kept.apply(net[0](x), settings)), lambda i: settings.update(
                scale=2.0 if i == AT else 1.0)
        self.check(make)

    def test_what_a_partial_hook_has(self):
        def make(net):
            settings = {"scale": 1.0}

            def hook(held, grad):
                return grad * held["scale"]
            return self.hooked(net, functools.partial(hook, settings)), lambda i: settings.update(
                scale=2.0 if i == AT else 1.0)
        self.check(make)

    def test_variable_that_a_hook_closes_over(self):
        def make(net):
            scale = 1.0

            def change(i):
                nonlocal scale
                scale = 2.0 if i == AT else 1.0
            return self.hooked(net, lambda grad: grad * scale), change
        self.check(make)

    def test_hook_of_a_module(self):
        def make(net):
            state = State(scale=1.0)
            net[1].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * state.scale,))
            return (lambda x: net(x)), lambda i: setattr(state, "scale", 2.0 if i == AT else 1.0)
        self.check(make)

    def test_mode_of_a_module(self):
        def make(net):
            def change(i):
                net.train(i != AT)
                return lambda: net.train() and ()
            return self.hooked(net, lambda grad: grad * (1.0 if net.training else 2.0)), change
        self.check(make, "training`")

    def test_elements_of_a_list(self):
        def make(net):
            held = [1.0, 2.0]

            def change(i):
                if i == AT:
                    held.append(3.0)
            return self.hooked(net, lambda grad: grad * sum(held)), change
        self.check(make)

    def test_order_of_a_dict(self):
        def make(net):
            held = collections.OrderedDict(a=1.0, b=2.0)

            def change(i):
                held.move_to_end("a", last=i == AT)
            return self.hooked(net, lambda grad: grad * next(iter(held.values()))), change
        with self.subTest("what cannot be put back is an error"):
            with self.assertRaisesRegex(RuntimeError, BEHIND):
                self.trained(make, True)

    def test_tensor_that_is_another(self):
        def make(net):
            state, other = State(w=torch.ones(SIZE, device="cuda")), torch.full((SIZE,), 2.0, device="cuda")
            one = state.w

            def change(i):
                state.w = other if i == AT else one
            return self.hooked(net, lambda grad: grad * state.w), change
        self.check(make)

    # ---- How it is computed once more ----

    def test_what_the_call_reads_too(self):
        def make(net):
            state = State(scale=1.0)
            inner = self.hooked(net, lambda grad: grad / state.scale)
            return lambda x: inner(x) * state.scale, lambda i: setattr(state, "scale", 2.0 if i == AT else 1.0)
        self.check(make)

    def test_what_the_call_alone_reads_changes_as_well(self):
        def make(net):
            state = State(scale=1.0, more=1.0)

            def change(i):
                state.scale = state.more = 2.0 if i == AT else 1.0
            inner = self.hooked(net, lambda grad: grad * state.scale)
            return lambda x: inner(x * state.more), change
        self.check(make)

    def test_numbers_are_drawn_again(self):
        def make(net):
            state = State(scale=1.0)
            inner = self.hooked(net, lambda grad: grad * state.scale)
            return lambda x: inner(torch.dropout(x, 0.5, True)), lambda i: setattr(
                state, "scale", 2.0 if i == AT else 1.0)
        self.check(make)

    def test_what_the_call_changes_is_changed_once(self):
        def make(net):
            state, count, seen = State(scale=1.0, calls=0), torch.zeros((), device="cuda"), []
            inner = self.hooked(net, lambda grad: grad * state.scale)
            net.register_buffer("count", count)

            def fn(x):
                state.calls += 1
                net.count.add_(1)
                return inner(x)

            def change(i):
                state.scale = 2.0 if i == AT else 1.0
                return lambda: (state.calls, net.count.clone(), len(seen))
            return fn, change
        self.check(make)

    def test_counts_behind_gradients_of_gradients(self):
        """Which call the function once more too."""
        counts = []
        for graphed in (False, True):
            torch.manual_seed(1)
            net, state = torch.nn.Linear(SIZE, SIZE).cuda(), State(calls=0)

            def fn(x, net=net, state=state):
                state.calls += 1
                return net(x).tanh()
            call = reprise.graphed(fn) if graphed else fn
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _ in range(CALLS):
                    x = torch.ones(3, SIZE, device="cuda", requires_grad=True)
                    grad, = torch.autograd.grad(call(x).sum(), x, create_graph=True)
                    grad.square().sum().backward()
            counts.append(state.calls)
        self.assertEqual([CALLS, CALLS], counts)

    # ---- What is none of that ----

    def test_what_the_call_alone_reads(self):
        def make(net):
            state = State(scale=1.0, more=1.0)

            def change(i):
                state.more = 2.0
                return lambda: setattr(state, "more", 1.0) or ()
            inner = self.hooked(net, lambda grad: grad * state.scale)
            return lambda x: inner(x * state.more), change
        self.check(make, None)

    def test_equal_values(self):
        def make(net):
            state = State(scales=[1.0, 2.0])
            return self.hooked(net, lambda grad: grad * state.scales[1]), lambda i: setattr(state, "scales", [1.0, 2.0])
        self.check(make, None)

    def test_tensor_that_is_written_to(self):
        def make(net):
            w = torch.ones(SIZE, device="cuda")
            return self.hooked(net, lambda grad: grad * w), lambda i: w.fill_(float(i)) is None
        self.check(make, None)

    def test_hooks_of_modules_that_are_gone(self):
        """They were called by the call."""
        def make(net):
            inner = self.hooked(net, lambda grad: grad * (2.0 if net.training else 1.0))

            def nothing(*_):
                return None

            def change(i):
                if i == AT:
                    handle.remove()
                    return lambda: net[0].register_forward_hook(nothing) is not None and ()
                return None
            handle = net[0].register_forward_hook(nothing)
            return inner, change
        self.check(make, None)

    def test_parameters_with_hooks_of_their_own(self):
        """Autograd calls them behind the graph."""
        def make(net):
            state = State(scale=1.0)
            net[0].weight.register_hook(lambda grad: grad * state.scale)
            return (lambda x: net(x)), lambda i: setattr(state, "scale", 2.0 if i == AT else 1.0)
        self.check(make, None)

    # ---- What the call itself changes ----

    def test_flag_that_the_call_sets(self):
        def make(net):
            state = State(mode="out")

            def fn(x):
                state.mode = "in"
                return inner(x)
            inner = self.hooked(net, lambda grad: grad * (2.0 if state.mode == "in" else 1.0))
            return fn, lambda i: lambda: setattr(state, "mode", "out") or ()
        self.check(make, "reads `state.mode`, which the call changes")

    def test_count_that_the_call_moves_on(self):
        def make(net):
            state = State(calls=0)

            def fn(x):
                state.calls += 1
                return inner(x)
            inner = self.hooked(net, lambda grad: grad * state.calls)
            return fn, lambda i: None
        self.check(make, "reads `state.calls`, which the call changes")

    def test_checkpoint(self):
        """What is recomputed reads it once more."""
        def make(net):
            state = State(scale=1.0)

            def block(h):
                return torch.tanh(h * state.scale)
            return lambda x: net[2](torch.utils.checkpoint.checkpoint(block, net[0](x), use_reentrant=False)), lambda i: (
                setattr(state, "scale", 2.0 if i == AT else 1.0))
        self.check(make)


if __name__ == "__main__":
    unittest.main()
