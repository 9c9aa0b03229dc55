/* SPDX-License-Identifier: MIT
 *
 * Kernels over lists of tensors: multi_tensor_apply_kernel (metadata, functor, what the functor
 * takes). The metadata, by the number of lists (its depth):
 *
 *     addresses[depth][tensors], numel[tensors], [the scalars or the steps' addresses,]
 *     block_to_tensor (320 bytes), block_to_chunk (320 ints), ..
 *
 * Each block computes 65,536 elements of one tensor.
 */
#include "kernels/kernel.h"

#include <math.h>

enum { CHUNK = 65536, BLOCKS = 320, MOST_DEPTH = 5 };
enum { LIST, SCALAR_LIST, STEPS };

static const int tensors_of[3][MOST_DEPTH] = {
    {110, 64, 48, 36, 30}, {96, 64, 48, 36, 30}, {110, 64, 48, 36, 30}};

enum {
    BINARY_SCALAR,
    BINARY_SCALAR_LIST,
    BINARY_ALPHA,
    BINARY_SCALAR_TENSOR,
    UNARY,
    POINTWISE_SCALAR,
    POINTWISE_SCALAR_LIST,
    POINTWISE_LIST,
    TERNARY_SCALAR,
    TERNARY_LIST,
    ZERO,
    FUSED_ADAM,
    FUSED_SGD,
    UNSCALE,
    NORM,
    COPY_TYPES
};

static const struct functor {
    const char *key;
    int kind, metadata;
    uint32_t params; /* of the kernel */
} functors[] = {
    {"21BinaryOpScalarFunctorI", BINARY_SCALAR, LIST, 4},
    {"25BinaryOpScalarListFunctorI", BINARY_SCALAR_LIST, SCALAR_LIST, 3},
    {"24BinaryOpListAlphaFunctorI", BINARY_ALPHA, LIST, 4},
    {"27BinaryOpScalarTensorFunctorI", BINARY_SCALAR_TENSOR, LIST, 5},
    {"47_amp_foreach_non_finite_check_and_unscale_cuda_", UNSCALE, LIST, 3},
    {"14UnaryOpFunctorI", UNARY, LIST, 3},
    {"24PointwiseOpScalarFunctorI", POINTWISE_SCALAR, LIST, 4},
    {"28PointwiseOpScalarListFunctorI", POINTWISE_SCALAR_LIST, SCALAR_LIST, 3},
    {"22PointwiseOpListFunctorI", POINTWISE_LIST, LIST, 3},
    {"22TernaryOpScalarFunctorI", TERNARY_SCALAR, LIST, 4},
    {"20TernaryOpListFunctorI", TERNARY_LIST, LIST, 3},
    {"11ZeroFunctorI", ZERO, LIST, 2},
    {"20FusedAdamMathFunctorI", FUSED_ADAM, STEPS, 11},
    {"13LpNormFunctorI", NORM, LIST, 4},
    {"19FusedSgdMathFunctorI", FUSED_SGD, LIST, 12},
    {"11CopyFunctorI", COPY_TYPES, LIST, 3}, /* its type, and that of what it reads */
};

/* What a functor does with its operands. */
enum {
    PLUS,
    MINUS,
    TIMES,
    DIVIDE,
    POWER,
    REVERSE_POWER,
    LEAST,
    MOST,
    SQRT,
    NEGATE,
    RECIPROCAL,
    COPY,
    ABS,
    EXP,
    LERP,
    NONE
};
static const struct {
    const char *key;
    int op;
} ops[] = {
    {"St4plusI", PLUS},
    {"St5minusI", MINUS},
    {"St10multipliesI", TIMES},
    {"St7dividesI", DIVIDE},
    {"21reverse_power_functorI", REVERSE_POWER},
    {"13power_functorI", POWER},
    {"7minimumI", LEAST},
    {"7maximumI", MOST},
    {"4SqrtI", SQRT},
    {"St6negateI", NEGATE},
    {"10ReciprocalI", RECIPROCAL},
    {"4CopyI", COPY},
    {"3AbsI", ABS},
    {"3ExpI", EXP},
    {"11LerpFunctorI", LERP},
};

static double apply(int op, double a, double b, double c)
{
    switch (op) {
    case PLUS:
        return a + b;
    case MINUS:
        return a - b;
    case TIMES:
        return a * b;
    case DIVIDE:
        return a / b;
    case POWER:
        return pow(a, b);
    case REVERSE_POWER:
        return pow(b, a);
    case LEAST:
        return a < b ? a : b;
    case MOST:
        return a > b ? a : b;
    case SQRT:
        return sqrt(a);
    case NEGATE:
        return -a;
    case RECIPROCAL:
        return 1 / a;
    case ABS:
        return fabs(a);
    case EXP:
        return exp(a);
    case LERP:
        return fabs(c) < 0.5 ? a + c * (b - a) : b - (b - a) * (1 - c);
    default:
        return a;
    }
}

/* One block's part of one tensor. */
struct chunk {
    const struct rp_host_launch *launch;
    const struct rpi_kernel *kernel;
    char *at[MOST_DEPTH];
    int64_t count;
    int tensor, number; /* of the tensor in the launch, and of the chunk in the tensor */
    double scalar;      /* of the tensor, or of the launch */
    const float *step;  /* of the tensor */
};

static int math_type(int type)
{
    return type == RPI_HALF || type == RPI_BF16 ? RPI_FLOAT : type;
}

static int type_of(const struct rpi_kernel *kernel, int list)
{
    return kernel->types[kernel->variant == COPY_TYPES && list != kernel->result];
}

static double get(const struct chunk *chunk, int list, int64_t i)
{
    int type = type_of(chunk->kernel, list);
    return rpi_load(chunk->at[list] + i * (int64_t)rpi_type_bytes(type), type);
}

static void put(const struct chunk *chunk, int list, int64_t i, double value)
{
    int type = chunk->kernel->types[0];
    rpi_store(chunk->at[list] + i * (int64_t)rpi_type_bytes(type), type, value);
}

static double param(const struct chunk *chunk, int index)
{
    return rpi_load(chunk->launch->params[index], math_type(chunk->kernel->types[0]));
}

static double compute(const struct chunk *chunk, int64_t i)
{
    int op = chunk->kernel->wrapper;
    switch (chunk->kernel->variant) {
    case BINARY_SCALAR:
    case BINARY_SCALAR_LIST:
    case BINARY_SCALAR_TENSOR:
        return apply(op, get(chunk, 0, i), chunk->scalar, 0);
    case BINARY_ALPHA:
        return apply(op, get(chunk, 0, i), chunk->scalar * get(chunk, 1, i), 0);
    case POINTWISE_SCALAR:
    case POINTWISE_SCALAR_LIST:
        return get(chunk, 0, i) + chunk->scalar * apply(op, get(chunk, 1, i), get(chunk, 2, i), 0);
    case POINTWISE_LIST:
        return apply(op, get(chunk, 0, i), get(chunk, 1, i), 0);
    case TERNARY_SCALAR:
        return apply(op, get(chunk, 0, i), get(chunk, 1, i), chunk->scalar);
    case TERNARY_LIST:
        return apply(op, get(chunk, 0, i), get(chunk, 1, i), get(chunk, 2, i));
    case ZERO:
        return 0;
    default:
        return apply(op, get(chunk, 0, i), 0, 0);
    }
}

static void run_plain(const struct chunk *chunk)
{
    for (int64_t i = 0; i < chunk->count; i++)
        put(chunk, chunk->kernel->result, i, compute(chunk, i));
}

static void *pointer_param(const struct chunk *chunk, int index)
{
    void *pointer;
    memcpy(&pointer, chunk->launch->params[index], sizeof pointer);
    return pointer;
}

static double double_param(const struct chunk *chunk, int index)
{
    return *(const double *)chunk->launch->params[index];
}

/* Gradients times *inv_scale; *found_inf becomes 1 where one is not finite. The functor has the two
 * pointers in its closure. */
static void run_unscale(const struct chunk *chunk)
{
    float *found, *inverse;
    memcpy(&found, chunk->launch->params[2], sizeof found);
    memcpy(&inverse, (const char *)chunk->launch->params[2] + 8, sizeof inverse);
    for (int64_t i = 0; i < chunk->count; i++) {
        double value = get(chunk, 0, i);
        if (!isfinite(value))
            *found = 1;
        put(chunk, 0, i, *inverse == 1 ? value : value * (double)*inverse);
    }
}

/* (metadata, functor, sums, int chunks of a tensor): the sum of the squares of each chunk. The
 * number of the launch's first tensor is the metadata's last word. */
static void run_norm(const struct chunk *chunk)
{
    float *sums = pointer_param(chunk, 2);
    const char *meta = chunk->launch->params[0];
    int32_t chunks, first;
    memcpy(&chunks, chunk->launch->params[3], sizeof chunks);
    memcpy(&first, meta + chunk->kernel->operand_types[0], sizeof first);
    double sum = 0;
    for (int64_t i = 0; i < chunk->count; i++)
        sum += get(chunk, 0, i) * get(chunk, 0, i);
    if (math_type(chunk->kernel->types[0]) == RPI_DOUBLE)
        ((double *)(void *)sums)[(first + chunk->tensor) * chunks + chunk->number] = sum;
    else
        sums[(first + chunk->tensor) * chunks + chunk->number] = (float)sum;
}

enum { PARAM, GRAD, EXP_AVG, EXP_AVG_SQ };

/* (metadata, functor, lr pointer, lr, beta1, beta2, weight decay, eps, maximize, grad scale
 * pointer, found inf pointer) */
static void run_adam(const struct chunk *chunk)
{
    const float *lr_at = pointer_param(chunk, 2), *scale = pointer_param(chunk, 9);
    const float *found = pointer_param(chunk, 10);
    double lr = lr_at ? (double)*lr_at : double_param(chunk, 3);
    double beta1 = double_param(chunk, 4), beta2 = double_param(chunk, 5);
    double decay = double_param(chunk, 6), eps = double_param(chunk, 7);
    bool maximize = *(const char *)chunk->launch->params[8];
    bool decoupled = chunk->kernel->operand_types[0];
    if (found && *found == 1)
        return;
    double correction1 = 1 - pow(beta1, *chunk->step);
    double root2 = sqrt(1 - pow(beta2, *chunk->step));
    for (int64_t i = 0; i < chunk->count; i++) {
        double value = get(chunk, PARAM, i), grad = get(chunk, GRAD, i);
        if (scale) {
            grad /= (double)*scale;
            put(chunk, GRAD, i, grad);
        }
        if (maximize)
            grad = -grad;
        if (decoupled)
            value -= lr * decay * value;
        else
            grad += value * decay;
        double mean = beta1 * get(chunk, EXP_AVG, i) + (1 - beta1) * grad;
        double square = beta2 * get(chunk, EXP_AVG_SQ, i) + (1 - beta2) * grad * grad;
        put(chunk, EXP_AVG, i, mean);
        put(chunk, EXP_AVG_SQ, i, square);
        put(chunk, PARAM, i, value - lr / correction1 * mean / (sqrt(square) / root2 + eps));
    }
}

/* (metadata, functor, weight decay, momentum, lr pointer, lr, dampening, nesterov, maximize, is
 * first step, grad scale pointer, found inf pointer); lists: parameters, gradients, momentum */
static void run_sgd(const struct chunk *chunk)
{
    const float *lr_at = pointer_param(chunk, 4), *scale = pointer_param(chunk, 10);
    const float *found = pointer_param(chunk, 11);
    double decay = double_param(chunk, 2), momentum = double_param(chunk, 3);
    double lr = lr_at ? (double)*lr_at : double_param(chunk, 5);
    double dampening = double_param(chunk, 6);
    bool nesterov = *(const char *)chunk->launch->params[7];
    bool maximize = *(const char *)chunk->launch->params[8];
    bool first = *(const char *)chunk->launch->params[9];
    if (found && *found == 1)
        return;
    for (int64_t i = 0; i < chunk->count; i++) {
        double value = get(chunk, 0, i), grad = get(chunk, 1, i);
        if (scale) {
            grad /= (double)*scale;
            put(chunk, 1, i, grad);
        }
        if (maximize)
            grad = -grad;
        grad += decay * value;
        if (chunk->kernel->depth > 2) {
            double moved = first ? grad : momentum * get(chunk, 2, i) + (1 - dampening) * grad;
            put(chunk, 2, i, moved);
            grad = nesterov ? grad + momentum * moved : moved;
        }
        put(chunk, 0, i, value - lr * grad);
    }
}

static void run_chunk(const struct chunk *chunk)
{
    switch (chunk->kernel->variant) {
    case UNSCALE:
        run_unscale(chunk);
        break;
    case NORM:
        run_norm(chunk);
        break;
    case FUSED_ADAM:
        run_adam(chunk);
        break;
    case FUSED_SGD:
        run_sgd(chunk);
        break;
    default:
        run_plain(chunk);
    }
}

static double launch_scalar(const struct chunk *chunk)
{
    switch (chunk->kernel->variant) {
    case BINARY_SCALAR:
    case BINARY_ALPHA:
    case POINTWISE_SCALAR:
    case TERNARY_SCALAR:
        return param(chunk, 3);
    case BINARY_SCALAR_TENSOR:
        return param(chunk, 4) * rpi_load(pointer_param(chunk, 3), chunk->kernel->types[0]);
    default:
        return 0;
    }
}

static int metadata_of(const struct rpi_kernel *kernel)
{
    return kernel->operand_types[1];
}

static void run_multi_tensor(const struct rp_host_launch *launch)
{
    const struct rpi_kernel *kernel = rpi_kernel_of(launch->kernel);
    int form = metadata_of(kernel), depth = kernel->depth;
    size_t room = (size_t)tensors_of[form][depth - 1], steps = tensors_of[SCALAR_LIST][depth - 1];
    const char *meta = launch->params[0];
    const int64_t *numel = (const int64_t *)(meta + (size_t)depth * room * 8);
    const char *more = (const char *)(numel + room);
    size_t wide = rpi_type_bytes(math_type(kernel->types[0]));
    const unsigned char *to_tensor = (const unsigned char *)more;
    if (form == SCALAR_LIST)
        to_tensor += room * wide;
    if (form == STEPS)
        to_tensor += steps * 8;
    for (unsigned b = 0; b < launch->grid[0] && b < BLOCKS; b++) {
        struct chunk chunk = {.launch = launch, .kernel = kernel, .tensor = to_tensor[b]};
        int32_t number;
        memcpy(&number, to_tensor + BLOCKS + sizeof number * b, sizeof number);
        int64_t skipped = (int64_t)number * CHUNK;
        chunk.number = number;
        chunk.count = numel[chunk.tensor] - skipped;
        if (chunk.count > CHUNK)
            chunk.count = CHUNK;
        for (int d = 0; d < depth; d++) {
            memcpy(&chunk.at[d], meta + 8 * ((size_t)d * room + (size_t)chunk.tensor), 8);
            chunk.at[d] += skipped * (int64_t)rpi_type_bytes(type_of(kernel, d));
        }
        chunk.scalar = launch_scalar(&chunk);
        if (form == SCALAR_LIST)
            chunk.scalar =
                rpi_load(more + (size_t)chunk.tensor * wide, math_type(kernel->types[0]));
        if (form == STEPS)
            memcpy(&chunk.step, more + 8 * (size_t)chunk.tensor, sizeof chunk.step);
        run_chunk(&chunk);
    }
}

/* ---- GradScaler ----------------------------------------------------------------------------- */

/* amp_update_scale_cuda_kernel (scale, growth tracker, found inf, growth, backoff, interval) */
static void run_update_scale(const struct rp_host_launch *launch)
{
    float *scale;
    int *tracker, interval;
    const float *found;
    double growth, backoff;
    memcpy(&scale, launch->params[0], sizeof scale);
    memcpy(&tracker, launch->params[1], sizeof tracker);
    memcpy(&found, launch->params[2], sizeof found);
    memcpy(&growth, launch->params[3], sizeof growth);
    memcpy(&backoff, launch->params[4], sizeof backoff);
    memcpy(&interval, launch->params[5], sizeof interval);
    if (*found != 0) {
        *scale = (float)(*scale * backoff);
        *tracker = 0;
    } else if (++*tracker == interval) {
        float grown = (float)(*scale * growth);
        if (isfinite(grown))
            *scale = grown;
        *tracker = 0;
    }
}

/* ---- Names ---------------------------------------------------------------------------------- */

/* "ILi2ELi1ELi1E": the depth of the lists, of those that are read, and the result's. */
static bool read_numbers(const char *at, struct rpi_kernel *kernel)
{
    int numbers[3] = {0}, count = 0;
    while (count < 3 && at[0] == 'L' && at[1] == 'i') {
        numbers[count++] = at[2] - '0';
        at += 4;
    }
    if (!count)
        return false;
    kernel->depth = numbers[0];
    kernel->result = count == 3 ? numbers[2] : 0;
    return kernel->depth >= 1 && kernel->depth <= MOST_DEPTH && kernel->result < kernel->depth;
}

static int find_op(const char *name)
{
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strstr(name, ops[i].key))
            return ops[i].op;
    return NONE;
}

static bool wants_op(int kind)
{
    return kind < ZERO;
}

/* Behind "LNS0_8NormTypeE1Ef": of the norms, the second. */
static const char *two_norm(const char *at)
{
    const char *behind = rpi_name_after(at, "8NormTypeE1E");
    int type = RPI_NO_TYPE;
    return behind && rpi_name_type(&behind, &type) ? behind : NULL;
}

static size_t first_tensor_at(int depth)
{
    size_t tensors = (size_t)tensors_of[LIST][depth - 1];
    return tensors * 8 * (size_t)(depth + 1) + (size_t)5 * BLOCKS;
}

rpi_run rpi_multi_tensor_find(const char *name, struct rpi_kernel *kernel, uint32_t count)
{
    if (strstr(name, "28amp_update_scale_cuda_kernel"))
        return count == 6 ? run_update_scale : NULL;
    if (!strstr(name, "25multi_tensor_apply_kernelI"))
        return NULL;
    for (size_t i = 0; i < sizeof functors / sizeof *functors; i++) {
        const char *at = rpi_name_after(name, functors[i].key);
        if (!at)
            continue;
        const struct functor *functor = &functors[i];
        if (functor->kind == UNSCALE)
            at = rpi_name_after(name, "14UnaryOpFunctorI");
        kernel->types[0] = RPI_NO_TYPE;
        if (!at || count != functor->params || !rpi_name_type(&at, &kernel->types[0]))
            return NULL;
        if (functor->kind == NORM && !(at = two_norm(at)))
            return NULL;
        kernel->types[1] = kernel->types[0];
        if (functor->kind == COPY_TYPES && !rpi_name_type(&at, &kernel->types[1]))
            return NULL;
        if (!read_numbers(at, kernel))
            return NULL;
        kernel->variant = functor->kind;
        kernel->wrapper = find_op(at);
        kernel->operand_types[0] = strstr(at, "9ADAM_MODEE1") != NULL;
        if (functor->kind == NORM) /* where the number of the first tensor lies */
            kernel->operand_types[0] = (int)first_tensor_at(kernel->depth);
        kernel->operand_types[1] = functor->metadata;
        return wants_op(functor->kind) && kernel->wrapper == NONE ? NULL : run_multi_tensor;
    }
    return NULL;
}
