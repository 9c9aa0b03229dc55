# SPDX-License-Identifier: MIT
"""The stack of autograd's thread, cleaned before a run.

Kernels are given structs whose unused parts hold what lay on the launching thread's stack. Left from
the rehearsal, that looks like an address which the callable kept, and a capture is refused for it
(docs/design/pytorch-captures.md). The capturing thread's stack is cleaned in C; backward passes launch from a thread of
autograd's own, which is reached by a backward pass that does nothing but clean it.
"""

import atexit
import sys

from .. import _C
from .._base import torch_private

PATIENCE_S = 10.0
_leaves: dict[object, tuple] = {}  # of each device: a leaf, and a gradient for it


def prepare(torch, device):
    """Makes what cannot be made during a capture."""
    if device not in _leaves:
        with torch.inference_mode(False):  # for calls in other modes too
            _leaves[device] = tuple(torch.empty(1, device=device) for _ in range(2))


def clean(torch, device):
    """Cleans the stack below where backward passes launch. Enqueues nothing."""
    if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        return
    leaf, grad = _leaves[device]
    leaf = leaf.detach().requires_grad_()
    root = leaf.view_as(leaf)
    root.register_hook(_C.clean_stack)  # called where a node's own work would be
    torch_private.gradients(torch, [root], [leaf], [grad])


def drain():
    """Waits until autograd's threads hold no Python objects. Runs at the interpreter's end: a thread that
    wants the interpreter from then on ends the process, before Python 3.14.

    A device's thread may be the last that holds what describes a pass, and frees it behind the pass's
    end: contextvars, modes, results. It does so before it takes up the next pass. So one more pass is
    enough, if that holds nothing of Python's itself:
        on a thread of its own, it finds no hooks, modes or contexts to take along
        it is begun below torch.autograd, which would add the caller's contextvars
        Python sees no tensor of the device, and it returns no gradient
    Its tensors are empty: it launches nothing, and waits for no kernel. A device's thread that never
    ends another pass is waited for PATIENCE_S seconds."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    _C.run_aside(lambda: _pass_each_device(torch), PATIENCE_S)


def _pass_each_device(torch):
    for index in range(torch.cuda.device_count()):
        try:
            if torch_private.has_context(torch, index):
                leaf = torch.zeros(0, device="cpu", requires_grad=True)
                root = leaf.to(torch.device("cuda", index)).cpu()
                torch_private.go_back(torch, root, torch.zeros(0, device="cpu"))
        except Exception:  # the device may be lost by now
            pass


def leave():
    """What is registered earlier is called later, and may go back once more."""
    drain()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch_private.after_each_pass(torch, drain)


atexit.register(leave)
