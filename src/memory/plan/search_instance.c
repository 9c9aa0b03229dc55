/* SPDX-License-Identifier: MIT
 *
 * From lifetimes to what the exact search reads: sections, spans and sizes in units.
 *
 * On one lane a block is live from its rank up to the first rank that may take its memory. Of all
 * ranks only those matter after which some block ends: the live set of any other rank is contained
 * in that of the next. Sorting the blocks by span makes "all blocks that start within a span" a
 * range of indices, so that neighbours need no lists of their own.
 */
#include "memory/plan/search_core.h"

#include "base/hostmem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The sum of all span lengths that is still searched: 12 bytes each. */
#define MOST_CELLS (UINT64_C(1) << 24)

struct span {
    uint32_t first, last, origin;
    int32_t size;
};

static int compare_spans(const void *left, const void *right)
{
    const struct span *a = left, *b = right;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    if (a->last != b->last)
        return a->last < b->last ? -1 : 1;
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    return a->origin < b->origin ? -1 : a->origin > b->origin;
}

static uint32_t end_of(const struct rpi_lifetimes *lifetimes, uint32_t block)
{
    assert(block < lifetimes->count);
    uint32_t end = lifetimes->first[block];
    return end < lifetimes->count ? end : lifetimes->count;
}

/* section_before[r]: how many sections lie at ranks below r. Returns their number. */
static uint32_t count_sections(const struct rpi_lifetimes *lifetimes, uint32_t *section_before)
{
    uint32_t count = lifetimes->count, sections = 0;
    memset(section_before, 0, (count + 1) * sizeof *section_before);
    for (uint32_t i = 0; i < count; i++)
        section_before[end_of(lifetimes, i)] = 1; /* a section at the rank before that end */
    for (uint32_t r = 0; r <= count; r++) {
        sections += section_before[r];
        section_before[r] = sections;
    }
    assert(sections && sections <= count);
    return sections;
}

/* Returns the sum of the span lengths, UINT64_MAX where a size does not fit. */
static uint64_t make_spans(const struct rpi_lifetimes *lifetimes, uint64_t unit,
                           const uint32_t *section_before, struct span *spans)
{
    uint64_t cells = 0;
    for (uint32_t i = 0; i < lifetimes->count; i++) {
        uint64_t size = lifetimes->bytes[i] / unit + (lifetimes->bytes[i] % unit != 0);
        if (size > INT32_MAX / 4)
            return UINT64_MAX;
        spans[i] = (struct span){.first = section_before[lifetimes->rank[i]],
                                 .last = section_before[end_of(lifetimes, i)],
                                 .origin = i,
                                 .size = (int32_t)size};
        assert(spans[i].first < spans[i].last);
        cells += spans[i].last - spans[i].first;
    }
    return cells;
}

static bool allocate(struct rpi_search_instance *instance, uint64_t cells)
{
    uint32_t blocks = instance->blocks, sections = instance->sections;
    instance->origin = rpi_calloc(blocks, sizeof *instance->origin);
    instance->size = rpi_calloc(blocks, sizeof *instance->size);
    instance->first = rpi_calloc(blocks, sizeof *instance->first);
    instance->last = rpi_calloc(blocks, sizeof *instance->last);
    instance->twin = rpi_calloc(blocks, sizeof *instance->twin);
    instance->slot = rpi_calloc((size_t)blocks + 1, sizeof *instance->slot);
    instance->starting = rpi_calloc((size_t)sections + 1, sizeof *instance->starting);
    instance->section_start = rpi_calloc((size_t)sections + 1, sizeof *instance->section_start);
    instance->members = rpi_calloc(cells, sizeof *instance->members);
    instance->load = rpi_calloc(sections, sizeof *instance->load);
    return instance->origin && instance->size && instance->first && instance->last &&
           instance->twin && instance->slot && instance->starting && instance->section_start &&
           instance->members && instance->load;
}

/* False where a load is too large for the arithmetic of the search. */
static bool fill(struct rpi_search_instance *instance, const struct span *spans)
{
    uint32_t blocks = instance->blocks, sections = instance->sections;
    for (uint32_t b = 0; b < blocks; b++) {
        instance->origin[b] = spans[b].origin;
        instance->size[b] = spans[b].size;
        instance->first[b] = spans[b].first;
        instance->last[b] = spans[b].last;
        bool twins = b > 0 && spans[b].first == spans[b - 1].first &&
                     spans[b].last == spans[b - 1].last && spans[b].size == spans[b - 1].size;
        instance->twin[b] = twins ? b - 1 : b;
        instance->slot[b + 1] = instance->slot[b] + (spans[b].last - spans[b].first);
    }
    for (uint32_t s = 0, b = 0; s <= sections; s++) {
        while (b < blocks && spans[b].first < s)
            b++;
        instance->starting[s] = b;
    }
    for (uint32_t b = 0; b < blocks; b++)
        for (uint32_t s = spans[b].first; s < spans[b].last; s++) {
            if (instance->load[s] > INT32_MAX / 4 - spans[b].size)
                return false;
            instance->load[s] += spans[b].size;
            instance->section_start[s + 1]++;
        }
    for (uint32_t s = 0; s < sections; s++)
        instance->section_start[s + 1] += instance->section_start[s];
    return true;
}

static void fill_members(struct rpi_search_instance *instance)
{
    /* Members of a section in the order of their index; section_start is moved and put back. */
    for (uint32_t b = 0; b < instance->blocks; b++)
        for (uint32_t s = instance->first[b]; s < instance->last[b]; s++)
            instance->members[instance->section_start[s]++] = b;
    for (uint32_t s = instance->sections; s > 0; s--)
        instance->section_start[s] = instance->section_start[s - 1];
    instance->section_start[0] = 0;
}

static rp_status build(const struct rpi_lifetimes *lifetimes, uint64_t unit,
                       uint32_t *section_before, struct span *spans,
                       struct rpi_search_instance **out_instance, struct rp_error *err)
{
    uint32_t sections = count_sections(lifetimes, section_before);
    uint64_t cells = make_spans(lifetimes, unit, section_before, spans);
    if (cells > MOST_CELLS)
        return RP_OK;
    qsort(spans, lifetimes->count, sizeof *spans, compare_spans);
    struct rpi_search_instance *instance = rpi_calloc(1, sizeof *instance);
    if (!instance)
        return rpi_error_host_memory(err, "plan search", sizeof *instance);
    instance->blocks = lifetimes->count;
    instance->sections = sections;
    if (!allocate(instance, cells)) {
        rpi_search_instance_destroy(instance);
        return rpi_error_host_memory(err, "plan search", (size_t)cells * sizeof(uint32_t));
    }
    if (!fill(instance, spans)) {
        rpi_search_instance_destroy(instance);
        return RP_OK;
    }
    assert(instance->slot[instance->blocks] == cells && instance->section_start[sections] == cells);
    fill_members(instance);
    *out_instance = instance;
    return RP_OK;
}

rp_status rpi_search_instance_create(const struct rpi_lifetimes *lifetimes, uint64_t unit,
                                     struct rpi_search_instance **out_instance,
                                     struct rp_error *err)
{
    assert(lifetimes->lanes == 1 && lifetimes->count > 0 && unit > 0);
    *out_instance = NULL;
    size_t count = lifetimes->count;
    uint32_t *section_before = rpi_calloc(count + 1, sizeof *section_before);
    struct span *spans = rpi_calloc(count, sizeof *spans);
    rp_status status = section_before && spans
                           ? build(lifetimes, unit, section_before, spans, out_instance, err)
                           : rpi_error_host_memory(err, "plan search", count * sizeof *spans);
    rpi_free(section_before);
    rpi_free(spans);
    return status;
}

void rpi_search_instance_destroy(struct rpi_search_instance *instance)
{
    if (!instance)
        return;
    rpi_free(instance->origin);
    rpi_free(instance->size);
    rpi_free(instance->first);
    rpi_free(instance->last);
    rpi_free(instance->twin);
    rpi_free(instance->slot);
    rpi_free(instance->starting);
    rpi_free(instance->section_start);
    rpi_free(instance->members);
    rpi_free(instance->load);
    rpi_free(instance);
}
