/* SPDX-License-Identifier: MIT
 *
 * The entries of a dict, as they were when all was right that is read there: its keys in their
 * order, and the values that matter. A program sets others all the time. A dict whose tag moved
 * (marks.h) for such is compared word by word here, instead of asked for each key that is read, most
 * of which it has not. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_ENTRIES_H
#define REPRISE_PYTHON_ENTRIES_H

#include "base/python.h"

#include <stdbool.h>
#include <stddef.h>

/* Some keys of the dict, tuples of one length; NULL keys: all of its, in their order. Values may be
 * weak references to what the dict has. */
struct rpp_known {
    PyObject *keys, *values;
};

struct rpp_entries;

/* What the dict has now, where that is what is known, each by identity, number or text. It borrows the
 * known values. NULL, without an exception, where it is not, keys are no strings, or the layout of dicts
 * is not known. */
struct rpp_entries *rpp_entries_take(PyObject *dict, const struct rpp_known *known, size_t count);
/* Has the dict these entries, but for values that do not matter? What these are now is noted. */
bool rpp_entries_hold(struct rpp_entries *entries, PyObject *dict);
/* Asks the processor for what that needs, and waits for nothing. NULL is allowed. */
void rpp_entries_prefetch(const struct rpp_entries *entries, PyObject *dict);
void rpp_entries_drop(struct rpp_entries *entries); /* NULL is allowed */

#endif
