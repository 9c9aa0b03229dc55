#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Kernels that compute on the host driver, next to PyTorch's on the CPU: values, and gradients of what has
some, in float, double, half and bfloat16. Random numbers are held against those that a GPU gives."""

import unittest

import torch
from torch.nn import functional

def copies(dtype, *tensors):
    """Of all at once, in another type."""
    with torch.no_grad():
        made = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
        torch._foreach_copy_(made, tensors)
    return torch.stack(made).double()


# Of a and b, normal numbers, and p, positive ones, each of 5 rows of 7.
OPERATORS = {
    "add": lambda a, b, p: a + b,
    "add_scalar": lambda a, b, p: a + 2.5,
    "sub": lambda a, b, p: a - b * 3,
    "from_scalar": lambda a, b, p: 1 - a,
    "mul": lambda a, b, p: a * b,
    "multiply_scalar": lambda a, b, p: a * 0.3,
    "div": lambda a, b, p: a / b,
    "divide_scalar": lambda a, b, p: a / 3,
    "divide_into": lambda a, b, p: 1 / b,
    "broadcast_rows": lambda a, b, p: a + b[:1],
    "broadcast_columns": lambda a, b, p: a * b[:, :1],
    "relu": lambda a, b, p: functional.relu(a),
    "gelu": lambda a, b, p: functional.gelu(a),
    "gelu_tanh": lambda a, b, p: functional.gelu(a, approximate="tanh"),
    "silu": lambda a, b, p: functional.silu(a),
    "leaky_relu": lambda a, b, p: functional.leaky_relu(a),
    "tanh": lambda a, b, p: a.tanh(),
    "sigmoid": lambda a, b, p: a.sigmoid(),
    "exp": lambda a, b, p: a.exp(),
    "log": lambda a, b, p: p.log(),
    "sqrt": lambda a, b, p: p.sqrt(),
    "rsqrt": lambda a, b, p: p.rsqrt(),
    "square": lambda a, b, p: a ** 2,
    "cube": lambda a, b, p: a ** 3,
    "inverse_square": lambda a, b, p: p ** (-2),
    "power": lambda a, b, p: p ** 1.7,
    "power_of_tensors": lambda a, b, p: p ** b,
    "abs": lambda a, b, p: a.abs(),
    "neg": lambda a, b, p: -a,
    "sin_cos": lambda a, b, p: a.sin() + b.cos(),
    "maximum": lambda a, b, p: torch.maximum(a, b),
    "minimum": lambda a, b, p: torch.minimum(a, b),
    "clamp": lambda a, b, p: a.clamp(-0.5, 0.4),
    "clamp_min": lambda a, b, p: a.clamp(min=0.1),
    "clamp_max": lambda a, b, p: a.clamp(max=0.1),
    "equal": lambda a, b, p: a == b,
    "not_equal": lambda a, b, p: a != a.clone(),
    "less": lambda a, b, p: a < b,
    "greater_equal": lambda a, b, p: a >= b,
    "greater_scalar": lambda a, b, p: a > 0.2,
    "less_equal_scalar": lambda a, b, p: a <= 0.2,
    "equal_scalar": lambda a, b, p: a.round() == 0,
    "where": lambda a, b, p: torch.where(a > 0, a, b),
    "masked_fill": lambda a, b, p: a.masked_fill(b > 0, 0.25),
    "nan_to_num": lambda a, b, p: torch.nan_to_num(a / 0 * 0, 1.5),
    "to_double": lambda a, b, p: a.double(),
    "to_half": lambda a, b, p: a.half().float(),
    "to_bfloat16": lambda a, b, p: a.bfloat16().float(),
    "to_long": lambda a, b, p: (a * 10).long(),
    "sum": lambda a, b, p: a.sum(),
    "sum_columns": lambda a, b, p: a.sum(0),
    "sum_rows": lambda a, b, p: a.sum(1),
    "mean": lambda a, b, p: a.mean(),
    "mean_rows": lambda a, b, p: a.mean(1, keepdim=True),
    "norm": lambda a, b, p: a.norm(),
    "amax": lambda a, b, p: a.amax(),
    "amax_rows": lambda a, b, p: a.amax(1),
    "max_values": lambda a, b, p: a.max(1).values,
    "max_indices": lambda a, b, p: a.max(1).indices,
    "min_indices": lambda a, b, p: a.min(0).indices,
    "argmax": lambda a, b, p: a.argmax(1),
    "argmax_all": lambda a, b, p: a.argmax(),
    "max": lambda a, b, p: a.max(),
    "min": lambda a, b, p: a.min(),
    "var": lambda a, b, p: a.var(1),
    "std": lambda a, b, p: a.std(),
    "all": lambda a, b, p: (a > 0).all(),
    "any_rows": lambda a, b, p: (a > 0).any(1),
    "allclose": lambda a, b, p: torch.allclose(a, a + 0),
    "softmax": lambda a, b, p: torch.softmax(a, -1),
    "log_softmax": lambda a, b, p: torch.log_softmax(a, -1),
    "softmax_columns": lambda a, b, p: torch.softmax(a, 0),
    "layer_norm": lambda a, b, p: functional.layer_norm(a, (7,)),
    "cross_entropy": lambda a, b, p: functional.cross_entropy(a, torch.arange(5, device=a.device)),
    "mse_loss": lambda a, b, p: functional.mse_loss(a, b),
    "cat": lambda a, b, p: torch.cat([a, b]),
    "cat_columns": lambda a, b, p: torch.cat([a, b], 1),
    "stack": lambda a, b, p: torch.stack([a, b], 1),
    "index_select": lambda a, b, p: a.index_select(0, torch.tensor([1, 3], device=a.device)),
    "index": lambda a, b, p: a[torch.tensor([1, 3], device=a.device)],
    "nonzero": lambda a, b, p: (b > 0).nonzero(),
    "gather": lambda a, b, p: a.gather(1, torch.arange(5, device=a.device)[:, None]),
    "scatter": lambda a, b, p: a.scatter(1, torch.arange(5, device=a.device)[:, None], 1.0),
    "scatter_add": lambda a, b, p: a.scatter_add(1, torch.arange(5, device=a.device)[:, None], b),
    "index_add": lambda a, b, p: a.index_add(0, torch.tensor([1, 3], device=a.device), b[:2]),
    "embedding": lambda a, b, p: functional.embedding(torch.tensor([1, 3, 1], device=a.device), a),
    "cumsum": lambda a, b, p: a.cumsum(1),
    "tril": lambda a, b, p: a.tril(),
    "flip": lambda a, b, p: a.flip(1),
    "roll": lambda a, b, p: a.roll(1),
    "arange": lambda a, b, p: torch.arange(5, device=a.device) * 2,
    "arange_float": lambda a, b, p: torch.arange(0, 1, 0.1, device=a.device),
    "linspace": lambda a, b, p: torch.linspace(0, 1, 5, device=a.device),
    "eye": lambda a, b, p: torch.eye(4, device=a.device),
    "matmul": lambda a, b, p: a @ b.t(),
    "matvec": lambda a, b, p: a @ b[0],
    "dot": lambda a, b, p: a[0] @ b[0],
    "bmm": lambda a, b, p: torch.bmm(a[None], b.t()[None]),
    "linear": lambda a, b, p: functional.linear(a, b, b[:, 0].contiguous()),
    "linear_relu": lambda a, b, p: functional.relu(functional.linear(a, b, b[:, 0].contiguous())),
    "convolution": lambda a, b, p: functional.conv2d(a[None, None], b[None, None, :3, :3]),
    "average_pool": lambda a, b, p: functional.adaptive_avg_pool2d(a[None, None], 1),
    "rms_norm": lambda a, b, p: functional.rms_norm(a, (7,)),
    "addcmul": lambda a, b, p: torch.addcmul(a, b, p, value=0.3),
    "addcdiv": lambda a, b, p: torch.addcdiv(a, b, p, value=0.3),
    "lerp": lambda a, b, p: torch.lerp(a, b, 0.3),
    "erf": lambda a, b, p: a.erf(),
    "floor_ceil": lambda a, b, p: a.floor() + b.ceil(),
    "repeat": lambda a, b, p: a.repeat(2, 2),
    "pad": lambda a, b, p: functional.pad(a, (1, 2)),
    "one_hot": lambda a, b, p: functional.one_hot(torch.arange(3, device=a.device)),
    "floor_divide": lambda a, b, p: torch.floor_divide((a * 9).long(), 3),
    "foreach_copy_to_float": lambda a, b, p: copies(torch.float32, a, b),
    "foreach_copy_to_bfloat16": lambda a, b, p: copies(torch.bfloat16, a, b),
    "remainder": lambda a, b, p: (a * 9).long() % 3,
}
# Sorting, which their gradient needs, is not computed.
NO_GRADIENT = {"index"}
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6, torch.float16: 3e-2, torch.bfloat16: 1e-1}


def split_copy(a, b, p):
    both = torch.cat([a, b, p], 1).detach()
    made = [torch.empty(both.shape[0], size, dtype=both.dtype, device=both.device) for size in (3, 11, 7)]
    torch.split_with_sizes_copy(both, [3, 11, 7], dim=1, out=made)
    return torch.cat(made, 1)


OPERATORS["split_with_sizes_copy"] = split_copy
OPERATORS["chunk_cat"] = lambda a, b, p: torch._chunk_cat([a.detach(), b.detach()[:3], p.detach().flatten()], 0, 2)
OPERATORS["chunk_cat_inside"] = lambda a, b, p: torch._chunk_cat([a.detach(), b.detach()[:, :4]], 1, 3)


def results(operator, device, inputs, gradient):
    given = [x.to(device, copy=True).requires_grad_() for x in inputs]
    value = operator(*given)
    shown = [value]
    if gradient and isinstance(value, torch.Tensor) and value.requires_grad:
        value.float().sum().backward()
        shown += [x.grad for x in given]
    return shown


class Operators(unittest.TestCase):
    def compare(self, name, dtype):
        torch.manual_seed(3)
        a, b = torch.randn(5, 7).to(dtype), (torch.randn(5, 7) + .01).to(dtype)
        inputs = a, b, a.abs() + .1
        gradient = name not in NO_GRADIENT
        try:
            want = results(OPERATORS[name], "cpu", inputs, gradient)
        except (RuntimeError, NotImplementedError):
            return  # the CPU has no such kernel
        got = results(OPERATORS[name], "cuda", inputs, gradient)
        for one, other in zip(got, want):
            if not isinstance(other, torch.Tensor):
                self.assertEqual(one, other)
            elif one is not None:
                torch.testing.assert_close(one.cpu(), other, rtol=TOLERANCE[dtype],
                                           atol=TOLERANCE[dtype], equal_nan=True)


def _add(name):
    def test(self):
        for dtype in TOLERANCE:
            with self.subTest(dtype=dtype):
                self.compare(name, dtype)
    setattr(Operators, f"test_{name}", test)


for _name in OPERATORS:
    _add(_name)


class Random(unittest.TestCase):
    """The first numbers after torch.manual_seed(0), as CUDA devices give them."""

    def first(self, want, draw):
        torch.manual_seed(0)
        torch.testing.assert_close(draw().cpu(), torch.tensor(want), rtol=0, atol=5e-5)

    def test_uniform(self):
        self.first([.3990, .5167, .0249], lambda: torch.rand(3, device="cuda"))

    def test_normal(self):
        self.first([-.9247, -.4253, -2.6438], lambda: torch.randn(3, device="cuda"))

    def test_many(self):
        torch.manual_seed(1)
        x = torch.randn(100000, device="cuda").cpu()
        self.assertLess(abs(x.mean().item()), .02)
        self.assertLess(abs(x.std().item() - 1), .02)
        dropped = functional.dropout(torch.ones(100000, device="cuda"), .25).cpu()
        self.assertEqual(set(dropped.tolist()), {0.0, dropped.max().item()})
        self.assertLess(abs((dropped == 0).float().mean().item() - .25), .01)
        whole = torch.randint(3, 9, (100000,), device="cuda").cpu()
        self.assertEqual((whole.min().item(), whole.max().item()), (3, 8))


class Optimizers(unittest.TestCase):
    """A few steps give the same parameters as on the CPU."""

    def steps(self, device, make):
        torch.manual_seed(5)
        net = torch.nn.Linear(6, 3).to(device)
        optimizer = make(net.parameters())
        for number in range(4):
            optimizer.zero_grad()
            x = torch.arange(12.0).reshape(2, 6) / 10 + number
            net(x.to(device)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        return [p.detach().cpu() for p in net.parameters()]

    def same(self, make, **on_gpu):
        want = self.steps("cpu", make)
        for one, other in zip(self.steps("cuda", lambda p: make(p, **on_gpu)), want):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)

    def test_sgd(self):
        self.same(lambda p, **more: torch.optim.SGD(p, lr=.1, momentum=.9, weight_decay=.01, **more))

    def test_adam(self):
        self.same(lambda p, **more: torch.optim.Adam(p, lr=.01, **more))

    def test_adam_capturable(self):
        self.same(lambda p, **more: torch.optim.Adam(p, lr=.01, **more), capturable=True)

    def test_adam_fused(self):
        self.same(lambda p, **more: torch.optim.AdamW(p, lr=.01, weight_decay=.1, **more), fused=True)

    def test_sgd_fused(self):
        self.same(lambda p, **more: torch.optim.SGD(p, lr=.1, momentum=.9, **more), fused=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
