/* SPDX-License-Identifier: MIT */
#include "graph/ground/call.h"

#include "base/caller.h"
#include "base/refuse.h"
#include "base/stack.h"
#include "driver/watch.h"
#include "reprise_framework.h"

#include <stdio.h>
#include <string.h>

CUstream rp_call_stream(const struct rp_call *call)
{
    if (rpi_is_forked() || !call)
        return NULL;
    return call->stream;
}

uint64_t rp_call_arg(const struct rp_call *call, size_t index)
{
    if (rpi_is_forked() || !call)
        return 0;
    if (call->view)
        return index < call->view->arg_count ? call->view->addresses[index] : 0;
    return index < call->arg_count ? call->args[index] : 0;
}

int rp_call_tensor(const struct rp_call *call, size_t index, struct rp_arg *out_arg)
{
    if (rpi_is_forked() || !call || !out_arg)
        return 0;
    size_t count = call->view ? call->view->arg_count : call->arg_count;
    if (index >= count)
        return 0;
    *out_arg = call->view ? call->view->args[index] : call->given[index];
    out_arg->address = rp_call_arg(call, index);
    return 1;
}

const void *rp_call_key(const struct rp_call *call, size_t *out_bytes)
{
    if (out_bytes)
        *out_bytes = 0;
    if (rpi_is_forked() || !call || !out_bytes)
        return NULL;
    *out_bytes = call->view ? call->view->key_bytes : 0;
    return call->view ? call->view->key : NULL;
}

/* Keeps a failure beside giving it to the callable, who may pass the status on without it. */
static rp_status note(struct rp_call *call, rp_status status, const struct rp_error *failure,
                      struct rp_error *err)
{
    if (status != RP_OK) {
        call->failure = *failure;
        call->failure.status = status;
        if (err)
            *err = *failure;
    }
    return status;
}

rp_status rp_call_alloc(struct rp_call *call, uint64_t bytes, CUstream stream,
                        uint64_t *out_address, struct rp_error *err)
{
    if (rpi_is_forked() || !call || !out_address)
        return rpi_refuse(err, "rp_call_alloc", !call ? "call" : "out_address");
    struct rp_error failure;
    rp_status status = call->functions->alloc(call, bytes, stream, out_address, &failure);
    return note(call, status, &failure, err);
}

rp_status rp_call_use(struct rp_call *call, uint64_t address, CUstream stream, struct rp_error *err)
{
    if (rpi_is_forked() || !call)
        return rpi_refuse(err, "rp_call_use", "call");
    struct rp_error failure;
    rp_status status = call->functions->use(call, address, stream, &failure);
    return note(call, status, &failure, err);
}

rp_status rp_call_free(struct rp_call *call, uint64_t address, struct rp_error *err)
{
    if (rpi_is_forked() || !call)
        return rpi_refuse(err, "rp_call_free", "call");
    struct rp_error failure;
    rp_status status = call->functions->free(call, address, &failure);
    return note(call, status, &failure, err);
}

rp_status rp_call_result(struct rp_call *call, uint64_t bytes, uint64_t block,
                         uint64_t *out_address, struct rp_error *err)
{
    if (rpi_is_forked() || !call || !out_address)
        return rpi_refuse(err, "rp_call_result", !call ? "call" : "out_address");
    struct rp_error failure;
    rp_status status;
    if (call->functions->result)
        status = call->functions->result(call, bytes, block, out_address, &failure);
    else
        status = rpi_error(&failure, RP_ERROR_INVALID_ARGUMENT, "rp_call_result",
                           "this run was not asked for results: they are named in the first run of "
                           "a capture whose options have `results`, and are arguments in the "
                           "runs that follow");
    return note(call, status, &failure, err);
}

int rp_call_is_captured(const struct rp_call *call)
{
    if (rpi_is_forked() || !call)
        return 0;
    return call->captures;
}

static rp_status not_captured(struct rp_error *err, const char *function)
{
    return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                     "this run is not captured by the library: rp_call_is_captured tells");
}

rp_status rp_call_value(struct rp_call *call, uint64_t address, struct rp_error *err)
{
    if (rpi_is_forked() || !call)
        return rpi_refuse(err, "rp_call_value", "call");
    struct rp_error failure;
    rp_status status = call->functions->value ? call->functions->value(call, address, &failure)
                                              : not_captured(&failure, "rp_call_value");
    return note(call, status, &failure, err);
}

rp_status rp_call_scalar(struct rp_call *call, double value, struct rp_error *err)
{
    if (rpi_is_forked() || !call)
        return rpi_refuse(err, "rp_call_scalar", "call");
    struct rp_error failure;
    rp_status status = call->functions->scalar ? call->functions->scalar(call, value, &failure)
                                               : not_captured(&failure, "rp_call_scalar");
    return note(call, status, &failure, err);
}

rp_status rp_call_take_over(struct rp_call *call, struct rp_error *err)
{
    if (rpi_is_forked() || !call)
        return rpi_refuse(err, "rp_call_take_over", "call");
    struct rp_error failure;
    rp_status status = call->functions->take_over ? call->functions->take_over(call, &failure)
                                                  : not_captured(&failure, "rp_call_take_over");
    return note(call, status, &failure, err);
}

rp_status rp_call_begun(struct rp_call *call, struct rp_error *err)
{
    if (rpi_is_forked() || !call)
        return rpi_refuse(err, "rp_call_begun", "call");
    struct rp_error failure;
    rp_status status = call->functions->begun ? call->functions->begun(call, &failure)
                                              : not_captured(&failure, "rp_call_begun");
    return note(call, status, &failure, err);
}

rp_status rp_call_ended(struct rp_call *call, struct CUgraph_st *graph, struct rp_error *err)
{
    if (rpi_is_forked() || !call || !graph)
        return rpi_refuse(err, "rp_call_ended", !call ? "call" : "graph");
    struct rp_error failure;
    rp_status status = call->functions->ended ? call->functions->ended(call, graph, &failure)
                                              : not_captured(&failure, "rp_call_ended");
    return note(call, status, &failure, err);
}

/* Padding in kernel parameters is whatever the stack held. Leftovers of an earlier run of the same
 * callable, among them addresses of its blocks, would be mistaken for parameters; once so much is
 * cleaned the stack below holds the same in every run. */
enum { STACK_CLEAN = 64 * 1024 };

/* Callables of this thread that are under way and captured. */
static _Thread_local unsigned capturing;

bool rpi_call_is_capturing(void)
{
    return capturing > 0;
}

/* The callable's last driver call that failed, in words; "" where none did. */
static void describe_failed(const struct rpi_failed_call *failed, char *out, size_t bytes)
{
    char caller[96];
    out[0] = '\0';
    if (!failed->function)
        return;
    rpi_caller_describe(failed->caller, caller, sizeof caller);
    snprintf(out, bytes, "; its last driver call that failed is %s (call %zu)%s%s: %s (%d)%s",
             failed->function, failed->number, caller[0] ? ", from " : "", caller,
             rpi_result_name(failed->result), (int)failed->result,
             failed->result == CUDA_ERROR_INVALID_CONTEXT
                 ? ": no context is current on the thread that called, which rp_device_push makes"
                 : "");
}

/* Runs it with the thread's calls through the table watched, and tells the last that failed. */
static rp_status run_watched(struct rp_call *call, rp_callable_fn callable, void *user,
                             struct rpi_failed_call *out_failed, struct rp_error *err)
{
    struct rpi_watch eager = {.eager = true};
    if (!call->captures)
        rpi_watch_begin(&eager);
    capturing += call->captures;
    rp_status status = callable(call, user, err);
    capturing -= call->captures;
    const struct rpi_watch *watch = rpi_watch_innermost();
    *out_failed = watch ? watch->last : (struct rpi_failed_call){0};
    if (!call->captures)
        rpi_watch_end(&eager);
    return status;
}

rp_status rpi_call_run(struct rp_call *call, rp_callable_fn callable, void *user, const char *what,
                       struct rp_error *err)
{
    struct rp_error said = {0};
    struct rpi_failed_call last;
    char driver[320];
    rpi_stack_clean(STACK_CLEAN);
    rp_status status = run_watched(call, callable, user, &last, &said);
    bool failed = call->captures && call->failure.status != RP_OK &&
                  call->failure.status != RP_ERROR_INVALID_ARGUMENT;
    if (status == RP_OK && !failed)
        return RP_OK;
    if (failed || status == call->failure.status) {
        if (err)
            *err = call->failure;
        return call->failure.status;
    }
    describe_failed(&last, driver, sizeof driver);
    rpi_error(err, RP_ERROR_CALLABLE, what, "%s: the callable returned %d (%s)%s%.300s%s", what,
              (int)status, rp_status_name(status), said.message[0] ? ": " : "", said.message,
              driver);
    if (err) {
        err->driver_code = said.driver_code ? said.driver_code : (int)last.result;
        memcpy(err->driver_name, said.driver_name, sizeof err->driver_name);
        if (!said.driver_code && last.function)
            snprintf(err->driver_name, sizeof err->driver_name, "%s", rpi_result_name(last.result));
        err->requested = said.requested;
        err->available = said.available;
    }
    return RP_ERROR_CALLABLE;
}
