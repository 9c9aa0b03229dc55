/* SPDX-License-Identifier: MIT
 *
 * Exact search for a few blocks on any number of lanes, by branch and bound.
 *
 * Let every block fall until it lies at 0 or on a block that it conflicts with: no layout gets
 * higher by that. Such a layout is had back by placing its blocks in the order of their offsets,
 * each on the highest end of the placed ones that it conflicts with. So all orders are walked
 * through, offsets never falling, and blocks of equal offset by their index. A branch ends
 *
 *   where a set of blocks that all conflict (a maximal clique of conflicts) has no room left: what
 *   of it is not placed, stacked upon the lowest place that one of it can have;
 *   where a block can never lie on anything any more: what it would lie on is below the last
 *   offset, and nothing is left to place under it;
 *   where the same blocks are left with the same lowest places as in a branch that failed.
 *
 * The last is told by a hash of 64 bits, as in plan_search_core.c. The time is exponential in the
 * blocks: a dozen are settled within a few thousand nodes, mostly.
 */
#include "memory/plan/parts.h"

#include "base/hostmem.h"

#include <assert.h>
#include <string.h>

#define MOST        RPI_PLAN_EXACT_MOST
#define MOST_CLIQUE 128 /* of the cliques that bound a branch */
#define TABLE_SIZE  ((size_t)1 << 15)
#define NODE_STEPS  40

struct exact {
    struct rpi_plan_task *task;
    uint32_t count;
    uint64_t all;             /* bits of all blocks */
    uint64_t conflicts[MOST]; /* bits of the blocks that conflict with it */
    uint64_t twins[MOST];     /* bits of the blocks before it that it can change places with */
    uint64_t factor[MOST];    /* of the hash */
    uint64_t cliques[MOST_CLIQUE];
    uint32_t clique_count;
    uint64_t low[MOST + 1][MOST]; /* by depth: the highest end of placed blocks in conflict */
    uint64_t offsets[MOST];
    uint64_t *table; /* [TABLE_SIZE]: branches that failed, at their hash; 0: none */
    uint64_t most;   /* layouts up to this height are looked for */
    bool late;
};

static inline uint32_t first_of(uint64_t set)
{
    assert(set);
    return (uint32_t)__builtin_ctzll(set);
}

/* ---- Setting up ---------------------------------------------------------------------------- */

static uint64_t bit(uint32_t block)
{
    assert(block < 64);
    return (uint64_t)1 << block;
}

static void find_conflicts(struct exact *e)
{
    const struct rpi_lifetimes *x = e->task->x;
    for (uint32_t a = 0; a < e->count; a++)
        for (uint32_t b = a + 1; b < e->count; b++)
            if (rpi_plan_conflict(x, a, b)) {
                e->conflicts[a] |= bit(b);
                e->conflicts[b] |= bit(a);
            }
    for (uint32_t b = 0; b < e->count; b++)
        for (uint32_t a = 0; a < b; a++)
            if (x->bytes[a] == x->bytes[b] &&
                (e->conflicts[a] & ~bit(b)) == (e->conflicts[b] & ~bit(a)))
                e->twins[b] |= bit(a);
}

/* Maximal cliques (Bron and Kerbosch 1973, with a pivot), as many as there is room for: any set of
 * them bounds. */
static void find_cliques(struct exact *e, uint64_t clique, uint64_t open, uint64_t seen)
{
    assert(!(clique & open) && !(open & seen));
    if (e->clique_count == MOST_CLIQUE)
        return;
    if (!open && !seen) {
        e->cliques[e->clique_count++] = clique;
        return;
    }
    uint32_t pivot = first_of(open ? open : seen);
    for (uint64_t rest = open & ~e->conflicts[pivot]; rest; rest &= rest - 1) {
        uint32_t block = first_of(rest);
        find_cliques(e, clique | bit(block), open & e->conflicts[block],
                     seen & e->conflicts[block]);
        open &= ~bit(block);
        seen |= bit(block);
    }
}

static bool exact_init(struct exact *e, struct rpi_plan_task *task)
{
    e->task = task;
    e->count = task->x->count;
    e->all = e->count == MOST ? UINT64_MAX : bit(e->count) - 1;
    e->table = rpi_calloc(TABLE_SIZE, sizeof *e->table);
    uint64_t state = 1;
    for (uint32_t b = 0; b < e->count; b++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        e->factor[b] = state | 1;
    }
    find_conflicts(e);
    find_cliques(e, 0, e->all, 0);
    return e->table != NULL;
}

/* ---- Bounds -------------------------------------------------------------------------------- */

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Could what is left still lie within `most`, above offset `level`? */
static bool has_room(const struct exact *e, const uint64_t *low, uint64_t left, uint64_t level)
{
    const uint64_t *bytes = e->task->x->bytes;
    for (uint32_t c = 0; c < e->clique_count; c++) {
        uint64_t sum = 0, lowest = UINT64_MAX;
        for (uint64_t rest = e->cliques[c] & left; rest; rest &= rest - 1) {
            uint32_t block = first_of(rest);
            sum += bytes[block];
            lowest = low[block] < lowest ? low[block] : lowest;
        }
        if (sum && most(lowest, level) + sum > e->most)
            return false;
    }
    return true;
}

/* Does a block lie too low to be placed now, with nothing left to lift it? */
static bool is_stranded(const struct exact *e, const uint64_t *low, uint64_t left, uint64_t level)
{
    for (uint64_t rest = left; rest; rest &= rest - 1) {
        uint32_t block = first_of(rest);
        if (low[block] < level && !(e->conflicts[block] & left))
            return true;
    }
    return false;
}

static uint64_t key_of(const struct exact *e, const uint64_t *low, uint64_t left, uint64_t level,
                       uint32_t last)
{
    uint64_t key = (left ^ level << 6) * UINT64_C(0xd6e8feb86659fd93) + last;
    for (uint64_t rest = left; rest; rest &= rest - 1) {
        uint32_t block = first_of(rest);
        key = (key ^ key >> 31) + e->factor[block] * (low[block] + 1);
    }
    key = (key ^ key >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    key ^= key >> 32;
    return key ? key : 1;
}

/* ---- The search ---------------------------------------------------------------------------- */

static void take_layout(struct exact *e, uint64_t height)
{
    assert(height <= e->most && height < e->task->height);
    memcpy(e->task->offsets, e->offsets, e->count * sizeof *e->offsets);
    e->task->height = height;
    e->most = height - 1;
}

/* Lows once `block` lies at its own. */
static void lay(struct exact *e, uint32_t depth, uint32_t block, uint64_t left)
{
    assert(depth < MOST && !(left & bit(block)));
    const uint64_t *low = e->low[depth];
    uint64_t *next = e->low[depth + 1], end = low[block] + e->task->x->bytes[block];
    e->offsets[block] = low[block];
    for (uint64_t rest = left; rest; rest &= rest - 1) {
        uint32_t other = first_of(rest);
        bool conflict = e->conflicts[block] & bit(other);
        next[other] = conflict && low[other] < end ? end : low[other];
    }
}

/* The block to try next of those that may come now: the lowest, of these the largest. */
static uint32_t choose(const struct exact *e, const uint64_t *low, uint64_t open)
{
    assert(open);
    const uint64_t *bytes = e->task->x->bytes;
    uint32_t best = first_of(open);
    for (uint64_t rest = open & (open - 1); rest; rest &= rest - 1) {
        uint32_t block = first_of(rest);
        if (low[block] < low[best] || (low[block] == low[best] && bytes[block] > bytes[best]))
            best = block;
    }
    return best;
}

/* The blocks of `left` that may be placed behind `last`, which lies at `level`. */
static uint64_t find_open(const struct exact *e, const uint64_t *low, uint64_t left, uint64_t level,
                          uint32_t last)
{
    assert(last == MOST || !(left & bit(last)));
    uint64_t open = 0;
    for (uint64_t rest = left; rest; rest &= rest - 1) {
        uint32_t block = first_of(rest);
        bool later = low[block] > level || (low[block] == level && (block > last || last == MOST));
        if (later && !(e->twins[block] & left))
            open |= bit(block);
    }
    return open;
}

static bool is_over(struct exact *e, uint64_t left)
{
    const struct rpi_plan_task *task = e->task;
    uint64_t blocks = (uint64_t)__builtin_popcountll(left);
    rpi_meter_add(task->meter, NODE_STEPS + blocks * (8 + e->clique_count / 2));
    e->late = e->late || rpi_meter_past(task->meter, task->end);
    return e->late || task->height <= task->floor;
}

/* All ways to place what is left, behind `last` at `level`; last is MOST where nothing is placed.
 * height: of what is placed. Depth: the number of blocks. */
static void search(struct exact *e, uint32_t depth, uint64_t left, uint64_t level, uint32_t last,
                   uint64_t height)
{
    assert(depth + (uint32_t)__builtin_popcountll(left) == e->count);
    const uint64_t *low = e->low[depth];
    if (!left)
        take_layout(e, height);
    if (!left || is_over(e, left) || !has_room(e, low, left, level) ||
        is_stranded(e, low, left, level))
        return;
    uint64_t key = key_of(e, low, left, level, last);
    uint64_t *failed = &e->table[key % TABLE_SIZE];
    if (*failed == key)
        return;
    for (uint64_t open = find_open(e, low, left, level, last); open;) {
        uint32_t block = choose(e, low, open);
        open &= ~bit(block);
        uint64_t top = most(height, low[block] + e->task->x->bytes[block]);
        if (top > e->most)
            continue;
        lay(e, depth, block, left & ~bit(block));
        search(e, depth + 1, left & ~bit(block), low[block], block, top);
        if (height > e->most) /* a layout was found, as high as what is placed here */
            return;
    }
    if (!e->late)
        *failed = key;
}

rp_status rpi_plan_exact(struct rpi_plan_task *task, bool *out_exhausted, struct rp_error *err)
{
    assert(!task->fixed && task->height != UINT64_MAX && task->x->count <= MOST);
    *out_exhausted = false;
    if (task->height <= task->floor || rpi_meter_past(task->meter, task->end))
        return RP_OK;
    struct exact *e = rpi_calloc(1, sizeof *e);
    if (!e || !exact_init(e, task)) {
        rpi_free(e);
        return rpi_error_host_memory(err, "plan", sizeof *e);
    }
    e->most = task->decide ? task->floor : task->height - 1;
    search(e, 0, e->all, 0, MOST, 0);
    *out_exhausted = !e->late && task->height > task->floor;
    rpi_free(e->table);
    rpi_free(e);
    return RP_OK;
}
