# SPDX-License-Identifier: MIT
"""Nets and training steps that the tests on a GPU share."""

import importlib
import importlib.util
import sys

import torch
from torch.distributed import distributed_c10d as c10d


def group_beside_captures(installed):
    """The name of NCCL's process group for programs that capture. PyTorch 2.15's new one registers all memory
    of PyTorch's allocator with NCCL, that of captures too, where this fails: docs/guides/several-gpus.md says to
    name the earlier one. install() takes that itself. What the new one attaches stays for the rest of a process."""
    has_new = hasattr(c10d, "_register_builtin_nccl_as_legacy")
    return "nccl-legacy" if has_new and not installed else "nccl"


def need_transformers(test):
    """Skips a test where transformers is missing, or a torchvision that it would import is of another
    PyTorch."""
    for name in ("torchvision", "transformers"):
        if name == "torchvision" and importlib.util.find_spec(name) is None:
            continue
        try:
            importlib.import_module(name)
        except Exception as error:
            test.skipTest(f"no {name} for PyTorch {torch.__version__}: {error}")
    return sys.modules["transformers"]


def mlp(width=256, depth=4, dropout=0.0, device="cuda"):
    layers = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
        if dropout:
            layers.append(torch.nn.Dropout(dropout))
    return torch.nn.Sequential(*layers).to(device)


def whole_step(net, optimizer, before=lambda: None, moves=True):
    """A step with all that belongs to it: what is captured as one graph. before: called first; moves:
    does the optimizer step in it?"""
    def step(x, y):
        before()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        if moves:
            optimizer.step()
        return loss.detach()
    return step
