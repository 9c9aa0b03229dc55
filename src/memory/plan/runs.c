/* SPDX-License-Identifier: MIT */
#include "memory/plan/runs.h"

#include "base/hostmem.h"

#include <assert.h>
#include <string.h>

/* How many segments of a bin are looked at for the smallest that fits. */
#define LOOK 12

/* ---- Bins ---------------------------------------------------------------------------------- */

static void bin_of(uint64_t bytes, unsigned *level, unsigned *part)
{
    assert(bytes);
    *level = 63 - (unsigned)__builtin_clzll(bytes);
    *part = *level >= 5 ? (unsigned)(bytes >> (*level - 5)) & (RPI_BIN_PARTS - 1)
                        : (unsigned)(bytes << (5 - *level)) & (RPI_BIN_PARTS - 1);
}

bool rpi_bins_init(struct rpi_bins *bins, uint32_t segments)
{
    rpi_bins_clear(bins);
    bins->next = rpi_reallocarray(NULL, segments, sizeof *bins->next);
    bins->previous = rpi_reallocarray(NULL, segments, sizeof *bins->previous);
    return bins->next && bins->previous;
}

void rpi_bins_finish(struct rpi_bins *bins)
{
    rpi_free(bins->next);
    rpi_free(bins->previous);
}

void rpi_bins_clear(struct rpi_bins *bins)
{
    bins->levels = 0;
    memset(bins->parts, 0, sizeof bins->parts);
    memset(bins->head, 0xff, sizeof bins->head);
}

void rpi_bins_add(struct rpi_bins *bins, const struct rpi_runs *runs, uint32_t segment)
{
    assert(segment < runs->made && runs->segments[segment].bytes);
    unsigned level, part;
    bin_of(runs->segments[segment].bytes, &level, &part);
    uint32_t *head = &bins->head[level][part];
    bins->next[segment] = *head;
    bins->previous[segment] = RPI_NO_SEGMENT;
    if (*head != RPI_NO_SEGMENT)
        bins->previous[*head] = segment;
    *head = segment;
    bins->parts[level] |= 1u << part;
    bins->levels |= (uint64_t)1 << level;
}

void rpi_bins_remove(struct rpi_bins *bins, const struct rpi_runs *runs, uint32_t segment)
{
    assert(bins->levels && segment < runs->made);
    uint32_t next = bins->next[segment], previous = bins->previous[segment];
    if (next != RPI_NO_SEGMENT)
        bins->previous[next] = previous;
    if (previous != RPI_NO_SEGMENT) {
        bins->next[previous] = next;
        return;
    }
    unsigned level, part;
    bin_of(runs->segments[segment].bytes, &level, &part);
    bins->head[level][part] = next;
    if (next != RPI_NO_SEGMENT)
        return;
    bins->parts[level] &= ~(1u << part);
    if (!bins->parts[level])
        bins->levels &= ~((uint64_t)1 << level);
}

/* The smallest of the first segments of a bin that has at least `bytes`. */
static uint32_t look(const struct rpi_bins *bins, const struct rpi_runs *runs, uint32_t segment,
                     uint64_t bytes)
{
    uint32_t best = RPI_NO_SEGMENT;
    for (int i = 0; i < LOOK && segment != RPI_NO_SEGMENT; i++) {
        uint64_t size = runs->segments[segment].bytes;
        if (size >= bytes && (best == RPI_NO_SEGMENT || size < runs->segments[best].bytes))
            best = segment;
        segment = bins->next[segment];
    }
    return best;
}

uint32_t rpi_bins_find(const struct rpi_bins *bins, const struct rpi_runs *runs, uint64_t bytes)
{
    unsigned level, part;
    bin_of(bytes, &level, &part);
    uint32_t found = look(bins, runs, bins->head[level][part], bytes);
    if (found != RPI_NO_SEGMENT)
        return found;
    uint32_t parts = part + 1 < RPI_BIN_PARTS ? bins->parts[level] >> (part + 1) << (part + 1) : 0;
    if (!parts) {
        uint64_t levels = level + 1 < RPI_BIN_LEVELS ? bins->levels >> (level + 1) : 0;
        if (!levels)
            return RPI_NO_SEGMENT;
        level += 1 + (unsigned)__builtin_ctzll(levels);
        parts = bins->parts[level];
    }
    return look(bins, runs, bins->head[level][__builtin_ctz(parts)], bytes);
}

/* ---- Runs ---------------------------------------------------------------------------------- */

bool rpi_runs_init(struct rpi_runs *runs, uint32_t blocks)
{
    runs->capacity = 2 * blocks + 1;
    runs->segments = rpi_reallocarray(NULL, runs->capacity, sizeof *runs->segments);
    bool binned = rpi_bins_init(&runs->free, runs->capacity);
    rpi_runs_clear(runs);
    return runs->segments && binned;
}

void rpi_runs_finish(struct rpi_runs *runs)
{
    rpi_free(runs->segments);
    rpi_bins_finish(&runs->free);
}

void rpi_runs_clear(struct rpi_runs *runs)
{
    runs->made = 0;
    runs->spare = runs->top = RPI_NO_SEGMENT;
    runs->height = 0;
    rpi_bins_clear(&runs->free);
}

static uint32_t make_segment(struct rpi_runs *runs)
{
    uint32_t segment = runs->spare;
    if (segment == RPI_NO_SEGMENT) {
        assert(runs->made < runs->capacity);
        return runs->made++;
    }
    runs->spare = runs->segments[segment].above;
    return segment;
}

/* Takes a segment out of the address order. */
static void drop_segment(struct rpi_runs *runs, uint32_t segment)
{
    assert(segment < runs->made && segment != runs->spare);
    struct rpi_segment *s = &runs->segments[segment];
    if (s->below != RPI_NO_SEGMENT)
        runs->segments[s->below].above = s->above;
    if (s->above != RPI_NO_SEGMENT)
        runs->segments[s->above].below = s->below;
    else
        runs->top = s->below;
    s->above = runs->spare;
    runs->spare = segment;
}

static uint32_t take_at_end(struct rpi_runs *runs, uint64_t bytes)
{
    assert(bytes);
    uint32_t top = runs->top;
    if (top != RPI_NO_SEGMENT && runs->segments[top].free) {
        rpi_bins_remove(&runs->free, runs, top);
        runs->segments[top].free = false;
    } else {
        uint32_t segment = make_segment(runs);
        runs->segments[segment] = (struct rpi_segment){runs->height, 0, top, RPI_NO_SEGMENT, false};
        if (top != RPI_NO_SEGMENT)
            runs->segments[top].above = segment;
        runs->top = top = segment;
    }
    runs->segments[top].bytes = bytes;
    runs->height = runs->segments[top].offset + bytes;
    return top;
}

uint32_t rpi_runs_take(struct rpi_runs *runs, uint32_t from, uint64_t bytes, bool *out_gone)
{
    assert(bytes && (from == RPI_NO_SEGMENT || from < runs->made));
    *out_gone = false;
    if (from == RPI_NO_SEGMENT)
        return take_at_end(runs, bytes);
    struct rpi_segment *whole = &runs->segments[from];
    assert(whole->bytes >= bytes);
    if (whole->free)
        rpi_bins_remove(&runs->free, runs, from);
    if (whole->bytes == bytes) {
        whole->free = false;
        *out_gone = true;
        return from;
    }
    uint32_t segment = make_segment(runs);
    runs->segments[segment] = (struct rpi_segment){whole->offset, bytes, whole->below, from, false};
    if (whole->below != RPI_NO_SEGMENT)
        runs->segments[whole->below].above = segment;
    whole->below = segment;
    whole->offset += bytes;
    whole->bytes -= bytes;
    if (whole->free)
        rpi_bins_add(&runs->free, runs, from);
    return segment;
}

void rpi_runs_give(struct rpi_runs *runs, uint32_t segment)
{
    assert(segment < runs->made);
    struct rpi_segment *s = &runs->segments[segment];
    assert(!s->free);
    uint32_t below = s->below, above = s->above;
    if (below != RPI_NO_SEGMENT && runs->segments[below].free) {
        rpi_bins_remove(&runs->free, runs, below);
        s->offset = runs->segments[below].offset;
        s->bytes += runs->segments[below].bytes;
        drop_segment(runs, below);
    }
    if (above != RPI_NO_SEGMENT && runs->segments[above].free) {
        rpi_bins_remove(&runs->free, runs, above);
        s->bytes += runs->segments[above].bytes;
        drop_segment(runs, above);
    }
    s->free = true;
    rpi_bins_add(&runs->free, runs, segment);
}
