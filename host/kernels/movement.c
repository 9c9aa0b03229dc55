/* SPDX-License-Identifier: MIT
 *
 * Kernels that move elements: by an index, by strides, one behind the other. Each is its own: what
 * its parameters are is said where it reads them.
 */
#include "kernels/kernel.h"

#include <stdlib.h>

#define READ(to, index) memcpy(&(to), launch->params[index], sizeof(to))

/* A kernel that writes nothing that is read: nothing is left out. */
static void run_spin(const struct rp_host_launch *launch)
{
    (void)launch;
}

/* ---- Tensors with sizes and strides, at::cuda::detail::TensorInfo<T, unsigned> -------------- */

enum { TENSOR_INFO_BYTES = 216 };
struct tensor {
    char *data;
    uint32_t sizes[RPI_DIMS], strides[RPI_DIMS];
    int32_t dims;
};

static uint32_t offset_of(const struct tensor *tensor, uint32_t index)
{
    uint32_t offset = 0;
    for (int i = tensor->dims - 1; i > 0; i--) {
        offset += index % tensor->sizes[i] * tensor->strides[i];
        index /= tensor->sizes[i];
    }
    return offset + index * tensor->strides[0];
}

static int64_t index_at(const struct tensor *indices, uint32_t i, int type)
{
    uint32_t offset = offset_of(indices, i);
    return rpi_load_whole(indices->data + offset * rpi_type_bytes(type), type);
}

/* An index out of range ends a program on a GPU. Here it may be what a kernel that does nothing
 * left, so the element is left out. */
static bool is_inside(int64_t index, int64_t size)
{
    return index >= 0 && index < size;
}

/* indexSelect*Index (to, from, indices, int dim of to, int dim of from, [total,] inner size, ..) */
static void run_index_select(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    struct tensor to, from, indices;
    int32_t to_dim, from_dim;
    uint32_t inner;
    int64_t size;
    READ(to, 0);
    READ(from, 1);
    READ(indices, 2);
    READ(to_dim, 3);
    READ(from_dim, 4);
    READ(inner, kernel->variant);
    READ(size, kernel->variant + 1);
    size_t bytes = rpi_type_bytes(kernel->types[0]);
    for (uint32_t i = 0; i < indices.sizes[0]; i++) {
        int64_t index = index_at(&indices, i, kernel->types[1]);
        for (uint32_t e = 0; is_inside(index, size) && e < inner; e++) {
            uint32_t at = offset_of(&to, e) + i * to.strides[to_dim];
            int64_t source = offset_of(&from, e) + index * from.strides[from_dim];
            memcpy(to.data + at * bytes, from.data + (size_t)source * bytes, bytes);
        }
    }
}

/* indexFunc*Index, adding: (to, from, indices, dims, [total,] inner size, dim size, numel,
 * function, alpha) */
static void run_index_add(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    int type = kernel->types[0];
    struct tensor to, from, indices;
    int32_t to_dim, from_dim;
    uint32_t inner;
    int64_t size;
    READ(to, 0);
    READ(from, 1);
    READ(indices, 2);
    READ(to_dim, 3);
    READ(from_dim, 4);
    READ(inner, kernel->variant);
    READ(size, kernel->variant + 1);
    double alpha = rpi_load(launch->params[kernel->variant + 4], type);
    size_t bytes = rpi_type_bytes(type);
    for (uint32_t i = 0; i < indices.sizes[0]; i++) {
        int64_t index = index_at(&indices, i, kernel->types[1]);
        for (uint32_t e = 0; is_inside(index, size) && e < inner; e++) {
            char *at = to.data + (size_t)(offset_of(&to, e) + index * to.strides[to_dim]) * bytes;
            const char *source =
                from.data + (offset_of(&from, e) + i * from.strides[from_dim]) * bytes;
            rpi_store(at, type, rpi_load(at, type) + alpha * rpi_load(source, type));
        }
    }
}

/* triu_tril_kernel (out, in, int64 k, int64 elements, unsigned of the last dimension, padded) */
static void run_triangle(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    struct tensor out, in;
    int64_t k, count = 1;
    READ(out, 0);
    READ(in, 1);
    READ(k, 2);
    size_t bytes = rpi_type_bytes(kernel->types[0]);
    for (int d = 0; d < out.dims; d++)
        count *= out.sizes[d];
    for (int64_t i = 0; i < count; i++) {
        uint32_t rest = (uint32_t)i, to = 0, from = 0, at[RPI_DIMS];
        for (int d = out.dims - 1; d >= 0; d--) {
            at[d] = rest % out.sizes[d];
            rest /= out.sizes[d];
            to += at[d] * out.strides[d];
            from += at[d] * in.strides[d];
        }
        int64_t above = (int64_t)at[out.dims - 1] - at[out.dims - 2];
        bool kept = kernel->variant ? above >= k : above <= k;
        if (kept)
            memcpy(out.data + to * bytes, in.data + from * bytes, bytes);
        else
            memset(out.data + to * bytes, 0, bytes);
    }
}

/* ---- Concatenation -------------------------------------------------------------------------- */

enum { CAT_DIMS = 4 };
struct shape {
    uint32_t sizes[CAT_DIMS], strides[CAT_DIMS];
};

static uint32_t cat_offset(const struct shape *shape, int dims, uint32_t cat_size, int cat_dim,
                           uint32_t index)
{
    uint32_t offset = 0;
    for (int i = dims - 1; i > 0; i--) {
        uint32_t size = i == cat_dim ? cat_size : shape->sizes[i];
        offset += index % size * shape->strides[i];
        index /= size;
    }
    return offset + index * shape->strides[0];
}

/* CatArrayBatchedCopy* (out, {const T *in[n], offset[n], size[n], elements[n], bool contiguous[n],
 * shape[strides]}, shape of out, int dim, stride of out there). Vectorised, all is counted in
 * vectors of kernel->result elements, and the last one is the size behind the dim. */
static void run_cat(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    int n = kernel->operand_types[0], strides = kernel->operand_types[1], dims = kernel->depth;
    size_t bytes = (size_t)kernel->variant;
    uint32_t vector = (uint32_t)kernel->result, behind;
    char *out;
    struct shape shape, own;
    int32_t dim;
    READ(out, 0);
    READ(shape, 2);
    READ(dim, 3);
    READ(behind, 4);
    const char *meta = launch->params[1];
    const uint32_t *offsets = (const uint32_t *)(meta + (size_t)8 * (size_t)n),
                   *sizes = offsets + n, *elements = sizes + n;
    const bool *contiguous = (const bool *)(elements + n);
    const char *shapes = (const char *)(contiguous + (size_t)(n + 3) / 4 * 4);
    for (unsigned t = 0; t < launch->grid[1]; t++) {
        const char *in;
        memcpy(&in, meta + sizeof in * t, sizeof in);
        memcpy(&own, shapes + (strides > 1 ? t : 0) * sizeof own, sizeof own);
        bool plain = kernel->types[1] || contiguous[t];
        uint32_t size = vector > 1 ? sizes[t] * behind / vector : sizes[t];
        uint64_t first =
            vector > 1 ? (uint64_t)offsets[t] * behind / vector : (uint64_t)offsets[t] * behind;
        for (uint32_t e = 0; e < elements[t] / vector; e++) {
            uint64_t to = first + cat_offset(&shape, dims, size, dim, e);
            uint64_t from = plain ? e : cat_offset(&own, dims, size, dim, e);
            memcpy(out + to * bytes * vector, in + from * bytes * vector, bytes * vector);
        }
    }
}

/* "..IjLi{dims}ELi{n}ELi{strides}E[Li{alignment}E[Li{vector}E]]": numbers of the template. */
static int read_numbers(const char *at, int *numbers, int most)
{
    int count = 0;
    while (count < most && at[0] == 'L' && at[1] == 'i') {
        char *end;
        numbers[count++] = (int)strtol(at + 2, &end, 10);
        at = *end == 'E' ? end + 1 : end;
    }
    return count;
}

static rpi_run find_cat(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    const char *at = rpi_name_after(name, "10OpaqueTypeILj");
    int numbers[5] = {0};
    if (!at || count != 5)
        return NULL;
    kernel->variant = (int)strtol(at, NULL, 10);
    at = rpi_name_after(at, "EEj");
    if (!at || read_numbers(at, numbers, 5) < 3)
        return NULL;
    bool vectorized = strstr(name, "CatArrayBatchedCopy_vectorized") != NULL;
    kernel->depth = numbers[0];
    kernel->operand_types[0] = numbers[1];
    kernel->operand_types[1] = numbers[2];
    kernel->result = vectorized ? numbers[4] : 1;
    kernel->types[1] = strstr(name, "19CatArrayBatchedCopyI") == NULL;
    size_t meta = (size_t)numbers[1] * 20 + (size_t)(numbers[1] + 3) / 4 * 4 +
                  (size_t)numbers[2] * sizeof(struct shape);
    return kernel->params[1].bytes == (meta + 7) / 8 * 8 && kernel->result > 0 ? run_cat : NULL;
}

/* ---- Advanced indexing ---------------------------------------------------------------------- */

/* Members of closures behind an offset calculator of three. */
enum { BEHIND_3 = 608, BEHIND_2 = 504 };

/* index_elementwise_kernel (int64 n, {offsets of 3, out, in, int64 indices, char *index[25], int64
 * size[25], int64 stride[25]}) */
static void run_index(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    const char *closure = launch->params[1], *at = closure + BEHIND_3;
    int64_t count, sizes[RPI_DIMS], strides[RPI_DIMS], dims;
    char *out, *in, *indices[RPI_DIMS];
    READ(count, 0);
    memcpy(&out, at, 8);
    memcpy(&in, at + 8, 8);
    memcpy(&dims, at + 16, 8);
    memcpy(indices, at + 24, sizeof indices);
    memcpy(sizes, at + 24 + sizeof indices, sizeof sizes);
    memcpy(strides, at + 24 + 2 * sizeof indices, sizeof strides);
    for (int64_t i = 0; i < count; i++) {
        uint32_t offsets[3];
        int64_t moved = 0;
        rpi_offsets(closure, 3, (uint32_t)i, offsets);
        bool inside = true;
        for (int64_t d = 0; d < dims && d < RPI_DIMS; d++) {
            int64_t index;
            memcpy(&index, indices[d] + offsets[2], sizeof index);
            inside = inside && is_inside(index < 0 ? index + sizes[d] : index, sizes[d]);
            moved += (index < 0 ? index + sizes[d] : index) * strides[d];
        }
        if (!inside)
            continue;
        char *to = out + offsets[0];
        const char *from = in + offsets[1];
        memcpy(kernel->depth ? to + moved : to, kernel->depth ? from : from + moved,
               (size_t)kernel->variant);
    }
}

enum { ASSIGN, ADD };

static void combine(const struct rpi_kernel *kernel, char *to, const char *from)
{
    int type = kernel->types[0];
    if (kernel->result == ASSIGN)
        memcpy(to, from, (size_t)kernel->variant);
    else
        rpi_store(to, type, rpi_load(to, type) + rpi_load(from, type));
}

/* _scatter_gather_elementwise_kernel (int n, {offsets of 3, index, int64 size, f, self, int64
 * stride, int64 numel, src}) */
static void run_gather(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    const char *closure = launch->params[1], *at = closure + BEHIND_3;
    char *index, *self, *src;
    int64_t stride, size;
    int32_t count;
    READ(count, 0);
    memcpy(&index, at, 8);
    memcpy(&size, at + 8, 8);
    memcpy(&self, at + 24, 8);
    memcpy(&stride, at + 32, 8);
    memcpy(&src, at + 48, 8);
    for (int32_t i = 0; i < count; i++) {
        uint32_t offsets[3];
        rpi_offsets(closure, 3, (uint32_t)i, offsets);
        int64_t wanted = rpi_load_whole(index + offsets[2], kernel->types[1]);
        int64_t moved = wanted * stride * kernel->variant;
        bool scatters = kernel->depth;
        if (!is_inside(wanted, size))
            continue;
        combine(kernel, self + offsets[0] + (scatters ? moved : 0),
                src + offsets[1] + (scatters ? 0 : moved));
    }
}

/* The same with one value: {offsets of 2, index, int64 size, f, self, int64 stride, int64 numel,
 * value} */
static void run_scatter_value(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    const char *closure = launch->params[1], *at = closure + BEHIND_2;
    char *index, *self;
    int64_t stride, size;
    int32_t count;
    READ(count, 0);
    memcpy(&index, at, 8);
    memcpy(&size, at + 8, 8);
    memcpy(&self, at + 24, 8);
    memcpy(&stride, at + 32, 8);
    for (int32_t i = 0; i < count; i++) {
        uint32_t offsets[2];
        rpi_offsets(closure, 2, (uint32_t)i, offsets);
        int64_t wanted = rpi_load_whole(index + offsets[1], kernel->types[1]);
        int64_t moved = wanted * stride * kernel->variant;
        if (is_inside(wanted, size))
            combine(kernel, self + offsets[0] + moved, at + 48);
    }
}

/* An element's type or, of an opaque one, its bytes only. */
static bool read_element(const char **at, struct rpi_kernel *kernel)
{
    const char *opaque = "NS0_10OpaqueTypeILi";
    kernel->types[0] = RPI_NO_TYPE;
    if (strncmp(*at, opaque, strlen(opaque)) == 0) {
        char *end;
        kernel->variant = (int)strtol(*at + strlen(opaque), &end, 10);
        *at = end + strspn(end, "E");
        return kernel->variant > 0;
    }
    if (!rpi_name_type(at, &kernel->types[0]))
        return false;
    kernel->variant = (int)rpi_type_bytes(kernel->types[0]);
    return true;
}

static rpi_run find_scatter(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    const char *at = rpi_name_after(name, "36_cuda_scatter_gather_internal_kernelILb");
    const char *fill = rpi_name_after(name, "34_cuda_scatter_fill_internal_kernelI");
    size_t bytes = fill ? BEHIND_2 + 48 : BEHIND_3 + 56;
    if (count != 2 || (!at && !fill))
        return NULL;
    kernel->depth = fill || *at == '1';
    const char *type = fill ? fill : at + 2;
    kernel->types[1] = RPI_I64;
    if (!read_element(&type, kernel) || !rpi_name_type(&type, &kernel->types[1]))
        return NULL;
    kernel->result = strstr(name, "12TensorAssign") ? ASSIGN : ADD;
    if (fill)
        bytes += ((size_t)kernel->variant + 7) / 8 * 8;
    if ((kernel->result == ADD && (!strstr(name, "9ReduceAdd") || kernel->types[0] < 0)) ||
        kernel->params[1].bytes != bytes)
        return NULL;
    return fill ? run_scatter_value : run_gather;
}

static rpi_run find_index(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    const char *get = rpi_name_after(name, "17index_kernel_implI");
    const char *put = rpi_name_after(name, "21index_put_kernel_implI");
    const char *at = get ? get : put;
    kernel->depth = put != NULL;
    return at && count == 2 && kernel->params[1].bytes == 1240 && read_element(&at, kernel)
               ? run_index
               : NULL;
}

/* flip: (int64 n, {offsets of 2, out, in}) */
static void run_flip(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    const char *closure = launch->params[1];
    char *out, *in;
    int64_t count;
    READ(count, 0);
    memcpy(&out, closure + BEHIND_2, 8);
    memcpy(&in, closure + BEHIND_2 + 8, 8);
    for (int64_t i = 0; i < count; i++) {
        uint32_t offsets[2];
        rpi_offsets(closure, 2, (uint32_t)i, offsets);
        memcpy(out + (int32_t)offsets[0], in + (int32_t)offsets[1], (size_t)kernel->variant);
    }
}

static rpi_run find_flip(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    const char *at = rpi_name_after(name, "16flip_kernel_implI");
    return at && count == 2 && kernel->params[1].bytes == BEHIND_2 + 16 && read_element(&at, kernel)
               ? run_flip
               : NULL;
}

/* roll_cuda_kernel (in, out, n, dim, start, size, stride, ..) */
static void run_roll(const struct rp_host_launch *launch)
{
    size_t bytes = rpi_type_bytes(rpi_kernel_of(launch->kernel)->types[0]);
    const char *in;
    char *out;
    int64_t count, start, size, stride;
    READ(in, 0);
    READ(out, 1);
    READ(count, 2);
    READ(start, 4);
    READ(size, 5);
    READ(stride, 6);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i % (stride * size) / stride;
        int64_t from = at >= size - start ? i - (size - start) * stride : i + start * stride;
        memcpy(out + (size_t)i * bytes, in + (size_t)from * bytes, bytes);
    }
}

/* ---- Non-zero elements ---------------------------------------------------------------------- */

/* What the iterator of such a parameter begins at. cub's own of CUDA 12 has its operator ahead of
 * the pointer, thrust's behind it. */
static const char *iterator_at(const struct rp_host_launch *launch, int index)
{
    const char *begin;
    memcpy(&begin, (const char *)launch->params[index] + rpi_kernel_of(launch->kernel)->depth,
           sizeof begin);
    return begin;
}

/* DeviceReduceSingleTileKernel, counting: ({const T *in, ..}, int *out, uint64 n, ..). Behind a
 * DeviceReduceKernel, which is left to do nothing, `in` has counts. */
static void run_count(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    size_t bytes = rpi_type_bytes(kernel->types[0]);
    const char *in = iterator_at(launch, 0);
    int32_t *out, sum = 0;
    uint64_t count;
    READ(out, 1);
    READ(count, 2);
    for (uint64_t i = 0; i < count; i++)
        sum += kernel->variant ? ((const int32_t *)in)[i]
                               : rpi_load(in + i * bytes, kernel->types[0]) != 0;
    *out = sum;
}

/* DeviceReduceKernel ({const T *in, ..}, int *counts of the blocks, uint64 n, ..) */
static void run_block_counts(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    size_t bytes = rpi_type_bytes(kernel->types[0]);
    const char *in = iterator_at(launch, 0);
    int32_t *out;
    uint64_t count;
    READ(out, 1);
    READ(count, 2);
    memset(out, 0, launch->grid[0] * sizeof *out);
    for (uint64_t i = 0; i < count; i++)
        out[0] += rpi_load(in + i * bytes, kernel->types[0]) != 0;
}

/* DeviceSelectSweepKernel ({int64 first}, {const T *flags, ..}, int64 *out, int *count, .., int n
 * at the eighth) */
static void run_select(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    size_t bytes = rpi_type_bytes(kernel->types[0]);
    const char *flags = iterator_at(launch, 1);
    int64_t first, *out;
    int32_t *found, count, taken = 0;
    READ(first, 0);
    READ(out, 2);
    READ(found, 3);
    READ(count, 7);
    for (int32_t i = 0; i < count; i++)
        if (rpi_load(flags + (size_t)i * bytes, kernel->types[0]) != 0)
            out[taken++] = first + i;
    *found = taken;
}

/* calc_block_sums (const T *in, int *sums of the blocks, int64 n, int tiles of a block) */
static void run_block_sums(const struct rp_host_launch *launch)
{
    enum { TILE = 512 * 16 };
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    size_t bytes = rpi_type_bytes(kernel->types[0]);
    const char *in;
    int32_t *sums, tiles;
    int64_t count;
    READ(in, 0);
    READ(sums, 1);
    READ(count, 2);
    READ(tiles, 3);
    for (unsigned b = 0; b < launch->grid[0]; b++)
        sums[b] = 0;
    for (int64_t i = 0; i < count; i++)
        sums[i / ((int64_t)TILE * tiles)] +=
            rpi_load(in + (size_t)i * bytes, kernel->types[0]) != 0;
}

/* compute_agg (int *sums, int64 *running, unsigned n) */
static void run_running_sums(const struct rp_host_launch *launch)
{
    const int32_t *sums;
    int64_t *running, sum = 0;
    uint32_t count;
    READ(sums, 0);
    READ(running, 1);
    READ(count, 2);
    for (uint32_t i = 0; i < count; i++)
        running[i] = sum += sums[i];
}

/* flag_kernel (const T *in, int64 *out, .., int64 n, int64 room, ..) */
static void run_flags(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    size_t bytes = rpi_type_bytes(kernel->types[0]);
    const char *in;
    int64_t *out, count, room, taken = 0;
    READ(in, 0);
    READ(out, 1);
    READ(count, 3);
    READ(room, 4);
    for (int64_t i = 0; i < count && taken < room; i++)
        if (rpi_load(in + (size_t)i * bytes, kernel->types[0]) != 0)
            out[taken++] = i;
}

/* write_fill_value (int64 *to, const int64 *first, int64 value, int64 n) */
static void run_fill_rest(const struct rp_host_launch *launch)
{
    int64_t *to, value, count;
    const int64_t *first;
    READ(to, 0);
    READ(first, 1);
    READ(value, 2);
    READ(count, 3);
    for (int64_t i = *first; i < count; i++)
        to[i] = value;
}

/* write_indices (int64 *at, {int64 sizes[25]}, int dims, int64 n, const int64 *total, int64 value)
 */
static void run_write_indices(const struct rp_host_launch *launch)
{
    int64_t *at, sizes[RPI_DIMS], count, value;
    const int64_t *total;
    int32_t dims;
    READ(at, 0);
    READ(sizes, 1);
    READ(dims, 2);
    READ(count, 3);
    READ(total, 4);
    READ(value, 5);
    for (int64_t i = 0; i < count; i++) {
        int64_t flat = at[i];
        bool real = !total || i < *total;
        for (int d = dims - 1; d >= 0; d--) {
            if (real)
                at[i + d * count] = flat % sizes[d];
            else if (d)
                at[i + d * count] = value;
            flat /= real ? sizes[d] : 1;
        }
    }
}

static rpi_run find_nonzero(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    static const struct {
        const char *key, *type;
        uint32_t params;
        rpi_run run;
    } known[] = {
        {"28DeviceReduceSingleTileKernelI", "9NonZeroOpI", 6, run_count},
        {"18DeviceReduceKernelI", "9NonZeroOpI", 6, run_block_counts},
        {"23DeviceSelectSweepKernelI", "9NonZeroOpI", 11, run_select},
        {"23DeviceSelectSweepKernelI", "9NonZeroOpI", 10, run_select}, /* of CUDA 12 */
        {"15calc_block_sumsILi512ELi16ELb1E", "15calc_block_sumsILi512ELi16ELb1E", 4,
         run_block_sums},
        {"11compute_aggI", NULL, 3, run_running_sums},
        {"11flag_kernelILi512ELi16E", "11flag_kernelILi512ELi16E", 6, run_flags},
        {"16write_fill_value", NULL, 4, run_fill_rest},
        {"13write_indicesIlE", NULL, 6, run_write_indices},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!strstr(name, known[i].key) || count != known[i].params)
            continue;
        const char *at = known[i].type ? rpi_name_after(name, known[i].type) : NULL;
        kernel->types[0] = RPI_NO_TYPE;
        kernel->depth = strstr(name, "22TransformInputIteratorI") ? sizeof(void *) : 0;
        /* The counts of blocks are summed by the same kernel, from plain ints. */
        kernel->variant = !at && strstr(name, "policy_hubIiy") && strstr(name, "EEPiSC_iS9_ii");
        if (kernel->variant || !known[i].type)
            return known[i].run;
        return at && rpi_name_type(&at, &kernel->types[0]) ? known[i].run : NULL;
    }
    return NULL;
}

/* ---- Parts of several tensors, one behind the other ------------------------------------------ */

/* chunk_cat_cuda_kernel, bytes to bytes (in[], out, tensor of each block, where each tensor begins in a
 * chunk, first block of each, bytes of each in a slice, the same padded in a chunk, blocks of each, bytes
 * of a slice of the result, of a chunk, int64 1); blocks: (of tensors, chunks, slices) */
static void run_chunk_cat(const struct rp_host_launch *launch)
{
    char **in, *out;
    const int64_t *tensor_of, *begins, *first_block, *bytes, *padded;
    int64_t slice, chunk;
    READ(in, 0);
    READ(out, 1);
    READ(tensor_of, 2);
    READ(begins, 3);
    READ(first_block, 4);
    READ(bytes, 5);
    READ(padded, 6);
    READ(slice, 8);
    READ(chunk, 9);
    for (unsigned b = 0; b < launch->grid[0]; b++) {
        int64_t t = tensor_of[b];
        for (unsigned i = 0; first_block[t] == b && i < launch->grid[1] * launch->grid[2]; i++) {
            int64_t c = i % launch->grid[1], s = i / launch->grid[1];
            int64_t rest = bytes[t] - c * padded[t];
            int64_t taken = rest < 0 ? 0 : rest < padded[t] ? rest : padded[t];
            char *to = out + s * slice + c * chunk + begins[t];
            if (taken)
                memcpy(to, in[t] + s * bytes[t] + c * padded[t], (size_t)taken);
            memset(to + taken, 0, (size_t)(padded[t] - taken));
        }
    }
}

/* split_with_sizes_copy_out_contiguous_no_cast_kernel (out[], in[], bytes of each in a chunk, split of
 * each block, first block of each, bytes from a chunk to the next, chunks) */
static void run_split_copy(const struct rp_host_launch *launch)
{
    char **out, **in;
    const int64_t *bytes, *split_of, *first_block;
    int64_t stride, chunks;
    READ(out, 0);
    READ(in, 1);
    READ(bytes, 2);
    READ(split_of, 3);
    READ(first_block, 4);
    READ(stride, 5);
    READ(chunks, 6);
    for (unsigned b = 0; b < launch->grid[0]; b++) {
        int64_t s = split_of[b];
        for (int64_t c = 0; first_block[s] == b && c < chunks; c++)
            memcpy(out[s] + c * bytes[s], in[s] + c * stride, (size_t)bytes[s]);
    }
}

/* ---- Names ---------------------------------------------------------------------------------- */

/* Kernels whose element type follows their name. */
static rpi_run find_typed(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    static const struct {
        const char *key;
        uint32_t params;
        int variant;
        rpi_run run;
    } known[] = {
        {"16roll_cuda_kernelI", 8, 0, run_roll},
        {"21indexSelectSmallIndexI", 7, 5, run_index_select},
        {"21indexSelectLargeIndexI", 8, 6, run_index_select},
        {"19indexFuncSmallIndexI", 10, 5, run_index_add},
        {"19indexFuncLargeIndexI", 11, 6, run_index_add},
        {"16triu_tril_kernelI", 5, 0, run_triangle},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *at = rpi_name_after(name, known[i].key);
        if (!at || count != known[i].params)
            continue;
        kernel->types[0] = kernel->types[1] = RPI_NO_TYPE;
        kernel->variant = known[i].variant;
        if (!rpi_name_type(&at, &kernel->types[0]))
            return NULL;
        if (known[i].run == run_triangle) {
            kernel->variant = strncmp(at, "iLb1E", 5) == 0; /* the upper one */
            return kernel->params[0].bytes == TENSOR_INFO_BYTES ? run_triangle : NULL;
        }
        if (known[i].run == run_roll)
            return run_roll;
        bool adds = known[i].run != run_index_add || strstr(name, "9ReduceAdd");
        return adds && rpi_name_type(&at, &kernel->types[1]) && *at == 'j' ? known[i].run : NULL;
    }
    return NULL;
}

rpi_run rpi_movement_find(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    if (strstr(name, "11spin_kernelEl") || strstr(name, "23DeviceCompactInitKernelI"))
        return run_spin; /* the second prepares a sweep that needs nothing here */
    if (strstr(name, "CatArrayBatchedCopy"))
        return find_cat(name, kernel, count);
    if (strstr(name, "34_scatter_gather_elementwise_kernelI"))
        return find_scatter(name, kernel, count);
    if (strstr(name, "24index_elementwise_kernelI")) {
        rpi_run flip = find_flip(name, kernel, count);
        return flip ? flip : find_index(name, kernel, count);
    }
    if (strstr(name, "21chunk_cat_cuda_kernelIccE") && count == 11)
        return run_chunk_cat;
    if (strstr(name, "51split_with_sizes_copy_out_contiguous_no_cast_kernel") && count == 7)
        return run_split_copy;
    rpi_run run = find_nonzero(name, kernel, count);
    return run ? run : find_typed(name, kernel, count);
}
