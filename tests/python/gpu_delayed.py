# SPDX-License-Identifier: MIT
"""Weight gradients as graphs of their own, by what stands in for Transformer Engine's modules.
Usage: gpu_delayed.py [--install] ..."""

import copy
import queue
import sys
import unittest

import torch

import fake_engine as engine
import reprise
from layer_case import WIDTH, Case, numbers, pair

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

LAYERS = 2
ONE_BY_ONE = [1, -1, -1.5]
PIPELINE = [1, 1, -1, -1.5, 1, -1, -1.5, -1, -1.5]
LATE = [1, 1, -1, -1, -1.5, -1.5]


class Store:
    """What weight gradients are computed of, and by what."""

    def __init__(self):
        self.context = queue.Queue()

    used = 0  # how often anything was put in or taken out

    def put(self, tensors, function):
        Store.used += 1
        self.context.put([tensors, function])

    def pop(self):
        Store.used += 1
        tensors, function = self.context.get_nowait()
        return function(*tensors)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, store, main_grads):
        ctx.save_for_backward(x, weight)
        ctx.store, ctx.main_grads = store, main_grads
        return torch.addmm(bias, x, weight.t())

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        main = ctx.main_grads

        def of_weights(x, grad):
            if main is not None:
                main.add_(grad.t() @ x)
                return None, grad.sum(0)
            return grad.t() @ x, grad.sum(0)
        if ctx.store is None:
            return (grad @ weight, *of_weights(x, grad), None, None)
        ctx.store.put([x.detach(), grad], of_weights)
        return grad @ weight, None, None, None, None


class Linear(torch.nn.Module):
    """Assigns its weight's gradient, and its bias's where there is none; adds is another way."""

    def __init__(self, delayed=True, adds=False, fused=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH) / 8)
        self.bias = torch.nn.Parameter(torch.zeros(WIDTH))
        self.wgrad_store = Store() if delayed else None
        self.adds, self.fused = adds, fused
        self.wgrad_accumulation_and_reduce_hooks = []

    def need_backward_dw(self):
        return self.wgrad_store is not None

    def forward(self, x):
        main = self.weight.main_grad if self.fused else None
        return _Product.apply(x, self.weight, self.bias, self.wgrad_store, main)

    def backward_dw(self):
        if not self.need_backward_dw():
            return
        weight, bias = self.wgrad_store.pop()
        if self.adds:
            self.weight.grad = weight if self.weight.grad is None else self.weight.grad.add_(weight)
        elif weight is not None:
            self.weight.grad = weight
        if self.bias.grad is None:
            self.bias.grad = bias
        for hook in self.wgrad_accumulation_and_reduce_hooks:
            hook()


class Layer(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.inner, self.outer = Linear(**options), Linear(**options)
        self.norm = torch.nn.LayerNorm(WIDTH)

    def forward(self, x):
        return x + self.outer(self.inner(self.norm(x)).tanh())

    def backward_dw(self):
        for linear in (self.inner, self.outer):
            linear.backward_dw()


class Net(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(**options) for _ in range(LAYERS))


class Trains(Case):
    """Passes in an order, beside a twin's in eager mode."""

    def steps(self, net, call, weigh, order, count=4, between=lambda net: None):
        """Results, and gradients behind each weight pass."""
        torch.manual_seed(11)
        seen = []
        for _ in range(count):
            begun, ended, weighed = 0, [], 0
            waiting = []
            for number in order:
                if number > 0:
                    x = y = numbers(8, WIDTH, grad=True)
                    for i in range(LAYERS):
                        y = call(i, begun, y)
                    waiting.append((x, y))
                    seen.append(y.detach().clone())
                    begun += 1
                elif number == -1:
                    x, y = waiting.pop(0)
                    y.square().mean().backward()
                    seen.append(x.grad)
                    ended.append(x)
                else:
                    for i in reversed(range(LAYERS)):
                        weigh(i, weighed)
                    weighed += 1
                    seen += [p.grad.clone() for p in net.parameters() if p.grad is not None]
                    between(net)
            with torch.no_grad():
                for param in net.parameters():
                    if param.grad is not None:
                        param.add_(param.grad, alpha=-0.05)
            net.zero_grad()
        return seen

    def check(self, order, of_engine=True, between=lambda net: None, **options):
        net, twin = pair(lambda: Net(**options))
        microbatches = order.count(1)
        samples = tuple((numbers(8, WIDTH, grad=True),) for _ in range(LAYERS * microbatches))
        if of_engine:
            made = reprise.make_graphed_callables(tuple(net.layers), samples, _order=order,
                                                  _num_layers_per_chunk=[LAYERS])

            def call(i, m, x):
                return made[m * LAYERS + i](x)

            def weigh(i, m):
                made[m * LAYERS + i].backward_dw()
        else:
            made = reprise.make_graphed_callables(tuple(net.layers), samples, order=order, num_layers_per_chunk=LAYERS)

            def call(i, m, x):
                return made[i](x)

            def weigh(i, m):
                made[i].backward_dw()
        self.compare(net, twin, call, weigh, order, between)
        return net, made

    def compare(self, net, twin, call, weigh, order, between=lambda net: None):
        with self.silent():
            got = self.steps(net, call, weigh, order, between=between)
        want = self.steps(twin, lambda i, m, x: twin.layers[i](x), lambda i, m: twin.layers[i].backward_dw(), order,
                          between=between)
        for a, b in zip(got, want, strict=True):
            self.assertTrue(torch.equal(a, b))

    def test_one_by_one(self):
        self.check(ONE_BY_ONE)
        self.check(ONE_BY_ONE, of_engine=False)

    def test_in_a_pipeline(self):
        self.check(PIPELINE)
        self.check(PIPELINE, of_engine=False, between=lambda net: net.zero_grad())

    def test_behind_other_passes(self):
        self.check(LATE)

    def test_added_to_gradients_that_are_there(self):
        self.check(PIPELINE, adds=True)

    def test_without_an_order(self):
        net, twin = pair(Net)
        made = reprise.make_graphed_callables(tuple(net.layers), ((numbers(8, WIDTH, grad=True),),) * LAYERS)
        self.compare(net, twin, lambda i, m, x: made[i](x), lambda i, m: made[i].backward_dw(), ONE_BY_ONE)
        for turn in range(4):  # at once, behind each backward pass
            seen = []
            for layers in (made, twin.layers):
                torch.manual_seed(turn)
                x = numbers(8, WIDTH, grad=True)
                inner = layers[0](x)
                between = inner.detach().requires_grad_()
                layers[1](between).square().mean().backward()
                layers[1].backward_dw()
                inner.backward(between.grad)
                layers[0].backward_dw()
                seen.append(x.grad)
            for a, b in zip([seen[0], *(p.grad for p in net.parameters())],
                            [seen[1], *(p.grad for p in twin.parameters())]):
                self.assertTrue(torch.equal(a, b))
            net.zero_grad()
            twin.zero_grad()

    def test_they_are_replayed(self):
        """Each of the three graphs, and nothing of the modules runs."""
        net, _ = pair(Net)
        pool = reprise.Pool("sequence")
        samples = ((numbers(8, WIDTH, grad=True),),) * LAYERS
        made = reprise.make_graphed_callables(tuple(net.layers), samples, pool=pool)
        self.assertEqual(pool.info()["graphs"], 3 * LAYERS)
        used = Store.used
        before = [p.grad for p in net.parameters()]
        self.assertEqual(before, [None] * len(before))
        made[0](numbers(8, WIDTH, grad=True)).sum().backward()
        weights = [made[0].inner.weight, made[0].outer.weight]
        self.assertEqual([w.grad for w in weights], [None, None])
        self.assertIsNotNone(made[0].norm.weight.grad)
        made[0].backward_dw()
        self.assertTrue(all(w.grad.abs().sum().item() > 0 for w in weights))
        self.assertEqual(Store.used, used)

    def test_gradients_are_fresh(self):
        net, _ = pair(Net)
        made = reprise.make_graphed_callables(tuple(net.layers), ((numbers(8, WIDTH, grad=True),),) * LAYERS)
        kept = []
        for _ in range(3):
            made[0](numbers(8, WIDTH, grad=True)).sum().backward()
            made[0].backward_dw()
            grad = net.layers[0].inner.weight.grad
            kept.append((grad, grad.clone()))
        for grad, value in kept:
            self.assertTrue(torch.equal(grad, value))
        self.assertEqual(len({grad.data_ptr() for grad, _ in kept}), 3)

    def test_what_is_there_stays_as_callables_are_made(self):
        net, _ = pair(Net)
        for i, param in enumerate(net.parameters()):
            param.grad = torch.full_like(param, i)
        grads = [p.grad for p in net.parameters()]
        told = []
        net.layers[0].inner.wgrad_accumulation_and_reduce_hooks.append(lambda: told.append(1))
        made = reprise.make_graphed_callables(tuple(net.layers), ((numbers(8, WIDTH, grad=True),),) * LAYERS)
        for i, param in enumerate(net.parameters()):
            self.assertIs(param.grad, grads[i])
            self.assertTrue((param.grad == i).all())
        self.assertEqual(told, [])
        for turn in range(2):
            made[0](numbers(8, WIDTH, grad=True)).sum().backward()
            self.assertEqual(len(told), turn)
            made[0].backward_dw()
            self.assertEqual(len(told), turn + 1)

    def test_main_grad(self):
        """Added up within the graph of weight gradients; warm-ups leave it alone."""
        def build():
            net = Net(fused=True)
            for linear in (m for m in net.modules() if isinstance(m, Linear)):
                linear.weight.main_grad = torch.ones(WIDTH, WIDTH, device="cuda")
            return net
        net, twin = pair(build)
        made = reprise.make_graphed_callables(tuple(net.layers), ((numbers(8, WIDTH, grad=True),),) * LAYERS * 2,
                                              _order=[1, 1, -1, -1.5, -1, -1.5])
        for linear in (m for m in net.modules() if isinstance(m, Linear)):
            self.assertTrue((linear.weight.main_grad == 1).all())
        self.compare(net, twin, lambda i, m, x: made[m * LAYERS + i](x), lambda i, m: made[m * LAYERS + i].backward_dw(),
                     [1, 1, -1, -1.5, -1, -1.5])
        for a, b in zip(net.modules(), twin.modules()):
            if isinstance(a, Linear):
                self.assertTrue(torch.equal(a.weight.main_grad, b.weight.main_grad))

    def test_the_module_itself(self):
        """Its own backward_dw stands behind; copies of it and what was reset have it."""
        net, twin = pair(Linear)
        x = numbers(8, WIDTH, grad=True)
        made = reprise.make_graphed_callables(net, (x,))
        for call in (made, twin):
            call(x).square().sum().backward()
            call.backward_dw()
        self.assertTrue(torch.equal(net.weight.grad, twin.weight.grad))
        net.eval()  # not what it was captured in
        for call in (net, twin):
            call(x).square().sum().backward()
            call.backward_dw()
        self.assertTrue(torch.equal(net.weight.grad, twin.weight.grad))
        net.train()
        net.wgrad_store.context = None  # no queue can be copied
        copied = copy.deepcopy(net)
        copied.wgrad_store, net.wgrad_store.context = Store(), queue.Queue()
        net.weight.grad = copied.weight.grad = None
        copied(x).square().sum().backward()
        copied.backward_dw()
        self.assertTrue(torch.equal(copied.weight.grad, twin.weight.grad))
        self.assertIsNone(net.weight.grad)
        made.reset()
        self.assertIs(made.backward_dw.__func__, Linear.backward_dw)

    def test_others_have_nothing_to_do(self):
        net, _ = pair(lambda: Net(delayed=False))
        made = reprise.make_graphed_callables(tuple(net.layers), ((numbers(8, WIDTH, grad=True),),) * LAYERS,
                                              _order=[1, -1], _num_layers_per_chunk=[LAYERS])
        made[0].backward_dw()
        made[1](made[0](numbers(8, WIDTH, grad=True))).sum().backward()
        made[0].backward_dw()
        self.assertIsNotNone(net.layers[0].inner.weight.grad)

    def test_a_chunk_of_which_some_delay(self):
        net, twin = pair(lambda: torch.nn.ModuleList([Layer(), Layer(delayed=False)]))
        made = reprise.make_graphed_callables(tuple(net), ((numbers(8, WIDTH, grad=True),),) * 2,
                                              order=[1, -1, -1.5], num_layers_per_chunk=[2])
        for _ in range(3):
            x = numbers(8, WIDTH, grad=True)
            made[1](made[0](x)).sum().backward()
            twin[1](twin[0](x)).sum().backward()
            for one in (made[1], made[0], twin[1], twin[0]):
                one.backward_dw()
            for a, b in zip(net.parameters(), twin.parameters()):
                torch.testing.assert_close(a.grad, b.grad)  # cuBLAS may sum in another order in a capture


class _Eight(torch.autograd.Function):
    """A product on a grid of eight bits, whose weight gradients are left for later on that grid too."""

    @staticmethod
    def forward(ctx, x, weight, rounded_weight, meta, store, updates):
        state = meta["scaling_fwd"]
        engine.note(state.amax_history, 0, x)
        x = engine.rounded(x, state.scale[0], engine.MOST["scaling_fwd"])
        ctx.save_for_backward(x, rounded_weight)
        ctx.meta, ctx.store, ctx.updates = meta, store, updates
        return x @ rounded_weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        state = ctx.meta["scaling_bwd"]
        engine.note(state.amax_history, 0, grad)
        grad = engine.rounded(grad, state.scale[0], engine.MOST["scaling_bwd"])
        ctx.store.put([x, grad], lambda x, grad: grad.t() @ x)
        found = grad @ weight
        if ctx.updates:
            engine.FP8GlobalStateManager.reduce_and_update_fp8_tensors(forward=False)
        return found, None, None, None, None, None


class EightBits(engine.Linear):
    def __init__(self, width):
        super().__init__(width)
        self.wgrad_store = Store()

    def need_backward_dw(self):
        return True

    def forward(self, x, is_first_microbatch=None):
        state, meta = engine.FP8GlobalStateManager.quantization_state, self.fp8_meta
        if "scaling_fwd" not in meta:
            meta["scaling_fwd"] = engine.State(2, state.recipe.amax_history_len)
            meta["scaling_bwd"] = engine.State(1, state.recipe.amax_history_len)
        meta["recipe"], meta["fp8_group"] = state.recipe, state.group
        if not state.capturing:
            engine.FP8GlobalStateManager.add_fp8_tensors_to_global_buffer(meta)
        weight = self.quantized(state, meta["scaling_fwd"], None)
        updates = engine.FP8GlobalStateManager.is_first_fp8_module() and not state.capturing
        return _Eight.apply(x, self.weight, weight, meta, self.wgrad_store, updates)

    def backward_dw(self):
        self.weight.grad = self.wgrad_store.pop()


class Quantized(Case):
    def setUp(self):
        super().setUp()
        engine.install()

    def tearDown(self):
        engine.uninstall()
        super().tearDown()

    def test_in_eight_bits(self):
        recipe, order = engine.DelayedScaling(), [1, 1, -1, -1.5, -1, -1.5]
        net, twin = pair(lambda: EightBits(WIDTH))
        sample = (numbers(8, WIDTH, grad=True),)
        made = reprise.make_graphed_callables((net,), (sample,) * 2, _order=order, enabled=True, recipe=recipe,
                                              allow_unused_input=True)
        found = []
        for one, calls in ((net, made), (twin, (twin, twin))):
            engine.FP8GlobalStateManager.quantization_state.buffers = {}
            one.fp8_meta.pop("index", None)
            torch.manual_seed(5)
            seen = []
            for _ in range(4):
                outs = []
                for call in calls:
                    with engine.autocast(enabled=True, recipe=recipe):
                        outs.append(call(numbers(8, WIDTH, grad=True)))
                for call, out in zip(calls, outs):
                    out.square().mean().backward()
                    call.backward_dw()
                    seen += [out.detach(), one.weight.grad.clone()]
                with torch.no_grad():
                    one.weight.add_(one.weight.grad, alpha=-0.05)
            found.append(seen)
        for a, b in zip(*found, strict=True):
            self.assertTrue(torch.equal(a, b))


class Refused(Case):
    """By name."""

    def made(self, order, layers=LAYERS, **options):
        net, _ = pair(lambda: Net(**options))
        microbatches = order.count(1)
        return reprise.make_graphed_callables(
            tuple(net.layers), ((numbers(8, WIDTH, grad=True),),) * (LAYERS * microbatches), _order=order,
            _num_layers_per_chunk=[layers])

    def test_orders(self):
        for order, kind, said in (
                ([1, -1.5, -1], ValueError, r"order\[1\] is -1.5: no backward pass of callable 1 is before it"),
                ([1, -1, -1.5, -1.5], ValueError, r"order\[3\] is -1.5: no backward pass of callable 1"),
                ([1, 1, -1, -1.5, -1], ValueError, "has 2 backward passes of callable 1, and the weight gradients of 1"),
                ([1, -1, -1.25], ValueError, r"order\[2\] is -1.25, but has to be a number"),
                ([1, -1, 1.5], ValueError, r"order\[2\] is 1.5, but has to be"),
                ([1, -1, -2.5], ValueError, r"order\[2\] is -2.5, but has to be"),
                ([1, -1], RuntimeError, r"'Layer' delays its weight gradients \(Linear says need_backward_dw\).*put "
                                        "-1.5 behind each -1")):
            with self.assertRaisesRegex(kind, said):
                self.made(order)

    def test_halves_of_nobody(self):
        with self.assertRaisesRegex(RuntimeError, "order has -1.5, and no module of 'Layer', 'Layer' delays"):
            self.made(ONE_BY_ONE, delayed=False)

    def test_calls_out_of_order(self):
        made = self.made([1, 1, -1, -1.5, -1, -1.5])
        x = numbers(8, WIDTH, grad=True)

        def forward(m):
            return made[2 * m + 1](made[2 * m](x))
        first, second = forward(0), forward(1)
        with self.assertRaisesRegex(RuntimeError, r"backward_dw\(\) of 'Layer' \(-2.5\) is out of order: the backward "
                                                  r"pass of microbatch 0 of 'Layer' \(-2\) is due"):
            made[1].backward_dw()
        first, second = forward(0), forward(1)
        first.sum().backward()
        with self.assertRaisesRegex(RuntimeError, r"the weight gradients of microbatch 0 of 'Layer' \(-2.5\) is due"):
            second.sum().backward()
        first, second = forward(0), forward(1)
        first.sum().backward()
        with self.assertRaisesRegex(RuntimeError, r"weight gradients of microbatch 1 of 'Layer' \(-2.5\) is out of"):
            made[3].backward_dw()

    def test_twice_and_before_and_not_at_all(self):
        net, _ = pair(Net)
        x = numbers(8, WIDTH, grad=True)
        made = reprise.make_graphed_callables(tuple(net.layers), ((x,),) * LAYERS)
        with self.assertRaisesRegex(RuntimeError, r"backward_dw\(\) of 'Layer' has nothing to do"):
            made[0].backward_dw()
        made[0](x).sum().backward()
        made[0].backward_dw()
        with self.assertRaisesRegex(RuntimeError, "are there already"):
            made[0].backward_dw()
        made[0](x).sum().backward()
        with self.assertRaisesRegex(RuntimeError, "of 'Layer' wait still"):
            made[0](x)
        made[0](x).sum().backward()
        made[0].backward_dw()

    def test_what_cannot_be_captured(self):
        class Elsewhere(Layer):
            def need_backward_dw(self):
                return True
        x = numbers(8, WIDTH, grad=True)
        with self.assertRaisesRegex(NotImplementedError, "Elsewhere says need_backward_dw.*in no wgrad_store"):
            reprise.make_graphed_callables(Elsewhere().cuda(), (x,))
        net = Layer().cuda()
        net(x).sum().backward()
        with self.assertRaisesRegex(RuntimeError, "has weight gradients that wait still, of eager calls"):
            reprise.make_graphed_callables(net, (x,))
        net.backward_dw()
        reprise.make_graphed_callables(net, (x,))

    def test_an_argument_in_an_object(self):
        """What a store has in an object of its own, no graph could be given anew."""
        class Wraps(Store):
            def put(self, tensors, function):
                x, grad = tensors
                super().put([grad], lambda grad: function(x, grad))
        net = Linear().cuda()
        net.wgrad_store = Wraps()
        with self.assertRaisesRegex(RuntimeError, "leaves a function for them, which lies where the caller's"):
            reprise.make_graphed_callables(net, (numbers(8, WIDTH, grad=True),))


if __name__ == "__main__":
    unittest.main()
