/* SPDX-License-Identifier: MIT
 *
 * The memory that captures share. How they relate in time is a tree: its leaves are members, one a
 * capture, its inner nodes groups of one kind.
 *
 *     alternatives   never live together: may lie over each other
 *     sequence       run in the order of their adding: what one frees is free for all later ones,
 *                    what it keeps (never frees) is in the way of everything after it that is added
 *                    before it is released
 *     concurrent     may run at the same time: never lie over each other
 *
 * Two members relate as the kind of the lowest group that holds both. A member that is added takes
 * the others as they are: nothing that is recorded in a graph can move.
 *
 * compose_sum.h has the bound of such a tree.
 *
 * Not synchronised; see the arena for contexts and for what may still run.
 */
#ifndef REPRISE_MEMORY_POOL_POOL_H
#define REPRISE_MEMORY_POOL_POOL_H

#include "memory/plan/plan.h"
#include "memory/range/arena.h"
#include "memory/range/ranges.h"

enum { RPI_POOL_MOST_DEPTH = 100 }; /* of groups within groups */

/* Part of a group or a member, always first. */
struct rpi_pool_node {
    enum rpi_compose_kind kind;   /* RPI_COMPOSE_CAPTURE: a member */
    struct rpi_pool_node *parent; /* NULL: the root, or not added */
    struct rpi_pool_node *first, *last, *previous, *next;
    uint32_t depth;
    uint64_t place; /* grows along siblings */
};

/* One capture's share, unowned by the pool. What stands above `stream` is filled in before it is
 * added and fixed then; replay_order.h has the rest. */
struct rpi_pool_member {
    struct rpi_pool_node node;
    struct rpi_ranges all, kept; /* where its blocks lie, joined: all, and those that it keeps */
    uint64_t lower_bound;        /* of its blocks alone */
    bool stopped;                /* its plan was, by the budget */
    uint64_t kept_bytes;
    uint64_t released;        /* the pool's places when what it keeps was released; 0: it was not */
    struct rpi_range staging; /* addresses that its arguments are copied to, beside the pool's */
    CUstream stream;          /* of its last replay */
    CUevent done;             /* recorded behind that */
    uint64_t turn;            /* number of its last replay; 0: none */
    bool busy;                /* done has been recorded and says something */
    bool unmarked;            /* it could not be: all of the stream has to be waited for */
    bool held; /* what it keeps is in the program's hands and everybody's way; others replay it */
};

struct rpi_pool_members {
    RPI_VEC(struct rpi_pool_member *);
};

struct rpi_pool_group {
    struct rpi_pool_node node;
    struct rpi_pool_node *current; /* for replay_order.h, which tells what these are */
    uint64_t since;
    struct rpi_pool_members before, next;
};

struct rpi_pool {
    struct rpi_arena arena;
    uint64_t limit;              /* most bytes to map; 0: none */
    uint64_t alignment;          /* of every block */
    uint64_t beside;             /* device memory that counts against the limit, and is not here */
    uint64_t underway;           /* height that a capture under way has reached; 0: none is */
    struct rpi_pool_group *root; /* unowned */
    uint64_t places, turns;      /* how many were given */
    bool releases;               /* any member was released */
    struct rpi_pool_members ahead;
};

/* root is empty, of its kind, and outlives the pool. */
rp_status rpi_pool_init(struct rpi_pool *pool, struct rpi_pool_group *root,
                        const struct rp_driver *driver, CUdevice device, uint64_t most_bytes,
                        uint64_t limit, uint64_t alignment, struct rp_error *err);
/* Allowed on a zeroed pool. */
void rpi_pool_finish(struct rpi_pool *pool);

/* May the pool take so many bytes more? RP_ERROR_LIMIT otherwise. */
rp_status rpi_pool_check_limit(const struct rpi_pool *pool, uint64_t more, struct rp_error *err);
/* Puts memory behind [0, height) for a capture under way, which keeps it until rpi_pool_settle.
 * Fails with RP_ERROR_LIMIT above the limit, or for want of device memory; then the pool is as it
 * was. */
rp_status rpi_pool_grow(struct rpi_pool *pool, uint64_t height, struct rp_error *err);
/* The same for holes that trimming left under [from, to), which is below such a height. */
rp_status rpi_pool_fill(struct rpi_pool *pool, uint64_t from, uint64_t to, struct rp_error *err);
/* The capture is over, its member added or not: gives back what no member reaches, and holes that
 * were filled for nothing. */
void rpi_pool_settle(struct rpi_pool *pool);
/* Gives back what no member needs, holes between them too. No capture is under way. */
void rpi_pool_trim(struct rpi_pool *pool);

/* The node, a member or an empty group, becomes the last of a group of the pool, which borrows it
 * until it is removed. */
void rpi_pool_add(struct rpi_pool *pool, struct rpi_pool_group *group, struct rpi_pool_node *node);
/* Its replays are over, and a group is empty. What lies above all other members is given back to
 * the device, all else to captures to come. Does nothing to a node that was not added. */
void rpi_pool_remove(struct rpi_pool *pool, struct rpi_pool_node *node);
/* What the member keeps is in the way of nothing that is added from now on. It was added. */
void rpi_pool_release(struct rpi_pool *pool, struct rpi_pool_member *member);
void rpi_pool_member_finish(struct rpi_pool_member *member);
void rpi_pool_group_finish(struct rpi_pool_group *group);

/* The member after `member` below `top`, in order; the first after NULL; NULL after the last. */
const struct rpi_pool_member *rpi_pool_next(const struct rpi_pool_node *top,
                                            const struct rpi_pool_member *member);
/* How nodes a and b, neither above the other, relate; *out_a_first: a was added first, or what
 * holds it. */
enum rpi_compose_kind rpi_pool_relation(const struct rpi_pool_node *a,
                                        const struct rpi_pool_node *b, bool *out_a_first);

/* A walker, for tests and debug builds: is the tree linked as it says, does memory lie behind every
 * block, and are those apart that may live together? No capture is under way. */
bool rpi_pool_is_valid(const struct rpi_pool *pool);

/* Device memory behind the pool. */
static inline uint64_t rpi_pool_held(const struct rpi_pool *pool)
{
    return pool->arena.mapped - pool->arena.holes;
}
/* Of all below a group: the highest end of a block, the bound, and how many there are. */
uint64_t rpi_pool_height(const struct rpi_pool_node *top);
uint64_t rpi_pool_lower_bound(const struct rpi_pool *pool, const struct rpi_pool_node *top);
size_t rpi_pool_count(const struct rpi_pool_node *top);

#endif
