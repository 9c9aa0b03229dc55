/* SPDX-License-Identifier: MIT
 *
 * The decision problem under the exact search: do blocks with fixed spans of sections fit under a
 * ceiling? See plan_search_core.c for the method.
 *
 *   unit     the greatest common divisor of all sizes; heights here are counted in units
 *   section  a moment at which the set of live blocks is not contained in that of a neighbour
 *   span     the half-open range of sections in which a block is live
 */
#ifndef REPRISE_MEMORY_PLAN_SEARCH_CORE_H
#define REPRISE_MEMORY_PLAN_SEARCH_CORE_H

#include "base/meter.h"
#include "memory/order/lifetimes.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Read only once made, so that threads share it. Blocks are sorted by span. */
struct rpi_search_instance {
    uint32_t blocks, sections;
    uint32_t *origin;        /* [blocks]: index in the lifetimes */
    int32_t *size;           /* [blocks], units, > 0 */
    uint32_t *first, *last;  /* [blocks]: the span */
    uint32_t *twin;          /* [blocks]: the block before it of equal span and size, or itself */
    uint32_t *slot;          /* [blocks + 1]: sum of the span lengths before */
    uint32_t *starting;      /* [sections + 1]: first block whose span starts there or later */
    uint32_t *section_start; /* [sections + 1]: into members */
    uint32_t *members;       /* blocks live in each section */
    int32_t *load;           /* [sections]: sum of sizes of members */
};

/* sizes are counted in `unit`, rounded up. *out_instance is NULL, and the status RP_OK, where the
 * input is too large to be searched. */
rp_status rpi_search_instance_create(const struct rpi_lifetimes *lifetimes, uint64_t unit,
                                     struct rpi_search_instance **out_instance,
                                     struct rp_error *err);
void rpi_search_instance_destroy(struct rpi_search_instance *instance);

enum rpi_search_answer {
    RPI_SEARCH_FOUND,
    RPI_SEARCH_IMPOSSIBLE,
    RPI_SEARCH_STOPPED, /* by the limits */
    RPI_SEARCH_NO_MEMORY
};

/* In which order a section's choices are tried. */
struct rpi_search_style {
    bool look_ahead;  /* the least wasteful first; ties by the keys */
    const char *keys; /* letters, most important first: W span, A area, Z size, T load */
    uint32_t seed;    /* 0: as the keys say; otherwise with random exchanges */
};

struct rpi_search_limits {
    uint64_t moves;          /* at most */
    struct rpi_meter *meter; /* this thread's */
    uint64_t end;            /* the meter's reading at which to stop */
    const atomic_int *stop;  /* another thread has the answer; may be NULL */
};

struct rpi_searcher;

rp_status rpi_searcher_create(const struct rpi_search_instance *instance,
                              struct rpi_searcher **out_searcher, struct rp_error *err);
void rpi_searcher_destroy(struct rpi_searcher *searcher);

/* out_offsets[blocks], in units, is written when FOUND. */
enum rpi_search_answer rpi_searcher_run(struct rpi_searcher *searcher, int32_t ceiling,
                                        const struct rpi_search_style *style,
                                        const struct rpi_search_limits *limits,
                                        int32_t *out_offsets);
uint64_t rpi_searcher_nodes(const struct rpi_searcher *searcher);

#endif
