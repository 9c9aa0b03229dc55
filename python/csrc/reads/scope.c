/* SPDX-License-Identifier: MIT */
#include "reads/scope.h"

#include <stddef.h>
#include <structmember.h>

static PyTypeObject *scope_type;
static PyObject *no_names; /* an empty frozenset */

bool rpp_is_scope(PyObject *object)
{
    rpp_assert_gil();
    return Py_TYPE(object) == scope_type;
}

struct rpp_scope *rpp_scope_new(PyObject *object, PyObject *names, PyObject *path, PyObject *own,
                                PyObject *skips)
{
    rpp_assert_gil();
    struct rpp_scope *scope = (struct rpp_scope *)rpp_allocate(scope_type);
    if (!scope)
        return NULL;
    scope->object = Py_NewRef(object);
    scope->names = Py_NewRef(names);
    scope->path = Py_NewRef(path);
    scope->own = Py_NewRef(own);
    scope->skips = Py_NewRef(skips);
    scope->done = Py_NewRef(no_names);
    scope->done_is_shared = true;
    return scope;
}

/* A set of its own to add to. */
static bool own_done(struct rpp_scope *scope)
{
    if (!scope->done_is_shared)
        return true;
    PyObject *made = PySet_New(scope->done), *gone = scope->done;
    if (!made)
        return false;
    scope->done = made;
    scope->done_is_shared = false;
    Py_DECREF(gone);
    return true;
}

bool rpp_scope_note(struct rpp_scope *scope, PyObject *names)
{
    rpp_assert_gil();
    Py_ssize_t count = PySequence_Size(names);
    bool worked = count <= 0 || own_done(scope);
    for (Py_ssize_t i = 0; worked && i < count; i++) {
        PyObject *name = PySequence_GetItem(names, i);
        worked = name && PySet_Add(scope->done, name) == 0;
        Py_XDECREF(name);
    }
    return worked && count >= 0;
}

/* Scope(object, names, path, way, shallow, own, is_open, inherits, skips) */
static PyObject *scope_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)type; /* none is below it */
    static char *names_of[] = {"object", "names",   "path",     "way",   "shallow",
                               "own",    "is_open", "inherits", "skips", NULL};
    PyObject *object, *names, *path, *own = no_names, *skips = no_names;
    int way, shallow = 0, is_open = 0, inherits = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOUi|pOppO", names_of, &object, &names, &path,
                                     &way, &shallow, &own, &is_open, &inherits, &skips))
        return NULL;
    if ((names != Py_None && !PyDict_Check(names)) || !PyFrozenSet_Check(own) ||
        !PyFrozenSet_Check(skips))
        return PyErr_Format(PyExc_TypeError, "Scope takes a dict or None, and frozensets");
    struct rpp_scope *scope = rpp_scope_new(object, names, path, own, skips);
    if (!scope)
        return NULL;
    scope->way = way;
    scope->shallow = (char)shallow;
    scope->is_open = (char)is_open;
    scope->inherits = (char)inherits;
    return (PyObject *)scope;
}

static PyObject *scope_get_own(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(((struct rpp_scope *)self)->own);
}

static int scope_set_own(PyObject *self, PyObject *own, void *unused)
{
    (void)unused;
    if (!own || !PyFrozenSet_Check(own)) {
        PyErr_SetString(PyExc_TypeError, "own is a frozenset");
        return -1;
    }
    struct rpp_scope *scope = (struct rpp_scope *)self;
    PyObject *gone = scope->own;
    scope->own = Py_NewRef(own);
    Py_XDECREF(gone);
    return 0;
}

static int scope_traverse(PyObject *self, visitproc visit, void *arg)
{
    const struct rpp_scope *scope = (struct rpp_scope *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(scope->object);
    Py_VISIT(scope->names);
    Py_VISIT(scope->own);
    Py_VISIT(scope->skips);
    Py_VISIT(scope->done);
    return 0;
}

static int scope_clear(PyObject *self)
{
    struct rpp_scope *scope = (struct rpp_scope *)self;
    Py_CLEAR(scope->object);
    Py_CLEAR(scope->names);
    Py_CLEAR(scope->path);
    Py_CLEAR(scope->own);
    Py_CLEAR(scope->skips);
    Py_CLEAR(scope->done);
    return 0;
}

static void scope_dealloc(PyObject *self)
{
    rpp_deallocate(self, scope_clear);
}

/* look_again(): it may have come to have names since it was looked at. */
static PyObject *scope_look_again(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct rpp_scope *scope = (struct rpp_scope *)self;
    scope->at.names = scope->lacks_at.names = -1;
    scope->listed = scope->possible = 0;
    scope->own_seen = NULL;
    return Py_NewRef(Py_None);
}

/* note(names): it was looked up by them. */
static PyObject *scope_note(PyObject *self, PyObject *names)
{
    PyObject *list = PySequence_List(names);
    bool worked = list && rpp_scope_note((struct rpp_scope *)self, list);
    Py_XDECREF(list);
    return worked ? Py_NewRef(Py_None) : NULL;
}

int rpp_add_scope_type(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"note", scope_note, METH_O, "note(names): it was looked up by them."},
        {"look_again", scope_look_again, METH_NOARGS,
         "look_again(): it may have come to have names since it was looked at."},
        {NULL, NULL, 0, NULL},
    };
    static PyMemberDef members[] = {
        {"object", T_OBJECT, offsetof(struct rpp_scope, object), READONLY, NULL},
        {"names", T_OBJECT, offsetof(struct rpp_scope, names), READONLY, NULL},
        {"path", T_OBJECT, offsetof(struct rpp_scope, path), READONLY, NULL},
        {"done", T_OBJECT, offsetof(struct rpp_scope, done), READONLY, NULL},
        {"way", T_INT, offsetof(struct rpp_scope, way), READONLY, NULL},
        {"shallow", T_BOOL, offsetof(struct rpp_scope, shallow), READONLY, NULL},
        {"is_open", T_BOOL, offsetof(struct rpp_scope, is_open), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyGetSetDef accessors[] = {
        {"own", scope_get_own, scope_set_own, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)scope_new},
        {Py_tp_dealloc, (void *)scope_dealloc},
        {Py_tp_traverse, (void *)scope_traverse},
        {Py_tp_clear, (void *)scope_clear},
        {Py_tp_members, members},
        {Py_tp_methods, methods},
        {Py_tp_getset, accessors},
        {Py_tp_doc, "An object whose attributes are looked up by names."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Scope", sizeof(struct rpp_scope), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
    scope_type = (PyTypeObject *)PyType_FromSpec(&spec);
    no_names = PyFrozenSet_New(NULL);
    return scope_type && no_names ? PyModule_AddType(module, scope_type) : -1;
}
