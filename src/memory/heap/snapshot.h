/* SPDX-License-Identifier: MIT
 *
 * What a snapshot of a heap consists of. Stacks have one owner for each place that names them.
 */
#ifndef REPRISE_MEMORY_HEAP_SNAPSHOT_H
#define REPRISE_MEMORY_HEAP_SNAPSHOT_H

#include "memory/heap/heap.h"

struct rpi_snapshot_block {
    struct rp_heap_snapshot_block seen;
    struct rpi_heap_stack *stack;
};

struct rp_heap_snapshot {
    struct rp_heap *heap; /* unowned, outlives the snapshot */
    struct {
        RPI_VEC(struct rp_heap_snapshot_segment);
    } segments;
    struct {
        RPI_VEC(struct rpi_snapshot_block); /* of the first segment, then of the second .. */
    } blocks;
    struct {
        RPI_VEC(struct rpi_heap_event);
    } events;
    char *text; /* JSON, once asked for */
};

#endif
