#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What changes between the calls of a graphed callable: each call gives what the callable gives, or an error
or a warning says that it does not. And programs that are written as people write them: they are
captured, and do not end the process. --install: with Reprise's allocator."""

import sys
import threading
import unittest
import warnings

import torch

import reprise

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

FACTOR = 2.0
CALLS = 4


def numbers():
    return torch.arange(8.0, device="cuda")


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.scales, self.options = 2.0, [2.0], {"scale": 2.0}

    def forward(self, x):
        return x * self.scale + self.scales[0] + self.options["scale"]


class Changes(unittest.TestCase):
    def told(self, fn, change, *args):
        """Calls fn until it is served by a graph, changes something, and calls it again."""
        made = reprise.graphed(fn)
        for _ in range(CALLS):
            made(*args)
        self.assertEqual(len(made.shapes()), 1, made.failures())
        change()
        want = fn(*args)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                got = [made(*args) for _ in range(CALLS)]
            except (RuntimeError, ValueError):
                return
        wrong = [one for one in got if not torch.equal(one, want)]
        self.assertTrue(not wrong or seen, "a value is frozen in silence")

    def test_number_of_a_closure(self):
        factor = 2.0

        def change():
            nonlocal factor
            factor = 3.0
        self.told(lambda x: x * factor, change, numbers())

    def test_global(self):
        def change():
            global FACTOR
            FACTOR += 1
        self.told(lambda x: x * FACTOR, change, numbers())

    def test_default(self):
        def fn(x, factor=2.0):
            return x * factor

        def change():
            fn.__defaults__ = (3.0,)
        self.told(fn, change, numbers())

    def test_attribute(self):
        net = Scaled()
        self.told(net, lambda: setattr(net, "scale", 3.0), numbers())

    def test_element_of_a_list(self):
        net = Scaled()
        self.told(net, lambda: net.scales.__setitem__(0, 3.0), numbers())

    def test_value_of_a_dict(self):
        net = Scaled()
        self.told(net, lambda: net.options.update(scale=3.0), numbers())

    def test_training_and_evaluation(self):
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(1.0)).cuda().eval()
        with torch.no_grad():
            self.told(net, net.train, numbers())

    def test_weight(self):
        net = torch.nn.Linear(8, 8).cuda()
        with torch.no_grad():
            self.told(net, lambda: net.weight.fill_(.5), numbers())

    def test_another_weight(self):
        net = torch.nn.Linear(8, 8).cuda()

        def change():
            net.weight = torch.nn.Parameter(torch.ones(8, 8, device="cuda"))
        with torch.no_grad():
            self.told(net, change, numbers())

    def test_number_as_argument(self):
        made = reprise.graphed(lambda x, k: x * k)
        for k in (2, 2, 2, 3, 2, 3):
            self.assertTrue(torch.equal(made(numbers(), k), numbers() * k))


class Written(unittest.TestCase):
    def net(self):
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(),
                                   torch.nn.Linear(16, 1)).cuda()

    def test_loop_that_keeps_its_loss(self):
        def losses(wrap):
            net = self.net()
            optimizer = torch.optim.SGD(net.parameters(), lr=.1)

            def step(x):
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                return loss
            step = wrap(step)
            kept = []
            for number in range(8):
                loss = step(numbers() + number)  # the last one is still there
                kept.append(loss.item())
            return kept, step
        want, _ = losses(lambda fn: fn)
        got, made = losses(reprise.graphed)
        torch.testing.assert_close(torch.tensor(got), torch.tensor(want))
        self.assertGreater(len(made.shapes()), 0, made.failures())

    def test_list_that_grows(self):
        kept = []

        def fn(x):
            kept.append(x.sum())
            return x * 2
        made = reprise.graphed(fn)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(6):
                made(numbers())
        self.assertEqual(len(kept), 6)

    def test_threads_of_four_shapes(self):
        net = self.net().eval()
        made = reprise.graphed(net)
        wrong = []

        def work(rows):
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                x = torch.ones(rows, 8, device="cuda")
                for _ in range(6):
                    if not torch.allclose(made(x), net(x)):
                        wrong.append(rows)
                torch.cuda.current_stream().synchronize()
        threads = [threading.Thread(target=work, args=(rows,)) for rows in (1, 2, 3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(len(made.shapes()), 4, made.failures())


if __name__ == "__main__":
    unittest.main(verbosity=2)
