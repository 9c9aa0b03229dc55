/* SPDX-License-Identifier: MIT
 *
 * capture(): a Python callable as the work of rp_graph_capture. The library calls it once for the
 * rehearsal and once for the record, with the stream and the arguments' addresses of that run; what
 * PyTorch allocates meanwhile on capturing streams are the run's blocks (hooks.h). In the rehearsal
 * it names its results (call_result); results() then gives memory for them, and says which
 * allocations of the runs that follow are answered with it. Where they are among the arguments
 * already, there are places of these alone.
 *
 * The GIL is released while the library works, and taken for the callable: a thread that waits for
 * the pool's capture lock must not keep the GIL from the one that holds it.
 */
#include "capture/capture.h"

#include "alloc/hooks.h"
#include "alloc/pool.h"
#include "capture/draws.h"
#include "capture/graph.h"

#include <assert.h>
#include <malloc.h>
#include <reprise_framework.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STACK_USED = 32 * 1024,   /* more than the library uses between capture and callable */
    STACK_CLEAN = 512 * 1024, /* twice what PyTorch 2.14 needs where it launches foreach kernels */
    STACK_KEPT = 64 * 1024,   /* never cleaned, at the far end of a small stack */
    STACK_LEAST = 48 * 1024,  /* what a capture takes of it where nothing is cleaned */
    ZEROS_FROM_MALLOC = 255   /* the setting with which malloc fills what it gives with zeros */
};

struct work {
    PyObject *callable, *results;
    PyObject *in_use; /* asked of addresses; NULL: all are */
    uintptr_t stack;  /* where capture() began */
    const struct rp_pool *pool;
    int ordinal;
    struct rp_arg *args;     /* as given to the library */
    struct rp_arg *all_args; /* with the results behind, once these are known */
    size_t arg_count;        /* of the next run */
    struct rpp_place *places;
    size_t place_count;
    PyThreadState *thread; /* while the GIL is released */
    PyObject *type, *value, *trace;
};

static PyObject *call_arguments(const struct rp_call *call, size_t count)
{
    rpp_assert_gil();
    PyObject *addresses = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; addresses && i < count; i++) {
        PyObject *address = PyLong_FromUnsignedLongLong(rp_call_arg(call, i));
        if (!address || PyTuple_SetItem(addresses, (Py_ssize_t)i, address) != 0)
            Py_CLEAR(addresses);
    }
    return addresses;
}

/* Some kernels are given what the launching code's stack holds, which they never read: addresses on
 * it, and what earlier calls left in structs that lie there, PyTorch's tables of tensors among them. */
__attribute__((noinline)) static void clean_stack(void)
{
    size_t left = rp_stack_below(__builtin_frame_address(0));
    size_t bytes = left > STACK_CLEAN + STACK_KEPT ? STACK_CLEAN
                   : left > STACK_KEPT             ? left - STACK_KEPT
                                                   : 1;
    char *stack = __builtin_alloca(bytes);
    memset(stack, 0, bytes);
    __asm__ volatile("" : : "r"(stack) : "memory"); /* keeps the memset */
}

PyObject *rpp_clean_stack(PyObject *module, PyObject *unused)
{
    rpp_assert_gil();
    (void)module, (void)unused;
    clean_stack();
    return Py_NewRef(Py_None);
}

static bool tables_lie_on_heap = true;

PyObject *rpp_tables_lie_on_heap(PyObject *module, PyObject *whether)
{
    rpp_assert_gil();
    (void)module;
    tables_lie_on_heap = whether == Py_True;
    return Py_NewRef(Py_None);
}

/* Since 2.14 PyTorch's tables of tensors, which are kernels' parameters, lie on the heap: behind
 * what a table holds come the addresses that an earlier one left there. During a run malloc gives
 * zeros instead, to every thread; glibc has a setting for that, which a program may use itself.
 * Blocks of up to 1,032 bytes come from a cache that the setting does not reach, and no table is so
 * small. It is dear where kernels are loaded or compiled meanwhile. */
static void zero_fresh_memory(bool on)
{
#ifdef M_PERTURB
    if (!tables_lie_on_heap)
        return;
    const char *own = getenv("MALLOC_PERTURB_");
    mallopt(M_PERTURB, on ? ZEROS_FROM_MALLOC : own ? atoi(own) : 0);
#else
    (void)on;
#endif
}

/* ---- Runs ---------------------------------------------------------------------------------- */

/* Back to the library, with what Python returned: NULL where it raised an exception. */
static rp_status let_go(struct work *work, PyObject *result, struct rp_error *err)
{
    rpp_assert_gil();
    assert((result != NULL) == (PyErr_Occurred() == NULL));
    bool worked = result != NULL;
    Py_XDECREF(result);
    if (!worked) {
        PyErr_Fetch(&work->type, &work->value, &work->trace);
        PyOS_snprintf(err->message, sizeof err->message, "it raised an exception");
    }
    work->thread = PyEval_SaveThread();
    return worked ? RP_OK : RP_ERROR_CALLABLE;
}

__attribute__((noinline)) static rp_status run_here(struct rp_call *call, struct work *work,
                                                    struct rp_error *err)
{
    clean_stack();
    PyEval_RestoreThread(work->thread);
    PyObject *addresses = call_arguments(call, work->arg_count), *result = NULL;
    if (addresses) {
        rpp_call_begin(call, work->pool, work->ordinal, work->places, work->place_count);
        zero_fresh_memory(true);
        result = PyObject_CallFunction(
            work->callable, "KO", (unsigned long long)(uintptr_t)rp_call_stream(call), addresses);
        zero_fresh_memory(false);
        rpp_call_end();
    }
    Py_XDECREF(addresses);
    return let_go(work, result, err);
}

/* All runs of a capture have the same stack: what a kernel holds of its addresses, or of what lay
 * on it before, is the same in all of them. */
static rp_status run_callable(struct rp_call *call, void *user, struct rp_error *err)
{
    struct work *work = user;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    uintptr_t wanted = work->stack - STACK_USED;
    size_t below = rp_stack_below((const void *)here), bytes = here > wanted ? here - wanted : 16;
    void *skipped = __builtin_alloca(below && below < bytes + STACK_KEPT ? 16 : bytes);
    __asm__ volatile("" : : "r"(skipped) : "memory");
    return run_here(call, work, err);
}

/* ---- Arguments and results ----------------------------------------------------------------- */

/* Allocations that are answered with an argument's address: (index, bytes, argument) each, of so
 * many arguments. */
static bool read_places(PyObject *list, struct work *work, size_t arg_count)
{
    rpp_assert_gil();
    assert(!work->places);
    Py_ssize_t count = PyList_Size(list);
    work->places = PyMem_Calloc((size_t)count + 1, sizeof *work->places);
    if (!work->places) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long bytes;
        Py_ssize_t arg;
        unsigned index;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "IKn", &index, &bytes, &arg))
            return false;
        if (arg < 0 || (size_t)arg >= arg_count) {
            PyErr_Format(PyExc_ValueError, "a place is of argument %zd, and there are %zu", arg,
                         arg_count);
            return false;
        }
        work->places[i] = (struct rpp_place){index, bytes, (size_t)arg};
    }
    work->place_count = (size_t)count;
    return true;
}

/* (address, bytes, role) each. */
static bool read_args(PyObject *list, struct work *work)
{
    assert(!work->args);
    Py_ssize_t count = PyList_Size(list);
    work->args = PyMem_Calloc((size_t)count + 1, sizeof *work->args);
    if (!work->args) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long address, bytes;
        int role;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "KKi", &address, &bytes, &role))
            return false;
        work->args[i] =
            (struct rp_arg){.address = address, .bytes = bytes, .role = (enum rp_arg_role)role};
    }
    work->arg_count = (size_t)count;
    return true;
}

/* Where all results are known, places stand for who gives memory. */
static bool read_known(struct work *work)
{
    if (!PyList_Check(work->results))
        return true;
    PyObject *places = work->results;
    work->results = NULL;
    return read_places(places, work, work->arg_count);
}

static void free_work(struct work *work)
{
    PyMem_Free(work->args);
    PyMem_Free(work->all_args);
    PyMem_Free(work->places);
}

/* What results(sizes) returns. */
static PyObject *ask_for_memory(const struct work *work, const struct rp_arg *results, size_t count)
{
    rpp_assert_gil();
    assert(work->results);
    PyObject *sizes = PyList_New((Py_ssize_t)count), *given = NULL;
    for (size_t i = 0; sizes && i < count; i++) {
        PyObject *bytes = PyLong_FromUnsignedLongLong(results[i].bytes);
        if (!bytes || PyList_SetItem(sizes, (Py_ssize_t)i, bytes) != 0)
            Py_CLEAR(sizes);
    }
    if (sizes)
        given = PyObject_CallFunctionObjArgs(work->results, sizes, NULL);
    Py_XDECREF(sizes);
    return given;
}

/* Takes (addresses, places) for the results, and makes arguments of them. False with an exception
 * set. */
static bool take_memory(struct work *work, PyObject *given, struct rp_arg *results, size_t count)
{
    rpp_assert_gil();
    assert(!work->all_args);
    PyObject *addresses, *places;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "results() has to return addresses and places");
        return false;
    }
    if (!PyArg_ParseTuple(given, "O!O!", &PyList_Type, &addresses, &PyList_Type, &places))
        return false;
    if ((size_t)PyList_Size(addresses) != count) {
        PyErr_Format(PyExc_ValueError, "there are %zu results, not %zd", count,
                     PyList_Size(addresses));
        return false;
    }
    work->all_args = PyMem_Calloc(work->arg_count + count + 1, sizeof *work->all_args);
    if (!work->all_args) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < count; i++)
        results[i].address = PyLong_AsUnsignedLongLong(PyList_GetItem(addresses, (Py_ssize_t)i));
    if (PyErr_Occurred() || !read_places(places, work, work->arg_count + count))
        return false;
    memcpy(work->all_args, work->args, work->arg_count * sizeof *work->args);
    memcpy(work->all_args + work->arg_count, results, count * sizeof *results);
    work->arg_count += count;
    return true;
}

/* The library asks for the memory of results that the rehearsal named. */
static rp_status give_memory(struct rp_arg *results, size_t count, void *user, struct rp_error *err)
{
    struct work *work = user;
    PyEval_RestoreThread(work->thread);
    PyObject *given = ask_for_memory(work, results, count);
    if (given && !take_memory(work, given, results, count))
        Py_CLEAR(given);
    return let_go(work, given, err);
}

/* The library asks whether a tensor lies there. One that cannot be told counts. */
static int is_in_use(uint64_t address, void *user)
{
    struct work *work = user;
    PyEval_RestoreThread(work->thread);
    PyObject *told = PyObject_CallFunction(work->in_use, "K", (unsigned long long)address);
    bool free = told == Py_False;
    Py_XDECREF(told);
    if (!told)
        PyErr_Clear();
    work->thread = PyEval_SaveThread();
    return !free;
}

PyObject *rpp_call_result(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    unsigned long long bytes, block;
    uint64_t address = 0;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "KK", &bytes, &block))
        return NULL;
    rp_status status = rpp_hook_result(bytes, block, &address, &err);
    return status == RP_OK ? PyLong_FromUnsignedLongLong(address) : rpp_set_error(status, &err);
}

static PyObject *step(enum rpp_call_step step, uint64_t what)
{
    struct rp_error err = {0};
    rp_status status = rpp_hook_step(step, what, &err);
    return status == RP_OK ? Py_NewRef(Py_None) : rpp_set_error(status, &err);
}

PyObject *rpp_call_value(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    unsigned long long address;
    return PyArg_ParseTuple(args, "K", &address) ? step(RPP_CALL_VALUE, address) : NULL;
}

PyObject *rpp_call_leave(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    unsigned long long address;
    return PyArg_ParseTuple(args, "K", &address) ? step(RPP_CALL_LEAVE, address) : NULL;
}

/* ---- Captures that PyTorch begins ---------------------------------------------------------- */

PyObject *rpp_call_take_over(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return step(RPP_CALL_TAKE_OVER, 0);
}

PyObject *rpp_call_begun(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return step(RPP_CALL_BEGUN, 0);
}

/* The last first: each is the only one behind the one before. False where the driver refuses. */
static bool drop_nodes(int ordinal, PyObject *nodes)
{
    assert(ordinal >= 0 && ordinal < RPP_DEVICES);
    bool dropped = true;
    for (Py_ssize_t i = PyTuple_Size(nodes); dropped && i-- > 0;) {
        uintptr_t node = (uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GetItem(nodes, i));
        dropped = !PyErr_Occurred() && rpp_state.devices[ordinal].destroy_node((void *)node) == 0;
    }
    return dropped;
}

PyObject *rpp_call_ended(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    unsigned long long graph;
    PyObject *nodes;
    if (!PyArg_ParseTuple(args, "KO!", &graph, &PyTuple_Type, &nodes))
        return NULL;
    if (!drop_nodes(rpp_state.call.ordinal, nodes))
        return PyErr_Occurred() ? NULL
                                : PyErr_Format(PyExc_RuntimeError,
                                               "the driver leaves no node out of a captured graph");
    return step(RPP_CALL_ENDED, graph);
}

/* ---- Captures ------------------------------------------------------------------------------ */

/* The args are the graph's then. */
static PyObject *wrap_graph(struct rp_graph *graph, PyObject *pool, struct work *work)
{
    rpp_assert_gil();
    assert(graph && (work->args || work->all_args));
    allocfunc alloc = (allocfunc)PyType_GetSlot(rpp_graph_type, Py_tp_alloc);
    struct rpp_graph *self = (struct rpp_graph *)alloc(rpp_graph_type, 0);
    if (!self) {
        rp_graph_destroy(graph);
        return NULL;
    }
    self->graph = graph;
    self->pool = Py_NewRef(pool);
    struct rp_arg **args = work->results ? &work->all_args : &work->args;
    self->args = *args;
    self->arg_count = work->arg_count;
    *args = NULL;
    return (PyObject *)self;
}

/* Raises the library's error. What the callable raised, which may have the line that broke the
 * capture, is its cause. */
static void raise_error(struct work *work, rp_status status, const struct rp_error *err)
{
    assert(status != RP_OK);
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

/* Does the error tell no more than that an earlier one broke the capture? */
static bool is_consequence(rp_status status, const struct rp_error *err)
{
    static const int invalidated = 901; /* CUDA_ERROR_STREAM_CAPTURE_INVALIDATED */
    return status == RP_ERROR_CALLABLE || err->driver_code == invalidated;
}

/* What the callable raised, or else the error. */
static PyObject *fail(struct work *work, rp_status status, const struct rp_error *err)
{
    rpp_assert_gil();
    assert(status != RP_OK);
    if (is_consequence(status, err) && work->type)
        PyErr_Restore(work->type, work->value, work->trace);
    else
        raise_error(work, status, err);
    return NULL;
}

/* Has the thread stack enough for a capture? False with an exception set. */
static bool has_stack(void)
{
    size_t left = rp_stack_below(__builtin_frame_address(0));
    struct rp_error err = {0};
    if (!left || left >= STACK_LEAST)
        return true;
    snprintf(err.message, sizeof err.message,
             "this thread has %zu KiB of its stack left, and a capture takes %d or more: begin the "
             "thread with a larger stack (threading.stack_size)",
             left / 1024, STACK_LEAST / 1024);
    rpp_set_error(RP_ERROR_LIMIT, &err);
    return false;
}

static void begin(struct work *work, PyObject *pool)
{
    rpp_assert_gil();
    work->pool = ((struct rpp_pool *)pool)->pool;
    work->ordinal = ((struct rpp_pool *)pool)->ordinal;
    work->stack = (uintptr_t)__builtin_frame_address(0);
    work->thread = PyEval_SaveThread();
}

static PyObject *do_capture(PyObject *pool, struct work *work, struct rp_capture_options *options)
{
    struct rp_graph *graph = NULL;
    struct rp_error err = {0};
    if (work->results)
        options->results = give_memory;
    if (work->in_use)
        options->in_use = is_in_use;
    begin(work, pool);
    rp_status status = rp_graph_capture(((struct rpp_pool *)pool)->pool, options, run_callable,
                                        work, work->args, work->arg_count, &graph, &err);
    PyEval_RestoreThread(work->thread);
    return status == RP_OK ? wrap_graph(graph, pool, work) : fail(work, status, &err);
}

PyObject *rpp_capture(PyObject *module, PyObject *arguments)
{
    rpp_assert_gil();
    (void)module;
    PyObject *pool, *arg_list;
    struct work work = {0};
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    unsigned long long stream = 0, lead = 0;
    int verify = RP_VERIFY_NONE;
    if (!PyArg_ParseTuple(arguments, "O!OO!Osp|iKKO", rpp_pool_type, &pool, &work.callable,
                          &PyList_Type, &arg_list, &work.results, &options.name, &options.copy_args,
                          &verify, &stream, &lead, &work.in_use))
        return NULL;
    options.verify = (enum rp_verify)verify;
    options.lead_bytes = lead;
    options.stream = (struct CUstream_st *)(uintptr_t)stream;
    PyObject *made = NULL;
    if (has_stack() && read_args(arg_list, &work) && read_known(&work))
        made = do_capture(pool, &work, &options);
    free_work(&work);
    return made;
}

static PyObject *do_estimate(struct rp_estimate *estimate, PyObject *pool, struct work *work,
                             const char *name)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rp_error err = {0};
    options.name = name;
    options.results = give_memory;
    begin(work, pool);
    rp_status status = rp_estimate_add(estimate, ((struct rpp_pool *)pool)->pool, &options,
                                       run_callable, work, work->args, work->arg_count, &err);
    PyEval_RestoreThread(work->thread);
    return status == RP_OK ? Py_NewRef(Py_None) : fail(work, status, &err);
}

PyObject *rpp_estimate_add(struct rp_estimate *estimate, PyObject *arguments)
{
    PyObject *pool, *arg_list, *done = NULL;
    struct work work = {0};
    const char *name;
    if (!PyArg_ParseTuple(arguments, "O!OO!Os", rpp_pool_type, &pool, &work.callable, &PyList_Type,
                          &arg_list, &work.results, &name))
        return NULL;
    if (has_stack() && read_args(arg_list, &work))
        done = do_estimate(estimate, pool, &work, name);
    free_work(&work);
    return done;
}
