/* SPDX-License-Identifier: MIT
 *
 * rp_advise: reading, then one step after the other. See advice.h.
 */
#include "base/sized.h"
#include "base/status.h"
#include "profile/advice.h"

#include <stdio.h>
#include <string.h>

/* Does the file begin like a database? What cannot be opened is left to the reader to tell. */
static bool is_database(const char *path)
{
    static const char magic[] = "SQLite format 3";
    char first[sizeof magic] = "";
    FILE *file = fopen(path, "rb");
    size_t got = file ? fread(first, 1, sizeof first, file) : 0;
    if (file)
        fclose(file);
    return got == sizeof first && memcmp(first, magic, sizeof magic) == 0;
}

static rp_status run_steps(struct rp_advice *advice, struct rp_error *err)
{
    rp_status status = is_database(advice->file) ? rpi_trace_read_nsys(&advice->trace, err)
                                                 : rpi_trace_read_chrome(&advice->trace, err);
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

void rp_advice_info_sized(const struct rp_advice *advice, size_t info_bytes,
                          struct rp_advice_info *out_info)
{
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
    rpi_give(out_info, info_bytes, &info, sizeof info);
}
