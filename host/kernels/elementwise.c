/* SPDX-License-Identifier: MIT
 *
 * Elementwise kernels, in the forms that PyTorch launches them in:
 *
 *   vectorized_elementwise_kernel  (int n, functor, pointers): contiguous
 *   unrolled_elementwise_kernel    (int n, functor, pointers, .., loader, storer): contiguous, and
 *                                  with a cast where loader and storer say types
 *   elementwise_kernel             (int n, {offset calculator, pointers, functor, types}): by
 * strides
 */
#include "kernels/kernel.h"

#include <stdlib.h>

enum { CONTIGUOUS, CAST, STRIDED, STRIDED_CAST };

/* Where the elements of a launch lie. */
struct span {
    int arity; /* operands in memory */
    char *data[RPI_ARGS];
    int types[RPI_ARGS]; /* in memory */
    const void *offsets; /* NULL: contiguous */
};

static void *place(const struct span *span, int arg, int64_t index, const uint32_t *offsets)
{
    return span->data[arg] + (span->offsets ? (int64_t)offsets[arg]
                                            : index * (int64_t)rpi_type_bytes(span->types[arg]));
}

static void load(const struct rpi_kernel *kernel, const struct span *span, bool whole, int lane,
                 int arg, const void *at, struct rpi_lanes *lanes)
{
    int type = kernel->types[arg];
    if (whole) {
        lanes->whole_in[arg - 1][lane] = rpi_load_whole(at, span->types[arg]);
        return;
    }
    double value = rpi_load(at, span->types[arg]);
    lanes->in[arg - 1][lane] = type == span->types[arg] ? value : rpi_round_to(value, type);
}

static void store(const struct rpi_kernel *kernel, const struct span *span, bool whole, int lane,
                  void *at, const struct rpi_lanes *lanes)
{
    int type = kernel->types[0];
    if (whole)
        rpi_store_whole(at, span->types[0], lanes->whole_out[lane]);
    else if (type == span->types[0])
        rpi_store(at, type, lanes->out[lane]);
    else
        rpi_store(at, span->types[0], rpi_round_to(lanes->out[lane], type));
}

static void compute(const struct rpi_kernel *kernel, const struct span *span, const void *closure,
                    int64_t count)
{
    struct rpi_lanes *lanes = malloc(sizeof *lanes);
    if (!lanes) /* work cannot fail for want of host memory on a device */
        abort();
    uint32_t offsets[RPI_LANES][RPI_ARGS];
    bool whole = rpi_functor_is_whole(kernel);
    rpi_functor_begin(kernel, closure, lanes);
    for (int64_t first = 0; first < count; first += RPI_LANES) {
        lanes->count = (int)(count - first < RPI_LANES ? count - first : RPI_LANES);
        for (int i = 0; i < lanes->count; i++) {
            if (span->offsets)
                rpi_offsets(span->offsets, span->arity ? span->arity + 1 : 1, (uint32_t)(first + i),
                            offsets[i]);
            for (int arg = 1; arg <= span->arity; arg++)
                load(kernel, span, whole, i, arg, place(span, arg, first + i, offsets[i]), lanes);
        }
        rpi_functor_apply(kernel, lanes);
        for (int i = 0; i < lanes->count; i++)
            store(kernel, span, whole, i, place(span, 0, first + i, offsets[i]), lanes);
    }
    free(lanes);
}

static void begin_span(const struct rpi_kernel *kernel, struct span *span, const void *pointers)
{
    span->arity = rpi_functor_arity(kernel);
    memcpy(span->data, pointers, ((size_t)span->arity + 1) * sizeof *span->data);
    memcpy(span->types, kernel->types, sizeof span->types);
    span->offsets = NULL;
}

static void run_contiguous(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    struct span span;
    int32_t count;
    memcpy(&count, launch->params[0], sizeof count);
    begin_span(kernel, &span, launch->params[2]);
    if (kernel->variant == CAST) {
        const unsigned char *in = launch->params[5], *out = launch->params[6];
        span.types[0] = out[0];
        for (int i = 0; i < span.arity; i++)
            span.types[1 + i] = in[i];
    }
    compute(kernel, &span, launch->params[1], count);
}

static size_t align(size_t at, size_t alignment)
{
    return (at + alignment - 1) / alignment * alignment;
}

/* Members of the closure of a strided kernel, in the order in which its code names them. Behind the
 * members of a lambda that captures by [=], this one and some functors, the compiler lays a pointer
 * that nobody reads. */
enum { UNUSED = sizeof(void *) };
struct closure {
    size_t data, functor, types, end;
};

/* kernel->depth: whether the functor is such a lambda. */
static size_t functor_bytes(const struct rpi_kernel *kernel, size_t *alignment)
{
    size_t bytes = rpi_functor_bytes(kernel, alignment);
    if (!kernel->depth)
        return bytes;
    *alignment = UNUSED;
    return (kernel->functor->closure[0] ? align(bytes, UNUSED) : 0) + UNUSED;
}

static struct closure closure_of(const struct rpi_kernel *kernel)
{
    struct closure closure;
    size_t alignment, args = (size_t)rpi_functor_arity(kernel) + 1;
    closure.data = align(rpi_offsets_bytes((int)args), sizeof(void *));
    size_t bytes = functor_bytes(kernel, &alignment);
    closure.functor = align(closure.data + args * sizeof(void *), alignment);
    closure.types = closure.functor + bytes;
    closure.end =
        align(closure.types + (kernel->variant == STRIDED_CAST ? args : 0), UNUSED) + UNUSED;
    return closure;
}

static void run_strided(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    const char *at = launch->params[1];
    struct closure closure = closure_of(kernel);
    struct span span;
    int32_t count;
    memcpy(&count, launch->params[0], sizeof count);
    begin_span(kernel, &span, at + closure.data);
    span.offsets = at;
    if (kernel->variant == STRIDED_CAST)
        for (int i = 0; i <= span.arity; i++)
            span.types[i] = ((const unsigned char *)at)[closure.types + (size_t)i];
    compute(kernel, &span, at + closure.functor, count);
}

void rpi_offsets(const void *at, int args, uint32_t index, uint32_t *out)
{
    const uint32_t *words = at;
    const uint32_t *strides = words + 1 + (size_t)3 * RPI_DIMS;
    uint32_t dims = words[0];
    for (int a = 0; a < args; a++)
        out[a] = 0;
    for (uint32_t d = 0; d < dims && d < RPI_DIMS; d++) {
        uint32_t size = words[1 + 3 * d], rest = index % size;
        index /= size;
        for (int a = 0; a < args; a++)
            out[a] += rest * strides[d * (uint32_t)args + (uint32_t)a];
    }
}

/* ---- Names ---------------------------------------------------------------------------------- */

static bool types_are_known(const struct rpi_kernel *kernel)
{
    for (int i = 0; i <= rpi_functor_arity(kernel); i++)
        if (!rpi_type_bytes(kernel->types[i]))
            return false;
    return true;
}

/* How many pointers "St5arrayIPcLm3EE" says. */
static bool has_pointers(const char *name, int wanted)
{
    const char *at = rpi_name_after(name, "St5arrayIPcLm");
    return at && strtol(at, NULL, 10) == wanted;
}

static rpi_run contiguous(const char *name, struct rpi_kernel *kernel, uint32_t count,
                          bool unrolled)
{
    size_t alignment;
    kernel->variant = unrolled && strstr(name, "12LoadWithCast") ? CAST : CONTIGUOUS;
    if (!has_pointers(name, rpi_functor_arity(kernel) + 1) || count != (unrolled ? 7 : 3))
        return NULL;
    for (kernel->depth = 0; kernel->depth < 2; kernel->depth++)
        if (kernel->params[1].bytes == functor_bytes(kernel, &alignment))
            return run_contiguous;
    return NULL;
}

static rpi_run strided(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    kernel->variant = strstr(name, "22gpu_kernel_impl_nocast") ? STRIDED : STRIDED_CAST;
    for (kernel->depth = 0; count == 2 && kernel->depth < 2; kernel->depth++)
        if (kernel->params[1].bytes == closure_of(kernel).end)
            return run_strided;
    return NULL;
}

rpi_run rpi_elementwise_find(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    const char *vectorized = strstr(name, "29vectorized_elementwise_kernelI");
    const char *unrolled = strstr(name, "27unrolled_elementwise_kernelI");
    const char *legacy = strstr(name, "18elementwise_kernelILi128E");
    const char *at = vectorized ? vectorized : unrolled ? unrolled : legacy;
    if (!at)
        return NULL;
    kernel->functor = rpi_functor_find(at + 10, kernel);
    if (!kernel->functor || !types_are_known(kernel))
        return NULL;
    return legacy ? strided(name, kernel, count) : contiguous(name, kernel, count, unrolled);
}
