/* SPDX-License-Identifier: MIT
 *
 * The scalars of a graph that replays change (scalars.h): which images hold them, and what they
 * are.
 *
 *     places   | of image 0 | of image 1 | ...       where a slot's word is written to
 *     uses     | images of slot 0 | of slot 1 | ...
 *
 * Not synchronised: the pool's lock guards it.
 */
#ifndef REPRISE_GRAPH_BIND_BOUND_SCALARS_H
#define REPRISE_GRAPH_BIND_BOUND_SCALARS_H

#include "graph/template/params.h"
#include "graph/template/scalars.h"

struct rpi_scalar_slot {
    uint32_t scalar;
    enum rpi_scalar_form form;
    uint64_t recorded;             /* the word in the template */
    uint64_t word;                 /* of replays from now on */
    uint32_t first_use, use_count; /* images */
};

struct rpi_scalar_place {
    uint32_t image, slot, offset;
};

struct rpi_bound_scalars {
    size_t count; /* that the capture named */
    bool set;     /* replays were told what they are */
    struct {
        RPI_VEC(struct rpi_scalar_slot);
    } slots;
    struct {
        RPI_VEC(struct rpi_scalar_place); /* by image */
    } places;
    struct {
        RPI_VEC(uint32_t);
    } uses;
};

/* sites: of the comparison, by node. named: by the record. image_of: for each site the image of its
 * node. bound is zeroed, and the caller's to finish whatever is returned. */
rp_status rpi_bound_scalars_init(struct rpi_bound_scalars *bound,
                                 const struct rpi_scalar_sites *sites, const uint32_t *image_of,
                                 const struct rpi_scalars *named, struct rp_error *err);
void rpi_bound_scalars_finish(struct rpi_bound_scalars *bound); /* allowed on a zeroed one */
/* What the scalars are from now on; count of them. */
void rpi_bound_scalars_set(struct rpi_bound_scalars *bound, const double *scalars);

/* Writes the words of `count` places into their image. */
static inline void rpi_bound_scalars_write(const struct rpi_bound_scalars *bound,
                                           const struct rpi_scalar_place *place, uint32_t count,
                                           struct rpi_node_image *image)
{
    for (uint32_t i = 0; i < count; i++, place++) {
        const struct rpi_scalar_slot *slot = &bound->slots.data[place->slot];
        memcpy(image->bytes + place->offset, &slot->word, rpi_scalar_bytes(slot->form));
    }
}

#endif
