# SPDX-License-Identifier: MIT
"""The backend "cudagraphs" of torch.compile, over PyTorch's trees of graphs: dynamo/test_cudagraphs.py."""

import torch

from . import row


def compiled(function):
    return torch.compile(function, backend="cudagraphs")


def rows(name):
    return row(f"TestAotCudagraphs.{name}", seconds=150)


def trained(t, model, *arguments, times=5):
    """Forward and backward, as often, next to the same in eager mode; automatic_dynamic_shapes as there."""
    expected = []
    given = [x.detach().clone().requires_grad_(x.requires_grad) for x in arguments]

    def often(*tensors):
        for _ in range(times):
            loss = model(*tensors).sum()
            sums.append(loss.item())
            loss.backward()
    for function, tensors in ((often, given), (compiled(often), arguments)):
        sums = []
        function(*tensors)
        expected.append(sums)
    for one, other in zip(*expected):
        t.assertAlmostEqual(one, other, places=4)
    for one, other in zip(arguments, given):
        if one.requires_grad:
            t.same(one.grad, other.grad)


def vector(**options):
    return torch.randn(3, device="cuda", **options)


@rows("test_basic")
def basic(t):
    trained(t, lambda x, y: (x + y) * y, vector(requires_grad=True), vector())


@rows("test_dtoh")
def dtoh(t):
    trained(t, lambda x, y: (x + y).cpu() * 3, vector(requires_grad=True), vector())


@rows("test_htod")
def htod(t):
    trained(t, lambda x, y: (x + y) * 3, vector(requires_grad=True), torch.randn(()))


@rows("test_mutate_input")
def mutate_input(t):
    def work(x, y):
        y.add_(3)
        return x * y
    def often(x, y):
        for _ in range(5):
            before = y.clone()
            loss = work(x, y).sum()
            t.assertTrue(torch.equal(y, before + 3))
            loss.backward()
    compiled(often)(vector(requires_grad=True), vector())


@rows("test_mutate_constant")
def mutate_constant(t):
    def work(x, y):
        c = torch.tensor(1)
        c.add_(2)
        return x * y * 0 + c
    x, y, call = torch.randn(1, device="cuda", requires_grad=True), torch.randn(1, device="cuda"), compiled(work)
    for _ in range(5):
        loss = call(x, y).sum()
        t.assertEqual(loss.item(), 3)
        loss.backward()


@rows("test_factory")
def factory(t):
    def work(y):
        x = torch.zeros(3, device="cuda:0")
        x.add_(3)
        return x * y
    trained(t, work, vector(requires_grad=True))


@rows("test_mutated_metadata")
def mutated_metadata(t):
    def work(x):
        x = x.clone()
        x.resize_(20)
        return x.fill_(2)
    call = compiled(work)
    for _ in range(5):
        t.same(call(torch.empty(0, device="cuda")), torch.full((20,), 2.0, device="cuda"))


@rows("test_dead_fill")
def dead_fill(t):
    def work(x):
        x = x.clone()
        y = x[0:0]
        x.fill_(2)
        y.fill_(3)
        return x, y
    call, x = compiled(work), torch.empty(20, device="cuda")
    for _ in range(5):
        one, other = call(x)
        t.same(one, torch.full((20,), 2.0, device="cuda"))
        t.assertEqual(other.numel(), 0)


@rows("test_inference_mode_does_not_need_mark_step_begin")
def inference_mode_does_not_need_mark_step_begin(t):
    from torch._inductor import cudagraph_trees
    cudagraph_trees.reset_cudagraph_trees()

    def work(x):
        with torch.inference_mode():
            return x.sin()
    x, call = torch.randn(4, device="cuda"), compiled(work)
    for _ in range(4):
        t.same(call(x).clone(), work(x))
    t.assertFalse(cudagraph_trees.get_manager(0).warned_functions)
