/* SPDX-License-Identifier: MIT */
#include "call/builder.h"

#include <assert.h>

/* As in python/reprise/_base/tree.py. */
enum kind { TUPLE, LIST, DICT, NAMED, OTHER, LEAF, NONE, OBJECT, KINDS };
/* As in python/reprise/_shapes/shape.py. */
enum source { MADE, VALUE, AGAIN, VIEW, GIVEN, SOURCES };
enum { DEEPEST = 64 };

/* Where a leaf comes from. */
struct leaf {
    enum source source;
    size_t number;   /* of the tensor that was made, of the leaf that it is again */
    PyObject *value; /* of a VALUE; of a VIEW how it lies; of GIVEN the index or name */
};

/* How a container of a class of others' is made. */
struct record {
    bool is_asked;        /* whether it is a record: `attributes` if so */
    PyObject *attributes; /* a tuple of names */
    Py_ssize_t *parts;    /* of each attribute its part; -1: None */
};

struct node {
    enum kind kind;
    size_t count, number; /* of parts; of an object, or a leaf */
    struct node *parts;
    PyObject *type, *names; /* names: keys, attributes, or the context of others' */
    struct record record;
};

struct builder {
    PyObject_HEAD struct node root;
    size_t takes, leaf_count, object_count;
    struct leaf *leaves;
    PyObject *within, *other, *record; /* functions */
};

/* One result, while it is made: references that end with it. */
struct making {
    PyObject **leaves, **objects;
};

static PyTypeObject *builder_type;
static PyObject *no_arguments;
static objobjargproc set_item; /* of an OrderedDict */

/* ---- Leaves -------------------------------------------------------------------------------- */

static PyObject *given(PyObject *way, PyObject *args, PyObject *kwargs)
{
    if (PyLong_CheckExact(way))
        return Py_XNewRef(PyTuple_GetItem(args, PyLong_AsSsize_t(way)));
    PyObject *value = PyDict_GetItemWithError(kwargs, way);
    if (!value && !PyErr_Occurred())
        PyErr_SetObject(PyExc_KeyError, way);
    return Py_XNewRef(value);
}

/* A new reference; NULL with an exception set. */
static PyObject *make_leaf(const struct builder *builder, const struct leaf *leaf,
                           const struct making *making, PyObject *const *tensors, PyObject *args,
                           PyObject *kwargs)
{
    switch (leaf->source) {
    case MADE:
        return Py_NewRef(tensors[leaf->number]);
    case VALUE:
        return Py_NewRef(leaf->value);
    case AGAIN:
        return Py_NewRef(making->leaves[leaf->number]);
    case VIEW:
        return PyObject_CallFunctionObjArgs(builder->within, tensors[leaf->number], leaf->value,
                                            NULL);
    default:
        return given(leaf->value, args, kwargs);
    }
}

/* ---- Containers ---------------------------------------------------------------------------- */

static PyObject *make(struct builder *builder, struct node *node, struct making *making);

/* The parts in a new tuple or list. */
static PyObject *make_sequence(struct builder *builder, struct node *node, struct making *making,
                               PyObject *(*begin)(Py_ssize_t count),
                               int (*set)(PyObject *sequence, Py_ssize_t i, PyObject *part))
{
    PyObject *made = begin((Py_ssize_t)node->count);
    for (size_t i = 0; made && i < node->count; i++) {
        PyObject *part = make(builder, &node->parts[i], making);
        if (!part)
            Py_CLEAR(made);
        else
            set(made, (Py_ssize_t)i, part);
    }
    return made;
}

static PyObject *make_tuple(struct builder *builder, struct node *node, struct making *making)
{
    return make_sequence(builder, node, making, PyTuple_New, PyTuple_SetItem);
}

static PyObject *make_list(struct builder *builder, struct node *node, struct making *making)
{
    return make_sequence(builder, node, making, PyList_New, PyList_SetItem);
}

/* Sets the parts by the node's names; false with an exception set. */
static bool fill(struct builder *builder, struct node *node, struct making *making, PyObject *dict)
{
    for (size_t i = 0; i < node->count; i++) {
        PyObject *part = make(builder, &node->parts[i], making);
        int set =
            part ? PyDict_SetItem(dict, PyTuple_GetItem(node->names, (Py_ssize_t)i), part) : -1;
        Py_XDECREF(part);
        if (set != 0)
            return false;
    }
    return true;
}

static PyObject *make_dict(struct builder *builder, struct node *node, struct making *making)
{
    PyObject *made = PyDict_New();
    if (made && !fill(builder, node, making, made))
        Py_CLEAR(made);
    return made;
}

/* An object of a class, without its __init__. */
static PyObject *new_object(PyObject *type)
{
    newfunc create = (newfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_new);
    return create((PyTypeObject *)type, no_arguments, NULL);
}

/* It is known by its number before its attributes are made, which may lead to it again. */
static PyObject *make_object(struct builder *builder, struct node *node, struct making *making)
{
    PyObject **known = &making->objects[node->number];
    if (!node->names) {
        assert(*known);
        return Py_NewRef(*known);
    }
    PyObject *made = new_object(node->type);
    if (!made)
        return NULL;
    PyObject *dict = PyObject_GenericGetDict(made, NULL);
    *known = made;
    bool filled = dict && fill(builder, node, making, dict);
    Py_XDECREF(dict);
    return filled ? Py_NewRef(made) : NULL;
}

/* A container as its class has it; parts: a tuple. */
static PyObject *make_other(const struct builder *builder, const struct node *node, PyObject *parts)
{
    return PyObject_CallFunctionObjArgs(builder->other, node->type, node->names, parts, NULL);
}

static PyObject *make_record(const struct node *node, PyObject *parts)
{
    const struct record *record = &node->record;
    PyObject *made = new_object(node->type);
    PyObject *dict = made ? PyObject_GenericGetDict(made, NULL) : NULL;
    bool done = dict;
    for (Py_ssize_t i = 0; done && i < PyTuple_Size(record->attributes); i++) {
        PyObject *name = PyTuple_GetItem(record->attributes, i);
        PyObject *part = record->parts[i] < 0 ? Py_None : PyTuple_GetItem(parts, record->parts[i]);
        done = PyDict_SetItem(dict, name, part) == 0 &&
               (record->parts[i] < 0 || set_item(made, name, part) == 0);
    }
    Py_XDECREF(dict);
    if (!done)
        Py_CLEAR(made);
    return made;
}

/* Asks of the first one that was made whether it is a record: for its attributes, (name, part or
 * -1) each in the order of both, or None. What goes wrong says no. */
static void learn_record(const struct builder *builder, struct node *node, PyObject *made,
                         PyObject *parts)
{
    struct record *record = &node->record;
    record->is_asked = true;
    PyObject *said =
        PyObject_CallFunctionObjArgs(builder->record, node->type, node->names, made, parts, NULL);
    Py_ssize_t count = said && PyTuple_Check(said) ? PyTuple_Size(said) : -1;
    PyObject *attributes = count < 0 ? NULL : PyTuple_New(count);
    Py_ssize_t *numbers = attributes ? PyMem_Calloc((size_t)count + 1, sizeof *numbers) : NULL;
    bool known = numbers && set_item;
    for (Py_ssize_t i = 0; known && i < count; i++) {
        PyObject *name;
        known = PyArg_ParseTuple(PyTuple_GetItem(said, i), "Un", &name, &numbers[i]) &&
                numbers[i] < (Py_ssize_t)node->count;
        if (known)
            PyTuple_SetItem(attributes, i, Py_NewRef(name));
    }
    Py_XDECREF(said);
    PyErr_Clear();
    if (known && !record->attributes) { /* nobody else was here meanwhile */
        record->parts = numbers;
        record->attributes = attributes;
        return;
    }
    PyMem_Free(numbers);
    Py_XDECREF(attributes);
}

/* As namedtuple's _make does: without the class's own __new__, which may make other parts of these. */
static PyObject *make_named(PyObject *type, PyObject *parts)
{
    newfunc create = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    PyObject *args = PyTuple_Pack(1, parts);
    PyObject *made = args ? create((PyTypeObject *)type, args, NULL) : NULL;
    Py_XDECREF(args);
    return made;
}

static PyObject *make_of_parts(struct builder *builder, struct node *node, struct making *making)
{
    PyObject *made = NULL, *parts = make_tuple(builder, node, making);
    if (parts && node->kind == NAMED)
        made = make_named(node->type, parts);
    else if (parts && node->record.attributes)
        made = make_record(node, parts);
    else if (parts)
        made = make_other(builder, node, parts);
    if (made && node->kind == OTHER && !node->record.is_asked)
        learn_record(builder, node, made, parts);
    Py_XDECREF(parts);
    return made;
}

/* A new reference; NULL with an exception set. */
static PyObject *make(struct builder *builder, struct node *node, struct making *making)
{
    switch (node->kind) {
    case TUPLE:
        return make_tuple(builder, node, making);
    case LIST:
        return make_list(builder, node, making);
    case DICT:
        return make_dict(builder, node, making);
    case LEAF:
        return Py_NewRef(making->leaves[node->number]);
    case NONE:
        return Py_NewRef(Py_None);
    case OBJECT:
        return make_object(builder, node, making);
    default:
        return make_of_parts(builder, node, making);
    }
}

bool rpp_is_builder(PyObject *object)
{
    rpp_assert_gil();
    return Py_TYPE(object) == builder_type;
}

size_t rpp_builder_takes(PyObject *builder)
{
    rpp_assert_gil();
    return ((struct builder *)builder)->takes;
}

PyObject *rpp_builder_make(PyObject *builder, PyObject *const *tensors, PyObject *args,
                           PyObject *kwargs)
{
    rpp_assert_gil();
    struct builder *self = (struct builder *)builder;
    size_t count = self->leaf_count + self->object_count;
    PyObject **room = PyMem_Calloc(count + 1, sizeof(PyObject *)), *made = NULL;
    if (!room)
        return PyErr_NoMemory();
    struct making making = {room, room + self->leaf_count};
    size_t done = 0;
    for (; done < self->leaf_count; done++) {
        const struct leaf *leaf = &self->leaves[done];
        room[done] = make_leaf(self, leaf, &making, tensors, args, kwargs);
        if (!room[done])
            break;
    }
    if (done == self->leaf_count)
        made = make(self, &self->root, &making);
    for (size_t i = 0; i < count; i++)
        Py_XDECREF(room[i]);
    PyMem_Free(room);
    return made;
}

/* ---- Reading what is built ----------------------------------------------------------------- */

static bool refuse(void)
{
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "this is no tree that a Builder knows");
    return false;
}

static bool read_node(struct builder *builder, struct node *node, PyObject *spec, size_t *leaves,
                      int depth);

static bool read_parts(struct builder *builder, struct node *node, PyObject *parts, size_t *leaves,
                       int depth)
{
    if (!PyTuple_Check(parts))
        return refuse();
    size_t count = (size_t)PyTuple_Size(parts);
    bool is_named = node->kind == DICT || (node->kind == OBJECT && node->names);
    if (is_named && (!PyTuple_Check(node->names) || (size_t)PyTuple_Size(node->names) != count))
        return refuse();
    node->parts = PyMem_Calloc(count + 1, sizeof *node->parts);
    if (!node->parts) {
        PyErr_NoMemory();
        return false;
    }
    for (node->count = 0; node->count < count;) {
        PyObject *part = PyTuple_GetItem(parts, (Py_ssize_t)node->count);
        if (!read_node(builder, &node->parts[node->count++], part, leaves, depth + 1))
            return false;
    }
    return true;
}

static bool read_object(struct builder *builder, struct node *node)
{
    if (node->names == Py_None) { /* it was there before */
        Py_CLEAR(node->names);
        return node->number < builder->object_count ? true : refuse();
    }
    if (node->number != builder->object_count || !PyType_Check(node->type))
        return refuse();
    builder->object_count++;
    return true;
}

/* Reads (kind, .., parts); false with an exception set. */
static bool read_node(struct builder *builder, struct node *node, PyObject *spec, size_t *leaves,
                      int depth)
{
    Py_ssize_t size = PyTuple_Check(spec) ? PyTuple_Size(spec) : 0, number = 0;
    long kind = size ? PyLong_AsLong(PyTuple_GetItem(spec, 0)) : -1;
    if (kind < 0 || kind >= KINDS || depth == DEEPEST)
        return refuse();
    node->kind = (enum kind)kind;
    node->number = *leaves;
    *leaves += node->kind == LEAF;
    if (node->kind == LEAF || node->kind == NONE)
        return true;
    static const Py_ssize_t sizes[KINDS] = {2, 2, 3, 3, 4, 1, 1, 5};
    if (size != sizes[kind])
        return refuse();
    if (node->kind == DICT)
        node->names = Py_NewRef(PyTuple_GetItem(spec, 1));
    if (node->kind >= NAMED)
        node->type = Py_NewRef(PyTuple_GetItem(spec, 1));
    if (node->kind == NAMED &&
        (!PyType_Check(node->type) || !PyType_IsSubtype((PyTypeObject *)node->type, &PyTuple_Type)))
        return refuse();
    if (node->kind == OTHER)
        node->names = Py_NewRef(PyTuple_GetItem(spec, 2));
    if (node->kind == OBJECT) {
        number = PyLong_AsSsize_t(PyTuple_GetItem(spec, 2));
        node->number = (size_t)number;
        node->names = Py_NewRef(PyTuple_GetItem(spec, 3));
        if (number < 0 || !read_object(builder, node))
            return refuse();
    }
    return read_parts(builder, node, PyTuple_GetItem(spec, size - 1), leaves, depth);
}

/* Reads (source, number, value) of each; false with an exception set. */
static bool read_leaves(struct builder *builder, PyObject *leaves)
{
    size_t count = (size_t)PyTuple_Size(leaves);
    builder->leaves = PyMem_Calloc(count + 1, sizeof *builder->leaves);
    if (!builder->leaves) {
        PyErr_NoMemory();
        return false;
    }
    while (builder->leaf_count < count) {
        struct leaf *leaf = &builder->leaves[builder->leaf_count];
        PyObject *value;
        Py_ssize_t number;
        int source;
        if (!PyArg_ParseTuple(PyTuple_GetItem(leaves, (Py_ssize_t)builder->leaf_count), "inO",
                              &source, &number, &value))
            return false;
        if (source < 0 || source >= SOURCES || number < 0 ||
            (source == AGAIN && (size_t)number >= builder->leaf_count) ||
            (source == GIVEN && !PyLong_CheckExact(value) && !PyUnicode_Check(value)))
            return refuse();
        leaf->source = (enum source)source;
        leaf->number = (size_t)number;
        leaf->value = Py_NewRef(value);
        builder->leaf_count++;
        if ((leaf->source == MADE || leaf->source == VIEW) && builder->takes <= leaf->number)
            builder->takes = leaf->number + 1;
    }
    return true;
}

/* ---- The type ------------------------------------------------------------------------------ */

/* Builder(spec, leaves, within, other, record) */
static PyObject *builder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *spec, *leaves, *within, *other, *record;
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "O!O!OOO", &PyTuple_Type, &spec, &PyTuple_Type, &leaves, &within,
                          &other, &record))
        return NULL;
    struct builder *builder = (struct builder *)rpp_allocate(type);
    if (!builder)
        return NULL;
    builder->within = Py_NewRef(within);
    builder->other = Py_NewRef(other);
    builder->record = Py_NewRef(record);
    if (read_leaves(builder, leaves) && read_node(builder, &builder->root, spec, &count, 0) &&
        (count == builder->leaf_count || refuse()))
        return (PyObject *)builder;
    Py_DECREF(builder);
    return NULL;
}

/* builder(tensors, args=(), kwargs={}): tensors: a list. */
static PyObject *builder_call(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"tensors", "args", "kwargs", NULL};
    PyObject *tensors, *args = no_arguments, *kwargs = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!|O!O!", names, &PyList_Type, &tensors,
                                     &PyTuple_Type, &args, &PyDict_Type, &kwargs))
        return NULL;
    size_t count = (size_t)PyList_Size(tensors);
    if (count < rpp_builder_takes(object))
        return PyErr_Format(PyExc_ValueError, "a Builder takes %zu tensors, not %zu",
                            rpp_builder_takes(object), count);
    PyObject *given_names = kwargs ? Py_NewRef(kwargs) : PyDict_New();
    PyObject **list = PyMem_Calloc(count + 1, sizeof(PyObject *)), *made = NULL;
    for (size_t i = 0; list && i < count; i++)
        list[i] = PyList_GetItem(tensors, (Py_ssize_t)i);
    if (list && given_names)
        made = rpp_builder_make(object, list, args, given_names);
    else if (!list)
        PyErr_NoMemory();
    Py_XDECREF(given_names);
    PyMem_Free(list);
    return made;
}

static int visit_node(const struct node *node, visitproc visit, void *arg)
{
    Py_VISIT(node->type);
    Py_VISIT(node->names);
    for (size_t i = 0; i < node->count; i++) {
        int found = visit_node(&node->parts[i], visit, arg);
        if (found)
            return found;
    }
    return 0;
}

static int builder_traverse(PyObject *object, visitproc visit, void *arg)
{
    const struct builder *builder = (struct builder *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(builder->within);
    Py_VISIT(builder->other);
    Py_VISIT(builder->record);
    for (size_t i = 0; i < builder->leaf_count; i++)
        Py_VISIT(builder->leaves[i].value);
    return visit_node(&builder->root, visit, arg);
}

static void drop_node(struct node *node)
{
    struct node gone = *node;
    *node = (struct node){.kind = NONE};
    for (size_t i = 0; i < gone.count; i++)
        drop_node(&gone.parts[i]);
    PyMem_Free(gone.parts);
    PyMem_Free(gone.record.parts);
    Py_XDECREF(gone.record.attributes);
    Py_XDECREF(gone.type);
    Py_XDECREF(gone.names);
}

/* Nobody has one for building who does not refer to it. */
static int builder_clear(PyObject *object)
{
    struct builder *builder = (struct builder *)object;
    drop_node(&builder->root);
    for (size_t i = 0; i < builder->leaf_count; i++)
        Py_CLEAR(builder->leaves[i].value);
    builder->leaf_count = 0;
    PyMem_Free(builder->leaves);
    builder->leaves = NULL;
    Py_CLEAR(builder->within);
    Py_CLEAR(builder->other);
    Py_CLEAR(builder->record);
    return 0;
}

static void builder_dealloc(PyObject *object)
{
    rpp_deallocate(object, builder_clear);
}

int rpp_add_builder_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)builder_new},
        {Py_tp_dealloc, (void *)builder_dealloc},
        {Py_tp_traverse, (void *)builder_traverse},
        {Py_tp_clear, (void *)builder_clear},
        {Py_tp_call, (void *)builder_call},
        {Py_tp_doc, "Builder(spec, leaves, within, other, record): makes results of tensors."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Builder", sizeof(struct builder), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
    PyObject *collections = PyImport_ImportModule("collections");
    PyObject *ordered = collections ? PyObject_GetAttrString(collections, "OrderedDict") : NULL;
    if (ordered && PyType_Check(ordered))
        set_item = (objobjargproc)PyType_GetSlot((PyTypeObject *)ordered, Py_mp_ass_subscript);
    Py_XDECREF(collections);
    Py_XDECREF(ordered);
    PyErr_Clear();
    no_arguments = PyTuple_New(0);
    builder_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return builder_type && no_arguments ? PyModule_AddType(module, builder_type) : -1;
}
