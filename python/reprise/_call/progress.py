# SPDX-License-Identifier: MIT
"""Progress while many shapes are captured ahead of their first call."""

import sys
import time


class Progress:
    """Tells after each of `count` shapes that it is done.

    `told` is a callable, which gets done, count and the facts of the graph; True for a line on
    standard error that rewrites itself, where that is a terminal; or False.
    """

    def __init__(self, told, name, count, stream=None):
        self.told = told
        self.name = name
        self.count = count
        self.done = 0
        self.start = time.monotonic()
        self.stream = sys.stderr if stream is None else stream
        self.width = 0
        self.is_line = told is True and self.stream is not None and self.stream.isatty()

    def __call__(self, facts, pool):
        """The next shape is done; pool: its memory by now."""
        self.done += 1
        if callable(self.told):
            self.told(self.done, self.count, facts)
        elif self.is_line:
            took = time.monotonic() - self.start
            self._write(f"{self.name}: {self.done} of {self.count} shapes captured, "
                        f"{pool['planned_bytes'] / 2**20:.1f} MiB planned, {took:.1f} s")

    def close(self):
        """Ends the line."""
        if self.is_line and self.width:
            self.stream.write("\n")
            self.stream.flush()

    def _write(self, text):
        self.stream.write("\r" + text.ljust(self.width))
        self.stream.flush()
        self.width = len(text)
