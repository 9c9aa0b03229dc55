/* SPDX-License-Identifier: MIT
 *
 * Reductions: reduce_kernel<.., ReduceOp<T, ops, index, out, ..>>, whose one parameter is the
 * ReduceOp:
 *
 *     ops, ident, config (64 bytes), input calculator of 1, output calculator of 2, src, dst[2],
 *     acc_buf, cta_buf, semaphores, base_idx, accumulate, final_output, noutputs
 *
 * Element i of output o lies at src + output[o][1] + input[i]. Sums are in double; the order of a
 * GPU's sums is another.
 */
#include "kernels/kernel.h"

#include <math.h>

enum { SUM, MEAN, ALL, ANY, NORM_TWO, MAX, MIN, PRODUCT, MAX_AT, MIN_AT, WELFORD };
enum { CONFIG_BYTES = 64, TAIL_BYTES = 64, NUM_INPUTS = 4, NUM_OUTPUTS = 8 };

static const struct {
    const char *key;
    int kind;
} known[] = {
    {"11sum_functorI", SUM},    {"7MeanOpsI", MEAN},          {"15and_kernel_cuda", ALL},
    {"14or_kernel_cuda", ANY},  {"10NormTwoOpsI", NORM_TWO},  {"13MaxNanFunctorI", MAX},
    {"13MinNanFunctorI", MIN},  {"12prod_functorI", PRODUCT}, {"9ArgMaxOpsI", MAX_AT},
    {"10WelfordOpsI", WELFORD}, {"9ArgMinOpsI", MIN_AT},      {"6MaxOpsI", MAX_AT},
    {"6MinOpsI", MIN_AT},
};

/* The value of a reduction, and where it was found first. */
struct found {
    double value, mean; /* of Welford's, the sum of the squares of the differences from the mean */
    int64_t whole, at;
};

static struct found start(int kind)
{
    struct found found = {0};
    if (kind == ALL || kind == PRODUCT)
        found = (struct found){1, 0, 1, 0};
    if (kind == MAX || kind == MAX_AT)
        found = (struct found){-INFINITY, 0, INT64_MIN, -1};
    if (kind == MIN || kind == MIN_AT)
        found = (struct found){INFINITY, 0, INT64_MAX, -1};
    return found;
}

/* Whether x stands ahead of what was found; the first of equal ones stays. */
static bool ahead(int kind, const struct found *found, double x, int64_t whole, bool is_whole)
{
    bool most = kind == MAX || kind == MAX_AT;
    if (found->at < 0)
        return true;
    if (is_whole)
        return most ? whole > found->whole : whole < found->whole;
    if (isnan(found->value))
        return false;
    return isnan(x) || (most ? x > found->value : x < found->value);
}

static void add(int kind, struct found *found, const void *at, int type, int64_t index)
{
    bool is_whole = rpi_type_is_whole(type);
    double x = rpi_load(at, type);
    int64_t whole = is_whole ? rpi_load_whole(at, type) : 0;
    switch (kind) {
    case SUM:
    case MEAN:
        found->value += x;
        found->whole = (int64_t)((uint64_t)found->whole + (uint64_t)whole);
        break;
    case ALL:
        found->value = found->value != 0 && x != 0;
        found->whole = found->value != 0;
        break;
    case ANY:
        found->value = found->value != 0 || x != 0;
        found->whole = found->value != 0;
        break;
    case NORM_TWO:
        found->value += x * x;
        break;
    case WELFORD: {
        double before = x - found->mean;
        found->mean += before / (double)++found->at;
        found->value += before * (x - found->mean);
        break;
    }
    case PRODUCT:
        found->value *= x;
        found->whole = (int64_t)((uint64_t)found->whole * (uint64_t)whole);
        break;
    default:
        if (ahead(kind, found, x, whole, is_whole))
            *found = (struct found){x, 0, whole, index};
    }
}

/* What was read out of the parameter. */
struct reduction {
    const struct rpi_kernel *kernel;
    const char *ops, *input, *output, *src, *dst_count;
    char *dst[2];
    int64_t base;
    uint32_t inputs, outputs;
    bool accumulate, final, whole;
};

static void read(struct reduction *r, const struct rp_host_launch *launch)
{
    r->kernel = rpi_kernel_of(launch->kernel);
    r->ops = launch->params[0];
    const char *end = r->ops + r->kernel->params[0].bytes, *tail = end - TAIL_BYTES;
    const char *config = r->ops + r->kernel->result;
    memcpy(&r->inputs, config + NUM_INPUTS, 4);
    memcpy(&r->outputs, config + NUM_OUTPUTS, 4);
    r->input = config + CONFIG_BYTES;
    r->output = r->input + rpi_offsets_bytes(1);
    memcpy(&r->src, tail, sizeof r->src);
    memcpy(r->dst, tail + 8, sizeof r->dst);
    memcpy(&r->base, tail + 48, sizeof r->base);
    r->dst_count = tail + 60;
    r->accumulate = tail[56] != 0;
    r->final = tail[57] != 0;
    int kind = r->kernel->variant;
    r->whole = rpi_type_is_whole(r->kernel->types[1]) && rpi_type_is_whole(r->kernel->types[0]) &&
               kind != MEAN && kind != NORM_TWO && kind != WELFORD;
}

static void store(const struct reduction *r, uint32_t offset, const struct found *found)
{
    int kind = r->kernel->variant, type = r->kernel->types[0];
    char *to = r->dst[0] + offset;
    double value = found->value;
    if (kind == MAX_AT || kind == MIN_AT) {
        int64_t at = found->at + r->base;
        if (r->kernel->depth) { /* the place only */
            memcpy(to, &at, sizeof at);
            return;
        }
        /* Offsets are those of the values, the places are longer. */
        memcpy(r->dst[1] + offset / rpi_type_bytes(type) * sizeof at, &at, sizeof at);
    }
    if (kind == MEAN && r->final) {
        float factor;
        double wide;
        memcpy(&factor, r->ops, sizeof factor);
        memcpy(&wide, r->ops, sizeof wide);
        value *= r->kernel->types[2] == RPI_DOUBLE ? wide : (double)factor;
    }
    if (kind == WELFORD) {
        int acc = r->kernel->types[2];
        double rest = (double)found->at - rpi_load(r->ops, acc);
        value /= rest > 0 ? rest : 0;
        if (r->ops[rpi_type_bytes(acc)])
            value = sqrt(value);
        if (r->dst[1] && *(const int *)(r->dst_count) > 1)
            rpi_store(r->dst[1] + offset, type, found->mean);
    }
    if (kind == NORM_TWO && r->final)
        value = sqrt(value);
    if (r->whole)
        rpi_store_whole(to, type, found->whole);
    else
        rpi_store(to, type, value);
}

static void run_reduction(const struct rp_host_launch *launch)
{
    struct reduction r;
    read(&r, launch);
    for (uint32_t o = 0; o < r.outputs; o++) {
        uint32_t at[2], input;
        rpi_offsets(r.output, 2, o, at);
        struct found found = start(r.kernel->variant);
        if (r.accumulate)
            add(r.kernel->variant, &found, r.dst[0] + at[0], r.kernel->types[0], -r.base);
        for (uint32_t i = 0; i < r.inputs; i++) {
            rpi_offsets(r.input, 1, i, &input);
            add(r.kernel->variant, &found, r.src + at[1] + input, r.kernel->types[1], i);
        }
        store(&r, at[0], &found);
    }
}

/* ---- Names ---------------------------------------------------------------------------------- */

static size_t align(size_t at, size_t alignment)
{
    return (at + alignment - 1) / alignment * alignment;
}

/* Where the config begins, behind ops and ident; 0: the parameter is of another size. */
static size_t config_at(const struct rpi_kernel *kernel, size_t bytes)
{
    int kind = kernel->variant, type = kernel->types[2];
    bool pair = kind == MAX_AT || kind == MIN_AT;
    size_t width = pair ? 16 : rpi_type_bytes(type);
    size_t alignment = pair ? 8 : width;
    size_t ops = kind == MEAN ? rpi_type_bytes(type) : 1;
    if (kind == WELFORD) { /* {correction, root}, {mean, squares, int n, n} */
        ops = 2 * alignment;
        width = 4 * alignment;
    }
    size_t at = align(align(ops, alignment) + width, 4);
    size_t tail = align(at + CONFIG_BYTES + rpi_offsets_bytes(1) + rpi_offsets_bytes(2), 8);
    return tail + TAIL_BYTES == bytes ? at : 0;
}

/* ReduceOp<T, func_wrapper_t<out, sum_functor<T, acc, out>>, ..>, ReduceOp<T, MeanOps<T, acc, ..>>
 */
static bool read_types(const char *name, const char *behind, struct rpi_kernel *kernel)
{
    const char *at = rpi_name_after(name, "8ReduceOpI");
    int type = RPI_NO_TYPE;
    if (!at || !rpi_name_type(&at, &type))
        return false;
    kernel->types[0] = kernel->types[1] = kernel->types[2] = type;
    const char *wrapped = rpi_name_after(name, "14func_wrapper_tI");
    if (wrapped && rpi_name_type(&wrapped, &type)) {
        /* The functor accumulates in the type of its lambda's operands. */
        kernel->types[0] = kernel->types[2] = type;
        const char *lambda = rpi_name_after(behind, "EUl");
        while (lambda && *lambda == 'v')
            lambda = rpi_name_after(lambda, "EUl");
        if (lambda && !rpi_name_type(&lambda, &kernel->types[2]))
            return false;
    }
    if (kernel->variant == MEAN || kernel->variant == NORM_TWO || kernel->variant == WELFORD) {
        int acc = kernel->types[1];
        if (!rpi_name_type(&behind, &type) || !rpi_name_type(&behind, &acc))
            return false;
        kernel->types[2] = acc;
    }
    /* Behind the ops: index type, out type. */
    const char *out = strstr(at, "EEj");
    type = kernel->types[1];
    if (out) {
        out += 3;
        if (rpi_name_type(&out, &type))
            kernel->types[0] = type;
    }
    return true;
}

rpi_run rpi_reduce_find(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    if (!strstr(name, "13reduce_kernelI") || count != 1)
        return NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *behind = rpi_name_after(name, known[i].key);
        if (!behind)
            continue;
        kernel->variant = known[i].kind;
        kernel->depth = known[i].key[0] == '9'; /* only the place */
        if (!read_types(name, behind, kernel))
            return NULL;
        kernel->result = (int)config_at(kernel, kernel->params[0].bytes);
        return kernel->result && rpi_type_bytes(kernel->types[0]) &&
                       rpi_type_bytes(kernel->types[1])
                   ? run_reduction
                   : NULL;
    }
    return NULL;
}
