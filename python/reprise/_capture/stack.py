# SPDX-License-Identifier: MIT
"""The stack of autograd's thread, cleaned before a run.

Kernels are given structs whose unused parts hold what lay on the launching thread's stack. Left from
the rehearsal, that looks like an address which the callable kept, and a capture is refused for it
(DESIGN: traps). The capturing thread's stack is cleaned in C; backward passes launch from a thread of
autograd's own, which is reached by a backward pass that does nothing but clean it.
"""

import atexit
import sys

from .. import _C

_leaves = {}  # of each device: a leaf, and a gradient for it


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
    """Waits until autograd's threads hold no Python objects. Runs at the interpreter's end: a thread that
    wants the interpreter from then on ends the process.

    A thread puts away what a pass left before it takes up the next, so one more pass is enough if it
    leaves nothing of Python's itself. This one begins and ends on the calling thread, with tensors of the
    host. On the device's thread it has only tensors that Python never sees, and it returns no gradient:
    a thread that lets go of a tensor which Python has too may need the interpreter for it."""
    torch = sys.modules.get("torch")
    for device in list(_leaves):
        try:
            with torch.inference_mode(False), torch.enable_grad():
                leaf = torch.zeros((), device="cpu", requires_grad=True)
                leaf.to(device).cpu().backward()
        except Exception:  # the device may be lost by now
            pass


atexit.register(drain)
