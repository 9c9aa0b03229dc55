/* SPDX-License-Identifier: MIT
 *
 * Random numbers as PyTorch's kernels draw them: Philox 4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", 2011) with the seed as its key and, as its counter, the thread in
 * the upper half and the offset / 4 plus the draw in the lower. A draw gives four words.
 *
 *     distribution_elementwise_grid_stride_kernel (int64 n, Philox state, draw, {out, stride, ..})
 *     fused_dropout_kernel_vec (in, out, mask, n, float p, Philox state)
 */
#include "kernels/kernel.h"

#include <math.h>

enum { NORMAL, UNIFORM, EXPONENTIAL, BERNOULLI, INTEGER, DROPOUT };

/* at::PhiloxCudaState: {seed, offset, offset within a graph, captured}; where captured, seed and
 * offset are pointers. In 2.9 the offset within a graph has four bytes. */
struct state {
    uint64_t seed, offset;
};

static struct state read_state(const struct rp_host_launch *launch, int index)
{
    enum { SHORT_BYTES = 24, SHORT_FLAG = 20, LONG_FLAG = 24 };
    const char *at = launch->params[index];
    bool is_short = launch->kernel->params[index].bytes == SHORT_BYTES;
    uint64_t words[3];
    struct state state;
    memcpy(words, at, sizeof words);
    if (!at[is_short ? SHORT_FLAG : LONG_FLAG])
        return (struct state){words[0], words[1]};
    memcpy(&state.seed, (const void *)(uintptr_t)words[0], sizeof state.seed);
    memcpy(&state.offset, (const void *)(uintptr_t)words[1], sizeof state.offset);
    state.offset += is_short ? (uint32_t)words[2] : words[2];
    return state;
}

static void philox(struct state state, uint64_t thread, uint64_t draw, uint32_t out[4])
{
    uint64_t low = state.offset / 4 + draw, high = thread;
    if (low < draw)
        high++;
    uint32_t c[4] = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)};
    uint32_t k0 = (uint32_t)state.seed, k1 = (uint32_t)(state.seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53 * c[0], p1 = (uint64_t)0xcd9e8d57 * c[2];
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1,
                            (uint32_t)(p0 >> 32) ^ c[3] ^ k1, (uint32_t)p0};
        memcpy(c, next, sizeof c);
        k0 += 0x9e3779b9;
        k1 += 0xbb67ae85;
    }
    memcpy(out, c, sizeof c);
}

/* In (0, 1]. */
static float uniform(uint32_t word)
{
    return (float)word * 2.3283064e-10f + 2.3283064e-10f / 2;
}

/* Two normal numbers of two words (Box and Muller). */
static void normal(const uint32_t words[2], float out[2])
{
    float u = uniform(words[0]);
    float v = (float)words[1] * (2.3283064e-10f * 6.2831855f) + 2.3283064e-10f * 6.2831855f / 2;
    float radius = sqrtf(-2 * logf(u));
    out[0] = radius * sinf(v);
    out[1] = radius * cosf(v);
}

static void draw(int kind, struct state state, uint64_t thread, uint64_t number, float out[4])
{
    uint32_t words[4];
    philox(state, thread, number, words);
    if (kind == NORMAL) {
        normal(words, out);
        normal(words + 2, out + 2);
        return;
    }
    for (int i = 0; i < 4; i++)
        out[i] = uniform(words[i]);
}

/* ---- Distributions -------------------------------------------------------------------------- */

/* The closure that stores: {out, int stride, f} or {offset calculator of 1, out, f}. */
struct target {
    char *out;
    const void *offsets; /* NULL: by the stride */
    int32_t stride;
    const char *numbers; /* of f */
};

static size_t align(size_t at, size_t alignment)
{
    return (at + alignment - 1) / alignment * alignment;
}

/* Bytes of f's numbers and their alignment. */
static size_t numbers_bytes(const struct rpi_kernel *kernel, size_t *alignment)
{
    size_t type = rpi_type_bytes(kernel->types[0]);
    size_t math = type == 8 ? 8 : 4;
    *alignment = math;
    switch (kernel->variant) {
    case NORMAL:
        return 2 * math;
    case UNIFORM:
        return align(math + 2 * type, math);
    case EXPONENTIAL:
        return math;
    case BERNOULLI:
        *alignment = 8;
        return 8;
    default: /* INTEGER: range and base */
        *alignment = 8;
        return 16;
    }
}

static size_t closure_bytes(const struct rpi_kernel *kernel, bool strided, size_t *out_numbers)
{
    size_t alignment, bytes = numbers_bytes(kernel, &alignment);
    size_t before = strided ? align(rpi_offsets_bytes(1), 8) + 8 : 8 + 4;
    *out_numbers = align(before, alignment);
    return align(*out_numbers + bytes, 8);
}

static struct target target_of(const struct rpi_kernel *kernel, const char *closure)
{
    struct target target = {0};
    size_t numbers;
    bool strided = kernel->depth;
    size_t out = strided ? align(rpi_offsets_bytes(1), 8) : 0;
    closure_bytes(kernel, strided, &numbers);
    memcpy(&target.out, closure + out, sizeof target.out);
    memcpy(&target.stride, closure + 8, sizeof target.stride);
    target.offsets = strided ? closure : NULL;
    target.numbers = closure + numbers;
    return target;
}

static char *element(const struct target *target, int64_t index)
{
    uint32_t offset;
    if (!target->offsets)
        return target->out + target->stride * index;
    rpi_offsets(target->offsets, 1, (uint32_t)index, &offset);
    return target->out + offset;
}

/* f of one number. */
static double transform(const struct rpi_kernel *kernel, const char *numbers, float x)
{
    float f[2];
    double p;
    int type = kernel->types[0];
    size_t bytes = rpi_type_bytes(type);
    memcpy(f, numbers, sizeof f);
    memcpy(&p, numbers, sizeof p);
    switch (kernel->variant) {
    case NORMAL:
        return x * f[1] + f[0];
    case UNIFORM: {
        double from = rpi_load(numbers + 4, type), to = rpi_load(numbers + 4 + bytes, type);
        double value = rpi_round_to((float)(x * f[0] + (float)from), type);
        return value == to ? from : value;
    }
    case EXPONENTIAL: {
        float log = x >= 1 - 0x1p-24f ? -0x1p-24f : logf(x); /* never 0 */
        return -1 / f[0] * log;
    }
    default: /* BERNOULLI */
        return x < (float)p;
    }
}

static void run_distribution(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    struct state state = read_state(launch, 1);
    struct target target = target_of(kernel, launch->params[3]);
    int64_t count, threads = (int64_t)launch->block[0] * launch->grid[0];
    memcpy(&count, launch->params[0], sizeof count);
    for (int64_t thread = 0; thread < threads && thread < count; thread++) {
        uint64_t number = 0;
        for (int64_t first = thread; first < count; first += 4 * threads, number++) {
            float x[4];
            draw(kernel->variant, state, (uint64_t)thread, number, x);
            for (int i = 0; i < 4 && first + i * threads < count; i++)
                rpi_store(element(&target, first + i * threads), kernel->types[0],
                          transform(kernel, target.numbers, x[i]));
        }
    }
}

/* Integers: rand % range + base, of 32 or of 64 bits. */
static void run_integers(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    struct state state = read_state(launch, 1);
    struct target target = target_of(kernel, launch->params[3]);
    int64_t count, base, threads = (int64_t)launch->block[0] * launch->grid[0];
    uint64_t range;
    int each = kernel->result; /* numbers of a draw */
    memcpy(&count, launch->params[0], sizeof count);
    memcpy(&range, target.numbers, sizeof range);
    memcpy(&base, target.numbers + 8, sizeof base);
    for (int64_t thread = 0; thread < threads && thread < count; thread++) {
        uint64_t number = 0;
        for (int64_t first = thread; first < count; first += each * threads, number++) {
            uint32_t words[4];
            philox(state, (uint64_t)thread, number, words);
            for (int i = 0; i < each && first + i * threads < count; i++) {
                const uint32_t *pair = words + (ptrdiff_t)2 * i;
                uint64_t x = each == 4 ? words[i] : (uint64_t)pair[0] << 32 | pair[1];
                rpi_store_whole(element(&target, first + i * threads), kernel->types[0],
                                (int64_t)(x % range) + base);
            }
        }
    }
}

/* ---- Dropout -------------------------------------------------------------------------------- */

/* The first member of a TensorInfo. */
static char *data_of(const void *info)
{
    char *data;
    memcpy(&data, info, sizeof data);
    return data;
}

/* Contiguous; a thread has `depth` neighbours for each draw. */
static void run_dropout(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    int type = kernel->types[0], vector = kernel->depth;
    size_t bytes = rpi_type_bytes(type);
    const char *in = data_of(launch->params[0]);
    char *out = data_of(launch->params[1]), *mask = data_of(launch->params[2]);
    uint32_t count;
    float p;
    memcpy(&count, launch->params[3], sizeof count);
    memcpy(&p, launch->params[4], sizeof p);
    struct state state = read_state(launch, 5);
    float scale = 1 / p;
    int64_t threads = (int64_t)launch->block[0] * launch->grid[0];
    for (int64_t thread = 0; thread < threads && thread * vector < count; thread++) {
        uint64_t number = 0;
        for (int64_t first = thread * vector; first < count; first += threads * vector, number++) {
            float x[4];
            draw(UNIFORM, state, (uint64_t)thread, number, x);
            for (int i = 0; i < vector && first + i < count; i++) {
                bool kept = x[i] < p;
                double value = rpi_load(in + (size_t)(first + i) * bytes, type);
                rpi_store(out + (size_t)(first + i) * bytes, type, kept ? value * scale : 0);
                mask[first + i] = kept;
            }
        }
    }
}

/* ---- Names ---------------------------------------------------------------------------------- */

static rpi_run distribution(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    static const struct {
        const char *key;
        int kind;
    } known[] = {{"13normal_kernelI", NORMAL},
                 {"14uniform_kernelI", UNIFORM},
                 {"18exponential_kernelI", EXPONENTIAL},
                 {"16bernoulli_kernelI", BERNOULLI},
                 {"21random_from_to_kernelI", INTEGER}};
    size_t kinds = sizeof known / sizeof *known, i = 0, numbers;
    while (i < kinds && !strstr(name, known[i].key))
        i++;
    if (i == kinds || count != 4)
        return NULL;
    kernel->variant = known[i].kind;
    const char *at =
        rpi_name_after(name, kernel->variant == INTEGER  ? "27distribution_nullary_kernelI"
                             : kernel->variant == NORMAL ? "20normal_and_transformI"
                                                         : "21uniform_and_transformI");
    kernel->types[0] = RPI_NO_TYPE;
    if (!at || !rpi_name_type(&at, &kernel->types[0]) ||
        (kernel->types[0] == RPI_DOUBLE && kernel->variant != INTEGER))
        return NULL;
    const char *each = rpi_name_after(name, "43distribution_elementwise_grid_stride_kernelI");
    kernel->result = each[3] == '4' || each[4] == '4' ? 4 : 2;
    for (kernel->depth = 0; kernel->depth < 2; kernel->depth++)
        if (kernel->params[3].bytes == closure_bytes(kernel, kernel->depth, &numbers))
            return kernel->variant == INTEGER ? run_integers : run_distribution;
    return NULL;
}

rpi_run rpi_random_find(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    if (strstr(name, "43distribution_elementwise_grid_stride_kernelI"))
        return distribution(name, kernel, count);
    /* fused_dropout_kernel_vec<T, float, unsigned, 1, VEC, mask> */
    const char *at = rpi_name_after(name, "24fused_dropout_kernel_vecI");
    kernel->types[0] = RPI_NO_TYPE;
    if (!at || count != 6 || !rpi_name_type(&at, &kernel->types[0]) ||
        strncmp(at, "fjLi1ELi", 8) != 0)
        return NULL;
    kernel->variant = DROPOUT;
    kernel->depth = at[8] - '0';
    return at[9] == 'E' && (kernel->depth == 4 || kernel->depth == 2) ? run_dropout : NULL;
}
