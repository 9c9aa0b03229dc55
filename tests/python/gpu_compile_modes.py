# SPDX-License-Identifier: MIT
"""Modes, options, caches and cuts of torch.compile through graphs of Reprise, under install() and without it:
usage: gpu_compile_modes.py [--install] ..."""

import copy
import ctypes
import importlib.util
import threading
import unittest
import warnings

import torch
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

import reprise
from inductor_case import INDUCTOR, INSTALL, LITE, Served, each_of_inductor, each_way, net_of
from reprise._call.graphed import every_graphed
from reprise._call.policy import Judged
from reprise._compile.partition import Partition


def through_host(x):
    return x + x.cpu().sum().item()


@torch.library.custom_op("reprise_tests::unsafe", mutates_args=(), tags=(torch._C.Tag.cudagraph_unsafe,))
def unsafe(x: torch.Tensor) -> torch.Tensor:
    return x * x.sum().item()  # waits for the device


@unsafe.register_fake
def _(x):
    return torch.empty_like(x)


class Layer(torch.nn.Linear):
    """A frame of its own to compilers, which leave a loop with a break alone."""

    def forward(self, x):
        return torch.nn.functional.gelu(super().forward(x))


class Dropping(torch.nn.Module):
    """Leaves layers out, as encoders of BART's kind do in training; asks: what else it does with a draw."""

    def __init__(self, share, asks):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(32, 32) for _ in range(3))
        self.share, self.asks = share, asks

    def forward(self, x):
        for layer in self.layers:
            drawn = torch.rand([])
            if drawn < self.share:
                continue
            x = layer(x) * self.asks(drawn)
            torch._dynamo.graph_break()
        return x


class Modes(Served):
    def run_training(self, compiled, net, name, steps=5):
        twin = copy.deepcopy(net)
        for _ in range(steps):
            x = torch.randn(4, 32, device="cuda")
            for module, call in ((net, compiled), (twin, twin)):
                module.zero_grad()
                call(x).square().mean().backward()
            for a, b in zip(net.parameters(), twin.parameters()):
                self.close(a.grad, b.grad, name)

    def ways_used(self):
        """By way (forward ..): how many graphs were replayed."""
        found = {}
        for made in self.new_graphs():
            self.assertEqual(made.failures(), [])
            for shape in made.shapes():
                way = made.name.split()[-1]
                found[way] = found.get(way, 0) + (shape["replays"] > 0)
        return found

    @unittest.skipUnless(INDUCTOR, "no Inductor")
    def test_modes(self):
        """Each mode that asks for graphs has them, in training too; the others have none."""
        modes = [("max-autotune", 1), ("max-autotune-no-cudagraphs", 0), ("default", 0), ("reduce-overhead", 1)]
        for mode, count in modes if INSTALL else ():
            with self.subTest(mode):
                self.forget()
                self.before = set(map(id, every_graphed()))
                net = net_of()
                self.run_training(torch.compile(net, mode=mode), net, mode)
                self.assertEqual(self.ways_used(), {"forward": 1, "backward": 1} if count else {})
        for options in ({"mode": "max-autotune"}, {"options": {"epilogue_fusion": False}},
                        {"fullgraph": True}, {"dynamic": True}):
            with self.subTest(str(options)):
                self.forget()
                self.before = set(map(id, every_graphed()))
                net = net_of()
                self.run_training(reprise.compile(net, **options), net, "reprise")
                self.assertEqual(self.ways_used(), {"forward": 1, "backward": 1})

    @unittest.skipUnless(INDUCTOR, "no Inductor")
    def test_by_what_is_measured(self):
        self.forget()
        self.before = set(map(id, every_graphed()))
        net = net_of()
        self.run_training(reprise.compile(net, options={"policy": "auto"}), net, "reprise", 40)
        choices = [c for made in self.new_graphs() for c in made.choices()]
        self.assertEqual(len(choices), 2)
        self.assertTrue(all(c["judged_calls"] > 30 for c in choices), choices)
        self.forget()

    def test_backward_passes_behind_draws_on_the_host(self):
        """Attention that drops out leaves the places of its random numbers on the CPU where it runs eagerly, new ones
        in each call, and on the GPU where a graph does: passes behind the former keep the latter from no graph."""
        self.before = set(map(id, every_graphed()))
        piece = Partition(torch, lambda inputs: [inputs[0] * 2], (), (), 0, True, "test_of_draws backward")
        x = torch.ones(4, device="cuda")
        for i in range(20):
            self.assertEqual(piece([x + i, torch.tensor(i)])[0].tolist(), [2.0 + 2 * i] * 4)
        for i in range(3):
            self.assertEqual(piece([x + i, torch.tensor(i, device="cuda")])[0].tolist(), [2.0 + 2 * i] * 4)
        made = self.new_graphs()
        self.assertEqual([text for one in made for text in one.failures()], [])
        self.assertEqual([shape["replays"] for one in made for shape in one.shapes()], [3])

    def test_attention_goes_the_way_of_its_forward_pass(self):
        """Its backward pass takes what it is given for addresses on the GPU in captures, and on the CPU else."""
        self.before = set(map(id, every_graphed()))
        wrong = []

        def model(inputs):
            x, seed, step = inputs
            if seed.is_cuda != torch.cuda.is_current_stream_capturing():
                wrong.append(seed)
            self.attention_backward  # noqa: B018 (the name)
            return [x * 2 + step]
        self.attention_backward = None
        x, step = torch.ones(4, device="cuda"), torch.ones((), device="cuda", dtype=torch.int32)
        for policy in ("always", "auto"):
            piece = Partition(torch, model, (), (), 0, True, "test_of_attention backward", policy)
            for seeds in (["cuda"] * 3, ["cpu"] * 4, ["cuda"] * 40, ["cpu", "cuda"] * 4):
                for device in seeds:  # the same seed each time, as behind manual_seed
                    result, = piece([x, torch.tensor(7, device=device), step])
                    self.assertEqual(result.tolist(), [3.0] * 4)
        self.assertEqual(wrong, [])
        self.assertGreaterEqual(min(shape["replays"] for one in self.new_graphs() for shape in one.shapes()), 40)

    @each_of_inductor
    def test_draws_around_compiled_code(self, name, way):
        """One graph has all compiled pieces of a step where nothing hangs on what is drawn between them; calls draw
        it again. Compiled code is not told of: it gets no such number."""
        asks = {"nothing": lambda drawn: 1.0, "operand": lambda drawn: drawn, "list": lambda drawn: drawn.tolist(),
                "moved": lambda drawn: drawn.cuda(), "computed": lambda drawn: float(drawn + 1),
                "asked otherwise": lambda drawn: 2.0 if 0.5 > drawn else 1.0}
        for share, what in [(0.0, what) for what in asks] + [(0.5, "nothing")]:
            with self.subTest(share=share, asks=what), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.forget()
                torch.manual_seed(0)
                net = Dropping(share, asks[what]).cuda()
                twin = copy.deepcopy(net)
                inputs, found = torch.randn(6, 4, 32, device="cuda"), []

                def step(x):
                    net.zero_grad()
                    loss = (net(x).square().sum() + net.layers[0].bias.sum())
                    loss.backward()
                    return loss
                graphed = reprise.graphed(way(step))
                torch.manual_seed(5)
                for x in inputs:
                    found.append((graphed(x).clone(), net.layers[0].bias.grad.clone(), torch.get_rng_state()))
                torch.manual_seed(5)
                for x, (loss, gradient, state) in zip(inputs, found):
                    twin.zero_grad()
                    wanted = twin(x).square().sum() + twin.layers[0].bias.sum()
                    wanted.backward()
                    self.close(loss, wanted, name)
                    self.close(gradient, twin.layers[0].bias.grad, name)
                    self.assertTrue(torch.equal(state, torch.get_rng_state()))
                replays = [shape["replays"] for shape in graphed.shapes()]
                self.assertEqual(replays, [5] if (share, what) == (0.0, "nothing") else [], graphed.failures())
                self.assertEqual(bool(graphed.failures()), not replays)

    def test_draws_around_a_compiled_net(self):
        """It runs compiled in captures of a step around it; where that follows too little it does not."""
        for what, asks in (("nothing", lambda drawn: 1.0), ("moved", lambda drawn: drawn.cuda())):
            torch._dynamo.reset()
            net, calls = Dropping(0.0, asks).cuda(), []

            def counting(module, inputs):
                return lambda *args: calls.append(torch.cuda.is_current_stream_capturing()) or module(*args)
            for layer in net.layers:
                layer.compile(backend=counting)
            step = reprise.graphed(net)
            x = torch.randn(4, 32, device="cuda")
            with self.subTest(asks=what), torch.no_grad():
                for i in range(6):
                    torch.manual_seed(i)
                    got = step(x + i)
                    torch.manual_seed(i)
                    self.assertTrue(torch.equal(got, net(x + i)))
                self.assertEqual([shape["replays"] for shape in step.shapes()], [5], step.failures())
                if what == "nothing":
                    self.assertGreaterEqual(sum(calls), 6)  # three layers, twice

    def test_compiled_code_reads_a_draw(self):
        """What is compiled for the CPU takes an address, and reads there. No mode is told of that."""
        torch._dynamo.reset()
        read = []

        def by_address(module, inputs):
            def run(*args):
                for one in args:
                    if isinstance(one, torch.Tensor) and one.device.type == "cpu":
                        read.append(ctypes.c_float.from_address(one.data_ptr()).value)
                return module(*args)
            return run
        net = Dropping(0.0, torch.compile(lambda drawn: drawn * 2, backend=by_address)).cuda()
        step, x = reprise.graphed(net), torch.randn(4, 32, device="cuda")
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i in range(6):
                torch.manual_seed(i)
                got = step(x + i)
                torch.manual_seed(i)
                self.assertTrue(torch.equal(got, net(x + i)))
        self.assertGreaterEqual(len(read), 3 * 6)

    def test_calls_in_which_others_are_captured_tell_nothing(self):
        class Choice:
            ended = []

            def end(self, turn, worked):
                self.ended.append(worked)
        inner = reprise.graphed(lambda x: x + 1)
        x = torch.ones(4, device="cuda")
        inner(x)
        for _ in range(2):
            Judged._measured(Choice(), (0, 1), lambda: inner(x))
        self.assertEqual(Choice.ended, [False, True])

    @unittest.skipUnless(INDUCTOR, "no Inductor")
    def test_unknown_options_are_refused(self):
        for options in ({"no_such_option": 1}, {"policy": "no_such"}):
            with self.assertRaises(Exception) as caught:
                self.forget()
                reprise.compile(net_of(), options=options)(torch.randn(4, 32, device="cuda"))
            self.assertIn("no_such", str(caught.exception))
        self.forget()

    @each_of_inductor
    def test_caches(self, name, way):
        """What comes out of a cache of compiled functions has graphs of its own."""
        from torch._functorch import config as functorch
        from torch._inductor import config
        for fx, whole in ((False, False), (True, False), (True, True)):
            with (self.subTest(fx=fx, whole=whole), torch._inductor.utils.fresh_cache(),
                  config.patch(fx_graph_cache=fx), functorch.patch(enable_autograd_cache=whole)):
                for attempt in range(2):
                    self.forget()
                    counters.clear()
                    self.before = set(map(id, every_graphed()))
                    net = net_of()
                    self.run_training(way(net), net, name)
                    self.assertEqual(self.ways_used(), {"forward": 1, "backward": 1})
                    hits = (counters["inductor"]["fxgraph_cache_hit"],
                            counters["aot_autograd"]["autograd_cache_hit"])
                    if attempt:
                        self.assertEqual((hits[0] > 0 or hits[1] > 0, hits[1] > 0), (fx, whole))

    @each_way
    def test_several_regions_in_one_step(self, name, way):
        """Their activations are alive together, and one runs twice."""
        nets = [net_of() for _ in range(3)]
        twins = copy.deepcopy(nets)
        regions = [way(net) for net in nets]

        def step(calls, x):
            x = calls[1](calls[0](x))
            return calls[2](calls[1](x.relu() + 1)).square().mean()
        for _ in range(5):
            x = torch.randn(4, 32, device="cuda")
            for calls, modules in ((regions, nets), (twins, twins)):
                for module in modules:
                    module.zero_grad()
                step(calls, x).backward()
            for net, twin in zip(nets, twins):
                for a, b in zip(net.parameters(), twin.parameters()):
                    self.close(a.grad, b.grad, name)
        self.assertGreater(self.ways_used().get("backward", 0), 0)

    @each_way
    def test_breaks(self, name, way):
        """Each piece between the breaks has graphs, in both directions."""
        class Broken(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = net_of(), net_of()

            def forward(self, x):
                x = self.first(x)
                torch._dynamo.graph_break()
                return self.second(x)
        net = Broken()
        self.run_training(way(net), net, name)
        self.assertEqual(self.ways_used(), {"forward": 2, "backward": 2})

    @each_way
    def test_checkpoints(self, name, way):
        net = net_of()
        inner = copy.deepcopy(net)

        class Again(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                return checkpoint(self.inner, x.sin(), use_reentrant=False)
        net = Again()
        self.run_training(way(net), net, name)
        self.assertEqual(self.ways_used(), {"forward": 1, "backward": 1})

    @each_way
    def test_a_checkpoint_around_what_is_compiled(self, name, way):
        """The forward pass runs again within the backward pass, on a thread of autograd's."""
        net = net_of()
        compiled = way(net)
        for reentrant in (False, True):
            with self.subTest(reentrant=reentrant):
                def call(x):
                    return checkpoint(compiled, x.requires_grad_(), use_reentrant=reentrant)
                twin = copy.deepcopy(net)
                for _ in range(5):
                    x = torch.randn(4, 32, device="cuda")
                    for module, run in ((net, call), (twin, twin)):
                        module.zero_grad()
                        run(x.clone()).square().mean().backward()
                    for a, b in zip(net.parameters(), twin.parameters()):
                        self.close(a.grad, b.grad, name)

    @each_way
    def test_backward_passes_on_several_threads(self, name, way):
        """Each thread has a net of its own; autograd's thread of the device is one for all."""
        nets = [net_of() for _ in range(3)]
        calls, wrong = [way(net) for net in nets], []
        x = torch.randn(4, 32, device="cuda")
        for call in calls:
            call(x).sum().backward()

        def run(net, call):
            try:
                twin = copy.deepcopy(net)
                for _ in range(5):
                    net.zero_grad()
                    twin.zero_grad()
                    call(x).square().mean().backward()
                    twin(x).square().mean().backward()
                    for a, b in zip(net.parameters(), twin.parameters()):
                        torch.testing.assert_close(a.grad, b.grad, rtol=2e-3, atol=2e-3)
            except Exception as error:
                wrong.append(error)
        threads = [threading.Thread(target=run, args=pair) for pair in zip(nets, calls)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Cuts(Served):
    """What Inductor's graph partition leaves outside."""

    def compare(self, way, fn, name, graphs, calls=5):
        compiled = way(fn)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i in range(calls):
                x = torch.full((8,), float(i + 1), device="cuda")
                got, wanted = compiled(x), fn(x)
                for a, b in zip(got, wanted) if isinstance(wanted, tuple) else ((got, wanted),):
                    self.close(a, b, name)
        if graphs is None:
            return
        replayed = [shape for made in self.new_graphs() for shape in made.shapes() if shape["replays"]]
        self.assertEqual([f for made in self.new_graphs() for f in made.failures()], [])
        self.assertEqual(len(replayed), graphs, [(m.name, m.shapes()) for m in self.new_graphs()])

    @each_of_inductor
    def test_values_on_the_cpu(self, name, way):
        """A tensor on the host between two pieces, and as a result. With LITE copies are operators like others,
        which Inductor does not cut at."""
        def fn(x):
            y = (x * 2).relu() + 1
            on_cpu = y.cpu() * 3
            return on_cpu.cuda() + y.sin(), on_cpu
        self.compare(way, fn, name, None if LITE else 2)

    @each_of_inductor
    def test_scalars_on_the_cpu(self, name, way):
        scale = torch.tensor(3.0)

        def fn(x):
            return (x * scale).sin() + 1
        compiled = way(fn)
        with torch.no_grad():
            for i in range(6):
                scale.fill_(i + 1.0)
                x = torch.full((8,), float(i + 1), device="cuda")
                self.close(compiled(x), fn(x), name)

    @each_of_inductor
    def test_a_number_on_the_cpu_takes_the_fast_path(self, name, way):
        def fn(x, scale):
            return (x * scale).sin() + 1
        compiled, scale = way(fn), torch.tensor(0.3)
        with torch.no_grad():
            for value in (0.3, 0.7, 0.3):
                scale.fill_(value)
                for i in range(4):
                    x = torch.full((8,), float(i + 1), device="cuda")
                    self.close(compiled(x, scale), fn(x, scale), name)
            made, = (graphed for graphed in self.new_graphs() if graphed.shapes())
            self.assertEqual(made.failures(), [])
            made._key = None  # what calls need that the fast path does not take
            self.close(compiled(x, scale), fn(x, scale), name)
            del made._key
            scale.fill_(0.7)
            self.close(compiled(x, scale), fn(x, scale), name)

    @each_of_inductor
    def test_unsafe_operators(self, name, way):
        """Operators of that tag run between two graphs."""
        if torch.__version__ < "2.10":
            self.skipTest("the tag cuts from 2.10 on")
        self.compare(way, lambda x: unsafe((x * 2).sin()).cos() + 1, name, 2)

    @each_of_inductor
    def test_a_cut_in_the_backward_pass(self, name, way):
        class Through(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                return gradient.cpu().cuda() * 2
        compiled = way(lambda x: Through.apply(x.sin()).cos().sum())
        for i in range(5):
            x = torch.full((8,), float(i), device="cuda", requires_grad=True)
            twin = x.detach().clone().requires_grad_()
            compiled(x).backward()
            Through.apply(twin.sin()).cos().sum().backward()
            self.close(x.grad, twin.grad, name)

    @each_of_inductor
    def test_written_on_both_sides_of_a_cut(self, name, way):
        def fn(x, state):
            state.add_(x)
            y = state.cpu().cuda()
            state.mul_(2)
            return y + state
        compiled = way(fn)
        mine, theirs = (torch.zeros(8, device="cuda") for _ in range(2))
        with torch.no_grad():
            for i in range(5):
                x = torch.full((8,), i + 1.0, device="cuda")
                self.close(compiled(x, mine), fn(x, theirs), name)
                self.close(mine, theirs, name)

    @each_of_inductor
    def test_arguments_anywhere_on_both_sides_of_a_cut(self, name, way):
        def fn(x):
            y = (x.sin() + 1).cpu().cuda()
            x.mul_(2)
            return y * x
        compiled = way(fn)
        base, twin = (torch.ones(256, device="cuda") for _ in range(2))
        with torch.no_grad():
            for begin in (0, 1, 3, 4, 1, 2, 0):
                got = compiled(base[begin:begin + 32])
                self.close(got, fn(twin[begin:begin + 32]), name)
                self.close(base, twin, name)

    @each_of_inductor
    def test_flex_attention(self, name, way):
        if LITE:
            self.skipTest("FlexAttention is a template of Triton's")
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        causal = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device="cuda")

        def fn(q, k, v):
            return flex_attention(q, k, v, block_mask=causal).sin()
        compiled = way(fn)
        for _ in range(5):
            inputs = [torch.randn(2, 4, 256, 64, device="cuda", requires_grad=True) for _ in range(3)]
            got, wanted = compiled(*inputs), fn(*inputs)
            torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)
            for a, b in zip(torch.autograd.grad(got.sum(), inputs), torch.autograd.grad(wanted.sum(), inputs)):
                torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)
        self.assertTrue(any(shape["replays"] for made in self.new_graphs() for shape in made.shapes()))

    @each_of_inductor
    def test_kernels_of_triton(self, name, way):
        if importlib.util.find_spec("triton") is None:
            self.skipTest("no Triton")
        import triton_kernels
        self.compare(way, lambda x: triton_kernels.add(x.sin(), x) * 2, name, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
