/* SPDX-License-Identifier: MIT */
#include "graph/objects/contract.h"

#include "base/hostmem.h"
#include "graph/objects/objects.h"

#include <inttypes.h>

rp_status rpi_contract_init(struct rpi_contract *contract, const struct rp_arg *args,
                            size_t arg_count, struct rp_error *err)
{
    struct rpi_contract made = {.args = rpi_calloc(arg_count + 1, sizeof *made.args),
                                .roles = rpi_calloc(arg_count + 1, sizeof *made.roles),
                                .accepted = rpi_calloc(arg_count + 1, sizeof *made.accepted),
                                .arg_count = arg_count};
    rp_status status = RP_OK;
    if (!made.args || !made.roles || !made.accepted)
        status = rpi_error_host_memory(err, "rp_graph_capture", arg_count * sizeof *made.args);
    for (size_t i = 0; status == RP_OK && i < arg_count; i++) {
        made.roles[i] = args[i].role;
        status = rpi_tensor_init(&made.args[i], &args[i], err);
    }
    if (status == RP_OK)
        *contract = made;
    else
        rpi_contract_finish(&made);
    return status;
}

void rpi_contract_finish(struct rpi_contract *contract)
{
    for (size_t i = 0; contract->args && i < contract->arg_count; i++)
        rpi_tensor_finish(&contract->args[i]);
    rpi_free(contract->args);
    rpi_free(contract->roles);
    rpi_free(contract->accepted);
    *contract = (struct rpi_contract){0};
}

/* ---- Arguments ----------------------------------------------------------------------------- */

static const char *role_name(enum rp_arg_role role)
{
    switch (role) {
    case RP_ARG_IN:
        return "in";
    case RP_ARG_OUT:
        return "out";
    case RP_ARG_INOUT:
        return "inout";
    }
    return "no role";
}

static rp_status check_arg(const struct rp_graph *graph, size_t i, const struct rp_arg *arg,
                           struct rp_error *err)
{
    const struct rpi_tensor *captured = &graph->contract.args[i];
    enum rp_arg_role role = graph->contract.roles[i];
    if (!rpi_tensor_is(captured, arg))
        return rpi_tensor_refuse(captured, arg, graph->name, i, err);
    if (arg->bytes != captured->bytes)
        return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay",
                         "argument %zu of graph '%s' had %" PRIu64
                         " bytes when it was captured and has %" PRIu64
                         " now: capture a graph for this size",
                         i, graph->name, captured->bytes, arg->bytes);
    if (arg->role != role)
        return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay",
                         "argument %zu of graph '%s' was '%s' when it was captured and is '%s' now",
                         i, graph->name, role_name(role), role_name(arg->role));
    if (arg->bytes && !arg->address)
        return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay",
                         "argument %zu of graph '%s' (%" PRIu64 " bytes) has no address", i,
                         graph->name, arg->bytes);
    return RP_OK;
}

rp_status rpi_contract_check_args(const struct rp_graph *graph, const struct rp_arg *args,
                                  size_t arg_count, struct rp_error *err)
{
    if (arg_count != graph->arg_count)
        return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay",
                         "graph '%s' was captured with %zu arguments and replayed with %zu",
                         graph->name, graph->arg_count, arg_count);
    if (arg_count && !args)
        return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay",
                         "graph '%s' was captured with %zu arguments, but args is NULL",
                         graph->name, arg_count);
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < arg_count; i++)
        status = check_arg(graph, i, &args[i], err);
    return status;
}
