/* SPDX-License-Identifier: MIT
 *
 * Measures what execs take of a device's memory, by making some (policy/exec_bytes.h): chains of
 * copies, which lie on one path, and forks, which lie on one a branch. Copies take what kernels of
 * few parameters take, to some percent, and need no module. Nothing is launched; the execs are made
 * and uploaded as those of graphs are, kept until all are there, and destroyed. A driver keeps the
 * memory of destroyed execs for those that come in their context; so the probe has one of its own,
 * and all is given back with it. Short series come first; where they show that the driver has
 * several pools, long ones follow.
 */
#ifndef REPRISE_GRAPH_GROUND_BYTE_PROBE_H
#define REPRISE_GRAPH_GROUND_BYTE_PROBE_H

#include "driver/driver.h"
#include "policy/exec_bytes.h"

/* What it takes at most, where the driver's steps are small. */
#define RPI_BYTE_PROBE_BYTES                                                                       \
    ((uint64_t)RPI_EXEC_FIT_GRAPHS * RPI_EXEC_FIT_TURNS *                                          \
     (RPI_EXEC_SERIES_BYTES(RPI_EXEC_STEPS) + RPI_EXEC_SERIES_BYTES(RPI_EXEC_LINE)))

struct rpi_byte_probe {
    struct rpi_byte_prices prices; /* 0 where there is a reason */
    const char *reason;            /* why there are none; static text */
    bool refused;                  /* the driver did not let it end: another time it may */
    size_t execs;                  /* that were made */
    uint64_t taken;                /* bytes by which free memory fell, until it ended */
    double ms;
};

/* Measures. Nothing else makes execs on the device meanwhile, or the result says that it was
 * disturbed. Any context may be current, and is afterwards; the thread's capture mode relaxed;
 * streams that capture are not touched. `like` as in rpi_exec_fit. */
void rpi_byte_probe(const struct rp_driver *driver, CUdevice device,
                    const struct rpi_byte_prices *like, struct rpi_byte_probe *out_probe);

#endif
