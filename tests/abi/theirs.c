/* SPDX-License-Identifier: MIT
 *
 * The facts as NVIDIA's cuda.h has them, and its prototypes beside those of symbols.def.
 */
#include <cuda.h>

#define FACTS_HEADER_INCLUDED
#include "facts.h"

/* Before CUDA 13 the plain names are older forms than symbols.def asks for. */
#if CUDA_VERSION < 13000
#undef cuStreamGetCaptureInfo
#undef cuStreamUpdateCaptureDependencies
#define cuStreamGetCaptureInfo            cuStreamGetCaptureInfo_v3
#define cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_v2
#define cuGraphGetEdges                   cuGraphGetEdges_v2
#define cuGraphNodeGetDependencies        cuGraphNodeGetDependencies_v2
#define cuGraphNodeGetDependentNodes      cuGraphNodeGetDependentNodes_v2
#define cuGraphAddDependencies            cuGraphAddDependencies_v2
#define cuGraphRemoveDependencies         cuGraphRemoveDependencies_v2
#else /* and one is a newer form there, the older a type beside it */
#include <cudaTypedefs.h>
#undef cuCtxCreate
#define cuCtxCreate (*(PFN_cuCtxCreate_v3020)0)
#endif

#define X(need, name, version, params, args) typedef CUresult(*our_##name) params;
#include "driver/symbols.def"
#undef X

static const struct prototype prototypes[] = {
#define X(need, name, version, params, args)                                                       \
    {#name, version, __builtin_types_compatible_p(our_##name, __typeof__(&name))},
#include "driver/symbols.def"
#undef X
};

struct facts abi_theirs(void)
{
    return (struct facts){fact_table, sizeof fact_table / sizeof *fact_table};
}

const struct prototype *abi_prototypes(size_t *out_count)
{
    *out_count = sizeof prototypes / sizeof *prototypes;
    return prototypes;
}

int abi_cuda_version(void)
{
    return CUDA_VERSION;
}
