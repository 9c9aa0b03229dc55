/* SPDX-License-Identifier: MIT
 *
 * Modules: images that list kernels as C functions (struct rp_host_image). A module that is
 * unloaded stays in memory while ops refer to it, but nothing of it can be launched any more.
 */
#include "base/held.h"
#include "driver/host/state.h"

#include <assert.h>

bool rpi_host_image_is_valid(const struct rp_host_image *image)
{
    if (!image || memcmp(image->magic, RP_HOST_IMAGE_MAGIC, sizeof image->magic) != 0 ||
        image->reserved != 0 || (image->kernel_count && !image->kernels))
        return false;
    for (uint32_t k = 0; k < image->kernel_count; k++) {
        const struct rp_host_kernel *kernel = &image->kernels[k];
        if (!kernel->name || !kernel->run || (kernel->param_count && !kernel->params) ||
            kernel->max_threads > 1024)
            return false;
        uint64_t end = 0;
        for (uint32_t p = 0; p < kernel->param_count; p++) {
            if (kernel->params[p].offset < end || kernel->params[p].bytes == 0)
                return false;
            end = (uint64_t)kernel->params[p].offset + kernel->params[p].bytes;
        }
        if (end > 32764) /* what a kernel of compute capability 9.0 may take */
            return false;
    }
    return true;
}

static void fill_function(CUfunction function, CUmodule module, const struct rp_host_kernel *kernel)
{
    assert(!function->kernel && rpi_host_handle_is(module, RPI_HOST_MODULE));
    const struct rp_host_param *last =
        kernel->param_count ? &kernel->params[kernel->param_count - 1] : NULL;
    *function = (struct CUfunc_st){.module = module,
                                   .kernel = kernel,
                                   .packed_bytes = last ? last->offset + last->bytes : 0,
                                   .max_dynamic_shared = 48 << 10};
}

CUresult rpi_host_cuModuleLoadData(CUmodule *module, const void *image)
{
    return module ? rpi_host_module_load(rpi_host_current(), module, image)
                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult rpi_host_module_load(CUcontext context, CUmodule *module, const void *image)
{
    rpi_assert_held(&rpi_host.lock);
    const struct rp_host_image *source = image;
    if (!rpi_host_image_is_valid(source))
        return CUDA_ERROR_INVALID_IMAGE;
    CUmodule loaded = rpi_calloc(1, sizeof *loaded);
    struct CUfunc_st *functions = rpi_calloc(source->kernel_count, sizeof *functions);
    uint32_t added = 0;
    bool ok = loaded && functions && rpi_host_handle_add(loaded, RPI_HOST_MODULE);
    for (; ok && added < source->kernel_count; added++)
        if (!rpi_host_handle_add(&functions[added], RPI_HOST_FUNCTION))
            break;
    if (!ok || added < source->kernel_count) {
        for (uint32_t k = 0; k < added; k++)
            rpi_host_handle_remove(&functions[k]);
        rpi_host_handle_remove(loaded);
        rpi_free(functions);
        rpi_free(loaded);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t k = 0; k < source->kernel_count; k++)
        fill_function(&functions[k], loaded, &source->kernels[k]);
    *loaded = (struct CUmod_st){.context = context,
                                .references = 1,
                                .loaded = true,
                                .function_count = source->kernel_count,
                                .functions = functions,
                                .next = context->modules};
    context->modules = loaded;
    rpi_host.module_count++;
    *module = loaded;
    return CUDA_SUCCESS;
}

void rpi_host_module_drop(CUmodule module)
{
    assert(module->references);
    rpi_assert_held(&rpi_host.lock);
    if (--module->references > 0)
        return;
    rpi_free(module->functions);
    rpi_free(module);
}

static void unload(CUmodule module)
{
    rpi_assert_held(&rpi_host.lock);
    assert(module->loaded);
    for (uint32_t k = 0; k < module->function_count; k++)
        rpi_host_handle_remove(&module->functions[k]);
    rpi_host_handle_remove(module);
    module->loaded = false;
    if (module->library)
        module->library->modules[rpi_host_context_number(module->context)] = NULL;
    module->library = NULL;
    rpi_host.module_count--;
    rpi_host_module_drop(module);
}

CUresult rpi_host_cuModuleUnload(CUmodule module)
{
    if (!rpi_host_handle_is(module, RPI_HOST_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    /* The image may go once this returns, so nothing may be running out of it. */
    CUresult result = rpi_host_wait_all(module->context);
    if (result)
        return result;
    if (!rpi_host_handle_is(module, RPI_HOST_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    CUmodule *link = &module->context->modules;
    while (*link != module)
        link = &(*link)->next;
    *link = module->next;
    unload(module);
    return CUDA_SUCCESS;
}

void rpi_host_modules_finish(CUcontext context)
{
    rpi_assert_held(&rpi_host.lock);
    while (context->modules) {
        CUmodule module = context->modules;
        context->modules = module->next;
        unload(module);
    }
}

CUresult rpi_host_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    if (!function || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!rpi_host_handle_is(module, RPI_HOST_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    for (uint32_t k = 0; k < module->function_count; k++) {
        if (strcmp(module->functions[k].kernel->name, name) == 0) {
            *function = &module->functions[k];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult rpi_host_cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module,
                                    const char *name)
{
    if (!name || (!address && !bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!rpi_host_handle_is(module, RPI_HOST_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    return CUDA_ERROR_NOT_FOUND; /* a host image lists kernels only */
}

CUresult rpi_host_cuFuncGetAttribute(int *value, CUfunction_attribute attribute,
                                     CUfunction function)
{
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!rpi_host_handle_is(function, RPI_HOST_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = function->kernel->max_threads ? (int)function->kernel->max_threads : 1024;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = function->max_dynamic_shared;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = function->non_portable_cluster;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult rpi_host_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    if (!rpi_host_handle_is(function, RPI_HOST_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || value > 227 << 10)
            return CUDA_ERROR_INVALID_VALUE;
        function->max_dynamic_shared = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        if (value != 0 && value != 1)
            return CUDA_ERROR_INVALID_VALUE;
        function->non_portable_cluster = value;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult rpi_host_cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset,
                                     size_t *bytes)
{
    if (!rpi_host_handle_is(function, RPI_HOST_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!offset || index >= function->kernel->param_count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = function->kernel->params[index].offset;
    if (bytes)
        *bytes = function->kernel->params[index].bytes;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuFuncGetName(const char **name, CUfunction function)
{
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!rpi_host_handle_is(function, RPI_HOST_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    *name = function->kernel->name;
    return CUDA_SUCCESS;
}
