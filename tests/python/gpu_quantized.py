# SPDX-License-Identifier: MIT
"""FP8 in graphs of single callables, by what stands in for Transformer Engine. Usage: gpu_quantized.py [--install] ..."""

import os
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

LAYERS, MICROBATCHES = 2, 2
ORDER = [1, 1, -1, -1]


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = engine.Linear(WIDTH)
        self.outer = engine.Linear(WIDTH)

    def forward(self, hidden, is_first_microbatch=None):
        inner = self.inner(hidden, is_first_microbatch=is_first_microbatch)
        return hidden + self.outer(inner.tanh(), is_first_microbatch=is_first_microbatch)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))


def state_of(net):
    return [tensor.clone() for m in net.modules() if isinstance(m, engine.Linear)
            for key in engine.MOST if key in m.fp8_meta
            for tensor in (m.fp8_meta[key].scale, m.fp8_meta[key].amax_history)]


class Trains(Case):
    """Steps of two microbatches in 1F1B, beside a twin's in eager mode."""

    def setUp(self):
        super().setUp()
        engine.install()
        self.recipe = engine.DelayedScaling()
        self.nets = pair(Net)

    def tearDown(self):
        engine.uninstall()
        super().tearDown()

    def steps(self, net, call, count, lr=0.05):
        """Losses, gradients and scales of some steps."""
        engine.FP8GlobalStateManager.quantization_state.buffers = {
            m.fp8_meta["index"]: m.fp8_meta for m in net.modules()
            if isinstance(m, engine.Linear) and "index" in m.fp8_meta}
        torch.manual_seed(7)
        seen = []
        for _ in range(count):
            losses = []
            for microbatch in range(MICROBATCHES):
                hidden = numbers(8, WIDTH, grad=True)
                with engine.autocast(enabled=True, recipe=self.recipe):
                    for i in range(LAYERS):
                        hidden = call(i, microbatch, hidden)
                losses.append(hidden.square().mean())
            for loss in losses:
                loss.backward()
            with torch.no_grad():
                for param in net.parameters():
                    param.add_(param.grad, alpha=-lr)
                    seen.append(param.grad.clone())
            net.zero_grad()
            seen += [loss.detach() for loss in losses]
        return seen + state_of(net)

    def same(self, net, call, twin, count=5, caches=True, eager=True):
        def of_twin(i, microbatch, hidden):
            first = microbatch == 0 if caches else None
            return twin.layers[i](hidden, is_first_microbatch=first)
        got, want = self.steps(net, call, count), self.steps(twin, of_twin, count)
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertTrue(torch.equal(a, b))
        self.assertGreater(sum((a != 1).sum().item() for a in state_of(net)), 0)

    def make(self, net, caches=True, **options):
        names = dict(enabled=True, recipe=self.recipe, cache_quantized_params=caches)
        samples = tuple((numbers(8, WIDTH, grad=True),) for _ in range(LAYERS * MICROBATCHES))
        made = reprise.make_graphed_callables(tuple(net.layers), samples, allow_unused_input=True, _order=ORDER,
                                              _num_layers_per_chunk=[LAYERS], **{**names, **options})

        def call(i, microbatch, hidden):
            given = {"is_first_microbatch": microbatch == 0} if caches else {}
            return made[microbatch * LAYERS + i](hidden, **given)
        return made, call

    def test_as_eager(self):
        net, twin = self.nets
        with self.silent():
            self.same(net, self.make(net)[1], twin)
        self.assertEqual(engine.captures, [True, False])

    def test_without_cached_weights(self):
        net, twin = self.nets
        self.same(net, self.make(net, caches=False)[1], twin, caches=False)

    def test_weights_are_cached_between_microbatches(self):
        """By the flag on the device: the one graph quantises in the first microbatch alone."""
        net, _ = self.nets
        made, _ = self.make(net)
        linear, x = net.layers[0].inner, numbers(8, WIDTH, grad=True)
        for first, changes in ((True, True), (False, False)):
            before = linear.cached.clone()
            with torch.no_grad():
                linear.weight.add_(1.0)
            with engine.autocast(enabled=True, recipe=self.recipe):
                made[0 if first else 2](x, is_first_microbatch=first)
                if first:
                    made[1](x, is_first_microbatch=True)
            self.assertEqual(torch.equal(before, linear.cached), not changes)

    def test_scales_of_earlier_steps_stay(self):
        """Warm-up and captures leave them as they are."""
        net, twin = self.nets
        for one in self.nets:
            self.steps(one, lambda i, m, x, one=one: one.layers[i](x, is_first_microbatch=m == 0), 2)
        before = state_of(net)
        _, call = self.make(net)
        for a, b in zip(before, state_of(net), strict=True):
            self.assertTrue(torch.equal(a, b))
        self.same(net, call, twin)

    def test_older_names(self):
        engine.install(old=True)
        net, twin = self.nets
        _, call = self.make(net, enabled=None, recipe=None, cache_quantized_params=None, fp8_enabled=True,
                            fp8_recipe=self.recipe, fp8_weight_caching=True, fp8_group=None, fp8_calibrating=False)
        self.same(net, call, twin)

    def test_without_an_order(self):
        net, twin = self.nets
        made = reprise.make_graphed_callables(tuple(net.layers), ((numbers(8, WIDTH, grad=True),),) * LAYERS,
                                              enabled=(True, True), recipe=self.recipe)
        for one, call in ((net, lambda i, x: made[i](x)), (twin, lambda i, x: twin.layers[i](x))):
            engine.FP8GlobalStateManager.quantization_state.buffers = {}
            torch.manual_seed(3)
            for m in one.modules():
                getattr(m, "fp8_meta", {}).pop("index", None)
            one.seen = []
            for _ in range(4):
                x = numbers(8, WIDTH, grad=True)
                y = x
                with engine.autocast(enabled=True, recipe=self.recipe):
                    for i in range(LAYERS):
                        y = call(i, y)
                y.square().sum().backward()
                one.seen += [y.detach(), x.grad, *state_of(one)]
        for a, b in zip(net.seen, twin.seen, strict=True):
            self.assertTrue(torch.equal(a, b))

    # ---- Refused by name ----

    def test_outside_of_autocast(self):
        net, _ = self.nets
        made, call = self.make(net)
        x = numbers(8, WIDTH, grad=True)
        with self.assertRaisesRegex(RuntimeError, "'Layer' was captured for FP8.*outside of autocast"):
            made[0](x, is_first_microbatch=True)
        with engine.autocast(enabled=False), self.assertRaisesRegex(RuntimeError, "outside of autocast"):
            made[0](x, is_first_microbatch=True)
        self.same(net, call, self.nets[1])

    def test_another_recipe(self):
        made, _ = self.make(self.nets[0])
        with engine.autocast(enabled=True, recipe=engine.DelayedScaling(margin=1)):
            with self.assertRaisesRegex(RuntimeError, r"captured for the recipe .*margin=0.* of .*margin=1"):
                made[0](numbers(8, WIDTH, grad=True), is_first_microbatch=True)
        with engine.autocast(enabled=True, recipe=engine.DelayedScaling()):
            made[0](numbers(8, WIDTH, grad=True), is_first_microbatch=True)

    def test_a_stale_scale(self):
        net, _ = self.nets
        made, _ = self.make(net)
        state = net.layers[0].outer.fp8_meta["scaling_fwd"]
        state.scale = state.scale.clone()
        with engine.autocast(enabled=True, recipe=self.recipe):
            with self.assertRaisesRegex(RuntimeError, r"`outer\.scaling_fwd\.scale` has now.*stale scale"):
                made[0](numbers(8, WIDTH, grad=True), is_first_microbatch=True)

    def test_without_the_engine(self):
        engine.uninstall()
        with self.assertRaisesRegex(NotImplementedError, "transformer_engine.*cannot be imported"):
            self.make(self.nets[0])

    def test_what_does_not_fit(self):
        with self.assertRaisesRegex(ValueError, "enabled has 1 values, and there are 2"):
            self.make(self.nets[0], enabled=(True,))
        with self.assertRaisesRegex(TypeError, "enabled=True is for modules"):
            reprise.make_graphed_callables(lambda x: x, (numbers(4),), enabled=True)


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        self.calls += 1
        y = self.inner(x) * self.scale.clone()
        with torch.no_grad():
            self.scale.copy_(2.0 / y.abs().amax())
        return y


class Buffers(Case):
    """Delayed scaling without any engine: scales are buffers, and warm-up puts them back."""

    def test_buffers_are_as_they_were(self):
        net, twin = pair(Counter)
        x = numbers(8, WIDTH, grad=True)
        made = reprise.make_graphed_callables(net, (x,))
        self.assertEqual(net.calls.item(), 0)
        self.assertEqual(net.scale.item(), 1)
        for _ in range(4):
            self.assertTrue(torch.equal(made(x), twin(x)))
            self.assertTrue(torch.equal(net.scale, twin.scale))
        self.assertEqual(net.calls.item(), 4)


HOST = "/host/lib" in os.environ.get("LD_PRELOAD", "")
MOST = 448.0


class _Scaled(torch.autograd.Function):
    """A product of eight bits; gradients in bfloat16."""

    @staticmethod
    def forward(ctx, x, weight, scales):
        def eight(tensor, scale):
            return (tensor.float() * scale).clamp(-MOST, MOST).to(torch.float8_e4m3fn)
        ctx.save_for_backward(x, weight)
        return torch._scaled_mm(eight(x, scales[0]), eight(weight, scales[1]).t(), scale_a=1 / scales[0],
                                scale_b=1 / scales[1], out_dtype=torch.bfloat16)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ x, None


class Eight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.bfloat16) / 8)
        self.register_buffer("history", torch.zeros(4, 2))
        self.register_buffer("scales", torch.ones(2))

    def forward(self, x):
        with torch.no_grad():
            amax = torch.stack([x.abs().amax(), self.weight.abs().amax()]).float()
            self.history.copy_(torch.cat([amax[None], self.history[:-1]]))
            scales = self.scales.clone()
            self.scales.copy_(MOST / self.history.amax(0))
        return _Scaled.apply(x, self.weight, scales)


@unittest.skipIf(HOST or torch.cuda.get_device_capability() < (8, 9), "products of eight bits are not computed here")
class TensorCores(Case):
    """Delayed scaling by hand, its scales as buffers, on the hardware's own products of eight bits."""

    def test_as_eager(self):
        net, twin = pair(Eight)
        made = reprise.make_graphed_callables(net, (torch.randn(32, WIDTH, device="cuda", dtype=torch.bfloat16,
                                                                requires_grad=True),))
        for _ in range(6):
            x = torch.randn(32, WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            y = x.detach().requires_grad_()
            got, want = made(x), twin(y)
            got.float().square().sum().backward()
            want.float().square().sum().backward()
            for a, b in ((got, want), (x.grad, y.grad), (net.weight.grad, twin.weight.grad),
                         (net.scales, twin.scales), (net.history, twin.history)):
                self.assertTrue(torch.equal(a, b))


if __name__ == "__main__":
    unittest.main()
