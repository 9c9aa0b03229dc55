/* SPDX-License-Identifier: MIT
 *
 * The rehearsal: a capture taken only to learn from. Every block has an address of its own on the
 * rehearsals' one chunk, and every argument too. Learned: each block's
 * size, stream and lifetime in the capture's order, and the template with its pointers. A rehearsal
 * that finds results learns them too (rp_call_result): they are arguments behind the others then,
 * and what was allocated for them is no block.
 */
#ifndef REPRISE_GRAPH_CAPTURE_REHEARSE_H
#define REPRISE_GRAPH_CAPTURE_REHEARSE_H

#include "graph/capture/host_data.h"
#include "graph/objects/objects.h"
#include "graph/template/scalars.h"
#include "memory/order/capture_record.h"

/* Arguments first, with the results behind them, then the blocks. */
struct rpi_rehearsed {
    uint64_t address, bytes;
};

struct rpi_rehearsal {
    struct rpi_capture_record record; /* of the blocks */
    struct {
        RPI_VEC(struct rpi_rehearsed);
    } blocks;
    struct {
        RPI_VEC(uint64_t);
    } results;                      /* that were found: bytes of each */
    size_t values;                  /* that replays set (rp_call_value) */
    struct rpi_scalars scalars;     /* of this run */
    struct rpi_host_data host_data; /* likewise */
    CUgraph template;
};

/* Where a rehearsal has its memory. */
struct rpi_rehearse_where {
    bool apart; /* arguments are at other distances from each other, and from the blocks */
    /* NULL, or what an earlier record gave to the arguments, then to the blocks: each block is as far
     * from round addresses as it was there. Libraries round the address of a workspace up, and use
     * what lies behind. */
    const struct rpi_addresses *like;
};

/* The context is current. On failure out_rehearsal is untouched. */
rp_status rpi_rehearse(struct rp_pool *pool, const char *name, rp_callable_fn callable, void *user,
                       const struct rp_arg *args, size_t arg_count,
                       struct rpi_rehearsal *out_rehearsal, struct rp_error *err);
rp_status rpi_rehearse_at(struct rp_pool *pool, const char *name, rp_callable_fn callable,
                          void *user, const struct rp_arg *args, size_t arg_count,
                          const struct rpi_rehearse_where *where,
                          struct rpi_rehearsal *out_rehearsal, struct rp_error *err);
/* The same with the results that the callable names; after it out_rehearsal is that of all. */
rp_status rpi_rehearse_finding(struct rp_pool *pool, const char *name, rp_callable_fn callable,
                               void *user, const struct rp_arg *args, size_t arg_count,
                               struct rpi_rehearsal *out_rehearsal, struct rp_error *err);
void rpi_rehearsal_finish(struct rpi_rehearsal *rehearsal, const struct rp_driver *driver);

#endif
