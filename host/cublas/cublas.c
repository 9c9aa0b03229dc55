/* SPDX-License-Identifier: MIT
 *
 * cuBLAS as far as it multiplies here: products of matrices in float, double, half and bfloat16, of
 * matrix and vector, and of two vectors. Scalars are the host's; a product of two vectors goes to
 * the device.
 */
#include "cublasLt/product.h"
#include "cublasLt/workspace.h"

#include "kernels/number.h"

#include <stdlib.h>

enum { POINTERS_HOST, POINTERS_DEVICE };
enum { COMPUTE_16F = 64, COMPUTE_64F = 70 };

struct handle {
    CUstream stream;
    int math_mode, pointer_mode;
};

RPI_EXPORT int cublasCreate_v2(struct handle **out);
int cublasCreate_v2(struct handle **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

RPI_EXPORT int cublasDestroy_v2(struct handle *handle);
int cublasDestroy_v2(struct handle *handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

RPI_EXPORT int cublasSetStream_v2(struct handle *handle, CUstream stream);
int cublasSetStream_v2(struct handle *handle, CUstream stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

RPI_EXPORT int cublasSetWorkspace_v2(struct handle *handle, void *workspace, size_t bytes);
int cublasSetWorkspace_v2(struct handle *handle, void *workspace, size_t bytes)
{
    (void)workspace; /* products need none here */
    cublasHostNoteWorkspace(RPI_WORKSPACE_CUBLAS, handle->stream, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

#define MODE(Name, field)                                                                          \
    RPI_EXPORT int cublasSet##Name(struct handle *handle, int mode);                               \
    int cublasSet##Name(struct handle *handle, int mode)                                           \
    {                                                                                              \
        handle->field = mode;                                                                      \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }                                                                                              \
    RPI_EXPORT int cublasGet##Name(struct handle *handle, int *mode);                              \
    int cublasGet##Name(struct handle *handle, int *mode)                                          \
    {                                                                                              \
        *mode = handle->field;                                                                     \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }
MODE(MathMode, math_mode)
MODE(PointerMode_v2, pointer_mode)
#undef MODE

static double scalar(const void *at, int compute)
{
    uint16_t half;
    if (compute == COMPUTE_64F)
        return *(const double *)at;
    if (compute != COMPUTE_16F)
        return *(const float *)at;
    memcpy(&half, at, sizeof half);
    return rpi_from_half(half);
}

struct side {
    const void *at;
    int type, leading;
    int64_t stride;
};

static int multiply(struct handle *handle, int trans_a, int trans_b, const int size[3],
                    const double scale[2], struct side a, struct side b, struct side c, int batches,
                    bool by_pointers)
{
    if (handle->pointer_mode != POINTERS_HOST)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    struct rpi_product p = {
        .m = size[0],
        .n = size[1],
        .k = size[2],
        .a = {a.stride, a.leading, a.type, trans_a != 0},
        .b = {b.stride, b.leading, b.type, trans_b != 0},
        .c = {c.stride, c.leading, c.type, 0},
        .d = {c.stride, c.leading, c.type, 0},
        .alpha = scale[0],
        .beta = scale[1],
        .batches = batches,
        .by_pointers = by_pointers,
    };
    return cublasRepriseProduct(&p, a.at, b.at, c.at, (void *)(uintptr_t)c.at, NULL,
                                handle->stream);
}

RPI_EXPORT int cublasGemmStridedBatchedEx(struct handle *handle, int trans_a, int trans_b, int m,
                                          int n, int k, const void *alpha, const void *a,
                                          int a_type, int lda, long long a_stride, const void *b,
                                          int b_type, int ldb, long long b_stride, const void *beta,
                                          void *c, int c_type, int ldc, long long c_stride,
                                          int batches, int compute, int algorithm);
int cublasGemmStridedBatchedEx(struct handle *handle, int trans_a, int trans_b, int m, int n, int k,
                               const void *alpha, const void *a, int a_type, int lda,
                               long long a_stride, const void *b, int b_type, int ldb,
                               long long b_stride, const void *beta, void *c, int c_type, int ldc,
                               long long c_stride, int batches, int compute, int algorithm)
{
    (void)algorithm;
    return multiply(handle, trans_a, trans_b, (int[]){m, n, k},
                    (double[]){scalar(alpha, compute), scalar(beta, compute)},
                    (struct side){a, a_type, lda, a_stride},
                    (struct side){b, b_type, ldb, b_stride},
                    (struct side){c, c_type, ldc, c_stride}, batches, false);
}

RPI_EXPORT int cublasGemmEx(struct handle *handle, int trans_a, int trans_b, int m, int n, int k,
                            const void *alpha, const void *a, int a_type, int lda, const void *b,
                            int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                            int compute, int algorithm);
int cublasGemmEx(struct handle *handle, int trans_a, int trans_b, int m, int n, int k,
                 const void *alpha, const void *a, int a_type, int lda, const void *b, int b_type,
                 int ldb, const void *beta, void *c, int c_type, int ldc, int compute,
                 int algorithm)
{
    return cublasGemmStridedBatchedEx(handle, trans_a, trans_b, m, n, k, alpha, a, a_type, lda, 0,
                                      b, b_type, ldb, 0, beta, c, c_type, ldc, 0, 1, compute,
                                      algorithm);
}

RPI_EXPORT int cublasSgemmEx(struct handle *handle, int trans_a, int trans_b, int m, int n, int k,
                             const float *alpha, const void *a, int a_type, int lda, const void *b,
                             int b_type, int ldb, const float *beta, void *c, int c_type, int ldc);
int cublasSgemmEx(struct handle *handle, int trans_a, int trans_b, int m, int n, int k,
                  const float *alpha, const void *a, int a_type, int lda, const void *b, int b_type,
                  int ldb, const float *beta, void *c, int c_type, int ldc)
{
    return cublasGemmEx(handle, trans_a, trans_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb,
                        beta, c, c_type, ldc, 0, 0);
}

/* ---- Each type's own ------------------------------------------------------------------------ */

/* y = alpha op(A) x + beta y, as a product of one row. */
static int multiply_vector(struct handle *handle, int trans, int rows, int columns, double alpha,
                           struct side a, struct side x, double beta, struct side y)
{
    int out = trans ? columns : rows, in = trans ? rows : columns;
    return multiply(handle, 0, !trans, (int[]){1, out, in}, (double[]){alpha, beta}, x, a, y, 1,
                    false);
}

static int dot(struct handle *handle, int n, struct side x, struct side y, void *result, int type)
{
    if (handle->pointer_mode != POINTERS_DEVICE)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    struct rpi_product p = {.m = 1,
                            .n = 1,
                            .k = n,
                            .a = {0, x.leading, x.type, 0},
                            .b = {0, y.leading, y.type, 1},
                            .c = {0, 1, type, 0},
                            .d = {0, 1, type, 0},
                            .alpha = 1,
                            .batches = 1};
    return cublasRepriseProduct(&p, x.at, y.at, result, result, NULL, handle->stream);
}

RPI_EXPORT int cublasDotEx(struct handle *handle, int n, const void *x, int x_type, int x_step,
                           const void *y, int y_type, int y_step, void *result, int type,
                           int compute);
int cublasDotEx(struct handle *handle, int n, const void *x, int x_type, int x_step, const void *y,
                int y_type, int y_step, void *result, int type, int compute)
{
    (void)compute;
    return dot(handle, n, (struct side){x, x_type, x_step, 0}, (struct side){y, y_type, y_step, 0},
               result, type);
}

#define OF_TYPE(L, T, TYPE)                                                                        \
    RPI_EXPORT int cublas##L##gemmStridedBatched(                                                  \
        struct handle *handle, int trans_a, int trans_b, int m, int n, int k, const T *alpha,      \
        const T *a, int lda, long long a_stride, const T *b, int ldb, long long b_stride,          \
        const T *beta, T *c, int ldc, long long c_stride, int batches);                            \
    int cublas##L##gemmStridedBatched(                                                             \
        struct handle *handle, int trans_a, int trans_b, int m, int n, int k, const T *alpha,      \
        const T *a, int lda, long long a_stride, const T *b, int ldb, long long b_stride,          \
        const T *beta, T *c, int ldc, long long c_stride, int batches)                             \
    {                                                                                              \
        return multiply(handle, trans_a, trans_b, (int[]){m, n, k}, (double[]){*alpha, *beta},     \
                        (struct side){a, TYPE, lda, a_stride},                                     \
                        (struct side){b, TYPE, ldb, b_stride},                                     \
                        (struct side){c, TYPE, ldc, c_stride}, batches, false);                    \
    }                                                                                              \
    RPI_EXPORT int cublas##L##gemm_v2(struct handle *handle, int trans_a, int trans_b, int m,      \
                                      int n, int k, const T *alpha, const T *a, int lda,           \
                                      const T *b, int ldb, const T *beta, T *c, int ldc);          \
    int cublas##L##gemm_v2(struct handle *handle, int trans_a, int trans_b, int m, int n, int k,   \
                           const T *alpha, const T *a, int lda, const T *b, int ldb,               \
                           const T *beta, T *c, int ldc)                                           \
    {                                                                                              \
        return cublas##L##gemmStridedBatched(handle, trans_a, trans_b, m, n, k, alpha, a, lda, 0,  \
                                             b, ldb, 0, beta, c, ldc, 0, 1);                       \
    }                                                                                              \
    RPI_EXPORT int cublas##L##gemmBatched(struct handle *handle, int trans_a, int trans_b, int m,  \
                                          int n, int k, const T *alpha, const T *const a[],        \
                                          int lda, const T *const b[], int ldb, const T *beta,     \
                                          T *const c[], int ldc, int batches);                     \
    int cublas##L##gemmBatched(struct handle *handle, int trans_a, int trans_b, int m, int n,      \
                               int k, const T *alpha, const T *const a[], int lda,                 \
                               const T *const b[], int ldb, const T *beta, T *const c[], int ldc,  \
                               int batches)                                                        \
    {                                                                                              \
        return multiply(handle, trans_a, trans_b, (int[]){m, n, k}, (double[]){*alpha, *beta},     \
                        (struct side){a, TYPE, lda, 0}, (struct side){b, TYPE, ldb, 0},            \
                        (struct side){c, TYPE, ldc, 0}, batches, true);                            \
    }                                                                                              \
    RPI_EXPORT int cublas##L##gemv_v2(struct handle *handle, int trans, int rows, int columns,     \
                                      const T *alpha, const T *a, int lda, const T *x, int x_step, \
                                      const T *beta, T *y, int y_step);                            \
    int cublas##L##gemv_v2(struct handle *handle, int trans, int rows, int columns,                \
                           const T *alpha, const T *a, int lda, const T *x, int x_step,            \
                           const T *beta, T *y, int y_step)                                        \
    {                                                                                              \
        return multiply_vector(handle, trans, rows, columns, *alpha,                               \
                               (struct side){a, TYPE, lda, 0}, (struct side){x, TYPE, x_step, 0},  \
                               *beta, (struct side){y, TYPE, y_step, 0});                          \
    }                                                                                              \
    RPI_EXPORT int cublas##L##dot_v2(struct handle *handle, int n, const T *x, int x_step,         \
                                     const T *y, int y_step, T *result);                           \
    int cublas##L##dot_v2(struct handle *handle, int n, const T *x, int x_step, const T *y,        \
                          int y_step, T *result)                                                   \
    {                                                                                              \
        return dot(handle, n, (struct side){x, TYPE, x_step, 0},                                   \
                   (struct side){y, TYPE, y_step, 0}, result, TYPE);                               \
    }
OF_TYPE(S, float, CUDA_R_32F)
OF_TYPE(D, double, CUDA_R_64F)
