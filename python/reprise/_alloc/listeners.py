# SPDX-License-Identifier: MIT
"""Who is told of each allocation and free: callbacks of PyTorch's GPU trace, and profilers.

PyTorch's own allocator tells them from C++, and nobody does for a pluggable one.
"""

from .. import _C
from .._base import torch_private
from .._base.warn import warn


def answer(torch):
    """Has both told of Reprise's memory from here on."""
    _answer_trace(torch)
    for module, (enable, disable) in torch_private.profilers(torch):
        setattr(module, enable, _begins(getattr(module, enable)))
        setattr(module, disable, _ends(getattr(module, disable)))


def _answer_trace(torch):
    activate = torch_private.native(torch, torch_private.TRACE_NAME)
    registries = torch_private.trace_registries()
    if activate is None or registries is None:
        return
    fire = [registry.fire_callbacks for registry in registries]

    def activate_here():
        activate()
        _C.listen_trace(*fire)
    torch_private.put_native(torch, torch_private.TRACE_NAME, activate_here)
    if _C.traces_gpu():  # since before install(), by TORCH_CUDA_SANITIZER=1
        _C.listen_trace(*fire)


def _begins(enable):
    """Profilers know by themselves whether they want memory: one that does not pays for being asked."""
    def enable_here(*arguments, **options):
        missing = _C.listen_profiler(True)
        if missing is not None:
            warn(f"this PyTorch has no {missing} that Reprise can find: the profiler is told of no memory")
        try:
            return enable(*arguments, **options)
        except BaseException:
            _C.listen_profiler(False)
            raise
    return enable_here


def _ends(disable):
    def disable_here(*arguments, **options):
        try:
            return disable(*arguments, **options)
        finally:
            _C.listen_profiler(False)
    return disable_here
