# SPDX-License-Identifier: MIT
"""PyTorch, imported late: the package can be imported without it, and without a GPU."""

import functools
import os
import sys

from ._versions import OLDEST
from ._warn import warn

NEWEST = (2, 12)  # later ones keep random numbers of captures in another way
_warned = False


def need_torch():
    """The module torch; an error with what to do when it is missing or too old."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("reprise needs PyTorch 2.9 or later, and it could not be imported "
                          f"({error}). Install it: https://pytorch.org/get-started") from error
    version = version_of(torch)
    if version < OLDEST:
        raise ImportError(f"reprise needs PyTorch 2.9 or later; this is {torch.__version__}")
    _warn_of_newer(torch, version)
    return torch


def version_of(torch):
    """Its version, as (2, 11)."""
    return _numbers(str(torch.__version__))


@functools.cache
def _numbers(version):
    return tuple(int("".join(c for c in part if c.isdigit()) or 0)
                 for part in version.split("+")[0].split(".")[:2])


def raises_on_draws(torch):
    """Does this PyTorch raise an error where random numbers are drawn in a capture that the generators
    were not told of?"""
    return version_of(torch) <= NEWEST


def _warn_of_newer(torch, version):
    global _warned
    if version > NEWEST and not _warned:
        _warned = True
        warn(f"this is PyTorch {torch.__version__}; reprise knows how 2.9 to 2.12 draw random "
             "numbers in captured work: with this one they may repeat")


def _why_no_gpu(built):
    """Why a PyTorch that was built for this CUDA (None: for none) has no GPU, and what to do."""
    if built is None:
        return "this PyTorch was built without CUDA, install another: https://pytorch.org/get-started"
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides all of them, unset it"
    return ("PyTorch finds no GPU: `nvidia-smi` should list one, with a driver for CUDA "
            f"{built} or later")


def need_gpu():
    """torch, with a usable GPU."""
    torch = need_torch()
    if not torch.cuda.is_available():
        raise RuntimeError(f"reprise needs an NVIDIA GPU: {_why_no_gpu(torch.version.cuda)}; "
                           "`python -m reprise doctor` tells more")
    return torch


def is_loaded():
    """Has the program imported torch?"""
    return "torch" in sys.modules


def quick_empty(torch):
    """What torch.compile's programs make tensors with: (shape, strides, dtype) on the current
    device. None in a PyTorch without it."""
    guards = getattr(torch._C._dynamo, "guards", None)
    return getattr(guards, "_empty_strided_cuda", None)
