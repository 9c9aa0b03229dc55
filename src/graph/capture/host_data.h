/* SPDX-License-Identifier: MIT
 *
 * Host data: what a capture's nodes copy from memory of the host, as it was when the capture ended.
 *
 * Tables of addresses and sizes come to the device that way (PyTorch 2.15's _foreach_norm). Memory
 * that was let go since is told by the kernel of the operating system, and is not read.
 */
#ifndef REPRISE_GRAPH_CAPTURE_HOST_DATA_H
#define REPRISE_GRAPH_CAPTURE_HOST_DATA_H

#include "base/vec.h"
#include "driver/driver.h"
#include "graph/template/params.h"

#include <stdbool.h>

struct rpi_host_copy {
    size_t first, bytes; /* of the data */
    bool known;          /* false: several rows, too long, or memory that is gone */
};

struct rpi_host_data {
    struct {
        RPI_VEC(struct rpi_host_copy);
    } copies; /* in the order of the nodes, each child graph's where its node is */
    struct {
        RPI_VEC(unsigned char);
    } bytes;
};

/* Does the node copy from memory of the host? */
bool rpi_copies_from_host(const struct rpi_params *params);

/* data is zeroed. What was read before a failure is freed by rpi_host_data_finish. */
rp_status rpi_host_data_read(struct rpi_host_data *data, const struct rp_driver *driver,
                             CUgraph template, struct rp_error *err);
void rpi_host_data_finish(struct rpi_host_data *data);

/* What copy `number` reads; NULL: it is not known. */
const unsigned char *rpi_host_data_of(const struct rpi_host_data *data, size_t number,
                                      size_t *out_bytes);

#endif
