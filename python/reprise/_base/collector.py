# SPDX-License-Identifier: MIT
"""Times without Python's garbage collector, which is the process's: it stays off until the last of them ends. And
what exceptions hold.

A collection while a capture looks at thousands of objects walks over all of the program's, and took three
quarters of a small model's capture. In a run it would free tensors that the next run still has."""

import traceback

from .. import _C

uncollected = _C.Uncollected  # for a block; any thread, nested or not


def clear_frames(error):
    """Lets go of what the frames hold that an exception went through: memory of a capture that failed."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
