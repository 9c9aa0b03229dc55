/* SPDX-License-Identifier: MIT
 *
 * Binding: which arguments of a template can be pointed at the caller's memory, and for each call
 * which of them are. Bound arguments have their addresses written into the parameters of the nodes
 * that use them; the others are copied to the place in the pool where they were recorded.
 *
 *     image    a node's parameters, written and given to an exec when one of its arguments moves
 *              or one of its scalars changes; one for each node that uses any
 *     site     a place in an image, and the argument whose address it holds
 *     staging  where an argument was recorded, and what is bound when it is copied
 *     target   what an argument is bound to in this call: its address or its staging
 *
 *     images  | image 0 | image 1 | ...      by node, in memory as well: many are given in one walk
 *     sites   | of image 0 | of image 1 | ...
 *     uses    | images of argument 0 | of argument 1 | ...
 *
 * An argument can be bound when at least one site of it is proved, every word of the record that
 * could be its address is a proved site, and the driver lets every node that holds one be changed
 * in an exec: kernels, fills, and copies of one row, in child graphs too.
 *
 * In a call it is bound when besides its address is aligned as the captures promised to libraries,
 * lies outside the graph's own blocks, which it may write before it reads the argument, and shares
 * no byte with another bound argument where the graph writes one of the two: the captures had them
 * apart. So the bound arguments of a call are those that nothing but themselves can change.
 */
#ifndef REPRISE_GRAPH_BIND_BIND_H
#define REPRISE_GRAPH_BIND_BIND_H

#include "graph/bind/bound_scalars.h"
#include "graph/capture/compare.h"
#include "graph/template/params.h"

/* X(name, text): why an argument is copied, or that it is not. Those before RPI_COPY_UNALIGNED hold
 * for every call. */
#define RPI_COPY_REASONS(X)                                                                        \
    X(RPI_COPY_NOT, NULL)                                                                          \
    X(RPI_COPY_ASKED, "the capture was told to copy arguments")                                    \
    X(RPI_COPY_HIDDEN, "the graph has a node whose parameters cannot be read")                     \
    X(RPI_COPY_UNUSED, "no node parameter holds its address")                                      \
    X(RPI_COPY_DOUBTFUL, "a word that may be its address is not proved to be it")                  \
    X(RPI_COPY_ROWS, "a copy of several rows uses it, which an exec cannot change")                \
    X(RPI_COPY_UNVERIFIED, "a third capture did not have its addresses where they were expected")  \
    X(RPI_COPY_WRONG, "bound, it makes replays give other results than an eager run")              \
    X(RPI_COPY_REFUSED, "the driver refused to change a copy or fill that uses it")                \
    X(RPI_COPY_EMPTY, "it has no bytes")                                                           \
    X(RPI_COPY_UNALIGNED, "its address is not aligned as addresses in the capture were")           \
    X(RPI_COPY_OWN, "it lies where the graph has its blocks")                                      \
    X(RPI_COPY_OVERLAPS, "it overlaps another argument, and the graph writes one of them")         \
    X(RPI_COPY_CHOSEN, "copying it costs less than changing the nodes that use it")

enum rpi_copy_reason {
#define X(name, text) name,
    RPI_COPY_REASONS(X)
#undef X
};

struct rpi_bind_site {
    uint32_t arg;
    uint32_t offset;
    int64_t delta;
};

struct rpi_bind_image {
    struct rpi_node_image *params;
    uint32_t node; /* its number in the template (sites.h) */
    uint32_t first_site, site_count;
    uint32_t first_scalar, scalar_count; /* places in the binding's scalars */
};

struct rpi_bind_arg {
    uint64_t staging;
    bool backed;       /* memory is behind it */
    CUdeviceptr plain; /* staging of its own, where copies want allocated memory; 0: none */
    uint64_t bytes;
    uint64_t alignment; /* of addresses that are bound */
    enum rp_arg_role role;
    enum rpi_copy_reason never;  /* why no call binds it; RPI_COPY_NOT: calls may */
    bool in_copies;              /* a memcpy node uses it */
    enum rpi_copy_reason reason; /* in the last call that was looked at; RPI_COPY_NOT: bound */
    uint32_t first_use, use_count;
    size_t all_sites; /* proved in the template, bindable or not */
};

struct rpi_copy_choice;
struct rpi_copy;

enum { RPI_COPY_OF_VALUE = UINT32_MAX }; /* no argument's: sets a word */

/* The copies of a call in one direction. */
struct rpi_copy_list {
    struct rpi_copy *copies; /* room for each value, which stand first, and each argument */
    uint32_t *args;          /* whose each is, or RPI_COPY_OF_VALUE */
    size_t count;
    size_t carried; /* the first so many are made by the graph, the others beside it */
};

struct rpi_binding {
    uint64_t pool_base;
    struct rpi_pool_core *core;   /* unowned */
    const struct rpi_ranges *own; /* of the pool: where the graph's blocks lie; unowned */
    struct rpi_bind_arg *args;
    uint64_t *given, *targets; /* of each argument, in the last call that was looked at */
    uint32_t *order;           /* arguments by the addresses of that call */
    size_t arg_count;
    unsigned renewals; /* execs that were made anew for other memory */
    size_t copied;     /* arguments that this call copies, those of 0 bytes left out */
    bool chosen;       /* there was a call, and the way of binding is that of the last */
    bool copies_all;   /* calls copy what they could bind */
    bool outs_overlap; /* copies back of this call: the later ones win */
    struct rpi_copy_choice *choice; /* owned (copy_choice.h); NULL: nothing is copied by choice */
    struct rpi_copy_list in, out;   /* of the call under way */
    uint64_t *value_addresses;      /* of the words that each replay sets */
    const uint64_t *values;         /* of the call under way; unowned */
    size_t value_count;
    struct rpi_bound_scalars scalars;
    struct {
        RPI_VEC(struct rpi_bind_image);
    } images;
    struct {
        RPI_VEC(struct rpi_bind_site);
    } sites;
    struct {
        RPI_VEC(uint32_t);
    } uses;
    struct {
        RPI_VEC(void *); /* that the images lie in */
    } memory;
    unsigned char *next; /* free in the last of these, and how much */
    size_t memory_left;
};

/* Of a graph in the making, which outlives the binding. nodes: of the template, by number. args:
 * those of the capture. The context is current. */
rp_status rpi_binding_init(struct rpi_binding *binding, const struct rp_graph *graph,
                           const CUgraphNode *nodes, const struct rpi_comparison *comparison,
                           const struct rpi_recorded *recorded, const struct rp_arg *args,
                           struct rp_error *err);
void rpi_binding_finish(struct rpi_binding *binding); /* allowed on a zeroed one */

/* No call binds the argument from now on. */
void rpi_binding_demote(struct rpi_binding *binding, size_t arg, enum rpi_copy_reason reason);

/* Memory behind the argument's staging. With the core's lock held. */
rp_status rpi_binding_back(struct rpi_binding *binding, size_t arg, struct rp_error *err);
/* Staging in memory that cuMemAlloc gives, for an argument that is not there yet. The graph has to
 * have no other words of it than those that are bound. */
rp_status rpi_binding_allocate(struct rpi_binding *binding, size_t arg, struct rp_error *err);
/* Does the graph have other words of the argument, so that its staging has to be where it was
 * recorded? */
static inline bool rpi_binding_stays(const struct rpi_binding *binding, size_t arg)
{
    enum rpi_copy_reason never = binding->args[arg].never;
    return never == RPI_COPY_UNVERIFIED || never == RPI_COPY_WRONG;
}
/* Gives back what that has taken: the graph's replays are over. Both with the core's lock held. */
void rpi_binding_release(struct rpi_binding *binding);
/* Writes the targets into the copies of a template that an exec is about to be made from. An exec's
 * copies move only among memory that is mapped, or only among memory that is allocated: so it is
 * made for what the call has. nodes: of the template, by number. Targets that the driver does not
 * know are left out, and those arguments go to their staging. */
void rpi_binding_point(const struct rpi_binding *binding, const struct rp_driver *driver,
                       const CUgraphNode *nodes);
/* Does this call copy the argument? */
static inline bool rpi_binding_copies(const struct rpi_binding *binding, size_t arg)
{
    return binding->args[arg].bytes && binding->args[arg].reason != RPI_COPY_NOT;
}

/* Chooses each argument's target for a call on the stream whose arguments were checked. */
void rpi_binding_choose(struct rpi_binding *binding, const struct rp_arg *args, CUstream stream);
/* Calls from the next on copy what they could bind, but for arguments that copy nodes use, or bind
 * it again. */
void rpi_binding_copy_all(struct rpi_binding *binding, bool copies);
/* There is no memory to copy to: what the call under way copies by choice it binds, and so do those
 * after it. False when it copies nothing by choice. */
bool rpi_binding_give_up_copies(struct rpi_binding *binding);

static inline void rpi_binding_write(const struct rpi_binding *binding,
                                     const struct rpi_bind_image *image, const uint64_t *targets)
{
    const struct rpi_bind_site *site = binding->sites.data + image->first_site;
    for (uint32_t i = 0; i < image->site_count; i++, site++)
        rpi_node_image_write(image->params, site->offset,
                             targets[site->arg] + (uint64_t)site->delta);
    if (image->scalar_count)
        rpi_bound_scalars_write(&binding->scalars,
                                binding->scalars.places.data + image->first_scalar,
                                image->scalar_count, image->params);
}

/* Writes the targets and scalars into an image, and gives that to the exec for its next launches.
 * node is the image's in the graph that the exec was instantiated from. */
static inline CUresult rpi_binding_give(const struct rpi_binding *binding,
                                        const struct rpi_bind_image *image,
                                        const struct rp_driver *driver, CUgraphExec exec,
                                        CUgraphNode node, CUcontext context,
                                        const char **out_function)
{
    rpi_binding_write(binding, image, binding->targets);
    return rpi_node_image_set(image->params, driver, exec, node, context, out_function);
}

/* A walker, for tests and debug builds: do images, sites and uses tell the same, and do the targets
 * follow from what the last call bound? */
bool rpi_binding_is_valid(const struct rpi_binding *binding);

/* NULL for RPI_COPY_NOT. Static text. */
const char *rpi_copy_reason_text(enum rpi_copy_reason reason);

#endif
