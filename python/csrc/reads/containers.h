/* SPDX-License-Identifier: MIT
 *
 * Lists and sets as they were, as words (words.h). Neither has a version, and comparing one as
 * Python does costs 10 ns for a list and 25 for a set, and 5 more for each member. Instead there
 * are words of two sorts, 0.4 ns each:
 *
 *     heads     how many members there are, and where the table is that has them
 *     members   the places in that table
 *
 * The table is freed as a container grows: words of members may be read only behind heads that
 * hold, and before anything else runs. The stable interface hides all this, so the layouts
 * (CPython's listobject.h and setobject.h, the same from 3.10 to 3.14) are proved once, on lists
 * and sets made for it. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_CONTAINERS_H
#define REPRISE_PYTHON_CONTAINERS_H

#include "base/python.h"
#include "reads/words.h"

enum { RPP_MOST_HEADS = 3 };

struct rpp_container {
    size_t head_count, member_count;
    struct rpp_word heads[RPP_MOST_HEADS];
    struct rpp_word *members;
    PyObject *kept; /* a tuple of the members: no other object gets an address of theirs */
};

/* Proves the layouts. No exception is set. */
void rpp_containers_prepare(void);

/* The words that a list or a set has now. False, without an exception: it is neither, its layout
 * was not proved, or there is no memory. The caller drops it. */
bool rpp_container_take(PyObject *object, struct rpp_container *out);
void rpp_container_drop(struct rpp_container *container); /* a zeroed one is allowed */

#endif
