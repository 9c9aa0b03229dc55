/* SPDX-License-Identifier: MIT
 *
 * The walker of a binding: images, sites and uses against each other, and targets against reasons.
 */
#include "graph/bind/bind.h"

/* Images come by node, and their sites and scalars one after the other. */
static bool are_images_valid(const struct rpi_binding *binding)
{
    size_t sites = 0, scalars = 0;
    for (size_t i = 0; i < binding->images.count; i++) {
        const struct rpi_bind_image *image = &binding->images.data[i];
        if (image->first_site != sites || (i && image[-1].node >= image->node) ||
            (image->scalar_count && image->first_scalar != scalars))
            return false;
        sites += image->site_count;
        scalars += image->scalar_count;
    }
    for (size_t s = 0; s < binding->sites.count; s++)
        if (binding->sites.data[s].arg >= binding->arg_count)
            return false;
    return sites == binding->sites.count && scalars == binding->scalars.places.count;
}

static bool has_site_of(const struct rpi_binding *binding, uint32_t image, size_t arg)
{
    const struct rpi_bind_image *used = &binding->images.data[image];
    for (uint32_t s = 0; s < used->site_count; s++)
        if (binding->sites.data[used->first_site + s].arg == arg)
            return true;
    return false;
}

/* The images of each argument, in order and each once, and no others. */
static bool are_uses_valid(const struct rpi_binding *binding)
{
    size_t uses = 0;
    for (size_t k = 0; k < binding->arg_count; k++) {
        const struct rpi_bind_arg *arg = &binding->args[k];
        if (arg->first_use != uses || arg->use_count > binding->uses.count - uses)
            return false;
        const uint32_t *images = binding->uses.data + uses;
        for (uint32_t i = 0; i < arg->use_count; i++)
            if (images[i] >= binding->images.count || (i && images[i - 1] >= images[i]) ||
                !has_site_of(binding, images[i], k))
                return false;
        uses += arg->use_count;
    }
    return uses == binding->uses.count;
}

/* What is bound leads to the caller's memory, everything else to its staging. */
static bool are_targets_valid(const struct rpi_binding *binding)
{
    size_t copied = 0;
    for (size_t k = 0; k < binding->arg_count; k++) {
        const struct rpi_bind_arg *arg = &binding->args[k];
        uint64_t due = arg->reason == RPI_COPY_NOT ? binding->given[k] : arg->staging;
        if (binding->targets[k] != due ||
            (arg->never != RPI_COPY_NOT && arg->bytes && arg->reason == RPI_COPY_NOT))
            return false;
        copied += arg->bytes && arg->reason != RPI_COPY_NOT;
    }
    return copied == binding->copied;
}

static bool is_order_valid(const struct rpi_binding *binding)
{
    for (size_t i = 0; i < binding->arg_count; i++) {
        uint32_t k = binding->order[i];
        if (k >= binding->arg_count ||
            (i && binding->chosen && binding->given[binding->order[i - 1]] > binding->given[k]))
            return false;
    }
    return true;
}

/* Values stand first, then arguments in their order; a list that was not made yet is empty. */
static bool is_list_valid(const struct rpi_binding *binding, const struct rpi_copy_list *list,
                          size_t values)
{
    if (list->carried > list->count || (list->count && list->count < values))
        return false;
    for (size_t i = 0; i < list->count; i++) {
        uint32_t arg = list->args[i];
        if ((arg == RPI_COPY_OF_VALUE) != (i < values) ||
            (i >= values && arg >= binding->arg_count) || (i > values && list->args[i - 1] >= arg))
            return false;
    }
    return true;
}

bool rpi_binding_is_valid(const struct rpi_binding *binding)
{
    return are_images_valid(binding) && are_uses_valid(binding) && is_order_valid(binding) &&
           is_list_valid(binding, &binding->in, binding->value_count) &&
           is_list_valid(binding, &binding->out, 0) &&
           (!binding->chosen || are_targets_valid(binding));
}
