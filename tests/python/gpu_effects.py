# SPDX-License-Identifier: MIT
"""What calls change of Python state, beside an eager twin, and captures that are refused or fail: on a GPU,
under install() and without it: usage: gpu_effects.py [--install] ..."""

import argparse
import array
import asyncio
import builtins
import cProfile
import collections
import concurrent.futures
import contextlib
import contextvars
import copy
import functools
import gc
import io
import linecache
import operator
import os
import pstats
import queue
import signal
import sys
import threading
import time
import types
import unittest
import warnings
import weakref
from unittest import mock

import torch

import reprise
from reprise import _C
from reprise._base import torch_private
from reprise._effects.effects import Effects
from reprise._reads import runs
from training_steps import need_transformers
from unseen import Unseen

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

HERE = os.path.dirname(reprise.__file__) + os.sep
TOTAL = 0


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(16, 16)
        self.calls, self.last, self.last_shape = 0, None, None

    def forward(self, x):
        return self.inner(x)


class Growing:
    """A cache of results, as a decoder has."""

    def __init__(self):
        self.items, self.total, self.filled = [], None, False

    def update(self, y):
        if not self.filled:
            self.total, self.filled = y * 0, True
        self.items.append(y)
        self.total = self.total + y
        return self.total


class Static:
    """A cache that is written in place."""

    def __init__(self):
        self.total = None

    def update(self, y):
        if self.total is None:
            self.total = torch.zeros(4, 16, device="cuda")
        return self.total.add_(y)


def inputs(count=6):
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(4, 16, generator=generator).cuda() for _ in range(count)]


def held_lock():
    """One that this thread has taken. Who waits for another thread otherwise is refused by runs."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one.detach().cpu(), other.detach().cpu())
    if isinstance(one, (list, tuple, collections.deque)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return one == other


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.net = Net().cuda()

    def graphed(self, fn, said, **options):
        made = reprise.graphed(fn, **options)

        def call(*args, **kwargs):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                result = made(*args, **kwargs)
            said.extend(str(w.message) for w in told if "reprise" in str(w.message))
            return result
        return made, call


class BesideAnEagerTwin(Case):
    """make() gives (callable, its state): state() is what the calls left."""

    def check(self, make, *, replays=None, named=None, calls=None, grad=False):
        said = []
        fn, state = make()
        twin, twin_state = make()
        made, call = self.graphed(fn, said)
        with torch.set_grad_enabled(grad):
            for args in calls or [(x,) for x in inputs()]:
                got, want = call(*args), twin(*args)
                self.assertTrue(same(got, want))
                if grad:  # or calls would wait for it
                    got.sum().backward()
                    want.sum().backward()
                self.assertTrue(same(state(), twin_state()))
        if named is None:
            self.assertEqual(said, [])
            self.assertEqual(sum(s["replays"] for s in made.shapes()), replays * (1 + grad), made.failures())
        else:
            self.assertEqual(len(said), 1, said)
            for text in (named, os.path.basename(__file__)):
                self.assertIn(text, said[0])
            self.assertEqual(made.shapes(), [])
        return made

    def test_a_list_that_grows(self):
        def make():
            log = []

            def fn(x):
                log.append(self.net(x))
                return log[-1] * 2
            return fn, lambda: log
        self.check(make, replays=4)  # behind an attempt that told what it adds

    def test_an_array_of_objects(self):
        """It keeps what a run made beyond it, unless that is put back."""
        def make():
            import numpy
            kept = numpy.empty(2, object)
            kept[1] = {"count": 0}

            def fn(x):
                kept[0] = self.net(x)
                return kept[0] * 2
            return fn, lambda: kept.tolist()
        self.check(make, named="changes 'kept' (is an array on the CPU, and a call writes to it)")

        def make_counting():
            import numpy
            kept = numpy.array([None, {"count": 0}])

            def fn(x):
                kept[1]["count"] += 1
                return self.net(x)
            return fn, lambda: kept.tolist()
        self.check(make_counting, replays=4)

    def test_what_grows_in_many_places(self):
        """Attributes, a list in a dict, a deque that is full, counters, beside a gradient or not."""
        for grad in (False, True):
            def make():
                kept = types.SimpleNamespace(calls=0, seen=[], history={"mean": []}, last=collections.deque(maxlen=2))

                def fn(x):
                    y = self.net(x)
                    kept.calls += 1
                    kept.seen += [y.detach() * 2, "seen"]
                    kept.history["mean"].append((y.detach().mean(), x.shape))
                    kept.last.append(y.detach().max())
                    kept.calls += 2
                    return y
                return fn, lambda: (kept.calls, kept.seen, kept.history, kept.last)
            with self.subTest(grad=grad):
                self.check(make, replays=5, calls=[(x,) for x in inputs(7)], grad=grad)

    def check_left(self, make):
        """What calls leave is what eager ones do, whatever way they go, and each is made once."""
        fn, state = make()
        twin, twin_state = make()
        _, call = self.graphed(fn, [])
        with torch.no_grad():
            for x in inputs(12):
                self.assertTrue(same(call(x), twin(x)))
                self.assertEqual(state(), twin_state())

    def test_what_only_pythons_own_objects_keep(self):
        def of_a_variable():
            variable = contextvars.ContextVar("depth", default=0)
            return (lambda: variable.set(variable.get() + 1)), variable.get

        def of_an_array():
            held = array.array("d", [0.0])
            return (lambda: held.append(len(held)) or held.__setitem__(0, held[0] + 1)), held.tolist

        def of_a_semaphore():
            semaphore = threading.Semaphore(100)
            return semaphore.acquire, lambda: semaphore._value

        def of_an_event():
            event, answers = threading.Event(), []

            def turn():
                answers.append(event.is_set())
                (event.clear if event.is_set() else event.set)()
            return turn, lambda: (event.is_set(), list(answers))

        def of_a_queue():
            held = queue.Queue()
            return (lambda: held.put(held.qsize())), lambda: list(held.queue)

        def of_weak_members():
            objects = [Net() for _ in range(20)]
            held = weakref.WeakSet()
            return (lambda: held.add(objects[len(held)])), lambda: len(held)
        for kind in (of_a_variable, of_an_array, of_a_semaphore, of_an_event, of_a_queue, of_weak_members):
            def make(kind=kind):
                change, state = kind()

                def fn(x):
                    change()
                    return self.net(x) * 2
                return fn, state
            with self.subTest(kind=kind.__name__):
                self.check_left(make)

    def test_counters_behind_caches_and_keys(self):
        class Stats:
            calls = 0

        def in_a_cache():
            return functools.cache(Stats)

        def among_keys():
            held = {Stats(): 1.0}
            return lambda: next(one for one in held)

        def in_a_set():
            held = {Stats()}
            return lambda: min(held, key=id)
        for kind in (in_a_cache, among_keys, in_a_set):
            def make(kind=kind):
                found = kind()

                def fn(x):
                    found().calls += 1
                    return self.net(x) * 2
                return fn, lambda: found().calls
            with self.subTest(kind=kind.__name__):
                self.check_left(make)

    def test_a_list_that_the_program_replaces_or_empties(self):
        def make():
            kept = types.SimpleNamespace(seen=[], calls=0)

            def fn(x):
                kept.seen.append(self.net(x))
                kept.calls += 1
                return kept.seen[-1] * 2

            def state():
                found = kept.calls, list(kept.seen)
                if kept.calls == 4:
                    kept.seen, kept.calls = [], 100
                if kept.calls == 102:
                    kept.seen.clear()
                return found
            return fn, state
        self.check(make, replays=6, calls=[(x,) for x in inputs(8)])

    def test_what_hooks_keep_in_a_list(self):
        """Which the program empties before each call."""
        def make():
            seen, net = [], torch.nn.Sequential(self.net.inner, torch.nn.ReLU())
            held = [layer.register_forward_hook(lambda module, args, out: seen.append(out)) for layer in net]

            def fn(x):
                return net(x)

            def state():
                found = list(seen)
                seen.clear()
                return found
            self.addCleanup(lambda: [handle.remove() for handle in held])
            return fn, state
        (fn, state), said = make(), []
        made, call = self.graphed(fn, said)
        with torch.no_grad():
            for x in inputs():
                out, found = call(x), state()
                inner = torch.nn.functional.linear(x, self.net.inner.weight, self.net.inner.bias)
                self.assertTrue(same(found, [inner, out]))
        self.assertEqual(said, [])
        self.assertEqual(sum(s["replays"] for s in made.shapes()), 4)

    def test_what_hooks_of_gradients_keep_in_a_list(self):
        """They run on threads of autograd's."""
        def make():
            torch.manual_seed(4)
            net, seen = torch.nn.Linear(8, 8).cuda(), []
            net.weight.register_hook(lambda grad: seen.append(grad.abs().sum()))
            net.bias.register_post_accumulate_grad_hook(lambda bias: seen.append(bias.grad * 2))

            def step(x):
                net.zero_grad()
                loss = net(x).square().sum()
                loss.backward()
                return loss.detach()
            return step, seen
        (eager, want), (fn, seen) = make(), make()
        made = reprise.graphed(fn)
        for _ in range(6):
            x = torch.randn(4, 8, device="cuda")
            self.assertTrue(same(made(x), eager(x)))
        self.assertTrue(same(seen, want))
        self.assertGreaterEqual(sum(s["replays"] for s in made.shapes()), 3)

    def test_what_hooks_of_gradients_write_is_written_once(self):
        net, written = torch.nn.Linear(8, 8).cuda(), io.StringIO()

        def write(grad):
            written.write("x")
        net.weight.register_hook(write)

        def step(x):
            net.zero_grad()
            loss = net(x).square().sum()
            loss.backward()
            return loss.detach()
        made = reprise.graphed(step)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for calls in range(1, 7):
                made(torch.randn(4, 8, device="cuda"))
                self.assertEqual(written.getvalue(), "x" * calls)
        self.assertIn("writes to a file or reads from one (at ", str(said[-1].message))

    def test_what_reads_a_list_that_grows(self):
        def refused(read, held=lambda log: log):
            def make():
                log = []
                there = held(log)

                def fn(x):
                    log.append(self.net(x))
                    return log[-1] * read(log, there)
                return fn, lambda: log
            self.check(make, named="'log' (has 3 elements behind a call that began with 2)")

        def caught(log, there):
            try:
                return len(log)
            except Exception:  # the program's own, which must not hide it
                return 1
        for name, read in (("length", lambda log, there: len(log)), ("first", lambda log, there: log[0]),
                           ("all", lambda log, there: torch.stack(log).sum(0)), ("caught", caught),
                           ("truth", lambda log, there: 2 if log else 1)):
            with self.subTest(name):
                refused(read)
        with self.subTest("a tuple"):
            refused(lambda log, there: len(there[0]), lambda log: (log,))

    def test_a_counter_that_is_kept_elsewhere_too(self):
        def make():
            net = types.SimpleNamespace(calls=0, last=0)

            def fn(x):
                net.calls += 1
                net.last = net.calls
                return self.net(x)
            return fn, lambda: (net.calls, net.last)
        self.check(make, named="'net.calls' (from 2 to 3)")

    def test_another_thread_reads_what_grows(self):
        """While a capture is under way it gets what the program has."""
        kept, found = types.SimpleNamespace(calls=0, log=[]), Unseen()
        asked, answered = held_lock(), held_lock()

        def look():
            while asked.acquire() and not stop.is_set():
                found.append((kept.calls + 1, len(kept.log), bool(kept.log), f"{kept.calls}"))
                answered.release()
        stop, one = threading.Event(), threading.Thread(target=look)
        one.start()

        def fn(x):
            kept.calls += 1
            kept.log.append(self.net(x))
            if torch.cuda.is_current_stream_capturing():
                asked.release()
                answered.acquire()
            return kept.log[-1] * 2
        made, call = self.graphed(fn, [])
        try:
            with torch.no_grad():
                for i, x in enumerate(inputs(5), 1):
                    self.assertTrue(same(call(x), self.net(x) * 2))
                    self.assertEqual((kept.calls, len(kept.log)), (i, i))
        finally:
            stop.set()
            asked.release()
            one.join()
        self.assertIn((3, 2, True, "2"), found.all())

    def test_what_a_capture_found_made_lazily_is_read_again(self):
        """The attempt that finds it is no capture, so that the value still tells calls apart."""
        def program(wrap):
            holder = types.SimpleNamespace(branches=[0])

            def scaled(x):
                if not hasattr(holder, "scale"):
                    holder.scale = 2.0
                return x * holder.scale
            call, found = wrap(lambda x: scaled(x) if len(holder.branches) > 1 else x), []
            for i, x in enumerate([torch.full((8,), float(n), device="cuda") for n in range(1, 9)]):
                if i == 2:
                    holder.branches.append(0)
                if i == 6:
                    holder.scale = 5.0
                with torch.no_grad():
                    found.append(call(x).tolist())
            return found
        self.assertEqual(program(reprise.graphed), program(lambda fn: fn))

    def test_a_counter(self):
        def make():
            net = types.SimpleNamespace(calls=0)

            def fn(x):
                net.calls += 1
                return self.net(x) * (1.0 if net.calls % 2 else 2.0)
            return fn, lambda: net.calls
        self.check(make, named="'net.calls' (from 2 to 3)")

    def test_a_global(self):
        def make():
            start = TOTAL

            def fn(x):
                global TOTAL
                TOTAL += 1
                return self.net(x)
            return fn, lambda: TOTAL > start
        self.check(make, replays=4)

    def test_random_numbers_of_python(self):
        import random

        def make():
            own = random.Random(7)
            return (lambda x: self.net(x) * own.random()), own.getstate
        self.check(make, named="random numbers")

    def test_an_iterator(self):
        def make():
            scales = iter([float(i) for i in range(100)])
            return (lambda x: self.net(x) * next(scales)), scales.__length_hint__
        self.check(make, named="scales")

    def test_a_tensor_on_the_cpu(self):
        def make():
            steps = torch.zeros(())

            def fn(x):
                steps.add_(1)
                return self.net(x)
            return fn, lambda: steps
        self.check(make, named="'steps'")

    def test_a_state_that_is_read_and_replaced(self):
        def make():
            held = types.SimpleNamespace(h=torch.zeros(4, 16, device="cuda"))

            def fn(x):
                held.h = self.net(x) + held.h
                return held.h * 2
            return fn, lambda: held.h
        self.check(make, named="'held.h' (is read and replaced)")

    def test_a_buffer_that_is_replaced(self):
        def make():
            net = Net().cuda()
            net.register_buffer("mean", torch.zeros(4, 16, device="cuda"))

            def forward(x):
                net.mean = x * 0.5
                return self.net(x)
            return forward, lambda: net.mean
        self.check(make, named="'net.mean'")

    def test_a_tensor_that_comes_to_lie_elsewhere(self):
        for other in (lambda x: x * 0.5, lambda x: x[:2]):
            def make(other=other):
                held = torch.zeros(4, 16, device="cuda")

                def fn(x):
                    held.data = other(x)
                    return self.net(x)
                return fn, lambda: held
            self.check(make, named="'held' (lies elsewhere")

    def moving(self, result):
        """What makes a program whose parameters lie elsewhere behind each call; result: of the net and the input."""
        def make():
            average = Net().cuda()
            average.load_state_dict(self.net.state_dict())

            def fn(x):
                for mean, param in zip(average.parameters(), self.net.parameters()):
                    mean.data = mean.data * 0.5 + param.data * 0.25
                return result(average, x)
            return fn, lambda: list(average.parameters())
        return make

    def test_parameters_that_come_to_lie_elsewhere(self):
        """All that was captured is forgotten at each call."""
        self.check(self.moving(lambda net, x: net(x)), named="lies elsewhere")

    def test_captures_that_fail_while_parameters_come_to_lie_elsewhere(self):
        self.check(self.moving(lambda net, x: net(x) * float(x[0, 0])), named="is not permitted",
                   calls=[(x,) for x in inputs(14)])

    def test_containers_among_the_arguments(self):
        """What calls put into them and take out is there behind replays, in the caller's own."""
        def moved(x, batch):
            batch["parts"].append(self.net(x))
            batch["again"] = batch["parts"]
            return batch["parts"][0] + batch["parts"][-1]

        def swapped(x, pair):
            pair[0], pair[1] = pair[1], pair[0]
            pair += [x, "end", None]
            return self.net(pair[0])

        def taken(x, batch):
            labels = batch.pop("labels")
            batch.update(out=self.net(x), size=len(x))
            return labels * batch["out"]
        for name, fn, make in (("list", lambda x, into: into.append(self.net(x)) or into[0] * 2, lambda x: []),
                               ("dict", lambda x, into: into.update(y=self.net(x)) or into["y"] * 2, lambda x: {}),
                               ("taken out", taken, lambda x: {"labels": x + 1, "x": x}),
                               ("moved", moved, lambda x: {"parts": [x * 3]}),
                               ("swapped", swapped, lambda x: [x * 2, x * 3]),
                               ("emptied", lambda x, into: into.clear() or self.net(x), lambda x: [x, x])):
            for grad in (False, True):
                with self.subTest(name, grad=grad), torch.set_grad_enabled(grad):
                    self.containers(fn, make)

    def containers(self, fn, make):
        said, kept = [], []
        made, call = self.graphed(fn, said)
        for x in inputs():
            into, want = make(x), make(x)
            parts = into.get("parts") if type(into) is dict else None
            got, eager = call(x, into), fn(x, want)
            self.assertTrue(same(got, eager))
            if got.requires_grad:  # or calls would wait for it
                got.sum().backward()
                eager.sum().backward()
            kept.append((into, want))
            if parts is not None:
                self.assertIs(into["parts"], parts)
                self.assertIs(into["again"], parts)
        self.assertTrue(same(*map(list, zip(*kept))))
        self.assertEqual(said, [])
        self.assertEqual({s["replays"] for s in made.shapes()}, {5})

    def test_one_container_in_two_places(self):
        """A run has two of it, so calls are eager, and say so."""
        def fn(x, one, other):
            one.append(self.net(x))
            return x * len(other)
        made, call = self.graphed(fn, said := [])
        with torch.no_grad():
            for x in inputs(12):
                into, want = [], []
                self.assertTrue(same(call(x, into, into), fn(x, want, want)))
                self.assertTrue(same(into, want))
        self.assertEqual(len(said), 1, said)
        self.assertIn("'argument 2' held something else", said[0])
        self.assertEqual(made.shapes(), [])

    def test_a_list_that_comes_again_with_what_calls_added(self):
        """Each length is another shape, of which a few are captured."""
        def fn(x, into):
            into.append(self.net(x))
            return into[-1] * 2
        made, call = self.graphed(fn, said := [])
        into, want = [], []
        with torch.no_grad():
            for x in inputs(12):
                self.assertTrue(same(call(x, into), fn(x, want)))
                self.assertTrue(same(into, want))
        self.assertEqual(len(said), 1, said)
        self.assertIn("comes again with what earlier calls put there", said[0])
        self.assertEqual(len(made.shapes()), 4)

    def test_what_no_replay_makes_in_a_container(self):
        """An object in a list among the arguments."""
        def fn(x, into):
            into.append(types.SimpleNamespace(y=self.net(x)))
            return x * 2
        made, call = self.graphed(fn, said := [])
        with torch.no_grad():
            for x in inputs():
                call(x, into := [])
                self.assertTrue(same(into[0].y, self.net(x)))
        self.assertEqual(len(said), 1, said)
        self.assertIn("'argument 2' (a list that it changes)", said[0])
        self.assertEqual(made.shapes(), [])

    def test_shapes_are_shapes(self):
        """What a call returns or keeps, though PyTorch's trees make tuples of them."""
        kept = types.SimpleNamespace(last=None, log=[])

        def fn(x, size):
            kept.last = x.shape
            kept.log.append((x.shape, "shape"))
            return x.reshape(size) * 2, x.shape
        made = reprise.graphed(fn)
        with torch.no_grad():
            for x in inputs(5):
                out, shape = made(x, torch.Size((2, 32)))
                self.assertEqual([type(s) for s in (shape, kept.last, kept.log[-1][0])], [torch.Size] * 3)
                self.assertEqual((out.shape, shape), (torch.Size((2, 32)), x.shape))
        self.assertEqual(sum(s["replays"] for s in made.shapes()), 3)

    def test_results_that_a_module_keeps(self):
        """They are fresh at each call: earlier ones stay what they were."""
        def make():
            net, kept = Net().cuda(), []
            net.inner = self.net.inner

            def forward(x):
                y = net.inner(x)
                net.last, net.last_shape = (y, x * 2), x.shape
                return y + 1

            def state():
                kept.append(net.last)
                return list(kept)
            return forward, state
        self.check(make, replays=5)

    def test_results_that_a_hook_keeps(self):
        """In a dict that the program empties before each call."""
        def make():
            net, seen = Net().cuda(), {}
            net.inner = torch.nn.Linear(16, 16).cuda()
            net.load_state_dict(self.net.state_dict())
            net.inner.register_forward_hook(lambda module, args, out: seen.__setitem__("out", out))

            def state():
                found = dict(seen)
                seen.clear()
                return found
            return net, state
        self.check(make, replays=4)  # behind an attempt that told what changes

    def test_what_is_kept_and_returned_is_one_tensor(self):
        holder = types.SimpleNamespace(last=None)

        def fn(x):
            holder.last = self.net(x)
            return holder.last
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for x in inputs():
                out = made(x)
                self.assertIs(out, holder.last)
        self.assertEqual(sum(s["replays"] for s in made.shapes()), 5)

    def test_made_lazily(self):
        """In a call of each shape, behind which captures find it."""
        def make():
            masks = {}

            def fn(x):
                if x.shape[0] not in masks:
                    masks[x.shape[0]] = torch.ones(x.shape[0], 16, device="cuda") * x.shape[0]
                return self.net(x) * masks[x.shape[0]]
            return fn, lambda: masks
        calls = [(x[:n],) for x in inputs() for n in (4, 2)]
        self.check(make, calls=calls, replays=10)

    def test_the_same_value_each_time(self):
        def make():
            net = types.SimpleNamespace(mode="none", size=None)

            def fn(x):
                net.mode, net.size = "ran", x.shape
                return self.net(x)
            return fn, lambda: (net.mode, net.size)
        self.check(make, replays=5)

    def test_a_value_that_the_program_puts_back(self):
        def make():
            stats = {}

            def fn(x):
                stats["n"], stats["y"] = x.shape[0], self.net(x)
                return stats["y"] + 1

            def state():
                found = dict(stats)
                stats.clear()
                return found
            return fn, state
        self.check(make, replays=4)  # behind an attempt that told what changes

    def test_a_place_that_holds_something_else_by_then(self):
        holder, said = types.SimpleNamespace(last=None), []

        def fn(x):
            y = self.net(x) if holder.last is None else self.net(x) * 3
            holder.last = y + 1
            return y
        made, call = self.graphed(fn, said, warmup=0)
        with torch.no_grad():
            for i, x in enumerate(inputs(12)):
                if i % 2 == 0:
                    holder.last = None
                was = holder.last
                got, left = call(x), holder.last
                holder.last = was
                self.assertTrue(same(got, fn(x)) and same(left, holder.last), i)

    def test_an_auxiliary_loss(self):
        """With gradients through it."""
        def train(call, net, kept):
            told = []
            for x in inputs():
                net.zero_grad()
                out = call(x)
                (out.sum() + kept.loss.sum()).backward()
                out, kept.loss = out.detach(), kept.loss.detach()  # or nodes of this stream stay
                told.append((out, kept.loss, net.inner.weight.grad.clone()))
            return told

        def make():
            net, kept = Net().cuda(), types.SimpleNamespace(loss=None)
            net.load_state_dict(self.net.state_dict())
            net.register_forward_hook(lambda module, args, out: setattr(kept, "loss", out * out))
            return net, kept
        (net, kept), twin = make(), make()
        made = reprise.graphed(net, strict=True)
        for got, want in zip(train(made, net, kept), train(twin[0], *twin)):
            for a, b in zip(got, want):
                torch.testing.assert_close(a.detach().cpu(), b.detach().cpu())
        self.assertEqual(sum(s["replays"] for s in made.shapes()), 10)


class Caches(Case):
    def decode(self, call, make, steps=5):
        """Twice, with a new cache each time."""
        told = []
        for x in inputs(2):
            cache = make()
            for _ in range(steps):
                x = call(x, cache) * 0.5
                told.append((x, cache.total))
        return told

    def test_one_that_grows(self):
        said = []
        fn = lambda x, cache: cache.update(self.net(x))  # noqa: E731
        made, call = self.graphed(fn, said)
        with torch.no_grad():
            self.assertTrue(same(self.decode(call, Growing), self.decode(fn, Growing)))
        self.assertEqual(made.shapes(), [])
        self.assertEqual(len(said), 1, said)
        self.assertIn("'argument 2.", said[0])
        self.assertIn("in update", said[0])
        text, = made.failures()
        self.assertIn("'argument 2.", text)

    def test_what_to_do_about_one_of_transformers(self):
        for name, is_told in (("DynamicCache", True), ("StaticCache", False), ("Growing", False)):
            cache = type(name, (Growing,), {"__module__": "transformers.cache_utils" if name != "Growing" else __name__})
            said = []
            _, call = self.graphed(lambda x, cache: cache.update(self.net(x)), said)
            with torch.no_grad():
                self.decode(call, cache)
            self.assertEqual(len(said), 1, said)
            self.assertEqual('cache_implementation="static"' in said[0], is_told, said)

    def test_a_cache_that_calls_were_eager_with_is_let_go(self):
        made, call = self.graphed(lambda x, cache: cache.update(self.net(x)), [])
        with torch.no_grad():
            for _ in range(15):
                self.decode(call, Growing)
            gc.collect()
            self.assertLessEqual(sum(type(o) is Growing for o in gc.get_objects()), 18)

    def test_one_that_is_written_in_place(self):
        said = []
        fn = lambda x, cache: cache.update(self.net(x)) * 1  # noqa: E731
        made, call = self.graphed(fn, said)
        with torch.no_grad():
            self.assertTrue(same(self.decode(call, Static, 8), self.decode(fn, Static, 8)))
        self.assertEqual(said, [])
        self.assertGreaterEqual(sum(s["replays"] for s in made.shapes()), 2 * 6)

    def needs(self, fn, *tensors):
        """Skips where the device does not compute this as the CPU does."""
        try:
            torch.testing.assert_close(fn(*(t.cuda() for t in tensors)).cpu(), fn(*tensors))
        except AssertionError:
            self.skipTest("this device lacks kernels that the model launches")

    def generates(self, captured, **way):
        """Eager's tokens, in eager calls or in graphs."""
        need_transformers(self)
        from transformers import LlamaConfig, LlamaForCausalLM
        torch.manual_seed(0)
        net = LlamaForCausalLM(LlamaConfig(
            hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=200, max_position_embeddings=128)).cuda().eval()
        ids = torch.arange(16).remainder(7).view(2, 8).cuda()

        def generate():
            torch.manual_seed(1)
            return net.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, min_new_tokens=8,
                                max_new_tokens=8, **way).cpu()
        want = generate()
        made = net.forward = reprise.graphed(net.forward)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(3):
                self.assertTrue(torch.equal(generate(), want))
        told = [str(w.message) for w in said if "reprise: 'forward'" in str(w.message)]
        if captured:
            self.assertGreaterEqual(sum(s["replays"] for s in made.shapes()), 3 * 6, made.failures())
        else:
            self.assertEqual(made.shapes(), [])
            named = ("'past_key_values.layers", "'cache.layers")  # as transformers calls it until 5.23, and since
            self.assertTrue(any(name in text for text in told for name in named), told)

    def test_generate(self):
        self.generates(False, do_sample=False)

    def test_generate_with_samples(self):
        self.generates(False, do_sample=True, top_k=0)

    def test_generate_with_beams(self):
        self.needs(lambda x: x.topk(4).values, torch.arange(400.0).remainder(37).view(2, 200))
        self.generates(False, do_sample=False, num_beams=2)

    def test_generate_with_a_static_cache(self):
        rows, at = torch.arange(24.0).view(1, 2, 3, 4), torch.tensor([1])
        self.needs(lambda x, at: torch.zeros_like(x).index_copy_(2, at, x[:, :, :1]), rows, at)
        self.needs(lambda x: torch.nn.functional.scaled_dot_product_attention(
            x, x, x, attn_mask=torch.zeros(3, 3, device=x.device)), rows / 24)
        self.generates(True, do_sample=False, cache_implementation="static", disable_compile=True)


def raise_at_ctrl_c(test):
    """Python's handler, for the length of a test: in the background of a shell without job control SIGINT is
    ignored from the start."""
    test.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))


class Refused(Case):
    """After each kind of refusal eager calls and captures are right, and nothing of the capture is left."""

    def settle(self):
        gc.collect()
        torch.cuda.synchronize()
        return torch.cuda.get_rng_state().tolist()

    def check(self, spoil, kinds=Exception):
        """spoil(holder, y): what a run does when it is captured; holder is the program's."""
        holder, net = types.SimpleNamespace(kept=None, bad=True), self.net

        def fn(x):
            y = torch.nn.functional.dropout(net(x), 0.5)
            holder.kept = y
            if holder.bad and torch.cuda.is_current_stream_capturing():
                spoil(holder, y)
            return y * 2
        made = reprise.graphed(fn)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = inputs(1)[0]
            fn(x)
            torch.manual_seed(3)
            fn(x)
            want, state = fn(x), self.settle()
            torch.manual_seed(3)
            made(x)
            before = holder.kept
            try:
                got = made(x)
            except kinds:
                self.assertIs(holder.kept, before)
                got = made._fn(x)
            self.assertTrue(same(got, want))
            self.assertTrue(same(holder.kept * 2, want))
            self.assertEqual(self.settle(), state)
            self.assertFalse(torch.cuda.is_current_stream_capturing())
            self.assertFalse(_C.is_captured(holder.kept.untyped_storage().data_ptr()))
            holder.bad = False
            self.after(made, fn, holder)

    def after(self, made, fn, holder):
        """The next captures are right: of other shapes, and of another callable."""
        for n in (3, 2):
            for call in (made, reprise.graphed(lambda x: self.net(x) + 1)):
                for _ in range(3):
                    x = inputs(1)[0][:n]
                    seed = torch.cuda.initial_seed() + 1
                    torch.manual_seed(seed)
                    got = call(x)
                    torch.manual_seed(seed)
                    self.assertTrue(same(got, fn(x) if call is made else self.net(x) + 1))
        self.assertIn(len(made.shapes()), (2, 4), made.failures())

    def test_an_exception(self):
        def spoil(holder, y):
            raise ValueError("in the midst of it")
        self.check(spoil)

    def test_a_broken_capture_is_told_by_what_broke_it(self):
        """Not by what the allocator found of it behind."""
        net = self.net
        made = reprise.graphed(lambda x: x * net(x).sum().item())
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for x in inputs(3):
                made(x)
        self.assertEqual(len(made.failures()), 1)
        self.assertIn("AcceleratorError", made.failures()[0])

    def test_a_host_read(self):
        self.check(lambda holder, y: y.sum().item())

    def test_a_synchronisation(self):
        self.check(lambda holder, y: torch.cuda.synchronize())

    def test_a_list_that_grows(self):
        def spoil(holder, y):
            holder.log = [*getattr(holder, "log", ()), y]
            holder.log.append(y)
            holder.count = getattr(holder, "count", 0) + 1
        self.check(spoil)

    def test_memory_that_there_is_not(self):
        def spoil(holder, y):
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        self.check(spoil)

    def test_ctrl_c(self):
        raise_at_ctrl_c(self)

        def spoil(holder, y):
            signal.raise_signal(signal.SIGINT)
        self.check(spoil, KeyboardInterrupt)

    def test_an_exit(self):
        def spoil(holder, y):
            raise SystemExit(3)
        self.check(spoil, SystemExit)

    def test_a_stream_that_is_not_joined(self):
        def spoil(holder, y):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                holder.side = y + 1
        self.check(spoil)


class TimeLimit(Exception):
    pass


def time_limit(*_):
    raise TimeLimit


class Interrupted(Case):
    """Ctrl-C, or the end of a time limit, at lines of this package and of the callable, all through a capture."""
    # On the host driver, where a capture takes 5 ms, at each fourth of some 4,000 lines.
    tries = 1000 if "/host/lib" in os.environ.get("LD_PRELOAD", "") else 40

    def setUp(self):
        super().setUp()
        raise_at_ctrl_c(self)

    @staticmethod
    def opens_block(frame):
        """Is a with statement under way? What a trace function raises as its block ends most likely leaves CPython 3.12.3
        with what the block took. No signal comes there."""
        return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")

    def call_until(self, made, x, line, number=signal.SIGINT):
        """Calls, and interrupts at that line; how many there were, and whether what the handler raised came here."""
        count, came = 0, False

        def local(frame, event, arg):
            nonlocal count
            if event == "line" and not self.opens_block(frame):
                count += 1
                if count == line:
                    signal.raise_signal(number)
            return local

        def trace(frame, event, arg):
            ours = frame.f_code.co_filename.startswith(HERE) or frame.f_code.co_name == "forward"
            return local if ours else None
        sys.settrace(trace)
        try:
            made(x)
        except (KeyboardInterrupt, TimeLimit):
            came = True
        finally:
            sys.settrace(None)
        return count, came

    def at_lines(self, number, tries):
        """Calls that are interrupted at some lines each, and then right: (the callable, line, did it come)."""
        net, x = self.net, inputs(1)[0]
        handler = signal.getsignal(number)
        with torch.no_grad():
            want = net(x)

            def fresh():
                made = reprise.graphed(net)
                made(x)
                return made
            lines, _ = self.call_until(fresh(), x, 0)
            for line in range(1, lines, max(1, lines // tries)):
                made = fresh()
                reached, came = self.call_until(made, x, line, number)
                self.assertFalse(torch.cuda.is_current_stream_capturing(), line)
                self.assertIs(signal.getsignal(number), handler)
                self.assertFalse(runs._askers._lock._is_owned(), f"a run's functions, line {line} of {lines}")
                for _ in range(2):
                    self.assertTrue(same(made(x), want), line)
                self.assertEqual(len(made.shapes()), 1, (line, made.failures()))
                yield made, f"line {line} of {lines}", came == (reached >= line)

    def test_a_time_limit_anywhere(self):
        """What a handler raises is no failure of the callable, which would be called once more without the limit."""
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, time_limit))
        for made, line, came in self.at_lines(signal.SIGALRM, self.tries // 2):
            self.assertTrue(came, line)
            self.assertEqual(made.failures(), [], line)

    def test_a_time_limit_in_the_callable(self):
        """In each of its runs, by a handler of any sort."""
        class Handler:
            def __call__(self, *_):
                raise TimeLimit

            def method(self, *_):
                raise TimeLimit

        def fn(x):
            y = x * weight
            return y + 1

        def trace(frame, event, arg):
            nonlocal runs
            if frame.f_code is fn.__code__ and event == "call":
                runs += 1
                if runs == late:
                    signal.raise_signal(signal.SIGALRM)
        weight, x = torch.ones(4, device="cuda"), torch.rand(4, device="cuda")
        self.addCleanup(signal.signal, signal.SIGALRM, signal.getsignal(signal.SIGALRM))
        for handler in (time_limit, Handler(), Handler().method, functools.partial(time_limit)):
            signal.signal(signal.SIGALRM, handler)
            for policy in ("always", "auto"):
                for late in range(1, 6):
                    runs, limits, made = 0, 0, reprise.graphed(fn, policy=policy)
                    for _ in range(20):
                        sys.settrace(trace)
                        try:
                            self.assertTrue(same(made(x), x * 1 + 1))
                        except TimeLimit:
                            limits += 1
                        finally:
                            sys.settrace(None)
                    self.assertEqual((limits, made.failures()), (int(runs >= late), []), (handler, policy, late, runs))
                    self.assertGreater(runs, 1)

    def test_anywhere(self):
        for _ in self.at_lines(signal.SIGINT, self.tries):
            pass

    def test_at_any_time(self):
        """As a timer has it, which is no line's: within captures, ahead of them or behind."""
        net, x = self.net, inputs(1)[0]
        before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        with torch.no_grad():
            want, start = net(x), time.perf_counter()
            for _ in range(2):
                made = reprise.graphed(net)
                made(x)
                made(x)
            seconds = (time.perf_counter() - start) / 2
            for turn in range(60):
                made = reprise.graphed(net)
                try:
                    signal.setitimer(signal.ITIMER_REAL, seconds * (turn + 1) / 60)
                    made(x)
                    made(x)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    pass
                self.assertFalse(torch.cuda.is_current_stream_capturing())
                for _ in range(3):
                    self.assertTrue(same(made(x), want), turn)
                self.assertEqual(len(made.shapes()), 1, made.failures())


class Streams(Case):
    """Streams that the callable sets itself. Work on one that the capture does not include is no part of a graph."""

    def setUp(self):
        super().setUp()
        self.side = torch.cuda.Stream()
        self.seen = torch.zeros(4, 16, device="cuda")

    def check(self, fn, *, is_captured, text="works on a stream that does not wait for the current one",
              behind=lambda: None):
        """behind: what the program does behind each call."""
        said = []
        made, call = self.graphed(fn, said)
        with torch.no_grad():
            for x in inputs():
                torch.cuda.synchronize()  # or the side stream could read what is not there yet
                got = call(x)
                behind()
                torch.cuda.synchronize()
                self.assertTrue(same(self.seen, x * 2))
                self.assertTrue(same(got, x + 1))
        self.assertEqual(len(made.shapes()), int(is_captured), (said, made.failures()))
        self.assertEqual(len(said), 1 - is_captured, said)
        for warning in said:
            self.assertIn(text, warning)
            self.assertIn("# strays", warning)
        self.assertIs(torch._C._cuda_setStream, torch_private.of(torch).set_stream)
        for name in ("record", "wait"):
            self.assertFalse(hasattr(getattr(torch.cuda.Event, name), "__wrapped__"))
        self.assertFalse({"__enter__", "__exit__"} & set(vars(torch.cuda.Stream)))

    def test_the_callers_own(self):
        own = torch.cuda.Stream()
        for stream in (torch.cuda.default_stream(), own):
            def fn(x):
                with torch.cuda.stream(stream):
                    self.seen.copy_(x * 2)
                with stream:
                    return x + 1
            with torch.cuda.stream(stream):
                self.check(fn, is_captured=True)

    def test_one_that_waits(self):
        def fn(x):
            current = torch.cuda.current_stream()
            self.side.wait_stream(current)
            with self.side:
                self.seen.copy_(x * 2)
                with torch.cuda.stream(current):
                    y = x + 1
            current.wait_stream(self.side)
            return y
        self.check(fn, is_captured=True)

    def test_one_that_does_not(self):
        def fn(x):
            with torch.cuda.stream(self.side):  # strays
                self.seen.copy_(x * 2)
            return x + 1
        self.check(fn, is_captured=False)

    def test_one_that_is_a_context_itself(self):
        def fn(x):
            with self.side:  # strays
                self.seen.copy_(x * 2)
            return x + 1
        self.check(fn, is_captured=False)

    def test_one_that_is_set(self):
        def fn(x):
            current = torch.cuda.current_stream()
            torch.cuda.set_stream(self.side)
            self.seen.copy_(x * 2)
            torch.cuda.set_stream(current)  # strays
            return x + 1
        self.check(fn, is_captured=False)

    def test_one_that_is_set_by_the_accelerator(self):
        if not hasattr(torch._C, "_accelerator_setStream"):
            self.skipTest("this PyTorch has no such function")
        before = torch._C._accelerator_setStream

        def fn(x):
            current = torch.accelerator.current_stream()
            torch.accelerator.set_stream(self.side)
            self.seen.copy_(x * 2)
            torch.accelerator.set_stream(current)  # strays
            return x + 1
        self.check(fn, is_captured=False)

        def joining(x):
            current = torch.accelerator.current_stream()
            self.side.wait_stream(current)
            torch.accelerator.set_stream(self.side)
            self.seen.copy_(x * 2)
            torch.accelerator.set_stream(current)
            current.wait_stream(self.side)
            return x + 1
        self.check(joining, is_captured=True)
        self.assertIs(torch._C._accelerator_setStream, before)

    def test_an_event_for_others(self):
        """CUDA lets nobody wait for one that a capture recorded."""
        event = torch.cuda.Event()

        def fn(x):
            self.seen.copy_(x * 2)
            event.record()  # strays
            return x + 1
        self.check(fn, is_captured=False, text="records an event that it does not wait for itself",
                   behind=lambda: self.side.wait_event(event))

    def test_an_external_event_for_others(self):
        event = torch.cuda.Event(external=True)

        def fn(x):
            self.seen.copy_(x * 2)
            event.record()
            return x + 1
        self.check(fn, is_captured=True, behind=lambda: self.side.wait_event(event))

    def test_events_that_join(self):
        """Which the program keeps, and takes for each call."""
        fork, join = torch.cuda.Event(), torch.cuda.Event()

        def fn(x):
            fork.record()
            with torch.cuda.stream(self.side):
                fork.wait()
                self.seen.copy_(x * 2)
                join.record()
            y = x + 1
            join.wait()
            torch.cuda.current_stream().record_event()  # which nobody has
            return y
        self.check(fn, is_captured=True)

    def test_work_of_other_threads(self):
        """Their streams are not captured, whoever hands it to them."""
        def write(x):
            self.seen.copy_(x * 2)

        def started(x):
            thread = threading.Thread(target=write, args=(x,))
            thread.start()  # strays
            thread.join()
            return x + 1

        def submitted(x):
            future = pool.submit(write, x)  # strays
            while not future.done():
                pass
            return x + 1

        def mapped(x):
            list(pool.map(write, [x]))  # strays
            return x + 1

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            for fn in (started, submitted, mapped):
                with self.subTest(fn.__name__):
                    self.check(fn, is_captured=False, text="hands work to another thread, or waits for one")

    def test_other_threads_set_theirs(self):
        """While this one captures."""
        stop, wrong = threading.Event(), []

        def work():
            own, other = torch.cuda.Stream(), torch.cuda.Stream()
            while not stop.is_set():
                try:
                    with torch.cuda.stream(own), other:
                        if torch.cuda.current_stream() != other:
                            wrong.append("within")
                    if torch.cuda.current_stream() != torch.cuda.default_stream():
                        wrong.append("behind")
                except Exception as error:
                    wrong.append(error)
        thread = threading.Thread(target=work)
        thread.start()
        try:
            self.test_one_that_waits()
            self.test_one_that_does_not()
        finally:
            stop.set()
            thread.join()
        self.assertEqual(wrong, [])


class Threads(Case):
    def test_each_thread_with_effects_of_its_own(self):
        wrong = []

        def work(seed):
            net, holder = Net().cuda(), types.SimpleNamespace(last=None)

            def fn(x):
                holder.last = net(x)
                return holder.last + 1
            made = reprise.graphed(fn)
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for x in inputs(12):
                    got = made(x)
                    last = holder.last
                    if not (same(got, fn(x)) and same(last, holder.last)):
                        wrong.append(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])


class Profilers(Case):
    """Before CPython 3.12 runs are told of by the function that a profiler sets for its thread."""

    def calls_under(self, begin, end):
        net, made = Net().cuda().eval(), reprise.graphed(lambda x: net(x) + 1)
        begin()
        try:
            with torch.no_grad():
                for x in inputs(6):
                    self.assertTrue(same(made(x), net(x) + 1))
        finally:
            end()
        self.assertEqual(made.failures(), [])
        self.assertEqual([shape["replays"] for shape in made.shapes()], [5])

    def test_cprofile_goes_on(self):
        profile = cProfile.Profile()
        self.calls_under(profile.enable, profile.disable)
        counts = {name[2]: found[0] for name, found in pstats.Stats(profile).stats.items()}
        self.assertGreaterEqual(counts["assertTrue"], 5)

    def test_functions_go_on(self):
        told = []

        def profile(frame, event, _):
            if event == "return":
                told.append(frame.f_code.co_name)
        self.calls_under(lambda: sys.setprofile(profile), lambda: sys.setprofile(None))
        self.assertGreaterEqual(told.count("assertTrue"), 5)

    @unittest.skipIf(hasattr(sys, "monitoring"), "runs are told of by sys.monitoring")
    def test_others_are_refused_by_name(self):
        class Sampler:
            pass
        net = Net().cuda().eval()
        made = reprise.graphed(lambda x: net(x) + 1)
        with torch.no_grad(), mock.patch.object(sys, "getprofile", Sampler):
            for x in inputs(3):
                self.assertTrue(same(made(x), net(x) + 1))
        self.assertIn("a profiler of type", str(made.failures()))


class Further(unittest.TestCase):
    """Captures of a callable behind the first one, which take what that found."""

    def setUp(self):
        self.net, self.looks = Net().cuda(), 0
        look = Effects._look

        def counted(effects, *given):
            self.looks += 1
            look(effects, *given)
        patcher = mock.patch.object(Effects, "_look", counted)
        self.addCleanup(patcher.stop)
        patcher.start()
        torch.set_grad_enabled(False)
        self.addCleanup(torch.set_grad_enabled, True)

    def captures(self, made, rows):
        """How often a capture for so many rows looked for what runs may change."""
        before, shapes = self.looks, len(made.shapes())
        x = torch.randn(rows, 16, device="cuda")
        self.assertTrue(torch.equal(made(x), self.net(x)))
        self.assertEqual(len(made.shapes()), shapes + 1)
        return self.looks - before

    def test_a_call_that_sets_and_raises(self):
        """Behind one of another size that was captured."""
        held = types.SimpleNamespace(last=None)

        def fn(x):
            held.last = x.shape[0]
            if held.last > 2:
                raise ValueError("too large")
            return x * 2
        made = reprise.graphed(fn, strict=True)
        for rows in (2, 3, 2, 3, 2):
            x = torch.ones(rows, 4, device="cuda")
            if rows == 3:
                with self.assertRaisesRegex(ValueError, "too large"):
                    made(x)
            else:
                self.assertTrue(torch.equal(made(x), x * 2))
                self.assertEqual(held.last, rows)

    def test_further_shapes_take_what_the_first_one_found(self):
        made = reprise.graphed(self.net, strict=True)
        x = torch.randn(1, 16, device="cuda")
        made(x)
        self.assertEqual([self.captures(made, rows) for rows in (2, 3, 4)], [1, 0, 0])
        self.assertEqual(self.captures(other := reprise.graphed(self.net, strict=True, warmup=0), 1), 0)
        self.net.late = []
        self.assertEqual([self.captures(made, rows) for rows in (5, 6)], [1, 0])
        x = torch.randn(6, 16, device="cuda")
        self.assertTrue(torch.equal(made(x), self.net(x)))
        self.assertEqual(self.captures(made, 7), 0, "that call went through Python")
        for _ in range(2):
            made(x)
        self.assertEqual(self.captures(made, 8), 1, "a replay let go of it")
        self.assertEqual(len(other.shapes()), 1)

    def test_a_counter_that_comes_to_be_between_captures_counts(self):
        inner = self.net.inner

        def count(x):
            if hasattr(count, "calls"):
                count.calls += 1
            return inner(x)

        def fn(x):
            return count(x)
        made = reprise.graphed(fn)
        for rows in (1, 2, 3):
            made(torch.randn(rows, 16, device="cuda"))
        count.calls = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for call in range(1, 9):
                made(torch.randn(4, 16, device="cuda"))
                self.assertEqual(count.calls, call)

    def test_what_the_program_drops_is_gone(self):
        """Memory at once, objects behind a replay."""
        class Some:
            pass
        made, x = reprise.graphed(self.net, strict=True), torch.randn(2, 16, device="cuda")
        weight = self.net.inner.weight
        self.net.some, gone = Some(), []
        for _ in range(2):
            made(x)
        gone.append(weakref.ref(self.net.some))
        del self.net.some
        gc.collect()
        before = torch.cuda.memory_allocated()
        large = torch.zeros(16, 16 << 10, device="cuda")
        weight.data, small = large[:, :16], weight.data
        for rows in (2, 3):
            made(torch.randn(rows, 16, device="cuda"))
        weight.data = small
        del large
        torch.cuda.synchronize()
        self.assertLess(torch.cuda.memory_allocated(), before + (1 << 19))
        for _ in range(4):
            self.assertTrue(torch.equal(made(x), self.net(x)))
        self.assertIsNone(gone[0]())

    def test_threads_that_capture_share_nothing(self):
        """Each takes what is kept, or looks for itself."""
        made = [reprise.graphed(self.net) for _ in range(3)]
        wrong = []

        def work(one):
            with torch.no_grad():
                for rows in range(1, 9):
                    x = torch.randn(rows, 16, device="cuda")
                    for _ in range(2):
                        if not torch.equal(one(x), self.net(x)):
                            wrong.append(rows)
        threads = [threading.Thread(target=work, args=(one,)) for one in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Lines(unittest.TestCase):
    """What a callable prints, its replays print, where that is written in its code."""

    def setUp(self):
        self.x = torch.ones(4, device="cuda")

    def printed(self, fn, calls=6):
        """What each call writes, to a stream of its own; and what replays there were."""
        made, found = reprise.graphed(fn), []
        with warnings.catch_warnings(record=True) as self.said:
            warnings.simplefilter("always")
            for _ in range(calls):
                out, err = io.StringIO(), io.StringIO()
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    self.assertTrue(torch.equal(made(self.x), self.x + 1))
                found.append((out.getvalue(), err.getvalue()))
        self.assertIs(print, builtins.print)
        self.assertIsInstance(print, types.BuiltinFunctionType)
        return found, sum(shape["replays"] for shape in made.shapes())

    def test_constants(self):
        def fn(x):
            print("a", "b", sep="-")
            y = x + 1
            print("c", end="", file=sys.stderr, flush=True)
            print()
            return y
        self.assertEqual(self.printed(fn), ([("a-b\n\n", "c")] * 6, 5))

    def test_what_is_composed_is_refused(self):
        def counted(x):
            print(f"{x.shape}")
            return x + 1

        def elsewhere(x):
            with contextlib.redirect_stdout(io.StringIO()):
                print("a")
            return x + 1

        def caught(x):
            try:
                print(str(len(x)))
            except Exception:
                pass
            return x + 1
        for fn, line in ((counted, "torch.Size([4])\n"), (elsewhere, ""), (caught, "4\n")):
            with self.subTest(fn.__name__):
                self.assertEqual(self.printed(fn), ([(line, "")] * 6, 0))
                self.assertTrue(any("prints (at " in str(w.message) for w in self.said))

    def test_other_threads_print(self):
        """While a run of a capture prints nothing."""
        is_over, lines, stream = threading.Event(), [0], io.StringIO()

        def work():
            while not is_over.is_set():
                print("other", file=stream)
                lines[0] += 1
                time.sleep(0.001)

        def fn(x):
            time.sleep(0.02)
            print("own")
            return x + 1
        thread = threading.Thread(target=work)
        thread.start()
        found, replays = self.printed(fn, 4)
        is_over.set()
        thread.join()
        self.assertEqual(replays, 3)
        self.assertEqual(stream.getvalue(), "other\n" * lines[0])
        self.assertEqual([out for out, _ in found], ["own\n"] * 4)


class Asks(unittest.TestCase):
    def test_whether_the_stream_captures(self):
        """In a graph it does: the program is told once, and by its line."""
        def fn(x):
            return x * (2.0 if torch.cuda.is_current_stream_capturing() else 1.0)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(2):
                call = reprise.graphed(fn)
                found = [call(torch.ones(1, device="cuda")).item() for _ in range(3)]
                self.assertEqual(found[0], 1.0)
                self.assertEqual(found[2], 2.0)
        told = [str(w.message) for w in seen if "whether the current stream captures" in str(w.message)]
        self.assertEqual(len(told), 1, told)
        self.assertIn("is_current_stream_capturing() else", told[0])


class Askers(unittest.TestCase):
    def test_runs_of_several_threads_leave_pythons_own_behind(self):
        """Whichever ends first; and each is told of its own thread."""
        def ask(what):
            getattr(self, "of_" + what, None)
        own = [getattr(builtins, name) for name in ("getattr", "hasattr", "id")]
        go, begun, ended, seen = held_lock(), held_lock(), held_lock(), []

        def other():
            go.acquire(timeout=10)
            with runs.Run(runs.Executed(), refuses=True) as run:
                ask("other")
                begun.release()
                ended.acquire(timeout=10)
                ask("later")
            seen.append(run.executed.made)
        thread = threading.Thread(target=other)
        thread.start()
        with runs.Run(runs.Executed(), refuses=True) as run:
            go.release()
            self.assertTrue(begun.acquire(timeout=10))
            ask("this")
        ended.release()
        thread.join()
        self.assertTrue(all(map(operator.is_, own, (builtins.getattr, builtins.hasattr, builtins.id))))
        self.assertLessEqual({"of_this"}, run.executed.made)
        self.assertFalse({"of_other", "of_later"} & run.executed.made)
        self.assertLessEqual({"of_other", "of_later"}, seen[0])
        self.assertNotIn("of_this", seen[0])


class OfTheLibrary(unittest.TestCase):
    """What calls do to objects of Python's own library."""

    def check(self, make, act, tell, calls=6):
        """act(object): in the call; tell(object): what it shows."""
        shown = []
        for wrap in (lambda fn: fn, reprise.graphed):
            held, seen, net = make(), [], torch.nn.Linear(8, 8).cuda()

            def fn(x, held=held, net=net):
                act(held)
                return net(x)
            fn = wrap(fn)
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _ in range(calls):
                    fn(torch.ones(2, 8, device="cuda"))
                    seen.append(tell(held))
            shown.append(seen)
        self.assertEqual(*shown)

    def test_objects(self):
        def counts(held):
            held.n = getattr(held, "n", 0) + 1

        def appends(held):
            held["n"] = held.get("n", 0) + 1
        for name, make, act, tell in (
                ("threading.local", threading.local, counts, lambda held: held.n),
                ("Namespace", argparse.Namespace, counts, lambda held: held.n),
                ("ChainMap", collections.ChainMap, appends, lambda held: held["n"]),
                ("Queue", asyncio.Queue, lambda held: held.put_nowait(1), lambda held: held.qsize()),
                ("Semaphore", lambda: asyncio.Semaphore(0), lambda held: held.release(), lambda held: held._value),
                ("ExitStack", contextlib.ExitStack, lambda held: held.callback(print), lambda held: len(
                    held._exit_callbacks))):
            with self.subTest(name):
                self.check(make, act, tell)

    def test_nets_that_a_cache_loads_and_drops(self):
        """Three take turns in a cache of two. Without what makes such a net go, the process ends behind them."""
        nets = [torch.nn.Linear(8, 8).cuda() for _ in range(3)]

        @functools.lru_cache(maxsize=2)
        def load(which):
            return copy.deepcopy(nets[which])
        made, x = reprise.graphed(lambda x, which: load(which)(x)), torch.ones(2, 8, device="cuda")
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for which in (0, 1, 2) * 3:
                self.assertTrue(same(made(x, which), nets[which](x)), which)
        del made
        load.cache_clear()
        gc.collect()
        torch.cuda.empty_cache()
        self.assertTrue(same(load(1)(x), nets[1](x)))

    def test_threads_with_objects_of_their_own(self):
        local, net = threading.local(), torch.nn.Linear(8, 8).cuda()

        def fn(x):
            if not hasattr(local, "scale"):
                local.scale = torch.full((8,), 2.0, device="cuda")
            return net(x) * local.scale
        made, right = reprise.graphed(fn), []

        def work():
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _ in range(5):
                    x = torch.randn(2, 8, device="cuda")
                    right.append(torch.equal(made(x), net(x) * 2))
        for _ in range(3):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        self.assertEqual(right, [True] * 15)

    def test_hooks_of_all_modules(self):
        for register in (torch.nn.modules.module.register_module_forward_hook,
                         torch.nn.modules.module.register_module_forward_pre_hook):
            seen = []
            handle = register(lambda *given, seen=seen: seen.append(1))
            try:
                self.check(lambda: None, lambda held: None, lambda held, seen=seen: len(seen) % 6)
            finally:
                handle.remove()


class OfOtherCalls(unittest.TestCase):
    """Tensors that calls of one kind put where calls of another kind read them."""

    def check(self, make, kinds, replays):
        """make(): a function of (tensor, kind); kinds: of the calls."""
        torch.manual_seed(0)
        eager, twin = make(), make()
        twin.load(eager)
        made, kept = reprise.graphed(twin), []
        with torch.no_grad():
            for kind in kinds:
                x = torch.randn(2, 8, device="cuda")
                want = eager(x, kind)
                self.assertTrue(torch.equal(made(x, kind), want), kind)
                kept.append(twin.held())
        self.assertGreaterEqual(sum(shape["replays"] for shape in made.shapes()), replays, made.failures())
        return made

    def holder(self, put, get):
        class Model:
            def __init__(self):
                self.deep, self.head = torch.nn.Linear(8, 8).cuda(), torch.nn.Linear(8, 8).cuda()
                self.state, self.listed, self.kept = {}, [None], None

            def load(self, other):
                self.deep.load_state_dict(other.deep.state_dict())
                self.head.load_state_dict(other.head.state_dict())

            def held(self):
                return get(self)

            def __call__(self, x, kind):
                if kind == "full":
                    put(self, self.deep(x))
                return self.head(x) + get(self)
        return Model

    HOLDERS = {
        "dict": (lambda m, t: m.state.__setitem__("deep", t), lambda m: m.state["deep"]),
        "list": (lambda m, t: m.listed.__setitem__(0, t), lambda m: m.listed[0]),
        "attribute": (lambda m, t: setattr(m, "kept", t), lambda m: m.kept),
    }

    def test_a_part_that_is_computed_now_and_then(self):
        for name, how in self.HOLDERS.items():
            with self.subTest(name):
                self.check(self.holder(*how), ["full", "part", "part", "part", "part"] * 3, 5)

    def test_the_reader_is_captured_first(self):
        for name, how in self.HOLDERS.items():
            with self.subTest(name):
                self.check(self.holder(*how), ["full", *["part"] * 5, *["full", "part", "part"] * 4], 3)

    def test_one_that_is_another_at_each_call(self):
        with self.assertWarnsRegex(UserWarning, "another call of it assigned, was another one after each of"):
            self.check(self.holder(*self.HOLDERS["dict"]), ["full", "part"] * 9, 6)

    def test_a_buffer_that_grows(self):
        def make():
            held = [torch.zeros(0, 8, device="cuda")]

            def fn(x, rows):
                if held[0].shape[0] < rows:
                    held[0] = torch.empty(rows, 8, device="cuda")
                work = held[0][:rows]
                work.copy_(x[:1].expand(rows, 8))
                return work.sum(0) + x
            fn.load, fn.held = lambda other: None, lambda: held[0]
            return fn
        self.check(make, [2, 2, 2, 5, 5, 2, 2, 5, 2, 9, 2, 5, 9, 2, 5, 9], 4)


if __name__ == "__main__":
    unittest.main()
