/* SPDX-License-Identifier: MIT
 *
 * Random programs on a heap, on whatever driver, beside a model of what every block has to hold.
 */
#ifndef BENCH_HEAP_DEVICE_CHECK_H
#define BENCH_HEAP_DEVICE_CHECK_H

#include "driver/driver.h"
#include "reprise.h"

#include <stdbool.h>

struct device_check {
    const struct rp_driver *driver;
    struct rp_device *device;
    unsigned threads;
    double seconds;
    uint64_t seed;
};

struct device_check_result {
    uint64_t rounds, allocations, uses, refused;
    uint64_t bytes_filled, bytes_compared;
    uint64_t wrong; /* bytes that did not hold what they should, figures that did not agree */
    double seconds;
};

/* Says on standard error what was wrong first. False when the check itself could not be run. */
bool device_check_run(const struct device_check *check, struct device_check_result *out_result);

#endif
