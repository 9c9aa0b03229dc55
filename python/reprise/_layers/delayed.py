# SPDX-License-Identifier: MIT
"""Weight gradients as graphs of their own (delay_wgrad_compute of Transformer Engine).

Modules that delay them leave in a store what their weight gradients are computed of, and when; backward_dw() takes
it from there. In a capture a store of the capture's own stands in that one's place. What the backward pass left is
a tensor that

    an argument or a result of the backward graph lies in    an argument of the graph of weight gradients
    a graph keeps                                            there, until that graph was captured
    lies elsewhere                                           a constant

The gradients that backward_dw() assigns are results, fresh in each call, as those of other graphs.
"""

import contextlib
import queue

from .._base.tree import unflatten
from .._capture.record import Work
from .._shapes.shape import Shape
from .._shapes.split import Refused, Split

NO_STORE = ("'{}' delays its weight gradients ({} says need_backward_dw), and has them in no wgrad_store as Transformer "
            "Engine's modules do: leave them in the backward pass (delay_wgrad_compute=False), or capture the whole "
            "step, reprise.graphed(step, grad=\"whole\")")
WAITING = "'{}' has weight gradients that wait still, of eager calls: call backward_dw() before it is captured"
WRAPPED = ("a module that delays its weight gradients leaves a {} for them, which lies where the caller's arguments "
           "do: leave them in the backward pass (delay_wgrad_compute=False)")
UNUSED = ("an argument or a parameter that wants a gradient is not used: pass allow_unused_input=True if that is "
          "meant")
NOTHING = ("backward_dw() of '{}' has nothing to do: its backward pass has not run yet, or its weight gradients are "
           "there already")
LOST = ("weight gradients of '{}' wait still, and this forward pass would overwrite what they are computed of: call "
        "backward_dw() before it")
SET, ADDED, LEFT = "set", "added", "left"  # what becomes of a gradient that a parameter has already


def delaying(torch, callables, names):
    """By callable the modules in it that delay their weight gradients, where there are some."""
    found = {}
    for which, (fn, name) in enumerate(zip(callables, names)):
        modules = [m for m in (torch.nn.Module.modules(fn) if isinstance(fn, torch.nn.Module) else ())
                   if getattr(m, "need_backward_dw", bool)()]
        for module in modules:
            context = getattr(getattr(module, "wgrad_store", None), "context", None)
            if not isinstance(context, queue.Queue) or not callable(getattr(module, "backward_dw", None)):
                raise NotImplementedError(NO_STORE.format(name, type(module).__name__))
            if context.qsize():
                raise RuntimeError(WAITING.format(name))
        if modules:
            found[which] = Delays(torch, name, modules)
    return found


class Delays:
    """Of one callable. modules: those in it that delay."""

    def __init__(self, torch, name, modules):
        self._torch, self.name = torch, name
        self.modules = modules
        self.kind = type(modules[0]).__name__
        self.params = list({id(p): p for m in modules for p in m.parameters() if p.requires_grad}.values())
        self.ways = {}  # by id of a parameter: SET, ADDED or LEFT; SET unless it was seen

    def places(self):
        """Where what they delay lies, which no graph reads where it lies."""
        return [(vars(module.wgrad_store), "context") for module in self.modules]

    @contextlib.contextmanager
    def aside(self):
        """Stores are others, and empty, and nobody is told of gradients meanwhile; yields the stores."""
        stores = [module.wgrad_store for module in self.modules]
        before = [(store.context, vars(module).get("wgrad_accumulation_and_reduce_hooks"))
                  for store, module in zip(stores, self.modules)]
        for store, module, (_, hooks) in zip(stores, self.modules, before):
            store.context = queue.Queue()
            if hooks is not None:
                module.wgrad_accumulation_and_reduce_hooks = []
        try:
            yield stores
        finally:
            for store, module, (context, hooks) in zip(stores, self.modules, before):
                store.context = context
                if hooks is not None:
                    module.wgrad_accumulation_and_reduce_hooks = hooks

    def waits(self):
        """Did eager backward passes leave something?"""
        return any(module.wgrad_store.context.qsize() for module in self.modules)

    def compute(self):
        """Eagerly, of what is in the stores now."""
        for module in self.modules:
            while module.wgrad_store.context.qsize():
                before = module.wgrad_store.context.qsize()
                type(module).backward_dw(module)
                if module.wgrad_store.context.qsize() >= before:
                    break

    @contextlib.contextmanager
    def without_gradients(self, given=()):
        """Parameters have no gradients meanwhile, or those given, by id."""
        before = [(p, p.grad) for p in self.params]
        given = dict(given)
        try:
            for param in self.params:
                param.grad = given.get(id(param))
            yield
        finally:
            for param, grad in before:
                param.grad = grad

    def learn(self):
        """Computes what is in the stores, and sees what becomes of gradients that are there before. What they are
        computed of was all zeros."""
        torch = self._torch
        there = {id(p): torch.full_like(p, float("nan"), requires_grad=False) for p in self.params
                 if p.is_floating_point()}
        versions = {key: grad._version for key, grad in there.items()}
        with self.without_gradients(there):
            self.compute()
            for param in self.params:
                grad, before = param.grad, there.get(id(param))
                if before is None or grad is None:
                    continue
                if grad is before and grad._version == versions[id(param)]:
                    self.ways[id(param)] = LEFT
                else:
                    self.ways[id(param)] = ADDED if bool(grad.isnan().any()) else SET

    def deliver(self, grads):
        """Gives the parameters what a replay made, as backward_dw() would have, and tells who wants to know."""
        for param, grad in zip(self.params, grads):
            if grad is None:
                continue
            way = SET if param.grad is None else self.ways.get(id(param), SET)
            if way is SET:
                param.grad = grad
            elif way is ADDED:
                with self._torch.no_grad():
                    param.grad = param.grad.add_(grad)
        for module in self.modules:
            for hook in getattr(module, "wgrad_accumulation_and_reduce_hooks", ()):
                hook()


class _In:
    """A tensor left for later, which lies in an argument or a result of the backward graph: its slot."""

    def __init__(self, slot, offset, like):
        self.slot, self.offset, self.like = slot, offset, like


class DelayedSplit(Split):
    """Three graphs: forward, backward, and the weight gradients that this leaves for later."""

    delays = None
    weights = None   # a Shape
    pending = None   # the arguments of its next replay
    _left = ()       # of each module: what it left in the store
    _slots = ()      # which arguments and results of the backward graph that lies in
    _back = None     # the Work of the backward pass

    # ---- Captures ----

    def _backward_work(self, new):
        work = super()._backward_work(new)
        if work is not None:
            work.keep, work.put_back = True, self._forget_left
            self._back = work
        return work

    def _forget_left(self):
        self._left, self._slots = (), []

    def _backward(self, placed):
        with self.delays.aside() as stores:
            grads = super()._backward(placed)
            self._left = [[self._noted(item) for item in _taken(store.context)] for store in stores]
        return grads

    def _noted(self, item):
        """What was put into a store, with places for what the caller passes."""
        if isinstance(item, (list, tuple)) and type(item) in (list, tuple):
            return type(item)(map(self._noted, item))
        if type(item) not in (self.torch.Tensor, self.torch.nn.Parameter):
            for inner in _within(item):
                if isinstance(inner, self.torch.Tensor) and self._slot_of(inner)[0] is not None:
                    raise Refused(WRAPPED.format(type(item).__name__))
            return item
        slot, offset = self._slot_of(item)
        if slot is None:
            return item.detach()
        if slot not in self._slots:
            self._slots.append(slot)
        return _In(slot, offset, (item.shape, item.stride(), item.dtype))

    def _slot_of(self, tensor):
        at = tensor.data_ptr()
        for slot, (address, nbytes) in enumerate(self._back.ranges):
            if nbytes and address <= at < address + nbytes:
                return slot, at - address
        return None, 0

    def _gradients(self, incoming):
        grads = super()._gradients(incoming)
        later = {id(p) for p in self.delays.params}
        wants = [None for t in self.tensors if t.requires_grad] + [id(p) for p in self.params]
        if not self.allows_unused and any(g is None and key not in later for g, key in zip(grads, wants)):
            raise Refused(UNUSED)
        return grads

    def _have_gone_back(self):
        """What the runs made lives until the weight gradients were captured."""
        if self.backward is None:
            self.drop_runs()

    def capture_weights(self, pool, name):
        torch = self.torch
        try:
            if self.backward is not None:
                sizes = [e.bytes for e in self._back.extents] + self._back.outputs
                given = [torch.empty(sizes[slot], dtype=torch.uint8, device=self.device) for slot in self._slots]
                work = Work(torch, self.device, self._weights, given, self.generators, draws=self.draws,
                            follows=True)
                self.weights = Shape(work, work.capture(pool.native, f"{name} weight gradients"))
        finally:
            self.drop_runs()

    def _weights(self, placed):
        places = dict(zip(self._slots, placed))
        delays = self.delays
        with delays.aside() as stores, delays.without_gradients():
            for store, left in zip(stores, self._left):
                for item in left:
                    store.context.put(self._found(item, places))
            delays.compute()
            grads = [p.grad for p in delays.params]
        return self._apart([g if g is None else g.detach() for g in grads], placed)

    def _found(self, item, places):
        if isinstance(item, _In):
            shape, stride, dtype = item.like
            whole = places[item.slot]
            made = self.torch.empty(0, dtype=dtype, device=self.device)
            return made.set_(whole.untyped_storage(),
                             (whole.storage_offset() + item.offset) // dtype.itemsize, shape, stride)
        if isinstance(item, (list, tuple)) and type(item) in (list, tuple):
            return type(item)(self._found(one, places) for one in item)
        return item

    def drop_runs(self):
        self._left = ()
        if self._back is not None:
            self._back.finish()
            self._back = None
        super().drop_runs()

    def release(self):
        super().release()
        if self.weights is not None:
            self.weights.graph.release()

    def parts(self):
        return super().parts() if self.weights is None else (*super().parts(), self.weights)

    # ---- Calls ----

    def replay(self, tensors, others=()):
        waits, self.pending = self.pending is not None, None
        if waits and self.before_backward is None:  # with an order it is the schedule that refuses
            raise RuntimeError(LOST.format(self.delays.name))
        return super().replay(tensors, others)

    def go_back(self, tensors, state):
        backward = self.backward
        buffers = backward.enqueue(tensors, state)
        if self.weights is not None:
            count = len(backward.extents)
            self.pending = [tensors[backward.single[slot]] if slot < count else buffers[slot - count]
                            for slot in self._slots]
        return unflatten(backward.spec, backward.leaves(tensors, buffers))

    def weigh(self):
        """Replays the graph of weight gradients. False: there is nothing to replay."""
        if self.pending is None:
            return False
        given, self.pending = self.pending, None
        self.delays.deliver(self.weights.replay(given))
        return True


def _within(item):
    """What an object or a function has by name, and what lies in its containers."""
    found = [*getattr(item, "__dict__", {}).values(), *getattr(item, "args", ()), getattr(item, "keywords", None)]
    for cell in getattr(item, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # of a name that nothing was assigned to
            found.append(cell.cell_contents)
    for inner in list(found):
        found += inner.values() if isinstance(inner, dict) else inner if isinstance(inner, (list, tuple)) else ()
    return found


def _taken(context):
    found = []
    while context.qsize():
        found.append(context.get_nowait())
    return found
