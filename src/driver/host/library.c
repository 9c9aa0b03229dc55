/* SPDX-License-Identifier: MIT
 *
 * Libraries: images whose kernels belong to no context. A kernel becomes a function of the context
 * where it is needed there first; the modules behind that are the library's, one a context, end
 * with the context, and are loaded again for the next one.
 */
#include "driver/host/state.h"

struct CUkern_st {
    CUlibrary library;
    uint32_t index; /* in the image */
};

static void free_library(CUlibrary library)
{
    for (uint32_t k = 0; k < library->kernel_count; k++)
        rpi_host_handle_remove(&library->kernels[k]);
    rpi_host_handle_remove(library);
    rpi_free(library->kernels);
    rpi_free(library);
}

/* Options concern code that is compiled; an image of C functions has none to compile. */
CUresult rpi_host_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
                                    void **jit_values, unsigned jit_count, CUlibraryOption *options,
                                    void **option_values, unsigned count)
{
    const struct rp_host_image *image = code;
    if (!library || (jit_count && (!jit_options || !jit_values)) ||
        (count && (!options || !option_values)))
        return CUDA_ERROR_INVALID_VALUE;
    if (!rpi_host_image_is_valid(image))
        return CUDA_ERROR_INVALID_IMAGE;
    CUlibrary loaded = rpi_calloc(1, sizeof *loaded);
    if (!loaded)
        return CUDA_ERROR_OUT_OF_MEMORY;
    loaded->image = image;
    loaded->kernels = rpi_calloc(image->kernel_count, sizeof *loaded->kernels);
    bool ok = loaded->kernels && rpi_host_handle_add(loaded, RPI_HOST_LIBRARY);
    for (uint32_t k = 0; ok && k < image->kernel_count; k++) {
        loaded->kernels[k] = (struct CUkern_st){loaded, k};
        ok = rpi_host_handle_add(&loaded->kernels[k], RPI_HOST_KERNEL);
        loaded->kernel_count += ok;
    }
    if (!ok) {
        free_library(loaded);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *library = loaded;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuLibraryUnload(CUlibrary library)
{
    if (!rpi_host_handle_is(library, RPI_HOST_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < RPI_HOST_CONTEXTS; i++) {
        CUresult result =
            library->modules[i] ? rpi_host_cuModuleUnload(library->modules[i]) : CUDA_SUCCESS;
        if (result)
            return result;
        if (!rpi_host_handle_is(library, RPI_HOST_LIBRARY)) /* it may have let the lock go */
            return CUDA_ERROR_INVALID_HANDLE;
    }
    free_library(library);
    return CUDA_SUCCESS;
}

void rpi_host_libraries_finish(void)
{
    rpi_assert_held(&rpi_host.lock);
    CUlibrary library;
    while ((library = rpi_host_handle_any(RPI_HOST_LIBRARY)))
        free_library(library);
}

CUresult rpi_host_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    if (!kernel || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!rpi_host_handle_is(library, RPI_HOST_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    for (uint32_t k = 0; k < library->kernel_count; k++) {
        if (strcmp(library->image->kernels[k].name, name) == 0) {
            *kernel = &library->kernels[k];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult rpi_host_function_in(CUcontext context, CUkernel kernel, CUfunction *out_function)
{
    rpi_assert_held(&rpi_host.lock);
    if (!rpi_host_handle_is(kernel, RPI_HOST_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    CUlibrary library = kernel->library;
    CUmodule *module = &library->modules[rpi_host_context_number(context)];
    if (!*module) {
        CUresult result = rpi_host_module_load(context, module, library->image);
        if (result)
            return result;
        (*module)->library = library;
    }
    *out_function = &(*module)->functions[kernel->index];
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    return function ? rpi_host_function_in(rpi_host_current(), kernel, function)
                    : CUDA_ERROR_INVALID_VALUE;
}

CUkernel rpi_host_kernel_of(CUfunction function)
{
    rpi_assert_held(&rpi_host.lock);
    CUlibrary library = function->module->library;
    return library ? &library->kernels[function - function->module->functions] : NULL;
}
