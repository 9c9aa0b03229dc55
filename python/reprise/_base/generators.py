# SPDX-License-Identifier: MIT
"""Has a generator of random numbers of Python's or NumPy's moved, told without its state.

A state is 624 numbers, each an object once it is asked for. The words that the generator keeps them in are compared
as they lie in memory instead: the same words are the same state, and of others the state tells. That a generator
keeps all that it has in these words is proved once, on one of ours.
"""

import array
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


def _holds(made, words, numbers, put):
    """Does a state of these numbers, put into it, lie in its words as they are? Then another one of them is another
    word."""
    put(made, numbers)
    return array.array("I", numbers).tobytes() in words(made)


def _numbers(count):
    """As many that are not alike, of 32 bits."""
    return [(i * 2654435761 + 12345) % (1 << 32) for i in range(count)]


@functools.cache
def _tells_python():
    def put(made, numbers, position=623, ready=None):
        made.setstate((3, (*numbers, position), ready))

    def words(made):
        return _words_of_python(made)[0]
    made, numbers = random.Random(1), _numbers(624)
    changes = [lambda made: made.random(), lambda made: made.getrandbits(32), lambda made: made.gauss(0, 1),
               lambda made: put(made, numbers), lambda made: put(made, numbers, 622),
               lambda made: put(made, numbers, 622, 2.5), lambda made: put(made, numbers, 622, 3.5)]
    return made.getstate()[0] == 3 and _proves(made, _words_of_python, changes) and _holds(made, words, numbers, put)


@functools.cache
def _tells_numpy():
    numpy = sys.modules["numpy.random"]

    def put(made, numbers, position=623, ready=0.0):
        name = made.get_state()[0]
        made.set_state((name, numbers, position, int(ready != 0), ready))

    def words(made):
        return _words_of_numpy(made, numpy)[2]
    made, numbers = numpy.RandomState(1), _numbers(624)
    changes = [lambda made: made.random_sample(), lambda made: made.standard_normal(),
               lambda made: made.standard_normal(), lambda made: put(made, numbers), lambda made: put(made, numbers, 622),
               lambda made: put(made, numbers, 622, 1.5), lambda made: put(made, numbers, 622, 2.5),
               lambda made: put(made, numbers, 622)]
    return _proves(made, lambda made: _words_of_numpy(made, numpy), changes) and _holds(made, words, numbers, put)
