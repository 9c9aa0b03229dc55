/* SPDX-License-Identifier: MIT
 *
 * First layouts: each places every block once, in some order, at the lowest gap or the tightest gap
 * that its placed conflicting blocks leave. Sorted by size this is the "sweep by size" of static
 * planners; other orders win on other captures, and all are cheap.
 */
#include "memory/plan_parts.h"

#include "base/clock.h"
#include "base/hostmem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum order_kind { BY_SIZE, BY_AREA, BY_LIFE, BY_START, ORDER_KINDS };

struct work {
    const struct rpi_lifetimes *x;
    const struct rpi_plan_task *task;
    uint64_t *key;     /* [count]: of the current order */
    uint32_t *order;   /* [count]: blocks, in the order of placing */
    uint32_t *stacked; /* [count]: placed blocks by offset */
    uint64_t *offsets; /* [count]: of the layout in the making */
};

static bool work_init(struct work *w, const struct rpi_plan_task *task)
{
    const struct rpi_lifetimes *x = task->x;
    w->x = x;
    w->task = task;
    w->key = rpi_reallocarray(NULL, x->count, sizeof *w->key);
    w->order = rpi_reallocarray(NULL, x->count, sizeof *w->order);
    w->stacked = rpi_reallocarray(NULL, x->count, sizeof *w->stacked);
    w->offsets = rpi_reallocarray(NULL, x->count, sizeof *w->offsets);
    return w->key && w->order && w->stacked && w->offsets;
}

static void work_finish(struct work *w)
{
    rpi_free(w->key);
    rpi_free(w->order);
    rpi_free(w->stacked);
    rpi_free(w->offsets);
}

/* How many ranks of all lanes see the block alive: its length, for orders by area and life. */
static uint64_t life(const struct rpi_lifetimes *x, const uint32_t *lane_count, uint32_t block)
{
    uint64_t ranks = 1;
    for (uint32_t l = 0; l < x->lanes; l++) {
        uint32_t first = x->first[(size_t)block * x->lanes + l];
        uint32_t from = l == x->lane[block] ? x->rank[block] : 0;
        ranks += (first == RPI_NEVER ? lane_count[l] : first) - from;
    }
    return ranks;
}

struct keyed {
    uint64_t key;
    uint32_t block;
};

static int compare_keyed(const void *left, const void *right)
{
    const struct keyed *a = left, *b = right;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return a->block < b->block ? -1 : a->block > b->block;
}

static bool make_order(struct work *w, enum order_kind kind)
{
    const struct rpi_lifetimes *x = w->x;
    uint32_t *lane_count = rpi_calloc(x->lanes, sizeof *lane_count);
    struct keyed *keyed = rpi_reallocarray(NULL, x->count, sizeof *keyed);
    if (!lane_count || !keyed) {
        rpi_free(lane_count);
        rpi_free(keyed);
        return false;
    }
    for (uint32_t i = 0; i < x->count; i++)
        lane_count[x->lane[i]]++;
    for (uint32_t i = 0; i < x->count; i++) {
        uint64_t ranks = kind == BY_SIZE || kind == BY_START ? 1 : life(x, lane_count, i);
        uint64_t key = kind == BY_LIFE    ? ranks
                       : kind == BY_START ? x->count - i
                                          : x->bytes[i] / w->task->alignment * ranks;
        keyed[i] = (struct keyed){rpi_plan_is_fixed(w->task, i) ? UINT64_MAX : key, i};
    }
    qsort(keyed, x->count, sizeof *keyed, compare_keyed);
    for (uint32_t i = 0; i < x->count; i++)
        w->order[i] = keyed[i].block;
    rpi_free(lane_count);
    rpi_free(keyed);
    return true;
}

/* Where `block` goes among the placed blocks: the lowest gap that takes it, or the tightest. */
static uint64_t find_gap(const struct work *w, uint32_t placed, uint32_t block, bool tightest)
{
    const struct rpi_lifetimes *x = w->x;
    uint64_t top = 0, best = RPI_UNPLACED, best_gap = UINT64_MAX;
    for (uint32_t i = 0; i < placed; i++) {
        uint32_t other = w->stacked[i];
        if (!rpi_plan_conflict(x, block, other))
            continue;
        uint64_t offset = w->offsets[other], end = offset + x->bytes[other];
        if (offset > top && offset - top >= x->bytes[block] && offset - top < best_gap) {
            best = top;
            best_gap = offset - top;
            if (!tightest)
                return best;
        }
        top = end > top ? end : top;
    }
    return best == RPI_UNPLACED ? top : best;
}

static void stack_block(struct work *w, uint32_t placed, uint32_t block)
{
    uint32_t low = 0, high = placed;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (w->offsets[w->stacked[middle]] <= w->offsets[block])
            low = middle + 1;
        else
            high = middle;
    }
    memmove(w->stacked + low + 1, w->stacked + low, (placed - low) * sizeof *w->stacked);
    w->stacked[low] = block;
}

#define CLOCK_STRIDE 64

static bool is_late(const struct rpi_plan_task *task)
{
    return task->height != UINT64_MAX && rpi_clock_ns() > task->deadline_ns;
}

/* Places the blocks in order. UINT64_MAX: gave up, too late or higher than the best layout. */
static uint64_t place_all(struct work *w, bool tightest)
{
    uint64_t height = 0;
    for (uint32_t i = 0; i < w->x->count; i++) {
        uint32_t block = w->order[i];
        w->offsets[block] = rpi_plan_is_fixed(w->task, block) ? w->task->fixed[block]
                                                              : find_gap(w, i, block, tightest);
        stack_block(w, i, block);
        uint64_t end = w->offsets[block] + w->x->bytes[block];
        height = end > height ? end : height;
        if (height >= w->task->height || (i % CLOCK_STRIDE == 0 && is_late(w->task)))
            return UINT64_MAX;
    }
    return height;
}

/* Tries the orders until one reaches the floor or the deadline has passed. */
static bool try_orders(struct work *w, struct rpi_plan_task *task)
{
    for (unsigned k = 0; k < 2 * ORDER_KINDS; k++) {
        if (task->height <= task->floor || is_late(task))
            break;
        if (k % 2 == 0 && !make_order(w, k / 2))
            return false;
        uint64_t reached = place_all(w, k % 2);
        if (reached < task->height) {
            task->height = reached;
            memcpy(task->offsets, w->offsets, w->x->count * sizeof *w->offsets);
        }
    }
    return true;
}

rp_status rpi_plan_greedy(struct rpi_plan_task *task, struct rp_error *err)
{
    struct work w = {0};
    rp_status status = RP_OK;
    if (!work_init(&w, task) || !try_orders(&w, task))
        status = rpi_error_host_memory(err, "plan", (size_t)task->x->count * 40);
    work_finish(&w);
    return status;
}
