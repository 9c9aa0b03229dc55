/* SPDX-License-Identifier: MIT
 *
 * Tags of the dicts that owners are of (marks.h), as they were when these held. A call compares some
 * hundreds, so each dict is there once, however many owners it has, in the order of the dicts'
 * addresses. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_TAGS_H
#define REPRISE_PYTHON_TAGS_H

#include "base/python.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rpp_tags {
    size_t count; /* of dicts */
    struct rpp_tag {
        const uint64_t *at;
        uint64_t value; /* 0, which no dict has: it was not seen yet */
    } * list;
    size_t *first;  /* where a dict's owners begin, and behind the last where they end */
    size_t *owners; /* their numbers */
    struct rpp_tag_of {
        const uint64_t *at;
        uint64_t value;
        size_t owner;
    } * added;
    size_t added_count;
};

/* Makes room for so many owners of no tags. False without memory, and there are none. */
bool rpp_tags_reserve(struct rpp_tags *tags, size_t most);
/* An owner that held while its dict had this tag. There is room. */
void rpp_tags_add(struct rpp_tags *tags, const uint64_t *at, uint64_t value, size_t owner);
/* All were added. A tag has its value where all owners held with it. */
void rpp_tags_settle(struct rpp_tags *tags);
/* The first, from this one on, that has another value now; their count where none has. */
size_t rpp_tags_next(const struct rpp_tags *tags, size_t from);
void rpp_tags_drop(struct rpp_tags *tags); /* zeroed ones are allowed */

#endif
