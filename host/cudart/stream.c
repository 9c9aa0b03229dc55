/* SPDX-License-Identifier: MIT
 *
 * Streams, events, captures and graphs: the driver's, under the runtime's names.
 */
#include "cudart/runtime.h"

#include <stdlib.h>

/* X(name, parameters, the driver's call) */
#define CALLS(X)                                                                                   \
    X(cudaStreamCreate, (CUstream * stream), cuStreamCreate(stream, CU_STREAM_DEFAULT))            \
    X(cudaStreamCreateWithFlags, (CUstream * stream, unsigned flags),                              \
      cuStreamCreate(stream, flags))                                                               \
    X(cudaStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority),             \
      cuStreamCreateWithPriority(stream, flags, priority))                                         \
    X(cudaStreamDestroy, (CUstream stream), cuStreamDestroy(stream))                               \
    X(cudaStreamSynchronize, (CUstream stream), cuStreamSynchronize(stream))                       \
    X(cudaStreamQuery, (CUstream stream), cuStreamQuery(stream))                                   \
    X(cudaStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags),                       \
      cuStreamWaitEvent(stream, event, flags))                                                     \
    X(cudaStreamGetPriority, (CUstream stream, int *priority),                                     \
      cuStreamGetPriority(stream, priority))                                                       \
    X(cudaStreamBeginCapture, (CUstream stream, CUstreamCaptureMode mode),                         \
      cuStreamBeginCapture(stream, mode))                                                          \
    X(cudaStreamEndCapture, (CUstream stream, CUgraph * graph), cuStreamEndCapture(stream, graph)) \
    X(cudaStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status),                    \
      cuStreamIsCapturing(stream, status))                                                         \
    X(cudaThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode),                           \
      cuThreadExchangeStreamCaptureMode(mode))                                                     \
    X(cudaLaunchHostFunc, (CUstream stream, CUhostFn function, void *data),                        \
      cuLaunchHostFunc(stream, function, data))                                                    \
    X(cudaEventCreate, (CUevent * event), cuEventCreate(event, CU_EVENT_DEFAULT))                  \
    X(cudaEventCreateWithFlags, (CUevent * event, unsigned flags), cuEventCreate(event, flags))    \
    X(cudaEventDestroy, (CUevent event), cuEventDestroy(event))                                    \
    X(cudaEventRecord, (CUevent event, CUstream stream), cuEventRecord(event, stream))             \
    X(cudaEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags),                  \
      cuEventRecordWithFlags(event, stream, flags))                                                \
    X(cudaEventQuery, (CUevent event), cuEventQuery(event))                                        \
    X(cudaEventSynchronize, (CUevent event), cuEventSynchronize(event))                            \
    X(cudaEventElapsedTime, (float *milliseconds, CUevent start, CUevent end),                     \
      cuEventElapsedTime(milliseconds, start, end))                                                \
    X(cudaGraphDestroy, (CUgraph graph), cuGraphDestroy(graph))                                    \
    X(cudaGraphGetNodes, (CUgraph graph, CUgraphNode * nodes, size_t * count),                     \
      cuGraphGetNodes(graph, nodes, count))                                                        \
    X(cudaGraphNodeGetType, (CUgraphNode node, CUgraphNodeType * type),                            \
      cuGraphNodeGetType(node, type))                                                              \
    X(cudaGraphAddEmptyNode,                                                                       \
      (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count),                \
      cuGraphAddEmptyNode(node, graph, before, count))                                             \
    X(cudaGraphInstantiate, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),         \
      cuGraphInstantiateWithFlags(exec, graph, flags))                                             \
    X(cudaGraphInstantiateWithFlags,                                                               \
      (CUgraphExec * exec, CUgraph graph, unsigned long long flags),                               \
      cuGraphInstantiateWithFlags(exec, graph, flags))                                             \
    X(cudaGraphExecDestroy, (CUgraphExec exec), cuGraphExecDestroy(exec))                          \
    X(cudaGraphLaunch, (CUgraphExec exec, CUstream stream), cuGraphLaunch(exec, stream))

/* What CUDA 13 gave edges. */
#if RPI_CUDA < 13
#define CALLS_OF_THIS_CUDA(X)                                                                      \
    X(cudaStreamGetCaptureInfo_v2,                                                                 \
      (CUstream stream, CUstreamCaptureStatus * status, cuuint64_t * id, CUgraph * graph,          \
       const CUgraphNode **nodes, size_t *count),                                                  \
      cuStreamGetCaptureInfo(stream, status, id, graph, nodes, NULL, count))                       \
    X(cudaStreamUpdateCaptureDependencies,                                                         \
      (CUstream stream, CUgraphNode * nodes, size_t count, unsigned flags),                        \
      cuStreamUpdateCaptureDependencies(stream, nodes, NULL, count, flags))                        \
    X(cudaGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode * nodes, size_t * count),       \
      cuGraphNodeGetDependencies(node, nodes, NULL, count))
#else
#define CALLS_OF_THIS_CUDA(X)                                                                      \
    X(cudaStreamGetCaptureInfo,                                                                    \
      (CUstream stream, CUstreamCaptureStatus * status, cuuint64_t * id, CUgraph * graph,          \
       const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count),                   \
      cuStreamGetCaptureInfo(stream, status, id, graph, nodes, edges, count))                      \
    X(cudaStreamUpdateCaptureDependencies,                                                         \
      (CUstream stream, CUgraphNode * nodes, const CUgraphEdgeData *edges, size_t count,           \
       unsigned flags),                                                                            \
      cuStreamUpdateCaptureDependencies(stream, nodes, edges, count, flags))                       \
    X(cudaStreamBeginCaptureToGraph,                                                               \
      (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,     \
       size_t count, CUstreamCaptureMode mode),                                                    \
      cuStreamBeginCaptureToGraph(stream, graph, nodes, edges, count, mode))                       \
    X(cudaGraphNodeGetDependencies,                                                                \
      (CUgraphNode node, CUgraphNode * nodes, CUgraphEdgeData * edges, size_t * count),            \
      cuGraphNodeGetDependencies(node, nodes, edges, count))
#endif

#define X(name, params, call)                                                                      \
    RPI_EXPORT cudaError_t name params;                                                            \
    cudaError_t name params                                                                        \
    {                                                                                              \
        return RPI_WITH_CONTEXT(call);                                                             \
    }
CALLS(X)
CALLS_OF_THIS_CUDA(X)
#undef X

typedef void (*stream_callback)(CUstream stream, cudaError_t status, void *data);
struct callback {
    stream_callback function;
    CUstream stream;
    void *data;
};

static void run_callback(void *data)
{
    struct callback callback = *(struct callback *)data;
    free(data);
    callback.function(callback.stream, cudaSuccess, callback.data);
}

RPI_EXPORT cudaError_t cudaStreamAddCallback(CUstream stream, stream_callback function, void *data,
                                             unsigned flags);
cudaError_t cudaStreamAddCallback(CUstream stream, stream_callback function, void *data,
                                  unsigned flags)
{
    (void)flags;
    struct callback *callback = malloc(sizeof *callback);
    if (!callback)
        return rpi_runtime_result(CUDA_ERROR_OUT_OF_MEMORY);
    *callback = (struct callback){function, stream, data};
    CUresult result = rpi_runtime_ready();
    if (!result)
        result = cuLaunchHostFunc(stream, run_callback, callback);
    if (result)
        free(callback);
    return rpi_runtime_result(result);
}
