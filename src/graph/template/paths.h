/* SPDX-License-Identifier: MIT
 *
 * The paths that a driver lays the nodes of a graph out on when it makes it executable: each takes
 * device memory of its own (exec_cache.h). How NVIDIA's driver counts them was read off its use of
 * memory (driver 580, bench/execmem): nodes are taken in their order where none stands ahead of one
 * that it is behind, as in all captures, and otherwise breadth first; each
 *
 *     that lies on no path yet begins one;
 *     hands its path on to the first of the nodes behind it that lie on none;
 *     has those between that and the last begin paths of their own;
 *     leaves the last to what else it is behind.
 *
 * So a chain is one path however long it is, a fork into n branches is n, and each diamond behind
 * another adds one, as a path that has ended is not taken up again: captured work on two streams
 * may lie on two paths or on one for each fork, by which of the two went on first. Of the graphs
 * measured it tells all exactly that work on streams makes, and those of edges at random within a
 * sixth; four nodes that are each behind each of four others it takes for a quarter too many.
 * Breadth first was seen in a decoder, two chains and eight chains ahead of which a node was added.
 *
 * Time and memory: of nodes and edges.
 */
#ifndef REPRISE_GRAPH_TEMPLATE_PATHS_H
#define REPRISE_GRAPH_TEMPLATE_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Nodes are numbered from 0 in the driver's order. */
struct rpi_path_edge {
    uint32_t from, to;
};

/* Edges in the order of `to`. False where there is no host memory. */
bool rpi_paths_count(const struct rpi_path_edge *edges, size_t edge_count, size_t node_count,
                     size_t *out_paths);

#endif
