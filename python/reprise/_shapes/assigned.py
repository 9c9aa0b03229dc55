# SPDX-License-Identifier: MIT
"""Tensors that a graph reads where other calls of its callable put others, as an encoder's output that is kept for the
decoder's calls: `state["h"] = encode(x)`. What calls put in such a place tells no calls apart (Reads.leave_out). A graph
that reads the tensor there goes by its address, so another one in its place makes the graph stale.
"""

import types

from .._capture.record import span

WHY = ("a tensor that it reads, and that another call of it assigned, was another one after each of {} captures. Pass it "
       "as an argument, or write into it instead of replacing it")


class Assigned:
    """Places with tensors of the device, and where those lay."""

    def __init__(self, found):
        self._found = found  # (owner, key, addresses) each

    def __bool__(self):
        return bool(self._found)

    def have_moved(self):
        """Is there a place that has others by now?"""
        return any(tuple(t.data_ptr() for t in _tensors(owner, key)) != there for owner, key, there in self._found)


def read_by(parts, places, own=()):
    """Those of these places, (owner, key) each, that graphs read but for their own; key: None: all that is there. parts:
    of a shape, each with a graph."""
    own = {(id(owner), key) for owner, key in own}
    held = [(owner, key, _tensors(owner, key)) for owner, key in places if (id(owner), key) not in own]
    ranges = tuple((tensor.data_ptr(), span(tensor)) for _, _, tensors in held for tensor in tensors)
    if not ranges:
        return Assigned(())
    named = [any(bits) for bits in zip(*(part.graph.names(ranges) for part in parts))]
    found, at = [], 0
    for owner, key, tensors in held:
        if any(named[at:at + len(tensors)]):
            found.append((owner, key, tuple(tensor.data_ptr() for tensor in tensors)))
        at += len(tensors)
    return Assigned(tuple(found))


def _tensors(owner, key):
    """Those of the device at a place, as it is now, that lie in memory."""
    return [value for value in _values(owner, key) if getattr(value, "is_cuda", False) and value.numel()]


def _values(owner, key):
    if isinstance(owner, types.CellType):
        try:
            return (owner.cell_contents,)
        except ValueError:
            return ()
    if isinstance(owner, dict):
        return tuple(owner.values()) if key is None else (owner.get(key),)
    if isinstance(owner, (list, tuple)):
        return tuple(owner) if key is None else tuple(owner[key:key + 1]) if type(key) is int and key >= 0 else ()
    return (getattr(owner, key, None),) if type(key) is str else ()
