# SPDX-License-Identifier: MIT
"""The workspaces of cuBLAS, which a capture has to have of its own (csrc/capture/workspaces.h)."""

import threading

from .. import _C
from .._alloc.install import is_installed
from .._base import torch_private


def drop(torch, stream):
    """Frees those that PyTorch keeps for a stream. Until 2.11 PyTorch can only free all there are; where
    other threads run under install(), those of other streams stay theirs."""
    private = torch_private.of(torch)
    if private.drops_by_stream:
        _C.drop_workspaces(stream.cuda_stream)
    elif is_installed() and threading.active_count() > 1:
        _C.spare_frees(True)
        try:
            private.clear_workspaces()
        finally:
            _C.spare_frees(False)
    else:
        private.clear_workspaces()
