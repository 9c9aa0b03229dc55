/* SPDX-License-Identifier: MIT
 *
 * What the files of the host driver share.
 *
 *   op       one piece of work: a kernel launch, memcpy, memset, host function ... Immutable once
 *            made, counted by references; a stream runs it, a graph node holds it
 *   task     one execution of an op, in the graph of everything enqueued and not finished
 *   marker   a task without an op: a point in the order
 *   tail     the task after which a stream's next one runs
 *   terminal a node that the next node of a capturing stream depends on
 *   span     a range of addresses with memory behind it
 *   chunk    a range of physical memory: of the one memfd that is the device's memory
 *   context  the primary one of a device, by its ordinal; streams, events and modules belong to the
 *            one that was current when they were made
 *   lane     a stream's place in the clocks by which the race check knows what is ordered
 *
 * One lock guards everything. Functions of the table are entered through table.c, which takes the
 * lock, so that everything declared here is called with the lock held, unless said otherwise.
 */
#ifndef REPRISE_DRIVER_HOST_STATE_H
#define REPRISE_DRIVER_HOST_STATE_H

#include "base/held.h"
#include "base/vec.h"
#include "driver/host/host.h"
#include "reprise_tools.h"

#include <pthread.h>
#include <string.h>

#define RPI_HOST_LANES       64
#define RPI_HOST_GRANULARITY ((uint64_t)2 << 20)
/* The devices' primary contexts, and some that programs make beside them. */
#define RPI_HOST_CONTEXTS (RPI_HOST_MOST_DEVICES + 8)

/* at[l] is the last position on lane l that lies before. */
struct rpi_host_clock {
    uint64_t at[RPI_HOST_LANES];
};

/* ---- handles.c: which handles are alive ---------------------------------------------------- */

enum rpi_host_kind {
    RPI_HOST_STREAM = 1,
    RPI_HOST_EVENT,
    RPI_HOST_MODULE,
    RPI_HOST_FUNCTION,
    RPI_HOST_LIBRARY,
    RPI_HOST_KERNEL,
    RPI_HOST_GRAPH,
    RPI_HOST_NODE,
    RPI_HOST_EXEC,
    RPI_HOST_CHUNK
};
bool rpi_host_handle_add(const void *pointer, enum rpi_host_kind kind);
void rpi_host_handle_remove(const void *pointer);
bool rpi_host_handle_is(const void *pointer, enum rpi_host_kind kind);
void rpi_host_handles_finish(void);
/* Some living handle of this kind, or NULL. */
void *rpi_host_handle_any(enum rpi_host_kind kind);
/* One for which is(handle, of), or NULL. */
void *rpi_host_handle_find(enum rpi_host_kind kind, bool (*is)(const void *, const void *),
                           const void *of);

struct rpi_host_handle {
    const void *pointer;
    enum rpi_host_kind kind;
};
struct rpi_host_handles {
    struct rpi_host_handle *slots; /* open addressing, a power of two */
    size_t capacity, count;
};

/* ---- op.c: operations ---------------------------------------------------------------------- */

struct rpi_host_kernel_op {
    CUfunction function; /* holds a reference to its module */
    unsigned grid[3], block[3], cluster[3];
    unsigned shared_bytes;
    int cooperative, priority, programmatic;
    bool packed;   /* launched with `extra` */
    void **params; /* [param_count], into buffer */
    unsigned char *buffer;
    size_t buffer_bytes;
    void *extra[5];
};

struct rpi_host_op {
    unsigned references;
    CUgraphNodeType type;
    union {
        struct rpi_host_kernel_op kernel;
        CUDA_MEMCPY3D copy; /* memory types are HOST or DEVICE */
        CUDA_MEMSET_NODE_PARAMS fill;
        CUDA_HOST_NODE_PARAMS host;
        CUevent event; /* of an event record or wait node; may be dead by the time it runs */
    };
    void *staging; /* owned: the bytes of a pageable source, copied when the copy was enqueued */
    unsigned char source_kind, target_kind; /* of a copy's or fill's memory, once settled */
};

struct rpi_host_op *rpi_host_op_create(CUgraphNodeType type);
struct rpi_host_op *rpi_host_op_hold(struct rpi_host_op *op);
void rpi_host_op_drop(struct rpi_host_op *op);
/* Does the work. Called without the lock. */
void rpi_host_op_run(const struct rpi_host_op *op);
void rpi_host_op_accesses(const struct rpi_host_op *op, rp_host_access report, void *context);
void rpi_host_op_name(const struct rpi_host_op *op, char *out_name, size_t capacity);
/* Whether the memory that a copy or a fill touches is there; true for other ops. */
bool rpi_host_op_has_memory(const struct rpi_host_op *op);

/* ---- engine.c: tasks and the threads that run them ----------------------------------------- */

struct rpi_host_task {
    unsigned references;
    struct rpi_host_op *op; /* NULL: a marker */
    size_t waiting;         /* predecessors not done, and one until submitted */
    bool done;
    struct rpi_host_task *next; /* while it is being finished */
    uint64_t done_ns;
    struct {
        RPI_VEC(struct rpi_host_task *);
    } successors;
};

/* The caller holds one reference and must submit or cancel the task. */
struct rpi_host_task *rpi_host_task_create(struct rpi_host_op *op);
/* false: no host memory, nothing changed. before may be NULL or done. */
bool rpi_host_task_after(struct rpi_host_task *task, struct rpi_host_task *before);
void rpi_host_task_submit(struct rpi_host_task *task);
/* Submits it as a marker: what was made to wait for it is not held up. */
void rpi_host_task_cancel(struct rpi_host_task *task);
void rpi_host_task_drop(struct rpi_host_task *task);
/* *slot = task, references counted. */
void rpi_host_task_set(struct rpi_host_task **slot, struct rpi_host_task *task);
/* Lets the lock go while it waits. */
void rpi_host_task_wait(struct rpi_host_task *task);
/* Lets the lock go until nothing is pending. */
void rpi_host_engine_drain(void);
/* Ends the threads; nothing is pending. Lets the lock go. */
void rpi_host_engine_stop(void);

struct rpi_host_engine {
    struct {
        RPI_VEC(struct rpi_host_task *);
    } ready;
    struct {
        RPI_VEC(pthread_t);
    } threads;
    size_t idle;       /* threads that wait for work */
    size_t in_hosts;   /* threads inside a host function, which may block */
    size_t running;    /* threads inside any op */
    size_t unfinished; /* tasks not done */
    bool stopping;
    uint64_t random;
    uint64_t operations;
};

/* ---- stream.c, event.c: order -------------------------------------------------------------- */

struct rpi_host_edge {
    CUgraphNode node;
    CUgraphEdgeData data;
};
struct rpi_host_edges {
    RPI_VEC(struct rpi_host_edge);
};

struct CUstream_st {
    CUcontext context;
    unsigned flags;
    int priority;
    bool legacy;
    unsigned lane;
    uint64_t thread; /* of a per-thread default stream, else 0 */
    struct rpi_host_task *tail;
    struct rpi_host_clock clock;
    struct rpi_host_capture *capture; /* NULL: not capturing */
    struct rpi_host_edges terminals;
    /* What cuStreamGetCaptureInfo returned, valid until the next call on the stream. */
    struct {
        RPI_VEC(CUgraphNode);
    } info_nodes;
    struct {
        RPI_VEC(CUgraphEdgeData);
    } info_edges;
    struct CUstream_st *next;
};

struct CUevent_st {
    CUcontext context;
    unsigned flags;
    bool recorded;
    struct rpi_host_task *task;
    struct rpi_host_clock clock;
    uint64_t capture; /* id of the capture it was last recorded in, 0: none */
    struct rpi_host_edges terminals;
};

/* Whether the legacy stream and this one wait for each other. */
static inline bool rpi_host_stream_blocks(const struct CUstream_st *stream)
{
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

/* The stream that a handle means, NULL: CUDA_ERROR_INVALID_HANDLE (or no host memory for the
 * thread's default stream). */
CUstream rpi_host_stream_of(CUstream handle);
/* Gives an op to a stream: to its capture if it is capturing. The op's reference stays the
 * caller's. out_task, where not NULL, receives a reference, or NULL when captured. */
CUresult rpi_host_enqueue(CUstream stream, struct rpi_host_op *op, struct rpi_host_task **out_task);
/* Makes task run after all that precedes the stream's next op. */
bool rpi_host_stream_order(CUstream stream, struct rpi_host_task *task);
/* Makes task, submitted next, the stream's tail. */
void rpi_host_stream_advance(CUstream stream, struct rpi_host_task *task);
/* What lies before the stream's next op. */
void rpi_host_stream_clock(CUstream stream, struct rpi_host_clock *out_clock);
/* Waits for everything enqueued so far on all streams of the context; NULL: of every context. */
CUresult rpi_host_wait_all(CUcontext context);
void rpi_host_streams_finish(CUcontext context);
void rpi_host_events_finish(CUcontext context);
/* The event is recorded: it happens when task is done. */
void rpi_host_event_set(CUevent event, struct rpi_host_task *task,
                        const struct rpi_host_clock *clock);
/* A marker after all that precedes the stream's next op. NULL: no host memory. The reference is the
 * caller's. */
struct rpi_host_task *rpi_host_stream_marker(CUstream stream);

/* ---- capture.c: streams that record -------------------------------------------------------- */

struct rpi_host_capture {
    uint64_t id;
    CUstreamCaptureMode mode;
    bool invalid;
    bool into; /* the graph is the program's (cuStreamBeginCaptureToGraph) */
    uint64_t thread;
    CUstream origin;
    CUgraph graph;
    struct {
        RPI_VEC(CUstream);
    } streams;
    struct rpi_host_capture *next;
};

/* CUDA_SUCCESS when work may go to the stream (capturing or not); otherwise the error, after having
 * invalidated what it invalidates. */
CUresult rpi_host_capture_check(CUstream stream);
/* For calls that are unsafe beside a capture, by the thread's mode. */
CUresult rpi_host_capture_unsafe(void);
/* For calls that wait for, or ask about, a stream. */
CUresult rpi_host_capture_no_sync(CUstream stream);
/* For calls that wait for everything. */
CUresult rpi_host_capture_no_sync_all(CUcontext context);
CUresult rpi_host_capture_add(CUstream stream, struct rpi_host_op *op, CUgraph child,
                              CUgraphNode *out_node);
CUresult rpi_host_capture_record(CUstream stream, CUevent event);
CUresult rpi_host_capture_wait(CUstream stream, CUevent event);
struct rpi_host_capture *rpi_host_capture_by_id(uint64_t id);
void rpi_host_capture_stream_gone(CUstream stream);
/* Whether something is being captured into the graph or into a child of it. */
bool rpi_host_capture_owns(CUgraph graph);
/* Of captures that began on the context's streams. */
void rpi_host_captures_finish(CUcontext context);

/* ---- graph.c, node_params.c ---------------------------------------------------------------- */

struct CUgraph_st {
    struct {
        RPI_VEC(CUgraphNode);
    } nodes;            /* in the order of creation */
    CUgraphNode parent; /* the child graph node that owns it, or NULL */
    bool internal;      /* an exec's: it and its nodes are no handles */
};

struct CUgraphNode_st {
    CUgraph graph;
    uint64_t id, cloned_from; /* unique numbers; 0: not a clone */
    size_t index;             /* in graph->nodes */
    struct rpi_host_op *op;
    CUgraph child; /* owned; of a child graph node */
    struct rpi_host_edges before, after;
    uint64_t mark;     /* scratch of whoever walks the graph */
    CUgraphNode below; /* the same: the next on a stack */
};

CUgraph rpi_host_graph_create(CUgraphNode parent, bool internal);
void rpi_host_graph_destroy(CUgraph graph);
/* The graph that holds this one as a child of a child ...; itself when none does. */
CUgraph rpi_host_graph_top(CUgraph graph);
CUresult rpi_host_graph_clone(CUgraph original, CUgraphNode parent, bool internal,
                              CUgraph *out_clone);
/* child, where not NULL, is cloned into the node. */
CUresult rpi_host_graph_add(CUgraph graph, const struct rpi_host_edge *edges, size_t count,
                            struct rpi_host_op *op, CUgraph child, CUgraphNode *out_node);
/* Every node from which one of `nodes` is reached, they included, gets the mark returned. */
uint64_t rpi_host_graph_mark(const struct rpi_host_edge *nodes, size_t count);
bool rpi_host_edge_valid(const struct rpi_host_edge *edge);
void rpi_host_graphs_finish(void);

/* Ops from what the program passed; each checks as the node functions do. */
/* Cluster, cooperation, priority and programmatic launch are taken from `like`; NULL: none. */
CUresult rpi_host_kernel_op(const CUDA_KERNEL_NODE_PARAMS *params,
                            const struct rpi_host_kernel_op *like, struct rpi_host_op **out_op);
CUresult rpi_host_copy_op(const CUDA_MEMCPY3D *copy, struct rpi_host_op **out_op);
/* captured: the memory need not be there before the graph is instantiated. */
CUresult rpi_host_fill_op(const CUDA_MEMSET_NODE_PARAMS *fill, bool captured,
                          struct rpi_host_op **out_op);
CUresult rpi_host_function_op(const CUDA_HOST_NODE_PARAMS *params, struct rpi_host_op **out_op);

/* ---- executable.c, update.c ---------------------------------------------------------------- */

struct rpi_host_step {
    CUgraphNode node; /* of the exec's graph; NULL: begin or end of a child graph */
    bool last;        /* no step comes after it */
    struct {
        RPI_VEC(uint32_t);
    } before;
};

/* A range in one space of keys where aliases are equal. */
struct rpi_host_touch {
    uint64_t key, bytes, address;
    uint32_t step;
    bool write;
};
struct rpi_host_touches {
    RPI_VEC(struct rpi_host_touch);
};

struct CUgraphExec_st {
    CUgraph graph; /* a deep clone */
    unsigned long long flags;
    struct {
        RPI_VEC(struct rpi_host_step);
    } steps; /* in a topological order */
    struct rpi_host_task *last;
    struct rpi_host_clock clock;
    uint64_t accessible; /* the memory's generation when all memory was seen to be there */
    uint64_t checked;    /* the one for which the race check's fields below hold */
    struct {
        RPI_VEC(uint32_t);
    } records; /* steps that record an event, in their order */
    /* [records.count + 1]: what the steps touch that come before the first record, what those of
     * the others do that come before the second .., and at last all others; made on first use */
    struct rpi_host_touches *parts;
    uint64_t *reaches;                        /* a bit for each pair of steps, made on first use */
    uint64_t bytes[RPI_HOST_MOST_EXEC_POOLS]; /* that it takes of its device's memory */
    CUcontext context;                        /* whose pools these are; NULL: it takes none */
};

void rpi_host_execs_finish(void);
/* Forgets the streams' positions and work, which are gone. */
void rpi_host_execs_forget(void);
/* Makes the nodes of `to` the ones of `from`, which belongs to an exec, or changes nothing and says
 * why not. */
CUgraphExecUpdateResult rpi_host_update(CUgraph from, CUgraph to, bool keep_priority,
                                        CUgraphExecUpdateResultInfo *out_info);
/* Looks up of which kind the memory of a copy or fill is. An exec goes on taking it for that: that
 * it was freed since does not keep a node from being changed. */
void rpi_host_op_settle(struct rpi_host_op *op);
/* Whether a copy may be moved in an exec, node by node: what was allocated stays so, and what was
 * mapped. The second is settled. */
bool rpi_host_copy_moves(const struct rpi_host_op *from, struct rpi_host_op *to);
/* Whether one node's op may become another's, which is settled, in an exec. */
CUgraphExecUpdateResult rpi_host_update_allowed(const struct rpi_host_op *from,
                                                struct rpi_host_op *to, bool keep_priority);

/* ---- memory.c, virtual.c, physical.c ------------------------------------------------------- */

struct rpi_host_chunk {
    uint64_t offset, bytes; /* in the memfd */
    int device;
    size_t mappings;
    bool held;      /* its handle is not released */
    bool shareable; /* may get a file of its own */
    bool foreign;   /* made by another process: none of this one's memory */
    int file;       /* where its bytes are, from 0 on, once it was shared; -1: in the memfd */
};

enum rpi_host_span_kind { RPI_HOST_SPAN_ALLOC, RPI_HOST_SPAN_MAPPING, RPI_HOST_SPAN_PINNED };
struct rpi_host_span {
    uint64_t address, bytes;
    enum rpi_host_span_kind kind;
    int device;        /* whose memory it is, or whose context was current when it was pinned */
    CUcontext context; /* that it was allocated or pinned in; NULL: a mapping */
    CUmemAccess_flags access;
    struct rpi_host_chunk *chunk; /* NULL: pinned */
    uint64_t size;                /* as asked for */
};
struct rpi_host_reservation {
    uint64_t address, bytes;
};
struct rpi_host_memory {
    int fd; /* -1 until it is needed */
    struct {
        RPI_VEC(struct rpi_host_chunk *);
    } chunks; /* by offset */
    struct {
        RPI_VEC(struct rpi_host_span);
    } spans; /* by address */
    struct {
        RPI_VEC(struct rpi_host_reservation);
    } reservations;                        /* by address */
    uint64_t used[RPI_HOST_MOST_DEVICES];  /* of physical, each device's */
    uint64_t execs[RPI_HOST_MOST_DEVICES]; /* held for them, of the device's memory */
    uint64_t physical, peak, reserved, pinned;
    size_t allocations, mapped, created;
    uint64_t generation; /* counts changes of what lies where */
    uint64_t next;       /* where the next allocation is to lie */
};

/* Memory of the device that is not to be had: chunks, and what is held for execs. */
uint64_t rpi_host_memory_used(int device);
CUresult rpi_host_chunk_create(int device, uint64_t bytes, struct rpi_host_chunk **out_chunk);
void rpi_host_chunk_destroy(struct rpi_host_chunk *chunk);
/* The chunk's bytes, in a file of its own from now on, which other processes may map. Nothing runs.
 */
CUresult rpi_host_chunk_share(struct rpi_host_chunk *chunk);
/* A chunk of what another process shares. Takes the file, on success only. */
CUresult rpi_host_chunk_open(int file, struct rpi_host_chunk **out_chunk);
/* Maps its bytes at the place; false where that cannot be. */
bool rpi_host_chunk_map(const struct rpi_host_chunk *chunk, void *place, int protection);
/* -1: it could not be made. */
int rpi_host_memory_fd(void);
/* Index of the first span that ends after address. */
size_t rpi_host_span_at(uint64_t address);
/* The span that holds address, or NULL. */
struct rpi_host_span *rpi_host_span_of(uint64_t address);
bool rpi_host_span_add(const struct rpi_host_span *span);
void rpi_host_span_remove(size_t index);
/* Whether [address, address + bytes) is memory that the device may read (and write). */
bool rpi_host_accessible(uint64_t address, uint64_t bytes, bool write);
/* Whether the address lies in a reservation, mapped or not. */
bool rpi_host_reserved(uint64_t address);
/* Frees what was allocated and pinned in the context. */
void rpi_host_memory_leave(CUcontext context);
void rpi_host_execs_leave(CUcontext context);
void rpi_host_memory_finish(void);

/* ---- module.c ------------------------------------------------------------------------------ */

struct CUfunc_st {
    CUmodule module;
    const struct rp_host_kernel *kernel;
    size_t packed_bytes;
    int max_dynamic_shared, non_portable_cluster;
};
struct CUmod_st {
    CUcontext context;
    unsigned references; /* one while loaded, one for each op */
    bool loaded;
    uint32_t function_count;
    struct CUfunc_st *functions;
    CUlibrary library; /* whose module it is; NULL: a program's own */
    struct CUmod_st *next;
};
bool rpi_host_image_is_valid(const struct rp_host_image *image);
CUresult rpi_host_module_load(CUcontext context, CUmodule *out_module, const void *image);
void rpi_host_module_drop(CUmodule module);
void rpi_host_modules_finish(CUcontext context);

/* ---- library.c ----------------------------------------------------------------------------- */

struct CUlib_st {
    const struct rp_host_image *image;
    CUmodule modules[RPI_HOST_CONTEXTS]; /* of each context; NULL: not needed there yet */
    uint32_t kernel_count;
    struct CUkern_st *kernels;
};
/* A kernel as a function of the context. */
CUresult rpi_host_function_in(CUcontext context, CUkernel kernel, CUfunction *out_function);
/* NULL: a module's function. */
CUkernel rpi_host_kernel_of(CUfunction function);
void rpi_host_libraries_finish(void);

/* ---- race.c -------------------------------------------------------------------------------- */

/* Accesses of an op on a stream against those of unordered earlier ones; then they are kept. clock
 * is what lies before; the stream's own position is the lane's count. */
void rpi_host_race_op(const struct rpi_host_op *op, unsigned lane,
                      const struct rpi_host_clock *clock, uint64_t position);
/* The same for a launch, whose parts have `position` and the ones that follow it. */
void rpi_host_race_exec(CUgraphExec exec, unsigned lane, const struct rpi_host_clock *clock,
                        uint64_t position);
/* A range that goes away while work may use it. */
void rpi_host_race_gone(uint64_t address, uint64_t bytes, const char *what);
/* The host has waited for all before this. */
void rpi_host_race_settle(const struct rpi_host_clock *clock);
/* Forgets what was enqueued; the races kept stay. */
void rpi_host_race_forget(void);
/* The next race that has to be told; false: none. */
bool rpi_host_race_untold(struct rpi_host_race *out_race);
void rpi_host_clock_join(struct rpi_host_clock *clock, const struct rpi_host_clock *other);

struct rpi_host_log_entry {
    unsigned lane;
    uint64_t position;
    char name[64];
    struct rpi_host_touches touches;
};
struct rpi_host_races {
    struct rpi_host_race kept[64];
    size_t kept_count;
    uint64_t count;
    /* The first race of each pair of names; those before `told` are in the log. */
    struct rpi_host_race pairs[64];
    size_t pair_count, told;
    struct rpi_host_clock settled;
    struct {
        RPI_VEC(struct rpi_host_log_entry);
    } log; /* oldest first */
    size_t logged_ranges;
};

/* ---- context.c ----------------------------------------------------------------------------- */

struct CUctx_st {
    int device;
    struct {
        uint64_t taken, held; /* by execs that are there; of the device's memory, for them */
    } exec_pools[RPI_HOST_MOST_EXEC_POOLS];
    unsigned retained;
    CUstream legacy;
    CUstream streams; /* list, the legacy one not in it */
    CUmodule modules;
    /* Work of streams that were destroyed; waited for, and by the legacy stream if blocking. */
    struct rpi_host_task *orphans;
    struct rpi_host_clock orphan_clock;
};

#define RPI_HOST_STACK 64
struct rpi_host_thread {
    uint64_t number; /* 0: not seen yet */
    uint64_t epoch;  /* of the last reset that it knows of */
    CUcontext stack[RPI_HOST_STACK];
    unsigned depth;
    CUstreamCaptureMode mode;
    bool in_callback;
};
/* The calling thread's. */
struct rpi_host_thread *rpi_host_thread(void);
/* The calling thread's current context, or NULL. */
CUcontext rpi_host_current(void);
/* How many devices there are, at most RPI_HOST_MOST_DEVICES. */
int rpi_host_devices(void);
/* How many multiprocessors each device has. */
unsigned rpi_host_multiprocessors(void);
/* Is it a context, or was it one? */
bool rpi_host_is_context(CUcontext context);
/* Destroys all that was made in the context. */
void rpi_host_context_finish(CUcontext context);

/* ---- everything ---------------------------------------------------------------------------- */

struct rpi_host_state {
    pthread_mutex_t lock;
    pthread_cond_t work, progress;
    bool initialised;
    uint64_t epoch, threads, ids, marks;
    struct rpi_host_options options;
    struct rpi_host_handles handles;
    struct rpi_host_engine engine;
    struct rpi_host_memory memory;
    struct rpi_host_races races;
    struct CUctx_st contexts[RPI_HOST_CONTEXTS]; /* by ordinal; then those beside them */
    uint64_t lane_positions[RPI_HOST_LANES];
    unsigned lane_users[RPI_HOST_LANES];
    struct rpi_host_capture *captures;
    size_t stream_count, event_count, module_count, graph_count, exec_count, capture_count;
    uint64_t graph_launches;
};
extern struct rpi_host_state rpi_host;

/* Among all contexts. */
static inline size_t rpi_host_context_number(CUcontext context)
{
    return (size_t)(context - rpi_host.contexts);
}

void rpi_host_lock(void);
/* Tells the log of races that were found meanwhile: the program's callback runs without the lock.
 */
void rpi_host_unlock(void);

/* The functions of the table. */
#define X(need, name, version, params, args) CUresult rpi_host_##name params;
#include "driver/symbols.def"
#undef X

#endif
