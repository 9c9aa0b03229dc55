/* SPDX-License-Identifier: MIT */
#include "graph/verify/trial.h"

#include "base/hostmem.h"
#include "graph/capture/rehearse.h"
#include "graph/objects/arguments.h"

#include <assert.h>
#include <string.h>

/* ---- Contents ------------------------------------------------------------------------------ */

/* Waits for the stream, after copies that came to `result`. */
static rp_status finish_copies(const struct rpi_trial *trial, CUresult result, const char *function,
                               struct rp_error *err)
{
    int mode = rpi_relax_begin(trial->driver);
    CUresult waited = trial->driver->cuStreamSynchronize(trial->stream);
    rpi_relax_end(trial->driver, mode);
    if (result == CUDA_SUCCESS && waited == CUDA_SUCCESS)
        return RP_OK;
    return rpi_error_driver(err, result == CUDA_SUCCESS ? waited : result,
                            result == CUDA_SUCCESS ? "cuStreamSynchronize" : function,
                            "reading and writing the arguments of work that is tried");
}

rp_status rpi_trial_fill(const struct rpi_trial *trial, const struct rp_arg *args, bool changed,
                         struct rp_error *err)
{
    CUresult result = CUDA_SUCCESS;
    int mode = rpi_relax_begin(trial->driver);
    for (size_t k = 0; k < trial->arg_count && result == CUDA_SUCCESS; k++) {
        const struct rpi_trial_arg *arg = &trial->args[k];
        const void *from = changed && (arg->role & RP_ARG_IN) ? arg->changed : arg->before;
        if (arg->bytes)
            result =
                trial->driver->cuMemcpyHtoDAsync(args[k].address, from, arg->bytes, trial->stream);
    }
    rpi_relax_end(trial->driver, mode);
    return finish_copies(trial, result, "cuMemcpyHtoDAsync", err);
}

enum contents { BEFORE, RESULT, OTHER };

static rp_status read_into(struct rpi_trial *trial, const struct rp_arg *args,
                           enum contents contents, struct rp_error *err)
{
    CUresult result = CUDA_SUCCESS;
    int mode = rpi_relax_begin(trial->driver);
    for (size_t k = 0; k < trial->arg_count && result == CUDA_SUCCESS; k++) {
        struct rpi_trial_arg *arg = &trial->args[k];
        void *to = contents == BEFORE ? arg->before : contents == RESULT ? arg->result : arg->other;
        if (arg->bytes && args[k].address)
            result =
                trial->driver->cuMemcpyDtoHAsync(to, args[k].address, arg->bytes, trial->stream);
    }
    rpi_relax_end(trial->driver, mode);
    return finish_copies(trial, result, "cuMemcpyDtoHAsync", err);
}

rp_status rpi_trial_read(struct rpi_trial *trial, const struct rp_arg *args, bool other,
                         struct rp_error *err)
{
    return read_into(trial, args, other ? OTHER : RESULT, err);
}

bool rpi_trial_differs(const struct rpi_trial *trial, size_t *out_arg, uint64_t *out_byte)
{
    for (size_t k = 0; k < trial->arg_count; k++) {
        const struct rpi_trial_arg *arg = &trial->args[k];
        uint64_t byte = 0, bytes = arg->role == RP_ARG_IN ? 0 : arg->bytes;
        if (!bytes || memcmp(arg->result, arg->other, bytes) == 0)
            continue;
        while (arg->result[byte] == arg->other[byte])
            byte++;
        assert(byte < bytes);
        *out_arg = k;
        *out_byte = byte;
        return true;
    }
    return false;
}

static rp_status take_memory(struct rpi_trial_arg *made, const struct rp_arg *arg,
                             struct rp_error *err)
{
    *made = (struct rpi_trial_arg){.bytes = arg->bytes, .role = arg->role};
    made->before = rpi_calloc(1, arg->bytes + 1);
    made->changed = rpi_calloc(1, arg->bytes + 1);
    made->result = rpi_malloc(arg->bytes + 1);
    made->other = rpi_malloc(arg->bytes + 1);
    if (!made->before || !made->changed || !made->result || !made->other)
        return rpi_error_host_memory(err, "trying work", 4 * (arg->bytes + 1));
    return RP_OK;
}

static void change(struct rpi_trial_arg *arg)
{
    enum { MOVED = 16 };
    uint64_t bytes = arg->bytes, moved = bytes >= (uint64_t)2 * MOVED ? MOVED : 0;
    memcpy(arg->changed, arg->before + moved, bytes - moved);
    memcpy(arg->changed + bytes - moved, arg->before, moved);
    if (memcmp(arg->changed, arg->before, bytes) == 0)
        memset(arg->changed, 0, bytes);
}

rp_status rpi_trial_init(struct rpi_trial *trial, const struct rp_driver *driver, CUstream stream,
                         const struct rp_arg *args, size_t arg_count, struct rp_error *err)
{
    struct rpi_trial made = {.driver = driver, .stream = stream};
    rp_status status = RP_OK;
    made.args = rpi_calloc(arg_count + 1, sizeof *made.args);
    if (!made.args)
        return rpi_error_host_memory(err, "trying work", arg_count * sizeof *made.args);
    made.arg_count = arg_count;
    for (size_t k = 0; status == RP_OK && k < arg_count; k++)
        status = take_memory(&made.args[k], &args[k], err);
    if (status == RP_OK)
        status = read_into(&made, args, BEFORE, err);
    for (size_t k = 0; status == RP_OK && k < arg_count; k++)
        change(&made.args[k]);
    if (status == RP_OK)
        *trial = made;
    else
        rpi_trial_finish(&made);
    return status;
}

void rpi_trial_finish(struct rpi_trial *trial)
{
    for (size_t k = 0; k < trial->arg_count; k++) {
        rpi_free(trial->args[k].before);
        rpi_free(trial->args[k].changed);
        rpi_free(trial->args[k].result);
        rpi_free(trial->args[k].other);
    }
    rpi_free(trial->args);
    *trial = (struct rpi_trial){0};
}

/* ---- Twins --------------------------------------------------------------------------------- */

/* Mapped memory has no context. Copy nodes move among memory of one kind only, so twins are of
 * that kind; where no address tells it they are as a pool's. */
static bool is_mapped(const struct rp_driver *driver, uint64_t address)
{
    CUcontext context = NULL;
    return !address ||
           driver->cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address) !=
               CUDA_SUCCESS ||
           !context;
}

static uint64_t align_exactly(uint64_t address, uint64_t alignment)
{
    assert(alignment && (alignment & (alignment - 1)) == 0);
    return rpi_round_up(address, 2 * alignment) + alignment;
}

static rp_status allocate(struct rpi_twins *twins, size_t k, uint64_t alignment,
                          struct rp_error *err)
{
    uint64_t bytes = twins->args[k].bytes + 3 * alignment;
    int mode = rpi_relax_begin(twins->driver);
    CUresult result = twins->driver->cuMemAlloc(&twins->memory[k], bytes);
    rpi_relax_end(twins->driver, mode);
    if (result != CUDA_SUCCESS) {
        twins->memory[k] = 0;
        return rpi_error_driver(err, result, "cuMemAlloc",
                                "taking a second buffer for argument %zu", k);
    }
    assert(k < twins->arg_count && twins->memory[k]);
    twins->args[k].address = align_exactly(twins->memory[k], alignment);
    return RP_OK;
}

/* Of arguments that are mapped memory: where each lies, from the start of the arena. */
static uint64_t lay_out(const struct rpi_twins *twins, const struct rp_pool *pool,
                        const struct rp_arg *args, uint64_t *offsets)
{
    uint64_t height = 0;
    for (size_t k = 0; k < twins->arg_count; k++) {
        offsets[k] = UINT64_MAX;
        if (!args[k].bytes || !is_mapped(twins->driver, args[k].address))
            continue;
        offsets[k] = align_exactly(height, rpi_arg_alignment(pool, &args[k]));
        height = offsets[k] + args[k].bytes;
    }
    return height;
}

static rp_status make_twins(struct rpi_twins *twins, const struct rp_pool *pool,
                            const struct rp_arg *args, uint64_t *offsets, struct rp_error *err)
{
    uint64_t height = lay_out(twins, pool, args, offsets);
    rp_status status = RP_OK;
    if (height)
        status = rpi_arena_init(&twins->arena, twins->driver, pool->device->handle, height, err);
    if (status == RP_OK && height)
        status = rpi_arena_grow(&twins->arena, height, err);
    for (size_t k = 0; status == RP_OK && k < twins->arg_count; k++) {
        twins->args[k] = args[k];
        if (offsets[k] != UINT64_MAX)
            twins->args[k].address = twins->arena.base + offsets[k];
        else if (args[k].bytes)
            status = allocate(twins, k, rpi_arg_alignment(pool, &args[k]), err);
    }
    return status;
}

rp_status rpi_twins_init(struct rpi_twins *twins, const struct rp_pool *pool,
                         const struct rp_arg *args, size_t arg_count, struct rp_error *err)
{
    struct rpi_twins made = {.driver = pool->device->driver};
    uint64_t *offsets = rpi_calloc(arg_count + 1, sizeof *offsets);
    made.args = rpi_calloc(arg_count + 1, sizeof *made.args);
    made.memory = rpi_calloc(arg_count + 1, sizeof *made.memory);
    made.arg_count = arg_count;
    rp_status status = RP_OK;
    if (!offsets || !made.args || !made.memory)
        status = rpi_error_host_memory(err, "trying work", arg_count * sizeof *made.args);
    else
        status = make_twins(&made, pool, args, offsets, err);
    rpi_free(offsets);
    if (status == RP_OK)
        *twins = made;
    else
        rpi_twins_finish(&made);
    return status;
}

void rpi_twins_finish(struct rpi_twins *twins)
{
    for (size_t k = 0; twins->memory && k < twins->arg_count; k++)
        if (twins->memory[k]) {
            int mode = rpi_relax_begin(twins->driver);
            twins->driver->cuMemFree(twins->memory[k]);
            rpi_relax_end(twins->driver, mode);
        }
    if (twins->arena.driver)
        rpi_arena_finish(&twins->arena);
    rpi_free(twins->args);
    rpi_free(twins->memory);
    *twins = (struct rpi_twins){0};
}
