/* SPDX-License-Identifier: MIT
 *
 * What the tests of captured graphs share: the host driver with a pool and the test kernels on it,
 * and launches that a callable can write in one line.
 */
#ifndef TESTS_GRAPH_FIXTURE_H
#define TESTS_GRAPH_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "driver/driver.h"
#include "driver/host/host.h"
#include "graph/handles/device.h"
#include "graph/objects/objects.h"
#include "kernels/kernels.h"
#include "reprise.h"

enum { RPT_STREAMS = 4 };

struct rpt_fixture {
    const struct rp_driver *driver;
    struct rp_device *device;
    struct rp_pool *pool;
    CUmodule module;
    CUfunction fill, add, scale, copy, saxpy, mix, padded, nothing;
    CUstream streams[RPT_STREAMS]; /* beside the one that a callable is given */
    CUevent event;
    struct rp_error err;
};

#define RPT_OK(f, call)                                                                            \
    do {                                                                                           \
        rp_status status_ = (call);                                                                \
        if (status_ != RP_OK)                                                                      \
            print_error("%s: %s\n", rp_status_name(status_), (f)->err.message);                    \
        assert_int_equal(status_, RP_OK);                                                          \
    } while (0)

/* The device's context is current on this thread until rpt_leave. */
static inline void rpt_open_device(struct rpt_fixture *f, const struct rp_driver *driver,
                                   int ordinal, const struct rp_pool_options *options)
{
    memset(f, 0, sizeof *f);
    f->driver = driver;
    RPT_OK(f, rpi_device_open_on(driver, ordinal, &f->device, &f->err));
    RPT_OK(f, rp_pool_create(f->device, options, &f->pool, &f->err));
    RPT_OK(f, rp_device_push(f->device, &f->err));
    assert_int_equal(driver->cuModuleLoadData(&f->module, rpt_kernel_image(driver)), 0);
    const struct {
        CUfunction *function;
        const char *name;
    } wanted[] = {{&f->fill, "rpt_fill"},     {&f->add, "rpt_add"},        {&f->scale, "rpt_scale"},
                  {&f->copy, "rpt_copy"},     {&f->saxpy, "rpt_saxpy"},    {&f->mix, "rpt_mix"},
                  {&f->padded, "rpt_padded"}, {&f->nothing, "rpt_nothing"}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        assert_int_equal(driver->cuModuleGetFunction(wanted[i].function, f->module, wanted[i].name),
                         0);
    for (int i = 0; i < RPT_STREAMS; i++)
        assert_int_equal(driver->cuStreamCreate(&f->streams[i], CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(driver->cuEventCreate(&f->event, CU_EVENT_DISABLE_TIMING), 0);
}

static inline void rpt_open_on(struct rpt_fixture *f, const struct rp_driver *driver,
                               const struct rp_pool_options *options)
{
    rpt_open_device(f, driver, 0, options);
}

static inline void rpt_open(struct rpt_fixture *f)
{
    rpt_open_on(f, rpi_driver_host(), NULL);
}

/* Its device's context is current. */
static inline void rpt_leave(struct rpt_fixture *f)
{
    f->driver->cuEventDestroy(f->event);
    for (int i = 0; i < RPT_STREAMS; i++)
        f->driver->cuStreamDestroy(f->streams[i]);
    f->driver->cuModuleUnload(f->module);
    rp_device_pop(f->device);
    rp_pool_destroy(f->pool);
    rp_device_destroy(f->device);
}

/* Nothing of the device may be left but what the fixture itself took. */
static inline void rpt_close(struct rpt_fixture *f)
{
    rpt_leave(f);
    if (strcmp(f->driver->provider, "host") != 0)
        return; /* no other driver tells what it holds */
    struct rpi_host_statistics left;
    rpi_host_statistics(&left);
    rpi_host_reset(); /* so that a test that fails spoils no other */
    rpi_host_races_clear();
    assert_int_equal(left.physical_bytes, 0);
    assert_int_equal(left.chunks, 0);
    assert_int_equal(left.mappings, 0);
    assert_int_equal(left.reservations, 0);
    assert_int_equal(left.streams, 0);
    assert_int_equal(left.events, 0);
    assert_int_equal(left.graphs, 0);
    assert_int_equal(left.execs, 0);
    assert_int_equal(left.captures, 0);
    assert_int_equal(left.races, 0);
}

/* Setup and teardown of a test that finds the fixture in *state. */
static inline int rpt_setup(void **state)
{
    static struct rpt_fixture fixture;
    rpt_open(&fixture);
    *state = &fixture;
    return 0;
}

static inline int rpt_teardown(void **state)
{
    rpt_close(*state);
    return 0;
}

#define RPT_TEST(name) cmocka_unit_test_setup_teardown(name, rpt_setup, rpt_teardown)

/* The last error has these words. */
static inline void rpt_says(const struct rpt_fixture *f, const char *what)
{
    if (!strstr(f->err.message, what))
        print_error("not said: '%s' in '%s'\n", what, f->err.message);
    assert_non_null(strstr(f->err.message, what));
}

/* What a scenario of a fault loop makes on the driver that it is given. */
struct rpt_scene {
    struct rp_device *device;
    struct rp_pool *pool;
    struct rp_graph *graph; /* the scenario's to capture */
    struct rp_error err;
};

/* A device and a pool of it; false where one of them fails. Ends with rpt_scene_close either way.
 */
static inline bool rpt_scene_open(struct rpt_scene *scene, const struct rp_driver *driver)
{
    memset(scene, 0, sizeof *scene);
    return rpi_device_open_on(driver, 0, &scene->device, &scene->err) == RP_OK &&
           rp_pool_create(scene->device, NULL, &scene->pool, &scene->err) == RP_OK;
}

static inline void rpt_scene_close(struct rpt_scene *scene)
{
    rp_graph_destroy(scene->graph);
    rp_pool_destroy(scene->pool);
    rp_device_destroy(scene->device);
}

/* ---- For callables: each returns a status, so that they chain with && -----------------------*/

static inline rp_status rpt_launch(const struct rpt_fixture *f, CUfunction function,
                                   CUstream stream, void **params, struct rp_error *err)
{
    CUresult result =
        f->driver->cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
    return result == CUDA_SUCCESS
               ? RP_OK
               : rpi_error_driver(err, result, "cuLaunchKernel", "launching a test kernel");
}

static inline rp_status rpt_fill(const struct rpt_fixture *f, CUstream stream, uint64_t to,
                                 float value, uint32_t count, struct rp_error *err)
{
    void *params[] = {&to, &value, &count};
    return rpt_launch(f, f->fill, stream, params, err);
}

static inline rp_status rpt_add(const struct rpt_fixture *f, CUstream stream, uint64_t to,
                                uint64_t a, uint64_t b, uint32_t count, struct rp_error *err)
{
    void *params[] = {&to, &a, &b, &count};
    return rpt_launch(f, f->add, stream, params, err);
}

static inline rp_status rpt_scale(const struct rpt_fixture *f, CUstream stream, uint64_t to,
                                  uint64_t from, float factor, uint32_t count, struct rp_error *err)
{
    void *params[] = {&to, &from, &factor, &count};
    return rpt_launch(f, f->scale, stream, params, err);
}

static inline rp_status rpt_saxpy(const struct rpt_fixture *f, CUstream stream, uint64_t y,
                                  uint64_t x, float a, uint32_t count, struct rp_error *err)
{
    void *params[] = {&y, &x, &a, &count};
    return rpt_launch(f, f->saxpy, stream, params, err);
}

/* Work enqueued on `to` from now on comes after all that `from` was given. */
static inline rp_status rpt_join(const struct rpt_fixture *f, CUstream from, CUstream to,
                                 struct rp_error *err)
{
    CUresult result = f->driver->cuEventRecord(f->event, from);
    if (result == CUDA_SUCCESS)
        result = f->driver->cuStreamWaitEvent(to, f->event, 0);
    return result == CUDA_SUCCESS ? RP_OK
                                  : rpi_error_driver(err, result, "cuStreamWaitEvent", "joining");
}

static inline bool rpt_is_capturing(const struct rpt_fixture *f, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return f->driver->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* Makes a copy of `child` the next node of a stream that is captured. */
static inline CUresult rpt_add_child(const struct rpt_fixture *f, CUstream stream, CUgraph child)
{
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;
    const CUgraphNode *terminals = NULL;
    const CUgraphEdgeData *edges = NULL;
    size_t count = 0;
    CUgraphNode node;
    CUresult result = f->driver->cuStreamGetCaptureInfo(stream, &status, NULL, &graph, &terminals,
                                                        &edges, &count);
    if (result == CUDA_SUCCESS)
        result = f->driver->cuGraphAddChildGraphNode(&node, graph, terminals, count, child);
    if (result == CUDA_SUCCESS)
        result = f->driver->cuStreamUpdateCaptureDependencies(stream, &node, NULL, 1,
                                                              CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    return result;
}

typedef rp_status rpt_work_fn(const struct rpt_fixture *f, CUstream stream, const void *data,
                              struct rp_error *err);

/* What the work enqueues, in a child graph of what the stream captures, `depth` deep and behind a
 * kernel on each level; takes the fixture's streams from the second on. Just enqueued where the
 * stream is not captured. */
static inline rp_status rpt_within(const struct rpt_fixture *f, CUstream stream, int depth,
                                   rpt_work_fn *work, const void *data, struct rp_error *err)
{
    if (!depth || !rpt_is_capturing(f, stream))
        return work(f, stream, data, err);
    CUstream inner = f->streams[depth];
    CUgraph child = NULL;
    rp_status status = rpt_launch(f, f->nothing, stream, NULL, err);
    if (status != RP_OK)
        return status;
    CUresult result = f->driver->cuStreamBeginCapture(inner, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamBeginCapture", "capturing a child graph");
    status = rpt_within(f, inner, depth - 1, work, data, err);
    result = f->driver->cuStreamEndCapture(inner, &child);
    if (result == CUDA_SUCCESS)
        result = rpt_add_child(f, stream, child);
    if (child)
        f->driver->cuGraphDestroy(child);
    if (status == RP_OK && result != CUDA_SUCCESS)
        status = rpi_error_driver(err, result, "cuStreamEndCapture", "adding a child graph");
    return status;
}

/* ---- Buffers of floats on the device --------------------------------------------------------*/

static inline uint64_t rpt_buffer(const struct rpt_fixture *f, uint32_t count, float value)
{
    CUdeviceptr address = 0;
    float *host = malloc(count * sizeof *host);
    assert_non_null(host);
    for (uint32_t i = 0; i < count; i++)
        host[i] = value + (float)(i % 7);
    assert_int_equal(f->driver->cuMemAlloc(&address, count * sizeof(float)), 0);
    assert_int_equal(f->driver->cuMemcpyHtoD(address, host, count * sizeof(float)), 0);
    free(host);
    return address;
}

static inline void rpt_read(const struct rpt_fixture *f, uint64_t address, float *out,
                            uint32_t count)
{
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    assert_int_equal(f->driver->cuMemcpyDtoH(out, address, count * sizeof *out), 0);
}

static inline struct rp_arg rpt_arg(uint64_t address, uint32_t count, enum rp_arg_role role)
{
    return (struct rp_arg){
        .address = address, .bytes = (uint64_t)count * sizeof(float), .role = role};
}

#endif
