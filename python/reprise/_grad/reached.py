# SPDX-License-Identifier: MIT
"""What the results of a run go back to through autograd.

Results may be for somebody to go back through, whatever a function reaches its parameters by. The graph that
autograd made in a run tells:

    leaves    tensors in which gradients are added up: arguments, parameters, and any others
    passed    a node that a backward pass of the run went through, behind which nobody goes back once more
    earlier   a node that was there ahead of the run: gradients leave the run at a tensor that is no leaf
"""

import weakref

from .. import _C
from .._base import torch_private

PASSES = ("it runs a backward pass, and returns or keeps results beside it that require gradients, which a graph "
          "would not give. Detach them, or run that backward pass outside; grad='whole' returns all results "
          "detached")
DISABLED = ("it enables gradients where its caller has disabled them, and its results require gradients, which a "
            "graph would not give. Enable them around the call, or detach the results")
EARLIER = ("it reads a tensor that earlier work made and that requires gradients, which a graph would not give. Pass "
           "it as an argument, or detach it")
WISHED = ("it has an argument require gradients, and its results go back to that. Call requires_grad_() ahead of "
          "the call")
USES = ("it reads or writes gradients, and its results require gradients. Leave the optimizer's step outside, or "
        "capture the whole step, reprise.graphed(step), with the backward pass in it")
WITHIN = ("it takes gradients itself, and its results are for somebody to go back through: a graph by itself cannot be "
          "both. Capture the whole step, reprise.graphed(step), with the backward pass in it, or detach the results")
WANTED = ("it takes gradients itself, and one of its arguments requires gradients, which replays would not give it. Pass "
          "that detached, or, with grad='whole', take the gradient by torch.autograd.grad() and return it")
TRAINED = ("it takes gradients of parameters that an object among its arguments has, and too many such objects came "
           "before. Graph the step of each by itself, with the object in its closure")
TURNED = ("it changes which parameters require gradients, which replays would not. Call requires_grad_() outside, or "
          "leave them as they were")
MADE = ("it returns a tensor that it makes and that requires gradients by itself, which a replay's would not. Call "
        "requires_grad_() on the result")
HOOKED = ("it registers a hook for the gradient of a tensor that it makes and that requires gradients by itself, which "
          "replays would not call. Register it on what is computed from that, or capture the whole step, "
          "reprise.graphed(step), with the backward pass in it")
ELSEWHERE = ("its results go back to a tensor on {} that requires gradients. Move that to {} and keep it there, or "
             "pass it as an argument")
ANEW = ("its results go back to a tensor, of shape {}, that each run makes anew and that requires gradients by itself, as "
        "`weight.detach().requires_grad_()` does. Make it ahead of the call, or leave it without gradients")
_PASSED = "reprise: a backward pass went through"
_RUN = "reprise: seen behind the run"


class Open(Exception):
    """A run has results to go back through, to leaves that its graphs give no gradients so far."""

    def __init__(self, leaves):
        super().__init__("its results go back to tensors beside its arguments")
        self.leaves = leaves


class Passes:
    """The backward passes that a run makes.

    Attributes:
        any (bool): Was there one?
        adds (bool): One that adds to gradients of leaves?
    """

    def __init__(self, torch):
        self._torch = torch
        self.any = self.adds = False

    def watched(self):
        """A context manager of the run."""
        return torch_private.passes_told(self._torch, self._goes_back)

    def _goes_back(self, roots, keeps, adds):
        self.any = True
        self.adds = self.adds or adds
        if keeps and not adds:
            return  # somebody goes on from there
        ahead = [getattr(root, "grad_fn", None) or getattr(root, "node", None) for root in roots]
        while ahead:
            node = ahead.pop()
            if node is not None and not is_adder(node) and _PASSED not in node.metadata:
                node.metadata[_PASSED] = True
                ahead += [before for before, _ in node.next_functions]


def is_adder(node):
    """Is it what adds gradients up in a leaf?"""
    return type(node).__name__ == "AccumulateGrad"


class Reached:
    """What these results go back to. run: an object, the same for all results of a run."""

    def __init__(self, results, run):
        found, ahead, seen = {}, [], set()
        self.was_passed = self.is_earlier = False
        for result in results:
            if result.grad_fn is None:
                found[id(result)] = result
            ahead.append(result.grad_fn)
        while ahead:
            node = ahead.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if is_adder(node):
                found[id(node.variable)] = node.variable
                continue
            noted = node.metadata
            self.was_passed = self.was_passed or _PASSED in noted
            self.is_earlier = self.is_earlier or noted.setdefault(_RUN, run) is not run
            ahead += [before for before, _ in node.next_functions]
        self.leaves = list(found.values())


def is_made(tensor, arguments):
    """Does the run that is under way make it, in memory of its own or as a view of one of its arguments?"""
    return _C.call_block(tensor.untyped_storage().data_ptr()) is not None or is_view(tensor, arguments)


def is_view(tensor, arguments):
    """Is it none of the arguments of the run that is under way, and lies in the memory of one?"""
    storage = tensor.untyped_storage()._cdata
    return all(argument is not tensor for argument in arguments) and any(
        argument.untyped_storage()._cdata == storage for argument in arguments)


def beside(leaves, known, arguments):
    """Those of the leaves that the program has beside some that are known. Gradients of those that the run makes end
    there. Raises ValueError, whose text is a reason, where somebody is told of one."""
    ids = set(map(id, known))
    found, made = [], []
    for leaf in leaves:
        if id(leaf) not in ids:
            (made if is_made(leaf, arguments) else found).append(leaf)
    if any(getattr(leaf, name, None) for leaf in made for name in torch_private.GRADIENT_HOOKS):
        raise ValueError(HOOKED)
    return found


def elsewhere(leaves, device):
    """Why gradients cannot reach these leaves; None: they can."""
    strange = [leaf.device for leaf in leaves if leaf.device != device]
    return ELSEWHERE.format(strange[0], device) if strange else None


class Left:
    """Those of a run's results, with what it keeps, that somebody may go back through."""

    def __init__(self, torch, results, passes, placed, is_enabled):
        """placed: the arguments; is_enabled: does the caller want gradients?"""
        self._passes, self._placed, self._is_enabled = passes, placed, is_enabled
        self._wanted = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]

    def leaves(self):
        """The leaves to give gradients to. Raises ValueError, whose text is a reason, where no graph can."""
        if any(x.is_leaf and is_made(x, self._placed) for x in self._wanted):
            raise ValueError(MADE)
        reached = self._reached()
        leaves = beside(reached.leaves, (), self._placed)
        if not leaves and not reached.is_earlier:
            return []
        placed = set(map(id, self._placed))
        for is_wrong, why in ((self._passes.adds, PASSES), (not self._is_enabled, DISABLED),
                              (reached.is_earlier, EARLIER),
                              (any(id(leaf) in placed for leaf in leaves), WISHED)):
            if is_wrong:
                raise ValueError(why)
        return leaves

    def _reached(self):
        run, ahead = object(), [x for x in self._wanted if not x.is_leaf]
        if self._passes.any:
            ahead = [x for x in ahead if not Reached([x], run).was_passed]
        return Reached(ahead, run)


class Found:
    """Leaves that graphs give gradients to and that no module has: the program's to drop. reads: a Reads."""

    def __init__(self, reads, leaves):
        self._reads = reads
        self._leaves = [weakref.ref(leaf) for leaf in leaves]
        self._walks = reads.walks
        there = set(map(id, reads.tensors()))
        self._named = [ref for ref, leaf in zip(self._leaves, leaves) if id(leaf) in there]

    def tensors(self):
        return [ref() for ref in self._leaves]

    def are_gone(self):
        """Is one dropped, or another one where names led to it? It may lie in the same memory."""
        if any(ref() is None for ref in self._leaves):
            return True
        if self._walks == self._reads.walks:
            return False
        there = set(map(id, self._reads.tensors()))
        if any(id(ref()) not in there for ref in self._named):
            return True
        self._walks = self._reads.walks
        return False
