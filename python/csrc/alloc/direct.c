/* SPDX-License-Identifier: MIT */
#include "alloc/direct.h"

#include <assert.h>
#include <string.h>

enum { RELAXED = 2 }; /* CU_STREAM_CAPTURE_MODE_RELAXED: no capture elsewhere is broken */

static struct {
    pthread_mutex_t lock;
    atomic_bool on;
    atomic_size_t count; /* read without the lock by frees that none can be of */
    struct rpp_addresses blocks;
} direct = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* It counts among what begun leads to, so that nobody pays while it is off. */
void rpp_direct_switch(bool on)
{
    if (atomic_exchange(&direct.on, on) != on)
        atomic_fetch_add(&rpp_state.begun, on ? 1 : -1);
}

/* The driver's functions, for a device that is opened. */
struct functions {
    int (*alloc)(uint64_t *out_address, size_t bytes);
    int (*free)(uint64_t address);
    int (*exchange)(int *mode);
};

static struct functions functions_of(struct rp_device *device)
{
    struct functions found;
    void (*function)(void) = rp_device_function(device, "cuMemAlloc");
    memcpy(&found.alloc, &function, sizeof function);
    function = rp_device_function(device, "cuMemFree");
    memcpy(&found.free, &function, sizeof function);
    function = rp_device_function(device, "cuThreadExchangeStreamCaptureMode");
    memcpy(&found.exchange, &function, sizeof function);
    return found;
}

/* Without an address: takes as much, else gives it back. 0, or the driver's error. */
static int call(struct rp_device *device, uint64_t bytes, uint64_t *address)
{
    assert(*address || bytes);
    const struct functions functions = functions_of(device);
    int mode = RELAXED;
    functions.exchange(&mode);
    int result = *address ? functions.free(*address) : functions.alloc(address, bytes);
    functions.exchange(&mode);
    return result;
}

static bool note(uint64_t address, uint64_t bytes)
{
    assert(address && bytes);
    const struct rpp_block block = {.owners = 1, .address = address, .bytes = bytes};
    pthread_mutex_lock(&direct.lock);
    bool noted = rpp_addresses_put(&direct.blocks, &block);
    atomic_store(&direct.count, direct.blocks.count);
    pthread_mutex_unlock(&direct.lock);
    return noted;
}

static bool forget(uint64_t address)
{
    pthread_mutex_lock(&direct.lock);
    bool known = rpp_addresses_get(&direct.blocks, address) != NULL;
    if (known)
        rpp_addresses_remove(&direct.blocks, address);
    atomic_store(&direct.count, direct.blocks.count);
    pthread_mutex_unlock(&direct.lock);
    return known;
}

static rp_status take(uint64_t bytes, int ordinal, uint64_t *out_address, struct rp_error *err)
{
    assert(bytes);
    struct rpp_device *slot;
    rp_status status = rpp_device_get(ordinal, &slot, err);
    if (status == RP_OK)
        status = rp_device_push(slot->device, err);
    if (status != RP_OK)
        return status;
    uint64_t address = 0;
    int result = call(slot->device, bytes, &address);
    if (result != 0) {
        snprintf(err->message, sizeof err->message, "cuMemAlloc failed with error %d", result);
        status = err->status = RP_ERROR_OUT_OF_DEVICE_MEMORY;
    } else if (!note(address, bytes)) {
        call(slot->device, bytes, &address);
        status = rpp_no_host_memory(err);
    } else
        *out_address = address;
    rp_device_pop(slot->device);
    return status;
}

bool rpp_direct_alloc(uint64_t bytes, int ordinal, uint64_t *out_address, rp_status *out_status,
                      struct rp_error *err)
{
    bool on = atomic_load(&direct.on);
    if (on)
        *out_status = take(bytes, ordinal, out_address, err);
    return on;
}

void rpp_direct_free(uint64_t address, int ordinal)
{
    assert(ordinal >= 0 && ordinal < RPP_DEVICES);
    if (!atomic_load(&direct.count) || !forget(address))
        return;
    struct rp_device *device = rpp_state.devices[ordinal].device;
    if (rp_device_push(device, NULL) != RP_OK)
        return;
    call(device, 0, &address);
    rp_device_pop(device);
}
