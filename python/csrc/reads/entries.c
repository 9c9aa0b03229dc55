/* SPDX-License-Identifier: MIT */
#include "reads/entries.h"

#include "reads/dicts.h"

struct entry {
    PyObject *key;
    PyObject *known; /* borrowed, or among those that are kept; NULL: it does not matter */
};

struct rpp_entries {
    PyObject *kept; /* a list of numbers and texts */
    size_t count;
    struct entry list[];
};

static PyObject *led_to(PyObject *known)
{
    return PyWeakref_CheckRefExact(known) ? PyWeakref_GetObject(known) : known;
}

static bool is_plain(PyObject *value)
{
    return PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyUnicode_CheckExact(value) ||
           PyBytes_CheckExact(value);
}

static bool is_same_text(PyObject *a, PyObject *b)
{
    return a == b || (PyUnicode_CheckExact(a) && PyUnicode_Compare(a, b) == 0);
}

/* What is known of this key's value; NULL: nothing. */
static PyObject *known_of(PyObject *key, size_t at, const struct rpp_known *known)
{
    if (!known->keys)
        return PyTuple_GetItem(known->values, (Py_ssize_t)at);
    for (Py_ssize_t i = 0; i < PyTuple_Size(known->keys); i++)
        if (is_same_text(PyTuple_GetItem(known->keys, i), key))
            return PyTuple_GetItem(known->values, i);
    return NULL;
}

/* Notes what is known of a value, by which it is compared from now on. Another object that is an
 * equal number or text is kept itself. */
static void note(const struct rpp_entries *entries, struct entry *entry, PyObject *value,
                 PyObject *known)
{
    bool is_itself = known == value || (known && led_to(known) == value);
    if (known && !is_itself && is_plain(value) && PyList_Append(entries->kept, value) == 0)
        known = value;
    if (known)
        entry->known = known;
}

struct rpp_entries *rpp_entries_take(PyObject *dict, const struct rpp_known *known, size_t count)
{
    rpp_assert_gil();
    PyObject *key, *value;
    size_t room = (size_t)PyDict_Size(dict);
    struct rpp_entries *made = PyMem_Calloc(1, sizeof *made + room * sizeof *made->list);
    if (made && !(made->kept = PyList_New(0))) {
        rpp_entries_drop(made);
        PyErr_Clear();
        return NULL;
    }
    for (Py_ssize_t at = 0; made && PyDict_Next(dict, &at, &key, &value);) {
        if (!PyUnicode_CheckExact(key)) {
            rpp_entries_drop(made);
            return NULL;
        }
        struct entry *entry = &made->list[made->count];
        entry->key = Py_NewRef(key);
        for (size_t i = 0; i < count; i++)
            note(made, entry, value, known_of(key, made->count, &known[i]));
        made->count++;
    }
    PyErr_Clear();
    if (made && !rpp_entries_hold(made, dict)) {
        rpp_entries_drop(made);
        return NULL;
    }
    return made;
}

bool rpp_entries_hold(const struct rpp_entries *entries, PyObject *dict)
{
    rpp_assert_gil();
    PyObject *key, *value;
    if ((size_t)PyDict_Size(dict) != entries->count)
        return false;
    const struct entry *entry = entries->list;
    for (struct rpp_items items = rpp_items_of(dict); rpp_items_next(&items, &key, &value); entry++)
        if (key != entry->key || (entry->known && entry->known != value &&
                                  (value == Py_None || led_to(entry->known) != value)))
            return false;
    return true;
}

void rpp_entries_prefetch(const struct rpp_entries *entries, PyObject *dict)
{
    if (!entries)
        return;
    size_t count = (size_t)PyDict_Size(dict);
    rpp_prefetch(entries, sizeof *entries + count * sizeof *entries->list);
    rpp_items_prefetch(dict, count);
}

void rpp_entries_drop(struct rpp_entries *entries)
{
    rpp_assert_gil();
    if (!entries)
        return;
    for (size_t i = 0; i < entries->count; i++)
        Py_DECREF(entries->list[i].key);
    Py_XDECREF(entries->kept);
    PyMem_Free(entries);
}
