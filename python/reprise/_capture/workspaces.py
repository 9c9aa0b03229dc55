# SPDX-License-Identifier: MIT
"""The workspaces of cuBLAS, which a capture has to have of its own (csrc/capture/workspaces.h)."""

import threading

from .. import _C
from .._base import torch_private


def drop(torch, stream):
    """Frees those that PyTorch keeps for a stream; before 2.12 all there are, where no other thread runs, which
    may be about to launch a kernel with one of another stream."""
    private = torch_private.of(torch)
    by_stream = private.drops_by_stream or (private.keeps_in_maps and threading.active_count() > 1)
    if not (by_stream and _C.drop_workspaces(stream.cuda_stream)):
        private.clear_workspaces()
