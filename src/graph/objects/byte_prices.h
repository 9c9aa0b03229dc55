/* SPDX-License-Identifier: MIT
 *
 * A device's prices of execs, in bytes of its memory: where they come from, and when they are
 * learned.
 *
 *     fitted     the table has this chip with this driver: prices of bench/execmem
 *     measured   it has not: the library made some execs and watched free memory (byte_probe.h)
 *     assumed    nor could it be measured, or not yet: an NVIDIA H200's, and the reason is told
 *
 * Measuring takes some hundred milliseconds and, for good, tens of megabytes that the driver then
 * has in hand for execs. It happens once in a process for each kind of chip: ahead of an estimate,
 * or of a capture where execs are thought to take a quarter of their budget. It is left out where
 * the budget or an eighth of free memory has no room for it. Until then prices are assumed; those
 * of graphs that have joined the cache stay as they were.
 *
 * Locks: `measuring`, one for the process, is held while a device is measured, as two measurements
 * would see each other's memory; it is taken by a thread that holds no lock of a pool or an exec
 * cache. A device's own lock guards its prices, is held to copy them alone, and
 * is the last of all. So no replay, and no capture that is under way, waits for a measurement.
 */
#ifndef REPRISE_GRAPH_OBJECTS_BYTE_PRICES_H
#define REPRISE_GRAPH_OBJECTS_BYTE_PRICES_H

#include "policy/exec_bytes.h"
#include "reprise.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct rp_device;

/* Prices and where they come from; texts are static. */
struct rpi_priced {
    struct rpi_byte_prices bytes;
    enum rp_exec_price_source source;
    const char *text;   /* "measured here" */
    const char *reason; /* why they are assumed; NULL: they are not, or were not looked for yet */
};

struct rpi_device_prices {
    pthread_mutex_t lock;
    struct rpi_priced priced; /* guarded by lock */
    _Atomic bool settled;     /* nothing is left to learn */
    unsigned attempts;        /* guarded by the lock of measurements */
    bool forced;              /* fixed: measured, whatever the budget is */
};

/* What an NVIDIA H200 with driver 580 takes. */
extern const struct rpi_byte_prices rpi_h200_byte_prices;

/* The device has been read. RP_ERROR_INVALID_ARGUMENT where REPRISE_EXEC_PRICES is none of its
 * values. */
rp_status rpi_device_prices_init(struct rp_device *device, struct rp_error *err);
void rpi_device_prices_finish(struct rp_device *device);

/* The prices as far as they are known. Any thread; waits for nothing. */
struct rpi_priced rpi_device_prices(const struct rp_device *device);

/* Learns them where that is due. The context is current; the calling thread holds no lock of a pool
 * and of the cache, and captures nothing. Waits where another thread is measuring. small_budget:
 * the budget of execs is below the default, and has no room to measure them. */
void rpi_device_prices_learn(struct rp_device *device, bool small_budget);

/* Forgets what was measured in this process: for tests. */
void rpi_device_prices_forget(void);

#endif
