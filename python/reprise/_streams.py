# SPDX-License-Identifier: MIT
"""PyTorch's streams, without what its own contexts do beside: they look for the devices there are at
each entry, which a capture of few kernels would spend a tenth of its time on."""


def stream_at(torch, handle, device):
    """The driver's stream as one of PyTorch's, which takes 0, the default stream's handle, for none
    and would give a stream of its own."""
    if handle == 0:
        return torch.cuda.default_stream(device)
    return torch.cuda.ExternalStream(handle, device=device)


class on_stream:
    """As torch.cuda.stream: a context in which a stream of the current device is the current one."""

    __slots__ = ("_set", "_stream", "_before")

    def __init__(self, torch, stream):
        self._set = torch._C._cuda_setStream
        self._stream = (stream.stream_id, stream.device_index, stream.device_type)
        self._before = torch._C._cuda_getCurrentStream(stream.device_index)

    def __enter__(self):
        _choose(self._set, self._stream)

    def __exit__(self, *error):
        _choose(self._set, self._before)


def _choose(put, stream):
    put(stream_id=stream[0], device_index=stream[1], device_type=stream[2])
