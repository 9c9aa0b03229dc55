/* SPDX-License-Identifier: MIT
 *
 * First layouts for many blocks: one pass over the allocations, each block in the tightest gap that
 * a few looks find. Blocks times lanes, whatever the number of conflicts.
 *
 * In host order, for any lanes: memory that every lane may take is in free runs, which merge. What
 * some lanes may take and others not yet stays a segment of the block that had it, and is in the
 * bins of those lanes until the last lane gets there. The first rank that may take a block's memory
 * is known for every lane, so nothing is looked for: each rank has its list of blocks.
 *
 * From the peak, for one lane: the blocks that are alive at the peak are stacked without gaps, up
 * to the bound. From there one pass goes forward in time and one backward, and in both less and
 * less is alive, so that what the gaps waste is mostly there to be wasted.
 */
#include "memory/plan/parts.h"
#include "memory/plan/runs.h"

#include "base/hostmem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct keyed {
    uint64_t key;
    uint32_t block;
};

struct sweep {
    const struct rpi_lifetimes *x;
    uint64_t *offsets;   /* [count]: of the layout in the making */
    uint32_t *segment;   /* [count]: what the block holds, or RPI_NO_SEGMENT */
    uint32_t *start;     /* [count + lanes + 1]: slices of ready, by lane and rank */
    uint32_t *ready;     /* blocks, by lane and by the rank that may first take their memory */
    uint32_t *lane_base; /* [lanes + 1]: where a lane's ranks begin in start */
    uint32_t *pending;   /* [count]: lanes that may not take the block's memory yet */
    uint32_t *owner;     /* [segments]: the block that holds a used one */
    uint32_t *done;      /* [lanes]: ranks that the pass has seen */
    uint32_t running;    /* lanes with ranks to come */
    struct rpi_bins *lane_bins; /* [lanes]: segments that this lane may take and another not */
    struct rpi_runs runs;
    uint64_t pass_began; /* the meter's reading when the last pass began */
};

static void sweep_finish(struct sweep *s)
{
    for (uint32_t l = 0; s->lane_bins && l < s->x->lanes; l++)
        rpi_bins_finish(&s->lane_bins[l]);
    rpi_free(s->lane_bins);
    rpi_free(s->offsets);
    rpi_free(s->segment);
    rpi_free(s->start);
    rpi_free(s->ready);
    rpi_free(s->lane_base);
    rpi_free(s->pending);
    rpi_free(s->owner);
    rpi_free(s->done);
    rpi_runs_finish(&s->runs);
}

static bool sweep_init(struct sweep *s, const struct rpi_lifetimes *x)
{
    s->x = x;
    s->offsets = rpi_reallocarray(NULL, x->count, sizeof *s->offsets);
    s->segment = rpi_reallocarray(NULL, x->count, sizeof *s->segment);
    s->start = rpi_calloc((size_t)x->count + x->lanes + 1, sizeof *s->start);
    s->ready = rpi_reallocarray(NULL, (size_t)x->count * x->lanes, sizeof *s->ready);
    s->lane_base = rpi_calloc((size_t)x->lanes + 1, sizeof *s->lane_base);
    s->pending = rpi_reallocarray(NULL, x->count, sizeof *s->pending);
    s->done = rpi_calloc(x->lanes, sizeof *s->done);
    s->lane_bins = rpi_calloc(x->lanes, sizeof *s->lane_bins);
    bool fits = rpi_runs_init(&s->runs, x->count);
    s->owner = rpi_reallocarray(NULL, s->runs.capacity, sizeof *s->owner);
    fits = fits && s->offsets && s->segment && s->start && s->ready && s->lane_base && s->pending &&
           s->owner && s->done && s->lane_bins;
    for (uint32_t l = 0; fits && x->lanes > 1 && l < x->lanes; l++)
        fits = rpi_bins_init(&s->lane_bins[l], s->runs.capacity);
    return fits;
}

/* Sorts the blocks of each lane's ranks into ready. Those with RPI_NEVER come at the rank behind
 * the lane's last, when the lane has no more to take. */
static void index_ready(struct sweep *s)
{
    const struct rpi_lifetimes *x = s->x;
    for (uint32_t i = 0; i < x->count; i++)
        s->lane_base[x->lane[i] + 1]++;
    for (uint32_t l = 0; l < x->lanes; l++)
        s->lane_base[l + 1] += s->lane_base[l];
    uint32_t at = 0;
    for (uint32_t l = 0; l < x->lanes; l++) {
        uint32_t size = s->lane_base[l + 1] - s->lane_base[l];
        uint32_t *start = s->start + s->lane_base[l] + l;
        for (uint32_t i = 0; i < x->count; i++) {
            uint32_t first = x->first[(size_t)i * x->lanes + l];
            start[first < size ? first : size]++;
        }
        for (uint32_t rank = 0; rank <= size; rank++) {
            at += start[rank];
            start[rank] = at; /* the end; comes down to the begin as the slice fills */
        }
        for (uint32_t i = x->count; i-- > 0;) {
            uint32_t first = x->first[(size_t)i * x->lanes + l];
            s->ready[--start[first < size ? first : size]] = i;
        }
    }
    s->start[x->count + x->lanes] = at;
    assert(at == (uint64_t)x->count * x->lanes);
}

/* ---- In host order ------------------------------------------------------------------------- */

static uint32_t lane_size(const struct sweep *s, uint32_t lane)
{
    return s->lane_base[lane + 1] - s->lane_base[lane];
}

/* Adds the block's segment to, or takes it out of, the bins of all lanes that may take it. */
static void bin_everywhere(struct sweep *s, uint32_t block, bool add)
{
    const uint32_t *first = s->x->first + (size_t)block * s->x->lanes;
    for (uint32_t l = 0; s->x->lanes > 1 && l < s->x->lanes; l++) {
        if (first[l] >= s->done[l])
            continue;
        if (add)
            rpi_bins_add(&s->lane_bins[l], &s->runs, s->segment[block]);
        else
            rpi_bins_remove(&s->lane_bins[l], &s->runs, s->segment[block]);
    }
}

static void one_lane_less(struct sweep *s, uint32_t block)
{
    assert(s->pending[block]);
    if (--s->pending[block] || s->segment[block] == RPI_NO_SEGMENT)
        return;
    bin_everywhere(s, block, false);
    rpi_runs_give(&s->runs, s->segment[block]);
    s->segment[block] = RPI_NO_SEGMENT;
}

/* The lane's next rank may take the memory of the blocks that wait for it. */
static void reach_rank(struct sweep *s, uint32_t lane)
{
    assert(s->done[lane] < lane_size(s, lane));
    const uint32_t *start = s->start + s->lane_base[lane] + lane + s->done[lane];
    for (uint32_t i = start[0]; i < start[1]; i++) {
        uint32_t block = s->ready[i];
        one_lane_less(s, block);
        if (s->pending[block] && s->segment[block] != RPI_NO_SEGMENT)
            rpi_bins_add(&s->lane_bins[lane], &s->runs, s->segment[block]);
    }
    s->done[lane]++;
}

/* A lane without ranks to come keeps no block, of 0 .. last, waiting. */
static void finish_lane(struct sweep *s, uint32_t lane, uint32_t last)
{
    assert(s->running && s->done[lane] == lane_size(s, lane));
    const uint32_t *start = s->start + s->lane_base[lane] + lane + lane_size(s, lane);
    s->running--;
    for (uint32_t i = start[0]; i < start[1]; i++)
        if (s->ready[i] <= last)
            one_lane_less(s, s->ready[i]);
}

static void hold(struct sweep *s, uint32_t block, uint32_t segment)
{
    assert(segment < s->runs.made && s->runs.segments[segment].bytes == s->x->bytes[block]);
    s->offsets[block] = s->runs.segments[segment].offset;
    s->segment[block] = segment;
    s->owner[segment] = block;
}

/* Gives the block the smaller of the free run and the segment in transit that fit it best. */
static void place(struct sweep *s, uint32_t block, const struct rpi_bins *transit)
{
    uint64_t bytes = s->x->bytes[block];
    uint32_t run = rpi_bins_find(&s->runs.free, &s->runs, bytes);
    uint32_t used = transit ? rpi_bins_find(transit, &s->runs, bytes) : RPI_NO_SEGMENT;
    bool gone;
    if (used == RPI_NO_SEGMENT ||
        (run != RPI_NO_SEGMENT && s->runs.segments[run].bytes < s->runs.segments[used].bytes)) {
        hold(s, block, rpi_runs_take(&s->runs, run, bytes, &gone));
        return;
    }
    uint32_t owner = s->owner[used];
    bin_everywhere(s, owner, false);
    uint32_t taken = rpi_runs_take(&s->runs, used, bytes, &gone);
    if (gone)
        s->segment[owner] = RPI_NO_SEGMENT;
    else
        bin_everywhere(s, owner, true);
    hold(s, block, taken);
}

static void sweep_host_order(struct sweep *s)
{
    const struct rpi_lifetimes *x = s->x;
    s->running = 0;
    for (uint32_t l = 0; l < x->lanes; l++)
        s->running += lane_size(s, l) > 0;
    for (uint32_t i = 0; i < x->count; i++) {
        uint32_t lane = x->lane[i];
        reach_rank(s, lane);
        place(s, i, x->lanes > 1 ? &s->lane_bins[lane] : NULL);
        s->pending[i] = s->running;
        if (s->done[lane] == lane_size(s, lane))
            finish_lane(s, lane, i);
    }
}

/* ---- From the peak, one lane ---------------------------------------------------------------- */

/* Stacks the blocks that are alive at rank `peak`, in the order given, without gaps. */
static void stack_members(struct sweep *s, const struct keyed *members, uint32_t count)
{
    assert(s->x->lanes == 1);
    bool gone;
    rpi_runs_clear(&s->runs);
    for (uint32_t i = 0; i < count; i++)
        hold(s, members[i].block,
             rpi_runs_take(&s->runs, RPI_NO_SEGMENT, s->x->bytes[members[i].block], &gone));
}

static uint64_t sweep_forward(struct sweep *s, uint32_t peak)
{
    assert(s->x->lanes == 1 && peak < s->x->count);
    for (uint32_t i = peak + 1; i < s->x->count; i++) {
        for (uint32_t r = s->start[i]; r < s->start[i + 1]; r++)
            rpi_runs_give(&s->runs, s->segment[s->ready[r]]);
        place(s, i, NULL);
    }
    return s->runs.height;
}

/* Time runs back: a block begins where its memory was free again, and ends at its allocation. */
static uint64_t sweep_backward(struct sweep *s, uint32_t peak)
{
    assert(s->x->lanes == 1 && peak < s->x->count);
    for (uint32_t i = peak; i > 0; i--) {
        rpi_runs_give(&s->runs, s->segment[i]);
        for (uint32_t r = s->start[i]; r < s->start[i + 1]; r++)
            place(s, s->ready[r], NULL);
    }
    return s->runs.height;
}

/* Steps for a block on each lane, in one pass. */
#define PASS_STEPS 60

enum stacking { BY_LENGTH, BY_BEGIN, BY_END, STACKINGS };

static int compare_keyed(const void *left, const void *right)
{
    const struct keyed *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->block < b->block ? -1 : a->block > b->block;
}

static uint64_t member_key(const struct rpi_lifetimes *x, uint32_t block, enum stacking stacking)
{
    uint64_t first = x->first[block] == RPI_NEVER ? x->count : x->first[block];
    switch (stacking) {
    case BY_LENGTH:
        return UINT64_MAX - (first - x->rank[block]);
    case BY_BEGIN:
        return x->rank[block];
    default:
        return UINT64_MAX - first;
    }
}

static uint64_t sweep_from_peak(struct sweep *s, const struct rpi_plan_task *task,
                                struct keyed *members, uint32_t count, enum stacking stacking)
{
    uint32_t peak = 0;
    for (uint32_t i = 0; i < count; i++) {
        peak = members[i].block > peak ? members[i].block : peak;
        members[i].key = member_key(s->x, members[i].block, stacking);
    }
    qsort(members, count, sizeof *members, compare_keyed);
    stack_members(s, members, count);
    uint64_t forward = sweep_forward(s, peak);
    if (forward >= task->height)
        return forward;
    stack_members(s, members, count);
    uint64_t backward = sweep_backward(s, peak);
    rpi_meter_add(task->meter, (uint64_t)s->x->count * PASS_STEPS);
    return forward > backward ? forward : backward;
}

/* ---- Both ---------------------------------------------------------------------------------- */

static void keep(struct rpi_plan_task *task, const struct sweep *s, uint64_t height)
{
    if (height >= task->height)
        return;
    task->height = height;
    memcpy(task->offsets, s->offsets, s->x->count * sizeof *s->offsets);
}

/* Is there budget for a pass as long as the last? Notes that one begins. */
static bool has_time(struct sweep *s, const struct rpi_plan_task *task)
{
    uint64_t now = rpi_meter_spent(task->meter);
    bool has = task->height == UINT64_MAX || now + (now - s->pass_began) <= task->end;
    s->pass_began = now;
    return has;
}

static rp_status sweeps_from_peak(struct sweep *s, struct rpi_plan_task *task, struct rp_error *err)
{
    uint32_t count = 0, *blocks = rpi_reallocarray(NULL, s->x->count, sizeof *blocks);
    struct keyed *members = rpi_reallocarray(NULL, s->x->count, sizeof *members);
    rp_status status;
    if (blocks && members) {
        uint64_t bound;
        status = rpi_bound(s->x, &bound, blocks, &count, err);
        for (uint32_t i = 0; i < count; i++)
            members[i].block = blocks[i];
        for (unsigned k = 0; !status && k < STACKINGS && task->height > task->floor; k++)
            if (has_time(s, task))
                keep(task, s, sweep_from_peak(s, task, members, count, k));
    } else {
        status = rpi_error_host_memory(err, "plan", s->x->count * sizeof *members);
    }
    rpi_free(blocks);
    rpi_free(members);
    return status;
}

rp_status rpi_plan_sweep(struct rpi_plan_task *task, struct rp_error *err)
{
    assert(!task->fixed);
    struct sweep s = {0};
    rp_status status = RP_OK;
    if (!sweep_init(&s, task->x)) {
        status = rpi_error_host_memory(err, "plan", (size_t)task->x->count * 80);
    } else {
        index_ready(&s);
        if (task->x->lanes == 1)
            status = sweeps_from_peak(&s, task, err);
        if (!status && task->height > task->floor && has_time(&s, task)) {
            rpi_runs_clear(&s.runs);
            sweep_host_order(&s);
            rpi_meter_add(task->meter, (uint64_t)s.x->count * s.x->lanes * PASS_STEPS);
            keep(task, &s, s.runs.height);
        }
    }
    sweep_finish(&s);
    return status;
}
