/* SPDX-License-Identifier: MIT */
#include "graph/handles/graph_object.h"

#include "base/hostmem.h"
#include "graph/bind/bind.h"
#include "graph/exec/exec.h"

void rpi_graph_free(struct rp_graph *graph)
{
    if (graph->exec)
        rpi_exec_finish(graph->exec);
    if (graph->binding)
        rpi_binding_finish(graph->binding);
    rpi_free(graph->exec);
    rpi_free(graph->binding);
    rpi_free(graph->name);
    rpi_free(graph->blocks);
    rpi_contract_finish(&graph->contract);
    rpi_reads_finish(graph);
    rpi_heap_watches_finish(&graph->outside);
    rpi_pool_member_finish(&graph->member);
    rpi_vec_finish(&graph->tabled);
    rpi_vec_finish(&graph->sites);
    rpi_free(graph);
}

void rpi_graph_drop_share(struct rp_graph *graph)
{
    rpi_pool_member_finish(&graph->member);
    rpi_free(graph->blocks);
    graph->blocks = NULL;
    graph->member = (struct rpi_pool_member){.node.kind = RPI_COMPOSE_CAPTURE};
}
