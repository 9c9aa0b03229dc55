/* SPDX-License-Identifier: MIT */
#include "graph/exec/exec.h"

#include "base/log.h"

#include <assert.h>

/* ---- Seating ------------------------------------------------------------------------------- */

static size_t stale_words(const struct rpi_binding *binding)
{
    return (binding->images.count + 63) / 64;
}

rp_status rpi_exec_init(struct rpi_exec *exec, const struct rp_device *device,
                        const struct rpi_binding *binding, struct rp_error *err)
{
    struct rpi_exec made = {.driver = device->driver, .context = device->context};
    size_t words = stale_words(binding);
    made.bound = rpi_calloc(binding->arg_count + 1, sizeof *made.bound);
    made.scalars = rpi_calloc(binding->scalars.slots.count + 1, sizeof *made.scalars);
    made.stale = rpi_calloc(words + 1, sizeof *made.stale);
    if (!made.bound || !made.scalars || !made.stale) {
        rpi_exec_finish(&made);
        return rpi_error_host_memory(err, "rp_graph_capture", words * sizeof *made.stale);
    }
    *exec = made;
    return RP_OK;
}

void rpi_exec_finish(struct rpi_exec *exec)
{
    rpi_free(exec->bound);
    rpi_free(exec->scalars);
    rpi_free(exec->stale);
    rpi_copy_nodes_finish(&exec->copy_nodes);
    *exec = (struct rpi_exec){0};
}

void rpi_exec_seat(struct rpi_exec *exec, const struct rpi_binding *binding, CUgraphExec handle,
                   const CUgraphNode *nodes)
{
    assert(handle);
    exec->handle = handle;
    exec->nodes = nodes;
    for (size_t k = 0; k < binding->arg_count; k++)
        exec->bound[k] = binding->args[k].in_copies || binding->args[k].plain
                             ? 0 /* copies are wherever the template was pointed at */
                             : binding->args[k].staging;
    for (size_t k = 0; k < binding->scalars.slots.count; k++)
        exec->scalars[k] = binding->scalars.slots.data[k].recorded;
    memset(exec->stale, 0, stale_words(binding) * sizeof *exec->stale);
    exec->stale_count = 0;
    rpi_copy_nodes_seat(&exec->copy_nodes);
}

/* ---- Binding ------------------------------------------------------------------------------- */

static void mark_images(struct rpi_exec *exec, const uint32_t *images, uint32_t count)
{
    assert(!count || images);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t *word = &exec->stale[images[i] / 64], bit = 1ull << images[i] % 64;
        exec->stale_count += !(*word & bit);
        *word |= bit;
    }
}

/* Marks the images that have to be given because the argument's target changed. */
static void mark_uses(struct rpi_exec *exec, const struct rpi_binding *binding, size_t k)
{
    assert(k < binding->arg_count);
    const struct rpi_bind_arg *arg = &binding->args[k];
    if (exec->bound[k] == binding->targets[k])
        return;
    exec->bound[k] = binding->targets[k];
    mark_images(exec, binding->uses.data + arg->first_use, arg->use_count);
}

/* Marks the images that hold a scalar which changed. */
static void mark_scalars(struct rpi_exec *exec, const struct rpi_bound_scalars *scalars)
{
    for (size_t k = 0; k < scalars->slots.count; k++) {
        const struct rpi_scalar_slot *slot = &scalars->slots.data[k];
        if (exec->scalars[k] == slot->word)
            continue;
        exec->scalars[k] = slot->word;
        mark_images(exec, scalars->uses.data + slot->first_use, slot->use_count);
    }
}

/* Sends all arguments of a refused node back to their staging. False when all are there. */
static bool demote_args_of(struct rpi_exec *exec, struct rpi_binding *binding,
                           const struct rpi_bind_image *image, const char *name)
{
    bool demoted = false;
    for (uint32_t i = 0; i < image->site_count; i++) {
        uint32_t k = binding->sites.data[image->first_site + i].arg;
        if (binding->targets[k] == binding->args[k].staging)
            continue;
        rpi_binding_demote(binding, k, RPI_COPY_REFUSED);
        mark_uses(exec, binding, k);
        demoted = true;
        rpi_log(RP_LOG_WARNING,
                "'%.60s': argument %u is copied from now on: the driver refused to change node %u",
                name, k, image->node);
    }
    return demoted;
}

/* Gives the marked images of one word of marks, as far as the driver takes them: the first that it
 * refuses is the lowest that stays marked. */
static CUresult give_word(struct rpi_exec *exec, const struct rpi_binding *binding, size_t word,
                          const char **out_function)
{
    assert(word < stale_words(binding) && exec->handle);
    uint64_t marks = exec->stale[word];
    size_t given = 0;
    CUresult result = CUDA_SUCCESS;
    for (; marks; marks &= marks - 1, given++) {
        const struct rpi_bind_image *image =
            &binding->images.data[word * 64 + (size_t)__builtin_ctzll(marks)];
        result = rpi_binding_give(binding, image, exec->driver, exec->handle,
                                  exec->nodes[image->node], exec->context, out_function);
        if (result != CUDA_SUCCESS)
            break;
    }
    exec->stale[word] = marks;
    assert(given <= exec->stale_count);
    exec->stale_count -= given;
    exec->patched += given;
    return result;
}

/* Other staging for the node's arguments that are copied there and not in allocated memory yet.
 * False when there are none. */
static bool allocate_args_of(struct rpi_exec *exec, struct rpi_binding *binding,
                             const struct rpi_bind_image *image, rp_status *status,
                             struct rp_error *err)
{
    bool allocated = false;
    for (uint32_t i = 0; *status == RP_OK && i < image->site_count; i++) {
        uint32_t k = binding->sites.data[image->first_site + i].arg;
        if (binding->args[k].plain || binding->targets[k] != binding->args[k].staging ||
            rpi_binding_stays(binding, k))
            continue;
        *status = rpi_binding_allocate(binding, k, err);
        mark_uses(exec, binding, k);
        allocated = true;
    }
    return allocated;
}

/* What the driver said of an image. */
struct refusal {
    const struct rpi_bind_image *image;
    CUresult result;
    const char *function;
};

/* What can be done about it: RP_OK when the image is worth another try, with the exec that there is
 * or the one that is asked for. Only copies mind what kind of memory they get. What is copied can
 * go elsewhere; what is bound needs an exec that was made for it, which is too dear to have often.
 */
static rp_status refused(struct rpi_exec *exec, struct rpi_binding *binding,
                         const struct refusal *refusal, const char *name,
                         enum rpi_bind_answer *io_answer, struct rp_error *err)
{
    enum { MOST_RENEWALS = 4 };
    const struct rpi_bind_image *image = refusal->image;
    bool may_renew = !exec->renewed;
    rp_status status = RP_OK;
    if (refusal->result == CUDA_ERROR_INVALID_VALUE &&
        image->params->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        if (allocate_args_of(exec, binding, image, &status, err))
            return status;
        bool renew = may_renew && binding->renewals++ < MOST_RENEWALS;
        if (!renew && demote_args_of(exec, binding, image, name)) {
            *io_answer = RPI_BIND_NEEDS_MEMORY;
            return RP_OK;
        }
        if (may_renew) {
            exec->renewed = true;
            *io_answer = RPI_BIND_NEEDS_EXEC;
            return RP_OK;
        }
    }
    return rpi_error_driver(err, refusal->result, refusal->function,
                            "binding arguments in node %u of '%.60s'", image->node, name);
}

/* Marks what changed since this exec was bound last. */
static void mark_changed(struct rpi_exec *exec, const struct rpi_binding *binding)
{
    if (memcmp(exec->bound, binding->targets, binding->arg_count * sizeof *exec->bound) != 0)
        for (size_t k = 0; k < binding->arg_count; k++)
            mark_uses(exec, binding, k);
    mark_scalars(exec, &binding->scalars);
}

rp_status rpi_exec_bind(struct rpi_exec *exec, struct rpi_binding *binding, const char *name,
                        enum rpi_bind_answer *out_answer, struct rp_error *err)
{
    size_t words = stale_words(binding);
    enum rpi_bind_answer answer = RPI_BIND_BOUND;
    mark_changed(exec, binding);
    /* An image that is refused can mark others, before it too. */
    for (size_t word = 0; exec->stale_count && answer != RPI_BIND_NEEDS_EXEC;
         word = (word + 1) % words) {
        struct refusal refusal = {0};
        refusal.result = give_word(exec, binding, word, &refusal.function);
        if (refusal.result == CUDA_SUCCESS)
            continue;
        size_t image = word * 64 + (size_t)__builtin_ctzll(exec->stale[word]);
        refusal.image = &binding->images.data[image];
        rp_status status = refused(exec, binding, &refusal, name, &answer, err);
        if (status != RP_OK)
            return status;
    }
    assert(answer == RPI_BIND_NEEDS_EXEC || !exec->stale_count);
    *out_answer = answer;
    return RP_OK;
}
