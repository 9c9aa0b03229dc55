# SPDX-License-Identifier: MIT
"""Training loops as people write them, on a GPU: each is run eagerly and by graphs, in up to three forms
(the whole step graphed, the model graphed, make_graphed_callables), and gives the losses and parameters
of the eager run, to the bit, by replays. Usage: gpu_training.py [--install] ..."""

import contextlib
import gc
import importlib.util
import sys
import tempfile
import unittest
import warnings
from unittest import mock

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import needs
import reprise
from reprise._shapes.split import Split
from training_steps import need_transformers

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

STEPS = 10
LATEST = 4  # replays may begin with this step
WIDTH, CLASSES, TOKENS = 32, 8, 50


def mlp(dropout=0.0):
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.Tanh(), torch.nn.Dropout(dropout),
                               torch.nn.Linear(64, CLASSES)).cuda()


def adam(net, **options):
    return torch.optim.Adam(net.parameters(), lr=1e-2, capturable=True, **options)


def sgd(net, **options):
    return torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1, **options)


def vectors(count=STEPS, rows=16):
    torch.manual_seed(3)
    return [(torch.randn(rows, WIDTH, device="cuda"), torch.randint(CLASSES, (rows,), device="cuda"))
            for _ in range(count)]


def sentences(count=STEPS, rows=4, length=12):
    torch.manual_seed(4)
    return [(torch.randint(TOKENS, (rows, length), device="cuda"),
             torch.randint(TOKENS, (rows, length), device="cuda")) for _ in range(count)]


def classify(net, x, y):
    return F.cross_entropy(net(x), y)


def predict(net, ids, labels):
    return F.cross_entropy(net(ids).flatten(0, 1), labels.flatten())


class Eager:
    """The way without graphs."""
    by_graphs = False

    @staticmethod
    def step(fn, **_):
        return fn

    @staticmethod
    def net(net, *_):
        torch.manual_seed(1)
        return net

    @staticmethod
    def around():
        return contextlib.nullcontext()


class WholeStep(Eager):
    """reprise.graphed(step)."""
    by_graphs = True

    def __init__(self):
        self.made = []

    def step(self, fn, **options):
        self.made.append(reprise.graphed(fn, **options))
        return self.made[-1]

    def replays(self):
        return sum(shape["calls"] for made in self.made for shape in made.shapes()
                   if "backward" not in shape["name"])

    def failures(self):
        return [text for made in self.made for text in made.failures()]


class Model(WholeStep):
    """reprise.graphed(model), forward and backward as a pair."""
    step = staticmethod(Eager.step)

    def net(self, net, *_):
        made = reprise.graphed(net)
        torch.manual_seed(1)
        self.made.append(reprise.graphed_of(made))
        return made


class Callables(Eager):
    """reprise.make_graphed_callables."""
    by_graphs = True

    def __init__(self):
        self.replayed = 0  # forward passes

    def net(self, net, *sample):
        made = reprise.make_graphed_callables(net, sample)
        torch.manual_seed(1)  # its warm-up draws
        inner = made.forward
        made.forward = lambda *args: inner(*args)  # as programs put their own around
        return made

    def around(self):
        """Counts what graphs run, and not what the callable runs eagerly."""
        replay = Split.replay

        def counted(split, *args):
            self.replayed += 1
            return replay(split, *args)

        return mock.patch.object(Split, "replay", counted)

    def replays(self):
        return self.replayed

    def failures(self):
        return []


class Theirs(Eager):
    """torch.cuda.make_graphed_callables."""

    @staticmethod
    def net(net, *sample):
        made = torch.cuda.make_graphed_callables(net, sample)
        torch.manual_seed(1)
        return made


WAYS = {"step": WholeStep, "model": Model, "callables": Callables}


class Case(unittest.TestCase):
    def tearDown(self):
        gc.collect()

    def train(self, program, way):
        """program(way) returns what it trained, a module, and its losses; both, as tensors."""
        torch.manual_seed(1)
        with way.around():
            net, losses = program(way)
        gc.collect()
        return [torch.stack([x.detach() for x in losses]), *[p.detach().clone() for p in net.parameters()]]

    def same(self, program, names="step model callables", replays=STEPS - LATEST, compared=True,
             beside=Eager):
        """The program gives in each way what it gives in one of PyTorch's, and goes by that many replays at
        least. compared: do all its kernels compute here?"""
        want = self.train(program, beside)
        self.assertFalse(compared and torch.equal(want[0][0], want[0][-1]), "nothing was trained")
        for name in names.split():
            with self.subTest(way=name), warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                way = WAYS[name]()
                got = self.train(program, way)
                if compared:
                    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
                told = [str(w.message) for w in seen if "reprise" in str(w.message)]
                self.assertGreaterEqual(way.replays(), replays, (way.failures(), told))


class Kept(Case):
    """Something of earlier steps is alive while the first graph is captured."""

    def loop(self, keep, before=None, build=mlp, optimizer=sgd, data=vectors, loss_of=classify):
        def program(way):
            net, batches = build(), data()
            opt = optimizer(net)
            kept = before(net, batches) if before else []
            call = way.net(net, batches[0][0])

            def step(x, y):
                opt.zero_grad()
                out = call(x)
                loss = F.cross_entropy(out.flatten(0, -2), y.flatten())
                loss.backward()
                opt.step()
                return loss, out
            step, losses = way.step(step), []
            for x, y in batches:
                kept = keep(kept, *step(x, y))
                losses.append(kept[0].detach().clone())
            return net, losses
        return program

    def test_last_loss(self):
        self.same(self.loop(lambda kept, loss, out: [loss]))

    def test_last_outputs(self):
        self.same(self.loop(lambda kept, loss, out: [loss.detach(), out]))

    def test_all_losses(self):
        self.same(self.loop(lambda kept, loss, out: [loss, out, *kept]))

    def test_backward_pass_before_that_is_dropped(self):
        def before(net, batches):
            classify(net, *batches[0]).backward()
        self.same(self.loop(lambda kept, loss, out: [loss.detach()], before))

    def test_backward_pass_before_that_is_kept(self):
        def before(net, batches):
            loss = classify(net, *batches[0])
            loss.backward()
            return [loss]
        self.same(self.loop(lambda kept, loss, out: [loss.detach(), *kept[-1:]], before))

    def test_loss_before_without_a_backward_pass(self):
        def before(net, batches):
            return [classify(net, *batches[0])]
        self.same(self.loop(lambda kept, loss, out: [loss.detach(), *kept[-1:]], before))

    def test_graph_of_another_shape_is_kept(self):
        """The second shape is captured while the first one's loss is alive."""
        def program(way):
            net, opt_of = mlp(), sgd
            opt = opt_of(net)
            call = way.net(net)

            def step(x, y):
                opt.zero_grad()
                loss = classify(call, x, y)
                loss.backward()
                opt.step()
                return loss
            step, losses, last = way.step(step), [], None
            for i, (x, y) in enumerate(vectors(2 * STEPS)):
                last = step(x, y) if i < STEPS else step(x[:7], y[:7])
                losses.append(last.detach().clone())
            return net, losses
        self.same(program, "step model", 2 * (STEPS - LATEST))

    def test_a_kept_loss_is_gone_back_through(self):
        """A loss that was made before a capture, after it: its gradients reach the parameters."""
        def program(way):
            net, batches = mlp(), vectors()
            kept = sum(p.sum() for p in net.parameters())  # in whose backward pass no value matters
            call = way.net(net, batches[0][0])

            def step(x, y):
                net.zero_grad()
                loss = classify(call, x, y)
                loss.backward()
                return loss.detach()
            step, losses = way.step(step), []
            for x, y in batches:
                losses.append(step(x, y).clone())
            kept.backward()
            losses += [p.grad.sum() for p in net.parameters()]
            return net, losses
        self.same(program)


class Hooks(Case):
    def loop(self, arrange, optimizer=sgd, build=mlp):
        """arrange(net): registers hooks."""
        def program(way):
            net, batches = build(), vectors()
            opt = optimizer(net)
            arrange(net)
            call = way.net(net, batches[0][0])

            def step(x, y):
                opt.zero_grad()
                loss = classify(call, x, y)
                loss.backward()
                opt.step()
                return loss.detach()
            step, losses = way.step(step), []
            for x, y in batches:
                losses.append(step(x, y).clone())
            return net, losses
        return program

    def test_hooks_of_parameters(self):
        def arrange(net):
            for p in net.parameters():
                p.register_hook(lambda grad: grad * 0.5)
        self.same(self.loop(arrange))

    def test_hooks_behind_accumulation(self):
        def arrange(net):
            def halve(p):
                p.grad.mul_(0.5)
            for p in net.parameters():
                p.register_post_accumulate_grad_hook(halve)
        self.same(self.loop(arrange))

    def test_optimizers_behind_accumulation(self):
        """Each parameter's optimizer steps as soon as its gradient is there."""
        def program(way):
            net, batches = mlp(), vectors()
            opts = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in net.parameters()}

            def hook(p):
                opts[p].step()
                opts[p].zero_grad()
            for p in net.parameters():
                p.register_post_accumulate_grad_hook(hook)
            call = way.net(net, batches[0][0])

            def step(x, y):
                loss = classify(call, x, y)
                loss.backward()
                return loss.detach()
            step, losses = way.step(step), []
            for x, y in batches:
                losses.append(step(x, y).clone())
            return net, losses
        self.same(program)

    def test_main_grad(self):
        def program(way):
            net, batches = mlp(), vectors()
            for p in net.parameters():
                p.main_grad = torch.zeros_like(p)

                def collect(p):
                    p.main_grad.add_(p.grad)
                    p.grad = None
                p.register_post_accumulate_grad_hook(collect)
            call = way.net(net, batches[0][0])

            def step(x, y):
                for p in net.parameters():
                    p.main_grad.zero_()
                loss = classify(call, x, y)
                loss.backward()
                with torch.no_grad():
                    for p in net.parameters():
                        p.sub_(p.main_grad, alpha=0.1)
                return loss.detach()
            step, losses = way.step(step), []
            for x, y in batches:
                losses.append(step(x, y).clone())
            return net, losses
        self.same(program)

    def with_nodes(self, way):
        """As DistributedDataParallel's and Megatron's: on the parameters' nodes, which somebody keeps."""
        net, batches = mlp(), vectors()
        opt, nodes = sgd(net), []
        for p in net.parameters():
            p.main_grad = torch.zeros_like(p)

            def collect(*_, p=p):
                p.main_grad.add_(p.grad)
            node = p.expand_as(p).grad_fn.next_functions[0][0]
            node.register_hook(collect)
            nodes.append(node)
        call = way.net(net, batches[0][0])

        def step(x, y):
            opt.zero_grad()
            loss = classify(call, x, y)
            loss.backward()
            with torch.no_grad():
                for p in net.parameters():
                    p.sub_(p.main_grad, alpha=0.01)
            return loss.detach()
        step, losses = way.step(step), []
        for x, y in batches:
            losses.append(step(x, y).clone())
        return net, losses

    def test_hooks_of_nodes(self):
        self.same(self.with_nodes, "model callables")
        # Since 2.14 PyTorch refuses it first, as an error like a program's own.
        with self.assertWarnsRegex(UserWarning, "added up by nodes with hooks of their own|"
                                                "has a stale reference to the default stream"):
            self.train(self.with_nodes, WholeStep())
        self.same(self.with_nodes, "step", 0)

    def test_hooks_of_nodes_on_a_stream(self):
        """As whole steps with such hooks have to be written."""
        def program(way):
            with torch.cuda.stream(torch.cuda.Stream()):
                return self.with_nodes(way)
        self.same(program)

    @needs.recurrent_nets
    def test_hooks_of_the_parameters_of_a_recurrent_net(self):
        """Whose module has a list of them too."""
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn, self.head = torch.nn.RNN(8, 16, batch_first=True), torch.nn.Linear(16, CLASSES)

            def forward(self, x):
                return self.head(self.rnn(x.view(-1, 4, 8))[0][:, -1])

        def arrange(net):
            for p in net.parameters():
                p.register_hook(lambda grad: grad * 0.5)
        self.same(self.loop(arrange, build=lambda: Net().cuda()))

    def test_a_parameter_with_hooks_that_is_used_beside_its_module(self):
        """Nothing can stand in its place: eager, and told."""
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = mlp()
                self.beside = [self.inner[3].weight]

            def forward(self, x):
                return self.inner(x) + self.beside[0].mean()

        def arrange(net):
            net.inner[3].weight.register_hook(lambda grad: grad * 0.5)
        with self.assertWarnsRegex(UserWarning, "with hooks is used beside the attribute of its module"):
            self.train(self.loop(arrange, build=Net), Model())
        self.same(self.loop(arrange, build=Net), "model", 0)

    def test_hooks_of_results_within_the_net(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = mlp()

            def forward(self, x):
                x = self.inner[1](self.inner[0](x))
                if x.requires_grad:
                    x.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
                return self.inner[3](x)

        def program(way):
            net, batches = Net(), vectors()
            opt = sgd(net)
            call = way.net(net, batches[0][0])

            def step(x, y):
                opt.zero_grad()
                loss = classify(call, x, y)
                loss.backward()
                opt.step()
                return loss.detach()
            step, losses = way.step(step), []
            for x, y in batches:
                losses.append(step(x, y).clone())
            return net, losses
        self.same(program)


class Simple(Case):
    def simple(self, build=mlp, optimizer=sgd, data=vectors, loss_of=classify, to_none=True,
               behind=lambda net: None, after=lambda net, opt, i: None, before=lambda net, i: None):
        """behind(net): in the step, behind the backward pass; before and after: around it."""
        def program(way):
            net, batches = build(), data()
            opt = optimizer(net)
            call = way.net(net, batches[0][0])

            def step(x, y):
                opt.zero_grad(set_to_none=to_none)
                loss = loss_of(call, x, y)
                loss.backward()
                behind(net)
                opt.step()
                return loss.detach()
            step, losses = way.step(step), []
            for i, (x, y) in enumerate(batches):
                before(net, i)
                losses.append(step(x, y).clone())
                after(net, opt, i)
            return net, losses
        return program


class Loops(Simple):
    """The common things between a loss and the next step."""

    def test_gradients_dropped(self):
        self.same(self.simple(optimizer=adam))

    def test_gradients_zeroed(self):
        self.same(self.simple(optimizer=adam, to_none=False))

    def test_dropout(self):
        self.same(self.simple(lambda: mlp(0.3)))

    def test_clipping(self):
        self.same(self.simple(behind=lambda net: torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)))

    def test_clipping_by_value(self):
        self.same(self.simple(behind=lambda net: torch.nn.utils.clip_grad_value_(net.parameters(), 0.01)))

    def test_average_of_parameters(self):
        def program(way):
            net, batches = mlp(), vectors()
            opt, average = sgd(net), [p.detach().clone() for p in net.parameters()]
            call = way.net(net, batches[0][0])

            def step(x, y):
                opt.zero_grad()
                loss = classify(call, x, y)
                loss.backward()
                opt.step()
                with torch.no_grad():
                    torch._foreach_lerp_(average, list(net.parameters()), 0.05)
                return loss.detach() + sum(a.mean() for a in average)
            step, losses = way.step(step), []
            for x, y in batches:
                losses.append(step(x, y).clone())
            return net, losses
        self.same(program)

    def test_averaged_model_between_steps(self):
        def program(way):
            net, batches = mlp(), vectors()
            opt = sgd(net)
            average = torch.optim.swa_utils.AveragedModel(
                net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
            call = way.net(net, batches[0][0])

            def step(x, y):
                opt.zero_grad()
                loss = classify(call, x, y)
                loss.backward()
                opt.step()
                return loss.detach()
            step, losses = way.step(step), []
            for x, y in batches:
                losses.append(step(x, y).clone())
                average.update_parameters(net)
            return average.module, losses
        self.same(program, "step model")

    def test_schedule_of_a_tensor(self):
        def program(way):
            net, batches = mlp(), vectors()
            opt = torch.optim.AdamW(net.parameters(), lr=torch.tensor(1e-2, device="cuda"), capturable=True)
            schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: 0.9 ** k)
            call = way.net(net, batches[0][0])

            def step(x, y):
                opt.zero_grad()
                loss = classify(call, x, y)
                loss.backward()
                opt.step()
                return loss.detach()
            step, losses = way.step(step), []
            for x, y in batches:
                losses.append(step(x, y).clone())
                schedule.step()
            return net, losses
        self.same(program)

    def test_layers_that_are_frozen(self):
        def build():
            net = mlp()
            net[0].requires_grad_(False)
            return net
        self.same(self.simple(build))

    def test_layers_that_are_frozen_later(self):
        def before(net, i):
            if i == STEPS:
                net[0].requires_grad_(False)
        self.same(self.simple(data=lambda: vectors(2 * STEPS), before=before), "step model")

    def test_layers_that_are_thawed_later(self):
        def build():
            net = mlp()
            net[0].requires_grad_(False)
            return net

        def before(net, i):
            if i == STEPS:
                net[0].requires_grad_(True)
        self.same(self.simple(build, optimizer=lambda net: torch.optim.SGD(net.parameters(), lr=0.1),
                              data=lambda: vectors(2 * STEPS), before=before), "step model")

    def test_evaluation_between_steps(self):
        def program(way):
            net, batches = mlp(0.2), vectors(2 * STEPS)
            opt = sgd(net)
            call = way.net(net, batches[0][0])

            def step(x, y):
                opt.zero_grad()
                loss = classify(call, x, y)
                loss.backward()
                opt.step()
                return loss.detach()
            step, losses = way.step(step), []
            for i, (x, y) in enumerate(batches):
                losses.append(step(x, y).clone())
                if i % 5 == 4:
                    net.eval()
                    with torch.no_grad():
                        losses.append(classify(call, x, y))
                    net.train()
            return net, losses
        self.same(program, replays=STEPS)

    def test_accumulation_over_micro_batches(self):
        def program(way):
            net, batches = mlp(), vectors(3 * STEPS)
            opt = sgd(net)
            call = way.net(net, batches[0][0])

            def micro(x, y):
                loss = classify(call, x, y) / 3
                loss.backward()
                return loss.detach()
            micro, losses = way.step(micro, grad="whole"), []
            for i, (x, y) in enumerate(batches):
                losses.append(micro(x, y).clone())
                if i % 3 == 2:
                    opt.step()
                    opt.zero_grad()
            return net, losses
        self.same(program, replays=2 * STEPS)

    def test_several_optimizers(self):
        """A generator and what tells its results from data."""
        def program(way):
            maker = torch.nn.Sequential(torch.nn.Linear(8, WIDTH), torch.nn.Tanh(),
                                        torch.nn.Linear(WIDTH, WIDTH)).cuda()
            judge = torch.nn.Sequential(torch.nn.Linear(WIDTH, 16), torch.nn.LeakyReLU(0.2),
                                        torch.nn.Linear(16, 1)).cuda()
            of_maker, of_judge = adam(maker, betas=(0.5, 0.999)), adam(judge, betas=(0.5, 0.999))
            make = way.net(maker, torch.zeros(16, 8, device="cuda"))

            def step(real):
                noise = torch.randn(len(real), 8, device="cuda")
                of_judge.zero_grad()
                fake = make(noise)
                loss = (judge(real) - 1).square().mean() + judge(fake.detach()).square().mean()
                loss.backward()
                of_judge.step()
                of_maker.zero_grad()
                other = (judge(fake) - 1).square().mean()
                other.backward()
                of_maker.step()
                return loss.detach(), other.detach()
            step, losses = way.step(step), []
            for x, _ in vectors():
                losses += [one.clone() for one in step(x)]
            return torch.nn.ModuleList([maker, judge]), losses
        self.same(program)

    def test_losses_added(self):
        def loss_of(net, x, y):
            out = net(x)
            return F.cross_entropy(out, y) + 0.1 * out.square().mean()
        self.same(self.simple(loss_of=loss_of))

    def test_checkpoints(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = torch.nn.ModuleList(
                    torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(),
                                        torch.nn.Dropout(0.2)) for _ in range(3))
                self.head = torch.nn.Linear(WIDTH, CLASSES)

            def forward(self, x):
                for block in self.blocks:
                    x = checkpoint(block, x, use_reentrant=False)
                return self.head(x)
        self.same(self.simple(lambda: Net().cuda()))


class Tied(torch.nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = torch.nn.Embedding(TOKENS, width)
        self.mix = torch.nn.Linear(width, width)
        self.head = torch.nn.Linear(width, TOKENS, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.mix(self.embed(ids))))


class Recurrent(torch.nn.Module):
    def __init__(self, kind, width=16, layers=2, dropout=0.2):
        super().__init__()
        self.embed = torch.nn.Embedding(TOKENS, width)
        self.rnn = kind(width, width, layers, dropout=dropout, batch_first=True)
        self.head = torch.nn.Linear(width, TOKENS)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


class Attention(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.all, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(64, 64).tril().view(1, 1, 64, 64))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.all(x).split(c, dim=2))
        weights = (q @ k.transpose(-2, -1)) * k.shape[-1] ** -0.5
        weights = weights.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, c))


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attend = Attention(width, heads)
        self.wide = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                        torch.nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attend(self.first(x))
        return x + self.wide(self.second(x))


class Decoder(torch.nn.Module):
    """A decoder such as small programs for language have it, that gives logits and loss."""

    def __init__(self, width=16, heads=2, layers=2):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(TOKENS, width), torch.nn.Embedding(64, width)
        self.layers = torch.nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, TOKENS, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, ids, targets=None):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, TOKENS), targets.view(-1), ignore_index=-1)


class Language(Simple):
    """Nets of words."""

    def tied(self, **options):
        return self.simple(lambda: Tied().cuda(), data=sentences, loss_of=predict, **options)

    def test_tied_weights(self):
        self.same(self.tied())

    def test_tied_weights_and_momentum(self):
        self.same(self.tied(optimizer=lambda net: sgd(net, momentum=0.9), to_none=False))

    def recurrent(self, kind, keep):
        def program(way):
            net, batches = Recurrent(kind).cuda(), sentences()
            opt = sgd(net)
            call = way.net(net, batches[0][0])

            def step(ids, labels):
                opt.zero_grad()
                out = call(ids)
                loss = F.cross_entropy(out.flatten(0, 1), labels.flatten())
                loss.backward()
                opt.step()
                return loss, out
            step, losses, kept = way.step(step), [], None
            for ids, labels in batches:
                loss, out = step(ids, labels)
                losses.append(loss.detach().clone())
                kept = (loss, out) if keep else None
            del kept
            return net, losses
        return program

    def recurrent_same(self, kind, keep, compared=True):
        """Made callables are compared with PyTorch's where cuDNN draws the dropout, from a state in device
        memory: torch.manual_seed renews it at the next eager call, and graphs keep what warm-up advanced."""
        program = self.recurrent(kind, keep)
        self.same(program, "step model", compared=compared)
        self.same(program, "callables", compared=compared,
                  beside=Theirs if torch.backends.cudnn.is_available() else Eager)

    def cells(self, kind):
        """Their kernels compute nothing on the host driver: then it is only looked whether they are
        captured."""
        torch.manual_seed(2)
        net, x = kind(8, 8, batch_first=True), torch.randn(2, 3, 8)
        want = net(x)[0]
        computes = torch.allclose(net.cuda()(x.cuda())[0].cpu(), want, rtol=1e-3, atol=1e-3)
        for keep in (False, True):
            self.recurrent_same(kind, keep, computes)

    def test_rnn(self):
        self.recurrent_same(torch.nn.RNN, False)

    def test_rnn_whose_last_output_is_kept(self):
        self.recurrent_same(torch.nn.RNN, True)

    def test_lstm(self):
        self.cells(torch.nn.LSTM)

    def test_gru(self):
        self.cells(torch.nn.GRU)

    def test_rnn_with_state_carried_over(self):
        def program(way):
            net, head = torch.nn.RNN(WIDTH, 16, batch_first=True).cuda(), torch.nn.Linear(16, CLASSES).cuda()
            both = torch.nn.ModuleList([net, head])
            opt = sgd(both)

            def step(x, y, state):
                opt.zero_grad()
                out, state = net(x, state)
                loss = F.cross_entropy(head(out).flatten(0, 1), y.flatten())
                loss.backward()
                opt.step()
                return loss.detach(), state.detach()
            step, losses = way.step(step), []
            state = torch.zeros(1, 4, 16, device="cuda")
            for x, y in vectors():
                loss, state = step(x.view(4, 4, WIDTH), y.view(4, 4), state)
                losses.append(loss.clone())
            return both, losses
        self.same(program, "step")

    def decoder(self, way, dtype=None):
        """Micro-batches, clipping, decay of some parameters, a rate by the step, an evaluation."""
        net = Decoder().cuda()
        groups = [{"params": [p for p in net.parameters() if p.dim() >= 2], "weight_decay": 0.1},
                  {"params": [p for p in net.parameters() if p.dim() < 2], "weight_decay": 0.0}]
        opt = torch.optim.AdamW(groups, lr=torch.tensor(1e-2, device="cuda"), betas=(0.9, 0.95),
                                capturable=True)
        batches = sentences(2 * STEPS)
        call = way.net(net, *batches[0])

        def micro(x, y):
            with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
                _, loss = call(x, y)
            loss = loss / 2
            loss.backward()
            return loss
        micro, losses = way.step(micro, grad="whole"), []
        for i in range(STEPS):
            for group in opt.param_groups:
                group["lr"].fill_(1e-2 * 0.9 ** i)
            for x, y in batches[2 * i:2 * i + 2]:
                loss = micro(x, y)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            losses.append(loss.detach().clone())
        return net, losses

    def test_decoder(self):
        self.same(self.decoder)

    def test_decoder_in_bfloat16(self):
        self.same(lambda way: self.decoder(way, torch.bfloat16), "step model")


class Mixed(Case):
    """Automatic mixed precision."""

    def loop(self, dtype, scaled, cache=True, huge=(), **options):
        def program(way):
            net, batches = mlp(), vectors()
            opt = adam(net, **options)
            scaler = torch.amp.GradScaler("cuda", init_scale=2.0 ** 10, enabled=scaled)
            call = way.net(net, batches[0][0])

            def step(x, y):
                opt.zero_grad()
                with torch.autocast("cuda", dtype=dtype, cache_enabled=cache):
                    loss = classify(call, x, y)
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
                return loss.detach()
            step, losses = way.step(step), []
            for i, (x, y) in enumerate(batches):
                losses.append(step(x * 1e6 if i in huge else x, y).float().clone())
            return net, losses
        return program

    def test_bfloat16(self):
        self.same(self.loop(torch.bfloat16, False), "step model")

    def test_bfloat16_without_a_cache(self):
        self.same(self.loop(torch.bfloat16, False, False), "step model")

    def test_float16_with_a_scaler(self):
        """A step whose gradients are too large is left out."""
        self.same(self.loop(torch.float16, True, huge=(7,)), "model")

    def test_float16_with_a_scaler_in_whole_steps(self):
        """A fused optimizer looks on the device whether it has to leave the step out."""
        self.same(self.loop(torch.float16, True, huge=(7,), fused=True), "step")

    def test_float16_with_a_scaler_that_asks(self):
        """Other optimizers ask on the host: eager, with the line."""
        with self.assertWarnsRegex(UserWarning, r"could not be captured.*scaler\.step\(opt\)|grad_scaler\.py"):
            self.train(self.loop(torch.float16, True, huge=(7,)), WholeStep())
        self.same(self.loop(torch.float16, True, huge=(7,)), "step", 0)


class HuggingFace(Simple):
    """Programs of transformers."""

    def mixtral(self, dtype):
        transformers = need_transformers(self)
        config = transformers.MixtralConfig(
            vocab_size=TOKENS, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
            max_position_embeddings=64, bos_token_id=0, eos_token_id=0)

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = transformers.MixtralForCausalLM._from_config(
                    config, attn_implementation="eager", experts_implementation="grouped_mm").to(dtype)

            def forward(self, ids):
                return self.inner(ids, use_cache=False).logits.float()
        return self.simple(lambda: Net().cuda(), data=sentences, loss_of=predict)

    def test_mixtral(self):
        x, w = (torch.ones(*size, 16, 16, device="cuda", dtype=torch.bfloat16) for size in ((), (2,)))
        ends = torch.tensor([8, 16], device="cuda", dtype=torch.int32)
        try:
            computes = bool((F.grouped_mm(x, w, offs=ends) == 16).all())
        except (AttributeError, RuntimeError) as error:
            self.skipTest(f"there is no grouped product: {error}")
        if not computes:
            self.skipTest("the grouped product computes nothing here")
        self.same(self.mixtral(torch.bfloat16))

    def test_mixtral_in_single_precision(self):
        """PyTorch copies offsets to the host there: eager, with the line."""
        with self.assertWarnsRegex(UserWarning, r"could not be captured.*grouped_mm"):
            self.train(self.mixtral(torch.float32), WholeStep())

    def trained(self, graph):
        """The losses that Trainer logs of a small decoder; graph(net): graphs it, or parts of it."""
        import transformers
        torch.manual_seed(0)
        net = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=TOKENS, n_embd=32, n_layer=2, n_head=2, n_positions=32, bos_token_id=0,
            eos_token_id=0, attn_implementation="eager", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            use_cache=False)).cuda()
        torch.manual_seed(1)
        words = [{"input_ids": ids, "labels": ids} for ids in torch.randint(TOKENS, (64, 16))]
        made = graph(net)
        with tempfile.TemporaryDirectory() as folder:
            options = transformers.TrainingArguments(
                output_dir=folder, per_device_train_batch_size=4, max_steps=STEPS, logging_steps=1,
                report_to=[], save_strategy="no", disable_tqdm=True, learning_rate=1e-3, seed=3)
            trainer = transformers.Trainer(model=net, train_dataset=words, args=options)
            trainer.train()
        for one in made:
            self.assertGreaterEqual(min(s["calls"] for s in one.shapes()), STEPS - LATEST, one.failures())
        return [row["loss"] for row in trainer.state.log_history if "loss" in row]

    def test_trainer(self):
        if not importlib.util.find_spec("accelerate"):
            self.skipTest("Trainer needs accelerate")
        need_transformers(self)
        want = self.trained(lambda net: [])
        self.assertEqual(len(want), STEPS)
        self.assertEqual(self.trained(lambda net: [reprise.graphed_of(reprise.graphed_(net))]), want)
        self.assertEqual(self.trained(lambda net: [reprise.graphed_of(reprise.graphed_(layer))
                                                   for layer in net.transformer.h]), want)


class Contract(Case):
    """make_graphed_callables, as programs call PyTorch's."""

    def pair(self, build):
        torch.manual_seed(5)
        first = build().cuda()
        second = build().cuda()
        second.load_state_dict(first.state_dict())
        return first, second

    def step(self, net, *args, after=lambda out: out.square().mean()):
        """Result and gradients of a call."""
        net.zero_grad()
        out = net(*args)
        after(out).backward()
        return [out.detach(), *[p.grad.clone() for p in net.parameters()]]

    def test_pools_by_handle(self):
        handle = torch.cuda.graph_pool_handle()
        pairs = [self.pair(lambda: torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(),
                                                       torch.nn.Linear(64, 64))) for _ in range(3)]
        made = [reprise.make_graphed_callables(net, (torch.randn(16, WIDTH, device="cuda"),), pool=handle)
                for net, _ in pairs]
        for _ in range(2):
            for graphed, (_, net) in zip(made, pairs):
                x = torch.randn(16, WIDTH, device="cuda")
                torch.testing.assert_close(self.step(graphed, x), self.step(net, x), rtol=0, atol=0)

    def test_the_handle_of_a_pool(self):
        pool = reprise.Pool("sequence")
        graphed, net = self.pair(mlp)
        x = torch.randn(16, WIDTH, device="cuda")
        made = reprise.make_graphed_callables(graphed, (x,), pool=pool.handle)
        torch.testing.assert_close(self.step(made, x), self.step(net, x), rtol=0, atol=0)
        self.assertEqual(pool.info()["graphs"], 2)

    def test_calls_without_gradients(self):
        graphed, net = self.pair(lambda: torch.nn.Sequential(mlp(), torch.nn.Tanh()))
        sample = torch.randn(16, WIDTH, device="cuda", requires_grad=True)
        made = reprise.make_graphed_callables(graphed, (sample,))
        x = torch.randn(16, WIDTH, device="cuda")
        with torch.no_grad():
            out = made(x)
            self.assertFalse(out.requires_grad)
            self.assertTrue(torch.equal(out, net(x)))
        torch.testing.assert_close(self.step(made, x), self.step(net, x), rtol=0, atol=0)

    def test_calls_in_the_other_mode(self):
        graphed, net = self.pair(lambda: mlp(0.5))
        x = torch.randn(16, WIDTH, device="cuda")
        made = reprise.make_graphed_callables(graphed, (x,))
        made.eval(), net.eval()
        self.assertTrue(torch.equal(made(x[:3]), net(x[:3])))
        made.train(), net.train()
        for one in (made, net):
            torch.manual_seed(8)
            one.seen = self.step(one, x)
        torch.testing.assert_close(made.seen, net.seen, rtol=0, atol=0)

    def test_a_module_without_parameters(self):
        class Reversed(torch.nn.Module):
            def forward(self, given):
                x = given["x"]
                places = torch.arange(x.size(0) - 1, -1, -1, device=x.device).view(-1, 1)
                return {"out": torch.gather(x, 0, places.expand_as(x))}
        x = torch.randn(16, WIDTH, device="cuda")
        made = reprise.make_graphed_callables(Reversed().cuda(), ({"x": x, "unused": x + 1},),
                                              allow_unused_input=True)
        for _ in range(3):
            x = torch.randn(16, WIDTH, device="cuda")
            self.assertTrue(torch.equal(made({"x": x, "unused": x + 1})["out"], x.flip(0)))
        x = torch.randn(16, WIDTH, device="cuda", requires_grad=True)
        with self.assertWarnsRegex(UserWarning, "its sample did not"):
            out = made({"x": x, "unused": x.detach()})["out"]
        grad, = torch.autograd.grad(out[0].sum(), x)
        self.assertEqual(grad[-1].sum().item(), WIDTH)

    class Sections(torch.nn.Module):
        """Takes what it does not use."""

        def __init__(self, dropout=0.2):
            super().__init__()
            self.first = torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.Dropout(dropout))
            self.second = torch.nn.Sequential(torch.nn.Linear(64, CLASSES), torch.nn.Dropout(dropout))

        def forward(self, given):
            return {"out": self.second(self.first(given["x"]))}

    def unused(self, dtype):
        """A module, a function and a loss by graphs, in turn with those themselves."""
        graphed, net = self.pair(lambda: self.Sections(0.2 if dtype is None else 0.0))
        x = torch.randn(16, WIDTH, device="cuda", requires_grad=True)
        unused = torch.randn(16, 4, device="cuda", requires_grad=True)
        out = torch.randn(16, CLASSES, device="cuda", requires_grad=True)
        y = torch.randn(16, CLASSES, device="cuda")
        mixed = lambda: torch.autocast("cuda", dtype=dtype, enabled=dtype is not None,  # noqa: E731
                                       cache_enabled=False)
        with mixed():
            made = reprise.make_graphed_callables(
                (graphed, F.relu, F.mse_loss), (({"x": x, "unused": unused},), (out,), (out, y)),
                allow_unused_input=True)
        seen = []
        for module, relu, loss_of in (made, (net, F.relu, F.mse_loss)):
            torch.manual_seed(9)
            opt = torch.optim.SGD(module.parameters(), lr=0.1)
            for i in range(STEPS):
                torch.manual_seed(20 + i)
                data, target = torch.randn(16, WIDTH, device="cuda"), torch.rand_like(y)
                opt.zero_grad()
                with mixed():
                    loss = loss_of(relu(module({"x": data, "unused": unused})["out"]), target)
                loss.backward()
                opt.step()
            seen.append([loss.detach(), *[p.detach() for p in module.parameters()]])
        torch.testing.assert_close(*seen, rtol=0, atol=0)

    def test_unused_inputs(self):
        self.unused(None)

    def test_unused_inputs_in_bfloat16(self):
        self.unused(torch.bfloat16)

    def test_unused_inputs_in_float16(self):
        self.unused(torch.float16)

    def test_unused_inputs_that_are_not_allowed(self):
        unused = torch.randn(16, 4, device="cuda", requires_grad=True)
        with self.assertRaisesRegex(RuntimeError, "allow_unused"):
            reprise.make_graphed_callables(self.Sections().cuda(), (
                {"x": torch.randn(16, WIDTH, device="cuda"), "unused": unused},))

    def test_autocast_with_a_cache(self):
        with torch.autocast("cuda", dtype=torch.float16), self.assertRaisesRegex(RuntimeError, "cache"):
            reprise.make_graphed_callables(mlp(), (torch.randn(16, WIDTH, device="cuda"),))

    def test_arguments_of_other_strides_and_types(self):
        """The graph has the argument with the sample's strides and type, for which matrix products may be
        others than for the argument as it is."""
        graphed, net = self.pair(mlp)
        sample = torch.randn(16, WIDTH, device="cuda", requires_grad=True)
        made = reprise.make_graphed_callables(graphed, (sample,))

        def as_sample(given):
            return torch.empty_like(sample).copy_(given)
        for x in (torch.randn(WIDTH, 16, device="cuda").t(), torch.randn(16, WIDTH, device="cuda").double()):
            found = []
            for call in (made, lambda given: net(as_sample(given)), lambda given: net(given.float())):
                given = x.clone().requires_grad_()
                self.assertEqual(given.stride(), x.stride())
                out = call(given)
                found.append((out.detach(), *torch.autograd.grad(out.square().mean(), given)))
            torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
            torch.testing.assert_close(found[0], found[2], rtol=1e-5, atol=1e-6)
        with self.assertRaisesRegex(ValueError, "other shapes"):
            made(torch.randn(8, WIDTH, device="cuda"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
