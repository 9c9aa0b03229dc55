/* SPDX-License-Identifier: MIT */
#include "alloc/pool.h"

#include "alloc/once.h"

#include <stdlib.h>

PyTypeObject *rpp_pool_type;

static PyObject *pool_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"kind", "name", "ordinal", "parent", "limit", "plan_budget_ms", NULL};
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    int kind = 0, ordinal = 0;
    unsigned long long limit = 0;
    unsigned budget = 0;
    PyObject *parent = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "is|iOKI", names, &kind, &options.name, &ordinal,
                                     &parent, &limit, &budget))
        return NULL;
    if (parent != Py_None && Py_TYPE(parent) != rpp_pool_type)
        return PyErr_Format(PyExc_TypeError, "parent has to be a pool");
    options.kind = (enum rp_pool_kind)kind;
    options.limit_bytes = limit;
    options.plan_budget_ms = budget;
    if (parent != Py_None)
        options.parent = ((struct rpp_pool *)parent)->pool;
    struct rpp_device *slot;
    struct rp_pool *pool;
    struct rp_error err = {0};
    rp_status status = rpp_device_get(ordinal, &slot, &err);
    if (status == RP_OK)
        status = rp_pool_create(slot->device, &options, &pool, &err);
    if (status != RP_OK)
        return rpp_set_error(status, &err);
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct rpp_pool *self = (struct rpp_pool *)alloc(type, 0);
    if (!self) {
        rp_pool_destroy(pool);
        return NULL;
    }
    self->pool = pool;
    self->ordinal = ordinal;
    self->parent = parent == Py_None ? NULL : Py_NewRef(parent);
    return (PyObject *)self;
}

static void pool_dealloc(PyObject *object)
{
    struct rpp_pool *self = (struct rpp_pool *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->pool && !atomic_load(&rpp_state.leaving)) {
        Py_BEGIN_ALLOW_THREADS;
        rp_pool_destroy(self->pool);
        Py_END_ALLOW_THREADS;
    }
    Py_XDECREF(self->parent);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *facts_of_pool(const struct rp_pool_info *info)
{
    return Py_BuildValue("{sKsKsKsOsKsnsK}", "planned_bytes", info->planned_bytes, "mapped_bytes",
                         info->mapped_bytes, "lower_bound_bytes", info->lower_bound_bytes,
                         "bound_exact", info->bound_exact ? Py_True : Py_False, "rehearsal_bytes",
                         info->rehearsal_bytes, "graphs", (Py_ssize_t)info->graphs, "staging_bytes",
                         info->staging_bytes);
}

static PyObject *pool_info(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct rp_pool_info info = {.size = sizeof info};
    rp_pool_info(((struct rpp_pool *)self)->pool, &info);
    return facts_of_pool(&info);
}

static PyObject *pool_trim(PyObject *self, PyObject *unused)
{
    (void)unused;
    const struct rpp_pool *pool = (const struct rpp_pool *)self;
    uint64_t bytes = 0, rehearsals = 0;
    struct rp_error err = {0};
    rp_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = rp_pool_trim(pool->pool, &bytes, &err);
    if (status == RP_OK)
        status = rp_device_trim(rpp_state.devices[pool->ordinal].device, &rehearsals, &err);
    Py_END_ALLOW_THREADS;
    return status == RP_OK ? PyLong_FromUnsignedLongLong(bytes + rehearsals)
                           : rpp_set_error(status, &err);
}

static PyObject *pool_file(PyObject *self, PyObject *args,
                           rp_status (*write)(const struct rp_pool *, const char *,
                                              struct rp_error *))
{
    const char *path;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    rp_status status = write(((struct rpp_pool *)self)->pool, path, &err);
    return status == RP_OK ? Py_NewRef(Py_None) : rpp_set_error(status, &err);
}

static PyObject *pool_write(PyObject *self, PyObject *args)
{
    return pool_file(self, args, rp_pool_write);
}

static PyObject *pool_draw(PyObject *self, PyObject *args)
{
    return pool_file(self, args, rp_pool_draw);
}

static PyMethodDef methods[] = {
    {"info", pool_info, METH_NOARGS, "Sizes in bytes, as struct rp_pool_info has them."},
    {"trim", pool_trim, METH_NOARGS, "Gives back what no graph needs; returns how many bytes."},
    {"write", pool_write, METH_VARARGS, "Writes who lies where, as JSON."},
    {"draw", pool_draw, METH_VARARGS, "Draws who lies where, as SVG."},
    {NULL, NULL, 0, NULL},
};

int rpp_add_pool_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)pool_new},
        {Py_tp_dealloc, (void *)pool_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_doc, "Memory that captured graphs share."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Pool", sizeof(struct rpp_pool), 0, Py_TPFLAGS_DEFAULT,
                               slots};
    rpp_pool_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return rpp_pool_type ? PyModule_AddType(module, rpp_pool_type) : -1;
}

/* ---- Pools of PyTorch's -------------------------------------------------------------------- */

PyObject *rpp_bind_pool(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    struct rpp_pool_id id;
    PyObject *object;
    unsigned long long first, second;
    if (!PyArg_ParseTuple(args, "KKO!", &first, &second, rpp_pool_type, &object))
        return NULL;
    struct rpp_pool *pool = (struct rpp_pool *)object;
    id = (struct rpp_pool_id){{first, second}};
    if (!rpp_once_bind(pool->ordinal, id, pool->pool, Py_NewRef(object)))
        Py_DECREF(object); /* it is bound already */
    return Py_NewRef(Py_None);
}

PyObject *rpp_draw_lease(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    struct rp_error err = {0};
    unsigned long long first, second;
    int ordinal;
    const char *path;
    if (!PyArg_ParseTuple(args, "iKKs", &ordinal, &first, &second, &path))
        return NULL;
    rp_status status = rpp_once_draw(ordinal, (struct rpp_pool_id){{first, second}}, path, &err);
    return status == RP_OK ? Py_NewRef(Py_None) : rpp_set_error(status, &err);
}

static PyObject *facts_of_once(const struct rpp_once_facts *facts)
{
    PyObject *pool = facts_of_pool(&facts->pool);
    PyObject *made =
        pool ? Py_BuildValue(
                   "{si,s(KK),sO,sO,sO,sK,ss,sn,sK,sK,sK,sd}", "device", facts->ordinal, "handle",
                   (unsigned long long)facts->id.words[0], (unsigned long long)facts->id.words[1],
                   "pool", pool, "bound", facts->bound ? Py_True : Py_False, "under_way",
                   facts->under_way ? Py_True : Py_False, "alive_bytes",
                   (unsigned long long)facts->alive_bytes, "name", facts->name, "blocks",
                   (Py_ssize_t)facts->graph.blocks, "planned_bytes", facts->graph.planned_bytes,
                   "lower_bound_bytes", facts->graph.lower_bound_bytes, "peak_bytes",
                   facts->graph.peak_bytes, "capture_ms", facts->graph.record_ms)
             : NULL;
    Py_XDECREF(pool);
    return made;
}

PyObject *rpp_leases(PyObject *module, PyObject *unused)
{
    rpp_assert_gil();
    (void)module, (void)unused;
    size_t count;
    struct rpp_once_facts *all = rpp_once_facts(&count);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *facts = facts_of_once(&all[i]);
        if (!facts || PyList_Append(list, facts) != 0)
            Py_CLEAR(list);
        Py_XDECREF(facts);
    }
    free(all);
    return list;
}
