/* SPDX-License-Identifier: MIT */
#include "call/objects.h"

#include "reads/reads.h"

static void drop(struct rpp_object_table *table, size_t which)
{
    struct rpp_object gone = table->list[which];
    table->count--;
    table->changes++;
    for (size_t i = which; i < table->count; i++)
        table->list[i] = table->list[i + 1];
    Py_DECREF(gone.weak);
    Py_DECREF(gone.reads);
    Py_DECREF(gone.token);
    Py_DECREF(gone.tensors);
}

int rpp_objects_know(struct rpp_object_table *table, PyObject *weak, PyObject *reads,
                     PyObject *token, PyObject *tensors)
{
    rpp_assert_gil();
    if (!PyWeakref_CheckRefExact(weak) || !rpp_is_reads(reads) || !PyBytes_CheckExact(token) ||
        !PyTuple_CheckExact(tensors)) {
        PyErr_SetString(PyExc_TypeError, "know takes a weak reference, a Reads, bytes and a tuple");
        return -1;
    }
    for (size_t i = 0; i < table->count; i++) {
        PyObject *known = PyWeakref_GetObject(table->list[i].weak);
        if (known == Py_None || known == PyWeakref_GetObject(weak)) {
            drop(table, i);
            i--;
        }
    }
    if (table->count == RPP_MOST_OBJECTS)
        drop(table, 0);
    table->list[table->count++] = (struct rpp_object){
        .weak = Py_NewRef(weak),
        .reads = Py_NewRef(reads),
        .epoch = rpp_reads_epoch(reads),
        .token = Py_NewRef(token),
        .tensors = Py_NewRef(tensors),
    };
    table->changes++;
    return 0;
}

void rpp_objects_clear(struct rpp_object_table *table)
{
    rpp_assert_gil();
    while (table->count)
        drop(table, table->count - 1);
}

const struct rpp_object *rpp_objects_find(const struct rpp_object_table *table, PyObject *value)
{
    rpp_assert_gil();
    for (size_t i = table->count; i-- > 0;) {
        const struct rpp_object *object = &table->list[i];
        if (PyWeakref_GetObject(object->weak) != value)
            continue;
        if (rpp_reads_epoch(object->reads) != object->epoch)
            return NULL;
        size_t changes = table->changes;
        PyObject *reads = Py_NewRef(object->reads);
        bool held = rpp_reads_hold(reads) && table->changes == changes &&
                    rpp_reads_epoch(reads) == object->epoch;
        Py_DECREF(reads);
        return held && table->changes == changes ? object : NULL;
    }
    return NULL;
}

int rpp_objects_traverse(const struct rpp_object_table *table, visitproc visit, void *arg)
{
    for (size_t i = 0; i < table->count; i++)
        Py_VISIT(table->list[i].reads);
    return 0;
}
