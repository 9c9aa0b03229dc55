/* SPDX-License-Identifier: MIT
 *
 * What an argument is beside its bytes: type, shape and strides. A capture keeps a copy, and a
 * replay compares its arguments with that: a shape is baked into the graph's grids and parameters.
 */
#ifndef REPRISE_GRAPH_GROUND_TENSOR_H
#define REPRISE_GRAPH_GROUND_TENSOR_H

#include "base/status.h"

#include <stdbool.h>

struct rpi_tensor {
    uint64_t bytes;
    uint32_t dtype, rank;
    int64_t *shape;         /* owned; the strides lie behind it, in the same allocation */
    const int64_t *strides; /* of a contiguous one too */
};

/* "float32", static text, and 4; NULL and 0 for a number that is no enum rp_dtype. */
const char *rpi_dtype_name(uint32_t dtype);
uint32_t rpi_dtype_bytes(uint32_t dtype);

/* Is the argument's description possible: a type that exists, no negative or overflowing sizes, the
 * last element within its bytes? RP_ERROR_INVALID_ARGUMENT otherwise. */
rp_status rpi_tensor_check(const struct rp_arg *arg, const char *function, size_t index,
                           struct rp_error *err);

/* Copies that of a checked argument. */
rp_status rpi_tensor_init(struct rpi_tensor *tensor, const struct rp_arg *arg,
                          struct rp_error *err);
void rpi_tensor_finish(struct rpi_tensor *tensor); /* allowed on a zeroed one */

/* Has the argument this type, this shape and these strides? Bytes are not compared. The argument
 * need not have been checked. */
bool rpi_tensor_is(const struct rpi_tensor *tensor, const struct rp_arg *arg);

/* Argument `index` of a replay of the graph is not what was captured, or no possible one at all:
 * RP_ERROR_CONTRACT tells both, RP_ERROR_INVALID_ARGUMENT what no argument can be. */
rp_status rpi_tensor_refuse(const struct rpi_tensor *captured, const struct rp_arg *arg,
                            const char *graph, size_t index, struct rp_error *err);

enum { RPI_TENSOR_TEXT = 144 };
/* "float32[8,128]", with the strides where they are not those of a contiguous one, or "64 bytes";
 * cut short where it is long. */
void rpi_tensor_describe(const struct rpi_tensor *tensor, char text[RPI_TENSOR_TEXT]);

#endif
