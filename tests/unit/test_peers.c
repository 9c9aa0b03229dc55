/* SPDX-License-Identifier: MIT
 *
 * Who is let in to what heaps and pools map: the calls of cuMemSetAccess are noted, and those for
 * other devices are answered here, as the host driver may have one device only. And events for
 * streams of other devices, which are played likewise.
 */
#include "graph/handles/device.h"
#include "graph_fixture.h"
#include "memory/heap/heap.h"

enum { PEER = 5, MOST = 256 };

static struct {
    const struct rp_driver *driver;
    size_t count;
    struct {
        uint64_t address, bytes;
    } let_in[MOST]; /* of PEER */
    bool refuse;
} noted;

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                           size_t count)
{
    assert_int_equal(count, 1);
    if (access->location.id != PEER)
        return noted.driver->cuMemSetAccess(address, bytes, access, count);
    assert_int_equal(access->flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (noted.refuse)
        return CUDA_ERROR_INVALID_DEVICE;
    assert_true(noted.count < MOST);
    noted.let_in[noted.count].address = address;
    noted.let_in[noted.count++].bytes = bytes;
    return CUDA_SUCCESS;
}

static bool is_page_let_in(uint64_t address)
{
    for (size_t i = 0; i < noted.count; i++)
        if (address - noted.let_in[i].address < noted.let_in[i].bytes)
            return true;
    return false;
}

static bool is_let_in(uint64_t address, uint64_t bytes)
{
    enum { PAGE = 4096 };
    bool all = is_page_let_in(address + bytes - 1);
    for (uint64_t offset = 0; all && offset < bytes; offset += PAGE)
        all = is_page_let_in(address + offset);
    return all;
}

static struct rp_driver table;

static struct rp_device *open_noted(struct rp_error *err)
{
    memset(&noted, 0, sizeof noted);
    noted.driver = rpi_driver_host();
    table = *noted.driver;
    table.cuMemSetAccess = set_access;
    struct rp_device *device = NULL;
    assert_int_equal(rpi_device_open_on(&table, 0, &device, err), RP_OK);
    return device;
}

/* A device that is another one in name only. */
static struct rp_device *open_peer(struct rp_error *err)
{
    struct rp_device *peer = NULL;
    assert_int_equal(rpi_device_open_on(rpi_driver_host(), 0, &peer, err), RP_OK);
    peer->handle = PEER;
    return peer;
}

static void close_peer(struct rp_device *peer)
{
    peer->handle = 0;
    rp_device_destroy(peer);
}

static void heaps_let_peers_in(void **state)
{
    (void)state;
    struct rp_error err = {0};
    struct rp_device *device = open_noted(&err), *peer = open_peer(&err);
    struct rp_heap *heap = NULL;
    uint64_t before[3], after;
    const uint64_t sizes[3] = {1000, 5 << 20, 40 << 20};
    CUstream stream = NULL;
    assert_int_equal(rp_heap_create(device, NULL, &heap, &err), RP_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rp_heap_alloc(heap, sizes[i], stream, &before[i], &err), RP_OK);
    assert_int_equal(noted.count, 0);
    assert_int_equal(rp_device_add_peer(device, peer, &err), RP_OK);
    for (int i = 0; i < 3; i++)
        assert_true(is_let_in(before[i], sizes[i]));
    size_t count = noted.count;
    assert_int_equal(rp_device_add_peer(device, peer, &err), RP_OK); /* is one already */
    assert_int_equal(rp_device_add_peer(device, device, &err), RP_OK);
    assert_int_equal(noted.count, count);
    assert_int_equal(rp_heap_alloc(heap, 100 << 20, stream, &after, &err), RP_OK);
    assert_true(is_let_in(after, 100 << 20));
    rp_heap_free(heap, after, NULL);
    for (int i = 0; i < 3; i++)
        rp_heap_free(heap, before[i], NULL);
    rp_heap_destroy(heap);
    count = noted.count;
    close_peer(peer);
    peer = open_peer(&err);
    assert_int_equal(noted.count, count); /* nobody asks a heap that is gone */
    close_peer(peer);
    rp_device_destroy(device);
}

/* What is not mapped any more is nobody's: the driver would refuse the range. */
static void holes_are_left_out(void **state)
{
    (void)state;
    struct rp_error err = {0};
    struct rp_device *device = open_noted(&err), *peer = open_peer(&err);
    struct rp_heap *heap = NULL;
    uint64_t blocks[3];
    assert_int_equal(rp_heap_create(device, NULL, &heap, &err), RP_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rp_heap_alloc(heap, 20 << 20, NULL, &blocks[i], &err), RP_OK);
    rp_heap_free(heap, blocks[1], NULL);
    assert_int_equal(rp_heap_empty_cache(heap, &err), RP_OK);
    assert_int_equal(rp_device_add_peer(device, peer, &err), RP_OK);
    assert_true(is_let_in(blocks[0], 20 << 20));
    assert_true(is_let_in(blocks[2], 20 << 20));
    assert_false(is_page_let_in(blocks[1]));
    assert_false(is_page_let_in(blocks[1] + (10 << 20)));
    rp_heap_free(heap, blocks[0], NULL);
    rp_heap_free(heap, blocks[2], NULL);
    rp_heap_destroy(heap);
    close_peer(peer);
    rp_device_destroy(device);
}

static rp_status fills_a_block(struct rp_call *call, void *user, struct rp_error *err)
{
    uint64_t block;
    CUstream stream = rp_call_stream(call);
    rp_status status = rp_call_alloc(call, *(const size_t *)user, stream, &block, err);
    if (status == RP_OK)
        status = rpi_driver_host()->cuMemsetD8Async(block, 1, 64, stream) == CUDA_SUCCESS
                     ? rp_call_free(call, block, err)
                     : RP_ERROR_CALLABLE;
    return status;
}

static void pools_let_peers_in(void **state)
{
    (void)state;
    struct rp_error err = {0};
    struct rp_device *device = open_noted(&err), *peer = open_peer(&err);
    struct rp_pool *pool = NULL;
    struct rp_graph *small = NULL, *large = NULL;
    struct rp_pool_info info = {.size = sizeof info};
    size_t bytes = 3 << 20;
    assert_int_equal(rp_pool_create(device, NULL, &pool, &err), RP_OK);
    assert_int_equal(rp_graph_capture(pool, NULL, fills_a_block, &bytes, NULL, 0, &small, &err),
                     RP_OK);
    rp_pool_info(pool, &info);
    assert_int_equal(noted.count, 0);
    assert_int_equal(rp_device_add_peer(device, peer, &err), RP_OK);
    assert_int_equal(noted.count, 1);
    assert_int_equal(noted.let_in[0].bytes, info.mapped_bytes);
    uint64_t base = noted.let_in[0].address;
    bytes = 9 << 20;
    assert_int_equal(rp_graph_capture(pool, NULL, fills_a_block, &bytes, NULL, 0, &large, &err),
                     RP_OK);
    assert_true(is_let_in(base + info.mapped_bytes, 1));
    rp_graph_destroy(small);
    rp_graph_destroy(large);
    rp_pool_destroy(pool);
    close_peer(peer);
    rp_device_destroy(device);
}

static void who_cannot_be_let_in_is_no_error(void **state)
{
    (void)state;
    struct rp_error err = {0};
    struct rp_device *device = open_noted(&err), *peer = open_peer(&err);
    struct rp_heap *heap = NULL;
    uint64_t block;
    noted.refuse = true;
    assert_int_equal(rp_heap_create(device, NULL, &heap, &err), RP_OK);
    assert_int_equal(rp_device_add_peer(device, peer, &err), RP_OK);
    assert_int_equal(rp_heap_alloc(heap, 1 << 20, NULL, &block, &err), RP_OK);
    rp_heap_free(heap, block, NULL);
    rp_heap_destroy(heap);
    assert_int_equal(rp_device_add_peer(device, NULL, &err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_device_add_peer(NULL, peer, &err), RP_ERROR_INVALID_ARGUMENT);
    close_peer(peer);
    rp_device_destroy(device);
}

/* ---- Streams of another device ---------------------------------------------------------------*/

/* A second context, of a device that there may not be: its streams take events that were made while
 * it was current, and others none of these. */
static struct {
    const struct rp_driver *driver;
    CUstream stream; /* that is said to be of the second context */
    int depth;       /* how often that was made current */
    CUevent event;   /* made there */
    size_t made, destroyed;
} second;
static char second_context;

static CUresult get_ctx(CUstream stream, CUcontext *context)
{
    if (stream != second.stream)
        return second.driver->cuStreamGetCtx(stream, context);
    *context = (CUcontext)(void *)&second_context;
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
    if ((void *)context != &second_context)
        return second.driver->cuCtxPushCurrent(context);
    second.depth++;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context)
{
    if (!second.depth)
        return second.driver->cuCtxPopCurrent(context);
    second.depth--;
    return CUDA_SUCCESS;
}

static CUresult make_event(CUevent *event, unsigned flags)
{
    CUresult result = second.driver->cuEventCreate(event, flags);
    if (result == CUDA_SUCCESS && second.depth) {
        second.event = *event;
        second.made++;
    }
    return result;
}

static CUresult destroy_event(CUevent event)
{
    second.destroyed += event == second.event;
    return second.driver->cuEventDestroy(event);
}

static CUresult record_event(CUevent event, CUstream stream)
{
    bool fits = (event == second.event) == (stream == second.stream);
    return fits ? second.driver->cuEventRecord(event, stream) : CUDA_ERROR_INVALID_HANDLE;
}

static void streams_of_other_devices_keep_memory_until_they_are_done(void **state)
{
    (void)state;
    struct rp_error err = {0};
    struct rp_device *device = NULL;
    struct rp_heap *heap = NULL;
    uint64_t block, other;
    memset(&second, 0, sizeof second);
    second.driver = rpi_driver_host();
    table = *second.driver;
    table.cuStreamGetCtx = get_ctx;
    table.cuCtxPushCurrent = push;
    table.cuCtxPopCurrent = pop;
    table.cuEventCreate = make_event;
    table.cuEventDestroy = destroy_event;
    table.cuEventRecord = record_event;
    assert_int_equal(rpi_device_open_on(&table, 0, &device, &err), RP_OK);
    assert_int_equal(rp_device_push(device, &err), RP_OK);
    assert_int_equal(second.driver->cuStreamCreate(&second.stream, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(rp_heap_create(device, NULL, &heap, &err), RP_OK);
    assert_int_equal(rp_heap_alloc(heap, 4 << 20, NULL, &block, &err), RP_OK);
    assert_int_equal(rp_heap_use(heap, block, second.stream, &err), RP_OK);
    rp_heap_free(heap, block, NULL);
    assert_int_equal(second.made, 1);
    assert_int_equal(rp_heap_empty_cache(heap, &err), RP_OK); /* waits for the event */
    assert_int_equal(second.destroyed, 1);
    assert_int_equal(second.depth, 0);
    struct rp_heap_block found = {.size = sizeof found};
    assert_int_not_equal(rp_heap_find(heap, block, &found, NULL), RP_OK);
    assert_int_equal(rp_heap_alloc(heap, 4 << 20, NULL, &other, &err), RP_OK);
    assert_int_equal(other, block);
    rp_heap_free(heap, other, NULL);
    rp_heap_destroy(heap);
    second.driver->cuStreamDestroy(second.stream);
    rp_device_pop(device);
    rp_device_destroy(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heaps_let_peers_in),
        cmocka_unit_test(holes_are_left_out),
        cmocka_unit_test(pools_let_peers_in),
        cmocka_unit_test(who_cannot_be_let_in_is_no_error),
        cmocka_unit_test(streams_of_other_devices_keep_memory_until_they_are_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
