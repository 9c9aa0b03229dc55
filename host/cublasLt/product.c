/* SPDX-License-Identifier: MIT
 *
 * Products are accumulated in float (in double for doubles), as cuBLAS does on a GPU; the order of
 * the sums is another. op(A) is packed by rows and op(B) by columns, so that each element is a
 * product of two contiguous vectors.
 */
#include "cublasLt/product.h"

#include "kernels/number.h"
#include "reprise.h"
#include "reprise_tools.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

static size_t type_bytes(int type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

static double load(const char *at, int64_t index, int type)
{
    switch (type) {
    case CUDA_R_32F:
        return ((const float *)at)[index];
    case CUDA_R_64F:
        return ((const double *)at)[index];
    case CUDA_R_16F:
        return rpi_from_half(((const uint16_t *)at)[index]);
    default:
        return rpi_from_bf16(((const uint16_t *)at)[index]);
    }
}

static void store(char *at, int64_t index, int type, double value)
{
    switch (type) {
    case CUDA_R_32F:
        ((float *)at)[index] = (float)value;
        break;
    case CUDA_R_64F:
        ((double *)at)[index] = value;
        break;
    case CUDA_R_16F:
        ((uint16_t *)at)[index] = rpi_to_half((float)value);
        break;
    default:
        ((uint16_t *)at)[index] = rpi_to_bf16((float)value);
    }
}

/* `count` vectors of k elements; element l of vector i is at i * across + l * along. */
static void *pack(const char *from, int type, int64_t count, int64_t k, int64_t across,
                  int64_t along)
{
    size_t bytes = type == CUDA_R_64F ? sizeof(double) : sizeof(float);
    void *packed = malloc((size_t)(count * k) * bytes + 1);
    if (!packed)
        return NULL;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t l = 0; l < k; l++) {
            double value = load(from, i * across + l * along, type);
            if (type == CUDA_R_64F)
                ((double *)packed)[i * k + l] = value;
            else
                ((float *)packed)[i * k + l] = (float)value;
        }
    }
    return packed;
}

static double dot_double(const double *x, const double *y, int64_t k)
{
    double sum = 0;
    for (int64_t l = 0; l < k; l++)
        sum += x[l] * y[l];
    return sum;
}

static double dot_float(const float *x, const float *y, int64_t k)
{
    enum { LANES = 16 };
    float lanes[LANES] = {0}, sum = 0;
    int64_t l = 0;
    for (; l + LANES <= k; l += LANES)
        for (int i = 0; i < LANES; i++)
            lanes[i] += x[l + i] * y[l + i];
    for (; l < k; l++)
        sum += x[l] * y[l];
    for (int i = 0; i < LANES; i++)
        sum += lanes[i];
    return sum;
}

static double activate(double value, int epilogue)
{
    if (epilogue & RPI_EPILOGUE_RELU)
        return value > 0 ? value : 0;
    if (epilogue & RPI_EPILOGUE_GELU)
        return 0.5 * value *
               (1 + tanh(0.7978845608028654 * (value + 0.044715 * value * value * value)));
    return value;
}

struct operands {
    const char *a, *b, *c, *bias;
    char *d;
};

static void finish_one(const struct rpi_product *p, const struct operands *at, int64_t i, int64_t j,
                       double sum)
{
    double value = p->alpha * sum;
    if (p->beta != 0)
        value += p->beta * load(at->c, i + j * p->c.leading, p->c.type);
    if (at->bias)
        value += load(at->bias, i, p->bias_type);
    store(at->d, i + j * p->d.leading, p->d.type, activate(value, p->epilogue));
}

/* Work cannot fail for want of host memory on a device, so neither may it here. */
static void multiply(const struct rpi_product *p, const struct operands *at)
{
    const struct rpi_matrix *ma = &p->a, *mb = &p->b;
    void *a = pack(at->a, ma->type, p->m, p->k, ma->transposed ? ma->leading : 1,
                   ma->transposed ? 1 : ma->leading);
    void *b = pack(at->b, mb->type, p->n, p->k, mb->transposed ? 1 : mb->leading,
                   mb->transposed ? mb->leading : 1);
    if (!a || !b)
        abort();
    bool wide = ma->type == CUDA_R_64F;
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t i = 0; i < p->m; i++)
            finish_one(p, at, i, j,
                       wide ? dot_double((double *)a + i * p->k, (double *)b + j * p->k, p->k)
                            : dot_float((float *)a + i * p->k, (float *)b + j * p->k, p->k));
    free(a);
    free(b);
}

/* Parameters: A, B, C, D, bias, the product. */
static void run_product(const struct rp_host_launch *launch)
{
    const char *at[5];
    struct rpi_product p;
    for (int i = 0; i < 5; i++)
        memcpy(&at[i], launch->params[i], sizeof at[i]);
    memcpy(&p, launch->params[5], sizeof p);
    for (int64_t n = 0; n < p.batches; n++) {
        struct operands one = {.bias = at[4]};
        if (p.by_pointers) {
            one.a = ((const char *const *)at[0])[n];
            one.b = ((const char *const *)at[1])[n];
            one.c = ((const char *const *)at[2])[n];
            one.d = ((char *const *)(uintptr_t)at[3])[n];
        } else {
            one.a = at[0] + n * p.a.stride * (int64_t)type_bytes(p.a.type);
            one.b = at[1] + n * p.b.stride * (int64_t)type_bytes(p.b.type);
            one.c = at[2] + n * p.c.stride * (int64_t)type_bytes(p.c.type);
            one.d = (char *)(uintptr_t)at[3] + n * p.d.stride * (int64_t)type_bytes(p.d.type);
        }
        multiply(&p, &one);
    }
}

static const struct rp_host_param params[] = {{0, 8},  {8, 8},  {16, 8},
                                              {24, 8}, {32, 8}, {40, sizeof(struct rpi_product)}};
static const struct rp_host_kernel kernels[] = {
    {"reprise_host_product", run_product, NULL, params, 6, 0}};
static const struct rp_host_image image = {RP_HOST_IMAGE_MAGIC, 1, 0, kernels};

static struct {
    pthread_mutex_t lock; /* guards the rest */
    CUlibrary library;
    CUkernel kernel;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static CUresult kernel_of(CUkernel *out_kernel)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&state.lock);
    if (!state.kernel) {
        result = cuLibraryLoadData(&state.library, &image, NULL, NULL, 0, NULL, NULL, 0);
        if (!result)
            result = cuLibraryGetKernel(&state.kernel, state.library, kernels[0].name);
    }
    *out_kernel = state.kernel;
    pthread_mutex_unlock(&state.lock);
    return result;
}

static bool is_known(int type)
{
    return type == CUDA_R_32F || type == CUDA_R_64F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

int cublasRepriseProduct(const struct rpi_product *product, const void *a, const void *b,
                         const void *c, void *d, const void *bias, CUstream stream)
{
    enum { TILE = 128, THREADS = 256, MOST_GRID = 65535 };
    const struct rpi_product *p = product;
    CUkernel kernel;
    if (p->m < 0 || p->n < 0 || p->k < 0 || p->batches < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_known(p->a.type) || !is_known(p->b.type) || !is_known(p->c.type) ||
        !is_known(p->d.type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!p->m || !p->n || !p->batches)
        return CUBLAS_STATUS_SUCCESS;
    if (kernel_of(&kernel))
        return CUBLAS_STATUS_ALLOC_FAILED;
    struct rpi_product copy = *p;
    void *args[] = {&a, &b, &c, &d, &bias, &copy};
    unsigned grid_x = (unsigned)((p->m + TILE - 1) / TILE);
    int64_t grid_y = (p->n + TILE - 1) / TILE;
    unsigned grid_z = (unsigned)(p->batches < MOST_GRID ? p->batches : MOST_GRID);
    CUresult result = cuLaunchKernel((CUfunction)(void *)kernel, grid_x,
                                     (unsigned)(grid_y < MOST_GRID ? grid_y : MOST_GRID), grid_z,
                                     THREADS, 1, 1, 0, stream, args, NULL);
    return result ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
