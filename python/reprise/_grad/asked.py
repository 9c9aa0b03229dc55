# SPDX-License-Identifier: MIT
"""What a program asks of a result that another result was computed from.

All results of a call are outputs of one node of autograd (_shapes/split.py). Where one was computed from another, as
a loss from its logits, the gradient of the earlier one has a part that comes through the later one, and lies within
the backward graph. Nobody looks at it as a rule. Who asks is noticed:

    hooks            register_hook() puts them into the tensor's dict of hooks, a Held here: autograd calls none
    retain_grad()    the tensor tells
    torch.autograd.grad(later, earlier)    asks autograd's engine, by a function of Python's (`watch`)

Then the callable is called once more on the same arguments, and autograd goes through what that made, with the hooks
where they belong. Calls of such a shape are eager from then on.
"""

import contextlib
import functools
import weakref

from .._base import torch_private
from .._reads.values import Unreadable

ASKED = ("a program asks for the gradient of a result that another result was computed from (register_hook, "
         "retain_grad or torch.autograd.grad), which lies within the graph of the backward pass. To have it in a "
         "graph, capture the whole step, reprise.graphed(step), with the backward pass in it")
BEHIND = ("its backward pass reads {}, which changed between the call and its backward pass, and a graph holds what it "
          "was. Change it ahead of the call, or capture the whole step, reprise.graphed(step), with the backward pass in "
          "it")
_UNUSED = ("One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if "
           "this is the desired behavior.")

_kinds: list[type] = []  # of nodes whose results are held


class Held(dict):
    """The hooks of a result that others were computed from, which its backward pass calls.

    Attributes:
        result: A weak reference to it.
        at (int): Which output of its node it is.
        later: Which outputs were computed from it.
        captures: Of each torch.autograd.grad that asks for its gradient, a list to put it into.
        left: Its gradient, as this left it in `.grad`; None: it left none.
    """

    __slots__ = ("result", "at", "later", "captures", "left", "__weakref__")

    def __init__(self, result, at, later):
        self.result, self.at, self.later = weakref.ref(result), at, later
        self.captures, self.left = (), None

    def retains(self):
        result = self.result()
        return result is not None and result.retains_grad

    def is_asked(self):
        return bool(self) or bool(self.captures) or self.retains()


def later_of(results):
    """Of each of these tensors that others were computed from its number, and the numbers of those: a dict."""
    at: dict[tuple, int] = {}
    for k, result in enumerate(results):
        at[result.grad_fn, result.output_nr] = at.get((result.grad_fn, result.output_nr), 0) | 1 << k
    above = _edges_above([result.grad_fn for result in results], at)
    found: dict[int, tuple] = {}
    for k in range(len(results)):
        later = tuple(n for n, result in enumerate(results) if above[result.grad_fn] >> k & 1)
        if later:
            found[k] = later
    return found


def reached_by(results, edges):
    """Of each of these tensors which of the edges of autograd's graph it goes back to, as bits."""
    at: dict[tuple, int] = {}
    for k, edge in enumerate(edges):
        at[edge.node, edge.output_nr] = at.get((edge.node, edge.output_nr), 0) | 1 << k
    above = _edges_above([result.grad_fn for result in results], at)
    return [above[result.grad_fn] | at.get((result.grad_fn, result.output_nr), 0) for result in results]


def _edges_above(nodes, at):
    """Of each node the edges that it goes back to, as bits. at: the bits of an edge."""
    above: dict[object, int] = {}
    ahead = list(nodes)
    while ahead:
        node = ahead[-1]
        edges = [] if node in above else [edge for edge in node.next_functions if edge[0] is not None]
        missing = [before for before, _ in edges if before not in above]
        if missing:
            ahead += missing
            continue
        if node not in above:
            above[node] = 0
            for edge in edges:
                above[node] |= at.get(edge, 0) | above[edge[0]]
        ahead.pop()
    return above


def hold(outputs, later):
    """Notices from here on what is asked of these results of a call. later: as of later_of, of outputs."""
    node = outputs[next(iter(later))].grad_fn
    node.held = [Held(outputs[k], k, others) for k, others in later.items()]
    for held in node.held:
        torch_private.put_hooks(outputs[held.at], held)


def answered(ctx, grads):
    """The gradients of a call's outputs (None: it has none), behind the hooks that it has; and, where what somebody
    asks for lies within the graph, the gradients of the arguments that want some and of the parameters, else None."""
    asked = [held for held in ctx.held if held.is_asked()]
    if any(grads[k] is not None for held in asked for k in held.later):
        return grads, _computed(ctx, asked, grads, ASKED)
    grads = list(grads)
    for held in asked:
        if grads[held.at] is not None:
            given, grads[held.at] = grads[held.at], _through(list(held.values()), grads[held.at])
            _note(held, given, grads[held.at])
    return grads, None


def behind_changes(ctx, grads):
    """The same gradients, of a call behind which something changed that its backward pass reads."""
    behind = ctx.split.behind
    return _computed(ctx, [held for held in ctx.held if held.is_asked()], grads, BEHIND.format(behind.changed()),
                     behind.as_it_was())


def _through(hooks, grad):
    for hook in hooks:
        made = hook(grad)
        grad = grad if made is None else made
    return grad


def _note(held, given, total):
    """given: the gradient that autograd knows of; total: that which it is."""
    for captured in held.captures:
        captured.append(total)
    result = held.result()
    if total is not given and result is not None and result.retains_grad:
        before = result.grad if given is None else _before(held, result, given)
        result.grad = total.clone() if before is None else before + total
        held.left = result.grad


def _before(held, result, given):
    """What was in .grad ahead of a pass that added `given` to it."""
    left = held.left
    return left if left is not None and bool((left + given == result.grad).all()) else None


def _computed(ctx, asked, grads, why, as_it_was=contextlib.nullcontext()):
    """Of a call that is made once more. as_it_was: a context in which Python state is what it was ahead of it."""
    split, _ = ctx.split, ctx.saved_tensors  # or autograd tells that they are gone
    again, params, arguments = split.again, split.all_params(), ctx.arguments
    if again is None or arguments is None or split.added or any(p._backward_hooks for p in params) or any(
            not t.is_inference() and t._version != version for t, (_, version) in zip(arguments, ctx.given)):
        raise RuntimeError(f"'{split.pool.name}': {why}")
    if split.before_backward is not None:
        split.before_backward()
    torch, creates = split.torch, split.torch.is_grad_enabled()
    if not creates:  # their hooks are called behind this
        arguments = [t.detach().requires_grad_() if t.requires_grad else t for t in arguments]
    numbers = [k for k, differs in enumerate(split.differentiable) if differs]
    try:
        with as_it_was, torch.enable_grad(), _drawing_again(ctx.draws), again.buffers_kept():
            results = dict(zip(numbers, again.results(arguments), strict=True))
    except Unreadable as error:
        raise RuntimeError(f"'{split.pool.name}': {why} ({error})") from None

    def gradients(wanted, last=False):
        pairs = [(results[k], grads[k]) for k in numbers if grads[k] is not None]
        return torch.autograd.grad([r for r, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True,
                                   retain_graph=True if creates or not last else None, create_graph=creates)

    fixed = []
    for held in sorted(asked, key=lambda held: len(held.later)):  # the latest first, which earlier ones hang on
        total, = gradients([results[held.at]])
        if total is not None:
            made = _through(list(held.values()), total)
            fixed.append(results[held.at].register_hook(functools.partial(_instead, made)))
            _note(held, grads[held.at], made)
    found = gradients([t for t in (*arguments, *params) if t.requires_grad], last=True)
    for hook in fixed:  # somebody may go back through these once more
        hook.remove()
    if split.tell_asked is not None:
        split.tell_asked(why)
    return found


def _instead(made, grad):
    """A hook: this gradient in place of the one that comes."""
    return made


@contextlib.contextmanager
def _drawing_again(draws):
    """Generators begin where they stood. draws: (generator, seed, offset) of each."""
    before = [(generator, generator.get_state()) for generator, _, _ in draws]
    try:
        for generator, seed, offset in draws:
            generator.manual_seed(seed)
            generator.set_offset(offset)
        yield
    finally:
        for generator, state in before:
            generator.set_state(state)


# ---- torch.autograd.grad ---------------------------------------------------------------------------


def watch(torch, kind):
    """Notices from here on which results of these nodes torch.autograd.grad is asked for."""
    if kind not in _kinds:
        _kinds.append(kind)
        torch_private.around_each_pass(torch, functools.partial(_run, torch))


def _run(torch, run, outputs, *args, **kwargs):
    """A backward pass, begun as PyTorch does: of outputs, their gradients, keep, create, inputs, allow_unused."""
    inputs = args[3] if len(args) > 4 else ()
    asked = {}
    for i, (held, node) in () if kwargs.get("accumulate_grad") else _held_of(inputs):
        if _reaches(outputs, held, node):
            asked[i] = (held, node, [])
    if not asked:
        return run(outputs, *args, **kwargs)
    others = [x for i, x in enumerate(inputs) if i not in asked]
    edges = [_edge_behind(torch, node) for _, node, _ in asked.values()]
    for held, _, captured in asked.values():
        held.captures = (*held.captures, captured)
    try:
        made = iter(run(outputs, *args[:3], (*others, *edges), True, *args[5:], **kwargs))
    finally:
        for held, _, captured in asked.values():
            held.captures = tuple(one for one in held.captures if one is not captured)
    found = [next(iter(asked[i][2]), None) if i in asked else next(made) for i in range(len(inputs))]
    if not args[4] and any(grad is None for grad in found):
        raise RuntimeError(_UNUSED)
    return tuple(found)


def _held_of(inputs):
    """(number, (its Held, its node)) of each of these tensors, or edges of autograd's graph, that has one."""
    for i, asked in enumerate(inputs):
        node = asked.node if hasattr(asked, "node") else asked.grad_fn
        if type(node) in _kinds:
            for held in node.held:
                if held.at == asked.output_nr:
                    yield i, (held, node)


def _edge_behind(torch, node):
    """An edge at which gradients leave a node, so that autograd goes through it."""
    edges = [edge for edge in node.next_functions if edge[0] is not None]
    return torch.autograd.graph.GradientEdge(*edges[0])


def _reaches(outputs, held, node):
    """Do these tensors or edges go back to results that were computed from the one that is held?"""
    ahead, seen = [(x.node if hasattr(x, "node") else x.grad_fn, x.output_nr) for x in outputs], set()
    while ahead:
        found, at = ahead.pop()
        if found is node and at in held.later:
            return True
        if found is not None and found is not node and found not in seen:
            seen.add(found)
            ahead += found.next_functions
    return False
