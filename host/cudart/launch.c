/* SPDX-License-Identifier: MIT
 *
 * What nvcc's programs register, and launches. A program registers all its fat binaries, functions
 * and variables before main; a fat binary is read with the first launch out of it. Functions are
 * found by the address of the host's stub, in a table with open addressing.
 */
#include "cudart/runtime.h"

#include <pthread.h>
#include <stdlib.h>

struct binary {
    const void *wrapper;
    CUlibrary library; /* NULL: not read yet */
};

struct registered {
    const void *key; /* the stub's address, or the variable's; NULL: free */
    struct binary *binary;
    const char *name;
    CUkernel kernel;     /* of a function, once it was asked for */
    size_t bytes;        /* of a variable; 0: a function */
    CUdeviceptr address; /* of a variable, once it was asked for */
};

static struct {
    pthread_mutex_t lock;     /* guards the rest */
    struct registered *table; /* [room], a power of two */
    size_t room, count;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct registered *place_of(struct registered *table, size_t room, const void *key)
{
    size_t at = ((uintptr_t)key >> 2) * 0x9e3779b97f4a7c15u >> 20;
    while (table[at & (room - 1)].key && table[at & (room - 1)].key != key)
        at++;
    return &table[at & (room - 1)];
}

static bool make_room(void)
{
    if (2 * state.count < state.room)
        return true;
    size_t room = state.room ? 2 * state.room : 1 << 16;
    struct registered *table = calloc(room, sizeof *table);
    if (!table)
        return false;
    for (size_t i = 0; i < state.room; i++)
        if (state.table[i].key)
            *place_of(table, room, state.table[i].key) = state.table[i];
    free(state.table);
    state.table = table;
    state.room = room;
    return true;
}

/* A program that finds no memory as it starts has no way to be told. */
static void add(const struct registered *entry)
{
    pthread_mutex_lock(&state.lock);
    if (!make_room())
        abort();
    struct registered *place = place_of(state.table, state.room, entry->key);
    state.count += !place->key;
    *place = *entry;
    pthread_mutex_unlock(&state.lock);
}

/* ---- What programs register ----------------------------------------------------------------- */

RPI_EXPORT void **__cudaRegisterFatBinary(void *wrapper);
void **__cudaRegisterFatBinary(void *wrapper)
{
    struct binary *binary = calloc(1, sizeof *binary);
    if (!binary)
        abort();
    binary->wrapper = wrapper;
    return (void **)binary;
}

RPI_EXPORT void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

/* Called as the process ends; the driver goes with it. */
RPI_EXPORT void __cudaUnregisterFatBinary(void **handle);
void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

RPI_EXPORT char __cudaInitModule(void **handle);
char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

RPI_EXPORT void __cudaRegisterFunction(void **handle, const char *stub, char *device_function,
                                       const char *name, int threads, void *thread, void *block,
                                       void *block_size, void *grid_size, int *warp_size);
void __cudaRegisterFunction(void **handle, const char *stub, char *device_function,
                            const char *name, int threads, void *thread, void *block,
                            void *block_size, void *grid_size, int *warp_size)
{
    (void)device_function, (void)threads, (void)thread, (void)block;
    (void)block_size, (void)grid_size, (void)warp_size;
    add(&(struct registered){.key = stub, .binary = (struct binary *)handle, .name = name});
}

RPI_EXPORT void __cudaRegisterVar(void **handle, char *variable, char *device_address,
                                  const char *name, int is_external, size_t bytes, int is_constant,
                                  int is_global);
void __cudaRegisterVar(void **handle, char *variable, char *device_address, const char *name,
                       int is_external, size_t bytes, int is_constant, int is_global)
{
    (void)device_address, (void)is_external, (void)is_constant, (void)is_global;
    add(&(struct registered){
        .key = variable, .binary = (struct binary *)handle, .name = name, .bytes = bytes});
}

/* ---- Functions ------------------------------------------------------------------------------ */

/* With the lock held. */
static CUresult load(struct registered *entry)
{
    struct binary *binary = entry->binary;
    if (!binary->library) {
        CUresult result =
            cuLibraryLoadData(&binary->library, binary->wrapper, NULL, NULL, 0, NULL, NULL, 0);
        if (result)
            return result;
    }
    CUresult result = cuLibraryGetKernel(&entry->kernel, binary->library, entry->name);
    return result == CUDA_ERROR_NOT_FOUND ? (CUresult)cudaErrorInvalidDeviceFunction : result;
}

static CUresult kernel_of(const void *function, CUkernel *out_kernel)
{
    CUresult result = (CUresult)cudaErrorInvalidDeviceFunction;
    pthread_mutex_lock(&state.lock);
    struct registered *entry = state.room ? place_of(state.table, state.room, function) : NULL;
    if (entry && entry->key && !entry->bytes)
        result = entry->kernel ? CUDA_SUCCESS : load(entry);
    if (!result)
        *out_kernel = entry->kernel;
    pthread_mutex_unlock(&state.lock);
    return result;
}

cudaError_t rpi_runtime_kernel(const void *function, CUkernel *out_kernel)
{
    return RPI_WITH_CONTEXT(kernel_of(function, out_kernel));
}

cudaError_t rpi_runtime_function(const void *function, CUfunction *out_function)
{
    CUkernel kernel = NULL;
    cudaError_t error = rpi_runtime_kernel(function, &kernel);
    return error ? error : rpi_runtime_result(cuKernelGetFunction(out_function, kernel));
}

/* ---- Launches ------------------------------------------------------------------------------- */

static _Thread_local struct {
    struct rpi_dim3 grid, block;
    size_t shared_bytes;
    CUstream stream;
} pushed; /* between a call's <<<>>> and its stub, which nothing comes between */

RPI_EXPORT unsigned __cudaPushCallConfiguration(struct rpi_dim3 grid, struct rpi_dim3 block,
                                                size_t shared_bytes, CUstream stream);
unsigned __cudaPushCallConfiguration(struct rpi_dim3 grid, struct rpi_dim3 block,
                                     size_t shared_bytes, CUstream stream)
{
    pushed.grid = grid;
    pushed.block = block;
    pushed.shared_bytes = shared_bytes;
    pushed.stream = stream;
    return 0;
}

RPI_EXPORT cudaError_t __cudaPopCallConfiguration(struct rpi_dim3 *grid, struct rpi_dim3 *block,
                                                  size_t *shared_bytes, CUstream *stream);
cudaError_t __cudaPopCallConfiguration(struct rpi_dim3 *grid, struct rpi_dim3 *block,
                                       size_t *shared_bytes, CUstream *stream)
{
    *grid = pushed.grid;
    *block = pushed.block;
    *shared_bytes = pushed.shared_bytes;
    *stream = pushed.stream;
    return cudaSuccess;
}

/* A stub asks for a handle of its function once, before there need be a device: the function's own
 * address serves. */
RPI_EXPORT cudaError_t __cudaGetKernel(const void **handle, const void *function);
cudaError_t __cudaGetKernel(const void **handle, const void *function)
{
    *handle = function;
    return cudaSuccess;
}

static bool is_shape(struct rpi_dim3 grid, struct rpi_dim3 block)
{
    return grid.x && grid.y && grid.z && block.x && block.y && block.z &&
           (uint64_t)block.x * block.y * block.z <= 1024;
}

RPI_EXPORT cudaError_t cudaLaunchKernel(const void *function, struct rpi_dim3 grid,
                                        struct rpi_dim3 block, void **args, size_t shared_bytes,
                                        CUstream stream);
cudaError_t cudaLaunchKernel(const void *function, struct rpi_dim3 grid, struct rpi_dim3 block,
                             void **args, size_t shared_bytes, CUstream stream)
{
    CUkernel kernel = NULL;
    cudaError_t error = rpi_runtime_kernel(function, &kernel);
    if (error)
        return error;
    if (!is_shape(grid, block))
        return rpi_runtime_result((CUresult)cudaErrorInvalidConfiguration);
    return rpi_runtime_result(cuLaunchKernel((CUfunction)(void *)kernel, grid.x, grid.y, grid.z,
                                             block.x, block.y, block.z, (unsigned)shared_bytes,
                                             stream, args, NULL));
}

RPI_EXPORT cudaError_t __cudaLaunchKernel(const void *function, struct rpi_dim3 grid,
                                          struct rpi_dim3 block, void **args, size_t shared_bytes,
                                          CUstream stream);
cudaError_t __cudaLaunchKernel(const void *function, struct rpi_dim3 grid, struct rpi_dim3 block,
                               void **args, size_t shared_bytes, CUstream stream)
{
    return cudaLaunchKernel(function, grid, block, args, shared_bytes, stream);
}

struct launch_config {
    struct rpi_dim3 grid, block;
    size_t shared_bytes;
    CUstream stream;
    CUlaunchAttribute *attributes;
    unsigned attribute_count;
};

RPI_EXPORT cudaError_t cudaLaunchKernelExC(const struct launch_config *config, const void *function,
                                           void **args);
cudaError_t cudaLaunchKernelExC(const struct launch_config *config, const void *function,
                                void **args)
{
    CUkernel kernel = NULL;
    cudaError_t error = rpi_runtime_kernel(function, &kernel);
    if (error)
        return error;
    CUlaunchConfig all = {config->grid.x,
                          config->grid.y,
                          config->grid.z,
                          config->block.x,
                          config->block.y,
                          config->block.z,
                          (unsigned)config->shared_bytes,
                          config->stream,
                          config->attributes,
                          config->attribute_count};
    return rpi_runtime_result(cuLaunchKernelEx(&all, (CUfunction)(void *)kernel, args, NULL));
}

RPI_EXPORT cudaError_t cudaLaunchCooperativeKernel(const void *function, struct rpi_dim3 grid,
                                                   struct rpi_dim3 block, void **args,
                                                   size_t shared_bytes, CUstream stream);
cudaError_t cudaLaunchCooperativeKernel(const void *function, struct rpi_dim3 grid,
                                        struct rpi_dim3 block, void **args, size_t shared_bytes,
                                        CUstream stream)
{
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    return cudaLaunchKernelExC(
        &(struct launch_config){grid, block, shared_bytes, stream, &cooperative, 1}, function,
        args);
}

/* ---- Properties of functions ---------------------------------------------------------------- */

struct function_attributes {
    size_t shared_bytes, constant_bytes, local_bytes;
    int max_threads, registers, ptx_version, binary_version, cache_mode, max_dynamic_shared;
    int carveout, cluster_must_be_set, cluster[3], cluster_scheduling, non_portable_cluster;
    int reserved[16];
};

RPI_EXPORT cudaError_t cudaFuncGetAttributes(struct function_attributes *attributes,
                                             const void *function);
cudaError_t cudaFuncGetAttributes(struct function_attributes *attributes, const void *function)
{
    CUfunction found;
    cudaError_t error = rpi_runtime_function(function, &found);
    if (error)
        return error;
    *attributes = (struct function_attributes){.ptx_version = 90, .binary_version = 90};
    CUresult result = cuFuncGetAttribute(&attributes->max_threads,
                                         CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, found);
    if (!result)
        result = cuFuncGetAttribute(&attributes->registers, CU_FUNC_ATTRIBUTE_NUM_REGS, found);
    if (!result)
        result = cuFuncGetAttribute(&attributes->max_dynamic_shared,
                                    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, found);
    return rpi_runtime_result(result);
}

RPI_EXPORT cudaError_t cudaFuncSetAttribute(const void *function, int attribute, int value);
cudaError_t cudaFuncSetAttribute(const void *function, int attribute, int value)
{
    enum { CARVEOUT = 9 }; /* a preference */
    CUfunction found;
    cudaError_t error = rpi_runtime_function(function, &found);
    if (error || attribute == CARVEOUT)
        return error;
    return rpi_runtime_result(cuFuncSetAttribute(found, (CUfunction_attribute)attribute, value));
}

RPI_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
                                                                     const void *function,
                                                                     int threads,
                                                                     size_t shared_bytes);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                          int threads, size_t shared_bytes)
{
    CUfunction found;
    cudaError_t error = rpi_runtime_function(function, &found);
    return error ? error
                 : rpi_runtime_result(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                       blocks, found, threads, shared_bytes));
}

RPI_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *function, int threads, size_t shared_bytes, unsigned flags);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks,
                                                                   const void *function,
                                                                   int threads, size_t shared_bytes,
                                                                   unsigned flags)
{
    (void)flags;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared_bytes);
}

/* ---- Variables ------------------------------------------------------------------------------ */

static CUresult variable_of(const void *variable, CUdeviceptr *out_address)
{
    CUresult result = (CUresult)cudaErrorInvalidSymbol;
    pthread_mutex_lock(&state.lock);
    struct registered *entry = state.room ? place_of(state.table, state.room, variable) : NULL;
    if (entry && entry->key && entry->bytes) {
        result = CUDA_SUCCESS;
        if (!entry->address) {
            result = cuMemAlloc(&entry->address, entry->bytes);
            if (!result)
                result = cuMemsetD8(entry->address, 0, entry->bytes);
        }
        *out_address = entry->address;
    }
    pthread_mutex_unlock(&state.lock);
    return result;
}

RPI_EXPORT cudaError_t cudaGetSymbolAddress(void **address, const void *variable);
cudaError_t cudaGetSymbolAddress(void **address, const void *variable)
{
    CUdeviceptr found = 0;
    cudaError_t error = RPI_WITH_CONTEXT(variable_of(variable, &found));
    if (!error)
        *address = (void *)(uintptr_t)found;
    return error;
}

RPI_EXPORT cudaError_t cudaMemcpyToSymbol(const void *variable, const void *from, size_t bytes,
                                          size_t offset, int kind);
cudaError_t cudaMemcpyToSymbol(const void *variable, const void *from, size_t bytes, size_t offset,
                               int kind)
{
    CUdeviceptr found = 0;
    (void)kind;
    cudaError_t error = RPI_WITH_CONTEXT(variable_of(variable, &found));
    return error ? error : rpi_runtime_result(cuMemcpyHtoD(found + offset, from, bytes));
}
