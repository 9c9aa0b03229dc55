/* SPDX-License-Identifier: MIT
 *
 * Launches, and what is measured of them: the host's time of some, by a clock, and the device's of
 * others, by two events around them.
 *
 *     free     nobody uses the events
 *     claimed  a launch that is being enqueued has them: its own until both are recorded
 *     busy     both are recorded, and not read yet
 *
 * One launch at a time claims them, under the cache's lock, and nothing waits for the device: who
 * comes next reads what the last one measured, or is not measured where that runs still. A client
 * that has left takes its measurement with it.
 */
#include "graph/exec/exec_cache.h"

#include "base/clock.h"
#include "base/held.h"
#include "graph/exec/exec_prices.h"

#include <assert.h>

/* With the lock held: the events are free, and what they measured is known. */
static bool read_probe(struct rpi_exec_cache *cache)
{
    rpi_assert_held(&cache->lock);
    struct rpi_exec_probe *probe = &cache->probe;
    const struct rp_driver *driver = cache->driver;
    float ms = 0;
    if (!probe->busy)
        return true;
    CUresult result = driver->cuEventQuery(probe->end);
    if (result == CUDA_ERROR_NOT_READY)
        return false;
    probe->busy = false;
    if (result == CUDA_SUCCESS && probe->client &&
        driver->cuEventElapsedTime(&ms, probe->start, probe->end) == CUDA_SUCCESS)
        rpi_exec_learn_replay(cache, probe->client, probe->changed, (double)ms * 1000);
    return true;
}

/* The events around the client's launch, which are its own until they are recorded; false when they
 * measure another one still. */
static bool claim_probe(struct rpi_exec_client *client)
{
    assert(client->taken);
    struct rpi_exec_cache *cache = client->cache;
    struct rpi_exec_probe *probe = &cache->probe;
    pthread_mutex_lock(&cache->lock);
    bool ready = read_probe(cache);
    if (ready && !probe->start &&
        cache->driver->cuEventCreate(&probe->start, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        probe->start = NULL;
    if (ready && probe->start && !probe->end &&
        cache->driver->cuEventCreate(&probe->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        probe->end = NULL;
    ready = ready && probe->end && !probe->claimed;
    probe->claimed |= ready;
    pthread_mutex_unlock(&cache->lock);
    return ready;
}

static CUresult launch_probed(struct rpi_exec_client *client, CUstream stream)
{
    assert(client->taken);
    struct rpi_exec_cache *cache = client->cache;
    const struct rp_driver *driver = cache->driver;
    struct rpi_exec_probe *probe = &cache->probe;
    CUgraphExec handle = client->graph->exec->handle;
    int mode = rpi_relax_begin(driver);
    bool claimed = claim_probe(client);
    bool recorded = claimed && driver->cuEventRecord(probe->start, stream) == CUDA_SUCCESS;
    CUresult result = driver->cuGraphLaunch(handle, stream);
    recorded = recorded && result == CUDA_SUCCESS &&
               driver->cuEventRecord(probe->end, stream) == CUDA_SUCCESS;
    rpi_relax_end(driver, mode);
    if (!claimed)
        return result;
    pthread_mutex_lock(&cache->lock);
    probe->claimed = false;
    probe->busy = recorded;
    probe->client = client;
    probe->changed = client->taken->changed;
    pthread_mutex_unlock(&cache->lock);
    return result;
}

CUresult rpi_exec_launch(struct rpi_exec_client *client, CUstream stream)
{
    assert(client->taken && client->taken->pins);
    assert(client->graph->exec->handle);
    struct rpi_exec_cache *cache = client->cache;
    if (client->probed)
        return launch_probed(client, stream);
    if (!client->timed)
        return cache->driver->cuGraphLaunch(client->graph->exec->handle, stream);
    uint64_t start = rpi_clock_ns();
    CUresult result = cache->driver->cuGraphLaunch(client->graph->exec->handle, stream);
    double us = rpi_ms_since(start) * 1000;
    pthread_mutex_lock(&cache->lock);
    if (result == CUDA_SUCCESS)
        rpi_exec_learn_launch(cache, client, us);
    pthread_mutex_unlock(&cache->lock);
    return result;
}
