/* SPDX-License-Identifier: MIT
 *
 * Sets as they were: a set has no version, and comparing one as Python does costs 25 ns and 5 more
 * for each member. An image has the places of its members in the set's table instead, 1 ns each.
 * The stable interface hides that table, so its layout (CPython's Include/cpython/setobject.h, the
 * same from 3.10 to 3.14) is proved once, on sets made for it. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_SETS_H
#define REPRISE_PYTHON_SETS_H

#include "base/python.h"

struct rpp_set_image {
    PyObject *members; /* a tuple: keeps them, so that no other object gets an address of theirs */
    size_t count;
    const void *table;
    size_t mask;
    struct rpp_member {
        size_t slot;
        PyObject *key; /* among the members */
    } list[];
};

/* Proves the layout. False, without an exception: it is another one, and there are no images. */
bool rpp_sets_prepare(void);

/* What a set has now. NULL, without an exception: it is no plain set, there are no images, or there
 * is no memory. The caller drops it. */
struct rpp_set_image *rpp_set_image_take(PyObject *object);
void rpp_set_image_drop(struct rpp_set_image *image); /* NULL is allowed */

/* Has the set what it had, the same objects at the same places? Where not, it may still be equal.
 */
bool rpp_set_image_holds(const struct rpp_set_image *image, PyObject *object);

#endif
