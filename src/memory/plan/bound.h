/* SPDX-License-Identifier: MIT
 *
 * The lower bound: the heaviest set of blocks no two of which may share memory. No layout is lower.
 *
 * For a partial order it is a maximum-weight antichain: by Dilworth's theorem with weights, the
 * least flow that covers every block b with at least bytes[b] units along chains of "before". The
 * order's lanes give a network of count * lanes edges instead of count squared. For one lane of
 * intervals a sweep over the starts finds the same number.
 */
#ifndef REPRISE_MEMORY_PLAN_BOUND_H
#define REPRISE_MEMORY_PLAN_BOUND_H

#include "memory/order/lifetimes.h"

/* out_members, where not NULL, has room for count indices and receives a heaviest antichain. */
rp_status rpi_bound(const struct rpi_lifetimes *lifetimes, uint64_t *out_bytes,
                    uint32_t *out_members, uint32_t *out_member_count, struct rp_error *err);

#endif
