# SPDX-License-Identifier: MIT
"""How tests compile: the ways that are served by graphs of ours, and what tests of each have in common.

Inductor writes kernels for Triton, which the host driver has none of. Where it is missing Inductor is told to
call PyTorch's operators instead (its own mode "lite" does): partitions, caches and requests for graphs are
Inductor's own then, and results are equal to eager's to the bit. So LITE tells what to expect."""

import contextlib
import functools
import gc
import importlib.util
import sys
import unittest
from unittest import mock

import torch

import lite_inductor
import reprise
from reprise._call.graphed import every_graphed
from reprise._compile import trees

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()


def _compiles():
    try:
        x = torch.ones(4, device="cuda")
        return torch.equal(torch.compile(lambda x: x * 2 + 1)(x), x * 2 + 1)
    except Exception as error:
        print("no Inductor:", str(error).splitlines()[0][:200])
        return False
    finally:
        torch._dynamo.reset()


LITE = importlib.util.find_spec("triton") is None
INDUCTOR = (not LITE or lite_inductor.begin()) and _compiles()
LITE = LITE and INDUCTOR
# How a callable is compiled, by name, that is served by graphs of ours.
WAYS = {"cudagraphs": lambda fn, **kw: torch.compile(fn, backend="cudagraphs", **kw)}
if INSTALL and INDUCTOR:
    WAYS["reduce-overhead"] = lambda fn, **kw: torch.compile(fn, mode="reduce-overhead", **kw)
if INDUCTOR:
    WAYS["reprise"] = reprise.compile
OF_INDUCTOR = {name: way for name, way in WAYS.items() if name != "cudagraphs"}


def net_of(*between):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), *between,
                               torch.nn.Linear(64, 32)).cuda()


@contextlib.contextmanager
def asked_for():
    """All that is compiled without install() as the backend "reprise" asks for it."""
    trees.serve()
    with mock.patch.object(trees, "is_installed", lambda: True):
        yield


def each_way(test, ways=WAYS):
    """Runs a test for each way, as what was compiled before is forgotten."""
    @functools.wraps(test)
    def run(self):
        if not ways:
            self.skipTest("no Inductor")
        for name, way in ways.items():
            served = contextlib.nullcontext() if INSTALL or name == "reprise" else asked_for()
            with self.subTest(name), served:
                self.forget()
                self.before = set(map(id, every_graphed()))
                test(self, name, way)
        self.forget()
    return run


def each_of_inductor(test):
    return each_way(test, OF_INDUCTOR)


class Served(unittest.TestCase):
    @staticmethod
    def forget():
        torch._dynamo.reset()
        gc.collect()

    def new_graphs(self):
        return [made for made in every_graphed() if id(made) not in self.before]

    def close(self, got, wanted, name):
        """Inductor's kernels round otherwise."""
        if LITE or name == "cudagraphs":
            self.assertTrue(torch.equal(got, wanted), (got - wanted).abs().max())
        else:
            torch.testing.assert_close(got, wanted, rtol=2e-3, atol=2e-3)

    def graphs(self, *wanted):
        """How often each graph was replayed, by the ways of what is compiled."""
        found = {}
        for made in self.new_graphs():
            self.assertEqual(made.failures(), [])
            way = made.name.split()[-1]
            if way == "forward" and "inference" in dict(wanted):
                way = "inference"  # the backend "cudagraphs" of 2.9 does not tell them apart
            for shape in made.shapes():
                found.setdefault(way, []).append(shape["replays"])
        self.assertEqual({way: sorted(found.get(way, [])) for way, _ in wanted},
                         {way: sorted(counts) for way, counts in wanted},
                         [(made.name, made.shapes()) for made in self.new_graphs()])
