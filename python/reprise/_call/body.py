# SPDX-License-Identifier: MIT
"""What the runs of a capture call: a callable as a function of its tensors."""

import contextlib
import operator
import traceback

from .. import _C
from .._base.tree import Identity, build, flatten, identified_in, met_twice, unflatten
from .._grad.gradients import homes
from .._grad.nodes import hooked_refusal
from .._grad.reached import TURNED, WANTED, Left, Open, Passes
from .._reads.walk import is_plain, plain_token
from .._shapes.shape import Given, Held
from .._shapes.split import Refused
from .stand_ins import StandIns


def body_of(torch, fn, leaves, spec, has_kwargs, filling=None, brought=None, seat=None, cpu=None, own=(), joined=None):
    """A function of the tensors among the leaves alone. filling: gives a context for a run with these args and
    kwargs, which notes the containers among them that change. brought: called for the (tensor, places) that a leaf brings which is an object.
    seat: what a run finds in place of some leaves, by their numbers among those that are no tensors. cpu: an
    Attempt (_call/cpu_values.py), which has those on the CPU for the run that is under way. own: numbers of leaves
    that the callable reads beside its arguments too, tensors that runs find as they are. joined: a Joined, or None."""
    others = [i for i, leaf in enumerate(leaves) if not isinstance(leaf, torch.Tensor)]
    where = []  # of each tensor: the number of its leaf, or (tensor, places)
    here = [i for i, leaf in enumerate(leaves) if cpu is not None and is_on_cpu(torch, leaf)]
    for i, leaf in enumerate(leaves):
        if i not in here:
            where += [i] if isinstance(leaf, torch.Tensor) else brought(leaf) if brought else ()
    at = firsts_of([leaves[i] for i in here]) or ()  # a tensor on the CPU may be two arguments
    again = {i: here[first] for i, first in zip(here, at) if i != here[first]}

    def body(placed):
        given, stand_ins = list(leaves), StandIns()
        for i, tensor in zip(here, cpu.given if here else ()):
            given[i] = tensor
        for i in again:
            given[i] = given[again[i]]
        for at, tensor in zip(where, placed):
            if isinstance(at, int):
                given[at] = tensor
            else:
                stand_ins.add(*at, tensor)
        for i in own:
            given[i] = leaves[i]
        for number, value in seat.items() if seat else ():
            given[others[number]] = value
        tree = unflatten(spec, given)
        if joined is not None:
            tree = joined.tree(tree)
        args, kwargs = tree if has_kwargs else (tree, {})
        with filling(args, kwargs) if filling else contextlib.nullcontext(), joined or contextlib.nullcontext():
            result = stand_ins.during(lambda: fn(*args, **kwargs))
        _check_attributes(tensor for at, tensor in zip(where, placed) if isinstance(at, int))
        return result

    return body if cpu is None else cpu.around(body)


def firsts_of(values):
    """Of each of these the number of the first that is the same object; None where all are others."""
    found = {}
    firsts = [found.setdefault(id(value), i) for i, value in enumerate(values)]
    return None if len(found) == len(firsts) else firsts


def form_of(spec, args, kwargs, wide, own):
    """What keys have of the tree of a call's arguments: its spec; are there any by name; and, where containers in it
    are the same one, or one that the callable reads, an Identity. wide: does code compare any? own(container): a value
    that tells which one of those it is that the callable reads; None: it is none."""
    found = identified_in((args, kwargs) if kwargs else args, wide)
    firsts = firsts_of(found)
    read = tuple((i, place) for i, one in enumerate(found) if (place := own(one)) is not None) if wide else ()
    if firsts is None and not read:
        return (spec, bool(kwargs))
    return (spec, bool(kwargs), Identity(wide, firsts and tuple(firsts), read))


class Joined:
    """Of the arguments of a run which containers are the same one, or one that the callable reads: an Identity, and by
    number those that it reads. A context manager of the run, which may not change any of the latter: replays would
    change it in two places."""

    def __init__(self, identity, found):
        self._identity, self._found = identity, found

    def tree(self, tree):
        """Raises where what was found is not what the call was given, as a run ahead of the capture may have put
        something else there."""
        there = identified_in(tree, self._identity.wide) if self._found else ()
        if not all(_is_like(one, there[number]) for number, one in self._found.items()):
            raise _C.Error("a container that is an argument, and that it reads beside its arguments too, changed since "
                           "the call began. Pass a copy")
        return self._identity.joined(tree, self._found)

    def __enter__(self):
        self._held = list(map(_held, self._found.values()))

    def __exit__(self, kind, error, trace):
        for one, held in zip(self._found.values(), self._held):
            now = _held(one)
            if kind is None and (len(now) != len(held) or any(map(operator.is_not, now, held))):
                raise _C.Error(f"it changes a {type(one).__name__} that is an argument, and that it reads beside its "
                               "arguments too. Pass a copy")


def _is_like(one, other):
    """Do two containers hold the same?"""
    (leaves, spec), (others, form) = flatten(one), flatten(other)
    return spec == form and all(a is b or (is_plain(a) and is_plain(b) and plain_token(a) == plain_token(b))
                                for a, b in zip(leaves, others))


def _held(container):
    if type(container) is dict:
        return [*container, *container.values()]
    return list(container) if type(container) is list else []


def spread(body, numbers):
    """The body of these of its tensors, one of which may be several arguments; numbers: None: it takes them all."""
    return body if numbers is None else lambda placed: body([placed[i] for i in numbers])


def _check_attributes(stand_ins):
    """Raises where a run gave one of its arguments an attribute, which replays would not."""
    for name in (name for tensor in stand_ins for name in tensor.__dict__ if not name.startswith("_dynamo")):
        raise _C.Error(f"it sets an attribute of an argument ({name}), which replays would not. Return it beside the "
                       "results")


def is_on_cpu(torch, leaf):
    return isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu"


def keeps_containers(torch, body, containers):
    """The body, whose results have a Held for each container of the program's: what a run puts into one is an
    effect. Others it may return in one place each. containers: gives those of the program, by their ids; it is asked
    where a result may have one."""
    known, found = {}, []

    def keeping(placed):
        result = body(placed)
        if isinstance(result, torch.Tensor):
            return result
        if not found:
            found.append(containers())
        held, = found
        kind = met_twice(result, held)
        if kind is not None:
            raise _C.Error(f"it returns the same {kind.__name__} in two places, of which replays would make two. Return "
                           "it in one, or a copy")
        return _with_held(result, held, known)
    return keeping


def _with_held(tree, held, known):
    kind = type(tree)
    if id(tree) in held:
        return known.setdefault(id(tree), Held(tree))
    if kind is dict:
        parts = [_with_held(part, held, known) for part in tree.values()]
        return tree if all(map(operator.is_, parts, tree.values())) else dict(zip(tree, parts))
    if kind is not list and kind is not tuple and not (isinstance(tree, tuple) and hasattr(kind, "_fields")):
        return tree
    parts = [_with_held(part, held, known) for part in tree]
    if all(map(operator.is_, parts, tree)):
        return tree
    return parts if kind is list else tuple.__new__(kind, parts)


def marks_given(body, others, is_part):
    """The body, whose results have a Given for each object among the arguments: replays return that of their
    call. others: the leaves that are no tensors; is_part: does one of them hold this?"""
    numbers = {id(leaf): i for i, leaf in enumerate(others) if not is_plain(leaf)}

    def marking(placed):
        result = body(placed)
        leaves, spec = flatten(result)
        if any(is_part(leaf) for leaf in leaves if id(leaf) not in numbers):
            raise _C.Error("it returns a part of an object among its arguments, which would be that of the "
                           "first call at every replay. Return the tensors in it, or the object itself")
        if not any(id(leaf) in numbers for leaf in leaves):
            return result
        made = [Given(numbers[id(leaf)]) if id(leaf) in numbers else leaf for leaf in leaves]
        return unflatten(spec, made)
    return marking if numbers else body


def with_given(result, others):
    """The result of a call whose arguments that are no tensors are these."""
    leaves, spec = flatten(result)
    return build(spec, [others[leaf.number] if type(leaf) is Given else leaf for leaf in leaves])


def brings_home(torch, body, params):
    """The body, which leaves gradients where the parameters want them; the same where none of them has a
    home."""
    if all(homes.of(p) is None for p in params):
        return body

    def bringing(placed):
        leaves, spec = flatten(body(placed))
        brought = homes.bring(torch, params)
        return unflatten(spec, [brought.get(id(leaf), leaf) for leaf in leaves])
    return bringing


def tells_hooks(body, modules, params):
    """The body, whose backward pass may not be captured for hooks on the nodes of these parameters."""
    def telling(placed):
        try:
            return body(placed)
        except RuntimeError as error:
            if type(error) is RuntimeError or not _is_of_backward(error):  # of the program's own, or of random numbers
                raise
            raise Refused(hooked_refusal(modules, params)) from error
    return telling


def _is_of_backward(error):
    """Was it raised in a backward pass?"""
    return any(frame.f_code.co_name == "_engine_run_backward" for frame, _ in traceback.walk_tb(error.__traceback__))


def tells_open(torch, body):
    """The body of one graph. It raises Open where its results, or what it keeps, are for somebody to go back
    through."""
    def telling(placed):
        passes, is_enabled = Passes(torch), torch.is_grad_enabled()
        with passes.watched():
            result = body(placed)
        left = Left(torch, flatten(result)[0], passes, placed, is_enabled)
        try:
            leaves = left.leaves()
        except ValueError as why:
            raise Refused(str(why)) from None
        if leaves:
            raise Open(leaves)
        return result
    return telling


def refuses_gradients(body, tensors):
    """The body of one graph whose results are detached. Arguments require gradients as the caller's do, and backward
    passes of the body's may add to none of them."""
    def refusing(placed):
        wanted = [argument.requires_grad_() for argument, tensor in zip(placed, tensors) if tensor.requires_grad]
        result = body(placed)
        if any(argument.grad is not None for argument in wanted):
            raise Refused(WANTED)
        return result
    return refusing


def keeps_wishes(body, params):
    """The body, which may not leave other parameters requiring gradients than it found: replays would not."""
    def keeping(placed):
        before = [p.requires_grad for p in params]
        result = body(placed)
        turned = [(p, wish) for p, wish in zip(params, before) if p.requires_grad != wish]
        for param, wish in turned:
            param.requires_grad_(wish)
        if turned:
            raise Refused(TURNED)
        return result
    return keeping if params else body


def cause_of(error, kind):
    """The error of that kind that led to this one, where the library's own words about its broken capture hide it;
    None: there is none."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def refusal_in(error):
    """What a run was refused for; else the error itself."""
    return cause_of(error, Refused) or error
