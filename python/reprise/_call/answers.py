# SPDX-License-Identifier: MIT
"""Values of the device that a run reads on the host, and that hang on none of its arguments.

No stream that captures can be waited for, so `.item()` and its like end a capture. What they would say is known
ahead where it hangs on tensors alone that keys compare (origins), and on what a run makes without arguments. So
the runs of a capture follow which operators lead to a storage, and each such read is a Question: these
operators, from its origins on. It is asked outside of the capture, and the capture is taken again with its answer:
keys have the answers. A call that finds an origin elsewhere, or with another version, asks anew.

What moves no version (`.data`, kernels of the program's) is told by the graph itself. It leaves what it found
in memory of the host, which each later call compares with the answer (csrc/capture/graph.h).
"""

import sys
import threading
import weakref

from .. import _C
from .._base import torch_private
from .._base.aside import tensors_in
from .._base.lines import line_of, take_stack
from .._capture.record import is_alone
from .._reads.marks import BY_VALUE
from .._reads.walk import ATTRIBUTES, CALL
from .cpu_run import View, contents, map_tensors, storage_of

MOST_BYTES = 1 << 16    # of an answer
MOST_QUESTIONS = 256    # of calls that differ by values only
_ALIGN = 16
_SIZED = frozenset(("aten::nonzero", "aten::repeat_interleave", "aten::_unique2"))  # how much they give hangs on values
_MOVES = frozenset(("aten::set_", "aten::resize_", "aten::resize_as_", "aten::_resize_output_"))  # to other memory
ELSEWHERE = ("a value of the GPU that it reads on the host was another one than its graph was captured for, and nothing "
             "told of it: results of replays since then may be wrong. Write to such tensors by PyTorch's operators, not "
             "through .data or kernels of your own, or read the value outside of the call")


class Asked(_C.Error):
    """A run reads a value that was not asked for yet."""

    def __init__(self, question):
        self.question = question
        super().__init__("a value of the GPU is read on the host")


class Written(_C.Error):
    """A run writes to what an answer comes from."""

    def __init__(self, line):
        super().__init__(f"it reads a value of the GPU on the host ({line}), and writes to the tensor that this comes "
                         "from. Keep such a value on the GPU, or in Python")


class Part(View):
    """A View of a storage that may have shrunk since."""

    __slots__ = ()

    def of(self, torch, storages):
        last = self.offset + sum((n - 1) * s for n, s in zip(self.size, self.stride))
        if 0 not in self.size and (last + 1) * self.dtype.itemsize > storages[self.number].nbytes():
            raise RuntimeError("a tensor has another size by now")  # set_ would give it more memory
        return super().of(torch, storages)


class _Step:
    """An operator that was run: what it takes, the numbers of what it gives, and of all that it takes or writes."""

    __slots__ = ("func", "args", "kwargs", "made", "written", "taken")

    def __init__(self, func, args, kwargs, made, written, taken):
        self.func, self.args, self.kwargs = func, args, kwargs
        self.made, self.written, self.taken = made, written, taken


def value_of(torch, tensors):
    """On the CPU: of one tensor, or whether two are equal; and as bytes."""
    found = tensors[0].cpu() if len(tensors) == 1 else torch.equal(*tensors)
    return found, bytes((found,)) if isinstance(found, bool) else contents(torch, found)


def _is_empty(step):
    return step.func._schema.name.startswith(("aten::empty", "aten::new_empty"))


class Question:
    """A read on the host: how its value comes about. Equal ones have the same form."""

    def __init__(self, device, parts, steps, origins):
        self.device, self.parts, self.steps = device, parts, steps
        self.origins = {number: [*map(weakref.ref, tensors)] for number, tensors in origins.items()}
        self.form = self._form()
        self.line = None
        self.answer = None  # a tensor on the CPU, or whether two are equal; None: there is none
        self.token = None   # of the answer, for keys
        self.seen = None    # where the origins were, and their versions, when it was asked

    def _form(self):
        names = {number: ("origin", id(refs[0]())) for number, refs in self.origins.items()}

        def plain(value):
            if isinstance(value, Part):
                return (names.setdefault(value.number, len(names)), value.dtype, value.size, value.stride, value.offset)
            if isinstance(value, (list, tuple)):
                return tuple(map(plain, value))
            if hasattr(value, "untyped_storage"):
                return value.dtype, tuple(value.shape), value.stride(), value.numpy(force=True).tobytes()
            return type(value), repr(value)

        steps = tuple((s.func, plain(s.args), plain(tuple(s.kwargs.items())),
                       tuple(names.setdefault(n, len(names)) for n in s.made)) for s in self.steps)
        return plain(self.parts), steps

    @property
    def nbytes(self):
        """Of what a graph leaves of it for the host to compare."""
        return len(self.token) if self.token is not None else 0

    def tensors(self):
        """The origins; None where one is gone."""
        found = [ref() for refs in self.origins.values() for ref in refs]
        return None if any(t is None for t in found) else found

    def state(self, written):
        """What tells whether origins changed; written(tensor): a count that does where replays write to it."""
        return tuple([(t.data_ptr(), t._version, written(t)) for t in self.tensors() or ()])

    def ask(self, torch, written):
        """Finds the answer out, on the current stream, which is waited for. Where origins have other sizes by now
        there may be none."""
        seen = self.state(written)
        try:
            with torch.no_grad(), torch.autocast("cuda", enabled=False), torch.cuda.device(self.device):
                self.answer, self.token = value_of(torch, self._computed(torch))
        except RuntimeError:
            self.answer = self.token = None
        self.seen = seen

    def refuse(self):
        """It has no answer from now on."""
        self.answer = self.token = self.seen = None

    def _computed(self, torch):
        storages = {number: refs[0]().untyped_storage() for number, refs in self.origins.items()}

        def given(value):
            return value.of(torch, storages) if isinstance(value, Part) else (
                type(value)(map(given, value)) if isinstance(value, (list, tuple)) else value)

        for step in self.steps:
            made = step.func(*given(step.args), **{k: given(v) for k, v in step.kwargs.items()})
            for number, tensor in zip(step.made, tensors_in(torch, (made,), {})):
                storages[number] = tensor.untyped_storage()
        return [part.of(torch, storages) for part in self.parts]


class Follower:
    """What one run's operators lead to. known: Questions by their forms; outside: by storages the tensors there; left:
    where the graph leaves what it found, by forms; forward: of a backward pass that of the forward run."""

    def __init__(self, torch, device, known, outside, left, forward=None):
        self.torch, self.device = torch, device
        self.known, self.outside, self.left = known, outside, left
        self.asked = []  # Questions, as the run came to them
        self._has_left = set()
        # By storages their numbers; None: it hangs on something else.
        self._numbers = dict(forward._numbers) if forward is not None else {}
        self._steps = list(forward._steps) if forward is not None else []
        self._origins = dict(forward._origins) if forward is not None else {}
        self._count = forward._count if forward is not None else 0

    # ---- Following ----

    def follow(self, func, args, kwargs, result, is_known):
        """Behind an operator. is_known: do its operands on the CPU hang on no argument?"""
        torch = self.torch
        given, made = tensors_in(torch, args, kwargs), tensors_in(torch, (result,), {})
        if not any(t.is_cuda for t in (*given, *made)):
            return
        written = self._written(func, args, kwargs) if func._schema.is_mutable else []
        known = {self._place(t) for t in given}
        fresh = {self._place(t) for t in made if t.is_cuda} - known
        if not written and not fresh:
            return  # views
        numbers = [self._number(t) for t in given if t.is_cuda]
        is_repeated = is_known and self._is_repeated(func) and None not in numbers and not any(
            self._place(t) in self.outside for t in written)
        if not is_repeated or not all(self._is_plain(t) for t in (*given, *made)) or not all(
                t.is_cuda for t in (*written, *made)):
            for at in (*fresh, *map(self._place, written)):
                self._numbers[at] = None
            return
        # Ahead of what it makes, whose storages may lie where others lay.
        taken = map_tensors(torch, list(args), self._reference), {
            k: map_tensors(torch, v, self._reference) for k, v in kwargs.items()}
        writes = {self._number(t) for t in written}
        for at in fresh:
            self._give(at)
        of_made = [self._numbers[self._place(t)] for t in made]
        self._steps.append(_Step(func, *taken, of_made, writes | {self._numbers[at] for at in fresh},
                                 frozenset(numbers)))

    def bring(self, made, tensor):
        """A tensor of the device was made of a constant on the CPU."""
        number = self._give(self._place(made))
        cast = self.torch.ops.aten._to_copy.default
        self._steps.append(_Step(cast, [tensor.detach().clone()], {"device": self.device}, [number], {number},
                                 frozenset()))

    def _give(self, at):
        self._numbers[at] = self._count
        self._count += 1
        return self._numbers[at]

    def _place(self, tensor):
        return storage_of(tensor) if tensor.layout is self.torch.strided else None

    def _number(self, tensor):
        """Of a tensor's storage; None where it hangs on something else."""
        at = self._place(tensor)
        if at in self._numbers:
            return self._numbers[at]
        origin = self.outside.get(at)
        if at is None or origin is None:
            return None
        number = self._give(at)
        self._origins[number] = origin
        return number

    def _is_plain(self, tensor):
        return tensor.layout is self.torch.strided and not tensor.is_conj() and not tensor.is_neg() and (
            tensor.device == self.device or tensor.device.type == "cpu")

    def _is_repeated(self, func):
        return func.namespace == "aten" and func._schema.name not in _MOVES and (
            self.torch.Tag.nondeterministic_seeded not in func.tags)

    def _written(self, func, args, kwargs):
        """The tensors that an operator writes to."""
        found = []
        for i, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[i] if i < len(args) else kwargs.get(argument.name)
                found += tensors_in(self.torch, (value,), {})
        return found

    def _reference(self, tensor):
        return Part(self._number(tensor), tensor) if tensor.is_cuda else tensor.detach().clone()

    def lend(self, tensor):
        """The program has its address, and may write there."""
        if tensor.is_cuda:
            self._numbers[self._place(tensor)] = None

    # ---- Answers ----

    def pass_by(self, func, args, kwargs, note):
        """In the place of an operator of an eager run: note(question, its tensors) is called for each Question."""
        tensors = self._looked_at(func, args, kwargs)
        question = None if tensors is None else self._possible(tensors)
        if question is not None:
            note(question, tensors)
        result = func(*args, **kwargs)
        is_known = all(t.is_cuda for t in tensors_in(self.torch, args, kwargs))  # not what comes from the CPU
        self.follow(func, args, kwargs, result, is_known)
        return result

    def answer(self, func, args, kwargs, bring):
        """In the place of an operator that reads on the host: (what it gives,); None: it is another one, or hangs
        on something else. bring: makes a constant on the CPU one of the device. Raises Asked."""
        tensors = self._looked_at(func, args, kwargs)
        question = None if tensors is None else self._asked(tensors)
        if question is None:
            return None
        found, name = question.answer, func._schema.name
        if name == "aten::_local_scalar_dense":
            return (found.item(),)
        if name == "aten::equal":
            return (found,)
        if name in _SIZED:
            return (map_tensors(self.torch, func(found, *args[1:], **kwargs), bring),)
        return (func(args[0], found, *args[2:], **kwargs) if name == "aten::copy_" else func(found, **kwargs),)

    def _looked_at(self, func, args, kwargs):
        """The tensors whose values an operator reads on the host; None: it reads none."""
        name = func._schema.name
        if name in ("aten::_local_scalar_dense", "aten::equal"):
            return args[:2]
        if name in _SIZED and args[0].is_cuda:
            return args[:1]
        if name == "aten::_to_copy" and args[0].is_cuda and self._is_host(kwargs.get("device")):
            return args[:1]
        return args[1:2] if name == "aten::copy_" and not args[0].is_cuda and args[1].is_cuda else None

    def value(self, tensor):
        """Its value, on the CPU; None: it hangs on something else. Raises Asked."""
        question = self._asked([tensor])
        return question and question.answer

    def _is_host(self, device):
        return device is not None and self.torch.device(device).type == "cpu"

    def _asked(self, tensors):
        question = self._possible(tensors)
        if question is None:
            return None
        known = self.known.get(question.form)
        if known is None or known.tensors() is None:  # of one that is gone
            raise Asked(question)
        if known.answer is None:
            return None
        self.asked.append(known)
        self._leave(known, tensors)
        return known

    def _possible(self, tensors):
        """The Question of their values; None: they hang on something else, or are too many."""
        if not all(t.is_cuda and self._is_plain(t) and self._number(t) is not None and (
                t.numel() * t.element_size() <= MOST_BYTES) for t in tensors):
            return None
        parts = [Part(self._number(t), t) for t in tensors]
        needed, steps = {part.number for part in parts}, []
        for step in reversed(self._steps):
            if not needed.isdisjoint(step.written):
                steps.append(step)
                needed |= step.taken | step.written
        if any(_is_empty(step) and not any(step.written & later.written for later in steps[:i])
               for i, step in enumerate(steps)):
            return None  # code that PyTorch knows nothing of wrote there
        return Question(self.device, parts, steps[::-1], {n: self._origins[n] for n in sorted(needed & self._origins.keys())})

    def _leave(self, question, tensors):
        """Has the graph leave the value that it finds where the host sees it."""
        torch, index = self.torch, self.device.index
        place = self.left.get(question.form)
        if place is None or question.form in self._has_left:
            return
        if len(tensors) == 2:
            if tensors[0].shape != tensors[1].shape or tensors[0].data_ptr() == tensors[1].data_ptr():
                return
            found = torch.eq(*tensors).all()
        else:
            found = tensors[0].contiguous()
        self._has_left.add(question.form)
        _C.clean_stack(None)
        _C.copy(index, torch_private.of(torch).raw_stream(index), [(place, found.data_ptr(), question.nbytes)])


class Left:
    """Memory of the host that one graph leaves values in, and what they are to be. It is not given back, as
    replays of a graph that is gone may still be under way."""

    _kept: list[object] = []

    def __init__(self, torch, questions):
        self.places, expected = {}, bytearray()
        for question in questions:
            if question.nbytes:
                self.places[question.form] = len(expected)
                expected += question.token
                expected += bytes(-len(expected) % _ALIGN)
        self.expected = bytes(expected)
        self.memory = None
        if expected:
            self.memory = torch.empty(len(expected), dtype=torch.uint8, pin_memory=True)
            self.memory.copy_(torch.frombuffer(expected, dtype=torch.uint8))
            self.places = {form: self.memory.data_ptr() + at for form, at in self.places.items()}

    def give(self, graph):
        """Has a graph compare them."""
        if self.memory is not None:
            self._kept.append(self.memory)
            graph.expect(self.expected, self.memory.data_ptr(), self.memory)


class _Written:
    """Of the process: the tensors that replays write to, beside their arguments."""

    def __init__(self):
        self._known = {}  # weak references, by ids

    def note(self, tensors):
        self._known = {at: ref for at, ref in self._known.items() if ref() is not None}
        for tensor in tensors:
            self._known[id(tensor)] = weakref.ref(tensor)

    def count(self, tensor):
        """One that differs behind each replay that may have written to it."""
        known = self._known.get(id(tensor))
        return _C.writing_replays() if known is not None and known() is tensor else 0


written = _Written()


class Answers:
    """What a callable's captures found that they read on the host. watch, reads: of a Graphed, whose keys compare
    where their tensors lie."""

    def __init__(self, torch, watch, reads):
        self.torch, self._watched, self._reads = torch, watch, reads
        self._gathered = set()  # families of which an eager run told
        self._families = {}   # by what of a key is no value: Questions by their forms
        self._read = None     # the number of what is read, when the origins were last looked for
        self._lock = threading.RLock()
        self.handle = None    # a _C.Reads of the origins' versions, for the guard of the fast path

    def outside(self):
        """The tensors on the device that calls use beside their arguments."""
        return [t for t in (*self._watched.tensors, *self._reads.tensors()) if t.is_cuda]

    def key(self, family, read):
        """A part of keys: the answers. read: a number for what is read."""
        if not self._families:
            return None
        torch = self.torch
        with self._lock:
            if not torch.cuda.is_current_stream_capturing() and not is_alone():
                self._renew(family, read)
            return tuple(q.token for q in self._families.get(family, {}).values())

    def _renew(self, family, read):
        known = self._families.get(family, {})
        for form, question in list(known.items()):
            if question.tensors() is None:
                del known[form]
            elif question.seen is not None and question.seen != question.state(written.count):
                question.ask(self.torch, written.count)
        if read != self._read or self.handle is None or not self.handle.holds():
            self._read = read
            self._watch()

    def _watch(self):
        """Has the handle compare the versions that the origins have, of those that are read now."""
        there = set(map(id, self.outside()))
        origins = {id(t): t for known in self._families.values() for q in known.values() for t in q.tensors() or ()
                   if id(t) in there}
        owners = [(ATTRIBUTES, BY_VALUE, t, ("_version",), (t._version,)) for t in origins.values()]
        if any(written.count(t) for t in origins.values()):
            owners.append((CALL, BY_VALUE, _C.writing_replays, None, (_C.writing_replays(),)))
        if self.handle is None:
            self.handle = _C.Reads(self.torch.Tensor)
        self.handle.set(owners)

    def holds(self, family):
        """Is all as when the key of such a call was made?"""
        with self._lock:
            return all(q.seen == q.state(written.count) for q in self._families.get(family, {}).values()
                       if q.seen is not None)

    def told(self, family):
        """By the lines that read them: the answers, as texts."""
        return {q.line: _said(q.answer) for q in list(self._families.get(family, {}).values())}

    def lines(self, family):
        return [q.line for q in self._families.get(family, {}).values()]

    def learn(self, family, error):
        """Notes what a capture asked, and finds out its answer."""
        question = error.question
        with self._lock:
            question.line = str(line_of(error))
            if self._add(family, question):
                question.ask(self.torch, written.count)
            self._watch()

    def _add(self, family, question):
        """May it be asked?"""
        known = self._families.setdefault(family, {})
        known[question.form] = question
        return len(known) <= MOST_QUESTIONS

    def may_gather(self, family):
        """Was no eager call gathered from yet?"""
        if family in self._gathered:
            return False
        self._gathered.add(family)
        return True

    def gathering(self, device, family, arguments, call):
        """An eager call, of which is noted what it reads on the host, so that captures need not find one after the
        other. A Question is asked once more behind it: where that gives something else, what nobody saw wrote there."""
        torch, outer = self.torch, self
        kind = torch_private.of(torch).dispatch_mode
        follower = self.following(device, family, arguments).follower()
        noted = []

        def note(question, tensors):
            with outer._lock:
                known = outer._families.get(family, {}).get(question.form)
                if known is None and outer._add(family, question):
                    known, frames = question, take_stack(sys._getframe()).frames
                    known.line = str(frames[0]) if frames else None
                if known is not None:
                    noted.append((known, value_of(torch, tensors)[1], known.state(written.count)))

        class Passing(kind):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                return follower.pass_by(func, args, kwargs or {}, note)

        with Passing():
            result = call()
        with self._lock:
            for question, token, seen in noted:
                question.ask(torch, written.count)
                if question.seen == seen and question.token != token:
                    question.refuse()
        return result

    def refuse(self, family):
        """They are answered no more, where a graph found others."""
        with self._lock:
            for question in self._families.get(family, {}).values():
                question.refuse()

    def following(self, device, family, arguments):
        """What the runs of a capture are told: Origins."""
        taken = {storage_of(t) for t in arguments}
        outside = {}
        for tensor in self.outside():
            if tensor.device == device and not tensor.is_inference() and storage_of(tensor) not in taken:
                outside.setdefault(storage_of(tensor), []).append(tensor)
        return Origins(self.torch, device, dict(self._families.get(family, {})), outside)

    def clear(self):
        with self._lock:
            self._families.clear()
            self._gathered.clear()
            self.handle = None


class Told:
    """What calls read, and the answers, to be told where they are new at each call."""

    def __init__(self, reads, answers, family):
        self._reads, self._answers, self._family = reads, answers, family

    def snapshot(self):
        return (*self._reads.snapshot(), self._answers.told(self._family))


def _said(answer):
    return repr(answer.tolist() if hasattr(answer, "tolist") else answer)


class Origins:
    """For the runs of one capture: what they may ask."""

    def __init__(self, torch, device, known, outside):
        self.torch, self.device, self.known, self.outside = torch, device, known, outside
        self.left = Left(torch, known.values())

    def follower(self, forward=None):
        return Follower(self.torch, self.device, self.known, self.outside, self.left.places, forward)

    def again(self):
        """For the backward pass of the same calls, which is a graph of its own."""
        return Origins(self.torch, self.device, self.known, self.outside)

    @staticmethod
    def check(asked):
        """Behind a run. Raises Written."""
        for question in asked:
            if question.seen != question.state(written.count):
                raise Written(question.line)
