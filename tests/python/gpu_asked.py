# SPDX-License-Identifier: MIT
"""Gradients of results that other results were computed from, and of those that only some results hang on, are
eager's to the bit. Usage: gpu_asked.py [--install] ..."""

import sys
import unittest
import warnings

import torch

import reprise

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

CALLS = 6
ASKED = 3  # from this call on somebody asks


class Net(torch.nn.Module):
    """Features, logits of these, and a loss of those."""

    def __init__(self, drops):
        super().__init__()
        self.first, self.last, self.drops = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4), drops

    def forward(self, x, target):
        features = torch.relu(self.first(x))
        if self.drops:
            features = torch.dropout(features, 0.25, True)
        logits = self.last(features)
        return features, logits, (logits - target).square().mean()


def told(use, graphed, drops=0.0, as_module=True, **options):
    """Of each call: its results, what use(net, x, results, number of the call) returns, and all gradients. And the
    callable."""
    torch.manual_seed(1)
    net = Net(drops).cuda()
    fn = net if as_module else (lambda x, target: net(x, target))
    call = reprise.graphed(fn, **options) if graphed else fn
    torch.manual_seed(2)
    found = []
    for i in range(CALLS):
        x, target = torch.randn(3, 8, device="cuda", requires_grad=True), torch.randn(3, 4, device="cuda")
        net.zero_grad()
        results = list(call(x, target))
        kept = [r.detach().clone() for r in results]
        used = use(net, x, results, i)
        found.append([t if t is None else t.detach().clone() for t in (*kept, *used, x.grad, *[
            p.grad for p in net.parameters()])])
    return found, call


def same(a, b):
    return a is b or (a is not None and b is not None and torch.equal(a, b))


def shapes(call):
    return reprise.graphed_of(call).shapes() if isinstance(call, torch.nn.Module) else call.shapes()


class Asked(unittest.TestCase):
    def check(self, use, asked=True, ways=(True, False), drops=(0.0, 0.25)):
        """Is use() told the same of graphs? asked: is that what makes calls eager?"""
        for as_module in ways:
            for dropped in drops:
                with self.subTest(as_module=as_module, drops=dropped), warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    eager, _ = told(use, False, dropped, as_module)
                    graphs, call = told(use, True, dropped, as_module)
                    self.assertEqual([len(row) for row in eager], [len(row) for row in graphs])
                    self.assertEqual([], [(i, k) for i, rows in enumerate(zip(eager, graphs))
                                          for k, pair in enumerate(zip(*rows)) if not same(*pair)])
                    texts = [str(w.message) for w in seen if "reprise" in str(w.message)]
                    self.assertEqual(1 if asked else 0, len(texts), texts)
                    self.assertEqual(asked, not shapes(call))
                    self.assertTrue(all("was computed from" in text for text in texts), texts)

    def test_losses_that_are_gone_back_from(self):
        def use(net, x, results, i):
            results[2].backward()
            return ()
        self.check(use, asked=False)

    def test_all_results_gone_back_from(self):
        def use(net, x, results, i):
            (results[2] + results[0].sum() + results[1].square().sum()).backward()
            return ()
        self.check(use, asked=False)

    def test_hooks(self):
        def use(net, x, results, i):
            got = []
            if i >= ASKED:
                results[0].register_hook(lambda grad: got.append(grad) or grad * 3)
                results[1].register_hook(lambda grad: got.append(grad) or grad * 0.5)
            loss = results[2] + results[0].square().sum()
            results.clear()
            loss.backward()
            return got
        self.check(use)

    def test_hooks_that_are_removed(self):
        def use(net, x, results, i):
            got = []
            results[0].register_hook(got.append).remove()
            results[2].backward()
            return got
        self.check(use, asked=False)

    def test_hooks_where_no_later_result_counts(self):
        def use(net, x, results, i):
            got = []
            results[0].register_hook(lambda grad: got.append(grad) or grad * 2)
            results[1].register_hook(lambda grad: got.append(grad))
            results[0].retain_grad()
            results[0].square().sum().backward()
            return [*got, results[0].grad]
        self.check(use, asked=False)

    def test_hooks_behind_a_write(self):
        """These are hooks of what the result is then."""
        def grads(call):
            found = []
            for i in range(CALLS):
                x, got = torch.full((4,), 0.5 * i, device="cuda", requires_grad=True), []
                y, z = call(x)
                y.mul_(2)
                handles = [y.register_hook(got.append), y.register_hook(lambda grad: grad * 7)]
                handles[1].remove()
                (y.sum() + z.square().sum()).backward()
                found += [x.grad, *got]
            return found

        def fn(x):
            y = x + 1
            return y, y * 3
        call = reprise.graphed(fn)
        eager, graphs = grads(fn), grads(call)
        self.assertEqual(2 * CALLS, len(graphs))
        self.assertTrue(all(map(torch.equal, eager, graphs)))
        self.assertTrue(call.shapes())

    def test_gradients_that_are_retained(self):
        def use(net, x, results, i):
            if i >= ASKED:
                for result in results:
                    result.retain_grad()
            (results[2] + results[1].sum()).backward(retain_graph=True)
            results[2].backward()
            return [result.grad for result in results[:2] if i >= ASKED]
        self.check(use)

    def test_gradients_of_a_result(self):
        def use(net, x, results, i):
            wanted = [x, *results[:2]] if i >= ASKED else [x]
            return torch.autograd.grad(results[2], wanted)
        self.check(use)

    def test_class_activation_maps(self):
        def use(net, x, results, i):
            found = torch.autograd.grad(results[1][:, i % 4].sum(), results[0], retain_graph=True)
            results[2].backward()
            return found
        self.check(use)

    def test_gradients_of_a_result_that_only_others_count_for(self):
        def use(net, x, results, i):
            found = torch.autograd.grad(results[1].square().sum(), results[1], retain_graph=True)
            with self.assertRaisesRegex(RuntimeError, "not have been used"):
                torch.autograd.grad(results[0].sum(), results[1], retain_graph=True)
            results[2].backward()
            return found
        self.check(use, asked=False)

    def test_passes_that_come_through_no_later_result(self):
        """Nothing is launched for them, as eager passes end at the result."""
        net = Net(0.0).cuda()
        call = reprise.graphed(net)
        for _ in range(CALLS):
            features, _, loss = call(torch.ones(3, 8, device="cuda"), torch.ones(3, 4, device="cuda"))
            before = [s["replays"] for s in shapes(call)]
            torch.autograd.grad(features.square().sum(), features)
            self.assertEqual(before, [s["replays"] for s in shapes(call)])
            loss.backward()
        self.assertTrue(before)

    def test_penalties_on_gradients_of_a_result(self):
        def use(net, x, results, i):
            grad, = torch.autograd.grad(results[2], results[0], create_graph=True)
            grad.square().sum().backward()
            return [grad]
        self.check(use, ways=(True,))

    def test_passes_to_some_inputs(self):
        def use(net, x, results, i):
            results[2].backward(inputs=[results[0], *net.parameters()] if i >= ASKED else None)
            return [results[0].grad]
        self.check(use)

    def test_autocast_is_as_in_the_call(self):
        class Half(Net):
            def forward(self, x, target):
                logits = self.last(self.first(x))
                return logits, (logits.float() - target).square().mean()

        def grads(graphed):
            torch.manual_seed(1)
            net = Half(0.0).cuda()
            call, found = reprise.graphed(lambda x, t: net(x, t)) if graphed else net, []
            for i in range(CALLS):
                x = torch.full((3, 8), 0.125 * i, device="cuda")
                with torch.autocast("cuda", torch.bfloat16):
                    logits, loss = call(x, x[:, :4] + 1)
                found.append(torch.autograd.grad(loss, [logits, *net.parameters()]))
            return found
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for a, b in zip(grads(False), grads(True)):
                for grad, other in zip(a, b):
                    self.assertEqual(grad.dtype, other.dtype)
                    self.assertTrue(torch.equal(grad, other))

    def test_buffers_are_moved_once(self):
        class Counted(Net):
            def __init__(self):
                super().__init__(0.0)
                self.register_buffer("count", torch.zeros((), device="cuda"))

            def forward(self, x, target):
                self.count.add_(1)
                return super().forward(x, target)
        net = Counted().cuda()
        call = reprise.graphed(net)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(CALLS):
                features, _, loss = call(torch.ones(3, 8, device="cuda"), torch.ones(3, 4, device="cuda"))
                torch.autograd.grad(loss, features)
        self.assertEqual(CALLS, net.count.item())

    def test_arguments_that_were_written_to(self):
        net = Net(0.0).cuda()
        call = reprise.graphed(net)
        x, target = torch.ones(3, 8, device="cuda"), torch.ones(3, 4, device="cuda")
        for _ in range(3):
            call(x, target)[2].backward()
        features, _, loss = call(x, target)
        target.add_(1)
        with self.assertRaisesRegex(RuntimeError, "was computed from"):
            torch.autograd.grad(loss, features)

    def test_a_graph_that_was_gone_back_through(self):
        net = Net(0.0).cuda()
        call = reprise.graphed(net)
        for _ in range(3):
            features, _, loss = call(torch.ones(3, 8, device="cuda"), torch.ones(3, 4, device="cuda"))
            loss.backward()
        with self.assertRaisesRegex(RuntimeError, "second time"):
            torch.autograd.grad(loss, features)

    def test_errors_where_they_are_wanted(self):
        net = Net(0.0).cuda()
        call = reprise.graphed(net, strict=True)
        for _ in range(3):
            features = loss = None  # or the next call waits for those
            features, _, loss = call(torch.ones(3, 8, device="cuda"), torch.ones(3, 4, device="cuda"))
            loss.backward(retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "was computed from"):
            torch.autograd.grad(loss, features)

    def test_views_of_an_earlier_result(self):
        def use_of(call):
            found = []
            for i in range(CALLS):
                x = torch.full((2, 8), 0.5 * i + 0.5, device="cuda", requires_grad=True)
                y, flat = call(x)
                got = []
                if i >= ASKED:
                    y.register_hook(got.append)
                flat.square().sum().backward()
                found.append([x.grad, *got])
            return found

        def fn(x):
            y = x.sin()
            return y, y.view(-1)[:8]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for a, b in zip(use_of(fn), use_of(reprise.graphed(fn)), strict=True):
                self.assertEqual(len(a), len(b))
                self.assertTrue(all(map(torch.equal, a, b)))


class Heads(torch.nn.Module):
    """Two results, each with parameters of its own."""

    def __init__(self):
        super().__init__()
        self.trunk, self.policy, self.value = (torch.nn.Linear(8, n) for n in (8, 4, 1))

    def forward(self, x):
        shared = torch.tanh(self.trunk(x))
        return self.policy(shared), self.value(shared)


class Unused(unittest.TestCase):
    def trained(self, graphed, loss_of):
        torch.manual_seed(1)
        net = Heads().cuda()
        opt = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.5)
        call = reprise.graphed(net) if graphed else net
        for i in range(CALLS):
            opt.zero_grad()
            loss_of(call(torch.full((3, 8), 0.25 * i, device="cuda")), i).backward()
            opt.step()
        return [p.detach().clone() for p in net.parameters()], call

    def test_parameters_that_no_gradient_comes_to(self):
        """An optimizer leaves them alone, and would not where their gradients were zeros."""
        def loss_of(results, i):
            return results[0 if i < 4 else i % 2].square().sum()
        eager, _ = self.trained(False, loss_of)
        graphs, call = self.trained(True, loss_of)
        self.assertTrue(all(map(torch.equal, eager, graphs)))
        self.assertTrue(shapes(call))

    def test_an_argument_that_no_gradient_comes_to(self):
        call = reprise.graphed(lambda x, y: (x * 2, y * 3))
        for i in range(CALLS):
            x, y = (torch.ones(4, device="cuda", requires_grad=True) for _ in range(2))
            call(x, y)[i % 2].sum().backward()
            self.assertEqual((i % 2 == 1, i % 2 == 0), (x.grad is None, y.grad is None))
        self.assertTrue(call.shapes())

    def test_numbers_beside_gradients(self):
        """A result without gradients has none to wait for."""
        call = reprise.graphed(lambda x: (x * 2, x.argmax()))
        for _ in range(CALLS):
            x = torch.ones(4, device="cuda", requires_grad=True)
            call(x)[0].sum().backward()
            self.assertEqual([2.0] * 4, x.grad.tolist())


if __name__ == "__main__":
    unittest.main()
