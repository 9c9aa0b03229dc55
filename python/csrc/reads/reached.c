/* SPDX-License-Identifier: MIT */
#include "reads/reached.h"

#include "base/members.h"
#include "reads/layouts.h"

/* What is noted of one function, or of one object, and so on. */
enum { OF_FUNCTION = 5, OF_OBJECT = 4, OF_PAIR = 2 };
enum { CODE = 0, DEFAULTS = 1, BY_NAME = 2 }; /* of the parts of a function */

static struct {
    PyObject *dict, *bases;
} says;

static bool append(PyObject *list, PyObject *const *objects, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (PyList_Append(list, objects[i] ? objects[i] : Py_None) != 0)
            return false;
    return true;
}

static bool is_bare(PyObject *attributes)
{
    return attributes && PyDict_Check(attributes) && PyDict_Size(attributes) == 0;
}

/* A copy of a dict; None where it is none. NULL with an exception set. */
static PyObject *copy_of(PyObject *dict)
{
    return dict && PyDict_Check(dict) ? PyDict_Copy(dict) : Py_NewRef(Py_None);
}

bool rpp_note_function(PyObject *functions, PyObject *function, PyObject *parts,
                       PyObject *attributes)
{
    rpp_assert_gil();
    if (!functions || functions == Py_None)
        return true;
    PyObject *by_name = copy_of(PyTuple_GetItem(parts, BY_NAME));
    PyObject *held = is_bare(attributes) ? Py_NewRef(Py_True) : copy_of(attributes);
    PyObject *const noted[OF_FUNCTION] = {function, parts, attributes, held, by_name};
    bool worked = by_name && held && append(functions, noted, OF_FUNCTION);
    Py_XDECREF(by_name);
    Py_XDECREF(held);
    return worked;
}

bool rpp_note_object(PyObject *objects, PyObject *object, PyObject *attributes)
{
    rpp_assert_gil();
    if (!objects || objects == Py_None)
        return true;
    PyObject *const noted[OF_OBJECT] = {object, (PyObject *)Py_TYPE(object), attributes,
                                        is_bare(attributes) ? Py_True : Py_False};
    return append(objects, noted, OF_OBJECT);
}

static bool has_items(PyObject *now, PyObject *copy)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    if (!PyDict_Check(copy))
        return true;
    if (!now || !PyDict_Check(now) || PyDict_Size(now) != PyDict_Size(copy))
        return false;
    while (PyDict_Next(copy, &at, &key, &value))
        if (PyDict_GetItemWithError(now, key) != value)
            return false;
    return true;
}

/* Has it that dict, which is empty still where held is True, and has what a dict has that held is? No
 * exception is set. */
static bool has_dict(PyObject *object, PyObject *attributes, PyObject *held)
{
    if (attributes == Py_None)
        return true;
    PyObject *now = PyObject_GetAttr(object, says.dict);
    bool is_same =
        now == attributes && (held == Py_True ? PyDict_Size(now) == 0 : has_items(now, held));
    Py_XDECREF(now);
    PyErr_Clear();
    return is_same;
}

static bool is_function(PyObject *const *noted)
{
    PyObject *now = rpp_parts_of(NULL, noted[0]);
    bool is_same = now != NULL;
    for (Py_ssize_t i = CODE; is_same && i <= BY_NAME; i++)
        is_same = PyTuple_GetItem(now, i) == PyTuple_GetItem(noted[1], i);
    is_same = is_same && has_items(PyTuple_GetItem(now, BY_NAME), noted[4]) &&
              has_dict(noted[0], noted[2], noted[3]);
    Py_XDECREF(now);
    PyErr_Clear();
    return is_same;
}

static bool is_object(PyObject *const *noted)
{
    return (PyObject *)Py_TYPE(noted[0]) == noted[1] && has_dict(noted[0], noted[2], noted[3]);
}

static bool has_keys(PyObject *const *noted)
{
    PyObject *key;
    Py_ssize_t at = 0, i = 0, count = PyList_Size(noted[1]);
    if (PyDict_Size(noted[0]) != count)
        return false;
    while (i < count && PyDict_Next(noted[0], &at, &key, NULL))
        if (key != PyList_GetItem(noted[1], i++))
            return false;
    return i == count;
}

static bool inherits(PyObject *const *noted)
{
    PyObject *now = PyObject_GetAttr(noted[0], says.bases);
    bool is_same = now == noted[1];
    Py_XDECREF(now);
    PyErr_Clear();
    return is_same;
}

static bool are(PyObject *list, Py_ssize_t of_one, bool (*is)(PyObject *const *noted))
{
    PyObject *noted[OF_FUNCTION];
    for (Py_ssize_t i = 0; i + of_one <= PyList_Size(list); i += of_one) {
        for (Py_ssize_t k = 0; k < of_one; k++)
            noted[k] = PyList_GetItem(list, i + k);
        if (!is(noted))
            return false;
    }
    return true;
}

PyObject *rpp_is_as_reached(PyObject *module, PyObject *args)
{
    PyObject *functions, *objects, *globals, *classes;
    rpp_assert_gil();
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!O!O!", &PyList_Type, &functions, &PyList_Type, &objects,
                          &PyList_Type, &globals, &PyList_Type, &classes))
        return NULL;
    return PyBool_FromLong(are(functions, OF_FUNCTION, is_function) &&
                           are(objects, OF_OBJECT, is_object) && are(globals, OF_PAIR, has_keys) &&
                           are(classes, OF_PAIR, inherits));
}

int rpp_prepare_reached(void)
{
    static const struct rpp_text_at words[] = {{&says.dict, "__dict__"}, {&says.bases, "__mro__"}};
    return rpp_intern(words, sizeof words / sizeof *words) ? 0 : -1;
}
