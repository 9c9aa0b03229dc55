/* SPDX-License-Identifier: MIT
 *
 * The streams that captures run on, one for each outermost pool. Callables see them, and what they
 * call may remember them: PyTorch records events on every stream that used a pinned buffer when
 * that buffer is freed, long after the capture. So a stream that a pool has done with is kept for
 * the next pool, and all live as long as the device.
 */
#ifndef REPRISE_GRAPH_GROUND_STREAMS_H
#define REPRISE_GRAPH_GROUND_STREAMS_H

#include "base/status.h"
#include "base/vec.h"
#include "driver/driver.h"

#include <pthread.h>

struct rpi_streams {
    pthread_mutex_t lock; /* guards what follows */
    size_t made;
    CUstream beside; /* NULL: nobody has asked for it */
    struct {
        RPI_VEC(CUstream); /* not in use; has room for all that were made */
    } free;
};

rp_status rpi_streams_init(struct rpi_streams *streams, struct rp_error *err);
/* Destroys them; none is in use. The context is current. */
void rpi_streams_finish(struct rpi_streams *streams, const struct rp_driver *driver);

/* A stream that does not wait for the legacy one, with nothing enqueued. The context is current. */
rp_status rpi_streams_take(struct rpi_streams *streams, const struct rp_driver *driver,
                           CUstream *out_stream, struct rp_error *err);
/* The stream for captures beside a run, of frameworks: one for the device, made when it is first
 * asked for, as above. */
rp_status rpi_streams_beside(struct rpi_streams *streams, const struct rp_driver *driver,
                             CUstream *out_stream, struct rp_error *err);
/* One that was taken, its work done. */
void rpi_streams_give(struct rpi_streams *streams, CUstream stream);

#endif
