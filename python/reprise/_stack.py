# SPDX-License-Identifier: MIT
"""The stack of autograd's thread, cleaned before a run.

Kernels are given structs whose unused parts hold what lay on the launching thread's stack. Left from
the rehearsal, that looks like an address which the callable kept, and a capture is refused for it
(DESIGN: traps). The capturing thread's stack is cleaned in C; backward passes launch from a thread of
autograd's own, which is reached by a backward pass that does nothing but clean it.
"""

import atexit
import sys

from . import _C

_leaves = {}  # of each device: a leaf, and a gradient for it
_kept = []    # of the last passes of all


def prepare(torch, device):
    """Makes what cannot be made during a capture."""
    if device not in _leaves:
        _leaves[device] = tuple(torch.zeros(1, device=device) for _ in range(2))


def clean(torch, device):
    """Cleans the stack below where backward passes launch. Enqueues nothing."""
    if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        return
    leaf, grad = _leaves[device]
    leaf = leaf.detach().requires_grad_()
    root = leaf.view_as(leaf)
    root.register_hook(_C.clean_stack)  # called where a node's own work would be
    torch.autograd.grad(root, leaf, grad)


def drain():
    """At the interpreter's end: lets autograd's threads put away what backward passes left, which may
    be Python's: a thread that wants the interpreter once it is going ends the process. They take one
    pass after the other, so behind a pass of ours nothing of another is left; and what ours has
    stays here, so that its end frees nothing of Python's."""
    torch = sys.modules.get("torch")
    for device, (leaf, grad) in list(_leaves.items()):
        try:
            with torch.inference_mode(False), torch.enable_grad(), torch.cuda.device(device):
                leaf = leaf.detach().requires_grad_()
                root = leaf.view_as(leaf)
                _kept.append((leaf, root, torch.autograd.grad(root, leaf, grad)))
        except Exception:  # the device may be lost by now
            pass


atexit.register(drain)
