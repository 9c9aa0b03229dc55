/* SPDX-License-Identifier: MIT */
#include "cublasLt/workspace.h"

#include <stdatomic.h>

static _Atomic size_t largest[RPI_WORKSPACES];

void cublasHostNoteWorkspace(int library, CUstream stream, size_t bytes)
{
    CUstreamCaptureStatus status;
    if (cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return;
    size_t seen = atomic_load(&largest[library]);
    while (bytes > seen && !atomic_compare_exchange_weak(&largest[library], &seen, bytes))
        ;
}

size_t cublasHostWorkspaceBytes(int library)
{
    return library >= 0 && library < RPI_WORKSPACES ? atomic_load(&largest[library]) : 0;
}

void cublasHostForgetWorkspaces(void)
{
    for (int library = 0; library < RPI_WORKSPACES; library++)
        atomic_store(&largest[library], 0);
}
