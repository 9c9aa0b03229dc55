# SPDX-License-Identifier: MIT
"""Lines of the program: which files are its own, the stack up to it, and where an exception passed."""

import functools
import linecache
import os
import sys
from typing import NamedTuple

from .. import _C

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # the package's folder
_FOREIGN = ("contextlib.py", "functools.py", "threading.py", "warnings.py", "runpy.py")
_MOST_FRAMES = 8


class Frame(NamedTuple):
    """A place in the program."""

    file: str
    line: int
    function: str

    @property
    def source(self):
        """The line's text, without its indentation; empty where it is not known."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self):
        where = f"{_short(self.file)}:{self.line} in {self.function}"
        return f"{where}: {self.source}" if self.source else where


def _short(file):
    """The path from the current folder, where that is shorter."""
    try:
        relative = os.path.relpath(file)
    except ValueError:
        return file
    return min(relative, file, key=len)


@functools.lru_cache(maxsize=None)
def _torch_folder():
    torch = sys.modules.get("torch")
    return os.path.dirname(os.path.abspath(torch.__file__)) + os.sep if torch else None


@functools.lru_cache(maxsize=4096)
def is_own(file):
    """Is a file the program's, and not Python's, PyTorch's or ours?"""
    torch = _torch_folder()
    return not (file.startswith(("<frozen", _HERE)) or (torch and file.startswith(torch)) or
                os.path.basename(file) in _FOREIGN)


def is_ours(file):
    """Is a file of this package?"""
    return file.startswith(_HERE)


class Stack(NamedTuple):
    """The program's frames, innermost first, and the files of PyTorch that they went through."""

    frames: tuple
    through: frozenset


def take_stack(frame, end=None, *, caller=None):
    """The stack from a frame outwards, up to the code object `end`. Where it has none of the
    program's frames those of the frame `caller` stand in, or else PyTorch's innermost."""
    own, others, through = [], [], set()
    while frame is not None and frame.f_code is not end:
        code = frame.f_code
        place = (code.co_filename, frame.f_lineno, code.co_name)
        if is_own(code.co_filename):
            own.append(Frame(*place))
        elif not is_ours(code.co_filename):
            others.append(place)
            if not own:
                through.add(os.path.basename(code.co_filename))
        frame = frame.f_back
    if not own and caller is not None:
        return Stack(take_stack(caller, end).frames, frozenset(through))
    return Stack(tuple(own[:_MOST_FRAMES] or (Frame(*p) for p in others[:2])), frozenset(through))


def line_of(error):
    """The program's innermost frame that an exception went through, or what caused it; None: there is
    none."""
    found = None
    while error is not None:
        found = _line_in(error.__traceback__) or found
        error = error.__cause__ or error.__context__
    return found


def cut_frames(error):
    """Lets go of the frames behind the program's innermost one that an exception went through, or behind the first: a
    frame keeps its function, and what that closes over, even where it was cleared."""
    while error is not None:
        last = trace = error.__traceback__
        while trace is not None:
            last = trace if is_own(trace.tb_frame.f_code.co_filename) else last
            trace = trace.tb_next
        if last is not None:
            last.tb_next = None
        error = error.__cause__ or error.__context__


def tell_mend(error, name):
    """Notes in an exception that is going to be raised what to do about it (Python 3.11)."""
    if not hasattr(error, "add_note"):
        return
    text, known = str(error), _C.explain(str(error))
    mend = f": {known[3]}. To do: {known[2]}" if known and known[2] not in text else ""
    error.add_note(f"reprise: '{name}' could not be captured{mend}. reprise.check names everything that "
                   "stands in the way")


def _line_in(trace):
    found = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_own(code.co_filename):
            found = Frame(code.co_filename, trace.tb_lineno, code.co_name)
        trace = trace.tb_next
    return found


def frame_of(function):
    """Where a function is defined; None: in no file."""
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return Frame(code.co_filename, code.co_firstlineno, code.co_qualname if sys.version_info >=
                 (3, 11) else code.co_name) if code else None
