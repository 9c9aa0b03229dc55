# SPDX-License-Identifier: MIT
"""What the tests of gradients on a GPU share: nets are trained eagerly and by graphs, and compared."""

import gc
import unittest
import warnings

import torch

import reprise


class Trained(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(),
                                       torch.nn.Linear(64, 64)).cuda()
        self.inputs = [torch.randn(16, 64, device="cuda") for _ in range(24)]

    def tearDown(self):
        gc.collect()  # graphs, and the homes of gradients

    def train_twice(self, make, train, rate=0.1):
        """Eagerly, and by graphs: parameters afterwards are the same to the bit. make(): a module;
        train(module, optimizer, graphed): trains it, and may return tensors to be compared too. The
        callables that it had from graphed, by graphs."""
        after = []
        for by_graphs in (False, True):
            torch.manual_seed(1)
            module, made = make(), []
            optimizer = torch.optim.SGD(module.parameters(), lr=rate)

            def graphed(fn, **options):
                made.append(reprise.graphed(fn, **options) if by_graphs else fn)
                return made[-1]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what stays eager
                told = train(module, optimizer, graphed) or ()
            after.append([*told, *(p.detach().clone() for p in module.parameters())])
        eager, graph = after
        torch.testing.assert_close(graph, eager, rtol=0, atol=0)
        return made

    def backward(self, net, x):
        loss = net(x).square().mean()
        loss.backward()
        return loss.detach()
