/* SPDX-License-Identifier: MIT */
#include "alloc/once.h"

#include <assert.h>
#include <reprise_framework.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rpp_once {
    struct rp_graph *graph;
    struct rp_call *call; /* NULL: the capture is over */
    struct CUstream_st *stream;
    unsigned long long capture; /* the driver's id */
    struct rpp_lease *lease;
    size_t alive; /* blocks that tensors lie in */
    uint64_t alive_bytes;
    struct rpp_once *next;
};

struct rpp_lease {
    struct rpp_pool_id id;
    int ordinal;
    uint64_t begun;   /* number of the beginning that has no end yet; 0: none */
    pthread_t thread; /* that began it */
    size_t graphs;    /* that PyTorch captured and did not release */
    size_t captures;
    struct rp_pool *pool; /* NULL: not made yet */
    void *keeper;         /* of a pool that is somebody else's; NULL: it is the lease's own */
    struct rpp_once *now; /* the capture under way, once it was adopted */
    struct rpp_once *first;
    struct rpp_lease *next;
};

/* ---- Leases -------------------------------------------------------------------------------- */

static bool is_same(struct rpp_pool_id a, struct rpp_pool_id b)
{
    return a.words[0] == b.words[0] && a.words[1] == b.words[1];
}

static struct rpp_lease *find_lease(int ordinal, struct rpp_pool_id id)
{
    rpp_assert_held(&rpp_state.lock);
    struct rpp_lease *lease = rpp_state.leases;
    while (lease && (lease->ordinal != ordinal || !is_same(lease->id, id)))
        lease = lease->next;
    return lease;
}

static struct rpp_lease *get_lease(int ordinal, struct rpp_pool_id id)
{
    assert(ordinal >= 0 && ordinal < RPP_DEVICES);
    struct rpp_lease *lease = find_lease(ordinal, id);
    if (lease)
        return lease;
    lease = calloc(1, sizeof *lease);
    if (!lease)
        return NULL;
    *lease = (struct rpp_lease){.id = id, .ordinal = ordinal, .next = rpp_state.leases};
    rpp_state.leases = lease;
    return lease;
}

static bool is_idle(const struct rpp_lease *lease)
{
    return !lease->graphs && !lease->begun && !lease->first;
}

static void drop_lease(struct rpp_lease *lease)
{
    rpp_assert_held(&rpp_state.lock);
    assert(!lease->first && !lease->begun && !lease->now);
    struct rpp_lease **link = &rpp_state.leases;
    while (*link != lease)
        link = &(*link)->next;
    *link = lease->next;
    free(lease);
}

/* The driver's id of the capture that the stream takes part in; 0: in none, or one that is broken.
 */
static unsigned long long capture_of(int ordinal, struct CUstream_st *stream)
{
    assert(ordinal >= 0 && ordinal < RPP_DEVICES && rpp_state.devices[ordinal].device);
    enum { ACTIVE = 1 }; /* CU_STREAM_CAPTURE_STATUS_ACTIVE */
    const struct rpp_device *device = &rpp_state.devices[ordinal];
    int status = 0;
    unsigned long long id = 0;
    void *graph, *nodes, *edges; /* nobody asks for them */
    size_t count;
    if (rp_device_push(device->device, NULL) != RP_OK)
        return 0;
    bool active = device->capture_info(stream, &status, &id, &graph, &nodes, &edges, &count) == 0 &&
                  status == ACTIVE;
    rp_device_pop(device->device);
    return active ? id : 0;
}

static void set_begun(struct rpp_lease *lease, uint64_t begun)
{
    rpp_assert_held(&rpp_state.lock);
    assert(begun <= rpp_state.beginnings);
    if (!lease->begun && begun)
        atomic_fetch_add(&rpp_state.begun, 1);
    if (lease->begun && !begun)
        atomic_fetch_sub(&rpp_state.begun, 1);
    lease->begun = begun;
}

/* The lease's capture is over. Where there is no host memory to write it down it stays under way,
 * and is concluded at the next beginning. */
static void conclude(struct rpp_lease *lease)
{
    rpp_assert_held(&rpp_state.lock);
    assert(!lease->now || lease->now->call);
    if (lease->now && rp_graph_adopt_end(lease->now->graph, NULL) == RP_OK) {
        lease->now->call = NULL;
        lease->now = NULL;
    }
    set_begun(lease, 0);
}

/* Ends what began and failed: PyTorch does not tell. */
static void conclude_failed(void)
{
    rpp_assert_held(&rpp_state.lock);
    for (struct rpp_lease *lease = rpp_state.leases; lease; lease = lease->next)
        if (lease->now && capture_of(lease->ordinal, lease->now->stream) != lease->now->capture)
            conclude(lease);
}

void rpp_once_begin(int ordinal, struct rpp_pool_id id)
{
    struct rpp_device *device;
    struct rp_error err;
    if (rpp_device_get(ordinal, &device, &err) != RP_OK)
        return; /* the first allocation tells why */
    pthread_mutex_lock(&rpp_state.lock);
    conclude_failed();
    struct rpp_lease *lease = get_lease(ordinal, id);
    if (lease) {
        set_begun(lease, ++rpp_state.beginnings);
        lease->thread = pthread_self();
    }
    pthread_mutex_unlock(&rpp_state.lock);
}

void rpp_once_end(int ordinal, struct rpp_pool_id id)
{
    pthread_mutex_lock(&rpp_state.lock);
    struct rpp_lease *lease = find_lease(ordinal, id);
    if (lease && lease->begun) {
        conclude(lease);
        lease->graphs++;
    }
    pthread_mutex_unlock(&rpp_state.lock);
}

void rpp_once_abandon(void)
{
    pthread_mutex_lock(&rpp_state.lock);
    conclude_failed();
    for (struct rpp_lease *lease = rpp_state.leases; lease; lease = lease->next)
        if (lease->begun && !lease->now && pthread_equal(lease->thread, pthread_self()))
            set_begun(lease, 0);
    pthread_mutex_unlock(&rpp_state.lock);
}

void rpp_once_release(int ordinal, struct rpp_pool_id id)
{
    pthread_mutex_lock(&rpp_state.lock);
    struct rpp_lease *lease = find_lease(ordinal, id);
    if (lease && lease->graphs)
        lease->graphs--;
    if (lease && is_idle(lease) && !lease->pool)
        drop_lease(lease);
    pthread_mutex_unlock(&rpp_state.lock);
}

/* ---- Blocks -------------------------------------------------------------------------------- */

/* The lease whose capture this is, or else the one that began last: nobody else's memory is as
 * safe, as blocks for streams of other captures share with nobody. */
static struct rpp_lease *lease_for(int ordinal, unsigned long long capture)
{
    rpp_assert_held(&rpp_state.lock);
    assert(capture);
    struct rpp_lease *latest = NULL;
    for (struct rpp_lease *lease = rpp_state.leases; lease; lease = lease->next) {
        if (lease->ordinal != ordinal || !lease->begun)
            continue;
        if (lease->now && lease->now->capture == capture)
            return lease;
        if (!latest || latest->begun < lease->begun)
            latest = lease;
    }
    return latest;
}

static rp_status make_pool(struct rpp_lease *lease, struct rp_error *err)
{
    assert(rpp_state.devices[lease->ordinal].device);
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    if (lease->pool)
        return RP_OK;
    options.name = "torch.cuda.graph";
    options.kind = RP_POOL_SEQUENCE;
    return rp_pool_create(rpp_state.devices[lease->ordinal].device, &options, &lease->pool, err);
}

static rp_status adopt(struct rpp_lease *lease, struct CUstream_st *stream,
                       unsigned long long capture, struct rp_error *err)
{
    rpp_assert_held(&rpp_state.lock);
    assert(!lease->now && lease->begun && capture);
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    char name[48];
    struct rpp_once *once = calloc(1, sizeof *once);
    if (!once)
        return rpp_no_host_memory(err);
    snprintf(name, sizeof name, "graph %zu", lease->captures + 1);
    options.name = name;
    rp_status status = make_pool(lease, err);
    if (status == RP_OK)
        status = rp_graph_adopt(lease->pool, &options, stream, &once->graph, &once->call, err);
    if (status != RP_OK) {
        free(once);
        return status;
    }
    once->stream = stream;
    once->capture = capture;
    once->lease = lease;
    once->next = lease->first;
    lease->first = lease->now = once;
    lease->captures++;
    return RP_OK;
}

/* The eager heap keeps what it does not use; when the device has no more, it gives that back. */
static rp_status alloc_block(struct rpp_once *once, uint64_t bytes, struct CUstream_st *stream,
                             uint64_t *out_address, struct rp_error *err)
{
    rpp_assert_held(&rpp_state.lock);
    assert(once->call && once->lease->now == once);
    rp_status status = rp_call_alloc(once->call, bytes, stream, out_address, err);
    struct rp_heap *heap = atomic_load(&rpp_state.devices[once->lease->ordinal].heap);
    if (status != RP_ERROR_OUT_OF_DEVICE_MEMORY || !heap)
        return status;
    rpp_holds_lock = true;
    rp_heap_empty_cache(heap, NULL);
    rpp_holds_lock = false;
    return rp_call_alloc(once->call, bytes, stream, out_address, err);
}

/* A tensor of a reprise.graphed capture may be alive there: PyTorch cannot have two at one address.
 */
static rp_status note_block(struct rpp_once *once, uint64_t bytes, struct CUstream_st *stream,
                            uint64_t address, struct rp_error *err)
{
    rpp_assert_held(&rpp_state.lock);
    assert(address);
    struct rpp_addresses *blocks = &rpp_state.call.blocks;
    const struct rpp_block block = {
        .owners = 1, .address = address, .bytes = bytes, .stream = stream, .once = once};
    if (rpp_addresses_get(blocks, address)) {
        snprintf(err->message, sizeof err->message,
                 "a tensor from an earlier capture is still alive where this capture would have "
                 "its memory. Drop it, or give the graph a pool of its own");
        return err->status = RP_ERROR_CAPTURE;
    }
    if (!rpp_addresses_put(blocks, &block))
        return rpp_no_host_memory(err);
    atomic_store(&rpp_state.call_count, blocks->count);
    once->alive++;
    once->alive_bytes += bytes;
    return RP_OK;
}

/* With the lock held. */
static rp_status alloc_in(struct rpp_lease *lease, uint64_t bytes, struct CUstream_st *stream,
                          unsigned long long capture, uint64_t *out_address, struct rp_error *err)
{
    rpp_assert_held(&rpp_state.lock);
    rp_status status = lease->now ? RP_OK : adopt(lease, stream, capture, err);
    if (status == RP_OK)
        status = alloc_block(lease->now, bytes, stream, out_address, err);
    if (status != RP_OK)
        return status;
    status = note_block(lease->now, bytes, stream, *out_address, err);
    if (status != RP_OK)
        rp_call_free(lease->now->call, *out_address, NULL);
    return status;
}

bool rpp_once_alloc(uint64_t bytes, int ordinal, struct CUstream_st *stream, uint64_t *out_address,
                    rp_status *out_status, struct rp_error *err)
{
    pthread_mutex_lock(&rpp_state.lock);
    unsigned long long capture = capture_of(ordinal, stream);
    struct rpp_lease *lease = capture ? lease_for(ordinal, capture) : NULL;
    if (lease)
        *out_status = alloc_in(lease, bytes, stream, capture, out_address, err);
    pthread_mutex_unlock(&rpp_state.lock);
    return lease != NULL;
}

void rpp_once_free(const struct rpp_block *block)
{
    rpp_assert_held(&rpp_state.lock);
    assert(block->once->alive && block->once->alive_bytes >= block->bytes);
    struct rpp_once *once = block->once;
    if (once->call)
        rp_call_free(once->call, block->address, NULL);
    else
        rp_graph_let_go(once->graph, block->address, NULL);
    once->alive--;
    once->alive_bytes -= block->bytes;
}

void rpp_once_use(const struct rpp_block *block, struct CUstream_st *stream)
{
    rpp_assert_held(&rpp_state.lock);
    if (block->once->call)
        rp_call_use(block->once->call, block->address, stream, NULL);
}

/* ---- Blocks that are needed again ------------------------------------------------------------ */

/* What the next allocation of this thread is to be. */
static _Thread_local struct {
    uint64_t address; /* 0: any */
    struct CUstream_st *stream;
    struct rpp_pool_id id;
} again;

void rpp_once_want(struct rpp_pool_id id, uint64_t address, struct CUstream_st *stream)
{
    again.id = id;
    again.stream = stream;
    if (!again.address != !address)
        atomic_fetch_add(&rpp_state.begun, address ? 1 : -1);
    again.address = address;
}

/* With the lock held. */
static rp_status hold_in(const struct rpp_lease *lease, uint64_t bytes, struct rp_error *err)
{
    rpp_assert_held(&rpp_state.lock);
    assert(again.address);
    rp_status status = RP_ERROR_INVALID_ARGUMENT;
    snprintf(err->message, sizeof err->message, "the pool has no such block");
    if (rpp_addresses_get(&rpp_state.call.blocks, again.address))
        return status;
    for (struct rpp_once *once = lease->first; once && status != RP_OK; once = once->next) {
        if (once->call || rp_graph_hold(once->graph, again.address, err) != RP_OK)
            continue;
        status = note_block(once, bytes, again.stream, again.address, err);
        if (status != RP_OK)
            rp_graph_let_go(once->graph, again.address, NULL);
    }
    return err->status = status;
}

bool rpp_once_hold(uint64_t bytes, int ordinal, uint64_t *out_address, rp_status *out_status,
                   struct rp_error *err)
{
    if (!again.address)
        return false;
    pthread_mutex_lock(&rpp_state.lock);
    const struct rpp_lease *lease = find_lease(ordinal, again.id);
    *out_status = lease ? hold_in(lease, bytes, err) : RP_ERROR_INVALID_ARGUMENT;
    pthread_mutex_unlock(&rpp_state.lock);
    *out_address = again.address;
    return true;
}

/* ---- What nobody needs ---------------------------------------------------------------------- */

static bool is_needed(const struct rpp_lease *lease, const struct rpp_once *once)
{
    return lease->graphs || lease->begun || once == lease->now || once->alive;
}

/* Nobody tells when replays of PyTorch's are over. */
static void wait_for_device(int ordinal)
{
    const struct rpp_device *device = &rpp_state.devices[ordinal];
    if (rp_device_push(device->device, NULL) != RP_OK)
        return;
    device->synchronize();
    rp_device_pop(device->device);
}

static void sweep_lease(struct rpp_lease *lease)
{
    rpp_assert_held(&rpp_state.lock);
    assert(!lease->now);
    bool waited = false;
    for (struct rpp_once **link = &lease->first; *link;) {
        struct rpp_once *once = *link;
        if (is_needed(lease, once)) {
            link = &once->next;
            continue;
        }
        if (!waited)
            wait_for_device(lease->ordinal);
        waited = true;
        *link = once->next;
        rp_graph_destroy(once->graph);
        free(once);
    }
}

/* Is a capture under way that took memory? */
static bool is_capturing(void)
{
    const struct rpp_lease *lease = rpp_state.leases;
    while (lease && !lease->now)
        lease = lease->next;
    return lease != NULL;
}

void rpp_once_sweep(void)
{
    pthread_mutex_lock(&rpp_state.lock);
    conclude_failed();
    bool busy = atomic_load(&rpp_state.calling) || is_capturing();
    for (struct rpp_lease *lease = rpp_state.leases, *next; !busy && lease; lease = next) {
        next = lease->next;
        sweep_lease(lease);
        if (!is_idle(lease) || lease->keeper)
            continue;
        rp_pool_destroy(lease->pool); /* or NULL */
        drop_lease(lease);
    }
    pthread_mutex_unlock(&rpp_state.lock);
}

/* ---- Bound pools ----------------------------------------------------------------------------- */

bool rpp_once_bind(int ordinal, struct rpp_pool_id id, struct rp_pool *pool, void *keeper)
{
    assert(pool && keeper);
    pthread_mutex_lock(&rpp_state.lock);
    struct rpp_lease *lease = get_lease(ordinal, id);
    bool bound = lease && !lease->pool;
    if (bound) {
        lease->pool = pool;
        lease->keeper = keeper;
    }
    pthread_mutex_unlock(&rpp_state.lock);
    return bound;
}

void *rpp_once_unbind(void)
{
    void *keeper = NULL;
    pthread_mutex_lock(&rpp_state.lock);
    struct rpp_lease *lease = rpp_state.leases;
    while (lease && !(lease->keeper && lease->captures && is_idle(lease)))
        lease = lease->next; /* one without a capture was bound for one to come */
    if (lease) {
        keeper = lease->keeper;
        drop_lease(lease);
    }
    pthread_mutex_unlock(&rpp_state.lock);
    return keeper;
}

/* ---- Facts ----------------------------------------------------------------------------------- */

void rpp_once_totals(int ordinal, int64_t *out_allocated, int64_t *out_reserved)
{
    *out_allocated = *out_reserved = 0;
    pthread_mutex_lock(&rpp_state.lock);
    for (const struct rpp_lease *lease = rpp_state.leases; lease; lease = lease->next) {
        struct rp_pool_info info = {.size = sizeof info};
        if (lease->ordinal != ordinal || !lease->pool)
            continue;
        for (const struct rpp_once *once = lease->first; once; once = once->next)
            *out_allocated += (int64_t)once->alive_bytes;
        rp_pool_info(lease->pool, &info);
        *out_reserved += (int64_t)info.mapped_bytes;
    }
    pthread_mutex_unlock(&rpp_state.lock);
}

static struct rpp_once_facts facts_of(const struct rpp_lease *lease, const struct rpp_once *once)
{
    rpp_assert_held(&rpp_state.lock);
    assert(once->lease == lease && lease->pool);
    struct rpp_once_facts facts = {.ordinal = lease->ordinal,
                                   .id = lease->id,
                                   .bound = lease->keeper != NULL,
                                   .under_way = once->call != NULL,
                                   .alive_bytes = once->alive_bytes};
    facts.pool.size = sizeof facts.pool;
    rp_pool_info(lease->pool, &facts.pool);
    if (!facts.under_way) {
        facts.graph.size = sizeof facts.graph;
        rp_graph_info(once->graph, &facts.graph);
        snprintf(facts.name, sizeof facts.name, "%s", facts.graph.name);
    }
    facts.graph.name = NULL; /* may be gone by the time it is read */
    return facts;
}

struct rpp_once_facts *rpp_once_facts(size_t *out_count)
{
    size_t count = 0, i = 0;
    pthread_mutex_lock(&rpp_state.lock);
    for (const struct rpp_lease *lease = rpp_state.leases; lease; lease = lease->next)
        for (const struct rpp_once *once = lease->first; once; once = once->next)
            count++;
    struct rpp_once_facts *all = count ? calloc(count, sizeof *all) : NULL;
    for (const struct rpp_lease *lease = rpp_state.leases; all && lease; lease = lease->next)
        for (const struct rpp_once *once = lease->first; once; once = once->next)
            all[i++] = facts_of(lease, once);
    pthread_mutex_unlock(&rpp_state.lock);
    *out_count = i;
    return all;
}

struct rpp_once_block *rpp_once_blocks(int ordinal, struct rpp_pool_id id, size_t *out_count)
{
    size_t count = 0;
    pthread_mutex_lock(&rpp_state.lock);
    const struct rpp_lease *lease = find_lease(ordinal, id);
    const struct rpp_addresses *blocks = &rpp_state.call.blocks;
    struct rpp_once_block *all = blocks->count ? calloc(blocks->count, sizeof *all) : NULL;
    for (size_t i = 0; all && lease && i < blocks->capacity; i++) {
        const struct rpp_block *block = &blocks->slots[i];
        if (block->address && block->once && block->once->lease == lease)
            all[count++] = (struct rpp_once_block){block->address, block->bytes, block->stream};
    }
    pthread_mutex_unlock(&rpp_state.lock);
    *out_count = count;
    return all;
}

struct rpp_once_pool *rpp_once_pools(int ordinal, size_t *out_count)
{
    size_t count = 0;
    pthread_mutex_lock(&rpp_state.lock);
    for (const struct rpp_lease *lease = rpp_state.leases; lease; lease = lease->next)
        count += lease->ordinal == ordinal;
    struct rpp_once_pool *all = count ? calloc(count, sizeof *all) : NULL;
    count = 0;
    for (const struct rpp_lease *lease = rpp_state.leases; all && lease; lease = lease->next) {
        struct rp_pool_info info = {.size = sizeof info};
        if (lease->ordinal != ordinal)
            continue;
        if (lease->pool)
            rp_pool_info(lease->pool, &info);
        all[count++] = (struct rpp_once_pool){lease->id, info.address, info.mapped_bytes};
    }
    pthread_mutex_unlock(&rpp_state.lock);
    *out_count = count;
    return all;
}

rp_status rpp_once_draw(int ordinal, struct rpp_pool_id id, const char *path, struct rp_error *err)
{
    pthread_mutex_lock(&rpp_state.lock);
    const struct rpp_lease *lease = find_lease(ordinal, id);
    rp_status status = RP_ERROR_INVALID_ARGUMENT;
    if (lease && lease->pool)
        status = rp_pool_draw(lease->pool, path, err);
    else
        snprintf(err->message, sizeof err->message, "there is no pool of this id");
    pthread_mutex_unlock(&rpp_state.lock);
    return status;
}
