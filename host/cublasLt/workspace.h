/* SPDX-License-Identifier: MIT
 *
 * What PyTorch gives cuBLAS and cuBLASLt to work in. Products need none here, but graphs hold it,
 * and who asks what graphs take wants it named. Any thread may call these functions.
 */
#ifndef HOST_CUBLASLT_WORKSPACE_H
#define HOST_CUBLASLT_WORKSPACE_H

#include "libcuda/libcuda.h"

#include <stddef.h>

enum { RPI_WORKSPACE_CUBLAS, RPI_WORKSPACE_CUBLASLT, RPI_WORKSPACES };

/* That a workspace of so many bytes was given for work on this stream: counts where it is captured.
 */
RPI_EXPORT void cublasHostNoteWorkspace(int library, CUstream stream, size_t bytes);
/* The largest that captures were given since the last cublasHostForgetWorkspaces; 0: none. */
RPI_EXPORT size_t cublasHostWorkspaceBytes(int library);
RPI_EXPORT void cublasHostForgetWorkspaces(void);

#endif
