/* SPDX-License-Identifier: MIT
 *
 * The life of an exec:
 *
 *               make_place          instantiated           rpi_exec_give
 *     absent --------------> making --------------> taken ---------------> held
 *                              |                      |  <---------------    |
 *                              |                      |   take: as it is,    |
 *                              | it failed            |   or once updated    |
 *                              |                      |                      |
 *                              |       update refused,|                      | evicted, idle,
 *                              |       or renewed     |                      | class gone, reset
 *                              v                      v                      v
 *                              +----------------------+------> dead <--------+
 *                                                               |
 *                                                     bury, without the lock: absent again
 *
 *     absent   there is none
 *     making   it has its place, its bytes are counted, handle is NULL and pins is 1: nobody else
 *              may take it, and its source is held
 *     taken    pins is 1, client->taken leads to it: one replay launches it, binds or updates it
 *     held     pins is 0: whoever the rule sends may take it, and it may be dropped
 *     dead     out of the rule's books, in a list of the thread that took it out: destroyed without
 *              the lock
 *
 * The lock is let go in the middle of make and update: the driver's calls there take milliseconds,
 * and replays of other graphs go on meanwhile. What they find is an exec with a pin, which no rule
 * touches. Burying waits for launches in flight, so that is done without the lock too. choose lets
 * it go while it waits for a pin to go.
 * Only rpi_exec_give takes a pin away without the lock: whoever waits for one looks again under it.
 */
#define RP_UNSTABLE /* rp_device_exec_reset */
#include "graph/exec/exec_cache.h"

#include "base/clock.h"
#include "base/held.h"
#include "base/log.h"
#include "base/refuse.h"
#include "base/sized.h"
#include "graph/exec/exec_prices.h"
#include "reprise_tools.h"

#include <assert.h>

/* ---- Execs --------------------------------------------------------------------------------- */

/* With the lock held: an exec may be taken that could not, or there is more room. */
static void wake(struct rpi_exec_cache *cache)
{
    rpi_assert_held(&cache->lock);
    if (atomic_load(&cache->waiting))
        pthread_cond_broadcast(&cache->given);
}

static struct rpi_cached_exec *cached(struct rpi_rent_exec *exec)
{
    return (struct rpi_cached_exec *)exec;
}

static void let_go(struct rpi_exec_cache *cache, struct rpi_exec_source *source)
{
    assert(source->holders);
    pthread_mutex_lock(&cache->lock);
    bool last = --source->holders == 0;
    pthread_mutex_unlock(&cache->lock);
    if (last)
        rpi_exec_source_destroy(source, cache->driver);
}

/* Without the lock: the driver may take its time. Launches in flight end first. */
static void bury(struct rpi_exec_cache *cache, struct rpi_cached_exec *dead)
{
    assert(!dead || !dead->rent.tenant);
    while (dead) {
        struct rpi_cached_exec *next = dead->next;
        if (dead->handle)
            cache->driver->cuGraphExecDestroy(dead->handle);
        let_go(cache, dead->source);
        rpi_free(dead);
        dead = next;
    }
}

static void add_dead(struct rpi_cached_exec **dead, struct rpi_rent_exec *exec)
{
    assert(!exec->tenant && !exec->owner);
    cached(exec)->next = *dead;
    *dead = cached(exec);
}

/* Free device memory, or 0 where the driver does not tell. */
static uint64_t free_bytes(const struct rp_driver *driver)
{
    size_t free = 0, total = 0;
    return driver->cuMemGetInfo(&free, &total) == CUDA_SUCCESS ? free : 0;
}

/* The first launch is cheap, and nodes may be changed, once an exec was uploaded. */
static CUresult upload(struct rpi_exec_cache *cache, CUgraphExec exec, const char **out_function)
{
    const struct rp_driver *driver = cache->driver;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&cache->lock);
    *out_function = "cuStreamCreate";
    if (!cache->stream)
        result = driver->cuStreamCreate(&cache->stream, CU_STREAM_NON_BLOCKING);
    pthread_mutex_unlock(&cache->lock);
    if (result == CUDA_SUCCESS) {
        *out_function = "cuGraphUpload";
        result = driver->cuGraphUpload(exec, cache->stream);
    }
    if (result == CUDA_SUCCESS) {
        *out_function = "cuStreamSynchronize";
        result = driver->cuStreamSynchronize(cache->stream);
    }
    return result;
}

/* Makes the client's template launchable, and tells what that took. */
static rp_status instantiate(struct rpi_exec_client *client, CUgraphExec *out_handle,
                             double *out_us, uint64_t *out_bytes, struct rp_error *err)
{
    assert(client->source->holders);
    struct rpi_exec_cache *cache = client->cache;
    const struct rp_driver *driver = cache->driver;
    const char *name = client->graph->name, *function = "";
    rpi_binding_point(client->graph->binding, driver, client->source->topology.handles.data);
    uint64_t before = free_bytes(driver), start = rpi_clock_ns();
    CUgraphExec handle = NULL;
    CUresult result = driver->cuGraphInstantiateWithFlags(&handle, client->source->template, 0);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphInstantiateWithFlags", "instantiating '%.60s'",
                                name);
    result = upload(cache, handle, &function);
    if (result != CUDA_SUCCESS) {
        driver->cuGraphExecDestroy(handle);
        return rpi_error_driver(err, result, function, "uploading '%.60s'", name);
    }
    *out_us = rpi_ms_since(start) * 1000;
    uint64_t after = free_bytes(driver);
    *out_bytes = after && after < before ? before - after : 0;
    *out_handle = handle;
    return RP_OK;
}

static void seat(struct rpi_exec_client *client, struct rpi_rent_exec *exec)
{
    assert(client->taken == exec && exec->pins);
    assert(cached(exec)->handle);
    rpi_exec_seat(client->graph->exec, client->graph->binding, cached(exec)->handle,
                  cached(exec)->source->topology.handles.data);
}

/* ---- Making and updating ------------------------------------------------------------------- */

/* With the lock held: a place for the client's own exec, which is taken; what had to go is added to
 * *dead. */
static struct rpi_cached_exec *make_place(struct rpi_exec_client *client,
                                          struct rpi_cached_exec **dead)
{
    rpi_assert_held(&client->cache->lock);
    struct rpi_exec_cache *cache = client->cache;
    struct rpi_cached_exec *made = rpi_calloc(1, sizeof *made);
    struct rpi_rent_exec *gone;
    if (!made)
        return NULL;
    while ((gone = rpi_rent_evict(&cache->rent, &client->rent))) {
        add_dead(dead, gone);
        cache->evicted++;
    }
    rpi_rent_add(&cache->rent, &client->rent, &made->rent);
    made->rent.pins = 1;
    made->source = client->source;
    made->source->holders++;
    while ((gone = rpi_rent_idle(&cache->rent, client->rent.class)))
        add_dead(dead, gone);
    if (cache->most_bytes < cache->rent.bytes)
        cache->most_bytes = cache->rent.bytes;
    return made;
}

/* Absent to taken. The lock is held before and after, and let go while the driver makes the exec.
 * The rule has said so, and counted it. */
static rp_status make(struct rpi_exec_client *client, struct rp_error *err)
{
    rpi_assert_held(&client->cache->lock);
    assert(!client->taken);
    struct rpi_exec_cache *cache = client->cache;
    struct rpi_cached_exec *dead = NULL, *made = make_place(client, &dead);
    double us = 0;
    uint64_t bytes = 0;
    CUgraphExec handle = NULL;
    pthread_mutex_unlock(&cache->lock);
    int mode = rpi_relax_begin(cache->driver);
    bury(cache, dead);
    rp_status status = made ? instantiate(client, &handle, &us, &bytes, err)
                            : rpi_error_host_memory(err, "rp_graph_replay", sizeof *made);
    rpi_relax_end(cache->driver, mode);
    pthread_mutex_lock(&cache->lock);
    if (status == RP_OK) {
        made->handle = handle;
        client->taken = &made->rent;
        cache->made++;
        client->made++;
        cache->measured_bytes += bytes;
        if (bytes && (!cache->measured_step || bytes < cache->measured_step))
            cache->measured_step = bytes;
        rpi_exec_learn_make(cache, (struct rpi_exec_class *)client->rent.class, us);
        seat(client, &made->rent);
    } else if (made) {
        rpi_rent_drop(&cache->rent, &made->rent);
        wake(cache);
        pthread_mutex_unlock(&cache->lock);
        bury(cache, made);
        pthread_mutex_lock(&cache->lock);
    }
    return status;
}

static struct rpi_exec_class *create_class(struct rpi_exec_cache *cache,
                                           const struct rpi_topology *topology)
{
    rpi_assert_held(&cache->lock);
    struct rpi_exec_class *class = rpi_calloc(1, sizeof *class);
    if (!class)
        return NULL;
    const struct rpi_priced priced = rpi_device_prices(cache->device);
    class->rent.bytes = rpi_exec_bytes(&priced.bytes, topology->charged, topology->paths);
    class->topology = (struct rpi_topology){.hash = topology->hash, .nodes = topology->nodes};
    class->next = cache->classes;
    cache->classes = class;
    return class;
}

/* With the lock held: the last graph of the class has left. */
static void destroy_class(struct rpi_exec_cache *cache, struct rpi_exec_class *class,
                          struct rpi_cached_exec **dead)
{
    rpi_assert_held(&cache->lock);
    assert(!class->rent.graphs);
    while (class->rent.execs) {
        struct rpi_rent_exec *exec = class->rent.execs;
        rpi_rent_drop(&cache->rent, exec);
        add_dead(dead, exec);
    }
    struct rpi_exec_class **link = &cache->classes;
    while (*link != class) {
        assert(*link);
        link = &(*link)->next;
    }
    *link = class->next;
    rpi_topology_finish(&class->topology);
    rpi_free(class);
}

static void leave_class(struct rpi_exec_client *client, struct rpi_cached_exec **dead)
{
    rpi_assert_held(&client->cache->lock);
    struct rpi_exec_cache *cache = client->cache;
    struct rpi_rent_class *class = client->rent.class;
    struct rpi_rent_exec *gone;
    rpi_rent_leave(&cache->rent, &client->rent);
    if (!class->graphs)
        destroy_class(cache, (struct rpi_exec_class *)class, dead);
    else
        while ((gone = rpi_rent_idle(&cache->rent, class)))
            add_dead(dead, gone);
}

/* With the lock held: an exec of the client's class refused its template, and no other one will be
 * asked. Without host memory for that it may be asked once more. */
static void set_apart(struct rpi_exec_client *client, struct rpi_cached_exec **dead)
{
    rpi_assert_held(&client->cache->lock);
    struct rpi_exec_cache *cache = client->cache;
    if (client->rent.class->graphs == 1)
        return;
    struct rpi_exec_class *alone = create_class(cache, &client->source->topology);
    if (!alone)
        return;
    alone->alone = true;
    leave_class(client, dead);
    rpi_rent_join(&cache->rent, &alone->rent, &client->rent);
    rpi_exec_price_class(cache, alone);
    rpi_log(RP_LOG_INFO, "'%.60s' shares no exec: the driver refused an update to it",
            client->graph->name);
}

/* Held to taken. The lock is held before and after, and let go while the driver updates the exec.
 * False when the driver did not do it: then the exec is gone. */
static bool update(struct rpi_exec_client *client, struct rpi_rent_exec *exec)
{
    rpi_assert_held(&client->cache->lock);
    struct rpi_exec_cache *cache = client->cache;
    const struct rp_driver *driver = cache->driver;
    CUgraphExecUpdateResultInfo info = {0};
    assert(!client->taken && exec->class == client->rent.class);
    exec->pins++;
    rpi_rent_lend(&cache->rent, &client->rent, exec);
    pthread_mutex_unlock(&cache->lock);
    int mode = rpi_relax_begin(driver);
    rpi_binding_point(client->graph->binding, driver, client->source->topology.handles.data);
    uint64_t start = rpi_clock_ns();
    CUresult result =
        driver->cuGraphExecUpdate(cached(exec)->handle, client->source->template, &info);
    double us = rpi_ms_since(start) * 1000;
    rpi_relax_end(driver, mode);
    pthread_mutex_lock(&cache->lock);
    if (result == CUDA_SUCCESS) {
        client->taken = exec;
        client->updated = true;
        cache->updates++;
        client->updates++;
        rpi_exec_learn_update(cache, (struct rpi_exec_class *)client->rent.class, us);
        seat(client, exec);
        return true;
    }
    struct rpi_cached_exec *dead = NULL;
    rpi_rent_drop(&cache->rent, exec);
    add_dead(&dead, exec);
    cache->refused++;
    wake(cache);
    if (result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
        set_apart(client, &dead);
    pthread_mutex_unlock(&cache->lock);
    bury(cache, dead);
    pthread_mutex_lock(&cache->lock);
    return false;
}

/* ---- Taking -------------------------------------------------------------------------------- */

static enum rpi_rent_way ask(struct rpi_exec_client *client, struct rpi_rent_exec **out_exec)
{
    struct rpi_rent *rent = &client->cache->rent;
    return out_exec ? rpi_rent_take(rent, &client->rent, out_exec)
                    : rpi_rent_take_anew(rent, &client->rent);
}

/* What the rule says, as soon as it can be done; without out_exec an exec has to be made. The lock
 * is held before and after. */
static enum rpi_rent_way choose(struct rpi_exec_client *client, struct rpi_rent_exec **out_exec)
{
    rpi_assert_held(&client->cache->lock);
    struct rpi_exec_cache *cache = client->cache;
    enum rpi_rent_way way = ask(client, out_exec);
    if (way != RPI_RENT_WAIT)
        return way;
    atomic_fetch_add(&cache->waiting, 1); /* then look again: whoever gives back looks after it */
    while ((way = ask(client, out_exec)) == RPI_RENT_WAIT)
        pthread_cond_wait(&cache->given, &cache->lock);
    atomic_fetch_sub(&cache->waiting, 1);
    return way;
}

/* Held or absent to taken; the lock is held. */
static rp_status take(struct rpi_exec_client *client, struct rp_error *err)
{
    rpi_assert_held(&client->cache->lock);
    struct rpi_exec_cache *cache = client->cache;
    struct rpi_rent_exec *exec = NULL;
    switch (choose(client, &exec)) {
    case RPI_RENT_HELD:
        exec->pins++;
        client->taken = exec;
        cache->hits++;
        client->hits++;
        return RP_OK;
    case RPI_RENT_UPDATE:
        if (update(client, exec))
            return RP_OK;
        choose(client, NULL);
        return make(client, err);
    default:
        return make(client, err);
    }
}

rp_status rpi_exec_take(struct rpi_exec_client *client, struct rp_error *err)
{
    assert(!client->taken);
    struct rpi_exec_cache *cache = client->cache;
    client->updated = false;
    pthread_mutex_lock(&cache->lock);
    rp_status status = take(client, err);
    if (status == RP_OK)
        rpi_exec_choose_samples(cache, client);
    pthread_mutex_unlock(&cache->lock);
    return status;
}

rp_status rpi_exec_renew(struct rpi_exec_client *client, struct rp_error *err)
{
    assert(client->taken);
    struct rpi_exec_cache *cache = client->cache;
    struct rpi_cached_exec *dead = NULL;
    pthread_mutex_lock(&cache->lock);
    struct rpi_rent_exec *exec = client->taken;
    client->taken = NULL;
    client->updated = false;
    rpi_rent_drop(&cache->rent, exec);
    wake(cache);
    add_dead(&dead, exec);
    choose(client, NULL);
    rp_status status = make(client, err);
    pthread_mutex_unlock(&cache->lock);
    bury(cache, dead);
    return status;
}

void rpi_exec_give(struct rpi_exec_client *client)
{
    assert(client->taken && client->taken->pins);
    struct rpi_exec_cache *cache = client->cache;
    atomic_fetch_sub(&client->taken->pins, 1);
    client->taken = NULL;
    if (!atomic_load(&cache->waiting))
        return;
    pthread_mutex_lock(&cache->lock);
    wake(cache);
    pthread_mutex_unlock(&cache->lock);
}

/* ---- Coming and going ---------------------------------------------------------------------- */

static bool apart(const struct rpi_rent_graph *a, const struct rpi_rent_graph *b)
{
    const struct rp_graph *x = ((const struct rpi_exec_client *)a)->graph;
    const struct rp_graph *y = ((const struct rpi_exec_client *)b)->graph;
    bool first;
    if (x->pool->core != y->pool->core)
        return true;
    /* One that is being captured has no place in the pool yet. */
    if (!x->member.node.parent || !y->member.node.parent)
        return true;
    return rpi_pool_relation(&x->member.node, &y->member.node, &first) == RPI_COMPOSE_CONCURRENT;
}

/* With the lock held; the words of a topology that is new go to its class. */
static struct rpi_exec_class *find_class(struct rpi_exec_cache *cache,
                                         struct rpi_topology *topology)
{
    rpi_assert_held(&cache->lock);
    for (struct rpi_exec_class *class = cache->classes; class; class = class->next)
        if (!class->alone && rpi_topology_equal(&class->topology, topology))
            return class;
    struct rpi_exec_class *class = create_class(cache, topology);
    if (!class)
        return NULL;
    class->topology.words.data = topology->words.data;
    class->topology.words.count = topology->words.count;
    topology->words.data = NULL;
    return class;
}

static void list_client(struct rpi_exec_client *client)
{
    rpi_assert_held(&client->cache->lock);
    client->next = client->cache->clients;
    if (client->next)
        client->next->previous = client;
    client->cache->clients = client;
}

static void unlist_client(struct rpi_exec_client *client)
{
    rpi_assert_held(&client->cache->lock);
    if (client->previous)
        client->previous->next = client->next;
    else
        client->cache->clients = client->next;
    if (client->next)
        client->next->previous = client->previous;
}

static void make_first(struct rpi_exec_client *client, rp_status *status, struct rp_error *err)
{
    rpi_assert_held(&client->cache->lock);
    struct rpi_exec_cache *cache = client->cache;
    if (!rpi_rent_wants_first(&cache->rent, &client->rent))
        return;
    *status = make(client, err);
    if (*status == RP_OK)
        atomic_fetch_sub(&client->taken->pins, 1);
    client->taken = NULL;
    wake(cache);
}

rp_status rpi_exec_join(struct rpi_exec_cache *cache, const struct rp_graph *graph,
                        struct rpi_exec_source *source, struct rpi_exec_client **out_client,
                        struct rp_error *err)
{
    assert(!source->holders);
    struct rpi_exec_client *client = rpi_calloc(1, sizeof *client);
    if (!client)
        return rpi_error_host_memory(err, "rp_graph_capture", sizeof *client);
    *client = (struct rpi_exec_client){.cache = cache, .source = source, .graph = graph};
    client->rent.launches = source->topology.launches;
    pthread_mutex_lock(&cache->lock);
    struct rpi_exec_class *class = find_class(cache, &source->topology);
    if (!class) {
        pthread_mutex_unlock(&cache->lock);
        rpi_free(client);
        return rpi_error_host_memory(err, "rp_graph_capture", sizeof *class);
    }
    rpi_rent_join(&cache->rent, &class->rent, &client->rent);
    list_client(client);
    source->holders++;
    rpi_exec_price_class(cache, class);
    rpi_exec_price_client(cache, client);
    rp_status status = RP_OK;
    make_first(client, &status, err);
    if (status == RP_OK) {
        rpi_vec_finish(&source->topology.words);
        *out_client = client;
        pthread_mutex_unlock(&cache->lock);
        return RP_OK;
    }
    struct rpi_cached_exec *dead = NULL;
    leave_class(client, &dead);
    unlist_client(client);
    source->holders--; /* the caller's again */
    pthread_mutex_unlock(&cache->lock);
    bury(cache, dead);
    rpi_free(client);
    return status;
}

void rpi_exec_leave(struct rpi_exec_client *client)
{
    if (!client)
        return;
    struct rpi_exec_cache *cache = client->cache;
    struct rpi_cached_exec *dead = NULL;
    pthread_mutex_lock(&cache->lock);
    if (cache->probe.client == client)
        cache->probe.client = NULL;
    leave_class(client, &dead);
    unlist_client(client);
    wake(cache);
    pthread_mutex_unlock(&cache->lock);
    bury(cache, dead);
    let_go(cache, client->source);
    rpi_free(client);
}

void rpi_exec_client_tell(const struct rpi_exec_client *client, struct rp_graph_info *info)
{
    struct rpi_exec_cache *cache = client->cache;
    pthread_mutex_lock(&cache->lock);
    const struct rpi_rent_exec *exec = client->rent.exec;
    info->own_exec = exec && exec->owner == &client->rent;
    info->exec_hits = client->hits;
    info->exec_updates = client->updates;
    info->execs_made = client->made;
    info->exec_bytes = client->rent.class->bytes;
    info->exec_sharers = client->rent.class->graphs - 1;
    pthread_mutex_unlock(&cache->lock);
}

/* ---- The cache ----------------------------------------------------------------------------- */

rp_status rpi_exec_cache_create(struct rpi_exec_cache **out_cache, const struct rp_device *device,
                                struct rp_error *err)
{
    struct rpi_exec_cache *cache = rpi_calloc(1, sizeof *cache);
    if (!cache)
        return rpi_error_host_memory(err, "rp_device_open", sizeof *cache);
    cache->device = device;
    cache->driver = device->driver;
    cache->slow_share = 0.1;
    cache->rent.budget = RPI_EXEC_DEFAULT_BUDGET;
    cache->rent.apart = apart;
    if (pthread_mutex_init(&cache->lock, NULL) != 0) {
        rpi_free(cache);
        return rpi_error_host_memory(err, "rp_device_open", sizeof cache->lock);
    }
    if (pthread_cond_init(&cache->given, NULL) != 0) {
        pthread_mutex_destroy(&cache->lock);
        rpi_free(cache);
        return rpi_error_host_memory(err, "rp_device_open", sizeof cache->given);
    }
    *out_cache = cache;
    return RP_OK;
}

void rpi_exec_cache_set_budget(struct rpi_exec_cache *cache, uint64_t budget)
{
    pthread_mutex_lock(&cache->lock);
    cache->rent.budget = budget ? budget : RPI_EXEC_DEFAULT_BUDGET;
    pthread_mutex_unlock(&cache->lock);
}

void rpi_exec_cache_learn_prices(struct rp_device *device, bool where_they_count)
{
    struct rpi_exec_cache *cache = device->execs;
    pthread_mutex_lock(&cache->lock);
    uint64_t budget = cache->rent.budget, taken = cache->rent.bytes;
    pthread_mutex_unlock(&cache->lock);
    if (!where_they_count || device->prices.forced || taken >= budget / RPI_EXEC_COUNTING_SHARE)
        rpi_device_prices_learn(device, budget < RPI_EXEC_DEFAULT_BUDGET);
}

rp_status rp_device_exec_learn_prices(struct rp_device *device, struct rp_error *err)
{
    if (rpi_is_forked() || !device)
        return rpi_refuse(err, "rp_device_exec_learn_prices", "device");
    if (atomic_load(&device->prices.settled))
        return RP_OK;
    rp_status status = rp_device_push(device, err);
    if (status != RP_OK)
        return status;
    rpi_exec_cache_learn_prices(device, false);
    rp_device_pop(device);
    return RP_OK;
}

rp_status rp_device_exec_set_budget(struct rp_device *device, uint64_t budget_bytes,
                                    struct rp_error *err)
{
    if (rpi_is_forked() || !device)
        return rpi_refuse(err, "rp_device_exec_set_budget", "device");
    rpi_exec_cache_set_budget(device->execs, budget_bytes);
    return RP_OK;
}

void rpi_exec_cache_destroy(struct rpi_exec_cache *cache)
{
    if (!cache)
        return;
    assert(!cache->classes && !cache->rent.exec_count);
    if (cache->probe.start)
        cache->driver->cuEventDestroy(cache->probe.start);
    if (cache->probe.end)
        cache->driver->cuEventDestroy(cache->probe.end);
    if (cache->stream)
        cache->driver->cuStreamDestroy(cache->stream);
    pthread_cond_destroy(&cache->given);
    pthread_mutex_destroy(&cache->lock);
    rpi_free(cache);
}

void rp_device_exec_info(const struct rp_device *device, struct rp_device_exec_info *out_info)
{
    if (rpi_is_forked() || !device || !out_info) {
        rpi_give_nothing(out_info);
        return;
    }
    struct rpi_exec_cache *cache = device->execs;
    const struct rpi_priced priced = rpi_device_prices(device);
    pthread_mutex_lock(&cache->lock);
    struct rp_device_exec_info info = {
        .budget_bytes = cache->rent.budget,
        .bytes = cache->rent.bytes,
        .most_bytes = cache->most_bytes,
        .measured_bytes = cache->measured_bytes,
        .execs = cache->rent.exec_count,
        .graphs = cache->rent.graphs,
        .hits = cache->hits,
        .updates = cache->updates,
        .refused = cache->refused,
        .instantiated = cache->made,
        .evicted = cache->evicted,
        .make_us_per_node = cache->make_node.us,
        .update_us_per_node = cache->update_node.us,
        .slower_share = cache->slow_samples ? cache->slow_share : 0,
        .measured_step_bytes = cache->measured_step,
        .path_bytes = priced.bytes.path,
        .node_bytes = priced.bytes.node,
        .price_source = priced.source,
        .price_text = priced.text,
        .price_reason = priced.reason,
    };
    for (const struct rpi_exec_class *class = cache->classes; class; class = class->next)
        info.topologies++;
    pthread_mutex_unlock(&cache->lock);
    rpi_give(out_info, &info, sizeof info, __func__);
}

rp_status rp_device_exec_reset(struct rp_device *device, uint64_t budget_bytes, int always_update,
                               struct rp_error *err)
{
    if (rpi_is_forked() || !device)
        return rpi_refuse(err, "rp_device_exec_reset", "device");
    rp_status status = rp_device_push(device, err);
    if (status != RP_OK)
        return status;
    struct rpi_exec_cache *cache = device->execs;
    struct rpi_cached_exec *dead = NULL;
    pthread_mutex_lock(&cache->lock);
    for (struct rpi_exec_class *class = cache->classes; class; class = class->next) {
        while (class->rent.execs) {
            struct rpi_rent_exec *exec = class->rent.execs;
            assert(!exec->pins);
            rpi_rent_drop(&cache->rent, exec);
            add_dead(&dead, exec);
        }
        rpi_rent_forget_class(&class->rent);
    }
    for (struct rpi_exec_client *client = cache->clients; client; client = client->next)
        rpi_rent_forget_graph(&cache->rent, &client->rent);
    rpi_rent_forget(&cache->rent);
    cache->rent.budget = budget_bytes ? budget_bytes : RPI_EXEC_DEFAULT_BUDGET;
    cache->rent.never_buys = always_update != 0;
    cache->most_bytes = 0;
    pthread_mutex_unlock(&cache->lock);
    bury(cache, dead);
    rp_device_pop(device);
    return RP_OK;
}
