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
