# SPDX-License-Identifier: MIT
"""reprise.graphed on a GPU, under install() and without it: usage: gpu_graphed.py [--install] ..."""

import contextlib
import copy
import gc
import logging
import os
import subprocess
import sys
import threading
import unittest
import warnings
from unittest import mock

import torch

import needs
import reprise
from reprise import _C
from reprise._base import torch_private
from reprise._call import watch
from reprise._capture import stack
from training_steps import mlp, need_transformers, whole_step
from unseen import Unseen

INSTALL = "--install" in sys.argv
ON_HOST = "/host/lib/" in os.environ.get("LD_PRELOAD", "")
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()


class Inference(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def check(self, fn, inputs, *, exact=True, graphed=None):
        made = graphed or reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for args in inputs:
                got, want = made(*args), fn(*args)
                if exact:
                    self.assertTrue(torch.equal(got, want))
                else:
                    torch.testing.assert_close(got, want)
        return made

    def test_new_tensors_at_every_call(self):
        net = mlp().eval()
        made = self.check(net, [(torch.randn(16, 256, device="cuda"),) for _ in range(8)])
        facts, = made.shapes()
        self.assertEqual(facts["copied_args"], 0)
        self.assertEqual(facts["bound_args"], 2)

    def test_outputs_are_fresh(self):
        made = reprise.graphed(lambda x: x * 2, strict=True)
        outs = [made(torch.full((1024,), float(i), device="cuda")) for i in range(6)]
        for i, out in enumerate(outs):
            self.assertTrue((out == 2 * i).all().item())

    def test_many_shapes_share_one_pool(self):
        net = mlp(1024).eval()
        made = reprise.graphed(net, strict=True)
        with torch.no_grad():
            made(torch.randn(64, 1024, device="cuda"))
            made(torch.randn(64, 1024, device="cuda"))
            first = made.pool.info()["planned_bytes"]
            for n in range(64, 0, -4):
                x = torch.randn(n, 1024, device="cuda")
                self.assertTrue(torch.equal(made(x), net(x)))
        info = made.pool.info()
        self.assertEqual(info["planned_bytes"], first)
        self.assertEqual(len(made.shapes()), 16)
        if INSTALL:
            self.assertLessEqual(info["planned_bytes"], 1.01 * info["lower_bound_bytes"])

    @needs.fast_path
    def test_results_in_larger_storages_take_the_fast_path(self):
        made = self.check(torch.nn.functional.mse_loss,
                          [tuple(torch.randn(64, 128, device="cuda") for _ in range(2))
                           for _ in range(6)])
        x, y = (torch.randn(64, 128, device="cuda") for _ in range(2))
        with torch.no_grad():
            loss = made._fast_call((x, y), {})
        self.assertIsNot(loss, _C.miss)
        self.assertEqual(loss.shape, ())
        self.assertTrue(torch.equal(loss, torch.nn.functional.mse_loss(x, y)))

    def taken(self, fn, make):
        """What the fast path makes of a call with new arguments, and those; make(seed): arguments."""
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for seed in range(4):
                made(*make(seed))
            args = make(9)
            found = made._fast_call(args, {})
        self.assertIsNot(found, _C.miss)
        return made, found, args

    @needs.fast_path
    def test_arguments_that_overlap_take_the_fast_path(self):
        def fn(c, d, a, b):
            return a.sum(0) + b[0] * c, b - d
        memory = torch.zeros(6, 16, device="cuda")

        def make(seed, start=1, apart=0):
            memory.normal_()
            own = torch.randn(16, device="cuda")
            return own, own[:16], memory[start:start + 3], memory[start + 1 + apart:start + 3 + apart]
        made, found, args = self.taken(fn, make)
        for got, want in zip(found, fn(*args)):
            self.assertTrue(torch.equal(got, want))
        with torch.no_grad():
            self.assertIs(made._fast_call(make(0, apart=1), {}), _C.miss, "they overlap otherwise")
            self.assertIs(made._fast_call((*args[:3], args[3].clone()), {}), _C.miss)
            self.assertIs(made._fast_call((args[0].clone(), *args[1:]), {}), _C.miss)
            for moved in (make(1, start=2), make(1, start=0), make(0, apart=1)):
                for got, want in zip(made(*moved), fn(*moved)):
                    self.assertTrue(torch.equal(got, want))

    @needs.fast_path
    def test_arguments_that_are_results_take_the_fast_path(self):
        def fn(a, b, scale=2.0):
            return {"twice": b * scale, "same": b, "other": (a,)}
        _, found, (a, b) = self.taken(fn, lambda i: tuple(torch.randn(4, 8, device="cuda") for _ in range(2)))
        self.assertIs(found["same"], b)
        self.assertIs(found["other"][0], a)
        self.assertTrue(torch.equal(found["twice"], b * 2.0))

    @needs.fast_path
    def test_many_arguments_take_the_fast_path(self):
        def fn(*tensors):
            return sum(t.sum() for t in tensors)
        memory = torch.zeros(200, 64, device="cuda")
        _, found, args = self.taken(fn, lambda i: tuple(memory.normal_()[k] for k in range(200)))
        self.assertTrue(torch.equal(found, fn(*args)))

    @needs.fast_path
    def test_parameters_as_arguments_take_the_fast_path(self):
        """As those of layers that torch.compile has one program for."""
        layers = [torch.nn.Linear(8, 8).cuda() for _ in range(10)]
        x = torch.randn(4, 8, device="cuda")

        def fn(x, weight, bias):
            return torch.nn.functional.linear(x, weight, bias), weight
        _, found, (_, weight, bias) = self.taken(fn, lambda i: (x, layers[i].weight, layers[i].bias))
        self.assertTrue(torch.equal(found[0], torch.nn.functional.linear(x, weight, bias)))
        self.assertIs(found[1], weight)

    def test_hundreds_of_shapes_in_turn(self):
        made = reprise.graphed(lambda x: x * 3 - 1, strict=True)
        inputs = [torch.randn(n, device="cuda") for n in range(1, 201)]
        for _ in range(3):
            for x in inputs:
                self.assertTrue(torch.equal(made(x), x * 3 - 1))
        self.assertEqual(len(made.shapes()), 200)
        self.assertEqual(sum(s["replays"] for s in made.shapes()), 3 * 200 - 1)

    def test_lazy_views_and_inference_tensors_are_told_apart(self):
        made = reprise.graphed(lambda x: x + 1)
        plain = torch.randn(8, device="cuda")
        pairs = torch.randn(8, dtype=torch.complex64, device="cuda")
        negated = pairs.conj().imag.contiguous()  # as plain, and its view that is not
        with torch.inference_mode():
            inferred = torch.randn(8, device="cuda")
        for _ in range(3):
            for x in (plain, torch._neg_view(plain), inferred, negated, torch._neg_view(negated)):
                want = x + 1
                got = made(x)
                self.assertTrue(torch.equal(got, want))
                self.assertFalse(got.is_inference())
        with torch.inference_mode():
            for _ in range(3):
                for x in (plain, inferred):
                    got = made(x)
                    self.assertTrue(torch.equal(got, x + 1))
                    self.assertTrue(got.is_inference())

    def test_a_first_capture_in_inference_mode(self):
        """What cleans stacks is made once in a process."""
        net, x = torch.nn.Linear(8, 8).cuda(), torch.randn(4, 8, device="cuda")
        with mock.patch.dict(stack._leaves, clear=True):
            for inference in (True, False):
                made = reprise.graphed(net, strict=True)
                for _ in range(3):
                    with torch.inference_mode(inference):
                        self.assertTrue(torch.equal(made(x), net(x)))

    @needs.fast_path
    def test_views_of_one_storage_take_the_fast_path(self):
        """Each call makes the storage, and what lies in it as the first call's did."""
        def fn(x):
            y = x @ x.t()
            rest = x * 2
            return {"text": y, "image": y.t(), "rest": rest[1:], "last": y[-1, 1:], "whole": y, "none": None}
        made = reprise.graphed(fn, strict=True)
        kept = []
        with torch.no_grad():
            for turn in range(5):
                x = torch.randn(8, 16, device="cuda")
                got = made._fast_call((x,), {}) if turn > 2 else made(x)
                self.assertIsNot(got, _C.miss)
                kept.append((got, fn(x)))
        for got, wanted in kept:
            self.assertEqual(list(got), list(wanted))
            for name in ("text", "image", "rest", "last"):
                self.assertTrue(torch.equal(got[name], wanted[name]), name)
                self.assertEqual(got[name].stride(), wanted[name].stride())
                self.assertEqual(got[name].storage_offset(), wanted[name].storage_offset())
            self.assertIs(got["whole"], got["text"])
            self.assertEqual(got["image"].untyped_storage().data_ptr(), got["text"].untyped_storage().data_ptr())
        self.assertEqual(len({got["text"].data_ptr() for got, _ in kept}), len(kept))

    @needs.fast_path
    def test_keywords_and_values_take_the_fast_path(self):
        def fn(x, scale, *, y=None, mode="add"):
            return x * scale + y if mode == "add" else x * scale - y
        made = reprise.graphed(fn, strict=True)
        calls = [((2,), {"mode": "add"}), ((2,), {"mode": "subtract"}), ((3,), {"mode": "add"}),
                 ((True,), {"mode": "add"}), ((0.5,), {})]
        for turn in range(4):
            for values, names in calls:
                x, y = torch.randn(2, 64, device="cuda").unbind()
                x, y = x.clone(), y.clone()
                if turn == 3:
                    self.assertIsNot(made._fast_call((x, *values), {"y": y, **names}), _C.miss)
                self.assertTrue(torch.equal(made(x, *values, y=y, **names),
                                            fn(x, *values, y=y, **names)))
        self.assertEqual(len(made.shapes()), len(calls))
        x = torch.randn(64, device="cuda")
        for other in ({"y": x}, {"y": x, "mode": "subtract", "more": 1}, {"z": x}):
            self.assertIs(made._fast_call((x, 7), other), _C.miss)
        self.assertIs(made._fast_call((x, torch.nn.Parameter(x)), {}), _C.miss)

    def test_trees_of_arguments_and_results(self):
        def fn(pair, *, scale, extra=None):
            a, (b,) = pair
            return {"sum": a + b, "both": [a * scale, (b,)], "none": extra}
        made = reprise.graphed(fn, strict=True)
        for i in range(4):
            a, b = torch.randn(2, 33, device="cuda").unbind()
            a, b = a.clone(), b.clone()
            got = made((a, [b]), scale=3)
            self.assertTrue(torch.equal(got["sum"], a + b))
            self.assertTrue(torch.equal(got["both"][0], a * 3))
            self.assertTrue(torch.equal(got["both"][1][0], b))
            self.assertIsNone(got["none"])
        self.assertTrue(torch.equal(made((a, [b]), scale=5)["both"][0], a * 5))
        self.assertEqual(len(made.shapes()), 2)

    def test_views_and_overlapping_arguments(self):
        def fn(a, b):
            return a + b, a[2:]
        made = reprise.graphed(fn, strict=True)
        base = torch.arange(300, dtype=torch.float32, device="cuda")
        for start in (0, 0, 7, 64, 64):
            a, b = base[start:start + 64], base[start + 32:start + 96]
            total, view = made(a, b)
            self.assertTrue(torch.equal(total, a + b))
            self.assertTrue(torch.equal(view, a[2:]))
            self.assertEqual(view.data_ptr(), a[2:].data_ptr())

    def test_writes_in_place(self):
        def fn(x, y):
            x.add_(y)
        made = reprise.graphed(fn, strict=True)
        for offset in (0, 0, 0, 3):  # the last one is not aligned, and copied
            whole = torch.ones(200, device="cuda")
            x, y = whole[offset:offset + 100], torch.full((100,), 2.0, device="cuda")
            made(x, y)
            self.assertTrue((x == 3).all().item())
            self.assertEqual(whole.sum().item(), 400)

    def test_casts_whose_parameters_have_padding(self):
        """An operator that casts is given structs of 8 bytes of which three are whatever the stack had."""
        a = torch.randn(9, 6, device="cuda")
        b = torch.randn(9, 6, device="cuda").to(torch.bfloat16)

        def fn(a, b, litter):
            sorted([float(i * 7919 % 1000) for i in range(litter)], key=lambda v: -v)
            cast = a.t().to(torch.bfloat16)
            return cast, torch.mul(b.t(), a.t()), torch.add(b, a)
        wanted = fn(a, b, 0)
        for litter in range(100):
            made = reprise.graphed(fn, strict=True)
            for _ in range(2):
                found = made(a, b, litter)
            self.assertTrue(all(map(torch.equal, found, wanted)), litter)

    def test_values_are_part_of_the_key(self):
        made = reprise.graphed(lambda x, k: x * k, strict=True)
        x = torch.ones(10, device="cuda")
        self.assertEqual([made(x, k)[0].item() for k in (1, 2, 3, 2, 1)], [1, 2, 3, 2, 1])

    def captured(self):
        """A net, its graphed callable, and an argument of which that has a graph."""
        net = mlp().eval()
        made = reprise.graphed(net, strict=True)
        x = torch.randn(8, 256, device="cuda")
        with torch.no_grad():
            for _ in range(3):
                made(x)
        return net, made, x

    @needs.draws_in_captures
    def test_modes_are_noticed(self):
        net = mlp(dropout=0.5)
        made = reprise.graphed(net, strict=True)
        x = torch.randn(8, 256, device="cuda")
        with torch.no_grad():
            net.eval()
            for _ in range(3):
                self.assertTrue(torch.equal(made(x), net(x)))
            net.train()
            self.assertFalse(torch.equal(made(x), made(x)))
            net[2].eval()
            made(x)
            net.eval()
            self.assertTrue(torch.equal(made(x), net(x)))

    def test_moved_parameters_are_noticed(self):
        net, made, x = self.captured()
        with torch.no_grad():
            net[0].weight.data = torch.randn(256, 256, device="cuda")
            self.assertTrue(torch.equal(made(x), net(x)))
            net[2] = torch.nn.Linear(256, 256).cuda()
            self.assertTrue(torch.equal(made(x), net(x)))
            net[0].weight.mul_(2)
            self.assertTrue(torch.equal(made(x), net(x)))

    def test_hooks_are_noticed(self):
        net, made, x = self.captured()
        with torch.no_grad():
            handle = net[0].register_forward_hook(lambda m, i, o: o + 1)
            self.assertTrue(torch.equal(made(x), net(x)))
            handle.remove()

    def test_hooks_of_parameters_are_compared_as_words(self):
        net = mlp()
        self.assertTrue(watch.learn_hooks(torch))
        seen = watch.Watch(torch, [net])
        for register in ("register_post_accumulate_grad_hook", "register_hook"):
            self.assertFalse(seen.has_changed_members())
            handle = getattr(net[0].weight, register)(lambda _: None)
            self.assertTrue(seen.has_changed_members(), register)
            handle.remove()
            seen.refresh()

    def test_autocast(self):
        net = mlp().eval()
        made = reprise.graphed(net, strict=True)
        x = torch.randn(8, 256, device="cuda")
        with torch.no_grad():
            made(x)
            for _ in range(3):
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    out = made(x)
                    self.assertEqual(out.dtype, torch.bfloat16)
                    self.assertTrue(torch.equal(out, net(x)))
            self.assertTrue(torch.equal(made(x), net(x)))

    def test_side_streams(self):
        side = torch.cuda.Stream()
        def fn(x):
            y = x + 1
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                z = y * 2
                z = z + 0
            w = y * 3
            torch.cuda.current_stream().wait_stream(side)
            z.record_stream(torch.cuda.current_stream())
            return w + z
        self.check(fn, [(torch.randn(1 << 16, device="cuda"),) for _ in range(5)])

    @needs.draws_in_captures
    def test_random_numbers_are_those_of_eager_runs(self):
        net = mlp(dropout=0.3).train()
        made = reprise.graphed(net, strict=True)
        inputs = [torch.randn(32, 256, device="cuda") for _ in range(6)]
        with torch.no_grad():
            torch.manual_seed(5)
            want = [net(x) for x in inputs] + [torch.rand(4, device="cuda")]
            torch.manual_seed(5)
            got = [made(x) for x in inputs] + [torch.rand(4, device="cuda")]
        for a, b in zip(got, want):
            self.assertTrue(torch.equal(a, b))
        self.assertTrue(made.shapes()[0]["random"])

    @needs.draws_in_captures
    def test_other_generators(self):
        generator = torch.Generator("cuda")
        made = reprise.graphed(lambda x: x + torch.rand(x.shape, device="cuda",
                                                        generator=generator),
                               strict=True, generators=[generator])
        x = torch.zeros(100, device="cuda")
        generator.manual_seed(3)
        got = [made(x) for _ in range(4)]
        generator.manual_seed(3)
        want = [torch.rand(100, device="cuda", generator=generator) for _ in range(4)]
        for a, b in zip(got, want):
            self.assertTrue(torch.equal(a, b))

    @needs.draws_in_captures
    def test_captures_change_no_numbers_of_replays_that_are_under_way(self):
        """Nor of those that follow: a capture begins by writing the generator's offset."""
        def fn(x):
            return x + torch.rand_like(x)
        made = reprise.graphed(fn, strict=True)
        sizes = [torch.zeros(n, device="cuda") for n in (100, 200, 300)]
        made(sizes[0])  # the warm-up
        made(sizes[0])
        told = []
        for call in (made, fn):
            torch.manual_seed(3)
            torch.rand(7, device="cuda")  # so that the offset is none that a capture begins at
            torch.cuda.synchronize()
            torch.cuda._sleep(100_000_000)  # all that follows is enqueued before any of it runs
            told.append([call(x) for x in (*sizes, *sizes)])
        for a, b in zip(*told):
            self.assertTrue(torch.equal(a, b))

    def test_what_cannot_be_captured_runs_eagerly(self):
        def fn(x):
            return x * x.sum().item()
        made = reprise.graphed(fn)
        x = torch.ones(5, device="cuda")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(5):
                self.assertEqual(made(x).sum().item(), 25)
        self.assertTrue(any("without a graph" in str(w.message) for w in said))
        self.assertEqual(torch.rand(3, device="cuda").shape, (3,))  # generators still work
        strict = reprise.graphed(fn, strict=True, warmup=0)
        with self.assertRaises(RuntimeError):
            strict(x)
        self.assertEqual(torch.rand(3, device="cuda").shape, (3,))

    def test_frozen_modules_are_not_looked_at(self):
        net = mlp(dropout=0.5).eval()
        made = reprise.graphed(net, strict=True, frozen=True)
        x = torch.randn(8, 256, device="cuda")
        with torch.no_grad():
            for _ in range(4):
                self.assertTrue(torch.equal(made(x), net(x)))
            want = made(x)
            net.train()
            self.assertTrue(torch.equal(made(x), want))
            net.eval()
            net[0].weight.mul_(2)
            self.assertTrue(torch.equal(made(x), net(x)))

    @needs.draws_in_captures
    def test_random_numbers_in_some_shapes_only(self):
        def fn(x):
            return torch.nn.functional.dropout(x, 0.5) if x.shape[0] > 4 else x * 2
        made = reprise.graphed(fn, strict=True)
        inputs = [torch.ones(n, 100, device="cuda") for n in (2, 2, 2, 8, 8, 8, 2, 8)]
        torch.manual_seed(4)
        want = [fn(x) for x in inputs]
        torch.manual_seed(4)
        got = [made(x) for x in inputs]
        for a, b in zip(got, want):
            self.assertTrue(torch.equal(a, b))
        self.assertEqual(sorted(s["random"] for s in made.shapes()), [False, True])

    def test_results_in_containers_take_the_fast_path_too(self):
        made = reprise.graphed(lambda a, b: {"sum": a + b, "pair": (a * b,)}, strict=True)
        for i in range(8):
            a, b = torch.full((2, 50), float(i), device="cuda").clone().unbind()
            a, b = a.clone(), b.clone() + 1
            got = made(a, b)
            self.assertTrue(torch.equal(got["sum"], a + b))
            self.assertTrue(torch.equal(got["pair"][0], a * b))
        same = made(a, a)
        self.assertTrue(torch.equal(same["sum"], a + a))

    def test_within_another_capture(self):
        net = mlp().eval()
        inner = reprise.graphed(net, strict=True)
        outer = reprise.graphed(lambda x: inner(x) * 2, strict=True)
        with torch.no_grad():
            for i in range(6):
                x = torch.randn(4, 256, device="cuda")
                self.assertTrue(torch.equal(inner(x), net(x)))
                self.assertTrue(torch.equal(outer(x), net(x) * 2))
        self.assertEqual(len(outer.shapes()), 1)

    def test_threads_share_a_callable(self):
        net = mlp().eval()
        made = reprise.graphed(net, strict=True)
        wrong = []

        def work(seed):
            generator = torch.Generator("cuda").manual_seed(seed)
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(100):
                    x = torch.randn(4, 256, device="cuda", generator=generator)
                    out = made(x)
                    torch.cuda.current_stream().synchronize()
                    if not torch.equal(out, net(x)):
                        wrong.append(seed)

        with torch.no_grad():
            for _ in range(4):
                made(torch.randn(4, 256, device="cuda"))
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_captured_ahead(self):
        net = mlp().eval()
        with torch.no_grad():
            made = reprise.graphed(net, strict=True,
                                   shapes=[(torch.empty(n, 256, device="cuda"),)
                                           for n in (1, 8, 4)])
            self.assertEqual(len(made.shapes()), 3)
            x = torch.randn(4, 256, device="cuda")
            self.assertTrue(torch.equal(made(x), net(x)))
        self.assertEqual(len(made.shapes()), 3)

    def test_other_streams(self):
        net = mlp().eval()
        made = reprise.graphed(net, strict=True)
        streams = [torch.cuda.Stream() for _ in range(3)]
        with torch.no_grad():
            pairs = []
            for i in range(12):
                with torch.cuda.stream(streams[i % 3]):
                    x = torch.randn(16, 256, device="cuda")
                    pairs.append((x, made(x)))
            torch.cuda.synchronize()
            for x, out in pairs:
                self.assertTrue(torch.equal(out, net(x)))

    @needs.triton
    def test_compiled(self):
        net = mlp().eval()
        compiled = torch.compile(net, dynamic=False)
        with torch.no_grad():
            self.check(compiled, [(torch.randn(16, 256, device="cuda"),) for _ in range(5)])

    @needs.fast_path
    def test_what_cannot_be_captured_is_not_looked_at_again(self):
        net = mlp().eval()

        def fn(x, read):
            return net(x) * (x.sum().item() > 0 or 1) if read else net(x)
        made = reprise.graphed(fn, watch=[net])
        x = torch.randn(16, 256, device="cuda")
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(4):
                made(x, True)
            looked = made._key
            made._key = None
            for _ in range(3):
                self.assertTrue(torch.equal(made(x, True), fn(x, True)))
            made._key = looked  # for the code that runs now, and has to be looked at
            self.check(fn, [(x, False)] * 3 + [(x, True)], graphed=made)
            made._key = None
            self.check(fn, [(x, False), (x, True)] * 2, graphed=made)
            made._key = looked
            net[0].weight.data = net[0].weight.data.clone()
            self.check(fn, [(x, False), (x, True)] * 2, graphed=made)
        self.assertEqual(len(made.failures()), 1)

    @unittest.skipUnless(sys.version_info >= (3, 12), "dicts are watched from CPython 3.12 on")
    def test_levels_of_loggers_take_no_look_in_each_call(self):
        """Each module of a library has a logger."""
        def looks(count):
            logs = tuple(logging.getLogger(f"reprise.looks.{i}") for i in range(count))
            net = torch.nn.Linear(8, 8).cuda()
            made = self.check(lambda x: net(x) * (1 + sum(log.isEnabledFor(logging.DEBUG) for log in logs)),
                              [(torch.randn(4, 8, device="cuda"),) for _ in range(4)])
            return made._reads.values.handle.counts()[1]
        self.assertEqual(looks(20), looks(1))

    def test_a_capture_compiles_nothing(self):
        compiled = []

        def backend(module, inputs):
            compiled.append(module)
            return module.forward
        net = mlp().eval()
        with torch.no_grad():
            for around in (contextlib.nullcontext(), torch.autocast("cuda", dtype=torch.bfloat16)):
                compiled.clear()
                torch._dynamo.reset()
                fn = torch.compile(net, backend=backend, dynamic=False)
                with around:
                    self.check(fn, [(torch.randn(16, 256, device="cuda"),) for _ in range(5)])
                self.assertEqual(len(compiled), 1)

    def test_a_capture_of_the_programs_own_beside(self):
        """In global mode, which other threads' calls could break: those that give memory back, too."""
        x, graph, begun, done = torch.ones(1 << 10, device="cuda"), torch.cuda.CUDAGraph(), *(
            threading.Event() for _ in range(2))
        made = reprise.graphed(lambda t: t * 3, strict=True)
        made(x)
        torch.randn(1 << 24, device="cuda").sum().item()  # for the cache
        with torch.cuda.graph(torch.cuda.CUDAGraph()):  # which goes, and leaves a pool to the cache
            x.repeat(1 << 14)
        gc.collect()
        results = []

        def capture():
            with torch.cuda.stream(torch.cuda.Stream()):
                graph.capture_begin(capture_error_mode="global")
                try:
                    results.append(x + 1)
                    begun.set()
                    done.wait(30)
                finally:
                    begun.set()
                    graph.capture_end()
        thread = threading.Thread(target=capture)
        thread.start()
        begun.wait(30)
        try:
            for _ in range(3):
                made(x)
        finally:
            done.set()
            thread.join()
        self.assertEqual(len(made.shapes()), 1)
        if not INSTALL:
            self.assertEqual(_C.call_counts()[0], 0)  # what runs left was let go all the same
        graph.replay()
        self.assertEqual(results[0].sum().item(), 2 << 10)

    def test_threads_with_small_stacks(self):
        """Capture where the stack is enough for it, and else say so."""
        program = """if True:
            import sys, threading, torch, reprise
            if {install}: reprise.install()
            x = torch.ones(8, 64, device="cuda")
            net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).cuda()
            def go():
                made = reprise.graphed(net, strict=True, warmup=0)
                try:
                    if threading.stack_size() > {small}: net(x).sum().backward()  # handles of cuBLAS
                    for _ in range(2): made(x).sum().backward()
                    print(len(made.shapes()), "graphs")
                except reprise.Error as error:
                    print(error)
            for size in ({small}, {enough}):  # a stack may be used again for a smaller one
                threading.stack_size(size)
                thread = threading.Thread(target=go)
                thread.start()
                thread.join()
            """
        # CPython 3.10 takes more of it for each call. 3.14 takes no stack below 52 KiB, and its parser wants more than 64.
        small, enough = (52, 256) if sys.version_info >= (3, 14) else (40, 64 if sys.version_info >= (3, 11) else 96)
        done = subprocess.run([sys.executable, "-c", program.format(
            install=INSTALL, small=small << 10, enough=(enough if ON_HOST else 1024) << 10)],
            capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = r"this thread has .* of its stack left, .*threading.stack_size.*"
        if sys.version_info >= (3, 14):  # where Python's parser may say so first
            said = rf"(?:{said}|[^\n]*[Ss]tack overflow[^\n]*)"
        self.assertRegex(done.stdout, rf"^{said}\n2 graphs$")

    def test_first_graphs_with_gradients_import_nothing(self):
        """torch.autograd.grad imports SymPy where it is given gradients, for longer than a capture takes."""
        program = """if True:
            import sys, torch, reprise
            if {install}: reprise.install()
            net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).cuda()
            x = torch.ones(8, 64, device="cuda")
            def step(x):
                net.zero_grad()
                loss = net(x).sum()
                loss.backward()
                return loss.detach()
            for _ in range(2): step(x)
            want = [p.grad.clone() for p in net.parameters()]
            before = set(sys.modules)
            whole, split = reprise.graphed(step, strict=True), reprise.graphed(net, strict=True)
            for _ in range(3):
                whole(x)
                assert all(map(torch.equal, want, [p.grad for p in net.parameters()]))
                net.zero_grad()
                split(x).sum().backward()
                assert all(map(torch.equal, want, [p.grad for p in net.parameters()]))
            print(len(whole.shapes()), len(split.shapes()))
            print(sorted(name for name in set(sys.modules) - before if name in ("sympy", "torch._dynamo")))
            """
        done = subprocess.run([sys.executable, "-c", program.format(install=INSTALL)], capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[:2], ["1 2", "[]"])

    def test_gradients_under_a_mode_are_asked_of_pytorch(self):
        told = []

        class Mode(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                told.append(func)
                return func(*args, **(kwargs or {}))
        x = torch.ones(4, device="cuda", requires_grad=True)
        y, grad = x * 2, torch.ones(4, device="cuda")
        for mode, asked in ((contextlib.nullcontext(), False), (Mode(), True)):
            with mode:
                found, = torch_private.gradients(torch, [y], [x], [grad], retain_graph=True)
            self.assertEqual(found.tolist(), [2] * 4)
            self.assertEqual(torch.autograd.grad in told, asked)

    def test_what_eager_calls_left_in_the_cache_goes_back(self):
        def fn(x):
            return (x.repeat(1 << 8) + 1).sum()  # 64 MiB, twice

        def idle():
            return torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        x = torch.randn(1 << 16, device="cuda")
        gc.collect()
        torch.cuda.empty_cache()
        before = idle()
        for _ in range(2):
            fn(x)
        self.assertGreater(idle() - before, 64 << 20)
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for _ in range(3):
                made(x)
        self.assertLess(idle() - before, 64 << 20)

    def test_the_cache_is_emptied_once_for_a_shape(self):
        """Of two graphs or of one; and once for all shapes that are estimated, where no pools go with them."""
        net, x = mlp(32), torch.randn(8, 32, device="cuda")
        with mock.patch.object(torch.cuda, "empty_cache", wraps=torch.cuda.empty_cache) as emptied:
            made = reprise.graphed(net, strict=True)
            for _ in range(3):
                made(x).sum().backward()
            self.assertEqual((emptied.call_count, len(made.shapes())), (1, 2))
            with torch.no_grad():
                made(x)
            self.assertEqual((emptied.call_count, len(made.shapes())), (2, 3))
            emptied.reset_mock()
            reprise.estimate(net, [(torch.randn(n, 32, device="cuda"),) for n in (2, 3, 4)])
            self.assertEqual(emptied.call_count, 1 if INSTALL else 4)


def train(step, batches):
    return [step(x, y).item() for x, y in batches]


class Training(unittest.TestCase):
    def batches(self, count, width=128):
        torch.manual_seed(7)
        return [(torch.randn(32, width, device="cuda"), torch.randn(32, width, device="cuda"))
                for _ in range(count)]

    def build(self, dropout=0.0):
        torch.manual_seed(2)
        net = mlp(128, 3, dropout)
        return net, torch.optim.Adam(net.parameters(), lr=1e-3, capturable=True)

    def split(self, forward, optimizer):
        def step(x, y):
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.mse_loss(forward(x), y)
            loss.backward()
            optimizer.step()
            return loss
        return step

    def test_whole_step(self):
        batches = self.batches(20)
        want = train(whole_step(*self.build()), batches)
        made = reprise.graphed(whole_step(*self.build()), strict=True)
        self.assertEqual(train(made, batches), want)
        self.assertEqual(len(made.shapes()), 1)

    def test_whole_steps_of_several_shapes(self):
        """Each capture comes where the gradients of the one before are alive in the pool."""
        batches = [(x[:n], y[:n]) for (x, y), n in zip(self.batches(20), 5 * (32, 16, 24, 8))]
        want = train(whole_step(*self.build()), batches)
        made = reprise.graphed(whole_step(*self.build()), strict=True)
        self.assertEqual(train(made, batches), want)
        self.assertEqual(len(made.shapes()), 4)

    @needs.draws_in_captures
    def test_whole_step_with_dropout(self):
        batches = self.batches(20)
        net, optimizer = self.build(0.2)
        torch.manual_seed(11)
        want = train(whole_step(net, optimizer), batches)
        net, optimizer = self.build(0.2)
        made = reprise.graphed(whole_step(net, optimizer), strict=True)
        torch.manual_seed(11)
        self.assertEqual(train(made, batches), want)

    def test_forward_and_backward(self):
        batches = self.batches(20)
        want = train(self.split(*self.build()), batches)
        net, optimizer = self.build()
        made = reprise.graphed(net, strict=True)
        self.assertEqual(train(self.split(made, optimizer), batches), want)
        self.assertEqual(len(made.shapes()), 2)

    @needs.draws_in_captures
    def test_forward_and_backward_with_dropout(self):
        batches = self.batches(20)
        net, optimizer = self.build(0.2)
        torch.manual_seed(11)
        want = train(self.split(net, optimizer), batches)
        net, optimizer = self.build(0.2)
        made = reprise.graphed(net, strict=True)
        torch.manual_seed(11)
        self.assertEqual(train(self.split(made, optimizer), batches), want)

    def test_gradients_of_arguments(self):
        def fn(a, b):
            c = (a * b).tanh()
            return {"sum": c.sum(), "same": c, "int": (a > 0).int()}
        made = reprise.graphed(fn, strict=True)
        for _ in range(5):
            a = torch.randn(50, device="cuda", requires_grad=True)
            b = torch.randn(50, device="cuda")
            grads = []
            for call in (made, fn):
                out = call(a, b)
                self.assertFalse(out["int"].requires_grad)
                grads.append(torch.autograd.grad(out["sum"] * 2 + out["same"].square().sum(), a)[0])
            self.assertTrue(torch.equal(*grads))

    def test_a_late_backward_pass(self):
        """The call behind the one that waits goes by graphs that lie elsewhere, and warms up for them."""
        net, _ = self.build()
        made = reprise.graphed(net, strict=True)
        x = torch.randn(4, 128, device="cuda")
        for _ in range(2):
            made(x).sum().backward()
        for _ in range(3):
            first, second = made(x), made(x * 2)
            self.assertTrue(torch.equal(first, net(x)) and torch.equal(second, net(x * 2)))
            net.zero_grad()
            second.sum().backward()
            first.sum().backward()
            got = [p.grad.clone() for p in net.parameters()]
            net.zero_grad()
            net(x * 2).sum().backward()
            net(x).sum().backward()
            self.assertTrue(all(torch.equal(p.grad, g) for p, g in zip(net.parameters(), got)))
        self.assertEqual([s["replays"] for s in made.shapes()], [4, 4, 2, 2])

    def test_several_calls_add_up_gradients_as_eagerly(self):
        """From the last call to the first, also in the steps that capture graphs for further calls."""
        net = torch.nn.Linear(1, 1, bias=False).cuda()
        for calls in (3, 5):
            made = reprise.graphed(net, strict=True)
            for step in range(9):
                found = []
                for call in (net, made):
                    net.zero_grad()
                    scales = [(1e8, -1e8, 1.0)[(step + k) % 3] for k in range(calls)]
                    sum(call(torch.full((1, 1), scale, device="cuda")) for scale in scales).sum().backward()
                    found.append(net.weight.grad.item())
                self.assertEqual(*found, (calls, step))
            self.assertEqual(made.failures(), [])
            self.assertGreater(sum(s["replays"] for s in made.shapes()), 9)

    def test_a_second_pass_behind_another_call(self):
        """The call waits for it, as its first one kept what it needs."""
        net, _ = self.build()
        made = reprise.graphed(net, strict=True)
        x = torch.randn(4, 128, device="cuda")
        for _ in range(3):
            net.zero_grad()
            loss = made(x).sum()
            loss.backward(retain_graph=True)
        once = [p.grad.clone() for p in net.parameters()]
        made(x)
        loss.backward()
        for p, grad in zip(net.parameters(), once):
            self.assertTrue(torch.equal(p.grad, 2 * grad))

    @unittest.skipUnless(INSTALL, "results are copies without install()")
    def test_results_changed_in_place_are_noticed(self):
        made = reprise.graphed(lambda x: x.tanh(), strict=True)
        for _ in range(3):
            x = torch.randn(10, device="cuda", requires_grad=True)
            y = made(x)
            y.sum().backward()
        y = made(x)
        with torch.no_grad():
            y.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "inplace"):
            y.sum().backward()

    def test_several_shapes_in_turn(self):
        net, optimizer = self.build()
        made = reprise.graphed(net, strict=True)
        other = mlp(128, 3)
        other.load_state_dict(net.state_dict())
        torch.manual_seed(3)
        for n in (8, 8, 4, 4, 16, 8, 4, 16, 16, 2):
            x = torch.randn(n, 128, device="cuda")
            net.zero_grad(), other.zero_grad()
            made(x).square().sum().backward()
            other(x).square().sum().backward()
            for p, q in zip(net.parameters(), other.parameters()):
                self.assertTrue(torch.equal(p.grad, q.grad))

    def test_gradients_outlive_the_graph(self):
        batches = self.batches(6)
        net, optimizer = self.build()
        made = reprise.graphed(whole_step(net, optimizer), strict=True)
        train(made, batches)
        grads = [p.grad for p in net.parameters()]
        want = [g.clone() for g in grads]
        del made
        other = reprise.graphed(whole_step(*self.build()), strict=True)
        train(other, batches[:4])
        junk = [torch.full((1 << 16,), 9.0, device="cuda") for _ in range(64)]
        torch.cuda.synchronize()
        for a, b in zip(grads, want):
            self.assertTrue(torch.equal(a, b))
        del junk

    def test_make_graphed_callables(self):
        torch.manual_seed(2)
        layers = [torch.nn.Linear(128, 128).cuda() for _ in range(3)]
        twins = [torch.nn.Linear(128, 128).cuda() for _ in range(3)]
        for a, b in zip(layers, twins):
            b.load_state_dict(a.state_dict())
        sample = torch.randn(32, 128, device="cuda", requires_grad=True)
        made = reprise.make_graphed_callables(tuple(layers), ((sample,),) * 3)
        for x, y in self.batches(6):
            x.requires_grad_()
            a = b = x
            for fn, twin in zip(made, twins):
                a, b = fn(a).relu(), twin(b).relu()
            torch.nn.functional.mse_loss(a, y).backward()
            got = x.grad
            x.grad = None
            torch.nn.functional.mse_loss(b, y).backward()
            self.assertTrue(torch.equal(got, x.grad))
            for layer, twin in zip(layers, twins):
                self.assertTrue(torch.equal(layer.weight.grad, twin.weight.grad))
                self.assertTrue(torch.equal(layer.bias.grad, twin.bias.grad))
        with self.assertRaisesRegex(ValueError, "other shapes"):
            made[0](torch.randn(3, 128, device="cuda"))

    def test_a_module_that_keeps_what_it_returns(self):
        """Results are fresh at each call, and what the module has is of its latest one."""
        class Remembers(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(64, 64)
                self.last = None

            def forward(self, x):
                self.last = self.inner(x).relu()
                return self.last
        net = Remembers().cuda()
        made = reprise.graphed(net, strict=True)
        inputs = [torch.randn(8, 64, device="cuda") for _ in range(5)]
        with torch.no_grad():
            want = [net(x) for x in inputs]
            got = []
            for x, y in zip(inputs, want):
                got.append(made(x))
                self.assertTrue(torch.equal(net.last, y))
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(got, want)))
        self.assertEqual(len({t.data_ptr() for t in got}), len(got))

    def test_tune(self):
        """Another place, or the same: results are, and so it is when it has to be captured anew."""
        net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)]).cuda()
        made = reprise.graphed(net, strict=True)
        x, y = (torch.randn(8, 64, device="cuda") for _ in range(2))
        with torch.no_grad():
            want = [net(x), net(y)]
            told = made.tune(x, places=5)
            self.assertEqual(list(told["us"]), [0, 4096, 8192, 12288, 16384])
            self.assertTrue(all(us > 0 for us in told["us"].values()))
            self.assertEqual(told["lead_bytes"], min(told["us"], key=told["us"].get))
            for _ in range(3):
                self.assertTrue(torch.equal(made(x), want[0]))
                self.assertTrue(torch.equal(made(y), want[1]))
            shape, = made.shapes()
            self.assertEqual(shape["lead_bytes"], told["lead_bytes"])
            again = made.tune(x, places=2)
            self.assertIn(told["lead_bytes"], again["us"])
            net[0].weight.data = net[0].weight.data.clone()  # its memory is another's
            self.assertTrue(torch.equal(made(x), want[0]))
            shape, = made.shapes()
            self.assertEqual(shape["lead_bytes"], again["lead_bytes"])
        with self.assertRaisesRegex(reprise.Error, "two graphs"):
            made.tune(x)

    def test_callables_warm_up_on_the_current_stream(self):
        """On another one many launches would slow all graphs of the process down."""
        seen = []

        def doubled(x):
            seen.append(torch.cuda.current_stream())
            return x * 2
        for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
            seen.clear()
            with torch.cuda.stream(stream):
                x = torch.ones(8, device="cuda", requires_grad=True)
                made = reprise.make_graphed_callables(doubled, (x,), num_warmup_iters=5)
                self.assertEqual(seen[:5], [stream] * 5)
                self.assertNotIn(stream, seen[5:])
                self.assertTrue(torch.equal(made(x), x * 2))

    def test_an_optimizer_outside(self):
        """Gradients are those of the call, whatever shape it had, and whether they were dropped."""
        batches = [(x[:n], y[:n]) for (x, y), n in zip(self.batches(12), (32, 16, 32, 32, 16, 8) * 2)]

        def losses(graph, every, to_none):
            net, optimizer = self.build()

            def backward(x, y):
                loss = torch.nn.functional.mse_loss(net(x), y)
                loss.backward()
                return loss.detach()
            call = reprise.graphed(backward, grad="whole") if graph else backward
            told = []
            for i, batch in enumerate(batches):
                if i % every == 0:
                    optimizer.zero_grad(set_to_none=to_none)
                told.append(call(*batch).item())
                if i % every == every - 1:
                    optimizer.step()
            if graph:
                self.assertTrue(call.shapes())
            return told
        for every, to_none in ((1, True), (1, False), (3, True), (3, False)):
            with self.subTest(every=every, to_none=to_none), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what stays eager
                self.assertEqual(losses(True, every, to_none), losses(False, every, to_none))

    def test_autocast(self):
        batches = self.batches(10)

        def step_of(forward, optimizer, cached):
            def step(x, y):
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=cached):
                    out = forward(x)
                loss = torch.nn.functional.mse_loss(out.float(), y)
                loss.backward()
                optimizer.step()
                return loss
            return step
        for cached in (False, True):
            want = train(step_of(*self.build(), cached), batches)
            net, optimizer = self.build()
            graphed = reprise.graphed(net, strict=True)
            self.assertEqual(train(step_of(graphed, optimizer, cached), batches), want)


class Results(unittest.TestCase):
    """What a call returns is what an eager call would return, not only in its values."""

    def results(self, fn):
        made = reprise.graphed(fn, strict=True)
        for i in range(4):
            x = torch.full((64,), float(i), device="cuda")
            yield x, made(x)
        self.assertEqual(sum(facts["replays"] for facts in made.shapes()), 3)

    def test_an_argument_is_itself(self):
        for x, (same, double) in self.results(lambda x: (x, x * 2)):
            self.assertIs(same, x)
            self.assertTrue(torch.equal(double, x * 2))

    def test_what_is_returned_twice_is_one_tensor(self):
        def fn(x):
            double = x * 2
            return double, [double, x + 1], {"it": double}
        for x, (double, (again, more), named) in self.results(fn):
            self.assertIs(again, double)
            self.assertIs(named["it"], double)
            self.assertTrue(torch.equal(double, x * 2))
            self.assertTrue(torch.equal(more, x + 1))

    def test_a_parameter_is_itself(self):
        net = torch.nn.Linear(4, 4).cuda()
        with torch.no_grad():
            for _, (weight, _) in self.results(lambda x: (net.weight, x * net.bias[0])):
                self.assertIs(weight, net.weight)

    def test_tensors_on_the_cpu_are_fresh(self):
        kept = []
        for _, (_, ones) in self.results(lambda x: (x * 2, torch.ones(3))):
            self.assertEqual(ones.tolist(), [1, 1, 1])
            ones.zero_()
            kept.append(ones)
        self.assertEqual(len(set(map(id, kept))), 4)

    def test_objects_that_calls_make_keep_them_eager(self):
        class Own:
            """Is put together by nobody else, as it says how it goes."""

            def __init__(self, y):
                self.y, self.seen = y, []

            def __del__(self):
                pass

        async def later(x):
            return x * 2

        def each(x):
            yield x * 2

        for fn, name in ((lambda x: Own(x * 2), "Own"), (lambda x: lambda: x * 2, "function"),
                         (each, "generator"), (later, "coroutine")):
            made = reprise.graphed(fn)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found = [made(torch.full((8,), float(i), device="cuda")) for i in range(4)]
                for coroutine in found if fn is later else ():
                    coroutine.close()
            self.assertEqual(len(set(map(id, found))), 4)
            self.assertIn(f"it returns a{'n' if name == 'Own' else ''} {name} that it makes",
                          " ".join(str(one.message) for one in said))
        same = object()
        for _, (_, found) in self.results(lambda x: (x * 2, same)):
            self.assertIs(found, same)


class Scaled(torch.nn.Module):
    """What its calls give hangs on more than their argument."""

    def __init__(self):
        super().__init__()
        self.net, self.scale = torch.nn.Linear(16, 16).cuda(), 1.0

    def forward(self, x):
        return self.net(x) * self.scale


class Kept(unittest.TestCase):
    """Calls of make_graphed_callables that find something else than was captured run eagerly, and say so."""

    def setUp(self):
        torch.manual_seed(1)
        self.x = torch.randn(4, 16, device="cuda", requires_grad=True)

    def said_of(self, net, change, twin_change=None):
        """What is said in calls ahead of a change and behind it, with results of the unchanged class."""
        twin = copy.deepcopy(net)
        made = reprise.make_graphed_callables(net, (self.x,))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for turn in range(4):
                if turn == 2:
                    change(net)
                    (twin_change or change)(twin)
                self.assertTrue(torch.equal(made(self.x), twin(self.x)), turn)
        return [str(one.message) for one in said if "reprise" in str(one.message)]

    def test_an_attribute(self):
        said, = self.said_of(Scaled(), lambda net: setattr(net, "scale", 2.5))
        self.assertIn("'Scaled' was captured for something else than there is now: `self.scale`, which it "
                      "reads, (now 2.5)", said)

    def test_a_value_that_comes_back_is_replayed(self):
        net, scales = Scaled(), (1.0, 2.5, 1.0)
        twin = copy.deepcopy(net)
        made = reprise.make_graphed_callables(net, (self.x,))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for scale in scales:
                net.scale = twin.scale = scale
                self.assertTrue(torch.equal(made(self.x), twin(self.x)))
        self.assertEqual(len(said), 1)

    def test_memory_of_a_parameter(self):
        def change(net):
            net.net.weight.data = net.net.weight.data * 2
        said, = self.said_of(Scaled(), change)
        self.assertIn("memory of its parameters or buffers", said)

    def test_hooks_within_and_around(self):
        def double(module, args, out):
            return out * 2
        said, = self.said_of(Scaled(), lambda net: net.net.register_forward_hook(double) and None)
        self.assertIn("a hook", said)
        self.assertEqual(self.said_of(Scaled(), lambda net: net.register_forward_hook(double) and None), [])

    def test_autocast(self):
        net = Scaled()
        twin = copy.deepcopy(net)
        made = reprise.make_graphed_callables(net, (self.x,))
        with warnings.catch_warnings(record=True) as said, torch.autocast("cuda", cache_enabled=False):
            warnings.simplefilter("always")
            self.assertEqual(made(self.x).dtype, twin(self.x).dtype)
        self.assertIn("autocast", str(said[0].message))

    def test_in_an_order_it_is_an_error(self):
        net = Scaled()
        made = reprise.make_graphed_callables(net, (self.x,), order=[1, -1])
        made(self.x).sum().backward()
        net.scale = 3.0
        with self.assertRaisesRegex(RuntimeError, r"`self.scale`, which it reads, \(now 3.0\)"):
            made(self.x)

    def test_a_copy_is_of_its_own_parameters(self):
        net = Scaled()
        copied = copy.deepcopy(reprise.make_graphed_callables(net, (self.x,)))
        with torch.no_grad():
            copied.net.weight.mul_(2)
            self.assertTrue(torch.equal(copied(self.x), copied.net(self.x)))
            self.assertFalse(torch.equal(copied(self.x), net(self.x)))


class Node:
    """An object that has itself."""

    def __init__(self, held):
        self.own, self.held = self, held


class Cycles(unittest.TestCase):
    """Garbage of the runs of a capture that the collector alone frees."""

    def compare(self, call_of, rows=(4, 4, 4, 3, 3, 3), shapes=2):
        found = []
        for graphed in (False, True):
            torch.manual_seed(0)
            net = torch.nn.Linear(8, 8).cuda()
            fn = call_of(net)
            made = reprise.graphed(fn) if graphed else fn
            losses = []
            for count in rows:
                x = torch.linspace(0, 1, 8 * count, device="cuda").view(count, 8)
                losses.append(made(x).sum().item())
            gc.collect()
            found.append((losses, net.weight.tolist()))
        self.assertTrue(found[0] == found[1])
        self.assertEqual(len(made.shapes()), shapes, made.failures())

    def test_without_gradients(self):
        def call_of(net):
            def fn(x):
                with torch.no_grad():
                    return net(Node(net(x).relu()).held)
            return fn
        self.compare(call_of)

    def test_in_a_step(self):
        def call_of(net):
            def step(x):
                node = Node(net(x).square())
                loss = node.held.mean()
                loss.backward()
                with torch.no_grad():
                    for p in net.parameters():
                        p -= 0.1 * p.grad
                net.zero_grad()
                return loss.detach()
            return step
        self.compare(call_of)

    def test_of_an_exception(self):
        """Whose traceback has the frame that keeps it, and the frames of callers, with their tensors."""
        def twice(x):
            try:
                return x.view(3, 7)
            except RuntimeError as error:
                kept = error
                return x * 2 if kept else x

        def call_of(net):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

            def step(x):
                loss = net(twice(net(x))).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                return loss.detach()
            return step
        self.compare(call_of)


class Verification(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def check(self, fn, new, verify, calls=4):
        """Calls with new arguments give what fn gives; the facts of the one shape."""
        made = reprise.graphed(fn, strict=True, verify=verify)
        for _ in range(calls):
            args = new()
            copies = [a.clone() for a in args]
            got, want = made(*args), fn(*copies)
            self.assertTrue(torch.equal(got, want))
            for given, copied in zip(args, copies):
                self.assertTrue(torch.equal(given, copied))
        facts, = made.shapes()
        self.assertEqual(facts["verified"], verify, facts["not_run"])
        self.assertEqual(facts["unverified_args"], 0, facts["arguments"])
        return facts

    def test_by_capturing_and_by_running(self):
        net = mlp().eval()
        for verify in ("capture", "run"):
            with torch.no_grad():
                facts = self.check(net, lambda: [torch.randn(16, 256, device="cuda")], verify)
            self.assertEqual(facts["bound_args"], 2)
            self.assertIsNone(facts["not_run"])

    def test_lists_of_tensors(self):
        def fn(a, b, c):
            return torch.stack(torch._foreach_add([a, b, c], [b, c, a]))
        for verify in ("capture", "run"):
            self.check(fn, lambda: list(torch.randn(3, 1000, device="cuda").clone().unbind()), verify)
            self.check(fn, lambda: [torch.randn(1000, device="cuda") for _ in range(3)], verify)

    def test_what_is_written_in_place(self):
        def fn(x, y):
            x.add_(y)
            return x.sum()
        for verify in ("capture", "run"):
            self.check(fn, lambda: [torch.randn(100, device="cuda") for _ in range(2)], verify)

    def test_convolution_and_attention(self):
        conv = torch.nn.Conv2d(3, 8, 3).cuda().eval()
        attention = torch.nn.MultiheadAttention(64, 4, batch_first=True).cuda().eval()
        with torch.no_grad():
            for verify in ("capture", "run"):
                self.check(conv, lambda: [torch.randn(2, 3, 32, 32, device="cuda")], verify)
                self.check(lambda x: attention(x, x, x, need_weights=False)[0],
                           lambda: [torch.randn(2, 16, 64, device="cuda")], verify)

    @needs.draws_in_captures
    def test_random_numbers_are_verified_by_capturing(self):
        made = reprise.graphed(lambda x: torch.nn.functional.dropout(x), strict=True, verify="run")
        for _ in range(3):
            made(torch.ones(1000, device="cuda"))
        facts, = made.shapes()
        self.assertEqual(facts["verified"], "capture")

    def test_training_is_verified_by_capturing(self):
        net = mlp()
        made = reprise.graphed(net, strict=True, verify="run")
        for _ in range(4):
            x = torch.randn(8, 256, device="cuda")
            made(x).sum().backward()
            got = [p.grad.clone() for p in net.parameters()]
            net.zero_grad()
            net(x).sum().backward()
            for a, p in zip(got, net.parameters()):
                torch.testing.assert_close(a, p.grad)
            net.zero_grad()
        self.assertEqual([f["verified"] for f in made.shapes()], ["capture", "capture"])

    def test_shapes_ahead_are_verified_by_capturing(self):
        made = reprise.graphed(lambda x: x * 2, shapes=[(torch.ones(n, device="cuda"),)
                                                        for n in (10, 20)], verify="run")
        self.assertEqual([f["verified"] for f in made.shapes()], ["capture", "capture"])

    def test_other_results_than_eager_ones_are_refused(self):
        def fn(x):
            return x * (2 if torch.cuda.is_current_stream_capturing() else 3)
        made = reprise.graphed(fn, strict=True, verify="run")
        x = torch.ones(10, device="cuda")
        made(x)
        with self.assertRaisesRegex(reprise.Error, "other results than the callable itself"):
            made(x)
            self.fail(made.shapes()[0]["not_run"])

    def test_runs_are_on_the_callers_stream(self):
        def fn(x):
            if not torch.cuda.is_current_stream_capturing():
                seen.append(torch.cuda.current_stream().cuda_stream)
            return x * 2
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
            seen = Unseen()
            made = reprise.graphed(fn, strict=True, verify="run")
            with torch.cuda.stream(stream):
                x = torch.ones(10, device="cuda")
                made(x)
                made(x)
            self.assertEqual(seen.all(), 3 * [stream.cuda_stream])
            facts, = made.shapes()
            self.assertEqual(facts["verified"], "run", facts["not_run"])

    def test_other_words_are_refused(self):
        with self.assertRaisesRegex(ValueError, "verify is 'twice'"):
            reprise.graphed(lambda x: x, verify="twice")


class Within(unittest.TestCase):
    """In what torch.compile takes in, as transformers does with a model that has a static cache: calls go by graphs."""

    class Net(torch.nn.Sequential):
        """Of the program, as its method is, which PyTorch's are not."""

        def forward(self, x):
            return self[2](self[1](self[0](x)))

    def follow(self, outer, replays):
        """outer(net, kind): what is compiled, and the graphed callable in it."""
        for policy in ("always", "auto"):
            torch.manual_seed(1)
            net = self.Net(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)).cuda()
            twin = copy.deepcopy(net)
            fn, made = outer(net, policy)
            compiled = torch.compile(fn, backend="eager")
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", message=".*(triton|float32 matrix).*")
                for i in range(24):
                    x = torch.full((2 + i % 2, 8), 1.0 + i, device="cuda")
                    self.assertTrue(torch.equal(compiled(x), twin(x)), (policy, i))
            self.assertEqual(made.failures(), [])
            if policy == "always":
                self.assertGreaterEqual(sum(s["replays"] for s in made.shapes()), replays, made.shapes())
            torch._dynamo.reset()

    def test_a_module(self):
        def outer(net, policy):
            made = reprise.graphed(net, policy=policy)
            return made.__call__, made
        self.follow(outer, 20)

    def test_a_method_in_its_place(self):
        def outer(net, policy):
            net.forward = made = reprise.graphed(net.forward, policy=policy)
            net.compiled = None  # who keeps what was compiled at the net
            return net.__call__, made
        self.follow(outer, 20)

    def test_what_was_compiled_is_kept_by_the_module(self):
        def outer(net, policy):
            made = reprise.graphed(net, policy=policy)
            made.compiled = torch.compile(made.__call__, backend="eager")
            return made.compiled, made
        self.follow(outer, 23)

    def test_generate_with_a_static_cache(self):
        """Which compiles the model's call by itself."""
        need_transformers(self)
        import transformers
        from transformers.generation.configuration_utils import CompileConfig
        torch.manual_seed(1)
        net = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=64,
            max_position_embeddings=64, attn_implementation="eager")).cuda().eval()
        net.generation_config.pad_token_id = 0
        tokens = torch.randint(1, 64, (2, 6), device="cuda")

        def made(model):
            return model.generate(tokens, do_sample=False, max_new_tokens=5, cache_implementation="static",
                                  compile_config=CompileConfig(backend="eager", mode=None))
        for in_place in (False, True):
            graphed = copy.deepcopy(net)
            fn = reprise.graphed(graphed.forward if in_place else graphed)
            if in_place:
                graphed.forward = fn
            for _ in range(4):
                self.assertTrue(torch.equal(made(graphed if in_place else fn), made(net)))
            self.assertGreater(sum(s["replays"] for s in fn.shapes()), 0, fn.failures())

    def test_a_function_around_it(self):
        def outer(net, policy):
            made = reprise.graphed(lambda x: net(x), policy=policy)
            return (lambda x: made(x * 1.0) + 0.0), made
        self.follow(outer, 20)


class Report(unittest.TestCase):
    def test_tells_what_was_captured(self):
        def triple(x):
            return x * 3
        made = reprise.graphed(triple, strict=True)
        for _ in range(3):
            made(torch.ones(100, device="cuda"))
        text = reprise.report()
        self.assertIn("triple(100)", text)
        self.assertIn("no layout takes less than", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
