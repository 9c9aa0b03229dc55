# SPDX-License-Identifier: MIT
"""What autograd functions of Python keep on their contexts, put back between the runs of a backward pass.

A capture runs one backward pass several times through one graph of autograd. A program's function may use up
what its forward pass left: it drops an attribute, pops from a list, or empties an object that it keeps there. The
second run would not find it.

Saved parameters are handed out as themselves: where hooks look at what is saved, as ours do (_shapes/split.py),
PyTorch hands out plain tensors. torch.compile compiles anew for them, perhaps to a kernel that rounds otherwise.
"""

import contextlib
import types

_CONTAINERS = (list, dict, set)
_WHOLE = (type, types.ModuleType, types.FunctionType, types.MethodType)  # are not the context's own


class Contexts:
    """The attributes of the contexts that lead from `results` back, as they are now: lists, dicts and sets among
    them by what they hold, and the attributes of the objects in these and of the objects among them. Belongs to the
    thread that captures."""

    def __init__(self, torch, results):
        kind = torch.autograd.function.BackwardCFunction
        self._plain = (*_WHOLE, torch.nn.Module, torch.nn.Parameter)
        self._tensor = torch.Tensor
        self._torch = torch
        self._found = {}  # the images, by what they are of
        nodes = [node for node in _nodes(results) if isinstance(node, kind)]
        self._kinds = {type(node) for node in nodes}
        for node in nodes:
            self._look_at(node.__dict__)

    def put_back(self):
        for held, image in self._found.values():
            _restore(held, image)

    @contextlib.contextmanager
    def showing(self, params):
        """A saved tensor that is one of these is that very one meanwhile, in all threads."""
        by_address = {p.data_ptr(): p for p in params}
        torch = self._torch

        def shown(tensor):
            param = by_address.get(tensor.data_ptr()) if type(tensor) is torch.Tensor else None
            is_it = param is not None and (param.shape, param.stride(), param.dtype) == (
                tensor.shape, tensor.stride(), tensor.dtype)
            return param if is_it else tensor

        def saved_tensors(context):
            found = torch.autograd.function.BackwardCFunction.saved_tensors.__get__(context)
            return tuple(map(shown, found))
        kinds = [kind for kind in self._kinds if "saved_tensors" not in vars(kind)]
        try:
            for kind in kinds:
                kind.saved_tensors = property(saved_tensors)
            yield
        finally:
            for kind in kinds:
                del kind.saved_tensors

    def _look_at(self, attributes):
        self._keep(attributes)
        for value in list(attributes.values()):
            if type(value) in _CONTAINERS:
                self._keep(value)
            for one in _members(value):
                if self._is_own(one):
                    self._keep(one.__dict__)

    def _keep(self, held):
        self._found.setdefault(id(held), (held, type(held)(held)))

    def _is_own(self, value):
        """Is this an object whose attributes a function may use up? Tensors of classes of their own have such."""
        return type(value) is not self._tensor and not isinstance(value, self._plain) and (
            type(getattr(value, "__dict__", None)) is dict)


def _members(value):
    if type(value) is dict:
        return list(value.values())
    return list(value) if type(value) in (list, tuple, set) else [value]


def _restore(held, image):
    if type(held) is list:
        held[:] = image
    elif type(held) is set or held.keys() != image.keys() or any(held[name] is not image[name] for name in image):
        held.clear()
        held.update(image)


def _nodes(results):
    """Each node of autograd once."""
    found, left = {}, [r.grad_fn for r in results]
    while left:
        node = left.pop()
        if node is not None and node not in found:
            found[node] = None
            left += [following for following, _ in node.next_functions]
    return found
