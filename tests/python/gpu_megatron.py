# SPDX-License-Identifier: MIT
"""reprise.megatron: with what Megatron does around layers played here, and with Megatron-core where it is installed.
Usage: gpu_megatron.py [--install] ..."""

import enum
import gc
import importlib.util
import sys
import types
import unittest
import warnings
from unittest import mock

import torch
from torch import distributed

import reprise
import reprise.megatron
from training_steps import group_beside_captures

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

WIDTH, LAYERS = 32, 2
DDP = "megatron.core.distributed.distributed_data_parallel"
PIPELINE = [1, 1, -1, 1, -1, -1]


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden_states, attention_mask=None, **more):
        return hidden_states + self.inner(hidden_states).tanh(), None


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, hidden):
        for layer in self.layers:
            hidden, _ = layer(hidden_states=hidden, attention_mask=None, inference_context=None)
        return hidden


def pair():
    torch.manual_seed(2)
    first, second = Model().cuda(), Model().cuda()
    second.load_state_dict(first.state_dict())
    return first, second


def numbers(*shape):
    return torch.randn(*shape, device="cuda")


def passes(model, order, seed=5):
    """Gradients of the passes of microbatches in an order."""
    torch.manual_seed(seed)
    waiting = []
    for number in order:
        if number > 0:
            waiting.append(model(numbers(4, WIDTH)).square().sum())
        else:
            waiting.pop(0).backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return found


class Gathers:
    """What Megatron's DistributedDataParallel does with overlap_param_gather, as far as hooks go."""

    def __init__(self, module):
        self.module, self.seen = module, []
        self.remove_forward_pre_hook_handles = {}
        self.enable()

    def enable(self):
        for module in self.module.modules():
            self.remove_forward_pre_hook_handles[module] = module.register_forward_pre_hook(self.make())

    def disable(self):
        for handle in self.remove_forward_pre_hook_handles.values():
            handle.remove()
        self.remove_forward_pre_hook_handles.clear()

    def make(self):
        def hook(module, *unused):
            self.seen.append(id(module))
        hook.__module__ = DDP
        return hook


class Hooks(unittest.TestCase):
    """Wait hooks of the modules within layers run ahead of each call of the layer, whatever replays."""

    def same(self, net, twin):
        for a, b in zip(passes(net, PIPELINE), passes(twin, PIPELINE)):
            self.assertTrue(torch.equal(a, b))

    def test_hooks_run_in_each_call(self):
        net, twin = pair()
        gathers = Gathers(net)
        graphs = reprise.megatron.capture_layers(net, strict=True)
        for _ in range(4):
            gathers.seen.clear()
            self.same(net, twin)
            for module in (m for layer in net.layers for m in layer.modules()):
                self.assertEqual(gathers.seen.count(id(module)), 3, type(module))
        self.assertEqual({f["way"] for f in graphs.layers()}, {"graph"})
        self.assertEqual({f["graphs"] for f in graphs.layers()}, {4})  # of two lanes
        graphs.release()
        gathers.seen.clear()
        self.same(net, twin)
        self.assertEqual(gathers.seen.count(id(net.layers[0].inner)), 3)

    def test_hooks_that_are_taken_off_and_put_back(self):
        net, twin = pair()
        gathers = Gathers(net)
        reprise.megatron.capture_layers(net, strict=True)
        inner = id(net.layers[1].inner)
        for turn in range(4):
            self.same(net, twin)
            gathers.disable()
            gathers.seen.clear()
            self.same(net, twin)
            self.assertEqual(gathers.seen, [])
            gathers.enable()
            self.same(net, twin)
            self.assertEqual(gathers.seen.count(inner), 3)
            self.assertFalse(any(m._forward_pre_hooks for layer in net.layers for m in layer.modules()))

    def test_graphs_of_megatrons_own_are_refused(self):
        net, _ = pair()
        net.layers[1].cudagraph_manager = None
        with self.assertRaisesRegex(ValueError, "layers.1 has graphs of Megatron's"):
            reprise.megatron.capture_layers(net)


class Sub(torch.nn.Module):
    """An attention, a mixer or an MLP."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, WIDTH)
        self.outer = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden_states):
        return self.outer(self.inner(hidden_states).tanh()), None


class Router(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, WIDTH) / 4)

    def forward(self, hidden_states):
        return torch.softmax(hidden_states @ self.weight.t(), -1)


class Routed(torch.nn.Module):
    """Reads on the host how much each expert has to do."""

    def __init__(self):
        super().__init__()
        self.router = Router()
        self.experts = torch.nn.ModuleList(Sub() for _ in range(2))

    def forward(self, hidden_states):
        shares = self.router(hidden_states)
        out = 0
        for i, expert in enumerate(self.experts):
            if shares[..., i].sum().item() > 0:
                out = out + shares[..., i:i + 1] * expert(hidden_states)[0]
        return out, None


class Whole(torch.nn.Module):
    """A layer by the names of Megatron's."""

    def __init__(self, routed):
        super().__init__()
        self.self_attention, self.cross_attention = Sub(), torch.nn.Identity()
        self.mlp = Routed() if routed else Sub()

    def forward(self, hidden_states, **unused):
        hidden_states = hidden_states + self.self_attention(hidden_states)[0]
        return hidden_states + self.mlp(hidden_states)[0], None


class Mixer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mixer = Sub()

    def forward(self, hidden_states, **unused):
        return hidden_states + self.mixer(hidden_states)[0], None


class Hybrid(Model):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Whole(False), Whole(True), Mixer()])


class CheckpointFunction(torch.autograd.Function):
    """Recomputes, and cannot be asked by torch.autograd.grad: as Megatron's."""

    @staticmethod
    def forward(ctx, function, x):
        ctx.function = function
        ctx.save_for_backward(x)
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx, grad):
        if not torch.autograd._is_checkpoint_valid():
            raise RuntimeError("use .backward()")
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            ctx.function(x).backward(grad)
        return None, x.grad


class Recomputes(Layer):
    def forward(self, hidden_states, **unused):
        return hidden_states + CheckpointFunction.apply(self.inner, self.inner(hidden_states)).tanh(), None


class Recomputed(unittest.TestCase):
    def test_what_is_recomputed_is_refused_by_name(self):
        net, twin = pair()
        for one in (net, twin):
            for layer in one.layers:
                layer.__class__ = Recomputes
        home = types.ModuleType("megatron.core.tensor_parallel.random")
        home.CheckpointFunction = CheckpointFunction
        with mock.patch.dict(sys.modules, {home.__name__: home}):
            graphs = reprise.megatron.capture_layers(net, list(net.layers))
            for _ in range(4):
                for a, b in zip(passes(net, PIPELINE), passes(twin, PIPELINE)):
                    self.assertTrue(torch.equal(a, b))
        for facts in graphs.layers()[:2]:
            self.assertRegex(facts["reason"], "recomputes by Megatron's or Transformer Engine's function")


class Scopes(unittest.TestCase):
    """Parts of layers, by the names of cuda_graph_scope."""

    def check(self, scope, names):
        torch.manual_seed(2)
        net, twin = Hybrid().cuda(), Hybrid().cuda()
        twin.load_state_dict(net.state_dict())
        graphs = reprise.megatron.capture_layers(net, list(net.layers), scope=scope, strict=True)
        for _ in range(3):
            for a, b in zip(passes(net, PIPELINE), passes(twin, PIPELINE)):
                self.assertTrue(torch.equal(a, b))
        found = {f["name"].removeprefix("Hybrid."): f["way"] for f in graphs.layers()}
        self.assertEqual(found, dict.fromkeys(names, "graph"))

    def test_attention(self):
        self.check("attn", ["layers.0.self_attention", "layers.1.self_attention"])

    def test_mlps_and_routers(self):
        self.check(["mlp"], ["layers.0.mlp"])
        self.check(["moe_router"], ["layers.1.mlp.router"])
        self.check(("mlp", "moe_router"), ["layers.0.mlp", "layers.1.mlp.router"])

    def test_mamba(self):
        self.check(["mamba"], ["layers.2"])

    def test_by_the_enumeration(self):
        kind = enum.Enum("CudaGraphScope", ["full_iteration", "attn", "mlp", "moe", "moe_router", "mamba"])
        self.check([kind.attn, kind.mlp, kind.mamba],
                   ["layers.0.self_attention", "layers.0.mlp", "layers.1.self_attention", "layers.2"])
        self.check(kind.mlp, ["layers.0.mlp"])

    def test_as_earlier_and_with_commas(self):
        whole = [f"layers.{i}" for i in (0, 2)]
        self.check("attn,mlp", ["layers.0.self_attention", "layers.0.mlp", "layers.1.self_attention"])
        for scope in ("full", ["full"], []):
            torch.manual_seed(2)
            net = Hybrid().cuda()
            graphs = reprise.megatron.capture_layers(net, [net.layers[0], net.layers[2]], scope=scope)
            self.assertEqual([f["name"].removeprefix("Hybrid.") for f in graphs.layers()], whole)

    def test_what_cannot_be(self):
        net = Hybrid().cuda()
        for scope, said in ((["full", "attn"], "'full', which is whole layers, beside"),
                            (["attn", "full_iteration"], r"take reprise\.megatron\.full_iteration"),
                            ("moe_preprocess", "'moe_preprocess', which is a method"),
                            (["attention"], "'attention', but may have attn, mlp")):
            with self.assertRaisesRegex((ValueError, NotImplementedError), said):
                reprise.megatron.capture_layers(net, list(net.layers), scope=scope)
        with self.assertRaisesRegex(ValueError, r"no layer has anything of scope \['moe'\]"):
            reprise.megatron.capture_layers(net, [net.layers[0]], scope="moe")
        net.layers[1].cudagraph_manager = None
        with self.assertRaisesRegex(ValueError, "has graphs of Megatron's"):
            reprise.megatron.capture_layers(net, list(net.layers), scope="attn")


def schedule(*, forward_step_func, data_iterator, model, num_microbatches, forward_only=False, scale=1.0):
    """Megatron's without a pipeline."""
    model = model[0] if isinstance(model, list) else model
    data_iterator = data_iterator[0] if isinstance(data_iterator, list) else data_iterator
    losses = []
    for _ in range(num_microbatches):
        loss = forward_step_func(data_iterator, model) * scale
        if not forward_only:
            loss.backward()
        losses.append({"loss": loss.detach()})
    return losses


def forward_step(iterator, model):
    batch = next(iterator)
    return (model(batch["x"]) - batch["y"]).square().mean()


class Iterations(unittest.TestCase):
    """full_iteration."""

    def data(self, count, device="cuda"):
        torch.manual_seed(8)
        return iter([{"x": numbers(4, WIDTH).to(device), "y": numbers(4, WIDTH).to(device)} for _ in range(count)])

    def run_steps(self, function, model, optimizer, wrap, device="cuda", steps=5, update=True):
        data, seen = self.data(4 * steps, device), []
        for step in range(steps):
            for param in model.parameters():
                param.grad = None if param.grad is None else param.grad.zero_()
            found = function(forward_step_func=forward_step, data_iterator=wrap(data), model=[model],
                             num_microbatches=2)
            if update:
                optimizer.step()
            valid = function(forward_step_func=forward_step, data_iterator=wrap(data), model=[model],
                             num_microbatches=2, forward_only=True, scale=2.0)
            seen += [f["loss"] for f in (*found, *valid)]
        return seen + [p.detach() for p in model.parameters()]

    def optimizer_of(self, net):
        for param in net.parameters():
            param.grad = torch.zeros_like(param)
        return torch.optim.Adam(net.parameters(), lr=1e-2, capturable=True)

    def check(self, wrap=iter, device="cuda", steps=5):
        net, twin = pair()
        made = reprise.megatron.full_iteration(schedule, 3, strict=True)
        got = self.run_steps(made, net, self.optimizer_of(net), wrap, device, steps)
        eager = schedule
        if device == "cpu":
            def eager(data_iterator, **given):
                moved = ({k: v.cuda() for k, v in b.items()} for b in data_iterator)
                return schedule(data_iterator=moved, **given)
        want = self.run_steps(eager, twin, self.optimizer_of(twin), wrap if device == "cuda" else iter, device, steps)
        for a, b in zip(got, want, strict=True):
            self.assertTrue(torch.equal(a, b))
        self.assertEqual([len(g.shapes()) for g in made.graphs()], [1, 1])
        return made

    def test_training_and_validation(self):
        made = self.check()
        made.reset()
        self.assertEqual(made.graphs(), [])

    def test_lists_of_iterators(self):
        self.check(lambda data: [data])

    def test_batches_on_the_cpu(self):
        self.check(device="cpu")

    def test_the_update_within(self):
        net, twin = pair()
        ours, theirs = self.optimizer_of(net), self.optimizer_of(twin)
        made = reprise.megatron.full_iteration(schedule, update=ours.step, strict=True)
        got = self.run_steps(made, net, ours, iter, update=False)
        want = self.run_steps(schedule, twin, theirs, iter)
        for a, b in zip(got, want, strict=True):
            self.assertTrue(torch.equal(a, b))

    def test_what_the_step_reads_is_compared(self):
        net, _ = pair()
        made = reprise.megatron.full_iteration(schedule, strict=True)
        settings = types.SimpleNamespace(factor=1.0)

        def step(iterator, model):
            return forward_step(iterator, model) * settings.factor
        for param in net.parameters():
            param.grad = torch.zeros_like(param)
        for factor in (1.0, 1.0, 1.0, 3.0, 3.0, 1.0):
            settings.factor = factor
            found = [call(forward_step_func=step, data_iterator=self.data(2), model=net, num_microbatches=2)
                     for call in (made, schedule)]
            for a, b in zip(*found):
                self.assertTrue(torch.equal(a["loss"], b["loss"]), factor)

    def test_what_is_asked_for_by_a_made_name(self):
        """As Megatron asks modules for `layer_` and a number: all of such an object is compared."""
        net, _ = pair()
        made = reprise.megatron.full_iteration(schedule, strict=True)

        class Settings:
            def __init__(self):
                self.factor_of_training = 1.0

        settings, kind = Settings(), "training"

        def step(iterator, model):
            return forward_step(iterator, model) * getattr(settings, f"factor_of_{kind}")
        for param in net.parameters():
            param.grad = torch.zeros_like(param)
        for factor in (1.0, 1.0, 1.0, 3.0, 3.0, 1.0):
            settings.factor_of_training = factor
            found = [call(forward_step_func=step, data_iterator=self.data(2), model=net, num_microbatches=2)
                     for call in (made, schedule)]
            for a, b in zip(*found):
                self.assertTrue(torch.equal(a["loss"], b["loss"]), factor)

    def test_functions_that_are_made_anew(self):
        net, _ = pair()
        made = reprise.megatron.full_iteration(schedule, strict=True)
        for param in net.parameters():
            param.grad = torch.zeros_like(param)
        for factor in (1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 1.0):
            def step(iterator, model, factor=factor):
                return forward_step(iterator, model) * factor
            found = [call(forward_step_func=step, data_iterator=self.data(2), model=net, num_microbatches=2)
                     for call in (made, schedule)]
            for a, b in zip(*found):
                self.assertTrue(torch.equal(a["loss"], b["loss"]), factor)
        self.assertEqual([len(g.shapes()) for g in made.graphs()], [2])

    @unittest.skipUnless(hasattr(sys, "monitoring"), "runs do not tell of what code asks")
    def test_what_others_count(self):
        """Megatron asks modules for attributes by names that it makes: the counter of an object nearby is not
        what a call depends on, and containers that are begun anew between calls are not walked anew."""
        net, twin = pair()

        class Loop:
            def __init__(self, net):
                self.turn, self.counts, self.net = 0, {}, net

            def step(self, iterator, model):
                assert not self.counts
                return forward_step(iterator, ask(self.net, "forward") and model)

        def ask(module, name):
            return getattr(module, name)
        loop = Loop(net)
        made = reprise.megatron.full_iteration(schedule, strict=True)
        for param in net.parameters():
            param.grad = torch.zeros_like(param)
        walks = []
        for _ in range(12):
            loop.turn, loop.counts = loop.turn + 1, {}
            found = [call(forward_step_func=loop.step, data_iterator=self.data(2), model=model, num_microbatches=2)
                     for call, model in ((made, net), (schedule, twin))]
            for a, b in zip(*found):
                self.assertTrue(torch.equal(a["loss"], b["loss"]))
            walks.append(made.graphs()[0]._reads.values.walks)
        self.assertEqual([len(g.shapes()) for g in made.graphs()], [1])
        self.assertEqual(walks[3:], walks[3:4] * 9)
        graphs, = made.graphs()
        graphs._by_graph = None  # calls come by the fast path
        for counts in ({}, {}):
            loop.counts = counts
            made(forward_step_func=loop.step, data_iterator=self.data(2), model=net, num_microbatches=2)

    def test_a_read_on_the_host_is_told_and_not_the_hooks(self):
        """As Megatron's check for NaN in gradients, over parameters whose nodes have hooks."""
        net, _ = pair()
        with torch.cuda.stream(torch.cuda.Stream()):
            nodes = [param.expand_as(param).grad_fn.next_functions[0][0] for param in net.parameters()]
        for param, node in zip(net.parameters(), nodes):
            param.grad = torch.zeros_like(param)
            node.register_hook(lambda *unused: None)

        def checked(**given):
            found = schedule(**given)
            if any(param.grad.norm().isnan() for param in net.parameters()):
                raise ValueError("NaN")
            return found
        made = reprise.megatron.full_iteration(checked, strict=True)
        with self.assertRaises(RuntimeError) as raised:
            for _ in range(3):
                made(forward_step_func=forward_step, data_iterator=self.data(2), model=net, num_microbatches=2)
        self.assertRegex(str(raised.exception), "not permitted")

    def test_by_keyword_alone(self):
        made = reprise.megatron.full_iteration(schedule)
        with self.assertRaisesRegex(TypeError, "by keyword"):
            made(forward_step)
        with self.assertRaisesRegex(TypeError, "num_microbatches is missing"):
            made(data_iterator=None, model=None)
        self.assertIsNone(sys.modules.get("megatron") if not HAVE else None)


HAVE = importlib.util.find_spec("megatron") is not None and importlib.util.find_spec("megatron.core") is not None


@unittest.skipUnless(HAVE, "Megatron-core is not installed")
class Megatron(unittest.TestCase):
    """A GPT of Megatron's layers in its DistributedDataParallel, by its schedule."""

    SEQ, BATCH, VOCAB = 8, 2, 64
    FULL = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}

    @classmethod
    def setUpClass(cls):
        try:
            from megatron.core import jit, parallel_state
            from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
            from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
        except ImportError as error:
            raise unittest.SkipTest(f"Megatron-core lacks something: {error}") from error
        jit.disable_jit_fuser()
        distributed.init_process_group(group_beside_captures(INSTALL), rank=0, world_size=1,
                                       store=distributed.HashStore())
        distributed.all_reduce(torch.ones(1, device="cuda"))
        parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
        init_num_microbatches_calculator(0, None, 4, 2, 1)
        model_parallel_cuda_manual_seed(12, use_cudagraphable_rng=True)

    @classmethod
    def tearDownClass(cls):
        gc.collect()
        distributed.destroy_process_group()

    def build(self, dropout, **recompute):
        from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
        from megatron.core.models.gpt import GPTModel
        from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
        from megatron.core.transformer.transformer_config import TransformerConfig
        config = TransformerConfig(
            num_layers=2, hidden_size=WIDTH, num_attention_heads=4, hidden_dropout=dropout, attention_dropout=dropout,
            bias_dropout_fusion=False, bias_activation_fusion=False, masked_softmax_fusion=False,
            gradient_accumulation_fusion=False, apply_rope_fusion=False, persist_layer_norm=False,
            cross_entropy_loss_fusion=False, **recompute)
        self.seed()
        gpt = GPTModel(config=config, transformer_layer_spec=get_gpt_layer_local_spec(), vocab_size=self.VOCAB,
                       max_sequence_length=self.SEQ, position_embedding_type="rope").cuda()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            ddp = DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True), gpt)
        torch.cuda.synchronize()
        return ddp.train()

    def seed(self):
        from megatron.core.tensor_parallel.random import get_all_rng_states
        torch.manual_seed(21)
        for i, state in enumerate(get_all_rng_states().values()):
            state.manual_seed(22 + i)

    def train(self, ddp, function):
        self.seed()
        where = torch.arange(self.SEQ, device="cuda").expand(self.BATCH, -1).contiguous()
        params, seen = list(ddp.parameters()), []

        def step_of(iterator, model):
            tokens = next(iterator)["tokens"]
            out = model(tokens[:, :-1].contiguous(), where, None, labels=tokens[:, 1:].contiguous())

            def loss_of(out):
                loss = out.float().mean()
                return loss, {"loss": loss.detach()}
            return out, loss_of
        for _ in range(4):
            ddp.zero_grad_buffer()
            data = iter([{"tokens": torch.randint(self.VOCAB, (self.BATCH, self.SEQ + 1), device="cuda")}
                         for _ in range(2)])
            found = function(forward_step_func=step_of, data_iterator=data, model=[ddp], num_microbatches=2,
                             seq_length=self.SEQ, micro_batch_size=self.BATCH, forward_only=False)
            seen += [f["loss"] for f in found]
            with torch.no_grad():
                for param in params:
                    param.add_(param.main_grad.to(param.dtype), alpha=-0.1)
        return [*seen, *[p.detach() for p in params]]

    def check(self, dropout, make, **recompute):
        from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
        eager = get_forward_backward_func()
        want = self.train(self.build(dropout, **recompute), eager)
        ddp = self.build(dropout, **recompute)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore" if recompute else "error", message="reprise")
            function, facts = make(ddp, eager)
            got = self.train(ddp, function)
        for a, b in zip(got, want, strict=True):
            self.assertTrue(torch.equal(a, b))
        facts()

    def by_layers(self, ddp, eager):
        graphs = reprise.megatron.capture_layers([ddp], strict=True)
        return eager, lambda: self.assertEqual(
            [(f["kind"], f["way"], f["graphs"]) for f in graphs.layers()], [("TransformerLayer", "graph", 2)] * 2)

    def by_scope(self, ddp, eager):
        from megatron.core.transformer.enums import CudaGraphScope
        graphs = reprise.megatron.capture_layers([ddp], strict=True, scope=[CudaGraphScope.attn, CudaGraphScope.mlp])
        return eager, lambda: self.assertEqual(
            [(f["kind"], f["way"]) for f in graphs.layers()], [("SelfAttention", "graph"), ("MLP", "graph")] * 2)

    def test_attention_and_mlps(self):
        self.check(0.2, self.by_scope)

    def whole(self, ddp, eager):
        made = reprise.megatron.full_iteration(eager, strict=True)
        return made, lambda: self.assertEqual([len(g.shapes()) for g in made.graphs()], [1])

    def test_layers(self):
        self.check(0.0, self.by_layers)

    def test_layers_with_dropout(self):
        self.check(0.2, self.by_layers)

    def test_recomputed_layers(self):
        """Attention that is recomputed within a layer is left out by name; the rest is captured."""
        def make(ddp, eager):
            graphs = reprise.megatron.capture_layers([ddp])

            def facts():
                ways = {f["name"].partition("decoder.layers.")[2]: f for f in graphs.layers()}
                for layer in "01":
                    self.assertEqual(ways[f"{layer}.mlp"]["way"], "graph")
                    self.assertRegex(ways[f"{layer}.self_attention"]["reason"], "recomputes by Megatron's")
            return eager, facts
        self.check(0.2, make, recompute_granularity="selective", recompute_modules=["core_attn"])

    def test_whole_layers_that_are_recomputed(self):
        def make(ddp, eager):
            reprise.megatron.capture_layers([ddp])
            return eager, lambda: None
        self.check(0.2, make, **self.FULL)

    def test_recomputed_in_a_full_iteration(self):
        self.check(0.2, self.whole, **self.FULL)
        self.check(0.2, self.whole, recompute_granularity="selective", recompute_modules=["core_attn"])

    def test_full_iteration(self):
        self.check(0.0, self.whole)

    def test_full_iteration_with_dropout(self):
        self.check(0.2, self.whole)


if __name__ == "__main__":
    unittest.main()
