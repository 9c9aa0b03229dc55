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
#include "memory/plan/conflicts.h"
#include "memory/plan/parts.h"

#include "base/hostmem.h"

#include <assert.h>
#include <math.h>
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
    struct at *sorted; /* [2 * count]: room to sort blocks in */
    uint64_t *size;    /* [count]: how hard to put back, 1 .. SIZE_STEPS, for prices */
    double largest;    /* what SIZE_STEPS stands for */
    uint32_t *weight;  /* [count] */
    /* Conflicting blocks come from an index where they are few, else from a pass over a stack. */
    bool indexed;
    struct rpi_conflicts index;
    uint32_t *stack; /* [placed]: placed blocks by offset, unless indexed */
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
    rpi_conflicts_finish(&e->index);
    rpi_free(e->offsets);
    rpi_free(e->sorted);
    rpi_free(e->size);
    rpi_free(e->weight);
    rpi_free(e->stack);
    rpi_free(e->out);
    rpi_free(e->near);
    rpi_free(e->lows);
    rpi_free(e->highs);
}

/* Below so many blocks a pass over them all is as fast as any index. */
#define LEAST_INDEXED 256
/* How much dearer a block is that comes from the index than one that is passed over. */
#define INDEX_COST 6
/* Steps for placing a block, and for each that conflicts with it. */
#define STEP_STEPS  60
#define PRICE_STEPS 12

static bool choose_index(struct eject *e)
{
    assert(!e->indexed);
    if (e->x->count < LEAST_INDEXED)
        return true;
    if (!rpi_conflicts_init(&e->index, e->x))
        return false;
    e->indexed = 2 * rpi_conflicts_pairs(&e->index) / e->x->count * INDEX_COST < e->x->count;
    if (!e->indexed) {
        rpi_conflicts_finish(&e->index);
        memset(&e->index, 0, sizeof e->index);
    }
    return true;
}

/* A block is as hard to put back as it is large, and the harder the longer it lives: its size for
 * prices is its bytes times the root of the ranks that it lives for. */
static bool scale_sizes(struct eject *e)
{
    const struct rpi_lifetimes *x = e->x;
    uint32_t *lane_size = rpi_calloc(x->lanes, sizeof *lane_size);
    if (!lane_size)
        return false;
    for (uint32_t i = 0; i < x->count; i++)
        lane_size[x->lane[i]]++;
    for (int pass = 0; pass < 2; pass++) {
        double largest = e->largest;
        for (uint32_t i = 0; i < x->count; i++) {
            uint64_t end = 0;
            for (uint32_t l = 0; l < x->lanes; l++) {
                uint32_t first = x->first[(size_t)i * x->lanes + l];
                end += first == RPI_NEVER ? lane_size[l] : first;
            }
            double hard = (double)x->bytes[i] * sqrt(end > i ? (double)(end - i) : 1.0);
            e->largest = hard > e->largest ? hard : e->largest;
            if (pass)
                e->size[i] = 1 + (uint64_t)(hard / largest * (SIZE_STEPS - 1));
        }
    }
    rpi_free(lane_size);
    return true;
}

static bool eject_init(struct eject *e, struct rpi_plan_task *task)
{
    uint32_t count = task->x->count;
    e->task = task;
    e->x = task->x;
    e->random = 0x9e3779b97f4a7c15u;
    e->offsets = rpi_reallocarray(NULL, count, sizeof *e->offsets);
    e->sorted = rpi_reallocarray(NULL, 2 * (size_t)count, sizeof *e->sorted);
    e->size = rpi_reallocarray(NULL, count, sizeof *e->size);
    e->weight = rpi_reallocarray(NULL, count, sizeof *e->weight);
    e->stack = rpi_reallocarray(NULL, count, sizeof *e->stack);
    e->out = rpi_reallocarray(NULL, count, sizeof *e->out);
    e->near = rpi_reallocarray(NULL, count, sizeof *e->near);
    e->lows = rpi_reallocarray(NULL, count, sizeof *e->lows);
    e->highs = rpi_reallocarray(NULL, count, sizeof *e->highs);
    if (!e->offsets || !e->sorted || !e->size || !e->weight || !e->stack || !e->out || !e->near ||
        !e->lows || !e->highs)
        return false;
    return scale_sizes(e) && choose_index(e);
}

/* xorshift64*: Marsaglia 2003, Vigna 2016 */
static uint32_t random_below(struct eject *e, uint32_t limit)
{
    assert(limit && e->random); /* xorshift never leaves 0 */
    e->random ^= e->random >> 12;
    e->random ^= e->random << 25;
    e->random ^= e->random >> 27;
    uint32_t word = (uint32_t)(e->random * 0x2545f4914f6cdd1du >> 32);
    return (uint32_t)((uint64_t)word * limit >> 32);
}

/* ---- What lies where ----------------------------------------------------------------------- */

static void push_out(struct eject *e, uint32_t block)
{
    assert(e->outs < e->x->count);
    e->offsets[block] = RPI_UNPLACED;
    e->out[e->outs++] = block;
    e->out_bytes += e->x->bytes[block];
}

static void insert(struct eject *e, uint32_t block, uint64_t offset)
{
    assert(e->offsets[block] == RPI_UNPLACED && (e->indexed || e->placed < e->x->count));
    uint32_t low = 0, high = e->indexed ? 0 : e->placed;
    e->offsets[block] = offset;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (e->offsets[e->stack[middle]] <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    if (!e->indexed) {
        memmove(e->stack + low + 1, e->stack + low, (e->placed - low) * sizeof *e->stack);
        e->stack[low] = block;
        e->placed++;
    }
}

/* Takes what has no offset any more off the stack. */
static void tidy_stack(struct eject *e)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; !e->indexed && i < e->placed; i++)
        if (e->offsets[e->stack[i]] != RPI_UNPLACED)
            e->stack[kept++] = e->stack[i];
    e->placed = kept;
}

/* Sorts by offset: runs by insertion, then merged back and forth between the halves of `at`. */
static void sort_blocks(struct at *at, uint32_t count, struct at *spare)
{
    const uint32_t run = 16;
    for (uint32_t from = 0; from < count; from += run)
        for (uint32_t i = from + 1; i < count && i < from + run; i++) {
            struct at moved = at[i];
            uint32_t j = i;
            for (; j > from && at[j - 1].offset > moved.offset; j--)
                at[j] = at[j - 1];
            at[j] = moved;
        }
    struct at *in = at, *out = spare;
    for (uint64_t width = run; width < count; width *= 2) {
        for (uint64_t from = 0; from < count; from += 2 * width) {
            uint64_t middle = from + width < count ? from + width : count;
            uint64_t end = middle + width < count ? middle + width : count;
            for (uint64_t i = from, j = middle, k = from; k < end; k++)
                out[k] =
                    i < middle && (j == end || in[i].offset <= in[j].offset) ? in[i++] : in[j++];
        }
        struct at *other = in;
        in = out;
        out = other;
    }
    if (in != at)
        memcpy(at, in, count * sizeof *at);
}

/* Takes the task's layout and puts out what ends above the ceiling. */
static void start(struct eject *e, uint64_t ceiling)
{
    assert(ceiling % e->task->alignment == 0);
    uint32_t count = e->x->count;
    for (uint32_t i = 0; i < count; i++)
        e->sorted[i] = (struct at){e->task->offsets[i], i};
    sort_blocks(e->sorted, count, e->sorted + count);
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
        else if (!e->indexed)
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

/* Finds the placed blocks that conflict with `block`, by offset: by the index, */
static uint32_t list_near(struct eject *e, uint32_t block)
{
    assert(e->indexed);
    uint32_t listed = rpi_conflicts_list(&e->index, block, e->near), found = 0;
    for (uint32_t i = 0; i < listed; i++) {
        e->sorted[found] = (struct at){e->offsets[e->near[i]], e->near[i]};
        found += e->offsets[e->near[i]] != RPI_UNPLACED;
    }
    sort_blocks(e->sorted, found, e->sorted + e->x->count);
    for (uint32_t i = 0; i < found; i++)
        e->near[i] = e->sorted[i].block;
    return found;
}

/* or by a pass over the stack. */
static uint32_t scan_near(struct eject *e, uint32_t block)
{
    assert(!e->indexed && e->offsets[block] == RPI_UNPLACED);
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
    return found;
}

static void collect(struct eject *e, uint32_t block)
{
    assert(e->offsets[block] == RPI_UNPLACED);
    e->nears = e->indexed ? list_near(e, block) : scan_near(e, block);
    rpi_meter_add(e->task->meter, e->indexed ? INDEX_COST * (uint64_t)e->nears : e->placed);
    for (uint32_t i = 0; i < e->nears; i++) {
        uint32_t other = e->near[i];
        uint64_t offset = e->offsets[other], cost = price(e, other);
        e->lows[i] = (struct edge){offset, cost};
        e->highs[i] = (struct edge){offset + e->x->bytes[other], cost};
    }
    sort_edges(e->highs, e->nears);
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
    assert(bytes <= e->ceiling);
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
    for (uint32_t i = 0; i < e->nears; i++) {
        uint32_t block = e->near[i];
        if (e->offsets[block] < offset + bytes && offset < e->offsets[block] + e->x->bytes[block])
            push_out(e, block);
    }
    tidy_stack(e);
}

/* The dearest of the blocks that are out: an index into out. */
static uint32_t dearest(const struct eject *e)
{
    assert(e->outs);
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
    rpi_meter_add(e->task->meter, STEP_STEPS + PRICE_STEPS * (uint64_t)e->nears + e->outs);
    offer_above(e, &best, bytes);
    offer_below(e, &best, bytes);
    if (best.price >= FIXED_PRICE)
        return false;
    e->out[pick] = e->out[--e->outs];
    assert(e->out_bytes >= bytes);
    e->out_bytes -= bytes;
    if (best.price) {
        clear_range(e, best.offset, bytes);
        e->weight[block] += e->weight[block] < MOST_WEIGHT ? 1 + e->weight[block] / 8 : 0;
    }
    insert(e, block, best.offset);
    return true;
}

/* ---- Layouts to show ----------------------------------------------------------------------- */

/* The lowest gap for `block` among the placed blocks. */
static uint64_t lowest_gap(struct eject *e, uint32_t block)
{
    uint64_t begun = 0, ended = 0, offset = 0, bytes = e->x->bytes[block];
    uint32_t low = 0, high = 0;
    collect(e, block);
    for (;;) {
        while (high < e->nears && e->highs[high].at <= offset)
            ended += e->highs[high++].price;
        while (low < e->nears && e->lows[low].at < offset + bytes)
            begun += e->lows[low++].price;
        if (begun == ended)
            return offset;
        offset = e->highs[high].at;
    }
}

static uint64_t layout_height(const struct rpi_lifetimes *x, const uint64_t *offsets)
{
    uint64_t height = 0;
    for (uint32_t i = 0; i < x->count; i++)
        height = offsets[i] + x->bytes[i] > height ? offsets[i] + x->bytes[i] : height;
    return height;
}

/* Places what is out wherever it fits, above the ceiling too, keeps the layout if it is lower than
 * the task's, and takes out again what was out. */
static void show(struct eject *e)
{
    assert(e->outs <= e->x->count);
    struct rpi_plan_task *task = e->task;
    uint64_t top = 0;
    uint32_t tried = 0;
    for (; tried < e->outs && top < task->height; tried++) {
        uint32_t block = e->out[tried];
        insert(e, block, lowest_gap(e, block));
        uint64_t end = e->offsets[block] + e->x->bytes[block];
        top = end > top ? end : top;
    }
    if (top < task->height) {
        uint64_t height = layout_height(e->x, e->offsets);
        if (height < task->height) {
            task->height = height;
            memcpy(task->offsets, e->offsets, e->x->count * sizeof *e->offsets);
        }
    }
    for (uint32_t i = 0; i < tried; i++)
        e->offsets[e->out[i]] = RPI_UNPLACED;
    tidy_stack(e);
}

/* ---- The search ---------------------------------------------------------------------------- */

enum outcome { FOUND, STUCK, LATE };

/* Steps until nothing is out, `patience` steps have not lessened what is out, or time is up. */
static enum outcome run(struct eject *e, uint64_t patience)
{
    uint64_t shown = e->out_bytes;
    for (uint64_t steps = 0, idle = 0; e->outs; steps++, idle++) {
        if (e->out_bytes < e->least_out_bytes) {
            e->least_out_bytes = e->out_bytes;
            idle = 0;
            if (e->out_bytes < shown / 8 * 7) {
                shown = e->out_bytes;
                show(e);
            }
        }
        if (steps % CLOCK_STRIDE == 0 && rpi_meter_past(e->task->meter, e->task->end))
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
        e->offsets[i] = RPI_UNPLACED;
    for (uint32_t i = 0; i < e->x->count; i++)
        if (rpi_plan_is_fixed(task, i))
            insert(e, i, task->fixed[i]);
    for (uint32_t i = 0; i < e->x->count; i++) {
        uint64_t offset = rpi_plan_is_fixed(task, i) ? task->fixed[i] : lowest_gap(e, i);
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

rp_status rpi_plan_ejection(struct rpi_plan_task *task, struct rp_error *err)
{
    assert(task->height != UINT64_MAX);
    uint64_t set_up = (uint64_t)task->x->count * (100 + 20 * task->x->lanes);
    if (task->height <= task->floor)
        return RP_OK;
    if (rpi_meter_past(task->meter, task->end) ||
        rpi_meter_spent(task->meter) + set_up >= task->end)
        return RP_OK;
    rpi_meter_add(task->meter, set_up);
    struct eject e = {0};
    rp_status status = RP_OK;
    if (eject_init(&e, task))
        search(&e);
    else
        status = rpi_error_host_memory(err, "plan", (size_t)task->x->count * 100);
    eject_finish(&e);
    return status;
}
