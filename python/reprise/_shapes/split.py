# SPDX-License-Identifier: MIT
"""Forward and backward as two graphs of one sequence, and an autograd function around them.

The forward graph is captured with autograd on. What autograd saves is of three kinds:

    parameters, constants    lie where they lie
    arguments and results    are bound anew at every call, and become arguments of the backward graph
    intermediate results     stay in the pool: the forward graph keeps their blocks, and the backward
                             graph, later in the sequence, finds them there

The backward graph is captured by asking autograd for the gradients of the record's results. Its own
results, the gradients, are fresh tensors at every call.
"""

import collections
import contextlib
import operator
import weakref

from .. import _C
from .._base import torch_private
from .._base.lazy import bits, with_bits
from .._base.tree import assembled, flatten, is_leaf, places_in, unflatten
from .._capture.record import Work, span
from .._grad import asked
from .._grad.contexts import Contexts
from .._grad.fused import Flags, say
from .._grad.gradients import give, set_aside
from .._grad.left import LeftBehind
from .._grad.reached import (
    EARLIER, MADE, PASSES, WANTED, WISHED, WITHIN, Open, Passes, Reached, beside, elsewhere, is_made, is_view)
from .._grad.twice import attach
from .assigned import Assigned
from .derived import PLACE, of_arguments, of_others
from .shape import Shape

REENTRANT = ("the callable uses torch.utils.checkpoint with use_reentrant=True, or recomputes by Megatron's or "
             "Transformer Engine's function for it, whose backward pass cannot be a graph of its own: pass "
             "use_reentrant=False, leave what is recomputed out, or capture the whole step, reprise.graphed(step), "
             "with the backward pass in it")
BESIDE = ("a parameter with hooks is used beside the attribute of its module: a graph would run the hooks "
          "once, and each call once more. Use it as the module's attribute, or capture the whole step, "
          "reprise.graphed(step), with the backward pass in it")

VIEWED = ("a view of an argument is left to its backward pass where autograd does not see it, as in the closure of what "
          "a checkpoint recomputes, or as an attribute of a ctx: leave the argument itself there, or pass the view to "
          "ctx.save_for_backward or checkpoint()")
_ALL = -1  # as bits


class Refused(RuntimeError):
    """A callable that no further attempt would capture either."""


class Split:
    """A callable captured for one shape, as a differentiable function. The node that a call makes has an
    attribute has_run once its backward pass was enqueued."""

    apply = kind = None  # of the autograd function, made when torch is there; the class of its nodes
    again = None     # how it is called eagerly, for gradients of gradients (twice.Again)
    later = None     # of results that others were computed from those others (asked.later_of); None: there are none
    reached = ()     # of each result that has gradients which of those the backward graph gives hang on it, as bits
    tell_asked = None  # called with the reason where a call was made once more for its gradients
    noted = behind = None  # what one backward run began with, and what its code reads (behind.Noted, behind.Behind)
    seat = None      # it follows no numbers (shape.Shape.seat)
    lines = ()       # and prints nothing
    behind_backward = None  # called behind the backward pass of the call that is under way
    effects = None   # what its calls assign beside their results (_effects/assignments.py)
    cpu = constants = None  # as of Shape
    plan = None      # a Plan, once both were captured
    given = ()       # (parameter, None) of each whose gradient a call drops
    spares = used = assigns = ()  # as of a Shape
    assigned = Assigned(())
    derived = ()     # a Derived of each leaf of the result that is no result of the graph, in their order
    found = None     # parameters behind the others that no module has (reached.Found)
    offered = -1     # to the fast path: when, by its guards
    waiting = None   # told of its calls (_call/waiting.py)
    once = None      # the numbers of the arguments but for those that are one again; None: of all

    def __init__(self, torch, device, body, tensors, aliases, generators, allow_unused=True, values=None, draws=True,
                 watched=None, restore=None, own=()):
        """values: a Pair (_call/cpu_values.py), or None: what the backward pass moves from the CPU is not
        answered. draws: may it draw random numbers, as far as eager runs showed? watched: of a body of backward
        runs and a function that gives what they go back from, the body that looks at what they execute and change;
        None: nobody looks. restore: gives parameters the gradients that they had, ahead of each forward run. own: as
        of Work."""
        self.torch = torch
        self.restore = restore
        self.own = own
        self.device = device
        self.body = body
        self.tensors = tensors
        self.params = aliases.all
        self.aliases = aliases  # of the parameters, while it is captured; the body uses them
        self.generators = generators
        self.allow_unused = allow_unused
        self.values = values
        self.draws = draws
        self.watched = watched
        self.used_before = -1  # replays, when it was last looked whether there are any
        self.turn = 0         # counts forward replays: what is in the pool is that of the last
        self.before_backward = None  # called before each backward pass; it may raise
        self.needed = []      # arguments of the forward graph that the backward graph reads
        self.placed = {}      # in a backward run: where those are
        self.edges = None     # of the record: where gradients leave it, of arguments and parameters
        self.results = None   # of the record: leaves of the result that have them
        self.left = None      # of the record: arguments that code of the backward pass may have (left.LeftBehind)
        self.contexts = None  # of the functions that the backward runs go through, as its first one found them
        self.added = ()       # parameters whose gradients the backward graph adds up by itself
        if Split.apply is None:
            function = _make_function(torch)
            Split.apply = staticmethod(torch_private.of(torch).applier(function))
            Split.kind = function._backward_cls
            Split.kind.held = ()  # of nodes whose results nobody has to ask for

    # ---- Captures ----

    def capture(self, pool, name, verify=None):
        try:
            self.capture_forward(pool, name, verify)
            self.capture_backward(pool, name, verify)
        finally:
            self.drop_runs()  # nodes of the capture's stream too, where it failed
        if self.backward is not None:  # without install() it keeps PyTorch's segments, and nothing is behind it
            self.backward.graph.release()

    def estimate(self, into, pool, name, new):
        """What both would take, added to a _C.Estimate; new(shape, stride, dtype) makes tensors that
        nothing is in."""
        self.aliases.prepare()
        self.work = self._forward_work()
        try:
            self.work.estimate(into, pool.native, f"{name} forward")
            self._check_results(self.work.results)
            back = self._backward_work(new)
            if back is not None:
                back.estimate(into, pool.native, f"{name} backward")
        finally:
            self.drop_runs()

    def capture_forward(self, pool, name, verify=None):
        self.pool = pool
        self.aliases.prepare()
        self.work = self._forward_work()
        try:
            graph = self.work.capture(pool.native, f"{name} forward", verify=verify)
            self.forward = Shape(self.work, graph)
            self._check_results(self.forward.results)
            self._settle_results()
        except BaseException:
            self.drop_runs()
            raise

    def _settle_results(self):
        """Of the leaves of the result those that the graph makes are autograd's; others are the same in each
        call."""
        results = self.forward.results
        for k, itself in self.themselves.items():
            results[k] = ("value", itself)
        self.differentiable = [is_one for is_one, r in zip(self.differentiable, results) if r[0] == "output"]
        at = [k for k, is_one in enumerate(self.differentiable) if is_one]
        self.later = {at[k]: tuple(at[n] for n in later) for k, later in asked.later_of(self.results).items()}
        self.reached = asked.reached_by(self.results, self.edges) if self.results else []
        if self.later:
            asked.watch(self.torch, Split.kind)

    def capture_backward(self, pool, name, verify=None):
        def new(shape, stride, dtype):
            return self.torch.empty_strided(shape, stride, dtype=dtype, device=self.device)

        back = self._backward_work(new)
        self.backward = None if back is None else Shape(
            back, back.capture(pool.native, f"{name} backward", verify=verify))
        self._have_gone_back()

        self.plan = Plan(self)

    def _have_gone_back(self):
        """Behind the capture of the backward pass, or without one."""
        self.drop_runs()

    def let_go(self, found=None):
        """Behind all captures: keeps of the arguments only whether they want gradients. found: a reached.Found of
        the last of the parameters, which are the program's to drop, or None."""
        torch = self.torch
        if found is not None:
            self.params, self.found = self.params[:-len(found.tensors())], found
            self.aliases.all = self.params
        self.body = self.values = self.watched = self.restore = None
        self.tensors = [torch.empty(0, device="cpu", requires_grad=t.requires_grad) for t in self.tensors]

    def release(self):
        """What the forward graph keeps is for the backward graph alone, and that is captured: later
        captures may lie over it."""
        self.forward.graph.release()
        if self.backward is not None:
            self.backward.graph.release()

    def _forward_work(self):
        return Work(self.torch, self.device, self._forward, self.tensors, self.generators, keep=True,
                    draws=self.draws, put_back=self._drop_graph, own=self.own)

    def _drop_graph(self):
        """Ahead of each run: what is there of an earlier one stands in the allocator's tables, and from
        there its addresses get into the padding of kernels' parameters."""
        self.edges = self.results = self.contexts = self.left = None
        if self.restore is not None:
            self.restore()

    @staticmethod
    def _check_results(results):
        if any(r[0] == "input" for r in results):
            raise RuntimeError("the callable returned a view of an argument")

    def _backward_work(self, new):
        """None where no result has a gradient."""
        torch, work = self.torch, self.work
        if not self.results:
            return None
        self.left.find(self._pack)
        self.strides = [r.stride() for r in self.results]
        self.samples = [(r.shape, r.stride(), r.dtype) for r in self.results]
        samples = [new(*like) for like in self.samples]
        sizes = [e.bytes for e in work.extents] + work.outputs
        saved = [new((sizes[slot],), (1,), torch.uint8) for slot in self.needed]
        body = self._backward if self.values is None else self.values.around(self._backward)
        body = body if self.watched is None else self.watched(body, lambda: self.results)
        return Work(torch, self.device, body, samples + saved, self.generators,
                    draws=self.draws, base=work.runs[-1].capture.states, follows=True)

    def drop_runs(self):
        """Behind both captures, or one that failed."""
        work = self.work
        self.edges = self.results = self.contexts = self.left = self.work = None
        self.aliases.finish()
        if work is not None:
            work.finish()

    def _forward(self, placed):
        torch = self.torch
        self.needed = []
        leaves = [p.requires_grad_(t.requires_grad) for p, t in zip(placed, self.tensors)]
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        passes = Passes(torch)
        with torch.enable_grad(), hooks:
            with passes.watched():
                result = self.body(leaves)
            out, spec = flatten(result)
            self._check_leaves(out, leaves)
            self.derived = self._derived_of(out, leaves)
            derived = {made.of for made in self.derived}
            out = [PLACE if k in derived else self._own(leaf, leaves) for k, leaf in enumerate(out)]
        made = self._check_reach(out, passes, leaves)
        self.themselves = {k: self.aliases.whose(x) for k, x in enumerate(out) if self._is_itself(x)}
        self.differentiable = [getattr(x, "requires_grad", False) for x in out]
        self.results = [x for k, x in enumerate(out) if self.differentiable[k] and k not in self.themselves]
        if self.results:
            self._keep_edges([leaf for leaf in leaves if leaf.requires_grad])
            self.left = LeftBehind(torch, leaves, made)
        return unflatten(spec, out)

    def _derived_of(self, leaves, arguments):
        """What calls make of arguments and of other leaves of the result, which is none of the graph's."""
        def is_tensor(leaf):
            return isinstance(leaf, self.torch.Tensor) and leaf.device == self.device and (
                leaf.layout is self.torch.strided and not leaf.is_nested)
        found = of_arguments(leaves, arguments, is_tensor)
        try:
            found += of_others(leaves, {made.of for made in found}, is_tensor)
        except ValueError as why:
            raise Refused(str(why)) from None
        return sorted(found, key=lambda made: made.of)

    def _check_leaves(self, out, inputs):
        """Raises where somebody finds a leaf that the run makes, whose gradients replays would not add up."""
        if any(isinstance(x, self.torch.Tensor) and x.requires_grad and x.is_leaf and is_made(x, inputs) for x in out):
            raise Refused(MADE)

    def _check_reach(self, out, passes, inputs):
        """Leaves that are views of arguments. Raises where gradients would be lost: Open where the parameters lack some
        that the results go back to."""
        if passes.adds:
            raise Refused(PASSES)
        torch = self.torch
        reached = Reached([x for x in out if isinstance(x, torch.Tensor) and x.requires_grad], passes)
        if reached.is_earlier:
            raise Refused(EARLIER)
        wished = {id(x) for x, t in zip(inputs, self.tensors) if x.requires_grad and not t.requires_grad}
        if any(id(leaf) in wished for leaf in reached.leaves):
            raise Refused(WISHED)
        if any(leaf is param for leaf in reached.leaves for param in self.aliases.params):
            raise Refused(BESIDE)
        try:
            others = beside(reached.leaves, (*inputs, *self.params, *map(self.aliases.of, self.params)), inputs)
        except ValueError as told:
            raise Refused(str(told)) from None
        why = elsewhere(others, self.device)
        if why is not None:
            raise Refused(why)
        if others:
            raise Open(others)
        return [leaf for leaf in reached.leaves if is_view(leaf, inputs)]

    def _own(self, leaf, inputs):
        """A leaf of the result that is none of the arguments' memory, nor, where somebody may go back through it, of
        the program's."""
        torch = self.torch
        if not isinstance(leaf, torch.Tensor) or leaf.device != self.device:
            return leaf
        start = leaf.untyped_storage().data_ptr()
        is_view = leaf.requires_grad and not leaf.is_leaf and _C.call_block(start) is None
        return leaf.clone() if is_view or any(start == i.untyped_storage().data_ptr() for i in inputs) else leaf

    def _is_itself(self, leaf):
        """Is this a parameter that each call returns, as layers do whose bias others add? Who uses it has its
        gradients."""
        return isinstance(leaf, self.torch.Tensor) and leaf.is_leaf and leaf.requires_grad and (
            _C.call_block(leaf.untyped_storage().data_ptr()) is None)

    def _pack(self, tensor):
        start = tensor.untyped_storage().data_ptr()
        offset = tensor.storage_offset() * tensor.element_size()
        for slot, (address, nbytes) in enumerate(self.work.ranges):
            if nbytes and address <= start + offset < address + nbytes:
                if slot not in self.needed:
                    self.needed.append(slot)
                return (slot, start + offset - address, tensor.shape, tensor.stride(), tensor.dtype, bits(tensor))
        return tensor if tensor.is_leaf else tensor.detach()

    def _unpack(self, packed):
        if not isinstance(packed, tuple):
            return packed if packed.requires_grad else _view(packed)
        slot, offset, shape, stride, dtype, lazy = packed
        if slot not in self.placed:
            raise Refused(WANTED if any(tensor.requires_grad for tensor in self.tensors) else WITHIN)
        whole = self.placed[slot]
        made = self.torch.empty(0, dtype=dtype, device=self.device)
        made = made.set_(whole.untyped_storage(), (whole.storage_offset() + offset) // dtype.itemsize,
                         shape, stride)
        return with_bits(self.torch, made, lazy)

    def _backward(self, placed):
        torch = self.torch
        count = len(self.results)
        self.placed = dict(zip(self.needed, placed[count:]))
        if not self.left.move(self._unpack):
            raise Refused(VIEWED)
        flags = Flags(torch, self.params, self.aliases.of)
        if self.contexts is None:
            self.contexts = Contexts(torch, self.results)
            if self.contexts.refusal is not None:
                raise Refused(f"{self.contexts.refusal}, and a graph's runs would each take it forward: keep a list")
        else:
            self.contexts.put_back()
        try:
            shown = self.contexts.showing([self.aliases.of(p) for p in self.params])
            with flags.around(), shown, self.aliases.in_place():  # what is recomputed uses them too
                grads = self._gradients(placed[:count])
        except RuntimeError as error:
            if torch_private.goes_back_reentrantly(torch, self.results):
                raise Refused(REENTRANT) from error
            raise
        self.added = flags.set
        self.placed = {}
        return self._apart(grads, placed)

    def _keep_edges(self, inputs):
        """Notes where the gradients come out: a later capture may renew the parameters' nodes before the
        backward pass of this one is captured."""
        edge = self.torch.autograd.graph.get_gradient_edge
        self.edges = [edge(x) for x in inputs + [self.aliases.of(p) for p in self.params]]

    def _gradients(self, incoming):
        """Those of the arguments and the parameters."""
        aliased = self.aliases.params
        grads = torch_private.gradients(self.torch, self.results, self.edges + aliased, incoming, retain_graph=True,
                                        allow_unused=self.allow_unused or bool(aliased))
        count = len(self.edges)
        if any(g is not None for g in grads[count:]):
            raise Refused(BESIDE)
        if not self.allow_unused and any(g is None for g in grads[:count]):
            raise Refused("an argument or a parameter that wants a gradient is not used: pass "
                          "allow_unused_input=True if that is meant")
        return grads[:count]

    @staticmethod
    def _apart(grads, placed):
        """The gradients, each in memory of its own that the run made: one that is a view of another would get what the
        program adds to that. One tensor that is several stays so, which autograd sees."""
        starts = {p.untyped_storage().data_ptr() for p in placed}
        made, taken = {}, collections.defaultdict(list)  # by where storages begin: where the gradients lie that have some
        for grad in grads:
            if grad is None or id(grad) in made:
                continue
            start, begin = grad.untyped_storage().data_ptr(), grad.data_ptr()
            end = begin + span(grad)
            is_fresh = start not in starts and _C.call_block(start) is not None
            if is_fresh and all(end <= first or last <= begin for first, last in taken[start]):
                taken[start].append((begin, end))
                made[id(grad)] = grad
            else:
                made[id(grad)] = grad.clone()
        return tuple(None if grad is None else made[id(grad)] for grad in grads)

    # ---- Calls ----

    def replay(self, tensors, others=()):
        """The result for these tensors, for autograd to go back through; others: arguments of the call that
        are no tensors."""
        return self.delivered(self.leaves(tensors), tensors, others)

    def leaves(self, tensors):
        """Those leaves of the result that autograd knows, for it to go back through."""
        if self.given:
            give(self.given)
        if self.spares:
            set_aside(self.torch, self.spares)
        if self.once is not None:
            tensors = [tensors[i] for i in self.once]
        made = self.apply(self, tensors, self.params if self.found is None else self.all_params())
        if self.later:
            asked.hold(made, self.later)
        return made

    def all_params(self):
        return self.params if self.found is None else [*self.params, *self.found.tensors()]

    def delivered(self, leaves, tensors, others):
        """The result, of those leaves of it that autograd knows and the tensors of the call."""
        made = self.built(leaves, tensors)
        if self.effects is not None:
            made = self.effects.deliver(made, others)
        return assembled(made) if self.forward.has_objects and not self.has_given else made

    def is_short(self, tensors):
        """Can the fast path replay calls with these tensors, as one that hands over its arguments in their
        order?"""
        if self.once is not None:  # which may have what comes from the CPU behind these
            tensors = [tensors[i] for i in self.once if i < len(tensors)]
        is_sure = self.effects is None or self.effects.is_sure()
        return is_sure and not (self.has_given or self.spares or self.assigned) and (
            self.forward.takes_in_order(tensors, self.cpu)) and all(part.cpu is None for part in self.parts())

    def built(self, leaves, tensors):
        """The result, of those leaves of it that autograd knows and the tensors of the call; Parts stay."""
        if self.plan.is_leaf:
            return leaves[0]
        if self.plan.flat is not None:
            return self.plan.flat((*leaves, None))
        known = iter(leaves)
        found = [next(known) if r[0] == "output" else r[1] for r in self.forward.results]
        if self.derived:
            arguments = tensors if self.once is None else [tensors[i] for i in self.once]
            for made in self.derived:
                found[made.of] = made.make(found, arguments)
        return unflatten(self.forward.spec, found)

    def go_back(self, tensors, state):
        """The gradients, for those of the results and what was saved."""
        buffers = self.plan.go_back(tensors, state)
        if self.plan.grads is None:
            return unflatten(self.backward.spec, self.backward.leaves(tensors, buffers))
        return self.plan.take_grads((*buffers, None))

    def random_state(self):
        """Seed and offset of the device's random numbers now; where the backward graph draws them again."""
        generator = self.backward.drawn.pairs[0][0]
        return generator.initial_seed(), generator.get_offset()

    @staticmethod
    def has_its_scalars():
        return True

    def drawn_again(self):
        """As of a Shape."""
        if self.cpu is not None:
            self.cpu.take_back()
        return contextlib.nullcontext()

    @property
    def has_given(self):
        """Is there a Given among its results?"""
        return self.forward.has_given

    def parts(self):
        return (self.forward,) if self.backward is None else (self.forward, self.backward)

    def is_stale(self):
        return any(part.is_stale() for part in self.parts()) or self.reads_other_values() or (
            self.found is not None and self.found.are_gone()) or self.assigned.have_moved()

    def reads_other_values(self):
        return self.cpu is not None and self.cpu.has_changed()


def _view(tensor):
    """Another tensor in the same memory, with its attributes: a function may set the data of what it gets."""
    made = tensor.detach()
    made.__dict__.update(tensor.__dict__)
    return made


class Plan:
    """What calls of a captured Split have to do, found out once.

        go_forward, go_back   enqueue the graphs, as Shape.runner has it
        inputs, buffers   take of the arguments of a call, and of the outputs of its forward graph, what autograd
                          saves
        others            takes the outputs beside those that the backward graph reads
        order             takes the backward graph's arguments behind the gradients, of what autograd saves and
                          behind that the others
        outputs           takes of the outputs the leaves of the result that autograd knows, each whole; None
                          where one is not
        plain             which of these have no gradients
        grads             of each gradient the number among the backward graph's outputs, or None where there is
                          none; None where there is more to do
        take_grads        takes these of the outputs, with None behind them
        wants             of each argument whether it wants a gradient
        all_want          do all?
        borrows           does the backward graph draw numbers of the forward pass again?
        is_leaf           is the result a single tensor?
        flat              takes a result that is a tuple of such leaves and None, of the leaves with None behind
                          them; None: it is another result
    """

    def __init__(self, split):
        forward, backward = split.forward, split.backward
        results = [r for r in forward.results if r[0] == "output"]
        count = len(forward.extents)
        shown = {r[1] for r in results if forward.whole[r[1]]}
        places = [("input", forward.single[s]) if s < count else
                  ("buffer" if s - count in shown else "other", s - count) for s in split.needed]
        kinds = ("input", "buffer", "other")
        found = {kind: list(dict.fromkeys(at for k, at in places if k == kind)) for kind in kinds}
        numbers = {place: n for n, place in enumerate((kind, at) for kind in kinds for at in found[kind])}
        self.go_forward, self.go_back = forward.runner(), backward and backward.runner()
        self.inputs, self.buffers, self.others = (_taking(found[kind]) for kind in kinds)
        self.order = _taking([numbers[place] for place in places])
        self.outputs = _taking([r[1] for r in results]) if all(forward.whole[r[1]] for r in results) else None
        self.plain = [k for k, differs in enumerate(split.differentiable) if not differs]
        self.grads = _grads_of(backward)
        self.take_grads = self.grads is not None and _taking([-1 if j is None else j for j in self.grads])
        self.wants = [t.requires_grad for t in split.tensors]
        self.all_want = all(self.wants)
        self.borrows = backward is not None and backward.drawn is not None and backward.drawn.borrows
        self.is_leaf = len(results) == 1 and is_leaf(forward.spec)
        flat = places_in(forward.spec) if len(results) == len(forward.results) else None
        self.flat = None if flat is None else _taking([-1 if k is None else k for k in flat])


def _taking(numbers):
    """What takes these items of a list or a tuple, without a step in Python: as a list or a tuple, whichever."""
    if len(numbers) > 1:
        return operator.itemgetter(*numbers)
    if not numbers:
        return operator.itemgetter(slice(0, 0))
    number, = numbers
    return operator.itemgetter(slice(number, number + 1 or None))


def _grads_of(backward):
    """As of Plan.grads."""
    if backward is None or not all(r[0] == "output" and backward.whole[r[1]] for r in backward.results):
        return None
    return unflatten(backward.spec, [r[1] for r in backward.results])


def _make_function(torch):
    keeps_graph, batched = torch_private.of(torch).keeps_graph, torch_private.of(torch).batched

    def gradients(ctx, grads, bits):
        """bits: as of _whole."""
        split = ctx.split
        plan = split.plan
        if split.turn != ctx.turn:
            raise RuntimeError(
                f"the backward pass of call {ctx.turn} of '{split.pool.name}' comes after call "
                f"{split.turn}, which has overwritten the intermediate results that it needs. "
                "Run the backward pass before the next call of the same shape, or use two "
                "graphed callables")
        if plan.plain:
            grads = [g for g, d in zip(grads, split.differentiable) if d]
        for grad, stride in zip(grads, split.strides):
            if grad.stride() != stride:
                grads = [_restride(torch, g, s) for g, s in zip(grads, split.strides)]
                break
        if split.before_backward is not None:
            split.before_backward()
        found = split.go_back((*grads, *plan.order((*ctx.saved_tensors, *ctx.others))), ctx.state)
        if bits != _ALL:  # eager leaves those alone that no gradient comes to
            found = [grad if bits >> k & 1 else None for k, grad in enumerate(found)]
        return passed(ctx, found)

    def passed(ctx, found):
        """Behind the pass: its gradients as autograd takes them."""
        split = ctx.split
        ctx.has_run = not keeps_graph()  # or it may come once more
        if split.waiting is not None:
            split.waiting.went_back = True
        if split.behind_backward is not None:
            split.behind_backward()
        if split.added:
            say(split.added)
        if split.plan.all_want:
            return (None, *found)
        found = iter(found)
        return (None, *[next(found) if w else None for w in split.plan.wants], *found)

    class Graphed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, split, *inputs):
            plan = split.plan
            ctx.state = split.random_state() if plan.borrows else None
            if split.later or split.behind is not None:
                drawn = split.forward.drawn
                ctx.draws = [(g, g.initial_seed(), g.get_offset()) for g, _ in drawn.pairs] if (
                    drawn is not None) else ()
            buffers = plan.go_forward(inputs, None)
            split.turn = ctx.turn = split.turn + 1
            ctx.split = split
            if split.waiting is not None:
                split.waiting.latest = weakref.ref(ctx)
            ctx.given = () if split.again is None else [
                (weakref.ref(t), _version(t)) for t in inputs[:len(plan.wants)]]
            ctx.set_materialize_grads(False)
            if split.later or split.behind is not None:
                ctx.arguments = inputs[:len(plan.wants)]
            if plan.outputs is not None:
                outputs = plan.outputs(buffers)
            else:
                outputs = [leaf for leaf, r in zip(split.forward.leaves(inputs, buffers), split.forward.results)
                           if r[0] == "output"]
            ctx.save_for_backward(*plan.inputs(inputs), *plan.buffers(buffers))
            ctx.others = plan.others(buffers)
            if plan.plain:
                ctx.mark_non_differentiable(*[outputs[k] for k in plan.plain])
            return tuple(outputs)

        @staticmethod
        def backward(ctx, *grads):
            if any(is_batched(grad) for is_batched in batched for grad in grads if grad is not None):
                return passed(ctx, _by_batches(ctx, grads))
            behind = ctx.split.behind
            if behind is not None and not behind.holds():
                return passed(ctx, asked.behind_changes(ctx, grads))
            if ctx.held:
                grads, found = asked.answered(ctx, grads)
                if not keeps_graph():
                    ctx.arguments = None
                if found is not None:
                    return passed(ctx, found)
            bits = _ALL
            if any(grad is None for grad in grads):
                grads, bits = _whole(ctx.split, grads)
            if not torch.is_grad_enabled():
                return gradients(ctx, grads, bits)
            with torch.no_grad():  # create_graph=True: somebody may go back through this
                found = gradients(ctx, grads, bits)
            return _differentiable(torch, ctx, grads, found)

    return Graphed


def _by_batches(ctx, grads):
    """The gradients for many incoming ones at once (is_grads_batched): of the callable itself, called once more."""
    split = ctx.split
    tensors, incoming = _unchanged(ctx), _whole(split, grads)[0]
    if tensors is None:
        raise RuntimeError(f"'{split.pool.name}': gradients of many incoming ones at once (is_grads_batched, vectorize=True) "
                           "need its arguments as they were, and no random numbers. Keep them until the backward pass, or "
                           "call the callable itself there")
    found = split.again.gradients(tensors, split.all_params(), [g for g, d in zip(incoming, split.differentiable) if d],
                                  has_graph=split.torch.is_grad_enabled())
    return [grad for grad, wants in zip(found, (*split.plan.wants, *[True] * len(found))) if wants]


def _unchanged(ctx):
    """The arguments of a call, as it may be made once more; None: it may not."""
    split = ctx.split
    tensors = [ref() for ref, _ in ctx.given]
    if split.again is None or split.forward.drawn is not None or any(
            t is None or _version(t) != version for t, (_, version) in zip(tensors, ctx.given)):
        return None
    return tensors


def _whole(split, grads):
    """The same, with zeros where an output has no gradient; and which gradients hang on those that have, as bits."""
    torch, whole, bits, is_whole = split.torch, [], 0, True
    like = iter(zip(split.samples, split.reached))
    for grad, differs in zip(grads, split.differentiable):
        if differs:
            (shape, stride, dtype), reached = next(like)
            if grad is None:
                is_whole = False
                grad = torch.empty_strided(shape, stride, dtype=dtype, device=split.device).zero_()
            else:
                bits |= reached
        whole.append(grad)
    return whole, _ALL if is_whole else bits


def _version(tensor):
    return None if tensor.is_inference() else tensor._version


def _differentiable(torch, ctx, grads, found):
    """These gradients, through which one can go back where the arguments are still as they were."""
    split = ctx.split
    tensors = _unchanged(ctx)
    if tensors is None:
        return _only_once(torch, split, found)
    incoming = [g for g, d in zip(grads, split.differentiable) if d]
    return (None, *attach(split.again, tensors, split.all_params(), incoming, found[1:]))


def _only_once(torch, split, grads):
    """These gradients, through which nobody can go back. torch.autograd.function.once_differentiable
    would make them constants wherever the incoming gradients are, and a penalty on them would count
    for nothing."""
    private = torch_private.of(torch)
    if private.delayed_error is None:
        return grads
    refusal = private.delayed_error(
        f"the gradients of '{split.pool.name}' are differentiated once more, and a graph of the "
        "backward pass has no second one. Call the callable itself where create_graph=True is needed, "
        "or capture the whole step with reprise.graphed(step, grad='whole'), both passes in it",
        len(grads))
    marked = [None if g is None else g.detach().requires_grad_() for g in grads]
    return tuple(refusal(*marked))


def _restride(torch, tensor, stride):
    made = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)
