/* SPDX-License-Identifier: MIT
 *
 * The decoder's kernels as an image for the host driver: for each, a function that does the work of
 * the whole grid, and one that declares the ranges it reads and writes, for the race check.
 *
 * Declarations never look at device values. Where an access depends on a row's position (the KV
 * cache), the whole of the row's cache is declared.
 */
#include "decoder.h"
#include "images.h"

/* The grid is not looked at: a loop over all outputs is what any grid does. */
#define X(name, each)                                                                              \
    static void run_##name(const struct rp_host_launch *launch)                                    \
    {                                                                                              \
        const struct decoder_##name *args = launch->params[0];                                     \
        for (uint32_t i = 0; i < args->count / (each); i++)                                        \
            name##_at(args, i);                                                                    \
    }
DECODER_KERNELS(X)
#undef X

/* Where a kernel's accesses are reported to. */
struct ranges {
    rp_host_access report;
    void *context;
};

static void reads(const struct ranges *ranges, const void *from, size_t elements)
{
    ranges->report(ranges->context, (uint64_t)(uintptr_t)from, elements * 4, 0);
}

static void writes(const struct ranges *ranges, const void *to, size_t elements)
{
    ranges->report(ranges->context, (uint64_t)(uintptr_t)to, elements * 4, 1);
}

static void access_embed(const struct rp_host_launch *launch, rp_host_access report, void *context)
{
    const struct decoder_embed *a = launch->params[0];
    struct ranges to = {report, context};
    reads(&to, a->table, (size_t)a->vocab * a->hidden);
    reads(&to, a->tokens, a->count / a->hidden);
    writes(&to, a->out, a->count);
}

static void access_rms(const struct rp_host_launch *launch, rp_host_access report, void *context)
{
    const struct decoder_rms *a = launch->params[0];
    struct ranges to = {report, context};
    reads(&to, a->in, (size_t)a->count * a->hidden);
    writes(&to, a->out, a->count);
}

static void access_normalize(const struct rp_host_launch *launch, rp_host_access report,
                             void *context)
{
    const struct decoder_normalize *a = launch->params[0];
    struct ranges to = {report, context};
    reads(&to, a->in, a->count);
    reads(&to, a->inverse, a->count / a->hidden);
    reads(&to, a->gain, a->hidden);
    writes(&to, a->out, a->count);
}

static void access_matmul(const struct rp_host_launch *launch, rp_host_access report, void *context)
{
    const struct decoder_matmul *a = launch->params[0];
    struct ranges to = {report, context};
    reads(&to, a->in, (size_t)(a->count / a->columns) * a->inner);
    reads(&to, a->weight, (size_t)a->inner * a->columns);
    if (a->residual)
        reads(&to, a->residual, a->count);
    writes(&to, a->out, a->count);
}

static void access_rotate(const struct rp_host_launch *launch, rp_host_access report, void *context)
{
    const struct decoder_rotate *a = launch->params[0];
    struct ranges to = {report, context};
    size_t rows = a->count / (a->heads * (a->dim / 2));
    reads(&to, a->angles, (size_t)a->context * a->dim);
    reads(&to, a->positions, rows);
    reads(&to, a->x, rows * a->heads * a->dim);
    writes(&to, a->x, rows * a->heads * a->dim);
}

static void access_store(const struct rp_host_launch *launch, rp_host_access report, void *context)
{
    const struct decoder_store *a = launch->params[0];
    struct ranges to = {report, context};
    size_t width = (size_t)a->heads * a->dim, rows = a->count / (width / 2);
    reads(&to, a->key, rows * width);
    reads(&to, a->value, rows * width);
    reads(&to, a->angles, (size_t)a->context * a->dim);
    reads(&to, a->positions, rows);
    writes(&to, a->keys, rows * a->context * width);
    writes(&to, a->values, rows * a->context * width);
}

static void access_scores(const struct rp_host_launch *launch, rp_host_access report, void *context)
{
    const struct decoder_scores *a = launch->params[0];
    struct ranges to = {report, context};
    size_t rows = a->count / (a->context * a->heads), width = (size_t)a->heads * a->dim;
    reads(&to, a->query, rows * width);
    reads(&to, a->keys, rows * a->context * (width / a->group));
    reads(&to, a->positions, rows);
    writes(&to, a->out, a->count);
}

static void access_softmax(const struct rp_host_launch *launch, rp_host_access report,
                           void *context)
{
    const struct decoder_softmax *a = launch->params[0];
    struct ranges to = {report, context};
    reads(&to, a->in, (size_t)a->count * a->context);
    reads(&to, a->positions, a->count / a->heads);
    writes(&to, a->out, (size_t)a->count * a->context);
}

static void access_mix(const struct rp_host_launch *launch, rp_host_access report, void *context)
{
    const struct decoder_mix *a = launch->params[0];
    struct ranges to = {report, context};
    size_t width = (size_t)a->heads * a->dim, rows = a->count / width;
    reads(&to, a->weights, rows * a->heads * a->context);
    reads(&to, a->values, rows * a->context * (width / a->group));
    reads(&to, a->positions, rows);
    writes(&to, a->out, a->count);
}

static void access_swiglu(const struct rp_host_launch *launch, rp_host_access report, void *context)
{
    const struct decoder_swiglu *a = launch->params[0];
    struct ranges to = {report, context};
    reads(&to, a->gate, a->count);
    reads(&to, a->up, a->count);
    writes(&to, a->out, a->count);
}

#define X(name, each)                                                                              \
    static const struct rp_host_param params_##name[] = {{0, sizeof(struct decoder_##name)}};
DECODER_KERNELS(X)
#undef X

static const struct rp_host_kernel kernels[] = {
#define X(kernel, each)                                                                            \
    {.name = "decoder_" #kernel,                                                                   \
     .run = run_##kernel,                                                                          \
     .access = access_##kernel,                                                                    \
     .params = params_##kernel,                                                                    \
     .param_count = 1},
    DECODER_KERNELS(X)
#undef X
};

const struct rp_host_image decoder_host_image = {
    .magic = RP_HOST_IMAGE_MAGIC,
    .kernel_count = sizeof kernels / sizeof *kernels,
    .kernels = kernels,
};
