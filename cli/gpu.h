/* SPDX-License-Identifier: MIT
 *
 * The few driver functions that commands call themselves, on whichever driver a device was opened
 * with. Types are NVIDIA's, spelled without its header; results are CUresult as a number.
 */
#ifndef REPRISE_CLI_GPU_H
#define REPRISE_CLI_GPU_H

#include "error.h"

struct CUmod_st;
struct CUfunc_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphNode_st;
struct CUgraphExec_st;

/* CUDA_KERNEL_NODE_PARAMS_v2 */
struct gpu_kernel_params {
    struct CUfunc_st *function;
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    void **params, **extra;
    void *kernel, *context;
};

/* X(name, (parameters)) */
#define GPU_FUNCTIONS(X)                                                                           \
    X(cuGetErrorName, (unsigned error, const char **name))                                         \
    X(cuGetErrorString, (unsigned error, const char **text))                                       \
    X(cuMemAlloc, (uint64_t * address, size_t bytes))                                              \
    X(cuMemFree, (uint64_t address))                                                               \
    X(cuMemcpyHtoDAsync,                                                                           \
      (uint64_t to, const void *from, size_t bytes, struct CUstream_st *stream))                   \
    X(cuMemcpyDtoHAsync, (void *to, uint64_t from, size_t bytes, struct CUstream_st *stream))      \
    X(cuMemcpyDtoDAsync, (uint64_t to, uint64_t from, size_t bytes, struct CUstream_st * stream))  \
    X(cuMemsetD8Async,                                                                             \
      (uint64_t to, unsigned char value, size_t count, struct CUstream_st *stream))                \
    X(cuModuleLoadData, (struct CUmod_st * *module, const void *image))                            \
    X(cuModuleUnload, (struct CUmod_st * module))                                                  \
    X(cuModuleGetFunction,                                                                         \
      (struct CUfunc_st * *function, struct CUmod_st * module, const char *name))                  \
    X(cuLaunchKernel,                                                                              \
      (struct CUfunc_st * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,             \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       struct CUstream_st *stream, void **params, void **extra))                                   \
    X(cuStreamCreate, (struct CUstream_st * *stream, unsigned flags))                              \
    X(cuStreamDestroy, (struct CUstream_st * stream))                                              \
    X(cuStreamSynchronize, (struct CUstream_st * stream))                                          \
    X(cuStreamWaitEvent, (struct CUstream_st * stream, struct CUevent_st * event, unsigned flags)) \
    X(cuEventCreate, (struct CUevent_st * *event, unsigned flags))                                 \
    X(cuEventRecord, (struct CUevent_st * event, struct CUstream_st * stream))                     \
    X(cuEventElapsedTime, (float *ms, struct CUevent_st *start, struct CUevent_st *end))           \
    X(cuEventDestroy, (struct CUevent_st * event))                                                 \
    X(cuMemGetInfo, (size_t * free_bytes, size_t * total_bytes))                                   \
    X(cuStreamBeginCapture, (struct CUstream_st * stream, int mode))                               \
    X(cuStreamEndCapture, (struct CUstream_st * stream, struct CUgraph_st * *graph))               \
    X(cuGraphDestroy, (struct CUgraph_st * graph))                                                 \
    X(cuGraphGetNodes,                                                                             \
      (struct CUgraph_st * graph, struct CUgraphNode_st * *nodes, size_t * count))                 \
    X(cuGraphKernelNodeGetParams,                                                                  \
      (struct CUgraphNode_st * node, struct gpu_kernel_params * params))                           \
    X(cuGraphInstantiateWithFlags,                                                                 \
      (struct CUgraphExec_st * *exec, struct CUgraph_st * graph, unsigned long long flags))        \
    X(cuGraphUpload, (struct CUgraphExec_st * exec, struct CUstream_st * stream))                  \
    X(cuGraphLaunch, (struct CUgraphExec_st * exec, struct CUstream_st * stream))                  \
    X(cuGraphExecKernelNodeSetParams, (struct CUgraphExec_st * exec, struct CUgraphNode_st * node, \
                                       const struct gpu_kernel_params *params))                    \
    X(cuGraphExecDestroy, (struct CUgraphExec_st * exec))

struct gpu {
#define X(name, params) unsigned(*name) params;
    GPU_FUNCTIONS(X)
#undef X
};

enum { GPU_STREAM_NON_BLOCKING = 1, GPU_EVENT_DISABLE_TIMING = 2, GPU_CAPTURE_THREAD_LOCAL = 1 };

/* Errors: RP_ERROR_UNSUPPORTED with the name of a function that the driver lacks. */
rp_status gpu_init(struct gpu *out_gpu, const struct rp_device *device, struct rp_error *err);

/* RP_OK when result is 0; otherwise fills err: `function` failed, with the driver's own words. */
rp_status gpu_check(const struct gpu *gpu, unsigned result, const char *function,
                    struct rp_error *err);

#endif
