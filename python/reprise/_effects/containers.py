# SPDX-License-Identifier: MIT
"""Lists and dicts among the arguments that a call changes, as one that takes its labels out of a batch.

A run has containers of its own, made of the structure that the key tells. What they hold behind it is a part of
what the graph returns, and each replay puts that into the containers of its call.
"""

import operator

from .._base.tree import containers_in
from .python_state import Change, Path

MOST_REGIVEN = 3  # graphs for containers that come again with what calls added


class Within:
    """A leaf of what a run assigned: a list or dict of the call's arguments, by number as Filled has it."""

    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


class Filled:
    """The slot of a list or dict among the arguments, whose contents a run changed. number: of those among the
    arguments that are no tensors, behind which the containers are."""

    owner = None

    def __init__(self, number, path):
        self.key = number
        self.path = path

    def of(self, arguments):
        return Filling(arguments[self.key], arguments)

    def places(self):
        return []


class Filling:
    """The one of a call."""

    def __init__(self, container, arguments):
        self._container = container
        self._arguments = arguments

    def fits(self, kind_of, kind):
        """Was it given in one place alone? A run has two of it otherwise."""
        return sum(one is self._container for one in self._arguments) == 1

    def put(self, contents):
        self._container.clear()
        if type(contents) is list:
            self._container.extend(contents)
        else:
            self._container.update(contents)


class Regiven:
    """Which containers come again with what earlier calls added. Each call of theirs is of a shape of its own."""

    def __init__(self):
        self._left = frozenset()  # (id, length) of those that the last call made longer
        self._met = 0
        self.is_told = False  # by a warning

    def note(self, containers, lengths):
        """Behind a call. lengths: those that the containers had ahead of it."""
        self._left = frozenset((id(one), len(one)) for one, length in zip(containers, lengths) if len(one) > length)

    def is_met(self, args, kwargs):
        """Ahead of a call of a new shape: was it so often enough that there is no point in another graph?"""
        if not self._left or self._left.isdisjoint((id(one), len(one)) for one in containers_in((args, kwargs))):
            return False
        self._met += 1
        return self._met > MOST_REGIVEN


class Containers:
    """The lists and dicts among the arguments of a run, which are the run's: what happens to them there does
    not reach the caller's. first: the number of the first one, behind the arguments that are no tensors."""

    def __init__(self, args, kwargs, first):
        self._first = first
        self._found = containers_in((args, kwargs))
        self._held = [_copy(container) for container in self._found]
        self._named = [(f"argument {i}", arg) for i, arg in enumerate(args, 1)]
        self._named += [(f"argument '{name}'", arg) for name, arg in kwargs.items()]
        self._within = [containers_in(arg) for _, arg in self._named]

    def changes(self):
        """A Change for each that a run changed."""
        numbers = {id(container): Within(number) for number, container in enumerate(self._found, self._first)}
        return [self._change(i, numbers) for i, (container, held) in enumerate(zip(self._found, self._held))
                if _is_filled(container, held)]

    def _change(self, i, numbers):
        container, path = self._found[i], Path(None, "", self._name(self._found[i]))
        return Change(path, Filled(self._first + i, path), after=_with_numbers(_copy(container), numbers),
                      what=f"a {type(container).__name__} that it changes")

    def _name(self, container):
        return next((name for (name, _), inner in zip(self._named, self._within)
                     if any(one is container for one in inner)), "its keywords")


def _copy(container):
    return type(container)(container)


def _is_filled(container, held):
    """Does it hold other objects by now?"""
    if len(container) != len(held):
        return True
    if type(container) is list:
        return any(map(operator.is_not, container, held))
    return list(container) != list(held) or any(map(operator.is_not, container.values(), held.values()))


def _with_numbers(tree, numbers):
    """The tree, with a Within for each container of the caller's."""
    kind = type(tree)
    if id(tree) in numbers:
        return numbers[id(tree)]
    if kind is dict:
        return {key: _with_numbers(part, numbers) for key, part in tree.items()}
    return kind(_with_numbers(part, numbers) for part in tree) if kind in (list, tuple) else tree
