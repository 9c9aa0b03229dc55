/* SPDX-License-Identifier: MIT
 *
 * Many shapes of one callable: the decoder's step at batch sizes 1 to N, captured into one pool of
 * alternatives, the largest first. What they take of the device's memory under budgets of execs,
 * how fast a hot shape replays, and what walks over the shapes cost.
 */
#ifndef REPRISE_CLI_BENCH_SHAPES_H
#define REPRISE_CLI_BENCH_SHAPES_H

#include "bench_walk.h"
#include "reprise.h"

#include <stdbool.h>

enum { BENCH_BUDGETS = 3 };

/* Under one budget, all captured, each replayed once. Device memory is what the driver's free
 * memory fell by since just before the first capture. */
struct bench_memory {
    const char *budget;     /* "one exec", "64 MiB", "one each" */
    uint64_t budget_bytes;  /* as it is counted: of one exec, of 64 MiB, of all */
    uint64_t largest_bytes; /* device memory after the largest alone, replayed once */
    uint64_t all_bytes;
    uint64_t pool_bytes;
    double capture_ms; /* of all */
    struct rp_device_exec_info execs;
};

/* One shape, replayed again and again: device time by events, medians, taking turns. */
struct bench_hot {
    uint32_t rows;
    size_t nodes;
    size_t replays_until_own; /* 0: it had its own at once */
    double own_us;            /* by its own exec, bought under the default budget */
    double fresh_us;          /* by one that was never shared */
    double updated_us;        /* by one that was updated to it */
};

enum bench_way { WAY_EACH, WAY_ALWAYS, WAY_HOLDS_ALL, WAY_SMALL, WAY_ONE, BENCH_WAYS };
extern const char *const bench_way_names[BENCH_WAYS];

/* Host and device time of a walk, each replay waited for, beyond that of the same walk when every
 * shape has its own exec already. Medians of rounds. */
struct bench_walk_costs {
    enum bench_walk walk;
    double plain_us; /* of that walk */
    double cost_us[BENCH_WAYS];
    uint64_t instantiated[BENCH_WAYS], updates[BENCH_WAYS]; /* in the last round */
};

struct bench_shapes {
    size_t shapes, steps, rounds;
    uint64_t small_bytes; /* budget of WAY_SMALL */
    struct bench_memory memory[BENCH_BUDGETS];
    struct bench_hot hot;
    struct bench_walk_costs walks[BENCH_WALK_COUNT];
};

/* shapes, steps and rounds are set. driver as in struct rp_device_options; no device is open, so
 * that each budget begins in a context of its own. */
rp_status bench_shapes_run(const char *driver, struct bench_shapes *bench, struct rp_error *err);

#endif
