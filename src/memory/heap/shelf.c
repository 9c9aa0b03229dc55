/* SPDX-License-Identifier: MIT
 *
 * Shelves and their ranges: how they are found by stream and by address, and the blocks that cover
 * them. Both lookups are hash tables with linear probing in which slots only ever go from empty to
 * a pointer, so that they are read without a lock. A range is looked up by the addresses' upper
 * bits: it is entered once for each of the (two, as a rule) stretches of range_bytes that it
 * touches.
 */
#include "base/held.h"
#include "memory/heap/heap.h"

#include <assert.h>

enum { SLAB_BLOCKS = 64 };

/* The finaliser of MurmurHash3 spreads what differs in a few bits only. */
static size_t slot_of(uint64_t key)
{
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdu;
    key ^= key >> 33;
    return (size_t)key & (RPI_HEAP_SLOTS - 1);
}

static uint64_t stream_key(CUstream stream, uint32_t kind)
{
    return ((uint64_t)(uintptr_t)stream << 2) + kind;
}

struct rpi_shelf *rpi_heap_shelf(struct rp_heap *heap, CUstream stream, uint32_t kind)
{
    assert((kind & 3) < RPI_HEAP_CLASSES && kind >> 2 < RP_HEAP_POOLS);
    for (size_t i = slot_of(stream_key(stream, kind));; i = (i + 1) & (RPI_HEAP_SLOTS - 1)) {
        struct rpi_shelf *shelf = atomic_load_explicit(&heap->by_stream[i], memory_order_acquire);
        if (!shelf || (shelf->stream == stream && shelf->kind == kind))
            return shelf;
    }
}

struct rpi_heap_range *rpi_heap_range_of(struct rp_heap *heap, uint64_t address)
{
    for (size_t i = slot_of(address >> heap->range_shift);; i = (i + 1) & (RPI_HEAP_SLOTS - 1)) {
        struct rpi_heap_range *range =
            atomic_load_explicit(&heap->by_address[i], memory_order_acquire);
        if (!range)
            return atomic_load_explicit(&heap->sourced.count, memory_order_acquire)
                       ? rpi_heap_sourced_range_of(heap, address)
                       : NULL;
        if (address - range->base < range->bytes)
            return range;
    }
}

struct rpi_heap_block *rpi_heap_block_of(const struct rpi_heap_range *range, uint64_t address)
{
    assert(rpi_heap_is_locked(&range->shelf->lock) && address - range->base < range->bytes);
    const struct rpi_shelf *shelf = range->shelf;
    uint64_t offset = address - range->base, chunk = rpi_shelf_chunk(shelf, offset);
    size_t slots = shelf->chunk_bytes >> shelf->start_shift;
    size_t slot = (offset - chunk * shelf->chunk_bytes) >> shelf->start_shift;
    for (; chunk < range->chunks.count && range->chunks.data[chunk].starts; slot = slots - 1) {
        for (size_t i = slot + 1; i-- > 0;) {
            struct rpi_heap_block *block = range->chunks.data[chunk].starts[i];
            if (block && block->address <= address)
                return address - block->address < block->bytes ? block : NULL;
        }
        if (chunk-- == 0)
            break;
    }
    return NULL;
}

static void publish_shelf(struct rp_heap *heap, struct rpi_shelf *shelf)
{
    rpi_assert_held(&heap->growth);
    assert(heap->shelf_count <= RPI_HEAP_SHELVES);
    size_t i = slot_of(stream_key(shelf->stream, shelf->kind));
    while (atomic_load_explicit(&heap->by_stream[i], memory_order_relaxed))
        i = (i + 1) & (RPI_HEAP_SLOTS - 1);
    atomic_store_explicit(&heap->by_stream[i], shelf, memory_order_release);
}

static void publish_range(struct rp_heap *heap, struct rpi_heap_range *range)
{
    rpi_assert_held(&heap->growth);
    assert(heap->range_count <= RPI_HEAP_SLOTS / 4);
    uint64_t last = (range->base + range->bytes - 1) >> heap->range_shift;
    for (uint64_t key = range->base >> heap->range_shift; key <= last; key++) {
        size_t i = slot_of(key);
        while (atomic_load_explicit(&heap->by_address[i], memory_order_relaxed))
            i = (i + 1) & (RPI_HEAP_SLOTS - 1);
        atomic_store_explicit(&heap->by_address[i], range, memory_order_release);
    }
}

static struct rpi_shelf *shelf_create(struct rp_heap *heap, CUstream stream, uint32_t kind)
{
    rpi_assert_held(&heap->growth);
    enum rpi_heap_class class = (enum rpi_heap_class)(kind & 3);
    static const unsigned chunk_mib[] = {2, 20, 2};
    static const unsigned start_shift[] = {RPI_HEAP_GRAIN_SHIFT, RPI_HEAP_SMALL_SHIFT,
                                           RPI_HEAP_UNIT_SHIFT};
    struct rpi_shelf *shelf = rpi_calloc(1, sizeof *shelf);
    if (!shelf)
        return NULL;
    shelf->heap = heap;
    shelf->stream = stream;
    shelf->class = class;
    shelf->pool = kind >> 2;
    shelf->kind = kind;
    shelf->whole = class == RPI_HEAP_OVERSIZE;
    shelf->sourced = rpi_heap_has_source(heap, shelf->pool);
    shelf->chunk_bytes = shelf->sourced
                             ? (uint64_t)1 << RPI_HEAP_UNIT_SHIFT
                             : rpi_round_up((uint64_t)chunk_mib[class] << 20, heap->granularity);
    shelf->chunk_units = (uint32_t)(shelf->chunk_bytes >> RPI_HEAP_UNIT_SHIFT);
    assert(shelf->chunk_bytes == (uint64_t)shelf->chunk_units << RPI_HEAP_UNIT_SHIFT);
    shelf->start_shift = start_shift[class];
    shelf->waiting_end = &shelf->waiting;
    shelf->poll_gap = 1;
    return shelf;
}

rp_status rpi_heap_shelf_make(struct rp_heap *heap, CUstream stream, uint32_t kind,
                              struct rpi_shelf **out_shelf, struct rp_error *err)
{
    pthread_mutex_lock(&heap->growth);
    rp_status status = RP_OK;
    struct rpi_shelf *shelf = rpi_heap_shelf(heap, stream, kind);
    if (!shelf && heap->shelf_count == RPI_HEAP_SHELVES) {
        status = rpi_error(err, RP_ERROR_LIMIT, "rp_heap_alloc",
                           "the heap has memory for %d pairs of a stream and a size class, the "
                           "most it can: use fewer streams, again and again",
                           RPI_HEAP_SHELVES);
    } else if (!shelf) {
        shelf = shelf_create(heap, stream, kind);
        if (shelf) {
            heap->shelves[heap->shelf_count++] = shelf;
            publish_shelf(heap, shelf);
        } else {
            status = rpi_error_host_memory(err, "rp_heap_alloc", sizeof *shelf);
        }
    }
    pthread_mutex_unlock(&heap->growth);
    if (status == RP_OK)
        *out_shelf = shelf;
    return status;
}

static void range_destroy(struct rpi_heap_range *range)
{
    for (size_t i = 0; i < range->chunks.count; i++)
        rpi_free(range->chunks.data[i].starts);
    rpi_vec_finish(&range->chunks);
    rpi_free(range);
}

rp_status rpi_shelf_add_range(struct rpi_shelf *shelf, struct rp_error *err)
{
    rpi_assert_held(&shelf->heap->growth);
    assert(rpi_heap_is_locked(&shelf->lock));
    struct rp_heap *heap = shelf->heap;
    if (heap->range_count == RPI_HEAP_SLOTS / 4)
        return rpi_error(err, RP_ERROR_LIMIT, "rp_heap_alloc",
                         "the heap has %d address ranges, the most it can", RPI_HEAP_SLOTS / 4);
    struct rpi_heap_range *range = rpi_calloc(1, sizeof *range);
    if (!range || !rpi_vec_reserve(&shelf->ranges, shelf->ranges.count + 1) ||
        !rpi_shelf_reserve(shelf, 1)) {
        rpi_free(range);
        return rpi_error_host_memory(err, "rp_heap_alloc", sizeof *range);
    }
    CUdeviceptr base = 0;
    CUresult result = rpi_reserve_addresses(heap->driver, heap->range_bytes, &base);
    if (result != CUDA_SUCCESS) {
        rpi_free(range);
        return rpi_error_driver(err, result, "cuMemAddressReserve",
                                "reserving %llu MiB of addresses for a stream",
                                (unsigned long long)(heap->range_bytes >> 20));
    }
    range->shelf = shelf;
    range->base = base;
    range->bytes = heap->range_bytes - heap->range_bytes % shelf->chunk_bytes;
    struct rpi_heap_block *hole = rpi_shelf_descriptor(shelf);
    *hole = (struct rpi_heap_block){.address = base, .bytes = range->bytes, .range = range};
    range->first = hole;
    rpi_shelf_add_hole(shelf, hole);
    shelf->ranges.data[shelf->ranges.count++] = range;
    heap->range_count++;
    publish_range(heap, range);
    return RP_OK;
}

void rpi_shelf_destroy(struct rpi_shelf *shelf)
{
    const struct rp_driver *driver = shelf->heap->driver;
    for (size_t i = 0; i < shelf->ranges.count; i++) {
        struct rpi_heap_range *range = shelf->ranges.data[i];
        if (!shelf->sourced)
            rpi_free_addresses(driver, range->base, shelf->heap->range_bytes);
        range_destroy(range);
    }
    while (shelf->retired) {
        struct rpi_heap_range *range = shelf->retired;
        shelf->retired = range->next;
        range_destroy(range);
    }
    for (size_t i = 0; i < shelf->slabs.count; i++)
        rpi_free(shelf->slabs.data[i]);
    for (size_t i = 0; i < shelf->events.count; i++)
        driver->cuEventDestroy(shelf->events.data[i]);
    rpi_vec_finish(&shelf->ranges);
    rpi_vec_finish(&shelf->slabs);
    rpi_vec_finish(&shelf->events);
    rpi_free(shelf);
}

/* ---- Tables ------------------------------------------------------------------------------------*/

void rpi_heap_free_tables(struct rpi_heap_range *range, size_t first, size_t count)
{
    assert(first + count <= range->chunks.count);
    for (size_t i = first; i < first + count; i++) {
        rpi_free(range->chunks.data[i].starts);
        range->chunks.data[i].starts = NULL;
    }
}

bool rpi_heap_make_tables(struct rpi_heap_range *range, size_t first, size_t count)
{
    size_t starts = range->shelf->chunk_bytes >> range->shelf->start_shift;
    if (!rpi_vec_reserve(&range->chunks, first + count))
        return false;
    while (range->chunks.count < first + count)
        range->chunks.data[range->chunks.count++] = (struct rpi_heap_chunk){0};
    for (size_t i = 0; i < count; i++) {
        range->chunks.data[first + i].starts = rpi_calloc(starts, sizeof(struct rpi_heap_block *));
        if (!range->chunks.data[first + i].starts) {
            rpi_heap_free_tables(range, first, i);
            return false;
        }
    }
    return true;
}

/* ---- Descriptors -----------------------------------------------------------------------------*/

bool rpi_shelf_add_slab(struct rpi_shelf *shelf)
{
    assert(rpi_heap_is_locked(&shelf->lock));
    if (!rpi_vec_reserve(&shelf->slabs, shelf->slabs.count + 1))
        return false;
    struct rpi_heap_block *slab = rpi_malloc(SLAB_BLOCKS * sizeof *slab);
    if (!slab)
        return false;
    shelf->slabs.data[shelf->slabs.count++] = slab;
    for (int i = SLAB_BLOCKS; i-- > 0;)
        rpi_shelf_discard(shelf, &slab[i]);
    return true;
}

void rpi_shelf_discard(struct rpi_shelf *shelf, struct rpi_heap_block *block)
{
    assert(rpi_heap_is_locked(&shelf->lock));
    block->after = shelf->spare;
    shelf->spare = block;
}

/* ---- Blocks ----------------------------------------------------------------------------------*/

void rpi_shelf_add_hole(struct rpi_shelf *shelf, struct rpi_heap_block *block)
{
    assert(block->bytes % shelf->chunk_bytes == 0);
    assert(rpi_heap_is_locked(&shelf->lock));
    block->state = RPI_HEAP_HOLE;
    block->left = shelf->holes;
    block->right = NULL;
    if (block->left)
        block->left->right = block;
    shelf->holes = block;
}

void rpi_shelf_remove_hole(struct rpi_shelf *shelf, struct rpi_heap_block *block)
{
    assert(block->state == RPI_HEAP_HOLE);
    assert(rpi_heap_is_locked(&shelf->lock));
    if (block->left)
        block->left->right = block->right;
    if (block->right)
        block->right->left = block->left;
    else
        shelf->holes = block->left;
}

struct rpi_heap_block *rpi_shelf_cut(struct rpi_shelf *shelf, struct rpi_heap_block *block,
                                     uint64_t bytes)
{
    assert(bytes && bytes < block->bytes);
    assert(rpi_heap_is_locked(&shelf->lock));
    struct rpi_heap_block *rest = rpi_shelf_descriptor(shelf);
    rest->address = block->address + bytes;
    rest->bytes = block->bytes - bytes;
    rest->before = block;
    rest->after = block->after;
    rest->range = block->range;
    rest->state = block->state;
    rest->freed_at = block->freed_at;
    if (rest->after)
        rest->after->before = rest;
    block->after = rest;
    block->bytes = bytes;
    return rest;
}

void rpi_shelf_join(struct rpi_shelf *shelf, struct rpi_heap_block *block)
{
    assert(block->after && block->address + block->bytes == block->after->address);
    assert(block->range == block->after->range);
    assert(rpi_heap_is_locked(&shelf->lock));
    struct rpi_heap_block *gone = block->after;
    block->bytes += gone->bytes;
    block->after = gone->after;
    if (block->after)
        block->after->before = block;
    rpi_shelf_discard(shelf, gone);
}

bool rpi_shelf_whole_chunks(const struct rpi_shelf *shelf, const struct rpi_heap_range *range,
                            uint64_t address, uint64_t bytes, uint64_t *out_first,
                            uint64_t *out_end)
{
    assert(address - range->base < range->bytes && bytes <= range->base + range->bytes - address);
    uint64_t chunk = shelf->chunk_bytes, offset = address - range->base;
    if (shelf->sourced && bytes != range->bytes)
        return false; /* it goes as it came */
    uint64_t first = rpi_shelf_chunk(shelf, offset + chunk - 1);
    uint64_t end = rpi_shelf_chunk(shelf, offset + bytes);
    if (first >= end)
        return false;
    *out_first = range->base + first * chunk;
    *out_end = range->base + end * chunk;
    return true;
}
