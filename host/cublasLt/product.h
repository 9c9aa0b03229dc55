/* SPDX-License-Identifier: MIT
 *
 * Products of matrices for cuBLAS: D = activation(alpha op(A) op(B) + beta C + bias), column-major,
 * each product one kernel. libcublasLt.so.13 has it, and libcublas.so.13 calls it.
 */
#ifndef HOST_CUBLASLT_PRODUCT_H
#define HOST_CUBLASLT_PRODUCT_H

#include "libcuda/libcuda.h"

/* Codes of cuBLAS. */
enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_NOT_SUPPORTED = 15
};

/* cudaDataType */
enum { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };

enum { RPI_EPILOGUE_RELU = 2, RPI_EPILOGUE_BIAS = 4, RPI_EPILOGUE_GELU = 32 };

struct rpi_matrix {
    int64_t stride; /* of a batch, in elements */
    int64_t leading;
    int32_t type, transposed;
};
struct rpi_product {
    int64_t m, n, k;
    struct rpi_matrix a, b, c, d;
    double alpha, beta;
    int32_t batches;
    int32_t by_pointers; /* A, B, C and D are arrays of pointers, one for each batch */
    int32_t epilogue, bias_type;
};

/* Enqueues the product; a status of cuBLAS. NOT_SUPPORTED for types that are not listed above.
 * bias: NULL, or m elements. */
RPI_EXPORT int cublasRepriseProduct(const struct rpi_product *product, const void *a, const void *b,
                                    const void *c, void *d, const void *bias, CUstream stream);

#endif
