/* SPDX-License-Identifier: MIT
 *
 * What surrounds each of the heap's calls to the driver. The thread may be one of autograd's,
 * without a context, or one whose current device is another; and somebody may be capturing in
 * global mode.
 */
#include "memory/heap/heap.h"

#include <assert.h>

CUresult rpi_heap_enter(const struct rp_heap *heap, struct rpi_heap_scope *out_scope)
{
    CUresult result = heap->driver->cuCtxPushCurrent(heap->context);
    if (result == CUDA_SUCCESS)
        out_scope->mode = rpi_relax_begin(heap->driver);
    return result;
}

void rpi_heap_leave(const struct rp_heap *heap, const struct rpi_heap_scope *scope)
{
    CUcontext popped = NULL;
    rpi_relax_end(heap->driver, scope->mode);
    heap->driver->cuCtxPopCurrent(&popped);
    assert(!popped || popped == heap->context);
}

/* Asking a capturing stream whether it is done would end its capture. The legacy stream answers
 * with an error while another stream's capture forbids its use. */
bool rpi_heap_stream_runs(const struct rp_heap *heap, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return heap->driver->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_NONE;
}
