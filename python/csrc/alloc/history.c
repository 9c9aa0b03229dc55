/* SPDX-License-Identifier: MIT */
#include "alloc/history.h"

#include "alloc/mempool.h"
#include "alloc/regions.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- Stacks --------------------------------------------------------------------------------- */

struct stack {
    PyObject *traceback; /* NULL: only a region is asked for */
    const char *region;  /* compiled, that it was gathered in; NULL: none */
    struct stack *next;  /* in the list of those that nothing refers to */
};

static struct {
    PyObject *gather; /* NULL: no stacks. Under the GIL */
    bool cpp;         /* likewise */
    bool regions;     /* likewise */
    struct stack *_Atomic released;
} stacks;

/* With the GIL held. */
static void drop_released(void)
{
    rpp_assert_gil();
    struct stack *stack = atomic_exchange(&stacks.released, NULL);
    while (stack) {
        struct stack *next = stack->next;
        Py_XDECREF(stack->traceback);
        free(stack);
        stack = next;
    }
}

/* With the GIL held. NULL: it could not be made, which is no error of who allocates. */
static struct stack *gather(void)
{
    rpp_assert_gil();
    assert(!PyErr_Occurred()); /* of who allocates, it was put aside */
    const char *region = stacks.regions ? rpp_region_now() : NULL;
    if (!stacks.gather && !region)
        return NULL;
    struct stack *stack = malloc(sizeof *stack);
    if (!stack)
        return NULL;
    *stack = (struct stack){.region = region};
    if (!stacks.gather)
        return stack;
    stack->traceback = PyObject_CallFunctionObjArgs(stacks.gather, Py_True, Py_True,
                                                    stacks.cpp ? Py_True : Py_False, NULL);
    if (stack->traceback)
        return stack;
    PyErr_Clear();
    free(stack);
    return NULL;
}

/* An error that is under way stays: tensors are freed behind one. */
static uint64_t capture(void *user)
{
    (void)user;
    PyObject *type, *value, *traceback;
    if (rpp_holds_lock || atomic_load(&rpp_state.leaving))
        return 0;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyErr_Fetch(&type, &value, &traceback);
    drop_released();
    struct stack *stack = gather();
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(gil);
    return (uintptr_t)stack;
}

static void release(uint64_t id, void *user)
{
    (void)user;
    struct stack *stack = (struct stack *)(uintptr_t)id; // NOLINT(performance-no-int-to-ptr)
    if (!stack)
        return;
    stack->next = atomic_load(&stacks.released);
    while (!atomic_compare_exchange_weak(&stacks.released, &stack->next, stack)) {
    }
}

struct rp_heap_frames rpp_history_frames(void)
{
    return (struct rp_heap_frames){.capture = capture, .release = release};
}

static void set_gather(PyObject *function, bool cpp, bool regions)
{
    rpp_assert_gil();
    Py_XINCREF(function);
    PyObject *before = stacks.gather;
    stacks.gather = function;
    stacks.cpp = cpp;
    stacks.regions = regions;
    Py_XDECREF(before);
    drop_released();
}

PyObject *rpp_keep_history(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    int ordinal, which, keep, cpp, regions;
    Py_ssize_t entries;
    unsigned long long skip;
    PyObject *function;
    struct rp_heap *heap;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "iniKpOpp", &ordinal, &entries, &which, &skip, &keep, &function,
                          &cpp, &regions))
        return NULL;
    struct rp_heap_history_options options = RP_HEAP_HISTORY_OPTIONS_INIT;
    options.entries = (size_t)entries;
    options.skip = skip;
    options.stacks = (enum rp_heap_stacks)which;
    options.keep = keep;
    rp_status status = rpp_heap_get(ordinal, &heap, &err);
    if (status == RP_OK)
        status = rp_heap_keep_history(heap, &options, &err);
    if (status != RP_OK)
        return rpp_set_error(status, &err);
    set_gather(function == Py_None ? NULL : function, cpp, regions);
    return Py_NewRef(Py_None);
}

PyObject *rpp_mark_history(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    int ordinal;
    unsigned long long mark;
    struct rp_heap *heap;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "iK", &ordinal, &mark))
        return NULL;
    rp_status status = rpp_heap_get(ordinal, &heap, &err);
    if (status != RP_OK)
        return rpp_set_error(status, &err);
    rp_heap_mark_history(heap, mark);
    return Py_NewRef(Py_None);
}

/* ---- Snapshots ------------------------------------------------------------------------------ */

struct look {
    const struct rp_heap_snapshot *snapshot;
    int ordinal;
    int event_pools; /* PyTorch since 2.14 tells the pool of an event */
    PyObject *marks, *wanted;
};

/* Appends to a list what is given away to it; false, with an exception set, where that is NULL. */
static bool give(PyObject *list, PyObject *item)
{
    rpp_assert_gil();
    bool given = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return given;
}

/* Adds "frames" to a dict: those of a stack once they are known. */
static bool add_frames(const struct look *look, PyObject *dict, uint64_t id)
{
    rpp_assert_gil();
    const struct stack *stack = (const struct stack *)(uintptr_t)id; // NOLINT
    PyObject *frames = PyList_New(0);
    bool added = frames && PyDict_SetItemString(dict, "frames", frames) == 0;
    Py_XDECREF(frames);
    if (!added || !stack || !stack->traceback)
        return added;
    return give(look->wanted, Py_BuildValue("(OO)", dict, stack->traceback));
}

static PyObject *block_of(const struct look *look, size_t index)
{
    struct rp_heap_snapshot_block block = {.size = sizeof block};
    rp_heap_snapshot_block(look->snapshot, index, &block);
    PyObject *dict = Py_BuildValue("{sKsKsKss}", "address", (unsigned long long)block.address,
                                   "size", (unsigned long long)block.bytes, "requested_size",
                                   (unsigned long long)block.requested, "state", block.state);
    if (dict && !add_frames(look, dict, block.stack))
        Py_CLEAR(dict);
    return dict;
}

static PyObject *blocks_of(const struct look *look, const struct rp_heap_snapshot_segment *segment)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < segment->block_count; i++)
        if (!give(list, block_of(look, segment->first_block + i)))
            Py_CLEAR(list);
    return list;
}

static PyObject *segment_of(const struct look *look, const struct rp_heap_snapshot_segment *segment)
{
    PyObject *blocks = blocks_of(look, segment);
    struct rpp_pool_id id = rpp_mempool_id(segment->pool);
    if (!blocks)
        return NULL;
    return Py_BuildValue(
        "{sisKsKsKsKsKsKsss(KK)sOs[]sN}", "device", look->ordinal, "address",
        (unsigned long long)segment->address, "total_size", (unsigned long long)segment->bytes,
        "allocated_size", (unsigned long long)segment->allocated_bytes, "active_size",
        (unsigned long long)segment->active_bytes, "requested_size",
        (unsigned long long)segment->requested_bytes, "stream",
        (unsigned long long)(uintptr_t)segment->stream, "segment_type",
        segment->is_large ? "large" : "small", "segment_pool_id", (unsigned long long)id.words[0],
        (unsigned long long)id.words[1], "is_expandable",
        segment->is_oversize || segment->is_sourced ? Py_False : Py_True, "frames", "blocks",
        blocks);
}

static PyObject *segments_of(const struct look *look)
{
    struct rp_heap_snapshot_segment segment = {.size = sizeof segment};
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && rp_heap_snapshot_segment(look->snapshot, i, &segment); i++)
        if (!give(list, segment_of(look, &segment)))
            Py_CLEAR(list);
    return list;
}

static bool add_pool(PyObject *dict, uint32_t pool)
{
    struct rpp_pool_id id = rpp_mempool_id(pool);
    PyObject *pair =
        Py_BuildValue("(KK)", (unsigned long long)id.words[0], (unsigned long long)id.words[1]);
    bool added = pair && PyDict_SetItemString(dict, "pool_id", pair) == 0;
    Py_XDECREF(pair);
    return added;
}

/* An event without a stack has no frames, as PyTorch's. */
static PyObject *event_of(const struct look *look, const struct rp_heap_snapshot_event *event)
{
    bool oom = strcmp(event->action, "oom") == 0;
    const struct stack *stack = (const struct stack *)(uintptr_t)event->stack; // NOLINT
    PyObject *metadata = PyList_GetItem(look->marks, (Py_ssize_t)event->mark);
    if (!metadata)
        return NULL;
    PyObject *dict =
        Py_BuildValue("{sssKsKsKsKsssO}", "action", event->action, oom ? "device_free" : "addr",
                      (unsigned long long)event->address, "size", (unsigned long long)event->bytes,
                      "stream", (unsigned long long)(uintptr_t)event->stream, "time_us",
                      (unsigned long long)event->time_us, "compile_context",
                      stack && stack->region ? stack->region : "N/A", "user_metadata", metadata);
    if (dict && stack && stack->traceback && !add_frames(look, dict, event->stack))
        Py_CLEAR(dict);
    if (dict && look->event_pools && !add_pool(dict, event->pool))
        Py_CLEAR(dict);
    return dict;
}

static PyObject *events_of(const struct look *look, bool traces)
{
    struct rp_heap_snapshot_event event = {.size = sizeof event};
    PyObject *list = PyList_New(0);
    for (size_t i = 0; traces && list && rp_heap_snapshot_event(look->snapshot, i, &event); i++)
        if (!give(list, event_of(look, &event)))
            Py_CLEAR(list);
    return list;
}

PyObject *rpp_heap_look(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    struct look look = {0};
    int traces;
    struct rp_heap *heap;
    struct rp_heap_snapshot *snapshot;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "ipO!|p", &look.ordinal, &traces, &PyList_Type, &look.marks,
                          &look.event_pools))
        return NULL;
    drop_released();
    rp_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = rpp_heap_get(look.ordinal, &heap, &err);
    if (status == RP_OK)
        status = rp_heap_snapshot_create(heap, &snapshot, &err);
    Py_END_ALLOW_THREADS;
    if (status != RP_OK)
        return rpp_set_error(status, &err);
    look.snapshot = snapshot;
    look.wanted = PyList_New(0);
    PyObject *segments = look.wanted ? segments_of(&look) : NULL;
    PyObject *events = segments ? events_of(&look, traces) : NULL;
    rp_heap_snapshot_destroy(snapshot);
    if (events)
        return Py_BuildValue("(NNN)", segments, events, look.wanted);
    Py_XDECREF(segments);
    Py_XDECREF(look.wanted);
    return NULL;
}
