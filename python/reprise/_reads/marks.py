# SPDX-License-Identifier: MIT
"""How writes to a dict are noticed: by the interpreter's watchers, by a word that it keeps in each dict,
or by looking at the values (csrc/reads/marks.h).

Which way holds differs by interpreter and by what the dict belongs to: CPython 3.13 stores to instances
without telling watchers, where 3.12 tells them, unless the dict has a table of its own. So each kind of owner is
proved once: something is written to one in each manner there is, and each time the way has to notice.
"""

import functools
import sys

from .. import _C

BY_VALUE, BY_WATCHER, BY_TAG, BY_ORDER, BY_DESCRIPTOR = range(5)
NAMES = 0  # of the kinds of csrc/reads/reads.h
_ROUNDS = 40  # by then the interpreter has replaced the instructions by special ones


class _Plain:
    def __init__(self):
        self.value = 0
        self.other = 0


class _Strict(_Plain):
    """As nn.Module: what is stored goes through a method first."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)


def _stores(owner):
    """The manners to store to an instance: by two instructions of one function, and around them."""
    def plainly(value):
        owner.value = value
    return (plainly, lambda value: setattr(owner, "value", value),
            lambda value: owner.__dict__.update(value=value),
            lambda value: object.__setattr__(owner, "value", value))


def _instance():
    owner = _Plain()
    return owner.__dict__, _stores(owner)


def _strict_instance():
    owner = _Strict()
    return owner.__dict__, _stores(owner)


def _class():
    owner = type("Owner", (), {"value": 0})
    return dict_of_class(owner), (lambda value: setattr(owner, "value", value),
                                  lambda value: type.__setattr__(owner, "value", value))


def _globals():
    names = {"value": 0}
    exec("def write(new):\n    global value\n    value = new", names)
    return names, (names["write"], lambda value: names.update(value=value))


def _container():
    made = {"value": 0}

    def store(value):
        made["value"] = value

    def again(value):
        made.pop("value")
        made["value"] = value
    return made, (store, again, lambda value: made.update(value=value))


_KINDS = {"instance": (_instance, _strict_instance), "class": (_class,), "globals": (_globals,),
          "container": (_container,)}


dict_of_class = _C.dict_of_class  # the dict behind a class's view of it; None where there is none to be had


def _proves(way, make):
    """Does the way notice each of the writes, and nothing where there were none? Beside another dict, which is
    written to last: tags are compared with the greatest that was seen, of any dict (csrc/reads/tags.h)."""
    owner, writes = make()
    other = {"value": 0}
    reads = _C.Reads(object)
    for i in range(1, _ROUNDS):
        for j, write in enumerate(writes):
            other["value"] = i + j / 16
            reads.set([(NAMES, way, names, ("value",), (names["value"],)) for names in (owner, other)])
            if not (reads.holds() and reads.holds()):
                return False
            write(i + j / 16)
            if reads.holds():
                return False
    return True


@functools.lru_cache(maxsize=None)
def way_for(kind):
    """The cheapest way that holds for dicts of a kind: "instance", "class", "globals", "container"."""
    way = BY_WATCHER if sys.version_info >= (3, 12) else BY_TAG
    if not _is_proved(way, kind) and not (way == BY_WATCHER and _C.give_tables(_Plain()) and _is_proved(way, kind)):
        return BY_VALUE
    if (way, kind) == (BY_TAG, "instance"):
        _C.trust_tags()
    return way


def _is_proved(way, kind):
    return all(_proves(way, make) for make in _KINDS[kind])
