# SPDX-License-Identifier: MIT
"""Operations that Python's memory runs out in, at each allocation in turn."""

import unittest

try:
    import _testcapi
except ImportError:
    _testcapi = None

MOST = 2000  # allocations of one operation
needs_it = unittest.skipIf(_testcapi is None,
                           "this Python has no _testcapi, which makes allocations fail")


def without_memory(operation, *args, first=0, count=0):
    """What the operation returns, and what it raised: its first allocations work, the count behind them
    fail, or all."""
    result = error = None
    _testcapi.set_nomemory(first, first + count if count else 0)
    try:
        result = operation(*args)
    except BaseException as raised:
        error = raised
    finally:
        _testcapi.remove_mem_hooks()
    return result, error


def exhaust(test, operation, *args):
    """The result of the operation, once it had all the memory it wanted; until then it raises
    MemoryError, or something that was made of that."""
    for n in range(MOST):
        result, error = without_memory(operation, *args, first=n, count=1)
        if error is None:
            return result
        test.assertIn("MemoryError", repr(error))
    return test.fail(f"it fails whatever it gets: {error!r}")
