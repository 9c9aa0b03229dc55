/* SPDX-License-Identifier: MIT */
#include "alloc/shortage.h"

#include "alloc/once.h"

#include <assert.h>
#include <string.h>

#define MOST_BYTES ((uint64_t)1 << 60) /* PyTorch asks no device for so much */

struct figures {
    uint64_t total, free, allowed;
    uint64_t allocated, of_graphs, reserved; /* of_graphs: those that PyTorch replays */
};

static uint64_t stat_of(struct rp_heap *heap, const char *name)
{
    int64_t value = 0;
    if (!heap || rp_heap_stat(heap, name, &value, NULL) != RP_OK || value < 0)
        return 0;
    return (uint64_t)value;
}

static uint64_t free_of(const struct rpp_device *device)
{
    size_t available = 0, total = 0;
    if (!device->mem_info || rp_device_push(device->device, NULL) != RP_OK)
        return 0;
    if (device->mem_info(&available, &total) != 0)
        available = 0;
    rp_device_pop(device->device);
    return available;
}

static struct figures look(int ordinal)
{
    assert(ordinal >= 0 && ordinal < RPP_DEVICES);
    struct rpp_device *device = &rpp_state.devices[ordinal];
    struct rp_heap *heap = rpp_heap_made(ordinal);
    struct rp_device_info info = {.size = sizeof info};
    int64_t allocated, reserved;
    if (!device->device)
        return (struct figures){0};
    rp_device_info(device->device, &info);
    rpp_once_totals(ordinal, &allocated, &reserved);
    return (struct figures){
        .total = info.total_bytes,
        .free = free_of(device),
        .allowed = atomic_load(&device->allowed_bytes),
        .allocated = stat_of(heap, "allocated_bytes.all.current") + (uint64_t)allocated,
        .of_graphs = (uint64_t)allocated,
        .reserved = stat_of(heap, "reserved_bytes.all.current") + (uint64_t)reserved};
}

/* As PyTorch writes sizes. */
struct size_text {
    char text[32];
};

static struct size_text size_of(uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB"};
    struct size_text size;
    double amount = (double)bytes;
    int unit = -1;
    while (amount > 1024 && unit < 2) {
        amount /= 1024;
        unit++;
    }
    if (unit < 0)
        snprintf(size.text, sizeof size.text, "%d bytes", (int)bytes);
    else
        snprintf(size.text, sizeof size.text, "%.2f %s", amount, units[unit]);
    return size;
}

static void write_text(uint64_t bytes, int ordinal, const struct figures *now, const char *why,
                       char out_text[RPP_SHORTAGE_BYTES])
{
    char allowed[64] = "", of_graphs[96] = "";
    if (now->allowed)
        snprintf(allowed, sizeof allowed, "%s allowed; ", size_of(now->allowed).text);
    if (now->of_graphs)
        snprintf(of_graphs, sizeof of_graphs,
                 "with %s allocated in private pools (e.g., CUDA Graphs), ",
                 size_of(now->of_graphs).text);
    uint64_t idle = now->reserved > now->allocated ? now->reserved - now->allocated : 0;
    snprintf(
        out_text, RPP_SHORTAGE_BYTES,
        "CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which "
        "%s is free. %sOf the allocated memory %s is allocated by PyTorch, %sand %s is reserved "
        "by PyTorch but unallocated. Reprise's allocator: %s",
        size_of(bytes).text, ordinal, size_of(now->total).text, size_of(now->free).text, allowed,
        size_of(now->allocated).text, of_graphs, size_of(idle).text, why);
}

void rpp_shortage_tell(uint64_t bytes, int ordinal, const char *why,
                       char out_text[RPP_SHORTAGE_BYTES])
{
    assert(bytes && why);
    if (bytes >= MOST_BYTES) {
        snprintf(out_text, RPP_SHORTAGE_BYTES,
                 "CUDA out of memory. Tried to allocate more than 1EB memory.");
        return;
    }
    struct figures now = look(ordinal);
    write_text(bytes, ordinal, &now, why, out_text);
    void (*tell)(int, uint64_t, uint64_t, uint64_t) = atomic_load(&rpp_state.on_shortage);
    if (tell)
        tell(ordinal, bytes, now.allowed ? now.allowed : now.total, now.free);
}
