/* SPDX-License-Identifier: MIT
 *
 * Arguments, before anything is done with them: are they possible, how are they aligned, and how
 * many bytes does each take?
 */
#ifndef REPRISE_GRAPH_OBJECTS_ARGUMENTS_H
#define REPRISE_GRAPH_OBJECTS_ARGUMENTS_H

#include "graph/objects/objects.h"

/* Are these fit for a run, a capture or a replay? */
rp_status rpi_check_args(const char *function, const struct rp_arg *args, size_t arg_count,
                         struct rp_error *err);

/* The alignment that an argument's address is promised to have in every call that binds it: that of
 * the capture, as far as libraries and the pool care. */
uint64_t rpi_arg_alignment(const struct rp_pool *pool, const struct rp_arg *arg);

/* Zero-byte blocks count as one byte, so that each has an address of its own. */
uint64_t rpi_block_bytes(uint64_t bytes);

#endif
