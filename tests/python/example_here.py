# SPDX-License-Identifier: MIT
"""Runs an example where PyTorch lacks something, with another way of the same in its place: what gpu_examples.py
found missing. Nothing here touches CUDA, as examples may install Reprise's heap.

usage: example_here.py LACKS EXAMPLE ARGUMENT...     LACKS: of "triton", "index_copy", "attention", with commas"""

import os
import runpy
import sys
from pathlib import Path

import torch

import lite_inductor


def missing(*unused):
    raise NotImplementedError


def without(lacks):
    if "triton" in lacks:  # Inductor calls PyTorch's operators instead
        lite_inductor.begin()
    if "index_copy" in lacks:  # transformers' static cache does without
        torch.Tensor.index_copy_ = missing
    if "attention" in lacks:
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)


if __name__ == "__main__":
    lacks, path = sys.argv[1].split(","), os.path.abspath(sys.argv[2])
    without(lacks)
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(path).parent)
    runpy.run_path(path, run_name="__main__")
