/* SPDX-License-Identifier: MIT */
#include "graph/bind/bind.h"

#include "base/held.h"
#include "graph/bind/copy_choice.h"
#include "graph/objects/arguments.h"

#include <assert.h>

const char *rpi_copy_reason_text(enum rpi_copy_reason reason)
{
    assert(reason <= RPI_COPY_CHOSEN);
    static const char *const texts[] = {
#define X(name, text) text,
        RPI_COPY_REASONS(X)
#undef X
    };
    return texts[reason];
}

static bool init_list(struct rpi_copy_list *list, size_t most)
{
    list->copies = rpi_calloc(most + 1, sizeof *list->copies);
    list->args = rpi_calloc(most + 1, sizeof *list->args);
    return list->copies && list->args;
}

static void finish_list(struct rpi_copy_list *list)
{
    rpi_free(list->copies);
    rpi_free(list->args);
}

void rpi_binding_finish(struct rpi_binding *binding)
{
    for (size_t i = 0; i < binding->memory.count; i++)
        rpi_free(binding->memory.data[i]);
    rpi_vec_finish(&binding->memory);
    rpi_vec_finish(&binding->images);
    rpi_vec_finish(&binding->sites);
    rpi_vec_finish(&binding->uses);
    rpi_bound_scalars_finish(&binding->scalars);
    rpi_free(binding->args);
    rpi_free(binding->given);
    rpi_free(binding->targets);
    rpi_free(binding->order);
    finish_list(&binding->in);
    finish_list(&binding->out);
    rpi_free(binding->value_addresses);
    rpi_copy_choice_destroy(binding->choice);
    *binding = (struct rpi_binding){0};
}

void rpi_binding_demote(struct rpi_binding *binding, size_t arg, enum rpi_copy_reason reason)
{
    assert(arg < binding->arg_count);
    assert(reason != RPI_COPY_NOT && reason < RPI_COPY_UNALIGNED);
    struct rpi_bind_arg *demoted = &binding->args[arg];
    if (demoted->never == RPI_COPY_NOT)
        demoted->never = reason;
    if (demoted->reason == RPI_COPY_NOT && demoted->bytes)
        binding->copied++;
    demoted->reason = demoted->never;
    binding->targets[arg] = demoted->staging;
    binding->chosen = false; /* which copies back overlap is looked at in the next call */
}

rp_status rpi_binding_back(struct rpi_binding *binding, size_t arg, struct rp_error *err)
{
    assert(arg < binding->arg_count);
    struct rpi_bind_arg *backed = &binding->args[arg];
    if (backed->backed || !backed->bytes)
        return RP_OK;
    rp_status status = rpi_staging_back(binding->core, backed->staging, backed->bytes, err);
    backed->backed = status == RP_OK;
    return status;
}

rp_status rpi_binding_allocate(struct rpi_binding *binding, size_t arg, struct rp_error *err)
{
    assert(arg < binding->arg_count && !rpi_binding_stays(binding, arg));
    assert(!binding->args[arg].plain && binding->args[arg].bytes);
    struct rpi_bind_arg *allocated = &binding->args[arg];
    rp_status status =
        rpi_staging_allocate(binding->core, allocated->bytes, &allocated->plain, err);
    if (status != RP_OK)
        return status;
    if (binding->targets[arg] == allocated->staging)
        binding->targets[arg] = allocated->plain;
    allocated->staging = allocated->plain;
    allocated->backed = true;
    return RP_OK;
}

void rpi_binding_release(struct rpi_binding *binding)
{
    rpi_assert_held(&binding->core->lock);
    for (size_t k = 0; k < binding->arg_count; k++)
        if (binding->args[k].plain)
            rpi_staging_free(binding->core, binding->args[k].bytes, binding->args[k].plain);
}

static CUresult point_node(const struct rpi_bind_image *image, const struct rp_driver *driver,
                           CUgraphNode node)
{
    CUDA_MEMCPY3D copy;
    memcpy(&copy, image->params->bytes, sizeof copy);
    return driver->cuGraphMemcpyNodeSetParams(node, &copy);
}

void rpi_binding_point(const struct rpi_binding *binding, const struct rp_driver *driver,
                       const CUgraphNode *nodes)
{
    for (size_t i = 0; i < binding->images.count; i++) {
        const struct rpi_bind_image *image = &binding->images.data[i];
        if (image->params->type != CU_GRAPH_NODE_TYPE_MEMCPY)
            continue;
        rpi_binding_write(binding, image, binding->targets);
        if (point_node(image, driver, nodes[image->node]) == CUDA_SUCCESS)
            continue;
        for (uint32_t s = 0; s < image->site_count; s++) {
            const struct rpi_bind_site *site = &binding->sites.data[image->first_site + s];
            rpi_node_image_write(image->params, site->offset,
                                 binding->args[site->arg].staging + (uint64_t)site->delta);
        }
        point_node(image, driver, nodes[image->node]);
    }
}

/* ---- What can be bound --------------------------------------------------------------------- */

static rp_status no_memory(struct rp_error *err, size_t bytes)
{
    return rpi_error_host_memory(err, "rp_graph_capture", bytes);
}

static rp_status init_args(struct rpi_binding *binding, const struct rp_pool *pool,
                           const struct rpi_comparison *comparison,
                           const struct rpi_recorded *recorded, const struct rp_arg *args,
                           struct rp_error *err)
{
    size_t count = binding->arg_count, values = recorded->values.count;
    binding->args = rpi_calloc(count + 1, sizeof *binding->args);
    binding->given = rpi_calloc(count + 1, sizeof *binding->given);
    binding->targets = rpi_calloc(count + 1, sizeof *binding->targets);
    binding->order = rpi_calloc(count + 1, sizeof *binding->order);
    bool listed = init_list(&binding->in, count + values) && init_list(&binding->out, count);
    binding->value_addresses = rpi_calloc(values + 1, sizeof *binding->value_addresses);
    if (!binding->args || !binding->given || !binding->targets || !binding->order || !listed ||
        !binding->value_addresses)
        return no_memory(err, (count + values) * sizeof *binding->args);
    binding->value_count = values;
    if (values)
        memcpy(binding->value_addresses, recorded->values.data,
               values * sizeof *binding->value_addresses);
    for (size_t k = 0; k < count; k++) {
        uint64_t staging = recorded->addresses.data[k];
        binding->order[k] = (uint32_t)k;
        binding->targets[k] = staging;
        binding->args[k] = (struct rpi_bind_arg){.staging = staging,
                                                 .bytes = args[k].bytes,
                                                 .alignment = rpi_arg_alignment(pool, &args[k]),
                                                 .role = args[k].role};
        if (comparison->hidden)
            rpi_binding_demote(binding, k, RPI_COPY_HIDDEN);
    }
    for (size_t i = 0; i < comparison->doubtful.count; i++)
        rpi_binding_demote(binding, comparison->doubtful.data[i], RPI_COPY_DOUBTFUL);
    return RP_OK;
}

/* Can an exec change this node? */
static enum rpi_copy_reason judge_node(const struct rpi_params *params)
{
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL || params->type == CU_GRAPH_NODE_TYPE_MEMSET)
        return RPI_COPY_NOT;
    assert(params->type == CU_GRAPH_NODE_TYPE_MEMCPY); /* no other node has fields with sites */
    CUDA_MEMCPY3D copy;
    memcpy(&copy, params->image.data, sizeof copy);
    return copy.Height > 1 || copy.Depth > 1 ? RPI_COPY_ROWS : RPI_COPY_NOT;
}

static void demote_block(struct rpi_binding *binding, uint32_t block, enum rpi_copy_reason reason)
{
    if (block < binding->arg_count && reason != RPI_COPY_NOT)
        rpi_binding_demote(binding, block, reason);
}

/* Of two proved words that share bytes one is there by chance. */
static void demote_shared_bytes(struct rpi_binding *binding, const struct rpi_site *sites,
                                size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count; j++) {
            uint32_t a = sites[i].offset, b = sites[j].offset;
            if (a < b + 8 && b < a + 8) {
                demote_block(binding, sites[i].block, RPI_COPY_DOUBTFUL);
                demote_block(binding, sites[j].block, RPI_COPY_DOUBTFUL);
            }
        }
    }
}

/* Does each word that binding would write hold the address that it was proved to hold? */
static void check_words(struct rpi_binding *binding, const struct rpi_params *params,
                        const struct rpi_site *sites, size_t count)
{
    assert(!count || sites[0].node == sites[count - 1].node);
    for (size_t i = 0; i < count; i++) {
        const struct rpi_site *site = &sites[i];
        uint64_t word = 0;
        if (site->block >= binding->arg_count)
            continue;
        bool within = site->offset + sizeof word <= params->image.count;
        if (within)
            memcpy(&word, params->image.data + site->offset, sizeof word);
        if (!within || word != binding->args[site->block].staging + (uint64_t)site->delta)
            rpi_binding_demote(binding, site->block, RPI_COPY_DOUBTFUL);
    }
}

/* Memory for an image, behind that of the image before: a little at first, as there are many graphs
 * that bind few nodes, then twice as much each time. */
static void *take_memory(struct rpi_binding *binding, size_t bytes)
{
    assert(bytes && bytes % 16 == 0);
    enum { LEAST = 2048, MOST_DOUBLINGS = 5, ALIGNMENT = 16 };
    if (bytes > binding->memory_left) {
        size_t count = binding->memory.count;
        size_t piece = (size_t)LEAST << (count < MOST_DOUBLINGS ? count : MOST_DOUBLINGS);
        if (piece < bytes)
            piece = bytes;
        void *memory = rpi_malloc(piece + ALIGNMENT);
        if (!memory || !rpi_vec_push(&binding->memory, memory)) {
            rpi_free(memory);
            return NULL;
        }
        binding->next = (unsigned char *)memory + ALIGNMENT - (uintptr_t)memory % ALIGNMENT;
        binding->memory_left = piece;
    }
    void *taken = binding->next;
    binding->next += bytes;
    binding->memory_left -= bytes;
    return taken;
}

/* An image of a node's parameters, which were read. */
static rp_status add_image(struct rpi_binding *binding, const struct rpi_params *params,
                           uint32_t node, struct rp_error *err)
{
    size_t bytes = rpi_node_image_bytes(params);
    void *memory = rpi_vec_reserve(&binding->images, binding->images.count + 1)
                       ? take_memory(binding, bytes)
                       : NULL;
    if (!memory)
        return no_memory(err, bytes);
    binding->images.data[binding->images.count++] =
        (struct rpi_bind_image){.params = rpi_node_image_make(memory, params), .node = node};
    return RP_OK;
}

/* One node's sites, `count` of the template's: demotes arguments, makes the image. */
static rp_status add_node(struct rpi_binding *binding, struct rpi_params *params,
                          const struct rp_driver *driver, CUgraphNode handle, uint32_t node,
                          const struct rpi_site *sites, size_t count, struct rp_error *err)
{
    assert(!binding->images.count || binding->images.data[binding->images.count - 1].node < node);
    rp_status status = rpi_params_read(params, driver, handle, err);
    if (status != RP_OK)
        return status;
    enum rpi_copy_reason reason = judge_node(params);
    for (size_t i = 0; i < count; i++) {
        demote_block(binding, sites[i].block, reason);
        if (sites[i].block < binding->arg_count && params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
            binding->args[sites[i].block].in_copies = true;
    }
    demote_shared_bytes(binding, sites, count);
    check_words(binding, params, sites, count);
    return add_image(binding, params, node, err);
}

/* Counts the sites of arguments among the template's from `first` on that are of this node. */
static size_t count_node(struct rpi_binding *binding, const struct rpi_sites *sites, size_t first,
                         uint32_t node, bool *out_uses_args)
{
    size_t end = first;
    *out_uses_args = false;
    for (; end < sites->count && sites->data[end].node == node; end++) {
        uint32_t block = sites->data[end].block;
        if (block >= binding->arg_count)
            continue;
        *out_uses_args = true;
        binding->args[block].all_sites++;
    }
    return end - first;
}

/* The scalars from `first` on that are of this node are of the next image. */
static size_t number_scalars(const struct rpi_binding *binding,
                             const struct rpi_scalar_sites *scalars, size_t first, uint32_t node,
                             uint32_t *image_of)
{
    size_t end = first;
    for (; end < scalars->count && scalars->data[end].node == node; end++)
        image_of[end] = (uint32_t)binding->images.count;
    return end - first;
}

/* Images of the nodes that hold addresses of arguments, or scalars; the rest stays as it was
 * recorded. image_of: of each scalar. */
static rp_status add_nodes(struct rpi_binding *binding, const struct rp_driver *driver,
                           const CUgraphNode *nodes, const struct rpi_comparison *comparison,
                           uint32_t *image_of, struct rp_error *err)
{
    const struct rpi_sites *sites = &comparison->sites;
    const struct rpi_scalar_sites *scalars = &comparison->scalars;
    struct rpi_params params = {0};
    rp_status status = RP_OK;
    size_t i = 0, k = 0;
    while (status == RP_OK && (i < sites->count || k < scalars->count)) {
        uint32_t next = i < sites->count ? sites->data[i].node : UINT32_MAX;
        uint32_t node =
            k < scalars->count && scalars->data[k].node < next ? scalars->data[k].node : next;
        bool uses_args;
        size_t count = count_node(binding, sites, i, node, &uses_args);
        size_t held = number_scalars(binding, scalars, k, node, image_of);
        if (uses_args || held)
            status =
                add_node(binding, &params, driver, nodes[node], node, sites->data + i, count, err);
        i += count;
        k += held;
    }
    rpi_params_finish(&params);
    return status;
}

/* With the images made: which hold scalars. */
static rp_status add_scalars(struct rpi_binding *binding, const struct rpi_comparison *comparison,
                             const uint32_t *image_of, const struct rpi_scalars *named,
                             struct rp_error *err)
{
    struct rpi_bound_scalars *bound = &binding->scalars;
    rp_status status = rpi_bound_scalars_init(bound, &comparison->scalars, image_of, named, err);
    for (uint32_t i = 0; status == RP_OK && i < bound->places.count; i++) {
        struct rpi_bind_image *image = &binding->images.data[bound->places.data[i].image];
        if (!image->scalar_count++)
            image->first_scalar = i;
    }
    return status;
}

static rp_status add_images(struct rpi_binding *binding, const struct rp_driver *driver,
                            const CUgraphNode *nodes, const struct rpi_comparison *comparison,
                            const struct rpi_scalars *named, struct rp_error *err)
{
    size_t count = comparison->scalars.count;
    uint32_t *image_of = rpi_calloc(count + 1, sizeof *image_of);
    if (!image_of)
        return no_memory(err, count * sizeof *image_of);
    rp_status status = add_nodes(binding, driver, nodes, comparison, image_of, err);
    if (status == RP_OK)
        status = add_scalars(binding, comparison, image_of, named, err);
    rpi_free(image_of);
    return status;
}

/* The sites of arguments that can be bound, by image. Nodes come in the same order in both. */
static rp_status add_sites(struct rpi_binding *binding, const struct rpi_sites *sites,
                           struct rp_error *err)
{
    assert(!binding->sites.count);
    size_t next = 0;
    for (size_t i = 0; i < binding->images.count; i++) {
        struct rpi_bind_image *image = &binding->images.data[i];
        image->first_site = (uint32_t)binding->sites.count;
        while (next < sites->count && sites->data[next].node < image->node)
            next++;
        for (; next < sites->count && sites->data[next].node == image->node; next++) {
            const struct rpi_site *site = &sites->data[next];
            if (site->block >= binding->arg_count ||
                binding->args[site->block].never != RPI_COPY_NOT)
                continue;
            struct rpi_bind_site kept = {site->block, site->offset, site->delta};
            if (!rpi_vec_push(&binding->sites, kept))
                return no_memory(err, sites->count * sizeof kept);
        }
        image->site_count = (uint32_t)binding->sites.count - image->first_site;
    }
    return RP_OK;
}

/* For each image, and each argument that it uses, once: counts the use, or puts it in its place. */
static void each_use(struct rpi_binding *binding, uint32_t *last_image, uint32_t *uses)
{
    for (size_t k = 0; k < binding->arg_count; k++)
        last_image[k] = UINT32_MAX;
    for (uint32_t i = 0; i < binding->images.count; i++) {
        const struct rpi_bind_image *image = &binding->images.data[i];
        for (uint32_t s = 0; s < image->site_count; s++) {
            uint32_t arg = binding->sites.data[image->first_site + s].arg;
            if (last_image[arg] == i)
                continue;
            last_image[arg] = i;
            if (uses)
                uses[binding->args[arg].first_use + binding->args[arg].use_count] = i;
            binding->args[arg].use_count++;
        }
    }
}

/* The images of each argument: a counting sort. */
static rp_status add_uses(struct rpi_binding *binding, struct rp_error *err)
{
    uint32_t total = 0;
    uint32_t *last_image = rpi_calloc(binding->arg_count + 1, sizeof *last_image);
    if (!last_image || !rpi_vec_reserve(&binding->uses, binding->sites.count + 1)) {
        rpi_free(last_image);
        return no_memory(err, binding->sites.count * sizeof *last_image);
    }
    each_use(binding, last_image, NULL);
    for (size_t k = 0; k < binding->arg_count; k++) {
        struct rpi_bind_arg *arg = &binding->args[k];
        arg->first_use = total;
        total += arg->use_count;
        arg->use_count = 0;
    }
    each_use(binding, last_image, binding->uses.data);
    binding->uses.count = total;
    rpi_free(last_image);
    return RP_OK;
}

rp_status rpi_binding_init(struct rpi_binding *binding, const struct rp_graph *graph,
                           const CUgraphNode *nodes, const struct rpi_comparison *comparison,
                           const struct rpi_recorded *recorded, const struct rp_arg *args,
                           struct rp_error *err)
{
    const struct rpi_pool *memory = &graph->pool->core->memory;
    *binding = (struct rpi_binding){
        .core = graph->pool->core,
        .pool_base = memory->arena.base,
        .own = &graph->member.all,
        .arg_count = graph->arg_count,
    };
    rp_status status = init_args(binding, graph->pool, comparison, recorded, args, err);
    if (status == RP_OK)
        status = add_images(binding, graph->pool->device->driver, nodes, comparison,
                            &recorded->scalars, err);
    for (size_t k = 0; status == RP_OK && k < binding->arg_count; k++)
        if (!binding->args[k].all_sites)
            rpi_binding_demote(binding, k, RPI_COPY_UNUSED);
    if (status == RP_OK)
        status = add_sites(binding, &comparison->sites, err);
    if (status == RP_OK)
        status = add_uses(binding, err);
    if (status != RP_OK)
        rpi_binding_finish(binding);
    assert(status != RP_OK || rpi_binding_is_valid(binding));
    return status;
}

/* ---- What is bound in a call --------------------------------------------------------------- */

/* Sorts by address. The order of the last call is where it starts from: mostly nothing is to do,
 * and Shell's gaps keep the rest below the square. */
static void sort_by_address(struct rpi_binding *binding)
{
    static const size_t gaps[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1};
    uint32_t *order = binding->order;
    const uint64_t *given = binding->given;
    bool sorted = true;
    for (size_t i = 1; sorted && i < binding->arg_count; i++)
        sorted = given[order[i - 1]] <= given[order[i]];
    for (size_t g = 0; !sorted && g < sizeof gaps / sizeof *gaps; g++) {
        size_t gap = gaps[g];
        for (size_t i = gap; i < binding->arg_count; i++) {
            uint32_t moved = order[i];
            size_t j = i;
            for (; j >= gap && given[order[j - gap]] > given[moved]; j -= gap)
                order[j] = order[j - gap];
            order[j] = moved;
        }
    }
}

/* Leaves as bound only arguments of which no two overlap where one is written: those that begin
 * lower stay. Looks whether copies back overlap. */
static void separate(struct rpi_binding *binding)
{
    uint64_t end_of_any = 0, end_of_written = 0, end_of_copied = 0;
    sort_by_address(binding);
    binding->outs_overlap = false;
    for (size_t i = 0; i < binding->arg_count; i++) {
        uint32_t k = binding->order[i];
        struct rpi_bind_arg *arg = &binding->args[k];
        uint64_t given = binding->given[k], end = given + arg->bytes;
        bool written = arg->role != RP_ARG_IN;
        if (arg->reason == RPI_COPY_NOT &&
            (given < end_of_written || (written && given < end_of_any))) {
            arg->reason = RPI_COPY_OVERLAPS;
            binding->targets[k] = arg->staging;
        }
        if (arg->reason != RPI_COPY_NOT) {
            if (!written || !arg->bytes)
                continue;
            binding->outs_overlap |= given < end_of_copied;
            end_of_copied = end_of_copied < end ? end : end_of_copied;
            continue;
        }
        if (end_of_any < end)
            end_of_any = end;
        if (written && end_of_written < end)
            end_of_written = end;
    }
}

/* Why the call cannot bind the argument. */
static enum rpi_copy_reason obstacle(const struct rpi_binding *binding,
                                     const struct rpi_bind_arg *arg, uint64_t given)
{
    if (!arg->bytes)
        return RPI_COPY_EMPTY;
    if (arg->never != RPI_COPY_NOT)
        return arg->never;
    if (!given || (given & (arg->alignment - 1)))
        return RPI_COPY_UNALIGNED;
    uint64_t end = given + arg->bytes;
    if (end < given)
        return RPI_COPY_OVERLAPS; /* no device has such a range; the copy says so */
    uint64_t base = binding->pool_base;
    if (end > base && rpi_ranges_overlap(binding->own, given > base ? given - base : 0, end - base))
        return RPI_COPY_OWN;
    return RPI_COPY_NOT;
}

static enum rpi_copy_reason judge(const struct rpi_binding *binding, size_t k)
{
    const struct rpi_bind_arg *arg = &binding->args[k];
    enum rpi_copy_reason reason = obstacle(binding, arg, binding->given[k]);
    bool copied = binding->copies_all || (binding->choice && binding->choice->rule.copied[k]);
    return reason == RPI_COPY_NOT && copied && !arg->in_copies ? RPI_COPY_CHOSEN : reason;
}

static void choose_targets(struct rpi_binding *binding)
{
    for (size_t k = 0; k < binding->arg_count; k++) {
        struct rpi_bind_arg *arg = &binding->args[k];
        arg->reason = judge(binding, k);
        binding->targets[k] = arg->reason == RPI_COPY_NOT ? binding->given[k] : arg->staging;
    }
    separate(binding);
    binding->copied = 0;
    for (size_t k = 0; k < binding->arg_count; k++)
        binding->copied += binding->args[k].bytes && binding->args[k].reason != RPI_COPY_NOT;
}

void rpi_binding_choose(struct rpi_binding *binding, const struct rp_arg *args, CUstream stream)
{
    struct rpi_copy_choice *choice = binding->copies_all ? NULL : binding->choice;
    bool changed = !binding->chosen;
    binding->chosen = true;
    for (size_t k = 0; k < binding->arg_count; k++) {
        bool moved = binding->given[k] != args[k].address;
        changed |= moved;
        binding->given[k] = args[k].address;
        if (choice)
            choice->changed[k] =
                moved && obstacle(binding, &binding->args[k], args[k].address) == RPI_COPY_NOT;
    }
    if (choice && rpi_copy_choice_next(choice, stream))
        changed = true;
    if (changed)
        choose_targets(binding);
}

void rpi_binding_copy_all(struct rpi_binding *binding, bool copies)
{
    if (binding->copies_all == copies)
        return;
    binding->copies_all = copies;
    binding->chosen = false;
}

bool rpi_binding_give_up_copies(struct rpi_binding *binding)
{
    bool chosen = false;
    for (size_t k = 0; k < binding->arg_count; k++)
        chosen |= binding->args[k].reason == RPI_COPY_CHOSEN;
    if (!chosen)
        return false;
    binding->copies_all = false;
    rpi_copy_choice_destroy(binding->choice);
    binding->choice = NULL;
    choose_targets(binding);
    return true;
}
