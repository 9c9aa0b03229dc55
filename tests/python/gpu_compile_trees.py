# SPDX-License-Identifier: MIT
"""What PyTorch's own tests of its cudagraph trees assert of results, mutation and aliases, asked of graphs of
Reprise, under install() and without it: usage: gpu_compile_trees.py [--install] ... What those tests assert of
the trees themselves (nodes, checkpoints, live blocks) has no counterpart here: the table is in
docs/migration/reduce-overhead.md."""

import copy
import unittest

import torch

from inductor_case import LITE, Served, each_way


class Trees(Served):
    def same(self, way, fn, name, *makes, calls=4):
        compiled = way(fn)
        for _ in range(calls):
            args = [make() for make in makes]
            twins = [copy.deepcopy(a) for a in args]
            got, wanted = compiled(*args), fn(*twins)
            for a, b in zip(got, wanted) if isinstance(wanted, tuple) else ((got, wanted),):
                self.close(a, b, name)
            for a, b in zip(args, twins):
                self.close(a, b, name)

    def given(self, *shape):
        return lambda: torch.rand(*shape, device="cuda")

    @each_way
    def test_written_results_of_another_graph(self, name, way):
        """And written inputs from elsewhere: both by graphs, where trees skip the latter."""
        if LITE and torch.__version__.startswith("2.14."):
            self.skipTest("Inductor without Triton writes code there that returns what it has deleted")
        made, written = way(lambda x: x + 1), way(lambda x: x.add_(2))
        with torch.no_grad():
            for i in range(5):
                x = torch.full((4,), float(i), device="cuda")
                kept = made(x)
                other = kept.clone()
                self.assertEqual(written(kept).tolist(), [i + 3.0] * 4)
                self.assertEqual(written(other).tolist(), [i + 3.0] * 4)
                self.assertEqual((kept.tolist(), other.tolist()), ([i + 3.0] * 4,) * 2)
        self.assertTrue(all(shape["replays"] for made in self.new_graphs() for shape in made.shapes()))

    @each_way
    def test_written_buffers(self, name, way):
        class Sums(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", torch.ones(10, device="cuda"))

            def forward(self, x):
                self.total.add_(x)
                return self.total + x
        net, twin = Sums(), Sums()
        compiled = way(net)
        with torch.no_grad():
            for _ in range(5):
                x = torch.rand(10, device="cuda")
                self.close(compiled(x), twin(x), name)
                self.close(net.total, twin.total, name)

    @each_way
    def test_a_piece_called_twice_in_a_call(self, name, way):
        def cube(x):
            torch._dynamo.graph_break()
            return x * x * x

        def fn(x):
            y = cube(x)
            return y + cube(y)
        with torch.no_grad():
            self.same(way, fn, name, self.given(4, 4))

    @each_way
    def test_the_other_branch_later(self, name, way):
        def fn(x):
            y = x + x
            return y + 10 if y.sum() > 0 else y - 10
        compiled = way(fn)
        with torch.no_grad():
            for value in (0, 0, 1, 1, 1, 0, 1):
                x = torch.full((4, 4), float(value), device="cuda")
                self.assertTrue(torch.equal(compiled(x), fn(x)))

    @each_way
    def test_aliases_among_results(self, name, way):
        """Views of one result share its memory."""
        def fn(x):
            y = x * 20
            return y, y[0], y[1:]
        compiled = way(fn)
        with torch.no_grad():
            for _ in range(4):
                x = torch.rand(20, 20, device="cuda")
                got = compiled(x)
                for a, b in zip(got, fn(x)):
                    self.close(a, b, name)
                self.assertEqual(len({a.untyped_storage().data_ptr() for a in got}), 1)

    @each_way
    def test_aliases_of_parameters_and_arguments(self, name, way):
        class Views(torch.nn.Linear):
            def forward(self, x):
                return self.weight.T @ x, self.weight.T, self.weight[:4], x[2:]
        net = Views(10, 10).cuda()
        compiled = way(net)
        with torch.no_grad():
            for _ in range(4):
                x = torch.rand(10, 10, device="cuda")
                product, whole, rows, tail = compiled(x)
                self.close(product, net.weight.T @ x, name)
                begin = net.weight.untyped_storage().data_ptr()
                self.assertEqual([v.untyped_storage().data_ptr() for v in (whole, rows)], [begin] * 2)
                self.assertEqual(tail.untyped_storage().data_ptr(), x.untyped_storage().data_ptr())

    @each_way
    def test_expanded_and_empty_inputs(self, name, way):
        def fn(x):
            return x + 4, torch.zeros(0, device=x.device), x[:0]
        compiled = way(fn, dynamic=False)
        with torch.no_grad():
            for x in (torch.rand(1, 64, device="cuda").expand(4, 64), torch.rand(0, 4, device="cuda")) * 3:
                for a, b in zip(compiled(x), fn(x)):
                    self.assertTrue(torch.equal(a, b))
                    self.assertEqual(a.shape, b.shape)

    @each_way
    def test_a_backward_pass_that_never_comes(self, name, way):
        def fn(x, y):
            x = x * x * x
            torch._dynamo.graph_break()
            return x, y * y * y
        compiled = way(fn)
        for _ in range(4):
            x, y = (torch.rand(20, 20, device="cuda", requires_grad=True) for _ in range(2))
            twin = x.detach().clone().requires_grad_()
            compiled(x, y)[0].sum().backward()
            fn(twin, y)[0].sum().backward()
            self.close(x.grad, twin.grad, name)
            self.assertIsNone(y.grad)

    @each_way
    def test_gradients_add_up(self, name, way):
        compiled = way(lambda x: x + 2)
        for _ in range(4):
            x = torch.randn(5, 5, device="cuda", requires_grad=True)
            y = compiled(x)
            ones = torch.ones(5, 5, device="cuda")
            y.backward(ones, retain_graph=True)
            first = x.grad.clone()
            y.backward(ones)
            self.assertTrue(torch.equal(x.grad, first * 2))

    @each_way
    def test_casts_are_not_cached_over_writes(self, name, way):
        compiled = way(lambda x: x + x)
        for _ in range(3):
            out = compiled(torch.rand(4, 4, device="cuda", requires_grad=True))
        other = torch.rand(4, 4, device="cuda")
        with torch.autocast("cuda"):
            first = out @ other
            out.detach().zero_()
            again = out @ other
        self.assertTrue(again.abs().max() == 0 or not torch.equal(first, again))

    @each_way
    def test_results_stay_without_a_mark(self, name, way):
        """Trees raise an error where a result is read behind the next step."""
        compiled = way(lambda x: x * x)
        with torch.no_grad():
            inputs = [torch.rand(8, device="cuda") for _ in range(6)]
            results = [compiled(x) for x in inputs]
        for x, result in zip(inputs, results):
            self.close(result, x * x, name)

    @each_way
    def test_on_another_stream(self, name, way):
        def fn(x):
            for _ in range(5):
                x = x @ x
            return x
        compiled = way(fn)
        x = torch.eye(64, device="cuda") * 1.01
        wanted = fn(x) + 1
        torch.cuda.synchronize()
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(4):
                self.close(compiled(x) + 1, wanted, name)

    @each_way
    def test_an_error_of_the_callable_is_its_own(self, name, way):
        compiled = way(lambda x, i: x[i] * 2)
        x = torch.rand(4, device="cuda")
        with self.assertRaises(Exception), torch.no_grad():
            compiled(x, 9)
        with torch.no_grad():
            self.close(compiled(x, 1), x[1] * 2, name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
