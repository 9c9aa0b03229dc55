/* SPDX-License-Identifier: MIT */
#include "reads/sets.h"

#include <assert.h>

struct entry {
    PyObject *key; /* NULL: never used; else a member, or the interpreter's sign of a removed one */
    Py_hash_t hash; /* -1: removed */
};

/* CPython's, without its name. */
struct set {
    PyObject head;
    Py_ssize_t fill, used, mask;
    struct entry *table; /* of mask + 1 entries: `inside` while they do */
    Py_hash_t hash;
    Py_ssize_t finger;
    struct entry inside[8];
    PyObject *weak_references;
};

enum { SMALL = 3, LARGE = 40, MOST_SLOTS = 1 << 20 };

static bool layout_is_known;

static bool is_member(const struct entry *entry)
{
    return entry->key && entry->hash != -1;
}

/* ---- The proof ----------------------------------------------------------------------------- */

/* A set of the numbers below `count`; NULL with an exception set. */
static PyObject *numbers(long count)
{
    PyObject *set = PySet_New(NULL);
    for (long i = 0; set && i < count; i++) {
        PyObject *number = PyLong_FromLong(i);
        if (!number || PySet_Add(set, number) != 0)
            Py_CLEAR(set);
        Py_XDECREF(number);
    }
    return set;
}

/* Are the counts what they are of a set of `count` members? Looks at nothing but the object. */
static bool has_counts(const struct set *set, Py_ssize_t count)
{
    return set->fill == count && set->used == count && set->mask > count &&
           set->mask < MOST_SLOTS && (set->mask & (set->mask + 1)) == 0 && set->table &&
           (uintptr_t)set->table % sizeof(void *) == 0;
}

/* Are the entries those of a set of the numbers below `count`? */
static bool has_entries(const struct set *set, Py_ssize_t count)
{
    Py_ssize_t found = 0;
    for (Py_ssize_t at = 0; at <= set->mask; at++)
        if (is_member(&set->table[at])) {
            if (Py_TYPE(set->table[at].key) != &PyLong_Type ||
                PyLong_AsLong(set->table[at].key) != (long)set->table[at].hash)
                return false;
            found++;
        }
    return found == count;
}

/* A small set has its table inside, which proves where the pointer is before it is followed. */
static bool is_proved(PyObject *small, PyObject *large)
{
    const struct set *inside = (const void *)small, *outside = (const void *)large;
    return has_counts(inside, SMALL) && inside->table == inside->inside &&
           has_entries(inside, SMALL) && has_counts(outside, LARGE) &&
           outside->table != outside->inside && has_entries(outside, LARGE);
}

bool rpp_sets_prepare(void)
{
    PyObject *bytes = PyObject_GetAttrString((PyObject *)&PySet_Type, "__basicsize__");
    bool fits = bytes && PyLong_AsSize_t(bytes) == sizeof(struct set);
    PyObject *small = fits ? numbers(SMALL) : NULL, *large = fits ? numbers(LARGE) : NULL;
    layout_is_known = small && large && is_proved(small, large);
    Py_XDECREF(bytes);
    Py_XDECREF(small);
    Py_XDECREF(large);
    PyErr_Clear();
    return layout_is_known;
}

/* ---- Images -------------------------------------------------------------------------------- */

struct rpp_set_image *rpp_set_image_take(PyObject *object)
{
    rpp_assert_gil();
    if (!layout_is_known || Py_TYPE(object) != &PySet_Type)
        return NULL;
    const struct set *set = (const void *)object;
    size_t count = (size_t)set->used;
    struct rpp_set_image *image = PyMem_Calloc(1, sizeof *image + count * sizeof *image->list);
    PyObject *members = PyTuple_New((Py_ssize_t)count);
    if (!image || !members) {
        PyMem_Free(image);
        Py_XDECREF(members);
        PyErr_Clear();
        return NULL;
    }
    image->members = members;
    image->table = set->table;
    image->mask = (size_t)set->mask;
    for (Py_ssize_t at = 0; at <= set->mask && image->count < count; at++) {
        if (!is_member(&set->table[at]))
            continue;
        struct rpp_member *member = &image->list[image->count];
        member->slot = (size_t)at;
        member->key = set->table[at].key;
        PyTuple_SetItem(members, (Py_ssize_t)image->count++, Py_NewRef(member->key));
    }
    assert(image->count == count);
    return image;
}

void rpp_set_image_drop(struct rpp_set_image *image)
{
    rpp_assert_gil();
    if (!image)
        return;
    Py_DECREF(image->members);
    PyMem_Free(image);
}

/* All members at their places, and none more. A table that was made anew may get the same address.
 */
bool rpp_set_image_holds(const struct rpp_set_image *image, PyObject *object)
{
    rpp_assert_gil();
    const struct set *set = (const void *)object;
    if ((size_t)set->used != image->count || set->table != image->table ||
        (size_t)set->mask != image->mask)
        return false;
    for (size_t i = 0; i < image->count; i++)
        if (set->table[image->list[i].slot].key != image->list[i].key)
            return false;
    return true;
}
