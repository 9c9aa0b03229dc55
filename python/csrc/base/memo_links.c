/* SPDX-License-Identifier: MIT */
#include "base/memo_links.h"

#include <stdbool.h>

/* Behind the object's head: the link before it in the list, and the one behind it. */
struct link {
    PyObject_HEAD struct link *before, *behind;
};

static PyTypeObject *type_of_links; /* for ever; NULL: it was not learned */

static bool are_neighbours(PyObject *first, PyObject *second)
{
    return ((struct link *)first)->behind == (struct link *)second &&
           ((struct link *)second)->before == (struct link *)first;
}

PyObject *rpp_learn_links(PyObject *module, PyObject *links)
{
    rpp_assert_gil();
    (void)module;
    if (!PyTuple_Check(links) || PyTuple_Size(links) != 3)
        return PyErr_Format(PyExc_TypeError, "learn_links takes three links of a cache");
    PyObject *first = PyTuple_GetItem(links, 0), *second = PyTuple_GetItem(links, 1);
    PyObject *third = PyTuple_GetItem(links, 2);
    PyTypeObject *type = Py_TYPE(second);
    bool is_one_type = Py_TYPE(first) == type && Py_TYPE(third) == type;
    if (!type_of_links && is_one_type && are_neighbours(first, second) &&
        are_neighbours(second, third)) {
        Py_INCREF(type);
        type_of_links = type;
    }
    return PyBool_FromLong(type_of_links != NULL);
}

PyObject *rpp_unlink(PyObject *module, PyObject *object)
{
    rpp_assert_gil();
    (void)module;
    struct link *link = (struct link *)object;
    if (!type_of_links || Py_TYPE(object) != type_of_links || link->before->behind != link ||
        link->behind->before != link)
        return Py_NewRef(Py_False);
    link->before->behind = link->behind;
    link->behind->before = link->before;
    link->before = link->behind = link; /* what is in no list */
    Py_DECREF(object);                  /* the list's reference; the caller has one */
    return Py_NewRef(Py_True);
}
