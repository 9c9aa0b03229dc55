/* SPDX-License-Identifier: MIT
 *
 * rp_advise: reading, then one step after the other. See advice.h.
 */
#include "base/refuse.h"
#include "base/sized.h"
#include "base/status.h"
#include "profile/advice.h"
#include "profile/source.h"

/* The file is opened once, for a pipe gives its bytes once; SQLite opens databases itself. */
static rp_status read_trace(struct rpi_trace *trace, struct rp_error *err)
{
    static const char magic[] = "SQLite format 3"; /* with its NUL */
    struct rpi_source *source = NULL;
    rp_status status = rpi_source_open(trace->file, &source, err);
    if (status != RP_OK)
        return status;
    if (!rpi_source_begins(source, magic, sizeof magic))
        status = rpi_trace_read_chrome(trace, source, err);
    else if (rpi_source_is_file(source))
        status = rpi_trace_read_nsys(trace, err);
    else
        status = rpi_error(err, RP_ERROR_FORMAT, "advise",
                           "%s: is an SQLite database in a pipe, where it can't be read: give its "
                           "file",
                           trace->file);
    rpi_source_destroy(source);
    return status == RP_OK ? rpi_trace_order(trace, err) : status;
}

static rp_status run_steps(struct rp_advice *advice, struct rp_error *err)
{
    rp_status status = read_trace(&advice->trace, err);
    if (status == RP_OK)
        status = rpi_advice_find_iterations(advice, err);
    if (status == RP_OK)
        status = rpi_advice_measure_device(advice, err);
    if (status == RP_OK)
        status = rpi_advice_find_obstacles(advice, err);
    if (status == RP_OK)
        status = rpi_advice_explain_gaps(advice, err);
    if (status == RP_OK)
        status = rpi_advice_judge(advice, err);
    return status;
}

rp_status rp_advise(const char *path, const struct rp_advise_options *options,
                    struct rp_advice **out_advice, struct rp_error *err)
{
    if (!path || !out_advice)
        return rpi_refuse(err, "rp_advise", !path ? "path" : "out_advice");
    struct rp_advise_options chosen = RP_ADVISE_OPTIONS_INIT;
    rp_status status = rpi_take_options(&chosen, sizeof chosen, options, "rp_advise",
                                        "RP_ADVISE_OPTIONS_INIT", err);
    if (status != RP_OK)
        return status;
    if (!path || !out_advice || !(chosen.eager_us >= 0))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_advise",
                         "a path, a place for the advice and a time that is not negative are "
                         "needed");
    struct rp_advice *advice = rpi_calloc(1, sizeof *advice);
    if (!advice || !(advice->file = rpi_strdup(path))) {
        rpi_free(advice);
        return rpi_error_host_memory(err, "rp_advise", sizeof *advice);
    }
    rpi_trace_init(&advice->trace, advice->file);
    advice->given_eager_us = chosen.eager_us;
    status = run_steps(advice, err);
    if (status == RP_OK)
        *out_advice = advice;
    else
        rp_advice_destroy(advice);
    return status;
}

void rp_advice_destroy(struct rp_advice *advice)
{
    if (!advice)
        return;
    rpi_trace_finish(&advice->trace);
    rpi_vec_finish(&advice->iterations);
    rpi_vec_finish(&advice->obstacles);
    rpi_vec_finish(&advice->cuts);
    rpi_vec_finish(&advice->stream_use);
    rpi_free(advice->order);
    rpi_free(advice->rendered);
    rpi_free(advice->file);
    rpi_free(advice);
}

void rp_advice_info(const struct rp_advice *advice, struct rp_advice_info *out_info)
{
    if (!advice || !out_info) {
        rpi_give_nothing(out_info);
        return;
    }
    const struct rpi_iteration *typical = &advice->iterations.data[advice->typical];
    const struct rp_advice_info info = {
        .verdict = advice->verdict,
        .way = advice->way,
        .iterations = advice->iterations.count,
        .kernels = typical->kernels,
        .obstacles = advice->obstacles.count,
        .eager_us = advice->eager_us,
        .graph_us = advice->graph_us,
        .mended_us = advice->mended_us,
        .device_us = advice->device_us,
        .busy_share = typical->span_ns ? (double)typical->busy_ns / (double)typical->span_ns : 1,
    };
    rpi_give(out_info, &info, sizeof info, __func__);
}
