# SPDX-License-Identifier: MIT
"""PyTorch's streams, without what its own contexts do beside (_base/torch_private.py)."""

from .. import _C
from .._base import torch_private


def stream_at(torch, handle, device):
    """The driver's stream as one of PyTorch's, which takes 0, the default stream's handle, for none
    and would give a stream of its own."""
    if handle == 0:
        return torch.cuda.default_stream(device)
    return torch.cuda.ExternalStream(handle, device=device)


def side_stream(torch, device):
    """The device's stream for captures beside those of the library, the same at each call. Not one of PyTorch's,
    which makes 128 streams with the first: these take 70 MiB of an H100's memory."""
    return stream_at(torch, _C.side_stream(device.index), device)


class on_stream:
    """As torch.cuda.stream: a context in which a stream of the current device is the current one."""

    __slots__ = ("_set", "_stream", "_before")

    def __init__(self, torch, stream):
        private = torch_private.of(torch)
        if private.set_stream is not None:
            self._set = private.set_stream
            self._stream = (stream.stream_id, stream.device_index, stream.device_type)
            self._before = private.get_stream(stream.device_index)
        else:
            self._set = lambda stream_id, **_: torch.cuda.set_stream(stream_id)
            self._stream = (stream, None, None)
            self._before = (torch.cuda.current_stream(stream.device), None, None)

    def __enter__(self):
        _choose(self._set, self._stream)

    def __exit__(self, *error):
        _choose(self._set, self._before)


def _choose(put, stream):
    put(stream_id=stream[0], device_index=stream[1], device_type=stream[2])
