# SPDX-License-Identifier: MIT
"""What autograd functions of Python keep on their contexts, put back between the runs of a backward pass.

A capture runs one backward pass several times through one graph of autograd. A program's function may use up
what its forward pass left: it drops an attribute, pops from a list, or empties an object that it keeps there. The
second run would not find it.

Saved parameters are handed out as themselves: where hooks look at what is saved, as ours do (_shapes/split.py),
PyTorch hands out plain tensors. torch.compile compiles anew for them, perhaps to a kernel that rounds otherwise.
"""

import collections
import contextlib
import copyreg
import types

_CONTAINERS = (list, dict, set, collections.OrderedDict, collections.defaultdict, collections.deque)
_ABSENT = object()
_MOST_OBJECTS = 2  # within each other that are looked into: what is deeper is the program's
_WHOLE = (type, types.ModuleType, types.FunctionType, types.MethodType)  # are not the context's own


class Contexts:
    """The attributes of the contexts that lead from `results` back, as they are now: containers among them by what
    they hold, at any depth, and objects by their attributes. Nothing puts an iterator back: `refusal` names one.
    Belongs to the thread that captures."""

    def __init__(self, torch, results):
        kind = torch.autograd.function.BackwardCFunction
        self._plain = (*_WHOLE, torch.nn.Module, torch.nn.Parameter)
        self._tensor = torch.Tensor
        self._torch = torch
        self._found = {}  # the images, by what they are of
        self.refusal = None
        nodes = [node for node in _nodes(results) if isinstance(node, kind)]
        self._kinds = {type(node) for node in nodes}
        for node in nodes:
            self._look_at(node.__dict__, _MOST_OBJECTS)

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

    def _look_at(self, held, objects):
        """Keeps a container's image, and those of what it holds, objects so deep."""
        if id(held) in self._found:
            return
        self._found[id(held)] = (held, _copy_of(held))
        for value in _members(held):
            self._look_into(value, objects)

    def _look_into(self, value, objects):
        kind = type(value)
        if kind in _CONTAINERS:
            self._look_at(value, objects)
        elif kind is tuple:
            for one in value:
                self._look_into(one, objects)
        elif hasattr(kind, "__next__"):
            self.refusal = f"a function of autograd keeps an iterator, a {kind.__name__}, for its backward pass"
        elif objects and kind is not self._tensor and not isinstance(value, self._plain):
            self._look_at_object(value, objects - 1)

    def _look_at_object(self, value, objects):
        """Attributes that a function may use up. Tensors of classes of their own have such too."""
        names = getattr(value, "__dict__", None)
        if type(names) is dict:
            self._look_at(names, objects)
        if hasattr(type(value), "__slots__"):
            self._look_at(_Slots(value), objects)


class _Slots:
    """The attributes of an object that lie in slots."""

    def __init__(self, owner):
        self.owner = owner
        self.names = copyreg._slotnames(type(owner))

    def values(self):
        return [getattr(self.owner, name, _ABSENT) for name in self.names]

    def set(self, values):
        for name, now, value in zip(self.names, self.values(), values):
            if value is now:
                continue
            if value is _ABSENT:
                delattr(self.owner, name)
            else:
                setattr(self.owner, name, value)


def _members(held):
    return list(held.values()) if isinstance(held, (dict, _Slots)) else list(held)


def _copy_of(held):
    return dict(held) if isinstance(held, dict) else _members(held)


def _restore(held, image):
    if isinstance(held, _Slots):
        held.set(image)
    elif isinstance(held, list):
        held[:] = image
    elif isinstance(held, collections.deque):
        held.clear()
        held.extend(image)
    elif isinstance(held, set) or held.keys() != image.keys() or any(
            held[name] is not image[name] for name in image):
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
