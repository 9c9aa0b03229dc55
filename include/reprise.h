/* SPDX-License-Identifier: MIT
 *
 * Reprise: CUDA graphs that cost nothing but the launch.
 *
 * In the order a newcomer needs it:
 *
 *     1  status and errors          what every function returns
 *     2  device                     open NVIDIA's driver, or the host driver where there is no GPU
 *     3  pool                       memory that the blocks of several captured graphs share
 *     4  callable and graph         capture work once, replay it
 *     5  shapes                     a callable as a function: a graph for each shape
 *     6  process-wide settings      host memory, log
 *
 *     reprise_heap.h                memory for eager work, as PyTorch's caching allocator gives it
 *     reprise_framework.h           for those that begin captures, and decide on ways, themselves
 *     reprise_tools.h               recordings, layouts, checks, explanations, advice, kernels for
 *                                   the host driver; measurements with RP_UNSTABLE defined
 *
 * Conventions. Sizes are bytes, device addresses are uint64_t, streams are the driver's CUstream
 * (`struct CUstream_st *`; NULL is the legacy default stream). Functions that can fail return
 * rp_status and take a caller-owned `struct rp_error *err` last, which may be NULL; outputs are
 * named out_..., and are written only on success. A function that fails leaves every object as it
 * was, but for device memory that rp_run and rp_graph_replay had begun to write. `create`, `open`,
 * `capture` and `load` allocate, and the matching `destroy` takes NULL. Strings that are returned
 * belong to the object they came from. Unless said otherwise an object may be used by one thread at
 * a time and different objects by different threads, and nothing synchronises a stream. A pointer
 * may be NULL only where that is said, or where the count that goes with it is 0: otherwise the
 * call is RP_ERROR_INVALID_ARGUMENT, or where it has no status does nothing and gives 0. So are all
 * that need a device in a process that was forked from one which had opened a device.
 *
 * ABI. Within a major version (RP_VERSION_MAJOR, which is in the library's soname; while it is 0,
 * within a minor one) functions and values of enums stay, and a program built with an older header
 * runs with a newer library. Structs that begin with `size` may grow at their end; all others never
 * change. The program sets `size` before the call: options by their RP_..._INIT initializer, what
 * the library fills in by hand: `struct rp_pool_info info = {.size = sizeof info};`, in C++17
 * `{sizeof info}`. Options of an older header get the defaults for what is new. Those of a newer
 * one are refused only where they ask for what the library does not have. What the library fills in
 * is cut to `size`; what it does not know becomes 0. A `size` that cannot be one is refused, and
 * where there is no status nothing is written, and the log has an error. What stands under
 * RP_UNSTABLE is no part of this.
 */
#ifndef REPRISE_H
#define REPRISE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RP_API __attribute__((visibility("default")))
#else
#define RP_API
#endif

#define RP_VERSION_MAJOR 0
#define RP_VERSION_MINOR 1
#define RP_VERSION_PATCH 0

/* The version of the library that is linked: "0.1.0". Static text. */
RP_API const char *rp_version(void);

/* ---- 1. Status and errors ------------------------------------------------------------------ */

/* X(name, value, text). Values never change; new ones are added at the end. */
#define RP_STATUS_MAP(X)                                                                           \
    X(RP_OK, 0, "success")                                                                         \
    X(RP_ERROR_INVALID_ARGUMENT, 1, "an argument is not valid")                                    \
    X(RP_ERROR_OUT_OF_HOST_MEMORY, 2, "host memory could not be allocated")                        \
    X(RP_ERROR_OUT_OF_DEVICE_MEMORY, 3, "device memory could not be allocated")                    \
    X(RP_ERROR_NO_DRIVER, 4, "no usable driver or device")                                         \
    X(RP_ERROR_UNSUPPORTED, 5, "not supported by this driver, device or build")                    \
    X(RP_ERROR_DRIVER, 6, "a driver call failed")                                                  \
    X(RP_ERROR_CAPTURE, 7, "the work could not be captured")                                       \
    X(RP_ERROR_DIVERGED, 8, "two captures of the same work differ in more than addresses")         \
    X(RP_ERROR_CONTRACT, 9, "a replay would break what the captured graph relies on")              \
    X(RP_ERROR_CALLABLE, 10, "the callable returned an error")                                     \
    X(RP_ERROR_FORMAT, 11, "a file is malformed")                                                  \
    X(RP_ERROR_IO, 12, "a file could not be read or written")                                      \
    X(RP_ERROR_LIMIT, 13, "a limit that was set would be exceeded")                                \
    X(RP_ERROR_INTERNAL, 14, "a bug in Reprise: please report it")

typedef enum rp_status {
#define RP_STATUS_ENUM(name, value, text) name = value,
    RP_STATUS_MAP(RP_STATUS_ENUM)
#undef RP_STATUS_ENUM
} rp_status;

/* "RP_ERROR_CAPTURE" and "the work could not be captured". Static text; never NULL. */
RP_API const char *rp_status_name(rp_status status);
RP_API const char *rp_status_text(rp_status status);

/* What went wrong. Owned by the caller; no initialisation needed; written only by a call that
 * fails. For out of device memory, requested and available are bytes; otherwise they are 0. */
struct rp_error {
    rp_status status;
    int driver_code;      /* CUresult, or 0 when no driver call was involved */
    char driver_name[48]; /* "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", or "" */
    char operation[64];   /* the driver function, library function or step that failed */
    uint64_t requested;
    uint64_t available;
    char message[512]; /* one sentence: what failed, with the figures, and what to do */
};

/* ---- 2. Device ----------------------------------------------------------------------------- */

/* A device opened through a driver, its primary context retained. */
struct rp_device;

struct rp_device_options {
    size_t size;          /* sizeof(struct rp_device_options) */
    const char *driver;   /* "cuda", "host", or NULL: cuda where it works, host elsewhere */
    int ordinal;          /* device number, from 0 */
    int trace;            /* nonzero: write each driver call to standard error */
    uint64_t host_seed;   /* host driver: seed of the order in which graph nodes run */
    int host_check_races; /* host driver: nonzero checks kernels' declared accesses; a race is a
                             warning in the log (rp_set_log), once for each pair of operations */
    int reserved;         /* 0 */
    uint64_t exec_budget_bytes; /* most device memory for executable graphs, by estimate: graphs
                                   that do not fit take turns in those that do. One is made whatever
                                   it takes. 0: 64 MiB; RP_EXEC_ONE_EACH: no graph shares */
};
#define RP_EXEC_ONE_EACH UINT64_MAX
/* There is one host driver in a process: host_seed and host_check_races are its, and the last open
 * of a host device sets them for all. */
#define RP_DEVICE_OPTIONS_INIT                                                                     \
    {                                                                                              \
        sizeof(struct rp_device_options), NULL, 0, 0, 0, 1, 0, 0                                   \
    }

/* Opens a device. options may be NULL. Any thread may use the device afterwards: functions that
 * need the driver make its primary context current for their own duration. Errors:
 * RP_ERROR_NO_DRIVER with the reason for each driver that was tried. */
RP_API rp_status rp_device_open(const struct rp_device_options *options,
                                struct rp_device **out_device, struct rp_error *err);
/* Releases the device. Every pool and heap of it must have been destroyed before: while there is
 * one the device stays, and the log has an error. NULL is allowed. */
RP_API void rp_device_destroy(struct rp_device *device);

/* Kernels of `peer`, another device of the same driver, may use memory of the device from now on,
 * and copies between the two may: what heaps and pools have mapped, and what they will map.
 * Otherwise that memory is its device's alone, whatever cuCtxEnablePeerAccess says. Where the
 * devices cannot reach each other nothing changes. Any thread, but not from a callable. */
RP_API rp_status rp_device_add_peer(struct rp_device *device, const struct rp_device *peer,
                                    struct rp_error *err);

/* Gives back to the device what it keeps behind rehearsals for the next ones: a chunk of 2 or 32
 * MiB, which they take again. Does nothing while one is under way, on whatever thread: never waits.
 * out_bytes, how many bytes it was, may be NULL. */
RP_API rp_status rp_device_trim(struct rp_device *device, uint64_t *out_bytes,
                                struct rp_error *err);

struct rp_device_info {
    size_t size;
    const char *driver; /* "cuda" or "host" */
    const char *name;   /* "NVIDIA H200" */
    int driver_version; /* 13000 is CUDA 13.0 */
    int compute_major, compute_minor;
    int multiprocessors;
    uint64_t total_bytes;
    uint64_t host_races; /* host driver: races that the process has seen; 0 elsewhere */
};
RP_API void rp_device_info(const struct rp_device *device, struct rp_device_info *out_info);

/* The device's time for one kernel node of a graph beside its work, in microseconds. */
struct rp_pace {
    size_t size;
    double before_us, after_us;
    int restored; /* nonzero: a context was made; 0: the pace was the best that was seen */
    double ms;    /* that this took on the host */
};
/* Measures the pace of graphs, and restores it where it is not the best that was measured on the
 * device so far, or nothing was. A process that made a few hundred launches on a second stream, a
 * warm-up on a side stream say, pays more for each node of every graph and for each launch from
 * then on (0.18 and 0.11 us on an H200, where nodes of small kernels take 0.83), until a context is
 * made on the device: one is made here and destroyed, which takes some 0.2 s and for that time half
 * a gigabyte of device memory. Waits for its own launches alone. Call it once the program has
 * warmed up; out_pace may be NULL. Any thread, not from a callable. RP_ERROR_OUT_OF_DEVICE_MEMORY
 * where there is no room for a context; nothing has changed then. */
RP_API rp_status rp_device_restore_pace(struct rp_device *device, struct rp_pace *out_pace,
                                        struct rp_error *err);

/* Executable graphs ("execs") of a device: what launches take, and what of the device's memory that
 * is. Graphs of one topology (the same kinds of nodes with the same edges, whatever their
 * functions, grids and addresses) can take turns in one exec by updating it. That costs host time
 * at each turn, and where functions or grids change also device time at each replay; making an exec
 * costs more, once. A graph gets its own when it was replayed so often that this is the cheaper, by
 * prices that are learned on the device. */
enum rp_exec_price_source {
    RP_EXEC_PRICES_ASSUMED, /* as on an NVIDIA H200: they are not known, or not yet */
    RP_EXEC_PRICES_FITTED,  /* measured before, on such a chip with such a driver */
    RP_EXEC_PRICES_MEASURED /* in this process, on such a chip */
};
struct rp_device_exec_info {
    size_t size;
    uint64_t budget_bytes;
    uint64_t bytes;          /* of all execs, estimated from their kernels, copies and paths */
    uint64_t most_bytes;     /* at any time */
    uint64_t measured_bytes; /* by which the device's free memory fell while execs were made, for
                                whatever program on it */
    size_t execs, graphs;
    size_t topologies;     /* graphs of one share execs */
    uint64_t hits;         /* replays by an exec that held the graph already */
    uint64_t updates;      /* execs updated to another graph */
    uint64_t refused;      /* updates that the driver did not make: the exec was dropped */
    uint64_t instantiated; /* execs made */
    uint64_t evicted;      /* execs destroyed to make room */
    double make_us_per_node, update_us_per_node; /* learned; 0: not seen yet */
    double slower_share; /* by which replays of execs updated to other functions or grids take more
                            device time, as far as seen */
    uint64_t measured_step_bytes; /* least by which it fell at once: drivers take memory in steps,
                                     and use what destroyed execs left; 0: it did not fall */
    uint64_t path_bytes, node_bytes; /* what estimates go by: for each path that nodes lie on, and
                                        for each kernel and copy node */
    enum rp_exec_price_source price_source;
    int reserved;             /* 0 */
    const char *price_text;   /* "fitted on NVIDIA H200, driver 580"; static */
    const char *price_reason; /* why they are assumed; static. NULL: they are not, or nothing was
                                 captured or estimated yet */
};
RP_API void rp_device_exec_info(const struct rp_device *device,
                                struct rp_device_exec_info *out_info);

/* The budget from now on, as in struct rp_device_options. Execs that are there stay until room is
 * made for others. Any thread. */
RP_API rp_status rp_device_exec_set_budget(struct rp_device *device, uint64_t budget_bytes,
                                           struct rp_error *err);

/* Learns now what execs take of the device's memory, where that is not known. Else the first
 * capture or estimate does, ahead of it: on a chip or driver that the library has no prices for it
 * makes some execs of its own and watches the device's free memory, once in a process for each kind
 * of chip. That takes a context of its own and up to 288 MiB, all of which is given back; it is
 * left where the budget is below 64 MiB, or an eighth of free memory below 288. What comes of it,
 * and why nothing did, is in struct rp_device_exec_info: that is no error. REPRISE_EXEC_PRICES
 * overrules. Waits for no work of the program. Any thread, but in a callable that is being captured
 * it does nothing.
 */
RP_API rp_status rp_device_exec_learn_prices(struct rp_device *device, struct rp_error *err);

/* The driver -------------------------------------------------------------------- */

/* A function of the device's driver by the name it has in NVIDIA's documentation, without version
 * suffix ("cuLaunchKernel"), in the newest form that Reprise knows (docs/driver.md lists them).
 * NULL when the driver or Reprise does not have it. Programs that link libcuda themselves do not
 * need it. Callables use it to launch on whichever driver the device was opened with: while a
 * callable is captured, these functions note the first call that the capture refuses, so that the
 * error can name it, which no error can of calls that go to libcuda directly. */
RP_API void (*rp_device_function(const struct rp_device *device, const char *name))(void);

/* Makes the device's context current on this thread until rp_device_pop. Calls nest. */
RP_API rp_status rp_device_push(struct rp_device *device, struct rp_error *err);
RP_API void rp_device_pop(struct rp_device *device);

/* ---- 3. Pool ------------------------------------------------------------------------------- */

/* Memory for graphs, and for pools within it. The kind says how all that is captured and created
 * in a pool relates in time, in the order of capture and creation; two graphs of a pool's tree
 * relate as the lowest pool that holds both.
 *
 *     alternatives   no two run at the same time, and none reads what another wrote (one graph a
 *                    batch size, say): they lie over each other, and the pool grows only to the
 *                    largest of them
 *     sequence       they run one after the other: what one frees is free for all later ones, and
 *                    a block that one does not free keeps its contents for all later ones, or for
 *                    those that were captured before rp_graph_release
 *     concurrent     they may run at the same time: they never lie over each other
 *
 * A graph is captured into a pool at any time: it is planned around what others hold, the pool
 * grows where it has to, and nothing that is recorded moves. A graph that is destroyed leaves its
 * memory to later captures, or to the device where nothing lies above it.
 *
 * Replays of concurrent graphs run side by side on different streams. All others are put in order:
 * on whatever stream, a replay begins when the last replays of the graphs that it is not concurrent
 * with are over.
 *
 * A graph of a sequence may read and write the blocks that earlier ones keep: by their addresses,
 * as its callable finds them (an address in any other memory of a pool's refuses the capture). Its
 * node parameters tell which they are, and each replay checks that they hold what they should:
 *
 *     the graph whose block it is has been replayed, and lives;
 *     no replay since of a graph whose memory lies over it: an alternative, or an earlier graph of
 *     the sequence, which has there what it frees;
 *     graphs between the two that copy or fill into the block, and were captured before the reader,
 *     have been replayed since, or an alternative of theirs.
 *
 * A replay that finds otherwise is refused with RP_ERROR_CONTRACT before anything is launched. What
 * is allowed gives what eager runs in the same order give, where each block has memory of its own:
 * so each graph may be replayed any number of times, and be left out where it changes nothing that
 * others read; after an earlier one the later ones read what that wrote. Whether a kernel changes a
 * block that it is given cannot be told: see strict_order. Where blocks of several alternatives lie
 * at an address that a graph reads, the one written last counts. Concurrent graphs that use one
 * block of an earlier one must not change it: that is not checked. */
struct rp_pool;

enum rp_pool_kind { RP_POOL_ALTERNATIVES = 0, RP_POOL_SEQUENCE = 1, RP_POOL_CONCURRENT = 2 };

/* What becomes of a replay that would break what the graph relies on. */
enum rp_contract {
    RP_CONTRACT_ERROR = 0, /* RP_ERROR_CONTRACT, and nothing is launched */
    RP_CONTRACT_WARN = 1   /* a warning in the log (rp_set_log), and it goes on */
};

struct rp_pool_options {
    size_t size;
    const char *name;          /* for reports and errors; copied; NULL: "pool" */
    uint64_t limit_bytes;      /* most device memory the pool may map for graphs; 0: no limit */
    uint64_t alignment;        /* of every block; a power of two from 1 to 2 MiB; 0: 512 */
    unsigned plan_budget_ms;   /* time for a graph's plan, as in struct rp_plan_options; 0: what the
                                  parent has, or the steps that are the default there */
    enum rp_pool_kind kind;    /* how graphs and pools in it relate */
    struct rp_pool *parent;    /* the pool that it lies in, at most 100 levels deep, which outlives
                                  it; limit and alignment are the outermost pool's. NULL: none */
    enum rp_contract contract; /* of blocks that a graph reads from others; a pool within one that
                                  warns does too */
    int strict_overlap;        /* nonzero: RP_ERROR_CONTRACT where a replay would have to wait for
                                  one on another stream that is not over */
    int strict_order;          /* nonzero: a kernel that names a block counts as changing it, as
                                  copies and fills into it do; so for pools within one that does */
    int reserved;              /* 0 */
};
#define RP_POOL_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(struct rp_pool_options), NULL, 0, 0, 0, RP_POOL_ALTERNATIVES, NULL,                 \
            RP_CONTRACT_ERROR, 0, 0, 0                                                             \
    }

/* Pools of one tree may be used by different threads; captures into it wait for each other, and so
 * do its eager runs. */
RP_API rp_status rp_pool_create(struct rp_device *device, const struct rp_pool_options *options,
                                struct rp_pool **out_pool, struct rp_error *err);
/* Gives the pool's memory back. Every graph and pool in it must have been destroyed before. The
 * outermost pool's waits for its own work only. NULL is allowed. */
RP_API void rp_pool_destroy(struct rp_pool *pool);

/* Of the graphs in the pool and in the pools within it. */
struct rp_pool_info {
    size_t size;
    uint64_t planned_bytes;     /* height of the layout: the highest end of any block */
    uint64_t mapped_bytes;      /* device memory taken by the outermost pool: its planned_bytes
                                   rounded up to the page, or more after a graph was destroyed */
    uint64_t lower_bound_bytes; /* no layout of these graphs takes less */
    int bound_exact;            /* nonzero: it is the heaviest set of blocks that have to be kept
                                   apart, proved */
    uint64_t rehearsal_bytes;   /* device memory behind rehearsals: one chunk, shared by a device */
    size_t graphs;
    uint64_t staging_bytes; /* device memory, beside mapped_bytes, that the outermost pool took to
                               copy arguments to: when a replay copied one for the first time, or
                               at the capture where every replay has to */
    uint64_t address;       /* of offset 0 of the outermost pool */
};
RP_API void rp_pool_info(const struct rp_pool *pool, struct rp_pool_info *out_info);

/* Gives back to the device what no graph needs: what destroyed graphs left between others, in
 * pieces as the pool grew. Later captures map it again. Of the whole tree; out_bytes, how many
 * bytes it was, may be NULL. Waits for a capture that is under way. */
RP_API rp_status rp_pool_trim(struct rp_pool *pool, uint64_t *out_bytes, struct rp_error *err);

/* Who lies where, from when to when: of each graph in the pool and in the pools within it its
 * blocks, with offset, bytes and place in the capture's order. As JSON, `reprise-pool/1` of
 * docs/formats.md, and drawn as SVG: address upwards, order to the right, one rectangle a block.
 * Errors: RP_ERROR_IO, and for want of host memory. */
RP_API rp_status rp_pool_write(const struct rp_pool *pool, const char *path, struct rp_error *err);
RP_API rp_status rp_pool_draw(const struct rp_pool *pool, const char *path, struct rp_error *err);

/* ---- 4. Callable and graph ----------------------------------------------------------------- */

/* One run of a callable: eagerly, while it is rehearsed, or while it is recorded. Valid until the
 * callable returns. Used by one thread at a time; blocks may be taken and freed on threads of the
 * callable's that have no context. */
struct rp_call;

/* The work to capture: enqueues on rp_call_stream (and on streams forked from it and joined again)
 * and returns. Called several times, with other addresses each time: it must take every address
 * from the call, decide nothing on device values, and synchronise nothing. A status other than
 * RP_OK ends the capture with RP_ERROR_CALLABLE; err may be filled to say why. The error names the
 * last driver call that failed, where it was made through rp_device_function. It has to return: an
 * exception or longjmp through it leaves the pool locked and its stream capturing, and exit ends
 * the program.
 *
 * The device's context is current on the thread that runs it, and on no thread that it starts
 * (rp_device_push). On the CUDA driver the work may be:
 *
 *     kernels of the program's own, by cuLaunchKernel or by <<<>>> of the CUDA runtime, whose
 *     context is the device's;
 *     copies and fills on the stream: cudaMemcpyAsync, cudaMemsetAsync;
 *     calls of libraries that are given the stream: cuBLAS, NCCL;
 *     memory of rp_call_alloc, not of cudaMalloc, which a capture refuses or a graph outlives.
 *
 * examples/runtime.cu is one. Calls to libcuda or the runtime directly are captured like others,
 * but no error can name them. A callable that is captured calls neither rp_run nor a function that
 * captures, for whatever pool: both are refused. One that runs may capture, and run on another
 * pool. Where that would have two threads wait for each other forever, one of them gets
 * RP_ERROR_INVALID_ARGUMENT. */
typedef rp_status (*rp_callable_fn)(struct rp_call *call, void *user, struct rp_error *err);

RP_API struct CUstream_st *rp_call_stream(const struct rp_call *call);
/* Device address of argument `index` in this run; 0 when there is no such argument. */
RP_API uint64_t rp_call_arg(const struct rp_call *call, size_t index);
/* Memory for this run, for work on `stream`. Freed blocks are given to later allocations whose work
 * is ordered after all work on streams that used the block; a block that is not freed lives until
 * the run ends and keeps its contents until the graph's next replay (or that of an alternative, or
 * of an earlier graph of its sequence).
 * bytes may be 0: a valid address that nothing may access. Addresses are multiples of the pool's
 * alignment. Those of arguments in a capture are as aligned as the caller's, up to 256. `stream`
 * must exist until the run ends. */
RP_API rp_status rp_call_alloc(struct rp_call *call, uint64_t bytes, struct CUstream_st *stream,
                               uint64_t *out_address, struct rp_error *err);
/* Says that work on `stream`, other than the stream of its allocation, uses the block. */
RP_API rp_status rp_call_use(struct rp_call *call, uint64_t address, struct CUstream_st *stream,
                             struct rp_error *err);
/* Ends the block's life: work enqueued so far may use it, later work not. */
RP_API rp_status rp_call_free(struct rp_call *call, uint64_t address, struct rp_error *err);

/* Nonzero: the run is captured by rp_graph_capture or rp_estimate_add, not run eagerly. */
RP_API int rp_call_is_captured(const struct rp_call *call);

enum rp_arg_role {
    RP_ARG_IN = 1,   /* read by the callable */
    RP_ARG_OUT = 2,  /* written whole, never read before */
    RP_ARG_INOUT = 3 /* read and written */
};

/* X(name, value, text, bytes of an element). As DLPack and PyTorch have them; "_x2" types hold two
 * elements in a byte, which count as one here. Values never change. */
#define RP_DTYPE_MAP(X)                                                                            \
    X(RP_DTYPE_BYTES, 0, "bytes", 1)                                                               \
    X(RP_DTYPE_BOOL, 1, "bool", 1)                                                                 \
    X(RP_DTYPE_UINT8, 2, "uint8", 1)                                                               \
    X(RP_DTYPE_UINT16, 3, "uint16", 2)                                                             \
    X(RP_DTYPE_UINT32, 4, "uint32", 4)                                                             \
    X(RP_DTYPE_UINT64, 5, "uint64", 8)                                                             \
    X(RP_DTYPE_INT8, 6, "int8", 1)                                                                 \
    X(RP_DTYPE_INT16, 7, "int16", 2)                                                               \
    X(RP_DTYPE_INT32, 8, "int32", 4)                                                               \
    X(RP_DTYPE_INT64, 9, "int64", 8)                                                               \
    X(RP_DTYPE_FLOAT16, 10, "float16", 2)                                                          \
    X(RP_DTYPE_BFLOAT16, 11, "bfloat16", 2)                                                        \
    X(RP_DTYPE_FLOAT32, 12, "float32", 4)                                                          \
    X(RP_DTYPE_FLOAT64, 13, "float64", 8)                                                          \
    X(RP_DTYPE_COMPLEX32, 14, "complex32", 4)                                                      \
    X(RP_DTYPE_COMPLEX64, 15, "complex64", 8)                                                      \
    X(RP_DTYPE_COMPLEX128, 16, "complex128", 16)                                                   \
    X(RP_DTYPE_FLOAT8_E3M4, 17, "float8_e3m4", 1)                                                  \
    X(RP_DTYPE_FLOAT8_E4M3, 18, "float8_e4m3", 1)                                                  \
    X(RP_DTYPE_FLOAT8_E4M3B11FNUZ, 19, "float8_e4m3b11fnuz", 1)                                    \
    X(RP_DTYPE_FLOAT8_E4M3FN, 20, "float8_e4m3fn", 1)                                              \
    X(RP_DTYPE_FLOAT8_E4M3FNUZ, 21, "float8_e4m3fnuz", 1)                                          \
    X(RP_DTYPE_FLOAT8_E5M2, 22, "float8_e5m2", 1)                                                  \
    X(RP_DTYPE_FLOAT8_E5M2FNUZ, 23, "float8_e5m2fnuz", 1)                                          \
    X(RP_DTYPE_FLOAT8_E8M0FNU, 24, "float8_e8m0fnu", 1)                                            \
    X(RP_DTYPE_FLOAT6_E2M3FN, 25, "float6_e2m3fn", 1)                                              \
    X(RP_DTYPE_FLOAT6_E3M2FN, 26, "float6_e3m2fn", 1)                                              \
    X(RP_DTYPE_FLOAT4_E2M1FN_X2, 27, "float4_e2m1fn_x2", 1)                                        \
    X(RP_DTYPE_QINT8, 28, "qint8", 1)                                                              \
    X(RP_DTYPE_QUINT8, 29, "quint8", 1)                                                            \
    X(RP_DTYPE_QINT32, 30, "qint32", 4)

enum rp_dtype {
#define RP_DTYPE_ENUM(name, value, text, bytes) name = value,
    RP_DTYPE_MAP(RP_DTYPE_ENUM)
#undef RP_DTYPE_ENUM
};

/* Most dimensions that an argument can have. */
#define RP_MOST_RANK 64

/* A device buffer given to a callable: [address, address + bytes), and what the callable takes it
 * for. Only the address may differ from one replay to the next. What is after role may be left 0:
 * then the buffer is so many bytes and nothing else is known, or checked, of it.
 *
 * shape and strides are rank numbers each; they are read during the call only, and captures keep
 * copies. The view's first element lies at address and its last within bytes. Strides of dimensions
 * of size 1, and all where a size is 0, say nothing, and are not compared. */
struct rp_arg {
    uint64_t address;
    uint64_t bytes;
    enum rp_arg_role role;
    uint32_t dtype;       /* enum rp_dtype, of an element */
    uint32_t rank;        /* dimensions, up to RP_MOST_RANK */
    uint32_t flags;       /* 0 */
    const int64_t *shape; /* elements along each dimension, none below 0; NULL where rank is 0 */
    const int64_t
        *strides;         /* in elements, none below 0; NULL: contiguous, the last is the nearest */
    uint64_t reserved[2]; /* 0 */
};

/* Runs the callable now, without a graph, on `stream`; its memory, each block for itself, is freed
 * once the work is done. Synchronises `stream` and the streams that its allocations named. */
RP_API rp_status rp_run(struct rp_pool *pool, rp_callable_fn callable, void *user,
                        const struct rp_arg *args, size_t arg_count, struct CUstream_st *stream,
                        struct rp_error *err);

/* Captured work, ready to replay. */
struct rp_graph;

/* Which arguments that could be bound are bound. */
enum rp_bind {
    RP_BIND_AUTO = 0,  /* those for which that costs less than copying them, by prices that are
                          measured on the device once and in the graph's own replays: many nodes
                          that use few small arguments are dearer to change than these to copy.
                          Over all replays at most about twice the better of both ways */
    RP_BIND_ALWAYS = 1 /* all */
};

/* How a graph's bindings are verified, beside the proof that two captures give. */
enum rp_verify {
    RP_VERIFY_NONE = 0,
    RP_VERIFY_CAPTURE = 1, /* by a third capture, with arguments at other addresses: nothing runs */
    RP_VERIFY_RUN = 2      /* and by running it, without a graph and by replays */
};

/* Gives memory to the results that a callable named (rp_call_result), count of them: of each,
 * address is 0, bytes and role (RP_ARG_OUT) are set. Memory like that which replays will bring, for
 * as long as the capture takes; nothing but RP_VERIFY_RUN writes there. It may set what is behind
 * the address as well, but for bytes. Called once, behind the first run; no capture is under way,
 * but nothing can be captured into the pool. `user` is that of the callable. A status other than
 * RP_OK ends the capture with that status, and err where it was filled. */
typedef rp_status (*rp_results_fn)(struct rp_arg *results, size_t count, void *user,
                                   struct rp_error *err);

/* Is memory at this address in use, which an earlier run of the pool's device was given there?
 * Asked of a word that a kernel's struct held in both captures, and that neither gave out: what
 * nobody has any more was left there by a call before, as PyTorch's tables of tensors have room for
 * more than they hold; what somebody has refuses the capture. */
typedef int (*rp_in_use_fn)(uint64_t address, void *user);

struct rp_capture_options {
    size_t size;
    const char *name;      /* for reports and errors; copied; NULL: "graph" */
    int copy_args;         /* nonzero: arguments keep the addresses of the capture, and every replay
                              copies them there: for callables that leave an argument's address in
                              memory (an array of pointers, say), where no capture can see it */
    enum rp_verify verify; /* see below */
    enum rp_bind bind;     /* where copy_args is 0 */
    int reserved;          /* 0 */
    struct CUstream_st *stream; /* of RP_VERIFY_RUN: has made the arguments' contents */
    rp_results_fn results;      /* the callable names results, and these are asked for here; NULL:
                                   all that it writes for others are arguments */
    uint64_t lead_bytes; /* at the start of the pool, where none of its blocks are laid: moves the
                            layout. A GPU's cache is in parts, and by which of them their data
                            belong to small kernels take more or less time */
    rp_in_use_fn in_use; /* user: as the callable's; NULL: all that was given out is */
};
#define RP_CAPTURE_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(struct rp_capture_options), NULL, 0, RP_VERIFY_NONE, RP_BIND_AUTO, 0, NULL, NULL,   \
            0, NULL                                                                                \
    }

/* Verification. Two captures prove where arguments' addresses stand, if the callable does in a call
 * what it did in both. RP_VERIFY_CAPTURE takes that on trust less: the callable is captured once
 * more, between rehearsal and record, with its arguments at other addresses and other distances
 * from each other. What replays would write for these is compared with what that capture holds, in
 * host time alone, about that of a rehearsal. An argument of which a word is not where it should
 * be, whose address stands where none should, or from whose address a word of a struct was
 * computed, is copied by all replays. Where no argument is to blame (a value, a function, a grid is
 * another) all are. Each is a warning in the log, and rp_graph_info and rp_graph_arg_info tell. A
 * third capture with other nodes or edges fails with RP_ERROR_DIVERGED, once all was taken twice.
 * Where copy_args is set there is nothing to verify, and no third capture.
 *
 * RP_VERIFY_RUN is a promise: the callable changes nothing but its out and inout arguments. It is
 * verified by a third capture, and besides it runs: twice without a graph, before the captures, and
 * twice by replays at other addresses, the buffers of each run holding something else in the next.
 * What comes out has to be the same to the bit. All of it works on buffers of its own, three for
 * each argument, with the contents that the caller's have when `stream` gets there; the caller's
 * are read, and not written. It synchronises `stream`, and replays overwrite what alternatives
 * keep. An argument that makes replays give other results where it is bound is found, by replays
 * that bind some and copy the others, and copied from then on, with a warning; where it is no
 * argument's binding the capture fails with RP_ERROR_CAPTURE. Contents that are 0 in every byte
 * hide what a replay reads in a wrong place. Nothing runs, and rp_graph_info tells why (not_run),
 * where an argument that is read has no address or is not the device's memory, where a rehearsal
 * shows host functions, copies or fills into memory that is no argument, or uses of other graphs'
 * blocks, where replays would overwrite blocks that others read, where two eager runs differ, and
 * where there is no memory for the buffers. What a kernel writes to cannot be seen: hence the
 * promise. */

/* Captures the callable: rehearse (addresses of their own for every block, on one chunk of device
 * memory), plan (place the blocks; the pool grows to the plan), record (capture at the planned
 * addresses), compare (the two captures must be one graph at other addresses), instantiate. Runs
 * nothing on the device but to verify (RP_VERIFY_RUN). The callable should have run once before
 * with rp_run, so that what it creates lazily exists. Uses a stream of its own; the capture mode is
 * thread-local. When the two captures differ in more than addresses, both are taken once more (up
 * to twice where only padding may differ: rp_call_scalar).
 * Results that the callable names (rp_call_result) are arguments of the graph, behind args.
 * Errors: RP_ERROR_CAPTURE with the driver's code and its meaning, or with the node that uses an
 * address which the callable kept from an earlier call; RP_ERROR_DIVERGED with the first node that
 * differs; RP_ERROR_UNSUPPORTED with a node of a type that cannot be compared (allocations by the
 * driver, conditional nodes, batched memory operations, semaphores); RP_ERROR_CALLABLE; out of
 * memory; RP_ERROR_LIMIT for the pool's limit. When the callable returns the status of a failed
 * rp_call_... function, that error comes back as it was. */
RP_API rp_status rp_graph_capture(struct rp_pool *pool, const struct rp_capture_options *options,
                                  rp_callable_fn callable, void *user, const struct rp_arg *args,
                                  size_t arg_count, struct rp_graph **out_graph,
                                  struct rp_error *err);

/* Enqueues the graph on `stream` with these arguments. An argument is bound where that is known to
 * be right: the graph reads and writes the caller's buffer, at a host cost for each node that uses
 * an argument whose address changed since this graph's last replay, and none for the others. Where
 * it is not, or copying was measured to cost less (enum rp_bind; rp_graph_arg_info says why), the
 * argument is copied to where the graph reads it, or back from there. The buffers must exist until
 * `stream` has passed the replay, as for any kernel.
 * An argument is copied in calls in which its address is not as aligned as in the capture (up to
 * 256, and up to the pool's alignment), in which it lies in memory of the graph itself, or overlaps
 * another one and is written or the other is: so the graph computes what the callable would from
 * the arguments as they were before the call. What two outputs that overlap hold then is not
 * defined.
 * Nothing is enqueued, and the error is RP_ERROR_CONTRACT, when args have not the count, bytes,
 * roles, types, shapes and strides of the capture; when one lies in memory that the graph may not
 * use: that the driver does not know, of another device, past the end of its allocation, of eager
 * runs or rehearsals, of another graph's own, in a kept block that does not hold what its graph
 * wrote (looked at where the address is new to the pool, so memory that is given back later is not
 * found out; pinned host memory is good); when a block that the graph reads of another does not
 * hold what it should (section 3); or when the graph is stale (rp_graph_is_stale). Outputs are
 * ready when `stream` gets there; the stream must not be destroyed before. May be called by any
 * thread, while earlier replays run on other arguments: replays of graphs of one pool that are not
 * concurrent are put in order, whatever their streams. RP_ERROR_UNSUPPORTED while the stream is
 * capturing, RP_ERROR_INVALID_ARGUMENT for one of another device. After a driver's error part of it
 * may have been enqueued: what the outputs hold is undefined, and the replay is not counted. Where
 * the driver fails to record an event and to wait for the stream too, later replays on other
 * streams wait for all of that stream on the host, or fail. Replays of one pool's tree are enqueued
 * one at a time: where the driver lets a launch wait, as its queue is full, those of other threads,
 * and the pool's and graphs' infos, wait with it. */
RP_API rp_status rp_graph_replay(struct rp_graph *graph, const struct rp_arg *args,
                                 size_t arg_count, struct CUstream_st *stream,
                                 struct rp_error *err);

/* The blocks that the graph keeps are needed by what was captured so far, and by nothing that will
 * be: later captures of its sequence may be laid over them, and may not use them. So a
 * pipeline's graphs, captured in the order in which they run, take the memory of the passes that
 * are under way at the same time, not that of all. Nothing that was captured moves, and replays are
 * checked as before: a graph that reads such a block is refused once a later one has been replayed
 * over it, until the block's graph has been replayed again. A second call does nothing. */
RP_API rp_status rp_graph_release(struct rp_graph *graph, struct rp_error *err);

/* Nonzero once a block of a heap that the graph uses beside its arguments was freed: what is there
 * now is somebody else's, also where the address was given out again. No replay is enqueued any
 * more; capture anew, with the memory that there is now. Known are blocks of the device's heaps
 * that were live when the capture ended and whose addresses nodes name, child graphs included; not
 * seen are addresses that lie in device memory, and memory of other allocators. Any thread, no
 * lock. */
RP_API int rp_graph_is_stale(const struct rp_graph *graph);

/* Waits for what was enqueued so far on the stream of the graph's last replay, which has to exist:
 * that replay, and work of the program's own behind it that uses what the graph keeps. Once the
 * graph is destroyed that memory may be unmapped, whatever runs. Does not wait for a stream that is
 * capturing, nor where there was no replay. Any thread. */
RP_API rp_status rp_graph_wait(struct rp_graph *graph, struct rp_error *err);

/* Waits for the graph's last replay, then frees it. Graphs that read blocks of it are refused from
 * then on. NULL is allowed. */
RP_API void rp_graph_destroy(struct rp_graph *graph);

struct rp_graph_info {
    size_t size;
    const char *name;
    size_t nodes, edges;
    size_t blocks;              /* allocations in the callable */
    uint64_t total_bytes;       /* sum of them, each rounded up to the pool's alignment */
    uint64_t peak_bytes;        /* most alive at once in host order */
    uint64_t lower_bound_bytes; /* heaviest set of blocks that may not share memory */
    uint64_t planned_bytes;     /* highest end of a block, from the start of the pool */
    size_t diverged_blocks;     /* blocks placed online: the record did not follow the rehearsal */
    size_t sites;               /* places in node parameters proved to hold an address */
    size_t rehearsals;          /* captures taken to learn */
    double rehearse_ms, plan_ms, record_ms, instantiate_ms;
    uint64_t replays;        /* that were enqueued whole */
    size_t bindable_args;    /* arguments that replays may bind */
    size_t bound_args;       /* in the last replay: arguments bound, */
    size_t copied_args;      /* and arguments copied; those of 0 bytes are neither */
    uint64_t patched_nodes;  /* nodes of the callable that were changed, summed over replays */
    int own_exec;            /* nonzero: no other graph uses its exec now */
    uint64_t exec_hits;      /* replays by an exec that held the graph already */
    uint64_t exec_updates;   /* replays that updated a shared exec first */
    uint64_t execs_made;     /* instantiations for this graph */
    uint64_t exec_bytes;     /* of an exec for it, estimated */
    size_t exec_sharers;     /* other graphs that could take turns with it */
    uint64_t staging_bytes;  /* of arguments that have memory to be copied to, so far */
    enum rp_verify verified; /* how its bindings were verified */
    size_t unverified_args;  /* arguments that are copied for what that found */
    double verify_ms;        /* of the third capture */
    const char *not_run;     /* why RP_VERIFY_RUN ran nothing; NULL: it did, or was not asked for */
    size_t outside_blocks;   /* blocks of heaps that nodes name beside the arguments */
    uint64_t lost_address, lost_bytes; /* of the first of those that was freed; 0: all are there */
    int plan_stopped; /* nonzero: the plan was stopped by its budget, above its lower bound */
    int reserved;     /* 0 */
};
RP_API void rp_graph_info(const struct rp_graph *graph, struct rp_graph_info *out_info);

struct rp_graph_arg_info {
    size_t size;
    size_t sites;       /* places in node parameters proved to hold its address */
    int bindable;       /* nonzero: replays may bind it */
    int bound;          /* nonzero: the last replay bound it */
    const char *reason; /* why the last replay copied it, or none binds it; NULL: bound. Static */
    size_t nodes;       /* that are changed when a replay binds it to another address */
};
/* index is that of the argument in the capture. */
RP_API rp_status rp_graph_arg_info(const struct rp_graph *graph, size_t index,
                                   struct rp_graph_arg_info *out_info, struct rp_error *err);

/* ---- 5. Shapes: a callable as a function --------------------------------------------------- */

/* A C function that takes any arguments and runs as a graph: each shape that it is called with is
 * captured once and replayed from then on. Two calls have one shape when their arguments agree in
 * number, role, bytes, type, shape and strides, when those that overlap where one is written
 * overlap in the same way, and when their keys are equal. Telling that costs no allocation.
 *
 * The first call of all runs eagerly, so that what the function makes lazily is made. A later call
 * of a shape that is not captured captures it, then replays it. Where that fails the call runs
 * eagerly and the shape is captured once more; where that fails too the shape stays eager, and
 * rp_callable_shape_info tells why. So calls give what eager runs give, whatever can be captured.
 *
 * The graphs are alternatives: they lie over each other, and memory grows only to the largest.
 * Any thread may call a callable. Calls of one take turns; those of different ones run side by
 * side, but captures into one tree of pools take turns. */
struct rp_callable;

/* How the sizes of a dimension are rounded up: to the next of a list, to the next power of two, or
 * to the next multiple of a number. Above the last of a list a size stays as it is. */
enum rp_bucket_rule { RP_BUCKET_LIST = 0, RP_BUCKET_POWERS_OF_TWO = 1, RP_BUCKET_MULTIPLES = 2 };

/* An axis of an argument that has the size of a named dimension. */
struct rp_axis {
    uint32_t arg, axis;
};

/* A dimension along which calls of several sizes share a graph: arguments are padded up to the
 * bucket. The function must give, within the true sizes, results that do not depend on what lies
 * beyond them, as one does that treats each row by itself. */
struct rp_dim {
    const char *name; /* "batch": for reports and errors */
    const struct rp_axis *axes;
    size_t axis_count;
    enum rp_bucket_rule rule;
    uint32_t reserved;      /* 0 */
    const int64_t *buckets; /* the list, ascending; of multiples: the one number */
    size_t bucket_count;
};

/* What an argument is padded with: each element of the padding gets the low bytes of `bits`.
 * Arguments that no fill names are padded with zeros. */
struct rp_fill {
    uint32_t arg;
    uint32_t reserved; /* 0 */
    uint64_t bits;
};

/* When calls of a captured shape go by its graph. */
enum rp_policy {
    RP_POLICY_ALWAYS = 0, /* always */
    RP_POLICY_AUTO = 1,   /* where that was measured to be faster: eager calls come first, a capture
                             when its price is within what they may pay, then both are compared in
                             turns, again when the measurements drift. Knowing costs the capture,
                             8 ms and 0.8 % of the time, and some calls the slower way at first */
    RP_POLICY_NEVER = 2   /* never: nothing is captured */
};

struct rp_callable_options {
    size_t size;
    const char *name;     /* for reports and errors; copied; NULL: "callable" */
    struct rp_pool *pool; /* where its graphs lie, in a pool of alternatives of their own within it;
                             outlives the callable. NULL: an outermost pool of its own */
    struct rp_heap *heap; /* memory of eager runs, which wait for nothing then, and of fresh
                             outputs; outlives the callable. NULL: eager runs are rp_run's, and
                             there are no fresh outputs */
    const struct rp_dim *dims; /* copied. None: every size is a shape of its own */
    size_t dim_count;
    const struct rp_fill *fills; /* copied */
    size_t fill_count;
    size_t most_graphs; /* shapes beyond that many stay eager; 0: no limit */
    int copy_args;      /* as in rp_capture_options */
    enum rp_policy policy;
    enum rp_verify verify; /* of each shape's graph, as in rp_capture_options; what is captured
                              ahead of time is verified without running */
    enum rp_bind bind;     /* of each shape's graph, as in rp_capture_options */
};
#define RP_CALLABLE_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(struct rp_callable_options), NULL, NULL, NULL, NULL, 0, NULL, 0, 0, 0,              \
            RP_POLICY_ALWAYS, RP_VERIFY_NONE, RP_BIND_AUTO                                         \
    }

/* options may be NULL. `user` is the function's at each run. */
RP_API rp_status rp_callable_create(struct rp_device *device,
                                    const struct rp_callable_options *options,
                                    rp_callable_fn function, void *user,
                                    struct rp_callable **out_callable, struct rp_error *err);
/* Waits for its calls. NULL is allowed. */
RP_API void rp_callable_destroy(struct rp_callable *callable);

/* What a callable is called with. The key is what the work depends on beside the arguments: flags,
 * numbers, in bytes of the caller's choice. Shapes keep a copy of it; the function asks for it with
 * rp_call_key. */
struct rp_inputs {
    struct rp_arg *args;
    size_t arg_count;
    const void *key;
    size_t key_bytes;
};

/* For functions: argument `index` as it is in this run, its address that of the run. In a graph for
 * a bucket shapes are those of the bucket. Returns 0, with nothing written, past the last. */
RP_API int rp_call_tensor(const struct rp_call *call, size_t index, struct rp_arg *out_arg);
/* The key of this run; NULL and 0 outside a callable's calls. */
RP_API const void *rp_call_key(const struct rp_call *call, size_t *out_bytes);

/* Enqueues the work for these inputs on `stream`, by graph or eagerly; contents of arguments as for
 * rp_graph_replay and rp_run. Where the shape is padded, in and inout arguments are copied into
 * buckets, and of out and inout arguments the true part is copied back: nothing beyond it reaches
 * the caller's memory.
 * An RP_ARG_OUT argument of address 0 is a fresh output: its memory comes from the heap, for work
 * on `stream`, and its address is written into args; it is the caller's to free. Padded ones are
 * views: bytes is that of the bucket, and strides, which belong to the callable, where they need to
 * be. A shape whose graph is stale (rp_graph_is_stale) is captured anew, with the memory that the
 * function uses now; after the fourth time it stays eager. Errors: those of rp_run and
 * rp_graph_replay. What a failed call leaves in outputs is undefined. */
RP_API rp_status rp_callable_call(struct rp_callable *callable, const struct rp_inputs *inputs,
                                  struct CUstream_st *stream, struct rp_error *err);

struct rp_shape_info;
/* Told after each shape: `done` of `count` are, the last as `shape` says. By the capturing thread,
 * which must not use the callable. */
typedef void (*rp_progress_fn)(size_t done, size_t count, const struct rp_shape_info *shape,
                               void *user);

/* Captures these inputs' shapes ahead of their first call, the largest first; addresses may be 0.
 * Nothing runs on the device. progress may be NULL. A shape that fails keeps none of the others
 * from being captured: its first call runs eagerly, then captures it once more. *out_failed, how
 * many did, may be NULL. Errors are of the call itself only. */
RP_API rp_status rp_callable_capture(struct rp_callable *callable, const struct rp_inputs *inputs,
                                     size_t count, rp_progress_fn progress, void *user,
                                     size_t *out_failed, struct rp_error *err);

enum rp_shape_state {
    RP_SHAPE_NEW = 0,   /* known, not captured yet */
    RP_SHAPE_GRAPH = 1, /* captured */
    RP_SHAPE_RETRY = 2, /* capturing failed once: the next call runs eagerly, then captures */
    RP_SHAPE_EAGER = 3  /* stays eager */
};

struct rp_shape_info {
    size_t size;
    const char *text;   /* "float32[64,128], float32[64,10]": of the bucket where there are any */
    const char *reason; /* why it is eager or to be tried again; NULL: it is not */
    const struct rp_graph *graph; /* for rp_graph_info; NULL: none */
    enum rp_shape_state state;
    int reserved;
    uint64_t replays, eager_runs, padded_calls;
    uint64_t planned_bytes, lower_bound_bytes; /* of its graph */
    double capture_ms;                         /* of all attempts */
    size_t nodes;
    /* Of RP_POLICY_AUTO; NULL and 0 otherwise. */
    const char *choice;        /* how calls go now: "eager" or "graph" */
    const char *choice_reason; /* why */
    double eager_us, graph_us; /* mean of the latest measured calls, 0: none was measured */
    uint64_t measured_calls;
    uint64_t stale_graphs; /* of it that were dropped, as memory that they used was freed */
};
struct rp_callable_info {
    size_t size;
    const char *name;
    struct rp_pool *pool; /* of its graphs: alternatives */
    size_t shapes, graphs, eager_shapes;
    uint64_t calls, replays, eager_runs, padded_calls;
    uint64_t staging_bytes; /* device memory for padded arguments, beside the pool's */
    double capture_ms;
    uint64_t stale_graphs; /* of all shapes */
};
RP_API void rp_callable_info(struct rp_callable *callable, struct rp_callable_info *out_info);
/* By index, in the order in which shapes were met; 0, with nothing written, past the last. Texts
 * and graph are valid until the shape is captured again or the callable is destroyed. */
RP_API int rp_callable_shape_info(struct rp_callable *callable, size_t index,
                                  struct rp_shape_info *out_info);

enum rp_report_format {
    RP_REPORT_TEXT = 0, /* a table for people */
    RP_REPORT_JSON = 1  /* reprise-callable/1, see docs/formats.md */
};
/* All of the above for each shape. *out_text belongs to the callable, until the next report or
 * until it is destroyed. */
RP_API rp_status rp_callable_report(struct rp_callable *callable, enum rp_report_format format,
                                    const char **out_text, struct rp_error *err);

/* What capturing shapes would take, found without taking it. */
struct rp_estimate;

/* Rehearses and plans callables[i] with inputs[i], in this order, and captures nothing: device
 * memory taken is the one chunk of rehearsals. Captures of these shapes in the same order, by
 * rp_callable_capture or on first use, then take what is estimated to the byte, as long as nothing
 * else is captured in between and the functions do in their captures what they did here. Addresses
 * of arguments may be 0. Callables may share a pool, be in sequence or concurrent. A shape that
 * cannot be rehearsed is reported and left out. */
RP_API rp_status rp_estimate(struct rp_callable *const *callables, const struct rp_inputs *inputs,
                             size_t count, struct rp_estimate **out_estimate, struct rp_error *err);
RP_API void rp_estimate_destroy(struct rp_estimate *estimate); /* NULL is allowed */

/* The same without callables: an estimate to which captures are added one after the other, each as
 * rp_graph_capture would take it behind those before it. rp_graph_capture then takes what was
 * estimated, under the same conditions. What an added callable keeps may be used by those that are
 * added behind it. Pools that are made within an estimated one meanwhile are estimated too; they
 * outlive the estimate. A capture that fails adds nothing; errors are those of its rehearsal. Of
 * the options the name and `results` are read; the addresses of results may be 0 as well. Sharing,
 * threads and memory: as rp_estimate. */
RP_API rp_status rp_estimate_create(struct rp_estimate **out_estimate, struct rp_error *err);
RP_API rp_status rp_estimate_add(struct rp_estimate *estimate, struct rp_pool *pool,
                                 const struct rp_capture_options *options, rp_callable_fn callable,
                                 void *user, const struct rp_arg *args, size_t arg_count,
                                 struct rp_error *err);

/* Of the outermost pools that these callables lie in, with what was captured before. */
struct rp_estimate_info {
    size_t size;
    size_t shapes, failed;
    uint64_t planned_bytes; /* as in rp_pool_info */
    uint64_t mapped_bytes;
    uint64_t lower_bound_bytes;
    uint64_t staging_bytes; /* for padded arguments, beside the pools' */
    uint64_t exec_bytes;    /* one exec for each shape, by the prices of struct rp_device_exec_info;
                               kernels are not counted that copy arguments, two a graph at most */
    uint64_t rehearsal_bytes; /* the chunk */
    double ms;
};
RP_API void rp_estimate_info(const struct rp_estimate *estimate, struct rp_estimate_info *out_info);

struct rp_estimate_shape {
    size_t size;
    struct rp_callable *callable; /* NULL: of rp_estimate_add */
    const char *text;             /* as in rp_shape_info; of rp_estimate_add the name */
    const char *reason;           /* why it could not be rehearsed; NULL: it could */
    rp_status status;
    int captured;           /* nonzero: it was captured before */
    uint64_t planned_bytes; /* highest end of its blocks, from the start of the pool */
    uint64_t lower_bound_bytes, exec_bytes;
    size_t nodes;
    double ms;
};
/* By index, in order, each shape once; 0, with nothing written, past the last. */
RP_API int rp_estimate_shape(const struct rp_estimate *estimate, size_t index,
                             struct rp_estimate_shape *out_shape);

/* ---- 6. Process-wide settings -------------------------------------------------------------- */

/* Where the library takes host memory. Set before any other call but rp_set_log, from one thread;
 * the functions behave like their namesakes in the C library. NULL restores those. Where one of the
 * three is NULL nothing changes, and an error is logged. */
struct rp_host_memory {
    void *(*malloc_fn)(size_t bytes, void *user);
    void *(*realloc_fn)(void *pointer, size_t bytes, void *user);
    void (*free_fn)(void *pointer, void *user);
    void *user;
};
RP_API void rp_set_host_memory(const struct rp_host_memory *functions);

enum rp_log_level { RP_LOG_ERROR = 0, RP_LOG_WARNING = 1, RP_LOG_INFO = 2, RP_LOG_DEBUG = 3 };
/* The library prints nothing: messages up to `level` go to `log`, from any thread, and from several
 * at once. NULL: nowhere. Any thread; a message that is on its way still goes to the one before, so
 * `user` of that has to last. The message is valid during the call only. */
RP_API void rp_set_log(void (*log)(enum rp_log_level level, const char *message, void *user),
                       void *user, enum rp_log_level level);

#ifdef __cplusplus
}
#endif

#endif
