/* SPDX-License-Identifier: MIT */
#include "graph/bind/bound_scalars.h"

#include <assert.h>

static rp_status no_memory(struct rp_error *err, size_t bytes)
{
    return rpi_error_host_memory(err, "rp_graph_capture", bytes);
}

/* The slot of each form of each scalar, made where a site is the first that holds it. slot_of has
 * RPI_SCALAR_FORM_COUNT entries for each scalar, all UINT32_MAX before. */
static rp_status add_place(struct rpi_bound_scalars *bound, const struct rpi_scalar_site *site,
                           uint32_t image, const struct rpi_scalars *named, uint32_t *slot_of,
                           struct rp_error *err)
{
    assert(site->scalar < named->count && site->form < RPI_SCALAR_FORM_COUNT);
    uint32_t *slot = &slot_of[(size_t)site->scalar * RPI_SCALAR_FORM_COUNT + site->form];
    if (*slot == UINT32_MAX) {
        uint64_t word = rpi_scalar_bits(named->data[site->scalar], site->form);
        struct rpi_scalar_slot made = {site->scalar, site->form, word, word, 0, 0};
        *slot = (uint32_t)bound->slots.count;
        if (!rpi_vec_push(&bound->slots, made))
            return no_memory(err, sizeof made);
    }
    struct rpi_scalar_place place = {image, *slot, site->offset};
    return rpi_vec_push(&bound->places, place) ? RP_OK : no_memory(err, sizeof place);
}

/* The images of each slot: a counting sort. An image that holds one twice is there twice. */
static rp_status add_uses(struct rpi_bound_scalars *bound, struct rp_error *err)
{
    assert(!bound->uses.count);
    size_t count = bound->places.count;
    if (!rpi_vec_reserve(&bound->uses, count))
        return no_memory(err, count * sizeof *bound->uses.data);
    for (size_t i = 0; i < count; i++)
        bound->slots.data[bound->places.data[i].slot].use_count++;
    uint32_t total = 0;
    for (size_t k = 0; k < bound->slots.count; k++) {
        struct rpi_scalar_slot *slot = &bound->slots.data[k];
        slot->first_use = total;
        total += slot->use_count;
        slot->use_count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        const struct rpi_scalar_place *place = &bound->places.data[i];
        struct rpi_scalar_slot *slot = &bound->slots.data[place->slot];
        bound->uses.data[slot->first_use + slot->use_count++] = place->image;
    }
    assert(total == count);
    bound->uses.count = count;
    return RP_OK;
}

rp_status rpi_bound_scalars_init(struct rpi_bound_scalars *bound,
                                 const struct rpi_scalar_sites *sites, const uint32_t *image_of,
                                 const struct rpi_scalars *named, struct rp_error *err)
{
    assert(!bound->slots.count && !bound->places.count);
    bound->count = named->count;
    if (!named->count)
        return RP_OK;
    size_t forms = named->count * RPI_SCALAR_FORM_COUNT;
    uint32_t *slot_of = rpi_malloc(forms * sizeof *slot_of);
    if (!slot_of)
        return no_memory(err, forms * sizeof *slot_of);
    memset(slot_of, 0xff, forms * sizeof *slot_of);
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < sites->count; i++)
        status = add_place(bound, &sites->data[i], image_of[i], named, slot_of, err);
    rpi_free(slot_of);
    return status == RP_OK ? add_uses(bound, err) : status;
}

void rpi_bound_scalars_finish(struct rpi_bound_scalars *bound)
{
    rpi_vec_finish(&bound->slots);
    rpi_vec_finish(&bound->places);
    rpi_vec_finish(&bound->uses);
    *bound = (struct rpi_bound_scalars){0};
}

void rpi_bound_scalars_set(struct rpi_bound_scalars *bound, const double *scalars)
{
    assert(scalars || !bound->slots.count);
    bound->set = true;
    for (size_t k = 0; k < bound->slots.count; k++) {
        struct rpi_scalar_slot *slot = &bound->slots.data[k];
        slot->word = rpi_scalar_bits(scalars[slot->scalar], slot->form);
    }
}
