/* SPDX-License-Identifier: MIT
 *
 * rp_graph_adopt: the memory of a capture that somebody else begins, ends and replays. Nobody can
 * run it twice, so its blocks are placed online, while it goes on: each takes the memory of dead
 * blocks where the capture's own order proves them dead, around what others of the pool hold.
 *
 *     under way    graph->adoption is set, and the pool's core names the graph: others are not
 *                  captured into the pool meanwhile
 *     over         the graph is a member of its pool like any other, without an exec. What it keeps
 *                  is in the program's hands: nobody is laid there until the program lets it go
 *
 * Locks: adoption.lock stands before core.lock. The pool's capture lock is tried and never waited
 * for: allocators call this with locks of their own.
 */
#include "graph/handles/adopt.h"

#include "base/clock.h"
#include "base/held.h"
#include "base/refuse.h"
#include "base/sized.h"
#include "graph/capture/learning.h"
#include "graph/capture/online.h"
#include "graph/capture/share.h"
#include "graph/handles/graph_object.h"
#include "graph/objects/device_context.h"
#include "graph/objects/gates.h"
#include "reprise_framework.h"

#include <assert.h>
#include <stdio.h>

struct rpi_adoption {
    struct rpi_learning learning; /* first, for casts */
    struct rpi_online online;
    struct rpi_recorded made; /* without a template */
    struct rp_graph *graph;
    pthread_mutex_t lock; /* blocks come from any thread */
    bool broken;          /* host memory ran out half way: no block may be given again */
    uint64_t start_ns;
    char what[96];
};

/* ---- Under way ----------------------------------------------------------------------------- */

static struct rpi_adoption *adoption_of(struct rp_call *call)
{
    return (struct rpi_adoption *)(void *)call;
}

static rp_status place(struct rpi_learning *learning, uint64_t bytes, uint32_t stream,
                       uint64_t *out_address, struct rp_error *err)
{
    struct rpi_adoption *a = (struct rpi_adoption *)(void *)learning;
    uint64_t rounded = rpi_round_up(bytes, learning->pool->core->memory.alignment), address;
    rp_status status =
        rpi_online_look(&a->online, stream, learning->nodes.data, learning->nodes.count, err);
    if (status == RP_OK && !rpi_vec_reserve(&a->made.addresses, a->made.addresses.count + 1))
        status = rpi_error_host_memory(err, "rp_call_alloc", sizeof address);
    if (status == RP_OK)
        status = rpi_online_take(&a->online, rpi_online_find(&a->online, rounded), rounded,
                                 &address, err);
    if (status != RP_OK)
        return status;
    a->made.addresses.data[a->made.addresses.count++] = address;
    *out_address = address;
    return RP_OK;
}

static rp_status give_back(struct rpi_learning *learning, uint32_t block, struct rp_error *err)
{
    struct rpi_adoption *a = (struct rpi_adoption *)(void *)learning;
    return rpi_online_free(&a->online, block, learning->nodes.data, learning->nodes.count, err);
}

/* Any thread may come, and PyTorch's backward threads come without a context. Mapping memory is
 * nothing that a capture of the strictest mode may be bothered with. */
static rp_status enter(struct rpi_adoption *a, int *out_mode, struct rp_error *err)
{
    struct rp_device *device = a->graph->pool->device;
    pthread_mutex_lock(&a->lock);
    rp_status status = rp_device_push(device, err);
    if (status != RP_OK)
        pthread_mutex_unlock(&a->lock);
    else
        *out_mode = rpi_relax_begin(device->driver);
    return status;
}

static void leave(struct rpi_adoption *a, int mode)
{
    struct rp_device *device = a->graph->pool->device;
    rpi_relax_end(device->driver, mode);
    rp_device_pop(device);
    pthread_mutex_unlock(&a->lock);
}

static rp_status refuse_broken(const struct rpi_adoption *a, struct rp_error *err)
{
    return rpi_error(err, RP_ERROR_OUT_OF_HOST_MEMORY, "rp_call_alloc",
                     "%s: host memory ran out before: end the capture and take it again", a->what);
}

static rp_status adopted_alloc(struct rp_call *call, uint64_t bytes, CUstream stream,
                               uint64_t *out_address, struct rp_error *err)
{
    struct rpi_adoption *a = adoption_of(call);
    int mode;
    rp_status status = enter(a, &mode, err);
    if (status != RP_OK)
        return status;
    if (a->broken)
        status = refuse_broken(a, err);
    else
        status = rpi_learning_functions.alloc(call, bytes, stream, out_address, err);
    a->broken |= status == RP_ERROR_OUT_OF_HOST_MEMORY;
    leave(a, mode);
    return status;
}

static rp_status adopted_use(struct rp_call *call, uint64_t address, CUstream stream,
                             struct rp_error *err)
{
    struct rpi_adoption *a = adoption_of(call);
    pthread_mutex_lock(&a->lock);
    rp_status status = a->broken ? RP_OK : rpi_learning_functions.use(call, address, stream, err);
    a->broken |= status == RP_ERROR_OUT_OF_HOST_MEMORY; /* a use that is not known */
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* A block whose end cannot be written down stays its own. */
static rp_status adopted_free(struct rp_call *call, uint64_t address, struct rp_error *err)
{
    struct rpi_adoption *a = adoption_of(call);
    int mode;
    rp_status status = enter(a, &mode, err);
    if (status != RP_OK)
        return status;
    if (!a->broken)
        status = rpi_learning_functions.free(call, address, err);
    a->broken |= status == RP_ERROR_OUT_OF_HOST_MEMORY;
    leave(a, mode);
    return status;
}

/* ---- Beginning ----------------------------------------------------------------------------- */

static rp_status start_learning(struct rpi_adoption *a, struct rp_pool *pool, CUstream stream,
                                struct rp_error *err)
{
    static const struct rpi_call_functions functions = {
        .alloc = adopted_alloc, .use = adopted_use, .free = adopted_free};
    static const struct rpi_learning_steps steps = {.place = place, .give_back = give_back};
    struct rpi_learning *learning = &a->learning;
    uint32_t origin;
    learning->call = (struct rp_call){.functions = &functions, .stream = stream, .captures = true};
    learning->steps = &steps;
    learning->pool = pool;
    learning->record = &a->made.record;
    rp_status status = rpi_run_blocks_stream(&learning->run_blocks, stream, &origin, err);
    if (status == RP_OK)
        status = rpi_capture_adopt(&learning->capture, pool->device->driver, stream,
                                   a->made.record.order, a->what, err);
    return status;
}

static rp_status start_placing(struct rpi_adoption *a, struct rp_pool *pool, struct rp_error *err)
{
    struct rpi_pool_obstacles obstacles;
    rp_status status = rpi_share_obstacles(pool, true, &obstacles, err);
    if (status != RP_OK)
        return status;
    pthread_mutex_lock(&pool->core->lock);
    uint64_t height = rpi_pool_height(&pool->core->memory.root->node);
    pthread_mutex_unlock(&pool->core->lock);
    int mode = rpi_relax_begin(pool->device->driver);
    status =
        rpi_online_begin(&a->online, pool, a->made.record.order, height, &obstacles.always, err);
    rpi_relax_end(pool->device->driver, mode);
    rpi_pool_obstacles_finish(&obstacles);
    return status;
}

static void finish_adoption(struct rpi_adoption *a, const struct rp_driver *driver)
{
    rpi_learning_finish(&a->learning);
    rpi_online_finish(&a->online);
    rpi_recorded_finish(&a->made, driver);
    pthread_mutex_destroy(&a->lock);
    rpi_free(a);
}

static rp_status start(struct rp_graph *graph, CUstream stream, struct rp_error *err)
{
    struct rpi_adoption *a = rpi_calloc(1, sizeof *a);
    if (!a)
        return rpi_error_host_memory(err, "rp_graph_adopt", sizeof *a);
    if (pthread_mutex_init(&a->lock, NULL) != 0) {
        rpi_free(a);
        return rpi_error_host_memory(err, "rp_graph_adopt", sizeof a->lock);
    }
    a->graph = graph;
    a->start_ns = rpi_clock_ns();
    snprintf(a->what, sizeof a->what, "capturing '%.60s'", graph->name);
    rp_status status = rpi_capture_record_init(&a->made.record, graph->name, err);
    if (status == RP_OK)
        status = start_learning(a, graph->pool, stream, err);
    if (status == RP_OK)
        status = start_placing(a, graph->pool, err);
    if (status == RP_OK)
        graph->adoption = a;
    else
        finish_adoption(a, graph->pool->device->driver);
    return status;
}

/* The pool's capture under way is this graph's from now on, or nobody's. */
static void settle(struct rp_graph *graph, struct rp_graph *adopting)
{
    struct rpi_pool_core *core = graph->pool->core;
    pthread_mutex_lock(&core->lock);
    core->adopting = adopting;
    if (!adopting)
        rpi_pool_settle(&core->memory);
    pthread_mutex_unlock(&core->lock);
}

/* With the capture lock held and the context current. */
static rp_status adopt_locked(struct rp_graph *graph, CUstream stream, struct rp_error *err)
{
    assert(rpi_gate_is_own(&graph->pool->core->capture_gate));
    rp_status status = rpi_adoption_check(graph->pool, "rp_graph_adopt", err);
    if (status != RP_OK)
        return status;
    status = start(graph, stream, err);
    settle(graph, status == RP_OK ? graph : NULL);
    return status;
}

static rp_status adopt(struct rp_graph *graph, CUstream stream, struct rp_error *err)
{
    struct rp_pool *pool = graph->pool;
    if (!rpi_gate_try(&pool->core->capture_gate))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_graph_adopt",
                         "another capture into pool '%.60s' is under way: one at a time",
                         pool->name);
    rp_status status = rp_device_push(pool->device, err);
    if (status == RP_OK) {
        status = adopt_locked(graph, stream, err);
        rp_device_pop(pool->device);
    }
    rpi_gate_leave(&pool->core->capture_gate);
    return status;
}

rp_status rp_graph_adopt(struct rp_pool *pool, const struct rp_capture_options *options,
                         struct CUstream_st *stream, struct rp_graph **out_graph,
                         struct rp_call **out_call, struct rp_error *err)
{
    if (rpi_is_forked() || !pool || !out_graph || !out_call)
        return rpi_refuse(err, "rp_graph_adopt",
                          !pool        ? "pool"
                          : !out_graph ? "out_graph"
                                       : "out_call");
    if (!stream)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_graph_adopt",
                         "stream is the legacy stream, which never captures");
    struct rp_capture_options chosen = RP_CAPTURE_OPTIONS_INIT;
    rp_status status = rpi_take_options(&chosen, sizeof chosen, options, "rp_graph_adopt",
                                        "RP_CAPTURE_OPTIONS_INIT", err);
    if (status != RP_OK)
        return status;
    struct rp_graph *graph = rpi_calloc(1, sizeof *graph);
    char *name = graph ? rpi_strdup(chosen.name ? chosen.name : "graph") : NULL;
    if (!name) {
        rpi_free(graph);
        return rpi_error_host_memory(err, "rp_graph_adopt", sizeof *graph);
    }
    graph->pool = pool;
    graph->name = name;
    graph->adopted = true;
    status = adopt(graph, stream, err);
    if (status != RP_OK) {
        rpi_graph_free(graph);
        return status;
    }
    *out_graph = graph;
    *out_call = &graph->adoption->learning.call;
    return RP_OK;
}

/* ---- Over ---------------------------------------------------------------------------------- */

static struct rpi_range addresses_of(const struct rp_graph *graph, uint32_t block)
{
    uint64_t base = graph->pool->core->memory.arena.base;
    struct rpi_range range = rpi_block_range(graph, block);
    return (struct rpi_range){base + range.from, base + range.to};
}

/* Nothing that the program holds is taken for a stray address: not in captures of others either. */
static rp_status hold_kept(struct rp_graph *graph, struct rp_error *err)
{
    struct rp_device *device = graph->pool->device;
    rp_status status = RP_OK;
    size_t held = 0;
    for (uint32_t i = 0; status == RP_OK && i < graph->block_count; i++) {
        held += graph->blocks[i].kept;
        if (graph->blocks[i].kept)
            status = rpi_address_hold(device, addresses_of(graph, i), err);
    }
    if (status == RP_OK && !rpi_vec_reserve(&graph->member.kept, held + 1)) /* for rpi_ranges_cut */
        status = rpi_error_host_memory(err, "rp_graph_adopt_end", held * sizeof(struct rpi_range));
    return status;
}

static void let_all_go(struct rp_graph *graph)
{
    for (uint32_t i = 0; i < graph->block_count; i++)
        if (graph->blocks[i].kept)
            rpi_address_let_go(graph->pool->device, addresses_of(graph, i).from);
}

static struct rp_graph_info make_info(const struct rp_graph *graph)
{
    const struct rpi_adoption *a = graph->adoption;
    const struct rpi_capture_record *record = &a->made.record;
    uint64_t alignment = graph->pool->core->memory.alignment;
    return (struct rp_graph_info){
        .name = graph->name,
        .blocks = record->blocks.count,
        .total_bytes = rpi_capture_record_total(record, alignment),
        .peak_bytes = rpi_capture_record_peak(record, alignment),
        .lower_bound_bytes = graph->member.lower_bound,
        .planned_bytes = rpi_ranges_top(&graph->member.all),
        .record_ms = rpi_ms_since(a->start_ns),
    };
}

/* With the adoption's lock held. */
static rp_status take_down(struct rp_graph *graph, struct rp_error *err)
{
    rp_status status = rpi_share_take_down_alone(graph, &graph->adoption->made, err);
    graph->member.held = true;
    if (status == RP_OK)
        status = hold_kept(graph, err);
    if (status == RP_OK) {
        graph->info = make_info(graph);
        return RP_OK;
    }
    let_all_go(graph);
    rpi_graph_drop_share(graph);
    return status;
}

/* With the context current. */
static void join_pool(struct rp_graph *graph)
{
    struct rpi_pool_core *core = graph->pool->core;
    pthread_mutex_lock(&core->lock);
    rpi_pool_add(&core->memory, &graph->pool->group, &graph->member.node);
    rpi_reads_added(graph);
    pthread_mutex_unlock(&core->lock);
    settle(graph, NULL);
}

rp_status rp_graph_adopt_end(struct rp_graph *graph, struct rp_error *err)
{
    if (rpi_is_forked() || !graph)
        return rpi_refuse(err, "rp_graph_adopt_end", "graph");
    if (!graph || !graph->adoption)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_graph_adopt_end", "%s",
                         !graph           ? "graph is NULL"
                         : graph->adopted ? "the graph's capture has ended already"
                                          : "the graph was captured by rp_graph_capture: only one "
                                            "that was adopted has an end");
    struct rpi_adoption *a = graph->adoption;
    rp_status status = rp_device_push(graph->pool->device, err);
    if (status != RP_OK)
        return status;
    int mode = rpi_relax_begin(graph->pool->device->driver);
    pthread_mutex_lock(&a->lock);
    status = take_down(graph, err);
    pthread_mutex_unlock(&a->lock);
    if (status == RP_OK) {
        join_pool(graph);
        graph->adoption = NULL;
        finish_adoption(a, graph->pool->device->driver);
    }
    rpi_relax_end(graph->pool->device->driver, mode);
    rp_device_pop(graph->pool->device);
    return status;
}

static rp_status refuse_graph(const struct rp_graph *graph, const char *function,
                              struct rp_error *err)
{
    if (rpi_is_forked() || !graph)
        return rpi_refuse(err, function, "graph");
    if (!graph->adopted || graph->adoption)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function, "%s",
                         graph->adopted ? "the graph's capture is under way: use rp_call_free"
                                        : "the graph was not adopted");
    return RP_OK;
}

/* With the core's lock held. */
static rp_status hold_again(struct rp_graph *graph, uint32_t i, struct rp_error *err)
{
    rpi_assert_held(&graph->pool->core->lock);
    assert(graph->adopted && i < graph->block_count);
    struct rpi_range range = rpi_block_range(graph, i);
    if (!rpi_vec_reserve(&graph->member.kept, graph->member.kept.count + 2)) /* one for a cut */
        return rpi_error_host_memory(err, "rp_graph_hold", sizeof range);
    rp_status status = rpi_address_hold(graph->pool->device, addresses_of(graph, i), err);
    if (status != RP_OK)
        return status;
    graph->member.kept.data[graph->member.kept.count++] = range;
    rpi_ranges_join(&graph->member.kept);
    graph->member.kept_bytes += range.to - range.from;
    graph->blocks[i].kept = true;
    graph->blocks[i].let_go = false;
    return RP_OK;
}

rp_status rp_graph_hold(struct rp_graph *graph, uint64_t address, struct rp_error *err)
{
    rp_status refused = refuse_graph(graph, "rp_graph_hold", err);
    if (refused != RP_OK)
        return refused;
    struct rpi_pool_core *core = graph->pool->core;
    uint64_t offset = address - core->memory.arena.base;
    uint32_t i = 0;
    pthread_mutex_lock(&core->lock);
    while (i < graph->block_count &&
           !(graph->blocks[i].let_go && graph->blocks[i].offset == offset))
        i++;
    rp_status status = RP_ERROR_INVALID_ARGUMENT;
    bool found = i < graph->block_count;
    if (found)
        status = hold_again(graph, i, err);
    pthread_mutex_unlock(&core->lock);
    if (!found)
        rpi_error(err, status, "rp_graph_hold",
                  "0x%llx is not the address of a block that graph '%.60s' let go",
                  (unsigned long long)address, graph->name);
    return status;
}

rp_status rp_graph_let_go(struct rp_graph *graph, uint64_t address, struct rp_error *err)
{
    rp_status refused = refuse_graph(graph, "rp_graph_let_go", err);
    if (refused != RP_OK)
        return refused;
    struct rpi_pool_core *core = graph->pool->core;
    uint64_t offset = address - core->memory.arena.base;
    rp_status status = RP_ERROR_INVALID_ARGUMENT;
    pthread_mutex_lock(&core->lock);
    for (uint32_t i = 0; status != RP_OK && i < graph->block_count; i++) {
        struct rpi_graph_block *block = &graph->blocks[i];
        if (!block->kept || block->offset != offset)
            continue;
        struct rpi_range range = rpi_block_range(graph, i);
        rpi_ranges_cut(&graph->member.kept, range.from, range.to);
        graph->member.kept_bytes -= range.to - range.from;
        block->kept = false;
        block->let_go = true;
        rpi_address_let_go(graph->pool->device, address);
        status = RP_OK;
    }
    pthread_mutex_unlock(&core->lock);
    if (status != RP_OK)
        rpi_error(err, status, "rp_graph_let_go",
                  "0x%llx is not the address of a block that graph '%.60s' keeps",
                  (unsigned long long)address, graph->name);
    return status;
}

void rpi_adopted_destroy(struct rp_graph *graph)
{
    struct rp_pool *pool = graph->pool;
    struct rpi_adoption *a = graph->adoption;
    bool pushed = rpi_device_push_to_release(pool->device);
    int mode = rpi_relax_begin(pool->device->driver);
    if (a) {
        graph->adoption = NULL;
        finish_adoption(a, pool->device->driver);
        settle(graph, NULL);
    } else {
        let_all_go(graph);
        pthread_mutex_lock(&pool->core->lock);
        rpi_reads_removed(graph);
        rpi_pool_remove(&pool->core->memory, &graph->member.node);
        pthread_mutex_unlock(&pool->core->lock);
    }
    rpi_relax_end(pool->device->driver, mode);
    if (pushed)
        rp_device_pop(pool->device);
    rpi_graph_free(graph);
}
