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
CLUSTER_REGISTER(x)
CLUSTER_REGISTER(y)
CLUSTER_REGISTER(z)
#endif

#include "kernels.inc"
