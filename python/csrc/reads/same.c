/* SPDX-License-Identifier: MIT */
#include "reads/same.h"

#include <stddef.h>
#include <structmember.h>

/* ---- Same ---------------------------------------------------------------------------------- */

struct same {
    PyObject_HEAD PyObject *object;
};

static PyTypeObject *same_type;

static PyObject *same_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *object;
    if (!PyArg_ParseTuple(args, "O", &object))
        return NULL;
    struct same *same = (struct same *)rpp_allocate(type);
    if (same)
        same->object = Py_NewRef(object);
    return (PyObject *)same;
}

static PyObject *same_compare(PyObject *one, PyObject *other, int operation)
{
    if ((operation != Py_EQ && operation != Py_NE) || Py_TYPE(other) != same_type)
        return Py_NewRef(Py_NotImplemented);
    bool is_same = ((struct same *)one)->object == ((struct same *)other)->object;
    return PyBool_FromLong(is_same == (operation == Py_EQ));
}

/* Addresses are multiples of 16. */
static Py_hash_t same_hash(PyObject *self)
{
    uintptr_t at = (uintptr_t)((struct same *)self)->object;
    return (Py_hash_t)(at >> 4 | at << (8 * sizeof at - 4)) | 1;
}

static PyObject *same_repr(PyObject *self)
{
    PyObject *type = (PyObject *)Py_TYPE(((struct same *)self)->object);
    PyObject *name = PyObject_GetAttrString(type, "__name__");
    PyObject *text = name ? PyUnicode_FromFormat("<%U>", name) : NULL;
    Py_XDECREF(name);
    return text;
}

static int same_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct same *)self)->object);
    return 0;
}

static int same_clear(PyObject *self)
{
    Py_CLEAR(((struct same *)self)->object);
    return 0;
}

static void same_dealloc(PyObject *self)
{
    rpp_deallocate(self, same_clear);
}

int rpp_add_same_type(PyObject *module)
{
    static PyMemberDef members[] = {
        {"object", T_OBJECT, offsetof(struct same, object), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)same_new},
        {Py_tp_dealloc, (void *)same_dealloc},
        {Py_tp_traverse, (void *)same_traverse},
        {Py_tp_clear, (void *)same_clear},
        {Py_tp_richcompare, (void *)same_compare},
        {Py_tp_hash, (void *)same_hash},
        {Py_tp_repr, (void *)same_repr},
        {Py_tp_members, members},
        {Py_tp_doc, "An object by its identity; it lives as long as this."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Same", sizeof(struct same), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
    same_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return same_type ? PyModule_AddType(module, same_type) : -1;
}

/* ---- What was seen ------------------------------------------------------------------------- */

enum { LEAST_ROOM = 256 };

/* Where an object is, or would be. */
static struct rpp_seen_entry *entry_of(const struct rpp_seen *seen, const PyObject *object)
{
    size_t at = (size_t)((uintptr_t)object * UINT64_C(0x9e3779b97f4a7c15) >> 20);
    for (;; at++) {
        struct rpp_seen_entry *entry = &seen->list[at & (seen->room - 1)];
        if (!entry->object || entry->object == object)
            return entry;
    }
}

/* Makes room for one more; at most half of it is used. */
static bool grow(struct rpp_seen *seen)
{
    if (2 * (seen->count + 1) <= seen->room)
        return true;
    struct rpp_seen wider = {.room = seen->room ? 2 * seen->room : LEAST_ROOM};
    wider.list = PyMem_Calloc(wider.room, sizeof *wider.list);
    if (!wider.list) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < seen->room; i++)
        if (seen->list[i].object)
            *entry_of(&wider, seen->list[i].object) = seen->list[i];
    PyMem_Free(seen->list);
    seen->list = wider.list;
    seen->room = wider.room;
    return true;
}

/* Is another object by now where one was that nobody kept? */
static bool is_gone(const struct rpp_seen_entry *entry)
{
    return entry->weak && PyWeakref_GetObject(entry->weak) != entry->object;
}

bool rpp_seen_add(struct rpp_seen *seen, PyObject *object, size_t *out_number)
{
    rpp_assert_gil();
    if (!grow(seen))
        return false;
    struct rpp_seen_entry *entry = entry_of(seen, object);
    bool is_new = !entry->object || is_gone(entry);
    if (is_new) {
        PyObject *weak = entry->weak;
        *entry = (struct rpp_seen_entry){.object = Py_NewRef(object), .number = seen->count++};
        Py_XDECREF(weak);
    }
    *out_number = entry->number;
    return is_new;
}

bool rpp_seen_has(const struct rpp_seen *seen, const PyObject *object)
{
    const struct rpp_seen_entry *entry = seen->room ? entry_of(seen, object) : NULL;
    return entry && entry->object && !is_gone(entry);
}

bool rpp_seen_weaken(struct rpp_seen *seen, PyTypeObject *type)
{
    rpp_assert_gil();
    for (size_t i = 0; i < seen->room; i++) {
        struct rpp_seen_entry *entry = &seen->list[i];
        if (!entry->object || entry->weak || !PyType_IsSubtype(Py_TYPE(entry->object), type))
            continue;
        entry->weak = PyWeakref_NewRef(entry->object, NULL);
        if (!entry->weak)
            return false;
        Py_DECREF(entry->object);
    }
    return true;
}

int rpp_seen_visit(const struct rpp_seen *seen, visitproc visit, void *arg)
{
    for (size_t i = 0; i < seen->room; i++)
        Py_VISIT(seen->list[i].weak ? seen->list[i].weak : seen->list[i].object);
    return 0;
}

void rpp_seen_clear(struct rpp_seen *seen)
{
    struct rpp_seen gone = *seen;
    *seen = (struct rpp_seen){0};
    for (size_t i = 0; i < gone.room; i++)
        Py_XDECREF(gone.list[i].weak ? gone.list[i].weak : gone.list[i].object);
    PyMem_Free(gone.list);
}
