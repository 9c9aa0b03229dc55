# SPDX-License-Identifier: MIT
"""Captures through the extension, on the host driver in the place of NVIDIA's: the allocator's hooks
are called as PyTorch calls them, and work is copies and fills."""

import ctypes
import unittest
from unittest import mock

from reprise import _C
from on_host import BYTES, OnHost, Trace

class Work:
    """A copy of its argument by way of two blocks, the second of which is a result; and another
    result that has no block."""

    def __init__(self, driver, allocator):
        self.driver, self.allocator = driver, allocator
        self.runs = []
        self.index = None  # of the result's allocation
        self.raises = None  # in which run
        self.in_place = None  # did the latest run have the result's memory from the allocator?

    def __call__(self, stream, addresses):
        allocate, driver = self.allocator, self.driver
        self.runs.append(addresses)
        first = allocate.alloc(stream)
        driver.copy(first, addresses[0], stream)
        second = allocate.alloc(stream)
        driver.copy(second, first, stream)
        allocate.free(first, stream)
        if self.raises == len(self.runs):
            allocate.free(second, stream)
            raise KeyError("mine")
        if len(addresses) == 1:
            self.index = _C.call_block(second + 1)[0]
            named = _C.call_result(BYTES, second)
            assert named == second
            other = _C.call_result(BYTES, 0)
        else:
            self.in_place = second == addresses[1]
            if not self.in_place:
                driver.copy(addresses[1], second, stream)
            other = addresses[2]
        driver.copy(other, second, stream)
        allocate.free(second, stream)


class Captures(OnHost):
    def setUp(self):
        super().setUp()
        self.work = Work(self.driver, self.allocator)
        self.x = self.driver.memory(b"captured")
        self.asked = []

    def results(self, sizes):
        self.asked.append(sizes)
        self.given = [self.driver.memory(b"") for _ in sizes]
        return self.given, [(self.work.index, BYTES, 1)]

    def capture(self, results=None, verify=0):
        return _C.capture(self.pool, self.work, [(self.x, BYTES, 1)], results or self.results,
                              "tested", False, verify, 0)

    def test_results_are_arguments_of_the_graph(self):
        graph = self.capture()
        self.assertEqual(self.asked, [[BYTES, BYTES]])
        self.assertEqual([len(a) for a in self.work.runs], [1, 3])
        self.assertTrue(self.work.in_place)
        self.assertEqual(graph.info()["blocks"], 1)
        self.assertEqual(graph.info()["diverged_blocks"], 0)
        for text in (b"one", b"two"):
            x, y, z = self.driver.memory(text), self.driver.memory(b""), self.driver.memory(b"")
            graph.replay(0, x, y, z)
            self.assertEqual((self.driver.text(y), self.driver.text(z)), (text, text))
        self.assertEqual([self.driver.text(g) for g in self.given], [b"", b""])

    def test_memory_that_malloc_gives_a_run_holds_nothing_of_an_earlier_one(self):
        libc, bytes_ = ctypes.CDLL(None), 30000
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc.free.argtypes = [ctypes.c_void_p]

        def left_over():
            """How many bytes of new blocks are not zero; of each they are once it is freed."""
            found = 0
            for _ in range(20):
                block = libc.malloc(bytes_)
                found += bytes_ - ctypes.string_at(block, bytes_).count(0)
                ctypes.memset(block, 0x5a, bytes_)
                libc.free(block)
            return found

        run, found = self.work, []

        def looking(stream, addresses):
            found.append(left_over())
            run(stream, addresses)
            found.append(left_over())

        self.assertGreater(left_over(), 0)  # what the setting is there for
        self.work = mock.Mock(side_effect=looking)
        type(self.work).index = property(lambda _: run.index)
        self.capture()
        self.assertEqual(found, [0] * 4)
        self.assertGreater(left_over(), 0)
        found.clear()  # what fills fresh memory slows a run down, so it is left out where tables lie elsewhere
        _C.tables_lie_on_heap(False)
        self.addCleanup(_C.tables_lie_on_heap, True)
        self.capture()
        self.assertGreater(found[-1], 0)

    def test_work_behind_its_replay_is_over_when_a_graph_goes(self):
        """Its memory goes with it, and an optimizer may be at work on gradients there."""
        for replays, lends in ((False, True), (True, False), (True, True)):
            graph = self.capture()
            if replays:
                graph.replay(0, self.x, *self.given)
            if lends:
                graph.lend()
            trace = Trace()
            del graph
            calls = trace.calls()
            self.assertEqual(calls["cuStreamIsCapturing"] > 0, replays and lends)
            self.assertEqual(calls["cuStreamSynchronize"] > 0, replays and lends)
            self.work.runs = []

    def test_a_place_of_no_argument_is_refused(self):
        for wrong in (3, -1):
            with self.assertRaisesRegex(ValueError, "a place is of argument"):
                self.capture(lambda sizes: (self.results(sizes)[0], [(self.work.index, BYTES, wrong)]))
            self.work.runs = []
            with self.assertRaisesRegex(ValueError, "a place is of argument"):
                self.capture([(0, BYTES, wrong)])

    def test_results_that_are_known_are_arguments_from_the_start(self):
        self.capture()
        self.work.runs = []
        y, z = self.driver.memory(b""), self.driver.memory(b"")
        graph = _C.capture(self.pool, self.work, [(self.x, BYTES, 1), (y, BYTES, 2), (z, BYTES, 2)],
                           [(self.work.index, BYTES, 1)], "tested", False)
        self.assertEqual([len(a) for a in self.work.runs], [3, 3])
        self.assertTrue(self.work.in_place)
        graph.replay(0, self.x, y, z)
        self.assertEqual((self.driver.text(y), self.driver.text(z)), (b"captured", b"captured"))
        with self.assertRaises(TypeError):
            _C.capture(self.pool, self.work, [(self.x, BYTES, 1)], [(0, "x", 1)], "tested", False)

    def test_an_allocation_asks_the_driver_once(self):
        asked = []

        def work(stream, addresses):
            other = self.work.allocator.alloc(stream)
            before = Trace()
            for _ in range(10):
                self.allocator.free(self.allocator.alloc(stream), stream)
            asked.append(before.calls())
            self.driver.copy(other, addresses[0], stream)
            self.allocator.free(other, stream)

        _C.capture(self.pool, work, [(self.x, BYTES, 1)], lambda sizes: ([], []), "tested", False)
        self.assertEqual(asked, [{"cuStreamGetCaptureInfo": 20}] * 2)

    def test_memory_beside_the_arguments(self):
        held, other = self.allocator.alloc(None), self.allocator.alloc(None)

        def work(stream, addresses):
            self.driver.copy(addresses[0], held, stream)

        graph = _C.capture(self.pool, work, [(self.x, BYTES, 2)], lambda sizes: ([], []), "tested",
                           False)
        self.assertEqual(graph.info()["outside_blocks"], 1)
        self.allocator.free(other, None)
        self.assertFalse(graph.is_stale())
        graph.replay(0, self.x)
        self.driver.cuCtxSynchronize()
        self.allocator.free(held, None)
        self.assertTrue(graph.is_stale())
        self.assertEqual(graph.info()["lost_bytes"], BYTES)
        with self.assertRaisesRegex(_C.Error, f"'tested' uses {BYTES} bytes .* was freed") as caught:
            graph.replay(0, self.x)
        self.assertEqual(caught.exception.status, "RP_ERROR_CONTRACT")

    def test_a_name_that_is_too_long_is_cut(self):
        """In the midst of a letter, maybe."""
        for name in ("я" * 300, "a" + "я" * 300):
            held = self.allocator.alloc(None)
            graph = _C.capture(self.pool, lambda stream, a: self.driver.copy(a[0], held, stream),
                               [(self.x, BYTES, 2)], lambda sizes: ([], []), name, False)
            self.allocator.free(held, None)
            with self.assertRaises(_C.Error) as caught:
                graph.replay(0, self.x)
            self.assertIn("я" * 20, str(caught.exception))
            self.assertEqual(caught.exception.status, "RP_ERROR_CONTRACT")

    def test_verified_by_running(self):
        graph = self.capture(verify=2)
        self.assertEqual(len(self.asked), 1)
        self.assertEqual(graph.info()["verified"], "run")

    def test_an_estimate_asks_too(self):
        estimate = _C.Estimate()
        estimate.add(self.pool, self.work, [(0, BYTES, 1)],
                     lambda sizes: ([0] * len(sizes), [(self.work.index, BYTES, 1)]), "tested")
        self.assertEqual([len(a) for a in self.work.runs], [1, 3])
        graph = self.capture()
        self.assertEqual(graph.info()["rehearsals"], 1)
        self.assertEqual(self.pool.info()["planned_bytes"], estimate.info()["planned_bytes"])

    def test_what_is_raised_comes_out(self):
        for self.work.raises in (1, 2):
            self.work.runs = []
            with self.assertRaisesRegex(KeyError, "mine"):
                self.capture()

        def no_memory(sizes):
            raise MemoryError("none")

        self.work.raises = None
        self.assertRaises(MemoryError, self.capture, no_memory)
        self.assertRaises(TypeError, self.capture, lambda sizes: 7)
        self.assertRaises(TypeError, self.capture, lambda sizes: (["x", 0], []))
        self.assertRaises(ValueError, self.capture, lambda sizes: ([0], []))
        self.assertEqual(_C.call_counts()[0], 0)
        with self.assertRaisesRegex(RuntimeError, "no call is under way"):
            _C.call_result(8, 0)
        self.capture()


if __name__ == "__main__":
    unittest.main()
