/* SPDX-License-Identifier: MIT
 *
 * Comparing the templates of the rehearsal and the record: they must be one graph at other
 * addresses. Nodes are matched by their place in cuGraphGetNodes, child graphs are entered.
 *
 * A word of the rehearsal that is an address of block k, d bytes from its start, must be the
 * record's address of block k plus d: that is a site, proved twice. A word of the record that is an
 * address of a rehearsal has outlived it and refuses the capture: a replay would write through it
 * to memory that everybody's rehearsals share. A word that is a form of the same scalar in both is
 * a site too (scalars.h). Any other word must be the same in both, but for what may be padding, and
 * for host pointers. Where there are scalars, what may be padding must be the same as well, or be
 * proved to be padding (suspects.h): it could be a number that was computed from them.
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
    bool hidden; /* nodes may hold addresses that cannot be read */
};

/* What a node of another capture would have to agree with. Both parameters were read from nodes of
 * one type; NULL where they agree, otherwise what differs: "its grid changed". Static text. */
const char *rpi_kernels_differ(const struct rp_driver *driver, const struct rpi_params *before,
                               const struct rpi_params *after, CUgraphNode node_before,
                               CUgraphNode node_after);
/* Are both addresses of the host? Kernels are given such, and never read there: a reference that a
 * functor of C++ captured, a scalar on the launching code's stack. */
bool rpi_are_host(const struct rp_driver *driver, uint64_t before, uint64_t after);

/* Can two words, of a kernel's parameter that is one, differ in its padding alone? So they do in
 * bytes 1 to 3 of a class (param_types.h), which ends in 4 bytes that are not 0, and neither is
 * device memory that the driver knows of. field: one of params. */
bool rpi_are_padding(const struct rp_driver *driver, const struct rpi_params *params,
                     const struct rpi_field *field, uint64_t before, uint64_t after);

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
