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

static uint64_t greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
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
    uint64_t greatest = 0;
    for (size_t i = 0; i < tags->added_count; i++) {
        const struct rpp_tag_of *one = &tags->added[i];
        tags->owners[i] = one->owner;
        greatest = greater(greatest, *one->at);
        if (*one->at != one->value && *one->at < changed)
            changed = *one->at;
        if (tags->count && tags->list[tags->count - 1] == one->at)
            continue;
        tags->first[tags->count] = i;
        tags->list[tags->count++] = one->at;
    }
    tags->first[tags->count] = tags->added_count;
    tags->seen = changed == UINT64_MAX ? greatest : changed - 1;
    PyMem_Free(tags->added);
    tags->added = NULL;
}

enum { AT_ONCE = 4 }; /* which wait for each other's caches no longer than one does */

/* Notes which of these changed, if there is room. */
static void note_moved(struct rpp_moved *out, size_t at, const uint64_t here[AT_ONCE],
                       uint64_t seen)
{
    if (out->end != at || out->count + AT_ONCE > RPP_MOST_MOVED)
        return;
    for (size_t i = 0; i < AT_ONCE; i++)
        if (here[i] > seen)
            out->dicts[out->count++] = at + i;
    out->end = at + AT_ONCE;
}

bool rpp_tags_moved(const struct rpp_tags *tags, struct rpp_moved *out)
{
    rpp_assert_gil();
    uint64_t seen = tags->seen, greatest = seen;
    out->count = out->end = 0;
    for (size_t at = 0; at < tags->count; at += AT_ONCE) {
        uint64_t here[AT_ONCE] = {0};
        for (size_t i = 0; i < AT_ONCE && at + i < tags->count; i++)
            here[i] = *tags->list[at + i];
        uint64_t most = greater(greater(here[0], here[1]), greater(here[2], here[3]));
        greatest = greater(greatest, most);
        if (most > seen)
            note_moved(out, at, here, seen);
        else if (out->end == at)
            out->end = at + AT_ONCE;
    }
    out->greatest = greatest;
    return greatest > seen;
}

void rpp_tags_see(struct rpp_tags *tags, uint64_t greatest)
{
    rpp_assert_gil();
    tags->seen = greater(tags->seen, greatest);
}

void rpp_tags_drop(struct rpp_tags *tags)
{
    PyMem_Free(tags->list);
    PyMem_Free(tags->first);
    PyMem_Free(tags->owners);
    PyMem_Free(tags->added);
    *tags = (struct rpp_tags){0};
}
