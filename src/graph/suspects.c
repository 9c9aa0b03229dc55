/* SPDX-License-Identifier: MIT */
#include "graph/suspects.h"

#include <stdlib.h>
#include <string.h>

void rpi_suspects_finish(struct rpi_suspects *suspects)
{
    rpi_vec_finish(suspects);
    for (size_t run = 0; run < RPI_RUNS; run++)
        rpi_vec_finish(&suspects->scalars[run]);
    suspects->complete = false;
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

static bool are_same(const struct rpi_scalars *a, const struct rpi_scalars *b)
{
    return a->count == b->count &&
           (!a->count || memcmp(a->data, b->data, a->count * sizeof *a->data) == 0);
}

static int order_suspects(const void *left, const void *right)
{
    const struct rpi_suspect *a = left, *b = right;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

void rpi_suspects_complete(struct rpi_suspects *suspects)
{
    if (suspects->count)
        qsort(suspects->data, suspects->count, sizeof *suspects->data, order_suspects);
    suspects->complete = true;
}

/* The suspect at that place; NULL: there is none. */
static const struct rpi_suspect *find(const struct rpi_suspects *suspects,
                                      const struct rpi_suspect *like)
{
    if (!suspects->count)
        return NULL;
    return bsearch(like, suspects->data, suspects->count, sizeof *like, order_suspects);
}

bool rpi_suspects_clear(const struct rpi_suspects *earlier, const struct rpi_suspects *now,
                        const struct rpi_suspect *suspect)
{
    if (!earlier->complete)
        return false;
    const struct rpi_suspect *same = find(earlier, suspect);
    for (size_t i = 0; i < RPI_RUNS; i++)
        for (size_t j = 0; j < RPI_RUNS; j++)
            if (are_same(&earlier->scalars[i], &now->scalars[j]) &&
                (!same || same->words[i] != suspect->words[j]))
                return true;
    return false;
}
