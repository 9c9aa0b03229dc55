/* SPDX-License-Identifier: MIT
 *
 * The rehearsal: a capture taken only to learn from. Every block and every argument has an address
 * of its own on the rehearsals' one chunk. Learned: each block's size, stream and lifetime in the
 * capture's order, and the template with its pointers.
 */
#ifndef REPRISE_GRAPH_REHEARSE_H
#define REPRISE_GRAPH_REHEARSE_H

#include "graph/objects.h"
#include "memory/recording.h"

struct rpi_rehearsal {
    struct rpi_capture_record record; /* blocks 0 .. arg_count - 1 are the arguments' staging */
    struct {
        RPI_VEC(uint64_t); /* of each block, ascending */
    } addresses;
    CUgraph template;
};

/* Zero-byte blocks count as one byte, so that each has an address of its own. */
uint64_t rpi_block_bytes(uint64_t bytes);

/* The context is current. On failure out_rehearsal is untouched. */
rp_status rpi_rehearse(struct rp_pool *pool, const char *name, rp_callable_fn callable, void *user,
                       const struct rp_arg *args, size_t arg_count,
                       struct rpi_rehearsal *out_rehearsal, struct rp_error *err);
void rpi_rehearsal_finish(struct rpi_rehearsal *rehearsal, const struct rp_driver *driver);

#endif
