/* SPDX-License-Identifier: MIT
 *
 * The walker of the cache of execs, at rest: no replay and no capture is under way.
 */
#include "graph/exec/exec_cache.h"

/* How many clients and execs hold the source. */
static size_t holders_of(const struct rpi_exec_cache *cache, const struct rpi_exec_source *source)
{
    size_t holders = 0;
    for (const struct rpi_exec_client *c = cache->clients; c; c = c->next)
        holders += c->source == source;
    for (const struct rpi_exec_class *class = cache->classes; class; class = class->next)
        for (const struct rpi_rent_exec *exec = class->rent.execs; exec; exec = exec->next)
            holders += ((const struct rpi_cached_exec *)exec)->source == source;
    return holders;
}

static bool is_class_listed(const struct rpi_exec_cache *cache, const struct rpi_rent_class *wanted)
{
    const struct rpi_exec_class *class = cache->classes;
    while (class && &class->rent != wanted)
        class = class->next;
    return class != NULL;
}

static bool is_client_valid(const struct rpi_exec_cache *cache,
                            const struct rpi_exec_client *client)
{
    return client->cache == cache && !client->taken && is_class_listed(cache, client->rent.class) &&
           client->source->holders == holders_of(cache, client->source);
}

static bool is_exec_valid(const struct rpi_exec_cache *cache, const struct rpi_cached_exec *exec)
{
    return exec->handle && !exec->rent.pins &&
           exec->source->holders == holders_of(cache, exec->source);
}

static bool is_cache_valid(const struct rpi_exec_cache *cache)
{
    size_t clients = 0;
    const struct rpi_exec_client *before = NULL;
    for (const struct rpi_exec_client *c = cache->clients; c; before = c, c = c->next, clients++)
        if (c->previous != before || !is_client_valid(cache, c))
            return false;
    for (const struct rpi_exec_class *class = cache->classes; class; class = class->next)
        for (const struct rpi_rent_exec *exec = class->rent.execs; exec; exec = exec->next)
            if (!is_exec_valid(cache, (const struct rpi_cached_exec *)exec))
                return false;
    return clients == cache->rent.graphs && cache->rent.bytes <= cache->most_bytes &&
           !atomic_load(&cache->waiting) && rpi_rent_is_valid(&cache->rent);
}

bool rpi_exec_cache_is_valid(struct rpi_exec_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    bool valid = is_cache_valid(cache);
    pthread_mutex_unlock(&cache->lock);
    return valid;
}
