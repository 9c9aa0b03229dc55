# SPDX-License-Identifier: MIT
"""reprise.estimate and the budget of executable graphs on a GPU, under install() and without it:
usage: gpu_estimate.py [--install] ..."""

import gc
import sys
import unittest

import torch

import reprise
from training_steps import mlp, whole_step

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

SIZES = (64, 1, 32, 8)


def on_meta(*sizes, width=512, **options):
    return [(torch.empty(n, width, device="meta", **options),) for n in sizes]


def on_gpu(*sizes, width=512, **options):
    return [(torch.randn(n, width, device="cuda", **options),) for n in sizes]


class Estimates(unittest.TestCase):
    def check(self, found, made):
        self.assertEqual(found.failures, [])
        self.assertEqual(len(found.shapes), len(made.shapes()))
        info = made.pool.info()
        if INSTALL:
            self.assertTrue(found.exact)
            for name in ("planned_bytes", "lower_bound_bytes", "mapped_bytes"):
                self.assertEqual(getattr(found, name), info[name], name)
            for one, graph in zip(found.shapes, made.shapes()):
                self.assertEqual(one["name"], graph["name"])
                self.assertEqual(one["planned_bytes"], graph["planned_bytes"])
                self.assertEqual(one["nodes"], graph["nodes"])
        else:
            self.assertGreaterEqual(2 * found.planned_bytes, info["planned_bytes"])

    def test_a_module(self):
        net = mlp(512).eval()
        with torch.no_grad():
            found = reprise.estimate(net, on_meta(*SIZES))
            made = reprise.graphed(net, shapes=on_gpu(*SIZES), strict=True)
            self.check(found, made)
        self.assertIn("planned", str(found))

    def test_what_reprise_graphed_returned(self):
        net = mlp(512).eval()
        made = reprise.graphed(net, strict=True)
        with torch.no_grad():
            x = torch.randn(64, 512, device="cuda")
            made(x)
            made(x)
            found = reprise.estimate(made, on_meta(32, 1))
            self.assertEqual(len(found.shapes), 2)
            for args in on_gpu(32, 1):
                self.assertTrue(torch.equal(made(*args), net(*args)))
        if INSTALL:
            self.assertEqual(found.planned_bytes, made.pool.info()["planned_bytes"])

    def test_forward_and_backward(self):
        net = mlp(128, 3)
        shapes = on_gpu(32, 8, width=128, requires_grad=True)
        made = reprise.graphed(net, strict=True)
        found = reprise.estimate(made, shapes)
        for (x,) in shapes:
            made(x).sum().backward()
        self.check(found, made)
        self.assertEqual(len(found.shapes), 4)

    def test_backward_passes_take_the_same_each_time(self):
        """However late autograd's thread lets go of the gradients."""
        net, seen = mlp(128, 3), set()
        for _ in range(20):
            found = reprise.estimate(reprise.graphed(net), on_gpu(32, width=128, requires_grad=True))
            seen.add(tuple((one["planned_bytes"], one["nodes"]) for one in found.shapes))
        self.assertEqual(len(seen), 1, seen)

    def test_a_whole_training_step(self):
        net = mlp(128, 3)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, capturable=True)

        x, y = torch.randn(2, 32, 128, device="cuda").unbind()
        x, y = x.clone(), y.clone()
        made = reprise.graphed(whole_step(net, optimizer), strict=True)
        made(x, y)
        found = reprise.estimate(made, [(x, y)])
        made(x, y)
        self.check(found, made)

    def test_takes_a_chunk_and_no_more(self):
        def grow(x):
            for _ in range(8):
                x = torch.cat([x, x])  # 64, 128 and 256 MiB in the end; the last is the result's
            return x[:1]
        small = torch.randn(1 << 10, device="cuda")
        grow(small)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.mem_get_info()[0]
        found = reprise.estimate(grow, [(torch.empty(1 << 18, device="meta"),)], warmup=0)
        torch.cuda.synchronize()
        taken = before - torch.cuda.mem_get_info()[0]
        self.assertGreaterEqual(found.planned_bytes, 192 << 20)
        self.assertLessEqual(taken, 72 << 20)  # the chunk, and what the driver takes for it

    def test_what_cannot_be_captured_is_told(self):
        def fn(x):
            return x * x.sum().item() if x.shape[0] > 4 else x * 2
        found = reprise.estimate(fn, on_gpu(8, 2), name="waits")
        self.assertEqual(len(found.shapes), 1)
        (name, why), = found.failures
        self.assertIn("waits(8x512)", name)
        self.assertTrue(why)
        self.assertEqual(torch.rand(3, device="cuda").shape, (3,))

    def test_a_pool_counts_what_it_holds(self):
        pool = reprise.Pool("concurrent")
        net = mlp(512).eval()
        with torch.no_grad():
            kept = reprise.graphed(net, pool=pool, shapes=on_gpu(64), strict=True)
            before = pool.info()["planned_bytes"]
            found = reprise.estimate(net, on_meta(64), pool=pool)
            self.assertGreaterEqual(found.planned_bytes, 2 * before if INSTALL else before)
            again = reprise.graphed(net, pool=pool, shapes=on_gpu(64), strict=True)
            if INSTALL:
                self.assertEqual(pool.info()["planned_bytes"], found.planned_bytes)
        with self.assertRaisesRegex(ValueError, "has a pool already"):
            reprise.estimate(kept, on_meta(1), pool=pool)
        del kept, again


class Ahead(unittest.TestCase):
    def test_progress_is_told_largest_first(self):
        net, told = mlp(512).eval(), []
        with torch.no_grad():
            made = reprise.graphed(net, shapes=on_gpu(*SIZES), strict=True, name="net",
                                   progress=lambda *seen: told.append(seen))
        self.assertEqual([t[:2] for t in told], [(i + 1, 4) for i in range(4)])
        self.assertEqual([t[2]["name"] for t in told], [f"net({n}x512)" for n in (64, 32, 8, 1)])
        self.assertEqual(len(made.shapes()), 4)

    def test_gradients_are_left_as_they_were(self):
        net = mlp(64)

        def backward(x):
            net(x).sum().backward()
            return x.sum()
        for there in (True, False):
            net.zero_grad(set_to_none=True)
            if there:
                backward(*on_gpu(4, width=64)[0])
            before = [p.grad for p in net.parameters()]
            found = reprise.estimate(backward, on_gpu(8, 4, width=64), grad="whole", warmup=0,
                                     watch=[net])
            self.assertEqual(found.failures, [])
            self.assertTrue(all(p.grad is grad for p, grad in zip(net.parameters(), before)))

    def test_shapes_overlay_within_any_pool(self):
        net = mlp(512).eval()
        for kind in ("alternatives", "sequence", "concurrent"):
            outer = reprise.Pool(kind)
            inner = reprise.Pool("concurrent", parent=outer)
            with torch.no_grad():
                first = reprise.graphed(net, pool=inner, shapes=on_gpu(64), strict=True)
                alone = inner.info()["planned_bytes"]
                made = reprise.graphed(net, pool=inner, shapes=on_gpu(*SIZES), strict=True)
                for args in on_gpu(*SIZES):
                    self.assertTrue(torch.equal(made(*args), net(*args)))
            self.assertEqual(outer.info()["graphs"], 5)
            if INSTALL:
                self.assertEqual(outer.info()["planned_bytes"], 2 * alone)
            del first, made


class Execs(unittest.TestCase):
    def test_the_budget_is_kept(self):
        net = mlp(512).eval()
        try:
            reprise.set_exec_budget(1)
            with torch.no_grad():
                made = reprise.graphed(net, shapes=on_gpu(*SIZES), strict=True)
                for args in on_gpu(*SIZES, *SIZES):
                    self.assertTrue(torch.equal(made(*args), net(*args)))
            info = reprise.exec_info()
            self.assertEqual(info["budget_bytes"], 1)
            self.assertGreaterEqual(info["updates"], 1)
            reprise.set_exec_budget("one each", torch.device("cuda"))
            with torch.no_grad():
                for args in on_gpu(*SIZES, *SIZES):
                    self.assertTrue(torch.equal(made(*args), net(*args)))
            self.assertGreaterEqual(reprise.exec_info(0)["execs"], len(SIZES))
        finally:
            reprise.set_exec_budget(64 << 20)

    def tearDown(self):
        gc.collect()


if __name__ == "__main__":
    unittest.main(verbosity=2)
