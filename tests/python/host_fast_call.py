# SPDX-License-Identifier: MIT
"""The fast path of calls through the extension, on the host driver: calls of captured graphs that look
at gradients and leave others. Tensors are stand-ins that DLPack's C interface tells of as it tells of
PyTorch's, and parameters are whatever has a `grad`."""

import ctypes
import gc
import struct
import types
import unittest
import weakref

from no_memory import exhaust, needs_it
from on_host import BYTES, OnHost
from reprise import _C
from reprise._grad import gradients

IN, OUT, INOUT = 1, 2, 3
CPU, CUDA = 1, 2
NO_STREAM = -1
word = ctypes.c_uint64


class Tensor(bytes):
    """The bytes of one at an address. Its own, as an object, are where its impl lies, and so on: as
    python/csrc/base/tensor_address.h has it."""
    lies_on, type = CUDA, (1, 8)  # DLPack's codes

    def __new__(cls, address, offset=0):
        impl, storage = (word * 24)(), (word * 6)()
        impl[3], impl[5], impl[7] = ctypes.addressof(storage), offset, 0x70
        storage[2] = address - offset
        made = super().__new__(cls, struct.pack("Q", ctypes.addressof(impl)))
        made.impl, made.storage, made.address, made.offset = impl, storage, address, offset
        made.dims = (ctypes.c_int64 * 2)(BYTES, 1)  # shape and strides
        return made


class Wide(Tensor):
    """A subclass."""


class Seen(ctypes.Structure):
    """DLTensor"""
    _fields_ = [("data", word), ("device", ctypes.c_int32 * 2), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", word), ("strides", word), ("byte_offset", word)]


class Exchange(ctypes.Structure):
    """DLPackExchangeAPI"""
    LOOK = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Seen))
    STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(word))
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("unused", word * 4),
                ("look", LOOK), ("stream", STREAM)]


looks = []  # at which tensors, in their order
current = types.SimpleNamespace(stream=0)


def look(tensor, out):
    looks.append(tensor)
    strides = ctypes.addressof(tensor.dims) + 8
    out[0] = Seen(tensor.address, (tensor.lies_on, 0), 1, *tensor.type, 1, ctypes.addressof(tensor.dims), strides, 0)
    return 0


def tell_stream(kind, ordinal, out):
    out[0] = current.stream if current.stream != NO_STREAM else 0
    return -(current.stream == NO_STREAM)


EXCHANGE = Exchange(1, 3, (word * 4)(), Exchange.LOOK(look), Exchange.STREAM(tell_stream))
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
NAME = ctypes.c_char_p(b"dlpack_exchange_api")
Tensor.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(EXCHANGE), NAME, None)
Tensor.is_neg = lambda self: False
Tensor.requires_grad = False


class Object:
    """An argument."""


class Param:
    def __init__(self, grad=None):
        self.grad = grad


class Counted:
    """One that counts how often its gradient is read and set."""
    reads = sets = 0

    def __init__(self, grad=None):
        self.grad = grad

    @property
    def grad(self):
        self.reads += 1
        return self.now

    @grad.setter
    def grad(self, value):
        self.sets += 1
        self.now = value


NONE = word()  # what stands for no gradient


class LaidOut(Counted, Tensor):
    """The same as python/csrc/base/gradient_address.h has it."""

    def __new__(cls, grad=None):
        made = Tensor.__new__(cls, 64)
        made.kept = (word * 32)()
        made.impl[9] = ctypes.addressof(made.kept)
        return made

    @Counted.grad.setter
    def grad(self, value):
        Counted.grad.__set__(self, value)
        self.kept[5] = ctypes.addressof(NONE if value is None else value.impl)

    def wish(self, wants):
        self.kept[11] = 0x1234 << 16 | wants << 8


class Asked(OnHost):
    """Where the extension does not know how tensors are laid out, it asks DLPack and for attributes."""
    looks_a_gradient = 1
    Param = Param
    odd = ((Wide(4096), None), (types.SimpleNamespace(), None))  # gradients at 4096, and the calls

    def setUp(self):
        super().setUp()
        current.stream = 0
        self.x = self.driver.memory(b"argument")
        self.y = self.driver.memory(b"")
        self.sources = [self.driver.memory(text) for text in (b"zero", b"one", b"two")]
        self.hot = self.new_hot()

    def new_hot(self):
        off, on = (lambda: False), (lambda: True)
        hot = _C.FastCall(Tensor, self.empty, None, on, off, off, lambda: 0)
        self.guard(hot)
        return hot

    @staticmethod
    def guard(hot, *params):
        hot.set_guard((), (), types.SimpleNamespace(next_id=0), True, False, params)

    def empty(self, shape, strides, *, dtype, device):
        return Tensor(self.driver.memory(b""))

    def graph(self, source):
        """It copies that to its result, and its argument onto y."""
        def work(stream, addresses):
            self.driver.copy(self.y, addresses[0], stream)
            self.driver.copy(addresses[1], source, stream)
        return _C.capture(self.pool, work, [(self.x, BYTES, IN), (self.driver.memory(b""), BYTES, OUT)],
                          [], "tested", False)

    def add(self, gradients, which=0, hot=None):
        return (hot or self.hot).add(0, (Tensor(self.x),), {}, self.graph(self.sources[which]),
                                     (((BYTES,), (1,), "uint8"),), None, None, gradients)

    def call(self, hot=None):
        """The result's text, or None for a miss."""
        made = (hot or self.hot).call((Tensor(self.x),), {})
        return None if made is _C.miss else self.driver.text(made.address)

    def capturing(self):
        """A stream that captures."""
        stream = ctypes.c_void_p()
        self.driver.cuStreamCreate(ctypes.byref(stream), ctypes.c_uint(1))
        self.driver.cuStreamBeginCapture(stream, ctypes.c_int(2))
        self.addCleanup(self.driver.cuStreamEndCapture, stream, ctypes.byref(ctypes.c_void_p()))
        return stream.value

    def test_passes_of_two_graphs_are_replayed_by_who_is_told(self):
        seen, answers = [], ["made"]

        def replay(tensors):
            seen.append(tensors)
            return answers[0]
        x = Tensor(self.x)
        x.requires_grad = True
        forward, backward = (self.graph(source) for source in self.sources[:2])
        with self.assertRaisesRegex(TypeError, "two graphs"):
            self.hot.add_split(0, (x,), {}, forward, 7, replay)
        self.assertTrue(self.hot.add_split(0, (x, None), {}, forward, None, replay))
        self.assertTrue(self.hot.add_split(0, (x,), {"scale": 2}, forward, backward, replay))
        self.assertFalse(self.hot.add_split(0, (x,), {"scale": 2}, forward, backward, replay))
        self.assertFalse(self.hot.add(0, (x,), {}, forward, (((BYTES,), (1,), "uint8"),), None))
        self.assertEqual(self.hot.call((x, None), {}), "made")
        self.assertEqual(self.hot.call((x,), {"scale": 2}), "made")
        self.assertTrue(all(type(given) is tuple and given[0] is x and len(given) == 1 for given in seen))
        for other in ({"scale": 3}, {"scale": 2, "more": None}, {}):
            self.assertIs(self.hot.call((x,), other), _C.miss)
        self.assertIs(self.hot.call((Tensor(self.x),), {"scale": 2}), _C.miss, "it wants no gradient")
        current.stream = self.capturing()
        self.assertIs(self.hot.call((x,), {"scale": 2}), _C.miss, "the stream captures")
        current.stream = 0
        self.assertEqual(len(seen), 2)
        answers[0] = _C.miss
        self.assertIs(self.hot.call((x,), {"scale": 2}), _C.miss)
        answers.clear()
        with self.assertRaises(IndexError):
            self.hot.call((x,), {"scale": 2})

    def test_what_is_replayed_by_who_is_told_has_a_choice(self):
        x, choice = Tensor(self.x), _C.Choice(_C.Judge(0))
        choice.captured(True, 0.01)
        forward, backward = (self.graph(source) for source in self.sources[:2])
        for behind, other in ((None, 7), (backward, choice)):
            with self.assertRaisesRegex(TypeError, "Choice or None, and none with two graphs"):
                self.hot.add_split(0, (x,), {}, forward, behind, lambda tensors: "made", (), other)
        self.assertTrue(self.hot.add_split(0, (x,), {}, forward, None, lambda tensors: "made", (), choice))
        seen = []
        for _ in range(100):
            seen.append(self.hot.call((x,), {}))
            if seen[-1] is choice:
                choice.end(choice.turn(), True)
        self.assertIn("made", seen)
        self.assertTrue(all(one in ("made", choice, _C.eager) for one in seen))
        self.assertTrue(choice in seen or _C.eager in seen)
        self.assertGreater(choice.info()["measured_calls"], 0)

    def test_a_pass_makes_what_its_graph_makes(self):
        made = ((BYTES,), (1,), "uint8")
        graph, functions = self.graph(self.sources[1]), (Tensor, self.empty, None)
        one = _C.Pass(graph, 0, (1,), (made,), *functions)
        for tensors in ((None, Tensor(self.x)), [None, Tensor(self.x)]):
            first, second = (one.run(tensors, None)[0] for _ in range(2))
            self.assertNotEqual(first.address, second.address)
            self.assertEqual([self.driver.text(t.address) for t in (first, second)], [b"one", b"one"])
            self.assertEqual(self.driver.text(self.y), b"argument")
        for taken, results in (((), (made,)), ((0,), ()), ((0, 1), (made,)), ((0,), (made[:2],)), (("x",), (made,))):
            with self.assertRaises(TypeError):
                _C.Pass(graph, 0, taken, results, *functions)
        with self.assertRaises(TypeError):
            one.run({}, None)
        with self.assertRaises(IndexError):
            one.run((Tensor(self.x),), None)
        with self.assertRaisesRegex(TypeError, "for a graph that draws"):
            one.run((None, Tensor(self.x)), (3, 40))
        current.stream = NO_STREAM
        with self.assertRaisesRegex(RuntimeError, "current stream"):
            one.run((None, Tensor(self.x)), None)
        current.stream = self.capturing()
        with self.assertRaises(_C.Error):
            one.run((None, Tensor(self.x)), None)
        current.stream = 0
        self.assertEqual(graph.info()["replays"], 4)

    def test_what_is_given_is_given_at_each_call(self):
        given, other = Tensor(64), Tensor(128)
        first, second, alone = self.Param(), self.Param(other), self.Param(other)
        self.assertTrue(self.add(((first, None, None, given), (second, None, None, None))))
        for grads in ((None, other), (other, None), (given, None)):
            first.grad, second.grad = grads
            self.assertEqual(self.call(), b"zero")
            self.assertEqual(self.driver.text(self.y), b"argument")
            self.assertIs(first.grad, given)
            self.assertIsNone(second.grad)
        self.assertIs(alone.grad, other)

    def test_what_calls_set(self):
        """Behind the launch: values, and what is added to whole numbers."""
        module, names = {"calls": 1 << 70, "last": None}, {}
        sets = (module, "last", "argument", 0, names, "made", (1, 2), 0, module, "calls", 3, 1)
        self.assertTrue(self.hot.add(0, (Tensor(self.x),), {}, self.graph(self.sources[1]),
                                     (((BYTES,), (1,), "uint8"),), None, None, (), (), sets))
        for times in (1, 2):
            self.assertEqual(self.call(), b"one")
            self.assertEqual(module, {"calls": (1 << 70) + 3 * times, "last": "argument"})
            self.assertEqual(names, {"made": (1, 2)})
            module["last"] = names["made"] = 0
        for there in (True, 1.0, None):
            module["calls"] = there
            self.assertIsNone(self.call(), "whoever calls it raises what there is to raise")
            self.assertIs(module["calls"], there)
            self.assertEqual(module["last"], 0)
        del module["calls"]
        self.assertIsNone(self.call())
        module["calls"] = 0
        self.assertEqual(self.call(), b"one")
        self.assertEqual(module["calls"], 3)
        for wrong in ((module, "last", 1), ((), "last", 1, 0), (module,), (module, "last", 1, None),
                      (module, "last", 1, 0, module, "made", 0, 2)):
            with self.assertRaisesRegex(TypeError, "parts of four"):
                self.hot.add(0, (Tensor(self.x),), {}, self.graph(self.sources[0]), (((BYTES,), (1,), "uint8"),),
                             None, None, (), (), wrong)

    def test_what_is_made_beside_the_result_is_set(self):
        module, made = {}, []

        def build(tensors):
            made.append((tensors[0], ("first", tensors[0])))
            return made[-1]

        def add(hot, build):
            return hot.add(0, (Tensor(self.x),), {}, self.graph(self.sources[1]), (((BYTES,), (1,), "uint8"),), build,
                           None, (), (), (module, "text", 0, 2, module, "kept", 1, 2))
        self.assertTrue(add(self.hot, build))
        self.assertEqual(self.call(), b"one")
        self.assertEqual(module, {"text": "first", "kept": made[0][0]})
        for wrong in (lambda tensors: tensors[0], lambda tensors: (tensors[0], ())):
            hot = self.new_hot()
            self.assertTrue(add(hot, wrong))
            with self.assertRaises((SystemError, IndexError)):
                self.call(hot)

    def test_what_calls_set_is_let_go(self):
        class Held(dict):
            pass
        module, value = {}, Held()
        seen, module["value"] = weakref.ref(value), None
        self.assertTrue(self.hot.add(0, (Tensor(self.x),), {}, self.graph(self.sources[1]),
                                     (((BYTES,), (1,), "uint8"),), None, None, (), (), (module, "value", value, 0)))
        value["hot"] = self.hot  # a cycle
        del value
        self.hot = None
        gc.collect()
        self.assertIsNone(seen())

    def test_what_is_given_has_to_lie_where_the_graph_leaves_it(self):
        given, missing = Tensor(4096), self.Param()
        self.assertTrue(self.add(((missing, True, None, given),)))
        self.assertEqual(self.call(), b"zero")
        for address, text in ((8192, None), (4096, b"zero")):  # p.grad.data = , and back again
            given.storage[2] = given.address = address
            missing.grad = None
            self.assertEqual(self.call(), text)
            self.assertIs(missing.grad, given if text else None)

    def test_calls_are_told_apart_by_which_gradients_are_missing(self):
        first, second = params = [self.Param(), self.Param()]
        patterns = [(True, True), (False, True), (False, False)]
        for which, pattern in enumerate(patterns):
            first.grad, second.grad = (None if missing else Tensor(64) for missing in pattern)
            self.assertTrue(self.add(tuple((p, m, None) for p, m in zip(params, pattern)), which))
            self.assertFalse(self.add(tuple((p, m, None) for p, m in zip(params, pattern)), which))
        for turn in range(4):
            for pattern, text in zip(patterns + [(True, False)], (b"zero", b"one", b"two", None)):
                for one in (pattern, pattern)[turn % 2:]:
                    first.grad, second.grad = (None if missing else Tensor(64) for missing in one)
                    self.assertEqual(self.call(), text)

    def test_a_gradient_that_is_used_has_to_stay_where_it_is(self):
        param, looked = self.Param(Tensor(4096)), self.Param()
        self.assertTrue(self.add(((param, None, 4096), (looked, True, None))))
        del looks[:]
        for param.grad, text in ((param.grad, b"zero"), (Tensor(4096), b"zero"), (Tensor(8192), None),
                                 (None, None), *self.odd, (Tensor(4096), b"zero")):
            del looks[:]
            self.assertEqual(self.call(), text)
            if text:
                self.assertEqual(sum(t is param.grad for t in looks), self.looks_a_gradient)
        looked.grad = Tensor(64)
        self.assertIsNone(self.call())

    def test_a_gradient_in_the_midst_of_a_storage(self):
        param = self.Param(Tensor(4096, 128))
        self.assertTrue(self.add(((param, None, 4096),)))
        self.assertEqual(self.call(), b"zero")
        param.grad = Tensor(4096 + 128, 256)  # of the same storage
        self.assertIsNone(self.call())

    def test_what_lies_elsewhere_already_is_not_taken(self):
        for grad in (Tensor(8192), None, Wide(4096)):
            with self.subTest(grad=grad):
                self.assertFalse(self.add(((self.Param(grad), None, 4096),)))
                self.assertIsNone(self.call())
        param = self.Param()
        for wrong, error in (((param, None), TypeError), (7, TypeError), ((param, None, "x"), TypeError),
                             ((object(), None, 4096), AttributeError)):
            with self.assertRaises(error):
                self.add((wrong,))
        self.assertTrue(self.add(()))

    def test_a_gradient_is_read_once_and_set_where_it_is_another(self):
        given = Tensor(4096)
        here, missing, left = params = [Counted(given), Counted(), Counted(given)]
        self.assertTrue(self.add(((here, False, 4096, given), (missing, True, None, None),
                                  (left, None, None, given))))
        for grad, sets in ((given, 0), (Tensor(4096), 1), (given, 0)):
            here.now = grad
            for param in params:
                param.reads = param.sets = 0
            self.assertEqual(self.call(), b"zero")
            self.assertEqual([p.reads for p in params], [1, 1, 1])
            self.assertEqual([p.sets for p in params], [sets, 0, 0])

    def test_a_call_that_fails_gives_nothing(self):
        given, stream = Tensor(64), ctypes.c_void_p()
        param = self.Param()
        self.assertTrue(self.add(((param, None, None, given),)))
        current.stream = NO_STREAM
        with self.assertRaisesRegex(RuntimeError, "current stream"):
            self.call()
        self.assertIsNone(param.grad)
        self.driver.cuStreamCreate(ctypes.byref(stream), ctypes.c_uint(1))
        self.driver.cuStreamBeginCapture(stream, ctypes.c_int(2))
        current.stream = stream.value
        self.assertIsNone(self.call(), "the stream captures")
        self.assertIsNone(param.grad)
        graph = ctypes.c_void_p()
        self.driver.cuStreamEndCapture(stream, ctypes.byref(graph))
        self.assertEqual(self.call(), b"zero")
        self.assertIs(param.grad, given)

    def test_a_parameter_that_takes_none_raises(self):
        class Refusing(Param):
            grad = property(lambda self: None, lambda self, value: self.refuse())

            def __init__(self):
                pass

            def refuse(self):
                raise ValueError("of another size")
        self.assertTrue(self.add(((Refusing(), True, None, Tensor(64)),)))
        with self.assertRaisesRegex(ValueError, "of another size"):
            self.call()

    def test_a_gradient_that_cannot_be_read_fits_nothing(self):
        class Unreadable:
            pass
        param = Unreadable()
        with self.assertRaises(AttributeError):
            self.add(((param, True, None),))
        param.grad = None
        self.assertTrue(self.add(((param, True, None),)))
        self.assertEqual(self.call(), b"zero")
        del param.grad
        self.assertIsNone(self.call())

    def test_the_shapes_go_while_gradients_are_read(self):
        """Whatever runs then may clear the fast path, and guard it anew."""
        hot, guard = self.hot, self.guard

        class Clearing:
            clears, guards, now = False, False, None

            @property
            def grad(self):
                if self.clears:
                    hot.clear()
                if self.guards:
                    guard(hot)
                return self.now
        for guards in (False, True):
            for now in (None, Tensor(64)):
                param = Clearing()
                self.guard(hot)
                for which, param.now in enumerate((None, Tensor(64))):
                    self.assertTrue(self.add(((param, param.now is None, None),), which))
                param.now, param.clears, param.guards = now, True, guards
                self.assertIsNone(self.call())
                self.assertIs(hot.is_guarded(), guards)

    def test_another_shape_is_called_while_gradients_are_read(self):
        """Which is the last one then; the call that reads is of its own shape all the same."""
        test, hot = self, self.hot
        others = []

        class Calling:
            calls = False

            @property
            def grad(self):
                if self.calls:
                    self.calls = False
                    others.append(hot.call((Tensor(test.x), 7), {}))
        param = Calling()
        self.guard(hot)
        self.assertTrue(self.add(((param, True, None),), 0))
        self.assertTrue(hot.add(0, (Tensor(self.x), 7), {}, self.graph(self.sources[1]),
                                (((BYTES,), (1,), "uint8"),), None, None, ()))
        want = self.call()
        for _ in range(3):
            param.calls = True
            self.assertEqual(self.call(), want)
            self.assertNotEqual(self.driver.text(others.pop().address), want)

    def test_the_guard_goes_while_it_is_asked(self):
        hot = self.hot

        class Clearing:
            @property
            def requires_grad(self):
                if self.clears:
                    hot.clear()
                return True
        param = Clearing()
        param.clears = False
        self.guard(hot, param)
        self.assertTrue(hot.is_guarded())
        param.clears = True
        self.assertFalse(hot.is_guarded())

    def test_what_is_registered_elsewhere_forgets_no_shapes(self):
        """The slow path has looked until the counts that it gives; what came since it has not."""
        handles, param = types.SimpleNamespace(next_id=4), types.SimpleNamespace(requires_grad=True)
        self.hot.set_guard((), (), handles, True, False, (param,))
        self.assertTrue(self.add(()))
        handles.next_id = 7
        self.assertIsNone(self.call())
        self.assertFalse(self.hot.renew(6, 0))
        self.assertFalse(self.hot.is_guarded())
        _C.count_registration()
        counts = [n for n in range(64) if self.hot.renew(7, n)]
        self.assertEqual(len(counts), 1)
        self.assertTrue(self.hot.renew(7, counts[0]))
        self.assertEqual(self.call(), b"zero")
        param.requires_grad = not param.requires_grad
        self.assertFalse(self.hot.renew(7, counts[0]), "the rest is looked at too")
        self.hot.clear()
        self.assertFalse(self.hot.renew(7, counts[0]), "nothing is guarded")

    def test_what_is_read_is_guarded(self):
        """Nothing else is taken for what was guarded: neither other values nor other lists of them."""
        names, handles = {"scale": 1.5}, types.SimpleNamespace(next_id=4)
        owners = [(0, 0, names, ("scale",), (1.5,))]
        for ahead in ((), (None, None)):  # what is read, and what answers come from
            reads = _C.Reads(object)

            def guard():
                self.hot.set_guard((), (), handles, True, False, (), *ahead, reads)
                self.assertTrue(self.add(()))
                self.assertEqual(self.call(), b"zero")
            names["scale"] = 1.5
            reads.set(owners)
            guard()
            names["scale"] = 2.5
            self.assertIsNone(self.call())
            names["scale"] = 1.5
            self.assertEqual(self.call(), b"zero")
            names["scale"] = 2.5
            reads.accept(0, 0, 2.5)
            self.assertIsNone(self.call(), "the graph has another value")
            guard()
            reads.set([])
            self.assertIsNone(self.call())
            for wrong in (1, names):
                with self.assertRaises(TypeError):
                    self.hot.set_guard((), (), handles, True, False, (), *ahead, wrong)

    def test_where_guarded_tensors_lie(self):
        one, two = Tensor(1 << 16, 64), Tensor(1 << 17)
        self.hot.set_guard((one, two), (), types.SimpleNamespace(next_id=0), True, False, ())
        self.assertTrue(self.add(()))

        def lies(tensor, data, offset):
            tensor.storage[2], tensor.impl[5] = data, offset
            tensor.address, tensor.offset = data + offset, offset
        for _ in range(2):
            for tensor in (one, two):
                data, offset = tensor.storage[2], tensor.offset
                self.assertEqual(self.call(), b"zero")
                for other in ((data, offset + 32), (data + 4096, offset)):
                    lies(tensor, *other)
                    self.assertIsNone(self.call())
                    lies(tensor, data, offset)
                    self.assertEqual(self.call(), b"zero")
            other = (word * 6)(*two.storage)  # another storage of the same memory
            two.impl[3] = ctypes.addressof(other)
            self.assertEqual(self.call(), b"zero")
            two.impl[3] = ctypes.addressof(two.storage)

    def known(self, *tensors, token=b"object 1"):
        """An object that the fast path knows, and what it reads."""
        made, reads = Object(), _C.Reads(object)
        made.scale = 1.5
        reads.set([(0, 0, made.__dict__, ("scale",), (1.5,))])
        self.hot.know(weakref.ref(made), reads, token, tensors)
        return made, reads

    def test_objects_bring_their_tensors(self):
        other = self.driver.memory(b"another")
        (one, reads), (two, _) = self.known(Tensor(self.x)), self.known(Tensor(other))
        shape = (((BYTES,), (1,), "uint8"),), None, None, ()

        def call(*args):
            made = self.hot.call(args, {})
            return None if made is _C.miss else self.driver.text(self.y)
        self.assertTrue(self.hot.add(0, (one,), {}, self.graph(self.sources[0]), *shape))
        self.assertEqual([call(one), call(two), call(one)], [b"argument", b"another", b"argument"])
        self.assertIsNone(call(self.known(Tensor(other), token=b"object 2")[0]), "it is of another form")
        self.assertIsNone(call(Object()), "nobody has looked at it")
        self.assertIsNone(call(b"object 1"))
        one.scale = 2.5
        self.assertEqual([call(one), call(two)], [None, b"another"])
        one.scale = 1.5
        self.assertEqual(call(one), b"argument")
        reads.set([])
        self.assertIsNone(call(one), "what it brings was looked for anew")
        self.guard(self.hot)
        third, _ = self.known(Tensor(self.x))
        self.assertTrue(self.hot.add(0, (third,), {}, self.graph(self.sources[0]), *shape))
        self.assertEqual(call(third), b"argument")
        self.assertIsNone(call(two), "more may be read of it by now")

    def test_objects_whose_many_tensors_overlap(self):
        places = [self.x] + [self.driver.memory(b"other") for _ in range(39)]

        def work(stream, addresses):
            self.driver.copy(addresses[-1], addresses[0], stream)
        out = self.driver.memory(b"")
        args = [(at, BYTES, IN) for at in places] + [(out, BYTES, OUT)]
        graph = _C.capture(self.pool, work, args, [], "many", False)
        apart, _ = self.known(*map(Tensor, places))
        self.assertTrue(self.hot.add(0, (apart,), {}, graph, (((BYTES,), (1,), "uint8"),), None, None, ()))
        self.assertIsNot(self.hot.call((apart,), {}), _C.miss)
        for last in (places[7], places[7] + 1):
            together, _ = self.known(*map(Tensor, [*places[:-1], last]))
            self.assertIs(self.hot.call((together,), {}), _C.miss)

    def test_objects_are_not_kept(self):
        made, reads = self.known()
        left = weakref.ref(made)
        del made
        self.assertIsNone(left())
        for wrong in ((left, reads, 1, ()), (left, 1, b"", ()), (1, reads, b"", ()), (left, reads, b"", [])):
            with self.assertRaises(TypeError):
                self.hot.know(*wrong)
        kept = [self.known(Tensor(self.x), token=b"%d" % i) for i in range(40)]
        self.assertIs(self.hot.call((kept[0][0],), {}), _C.miss)

    def test_objects_among_the_results(self):
        """They are those of the call."""
        one, two = (self.known(Tensor(self.x))[0] for _ in range(2))
        held = [one, two]
        leaf, made = (5,), ((BYTES,), (1,), "uint8")
        build = _C.Builder((0, (leaf, leaf, leaf)), ((0, 0, None), (4, 0, "cache"), (1, 0, "value")), None, None, None)
        self.assertFalse(self.hot.add(0, (), {"cache": one}, self.graph(self.sources[0]), (), build))
        self.assertTrue(self.hot.add(0, (), {"cache": one}, self.graph(self.sources[0]), (made,), build))
        for each in held:
            result, cache, value = self.hot.call((), {"cache": each})
            self.assertEqual(self.driver.text(result.address), b"zero")
            self.assertIs(cache, each)
            self.assertEqual(value, "value")

    def test_many_results(self):
        """A cache has two tensors a layer."""
        count, made = 40, ((BYTES,), (1,), "uint8")

        def work(stream, addresses):
            for i, address in enumerate(addresses[1:]):
                self.driver.copy(address, self.sources[i % 3], stream)
        graph = _C.capture(self.pool, work, [(self.x, BYTES, IN), *((self.driver.memory(b""), BYTES, OUT)
                                                                   for _ in range(count))], [], "tested", False)
        build = _C.Builder((1, ((5,),) * count), tuple((0, i, None) for i in range(count)), None, None, None)
        self.assertTrue(self.hot.add(0, (Tensor(self.x),), {}, graph, (made,) * count, build))
        results = self.hot.call((Tensor(self.x),), {})
        self.assertEqual([self.driver.text(t.address) for t in results],
                         [(b"zero", b"one", b"two")[i % 3] for i in range(count)])

    def test_a_graph_takes_the_place_of_eager_calls(self):
        self.assertTrue(self.hot.add(0, (Tensor(self.x),), {}, None, (), None))
        self.assertIs(self.hot.call((Tensor(self.x),), {}), _C.eager)
        self.assertTrue(self.add(()))
        self.assertEqual(self.call(), b"zero")

    def test_tensors_that_are_read_too_have_shapes_of_their_own(self):
        own, other = Tensor(self.x), Tensor(self.x)
        with self.assertRaisesRegex(TypeError, "takes a tuple"):
            self.hot.set_own([id(own)])
        with self.assertRaises(TypeError):
            self.hot.set_own(("x",))
        self.hot.set_own((id(self), id(own), 7))
        for tensor, which in ((own, 0), (other, 1)):
            self.assertTrue(self.hot.add(0, (tensor,), {}, self.graph(self.sources[which]),
                                         (((BYTES,), (1,), "uint8"),), None))
        for tensor, text in ((own, b"zero"), (other, b"one"), (Tensor(self.x), b"one")):
            self.assertEqual(self.driver.text(self.hot.call((tensor,), {}).address), text)
        self.hot.set_own(())
        self.assertEqual(self.driver.text(self.hot.call((own,), {}).address), b"one")

    def test_the_shapes_go_while_gradients_are_given(self):
        """What is dropped may clear the fast path: the call has what it needs."""
        hot = self.hot

        class Dropped(Tensor):
            def __del__(self):
                hot.clear()
        first, second = self.Param(), self.Param()
        self.assertTrue(self.add(((first, None, None, None), (second, None, None, given := Tensor(64)))))
        first.grad = Dropped(64)
        self.assertEqual(self.call(), b"zero")
        self.assertIs(second.grad, given)
        self.assertFalse(hot.is_guarded())
        self.assertIsNone(self.call())

    def test_no_results(self):
        param = self.Param()

        def work(stream, addresses):
            self.driver.copy(self.y, addresses[0], stream)
        graph = _C.capture(self.pool, work, [(self.x, BYTES, INOUT)], [], "tested", False)
        self.assertTrue(self.hot.add(0, (Tensor(self.x),), {}, graph, (), lambda made: made, None,
                                     ((param, None, None, given := Tensor(64)),)))
        self.assertEqual(self.hot.call((Tensor(self.x),), {}), [])
        self.assertEqual(self.driver.text(self.y), b"argument")
        self.assertIs(param.grad, given)

    def test_a_cycle_through_a_parameter_is_collected(self):
        for has_it in range(2):
            hot, both = self.new_hot(), (Param(), Param())
            self.assertTrue(self.add(((both[0], None, None, both[1]),), hot=hot))
            both[has_it].hot = hot
            gone = [weakref.ref(one) for one in both]
            del hot, both
            gc.collect()
            self.assertEqual([one() for one in gone], [None, None])

    @needs_it
    def test_memory_that_runs_out(self):
        param = self.Param()
        graph = _C.capture(self.pool, lambda stream, a: self.driver.copy(self.y, self.sources[1], stream),
                           [], [], "tested", False)
        self.assertTrue(exhaust(self, self.hot.add, 0, (1,), {}, graph, (), lambda made: made, None,
                                ((param, True, None, None), (self.Param(), None, None, Tensor(64)))))
        self.assertEqual(self.hot.call((1,), {}), [])
        self.assertEqual(self.driver.text(self.y), b"one")


class OnCpu:
    """Of KnownLayout: tensors on the CPU among the arguments."""

    def new_on_cpu(self, *numbers):
        held = (ctypes.c_float * len(numbers))(*numbers)
        made = Tensor(ctypes.addressof(held))
        made.held, made.lies_on, made.type = held, CPU, (2, 32)
        made.dims[0] = len(numbers)
        return made

    def add_told(self, tensor, *told):
        return self.hot.add(0, (Tensor(self.x), tensor), {}, self.graph(self.sources[0]),
                            (((BYTES,), (1,), "uint8"),), None, None, (), *told)

    def taken(self, *args):
        return self.hot.call((Tensor(self.x), *args), {}) is not _C.miss

    def test_an_argument_on_the_cpu_holds_what_was_told(self):
        t = self.new_on_cpu(0.3, 0.7)
        for told in ((), ((),), ((bytes(4),),), ((1,),), ((None, None),), (("x",),)):
            self.assertFalse(self.add_told(t, *told), told)
        self.assertTrue(self.add_told(t, (bytes(t.held),)))
        self.assertFalse(self.add_told(t, (bytes(t.held),)))
        self.assertTrue(self.taken(t))
        t.held[1] = 0.6
        self.assertFalse(self.taken(t))
        self.assertTrue(self.taken(self.new_on_cpu(0.3, 0.7)))
        for other in (self.new_on_cpu(0.3), Tensor(self.x), None):
            self.assertFalse(self.taken(other))
        t.held[1], t.dims[1] = 0.7, 2
        self.assertFalse(self.taken(t))

    def test_an_argument_on_the_cpu_of_a_kind_or_a_form(self):
        t = self.new_on_cpu(0.3)
        self.assertTrue(self.add_told(t, (1,)))
        for number, is_taken in ((0.4, True), (-0.4, False), (1.0, False), (1.7, False)):
            self.assertEqual(self.taken(self.new_on_cpu(number)), is_taken, number)
        self.assertTrue(self.add_told(self.new_on_cpu(-1.0, 2.0), (None,)))
        self.assertTrue(self.taken(self.new_on_cpu(7.0, 8.0)))
        self.assertFalse(self.taken(self.new_on_cpu(7.0, 8.0, 9.0)))
        wants = self.new_on_cpu(7.0, 8.0)
        wants.requires_grad = True
        self.assertFalse(self.taken(wants))

    def test_a_call_that_it_takes_lets_go_of_what_it_holds(self):
        t = self.new_on_cpu(0.3)
        self.assertTrue(self.add_told(t, (bytes(t.held),)))

        def held():
            def some():
                pass
            self.hot.hold(some)
            return weakref.ref(some)
        for let_go in (lambda: self.assertTrue(self.taken(t)), lambda: self.hot.hold(None), held, self.hot.clear):
            found = held()
            self.assertFalse(self.taken(self.new_on_cpu(0.4)))
            self.assertIsNotNone(found())
            let_go()
            self.assertIsNone(found())

    def test_those_on_the_cpu_are_handed_over(self):
        x, t, seen = Tensor(self.x), self.new_on_cpu(0.3), []
        self.assertTrue(self.hot.add_split(0, (t, x), {}, self.graph(self.sources[0]), None,
                                           lambda *given: seen.append(given), (None,)))
        self.assertIsNone(self.hot.call((t, x), {}))
        self.assertEqual(seen, [((x,), (t,))])


class KnownLayout(OnCpu, Asked):
    """Where it knows, it looks for itself. There is no way back: classes come in the order of names."""
    looks_a_gradient = 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for offset in (0, 96, 160):
            tensor = Tensor(1 << 20, offset)
            impl, storage = ctypes.addressof(tensor.impl), ctypes.addressof(tensor.storage)
            tensor.impl[7] += offset
            _C.see_tensor(tensor, tensor.__sizeof__() - 1, impl, storage, tensor.storage[2], offset,
                          tensor.impl[7], (0,) * 6, (0,) * 6, 0)
        assert _C.settle_layout()


class KnownLayoutOfGradients(Asked):
    """The same of parameters."""
    looks_a_gradient = 0
    Param = LaidOut
    odd = ((Wide(4096), b"zero"),)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        assert _C.settle_layout()
        for grad, wants in ((None, True), (Tensor(64), True), (Tensor(64), False), (None, False),
                            (None, True)):
            leaf = LaidOut(grad)
            leaf.wish(wants)
            _C.see_gradient(leaf, ctypes.addressof(leaf.impl), grad and ctypes.addressof(grad.impl) or 0,
                            wants)
        assert _C.settle_gradients()

    def test_no_attribute_is_read(self):
        given = Tensor(4096)
        used, other, left = params = [LaidOut(given), LaidOut(), LaidOut()]
        self.assertTrue(self.add(((used, False, 4096, given), (other, True, None, None),
                                  (left, None, None, given))))
        for used.grad in (given, Tensor(4096)):
            left.grad = used.grad
            for param in params:
                param.reads = param.sets = 0
            sets = int(used.now is not given)
            self.assertEqual(self.call(), b"zero")
            self.assertEqual([(p.reads, p.sets) for p in params], [(0, sets), (0, 0), (0, sets)])
            self.assertEqual([p.now for p in params], [given, None, given])

    def test_those_without_a_gradient_are_not_read(self):
        params = [LaidOut(), LaidOut(Tensor(64)), LaidOut(), LaidOut(Tensor(64))]
        asked = Counted()
        self.assertEqual(_C.with_gradients([*params, asked, Counted(Tensor(64))]), [1, 3, 5])
        self.assertEqual([p.reads for p in params], [0] * 4)
        self.assertEqual(asked.reads, 1)
        bare = [LaidOut() for _ in range(4)]
        for param in bare:
            param.reads = param.sets = 0
        before = gradients.Gradients(bare)
        self.assertEqual((before.hold().changed(), before.used(), before.missing()), ([], [], tuple(bare)))
        before.restore()
        self.assertEqual([(p.reads, p.sets) for p in bare], [(0, 0)] * 4)
        bare[2].grad = Tensor(64)
        before.restore()
        self.assertEqual([p.now for p in bare], [None] * 4)
        with self.assertRaises(AttributeError):
            _C.with_gradients([object()])

    def test_an_attribute_that_says_otherwise_is_asked(self):
        param = LaidOut(Tensor(4096))
        param.kept[5] = ctypes.addressof(NONE)
        self.assertTrue(self.add(((param, False, 4096),)))
        self.assertEqual(self.call(), b"zero")

    def test_wishes_are_guarded(self):
        kept, forgotten = LaidOut(), LaidOut()
        asked = []
        forgotten.impl[9] = 0
        LaidOut.requires_grad = property(lambda p: asked.append(p) or p.kept[11] == 0x12340100)
        self.addCleanup(delattr, LaidOut, "requires_grad")
        for param, wants, moves in ((kept, True, 0), (kept, False, 1), (forgotten, False, 0)):
            param.wish(wants)
            self.guard(self.hot, param)
            del asked[:]
            self.assertTrue(self.hot.is_guarded())
            self.assertEqual(len(asked), moves, "it may want one for other reasons")
            param.impl[9] = ctypes.addressof(param.kept)
            param.wish(not wants)
            self.assertFalse(self.hot.is_guarded())


if __name__ == "__main__":
    unittest.main()
