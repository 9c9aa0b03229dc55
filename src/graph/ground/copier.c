/* SPDX-License-Identifier: MIT */
#include "graph/ground/copier.h"

#include "base/clock.h"
#include "base/held.h"
#include "base/log.h"
#include "memory/range/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATIENCE = 256, /* copies that the module could have made before it is loaded in a replay */
    ATTEMPTS = 3,   /* at loading it */
    BLOCKS = 8,     /* of a launch for each multiprocessor, at most: they fill it */
};

_Static_assert(RPI_COPIES_A_LAUNCH == RPI_COPY_MOST, "the rule reckons with other launches");

/* Seen on an H200; the kernel's launch and the fixed part of a device's copy are near its calls for
 * single copies. A byte's is that of 1 TB/s, which is slow for such a device: until large copies
 * were seen they are made with reluctance. */
static const struct rpi_copy_prices first_prices = {
    .launch = 7, .entry = 0.05, .single = 6, .byte = 1e-6, .single_byte = 1e-6};

static const struct {
    const char *name;
    uint32_t most;
} tables[RPI_COPY_TABLE_SIZES] = {
#define X(most) {"rpi_copy_" #most, most},
    RPI_COPY_TABLES(X)
#undef X
};

rp_status rpi_copier_init(struct rpi_copier *copier, const struct rp_driver *driver,
                          int multiprocessors, struct rp_error *err)
{
    *copier =
        (struct rpi_copier){.driver = driver,
                            .multiprocessors = multiprocessors > 0 ? (unsigned)multiprocessors : 1,
                            .prices = first_prices};
    if (pthread_mutex_init(&copier->lock, NULL) != 0)
        return rpi_error_host_memory(err, "rp_device_open", sizeof copier->lock);
    return RP_OK;
}

/* ---- The module ---------------------------------------------------------------------------- */

/* A driver takes device code as it is, but has to compile PTX, which took an H100's 70 to 140 ms.
 * One that is older than what made the code, or a device that is newer, wants PTX. */
static CUresult load_image(const struct rp_driver *driver, CUmodule *out_module)
{
    const void *image = rpi_driver_image(driver, &rpi_copy_host_image, rpi_copy_code);
    CUresult result = driver->cuModuleLoadData(out_module, image);
    if (result != CUDA_SUCCESS && image == rpi_copy_code)
        result = driver->cuModuleLoadData(out_module, rpi_copy_ptx);
    return result;
}

static CUresult load(struct rpi_copier *copier)
{
    const struct rp_driver *driver = copier->driver;
    CUmodule module = NULL;
    CUresult result = load_image(driver, &module);
    if (result != CUDA_SUCCESS)
        return result;
    for (size_t i = 0; result == CUDA_SUCCESS && i < RPI_COPY_TABLE_SIZES; i++)
        result = driver->cuModuleGetFunction(&copier->functions[i], module, tables[i].name);
    if (result != CUDA_SUCCESS) {
        driver->cuModuleUnload(module);
        return result;
    }
    copier->module = module;
    return CUDA_SUCCESS;
}

static void load_locked(struct rpi_copier *copier)
{
    if (atomic_load(&copier->state) != RPI_COPIER_IDLE)
        return;
    int mode = rpi_relax_begin(copier->driver);
    CUresult result = load(copier);
    rpi_relax_end(copier->driver, mode);
    atomic_store(&copier->missed, 0);
    if (result == CUDA_SUCCESS) {
        atomic_store(&copier->state, RPI_COPIER_LOADED);
    } else if (++copier->attempts == ATTEMPTS) {
        atomic_store(&copier->state, RPI_COPIER_REFUSED);
        rpi_log(RP_LOG_WARNING,
                "arguments are copied one call each: the driver did not load the "
                "kernel that makes many copies: %s",
                rpi_result_name(result));
    }
}

void rpi_copier_load(struct rpi_copier *copier)
{
    if (atomic_load(&copier->state) != RPI_COPIER_IDLE)
        return;
    pthread_mutex_lock(&copier->lock);
    load_locked(copier);
    pthread_mutex_unlock(&copier->lock);
}

/* ---- One launch ---------------------------------------------------------------------------- */

/* Writes a table of `most` copies at `table`; the number of tiles, as the kernel wants it. */
static uint32_t write_table(void *table, uint32_t most, const struct rpi_copy *copies,
                            uint32_t count)
{
    /* All tables begin alike: two counts, the copies, then the first tile of each. */
    uint32_t *counts = table, tiles = 0;
    struct rpi_copy *listed = (struct rpi_copy *)(counts + 2);
    uint32_t *first = (uint32_t *)(listed + most);
    for (uint32_t i = 0; i < count; i++) {
        listed[i] = copies[i];
        first[i] = tiles;
        tiles +=
            copies[i].bytes ? (uint32_t)((copies[i].bytes + RPI_COPY_TILE - 1) / RPI_COPY_TILE) : 1;
    }
    memset(listed + count, 0, (most - count) * sizeof *listed);
    memset(first + count, 0, (most - count) * sizeof *first);
    counts[0] = count;
    counts[1] = tiles;
    return tiles;
}

static size_t table_for(size_t count)
{
    size_t i = 0;
    while (tables[i].most < count)
        i++;
    return i;
}

uint32_t rpi_copy_table_size(size_t count)
{
    return tables[table_for(count)].most;
}

void rpi_copy_launch_make(struct rpi_copy_launch *launch, const struct rpi_copier *copier,
                          uint32_t most, const struct rpi_copy *copies, size_t count)
{
    uint32_t tiles = write_table(&launch->table, most, copies, (uint32_t)count);
    unsigned fill = copier->multiprocessors * BLOCKS, blocks = tiles < fill ? tiles : fill;
    launch->params[0] = &launch->table;
    launch->kernel = (CUDA_KERNEL_NODE_PARAMS){
        .func = copier->functions[table_for(most)],
        .gridDimX = blocks ? blocks : 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = RPI_COPY_THREADS,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = launch->params,
    };
}

/* Up to RPI_COPY_MOST copies. */
static CUresult launch(struct rpi_copier *copier, const struct rpi_copy *copies, size_t count,
                       CUstream stream)
{
    struct rpi_copy_launch made;
    rpi_copy_launch_make(&made, copier, rpi_copy_table_size(count), copies, count);
    atomic_fetch_add_explicit(&copier->launches, 1, memory_order_relaxed);
    return copier->driver->cuLaunchKernel(made.kernel.func, made.kernel.gridDimX, 1, 1,
                                          RPI_COPY_THREADS, 1, 1, 0, stream, made.params, NULL);
}

static CUresult copy_singly(const struct rp_driver *driver, const struct rpi_copy *copies,
                            size_t count, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        result = driver->cuMemcpyDtoDAsync(copies[i].to, copies[i].from, copies[i].bytes, stream);
    return result;
}

CUresult rpi_copier_launch(struct rpi_copier *copier, const struct rpi_copy *copies, size_t count,
                           CUstream stream)
{
    assert(copies && count && count <= RPI_COPY_MOST);
    rpi_copier_load(copier);
    if (!rpi_copier_is_loaded(copier))
        return copy_singly(copier->driver, copies, count, stream);
    return launch(copier, copies, count, stream);
}

CUresult rpi_copier_launch_nothing(struct rpi_copier *copier, CUstream stream)
{
    rpi_copier_load(copier);
    if (!rpi_copier_is_loaded(copier))
        return CUDA_ERROR_NOT_SUPPORTED;
    return launch(copier, NULL, 0, stream);
}

/* ---- Prices -------------------------------------------------------------------------------- */

enum { CALLS = 8, WARM = 2, MANY = 32, PIECE = 256, SCRATCH = 2 * MANY * PIECE };

static CUresult make_series(struct rpi_copier *copier)
{
    const struct rp_driver *driver = copier->driver;
    struct rpi_copy_series *series = &copier->series;
    CUresult result = driver->cuMemAlloc(&series->scratch, SCRATCH);
    for (size_t i = 0; result == CUDA_SUCCESS && i <= RPI_COPY_SERIES; i++)
        result = driver->cuEventCreate(&series->marks[i], CU_EVENT_DEFAULT);
    return result;
}

/* But for the memory: a driver that frees some may wait for the device. */
static void drop_series(struct rpi_copier *copier)
{
    const struct rp_driver *driver = copier->driver;
    struct rpi_copy_series *series = &copier->series;
    for (size_t i = 0; i <= RPI_COPY_SERIES; i++)
        if (series->marks[i])
            driver->cuEventDestroy(series->marks[i]);
    *series = (struct rpi_copy_series){.scratch = series->scratch};
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The calls of one series: single copies, launches of one copy, launches of many. */
static CUresult call(struct rpi_copier *copier, size_t which, CUstream stream)
{
    const struct rpi_copy_series *series = &copier->series;
    struct rpi_copy copies[MANY];
    for (uint64_t i = 0; i < MANY; i++)
        copies[i] = (struct rpi_copy){series->scratch + 2 * i * PIECE,
                                      series->scratch + (2 * i + 1) * PIECE, PIECE};
    if (which)
        return launch(copier, copies, which == 1 ? 1 : MANY, stream);
    return copier->driver->cuMemcpyDtoDAsync(copies->to, copies->from, PIECE, stream);
}

/* Enqueues one series and the mark behind it. */
static CUresult run_one(struct rpi_copier *copier, size_t which, CUstream stream)
{
    struct rpi_copy_series *series = &copier->series;
    double us[CALLS];
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; result == CUDA_SUCCESS && i < CALLS; i++) {
        uint64_t start = rpi_clock_ns();
        result = call(copier, which, stream);
        us[i] = (double)(rpi_clock_ns() - start) * 1e-3;
    }
    if (result != CUDA_SUCCESS)
        return result;
    qsort(us, CALLS, sizeof *us, by_size);
    series->host_us[which] = us[CALLS / 2];
    return copier->driver->cuEventRecord(series->marks[which + 1], stream);
}

/* False: it cannot be measured. */
static bool begin_series(struct rpi_copier *copier, CUstream stream)
{
    CUresult result = make_series(copier);
    for (size_t i = 0; result == CUDA_SUCCESS && i < (size_t)RPI_COPY_SERIES * WARM; i++)
        result = call(copier, i % RPI_COPY_SERIES, stream);
    if (result == CUDA_SUCCESS)
        result = copier->driver->cuEventRecord(copier->series.marks[0], stream);
    for (size_t which = 0; result == CUDA_SUCCESS && which < RPI_COPY_SERIES; which++)
        result = run_one(copier, which, stream);
    return result == CUDA_SUCCESS;
}

/* Prices from the series, whose last mark the device has passed. */
static void read_series(struct rpi_copier *copier)
{
    const struct rpi_copy_series *series = &copier->series;
    double us[RPI_COPY_SERIES];
    for (size_t i = 0; i < RPI_COPY_SERIES; i++) {
        float ms = 0;
        if (copier->driver->cuEventElapsedTime(&ms, series->marks[i], series->marks[i + 1]) !=
            CUDA_SUCCESS)
            return;
        us[i] = series->host_us[i] + (double)ms * 1000 / CALLS;
    }
    double entry = (us[2] - us[1]) / (MANY - 1), least = 0.001;
    copier->prices.single = us[0];
    copier->prices.entry = entry > least ? entry : least;
    copier->prices.launch = us[1];
    rpi_log(RP_LOG_INFO,
            "a copy takes %.2f us, a launch of copies %.2f and %.3f for each, host and device",
            us[0], us[1], copier->prices.entry);
}

static void learn_locked(struct rpi_copier *copier, CUstream stream)
{
    enum rpi_copier_knowledge knowledge = atomic_load(&copier->knowledge);
    if (knowledge == RPI_COPIER_KNOWN)
        return; /* another thread was faster */
    if (knowledge == RPI_COPIER_UNKNOWN) {
        load_locked(copier);
        bool begun = rpi_copier_is_loaded(copier) && begin_series(copier, stream);
        if (!begun)
            drop_series(copier);
        atomic_store(&copier->knowledge, begun ? RPI_COPIER_PENDING : RPI_COPIER_KNOWN);
        return;
    }
    CUresult result = copier->driver->cuEventQuery(copier->series.marks[RPI_COPY_SERIES]);
    if (result == CUDA_ERROR_NOT_READY)
        return;
    if (result == CUDA_SUCCESS)
        read_series(copier);
    drop_series(copier);
    atomic_store(&copier->knowledge, RPI_COPIER_KNOWN);
}

static void learn_relaxed(struct rpi_copier *copier, CUstream stream)
{
    int mode = rpi_relax_begin(copier->driver);
    learn_locked(copier, stream);
    rpi_relax_end(copier->driver, mode);
}

void rpi_copier_learn(struct rpi_copier *copier, CUstream stream)
{
    if (atomic_load(&copier->knowledge) == RPI_COPIER_KNOWN)
        return;
    pthread_mutex_lock(&copier->lock);
    learn_relaxed(copier, stream);
    pthread_mutex_unlock(&copier->lock);
}

bool rpi_copier_prices(struct rpi_copier *copier, struct rpi_copy_prices *out_prices)
{
    pthread_mutex_lock(&copier->lock);
    *out_prices = copier->prices;
    out_prices->no_launches = atomic_load(&copier->state) == RPI_COPIER_REFUSED;
    pthread_mutex_unlock(&copier->lock);
    return atomic_load(&copier->knowledge) == RPI_COPIER_KNOWN;
}

void rpi_copier_fix_prices(struct rpi_copier *copier, const struct rpi_copy_prices *prices)
{
    enum { FIXED = 1000 };
    pthread_mutex_lock(&copier->lock);
    copier->prices = *prices;
    copier->probe.samples[0] = copier->probe.samples[1] = FIXED; /* none is missing */
    atomic_store(&copier->knowledge, RPI_COPIER_KNOWN);
    pthread_mutex_unlock(&copier->lock);
}

/* ---- What a byte takes --------------------------------------------------------------------- */

/* A copy of so many bytes does not live in a cache. */
enum { LARGE = 32 << 20, SAMPLES = 4 };

/* Reads what was measured; false: the device has not passed it. */
static bool read_probe(struct rpi_copier *copier)
{
    struct rpi_copy_probe *probe = &copier->probe;
    float ms = 0;
    if (!probe->bytes)
        return true;
    CUresult result = copier->driver->cuEventQuery(probe->end);
    if (result == CUDA_ERROR_NOT_READY)
        return false;
    if (result == CUDA_SUCCESS)
        result = copier->driver->cuEventElapsedTime(&ms, probe->start, probe->end);
    if (result == CUDA_SUCCESS) {
        double byte = (double)ms * 1000 / (double)probe->bytes;
        double *price = probe->launched ? &copier->prices.byte : &copier->prices.single_byte;
        *price += (byte - *price) / ++probe->samples[probe->launched];
    }
    probe->bytes = 0;
    return true;
}

static bool has_events(struct rpi_copier *copier)
{
    struct rpi_copy_probe *probe = &copier->probe;
    const struct rp_driver *driver = copier->driver;
    if (!probe->start && driver->cuEventCreate(&probe->start, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        probe->start = NULL;
    if (!probe->end && driver->cuEventCreate(&probe->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        probe->end = NULL;
    return probe->start && probe->end;
}

/* ---- Running ------------------------------------------------------------------------------- */

/* A word at a time, as fills repeat one of four bytes. */
static CUresult set_value(const struct rp_driver *driver, const struct rpi_copy *value,
                          CUstream stream)
{
    CUresult result = driver->cuMemsetD32Async(value->to, (unsigned)value->from, 1, stream);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemsetD32Async(value->to + 4, (unsigned)(value->from >> 32), 1, stream);
    return result;
}

static CUresult run_single(struct rpi_copier *copier, const struct rpi_copy *copies, size_t count,
                           CUstream stream, struct rpi_copy_failure *out_failure)
{
    const struct rp_driver *driver = copier->driver;
    for (size_t i = 0; i < count; i++) {
        const struct rpi_copy *copy = &copies[i];
        CUresult result = copy->bytes
                              ? driver->cuMemcpyDtoDAsync(copy->to, copy->from, copy->bytes, stream)
                              : set_value(driver, copy, stream);
        if (result != CUDA_SUCCESS) {
            const char *function = copy->bytes ? "cuMemcpyDtoDAsync" : "cuMemsetD32Async";
            *out_failure = (struct rpi_copy_failure){function, i, 1};
            return result;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult run_launched(struct rpi_copier *copier, const struct rpi_copy *copies, size_t count,
                             CUstream stream, struct rpi_copy_failure *out_failure)
{
    for (size_t i = 0; i < count; i += RPI_COPY_MOST) {
        size_t some = count - i < RPI_COPY_MOST ? count - i : RPI_COPY_MOST;
        CUresult result = launch(copier, copies + i, some, stream);
        if (result != CUDA_SUCCESS) {
            *out_failure = (struct rpi_copy_failure){"cuLaunchKernel", i, some};
            return result;
        }
    }
    return CUDA_SUCCESS;
}

/* Launches what lies between large copies, which are made by calls of their own. */
static CUresult run_mixed(struct rpi_copier *copier, const struct rpi_copy_prices *prices,
                          const struct rpi_copy *copies, size_t count, CUstream stream,
                          struct rpi_copy_failure *out_failure)
{
    for (size_t i = 0, next; i < count; i = next) {
        bool large = rpi_copy_wants_call(prices, copies[i].bytes);
        next = i + 1;
        while (next < count && rpi_copy_wants_call(prices, copies[next].bytes) == large)
            next++;
        CUresult result = large ? run_single(copier, copies + i, next - i, stream, out_failure)
                                : run_launched(copier, copies + i, next - i, stream, out_failure);
        if (result != CUDA_SUCCESS) {
            out_failure->first += i;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

/* Large copies between two events, where those are free; both ways take turns. */
static CUresult run_probed(struct rpi_copier *copier, const struct rpi_copy *copies, size_t count,
                           uint64_t bytes, bool may_launch, CUstream stream,
                           struct rpi_copy_failure *out_failure)
{
    struct rpi_copy_probe *probe = &copier->probe;
    const struct rp_driver *driver = copier->driver;
    int mode = rpi_relax_begin(driver);
    bool begun = read_probe(copier) && has_events(copier);
    bool launched = may_launch && probe->samples[1] <= probe->samples[0];
    begun = begun && driver->cuEventRecord(probe->start, stream) == CUDA_SUCCESS;
    CUresult result = launched ? run_launched(copier, copies, count, stream, out_failure)
                               : run_single(copier, copies, count, stream, out_failure);
    if (begun && result == CUDA_SUCCESS &&
        driver->cuEventRecord(probe->end, stream) == CUDA_SUCCESS) {
        probe->bytes = bytes;
        probe->launched = launched;
    }
    rpi_relax_end(driver, mode);
    return result;
}

/* With the lock held: is a launch to be made, of those copies that are not large? Loads the module
 * when enough was missed. */
static bool wants_launch(struct rpi_copier *copier, const struct rpi_copy *copies, size_t count)
{
    rpi_assert_held(&copier->lock);
    size_t small = 0;
    double bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (rpi_copy_wants_call(&copier->prices, copies[i].bytes))
            continue;
        small++;
        bytes += (double)copies[i].bytes;
    }
    if (!rpi_copies_want_launch(&copier->prices, small, bytes))
        return false;
    if (atomic_load(&copier->state) == RPI_COPIER_IDLE &&
        atomic_fetch_add(&copier->missed, small) + small >= PATIENCE)
        load_locked(copier);
    return rpi_copier_is_loaded(copier);
}

/* With the lock held: so large that they would tell what a byte takes, which is not known. */
static bool would_tell(const struct rpi_copier *copier, uint64_t bytes, size_t count,
                       bool may_launch)
{
    rpi_assert_held(&((struct rpi_copier *)copier)->lock);
    const unsigned *samples = copier->probe.samples;
    return count && bytes / count >= LARGE &&
           samples[0] + (may_launch ? samples[1] : SAMPLES) < 2 * SAMPLES;
}

/* Can the kernel move no more than a byte at a time? */
static bool is_odd(const struct rpi_copy *copy)
{
    return (copy->to ^ copy->from) & 3;
}

bool rpi_copier_wants(struct rpi_copier *copier, const struct rpi_copy *copies, size_t count)
{
    enum { MUCH = 1 << 20 };
    uint64_t bytes = 0;
    bool much = false, wants = false;
    for (size_t i = 0; i < count; i++) {
        bytes += copies[i].bytes;
        much |= copies[i].bytes >= MUCH;
        wants |= copies[i].bytes >= MUCH && is_odd(&copies[i]);
    }
    if (!much || wants)
        return wants;
    pthread_mutex_lock(&copier->lock);
    wants = would_tell(copier, bytes, count, true);
    for (size_t i = 0; !wants && i < count; i++)
        wants = copies[i].bytes >= MUCH && rpi_copy_wants_call(&copier->prices, copies[i].bytes);
    pthread_mutex_unlock(&copier->lock);
    return wants;
}

CUresult rpi_copier_run(struct rpi_copier *copier, const struct rpi_copy *copies, size_t count,
                        bool in_order, CUstream stream, struct rpi_copy_failure *out_failure)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += copies[i].bytes;
    pthread_mutex_lock(&copier->lock);
    enum rpi_copier_knowledge knowledge = atomic_load(&copier->knowledge);
    bool begins = count >= RPI_COPIES_SEVERAL && knowledge == RPI_COPIER_UNKNOWN &&
                  rpi_copier_is_loaded(copier);
    if (begins || knowledge == RPI_COPIER_PENDING)
        learn_relaxed(copier, stream);
    bool launched = !in_order && wants_launch(copier, copies, count);
    bool may_launch = !in_order && rpi_copier_is_loaded(copier);
    if (would_tell(copier, bytes, count, may_launch)) {
        CUresult result = run_probed(copier, copies, count, bytes, may_launch, stream, out_failure);
        pthread_mutex_unlock(&copier->lock);
        return result;
    }
    const struct rpi_copy_prices prices = copier->prices;
    pthread_mutex_unlock(&copier->lock);
    return launched ? run_mixed(copier, &prices, copies, count, stream, out_failure)
                    : run_single(copier, copies, count, stream, out_failure);
}

void rpi_copier_finish(struct rpi_copier *copier)
{
    const struct rp_driver *driver = copier->driver;
    drop_series(copier);
    if (copier->series.scratch)
        driver->cuMemFree(copier->series.scratch);
    if (copier->probe.start)
        driver->cuEventDestroy(copier->probe.start);
    if (copier->probe.end)
        driver->cuEventDestroy(copier->probe.end);
    if (copier->module)
        driver->cuModuleUnload(copier->module);
    pthread_mutex_destroy(&copier->lock);
}
