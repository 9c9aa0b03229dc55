# SPDX-License-Identifier: MIT
"""Graphs of layers, as training frameworks ask for them. Usage: gpu_layers.py [--install] ..."""

import contextlib
import copy
import sys
import types
import time
import unittest
import warnings

import torch

import reprise
from layer_case import WIDTH, Case, Layer, numbers, pair

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()


class Arguments(Case):
    """What calls are written like."""

    def made(self, args=None, kwargs=None, **options):
        self.net, self.twin = pair(Layer)
        args = (numbers(8, WIDTH, grad=True),) if args is None else args
        return reprise.make_graphed_callables(self.net, args, sample_kwargs=kwargs, **options)

    def check(self, *args, **kwargs):
        with self.silent():
            self.same(self.net, self.twin, self.net, self.twin, *args, **kwargs)

    def test_by_name_and_by_position(self):
        x, scale = numbers(8, WIDTH, grad=True), numbers(WIDTH)
        self.made((x,), {"scale": scale, "power": 2})
        self.check(x, scale=scale * 2, power=2)
        self.check(x, scale * 3, power=2)
        self.check(x, power=2, scale=scale, mask=None)
        self.check(hidden=x, scale=scale, power=2)

    def test_a_call_by_name_is_replayed(self):
        """Autograd's node is that of graphs."""
        x, scale = numbers(8, WIDTH, grad=True), numbers(WIDTH)
        made = self.made((x,), {"scale": scale})
        for out, _ in (made(x, scale=scale), made(hidden=x, scale=scale), made(x, scale)):
            self.assertEqual(type(out.grad_fn).__name__, "GraphedBackward")
        self.assertNotEqual(type(self.twin(x, scale)[0].grad_fn).__name__, "GraphedBackward")

    def test_defaults_may_be_left_out_and_given(self):
        x = numbers(8, WIDTH, grad=True)
        self.made((x, None), {"power": 1})
        self.check(x)
        self.check(x, None, None)
        self.check(x, mask=None, scale=None, power=1)

    def test_another_value_is_an_error(self):
        x, scale = numbers(8, WIDTH, grad=True), numbers(WIDTH)
        made = self.made((x, scale), {"power": 2})
        with self.assertRaisesRegex(ValueError, "captured with power = 2, and is called with 3"):
            made(x, scale, power=3)
        with self.assertRaisesRegex(ValueError, "captured with power = 2, and is called with 1"):
            made(x, scale)
        with self.assertRaisesRegex(ValueError, "called with mask = .*which its sample did not have"):
            made(x, scale, torch.zeros(8, WIDTH, dtype=torch.bool, device="cuda"), power=2)
        with self.assertRaisesRegex(ValueError, "None in another place"):
            made(x, None, power=2)
        with self.assertRaisesRegex(ValueError, "called with extra = 7"):
            made(x, scale, power=2, extra=7)
        with self.assertRaisesRegex(TypeError, "missing a required argument"):
            made(scale=scale, power=2)
        self.check(x, scale, power=2)

    def test_more_by_name(self):
        x = numbers(8, WIDTH, grad=True)
        made = self.made((x,), {"extra": "a text"})
        self.assertEqual(made(x, extra="a text")[1], "a text")
        with self.assertRaisesRegex(ValueError, "extra"):
            made(x, extra="another")
        with self.assertRaisesRegex(ValueError, "captured with extra, and is called without it"):
            made(x)

    def test_objects_are_refused(self):
        with self.assertRaisesRegex(TypeError, r"holds a SimpleNamespace \(extra\)"):
            self.made(kwargs={"extra": types.SimpleNamespace()})

    def test_functions_take_names_too(self):
        def fn(x, *rest, by=2.0, **more):
            for other in rest:
                x = x + other
            return (x * by + more["shift"],)
        x, y = numbers(4, 4), numbers(4, 4)
        made = reprise.make_graphed_callables(fn, (x, y), sample_kwargs={"shift": y, "by": 3.0})
        with self.silent():
            self.assertTrue(torch.equal(made(y, x, by=3.0, shift=x)[0], fn(y, x, by=3.0, shift=x)[0]))
        with self.assertRaisesRegex(ValueError, "called with by = |captured with by = 3.0"):
            made(y, x, shift=x)


class Returns(torch.nn.Module):
    """A parameter or a buffer beside what it computes, as layers do whose bias others add."""

    def __init__(self, form):
        super().__init__()
        self.inner, self.form = torch.nn.Linear(WIDTH, WIDTH), form
        self.bias = torch.nn.Parameter(torch.randn(WIDTH))
        self.register_buffer("scale", torch.full((WIDTH,), 2.0))

    def forward(self, x):
        y = self.inner(x).tanh()
        return {"behind": (y, self.bias), "before": (self.bias, y), "buffer": (self.scale, y),
                "used": (y * self.bias, None, self.bias)}[self.form]


class Themselves(Case):
    def check(self, form, hooks):
        def make():
            net, twin = pair(lambda: Returns(form))
            if hooks:
                for one in (net, twin):
                    one.inner.weight.register_hook(lambda grad: grad * 2)
                    one.bias.register_hook(lambda grad: grad * 3)
            return net, twin
        for graphed in (reprise.graphed,
                        lambda net: reprise.make_graphed_callables(net, (numbers(8, WIDTH),), allow_unused_input=True)):
            net, twin = make()
            call = graphed(net)
            for _ in range(4):
                x = numbers(8, WIDTH)
                for one, fn in ((net, call), (twin, twin)):
                    one.zero_grad()
                    out = [o for o in fn(x) if o is not None]
                    if form != "buffer":
                        self.assertTrue(any(o is one.bias for o in out))
                    sum((o * (i + 2)).square().sum() for i, o in enumerate(out)).backward()
                for a, b in zip(net.parameters(), twin.parameters()):
                    self.assertTrue(a.grad is b.grad or torch.equal(a.grad, b.grad), form)

    def test_parameters_that_are_returned(self):
        for hooks in (False, True):
            for form in ("behind", "before", "used"):
                self.check(form, hooks)

    def test_buffers_that_are_returned(self):
        self.check("buffer", False)


class Names(Case):
    """What Transformer Engine's function takes."""

    def test_names_of_then_and_now(self):
        net, twin = pair(Layer)
        x = numbers(8, WIDTH, grad=True)
        made = reprise.make_graphed_callables(
            modules=net, sample_args=(x,), num_warmup_iters=1, sample_kwargs={"power": 2}, fp8_enabled=False,
            fp8_calibrating=False, fp8_recipe=None, fp8_group=None, fp8_weight_caching=True, pool=None,
            retain_graph_in_backward=True, _reuse_graph_input_output_buffers=False, clone_param_grads_on_return=True)
        with self.silent():
            self.same(lambda *a: made(*a, power=2, is_first_microbatch=True),
                      lambda *a: twin(*a, power=2), net, twin, x)
        with self.assertRaisesRegex(ValueError, "is_first_microbatch has to be given"):
            made(x, power=2)

    def test_the_fifth_argument_of_either(self):
        x, net = numbers(8, WIDTH, grad=True), Layer().cuda()
        made = reprise.make_graphed_callables(net, (x,), 1, False, {"power": 3})
        with self.assertRaisesRegex(ValueError, "power = 3"):
            made(x, power=2)

    def test_low_precision_is_refused_by_name(self):
        x = numbers(8, WIDTH)
        for options in ({"enabled": True}, {"fp8_enabled": (True,)}, {"calibrating": True}):
            with self.assertRaisesRegex(NotImplementedError, r"reprise\.graphed\(step"):
                reprise.make_graphed_callables(Layer().cuda(), (x,), **options)
        with self.assertRaisesRegex(ValueError, "old name of enabled"):
            reprise.make_graphed_callables(Layer().cuda(), (x,), enabled=False, fp8_enabled=False)
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'fp8'"):
            reprise.make_graphed_callables(Layer().cuda(), (x,), fp8=True)

    def test_hooks_run_around_captures(self):
        seen = []

        def note(what):
            def hook(module):
                self.assertFalse(torch.cuda.is_current_stream_capturing())
                seen.append(what)
            return hook
        names = ("forward_pre_hooks", "forward_hooks", "backward_pre_hooks", "backward_hooks")
        net = Layer().cuda()
        reprise.make_graphed_callables(
            (net,), ((numbers(8, WIDTH, grad=True),),), 2, pre_warmup_hook=lambda: seen.append("before"),
            post_warmup_hook=lambda: seen.append("behind"),
            capture_time_hooks=[{name: {0: note(name)} for name in names}])
        self.assertEqual(seen, ["before", *names, *names, "behind", *names])
        for hooks, said in (([{"forward": {}}], "'forward'"), ([], "0 entries"),
                            ([{"forward_hooks": {0: lambda module: 1}}], "returned a value")):
            with self.assertRaisesRegex((ValueError, RuntimeError), said):
                reprise.make_graphed_callables((Layer().cuda(),), ((numbers(8, WIDTH),),),
                                               capture_time_hooks=hooks)

    def test_a_stream_and_an_event_of_a_call(self):
        net, twin = pair(Layer)
        x = numbers(8, WIDTH, grad=True)
        made = reprise.make_graphed_callables(net, (x,))
        stream = torch.cuda.Stream()
        for event in (None, torch.cuda.Event()):
            for _ in range(3):
                x = numbers(8, WIDTH, grad=True)
                with self.silent():
                    self.same(lambda *a: made(*a, cuda_graph_stream=stream, cuda_graph_event=event),
                              twin, net, twin, x)

    def test_a_stream_waits(self):
        """For what the current one was given before, and that for it."""
        made = reprise.make_graphed_callables(lambda x: x * 2, (numbers(1 << 16),))
        stream = torch.cuda.Stream()
        for _ in range(20):
            x = torch.zeros(1 << 16, device="cuda")
            for i in range(20):
                x += 1
            y = made(x, cuda_graph_stream=stream)
            x.zero_()
            self.assertEqual(y.sum().item(), 40 << 16)

    def test_reset(self):
        pool = reprise.Pool("sequence")
        nets = (Layer().cuda(), torch.nn.Linear(WIDTH, WIDTH).cuda())
        x = numbers(8, WIDTH, grad=True)
        made = reprise.make_graphed_callables(nets, ((x,), (x,)), pool=pool)
        self.assertEqual(pool.info()["graphs"], 4)
        made[0].backward_dw()
        for one in made:
            one.reset()
        for _ in range(100):  # a thread of autograd's may still have the last gradients of the captures
            if pool.info()["graphs"] == 0:
                break
            time.sleep(0.02)
        self.assertEqual(pool.info()["graphs"], 0)
        with self.assertRaisesRegex(RuntimeError, "was reset"):
            made[0](x)


class Else(unittest.TestCase):
    """Calls that find something else than the capture did are eager, and say so."""

    def compare(self, change, around=contextlib.nullcontext):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)).cuda()
        net[0].requires_grad_(False)
        twin, x = copy.deepcopy(net), torch.randn(4, 8, device="cuda")
        with around():
            made = reprise.make_graphed_callables(net, (x,))
            for call in (made, twin):
                call(x).square().sum().backward()
        found = []
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for call, module in ((made, net), (twin, twin)):
                change(module)
                module.zero_grad()
                out = call(x)
                out.square().sum().backward()
                found.append((out.dtype, out.tolist(), [p.grad is None or p.grad.tolist() for p in module.parameters()]))
        self.assertTrue(found[0] == found[1])
        return [str(w.message) for w in told if "reprise" in str(w.message)]

    def test_a_layer_that_is_thawed(self):
        told, = self.compare(lambda net: net.requires_grad_())
        self.assertIn("which parameters want gradients", told)

    def test_autocast_that_it_was_made_in(self):
        told, = self.compare(lambda net: None, lambda: torch.autocast("cuda", torch.bfloat16, cache_enabled=False))
        self.assertIn("autocast", told)

    def test_pools_of_other_kinds_are_refused(self):
        net, x = torch.nn.Linear(8, 8).cuda(), torch.randn(4, 8, device="cuda")
        for kind in ("alternatives", "concurrent"):
            with self.assertRaisesRegex(ValueError, f"Pool of {kind}"):
                reprise.make_graphed_callables(net, (x,), pool=reprise.Pool(kind))
        made = reprise.make_graphed_callables(net, (x,), pool=reprise.Pool("sequence"))
        self.assertTrue(torch.equal(made(x), torch.nn.functional.linear(x, net.weight, net.bias)))


class Chunks(Case):
    """Orders of chunks of several layers, and samples of each pass."""

    ORDER = [1, 2, 1, 2, -2, -1, -2, -1]

    def run_order(self, calls, passes, sizes):
        """Passes of two chunks of two layers; calls: by (layer, microbatch); sizes: of each microbatch."""
        torch.manual_seed(9)
        turn, back, waiting, seen = [0, 0], [0, 0], {}, []
        for number in passes:
            chunk = abs(number) - 1
            if number > 0:
                m = turn[chunk]
                turn[chunk] += 1
                x = y = numbers(sizes[m], WIDTH, grad=True)
                for layer in (2 * chunk, 2 * chunk + 1):
                    y = calls(layer, m)(y, power=2)[0]
                waiting[chunk, m] = (x, y)
                seen.append(y.detach())
            else:
                x, y = waiting.pop((chunk, back[chunk]))
                back[chunk] += 1
                y.square().sum().backward()
                seen.append(x.grad)
        return seen

    def check(self, calls, nets, twins, sizes=(8, 8)):
        for _ in range(3):
            for net in (*nets, *twins):
                net.zero_grad()
            with self.silent():
                got = self.run_order(calls, self.ORDER, sizes)
            want = self.run_order(lambda layer, m: twins[layer], self.ORDER, sizes)
            for a, b in zip(got, want):
                self.assertTrue(torch.equal(a, b))
            for net, twin in zip(nets, twins):
                for a, b in zip(net.parameters(), twin.parameters()):
                    self.assertTrue(torch.equal(a.grad, b.grad))

    def nets(self):
        made = [pair(lambda: Layer(0.2)) for _ in range(4)]
        return [a for a, _ in made], [b for _, b in made]

    def test_as_transformer_engine_returns_them(self):
        nets, twins = self.nets()
        samples = tuple((numbers(8, WIDTH, grad=True),) for _ in range(8))
        made = reprise.make_graphed_callables(
            tuple(nets), samples, sample_kwargs=({"power": 2},) * 8, _order=self.ORDER, _num_layers_per_chunk=[2, 2],
            _reuse_graph_input_output_buffers=True)
        self.assertEqual(len(made), 8)
        self.check(lambda layer, m: made[4 * (layer // 2) + 2 * m + layer % 2], nets, twins)
        self.assertNotIn("forward", nets[0].__dict__)
        with self.assertRaisesRegex(RuntimeError, "microbatch 1 of 'Layer'.* is out of order"):
            made[2](samples[0][0], power=2)
        for one in made:
            one.reset()

    def test_by_module_and_in_chunks(self):
        nets, twins = self.nets()
        sample = (numbers(8, WIDTH, grad=True),)
        made = reprise.make_graphed_callables(tuple(nets), (sample,) * 4, sample_kwargs=({"power": 2},) * 4,
                                              order=self.ORDER, num_layers_per_chunk=2)
        self.check(lambda layer, m: made[layer], nets, twins)

    def test_samples_of_other_shapes(self):
        nets, twins = self.nets()
        samples = tuple((numbers(size, WIDTH, grad=True),) for size in (8, 8, 12, 12, 8, 8, 12, 12))
        made = reprise.make_graphed_callables(tuple(nets), samples, sample_kwargs=({"power": 2},) * 8,
                                              order=self.ORDER, num_layers_per_chunk=2)
        self.check(lambda layer, m: made[layer], nets, twins, (8, 12))
        with self.assertRaisesRegex(ValueError, "other shapes"):
            made[0](samples[2][0], power=2)
        self.check(lambda layer, m: made[layer], nets, twins, (8, 12))

    def test_what_cannot_be_is_refused(self):
        nets, _ = self.nets()
        sample = (numbers(8, WIDTH),)
        for options, said in (
                ({"order": self.ORDER, "num_layers_per_chunk": 3}, "num_layers_per_chunk is 3, and there are 4"),
                ({"order": self.ORDER, "num_layers_per_chunk": [1, 2]}, "has 3 layers, and there are 4"),
                ({"_order": [1, 2, 3, -3, -2, -1]}, "has 3 chunks"),
                ({"num_layers_per_chunk": 2}, "and no order"),
                ({"order": self.ORDER, "_order": self.ORDER}, "both are given"),
                ({"order": [1, -1, 1], "num_layers_per_chunk": 4}, "2 forward and 1 backward"),
                ({"sample_kwargs": ({},)}, "sample_kwargs 1")):
            with self.assertRaisesRegex(ValueError, said):
                reprise.make_graphed_callables(tuple(nets), (sample,) * 4, **options)
        with self.assertRaisesRegex(ValueError, "4 callables and 3 sets of sample arguments"):
            reprise.make_graphed_callables(tuple(nets), (sample,) * 3)


if __name__ == "__main__":
    unittest.main()
