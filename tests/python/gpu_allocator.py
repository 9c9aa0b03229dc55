# SPDX-License-Identifier: MIT
"""PyTorch's memory tools, as programs and people use them, with PyTorch's own allocator and with Reprise's
in its place: what they say is the same; usage: gpu_allocator.py [--install] ..."""

import ctypes
import gc
import inspect
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from pathlib import Path
from unittest import mock

import torch
from torch.cuda import _memory_viz as viz

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    import reprise
    reprise.install()

MIB = 1 << 20
PINNED = "record_pinned_host_memory" in inspect.signature(torch.cuda.memory._record_memory_history).parameters


def all_segments():
    """torch.cuda.memory_snapshot(), which PyTorch 2.11 does not survive some hundred times: its own lets go
    of the numbers that it is called with."""
    return torch.cuda.memory._snapshot()["segments"]


def of_bytes(count, value=None):
    made = torch.empty(count, dtype=torch.uint8, device="cuda")
    return made if value is None else made.fill_(value)


def comes(holds, seconds=20):
    """Does it hold, now or soon? Other programs on the device take memory and give it back."""
    until = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < until:
        time.sleep(0.1)
    return held


def mapped(pointer):
    """(begin, bytes) of the driver's allocation that a pointer is in, None where it is in none."""
    begin, size = ctypes.c_uint64(), ctypes.c_size_t()
    driver = ctypes.CDLL("libcuda.so.1")
    failed = driver.cuMemGetAddressRange_v2(ctypes.byref(begin), ctypes.byref(size), ctypes.c_uint64(pointer))
    return None if failed else (begin.value, size.value)


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
        allowed, held = torch.cuda.memory_reserved() / MIB, torch.cuda.memory_allocated() / MIB
        with self.assertRaisesRegex(torch.OutOfMemoryError, f"is free. .*{allowed:.2f} MiB allowed; .*Of the "
                                                            f"allocated memory {held:.2f} MiB is allocated"):
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



def start_recording(enabled="all", **options):
    torch.cuda.memory._record_memory_history(enabled, **options)


def stop_recording():
    torch.cuda.memory._record_memory_history(None)


def names_in(entry):
    return [frame["name"] for frame in entry.get("frames", ())]


class History(Case):
    """torch.cuda.memory._record_memory_history and _snapshot."""

    def setUp(self):
        super().setUp()
        self.addCleanup(stop_recording)

    def events(self):
        return torch.cuda.memory._snapshot()["device_traces"][0]

    def actions(self):
        """Those of blocks: how memory is mapped is each allocator's own."""
        return [e["action"] for e in self.events() if not e["action"].startswith("segment_")]

    def here(self):
        tensor = of_bytes(1000)
        return tensor

    def test_traces_tell_what_happened(self):
        start_recording(stacks="python")
        tensor = self.here()
        address = tensor.data_ptr()
        del tensor
        torch.cuda.empty_cache()
        with self.assertRaises(torch.OutOfMemoryError):
            of_bytes(1 << 50)
        torch.cuda.memory._snapshot()
        events = self.events()
        by_action = {e["action"]: e for e in events}
        mapped, alloc, asked, done, unmapped, oom, snapshot = events
        self.assertIn(mapped["action"], ("segment_alloc", "segment_map"))
        self.assertIn(unmapped["action"], ("segment_free", "segment_unmap"))
        self.assertEqual([e["action"] for e in (alloc, asked, done, oom, snapshot)],
                         ["alloc", "free_requested", "free_completed", "oom", "snapshot"])
        for event in (alloc, asked, done):
            self.assertEqual((event["addr"], event["size"], event["stream"]), (address, 1000, 0))
        self.assertEqual((mapped["addr"], mapped["size"]), (address, 2 * MIB))
        self.assertEqual(oom["size"], 1 << 50)
        self.assertGreater(oom["device_free"], 0)
        self.assertEqual(snapshot["addr"], 0)
        times = [e["time_us"] for e in events]
        self.assertEqual(times, sorted(times))
        self.assertEqual(len(by_action), 7)

    def test_stacks_are_pythons(self):
        start_recording(stacks="python")
        tensor = self.here()
        inner, outer = next(e for e in self.events() if e["action"] == "alloc")["frames"][:2]
        self.assertEqual((inner["name"], outer["name"]), ("of_bytes", "here"))
        lines = Path(__file__).read_text(encoding="utf-8").splitlines()
        self.assertEqual(Path(outer["filename"]), Path(__file__))
        self.assertIn("tensor = of_bytes(1000)", lines[outer["line"] - 1])
        blocks = [b for s in all_segments() for b in s["blocks"]
                  if b["address"] == tensor.data_ptr()]
        self.assertIn("here", names_in(blocks[0]))

    def test_stacks_of_cpp_and_of_scripts(self):
        @torch.jit.script
        def scripted():
            return torch.rand(311, 411, device="cuda")

        for stacks in ("all", "python"):
            start_recording(stacks=stacks, clear_history=True)
            tensor = scripted()
            text = json.dumps(torch.cuda.memory._snapshot())
            self.assertIn("scripted", text)
            self.assertEqual("::rand" in text, stacks == "all")
            del tensor

    def test_context_says_whose_stacks(self):
        def take():
            return of_bytes(600)

        def drop(holder):
            holder.clear()

        for context, alloc, free in (("all", True, True), ("alloc", True, False), ("state", False, False),
                                     (None, False, False)):
            start_recording(context=context, stacks="python", clear_history=True)
            holder = [take()]
            block = next(b for s in all_segments() for b in s["blocks"]
                         if b["address"] == holder[0].data_ptr())
            self.assertEqual("take" in names_in(block), context is not None, context)
            drop(holder)
            text = json.dumps(self.events())
            self.assertEqual("take" in text, alloc, context)
            self.assertEqual("drop" in text, free, context)
            torch.cuda.empty_cache()
            self.assertEqual("empty_cache" in json.dumps(self.events()), free, context)

    def test_stops_and_begins_again(self):
        start_recording()
        self.assertTrue(torch._C._cuda_isHistoryEnabled())
        self.here()
        stop_recording()
        self.assertFalse(torch._C._cuda_isHistoryEnabled())
        self.here()
        self.assertEqual(self.events(), [])
        start_recording(context=None)
        self.assertEqual(self.events(), [])

    def test_goes_on_where_it_is_changed(self):
        start_recording(context=None)
        self.here()
        start_recording(context=None)
        self.assertEqual(self.actions(), ["alloc", "free_requested", "free_completed"])
        start_recording(context=None, clear_history=True)
        self.assertEqual(self.actions(), [])

    def test_keeps_the_latest(self):
        start_recording(context=None, max_entries=5)
        for _ in range(20):
            self.here()
        self.assertEqual(self.actions(), ["free_requested", "free_completed", "alloc", "free_requested",
                                          "free_completed"])
        start_recording("state", context=None, clear_history=True)
        self.here()
        self.assertEqual(len(self.events()), 1)

    def test_skips_actions(self):
        for skipped in (["free_requested"], ["free_requested", "free_completed"], ["alloc"], [], None):
            start_recording(stacks="python", clear_history=True, skip_actions=skipped)
            self.here()
            self.assertEqual(self.actions(), [name for name in ("alloc", "free_requested", "free_completed")
                                              if name not in (skipped or ())], skipped)

    def test_metadata(self):
        start_recording(context=None)
        self.addCleanup(torch.cuda.memory._set_memory_metadata, "")
        for text in ("first \u00e9", "second", "first \u00e9"):
            torch.cuda.memory._set_memory_metadata(text)
            self.assertEqual(torch.cuda.memory._get_memory_metadata(), text)
            tensor = self.here()
            self.assertEqual(self.events()[-1]["user_metadata"], text)
            del tensor
        torch.cuda.memory._set_memory_metadata("")
        self.here()
        self.assertEqual([e["user_metadata"] for e in self.events() if e["action"] == "alloc"],
                         ["first \u00e9", "second", "first \u00e9", ""])

    def test_errors_of_arguments(self):
        for options in ({"enabled": "always"}, {"context": "some"}, {"stacks": "none"}):
            with self.assertRaisesRegex(RuntimeError, "expected "):
                start_recording(**options)

    def test_the_older_arguments(self):
        torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=100,
                                                 trace_alloc_record_context=True)
        self.here()
        event = next(e for e in self.events() if e["action"] == "alloc")
        self.assertIn("here", names_in(event))
        torch.cuda.memory._record_memory_history(False)
        self.assertEqual(self.events(), [])

    def test_segments_alone(self):
        self.assertEqual([sorted(s) for s in torch.cuda.memory_snapshot()],
                         [sorted(s) for s in all_segments()])

    def test_snapshots_without_traces(self):
        start_recording(stacks="python")
        tensor = self.here()
        light = torch._C._cuda_memorySnapshot((0, 0, False))
        self.assertEqual(light["device_traces"], [[] for _ in range(torch.cuda.device_count())]
                         if light["device_traces"] else [])
        self.assertEqual([b["requested_size"] for s in light["segments"] for b in s["blocks"]
                          if b["address"] == tensor.data_ptr()], [1000])

    def test_several_threads(self):
        start_recording(stacks="python")

        def work():
            for i in range(200):
                of_bytes(512 * (i + 1))
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            torch.cuda.memory._snapshot()
        for thread in threads:
            thread.join(120)
        self.assertFalse(any(thread.is_alive() for thread in threads))
        self.assertEqual(self.actions().count("alloc"), 800)
        self.assertEqual(self.actions().count("free_completed"), 800)
        self.assertTrue(all("work" in names_in(e) for e in self.events() if e["action"] == "alloc"))

    def test_backward_threads(self):
        start_recording(stacks="python")
        x = torch.ones(1000, device="cuda", requires_grad=True)
        (x * 2).exp().sum().backward()
        self.assertGreater(self.actions().count("alloc"), 3)
        self.assertIn("alloc", self.actions())

    def test_an_error_under_way_stays(self):
        def fail():
            raise ValueError("the program's")
        start_recording(stacks="python")
        with self.assertRaisesRegex(ValueError, "^the program's$"):
            print(self.here(), fail())  # the tensor is on the interpreter's stack, and goes behind the error
        self.assertIn("free_completed", self.actions())

    def test_pytorchs_tools_read_it(self):
        start_recording()
        keep = [of_bytes(30 * MIB), self.here()]
        self.here()
        with self.assertRaises(torch.OutOfMemoryError):
            of_bytes(1 << 50)
        snapshot = torch.cuda.memory._snapshot()
        self.assertIn("gpu_allocator.py", viz.memory(snapshot, format_flamegraph=str))
        self.assertIn("gpu_allocator.py", viz.segments(snapshot, format_flamegraph=str))
        self.assertIn("segments: ", viz.segsum(snapshot))
        trace = viz.trace(snapshot)
        self.assertIn("raise OutOfMemoryError # 1.0PiB requested", trace)
        self.assertIn("= seg_", trace) if INSTALL else self.assertIn("cudaMalloc", trace)
        for plot in (viz.trace_plot, viz.segment_plot):
            self.assertIn("<script", plot(snapshot))
        viz.trace_plot(snapshot, filter_freed=True)
        viz.compare(snapshot["segments"], snapshot["segments"], format_flamegraph=str)
        del keep

    def test_dumps(self):
        start_recording(stacks="python")
        tensor = self.here()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "snapshot.pickle")
            torch.cuda.memory._dump_snapshot(str(path))
            read = pickle.loads(path.read_bytes())
        self.assertEqual(read["device_traces"][0][-1]["size"], 1000)
        del tensor

    @unittest.skipUnless(INSTALL, "what Reprise does not have")
    def test_says_what_is_missing(self):
        with self.assertWarnsRegex(UserWarning, "^global_record_annotations of "):
            start_recording(compile_context=True, global_record_annotations=True)

    def test_events_name_compiled_regions(self):
        def work(x):
            return x * 2 + 1
        compiled, x = torch.compile(work, backend="eager"), torch.ones(1000, device="cuda")
        for context in ("all", None):
            start_recording(context=context, stacks="python", compile_context=True, clear_history=True)
            outside = of_bytes(1000)
            compiled(x)
            told = {}
            for event in torch.cuda.memory._snapshot()["device_traces"][0]:
                if event["action"] == "alloc":
                    told.setdefault(event["compile_context"].split(":")[0], []).append(event)
            self.assertEqual(told["N/A"][0]["addr"], outside.data_ptr())  # dynamo takes some too
            self.assertGreaterEqual(len(told["Torch-Compiled Region"]), 2)
            self.assertEqual({"frames" in e for found in told.values() for e in found}, {context is not None})
            stop_recording()
        start_recording(clear_history=True)
        compiled(x)
        told = torch.cuda.memory._snapshot()["device_traces"][0]
        self.assertEqual({e["compile_context"] for e in told}, {"N/A"})

    def test_events_name_pools(self):
        if not PINNED:
            self.skipTest("this PyTorch's name none")
        pool = torch.cuda.MemPool()
        start_recording()
        with torch.cuda.use_mem_pool(pool):
            of_bytes(3 * MIB)
        of_bytes(5 * MIB)
        events = torch.cuda.memory._snapshot()["device_traces"][0]
        self.assertEqual([(e["size"], e["pool_id"]) for e in events if e["action"] == "alloc"],
                         [(3 * MIB, tuple(pool.id)), (5 * MIB, (0, 0))])

    @unittest.skipUnless(INSTALL, "of Reprise's")
    def test_says_that_pinned_memory_is_missing(self):
        if not PINNED:
            self.skipTest("this PyTorch records none")
        with self.assertWarnsRegex(UserWarning, "^record_pinned_host_memory of "):
            start_recording(record_pinned_host_memory=True)
        of_bytes(MIB)
        self.assertTrue(torch.cuda.memory._snapshot()["device_traces"][0])
        start_recording(record_cuda=False)
        of_bytes(MIB)
        self.assertFalse(torch._C._cuda_isHistoryEnabled())
        self.assertEqual(torch.cuda.memory._snapshot()["device_traces"][0], [])
        with self.assertRaisesRegex(RuntimeError, "requires memory history recording to be enabled"):
            torch.cuda.memory._record_memory_history(None, record_pinned_host_memory=True)

    @unittest.skipUnless(INSTALL, "of Reprise's")
    def test_arguments_of_a_newer_pytorch(self):
        def newer(enabled="all", context="all", stacks="all", max_entries=1, device=None, clear_history=False,
                  compile_context=False, global_record_annotations=False, skip_actions=None,
                  record_pinned_host_memory=False, record_cuda=True, colour="grey", depth=3): pass

        record = torch._C._cuda_record_memory_history
        known = ("all", "all", "python", 10, True, False, False, [], False, True)
        with mock.patch.object(torch.cuda.memory, "_record_memory_history_impl", newer):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                record(*known, "grey", 3)
            with self.assertWarnsRegex(UserWarning, "^depth of torch.cuda.memory._record_memory_history "):
                record(*known, "grey", 4)
        self.assertTrue(torch._C._cuda_isHistoryEnabled())


FORM = """
import json, sys, torch
if {install}:
    import reprise
    reprise.install()
torch.cuda.memory._record_memory_history(stacks="python")
keep = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (1000, 30 << 20, 700 << 10)]
side = torch.cuda.Stream()
keep[1].record_stream(side)
del keep[2]
try: torch.empty(1 << 50, device="cuda")
except torch.OutOfMemoryError: pass
torch.cuda.memory._snapshot()
whole = torch.cuda.memory._snapshot()

def form(value):
    if isinstance(value, dict):
        return {{name: form(value[name]) for name in sorted(value)}}
    return type(value).__name__

def forms(values):
    return sorted({{json.dumps(form(value)) for value in values}})

made = {{"whole": list(whole), "settings": form(whole["allocator_settings"]),
        "segments": forms(whole["segments"]),
        "ids": sorted({{str(s["segment_pool_id"]) for s in whole["segments"]}}),
        "blocks": forms(b for s in whole["segments"] for b in s["blocks"]),
        "events": forms(whole["device_traces"][0]),
        "frames": forms(f for e in whole["device_traces"][0] for f in e.get("frames", ())),
        "states": sorted({{b["state"] for s in whole["segments"] for b in s["blocks"]}}),
        "sizes": [(e["action"], e["size"]) for e in whole["device_traces"][0]
                  if not e["action"].startswith("segment_")],
        "stats": list(torch.cuda.memory_stats()),
        "accelerator": sorted(torch.accelerator.memory_stats()),
        "host": sorted(torch.cuda.host_memory_stats())}}
print("MADE", json.dumps(made))
"""


class Form(unittest.TestCase):
    maxDiff = None

    """Snapshots and statistics have the form that PyTorch's own allocator gives them, key by key."""

    def made(self, install):
        done = subprocess.run([sys.executable, "-c", FORM.format(install=install)], capture_output=True,
                              text=True, check=False, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        line = next(line for line in done.stdout.splitlines() if line.startswith("MADE "))
        return json.loads(line.removeprefix("MADE "))

    def test_is_the_same(self):
        own, pytorchs = self.made(True), self.made(False)
        for name in pytorchs:
            self.assertEqual(own[name], pytorchs[name], name)


class Settings(Case):
    """Settings at run time."""

    def setUp(self):
        super().setUp()
        self.addCleanup(torch._C._accelerator_setAllocatorSettings, "")

    def bytes_of(self, count):
        before = torch.cuda.memory_stats()["active_bytes.all.allocated"]
        of_bytes(count)
        return torch.cuda.memory_stats()["active_bytes.all.allocated"] - before

    def test_rounding_holds_until_the_next(self):
        set_settings = torch._C._accelerator_setAllocatorSettings
        set_settings("roundup_power2_divisions:4")
        self.assertEqual(self.bytes_of(84 * MIB), 96 * MIB)
        set_settings("roundup_power2_divisions:[64:8,128:2,256:2,512:2,1024:1,>:1]")
        self.assertEqual(self.bytes_of(84 * MIB), 88 * MIB)
        self.assertEqual(self.bytes_of(400 * MIB), 512 * MIB)
        set_settings("garbage_collection_threshold:0.5")
        self.assertEqual(self.bytes_of(84 * MIB), 84 * MIB)

    def test_sizes_that_are_not_split(self):
        torch._C._accelerator_setAllocatorSettings("max_split_size_mb:40")
        stats = torch.cuda.memory_stats()
        tensor = of_bytes(50 * MIB)
        self.assertEqual(torch.cuda.memory_stats()["oversize_allocations.allocated"],
                         stats["oversize_allocations.allocated"] + 1)
        torch._C._accelerator_setAllocatorSettings("")
        self.assertEqual(torch.cuda.memory_stats()["max_split_size"], -1)
        del tensor
        other = of_bytes(50 * MIB)
        self.assertEqual(torch.cuda.memory_stats()["oversize_allocations.allocated"],
                         stats["oversize_allocations.allocated"] + 1)
        del other

    def test_the_older_name(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.cuda.memory._set_allocator_settings("roundup_power2_divisions:2")
        self.assertEqual(self.bytes_of(70 * MIB), 96 * MIB)

    def test_snapshots_show_them(self):
        text = "garbage_collection_threshold:0.75,max_split_size_mb:40,roundup_power2_divisions:2"
        torch._C._accelerator_setAllocatorSettings(text)
        shown = torch.cuda.memory._snapshot()["allocator_settings"]
        self.assertEqual(shown["PYTORCH_CUDA_ALLOC_CONF"], text)
        self.assertEqual(shown["max_split_size"], 40 * MIB)
        self.assertEqual(shown["garbage_collection_threshold"], 0.75)
        self.assertEqual(set(shown["roundup_power2_divisions"].values()), {2})

    def test_what_cannot_be_changes_nothing(self):
        set_settings = torch._C._accelerator_setAllocatorSettings
        set_settings("roundup_power2_divisions:2")
        for text in ("foo:1,bar:2", "garbage_collection_threshold:1.2", "max_split_size_mb:2",
                     "release_lock_on_cudamalloc:none", "pinned_use_cuda_host_register:none",
                     "pinned_num_register_threads:none", "pinned_num_register_threads:1024"):
            with self.assertRaises(ValueError, msg=text):
                set_settings(text)
        if INSTALL:  # PyTorch's own takes the settings that came before the wrong one
            self.assertEqual(self.bytes_of(70 * MIB), 96 * MIB)

    def test_settings_of_pinned_memory_are_pytorchs(self):
        torch._C._accelerator_setAllocatorSettings("pinned_num_register_threads:2,max_split_size_mb:40")
        shown = torch.cuda.memory._snapshot()["allocator_settings"]
        self.assertEqual((shown["pinned_num_register_threads"], shown["max_split_size"]), (2, 40 * MIB))
        self.assertTrue(torch.empty(1 << 20, pin_memory=True).is_pinned())

    @unittest.skipUnless(INSTALL, "of Reprise's")
    def test_the_backend_stays(self):
        torch._C._accelerator_setAllocatorSettings("backend:native,max_split_size_mb:40")
        with self.assertRaisesRegex(RuntimeError, "^backend:cudaMallocAsync needs PyTorch's own allocator"):
            torch._C._accelerator_setAllocatorSettings("backend:cudaMallocAsync")


class Statistics(Case):
    """Figures, and the small tools."""

    def test_fractions(self):
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        for fraction in (0.25, 0.0, 1.0):
            torch.cuda.set_per_process_memory_fraction(fraction)
            self.assertEqual(torch.cuda.get_per_process_memory_fraction(), fraction)
        for wrong in (-0.1, 1.1):
            with self.assertRaisesRegex(ValueError, "Invalid fraction value"):
                torch.cuda.set_per_process_memory_fraction(wrong)

    def test_accumulated_ones_begin_anew(self):
        of_bytes(1000)
        torch.cuda.reset_accumulated_memory_stats()
        stats = torch.cuda.memory_stats()
        for name in ("allocation.all.allocated", "allocated_bytes.small_pool.freed", "num_ooms",
                     "num_alloc_retries"):
            self.assertEqual(stats[name], 0, name)
        of_bytes(1000)
        self.assertEqual(torch.cuda.memory_stats()["requested_bytes.all.allocated"], 1000)

    def test_accelerator_has_the_same(self):
        tensor = of_bytes(5 * MIB)
        torch.accelerator.reset_peak_memory_stats()
        extra = of_bytes(7 * MIB)
        del extra
        for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
            self.assertEqual(getattr(torch.accelerator, name)(), getattr(torch.cuda, name)(), name)
        self.assertEqual(torch.accelerator.max_memory_allocated() - torch.accelerator.memory_allocated(),
                         7 * MIB)
        torch.accelerator.reset_accumulated_memory_stats()
        self.assertEqual(torch.cuda.memory_stats()["allocation.all.allocated"], 0)
        del tensor

    def test_raw_memory(self):
        side = torch.cuda.Stream()
        for stream in (None, side, side.cuda_stream):
            before = torch.cuda.memory_stats()
            pointer = torch.cuda.caching_allocator_alloc(MIB, stream=stream)
            now = torch.cuda.memory_stats()
            self.assertEqual(now["requested_bytes.all.current"] - before["requested_bytes.all.current"], MIB)
            torch.cuda.caching_allocator_delete(pointer)
            self.assertEqual(torch.cuda.memory_allocated(), before["allocated_bytes.all.current"])
        with self.assertRaises(RuntimeError):
            torch.cuda.caching_allocator_delete(12345)

    def test_caching_is_switched_off(self):
        def accumulated():
            return torch.cuda.memory_stats()["requested_bytes.all.allocated"]
        before, pointers = accumulated(), []
        torch.cuda.caching_allocator_enable(False)
        try:
            for _ in range(3):
                pointers.append(torch.cuda.caching_allocator_alloc(8 * MIB))
            self.assertEqual([mapped(pointer) for pointer in pointers], [(p, 8 * MIB) for p in pointers])
            tensor = of_bytes(1000, 7)
            self.assertEqual(tensor.sum().item(), 7000)
            del tensor
            for pointer in pointers:
                torch.cuda.caching_allocator_delete(pointer)
            self.assertEqual(accumulated(), before)
            self.assertEqual([mapped(pointer) for pointer in pointers], [None] * 3)
        finally:
            torch.cuda.caching_allocator_enable(True)
        torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(MIB))
        self.assertEqual(accumulated() - before, MIB)

    @unittest.skipUnless(INSTALL, "PyTorch's own loses such memory")
    def test_memory_from_while_caching_was_off(self):
        before, much = torch.cuda.mem_get_info()[0], 1024 * MIB  # so much that other programs hardly matter
        torch.cuda.caching_allocator_enable(False)
        try:
            tensor, graph = of_bytes(much, 3), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                sums = tensor[:1000] + 1  # in planned memory all the same
            with self.assertRaises(torch.OutOfMemoryError):
                of_bytes(1 << 50)
        finally:
            torch.cuda.caching_allocator_enable(True)
        graph.replay()
        self.assertEqual(sums.sum().item(), 4000)
        del graph, sums
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        self.assertTrue(comes(lambda: torch.cuda.mem_get_info()[0] < before - much // 2))
        del tensor
        self.assertTrue(comes(lambda: torch.cuda.mem_get_info()[0] > before - much // 2))

    def test_texts(self):
        self.assertIn("CUDA OOMs: ", torch.cuda.memory_summary())
        self.assertNotIn("from large pool", torch.cuda.memory_summary(abbreviated=True))
        self.assertIsInstance(torch.cuda.list_gpu_processes(), str)



class Pools(Case):
    """torch.cuda.MemPool and use_mem_pool."""

    def segments(self, pool):
        return [s for s in all_segments() if s["segment_pool_id"] == tuple(pool.id)]

    def addresses(self, pool):
        return [b["address"] for s in self.segments(pool) for b in s["blocks"]
                if b["state"] == "active_allocated"]

    def test_ids_are_of_their_own(self):
        handle, pool = torch.cuda.graph_pool_handle(), torch.cuda.MemPool()
        other = torch.cuda.MemPool()
        self.assertEqual(len({tuple(handle), tuple(pool.id), tuple(other.id)}), 3)
        self.assertEqual(pool.use_count(), 1)

    def test_memory_is_the_pools(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            self.assertEqual(pool.use_count(), 2)
            inside = of_bytes(5000)
        self.assertEqual(pool.use_count(), 1)
        outside = of_bytes(5000)
        self.assertEqual(self.addresses(pool), [inside.data_ptr()])
        self.assertEqual([s["segment_pool_id"] for s in self.segments(pool)], [pool.id])
        if INSTALL:
            self.assertEqual(pool.snapshot(), self.segments(pool))
        address = inside.data_ptr()
        del inside
        self.assertNotEqual(of_bytes(5000).data_ptr(), address)
        with torch.cuda.use_mem_pool(pool):
            self.assertEqual(of_bytes(5000).data_ptr(), address)
        del outside

    def test_statistics_are_of_all(self):
        before = torch.cuda.memory_stats()
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            tensor = of_bytes(6 * MIB)
        now = torch.cuda.memory_stats()
        self.assertEqual(now["allocated_bytes.all.current"] - before["allocated_bytes.all.current"], 6 * MIB)
        self.assertEqual(now["reserved_bytes.all.current"] - before["reserved_bytes.all.current"], 20 * MIB)
        del tensor

    def test_is_kept_until_the_pool_goes(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            of_bytes(5000)
        torch.cuda.empty_cache()
        self.assertEqual(len(self.segments(pool)), 1)
        reserved = torch.cuda.memory_reserved()
        del pool
        gc.collect()
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), reserved - 2 * MIB)

    def test_tensors_outlive_it(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.arange(1000, device="cuda")
        del pool
        gc.collect()
        torch.cuda.empty_cache()
        others = [torch.zeros(1000, dtype=torch.int64, device="cuda") for _ in range(20)]
        self.assertEqual(tensor.sum().item(), 499500)
        reserved = torch.cuda.memory_reserved()
        del tensor
        torch.cuda.empty_cache()
        self.assertLess(torch.cuda.memory_reserved(), reserved)
        del others

    def test_within_each_other(self):
        pools = [torch.cuda.MemPool() for _ in range(3)]
        kept = []
        with torch.cuda.use_mem_pool(pools[0]):
            kept.append(of_bytes(600))
            with torch.cuda.use_mem_pool(pools[1]):
                kept.append(of_bytes(600))
                with torch.cuda.use_mem_pool(pools[2]):
                    kept.append(of_bytes(600))
                kept.append(of_bytes(600))
            kept.append(of_bytes(600))
        kept.append(of_bytes(600))
        a, b, c, b2, a2, out = (tensor.data_ptr() for tensor in kept)
        self.assertEqual(sorted(self.addresses(pools[0])), sorted([a, a2]))
        self.assertEqual(sorted(self.addresses(pools[1])), sorted([b, b2]))
        self.assertEqual(self.addresses(pools[2]), [c])
        self.assertNotIn(out, sum(map(self.addresses, pools), []))

    @unittest.skipUnless(INSTALL, "PyTorch 2.11's own loses count of it")
    def test_within_itself(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            with torch.cuda.use_mem_pool(pool):
                self.assertEqual(pool.use_count(), 3)
                inner = of_bytes(600)
            outer = of_bytes(600)
        self.assertEqual(sorted(self.addresses(pool)), sorted([inner.data_ptr(), outer.data_ptr()]))
        self.assertEqual(pool.use_count(), 1)

    def test_an_error_ends_its_use(self):
        pool = torch.cuda.MemPool()
        with self.assertRaises(torch.OutOfMemoryError), torch.cuda.use_mem_pool(pool):
            of_bytes(1 << 50)
        tensor = of_bytes(600)
        self.assertNotIn(tensor.data_ptr(), self.addresses(pool))
        self.assertEqual(pool.use_count(), 1)

    def test_is_of_one_thread(self):
        pool = torch.cuda.MemPool()
        found = []

        def beside():
            found.append(of_bytes(600))
        with torch.cuda.use_mem_pool(pool):
            inside = of_bytes(600)
            thread = threading.Thread(target=beside)
            thread.start()
            thread.join(60)
        self.assertEqual(self.addresses(pool), [inside.data_ptr()])
        self.assertEqual(len(found), 1)

    def test_several_threads(self):
        pools = [torch.cuda.MemPool() for _ in range(4)]
        kept = [[] for _ in pools]

        def work(index):
            for i in range(50):
                with torch.cuda.use_mem_pool(pools[index]):
                    kept[index].append(of_bytes(700 * (1 + i % 5)))
                    of_bytes(3 * MIB)
                    if INSTALL:  # PyTorch 2.11's own ends the process, as others use pools meanwhile
                        torch.cuda.empty_cache()
                        torch.cuda.MemPool()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(pools))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        self.assertFalse(any(thread.is_alive() for thread in threads))
        for pool, tensors in zip(pools, kept):
            self.assertEqual(sorted(self.addresses(pool)), sorted(t.data_ptr() for t in tensors))
            self.assertEqual(pool.use_count(), 1)

    def test_lends_where_it_may(self):
        shut = torch.cuda.MemPool()
        lending = torch.cuda.MemPool(use_on_oom=True)
        total = torch.cuda.mem_get_info()[1]
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 80 * MIB) / total)
        with torch.cuda.use_mem_pool(shut):
            a = of_bytes(40 * MIB)
        with torch.cuda.use_mem_pool(lending):
            b = of_bytes(40 * MIB)
        address = b.data_ptr()
        with self.assertRaises(torch.OutOfMemoryError):
            of_bytes(30 * MIB)
        del a, b
        c = of_bytes(30 * MIB)
        self.assertEqual(c.data_ptr(), address)
        with self.assertRaises(torch.OutOfMemoryError):
            of_bytes(30 * MIB)
        del c
        with torch.cuda.use_mem_pool(lending):
            self.assertEqual(of_bytes(20 * MIB).data_ptr(), address)

    def test_blocks_that_are_not_cut(self):
        whole = torch.cuda.MemPool(no_split=True)
        with torch.cuda.use_mem_pool(whole):
            tensors = [of_bytes(4 * MIB) for _ in range(3)]
        self.assertEqual(len(self.segments(whole)), 3)
        self.assertEqual([len(s["blocks"]) for s in self.segments(whole)], [1, 1, 1])
        del tensors

    def test_graphs_beside_it(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.ones(1000, device="cuda")
            graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool.id):
            y = x * 2
        x.fill_(3)
        graph.replay()
        self.assertEqual(y.sum().item(), 6000)
        del graph, y

    def test_many_come_and_go(self):
        for _ in range(300):
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                of_bytes(600)
            del pool
        gc.collect()
        torch.cuda.empty_cache()
        self.assertLess(len(all_segments()), 50)

    def test_blocks_that_are_alive_in_a_pool(self):
        pool, handle = torch.cuda.MemPool(), torch.cuda.graph_pool_handle()
        with torch.cuda.use_mem_pool(pool):
            inside = of_bytes(600)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=handle):
            captured = inside + 1
        for ident, tensor in ((pool.id, inside), (handle, captured)):
            def check(addresses):
                return torch._C._cuda_checkPoolLiveAllocations(0, ident, addresses)
            self.assertTrue(check({tensor.data_ptr()}))
            self.assertFalse(check({tensor.data_ptr(), 0}))
            self.assertFalse(check(set()))
        del captured, tensor
        self.assertTrue(torch._C._cuda_checkPoolLiveAllocations(0, handle, set()))
        del graph

    @unittest.skipUnless(INSTALL, "of Reprise's")
    def test_says_what_cannot_be_had(self):
        allocator = torch.cuda.memory._get_current_allocator().allocator()
        with self.assertRaisesRegex(RuntimeError, "^a torch.cuda.MemPool cannot have the process's own "):
            torch.cuda.MemPool(allocator)
        with self.assertRaisesRegex(TypeError, "^the allocator of a torch.cuda.MemPool has to be what "):
            torch.cuda.MemPool("allocator")
        pool = torch.cuda.MemPool()
        with self.assertRaisesRegex(reprise.Error, "end its use where it began"):
            torch._C._cuda_endAllocateToPool(0, pool.id)


class Own:
    """An allocator of the program's over the runtime's: what is out, by address, and how much was taken
    and given back."""

    kept = []  # functions, which memory goes back to as long as the process lives

    def __init__(self):
        runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
        self.out, self.taken, self.given, self.has_none = {}, [], [], False

        def take(size, _device, _stream):
            place = ctypes.c_void_p()
            if self.has_none or runtime.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(size)):
                return None
            self.out[place.value] = size
            self.taken.append(size)
            return place.value

        def give(place, size, _device, _stream):
            self.given.append(size)
            assert self.out.pop(place) == size
            runtime.cudaFree(ctypes.c_void_p(place))
        sized = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
        functions = (ctypes.CFUNCTYPE(ctypes.c_void_p, *sized)(take),
                     ctypes.CFUNCTYPE(None, ctypes.c_void_p, *sized)(give))
        self.kept.append(functions)
        self.allocator = torch._C._cuda_customAllocator(
            *(ctypes.cast(f, ctypes.c_void_p).value for f in functions))


class OwnAllocators(Case):
    """Memory pools whose memory comes from the program."""

    def test_memory_comes_and_goes(self):
        own = Own()
        pool = torch.cuda.MemPool(own.allocator)
        with torch.cuda.use_mem_pool(pool):
            small, large = [of_bytes(1000, n) for n in range(3)], of_bytes(30 * MIB, 3)
        outside = of_bytes(1000, 4)
        self.assertEqual(own.taken, [2 * MIB, 30 * MIB])
        self.assertEqual({n: [x.sum().item()] for n, x in enumerate(small)}, {0: [0], 1: [1000], 2: [2000]})
        for x, inside in ((small[0], True), (small[2], True), (large, True), (outside, False)):
            self.assertEqual(any(at <= x.data_ptr() < at + size for at, size in own.out.items()), inside)
        found = {s["address"]: s for s in segments_of(pool.id)}
        self.assertEqual({at: s["total_size"] for at, s in found.items()}, own.out)
        self.assertEqual({s["is_expandable"] for s in found.values()}, {False})
        before = torch.cuda.memory_reserved()
        del small, large, x
        self.assertEqual(own.given, [])
        with torch.cuda.use_mem_pool(pool):
            again = of_bytes(20 * MIB)
        self.assertIn(again.data_ptr(), own.out)
        self.assertEqual(len(own.taken), 2)
        del again, pool
        torch.cuda.empty_cache()
        self.assertEqual(sorted(own.given), [2 * MIB, 30 * MIB])
        self.assertEqual(own.out, {})
        self.assertLessEqual(torch.cuda.memory_reserved(), before - 32 * MIB)
        del outside

    def test_streams_that_use_it(self):
        own, side = Own(), torch.cuda.Stream()
        pool = torch.cuda.MemPool(own.allocator)
        with torch.cuda.use_mem_pool(pool):
            x = of_bytes(20 * MIB, 1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            total = x[:1000].sum()
        x.record_stream(side)
        del x, pool
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertEqual(total.item(), 1000)
        self.assertEqual(own.given, [20 * MIB])

    def test_without_memory(self):
        own = Own()
        pool = torch.cuda.MemPool(own.allocator)
        own.has_none = True
        with torch.cuda.use_mem_pool(pool), self.assertRaises(torch.OutOfMemoryError):
            of_bytes(1000)
        own.has_none = False
        with torch.cuda.use_mem_pool(pool):
            self.assertEqual(of_bytes(1000, 1).sum().item(), 1000)

    @unittest.skipUnless(INSTALL, "PyTorch's own holds a lock while it asks the allocator")
    def test_threads(self):
        """The allocator's functions ask for Python's lock, which others have while they ask for memory."""
        own = Own()
        pool, failed = torch.cuda.MemPool(own.allocator), []

        def work(number):
            try:
                with torch.cuda.stream(torch.cuda.Stream()):
                    for size in range(1, 40):
                        with torch.cuda.use_mem_pool(pool):
                            x = of_bytes(size * 700 * 1024, number)
                        y = of_bytes(1000, number)
                        if x[-1].item() != number or y[0].item() != number:
                            failed.append(number)
                        del x, y
                        if size % 5 == number:
                            torch.cuda.empty_cache()
            except Exception as error:
                failed.append(error)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertFalse(any(thread.is_alive() for thread in threads))
        self.assertEqual(failed, [])
        del pool
        torch.cuda.empty_cache()
        self.assertEqual(own.out, {})

    def test_many_pools_of_one(self):
        own = Own()
        for count in range(30):
            pool = torch.cuda.MemPool(own.allocator, use_on_oom=count % 2 == 0)
            with torch.cuda.use_mem_pool(pool):
                x = of_bytes(1000)
            self.assertEqual(len(own.taken), count + 1)
            del x, pool
            gc.collect()
            torch.cuda.empty_cache()
            self.assertEqual(len(own.given), count + 1)


class Listeners(Case):
    """Who is told of each allocation and free."""

    def test_callbacks_of_the_gpu_trace(self):
        from torch.cuda import _gpu_trace
        told = []
        torch._C._activate_gpu_trace()
        for kind in ("allocation", "deallocation"):
            getattr(_gpu_trace, f"register_callback_for_memory_{kind}")(
                lambda address, kind=kind: told.append((kind, address)))
        registries = _gpu_trace.MemoryAllocationCallbacks, _gpu_trace.MemoryDeallocationCallbacks
        try:
            x = of_bytes(1000)
            place = x.data_ptr()
            self.assertEqual(told, [("allocation", place)])
            del x
            self.assertEqual(told[1:], [("deallocation", place)])

            def fail():
                raise ValueError("the program's")
            told.clear()
            if INSTALL:  # PyTorch's own loses the error, and ends
                with self.assertRaisesRegex(ValueError, "^the program's$"):
                    print(of_bytes(1000), fail())  # the tensor goes behind the error
                self.assertEqual([kind for kind, _ in told], ["allocation", "deallocation"])
            told.clear()
            thread = threading.Thread(target=lambda: of_bytes(30 * MIB))
            thread.start()
            thread.join()
            self.assertEqual([kind for kind, _ in told], ["allocation", "deallocation"])
            told.clear()
            weight = torch.ones(100, 100, device="cuda", requires_grad=True)
            (weight * weight).sum().backward()
            self.assertIn(("allocation", weight.grad.data_ptr()), told)
            with (mock.patch.object(registries[0], "callback_list", [lambda address: 1 / 0]),
                  self.assertLogs("torch._utils", "ERROR")):
                self.assertTrue(of_bytes(1000).is_cuda)
        finally:
            for registry in registries:
                registry.callback_list.pop()

    def test_profilers(self):
        from torch.autograd.profiler_legacy import profile

        def work():
            x = torch.rand(128, 128, device="cuda")
            return x * x

        def usage(found, name):
            return [getattr(e, "device_memory_usage", None) for e in found if e.name == name]
        with profile(profile_memory=True) as profiler:
            work()
            with self.assertRaises(RuntimeError), profile():  # one at a time
                pass
            work()
        told = profiler.function_events
        self.assertEqual(usage(told, "aten::empty")[:2], [65536, 65536])
        self.assertEqual(sum(usage(told, "[memory]")), -4 * 65536)
        with profile(profile_memory=False) as profiler:
            work()
        self.assertEqual(set(usage(profiler.function_events, "aten::empty")), {0})


UNUSED = """
import ctypes, multiprocessing, sys, torch
torch.cuda._raw_device_count_nvml = lambda: 1  # where there is no NVML

def begun():
    return ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0

def child(pipe):
    pipe.send(torch.ones(10, device="cuda").sum().item())

import reprise
reprise.install()
here, there = multiprocessing.Pipe()
print(begun(), torch.randn(10).is_pinned(), torch.cuda.is_initialized())
process = multiprocessing.get_context("fork").Process(target=child, args=(there,))
process.start()
print(here.recv() if here.poll(240) else None)
process.kill()
"""


@unittest.skipUnless(INSTALL, "of install()")
class Beginning(unittest.TestCase):
    """What install() does before anything is allocated."""

    def run_text(self, text, **environment):
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False,
                              env={**os.environ, **environment}, timeout=300)

    def test_cuda_is_not_begun(self):
        done = self.run_text(UNUSED, CUDA_VISIBLE_DEVICES="0")  # there is one, as it is told
        self.assertEqual(done.stdout, "False False False\n10.0\n", done.stderr)

    def test_a_fraction_that_cannot_be(self):
        text = "import torch, reprise\nreprise.install()\nprint(torch.cuda.get_per_process_memory_fraction(0))"
        for value, good in (("0.25", True), ("0", True), ("1.5", False), ("-0.1", False), ("much", False)):
            done = self.run_text(text, PYTORCH_ALLOC_CONF=f"per_process_memory_fraction:{value}")
            self.assertEqual(done.stdout, f"{float(value)}\n" if good else "", done.stderr)
            if not good:
                self.assertIn("per_process_memory_fraction is " + ("invalid" if value != "much" else "'much'"),
                              done.stderr)


def captured(fn, pool=None):
    """fn's graph, as torch.cuda.graph takes it, and what it returned."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        fn()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, pool=pool):
        results = fn()
    return graph, list(results)


def segments_of(pool):
    return sorted((s for s in all_segments() if s["segment_pool_id"] == pool), key=lambda s: s["address"])


def alive_in(pool):
    return sum(b["state"] == "active_allocated" for s in segments_of(pool) for b in s["blocks"])


def tensor_again(tensor):
    """A view of the memory of a tensor, with nobody who frees it."""
    made = torch.empty(0, dtype=tensor.dtype, device="cuda")
    storage = torch._C._construct_storage_from_data_pointer(
        tensor.untyped_storage().data_ptr(), tensor.device, tensor.untyped_storage().nbytes())
    return made.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


class Checkpoints(Case):
    """Memory of graphs that PyTorch captures, in snapshots, and put back to a checkpoint."""

    def put_back(self, state, stale=(), owners=()):
        torch._C._cuda_setCheckpointPoolState(0, state, [t.untyped_storage()._cdata for t in stale],
                                              [t.untyped_storage()._cdata for t in owners])

    def check_nothing_changes(self, fn):
        graph, results = captured(fn)
        before = segments_of(graph.pool())
        self.put_back(torch._C._cuda_getCheckpointState(0, graph.pool()))
        after = {s["address"]: s for s in segments_of(graph.pool())}
        for segment in before:
            now = after[segment["address"]]
            for field in ("device", "total_size", "allocated_size", "active_size", "segment_type", "segment_pool_id"):
                self.assertEqual(now[field], segment[field], field)
            self.assertEqual([(b["size"], b["state"]) for b in now["blocks"]],
                             [(b["size"], b["state"]) for b in segment["blocks"]])
        graph.replay()
        return graph, results

    def test_snapshots_show_memory_of_graphs(self):
        graph, (x, y) = captured(lambda: (of_bytes(3 * MIB), of_bytes(1000)))
        segments = segments_of(graph.pool())
        self.assertTrue(segments)
        blocks = {b["address"]: b for s in segments for b in s["blocks"]}
        for tensor in (x, y):
            self.assertEqual(blocks[tensor.data_ptr()]["state"], "active_allocated")
            self.assertEqual(blocks[tensor.data_ptr()]["requested_size"], tensor.nbytes)
            self.assertGreaterEqual(blocks[tensor.data_ptr()]["size"], tensor.nbytes)
        for segment in segments:
            self.assertEqual(sum(b["size"] for b in segment["blocks"]), segment["total_size"])
            self.assertEqual(segment["blocks"][0]["address"], segment["address"])
        self.assertEqual(sum(s["allocated_size"] for s in segments),
                         sum(b["size"] for b in blocks.values() if b["state"] == "active_allocated"))
        self.assertLessEqual(sum(s["total_size"] for s in segments), torch.cuda.memory_reserved())
        pool = graph.pool()
        del x, tensor
        self.assertEqual(alive_in(pool), 1)
        self.assertIn("<!DOCTYPE html>", viz.segment_plot(torch.cuda.memory._snapshot()))

    def test_a_segment_is_one_streams(self):
        side = torch.cuda.Stream()

        def work():
            main, x = torch.cuda.current_stream(), of_bytes(12 * MIB)
            side.wait_stream(main)
            with torch.cuda.stream(side):
                y = of_bytes(12 * MIB)
            main.wait_stream(side)
            return x, y
        graph, (x, y) = captured(work)
        found = segments_of(graph.pool())
        self.assertEqual(len(found), 2)
        self.assertEqual(len({s["stream"] for s in found}), 2)
        self.assertIn(side.cuda_stream, {s["stream"] for s in found})
        for segment in found:
            self.assertEqual(sum(b["size"] for b in segment["blocks"]), segment["total_size"])
            alive = [b["address"] for b in segment["blocks"] if b["state"] == "active_allocated"]
            self.assertEqual(alive, [(y if segment["stream"] == side.cuda_stream else x).data_ptr()])
        del x
        self.assertEqual(alive_in(graph.pool()), 1)

    def test_a_filter_for_a_pool_finds_them(self):
        graph, (x,) = captured(lambda: (of_bytes(1000),))
        if "mempool_id" not in inspect.signature(torch.cuda.memory_snapshot).parameters:
            self.skipTest("this PyTorch has no filter")
        found = torch.cuda.memory_snapshot(graph.pool())
        self.assertEqual([s["segment_pool_id"] for s in found], [graph.pool()])

    def test_what_is_as_it_was_stays(self):
        def chain():
            x = torch.zeros(5 * MIB, device="cuda")
            x = x + x
            y = torch.zeros_like(x) + 2
            return x, y, y * 2
        self.check_nothing_changes(chain)
        self.check_nothing_changes(lambda: (of_bytes(512), of_bytes(3 * MIB), of_bytes(70)))

    def test_blocks_between_others(self):
        def middle():
            parts = [of_bytes(512) for _ in range(9)]
            return parts[4], parts[7]
        self.check_nothing_changes(middle)

        def neighbours():
            parts = [of_bytes(512) for _ in range(9)]
            return parts[4:6]
        self.check_nothing_changes(neighbours)

    def test_a_net_of_convolutions(self):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3),
                                  torch.nn.Flatten(), torch.nn.Linear(4 * 28 * 28, 10)).cuda().eval()
        x = torch.rand(1, 3, 32, 32, device="cuda")
        with torch.no_grad():
            self.check_nothing_changes(lambda: (net(x),))

    def test_what_came_later_is_freed(self):
        graph, first = captured(lambda: (of_bytes(512),))
        before = [(s["address"], s["allocated_size"]) for s in segments_of(graph.pool())]
        state = torch._C._cuda_getCheckpointState(0, graph.pool())
        later, second = captured(lambda: (of_bytes(512),), graph.pool())
        self.put_back(state, stale=second)
        del second
        self.assertEqual([(s["address"], s["allocated_size"]) for s in segments_of(graph.pool())][:len(before)],
                         before)
        self.assertEqual(alive_in(graph.pool()), 1)

    @unittest.skipUnless(INSTALL, "PyTorch has freed it by then, and ends with its tensors")
    def test_what_came_later_has_to_be_named(self):
        graph, first = captured(lambda: (of_bytes(512),))
        state = torch._C._cuda_getCheckpointState(0, graph.pool())
        later, second = captured(lambda: (of_bytes(512),), graph.pool())
        with self.assertRaisesRegex(Exception, "being manually freed must be passed"):
            self.put_back(state)

    def test_what_was_freed_is_there_again(self):
        graph, results = captured(lambda: (of_bytes(512), of_bytes(512)))
        pool, places = graph.pool(), [t.data_ptr() for t in results]
        state = torch._C._cuda_getCheckpointState(0, pool)
        del results
        self.assertEqual(alive_in(pool), 0)
        self.put_back(state)
        for place, left in zip(places, (1, 0)):
            torch._C._cuda_cudaCachingAllocator_raw_delete(place)
            self.assertEqual(alive_in(pool), left)

    def test_storages_free_their_blocks_again(self):
        value = torch.ones(1, device="cuda")
        graph, results = captured(lambda: (torch.ones(100, device="cuda") + value, torch.ones(200, device="cuda") + value,
                                           torch.ones(3 * MIB, device="cuda") + value))
        pool = graph.pool()
        graph.replay()
        self.assertEqual([t.mean().item() for t in results], [2, 2, 2])
        state = torch._C._cuda_getCheckpointState(0, pool)
        again, places = [tensor_again(t) for t in results], [t.data_ptr() for t in results]
        self.assertEqual(alive_in(pool), 3)
        del results
        self.assertEqual(alive_in(pool), 0)
        value.add_(1)
        graph.replay()
        self.assertEqual([t.mean().item() for t in again], [3, 3, 3])
        self.put_back(state, owners=again[:2])
        self.assertEqual(alive_in(pool), 3)
        self.assertTrue(all(torch._C._has_Standard_Deleter(t.untyped_storage()._cdata) for t in again[:2]))
        for i, left in enumerate((2, 1, 1)):
            again[i] = None
            self.assertEqual(alive_in(pool), left)
        torch._C._cuda_cudaCachingAllocator_raw_delete(places[2])
        self.assertEqual(alive_in(pool), 0)

    def test_later_captures_leave_what_is_there_again(self):
        graph, (x,) = captured(lambda: (torch.full((1000,), 4.0, device="cuda"),))
        state, place = torch._C._cuda_getCheckpointState(0, graph.pool()), x.data_ptr()
        again = tensor_again(x)
        del x
        self.put_back(state, owners=[again])
        graph.replay()
        later, results = captured(lambda: [torch.full((1000,), 9.0, device="cuda") for _ in range(8)], graph.pool())
        later.replay()
        torch.cuda.synchronize()
        self.assertEqual(again.mean().item(), 4)
        self.assertNotIn(place, [t.data_ptr() for t in results])

    def test_the_blocks_that_are_alive(self):
        pool = torch.cuda.graph_pool_handle()
        graph, (x,) = captured(lambda: (torch.ones(4, device="cuda"),), pool)

        def check(places):
            return torch._C._cuda_checkPoolLiveAllocations(0, pool, places)
        self.assertTrue(check({x.data_ptr()}))
        self.assertFalse(check({x.data_ptr(), 0}))
        self.assertFalse(check(set()))
        del x
        self.assertTrue(check(set()))


class Trees(Case):
    """PyTorch's own trees of graphs, which Inductor's reduce-overhead is made of: their pools are checked
    against the tensors that are alive, and put back where a path branches."""

    def test_paths_that_branch(self):
        import torch._inductor.cudagraph_trees as trees
        from torch._inductor.cudagraph_utils import PlaceholderInfo
        asked = inspect.signature(trees.CUDAGraphTreeManager.add_function).parameters
        if "compile_id" not in asked or "user_visible_output_idxs" in asked:
            self.skipTest("this PyTorch's trees are asked otherwise")
        manager = trees.CUDAGraphTreeManager(0)

        def graphed(fn, results):
            made = []

            def model(inputs):
                tensors = list(inputs)
                inputs.clear()
                return fn(*tensors)

            def call(*tensors):
                if made:
                    return made[0](list(tensors))
                argument = PlaceholderInfo(name="x", stack_trace=None, users=[], mutating_use_stack_trace=None)
                run, out = manager.add_function(model, list(tensors), (), [None] * results,
                                                trees.CompilationMode.INFERENCE, (), (argument,), (), None)
                made.append(run)
                return out
            return call

        both = graphed(lambda x: (x * 2, x + 1), 2)
        threefold = graphed(lambda x: (x * 3,), 1)
        more = graphed(lambda x: (x + 100,), 1)
        for step in range(16):
            torch.compiler.cudagraph_mark_step_begin()
            a, b = both(torch.full((1000,), float(step), device="cuda"))
            if step % 3 == 1:
                (c,) = threefold(b)
                self.assertTrue((c == (step + 1) * 3).all().item())
            elif step % 3 == 2:
                (c,) = more(a)
                self.assertTrue((c == step * 2 + 100).all().item())
                (d,) = threefold(c)
                self.assertTrue((d == (step * 2 + 100) * 3).all().item())
                del d
            self.assertTrue((a == step * 2).all().item())
            self.assertTrue((b == step + 1).all().item())
            a = b = c = None
        self.assertGreater(manager.debug_checkpointing_counter, 1)
        torch.cuda.synchronize()
        del manager, both, threefold, more
        gc.collect()

    def test_what_is_taken_eagerly_in_a_pool_of_graphs(self):
        graph, (x,) = captured(lambda: (of_bytes(1000),))
        pool = graph.pool()
        torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool)
        try:
            eager = of_bytes(2000)
        finally:
            torch._C._cuda_endAllocateToPool(0, pool)
            torch._C._cuda_releasePool(0, pool)
        self.assertEqual(alive_in(pool), 2)
        self.assertTrue(torch._C._cuda_checkPoolLiveAllocations(0, pool, {x.data_ptr(), eager.data_ptr()}))
        outside = of_bytes(2000)
        self.assertEqual(alive_in(pool), 2)
        del outside, eager, x
        self.assertEqual(alive_in(pool), 0)
        del graph
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        self.assertEqual(segments_of(pool), [])

    def test_a_thread_in_a_pool_of_graphs_beside_another(self):
        pool = torch.cuda.graph_pool_handle()
        graph, results = captured(lambda: (torch.rand(4, device="cuda"),), pool)
        del results
        self.assertEqual(len(segments_of(pool)), 1)

        def three():
            a, b = of_bytes(20 * MIB, 1), of_bytes(20 * MIB, 2)
            return a + b

        def inside():
            torch.cuda.synchronize()
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool)
                try:
                    for _ in range(10):
                        three()
                finally:
                    torch._C._cuda_endAllocateToPool(0, pool)
                    torch._C._cuda_releasePool(0, pool)
            torch.cuda.current_stream().wait_stream(stream)
            three()

        def outside():
            for _ in range(10):
                three()

        threads = [threading.Thread(target=inside), threading.Thread(target=outside)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertGreater(len(segments_of(pool)), 1)
        self.assertEqual(alive_in(pool), 0)
        del graph
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        self.assertEqual(segments_of(pool), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
