# SPDX-License-Identifier: MIT
"""Counterparts of PyTorch's tests of its allocator and of CUDA graphs: one function each, written anew from
what the test asserts. pytorch_tests.py runs them, each in a process of its own."""

import contextlib
import gc
import os
import subprocess
import sys
import unittest
from collections import namedtuple

import torch

MIB = 1 << 20
ON_HOST = "/host/lib/" in os.environ.get("LD_PRELOAD", "")  # scripts/torch_on_host.sh
LARGE = "more memory than the host driver's device has"
WAITS = "a kernel that takes time, which the host driver's are done with at once"
COMPUTES = "kernels that the host driver does not compute"
REGISTERS = "memory of the host that is registered, which the host driver does not do"
CUDNN = "cuDNN, which the host driver has not"
IPC = "memory of cudaMalloc that is shared with other processes, which the host driver does not have"

Row = namedtuple("Row", "name run gpu alone seconds")
ROWS = []


def row(name, *arguments, gpu=None, alone=False, seconds=60):
    """Registers the counterpart of the test of that name, called with the arguments behind the case. gpu:
    what it needs that the host driver lacks. alone: it takes most of the device's memory, or looks at what
    other processes take too."""
    def register(function):
        ROWS.append(Row(name, lambda case: function(case, *arguments), gpu, alone, seconds))
        return function
    return register


class Case(unittest.TestCase):
    """What the counterparts assert with. installed: Reprise's heap is PyTorch's allocator."""

    installed = False

    def runTest(self):
        self.run_row(self)

    def same(self, one, other, **limits):
        torch.testing.assert_close(one, other, **limits)

    def differ(self, one, other):
        self.assertFalse(torch.equal(one, other))


def busy(milliseconds):
    """Lets the current stream work for about so long."""
    torch.cuda._sleep(int(milliseconds * 2e6))


def clean():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def settings(text):
    torch.cuda.memory._set_allocator_settings(text)


@contextlib.contextmanager
def limited(more):
    """The allocator may have so many bytes more than it holds."""
    clean()
    before = torch.cuda.get_per_process_memory_fraction()
    torch.cuda.set_per_process_memory_fraction(
        (torch.cuda.memory_reserved() + more) / torch.cuda.mem_get_info()[1])
    try:
        yield
    finally:
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(before)


def stats(key):
    return torch.cuda.memory_stats()[key]


def segments(pool=None):
    """The allocator's segments, or those of a pool."""
    found = torch.cuda.memory._snapshot()["segments"]
    return [s for s in found if pool is None or tuple(s["segment_pool_id"]) == tuple(pool)]


def script(case, text, check=True, **environment):
    """What a program of its own prints, under install() where this one is."""
    begin = "import torch, reprise\nreprise.install()\n" if case.installed else ""
    done = subprocess.run([sys.executable, "-c", begin + text], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment}, timeout=100)
    if check:
        case.assertEqual(done.returncode, 0, done.stderr)
    return done


def captured(function, *arguments, stream=None, warm=False, **options):
    """A graph of the call, and what it returned."""
    stream = stream or torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    if warm:
        with torch.cuda.stream(stream):
            function(*arguments)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, **options):
        made = function(*arguments)
    return graph, made
