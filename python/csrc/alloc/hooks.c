/* SPDX-License-Identifier: MIT */
#include "alloc/hooks.h"

#include "alloc/direct.h"
#include "alloc/mempool.h"
#include "alloc/raise.h"
#include "alloc/shortage.h"
#include "alloc/tap.h"

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <reprise_framework.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Calls --------------------------------------------------------------------------------- */

/* The legacy stream never captures, and asking it while another captures breaks the capture. A
 * thread of autograd's allocates before it has a context, and the driver tells nothing without one.
 */
static bool is_capturing(int ordinal, struct CUstream_st *stream)
{
    assert(ordinal >= 0 && ordinal < RPP_DEVICES);
    enum { NO_CONTEXT = 201 }; /* CUDA_ERROR_INVALID_CONTEXT */
    const struct rpp_device *device = &rpp_state.devices[ordinal];
    int status = 0;
    if (!stream || !device->is_capturing)
        return false;
    int result = device->is_capturing(stream, &status);
    if (result == NO_CONTEXT && rp_device_push(device->device, NULL) == RP_OK) {
        result = device->is_capturing(stream, &status);
        rp_device_pop(device->device);
    }
    return result == 0 && status != 0;
}

void rpp_call_begin(struct rp_call *call, const struct rp_pool *pool, int ordinal,
                    const struct rpp_place *places, size_t place_count)
{
    bool captures = is_capturing(ordinal, rp_call_stream(call));
    pthread_mutex_lock(&rpp_state.lock);
    struct rpp_call *now = &rpp_state.call;
    assert(!now->call && !atomic_load(&rpp_state.calling));
    now->call = call;
    now->captures = captures;
    now->pool = pool;
    now->ordinal = ordinal;
    now->thread = pthread_self();
    now->number++;
    now->allocations = now->strays = 0;
    now->places = places;
    now->place_count = place_count;
    atomic_store(&rpp_state.calling, true);
    pthread_mutex_unlock(&rpp_state.lock);
}

void rpp_call_end(void)
{
    pthread_mutex_lock(&rpp_state.lock);
    rpp_state.call.call = NULL;
    rpp_state.call.places = NULL;
    rpp_state.call.place_count = 0;
    atomic_store(&rpp_state.calling, false);
    pthread_mutex_unlock(&rpp_state.lock);
}

bool rpp_pool_is_used(const struct rp_pool *pool)
{
    bool used = false;
    pthread_mutex_lock(&rpp_state.lock);
    const struct rpp_addresses *blocks = &rpp_state.call.blocks;
    for (size_t i = 0; i < blocks->capacity && !used; i++)
        used = blocks->slots[i].address && blocks->slots[i].pool == pool;
    pthread_mutex_unlock(&rpp_state.lock);
    return used;
}

static const struct rpp_place *find_place(const struct rpp_call *call, uint32_t index,
                                          uint64_t bytes)
{
    rpp_assert_held(&rpp_state.lock);
    for (size_t i = 0; i < call->place_count; i++)
        if (call->places[i].index == index && call->places[i].bytes == bytes)
            return &call->places[i];
    return NULL;
}

/* With the lock held. */
static rp_status alloc_in_call(size_t bytes, struct CUstream_st *stream, bool segment,
                               uint64_t *out_address, struct rp_error *err)
{
    rpp_assert_held(&rpp_state.lock);
    assert(rpp_state.call.call && bytes);
    struct rpp_call *now = &rpp_state.call;
    struct rpp_block block = {
        .bytes = bytes, .call = now->number, .pool = now->pool, .index = now->allocations};
    const struct rpp_place *place = find_place(now, block.index, bytes);
    rp_status status = RP_OK;
    block.is_arg = place != NULL;
    if (place)
        block.address = rp_call_arg(now->call, place->arg);
    else
        status = rp_call_alloc(now->call, bytes, stream, &block.address, err);
    if (status != RP_OK)
        return status;
    const struct rpp_block *there = rpp_addresses_get(&now->blocks, block.address);
    block.owners = there ? there->owners + 1 : 1;
    if (there && !segment) {
        snprintf(err->message, sizeof err->message,
                 "a tensor from an earlier capture (%" PRIu64 " bytes) is still alive where this "
                 "capture would have its memory. Drop what was kept of earlier captures, or give "
                 "them pools of their own",
                 there->bytes);
        return err->status = RP_ERROR_CAPTURE;
    }
    if (!rpp_addresses_put(&now->blocks, &block))
        return rpp_no_host_memory(err);
    now->allocations++;
    atomic_store(&rpp_state.call_count, now->blocks.count);
    *out_address = block.address;
    return RP_OK;
}

/* What the callable computes on another device is in no graph of its own: it would happen in the
 * capture, and in no replay. */
static rp_status refuse_elsewhere(int ordinal, struct rp_error *err)
{
    rpp_assert_held(&rpp_state.lock);
    assert(ordinal != rpp_state.call.ordinal);
    snprintf(err->message, sizeof err->message,
             "a graph is of one GPU, and the callable takes memory of cuda:%d while it is captured "
             "on cuda:%d. Do that outside of it",
             ordinal, rpp_state.call.ordinal);
    return err->status = RP_ERROR_CAPTURE;
}

/* Does a call take this allocation? *out_status and the address say how it went. The stream that
 * the call began on captures as long as it is under way, and the library asks where it stands: the
 * driver is asked once. */
static bool call_takes(size_t bytes, int ordinal, struct CUstream_st *stream, bool segment,
                       uint64_t *out_address, rp_status *out_status, struct rp_error *err)
{
    bool taken = false;
    pthread_mutex_lock(&rpp_state.lock);
    struct rpp_call *now = &rpp_state.call;
    if (now->call && now->ordinal == ordinal) {
        taken =
            (now->captures && stream == rp_call_stream(now->call)) || is_capturing(ordinal, stream);
        now->strays += !taken;
    }
    bool elsewhere =
        now->call && now->ordinal != ordinal && pthread_equal(now->thread, pthread_self());
    if (elsewhere)
        *out_status = refuse_elsewhere(ordinal, err);
    else if (taken)
        *out_status = alloc_in_call(bytes, stream, segment, out_address, err);
    pthread_mutex_unlock(&rpp_state.lock);
    return taken || elsewhere;
}

rp_status rpp_hook_result(uint64_t bytes, uint64_t address, uint64_t *out_address,
                          struct rp_error *err)
{
    pthread_mutex_lock(&rpp_state.lock);
    struct rpp_call *now = &rpp_state.call;
    const struct rpp_block *block = rpp_addresses_get(&now->blocks, address);
    rp_status status = RP_ERROR_INVALID_ARGUMENT;
    if (now->call)
        status = rp_call_result(now->call, bytes, address, out_address, err);
    else
        snprintf(err->message, sizeof err->message, "no call is under way");
    if (status == RP_OK && block) {
        struct rpp_block arg = *block;
        arg.is_arg = true;
        rpp_addresses_put(&now->blocks, &arg); /* replaces: takes no memory */
    }
    pthread_mutex_unlock(&rpp_state.lock);
    return status;
}

/* With the lock held. Where an argument lies there is nothing to free. */
static rp_status leave(uint64_t address, struct rp_error *err)
{
    rpp_assert_held(&rpp_state.lock);
    struct rpp_call *now = &rpp_state.call;
    const struct rpp_block *block = rpp_addresses_get(&now->blocks, address);
    if (!block || block->call != now->number || block->is_left) {
        snprintf(err->message, sizeof err->message,
                 "0x%" PRIx64 " is no block of the call that it has still", address);
        return err->status = RP_ERROR_INVALID_ARGUMENT;
    }
    if (block->is_arg)
        return RP_OK;
    rp_status status = rp_call_free(now->call, address, err);
    struct rpp_block left = *block;
    left.is_left = status == RP_OK;
    rpp_addresses_put(&now->blocks, &left); /* replaces: takes no memory */
    return status;
}

rp_status rpp_hook_step(enum rpp_call_step step, uint64_t what, struct rp_error *err)
{
    rp_status status = RP_ERROR_INVALID_ARGUMENT;
    pthread_mutex_lock(&rpp_state.lock);
    struct rp_call *call = rpp_state.call.call;
    if (!call)
        snprintf(err->message, sizeof err->message, "no call is under way");
    else if (step == RPP_CALL_VALUE)
        status = rp_call_value(call, what, err);
    else if (step == RPP_CALL_SCALAR) {
        double value;
        memcpy(&value, &what, sizeof value);
        status = rp_call_scalar(call, value, err);
    } else if (step == RPP_CALL_TAKE_OVER)
        status = rp_call_take_over(call, err);
    else if (step == RPP_CALL_BEGUN) {
        rpp_state.call.strays = 0; /* what PyTorch took to begin */
        status = rp_call_begun(call, err);
    } else if (step == RPP_CALL_LEAVE)
        status = leave(what, err);
    else
        status = rp_call_ended(call, (struct CUgraph_st *)(uintptr_t)what, err);
    pthread_mutex_unlock(&rpp_state.lock);
    return status;
}

/* ---- Pools of PyTorch's -------------------------------------------------------------------- */

void rpp_hook_begin_pool(int ordinal, struct rpp_pool_id id, void *filter)
{
    (void)filter; /* whether the stream captures is asked at each allocation */
    rpp_once_begin(ordinal, id);
}

void rpp_hook_end_pool(int ordinal, struct rpp_pool_id id)
{
    rpp_once_end(ordinal, id);
}

void rpp_hook_release_pool(int ordinal, struct rpp_pool_id id)
{
    if (!atomic_load(&rpp_state.leaving))
        rpp_once_release(ordinal, id);
}

/* ---- Memory -------------------------------------------------------------------------------- */

static _Noreturn void fail(size_t bytes, int ordinal, rp_status status, const struct rp_error *err)
{
    assert(status != RP_OK);
    char message[RPP_SHORTAGE_BYTES];
    if (status == RP_ERROR_OUT_OF_DEVICE_MEMORY || status == RP_ERROR_LIMIT) {
        rpp_shortage_tell(bytes, ordinal, err->message, message);
        rpp_raise_out_of_memory(message);
    }
    snprintf(message, sizeof message, "Reprise could not allocate %zu bytes on device %d: %s",
             bytes, ordinal, err->message);
    rpp_raise_error(message);
}

/* The error is large, and filled where there is one: an allocation that works does not pay for it.
 */
static void *allocate(size_t bytes, int ordinal, struct CUstream_st *stream, bool segment)
{
    struct rp_error err;
    uint64_t address = 0;
    uint32_t pool = 0;
    rp_status status = RP_OK;
    if (!bytes)
        return NULL;
    err.message[0] = '\0';
    bool taken = atomic_load(&rpp_state.calling) &&
                 call_takes(bytes, ordinal, stream, segment, &address, &status, &err);
    if (!taken && atomic_load(&rpp_state.begun)) {
        taken = rpp_once_hold(bytes, ordinal, &address, &status, &err) ||
                (is_capturing(ordinal, stream) &&
                 rpp_once_alloc(bytes, ordinal, stream, &address, &status, &err));
        pool = rpp_mempool_now(ordinal);
        if (!taken && !pool)
            taken = rpp_direct_alloc(bytes, ordinal, &address, &status, &err);
    }
    if (!taken) {
        struct rp_heap *heap = rpp_heap_made(ordinal);
        if (!heap)
            status = rpp_heap_get(ordinal, &heap, &err);
        if (status == RP_OK)
            status = pool ? rp_heap_alloc_in(heap, pool, bytes, stream, &address, &err)
                          : rp_heap_alloc(heap, bytes, stream, &address, &err);
    }
    if (status != RP_OK)
        fail(bytes, ordinal, status, &err);
    rpp_tap_note(RPP_TAP_ALLOC, address, bytes, ordinal, stream);
    return (void *)(uintptr_t)address;
}

static inline void tell(bool freed, uint64_t address, size_t bytes, int ordinal)
{
    void (*tells)(bool, uint64_t, uint64_t, int) =
        atomic_load_explicit(&rpp_state.on_memory, memory_order_relaxed);
    if (tells && address)
        tells(freed, address, bytes, ordinal);
}

void *rpp_hook_alloc(size_t bytes, int ordinal, struct CUstream_st *stream)
{
    void *pointer = allocate(bytes, ordinal, stream, false);
    tell(false, (uintptr_t)pointer, bytes, ordinal);
    return pointer;
}

void *rpp_hook_segment(size_t bytes, int ordinal, struct CUstream_st *stream)
{
    return allocate(bytes, ordinal, stream, true);
}

/* Graphs may have been kept for the block alone. They are destroyed by Python's main thread, behind
 * whatever it does now: here PyTorch's locks are held. */
static void let_sweep(void)
{
    if (atomic_load(&rpp_state.parked) && !atomic_load(&rpp_state.calling))
        rpp_state.ask_for_sweep();
}

/* Has the call under way the block? */
static bool is_of_call(const struct rpp_call *now, const struct rpp_block *block)
{
    return now->call && block->call == now->number && !block->is_arg && !block->is_left;
}

/* Is the address a block of a call? Then it is freed. */
static bool free_in_call(uint64_t address)
{
    if (!atomic_load(&rpp_state.call_count))
        return false;
    pthread_mutex_lock(&rpp_state.lock);
    struct rpp_call *now = &rpp_state.call;
    const struct rpp_block *block = rpp_addresses_get(&now->blocks, address);
    bool found = block != NULL;
    if (found && block->owners > 1) { /* an older one at the same address */
        struct rpp_block less = *block;
        less.owners--;
        rpp_addresses_put(&now->blocks, &less); /* replaces: takes no memory */
        pthread_mutex_unlock(&rpp_state.lock);
        return true;
    }
    if (found && block->once)
        rpp_once_free(block);
    else if (found && is_of_call(now, block))
        rp_call_free(now->call, address, NULL);
    if (found)
        rpp_addresses_remove(&now->blocks, address);
    atomic_store(&rpp_state.call_count, now->blocks.count);
    pthread_mutex_unlock(&rpp_state.lock);
    if (found)
        let_sweep();
    return found;
}

void rpp_hook_free(void *pointer, size_t bytes, int ordinal, struct CUstream_st *stream)
{
    (void)stream;
    uint64_t address = (uintptr_t)pointer;
    rpp_tap_note(RPP_TAP_FREE, address, bytes, ordinal, NULL);
    tell(true, address, bytes, ordinal);
    if (!address || atomic_load(&rpp_state.leaving) || free_in_call(address))
        return;
    struct rp_heap *heap = rpp_heap_made(ordinal);
    if (!heap || rp_heap_free(heap, address, NULL) != RP_OK)
        rpp_direct_free(address, ordinal);
}

void rpp_hook_use(void *pointer, struct CUstream_st *stream)
{
    uint64_t address = (uintptr_t)pointer;
    if (!address)
        return;
    rpp_tap_note(RPP_TAP_USE, address, 0, -1, stream);
    pthread_mutex_lock(&rpp_state.lock);
    struct rpp_call *now = &rpp_state.call;
    const struct rpp_block *block = rpp_addresses_get(&now->blocks, address);
    bool known = block != NULL;
    if (known && block->once)
        rpp_once_use(block, stream);
    else if (known && is_of_call(now, block))
        rp_call_use(now->call, address, stream, NULL);
    pthread_mutex_unlock(&rpp_state.lock);
    for (int i = 0; i < RPP_DEVICES && !known; i++) {
        struct rp_heap *heap = atomic_load(&rpp_state.devices[i].heap);
        known = heap && rp_heap_use(heap, address, stream, NULL) == RP_OK;
    }
}

/* ---- The rest ------------------------------------------------------------------------------ */

void rpp_hook_reset(void)
{
    for (int i = 0; i < RPP_DEVICES; i++) {
        struct rp_heap *heap = atomic_load(&rpp_state.devices[i].heap);
        if (!heap)
            continue;
        rp_heap_empty_cache(heap, NULL);
        rp_device_trim(rpp_state.devices[i].device, NULL, NULL);
    }
    rpp_once_sweep();
}

void rpp_hook_fraction(double fraction, int ordinal)
{
    struct rp_heap *heap;
    struct rp_error err = {0};
    rp_status status = rpp_heap_get(ordinal, &heap, &err);
    if (status == RP_OK) /* PyTorch takes 0: nothing may be mapped */
        status = rp_heap_set_fraction(heap, fraction == 0 ? DBL_MIN : fraction, &err);
    if (status != RP_OK)
        rpp_raise_error(err.message);
    struct rpp_device *device = &rpp_state.devices[ordinal];
    struct rp_device_info info = {.size = sizeof info};
    rp_device_info(device->device, &info);
    uint64_t allowed = (uint64_t)(fraction * (double)info.total_bytes);
    atomic_store(&device->allowed_bytes, allowed ? allowed : 1);
}

void *rpp_hook_base(void *pointer, size_t *out_bytes)
{
    uint64_t address = (uintptr_t)pointer;
    struct rp_heap_block block = {.size = sizeof block};
    for (int i = 0; i < RPP_DEVICES; i++) {
        struct rp_heap *heap = atomic_load(&rpp_state.devices[i].heap);
        if (!heap || rp_heap_find(heap, address, &block, NULL) != RP_OK)
            continue;
        if (out_bytes)
            *out_bytes = block.bytes;
        return (void *)(uintptr_t)block.address;
    }
    return pointer;
}
