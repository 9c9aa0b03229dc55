/* SPDX-License-Identifier: MIT
 *
 * The pace of graphs: what each kernel node of a graph takes beside its work. A process in which a
 * few hundred launches were made on a second stream, however long ago, pays more for each node of
 * every graph from then on, and for each launch, until the device has made another context, of
 * whatever process (docs/design/facts.md). So one is made here, and destroyed.
 *
 *     chain    a graph of kernels that do nothing, one behind the other
 *     pace     the device's time for a node of it
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/refuse.h"
#include "base/sized.h"
#include "graph/objects/objects.h"

#include <float.h>

enum { NODES = 64, LAUNCHES = 8 };

/* The best pace seen is this one, as far as measuring can tell. */
static const double AS_GOOD = 1.05;

struct chain {
    const struct rp_driver *driver;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUevent marks[LAUNCHES + 1];
};

static void finish_chain(struct chain *chain)
{
    const struct rp_driver *driver = chain->driver;
    if (chain->exec)
        driver->cuGraphExecDestroy(chain->exec);
    if (chain->graph)
        driver->cuGraphDestroy(chain->graph);
    for (size_t i = 0; i <= LAUNCHES; i++)
        if (chain->marks[i])
            driver->cuEventDestroy(chain->marks[i]);
    if (chain->stream)
        driver->cuStreamDestroy(chain->stream);
}

static CUresult capture_chain(struct chain *chain, struct rpi_copier *copier)
{
    const struct rp_driver *driver = chain->driver;
    CUresult result = driver->cuStreamBeginCapture(chain->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result != CUDA_SUCCESS)
        return result;
    for (int i = 0; result == CUDA_SUCCESS && i < NODES; i++)
        result = rpi_copier_launch_nothing(copier, chain->stream);
    CUresult ended = driver->cuStreamEndCapture(chain->stream, &chain->graph);
    return result == CUDA_SUCCESS ? ended : result;
}

static CUresult make_chain(struct chain *chain, struct rpi_copier *copier)
{
    const struct rp_driver *driver = chain->driver;
    CUresult result = driver->cuStreamCreate(&chain->stream, CU_STREAM_NON_BLOCKING);
    for (size_t i = 0; result == CUDA_SUCCESS && i <= LAUNCHES; i++)
        result = driver->cuEventCreate(&chain->marks[i], CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = capture_chain(chain, copier);
    return result == CUDA_SUCCESS
               ? driver->cuGraphInstantiateWithFlags(&chain->exec, chain->graph, 0)
               : result;
}

/* The quickest launch behind the first, which uploads: others may be at work on the device, and
 * make launches of theirs slow. Waits for them. */
static CUresult measure(const struct chain *chain, double *out_us)
{
    const struct rp_driver *driver = chain->driver;
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; result == CUDA_SUCCESS && i <= LAUNCHES; i++) {
        result = driver->cuGraphLaunch(chain->exec, chain->stream);
        if (result == CUDA_SUCCESS)
            result = driver->cuEventRecord(chain->marks[i], chain->stream);
    }
    if (result == CUDA_SUCCESS)
        result = driver->cuEventSynchronize(chain->marks[LAUNCHES]);
    *out_us = DBL_MAX;
    for (int i = 0; result == CUDA_SUCCESS && i < LAUNCHES; i++) {
        float ms = 0;
        result = driver->cuEventElapsedTime(&ms, chain->marks[i], chain->marks[i + 1]);
        double us = (double)ms * 1000 / NODES;
        *out_us = us < *out_us ? us : *out_us;
    }
    return result;
}

/* Makes a context and destroys it; which is current stays, whatever fails. */
static CUresult make_other_context(const struct rp_device *device)
{
    const struct rp_driver *driver = device->driver;
    CUcontext made = NULL, popped = NULL;
    CUresult result = driver->cuCtxCreate(&made, 0, device->handle);
    if (result != CUDA_SUCCESS)
        return result;
    driver->cuCtxPopCurrent(&popped);
    return driver->cuCtxDestroy(made);
}

static rp_status failed(const struct rp_device *device, CUresult result, const char *what,
                        struct rp_error *err)
{
    return rpi_error_driver(err, result, what, "restoring the pace of graphs on %s", device->name);
}

static rp_status restore(struct rp_device *device, const struct chain *chain,
                         struct rp_pace *out_pace, struct rp_error *err)
{
    struct rp_pace pace = {0};
    CUresult result = measure(chain, &pace.before_us);
    if (result != CUDA_SUCCESS)
        return failed(device, result, "cuGraphLaunch", err);
    pace.after_us = pace.before_us;
    pace.restored = !device->pace.best_us || pace.before_us > AS_GOOD * device->pace.best_us;
    if (pace.restored) {
        uint64_t start = rpi_clock_ns();
        result = make_other_context(device);
        if (result != CUDA_SUCCESS)
            return failed(device, result, "cuCtxCreate", err);
        pace.ms = rpi_ms_since(start);
        result = measure(chain, &pace.after_us);
        if (result != CUDA_SUCCESS)
            return failed(device, result, "cuGraphLaunch", err);
        rpi_log(RP_LOG_INFO, "a node of a graph took %.3f us, and takes %.3f", pace.before_us,
                pace.after_us);
    }
    double best = pace.after_us < pace.before_us ? pace.after_us : pace.before_us;
    if (!device->pace.best_us || best < device->pace.best_us)
        device->pace.best_us = best;
    *out_pace = pace;
    return RP_OK;
}

static rp_status measure_and_restore(struct rp_device *device, struct rp_pace *out_pace,
                                     struct rp_error *err)
{
    struct chain chain = {.driver = device->driver};
    CUresult result = make_chain(&chain, &device->copier);
    rp_status status = result == CUDA_SUCCESS
                           ? restore(device, &chain, out_pace, err)
                           : failed(device, result, "making a graph of empty kernels", err);
    finish_chain(&chain);
    return status;
}

rp_status rp_device_restore_pace(struct rp_device *device, struct rp_pace *out_pace,
                                 struct rp_error *err)
{
    if (rpi_is_forked() || !device)
        return rpi_refuse(err, "rp_device_restore_pace", "device");
    struct rp_pace pace;
    rp_status status = rp_device_push(device, err);
    if (status != RP_OK)
        return status;
    pthread_mutex_lock(&device->pace.lock);
    int mode = rpi_relax_begin(device->driver);
    status = measure_and_restore(device, &pace, err);
    rpi_relax_end(device->driver, mode);
    pthread_mutex_unlock(&device->pace.lock);
    rp_device_pop(device);
    if (status != RP_OK || !out_pace)
        return status;
    return rpi_hand_out(out_pace, &pace, sizeof pace, __func__, err);
}
