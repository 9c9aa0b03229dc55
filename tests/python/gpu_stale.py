# SPDX-License-Identifier: MIT
"""Tensors that a graphed function uses beside its arguments, on a GPU: where one is freed and another
takes its place, calls give what eager calls give; where none is, nothing is captured anew. Always
under install(), whose heap is what tells: usage: gpu_stale.py [--install] ..."""

import copy
import gc
import sys
import unittest
import warnings

import torch

import reprise
from reprise._call.graphed import MOST_STALE
from training_steps import mlp

if "--install" in sys.argv:
    sys.argv.remove("--install")
reprise.install()

everywhere = None  # a tensor that a function finds among its globals
ROWS, WIDTH = 64, 128


def new(*shape):
    return torch.randn(*(shape or (ROWS, WIDTH)), device="cuda")


def stale(made):
    """How many graphs were dropped, of the shape that had most."""
    return max(reprise.graphed_of(made)._stale.values(), default=0)


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.said = warnings.catch_warnings(record=True)
        self.warnings = self.said.__enter__()
        self.addCleanup(self.said.__exit__, None, None, None)
        warnings.simplefilter("always")

    def told(self):
        return [str(w.message) for w in self.warnings if str(w.message).startswith("reprise: ")]


class Replaced(Case):
    def follows(self, fn, replace, *, shape=(), calls=4, rounds=3):
        """The graph gives what fn gives, before and after each change, and is captured anew once for
        each."""
        made = reprise.graphed(fn, strict=True)
        for n in range(rounds):
            for _ in range(calls):
                x = new(*shape)
                self.assertTrue(torch.equal(made(x), fn(x)), (n, "rounds"))
            facts, = made.shapes()
            self.assertEqual(facts["stale_graphs"], n)
            self.assertGreater(facts["outside_blocks"], 0)
            if n + 1 < rounds:
                replace()
        self.assertEqual(self.told(), [])
        return made

    def test_closed_over(self):
        held = new()

        def replace():
            nonlocal held
            held = new()
        self.follows(lambda x: x * 2 + held, replace)

    def test_replaced_at_the_same_address(self):
        held = [new()]

        def replace():
            before, others = held.pop().data_ptr(), []
            while not held:
                made = new()
                (held if made.data_ptr() == before else others).append(made)
                self.assertLess(len(others), 100)
        self.follows(lambda x: x + held[0], replace)

    def test_global(self):
        global everywhere
        everywhere = new()

        def replace():
            global everywhere
            everywhere = None
            everywhere = new()
        self.follows(lambda x: x - everywhere, replace)

    def test_list_of_tensors(self):
        held = [new() for _ in range(20)]

        def fn(x):
            for h in held:
                x = x + h
            return x

        def replace():
            held[7] = new()
        self.follows(fn, replace)

    def test_foreach_on_a_list(self):
        held = [new() for _ in range(40)]

        def replace():
            held[31] = new()
        self.follows(lambda x: sum(torch._foreach_add(held, 1.0)) + x, replace)

    def test_dict_on_an_object(self):
        class Model:
            def __init__(self):
                self.tables = {"a": new(), "b": new(WIDTH, WIDTH)}

            def __call__(self, x):
                return x @ self.tables["b"] + self.tables["a"]
        model = Model()

        def replace():
            model.tables["b"] = new(WIDTH, WIDTH)
        self.follows(model, replace)

    def test_views_and_large_ones(self):
        held = [new(4096, 1024)]

        def replace():
            held[0] = new(4096, 1024)
        self.follows(lambda x: x + held[0][2000:2000 + ROWS, 512:512 + WIDTH], replace)

    def test_a_cache_that_grows(self):
        cache = {"table": new(ROWS)}

        def fn(x):
            if len(x) > len(cache["table"]):
                cache["table"] = torch.arange(2.0 * len(x), device="cuda")
            return x * cache["table"][:len(x), None]
        made = reprise.graphed(fn)
        for rows in (16, 32, 16, 32, 200, 200, 200, 16, 32, 16, 200):
            x = new(rows, 8)
            self.assertTrue(torch.equal(made(x), fn(x)), rows)

    def test_freed_by_a_record_stream(self):
        held, side = [new()], torch.cuda.Stream()

        def replace():
            held[0].record_stream(side)
            held[0] = new()
        self.follows(lambda x: x + held[0], replace)

    def test_each_shape_by_itself(self):
        held = [new(WIDTH), new(WIDTH)]
        made = reprise.graphed(lambda x: x + held[len(x) % 2], strict=True)
        for _ in range(4):
            for rows in (32, 33):
                x = new(rows, WIDTH)
                self.assertTrue(torch.equal(made(x), x + held[rows % 2]))
        held[1] = new(WIDTH)
        for _ in range(4):
            for rows in (32, 33):
                x = new(rows, WIDTH)
                self.assertTrue(torch.equal(made(x), x + held[rows % 2]))
        # Either shape is captured again, as calls of both may read what is another by now; but only one
        # lost memory.
        self.assertEqual(sorted(f["stale_graphs"] for f in made.shapes()), [0, 0, 1])

    def test_forward_and_backward(self):
        held = [new(WIDTH, WIDTH)]

        def fn(x):
            return torch.tanh(x @ held[0]).sum(0)
        made = reprise.graphed(fn, strict=True)
        for n in range(3):
            for _ in range(3):
                x = new().requires_grad_()
                y = x.detach().clone().requires_grad_()
                made(x).sum().backward()
                fn(y).sum().backward()
                torch.testing.assert_close(x.grad, y.grad)
            self.assertEqual(stale(made), n)
            held[0] = new(WIDTH, WIDTH)

    def test_by_policy(self):
        held = [new()]
        made = reprise.graphed(lambda x: torch.relu(x + held[0]) * 2, policy="auto", strict=True)
        for _ in range(MOST_STALE + 1):
            for _ in range(60):
                x = new()
                self.assertTrue(torch.equal(made(x), torch.relu(x + held[0]) * 2))
            held[0] = new()
        self.assertLessEqual(stale(made), MOST_STALE)

    def test_thrashing_ends_and_is_told(self):
        held = [new()]
        made = reprise.graphed(lambda x: x + held[0])
        for _ in range(3 * MOST_STALE):
            x = new()
            self.assertTrue(torch.equal(made(x), x + held[0]))
            held[0] = new()
        self.assertEqual(stale(made), MOST_STALE)
        self.assertEqual(made.shapes(), [])
        text, = self.told()
        self.assertRegex(text, rf"{ROWS * WIDTH * 4} bytes \(kernel .*, byte \d+ of its parameters\), was freed after "
                               f"each of {MOST_STALE} captures")
        self.assertIn("as an argument", text)
        self.assertEqual(len(made.failures()), 1)
        self.assertIn("was freed", reprise.report())

    def test_gradients_that_the_program_drops(self):
        """A step zeroes gradients in place, so they are memory beside its arguments. Once the program
        sets them to None, the step makes others: no graph may keep those from run to run, so that
        its next call is eager, and the one after that captures."""
        net = mlp(WIDTH, 3)
        twin = copy.deepcopy(net)

        def step_of(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

            def step(x):
                optimizer.zero_grad(set_to_none=False)
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                return loss.detach()
            return step, optimizer
        (eager, theirs), (step, ours) = step_of(twin), step_of(net)
        made = reprise.graphed(step, grad="whole", watch=(net,))
        for n in range(12):
            x = new()
            torch.testing.assert_close(made(x), eager(x))
            if n == 6:
                self.assertEqual(len(made.shapes()), 1)
                ours.zero_grad()
                theirs.zero_grad()
        self.assertEqual(stale(made), 1)
        self.assertEqual(len(made.shapes()), 1)  # with the gradients of the eager call before
        for param, other in zip(net.parameters(), twin.parameters()):
            torch.testing.assert_close(param, other)


class Unchanged(Case):
    """Nothing is captured anew over a hundred calls."""

    def stays(self, made, call, calls=100):
        for n in range(calls):
            call()
            if n % 10 == 0:
                gc.collect()
                new(n + 1, WIDTH)  # and is freed
        self.assertEqual(stale(made), 0)
        self.assertEqual(self.told(), [])
        facts = made.shapes()
        self.assertTrue(facts and all(f["stale_graphs"] == 0 for f in facts))
        self.assertGreater(sum(f["outside_blocks"] for f in facts), 0)
        self.assertGreater(min(f["calls"] for f in facts), calls // 2)

    def test_inference(self):
        net = mlp(WIDTH, 3).eval()
        made = reprise.graphed(net, strict=True)
        with torch.no_grad():
            self.stays(made, lambda: made(new()))

    def test_dropout(self):
        net = mlp(WIDTH, 3, 0.5).train()
        made = reprise.graphed(net, strict=True)
        with torch.no_grad():
            self.stays(made, lambda: made(new()))

    def test_autocast(self):
        net = mlp(WIDTH, 3).eval()
        made = reprise.graphed(net, strict=True)

        def call():
            with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
                made(new())
        self.stays(made, call)

    def test_convolutions_and_attention(self):
        conv = torch.nn.Conv2d(8, 8, 3, padding=1).cuda()
        attention = torch.nn.MultiheadAttention(64, 4, batch_first=True).cuda().eval()

        def fn(x):
            y = conv(x).flatten(1).reshape(len(x), -1, 64)
            return attention(y, y, y)[0]
        made = reprise.graphed(fn, strict=True, watch=(conv, attention))
        with torch.no_grad():
            self.stays(made, lambda: made(new(4, 8, 16, 16)))

    def trained(self, optimizer_of, dropout=0.0):
        net = mlp(WIDTH, 3, dropout)
        optimizer = optimizer_of(net.parameters())

        def step(x, y):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()
        made = reprise.graphed(step, grad="whole", watch=(net,), strict=True)
        first = made(new(), torch.zeros(ROWS, WIDTH, device="cuda"))
        self.stays(made, lambda: made(new(), torch.zeros(ROWS, WIDTH, device="cuda")))
        last = made(new(), torch.zeros(ROWS, WIDTH, device="cuda"))
        self.assertLess(last.item(), first.item())

    def test_a_step_with_foreach_adam(self):
        self.trained(lambda p: torch.optim.Adam(p, lr=1e-3, foreach=True, capturable=True))

    def test_a_step_with_fused_adam(self):
        self.trained(lambda p: torch.optim.Adam(p, lr=1e-3, fused=True, capturable=True), 0.1)

    def test_a_step_with_adamw_and_clipping(self):
        net = mlp(WIDTH, 3)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=True, capturable=True)

        def step(x):
            loss = net(x).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=True)
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()
        made = reprise.graphed(step, grad="whole", watch=(net,), strict=True)
        self.stays(made, lambda: made(new()))

    def test_forward_and_backward(self):
        net = mlp(WIDTH, 3, 0.1)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, foreach=True)
        made = reprise.graphed(net, strict=True)

        def call():
            optimizer.zero_grad()
            made(new()).square().mean().backward()
            optimizer.step()
        self.stays(made, call)


if __name__ == "__main__":
    unittest.main(verbosity=2)
