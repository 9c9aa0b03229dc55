/* SPDX-License-Identifier: MIT
 *
 * The lower bound of a composition of captures. Blocks of two alternatives never have to be kept
 * apart, so the heaviest set of blocks that have to be follows exactly from two numbers a part, its
 * bound and the bytes that it keeps (never frees):
 *
 *     alternatives   bound: the largest            kept: the largest
 *     concurrent     bound: the sum                kept: the sum
 *     sequence       bound: the largest, over its  kept: the sum
 *                    parts i, of the kept of all
 *                    before i plus the bound of i
 */
#ifndef REPRISE_MEMORY_POOL_COMPOSE_SUM_H
#define REPRISE_MEMORY_POOL_COMPOSE_SUM_H

#include "memory/order/capture_record.h"

struct rpi_compose_sum {
    uint64_t bound, kept;
};

/* Adds the next part of a composition of this kind, which begins with zeros. */
static inline void rpi_compose_sum_add(struct rpi_compose_sum *sum, enum rpi_compose_kind kind,
                                       struct rpi_compose_sum part)
{
    uint64_t bound = kind == RPI_COMPOSE_CONCURRENT ? sum->bound + part.bound
                     : kind == RPI_COMPOSE_SEQUENCE ? sum->kept + part.bound
                                                    : part.bound;
    uint64_t kept = kind == RPI_COMPOSE_ALTERNATIVES ? part.kept : sum->kept + part.kept;
    sum->bound = sum->bound > bound ? sum->bound : bound;
    sum->kept = sum->kept > kept ? sum->kept : kept;
}

#endif
