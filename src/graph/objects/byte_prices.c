/* SPDX-License-Identifier: MIT */
#include "graph/objects/byte_prices.h"

#include "base/env.h"
#include "base/held.h"
#include "base/log.h"
#include "driver/watch.h"
#include "graph/ground/byte_probe.h"
#include "graph/objects/objects.h"
#include "memory/range/arena.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* 111 and 2.4 KiB */
const struct rpi_byte_prices rpi_h200_byte_prices = {.path = 113664, .node = 2458};

static const char ASSUMED[] = "assumed: as on NVIDIA H200";

/* What prices were looked for and found on. A driver is known by its version of CUDA: a branch has
 * one (580 is CUDA 13.0), and the version is what it tells. */
struct kind {
    char provider[8], name[128];
    int major, minor, multiprocessors, version;
};

/* An H100 has as many multiprocessors as an H200 and its compute capability, so the name counts
 * too. Execs of the host driver take no device memory: there is nothing to learn. */
static const struct known {
    struct kind kind;
    const struct rpi_byte_prices *bytes;
    enum rp_exec_price_source source;
    const char *text;
} table[] = {
    {{"cuda", "NVIDIA H200", 9, 0, 132, 13000},
     &rpi_h200_byte_prices,
     RP_EXEC_PRICES_FITTED,
     "fitted on NVIDIA H200, driver 580"},
    {{"host", "Reprise host device", 9, 0, 4, 13000},
     &rpi_h200_byte_prices,
     RP_EXEC_PRICES_ASSUMED,
     ASSUMED},
};

enum { MOST_KINDS = 8, MOST_ATTEMPTS = 3 };

static struct {
    pthread_mutex_t measuring; /* held while a device is measured; guards the rest */
    struct {
        struct kind kind;
        struct rpi_priced priced;
    } learned[MOST_KINDS];
    size_t count;
} state = {.measuring = PTHREAD_MUTEX_INITIALIZER};

/* ---- Kinds --------------------------------------------------------------------------------- */

static struct kind kind_of(const struct rp_device *device)
{
    struct kind kind = {.major = device->compute_major,
                        .minor = device->compute_minor,
                        .multiprocessors = device->multiprocessors,
                        .version = device->driver->version};
    snprintf(kind.provider, sizeof kind.provider, "%s", device->driver->provider);
    snprintf(kind.name, sizeof kind.name, "%s", device->name);
    return kind;
}

static bool is_kind(const struct kind *a, const struct kind *b)
{
    return strcmp(a->provider, b->provider) == 0 && strcmp(a->name, b->name) == 0 &&
           a->major == b->major && a->minor == b->minor &&
           a->multiprocessors == b->multiprocessors && a->version == b->version;
}

static const struct known *find_known(const struct kind *kind)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (is_kind(&table[i].kind, kind))
            return &table[i];
    return NULL;
}

static struct rpi_priced assumed(const char *reason)
{
    return (struct rpi_priced){rpi_h200_byte_prices, RP_EXEC_PRICES_ASSUMED, ASSUMED, reason};
}

/* ---- A device's ---------------------------------------------------------------------------- */

/* False where the variable has no such value. */
static bool read_wish(const char *wish, bool *out_measure, bool *out_assume)
{
    *out_measure = wish && strcmp(wish, "measure") == 0;
    *out_assume = wish && strcmp(wish, "assume") == 0;
    return !wish || *out_measure || *out_assume;
}

rp_status rpi_device_prices_init(struct rp_device *device, struct rp_error *err)
{
    struct rpi_device_prices *prices = &device->prices;
    const char *wish = rpi_env(RPI_ENV_EXEC_PRICES);
    struct kind kind = kind_of(device);
    const struct known *known = find_known(&kind);
    bool measure, assume;
    if (!read_wish(wish, &measure, &assume))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_device_open",
                         "%s is '%.64s'; it may be 'measure' or 'assume'",
                         rpi_env_name(RPI_ENV_EXEC_PRICES), wish);
    if (pthread_mutex_init(&prices->lock, NULL) != 0)
        return rpi_error_host_memory(err, "rp_device_open", sizeof prices->lock);
    prices->forced = measure;
    prices->priced = assumed(assume ? "measuring is turned off" : NULL);
    if (known && !assume)
        prices->priced = (struct rpi_priced){*known->bytes, known->source, known->text, NULL};
    atomic_init(&prices->settled, assume || (known && !measure));
    return RP_OK;
}

void rpi_device_prices_finish(struct rp_device *device)
{
    pthread_mutex_destroy(&device->prices.lock);
}

struct rpi_priced rpi_device_prices(const struct rp_device *device)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&device->prices.lock;
    pthread_mutex_lock(lock);
    struct rpi_priced priced = device->prices.priced;
    pthread_mutex_unlock(lock);
    return priced;
}

static void set_prices(struct rp_device *device, const struct rpi_priced *priced, bool settled)
{
    pthread_mutex_lock(&device->prices.lock);
    device->prices.priced = *priced;
    pthread_mutex_unlock(&device->prices.lock);
    atomic_store(&device->prices.settled, settled);
}

/* ---- Learning ------------------------------------------------------------------------------ */

/* Why it should not be measured now, or NULL. */
static const char *no_room(const struct rp_device *device, bool small_budget)
{
    size_t free = 0, total = 0;
    if (!device->prices.forced && small_budget)
        return "the budget of executable graphs has no room to measure them";
    if (device->driver->cuMemGetInfo(&free, &total) != CUDA_SUCCESS ||
        free / 8 < RPI_BYTE_PROBE_BYTES)
        return "too little device memory is free to measure them";
    return NULL;
}

/* With `measuring` held. False: the driver did not let it end, as it may another time. */
static bool measure(struct rp_device *device, struct rpi_priced *out_priced)
{
    rpi_assert_held(&state.measuring);
    struct rpi_byte_probe probe;
    int mode = rpi_relax_begin(device->driver);
    rpi_byte_probe(device->driver, device->handle, &rpi_h200_byte_prices, &probe);
    rpi_relax_end(device->driver, mode);
    if (probe.reason)
        *out_priced = assumed(probe.reason);
    else
        *out_priced =
            (struct rpi_priced){probe.prices, RP_EXEC_PRICES_MEASURED, "measured here", NULL};
    device->prices.attempts++;
    return !probe.refused;
}

static const struct rpi_priced *find_learned(const struct kind *kind)
{
    rpi_assert_held(&state.measuring);
    for (size_t i = 0; i < state.count; i++)
        if (is_kind(&state.learned[i].kind, kind))
            return &state.learned[i].priced;
    return NULL;
}

static void keep(const struct kind *kind, const struct rpi_priced *priced)
{
    rpi_assert_held(&state.measuring);
    assert(!find_learned(kind));
    if (state.count == MOST_KINDS)
        return; /* the next device of the kind measures for itself */
    state.learned[state.count].kind = *kind;
    state.learned[state.count++].priced = *priced;
}

/* With `measuring` held. True: something was found out that was not known before. */
static bool learn_locked(struct rp_device *device, bool small_budget, struct rpi_priced *out_priced)
{
    rpi_assert_held(&state.measuring);
    struct kind kind = kind_of(device);
    const struct rpi_priced *known = find_learned(&kind);
    const char *reason = known ? NULL : no_room(device, small_budget),
               *before = device->prices.priced.reason;
    bool settled = true;
    if (known)
        *out_priced = *known;
    else if (reason)
        *out_priced = assumed(reason);
    else if (measure(device, out_priced))
        keep(&kind, out_priced);
    else
        settled = device->prices.attempts >= MOST_ATTEMPTS;
    set_prices(device, out_priced, settled && !reason);
    return !known && (!out_priced->reason || out_priced->reason != before);
}

static void tell(const struct rp_device *device, const struct rpi_priced *priced)
{
    if (priced->reason)
        rpi_log(RP_LOG_WARNING,
                "what executable graphs take of %s is assumed to be as on an NVIDIA H200: %s",
                device->name, priced->reason);
    else
        rpi_log(RP_LOG_INFO, "executable graphs on %s take %.1f KiB a path and %.2f a node",
                device->name, (double)priced->bytes.path / 1024, (double)priced->bytes.node / 1024);
}

void rpi_device_prices_learn(struct rp_device *device, bool small_budget)
{
    struct rpi_priced priced;
    if (atomic_load(&device->prices.settled))
        return;
    if (rpi_watch_is_on())
        return; /* a callable that is being captured captures something itself */
    pthread_mutex_lock(&state.measuring);
    bool news =
        !atomic_load(&device->prices.settled) && learn_locked(device, small_budget, &priced);
    pthread_mutex_unlock(&state.measuring);
    if (news)
        tell(device, &priced);
}

void rpi_device_prices_forget(void)
{
    pthread_mutex_lock(&state.measuring);
    state.count = 0;
    pthread_mutex_unlock(&state.measuring);
}
