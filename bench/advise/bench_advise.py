#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How fast, and in how much memory, `reprise advise` reads a large trace.

    bench_advise.py REPRISE [--mib 1024] [--gzip] [--keep FILE]

The trace is made: steps of kernels under operators and Python functions, in exactly the form and
order in which torch.profiler writes them (all CPU events, then all calls, then all device work).
Prints one JSON object.
"""
import argparse
import gzip
import json
import os
import resource
import subprocess
import tempfile
import time

KERNELS = 500
CPU = '''
  {{
    "ph": "X", "cat": "{}", "name": "{}", "pid": 405, "tid": 405,
    "ts": {:.3f}, "dur": {:.3f},
    "args": {{
      {}"Ev Idx": {}
    }}
  }},'''
CALL = '''
  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 405, "tid": 405,
    "ts": {0:.3f}, "dur": 3.214,
    "args": {{
      "External id": {1},"cbid": 211, "correlation": {1}
    }}
  }},
  {{
    "ph": "s", "id": {1}, "pid": 405, "tid": 405, "ts": {0:.3f},
    "cat": "ac2g", "name": "ac2g"
  }},'''
WORK = '''
  {{
    "ph": "X", "cat": "kernel", "name": "{2}", "pid": 0, "tid": 7,
    "ts": {0:.3f}, "dur": 4.736,
    "args": {{
      "External id": {1},"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {1},
      "registers per thread": 32, "shared memory": 0, "blocks per SM": 1.939394,
      "warps per SM": 7.757576, "grid": [256, 1, 1], "block": [128, 1, 1],
      "est. achieved occupancy %": 12
    }}
  }},
  {{
    "ph": "f", "id": {1}, "pid": 0, "tid": 7, "ts": {0:.3f},
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }},'''
NAMES = [f"void at::native::vectorized_elementwise_kernel<4, at::native::functor_{i}<float>, "
         "std::array<char*, 3ul> >(int, at::native::functor<float>, std::array<char*, 3ul>)"
         for i in range(40)]
PER_KERNEL = 3100  # bytes, about


def write_step(out, step, part):
    """One of the three parts of a step: 0 frames, 1 calls, 2 work."""
    start = 4383109407920.737 + step * KERNELS * 20
    lines = []
    if part == 0:
        lines.append(CPU.format("user_annotation", f"ProfilerStep#{step}", start,
                                KERNELS * 20 - 1, f'"External id": {step},', step))
    for k in range(KERNELS):
        at, number = start + 5 + k * 20, step * KERNELS + k + 1
        if part == 0:
            for d in range(4):
                lines.append(CPU.format("python_function", f"torch/nn/modules/layer{k % 60}.py"
                                        f"({100 + d}): forward_{d}", at + d * 0.5, 18 - d,
                                        f'"Python parent id": {number}, "Python id": {number}, ',
                                        number))
            for d in range(3):
                lines.append(CPU.format("cpu_op", f"aten::op{(k + d) % 30}", at + 3 + d, 12 - d,
                                        f'"External id": {number},"Record function id": 0, ',
                                        number))
        elif part == 1:
            lines.append(CALL.format(at + 8, number))
        else:
            lines.append(WORK.format(at + 14, number, NAMES[k % 40]))
    out.write("".join(lines).encode())


def write_trace(path, mib, compress):
    steps = max(2, mib * 1048576 // (PER_KERNEL * KERNELS))
    opener = (lambda: gzip.open(path, "wb", compresslevel=1)) if compress else (
        lambda: open(path, "wb"))
    with opener() as out:
        out.write(b'{\n    "schemaVersion": 1,\n    "deviceProperties": [{"id": 0, "name": "made"}],'
                  b'\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 1790857026000000000,'
                  b'\n  "traceEvents": [')
        for part in range(3):
            for step in range(steps):
                write_step(out, step, part)
        out.write(b'\n  {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "",'
                  b' "ts": 4383109410763.019}\n  ],\n  "traceName": "made.json"\n}')
    return steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reprise")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--keep", help="write the trace here and leave it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.keep or os.path.join(folder, "trace.json")
        steps = write_trace(path, args.mib, args.gzip)
        start = time.perf_counter()
        result = subprocess.run([args.reprise, "advise", "--json", path], capture_output=True,
                                check=False)
        took = time.perf_counter() - start
        assert result.returncode in (0, 1), result.stderr
        advice = json.loads(result.stdout)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert len(advice["iterations"]["list"]) == steps and advice["kernels"] == KERNELS
        print(json.dumps({"file_bytes": os.path.getsize(path), "gzip": args.gzip,
                          "events": advice["events"], "left_out": advice["events_left_out"],
                          "wall_s": round(took, 2),
                          "cpu_s": round(used.ru_utime + used.ru_stime, 2),
                          "peak_mib": round(used.ru_maxrss / 1024, 1)}))


if __name__ == "__main__":
    main()
