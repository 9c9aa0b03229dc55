# SPDX-License-Identifier: MIT
"""Python's memory runs out, at each allocation in turn: the extension raises MemoryError, or what the
callable made of that, and goes on afterwards as if nothing had been asked of it."""

import gc
import unittest

from on_host import BYTES, OnHost
from reprise import _C

try:
    import _testcapi
except ImportError:
    _testcapi = None

MOST = 2000  # allocations of one operation


@unittest.skipIf(_testcapi is None, "this Python has no _testcapi, which makes allocations fail")
class Exhausted(OnHost):
    def setUp(self):
        super().setUp()
        self.x, self.y = self.driver.memory(b"x"), self.driver.memory(b"")
        self.collects = gc.isenabled()
        gc.disable()

    def tearDown(self):
        if self.collects:
            gc.enable()

    def exhaust(self, operation, *args):
        """The result of the operation, once it had all the memory it wanted."""
        for n in range(MOST):
            error = None
            _testcapi.set_nomemory(n, n + 1)
            try:
                result = operation(*args)
            except BaseException as raised:
                error = raised
            finally:
                _testcapi.remove_mem_hooks()
            if error is None:
                return result
            self.assertIn("MemoryError", repr(error))  # ctypes has it in an error of its own
        self.fail(f"it fails whatever it gets: {error!r}")

    def work(self, stream, addresses):
        self.driver.copy(addresses[1], addresses[0], stream)

    def capture(self, pool):
        args = [(self.x, BYTES, 1), (self.y, BYTES, 2)]
        return _C.capture(pool, self.work, args, [], "tested", False)

    def test_captures(self):
        graph = self.exhaust(self.capture, self.pool)
        self.exhaust(graph.replay, 0, self.x, self.y)
        self.assertEqual(self.driver.text(self.y), b"x")
        self.assertEqual(self.pool.info()["graphs"], 1, "those of the failed ones are gone")

    def test_what_tensors_lie_in_stays(self):
        """Of a graph and a pool that go: there is no memory to write down that they are to go later."""
        kept = []

        def work(stream, addresses):
            while kept:  # of the rehearsal
                self.allocator.free(kept.pop(), stream)
            kept.append(self.allocator.alloc(stream))
            self.driver.copy(kept[0], addresses[0], stream)
        graph = _C.capture(self.pool, work, [(self.x, BYTES, 1)], [], "tested", False)
        graph.replay(0, self.x)
        _testcapi.set_nomemory(0)
        del graph
        _testcapi.remove_mem_hooks()
        del self.pool
        self.assertEqual(self.driver.text(kept[0]), b"x")
        self.allocator.free(kept[0], None)
        _C.sweep()

    def test_facts(self):
        graph = self.capture(self.pool)
        choice = _C.Choice(_C.Judge(0))
        for ask in (self.pool.info, graph.info, lambda: graph.arg_info(0), choice.info, _C.leases,
                    lambda: _C.heap_stats(0), lambda: _C.heap_snapshot(0), lambda: _C.exec_info(0),
                    lambda: _C.device_info(0), _C.hooks):
            self.assertIsNotNone(self.exhaust(ask))

    def test_objects(self):
        for make in (lambda: _C.Pool(0, "made"), lambda: _C.Judge(0), _C.Estimate,
                     lambda: _C.Choice(_C.Judge(0))):
            self.assertIsNotNone(self.exhaust(make))


if __name__ == "__main__":
    unittest.main()
