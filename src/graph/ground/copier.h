/* SPDX-License-Identifier: MIT
 *
 * Copies of a replay: several in one launch of a kernel of ours (copy_kernel.h), or each by a call
 * of its own where that is cheaper or the kernel cannot be had.
 *
 *     IDLE -> LOADED, or REFUSED after some attempts        the kernel's module
 *     UNKNOWN -> PENDING -> KNOWN                           what copies take on this device
 *
 * The module is loaded when it will be of use or enough copies were made that it could have made,
 * as loading may mean compiling: at a capture whose replays will copy, in a replay after hundreds
 * of copies, where a caller asks for its copies, and before prices are measured. Prices are measured in a replay, once, when a choice asks
 * for them or several copies are made: a series of calls ahead of it on its own stream, whose host
 * times are known at once, and whose device times are read when the device has passed the events
 * between them; nothing waits. On a stream beside they would slow all graphs of the process down
 * (pace.c). What a byte takes comes from large copies that replays make anyway. Until
 * then prices are those of an H200.
 *
 * The kernel also stands in graphs as a node (copy_nodes.h), for which a launch is made here.
 *
 * One for each device. Any thread; `lock` guards everything but what is atomic and, once it is
 * loaded, the module. Locks of pools are taken before it. The context is current at every call but
 * init.
 */
#ifndef REPRISE_GRAPH_GROUND_COPIER_H
#define REPRISE_GRAPH_GROUND_COPIER_H

#include "driver/driver.h"
#include "graph/ground/copy_kernel.h"
#include "policy/bind_or_copy.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum rpi_copier_module { RPI_COPIER_IDLE, RPI_COPIER_LOADED, RPI_COPIER_REFUSED };
enum rpi_copier_knowledge { RPI_COPIER_UNKNOWN, RPI_COPIER_PENDING, RPI_COPIER_KNOWN };

enum { RPI_COPY_TABLE_SIZES = 3, RPI_COPY_SERIES = 3 };
/* So many copies of a replay are worth knowing what they take. */
enum { RPI_COPIES_SEVERAL = 3 };

/* The series of calls that prices are learned from, while the device has not passed it. */
struct rpi_copy_series {
    CUdeviceptr scratch;
    CUevent marks[RPI_COPY_SERIES + 1];
    double host_us[RPI_COPY_SERIES]; /* of one call */
};

/* Events around one replay's copies, read when another's are to be measured. */
struct rpi_copy_probe {
    CUevent start, end;  /* NULL: not made yet */
    uint64_t bytes;      /* between them; 0: nothing is measured */
    bool launched;       /* they were copied by the kernel */
    unsigned samples[2]; /* of single copies, of launched ones */
};

struct rpi_copier {
    const struct rp_driver *driver;
    unsigned multiprocessors;
    pthread_mutex_t lock;
    _Atomic enum rpi_copier_module state;
    _Atomic enum rpi_copier_knowledge knowledge;
    _Atomic uint64_t missed;   /* copies made singly that a launch could have made */
    _Atomic uint64_t launches; /* of the kernel */
    unsigned attempts;
    CUmodule module;
    CUfunction functions[RPI_COPY_TABLE_SIZES];
    struct rpi_copy_prices prices;
    struct rpi_copy_series series;
    struct rpi_copy_probe probe;
};

/* A launch of the kernel, as a stream or a node takes it. Its pointers lead into it: it stays where
 * it was made. */
struct rpi_copy_launch {
    union {
#define X(most) struct rpi_copy_table_##most of_##most;
        RPI_COPY_TABLES(X)
#undef X
    } table;
    void *params[1];
    CUDA_KERNEL_NODE_PARAMS kernel;
};

/* Takes nothing of the driver. */
rp_status rpi_copier_init(struct rpi_copier *copier, const struct rp_driver *driver,
                          int multiprocessors, struct rp_error *err);
void rpi_copier_finish(struct rpi_copier *copier);

/* Loads the module where it is not and may be. */
void rpi_copier_load(struct rpi_copier *copier);

static inline bool rpi_copier_is_loaded(struct rpi_copier *copier)
{
    return atomic_load(&copier->state) == RPI_COPIER_LOADED;
}

/* Copies of the smallest table that has room for so many, of up to RPI_COPY_MOST. */
uint32_t rpi_copy_table_size(size_t count);
/* With a table of that size, for `count` copies. The module is loaded. */
void rpi_copy_launch_make(struct rpi_copy_launch *launch, const struct rpi_copier *copier,
                          uint32_t most, const struct rpi_copy *copies, size_t count);

/* Enqueues 1 to RPI_COPY_MOST copies, none of 0 bytes, on the stream, which may be capturing: by the
 * kernel, whatever that takes, or by a call for each where it cannot be loaded. They must not overlap
 * but in what they read. */
CUresult rpi_copier_launch(struct rpi_copier *copier, const struct rpi_copy *copies, size_t count,
                           CUstream stream);

/* A kernel that does nothing, as far as the module can be loaded. */
CUresult rpi_copier_launch_nothing(struct rpi_copier *copier, CUstream stream);

/* What copies take; true: they are known, or cannot be. */
bool rpi_copier_prices(struct rpi_copier *copier, struct rpi_copy_prices *out_prices);
/* Begins to measure on the stream, which is not capturing, or looks whether the device is done. */
void rpi_copier_learn(struct rpi_copier *copier, CUstream stream);
/* From now on these, whatever is measured: for tests. */
void rpi_copier_fix_prices(struct rpi_copier *copier, const struct rpi_copy_prices *prices);

/* Are these better made by rpi_copier_run than by a node of the graph? Where what a byte takes is
 * not known yet, and where one of them wants a call of its own. */
bool rpi_copier_wants(struct rpi_copier *copier, const struct rpi_copy *copies, size_t count);

/* Where a run of copies failed. */
struct rpi_copy_failure {
    const char *function;
    size_t first, count; /* of the copies that the call was to make */
};
/* Enqueues the copies on the stream; those of 0 bytes are values. in_order: they may overlap, and
 * the later ones win. */
CUresult rpi_copier_run(struct rpi_copier *copier, const struct rpi_copy *copies, size_t count,
                        bool in_order, CUstream stream, struct rpi_copy_failure *out_failure);

#endif
