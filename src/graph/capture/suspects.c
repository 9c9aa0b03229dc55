/* SPDX-License-Identifier: MIT */
#include "graph/capture/suspects.h"

#include <assert.h>
#include <string.h>

void rpi_suspects_finish(struct rpi_suspects *suspects)
{
    rpi_vec_finish(&suspects->nodes);
    rpi_vec_finish(&suspects->states);
    for (size_t run = 0; run < RPI_RUNS; run++) {
        rpi_vec_finish(&suspects->images[run]);
        rpi_vec_finish(&suspects->scalars[run]);
    }
    suspects->complete = suspects->found = false;
}

static bool copy_scalars(struct rpi_scalars *copy, const struct rpi_scalars *scalars)
{
    if (!rpi_vec_reserve(copy, scalars->count))
        return false;
    if (scalars->count)
        memcpy(copy->data, scalars->data, scalars->count * sizeof *scalars->data);
    copy->count = scalars->count;
    return true;
}

bool rpi_suspects_init(struct rpi_suspects *suspects, const struct rpi_scalars *before,
                       const struct rpi_scalars *after)
{
    *suspects = (struct rpi_suspects){0};
    if (copy_scalars(&suspects->scalars[0], before) && copy_scalars(&suspects->scalars[1], after))
        return true;
    rpi_suspects_finish(suspects);
    return false;
}

/* ---- Kernels ------------------------------------------------------------------------------- */

/* Makes room for that many more. */
static bool extend(struct rpi_suspect_bytes *bytes, uint32_t count)
{
    return rpi_vec_reserve(bytes, bytes->count + count);
}

static void append(struct rpi_suspect_bytes *bytes, const unsigned char *from, uint32_t count)
{
    assert(bytes->count + count <= bytes->capacity);
    if (count)
        memcpy(bytes->data + bytes->count, from, count);
    bytes->count += count;
}

bool rpi_suspects_add(struct rpi_suspects *suspects, const void *kernel, uint32_t node,
                      const unsigned char *before, const unsigned char *after, uint32_t bytes)
{
    struct rpi_suspect_node made = {kernel, suspects->states.count, bytes, node};
    if (!extend(&suspects->images[0], bytes) || !extend(&suspects->images[1], bytes) ||
        !extend(&suspects->states, bytes) || !rpi_vec_push(&suspects->nodes, made))
        return false;
    append(&suspects->images[0], before, bytes);
    append(&suspects->images[1], after, bytes);
    if (bytes)
        memset(suspects->states.data + suspects->states.count, RPI_BYTE_ANY, bytes);
    suspects->states.count += bytes;
    return true;
}

void rpi_suspects_mark(struct rpi_suspects *suspects, uint32_t offset, uint32_t bytes,
                       enum rpi_byte state)
{
    assert(suspects->nodes.count);
    const struct rpi_suspect_node *node = &suspects->nodes.data[suspects->nodes.count - 1];
    assert(offset + bytes <= node->bytes);
    if (bytes)
        memset(suspects->states.data + node->first + offset, (int)state, bytes);
}

/* ---- Runs ---------------------------------------------------------------------------------- */

/* All that tell anything. Each has the number of the first one with its scalars. */
struct runs {
    size_t count;
    size_t like[RPI_RUNS * RPI_MOST_ATTEMPTS];
    const struct rpi_scalars *scalars[RPI_RUNS * RPI_MOST_ATTEMPTS];
    const unsigned char *images[RPI_RUNS * RPI_MOST_ATTEMPTS]; /* of all kernels */
};

static bool are_same(const struct rpi_scalars *a, const struct rpi_scalars *b)
{
    return a->count == b->count &&
           (!a->count || memcmp(a->data, b->data, a->count * sizeof *a->data) == 0);
}

/* Has an earlier attempt the kernels that this one has so far? What stands in others' parameters
 * would tell nothing. */
static bool has_same_kernels(const struct rpi_suspects *earlier, const struct rpi_suspects *now)
{
    if (earlier->nodes.count < now->nodes.count ||
        (now->complete && earlier->nodes.count > now->nodes.count))
        return false;
    for (size_t i = 0; i < now->nodes.count; i++) {
        const struct rpi_suspect_node *a = &earlier->nodes.data[i], *b = &now->nodes.data[i];
        if (a->kernel != b->kernel || a->bytes != b->bytes || a->node != b->node)
            return false;
    }
    return true;
}

static void add_runs(struct runs *runs, const struct rpi_suspects *attempt)
{
    assert(runs->count < RPI_RUNS * RPI_MOST_ATTEMPTS);
    for (size_t run = 0; run < RPI_RUNS; run++) {
        size_t like = 0;
        while (like < runs->count && !are_same(runs->scalars[like], &attempt->scalars[run]))
            like++;
        runs->like[runs->count] = like;
        runs->scalars[runs->count] = &attempt->scalars[run];
        runs->images[runs->count++] = attempt->images[run].data;
    }
}

static struct runs find_runs(const struct rpi_suspects *now, const struct rpi_suspects *earlier,
                             size_t earlier_count)
{
    struct runs runs = {0};
    assert(earlier_count < RPI_MOST_ATTEMPTS);
    add_runs(&runs, now);
    for (size_t i = 0; i < earlier_count; i++)
        if (earlier[i].complete && has_same_kernels(&earlier[i], now))
            add_runs(&runs, &earlier[i]);
    return runs;
}

/* Is the byte not the same in all runs? */
static bool differs(const struct runs *runs, size_t at)
{
    for (size_t i = 1; i < runs->count; i++)
        if (runs->images[i][at] != runs->images[0][at])
            return true;
    return false;
}

/* Is it not the same in two runs of the same scalars? */
static bool is_loose(const struct runs *runs, size_t at)
{
    for (size_t i = 1; i < runs->count; i++)
        if (runs->images[i][at] != runs->images[runs->like[i]][at])
            return true;
    return false;
}

/* Do the three bytes before it, of the same 4 bytes of one struct, not follow the scalars? It is
 * the uppermost byte of what they are the lower ones of then, which has few values: of the lower
 * half of an address in a small heap. No compiler has padding ahead of a number of one byte. */
static bool ends_rubbish(const struct rpi_suspects *now, const struct runs *runs, size_t at,
                         uint32_t offset)
{
    enum { UNIT = 4 };
    if (offset % UNIT != UNIT - 1 || now->states.data[at] != RPI_BYTE_OF_STRUCT)
        return false;
    for (size_t before = at - (UNIT - 1); before < at; before++)
        if (now->states.data[before] != RPI_BYTE_OF_STRUCT || !is_loose(runs, before))
            return false;
    return true;
}

static bool is_suspect(const struct rpi_suspects *now, const struct runs *runs,
                       const struct rpi_suspect_node *node, uint32_t offset)
{
    assert(runs->count && offset < node->bytes);
    size_t at = node->first + offset;
    return now->states.data[at] != RPI_BYTE_EXPLAINED && differs(runs, at) && !is_loose(runs, at) &&
           !ends_rubbish(now, runs, at, offset);
}

bool rpi_suspects_have(const struct rpi_suspects *now, const struct rpi_suspects *earlier,
                       size_t earlier_count, uint32_t offset, uint32_t bytes)
{
    assert(now->nodes.count && offset + bytes <= now->nodes.data[now->nodes.count - 1].bytes);
    const struct rpi_suspect_node *node = &now->nodes.data[now->nodes.count - 1];
    const struct runs runs = find_runs(now, earlier, earlier_count);
    for (uint32_t end = offset + bytes; offset < end; offset++)
        if (is_suspect(now, &runs, node, offset))
            return true;
    return false;
}

bool rpi_suspects_complete(struct rpi_suspects *now, const struct rpi_suspects *earlier,
                           size_t earlier_count, struct rpi_suspect *out_first)
{
    now->complete = true;
    const struct runs runs = find_runs(now, earlier, earlier_count);
    for (size_t i = 0; i < now->nodes.count; i++) {
        const struct rpi_suspect_node *node = &now->nodes.data[i];
        for (uint32_t offset = 0; offset < node->bytes; offset++) {
            if (!is_suspect(now, &runs, node, offset))
                continue;
            *out_first = (struct rpi_suspect){offset, node};
            return now->found = true;
        }
    }
    return false;
}
