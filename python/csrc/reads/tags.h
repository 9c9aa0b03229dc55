/* SPDX-License-Identifier: MIT
 *
 * Tags of the dicts that owners are of (marks.h). Each change gives a dict a tag that is greater than
 * all that were given before, to any dict: none was changed while none is greater than what was
 * seen. A call compares some hundreds, so each dict is there once, however many owners it has, in
 * the order of the dicts' addresses. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_TAGS_H
#define REPRISE_PYTHON_TAGS_H

#include "base/python.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rpp_tags {
    size_t count; /* of dicts */
    const uint64_t **list;
    uint64_t seen;  /* all owners of dicts whose tags are not greater hold */
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
/* All were added. What was seen is as much as goes without those that were changed since. */
void rpp_tags_settle(struct rpp_tags *tags);

enum { RPP_MOST_MOVED = 32 };

/* Dicts that changed since they were seen. Each look has its own: it may run code that looks again. */
struct rpp_moved {
    uint64_t greatest; /* tag of all dicts, as they were compared */
    size_t count, dicts[RPP_MOST_MOVED];
    size_t end; /* these are all that changed ahead of this dict */
};

/* Compares all at once, ahead of any code that could change them meanwhile. False: none changed, and
 * what is given out has no meaning. */
bool rpp_tags_moved(const struct rpp_tags *tags, struct rpp_moved *out);
/* All owners held when this was the greatest, or more was seen by then. */
void rpp_tags_see(struct rpp_tags *tags, uint64_t greatest);
void rpp_tags_drop(struct rpp_tags *tags); /* zeroed ones are allowed */

#endif
