/* SPDX-License-Identifier: MIT
 *
 * Virtual memory management: reserved addresses, chunks of device memory, mappings, aliasing.
 */
#include "conformance.h"

#include <stdio.h>
#include <unistd.h>

static CUmemAllocationProp properties(struct rpt *t)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = t->device}};
}

static size_t granularity(struct rpt *t)
{
    CUmemAllocationProp prop = properties(t);
    size_t bytes = 0;
    OK(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    return bytes;
}

static CUdeviceptr reserve(struct rpt *t, size_t bytes)
{
    CUdeviceptr address;
    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    rpt_track(t, TRACKED_RESERVATION, address, bytes);
    return address;
}

static CUmemGenericAllocationHandle chunk(struct rpt *t, size_t bytes)
{
    CUmemAllocationProp prop = properties(t);
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, bytes, &prop, 0));
    rpt_track(t, TRACKED_CHUNK, handle, bytes);
    return handle;
}

static void allow(struct rpt *t, CUdeviceptr address, size_t bytes)
{
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, t->device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess(address, bytes, &access, 1));
}

static void map(struct rpt *t, CUdeviceptr address, size_t bytes,
                CUmemGenericAllocationHandle handle)
{
    OK(cuMemMap(address, bytes, 0, handle, 0));
    rpt_track(t, TRACKED_MAPPING, address, bytes);
    allow(t, address, bytes);
}

void case_virtual_granularity(struct rpt *t)
{
    CUmemAllocationProp prop = properties(t);
    size_t minimum = granularity(t), recommended = 0;
    OK(cuMemGetAllocationGranularity(&recommended, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    REQUIRE(minimum >= 4096 && (minimum & (minimum - 1)) == 0);
    REQUIRE(recommended >= minimum && recommended % minimum == 0);
}

void case_virtual_map_and_use(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr address = reserve(t, 2 * bytes);
    CUstream stream = rpt_stream(t);
    map(t, address + bytes, bytes, chunk(t, bytes));
    rpt_mix(t, stream, address + bytes, 5);
    OK(cuMemsetD32Async(address + 2 * bytes - 4, 9, 1, stream));
    OK(cuStreamSynchronize(stream));
    REQUIRE(rpt_word(t, address + 2 * bytes - 4) == 9);
}

void case_virtual_aliases_see_the_same_bytes(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr a = reserve(t, bytes), b = reserve(t, bytes);
    CUmemGenericAllocationHandle handle = chunk(t, bytes);
    map(t, a, bytes, handle);
    map(t, b, bytes, handle);
    OK(cuMemsetD32(a + 8, 77, 1));
    EQUAL(rpt_word(t, b + 8), 77);
    OK(cuMemsetD32(b + 8, 78, 1));
    EQUAL(rpt_word(t, a + 8), 78);
}

/* What a rehearsal does: a long range, every page of it on one chunk. */
void case_virtual_range_on_one_chunk(struct rpt *t)
{
    enum { TIMES = 16 };
    size_t bytes = granularity(t);
    CUdeviceptr range = reserve(t, TIMES * bytes);
    CUmemGenericAllocationHandle handle = chunk(t, bytes);
    for (size_t i = 0; i < TIMES; i++) {
        OK(cuMemMap(range + i * bytes, bytes, 0, handle, 0));
        rpt_track(t, TRACKED_MAPPING, range + i * bytes, bytes);
    }
    allow(t, range, TIMES * bytes);
    OK(cuMemsetD32(range + 5 * bytes + 64, 123, 1));
    for (size_t i = 0; i < TIMES; i++)
        EQUAL(rpt_word(t, range + i * bytes + 64), 123);
    OK(cuMemsetD8(range, 0, TIMES * bytes));
    EQUAL(rpt_word(t, range + 64), 0);
}

void case_virtual_chunks_side_by_side(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr range = reserve(t, 2 * bytes);
    map(t, range, bytes, chunk(t, bytes));
    map(t, range + bytes, bytes, chunk(t, bytes));
    OK(cuMemsetD8(range, 0x5a, 2 * bytes));
    EQUAL(rpt_word(t, range + bytes - 2), 0x5a5a5a5a);
    EQUAL(rpt_word(t, range + 2 * bytes - 4), 0x5a5a5a5a);
}

void case_virtual_bytes_move_with_the_chunk(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr a = reserve(t, bytes), b = reserve(t, bytes);
    CUmemGenericAllocationHandle handle = chunk(t, bytes);
    map(t, a, bytes, handle);
    OK(cuMemsetD32(a, 31, 1));
    OK(cuCtxSynchronize());
    rpt_forget(t, TRACKED_MAPPING, a);
    OK(cuMemUnmap(a, bytes));
    map(t, b, bytes, handle);
    EQUAL(rpt_word(t, b), 31);
}

void case_virtual_released_chunk_lives_while_mapped(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr a = reserve(t, bytes);
    CUmemGenericAllocationHandle handle = chunk(t, bytes);
    map(t, a, bytes, handle);
    rpt_forget(t, TRACKED_CHUNK, handle);
    OK(cuMemRelease(handle));
    OK(cuMemsetD32(a, 8, 1));
    EQUAL(rpt_word(t, a), 8);
}

/* A chunk that can be given to other processes. */
static CUmemGenericAllocationHandle shareable(struct rpt *t, size_t bytes)
{
    CUmemAllocationProp prop = properties(t);
    CUmemGenericAllocationHandle handle;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    OK(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static int share(struct rpt *t, CUmemGenericAllocationHandle handle)
{
    int file = -1;
    OK(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    REQUIRE(file >= 0);
    return file;
}

/* What the descriptor leads to, which is closed. */
static CUmemGenericAllocationHandle open_shared(struct rpt *t, int file)
{
    CUmemGenericAllocationHandle handle;
    OK(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)file,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(file);
    rpt_track(t, TRACKED_CHUNK, handle, 0);
    return handle;
}

void case_virtual_shared_chunk_is_the_same_memory(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUmemGenericAllocationHandle handle = shareable(t, bytes);
    rpt_track(t, TRACKED_CHUNK, handle, bytes);
    CUdeviceptr ours = reserve(t, bytes), theirs = reserve(t, bytes);
    map(t, ours, bytes, handle);
    OK(cuMemsetD32(ours + 64, 6, 1)); /* before it is shared */
    OK(cuCtxSynchronize());
    map(t, theirs, bytes, open_shared(t, share(t, handle)));
    EQUAL(rpt_word(t, theirs + 64), 6);
    OK(cuMemsetD32(theirs + 64, 7, 1));
    OK(cuMemsetD32(ours + 128, 8, 1));
    OK(cuCtxSynchronize());
    EQUAL(rpt_word(t, ours + 64), 7);
    EQUAL(rpt_word(t, theirs + 128), 8);
    int again = share(t, handle);
    close(again);
    EQUAL(rpt_word(t, ours + 64), 7);
}

void case_virtual_shared_chunk_outlives_its_maker(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUmemGenericAllocationHandle handle = shareable(t, bytes);
    CUdeviceptr ours = reserve(t, bytes), theirs = reserve(t, bytes);
    OK(cuMemMap(ours, bytes, 0, handle, 0));
    allow(t, ours, bytes);
    OK(cuMemsetD32(ours, 9, 1));
    OK(cuCtxSynchronize());
    CUmemGenericAllocationHandle opened = open_shared(t, share(t, handle));
    OK(cuMemUnmap(ours, bytes));
    OK(cuMemRelease(handle));
    map(t, theirs, bytes, opened);
    EQUAL(rpt_word(t, theirs), 9);
}

void case_virtual_share_refusals(struct rpt *t)
{
    size_t bytes = granularity(t);
    int file = -1;
    CUmemGenericAllocationHandle plain = chunk(t, bytes), handle;
    CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&file, plain, type, 0));
    FILE *other = tmpfile();
    REQUIRE(other);
    CUresult result =
        t->d->cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fileno(other), type);
    fclose(other);
    REQUIRE(result != CUDA_SUCCESS);
}

void case_virtual_create_refusals(struct rpt *t)
{
    CUmemAllocationProp prop = properties(t);
    CUmemGenericAllocationHandle handle;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 0, &prop, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, granularity(t) + 1, &prop, 0));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, (size_t)1 << 50, &prop, 0));
}

void case_virtual_reserve_refusals(struct rpt *t)
{
    CUdeviceptr address;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 0, 0, 0, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, granularity(t), 3, 0, 0));
}

void case_virtual_reserve_aligns(struct rpt *t)
{
    size_t bytes = granularity(t), alignment = 16 * bytes;
    CUdeviceptr address;
    OK(cuMemAddressReserve(&address, bytes, alignment, 0, 0));
    rpt_track(t, TRACKED_RESERVATION, address, bytes);
    EQUAL(address % alignment, 0);
}

void case_virtual_map_refusals(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr range = reserve(t, bytes);
    CUmemGenericAllocationHandle handle = chunk(t, bytes);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(range, 0, 0, handle, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemMap(range + 1, bytes, 0, handle, 0));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(range, bytes + 1, 0, handle, 0));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(range, 2 * bytes, 0, handle, 0));
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(range, bytes, 1, handle, 0));
    map(t, range, bytes, handle);
}

void case_virtual_map_over_a_mapping_undocumented(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr range = reserve(t, bytes);
    map(t, range, bytes, chunk(t, bytes));
    OK(cuMemsetD32(range, 3, 1));
    CUmemGenericAllocationHandle other = chunk(t, bytes);
    REFUSED(cuMemMap(range, bytes, 0, other, 0));
    EQUAL(rpt_word(t, range), 3);
}

/* A mapping is unmapped whole. */
void case_virtual_unmap_refusals(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr range = reserve(t, 2 * bytes);
    CUmemGenericAllocationHandle handle = chunk(t, 2 * bytes);
    map(t, range, 2 * bytes, handle);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(range, bytes));
    OK(cuMemsetD32(range, 6, 1));
    EQUAL(rpt_word(t, range), 6);
}

void case_virtual_unmap_several_at_once(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr range = reserve(t, 3 * bytes);
    for (size_t i = 0; i < 3; i++)
        map(t, range + i * bytes, bytes, chunk(t, bytes));
    for (size_t i = 0; i < 3; i++)
        rpt_forget(t, TRACKED_MAPPING, range + i * bytes);
    OK(cuMemUnmap(range, 3 * bytes));
    map(t, range, bytes, chunk(t, bytes));
}

void case_virtual_address_free_must_match(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr range = reserve(t, 2 * bytes);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(range, bytes));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(range + bytes, bytes));
}

/* Reserved is not mapped: fills and copies see it before they are enqueued. */
void case_virtual_unmapped_refused_on_a_stream(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr range = reserve(t, bytes), word = rpt_memory(t, 4);
    CUstream stream = rpt_stream(t);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(range, 0, 16, stream));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(range, word, 4, stream));
    rpt_usable(t, stream);
}

/* A fill is captured all the same; the graph is refused when it is made executable. */
void case_virtual_unmapped_memset_refused_at_instantiation(struct rpt *t)
{
    CUdeviceptr range = reserve(t, granularity(t));
    CUstream stream = rpt_stream(t);
    CUgraphExec exec = NULL;
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    OK(cuMemsetD8Async(range, 0, 16, stream));
    CUgraph graph = rpt_end(t, stream);
    EQUAL(rpt_node_count(t, graph), 1);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph, 0));
}

void case_virtual_unmapped_memcpy_refused_in_capture(struct rpt *t)
{
    CUdeviceptr range = reserve(t, granularity(t)), word = rpt_memory(t, 4);
    CUstream stream = rpt_stream(t);
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    REFUSED(cuMemcpyDtoDAsync(range, word, 4, stream));
}

/* A kernel's pointers are not looked at: it may be captured before its memory is mapped. */
void case_virtual_unmapped_kernel_argument_captured(struct rpt *t)
{
    CUdeviceptr range = reserve(t, granularity(t));
    CUstream stream = rpt_stream(t);
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    rpt_mix(t, stream, range, 1);
    EQUAL(rpt_node_count(t, rpt_end(t, stream)), 1);
}

/* Growing a pool while it is captured into, in the strictest mode. */
void case_virtual_mapping_inside_a_global_capture(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr range = reserve(t, bytes);
    CUstream stream = rpt_stream(t);
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    map(t, range, bytes, chunk(t, bytes));
    OK(cuMemsetD32Async(range, 21, 1, stream));
    CUgraph graph = rpt_end(t, stream);
    rpt_run(t, rpt_instantiate(t, graph), stream);
    EQUAL(rpt_word(t, range), 21);
}

void case_virtual_pointer_attributes(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr range = reserve(t, bytes);
    unsigned type = 0;
    map(t, range, bytes, chunk(t, bytes));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, range + 64));
    EQUAL(type, CU_MEMORYTYPE_DEVICE);
}

/* A copy in an exec moves among memory that is mapped, or among memory that is allocated. Fills
 * move anywhere. Before the exec is made a copy can be given either. */
void case_virtual_copy_nodes_keep_their_kind_of_memory_undocumented(struct rpt *t)
{
    size_t bytes = granularity(t);
    CUdeviceptr mapped = reserve(t, bytes), other = reserve(t, bytes), words = rpt_memory(t, 64);
    CUgraphNode node, filled;
    map(t, mapped, bytes, chunk(t, bytes));
    map(t, other, bytes, chunk(t, bytes));
    OK(cuMemsetD32(words, 6, 1));
    OK(cuCtxSynchronize());
    CUgraph graph = rpt_graph(t);
    CUDA_MEMCPY3D copy = rpt_copy_params(words + 4, NULL, words, NULL, 4);
    CUDA_MEMSET_NODE_PARAMS fill = rpt_memset_params(words + 16, 5, 4, 1, 1, 0);
    OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, t->context));
    OK(cuGraphAddMemsetNode(&filled, graph, NULL, 0, &fill, t->context));
    CUgraphExec exec = rpt_instantiate(t, graph);
    copy.dstDevice = mapped;
    fill.dst = mapped + 16;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, node, &copy, t->context));
    OK(cuGraphExecMemsetNodeSetParams(exec, filled, &fill, t->context));
    OK(cuGraphMemcpyNodeSetParams(node, &copy));
    CUgraphExec second = rpt_instantiate(t, graph);
    copy.dstDevice = words + 8;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphExecMemcpyNodeSetParams(second, node, &copy, t->context));
    copy.dstDevice = other + 8;
    OK(cuGraphExecMemcpyNodeSetParams(second, node, &copy, t->context));
    rpt_run(t, exec, rpt_stream(t));
    rpt_run(t, second, rpt_stream(t));
    EQUAL(rpt_word(t, words + 4), 6);
    EQUAL(rpt_word(t, mapped + 16), 5);
    EQUAL(rpt_word(t, other + 8), 6);
}
