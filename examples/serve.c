/* SPDX-License-Identifier: MIT
 *
 * A function of any batch size as graphs: sizes are rounded up to buckets, memory is estimated
 * before it is taken, outputs are fresh, and a report tells what became of each shape.
 *
 *     cc serve.c -o serve $(pkg-config --cflags --libs reprise) && ./serve
 *
 * Runs on NVIDIA's driver where there is one and on Reprise's host driver elsewhere; no CUDA
 * toolkit is needed.
 */
#include <reprise.h>
#include <reprise_heap.h>

#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 256, MOST_ROWS = 16 };

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

/* The work, for as many rows as there are: each row of argument 1 becomes that of argument 0, with
 * its first number set to 7. */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct driver *driver = (const struct driver *)user;
    struct CUstream_st *stream = rp_call_stream(call);
    struct rp_arg in, out;
    uint64_t scratch;
    if (!rp_call_tensor(call, 0, &in) || !rp_call_tensor(call, 1, &out))
        return RP_ERROR_INVALID_ARGUMENT;
    rp_status status = rp_call_alloc(call, in.bytes, stream, &scratch, err);
    if (status)
        return status;
    int result = driver->copy(scratch, in.address, in.bytes, stream);
    for (int64_t row = 0; !result && row < in.shape[0]; row++)
        result = driver->fill(scratch + (uint64_t)row * WIDTH * 4, 7, 1, stream);
    if (result || driver->copy(out.address, scratch, out.bytes, stream))
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

static struct rp_arg rows_at(uint64_t address, const int64_t shape[2], enum rp_arg_role role)
{
    struct rp_arg arg = {.address = address,
                         .bytes = (uint64_t)(shape[0] * WIDTH) * 4,
                         .role = role,
                         .dtype = RP_DTYPE_UINT32,
                         .rank = 2,
                         .shape = shape};
    return arg;
}

/* Estimates buckets 16, 4 and 1, captures them, and says whether both agree. */
static int capture(struct rp_callable *callable)
{
    static const int64_t shapes[3][2] = {{16, WIDTH}, {4, WIDTH}, {1, WIDTH}};
    struct rp_arg args[3][2];
    struct rp_inputs inputs[3];
    struct rp_callable *callables[3];
    struct rp_estimate *estimate;
    struct rp_estimate_info estimated = {.size = sizeof estimated};
    struct rp_callable_info info = {.size = sizeof info};
    struct rp_pool_info taken = {.size = sizeof taken};
    struct rp_error err;
    for (int i = 0; i < 3; i++) {
        args[i][0] = rows_at(0, shapes[i], RP_ARG_IN);
        args[i][1] = rows_at(0, shapes[i], RP_ARG_OUT);
        inputs[i].args = args[i];
        inputs[i].arg_count = 2;
        inputs[i].key = NULL;
        inputs[i].key_bytes = 0;
        callables[i] = callable;
    }
    check(rp_estimate(callables, inputs, 3, &estimate, &err), &err);
    rp_estimate_info(estimate, &estimated);
    rp_estimate_destroy(estimate);
    check(rp_callable_capture(callable, inputs, 3, NULL, NULL, NULL, &err), &err);
    rp_callable_info(callable, &info);
    rp_pool_info(info.pool, &taken);
    printf("estimated %llu bytes, taken %llu\n", (unsigned long long)estimated.mapped_bytes,
           (unsigned long long)taken.mapped_bytes);
    return estimated.planned_bytes == taken.planned_bytes &&
           estimated.mapped_bytes == taken.mapped_bytes;
}

/* Calls with so many rows and checks the output, which is fresh. */
static int serve(struct rp_callable *callable, struct rp_heap *heap, const struct driver *driver,
                 uint64_t in, int64_t rows)
{
    static unsigned host[MOST_ROWS * WIDTH];
    const int64_t shape[2] = {rows, WIDTH};
    struct rp_arg args[] = {rows_at(in, shape, RP_ARG_IN), rows_at(0, shape, RP_ARG_OUT)};
    struct rp_inputs inputs = {args, 2, NULL, 0};
    struct rp_error err;
    check(rp_callable_call(callable, &inputs, NULL, &err), &err);
    check_driver(driver->synchronize());
    check_driver(driver->download(host, args[1].address, (size_t)rows * WIDTH * 4));
    check(rp_heap_free(heap, args[1].address, &err), &err);
    int right = 1;
    for (int64_t i = 0; i < rows * WIDTH; i++)
        right &= host[i] == (i % WIDTH ? (unsigned)i : 7u);
    return right;
}

int main(void)
{
    static const struct rp_axis axes[] = {{0, 0}, {1, 0}};
    static const int64_t buckets[] = {1, 4, 16};
    static const struct rp_dim batch = {"batch", axes, 2, RP_BUCKET_LIST, 0, buckets, 3};
    static unsigned host[MOST_ROWS * WIDTH];
    struct rp_error err;
    struct rp_device *device;
    struct rp_heap *heap;
    struct rp_callable *callable;
    struct driver driver;
    unsigned long long in = 0;
    const char *report;

    check(rp_device_open(NULL, &device, &err), &err);
    check(rp_device_push(device, &err), &err);
    load(&driver, device);
    check(rp_heap_create(device, NULL, &heap, &err), &err);
    for (unsigned i = 0; i < MOST_ROWS * WIDTH; i++)
        host[i] = i;
    check_driver(driver.alloc(&in, sizeof host));
    check_driver(driver.upload(in, host, sizeof host));

    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    options.name = "serve";
    options.heap = heap;
    options.dims = &batch;
    options.dim_count = 1;
    check(rp_callable_create(device, &options, work, &driver, &callable, &err), &err);
    int right = capture(callable);
    for (int64_t rows = 1; rows <= MOST_ROWS; rows++)
        right &= serve(callable, heap, &driver, in, rows);
    check(rp_callable_report(callable, RP_REPORT_TEXT, &report, &err), &err);
    printf("%s%s\n", report, right ? "all right" : "WRONG");

    rp_callable_destroy(callable);
    rp_heap_destroy(heap);
    rp_device_pop(device);
    rp_device_destroy(device);
    return right ? 0 : 1;
}
