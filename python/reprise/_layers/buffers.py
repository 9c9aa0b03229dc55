# SPDX-License-Identifier: MIT
"""Buffers of modules around warm-ups: counters, running means, amax histories and scales that runs change."""


class Buffers:
    """Those of some modules, put back behind what ran."""

    def __init__(self, torch):
        self._torch = torch
        self._changed = {}  # by id of a buffer: it, and what was in it

    def around(self, module, run):
        """Runs something, and keeps what it changes. Only such copies live on."""
        before = [(buffer, buffer.detach().clone(), buffer._version) for buffer in module.buffers()
                  if id(buffer) not in self._changed and not buffer.is_inference()]
        try:
            return run()
        finally:
            self._changed.update((id(buffer), (buffer, copy)) for buffer, copy, version in before
                                 if buffer._version != version)

    def put_back(self):
        with self._torch.no_grad():
            for buffer, copy in self._changed.values():
                buffer.copy_(copy)
        self._changed.clear()
