# SPDX-License-Identifier: MIT
"""Times without Python's garbage collector, which is the process's: it stays off until the last of them ends.

A collection while a capture looks at thousands of objects walks over all of the program's, and took three
quarters of a small model's capture. In a run it would free tensors that the next run still has."""

from .. import _C

uncollected = _C.Uncollected  # for a block; any thread, nested or not
