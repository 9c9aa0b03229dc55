/* SPDX-License-Identifier: MIT
 *
 * rp_estimate: what capturing shapes would take, from rehearsals and plans alone; rp_estimate_add:
 * the same of one capture after the other, where no callable stands for them. Each shape is
 * rehearsed on the device's one chunk and planned in a copy of its pool's tree, in which those
 * before it have their places. Plans are kept for the captures to come, so that these take what was
 * estimated to the byte wherever they do as they did when they were rehearsed.
 */
#include "graph/callable/callable.h"

#include "base/clock.h"
#include "base/hostmem.h"
#include "base/refuse.h"
#include "base/sized.h"
#include "graph/capture/pool_copy.h"
#include "graph/capture/results.h"
#include "graph/exec/exec_cache.h"
#include "graph/objects/arguments.h"
#include "graph/objects/gates.h"

#include <assert.h>
#include <string.h>

/* Shapes of one callable that the estimate has met. */
struct of_callable {
    struct rp_callable *callable;
    struct rpi_shapes shapes;
    uint64_t staging; /* that their buckets need */
};

struct rp_estimate {
    struct {
        RPI_VEC(struct rp_estimate_shape); /* texts belong to what follows */
    } shapes;
    struct {
        RPI_VEC(struct of_callable *);
    } callables;
    struct {
        RPI_VEC(struct rpi_pool_copy *);
    } trees;
    struct {
        RPI_VEC(char *); /* owned: of captures that no callable stands for */
    } names;
    const struct rp_device *device; /* unowned; NULL: nothing was estimated */
    struct rp_estimate_info info;
};

static rp_status no_memory(struct rp_error *err)
{
    return rpi_error_host_memory(err, "rp_estimate", sizeof(struct rp_estimate_shape));
}

void rp_estimate_destroy(struct rp_estimate *estimate)
{
    if (!estimate || rpi_is_forked())
        return;
    for (size_t i = 0; i < estimate->callables.count; i++) {
        rpi_shapes_finish(&estimate->callables.data[i]->shapes);
        rpi_free(estimate->callables.data[i]);
    }
    for (size_t i = 0; i < estimate->trees.count; i++) {
        rpi_pool_copy_finish(estimate->trees.data[i]);
        rpi_free(estimate->trees.data[i]);
    }
    for (size_t i = 0; i < estimate->names.count; i++)
        rpi_free(estimate->names.data[i]);
    rpi_vec_finish(&estimate->names);
    rpi_vec_finish(&estimate->callables);
    rpi_vec_finish(&estimate->trees);
    rpi_vec_finish(&estimate->shapes);
    rpi_free(estimate);
}

/* ---- Finding or making what a shape belongs to --------------------------------------------- */

static struct of_callable *of_callable(struct rp_estimate *estimate, struct rp_callable *callable)
{
    for (size_t i = 0; i < estimate->callables.count; i++)
        if (estimate->callables.data[i]->callable == callable)
            return estimate->callables.data[i];
    struct of_callable *made = rpi_calloc(1, sizeof *made);
    if (!made || !rpi_vec_push(&estimate->callables, made)) {
        rpi_free(made);
        return NULL;
    }
    made->callable = callable;
    return made;
}

static rp_status tree_of(struct rp_estimate *estimate, struct rp_pool *pool,
                         struct rpi_pool_copy **out_tree, struct rp_error *err)
{
    for (size_t i = 0; i < estimate->trees.count; i++)
        if ((*out_tree = estimate->trees.data[i])->of == pool->core)
            return RP_OK;
    struct rpi_pool_copy *tree = rpi_calloc(1, sizeof *tree);
    if (!tree || !rpi_vec_push(&estimate->trees, tree)) {
        rpi_free(tree);
        return no_memory(err);
    }
    *out_tree = tree;
    rp_status status = rpi_pool_copy_init(tree, pool, err);
    if (status != RP_OK) {
        rpi_free(tree);
        estimate->trees.count--;
    }
    return status;
}

/* ---- One shape ----------------------------------------------------------------------------- */

/* An exec holds the nodes of child graphs as well. */
static rp_status count_nodes(const struct rp_device *device, CUgraph template,
                             struct rp_estimate_shape *out, struct rp_error *err)
{
    const struct rp_driver *driver = device->driver;
    const struct rpi_priced priced = rpi_device_prices(device);
    struct rpi_topology topology;
    CUresult result = driver->cuGraphGetNodes(template, NULL, &out->nodes);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphGetNodes", "reading the nodes of a template");
    rp_status status = rpi_topology_read(&topology, driver, template, err);
    if (status != RP_OK)
        return status;
    out->exec_bytes = rpi_exec_bytes(&priced.bytes, topology.charged, topology.paths);
    rpi_topology_finish(&topology);
    return RP_OK;
}

/* A capture that is to be estimated. */
struct subject {
    struct rp_pool *pool;
    const char *name;
    rp_callable_fn callable;
    void *user;
    const struct rp_arg *args;
    size_t arg_count;
    struct rpi_results results; /* to be asked for */
    uint64_t lead_bytes;
};

/* The subject with the results that a rehearsal of its own finds among its arguments, which the
 * caller frees. What a callable does may depend on where these are, so it is rehearsed again. With
 * the capture lock held and the context current. */
static rp_status find_results(struct subject *of, struct rp_arg **out_args, struct rp_error *err)
{
    assert(rpi_gate_is_own(&of->pool->core->capture_gate));
    struct rpi_rehearsal rehearsal;
    if (!of->results.place)
        return RP_OK;
    rp_status status = rpi_rehearse_finding(of->pool, of->name, of->callable, of->user, of->args,
                                            of->arg_count, &rehearsal, err);
    if (status != RP_OK)
        return status;
    status = rpi_results_ask(&of->results, &rehearsal, "rp_estimate_add", of->args, of->arg_count,
                             out_args, &of->arg_count, err);
    if (status == RP_OK)
        of->args = *out_args;
    rpi_rehearsal_finish(&rehearsal, of->pool->device->driver);
    return status;
}

/* With the capture lock held and the context current. */
static rp_status rehearse_and_plan(const struct subject *of, struct rpi_pool_copy *tree,
                                   struct rp_estimate_shape *out, struct rp_error *err)
{
    assert(rpi_gate_is_own(&of->pool->core->capture_gate));
    const struct rp_driver *driver = of->pool->device->driver;
    struct rpi_rehearsal rehearsal;
    const struct rpi_pool_member *member;
    uint64_t start = rpi_clock_ns();
    rp_status status = rpi_rehearse(of->pool, of->name, of->callable, of->user, of->args,
                                    of->arg_count, &rehearsal, err);
    if (status != RP_OK)
        return status;
    status = count_nodes(of->pool->device, rehearsal.template, out, err);
    if (status == RP_OK)
        status = rpi_pool_copy_plan(tree, of->pool, &rehearsal, of->lead_bytes, &member, err);
    if (status == RP_OK) {
        out->planned_bytes = rpi_ranges_top(&member->all);
        out->lower_bound_bytes = member->lower_bound;
    }
    out->ms = rpi_ms_since(start);
    rpi_rehearsal_finish(&rehearsal, driver);
    return status;
}

/* The pool's tree in the estimate, the pool's capture lock held and the context current until
 * leave_tree. */
static rp_status enter_tree(struct rp_estimate *estimate, struct rp_pool *pool,
                            struct rpi_pool_copy **out_tree, struct rp_error *err)
{
    rp_status status = rp_device_exec_learn_prices(pool->device, err);
    if (status == RP_OK)
        status = rpi_gate_for_work(&pool->core->capture_gate, "rp_estimate", pool->name, err);
    if (status != RP_OK)
        return status;
    status = rpi_adoption_check(pool, "rp_estimate", err);
    if (status == RP_OK)
        status = rp_device_push(pool->device, err);
    if (status == RP_OK) {
        status = tree_of(estimate, pool, out_tree, err);
        if (status != RP_OK)
            rp_device_pop(pool->device);
    }
    if (status == RP_OK)
        estimate->device = pool->device;
    else
        rpi_gate_leave(&pool->core->capture_gate);
    return status;
}

static void leave_tree(struct rp_pool *pool)
{
    rp_device_pop(pool->device);
    rpi_gate_leave(&pool->core->capture_gate);
}

/* A shape that was captured already has its place in the tree. */
static void take_captured(const struct rpi_shape *shape, struct rp_estimate_shape *out)
{
    assert(shape->graph);
    struct rp_graph_info graph = {.size = sizeof graph};
    rp_graph_info(shape->graph, &graph);
    out->nodes = graph.nodes;
    out->planned_bytes = graph.planned_bytes;
    out->lower_bound_bytes = graph.lower_bound_bytes;
    out->exec_bytes = graph.exec_bytes;
    out->captured = 1;
}

/* Fails only where the estimate as a whole does: a shape that cannot be rehearsed says so itself.
 */
static rp_status estimate_new(struct rp_estimate *estimate, struct rp_callable *callable,
                              struct rpi_shape *shape, struct rp_error *err)
{
    assert(rpi_gate_is_own(&callable->gate));
    struct rp_estimate_shape made = {.callable = callable, .text = shape->text};
    const struct rpi_shape *captured = rpi_shapes_find(&callable->shapes, &callable->look);
    struct rpi_callable_run run = rpi_callable_run_of(callable);
    const struct subject subject = {.pool = callable->pool,
                                    .name = shape->text,
                                    .callable = rpi_callable_run,
                                    .user = &run,
                                    .args = callable->look.storages,
                                    .arg_count = callable->look.storage_count};
    struct rpi_pool_copy *tree;
    struct rp_error failure = {0};
    rp_status status = enter_tree(estimate, callable->pool, &tree, err);
    if (status != RP_OK)
        return status;
    if (captured && captured->graph)
        take_captured(captured, &made);
    else
        made.status = rehearse_and_plan(&subject, tree, &made, &failure);
    leave_tree(callable->pool);
    if (made.status == RP_ERROR_OUT_OF_HOST_MEMORY || made.status == RP_ERROR_INVALID_ARGUMENT) {
        if (err)
            *err = failure;
        return made.status;
    }
    if (made.status != RP_OK) {
        shape->reason = rpi_strdup(failure.message);
        made.reason = shape->reason ? shape->reason : rp_status_text(made.status);
    }
    return rpi_vec_push(&estimate->shapes, made) ? RP_OK : no_memory(err);
}

/* With the callable's lock held. A shape that the estimate has already counts once. */
static rp_status estimate_one(struct rp_estimate *estimate, struct rp_callable *callable,
                              const struct rp_inputs *inputs, struct rp_error *err)
{
    assert(rpi_gate_is_own(&callable->gate));
    struct of_callable *of = of_callable(estimate, callable);
    struct rpi_shape *shape;
    if (!of)
        return no_memory(err);
    rp_status status = rpi_callable_look(callable, inputs, err);
    if (status == RP_OK && of->staging < callable->buckets.height)
        of->staging = callable->buckets.height;
    if (status != RP_OK || rpi_shapes_find(&of->shapes, &callable->look))
        return status;
    status = rpi_shapes_add(&of->shapes, &callable->look, &shape, err);
    return status == RP_OK ? estimate_new(estimate, callable, shape, err) : status;
}

/* ---- All ----------------------------------------------------------------------------------- */

static void sum_up(struct rp_estimate *estimate)
{
    struct rp_estimate_info *info = &estimate->info;
    *info = (struct rp_estimate_info){.shapes = estimate->shapes.count};
    for (size_t i = 0; i < info->shapes; i++) {
        const struct rp_estimate_shape *shape = &estimate->shapes.data[i];
        info->failed += shape->status != RP_OK;
        info->exec_bytes += shape->exec_bytes;
        info->ms += shape->ms;
    }
    for (size_t i = 0; i < estimate->trees.count; i++) {
        const struct rpi_pool_copy *tree = estimate->trees.data[i];
        struct rpi_pool_core *core = tree->of;
        uint64_t height = rpi_pool_copy_height(tree);
        pthread_mutex_lock(&core->lock);
        uint64_t mapped = rpi_pool_held(&core->memory);
        uint64_t wanted = rpi_round_up(height, core->memory.arena.granularity);
        pthread_mutex_unlock(&core->lock);
        info->planned_bytes += height;
        info->mapped_bytes += mapped > wanted ? mapped : wanted;
        info->lower_bound_bytes += rpi_pool_copy_lower_bound(tree);
    }
    for (size_t i = 0; i < estimate->callables.count; i++) {
        const struct of_callable *of = estimate->callables.data[i];
        const struct rpi_arena *arena = &of->callable->buckets.arena;
        uint64_t wanted = of->staging ? rpi_round_up(of->staging, arena->granularity) : 0;
        info->staging_bytes += arena->mapped > wanted ? arena->mapped : wanted;
    }
    if (estimate->device)
        info->rehearsal_bytes = atomic_load(&estimate->device->rehearsal_range.chunk_bytes);
}

static rp_status estimate_all(struct rp_estimate *estimate, struct rp_callable *const *callables,
                              const struct rp_inputs *inputs, size_t count, struct rp_error *err)
{
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < count; i++) {
        status = rpi_callable_begin(callables[i], &inputs[i], 1, "rp_estimate", err);
        if (status != RP_OK)
            return status;
        status = estimate_one(estimate, callables[i], &inputs[i], err);
        rpi_gate_leave(&callables[i]->gate);
    }
    if (status == RP_OK)
        sum_up(estimate);
    return status;
}

rp_status rp_estimate(struct rp_callable *const *callables, const struct rp_inputs *inputs,
                      size_t count, struct rp_estimate **out_estimate, struct rp_error *err)
{
    if (rpi_is_forked() || !out_estimate || (count && (!callables || !inputs)))
        return rpi_refuse(err, "rp_estimate",
                          !out_estimate ? "out_estimate"
                          : !callables  ? "callables"
                                        : "inputs");
    struct rp_estimate *estimate = rpi_calloc(1, sizeof *estimate);
    if (!estimate)
        return no_memory(err);
    rp_status status = estimate_all(estimate, callables, inputs, count, err);
    if (status == RP_OK)
        *out_estimate = estimate;
    else
        rp_estimate_destroy(estimate);
    return status;
}

/* ---- One after the other -------------------------------------------------------------------- */

rp_status rp_estimate_create(struct rp_estimate **out_estimate, struct rp_error *err)
{
    if (rpi_is_forked() || !out_estimate)
        return rpi_refuse(err, "rp_estimate_create", "out_estimate");
    struct rp_estimate *estimate = rpi_calloc(1, sizeof *estimate);
    if (!estimate)
        return no_memory(err);
    *out_estimate = estimate;
    return RP_OK;
}

/* There is room for one more of each list. */
static rp_status add(struct rp_estimate *estimate, struct subject *subject, struct rp_error *err)
{
    assert(estimate->shapes.count < estimate->shapes.capacity);
    struct rp_estimate_shape made = {.text = subject->name};
    struct rp_arg *with_results = NULL;
    struct rpi_pool_copy *tree;
    rp_status status = enter_tree(estimate, subject->pool, &tree, err);
    if (status != RP_OK)
        return status;
    status = find_results(subject, &with_results, err);
    if (status == RP_OK)
        status = rehearse_and_plan(subject, tree, &made, err);
    leave_tree(subject->pool);
    rpi_free(with_results);
    if (status == RP_OK)
        estimate->shapes.data[estimate->shapes.count++] = made;
    return status;
}

rp_status rp_estimate_add(struct rp_estimate *estimate, struct rp_pool *pool,
                          const struct rp_capture_options *options, rp_callable_fn callable,
                          void *user, const struct rp_arg *args, size_t arg_count,
                          struct rp_error *err)
{
    if (rpi_is_forked() || !estimate || !pool || !callable)
        return rpi_refuse(err, "rp_estimate_add",
                          !estimate ? "estimate"
                          : !pool   ? "pool"
                                    : "callable");
    struct rp_capture_options chosen = RP_CAPTURE_OPTIONS_INIT;
    rp_status status = rpi_take_options(&chosen, sizeof chosen, options, "rp_estimate_add",
                                        "RP_CAPTURE_OPTIONS_INIT", err);
    if (status == RP_OK)
        status = rpi_check_args("rp_estimate_add", args, arg_count, err);
    if (status != RP_OK)
        return status;
    char *name = rpi_strdup(chosen.name ? chosen.name : "graph");
    if (!name || !rpi_vec_reserve(&estimate->shapes, estimate->shapes.count + 1) ||
        !rpi_vec_push(&estimate->names, name)) {
        rpi_free(name);
        return no_memory(err);
    }
    struct subject subject = {.pool = pool,
                              .name = name,
                              .callable = callable,
                              .user = user,
                              .args = args,
                              .arg_count = arg_count,
                              .results = {chosen.results, user},
                              .lead_bytes = chosen.lead_bytes};
    status = add(estimate, &subject, err);
    sum_up(estimate);
    return status;
}

void rp_estimate_info(const struct rp_estimate *estimate, struct rp_estimate_info *out_info)
{
    if (rpi_is_forked() || !estimate || !out_info) {
        rpi_give_nothing(out_info);
        return;
    }
    rpi_give(out_info, &estimate->info, sizeof estimate->info, __func__);
}

int rp_estimate_shape(const struct rp_estimate *estimate, size_t index,
                      struct rp_estimate_shape *out_shape)
{
    if (rpi_is_forked() || !estimate || !out_shape)
        return 0;
    if (index >= estimate->shapes.count)
        return 0;
    const struct rp_estimate_shape *shape = &estimate->shapes.data[index];
    return rpi_give(out_shape, shape, sizeof *shape, __func__);
}
