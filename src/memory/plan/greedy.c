/* SPDX-License-Identifier: MIT
 *
 * Layouts by placing order: each block in turn goes to the lowest gap, or the tightest, that the
 * placed conflicting blocks leave.
 *
 * Some orders place a heaviest antichain first, which stacks it without gaps up to the bound, then
 * the rest; others are the sweeps by size, area, life and start of static planners. Then the best
 * orders are mended: a block that ended above the floor moves forward in its order, and all are
 * placed again ("squeaky wheel", Joslin and Clements 1999). One placing costs the blocks squared.
 */
#include "memory/plan/parts.h"

#include "base/hostmem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum key { NO_STACK, BY_SIZE, BY_AREA, BY_LIFE, BY_START, BY_END };

static const struct {
    enum key stack, rest; /* of the antichain, and of the other blocks */
    bool tightest;
} starts[] = {
    {BY_END, BY_SIZE, false},    {BY_START, BY_SIZE, false}, {NO_STACK, BY_SIZE, false},
    {NO_STACK, BY_START, false}, {NO_STACK, BY_AREA, false}, {NO_STACK, BY_LIFE, false},
    {BY_SIZE, BY_SIZE, false},   {NO_STACK, BY_SIZE, true},  {BY_START, BY_AREA, true},
    {BY_END, BY_AREA, false},    {NO_STACK, BY_AREA, true},  {BY_LIFE, BY_SIZE, false},
};

#define STARTS       (sizeof starts / sizeof *starts)
#define FIRST_STARTS 3
#define MENDED       4 /* orders that are mended, round after round */

struct keyed {
    uint64_t key;
    uint32_t block;
    bool stack;
};

struct work {
    const struct rpi_lifetimes *x;
    struct rpi_plan_task *task;
    uint32_t *members; /* [member_count]: a heaviest antichain */
    uint32_t member_count, fixed_count;
    uint32_t *lane_size;      /* [lanes] */
    struct keyed *keyed;      /* [count]: room to sort in */
    uint32_t *stacked;        /* [count]: placed blocks by offset */
    uint64_t *offsets;        /* [count]: of the layout in the making */
    uint64_t passed;          /* placed blocks that gaps were looked for between */
    uint32_t *orders[STARTS]; /* [count]: blocks, in the order of placing */
    uint64_t heights[STARTS]; /* the lowest that the order gave */
    unsigned ranking[STARTS]; /* orders, the lowest first */
};

static void work_finish(struct work *w)
{
    rpi_free(w->members);
    rpi_free(w->lane_size);
    rpi_free(w->keyed);
    rpi_free(w->stacked);
    rpi_free(w->offsets);
    for (size_t i = 0; i < STARTS; i++)
        rpi_free(w->orders[i]);
}

static rp_status work_init(struct work *w, struct rpi_plan_task *task, struct rp_error *err)
{
    const struct rpi_lifetimes *x = task->x;
    w->x = x;
    w->task = task;
    w->members = rpi_reallocarray(NULL, x->count, sizeof *w->members);
    w->lane_size = rpi_calloc(x->lanes, sizeof *w->lane_size);
    w->keyed = rpi_reallocarray(NULL, x->count, sizeof *w->keyed);
    w->stacked = rpi_reallocarray(NULL, x->count, sizeof *w->stacked);
    w->offsets = rpi_reallocarray(NULL, x->count, sizeof *w->offsets);
    if (!w->members || !w->lane_size || !w->keyed || !w->stacked || !w->offsets)
        return rpi_error_host_memory(err, "plan", (size_t)x->count * 40);
    for (uint32_t i = 0; i < x->count; i++) {
        w->lane_size[x->lane[i]]++;
        w->fixed_count += rpi_plan_is_fixed(task, i);
    }
    uint64_t bound;
    return rpi_bound(x, &bound, w->members, &w->member_count, err);
}

/* ---- Orders -------------------------------------------------------------------------------- */

/* Up to which rank of all lanes together the block lives, and from which. */
static uint64_t end_of(const struct work *w, uint32_t block)
{
    uint64_t end = 0;
    for (uint32_t l = 0; l < w->x->lanes; l++) {
        uint32_t first = w->x->first[(size_t)block * w->x->lanes + l];
        end += first == RPI_NEVER ? w->lane_size[l] : first;
    }
    return end;
}

/* Higher keys are placed first. */
static uint64_t key_of(const struct work *w, uint32_t block, enum key key)
{
    uint64_t end = end_of(w, block), life = end > block ? end - block : 1;
    switch (key) {
    case BY_SIZE:
        return w->x->bytes[block];
    case BY_AREA:
        return w->x->bytes[block] / w->task->alignment * life;
    case BY_LIFE:
        return life;
    case BY_START:
        return w->x->count - block;
    default:
        return end;
    }
}

/* Fixed blocks first, then the stack, then the rest. */
static int compare_keyed(const void *left, const void *right)
{
    const struct keyed *a = left, *b = right;
    if (a->stack != b->stack)
        return a->stack ? -1 : 1;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return a->block < b->block ? -1 : a->block > b->block;
}

static bool make_order(struct work *w, unsigned k)
{
    assert(k < STARTS && !w->orders[k]);
    uint32_t count = w->x->count;
    w->orders[k] = rpi_reallocarray(NULL, count, sizeof **w->orders);
    if (!w->orders[k])
        return false;
    for (uint32_t i = 0; i < count; i++)
        w->keyed[i] = (struct keyed){key_of(w, i, starts[k].rest), i, false};
    for (uint32_t i = 0; starts[k].stack != NO_STACK && i < w->member_count; i++) {
        uint32_t block = w->members[i];
        w->keyed[block] = (struct keyed){key_of(w, block, starts[k].stack), block, true};
    }
    for (uint32_t i = 0; w->fixed_count && i < count; i++)
        if (rpi_plan_is_fixed(w->task, i))
            w->keyed[i] = (struct keyed){UINT64_MAX, i, true};
    qsort(w->keyed, count, sizeof *w->keyed, compare_keyed);
    for (uint32_t i = 0; i < count; i++)
        w->orders[k][i] = w->keyed[i].block;
    return true;
}

/* Moves what ended above the floor forward by a third of its place in the order. */
static void mend_order(const struct work *w, uint32_t *order)
{
    assert(w->fixed_count <= w->x->count);
    for (uint32_t i = w->fixed_count; i < w->x->count; i++) {
        uint32_t block = order[i], jump = i / 3 > 3 ? i / 3 : 3;
        if (w->offsets[block] + w->x->bytes[block] <= w->task->floor)
            continue;
        uint32_t to = i - w->fixed_count > jump ? i - jump : w->fixed_count;
        assert(w->fixed_count <= to && to <= i);
        memmove(order + to + 1, order + to, (i - to) * sizeof *order);
        order[to] = block;
    }
}

/* ---- Placing ------------------------------------------------------------------------------- */

/* Where `block` goes among the placed blocks: the lowest gap that takes it, or the tightest. */
static uint64_t find_gap(struct work *w, uint32_t placed, uint32_t block, bool tightest)
{
    assert(placed < w->x->count);
    const struct rpi_lifetimes *x = w->x;
    uint64_t top = 0, best = RPI_UNPLACED, best_gap = UINT64_MAX;
    for (uint32_t i = 0; i < placed; i++) {
        w->passed++;
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
    assert(placed < w->x->count && w->offsets[block] != RPI_UNPLACED);
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

/* Steps for a block that is passed on the way to a gap, and for one that is placed. */
#define PASS_STEPS  2
#define PLACE_STEPS 40

static bool is_late(struct work *w)
{
    const struct rpi_plan_task *task = w->task;
    rpi_meter_add(task->meter, w->passed * PASS_STEPS + CLOCK_STRIDE * PLACE_STEPS);
    w->passed = 0;
    return task->height != UINT64_MAX && rpi_meter_past(task->meter, task->end);
}

/* Places the blocks in order k and keeps the layout if it is the lowest; false: too late. */
static bool place_all(struct work *w, unsigned k)
{
    assert(k < STARTS && w->orders[k]);
    uint64_t height = 0;
    for (uint32_t i = 0; i < w->x->count; i++) {
        uint32_t block = w->orders[k][i];
        w->offsets[block] = rpi_plan_is_fixed(w->task, block)
                                ? w->task->fixed[block]
                                : find_gap(w, i, block, starts[k].tightest);
        stack_block(w, i, block);
        uint64_t end = w->offsets[block] + w->x->bytes[block];
        height = end > height ? end : height;
        if (i % CLOCK_STRIDE == 0 && is_late(w))
            return false;
    }
    if (height < w->heights[k])
        w->heights[k] = height;
    if (height < w->task->height) {
        w->task->height = height;
        memcpy(w->task->offsets, w->offsets, w->x->count * sizeof *w->offsets);
    }
    return true;
}

static void rank_orders(struct work *w)
{
    for (unsigned k = 0; k < STARTS; k++) {
        unsigned at = k;
        for (; at > 0 && w->heights[w->ranking[at - 1]] > w->heights[k]; at--)
            w->ranking[at] = w->ranking[at - 1];
        w->ranking[at] = k;
    }
}

/* ---- Both ---------------------------------------------------------------------------------- */

enum progress { GOES_ON, OVER, NO_MEMORY };

static enum progress place_and_mend(struct work *w, unsigned k)
{
    if (!place_all(w, k) || w->task->height <= w->task->floor)
        return OVER;
    mend_order(w, w->orders[k]);
    return GOES_ON;
}

static enum progress make_and_place(struct work *w, unsigned from, unsigned to)
{
    enum progress progress = GOES_ON;
    for (unsigned k = from; progress == GOES_ON && k < to; k++)
        progress = make_order(w, k) ? place_and_mend(w, k) : NO_MEMORY;
    return progress;
}

/* Rounds of mending the `orders` lowest orders in turn. */
static enum progress mend_lowest(struct work *w, unsigned orders, unsigned rounds)
{
    assert(orders && orders <= STARTS);
    enum progress progress = GOES_ON;
    rank_orders(w);
    for (unsigned i = 0; progress == GOES_ON && i < rounds * orders; i++)
        progress = place_and_mend(w, w->ranking[i % orders]);
    return progress;
}

/* The first few orders are tried and the lowest of them is mended before all others are. */
static bool try_orders(struct work *w, unsigned rounds)
{
    for (unsigned k = 0; k < STARTS; k++)
        w->heights[k] = UINT64_MAX;
    enum progress progress = make_and_place(w, 0, FIRST_STARTS);
    if (progress == GOES_ON)
        progress = mend_lowest(w, 1, rounds);
    if (progress == GOES_ON)
        progress = make_and_place(w, FIRST_STARTS, STARTS);
    if (progress == GOES_ON)
        progress = mend_lowest(w, MENDED, rounds);
    return progress != NO_MEMORY;
}

/* Is there budget for one placing? A pair of blocks takes about a nanosecond, or a step. */
static bool has_time(const struct rpi_plan_task *task)
{
    uint64_t pairs = (uint64_t)task->x->count * task->x->count / 2;
    return task->height == UINT64_MAX || rpi_meter_spent(task->meter) + pairs < task->end;
}

rp_status rpi_plan_greedy(struct rpi_plan_task *task, unsigned rounds, struct rp_error *err)
{
    if (!has_time(task))
        return RP_OK;
    struct work w = {0};
    rp_status status = work_init(&w, task, err);
    if (!status && !try_orders(&w, rounds))
        status = rpi_error_host_memory(err, "plan", (size_t)task->x->count * sizeof **w.orders);
    work_finish(&w);
    return status;
}
