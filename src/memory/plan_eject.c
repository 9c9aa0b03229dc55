/* SPDX-License-Identifier: MIT
 *
 * Search for a layout under a ceiling, the bound itself first, by ejection.
 *
 * Blocks that end above the ceiling are taken out. A step puts the dearest of them where what it
 * has to push out is cheapest, and takes out what it pushes. Each time a block has pushed others
 * out it gets dearer to push, so that blocks which are hard to place settle and the others arrange
 * themselves around them: breakout (Morris 1993) on the moves of partial colouring (Blochliger and
 * Zufferey 2008). Unlike search over placement orders a step costs one pass over the blocks and
 * never gives up the layout outside the range that it touches.
 *
 * The price of a place is the sum over the conflicting blocks that lie across it. As the place
 * moves up it changes only where a block begins or ends, and the cheapest places lie against one,
 * so the candidates are the ends of conflicting blocks, their starts less the size, the bottom and
 * the top.
 *
 * Whenever less is out than ever before, what is out is placed above the ceiling if need be: the
 * search has a layout to show at any time.
 */
#include "memory/plan_parts.h"

#include "base/clock.h"
#include "base/hostmem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FIXED_PRICE  ((uint64_t)1 << 44) /* above any sum of other prices that matters */
#define MOST_WEIGHT  ((uint32_t)1 << 12)
#define SIZE_STEPS   ((uint64_t)1 << 20)
#define CLOCK_STRIDE 32

struct edge {
    uint64_t at;
    uint64_t price;
};

struct at {
    uint64_t offset;
    uint32_t block;
};

struct eject {
    struct rpi_plan_task *task;
    const struct rpi_lifetimes *x;
    uint64_t ceiling;
    uint64_t random;
    uint64_t *offsets; /* [count]: RPI_UNPLACED where out */
    uint64_t *trial;   /* [count]: a layout completed above the ceiling */
    struct at *sorted; /* [count]: room to sort blocks in */
    uint64_t *size;    /* [count]: bytes scaled to 1 .. SIZE_STEPS, for prices */
    uint32_t *weight;  /* [count] */
    uint32_t *stack;   /* [placed]: placed blocks by offset */
    uint32_t placed;
    uint32_t *out; /* [outs]: blocks to place */
    uint32_t outs;
    uint64_t out_bytes, least_out_bytes;
    uint32_t *near;            /* [nears]: placed blocks that conflict with the one to place */
    struct edge *lows, *highs; /* [nears]: where they begin and end, each sorted */
    uint32_t nears;
};

static void eject_finish(struct eject *e)
{
    rpi_free(e->offsets);
    rpi_free(e->trial);
    rpi_free(e->sorted);
    rpi_free(e->size);
    rpi_free(e->weight);
    rpi_free(e->stack);
    rpi_free(e->out);
    rpi_free(e->near);
    rpi_free(e->lows);
    rpi_free(e->highs);
}

static bool eject_init(struct eject *e, struct rpi_plan_task *task)
{
    uint32_t count = task->x->count;
    uint64_t largest = 1;
    e->task = task;
    e->x = task->x;
    e->random = 0x9e3779b97f4a7c15u;
    e->offsets = rpi_reallocarray(NULL, count, sizeof *e->offsets);
    e->trial = rpi_reallocarray(NULL, count, sizeof *e->trial);
    e->sorted = rpi_reallocarray(NULL, count, sizeof *e->sorted);
    e->size = rpi_reallocarray(NULL, count, sizeof *e->size);
    e->weight = rpi_reallocarray(NULL, count, sizeof *e->weight);
    e->stack = rpi_reallocarray(NULL, count, sizeof *e->stack);
    e->out = rpi_reallocarray(NULL, count, sizeof *e->out);
    e->near = rpi_reallocarray(NULL, count, sizeof *e->near);
    e->lows = rpi_reallocarray(NULL, count, sizeof *e->lows);
    e->highs = rpi_reallocarray(NULL, count, sizeof *e->highs);
    if (!e->offsets || !e->trial || !e->sorted || !e->size || !e->weight || !e->stack || !e->out ||
        !e->near || !e->lows || !e->highs)
        return false;
    for (uint32_t i = 0; i < count; i++)
        largest = e->x->bytes[i] > largest ? e->x->bytes[i] : largest;
    for (uint32_t i = 0; i < count; i++)
        e->size[i] = 1 + (uint64_t)((double)e->x->bytes[i] / (double)largest * (SIZE_STEPS - 1));
    return true;
}

/* xorshift64*: Marsaglia 2003, Vigna 2016 */
static uint32_t random_below(struct eject *e, uint32_t limit)
{
    e->random ^= e->random >> 12;
    e->random ^= e->random << 25;
    e->random ^= e->random >> 27;
    uint32_t word = (uint32_t)(e->random * 0x2545f4914f6cdd1du >> 32);
    return (uint32_t)((uint64_t)word * limit >> 32);
}

/* ---- What lies where ----------------------------------------------------------------------- */

static void push_out(struct eject *e, uint32_t block)
{
    e->offsets[block] = RPI_UNPLACED;
    e->out[e->outs++] = block;
    e->out_bytes += e->x->bytes[block];
}

static void insert(struct eject *e, uint32_t block, uint64_t offset)
{
    uint32_t low = 0, high = e->placed;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (e->offsets[e->stack[middle]] <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(e->stack + low + 1, e->stack + low, (e->placed - low) * sizeof *e->stack);
    e->stack[low] = block;
    e->placed++;
    e->offsets[block] = offset;
}

static int compare_at(const void *left, const void *right)
{
    const struct at *a = left, *b = right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return a->block < b->block ? -1 : a->block > b->block;
}

/* Takes the task's layout and puts out what ends above the ceiling. */
static void start(struct eject *e, uint64_t ceiling)
{
    uint32_t count = e->x->count;
    for (uint32_t i = 0; i < count; i++)
        e->sorted[i] = (struct at){e->task->offsets[i], i};
    qsort(e->sorted, count, sizeof *e->sorted, compare_at);
    e->ceiling = ceiling;
    e->placed = e->outs = 0;
    e->out_bytes = 0;
    e->least_out_bytes = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t block = e->sorted[i].block;
        e->offsets[block] = e->sorted[i].offset;
        e->weight[block] = 1;
        if (e->sorted[i].offset + e->x->bytes[block] > ceiling)
            push_out(e, block);
        else
            e->stack[e->placed++] = block;
    }
}

/* ---- Pricing ------------------------------------------------------------------------------- */

static uint64_t price(const struct eject *e, uint32_t block)
{
    return rpi_plan_is_fixed(e->task, block) ? FIXED_PRICE : e->size[block] * e->weight[block];
}

/* The order by starts is nearly that by ends. */
static void sort_edges(struct edge *edges, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct edge edge = edges[i];
        uint32_t j = i;
        for (; j > 0 && edges[j - 1].at > edge.at; j--)
            edges[j] = edges[j - 1];
        edges[j] = edge;
    }
}

/* The placed blocks that conflict with `block`, by offset. */
static void collect(struct eject *e, uint32_t block)
{
    const struct rpi_lifetimes *x = e->x;
    const uint32_t *first = x->first + (size_t)block * x->lanes;
    uint32_t lane = x->lane[block], rank = x->rank[block], found = 0;
    for (uint32_t i = 0; i < e->placed; i++) {
        uint32_t other = e->stack[i];
        uint32_t limit = x->first[(size_t)other * x->lanes + lane];
        bool apart = other < block ? rank >= limit : x->rank[other] >= first[x->lane[other]];
        e->near[found] = other;
        found += !apart;
    }
    for (uint32_t i = 0; i < found; i++) {
        uint32_t other = e->near[i];
        uint64_t offset = e->offsets[other], cost = price(e, other);
        e->lows[i] = (struct edge){offset, cost};
        e->highs[i] = (struct edge){offset + x->bytes[other], cost};
    }
    sort_edges(e->highs, found);
    e->nears = found;
}

struct place {
    uint64_t offset, price;
    uint32_t ties;
};

static void offer(struct eject *e, struct place *best, uint64_t offset, uint64_t cost)
{
    if (cost > best->price)
        return;
    if (cost < best->price)
        *best = (struct place){offset, cost, 0};
    if (random_below(e, ++best->ties) == 0)
        best->offset = offset;
}

/* Places with their bottom at the bottom of all, or against the end of a conflicting block. */
static void offer_above(struct eject *e, struct place *best, uint64_t bytes)
{
    uint64_t begun = 0, ended = 0;
    uint32_t low = 0, high = 0;
    for (uint64_t offset = 0; offset + bytes <= e->ceiling;) {
        while (high < e->nears && e->highs[high].at <= offset)
            ended += e->highs[high++].price;
        while (low < e->nears && e->lows[low].at < offset + bytes)
            begun += e->lows[low++].price;
        offer(e, best, offset, begun - ended);
        if (high == e->nears)
            break;
        offset = e->highs[high].at;
    }
}

/* Places with their top at the ceiling, or against the start of a conflicting block. */
static void offer_below(struct eject *e, struct place *best, uint64_t bytes)
{
    uint64_t begun = 0, ended = 0;
    uint32_t low = 0, high = 0;
    while (low < e->nears && e->lows[low].at < bytes)
        begun += e->lows[low++].price;
    for (bool more = true; more;) {
        more = low < e->nears && e->lows[low].at < e->ceiling;
        uint64_t top = more ? e->lows[low].at : e->ceiling;
        while (high < e->nears && e->highs[high].at <= top - bytes)
            ended += e->highs[high++].price;
        offer(e, best, top - bytes, begun - ended);
        while (more && low < e->nears && e->lows[low].at == top)
            begun += e->lows[low++].price;
    }
}

/* Takes out the blocks of `near` that lie across [offset, offset + bytes). */
static void clear_range(struct eject *e, uint64_t offset, uint64_t bytes)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < e->nears; i++) {
        uint32_t block = e->near[i];
        if (e->offsets[block] < offset + bytes && offset < e->offsets[block] + e->x->bytes[block])
            push_out(e, block);
    }
    for (uint32_t i = 0; i < e->placed; i++)
        if (e->offsets[e->stack[i]] != RPI_UNPLACED)
            e->stack[kept++] = e->stack[i];
    e->placed = kept;
}

/* The dearest of the blocks that are out: an index into out. */
static uint32_t dearest(const struct eject *e)
{
    uint32_t pick = 0;
    uint64_t most = 0;
    for (uint32_t i = 0; i < e->outs; i++) {
        uint64_t cost = e->size[e->out[i]] * e->weight[e->out[i]];
        if (cost > most) {
            most = cost;
            pick = i;
        }
    }
    return pick;
}

/* Places one block that is out; false when fixed blocks leave it no room under the ceiling. */
static bool step(struct eject *e)
{
    uint32_t pick = dearest(e), block = e->out[pick];
    uint64_t bytes = e->x->bytes[block];
    struct place best = {0, UINT64_MAX, 0};
    collect(e, block);
    offer_above(e, &best, bytes);
    offer_below(e, &best, bytes);
    if (best.price >= FIXED_PRICE)
        return false;
    e->out[pick] = e->out[--e->outs];
    e->out_bytes -= bytes;
    if (best.price) {
        clear_range(e, best.offset, bytes);
        e->weight[block] += e->weight[block] < MOST_WEIGHT ? 1 + e->weight[block] / 8 : 0;
    }
    insert(e, block, best.offset);
    return true;
}

/* ---- Layouts to show ----------------------------------------------------------------------- */

/* The lowest gap for `block` among the placed blocks and sorted[0..tried), which `trial` has. */
static uint64_t lowest_gap(const struct eject *e, uint32_t block, uint32_t tried)
{
    uint64_t top = 0;
    for (uint32_t i = 0, j = 0; i < e->placed || j < tried;) {
        bool own = j == tried ||
                   (i < e->placed && e->offsets[e->stack[i]] <= e->trial[e->sorted[j].block]);
        uint32_t other = own ? e->stack[i++] : e->sorted[j++].block;
        if (!rpi_plan_conflict(e->x, block, other))
            continue;
        if (e->trial[other] >= top && e->trial[other] - top >= e->x->bytes[block])
            return top;
        uint64_t end = e->trial[other] + e->x->bytes[other];
        top = end > top ? end : top;
    }
    return top;
}

/* Keeps sorted[0..tried) by offset when one more was appended. */
static void sort_last(struct at *sorted, uint32_t tried)
{
    struct at last = sorted[tried];
    for (; tried > 0 && sorted[tried - 1].offset > last.offset; tried--)
        sorted[tried] = sorted[tried - 1];
    sorted[tried] = last;
}

static uint64_t layout_height(const struct rpi_lifetimes *x, const uint64_t *offsets)
{
    uint64_t height = 0;
    for (uint32_t i = 0; i < x->count; i++)
        height = offsets[i] + x->bytes[i] > height ? offsets[i] + x->bytes[i] : height;
    return height;
}

/* Places what is out wherever it fits, above the ceiling too; keeps the layout if it is lower than
 * the task's. */
static void show(struct eject *e)
{
    memcpy(e->trial, e->offsets, e->x->count * sizeof *e->trial);
    for (uint32_t i = 0; i < e->outs; i++) {
        uint32_t block = e->out[i];
        e->trial[block] = lowest_gap(e, block, i);
        if (e->trial[block] + e->x->bytes[block] >= e->task->height)
            return;
        e->sorted[i] = (struct at){e->trial[block], block};
        sort_last(e->sorted, i);
    }
    uint64_t height = layout_height(e->x, e->trial);
    if (height < e->task->height) {
        e->task->height = height;
        memcpy(e->task->offsets, e->trial, e->x->count * sizeof *e->trial);
    }
}

/* ---- The search ---------------------------------------------------------------------------- */

enum outcome { FOUND, STUCK, LATE };

/* Steps until nothing is out, `patience` steps have not lessened what is out, or time is up. */
static enum outcome run(struct eject *e, uint64_t patience)
{
    for (uint64_t steps = 0, idle = 0; e->outs; steps++, idle++) {
        if (e->out_bytes < e->least_out_bytes) {
            e->least_out_bytes = e->out_bytes;
            idle = 0;
            if (e->out_bytes < e->task->height - e->ceiling)
                show(e);
        }
        if (steps % CLOCK_STRIDE == 0 && rpi_clock_ns() > e->task->deadline_ns)
            return LATE;
        if (e->task->height <= e->ceiling || idle > patience || !step(e))
            return STUCK;
    }
    show(e);
    return FOUND;
}

/* Raises the floor to what the fixed blocks alone force: their own ends, and the lowest end that
 * each other block can have among them. */
static void raise_floor(struct eject *e)
{
    struct rpi_plan_task *task = e->task;
    if (!task->fixed)
        return;
    e->placed = 0;
    for (uint32_t i = 0; i < e->x->count; i++)
        if (rpi_plan_is_fixed(task, i))
            insert(e, i, task->fixed[i]);
    memcpy(e->trial, e->offsets, e->x->count * sizeof *e->trial);
    for (uint32_t i = 0; i < e->x->count; i++) {
        uint64_t offset = rpi_plan_is_fixed(task, i) ? task->fixed[i] : lowest_gap(e, i, 0);
        uint64_t end = offset + e->x->bytes[i];
        task->floor = end > task->floor ? end : task->floor;
    }
}

#define SHARES 8

/* The ceiling goes up from the floor in shares of the way to the best height, and back to the floor
 * with more patience. */
static void search(struct eject *e)
{
    struct rpi_plan_task *task = e->task;
    uint64_t patience = 1000 + 10 * (uint64_t)e->x->count;
    unsigned share = 0;
    raise_floor(e);
    while (task->height > task->floor) {
        uint64_t ceiling = task->floor + (task->height - task->floor) / SHARES * share;
        start(e, ceiling - ceiling % task->alignment);
        enum outcome outcome = run(e, patience);
        if (outcome == LATE)
            return;
        if (outcome == FOUND) {
            share = 0;
        } else if (++share == SHARES) {
            share = 0;
            patience *= 2;
        }
    }
}

rp_status rpi_plan_eject(struct rpi_plan_task *task, struct rp_error *err)
{
    assert(task->height != UINT64_MAX);
    if (task->height <= task->floor)
        return RP_OK;
    struct eject e = {0};
    rp_status status = RP_OK;
    if (eject_init(&e, task))
        search(&e);
    else
        status = rpi_error_host_memory(err, "plan", (size_t)task->x->count * 100);
    eject_finish(&e);
    return status;
}
