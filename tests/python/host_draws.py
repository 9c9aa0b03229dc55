# SPDX-License-Identifier: MIT
"""Values of a graph as the seeds and offsets of generators, and captures that the callable begins itself,
through the extension on the host driver."""

import ctypes
import struct
import unittest

from reprise import _C
from on_host import BYTES, OnHost


class Generator:
    def __init__(self, seed, offset):
        self.seed, self.offset, self.fails = seed, offset, False

    def initial_seed(self):
        return self.seed

    def get_offset(self):
        if self.fails:
            raise RuntimeError("the stream captures")
        return self.offset

    def set_offset(self, offset):
        self.offset = offset


class Draws(OnHost):
    """The callable copies the words where seed and offset are read from to its argument."""

    def setUp(self):
        super().setUp()
        self.words = self.driver.memory(b"")
        self.other = self.driver.memory(b"other")
        self.out = self.driver.memory(b"")
        self.count = 2
        self.takes_over = False
        self.drops = 0  # nodes at the end of the capture, which would change what was copied
        self.ended = []

    def named(self):
        return [self.words + 8 * i for i in range(self.count)]

    def work(self, stream, addresses):
        if self.takes_over:
            _C.call_take_over()
            self.driver.cuStreamBeginCapture(ctypes.c_void_p(stream), ctypes.c_int(1))
            _C.call_begun()
        self.driver.copy(addresses[0], self.words, stream)
        for address in self.named():
            _C.call_value(address)
        if self.takes_over:
            graph, nodes = ctypes.c_void_p(), []
            for _ in range(self.drops):
                self.driver.copy(addresses[0], self.other, stream)
                nodes.append(_C.last_node(0, stream))
            self.driver.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph))
            self.ended.append(graph)
            _C.call_ended(graph.value, tuple(nodes))

    def capture(self, *pairs):
        graph = _C.capture(self.pool, self.work, [(self.out, BYTES, 2)], [], "draws", False)
        graph.set_draws(tuple(pairs))
        return graph

    def read(self, count):
        data = ctypes.create_string_buffer(8 * count)
        self.driver.cuCtxSynchronize()
        self.driver.cuMemcpyDtoH(data, ctypes.c_uint64(self.out), ctypes.c_size_t(8 * count))
        return struct.unpack(f"{count}Q", data.raw)

    def test_each_replay_draws_from_where_the_generator_is(self):
        generator = Generator(0xffff_ffff_ffff_fff1, 4)
        graph = self.capture((generator, 12))
        for offset in (4, 16, 28, 1 << 40):
            generator.offset = offset
            graph.replay(0, self.out)
            self.assertEqual(self.read(2), (generator.seed, offset))
            self.assertEqual(generator.offset, offset + 12)

    def test_several_generators(self):
        self.count = 4
        first, second = Generator(7, 100), Generator(8, 200)
        graph = self.capture((first, 4), (second, 0))
        for _ in range(3):
            graph.replay(0, self.out)
        self.assertEqual(self.read(4), (7, 108, 8, 200))
        self.assertEqual((first.offset, second.offset), (112, 200))

    def test_a_state_of_the_callers_leaves_the_generator_where_it_is(self):
        generator = Generator(7, 100)
        graph = self.capture((generator, 4))
        graph.replay_at((3, 40), 0, self.out)
        self.assertEqual(self.read(2), (3, 40))
        self.assertEqual(generator.offset, 100)
        for state in ((3,), (3, 4, 5), 3):
            with self.assertRaisesRegex(TypeError, "a seed and an offset"):
                graph.replay_at(state, 0, self.out)
        with self.assertRaises((OverflowError, TypeError)):
            graph.replay_at((3, -4), 0, self.out)

    def test_a_state_is_of_the_first_generator_and_others_go_on(self):
        self.count = 4
        first, second = Generator(7, 100), Generator(8, 200)
        graph = self.capture((first, 4), (second, 12))
        for turn in range(2):
            graph.replay_at((3, 40), 0, self.out)
            self.assertEqual(self.read(4), (3, 40, 8, 200 + 12 * turn))
            self.assertEqual((first.offset, second.offset), (100, 212 + 12 * turn))

    def test_a_generator_that_does_not_tell_enqueues_nothing(self):
        generator = Generator(7, 100)
        graph = self.capture((generator, 4))
        graph.replay(0, self.out)
        generator.fails = True
        with self.assertRaisesRegex(RuntimeError, "the stream captures"):
            graph.replay(0, self.out)
        self.assertEqual(self.read(2), (7, 100))
        self.assertEqual(graph.info()["replays"], 1)

    def test_a_graph_with_values_and_no_generator_is_not_replayed(self):
        graph = self.capture()
        with self.assertRaisesRegex(_C.Error, "is given 0 values and has 2"):
            graph.replay(0, self.out)

    def test_pairs_are_checked(self):
        graph = self.capture((Generator(7, 100), 4))
        for pairs in (((Generator(1, 2),),), ((Generator(1, 2), "four"),), (5,)):
            with self.assertRaises(TypeError):
                graph.set_draws(pairs)
        graph.replay(0, self.out)  # with what it had
        self.assertEqual(self.read(2), (7, 100))

    def test_a_replay_that_is_refused_moves_no_generator_on(self):
        first, second = Generator(7, 100), Generator(8, 200)
        graph = self.capture((first, 4), (second, 4))
        with self.assertRaisesRegex(_C.Error, "is given 4 values and has 2"):
            graph.replay(0, self.out)
        self.assertEqual((first.offset, second.offset), (100, 200))

    def test_the_callable_begins_and_ends_its_captures(self):
        self.takes_over = True
        generator = Generator(7, 100)
        graph = self.capture((generator, 4))
        for ended in self.ended:
            self.driver.cuGraphDestroy(ended)  # they are the callable's
        self.assertEqual(len(self.ended), 2)
        graph.replay(0, self.out)
        self.assertEqual(self.read(2), (7, 100))

    def test_nodes_are_left_out_of_a_capture_that_the_callable_ended(self):
        self.takes_over = True
        for self.drops in (1, 3):
            graph = self.capture((Generator(7, 100), 4))
            self.assertEqual(graph.info()["nodes"], 1)
            graph.replay(0, self.out)
            self.assertEqual(self.read(2), (7, 100))
        for ended in self.ended:
            self.driver.cuGraphDestroy(ended)

    def test_outside_of_a_call_there_is_nothing_to_take_over(self):
        for call in (_C.call_take_over, _C.call_begun, lambda: _C.call_ended(8, ()),
                     lambda: _C.call_value(8), lambda: _C.call_leave(8)):
            with self.assertRaisesRegex(_C.Error, "no call is under way"):
                call()

    def test_what_nobody_has_any_more_is_asked_of(self):
        asked = []
        graph = _C.capture(self.pool, self.work, [(self.out, BYTES, 2)], [], "draws", False, 0, 0, 0,
                           asked.append)
        self.assertEqual(asked, [])  # no struct holds an address of an earlier run
        self.assertEqual(graph.info()["nodes"], 1)


class Param(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint32), ("bytes", ctypes.c_uint32)]


class Kernel(ctypes.Structure):  # rp_host_kernel
    _fields_ = [("name", ctypes.c_char_p), ("run", ctypes.c_void_p), ("access", ctypes.c_void_p),
                ("params", ctypes.POINTER(Param)), ("param_count", ctypes.c_uint32),
                ("max_threads", ctypes.c_uint32)]


class Image(ctypes.Structure):  # rp_host_image
    _fields_ = [("magic", ctypes.c_char * 8), ("kernel_count", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32), ("kernels", ctypes.POINTER(Kernel))]


class Words(OnHost):
    """Where a captured kernel reads seed and offset: a kernel with room for two structs, never run."""

    MARKER = 0x1234_5670

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda launch: None)
        kernel = Kernel(b"draws", ctypes.cast(run, ctypes.c_void_p), None,
                        ctypes.pointer(Param(0, 64)), 1, 0)
        image = Image(b"RPHOST1", 1, 0, ctypes.pointer(kernel))
        module, cls.function = ctypes.c_void_p(), ctypes.c_void_p()
        cls.alive = run, kernel, image
        cls.driver.cuModuleLoadData(ctypes.byref(module), ctypes.byref(image))
        cls.driver.cuModuleGetFunction(ctypes.byref(cls.function), module, b"draws")

    def setUp(self):
        super().setUp()
        self.seed = (self.driver.memory(b"") | 511) + 1  # as PyTorch's allocators align memory
        self.offset = self.seed + 512
        self.stream, self.graph = ctypes.c_void_p(), ctypes.c_void_p()
        self.driver.cuStreamCreate(ctypes.byref(self.stream), ctypes.c_uint(1))
        self.addCleanup(self.driver.cuStreamDestroy, self.stream)

    def begin(self):
        self.driver.cuStreamBeginCapture(self.stream, ctypes.c_int(1))

    def end(self):
        self.driver.cuStreamEndCapture(self.stream, ctypes.byref(self.graph))
        self.addCleanup(self.driver.cuGraphDestroy, self.graph)

    def draw(self, *structs):
        data = b"".join(struct.pack("QQQQ", *fields) for fields in structs)
        struct_of = ctypes.create_string_buffer(data, 64)
        params, one = (ctypes.c_void_p * 1)(ctypes.addressof(struct_of)), ctypes.c_uint(1)
        self.driver.cuLaunchKernel(self.function, one, one, one, one, one, one, ctypes.c_uint(0),
                                   self.stream, params, None)

    def probe(self, *structs):
        self.draw(*structs)
        return _C.probe_words(0, self.stream.value, self.MARKER)

    def test_the_last_kernels_count_tells(self):
        self.begin()
        self.assertIsNone(_C.probe_words(0, self.stream.value, self.MARKER))
        told = self.probe((self.seed, self.offset, self.MARKER, 1))
        self.assertEqual(told, (_C.last_node(0, self.stream.value), self.seed, self.offset))
        self.assertIsNone(self.probe((self.seed, self.offset, self.MARKER + 4, 1)))
        self.assertIsNone(self.probe((self.seed, self.seed, self.MARKER, 1)))
        self.assertIsNone(self.probe((0, self.offset, self.MARKER, 1)))
        self.end()

    def test_a_count_that_is_there_twice_tells_nothing(self):
        self.begin()
        self.assertIsNone(self.probe((self.seed, self.offset, self.MARKER, 1),
                                     (self.seed + 8, self.offset + 8, self.MARKER, 1)))
        self.end()

    def test_all_places_of_a_graph_are_found(self):
        given = []
        _C.capture(self.pool, lambda stream, addresses: given.append((addresses[0] | 511) + 1),
                   [(self.driver.memory(b""), BYTES, 1)], [], "gives", False)
        self.begin()
        for seed, offset, count, captured in (
                (self.seed, self.offset, 4, 1),
                (self.seed, self.offset, 4, 0),      # drawn outside of captures
                (self.seed, self.offset, 5, 1),      # no count
                (self.seed + 8, self.offset, 4, 1),  # nothing that was allocated
                (self.seed, given[0], 4, 1), (given[-1], self.offset, 4, 1)):
            self.draw((seed, offset, count, captured))
        self.draw((0, 0, 0, 0), (self.seed + 1024, self.offset + 1024, 8, 1))
        self.end()
        self.assertEqual(_C.words_of(0, self.graph.value),
                         [(self.seed, self.offset), (self.seed + 1024, self.offset + 1024)])


if __name__ == "__main__":
    unittest.main()
