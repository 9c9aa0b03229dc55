/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the reader of node parameters: a driver that gives what the bytes say, within what CUDA
 * promises (a parameter list has an end, buffers are as long as told). Parameters overlap, have no
 * bytes, lie behind the end of the packed buffer; the list of the packed form comes in any order.
 *
 * Checked: fields lie inside the image, the image holds what the driver gave, and the copy that is
 * given to execs points into itself and holds the same.
 */
#include "graph/template/params.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#undef NDEBUG
#include <assert.h>

enum { MOST_PARAMS = 64, MOST_OFFSET = 32764, NODE_BYTES = 256 };

/* What the driver answers from; a byte beyond the end is 0. */
static struct {
    const uint8_t *at;
    size_t left;
    CUgraphNodeType type;
    size_t count, offset[MOST_PARAMS], size[MOST_PARAMS];
    void *pointers[MOST_PARAMS + 1];
    void *extra[9];
    size_t packed;
    unsigned char values[2 * MOST_OFFSET + 256];
    unsigned char node[NODE_BYTES];
    bool fails;
} given;

static unsigned take(void)
{
    if (!given.left)
        return 0;
    given.left--;
    return *given.at++;
}

static unsigned take_two(void)
{
    unsigned high = take();
    return high << 8 | take();
}

static CUresult get_type(CUgraphNode node, CUgraphNodeType *type)
{
    (void)node;
    *type = given.type;
    return CUDA_SUCCESS;
}

static CUresult answer(void *params, size_t bytes)
{
    memcpy(params, given.node, bytes);
    return given.fails ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    (void)node;
    params->func = (CUfunction)given.node;
    params->kernelParams = given.packed ? NULL : given.pointers;
    params->extra = given.packed ? given.extra : NULL;
    return given.fails ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult get_copy(CUgraphNode node, CUDA_MEMCPY3D *params)
{
    (void)node;
    return answer(params, sizeof *params);
}

static CUresult get_fill(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params)
{
    (void)node;
    return answer(params, sizeof *params);
}

static CUresult get_host(CUgraphNode node, CUDA_HOST_NODE_PARAMS *params)
{
    (void)node;
    return answer(params, sizeof *params);
}

static CUresult get_param(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    (void)function;
    if (index >= given.count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = given.offset[index];
    *size = given.size[index];
    return CUDA_SUCCESS;
}

/* Buffer, size and things of later versions, in the order that the bytes choose. */
static void make_extra(void)
{
    unsigned order = take();
    size_t at = 0;
    for (int i = 0; i < 3; i++, order >>= 2) {
        bool buffer = (order & 3) == 0, size = (order & 3) == 1;
        given.extra[at++] = buffer ? CU_LAUNCH_PARAM_BUFFER_POINTER
                            : size ? CU_LAUNCH_PARAM_BUFFER_SIZE
                                   : (void *)0x77;
        given.extra[at++] = buffer ? (void *)given.values : (void *)&given.packed;
    }
    given.extra[at] = CU_LAUNCH_PARAM_END;
}

static void make_node(void)
{
    static const CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY,
                                            CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_HOST,
                                            CU_GRAPH_NODE_TYPE_EMPTY,  (CUgraphNodeType)99};
    unsigned kind = take(), flags = take();
    given.type = kind < 250 ? CU_GRAPH_NODE_TYPE_KERNEL : types[kind - 250];
    given.type = kind % 8 ? given.type : types[kind / 8 % 6];
    given.fails = (flags & 15) == 15;
    given.count = take() % (MOST_PARAMS + 1);
    for (size_t i = 0; i < given.count; i++) {
        given.offset[i] = take_two() % MOST_OFFSET;
        given.size[i] = take_two() % MOST_OFFSET;
        given.pointers[i] = given.values + take();
    }
    given.packed = flags & 16 ? take_two() % MOST_OFFSET : 0;
    make_extra();
    for (size_t i = 0; i < NODE_BYTES; i++)
        given.node[i] = (unsigned char)take();
}

static void check_image(const struct rpi_params *params)
{
    size_t bytes = rpi_node_image_bytes(params);
    void *memory = aligned_alloc(16, bytes);
    assert(memory && bytes % 16 == 0);
    const struct rpi_node_image *image = rpi_node_image_make(memory, params);
    const unsigned char *end = (unsigned char *)memory + bytes;
    assert((uintptr_t)image->bytes % 16 == 0 && image->bytes + params->image.count <= end);
    assert(!params->image.count || !memcmp(image->bytes, params->image.data, params->image.count));
    for (size_t i = 0; image->kernel.kernelParams && i < params->fields.count; i++)
        assert((unsigned char *)image->pointers[i] + params->fields.data[i].bytes <= end);
    free(memory);
}

static void check_params(const struct rpi_params *params)
{
    for (size_t i = 0; i < params->fields.count; i++) {
        const struct rpi_field *field = &params->fields.data[i];
        assert((size_t)field->offset + field->bytes <= params->image.count);
    }
    if (params->packed_bytes)
        assert(params->packed_bytes <= params->image.count &&
               !memcmp(params->image.data, given.values, params->packed_bytes));
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL || params->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
        params->type == CU_GRAPH_NODE_TYPE_MEMSET)
        check_image(params);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct rpi_params params; /* its memory is used again, as captures do */
    struct rp_driver driver = {0};
    struct rp_error err;
    char text[64];
    given.at = data;
    given.left = bytes;
    for (size_t i = 0; i < sizeof given.values; i++)
        given.values[i] = (unsigned char)(i * 7 + i / 256);
    driver.capabilities = take() & 1 ? RPI_CAP_PARAM_INFO : 0;
    driver.cuGraphNodeGetType = get_type;
    driver.cuGraphKernelNodeGetParams = get_kernel;
    driver.cuGraphMemcpyNodeGetParams = get_copy;
    driver.cuGraphMemsetNodeGetParams = get_fill;
    driver.cuGraphHostNodeGetParams = get_host;
    driver.cuFuncGetParamInfo = get_param;
    make_node();
    rp_status status = rpi_params_read(&params, &driver, (CUgraphNode)given.node, &err);
    if (status == RP_OK)
        check_params(&params);
    else
        assert(given.fails && *err.message);
    rpi_params_describe(&params, &driver, text, sizeof text);
    assert(*text);
    return 0;
}
