/* SPDX-License-Identifier: MIT
 *
 * Comparing the templates of the rehearsal and the record: they must be one graph at other
 * addresses. Nodes are matched by their place in cuGraphGetNodes, child graphs are entered.
 *
 * What each word of their parameters may be is word_proof.h's.
 */
#ifndef REPRISE_GRAPH_CAPTURE_COMPARE_H
#define REPRISE_GRAPH_CAPTURE_COMPARE_H

#include "graph/capture/record.h"
#include "graph/capture/suspects.h"
#include "graph/template/params.h"

struct rpi_comparison {
    size_t nodes, edges; /* of the template itself, child graphs left out */
    struct rpi_sites sites;
    struct rpi_scalar_sites scalars;
    struct {
        RPI_VEC(uint32_t); /* arguments whose addresses stand in the record in places that are no
                              sites, or may be meant where a site tells another block; unsorted,
                              repeated */
    } doubtful;
    struct rpi_foreign_uses foreign; /* blocks of other graphs that nodes name */
    struct {
        RPI_VEC(uint64_t); /* addresses of heaps that nodes name, the same in both captures;
                              unsorted, repeated */
    } outside;
    struct rpi_addresses tabled; /* of others, in what nodes copy from the host; repeated */
    bool hidden;                 /* nodes may hold addresses that cannot be read */
    bool may_be_left_over;       /* of a comparison that failed: by a word that the next one need
                                    not have */
};

/* What a node of another capture would have to agree with. Both parameters were read from nodes of
 * one type; NULL where they agree, otherwise what differs: "its grid changed". Static text. */
const char *rpi_kernels_differ(const struct rp_driver *driver, const struct rpi_params *before,
                               const struct rpi_params *after, CUgraphNode node_before,
                               CUgraphNode node_after);
void rpi_comparison_finish(struct rpi_comparison *comparison);

/* Who is asked whether memory that an earlier run was given is in use. */
struct rpi_in_use {
    rp_in_use_fn ask; /* NULL: it is */
    void *user;
};

/* RP_ERROR_DIVERGED names the first node that differs; RP_ERROR_CAPTURE one that uses a survivor.
 * earlier: the suspects of the attempts before. out_suspects is written in any case, out_comparison
 * on success; both are the caller's to finish. */
rp_status rpi_compare(const struct rp_pool *pool, const struct rpi_rehearsal *rehearsal,
                      const struct rpi_recorded *recorded, size_t arg_count,
                      const struct rpi_in_use *in_use, const struct rpi_suspects *earlier,
                      size_t earlier_count, struct rpi_suspects *out_suspects,
                      struct rpi_comparison *out_comparison, struct rp_error *err);

#endif
