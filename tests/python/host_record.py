# SPDX-License-Identifier: MIT
"""Work, the callable of one capture, on the host driver: PyTorch is played here, as far as a callable
goes that copies its argument to a result by way of a block."""

import contextlib
import types
import unittest
from unittest import mock

from reprise import _C
from reprise._capture import draws, record
from on_host import BYTES, OnHost


class Storage:
    def __init__(self, address, nbytes, free=lambda: None):
        self.address, self.bytes, self.free = address, nbytes, free

    def data_ptr(self):
        return self.address

    def nbytes(self):
        return self.bytes

    def resize_(self, size):
        self.bytes = size

    def __del__(self):
        self.free()


class Tensor:
    """Bytes; owned by its storage. It has no attributes of its own."""

    __slots__ = ("storage", "shape", "__weakref__")
    __dict__ = types.MappingProxyType({})
    dtype = "uint8"
    device = "cuda:0"
    layout = "strided"
    is_nested = retains_grad = False
    is_conj = is_neg = staticmethod(lambda: False)

    def __init__(self, storage):
        self.storage = storage
        self.shape = (storage.bytes,)

    def untyped_storage(self):
        return self.storage

    def data_ptr(self):
        return self.storage.address

    def numel(self):
        return self.shape[0]

    def stride(self):
        return (1,)

    def storage_offset(self):
        return 0

    def element_size(self):
        return 1


class Device(str):
    index = 0


class Event:
    def record(self):
        pass

    def wait(self):
        pass


def played(driver, stream):
    """What Work asks of torch; stream: tells the current one."""
    current = [(0, 0, 1)]

    def set_stream(stream_id, device_index, device_type):
        current[0] = (stream_id, device_index, device_type)
    return types.SimpleNamespace(
        __version__="2.11.0", Tensor=Tensor, uint8="uint8", strided="strided",
        nn=types.SimpleNamespace(Parameter=Tensor),
        empty=lambda n, dtype, device: Tensor(Storage(driver.memory(b""), n)),
        clear_autocast_cache=lambda: None, is_grad_enabled=lambda: False,
        is_inference_mode_enabled=lambda: False,
        cuda=types.SimpleNamespace(
            default_stream=lambda device: types.SimpleNamespace(
                stream_id=0, device_index=0, device_type=1),
            ExternalStream=lambda handle, device: types.SimpleNamespace(
                stream_id=handle, device_index=0, device_type=1, cuda_stream=handle),
            Stream=type("Stream", (), {}), Event=Event,
            get_rng_state=None, set_rng_state=None,
            current_device=lambda: 0, empty_cache=lambda: None, memory_snapshot=lambda *_: [],
            random=types.SimpleNamespace(get_rng_state=None, set_rng_state=None)),
        _C=types.SimpleNamespace(
            _cuda_clearCublasWorkspaces=lambda: None, _cuda_getCurrentRawStream=lambda index: stream(),
            _cuda_getCurrentStream=lambda index: current[0], _cuda_setStream=set_stream,
            _cuda_beginAllocateToPool=lambda *_: None,
            _cuda_beginAllocateCurrentThreadToPool=lambda *_: None, _cuda_endAllocateToPool=lambda *_: None,
            _cuda_releasePool=lambda *_: None,
            _construct_storage_from_data_pointer=lambda *_: None,
            _construct_CUDA_Tensor_From_Storage_And_Metadata=lambda *_: None,
            _cuda_customAllocator=lambda *_: None))


class Recording(OnHost):
    def setUp(self):
        super().setUp()
        self.stream = 0  # of the run under way
        self.runs = 0
        self.installed = True
        driver = self.driver

        for name, value in (
                ("is_installed", lambda: self.installed),
                ("segment_pool", lambda torch, owner: types.SimpleNamespace(id=(0, 1))),
                ("tensor_at", lambda torch, at, n, device, like: Tensor(Storage(at, n)))):
            patcher = mock.patch.object(record, name, value)
            self.addCleanup(patcher.stop)
            patcher.start()
        # There is no autograd here.
        patcher = mock.patch.object(record.Work, "_pass_through_autograd", lambda work: None)
        self.addCleanup(patcher.stop)
        patcher.start()
        for owner, name in ((draws, "prepare"), (draws, "in_order"),
                            (record.stack, "prepare")):
            patcher = mock.patch.object(owner, name, lambda *_: contextlib.nullcontext())
            self.addCleanup(patcher.stop)
            patcher.start()
        self.x = Tensor(Storage(driver.memory(b"captured"), BYTES))
        self.work = record.Work(played(driver, lambda: self.stream), Device("cuda:0"), self.body, [self.x], (),
                                 draws=False)
        inner = self.work.run

        def run(stream, addresses):
            self.stream = stream
            self.runs += 1
            inner(stream, addresses)
        self.work.run = run

    def new(self):
        """A tensor of the run's: a block while it is captured, memory of its own where it is not."""
        stream = self.stream
        address = self.allocator.alloc(stream)
        return Tensor(Storage(address, BYTES, lambda: self.allocator.free(address, stream)))

    def body(self, tensors):
        between, result = self.new(), self.new()
        self.driver.copy(between.data_ptr(), tensors[0].data_ptr(), self.stream)
        self.driver.copy(result.data_ptr(), between.data_ptr(), self.stream)
        return result

    def captured(self, verify=None):
        graph = self.work.capture(self.pool, "tested", verify=verify)
        self.assertEqual(self.work.outputs, [BYTES])
        self.assertEqual(self.work.runs, [])
        for text in (b"one", b"two"):
            x, y = self.driver.memory(text), self.driver.memory(b"")
            graph.replay(0, x, y)
            self.assertEqual(self.driver.text(y), text)
        self.assertEqual(_C.call_counts()[0], 0)
        return graph.info()

    def test_twice_under_install(self):
        info = self.captured()
        self.assertEqual(self.runs, 2)
        self.assertEqual((info["nodes"], info["blocks"], info["diverged_blocks"]), (2, 1, 0))

    def test_the_cache_is_emptied_behind_the_last_capture_of_a_shape(self):
        emptied = []
        self.work.torch.cuda.empty_cache = lambda: emptied.append(1)
        self.work.estimate(_C.Estimate(), self.pool, "tested")
        self.assertEqual(len(emptied), 0)
        self.work.follows = True
        self.captured()
        self.assertEqual(len(emptied), 0)
        self.work.follows = False
        self.captured()
        self.assertEqual(len(emptied), 1)

    def test_what_a_run_leaves_behind_is_put_back(self):
        """As a backward pass leaves gradients, and would add to those that are there."""
        original, left = self.body, []

        def body(tensors):
            result = original(tensors)
            if not left:
                left.append(self.new())
            self.driver.copy(left[0].data_ptr(), tensors[0].data_ptr(), self.stream)
            return result
        self.work.body = body
        with self.assertRaisesRegex(RuntimeError, "kept an address from one call to the next"):
            self.work.capture(self.pool, "tested")
        left.clear()
        self.addCleanup(left.clear)
        self.work.put_back = left.clear
        graph = self.work.capture(self.pool, "tested")
        x, y = self.driver.memory(b"one"), self.driver.memory(b"")
        graph.replay(0, x, y)
        self.assertEqual((self.driver.text(y), self.driver.text(left[0].data_ptr())), (b"one", b"one"))

    def test_a_result_that_somebody_keeps_is_copied(self):
        """As a module keeps what it returned last: that is found out by a rehearsal more."""
        original, kept = self.body, []

        def body(tensors):
            kept[:] = [original(tensors)]
            return kept[0]
        self.work.body = body
        self.work.put_back = kept.clear
        self.addCleanup(kept.clear)
        estimate = _C.Estimate()
        self.work.estimate(estimate, self.pool, "tested")
        self.assertEqual(self.runs, 3)  # one finds it out, and two make an estimate
        kept.clear()
        self.work.held.clear()
        for verify, runs in ((None, 3), ("capture", 5)):
            kept.clear()
            self.work.held.clear()
            self.runs = 0
            graph = self.work.capture(self.pool, "tested", verify=verify)
            self.assertEqual(self.runs, runs)
            for text in (b"one", b"two"):
                x, y = self.driver.memory(text), self.driver.memory(b"")
                graph.replay(0, x, y)
                self.assertEqual((self.driver.text(y), self.driver.text(kept[0].data_ptr())),
                                 (text, text))
            info = graph.info()
            self.assertEqual((info["nodes"], info["blocks"], info["diverged_blocks"]), (3, 2, 0))
            self.assertEqual(info["planned_bytes"], estimate.info()["planned_bytes"])

    def test_without_install_the_result_is_copied(self):
        self.installed = False
        info = self.captured()
        self.assertEqual(self.runs, 2)
        self.assertEqual((info["nodes"], info["blocks"], info["diverged_blocks"]), (3, 2, 0))

    def test_what_is_verified_is_found_out_before(self):
        info = self.captured("capture")
        self.assertEqual(self.runs, 4)
        self.assertEqual((info["verified"], info["unverified_args"]), ("capture", 0))

    def test_an_estimate_knows_the_results(self):
        estimate = _C.Estimate()
        self.work.estimate(estimate, self.pool, "tested")
        info = self.captured()
        self.assertEqual(info["planned_bytes"], estimate.info()["planned_bytes"])

    def test_other_results_are_refused(self):
        original = self.body

        def body(tensors):
            first = original(tensors)
            return first if self.runs == 1 else (first, self.new())
        self.work.body = body
        with self.assertRaisesRegex(RuntimeError, "returned other tensors"):
            self.work.capture(self.pool, "tested")


class InUse(unittest.TestCase):
    """What is said of an address that stands in both captures of a step."""

    def setUp(self):
        self.asked = []
        blocks = [{"address": 0x1000, "size": 0x200, "state": "active_allocated"},
                  {"address": 0x1200, "size": 0x200, "state": "inactive"},
                  {"address": 0x1400, "size": 0x200, "state": "active_awaiting_free"}]

        def snapshot():
            self.asked.append(1)
            return [{"address": 0x1000, "total_size": 0x600, "blocks": blocks}]
        self.work = record.Work.__new__(record.Work)
        self.work.torch = types.SimpleNamespace(cuda=types.SimpleNamespace(memory_snapshot=snapshot))
        self.work.active = None

    def told(self, installed, captured=True):
        with mock.patch.object(record, "is_installed", lambda: installed), \
                mock.patch.object(record._C, "is_captured", lambda address: captured):
            return [self.work._is_in_use(address)
                    for address in (0xfff, 0x1000, 0x11ff, 0x1200, 0x1400, 0x1600)]

    def test_pytorch_is_asked_once_where_it_places_tensors(self):
        self.assertEqual(self.told(False), [False, True, True, False, True, False])
        self.assertEqual(len(self.asked), 1)

    def test_it_is_not_where_blocks_are_tensors_or_nobody_has_it(self):
        self.assertEqual(self.told(True), [True] * 6)
        for installed in (False, True):
            self.assertEqual(self.told(installed, captured=False), [False] * 6)
        self.assertEqual(self.asked, [])


if __name__ == "__main__":
    unittest.main()
