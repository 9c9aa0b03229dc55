# SPDX-License-Identifier: MIT
"""Captures that the device's memory did not suffice for, and when they are tried again.

Calls of such a shape are eager. Now and then one looks at how much memory is free, and captures again where
that is more than when it failed: after 8 such calls at first, and twice as many each time that it was too
little, up to 4,096.
"""

import gc

from .. import _C

FIRST_REST = 8
MOST_REST = 4096
_LEAST_MORE = 1 << 21  # bytes: what the driver gives at a time
_STATUS = "RP_ERROR_OUT_OF_DEVICE_MEMORY"


def is_short(torch, error):
    """Does an exception tell, itself or by what it was raised for, that device memory ran out?"""
    seen = error
    while seen is not None:
        if isinstance(seen, torch.OutOfMemoryError) or getattr(seen, "status", None) == _STATUS:
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def free_bytes(torch, device):
    """What an allocation could have: of the driver, and of what PyTorch keeps."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def make_room(torch, device):
    """Gives back to the driver, which graphs get theirs of, what nobody uses. False: it was nothing."""
    before = torch.cuda.mem_get_info(device)[0]
    gc.collect()
    _C.sweep()
    torch.cuda.empty_cache()
    _C.sweep()
    return torch.cuda.mem_get_info(device)[0] >= before + _LEAST_MORE


class _Short:
    __slots__ = ("device", "free", "rest", "left", "text")

    def __init__(self, device, free, rest, text):
        self.device, self.free, self.text = device, free, text
        self.rest = self.left = rest


class Shortages:
    """Those of one callable, by key."""

    def __init__(self, torch):
        self._torch = torch
        self._short = {}

    def __contains__(self, key):
        return key in self._short

    def texts(self):
        return [short.text for short in list(self._short.values())]

    def note(self, key, device, text):
        """A capture failed, for which the text tells why. Returns whether it is the first one."""
        before = self._short.get(key)
        rest = FIRST_REST if before is None else min(2 * before.rest, MOST_REST)
        self._short[key] = _Short(device, free_bytes(self._torch, device), rest, text)
        return before is None

    def is_over(self, key):
        """An eager call of such a shape: is it to be captured?"""
        short = self._short.get(key)
        if short is None:
            return False
        short.left -= 1
        if short.left > 0:
            return False
        if free_bytes(self._torch, short.device) >= short.free + _LEAST_MORE:
            return True
        short.rest = short.left = min(2 * short.rest, MOST_REST)
        return False

    def rest(self, key):
        """How many eager calls of such a shape need not be told; they count as told."""
        short = self._short[key]
        count, short.left = short.left - 1, 1
        return count

    def end(self, key):
        """It was captured."""
        self._short.pop(key, None)

    def clear(self):
        self._short.clear()
