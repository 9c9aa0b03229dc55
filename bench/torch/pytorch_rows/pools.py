# SPDX-License-Identifier: MIT
"""Pools: checkpoints of those of graphs, torch.cuda.MemPool, and those of pinned memory."""

import contextlib
import ctypes
import gc
import itertools
import threading

import torch

from . import MIB, REGISTERS, captured, clean, limited, row, script, segments, settings

SMALL, SMALL_BUFFER, LARGE_BUFFER = MIB, 2 * MIB, 20 * MIB
FLOATS = MIB // 4  # of one MiB


def of_ones(count):
    return torch.ones(count, dtype=torch.uint8, device="cuda")


# Checkpoints.

def facts(found):
    """What a checkpoint keeps, by address."""
    return {s["address"]: ([tuple(s[key]) if isinstance(s[key], (list, tuple)) else s[key] for key in
                            ("device", "total_size", "allocated_size", "active_size", "segment_type",
                             "segment_pool_id")], [(b["size"], b["state"]) for b in s["blocks"]])
            for s in found}


def set_state(state, stale=(), again=()):
    torch._C._cuda_setCheckpointPoolState(0, state, [x.untyped_storage()._cdata for x in stale],
                                          [x.untyped_storage()._cdata for x in again])


def live(pool):
    return sum(b["state"] == "active_allocated" for s in segments(pool) for b in s["blocks"])


def checkpointed(t, function, *arguments):
    before = {s["address"] for s in segments() if tuple(s["segment_pool_id"]) != (0, 0)}
    graph, made = captured(function, *arguments, warm=True)
    pool = graph.pool()
    here = facts(segments(pool))
    t.assertTrue(here)
    set_state(torch._C._cuda_getCheckpointState(0, pool))
    after = facts(segments(pool))
    for address, facts_of_it in here.items():
        t.assertEqual(after[address], facts_of_it)
    del graph, made
    clean()
    t.assertEqual({s["address"] for s in segments() if tuple(s["segment_pool_id"]) != (0, 0)}, before)


@row("TestBlockStateAbsorption.test_simple")
def simple(t):
    def work():
        x = torch.zeros(8 * SMALL, dtype=torch.uint8, device="cuda")
        x = x + x
        y = of_ones(SMALL) + of_ones(SMALL) + of_ones(SMALL)
        return x, of_ones(SMALL) + y, of_ones(SMALL)
    checkpointed(t, work)


def of_eleven(*kept):
    def work():
        made = [of_ones(512) for _ in range(11)]
        return [made[which].add_(2) for which in kept]
    return work


@row("TestBlockStateAbsorption.test_allocated_in_middle_of_segment", (5,))
@row("TestBlockStateAbsorption.test_multiple_middle_allocations", (5, 8))
@row("TestBlockStateAbsorption.test_middle_allocations_contiguous", (5, 6))
def middle_allocations(t, kept):
    checkpointed(t, of_eleven(*kept))


@row("TestBlockStateAbsorption.test_additional_free_following_checkpoint")
def additional_free_following_checkpoint(t):
    graph, _made = captured(of_ones, 512, warm=True)
    before, state = facts(segments(graph.pool())), torch._C._cuda_getCheckpointState(0, graph.pool())
    _graph2, later = captured(of_ones, 512, warm=True, pool=graph.pool())
    set_state(state, [later])
    del later
    after = facts(segments(graph.pool()))
    for address, facts_of_it in before.items():
        t.assertEqual(after[address], facts_of_it)


@row("TestBlockStateAbsorption.test_tensor_dies_after_checkpoint")
def tensor_dies_after_checkpoint(t):
    graph, made = captured(lambda: (of_ones(512), of_ones(512)), warm=True)
    pool, state = graph.pool(), torch._C._cuda_getCheckpointState(0, graph.pool())
    places = [x.data_ptr() for x in made]
    del made
    set_state(state)
    for left, place in ((2, None), (1, places[0]), (0, places[1])):
        if place:
            torch._C._cuda_cudaCachingAllocator_raw_delete(place)
        t.assertEqual(live(pool), left)


@row("TestBlockStateAbsorption.test_assigning_back_deleter_fns_to_tensor")
def assigning_back_deleter_fns_to_tensor(t):
    x = torch.tensor([1], device="cuda")
    graph, made = captured(lambda: [of_ones(size) + x for size in (SMALL_BUFFER, SMALL_BUFFER, LARGE_BUFFER)],
                           warm=True)
    pool = graph.pool()
    graph.replay()

    def values(tensors):
        return [m.double().mean().item() for m in tensors]
    t.assertEqual(values(made), [2, 2, 2])
    state = torch._C._cuda_getCheckpointState(0, pool)
    known = [(m.untyped_storage().data_ptr(), m.untyped_storage().nbytes(), m.dtype, m.shape) for m in made]
    t.assertEqual(live(pool), 3)
    del made
    t.assertEqual(live(pool), 0)
    again = []
    for place, count, dtype, shape in known:
        storage = torch._C._construct_storage_from_data_pointer(place, torch.device("cuda", 0), count)
        again.append(torch.empty(0, dtype=dtype, device="cuda").set_(storage, 0, shape))
    t.assertEqual(values(again), [2, 2, 2])
    x.add_(1)
    graph.replay()
    t.assertEqual(values(again), [3, 3, 3])
    set_state(state, [], again[:2])
    for which, left in ((None, 3), (0, 2), (1, 1), (2, 1)):  # the last frees nothing: it was not passed
        if which is not None:
            again[which] = None
        t.assertEqual(live(pool), left)
    torch._C._cuda_cudaCachingAllocator_raw_delete(known[2][0])
    t.assertEqual(live(pool), 0)


@row("TestBlockStateAbsorption.test_resnet", seconds=150)
def resnet(t):
    def block(wide, out):
        return torch.nn.Sequential(torch.nn.Conv2d(wide, out, 3, padding=1), torch.nn.BatchNorm2d(out),
                                   torch.nn.ReLU())
    try:
        from torchvision.models import resnet18
        model = resnet18()
    except ImportError:
        model = torch.nn.Sequential(block(3, 16), torch.nn.MaxPool2d(2), block(16, 32),
                                    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10))
    model = model.eval().cuda()
    with torch.no_grad():
        checkpointed(t, model, torch.rand(1, 3, 96, 96, device="cuda"))


@row("TestBlockStateAbsorption.test_check_pool_live_allocations")
def check_pool_live_allocations(t):
    pool = torch.cuda.graph_pool_handle()
    _graph, made = captured(lambda: torch.ones(4, device="cuda"), warm=True, pool=pool)

    def check(places):
        return torch._C._cuda_checkPoolLiveAllocations(0, pool, places)
    t.assertTrue(check({made.data_ptr()}))
    t.assertFalse(check({made.data_ptr(), 0}))
    t.assertFalse(check(set()))
    del made
    t.assertTrue(check(set()))


@row("TestBlockStateAbsorption.test_allocate_in_thread_to_pool")
def allocate_in_thread_to_pool(t):
    pool = torch.cuda.graph_pool_handle()
    graph, made = captured(lambda: torch.rand(4, device="cuda"), warm=True, pool=pool)
    del made
    t.assertEqual(len(segments(pool)), 1)

    @contextlib.contextmanager
    def in_pool():
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool)
            try:
                yield
            finally:
                torch._C._cuda_endAllocateToPool(0, pool)
                torch._C._cuda_releasePool(0, pool)
        torch.cuda.current_stream().wait_stream(stream)

    def three():
        _sum = of_ones(LARGE_BUFFER) + of_ones(LARGE_BUFFER)

    def uses():
        with in_pool():
            for _ in range(10):
                three()
        three()

    def does_not():
        for _ in range(10):
            _kept = of_ones(LARGE_BUFFER), of_ones(LARGE_BUFFER)
    threads = [threading.Thread(target=work) for work in (uses, does_not)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The graph's, and one of each of the three, which are of the pool and of no other thread's.
    t.assertEqual(len(segments(pool)), 4)
    del graph
    clean()
    t.assertEqual(segments(pool), [])


@row("TestBlockStateAbsorption.test_no_triton_on_import")
def no_triton_on_import(t):
    t.assertEqual(script(t, "import sys, torch\ntorch.rand(2, device='cuda')\nprint('triton' in sys.modules)\n")
                  .stdout, "False\n")


# torch.cuda.MemPool.

class Own:
    """An allocator of its own, over the runtime's, that counts what is asked of it."""

    def __init__(self):
        self.runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
        self.taken, self.given = [], []

        def take(size, _device, _stream):
            place = ctypes.c_void_p()
            if self.runtime.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(size)):
                return None
            self.taken.append(size)
            return place.value

        def give(place, size, _device, _stream):
            self.given.append(size)
            self.runtime.cudaFree(ctypes.c_void_p(place))
        sized = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
        self.functions = (ctypes.CFUNCTYPE(ctypes.c_void_p, *sized)(take),
                          ctypes.CFUNCTYPE(None, ctypes.c_void_p, *sized)(give))
        self.made = torch._C._cuda_customAllocator(
            *(ctypes.cast(f, ctypes.c_void_p).value for f in self.functions))
        _KEPT.append(self.functions)


_KEPT = []  # functions that memory may be given back to until the process ends


@row("TestMemPool.test_mempool_id")
def mempool_id(t):
    handle, pool, later = torch.cuda.graph_pool_handle(), torch.cuda.MemPool(), torch.cuda.graph_pool_handle()
    t.assertEqual({i[0] == 0 for i in (handle, pool.id, later)}, {handle[0] == 0})
    t.assertTrue(handle[1] < pool.id[1] < later[1])


@row("TestMemPool.test_mempool_empty_cache")
def mempool_empty_cache(t):
    torch.cuda.empty_cache()
    pool, x = torch.cuda.MemPool(), torch.empty(1024, 1024, device="cuda")
    with torch.cuda.use_mem_pool(pool):
        y = torch.empty(1024, 1024, device="cuda")
    del x, y, pool
    t.assertTrue(segments())


@row("TestMemPool.test_mempool_empty_cache_inactive")
def mempool_empty_cache_inactive(t):
    clean()
    own = Own()

    def left():
        with torch.cuda.use_mem_pool(torch.cuda.MemPool(own.made)):
            return torch.arange(2 * MIB, device="cuda")
    x = left()
    t.assertTrue(own.taken)
    t.assertFalse(own.given)
    t.assertEqual(x[-1].item(), 2 * MIB - 1)
    del x
    torch.cuda.empty_cache()
    t.assertTrue(own.given)


@row("TestMemPool.test_mempool_with_allocator")
def mempool_with_allocator(t):
    t.assertIsNone(torch.cuda.MemPool().allocator)
    own = Own()
    pool = torch.cuda.MemPool(own.made)
    t.assertEqual(pool.allocator, own.made)
    t.assertEqual(pool.use_count(), 1)
    t.assertEqual((own.taken, own.given), ([], []))
    with torch.cuda.use_mem_pool(pool):
        made = [torch.randn(FLOATS, device="cuda")]
        t.assertEqual(pool.use_count(), 2)
    t.assertEqual(pool.use_count(), 1)
    t.assertTrue(own.taken)
    _beside = torch.empty(FLOATS, device="cuda")
    with torch.cuda.use_mem_pool(pool):
        for count in (1, 1, 2):  # two blocks of 1 MiB fill a segment of 2 MiB
            t.assertEqual(len(pool.snapshot()), count)
            if len(made) < 3:
                made.append(torch.randn(FLOATS, device="cuda"))
    t.assertEqual(len(pool.snapshot()), 2)
    made.clear()
    del pool
    t.assertTrue(own.given)


@row("TestMemPool.test_tensor_delete_after_allocator_delete")
def tensor_delete_after_allocator_delete(t):
    own = Own()
    pool = torch.cuda.MemPool(own.made)
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(4, device="cuda")
    t.assertTrue(own.taken)
    del pool, own.made
    gc.collect()
    t.assertFalse(own.given)
    del x
    torch.cuda.empty_cache()
    t.assertTrue(own.given)


@row("TestMemPool.test_mempool_limited_memory_with_allocator")
def mempool_limited_memory_with_allocator(t):
    own = Own()
    unused, used = torch.cuda.MemPool(own.made), torch.cuda.MemPool(own.made, use_on_oom=True)
    with limited(80 * MIB):
        kept = []
        for pool in (unused, used):
            with torch.cuda.use_mem_pool(pool):
                kept.append(torch.empty(40 * FLOATS, device="cuda"))
        place = kept[1].data_ptr()
        with t.assertRaises(torch.OutOfMemoryError):
            torch.empty(40 * FLOATS, device="cuda")
        kept.clear()
        c = torch.empty(30 * FLOATS, device="cuda")
        t.assertEqual(c.data_ptr(), place)
        with t.assertRaises(torch.OutOfMemoryError):
            torch.empty(30 * FLOATS, device="cuda")
        del c
        with torch.cuda.use_mem_pool(used):
            t.assertEqual(torch.empty(20 * FLOATS, device="cuda").data_ptr(), place)
        del used, unused, pool


@row("TestMemPool.test_mempool_no_split")
def mempool_no_split(t):
    torch.cuda.empty_cache()
    cut, whole, kept = torch.cuda.MemPool(), torch.cuda.MemPool(no_split=True), []
    for _ in range(2):
        for pool in (cut, whole):
            with torch.cuda.use_mem_pool(pool):
                kept.append(torch.randn(4 * FLOATS, device="cuda"))
    t.assertGreater(len(whole.snapshot()), len(cut.snapshot()))
    t.assertEqual({len(s["blocks"]) for s in whole.snapshot()}, {1})
    t.assertLess(*(sum(len(s["blocks"]) for s in pool.snapshot()) for pool in (whole, cut)))


@row("TestMemPool.test_deleted_mempool_not_used_on_oom")
def deleted_mempool_not_used_on_oom(t):
    own = Own()
    with limited(40 * MIB):
        for last in (*[False] * 10, True):
            pool = torch.cuda.MemPool(own.made, use_on_oom=True)
            with torch.cuda.use_mem_pool(pool):
                a = torch.empty(40 * FLOATS, device="cuda")
            del a
            if not last:
                del pool
        b, c = (torch.empty(20 * FLOATS, device="cuda") for _ in range(2))
        t.assertNotEqual(b.data_ptr(), c.data_ptr())
        del b, c, pool


@row("TestMemPool.test_mempool_multithread")
def mempool_multithread(t):
    ids = []
    threads = [threading.Thread(target=lambda: ids.append(torch.cuda.MemPool().id)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    t.assertEqual(len(set(ids)), 4)


@row("TestMemPool.test_mempool_emptycache_multithread")
def mempool_emptycache_multithread(t):
    pools = [torch.cuda.MemPool() for _ in range(4)]

    def use(pool):
        with torch.cuda.use_mem_pool(pool):
            x = torch.randn(4, device="cuda")
            del x
            torch.cuda.empty_cache()
    threads = [threading.Thread(target=use, args=(pool,)) for pool in pools]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    t.assertEqual([len(pool.snapshot()) for pool in pools], [1] * 4)


@row("TestMemPool.test_nested_mempool")
def nested_mempool(t):
    torch.cuda.empty_cache()
    pools, kept = [torch.cuda.MemPool() for _ in range(3)], []

    def take():
        kept.append(torch.empty(20 * FLOATS, device="cuda"))

    def within(rest):
        if rest:
            with torch.cuda.use_mem_pool(rest[0]):
                take()
                within(rest[1:])
                if rest[1:]:
                    take()
    within(pools)
    t.assertEqual([len(torch.cuda.memory.memory_snapshot(pool.id)) for pool in pools], [2, 2, 1])


@row("TestMemPool.test_graph_capture_reclaim_2_streams")
def graph_capture_reclaim_2_streams(t):
    settings("graph_capture_record_stream_reuse:True")
    torch.cuda.empty_cache()
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(one):
        graph.capture_begin()
        sink, x = torch.empty(8, device="cuda"), torch.empty(8, device="cuda")
        place = x.data_ptr()
        other.wait_stream(one)
        with torch.cuda.stream(other):
            y = torch.empty_like(x)
            torch.add(x, 2.0, out=y)
            x.record_stream(other)
        del x
        before = torch.empty(8, device="cuda")
        one.wait_stream(other)
        sink.fill_(1.0)
        after = torch.empty(8, device="cuda")
        graph.capture_end()
    settings("graph_capture_record_stream_reuse:False")
    t.assertNotEqual(before.data_ptr(), place)
    t.assertEqual(after.data_ptr(), place)


@row("TestMemPool.test_graph_capture_reclaim_4_streams")
def graph_capture_reclaim_4_streams(t):
    settings("graph_capture_record_stream_reuse:True")
    torch.cuda.empty_cache()
    own, *sides = (torch.cuda.Stream() for _ in range(4))
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(own):
        graph.capture_begin()
        x = torch.ones(8, device="cuda")
        sinks, made, place = [torch.empty_like(x) for _ in range(2)], [], x.data_ptr()
        for side in sides:
            side.wait_stream(own)
            with torch.cuda.stream(side):
                made.append(torch.empty_like(x))
                torch.add(x, 2.0, out=made[-1])
                x.record_stream(side)
        del x
        own.wait_stream(sides[0])
        sinks[0].fill_(1.0)
        sides[1].wait_stream(sides[2])
        with torch.cuda.stream(sides[1]):
            sinks[1].fill_(3.0)
            sinks[1].record_stream(sides[1])
        before = torch.empty(8, device="cuda")  # two of the three have come together with their own
        own.wait_stream(sides[1])
        sinks[0].add_(sinks[1])
        after = torch.empty(8, device="cuda")
        graph.capture_end()
    settings("graph_capture_record_stream_reuse:False")
    t.assertNotEqual(before.data_ptr(), place)
    t.assertEqual(after.data_ptr(), place)


@row("TestMemPool.test_mempool_expandable")
def mempool_expandable(t):
    torch.cuda.empty_cache()
    settings("expandable_segments:True")
    own = Own()
    pool = torch.cuda.MemPool(own.made)
    with torch.cuda.use_mem_pool(pool):
        kept = [torch.empty(FLOATS, device="cuda")]
    kept.append(torch.empty(FLOATS, device="cuda"))
    t.assertEqual(sorted(bool(s["is_expandable"]) for s in segments()), [False, True])
    settings("expandable_segments:False")


@row("TestMemPool.test_mempool_ctx_multithread")
def mempool_ctx_multithread(t):
    torch.cuda.empty_cache()
    t.assertEqual(segments(), [])
    asks, done, found = threading.Event(), threading.Event(), []

    def uses():
        pool, _kept = torch.cuda.MemPool(), torch.empty(MIB, dtype=torch.int8, device="cuda")
        with torch.cuda.use_mem_pool(pool):
            _gone = torch.empty(MIB, dtype=torch.int8, device="cuda")
            del _gone
            asks.set()
            done.wait(10)

    def beside():
        asks.wait(10)
        _kept = torch.empty(MIB, dtype=torch.int8, device="cuda")
        found.extend(segments())
        done.set()
    threads = [threading.Thread(target=work) for work in (uses, beside)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    t.assertEqual(len(found), 2)
    active = {}
    for s in found:
        which = tuple(s["segment_pool_id"]) == (0, 0)
        active[which] = active.get(which, 0) + s["active_size"]
    t.assertEqual(active, {True: 2 * MIB, False: 0})


# Pinned memory in captures.

@contextlib.contextmanager
def pinned(register, background=False):
    if register:
        settings("pinned_use_cuda_host_register:True,pinned_num_register_threads:8")
    if background:
        settings("pinned_use_background_threads:True")
    yield


def host_capture(**options):
    return torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local", **options)


@row("TestCachingHostAllocatorCudaGraph.test_pin_memory_no_use_use_cuda_host_register_False", False)
@row("TestCachingHostAllocatorCudaGraph.test_pin_memory_no_use_use_cuda_host_register_True", True, gpu=REGISTERS)
def pin_memory_no_use(t, register):
    with pinned(register):
        with host_capture():
            one, other = (torch.empty(8, pin_memory=True) for _ in range(2))
        t.assertNotEqual(one.data_ptr(), other.data_ptr())


@row("TestCachingHostAllocatorCudaGraph.test_pin_memory_no_use2_use_cuda_host_register_False", False)
@row("TestCachingHostAllocatorCudaGraph.test_pin_memory_no_use2_use_cuda_host_register_True", True, gpu=REGISTERS)
def pin_memory_no_use2(t, register):
    with pinned(register), host_capture():
        one = torch.randn(8).pin_memory()
        place = one.data_ptr()
        del one
        t.assertEqual(torch.randn(8).pin_memory().data_ptr(), place)


@row("TestCachingHostAllocatorCudaGraph.test_pin_memory_use_use_cuda_host_register_False", False)
@row("TestCachingHostAllocatorCudaGraph.test_pin_memory_use_use_cuda_host_register_True", True, gpu=REGISTERS)
def pin_memory_use(t, register):
    with pinned(register):
        with host_capture():
            one, there = torch.randn(8).pin_memory(), torch.randn(8, device="cuda")
            there.copy_(one, non_blocking=True)
            place = one.data_ptr()
            del one
            other = torch.randn(8).pin_memory()
        t.assertNotEqual(other.data_ptr(), place)


def two_graphs(t, background, register, used, deleted):
    pool, places, kept = torch.cuda.graph_pool_handle(), [], []
    with pinned(register, background):
        for _ in range(2):
            kept.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(kept[-1], pool=pool, capture_error_mode="thread_local"):
                x = torch.randn(8).pin_memory()
                if used:
                    kept.append(torch.randn(8, device="cuda").copy_(x, non_blocking=True))
                places.append(x.data_ptr())
                if not deleted:
                    kept.append(x)
                del x
        (t.assertEqual if deleted and not used else t.assertNotEqual)(*places)


for _case in itertools.product((False, True), repeat=4):
    row("TestCachingHostAllocatorCudaGraph.test_two_graphs_use_memory_{2}_delete_memory_{3}_"
        "use_background_threads_{0}_use_cuda_host_register_{1}".format(*_case), *_case,
        gpu=REGISTERS if _case[1] else None)(two_graphs)


@row("TestCachingHostAllocatorCudaGraph.test_unpinned_memory_use", True)
@row("TestCachingHostAllocatorCudaGraph.test_unpinned_memory_use_device_to_host", False)
def unpinned_memory_use(t, to_device):
    with t.assertRaisesRegex(RuntimeError, "Cannot copy between CPU and CUDA tensors during CUDA graph capture"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            here, there = torch.empty(8), torch.randn(8, device="cuda")
            if to_device:
                there.copy_(here, non_blocking=True)
            else:
                here.copy_(there, non_blocking=True)
