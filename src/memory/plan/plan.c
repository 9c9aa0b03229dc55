/* SPDX-License-Identifier: MIT
 *
 * The planner: cut the problem where no block is alive across, give every piece a first layout,
 * then improve the pieces that are above the floor, the highest first. A piece that ends above the
 * floor raises it for the others: lowering them further would gain nothing.
 */
#include "memory/plan/parts.h"
#include "memory/plan/search.h"

#include "base/hostmem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct piece {
    struct rpi_lifetimes x;
    struct rpi_plan_task task;
    bool proved;  /* no layout of the piece is lower; with a capacity: none is at most the floor */
    bool stopped; /* by the budget, above the floor */
};

struct planner {
    const struct rpi_lifetimes *x;
    const struct rpi_plan_options *options;
    uint64_t bound, floor;
    uint64_t start_ns;
    struct rpi_meter *meter, own;
    uint64_t end;   /* the meter's reading at which to stop */
    uint32_t *ends; /* [count]: where the pieces end */
    struct piece *pieces;
    uint32_t piece_count;
};

static void planner_finish(struct planner *p)
{
    for (uint32_t i = 0; p->pieces && i < p->piece_count; i++)
        rpi_lifetimes_finish(&p->pieces[i].x);
    rpi_free(p->pieces);
    rpi_free(p->ends);
}

static rp_status cut(struct planner *p, uint64_t *offsets, struct rp_error *err)
{
    p->ends = rpi_reallocarray(NULL, p->x->count, sizeof *p->ends);
    if (!p->ends)
        return rpi_error_host_memory(err, "plan", p->x->count * sizeof *p->ends);
    rp_status status = rpi_plan_cut(p->x, p->ends, &p->piece_count, err);
    if (status)
        return status;
    assert(p->piece_count <= p->x->count);
    assert(!p->x->count || p->ends[p->piece_count - 1] == p->x->count);
    p->pieces = rpi_calloc(p->piece_count, sizeof *p->pieces);
    if (!p->pieces)
        return rpi_error_host_memory(err, "plan", p->piece_count * sizeof *p->pieces);
    for (uint32_t i = 0, from = 0; !status && i < p->piece_count; from = p->ends[i++]) {
        struct piece *piece = &p->pieces[i];
        status = rpi_plan_extract(p->x, from, p->ends[i], &piece->x, err);
        piece->task = (struct rpi_plan_task){
            .x = &piece->x,
            .fixed = p->options->fixed ? p->options->fixed + from : NULL,
            .alignment = p->options->alignment,
            .floor = p->floor,
            .decide = p->options->capacity != 0,
            .meter = p->meter,
            .end = p->end,
            .offsets = offsets + from,
            .height = UINT64_MAX,
        };
    }
    return status;
}

static int compare_pieces(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    if (a->task.height != b->task.height)
        return a->task.height > b->task.height ? -1 : 1;
    return a->task.offsets < b->task.offsets ? -1 : a->task.offsets > b->task.offsets;
}

/* Of so many blocks the exact search settles most problems in a moment, or not at all. */
#define MOST_SEARCHED_FIRST 4000

static bool can_search(const struct planner *p, const struct piece *piece)
{
    return piece->x.lanes == 1 && !p->options->fixed;
}

/* One lane and nothing fixed: the exact search, until the task's end. */
static rp_status search(const struct planner *p, struct piece *piece, struct rp_error *err)
{
    assert(can_search(p, piece));
    struct rpi_plan_task *task = &piece->task;
    struct rpi_plan_options options = *p->options;
    options.meter = p->meter;
    options.budget_ms = rpi_meter_left_ms(p->meter, task->end);
    if (options.budget_ms <= 0)
        return RP_OK;
    options.capacity = options.capacity ? task->floor : 0;
    bool exhausted = false;
    rp_status status = rpi_plan_search(task->x, &options, task->floor, task->offsets, &task->height,
                                       &exhausted, err);
    piece->proved = !status && exhausted && task->height > task->floor;
    return status;
}

/* Shares of the budget that is left for what comes after a first sweep. Orders are worth
 * more on one lane, where mending them finds what the others do not. */
#define SEARCH_SHARE       0.06
#define ORDERS_SHARE_ONE   0.8
#define ORDERS_SHARE_LANES 0.2
/* Rounds of mending orders on one lane, before the search and after it. */
#define ORDERS_ROUNDS_FIRST 1
#define ORDERS_ROUNDS_ONE   12

static uint64_t share_end(const struct planner *p, double share)
{
    assert(share > 0 && share <= 1);
    uint64_t now = rpi_meter_spent(p->meter);
    return now < p->end ? now + (uint64_t)((double)(p->end - now) * share) : now;
}

static rp_status first_layout(const struct planner *p, struct piece *piece, struct rp_error *err)
{
    struct rpi_plan_task *task = &piece->task;
    bool one = piece->x.lanes == 1;
    rp_status status = RP_OK;
    if (!task->fixed)
        status = rpi_plan_sweep(task, err);
    if (!status && task->height > task->floor && one) {
        task->end = share_end(p, SEARCH_SHARE);
        status = rpi_plan_greedy(task, ORDERS_ROUNDS_FIRST, err);
    }
    if (!status && task->height > task->floor && can_search(p, piece) &&
        piece->x.count <= MOST_SEARCHED_FIRST) {
        task->end = share_end(p, SEARCH_SHARE);
        status = search(p, piece, err);
    }
    if (!status && task->height > task->floor && !piece->proved) {
        task->end = share_end(p, one ? ORDERS_SHARE_ONE : ORDERS_SHARE_LANES);
        status = rpi_plan_greedy(task, one ? ORDERS_ROUNDS_ONE : 0, err);
    }
    task->end = p->end;
    return status;
}

static rp_status first_layouts(struct planner *p, struct rp_error *err)
{
    rp_status status = RP_OK;
    for (uint32_t i = 0; !status && i < p->piece_count; i++)
        status = first_layout(p, &p->pieces[i], err);
    qsort(p->pieces, p->piece_count, sizeof *p->pieces, compare_pieces);
    for (uint32_t i = 0; i < p->piece_count; i++)
        p->pieces[i].task.x = &p->pieces[i].x;
    return status;
}

/* Of so few blocks all layouts are walked through, after a short try to find a good one. */
static rp_status settle_few(const struct planner *p, struct piece *piece, struct rp_error *err)
{
    assert(piece->x.count <= RPI_PLAN_EXACT_MOST && !p->options->fixed);
    struct rpi_plan_task *task = &piece->task;
    uint64_t end = task->end, now = rpi_meter_spent(p->meter);
    uint64_t left = now < end ? end - now : 0;
    task->end = now + left / 32;
    rp_status status = rpi_plan_ejection(task, err);
    task->end = now + left / 2;
    if (!status)
        status = rpi_plan_exact(task, &piece->proved, err);
    task->end = end;
    return status;
}

static rp_status improve_piece(const struct planner *p, struct piece *piece, struct rp_error *err)
{
    assert(!piece->proved && piece->task.height > piece->task.floor);
    struct rpi_plan_task *task = &piece->task;
    bool exact = can_search(p, piece);
    rp_status status = RP_OK;
    if (!exact && !p->options->fixed && piece->x.count <= RPI_PLAN_EXACT_MOST)
        status = settle_few(p, piece, err);
    if (status || piece->proved || task->height <= task->floor)
        return status;
    uint64_t end = task->end, now = rpi_meter_spent(p->meter);
    if (!exact || piece->x.count > MOST_SEARCHED_FIRST) {
        task->end = exact && now < end ? now + (end - now) / 2 : end;
        status = rpi_plan_ejection(task, err);
        task->end = end;
    }
    if (!status && exact)
        status = search(p, piece, err);
    piece->stopped =
        task->height > task->floor && !piece->proved && rpi_meter_past(p->meter, task->end);
    return status;
}

/* Each piece above the floor gets its share of the budget that is left. */
static rp_status improve(struct planner *p, struct rp_error *err)
{
    uint64_t floor = p->floor;
    uint32_t left = 0;
    rp_status status = RP_OK;
    while (left < p->piece_count && p->pieces[left].task.height > floor)
        left++;
    for (uint32_t i = 0; !status && left > 0; i++, left--) {
        struct piece *piece = &p->pieces[i];
        uint64_t now = rpi_meter_spent(p->meter);
        if (piece->task.height <= floor || piece->proved) {
            floor = piece->task.height > floor ? piece->task.height : floor;
            continue;
        }
        if (now < p->end)
            piece->task.end = now + (p->end - now) / left;
        piece->task.floor = floor;
        status = improve_piece(p, piece, err);
        floor = piece->task.height > floor ? piece->task.height : floor;
    }
    return status;
}

static void sum_up(const struct planner *p, struct rpi_plan_result *out)
{
    uint64_t capacity = p->options->capacity, height = 0;
    bool proved = false, stopped = false;
    for (uint32_t i = 0; i < p->piece_count; i++) {
        const struct piece *piece = &p->pieces[i];
        if (piece->task.height > height || (piece->task.height == height && piece->proved))
            proved = piece->proved;
        stopped = stopped || piece->stopped;
        height = piece->task.height > height ? piece->task.height : height;
    }
    assert(height >= p->bound);
    *out = (struct rpi_plan_result){.height = height, .lower_bound = p->bound};
    out->proof = height == p->bound    ? RPI_PROOF_BOUND
                 : proved && !capacity ? RPI_PROOF_SEARCH
                                       : RPI_PROOF_NONE;
    out->stopped = stopped && !proved && height > p->floor;
    if (capacity)
        out->fits = height <= capacity ? 1 : p->bound > capacity || proved ? 0 : -1;
    out->ms = rpi_ms_since(p->start_ns);
}

rp_status rpi_plan(const struct rpi_lifetimes *lifetimes, const struct rpi_plan_options *options,
                   uint64_t *out_offsets, struct rpi_plan_result *out_result, struct rp_error *err)
{
    assert(options->alignment >= 1 && options->threads >= 1);
    struct planner p = {.x = lifetimes,
                        .options = options,
                        .start_ns = rpi_clock_ns(),
                        .own = rpi_meter_start(options->timed)};
    p.meter = options->meter ? options->meter : &p.own;
    p.end = rpi_meter_end(p.meter, options->budget_ms);
    rp_status status = rpi_bound(lifetimes, &p.bound, NULL, NULL, err);
    if (status)
        return status;
    p.floor = options->capacity > p.bound ? options->capacity : p.bound;
    status = cut(&p, out_offsets, err);
    if (!status)
        status = first_layouts(&p, err);
    if (!status)
        status = improve(&p, err);
    if (!status)
        sum_up(&p, out_result);
    planner_finish(&p);
    return status;
}
