/* SPDX-License-Identifier: MIT
 *
 * What is found in a trace, in the order in which it is found: iterations, device time, obstacles,
 * gaps, and the verdict drawn from them. Each step fills its part of struct rp_advice.
 */
#ifndef REPRISE_PROFILE_ADVICE_H
#define REPRISE_PROFILE_ADVICE_H

#include "profile/trace.h"
#include "reprise_tools.h"

/* ---- The model's parameters ---- */

/* Measured on one H200 with torch 2.11 by bench/torch/make_traces.py: traces in tests/data/traces,
 * and the times of the same work without the profiler. bench/advise/fit_model.py fits the constants
 * on the workloads that measured.json lists as "_fitted", and tests/advise judges them by the
 * others. */
struct rpi_model {
    double op_us;         /* what the profiler adds to the CPU for each operator it records */
    double call_us;       /* for each call of the runtime */
    double python_us;     /* for each Python function */
    double eager_gap_us;  /* between two kernels of a stream that are both queued */
    double graph_gap_us;  /* between two nodes of a graph that depend on each other */
    double replay_us;     /* launching a graph and getting to its first node */
    double resume_us;     /* device idle from a synchronisation to the next launch's work */
    double worth, little; /* speed-ups from which a graph is worth it, or gains a little */
    double error;         /* of a speed-up, relative: the most that was seen, and rounded up */
    double graph_error; /* of a time with graphs, likewise: all there is where the other is given */
};
extern const struct rpi_model rpi_advice_model;

/* ---- Iterations ---- */

enum rpi_iteration_source {
    RPI_ITERATIONS_STEPS,      /* ProfilerStep# ranges */
    RPI_ITERATIONS_REPETITION, /* the sequence of kernels repeats */
    RPI_ITERATIONS_NONE        /* the whole trace as one */
};

struct rpi_iteration {
    uint64_t start, end;             /* on the CPU: its calls begin within */
    uint32_t first_work, work_count; /* in rp_advice.order */
    size_t kernels, copies, fills, calls, ops, python_frames, graph_launches;
    size_t critical_nodes;
    size_t short_kernels; /* shorter than 50 us */
    uint64_t busy_ns;     /* union of its work on all streams */
    uint64_t work_ns;     /* sum of it */
    uint64_t span_ns;     /* from its first work's start to its last's end */
    uint64_t critical_ns; /* longest chain of work, were nothing to wait for the CPU */
    uint64_t wait_ns;     /* in synchronising calls */
    uint64_t sequence;    /* hash of its kernels' names in order */
    double eager_us;      /* what it takes without the profiler, by the model */
};

/* ---- Obstacles ---- */

enum rpi_obstacle_class {
    RPI_OBSTACLE_NONE,
    RPI_OBSTACLE_HOST_READ,  /* a device value is read by the host */
    RPI_OBSTACLE_DATA_SHAPE, /* a shape depends on device values */
    RPI_OBSTACLE_SYNC,       /* any other synchronisation */
    RPI_OBSTACLE_COPY_OUT,   /* a copy to the host */
    RPI_OBSTACLE_COPY_IN,    /* a copy from the host */
    RPI_OBSTACLE_PINNED,     /* pinned memory allocated or freed */
    RPI_OBSTACLE_ALLOCATION, /* device memory taken from the driver */
    RPI_OBSTACLE_CLASSES
};

/* One place of the program, however often it comes. */
struct rpi_obstacle {
    enum rpi_obstacle_class class;
    uint32_t call, op, python, caller, module; /* names; 0: unknown; of module: the first */
    size_t modules;                            /* that it was seen in, one after the other */
    uint32_t last_module;
    size_t count;                 /* in all iterations */
    size_t before, within, after; /* of count: where among its iteration's kernels */
    size_t iterations;            /* that have it */
    uint64_t wait_ns;
    const char *mend;
    uint64_t last_op;        /* start of the operator it was last seen in, to count it once */
    uint32_t last_iteration; /* 1 + index */
};

/* ---- Gaps ---- */

enum rpi_gap_class {
    RPI_GAP_QUEUED,  /* the next kernel was queued already: the device's own gap */
    RPI_GAP_PYTHON,  /* the CPU was in Python, or in what is not traced */
    RPI_GAP_OP,      /* in an operator of PyTorch */
    RPI_GAP_RUNTIME, /* in the CUDA runtime */
    RPI_GAP_WAIT,    /* waiting for the device */
    RPI_GAP_CLASSES
};

struct rpi_share {
    uint32_t name;
    uint64_t ns;
    size_t count;
};

/* ---- All of it ---- */

enum { RPI_MOST_OBSTACLES = 256, RPI_MOST_SHARES = 8 };

struct rpi_stream_use {
    uint64_t busy_ns;
    size_t work;
};

struct rp_advice {
    struct rpi_trace trace;
    char *file;
    double given_eager_us; /* measured by the user; 0: from the trace */

    enum rpi_iteration_source source;
    struct {
        RPI_VEC(struct rpi_iteration);
    } iterations;
    uint32_t *order;    /* indices of work, by iteration and start; what belongs to none is last */
    size_t unassigned;  /* work launched outside iterations */
    size_t typical;     /* index of the iteration that the report speaks of */
    bool same_sequence; /* all iterations launch the same kernels in the same order */

    struct {
        RPI_VEC(struct rpi_obstacle);
    } obstacles;             /* the gravest first */
    size_t measuring_waits;  /* calls that only begin or end the measurement: no obstacles */
    uint32_t measuring_call; /* the name of one of them; 0: there is none */
    struct {
        RPI_VEC(uint64_t);
    } cuts; /* when, in the typical iteration, obstacles come between its kernels */

    struct {
        RPI_VEC(struct rpi_stream_use);
    } stream_use; /* by lane, over all iterations */
    size_t joins; /* stream waits in the typical iteration */

    uint64_t gap_ns[RPI_GAP_CLASSES]; /* over all iterations */
    size_t gap_count[RPI_GAP_CLASSES];
    struct rpi_share gap_names[RPI_MOST_SHARES];
    struct rpi_share kernels[RPI_MOST_SHARES]; /* by time, over all iterations */
    size_t allocations;                        /* cudaMalloc and its like, in all iterations */

    /* The verdict. */
    double eager_us, graph_us, mended_us; /* mended: once the obstacles are out of the way */
    double device_us;                     /* the least that the device needs */
    enum rp_advice_verdict verdict;
    enum rp_advice_way way;
    size_t region_count;                /* graphs to capture in an iteration */
    size_t region_kernels;              /* kernels of the largest of them */
    uint32_t region_first, region_last; /* names of its first and last operator; 0: unknown */

    char *rendered; /* the text that was last asked for */
};

/* The steps, in this order. */
rp_status rpi_advice_find_iterations(struct rp_advice *advice, struct rp_error *err);
rp_status rpi_advice_measure_device(struct rp_advice *advice, struct rp_error *err);
rp_status rpi_advice_find_obstacles(struct rp_advice *advice, struct rp_error *err);
rp_status rpi_advice_explain_gaps(struct rp_advice *advice, struct rp_error *err);
rp_status rpi_advice_judge(struct rp_advice *advice, struct rp_error *err);

/* The iteration in which something began, or RPI_NO_LINK. */
uint32_t rpi_advice_iteration_at(const struct rp_advice *advice, uint64_t time);
/* When work was launched: its call's start, or its own where the call is not in the trace. */
uint64_t rpi_advice_launch_time(const struct rpi_trace *trace, const struct rpi_event *work);
/* The relative error of the speed-up that is predicted, as seen on workloads that the model was not
 * fitted on; 0: it was not measured for such a trace. */
double rpi_advice_error(const struct rp_advice *advice);
/* Adds to the largest shares; names that do not fit are left out in the end. */
struct rpi_tally {
    struct rpi_idmap index;
    struct {
        RPI_VEC(struct rpi_share);
    } shares;
};
bool rpi_tally_add(struct rpi_tally *tally, uint32_t name, uint64_t ns);
/* Writes the `most` largest, the largest first, the rest of out zero; empties the tally. */
void rpi_tally_finish(struct rpi_tally *tally, struct rpi_share *out, size_t most);

/* Whether an obstacle comes in more than half of the iterations: not a stray one. */
bool rpi_obstacle_is_regular(const struct rp_advice *advice, const struct rpi_obstacle *obstacle);
/* "a device value is read by the host" and what to do about it. Static. */
const char *rpi_obstacle_text(enum rpi_obstacle_class class);
/* "host-read", for JSON. */
const char *rpi_obstacle_key(enum rpi_obstacle_class class);

#endif
