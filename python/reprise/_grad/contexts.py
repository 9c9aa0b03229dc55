# SPDX-License-Identifier: MIT
"""What autograd functions of Python keep on their contexts, put back between the runs of a backward pass.

A capture runs one backward pass several times through one graph of autograd. A program's function may use up
what its forward pass left: it drops an attribute, or pops from a list. The second run would not find it.
"""


class Contexts:
    """The attributes of the contexts that lead from `results` back, as they are now; lists, dicts and sets among
    them by what they hold. Belongs to the thread that captures."""

    def __init__(self, torch, results):
        kind = torch.autograd.function.BackwardCFunction
        self._found = [(node.__dict__, _image(node.__dict__)) for node in _nodes(results) if isinstance(node, kind)]

    def put_back(self):
        for attributes, image in self._found:
            _restore(attributes, image)


def _nodes(results):
    """Each node of autograd once."""
    found, left = {}, [r.grad_fn for r in results]
    while left:
        node = left.pop()
        if node is not None and node not in found:
            found[node] = None
            left += [following for following, _ in node.next_functions]
    return found


_CONTAINERS = (list, dict, set)


def _image(attributes):
    """(name, value, what a container held or None) of each."""
    return [(name, value, type(value)(value) if type(value) in _CONTAINERS else None)
            for name, value in attributes.items()]


def _restore(attributes, image):
    attributes.clear()
    for name, value, held in image:
        if held is not None:
            value.clear()
            (value.extend if type(value) is list else value.update)(held)
        attributes[name] = value
