# SPDX-License-Identifier: MIT
"""torch.compile through graphs of Reprise, under install() and without it: usage: gpu_compile.py
[--install] ...

Under install() Inductor's mode "reduce-overhead" and the backend "cudagraphs" are served; without it what is
compiled by reprise.compile. The backend "cudagraphs" asks for graphs in the same way, and without install()
these tests have it served as well."""

import contextlib
import copy
import sys
import threading
import time
import types
import unittest
import warnings
import weakref
from unittest import mock

import torch

import reprise
from inductor_case import INDUCTOR, INSTALL, Served, each_way, net_of
from reprise._base import torch_private
from reprise._call.graphed import every_graphed
from reprise._compile import partition, trees


class Ways(Served):
    @each_way
    def test_inference(self, name, way):
        net, kept = net_of(), []
        compiled = way(net)
        with torch.no_grad():
            for i in range(6):
                x = torch.randn(4, 32, device="cuda")
                kept.append((compiled(x), net(x)))
        for got, wanted in kept:  # results of earlier calls stay as they are
            self.close(got, wanted, name)
        self.graphs(("inference", [5]))

    @each_way
    def test_training(self, name, way):
        net = net_of(torch.nn.LayerNorm(64).cuda())
        twin = copy.deepcopy(net)
        compiled = way(net)
        steps = [(m, torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)) for m in (net, twin)]
        for i in range(8):
            x, losses = torch.randn(4, 32, device="cuda"), []
            for module, optimizer in steps:
                loss = (compiled if module is net else module)(x).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.detach())
            self.close(*losses, name)
        for a, b in zip(net.parameters(), twin.parameters()):
            self.close(a, b, name)
        self.graphs(("forward", [7]), ("backward", [7]))

    @each_way
    def test_several_steps_of_activations_are_alive_at_once(self, name, way):
        net = net_of()
        compiled = way(net)
        for _ in range(4):
            inputs = [torch.randn(4, 32, device="cuda") for _ in range(3)]
            losses = [compiled(x).square().sum() for x in inputs]  # trees would write over the first
            got = torch.autograd.grad(sum(losses), list(net.parameters()))
            wanted = torch.autograd.grad(sum(net(x).square().sum() for x in inputs),
                                         list(net.parameters()))
            for a, b in zip(got, wanted):
                self.close(a, b, name)

    @each_way
    def test_shapes_share_a_pool(self, name, way):
        net = net_of()
        compiled = way(net, dynamic=False)
        with torch.no_grad():
            for _ in range(3):
                for rows in (1, 2, 4, 7):
                    x = torch.randn(rows, 32, device="cuda")
                    self.close(compiled(x), net(x), name)
        pools = {id(made.pool.native) for made in self.new_graphs() if made.shapes()}
        self.assertEqual(len(pools), 1)
        self.graphs(("inference", [2, 2, 2, 2]))

    @each_way
    def test_sizes_that_change(self, name, way):
        net = net_of()
        compiled = way(net, dynamic=True)
        with torch.no_grad():
            for _ in range(3):
                for rows in (3, 5, 6):
                    x = torch.randn(rows, 32, device="cuda")
                    self.close(compiled(x), net(x), name)
        self.assertEqual([m.failures() for m in self.new_graphs() if m.failures()], [])

    @each_way
    def test_parameters_that_move(self, name, way):
        net = net_of()
        compiled = way(net)
        with torch.no_grad():
            for i in range(12):
                if i % 2:
                    net[0].weight.data = torch.randn(64, 32, device="cuda")
                if i == 7:
                    net[2].bias = torch.nn.Parameter(torch.randn(32, device="cuda"))
                if i == 9:
                    net[0].bias.fill_(0.5)
                x = torch.randn(4, 32, device="cuda")
                self.close(compiled(x), net(x), name)
                self.close(compiled(x), net(x), name)

    @each_way
    def test_buffers_that_are_written(self, name, way):
        net = net_of(torch.nn.BatchNorm1d(64).cuda()).train()
        twin = copy.deepcopy(net)
        compiled = way(net)
        for _ in range(5):
            x = torch.randn(8, 32, device="cuda")
            compiled(x).sum().backward()
            twin(x).sum().backward()
        for a, b in zip(net.buffers(), twin.buffers()):
            self.close(a.float(), b.float(), name)

    @each_way
    def test_arguments_that_are_written(self, name, way):
        def fn(x, y):
            y.add_(x)
            return y * 2

        compiled = way(fn)
        with torch.no_grad():
            y = torch.zeros(4, 8, device="cuda")
            for i in range(5):
                result = compiled(torch.ones(4, 8, device="cuda"), y)
                self.assertEqual((y.max().item(), result.max().item()), (i + 1, 2 * (i + 1)))

    @each_way
    def test_arguments_that_lie_anywhere(self, name, way):
        """Inductor's kernels count on 16 bytes."""
        compiled = way(lambda x: torch.nn.functional.gelu(x) * 3)
        base = torch.randn(4096, device="cuda")
        for begin in (0, 16, 1, 2, 3, 5, 32, 0):
            x = base[begin:begin + 512].view(16, 32)
            with torch.no_grad():
                self.close(compiled(x), torch.nn.functional.gelu(x) * 3, name)

    @each_way
    def test_written_arguments_that_lie_anywhere(self, name, way):
        def fn(x):
            x.mul_(2)
            return x + 1

        compiled = way(fn)
        base = torch.ones(1024, device="cuda")
        with torch.no_grad():
            for i in range(4):
                x = base[3:3 + 64]
                compiled(x)
                self.assertEqual(x.tolist(), [2.0 ** (i + 1)] * 64, name)
        self.assertEqual((base[2].item(), base[67].item()), (1, 1))

    @each_way
    def test_dropout_draws_anew(self, name, way):
        compiled = way(lambda x: torch.nn.functional.dropout(x, 0.5))
        x = torch.ones(64, 64, device="cuda")
        with torch.no_grad():
            made = [compiled(x) for _ in range(6)]
        self.assertFalse(any(torch.equal(a, b) for a, b in zip(made, made[1:])))
        self.assertTrue(all(0.4 < (m == 0).float().mean().item() < 0.6 for m in made))
        with torch.no_grad():
            torch.manual_seed(7)
            first = [compiled(x) for _ in range(3)]
            torch.manual_seed(7)
            again = [compiled(x) for _ in range(3)]
        self.assertTrue(all(map(torch.equal, first, again)))

    @each_way
    def test_a_break_and_a_value_on_the_host(self, name, way):
        def fn(x):
            x = x * 2
            if x.sum().item() > 0:  # a graph break
                x = x + 1
            return torch.nn.functional.gelu(x)

        compiled = way(fn)
        with torch.no_grad():
            for i in range(5):
                x = torch.full((4, 8), 1.0 - i % 2 * 2, device="cuda")
                self.close(compiled(x), fn(x), name)

    @each_way
    def test_a_backward_pass_without_a_graph(self, name, way):
        """Inductor then tells PyTorch's tree, which is not there."""
        if name == "cudagraphs" and torch_private.of(torch).version < (2, 10):
            self.skipTest("PyTorch's backend hands such a pass a list then, with graphs of its own too")
        class Through(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                return gradient.cpu().cuda() * 2

        compiled = way(lambda x: Through.apply(x).sum())
        for _ in range(4):
            x = torch.ones(4, device="cuda", requires_grad=True)
            compiled(x).backward()
            self.assertEqual(x.grad.tolist(), [2.0] * 4)

    @each_way
    def test_threads(self, name, way):
        net = net_of()
        compiled, wrong = way(net), []
        with torch.no_grad():
            compiled(torch.randn(4, 32, device="cuda"))

        def run():
            try:
                with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                    for i in range(20):
                        x = torch.full((4, 32), i / 20, device="cuda")
                        if not torch.allclose(compiled(x), net(x), rtol=2e-3, atol=2e-3):
                            wrong.append(i)
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    @each_way
    def test_what_is_compiled_ends(self, name, way):
        net = net_of()
        compiled = way(net)
        with torch.no_grad():
            for _ in range(3):
                compiled(torch.randn(4, 32, device="cuda"))
        made = [weakref.ref(made) for made in self.new_graphs() if made.shapes()]
        weight = weakref.ref(net[0].weight)
        self.assertTrue(made)
        del net, compiled
        self.forget()
        self.assertIsNone(weight())
        self.assertEqual([m() for m in made if m() is not None], [])

    @each_way
    def test_inside_a_graph_it_is_a_part_of_that(self, name, way):
        net = net_of()
        compiled = way(net)
        with torch.no_grad():
            for _ in range(3):
                compiled(torch.randn(4, 32, device="cuda"))
            made = reprise.graphed(lambda x: compiled(x) + 1)
            for _ in range(4):
                x = torch.randn(4, 32, device="cuda")
                self.close(made(x), net(x) + 1, name)


@unittest.skipUnless(INDUCTOR, "no Inductor")
class Around(unittest.TestCase):
    """Graphs around what is compiled, pieces with graphs of their own too."""

    def step_of(self, compiled):
        torch._dynamo.reset()
        net = net_of()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad(set_to_none=True)
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        return compiled(step)

    def test_a_step_that_is_compiled_anew_in_its_capture(self):
        """The capture follows the learning rate as a number of its own kind, which torch.compile has not met."""
        batches = [torch.randn(4, 32, device="cuda") for _ in range(6)]
        step = self.step_of(lambda fn: fn)
        wanted = [step(x) for x in batches]
        for compiled in (torch.compile, reprise.compile):
            graphed = reprise.graphed(self.step_of(compiled))
            for x, loss in zip(batches, wanted):
                torch.testing.assert_close(graphed(x), loss, rtol=2e-3, atol=2e-3)
            self.assertEqual(graphed.failures(), [])
            self.assertEqual([shape["replays"] for shape in graphed.shapes()], [5])

    @unittest.skipUnless(INDUCTOR and hasattr(sys, "monitoring"), "another way of watching calls")
    def test_the_compiler_is_not_watched(self):
        """Its calls are not told of, those of the program behind it are."""
        told = []

        def look():
            call = sys.monitoring.events.CALL
            told.extend(bool(sys.monitoring.get_events(tool) & call) for tool in (3, 4)
                        if sys.monitoring.get_tool(tool) == "reprise")

        def compiles(model, inputs):
            look()
            return model
        compiled = torch.compile(lambda x: x * 2, backend=compiles)

        def fn(x):
            x = compiled(x)
            look()
            return x + time.time()
        graphed = reprise.graphed(fn)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(3):
                graphed(torch.ones(4, device="cuda"))
        self.assertEqual(told[:2], [False, True])
        self.assertIn("asks for the time", "".join(str(w.message) for w in said))

    def test_pieces_are_part_of_a_capture_around_them(self):
        """They launch into it, and are measured in none."""
        net = net_of()
        graphed = reprise.graphed(reprise.compile(net, options={"policy": "auto"}))
        with torch.no_grad():
            for rows in (4, 4, 4, 6, 6, 6):
                x = torch.randn(rows, 32, device="cuda")
                torch.testing.assert_close(graphed(x), net(x), rtol=2e-3, atol=2e-3)
        self.assertEqual(graphed.failures(), [])
        replays = [shape["replays"] for shape in graphed.shapes()]  # one call more compiles, where sizes are symbols
        self.assertEqual((len(replays), min(replays)), (2, 2))


class Beside(unittest.TestCase):
    """Programs that compile without graphs of Reprise, while others have some."""

    def test_modules_that_assign_buffers_are_compiled_whole_and_once(self):
        class Counts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("calls", torch.zeros((), device="cuda"))

            def forward(self, x):
                self.calls = self.calls + 1
                return x * self.calls

        graphed = reprise.graphed(net_of())  # which has registrations counted
        with torch.no_grad():
            graphed(torch.ones(4, 32, device="cuda"))
        torch._dynamo.reset()
        graphs = []

        def note(module, inputs):
            graphs.append(module)
            return module.forward
        net = torch.compile(Counts(), backend=note, fullgraph=True)
        x = torch.ones(4, device="cuda")
        self.assertEqual([net(x).sum().item() for _ in range(4)], [4.0, 8.0, 12.0, 16.0])
        self.assertEqual(len(graphs), 1)
        torch._dynamo.reset()


class Partitions(unittest.TestCase):
    """A partition by itself, as Inductor calls it."""

    def setUp(self):
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(8, device="cuda"))
        self.calls = 0

    def model(self, inputs):
        self.calls += 1
        weight, x, size = inputs
        inputs.clear()
        return [weight * x + size, None, size, weight]

    def made(self, fixed=(0,), written=(), is_backward=False, **options):
        return partition.Partition(torch, self.model, fixed, written, 0, is_backward, "a partition", **options)

    def check(self, made, x, size=1, weight=None):
        weight = self.weight if weight is None else weight
        inputs = [weight, x, size]
        with torch.no_grad():
            out, none, got, same = made(inputs)
            self.assertTrue(torch.equal(out, weight * x + size))
        self.assertEqual((inputs, none, got), ([], None, size))
        self.assertEqual(same.data_ptr(), weight.data_ptr())

    def test_fixed_inputs_are_no_arguments(self):
        made = self.made()
        for i in range(6):
            self.check(made, torch.full((8,), float(i), device="cuda"))
        graphed, = (g for g in every_graphed() if g.name == "a partition" and g.shapes())
        self.assertEqual([a["role"] for a in graphed.shapes()[0]["arguments"]], ["in", "out"])
        self.assertLess(self.calls, 6)

    def test_the_faster_way(self):
        """Eager calls wait on the host, which replays do not; each shape is chosen by itself."""
        model = self.model

        def waits(inputs):
            time.sleep(0.02)
            return model(inputs)
        self.model = waits
        made = self.made(policy="auto")
        for rows in (8, 1):
            for i in range(100):
                self.check(made, torch.full((rows, 8), float(i), device="cuda"))
        graphed, = (g for g in every_graphed() if g.name == "a partition" and g.choices())
        self.assertEqual([c["choice"] for c in graphed.choices()], ["graph"] * 2)
        self.assertLess(self.calls, 100)

    def test_sizes_are_keys(self):
        made = self.made()
        for size in (1, 2, 3, 1, 2, 3, 1, 2, 3):
            self.check(made, torch.randn(8, device="cuda"), size)

    def test_saved_activations_are_not_fixed(self):
        made = self.made(fixed=(0, 1), is_backward=True)
        kept = []
        for _ in range(8):
            kept.append(torch.randn(8, device="cuda"))
            self.check(made, kept[-1])
        self.assertEqual(len(made._variants), 1)

    def test_what_was_taken_for_fixed_and_moves(self):
        made, kept = self.made(fixed=(0, 1)), []
        for _ in range(12):
            kept.append(torch.randn(8, device="cuda"))
            self.check(made, kept[-1])
        self.assertEqual(made._fixed, (0,))
        self.assertEqual(len(made._variants), 1)

    def test_memory_that_was_a_parameters(self):
        """Another tensor that gets it is not fixed."""
        for is_backward in (False, True):
            net, others = self.weight, []
            for _ in range(20):
                self.weight = torch.nn.Parameter(torch.randn(8, device="cuda"))
                self.check(self.made(), torch.randn(8, device="cuda"))
                others.append(self.weight.data_ptr())
            self.weight, x = net, None
            for _ in range(1000):
                x = torch.randn(8, device="cuda")
                if x.data_ptr() in others:
                    break
            else:
                self.skipTest("the allocator gave that memory to nobody")
            made = self.made(is_backward=is_backward)
            self.check(made, x)
            self.assertEqual(made._fixed, (0,), is_backward)

    def test_saved_parameters_are_fixed_in_backward_passes(self):
        forward, backward = self.made(), self.made(fixed=(0, 1), is_backward=True)
        for _ in range(4):
            self.check(forward, torch.randn(8, device="cuda"))
            self.check(backward, torch.randn(8, device="cuda"), weight=self.weight.detach())
        self.assertEqual(backward._fixed, (0,))
        self.assertEqual(len(backward._variants), 1)

    def test_parameters_at_other_places(self):
        made = self.made()
        others = [torch.nn.Parameter(torch.randn(8, device="cuda")) for _ in range(2)]
        for _ in range(4):
            for weight in (self.weight, *others):
                self.check(made, torch.randn(8, device="cuda"), weight=weight)
        self.assertEqual(len(made._variants), 3)

    def test_what_is_written_to_a_copy_is_brought_back(self):
        def model(inputs):
            weight, x = inputs
            inputs.clear()
            x.mul_(2)
            return [x + weight]

        made = partition.Partition(torch, model, (0,), (1,), 0, False, "a partition")
        base = torch.ones(64, device="cuda")
        with torch.no_grad():
            for call in range(4):
                x = base[3:11]  # not where kernels count on it
                out, = made([self.weight, x])
                self.assertEqual(x.tolist(), [2.0 ** (call + 1)] * 8)
                self.assertTrue(torch.equal(out, x + self.weight))
        self.assertEqual((base[2].item(), base[11].item()), (1, 1))

    def test_strides_of_copies(self):
        base = torch.arange(64.0, device="cuda")
        for tensor in (base[1:9], base.view(8, 8)[1:, 1:5], base.view(8, 8).t()[1:], base[3:3], base[5]):
            copied = partition._copy(tensor)
            self.assertTrue(torch.equal(copied, tensor))
            self.assertEqual((copied.shape, copied.stride()), (tensor.shape, tensor.stride()))
            self.assertEqual(copied.data_ptr() % partition.ALIGNMENT, 0)


class Answers(unittest.TestCase):
    def test_without_being_asked_pytorch_serves(self):
        asked = []
        theirs = types.SimpleNamespace(
            cudagraphify_impl=lambda *args, **kwargs: asked.append(kwargs) or "theirs",
            get_manager=lambda *_: None)
        trees._answer(theirs)
        name = torch._guards.CompileId(frame_id=1, frame_compile_id=2)
        context = torch._guards.CompileContext(name)
        with mock.patch.object(trees, "is_installed", lambda: False):
            self.assertEqual(theirs.cudagraphify_impl(id, [], (), compile_id=name), "theirs")
            trees.ask_for(context)
            asked_for = context.compile_id
            self.assertIsInstance(theirs.cudagraphify_impl(id, [], (), compile_id=asked_for),
                                  partition.Partition)
            self.assertEqual(theirs.cudagraphify_impl(id, [], (), compile_id=name), "theirs")
        with mock.patch.object(trees, "is_installed", lambda: True):
            self.assertIsInstance(theirs.cudagraphify_impl(id, [], ()), partition.Partition)
            self.assertIs(theirs.cudagraphify_impl(id, [], (), kernel_free_cudagraph=True), id)
        self.assertEqual([list(told) for told in asked], [["compile_id"]] * 2)
        self.assertEqual((asked_for, hash(asked_for), str(asked_for)), (name, hash(name), str(name)))
        self.assertEqual((name, copy.deepcopy(asked_for)), (asked_for, name))
        manager = theirs.get_manager(0)
        self.assertIsNotNone(manager)
        self.assertFalse(manager)
        manager.set_to_running_backward()

    def test_a_pytorch_without_what_is_answered_says_so(self):
        for name in torch_private.TREES_NAMES:
            has = types.SimpleNamespace(**dict.fromkeys(set(torch_private.TREES_NAMES) - {name}, id))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                trees._answer(has)
            self.assertIn(f"off, as PyTorch {torch.__version__} has no {torch_private.TREES}.{name}",
                          str(caught[0].message))
            self.assertFalse(any(hasattr(f, "is_answer") for f in vars(has).values()))

    @unittest.skipIf(INSTALL, "all is served under install()")
    def test_the_backend_of_pytorch_is_left_alone(self):
        compiled = torch.compile(lambda x: x * 2 + 1, backend="cudagraphs")
        before = set(map(id, every_graphed()))
        with torch.no_grad(), contextlib.suppress(torch._dynamo.exc.BackendCompilerFailed):
            for _ in range(3):
                compiled(torch.ones(4, device="cuda"))
        self.assertEqual(set(map(id, every_graphed())) - before, set())


if __name__ == "__main__":
    unittest.main(verbosity=2)
