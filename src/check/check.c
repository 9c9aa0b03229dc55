/* SPDX-License-Identifier: MIT
 *
 * rp_check: what stands in the way of capturing a callable, and whether the graph gives what it
 * gives. Steps:
 *
 *     run      twice, eagerly, from the same contents: it works, and gives the same both times
 *     capture  until nothing new is refused: each call that the capture refuses is noted, and kept
 *              from the driver in the next attempt, so that one check names all of them
 *     replay   on buffers of other addresses, from the same contents and from others: what comes
 *              out must equal the run's to the bit
 *
 * Where a call was kept back, contents mean nothing, and nothing is replayed. The arguments'
 * contents are put back at the end.
 */
#include "check/observe.h"

#include "base/hostmem.h"
#include "base/refuse.h"
#include "base/sized.h"
#include "graph/objects/arguments.h"
#include "graph/objects/objects.h"
#include "graph/verify/trial.h"

#include <stdio.h>
#include <string.h>

enum { MOST_ATTEMPTS = 64 };

struct checking {
    struct rp_device *device;
    const struct rp_driver *driver;
    struct rp_pool *pool;
    struct rp_findings *findings;
    struct rpi_observe observe;
    rp_callable_fn callable;
    void *user;
    const struct rp_arg *args;
    size_t arg_count;
    struct rpi_trial trial;
    struct rpi_twins twins; /* the arguments at other addresses */
    CUstream stream;
    struct rp_graph *graph;
};

/* ---- Contents ------------------------------------------------------------------------------ */

/* Waits for all work, on whatever stream it was left. */
static rp_status wait(const struct checking *c, struct rp_error *err)
{
    CUresult result = c->driver->cuCtxSynchronize();
    if (result == CUDA_SUCCESS)
        return RP_OK;
    return rpi_error_driver(err, result, "cuCtxSynchronize", "waiting for the work of a check");
}

static rp_status read_back(struct checking *c, const struct rp_arg *args, bool other,
                           struct rp_error *err)
{
    rp_status status = wait(c, err);
    return status == RP_OK ? rpi_trial_read(&c->trial, args, other, err) : status;
}

static void note_difference(struct checking *c, const char *kind, const char *operation,
                            const char *what, const char *mend)
{
    size_t k;
    uint64_t byte;
    if (!rpi_trial_differs(&c->trial, &k, &byte))
        return;
    struct rpi_finding *f = rpi_findings_note(c->findings, kind, operation, NULL);
    if (!f)
        return;
    snprintf(f->what, sizeof f->what, "%s: argument %zu differs from byte %llu on", what, k,
             (unsigned long long)byte);
    snprintf(f->mend, sizeof f->mend, "%s", mend);
}

/* ---- Run ----------------------------------------------------------------------------------- */

static void note_error(struct checking *c, const char *kind, const char *operation,
                       const struct rp_error *error, const char *mend)
{
    struct rpi_finding *f = rpi_findings_note(c->findings, kind, operation, NULL);
    if (!f)
        return;
    f->driver_code = error->driver_code;
    snprintf(f->what, sizeof f->what, "%s", error->message);
    snprintf(f->mend, sizeof f->mend, "%s", mend);
}

/* Runs from the contents and reads what came out. *out_ran is false where the callable failed. */
static rp_status run_once(struct checking *c, bool changed, bool other, bool *out_ran,
                          struct rp_error *err)
{
    struct rp_error failure = {0};
    rp_status status = rpi_trial_fill(&c->trial, c->args, changed, err);
    if (status != RP_OK)
        return status;
    *out_ran =
        rp_run(c->pool, c->callable, c->user, c->args, c->arg_count, c->stream, &failure) == RP_OK;
    if (!*out_ran) {
        note_error(c, "fails-eagerly", "rp_run", &failure,
                   "make the callable work without a graph first");
        return RP_OK;
    }
    return read_back(c, c->args, other, err);
}

/* *out_same: two runs gave the same. */
static rp_status run_twice(struct checking *c, bool *out_ran, bool *out_same, struct rp_error *err)
{
    size_t arg;
    uint64_t byte;
    *out_same = false;
    rp_status status = run_once(c, false, false, out_ran, err);
    if (status == RP_OK && *out_ran)
        status = run_once(c, false, true, out_ran, err);
    if (status != RP_OK || !*out_ran)
        return status;
    *out_same = !rpi_trial_differs(&c->trial, &arg, &byte);
    note_difference(c, "not-repeatable", "rp_run",
                    "two runs from the same contents give different results",
                    "random numbers, atomics whose order shows, or state that is no argument: give "
                    "state as an argument; results of a graph cannot be checked otherwise");
    return RP_OK;
}

/* ---- Capture ------------------------------------------------------------------------------- */

/* The callable, watched while it is captured. */
static rp_status watched(struct rp_call *call, void *user, struct rp_error *err)
{
    struct checking *c = user;
    rpi_observe_begin(&c->observe, call);
    rp_status status = c->callable(call, c->user, err);
    rpi_observe_end(&c->observe, call);
    return status;
}

/* What a failed capture that no single call explains is. */
static void note_capture(struct checking *c, const struct rp_error *error)
{
    const struct {
        rp_status status;
        const char *kind, *mend;
    } kinds[] = {
        {RP_ERROR_DIVERGED, "divergence",
         "do the same in each call: give what changes as an argument in device memory"},
        {RP_ERROR_UNSUPPORTED, "unsupported-node", "do this work beside the replay"},
        {RP_ERROR_CALLABLE, "callable-error",
         "return RP_OK while being captured: nothing has run by then"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (error->status == kinds[i].status) {
            note_error(c, kinds[i].kind, "rp_graph_capture", error, kinds[i].mend);
            return;
        }
    bool kept = error->status == RP_ERROR_CAPTURE && !error->driver_code;
    note_error(c, kept ? "kept-address" : "capture-error",
               error->operation[0] ? error->operation : "rp_graph_capture", error,
               kept ? "take every address from the call, not from an earlier one"
                    : "see what `reprise explain` tells of the code");
}

/* Captures until no call is refused any more. */
static rp_status capture(struct checking *c, struct rp_error *err)
{
    struct rpi_watch watch = {.observer = &c->observe.observer};
    for (int attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
        struct rp_error failure = {0};
        size_t kept_back = c->observe.kept_back.count;
        rpi_watch_begin(&watch);
        rp_status status =
            rp_graph_capture(c->pool, NULL, watched, c, c->args, c->arg_count, &c->graph, &failure);
        rpi_watch_end(&watch);
        if (status == RP_OK)
            return RP_OK;
        if (status == RP_ERROR_OUT_OF_HOST_MEMORY || status == RP_ERROR_OUT_OF_DEVICE_MEMORY) {
            if (err)
                *err = failure;
            return status;
        }
        if (kept_back == c->observe.kept_back.count) { /* nothing to be done about it */
            note_capture(c, &failure);
            return RP_OK;
        }
    }
    return RP_OK;
}

/* ---- Replay -------------------------------------------------------------------------------- */

static rp_status replay_once(struct checking *c, bool changed, struct rp_error *err)
{
    rp_status status = rpi_trial_fill(&c->trial, c->twins.args, changed, err);
    if (status == RP_OK) /* whoever reads the run's buffers shall see it */
        status = rpi_trial_fill(&c->trial, c->args, !changed, err);
    if (status == RP_OK)
        status = rp_graph_replay(c->graph, c->twins.args, c->arg_count, c->stream, err);
    return status == RP_OK ? read_back(c, c->twins.args, true, err) : status;
}

static rp_status compare_replays(struct checking *c, struct rp_error *err)
{
    bool ran = true;
    rp_status status = run_once(c, false, false, &ran, err);
    if (status == RP_OK && ran)
        status = replay_once(c, false, err);
    if (status != RP_OK || !ran)
        return status;
    note_difference(c, "other-results", "rp_graph_replay",
                    "a replay on buffers of other addresses gives other results than a run",
                    "an address of the capture is baked in where it cannot be seen: in device "
                    "memory, or in host code. Take addresses from the call, or set copy_args");
    if (c->findings->all.count)
        return RP_OK;
    status = run_once(c, true, false, &ran, err);
    if (status == RP_OK && ran)
        status = replay_once(c, true, err);
    if (status != RP_OK || !ran)
        return status;
    note_difference(c, "frozen-value", "rp_graph_replay",
                    "a replay with other input values gives other results than a run",
                    "a value was read or computed on the host while capturing: keep it on the "
                    "device, or give it as an argument");
    return RP_OK;
}

/* ---- All of it ----------------------------------------------------------------------------- */

static rp_status check(struct checking *c, struct rp_error *err)
{
    bool ran = false, same = false;
    rp_status status = wait(c, err);
    if (status == RP_OK)
        status = rpi_trial_init(&c->trial, c->driver, c->stream, c->args, c->arg_count, err);
    if (status == RP_OK)
        status = rpi_twins_init(&c->twins, c->pool, c->args, c->arg_count, err);
    if (status == RP_OK)
        status = run_twice(c, &ran, &same, err);
    if (status == RP_OK && ran)
        status = capture(c, err);
    bool whole = c->graph && !c->findings->all.count;
    if (status == RP_OK && whole && same)
        status = compare_replays(c, err);
    rp_graph_destroy(c->graph);
    rp_status restored = status == RP_OK ? rpi_trial_fill(&c->trial, c->args, false, err) : status;
    return restored;
}

static rp_status prepare(struct checking *c, struct rp_error *err)
{
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    options.name = "check";
    rp_status status = rp_pool_create(c->device, &options, &c->pool, err);
    if (status != RP_OK)
        return status;
    CUresult result = c->driver->cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamCreate", "making the stream of a check");
    return RP_OK;
}

static rp_status check_pushed(struct checking *c, struct rp_error *err)
{
    rpi_observe_init(&c->observe, c->driver, c->findings);
    rp_status status = prepare(c, err);
    if (status == RP_OK)
        status = check(c, err);
    rpi_observe_finish(&c->observe);
    rpi_twins_finish(&c->twins);
    rpi_trial_finish(&c->trial);
    if (c->stream)
        c->driver->cuStreamDestroy(c->stream);
    rp_pool_destroy(c->pool);
    if (status == RP_OK && c->findings->no_memory)
        status = rpi_error_host_memory(err, "rp_check", sizeof(struct rpi_finding));
    return status;
}

rp_status rp_check(struct rp_device *device, rp_callable_fn callable, void *user,
                   const struct rp_arg *args, size_t arg_count, struct rp_findings **out_findings,
                   struct rp_error *err)
{
    if (rpi_is_forked() || !device || !callable || !out_findings)
        return rpi_refuse(err, "rp_check",
                          !device     ? "device"
                          : !callable ? "callable"
                                      : "out_findings");
    rp_status status = rpi_check_args("rp_check", args, arg_count, err);
    if (status != RP_OK)
        return status;
    struct checking c = {.device = device,
                         .driver = device->driver,
                         .callable = callable,
                         .user = user,
                         .args = args,
                         .arg_count = arg_count};
    c.findings = rpi_calloc(1, sizeof *c.findings);
    if (!c.findings)
        return rpi_error_host_memory(err, "rp_check", sizeof *c.findings);
    status = rp_device_push(device, err);
    if (status == RP_OK) {
        status = check_pushed(&c, err);
        rp_device_pop(device);
    }
    if (status == RP_OK)
        *out_findings = c.findings;
    else
        rp_findings_destroy(c.findings);
    return status;
}
