# SPDX-License-Identifier: MIT
"""Symbolic sizes of torch.compile, and what stays when compiled functions go, with install() and without:
usage: gpu_compile_sizes.py [--install] ..."""

import gc
import sys
import unittest
import warnings

import torch

import reprise
from inductor_case import INDUCTOR, Served, each_of_inductor, each_way, net_of
from reprise._alloc.pool import Pool
from reprise._call.graphed import every_graphed
from reprise._compile import trees
from reprise._compile.backend import backend
from reprise._compile.padded import every_padded


class Sizes(Served):
    def call(self, compiled, net, name, rows):
        x = torch.randn(rows, 32, device="cuda")
        self.close(compiled(x), net(x), name)

    def shapes(self):
        self.assertEqual([f for made in self.new_graphs() for f in made.failures()], [])
        return [shape for made in self.new_graphs() for shape in made.shapes()]

    @each_of_inductor
    def test_each_size_has_a_graph_in_one_pool(self, name, way):
        net = net_of()
        compiled = way(net, dynamic=True)
        with torch.no_grad():
            for _ in range(3):
                for rows in (3, 5, 6, 9):
                    self.call(compiled, net, name, rows)
        self.assertEqual(sorted(shape["replays"] for shape in self.shapes()), [2, 3, 3, 3])
        self.assertEqual(len({id(made.pool.native) for made in self.new_graphs() if made.shapes()}), 1)

    @each_of_inductor
    def test_marked_dimensions(self, name, way):
        """Marked ones take no compilation of their own, in training too."""
        net = net_of()
        compiled = way(net)
        before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        for _ in range(3):
            for rows in (4, 7, 2, 8):
                x = torch.randn(rows, 32, device="cuda")
                torch._dynamo.mark_dynamic(x, 0)
                net.zero_grad()
                compiled(x).square().sum().backward()
                got = [p.grad for p in net.parameters()]
                net.zero_grad()
                net(x).square().sum().backward()
                for a, b in zip(got, net.parameters()):
                    self.close(a, b.grad, name)
        self.assertEqual(torch._dynamo.utils.counters["stats"]["unique_graphs"] - before, 1)
        self.assertEqual(len(self.shapes()), 8)

    @each_of_inductor
    def test_more_sizes_than_the_limit(self, name, way):
        """One warning; sizes beyond are captured when they come back."""
        from torch._inductor import config
        net = net_of()
        with torch.no_grad(), config.patch({"triton.cudagraph_dynamic_shape_warn_limit": 3}):
            compiled = way(net, dynamic=True)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                for rows in range(3, 10):
                    self.call(compiled, net, name, rows)
                self.assertEqual(len([w for w in said if "sets of sizes" in str(w.message)]), 1)
            captured = len(self.shapes())
            self.assertLessEqual(captured, 3)
            for rows in (8, 9, 8, 9):
                self.call(compiled, net, name, rows)
            self.assertEqual(len(self.shapes()), captured + 2)

    @each_of_inductor
    def test_sizes_that_are_asked_for(self, name, way):
        from torch._inductor import config
        if not hasattr(config.triton, "cudagraph_capture_sizes"):
            self.skipTest("this PyTorch cannot be told")
        net = net_of()
        with torch.no_grad(), config.patch({"triton.cudagraph_capture_sizes": (5, 6)}):
            compiled = way(net, dynamic=True)
            for _ in range(3):
                for rows in (3, 5, 6, 9):
                    self.call(compiled, net, name, rows)
        self.assertEqual(len(self.shapes()), 2)

    @each_of_inductor
    def test_without_a_graph_inputs_are_aligned_too(self, name, way):
        from torch._inductor import config

        def fn(x):
            x.mul_(2)
            return x + 1
        base = torch.ones(4096, device="cuda")
        with torch.no_grad(), config.patch({"triton.cudagraph_dynamic_shape_warn_limit": 0}):
            compiled = way(fn, dynamic=True)
            for rows in (64, 65, 66):
                base.fill_(1)
                self.assertEqual(compiled(base[3:3 + rows]).tolist(), [3.0] * rows)
                self.assertEqual(base[2:4 + rows].tolist(), [1.0] + [2.0] * rows + [1.0])


@unittest.skipUnless(INDUCTOR, "no Inductor")
class InBuckets(Served):
    """Marked dimensions in buckets."""

    def setUp(self):
        self.forget()
        self.before = set(map(id, every_graphed()))
        self.had = set(every_padded())

    def frames(self):
        return [frame for frame in every_padded() if frame not in self.had]

    def shapes(self):
        self.assertEqual([f for made in self.new_graphs() for f in made.failures()], [])
        return [shape for made in self.new_graphs() for shape in made.shapes()]

    @staticmethod
    def marked(*sizes, axes=(0,)):
        x = torch.randn(*sizes, device="cuda")
        for axis in axes:
            torch._dynamo.mark_dynamic(x, axis)
        return x

    def check(self, fn, calls, graphs, **options):
        """Results are the callable's at true sizes; of one list each, with the arguments behind."""
        compiled = reprise.compile(fn, **options)
        with torch.no_grad():
            for args in calls:
                copies = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
                got, wanted = compiled(*args), fn(*copies)
                for a, b in zip((*got, *args), (*wanted, *copies)):
                    if isinstance(a, torch.Tensor):
                        self.assertEqual(a.shape, b.shape)
                        self.close(a, b, "reprise")
                    else:
                        self.assertEqual(a, b)
        self.assertEqual(len(self.shapes()), graphs)

    def test_a_graph_a_bucket(self):
        self.check(lambda x: (x * 2 + 1,), [(self.marked(rows, 8),) for rows in (3, 4, 2, 6, 7, 9, 6, 9)], 3,
                   buckets={"batch": [4, 8]})
        found = {fact["sizes"]["batch"]: fact for frame in self.frames() for fact in frame.buckets()}
        self.assertEqual({size: fact["padded_calls"] for size, fact in found.items()}, {4: 2, 8: 3, 9: 0})
        self.assertEqual(found[8]["waste"], 1 - 19 / 24)
        self.assertIn("bucket of batch 4: 2 of 3 calls were padded", reprise.report())

    def test_training(self):
        net = net_of()
        compiled = torch.compile(net, backend=backend, options={"buckets": {"batch": [8, 16]}})
        for rows in (3, 5, 12, 7, 3, 16, 11):
            x, found = self.marked(rows, 32), []
            for call in (compiled, net):
                net.zero_grad()
                leaf = x.clone().requires_grad_()
                torch._dynamo.mark_dynamic(leaf, 0)
                call(leaf).square().sum().backward()
                found.append([leaf.grad, *(p.grad for p in net.parameters())])
            for got, wanted in zip(*found):
                torch.testing.assert_close(got, wanted, rtol=2e-3, atol=2e-3)
        self.assertEqual(len(self.shapes()), 4)

    def test_named_axes_and_what_padding_holds(self):
        def fn(x, scale):
            return x / scale[:, None], x.t()
        calls = [(self.marked(rows, columns, axes=(0, 1)), self.marked(rows)) for rows, columns in
                 ((2, 5), (3, 6), (4, 7), (2, 3))]
        self.check(fn, calls, 2, buckets={"rows": [4], "columns": [4, 8]},
                   axes={"rows": {"x": 0, "scale": 0}, "columns": {0: 1}}, fill={"scale": "last"})

    def test_arguments_that_are_laid_out_otherwise(self):
        calls = [(self.marked(8, n, axes=(1,)).t(), ) for n in (3, 4, 2, 6)]
        for x, in calls:
            torch._dynamo.mark_dynamic(x, 0)
        self.check(lambda x: (x + 1, x.sum(1)), calls, 2, buckets={"n": [4, 8]})

    def test_parts_of_larger_tensors(self):
        base = torch.randn(4, 6, device="cuda")
        calls = [(base[:, :n],) for n in (3, 4, 5, 3)]
        for x, in calls:
            torch._dynamo.mark_dynamic(x, 1)
        self.check(lambda x: (x + 1,), calls, 2, buckets={"n": [4, 8]}, axes={"n": {"x": 1}})

    def test_what_is_written_to(self):
        def fn(x, y):
            y.add_(x)
            x.detach().mul_(2)
            return (x + y,)
        calls = [(self.marked(rows, 4), self.marked(rows, 4)) for rows in (2, 3, 4, 2)]
        self.check(fn, calls, 1, buckets={"batch": [4]})

    def test_sizes_among_results(self):
        def fn(x):
            return x * 2, x.shape[0], 2 * x.shape[0] + 1, 7
        self.check(fn, [(self.marked(rows, 4),) for rows in (2, 3, 4, 2)], 1, buckets={"batch": [4]})

    def test_sizes_that_were_not_compiled_for(self):
        """Behind a look at the size there is other code for sizes of the bucket."""
        def fn(x):
            return (x + 1 if x.shape[0] < 6 else x - 1,)
        rows = (3, 7, 5, 3, 8, 7, 5)
        self.check(fn, [(self.marked(n, 4),) for n in rows], 3, buckets={"batch": [8]})

    def test_results_of_others(self):
        w = torch.randn(3, device="cuda")
        self.check(lambda x: (x * w[0], w * 3), [(self.marked(rows, 4),) for rows in (2, 3, 4, 2)], 1,
                   buckets={"batch": [4]})

    def refused(self, fn, text, *, sizes=(2, 3, 4, 2)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.check(fn, [(self.marked(rows, 4),) for rows in sizes], len(set(sizes)), buckets={"batch": [4]})
        self.assertIn(text, "".join(str(w.message) for w in said))
        self.assertEqual(self.frames(), [])

    def test_a_result_without_the_dimension(self):
        self.refused(lambda x: (x * 2, x.sum()), "does not have each padded dimension")

    def test_a_result_whose_size_is_computed(self):
        self.refused(lambda x: (x.flatten() * 2,), "does not have each padded dimension")

    def test_writes_to_what_is_not_padded(self):
        kept = torch.zeros(4, device="cuda")

        def fn(x):
            kept.add_(x.mean(0))
            return (x * 2,)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            compiled = reprise.compile(fn, buckets={"batch": [4]})
            wanted = torch.zeros(4, device="cuda")
            for rows in (2, 3, 2):
                x = self.marked(rows, 4)
                with torch.no_grad():
                    compiled(x)
                wanted += x.mean(0)
        torch.testing.assert_close(kept, wanted)
        self.assertIn("is written to", "".join(str(w.message) for w in said))

    def test_python_between_sees_true_sizes(self):
        seen = []

        def fn(x):
            y = x * 2
            torch._dynamo.graph_break()
            seen.append(y.shape[0])
            torch._dynamo.graph_break()
            return (y + 1,)
        self.check(fn, [(self.marked(rows, 4),) for rows in (2, 3, 4, 2, 3)], 2, buckets={"batch": [4]})
        self.assertEqual(seen, [2, 2, 3, 3, 4, 4, 2, 2, 3, 3])

    def test_by_policy(self):
        self.check(lambda x: (x * 2,), [(self.marked(rows, 4),) for rows in (2, 3, 4) * 8], 1,
                   buckets={"batch": [4]}, options={"policy": "auto"})


class Ends(Served):
    def memory(self):
        """What this process holds of the device: what is free of it changes with other programs."""
        for _ in range(3):  # what one lets go may be the last that held others
            gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved() + sum(pool.info()["mapped_bytes"] for pool in self.pools())

    def pools(self):
        return [o for o in gc.get_objects() if type(o) is Pool and o.name == "torch.compile"]

    def counts(self):
        return len(every_graphed()), len(trees._made)

    @each_way
    def test_what_is_compiled_again_and_again(self, name, way):
        """Graphs and memory go with what was compiled."""
        def round_of():
            net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU(),
                                      torch.nn.Linear(512, 512)).cuda()
            compiled = way(net)
            for rows in (64, 1024):
                for _ in range(3):
                    compiled(torch.randn(rows, 512, device="cuda")).sum().backward()
            del net, compiled
            torch._dynamo.reset()
            return (self.memory(), *self.counts())
        round_of()
        had = round_of()
        for _ in range(3):
            held, graphs, made = round_of()
            self.assertEqual((graphs, made), had[1:])
            self.assertLessEqual(held, had[0] + (4 << 20))
            self.assertEqual(self.pools(), [])

    @each_of_inductor
    def test_beyond_the_recompile_limit(self, name, way):
        net = net_of()
        compiled = way(net, dynamic=False)
        limit = torch._dynamo.config.recompile_limit
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for rows in range(1, limit + 4):
                for _ in range(2):
                    x = torch.randn(rows, 32, device="cuda")
                    self.close(compiled(x), net(x), name)
        self.assertEqual(sum(len(made.shapes()) for made in self.new_graphs()), limit)

    @unittest.skipUnless(INDUCTOR, "no Inductor")
    def test_names_of_compilations_are_let_go(self):
        kinds = set(trees._kinds.values())
        for _ in range(5):
            net = net_of()
            with torch.no_grad():
                for _ in range(3):
                    reprise.compile(net)(torch.randn(4, 32, device="cuda"))
            kinds = set(trees._kinds.values())
            del net
            self.forget()
        self.assertEqual(len(kinds), 1)
        # Inductor keeps kernels for Triton by their text, and each knows the compilation it was last made in.
        of_kernels = {id(o.compile_id) for o in gc.get_objects() if type(o).__name__ == "CachingAutotuner"}
        alive = [o for o in gc.get_objects() if type(o) in kinds and id(o) not in of_kernels]
        self.assertLessEqual(len(alive), 2, [sys.getrefcount(o) for o in alive])


if __name__ == "__main__":
    unittest.main(verbosity=2)
