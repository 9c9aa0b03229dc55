/* SPDX-License-Identifier: MIT
 *
 * reprise._C: the library as PyTorch's front end needs it. Thin: the reference is reprise.h, and
 * the package's documentation the Python files beside it.
 */
#include "alloc/direct.h"
#include "alloc/execs.h"
#include "alloc/history.h"
#include "alloc/hooks.h"
#include "alloc/listen.h"
#include "alloc/mempools.h"
#include "alloc/methods.h"
#include "alloc/observers.h"
#include "alloc/pool.h"
#include "alloc/raise.h"
#include "alloc/regions.h"
#include "alloc/share.h"
#include "base/aside.h"
#include "base/gradient_address.h"
#include "base/memo_links.h"
#include "base/tensor_address.h"
#include "base/uncollected.h"
#include "call/builder.h"
#include "call/choice.h"
#include "call/fast_call.h"
#include "call/guard.h"
#include "call/pass.h"
#include "capture/capture.h"
#include "capture/device.h"
#include "capture/draws.h"
#include "capture/estimate.h"
#include "capture/graph.h"
#include "capture/recording.h"
#include "capture/refusals.h"
#include "capture/scalars.h"
#include "capture/workspaces.h"
#include "grad/gradients.h"
#include "reads/bodies.h"
#include "reads/code.h"
#include "reads/dicts.h"
#include "reads/layouts.h"
#include "reads/marks.h"
#include "reads/reach.h"
#include "reads/reached.h"
#include "reads/reads.h"
#include "reads/switches.h"
#include "reads/told.h"
#include "reads/walk.h"

#include <reprise_tools.h>
#include <stdio.h>
#include <string.h>

/* ---- Hooks --------------------------------------------------------------------------------- */

static PyObject *hooks(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
#define ADDRESS(function) (unsigned long long)(uintptr_t)(function)
    return Py_BuildValue("{sKsKsKsKsKsKsKsKsKsK}", "segment", ADDRESS(rpp_hook_segment), "alloc",
                         ADDRESS(rpp_hook_alloc), "free", ADDRESS(rpp_hook_free), "reset",
                         ADDRESS(rpp_hook_reset), "fraction", ADDRESS(rpp_hook_fraction), "base",
                         ADDRESS(rpp_hook_base), "use", ADDRESS(rpp_hook_use), "begin_pool",
                         ADDRESS(rpp_hook_begin_pool), "end_pool", ADDRESS(rpp_hook_end_pool),
                         "release_pool", ADDRESS(rpp_hook_release_pool));
#undef ADDRESS
}

static PyObject *prepare(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    const char *missing = rpp_raise_prepare();
    return missing ? PyUnicode_FromString(missing) : Py_NewRef(Py_None);
}

static PyObject *leave(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    atomic_store(&rpp_state.leaving, true);
    return Py_NewRef(Py_None);
}

/* ---- Calls --------------------------------------------------------------------------------- */

/* The block of the call with the number, or of any where that is 0, that holds the address; its
 * address is 0 where there is none. With the lock held. */
static struct rpp_block block_of(uint64_t number, uint64_t address)
{
    const struct rpp_addresses *blocks = &rpp_state.call.blocks;
    for (size_t i = 0; i < blocks->capacity; i++) {
        const struct rpp_block *at = &blocks->slots[i];
        if (at->address && (!number || at->call == number) && address - at->address < at->bytes)
            return *at;
    }
    return (struct rpp_block){0};
}

/* (index, bytes, start) of the block of the call under way that holds the address; None. */
static PyObject *call_block(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long address;
    if (!PyArg_ParseTuple(args, "K", &address))
        return NULL;
    struct rpp_block block = {0};
    pthread_mutex_lock(&rpp_state.lock);
    if (rpp_state.call.call)
        block = block_of(rpp_state.call.number, address);
    pthread_mutex_unlock(&rpp_state.lock);
    return block.address ? Py_BuildValue("(IKK)", block.index, (unsigned long long)block.bytes,
                                         (unsigned long long)block.address)
                         : Py_NewRef(Py_None);
}

static PyObject *is_captured(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long address;
    if (!PyArg_ParseTuple(args, "K", &address))
        return NULL;
    pthread_mutex_lock(&rpp_state.lock);
    bool is = block_of(0, address).address != 0;
    pthread_mutex_unlock(&rpp_state.lock);
    return PyBool_FromLong(is);
}

static PyObject *sweep(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    Py_BEGIN_ALLOW_THREADS;
    rpp_once_sweep();
    Py_END_ALLOW_THREADS;
    for (PyObject *keeper; (keeper = rpp_once_unbind());)
        Py_DECREF(keeper);
    return PyLong_FromSize_t(rpp_sweep_graphs());
}

static PyObject *abandon(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    rpp_once_abandon();
    return Py_NewRef(Py_None);
}

/* How many blocks of ended calls are alive, and how many allocations of the last call were not in
 * its capture. */
static PyObject *call_counts(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    pthread_mutex_lock(&rpp_state.lock);
    size_t alive = rpp_state.call.blocks.count;
    uint32_t strays = rpp_state.call.strays;
    pthread_mutex_unlock(&rpp_state.lock);
    return Py_BuildValue("(nI)", (Py_ssize_t)alive, strays);
}

/* ---- Heaps --------------------------------------------------------------------------------- */

static PyObject *device_info(PyObject *module, PyObject *args)
{
    (void)module;
    struct rp_device *device = rpp_parse_device(args);
    if (!device)
        return NULL;
    struct rp_device_info info = {.size = sizeof info};
    rp_device_info(device, &info);
    return Py_BuildValue("{sssssisisisisK}", "driver", info.driver, "name", info.name,
                         "driver_version", info.driver_version, "compute_major", info.compute_major,
                         "compute_minor", info.compute_minor, "multiprocessors",
                         info.multiprocessors, "total_bytes", info.total_bytes);
}

/* The heap of the ordinal that args hold; NULL with an exception set. */
static struct rp_heap *parse_heap(PyObject *args, const char *format, int *ordinal, void *more)
{
    struct rp_heap *heap;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, format, ordinal, more))
        return NULL;
    rp_status status = rpp_heap_get(*ordinal, &heap, &err);
    if (status == RP_OK)
        return heap;
    rpp_set_error(status, &err);
    return NULL;
}

/* Adds to a statistic what graphs of PyTorch's own have of it. */
static void add_to(int64_t values[RP_HEAP_STATS], const char *name, int64_t bytes)
{
    static const char *const pools[] = {"all", "large_pool"}, *const kinds[] = {"current", "peak",
                                                                                "allocated"};
    char wanted[64];
    for (size_t k = 0; bytes && k < 6; k++) {
        snprintf(wanted, sizeof wanted, "%s.%s.%s", name, pools[k / 3], kinds[k % 3]);
        for (size_t i = 0; i < RP_HEAP_STATS; i++)
            if (strcmp(rp_heap_stat_name(i), wanted) == 0)
                values[i] += bytes;
    }
}

static void add_leases(int ordinal, int64_t values[RP_HEAP_STATS])
{
    int64_t allocated, reserved;
    rpp_once_totals(ordinal, &allocated, &reserved);
    add_to(values, "allocated_bytes", allocated);
    add_to(values, "active_bytes", allocated);
    add_to(values, "requested_bytes", allocated);
    add_to(values, "reserved_bytes", reserved);
}

static PyObject *heap_stats(PyObject *module, PyObject *args)
{
    (void)module;
    int ordinal, unused = 0;
    struct rp_heap *heap = parse_heap(args, "i|i", &ordinal, &unused);
    if (!heap)
        return NULL;
    int64_t values[RP_HEAP_STATS];
    rp_heap_stats(heap, values, RP_HEAP_STATS);
    add_leases(ordinal, values);
    PyObject *stats = PyDict_New();
    for (size_t i = 0; stats && i < RP_HEAP_STATS; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        if (!value || PyDict_SetItemString(stats, rp_heap_stat_name(i), value) != 0)
            Py_CLEAR(stats);
        Py_XDECREF(value);
    }
    return stats;
}

static PyObject *enable_caching(PyObject *module, PyObject *args)
{
    (void)module;
    int on = 1;
    if (!PyArg_ParseTuple(args, "|p", &on))
        return NULL;
    rpp_direct_switch(!on);
    return Py_NewRef(Py_None);
}

static PyObject *heap_reset(PyObject *module, PyObject *args)
{
    (void)module;
    int ordinal, peak = 1;
    struct rp_heap *heap = parse_heap(args, "ip", &ordinal, &peak);
    if (!heap)
        return NULL;
    if (peak)
        rp_heap_reset_peak(heap);
    else
        rp_heap_reset_accumulated(heap);
    return Py_NewRef(Py_None);
}

/* heap_configure(gc_threshold, max_split_bytes, max_non_split_rounding_bytes, divisions) */
static PyObject *heap_configure(PyObject *module, PyObject *args)
{
    (void)module;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    unsigned long long split, rounding;
    PyObject *divisions;
    if (!PyArg_ParseTuple(args, "dKKO!", &options.gc_threshold, &split, &rounding, &PyTuple_Type,
                          &divisions))
        return NULL;
    Py_ssize_t count = PyTuple_Size(divisions);
    if (count != 0 && count != RP_HEAP_ROUNDINGS)
        return PyErr_Format(PyExc_ValueError, "there are %d divisions, not %zd", RP_HEAP_ROUNDINGS,
                            count);
    for (Py_ssize_t i = 0; i < count; i++)
        options.roundup_power2_divisions[i] =
            (unsigned)PyLong_AsUnsignedLong(PyTuple_GetItem(divisions, i));
    if (PyErr_Occurred())
        return NULL;
    options.max_split_bytes = split;
    options.max_non_split_rounding_bytes = rounding;
    options.frames = rpp_history_frames();
    struct rp_error err = {0};
    rp_status status = rpp_heap_configure(&options, &err);
    return status == RP_OK ? Py_NewRef(Py_None) : rpp_set_error(status, &err);
}

static PyObject *explain(PyObject *module, PyObject *args)
{
    (void)module;
    const char *query;
    if (!PyArg_ParseTuple(args, "s", &query))
        return NULL;
    const struct rp_explanation *found = rp_explain(query);
    return found ? Py_BuildValue("(ssssz)", found->key, found->meaning,
                                 found->mends[0] ? found->mends[0] : "", found->title,
                                 found->obstacle)
                 : Py_NewRef(Py_None);
}

/* (0: not capturing, 1: capturing, 2: a capture that is broken; nodes of the capture so far) */
static PyObject *capture_status(PyObject *module, PyObject *args)
{
    (void)module;
    int ordinal, status = 0;
    unsigned long long stream;
    struct rpp_device *slot;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "iK", &ordinal, &stream))
        return NULL;
    rp_status opened = rpp_device_get(ordinal, &slot, &err);
    if (opened != RP_OK)
        return rpp_set_error(opened, &err);
    unsigned long long id;
    void *graph = NULL, *terminals, *edges;
    size_t count = 0, nodes = 0;
    struct CUstream_st *handle = (struct CUstream_st *)(uintptr_t)stream;
    slot->is_capturing(handle, &status);
    if (status == 1 &&
        slot->capture_info(handle, &status, &id, &graph, &terminals, &edges, &count) == 0 && graph)
        slot->graph_nodes(graph, NULL, &nodes);
    return Py_BuildValue("(in)", status, (Py_ssize_t)nodes);
}

static PyMethodDef methods[] = {
    {"hooks", hooks, METH_NOARGS, "Addresses of the functions for PyTorch's pluggable allocator."},
    {"prepare", prepare, METH_NOARGS, "Looks up what throws; what is missing, or None."},
    {"answer_methods", rpp_answer_methods, METH_NOARGS,
     "Answers what PyTorch's C++ asks of its allocator without a hook; what is missing, or None."},
    {"leave", leave, METH_NOARGS, "Frees nothing from now on: the interpreter is going."},
    {"capture", rpp_capture, METH_VARARGS,
     "capture(pool, callable, args, results, name, copy_args, verify, stream, lead, in_use) -> "
     "Graph. "
     "results(sizes) -> (addresses, places) of what was named; or places alone."},
    {"call_result", rpp_call_result, METH_VARARGS,
     "call_result(bytes, block): names a result of the call; its address. block: 0 for none."},
    {"call_value", rpp_call_value, METH_VARARGS,
     "call_value(address): each replay sets this word of 8 bytes (set_draws)."},
    {"call_leave", rpp_call_leave, METH_VARARGS,
     "call_leave(address): nothing lies in this segment of the call any more, and nothing will."},
    {"call_scalars", rpp_call_scalars, METH_O,
     "call_scalars((number, ...)): replays may change these in kernels' parameters (set_scalars)."},
    {"scalar_kind", rpp_scalar_kind, METH_O,
     "scalar_kind(float): 1 or 2, by its sign; 3 or 4 above 1; 0: one that work may be chosen by."},
    {"call_take_over", rpp_call_take_over, METH_NOARGS, "The run begins a capture of its own."},
    {"call_begun", rpp_call_begun, METH_NOARGS, "It has begun, on the run's stream."},
    {"call_ended", rpp_call_ended, METH_VARARGS,
     "call_ended(graph, nodes): it has ended; the graph is taken, these nodes left out."},
    {"side_stream", rpp_side_stream, METH_VARARGS,
     "side_stream(ordinal): the handle of the device's stream for captures beside the library's."},
    {"copy", rpp_copy, METH_VARARGS,
     "copy(ordinal, stream, [(to, from, bytes), ...]): enqueues copies by the library's kernel."},
    {"probe_words", rpp_probe_words, METH_VARARGS,
     "probe_words(ordinal, stream, marker): (node, seed, offset): the kernel captured last on the "
     "stream, and where it reads these from, if it counts from the marker; or None."},
    {"words_of", rpp_words_of, METH_VARARGS,
     "words_of(ordinal, graph): (seed, offset) where kernels may read random numbers from."},
    {"last_node", rpp_last_node, METH_VARARGS,
     "last_node(ordinal, stream): what the stream's next node would depend on; 0: not one node."},
    {"call_block", call_block, METH_VARARGS,
     "(index, bytes, start) of a block of the call, or None."},
    {"is_captured", is_captured, METH_VARARGS, "Is memory of a capture there that was not freed?"},
    {"call_counts", call_counts, METH_NOARGS, "(blocks alive, allocations outside the capture)."},
    {"sweep", sweep, METH_NOARGS,
     "Destroys dropped graphs whose memory is free by now; how many are left."},
    {"restore_pace", rpp_restore_pace, METH_VARARGS,
     "restore_pace(ordinal): struct rp_pace; a context may be made and destroyed."},
    {"exec_budget", rpp_exec_budget, METH_VARARGS,
     "exec_budget(ordinal, bytes): most memory for executable graphs; 0: the default."},
    {"exec_info", rpp_exec_info, METH_VARARGS, "What a device's executable graphs took."},
    {"abandon", abandon, METH_NOARGS, "A capture of PyTorch's that this thread began has failed."},
    {"bind_pool", rpp_bind_pool, METH_VARARGS,
     "bind_pool(id, id, pool): graphs of that pool of PyTorch's lie in this one."},
    {"leases", rpp_leases, METH_NOARGS, "Facts of the graphs that PyTorch captured itself."},
    {"draw_lease", rpp_draw_lease, METH_VARARGS,
     "draw_lease(ordinal, id, id, path): the pool that stands for PyTorch's, as SVG."},
    {"count_registration", rpp_count_registration, METH_VARARGS,
     "Makes all guards of FastCall objects fail."},
    {"see_tensor", rpp_see_tensor, METH_VARARGS,
     "see_tensor(tensor, its size, address of its impl, storage and data, offset, dispatch keys, "
     "shape, stride, number of its dtype)."},
    {"watches_dicts", rpp_watches_dicts, METH_NOARGS, "Does the interpreter tell of modes?"},
    {"learn_hooks", rpp_learn_hooks, METH_VARARGS,
     "learn_hooks(torch.Tensor, tensor with hooks of both kinds, one without, their size): is it "
     "known "
     "where tensors have them?"},
    {"learn_function", rpp_learn_function, METH_VARARGS,
     "learn_function(function with all parts, its size): is it known where functions have them?"},
    {"learn_words", rpp_learn_words, METH_VARARGS,
     "learn_words(object, its size, names): of how many is it known where functions or classes "
     "have them?"},
    {"learn_count", rpp_learn_count, METH_VARARGS,
     "learn_count(module, ask, step): is it known which word of the module's state ask() gives?"},
    {"learn_links", rpp_learn_links, METH_O,
     "learn_links(three links of a functools.lru_cache): is it known where they have neighbours?"},
    {"unlink", rpp_unlink, METH_O,
     "unlink(link): takes it out of its cache's list; False where that is not known."},
    {"parts_of", rpp_parts_of, METH_O,
     "parts_of(function): its code, its defaults and those by name; no audit hook hears of it."},
    {"dict_of_class", rpp_dict_of_class, METH_O,
     "dict_of_class(class): the dict behind the view of it; None: it has none."},
    {"body_of", rpp_body_of, METH_O,
     "body_of(dict of a class): a copy, without what Python itself puts there."},
    {"learn_operations", rpp_learn_operations, METH_VARARGS,
     "learn_operations(what, shifts, extended, askers, everything, makers, matched): see code.h."},
    {"read_instructions", rpp_read_instructions, METH_VARARGS,
     "read_instructions(code, globals, attributes, imports): adds the names that it reads by; does "
     "it make some?"},
    {"names_in", rpp_names_in, METH_O,
     "names_in(code): all names of the code, and of code within it."},
    {"give_tables", rpp_give_tables, METH_O,
     "give_tables(object): are dicts of instances given tables of their own as they are marked?"},
    {"trust_tags", rpp_trust_tags, METH_NOARGS,
     "trust_tags(): dicts of instances have tags, as was proved."},
    {"are_dicts_known", rpp_are_dicts_known, METH_NOARGS,
     "are_dicts_known(): are dicts gone through without calls of the interpreter's?"},
    {"dict_tag", rpp_dict_tag_of, METH_O, "A word of a dict that may change with it."},
    {"is_as_reached", rpp_is_as_reached, METH_VARARGS,
     "is_as_reached(functions, objects, globals, classes): are they as a Reach noted them?"},
    {"touched", rpp_touched, METH_O,
     "touched(records): those whose owners hold other objects by now."},
    {"learn_workspaces", rpp_learn_workspaces, METH_VARARGS,
     "learn_workspaces(path of libtorch_cuda, by_maps, have_locks): can those of one stream be "
     "dropped?"},
    {"drop_workspaces", rpp_drop_workspaces, METH_VARARGS,
     "drop_workspaces(stream): frees those that PyTorch keeps for it; were they found?"},
    {"learn_context", rpp_learn_context, METH_VARARGS,
     "learn_context(path of libtorch_cpu): forgets all switches; is PyTorch's context found?"},
    {"learn_switch", rpp_learn_switch, METH_VARARGS,
     "learn_switch(path of a library, symbol, a, b, bytes, is_free=False): what it says; None: "
     "there is none."},
    {"forget_switch", rpp_forget_switch, METH_NOARGS, "Forgets the switch that came last."},
    {"learn_order", rpp_learn_order, METH_O, "Is the order of back ends found in the context?"},
    {"ask_global", rpp_ask_global, METH_VARARGS,
     "ask_global(dict of a module, name): each call looks what is there."},
    {"ask_switches", rpp_ask_switches, METH_O, "Functions that each call asks beside."},
    {"ask_modes", rpp_ask_modes, METH_O,
     "The switch that was learned last is how many modes are on a stack: tells which."},
    {"tables_lie_on_heap", rpp_tables_lie_on_heap, METH_O,
     "tables_lie_on_heap(bool): does PyTorch make tables of tensors there? Then runs get zeros."},
    {"clean_stack", rpp_clean_stack, METH_O, "Zeros the thread's stack below the caller."},
    {"writing_replays", rpp_writing_replays, METH_NOARGS,
     "How many replays wrote to tensors that are no arguments of theirs."},
    {"run_aside", rpp_run_aside, METH_VARARGS,
     "run_aside(callable, seconds): on a thread of its own; has it ended by then?"},
    {"settle_layout", rpp_settle_layout, METH_NOARGS, "Is it known where tensors have those?"},
    {"tensor_places", rpp_tensor_places, METH_O,
     "Where each of a list of tensors lies, and its form, as bytes; None: that is not known."},
    {"see_gradient", rpp_see_gradient, METH_VARARGS,
     "see_gradient(tensor, address of its impl, of its gradient's or 0, does it want one)."},
    {"with_gradients", rpp_with_gradients, METH_O,
     "with_gradients(parameters): the numbers of those that have a gradient now."},
    {"settle_gradients", rpp_settle_gradients, METH_NOARGS, "Is it known where tensors have it?"},
    {"device_info", device_info, METH_VARARGS, "What a device is."},
    {"heap_stats", heap_stats, METH_VARARGS, "Statistics under the names of PyTorch's."},
    {"heap_look", rpp_heap_look, METH_VARARGS,
     "heap_look(ordinal, traces, marks[, pools of events]): a snapshot: (segments, events, [(dict, "
     "stack), ..])."},
    {"heap_configure", heap_configure, METH_VARARGS,
     "heap_configure(gc_threshold, max_split, max_non_split_rounding, divisions), for all heaps."},
    {"enable_caching", enable_caching, METH_VARARGS,
     "enable_caching([on]): is memory cached, or each allocation the driver's?"},
    {"heap_reset", heap_reset, METH_VARARGS, "Resets peaks, or what was accumulated."},
    {"keep_history", rpp_keep_history, METH_VARARGS,
     "keep_history(ordinal, entries, stacks, skip, keep, gather, cpp, regions): keeps events."},
    {"call_for_regions", rpp_call_for_regions, METH_VARARGS,
     "call_for_regions(function, arguments): has PyTorch tell of compiled regions, or not."},
    {"mark_history", rpp_mark_history, METH_VARARGS,
     "mark_history(ordinal, number): events from here on have it."},
    {"mempool_make", rpp_py_mempool_make, METH_VARARGS,
     "mempool_make(id, id, flags, allocator): the number of a new memory pool."},
    {"mempool_drop", rpp_py_mempool_drop, METH_VARARGS, "The memory pool is gone."},
    {"mempool_find", rpp_py_mempool_find, METH_VARARGS,
     "mempool_find(id, id): the number of a memory pool, or 0."},
    {"mempool_begin", rpp_py_mempool_begin, METH_VARARGS,
     "mempool_begin(ordinal, number): this thread's memory comes from there."},
    {"mempool_end", rpp_py_mempool_end, METH_VARARGS, "Ends that."},
    {"mempool_release", rpp_py_mempool_release, METH_VARARGS, "Counts a use less."},
    {"mempool_count", rpp_py_mempool_count, METH_VARARGS, "Who needs it: itself, and each use."},
    {"listen_trace", rpp_listen_trace, METH_VARARGS,
     "listen_trace(allocated, freed): what is called with each address."},
    {"traces_gpu", rpp_traces_gpu, METH_NOARGS, "Is PyTorch's GPU trace on?"},
    {"listen_profiler", rpp_listen_profiler, METH_VARARGS,
     "listen_profiler(begins): a profiler begins or ends; what is missing, or None."},
    {"lease_pools", rpp_lease_pools, METH_VARARGS,
     "lease_pools(ordinal): memory of PyTorch's graphs."},
    {"lease_want", rpp_lease_want, METH_VARARGS,
     "lease_want(id, id, address, stream): the thread's next allocation is this block again, or "
     "any."},
    {"swap_owners", rpp_swap_owners, METH_VARARGS,
     "swap_owners(storage, storage, address): who frees the one frees the other."},
    {"lease_blocks", rpp_lease_blocks, METH_VARARGS,
     "lease_blocks(ordinal, id, id): where tensors lie in memory of PyTorch's graphs."},
    {"share_memory", rpp_share_memory, METH_VARARGS,
     "share_memory(address, bytes, wanted) -> (device, bytes of each mapping, offset in the first, "
     "how many, descriptors), or None."},
    {"map_shared", rpp_map_shared, METH_VARARGS,
     "map_shared(device, bytes of each, descriptors) -> address of what another process shares."},
    {"unmap_shared", rpp_unmap_shared, METH_VARARGS,
     "unmap_shared(device, address, count, bytes of each, stream): False where the stream "
     "captures."},
    {"shared_capsule", rpp_shared_capsule, METH_VARARGS,
     "shared_capsule(address, bytes, device, owner) -> a tensor of bytes for torch.from_dlpack."},
    {"exchange_mode", rpp_exchange_mode, METH_VARARGS,
     "exchange_mode(device, CUstreamCaptureMode of this thread) -> the one before."},
    {"observe_shortage", rpp_observe_shortage, METH_O,
     "observe_shortage(function): called with (device, bytes, total, free) where memory is short."},
    {"capture_status", capture_status, METH_VARARGS,
     "Of a stream: (0 not capturing, 1 capturing, 2 capturing and broken; nodes captured so far)."},
    {"explain", explain, METH_VARARGS,
     "(key, meaning, mend, title, obstacle) of an error or obstacle, or None."},
    {"record_begin", rpp_record_begin, METH_VARARGS,
     "record_begin(ordinal, stream): the stream's capture is recorded from here on."},
    {"record_moment", rpp_record_moment, METH_VARARGS,
     "record_moment(stream): the number of the event that is this moment; -1: none is recorded."},
    {"record_end", rpp_record_end, METH_NOARGS,
     "Ends it: [(kind, address, bytes, stream, ((stream, node), ..)), ..]; node 0: it has none "
     "yet."},
    {"record_graph", rpp_record_graph, METH_VARARGS,
     "record_graph(ordinal, stream): ([(node, type), ..], [(from, to, type), ..]) of its capture."},
    {"watch_refusals", rpp_watch_refusals, METH_VARARGS,
     "watch_refusals(path): from here on CUPTI, loaded from there, tells what the driver refuses "
     "in "
     "a capture; False where it does not."},
    {"end_refusals", rpp_end_refusals, METH_NOARGS,
     "Ends that; (function, code) of the first call that was refused, or None."},
    {"driver_allocations", rpp_driver_allocations, METH_NOARGS,
     "How many calls since then may have taken memory of the device, whatever library made them."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_C",
    "Reprise's C library, for the package.",
    -1,
    methods,
    NULL,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__C(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    rpp_error_type = PyErr_NewExceptionWithDoc(
        "reprise.Error", "What Reprise could not do, and what to do.", PyExc_RuntimeError, NULL);
    if (!rpp_error_type || PyModule_AddObjectRef(module, "Error", rpp_error_type) != 0 ||
        PyModule_AddStringConstant(module, "version", rp_version()) != 0 ||
        rpp_add_pool_type(module) != 0 || rpp_add_graph_type(module) != 0 ||
        rpp_add_scalars_type(module) != 0 || rpp_add_reads_type(module) != 0 ||
        rpp_add_walk_types(module) != 0 || rpp_add_reach_types(module) != 0 ||
        rpp_add_told_type(module) != 0 || rpp_add_fast_call_type(module) != 0 ||
        rpp_add_pass_type(module) != 0 || rpp_add_builder_type(module) != 0 ||
        rpp_add_estimate_type(module) != 0 || rpp_add_uncollected_type(module) != 0 ||
        rpp_add_choice_types(module) != 0 || rpp_guard_prepare() != 0 ||
        rpp_gradients_prepare() != 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
