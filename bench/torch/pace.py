#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whether replays of a graph take longer while no other context has used the GPU.

usage: pace.py

PyTorch's own graph of a Llama's decoding step, alone on the GPU: replayed, after a pause, after
another context of this process has filled 1 MiB, after that context is gone, a second graph made
then, both in turns, and after another process. Prints JSON: of each the microseconds of a replay on
an idle device, medians of 20 each. Nothing of Reprise takes part.
"""

import ctypes
import functools
import json
import statistics
import subprocess
import sys
import time

import common

STEP = 20
OTHER = ("import ctypes\ncuda = ctypes.CDLL('libcuda.so.1')\ncuda.cuInit(0)\n"
         "context, memory = ctypes.c_void_p(), ctypes.c_uint64()\n"
         "assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0\n"
         "assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)) == 0\n"
         "assert cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(1), ctypes.c_size_t(1 << 20)) == 0\n"
         "assert cuda.cuCtxSynchronize() == 0\n")


def times_of(torch, replay, count=3 * STEP):
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        replay()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - start) * 1e6)
    return [round(statistics.median(taken[i:i + STEP])) for i in range(0, count, STEP)]


def check(result):
    if result != 0:
        raise RuntimeError(f"the driver returned {result}")


def use_other_context():
    """A context beside PyTorch's fills some memory; what ends it."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, memory, before = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
    check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
    check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)))
    check(cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(1), ctypes.c_size_t(1 << 20)))
    check(cuda.cuCtxSynchronize())
    check(cuda.cuMemFree_v2(memory))
    check(cuda.cuCtxPopCurrent_v2(ctypes.byref(before)))
    return lambda: check(cuda.cuCtxDestroy_v2(context))


def main():
    import torch
    import workloads
    torch.manual_seed(0)
    decoder = workloads.Decoder(4)
    decoder.step.requires_grad_(False)
    told = {}
    with torch.no_grad():
        args = decoder.arguments(1, 100)
        step = functools.partial(decoder.step, *args)
        first, _ = common.capture(torch, step)
        told["a graph, fresh"] = times_of(torch, first.replay, 10 * STEP)
        time.sleep(2)
        told["after 2 s idle"] = times_of(torch, first.replay)
        start = time.perf_counter()
        end = use_other_context()
        told["the other context, ms"] = round((time.perf_counter() - start) * 1e3)
        told["after another context"] = times_of(torch, first.replay, 5 * STEP)
        end()
        told["after it was destroyed"] = times_of(torch, first.replay, 5 * STEP)
        second, _ = common.capture(torch, step)
        told["a second graph"] = times_of(torch, second.replay, 5 * STEP)
        told["the first again"] = times_of(torch, first.replay)
        subprocess.run([sys.executable, "-c", OTHER], check=True)
        told["after another process"] = times_of(torch, first.replay, 5 * STEP)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
