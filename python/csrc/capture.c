/* SPDX-License-Identifier: MIT
 *
 * capture(): a Python callable as the work of rp_graph_capture. The library calls it once for the
 * rehearsal and once for the record, with the stream and the arguments' addresses of that run; what
 * PyTorch allocates meanwhile on capturing streams are the run's blocks (hooks.h).
 *
 * The GIL is released while the library works, and taken for the callable: a thread that waits for
 * the pool's capture lock must not keep the GIL from the one that holds it.
 */
#include "hooks.h"
#include "python.h"

#include <string.h>

enum { STACK_USED = 32 * 1024 }; /* more than the library uses between capture and callable */

struct work {
    PyObject *callable;
    uintptr_t stack; /* where capture() began */
    const struct rp_pool *pool;
    int ordinal;
    size_t arg_count;
    struct rpp_place *places;
    size_t place_count;
    bool learn; /* stop after the first run */
    bool learned;
    PyThreadState *thread; /* while the GIL is released */
    PyObject *type, *value, *trace;
};

static PyObject *call_arguments(const struct rp_call *call, size_t count)
{
    PyObject *addresses = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; addresses && i < count; i++) {
        PyObject *address = PyLong_FromUnsignedLongLong(rp_call_arg(call, i));
        if (!address || PyTuple_SetItem(addresses, (Py_ssize_t)i, address) != 0)
            Py_CLEAR(addresses);
    }
    return addresses;
}

/* Some kernels are given an address on the launching code's stack, which they never read. */
__attribute__((noinline)) static void clean_stack(void)
{
    enum { BYTES = 128 * 1024 };
    char stack[BYTES];
    memset(stack, 0, sizeof stack);
    __asm__ volatile("" : : "r"(stack) : "memory"); /* keeps the memset */
}

PyObject *rpp_clean_stack(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    clean_stack();
    return Py_NewRef(Py_None);
}

__attribute__((noinline)) static rp_status run_here(struct rp_call *call, struct work *work,
                                                    struct rp_error *err)
{
    clean_stack();
    PyEval_RestoreThread(work->thread);
    PyObject *addresses = call_arguments(call, work->arg_count), *result = NULL;
    if (addresses) {
        rpp_call_begin(call, work->pool, work->ordinal, work->places, work->place_count);
        result = PyObject_CallFunction(
            work->callable, "KO", (unsigned long long)(uintptr_t)rp_call_stream(call), addresses);
        rpp_call_end();
    }
    Py_XDECREF(addresses);
    bool worked = result != NULL;
    Py_XDECREF(result);
    if (!worked) {
        PyErr_Fetch(&work->type, &work->value, &work->trace);
        PyOS_snprintf(err->message, sizeof err->message, "it raised an exception");
    }
    work->learned = worked && work->learn;
    work->thread = PyEval_SaveThread();
    return worked && !work->learn ? RP_OK : RP_ERROR_CALLABLE;
}

/* All runs of a capture have the same stack: what a kernel holds of its addresses, or of what lay
 * on it before, is the same in all of them. */
static rp_status run_callable(struct rp_call *call, void *user, struct rp_error *err)
{
    struct work *work = user;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    uintptr_t wanted = work->stack - STACK_USED;
    void *skipped = __builtin_alloca(here > wanted ? here - wanted : 16);
    __asm__ volatile("" : : "r"(skipped) : "memory");
    return run_here(call, work, err);
}

static int read_args(PyObject *list, struct rp_arg **out_args, size_t *out_count)
{
    Py_ssize_t count = PyList_Size(list);
    if (count < 0)
        return -1;
    struct rp_arg *args = PyMem_Calloc((size_t)count + 1, sizeof *args);
    if (!args) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long address, bytes;
        int role;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "KKi", &address, &bytes, &role)) {
            PyMem_Free(args);
            return -1;
        }
        args[i].address = address;
        args[i].bytes = bytes;
        args[i].role = (enum rp_arg_role)role;
    }
    *out_args = args;
    *out_count = (size_t)count;
    return 0;
}

static int read_places(PyObject *list, struct rpp_place **out_places, size_t *out_count)
{
    Py_ssize_t count = PyList_Size(list);
    if (count < 0)
        return -1;
    struct rpp_place *places = PyMem_Calloc((size_t)count + 1, sizeof *places);
    if (!places) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long bytes;
        Py_ssize_t arg;
        unsigned index;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "IKn", &index, &bytes, &arg)) {
            PyMem_Free(places);
            return -1;
        }
        places[i] = (struct rpp_place){index, bytes, (size_t)arg};
    }
    *out_places = places;
    *out_count = (size_t)count;
    return 0;
}

static PyObject *wrap_graph(struct rp_graph *graph, PyObject *pool, struct rp_arg *args,
                            size_t arg_count)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(rpp_graph_type, Py_tp_alloc);
    struct rpp_graph *self = (struct rpp_graph *)alloc(rpp_graph_type, 0);
    if (!self) {
        rp_graph_destroy(graph);
        PyMem_Free(args);
        return NULL;
    }
    self->graph = graph;
    self->pool = Py_NewRef(pool);
    self->args = args;
    self->arg_count = arg_count;
    return (PyObject *)self;
}

/* Raises the library's error. What the callable raised, which may have the line that broke the
 * capture, is its cause. */
static void raise_error(struct work *work, rp_status status, const struct rp_error *err)
{
    rpp_set_error(status, err);
    if (!work->type)
        return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyErr_NormalizeException(&work->type, &work->value, &work->trace);
    if (work->trace)
        PyException_SetTraceback(work->value, work->trace);
    PyException_SetCause(value, work->value); /* takes it over */
    Py_CLEAR(work->type);
    Py_CLEAR(work->trace);
    PyErr_Restore(type, value, trace);
}

/* What the callable raised, or else the error. */
static PyObject *fail(struct work *work, rp_status status, const struct rp_error *err)
{
    if (status == RP_ERROR_CALLABLE && work->type)
        PyErr_Restore(work->type, work->value, work->trace);
    else
        raise_error(work, status, err);
    return NULL;
}

/* Captures; the args belong to the graph afterwards, or are freed. */
static PyObject *do_capture(PyObject *pool, struct work *work,
                            const struct rp_capture_options *options, struct rp_arg *args)
{
    struct rp_graph *graph = NULL;
    struct rp_error err = {0};
    work->pool = ((struct rpp_pool *)pool)->pool;
    work->ordinal = ((struct rpp_pool *)pool)->ordinal;
    work->stack = (uintptr_t)__builtin_frame_address(0);
    work->thread = PyEval_SaveThread();
    rp_status status = rp_graph_capture(((struct rpp_pool *)pool)->pool, options, run_callable,
                                        work, args, work->arg_count, &graph, &err);
    PyEval_RestoreThread(work->thread);
    if (status == RP_OK) {
        Py_CLEAR(work->type);
        Py_CLEAR(work->value);
        Py_CLEAR(work->trace);
        return wrap_graph(graph, pool, args, work->arg_count);
    }
    PyMem_Free(args);
    if (work->learned)
        return Py_NewRef(Py_None);
    return fail(work, status, &err);
}

PyObject *rpp_capture(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *pool, *arg_list, *place_list;
    struct work work = {0};
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    unsigned long long stream = 0;
    int learn, verify = RP_VERIFY_NONE;
    if (!PyArg_ParseTuple(arguments, "O!OO!O!spp|iK", rpp_pool_type, &pool, &work.callable,
                          &PyList_Type, &arg_list, &PyList_Type, &place_list, &options.name,
                          &options.copy_args, &learn, &verify, &stream))
        return NULL;
    options.verify = (enum rp_verify)verify;
    options.stream = (struct CUstream_st *)(uintptr_t)stream;
    struct rp_arg *args;
    if (read_args(arg_list, &args, &work.arg_count) != 0)
        return NULL;
    if (read_places(place_list, &work.places, &work.place_count) != 0) {
        PyMem_Free(args);
        return NULL;
    }
    work.learn = learn;
    PyObject *made = do_capture(pool, &work, &options, args);
    PyMem_Free(work.places);
    return made;
}

static PyObject *do_estimate(struct rp_estimate *estimate, PyObject *pool, struct work *work,
                             const char *name, const struct rp_arg *args)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rp_error err = {0};
    options.name = name;
    work->pool = ((struct rpp_pool *)pool)->pool;
    work->ordinal = ((struct rpp_pool *)pool)->ordinal;
    work->stack = (uintptr_t)__builtin_frame_address(0);
    work->thread = PyEval_SaveThread();
    rp_status status = rp_estimate_add(estimate, ((struct rpp_pool *)pool)->pool, &options,
                                       run_callable, work, args, work->arg_count, &err);
    PyEval_RestoreThread(work->thread);
    return status == RP_OK ? Py_NewRef(Py_None) : fail(work, status, &err);
}

PyObject *rpp_estimate_add(struct rp_estimate *estimate, PyObject *arguments)
{
    PyObject *pool, *arg_list, *place_list;
    struct work work = {0};
    struct rp_arg *args;
    const char *name;
    if (!PyArg_ParseTuple(arguments, "O!OO!O!s", rpp_pool_type, &pool, &work.callable, &PyList_Type,
                          &arg_list, &PyList_Type, &place_list, &name) ||
        read_args(arg_list, &args, &work.arg_count) != 0)
        return NULL;
    PyObject *done = NULL;
    if (read_places(place_list, &work.places, &work.place_count) == 0)
        done = do_estimate(estimate, pool, &work, name, args);
    PyMem_Free(work.places);
    PyMem_Free(args);
    return done;
}
