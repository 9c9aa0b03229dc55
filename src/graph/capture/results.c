/* SPDX-License-Identifier: MIT */
#include "graph/capture/results.h"

#include "base/hostmem.h"
#include "graph/objects/arguments.h"

#include <inttypes.h>
#include <string.h>

/* Asks for memory of results whose sizes and roles are set. */
static rp_status ask(const struct rpi_results *results, const char *function,
                     struct rp_arg *asked_for, size_t count, struct rp_error *err)
{
    struct rp_error said = {0};
    rp_status status = results->place(asked_for, count, results->user, &said);
    if (status == RP_OK)
        return RP_OK;
    if (!said.message[0])
        return rpi_error(err, status, function, "there is no memory for %zu results", count);
    said.status = status;
    if (err)
        *err = said;
    return status;
}

static rp_status check_sizes(const struct rpi_rehearsal *rehearsal, const char *function,
                             const struct rp_arg *given, struct rp_error *err)
{
    for (size_t i = 0; i < rehearsal->results.count; i++)
        if (given[i].bytes != rehearsal->results.data[i])
            return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                             "result %zu was named with %" PRIu64 " bytes, and memory for it was "
                             "given with %" PRIu64,
                             i, rehearsal->results.data[i], given[i].bytes);
    return RP_OK;
}

rp_status rpi_results_ask(const struct rpi_results *results, const struct rpi_rehearsal *rehearsal,
                          const char *function, const struct rp_arg *args, size_t arg_count,
                          struct rp_arg **out_args, size_t *out_count, struct rp_error *err)
{
    size_t found = rehearsal->results.count, count = arg_count + found;
    struct rp_arg *all = rpi_calloc(count + 1, sizeof *all);
    if (!all)
        return rpi_error_host_memory(err, function, count * sizeof *all);
    if (arg_count)
        memcpy(all, args, arg_count * sizeof *all);
    for (size_t i = 0; i < found; i++)
        all[arg_count + i] =
            (struct rp_arg){.bytes = rehearsal->results.data[i], .role = RP_ARG_OUT};
    rp_status status = ask(results, function, all + arg_count, found, err);
    if (status == RP_OK)
        status = check_sizes(rehearsal, function, all + arg_count, err);
    if (status == RP_OK)
        status = rpi_check_args(function, all, count, err);
    if (status == RP_OK) {
        *out_args = all;
        *out_count = count;
    } else {
        rpi_free(all);
    }
    return status;
}
