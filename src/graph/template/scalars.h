/* SPDX-License-Identifier: MIT
 *
 * Scalars: numbers that kernels get by value and that each replay may change (rp_call_scalar).
 *
 * The two captures are given different ones. A word that is a form of scalar k in the rehearsal and
 * the same form of it in the record is a site: proved twice, as an address is.
 *
 *     form   how a kernel holds a scalar: in 8 bytes or rounded to 4; itself, negated, or inverted,
 *            and then rounded behind that or before
 *     site   a place in a node's parameters that holds a form of a scalar
 *     slot   a form of a scalar that some node holds, with its bits for the next replay
 *
 * Finding a word takes a binary search among all forms of all scalars.
 */
#ifndef REPRISE_GRAPH_TEMPLATE_SCALARS_H
#define REPRISE_GRAPH_TEMPLATE_SCALARS_H

#include "base/status.h"
#include "base/vec.h"

#include <stdint.h>

/* X(name, bytes, type, value of x in that type) */
#define RPI_SCALAR_FORMS(X)                                                                        \
    X(RPI_SCALAR_DOUBLE, 8, double, x)                                                             \
    X(RPI_SCALAR_FLOAT, 4, float, (float)x)                                                        \
    X(RPI_SCALAR_MINUS_DOUBLE, 8, double, -x)                                                      \
    X(RPI_SCALAR_MINUS_FLOAT, 4, float, (float)-x)                                                 \
    X(RPI_SCALAR_INVERSE_DOUBLE, 8, double, 1.0 / x)                                               \
    X(RPI_SCALAR_INVERSE_ROUNDED, 4, float, (float)(1.0 / x))                                      \
    X(RPI_SCALAR_INVERSE_FLOAT, 4, float, 1.0f / (float)x)

enum rpi_scalar_form {
#define X(name, bytes, type, value) name,
    RPI_SCALAR_FORMS(X)
#undef X
        RPI_SCALAR_FORM_COUNT
};

/* What a run named, in that order. */
struct rpi_scalars {
    RPI_VEC(double);
};

struct rpi_scalar_site {
    uint32_t node, offset; /* as those of addresses (sites.h) */
    uint32_t scalar;
    enum rpi_scalar_form form;
};

struct rpi_scalar_sites {
    RPI_VEC(struct rpi_scalar_site); /* by node */
};

uint32_t rpi_scalar_bytes(enum rpi_scalar_form form);
/* The word that holds x in this form; the upper half of one of 4 bytes is 0. */
uint64_t rpi_scalar_bits(double x, enum rpi_scalar_form form);

/* All forms of all scalars, by their words in the rehearsal. Not those that the two captures do not
 * tell apart: the two ways to round an inverse give the same for three numbers of four. */
struct rpi_scalar_table {
    struct rpi_scalar_entry *entries; /* owned */
    size_t count;
};

/* Both have as many. RP_ERROR_OUT_OF_HOST_MEMORY leaves the table empty. */
rp_status rpi_scalar_table_init(struct rpi_scalar_table *table, const struct rpi_scalars *before,
                                const struct rpi_scalars *after, struct rp_error *err);
void rpi_scalar_table_finish(struct rpi_scalar_table *table); /* allowed on a zeroed one */
/* Which scalar was `before` in the rehearsal and is `after` in the record, in `bytes`, 4 or 8?
 * False: none. Words that are the same prove nothing. */
bool rpi_scalar_table_find(const struct rpi_scalar_table *table, uint32_t bytes, uint64_t before,
                           uint64_t after, uint32_t *out_scalar, enum rpi_scalar_form *out_form);

#endif
