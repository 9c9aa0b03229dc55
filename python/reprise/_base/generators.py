# SPDX-License-Identifier: MIT
"""Has a generator of random numbers of Python's or NumPy's moved, told without its state.

A state is 624 numbers, each an object once it is asked for. The words that the generator keeps them in are compared
as they lie in memory instead: the same words are the same state, and of others the state tells. That a generator
keeps all that it has in these words is proved once, on one of ours.
"""

import ctypes
import functools
import random
import sys

_HEAD = object.__basicsize__
_OF_MT19937 = 625 * 4  # bytes: its key, and how far it is
_states: dict[int, tuple] = {}  # by the id of a generator of the process's: (it, its mark, what asked, its state)


def mark(made):
    """What is another wherever a generator has another state, but not only there; None: nothing tells."""
    kind = type(made)
    if kind is random.Random:
        return _words_of_python(made) if _tells_python() else None
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and kind is numpy.RandomState:
        return _words_of_numpy(made, numpy) if _tells_numpy() else None
    return None


def state_of(made, get):
    """What get() says of a generator's state, and its mark. Of one of the process's it is not asked again while it
    stays where it was: nobody changes what is returned."""
    now = mark(made)
    known = _states.get(id(made))
    if known is not None and known[0] is made and known[1] is not None and known[1] == now and known[2] == get:
        return known[3], now
    state = get()
    if made is not None and any(made is one for one in _of_process()):
        _states[id(made)] = (made, now, get, state)
    return state, now


def _of_process():
    """Those that live as long as the process."""
    numpy = sys.modules.get("numpy.random")
    return [getattr(ask, "__self__", None) for ask in (random.getstate, getattr(numpy, "get_state", None))]


def _words(made, kind):
    return ctypes.string_at(id(made) + _HEAD, kind.__basicsize__ - _HEAD)


def _words_of_python(made):
    return _words(made, random.Random.__base__), made.gauss_next


def _words_of_numpy(made, numpy):
    """Its own, among them a number that it has ready, and those of what it draws from."""
    bits = made._bit_generator
    if type(bits) is not numpy.MT19937:
        return None
    return _words(made, type(made)), id(bits), ctypes.string_at(bits.ctypes.state_address, _OF_MT19937)


def _proves(made, words, changes):
    """Has it other words behind each of these changes?"""
    try:
        for change in changes:
            before = words(made)
            change(made)
            if before is None or words(made) == before:
                return False
    except (AttributeError, TypeError, ValueError):
        return False
    return True


@functools.cache
def _tells_python():
    def put(at, ready=None):
        def change(made):
            version, numbers, _ = made.getstate()
            made.setstate((version, (*numbers[:at], numbers[at] ^ 1, *numbers[at + 1:]), ready))
        return change
    draws = [lambda made: made.random(), lambda made: made.getrandbits(32), lambda made: made.gauss(0, 1)]
    return _proves(random.Random(1), _words_of_python, [*draws, *map(put, range(0, 625, 8)), put(1, 2.5), put(624)])


@functools.cache
def _tells_numpy():
    numpy = sys.modules["numpy.random"]

    def put(at=None, ahead=0, ready=0.0):
        def change(made):
            name, key, position, *_ = made.get_state()
            key = key.copy()
            if at is not None:
                key[at] ^= 1
            made.set_state((name, key, position - ahead, int(ready != 0), ready))
        return change
    draws = [lambda made: made.random_sample(), lambda made: made.standard_normal(), lambda made: made.standard_normal()]
    puts = [*map(put, range(0, 624, 8)), put(623), put(ahead=1), put(ready=1.5), put(ready=2.5), put()]
    return _proves(numpy.RandomState(1), lambda made: _words_of_numpy(made, numpy), [*draws, *puts])
