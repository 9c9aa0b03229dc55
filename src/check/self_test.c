/* SPDX-License-Identifier: MIT
 *
 * rp_self_test: does this driver do what captures, binding and updates need? Copies and fills only,
 * so that no kernel has to be there for the device.
 */
#include "base/refuse.h"
#include "base/status.h"
#include "graph/objects/objects.h"
#include "reprise_tools.h"

#include <string.h>

enum { WORDS = 1024, BYTES = 4 * WORDS };

struct testing {
    struct rp_device *device;
    const struct rp_driver *driver;
    CUdeviceptr buffers[4]; /* in, out, and the same elsewhere */
    CUstream stream;
};

static rp_status failed(struct rp_error *err, CUresult result, const char *function)
{
    return rpi_error_driver(err, result, function, "testing the driver");
}

static rp_status make(struct testing *t, struct rp_error *err)
{
    CUresult result = t->driver->cuStreamCreate(&t->stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        return failed(err, result, "cuStreamCreate");
    for (int i = 0; i < 4 && result == CUDA_SUCCESS; i++)
        result = t->driver->cuMemAlloc(&t->buffers[i], BYTES);
    return result == CUDA_SUCCESS ? RP_OK : failed(err, result, "cuMemAlloc");
}

static void finish(struct testing *t)
{
    for (int i = 0; i < 4; i++)
        if (t->buffers[i])
            t->driver->cuMemFree(t->buffers[i]);
    if (t->stream)
        t->driver->cuStreamDestroy(t->stream);
}

/* Are all words of the buffer `value`? */
static rp_status expect(struct testing *t, CUdeviceptr buffer, uint32_t value, struct rp_error *err)
{
    uint32_t words[WORDS];
    CUresult result = t->driver->cuStreamSynchronize(t->stream);
    if (result == CUDA_SUCCESS)
        result = t->driver->cuMemcpyDtoH(words, buffer, BYTES);
    if (result != CUDA_SUCCESS)
        return failed(err, result, "cuMemcpyDtoH");
    for (size_t i = 0; i < WORDS; i++)
        if (words[i] != value)
            return rpi_error(err, RP_ERROR_INTERNAL, "rp_self_test",
                             "a graph wrote %u where %u is right: do not use graphs with this "
                             "driver and device, and report it",
                             words[i], value);
    return RP_OK;
}

/* out = in, through memory of the run. */
static rp_status copy_through(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rp_driver *driver = ((struct testing *)user)->driver;
    CUstream stream = rp_call_stream(call);
    uint64_t block;
    rp_status status = rp_call_alloc(call, BYTES, stream, &block, err);
    if (status != RP_OK)
        return status;
    CUresult result = driver->cuMemsetD32Async(block, 0, WORDS, stream);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemcpyDtoDAsync(block, rp_call_arg(call, 0), BYTES, stream);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemcpyDtoDAsync(rp_call_arg(call, 1), block, BYTES, stream);
    return result == CUDA_SUCCESS ? rp_call_free(call, block, err)
                                  : failed(err, result, "cuMemcpyDtoDAsync");
}

static rp_status replay(struct testing *t, struct rp_graph *graph, int first, uint32_t value,
                        struct rp_error *err)
{
    const struct rp_arg args[] = {
        {.address = t->buffers[first], .bytes = BYTES, .role = RP_ARG_IN},
        {.address = t->buffers[first + 1], .bytes = BYTES, .role = RP_ARG_OUT}};
    CUresult result = t->driver->cuMemsetD32Async(t->buffers[first], value, WORDS, t->stream);
    if (result != CUDA_SUCCESS)
        return failed(err, result, "cuMemsetD32Async");
    rp_status status = rp_graph_replay(graph, args, 2, t->stream, err);
    return status == RP_OK ? expect(t, t->buffers[first + 1], value, err) : status;
}

static rp_status capture(struct testing *t, struct rp_pool **out_pool, struct rp_graph **out_graph,
                         struct rp_error *err)
{
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    struct rp_capture_options named = RP_CAPTURE_OPTIONS_INIT;
    const struct rp_arg args[] = {{.address = t->buffers[0], .bytes = BYTES, .role = RP_ARG_IN},
                                  {.address = t->buffers[1], .bytes = BYTES, .role = RP_ARG_OUT}};
    options.name = named.name = "self-test";
    rp_status status = rp_pool_create(t->device, &options, out_pool, err);
    if (status == RP_OK)
        status = rp_graph_capture(*out_pool, &named, copy_through, t, args, 2, out_graph, err);
    return status;
}

/* bound: on buffers elsewhere too, and without copies. */
static rp_status test_replay(struct testing *t, bool bound, struct rp_error *err)
{
    struct rp_pool *pool = NULL;
    struct rp_graph *graph = NULL;
    struct rp_graph_info info = {.size = sizeof info, .bound_args = 0};
    rp_status status = capture(t, &pool, &graph, err);
    if (status == RP_OK)
        status = replay(t, graph, 0, 0x5eed, err);
    if (status == RP_OK && bound)
        status = replay(t, graph, 2, 0xfeed, err);
    if (status == RP_OK)
        rp_graph_info(graph, &info);
    if (status == RP_OK && bound && info.bound_args != 2)
        status = rpi_error(err, RP_ERROR_UNSUPPORTED, "rp_self_test",
                           "%zu of 2 arguments are bound: replays copy the others, which is right "
                           "but slower",
                           info.bound_args);
    rp_graph_destroy(graph);
    rp_pool_destroy(pool);
    return status;
}

static rp_status test_capture(struct testing *t, struct rp_error *err)
{
    return test_replay(t, false, err);
}

static rp_status test_binding(struct testing *t, struct rp_error *err)
{
    return test_replay(t, true, err);
}

/* A template of one fill. */
static rp_status capture_fill(struct testing *t, uint32_t value, CUgraph *out_graph,
                              struct rp_error *err)
{
    CUresult result =
        t->driver->cuStreamBeginCapture(t->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (result != CUDA_SUCCESS)
        return failed(err, result, "cuStreamBeginCapture");
    CUresult filled = t->driver->cuMemsetD32Async(t->buffers[0], value, WORDS, t->stream);
    result = t->driver->cuStreamEndCapture(t->stream, out_graph);
    return result == CUDA_SUCCESS && filled == CUDA_SUCCESS
               ? RP_OK
               : failed(err, filled == CUDA_SUCCESS ? result : filled, "cuStreamEndCapture");
}

static rp_status update(struct testing *t, CUgraph first, CUgraph second, struct rp_error *err)
{
    CUgraphExec exec = NULL;
    CUgraphExecUpdateResultInfo info;
    CUresult result = t->driver->cuGraphInstantiateWithFlags(&exec, first, 0);
    if (result != CUDA_SUCCESS)
        return failed(err, result, "cuGraphInstantiateWithFlags");
    const char *function = "cuGraphExecUpdate";
    memset(&info, 0, sizeof info);
    result = t->driver->cuGraphExecUpdate(exec, second, &info);
    if (result == CUDA_SUCCESS) {
        function = "cuGraphLaunch";
        result = t->driver->cuGraphLaunch(exec, t->stream);
    }
    rp_status status =
        result == CUDA_SUCCESS ? expect(t, t->buffers[0], 2, err) : failed(err, result, function);
    t->driver->cuStreamSynchronize(t->stream);
    t->driver->cuGraphExecDestroy(exec);
    return status;
}

static rp_status test_update(struct testing *t, struct rp_error *err)
{
    CUgraph first = NULL, second = NULL;
    rp_status status = capture_fill(t, 1, &first, err);
    if (status == RP_OK)
        status = capture_fill(t, 2, &second, err);
    if (status == RP_OK)
        status = update(t, first, second, err);
    if (first)
        t->driver->cuGraphDestroy(first);
    if (second)
        t->driver->cuGraphDestroy(second);
    return status;
}

static const struct {
    const char *name;
    rp_status (*run)(struct testing *t, struct rp_error *err);
} tests[] = {{"capture", test_capture}, {"binding", test_binding}, {"update", test_update}};

int rp_self_test(struct rp_device *device, size_t index, const char **out_name,
                 rp_status *out_status, struct rp_error *err)
{
    if (rpi_is_forked() || !device || !out_name || !out_status) {
        rpi_refuse(err, "rp_self_test", !device ? "device" : !out_name ? "out_name" : "out_status");
        return 0;
    }
    if (index >= sizeof tests / sizeof *tests)
        return 0;
    struct testing t = {.device = device, .driver = device->driver};
    rp_status status = rp_device_push(device, err);
    if (status == RP_OK) {
        status = make(&t, err);
        if (status == RP_OK)
            status = tests[index].run(&t, err);
        finish(&t);
        rp_device_pop(device);
    }
    *out_name = tests[index].name;
    *out_status = status;
    return 1;
}
