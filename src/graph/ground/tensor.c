/* SPDX-License-Identifier: MIT */
#include "graph/ground/tensor.h"

#include "base/hostmem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t bytes;
} types[] = {
#define X(name, value, text, bytes) [value] = {text, bytes},
    RP_DTYPE_MAP(X)
#undef X
};

const char *rpi_dtype_name(uint32_t dtype)
{
    return dtype < sizeof types / sizeof *types ? types[dtype].name : NULL;
}

uint32_t rpi_dtype_bytes(uint32_t dtype)
{
    return dtype < sizeof types / sizeof *types ? types[dtype].bytes : 0;
}

/* ---- Validity ------------------------------------------------------------------------------ */

static rp_status check_fields(const struct rp_arg *arg, const char *function, size_t index,
                              struct rp_error *err)
{
    if (arg->flags || arg->reserved[0] || arg->reserved[1])
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "argument %zu has flags or reserved fields that are not 0: start from a "
                         "zeroed struct rp_arg",
                         index);
    if (!rpi_dtype_name(arg->dtype))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "argument %zu has type %" PRIu32 ", which is not an enum rp_dtype", index,
                         arg->dtype);
    if (arg->rank > RP_MOST_RANK)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "argument %zu has %" PRIu32 " dimensions, but may have %d at most", index,
                         arg->rank, RP_MOST_RANK);
    if (arg->rank && !arg->shape)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "argument %zu has %" PRIu32 " dimensions, but shape is NULL", index,
                         arg->rank);
    for (uint32_t i = 0; i < arg->rank; i++)
        if (arg->shape[i] < 0 || (arg->strides && arg->strides[i] < 0))
            return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                             "dimension %" PRIu32 " of argument %zu has size %" PRId64
                             " and stride %" PRId64 ": neither may be below 0",
                             i, index, arg->shape[i], arg->strides ? arg->strides[i] : 1);
    return RP_OK;
}

static bool is_empty(uint32_t rank, const int64_t *shape)
{
    for (uint32_t i = 0; i < rank; i++)
        if (shape[i] == 0)
            return true;
    return false;
}

/* From the first element to the end of the last, in bytes; false when that overflows. */
static bool measure(const struct rp_arg *arg, uint64_t *out_bytes)
{
    uint64_t last = 0, stride = 1;
    bool fits = true;
    for (uint32_t i = arg->rank; i-- > 0;) {
        uint64_t size = (uint64_t)arg->shape[i], reach;
        uint64_t step = arg->strides ? (uint64_t)arg->strides[i] : stride;
        fits = fits && !__builtin_mul_overflow(size - 1, step, &reach) &&
               !__builtin_add_overflow(last, reach, &last) &&
               (arg->strides || !__builtin_mul_overflow(stride, size, &stride));
    }
    return fits && !__builtin_add_overflow(last, 1, &last) &&
           !__builtin_mul_overflow(last, (uint64_t)types[arg->dtype].bytes, out_bytes);
}

rp_status rpi_tensor_check(const struct rp_arg *arg, const char *function, size_t index,
                           struct rp_error *err)
{
    rp_status status = check_fields(arg, function, index, err);
    if (status != RP_OK || (arg->dtype == RP_DTYPE_BYTES && !arg->rank) ||
        is_empty(arg->rank, arg->shape))
        return status;
    uint64_t bytes;
    if (!measure(arg, &bytes))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "the shape and strides of argument %zu reach further than 2^64 bytes",
                         index);
    if (bytes > arg->bytes)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "the shape and strides of argument %zu reach %" PRIu64
                         " bytes from its address, but it has %" PRIu64,
                         index, bytes, arg->bytes);
    return RP_OK;
}

/* ---- Copies -------------------------------------------------------------------------------- */

/* The strides of a contiguous one. Unsigned, as those of an empty one may overflow. */
static void fill_strides(uint32_t rank, const int64_t *shape, int64_t *strides)
{
    uint64_t stride = 1;
    for (uint32_t i = rank; i-- > 0;) {
        strides[i] = (int64_t)stride;
        stride *= (uint64_t)shape[i];
    }
}

/* That of the argument, in room for twice as many numbers as it has dimensions. */
static struct rpi_tensor copy_into(int64_t *numbers, const struct rp_arg *arg)
{
    assert(rpi_dtype_name(arg->dtype) && arg->rank <= RP_MOST_RANK);
    uint32_t rank = arg->rank;
    if (rank)
        memcpy(numbers, arg->shape, rank * sizeof *numbers);
    if (rank && arg->strides)
        memcpy(numbers + rank, arg->strides, rank * sizeof *numbers);
    else
        fill_strides(rank, numbers, numbers + rank);
    return (struct rpi_tensor){.bytes = arg->bytes,
                               .dtype = arg->dtype,
                               .rank = rank,
                               .shape = numbers,
                               .strides = numbers + rank};
}

rp_status rpi_tensor_init(struct rpi_tensor *tensor, const struct rp_arg *arg, struct rp_error *err)
{
    assert(rpi_dtype_name(arg->dtype) && arg->rank <= RP_MOST_RANK);
    size_t count = 2 * (size_t)arg->rank;
    *tensor = (struct rpi_tensor){.bytes = arg->bytes, .dtype = arg->dtype, .rank = arg->rank};
    if (!count)
        return RP_OK;
    int64_t *numbers = rpi_calloc(count, sizeof *numbers);
    if (!numbers)
        return rpi_error_host_memory(err, "rp_graph_capture", count * sizeof *numbers);
    *tensor = copy_into(numbers, arg);
    return RP_OK;
}

void rpi_tensor_finish(struct rpi_tensor *tensor)
{
    rpi_free(tensor->shape);
    *tensor = (struct rpi_tensor){0};
}

bool rpi_tensor_is(const struct rpi_tensor *tensor, const struct rp_arg *arg)
{
    uint32_t rank = tensor->rank;
    if (arg->dtype != tensor->dtype || arg->rank != rank || (rank && !arg->shape))
        return false;
    if (rank && memcmp(arg->shape, tensor->shape, rank * sizeof *arg->shape) != 0)
        return false;
    if (is_empty(rank, tensor->shape))
        return true;
    int64_t contiguous = 1;
    for (uint32_t i = rank; i-- > 0;) {
        int64_t stride = arg->strides ? arg->strides[i] : contiguous;
        if (tensor->shape[i] > 1 && stride != tensor->strides[i])
            return false;
        /* Cannot overflow where it counts: the captured strides did not, and are equal so far. */
        contiguous = (int64_t)((uint64_t)contiguous * (uint64_t)tensor->shape[i]);
    }
    return true;
}

/* ---- Texts --------------------------------------------------------------------------------- */

struct writing {
    char *text;
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void add(struct writing *w, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int length = vsnprintf(w->text + w->used, RPI_TENSOR_TEXT - w->used, format, list);
    va_end(list);
    assert(length >= 0);
    w->used += (size_t)length;
    if (w->used >= RPI_TENSOR_TEXT)
        w->used = RPI_TENSOR_TEXT - 1;
}

static void add_list(struct writing *w, uint32_t rank, const int64_t *numbers)
{
    for (uint32_t i = 0; i < rank; i++)
        add(w, "%s%" PRId64, i ? "," : "[", numbers[i]);
    add(w, rank ? "]" : "[]");
}

static bool is_contiguous(const struct rpi_tensor *tensor)
{
    struct rp_arg contiguous = {
        .dtype = tensor->dtype, .rank = tensor->rank, .shape = tensor->shape};
    return rpi_tensor_is(tensor, &contiguous);
}

void rpi_tensor_describe(const struct rpi_tensor *tensor, char text[RPI_TENSOR_TEXT])
{
    struct writing w = {.text = text};
    text[0] = '\0';
    if (tensor->dtype == RP_DTYPE_BYTES && !tensor->rank) {
        add(&w, "%" PRIu64 " bytes", tensor->bytes);
        return;
    }
    add(&w, "%s", rpi_dtype_name(tensor->dtype));
    add_list(&w, tensor->rank, tensor->shape);
    if (!is_contiguous(tensor)) {
        add(&w, " of strides ");
        add_list(&w, tensor->rank, tensor->strides);
    }
    if (w.used == RPI_TENSOR_TEXT - 1)
        memcpy(text + w.used - 3, "...", 3);
}

/* ---- In a replay --------------------------------------------------------------------------- */

rp_status rpi_tensor_refuse(const struct rpi_tensor *captured, const struct rp_arg *arg,
                            const char *graph, size_t index, struct rp_error *err)
{
    assert(!rpi_tensor_is(captured, arg));
    char was[RPI_TENSOR_TEXT], is[RPI_TENSOR_TEXT];
    int64_t numbers[2 * RP_MOST_RANK];
    rp_status status = rpi_tensor_check(arg, "rp_graph_replay", index, err);
    if (status != RP_OK)
        return status;
    struct rpi_tensor given = copy_into(numbers, arg);
    rpi_tensor_describe(captured, was);
    rpi_tensor_describe(&given, is);
    return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay",
                     "argument %zu of graph '%.60s' was %s when it was captured and is %s now: "
                     "capture a graph for this shape",
                     index, graph, was, is);
}
