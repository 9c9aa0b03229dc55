/* SPDX-License-Identifier: MIT */
#include "reads/tags.h"

#include <assert.h>
#include <stdlib.h>

bool rpp_tags_reserve(struct rpp_tags *tags, size_t most)
{
    rpp_assert_gil();
    *tags = (struct rpp_tags){
        .list = PyMem_Calloc(most + 1, sizeof *tags->list),
        .first = PyMem_Calloc(most + 1, sizeof *tags->first),
        .owners = PyMem_Calloc(most + 1, sizeof *tags->owners),
        .added = PyMem_Calloc(most + 1, sizeof *tags->added),
    };
    if (tags->list && tags->first && tags->owners && tags->added)
        return true;
    rpp_tags_drop(tags);
    return false;
}

void rpp_tags_add(struct rpp_tags *tags, const uint64_t *at, uint64_t value, size_t owner)
{
    tags->added[tags->added_count++] = (struct rpp_tag_of){at, value, owner};
}

static int compare(const void *a, const void *b)
{
    const struct rpp_tag_of *x = a, *y = b;
    if (x->at != y->at)
        return (uintptr_t)x->at < (uintptr_t)y->at ? -1 : 1;
    return x->owner < y->owner ? -1 : x->owner > y->owner;
}

void rpp_tags_settle(struct rpp_tags *tags)
{
    rpp_assert_gil();
    assert(tags->count == 0);
    qsort(tags->added, tags->added_count, sizeof *tags->added, compare);
    uint64_t changed = UINT64_MAX; /* the least tag of those that were */
    for (size_t i = 0; i < tags->added_count; i++) {
        const struct rpp_tag_of *one = &tags->added[i];
        tags->owners[i] = one->owner;
        if (*one->at != one->value && *one->at < changed)
            changed = *one->at;
        if (tags->count && tags->list[tags->count - 1] == one->at)
            continue;
        tags->first[tags->count] = i;
        tags->list[tags->count++] = one->at;
    }
    tags->first[tags->count] = tags->added_count;
    tags->seen = changed == UINT64_MAX ? rpp_tags_greatest(tags) : changed - 1;
    PyMem_Free(tags->added);
    tags->added = NULL;
}

static uint64_t greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Four at a time, which wait for each other's caches no longer than one does. */
uint64_t rpp_tags_greatest(const struct rpp_tags *tags)
{
    uint64_t found[4] = {0};
    size_t i = 0;
    for (; i + 4 <= tags->count; i += 4)
        for (size_t j = 0; j < 4; j++)
            found[j] = greater(found[j], *tags->list[i + j]);
    for (; i < tags->count; i++)
        found[0] = greater(found[0], *tags->list[i]);
    return greater(greater(found[0], found[1]), greater(found[2], found[3]));
}

void rpp_tags_see(struct rpp_tags *tags, uint64_t greatest)
{
    rpp_assert_gil();
    assert(greatest >= tags->seen);
    tags->seen = greatest;
}

void rpp_tags_drop(struct rpp_tags *tags)
{
    PyMem_Free(tags->list);
    PyMem_Free(tags->first);
    PyMem_Free(tags->owners);
    PyMem_Free(tags->added);
    *tags = (struct rpp_tags){0};
}
