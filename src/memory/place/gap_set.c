/* SPDX-License-Identifier: MIT */
#include "memory/place/gap_set.h"

#include <assert.h>
#include <string.h>

enum {
    MOST = 64,  /* gaps in a chunk */
    FEW = 16,   /* a chunk with fewer joins the next one where both fit well */
    JOINED = 48 /* gaps that two may have together to be joined */
};

struct rpi_gap_chunk {
    uint32_t count;
    struct rpi_gap gaps[MOST];
};

static bool is_below(uint64_t bytes, uint64_t offset, uint64_t than_bytes, uint64_t than_offset)
{
    return bytes != than_bytes ? bytes < than_bytes : offset < than_offset;
}

void rpi_gap_set_finish(struct rpi_gap_set *set)
{
    for (size_t i = 0; i < set->index.count; i++)
        rpi_free(set->index.data[i].chunk);
    for (size_t i = 0; i < set->spare.count; i++)
        rpi_free(set->spare.data[i]);
    rpi_vec_finish(&set->index);
    rpi_vec_finish(&set->spare);
}

void rpi_gap_set_clear(struct rpi_gap_set *set)
{
    for (size_t i = 0; i < set->index.count; i++)
        set->spare.data[set->spare.count++] = set->index.data[i].chunk;
    set->index.count = 0;
}

bool rpi_gap_set_reserve(struct rpi_gap_set *set, size_t insertions)
{
    size_t chunks = set->index.count + insertions;
    if (set->spare.count >= insertions && set->index.capacity >= chunks)
        return true;
    if (!rpi_vec_reserve(&set->index, chunks) ||
        !rpi_vec_reserve(&set->spare, set->index.count + set->spare.count + insertions))
        return false;
    while (set->spare.count < insertions) {
        struct rpi_gap_chunk *chunk = rpi_malloc(sizeof *chunk);
        if (!chunk)
            return false;
        set->spare.data[set->spare.count++] = chunk;
    }
    return true;
}

/* The chunk that holds the gap, if any does. There is one at least. */
static size_t find_chunk(const struct rpi_gap_set *set, uint64_t bytes, uint64_t offset)
{
    size_t low = 0, high = set->index.count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        const struct rpi_gap_index *at = &set->index.data[middle];
        if (is_below(bytes, offset, at->bytes, at->offset))
            high = middle;
        else
            low = middle;
    }
    return low;
}

/* The first place in the chunk whose gap is not below. */
static uint32_t find_place(const struct rpi_gap_chunk *chunk, uint64_t bytes, uint64_t offset)
{
    uint32_t low = 0, high = chunk->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (is_below(chunk->gaps[middle].bytes, chunk->gaps[middle].offset, bytes, offset))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t lowest_of(const struct rpi_gap_chunk *chunk)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t g = 0; g < chunk->count; g++)
        lowest = chunk->gaps[g].offset < lowest ? chunk->gaps[g].offset : lowest;
    return lowest;
}

/* Puts an empty chunk at the index, its least gap still to be said. */
static struct rpi_gap_chunk *add_chunk(struct rpi_gap_set *set, size_t at)
{
    assert(set->spare.count && set->index.count < set->index.capacity);
    struct rpi_gap_chunk *chunk = set->spare.data[--set->spare.count];
    memmove(&set->index.data[at + 1], &set->index.data[at],
            (set->index.count - at) * sizeof *set->index.data);
    set->index.count++;
    chunk->count = 0;
    set->index.data[at].chunk = chunk;
    set->index.data[at].lowest = UINT64_MAX;
    return chunk;
}

static void drop_chunk(struct rpi_gap_set *set, size_t at)
{
    set->spare.data[set->spare.count++] = set->index.data[at].chunk;
    set->index.count--;
    memmove(&set->index.data[at], &set->index.data[at + 1],
            (set->index.count - at) * sizeof *set->index.data);
}

/* Moves the upper half of a full chunk to a new one behind it. */
static void split_chunk(struct rpi_gap_set *set, size_t at)
{
    struct rpi_gap_chunk *upper = add_chunk(set, at + 1), *lower = set->index.data[at].chunk;
    upper->count = MOST / 2;
    lower->count = MOST / 2;
    memcpy(upper->gaps, lower->gaps + MOST / 2, sizeof upper->gaps / 2);
    set->index.data[at + 1].bytes = upper->gaps[0].bytes;
    set->index.data[at + 1].offset = upper->gaps[0].offset;
    set->index.data[at].lowest = lowest_of(lower);
    set->index.data[at + 1].lowest = lowest_of(upper);
}

void rpi_gap_set_insert(struct rpi_gap_set *set, struct rpi_gap gap)
{
    if (!set->index.count) {
        add_chunk(set, 0);
        set->index.data[0].bytes = set->index.data[0].offset = 0; /* the first holds all below */
    }
    size_t at = find_chunk(set, gap.bytes, gap.offset);
    if (set->index.data[at].chunk->count == MOST) {
        split_chunk(set, at);
        at = find_chunk(set, gap.bytes, gap.offset);
    }
    struct rpi_gap_chunk *chunk = set->index.data[at].chunk;
    uint32_t place = find_place(chunk, gap.bytes, gap.offset);
    memmove(&chunk->gaps[place + 1], &chunk->gaps[place],
            (chunk->count - place) * sizeof *chunk->gaps);
    chunk->gaps[place] = gap;
    chunk->count++;
    if (gap.offset < set->index.data[at].lowest)
        set->index.data[at].lowest = gap.offset;
}

void rpi_gap_set_remove(struct rpi_gap_set *set, uint64_t bytes, uint64_t offset)
{
    size_t at = find_chunk(set, bytes, offset);
    struct rpi_gap_chunk *chunk = set->index.data[at].chunk;
    uint32_t place = find_place(chunk, bytes, offset);
    assert(place < chunk->count && chunk->gaps[place].bytes == bytes &&
           chunk->gaps[place].offset == offset);
    chunk->count--;
    memmove(&chunk->gaps[place], &chunk->gaps[place + 1],
            (chunk->count - place) * sizeof *chunk->gaps);
    if (!chunk->count) {
        drop_chunk(set, at);
        if (at == 0 && set->index.count)
            set->index.data[0].bytes = set->index.data[0].offset = 0;
        return;
    }
    if (offset == set->index.data[at].lowest)
        set->index.data[at].lowest = lowest_of(chunk);
    if (chunk->count >= FEW || at + 1 == set->index.count)
        return;
    struct rpi_gap_chunk *next = set->index.data[at + 1].chunk;
    if (chunk->count + next->count > JOINED)
        return;
    memcpy(chunk->gaps + chunk->count, next->gaps, next->count * sizeof *next->gaps);
    chunk->count += next->count;
    if (set->index.data[at + 1].lowest < set->index.data[at].lowest)
        set->index.data[at].lowest = set->index.data[at + 1].lowest;
    drop_chunk(set, at + 1);
}

const struct rpi_gap *rpi_gap_set_first_from(const struct rpi_gap_set *set, uint64_t bytes,
                                             uint64_t offset)
{
    if (!set->index.count)
        return NULL;
    size_t at = find_chunk(set, bytes, offset);
    const struct rpi_gap_chunk *chunk = set->index.data[at].chunk;
    uint32_t place = find_place(chunk, bytes, offset);
    if (place < chunk->count)
        return &chunk->gaps[place];
    return at + 1 < set->index.count ? &set->index.data[at + 1].chunk->gaps[0] : NULL;
}

const struct rpi_gap *rpi_gap_set_last_to(const struct rpi_gap_set *set, uint64_t bytes,
                                          uint64_t offset)
{
    if (!set->index.count)
        return NULL;
    size_t at = find_chunk(set, bytes, offset);
    const struct rpi_gap_chunk *chunk = set->index.data[at].chunk;
    uint32_t place = find_place(chunk, bytes, offset);
    if (place < chunk->count && chunk->gaps[place].bytes == bytes &&
        chunk->gaps[place].offset == offset)
        return &chunk->gaps[place];
    if (place)
        return &chunk->gaps[place - 1];
    if (!at)
        return NULL;
    chunk = set->index.data[at - 1].chunk;
    return &chunk->gaps[chunk->count - 1];
}

static const struct rpi_gap *lowest_in(const struct rpi_gap_chunk *chunk, uint32_t from)
{
    const struct rpi_gap *best = &chunk->gaps[from];
    for (uint32_t g = from + 1; g < chunk->count; g++)
        best = chunk->gaps[g].offset < best->offset ? &chunk->gaps[g] : best;
    return best;
}

const struct rpi_gap *rpi_gap_set_lowest_from(const struct rpi_gap_set *set, uint64_t bytes)
{
    const struct rpi_gap *first = rpi_gap_set_first_from(set, bytes, 0);
    if (!first)
        return NULL;
    size_t at = find_chunk(set, first->bytes, first->offset), best = at;
    const struct rpi_gap_chunk *chunk = set->index.data[at].chunk;
    first = lowest_in(chunk, find_place(chunk, bytes, 0));
    uint64_t lowest = first->offset;
    for (size_t i = at + 1; i < set->index.count; i++) {
        if (set->index.data[i].lowest >= lowest)
            continue;
        lowest = set->index.data[i].lowest;
        best = i;
    }
    return best == at ? first : lowest_in(set->index.data[best].chunk, 0);
}

size_t rpi_gap_set_count(const struct rpi_gap_set *set)
{
    size_t count = 0;
    for (size_t i = 0; i < set->index.count; i++)
        count += set->index.data[i].chunk->count;
    return count;
}

bool rpi_gap_set_is_valid(const struct rpi_gap_set *set)
{
    const struct rpi_gap *last = NULL;
    for (size_t i = 0; i < set->index.count; i++) {
        const struct rpi_gap_index *index = &set->index.data[i];
        const struct rpi_gap_chunk *chunk = index->chunk;
        if (!chunk->count || chunk->count > MOST || index->lowest != lowest_of(chunk) ||
            is_below(chunk->gaps[0].bytes, chunk->gaps[0].offset, index->bytes, index->offset) ||
            (last && !is_below(last->bytes, last->offset, index->bytes, index->offset)))
            return false;
        for (uint32_t g = 0; g < chunk->count; g++) {
            const struct rpi_gap *gap = &chunk->gaps[g];
            if (last && !is_below(last->bytes, last->offset, gap->bytes, gap->offset))
                return false;
            last = gap;
        }
    }
    return true;
}
