/* SPDX-License-Identifier: MIT */
#include "libraries.h"

#include <dlfcn.h>
#include <string.h>

/* cuBLAS's and the driver's enumerators that are used. */
enum { NOT_TRANSPOSED = 0, BFLOAT16 = 14, COMPUTE_FLOAT = 68, ANY_ALGORITHM = -1 };
enum { MAP_FLOAT = 7 };

/* dlsym gives an object pointer; POSIX says that it may be read as a function's. */
static bool find(void *library, const char *name, void *out_function)
{
    void *address = dlsym(library, name);
    memcpy(out_function, &address, sizeof address);
    return address != NULL;
}

static void *open_blas(const char *file)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    void *library = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t i = 0; !file && !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static void load_blas(struct libraries *l, const char *file)
{
    int (*create)(void **blas), (*version)(void *blas, int *version);
    void *library = open_blas(file);
    l->no_blas = "the library was not found";
    if (!library)
        return;
    l->no_blas = "the library lacks a function";
    if (!find(library, "cublasCreate_v2", &create) ||
        !find(library, "cublasGetVersion_v2", &version) ||
        !find(library, "cublasSetStream_v2", &l->set_stream) ||
        !find(library, "cublasSetWorkspace_v2", &l->set_workspace) ||
        !find(library, "cublasGemmEx", &l->multiply))
        return;
    l->no_blas = "cublasCreate failed";
    if (create(&l->blas) != 0)
        l->blas = NULL;
    else if (version(l->blas, &l->blas_version) == 0)
        l->no_blas = NULL;
}

void libraries_load(struct libraries *libraries, const char *file)
{
    *libraries = (struct libraries){0};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver)
        find(driver, "cuTensorMapEncodeTiled", &libraries->encode);
    load_blas(libraries, file);
}

bool libraries_multiply(const struct libraries *l, CUstream stream, int size, uint64_t a,
                        uint64_t b, uint64_t c, uint64_t workspace, size_t workspace_bytes)
{
    const float one = 1, zero = 0;
    /* The stream first: it resets the workspace. */
    return l->set_stream(l->blas, stream) == 0 &&
           l->set_workspace(l->blas, (void *)(uintptr_t)workspace, workspace_bytes) == 0 &&
           l->multiply(l->blas, NOT_TRANSPOSED, NOT_TRANSPOSED, size, size, size, &one,
                       (void *)(uintptr_t)a, BFLOAT16, size, (void *)(uintptr_t)b, BFLOAT16, size,
                       &zero, (void *)(uintptr_t)c, BFLOAT16, size, COMPUTE_FLOAT,
                       ANY_ALGORITHM) == 0;
}

bool libraries_map(const struct libraries *l, struct rpt_tensor_map *map, uint64_t address,
                   uint64_t rows)
{
    const uint64_t sizes[] = {RPT_TILE, rows}, strides[] = {RPT_TILE * sizeof(float)};
    const uint32_t box[] = {RPT_TILE, 1}, steps[] = {1, 1};
    memset(map, 0, sizeof *map);
    map->words[0] = address;
    return !l->encode || l->encode(map, MAP_FLOAT, 2, (void *)(uintptr_t)address, sizes, strides,
                                   box, steps, 0, 0, 0, 0) == CUDA_SUCCESS;
}
