/* SPDX-License-Identifier: MIT
 *
 * The kernels for NVIDIA's driver. ptx.sh compiles this, with BASE_KERNELS for compute capability
 * 8.0 and with SM90_KERNELS for 9.0.
 */
#include "kernels.h"

#define KERNEL extern "C" __global__ void
#define KERNEL0(name) KERNEL name(void)
#define KERNEL1(name, t0, p0) KERNEL name(t0 p0)
#define KERNEL2(name, t0, p0, t1, p1) KERNEL name(t0 p0, t1 p1)
#define KERNEL3(name, t0, p0, t1, p1, t2, p2) KERNEL name(t0 p0, t1 p1, t2 p2)
#define KERNEL4(name, t0, p0, t1, p1, t2, p2, t3, p3) KERNEL name(t0 p0, t1 p1, t2 p2, t3 p3)

#define EACH(i, count)                                                                             \
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < (count);                          \
         i += gridDim.x * blockDim.x)
#define ONCE if (!(blockIdx.x | blockIdx.y | blockIdx.z | threadIdx.x | threadIdx.y | threadIdx.z))
#define GRID(axis) gridDim.axis
#define BLOCK(axis) blockDim.axis
#define CLUSTER(axis) cluster_size_##axis()
#define SHARED_BYTES dynamic_shared_bytes()
#define NANOSECONDS() global_nanoseconds()
#define DEPENDENTS_MAY_START() asm volatile("griddepcontrol.launch_dependents;")
#define WAIT_FOR_PRIMARY() asm volatile("griddepcontrol.wait;" ::: "memory")

#ifdef BASE_KERNELS
static __device__ inline uint32_t dynamic_shared_bytes(void)
{
    uint32_t value;
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(value));
    return value;
}
#endif

static __device__ inline uint64_t global_nanoseconds(void)
{
    unsigned long long value;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
    return value;
}

#ifdef SM90_KERNELS
#define CLUSTER_REGISTER(axis)                                                                      \
    static __device__ inline uint32_t cluster_size_##axis(void)                           \
    {                                                                                              \
        uint32_t value;                                                                            \
        asm volatile("mov.u32 %0, %%cluster_nctaid." #axis ";" : "=r"(value));                        \
        return value;                                                                              \
    }
/* One row of the tensor in shared memory, for all threads of the block. */
__device__ __forceinline__ const float *load_tile(const struct rpt_tensor_map *map, uint32_t row)
{
    __shared__ alignas(128) float tile[RPT_TILE];
    __shared__ alignas(8) uint64_t barrier;
    uint32_t to = (uint32_t)__cvta_generic_to_shared(tile);
    uint32_t bar = (uint32_t)__cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], "
                     "%1; }" ::"r"(bar),
                     "r"((uint32_t)sizeof tile)
                     : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                     "l"(map), "r"(0), "r"(row), "r"(bar)
                     : "memory");
    }
    uint32_t done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(bar)
                     : "memory");
    return tile;
}
#define TENSOR_MAP const __grid_constant__ struct rpt_tensor_map
#define EACH_TILE(tile, first, map)                                                                 \
    for (uint32_t first = blockIdx.x * RPT_TILE, once = 1; once; once = 0)                          \
        for (const float *tile = load_tile(&map, blockIdx.x); tile; tile = nullptr)
#define EACH_IN_TILE(i) for (uint32_t i = threadIdx.x; i < RPT_TILE; i += blockDim.x)

CLUSTER_REGISTER(x)
CLUSTER_REGISTER(y)
CLUSTER_REGISTER(z)
#endif

#include "kernels.inc"
