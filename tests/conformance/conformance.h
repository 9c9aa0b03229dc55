/* SPDX-License-Identifier: MIT
 *
 * What conformance cases are written with.
 *
 *     case      a function that tests one behaviour that NVIDIA documents, on any driver
 *     tracked   made through a function of this header, and given back when the case is over,
 *               whether it passed or not
 *     gate      a host function that holds a stream until it is opened: work behind it is pending
 *
 * A case that fails leaves by longjmp; it must not hold locks. Cases avoid what leaves the device
 * in error for good (illegal addresses), so that one does not spoil the next. Names that end in
 * _undocumented test behaviour that NVIDIA's documentation leaves open; they say what was assumed.
 */
#ifndef TESTS_CONFORMANCE_CONFORMANCE_H
#define TESTS_CONFORMANCE_CONFORMANCE_H

#include "driver/driver.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum tracked_kind {
    TRACKED_STREAM,
    TRACKED_EVENT,
    TRACKED_MEMORY,
    TRACKED_PINNED,
    TRACKED_GRAPH,
    TRACKED_EXEC,
    TRACKED_CHUNK,
    TRACKED_RESERVATION,
    TRACKED_MAPPING,
    TRACKED_LIBRARY
};

struct tracked {
    enum tracked_kind kind;
    uint64_t handle, bytes;
};

/* X(name, needs compute capability 9.0) */
#define RPT_KERNEL_LIST(X)                                                                         \
    X(rpt_fill, 0)                                                                                 \
    X(rpt_scale, 0)                                                                                \
    X(rpt_saxpy, 0)                                                                                \
    X(rpt_mix, 0)                                                                                  \
    X(rpt_slow, 0)                                                                                 \
    X(rpt_padded, 0)                                                                               \
    X(rpt_shape, 0)                                                                                \
    X(rpt_nothing, 0)                                                                              \
    X(rpt_cluster, 1)                                                                              \
    X(rpt_pdl_first, 1)                                                                            \
    X(rpt_pdl_second, 1)

enum {
#define X(name, needs_90) KERNEL_##name,
    RPT_KERNEL_LIST(X)
#undef X
        RPT_KERNELS
};

/* One case being run. */
struct rpt {
    const struct rp_driver *d;
    CUdevice device;
    CUcontext context;                 /* the primary one, current on the case's thread */
    CUmodule module, module90;         /* module90 is NULL below compute capability 9.0 */
    CUfunction functions[RPT_KERNELS]; /* loaded beforehand: a capture may not be the place to */
    struct tracked tracked[128];
    size_t tracked_count;
    struct {
        pthread_mutex_t lock;
        pthread_cond_t opened;
        bool closed; /* guarded by lock */
    } gate;
    enum { CASE_RUNNING, CASE_PASSED, CASE_FAILED, CASE_SKIPPED } outcome;
    char reason[512];
};

/* ---- Expectations: OK(cuMemFree(address)) calls the case's driver -------------------------- */

void rpt_expect(struct rpt *t, const char *file, int line, const char *call, CUresult result,
                CUresult expected);
void rpt_require(struct rpt *t, const char *file, int line, const char *text, bool holds);
void rpt_equal(struct rpt *t, const char *file, int line, const char *text, uint64_t value,
               uint64_t expected);
void rpt_skip(struct rpt *t, const char *reason);

#define EXPECT(code, call)  rpt_expect(t, __FILE__, __LINE__, #call, t->d->call, code)
#define OK(call)            EXPECT(CUDA_SUCCESS, call)
#define REQUIRE(condition)  rpt_require(t, __FILE__, __LINE__, #condition, (condition))
#define EQUAL(value, wants) rpt_equal(t, __FILE__, __LINE__, #value, (uint64_t)(value), (wants))
/* The call fails, with whatever code. */
#define REFUSED(call)                                                                              \
    rpt_require(t, __FILE__, __LINE__, #call " is refused", t->d->call != CUDA_SUCCESS)

/* ---- Tracked objects ----------------------------------------------------------------------- */

CUstream rpt_stream(struct rpt *t);                  /* non-blocking */
CUstream rpt_blocking_stream(struct rpt *t);         /* ordered with the legacy stream */
CUevent rpt_event(struct rpt *t);                    /* without timing */
CUdeviceptr rpt_memory(struct rpt *t, size_t bytes); /* zeroed */
void *rpt_pinned(struct rpt *t, size_t bytes);       /* zeroed */
CUgraph rpt_graph(struct rpt *t);
CUgraphExec rpt_instantiate(struct rpt *t, CUgraph graph);
void rpt_track(struct rpt *t, enum tracked_kind kind, uint64_t handle, uint64_t bytes);
/* The case gave it back itself. */
void rpt_forget(struct rpt *t, enum tracked_kind kind, uint64_t handle);
/* Gives back everything tracked; leaves no stream capturing and the thread's mode global. */
void rpt_clean(struct rpt *t);
#define HANDLE_OF(pointer) ((uint64_t)(uintptr_t)(pointer))

/* ---- Work ---------------------------------------------------------------------------------- */

/* A kernel of RPT_KERNEL_LIST. Skips the case where the device cannot run it. No driver call. */
CUfunction rpt_function(struct rpt *t, const char *name);
/* Loads modules and functions of a device that was opened; the first error. */
CUresult rpt_load_kernels(struct rpt *t);
/* rpt_fill, rpt_mix, rpt_scale of tests/kernels, one block, on a stream. */
void rpt_fill(struct rpt *t, CUstream stream, CUdeviceptr to, float value, uint32_t count);
void rpt_mix(struct rpt *t, CUstream stream, CUdeviceptr to, uint32_t value);
void rpt_scale(struct rpt *t, CUstream stream, CUdeviceptr to, CUdeviceptr from, float factor,
               uint32_t count);
/* What rpt_mix makes of a word that was 0. */
uint32_t rpt_mixed(size_t count, const uint32_t *values);
#define MIXED(...)                                                                                 \
    rpt_mixed(sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), (uint32_t[]){__VA_ARGS__})

/* Read by a copy on the legacy stream after the context is idle. */
uint32_t rpt_word(struct rpt *t, CUdeviceptr address);
float rpt_float(struct rpt *t, CUdeviceptr address);
/* Puts the stream behind the gate. One stream at a time: drivers may run host functions on one
 * thread. */
void rpt_hold(struct rpt *t, CUstream stream);
void rpt_open(struct rpt *t);
/* The stream waits for something: its work is not done, though it had the time. */
void rpt_expect_pending(struct rpt *t, CUstream stream);
/* Runs work on a thread of its own, with or without the context current, and joins it. Work reports
 * through data: it must not use expectations. */
void rpt_on_thread(struct rpt *t, void (*work)(struct rpt *t, void *data), void *data,
                   bool with_context);
/* The stream takes and finishes work. */
void rpt_usable(struct rpt *t, CUstream stream);

/* ---- Capture ------------------------------------------------------------------------------- */

void rpt_begin(struct rpt *t, CUstream stream, CUstreamCaptureMode mode);
CUgraph rpt_end(struct rpt *t, CUstream stream); /* tracked */
CUstreamCaptureStatus rpt_status(struct rpt *t, CUstream stream);
/* What stream's next node will depend on: at most 8 nodes; returns how many. */
size_t rpt_terminals(struct rpt *t, CUstream stream, CUgraphNode out_nodes[8]);
void rpt_fork(struct rpt *t, CUstream from, CUstream to); /* joins too: to waits for from */
/* The capture that began in stream is invalidated: using it, then ending it, returns 901, and the
 * stream is usable afterwards. */
void rpt_expect_invalidated(struct rpt *t, CUstream stream);
/* The capture is active, can be ended, and the stream is usable afterwards. */
void rpt_expect_intact(struct rpt *t, CUstream stream);

/* ---- Graphs -------------------------------------------------------------------------------- */

size_t rpt_node_count(struct rpt *t, CUgraph graph);
size_t rpt_edge_count(struct rpt *t, CUgraph graph);
/* Node `index` in the order in which the driver lists them. */
CUgraphNode rpt_node(struct rpt *t, CUgraph graph, size_t index);
CUgraphNode rpt_node_of_type(struct rpt *t, CUgraph graph, CUgraphNodeType type);
bool rpt_has_edge(struct rpt *t, CUgraph graph, CUgraphNode from, CUgraphNode to);
/* A kernel node of rpt_mix, rpt_fill; after `after` when that is not NULL. */
CUgraphNode rpt_mix_node(struct rpt *t, CUgraph graph, CUgraphNode after, CUdeviceptr to,
                         uint32_t value);
CUgraphNode rpt_fill_node(struct rpt *t, CUgraph graph, CUgraphNode after, CUdeviceptr to,
                          float value, uint32_t count);
/* Memcpy of bytes in one dimension between device addresses, or from and to the host where an
 * address is NULL in its device form. */
CUDA_MEMCPY3D rpt_copy_params(CUdeviceptr to_device, void *to_host, CUdeviceptr from_device,
                              const void *from_host, size_t bytes);
CUDA_MEMSET_NODE_PARAMS rpt_memset_params(CUdeviceptr to, unsigned value, unsigned element_bytes,
                                          size_t width, size_t height, size_t pitch);
CUDA_KERNEL_NODE_PARAMS rpt_kernel_params(CUfunction function, unsigned grid, unsigned block,
                                          void **params);
/* Launches and waits. */
void rpt_run(struct rpt *t, CUgraphExec exec, CUstream stream);

/* ---- The cases ----------------------------------------------------------------------------- */

#define CASE(name) void case_##name(struct rpt *t);
#include "cases.def"
#undef CASE

#endif
