/* SPDX-License-Identifier: MIT
 *
 * What PyTorch's caching allocator (c10) would hold for recorded captures: the measure that plans
 * are compared with. A model of its private pools in the default configuration of segments, as of
 * PyTorch 2.11:
 *
 * - Sizes are rounded up to 512 bytes. Up to 1 MiB a block comes from the small pool, above it from
 *   the large pool; nothing moves between the pools or between streams.
 * - Best fit among the free blocks of the stream and pool. Where none fits a segment is taken: 2
 *   MiB for small requests, 20 MiB for those below 10 MiB, otherwise the size rounded up to 2 MiB.
 * - A block is split when at least 512 bytes (small) or more than 1 MiB (large) would remain, and
 *   merges with its free neighbours when it is freed.
 * - A freed block that other streams used (record_stream) is kept until the capture ends; with the
 *   flag graph_capture_record_stream_reuse it goes back to its own stream's free blocks as soon as
 *   an allocation on that stream comes after all terminals noted at the free. It finds out as c10
 *   does (c10_walk.h) where the recording has its nodes' predecessors, and from the order
 * elsewhere: the answers are the same, the cost is c10's method's.
 * - Captures that share the pool come one after the other. Blocks that a capture does not free are
 *   its results: the caller says whether they die with the capture or stay.
 *
 * Expandable segments, limits, and memory outside the pool are not modelled.
 */
#ifndef REPRISE_RECORDING_C10_H
#define REPRISE_RECORDING_C10_H

#include "memory/order/capture_record.h"

enum rpi_c10_policy { RPI_C10_DEFAULT, RPI_C10_REUSE };

struct rpi_c10;

rp_status rpi_c10_create(enum rpi_c10_policy policy, struct rpi_c10 **out_c10,
                         struct rp_error *err);
void rpi_c10_destroy(struct rpi_c10 *c10);

/* Takes one more capture into the pool. keep_results: blocks that it does not free stay taken for
 * later captures. After a failure the model may only be destroyed. */
rp_status rpi_c10_capture(struct rpi_c10 *c10, const struct rpi_capture_record *record,
                          bool keep_results, struct rp_error *err);

/* Bytes of all segments: the pool's share of torch.cuda.memory_reserved(). */
uint64_t rpi_c10_reserved(const struct rpi_c10 *c10);

#endif
