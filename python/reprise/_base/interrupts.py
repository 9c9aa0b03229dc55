# SPDX-License-Identifier: MIT
"""Ctrl-C and time limits in a capture: they take effect in the program's own function, or behind the capture.

PyTorch's capture, the allocator and generators are begun and ended in several steps. An exception between
two of them would leave a stream capturing. So signals whose handlers may raise are only noted meanwhile, on the main
thread, where Python handles signals.
"""

import contextlib
import _signal  # what signal makes of a number takes twenty times as long
import signal
import threading

# By which programs stop what takes too long. Others say what became of a child or a descriptor.
_NUMBERS = tuple(int(getattr(signal, name)) for name in (
    "SIGINT", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"))
# Setting a handler anew would have system calls end early where asyncio has them go on. Its own does nothing.
_ASYNCIO = "asyncio.unix_events"


class Interrupts:
    """Holds interrupts back within ``with held:``; within ``with held.allowed():`` they arrive again."""

    def __init__(self):
        self._handlers = {}  # the program's, by signal, while interrupts are held back
        self._noted = {}     # frames by signals that came meanwhile, the first first

    def _note(self, number, frame):
        self._noted[number] = frame

    def __enter__(self):
        if not self._handlers and threading.current_thread() is threading.main_thread():
            self._handlers = _handlers()
            try:
                self._hold()
            except BaseException:  # of a handler that was not yet replaced
                handlers, self._handlers = self._handlers, {}
                _restore(iter(handlers.items()))
                raise
        return self

    def _hold(self):
        for number in self._handlers:
            self._handlers[number] = _signal.signal(number, self._note)

    def __exit__(self, *_):
        if self._handlers:
            handlers, self._handlers = self._handlers, {}
            _restore(iter(handlers.items()))
            self._tell(handlers)

    def _tell(self, handlers):
        if self._noted:
            number = next(iter(self._noted))
            frame = self._noted.pop(number)
            try:
                handlers[number](number, frame)
            finally:
                self._tell(handlers)

    @contextlib.contextmanager
    def allowed(self):
        if not self._handlers:
            yield
            return
        _restore(iter(self._handlers.items()))
        try:
            self._tell(self._handlers)
            yield
        finally:
            self._hold()


def _restore(rest):
    """Sets handlers, (signal, handler) each. All of them, if one is called meanwhile and raises."""
    which = next(rest, None)
    if which is not None:
        try:
            _signal.signal(*which)
        finally:
            _restore(rest)


def _handlers():
    """The program's handlers of those signals, by number."""
    found = ((number, _signal.getsignal(number)) for number in _NUMBERS)
    return {number: handler for number, handler in found
            if callable(handler) and getattr(handler, "__module__", None) != _ASYNCIO}


def _code_of(handler):
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    for made in (handler, getattr(handler, "__func__", None), getattr(type(handler), "__call__", None)):
        if hasattr(made, "__code__"):
            return made.__code__
    return None


def is_of_handler(error):
    """Did a signal's handler raise it, within what the error came from? Asked on the main thread, else it did not."""
    if threading.current_thread() is not threading.main_thread():
        return False
    codes = {_code_of(handler) for handler in map(_signal.getsignal, _signal.valid_signals()) if callable(handler)}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace is not None


def let_through(error):
    """Raises an exception again that a signal's handler raised, as a time limit does: the callable, within which
    it came, is not to blame, and to call it once more would go without the limit."""
    if is_of_handler(error):
        raise error
