/* SPDX-License-Identifier: MIT */
#include "graph/verify/verify_run.h"

#include "base/hostmem.h"
#include "base/log.h"
#include "graph/bind/bind.h"
#include "graph/capture/rehearse.h"
#include "graph/objects/gates.h"
#include "graph/objects/objects.h"
#include "graph/template/view.h"

#include <assert.h>
#include <string.h>

void rpi_verify_run_finish(struct rpi_verify_run *run)
{
    for (int i = 0; i < RPI_VERIFY_SETS; i++)
        rpi_twins_finish(&run->twins[i]);
    rpi_trial_finish(&run->trial);
}

/* ---- What running would change --------------------------------------------------------------- */

struct looking {
    const struct rpi_verify_run *run;
    const struct rpi_rehearsal_range *rehearsal_range;
    struct rpi_params params;
    const char *effect; /* NULL: none was seen */
};

/* Does any word name a block of an earlier graph? */
static bool names_others(const struct looking *look)
{
    const struct rpi_params *params = &look->params;
    for (size_t i = 0; i < params->fields.count; i++) {
        const struct rpi_field *field = &params->fields.data[i];
        uint32_t end = field->offset + field->bytes, offset = (field->offset + 3u) & ~3u;
        for (; field->kind != RPI_FIELD_HOST && offset + 8 <= end; offset += 4) {
            struct rpi_foreign foreign;
            uint64_t word;
            memcpy(&word, params->image.data + offset, sizeof word);
            rpi_reads_find(look->run->pool, word, &foreign);
            if (foreign.kind == RPI_FOREIGN_KEPT)
                return true;
        }
    }
    return false;
}

/* What the node read last would change; NULL: nothing that can be seen. In a rehearsal all that is
 * the run's own lies at addresses of rehearsals. */
static const char *effect_of(const struct looking *look)
{
    const struct rpi_params *params = &look->params;
    uint64_t to = 0;
    if (params->type == CU_GRAPH_NODE_TYPE_HOST)
        return "the callable has functions called on the host";
    if (names_others(look))
        return "the callable uses blocks of other graphs";
    if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        CUDA_MEMCPY3D copy;
        memcpy(&copy, params->image.data, sizeof copy);
        if (copy.dstMemoryType == CU_MEMORYTYPE_HOST || copy.dstMemoryType == CU_MEMORYTYPE_ARRAY)
            return "the callable copies to memory that is no argument";
        to = copy.dstDevice;
    } else if (params->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        CUDA_MEMSET_NODE_PARAMS fill;
        memcpy(&fill, params->image.data, sizeof fill);
        to = fill.dst;
    } else {
        return NULL;
    }
    return rpi_rehearsal_range_holds(look->rehearsal_range, to)
               ? NULL
               : "the callable copies to memory that is no argument";
}

static rp_status look_at_graph(struct looking *look, CUgraph graph, struct rp_error *err)
{
    const struct rp_driver *driver = look->run->pool->device->driver;
    struct rpi_template_view view = {0};
    rp_status status = rpi_view_read(&view, driver, graph, err);
    for (size_t i = 0; status == RP_OK && !look->effect && i < view.node_count; i++) {
        status = rpi_params_read(&look->params, driver, view.nodes[i], err);
        if (status == RP_OK)
            look->effect = effect_of(look);
        if (status == RP_OK && look->params.child)
            status = look_at_graph(look, look->params.child, err);
    }
    rpi_view_finish(&view);
    return status;
}

/* With the pool's capture lock held. */
static rp_status look_at_rehearsal(struct rpi_verify_run *run, struct rp_error *err)
{
    assert(rpi_gate_is_own(&run->pool->core->capture_gate));
    struct rpi_rehearsal rehearsal;
    struct looking look = {.run = run, .rehearsal_range = &run->pool->device->rehearsal_range};
    rp_status status = rpi_rehearse(run->pool, run->name, run->callable, run->user, run->args,
                                    run->arg_count, &rehearsal, err);
    if (status != RP_OK)
        return status;
    if (rehearsal.values)
        look.effect = "the callable has values that only a replay is given";
    else
        status = look_at_graph(&look, rehearsal.template, err);
    rpi_params_finish(&look.params);
    rpi_rehearsal_finish(&rehearsal, run->pool->device->driver);
    if (status == RP_OK)
        run->instead = look.effect;
    return status;
}

static rp_status look_for_effects(struct rpi_verify_run *run, struct rp_error *err)
{
    struct rpi_gate *gate = &run->pool->core->capture_gate;
    rp_status status = rpi_gate_for_work(gate, "rp_graph_capture", run->pool->name, err);
    if (status != RP_OK)
        return status;
    status = rpi_adoption_check(run->pool, "rp_graph_capture", err);
    if (status == RP_OK)
        status = look_at_rehearsal(run, err);
    rpi_gate_leave(gate);
    return status;
}

/* Why the arguments' contents cannot be had; NULL: they can. */
static const char *lacking(const struct rpi_verify_run *run)
{
    const struct rp_driver *driver = run->pool->device->driver;
    for (size_t k = 0; k < run->arg_count; k++) {
        const struct rp_arg *arg = &run->args[k];
        CUmemorytype type = 0;
        if (!arg->bytes || !(arg->role & RP_ARG_IN))
            continue;
        if (!arg->address)
            return "an argument that is read has no address, so no contents";
        if (driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, arg->address) !=
                CUDA_SUCCESS ||
            type != CU_MEMORYTYPE_DEVICE)
            return "an argument that is read is no device memory";
    }
    return NULL;
}

/* ---- Running ------------------------------------------------------------------------------- */

/* On buffers that have the arguments' contents, while the others have something else. */
static rp_status fill(struct rpi_verify_run *run, struct rp_error *err)
{
    assert(run->turn < RPI_VERIFY_SETS && !run->instead);
    rp_status status = RP_OK;
    for (int i = 0; status == RP_OK && i < RPI_VERIFY_SETS; i++)
        status = rpi_trial_fill(&run->trial, run->twins[i].args, i != run->turn, err);
    return status;
}

static rp_status run_eagerly(struct rpi_verify_run *run, bool other, struct rp_error *err)
{
    const struct rp_arg *args = run->twins[run->turn].args;
    rp_status status = fill(run, err);
    if (status == RP_OK)
        status =
            rp_run(run->pool, run->callable, run->user, args, run->arg_count, run->stream, err);
    return status == RP_OK ? rpi_trial_read(&run->trial, args, other, err) : status;
}

/* *out_same: what came out is what the first eager run gave. */
static rp_status replay_once(struct rpi_verify_run *run, struct rp_graph *graph, bool *out_same,
                             struct rp_error *err)
{
    size_t arg;
    uint64_t byte;
    const struct rp_arg *args = run->twins[run->turn].args;
    rp_status status = fill(run, err);
    if (status == RP_OK)
        status = rp_graph_replay(graph, args, run->arg_count, run->stream, err);
    if (status == RP_OK)
        status = rpi_trial_read(&run->trial, args, true, err);
    if (status == RP_OK)
        *out_same = !rpi_trial_differs(&run->trial, &arg, &byte);
    run->turn = RPI_VERIFY_SETS - run->turn;
    return status;
}

/* What outputs hold before a run is what no run should give: their contents at the capture may be
 * the results of an earlier one. */
static void spoil_outputs(struct rpi_trial *trial)
{
    enum { SPOILED = 0xa5 };
    for (size_t k = 0; k < trial->arg_count; k++)
        if (trial->args[k].role == RP_ARG_OUT)
            memset(trial->args[k].before, SPOILED, trial->args[k].bytes);
}

static rp_status make_buffers(struct rpi_verify_run *run, struct rp_error *err)
{
    rp_status status = rpi_trial_init(&run->trial, run->pool->device->driver, run->stream,
                                      run->args, run->arg_count, err);
    spoil_outputs(&run->trial);
    for (int i = 0; status == RP_OK && i < RPI_VERIFY_SETS; i++)
        status = rpi_twins_init(&run->twins[i], run->pool, run->args, run->arg_count, err);
    return status;
}

static rp_status run_twice(struct rpi_verify_run *run, struct rp_error *err)
{
    size_t arg;
    uint64_t byte;
    rp_status status = run_eagerly(run, false, err);
    if (status == RP_OK)
        status = run_eagerly(run, true, err);
    if (status == RP_OK && rpi_trial_differs(&run->trial, &arg, &byte))
        run->instead = "two runs of the callable give different results";
    run->turn = 1;
    return status;
}

rp_status rpi_verify_run_begin(struct rpi_verify_run *run, struct rp_error *err)
{
    struct rp_error failure = {0};
    rp_status status = RP_OK;
    run->instead = lacking(run);
    if (!run->instead)
        status = look_for_effects(run, err);
    if (status != RP_OK || run->instead)
        return status;
    status = make_buffers(run, &failure);
    if (status == RP_ERROR_OUT_OF_DEVICE_MEMORY) {
        run->instead = "there is no device memory for three more sets of the arguments";
        return RP_OK;
    }
    if (status == RP_OK)
        status = run_twice(run, &failure);
    if (status != RP_OK && err)
        *err = failure;
    return status;
}

/* ---- Whose binding it is --------------------------------------------------------------------- */

struct blaming {
    struct rpi_verify_run *run;
    struct rp_graph *graph;
    uint32_t *args; /* that are bound, as far as is known */
    bool *guilty;   /* of these */
    size_t count;
};

/* Has args[first .. end) bound and the others of the list copied. */
static void bind_some(const struct blaming *b, size_t first, size_t end)
{
    assert(first <= end && end <= b->count);
    struct rpi_binding *binding = b->graph->binding;
    pthread_mutex_t *lock = &b->graph->pool->core->lock;
    pthread_mutex_lock(lock);
    for (size_t i = 0; i < b->count; i++) {
        struct rpi_bind_arg *arg = &binding->args[b->args[i]];
        bool bound = i >= first && i < end && !b->guilty[i];
        if (arg->never == RPI_COPY_NOT || arg->never == RPI_COPY_WRONG)
            arg->never = bound ? RPI_COPY_NOT : RPI_COPY_WRONG;
    }
    binding->chosen = false;
    binding->renewals = 0; /* copies that go elsewhere may need another exec each time */
    pthread_mutex_unlock(lock);
}

/* Replays with other inputs and all arguments copied: what they are copied to is an old binding
 * too, and holds something else then. */
static rp_status change_copies(const struct blaming *b, struct rp_error *err)
{
    struct rpi_verify_run *run = b->run;
    const struct rp_arg *args = run->twins[run->turn].args;
    bind_some(b, 0, 0);
    rp_status status = rpi_trial_fill(&run->trial, args, true, err);
    if (status == RP_OK)
        status = rp_graph_replay(b->graph, args, run->arg_count, run->stream, err);
    return status;
}

static rp_status try_some(const struct blaming *b, size_t first, size_t end, bool *out_same,
                          struct rp_error *err)
{
    rp_status status = change_copies(b, err);
    if (status != RP_OK)
        return status;
    bind_some(b, first, end);
    return replay_once(b->run, b->graph, out_same, err);
}

/* Finds the guilty among args[first .. end), which together give something wrong. */
static rp_status find_guilty(struct blaming *b, size_t first, size_t end, struct rp_error *err)
{
    assert(first <= end && end <= b->count);
    size_t middle = first + (end - first) / 2, halves[] = {first, middle, end};
    bool any = false;
    rp_status status = RP_OK;
    for (int half = 0; status == RP_OK && end - first > 1 && half < 2; half++) {
        bool same = true;
        status = try_some(b, halves[half], halves[half + 1], &same, err);
        if (status == RP_OK && !same)
            status = find_guilty(b, halves[half], halves[half + 1], err);
        any |= !same;
    }
    for (size_t i = first; !any && i < end; i++) /* one, or such as are wrong only together */
        b->guilty[i] = true;
    return status;
}

static rp_status still_wrong(const struct rpi_verify_run *run, struct rp_error *err)
{
    size_t arg = 0;
    uint64_t byte = 0;
    rpi_trial_differs(&run->trial, &arg, &byte);
    return rpi_error(err, RP_ERROR_CAPTURE, "rp_graph_capture",
                     "'%.60s': replays give other results than the callable itself, with all "
                     "arguments copied too: argument %zu differs from byte %llu on. Something is "
                     "read or computed on the host while capturing, or lies in memory that is no "
                     "argument: keep it on the device and give it as an argument",
                     run->name, arg, (unsigned long long)byte);
}

static void say_guilty(const struct blaming *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->guilty[i])
            rpi_log(RP_LOG_WARNING,
                    "'%.60s': argument %u is copied in every replay: bound, it makes them give "
                    "other results than an eager run",
                    b->run->name, b->args[i]);
}

/* With the lists made. */
static rp_status blame_listed(struct blaming *b, struct rp_error *err)
{
    bool same = false;
    rp_status status = try_some(b, 0, 0, &same, err);
    if (status == RP_OK && !same)
        return still_wrong(b->run, err);
    if (status == RP_OK)
        status = find_guilty(b, 0, b->count, err);
    for (int i = 0; status == RP_OK && same && i < 2; i++)
        status = try_some(b, 0, b->count, &same, err);
    if (status == RP_OK && !same) {
        for (size_t i = 0; i < b->count; i++)
            b->guilty[i] = true;
        bind_some(b, 0, 0);
    }
    if (status == RP_OK)
        say_guilty(b);
    return status;
}

static rp_status blame(struct rpi_verify_run *run, struct rp_graph *graph, struct rp_error *err)
{
    struct blaming b = {.run = run, .graph = graph};
    b.args = rpi_calloc(run->arg_count + 1, sizeof *b.args);
    b.guilty = rpi_calloc(run->arg_count + 1, sizeof *b.guilty);
    rp_status status = RP_OK;
    if (b.args && b.guilty) {
        for (uint32_t k = 0; k < run->arg_count; k++)
            if (graph->binding->args[k].never == RPI_COPY_NOT && run->args[k].bytes)
                b.args[b.count++] = k;
        status = blame_listed(&b, err);
    } else {
        status = rpi_error_host_memory(err, "rp_graph_capture", run->arg_count * sizeof *b.args);
    }
    rpi_free(b.args);
    rpi_free(b.guilty);
    return status;
}

/* ---- Replaying ----------------------------------------------------------------------------- */

/* Would a replay write over a block that a graph reads of another? */
static bool writes_over_read(const struct rp_graph *graph)
{
    struct rpi_pool_core *core = graph->pool->core;
    bool found = false;
    pthread_mutex_lock(&core->lock);
    for (const struct rp_graph *r = core->readers.first; r; r = r->reads.next)
        for (size_t i = 0; i < r->reads.sources.count; i++) {
            struct rpi_range range = r->reads.sources.data[i].range;
            found |= rpi_ranges_overlap(&graph->member.all, range.from, range.to);
        }
    pthread_mutex_unlock(&core->lock);
    return found;
}

/* What is copied by choice would not be verified: returns what chooses, to be put back. */
static struct rpi_copy_choice *bind_all(struct rp_graph *graph)
{
    pthread_mutex_lock(&graph->pool->core->lock);
    struct rpi_copy_choice *choice = graph->binding->choice;
    graph->binding->choice = NULL;
    pthread_mutex_unlock(&graph->pool->core->lock);
    return choice;
}

/* As if the graph had not been replayed: nobody may read what it keeps, and the buffers that it was
 * replayed on are about to go. */
static void forget(struct rp_graph *graph, struct rpi_copy_choice *choice)
{
    struct rpi_pool_core *core = graph->pool->core;
    pthread_mutex_lock(&core->lock);
    graph->replays = 0;
    graph->reads.written = 0;
    graph->binding->renewals = 0;
    graph->binding->choice = choice;
    core->known.count = 0;
    memset(graph->contract.accepted, 0, graph->arg_count * sizeof *graph->contract.accepted);
    pthread_mutex_unlock(&core->lock);
}

rp_status rpi_verify_run_end(struct rpi_verify_run *run, struct rp_graph *graph,
                             struct rp_error *err)
{
    if (!run->instead && writes_over_read(graph))
        run->instead = "its replays would overwrite a block that another graph reads";
    graph->info.not_run = run->instead;
    if (run->instead)
        return RP_OK;
    struct rpi_copy_choice *choice = bind_all(graph);
    bool same = true;
    rp_status status = RP_OK;
    for (int i = 0; status == RP_OK && same && i < 2; i++)
        status = replay_once(run, graph, &same, err);
    if (status == RP_OK && !same)
        status = blame(run, graph, err);
    forget(graph, choice);
    if (status == RP_OK)
        graph->info.verified = RP_VERIFY_RUN;
    return status;
}
