/* SPDX-License-Identifier: MIT
 *
 * rp_heap_create: a heap on an opened device. All else of the heap is in memory/heap*.c, which
 * knows no devices.
 */
#include "memory/heap/heap.h"
#include "base/refuse.h"
#include "graph/objects/objects.h"

rp_status rp_heap_create(struct rp_device *device, const struct rp_heap_options *options,
                         struct rp_heap **out_heap, struct rp_error *err)
{
    if (rpi_is_forked() || !device || !out_heap)
        return rpi_refuse(err, "rp_heap_create", !device ? "device" : "out_heap");
    struct rp_heap *heap = NULL;
    rp_status status = rpi_heap_create_on(device->driver, device->handle, device->context,
                                          device->total_bytes, options, &heap, err);
    if (status != RP_OK)
        return status;
    heap->device_users = &device->pools;
    atomic_fetch_add(&device->pools, 1);
    rpi_heaps_add(&device->heaps, heap);
    heap->peers = &device->peers;
    heap->mapper.let_in = rpi_heap_let_in;
    rpi_peers_join(heap->peers, &heap->mapper);
    *out_heap = heap;
    return RP_OK;
}
