# SPDX-License-Identifier: MIT
"""Calls of the driver that break no capture of other threads."""

import contextlib

from .. import _C

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


@contextlib.contextmanager
def relaxed(index):
    """What this thread does meanwhile breaks no capture, its own neither. index: of a device that is in use."""
    before = _C.exchange_mode(index, RELAXED)
    try:
        yield
    finally:
        _C.exchange_mode(index, before)
