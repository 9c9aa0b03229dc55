# SPDX-License-Identifier: MIT
"""reprise.graph around a torch.cuda.graph that is played here: what it passes on and puts back."""

import types
import unittest
from unittest import mock

from reprise import _C
from reprise._alloc import pool as _pool
from reprise._capture import draws, once, record


class Inner:
    """torch.cuda.graph as reprise.graph sees it."""

    fails = ""
    made = []

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        self.given = (cuda_graph, pool, stream, capture_error_mode)
        self.capture_stream = stream
        Inner.made.append(self)

    def __enter__(self):
        Fake.streams.append("capture")
        if Inner.fails == "begin":
            raise RuntimeError("already owns a captured graph")

    def __exit__(self, *args):
        if Inner.fails == "end":
            raise RuntimeError("capture invalidated")
        Fake.streams.append(Fake.streams[0])


def stream_of(index):
    return types.SimpleNamespace(device=types.SimpleNamespace(index=index))


class Caller(str):
    """The stream that is current around a capture."""

    def __init__(self, _):
        self.waited = []

    def wait_stream(self, stream):
        self.waited.append(stream)


class Fake:
    """What is asked of torch."""

    version = "2.11.0"
    current = 0
    streams = [Caller("caller")]
    cleared = 0
    ended, released = [], []

    @staticmethod
    def module():
        def clear():
            Fake.cleared += 1
        return types.SimpleNamespace(
            __version__=Fake.version,
            cuda=types.SimpleNamespace(graph=Inner, current_stream=lambda: Fake.streams[-1],
                                       set_stream=Fake.streams.append,
                                       graph_pool_handle=lambda: (0, 77),
                                       current_device=lambda: Fake.current,
                                       default_generators=["first", "second"]),
            device=lambda kind, index: index,
            _C=types.SimpleNamespace(
                _cuda_clearCublasWorkspaces=clear,
                _construct_storage_from_data_pointer=lambda *_: None,
                _construct_CUDA_Tensor_From_Storage_And_Metadata=lambda *_: None,
                _cuda_endAllocateToPool=lambda *pool: Fake.ended.append(pool),
                _cuda_releasePool=lambda *pool: Fake.released.append(pool)))


class Drop(unittest.TestCase):
    def setUp(self):
        torch = Fake.module()
        Fake.streams[:] = [Caller("caller")]
        Fake.cleared = Fake.current = 0
        Fake.ended.clear()
        Fake.released.clear()
        self.mended = self.patch(draws.Beside, "mend", mock.MagicMock())
        self.patch(draws, "prepare", mock.MagicMock())
        self.patch(once, "side_stream", lambda torch, index: stream_of(index))
        self.patch(draws.Capture, "_new_graph", mock.MagicMock())
        Inner.fails = ""
        self.installed = False
        for module in (once, _pool):
            self.patch(module, "need_gpu", lambda: torch)
        for module in (once, _pool, record, draws):
            self.patch(module, "is_installed", lambda: self.installed)

    def patch(self, module, name, value):
        patcher = mock.patch.object(module, name, value)
        self.addCleanup(patcher.stop)
        return patcher.start()

    def test_passes_all_arguments_on(self):
        with once.graph("g", (0, 5), capture_error_mode="relaxed") as entered:
            self.assertEqual(Fake.streams[-1], "capture")
        self.assertIsNone(entered)
        self.assertEqual(Inner.made[-1].given, ("g", (0, 5), once._side_streams[0], "relaxed"))
        self.assertEqual(Fake.streams[-1], "caller")
        self.assertEqual(Fake.streams[-1].waited, [once._side_streams[0]])
        self.assertEqual(Fake.cleared, 0)

    def test_each_device_has_a_stream_of_its_own(self):
        for Fake.current in (0, 1, 0, 1):
            once.graph("g")
        streams = [inner.capture_stream for inner in Inner.made[-4:]]
        self.assertEqual([s.device.index for s in streams], [0, 1, 0, 1])
        self.assertIs(streams[1], streams[3])
        mine = stream_of(2)
        once.graph("g", stream=mine)
        self.assertIs(Inner.made[-1].capture_stream, mine)

    def test_workspaces_are_of_the_capture(self):
        self.installed = True
        with once.graph("g"):
            self.assertEqual(Fake.cleared, 1)
        self.assertEqual(Fake.cleared, 2)

    def test_a_failure_puts_the_stream_back(self):
        for installed in (False, True):
            for Inner.fails in ("begin", "end"):
                self.installed = installed
                with self.assertRaises(RuntimeError):
                    with once.graph("g"):
                        pass
                self.assertEqual(Fake.streams[-1], "caller")
        # PyTorch's allocator is told that the capture is over; the hooks know it of themselves.
        self.assertEqual(Fake.ended, [(0, (0, 77))] * 2)
        self.assertEqual(Fake.released, Fake.ended)
        self.assertEqual(self.mended.call_count, 4)

    def test_what_the_block_raises_comes_out(self):
        with self.assertRaises(KeyError):
            with once.graph("g"):
                raise KeyError("mine")

    def test_a_pool_goes_by_its_handle(self):
        pool = object.__new__(_pool.Pool)
        pool._handle, pool.device, pool.name = None, 0, "mine"
        once.graph("g", pool=pool)
        self.assertEqual(Inner.made[-1].given[1], (0, 77))
        pool.device = 1
        with self.assertRaisesRegex(ValueError, "'mine' is of device 1"):
            once.graph("g", pool=pool)


class Leases(unittest.TestCase):
    def test_there_are_none_without_captures(self):
        self.assertEqual(_C.leases(), [])
        _C.abandon()
        _C.sweep()
        with self.assertRaisesRegex(RuntimeError, "no pool of this id"):
            _C.draw_lease(0, 1, 2, "/tmp/nothing.svg")

    def test_only_pools_are_bound(self):
        with self.assertRaises(TypeError):
            _C.bind_pool(1, 2, object())


if __name__ == "__main__":
    unittest.main()
