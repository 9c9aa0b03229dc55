/* SPDX-License-Identifier: MIT
 *
 * The host driver: contexts, memory, virtual memory, streams, events, launches.
 */
#include "host_kernels.h"

static struct host_fixture f;

static int open_driver(void **state)
{
    (void)state;
    host_open(&f);
    return 0;
}

static int close_driver(void **state)
{
    (void)state;
    rpi_host_reset();
    return 0;
}

static void needs_init_and_context(void **state)
{
    (void)state;
    CUdeviceptr address;
    rpi_host_reset();
    assert_int_equal(f.d->cuMemAlloc(&address, 16), CUDA_ERROR_NOT_INITIALIZED);
    OK(f.d->cuInit(0));
    assert_int_equal(f.d->cuMemAlloc(&address, 16), CUDA_ERROR_INVALID_CONTEXT);
    CUcontext context, popped;
    OK(f.d->cuDevicePrimaryCtxRetain(&context, 0));
    OK(f.d->cuCtxPushCurrent(context));
    OK(f.d->cuMemAlloc(&address, 16));
    OK(f.d->cuCtxPopCurrent(&popped));
    assert_ptr_equal(popped, context);
    assert_int_equal(f.d->cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
    OK(f.d->cuCtxSetCurrent(context));
    OK(f.d->cuDevicePrimaryCtxRelease(0));
    assert_int_equal(f.d->cuMemAlloc(&address, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(f.d->cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    struct rpi_host_statistics s;
    rpi_host_statistics(&s);
    assert_int_equal(s.physical_bytes, 0);
}

static void out_of_memory_at_the_limit(void **state)
{
    (void)state;
    struct rpi_host_options options, former;
    rpi_host_options(&former);
    options = former;
    options.total_bytes = 1 << 20;
    rpi_host_configure(&options);
    CUdeviceptr a, b;
    size_t free_bytes, total;
    OK(f.d->cuMemAlloc(&a, 768 << 10));
    assert_int_equal(f.d->cuMemAlloc(&b, 512 << 10), CUDA_ERROR_OUT_OF_MEMORY);
    OK(f.d->cuMemGetInfo(&free_bytes, &total));
    assert_int_equal(free_bytes, 256 << 10);
    OK(f.d->cuMemFree(a));
    OK(f.d->cuMemAlloc(&b, 512 << 10));
    assert_int_equal(f.d->cuMemFree(b + 4096), CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuMemFree(b));
    assert_int_equal(f.d->cuMemFree(b), CUDA_ERROR_INVALID_VALUE);
    rpi_host_configure(&former);
}

#define MIB ((size_t)1 << 20)

static const CUmemAllocationProp device_memory = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
};
static const CUmemAccessDesc read_write = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                           CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void one_chunk_at_many_addresses(void **state)
{
    (void)state;
    enum { COUNT = 512 };
    CUmemGenericAllocationHandle chunk;
    CUdeviceptr base;
    OK(f.d->cuMemCreate(&chunk, 2 * MIB, &device_memory, 0));
    OK(f.d->cuMemAddressReserve(&base, COUNT * 2 * MIB, 0, 0, 0));
    assert_int_equal(base % (2 * MIB), 0);
    for (size_t i = 0; i < COUNT; i++)
        OK(f.d->cuMemMap(base + i * 2 * MIB, 2 * MIB, 0, chunk, 0));
    assert_int_equal(f.d->cuMemsetD8(base, 1, 16), CUDA_ERROR_INVALID_VALUE); /* no access yet */
    OK(f.d->cuMemSetAccess(base, COUNT * 2 * MIB, &read_write, 1));
    OK(f.d->cuMemRelease(chunk));
    OK(f.d->cuMemsetD8(base + 3 * 2 * MIB + 5, 0x5a, 1));
    unsigned char byte = 0;
    OK(f.d->cuMemcpyDtoH(&byte, base + 500 * 2 * MIB + 5, 1));
    assert_int_equal(byte, 0x5a);
    struct rpi_host_statistics s;
    rpi_host_statistics(&s);
    assert_int_equal(s.physical_bytes, 2 * MIB);
    assert_int_equal(s.mappings, COUNT);
    assert_int_equal(f.d->cuMemAddressFree(base, COUNT * 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuMemUnmap(base, COUNT * 2 * MIB));
    OK(f.d->cuMemAddressFree(base, COUNT * 2 * MIB));
    rpi_host_statistics(&s);
    assert_int_equal(s.physical_bytes, 0);
    assert_int_equal(s.chunks, 0);
    assert_int_equal(s.reserved_bytes, 0);
}

static void virtual_memory_refuses(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle chunk;
    CUdeviceptr base;
    assert_int_equal(f.d->cuMemCreate(&chunk, MIB, &device_memory, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(f.d->cuMemAddressReserve(&base, MIB, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuMemCreate(&chunk, 4 * MIB, &device_memory, 0));
    OK(f.d->cuMemAddressReserve(&base, 8 * MIB, 0, 0, 0));
    assert_int_equal(f.d->cuMemMap(base + 4096, 4 * MIB, 0, chunk, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(f.d->cuMemMap(base, 8 * MIB, 0, chunk, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(f.d->cuMemMap(base + 6 * MIB, 4 * MIB, 0, chunk, 0), CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuMemMap(base, 4 * MIB, 0, chunk, 0));
    assert_int_equal(f.d->cuMemMap(base + 2 * MIB, 4 * MIB, 0, chunk, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(f.d->cuMemUnmap(base, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(f.d->cuMemSetAccess(base, 8 * MIB, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuMemUnmap(base, 4 * MIB));
    OK(f.d->cuMemRelease(chunk));
    assert_int_equal(f.d->cuMemRelease(chunk), CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuMemAddressFree(base, 8 * MIB));
}

static void streams_and_events_order(void **state)
{
    (void)state;
    enum { COUNT = 256 };
    struct gate gate = GATE_INIT;
    CUstream a, b;
    CUevent event;
    CUdeviceptr x, y;
    uint32_t out[COUNT];
    OK(f.d->cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuEventCreate(&event, 0));
    OK(f.d->cuMemAlloc(&x, COUNT * 4));
    OK(f.d->cuMemAlloc(&y, COUNT * 4));
    OK(f.d->cuMemsetD32Async(x, 1, COUNT, a));
    OK(f.d->cuLaunchHostFunc(a, gate_wait, &gate));
    OK(host_add(&f, a, x, x, 10, COUNT));
    OK(f.d->cuEventRecord(event, a));
    OK(f.d->cuStreamWaitEvent(b, event, 0));
    OK(host_add(&f, b, y, x, 100, COUNT));
    assert_int_equal(f.d->cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    assert_int_equal(f.d->cuEventQuery(event), CUDA_ERROR_NOT_READY);
    gate_open(&gate);
    OK(f.d->cuStreamSynchronize(b));
    OK(f.d->cuEventQuery(event));
    OK(f.d->cuMemcpyDtoH(out, y, sizeof out));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(out[i], 111);
    struct rpi_host_race race;
    assert_int_equal(rpi_host_races(&race, 1), 0);
}

static void legacy_stream_waits_for_blocking_ones(void **state)
{
    (void)state;
    struct gate gate = GATE_INIT;
    CUstream blocking, free_stream;
    OK(f.d->cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(f.d->cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuLaunchHostFunc(blocking, gate_wait, &gate));
    assert_int_equal(f.d->cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    CUdeviceptr x;
    OK(f.d->cuMemAlloc(&x, 64));
    OK(f.d->cuMemsetD8Async(x, 1, 64, NULL)); /* behind the gate */
    OK(f.d->cuMemsetD8Async(x + 32, 1, 4, free_stream));
    OK(f.d->cuStreamSynchronize(free_stream));
    CUstream other;
    OK(f.d->cuStreamCreate(&other, CU_STREAM_DEFAULT));
    OK(f.d->cuMemsetD8Async(x, 2, 4, other)); /* behind the legacy stream */
    assert_int_equal(f.d->cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    OK(f.d->cuStreamDestroy(blocking));
    gate_open(&gate);
    OK(f.d->cuCtxSynchronize());
    OK(f.d->cuStreamQuery(other));
}

static void *fill_on_own_stream(void *argument)
{
    OK(f.d->cuCtxSetCurrent(f.context));
    OK(f.d->cuLaunchHostFunc(CU_STREAM_PER_THREAD, gate_wait, argument));
    OK(f.d->cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL));
    return NULL;
}

/* A thread ends while its default stream has work and captures: the work goes on, the capture does
 * not. */
static void a_threads_stream_goes_with_it(void **state)
{
    (void)state;
    struct gate gate = GATE_INIT;
    struct rpi_host_statistics s;
    pthread_t thread;
    pthread_create(&thread, NULL, fill_on_own_stream, &gate);
    pthread_join(thread, NULL);
    rpi_host_statistics(&s);
    assert_int_equal(s.captures, 0);
    assert_int_equal(s.graphs, 0);
    assert_int_equal(f.d->cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    OK(f.d->cuStreamQuery(CU_STREAM_PER_THREAD)); /* this thread's own */
    gate_open(&gate);
    OK(f.d->cuCtxSynchronize());
}

static void packed_parameters(void **state)
{
    (void)state;
    CUdeviceptr x;
    OK(f.d->cuMemAlloc(&x, 16));
    OK(f.d->cuMemsetD32(x, 5, 4));
    struct {
        uint64_t out, in;
        uint32_t value, count;
    } packed = {x, x, 7, 4};
    size_t bytes = sizeof packed, many = sizeof packed + 4;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    OK(f.d->cuLaunchKernel(f.add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    uint32_t out[4];
    OK(f.d->cuMemcpyDtoH(out, x, sizeof out));
    assert_int_equal(out[3], 12);
    extra[3] = &many;
    assert_int_equal(f.d->cuLaunchKernel(f.add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra),
                     CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    size_t offset, size;
    OK(f.d->cuFuncGetParamInfo(f.add, 2, &offset, &size));
    assert_int_equal(offset, 16);
    assert_int_equal(size, 4);
    assert_int_equal(f.d->cuFuncGetParamInfo(f.add, 4, &offset, &size), CUDA_ERROR_INVALID_VALUE);
}

static void clusters_divide_the_grid(void **state)
{
    (void)state;
    CUdeviceptr x = 0;
    uint32_t bytes = 0;
    void *params[] = {&x, &bytes};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    attribute.value.clusterDim.x = 4;
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    CUlaunchConfig config = {.gridDimX = 8,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = &attribute,
                             .numAttrs = 1};
    OK(f.d->cuLaunchKernelEx(&config, f.touch, params, NULL));
    config.gridDimX = 6;
    assert_int_equal(f.d->cuLaunchKernelEx(&config, f.touch, params, NULL),
                     CUDA_ERROR_INVALID_CLUSTER_SIZE);
    config.gridDimX = 16;
    attribute.value.clusterDim.x = 16;
    assert_int_equal(f.d->cuLaunchKernelEx(&config, f.touch, params, NULL),
                     CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

static void images_are_checked(void **state)
{
    (void)state;
    CUmodule module;
    CUfunction function;
    struct rp_host_image wrong = test_image;
    wrong.magic[0] = 'X';
    assert_int_equal(f.d->cuModuleLoadData(&module, &wrong), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(f.d->cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(f.d->cuModuleGetFunction(&function, f.module, "absent"), CUDA_ERROR_NOT_FOUND);
    OK(f.d->cuModuleUnload(f.module));
    assert_int_equal(host_add(&f, NULL, 0, 0, 0, 0), CUDA_ERROR_INVALID_HANDLE);
}

static void unordered_streams_race(void **state)
{
    (void)state;
    CUstream a, b;
    CUdeviceptr x;
    struct rpi_host_race race;
    OK(f.d->cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuMemAlloc(&x, 64));
    OK(host_touch(&f, f.look, a, x, 64));
    OK(host_touch(&f, f.look, b, x, 64));
    assert_int_equal(rpi_host_races(&race, 1), 0);
    OK(host_touch(&f, f.touch, b, x + 60, 4));
    assert_int_equal(rpi_host_races(&race, 1), 1);
    assert_string_equal(race.first, "look");
    assert_string_equal(race.second, "touch");
    assert_int_equal(race.address, x + 60);
    assert_int_equal(race.bytes, 4);
    assert_true(!race.first_writes && race.second_writes);
    rpi_host_races_clear();
    OK(f.d->cuStreamSynchronize(b)); /* the host has seen b's work, so a may follow it */
    OK(host_touch(&f, f.touch, a, x, 64));
    assert_int_equal(rpi_host_races(&race, 1), 0);
}

static void pageable_sources_are_taken_at_once(void **state)
{
    (void)state;
    struct gate gate = GATE_INIT;
    CUstream a;
    CUdeviceptr x;
    uint32_t value = 7;
    OK(f.d->cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuMemAlloc(&x, 4));
    OK(f.d->cuLaunchHostFunc(a, gate_wait, &gate));
    OK(f.d->cuMemcpyHtoDAsync(x, &value, 4, a));
    value = 8;
    gate_open(&gate);
    uint32_t out = 0;
    OK(f.d->cuMemcpyDtoHAsync(&out, x, 4, a)); /* to pageable memory: done when it returns */
    assert_int_equal(out, 7);
}

static void copies_of_rows(void **state)
{
    (void)state;
    unsigned char in[6][8], out[3][4];
    for (int i = 0; i < 48; i++)
        in[i / 8][i % 8] = (unsigned char)i;
    CUdeviceptr x;
    OK(f.d->cuMemAlloc(&x, 64));
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = in,
                          .srcPitch = 8,
                          .srcXInBytes = 2,
                          .srcY = 1,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = x,
                          .dstPitch = 16,
                          .WidthInBytes = 4,
                          .Height = 3};
    OK(f.d->cuMemcpy2DAsync(&copy, NULL));
    CUDA_MEMCPY2D back = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = x,
                          .srcPitch = 16,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = 4,
                          .WidthInBytes = 4,
                          .Height = 3};
    OK(f.d->cuMemcpy2DAsync(&back, NULL));
    for (int y = 0; y < 3; y++)
        for (int i = 0; i < 4; i++)
            assert_int_equal(out[y][i], in[y + 1][i + 2]);
    back.dstPitch = 3;
    assert_int_equal(f.d->cuMemcpy2DAsync(&back, NULL), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_driver, close_driver)
        TEST(needs_init_and_context),
        TEST(out_of_memory_at_the_limit),
        TEST(one_chunk_at_many_addresses),
        TEST(virtual_memory_refuses),
        TEST(streams_and_events_order),
        TEST(legacy_stream_waits_for_blocking_ones),
        TEST(a_threads_stream_goes_with_it),
        TEST(packed_parameters),
        TEST(clusters_divide_the_grid),
        TEST(images_are_checked),
        TEST(unordered_streams_race),
        TEST(pageable_sources_are_taken_at_once),
        TEST(copies_of_rows),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
