/* SPDX-License-Identifier: MIT */
#include "reads/record.h"

#include <stddef.h>
#include <structmember.h>

static PyTypeObject *record_type;

/* ---- Paths --------------------------------------------------------------------------------- */

PyObject *rpp_path_new(PyTypeObject *type, PyObject *above, PyObject *form, PyObject *name)
{
    rpp_assert_gil();
    struct rpp_path *path = (struct rpp_path *)rpp_allocate(type);
    if (path) {
        path->above = Py_NewRef(above);
        path->form = Py_NewRef(form);
        path->name = Py_NewRef(name);
    }
    return (PyObject *)path;
}

static PyObject *path_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *above, *form, *name;
    if (!PyArg_ParseTuple(args, "OOO", &above, &form, &name))
        return NULL;
    return rpp_path_new(type, above, form, name);
}

static int path_traverse(PyObject *self, visitproc visit, void *arg)
{
    const struct rpp_path *path = (struct rpp_path *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(path->above);
    Py_VISIT(path->form);
    Py_VISIT(path->name);
    return 0;
}

static int path_clear(PyObject *self)
{
    struct rpp_path *path = (struct rpp_path *)self;
    Py_CLEAR(path->above);
    Py_CLEAR(path->form);
    Py_CLEAR(path->name);
    return 0;
}

static void path_dealloc(PyObject *self)
{
    rpp_deallocate(self, path_clear);
}

/* ---- Records ------------------------------------------------------------------------------- */

PyObject *rpp_record_new(PyTypeObject *type, PyObject *owner, PyObject *path, PyObject *held)
{
    rpp_assert_gil();
    struct rpp_record *record = (struct rpp_record *)rpp_allocate(type);
    if (record) {
        record->owner = Py_NewRef(owner);
        record->path = Py_NewRef(path);
        record->held = Py_NewRef(held);
    }
    return (PyObject *)record;
}

/* What the class of Python's is given is its affair. */
static PyObject *record_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    return rpp_record_new(type, Py_None, Py_None, Py_None);
}

static int record_traverse(PyObject *self, visitproc visit, void *arg)
{
    const struct rpp_record *record = (struct rpp_record *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(record->owner);
    Py_VISIT(record->path);
    Py_VISIT(record->held);
    Py_VISIT(record->form);
    Py_VISIT(record->alike);
    return 0;
}

static int record_clear(PyObject *self)
{
    struct rpp_record *record = (struct rpp_record *)self;
    Py_CLEAR(record->owner);
    Py_CLEAR(record->path);
    Py_CLEAR(record->held);
    Py_CLEAR(record->form);
    Py_CLEAR(record->alike);
    return 0;
}

static void record_dealloc(PyObject *self)
{
    rpp_deallocate(self, record_clear);
}

bool rpp_is_record(PyObject *object)
{
    rpp_assert_gil();
    return PyObject_TypeCheck(object, record_type);
}

/* ---- The types ----------------------------------------------------------------------------- */

static PyTypeObject *add_path_type(PyObject *module)
{
    static PyMemberDef members[] = {
        {"above", T_OBJECT, offsetof(struct rpp_path, above), READONLY, NULL},
        {"form", T_OBJECT, offsetof(struct rpp_path, form), READONLY, NULL},
        {"name", T_OBJECT, offsetof(struct rpp_path, name), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)path_make},
        {Py_tp_dealloc, (void *)path_dealloc},
        {Py_tp_traverse, (void *)path_traverse},
        {Py_tp_clear, (void *)path_clear},
        {Py_tp_members, members},
        {Py_tp_doc, "How the program would write where something is."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Path", sizeof(struct rpp_path), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                               slots};
    PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(&spec);
    return type && PyModule_AddType(module, type) == 0 ? type : NULL;
}

static PyTypeObject *add_record_type(PyObject *module)
{
    static PyMemberDef members[] = {
        {"owner", T_OBJECT, offsetof(struct rpp_record, owner), 0, NULL},
        {"path", T_OBJECT, offsetof(struct rpp_record, path), 0, NULL},
        {"held", T_OBJECT, offsetof(struct rpp_record, held), 0, NULL},
        {"form", T_OBJECT, offsetof(struct rpp_record, form), 0, NULL},
        {"alike", T_OBJECT, offsetof(struct rpp_record, alike), 0, NULL},
        {"registered", T_BOOL, offsetof(struct rpp_record, registered), 0, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)record_make},
        {Py_tp_dealloc, (void *)record_dealloc},
        {Py_tp_traverse, (void *)record_traverse},
        {Py_tp_clear, (void *)record_clear},
        {Py_tp_members, members},
        {Py_tp_doc, "An owner, and what it held when this was made."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Record", sizeof(struct rpp_record), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                               slots};
    PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(&spec);
    return type && PyModule_AddType(module, type) == 0 ? type : NULL;
}

int rpp_add_record_types(PyObject *module)
{
    PyTypeObject *path = add_path_type(module);
    record_type = add_record_type(module);
    Py_XDECREF(path); /* the module has it */
    return path && record_type ? 0 : -1;
}
