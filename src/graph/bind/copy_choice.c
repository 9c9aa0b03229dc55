/* SPDX-License-Identifier: MIT */
#include "graph/bind/copy_choice.h"

#include <assert.h>
#include <stdlib.h>

/* Of an H200, until the graph's replays have shown it; and of a launch that follows no change. */
static const double FIRST_NODE_US = 0.3, LAUNCH_US = 2;

/* A kernel node more, on the device: 0.5 us on an H200, and as much for the copy. */
static const double CARRIER_US = 1;

/* The arguments that each image uses, in ascending order; images by that. */
struct uses {
    uint32_t *first, *members; /* of image i: members[first[i]] up to members[first[i + 1]] */
    uint32_t *order;           /* images, those of the same arguments one behind the other */
    size_t count;              /* of images */
    struct rpi_bind_group *groups;
    size_t group_count;
    uint32_t *group_members;
};

static void finish_uses(struct uses *uses)
{
    rpi_free(uses->first);
    rpi_free(uses->members);
    rpi_free(uses->order);
    rpi_free(uses->groups);
    rpi_free(uses->group_members);
}

static bool make_uses(struct uses *uses, size_t images, size_t members)
{
    *uses = (struct uses){.count = images};
    uses->first = rpi_calloc(images + 2, sizeof *uses->first);
    uses->members = rpi_calloc(members + 1, sizeof *uses->members);
    uses->order = rpi_calloc(images + 1, sizeof *uses->order);
    uses->groups = rpi_calloc(images + 1, sizeof *uses->groups);
    uses->group_members = rpi_calloc(members + 1, sizeof *uses->group_members);
    return uses->first && uses->members && uses->order && uses->groups && uses->group_members;
}

/* Argument by argument, so that each image has them in order: a counting sort. first is one ahead
 * until it is filled. */
static void list_members(struct uses *uses, const struct rpi_binding *binding)
{
    for (size_t u = 0; u < binding->uses.count; u++)
        uses->first[binding->uses.data[u] + 2]++;
    for (size_t i = 2; i < uses->count + 2; i++)
        uses->first[i] += uses->first[i - 1];
    for (uint32_t k = 0; k < binding->arg_count; k++) {
        const struct rpi_bind_arg *arg = &binding->args[k];
        const uint32_t *images = binding->uses.data + arg->first_use;
        for (uint32_t u = 0; u < arg->use_count; u++)
            uses->members[uses->first[images[u] + 1]++] = k;
    }
}

static uint32_t members_of(const struct uses *uses, uint32_t image, const uint32_t **out_members)
{
    assert(image < uses->count);
    *out_members = uses->members + uses->first[image];
    return uses->first[image + 1] - uses->first[image];
}

static int by_members(const void *a, const void *b, void *context)
{
    const struct uses *uses = context;
    const uint32_t *x, *y;
    uint32_t m = members_of(uses, *(const uint32_t *)a, &x);
    uint32_t n = members_of(uses, *(const uint32_t *)b, &y);
    for (uint32_t i = 0; i < m && i < n; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return (m > n) - (m < n);
}

/* Groups of images that use the same arguments, those left out that use none which can be bound.
 * Returns the number of images in them. */
static size_t group_images(struct uses *uses)
{
    uint32_t listed = 0;
    assert(!uses->group_count);
    size_t nodes = 0;
    for (uint32_t i = 0; i < uses->count; i++)
        uses->order[i] = i;
    qsort_r(uses->order, uses->count, sizeof *uses->order, by_members, uses);
    for (size_t i = 0; i < uses->count; i++) {
        const uint32_t *members;
        uint32_t count = members_of(uses, uses->order[i], &members);
        if (!count)
            continue;
        nodes++;
        if (i && by_members(&uses->order[i - 1], &uses->order[i], uses) == 0) {
            uses->groups[uses->group_count - 1].nodes++;
            continue;
        }
        uses->groups[uses->group_count++] = (struct rpi_bind_group){listed, count, 1};
        memcpy(uses->group_members + listed, members, count * sizeof *members);
        listed += count;
    }
    assert(uses->group_count <= nodes && nodes <= uses->count);
    return nodes;
}

static bool init_rule(struct rpi_copy_choice *choice, const struct rpi_binding *binding,
                      const struct uses *uses)
{
    struct rpi_bind_arg_uses *args = rpi_calloc(binding->arg_count + 1, sizeof *args);
    if (!args)
        return false;
    for (size_t k = 0; k < binding->arg_count; k++) {
        const struct rpi_bind_arg *arg = &binding->args[k];
        args[k] = (struct rpi_bind_arg_uses){.bytes = arg->bytes,
                                             .in = arg->role & RP_ARG_IN,
                                             .out = (arg->role & RP_ARG_OUT) != 0,
                                             .only_bound = arg->in_copies};
    }
    bool made = rpi_bind_choice_init(&choice->rule, args, binding->arg_count, uses->groups,
                                     uses->group_count, uses->group_members);
    rpi_free(args);
    return made;
}

static struct rpi_copy_choice *make_choice(const struct rpi_binding *binding,
                                           const struct uses *uses, struct rpi_copier *copier)
{
    struct rpi_copy_choice *choice = rpi_calloc(1, sizeof *choice);
    if (!choice)
        return NULL;
    choice->copier = copier;
    choice->node.us = FIRST_NODE_US;
    choice->changed = rpi_calloc(binding->arg_count + 1, 1);
    if (choice->changed && init_rule(choice, binding, uses))
        return choice;
    rpi_copy_choice_destroy(choice);
    return NULL;
}

rp_status rpi_copy_choice_create(struct rpi_copy_choice **out_choice,
                                 const struct rpi_binding *binding, struct rpi_copier *copier,
                                 struct rp_error *err)
{
    struct uses uses;
    *out_choice = NULL;
    if (binding->images.count < RPI_COPY_CHOICE_LEAST_NODES)
        return RP_OK;
    bool made = make_uses(&uses, binding->images.count, binding->uses.count);
    if (made) {
        list_members(&uses, binding);
        if (group_images(&uses) >= RPI_COPY_CHOICE_LEAST_NODES) {
            *out_choice = make_choice(binding, &uses, copier);
            made = *out_choice != NULL;
        }
    }
    finish_uses(&uses);
    return made ? RP_OK
                : rpi_error_host_memory(err, "rp_graph_capture",
                                        binding->uses.count * sizeof *uses.members);
}

void rpi_copy_choice_destroy(struct rpi_copy_choice *choice)
{
    if (!choice)
        return;
    rpi_bind_choice_finish(&choice->rule);
    rpi_free(choice->changed);
    rpi_free(choice);
}

void rpi_copy_choice_carry(struct rpi_copy_choice *choice, bool in, bool out)
{
    assert(!choice->carried);
    choice->carried = true;
    for (size_t k = 0; k < choice->rule.arg_count; k++) {
        const struct rpi_bind_arg_uses *arg = &choice->rule.args[k];
        if ((arg->in && !in) || (arg->out && !out))
            rpi_bind_choice_bind_only(&choice->rule, k);
    }
}

bool rpi_copy_choice_next(struct rpi_copy_choice *choice, CUstream stream)
{
    struct rpi_bind_prices prices = {.node = choice->node.us};
    bool known = rpi_copier_prices(choice->copier, &prices.copies);
    if (choice->carried)
        prices.copies.launch = choice->node.us + CARRIER_US;
    prices.known = (known || choice->carried) && (choice->fixed_node || choice->node.samples);
    choice->asked++;
    enum rpi_bind_step step = rpi_bind_choice_next(&choice->rule, &prices, choice->changed);
    if (step == RPI_BIND_LEARN)
        rpi_copier_learn(choice->copier, stream);
    return step == RPI_BIND_SWITCHES;
}

void rpi_copy_choice_learn(struct rpi_copy_choice *choice, uint64_t nodes, double us)
{
    assert(nodes >= RPI_COPY_CHOICE_LEAST_NODES);
    double node = (us - LAUNCH_US) / (double)nodes;
    rpi_bind_price_add(&choice->node, node > 0.01 ? node : 0.01);
}
