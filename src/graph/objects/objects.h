/* SPDX-License-Identifier: MIT
 *
 * The objects behind the public handles, and who may touch them.
 *
 *     rp_device   one primary context; owns the addresses that rehearsals use
 *     rp_pool     a group of graphs, and of pools within it
 *     core        memory shared by a pool and all that lie within it; orders their graphs' replays
 *     rp_graph    one exec, the template it came from, and what its arguments are bound to
 *
 * What is held while a callable runs are gates (base/gate.h), which have no order: core.eager_gate,
 * core.capture_gate, device.rehearsal_gate and that of a callable. A callable may ask for others;
 * one that asks for its own, or in a circle with other threads, gets an error, not a deadlock. One
 * that is being captured may neither run nor capture (rpi_gate_for_work): so a run may have a
 * capture in it, and a capture no run, however the threads go.
 *
 * Locks, taken in this order and with no callable under way: device.peers.lock, core.lock, the lock
 * of the cache of execs, of the copier or of the heaps, device.prices.lock. While execs are
 * measured (byte_prices.h) none of a pool or the cache is held.
 */
#ifndef REPRISE_GRAPH_OBJECTS_OBJECTS_H
#define REPRISE_GRAPH_OBJECTS_OBJECTS_H

#include "base/gate.h"
#include "graph/ground/copier.h"
#include "graph/ground/sites.h"
#include "graph/ground/streams.h"
#include "graph/objects/address_owner.h"
#include "graph/objects/byte_prices.h"
#include "graph/objects/contract.h"
#include "graph/objects/reads.h"
#include "graph/objects/staging.h"
#include "memory/heap/watch.h"
#include "memory/pool/pool.h"
#include "memory/range/rehearsal_range.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

struct rpi_adoption;
struct rpi_binding;
struct rpi_exec;
struct rpi_exec_cache;
struct rpi_exec_client;
struct rpi_plans;

struct rp_device {
    const struct rp_driver *driver;
    const struct rp_driver *given; /* the same, watched: what callables call */
    CUdevice handle;
    CUcontext context;
    char name[128];
    int compute_major, compute_minor, multiprocessors;
    uint64_t total_bytes;
    _Atomic size_t pools;
    struct rpi_address_owners address_owners;
    struct rpi_peers peers;
    struct rpi_gate rehearsal_gate; /* one rehearsal at a time */
    struct rpi_rehearsal_range
        rehearsal_range;             /* guarded by rehearsal_gate; made by the first rehearsal */
    struct rpi_exec_cache *execs;    /* owned; has a lock of its own */
    struct rpi_device_prices prices; /* likewise: bytes that execs take */
    struct rpi_copier copier;        /* has a lock of its own */
    struct rpi_streams streams;      /* likewise; of captures */
    struct rpi_heaps heaps;          /* likewise */
    struct {
        pthread_mutex_t lock;
        double best_us; /* that was measured (pace.c); 0: none was */
    } pace;
};

struct rpi_pool_core {
    struct rpi_gate capture_gate; /* one capture at a time; guards stream */
    CUstream stream;              /* captures begin here; nothing but uploads ever runs on it */
    struct rpi_gate eager_gate;   /* one eager run at a time; guards eager */
    struct rpi_arena eager;       /* memory of eager runs */
    pthread_mutex_t lock;         /* guards what follows, and every group and member in it */
    struct rpi_pool memory;
    struct rpi_mapper mapper;   /* of the device's peers */
    struct rpi_staging staging; /* beside the pool's memory */
    struct rpi_plans *plans;    /* guarded by capture_gate */
    struct rp_graph *adopting;  /* its capture by somebody else is under way; NULL: none is */
    bool keeps_plans;           /* of an estimate: captures to come should find its plans */
    struct rpi_readers readers;
    struct rpi_ranges known; /* addresses that were found to be memory of the device */
};

struct rp_pool {
    struct rp_device *device;   /* unowned, outlives the pool */
    struct rp_pool *parent;     /* unowned, outlives the pool; NULL: the outermost */
    struct rpi_pool_core *core; /* owned by the outermost pool */
    char *name;
    unsigned plan_budget_ms;
    enum rp_contract contract;         /* what a breach does; the parent's where that is to warn */
    bool strict_overlap, strict_order; /* or the parent's */
    struct rpi_pool_group group;
};

/* Where a block lies, and from when to when: allocations and frees of a capture are counted in host
 * order. */
struct rpi_graph_block {
    uint64_t offset, bytes; /* as asked for */
    uint32_t first, last;   /* it is alive from first until before last */
    uint32_t stream;        /* of its allocation: number in the capture */
    bool kept;              /* never freed */
    bool let_go;            /* was kept, until the program had no more need of it */
    uint64_t overwritten;   /* turn in which a graph that is no more wrote over it; 0: none did.
                               Guarded by the core's lock */
};

struct rp_graph {
    struct rp_pool *pool; /* unowned, outlives the graph */
    char *name;
    bool adopted; /* somebody else captured it: it has no client, exec or binding */
    struct rpi_adoption *adoption;  /* while that is under way */
    struct rpi_exec_client *client; /* in the device's cache of execs; holds the template */
    struct rpi_exec *exec;          /* guarded by the core's lock, like what is bound in it */
    struct rpi_binding *binding;    /* guarded by the core's lock, but for what the capture fixed */
    size_t arg_count;
    struct rpi_contract contract;
    struct rpi_reads reads;
    struct rpi_heap_watches outside; /* blocks of heaps that nodes name beside the arguments */
    struct rpi_addresses tabled;     /* of others, in what nodes copy from the host */
    struct rpi_sites sites;
    struct rpi_pool_member member;
    struct rpi_graph_block *blocks;
    size_t block_count;
    uint32_t events;           /* positions in the capture's order */
    struct rp_graph_info info; /* fixed after the capture, but for replays */
    uint64_t replays;          /* guarded by the core's lock */
};

static inline struct rp_graph *rpi_graph_of(const struct rpi_pool_member *member)
{
    return (struct rp_graph *)((char *)member - offsetof(struct rp_graph, member));
}

/* Where a block lies in the pool, to the end of what is its own. */
static inline struct rpi_range rpi_block_range(const struct rp_graph *graph, uint32_t block)
{
    const struct rpi_graph_block *b = &graph->blocks[block];
    uint64_t rounded = rpi_round_up(b->bytes, graph->pool->core->memory.alignment);
    return (struct rpi_range){b->offset, b->offset + rounded};
}

#endif
