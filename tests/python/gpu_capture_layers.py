# SPDX-License-Identifier: MIT
"""reprise.capture_layers: layers become graphs by themselves, whatever the schedule. Usage:
gpu_capture_layers.py [--install] ..."""

import contextlib
import copy
import gc
import io
import sys
import unittest
import warnings

import torch
from torch import distributed
from torch.utils.checkpoint import checkpoint

import reprise
from training_steps import group_beside_captures

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

WIDTH, LAYERS = 64, 3


class Layer(torch.nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.second = torch.nn.Linear(WIDTH, WIDTH)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, hidden, *, scale=None, context=None):
        made = self.second(self.dropout(self.first(hidden)).tanh())
        return (hidden + made if scale is None else hidden + made * scale), context


WIDE, WORKSPACE = 24 << 20, 32 << 20


class Wide(Layer):
    """Works in memory that its backward pass has no need of."""

    def forward(self, hidden, *, scale=None, context=None):
        with torch.no_grad():
            wide = hidden.new_zeros(WIDE // 4)
            wide[:WIDTH].copy_(hidden[0])
            row = wide[:WIDTH].clone()
            del wide
        hidden, context = super().forward(hidden, scale=scale, context=context)
        return hidden + row, context


class Model(torch.nn.Module):
    def __init__(self, kind=Layer, dropout=0.0):
        super().__init__()
        self.before = torch.nn.Linear(WIDTH, WIDTH)
        self.layers = torch.nn.ModuleList(kind(dropout) for _ in range(LAYERS))

    def forward(self, x, scale=None):
        x = self.before(x)
        for layer in self.layers:
            x, _ = layer(x, scale=scale, context=None)
        return x


class Twice(Model):
    def forward(self, x, scale=None):
        return super().forward(super().forward(x, scale), scale)


def numbers(*shape, grad=False):
    return torch.randn(*shape, device="cuda", requires_grad=grad)


def pair(build=Model, **options):
    torch.manual_seed(3)
    first = build(**options).cuda()
    second = build(**options).cuda()
    second.load_state_dict(first.state_dict())
    return first, second


ONE_BY_ONE = [1, -1] * 4
PIPELINE = [1, 1, -1, 1, -1, 1, -1, 1, -1, -1]  # 1F1B of five microbatches, two under way
ALL = [1, 1, 1, -1, -1, -1]


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def tearDown(self):
        gc.collect()

    def step(self, models, order, sizes=(8,), **named):
        """Results and gradients of passes in an order, which has numbers of models."""
        waiting, seen, turn = [[] for _ in models], [], 0
        for number in order:
            which = abs(number) - 1
            if number > 0:
                x = numbers(sizes[turn % len(sizes)], WIDTH, grad=True)
                turn += 1
                waiting[which].append((x, models[which](x, **named)))
            else:
                x, y = waiting[which].pop(0)
                y.square().mean().backward()
                seen += [y.detach(), x.grad]
        return seen

    def train(self, models, order, steps=4, **options):
        torch.manual_seed(7)
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
        seen = []
        for _ in range(steps):
            for optimizer in optimizers:
                optimizer.zero_grad()
            seen += self.step(models, order, **options)
            for optimizer in optimizers:
                optimizer.step()
        return seen + [p.detach() for m in models for p in m.parameters()]

    def same(self, got, want):
        for a, b in zip(got, want, strict=True):
            self.assertTrue(torch.equal(a, b))

    @contextlib.contextmanager
    def silent(self):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="reprise")
            yield

    def check(self, order, expected, build=Model, microbatches=8, **options):
        """Trains with captured layers as without; expected: of each layer the lanes."""
        net, twin = pair(build)
        made = reprise.capture_layers(net, microbatches=microbatches, strict=True)
        with self.silent():
            self.same(self.train([net], order, **options), self.train([twin], order, **options))
        self.assertEqual([(f["way"], f["lanes"]) for f in made.layers()], [("graph", expected)] * LAYERS)
        return net, made


class Schedules(Case):
    def test_one_microbatch_at_a_time_has_one_graph_of_each_layer(self):
        _, made = self.check(ONE_BY_ONE, 1)
        self.assertEqual([f["graphs"] for f in made.layers()], [2] * LAYERS)

    def test_calls_take_the_fast_path(self):
        """But for those under hooks that see what autograd saves, and with other wishes for gradients."""
        net, made = self.check(PIPELINE, 2)
        lanes = [lane for parts in made._kept for part in parts.known.values() for lane in part.lanes]
        self.assertEqual(len(lanes), 2 * LAYERS)
        slow = []
        for lane in lanes:
            lane._by_graph = lambda *call, lane=lane, by=lane._by_graph: slow.append(lane) or by(*call)
        self.train([net], PIPELINE, 2)
        self.assertEqual(slow, [])
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            net(numbers(8, WIDTH, grad=True)).sum().backward()
        self.assertEqual(len(slow), LAYERS)

    def test_as_many_as_are_under_way(self):
        """However many microbatches a step has."""
        _, made = self.check(PIPELINE, 2)
        self.assertEqual([f["graphs"] for f in made.layers()], [4] * LAYERS)
        self.check(ALL, 3)

    def test_what_a_backward_pass_leaves_is_in_nobodys_way(self):
        """The next layer's graphs lie over it; a segment of PyTorch's in it is 2 MiB at least."""
        _, made = self.check(ONE_BY_ONE, 1)
        planned = [shape["planned_bytes"] for parts in made._kept for part in parts.known.values()
                   for lane in part.lanes for shape in lane.shapes()]
        self.assertEqual(len(planned), 2 * LAYERS)
        for backward, forward in zip(planned[1::2], planned[2::2]):
            self.assertLess(forward - backward, 2 << 20)

    def test_what_a_forward_pass_is_done_with_is_in_nobodys_way(self):
        """The next layer's graphs lie over it, though PyTorch has the segment still."""
        _, made = self.check(ONE_BY_ONE, 1, build=lambda **options: Model(Wide, **options))
        planned = [shape["planned_bytes"] for parts in made._kept for part in parts.known.values()
                   for lane in part.lanes for shape in lane.shapes()]
        self.assertEqual(len(planned), 2 * LAYERS)
        self.assertGreater(planned[0], WIDE)
        self.assertLess(max(planned), WORKSPACE + 2 * WIDE)  # that of cuBLAS comes and goes likewise

    def test_layers_that_are_called_twice(self):
        """The second call of a microbatch has graphs of its own, on the fast path too. Gradients are summed up in
        another order."""
        net, twin = pair(Twice)
        reprise.capture_layers(net, strict=True)
        for got, want in zip(self.train([net], ONE_BY_ONE), self.train([twin], ONE_BY_ONE), strict=True):
            torch.testing.assert_close(got, want)

    def test_orders_that_change(self):
        net, twin = pair()
        reprise.capture_layers(net, strict=True)
        with self.silent():
            for order in (PIPELINE, ONE_BY_ONE, ALL, PIPELINE):
                self.same(self.train([net], order, 2), self.train([twin], order, 2))

    def test_chunks_of_an_interleaved_pipeline(self):
        pairs = [pair(), pair()]
        nets, twins = [a for a, _ in pairs], [b for _, b in pairs]
        made = reprise.capture_layers(nets, strict=True)
        order = [1, 1, 2, 2, -2, 1, -2, -1, 2, -1, -2, -1]
        with self.silent():
            self.same(self.train(nets, order), self.train(twins, order))
        self.assertEqual(len(made.layers()), 2 * LAYERS)
        self.assertEqual({f["way"] for f in made.layers()}, {"graph"})

    def test_dropout(self):
        self.check(PIPELINE, 2, lambda: Model(dropout=0.3))

    def test_evaluation_between(self):
        net, twin = pair()
        reprise.capture_layers(net, strict=True)
        x = numbers(8, WIDTH)
        with self.silent():
            for _ in range(3):
                self.same(self.train([net], PIPELINE, 1), self.train([twin], PIPELINE, 1))
                net.eval(), twin.eval()
                with torch.no_grad():
                    self.assertTrue(torch.equal(net(x), twin(x)))
                net.train(), twin.train()

    def test_microbatches_too_many(self):
        net, twin = pair()
        reprise.capture_layers(net, microbatches=2)
        with self.assertWarnsRegex(UserWarning, "2 microbatches wait .* microbatches="):
            got = self.train([net], ALL)
        self.same(got, self.train([twin], ALL))
        net, _ = pair()
        reprise.capture_layers(net, microbatches=2, strict=True)
        with self.assertRaisesRegex(RuntimeError, "2 microbatches wait"):
            self.train([net], ALL)

    def test_shapes_and_values(self):
        net, made = self.check(ONE_BY_ONE, 1, sizes=(8, 12), scale=0.5)
        self.assertEqual([f["graphs"] for f in made.layers()], [4] * LAYERS)


class Found(Case):
    """Which modules are layers."""

    def test_by_class_function_and_name(self):
        net, _ = pair()
        for layers, count in ((None, LAYERS), (Layer, LAYERS), ((Layer, torch.nn.ReLU), LAYERS),
                              (lambda m: isinstance(m, torch.nn.Linear), 1 + 2 * LAYERS),
                              (list(net.layers)[:2], 2), ([net.before], 1)):
            made = reprise.capture_layers(net, layers)
            self.assertEqual(len(made.layers()), count)
            made.release()
        self.assertIs(type(net.layers[0]), Layer)

    def test_those_within_others_are_none(self):
        net, _ = pair(lambda: Model(lambda dropout: torch.nn.Sequential(Layer(dropout))))
        made = reprise.capture_layers(net, (torch.nn.Sequential, Layer))
        self.assertEqual([f["kind"] for f in made.layers()], ["Sequential"] * LAYERS)

    def test_none(self):
        with self.assertRaisesRegex(ValueError, "no layers were found"):
            reprise.capture_layers(torch.nn.Linear(3, 3).cuda())
        net, twin = pair()
        with self.assertRaisesRegex(ValueError, "Layer is no module of the model"):
            reprise.capture_layers(net, list(twin.layers))
        with self.assertRaisesRegex(TypeError, "a function"):
            reprise.capture_layers(lambda x: x)

    def test_released_layers_are_what_they_were(self):
        net, made = self.check(PIPELINE, 2)
        made.release()
        self.assertIs(type(net.layers[0]), Layer)
        self.assertFalse(net._forward_pre_hooks)
        self.assertEqual(made.layers(), [])
        self.step([net], PIPELINE)


class Again(unittest.TestCase):
    """A model whose layers are graphs."""

    def setUp(self):
        torch.manual_seed(1)
        self.net = Model().cuda()
        self.twin = copy.deepcopy(self.net)

    def train(self, net):
        torch.manual_seed(2)
        losses = []
        for _ in range(4):
            net.zero_grad()
            loss = net(numbers(4, WIDTH)).square().mean()
            loss.backward()
            losses.append(loss.item())
        return losses, [p.grad.tolist() for p in net.parameters()]

    def test_captured_once_more(self):
        """As callbacks of trainers do at each train(): by themselves, by name and by class."""
        first = None
        for layers in (None, None, list(self.net.layers), Layer):
            made = reprise.capture_layers(self.net, layers)
            self.assertTrue(self.train(self.net) == self.train(self.twin))
            self.assertEqual([layer["way"] for layer in made.layers()], ["graph"] * LAYERS)
            self.assertEqual(first.layers() if first else [], [])  # those were released
            first = made
        made.release()
        self.assertTrue(self.train(self.net) == self.train(self.twin))

    def test_copies_have_no_graphs(self):
        reprise.capture_layers(self.net)
        self.train(self.net)
        saved = io.BytesIO()
        torch.save(self.net, saved)
        saved.seek(0)
        copies = [copy.deepcopy(self.net), torch.load(saved, weights_only=False),
                  torch.optim.swa_utils.AveragedModel(self.net).module]
        for net in copies:
            net.requires_grad_()
            self.assertTrue(self.train(net) == self.train(self.twin))
        made = reprise.capture_layers(copies[0])
        self.assertTrue(self.train(copies[0]) == self.train(self.twin))
        self.assertEqual([layer["way"] for layer in made.layers()], ["graph"] * LAYERS)


class Waits(Layer):
    """Cannot be captured whole."""

    def forward(self, hidden, **named):
        if hidden.sum().item() > 1e9:
            raise ValueError("too much")
        return super().forward(hidden, **named)


class Refused(Case):
    def test_a_layer_that_waits_is_divided(self):
        net, twin = pair(lambda: Model(Waits))
        made = reprise.capture_layers(net)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = self.train([net], ONE_BY_ONE)
        self.same(got, self.train([twin], ONE_BY_ONE))
        found = {f["name"]: f for f in made.layers()}
        self.assertEqual(found["Model.layers.0"]["way"], "parts")
        self.assertIn("hidden.sum().item()", found["Model.layers.0"]["line"])

    def test_strictly(self):
        net, _ = pair(lambda: Model(Waits))
        reprise.capture_layers(net, strict=True)
        with self.assertRaises(Exception):
            self.train([net], ONE_BY_ONE)


class Recomputed(Model):
    """Each layer within a checkpoint."""

    reentrant = True

    def forward(self, x):
        x = self.before(x)
        for layer in self.layers:
            x = checkpoint(lambda y, layer=layer: layer(y)[0], x, use_reentrant=self.reentrant)
        return x


class Around(Case):
    """What programs have around layers."""

    def test_reentrant_checkpoints(self):
        net, twin = pair(lambda: Recomputed(dropout=0.2))
        made = reprise.capture_layers(net, strict=True)
        with self.silent():
            for order in (ONE_BY_ONE, PIPELINE):
                self.same(self.train([net], order), self.train([twin], order))
        self.assertEqual({f["way"] for f in made.layers()}, {"graph"})

    def test_checkpoints_with_hooks_are_left_alone(self):
        net, twin = pair(lambda: Recomputed(dropout=0.2))
        net.reentrant = twin.reentrant = False
        made = reprise.capture_layers(net)
        self.same(self.train([net], PIPELINE), self.train([twin], PIPELINE))
        self.assertIn("hooks of saved tensors", made.layers()[0]["reason"])

    def test_distributed_data_parallel(self):
        try:
            distributed.init_process_group(group_beside_captures(INSTALL), store=distributed.HashStore(), rank=0,
                                           world_size=1)
        except (RuntimeError, ValueError, AttributeError) as error:
            self.skipTest(f"no process group of NCCL: {error}")
        try:
            net, twin = pair()
            net, twin = (torch.nn.parallel.DistributedDataParallel(n) for n in (net, twin))
            made = reprise.capture_layers(net, strict=True)
            with self.silent():
                self.same(self.train([net], ONE_BY_ONE), self.train([twin], ONE_BY_ONE))
            self.assertEqual([(f["way"], f["lanes"]) for f in made.layers()], [("graph", 1)] * LAYERS)
            made.release()
            del net, twin, made
            gc.collect()
        finally:
            torch.cuda.synchronize()
            distributed.destroy_process_group()


class Accumulates(torch.autograd.Function):
    """A linear layer whose backward pass adds the weight's gradient up in main_grad, as fused ones do."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        weight.main_grad.add_(grad.t() @ x)
        weight.grad_added_to_main_grad = True
        return grad @ weight, torch.full_like(weight, 1e6)


class Fused(Layer):
    def __init__(self, dropout):
        super().__init__(dropout)
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH) / 8)

    def forward(self, hidden, **named):
        return super().forward(hidden + Accumulates.apply(hidden, self.weight).tanh(), **named)


class MainGrads(Case):
    """Weight gradients in main_grad: by the backward pass itself, or by hooks on parameters' nodes."""

    def with_main_grads(self, model):
        """As Megatron's DistributedDataParallel: hooks on the nodes that add gradients up."""
        model.nodes = []
        for param in model.parameters():
            param.main_grad = torch.zeros_like(param)
            param.grad_added_to_main_grad = False

            def hook(*_, param=param):
                if param.grad is not None and not param.grad_added_to_main_grad:
                    param.main_grad.add_(param.grad)
                param.grad = None
            node = param.expand_as(param).grad_fn.next_functions[0][0]
            node.register_hook(hook)
            model.nodes.append(node)
        return model

    def trained(self, model, order):
        torch.manual_seed(7)
        seen = []
        for _ in range(4):
            for param in model.parameters():
                param.main_grad.zero_()
                param.grad_added_to_main_grad = False
            self.step([model], order)
            seen += [p.main_grad.clone() for p in model.parameters()]
        return seen

    def check_main(self, build, order):
        net, twin = pair(build)
        net, twin = self.with_main_grads(net), self.with_main_grads(twin)
        made = reprise.capture_layers(net, strict=True)
        with self.silent():
            self.same(self.trained(net, order), self.trained(twin, order))
        self.assertEqual({f["way"] for f in made.layers()}, {"graph"})

    def test_by_hooks_on_nodes(self):
        self.check_main(Model, PIPELINE)

    def test_by_the_backward_pass(self):
        for order in (ONE_BY_ONE, PIPELINE):
            self.check_main(lambda: Model(Fused), order)


if __name__ == "__main__":
    unittest.main()
