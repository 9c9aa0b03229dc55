/* SPDX-License-Identifier: MIT */
#include "chain.h"

#include <string.h>

enum { SIZE = 1024, FLOATS = 16 * RPT_TILE, THREADS = 128 };
#define MIB (1ull << 20)

const struct chain_buffer chain_args[CHAIN_ARGS] = {
    [A] = {"A", 2ull * SIZE *SIZE, RP_ARG_IN},  [B] = {"B", 2ull * SIZE *SIZE, RP_ARG_IN},
    [C] = {"C", 2ull * SIZE *SIZE, RP_ARG_OUT}, [X] = {"X", 4ull * FLOATS, RP_ARG_IN},
    [Y] = {"Y", 4ull * FLOATS, RP_ARG_OUT},     [P] = {"P", 4ull * FLOATS, RP_ARG_OUT},
    [Q] = {"Q", 4ull * FLOATS, RP_ARG_OUT},     [K] = {"K", 12, RP_ARG_OUT},
    [Z] = {"Z", 4ull * FLOATS, RP_ARG_OUT},     [M] = {"M", 4ull * FLOATS, RP_ARG_OUT},
    [S] = {"S", 4ull * FLOATS, RP_ARG_OUT},     [V] = {"V", 4ull * FLOATS, RP_ARG_INOUT},
};
const uint64_t chain_temps[CHAIN_TEMPS] = {[PRODUCT] = 4ull * FLOATS, [WORKSPACE] = 32 * MIB};

static CUresult find_functions(struct chain *chain)
{
    const struct {
        CUfunction *function;
        CUmodule module;
        const char *name;
    } wanted[] = {
        {&chain->scale, chain->base, "rpt_scale"},
        {&chain->add, chain->base, "rpt_add"},
        {&chain->saxpy, chain->base, "rpt_saxpy"},
        {&chain->first, chain->sm90, "rpt_pdl_first"},
        {&chain->second, chain->sm90, "rpt_pdl_second"},
        {&chain->cluster, chain->sm90, "rpt_cluster"},
        {&chain->tile, chain->sm90, "rpt_tile"},
    };
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; !result && i < sizeof wanted / sizeof *wanted; i++)
        result = chain->driver->cuModuleGetFunction(wanted[i].function, wanted[i].module,
                                                    wanted[i].name);
    return result;
}

CUresult chain_init(struct chain *chain, const struct rp_driver *driver, const char *blas_file)
{
    *chain = (struct chain){.driver = driver};
    if (strcmp(driver->provider, "host") == 0)
        chain->libraries.no_blas = "the host driver has none";
    else
        libraries_load(&chain->libraries, blas_file);
    chain->uses_blas = chain->libraries.blas && !chain->libraries.no_blas;
    CUresult result = driver->cuModuleLoadData(&chain->base, rpt_kernel_image(driver));
    if (!result)
        result = driver->cuModuleLoadData(&chain->sm90, rpt_kernel_image_sm90(driver));
    return result ? result : find_functions(chain);
}

void chain_finish(struct chain *chain)
{
    if (chain->base)
        chain->driver->cuModuleUnload(chain->base);
    if (chain->sm90)
        chain->driver->cuModuleUnload(chain->sm90);
}

/* ---- Launches ------------------------------------------------------------------------------ */

static CUresult launch(const struct chain *chain, CUfunction function, CUstream stream,
                       void **params)
{
    return chain->driver->cuLaunchKernel(function, FLOATS / THREADS, 1, 1, THREADS, 1, 1, 0, stream,
                                         params, NULL);
}

static CUresult product(const struct chain *chain, CUstream stream, const uint64_t *args,
                        const uint64_t *temps)
{
    uint64_t a = args[A], b = args[B], c = args[C];
    uint32_t count = SIZE * SIZE / 2; /* the matrices' bytes as floats */
    void *params[] = {&c, &a, &b, &count};
    if (!chain->uses_blas)
        return launch(chain, chain->add, stream, params);
    return libraries_multiply(&chain->libraries, stream, SIZE, a, b, c, temps[WORKSPACE],
                              chain_temps[WORKSPACE])
               ? CUDA_SUCCESS
               : CUDA_ERROR_UNKNOWN;
}

static CUresult two_kernels(const struct chain *chain, CUstream stream, const uint64_t *args,
                            const uint64_t *temps)
{
    uint64_t x = args[X], y = args[Y], t = temps[PRODUCT];
    float factor = 2;
    uint32_t count = FLOATS;
    void *scale[] = {&t, &x, &factor, &count}, *add[] = {&y, &t, &x, &count};
    CUresult result = launch(chain, chain->scale, stream, scale);
    return result ? result : launch(chain, chain->add, stream, add);
}

static CUresult programmatic_pair(const struct chain *chain, CUstream stream, const uint64_t *args)
{
    uint64_t p = args[P], q = args[Q], nanoseconds = 0;
    float value = 3;
    uint32_t count = FLOATS;
    void *first[] = {&p, &value, &count, &nanoseconds}, *second[] = {&q, &p, &count};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {FLOATS / THREADS, 1, 1, THREADS, 1, 1, 0, stream, &attribute, 1};
    CUresult result = launch(chain, chain->first, stream, first);
    return result ? result : chain->driver->cuLaunchKernelEx(&config, chain->second, second, NULL);
}

static CUresult clusters(const struct chain *chain, CUstream stream, const uint64_t *args)
{
    uint64_t k = args[K];
    void *params[] = {&k};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    attribute.value.clusterDim.x = 2;
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    CUlaunchConfig config = {4, 1, 1, 32, 1, 1, 0, stream, &attribute, 1};
    return chain->driver->cuLaunchKernelEx(&config, chain->cluster, params, NULL);
}

/* Where parameters lie in the packed form is the driver's to say: one that wants a wide alignment
 * has bytes before it even when it is the first (48 before a tensor map, seen on an H200). */
static CUresult place(const struct chain *chain, unsigned char *packed, size_t room, size_t index,
                      const void *value, size_t bytes, size_t *end)
{
    size_t offset = 0, size = 0;
    CUresult result = chain->driver->cuFuncGetParamInfo(chain->tile, index, &offset, &size);
    if (result != CUDA_SUCCESS)
        return result;
    if (size != bytes || offset + bytes > room)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(packed + offset, value, bytes);
    *end = offset + bytes;
    return CUDA_SUCCESS;
}

static CUresult packed_map(const struct chain *chain, CUstream stream, const uint64_t *args)
{
    unsigned char packed[512] = {0};
    size_t bytes = 0;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    struct rpt_tensor_map map;
    uint64_t to = args[Z];
    float factor = 5;
    if (!libraries_map(&chain->libraries, &map, args[X], FLOATS / RPT_TILE))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = place(chain, packed, sizeof packed, 0, &map, sizeof map, &bytes);
    if (result == CUDA_SUCCESS)
        result = place(chain, packed, sizeof packed, 1, &to, sizeof to, &bytes);
    if (result == CUDA_SUCCESS)
        result = place(chain, packed, sizeof packed, 2, &factor, sizeof factor, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    return chain->driver->cuLaunchKernel(chain->tile, FLOATS / RPT_TILE, 1, 1, THREADS, 1, 1, 0,
                                         stream, NULL, extra);
}

static CUresult copy_and_fill(const struct chain *chain, CUstream stream, const uint64_t *args)
{
    CUresult result =
        chain->driver->cuMemcpyDtoDAsync(args[M], args[Y], chain_args[M].bytes, stream);
    return result ? result
                  : chain->driver->cuMemsetD32Async(args[S], 7, chain_args[S].bytes / 4, stream);
}

static CUresult in_place(const struct chain *chain, CUstream stream, const uint64_t *args)
{
    uint64_t v = args[V], x = args[X];
    float factor = 0.5f;
    uint32_t count = FLOATS;
    void *params[] = {&v, &x, &factor, &count};
    return launch(chain, chain->saxpy, stream, params);
}

CUresult chain_enqueue(const struct chain *chain, CUstream stream, const uint64_t *args,
                       const uint64_t *temps, const char **out_what)
{
    CUresult result = product(chain, stream, args, temps);
    *out_what = chain->uses_blas ? "cublasGemmEx" : "the sum";
    if (!result)
        *out_what = "two kernels", result = two_kernels(chain, stream, args, temps);
    if (!result)
        *out_what = "the programmatic pair", result = programmatic_pair(chain, stream, args);
    if (!result)
        *out_what = "the launch as clusters", result = clusters(chain, stream, args);
    if (!result)
        *out_what = "the tensor map", result = packed_map(chain, stream, args);
    if (!result)
        *out_what = "the copy or the fill", result = copy_and_fill(chain, stream, args);
    if (!result)
        *out_what = "the kernel in place", result = in_place(chain, stream, args);
    return result;
}

rp_status chain_callable(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct chain *chain = user;
    CUstream stream = rp_call_stream(call);
    uint64_t args[CHAIN_ARGS], temps[CHAIN_TEMPS] = {0};
    rp_status status = RP_OK;
    for (size_t k = 0; k < CHAIN_ARGS; k++)
        args[k] = rp_call_arg(call, k);
    for (size_t t = 0; status == RP_OK && t < CHAIN_TEMPS; t++)
        if (t != WORKSPACE || chain->uses_blas)
            status = rp_call_alloc(call, chain_temps[t], stream, &temps[t], err);
    if (status != RP_OK)
        return status;
    const char *what;
    CUresult result = chain_enqueue(chain, stream, args, temps, &what);
    if (result)
        return rpi_error_driver(err, result, what, "enqueuing the chain");
    for (size_t t = 0; status == RP_OK && t < CHAIN_TEMPS; t++)
        if (temps[t])
            status = rp_call_free(call, temps[t], err);
    return status;
}
