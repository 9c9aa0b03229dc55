/* SPDX-License-Identifier: MIT */
#include "alloc/mempool.h"

#include <assert.h>

struct mempool {
    struct rpp_pool_id id;
    unsigned flags;
    unsigned count;               /* of who needs it: the MemPool, and each use */
    bool made;                    /* and not gone */
    bool used;                    /* ever */
    struct rp_heap_source source; /* for good; NULL functions: the device */
};

static struct {
    pthread_mutex_t lock;                /* guards the table; heaps are called with it held */
    struct mempool table[RP_HEAP_POOLS]; /* [0]: everybody's, unused */
} pools = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum { MOST_NESTED = 64 };

/* Of this thread, the innermost last. */
static _Thread_local struct {
    int depth;
    struct {
        int ordinal;
        uint32_t pool;
    } uses[MOST_NESTED];
} thread;

/* ---- Numbers -------------------------------------------------------------------------------- */

static bool is_empty(uint32_t pool)
{
    for (int i = 0; i < RPP_DEVICES; i++) {
        struct rp_heap *heap = rpp_heap_made(i);
        if (heap && rp_heap_pool_bytes(heap, pool))
            return false;
    }
    return true;
}

static void set_flags(uint32_t pool, unsigned flags)
{
    rpp_assert_held(&pools.lock);
    for (int i = 0; i < RPP_DEVICES; i++) {
        struct rp_heap *heap = rpp_heap_made(i);
        if (heap)
            rp_heap_set_pool(heap, pool, flags, NULL);
    }
}

static bool is_free(uint32_t pool, const struct rp_heap_source *source)
{
    rpp_assert_held(&pools.lock);
    assert(pool && pool < RP_HEAP_POOLS);
    const struct mempool *mempool = &pools.table[pool];
    bool same = mempool->source.alloc == source->alloc && mempool->source.user == source->user;
    return !mempool->count && (same || !mempool->used) && is_empty(pool);
}

uint32_t rpp_mempool_make(struct rpp_pool_id id, unsigned flags,
                          const struct rp_heap_source *source)
{
    const struct rp_heap_source none = {0};
    if (!source)
        source = &none;
    pthread_mutex_lock(&pools.lock);
    uint32_t pool = 1;
    while (pool < RP_HEAP_POOLS && !is_free(pool, source))
        pool++;
    if (pool == RP_HEAP_POOLS)
        pool = 0;
    else {
        pools.table[pool] = (struct mempool){
            .id = id, .flags = flags, .count = 1, .made = true, .used = true, .source = *source};
        set_flags(pool, flags);
    }
    pthread_mutex_unlock(&pools.lock);
    return pool;
}

void rpp_mempool_drop(uint32_t pool)
{
    assert(pool && pool < RP_HEAP_POOLS);
    pthread_mutex_lock(&pools.lock);
    pools.table[pool].made = false;
    pools.table[pool].count--;
    set_flags(pool, 0);
    pthread_mutex_unlock(&pools.lock);
    for (int i = 0; i < RPP_DEVICES; i++) {
        struct rp_heap *heap = rpp_heap_made(i);
        if (heap)
            rp_heap_empty_pool(heap, pool, NULL);
    }
}

uint32_t rpp_mempool_find(struct rpp_pool_id id)
{
    uint32_t pool = 1;
    pthread_mutex_lock(&pools.lock);
    while (pool < RP_HEAP_POOLS &&
           !(pools.table[pool].made && pools.table[pool].id.words[0] == id.words[0] &&
             pools.table[pool].id.words[1] == id.words[1]))
        pool++;
    pthread_mutex_unlock(&pools.lock);
    return pool == RP_HEAP_POOLS ? 0 : pool;
}

struct rpp_pool_id rpp_mempool_id(uint32_t pool)
{
    assert(pool < RP_HEAP_POOLS);
    pthread_mutex_lock(&pools.lock);
    struct rpp_pool_id id = pools.table[pool].id;
    pthread_mutex_unlock(&pools.lock);
    return id;
}

unsigned rpp_mempool_count(uint32_t pool)
{
    assert(pool && pool < RP_HEAP_POOLS);
    pthread_mutex_lock(&pools.lock);
    unsigned count = pools.table[pool].count;
    pthread_mutex_unlock(&pools.lock);
    return count;
}

/* ---- Uses ----------------------------------------------------------------------------------- */

static rp_status refuse(const char *why, struct rp_error *err)
{
    snprintf(err->message, sizeof err->message, "%s", why);
    return err->status = RP_ERROR_INVALID_ARGUMENT;
}

rp_status rpp_mempool_begin(int ordinal, uint32_t pool, struct rp_error *err)
{
    assert(pool && pool < RP_HEAP_POOLS && thread.depth >= 0);
    struct rp_heap *heap;
    if (thread.depth == MOST_NESTED)
        return refuse("64 memory pools are in use within each other, the most there may be", err);
    rp_status status = rpp_heap_get(ordinal, &heap, err);
    if (status != RP_OK)
        return status;
    pthread_mutex_lock(&pools.lock);
    status = rp_heap_set_pool(heap, pool, pools.table[pool].flags, err);
    if (status == RP_OK && pools.table[pool].source.alloc)
        status = rp_heap_set_source(heap, pool, &pools.table[pool].source, err);
    if (status == RP_OK)
        pools.table[pool].count++;
    pthread_mutex_unlock(&pools.lock);
    if (status != RP_OK)
        return status;
    thread.uses[thread.depth].ordinal = ordinal;
    thread.uses[thread.depth++].pool = pool;
    atomic_fetch_add(&rpp_state.begun, 1);
    return RP_OK;
}

rp_status rpp_mempool_end(int ordinal, uint32_t pool, struct rp_error *err)
{
    int at = thread.depth - 1;
    while (at >= 0 && (thread.uses[at].ordinal != ordinal || thread.uses[at].pool != pool))
        at--;
    if (at < 0)
        return refuse("this thread does not use the memory pool: end its use where it began", err);
    for (thread.depth--; at < thread.depth; at++)
        thread.uses[at] = thread.uses[at + 1];
    atomic_fetch_sub(&rpp_state.begun, 1);
    return RP_OK;
}

void rpp_mempool_release(uint32_t pool)
{
    assert(pool && pool < RP_HEAP_POOLS);
    pthread_mutex_lock(&pools.lock);
    if (pools.table[pool].count)
        pools.table[pool].count--;
    pthread_mutex_unlock(&pools.lock);
}

uint32_t rpp_mempool_now(int ordinal)
{
    assert(thread.depth <= MOST_NESTED);
    int at = thread.depth - 1;
    while (at >= 0 && thread.uses[at].ordinal != ordinal)
        at--;
    return at < 0 ? 0 : thread.uses[at].pool;
}
