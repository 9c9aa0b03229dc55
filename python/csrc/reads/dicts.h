/* SPDX-License-Identifier: MIT
 *
 * What a dict has, key by key, without a call of the interpreter's for each. Before CPython 3.12 a
 * look goes through every dict that was written to (entries.h), 20 and more between two calls, and
 * calls are most of what that takes. The stable interface hides the layouts (CPython's
 * pycore_dict.h, of 3.10 and 3.11, which change no more), so they are proved once, on dicts made
 * for it; where they are not, PyDict_Next() is called. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_DICTS_H
#define REPRISE_PYTHON_DICTS_H

#include "base/python.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The places of a dict's keys and values, valid until it changes. */
struct rpp_items {
    PyObject *dict;
    Py_ssize_t next;           /* PyDict_Next()'s, or the number of the place that is next */
    Py_ssize_t count;          /* of places; -1: PyDict_Next() is called */
    PyObject *const *keys;     /* the first, */
    size_t stride;             /* and how many words there are from one to the next */
    PyObject *const *values;   /* NULL: behind each key; NULL at a place: it has none */
    const int8_t *last_placed; /* numbers of places, the first last; NULL: as they lie */
};

/* Proves the layouts. No exception is set. */
void rpp_dicts_prepare(void);
/* Were they? For tests. */
PyObject *rpp_are_dicts_known(PyObject *module, PyObject *unused);

/* Begins with the first of them. It borrows the dict. */
struct rpp_items rpp_items_of(PyObject *dict);

/* Asks the processor for what a dict of this many items has, and waits for nothing. */
void rpp_items_prefetch(PyObject *dict, size_t count);

static inline void rpp_prefetch(const void *at, size_t bytes)
{
    enum { LINE = 64 };
    for (size_t i = 0; i < bytes; i += LINE)
        __builtin_prefetch((const char *)at + i);
}

/* The next key and value, both borrowed; false: there is none. */
static inline bool rpp_items_next(struct rpp_items *items, PyObject **out_key, PyObject **out_value)
{
    if (items->count < 0)
        return PyDict_Next(items->dict, &items->next, out_key, out_value);
    while (items->next < items->count) {
        Py_ssize_t at = items->next++;
        size_t place = (size_t)(items->last_placed ? items->last_placed[-at] : at);
        PyObject *const *key = items->keys + place * items->stride;
        *out_key = *key;
        *out_value = items->values ? items->values[place] : key[1];
        if (*out_value)
            return true;
    }
    return false;
}

#endif
