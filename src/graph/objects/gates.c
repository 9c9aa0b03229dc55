/* SPDX-License-Identifier: MIT */
#include "graph/objects/gates.h"

#include "base/refuse.h"
#include "graph/ground/call.h"

#include <assert.h>

static rp_status refuse_own(const char *function, const char *name, struct rp_error *err)
{
    return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                     "%s was called by a callable that is itself run by it (pool '%s'): call the "
                     "inner callable directly",
                     function, name);
}

rp_status rpi_gate_for_callable(struct rpi_gate *gate, const char *function, const char *name,
                                struct rp_error *err)
{
    switch (rpi_gate_take(gate)) {
    case RPI_GATE_TAKEN:
        return RP_OK;
    case RPI_GATE_OWN:
        return refuse_own(function, name, err);
    case RPI_GATE_CIRCLE:
        break;
    }
    return rpi_error(
        err, RP_ERROR_INVALID_ARGUMENT, function,
        "%s was called by a callable and would wait for '%s' forever: another thread "
        "uses that and waits for what this thread's callable is run by. Call the inner "
        "callable directly",
        function, name);
}

rp_status rpi_gate_for_work(struct rpi_gate *gate, const char *function, const char *name,
                            struct rp_error *err)
{
    if (rpi_call_is_capturing())
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "%s was called by a callable whose run is capturing a graph, for '%s': "
                         "call the inner callable directly",
                         function, name);
    return rpi_gate_for_callable(gate, function, name, err);
}

rp_status rpi_adoption_check(const struct rp_pool *pool, const char *function, struct rp_error *err)
{
    assert(rpi_gate_is_own(&pool->core->capture_gate));
    struct rpi_pool_core *core = pool->core;
    rp_status status = RP_OK;
    pthread_mutex_lock(&core->lock);
    if (core->adopting)
        status = rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                           "the capture of '%.60s' into pool '%.60s' is under way: end it first",
                           core->adopting->name, pool->name);
    pthread_mutex_unlock(&core->lock);
    return status;
}
