/* SPDX-License-Identifier: MIT
 *
 * Verifying a comparison by a third capture, whose arguments are at yet other addresses and at
 * other distances. Nothing runs: what replays would write for those arguments is compared with what
 * the capture holds, node by node and word by word.
 *
 *     site              must hold the address of its argument or block in the third capture too
 *     value             must be the same as in the record, and no address of an argument
 *     in a struct       the same, or anything (it may be padding) but an address of an argument, or
 *                       a word that moves with one: what was computed from addresses
 *     host pointer      anything
 *
 * Where an argument's word holds something else, or an argument's address stands where none should
 * be, that argument is to blame: it is copied from now on, as the record has it. Where no argument
 * is (a block's word, a value, a function, a grid) all are copied. Other nodes or edges are another
 * graph, and refuse the capture.
 *
 * The third capture comes before the record, so that what the callable leaves behind it (host
 * memory that a copy reads, tensors that live on) is the record's.
 */
#ifndef REPRISE_GRAPH_VERIFY_VERIFY_H
#define REPRISE_GRAPH_VERIFY_VERIFY_H

#include "graph/bind/bind.h"

/* RP_ERROR_INVALID_ARGUMENT for a number that is no enum rp_verify. */
rp_status rpi_verify_check(const char *function, enum rp_verify verify, struct rp_error *err);

/* Why an argument, or all of them, should be copied. */
struct rpi_blame {
    const char *what; /* static text; NULL: for nothing */
    uint32_t node, offset;
};

struct rpi_verdict {
    struct rpi_blame *args; /* of each argument */
    struct rpi_blame all;
};

void rpi_verdict_finish(struct rpi_verdict *verdict); /* allowed on a zeroed one */

/* Judges what rehearsal and record proved. RP_ERROR_DIVERGED names the first node that makes the
 * third capture another graph. out_verdict is written on success and the caller's to finish. */
rp_status rpi_verify(const struct rp_driver *driver, const struct rpi_rehearsal *rehearsal,
                     const struct rpi_rehearsal *third, const struct rpi_recorded *recorded,
                     const struct rpi_comparison *comparison, size_t arg_count,
                     struct rpi_verdict *out_verdict, struct rp_error *err);

/* Demotes who is to blame, and says so in the log. */
void rpi_verdict_apply(const struct rpi_verdict *verdict, const char *name,
                       struct rpi_binding *binding);

#endif
