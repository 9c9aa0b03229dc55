# SPDX-License-Identifier: MIT
"""Gradients with homes, on a GPU, while programs do to them what programs do: losses, gradients before
each update and parameters are those of eager runs, to the bit. Usage: gpu_homes.py [--install] ..."""

import copy
import sys
import threading
import time
import unittest
from concurrent.futures import Future

import torch

import reprise
from trained import Trained
from unseen import Unseen

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

HANGS = 120  # seconds after which a thread that takes less than one is taken for dead


class Tied(torch.nn.Module):
    """Two layers of one weight, whose gradient is halved on its way, and a bias's once it is there."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.cuda()
        self.first.weight.register_hook(lambda grad: grad * 0.5)
        self.first.bias.register_post_accumulate_grad_hook(self.halve)

    @staticmethod
    def halve(param):
        param.grad.mul_(0.5)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def on_threads(*calls):
    """What calls return, each made on a thread of its own, all at once."""
    def run(call, future):
        try:
            future.set_result(call())
        except BaseException as error:  # told by the future
            future.set_exception(error)
    futures = [Future() for _ in calls]
    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in zip(calls, futures)]
    for thread in threads:
        thread.start()
    results = [future.result(HANGS) for future in futures]
    for thread in threads:
        thread.join()
    return results


class Homes(Trained):
    def check(self, train, make=None, rate=0.1):
        """train(net, optimizer, graphed): tensors to be compared. The callables of the graph side."""
        return self.train_twice(make or (lambda: copy.deepcopy(self.net)), train, rate)

    def counts(self, made):
        """How many graphs each callable has, of which none failed."""
        self.assertEqual([text for one in made for text in one.failures()], [])
        return [len(one.shapes()) for one in made]

    def train_micro(self, net, optimizer, back, between=lambda i: None, inputs=None):
        """Three micro-batches at a time, then an update, and gradients are dropped. Losses, and the
        gradients of each update. between(i): called behind the i-th micro-batch."""
        told = []
        for i, x in enumerate(inputs or self.inputs * 2):
            told.append(back(x).clone())
            between(i)
            if i % 3 == 2:
                told += [p.grad.clone() for p in net.parameters() if p.grad is not None]
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        return told

    def check_micro(self, step=None, between=lambda net, i: None, make=None, inputs=None, **options):
        """Micro-batches by one callable; step(net, x): a loss, after its backward pass."""
        step = step or self.backward

        def train(net, optimizer, graphed):
            back = graphed(lambda x: step(net, x), grad="whole", watch=[net], **options)
            return self.train_micro(net, optimizer, back, lambda i: between(net, i), inputs)
        return self.check(train, make)

    def test_nets_that_change_dtype_and_device_between_micro_batches(self):
        def between(net, i):
            if i in (10, 25):
                net.to(torch.float64)
                net.to(torch.float32)
            if i == 31:
                net.cpu()
                net.cuda()
        self.assertEqual(self.counts(self.check_micro(between=between)), [2])

    def test_nets_that_change_strides_between_micro_batches(self):
        """Gradients get the parameters' strides, as in eager runs."""
        base = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.ReLU(),
                                   torch.nn.Conv2d(8, 4, 3)).cuda()
        images = [x.reshape(4, 4, 8, 8) for x in self.inputs]

        def train(net, optimizer, graphed):
            back = graphed(lambda x: self.backward(net, x), grad="whole", watch=[net])

            def between(i):
                if i == 12:
                    net.to(memory_format=torch.channels_last)
            told = self.train_micro(net, optimizer, back, between, images)
            back(images[0])
            return [*told, torch.tensor([p.grad.stride()[-1] for p in net.parameters()])]
        with torch.backends.cudnn.flags(deterministic=True):
            made = self.check(train, lambda: copy.deepcopy(base))
        self.assertEqual(self.counts(made), [2])

    def test_gradients_that_are_part_of_a_graph_of_autograd(self):
        def step(net, x):
            loss = net(x).square().mean()
            loss.backward(create_graph=True)
            return loss.detach()

        def between(net, i):
            for p in net.parameters():
                p.grad = p.grad.detach() if p.grad.requires_grad else p.grad
        self.assertEqual(self.counts(self.check_micro(step, between)), [2])

    def test_penalties_of_gradients(self):
        def step(net, x):
            loss = net(x).square().mean()
            grads = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
            loss = loss + sum(grad.square().sum() for grad in grads)
            loss.backward()
            return loss.detach()
        self.assertEqual(self.counts(self.check_micro(step, strict=True)), [2])

    def test_two_callables_that_add_to_the_same_gradients(self):
        """In pools of their own, and an update that is a graph in a third one."""
        def train(net, optimizer, graphed):
            once = graphed(lambda x: self.backward(net, x), grad="whole", watch=[net])
            twice = graphed(lambda x: self.backward(net, x * 2), grad="whole", watch=[net])
            update = graphed(optimizer.step, watch=[net])
            told = []
            for i, x in enumerate(self.inputs * 2):
                told.append((twice if i % 3 == 1 else once)(x).clone())
                if i % 4 == 3:
                    told += [p.grad.clone() for p in net.parameters()]
                    update()
                    optimizer.zero_grad(set_to_none=True)
            return told
        self.assertEqual(self.counts(self.check(train)), [2, 2, 1])

    def test_micro_batches_on_streams_that_wait_for_each_other(self):
        """The device is behind in each of them."""
        def train(net, optimizer, graphed):
            here, there = torch.cuda.Stream(), torch.cuda.Stream()
            back = graphed(lambda x: self.backward(net, x), grad="whole", watch=[net])
            update = graphed(optimizer.step, watch=[net])
            told = []
            torch.cuda.synchronize()
            for i, x in enumerate(self.inputs * 2):
                here, there = there, here
                with torch.cuda.stream(here):
                    torch.cuda._sleep(200_000)
                    told.append(back(x).clone())
                there.wait_stream(here)
                if i % 3 == 2:
                    with torch.cuda.stream(there):
                        update()
                    here.wait_stream(there)
                    optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            return told
        self.assertEqual(self.counts(self.check(train)), [2, 1])

    def test_eager_calls_and_graphs_in_turns(self):
        """As policy="auto" does it. Eager calls are held up on the host, so that graphs are captured;
        in the end they are there, or were until eager calls had moved gradients too often."""
        def slowed(fn):
            def call(*args):
                time.sleep(0.01)
                return fn(*args)
            return call

        def train(net, optimizer, graphed):
            back = graphed(slowed(lambda x: self.backward(net, x)), grad="whole", policy="auto",
                           watch=[net])
            update = graphed(slowed(optimizer.step), policy="auto", watch=[net])
            for i, x in enumerate(self.inputs * 15):
                back(x)
                if i % 3 == 2:
                    update()
                    optimizer.zero_grad(set_to_none=True)
        back, _ = self.check(train, rate=0.01)
        self.assertTrue(back.shapes() or back.failures())

    def test_micro_batches_whose_captures_are_verified(self):
        made = self.check_micro(verify="capture")
        self.assertEqual(self.counts(made), [2])
        self.assertEqual([shape["verified"] for shape in made[0].shapes()], ["capture"] * 2)

    def test_gradients_that_a_scaler_unscales(self):
        def train(net, optimizer, graphed):
            scaler = torch.amp.GradScaler("cuda", init_scale=1024.)

            def step(x):
                with torch.autocast("cuda", dtype=torch.float16, cache_enabled=False):
                    loss = net(x).square().mean()
                scaler.scale(loss).backward()
                return loss.detach()
            back = graphed(step, grad="whole", watch=[net])
            told = []
            for i, x in enumerate(self.inputs * 2):
                told.append(back(x).clone())
                if i % 3 == 2:
                    scaler.unscale_(optimizer)
                    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                    told += [p.grad.clone() for p in net.parameters()]
                    scaler.step(optimizer)
                    scaler.update()
                    optimizer.zero_grad(set_to_none=True)
            return told
        self.assertEqual(self.counts(self.check(train)), [2])

    def test_layers_that_are_frozen_and_a_parameter_that_is_replaced(self):
        def train(net, optimizer, graphed):
            back = graphed(lambda x: self.backward(net, x), grad="whole", watch=[net])

            def between(i):
                if i % 12 == 5:
                    net[0].requires_grad_(i % 24 != 5)
                if i == 29:
                    net[2].weight = torch.nn.Parameter(net[2].weight.detach() * 0.5)
                    optimizer.param_groups[0]["params"] = list(net.parameters())
            return self.train_micro(net, optimizer, back, between)
        self.assertEqual(self.counts(self.check(train)), [4])

    def test_weights_that_are_tied_and_gradients_that_hooks_change(self):
        self.assertEqual(self.counts(self.check_micro(make=Tied, strict=True)), [2])

    def test_captures_that_raise_half_way(self):
        """Gradients are put back: the eager call that follows finds them, and the next capture."""
        for raising, graphs in (((2,), 2), ((2, 3), 1)):
            runs = Unseen()

            def train(net, optimizer, graphed):
                def step(x, adds):
                    loss = self.backward(net, x)
                    if adds and torch.cuda.is_current_stream_capturing():
                        runs.append(adds)
                        if len(runs) in raising:
                            raise ValueError("half-way")
                    return loss
                back = graphed(step, grad="whole", watch=[net])
                calls = iter(range(2 * len(self.inputs)))
                return self.train_micro(net, optimizer, lambda x: back(x, next(calls) % 3 > 0))
            with self.subTest(raising=raising):
                back, = self.check(train)
                self.assertGreaterEqual(len(runs), max(raising))
                # What was captured at a later attempt is no failure any more.
                self.assertEqual(back.failures(), ["ValueError: half-way"] if len(raising) > 1 else [])
                self.assertEqual(len(back.shapes()), graphs)

    def embedded(self, sparse):
        return torch.nn.Sequential(torch.nn.Embedding(50, 64, sparse=sparse),
                                   torch.nn.Linear(64, 8)).cuda()

    def test_gradients_of_an_embedding(self):
        """Some tokens are there twice."""
        tokens = [torch.randint(0, 50, (7,), device="cuda") for _ in range(24)]
        made = self.check_micro(make=lambda: self.embedded(False), inputs=tokens, strict=True)
        self.assertEqual(self.counts(made), [2])

    def test_sparse_gradients_beside_dense_ones_of_a_graph(self):
        """What leaves sparse ones stays eager, and adds to what a graph made, which others add to. No
        update has a token twice: these would be added in any order."""
        tokens = [ids for _ in range(8) for ids in torch.randperm(50, device="cuda")[:21].split(7)]

        def train(net, optimizer, graphed):
            last = net[1]
            of_tokens = graphed(lambda ids: self.backward(net, ids), grad="whole", watch=[net])
            of_last = graphed(lambda x: self.backward(last, x), grad="whole", watch=[last])
            told = []
            for i, (ids, x) in enumerate(zip(tokens, self.inputs)):
                told += [of_last(x).clone(), of_tokens(ids).clone()]
                if i % 3 == 2:
                    told += [p.grad.clone() for p in last.parameters()]
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
            return told
        of_tokens, of_last = self.check(train, lambda: self.embedded(True))
        self.assertIn("sparse gradients", " ".join(of_tokens.failures()))
        self.assertEqual(of_tokens.shapes(), [])
        self.assertEqual(self.counts([of_last]), [2])

    def test_calls_on_a_thread_each_one_after_the_other(self):
        def train(net, optimizer, graphed):
            back = graphed(lambda x: self.backward(net, x), grad="whole", watch=[net])
            return self.train_micro(net, optimizer, lambda x: on_threads(lambda: back(x))[0])
        self.assertEqual(self.counts(self.check(train)), [2])

    @unittest.skipUnless(INSTALL, "other threads should not allocate while a shape is captured")
    def test_threads_that_train_nets_of_their_own_at_once(self):
        def train(nets, _, graphed):
            def train_one(net):
                with torch.cuda.stream(torch.cuda.Stream()):
                    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
                    back = graphed(lambda x: self.backward(net, x), grad="whole", watch=[net])
                    told = self.train_micro(net, optimizer, back)
                    torch.cuda.current_stream().synchronize()
                return told
            torch.cuda.synchronize()  # the nets were copied on another stream
            return sum(on_threads(*(lambda net=net: train_one(net) for net in nets)), [])
        made = self.check(train, lambda: torch.nn.ModuleList(copy.deepcopy(self.net) for _ in range(3)))
        self.assertTrue(all(one.shapes() for one in made), [one.failures() for one in made])

    def test_estimates_of_parameters_that_have_homes(self):
        """They leave gradients as they are, and tell what the captures that follow take: of those that
        make gradients, which are brought home, and of those that add to what is there."""
        net, shapes = copy.deepcopy(self.net), [(self.inputs[0],), (self.inputs[0][:8],)]
        back = reprise.graphed(lambda x: self.backward(net, x), grad="whole", watch=[net], strict=True)
        self.train_micro(net, torch.optim.SGD(net.parameters(), lr=0.1), back)
        for adds in (False, True):
            made = reprise.graphed(lambda x: self.backward(net, x), grad="whole", watch=[net],
                                   strict=True)
            made(*shapes[0])  # the warm-up, which leaves gradients
            net.zero_grad(set_to_none=True)
            if adds:
                back(*shapes[0])
            before = [(p.grad, p.grad if p.grad is None else p.grad.clone()) for p in net.parameters()]
            found = reprise.estimate(made, shapes)
            with self.subTest(adds=adds):
                self.assertEqual(found.failures, [])
                for p, (grad, values) in zip(net.parameters(), before):
                    self.assertIs(p.grad, grad)
                    self.assertTrue(grad is None or torch.equal(grad, values))
                for args in shapes:
                    made(*args)
                    if not adds:
                        net.zero_grad(set_to_none=True)
                self.assertEqual(len(made.shapes()), len(shapes))
                if INSTALL:  # else PyTorch places blocks
                    self.assertEqual(found.planned_bytes, made.pool.info()["planned_bytes"])

    def test_updates_in_inference_mode(self):
        """Behind graphs of three shapes, whose gradients are dropped twice and zeroed twice."""
        def train(net, optimizer, graphed):
            back = graphed(lambda x: self.backward(net, x), grad="whole", watch=[net])
            update = graphed(lambda: optimizer.step(), watch=[net])
            told = []
            for i, x in enumerate(self.inputs * 2):
                optimizer.zero_grad(set_to_none=i % 4 > 1)
                told.append(back(x[:16 - 4 * (i % 3)]).clone())
                with torch.inference_mode(i % 5 == 4):
                    update()
            return told
        back, update = self.check(train)
        self.assertTrue(back.shapes())
        self.assertTrue(update.shapes(), update.failures())


if __name__ == "__main__":
    unittest.main()
