# SPDX-License-Identifier: MIT
"""What a captured graph relies on outside its arguments: the modules' parameters and modes.

At each call one pass asks for the parameters' addresses and the modules' modes. Whether there are the
same modules, parameters and hooks is asked when any was registered anywhere: events that PyTorch tells
of. Programs make hooks all the time, so that question is answered in C (members), and only where the
answer is no are they looked up again.
"""

import collections
import functools
import inspect
import weakref
from operator import attrgetter

from .. import _C
from .._reads.marks import BY_VALUE, NAMES, way_for
from .._reads.walk import ATTRIBUTES, ITEMS, has_place
from . import address

_training = attrgetter("training")
_requires_grad = attrgetter("requires_grad")
_registrations = 0
_found: weakref.WeakValueDictionary[tuple, object] = weakref.WeakValueDictionary()  # Watches by the ids of modules
_listening = False


def _counter(torch):
    is_compiling = torch.compiler.is_compiling

    def count(*_):
        if not is_compiling():  # torch.compile takes in what runs, and would compile anew for each count
            _count()
    return count


def _count():
    global _registrations
    _registrations += 1
    _C.count_registration()


def registrations():
    """How many modules, parameters and buffers were registered anywhere."""
    return _registrations


def _listen(torch):
    global _listening
    if _listening:
        return
    module, count = torch.nn.modules.module, _counter(torch)
    module.register_module_module_registration_hook(count)
    module.register_module_parameter_registration_hook(count)
    module.register_module_buffer_registration_hook(count)
    _listening = True


@functools.cache
def learn_hooks(torch):
    """Has the extension find where tensors keep their hooks, so that it compares words; does it know?"""
    try:
        with torch.inference_mode(False), torch.enable_grad():
            hooked, bare = (torch.zeros(1, device="cpu", requires_grad=True) for _ in range(2))
            hooked.register_hook(_count)
            hooked.register_post_accumulate_grad_hook(_count)
            return _C.learn_hooks(torch.Tensor, hooked, bare, torch.Tensor.__basicsize__)
    except (AttributeError, RuntimeError, TypeError):  # a PyTorch without one of these
        return False


def find_modules(torch, fn):
    """The modules that a callable is known to use: itself, its owner, what it closes over; of what
    wraps another callable, that one's too."""
    seen = []

    def add(value):
        if isinstance(value, torch.nn.Module) and all(value is not s for s in seen):
            seen.append(value)

    inner = inspect.unwrap(getattr(fn, "_torchdynamo_orig_callable", fn))
    for callable in (fn, inner):
        add(callable)
        add(getattr(callable, "__self__", None))
    for cell in getattr(inner, "__closure__", None) or ():
        try:
            add(cell.cell_contents)
        except ValueError:  # not filled yet
            pass
    return seen


class Watch:
    """The state of some modules, and of single tensors, as values to compare."""

    def __init__(self, torch, roots, tensors=()):
        _listen(torch)
        learn_hooks(torch)
        address.learn_gradients(torch)
        self.torch = torch
        self.given = list(roots)
        self.roots = self.given
        self.single = list(tensors)
        self.address = torch.Tensor.data_ptr
        self.handle = torch.utils.hooks.RemovableHandle
        self.members = _C.Reads(torch.Tensor)
        if not self._take_found():
            self.refresh()
        if not self.single:
            _found[tuple(map(id, self.given))] = self

    def _take_found(self):
        """What another one found of the same modules, where they have the members and hooks that it found."""
        other = None if self.single else _found.get(tuple(map(id, self.given)))
        return other is not None and other.roots is other.given and self.take(other)

    def take(self, other):
        """Watches what another one of the same modules watches, those that it found beside them too. False: it is of
        others, or they have other members or hooks by now."""
        seen = (_registrations, self.handle.next_id)
        if self.single or other.single or list(map(id, self.given)) != list(map(id, other.given)):
            return False
        roots = self.given if other.roots is other.given else list(other.roots)
        lists = other.modules, other.params, other.found, other.tensors, other.hooks
        if not self.members.take(other.members) or other.modules is not lists[0]:  # another thread looks again
            return False
        self.roots = roots
        self.modules, self.params, self.found, self.tensors, self.hooks = map(list, lists)
        self.seen = seen
        return True

    def refresh(self):
        seen = (_registrations, self.handle.next_id)  # ahead of the look: what comes meanwhile is new
        # Each once, though roots may share it: a gradient is added for each time that a parameter is among them.
        modules, params, buffers = [], [], []
        for root in self.roots:
            for found, of_root in zip((modules, params, buffers), _parts_of(self.torch, root)):
                found += of_root
        self.modules = _each_once(modules)
        own = (t for t in self.single if t.is_leaf and (t.is_floating_point() or t.is_complex()))
        self.params = _each_once((*params, *own))
        self.found = _each_once((*self.params, *buffers, *self.single))
        self.tensors = [tensor for tensor in self.found if has_place(self.torch, tensor)]
        self.hooks = [_hooks(m) for m in self.modules]
        self.members.set(_owners(self.modules))
        self.seen = seen

    def find(self, modules):
        """Watches these modules beside those that it was given; are there any that it did not know?"""
        if self.roots is self.given and self.seen == (_registrations, self.handle.next_id):
            known = set(map(id, self.modules))
        else:
            known = {id(m) for root in self.given for m in _modules_of(root)}
        found = []
        for module in modules:
            if id(module) not in known:
                found.append(module)
                known.update(map(id, _modules_of(module)))
        roots = self.given + found
        if list(map(id, roots)) == list(map(id, self.roots)):
            return False
        self.roots = roots
        self.refresh()
        return True

    def counts(self, now):
        """Of hooks' handles and of registrations, when the members were last looked at, or now."""
        registrations, handles = (_registrations, self.handle.next_id) if now else self.seen
        return handles, registrations

    def has_changed_members(self):
        """Are there other modules, parameters or hooks than at the last refresh?"""
        now = (_registrations, self.handle.next_id)
        if self.members.holds():
            self.seen = now
            return False
        old = (self.modules, self.found)  # alive, or another may get the place of one
        before = (*(list(map(id, some)) for some in old), self.hooks)
        self.refresh()
        return before != (list(map(id, self.modules)), list(map(id, self.found)), self.hooks)

    def addresses(self):
        """Where the tensors lie, with their sizes and strides: another one may look at the same memory in its place."""
        places = _C.tensor_places(self.tensors)
        if places is not None:
            return places
        return tuple((self.address(tensor), tensor.shape, tensor.stride()) for tensor in self.tensors)

    def modes(self):
        try:
            return tuple(map(_training, self.modules))
        except AttributeError:  # torch.jit.freeze() leaves them none
            return tuple(getattr(module, "training", None) for module in self.modules)

    def trains(self):
        """Does any parameter want a gradient?"""
        return any(map(_requires_grad, self.params))

    def grads(self):
        return tuple(map(_requires_grad, self.params))


def _each_once(found):
    return list({id(one): one for one in found}.values())


_LISTS = ("named_modules", "_named_members", "parameters", "named_parameters", "buffers", "named_buffers")


def _modules_of(root):
    """By the class: an attribute may have the name of a method."""
    return type(root).modules(root)


def _parts_of(torch, root):
    """The modules, parameters and buffers of one, with those below it, in one pass where its class lists them as
    any does."""
    kind, plain = type(root), torch.nn.Module
    modules = list(_modules_of(root))
    if any(getattr(kind, name) is not getattr(plain, name) for name in _LISTS):
        return modules, kind.parameters(root), kind.buffers(root)
    return (modules, [p for m in modules for p in m._parameters.values() if p is not None],
            [b for m in modules for b in m._buffers.values() if b is not None])


_MEMBERS = ("_modules", "_parameters", "_buffers")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
_KEYS = (*_MEMBERS, *_HOOKS)
_SET_OF_KEYS = frozenset(_KEYS)
_PLAIN_DICTS = (dict, collections.OrderedDict)
_HOOKS_OF_TENSOR = ("_backward_hooks", "_post_accumulate_grad_hooks")
_hooks_beside = attrgetter(*_HOOKS_OF_TENSOR)


def _owners(modules):
    """What `_C.Reads` compares of modules: which members and hooks there are."""
    found, of_instance, of_container = [], way_for("instance"), way_for("container")
    for module in modules:
        names = vars(module)
        keys = _KEYS if names.keys() >= _SET_OF_KEYS else tuple(key for key in _KEYS if key in names)
        values = tuple([names[key] for key in keys])
        found.append((NAMES, of_instance, names, keys, values))
        for held in values:
            if isinstance(held, dict):
                way = of_container if type(held) in _PLAIN_DICTS else BY_VALUE
                found.append((ITEMS, way, held, tuple(held), tuple(held.values())) if held else (
                    ITEMS, way, held, (), ()))
        for tensor in module._parameters.values():
            if tensor is None:
                continue
            hooks = _hooks_beside(tensor)
            found.append((ATTRIBUTES, BY_VALUE, tensor, _HOOKS_OF_TENSOR, hooks))
            found += [(ITEMS, BY_VALUE, held, tuple(held), tuple(held.values()))
                      for held in hooks if isinstance(held, dict)]
    return found


def _hooks(module):
    return (tuple(module._forward_hooks), tuple(module._forward_pre_hooks),
            tuple(module._backward_hooks), *map(_hooks_of_tensor, module._parameters.values()))


def _hooks_of_tensor(tensor):
    if tensor is None:
        return ()
    return (*(tensor._backward_hooks or ()), *(tensor._post_accumulate_grad_hooks or ()))
