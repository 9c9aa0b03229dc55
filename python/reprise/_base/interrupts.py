# SPDX-License-Identifier: MIT
"""Ctrl-C in a capture: it takes effect in the program's own function, or behind the capture.

PyTorch's capture, the allocator and generators are begun and ended in several steps. An exception between
two of them would leave a stream capturing. So the signal is only noted meanwhile, on the main thread, where
Python handles signals.
"""

import contextlib
import _signal  # what signal makes of a number takes twenty times as long
import signal
import threading

_SIGINT = int(signal.SIGINT)


class Interrupts:
    """Holds interrupts back within ``with held:``; within ``with held.allowed():`` they arrive again."""

    def __init__(self):
        self._handler = None  # the program's, while interrupts are held back
        self._noted = None    # (signal, frame) that came meanwhile

    def _note(self, number, frame):
        self._noted = (number, frame)

    def __enter__(self):
        if threading.current_thread() is threading.main_thread() and self._handler is None:
            handler = _signal.getsignal(_SIGINT)
            if callable(handler):
                self._handler = handler
                _signal.signal(_SIGINT, self._note)
        return self

    def __exit__(self, *_):
        if self._handler is not None:
            _signal.signal(_SIGINT, self._handler)
            handler, self._handler = self._handler, None
            self._tell(handler)

    def _tell(self, handler):
        if self._noted is not None:
            noted, self._noted = self._noted, None
            handler(*noted)

    @contextlib.contextmanager
    def allowed(self):
        if self._handler is None:
            yield
            return
        _signal.signal(_SIGINT, self._handler)
        try:
            self._tell(self._handler)
            yield
        finally:
            self._handler = _signal.signal(_SIGINT, self._note)
