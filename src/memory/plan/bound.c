/* SPDX-License-Identifier: MIT
 *
 * The exact lower bound. One lane: a sweep. More lanes: a maximum-weight antichain by flow.
 *
 * Every block A has bytes[A] to give to later blocks, every block B can take bytes[B] from earlier
 * ones, and A may give to B when A is before B. What the most that can be given leaves of the sum
 * of all bytes is the weight of the heaviest antichain (Dilworth 1950 with weights), and the blocks
 * that a last search from the unspent givers reaches as giver but not as taker are one.
 *
 * The flow is found as by Dinic (1970), but on the order itself, without its edges: A reaches a
 * suffix of every lane, so what a level of the search reaches is one more stretch at the front of
 * the suffix that was reached before. A level is therefore one number a lane, a search costs blocks
 * times lanes plus the arcs that carry flow, and dead takers are skipped by union-find. The first
 * phase is greedy and leaves little to do.
 */
#include "memory/plan/bound.h"

#include "base/hostmem.h"

#include <assert.h>
#include <string.h>

/* ---- One lane ------------------------------------------------------------------------------ */

static rp_status sweep(const struct rpi_lifetimes *x, uint64_t *out_bytes, uint32_t *out_members,
                       uint32_t *out_member_count, struct rp_error *err)
{
    uint64_t *ends = rpi_calloc(x->count, sizeof *ends);
    if (!ends)
        return rpi_error_host_memory(err, "bound", (size_t)x->count * sizeof *ends);
    for (uint32_t i = 0; i < x->count; i++)
        if (x->first[i] != RPI_NEVER)
            ends[x->first[i]] += x->bytes[i];
    uint64_t live = 0, most = 0;
    uint32_t when = 0, members = 0;
    for (uint32_t i = 0; i < x->count; i++) {
        assert(live + x->bytes[i] >= ends[i]);
        live += x->bytes[i] - ends[i];
        if (live > most) {
            most = live;
            when = i;
        }
    }
    for (uint32_t i = 0; out_members && i < x->count && i <= when; i++)
        if (x->first[i] > when)
            out_members[members++] = i;
    if (out_member_count)
        *out_member_count = members;
    *out_bytes = most;
    rpi_free(ends);
    return RP_OK;
}

/* ---- Several lanes ------------------------------------------------------------------------- */

#define NONE UINT32_MAX

/* What taker B has from giver `from`; the arcs of one taker are linked. */
struct arc {
    uint64_t amount;
    uint32_t from, next;
};

struct step {
    uint32_t giver;
    uint32_t taker;
};

struct flow {
    const struct rpi_lifetimes *x;
    uint32_t *lane_start;      /* [lanes + 1]: slices of at */
    uint32_t *at;              /* [count]: blocks by lane and rank */
    uint64_t *supply, *demand; /* [count]: what A has left to give, what B can still take */
    uint32_t *head;            /* [count]: first arc of B */
    uint32_t *cursor;          /* [count]: arc of B to try next in this phase */
    uint32_t *depth;           /* [count]: level of A in this phase; NONE: not reached, or dead */
    uint32_t *skip;            /* [count + lanes]: union-find over slots, to the next live taker */
    uint32_t *queue;           /* [count]: reached givers, by level */
    struct {
        RPI_VEC(struct arc);
    } arcs;
    uint32_t spare; /* list of unused arcs */
    struct {
        RPI_VEC(uint32_t);
    } reach; /* reach[level * lanes + l]: takers of lane l from this rank on are reached there */
    struct {
        RPI_VEC(struct step);
    } path;
};

static void flow_finish(struct flow *f)
{
    rpi_free(f->lane_start);
    rpi_free(f->at);
    rpi_free(f->supply);
    rpi_free(f->demand);
    rpi_free(f->head);
    rpi_free(f->cursor);
    rpi_free(f->depth);
    rpi_free(f->skip);
    rpi_free(f->queue);
    rpi_vec_finish(&f->arcs);
    rpi_vec_finish(&f->reach);
    rpi_vec_finish(&f->path);
}

static bool flow_allocate(struct flow *f)
{
    uint32_t count = f->x->count, lanes = f->x->lanes;
    f->lane_start = rpi_calloc((size_t)lanes + 1, sizeof *f->lane_start);
    f->at = rpi_reallocarray(NULL, count, sizeof *f->at);
    f->supply = rpi_reallocarray(NULL, count, sizeof *f->supply);
    f->demand = rpi_reallocarray(NULL, count, sizeof *f->demand);
    f->head = rpi_reallocarray(NULL, count, sizeof *f->head);
    f->cursor = rpi_reallocarray(NULL, count, sizeof *f->cursor);
    f->depth = rpi_reallocarray(NULL, count, sizeof *f->depth);
    f->skip = rpi_reallocarray(NULL, (size_t)count + lanes, sizeof *f->skip);
    f->queue = rpi_reallocarray(NULL, count, sizeof *f->queue);
    return f->lane_start && f->at && f->supply && f->demand && f->head && f->cursor && f->depth &&
           f->skip && f->queue;
}

static bool flow_init(struct flow *f, const struct rpi_lifetimes *x)
{
    f->x = x;
    f->spare = NONE;
    if (!flow_allocate(f))
        return false;
    for (uint32_t i = 0; i < x->count; i++)
        f->lane_start[x->lane[i] + 1]++;
    for (uint32_t l = 0; l < x->lanes; l++)
        f->lane_start[l + 1] += f->lane_start[l];
    for (uint32_t i = 0; i < x->count; i++) {
        f->at[f->lane_start[x->lane[i]] + x->rank[i]] = i;
        f->supply[i] = f->demand[i] = x->bytes[i];
        f->head[i] = NONE;
    }
    return true;
}

/* The slot of rank r on lane l in `skip`: each lane has one slot more than ranks, never dead. */
static uint32_t live_rank(struct flow *f, uint32_t lane, uint32_t rank)
{
    uint32_t *skip = f->skip + f->lane_start[lane] + lane;
    while (skip[rank] != rank) {
        skip[rank] = skip[skip[rank]];
        rank = skip[rank];
    }
    return rank;
}

static uint32_t lane_size(const struct flow *f, uint32_t lane)
{
    return f->lane_start[lane + 1] - f->lane_start[lane];
}

static uint32_t first_rank(const struct flow *f, uint32_t giver, uint32_t lane)
{
    uint32_t first = f->x->first[(size_t)giver * f->x->lanes + lane];
    return first == RPI_NEVER ? lane_size(f, lane) : first;
}

/* Drops the arcs of a taker that carry nothing and sets its cursor. */
static void tidy_arcs(struct flow *f, uint32_t taker)
{
    uint32_t *link = &f->head[taker];
    while (*link != NONE) {
        struct arc *arc = &f->arcs.data[*link];
        if (arc->amount) {
            link = &arc->next;
            continue;
        }
        uint32_t index = *link;
        *link = arc->next;
        arc->next = f->spare;
        f->spare = index;
    }
    f->cursor[taker] = f->head[taker];
}

static void reach_giver(struct flow *f, uint32_t giver, uint32_t level, uint32_t *queued)
{
    assert(f->depth[giver] == NONE && *queued < f->x->count);
    f->depth[giver] = level;
    f->queue[(*queued)++] = giver;
}

/* Extends what is reached by the givers queue[from..to) of `level`. */
static bool extend_reach(struct flow *f, uint32_t level, uint32_t from, uint32_t to)
{
    uint32_t lanes = f->x->lanes;
    if (!rpi_vec_reserve(&f->reach, (size_t)(level + 2) * lanes))
        return false;
    uint32_t *old = f->reach.data + (size_t)level * lanes;
    memcpy(old + lanes, old, lanes * sizeof *old);
    for (uint32_t i = from; i < to; i++)
        for (uint32_t l = 0; l < lanes; l++) {
            uint32_t first = first_rank(f, f->queue[i], l);
            if (first < old[lanes + l])
                old[lanes + l] = first;
        }
    return true;
}

/* Looks at the takers that `level` newly reached; queues the givers behind them unless one of them
 * can take. */
static bool visit_takers(struct flow *f, uint32_t level, uint32_t *queued)
{
    const uint32_t *old = f->reach.data + (size_t)level * f->x->lanes, *now = old + f->x->lanes;
    bool found = false;
    for (uint32_t l = 0; l < f->x->lanes; l++)
        for (uint32_t rank = now[l]; rank < old[l]; rank++) {
            uint32_t taker = f->at[f->lane_start[l] + rank];
            tidy_arcs(f, taker);
            found |= f->demand[taker] > 0;
        }
    for (uint32_t l = 0; !found && l < f->x->lanes; l++)
        for (uint32_t rank = now[l]; rank < old[l]; rank++) {
            uint32_t taker = f->at[f->lane_start[l] + rank];
            for (uint32_t a = f->head[taker]; a != NONE; a = f->arcs.data[a].next)
                if (f->depth[f->arcs.data[a].from] == NONE)
                    reach_giver(f, f->arcs.data[a].from, level + 1, queued);
        }
    return found;
}

/* One breadth-first search from the givers that have something left. *out_found: a taker that can
 * take was reached; without it, *out_levels is the level at which nothing new came. */
static bool search_levels(struct flow *f, bool *out_found, uint32_t *out_levels)
{
    const struct rpi_lifetimes *x = f->x;
    uint32_t queued = 0, from = 0, level = 0;
    if (!rpi_vec_reserve(&f->reach, x->lanes))
        return false;
    for (uint32_t l = 0; l < x->lanes; l++) {
        f->reach.data[l] = lane_size(f, l);
        for (uint32_t rank = 0; rank <= lane_size(f, l); rank++)
            f->skip[f->lane_start[l] + l + rank] = rank;
    }
    for (uint32_t i = x->count; i-- > 0;) {
        f->depth[i] = NONE;
        if (f->supply[i])
            reach_giver(f, i, 0, &queued);
    }
    *out_found = false;
    while (from < queued && !*out_found) {
        uint32_t to = queued;
        if (!extend_reach(f, level, from, to))
            return false;
        *out_found = visit_takers(f, level, &queued);
        from = to;
        level++;
    }
    *out_levels = level;
    return true;
}

/* The first live taker in host order one level behind the giver, or NONE. Those that come first are
 * the ones that the fewest other givers reach. */
static uint32_t next_taker(struct flow *f, uint32_t giver)
{
    assert(f->depth[giver] != NONE);
    uint32_t lanes = f->x->lanes, best = NONE;
    const uint32_t *high = f->reach.data + (size_t)f->depth[giver] * lanes, *low = high + lanes;
    for (uint32_t l = 0; l < lanes; l++) {
        uint32_t rank = first_rank(f, giver, l);
        rank = live_rank(f, l, rank > low[l] ? rank : low[l]);
        if (rank < high[l] && f->at[f->lane_start[l] + rank] < best)
            best = f->at[f->lane_start[l] + rank];
    }
    return best;
}

/* The next giver behind a taker that was reached at `level`, or NONE. */
static uint32_t next_giver(struct flow *f, uint32_t taker, uint32_t level)
{
    for (; f->cursor[taker] != NONE; f->cursor[taker] = f->arcs.data[f->cursor[taker]].next) {
        const struct arc *arc = &f->arcs.data[f->cursor[taker]];
        if (arc->amount && f->depth[arc->from] == level + 1)
            return arc->from;
    }
    return NONE;
}

/* Extends the path, which ends in a giver, to a taker that can take; empty when there is none. */
static bool find_path(struct flow *f)
{
    while (f->path.count) {
        struct step *last = &f->path.data[f->path.count - 1];
        uint32_t level = f->depth[last->giver];
        last->taker = next_taker(f, last->giver);
        if (last->taker == NONE) { /* dead: nothing more comes through this giver */
            f->depth[last->giver] = NONE;
            f->path.count--;
            continue;
        }
        if (f->demand[last->taker])
            return true;
        uint32_t giver = next_giver(f, last->taker, level);
        if (giver != NONE) {
            if (!rpi_vec_push(&f->path, ((struct step){giver, NONE})))
                return false;
        } else {
            uint32_t lane = f->x->lane[last->taker], rank = f->x->rank[last->taker];
            f->skip[f->lane_start[lane] + lane + rank] = rank + 1;
        }
    }
    return true;
}

static bool add_arc(struct flow *f, uint32_t giver, uint32_t taker, uint64_t amount)
{
    assert(amount);
    uint32_t head = f->head[taker];
    if (head != NONE && f->arcs.data[head].from == giver) {
        f->arcs.data[head].amount += amount;
        return true;
    }
    uint32_t index = f->spare;
    if (index != NONE)
        f->spare = f->arcs.data[index].next;
    else if (rpi_vec_push(&f->arcs, (struct arc){0}))
        index = (uint32_t)f->arcs.count - 1;
    else
        return false;
    f->arcs.data[index] = (struct arc){amount, giver, head};
    f->head[taker] = index;
    return true;
}

static bool augment(struct flow *f)
{
    assert(f->path.count);
    const struct step *path = f->path.data;
    size_t last = f->path.count - 1;
    uint64_t amount = f->supply[path[0].giver];
    if (f->demand[path[last].taker] < amount)
        amount = f->demand[path[last].taker];
    for (size_t i = 0; i < last; i++)
        if (f->arcs.data[f->cursor[path[i].taker]].amount < amount)
            amount = f->arcs.data[f->cursor[path[i].taker]].amount;
    assert(amount && amount <= f->supply[path[0].giver] && amount <= f->demand[path[last].taker]);
    f->supply[path[0].giver] -= amount;
    f->demand[path[last].taker] -= amount;
    for (size_t i = 0; i <= last; i++) {
        if (i < last)
            f->arcs.data[f->cursor[path[i].taker]].amount -= amount;
        if (!add_arc(f, path[i].giver, path[i].taker, amount))
            return false;
    }
    return true;
}

/* A blocking flow along the levels of the last search. */
static bool push_levels(struct flow *f)
{
    for (uint32_t root = f->x->count; root-- > 0;)
        while (f->supply[root] && f->depth[root] == 0) {
            f->path.count = 0;
            if (!rpi_vec_push(&f->path, ((struct step){root, NONE})) || !find_path(f))
                return false;
            if (f->path.count && !augment(f))
                return false;
        }
    return true;
}

/* Reads the antichain off the last search, which found no taker. */
static void read_members(const struct flow *f, uint32_t levels, uint64_t bytes,
                         uint32_t *out_members, uint32_t *out_member_count)
{
    const uint32_t *reach = f->reach.data + (size_t)levels * f->x->lanes;
    uint32_t members = 0;
    for (uint32_t i = 0; i < f->x->count; i++) {
        if (f->depth[i] == NONE || f->x->rank[i] >= reach[f->x->lane[i]])
            continue;
        assert(bytes >= f->x->bytes[i]);
        bytes -= f->x->bytes[i];
        if (out_members)
            out_members[members] = i;
        members++;
    }
    if (out_member_count)
        *out_member_count = members;
    assert(bytes == 0); /* the members weigh what the flow left */
    (void)bytes;
}

static uint64_t unspent(const struct flow *f)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < f->x->count; i++)
        sum += f->supply[i];
    return sum;
}

static bool run_flow(struct flow *f, uint32_t *out_levels)
{
    bool found = true;
    while (found)
        if (!search_levels(f, &found, out_levels) || (found && !push_levels(f)))
            return false;
    return true;
}

rp_status rpi_bound(const struct rpi_lifetimes *lifetimes, uint64_t *out_bytes,
                    uint32_t *out_members, uint32_t *out_member_count, struct rp_error *err)
{
    if (lifetimes->lanes <= 1)
        return sweep(lifetimes, out_bytes, out_members, out_member_count, err);
    struct flow f = {0};
    uint32_t levels = 0;
    rp_status status = RP_OK;
    if (!flow_init(&f, lifetimes) || !run_flow(&f, &levels)) {
        status = rpi_error_host_memory(err, "bound", (size_t)lifetimes->count * 64);
    } else {
        *out_bytes = unspent(&f);
        read_members(&f, levels, *out_bytes, out_members, out_member_count);
    }
    flow_finish(&f);
    return status;
}
