# SPDX-License-Identifier: MIT
"""What a functools.lru_cache keeps: results by their arguments, which the collector alone tells of."""

import functools
import gc

from .. import _C
from .constants import is_class, is_plain

MEMO_TYPE = type(functools.lru_cache(lambda: None))
_LINK = "_lru_list_elem"  # what a cache with a limit keeps in the place of a result


def _referents(memo):
    names, function = memo.__dict__, memo.__wrapped__
    return [held for held in gc.get_referents(memo) if held is not names and held is not function]


def _has_links(entries):
    return all(type(value).__name__ == _LINK for value in entries.values())


def entries_of(memo, size):
    """The dict in which it keeps so many results; None: it is not found."""
    return _entries_among(_referents(memo), memo, size)


def _entries_among(referents, memo, size):
    found = [held for held in referents if type(held) is dict and len(held) == size]
    if memo.cache_parameters()["maxsize"] is not None:  # results are reached as well, and may be dicts
        found = [held for held in found if _has_links(held)]
    return found[-1] if found else None


def take_out(entries, keys):
    """Takes these keys and their results out of a cache, whose dict `entries` is."""
    for key in keys:
        link = entries.pop(key, None)
        if type(link).__name__ == _LINK:  # which the list of the cache has as well
            _C.unlink(link)


def kept_by(memo):
    """The results and arguments in it that somebody may change."""
    found, size = _referents(memo), memo.cache_info().currsize
    entries = _entries_among(found, memo, size)
    if entries is not None and not (size and _has_links(entries)):
        found = list(entries.values())
    return [value for value in found if value is not entries and type(value) is not object and not is_plain(value) and (
        getattr(value, "__module__", None) not in ("functools", None) or not is_class(value))]


def _learn():
    memo = functools.lru_cache(maxsize=3)(lambda key: [key])
    kept = [memo(key) for key in range(3)]
    entries = entries_of(memo, len(kept))
    return entries is not None and _C.learn_links(tuple(entries.values()))


_learn()
