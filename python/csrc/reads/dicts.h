/* SPDX-License-Identifier: MIT
 *
 * Where a dict has its keys and values, as words of memory. Before CPython 3.12 a look goes through
 * every dict that was written to (entries.h), 20 and more between two calls; a call of the
 * interpreter's for each item would be most of what that takes. The stable interface hides the
 * layouts (CPython's pycore_dict.h, of 3.10 and 3.11, which change no more), so they are proved
 * once, on dicts made for it. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_DICTS_H
#define REPRISE_PYTHON_DICTS_H

#include "base/python.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Proves the layouts. No exception is set. */
void rpp_dicts_prepare(void);
/* Were they? For tests. */
PyObject *rpp_are_dicts_known(PyObject *module, PyObject *unused);

/* ---- Words --------------------------------------------------------------------------------- */

struct rpp_region {
    const uint64_t *at; /* readable until the dict changes */
    size_t count;
};

enum { RPP_IN_TABLE, RPP_IN_VALUES, RPP_REGIONS };

/* All that says which keys the dict has, in which order and with which values: the entries of its
 * table and, where it shares that with other instances of a class, the values that are its own, behind
 * what says their order. */
struct rpp_places {
    Py_ssize_t used; /* how many items there are */
    struct rpp_region regions[RPP_REGIONS];
    size_t stride; /* words from a key to the next */
    size_t first;  /* word of the table that has the first key */
    size_t values; /* word of the values that has the first; SIZE_MAX: they lie behind keys */
    const int8_t *orders; /* which key is the first, ahead of it the second; NULL: as they lie */
};

/* False: its layout is not known. */
bool rpp_places_of(PyObject *dict, struct rpp_places *out);
/* Asks the processor for them, and waits for nothing. */
void rpp_prefetch_places(PyObject *dict);

static inline void rpp_prefetch(const void *at, size_t bytes)
{
    enum { LINE = 64 };
    for (size_t i = 0; i < bytes; i += LINE)
        __builtin_prefetch((const char *)at + i);
}

/* ---- Items --------------------------------------------------------------------------------- */

struct rpp_item {
    PyObject *key, *value; /* borrowed */
    size_t region, word;   /* where the value is */
    size_t next;           /* 0 ahead of the first */
};

/* The next of a dict that does not change; false: there is none. */
bool rpp_item_next(const struct rpp_places *places, struct rpp_item *item);

#endif
