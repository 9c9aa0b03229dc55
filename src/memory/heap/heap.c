/* SPDX-License-Identifier: MIT
 *
 * The heap as the program sees it: allocate, free, say who else uses a block. The way that nearly
 * every call takes is short: find the shelf without a lock, lock it, take or give, unlock. The long
 * way, under growth, begins where the shelf has no block that fits, or a gauge may reach a new
 * peak.
 */
#include "memory/heap/heap.h"

#include "base/held.h"
#include "base/refuse.h"
#include "base/sized.h"

#include <assert.h>
#include <string.h>

/* ---- Making and destroying -------------------------------------------------------------------*/

#define LEAST_OVERSIZE ((uint64_t)20 << 20) /* as c10 demands, and rounds by unless told */

static rp_status check_options(const struct rp_heap_options *options, const char *function,
                               struct rp_error *err)
{
    if (!(options->gc_threshold >= 0 && options->gc_threshold < 1))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "gc_threshold is %g, but has to be at least 0 and below 1",
                         options->gc_threshold);
    const uint64_t sizes[] = {options->max_split_bytes, options->max_non_split_rounding_bytes};
    for (int i = 0; i < 2; i++)
        if (sizes[i] && sizes[i] <= LEAST_OVERSIZE)
            return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                             "%s is %llu, but has to be above 20 MiB, or 0",
                             i ? "max_non_split_rounding_bytes" : "max_split_bytes",
                             (unsigned long long)sizes[i]);
    for (int i = 0; i < RP_HEAP_ROUNDINGS; i++)
        if (options->roundup_power2_divisions[i] & (options->roundup_power2_divisions[i] - 1))
            return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                             "roundup_power2_divisions[%d] is %u, but has to be a power of two, or "
                             "0",
                             i, options->roundup_power2_divisions[i]);
    return RP_OK;
}

/* Those that can change while the heap is in use. */
static void take_settings(struct rp_heap *heap, const struct rp_heap_options *options)
{
    assert(options->gc_threshold >= 0 && options->gc_threshold < 1);
    bool rounds = false;
    heap->gc_threshold = options->gc_threshold;
    heap->max_split_bytes = options->max_split_bytes ? options->max_split_bytes : UINT64_MAX;
    heap->non_split_rounding = options->max_non_split_rounding_bytes
                                   ? options->max_non_split_rounding_bytes
                                   : LEAST_OVERSIZE;
    for (int i = 0; i < RP_HEAP_ROUNDINGS; i++) {
        heap->divisions[i] = options->roundup_power2_divisions[i];
        rounds |= options->roundup_power2_divisions[i] > 1;
    }
    heap->rounds = rounds;
}

static void take_options(struct rp_heap *heap, const struct rp_heap_options *options)
{
    heap->limit_bytes = options->limit_bytes ? options->limit_bytes : UINT64_MAX;
    heap->fraction_bytes = UINT64_MAX;
    heap->share_early = options->share_early != 0;
    heap->frames = options->frames;
    take_settings(heap, options);
}

/* The caller's, as this header has them, if they can be. */
static rp_status read_options(const struct rp_heap_options *given, const char *function,
                              struct rp_heap_options *out_chosen, struct rp_error *err)
{
    *out_chosen = (struct rp_heap_options)RP_HEAP_OPTIONS_INIT;
    rp_status status = rpi_take_options(out_chosen, sizeof *out_chosen, given, function,
                                        "RP_HEAP_OPTIONS_INIT", err);
    return status == RP_OK ? check_options(out_chosen, function, err) : status;
}

static rp_status read_granularity(struct rp_heap *heap, struct rp_error *err)
{
    struct rpi_heap_scope scope;
    size_t granularity = 0;
    CUresult result = rpi_heap_enter(heap, &scope);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuCtxPushCurrent",
                                "making the device's context current");
    rpi_heap_ask_shareable(heap);
    CUmemAllocationProp properties = rpi_heap_memory(heap);
    result = heap->driver->cuMemGetAllocationGranularity(&granularity, &properties,
                                                         CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    rpi_heap_leave(heap, &scope);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemGetAllocationGranularity",
                                "asking for the granularity of device memory");
    heap->granularity = granularity;
    assert(granularity && (granularity & (granularity - 1)) == 0);
    return RP_OK;
}

/* As c10: an eighth more than the device has, so that holes do not use up the addresses at once. */
static void choose_range(struct rp_heap *heap)
{
    uint64_t least = heap->total_bytes + heap->total_bytes / 8;
    heap->range_shift = 30;
    while (((uint64_t)1 << heap->range_shift) < least)
        heap->range_shift++;
    heap->range_bytes = (uint64_t)1 << heap->range_shift;
    assert(heap->range_bytes >= least && heap->range_shift >= RPI_HEAP_UNIT_SHIFT);
}

rp_status rpi_heap_create_on(const struct rp_driver *driver, CUdevice device, CUcontext context,
                             uint64_t total_bytes, const struct rp_heap_options *options,
                             struct rp_heap **out_heap, struct rp_error *err)
{
    struct rp_heap_options chosen;
    rp_status status = read_options(options, "rp_heap_create", &chosen, err);
    if (status != RP_OK)
        return status;
    options = &chosen;
    struct rp_heap *heap = rpi_calloc(1, sizeof *heap);
    if (!heap)
        return rpi_error_host_memory(err, "rp_heap_create", sizeof *heap);
    heap->driver = driver;
    heap->device = device;
    heap->context = context;
    heap->total_bytes = total_bytes;
    take_options(heap, options);
    choose_range(heap);
    heap->shelves = rpi_calloc(RPI_HEAP_SHELVES, sizeof(struct rpi_shelf *));
    status = heap->shelves ? read_granularity(heap, err)
                           : rpi_error_host_memory(err, "rp_heap_create", sizeof *heap);
    if (status != RP_OK || pthread_mutex_init(&heap->growth, NULL) != 0)
        goto fail;
    if (pthread_mutex_init(&heap->history.lock, NULL) == 0) {
        if (pthread_mutex_init(&heap->sourced.lock, NULL) == 0) {
            *out_heap = heap;
            return RP_OK;
        }
        pthread_mutex_destroy(&heap->history.lock);
    }
    pthread_mutex_destroy(&heap->growth);
fail:
    rpi_free(heap->shelves);
    rpi_free(heap);
    return status != RP_OK ? status
                           : rpi_error_host_memory(err, "rp_heap_create", sizeof(pthread_mutex_t));
}

static void forget_block(struct rpi_shelf *shelf, struct rpi_heap_block *block)
{
    if (block->state != RPI_HEAP_LIVE && block->state != RPI_HEAP_WAITING)
        return;
    while (block->uses) {
        struct rpi_heap_use *use = block->uses;
        block->uses = use->next;
        if (use->event)
            shelf->heap->driver->cuEventDestroy(use->event);
        rpi_free(use);
    }
    rpi_heap_stack_drop(shelf->heap, block->stack);
}

static void empty_range(struct rpi_shelf *shelf, struct rpi_heap_range *range)
{
    for (struct rpi_heap_block *block = range->first; block; block = block->after)
        forget_block(shelf, block);
    rpi_heap_empty_range(range);
}

static void finish_stream(const struct rp_driver *driver, CUstream stream)
{
    if (driver->cuStreamSynchronize(stream) != CUDA_SUCCESS)
        driver->cuStreamSynchronize(stream);
}

/* Waits for the shelf's stream and for those that blocks of it were used on. Synchronising the
 * context would break captures elsewhere. */
static void finish_work(const struct rpi_shelf *shelf)
{
    finish_stream(shelf->heap->driver, shelf->stream);
    for (size_t r = 0; r < shelf->ranges.count; r++)
        for (const struct rpi_heap_block *b = shelf->ranges.data[r]->first; b; b = b->after)
            if (b->state == RPI_HEAP_LIVE || b->state == RPI_HEAP_WAITING)
                for (const struct rpi_heap_use *use = b->uses; use; use = use->next)
                    finish_stream(shelf->heap->driver, use->stream);
}

void rp_heap_destroy(struct rp_heap *heap)
{
    if (!heap || rpi_is_forked())
        return;
    rpi_heaps_remove(heap);
    if (heap->peers)
        rpi_peers_leave(heap->peers, &heap->mapper);
    struct rpi_heap_scope scope;
    bool entered = rpi_heap_enter(heap, &scope) == CUDA_SUCCESS ||
                   rpi_heap_enter(heap, &scope) == CUDA_SUCCESS;
    for (size_t s = 0; s < heap->shelf_count; s++)
        finish_work(heap->shelves[s]);
    for (size_t s = 0; s < heap->shelf_count; s++) {
        struct rpi_shelf *shelf = heap->shelves[s];
        for (size_t r = 0; r < shelf->ranges.count; r++)
            empty_range(shelf, shelf->ranges.data[r]);
        rpi_heap_source_finish(shelf);
        rpi_shelf_destroy(shelf);
    }
    if (entered)
        rpi_heap_leave(heap, &scope);
    rpi_heap_history_finish(heap);
    rpi_vec_finish(&heap->sourced.ranges);
    pthread_mutex_destroy(&heap->sourced.lock);
    pthread_mutex_destroy(&heap->history.lock);
    pthread_mutex_destroy(&heap->growth);
    if (heap->device_users)
        atomic_fetch_sub(heap->device_users, 1);
    rpi_free(heap->sources);
    rpi_free(heap->shelves);
    rpi_free(heap);
}

/* ---- Allocating ------------------------------------------------------------------------------*/

struct request {
    uint64_t bytes, requested;
    CUstream stream;
    struct rpi_heap_stack *stack;
};

/* What is left to do once a block was taken, under its shelf's lock: the stack is the block's now.
 */
static inline uint64_t hand_over(struct rp_heap *heap, struct rpi_heap_block *block,
                                 struct rpi_heap_stack *stack)
{
    assert(rpi_heap_is_locked(&block->range->shelf->lock));
    assert(block->state == RPI_HEAP_LIVE && block->requested <= block->bytes);
    block->stack = stack;
    rpi_heap_note(heap, RP_HEAP_EVENT_ALLOC, block->address, block->requested, block->stream,
                  block->range->shelf->pool, stack);
    return block->address;
}

/* Out of the shelf's own memory; growth is held, the shelf's lock not. Maps more if `grow`. */
static enum rpi_heap_outcome try_own(struct rpi_shelf *shelf, struct request *request, bool grow,
                                     uint64_t *out_address, rp_status *out_status,
                                     struct rp_error *err)
{
    rpi_assert_held(&shelf->heap->growth);
    assert(request->bytes && request->bytes % RPI_HEAP_GRAIN == 0);
    struct rp_heap *heap = shelf->heap;
    struct rpi_heap_block *block = NULL;
    rpi_heap_lock(&shelf->lock);
    rpi_shelf_poll(shelf, true, false);
    enum rpi_heap_outcome outcome =
        rpi_shelf_take(shelf, request->bytes, request->requested, request->stream, true, &block);
    if (outcome == RPI_HEAP_MISS && rpi_shelf_follow(shelf, request->bytes))
        outcome = rpi_shelf_take(shelf, request->bytes, request->requested, request->stream, true,
                                 &block);
    if (outcome == RPI_HEAP_MISS && grow) {
        struct rpi_heap_scope scope;
        CUresult result = rpi_heap_enter(heap, &scope);
        if (result == CUDA_SUCCESS) {
            *out_status = rpi_shelf_grow(shelf, request->bytes, err);
            rpi_heap_leave(heap, &scope);
        } else {
            *out_status = rpi_error_driver(err, result, "cuCtxPushCurrent",
                                           "making the device's context current");
        }
        if (*out_status == RP_OK)
            outcome = rpi_shelf_take(shelf, request->bytes, request->requested, request->stream,
                                     true, &block);
    }
    if (outcome == RPI_HEAP_DONE)
        *out_address = hand_over(heap, block, request->stack);
    rpi_heap_unlock(&shelf->lock);
    return outcome;
}

static enum rpi_heap_outcome try_others(struct rpi_shelf *shelf, struct request *request,
                                        uint64_t *out_address)
{
    rpi_assert_held(&shelf->heap->growth);
    struct rpi_heap_block *block = NULL;
    enum rpi_heap_outcome outcome =
        rpi_heap_borrow(shelf, request->bytes, request->requested, &block);
    if (outcome == RPI_HEAP_DONE) {
        *out_address = hand_over(shelf->heap, block, request->stack);
        rpi_heap_unlock(&block->range->shelf->lock);
    }
    return outcome;
}

static bool is_shortage(rp_status status)
{
    return status == RP_ERROR_LIMIT || status == RP_ERROR_OUT_OF_DEVICE_MEMORY;
}

/* Everything has been tried but giving back and lending. */
static rp_status alloc_short(struct rpi_shelf *shelf, struct request *request,
                             uint64_t *out_address, struct rp_error *err)
{
    rpi_assert_held(&shelf->heap->growth);
    assert(!shelf->sourced);
    struct rp_heap *heap = shelf->heap;
    rp_status status = RP_OK;
    heap->totals.alloc_retries++;
    enum rpi_heap_outcome outcome = RPI_HEAP_MISS;
    if (heap->max_split_bytes != UINT64_MAX) {
        rpi_heap_release_oversize(heap, request->stream, shelf->pool, request->bytes);
        outcome = try_own(shelf, request, true, out_address, &status, err);
    }
    if (outcome == RPI_HEAP_MISS) {
        rpi_heap_finish_waiting(heap);
        rpi_heap_give_back(heap, NULL); /* what can't go is not to be had */
        rpi_heap_let_go(heap);
        outcome = try_own(shelf, request, true, out_address, &status, err);
    }
    if (outcome == RPI_HEAP_MISS && is_shortage(status))
        outcome = try_others(shelf, request, out_address);
    if (outcome == RPI_HEAP_DONE)
        return RP_OK;
    if (outcome == RPI_HEAP_NO_MEMORY)
        return rpi_error_host_memory(err, "rp_heap_alloc", sizeof(struct rpi_heap_block));
    if (is_shortage(status))
        return rpi_heap_out_of_memory(shelf, request->requested, status, err);
    return status;
}

static rp_status alloc_slowly(struct rpi_shelf *shelf, struct request *request,
                              uint64_t *out_address, struct rp_error *err)
{
    assert(!shelf->sourced);
    struct rp_heap *heap = shelf->heap;
    rp_status status = RP_OK;
    pthread_mutex_lock(&heap->growth);
    heap->cause = request->stack;
    enum rpi_heap_outcome outcome = try_own(shelf, request, false, out_address, &status, err);
    if (outcome == RPI_HEAP_MISS && heap->share_early)
        outcome = try_others(shelf, request, out_address);
    if (outcome == RPI_HEAP_MISS) {
        rpi_heap_collect(heap, request->bytes);
        outcome = try_own(shelf, request, true, out_address, &status, err);
    }
    if (outcome == RPI_HEAP_NO_MEMORY)
        status = rpi_error_host_memory(err, "rp_heap_alloc", sizeof(struct rpi_heap_block));
    else if (outcome == RPI_HEAP_MISS && is_shortage(status))
        status = alloc_short(shelf, request, out_address, err);
    rpi_heap_let_go(heap);
    heap->cause = NULL;
    pthread_mutex_unlock(&heap->growth);
    return status;
}

/* A segment of the pool's source, which is asked with no lock held, and the request's block in it.
 */
static enum rpi_heap_outcome take_from_source(struct rpi_shelf *shelf, struct request *request,
                                              const struct rpi_heap_wish *wish,
                                              uint64_t *out_address, struct rp_error *err)
{
    assert(shelf->sourced && wish->bytes >= request->bytes);
    struct rp_heap *heap = shelf->heap;
    struct rpi_heap_block *block = NULL;
    enum rpi_heap_outcome outcome = RPI_HEAP_NO_MEMORY;
    uint64_t address = wish->source.alloc(wish->bytes, shelf->stream, wish->source.user);
    if (!address)
        return RPI_HEAP_MISS;
    pthread_mutex_lock(&heap->growth);
    heap->cause = request->stack;
    rpi_heap_lock(&shelf->lock);
    bool added = rpi_heap_source_add(shelf, address, wish, err) == RP_OK;
    if (added)
        outcome = rpi_shelf_take(shelf, request->bytes, request->requested, request->stream, true,
                                 &block);
    if (outcome == RPI_HEAP_DONE)
        *out_address = hand_over(heap, block, request->stack);
    rpi_heap_unlock(&shelf->lock);
    heap->cause = NULL;
    pthread_mutex_unlock(&heap->growth);
    if (!added)
        wish->source.free(address, wish->bytes, shelf->stream, wish->source.user);
    return outcome;
}

/* What the pool has, and else room for a segment of its source. Where memory is short, all that can
 * be given back is given back first. */
static enum rpi_heap_outcome look_for_room(struct rpi_shelf *shelf, struct request *request,
                                           bool is_short, struct rpi_heap_wish *out_wish,
                                           uint64_t *out_address, rp_status *out_status)
{
    assert(shelf->sourced);
    struct rp_heap *heap = shelf->heap;
    rp_status unused;
    pthread_mutex_lock(&heap->growth);
    heap->cause = request->stack;
    if (is_short) {
        heap->totals.alloc_retries++;
        rpi_heap_finish_waiting(heap);
        rpi_heap_give_back(heap, NULL);
        rpi_heap_let_go(heap);
    }
    enum rpi_heap_outcome outcome = try_own(shelf, request, false, out_address, &unused, NULL);
    *out_status = rpi_heap_source_wish(shelf, request->bytes, out_wish) ? RP_OK : RP_ERROR_LIMIT;
    heap->cause = NULL;
    pthread_mutex_unlock(&heap->growth);
    return outcome;
}

/* In a pool with a source. */
static rp_status alloc_sourced(struct rpi_shelf *shelf, struct request *request,
                               uint64_t *out_address, struct rp_error *err)
{
    enum { ATTEMPTS = 2 };
    struct rp_heap *heap = shelf->heap;
    enum rpi_heap_outcome outcome = RPI_HEAP_MISS;
    rp_status status = RP_OK;
    for (int i = 0; outcome == RPI_HEAP_MISS && i < ATTEMPTS; i++) {
        struct rpi_heap_wish wish;
        outcome = look_for_room(shelf, request, i > 0, &wish, out_address, &status);
        if (outcome == RPI_HEAP_MISS && status == RP_OK) {
            status = RP_ERROR_OUT_OF_DEVICE_MEMORY;
            outcome = take_from_source(shelf, request, &wish, out_address, err);
        }
    }
    if (outcome == RPI_HEAP_DONE)
        return RP_OK;
    if (outcome == RPI_HEAP_NO_MEMORY)
        return rpi_error_host_memory(err, "rp_heap_alloc_in", sizeof(struct rpi_heap_block));
    pthread_mutex_lock(&heap->growth);
    heap->cause = request->stack;
    if (try_others(shelf, request, out_address) == RPI_HEAP_DONE)
        status = RP_OK;
    else
        status = rpi_heap_out_of_memory(shelf, request->requested, status, err);
    heap->cause = NULL;
    pthread_mutex_unlock(&heap->growth);
    return status;
}

/* CU_STREAM_LEGACY is another name of NULL; CU_STREAM_PER_THREAD, the next, names none. */
static bool is_special(CUstream stream)
{
    return (uintptr_t)stream - 1 < 2;
}

static rp_status check_stream(CUstream *stream, const char *function, struct rp_error *err)
{
    if (*stream == CU_STREAM_LEGACY)
        *stream = NULL;
    if (*stream == CU_STREAM_PER_THREAD)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "CU_STREAM_PER_THREAD is another stream for each thread, so that memory "
                         "can't belong to it: use a stream that was created");
    return RP_OK;
}

/* The way of a request that finds its shelf and a block there; false when it does not. */
static inline bool alloc_quickly(struct rpi_shelf *shelf, const struct request *request,
                                 uint64_t *out_address)
{
    struct rpi_heap_block *block = NULL;
    rpi_heap_lock(&shelf->lock);
    if (shelf->waiting && rpi_shelf_poll_due(shelf))
        rpi_shelf_poll(shelf, false, false);
    bool taken = rpi_shelf_take(shelf, request->bytes, request->requested, request->stream, false,
                                &block) == RPI_HEAP_DONE;
    if (taken)
        *out_address = hand_over(shelf->heap, block, request->stack);
    rpi_heap_unlock(&shelf->lock);
    return taken;
}

#define MOST_REQUEST ((uint64_t)1 << 62) /* more than any device has, and still to be rounded */

/* c10's roundup_power2_divisions: to the next of so many equal parts of what lies between two
 * powers of two. */
static uint64_t round_up_by_power(const struct rp_heap *heap, uint64_t bytes)
{
    assert(bytes && bytes <= MOST_REQUEST);
    unsigned log = 63 - (unsigned)__builtin_clzll(bytes);
    unsigned interval = log > 20 ? log - 20 : 0;
    if (interval > RP_HEAP_ROUNDINGS - 1)
        interval = RP_HEAP_ROUNDINGS - 1;
    uint64_t divisions = heap->divisions[interval];
    assert((divisions & (divisions - 1)) == 0);
    if (divisions <= 1 || bytes <= divisions * RPI_HEAP_GRAIN)
        return rpi_round_up(bytes, RPI_HEAP_GRAIN);
    return rpi_round_up(bytes, ((uint64_t)1 << log) / divisions);
}

static rp_status check_pool(uint32_t pool, uint32_t least, const char *function,
                            struct rp_error *err)
{
    if (pool >= least && pool < RP_HEAP_POOLS)
        return RP_OK;
    return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                     "pool is %u, but has to be at least %u and below %d", (unsigned)pool,
                     (unsigned)least, RP_HEAP_POOLS);
}

/* Once for everybody's pool, which costs what it would without pools, and once for any. */
static inline __attribute__((always_inline)) rp_status
alloc_from(struct rp_heap *heap, uint32_t pool, uint64_t bytes, struct CUstream_st *stream,
           uint64_t *out_address, struct rp_error *err)
{
    if (rpi_is_forked() || !heap || !out_address)
        return rpi_refuse(err, "rp_heap_alloc", !heap ? "heap" : "out_address");
    rp_status status = RP_OK;
    if (is_special(stream) && (status = check_stream(&stream, "rp_heap_alloc", err)) != RP_OK)
        return status;
    if (bytes == 0) {
        *out_address = 0;
        return RP_OK;
    }
    struct request request = {.requested = bytes, .stream = stream};
    if (bytes > MOST_REQUEST)
        bytes = MOST_REQUEST;
    request.bytes =
        heap->rounds ? round_up_by_power(heap, bytes) : rpi_round_up(bytes, RPI_HEAP_GRAIN);
    assert(request.bytes >= bytes && request.bytes % RPI_HEAP_GRAIN == 0);
    enum rpi_heap_class class = request.bytes <= RPI_HEAP_SMALL_MOST     ? RPI_HEAP_SMALL
                                : request.bytes >= heap->max_split_bytes ? RPI_HEAP_OVERSIZE
                                                                         : RPI_HEAP_LARGE;
    if (pool) {
        if ((status = check_pool(pool, 0, "rp_heap_alloc_in", err)) != RP_OK)
            return status;
        if (heap->pools[pool] & RP_HEAP_POOL_WHOLE)
            class = RPI_HEAP_OVERSIZE;
    }
    uint32_t kind = rpi_heap_kind(pool, class);
    struct rpi_shelf *shelf = rpi_heap_shelf(heap, stream, kind);
    if (!shelf && (status = rpi_heap_shelf_make(heap, stream, kind, &shelf, err)) != RP_OK)
        return status;
    request.stack = rpi_heap_stack_capture(heap, RP_HEAP_STACKS_OF_BLOCKS);
    if (alloc_quickly(shelf, &request, out_address))
        return RP_OK;
    status = shelf->sourced ? alloc_sourced(shelf, &request, out_address, err)
                            : alloc_slowly(shelf, &request, out_address, err);
    if (status != RP_OK)
        rpi_heap_stack_drop(heap, request.stack);
    return status;
}

rp_status rp_heap_alloc(struct rp_heap *heap, uint64_t bytes, struct CUstream_st *stream,
                        uint64_t *out_address, struct rp_error *err)
{
    return alloc_from(heap, 0, bytes, stream, out_address, err);
}

rp_status rp_heap_alloc_in(struct rp_heap *heap, uint32_t pool, uint64_t bytes,
                           struct CUstream_st *stream, uint64_t *out_address, struct rp_error *err)
{
    return alloc_from(heap, pool, bytes, stream, out_address, err);
}

rp_status rp_heap_set_pool(struct rp_heap *heap, uint32_t pool, unsigned flags,
                           struct rp_error *err)
{
    if (rpi_is_forked() || !heap)
        return rpi_refuse(err, "rp_heap_set_pool", "heap");
    rp_status status = check_pool(pool, 1, "rp_heap_set_pool", err);
    if (status == RP_OK)
        heap->pools[pool] = flags;
    return status;
}

/* ---- What an address is ----------------------------------------------------------------------*/

static struct rpi_heap_block *block_at(const struct rpi_heap_range *range, uint64_t address)
{
    assert(rpi_heap_is_locked(&range->shelf->lock));
    struct rpi_heap_block **start = rpi_shelf_start(range, address);
    return start && *start && (*start)->address == address ? *start : NULL;
}

/* The block that covers the address, in whatever state; walks the range, for errors. */
static const struct rpi_heap_block *block_around(const struct rpi_heap_range *range,
                                                 uint64_t address)
{
    assert(rpi_heap_is_locked(&range->shelf->lock));
    const struct rpi_heap_block *block = range->first;
    while (block && address - block->address >= block->bytes)
        block = block->after;
    return block;
}

static rp_status not_live(struct rp_heap *heap, uint64_t address, const char *function,
                          struct rp_error *err)
{
    struct rpi_heap_range *range = rpi_heap_range_of(heap, address);
    if (!range)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "0x%llx is no address of this heap: give it to the allocator it came from",
                         (unsigned long long)address);
    struct rpi_heap_block found = {.state = RPI_HEAP_HOLE};
    rpi_heap_lock(&range->shelf->lock);
    const struct rpi_heap_block *block = block_around(range, address);
    if (block)
        found = *block;
    rpi_heap_unlock(&range->shelf->lock);
    if (found.state == RPI_HEAP_LIVE)
        return rpi_error(
            err, RP_ERROR_INVALID_ARGUMENT, function,
            "0x%llx lies %llu bytes inside the block at 0x%llx: give the block's start",
            (unsigned long long)address, (unsigned long long)(address - found.address),
            (unsigned long long)found.address);
    return rpi_error(
        err, RP_ERROR_INVALID_ARGUMENT, function,
        "0x%llx is in memory that is %s: was it freed twice?", (unsigned long long)address,
        found.state == RPI_HEAP_WAITING ? "freed already and waits for other streams" : "free");
}

/* ---- Freeing ---------------------------------------------------------------------------------*/

enum freeing { FREEING_DONE, FREEING_SLOW, FREEING_NOT_LIVE };

static enum freeing free_in(struct rpi_heap_range *range, uint64_t address, bool slow,
                            struct rpi_heap_stack *stack)
{
    assert(!slow || rpi_is_held(&range->shelf->heap->growth));
    struct rpi_shelf *shelf = range->shelf;
    enum freeing result = FREEING_DONE;
    rpi_heap_lock(&shelf->lock);
    struct rpi_heap_block *block = block_at(range, address);
    if (!block || block->state != RPI_HEAP_LIVE) {
        result = FREEING_NOT_LIVE;
    } else {
        if (!slow)
            rpi_heap_note(shelf->heap, RP_HEAP_EVENT_FREE_REQUESTED, address, block->requested,
                          block->stream, shelf->pool, stack ? stack : block->stack);
        if (block->watches)
            rpi_heap_block_lose(block);
        if (block->uses)
            rpi_shelf_wait(shelf, block);
        else if (!rpi_shelf_give(shelf, block, slow))
            result = FREEING_SLOW;
    }
    rpi_heap_unlock(&shelf->lock);
    return result;
}

rp_status rp_heap_free(struct rp_heap *heap, uint64_t address, struct rp_error *err)
{
    if (rpi_is_forked() || !heap)
        return rpi_refuse(err, "rp_heap_free", "heap");
    if (address == 0)
        return RP_OK;
    struct rpi_heap_range *range = rpi_heap_range_of(heap, address);
    if (!range)
        return not_live(heap, address, "rp_heap_free", err);
    struct rpi_heap_stack *stack = rpi_heap_stack_capture(heap, RP_HEAP_STACKS_ALL);
    enum freeing result = free_in(range, address, false, stack);
    if (result == FREEING_SLOW) {
        pthread_mutex_lock(&heap->growth);
        result = free_in(range, address, true, stack);
        pthread_mutex_unlock(&heap->growth);
    }
    rpi_heap_stack_drop(heap, stack);
    return result == FREEING_DONE ? RP_OK : not_live(heap, address, "rp_heap_free", err);
}

rp_status rp_heap_use(struct rp_heap *heap, uint64_t address, struct CUstream_st *stream,
                      struct rp_error *err)
{
    if (rpi_is_forked() || !heap)
        return rpi_refuse(err, "rp_heap_use", "heap");
    rp_status status = check_stream(&stream, "rp_heap_use", err);
    if (status != RP_OK || address == 0)
        return status;
    struct rpi_heap_range *range = rpi_heap_range_of(heap, address);
    if (!range)
        return not_live(heap, address, "rp_heap_use", err);
    rpi_heap_lock(&range->shelf->lock);
    struct rpi_heap_block *block = block_at(range, address);
    bool live = block && block->state == RPI_HEAP_LIVE;
    bool added = live && (stream == range->shelf->stream || rpi_heap_block_use(block, stream));
    rpi_heap_unlock(&range->shelf->lock);
    if (!live)
        return not_live(heap, address, "rp_heap_use", err);
    return added ? RP_OK : rpi_error_host_memory(err, "rp_heap_use", sizeof(struct rpi_heap_use));
}

rp_status rp_heap_find(struct rp_heap *heap, uint64_t address, struct rp_heap_block *out_block,
                       struct rp_error *err)
{
    if (rpi_is_forked() || !heap || !out_block)
        return rpi_refuse(err, "rp_heap_find", !heap ? "heap" : "out_block");
    struct rpi_heap_range *range = rpi_heap_range_of(heap, address);
    if (!range)
        return not_live(heap, address, "rp_heap_find", err);
    rpi_heap_lock(&range->shelf->lock);
    const struct rpi_heap_block *block = rpi_heap_block_of(range, address);
    bool live = block && block->state == RPI_HEAP_LIVE;
    struct rp_heap_block found = {0};
    if (live)
        found = (struct rp_heap_block){.address = block->address,
                                       .bytes = block->bytes,
                                       .requested = block->requested,
                                       .stream = block->stream};
    rpi_heap_unlock(&range->shelf->lock);
    if (!live)
        return not_live(heap, address, "rp_heap_find", err);
    return rpi_hand_out(out_block, &found, sizeof found, __func__, err);
}

/* ---- Settings --------------------------------------------------------------------------------*/

rp_status rp_heap_empty_cache(struct rp_heap *heap, struct rp_error *err)
{
    if (rpi_is_forked() || !heap)
        return rpi_refuse(err, "rp_heap_empty_cache", "heap");
    struct rpi_heap_stack *stack = rpi_heap_stack_capture(heap, RP_HEAP_STACKS_ALL);
    pthread_mutex_lock(&heap->growth);
    heap->cause = stack;
    rpi_heap_finish_waiting(heap);
    rp_status status = rpi_heap_give_back(heap, err);
    rpi_heap_let_go(heap);
    heap->cause = NULL;
    pthread_mutex_unlock(&heap->growth);
    rpi_heap_stack_drop(heap, stack);
    return status;
}

rp_status rp_heap_set_options(struct rp_heap *heap, const struct rp_heap_options *options,
                              struct rp_error *err)
{
    if (rpi_is_forked() || !heap)
        return rpi_refuse(err, "rp_heap_set_options", "heap");
    struct rp_heap_options chosen;
    rp_status status = read_options(options, "rp_heap_set_options", &chosen, err);
    if (status == RP_OK)
        take_settings(heap, &chosen);
    return status;
}

void rp_heap_set_limit(struct rp_heap *heap, uint64_t bytes)
{
    if (rpi_is_forked() || !heap)
        return;
    pthread_mutex_lock(&heap->growth);
    heap->limit_bytes = bytes ? bytes : UINT64_MAX;
    pthread_mutex_unlock(&heap->growth);
}

rp_status rp_heap_set_fraction(struct rp_heap *heap, double fraction, struct rp_error *err)
{
    if (rpi_is_forked() || !heap)
        return rpi_refuse(err, "rp_heap_set_fraction", "heap");
    if (!(fraction > 0 && fraction <= 1))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_heap_set_fraction",
                         "the share is %g, but has to be above 0 and at most 1", fraction);
    pthread_mutex_lock(&heap->growth);
    heap->fraction_bytes = (uint64_t)(fraction * (double)heap->total_bytes);
    pthread_mutex_unlock(&heap->growth);
    return RP_OK;
}
