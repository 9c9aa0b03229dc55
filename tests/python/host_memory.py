# SPDX-License-Identifier: MIT
"""Python's memory runs out, at each allocation in turn: the extension raises MemoryError, or what the
callable made of that, and goes on afterwards as if nothing had been asked of it."""

import gc
import unittest

from no_memory import exhaust, needs_it, without_memory
from on_host import BYTES, OnHost
from reprise import _C


@needs_it
class Exhausted(OnHost):
    def setUp(self):
        super().setUp()
        self.x, self.y = self.driver.memory(b"x"), self.driver.memory(b"")
        self.collects = gc.isenabled()
        gc.disable()

    def tearDown(self):
        if self.collects:
            gc.enable()

    def work(self, stream, addresses):
        self.driver.copy(addresses[1], addresses[0], stream)

    def capture(self, pool):
        args = [(self.x, BYTES, 1), (self.y, BYTES, 2)]
        return _C.capture(pool, self.work, args, [], "tested", False)

    def test_captures(self):
        graph = exhaust(self, self.capture, self.pool)
        exhaust(self, graph.replay, 0, self.x, self.y)
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
        held = [graph]
        del graph
        without_memory(held.clear)
        del self.pool
        self.assertEqual(self.driver.text(kept[0]), b"x")
        self.allocator.free(kept[0], None)
        _C.sweep()

    def test_facts(self):
        graph = self.capture(self.pool)
        choice = _C.Choice(_C.Judge(0))
        for ask in (self.pool.info, graph.info, lambda: graph.arg_info(0), choice.info, _C.leases,
                    lambda: _C.heap_stats(0), lambda: _C.heap_look(0, True, [""]),
                    lambda: _C.exec_info(0),
                    lambda: _C.device_info(0), _C.hooks):
            self.assertIsNotNone(exhaust(self, ask))

    def test_objects(self):
        for make in (lambda: _C.Pool(0, "made"), lambda: _C.Judge(0), _C.Estimate,
                     lambda: _C.Choice(_C.Judge(0))):
            self.assertIsNotNone(exhaust(self, make))


if __name__ == "__main__":
    unittest.main()
