/* SPDX-License-Identifier: MIT
 *
 * The proof of one node: what each word of its parameters is, told by two captures.
 *
 * A word of the rehearsal that is an address of block k, d bytes from its start, must be the
 * record's address of block k plus d: that is a site, proved twice. A word of the record that is an
 * address of a rehearsal has outlived it and refuses the capture: a replay would write through it
 * to memory that everybody's rehearsals share. A word that is a form of the same scalar in both is
 * a site too (scalars.h). Any other word must be the same in both, but for what may be padding, and
 * for host pointers. Where there are scalars, what may be padding must be the same as well, or be
 * proved to be padding (suspects.h): it could be a number that was computed from them.
 */
#ifndef REPRISE_GRAPH_CAPTURE_WORD_PROOF_H
#define REPRISE_GRAPH_CAPTURE_WORD_PROOF_H

#include "graph/capture/compare.h"

/* A comparison under way. */
struct rpi_comparing {
    const struct rp_driver *driver;
    const struct rpi_rehearsal_range *rehearsal_range;
    const struct rpi_arena *eager, *pool;
    const struct rpi_staging *staging;
    const struct rp_pool *home;
    struct rpi_heaps *heaps;
    const struct rpi_rehearsal *rehearsal;
    const struct rpi_recorded *recorded;
    const struct rpi_in_use *in_use;
    size_t arg_count;
    uint32_t *order; /* the rehearsal's arguments and blocks by address; RPI_ABSENT ends it */
    struct rpi_params before, after; /* of the node at hand, in rehearsal and record */
    uint32_t node;                   /* its number */
    size_t host_copies;              /* before it, that read memory of the host */
    struct rpi_scalar_table scalars;
    const struct rpi_suspects *earlier; /* of the attempts before */
    size_t earlier_count;
    struct rpi_suspects suspects;
    struct rpi_comparison made;
};

/* RP_ERROR_DIVERGED and RP_ERROR_UNSUPPORTED, which name the node at hand. */
rp_status rpi_node_diverged(const struct rpi_comparing *c, struct rp_error *err,
                            const char *difference);
rp_status rpi_node_unsupported(const struct rpi_comparing *c, struct rp_error *err,
                               const char *why);

/* Sorts the rehearsal's arguments and blocks by address, before the first node. */
rp_status rpi_word_proof_order(struct rpi_comparing *c, struct rp_error *err);
/* Compares one field of the node at hand, word by word: adds its sites, what may be an address, and
 * what it uses of others to c->made. */
rp_status rpi_word_proof_field(struct rpi_comparing *c, const struct rpi_field *field,
                               struct rp_error *err);
/* The same for what the node at hand copies from the host. A replay does not see an address there:
 * an argument that it may belong to stays where it was recorded. Where there are scalars, a word
 * that is neither the same in both nor an address may be a number that was computed from them. */
rp_status rpi_word_proof_host_data(struct rpi_comparing *c, struct rp_error *err);
/* What stands there is no suspect. */
void rpi_word_proof_explain(struct rpi_comparing *c, uint32_t offset, uint32_t bytes);

/* Are both addresses of the host? Kernels are given such, and never read there: a reference that a
 * functor of C++ captured, a scalar on the launching code's stack. */
bool rpi_are_host(const struct rp_driver *driver, uint64_t before, uint64_t after);

/* Can two words, of a kernel's parameter that is one, differ in its padding alone? So they do in
 * bytes 1 to 3 of a class (param_types.h), which ends in 4 bytes that are not 0, and neither is
 * device memory that the driver knows of. field: one of params. */
bool rpi_are_padding(const struct rp_driver *driver, const struct rpi_params *params,
                     const struct rpi_field *field, uint64_t before, uint64_t after);

#endif
