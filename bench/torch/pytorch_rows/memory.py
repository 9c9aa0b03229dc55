# SPDX-License-Identifier: MIT
"""Allocations, their limits, statistics and shortage, and tensors in them: test_cuda.py."""

import gc
import os
import random
import subprocess
import sys
import tempfile
import threading

import torch
from torch import nn

from . import CUDNN, LARGE, MIB, ON_HOST, REGISTERS, busy, clean, limited, row, script, settings, stats


def of_bytes(count):
    return torch.empty(count, dtype=torch.int8, device="cuda")


# Of pinned memory, which is PyTorch's own allocator's for the host.

def register(on):
    settings(f"pinned_use_cuda_host_register:{on},pinned_num_register_threads:8")


def pins(t):
    for count in (20, 1 << 21, 1 << 24):
        x = torch.ones(count)
        t.assertFalse(x.is_pinned())
        t.assertTrue(x.pin_memory().is_pinned())


@row("TestCuda.test_pinned_memory_with_cudaregister", gpu=REGISTERS)
def pinned_memory_with_cudaregister(t):
    register(True)
    pins(t)
    register(False)


@row("TestCuda.test_pinned_memory_with_cudaregister_multithread", gpu=REGISTERS)
def pinned_memory_with_cudaregister_multithread(t):
    failed = []

    def run():
        try:
            register(True)
            pins(t)
        except Exception as error:  # told in the main thread
            failed.append(error)
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    register(False)
    t.assertEqual(failed, [])


@row("TestCuda.test_host_memory_stats")
def host_memory_stats(t):
    def now():
        return torch.cuda.host_memory_stats()

    def expect(count, size):
        have = now()
        for key in ("allocations", "active_requests"):
            for what in ("allocated", "current", "peak"):
                t.assertEqual(have[f"{key}.{what}"], count)
        for key in ("allocated_bytes", "active_bytes"):
            for what in ("allocated", "current", "peak"):
                t.assertEqual(have[f"{key}.{what}"], size)
        t.assertEqual(have["num_host_alloc"], count)
        t.assertEqual(have["num_host_free"], 0)

    gc.collect()
    torch._C._host_emptyCache()
    torch.cuda.reset_peak_host_memory_stats()
    torch.cuda.reset_accumulated_host_memory_stats()
    kept = []
    for count, size in ((0, 0), (10, 65536), (20, 65536 + 131072)):  # in powers of two
        if count:
            kept.append(torch.ones(count * 1024, pin_memory=True))
            t.assertTrue(kept[-1].is_pinned())
        expect(len(kept), size)
    torch._C._host_emptyCache()
    expect(2, 65536 + 131072)


@row("TestCuda.test_pinned_memory_empty_cache", gpu=REGISTERS)
def pinned_memory_empty_cache(t):
    for on in (True, False):
        register(on)
        x = torch.ones(1 << 20, pin_memory=True)
        t.assertTrue(x.is_pinned())
        del x
        torch._C._host_emptyCache()


@row("TestCuda.test_pinned_memory_use_background_threads")
def pinned_memory_use_background_threads(t):
    t.assertEqual(script(t, """
import torch
torch.cuda.memory._set_allocator_settings("pinned_use_background_threads:True")
print(torch.ones(1 << 20, pin_memory=True).is_pinned())
""").stdout, "True\n")


@row("TestCuda.test_cudart_register", gpu=REGISTERS)
def cudart_register(t):
    x, cudart = torch.ones(20), torch.cuda.cudart()
    t.assertFalse(x.is_pinned())
    t.assertEqual(int(cudart.cudaHostRegister(x.data_ptr(), x.numel() * 4, 0)), 0)
    t.assertTrue(x.is_pinned())
    t.assertEqual(int(cudart.cudaHostUnregister(x.data_ptr())), 0)
    t.assertFalse(x.is_pinned())


@row("TestCuda.test_noncontiguous_pinned_memory")
def noncontiguous_pinned_memory(t):
    x = torch.arange(10).view(2, 5).t()
    t.same(x.pin_memory(), x)


@row("TestCuda.test_caching_pinned_memory", gpu="a copy that is under way, which the host driver's never is")
def caching_pinned_memory(t):
    def pinned():
        return torch.tensor([1.0]).pin_memory()
    x = pinned()
    place = x.data_ptr()
    del x
    x = pinned()
    t.assertEqual(x.data_ptr(), place)
    there = torch.zeros(1, device="cuda")
    busy(500)
    there.copy_(x, non_blocking=True)
    del x
    t.assertNotEqual(pinned().data_ptr(), place)
    t.assertEqual(there.item(), 1)


@row("TestCuda.test_is_pinned_no_context")
def is_pinned_no_context(t):
    t.assertEqual(script(t, """
import multiprocessing, torch
def child(pipe):
    pipe.send(torch.ones(10, device="cuda")[0].item())
here, there = multiprocessing.Pipe()
torch.randn(10).is_pinned()  # which must not begin with CUDA
process = multiprocessing.get_context("fork").Process(target=child, args=(there,))
process.start()
print(here.recv() if here.poll(60) else None)
process.join()
""").stdout, "1.0\n")


@row("TestCuda.test_copy_non_blocking")
def copy_non_blocking(t):
    count = 10000000
    pinned = torch.zeros(count + 1, dtype=torch.uint8).pin_memory()
    part = pinned[1:]
    t.assertTrue(part.is_pinned())
    t.assertEqual(part.untyped_storage().data_ptr(), pinned.data_ptr())
    ones = torch.ones(count, dtype=torch.uint8, device="cuda")
    for to, of in ((ones, pinned[:-1]), (pinned[:-1], ones.fill_(1)), (part, ones.fill_(7))):
        event = torch.cuda.Event()
        to.copy_(of, non_blocking=True)
        event.record()
        event.synchronize()
        t.same(to.cpu(), of.cpu())


@row("TestCuda.test_copy_non_blocking_type_conversion")
def copy_non_blocking_type_conversion(t):
    a, b = torch.ones(1, device="cuda"), torch.zeros(1, pin_memory=True)
    c = torch.empty(1, device="cuda", dtype=torch.long)
    busy(50)
    b.copy_(a, non_blocking=True)
    c.copy_(b, non_blocking=True)
    t.assertEqual(c.item(), 1)


@row("TestCuda.test_to_non_blocking", gpu="copies that are under way, which the host driver's never are")
def to_non_blocking(t):
    for to in ("cuda", "cpu"):
        for waits in (True, False):
            x = torch.randn(1000000, device="cuda") if to == "cpu" else torch.randn(1000000).pin_memory()
            torch.cuda.synchronize()
            busy(100)
            y = x.to(to, non_blocking=not waits)
            t.assertEqual(torch.cuda.current_stream().query(), waits)
            torch.cuda.synchronize()
            t.same(y.cpu(), x.cpu())
            t.assertEqual(y.is_pinned(), to == "cpu" and not waits)


@row("TestCuda.test_to_cpu_blocking_by_default")
def to_cpu_blocking_by_default(t):
    x = torch.randn(1000000, device="cuda")
    busy(50)
    y = x.to("cpu")
    t.assertTrue(torch.cuda.current_stream().query())
    t.same(y, x.cpu())
    t.assertFalse(y.is_pinned())


# Of the device.

@row("TestCuda.test_memory_allocation")
def memory_allocation(t):
    clean()
    before = torch.cuda.memory_allocated()
    memory = torch.cuda.caching_allocator_alloc(1)
    t.assertGreater(torch.cuda.memory_allocated(), before)
    torch.cuda.caching_allocator_delete(memory)
    t.assertEqual(torch.cuda.memory_allocated(), before)


@row("TestCuda.test_memory_stats")
def memory_stats(t):
    clean()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    here = torch.accelerator
    before = here.memory_allocated(), here.memory_reserved()
    t.assertEqual((here.max_memory_allocated(), here.max_memory_reserved()), before)
    active = here.memory_stats()["active_bytes.all.current"]
    x = torch.randn(256, device="cuda")
    now = here.memory_stats()
    t.assertEqual((now["active_bytes.all.current"], now["active_bytes.all.freed"]), (active + 1024, 0))
    del x
    gc.collect()
    here.empty_cache()
    now = here.memory_stats()
    t.assertEqual((now["active_bytes.all.current"], now["active_bytes.all.freed"]), (active, 1024))
    here.reset_peak_memory_stats()
    t.assertEqual((here.max_memory_allocated(), here.max_memory_reserved()), before)


@row("TestCuda.test_out_of_memory")
def out_of_memory(t):
    x = torch.zeros(1024, device="cuda")
    for size, text in ((800000000, r"Tried to allocate 800000000\.00 GiB\. GPU 0 has a total capacity of"),
                       (8000000000, "Tried to allocate more than 1EB memory")):
        with t.assertRaisesRegex(RuntimeError, text):
            of_bytes(size << 30)
    t.assertTrue((x.fill_(1) == 1).all())


@row("TestCuda.test_out_of_memory_retry", alone=True)
def out_of_memory_retry(t):
    clean()
    half = int(torch.cuda.get_device_properties(0).total_memory * 0.5) + 2 * MIB
    a = of_bytes(half)
    with t.assertRaisesRegex(RuntimeError, "Tried to allocate"):
        of_bytes(half)
    del a
    b = of_bytes(half)
    t.assertEqual(b.numel(), half)


@row("TestCuda.test_set_per_process_memory_fraction", alone=True, gpu=LARGE)
def set_per_process_memory_fraction(t):
    set_fraction = torch.cuda.set_per_process_memory_fraction
    with t.assertRaisesRegex(TypeError, "Invalid type"):
        set_fraction(1)
    for wrong in (-0.1, 2.0):
        with t.assertRaisesRegex(ValueError, "Invalid fraction value"):
            set_fraction(wrong)
    x = torch.zeros(1024, device="cuda")
    clean()
    torch.cuda.reset_peak_memory_stats()
    total = torch.cuda.get_device_properties(0).total_memory
    set_fraction(0.5, 0)
    of_bytes(int(total * 0.499) - torch.cuda.max_memory_reserved())
    torch.cuda.empty_cache()
    with t.assertRaisesRegex(RuntimeError, "out of memory"):
        of_bytes(int(total * 0.5))
    t.assertTrue((x.fill_(1) == 1).all())


@row("TestCuda.test_get_per_process_memory_fraction")
def get_per_process_memory_fraction(t):
    for value in (1.0, 0.0, *torch.rand(3).tolist()):
        torch.cuda.set_per_process_memory_fraction(value)
        t.assertAlmostEqual(torch.cuda.get_per_process_memory_fraction(), value, places=6)


@row("TestCuda.test_caching_allocator_record_stream_oom")
def caching_allocator_record_stream_oom(t):
    stream, count = torch.cuda.Stream(), MIB if ON_HOST else 40 * MIB
    with limited(12 * 4 * count):  # PyTorch's goes to the end of the device
        with torch.cuda.stream(stream):
            y = torch.zeros(count, device="cuda")
        for _ in range(100):
            x = torch.empty(count, device="cuda")
            with torch.cuda.stream(stream):
                y += x
            x.record_stream(stream)
            del x
        del y


@row("TestCuda.test_cublas_workspace_explicit_allocation")
def cublas_workspace_explicit_allocation(t):
    a = torch.randn(7, 7, device="cuda")
    hopper = torch.cuda.get_device_capability() == (9, 0)
    default = 32 * MIB if hopper else (8192 + 128) * 1024
    for config, expected in (("", default), ("-1", default), (":128:8:64:16:32:32", 3072 * 1024)):
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = config
        torch._C._cuda_clearCublasWorkspaces()
        before = stats("active_bytes.all.allocated")
        torch.matmul(a, a)
        t.assertLess(abs(stats("active_bytes.all.allocated") - before - expected), 524288, config)
    torch._C._cuda_clearCublasWorkspaces()


@row("TestCuda.test_matmul_memory_use")
def matmul_memory_use(t):
    def peak():
        torch.cuda.synchronize()
        value = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return value
    a, b, peaks = torch.rand(1, 32, 32, device="cuda"), torch.rand(24, 32, 1, device="cuda"), []
    peak()
    for work in (lambda: torch.matmul(a, b), lambda: torch.matmul(a.expand(24, 32, 32), b),
                 lambda: torch.bmm(a.expand(24, 32, 32), b)):
        work()
        peaks.append(peak())
    t.assertEqual(len(set(peaks)), 1, peaks)


@row("TestCuda.test_cuda_memory_leak_detection_propagates_errors")
def cuda_memory_leak_detection_propagates_errors(t):
    clean()
    before = torch.cuda.memory_allocated()
    with t.assertRaisesRegex(RuntimeError, r"The size of tensor a \(3\) must match"):
        torch.randn(3, 1, device="cuda") + torch.randn(2, 1, device="cuda").T.expand(4, 2)
    gc.collect()
    t.assertEqual(torch.cuda.memory_allocated(), before)


@row("TestCuda.test_lazy_init", gpu="a driver that hides devices, which the host's does not")
def lazy_init(t):
    t.assertEqual(script(t, """
import os, torch
os.environ["CUDA_VISIBLE_DEVICES"] = "32"
print(torch.cuda.device_count())
""").stdout, "0\n")
    # 3 is CUDA_ERROR_NOT_INITIALIZED: nobody has called cuInit.
    t.assertEqual(script(t, """
import ctypes, torch
print(ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(ctypes.c_int(-1))))
""").stdout, "3\n")


@row("TestCuda.test_serialization_array_with_storage")
def serialization_array_with_storage(t):
    x, y = torch.randn(5, 5, device="cuda"), torch.zeros(2, 5, dtype=torch.int32, device="cuda")
    with tempfile.NamedTemporaryFile() as file:
        torch.save([x, y, x, y.storage()], file.name)
        a, b, c, d = torch.load(file.name, weights_only=False)
    for one, other in ((a, x), (b, y), (c, x)):
        t.same(one, other)
    a.fill_(5)
    t.same(c, a)
    t.assertIsInstance(d, torch.storage.TypedStorage)
    b.fill_(10)
    t.assertEqual(list(d), [10] * 10)


@row("TestCuda.test_serialization_array_with_empty")
def serialization_array_with_empty(t):
    given = [torch.randn(4, 4, device="cuda"), torch.empty(0, device="cuda")]
    with tempfile.NamedTemporaryFile() as file:
        torch.save(given, file.name)
        for one, other in zip(torch.load(file.name), given):
            t.same(one, other)
            t.assertEqual(one.device, other.device)


@row("TestCuda.test_cuda_kernel_loop_overflow", gpu=LARGE)
def cuda_kernel_loop_overflow(t):
    x = torch.randn(1, 1, 1, (1 << 30) + 1, dtype=torch.half, device="cuda")
    y = nn.functional.avg_pool2d(x, kernel_size=1)
    t.assertEqual(y[0, 0, 0, 1 << 30].item(), x[0, 0, 0, 1 << 30].item())


@row("TestCuda.test_cuda_kernel_loop_overflow_large", gpu=LARGE)
def cuda_kernel_loop_overflow_large(t):
    with t.assertRaisesRegex(RuntimeError, "integer out of range"):
        nn.functional.avg_pool2d(torch.randn(1, 1, 1, 1 << 31, dtype=torch.half, device="cuda"), kernel_size=1)
    x = torch.randn(1, 1, 1, (1 << 31) - 1, dtype=torch.half, device="cuda")
    y = nn.functional.avg_pool2d(x, kernel_size=1)
    t.assertEqual(y[0, 0, 0, -1].item(), x[0, 0, 0, -1].item())


def on_threads(count, work):
    failed, barrier = [], threading.Barrier(count)

    def run(number):
        try:
            torch.cuda.synchronize()
            barrier.wait()
            with torch.cuda.stream(torch.cuda.Stream()):
                work(number)
            torch.cuda.synchronize()
        except Exception as error:  # told in the main thread
            failed.append(error)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


@row("TestCuda.test_cublas_multiple_threads_same_device", seconds=120)
def cublas_multiple_threads_same_device(t):
    size, times = (128, 20) if ON_HOST else (1024, 100)
    weight, results = torch.ones(size, size, device="cuda"), {}

    def work(number):
        for _ in range(times):
            results[number] = torch.mm(results[number], weight).div_(float(size))
    for _ in range(3):
        results.update({number: torch.ones(size, size, device="cuda") for number in range(2)})
        t.assertEqual(on_threads(2, work), [])
        for made in results.values():
            t.assertEqual(made.sum().item(), size * size)


@row("TestCuda.test_cudnn_multiple_threads_same_device", gpu=CUDNN, seconds=120)
def cudnn_multiple_threads_same_device(t):
    weight, results, times = torch.ones(1, 1, 2, 2, device="cuda"), {}, 300

    def work(number):
        for _ in range(times):
            results[number] = nn.functional.conv2d(results[number], weight).div_(4.0)
    for _ in range(3):
        results.update({number: torch.ones(1, 1, 1024, 1024, device="cuda") for number in range(2)})
        t.assertEqual(on_threads(2, work), [])
        for made in results.values():
            t.assertEqual(made.sum().item(), (1024 - times) ** 2)


@row("TestCuda.test_cusparse_multiple_threads_same_device", gpu="cuSPARSE, which the host driver has not",
     seconds=120)
def cusparse_multiple_threads_same_device(t):
    size, results = 512, {}
    weight = torch.ones(size, size, device="cuda").to_sparse()

    def work(number):
        for _ in range(100):
            results[number] = weight.mm(results[number]).div_(float(size))
    for _ in range(3):
        results.update({number: torch.ones(size, size, device="cuda") for number in range(2)})
        t.assertEqual(on_threads(2, work), [])
        for made in results.values():
            t.assertEqual(made.sum().item(), size * size)


# Settings of the allocator: TestCudaMallocAsync.

@row("TestCudaMallocAsync.test_max_split_expandable")
def max_split_expandable(t):
    def alloc(mib):
        return torch.ones(mib * MIB, dtype=torch.int8, device="cuda")
    with limited(120 * MIB):
        kept = []
        for expandable in (False, True, False):
            settings(f"expandable_segments:{expandable},max_split_size_mb:40")
            kept.append(alloc(40))
        with t.assertRaises(torch.OutOfMemoryError):
            alloc(40)
        kept.clear()
        alloc(120)


@row("TestCudaMallocAsync.test_garbage_collect_expandable")
def garbage_collect_expandable(t):
    def alloc(mib):
        return torch.ones(mib * MIB, dtype=torch.int8, device="cuda")
    with limited(120 * MIB):
        kept = []
        for expandable in (False, True):
            settings(f"expandable_segments:{expandable},garbage_collection_threshold:0.5")
            kept.append(alloc(40))
        kept.clear()
        t.assertEqual(alloc(80).numel(), 80 * MIB)


def rounded(size, parts):
    """Up to the next of so many equal parts between two powers of two."""
    power = 1 << (size - 1).bit_length()
    step = power // 2 // parts
    return size if power == size else -(-size // step) * step


@row("TestCudaMallocAsync.test_allocator_settings")
def allocator_settings(t):
    size, big = 84 * MIB, 400 * MIB

    def taken(count):
        torch.cuda.empty_cache()
        before = stats("active_bytes.all.allocated"), stats("requested_bytes.all.allocated")
        x = torch.rand(count // 4, device="cuda")
        after = stats("active_bytes.all.allocated"), stats("requested_bytes.all.allocated")
        del x
        t.assertEqual(after[1] - before[1], count)
        return after[0] - before[0]

    for text, count, expected in (
            ("", size, size), ("roundup_power2_divisions:4", size, rounded(size, 4)),
            ("garbage_collection_threshold:0.5,max_split_size_mb:40", size, size),
            ("garbage_collection_threshold:0.5,roundup_power2_divisions:"
             "[64:8,128:2,256:2,512:2,1024:1,>:1]", size, rounded(size, 8)),
            (None, big, rounded(big, 2)), ("release_lock_on_cudamalloc:True", size, size)):
        if text is not None:
            settings(text)
        t.assertEqual(taken(count), expected, text)
    for wrong in ("foo:1,bar:2", "garbage_collection_threshold:1.2", "max_split_size_mb:2",
                  "release_lock_on_cudamalloc:none", "pinned_use_cuda_host_register:none",
                  "pinned_num_register_threads:none", "pinned_num_register_threads:1024"):
        with t.assertRaises(ValueError):
            torch._C._accelerator_setAllocatorSettings(wrong)


@row("TestCudaMallocAsync.test_allocator_backend", gpu="memory pools of the driver, which the host's has not")
def allocator_backend(t):
    # Another backend is for a program without install(): as PyTorch's test, it starts one.
    done = subprocess.run([sys.executable, "-c", """
import os
os.environ["PYTORCH_ALLOC_CONF"] = "max_split_size_mb:20,backend:cudaMallocAsync"
import torch
torch.cuda.init()
print(torch.cuda.get_allocator_backend())
"""], capture_output=True, text=True, check=True)
    t.assertEqual(done.stdout, "cudaMallocAsync\n")


@row("TestCudaMallocAsync.test_allocator_memory_fraction_setting")
def allocator_memory_fraction_setting(t):
    text = """
import torch
torch.cuda.init()
print(torch.cuda.get_per_process_memory_fraction(0))
"""
    for value in (0.0, 0.5, 1.0):
        done = script(t, text, PYTORCH_CUDA_ALLOC_CONF=f"per_process_memory_fraction:{value}")
        t.assertEqual(done.stdout, f"{value}\n")
    for value in (-0.1, 1.1):
        done = script(t, text, check=False, PYTORCH_CUDA_ALLOC_CONF=f"per_process_memory_fraction:{value}")
        t.assertNotEqual(done.returncode, 0)
        t.assertIn("per_process_memory_fraction is invalid", done.stderr)


@row("TestCudaMallocAsync.test_cachingAllocator_raw_alloc")
def caching_allocator_raw_alloc(t):
    stream = torch._C._cuda_getCurrentRawStream(0)

    def counted():
        before = stats("requested_bytes.all.allocated")
        memory = torch._C._cuda_cudaCachingAllocator_raw_alloc(MIB, stream)
        after = stats("requested_bytes.all.allocated")
        torch._C._cuda_cudaCachingAllocator_raw_delete(memory)
        return after - before

    clean()
    torch.cuda.reset_accumulated_memory_stats()
    torch.cuda.caching_allocator_enable(False)
    try:
        t.assertEqual(counted(), 0)
    finally:
        torch.cuda.caching_allocator_enable(True)
    t.assertEqual(counted(), MIB)


@row("TestCudaMallocAsync.test_raises_oom_max_split_size_mb_setting_False", False)
@row("TestCudaMallocAsync.test_raises_oom_max_split_size_mb_setting_True", True)
def raises_oom(t, split):
    if split:
        settings("max_split_size_mb:1024")
        torch.cuda.empty_cache()
    with t.assertRaises(torch.cuda.OutOfMemoryError):
        torch.empty(1 << 40, device="cuda")


@row("TestCudaMallocAsync.test_notifies_oom")
def notifies_oom(t):
    told = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *what: told.append(what))
    with t.assertRaises(torch.cuda.OutOfMemoryError):
        torch.empty(1 << 40, device="cuda")
    t.assertEqual(len(told), 1)
    t.assertEqual(len(told[0]), 4)


@row("TestCudaMallocAsync.test_allocator_fuzz", seconds=150)
def allocator_fuzz(t):
    chance, live, total = random.Random(123), [], 0
    for number in range(300 if ON_HOST else 10000):
        what = chance.choices(("alloc", "free", "empty"), weights=(1, 1 if live else 0, 0.1))[0]
        while live and (what == "free" or total >= (1 << 30) / 40):
            value, x = live.pop(chance.randrange(len(live)))
            t.assertTrue(torch.all(x == value))
            total -= x.numel()
            if what == "free":
                break
        if what == "alloc":
            count = chance.randrange(2 * MIB // 4, 20 * MIB // 4)
            live.append((number, torch.full((count,), number, dtype=torch.int32, device="cuda")))
            total += count
        elif what == "empty":
            torch.cuda.empty_cache()


@row("TestCudaMallocAsync.test_device_memory_used", alone=True)
def device_memory_used(t):
    """As PyTorch's, with the driver's number in the place of pynvml's."""
    clean()
    before = torch.cuda.mem_get_info()[0]
    x = of_bytes(512 * MIB)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    used = before - torch.cuda.mem_get_info()[0]
    t.assertTrue(16 * MIB <= used <= 512 * MIB * 32, used)
    del x


@row("TestCudaAutocast.test_autocast_cache_leak")
def autocast_cache_leak(t):
    linear, data = nn.Linear(10, 10).cuda(), torch.randn(1, 10, device="cuda")
    with torch.autocast("cuda"), torch.no_grad():
        out = linear(data)
        first = torch.cuda.memory_allocated()
        for _ in range(3):
            out = linear(data)
            t.assertEqual(torch.cuda.memory_allocated(), first)
    del out


@row("TestGreenContext.test_greencontext_restores_stream", gpu="green contexts, which the host driver has not")
def greencontext_restores_stream(t):
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        before = torch.cuda.current_stream().cuda_stream
        context = torch.cuda.green_contexts.GreenContext.create(1, 0)
        context.set_context()
        inside = torch.cuda.current_stream().cuda_stream
        context.pop_context()
        t.assertEqual(torch.cuda.current_stream().cuda_stream, before)
        t.assertNotEqual(inside, before)
