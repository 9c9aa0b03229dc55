/* SPDX-License-Identifier: MIT
 *
 * For tools, tests and benchmarks: what a machine can do, where addresses stand in a graph,
 * recordings and layouts, kernels for the host driver, explanations and checks, advice from a
 * profiler's trace, and measurements, which are not stable. reprise.h has the conventions.
 */
#ifndef REPRISE_TOOLS_H
#define REPRISE_TOOLS_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What this machine can do -------------------------------------------------------------- */

/* What a function of the driver that may be missing makes possible. */
struct rp_capability {
    const char *name; /* "PARAM_INFO"; static */
    const char *lost; /* what is lost without it; static */
    int present;
};
/* By index; 0, with nothing written, past the last. */
RP_API int rp_device_capability(const struct rp_device *device, size_t index,
                                struct rp_capability *out_capability);

/* Tries what captures, binding and updates of executable graphs need, with copies and fills. By
 * index; 0, with nothing done, past the last. *out_name ("capture") is static; *out_status is what
 * came of it, err why. Synchronises a stream of its own, and leaves nothing behind. */
RP_API int rp_self_test(struct rp_device *device, size_t index, const char **out_name,
                        rp_status *out_status, struct rp_error *err);

/* ---- Where a graph's addresses stand ------------------------------------------------------- */

/* A site: a place in a node's parameters that was proved to hold an address of the capture. Replays
 * write the caller's address there where it is an argument's. Nodes are counted in the template's
 * order, those of a child graph right after the node that holds it. */
struct rp_graph_site {
    size_t size;
    size_t node;
    const char *kind;     /* "kernel", "memcpy" or "memset". Static */
    const char *function; /* a kernel's name, valid while its module is loaded; "" otherwise, or
                             where the driver does not tell */
    int parameter;        /* of a kernel whose function tells: which one; otherwise -1 */
    uint32_t offset; /* byte in the parameter, or in all of them where parameter is -1: for copies
                        and fills in the driver's struct */
    int is_argument; /* nonzero: `index` is that of an argument; otherwise a block's, in the
                        order of allocation */
    size_t index;
    int64_t delta;  /* distance of the address from the start of the argument or block */
    uint64_t bytes; /* of that */
};
/* rp_graph_info has their number. Errors: RP_ERROR_INVALID_ARGUMENT past the end. */
RP_API rp_status rp_graph_site(const struct rp_graph *graph, size_t index,
                               struct rp_graph_site *out_site, struct rp_error *err);

/* ---- Recordings and layouts ---------------------------------------------------------------- */

/* The allocations of one or more captures, read from a file: `reprise-capture/1` (JSON, gzip or
 * not) or the `id,lower,upper,size` CSV of static allocation problems. docs/formats.md defines
 * both. */
struct rp_recording;

/* Errors: RP_ERROR_IO; RP_ERROR_FORMAT with file, place and reason. */
RP_API rp_status rp_recording_load(const char *path, struct rp_recording **out_recording,
                                   struct rp_error *err);
RP_API void rp_recording_destroy(struct rp_recording *recording);
/* Nonzero when the file was CSV: half-open intervals of one total order, no graph. */
RP_API int rp_recording_is_csv(const struct rp_recording *recording);

/* Offsets for every block of a recording, with the proof of how good they are. */
struct rp_layout;

struct rp_plan_options {
    size_t size;
    uint64_t alignment;      /* sizes and offsets are rounded up to it; 0: 512, or 1 for CSV */
    uint64_t capacity_bytes; /* stop once the layout fits; 0: minimise */
    unsigned budget_ms;    /* 0: the budget is in steps. Otherwise time for bound and placement, as
                              the planning thread runs, which on a busy machine may be up to four
                              times as much by the clock. Bound and a first layout are made whatever
                              the budget is */
    unsigned threads;      /* 0: 1; with more the layout depends on which comes first */
    uint64_t budget_steps; /* work on placement, the same on every machine and at every load: a step
                              takes about a nanosecond on an idle core. Not together with budget_ms.
                              0: 50 million */
};
#define RP_PLAN_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(struct rp_plan_options), 0, 0, 0, 0, 0                                              \
    }

/* Places every block, on the host alone. The layout copies what it needs: the recording may be
 * destroyed before it. options may be NULL. Errors: RP_ERROR_INVALID_ARGUMENT for an alignment that
 * is no power of two up to 2^30, or to which sizes cannot be rounded up; out of host memory. A
 * capacity that is not met is no error: `fits` tells. */
RP_API rp_status rp_recording_plan(const struct rp_recording *recording,
                                   const struct rp_plan_options *options,
                                   struct rp_layout **out_layout, struct rp_error *err);
RP_API void rp_layout_destroy(struct rp_layout *layout);

struct rp_layout_info {
    size_t size;
    uint64_t pool_bytes; /* highest planned height */
    uint64_t lower_bound_bytes;
    int bound_exact;   /* nonzero: the bound is the exact one */
    const char *proof; /* "bound", "search" or NULL */
    int optimal;       /* nonzero: no layout is lower */
    int fits;          /* 1 fits the capacity, 0 proved impossible, -1 not found; 1 without one */
    double ms;         /* bound and placement */
    uint64_t
        c10_default_bytes;    /* what PyTorch's allocator would hold after all captures, taken in */
    uint64_t c10_reuse_bytes; /* order into one pool; the same with its reuse flag; 0 for CSV */
    size_t captures;
    int stopped;  /* nonzero: the budget ended the search, and more of it might find a lower layout,
                     or the proof that there is none */
    int reserved; /* 0 */
    uint64_t steps; /* that placement took */
};
RP_API void rp_layout_info(const struct rp_layout *layout, struct rp_layout_info *out_info);

struct rp_layout_capture {
    size_t size;
    const char *name;
    size_t blocks;
    uint64_t total_bytes, peak_bytes, lower_bound_bytes, planned_bytes;
    uint64_t c10_default_bytes, c10_reuse_bytes; /* this capture alone; 0 for CSV */
};
/* index < captures. Sizes are after rounding to the alignment. */
RP_API void rp_layout_capture(const struct rp_layout *layout, size_t index,
                              struct rp_layout_capture *out_capture);
/* Writes the offsets: for CSV the input with an `offset` column, otherwise `reprise-layout/1`. */
RP_API rp_status rp_layout_write(const struct rp_layout *layout, const char *path,
                                 struct rp_error *err);
/* Draws the layout as SVG: address upwards, order to the right, one rectangle a block. */
RP_API rp_status rp_layout_draw(const struct rp_layout *layout, const char *path,
                                struct rp_error *err);

/* ---- Kernels for the host driver ----------------------------------------------------------- */

/* On the host driver a module image is a struct rp_host_image: give its address to
 * cuModuleLoadData, which copies nothing: image, kernels and texts must outlive the module. */

struct rp_host_kernel;

/* One launch, as a kernel sees it. params[i] points to the value of parameter i. */
struct rp_host_launch {
    unsigned grid[3], block[3];
    unsigned cluster[3]; /* 1, 1, 1 unless launched as clusters */
    unsigned shared_bytes;
    void *const *params;
    const struct rp_host_kernel *kernel; /* that is launched: the image's */
};

/* Told by a kernel's `access` function of each range that the launch reads or writes. */
typedef void (*rp_host_access)(void *context, uint64_t address, uint64_t bytes, int is_write);

struct rp_host_param {
    uint32_t offset, bytes; /* in the packed parameter buffer, as cuFuncGetParamInfo gives them */
};

struct rp_host_kernel {
    const char *name;
    /* Does the work of the whole grid. Device addresses are host addresses: cast and use them. */
    void (*run)(const struct rp_host_launch *launch);
    /* Declares what run would read and write, for the race check; NULL: not declared, not checked.
     */
    void (*access)(const struct rp_host_launch *launch, rp_host_access report, void *context);
    const struct rp_host_param *params;
    uint32_t param_count;
    uint32_t max_threads; /* most threads a block may have; 0: 1024 */
};

#define RP_HOST_IMAGE_MAGIC "RPHOST1"
struct rp_host_image {
    char magic[8]; /* RP_HOST_IMAGE_MAGIC */
    uint32_t kernel_count;
    uint32_t reserved; /* 0 */
    const struct rp_host_kernel *kernels;
};

/* ---- Explanations and checks --------------------------------------------------------------- */

/* What a capture error, a symptom of graphs or an obstacle to a capture is, why it usually comes
 * and what to do. Static. */
struct rp_explanation {
    const char *key; /* "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "no-speedup", "host-read" (a kind of
                        obstacle), "aten::nonzero" (an operator) or "cuStreamSynchronize" */
    int code;        /* CUresult, or 0 for a symptom that comes without one */
    const char *title;
    const char *meaning;
    const char *const causes[8]; /* the most frequent first; NULL ends the list */
    const char *const mends[8];
    const char *obstacle; /* the kind that an operator or a call is one of; NULL for all others */
};

/* By number ("901"), name (the driver's or the runtime's) or a message that holds either; kinds of
 * obstacles by their name alone; operators of PyTorch also as a program calls them (".item()",
 * "torch.nonzero(x)"). NULL when there is no such entry. Any thread. */
RP_API const struct rp_explanation *rp_explain(const char *query);
RP_API const struct rp_explanation *rp_explanation_at(size_t index); /* NULL past the end */

/* What stands in the way of capturing a callable. Texts belong to the findings. */
struct rp_obstacle {
    size_t size;
    const char *kind;      /* synchronisation, host-copy, allocation, legacy-stream, outside-stream,
                              unjoined-stream, lazy-state, nested-graph, refused-call,
                              use-after-free, divergence, kept-address, unsupported-node,
                              callable-error, capture-error; of results: not-repeatable,
                              other-results, frozen-value, fails-eagerly */
    const char *operation; /* "cuStreamSynchronize", or the step that failed */
    const char *what;      /* what it does, or the error's sentence */
    const char *mend;
    const char *where;       /* "step+0x1c in libmodel.so"; "" where it is not known */
    const char *driver_name; /* of the code; NULL: none */
    int driver_code;
    int reserved;
    size_t places; /* of the stack, for rp_findings_place */
    size_t count;  /* how often it was met, over all attempts */
};
/* A place of a stack; addr2line takes file and offset. */
struct rp_place {
    const char *text, *file; /* file is NULL where it is not known */
    uint64_t offset;
};

/* Tries a callable: runs it twice, captures it, past each call that a capture refuses, so that all
 * obstacles are named at once, and replays the graph on other buffers, with these contents and with
 * what is read (in and inout) moved on by 16 bytes, or zeros where that changes nothing: results
 * must equal the run's to the bit. args are on the device; the callable writes to them, and their
 * contents are put back at the end. Only calls through rp_device_function can be told by name and
 * place. A callable that ends its process ends the caller's: `reprise check` runs it in a child.
 * Takes device memory for a second set of arguments, synchronises the context, and leaves nothing
 * behind but what the callable made.
 * Errors: those of the check itself; what the callable does wrong is a finding. */
struct rp_findings;
RP_API rp_status rp_check(struct rp_device *device, rp_callable_fn callable, void *user,
                          const struct rp_arg *args, size_t arg_count,
                          struct rp_findings **out_findings, struct rp_error *err);
RP_API void rp_findings_destroy(struct rp_findings *findings);       /* NULL is allowed */
RP_API size_t rp_findings_count(const struct rp_findings *findings); /* 0: it can be captured */
/* By index, in the order in which they were met, and by depth, the innermost place first; 0, with
 * nothing written, past the last. */
RP_API int rp_findings_obstacle(const struct rp_findings *findings, size_t index,
                                struct rp_obstacle *out_obstacle);
RP_API int rp_findings_place(const struct rp_findings *findings, size_t index, size_t depth,
                             struct rp_place *out_place);

/* ---- Advice -------------------------------------------------------------------------------- */

/* What a trace of torch.profiler (export_chrome_trace, gzip or not) or of Nsight Systems (nsys
 * export --type sqlite) says about CUDA graphs: whether they would help, how much, what to capture,
 * and what stands in the way. */
struct rp_advice;

struct rp_advise_options {
    size_t size;
    double eager_us; /* an iteration's time, measured without the profiler; 0: from the trace */
};
#define RP_ADVISE_OPTIONS_INIT                                                                     \
    {                                                                                              \
        sizeof(struct rp_advise_options), 0                                                        \
    }

/* Reads the file an event at a time: 24 bytes of memory for each event that is kept. Errors:
 * RP_ERROR_IO; RP_ERROR_FORMAT for a file that is cut short, empty, without GPU work, of another
 * tool, or neither JSON nor such a database; RP_ERROR_UNSUPPORTED for a database where there is no
 * libsqlite3.so.0. */
RP_API rp_status rp_advise(const char *path, const struct rp_advise_options *options,
                           struct rp_advice **out_advice, struct rp_error *err);
RP_API void rp_advice_destroy(struct rp_advice *advice);

enum rp_advice_verdict {
    RP_ADVICE_WORTH = 0,  /* 1.10 times as fast or more, obstacles out of the way */
    RP_ADVICE_LITTLE = 1, /* 1.03 to 1.10 times */
    RP_ADVICE_NOT = 2,    /* less */
    RP_ADVICE_ALREADY = 3 /* most of the work is launched by graphs already */
};

enum rp_advice_way {
    RP_ADVICE_WAY_ITERATION = 0, /* the whole iteration in one graph */
    RP_ADVICE_WAY_MODEL = 1,     /* from the first kernel to the last; the rest stays eager */
    RP_ADVICE_WAY_LAYERS = 2,    /* a graph for each layer: what cuts recurs */
    RP_ADVICE_WAY_PARTS = 3      /* graphs between what cannot be captured */
};

/* Of one typical iteration, in microseconds without the profiler. */
struct rp_advice_info {
    size_t size;
    enum rp_advice_verdict verdict;
    enum rp_advice_way way;
    size_t iterations; /* found in the trace */
    size_t kernels;    /* of the iteration */
    size_t obstacles;  /* places of the program */
    double eager_us, graph_us;
    double mended_us;  /* with graphs, once the obstacles between kernels are out of the way */
    double device_us;  /* what the device needs at least */
    double busy_share; /* of the device, from the iteration's first kernel to its last */
};
RP_API void rp_advice_info(const struct rp_advice *advice, struct rp_advice_info *out_info);

enum rp_advice_format {
    RP_ADVICE_TEXT = 0, /* for people; the verdict is the first line */
    RP_ADVICE_JSON = 1, /* reprise-advice/1, see docs/formats.md */
    RP_ADVICE_HTML = 2  /* a page with the timeline of an iteration; needs no network */
};
/* The report. *out_text belongs to the advice, until it is rendered again or destroyed. */
RP_API rp_status rp_advice_render(struct rp_advice *advice, enum rp_advice_format format,
                                  const char **out_text, struct rp_error *err);

/* ---- Measurements -------------------------------------------------------------------------- */

/* For benchmarks. What is declared here may change in every version: programs that use it define
 * RP_UNSTABLE before they include this header, and are built with the library that they run with.
 */
#ifdef RP_UNSTABLE

struct rp_placement {
    uint64_t bytes;
    double ns_per_op; /* host time of the method alone, for each allocation and each free */
};

struct rp_placements {
    size_t nodes;      /* that allocations and frees came after */
    size_t blocks;     /* allocations of the callable */
    size_t operations; /* allocations and frees */
    uint64_t lower_bound_bytes;
    struct rp_placement c10_default; /* PyTorch's allocator, a model of it */
    struct rp_placement c10_reuse;   /* with graph_capture_record_stream_reuse */
    struct rp_placement place;       /* online, while the capture goes on */
    struct rp_placement plan;        /* after it, within the pool's plan_budget_ms */
};

/* Rehearses the callable as rp_graph_capture does, then places its blocks in each way and checks
 * both layouts pair by pair against the recording. Takes no memory of the pool. Errors: those of a
 * rehearsal; RP_ERROR_INTERNAL when a layout is wrong. */
RP_API rp_status rp_compare_placements(struct rp_pool *pool, rp_callable_fn callable, void *user,
                                       const struct rp_arg *args, size_t arg_count,
                                       struct rp_placements *out_placements, struct rp_error *err);

/* Destroys the execs of a device and forgets what was paid for them, though not their prices. From
 * now on they have this budget, as in struct rp_device_options; with always_update nonzero no graph
 * gets another exec than the first of its topology. No replay is being enqueued. */
RP_API rp_status rp_device_exec_reset(struct rp_device *device, uint64_t budget_bytes,
                                      int always_update, struct rp_error *err);

#endif /* RP_UNSTABLE */

#ifdef __cplusplus
}
#endif

#endif
