/* SPDX-License-Identifier: MIT
 *
 * The contract: what a replay relies on, checked before anything is launched. Arguments must be
 * what they were in the capture, but for their addresses.
 */
#ifndef REPRISE_GRAPH_OBJECTS_CONTRACT_H
#define REPRISE_GRAPH_OBJECTS_CONTRACT_H

#include "graph/ground/tensor.h"

struct rp_graph;

struct rpi_contract {
    struct rpi_tensor *args; /* of the capture */
    enum rp_arg_role *roles;
    uint64_t *accepted; /* of each argument the last address that was found to be good, outside the
                           pools; guarded by the core's lock */
    size_t arg_count;
};

/* args: those of the capture, checked. */
rp_status rpi_contract_init(struct rpi_contract *contract, const struct rp_arg *args,
                            size_t arg_count, struct rp_error *err);
void rpi_contract_finish(struct rpi_contract *contract); /* allowed on a zeroed one */

/* Are these the arguments that the graph was captured for? RP_ERROR_CONTRACT tells what differs. */
rp_status rpi_contract_check_args(const struct rp_graph *graph, const struct rp_arg *args,
                                  size_t arg_count, struct rp_error *err);

#endif
