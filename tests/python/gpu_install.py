# SPDX-License-Identifier: MIT
"""reprise.install() on a GPU: Reprise's heap under an ordinary PyTorch program."""

import ctypes
import gc
import subprocess
import sys
import time
import unittest
from unittest import mock

import torch

import reprise

reprise.install()


def largest_block():
    """c10::cuda::CUDACachingAllocator::cacheInfo of device 0."""
    own = ctypes.CDLL("libtorch_cuda.so")
    name = "N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"
    table = ctypes.addressof(ctypes.c_void_p.in_dll(own, f"_ZTV{name}E"))
    function = ctypes.cast(getattr(own, f"_Z{name}9cacheInfoEaPm"), ctypes.c_void_p).value
    words = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
    slot = next(i for i in range(2, 200) if words[i] == function) - 2
    allocator = ctypes.c_void_p.in_dll(ctypes.CDLL("libc10_cuda.so"), "_ZN3c104cuda20CUDACachingAllocator9allocatorE")
    methods = ctypes.cast(ctypes.cast(allocator.value, ctypes.POINTER(ctypes.c_void_p))[0],
                          ctypes.POINTER(ctypes.c_void_p))
    found = ctypes.c_size_t()
    ask = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int8, ctypes.c_void_p)(methods[slot])
    ask(allocator, 0, ctypes.byref(found))
    return found.value


class Memory(unittest.TestCase):
    def setUp(self):
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def test_counts_what_is_allocated(self):
        before = torch.cuda.memory_allocated()
        tensor = torch.empty(1 << 20, device="cuda")
        self.assertEqual(torch.cuda.memory_allocated() - before, 4 << 20)
        self.assertGreaterEqual(torch.cuda.memory_reserved(), torch.cuda.memory_allocated())
        del tensor
        self.assertEqual(torch.cuda.memory_allocated(), before)

    def test_keeps_and_resets_peaks(self):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
        self.assertEqual(torch.cuda.max_memory_allocated() - before, 8 << 20)
        torch.cuda.reset_peak_memory_stats()
        self.assertEqual(torch.cuda.max_memory_allocated(), before)

    def test_statistics_have_pytorchs_names(self):
        stats = torch.cuda.memory_stats()
        for name in ("allocated_bytes.all.current", "reserved_bytes.large_pool.peak",
                     "active.small_pool.allocated", "num_alloc_retries", "num_ooms"):
            self.assertIn(name, stats)
        self.assertIn("PyTorch CUDA memory summary", torch.cuda.memory_summary())

    def test_snapshot_holds_the_tensor(self):
        tensor = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
        blocks = [b for s in torch.cuda.memory_snapshot() for b in s["blocks"]
                  if b["state"] == "active_allocated" and b["address"] == tensor.data_ptr()]
        self.assertEqual([b["requested_size"] for b in blocks], [3 << 20])

    def test_out_of_memory_is_what_users_catch(self):
        with self.assertRaises(torch.OutOfMemoryError) as caught:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        self.assertIn("CUDA out of memory", str(caught.exception))
        self.assertEqual(torch.ones(3, device="cuda").sum().item(), 3)

    def test_fraction_limits(self):
        torch.cuda.set_per_process_memory_fraction(0.05)
        try:
            with self.assertRaises(torch.OutOfMemoryError):
                keep = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(64)]
                del keep
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        gc.collect()
        torch.empty(1 << 30, dtype=torch.uint8, device="cuda")

    def test_empty_cache_gives_back(self):
        tensor = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        del tensor
        held = torch.cuda.memory_reserved()
        torch.cuda.empty_cache()
        self.assertLessEqual(torch.cuda.memory_reserved(), held - (256 << 20))

    def test_record_stream_keeps_memory_until_the_stream_is_done(self):
        side = torch.cuda.Stream()
        tensor = torch.full((1 << 20,), 7, dtype=torch.int32, device="cuda")
        address = tensor.data_ptr()
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.default_stream())
            torch.cuda._sleep(200_000_000)
            copy = tensor.clone()
        tensor.record_stream(side)
        del tensor
        other = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
        self.assertNotEqual(other.data_ptr(), address)
        torch.cuda.synchronize()
        self.assertTrue((copy == 7).all().item())

    def test_training_gives_the_same_numbers(self):
        def train():
            torch.manual_seed(0)
            net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(),
                                      torch.nn.Linear(64, 1)).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(20):
                optimizer.zero_grad()
                loss = net(torch.randn(32, 64, device="cuda")).square().mean()
                loss.backward()
                optimizer.step()
            return loss.item()
        self.assertEqual(train(), train())

    def test_pytorchs_own_graphs_keep_their_memory(self):
        x = torch.zeros(1 << 16, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = (x + 1) * 2
        others = [torch.full((1 << 16,), 9.0, device="cuda") for _ in range(64)]
        x.fill_(3)
        graph.replay()
        torch.cuda.synchronize()
        self.assertTrue((y == 8).all().item())
        self.assertTrue(all((o == 9).all().item() for o in others))
        del graph, y
        gc.collect()
        torch.cuda.empty_cache()

    def test_tells_how_large_a_workspace_may_be(self):
        """What cuDNN's benchmark asks, of the allocator's C++ object."""
        taken = torch.cuda.mem_get_info()[0] // 4  # so much that other programs hardly matter

        def told():
            """Of an idle heap, beside a block, and behind it; the device's free memory as the first is told."""
            torch.cuda.empty_cache()  # of what it was told of before
            free, before = torch.cuda.mem_get_info()[0], largest_block()
            kept = torch.empty(taken, dtype=torch.uint8, device="cuda")
            beside = largest_block()
            del kept  # the heap would give it back
            return before - free, before - beside, before - largest_block()
        for _ in range(100):  # other programs may take memory in between
            above, lost, left = told()
            if max(abs(above), abs(lost - taken), abs(left)) < taken // 4:
                break
            time.sleep(0.2)
        else:
            self.fail(f"not told of memory: {above}, {lost}, {left}")
        torch.cuda.set_per_process_memory_fraction(0.1)
        try:
            self.assertLess(largest_block(), torch.cuda.mem_get_info()[1] * 0.1)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    def test_trials_run_eagerly_before_a_shape_is_captured(self):
        """Each shape's, and each thread's."""
        call = reprise.graphed(lambda x: x * 2)
        with torch.backends.cudnn.flags(enabled=True, benchmark=True), \
                mock.patch.object(type(call), "_eager_here", autospec=True,
                                  side_effect=type(call)._eager_here) as eagerly:
            for size in (4, 8, 16, 8, 16):
                for _ in range(3):
                    self.assertEqual(call(torch.ones(size, device="cuda")).tolist(), [2.0] * size)
            self.assertEqual(eagerly.call_count, 3)
            self.assertEqual(len(call.shapes()), 3)
            shapes = [(torch.ones(size, device="cuda"),) for size in (4, 8)]
            reprise.graphed(lambda x: x * 3, shapes=shapes)
            self.assertEqual(eagerly.call_count, 3 + 2)

    @unittest.skipUnless(torch.backends.cudnn.enabled, "needs cuDNN")
    def test_cudnns_benchmark(self):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Conv2d(8, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 8, 5)).cuda()
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            call = reprise.graphed(net)
            for size in (2, 4, 8):
                x = torch.randn(size, 8, 32, 32, device="cuda")
                with torch.no_grad():
                    for _ in range(3):
                        torch.testing.assert_close(call(x), net(x), rtol=1e-3, atol=1e-3)
            self.assertEqual(len(call.shapes()), 3)
            step = reprise.graphed(lambda x: net(x).square().mean().backward())
            x = torch.randn(4, 8, 32, 32, device="cuda")
            for _ in range(3):
                net.zero_grad()
                step(x)
            found = [p.grad.clone() for p in net.parameters()]
            net.zero_grad()
            net(x).square().mean().backward()
            for grad, p in zip(found, net.parameters()):
                torch.testing.assert_close(grad, p.grad, rtol=1e-2, atol=1e-3)

    def test_installing_twice_does_nothing(self):
        reprise.install()
        self.assertTrue(reprise.is_installed())

    def test_installing_late_is_an_error(self):
        program = ("import torch; torch.zeros(1, device='cuda'); import reprise\n"
                   "try: reprise.install()\n"
                   "except RuntimeError as error: print(error)")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertIn("before the first use of CUDA", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
