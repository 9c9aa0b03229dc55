# SPDX-License-Identifier: MIT
"""PyTorch, imported late: the package can be imported without it, and without a GPU."""

import os
import sys

from .versions import NEWEST, is_too_old, judge, numbers
from .warn import warn

_warned = False


def need_torch():
    """The module torch; an error with what to do when it is missing or too old."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("reprise needs PyTorch 2.9 or later, and it could not be imported "
                          f"({error}). Install it: https://pytorch.org/get-started") from error
    version = str(torch.__version__)
    if is_too_old(version):
        raise ImportError(judge(version))
    _warn_of_newer(version)
    return torch


def _warn_of_newer(version):
    global _warned
    if numbers(version) > NEWEST and not _warned:
        _warned = True
        warn(f"reprise: {judge(version)}")


def why_no_gpu(torch):
    """Why this PyTorch has no GPU, and what to do."""
    built = torch.version.cuda
    if built is None:
        return "this PyTorch was built without CUDA, install another: https://pytorch.org/get-started"
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides all of them, unset it"
    return ("PyTorch finds no GPU: `nvidia-smi` should list one, with a driver for CUDA "
            f"{built} or later")


def _refuse(torch):
    raise RuntimeError(f"reprise needs an NVIDIA GPU: {why_no_gpu(torch)}; "
                       "`python -m reprise doctor` tells more")


def need_gpu():
    """torch, with a usable GPU."""
    torch = need_torch()
    if not torch.cuda.is_available():
        _refuse(torch)
    return torch


def need_gpu_unused():
    """The same without CUDA being begun, where NVML can tell: what begins it is not for a process that will
    be forked."""
    torch = need_torch()
    if not torch.cuda.device_count():
        _refuse(torch)
    return torch


def is_loaded():
    """Has the program imported torch?"""
    return "torch" in sys.modules
