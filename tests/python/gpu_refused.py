# SPDX-License-Identifier: MIT
"""Captures of training steps that fail, at one place after the other: in the callable, around its runs, and
behind them. The program is then where one eager call leaves it, and where nothing was called under strict.

usage: gpu_refused.py [--install] ..."""

import contextlib
import gc
import sys
import types
import unittest
import warnings
from unittest import mock

import torch

import reprise
from reprise import _C
from reprise._base import torch_private
from reprise._call.graphed import Graphed
from reprise._capture import distributed, draws, record, stack, states
from reprise._effects import effects
from reprise._grad import gradients
from reprise._reads import hyperparameters
from reprise._shapes import shape
from training_steps import mlp
from unseen import Unseen

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

CAPTURE = draws.Within if torch_private.of(torch).begins_captures else draws.Beside

# What a capture calls, in the order of the first calls: (owner, name, how often in a capture that works; 0:
# not always). Nothing fails behind these, which begin something.
BEGIN = ("capture_begin", "_begin_segments", "begin")
PLACES = (
    (record.Work, "_prepare", 1), (stack, "prepare", 1), (draws, "prepare", 0), (record, "Run", 2),
    (torch.cuda.CUDAGraph, "capture_begin", 0), (CAPTURE, "_begin_segments", 0), (distributed, "begin", 2),
    (gradients.Gradients, "restore", 1), (stack, "clean", 2),
    (record.Work, "_arguments", 2), (hyperparameters._Swapped, "_swap_places", 2),
    (hyperparameters._Swapped, "moved", 2), (hyperparameters.Bound, "_look", 2),
    (effects.Effects, "_gather", 2), (effects.Effects, "_judge", 1), (record, "flatten", 2),
    (record.Work, "_find", 2), (record.Work, "_name_results", 1), (record.Work, "_check_results", 1),
    (record.Work, "_deliver", 2), (record.Work, "_notice_held", 1),
    (record.Work, "_check_generators", 2), (record.Work, "_learn_draws", 1), (record.Work, "_placed", 1),
    (_C, "capture", 1), (record.Work, "finish", 1), (shape.Shape, "__init__", 1),
    (hyperparameters.Bound, "give", 1), (Graphed, "_take", 1), (Graphed, "_keep_gradients", 1),
    (gradients.Gradients, "named_by", 1), (effects.Effects, "replayed", 1),
    (effects.Effects, "restore", 1), (Graphed, "_capture", 1))


class Mine(Exception):
    """What fails."""


class Program:
    """A step as people write it: gradients are None before, the optimizer may have no state yet."""

    def __init__(self, make, spoil=lambda where: None, grows=False):
        torch.manual_seed(3)
        self.net = mlp(16, 2)
        self.optimizer = make(self.net.parameters())
        self.holder = types.SimpleNamespace(last=None, log=[], count=0)
        self.spoil, self.grows = spoil, grows

    def step(self, x):
        self.spoil("at its begin")
        self.optimizer.zero_grad()
        loss = self.net(x).square().mean()
        loss.backward()
        self.spoil("behind the backward pass")
        self.optimizer.step()
        self.spoil("behind the step")
        self.holder.last = loss.detach()
        if self.grows:
            self.holder.log.append(self.holder.last)
            self.holder.count += 1
            if len(self.holder.log) > 100:  # no replay may read that
                self.holder.log.clear()
            self.spoil("behind what grows")
        return self.holder.last * 2

    def tensors(self):
        found = list(self.net.parameters())
        found += [p.grad for p in found]
        for state in self.optimizer.state.values():
            found += state.values()
        return [*found, self.holder.last, *self.holder.log]

    def state(self):
        """All that a call may change, as values."""
        params = list(self.net.parameters())
        known = [{name: copied(value) for name, value in self.optimizer.state.get(p, {}).items()}
                 for p in params]
        groups = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        return ([copied(p) for p in params], [copied(p.grad) for p in params], known, groups,
                copied(self.holder.last), [copied(t) for t in self.holder.log], self.holder.count,
                sorted(self.net.__dict__), sorted(self.optimizer.__dict__), sorted(vars(self.holder)))


def copied(value):
    return value.detach().cpu().tolist() if isinstance(value, torch.Tensor) else value


def batches():
    maker = torch.Generator().manual_seed(5)
    return [torch.randn(4, 16, generator=maker).cuda() for _ in range(6)]


def momentum(params):
    return torch.optim.SGD(params, lr=0.125, momentum=0.5)


def adam(params):
    return torch.optim.Adam(params, lr=0.125, capturable=True)


def adam_on_cpu(params):
    """Steps are counted on the CPU, and replays move the counts on."""
    return torch.optim.Adam(params, lr=0.125)


class Refused(unittest.TestCase):
    maxDiff = 2000

    def eager(self, make, grows):
        program, told = Program(make, grows=grows), []
        for x in batches():
            told.append((program.state(), copied(program.step(x))))
        return [*told, (program.state(), None)]

    def check(self, make, fail, warmup, strict, *, spoil=lambda where: None, grows=False):
        """fail: makes the contexts of the first two calls, in which captures fail. One that failed once
        is tried again, and where it works the replays go on from there."""
        want = self.eager(make, grows)
        program = Program(make, spoil, grows)
        made = reprise.graphed(program.step, warmup=warmup, strict=strict)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i, x in enumerate(batches()):
                if i >= 2:  # captures work from here on
                    self.compare(program, made(x), want[i], want[i + 1])
                    continue
                with fail():
                    try:
                        got = made(x)
                    except Exception:
                        self.assertTrue(strict)
                        self.compare(program, None, (want[i][0], None), want[i])
                        got = program.step(x)
                self.compare(program, got, want[i], want[i + 1])
                self.assertFalse(torch.cuda.is_current_stream_capturing())
                self.assertEqual(states._active, {})
                if not made.shapes():
                    self.assertFalse(any(map(self.is_captured, program.tensors())))
        if warmup or grows:
            self.assertEqual(len(made.shapes()), int(not grows), made.failures())

    @staticmethod
    def is_captured(tensor):
        """Does it lie in memory of a capture?"""
        return tensor is not None and tensor.is_cuda and _C.is_captured(tensor.untyped_storage().data_ptr())

    def compare(self, program, got, call, after):
        self.assertEqual(copied(got), call[1])
        for now, then in zip(program.state(), after[0]):
            self.assertEqual(now, then)

    def at(self, owner, name, number, behind):
        """A context in which the number-th call of this fails, before it does anything or behind it."""
        real, calls = getattr(owner, name), Unseen()

        def failing(*args, **kwargs):
            calls.append(1)
            if len(calls) == number and not behind:
                raise Mine(name)
            result = real(*args, **kwargs)
            if len(calls) == number:
                raise Mine(name)
            return result
        return mock.patch.object(owner, name, failing), calls

    def place(self, owner, name, least, make, warmup, strict):
        """Captures fail at one of PLACES, at each of the calls of that which they make."""
        for number in range(1, max(least, 1) + 1):
            for behind in (False,) if name in BEGIN else (False, True):
                met = []

                def fail(number=number, behind=behind, met=met):
                    context, calls = self.at(owner, name, number, behind)
                    met.append(calls)
                    return context
                with self.subTest(number=number, behind=behind):
                    self.check(make, fail, warmup, strict)
                    self.assertTrue(not least or any(len(calls) >= number for calls in met))
                gc.collect()

    def test_in_the_callable(self):
        for make in (momentum, adam, adam_on_cpu):
            for grows in (False, True):
                for place in ("at its begin", "behind the backward pass", "behind the step",
                              "behind what grows")[:3 + grows]:
                    for number in (1, 2):
                        for warmup, strict in ((1, False), (0, False), (1, True)):
                            with self.subTest(make=make.__name__, grows=grows, place=place, number=number,
                                              warmup=warmup, strict=strict):
                                self.in_the_callable(make, grows, place, number, warmup, strict)

    def in_the_callable(self, make, grows, place, number, warmup, strict):
        met = Unseen()  # runs of the attempt that is under way, and those before

        def spoil(where):
            if where == place and torch.cuda.is_current_stream_capturing():
                met.append(1)
                if len(met) == number:
                    raise Mine(where)
        if strict and grows:
            return  # never captured, and told so
        fail = contextlib.nullcontext
        self.check(make, fail, warmup, strict, spoil=spoil, grows=grows)


for _owner, _name, _least in PLACES:
    _kind = "capture" if _owner is CAPTURE else _owner.__name__.rpartition(".")[2].strip("_").lower()
    for _way, _arguments in (("strict", (momentum, 1, True)), ("no_call_before", (momentum, 0, False)),
                             ("adam_on_cpu", (adam_on_cpu, 1, False))):
        setattr(Refused, f"test_{_way}_{_kind}_{_name.strip('_')}",
                lambda self, place=(_owner, _name, _least, *_arguments): self.place(*place))


if __name__ == "__main__":
    unittest.main(verbosity=2)
