# SPDX-License-Identifier: MIT
"""PyTorch's memory tools, as programs and people use them, with PyTorch's own allocator and with Reprise's
in its place: what they say is the same; usage: gpu_allocator.py [--install] ..."""

import gc
import sys
import threading
import unittest

import torch

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    import reprise
    reprise.install()

MIB = 1 << 20


def of_bytes(count):
    return torch.empty(count, dtype=torch.uint8, device="cuda")


class Case(unittest.TestCase):
    def setUp(self):
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


class Shortage(Case):
    """Where there is no memory."""

    def limit(self, more):
        """Lets the allocator have so many bytes more than it holds."""
        total = torch.cuda.mem_get_info()[1]
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + more) / total)

    def test_text_has_the_parts_that_are_matched(self):
        with self.assertRaisesRegex(
                torch.OutOfMemoryError,
                r"^CUDA out of memory\. Tried to allocate 800000000\.00 GiB\. GPU 0 has a total capacity of "
                r"[\d.]+ GiB of which [\d.]+ GiB is free\. .*Of the allocated memory [\d.]+ \w+ is allocated "
                r"by PyTorch, .*and [\d.]+ \w+ is reserved by PyTorch but unallocated\. "):
            of_bytes(800000000 << 30)

    def test_text_names_sizes_in_their_units(self):
        self.limit(4 * MIB)
        for count, text in ((600 * MIB, "600.00 MiB"), (1 << 30, "1024.00 MiB"), (3 << 29, "1.50 GiB"),
                            (12 * MIB, "12.00 MiB")):
            with self.assertRaisesRegex(torch.OutOfMemoryError, f"Tried to allocate {text}. "):
                of_bytes(count)

    def test_text_says_what_a_fraction_allows(self):
        keep = of_bytes(3 * MIB)
        self.limit(0)
        allowed = torch.cuda.memory_reserved() / MIB
        with self.assertRaisesRegex(torch.OutOfMemoryError, f"is free. .*{allowed:.2f} MiB allowed; .*Of the "
                                                            "allocated memory 3.00 MiB is allocated"):
            of_bytes(64 * MIB)
        del keep

    def test_text_names_the_memory_of_graphs(self):
        graph, x = torch.cuda.CUDAGraph(), torch.zeros(MIB, device="cuda")
        with torch.cuda.graph(graph):
            y = x + 1
        with self.assertRaisesRegex(torch.OutOfMemoryError,
                                    r"with [\d.]+ MiB allocated in private pools \(e\.g\., CUDA Graphs\)"):
            of_bytes(1 << 50)
        del graph, y
        gc.collect()

    def test_nothing_is_of_an_exabyte(self):
        with self.assertRaisesRegex(torch.OutOfMemoryError, "Tried to allocate more than 1EB memory"):
            of_bytes(8000000000 << 30)

    def test_observers_are_told(self):
        seen = []
        torch._C._cuda_attach_out_of_memory_observer(lambda *told: seen.append(told))
        with self.assertRaises(torch.OutOfMemoryError):
            of_bytes(1 << 50)
        total = torch.cuda.mem_get_info()[1]
        self.assertEqual([told[:2] for told in seen], [(0, 1 << 50)])
        self.assertEqual(seen[0][2], total)
        self.assertLessEqual(seen[0][3], total)
        self.limit(32 * MIB)
        with self.assertRaises(torch.OutOfMemoryError):
            of_bytes(1 << 40)
        self.assertEqual(len(seen), 2)
        self.assertAlmostEqual(seen[1][2], torch.cuda.memory_reserved() + 32 * MIB, delta=MIB)

    def test_observers_of_other_threads_requests(self):
        seen, caught = [], []
        torch._C._cuda_attach_out_of_memory_observer(lambda *told: seen.append(threading.get_ident()))

        def ask():
            try:
                of_bytes(1 << 50)
            except torch.OutOfMemoryError:
                caught.append(threading.get_ident())
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(len(caught), 4)
        self.assertEqual(sorted(seen), sorted(caught))

    def test_frees_what_is_cached_and_tries_again(self):
        self.limit(64 * MIB)
        parts = [of_bytes(16 * MIB) for _ in range(3)]
        retries = torch.cuda.memory_stats()["num_alloc_retries"]
        del parts[1]  # a hole that is too small, and cached
        with self.assertRaises(torch.OutOfMemoryError):
            of_bytes(60 * MIB)
        del parts
        self.assertEqual(of_bytes(60 * MIB).numel(), 60 * MIB)
        self.assertGreater(torch.cuda.memory_stats()["num_alloc_retries"], retries)

    def test_a_program_recovers(self):
        self.limit(64 * MIB)
        cycle = [of_bytes(40 * MIB)]
        cycle.append(cycle)
        del cycle
        try:
            of_bytes(40 * MIB)
            self.skipTest("the cycle was collected")
        except torch.OutOfMemoryError:
            gc.collect()
            torch.cuda.empty_cache()
        self.assertEqual(of_bytes(40 * MIB).numel(), 40 * MIB)

    def test_counts_them(self):
        before = torch.cuda.memory_stats()["num_ooms"]
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            of_bytes(1 << 50)
        self.assertEqual(torch.cuda.memory_stats()["num_ooms"], before + 1)

    def test_no_fraction_is_no_memory(self):
        self.limit(0)
        torch.cuda.set_per_process_memory_fraction(0.0)
        self.assertEqual(torch.cuda.get_per_process_memory_fraction(), 0.0)
        with self.assertRaises(torch.OutOfMemoryError):
            of_bytes(64 * MIB)


if __name__ == "__main__":
    unittest.main(verbosity=2)
