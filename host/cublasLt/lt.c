/* SPDX-License-Identifier: MIT
 *
 * cublasLt as far as PyTorch asks for it: products with a bias and an activation. Descriptors hold
 * each attribute's first eight bytes by its number.
 */
#include "cublasLt/product.h"
#include "cublasLt/workspace.h"

#include "kernels/number.h"

#include <stdlib.h>

enum { ATTRIBUTES = 48 };
enum { DESC_COMPUTE, DESC_SCALE, DESC_POINTER_MODE, DESC_TRANS_A, DESC_TRANS_B };
enum { DESC_EPILOGUE = 7, DESC_BIAS = 8, DESC_BIAS_TYPE = 26 };
enum {
    LAYOUT_TYPE,
    LAYOUT_ORDER,
    LAYOUT_ROWS,
    LAYOUT_COLS,
    LAYOUT_LD,
    LAYOUT_BATCHES,
    LAYOUT_STRIDE
};
enum { EPILOGUE_DEFAULT = 1 };

struct descriptor {
    union {
        int32_t number;
        int64_t wide;
        const void *pointer;
    } at[ATTRIBUTES];
};

static int create(struct descriptor **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

static int destroy(struct descriptor *descriptor)
{
    free(descriptor);
    return CUBLAS_STATUS_SUCCESS;
}

static int set(struct descriptor *descriptor, int attribute, const void *value, size_t bytes)
{
    if (attribute < 0 || attribute >= ATTRIBUTES || bytes > sizeof descriptor->at[0])
        return CUBLAS_STATUS_INVALID_VALUE;
    memset(&descriptor->at[attribute], 0, sizeof descriptor->at[0]);
    memcpy(&descriptor->at[attribute], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

RPI_EXPORT size_t cublasLtGetVersion(void);
size_t cublasLtGetVersion(void)
{
    return 130000;
}

RPI_EXPORT int cublasLtMatmulDescCreate(struct descriptor **out, int compute, int scale);
int cublasLtMatmulDescCreate(struct descriptor **out, int compute, int scale)
{
    int status = create(out);
    if (!status) {
        (*out)->at[DESC_COMPUTE].number = compute;
        (*out)->at[DESC_SCALE].number = scale;
        (*out)->at[DESC_EPILOGUE].number = EPILOGUE_DEFAULT;
        (*out)->at[DESC_BIAS_TYPE].number = -1; /* that of D */
    }
    return status;
}

RPI_EXPORT int cublasLtMatmulPreferenceCreate(struct descriptor **out);
int cublasLtMatmulPreferenceCreate(struct descriptor **out)
{
    return create(out);
}

RPI_EXPORT int cublasLtMatrixLayoutCreate(struct descriptor **out, int type, uint64_t rows,
                                          uint64_t columns, int64_t leading);
int cublasLtMatrixLayoutCreate(struct descriptor **out, int type, uint64_t rows, uint64_t columns,
                               int64_t leading)
{
    int status = create(out);
    if (!status) {
        (*out)->at[LAYOUT_TYPE].number = type;
        (*out)->at[LAYOUT_ROWS].wide = (int64_t)rows;
        (*out)->at[LAYOUT_COLS].wide = (int64_t)columns;
        (*out)->at[LAYOUT_LD].wide = leading;
        (*out)->at[LAYOUT_BATCHES].number = 1;
    }
    return status;
}

#define X(name)                                                                                    \
    RPI_EXPORT int name##Destroy(struct descriptor *descriptor);                                   \
    int name##Destroy(struct descriptor *descriptor)                                               \
    {                                                                                              \
        return destroy(descriptor);                                                                \
    }                                                                                              \
    RPI_EXPORT int name##SetAttribute(struct descriptor *descriptor, int attribute,                \
                                      const void *value, size_t bytes);                            \
    int name##SetAttribute(struct descriptor *descriptor, int attribute, const void *value,        \
                           size_t bytes)                                                           \
    {                                                                                              \
        return set(descriptor, attribute, value, bytes);                                           \
    }
X(cublasLtMatmulDesc)
X(cublasLtMatmulPreference)
X(cublasLtMatrixLayout)
#undef X

struct heuristic {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
};

RPI_EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, struct descriptor *product,
                                              struct descriptor *a, struct descriptor *b,
                                              struct descriptor *c, struct descriptor *d,
                                              struct descriptor *preference, int wanted,
                                              struct heuristic *out, int *out_count);
int cublasLtMatmulAlgoGetHeuristic(void *handle, struct descriptor *product, struct descriptor *a,
                                   struct descriptor *b, struct descriptor *c, struct descriptor *d,
                                   struct descriptor *preference, int wanted, struct heuristic *out,
                                   int *out_count)
{
    (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d, (void)preference;
    *out_count = wanted > 0;
    if (wanted > 0)
        out[0] = (struct heuristic){.status = CUBLAS_STATUS_SUCCESS, .waves = 1};
    return CUBLAS_STATUS_SUCCESS;
}

static struct rpi_matrix matrix(const struct descriptor *layout, int transposed)
{
    return (struct rpi_matrix){layout->at[LAYOUT_STRIDE].wide, layout->at[LAYOUT_LD].wide,
                               layout->at[LAYOUT_TYPE].number, transposed};
}

static double scalar(const void *at, int type)
{
    uint16_t half;
    switch (type) {
    case CUDA_R_64F:
        return *(const double *)at;
    case CUDA_R_16F:
        memcpy(&half, at, sizeof half);
        return rpi_from_half(half);
    default:
        return *(const float *)at;
    }
}

RPI_EXPORT int cublasLtMatmul(void *handle, struct descriptor *product, const void *alpha,
                              const void *a, struct descriptor *a_layout, const void *b,
                              struct descriptor *b_layout, const void *beta, const void *c,
                              struct descriptor *c_layout, void *d, struct descriptor *d_layout,
                              const void *algorithm, void *workspace, size_t workspace_bytes,
                              CUstream stream);
int cublasLtMatmul(void *handle, struct descriptor *product, const void *alpha, const void *a,
                   struct descriptor *a_layout, const void *b, struct descriptor *b_layout,
                   const void *beta, const void *c, struct descriptor *c_layout, void *d,
                   struct descriptor *d_layout, const void *algorithm, void *workspace,
                   size_t workspace_bytes, CUstream stream)
{
    enum { HOST_POINTERS = 0, KNOWN = RPI_EPILOGUE_RELU | RPI_EPILOGUE_BIAS | RPI_EPILOGUE_GELU };
    (void)handle, (void)algorithm, (void)workspace;
    cublasHostNoteWorkspace(RPI_WORKSPACE_CUBLASLT, stream, workspace_bytes);
    int epilogue = product->at[DESC_EPILOGUE].number & ~EPILOGUE_DEFAULT;
    int trans_a = product->at[DESC_TRANS_A].number != 0;
    if (epilogue & ~KNOWN || product->at[DESC_POINTER_MODE].number != HOST_POINTERS ||
        d_layout->at[LAYOUT_ORDER].number)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    struct rpi_product p = {
        .m = d_layout->at[LAYOUT_ROWS].wide,
        .n = d_layout->at[LAYOUT_COLS].wide,
        .k = a_layout->at[trans_a ? LAYOUT_ROWS : LAYOUT_COLS].wide,
        .a = matrix(a_layout, trans_a),
        .b = matrix(b_layout, product->at[DESC_TRANS_B].number != 0),
        .c = matrix(c_layout, 0),
        .d = matrix(d_layout, 0),
        .alpha = scalar(alpha, product->at[DESC_SCALE].number),
        .beta = scalar(beta, product->at[DESC_SCALE].number),
        .batches = d_layout->at[LAYOUT_BATCHES].number,
        .epilogue = epilogue,
        .bias_type = product->at[DESC_BIAS_TYPE].number,
    };
    if (p.bias_type < 0)
        p.bias_type = p.d.type;
    const void *bias = epilogue & RPI_EPILOGUE_BIAS ? product->at[DESC_BIAS].pointer : NULL;
    return cublasRepriseProduct(&p, a, b, c, d, bias, stream);
}
