/* SPDX-License-Identifier: MIT
 *
 * A host driver with several devices: each has a context, memory and streams of its own, and what
 * belongs to one is refused on another as NVIDIA's driver refuses it.
 */
#include "unit/host_kernels.h"

#include <stdio.h>

enum { DEVICES = 2, BYTES = 4096 };

static const struct rp_driver *d;
static CUcontext contexts[DEVICES];

static int open_devices(void **state)
{
    struct rpi_host_options options = RPI_HOST_OPTIONS_INIT;
    (void)state;
    options.devices = DEVICES;
    options.total_bytes = 64 << 20;
    rpi_host_configure(&options);
    d = rpi_driver_host();
    OK(d->cuInit(0));
    for (int i = 0; i < DEVICES; i++)
        OK(d->cuDevicePrimaryCtxRetain(&contexts[i], i));
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    rpi_host_reset();
    rpi_host_configure(NULL);
    return 0;
}

static void use(int device)
{
    OK(d->cuCtxSetCurrent(contexts[device]));
}

static uint64_t used(int device)
{
    size_t available, total;
    use(device);
    OK(d->cuMemGetInfo(&available, &total));
    return total - available;
}

static void devices_are_counted_and_bounded(void **state)
{
    (void)state;
    int count, active;
    unsigned flags;
    CUdevice device;
    CUcontext context;
    OK(d->cuDeviceGetCount(&count));
    assert_int_equal(count, DEVICES);
    for (int i = 0; i < DEVICES; i++) {
        OK(d->cuDeviceGet(&device, i));
        assert_int_equal(device, i);
        use(i);
        OK(d->cuCtxGetDevice(&device));
        assert_int_equal(device, i);
    }
    assert_ptr_not_equal(contexts[0], contexts[1]);
    assert_int_equal(d->cuDeviceGet(&device, DEVICES), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(d->cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(d->cuDevicePrimaryCtxRetain(&context, DEVICES), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(d->cuDevicePrimaryCtxGetState(DEVICES, &flags, &active),
                     CUDA_ERROR_INVALID_DEVICE);
}

static void the_environment_tells_how_many(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int count;
    } cases[] = {{"3", 3}, {"8", 8}, {"9", 1}, {"0", 1}, {"-1", 1}, {"", 1}, {"two", 1}};
    int count;
    rpi_host_configure(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("REPRISE_HOST_DEVICES", cases[i].text, 1);
        OK(d->cuDeviceGetCount(&count));
        assert_int_equal(count, cases[i].count);
    }
    unsetenv("REPRISE_HOST_DEVICES");
    OK(d->cuDeviceGetCount(&count));
    assert_int_equal(count, 1);
}

static void memory_is_a_devices_own(void **state)
{
    (void)state;
    CUdeviceptr address[DEVICES], much;
    for (int i = 0; i < DEVICES; i++) {
        int ordinal;
        CUcontext context;
        use(i);
        OK(d->cuMemAlloc(&address[i], BYTES));
        OK(d->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address[i]));
        OK(d->cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address[i]));
        assert_int_equal(ordinal, i);
        assert_ptr_equal(context, contexts[i]);
    }
    use(0);
    OK(d->cuMemAlloc(&much, 63 << 20));
    assert_int_equal(d->cuMemAlloc(&much, 2 << 20), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(used(1), BYTES);
    OK(d->cuMemAlloc(&much, 63 << 20));
}

static void a_copy_goes_from_device_to_device(void **state)
{
    (void)state;
    CUdeviceptr address[DEVICES];
    uint32_t value = 0;
    for (int i = 0; i < DEVICES; i++) {
        use(i);
        OK(d->cuMemAlloc(&address[i], BYTES));
        OK(d->cuMemsetD32(address[i], 7u + (unsigned)i, BYTES / 4));
        OK(d->cuCtxSynchronize()); /* the default streams of two devices do not wait */
    }
    OK(d->cuMemcpyDtoD(address[1], address[0], BYTES));
    OK(d->cuMemcpyDtoH(&value, address[1], sizeof value));
    assert_int_equal(value, 7);
}

static void virtual_memory_is_of_the_device_that_is_named(void **state)
{
    (void)state;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t bytes = 2 << 20;
    int ordinal;
    use(0);
    OK(d->cuMemCreate(&handle, bytes, &properties, 0));
    assert_int_equal(used(0), 0);
    assert_int_equal(used(1), bytes);
    OK(d->cuMemAddressReserve(&address, bytes, 0, 0, 0));
    OK(d->cuMemMap(address, bytes, 0, handle, 0));
    OK(d->cuMemSetAccess(address, bytes, &access, 1));
    OK(d->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    assert_int_equal(ordinal, 1);
    access.location.id = properties.location.id = DEVICES;
    assert_int_equal(d->cuMemSetAccess(address, bytes, &access, 1), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(d->cuMemCreate(&handle, bytes, &properties, 0), CUDA_ERROR_INVALID_DEVICE);
}

static CUfunction load(const char *name)
{
    CUmodule module;
    CUfunction function;
    OK(d->cuModuleLoadData(&module, &test_image));
    OK(d->cuModuleGetFunction(&function, module, name));
    return function;
}

static CUresult launch(CUfunction touch, CUstream stream, CUdeviceptr address)
{
    uint32_t bytes = 4;
    void *params[] = {&address, &bytes};
    return d->cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void streams_events_and_functions_belong_to_a_context(void **state)
{
    (void)state;
    CUstream streams[DEVICES];
    CUevent events[DEVICES];
    CUfunction touch[DEVICES];
    CUdeviceptr address[DEVICES];
    for (int i = 0; i < DEVICES; i++) {
        CUcontext context;
        use(i);
        OK(d->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        OK(d->cuEventCreate(&events[i], 0));
        OK(d->cuMemAlloc(&address[i], BYTES));
        touch[i] = load("touch");
        OK(d->cuStreamGetCtx(streams[i], &context));
        assert_ptr_equal(context, contexts[i]);
        OK(d->cuStreamGetCtx(NULL, &context));
        assert_ptr_equal(context, contexts[i]);
    }
    for (int i = 0; i < DEVICES; i++) { /* whichever is current */
        use(i);
        OK(launch(touch[0], streams[0], address[0]));
        assert_int_equal(launch(touch[0], streams[1], address[0]), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(d->cuEventRecord(events[1], streams[0]), CUDA_ERROR_INVALID_HANDLE);
        OK(d->cuEventRecord(events[0], streams[0]));
        OK(d->cuStreamWaitEvent(streams[1], events[0], 0)); /* across devices, as in CUDA */
        OK(d->cuMemsetD32Async(address[0], 1, 1, streams[1]));
        assert_int_equal(launch(touch[i], NULL, address[i]), CUDA_SUCCESS);
        assert_int_equal(launch(touch[1 - i], NULL, address[i]), CUDA_ERROR_INVALID_HANDLE);
        OK(d->cuStreamSynchronize(streams[1]));
    }
}

static void wait_a_while(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
}

/* Work of one device that cannot end holds up nobody who waits for the other. */
static void waiting_is_for_one_device(void **state)
{
    (void)state;
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    CUstream stream;
    CUdeviceptr address;
    use(0);
    OK(d->cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    pthread_mutex_lock(&gate);
    OK(d->cuLaunchHostFunc(stream, wait_a_while, &gate));
    use(1);
    OK(d->cuMemAlloc(&address, BYTES));
    OK(d->cuMemsetD8(address, 1, BYTES)); /* on the other legacy stream */
    OK(d->cuCtxSynchronize());
    use(0);
    assert_int_equal(d->cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    pthread_mutex_unlock(&gate);
    OK(d->cuCtxSynchronize());
    OK(d->cuStreamQuery(stream));
}

/* A library's kernel is a function in each context, and a node's context is that of its function.
 */
static void a_librarys_kernel_is_in_each_context(void **state)
{
    (void)state;
    CUlibrary library;
    CUkernel kernel;
    CUfunction functions[DEVICES], again;
    OK(d->cuLibraryLoadData(&library, &test_image, NULL, NULL, 0, NULL, NULL, 0));
    OK(d->cuLibraryGetKernel(&kernel, library, "touch"));
    for (int i = 0; i < DEVICES; i++) {
        CUgraph graph;
        CUgraphNode node;
        CUdeviceptr address;
        uint32_t bytes = 4;
        void *values[] = {&address, &bytes};
        CUDA_KERNEL_NODE_PARAMS params = {.gridDimX = 1,
                                          .gridDimY = 1,
                                          .gridDimZ = 1,
                                          .blockDimX = 1,
                                          .blockDimY = 1,
                                          .blockDimZ = 1,
                                          .kernelParams = values,
                                          .kern = kernel};
        use(i);
        OK(d->cuMemAlloc(&address, BYTES));
        OK(d->cuKernelGetFunction(&functions[i], kernel));
        OK(d->cuKernelGetFunction(&again, kernel));
        assert_ptr_equal(functions[i], again);
        OK(d->cuGraphCreate(&graph, 0));
        OK(d->cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
        OK(d->cuGraphKernelNodeGetParams(node, &params));
        assert_ptr_equal(params.ctx, contexts[i]);
        assert_ptr_equal(params.func, functions[i]);
        params.ctx = contexts[1 - i];
        assert_int_equal(d->cuGraphKernelNodeSetParams(node, &params), CUDA_ERROR_INVALID_CONTEXT);
        OK(d->cuGraphDestroy(graph));
    }
    assert_ptr_not_equal(functions[0], functions[1]);
    OK(d->cuLibraryUnload(library));
    assert_int_equal(d->cuFuncGetName(&(const char *){NULL}, functions[1]),
                     CUDA_ERROR_INVALID_HANDLE);
}

/* The legacy stream of one device has nothing to do with a capture on the other. */
static void captures_are_a_devices_own(void **state)
{
    (void)state;
    CUstream streams[DEVICES];
    CUdeviceptr address[DEVICES];
    CUgraph graph;
    for (int i = 0; i < DEVICES; i++) {
        use(i);
        OK(d->cuStreamCreate(&streams[i], CU_STREAM_DEFAULT));
        OK(d->cuMemAlloc(&address[i], BYTES));
    }
    use(0);
    OK(d->cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    use(1);
    OK(d->cuMemsetD8Async(address[1], 1, BYTES, NULL));
    OK(d->cuCtxSynchronize());
    OK(d->cuDevicePrimaryCtxRelease(1)); /* its streams end no capture of others */
    use(0);
    OK(d->cuMemsetD8Async(address[0], 1, BYTES, streams[0]));
    OK(d->cuStreamEndCapture(streams[0], &graph));
    OK(d->cuGraphDestroy(graph));
}

static void what_ends_with_a_context_is_its_own(void **state)
{
    (void)state;
    CUdeviceptr address[DEVICES];
    CUstream streams[DEVICES];
    CUevent events[DEVICES];
    CUfunction touch[DEVICES];
    int type;
    for (int i = 0; i < DEVICES; i++) {
        use(i);
        OK(d->cuMemAlloc(&address[i], BYTES));
        OK(d->cuStreamCreate(&streams[i], 0));
        OK(d->cuEventCreate(&events[i], 0));
        touch[i] = load("touch");
    }
    OK(d->cuDevicePrimaryCtxRelease(1));
    assert_int_equal(d->cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    use(0);
    assert_int_equal(d->cuStreamQuery(streams[1]), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(d->cuEventQuery(events[1]), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(d->cuFuncGetName(&(const char *){NULL}, touch[1]), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(d->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address[1]),
                     CUDA_ERROR_INVALID_VALUE);
    OK(launch(touch[0], streams[0], address[0]));
    OK(d->cuEventRecord(events[0], streams[0]));
    OK(d->cuEventSynchronize(events[0]));
    assert_int_equal(used(0), BYTES);
    OK(d->cuDevicePrimaryCtxRetain(&contexts[1], 1));
    assert_int_equal(used(1), 0);
}

static void a_device_is_what_it_is_told_to_be(void **state)
{
    (void)state;
    char name[64];
    int count, wide, unknown;
    struct rpi_host_options options;
    rpi_host_options(&options);
    OK(d->cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    assert_int_equal(count, 4);
    options.name = "Tested";
    options.multiprocessors = 132;
    rpi_host_configure(&options);
    OK(d->cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    OK(d->cuDeviceGetName(name, sizeof name, 0));
    assert_int_equal(count, 132);
    assert_string_equal(name, "Tested");
    /* What a GPU has and this has not is 0; what there is no such thing is an error. */
    OK(d->cuDeviceGetAttribute(&wide, (CUdevice_attribute)97, 0));
    assert_int_equal(wide, 227 << 10);
    OK(d->cuDeviceGetAttribute(&unknown, (CUdevice_attribute)100, 0));
    assert_int_equal(unknown, 0);
    assert_int_equal(d->cuDeviceGetAttribute(&unknown, (CUdevice_attribute)100000, 0),
                     CUDA_ERROR_INVALID_VALUE);
}

static void allocations_lie_one_behind_the_other(void **state)
{
    (void)state;
    enum { COUNT = 6 };
    CUdeviceptr at[COUNT];
    use(0);
    for (int i = 0; i < COUNT; i++) {
        OK(d->cuMemAlloc(&at[i], (size_t)(i % 3 + 1) << 20));
        assert_true(i == 0 || at[i] > at[i - 1]);
        if (i == 2) /* what was freed is not given again before others are */
            OK(d->cuMemFree(at[1]));
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_devices, close_devices)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(devices_are_counted_and_bounded),
        CASE(the_environment_tells_how_many),
        CASE(a_device_is_what_it_is_told_to_be),
        CASE(allocations_lie_one_behind_the_other),
        CASE(memory_is_a_devices_own),
        CASE(a_copy_goes_from_device_to_device),
        CASE(virtual_memory_is_of_the_device_that_is_named),
        CASE(streams_events_and_functions_belong_to_a_context),
        CASE(waiting_is_for_one_device),
        CASE(a_librarys_kernel_is_in_each_context),
        CASE(captures_are_a_devices_own),
        CASE(what_ends_with_a_context_is_its_own),
    };
    return cmocka_run_group_tests_name("host devices", tests, NULL, NULL);
}
