# SPDX-License-Identifier: MIT
"""Floats that are new at every call: replays write them into kernels' parameters, and results are those of
eager calls, to the bit. What else is done with one keeps it in the key. Usage: gpu_numbers.py [--install]"""

import collections
import itertools
import math
import random
import sys
import threading
import time
import types
import unittest
import warnings
from unittest import mock

import torch

import reprise
from reprise import _C
from reprise._reads import draws

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

CALLS = 14
AHEAD = 5  # calls until numbers are followed: an eager one, and four of a graph each
SCALE = 0.0


def number(i):
    """Positive, and none that work may be chosen by."""
    return 0.083 + 0.31 * i


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)
        self.scale = 0.0

    def forward(self, x):
        return self.layer(x).relu() * self.scale


class Numbers(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        self.x = torch.randn(4, 16, device="cuda")

    def calls(self, made, fn, change, calls=CALLS):
        """Calls both, and compares; change(i) returns what is given beside x."""
        for i in range(calls):
            more = change(i) or ()
            with torch.no_grad():
                wanted, found = fn(self.x, *more), made(self.x, *more)
            self.assertTrue(torch.equal(wanted, found), (i, more))

    def follows(self, fn, change, calls=CALLS):
        made = reprise.graphed(fn, strict=True)
        self.calls(made, fn, change, calls)
        self.assertEqual([s["replays"] for s in made.shapes()], [calls - AHEAD + 1])
        return made

    def refuses(self, fn, change, words="was new at each of 8 calls"):
        """No graph takes more than one value."""
        made = reprise.graphed(fn)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.calls(made, fn, change, 2 * CALLS)
        self.assertTrue(all(s["replays"] == 1 for s in made.shapes()))
        self.assertTrue(any(words in str(w.message) for w in said), [str(w.message) for w in said])

    def test_arguments(self):
        functions = {
            "factor": lambda x, t: x * t, "half": lambda x, t: x.half() * t, "quotient": lambda x, t: x / t,
            "computed": lambda x, t: (x * (2 * t + 1.25) - t) / (t ** 2 + 0.1),
            "power": lambda x, t: x.abs() ** t, "bounds": lambda x, t: x.clamp(-t, t),
            "filled": lambda x, t: x + torch.full((16,), t, device="cuda"),
            "eps": lambda x, t: torch.nn.functional.layer_norm(x, (16,), eps=t),
            "alpha": lambda x, t: torch.add(x, x, alpha=t),
            "slope": lambda x, t: torch.nn.functional.leaky_relu(x, t),
            "temperature": lambda x, t: (x / t).softmax(-1)}
        for name, fn in functions.items():
            with self.subTest(name):
                self.follows(fn, lambda i: (number(i),))

    def test_several_arguments_and_keywords(self):
        made = reprise.graphed(lambda x, a, *, b: x * a + b, strict=True)
        for i in range(CALLS):
            found = made(self.x, number(i), b=-number(2 * i))
            self.assertTrue(torch.equal(found, self.x * number(i) + -number(2 * i)))
        self.assertEqual([s["replays"] for s in made.shapes()], [CALLS - AHEAD + 1])

    def test_arguments_in_containers(self):
        self.follows(lambda x, options: x * options["t"][0], lambda i: ({"t": [number(i)]},))

    def test_another_shape_has_its_own(self):
        made = reprise.graphed(lambda x, t: x * t, strict=True)
        for i in range(2 * CALLS):
            x = torch.randn(3 + i % 2, 16, device="cuda")
            self.assertTrue(torch.equal(made(x, number(i)), x * number(i)))
        self.assertEqual(len(made.shapes()), 2)

    def test_signs_and_special_numbers_have_their_own(self):
        numbers = [0.1 * (i - 25) if i % 2 else 0.25 * (i - 24) for i in range(50)]
        made = reprise.graphed(lambda x, t: x.abs() * t, strict=True)
        self.calls(made, lambda x, t: x.abs() * t, lambda i: (numbers[i],), 50)
        special = [t for t in numbers if abs(t) in (0, 0.5, 1, 2, 3)]
        kinds = collections.Counter((t > 0, abs(t) > 1) for t in numbers if t not in special)
        self.assertLessEqual(len(made.shapes()), len(kinds) + len(special))
        self.assertEqual(max(s["replays"] for s in made.shapes()), max(kinds.values()))

    def test_a_result_that_work_is_chosen_by(self):
        """The square is another kernel than any other power: that call is eager."""
        def fn(x, t):
            return x.abs() ** (2 * t)
        made = reprise.graphed(fn, strict=True)
        numbers = [0.26 + 0.01 * i for i in range(30)]  # 0.5 is among them, 0.25 and 1.5 are below
        numbers[20:] = [1.5 if i % 2 else 0.75 + i for i in range(10)]
        self.calls(made, fn, lambda i: (numbers[i],), 30)
        self.assertEqual(made.failures(), [])

    def test_attributes(self):
        module = Scaled().cuda()

        def change(i):
            module.scale = number(i)
        made = self.follows(module, change)
        self.assertEqual(type(module.scale), float)
        module.scale = 2  # an int is another value
        with torch.no_grad():
            self.assertTrue(torch.equal(made(self.x), module(self.x)))

    def test_variables_and_items(self):
        cfg, space, t = {"t": 0.0}, types.SimpleNamespace(t=0.0), 0.0

        def change(i):
            nonlocal t
            global SCALE
            cfg["t"], space.t, t, SCALE = number(i), number(i + 1), number(i + 2), number(i + 3)
        self.follows(lambda x: (x * cfg["t"] + space.t) * t - SCALE, change)
        self.assertEqual(list(map(type, (cfg["t"], space.t, t, SCALE))), [float] * 4)

    def test_what_is_read_next_to_arguments(self):
        cfg = {"t": 0.0}

        def change(i):
            cfg["t"] = number(i)
            return (number(3 * i),)
        self.follows(lambda x, t: x * t - cfg["t"], change)

    def test_an_object_that_is_made_anew(self):
        """Its place goes with it."""
        cfg = None

        def change(i):
            nonlocal cfg
            cfg = {"t": number(i)}
        self.refuses(lambda x: x * cfg["t"], change)

    def test_other_uses(self):
        kept = []

        def keeps(x, t):
            kept[:] = [t]
            return x * t
        functions = {"compared": lambda x, t: x * t if t > 2 else x + t, "converted": lambda x, t: x * int(t),
                     "written": lambda x, t: x * float(f"{t:.1f}"),
                     "cut": lambda x, t: x[:, :1 + int(t)].sum() + x}
        for name, fn in functions.items():
            with self.subTest(name):
                self.refuses(fn, lambda i: (number(i),))
        with self.subTest("kept"):
            self.refuses(keeps, lambda i: (number(i),))

    def test_a_number_that_is_returned(self):
        made = reprise.graphed(lambda x, t: (x * t, t))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i in range(CALLS):
                found, t = made(self.x, number(i))
                self.assertEqual((type(t), t), (float, number(i)))
                self.assertTrue(torch.equal(found, self.x * t))

    def test_functions_of_math(self):
        """They take a float as it is, and nobody sees that."""
        root = math.sqrt
        self.refuses(lambda x, t: x * (2.0 if math.sqrt(t) > 1.5 else 0.25), lambda i: (number(i),))
        self.refuses(lambda x, t: x * (2.0 if root(t) > 1.5 else 0.25), lambda i: (number(i),))

    def test_numbers_computed_in_cpp(self):
        functions = {
            "step": lambda x, t: x * torch.linspace(0, t, 16, device="cuda"),
            "byte": lambda x, t: x + torch.full((16,), 10 * t, dtype=torch.uint8, device="cuda"),
            "whole": lambda x, t: x + torch.full((16,), 10 * t, dtype=torch.int32, device="cuda")}
        for name, fn in functions.items():
            with self.subTest(name):
                self.refuses(fn, lambda i: (number(i),))

    def test_captures_that_differ(self):
        """In any of their runs: no call gets what was captured with another number."""
        scratch, call_scalars = torch.zeros(16, device="cuda"), _C.call_scalars
        for differing in ([1], [2], [1, 3], [0, 1, 2, 3, 4], list(range(0, 20, 2)), list(range(20))):
            runs = itertools.count()

            def call_and_launch(numbers):
                run = next(runs)
                scratch.fill_(run if run in differing else 77)
                call_scalars(numbers)
            with self.subTest(differing), mock.patch.object(_C, "call_scalars", call_and_launch):
                made = reprise.graphed(lambda x, t: x * t)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.calls(made, lambda x, t: x * t, lambda i: (number(i),))
                follows = any(s["replays"] > 1 for s in made.shapes())
                self.assertEqual(follows, len(differing) <= 5)  # they are taken twice

    def test_numbers_that_become_integers_in_cpp(self):
        """Unseen: nobody tells what a kernel gets of them."""
        def integers(x, t):
            return x + torch.full((4, 16), t, dtype=torch.int32, device="cuda")
        functions = {
            "full": integers,
            "several": lambda x, t: integers(x, t * 10),
            "half as many again": lambda x, t: integers(x, t * 1.5),
            "few": lambda x, t: integers(x, t / 10),
            "hundredth": lambda x, t: integers(x, t * 0.01),
            "shifted": lambda x, t: integers(x, t * 2 - 1),
            "negative": lambda x, t: integers(x, -t * 3),
            "range": lambda x, t: x + torch.arange(t, device="cuda").sum(),
        }
        for name, fn in functions.items():
            for size in (1.0, 0.01, 0.13, 7.0, 300.0):
                with self.subTest(name, size=size), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    made = reprise.graphed(fn)
                    self.calls(made, fn, lambda i, size=size: ((0.083 + 0.31 * i) * size,), 2 * CALLS)

    def test_values_that_alternate_keep_their_graphs(self):
        made = reprise.graphed(lambda x, t: x * t, strict=True)
        for i in range(24):
            t = number(i % 3)
            self.assertTrue(torch.equal(made(self.x, t), self.x * t))
        self.assertEqual(len(made.shapes()), 3)

    def test_threads(self):
        """Each call gets its own number."""
        made = reprise.graphed(lambda x, t: x * t, strict=True)
        for i in range(AHEAD + 1):
            made(self.x, number(i))
        wrong = []

        def work(seed):
            with torch.cuda.stream(torch.cuda.Stream()):
                for i in range(200):
                    t = number(seed * 1000 + i)
                    if not torch.equal(made(self.x, t), self.x * t):
                        wrong.append(t)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        torch.cuda.synchronize()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_verified_graphs_follow_none(self):
        made = reprise.graphed(lambda x, t: x * t, verify="capture")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.calls(made, lambda x, t: x * t, lambda i: (number(i),))
        self.assertTrue(all(s["replays"] == 1 for s in made.shapes()))

    def test_policy(self):
        made = reprise.graphed(lambda x, t: x * t, policy="auto")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.calls(made, lambda x, t: x * t, lambda i: (number(i),))


class Draws(unittest.TestCase):
    """random.random() in a callable: its replays draw."""

    def setUp(self):
        torch.manual_seed(5)
        self.x = torch.randn(4, 16, device="cuda")

    def run_calls(self, fn, wrap, between=lambda i: None):
        """Results, and what the generator gives next."""
        random.seed(11)
        called, found = wrap(fn), []
        for i in range(CALLS):
            found.append(called(self.x))
            between(i)
        return found, random.random(), called

    def follows(self, fn, between=lambda i: None):
        wanted, following, _ = self.run_calls(fn, lambda fn: fn, between)
        found, next_one, made = self.run_calls(fn, lambda fn: reprise.graphed(fn, strict=True), between)
        self.assertTrue(all(map(torch.equal, wanted, found)))
        self.assertEqual(following, next_one)
        self.assertEqual([s["replays"] for s in made.shapes()], [CALLS - 1])
        self.assertIs(random.random.__self__, random._inst)

    def test_one_and_several(self):
        self.follows(lambda x: x * random.random())
        self.follows(lambda x: x * (2 * random.random() - 1) + random.random() / (1 + random.random()))

    def test_draws_and_seeds_between_calls(self):
        self.follows(lambda x: x + random.random(), lambda i: random.seed(i) if i % 3 else random.random())

    def test_next_to_a_number_that_is_new_at_every_call(self):
        cfg = {"t": 0.1}
        fn = (lambda x: x * random.random() + cfg["t"])

        def between(i):
            cfg["t"] = number(i)
        wanted = self.run_calls(fn, lambda fn: fn, between)[0]
        cfg["t"] = 0.1
        found, _, made = self.run_calls(fn, lambda fn: reprise.graphed(fn, strict=True), between)
        self.assertTrue(all(map(torch.equal, wanted, found)))
        self.assertEqual([s["replays"] for s in made.shapes()], [CALLS - AHEAD + 1])

    def test_a_result_that_work_is_chosen_by(self):
        """As a power of 1: the call is eager, with the numbers that were drawn for it."""
        def fn(x):
            return x.abs() ** (random.random() + random.random())
        made = reprise.graphed(fn, strict=True)
        for _ in range(2):
            made(self.x)
        numbers = iter([0.25, 0.375, 0.75, 0.25, 0.375, 0.25])
        with mock.patch.object(draws, "_draw", lambda: next(numbers)):
            for power in (0.625, 1.0, 0.625):
                self.assertTrue(torch.equal(made(self.x), self.x.abs() ** power), power)
        self.assertEqual([s["replays"] for s in made.shapes()], [3])  # and one that was eager

    def test_what_cannot_be_followed(self):
        own = random.Random(3)
        for name, fn in {"compared": lambda x: x * (2 if random.random() < 0.5 else 3),
                         "of another generator": lambda x: x * own.random(),
                         "whole": lambda x: x * random.randint(1, 9),
                         "uniform": lambda x: x * random.uniform(1, 2)}.items():
            with self.subTest(name), warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                own.seed(3)
                wanted, following, _ = self.run_calls(fn, lambda fn: fn)
                own.seed(3)
                found, next_one, made = self.run_calls(fn, reprise.graphed)
                self.assertTrue(all(map(torch.equal, wanted, found)))
                self.assertEqual(following, next_one)
                self.assertEqual(made.shapes(), [])
                self.assertTrue(any("random numbers of Python's" in str(w.message) for w in said))

    def test_other_threads_draw_from_the_generator(self):
        """While a run finds another function in the module."""
        seen, is_over = set(), threading.Event()

        def draw():
            while not is_over.is_set():
                seen.add(type(random.random()))
                time.sleep(0.001)

        def fn(x):
            time.sleep(0.02)
            return x * random.random()
        thread = threading.Thread(target=draw)
        thread.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            called = reprise.graphed(fn)
            for _ in range(4):
                called(self.x)
        is_over.set()
        thread.join()
        self.assertEqual(seen, {float})


class Training(unittest.TestCase):
    def run_steps(self, wrap, steps=CALLS):
        torch.manual_seed(2)
        net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).cuda()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.93)
        batch = torch.randn(8, 16, device="cuda")

        def step(x, weight):
            optimizer.zero_grad()
            out = net(x)
            loss = out.square().mean() + weight * out.abs().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        called, losses = wrap(step), []
        for i in range(steps):
            losses.append(called(batch, number(i)).item())
            schedule.step()
        return losses, called

    def test_a_weight_of_the_loss_beside_a_schedule(self):
        """A whole step: the number reaches forward and backward, next to the optimizer's."""
        wanted, _ = self.run_steps(lambda step: step)
        found, made = self.run_steps(lambda step: reprise.graphed(step, strict=True))
        self.assertEqual(wanted, found)
        self.assertEqual([s["replays"] for s in made.shapes()], [CALLS - AHEAD + 1])
        self.assertEqual([fact["way"] for fact in made.hyperparameters()], ["patched"])

    def test_forward_and_backward(self):
        """Of two graphs no number is followed."""
        def run(wrap):
            torch.manual_seed(2)
            layer = torch.nn.Linear(16, 1).cuda()
            batch, found = torch.randn(8, 16, device="cuda", requires_grad=True), []
            called = wrap(lambda x, t: (layer(x) * t).sum())
            for i in range(CALLS):
                loss = called(batch, number(i))
                loss.backward()
                found.append((loss.item(), batch.grad.sum().item()))
                batch.grad = None
            return found
        wanted = run(lambda fn: fn)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertEqual(wanted, run(reprise.graphed))


if __name__ == "__main__":
    unittest.main()
