# SPDX-License-Identifier: MIT
"""Warnings that point at the program's line: the one that called into Reprise, or into PyTorch where
Reprise was reached through it. Every warning of the package goes through here.

From CPython 3.12 on Python finds that line itself. Before that it takes a number of frames, which are
counted here as Python counts them.
"""

import contextlib
import functools
import os
import sys
import warnings

from .texts import plain

_HERE = os.path.dirname(os.path.dirname(sys._getframe().f_code.co_filename)) + os.sep  # the package
# Who calls on behalf of others: helpers of Python's, and programs that torch.fx writes. Without
# their endings: Python takes a whole name for no prefix of itself.
_HELPERS = (contextlib.__file__.removesuffix("py"), functools.__file__.removesuffix("py"),
            "<eval_with_key>")
_COUNTS = sys.version_info < (3, 12)


def warn(text, category=UserWarning):
    """Warns of `text` at the program's innermost line."""
    inside, text = _inside(), plain(text)
    if _COUNTS:
        warnings.warn(text, category, stacklevel=_level(sys._getframe(1), inside))
    else:
        warnings.warn(text, category, skip_file_prefixes=inside)


def _inside():
    """What the files begin with that are not the program's."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return (_HERE, *_HELPERS, *((os.path.dirname(file) + os.sep,) if file else ()))


def _level(frame, inside):
    """The stack level, as warn() hands it on, of the first frame outside. Python counts no frames of
    an import that is under way."""
    level = 2
    while frame is not None:
        file = frame.f_code.co_filename
        is_import = "importlib" in file and "_bootstrap" in file
        if not is_import and not file.startswith(inside):
            break
        level += not is_import
        frame = frame.f_back
    return level
