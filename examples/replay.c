/* SPDX-License-Identifier: MIT
 *
 * Captures a piece of GPU work once, then replays it on other buffers.
 *
 *     cc replay.c -o replay $(pkg-config --cflags --libs reprise) && ./replay
 *
 * Runs on NVIDIA's driver where there is one and on Reprise's host driver elsewhere; no CUDA
 * toolkit is needed.
 */
#include <reprise.h>

#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 20, BYTES = COUNT * 4 };

/* The driver's functions that this program calls: NVIDIA's own declarations, in short. */
struct driver {
    int (*alloc)(unsigned long long *address, size_t bytes);
    int (*upload)(unsigned long long to, const void *from, size_t bytes);
    int (*download)(void *to, unsigned long long from, size_t bytes);
    int (*copy)(unsigned long long to, unsigned long long from, size_t bytes, struct CUstream_st *);
    int (*fill)(unsigned long long to, unsigned value, size_t count, struct CUstream_st *);
    int (*synchronize)(void);
};

static void check(rp_status status, const struct rp_error *err)
{
    if (status == RP_OK)
        return;
    fprintf(stderr, "%s: %s\n", rp_status_name(status), err->message);
    exit(1);
}

static void check_driver(int result)
{
    if (result == 0)
        return;
    fprintf(stderr, "the driver answered %d\n", result);
    exit(1);
}

/* The work: argument 1 becomes argument 0 with its first half overwritten, by way of scratch memory
 * that lives only here. It takes every address from the call, so that it can be captured. */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct driver *driver = (const struct driver *)user;
    struct CUstream_st *stream = rp_call_stream(call);
    uint64_t scratch;
    rp_status status = rp_call_alloc(call, BYTES, stream, &scratch, err);
    if (status)
        return status;
    if (driver->copy(scratch, rp_call_arg(call, 0), BYTES, stream) ||
        driver->fill(scratch, 7, COUNT / 2, stream) ||
        driver->copy(rp_call_arg(call, 1), scratch, BYTES, stream))
        return RP_ERROR_DRIVER;
    return rp_call_free(call, scratch, err);
}

static void load(struct driver *driver, const struct rp_device *device)
{
    driver->alloc = (int (*)(unsigned long long *, size_t))rp_device_function(device, "cuMemAlloc");
    driver->upload = (int (*)(unsigned long long, const void *, size_t))rp_device_function(
        device, "cuMemcpyHtoD");
    driver->download =
        (int (*)(void *, unsigned long long, size_t))rp_device_function(device, "cuMemcpyDtoH");
    driver->copy = (int (*)(unsigned long long, unsigned long long, size_t,
                            struct CUstream_st *))rp_device_function(device, "cuMemcpyDtoDAsync");
    driver->fill = (int (*)(unsigned long long, unsigned, size_t,
                            struct CUstream_st *))rp_device_function(device, "cuMemsetD32Async");
    driver->synchronize = (int (*)(void))rp_device_function(device, "cuCtxSynchronize");
}

/* A device buffer whose element i is first + i. */
static unsigned long long numbers(const struct driver *driver, unsigned *host, unsigned first)
{
    unsigned long long address = 0;
    for (unsigned i = 0; i < COUNT; i++)
        host[i] = first + i;
    check_driver(driver->alloc(&address, BYTES));
    check_driver(driver->upload(address, host, BYTES));
    return address;
}

int main(void)
{
    struct rp_error err;
    struct rp_device *device;
    struct rp_pool *pool;
    struct rp_graph *graph;
    struct driver driver;
    unsigned *host = (unsigned *)malloc(BYTES);
    if (!host)
        return 1;

    check(rp_device_open(NULL, &device, &err), &err);
    check(rp_device_push(device, &err), &err);
    load(&driver, device);
    check(rp_pool_create(device, NULL, &pool, &err), &err);

    struct rp_arg args[] = {
        {.address = numbers(&driver, host, 0), .bytes = BYTES, .role = RP_ARG_IN},
        {.address = numbers(&driver, host, 0), .bytes = BYTES, .role = RP_ARG_OUT}};
    check(rp_run(pool, work, &driver, args, 2, NULL, &err), &err); /* once without a graph */
    check(rp_graph_capture(pool, NULL, work, &driver, args, 2, &graph, &err), &err);

    /* The same graph, on other buffers. */
    struct rp_arg others[] = {
        {.address = numbers(&driver, host, 1000), .bytes = BYTES, .role = RP_ARG_IN},
        {.address = numbers(&driver, host, 0), .bytes = BYTES, .role = RP_ARG_OUT}};
    check(rp_graph_replay(graph, others, 2, NULL, &err), &err);
    check_driver(driver.synchronize());
    check_driver(driver.download(host, others[1].address, BYTES));

    struct rp_device_info device_info = {.size = sizeof device_info};
    struct rp_graph_info info = {.size = sizeof info};
    rp_device_info(device, &device_info);
    rp_graph_info(graph, &info);
    printf("%s: %zu nodes, %llu bytes planned, at least %llu needed\n", device_info.name,
           info.nodes, (unsigned long long)info.planned_bytes,
           (unsigned long long)info.lower_bound_bytes);
    int right = host[0] == 7 && host[COUNT - 1] == 1000 + COUNT - 1;
    printf("out = %u ... %u: %s\n", host[0], host[COUNT - 1], right ? "right" : "wrong");

    rp_graph_destroy(graph);
    rp_pool_destroy(pool);
    rp_device_pop(device);
    rp_device_destroy(device);
    free(host);
    return right ? 0 : 1;
}
