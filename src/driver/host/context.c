/* SPDX-License-Identifier: MIT
 *
 * The driver itself, its devices, their primary contexts, and some beside those. Each thread has a
 * stack of current contexts; the top one is current. A context whose last retain is released loses
 * all that was made in it; retaining it again makes it anew under the same handle, as NVIDIA's
 * driver does. Virtual memory belongs to no context, and goes with the last one.
 */
#include "base/held.h"
#include "driver/host/state.h"

#include "base/env.h"

#include <stdio.h>
#include <stdlib.h>

static _Thread_local struct rpi_host_thread this_thread;

struct rpi_host_thread *rpi_host_thread(void)
{
    if (this_thread.epoch != rpi_host.epoch) {
        uint64_t number = this_thread.number;
        this_thread = (struct rpi_host_thread){0};
        this_thread.number = number ? number : ++rpi_host.threads;
        this_thread.epoch = rpi_host.epoch;
    }
    return &this_thread;
}

CUcontext rpi_host_current(void)
{
    rpi_assert_held(&rpi_host.lock);
    const struct rpi_host_thread *thread = rpi_host_thread();
    return thread->depth ? thread->stack[thread->depth - 1] : NULL;
}

int rpi_host_devices(void)
{
    unsigned long wanted = rpi_host.options.devices;
    const char *text = wanted ? NULL : rpi_env(RPI_ENV_HOST_DEVICES);
    if (text)
        wanted = strtoul(text, NULL, 10);
    return wanted >= 1 && wanted <= RPI_HOST_MOST_DEVICES ? (int)wanted : 1;
}

unsigned rpi_host_multiprocessors(void)
{
    return rpi_host.options.multiprocessors ? rpi_host.options.multiprocessors : 4;
}

bool rpi_host_is_context(CUcontext context)
{
    rpi_assert_held(&rpi_host.lock);
    const struct CUctx_st *all = rpi_host.contexts, *beside = all + RPI_HOST_MOST_DEVICES;
    return (context >= all && context < all + rpi_host_devices()) ||
           (context >= beside && context < all + RPI_HOST_CONTEXTS);
}

/* NULL: there is no such device. */
static CUcontext context_of(CUdevice device)
{
    rpi_assert_held(&rpi_host.lock);
    if (device < 0 || device >= rpi_host_devices())
        return NULL;
    rpi_host.contexts[device].device = device;
    return &rpi_host.contexts[device];
}

CUresult rpi_host_cuInit(unsigned flags)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    rpi_host.initialised = true;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 13000;
    return CUDA_SUCCESS;
}

static bool is_result(CUresult error)
{
    switch (error) {
#define X(name, value, meaning) case name:
#include "driver/results.def"
#undef X
        return true;
    }
    return false;
}

CUresult rpi_host_cuGetErrorName(CUresult error, const char **name)
{
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = is_result(error) ? rpi_result_name(error) : NULL;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult rpi_host_cuGetErrorString(CUresult error, const char **text)
{
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    *text = is_result(error) ? rpi_result_meaning(error) : NULL;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult rpi_host_cuDeviceGetCount(int *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = rpi_host_devices();
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuDeviceGet(CUdevice *device, int ordinal)
{
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context_of(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuDeviceGetName(char *name, int length, CUdevice device)
{
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context_of(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "%s",
             rpi_host.options.name ? rpi_host.options.name : "Reprise host device");
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context_of(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = rpi_host.options.total_bytes;
    return CUDA_SUCCESS;
}

/* What the options say of an attribute; 0: nothing. */
static unsigned chosen(int attribute)
{
    const struct rpi_host_options *options = &rpi_host.options;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return rpi_host_multiprocessors();
    case 13:
        return options->clock_khz;
    case 36:
        return options->memory_clock_khz;
    case 37:
        return options->memory_bus_bits;
    case 38:
        return options->l2_bytes;
    default:
        return 0;
    }
}

CUresult rpi_host_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    /* Those of an H200, so that programs choose what they would there. What is not listed is 0. */
    static const struct {
        int attribute, value;
    } attributes[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {2, 1024},       /* a block's first dimension */
        {3, 1024},       /* its second */
        {4, 64},         /* its third */
        {5, 0x7fffffff}, /* a grid's first dimension */
        {6, 65535},      /* its second */
        {7, 65535},      /* its third */
        {8, 48 << 10},   /* shared memory of a block */
        {9, 64 << 10},   /* constant memory */
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {11, 0x7fffffff}, /* pitch of a copy */
        {12, 65536},      /* registers of a block */
        {13, 1980000},    /* clock, in kHz */
        {14, 512},        /* alignment of textures */
        {19, 1},          /* host memory can be mapped */
        {31, 1},          /* kernels run at once */
        {36, 3201000},    /* memory's clock, in kHz */
        {37, 6144},       /* memory's bus, in bits */
        {38, 60 << 20},   /* level 2 cache */
        {39, 2048},       /* threads of a multiprocessor */
        {40, 3},          /* copy engines */
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {78, 1},         /* streams have priorities */
        {81, 228 << 10}, /* shared memory of a multiprocessor */
        {82, 65536},     /* registers of a multiprocessor */
        {95, 1},         /* cooperative launches */
        {97, 227 << 10}, /* shared memory of a block that asks for more */
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
        {106, 32},      /* blocks of a multiprocessor */
        {111, 1 << 10}, /* shared memory of a block that the system keeps */
        {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
    };
    enum { LAST_KNOWN = 148 };
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context_of(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if ((int)attribute < 1 || (int)attribute > LAST_KNOWN)
        return CUDA_ERROR_INVALID_VALUE;
    *value = (int)chosen((int)attribute);
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes && *value == 0; i++)
        if (attributes[i].attribute == (int)attribute)
            *value = attributes[i].value;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUcontext primary = context_of(device);
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    if (!primary)
        return CUDA_ERROR_INVALID_DEVICE;
    primary->retained++;
    *context = primary;
    return CUDA_SUCCESS;
}

static bool any_retained(void)
{
    for (int i = 0; i < RPI_HOST_CONTEXTS; i++)
        if (rpi_host.contexts[i].retained)
            return true;
    return false;
}

/* What is in no context goes with the last one. */
static void end(CUcontext context)
{
    rpi_host_context_finish(context);
    if (!any_retained()) {
        rpi_host_execs_forget();
        rpi_host_race_forget();
        rpi_host_memory_finish();
    }
}

CUresult rpi_host_cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUcontext primary = context_of(device);
    if (!primary)
        return CUDA_ERROR_INVALID_DEVICE;
    if (primary->retained == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (primary->retained == 1)
        rpi_host_engine_drain();
    /* The drain lets the lock go: somebody may have retained the context since, or ended it. */
    if (primary->retained == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (primary->retained > 1) {
        primary->retained--;
        return CUDA_SUCCESS;
    }
    end(primary);
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
    struct rpi_host_thread *thread = rpi_host_thread();
    if (!context || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context_of(device))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext made = &rpi_host.contexts[RPI_HOST_MOST_DEVICES];
    while (made < rpi_host.contexts + RPI_HOST_CONTEXTS && made->retained)
        made++;
    if (made == rpi_host.contexts + RPI_HOST_CONTEXTS || thread->depth == RPI_HOST_STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->device = device;
    made->retained = 1;
    thread->stack[thread->depth++] = made;
    *context = made;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuCtxDestroy(CUcontext context)
{
    struct rpi_host_thread *thread = rpi_host_thread();
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    if (!rpi_host_is_context(context) || context < rpi_host.contexts + RPI_HOST_MOST_DEVICES)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->retained)
        rpi_host_engine_drain();
    if (!context->retained) /* somebody may have destroyed it while the drain let the lock go */
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (rpi_host_current() == context)
        thread->depth--;
    end(context);
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context_of(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = context_of(device)->retained > 0;
    return CUDA_SUCCESS;
}

void rpi_host_context_finish(CUcontext context)
{
    rpi_assert_held(&rpi_host.lock);
    rpi_host_captures_finish(context);
    rpi_host_modules_finish(context);
    rpi_host_events_finish(context);
    rpi_host_streams_finish(context);
    rpi_host_memory_leave(context);
    rpi_host_execs_leave(context);
    rpi_host_task_set(&context->orphans, NULL);
    *context = (struct CUctx_st){.device = context->device};
}

CUresult rpi_host_cuCtxGetCurrent(CUcontext *context)
{
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = rpi_host_current();
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuCtxSetCurrent(CUcontext context)
{
    struct rpi_host_thread *thread = rpi_host_thread();
    if (context && !rpi_host_is_context(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context && !context->retained)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!context)
        thread->depth -= thread->depth > 0;
    else
        thread->stack[thread->depth ? thread->depth - 1 : thread->depth++] = context;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuCtxPushCurrent(CUcontext context)
{
    struct rpi_host_thread *thread = rpi_host_thread();
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    if (!rpi_host_is_context(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->retained)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (thread->depth == RPI_HOST_STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    thread->stack[thread->depth++] = context;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuCtxPopCurrent(CUcontext *context)
{
    struct rpi_host_thread *thread = rpi_host_thread();
    if (thread->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    thread->depth--;
    if (context)
        *context = thread->stack[thread->depth];
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuCtxGetDevice(CUdevice *device)
{
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = rpi_host_current()->device;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuCtxSynchronize(void)
{
    CUresult result = rpi_host_capture_no_sync_all(rpi_host_current());
    return result ? result : rpi_host_wait_all(rpi_host_current());
}
