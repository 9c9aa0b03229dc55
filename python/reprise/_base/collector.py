# SPDX-License-Identifier: MIT
"""Times without Python's garbage collector, which is the process's: it stays off until the last of them ends.

A collection while a capture looks at thousands of objects walks over all of the program's, and took three
quarters of a small model's capture. In a run it would free tensors that the next run still has."""

import contextlib
import gc
import threading

_lock = threading.Lock()
_depth = 0
_was_on = False


@contextlib.contextmanager
def uncollected():
    """For a block; any thread, nested or not."""
    global _depth, _was_on
    with _lock:
        if _depth == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0 and _was_on:
                gc.enable()
