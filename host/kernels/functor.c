/* SPDX-License-Identifier: MIT
 *
 * What elementwise kernels compute. PyTorch has a functor as a struct of a name, whose types follow
 * it (11FillFunctorIfE), or as a lambda in a function of a name, whose types are the lambda's (..
 * EUlffE_). Of two operands one may be in a closure: AUnaryFunctor and BUnaryFunctor lay it behind
 * the functor that takes two.
 */
#include "kernels/kernel.h"

#include <math.h>

enum { PLAIN, FIRST_IN_CLOSURE, SECOND_IN_CLOSURE, BOTH_IN_MEMORY };

#define A (lanes->in[0][i])
#define B (lanes->in[1][i])
#define C (lanes->in[2][i])
#define S (lanes->scalars)
#define OP(name, expression)                                                                       \
    static void name(struct rpi_lanes *lanes)                                                      \
    {                                                                                              \
        for (int i = 0; i < lanes->count; i++)                                                     \
            lanes->out[i] = (expression);                                                          \
    }
#define WA (lanes->whole_in[0][i])
#define WB (lanes->whole_in[1][i])
#define WS (lanes->whole_scalars)
#define WHOLE(name, expression)                                                                    \
    static void name(struct rpi_lanes *lanes)                                                      \
    {                                                                                              \
        for (int i = 0; i < lanes->count; i++)                                                     \
            lanes->whole_out[i] = (int64_t)(expression);                                           \
    }
/* Without the overflow that C does not define. */
#define U(x) ((uint64_t)(x))

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double normal_below(double x)
{
    return 0.5 * (1 + erf(x * M_SQRT1_2));
}

static double gelu_slope(double x)
{
    return normal_below(x) + x * exp(-0.5 * x * x) * 0.3989422804014327;
}

static double tanh_gelu_inner(double x)
{
    return 0.7978845608028654 * (x + 0.044715 * x * x * x);
}

static double tanh_gelu_slope(double x)
{
    double t = tanh(tanh_gelu_inner(x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

/* GE, GT, LE, LT */
static bool compares(double a, double b, double op)
{
    switch ((int)op) {
    case 0:
        return a >= b;
    case 1:
        return a > b;
    case 2:
        return a <= b;
    default:
        return a < b;
    }
}

/* Min, Max, both */
static double clamp(double x, double kind, double low_or_only, double high)
{
    if (isnan(x))
        return x;
    if (kind == 1)
        return x < low_or_only ? x : low_or_only;
    double above = x > low_or_only ? x : low_or_only;
    return kind == 0 || above < high ? above : high;
}

static double nan_to_num(double x, double nan, double above, double below)
{
    return isnan(x) ? nan : isinf(x) ? (x > 0 ? above : below) : x;
}

static double round_half_even(double x)
{
    return nearbyint(x);
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    if (!b || (a == INT64_MIN && b == -1))
        return 0;
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

OP(do_fill, S[0])
WHOLE(fill_whole, WS[0])
OP(do_copy, A)
WHOLE(copy_whole, WA)
OP(do_add, A + S[0] * B)
WHOLE(add_whole, U(WA) + U(WS[0]) * U(WB))
OP(do_add_scalar, A + S[1] * S[0])
WHOLE(add_scalar_whole, U(WA) + U(WS[1]) * U(WS[0]))
OP(do_mul, A *B)
WHOLE(mul_whole, U(WA) * U(WB))
OP(do_div, A / B)
OP(do_or, (double)((int64_t)A | (int64_t)B))
WHOLE(or_whole, WA | WB)
OP(do_and, (double)((int64_t)A &(int64_t)B))
WHOLE(and_whole, WA &WB)
OP(do_xor, (double)((int64_t)A ^ (int64_t)B))
WHOLE(xor_whole, WA ^ WB)
OP(do_equal, (A == B) == (S[0] == 0))
WHOLE(equal_whole, (WA == WB) == (WS[0] == 0))
OP(do_compare, compares(A, B, S[0]))
OP(do_compare_scalar, compares(A, S[1], S[0]))
OP(do_logical_and, A != 0 && B != 0)
OP(do_logical_or, A != 0 || B != 0)
OP(do_logical_xor, (A != 0) != (B != 0))
OP(do_logical_not, A == 0)
OP(do_bitwise_not, A == 0)
WHOLE(bitwise_not_whole, ~WA)
OP(do_threshold, A <= S[0] ? S[1] : B)
OP(do_clamp, clamp(A, S[0], S[1], S[2]))
OP(do_square, A *A)
OP(do_cube, A *A *A)
OP(do_inverse_square, 1 / (A * A))
OP(do_pow_scalar, pow(A, S[0]))
OP(do_pow, pow(A, B))
OP(do_abs, fabs(A))
OP(do_neg, -A)
WHOLE(neg_whole, 0 - U(WA))
OP(do_sign, (A > 0) - (A < 0))
OP(do_exp, exp(A))
OP(do_expm1, expm1(A))
OP(do_log, log(A))
OP(do_log1p, log1p(A))
OP(do_log2, log2(A))
OP(do_sin, sin(A))
OP(do_cos, cos(A))
OP(do_tanh, tanh(A))
OP(do_tanh_backward, A *(1 - B * B))
OP(do_sigmoid, sigmoid(A))
OP(do_sigmoid_backward, A *B *(1 - B))
OP(do_erf, erf(A))
OP(do_sqrt, sqrt(A))
OP(do_rsqrt, 1 / sqrt(A))
OP(do_reciprocal, 1 / A)
OP(do_floor, floor(A))
OP(do_ceil, ceil(A))
OP(do_round, round_half_even(A))
OP(do_trunc, trunc(A))
OP(do_gelu, A *normal_below(A))
OP(do_gelu_backward, A *gelu_slope(B))
OP(do_gelu_tanh, 0.5 * A * (1 + tanh(tanh_gelu_inner(A))))
OP(do_gelu_tanh_backward, A *tanh_gelu_slope(B))
OP(do_silu, A *sigmoid(A))
OP(do_silu_backward, A *sigmoid(B) * (1 + B * (1 - sigmoid(B))))
OP(do_leaky_relu, A > 0 ? A : A * S[0])
OP(do_maximum, isnan(A) || A > B ? A : B)
OP(do_minimum, isnan(A) || A < B ? A : B)
OP(do_mse, (A - B) * (A - B))
OP(do_mse_backward, S[0] * (A - B) * C)
OP(do_masked_fill, B != 0 ? S[0] : A)
OP(do_masked_scale, B *A *S[0])
OP(do_where, A != 0 ? B : C)
OP(do_add_other, S[0] + S[1] * A)
OP(do_lerp_scalar, fabs(S[0]) < 0.5 ? A + S[0] * (B - A) : B - (B - A) * (1 - S[0]))
OP(do_addcmul, A + S[0] * B * C)
OP(do_addcdiv, A + S[0] * (B / C))
OP(do_floor_divide, floor(A / B))
WHOLE(floor_divide_whole, floor_divide(WA, WB))
OP(do_trunc_divide, trunc(A / B))
WHOLE(trunc_divide_whole, WB ? WA / WB : 0)
OP(do_remainder, A - B * floor(A / B))
WHOLE(remainder_whole, WB ? WA - WB *floor_divide(WA, WB) : 0)
OP(do_is_above_all, A == INFINITY)
OP(do_is_below_all, A == -INFINITY)
OP(do_softplus, A *S[0] > S[1] ? A : log1p(exp(A * S[0])) / S[0])
OP(do_elu, A > 0 ? A * S[1] : expm1(A * S[2]) * S[0])
OP(do_hardswish, A *fmin(fmax(A + 3, 0), 6) / 6)
OP(do_mish, A *tanh(log1p(exp(A))))
OP(do_leaky_relu_backward, A > 0 ? B : B * S[0])
OP(do_inverse_deviation, 1 / sqrt(A + S[0]))
OP(do_nan_to_num, nan_to_num(A, S[0], S[1], S[2]))

/* The longer key of two that one name has comes first. */
static const struct rpi_functor functors[] = {
    {"11FillFunctorI", 0, "t", do_fill, fill_whole, 0},
    {"21CUDAFunctorOnSelf_addI", 1, "mm", do_add_scalar, add_scalar_whole, 0},
    {"22CUDAFunctorOnOther_addI", 1, "mm", do_add_other, NULL, 0},
    {"18lerp_scalar_kernel", 2, "m", do_lerp_scalar, NULL, 0},
    {"19addcmul_cuda_kernel", 3, "m", do_addcmul, NULL, 0},
    {"19addcdiv_cuda_kernel", 3, "m", do_addcdiv, NULL, 0},
    {"21div_floor_kernel_cuda", 2, "", do_floor_divide, floor_divide_whole, 0},
    {"21div_trunc_kernel_cuda", 2, "", do_trunc_divide, trunc_divide_whole, 0},
    {"21remainder_kernel_cuda", 2, "", do_remainder, remainder_whole, 0},
    {"20isposinf_kernel_impl", 1, "", do_is_above_all, NULL, 'b'},
    {"20isneginf_kernel_impl", 1, "", do_is_below_all, NULL, 'b'},
    {"15softplus_kernel", 1, "mm", do_softplus, NULL, 0},
    {"10elu_kernel", 1, "mmm", do_elu, NULL, 0},
    {"16hardswish_kernel", 1, "mmmm", do_hardswish, NULL, 0},
    {"22batch_norm_calc_invstd", 1, "m", do_inverse_deviation, NULL, 0},
    {"11mish_kernel", 1, "", do_mish, NULL, 0},
    {"26leaky_relu_backward_kernel", 2, "m", do_leaky_relu_backward, NULL, 0},
    {"15CUDAFunctor_addI", 2, "m", do_add, add_whole, 0},
    {"10MulFunctorI", 2, "", do_mul, mul_whole, 0},
    {"10DivFunctorI", 2, "", do_div, NULL, 0},
    {"16BitwiseOrFunctorI", 2, "", do_or, or_whole, 0},
    {"17BitwiseAndFunctorI", 2, "", do_and, and_whole, 0},
    {"17BitwiseXorFunctorI", 2, "", do_xor, xor_whole, 0},
    {"16CompareEqFunctorI", 2, "i", do_equal, equal_whole, 'b'},
    {"14CompareFunctorI", 2, "i", do_compare, NULL, 'b'},
    {"21compare_scalar_kernelI", 1, "it", do_compare_scalar, NULL, 'b'},
    {"23logical_and_kernel_cuda", 2, "", do_logical_and, NULL, 'b'},
    {"22logical_or_kernel_cuda", 2, "", do_logical_or, NULL, 'b'},
    {"23logical_xor_kernel_cuda", 2, "", do_logical_xor, NULL, 'b'},
    {"23logical_not_kernel_cuda", 1, "", do_logical_not, NULL, 'b'},
    {"23bitwise_not_kernel_cuda", 1, "", do_bitwise_not, bitwise_not_whole, 0},
    {"21threshold_kernel_implI", 2, "tt", do_threshold, NULL, 0},
    {"19launch_clamp_scalar", 1, "imm", do_clamp, NULL, 0},
    {"10AbsFunctorI", 1, "", do_abs, NULL, 0},
    {"15neg_kernel_cuda", 1, "", do_neg, neg_whole, 0},
    {"16sign_kernel_cuda", 1, "", do_sign, NULL, 0},
    {"15exp_kernel_cuda", 1, "", do_exp, NULL, 0},
    {"17expm1_kernel_cuda", 1, "", do_expm1, NULL, 0},
    {"15log_kernel_cuda", 1, "", do_log, NULL, 0},
    {"17log1p_kernel_cuda", 1, "", do_log1p, NULL, 0},
    {"16log2_kernel_cuda", 1, "", do_log2, NULL, 0},
    {"15sin_kernel_cuda", 1, "", do_sin, NULL, 0},
    {"15cos_kernel_cuda", 1, "", do_cos, NULL, 0},
    {"16tanh_kernel_cuda", 1, "", do_tanh, NULL, 0},
    {"25tanh_backward_kernel_cuda", 2, "", do_tanh_backward, NULL, 0},
    {"19sigmoid_kernel_cuda", 1, "", do_sigmoid, NULL, 0},
    {"28sigmoid_backward_kernel_cuda", 2, "", do_sigmoid_backward, NULL, 0},
    {"15erf_kernel_cuda", 1, "", do_erf, NULL, 0},
    {"16sqrt_kernel_cuda", 1, "", do_sqrt, NULL, 0},
    {"17rsqrt_kernel_cuda", 1, "", do_rsqrt, NULL, 0},
    {"22reciprocal_kernel_cuda", 1, "", do_reciprocal, NULL, 0},
    {"17floor_kernel_cuda", 1, "", do_floor, NULL, 0},
    {"16ceil_kernel_cuda", 1, "", do_ceil, NULL, 0},
    {"17round_kernel_cuda", 1, "", do_round, NULL, 0},
    {"17trunc_kernel_cuda", 1, "", do_trunc, NULL, 0},
    {"18GeluCUDAKernelImpl", 1, "", do_gelu, NULL, 'g'},
    {"26GeluBackwardCUDAKernelImpl", 2, "", do_gelu_backward, NULL, 'g'},
    {"11silu_kernel", 1, "", do_silu, NULL, 0},
    {"20silu_backward_kernel", 2, "", do_silu_backward, NULL, 0},
    {"17leaky_relu_kernel", 1, "m", do_leaky_relu, NULL, 0},
    {"19maximum_kernel_cuda", 2, "", do_maximum, NULL, 0},
    {"19minimum_kernel_cuda", 2, "", do_minimum, NULL, 0},
    {"15mse_kernel_cuda", 2, "", do_mse, NULL, 0},
    {"24mse_backward_cuda_kernel", 3, "t", do_mse_backward, NULL, 0},
    {"18masked_fill_kernel", 2, "t", do_masked_fill, NULL, 0},
    {"19masked_scale_kernelI", 2, "m", do_masked_scale, NULL, 0},
    {"17where_kernel_impl", 3, "", do_where, NULL, 'l'},
    {"22nan_to_num_kernel_cuda", 1, "ttt", do_nan_to_num, NULL, 0},
    {"24pow_tensor_tensor_kernel", 2, "", do_pow, NULL, 0},
    {"23direct_copy_kernel_cuda", 1, "", do_copy, copy_whole, 0},
    {"24float16_copy_kernel_cuda", 1, "", do_copy, NULL, 'h'},
    {"25bfloat16_copy_kernel_cuda", 1, "", do_copy, NULL, 'w'},
};

/* Lambdas of pow_tensor_scalar_kernel_impl, in their order. */
static const struct rpi_functor powers[] = {
    {"", 1, "", do_square, NULL, 0},
    {"", 1, "", do_cube, NULL, 0},
    {"", 1, "", do_inverse_square, NULL, 0},
    {"", 1, "t", do_pow_scalar, NULL, 0},
};
static const struct rpi_functor tanh_gelu = {"", 1, "", do_gelu_tanh, NULL, 0};
static const struct rpi_functor tanh_gelu_backward = {"", 2, "", do_gelu_tanh_backward, NULL, 0};

/* ---- Names ---------------------------------------------------------------------------------- */

/* The types of the lambda that has some, from `at` on; returns what follows them. Of lambdas
 * without types ("UlvE") the functions that define others are made. */
static const char LAUNCHER[] = "EUliE_EEviT1_"; /* the lambda that a strided launch makes */

static const char *lambda_types(const char *at, int types[RPI_ARGS], int *count)
{
    for (at = strstr(at, "EUl"); at; at = strstr(at, "EUl")) {
        if (strncmp(at, LAUNCHER, sizeof LAUNCHER - 1) == 0)
            return NULL;
        at += 3;
        if (*at == 'v')
            continue;
        int type = types[0];
        *count = 0;
        while (*at != 'E' && *count < RPI_ARGS - 1) {
            if (!rpi_name_type(&at, &type))
                return NULL;
            types[++*count] = type;
        }
        return *at == 'E' ? at : NULL;
    }
    return NULL;
}

static const struct rpi_functor *find_power(const char *name, struct rpi_kernel *kernel)
{
    const char *at = rpi_name_after(name, "pow_tensor_scalar_kernel_implI");
    int count = 0;
    kernel->types[0] = RPI_NO_TYPE;
    if (!at || !rpi_name_type(&at, &kernel->types[0]))
        return NULL;
    at = lambda_types(at, kernel->types, &count);
    if (!at || count != 1)
        return NULL;
    int number = at[1] == '_' ? 0 : at[1] - '0' + 1; /* E_, E0_, E1_, .. */
    return number >= 0 && number < (int)(sizeof powers / sizeof *powers) ? &powers[number] : NULL;
}

/* PyTorch's two kinds of GELU are two lambdas in a row: by tanh and by erf. */
static const struct rpi_functor *gelu_of(const struct rpi_functor *functor, const char *name)
{
    const char *first = functor->result == 'g' ? rpi_name_after(name, "ENKUlvE") : NULL;
    if (!first || *first != '_')
        return functor;
    return functor->arity == 1 ? &tanh_gelu : &tanh_gelu_backward;
}

static void settle_result(struct rpi_kernel *kernel, const struct rpi_functor *functor)
{
    switch (functor->result) {
    case 'b':
        kernel->types[0] = RPI_BOOL;
        break;
    case 'h':
        kernel->types[0] = RPI_HALF;
        break;
    case 'w':
        kernel->types[0] = RPI_BF16;
        break;
    case 'l':
        kernel->types[0] = kernel->types[functor->arity];
        break;
    default:
        if (functor->arity)
            kernel->types[0] = kernel->types[1];
    }
}

/* Types of a functor that is no part of another. */
static bool read_types(const struct rpi_functor *functor, const char *behind,
                       struct rpi_kernel *kernel)
{
    int count = 0, type = RPI_NO_TYPE;
    bool follows = functor->key[0] && functor->key[strlen(functor->key) - 1] == 'I';
    const char *at = behind;
    if (follows && !rpi_name_type(&at, &type))
        return false;
    kernel->types[0] = type;
    if (lambda_types(behind, kernel->types, &count))
        return count == functor->arity;
    if (!follows)
        return false;
    for (int i = 0; i <= functor->arity; i++)
        kernel->types[i] = type;
    return true;
}

/* BinaryFunctor<A, B, result, f>, or with one of both in its closure. */
static const char *read_wrapper(const char *name, struct rpi_kernel *kernel)
{
    static const struct {
        const char *key;
        int wrapper;
    } known[] = {{"13BinaryFunctorI", BOTH_IN_MEMORY},
                 {"13AUnaryFunctorI", FIRST_IN_CLOSURE},
                 {"13BUnaryFunctorI", SECOND_IN_CLOSURE}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *at = rpi_name_after(name, known[i].key);
        int types[3], type = RPI_NO_TYPE;
        bool ok = at != NULL;
        for (int t = 0; ok && t < 3; t++) {
            ok = rpi_name_type(&at, &type);
            types[t] = type;
        }
        if (!ok)
            continue;
        kernel->wrapper = known[i].wrapper;
        kernel->operand_types[0] = types[0];
        kernel->operand_types[1] = types[1];
        kernel->types[0] = types[2];
        kernel->types[1] = types[kernel->wrapper == FIRST_IN_CLOSURE ? 1 : 0];
        kernel->types[2] = types[1];
        return at;
    }
    return NULL;
}

const struct rpi_functor *rpi_functor_find(const char *name, struct rpi_kernel *kernel)
{
    const char *inner = read_wrapper(name, kernel);
    const struct rpi_functor *functor = inner ? NULL : find_power(name, kernel);
    if (functor) {
        settle_result(kernel, functor);
        return functor;
    }
    for (size_t i = 0; i < sizeof functors / sizeof *functors; i++) {
        const char *behind = rpi_name_after(inner ? inner : name, functors[i].key);
        if (!behind)
            continue;
        functor = gelu_of(&functors[i], behind);
        if (inner)
            return functor->arity == 2 ? functor : NULL;
        if (!read_types(&functors[i], behind, kernel))
            return NULL;
        settle_result(kernel, functor);
        return functor;
    }
    return NULL;
}

/* ---- Closures ------------------------------------------------------------------------------- */

int rpi_functor_arity(const struct rpi_kernel *kernel)
{
    return kernel->functor->arity -
           (kernel->wrapper == FIRST_IN_CLOSURE || kernel->wrapper == SECOND_IN_CLOSURE);
}

/* What PyTorch computes with where a tensor has that type. */
static int math_type(int type)
{
    return type == RPI_HALF || type == RPI_BF16 ? RPI_FLOAT : type;
}

static int member_type(const struct rpi_kernel *kernel, char letter)
{
    int type = kernel->functor->arity ? kernel->types[1] : kernel->types[0];
    if (kernel->functor->result == 'l')
        type = kernel->types[0];
    switch (letter) {
    case 'i':
        return RPI_I32;
    case 'f':
        return RPI_FLOAT;
    case 'm':
        return math_type(type);
    default:
        return type;
    }
}

/* Calls take for each member of the closure, with its number, type and place; returns where they
 * end. */
static size_t each_member(const struct rpi_kernel *kernel, size_t *alignment,
                          void (*take)(void *to, int number, int type, size_t at), void *to)
{
    size_t at = 0, most = 1;
    const char *members = kernel->functor->closure;
    int number = 0;
    for (; members[number]; number++) {
        int type = member_type(kernel, members[number]);
        size_t bytes = rpi_type_bytes(type);
        at = (at + bytes - 1) / bytes * bytes;
        if (take)
            take(to, number, type, at);
        at += bytes;
        most = bytes > most ? bytes : most;
    }
    if (kernel->wrapper == FIRST_IN_CLOSURE || kernel->wrapper == SECOND_IN_CLOSURE) {
        int type = math_type(kernel->operand_types[kernel->wrapper == SECOND_IN_CLOSURE]);
        size_t bytes = rpi_type_bytes(type);
        at = at ? at : 1; /* a functor without members takes a byte */
        at = (at + bytes - 1) / bytes * bytes;
        if (take)
            take(to, number, type, at);
        at += bytes;
        most = bytes > most ? bytes : most;
    }
    *alignment = most;
    at = at ? at : 1;
    return (at + most - 1) / most * most;
}

size_t rpi_functor_bytes(const struct rpi_kernel *kernel, size_t *out_alignment)
{
    return each_member(kernel, out_alignment, NULL, NULL);
}

struct reading {
    const char *closure;
    struct rpi_lanes *lanes;
};

static void take_member(void *to, int number, int type, size_t at)
{
    const struct reading *reading = to;
    char aligned[8];
    memcpy(aligned, reading->closure + at, rpi_type_bytes(type));
    uint64_t word;
    memcpy(&word, aligned, sizeof word);
    reading->lanes->scalars[number] = rpi_load(&word, type);
    reading->lanes->whole_scalars[number] = rpi_load_whole(&word, type);
}

bool rpi_functor_is_whole(const struct rpi_kernel *kernel)
{
    if (!kernel->functor->apply_whole)
        return false;
    for (int i = 0; i <= rpi_functor_arity(kernel); i++)
        if (!rpi_type_is_whole(kernel->types[i]) || (i && kernel->types[i] == RPI_BOOL))
            return false;
    return true;
}

void rpi_functor_begin(const struct rpi_kernel *kernel, const void *closure,
                       struct rpi_lanes *lanes)
{
    struct reading reading = {closure, lanes};
    size_t alignment;
    each_member(kernel, &alignment, take_member, &reading);
}

void rpi_functor_apply(const struct rpi_kernel *kernel, struct rpi_lanes *lanes)
{
    bool whole = rpi_functor_is_whole(kernel);
    if (kernel->wrapper == FIRST_IN_CLOSURE || kernel->wrapper == SECOND_IN_CLOSURE) {
        int at = (int)strlen(kernel->functor->closure);
        int constant = kernel->wrapper == SECOND_IN_CLOSURE;
        for (int i = 0; i < lanes->count; i++) {
            if (!constant) {
                lanes->in[1][i] = lanes->in[0][i];
                lanes->whole_in[1][i] = lanes->whole_in[0][i];
            }
            lanes->in[constant][i] = lanes->scalars[at];
            lanes->whole_in[constant][i] = lanes->whole_scalars[at];
        }
    }
    if (whole)
        kernel->functor->apply_whole(lanes);
    else
        kernel->functor->apply(lanes);
}
