/* SPDX-License-Identifier: MIT
 *
 * The fault wrapper: one call of a driver fails without reaching it.
 *
 * A test runs a scenario with call 0 made to fail, then call 1, and so on until a run meets no
 * fault; after each, nothing may be leaked. Calls that only give something back are counted, so
 * that numbers stay the same, and let through. cuStreamEndCapture is the one call that is not
 * swallowed: a real one that fails takes its streams out of capture all the same, so the wrapped
 * driver ends the capture and the graph is destroyed before the failure is returned.
 *
 * Threads: the counters are atomic, so any thread may call; rpi_driver_fault,
 * rpi_driver_fault_at and rpi_driver_fault_watch are for one thread while no other is in a call.
 */
#include "driver/driver.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static struct {
    const struct rp_driver *inner;
    struct rp_driver table;
    _Atomic uint64_t calls;
    _Atomic uint64_t fault_call;
    _Atomic int fault_result;
    _Atomic(const char *) hit;
    rpi_driver_call_fn *watch; /* or NULL */
} state = {.fault_call = UINT64_MAX};

/* Functions that only give something back, and queries of texts. */
static const char *const let_through[] = {
    "cuGetErrorName",     "cuGetErrorString",   "cuDevicePrimaryCtxRelease",
    "cuCtxPopCurrent",    "cuCtxDestroy",       "cuMemFree",
    "cuMemFreeHost",      "cuMemAddressFree",   "cuMemRelease",
    "cuMemUnmap",         "cuStreamDestroy",    "cuEventDestroy",
    "cuModuleUnload",     "cuLibraryUnload",    "cuGraphDestroy",
    "cuGraphDestroyNode", "cuGraphExecDestroy",
};

static bool is_let_through(const char *function)
{
    for (size_t i = 0; i < sizeof let_through / sizeof *let_through; i++)
        if (!strcmp(function, let_through[i]))
            return true;
    return false;
}

/* Counts the call; true when it is the one that has to fail. */
static bool strikes(const char *function)
{
    uint64_t call = atomic_fetch_add(&state.calls, 1);
    if (state.watch)
        state.watch(call, !is_let_through(function));
    if (call != atomic_load(&state.fault_call) || is_let_through(function))
        return false;
    atomic_store(&state.hit, function);
    return true;
}

#define X(need, name, version, params, args)                                                       \
    static CUresult fault_##name params                                                            \
    {                                                                                              \
        if (strikes(#name))                                                                        \
            return (CUresult)atomic_load(&state.fault_result);                                     \
        return state.inner->name args;                                                             \
    }
#include "driver/symbols.def"
#undef X

static CUresult end_capture(CUstream stream, CUgraph *graph)
{
    if (!strikes("cuStreamEndCapture"))
        return state.inner->cuStreamEndCapture(stream, graph);
    CUgraph ended = NULL;
    if (state.inner->cuStreamEndCapture(stream, &ended) == CUDA_SUCCESS && ended)
        state.inner->cuGraphDestroy(ended);
    *graph = NULL;
    return (CUresult)atomic_load(&state.fault_result);
}

const struct rp_driver *rpi_driver_fault(const struct rp_driver *inner)
{
    assert(inner != &state.table);
    state.inner = inner;
    state.table = *inner;
#define X(need, name, version, params, args) state.table.name = inner->name ? fault_##name : NULL;
#include "driver/symbols.def"
#undef X
    /* Replaced last: keeping the generated one referenced spares an exception in the list above. */
    state.table.cuStreamEndCapture = end_capture;
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    return &state.table;
}

void rpi_driver_fault_at(uint64_t call, CUresult result)
{
    assert(state.inner);
    atomic_store(&state.fault_call, call);
    atomic_store(&state.fault_result, (int)result);
    atomic_store(&state.hit, NULL);
    atomic_store(&state.calls, 0);
}

void rpi_driver_fault_watch(rpi_driver_call_fn *watch)
{
    state.watch = watch;
}

uint64_t rpi_driver_fault_calls(void)
{
    return atomic_load(&state.calls);
}

const char *rpi_driver_fault_hit(void)
{
    return atomic_load(&state.hit);
}
