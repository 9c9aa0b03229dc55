# SPDX-License-Identifier: MIT
"""The hooks of Megatron's DistributedDataParallel on the modules within a layer.

With overlap_param_gather each module waits, ahead of its forward pass, for its parameters to be gathered. That is
Python code, which replays leave out. So the hooks are taken from the modules of captured layers, and run ahead
of each call of the layer, for as long as Megatron has them registered.
"""

import operator

from .lane import Surroundings

_hooks_of = operator.attrgetter("_forward_pre_hooks")
HOME = "megatron.core.distributed.distributed_data_parallel"


class Taken:
    """A hook that was taken from a module."""

    def __init__(self, module, number, hook):
        self.module, self.number, self.hook = module, number, hook
        self._owner = _owner_of(hook)

    def is_registered(self):
        """Does Megatron have it still? It removes them around evaluation, by handles of its own."""
        handles = getattr(self._owner, "remove_forward_pre_hook_handles", None)
        if handles is None:
            return True
        handle = handles.get(self.module)
        return handle is not None and handle.id == self.number


class OfMegatron(Surroundings):
    """They run ahead of each call of the layer."""

    def __init__(self, torch):
        self._handle = torch.utils.hooks.RemovableHandle  # counts all hooks that are registered
        self._layers = {}  # by id of the attributes of a layer: modules in it, what was taken, and that count

    def ahead(self, module):
        layer = self._of(module)
        modules, taken, count = layer
        if count != self._handle.next_id:
            layer[2] = self._handle.next_id
            if any(map(_hooks_of, modules)):
                for inner in modules:
                    taken += _take(inner)
        if not taken:
            return
        taken[:] = [one for one in taken if one.is_registered()]
        for one in taken:
            one.hook(one.module, ())

    def _of(self, module):
        found = self._layers.get(id(module.__dict__))
        if found is None:
            found = self._layers[id(module.__dict__)] = [list(type(module).modules(module)), [], -1]
        return found

    def give_back(self):
        for _, taken, _ in self._layers.values():
            for one in taken:
                if one.is_registered():
                    one.module._forward_pre_hooks[one.number] = one.hook
        self._layers.clear()


def _take(module):
    found = [(number, hook) for number, hook in module._forward_pre_hooks.items()
             if getattr(hook, "__module__", None) == HOME]
    for number, _ in found:
        del module._forward_pre_hooks[number]
    return [Taken(module, number, hook) for number, hook in found]


def _owner_of(hook):
    """The DistributedDataParallel that a hook of its closes over."""
    for cell in getattr(hook, "__closure__", None) or ():
        if hasattr(cell.cell_contents, "remove_forward_pre_hook_handles"):
            return cell.cell_contents
    return None
