/* SPDX-License-Identifier: MIT
 *
 * The race check. Two operations race when they touch one range, at least one writes, and nothing
 * orders them, whatever order they happen to run in.
 *
 * Inside a launch order means reachability along the graph's edges, kept as one bit for each pair
 * of steps, computed once for an exec (n * n / 64 words, n at most MOST_STEPS).
 * A programmatic edge counts as a full one: the kernel that it leads to may start early, but is
 * taken to wait before it reads or writes what the other one does. The ranges are
 * swept in the order of their addresses, so that only ranges that overlap are compared.
 *
 * Between operations on streams order is a vector clock (Fidge and Mattern 1988): each stream is a
 * lane, or shares one when there are more than RPI_HOST_LANES (sharing can hide a race, never
 * invent one). A launch counts as one operation; where nodes of it record events, as one for what
 * comes before each of them, the first one's first, and one for the rest (of two events that
 * nothing orders the second is taken to come after what the first does: that can hide a race). A
 * node that waits for an event is taken to hold back the whole launch, which can hide one too. What
 * any thread of the host has waited for is before all that any enqueues later: what orders the
 * threads is not known here. The last MOST_LOGGED operations not waited for are compared with a new
 * one (fewer when they have more than MOST_RANGES ranges).
 *
 * Ranges are compared by keys: the place in the device's memory, moved out of the way of addresses,
 * or the address for host memory. So two mappings of one chunk are one range.
 */
#include "base/log.h"
#include "driver/host/state.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_STEPS  16384
#define MOST_LOGGED 512
#define MOST_RANGES 1000000 /* in the log */
#define PHYSICAL    ((uint64_t)1 << 60)

/* ---- ranges -------------------------------------------------------------------------------- */

struct collector {
    struct rpi_host_touches *touches;
    uint32_t step;
    bool failed;
};

static void collect(void *context, uint64_t address, uint64_t bytes, int is_write)
{
    struct collector *collector = context;
    while (bytes > 0) {
        const struct rpi_host_span *span = rpi_host_span_of(address);
        uint64_t part = bytes, key = address;
        if (span && span->address + span->bytes - address < bytes)
            part = span->address + span->bytes - address;
        if (span && span->chunk)
            key = PHYSICAL + span->chunk->offset + (address - span->address);
        struct rpi_host_touch touch = {key, part, address, collector->step, is_write != 0};
        if (!rpi_vec_push(collector->touches, touch))
            collector->failed = true;
        address += part;
        bytes -= part;
    }
}

static int by_key(const void *a, const void *b)
{
    const struct rpi_host_touch *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* Writes first, each kind by key. */
static int by_kind(const void *a, const void *b)
{
    const struct rpi_host_touch *x = a, *y = b;
    return x->write != y->write ? (int)y->write - (int)x->write : by_key(a, b);
}

static void sort(struct rpi_host_touches *touches, int (*compare)(const void *, const void *))
{
    if (touches->count)
        qsort(touches->data, touches->count, sizeof *touches->data, compare);
}

/* Ranges of one kind that touch become one; the result is sorted by kind, then key. */
static void merge(struct rpi_host_touches *touches)
{
    sort(touches, by_kind);
    size_t kept = 0;
    for (size_t i = 0; i < touches->count; i++) {
        const struct rpi_host_touch *next = &touches->data[i];
        struct rpi_host_touch *last = kept ? &touches->data[kept - 1] : NULL;
        if (last && last->write == next->write && next->key <= last->key + last->bytes) {
            uint64_t end = next->key + next->bytes;
            if (end > last->key + last->bytes)
                last->bytes = end - last->key;
        } else {
            touches->data[kept++] = *next;
        }
    }
    touches->count = kept;
}

static bool overlap(const struct rpi_host_touch *a, const struct rpi_host_touch *b)
{
    return a->key < b->key + b->bytes && b->key < a->key + a->bytes;
}

/* ---- reports ------------------------------------------------------------------------------- */

/* A program that races does so at every launch: each pair of names is told once. */
static void keep_pair(const struct rpi_host_race *race)
{
    struct rpi_host_races *races = &rpi_host.races;
    for (size_t i = 0; i < races->pair_count; i++)
        if (!strcmp(races->pairs[i].first, race->first) &&
            !strcmp(races->pairs[i].second, race->second))
            return;
    if (races->pair_count < sizeof races->pairs / sizeof *races->pairs)
        races->pairs[races->pair_count++] = *race;
}

bool rpi_host_race_untold(struct rpi_host_race *out_race)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_races *races = &rpi_host.races;
    if (races->told == races->pair_count)
        return false;
    *out_race = races->pairs[races->told++];
    return true;
}

static void keep(const char *first, const struct rpi_host_touch *a, const char *second,
                 const struct rpi_host_touch *b)
{
    struct rpi_host_races *races = &rpi_host.races;
    races->count++;
    uint64_t start = a->key > b->key ? a->key : b->key;
    uint64_t end_a = a->key + a->bytes, end_b = b->key + b->bytes;
    struct rpi_host_race race = {
        .first_writes = a->write,
        .second_writes = b->write,
        .address = b->address + (start - b->key),
        .bytes = (end_a < end_b ? end_a : end_b) - start,
    };
    snprintf(race.first, sizeof race.first, "%s", first);
    snprintf(race.second, sizeof race.second, "%s", second);
    if (races->kept_count < sizeof races->kept / sizeof *races->kept)
        races->kept[races->kept_count++] = race;
    keep_pair(&race);
}

size_t rpi_host_races(struct rpi_host_race *out_races, size_t capacity)
{
    rpi_host_lock();
    size_t count = rpi_host.races.kept_count;
    if (out_races && capacity)
        memcpy(out_races, rpi_host.races.kept,
               (count < capacity ? count : capacity) * sizeof *out_races);
    rpi_host_unlock();
    return count;
}

/* ---- between operations on streams --------------------------------------------------------- */

void rpi_host_clock_join(struct rpi_host_clock *clock, const struct rpi_host_clock *other)
{
    for (unsigned l = 0; l < RPI_HOST_LANES; l++)
        if (other->at[l] > clock->at[l])
            clock->at[l] = other->at[l];
}

static bool is_settled(const struct rpi_host_log_entry *entry)
{
    return rpi_host.races.settled.at[entry->lane] >= entry->position;
}

/* First overlap of two merged lists in which one writes; false: none. */
static bool find_conflict(const struct rpi_host_touches *a, const struct rpi_host_touches *b,
                          const struct rpi_host_touch **out_a, const struct rpi_host_touch **out_b)
{
    for (int kinds = 1; kinds <= 3; kinds++) { /* bit 0: a writes, bit 1: b writes */
        bool write_a = kinds & 1, write_b = kinds & 2;
        size_t i = 0, j = 0;
        while (i < a->count && a->data[i].write != write_a)
            i++;
        while (j < b->count && b->data[j].write != write_b)
            j++;
        while (i < a->count && j < b->count && a->data[i].write == write_a &&
               b->data[j].write == write_b) {
            if (overlap(&a->data[i], &b->data[j])) {
                *out_a = &a->data[i];
                *out_b = &b->data[j];
                return true;
            }
            if (a->data[i].key < b->data[j].key)
                i++;
            else
                j++;
        }
    }
    return false;
}

static void drop_entries(bool (*which)(const struct rpi_host_log_entry *), size_t oldest)
{
    struct rpi_host_races *races = &rpi_host.races;
    size_t kept = 0;
    for (size_t i = 0; i < races->log.count; i++) {
        struct rpi_host_log_entry *entry = &races->log.data[i];
        if (i < oldest || (which && which(entry))) {
            races->logged_ranges -= entry->touches.count;
            rpi_vec_finish(&entry->touches);
        } else {
            races->log.data[kept++] = *entry;
        }
    }
    races->log.count = kept;
}

void rpi_host_races_clear(void)
{
    rpi_host_lock();
    rpi_host.races.kept_count = 0;
    rpi_host.races.count = 0;
    rpi_host.races.pair_count = rpi_host.races.told = 0;
    drop_entries(is_settled, 0);
    rpi_host_unlock();
}

static bool log_is_full(void)
{
    const struct rpi_host_races *races = &rpi_host.races;
    return races->log.count >= MOST_LOGGED || races->logged_ranges >= MOST_RANGES;
}

/* Compares with what is unordered, then keeps the entry, which is consumed. */
static void compare_and_keep(struct rpi_host_log_entry *entry, const struct rpi_host_clock *clock)
{
    struct rpi_host_races *races = &rpi_host.races;
    for (size_t i = 0; i < races->log.count; i++) {
        const struct rpi_host_log_entry *former = &races->log.data[i];
        const struct rpi_host_touch *a, *b;
        if (clock->at[former->lane] < former->position && !is_settled(former) &&
            find_conflict(&former->touches, &entry->touches, &a, &b))
            keep(former->name, a, entry->name, b);
    }
    if (log_is_full())
        drop_entries(is_settled, 0);
    if (log_is_full())
        drop_entries(NULL, (races->log.count + 3) / 4);
    if (entry->touches.count == 0 || !rpi_vec_push(&races->log, *entry))
        rpi_vec_finish(&entry->touches);
    else
        races->logged_ranges += entry->touches.count;
}

void rpi_host_race_op(const struct rpi_host_op *op, unsigned lane,
                      const struct rpi_host_clock *clock, uint64_t position)
{
    rpi_assert_held(&rpi_host.lock);
    if (!rpi_host.options.check_races)
        return;
    struct rpi_host_log_entry entry = {.lane = lane, .position = position};
    struct collector collector = {.touches = &entry.touches};
    rpi_host_op_accesses(op, collect, &collector);
    rpi_host_op_name(op, entry.name, sizeof entry.name);
    merge(&entry.touches);
    compare_and_keep(&entry, clock);
}

void rpi_host_race_gone(uint64_t address, uint64_t bytes, const char *what)
{
    rpi_assert_held(&rpi_host.lock);
    if (!rpi_host.options.check_races)
        return;
    struct rpi_host_touches touches = {0};
    struct collector collector = {.touches = &touches};
    collect(&collector, address, bytes, 1);
    merge(&touches);
    for (size_t i = 0; i < rpi_host.races.log.count; i++) {
        const struct rpi_host_log_entry *former = &rpi_host.races.log.data[i];
        const struct rpi_host_touch *a, *b;
        if (!is_settled(former) && find_conflict(&former->touches, &touches, &a, &b))
            keep(former->name, a, what, b);
    }
    rpi_vec_finish(&touches);
}

void rpi_host_race_settle(const struct rpi_host_clock *clock)
{
    rpi_assert_held(&rpi_host.lock);
    rpi_host_clock_join(&rpi_host.races.settled, clock);
}

void rpi_host_race_forget(void)
{
    rpi_assert_held(&rpi_host.lock);
    drop_entries(NULL, rpi_host.races.log.count);
    rpi_vec_finish(&rpi_host.races.log);
    rpi_host.races.settled = (struct rpi_host_clock){0};
}

/* ---- inside a launch ----------------------------------------------------------------------- */

static bool find_reaches(CUgraphExec exec)
{
    size_t count = exec->steps.count, words = (count + 63) / 64;
    if (exec->reaches)
        return true;
    if (count > MOST_STEPS) {
        rpi_log(RP_LOG_WARNING,
                "host driver: a graph of %zu nodes is not checked for races "
                "inside it, as it has more than %d",
                count, MOST_STEPS);
        return false;
    }
    exec->reaches = rpi_calloc(count * words, sizeof *exec->reaches);
    if (!exec->reaches)
        return false;
    for (size_t v = 0; v < count; v++) {
        uint64_t *row = exec->reaches + v * words;
        for (size_t i = 0; i < exec->steps.data[v].before.count; i++) {
            size_t u = exec->steps.data[v].before.data[i];
            for (size_t w = 0; w < words; w++)
                row[w] |= exec->reaches[u * words + w];
            row[u / 64] |= (uint64_t)1 << (u % 64);
        }
    }
    return true;
}

static bool is_ordered(CUgraphExec exec, uint32_t u, uint32_t v)
{
    size_t words = (exec->steps.count + 63) / 64;
    if (u > v) {
        uint32_t t = u;
        u = v;
        v = t;
    }
    return u == v || (exec->reaches[v * words + u / 64] >> (u % 64) & 1);
}

static void keep_steps(CUgraphExec exec, const struct rpi_host_touch *a,
                       const struct rpi_host_touch *b)
{
    const struct rpi_host_touch *touches[2] = {a, b};
    char names[2][64];
    for (int i = 0; i < 2; i++) {
        char name[48];
        rpi_host_op_name(exec->steps.data[touches[i]->step].node->op, name, sizeof name);
        snprintf(names[i], sizeof names[i], "%s #%u", name, touches[i]->step);
    }
    keep(names[0], a, names[1], b);
}

/* Sweeps the ranges, sorted by key; `open` has room for all of them. */
static void compare_steps(CUgraphExec exec, const struct rpi_host_touches *touches,
                          const struct rpi_host_touch **open)
{
    size_t open_count = 0;
    for (size_t i = 0; i < touches->count; i++) {
        const struct rpi_host_touch *touch = &touches->data[i];
        size_t kept = 0;
        for (size_t j = 0; j < open_count; j++) {
            if (open[j]->key + open[j]->bytes <= touch->key)
                continue;
            if ((open[j]->write || touch->write) && !is_ordered(exec, open[j]->step, touch->step))
                keep_steps(exec, open[j], touch);
            open[kept++] = open[j];
        }
        open[kept++] = touch;
        open_count = kept;
    }
}

/* The part of the launch that a step belongs to. */
static size_t part_of(CUgraphExec exec, uint32_t step)
{
    size_t part = 0;
    while (exec->reaches && part < exec->records.count &&
           (step > exec->records.data[part] || !is_ordered(exec, step, exec->records.data[part])))
        part++;
    return part;
}

static bool share_out(CUgraphExec exec, const struct rpi_host_touches *touches)
{
    if (!exec->parts)
        exec->parts = rpi_calloc(exec->records.count + 1, sizeof *exec->parts);
    for (size_t i = 0; exec->parts && i <= exec->records.count; i++)
        exec->parts[i].count = 0;
    for (size_t i = 0; exec->parts && i < touches->count; i++)
        if (!rpi_vec_push(&exec->parts[part_of(exec, touches->data[i].step)], touches->data[i]))
            return false;
    for (size_t i = 0; exec->parts && i <= exec->records.count; i++)
        merge(&exec->parts[i]);
    return exec->parts != NULL;
}

/* What the exec touches, part by part; races between its own steps are kept on the way. */
static bool check_exec(CUgraphExec exec)
{
    struct rpi_host_touches touches = {0};
    struct collector collector = {.touches = &touches};
    for (size_t i = 0; i < exec->steps.count; i++) {
        collector.step = (uint32_t)i;
        if (exec->steps.data[i].node)
            rpi_host_op_accesses(exec->steps.data[i].node->op, collect, &collector);
    }
    const struct rpi_host_touch **open =
        rpi_calloc(touches.count, sizeof(const struct rpi_host_touch *));
    bool ok = open && !collector.failed;
    if (ok && find_reaches(exec)) {
        sort(&touches, by_key);
        compare_steps(exec, &touches, open);
    }
    ok = ok && share_out(exec, &touches);
    rpi_free(open);
    rpi_vec_finish(&touches);
    return ok;
}

void rpi_host_race_exec(CUgraphExec exec, unsigned lane, const struct rpi_host_clock *clock,
                        uint64_t position)
{
    rpi_assert_held(&rpi_host.lock);
    if (!rpi_host.options.check_races)
        return;
    if (exec->checked != rpi_host.memory.generation && check_exec(exec))
        exec->checked = rpi_host.memory.generation;
    struct rpi_host_clock before = *clock; /* parts are not compared with each other */
    for (size_t i = 0; exec->parts && i <= exec->records.count; i++, position++) {
        const struct rpi_host_touches *touches = &exec->parts[i];
        struct rpi_host_log_entry entry = {.lane = lane, .position = position, .name = "graph"};
        if (!rpi_vec_reserve(&entry.touches, touches->count))
            return;
        if (touches->count)
            memcpy(entry.touches.data, touches->data, touches->count * sizeof *touches->data);
        entry.touches.count = touches->count;
        compare_and_keep(&entry, &before);
        before.at[lane] = position;
    }
}
