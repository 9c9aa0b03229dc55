# SPDX-License-Identifier: MIT
"""Writes traces as torch.profiler does, from a few lines that say what happens. Deterministic.

The form (fields, their order, blanks, flow events) is that of Kineto's schema version 1.
"""
import json
import random

PID, MAIN, BACKWARD = 4242, 4242, 4300


class Trace:
    """Events in the file's order; time in microseconds."""

    def __init__(self, python=True):
        self.events = []
        self.now = 5_000_000.0
        self.correlation = 100
        self.python = python
        self.device_free = {}

    def complete(self, category, name, start, duration, pid=PID, tid=MAIN, **args):
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid,
                 "ts": round(start, 3), "dur": round(duration, 3)}
        if args:
            event["args"] = {key.replace("_", " ") if key == "External_id" else key: value
                             for key, value in args.items()}
        self.events.append(event)
        return event

    def flow(self, phase, event):
        self.events.append({"ph": phase, "id": event["args"]["correlation"], "pid": event["pid"],
                            "tid": event["tid"], "ts": event["ts"], "cat": "ac2g",
                            "name": "ac2g"} | ({"bp": "e"} if phase == "f" else {}))

    def call(self, name, duration, tid=MAIN):
        self.correlation += 1
        event = self.complete("cuda_runtime", name, self.now, duration, tid=tid,
                              External_id=self.correlation, cbid=211,
                              correlation=self.correlation)
        self.now += duration
        return event

    def work(self, category, name, duration, stream=7, lag=5.0, tid=MAIN, call="cudaLaunchKernel",
             **args):
        launch = self.call(call, 3.0, tid)
        self.flow("s", launch)
        start = max(launch["ts"] + lag, self.device_free.get(stream, 0) + 1.0)
        self.device_free[stream] = start + duration
        event = self.complete(category, name, start, duration, pid=0, tid=stream,
                              External_id=self.correlation, device=0, context=1, stream=stream,
                              correlation=self.correlation, **args)
        self.flow("f", event)
        return event

    def op(self, name, body=(), before=4.0, after=2.0, tid=MAIN):
        """An operator around what `body` does."""
        event = self.complete("cpu_op", name, self.now, 0, tid=tid, External_id=len(self.events))
        self.now += before
        for step in body:
            step()
        self.now += after
        event["dur"] = round(self.now - event["ts"], 3)

    def frame(self, name, body, before=1.0, after=1.0):
        event = self.complete("python_function", name, self.now, 0) if self.python else None
        self.now += before
        for step in body:
            step()
        self.now += after
        if event:
            event["dur"] = round(self.now - event["ts"], 3)

    def kernel(self, name, duration, **options):
        self.op("aten::" + name, [lambda: self.work("kernel", f"void {name}_kernel<float>(float*)",
                                                    duration, **options)])

    def read_back(self, op="aten::item"):
        """A value read by the host: copy, then wait for the device."""
        def copy():
            done = self.work("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 1.2,
                             call="cudaMemcpyAsync", bytes=4)
            end = done["ts"] + done["dur"]
            self.call("cudaStreamSynchronize", max(2.0, end - self.now + 4))

        self.op(op, [lambda: self.op("aten::_local_scalar_dense", [copy])])

    def step(self, number, body):
        event = self.complete("user_annotation", f"ProfilerStep#{number}", self.now, 0,
                              External_id=1)
        self.now += 10
        for act in body:
            act()
        self.now += 10
        event["dur"] = round(self.now - event["ts"], 3)

    def drain(self):
        self.call("cudaDeviceSynchronize",
                  max(5.0, max(self.device_free.values(), default=0) - self.now))

    def shuffled(self, seed):
        random.Random(seed).shuffle(self.events)
        return self

    def without(self, *categories):
        self.events = [e for e in self.events if e.get("cat") not in categories]
        return self

    def without_steps(self):
        self.events = [e for e in self.events if not e["name"].startswith("ProfilerStep")]
        return self

    def text(self):
        body = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320,
                                  "computeMajor": 9, "computeMinor": 0, "warpSize": 32}],
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1790857026000000000,
            "traceEvents": [
                {"name": "process_name", "ph": "M", "ts": self.now, "pid": PID, "tid": 0,
                 "args": {"name": "python3"}}] + self.events + [
                {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "",
                 "ts": self.now}],
            "traceName": "synthetic.json",
        }
        return json.dumps(body, indent=1)


def model_steps(trace, steps=4, kernels=40, kernel_us=5.0, middle=None, tail=None, python_us=0.0):
    """Steps of `kernels` kernels; `middle` happens after every tenth, `tail` at the end."""
    def layers():
        for k in range(kernels):
            trace.now += python_us
            trace.kernel(("addmm", "relu", "mul", "add")[k % 4], kernel_us)
            if middle and k % 10 == 9 and k + 1 < kernels:
                middle()

    for number in range(steps):
        trace.step(number, [lambda: trace.frame("train.py(12): forward", [layers])] +
                   ([lambda: trace.frame("train.py(40): log_loss", [tail])] if tail else []))
    trace.drain()
    return trace
