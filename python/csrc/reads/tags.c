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
    for (size_t i = 0; i < tags->added_count; i++) {
        const struct rpp_tag_of *one = &tags->added[i];
        struct rpp_tag *last = tags->count ? &tags->list[tags->count - 1] : NULL;
        tags->owners[i] = one->owner;
        if (last && last->at == one->at) {
            if (last->value != one->value)
                last->value = 0;
            continue;
        }
        tags->first[tags->count] = i;
        tags->list[tags->count++] = (struct rpp_tag){one->at, one->value};
    }
    tags->first[tags->count] = tags->added_count;
    PyMem_Free(tags->added);
    tags->added = NULL;
}

static uint64_t difference(const struct rpp_tag *tag)
{
    return *tag->at ^ tag->value;
}

/* Four at a time, which wait for each other's caches no longer than one does. */
size_t rpp_tags_next(const struct rpp_tags *tags, size_t from)
{
    for (; from + 4 <= tags->count; from += 4) {
        const struct rpp_tag *tag = &tags->list[from];
        if (difference(tag) | difference(tag + 1) | difference(tag + 2) | difference(tag + 3))
            break;
    }
    while (from < tags->count && difference(&tags->list[from]) == 0)
        from++;
    return from;
}

void rpp_tags_drop(struct rpp_tags *tags)
{
    PyMem_Free(tags->list);
    PyMem_Free(tags->first);
    PyMem_Free(tags->owners);
    PyMem_Free(tags->added);
    *tags = (struct rpp_tags){0};
}
