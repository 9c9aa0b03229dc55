# SPDX-License-Identifier: MIT
"""Which variables of closures no code sets any more: reprise._reads.closed."""

import functools
import sys
import unittest
from unittest import mock

from reprise._reads.closed import is_closed, running


def plain(value):
    def inner():
        return value
    return inner


def twice(value):
    def middle():
        def inner():
            return value
        return inner
    return middle()


def set_within(value):
    def inner():
        return value

    def setter(new):
        def deeper():
            nonlocal value
            value = new
        deeper()
    inner.setter = setter
    return inner


def deleted_within(value):
    def inner():
        return value

    def ender():
        nonlocal value
        del value
    inner.ender = ender
    return inner


def own_name_within(value):
    def inner():
        return value

    def other():
        value = 1

        def deeper():
            nonlocal value
            value += 1
            return value
        return deeper, value
    inner.other = other
    return inner


def first_set_here():
    value = 1
    value += 1
    return lambda: value


def generates(value):
    def inner():
        return value
    yield inner


async def waits(value):
    return lambda: value


def wrapping(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper


@wrapping
def wrapped(value):
    return lambda: value


@functools.lru_cache
def cached(value):
    return lambda: value


class Renamed:
    def names_class(self):
        return __class__

    @classmethod
    def rename(cls, other):
        def deeper():
            nonlocal __class__
            __class__ = other
        deeper()


class Class:
    def method(self, value):
        return lambda: value

    @staticmethod
    def static(value):
        return lambda: value

    @classmethod
    def of_class(cls, value):
        return lambda: value

    @property
    def told(self):
        value = 2
        return lambda: value

    def names_class(self):
        return __class__


def named_as_another(value):
    def inner():
        return value
    return inner


another, named_as_another = named_as_another, plain


def gone(value):
    return lambda: value


kept = gone
del gone


@unittest.skipIf(sys.version_info < (3, 11), "code has no qualified name")
class Closed(unittest.TestCase):
    def closed(self, function, name="value"):
        return is_closed(function, name, running())

    def test_functions_that_ended(self):
        one = Class()
        for made in (plain(1), twice(1), own_name_within(1), first_set_here(), wrapped(1), cached(1), one.method(1),
                     Class.static(1), Class.of_class(1), one.told):
            self.assertTrue(self.closed(made), made)
        self.assertTrue(self.closed(wrapping(plain), "function"))

    def test_variables_that_code_sets(self):
        for made in (set_within(1), deleted_within(1)):
            self.assertFalse(self.closed(made), made)
        self.assertFalse(self.closed(set_within(1).setter))
        self.assertFalse(self.closed(own_name_within(1).other()[0]))

    def test_functions_that_go_on(self):
        made = generates(1)
        self.assertFalse(self.closed(next(made)))
        coroutine = waits(1)
        with self.assertRaises(StopIteration) as ended:
            coroutine.send(None)
        self.assertFalse(self.closed(ended.exception.value))

        value = 1
        self.assertFalse(self.closed(lambda: value))  # this very function runs

    def test_functions_that_are_not_found(self):
        self.assertFalse(self.closed(another(1)))  # its name leads to another one
        self.assertFalse(self.closed(kept(1)))

    def test_the_class_that_methods_name(self):
        self.assertTrue(self.closed(Class.names_class, "__class__"))
        self.assertFalse(self.closed(Renamed.names_class, "__class__"))

        class Made:
            def names_class(self):
                return __class__
            names_class.is_closed = self.closed(names_class, "__class__")
        self.assertFalse(Made.names_class.is_closed, "it was not made yet")
        self.assertTrue(self.closed(Made.names_class, "__class__"))

    def test_functions_that_wait_elsewhere(self):
        with mock.patch.dict(sys.modules, {"greenlet": sys}):
            self.assertFalse(self.closed(plain(1)))


if __name__ == "__main__":
    unittest.main()
