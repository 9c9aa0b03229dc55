/* SPDX-License-Identifier: MIT
 *
 * The host driver beyond the table that rpi_driver_host() gives: its options, what it counts, and
 * the races that it saw. One host driver exists in a process. Any thread may call these functions.
 */
#ifndef REPRISE_DRIVER_HOST_HOST_H
#define REPRISE_DRIVER_HOST_HOST_H

#include "driver/driver.h"

#include <stdbool.h>

struct rpi_host_options {
    uint64_t seed;        /* of the order in which work that may run is run */
    uint64_t total_bytes; /* memory of each device; beyond it allocation fails with out of memory */
    unsigned threads;     /* operations that run at once, at least 1. With 1 the order in which the
                             nodes of a launch run depends on the seed alone */
    bool check_races;     /* compare what unordered operations declare to read and write */
    unsigned devices;     /* how many there are, each with memory of its own; 0: as the environment
                             says (REPRISE_HOST_DEVICES), or one */
    /* What an exec takes of its device's memory, for each path that its nodes lie on and for each
     * kernel and copy among them; taken in steps of so many bytes (0: any number). What a destroyed
     * exec took is given back with its context, and used for those that come before. For tests: 0,
     * nothing, else. */
    uint64_t exec_path_bytes, exec_node_bytes, exec_step_bytes;
    unsigned exec_pools; /* of which each takes steps of its own: of n, pool k has k + 1 parts of
                            what a path takes and n - k of what a node does; 0: 1. At most 8 */
    const char *name;    /* of the devices; NULL: "Reprise host device". Static text */
    unsigned multiprocessors; /* of each device; 0: 4 */
    /* Of each device, in bytes, bits and kHz; 0: an H200's. */
    unsigned l2_bytes, memory_bus_bits, clock_khz, memory_clock_khz;
};
enum { RPI_HOST_MOST_DEVICES = 8, RPI_HOST_MOST_EXEC_POOLS = 8 };
#define RPI_HOST_OPTIONS_INIT                                                                      \
    {                                                                                              \
        1, (uint64_t)16 << 30, 4, true, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0                         \
    }

/* NULL: the defaults. Takes effect for work enqueued later. total_bytes below what is in use only
 * makes further allocations fail. More threads start as they are needed; fewer take effect at once.
 */
void rpi_host_configure(const struct rpi_host_options *options);
void rpi_host_options(struct rpi_host_options *out_options);

struct rpi_host_statistics {
    uint64_t physical_bytes, peak_physical_bytes; /* device memory held, of all devices */
    uint64_t reserved_bytes;                      /* address ranges */
    uint64_t pinned_bytes;
    size_t allocations;  /* of cuMemAlloc */
    size_t chunks;       /* of cuMemCreate, not released or still mapped */
    size_t mappings;     /* of cuMemMap */
    size_t reservations; /* of cuMemAddressReserve */
    size_t streams, events, modules;
    size_t graphs; /* that a program holds: made, cloned, captured, not destroyed */
    size_t execs;
    size_t captures; /* begun and not ended */
    size_t pending;  /* operations enqueued and not finished */
    uint64_t operations, graph_launches;
    uint64_t races; /* seen since the last rpi_host_races_clear, those not kept included */
};
void rpi_host_statistics(struct rpi_host_statistics *out_statistics);
/* Sets the peak to what is held now. */
void rpi_host_peak_reset(void);

/* Two operations, no order between them, that touch one range of memory, at least one writing. An
 * operation is ordered after another by its stream, by events, by the edges of its graph, or
 * because the host had waited for the other before enqueuing it. Aliases of one physical range are
 * one range. Kernels take part when they have an `access` function, which is called when the
 * operation is enqueued, must not call the driver and must not look at device memory. A launch is
 * compared with itself when its exec's parameters or the memory map changed since the last time. */
struct rpi_host_race {
    char first[64], second[64]; /* kernel's name, or memcpy, memset, with the node's number */
    bool first_writes, second_writes;
    uint64_t address, bytes; /* the range both touch, as `second` addresses it */
};
/* Copies up to `capacity` of the oldest 64 races kept; returns how many are kept. */
size_t rpi_host_races(struct rpi_host_race *out_races, size_t capacity);
/* Also drops the host memory that is kept about operations that were waited for. */
void rpi_host_races_clear(void);

/* Waits for all work, then destroys every object and the device's memory, and forgets cuInit: as a
 * new process. Options stay. No other thread may be inside the driver. Each thread's current
 * context and capture mode are forgotten too. */
void rpi_host_reset(void);

#endif
