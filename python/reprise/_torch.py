# SPDX-License-Identifier: MIT
"""PyTorch, imported late: the package can be imported without it, and without a GPU."""

import sys

OLDEST = (2, 9)


def need_torch():
    """The module torch; an error with what to do when it is missing or too old."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("reprise needs PyTorch 2.9 or later, and it could not be imported "
                          f"({error}). Install it: https://pytorch.org/get-started") from error
    version = tuple(int("".join(c for c in part if c.isdigit()) or 0)
                    for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST:
        raise ImportError(f"reprise needs PyTorch 2.9 or later; this is {torch.__version__}")
    return torch


def need_gpu():
    """torch, with a usable GPU."""
    torch = need_torch()
    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = ("this PyTorch was built without CUDA" if built is None else
               "PyTorch finds no GPU: `nvidia-smi` should list one, with a driver for CUDA "
               f"{built} or later")
        raise RuntimeError(f"reprise needs an NVIDIA GPU: {why}")
    return torch


def is_loaded():
    """Has the program imported torch?"""
    return "torch" in sys.modules
