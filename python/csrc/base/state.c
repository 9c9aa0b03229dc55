/* SPDX-License-Identifier: MIT */
#include "base/state.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct rpp_state rpp_state = {.opening = PTHREAD_MUTEX_INITIALIZER,
                              .heap_options = RP_HEAP_OPTIONS_INIT,
                              .lock = PTHREAD_MUTEX_INITIALIZER};

_Thread_local bool rpp_holds_lock;

void rpp_device_set(struct rpp_device *slot, struct rp_device *device)
{
    void (*function)(void) = rp_device_function(device, "cuStreamIsCapturing");
    memcpy(&slot->is_capturing, &function, sizeof function);
    function = rp_device_function(device, "cuStreamGetCaptureInfo");
    memcpy(&slot->capture_info, &function, sizeof function);
    function = rp_device_function(device, "cuGraphGetNodes");
    memcpy(&slot->graph_nodes, &function, sizeof function);
    function = rp_device_function(device, "cuGraphDestroyNode");
    memcpy(&slot->destroy_node, &function, sizeof function);
    function = rp_device_function(device, "cuCtxSynchronize");
    memcpy(&slot->synchronize, &function, sizeof function);
    function = rp_device_function(device, "cuMemGetInfo");
    memcpy(&slot->mem_info, &function, sizeof function);
    slot->device = device;
}

static rp_status open_device(struct rpp_device *slot, int ordinal, struct rp_error *err)
{
    rpp_assert_held(&rpp_state.opening);
    assert(!slot->device && ordinal >= 0 && ordinal < RPP_DEVICES);
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    options.driver = "cuda";
    options.ordinal = ordinal;
    options.exec_budget_bytes = slot->exec_budget;
    struct rp_device *device;
    rp_status status = rp_device_open(&options, &device, err);
    if (status != RP_OK)
        return status;
    rpp_device_set(slot, device);
    return RP_OK;
}

static rp_status find_slot(int ordinal, struct rpp_device **out_slot, struct rp_error *err)
{
    if (ordinal < 0 || ordinal >= RPP_DEVICES) {
        err->status = RP_ERROR_INVALID_ARGUMENT;
        snprintf(err->message, sizeof err->message, "there is no device %d", ordinal);
        return RP_ERROR_INVALID_ARGUMENT;
    }
    *out_slot = &rpp_state.devices[ordinal];
    return RP_OK;
}

rp_status rpp_device_set_budget(int ordinal, uint64_t bytes, struct rp_error *err)
{
    struct rpp_device *slot;
    rp_status status = find_slot(ordinal, &slot, err);
    if (status != RP_OK)
        return status;
    pthread_mutex_lock(&rpp_state.opening);
    slot->exec_budget = bytes;
    if (slot->device)
        status = rp_device_exec_set_budget(slot->device, bytes, err);
    pthread_mutex_unlock(&rpp_state.opening);
    return status;
}

rp_status rpp_heap_configure(const struct rp_heap_options *options, struct rp_error *err)
{
    rp_status status = RP_OK;
    pthread_mutex_lock(&rpp_state.opening);
    rpp_state.heap_options = *options;
    for (int i = 0; i < RPP_DEVICES && status == RP_OK; i++) {
        struct rp_heap *heap = rpp_heap_made(i);
        if (heap)
            status = rp_heap_set_options(heap, options, err);
    }
    pthread_mutex_unlock(&rpp_state.opening);
    return status;
}

rp_status rpp_device_get(int ordinal, struct rpp_device **out_device, struct rp_error *err)
{
    struct rpp_device *slot;
    rp_status found = find_slot(ordinal, &slot, err);
    if (found != RP_OK)
        return found;
    pthread_mutex_lock(&rpp_state.opening);
    rp_status status = slot->device ? RP_OK : open_device(slot, ordinal, err);
    pthread_mutex_unlock(&rpp_state.opening);
    if (status == RP_OK)
        *out_device = slot;
    return status;
}

/* PyTorch copies between devices, and by kernels of one that read the other, wherever it can. */
static rp_status add_peers(struct rpp_device *slot, struct rp_error *err)
{
    rpp_assert_held(&rpp_state.opening);
    assert(slot->device);
    rp_status status = RP_OK;
    for (size_t i = 0; i < RPP_DEVICES && status == RP_OK; i++) {
        struct rpp_device *other = &rpp_state.devices[i];
        if (other == slot || !atomic_load(&other->heap))
            continue;
        status = rp_device_add_peer(slot->device, other->device, err);
        if (status == RP_OK)
            status = rp_device_add_peer(other->device, slot->device, err);
    }
    return status;
}

rp_status rpp_heap_get(int ordinal, struct rp_heap **out_heap, struct rp_error *err)
{
    struct rp_heap *heap = rpp_heap_made(ordinal);
    if (heap) {
        *out_heap = heap;
        return RP_OK;
    }
    struct rpp_device *slot;
    rp_status status = rpp_device_get(ordinal, &slot, err);
    if (status != RP_OK)
        return status;
    pthread_mutex_lock(&rpp_state.opening);
    heap = atomic_load(&slot->heap);
    if (!heap)
        status = add_peers(slot, err);
    if (status == RP_OK && !heap)
        status = rp_heap_create(slot->device, &rpp_state.heap_options, &heap, err);
    if (status == RP_OK) {
        atomic_store_explicit(&slot->heap, heap, memory_order_release);
        *out_heap = heap;
    }
    pthread_mutex_unlock(&rpp_state.opening);
    return status;
}
