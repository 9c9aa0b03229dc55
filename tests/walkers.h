/* SPDX-License-Identifier: MIT
 *
 * The library's walkers, over a pool at rest: tests ask after each step, in builds without asserts
 * too.
 */
#ifndef REPRISE_TESTS_WALKERS_H
#define REPRISE_TESTS_WALKERS_H

#include "graph/bind/bind.h"
#include "graph/exec/exec_cache.h"
#include "graph/objects/objects.h"

/* What does not hold of a tree of pools, its graphs and the execs of its device; NULL: all does. No
 * replay or capture is under way. */
static inline const char *rpt_walk(const struct rp_pool *pool)
{
    struct rpi_pool_core *core = pool->core;
    const struct rpi_pool_node *top = &core->memory.root->node;
    const char *wrong = NULL;
    pthread_mutex_lock(&core->lock);
    if (!rpi_pool_is_valid(&core->memory))
        wrong = "rpi_pool_is_valid";
    else if (!rpi_readers_are_valid(pool))
        wrong = "rpi_readers_are_valid";
    for (const struct rpi_pool_member *m = rpi_pool_next(top, NULL); !wrong && m;
         m = rpi_pool_next(top, m))
        if (!rpi_graph_of(m)->adopted && !rpi_binding_is_valid(rpi_graph_of(m)->binding))
            wrong = "rpi_binding_is_valid";
    pthread_mutex_unlock(&core->lock);
    if (!wrong && !rpi_exec_cache_is_valid(pool->device->execs))
        wrong = "rpi_exec_cache_is_valid";
    return wrong;
}

#endif
