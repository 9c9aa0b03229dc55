#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What it costs to have malloc fill what it gives (glibc's M_PERTURB) while kernels are loaded and compiled.

usage: fresh_memory.py FILL capture|eager      FILL: 0, or the byte of the setting

A process runs 27 elementwise functions that it had not run before, in a capture of PyTorch's own graph or eagerly, and
prints the milliseconds. PyTorch compiles some of them by NVRTC. Reprise has no part in it; runs of its captures have the
setting where PyTorch needs it."""

import ctypes
import sys
import time

import torch

M_PERTURB = -6
NAMES = ("sin cos tan exp log1p erf sigmoid tanh sqrt rsqrt floor ceil round sinh cosh asinh atan digamma lgamma i0 "
         "erfinv expm1 abs sign trunc frac reciprocal").split()


def main():
    fill, way = int(sys.argv[1]), sys.argv[2]
    x = torch.rand(64, 64, device="cuda")
    (x @ x).sum().item()

    def run():
        y = x
        for name in NAMES:
            y = y + getattr(torch, name)(x)
        return y
    libc = ctypes.CDLL(None)
    torch.cuda.synchronize()
    libc.mallopt(M_PERTURB, fill)
    start = time.perf_counter()
    if way == "capture":
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            run()
    else:
        run()
        torch.cuda.synchronize()
    took = time.perf_counter() - start
    libc.mallopt(M_PERTURB, 0)
    print(fill, way, round(took * 1000, 1), "ms")


if __name__ == "__main__":
    main()
