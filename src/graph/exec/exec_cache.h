/* SPDX-License-Identifier: MIT
 *
 * The cache of execs: one for a device, shared by the graphs of all its pools. Execs take device
 * memory (so many bytes a path and a kernel or copy node, byte_prices.h), so graphs whose templates
 * have one topology take turns in one under a budget of bytes. policy/rent_or_buy.h decides who
 * gets which; here that is done, and its prices in time are learned from doing it.
 *
 *     class    graphs that an exec can be updated between (topology.h)
 *     source   a template and its nodes (exec_source.h)
 *     taken    an exec that a replay is using: nobody updates or destroys it
 *
 * The driver applies an update to later launches, and destroys an exec once its launches are over,
 * so nothing waits for the device. It runs launches of one exec one after the other, so graphs that
 * may run at the same time share one only where the budget has no room for two.
 *
 * An exec that refused an update is not trusted again: it is destroyed, and the graph that was
 * refused gets a class of its own.
 *
 * Any thread; `lock` guards everything but what a replay does with an exec that it has taken. No
 * driver call that may take long is made under it. Locks of pools are taken before it.
 */
#ifndef REPRISE_GRAPH_EXEC_EXEC_CACHE_H
#define REPRISE_GRAPH_EXEC_EXEC_CACHE_H

#include "graph/exec/exec.h"
#include "graph/exec/exec_source.h"
#include "graph/objects/objects.h"
#include "policy/rent_or_buy.h"

#define RPI_EXEC_DEFAULT_BUDGET ((uint64_t)64 << 20)
#define RPI_EXEC_COUNTING_SHARE 4 /* of the budget, from which prices are looked for */

/* What one device time looks like, with changed functions and without. */
struct rpi_exec_time {
    double us;
    unsigned samples;
};

struct rpi_exec_class {
    struct rpi_rent_class rent; /* first, for casts */
    struct rpi_topology topology;
    bool alone;                                                      /* no other graph joins */
    struct rpi_exec_time make, update, launch_plain, launch_updated; /* of the host */
    struct rpi_exec_class *next;
};

struct rpi_cached_exec {
    struct rpi_rent_exec rent; /* first, for casts */
    CUgraphExec handle;        /* NULL while it is made */
    struct rpi_exec_source *source;
    struct rpi_cached_exec *next; /* of those to be destroyed */
};

/* A graph, as the cache sees it. */
struct rpi_exec_client {
    struct rpi_rent_graph rent; /* first, for casts */
    struct rpi_exec_cache *cache;
    struct rpi_exec_source *source;
    const struct rp_graph *graph;
    struct rpi_rent_exec *taken;         /* by the replay under way */
    bool timed, probed;                  /* what the launch under way measures */
    bool updated;                        /* for the launch under way */
    struct rpi_exec_time fresh, changed; /* of the device */
    uint64_t hits, updates, made;
    struct rpi_exec_client *previous, *next;
};

/* Two events around one launch at a time (exec_probe.c). */
struct rpi_exec_probe {
    CUevent start, end;             /* NULL: not made yet */
    struct rpi_exec_client *client; /* NULL: it has left */
    bool changed;
    bool claimed; /* by a launch that is being enqueued */
    bool busy;    /* recorded and not read yet */
};

struct rpi_exec_cache {
    const struct rp_device *device; /* unowned */
    const struct rp_driver *driver;
    pthread_mutex_t lock;
    pthread_cond_t given;
    _Atomic unsigned waiting;
    struct rpi_rent rent;
    struct rpi_exec_class *classes;
    struct rpi_exec_client *clients;
    CUstream stream; /* execs are uploaded through it; made when it is needed first */
    struct rpi_exec_probe probe;
    struct rpi_exec_time make_node, update_node; /* of the host, for classes yet to be measured */
    double slow_share; /* of a replay by a changed exec, beyond that by a fresh one */
    unsigned slow_samples;
    uint64_t hits, updates, refused, made, evicted;
    uint64_t most_bytes;     /* estimated, at any time */
    uint64_t measured_bytes; /* by which free device memory fell while execs were made */
    uint64_t measured_step;  /* least by which it fell for one; 0: it did not */
};

/* A walker, for tests: the rule's books, and who holds which source. Takes the lock; no replay or
 * capture is under way on the device. */
bool rpi_exec_cache_is_valid(struct rpi_exec_cache *cache);

/* With the default budget. */
rp_status rpi_exec_cache_create(struct rpi_exec_cache **out_cache, const struct rp_device *device,
                                struct rp_error *err);
/* Bytes, 0: the default. No graph has joined. */
void rpi_exec_cache_set_budget(struct rpi_exec_cache *cache, uint64_t budget);
/* Learns the prices of execs where that is due and the budget has room (byte_prices.h): as
 * rpi_device_prices_learn. where_they_count: not before execs are thought to take a quarter of the
 * budget. Until then prices that are four times off do it no harm, and most programs never pay the
 * time and the memory. */
void rpi_exec_cache_learn_prices(struct rp_device *device, bool where_they_count);
/* All graphs have left. The context is current. NULL is allowed. */
void rpi_exec_cache_destroy(struct rpi_exec_cache *cache);

/* A graph in the making joins; its exec has been initialised. Where the class has no exec and there
 * is room, one is made at once. The source is the client's on success. */
rp_status rpi_exec_join(struct rpi_exec_cache *cache, const struct rp_graph *graph,
                        struct rpi_exec_source *source, struct rpi_exec_client **out_client,
                        struct rp_error *err);
/* Its replays are over. NULL is allowed. */
void rpi_exec_leave(struct rpi_exec_client *client);

/* Takes an exec for a replay and seats the graph in it. Ends with rpi_exec_give. Guarded by the
 * lock of the graph's pool, like everything of one client. */
rp_status rpi_exec_take(struct rpi_exec_client *client, struct rp_error *err);
/* The exec that is taken does not do: makes another, from the template pointed at what the graph is
 * to be bound to. */
rp_status rpi_exec_renew(struct rpi_exec_client *client, struct rp_error *err);
/* By exec_probe.c. */
CUresult rpi_exec_launch(struct rpi_exec_client *client, CUstream stream);
void rpi_exec_give(struct rpi_exec_client *client);

/* Fills in what the cache knows about the graph. */
void rpi_exec_client_tell(const struct rpi_exec_client *client, struct rp_graph_info *info);

#endif
