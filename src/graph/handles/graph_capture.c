/* SPDX-License-Identifier: MIT
 *
 * rp_graph_capture: rehearse, plan, record, compare, verify, instantiate. When the two captures
 * turn out not to be one graph, all of it is done once more: what a program makes lazily may have
 * been made by then, blocks are aligned as they were recorded, for what is computed from that, and
 * words that may be padding or numbers are told apart (suspects.h). So it is where an address that
 * the callable seems to have kept may be what a call before left on the stack.
 */
#include "graph/objects/objects.h"

#include "base/clock.h"
#include "base/hostmem.h"
#include "base/log.h"
#include "base/refuse.h"
#include "base/sized.h"
#include "graph/bind/copy_choice.h"
#include "graph/capture/compare.h"
#include "graph/capture/results.h"
#include "graph/capture/share.h"
#include "graph/exec/exec_cache.h"
#include "graph/handles/graph_object.h"
#include "graph/objects/arguments.h"
#include "graph/objects/gates.h"
#include "graph/objects/objects.h"
#include "graph/verify/verify.h"
#include "graph/verify/verify_run.h"
#include "reprise_framework.h"

#include <assert.h>

enum { MOST_REHEARSALS = 2, MOST_FOR_LEFT_OVER = 3, MOST_FOR_SUSPECTS = RPI_MOST_ATTEMPTS };

/* What a capture makes on its way to a graph. */
struct capturing {
    struct rp_pool *pool;
    struct rp_graph *graph; /* in the making */
    const char *name;
    rp_callable_fn callable;
    void *user;
    const struct rp_arg *args;
    size_t arg_count;
    struct rpi_results results;  /* to be asked for; place is NULL once they are among args */
    struct rp_arg *with_results; /* args then; owned */
    struct rpi_in_use in_use;
    bool copy_args, may_choose;
    uint64_t lead_bytes;
    enum rp_verify verify;
    uint64_t *staging; /* addresses of the arguments in the record */
    struct rpi_range staging_range;
    struct rpi_rehearsal rehearsal, third; /* the third capture is the second that is taken */
    struct rpi_share_plan plan;
    struct rpi_recorded recorded;
    struct rpi_addresses like;                       /* what the attempt before recorded */
    struct rpi_suspects suspects[MOST_FOR_SUSPECTS]; /* of each attempt */
    struct rpi_comparison comparison;
    struct rpi_verdict verdict;
    size_t rehearsals;
    double rehearse_ms, plan_ms, record_ms, verify_ms, instantiate_ms;
};

static void drop_attempt(struct capturing *c)
{
    const struct rp_driver *driver = c->pool->device->driver;
    rpi_rehearsal_finish(&c->rehearsal, driver);
    rpi_rehearsal_finish(&c->third, driver);
    rpi_recorded_finish(&c->recorded, driver);
    rpi_share_plan_finish(&c->plan);
    rpi_comparison_finish(&c->comparison);
    rpi_verdict_finish(&c->verdict);
}

/* Where the arguments are recorded. */
static rp_status place_args(struct capturing *c, struct rp_error *err)
{
    uint64_t *alignments = rpi_calloc(c->arg_count + 1, sizeof *alignments);
    c->staging = rpi_calloc(c->arg_count + 1, sizeof *c->staging);
    rp_status status = RP_OK;
    if (!alignments || !c->staging)
        status = rpi_error_host_memory(err, "rp_graph_capture", c->arg_count * sizeof *alignments);
    for (size_t k = 0; status == RP_OK && k < c->arg_count; k++)
        alignments[k] = rpi_arg_alignment(c->pool, &c->args[k]);
    if (status == RP_OK)
        status = rpi_staging_place(c->pool, c->args, c->arg_count, alignments, c->staging,
                                   &c->staging_range, err);
    rpi_free(alignments);
    return status;
}

/* Makes arguments of the results that the rehearsal found. */
static rp_status ask_for_results(struct capturing *c, const struct rpi_rehearsal *rehearsal,
                                 struct rp_error *err)
{
    rp_status status = rpi_results_ask(&c->results, rehearsal, "rp_graph_capture", c->args,
                                       c->arg_count, &c->with_results, &c->arg_count, err);
    if (status != RP_OK)
        return status;
    c->args = c->with_results;
    c->results.place = NULL;
    return RP_OK;
}

/* All arguments are known: the graph's contract, and where they are recorded. */
static rp_status know_args(struct capturing *c, struct rp_error *err)
{
    rp_status status = rpi_contract_init(&c->graph->contract, c->args, c->arg_count, err);
    if (status == RP_OK)
        status = place_args(c, err);
    c->graph->arg_count = c->arg_count;
    return status;
}

static rp_status rehearse_first(struct capturing *c, struct rp_error *err)
{
    const struct rpi_rehearse_where where = {.like = &c->like};
    bool finding = c->results.place != NULL;
    rp_status status = finding ? rpi_rehearse_finding(c->pool, c->name, c->callable, c->user,
                                                      c->args, c->arg_count, &c->rehearsal, err)
                               : rpi_rehearse_at(c->pool, c->name, c->callable, c->user, c->args,
                                                 c->arg_count, &where, &c->rehearsal, err);
    if (status == RP_OK && finding)
        status = ask_for_results(c, &c->rehearsal, err);
    if (status == RP_OK && !c->staging)
        status = know_args(c, err);
    return status;
}

static rp_status rehearse(struct capturing *c, struct rp_error *err)
{
    c->rehearsals++;
    uint64_t start = rpi_clock_ns();
    rp_status status = rehearse_first(c, err);
    c->rehearse_ms += rpi_ms_since(start);
    if (status != RP_OK || c->verify == RP_VERIFY_NONE)
        return status;
    start = rpi_clock_ns();
    const struct rpi_rehearse_where where = {.apart = true, .like = &c->like};
    status = rpi_rehearse_at(c->pool, c->name, c->callable, c->user, c->args, c->arg_count, &where,
                             &c->third, err);
    c->verify_ms += rpi_ms_since(start);
    return status;
}

static rp_status verify(struct capturing *c, struct rp_error *err)
{
    if (c->verify == RP_VERIFY_NONE)
        return RP_OK;
    if (c->recorded.scalars.count)
        return rpi_error(err, RP_ERROR_UNSUPPORTED, "rp_graph_capture",
                         "'%.60s': a capture that names scalars (rp_call_scalar) is not verified: "
                         "its third run would have other ones. Leave `verify` at none",
                         c->name);
    uint64_t start = rpi_clock_ns();
    rp_status status = rpi_verify(c->pool->device->driver, &c->rehearsal, &c->third, &c->recorded,
                                  &c->comparison, c->arg_count, &c->verdict, err);
    c->verify_ms += rpi_ms_since(start);
    return status;
}

static rp_status plan(struct capturing *c, struct rp_error *err)
{
    uint64_t start = rpi_clock_ns();
    rp_status status =
        rpi_share_plan(c->pool, &c->rehearsal, c->rehearsals > 1, c->lead_bytes, &c->plan, err);
    c->plan_ms += rpi_ms_since(start);
    return status;
}

static rp_status record_and_compare(struct capturing *c, struct rp_error *err)
{
    uint64_t start = rpi_clock_ns();
    const struct rpi_record_plan planned = {c->plan.offsets, c->plan.height, &c->plan.obstacles};
    rp_status status = rpi_record(c->pool, c->name, c->callable, c->user, c->args, c->staging,
                                  c->arg_count, &c->rehearsal, &planned, &c->recorded, err);
    if (status == RP_OK)
        status =
            rpi_compare(c->pool, &c->rehearsal, &c->recorded, c->arg_count, &c->in_use, c->suspects,
                        c->rehearsals - 1, &c->suspects[c->rehearsals - 1], &c->comparison, err);
    c->record_ms += rpi_ms_since(start);
    return status;
}

/* Rehearses, plans, records, compares and verifies. What was made lies in c, whatever happens. */
static rp_status attempt(struct capturing *c, struct rp_error *err)
{
    rp_status status = rehearse(c, err);
    if (status == RP_OK)
        status = plan(c, err);
    if (status == RP_OK)
        status = record_and_compare(c, err);
    if (status == RP_OK)
        status = verify(c, err);
    if (status == RP_OK)
        status = rpi_share_take_down(c->graph, &c->rehearsal, &c->recorded, &c->plan, err);
    if (status == RP_OK)
        status = rpi_reads_take(c->graph, &c->comparison.foreign, err);
    if (status == RP_OK)
        status =
            rpi_heap_watches_take(&c->graph->outside, &c->pool->device->heaps,
                                  c->comparison.outside.data, c->comparison.outside.count, err);
    return status;
}

/* May the next attempt be better than the latest one, which failed so? */
static bool may_try_again(const struct capturing *c, rp_status status)
{
    if (status != RP_ERROR_DIVERGED)
        return c->comparison.may_be_left_over && c->rehearsals < MOST_FOR_LEFT_OVER;
    const struct rpi_suspects *suspects = &c->suspects[c->rehearsals - 1];
    bool only_suspects = suspects->complete && suspects->found;
    return c->rehearsals < (only_suspects ? MOST_FOR_SUSPECTS : MOST_REHEARSALS);
}

static rp_status capture_twice(struct capturing *c, struct rp_error *err)
{
    for (;;) {
        struct rp_error failure = {0};
        rp_status status = attempt(c, &failure);
        if (status == RP_OK)
            return RP_OK;
        if (!may_try_again(c, status)) {
            if (err)
                *err = failure;
            return status;
        }
        rpi_log(RP_LOG_INFO, "%s; rehearsing once more", failure.message);
        rpi_vec_finish(&c->like);
        c->like = c->recorded.addresses;
        c->recorded.addresses = (struct rpi_addresses){0};
        drop_attempt(c);
        rpi_graph_drop_share(c->graph);
    }
}

/* Memory for arguments that every call copies; what others are copied to waits for the first. */
static rp_status back_copied(struct capturing *c, struct rp_error *err)
{
    struct rpi_pool_core *core = c->pool->core;
    rp_status status = RP_OK;
    pthread_mutex_lock(&core->lock);
    for (size_t k = 0; status == RP_OK && k < c->arg_count; k++) {
        const struct rpi_bind_arg *arg = &c->graph->binding->args[k];
        if (arg->never == RPI_COPY_NOT)
            continue;
        status = rpi_binding_back(c->graph->binding, k, err);
    }
    pthread_mutex_unlock(&core->lock);
    return status;
}

/* Nodes that make the copies of replays, where there may be some. */
static rp_status add_carriers(struct capturing *c, struct rpi_exec_source *source,
                              struct rp_error *err)
{
    struct rp_device *device = c->pool->device;
    struct rpi_copy_nodes *copy_nodes = &c->graph->exec->copy_nodes;
    CUgraphNode added[RPI_COPY_NODE_ENDS];
    size_t count = 0;
    rp_status status =
        rpi_copy_nodes_add(copy_nodes, c->graph->binding, &device->copier, source->template, err);
    if (status != RP_OK)
        return status;
    for (int end = 0; end < RPI_COPY_NODE_ENDS; end++) {
        struct rpi_copy_node *copy_node = &copy_nodes->ends[end];
        if (!copy_node->most)
            continue;
        copy_node->number = (uint32_t)(source->topology.handles.count + count);
        added[count++] = copy_node->node;
    }
    if (!count)
        return RP_OK;
    if (c->graph->binding->choice)
        rpi_copy_choice_carry(c->graph->binding->choice,
                              copy_nodes->ends[RPI_COPY_NODE_IN].most != 0,
                              copy_nodes->ends[RPI_COPY_NODE_OUT].most != 0);
    return rpi_exec_source_extend(source, device->driver, added, count, err);
}

/* Finds out what can be bound, and joins the cache of execs, which makes one where that is due. */
static rp_status make_exec(struct capturing *c, struct rp_error *err)
{
    const struct rp_device *device = c->pool->device;
    struct rp_graph *graph = c->graph;
    struct rpi_binding *binding = graph->binding;
    struct rpi_exec_source *source = NULL;
    rp_status status = rpi_exec_source_create(&source, device->driver, c->recorded.template, err);
    if (status != RP_OK)
        return status;
    c->recorded.template = NULL; /* the source's */
    status = rpi_binding_init(binding, graph, source->topology.handles.data, &c->comparison,
                              &c->recorded, c->args, err);
    for (size_t k = 0; status == RP_OK && c->copy_args && k < c->arg_count; k++)
        rpi_binding_demote(binding, k, RPI_COPY_ASKED);
    if (status == RP_OK && c->verify != RP_VERIFY_NONE)
        rpi_verdict_apply(&c->verdict, c->name, binding);
    if (status == RP_OK)
        status = back_copied(c, err);
    if (status == RP_OK)
        rpi_binding_choose(binding, c->args, NULL); /* an exec is made for memory like this */
    if (status == RP_OK && c->may_choose)
        status = rpi_copy_choice_create(&binding->choice, binding, &c->pool->device->copier, err);
    if (status == RP_OK)
        status = rpi_exec_init(graph->exec, device, binding, err);
    uint64_t start = rpi_clock_ns();
    if (status == RP_OK)
        status = add_carriers(c, source, err);
    if (status == RP_OK)
        status = rpi_exec_join(device->execs, graph, source, &graph->client, err);
    c->instantiate_ms = rpi_ms_since(start);
    if (status != RP_OK)
        rpi_exec_source_destroy(source, device->driver);
    return status;
}

static struct rp_graph_info make_info(const struct capturing *c)
{
    const struct rpi_capture_record *record = &c->recorded.record;
    const struct rpi_pool_member *member = &c->graph->member;
    uint64_t alignment = c->pool->core->memory.alignment;
    return (struct rp_graph_info){
        .name = c->graph->name,
        .nodes = c->comparison.nodes,
        .edges = c->comparison.edges,
        .blocks = record->blocks.count,
        .total_bytes = rpi_capture_record_total(record, alignment),
        .peak_bytes = rpi_capture_record_peak(record, alignment),
        .lower_bound_bytes = member->lower_bound,
        .planned_bytes = rpi_ranges_top(&member->all),
        .diverged_blocks = c->recorded.diverged,
        .sites = c->comparison.sites.count,
        .rehearsals = c->rehearsals,
        .rehearse_ms = c->rehearse_ms,
        .plan_ms = c->plan_ms,
        .record_ms = c->record_ms,
        .instantiate_ms = c->instantiate_ms,
        .verified = c->verify == RP_VERIFY_NONE ? RP_VERIFY_NONE : RP_VERIFY_CAPTURE,
        .verify_ms = c->verify_ms,
        .plan_stopped = member->stopped,
    };
}

static struct rp_graph *make_graph(struct rp_pool *pool, const char *name, struct rp_error *err)
{
    struct rp_graph *graph = rpi_calloc(1, sizeof *graph);
    if (graph) {
        graph->pool = pool;
        graph->name = rpi_strdup(name);
        graph->exec = rpi_calloc(1, sizeof *graph->exec);
        graph->binding = rpi_calloc(1, sizeof *graph->binding);
        if (graph->name && graph->exec && graph->binding)
            return graph;
        rpi_graph_free(graph);
    }
    rpi_error_host_memory(err, "rp_graph_capture", sizeof *graph);
    return NULL;
}

/* Fills the graph with what was captured and takes its place in the pool; c's template and
 * sites become the graph's. */
static rp_status commit(struct capturing *c, struct rp_error *err)
{
    struct rp_graph *graph = c->graph;
    const struct rp_driver *driver = c->pool->device->driver;
    CUresult result = driver->cuEventCreate(&graph->member.done, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuEventCreate", "making the event of graph '%s'",
                                graph->name);
    rp_status status = make_exec(c, err);
    if (status != RP_OK) {
        driver->cuEventDestroy(graph->member.done);
        return status;
    }
    graph->member.staging = c->staging_range;
    graph->info = make_info(c);
    graph->sites = c->comparison.sites;
    c->comparison.sites = (struct rpi_sites){0};
    graph->tabled = c->comparison.tabled;
    c->comparison.tabled = (struct rpi_addresses){0};
    return RP_OK;
}

/* The capture is over: a graph takes its place in the pool, and what was mapped for more than it
 * took is given back. */
static void settle(struct capturing *c, bool captured)
{
    struct rpi_pool_core *core = c->pool->core;
    pthread_mutex_lock(&core->lock);
    if (captured) {
        rpi_pool_add(&core->memory, &c->pool->group, &c->graph->member.node);
        rpi_reads_added(c->graph);
    }
    rpi_pool_settle(&core->memory);
    assert(rpi_pool_is_valid(&core->memory));
    rpi_staging_settle(core);
    pthread_mutex_unlock(&core->lock);
}

/* With the pool's capture lock held and the context current. */
static rp_status capture_locked(struct capturing *c, struct rp_graph **out_graph,
                                struct rp_error *err)
{
    assert(rpi_gate_is_own(&c->pool->core->capture_gate));
    const struct rp_driver *driver = c->pool->device->driver;
    c->graph = make_graph(c->pool, c->name, err);
    if (!c->graph)
        return RP_ERROR_OUT_OF_HOST_MEMORY;
    rp_status status = capture_twice(c, err);
    if (status == RP_OK) {
        int mode = rpi_relax_begin(driver);
        status = commit(c, err);
        rpi_relax_end(driver, mode);
    }
    drop_attempt(c);
    rpi_vec_finish(&c->like);
    for (size_t i = 0; i < MOST_FOR_SUSPECTS; i++)
        rpi_suspects_finish(&c->suspects[i]);
    rpi_free(c->staging);
    settle(c, status == RP_OK);
    if (status == RP_OK)
        *out_graph = c->graph;
    else
        rpi_graph_free(c->graph);
    return status;
}

/* With the context current. */
static rp_status capture(struct capturing *c, struct rp_graph **out_graph, struct rp_error *err)
{
    struct rpi_gate *gate = &c->pool->core->capture_gate;
    rpi_exec_cache_learn_prices(c->pool->device, true); /* an exec is to be made; no lock is held */
    rp_status status = rpi_gate_for_work(gate, "rp_graph_capture", c->pool->name, err);
    if (status != RP_OK)
        return status;
    status = rpi_adoption_check(c->pool, "rp_graph_capture", err);
    if (status == RP_OK)
        status = capture_locked(c, out_graph, err);
    rpi_gate_leave(gate);
    return status;
}

/* Finds the results by a rehearsal that is for nothing else: eager runs need their memory. With the
 * context current. */
static rp_status find_results(struct capturing *c, struct rp_error *err)
{
    struct rpi_gate *gate = &c->pool->core->capture_gate;
    struct rpi_rehearsal rehearsal = {0};
    if (!c->results.place)
        return RP_OK;
    rp_status status = rpi_gate_for_work(gate, "rp_graph_capture", c->pool->name, err);
    if (status != RP_OK)
        return status;
    status = rpi_adoption_check(c->pool, "rp_graph_capture", err);
    if (status == RP_OK)
        status = rpi_rehearse_finding(c->pool, c->name, c->callable, c->user, c->args, c->arg_count,
                                      &rehearsal, err);
    if (status == RP_OK)
        status = ask_for_results(c, &rehearsal, err);
    rpi_rehearsal_finish(&rehearsal, c->pool->device->driver);
    rpi_gate_leave(gate);
    return status;
}

/* The same between an eager run and replays, which have to give the same. */
static rp_status capture_and_run(struct capturing *c, CUstream stream, struct rp_graph **out_graph,
                                 struct rp_error *err)
{
    rp_status status = find_results(c, err);
    if (status != RP_OK)
        return status;
    struct rpi_verify_run run = {.pool = c->pool,
                                 .name = c->name,
                                 .callable = c->callable,
                                 .user = c->user,
                                 .args = c->args,
                                 .arg_count = c->arg_count,
                                 .stream = stream};
    struct rp_graph *graph = NULL;
    status = rpi_verify_run_begin(&run, err);
    if (status == RP_OK)
        status = capture(c, &graph, err);
    if (status == RP_OK)
        status = rpi_verify_run_end(&run, graph, err);
    if (status == RP_OK)
        *out_graph = graph;
    else
        rp_graph_destroy(graph); /* waits for what uses the run's buffers */
    rpi_verify_run_finish(&run);
    return status;
}

rp_status rp_graph_capture(struct rp_pool *pool, const struct rp_capture_options *options,
                           rp_callable_fn callable, void *user, const struct rp_arg *args,
                           size_t arg_count, struct rp_graph **out_graph, struct rp_error *err)
{
    if (rpi_is_forked() || !pool || !callable || !out_graph)
        return rpi_refuse(err, "rp_graph_capture",
                          !pool       ? "pool"
                          : !callable ? "callable"
                                      : "out_graph");
    struct rp_capture_options chosen = RP_CAPTURE_OPTIONS_INIT;
    rp_status status = rpi_take_options(&chosen, sizeof chosen, options, "rp_graph_capture",
                                        "RP_CAPTURE_OPTIONS_INIT", err);
    if (status == RP_OK && chosen.bind != RP_BIND_AUTO && chosen.bind != RP_BIND_ALWAYS)
        status =
            rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_graph_capture",
                      "bind is %d: it may be RP_BIND_AUTO or RP_BIND_ALWAYS", (int)chosen.bind);
    const uint64_t most = pool->core->memory.arena.reserved;
    if (status == RP_OK && chosen.lead_bytes > most)
        status =
            rpi_error(err, RP_ERROR_LIMIT, "rp_graph_capture",
                      "lead_bytes is %llu, and pool '%.60s' has addresses for %llu bytes",
                      (unsigned long long)chosen.lead_bytes, pool->name, (unsigned long long)most);
    if (status == RP_OK)
        status = rpi_verify_check("rp_graph_capture", chosen.verify, err);
    if (status == RP_OK)
        status = rpi_check_args("rp_graph_capture", args, arg_count, err);
    if (status != RP_OK)
        return status;
    struct capturing c = {.pool = pool,
                          .name = chosen.name ? chosen.name : "graph",
                          .callable = callable,
                          .user = user,
                          .args = args,
                          .arg_count = arg_count,
                          .results = {chosen.results, user},
                          .in_use = {chosen.in_use, user},
                          .copy_args = chosen.copy_args,
                          .lead_bytes = chosen.lead_bytes,
                          .verify = chosen.copy_args ? RP_VERIFY_NONE : chosen.verify,
                          .may_choose = !chosen.copy_args && chosen.bind == RP_BIND_AUTO};
    status = rp_device_push(pool->device, err);
    if (status != RP_OK)
        return status;
    status = chosen.verify == RP_VERIFY_RUN ? capture_and_run(&c, chosen.stream, out_graph, err)
                                            : capture(&c, out_graph, err);
    rp_device_pop(pool->device);
    rpi_free(c.with_results);
    return status;
}
