/* SPDX-License-Identifier: MIT
 *
 * The host driver under the fault loop: make a stream, memory and a captured graph, instantiate,
 * launch and update it, and give all back, with each driver call and each allocation of host memory
 * made to fail in its turn. After every run the driver holds what it held before.
 */
#include "fault_loop.h"

#include "driver/host/host.h"
#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

/* What one run has made so far; all of it is given back at its end. */
struct made {
    const struct rp_driver *d;
    CUcontext context;
    CUmodule module;
    CUstream streams[2];
    CUevent event;
    CUdeviceptr memory, reserved, mapped;
    CUmemGenericAllocationHandle chunk;
    CUgraph graphs[2];
    CUgraphExec exec;
    bool pushed, capturing;
};

enum { RESERVED = 4 << 20, CHUNK = 2 << 20 };

static bool works(CUresult result)
{
    return result == CUDA_SUCCESS;
}

static bool make_objects(struct made *m)
{
    CUdevice device;
    if (!works(m->d->cuInit(0)) || !works(m->d->cuDeviceGet(&device, 0)) ||
        !works(m->d->cuDevicePrimaryCtxRetain(&m->context, device)))
        return false;
    m->pushed = works(m->d->cuCtxPushCurrent(m->context));
    return m->pushed && works(m->d->cuModuleLoadData(&m->module, rpt_kernel_image(m->d))) &&
           works(m->d->cuStreamCreate(&m->streams[0], CU_STREAM_NON_BLOCKING)) &&
           works(m->d->cuStreamCreate(&m->streams[1], CU_STREAM_NON_BLOCKING)) &&
           works(m->d->cuEventCreate(&m->event, CU_EVENT_DISABLE_TIMING)) &&
           works(m->d->cuMemAlloc(&m->memory, 64));
}

static bool make_mapping(struct made *m)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (!works(m->d->cuMemAddressReserve(&m->reserved, RESERVED, 0, 0, 0)) ||
        !works(m->d->cuMemCreate(&m->chunk, CHUNK, &prop, 0)) ||
        !works(m->d->cuMemMap(m->reserved, CHUNK, 0, m->chunk, 0)))
        return false;
    m->mapped = m->reserved;
    return works(m->d->cuMemSetAccess(m->mapped, CHUNK, &access, 1));
}

static bool launch(struct made *m, CUstream stream, CUdeviceptr to, uint32_t value)
{
    CUfunction function;
    void *params[] = {&to, &value};
    return works(m->d->cuModuleGetFunction(&function, m->module, "rpt_mix")) &&
           works(m->d->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static bool join(struct made *m, CUstream from, CUstream to)
{
    return works(m->d->cuEventRecord(m->event, from)) &&
           works(m->d->cuStreamWaitEvent(to, m->event, 0));
}

/* Work on two streams, forked and joined. */
static bool capture(struct made *m, CUdeviceptr to, CUgraph *out_graph)
{
    CUstream a = m->streams[0], b = m->streams[1];
    m->capturing = works(m->d->cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    if (!m->capturing || !launch(m, a, to, 1) || !join(m, a, b) || !launch(m, b, to + 4, 2) ||
        !works(m->d->cuMemsetD32Async(to + 8, 7, 1, a)) || !join(m, b, a) ||
        !works(m->d->cuMemcpyDtoDAsync(to + 12, to + 4, 4, a)))
        return false;
    m->capturing = false; /* ended, whatever it returns */
    return works(m->d->cuStreamEndCapture(a, out_graph));
}

static bool use_graph(struct made *m)
{
    CUgraphExecUpdateResultInfo info;
    uint32_t word = 0;
    return works(m->d->cuGraphInstantiateWithFlags(&m->exec, m->graphs[0], 0)) &&
           works(m->d->cuGraphUpload(m->exec, m->streams[0])) &&
           works(m->d->cuGraphLaunch(m->exec, m->streams[0])) &&
           works(m->d->cuGraphExecUpdate(m->exec, m->graphs[1], &info)) &&
           works(m->d->cuGraphLaunch(m->exec, m->streams[1])) && works(m->d->cuCtxSynchronize()) &&
           works(m->d->cuMemcpyDtoH(&word, m->mapped + 8, 4)) && word == 7;
}

static void give_back(struct made *m)
{
    CUgraph lost = NULL;
    CUcontext popped;
    if (m->capturing && works(m->d->cuStreamEndCapture(m->streams[0], &lost)) && lost)
        m->d->cuGraphDestroy(lost);
    if (m->pushed)
        rpi_driver_host()->cuCtxSynchronize(); /* one that cannot be made to fail */
    for (int i = 0; i < 2; i++) {
        if (m->streams[i])
            m->d->cuStreamDestroy(m->streams[i]);
        if (m->graphs[i])
            m->d->cuGraphDestroy(m->graphs[i]);
    }
    if (m->exec)
        m->d->cuGraphExecDestroy(m->exec);
    if (m->mapped)
        m->d->cuMemUnmap(m->mapped, CHUNK);
    if (m->chunk)
        m->d->cuMemRelease(m->chunk);
    if (m->reserved)
        m->d->cuMemAddressFree(m->reserved, RESERVED);
    if (m->memory)
        m->d->cuMemFree(m->memory);
    if (m->event)
        m->d->cuEventDestroy(m->event);
    if (m->module)
        m->d->cuModuleUnload(m->module);
    if (m->pushed)
        m->d->cuCtxPopCurrent(&popped);
    if (m->context)
        m->d->cuDevicePrimaryCtxRelease(0);
    rpi_host_races_clear();
}

static bool make_and_give_back(const struct rp_driver *driver, void *user)
{
    struct made m = {.d = driver};
    (void)user;
    bool worked = make_objects(&m) && make_mapping(&m) && capture(&m, m.memory, &m.graphs[0]) &&
                  capture(&m, m.mapped, &m.graphs[1]) && use_graph(&m);
    give_back(&m);
    return worked;
}

static const char *what_is_left(void *user)
{
    const struct rpi_host_statistics *before = user;
    struct rpi_host_statistics now;
    rpi_host_statistics(&now);
    const struct {
        const char *name;
        uint64_t before, now;
    } counts[] = {
        {"device memory", before->physical_bytes, now.physical_bytes},
        {"reserved addresses", before->reserved_bytes, now.reserved_bytes},
        {"allocations", before->allocations, now.allocations},
        {"chunks", before->chunks, now.chunks},
        {"mappings", before->mappings, now.mappings},
        {"streams", before->streams, now.streams},
        {"events", before->events, now.events},
        {"modules", before->modules, now.modules},
        {"graphs", before->graphs, now.graphs},
        {"executable graphs", before->execs, now.execs},
        {"captures", before->captures, now.captures},
        {"pending work", before->pending, now.pending},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].before != counts[i].now)
            return counts[i].name;
    return NULL;
}

static void test_every_driver_call(void **state)
{
    (void)state;
    static const CUresult results[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE,
                                       CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_UNKNOWN};
    struct rpi_host_statistics before;
    struct rpt_scenario scenario = {make_and_give_back, what_is_left, &before, 0};
    assert_true(make_and_give_back(rpi_driver_host(), NULL));
    rpi_host_statistics(&before);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        int64_t faults = rpt_fault_loop(rpi_driver_host(), &scenario, results[i]);
        assert_true(faults > 40);
        print_message("%s: %d calls failed in turn\n", rpi_result_name(results[i]), (int)faults);
    }
}

static void test_every_allocation(void **state)
{
    (void)state;
    struct rpi_host_statistics before;
    struct rpt_scenario scenario = {make_and_give_back, what_is_left, &before, 0};
    assert_true(make_and_give_back(rpi_driver_host(), NULL));
    rpi_host_statistics(&before);
    assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > 20);
}

/* The loop itself can fail: a scenario that leaves a stream behind is caught. */
static bool leak_a_stream(const struct rp_driver *driver, void *user)
{
    struct made m = {.d = driver};
    (void)user;
    bool worked = make_objects(&m) && launch(&m, m.streams[0], m.memory, 1);
    m.streams[1] = worked ? m.streams[1] : NULL;
    give_back(&m);
    return worked;
}

static void test_the_loop_finds_a_leak(void **state)
{
    (void)state;
    struct rpi_host_statistics before;
    struct rpt_scenario scenario = {leak_a_stream, what_is_left, &before, 0};
    assert_true(make_and_give_back(rpi_driver_host(), NULL));
    rpi_host_statistics(&before);
    assert_int_equal(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_UNKNOWN), -1);
    rpi_host_reset();
}

/* Retained throughout: releasing the last one would give back what a scenario forgot. */
static int retain_context(void **state)
{
    CUcontext context;
    (void)state;
    const struct rp_driver *driver = rpi_driver_host();
    return works(driver->cuInit(0)) && works(driver->cuDevicePrimaryCtxRetain(&context, 0)) ? 0
                                                                                            : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_driver_call),
        cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_the_loop_finds_a_leak),
    };
    return cmocka_run_group_tests(tests, retain_context, NULL);
}
