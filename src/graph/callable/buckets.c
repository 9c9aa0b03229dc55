/* SPDX-License-Identifier: MIT */
#include "graph/callable/buckets.h"

#include "graph/callable/strided_copy.h"
#include "graph/objects/objects.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* An argument with a rounded dimension. */
struct rpi_padded {
    bool bucketed; /* has such a dimension */
    bool staged;   /* goes through its place in the staging */
    bool filled;   /* in this bucket before: beyond last_sizes is padding */
    uint64_t offset;
};

enum { ALIGNMENT = 512 };

/* ---- Options ------------------------------------------------------------------------------- */

static rp_status refuse(const struct rp_dim *dim, const char *why, struct rp_error *err)
{
    return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_callable_create", "dimension '%.60s' %s",
                     dim->name ? dim->name : "(no name)", why);
}

static rp_status check_dim(const struct rp_dim *dim, struct rp_error *err)
{
    if (!dim->name)
        return refuse(dim, "has no name", err);
    if (!dim->axis_count || !dim->axes)
        return refuse(dim, "names no axis of an argument", err);
    if (dim->rule < RP_BUCKET_LIST || dim->rule > RP_BUCKET_MULTIPLES)
        return refuse(dim, "has a rule that is not an enum rp_bucket_rule", err);
    if (dim->rule != RP_BUCKET_POWERS_OF_TWO && (!dim->bucket_count || !dim->buckets))
        return refuse(dim, "has no buckets", err);
    if (dim->rule == RP_BUCKET_MULTIPLES && dim->bucket_count != 1)
        return refuse(dim, "needs one number to round up to multiples of", err);
    for (size_t i = 0; dim->rule != RP_BUCKET_POWERS_OF_TWO && i < dim->bucket_count; i++)
        if (dim->buckets[i] < 1 || (i && dim->buckets[i] <= dim->buckets[i - 1]))
            return refuse(dim, "has buckets that are not ascending from 1 on", err);
    for (size_t i = 0; i < dim->axis_count; i++)
        if (dim->axes[i].axis >= RP_MOST_RANK)
            return refuse(dim, "names an axis that no argument can have", err);
    return RP_OK;
}

static void *copy_of(const void *from, size_t count, size_t size)
{
    void *copy = rpi_reallocarray(NULL, count + 1, size);
    if (copy && count)
        memcpy(copy, from, count * size);
    return copy;
}

static rp_status copy_dim(struct rpi_dim *to, const struct rp_dim *from, struct rp_error *err)
{
    rp_status status = check_dim(from, err);
    if (status != RP_OK)
        return status;
    to->rule = from->rule;
    to->axis_count = from->axis_count;
    to->size_count = from->rule == RP_BUCKET_POWERS_OF_TWO ? 0 : from->bucket_count;
    to->name = rpi_strdup(from->name);
    to->axes = copy_of(from->axes, to->axis_count, sizeof *to->axes);
    to->sizes = copy_of(from->buckets, to->size_count, sizeof *to->sizes);
    return to->name && to->axes && to->sizes
               ? RP_OK
               : rpi_error_host_memory(err, "rp_callable_create", to->size_count * 8);
}

rp_status rpi_buckets_init(struct rpi_buckets *buckets, const struct rp_callable_options *options,
                           const struct rp_device *device, struct rp_error *err)
{
    const struct rp_driver *driver = device->driver;
    if (!options->dim_count)
        return RP_OK;
    buckets->dims = rpi_calloc(options->dim_count, sizeof *buckets->dims);
    buckets->fills = copy_of(options->fills, options->fill_count, sizeof *buckets->fills);
    if (!buckets->dims || !buckets->fills)
        return rpi_error_host_memory(err, "rp_callable_create",
                                     options->dim_count * sizeof *buckets->dims);
    buckets->dim_count = options->dim_count;
    buckets->fill_count = options->fill_count;
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < buckets->dim_count; i++)
        status = copy_dim(&buckets->dims[i], &options->dims[i], err);
    if (status != RP_OK)
        return status;
    buckets->driver = driver;
    CUresult result = driver->cuEventCreate(&buckets->used, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuEventCreate", "making the event of the staging");
    return rpi_arena_init(&buckets->arena, driver, device->handle, device->total_bytes, err);
}

void rpi_buckets_finish(struct rpi_buckets *buckets)
{
    for (size_t i = 0; i < buckets->dim_count; i++) {
        rpi_free(buckets->dims[i].name);
        rpi_free(buckets->dims[i].axes);
        rpi_free(buckets->dims[i].sizes);
    }
    rpi_free(buckets->dims);
    rpi_free(buckets->fills);
    rpi_free(buckets->padded);
    rpi_free(buckets->sizes);
    rpi_free(buckets->last_sizes);
    if (buckets->busy) {
        int mode = rpi_relax_begin(buckets->driver);
        buckets->driver->cuEventSynchronize(buckets->used);
        rpi_relax_end(buckets->driver, mode);
    }
    if (buckets->used)
        buckets->driver->cuEventDestroy(buckets->used);
    rpi_arena_finish(&buckets->arena);
    *buckets = (struct rpi_buckets){0};
}

/* ---- Rounding ------------------------------------------------------------------------------ */

static int64_t round_size(const struct rpi_dim *dim, int64_t size)
{
    assert(dim->rule == RP_BUCKET_POWERS_OF_TWO || dim->size_count);
    if (dim->rule == RP_BUCKET_POWERS_OF_TWO) {
        int64_t power = 1;
        while (power < size && power <= INT64_MAX / 2)
            power *= 2;
        return size > 0 && power >= size ? power : size;
    }
    if (dim->rule == RP_BUCKET_MULTIPLES) {
        int64_t rest = size % dim->sizes[0], more = rest ? dim->sizes[0] - rest : 0;
        return size <= INT64_MAX - more ? size + more : size;
    }
    for (size_t i = 0; size > 0 && i < dim->size_count; i++)
        if (dim->sizes[i] >= size)
            return dim->sizes[i];
    return size;
}

static rp_status reserve_args(struct rpi_buckets *buckets, size_t count, struct rp_error *err)
{
    if (count < buckets->room)
        return RP_OK;
    size_t room = count + 1, sizes = room * RP_MOST_RANK;
    struct rpi_padded *padded = rpi_calloc(room, sizeof *padded);
    int64_t *bucket = rpi_calloc(sizes, sizeof *bucket), *last = rpi_calloc(sizes, sizeof *last);
    if (!padded || !bucket || !last) {
        rpi_free(padded);
        rpi_free(bucket);
        rpi_free(last);
        return rpi_error_host_memory(err, "rp_callable_call", 2 * sizes * sizeof *bucket);
    }
    rpi_free(buckets->padded);
    rpi_free(buckets->sizes);
    rpi_free(buckets->last_sizes);
    buckets->padded = padded;
    buckets->sizes = bucket;
    buckets->last_sizes = last;
    buckets->last = NULL;
    buckets->room = room;
    return RP_OK;
}

/* Rounds the sizes of one dimension, which all its axes must have. */
static rp_status round_dim(struct rpi_buckets *buckets, const struct rpi_dim *dim,
                           const struct rpi_look *look, struct rp_error *err)
{
    int64_t size = 0;
    for (size_t i = 0; i < dim->axis_count; i++) {
        struct rp_axis at = dim->axes[i];
        if (at.arg >= look->arg_count || at.axis >= look->args[at.arg].rank)
            return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_callable_call",
                             "dimension '%.60s' is axis %" PRIu32 " of argument %" PRIu32
                             ", which this call does not have",
                             dim->name, at.axis, at.arg);
        int64_t here = look->args[at.arg].shape[at.axis];
        if (i && here != size)
            return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_callable_call",
                             "dimension '%.60s' is %" PRId64 " in argument %" PRIu32 " and %" PRId64
                             " in argument %" PRIu32,
                             dim->name, size, dim->axes[0].arg, here, at.arg);
        size = here;
    }
    for (size_t i = 0; i < dim->axis_count; i++) {
        uint32_t k = dim->axes[i].arg;
        int64_t *sizes = buckets->sizes + (size_t)k * RP_MOST_RANK;
        if (!buckets->padded[k].bucketed)
            memcpy(sizes, look->args[k].shape, look->args[k].rank * sizeof *sizes);
        buckets->padded[k].bucketed = true;
    }
    for (size_t i = 0; i < dim->axis_count; i++)
        buckets->sizes[(size_t)dim->axes[i].arg * RP_MOST_RANK + dim->axes[i].axis] =
            round_size(dim, size);
    return RP_OK;
}

/* The bucket in place of the argument, and where that lies: where the caller has it, if it is one
 * already. */
static rp_status place_bucket(struct rpi_buckets *buckets, struct rpi_look *look, uint32_t k,
                              struct rp_error *err)
{
    assert(k < look->arg_count && buckets->padded[k].bucketed);
    assert(buckets->height % ALIGNMENT == 0);
    struct rp_arg *arg = &look->args[k];
    struct rpi_padded *padded = &buckets->padded[k];
    const int64_t *sizes = buckets->sizes + (size_t)k * RP_MOST_RANK;
    uint64_t bytes = rpi_dtype_bytes(arg->dtype), stride = 1;
    bool fits = true, same = true;
    for (uint32_t i = arg->rank; i-- > 0;) {
        same &= sizes[i] == arg->shape[i];
        same &= sizes[i] == 1 || !arg->strides || (uint64_t)arg->strides[i] == stride;
        stride *= (uint64_t)sizes[i];
        fits = fits && !__builtin_mul_overflow(bytes, (uint64_t)sizes[i], &bytes);
    }
    if (!fits || bytes > UINT64_MAX / 4)
        return rpi_error(err, RP_ERROR_LIMIT, "rp_callable_call",
                         "the bucket of argument %" PRIu32 " is larger than any device", k);
    padded->offset = buckets->height;
    buckets->height += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    padded->staged = !same && arg->address;
    buckets->any |= padded->staged;
    arg->shape = sizes;
    arg->strides = NULL;
    arg->bytes = bytes;
    if (padded->staged)
        arg->address = buckets->arena.base + padded->offset;
    return RP_OK;
}

/* Does an argument that would be staged overlap another, and one of them is written? Its copies
 * would come too early or too late then. */
static bool is_entangled(const struct rpi_buckets *buckets, const struct rpi_look *look,
                         const struct rp_arg *args)
{
    for (size_t a = 0; a < look->arg_count; a++) {
        for (size_t b = 0; buckets->padded[a].staged && b < look->arg_count; b++) {
            bool written = args[a].role != RP_ARG_IN || args[b].role != RP_ARG_IN;
            if (a != b && written && args[a].address < args[b].address + args[b].bytes &&
                args[b].address < args[a].address + args[a].bytes)
                return true;
        }
    }
    return false;
}

static void forget_call(struct rpi_buckets *buckets)
{
    assert(buckets->room);
    for (size_t k = 0; k < buckets->room; k++)
        buckets->padded[k] = (struct rpi_padded){.filled = buckets->padded[k].filled};
    buckets->any = false;
    buckets->height = 0;
}

rp_status rpi_buckets_look(struct rpi_buckets *buckets, struct rpi_look *look,
                           const struct rp_arg *args, struct rp_error *err)
{
    rp_status status = reserve_args(buckets, look->arg_count, err);
    if (status != RP_OK)
        return status;
    forget_call(buckets);
    for (size_t i = 0; status == RP_OK && i < buckets->dim_count; i++)
        status = round_dim(buckets, &buckets->dims[i], look, err);
    for (uint32_t k = 0; status == RP_OK && k < look->arg_count; k++)
        if (buckets->padded[k].bucketed)
            status = place_bucket(buckets, look, k, err);
    if (status != RP_OK || !buckets->any || !is_entangled(buckets, look, args))
        return status;
    /* As a shape of its own, so that it overlaps in the graph as it does here. */
    memcpy(look->args, args, look->arg_count * sizeof *args);
    forget_call(buckets);
    return RP_OK;
}

/* ---- Staging ------------------------------------------------------------------------------- */

rp_status rpi_buckets_reserve(struct rpi_buckets *buckets, struct rp_error *err)
{
    if (buckets->height <= buckets->arena.mapped)
        return RP_OK;
    int mode = rpi_relax_begin(buckets->driver);
    rp_status status = rpi_arena_grow(&buckets->arena, buckets->height, err);
    rpi_relax_end(buckets->driver, mode);
    return status;
}

static uint64_t fill_bits(const struct rpi_buckets *buckets, size_t arg, uint32_t element)
{
    assert(element);
    uint64_t bits = 0;
    for (size_t i = 0; i < buckets->fill_count; i++)
        if (buckets->fills[i].arg == arg)
            bits = buckets->fills[i].bits;
    return element < sizeof bits ? bits & (((uint64_t)1 << (8 * element)) - 1) : bits;
}

/* The boxes of an argument: the caller's and the staging's. */
struct boxes {
    struct rpi_strided own, staging;
    int64_t strides[RP_MOST_RANK];
};

static void make_boxes(struct boxes *boxes, const struct rpi_buckets *buckets, size_t k,
                       const struct rpi_shape *shape, const struct rp_arg *arg)
{
    assert(k < shape->arg_count && buckets->padded[k].staged);
    int64_t stride = 1;
    for (uint32_t i = arg->rank; i-- > 0;) {
        boxes->strides[i] = stride;
        stride *= arg->shape[i];
    }
    boxes->own = (struct rpi_strided){arg->address, arg->strides ? arg->strides : boxes->strides};
    boxes->staging = (struct rpi_strided){buckets->arena.base + buckets->padded[k].offset,
                                          shape->tensors[k].strides};
}

/* Beyond the true sizes: all of the bucket, or what the last call had and this one has not. An
 * argument that the graph writes may have changed beyond them. */
static rp_status fill(struct rpi_buckets *buckets, size_t k, const struct rpi_shape *shape,
                      const struct rp_arg *arg, const struct boxes *boxes, CUstream stream,
                      struct rp_error *err)
{
    assert(k < shape->arg_count && arg->rank == shape->tensors[k].rank);
    const struct rpi_tensor *bucket = &shape->tensors[k];
    uint32_t element = rpi_dtype_bytes(arg->dtype);
    int64_t *last = buckets->last_sizes + k * RP_MOST_RANK;
    bool known = buckets->padded[k].filled && arg->role == RP_ARG_IN;
    rp_status status = rpi_strided_fill_beyond(buckets->driver, &boxes->staging, arg->shape,
                                               known ? last : bucket->shape, arg->rank, element,
                                               fill_bits(buckets, k, element), stream, err);
    memcpy(last, arg->shape, arg->rank * sizeof *last);
    buckets->padded[k].filled = status == RP_OK;
    return status;
}

static rp_status wait_for_staging(const struct rpi_buckets *buckets, CUstream stream,
                                  struct rp_error *err)
{
    if (!buckets->busy || (buckets->stream == stream && stream != CU_STREAM_PER_THREAD))
        return RP_OK;
    CUresult result = buckets->driver->cuStreamWaitEvent(stream, buckets->used, 0);
    return result == CUDA_SUCCESS ? RP_OK
                                  : rpi_error_driver(err, result, "cuStreamWaitEvent",
                                                     "waiting for the last padded call");
}

rp_status rpi_buckets_copy_in(struct rpi_buckets *buckets, const struct rpi_shape *shape,
                              const struct rp_arg *args, CUstream stream, struct rp_error *err)
{
    rp_status status = wait_for_staging(buckets, stream, err);
    for (size_t k = 0; buckets->last != shape && k < buckets->room; k++)
        buckets->padded[k].filled = false;
    for (size_t k = 0; status == RP_OK && k < shape->arg_count; k++) {
        struct boxes boxes;
        if (!buckets->padded[k].staged || args[k].role == RP_ARG_OUT)
            continue;
        make_boxes(&boxes, buckets, k, shape, &args[k]);
        status = rpi_strided_copy(buckets->driver, &boxes.staging, &boxes.own, args[k].shape,
                                  args[k].rank, rpi_dtype_bytes(args[k].dtype), stream, err);
        if (status == RP_OK)
            status = fill(buckets, k, shape, &args[k], &boxes, stream, err);
    }
    buckets->last = status == RP_OK ? shape : NULL;
    return status;
}

rp_status rpi_buckets_copy_out(struct rpi_buckets *buckets, const struct rpi_shape *shape,
                               const struct rp_arg *args, CUstream stream, struct rp_error *err)
{
    rp_status status = RP_OK;
    for (size_t k = 0; status == RP_OK && k < shape->arg_count; k++) {
        struct boxes boxes;
        if (!buckets->padded[k].staged || args[k].role == RP_ARG_IN)
            continue;
        make_boxes(&boxes, buckets, k, shape, &args[k]);
        status = rpi_strided_copy(buckets->driver, &boxes.own, &boxes.staging, args[k].shape,
                                  args[k].rank, rpi_dtype_bytes(args[k].dtype), stream, err);
    }
    return status;
}

void rpi_buckets_used(struct rpi_buckets *buckets, CUstream stream)
{
    buckets->stream = stream;
    buckets->busy = buckets->driver->cuEventRecord(buckets->used, stream) == CUDA_SUCCESS;
    if (!buckets->busy)
        buckets->driver->cuStreamSynchronize(stream);
}
