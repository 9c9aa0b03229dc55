/* SPDX-License-Identifier: MIT
 *
 * A callable written with the CUDA runtime: a kernel of the program's own launched with <<<>>>, and
 * cudaMemcpyAsync, both on the call's stream. Captured once, replayed on other buffers.
 *
 *     nvcc runtime.cu -o runtime $(pkg-config --cflags --libs reprise) && ./runtime
 *
 * Needs an NVIDIA GPU, or the host driver under the name of NVIDIA's (docs/guides/cuda.md).
 */
#include <reprise.h>

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

enum { COUNT = 1 << 20, BYTES = COUNT * 4, BLOCK = 256 };

static __global__ void scale(float *to, const float *from, float factor, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        to[i] = factor * from[i];
}

static void check(rp_status status, const struct rp_error *err)
{
    if (status == RP_OK)
        return;
    fprintf(stderr, "%s: %s\n", rp_status_name(status), err->message);
    exit(1);
}

static void check_cuda(cudaError_t result)
{
    if (result == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", cudaGetErrorName(result), cudaGetErrorString(result));
    exit(1);
}

/* What a callable says of a call of the runtime's that failed: the library sees none of these. */
static rp_status tell(cudaError_t result, const char *what, struct rp_error *err)
{
    if (result == cudaSuccess)
        return RP_OK;
    err->driver_code = result;
    snprintf(err->driver_name, sizeof err->driver_name, "%s", cudaGetErrorName(result));
    snprintf(err->message, sizeof err->message, "%s: %s", what, cudaGetErrorString(result));
    return RP_ERROR_DRIVER;
}

/* Argument 1 becomes twice argument 0, by way of scratch memory. All of it is enqueued on the call's
 * stream; memory comes from the call, not from cudaMalloc; nothing is waited for. */
static rp_status work(struct rp_call *call, void *, struct rp_error *err)
{
    cudaStream_t stream = rp_call_stream(call);
    uint64_t scratch;
    rp_status status = rp_call_alloc(call, BYTES, stream, &scratch, err);
    if (status != RP_OK)
        return status;
    scale<<<(COUNT + BLOCK - 1) / BLOCK, BLOCK, 0, stream>>>(
        (float *)scratch, (const float *)rp_call_arg(call, 0), 2, COUNT);
    status = tell(cudaGetLastError(), "scale", err);
    if (status != RP_OK)
        return status;
    status = tell(cudaMemcpyAsync((void *)rp_call_arg(call, 1), (const void *)scratch, BYTES,
                                  cudaMemcpyDeviceToDevice, stream),
                  "cudaMemcpyAsync", err);
    return status == RP_OK ? rp_call_free(call, scratch, err) : status;
}

static struct rp_arg buffer(float value, enum rp_arg_role role)
{
    std::vector<float> host(COUNT, value);
    void *address;
    check_cuda(cudaMalloc(&address, BYTES));
    check_cuda(cudaMemcpy(address, host.data(), BYTES, cudaMemcpyHostToDevice));
    struct rp_arg arg = {};
    arg.address = (uint64_t)address;
    arg.bytes = BYTES;
    arg.role = role;
    return arg;
}

int main()
{
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rp_error err;
    struct rp_device *device;
    struct rp_pool *pool;
    struct rp_graph *graph;
    cudaStream_t stream;

    options.driver = "cuda"; /* the runtime's: its context is the device's primary one too */
    check(rp_device_open(&options, &device, &err), &err);
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(rp_pool_create(device, NULL, &pool, &err), &err);

    struct rp_arg args[] = {buffer(1, RP_ARG_IN), buffer(0, RP_ARG_OUT)};
    check(rp_run(pool, work, NULL, args, 2, stream, &err), &err); /* loads the kernel */
    check(rp_graph_capture(pool, NULL, work, NULL, args, 2, &graph, &err), &err);

    struct rp_arg others[] = {buffer(21, RP_ARG_IN), buffer(0, RP_ARG_OUT)};
    check(rp_graph_replay(graph, others, 2, stream, &err), &err);
    check_cuda(cudaStreamSynchronize(stream));

    std::vector<float> host(COUNT);
    check_cuda(cudaMemcpy(host.data(), (void *)others[1].address, BYTES, cudaMemcpyDeviceToHost));
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(graph, &info);
    bool right = host[0] == 42 && host[COUNT - 1] == 42 && info.bound_args == 2;
    printf("%zu nodes, %zu arguments bound; out = %g ... %g: %s\n", info.nodes, info.bound_args,
           host[0], host[COUNT - 1], right ? "right" : "wrong");

    rp_graph_destroy(graph);
    rp_pool_destroy(pool);
    rp_device_destroy(device);
    return right ? 0 : 1;
}
