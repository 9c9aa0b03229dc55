/* SPDX-License-Identifier: MIT */
#include "memory/heap/heap.h"

#include "base/held.h"
#include "base/refuse.h"

#include <assert.h>
#include <string.h>

/* Which pools a shelf is part of, ended by -1. */
static const int *pools_of(const struct rpi_shelf *shelf)
{
    static const int pools[RPI_HEAP_CLASSES][RPI_HEAP_POOLS] = {
        [RPI_HEAP_SMALL] = {RPI_HEAP_ALL, RPI_HEAP_SMALL_POOL, -1},
        [RPI_HEAP_LARGE] = {RPI_HEAP_ALL, RPI_HEAP_LARGE_POOL, -1},
        [RPI_HEAP_OVERSIZE] = {RPI_HEAP_ALL, RPI_HEAP_LARGE_POOL, RPI_HEAP_OVERSIZE_POOL, -1},
    };
    return pools[shelf->class];
}

void rpi_shelf_gauges(const struct rpi_shelf *shelf, int64_t out_now[RPI_GAUGES])
{
    assert(rpi_heap_is_locked(&((struct rpi_shelf *)shelf)->lock));
    const struct rpi_gauges *gauges = &shelf->gauges;
    int64_t blocks = rpi_gauges_count(gauges, RPI_COUNT_BLOCKS);
    int64_t bytes = rpi_gauges_count(gauges, RPI_COUNT_BYTES);
    out_now[RPI_GAUGE_ALLOCATION] = blocks;
    out_now[RPI_GAUGE_ALLOCATED_BYTES] = bytes;
    out_now[RPI_GAUGE_ACTIVE] = blocks + gauges->waiting;
    out_now[RPI_GAUGE_ACTIVE_BYTES] = bytes + gauges->waiting_bytes;
    out_now[RPI_GAUGE_REQUESTED_BYTES] = rpi_gauges_count(gauges, RPI_COUNT_REQUESTED);
    out_now[RPI_GAUGE_INACTIVE_SPLIT] = rpi_gauges_count(gauges, RPI_COUNT_SPLITS);
    out_now[RPI_GAUGE_INACTIVE_SPLIT_BYTES] = rpi_gauges_count(gauges, RPI_COUNT_SPLIT_BYTES);
}

/* Which count a gauge's rises are those of. */
static const enum rpi_count count_of[RPI_GAUGES] = {
    [RPI_GAUGE_ALLOCATION] = RPI_COUNT_BLOCKS,
    [RPI_GAUGE_ALLOCATED_BYTES] = RPI_COUNT_BYTES,
    [RPI_GAUGE_ACTIVE] = RPI_COUNT_BLOCKS,
    [RPI_GAUGE_ACTIVE_BYTES] = RPI_COUNT_BYTES,
    [RPI_GAUGE_REQUESTED_BYTES] = RPI_COUNT_REQUESTED,
    [RPI_GAUGE_INACTIVE_SPLIT] = RPI_COUNT_SPLITS,
    [RPI_GAUGE_INACTIVE_SPLIT_BYTES] = RPI_COUNT_SPLIT_BYTES,
};

static void add_up(const struct rp_heap *heap, int64_t sums[RPI_HEAP_POOLS][RPI_GAUGES])
{
    rpi_assert_held(&heap->growth);
    memset(sums, 0, sizeof(int64_t[RPI_HEAP_POOLS][RPI_GAUGES]));
    for (size_t s = 0; s < heap->shelf_count; s++) {
        int64_t now[RPI_GAUGES];
        rpi_shelf_gauges(heap->shelves[s], now);
        for (const int *pool = pools_of(heap->shelves[s]); *pool >= 0; pool++)
            for (int i = 0; i < RPI_GAUGES; i++)
                sums[*pool][i] += now[i];
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The part of `slack` for one of `count` shelves. */
static int64_t share(int64_t slack, int64_t count, bool is_asking)
{
    if (count == 1)
        return slack;
    int64_t others = slack / 2 / (count - 1);
    return is_asking ? slack - slack / 2 : others;
}

static void set_room(struct rpi_gauges *gauges, enum rpi_count count, int64_t room)
{
    gauges->level[count] += room - gauges->room[count];
    gauges->room[count] = room;
}

void rpi_heap_hand_out(struct rp_heap *heap, const struct rpi_shelf *asking)
{
    rpi_assert_held(&heap->growth);
    int64_t sums[RPI_HEAP_POOLS][RPI_GAUGES], count[RPI_HEAP_POOLS] = {0};
    add_up(heap, sums);
    for (size_t s = 0; s < heap->shelf_count; s++)
        for (const int *pool = pools_of(heap->shelves[s]); *pool >= 0; pool++)
            count[*pool]++;
    for (size_t s = 0; s < heap->shelf_count; s++) {
        struct rpi_shelf *shelf = heap->shelves[s];
        int64_t room[RPI_COUNTS] = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
        for (const int *pool = pools_of(shelf); *pool >= 0; pool++) {
            for (int i = 0; i < RPI_GAUGES; i++) {
                int64_t slack = heap->totals.peak[*pool][i] - sums[*pool][i];
                int64_t most = share(slack, count[*pool], shelf == asking);
                room[count_of[i]] = least(room[count_of[i]], most);
            }
        }
        for (int i = 0; i < RPI_COUNTS; i++)
            set_room(&shelf->gauges, (enum rpi_count)i, room[i]);
    }
}

static void lock_others(struct rp_heap *heap, const struct rpi_shelf *own, bool lock)
{
    for (size_t s = 0; s < heap->shelf_count; s++) {
        if (heap->shelves[s] == own)
            continue;
        if (lock)
            rpi_heap_lock(&heap->shelves[s]->lock);
        else
            rpi_heap_unlock(&heap->shelves[s]->lock);
    }
}

void rpi_heap_lock_shelves(struct rp_heap *heap)
{
    rpi_assert_held(&heap->growth);
    lock_others(heap, NULL, true);
}

void rpi_heap_unlock_shelves(struct rp_heap *heap)
{
    rpi_assert_held(&heap->growth);
    lock_others(heap, NULL, false);
}

void rpi_heap_change(struct rpi_shelf *shelf, const int64_t change[RPI_COUNTS])
{
    rpi_assert_held(&shelf->heap->growth);
    assert(rpi_heap_is_locked(&shelf->lock));
    struct rp_heap *heap = shelf->heap;
    if (rpi_gauges_change(&shelf->gauges, change))
        return;
    lock_others(heap, shelf, true);
    for (int i = 0; i < RPI_COUNTS; i++) {
        shelf->gauges.level[i] += change[i];
        shelf->gauges.risen[i] += rpi_rise(change[i]);
    }
    int64_t sums[RPI_HEAP_POOLS][RPI_GAUGES];
    add_up(heap, sums);
    for (int pool = 0; pool < RPI_HEAP_POOLS; pool++)
        for (int i = 0; i < RPI_GAUGES; i++)
            if (sums[pool][i] > heap->totals.peak[pool][i])
                heap->totals.peak[pool][i] = sums[pool][i];
    rpi_heap_hand_out(heap, shelf);
    lock_others(heap, shelf, false);
}

static void change_stat(struct rpi_heap_stat *stat, int64_t change)
{
    stat->current += change;
    if (change > 0)
        stat->allocated += change;
    else
        stat->freed -= change;
    if (stat->current > stat->peak)
        stat->peak = stat->current;
}

void rpi_heap_segments(struct rpi_shelf *shelf, int64_t count, int64_t bytes)
{
    rpi_assert_held(&shelf->heap->growth);
    assert((count > 0) == (bytes > 0));
    struct rpi_heap_totals *totals = &shelf->heap->totals;
    for (const int *pool = pools_of(shelf); *pool >= 0; pool++) {
        change_stat(&totals->segment[*pool], count);
        change_stat(&totals->reserved_bytes[*pool], bytes);
    }
    if (count > 0)
        totals->device_allocs++;
    else
        totals->device_frees++;
}

/* ---- Statistics under c10's names ------------------------------------------------------------*/

/* Every name in the order of its characters, which is that of PyTorch's dictionary. */
enum figure { FIGURE_ALLOCATED, FIGURE_CURRENT, FIGURE_FREED, FIGURE_PEAK };
enum { SEGMENT = RPI_GAUGES, RESERVED_BYTES };

#define FIGURES(text, what, pool)                                                                  \
    {text ".allocated", what, pool, FIGURE_ALLOCATED},                                             \
        {text ".current", what, pool, FIGURE_CURRENT}, {text ".freed", what, pool, FIGURE_FREED},  \
    {                                                                                              \
        text ".peak", what, pool, FIGURE_PEAK                                                      \
    }
#define POOLS(text, what)                                                                          \
    FIGURES(text ".all", what, RPI_HEAP_ALL),                                                      \
        FIGURES(text ".large_pool", what, RPI_HEAP_LARGE_POOL),                                    \
        FIGURES(text ".small_pool", what, RPI_HEAP_SMALL_POOL)

enum { SINGLE = -1, SPLIT_LIMIT = -2 };
enum { ALLOC_RETRIES, DEVICE_ALLOCS, DEVICE_FREES, OOMS, SYNC_ALL_STREAMS };

static const struct {
    const char *name;
    int what; /* a gauge, SEGMENT or RESERVED_BYTES; or one of the last two */
    int pool;
    int figure;
} statistics[] = {
    POOLS("active", RPI_GAUGE_ACTIVE),
    POOLS("active_bytes", RPI_GAUGE_ACTIVE_BYTES),
    POOLS("allocated_bytes", RPI_GAUGE_ALLOCATED_BYTES),
    POOLS("allocation", RPI_GAUGE_ALLOCATION),
    POOLS("inactive_split", RPI_GAUGE_INACTIVE_SPLIT),
    POOLS("inactive_split_bytes", RPI_GAUGE_INACTIVE_SPLIT_BYTES),
    {"max_split_size", SPLIT_LIMIT, 0, 0},
    {"num_alloc_retries", SINGLE, 0, ALLOC_RETRIES},
    {"num_device_alloc", SINGLE, 0, DEVICE_ALLOCS},
    {"num_device_free", SINGLE, 0, DEVICE_FREES},
    {"num_ooms", SINGLE, 0, OOMS},
    {"num_sync_all_streams", SINGLE, 0, SYNC_ALL_STREAMS},
    FIGURES("oversize_allocations", RPI_GAUGE_ALLOCATION, RPI_HEAP_OVERSIZE_POOL),
    FIGURES("oversize_segments", SEGMENT, RPI_HEAP_OVERSIZE_POOL),
    POOLS("requested_bytes", RPI_GAUGE_REQUESTED_BYTES),
    POOLS("reserved_bytes", RESERVED_BYTES),
    POOLS("segment", SEGMENT),
};
_Static_assert(sizeof statistics / sizeof *statistics == RP_HEAP_STATS, "the header says how many");

struct sums {
    int64_t now[RPI_HEAP_POOLS][RPI_GAUGES], risen[RPI_HEAP_POOLS][RPI_GAUGES];
};

static int64_t single(const struct rpi_heap_totals *totals, int which)
{
    switch (which) {
    case ALLOC_RETRIES:
        return totals->alloc_retries;
    case DEVICE_ALLOCS:
        return totals->device_allocs;
    case DEVICE_FREES:
        return totals->device_frees;
    case OOMS:
        return totals->ooms;
    default:
        return totals->sync_all_streams;
    }
}

static int64_t figure_of(const struct rp_heap *heap, const struct sums *sums, size_t i)
{
    const struct rpi_heap_totals *totals = &heap->totals;
    int what = statistics[i].what, pool = statistics[i].pool;
    struct rpi_heap_stat stat;
    if (what == SPLIT_LIMIT)
        return heap->max_split_bytes == UINT64_MAX ? -1 : (int64_t)heap->max_split_bytes;
    if (what == SINGLE)
        return single(totals, statistics[i].figure);
    if (what == SEGMENT)
        stat = totals->segment[pool];
    else if (what == RESERVED_BYTES)
        stat = totals->reserved_bytes[pool];
    else
        stat = (struct rpi_heap_stat){
            sums->now[pool][what], totals->peak[pool][what], sums->risen[pool][what],
            totals->base[pool][what] + sums->risen[pool][what] - sums->now[pool][what]};
    switch (statistics[i].figure) {
    case FIGURE_ALLOCATED:
        return stat.allocated;
    case FIGURE_CURRENT:
        return stat.current;
    case FIGURE_FREED:
        return stat.freed;
    default:
        return stat.peak;
    }
}

static void read_sums(const struct rp_heap *heap, struct sums *out)
{
    add_up(heap, out->now);
    memset(out->risen, 0, sizeof out->risen);
    for (size_t s = 0; s < heap->shelf_count; s++) {
        const struct rpi_shelf *shelf = heap->shelves[s];
        for (const int *pool = pools_of(shelf); *pool >= 0; pool++)
            for (int i = 0; i < RPI_GAUGES; i++)
                out->risen[*pool][i] += shelf->gauges.risen[count_of[i]];
    }
}

const char *rp_heap_stat_name(size_t index)
{
    return index < RP_HEAP_STATS ? statistics[index].name : NULL;
}

size_t rp_heap_stats(struct rp_heap *heap, int64_t *out_values, size_t count)
{
    if (rpi_is_forked() || !heap || (count && !out_values))
        return 0;
    struct sums sums;
    pthread_mutex_lock(&heap->growth);
    rpi_heap_lock_shelves(heap);
    read_sums(heap, &sums);
    rpi_heap_unlock_shelves(heap);
    for (size_t i = 0; i < RP_HEAP_STATS && i < count; i++)
        out_values[i] = figure_of(heap, &sums, i);
    pthread_mutex_unlock(&heap->growth);
    return RP_HEAP_STATS;
}

rp_status rp_heap_stat(struct rp_heap *heap, const char *name, int64_t *out_value,
                       struct rp_error *err)
{
    if (rpi_is_forked() || !heap || !name || !out_value)
        return rpi_refuse(err, "rp_heap_stat", !heap ? "heap" : !name ? "name" : "out_value");
    int64_t values[RP_HEAP_STATS];
    for (size_t i = 0; i < RP_HEAP_STATS; i++) {
        if (strcmp(statistics[i].name, name) != 0)
            continue;
        rp_heap_stats(heap, values, RP_HEAP_STATS);
        *out_value = values[i];
        return RP_OK;
    }
    return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_heap_stat",
                     "there is no statistic '%.80s'; the names are those of "
                     "torch.cuda.memory_stats(), such as allocated_bytes.all.peak",
                     name);
}

void rp_heap_reset_peak(struct rp_heap *heap)
{
    if (rpi_is_forked() || !heap)
        return;
    pthread_mutex_lock(&heap->growth);
    rpi_heap_lock_shelves(heap);
    struct rpi_heap_totals *totals = &heap->totals;
    add_up(heap, totals->peak);
    for (int pool = 0; pool < RPI_HEAP_POOLS; pool++) {
        totals->segment[pool].peak = totals->segment[pool].current;
        totals->reserved_bytes[pool].peak = totals->reserved_bytes[pool].current;
    }
    rpi_heap_hand_out(heap, NULL);
    rpi_heap_unlock_shelves(heap);
    pthread_mutex_unlock(&heap->growth);
}

void rp_heap_reset_accumulated(struct rp_heap *heap)
{
    if (rpi_is_forked() || !heap)
        return;
    pthread_mutex_lock(&heap->growth);
    rpi_heap_lock_shelves(heap);
    struct rpi_heap_totals *totals = &heap->totals;
    add_up(heap, totals->base);
    for (size_t s = 0; s < heap->shelf_count; s++) {
        struct rpi_shelf *shelf = heap->shelves[s];
        assert(shelf);
        memset(shelf->gauges.risen, 0, sizeof shelf->gauges.risen);
    }
    for (int pool = 0; pool < RPI_HEAP_POOLS; pool++) {
        totals->segment[pool].allocated = totals->segment[pool].freed = 0;
        totals->reserved_bytes[pool].allocated = totals->reserved_bytes[pool].freed = 0;
    }
    totals->alloc_retries = totals->ooms = totals->sync_all_streams = 0;
    totals->device_allocs = totals->device_frees = 0;
    rpi_heap_unlock_shelves(heap);
    pthread_mutex_unlock(&heap->growth);
}
