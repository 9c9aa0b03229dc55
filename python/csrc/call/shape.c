/* SPDX-License-Identifier: MIT */
#include "call/shape.h"

#include "call/builder.h"
#include "capture/graph.h"
#include "capture/scalars.h"

/* ---- Shapes -------------------------------------------------------------------------------- */

void rpp_shape_release(struct rpp_shape *shape)
{
    rpp_assert_gil();
    if (--shape->users)
        return;
    for (size_t i = 0; i < shape->result_count; i++)
        rpp_result_drop(&shape->results[i]);
    PyMem_Free(shape->results);
    rpp_signature_drop(&shape->signature);
    rpp_gradients_destroy(shape->gradients);
    Py_XDECREF((PyObject *)shape->graph);
    Py_XDECREF((PyObject *)shape->back);
    Py_XDECREF(shape->sets);
    Py_XDECREF(shape->choice);
    Py_XDECREF(shape->build);
    PyMem_Free(shape);
}

/* Does an extent hold a tensor that the callable reads too? The graph has it where it lies. */
static bool is_own(const struct rpp_signature *signature, size_t extent)
{
    for (size_t i = 0; i < signature->tensor_count; i++)
        if (signature->tensors[i].extent == extent && signature->tensors[i].own)
            return true;
    return false;
}

/* Fills in how the inputs look; their extents have to be what the graph was captured with. */
static bool sign(struct rpp_shape *shape, const struct rpp_inputs *inputs, PyObject *told)
{
    const struct rpp_signature *signature = &shape->signature;
    if (!rpp_signature_make(&shape->signature, inputs, told))
        return false;
    if (!shape->graph)
        return true;
    bool same = shape->graph->arg_count >= signature->extent_count;
    for (size_t i = 0; same && i < signature->extent_count; i++)
        same = signature->extents[i] == shape->graph->args[i].bytes ||
               (!shape->graph->args[i].bytes && is_own(signature, i));
    return same;
}

/* Fills in how the results are made on a device; false, perhaps with an exception. */
static bool read_results(struct rpp_shape *shape, PyObject *results, int32_t ordinal)
{
    shape->results = PyMem_Calloc((size_t)PyTuple_Size(results) + 1, sizeof *shape->results);
    if (!shape->results) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(results); i++)
        if (!rpp_result_read(&shape->results[shape->result_count++], PyTuple_GetItem(results, i),
                             ordinal))
            return false;
    if (shape->build && rpp_is_builder(shape->build))
        return rpp_builder_takes(shape->build) <= shape->result_count;
    return shape->build || shape->result_count == 1 || !shape->graph;
}

static PyObject *unless_none(PyObject *object)
{
    return object == Py_None ? NULL : Py_NewRef(object);
}

struct rpp_shape *rpp_shape_create(const struct rpp_inputs *inputs, int32_t ordinal,
                                   PyObject *graph, PyObject *results, PyObject *build,
                                   PyObject *choice, PyObject *told)
{
    rpp_assert_gil();
    struct rpp_shape *shape = PyMem_Calloc(1, sizeof *shape);
    if (!shape) {
        PyErr_NoMemory();
        return NULL;
    }
    shape->users = 1;
    shape->ordinal = ordinal;
    shape->graph = (struct rpp_graph *)unless_none(graph);
    shape->choice = unless_none(choice);
    shape->build = unless_none(build);
    if (sign(shape, inputs, told) && read_results(shape, results, ordinal))
        return shape;
    rpp_shape_release(shape);
    return NULL;
}

/* One thing that calls set; sets: of a shape. */
struct set {
    PyObject *dict, *key, *value; /* borrowed */
    enum rpp_set_how how;
};

static struct set set_at(PyObject *sets, Py_ssize_t i)
{
    assert(i + RPP_SET_PARTS <= PyTuple_Size(sets));
    return (struct set){PyTuple_GetItem(sets, i), PyTuple_GetItem(sets, i + 1),
                        PyTuple_GetItem(sets, i + 2),
                        (enum rpp_set_how)PyLong_AsLong(PyTuple_GetItem(sets, i + 3))};
}

bool rpp_shape_can_set(const struct rpp_shape *shape)
{
    rpp_assert_gil();
    Py_ssize_t count = shape->sets ? PyTuple_Size(shape->sets) : 0;
    for (Py_ssize_t i = 0; i < count; i += RPP_SET_PARTS) {
        struct set set = set_at(shape->sets, i);
        PyObject *there =
            set.how == RPP_SET_ADDED ? PyDict_GetItemWithError(set.dict, set.key) : NULL;
        if (set.how == RPP_SET_ADDED && (!there || !PyLong_CheckExact(there))) {
            PyErr_Clear();
            return false;
        }
    }
    return true;
}

static bool add_to(const struct set *set)
{
    PyObject *there = PyDict_GetItemWithError(set->dict, set->key);
    if (!there && !PyErr_Occurred())
        PyErr_SetObject(PyExc_KeyError, set->key);
    PyObject *sum = there ? PyNumber_Add(there, set->value) : NULL;
    bool done = sum && PyDict_SetItem(set->dict, set->key, sum) == 0;
    Py_XDECREF(sum);
    return done;
}

bool rpp_shape_makes_sets(const struct rpp_shape *shape)
{
    rpp_assert_gil();
    return shape->sets && PyTuple_Size(shape->sets) && set_at(shape->sets, 0).how == RPP_SET_MADE;
}

static bool put_value(const struct set *set, PyObject *made)
{
    if (set->how == RPP_SET_ADDED)
        return add_to(set);
    PyObject *value = set->value;
    if (set->how == RPP_SET_MADE)
        value = PyTuple_GetItem(made, PyLong_AsSsize_t(set->value));
    return value && PyDict_SetItem(set->dict, set->key, value) == 0;
}

bool rpp_shape_set(const struct rpp_shape *shape, PyObject *made)
{
    rpp_assert_gil();
    assert((made != NULL) == rpp_shape_makes_sets(shape));
    Py_ssize_t count = shape->sets ? PyTuple_Size(shape->sets) : 0;
    for (Py_ssize_t i = 0; i < count; i += RPP_SET_PARTS) {
        struct set set = set_at(shape->sets, i);
        if (!put_value(&set, made))
            return false;
    }
    return true;
}

/* ---- The table ----------------------------------------------------------------------------- */

static struct rpp_shape **bucket_of(const struct rpp_shape_table *table, uint64_t hash)
{
    return &table->buckets[hash & (table->bucket_count - 1)];
}

bool rpp_shape_has_its_scalars(const struct rpp_shape *shape)
{
    rpp_assert_gil();
    return !shape->graph || !shape->graph->scalars || rpp_scalars_fit(shape->graph->scalars);
}

/* Takes the shape if the call is one of it. Reading gradients may change the table: then it is not,
 * and may be gone. */
static bool take(const struct rpp_shape_table *table, struct rpp_shape *shape,
                 const struct rpp_inputs *inputs)
{
    size_t changes = table->changes;
    if (!rpp_signature_fits(&shape->signature, inputs) || !rpp_shape_has_its_scalars(shape))
        return false;
    shape->users++;
    if ((!shape->gradients || rpp_gradients_fit(shape->gradients)) && table->changes == changes)
        return true;
    rpp_shape_release(shape);
    return false;
}

struct rpp_shape *rpp_shapes_take(struct rpp_shape_table *table, const struct rpp_inputs *inputs)
{
    rpp_assert_gil();
    struct rpp_shape *last = table->last; /* reading gradients may let others make calls */
    size_t changes = table->changes;
    if (last && take(table, last, inputs))
        return table->last = last;
    if (table->changes != changes || !table->count)
        return NULL;
    uint64_t hash = rpp_inputs_hash(inputs);
    for (struct rpp_shape *shape = *bucket_of(table, hash); shape; shape = shape->next) {
        if (shape != last && shape->signature.hash == hash && take(table, shape, inputs))
            return table->last = shape;
        if (table->changes != changes)
            return NULL;
    }
    return NULL;
}

static void put(struct rpp_shape_table *table, struct rpp_shape *shape)
{
    struct rpp_shape **bucket = bucket_of(table, shape->signature.hash);
    shape->next = *bucket;
    *bucket = shape;
}

/* Twice the buckets, so that there are no fewer than shapes. */
static bool grow(struct rpp_shape_table *table)
{
    struct rpp_shape_table wider = {.bucket_count =
                                        table->bucket_count ? 2 * table->bucket_count : 8};
    wider.buckets = PyMem_Calloc(wider.bucket_count, sizeof(struct rpp_shape *));
    if (!wider.buckets)
        return false;
    for (size_t i = 0; i < table->bucket_count; i++)
        for (struct rpp_shape *shape = table->buckets[i], *next; shape; shape = next) {
            next = shape->next;
            put(&wider, shape);
        }
    PyMem_Free(table->buckets);
    table->buckets = wider.buckets;
    table->bucket_count = wider.bucket_count;
    return true;
}

bool rpp_shapes_add(struct rpp_shape_table *table, struct rpp_shape *shape)
{
    rpp_assert_gil();
    if (table->count == table->bucket_count && !grow(table))
        return false;
    put(table, shape);
    table->count++;
    table->changes++;
    return true;
}

void rpp_shapes_remove(struct rpp_shape_table *table, struct rpp_shape *shape)
{
    rpp_assert_gil();
    struct rpp_shape **link = bucket_of(table, shape->signature.hash);
    while (*link != shape)
        link = &(*link)->next;
    *link = shape->next;
    table->count--;
    table->changes++;
    if (table->last == shape)
        table->last = NULL;
    rpp_shape_release(shape);
}

void rpp_shapes_clear(struct rpp_shape_table *table)
{
    rpp_assert_gil();
    struct rpp_shape_table old = *table;
    *table = (struct rpp_shape_table){.changes = old.changes + 1};
    for (size_t i = 0; i < old.bucket_count; i++)
        for (struct rpp_shape *shape = old.buckets[i], *next; shape; shape = next) {
            next = shape->next;
            rpp_shape_release(shape);
        }
    PyMem_Free(old.buckets);
}

int rpp_shapes_traverse(const struct rpp_shape_table *table, visitproc visit, void *arg)
{
    for (size_t i = 0; i < table->bucket_count; i++)
        for (const struct rpp_shape *shape = table->buckets[i]; shape; shape = shape->next) {
            Py_VISIT(shape->graph);
            Py_VISIT(shape->back);
            Py_VISIT(shape->sets);
            Py_VISIT(shape->choice);
            Py_VISIT(shape->build);
            int found = rpp_gradients_traverse(shape->gradients, visit, arg);
            if (found)
                return found;
        }
    return 0;
}
