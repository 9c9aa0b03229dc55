#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What makes kernels of graphs take longer for the rest of a process, and what ends that.

usage: pace.py

A graph of 750 small kernels, captured and replayed by PyTorch, alone on the GPU. First, for each kind
of work: how much of it on a second stream makes the graph slow, with another context made before to
begin with a fast one. Then what ends it, each tried on a slow graph. Prints JSON: microseconds of the
device for one replay, of several in a row; and for the eager launches of the same kernels.
"""

import ctypes
import json
import sys
import time

import torch

KERNELS = 750
STEP, MOST = 64, 4096  # launches on the second stream between looks, and at most
SLOWER = 1.1
CUDA = ctypes.CDLL("libcuda.so.1")


def driver(name, *args):
    result = getattr(CUDA, name)(*args)
    if result != 0:
        raise RuntimeError(f"{name} returned {result}")


class Beside:
    """A context beside PyTorch's."""

    def __init__(self):
        self.handle, popped = ctypes.c_void_p(), ctypes.c_void_p()
        driver("cuCtxCreate_v2", ctypes.byref(self.handle), 0, 0)
        driver("cuCtxPopCurrent_v2", ctypes.byref(popped))

    def end(self):
        driver("cuCtxDestroy_v2", self.handle)


class Chain:
    """The graph, and what a replay of it takes."""

    def __init__(self):
        self.x = torch.zeros(64, device="cuda")
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self.launch()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.launch()
        self.fast = self.us()

    def launch(self):
        for _ in range(KERNELS):
            self.x.add_(1)

    def timed(self, call, count, ahead):
        """Behind a kernel that keeps the device until all is enqueued."""
        torch.cuda.synchronize()
        torch.cuda._sleep(ahead)
        self.events[0].record()
        for _ in range(count):
            call()
        self.events[1].record()
        torch.cuda.synchronize()
        return round(self.events[0].elapsed_time(self.events[1]) * 1e3 / count, 1)

    def us(self, count=10):
        self.graph.replay()
        return self.timed(self.graph.replay, count, 2_000_000)

    def eager_us(self):
        return self.timed(self.launch, 1, 20_000_000)

    def is_slow(self):
        return self.us(3) > SLOWER * self.fast


def work_on(stream, call, count):
    with torch.cuda.stream(stream):
        for _ in range(count):
            call()
    torch.cuda.synchronize()


def until_slow(chain, streams, call):
    """How many of these calls, on the streams in turn, make the graph slow; None: not so many do."""
    Beside().end()
    for done in range(STEP, MOST + STEP, STEP):
        for i, stream in enumerate(streams):
            work_on(stream, call, STEP // len(streams) + (i < STEP % len(streams)))
        if chain.is_slow():
            return {"calls": done, "us": chain.us()}
    return {"calls": None, "us": chain.us()}


def kinds(chain):
    """What is counted, and on which streams."""
    one, other = torch.cuda.CUDAGraph(), torch.zeros(64, device="cuda")
    host, event = torch.zeros(64).pin_memory(), torch.cuda.Event()
    with torch.cuda.graph(one):
        chain.x.add_(1)
    second, many = torch.cuda.Stream(), [torch.cuda.Stream() for _ in range(30)]
    return {"kernels": ([second], lambda: chain.x.add_(1)),
            "kernels on 30 streams": (many, lambda: chain.x.add_(1)),
            "kernels on the current stream": ([torch.cuda.current_stream()],
                                              lambda: chain.x.add_(1)),
            "fills": ([second], other.zero_),
            "copies within the device": ([second], lambda: other.copy_(chain.x)),
            "copies from the host": ([second], lambda: other.copy_(host, non_blocking=True)),
            "graphs of one kernel": ([second], one.replay),
            "events": ([second], event.record)}


def larger_stacks():
    size = ctypes.c_size_t()
    driver("cuCtxGetLimit", ctypes.byref(size), 0)
    driver("cuCtxSetLimit", 0, ctypes.c_size_t(2 * size.value))


def green_context():
    resource, handles = ctypes.create_string_buffer(1024), [ctypes.c_void_p() for _ in range(2)]
    driver("cuDeviceGetDevResource", 0, resource, 1)  # of multiprocessors
    driver("cuDevResourceGenerateDesc", ctypes.byref(handles[0]), resource, 1)
    driver("cuGreenCtxCreate", ctypes.byref(handles[1]), handles[0], 0, 1)
    driver("cuGreenCtxDestroy", handles[1])


def high_priority():
    work_on(torch.cuda.Stream(priority=-5), lambda: None, 1)


def acts():
    """What might end it."""
    import reprise
    return {"waiting for the device": torch.cuda.synchronize,
            "two seconds idle": lambda: time.sleep(2),
            "larger stacks": larger_stacks,
            "a stream of high priority": high_priority,
            "a green context": green_context,
            "another context": lambda: Beside().end(),
            "reprise.restore_pace": reprise.restore_pace}


def ended_by(chain, act):
    second = torch.cuda.Stream()
    for _ in range(8):
        if chain.is_slow():
            break
        work_on(second, lambda: chain.x.add_(1), 500)
    before, eager = chain.us(), chain.eager_us()
    start = time.perf_counter()
    told = act()
    took = time.perf_counter() - start
    return {"before_us": before, "after_us": chain.us(), "eager_before_us": eager,
            "eager_after_us": chain.eager_us(), "ms": round(took * 1e3, 1),
            **({"told": told} if told else {})}


def main():
    if len(sys.argv) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    chain = Chain()
    told = {"kernels": KERNELS, "fresh_us": chain.fast,
            "until slow": {name: until_slow(chain, *kind) for name, kind in kinds(chain).items()},
            "ended by": {name: ended_by(chain, act) for name, act in acts().items()}}
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
