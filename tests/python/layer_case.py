# SPDX-License-Identifier: MIT
"""A layer as training frameworks have them, and what compares its graphs with a twin."""

import contextlib
import gc
import unittest
import warnings

import torch

WIDTH = 64


class Layer(torch.nn.Module):
    """Called by name, with what is no tensor."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, WIDTH)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, hidden, scale=None, mask=None, *, power=1, **more):
        hidden = self.dropout(self.inner(hidden)).tanh()
        if scale is not None:
            hidden = hidden * scale
        if mask is not None:
            hidden = hidden.masked_fill(mask, 0.0)
        for _ in range(power):
            hidden = hidden * 1.5
        return hidden, more.get("extra")


def numbers(*shape, grad=False):
    return torch.randn(*shape, device="cuda", requires_grad=grad)


def pair(build):
    torch.manual_seed(3)
    first = build().cuda()
    second = build().cuda()
    second.load_state_dict(first.state_dict())
    return first, second


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def tearDown(self):
        gc.collect()

    def same(self, call, twin, module, other, *args, **kwargs):
        """Results and gradients of a call are the twin's."""
        seen = []
        for fn, net in ((call, module), (twin, other)):
            net.zero_grad()
            given = [a.detach().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args]
            torch.manual_seed(5)
            out = fn(*given, **kwargs)[0]
            out.square().sum().backward()
            seen.append([out.detach(), *[p.grad.clone() for p in net.parameters()],
                         *[a.grad for a in given if isinstance(a, torch.Tensor) and a.requires_grad]])
        for a, b in zip(*seen):
            self.assertTrue(torch.equal(a, b))

    @contextlib.contextmanager
    def silent(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
