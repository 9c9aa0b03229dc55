# SPDX-License-Identifier: MIT
"""A captured graph as a function of tensors."""

import functools

from .. import _C
from .._base import records, torch_private
from .._base.tree import assembled, holds_objects, is_leaf, unflatten
from .._capture.record import is_alone
from .._grad.gradients import give, homes, set_aside, to_give
from .._reads.draws import draw_into, given_again
from .assigned import Assigned


class Given:
    """In a result: an argument of the call that is no tensor, by its number among those."""

    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


class Held:
    """In a result: a container that the program has, which each call returns itself."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Shape:
    """What was captured of a Work: its graph, and what to make of a call's tensors."""

    effects = None  # what its calls assign beside their results (_effects/assignments.py)

    scalars = None  # what tells its graph the hyperparameters that hold now (_C.Scalars)

    seat = None  # of a call's values those that the scalars hang on, by number (_reads/numbers.py)
    given_numbers = ()  # of those that the call gives
    draws = 0  # how many numbers of Python's a call draws
    lines = ()  # what a call prints (_reads/prints.py)
    turns = None  # a lock, held from where the seat is taken until the graph is enqueued
    cpu = None  # what its calls do on the CPU ahead of the launch (_call/cpu_values.py)

    returned = ()  # (parameter, number): whose gradients are leaves of the result
    spares = ()  # parameters whose gradients other graphs of its callable leave, and it does not
    assigns = ()  # places that its calls change: (owner, key) each
    assigned = Assigned(())  # those that other calls change, and that it reads

    constants = None  # memory of the device that its graph reads what was moved from the CPU in
    waiting = None  # as of Split

    def __init__(self, work, graph):
        torch = work.torch
        self.graph = graph
        self.drawn = work.drawn  # draws.Drawn, or None
        self.device = work.device
        self.extents = work.extents
        self.first = [e.members[0] for e in work.extents]
        self.single = [min(e.members, key=lambda m: m[1])[0] for e in work.extents]
        self.outputs = work.outputs
        self.results = [("value", r[1].value) if r[0] == "value" and type(r[1]) is Held else r for r in work.results]
        self.spec = work.spec
        self.has_objects = holds_objects(work.spec)
        self.torch = torch
        self.alone = self._alone_in_outputs()
        self.whole = [a[:3] if a and _filled(*a) == n else None
                      for a, n in zip(self.alone, self.outputs)]
        self.has_given = any(r[0] == "value" and type(r[1]) is Given for r in self.results)
        self.hands_on = any(r[0] == "argument" for r in self.results)  # an argument, as a result?
        self._pass = self._made_pass()
        self.used_before = -1  # replays, when it was last looked whether there are any
        self.offered = -1  # to the fast path: when, by its guards
        self.lead = 0  # bytes at the start of the pool that it leaves alone
        self.stale = 0  # graphs of its key before it, whose memory was freed
        self.given = ()  # (parameter, gradient or None): what each replay leaves behind
        self._leaves = work.leaves
        self.left = ()   # (gradient, address): where the given ones lie as long as nobody moves them
        self.used = ()   # (parameter, address of its gradient) where the graph uses that

    def __del__(self):
        """Gradients keep the graph, whose memory they lie in, and the scalars of an optimizer lead to the
        gradients."""
        if self.scalars is not None:
            self.scalars.forget()

    def _alone_in_outputs(self):
        """For each output storage: the tensor that it begins with, as (shape, stride, dtype), or None
        where views share it."""
        found = [[] for _ in self.outputs]
        for result in self.results:
            if result[0] == "output":
                found[result[1]].append(result[2])
        return [tensors[0][:3] if len(tensors) == 1 and tensors[0][3] == 0 else None
                for tensors in found]

    def _made_pass(self):
        """What enqueues the graph without Python between the tensors and the launch; None where PyTorch tells
        nothing of tensors through DLPack's C interface."""
        torch = self.torch
        made = tuple((tuple(whole[0]), tuple(whole[1]), whole[2]) if whole else ((nbytes,), (1,), torch.uint8)
                     for whole, nbytes in zip(self.whole, self.outputs))
        try:
            return _C.Pass(self.graph, self.device.index, tuple(self.single), made, torch.Tensor,
                           torch.empty_strided, torch_private.of(torch).quick_empty)
        except (AttributeError, NotImplementedError, TypeError, ValueError):
            return None

    def enqueue(self, tensors, state=None):
        """Enqueues the graph for these tensors; the memory of its outputs. state: seed and offset of the
        device's random numbers, where they are those of an earlier graph."""
        if self.spares:
            set_aside(self.torch, self.spares)
        run = self._run_slowly if self._pass is None else self._pass.run
        buffers = run(tensors, state if self.drawn is not None and self.drawn.borrows else None)
        if self.given:
            give(self.given)  # frees what the graph has dropped, and may have read
        return buffers

    def runner(self):
        """What enqueues the graph as enqueue() does, in as few steps as there can be: run(tensors, state), the state
        None where the graph draws no numbers again. Asked once: what replays leave behind is known by then."""
        return self.enqueue if self._pass is None or self.given or self.spares else self._pass.run

    def _run_slowly(self, tensors, state):
        torch, device = self.torch, self.device
        buffers = [torch.empty_strided(*whole[:2], dtype=whole[2], device=device) if whole else
                   torch.empty(nbytes, dtype=torch.uint8, device=device)
                   for whole, nbytes in zip(self.whole, self.outputs)]
        stream = torch_private.of(torch).raw_stream(device.index)
        addresses = [tensors[i].data_ptr() for i in self.single] + [b.data_ptr() for b in buffers]
        if state is None:
            self.graph.replay(stream, *addresses)
        else:
            self.graph.replay_at(state, stream, *addresses)
        return buffers

    def leaves(self, tensors, buffers):
        """The leaves of the result."""
        found = []
        for result in self.results:
            found.append(found[result[1]] if result[0] == "again" else self._result(result, tensors, buffers))
        return found

    def replay(self, tensors, state=None, others=()):
        """The result for these tensors, which fit the key; state: as for enqueue; others: arguments of the
        call that are no tensors. With Given in it Parts stay until these are filled in."""
        leaves = self.leaves(tensors, self.enqueue(tensors, state))
        if self.returned:
            homes.give_returned([(param, leaves[number]) for param, number in self.returned])
        made = unflatten(self.spec, leaves)
        if self.effects is not None:
            made = self.effects.deliver(made, others)
        return assembled(made) if self.has_objects and not self.has_given else made

    def _result(self, result, tensors, buffers):
        kind = result[0]
        if kind == "value":
            return result[1]
        if kind == "argument":
            return tensors[result[1]]
        if kind == "copy":
            return result[1].detach().clone()
        if kind == "output":
            buffer = buffers[result[1]]
            return buffer if self.whole[result[1]] else _within(self.torch, buffer, result[2])
        tensor = tensors[self.single[result[1]]]
        *like, offset = result[2]
        offset += tensor.storage_offset() * tensor.element_size() // like[2].itemsize
        return _within(self.torch, tensor, (*like, offset))

    def short(self, tensors, ways=(), tensor_ways=()):
        """How the fast path makes the results of a call with these tensors, and what it makes of
        them: None where a call takes more than that. ways: the index or name of each argument that is no
        tensor; tensor_ways: of each that is one."""
        if self.sets() is None or self.cpu is not None or self.seat is not None or self.lines or self.spares or (
                self.returned or self.assigned or (self.drawn is not None and self.drawn.borrows)):
            return None
        results = self.results if self.effects is None else list(map(self.effects.told, self.results))
        if any(r[0] not in ("output", "value", "again", "argument") for r in results):
            return None
        if self.hands_on and len(tensor_ways) != sum(len(e.members) for e in self.extents):
            return None  # objects bring some
        hows = list(map(_made, self.alone, self.outputs))
        made = tuple(how or ((nbytes,), (1,), self.torch.uint8) for how, nbytes in zip(hows, self.outputs))
        if is_leaf(self.spec) and len(made) == 1 and hows[0] and results[0][0] == "output":
            return made, None
        leaves = tuple(_leaf(result, hows, ways, tensor_ways) for result in results)
        try:
            return made, _C.Builder(self.spec, leaves, functools.partial(_within, self.torch), records.make,
                                    records.attributes)
        except ValueError:
            return None  # it is too deep

    def sets(self):
        """As of Assignments: of a call."""
        return self.effects.sets() if self.effects is not None else ()

    def is_short(self, tensors):
        """Can the fast path replay calls with these tensors by Python, as one that hands over its arguments in
        their order?"""
        follows = self.scalars is None or (self.cpu is not None and self.cpu.places)
        slow = self.lines or self.spares or self.has_given or self.returned or self.assigned
        is_sure = self.effects is None or self.effects.is_sure()
        return is_sure and self.seat is None and not slow and (
            bool(follows)) and self.takes_in_order(tensors, self.cpu)

    def takes_in_order(self, tensors, cpu):
        """Does it take these tensors alone, but for the one that comes from the CPU? cpu: a Program, or None."""
        return len(tensors) == sum(len(e.members) for e in self.extents) - (cpu is not None and cpu.room > 0)

    def keep_gradients(self, params):
        """What its calls leave in .grad of these parameters, behind the record: what that left there. A gradient that is
        a leaf of the result too is that leaf in each call, as the program may change it."""
        there = {id(leaf): k for ref, k in reversed(self._leaves) if (leaf := ref()) is not None}
        at = [None if p.grad is None else there.get(id(p.grad)) for p in params]
        at = [k if k is not None and self.results[k][0] == "output" else None for k in at]
        self._leaves = ()
        self.returned = tuple((p, k) for p, k in zip(params, at) if k is not None)
        self.given = to_give(self.torch, [p for p, k in zip(params, at) if k is None], self.graph)
        self.left = tuple((g, g.data_ptr()) for _, g in self.given if g is not None)

    def has_its_scalars(self):
        """Are hyperparameters such as it was captured for?"""
        return self.scalars is None or self.scalars.fit()

    def take_seat(self, others):
        """Has its scalars hang on the values of a call, and draws what it asks for."""
        for number in self.given_numbers:
            self.seat[number] = others[number]
        draw_into(self.seat, self.draws)

    def drawn_again(self):
        """Within an eager call in place of a replay: it gets the numbers that were drawn for that."""
        if self.cpu is not None:
            self.cpu.take_back()
        return given_again(self.seat, self.draws)

    def parts(self):
        """The graphs that it is made of."""
        return (self,)

    def is_stale(self):
        """Was memory freed that it uses beside its arguments, or does it use gradients that lie
        elsewhere by now, or leave some that the program pointed elsewhere (`p.grad.data = `)?"""
        return self.graph.is_stale() or self.reads_other_values() or any(True for _ in self.moved()) or (
            any(grad.data_ptr() != at for grad, at in self.left)) or self.assigned.have_moved()

    def reads_other_values(self):
        """Did a tensor on the CPU change that it was captured for, and that no key tells of?"""
        return self.cpu is not None and self.cpu.has_changed()

    def moved(self):
        """Yields the parameters whose gradients it uses and which lie elsewhere by now."""
        for param, at in self.used:
            grad = param.grad  # looked up once: at each call, for each parameter
            if grad is None or grad.data_ptr() != at:
                yield param

    def facts(self):
        """What is known of the graph: those of struct rp_graph_info, and of each argument."""
        info = self.graph.info()
        info["calls"] = info["replays"]
        info["random"] = self.drawn is not None
        info["stale_graphs"] = self.stale
        info["lead_bytes"] = self.lead
        info["device"] = self.device.index
        count = len(self.extents) + len(self.outputs)
        info["arguments"] = [
            dict(zip(("sites", "bindable", "bound", "reason"), self.graph.arg_info(i)),
                 role="in" if i < len(self.extents) else "out") for i in range(count)]
        return info


def replayed(shape, tensors, replay, on_cpu=()):
    """What replay(tensors) makes of a call whose tensors the fast path hands over, with what the call does on the
    CPU: behind the launch where the GPU gets nothing of it. `miss` where the call is not for the fast path. shape:
    a Shape or a Split that is_short; on_cpu: the call's tensors on the CPU."""
    cpu = shape.cpu
    if is_alone() or (cpu is not None and cpu.has_changed()) or (
            shape.waiting is not None and shape.waiting.is_anothers()):
        return _C.miss
    if cpu is None:
        return replay(tensors)
    if cpu.places:
        with cpu.lock:  # its graph has numbers of the call in kernels' parameters
            cpu.place(on_cpu)
            if not shape.has_its_scalars():
                return _C.miss
            return replay((*tensors, *cpu.prepare(on_cpu, may_take_back=False, is_placed=True)))
    if cpu.room:
        return replay((*tensors, *cpu.prepare(on_cpu, may_take_back=False)))
    result = replay(tensors)
    cpu.prepare(on_cpu, may_take_back=False)
    return result


def _filled(shape, stride, dtype):
    """Bytes from the first element of a tensor to behind the last."""
    return dtype.itemsize * (1 + sum((n - 1) * s for n, s in zip(shape, stride)))


# Where a leaf of a result comes from, as python/csrc/call/builder.c has it.
_MADE, _VALUE, _AGAIN, _VIEW, _GIVEN = range(5)


def _leaf(result, hows, ways, tensor_ways):
    """Where the fast path has a leaf from: (source, number, value). Where tensors share a storage, or begin
    within it, there is no how, and the storage is made as bytes."""
    kind, value = result[:2]
    if kind == "again":
        return _AGAIN, value, None
    if kind == "argument":
        return _GIVEN, 0, tensor_ways[value]
    if kind == "output":
        return (_MADE, value, None) if hows[value] else (_VIEW, value, result[2])
    return (_GIVEN, 0, ways[value.number]) if type(value) is Given else (_VALUE, 0, value)


def _within(torch, buffer, like):
    """The tensor of that like, (shape, stride, dtype, offset), in the storage of another."""
    shape, stride, dtype, offset = like
    made = torch.empty(0, dtype=dtype, device=buffer.device)
    return made.set_(buffer.untyped_storage(), offset, shape, stride)


def _made(tensor, nbytes):
    """How a tensor is made that a storage of nbytes begins with: (shape, stride, dtype) where it fills
    that, else those of one that does, and the shape to cut it to; or None."""
    if tensor is None:
        return None
    shape, stride, dtype = tuple(tensor[0]), tuple(tensor[1]), tensor[2]
    if _filled(shape, stride, dtype) == nbytes:
        return shape, stride, dtype
    dense = 1
    for n, s in zip(reversed(shape), reversed(stride)):
        if n != 1 and s != dense:
            return None
        dense *= n
    count, rest = divmod(nbytes, dtype.itemsize)
    return None if rest or dense == 0 else ((count,), (1,), dtype, shape)
