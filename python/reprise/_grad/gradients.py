# SPDX-License-Identifier: MIT
"""Gradients that a captured step leaves behind, around its capture and at its calls.

They lie in the memory of the graph, where those of other shapes may lie too, and nobody holds them for
longer than the step itself would: a tensor that is alive keeps its memory from the captures that
follow, which would be refused there. At each call the parameters are given those of its graph: other
shapes and eager calls leave others, and the program may have dropped them (zero_grad).

A graph that reads such gradients, or adds to them, needs them at one place, which no other graph has:
so the parameters it wants them of are given homes of their own, once that is seen. Graphs that make
gradients of these copy them there at their end, and those that were captured before are dropped.
Who holds the gradient of a parameter that has a home, and drops it there, finds the next one in it.
"""

import weakref

from .. import _C
from .._base.lazy import bits, with_bits
from .._capture.record import span

MISUSED = 2  # of enum rp_named
SPARSE = ("it leaves sparse gradients or reads them, and a graph's have the same size at each call. Make them "
          "dense (sparse=False), or leave them to eager calls")


class Shared(_C.Error):
    """A graph was captured that uses gradients in memory which other graphs have too."""


class Homes:
    """Where gradients of some parameters lie whichever graph made them: memory that no graph has."""

    def __init__(self):
        self._homes = {}  # by the parameter's id, as tensors are compared by their elements
        self._returned = weakref.WeakValueDictionary()  # by the same: its gradient, which a call returned

    def of(self, param):
        """Its home, a tensor; None where it has none, or one of another kind than it is by now, or that
        the program pointed elsewhere."""
        gone, home, kind = self._homes.get(id(param), (None, None, None))
        if home is None or gone() is not param or kind != _kind(home, param):
            return None
        return home

    def move(self, torch, params):
        """Moves their gradients out of memory of graphs, and those that were set aside or returned, into homes that
        they have from then on; tensors that the program has of them go along, as it may change gradients through
        these. The parameters that had such a gradient. On the current stream, which is waited for: that
        memory may be gone with the last tensor in it."""
        moved = [p for p in params if is_lent(p.grad) or getattr(p.grad, "is_set_aside_by_reprise", False) or (
            p.grad is not None and self._returned.get(id(p)) is p.grad)]
        if moved:
            with torch.inference_mode(False), torch.no_grad():
                self._move(torch, moved)
        return moved

    def _move(self, torch, params):
        filled = [(p, p.grad, self._filled(p)) for p in params]
        for device in {grad.device for _, grad, _ in filled}:
            torch.cuda.current_stream(device).synchronize()
        for param, grad, home in filled:
            if self._returned.pop(id(param), None) is not grad:
                grad.is_lent_by_reprise = grad.is_set_aside_by_reprise = False
            grad.set_(home)
            self._keep(param, home)
            param.grad = home

    def _filled(self, param):
        """A home with its gradient in it."""
        home = self.of(param)
        return param.grad.clone() if home is None else home.copy_(param.grad)

    def _keep(self, param, home):
        if self.of(param) is home:
            return
        key, homes = id(param), self._homes

        def forget(gone):
            if homes.get(key, (None,))[0] is gone:
                del homes[key]
        homes[key] = (weakref.ref(param, forget), home, _kind(home, param))

    def give_returned(self, pairs):
        """Gives parameters gradients that a call returns as well, each a tensor of its own."""
        give(pairs)
        for param, grad in pairs:
            self._returned[id(param)] = grad

    def bring(self, torch, params):
        """At the end of a run of a capture: what it made for those that have homes is copied there,
        without what autograd knows of it (create_graph), which would live as long as the homes. The homes, by the id
        of what the run made."""
        away = [(p, home) for p, home in ((p, self.of(p)) for p in params)
                if home is not None and p.grad is not home and _is_made(torch, p.grad)]
        brought = {id(p.grad): home for p, home in away}
        if away:
            with torch.no_grad():
                torch._foreach_copy_([home for _, home in away], [p.grad for p, _ in away])
        give(away)
        return brought


def _kind(home, param):
    """What has to stay as it is for a home to be that of its parameter."""
    return (home.data_ptr(), home.shape, home.stride(), home.dtype, home.device,
            param.shape, param.stride(), param.dtype, param.device)


def _is_made(torch, grad):
    """Did the run that is under way make it?"""
    return grad is not None and grad.layout is torch.strided and (
        _C.call_block(grad.untyped_storage().data_ptr()) is not None)


homes = Homes()


class Gradients:
    """Those of some parameters, as they were when this was made; not held, unless hold() was called."""

    def __init__(self, params):
        self.params = params
        grads = ((i, params[i].grad) for i in _C.with_gradients(params))
        self._before = {i: (weakref.ref(grad), grad._version, params[i]._version)
                        for i, grad in grads if grad is not None}  # by the number of the parameter
        self._held = ()  # of each: the parameter, its gradient, and another tensor that stays where it is

    def hold(self):
        """Keeps them over a capture: each of its runs begins with them, where they are now, and so does
        the eager call that follows where it is refused."""
        found = ((self.params[i], before[0]()) for i, before in self._before.items())
        self._held = [(param, grad, grad.detach()) for param, grad in found if grad is not None]
        return self

    def _pointed_elsewhere(self):
        """Yields those held that a run gave other memory (`p.grad.data = `, or as it added to a sparse
        one), with what is where they were."""
        for _, grad, place in self._held:
            if _address(grad) != _address(place):
                yield grad, place

    def _earlier(self):
        """(parameter, what there is of it in _before, the gradient that it had) of those that had one or have one
        now, in their order; no others are looked at."""
        for i in sorted({*self._before, *_C.with_gradients(self.params)}):
            before = self._before.get(i)
            yield self.params[i], before, before and before[0]()

    def changed(self):
        """The parameters that have others by now, or none any more."""
        moved = {id(grad) for grad, _ in self._pointed_elsewhere()}
        return [p for p, before, grad in self._earlier()
                if p.grad is not grad or (before and grad is None) or id(grad) in moved]

    def replaced(self):
        """Did all that have others by now have some before? Then they were dropped on the way, and what
        they were made no difference, unless something read them."""
        return all(i in self._before for i in _C.with_gradients(self.params))

    def missing(self):
        """The parameters that had none, and have none: were there any, they might have been dropped."""
        there = {*self._before, *_C.with_gradients(self.params)}
        return tuple(p for i, p in enumerate(self.params) if i not in there)

    def used(self):
        """The parameters whose gradients an eager call used where they lay: written in place, or there
        while the parameter was, as by an optimizer."""
        return [p for p, before, grad in self._earlier()
                if grad is not None and p.grad is grad and (grad._version, p._version) != before[1:]]

    def named_by(self, torch, graph):
        """Of each parameter whose held gradient a captured graph reads or writes where it lies, the
        parameter and that address. Raises where other graphs have that memory too, and where it is
        sparse."""
        sparse = [(part.data_ptr(), span(part)) for _, _, place in self._held
                  if place.layout is not torch.strided for part in _parts(place)]
        if any(graph.names(tuple(sparse))):
            raise _C.Error(SPARSE)
        held = [(p, place.data_ptr(), span(place)) for p, _, place in self._held if place.layout is torch.strided]
        named = graph.names(tuple(place[1:] for place in held))
        if any(bits & MISUSED for bits in named):
            raise Shared("it adds to gradients that another graph of it made, or reads them, in "
                         "memory that its graphs share. Let the optimizer keep gradients, "
                         "zero_grad(set_to_none=False), or drop them in each call")
        return tuple(place[:2] for place, bits in zip(held, named) if bits)

    def restore(self):
        """Between the runs of a capture, and behind it, as what it made holds nothing yet: those before
        it, as far as they are there."""
        for grad, place in self._pointed_elsewhere():
            grad.data = place
        for param, _, grad in self._earlier():
            _set(param, grad)


def _parts(grad):
    """The tensors that a sparse one is made of."""
    return (grad._indices(), grad._values()) if grad.is_sparse else ()


def _address(grad):
    """Where it lies; a sparse one in two places."""
    return tuple(part.data_ptr() for part in _parts(grad)) or grad.data_ptr()


def _set(param, grad):
    if param.grad is not grad:
        param.grad = grad


class _Memory:
    """Bytes on the device, for torch.as_tensor: a storage that keeps their owner alive."""

    def __init__(self, address, nbytes, owner):
        self.owner = owner
        self.__cuda_array_interface__ = {"shape": (nbytes,), "typestr": "|u1",
                                         "data": (address, False), "version": 3}


def twin(torch, tensor, owner):
    """The same tensor once more, in memory that the owner has: PyTorch's allocator does not know of
    it, and takes the memory for free when the tensor itself is gone. One that lies elsewhere is in
    nobody's way, and stays itself."""
    storage, device = tensor.untyped_storage(), tensor.device
    if not _C.is_captured(storage.data_ptr()):
        return tensor
    owner.lend()
    memory = torch.as_tensor(_Memory(storage.data_ptr(), storage.nbytes(), owner), device=device)
    made = torch.empty(0, dtype=tensor.dtype, device=device).set_(
        memory.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
    made = with_bits(torch, made, bits(tensor))
    made.is_lent_by_reprise = True
    return made


def is_lent(grad):
    """Does a gradient, or None, lie in memory of a graph?"""
    return getattr(grad, "is_lent_by_reprise", False)


def to_give(torch, params, owner):
    """What the calls of a graph, the owner, give: pairs of the parameters and the gradients that they
    have now, which lie in its memory."""
    if any(p.grad is not None and p.grad.layout is not torch.strided for p in params):
        raise _C.Error(SPARSE)
    return tuple((p, None if p.grad is None else twin(torch, p.grad, owner)) for p in params)


def give(pairs):
    for param, grad in pairs:
        _set(param, grad)


def set_aside(torch, params):
    """Gradients of theirs that lie in memory of graphs get memory of their own, on the current stream: a graph is about
    to run that works there and leaves no others."""
    with torch.inference_mode(False), torch.no_grad():
        for param in params:
            if is_lent(param.grad):
                param.grad = param.grad.clone()
                param.grad.is_set_aside_by_reprise = True


def for_fast_path(looked, missing, used, given):
    """What calls of a shape have to do with gradients, as _C.FastCall.add takes it: of which parameters it
    matters whether any is missing, where those lie that are used, which are given."""
    found = {}

    def of(param):
        return found.setdefault(id(param), [param, None, None])
    for param, is_missing in zip(looked, missing):
        of(param)[1] = is_missing
    for param, address in used:
        of(param)[2] = address
    for param, grad in given:
        of(param).append(grad)
    return tuple(map(tuple, found.values()))
