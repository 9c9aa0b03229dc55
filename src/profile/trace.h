/* SPDX-License-Identifier: MIT
 *
 * A profiler trace as the advice needs it: 24 bytes an event, names kept once. A reader fills it
 * with rpi_trace_add and has its times judged by rpi_trace_check; rpi_trace_order puts it in order
 * and joins device work with the calls that launched it.
 */
#ifndef REPRISE_PROFILE_TRACE_H
#define REPRISE_PROFILE_TRACE_H

#include "base/idmap.h"
#include "base/vec.h"
#include "profile/source.h"
#include "reprise.h"

enum rpi_event_kind {
    /* on a thread */
    RPI_FRAME_OP,         /* an operator of PyTorch */
    RPI_FRAME_PYTHON,     /* a Python function */
    RPI_FRAME_ANNOTATION, /* a range that the program or a library named */
    RPI_CALL_RUNTIME,     /* a call of the CUDA runtime or driver */
    /* on a stream */
    RPI_WORK_KERNEL,
    RPI_WORK_COPY,
    RPI_WORK_FILL
};

/* Times are nanoseconds since the trace's base. */
struct rpi_event {
    uint64_t start : 48;
    uint64_t lane : 16; /* index into threads or streams */
    uint64_t span : 44; /* its length */
    uint64_t kind : 4;
    uint64_t in_graph : 1; /* work: launched as part of a graph */
    uint64_t unused : 15;
    uint32_t name;
    uint32_t link; /* while reading: the correlation id; afterwards, for work: index of its call */
};

#define RPI_NO_LINK UINT32_MAX
/* Events kept of each sort, 96 to 144 MB; what comes after is counted and left out. */
#define RPI_MOST_FRAMES ((size_t)6 << 20)
#define RPI_MOST_CALLS  ((size_t)4 << 20)
#define RPI_MOST_WORK   ((size_t)4 << 20)

struct rpi_events {
    RPI_VEC(struct rpi_event);
};

/* Texts kept once, in one block; an index is an offset into it. */
struct rpi_names {
    struct {
        RPI_VEC(char);
    } texts;
    uint32_t *slots; /* of a hash table with open addressing; 0: empty */
    size_t slot_count, count;
};

struct rpi_stream {
    int64_t device, stream;
};

struct rpi_trace {
    const char *file;         /* unowned */
    struct rpi_events frames; /* by thread and start, outer before inner */
    struct rpi_events calls;  /* by thread and start */
    struct rpi_events work;   /* by start */
    struct rpi_names names;
    struct rpi_idmap threads; /* pid << 32 | tid to lane */
    struct {
        RPI_VEC(struct rpi_stream);
    } streams;
    int64_t base_ns;
    bool has_base;
    uint64_t events;        /* in the file, of every sort */
    uint64_t left_out;      /* beyond the most that is kept, or without a usable time */
    uint64_t timeless;      /* of those: no finite time, a negative one, too far from the first */
    uint64_t timeless_work; /* of these: work of a stream */
    uint64_t allocations;   /* device allocations, where the profiler recorded memory */
    uint64_t frees;
    bool has_memory;
    bool has_python;
    bool from_nsys;  /* what that profiler adds to the CPU's time was never fitted */
    bool is_pytorch; /* something that only PyTorch's profiler writes was seen */
    char device_name[64];
};

void rpi_trace_init(struct rpi_trace *trace, const char *file);
void rpi_trace_finish(struct rpi_trace *trace);

/* The index of a text of `bytes` bytes; false: no host memory. Texts beyond 64 MiB in all become
 * "(other)". */
bool rpi_names_add(struct rpi_names *names, const char *text, size_t bytes, uint32_t *out_index);
const char *rpi_name(const struct rpi_trace *trace, uint32_t index);

/* An event with its times in nanoseconds of the file's clock. lane_a, lane_b: pid and tid of a
 * thread, device and number of a stream. */
struct rpi_raw_event {
    enum rpi_event_kind kind;
    bool timeless; /* the file has no finite start and length for it */
    int64_t start_ns, span_ns;
    int64_t lane_a, lane_b;
    uint32_t correlation;
    bool in_graph;
    const char *name;
    size_t name_bytes;
};
/* Keeps an event, or counts it as left out. Names lose control characters. RP_ERROR_LIMIT: there
 * are more threads or streams than can be told apart. */
rp_status rpi_trace_add(struct rpi_trace *trace, const struct rpi_raw_event *raw,
                        struct rp_error *err);
/* Are the times good enough to draw advice from? RP_ERROR_FORMAT where more than one event in ten,
 * or one piece of device work in ten, has none that is usable. A reader asks when it has read all.
 */
rp_status rpi_trace_check(const struct rpi_trace *trace, struct rp_error *err);
/* Sorts, and links work to calls. */
rp_status rpi_trace_order(struct rpi_trace *trace, struct rp_error *err);

/* Reads what is in the format of Chrome's trace viewer as PyTorch's profiler writes it. */
rp_status rpi_trace_read_chrome(struct rpi_trace *trace, struct rpi_source *source,
                                struct rp_error *err);
/* Reads a database that Nsight Systems exported, by its path. */
rp_status rpi_trace_read_nsys(struct rpi_trace *trace, struct rp_error *err);

static inline uint64_t rpi_event_end(const struct rpi_event *event)
{
    return event->start + event->span;
}

#endif
