/* SPDX-License-Identifier: MIT
 *
 * What the chain takes from NVIDIA's libraries, found when it runs: cuBLAS's matrix product, and
 * the driver's encoder of tensor maps. Nothing of them is needed to build.
 */
#ifndef BENCH_CHAIN_LIBRARIES_H
#define BENCH_CHAIN_LIBRARIES_H

#include "driver/cuda_abi.h"
#include "kernels/kernels.h"

#include <stdbool.h>

struct libraries {
    void *blas; /* its handle; NULL: there is none */
    int blas_version;
    const char *no_blas; /* why */
    CUresult (*encode)(struct rpt_tensor_map *map, int type, uint32_t rank, void *address,
                       const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                       const uint32_t *steps, int interleave, int swizzle, int promotion, int fill);
    int (*set_stream)(void *blas, CUstream stream);
    int (*set_workspace)(void *blas, void *memory, size_t bytes);
    int (*multiply)(void *blas, int a_operation, int b_operation, int m, int n, int k,
                    const void *alpha, const void *a, int a_type, int lda, const void *b,
                    int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                    int compute, int algorithm);
};

/* A context of NVIDIA's driver is current. file: of cuBLAS; NULL: where the linker finds it. */
void libraries_load(struct libraries *libraries, const char *file);

/* C = A B, square matrices of bfloat16 of this size. The workspace is set for this call, so that a
 * capture has one of its own. */
bool libraries_multiply(const struct libraries *libraries, CUstream stream, int size, uint64_t a,
                        uint64_t b, uint64_t c, uint64_t workspace, size_t workspace_bytes);

/* A map of `rows` rows of RPT_TILE floats, a box one row. Without NVIDIA's driver it is what the
 * host driver's kernels read. */
bool libraries_map(const struct libraries *libraries, struct rpt_tensor_map *map, uint64_t address,
                   uint64_t rows);

#endif
