# SPDX-License-Identifier: MIT
"""Where the code that a walk followed looks, and what it sets, for whoever looks at what runs change
(_effects/effects.py). By names: an attribute that any of this code asks for counts as read on all objects.
"""

import functools

from .walk import ATTRIBUTES, CELL, DICT, ITEMS, LIST, NAMES, SET

_BY_KEY = frozenset((NAMES, ATTRIBUTES))
_WHOLE = frozenset((ITEMS, LIST, CELL, SET, DICT))


class Places:
    """Of one walk. stored: names by which code sets attributes and globals."""

    def __init__(self, walk, stored):
        self._walk, self.stored = walk, stored

    def set_alone(self):
        """Those of them by which it reads nothing."""
        return {name for name in self.stored if not self.asks_for(name)}

    def asks_for(self, name):
        """Does code ask for an attribute or a global of this name? By names that it makes it asks some objects alone, of
        whose places keys tell."""
        return name in self._walk.names or name in self._walk.globals

    def reads_beside(self, name):
        """Does code read what has this name for more than to set it anew?"""
        return name in self._walk.looked or (self._walk.asks_for(name) and name not in self._walk.names)

    def tell(self, owner, key):
        """Do keys of calls tell what is at a place? owner: a dict, a cell, or an object with slots. key: a name."""
        return any(keys is None or key in keys for keys in self._looked.get(id(owner), ()))

    @functools.cached_property
    def _looked(self):
        """By the id of an owner the names that are looked at in it, or None for all of it: one for each look."""
        looked = {}
        for kind, _, owner, keys, _ in self._walk.owners:
            if kind in _BY_KEY or kind in _WHOLE:
                looked.setdefault(id(owner), []).append(keys if kind in _BY_KEY else None)
        return looked
