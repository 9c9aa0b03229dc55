# SPDX-License-Identifier: MIT
"""A list for what a captured callable notes of its own runs: it is no Python state that a capture looks at,
puts back, or refuses."""

import queue


class Unseen:
    def __init__(self):
        self._kept = queue.SimpleQueue()

    def append(self, value):
        self._kept.put(value)

    def __len__(self):
        return self._kept.qsize()

    def all(self):
        """What was appended, in its order."""
        values = [self._kept.get() for _ in range(len(self))]
        for value in values:
            self._kept.put(value)
        return values
