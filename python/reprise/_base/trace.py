# SPDX-License-Identifier: MIT
"""The program's lines as they run, followed by Python's trace function."""

import contextlib
import sys

from .lines import Frame, is_ours, is_own


@contextlib.contextmanager
def traced_lines(look):
    """Meanwhile look(frame) is called behind each of the program's lines that was run."""
    last = [None]

    def local(frame, event, arg):
        if last[0] is not None:
            look(last[0])
        if event == "line":
            last[0] = Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        elif event == "return":  # the rest is of the line that called
            last[0] = _own_frame(frame.f_back)
        return local

    def trace(frame, event, arg):
        return local if is_own(frame.f_code.co_filename) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def _own_frame(frame):
    """The program's innermost line from a frame outwards, up to what called the callable; None: it is
    left."""
    while frame is not None and not is_ours(frame.f_code.co_filename):
        if is_own(frame.f_code.co_filename):
            return Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None
