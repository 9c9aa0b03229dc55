/* SPDX-License-Identifier: MIT */
#include "reads/order.h"

/* What an OrderedDict has behind the dict that it is, in words. */
enum { FIRST, LAST, NODES, ROOM, SENTINEL, COUNT, INSTANCE_DICT, WEAK_REFERENCES, WORDS };

static struct {
    PyTypeObject *type; /* NULL: the word is not known */
    size_t at;          /* of the first of these */
} state;

static uint64_t word_of(const void *ordered, size_t which)
{
    return ((const uint64_t *)ordered)[state.at + which];
}

/* Its end is one of the list that was emptied, which is not counted. */
uint64_t rpp_order_tag(const void *ordered)
{
    return word_of(ordered, COUNT) + (word_of(ordered, FIRST) ? 1 : UINT64_C(1) << 63);
}

bool rpp_has_order_tag(PyObject *object)
{
    rpp_assert_gil();
    return state.type && PyType_IsSubtype(Py_TYPE(object), state.type);
}

/* ---- The proof ----------------------------------------------------------------------------- */

static size_t size_of(PyObject *type)
{
    PyObject *bytes = PyObject_GetAttrString(type, "__basicsize__");
    size_t size = bytes ? PyLong_AsSize_t(bytes) : 0;
    Py_XDECREF(bytes);
    return size;
}

/* Does a method move the count by so much? */
static bool counts(PyObject *ordered, const char *method, const char *key, PyObject *value,
                   uint64_t by)
{
    uint64_t before = word_of(ordered, COUNT);
    PyObject *made = value ? PyObject_CallMethod(ordered, method, "sO", key, value)
                           : PyObject_CallMethod(ordered, method, "s", key);
    bool right = made && word_of(ordered, COUNT) == before + by;
    Py_XDECREF(made);
    return right;
}

static bool is_proved(PyObject *ordered)
{
    if (word_of(ordered, COUNT) || word_of(ordered, FIRST) || word_of(ordered, LAST))
        return false;
    return counts(ordered, "__setitem__", "a", Py_True, 1) &&
           word_of(ordered, FIRST) == word_of(ordered, LAST) && word_of(ordered, FIRST) &&
           counts(ordered, "__setitem__", "b", Py_True, 1) &&
           word_of(ordered, FIRST) != word_of(ordered, LAST) &&
           counts(ordered, "__setitem__", "a", Py_None, 0) &&
           counts(ordered, "__getitem__", "b", NULL, 0) &&
           counts(ordered, "move_to_end", "a", NULL, 2) &&
           counts(ordered, "setdefault", "c", Py_None, 1) &&
           counts(ordered, "move_to_end", "c", Py_False, 2) &&
           counts(ordered, "__delitem__", "a", NULL, 1) && counts(ordered, "pop", "b", NULL, 1);
}

void rpp_orders_prepare(void)
{
    rpp_assert_gil();
    PyObject *collections = PyImport_ImportModule("collections");
    PyObject *type = collections ? PyObject_GetAttrString(collections, "OrderedDict") : NULL;
    PyObject *made = type ? PyObject_CallObject(type, NULL) : NULL;
    size_t inside = size_of((PyObject *)&PyDict_Type), whole = type ? size_of(type) : 0;
    if (made && inside % sizeof(uint64_t) == 0 && whole == inside + WORDS * sizeof(uint64_t)) {
        state.at = inside / sizeof(uint64_t);
        if (is_proved(made))
            state.type = (PyTypeObject *)Py_NewRef(type);
    }
    Py_XDECREF(made);
    Py_XDECREF(type);
    Py_XDECREF(collections);
    PyErr_Clear();
}
