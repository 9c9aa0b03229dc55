/* SPDX-License-Identifier: MIT
 *
 * Kernels of libraries, which belong to no context, in what is captured: bound, named and checked
 * like functions of modules, also by a driver that names the kernel alone in its nodes, and after
 * the context that they were used in has ended.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "graph/bind/bind.h"
#include "reprise_tools.h"

#include <stdio.h>

enum { COUNT = 64, ARGS = 2 };

static struct {
    struct rpt_fixture f;
    CUlibrary library;
    CUkernel scale;
    struct rp_driver table; /* that names kernels alone */
} t;

static CUresult get_kernel_alone(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    CUresult result = rpi_driver_host()->cuGraphKernelNodeGetParams(node, params);
    if (result == CUDA_SUCCESS && params->kern)
        params->func = NULL;
    return result;
}

static int open_on(const struct rp_driver *driver)
{
    const struct rp_driver *host = rpi_driver_host();
    rpt_open_on(&t.f, driver, NULL);
    assert_int_equal(
        host->cuLibraryLoadData(&t.library, rpt_kernel_image(host), NULL, NULL, 0, NULL, NULL, 0),
        0);
    assert_int_equal(host->cuLibraryGetKernel(&t.scale, t.library, "rpt_scale"), 0);
    return 0;
}

static int open_host(void **state)
{
    (void)state;
    return open_on(rpi_driver_host());
}

static int open_alone(void **state)
{
    (void)state;
    t.table = *rpi_driver_host();
    t.table.cuGraphKernelNodeGetParams = get_kernel_alone;
    return open_on(&t.table);
}

/* A driver that does not know libraries, and names their kernels all the same. */
static int open_unknown(void **state)
{
    (void)state;
    t.table = *rpi_driver_host();
    t.table.cuGraphKernelNodeGetParams = get_kernel_alone;
    t.table.capabilities &= ~(unsigned)RPI_CAP_LIBRARY;
    return open_on(&t.table);
}

static int close_all(void **state)
{
    (void)state;
    assert_int_equal(rpi_driver_host()->cuLibraryUnload(t.library), 0);
    rpt_close(&t.f);
    return 0;
}

static CUresult launch(const struct rp_driver *driver, CUstream s, uint64_t to, uint64_t from,
                       float factor)
{
    uint32_t count = COUNT;
    void *params[] = {&to, &from, &factor, &count};
    return driver->cuLaunchKernel((CUfunction)(void *)t.scale, 1, 1, 1, 32, 1, 1, 0, s, params,
                                  NULL);
}

/* out = 2 in, through a block. */
static rp_status doubles(struct rp_call *call, void *user, struct rp_error *err)
{
    CUstream s = rp_call_stream(call);
    uint64_t block;
    (void)user;
    rp_status status = rp_call_alloc(call, COUNT * 4, s, &block, err);
    if (status != RP_OK)
        return status;
    CUresult result = launch(t.f.driver, s, block, rp_call_arg(call, 0), 4);
    if (result == CUDA_SUCCESS)
        result = launch(t.f.driver, s, rp_call_arg(call, 1), block, 0.5f);
    return result == CUDA_SUCCESS ? rp_call_free(call, block, err)
                                  : rpi_error_driver(err, result, "cuLaunchKernel", "doubling");
}

static void check_replays(struct rp_graph *graph)
{
    for (int call = 0; call < 3; call++) {
        float out[COUNT];
        struct rp_arg args[ARGS] = {rpt_arg(rpt_buffer(&t.f, COUNT, (float)call), COUNT, RP_ARG_IN),
                                    rpt_arg(rpt_buffer(&t.f, COUNT, -1), COUNT, RP_ARG_OUT)};
        RPT_OK(&t.f, rp_graph_replay(graph, args, ARGS, t.f.streams[0], &t.f.err));
        rpt_read(&t.f, args[1].address, out, COUNT);
        for (uint32_t i = 0; i < COUNT; i++)
            assert_true(out[i] == 2 * ((float)call + (float)(i % 7)));
        for (size_t k = 0; k < ARGS; k++)
            t.f.driver->cuMemFree(args[k].address);
    }
}

static struct rp_graph *capture(void)
{
    struct rp_graph *graph = NULL;
    struct rp_arg args[ARGS] = {rpt_arg(0, COUNT, RP_ARG_IN), rpt_arg(0, COUNT, RP_ARG_OUT)};
    RPT_OK(&t.f, rp_graph_capture(t.f.pool, NULL, doubles, NULL, args, ARGS, &graph, &t.f.err));
    return graph;
}

static void arguments_are_bound_and_sites_named(void **state)
{
    (void)state;
    struct rp_graph *graph = capture();
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(graph, &info);
    assert_int_equal(info.bindable_args, ARGS);
    assert_int_equal(info.sites, 4);
    for (size_t i = 0; i < info.sites; i++) {
        struct rp_graph_site site = {.size = sizeof site};
        RPT_OK(&t.f, rp_graph_site(graph, i, &site, &t.f.err));
        assert_string_equal(site.function, "rpt_scale");
        assert_int_equal(site.parameter, i % 2);
        assert_int_equal(site.offset, 0);
    }
    check_replays(graph);
    rp_graph_info(graph, &info);
    assert_int_equal(info.bound_args, ARGS);
    rp_graph_destroy(graph);
}

static void what_cannot_be_read_is_copied(void **state)
{
    (void)state;
    struct rp_graph *graph = capture();
    check_replays(graph);
    for (size_t k = 0; k < ARGS; k++) {
        struct rp_graph_arg_info info = {.size = sizeof info};
        RPT_OK(&t.f, rp_graph_arg_info(graph, k, &info, &t.f.err));
        assert_string_equal(info.reason, rpi_copy_reason_text(RPI_COPY_HIDDEN));
    }
    rp_graph_destroy(graph);
}

/* A kernel that is given a block too late. */
static rp_status frees_early(struct rp_call *call, void *user, struct rp_error *err)
{
    CUstream s = rp_call_stream(call);
    uint64_t block;
    (void)user;
    rp_status status = rp_call_alloc(call, COUNT * 4, s, &block, err);
    if (status == RP_OK)
        status = rp_call_free(call, block, err);
    if (status != RP_OK)
        return status;
    CUresult result = launch(t.f.device->given, s, block, rp_call_arg(call, 0), 1);
    return result ? rpi_error_driver(err, result, "cuLaunchKernel", "late") : RP_OK;
}

static void a_check_looks_at_their_parameters(void **state)
{
    (void)state;
    uint64_t in = rpt_buffer(&t.f, COUNT, 1);
    struct rp_arg arg = rpt_arg(in, COUNT, RP_ARG_IN);
    struct rp_findings *findings = NULL;
    struct rp_obstacle obstacle = {.size = sizeof obstacle};
    RPT_OK(&t.f, rp_check(t.f.device, frees_early, NULL, &arg, 1, &findings, &t.f.err));
    assert_int_equal(rp_findings_count(findings), 1);
    assert_int_equal(rp_findings_obstacle(findings, 0, &obstacle), 1);
    assert_string_equal(obstacle.kind, "use-after-free");
    assert_string_equal(obstacle.operation, "cuLaunchKernel");
    rp_findings_destroy(findings);
    t.f.driver->cuMemFree(in);
}

static bool loads_and_captures(const struct rp_driver *driver, void *user)
{
    struct rpt_scene scene = {0};
    CUlibrary library = NULL;
    CUkernel kernel;
    CUfunction function;
    struct rp_arg *args = user;
    bool worked = driver->cuLibraryLoadData(&library, rpt_kernel_image(driver), NULL, NULL, 0, NULL,
                                            NULL, 0) == CUDA_SUCCESS &&
                  driver->cuLibraryGetKernel(&kernel, library, "rpt_add") == CUDA_SUCCESS &&
                  driver->cuKernelGetFunction(&function, kernel) == CUDA_SUCCESS &&
                  rpt_scene_open(&scene, driver) &&
                  rp_graph_capture(scene.pool, NULL, doubles, NULL, args, ARGS, &scene.graph,
                                   NULL) == RP_OK &&
                  rp_graph_replay(scene.graph, args, ARGS, t.f.streams[0], NULL) == RP_OK;
    t.f.driver->cuCtxSynchronize();
    rpt_scene_close(&scene);
    if (library)
        t.f.driver->cuLibraryUnload(library);
    return worked;
}

static const char *modules_left(void *user)
{
    struct rpi_host_statistics now;
    (void)user;
    rpi_host_statistics(&now);
    return now.modules == 2 ? NULL : "modules"; /* the fixture's, and the library's in use */
}

static void any_call_may_fail(void **state)
{
    (void)state;
    struct rp_arg args[ARGS] = {rpt_arg(rpt_buffer(&t.f, COUNT, 1), COUNT, RP_ARG_IN),
                                rpt_arg(rpt_buffer(&t.f, COUNT, 0), COUNT, RP_ARG_OUT)};
    struct rpt_scenario scenario = {.run = loads_and_captures, .left = modules_left, .user = args};
    CUfunction function;
    assert_int_equal(t.f.driver->cuKernelGetFunction(&function, t.scale), 0);
    assert_true(rpt_fault_loop(t.f.driver, &scenario, CUDA_ERROR_UNKNOWN) > 30);
    struct rpi_host_options before = rpt_ignore_races();
    assert_true(rpt_memory_fault_loop(t.f.driver, &scenario) > 30);
    rpi_host_configure(&before);
    for (size_t k = 0; k < ARGS; k++)
        t.f.driver->cuMemFree(args[k].address);
}

/* A library outlives the context that its kernels were used in, and becomes functions of the next;
 * what was made of it before is gone. */
static void a_library_outlives_the_context(void **state)
{
    (void)state;
    const struct rp_driver *d = rpi_driver_host();
    struct rpi_host_statistics before, after;
    CUlibrary library;
    CUkernel kernel;
    CUfunction first, second;
    CUcontext context;
    const char *name = NULL;
    assert_int_equal(d->cuInit(0), 0);
    assert_int_equal(
        d->cuLibraryLoadData(&library, rpt_kernel_image(d), NULL, NULL, 0, NULL, NULL, 0), 0);
    assert_int_equal(d->cuLibraryGetKernel(&kernel, library, "rpt_fill"), 0);
    assert_int_equal(d->cuKernelGetFunction(&first, kernel), CUDA_ERROR_INVALID_CONTEXT);
    rpi_host_statistics(&before);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(d->cuDevicePrimaryCtxRetain(&context, 0), 0);
        assert_int_equal(d->cuCtxPushCurrent(context), 0);
        assert_int_equal(d->cuKernelGetFunction(&first, kernel), 0);
        assert_int_equal(d->cuKernelGetFunction(&second, kernel), 0);
        assert_ptr_equal(first, second);
        assert_int_equal(d->cuFuncGetName(&name, first), 0);
        assert_string_equal(name, "rpt_fill");
        rpi_host_statistics(&after);
        assert_int_equal(after.modules, before.modules + 1);
        assert_int_equal(d->cuCtxPopCurrent(NULL), 0);
        assert_int_equal(d->cuDevicePrimaryCtxRelease(0), 0);
        rpi_host_statistics(&after);
        assert_int_equal(after.modules, before.modules);
    }
    assert_int_equal(d->cuLibraryUnload(library), 0);
    assert_int_equal(d->cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(d->cuLibraryGetKernel(&kernel, library, "rpt_fill"),
                     CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(
        d->cuLibraryLoadData(&library, rpt_kernel_image(d), NULL, NULL, 0, NULL, NULL, 0), 0);
    rpi_host_reset(); /* takes those with it that nobody unloaded */
}

#define HOST(name)  cmocka_unit_test_setup_teardown(name, open_host, close_all)
#define ALONE(name) cmocka_unit_test_setup_teardown(name, open_alone, close_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOST(arguments_are_bound_and_sites_named),
        ALONE(arguments_are_bound_and_sites_named),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_is_copied, open_unknown, close_all),
        ALONE(any_call_may_fail),
        HOST(a_check_looks_at_their_parameters),
        cmocka_unit_test(a_library_outlives_the_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
