# SPDX-License-Identifier: MIT
"""Lines that a callable prints, printed by its replays, where they are written in its code as they are.

In the runs of a capture another function is in the place of `print`, for this thread, and prints nothing. It
takes strings that are constants of the code which calls it, and sys.stdout or sys.stderr: such a line is the
same at every call. All else is refused, as it is where replays print nothing.
"""

import builtins
import contextlib
import sys
import threading

from .runs import Effect, effect_at

_NAME = "print"
_print = builtins.print
_STREAMS = ("stdout", "stderr")


class Prints:
    """Those of one capture."""

    def __init__(self):
        self.lines = None  # of the latest run: (strings, sep, end, flush, name of the stream) each

    def body(self, body):
        """A run's body, whose lines are noted; raises Effect where other ones would be printed."""
        def run(placed):
            noted = _Noted()
            with noted.instead():
                result = body(placed)
            noted.check(self.lines)
            self.lines = noted.lines
            return result
        return run


class _Noted:
    """The lines of one run."""

    def __init__(self):
        self.lines = []
        self.refused = None
        self._streams = {name: getattr(sys, name) for name in _STREAMS}

    @contextlib.contextmanager
    def instead(self):
        thread = threading.get_ident()

        def stand_in(*args, **kwargs):
            if threading.get_ident() != thread:
                return _print(*args, **kwargs)
            return self._note(sys._getframe(1), args, **kwargs)
        vars(builtins)[_NAME] = stand_in
        try:
            yield
        finally:
            if vars(builtins)[_NAME] is stand_in:
                vars(builtins)[_NAME] = _print

    def _note(self, frame, args, sep=None, end=None, flush=False, file=None):
        written = [one for one in frame.f_code.co_consts if type(one) is str]
        stream = "stdout" if file is None else next((n for n in _STREAMS if file is self._streams[n]), None)
        strings = (*args, *(one for one in (sep, end) if one is not None))
        if stream is None or self._streams[stream] is not getattr(sys, stream) or type(flush) is not bool or (
                not all(any(one is other for other in written) for one in strings)):
            self.refused = self.refused or effect_at("prints", "io", frame)
            raise self.refused
        self.lines.append((args, sep, end, flush, stream))

    def check(self, before):
        """The program may have caught what was raised."""
        if self.refused is not None:
            raise self.refused
        if before is not None and before != self.lines:
            raise Effect("it prints other lines in each run of a capture")


def print_again(lines):
    for args, sep, end, flush, stream in lines:
        _print(*args, sep=sep, end=end, flush=flush, file=getattr(sys, stream))
