/* SPDX-License-Identifier: MIT
 *
 * Callables from many threads at once: each thread has callables and streams of its own and calls
 * them with random sizes and new buffers, captures shapes ahead of time, estimates, asks for
 * reports, and now and then destroys a callable and makes another. Callables of all threads lie in
 * one concurrent pool, some in pools of their own; one callable is called by all threads. Work
 * forks to a side stream, runs a host function and a child graph. Every result is compared with
 * what the work computes, to the bit.
 *
 *     callable_threads [--threads N] [--rounds N] [--seed SEED] [--driver host|cuda]
 */
#include "graph_fixture.h"

#include <stdio.h>

enum { MOST_THREADS = 16, OWN = 2, MOST_COUNT = 2000, ROUNDS_A_CALLABLE = 40 };

struct shared {
    struct rpt_fixture f;
    struct rp_pool *pool; /* concurrent */
    struct rp_callable *common;
    struct owner *common_owner;
    unsigned rounds;
    uint64_t seed;
};

/* What the work of a callable needs beside its arguments. */
struct owner {
    struct shared *shared;
    CUstream side;
    CUevent forked, joined;
    atomic_int host_calls;
};

struct worker {
    struct shared *shared;
    unsigned number;
    uint64_t random;
    struct owner owners[OWN];
    struct rp_callable *callables[OWN];
    CUstream stream;
    CUdeviceptr in, out;
    float *host_in, *host_out;
    pthread_t thread;
    bool failed;
    uint64_t calls;
};

static uint32_t below(struct worker *w, uint32_t limit)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->random >> 33) % limit;
}

static bool good(struct worker *w, rp_status status, const struct rp_error *err, const char *what)
{
    if (status == RP_OK)
        return true;
    fprintf(stderr, "thread %u: %s: %s: %s\n", w->number, what, rp_status_name(status),
            err->message);
    w->failed = true;
    return false;
}

/* ---- The work ------------------------------------------------------------------------------ */

static void count_call(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

static rp_status driver_error(CUresult result, const char *function, struct rp_error *err)
{
    return result == CUDA_SUCCESS ? RP_OK : rpi_error_driver(err, result, function, "the work");
}

static rp_status wait(const struct owner *o, CUevent event, CUstream from, CUstream to,
                      struct rp_error *err)
{
    const struct rp_driver *driver = o->shared->f.driver;
    rp_status status = driver_error(driver->cuEventRecord(event, from), "cuEventRecord", err);
    if (status == RP_OK)
        status = driver_error(driver->cuStreamWaitEvent(to, event, 0), "cuStreamWaitEvent", err);
    return status;
}

/* A graph of one fill, as a child of the graph that the stream captures into. */
static rp_status add_child(const struct owner *o, CUstream stream, uint64_t to, uint32_t count,
                           struct rp_error *err)
{
    const struct rpt_fixture *f = &o->shared->f;
    CUgraph child = NULL;
    CUgraphNode node;
    if (!rpt_is_capturing(f, stream))
        return rpt_fill(f, stream, to, 5, count, err); /* an eager run */
    float value = 5;
    void *params[] = {&to, &value, &count};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = f->fill,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 32,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = params};
    CUresult result = f->driver->cuGraphCreate(&child, 0);
    if (result == CUDA_SUCCESS)
        result = f->driver->cuGraphAddKernelNode(&node, child, NULL, 0, &kernel);
    if (result == CUDA_SUCCESS)
        result = rpt_add_child(f, stream, child);
    if (child)
        f->driver->cuGraphDestroy(child);
    return driver_error(result, "cuGraphAddChildGraphNode", err);
}

/* out = 2 in + 3 in + 5: the first on the stream, the second on the side, the last a child graph.
 */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct owner *o = user;
    const struct rpt_fixture *f = &o->shared->f;
    CUstream main = rp_call_stream(call);
    uint64_t in = rp_call_arg(call, 0), out = rp_call_arg(call, 1), twice = 0, thrice = 0;
    struct rp_arg arg;
    rp_call_tensor(call, 0, &arg);
    uint32_t count = (uint32_t)(arg.bytes / sizeof(float));
    rp_status status = wait(o, o->forked, main, o->side, err);
    if (status == RP_OK)
        status = rp_call_alloc(call, arg.bytes, o->side, &thrice, err);
    if (status == RP_OK)
        status = rpt_scale(f, o->side, thrice, in, 3, count, err);
    if (status == RP_OK)
        status = rp_call_alloc(call, arg.bytes, main, &twice, err);
    if (status == RP_OK)
        status = rpt_scale(f, main, twice, in, 2, count, err);
    if (status == RP_OK)
        status = driver_error(f->driver->cuLaunchHostFunc(main, count_call, &o->host_calls),
                              "cuLaunchHostFunc", err);
    if (status == RP_OK)
        status = wait(o, o->joined, o->side, main, err);
    if (status == RP_OK)
        status = rp_call_use(call, thrice, main, err);
    if (status == RP_OK)
        status = add_child(o, main, out, count, err);
    if (status == RP_OK)
        status = rpt_saxpy(f, main, out, twice, 1, count, err);
    if (status == RP_OK)
        status = rp_call_free(call, twice, err);
    if (status == RP_OK)
        status = rpt_saxpy(f, main, out, thrice, 1, count, err);
    return status == RP_OK ? rp_call_free(call, thrice, err) : status;
}

static bool open_owner(struct owner *o, struct shared *shared)
{
    const struct rp_driver *driver = shared->f.driver;
    o->shared = shared;
    return driver->cuStreamCreate(&o->side, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           driver->cuEventCreate(&o->forked, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
           driver->cuEventCreate(&o->joined, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
}

static void close_owner(struct owner *o)
{
    const struct rp_driver *driver = o->shared->f.driver;
    driver->cuEventDestroy(o->joined);
    driver->cuEventDestroy(o->forked);
    driver->cuStreamDestroy(o->side);
}

/* ---- A thread ------------------------------------------------------------------------------ */

static bool make_callable(struct worker *w, int i)
{
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    struct rp_error err;
    options.pool = i % 2 ? NULL : w->shared->pool;
    options.name = "own";
    return good(w,
                rp_callable_create(w->shared->f.device, &options, work, &w->owners[i],
                                   &w->callables[i], &err),
                &err, "creating");
}

static uint32_t some_count(struct worker *w)
{
    return 1 + below(w, 12) * 160;
}

static struct rp_arg arg_of(uint64_t address, uint32_t count, enum rp_arg_role role)
{
    return (struct rp_arg){
        .address = address, .bytes = (uint64_t)count * sizeof(float), .role = role};
}

static bool call(struct worker *w, struct rp_callable *callable)
{
    const struct rp_driver *driver = w->shared->f.driver;
    uint32_t count = some_count(w), shift_in = 64 * below(w, 8), shift_out = 64 * below(w, 8);
    struct rp_arg args[] = {arg_of(w->in + 4 * shift_in, count, RP_ARG_IN),
                            arg_of(w->out + 4 * shift_out, count, RP_ARG_OUT)};
    struct rp_inputs inputs = {.args = args, .arg_count = 2};
    struct rp_error err;
    if (!good(w, rp_callable_call(callable, &inputs, w->stream, &err), &err, "calling"))
        return false;
    w->calls++;
    if (driver->cuMemcpyDtoHAsync(w->host_out, args[1].address, args[1].bytes, w->stream) ||
        driver->cuStreamSynchronize(w->stream))
        return good(w, RP_ERROR_DRIVER, &(struct rp_error){.message = "reading"}, "calling");
    for (uint32_t i = 0; i < count; i++)
        if (w->host_out[i] != 5 * w->host_in[shift_in + i] + 5) {
            fprintf(stderr, "thread %u: element %u of %u is %g, not %g\n", w->number, i, count,
                    (double)w->host_out[i], (double)(5 * w->host_in[shift_in + i] + 5));
            w->failed = true;
            return false;
        }
    return true;
}

static bool capture(struct worker *w, struct rp_callable *callable)
{
    enum { COUNT = 4 };
    struct rp_arg args[COUNT][2];
    struct rp_inputs inputs[COUNT];
    struct rp_callable *callables[COUNT];
    struct rp_estimate *estimate;
    struct rp_error err;
    size_t failed = 0;
    for (int i = 0; i < COUNT; i++) {
        uint32_t count = some_count(w);
        args[i][0] = arg_of(0, count, RP_ARG_IN);
        args[i][1] = arg_of(0, count, RP_ARG_OUT);
        inputs[i] = (struct rp_inputs){.args = args[i], .arg_count = 2};
        callables[i] = callable;
    }
    if (below(w, 2)) {
        if (!good(w, rp_estimate(callables, inputs, COUNT, &estimate, &err), &err, "estimating"))
            return false;
        rp_estimate_destroy(estimate);
    }
    return good(w, rp_callable_capture(callable, inputs, COUNT, NULL, NULL, &failed, &err), &err,
                "capturing") &&
           good(w, failed ? RP_ERROR_CAPTURE : RP_OK,
                &(struct rp_error){.message = "a shape was not captured"}, "capturing");
}

static bool round_of(struct worker *w, unsigned round)
{
    struct rp_callable *common = w->shared->common;
    int i = (int)below(w, OWN);
    if (round % ROUNDS_A_CALLABLE == ROUNDS_A_CALLABLE - 1) {
        rp_callable_destroy(w->callables[i]);
        w->callables[i] = NULL;
        return make_callable(w, i);
    }
    switch (below(w, 16)) {
    case 0:
        return capture(w, w->callables[i]);
    case 1: {
        struct rp_callable_info info = {.size = sizeof info};
        struct rp_pool_info pool = {.size = sizeof pool};
        rp_callable_info(common, &info);
        rp_pool_info(w->shared->pool, &pool);
        return true;
    }
    case 2:
    case 3:
        return call(w, common);
    default:
        return call(w, w->callables[i]);
    }
}

static bool open_worker(struct worker *w)
{
    struct shared *s = w->shared;
    uint64_t bytes = MOST_COUNT * 2 * sizeof(float);
    w->host_in = malloc(bytes);
    w->host_out = malloc(bytes);
    for (int i = 0; w->host_in && i < MOST_COUNT * 2; i++)
        w->host_in[i] = (float)((unsigned)i * 7u % 101u + w->number);
    bool opened = w->host_in && w->host_out &&
                  s->f.driver->cuStreamCreate(&w->stream, CU_STREAM_NON_BLOCKING) == 0 &&
                  s->f.driver->cuMemAlloc(&w->in, bytes) == 0 &&
                  s->f.driver->cuMemAlloc(&w->out, bytes) == 0 &&
                  s->f.driver->cuMemcpyHtoD(w->in, w->host_in, bytes) == 0;
    for (int i = 0; opened && i < OWN; i++)
        opened = open_owner(&w->owners[i], s) && make_callable(w, i);
    return opened;
}

static void close_worker(struct worker *w)
{
    for (int i = 0; i < OWN; i++) {
        rp_callable_destroy(w->callables[i]);
        if (w->owners[i].shared)
            close_owner(&w->owners[i]);
    }
    w->shared->f.driver->cuMemFree(w->in);
    w->shared->f.driver->cuMemFree(w->out);
    w->shared->f.driver->cuStreamDestroy(w->stream);
    free(w->host_in);
    free(w->host_out);
}

static void *run(void *user)
{
    struct worker *w = user;
    struct rp_error err;
    if (!good(w, rp_device_push(w->shared->f.device, &err), &err, "starting"))
        return NULL;
    if (!open_worker(w))
        w->failed = true;
    for (unsigned round = 0; !w->failed && round < w->shared->rounds; round++)
        round_of(w, round);
    close_worker(w);
    rp_device_pop(w->shared->f.device);
    return NULL;
}

/* ---- All ----------------------------------------------------------------------------------- */

static bool run_threads(struct shared *s, unsigned threads, uint64_t *out_calls)
{
    struct worker *workers = calloc(threads, sizeof *workers);
    bool passed = workers != NULL;
    unsigned started = 0;
    *out_calls = 0;
    for (; passed && started < threads; started++) {
        struct worker *w = &workers[started];
        w->shared = s;
        w->number = started;
        w->random = s->seed * 1000 + started;
        if (pthread_create(&w->thread, NULL, run, w) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        passed &= !workers[i].failed;
        *out_calls += workers[i].calls;
    }
    free(workers);
    return passed && started == threads;
}

static bool run_all(const struct rp_driver *driver, unsigned threads, unsigned rounds,
                    uint64_t seed)
{
    static struct shared s;
    static struct owner owner;
    struct rp_pool_options pool = RP_POOL_OPTIONS_INIT;
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    uint64_t calls;
    s = (struct shared){.rounds = rounds, .seed = seed};
    rpt_open_on(&s.f, driver, NULL);
    pool.kind = RP_POOL_CONCURRENT;
    pool.plan_budget_ms = 5;
    RPT_OK(&s.f, rp_pool_create(s.f.device, &pool, &s.pool, &s.f.err));
    assert_true(open_owner(&owner, &s));
    options.pool = s.pool;
    options.name = "common";
    RPT_OK(&s.f, rp_callable_create(s.f.device, &options, work, &owner, &s.common, &s.f.err));
    bool passed = run_threads(&s, threads, &calls);
    rp_callable_destroy(s.common);
    close_owner(&owner);
    rp_pool_destroy(s.pool);
    printf("%u threads, %llu calls: %s\n", threads, (unsigned long long)calls,
           passed ? "all as they should be" : "FAILED");
    rpt_close(&s.f);
    return passed;
}

int main(int argc, char **argv)
{
    unsigned threads = 4, rounds = 120;
    uint64_t seed = 1;
    const struct rp_driver *driver = rpi_driver_host();
    struct rp_error err = {0};
    for (int i = 1; i + 1 < argc; i += 2) {
        unsigned long long value = strtoull(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--threads") && value >= 1 && value <= MOST_THREADS)
            threads = (unsigned)value;
        else if (!strcmp(argv[i], "--rounds"))
            rounds = (unsigned)value;
        else if (!strcmp(argv[i], "--seed"))
            seed = value;
        else if (!strcmp(argv[i], "--driver") && !strcmp(argv[i + 1], "cuda")) {
            if (rpi_driver_libcuda(&driver, &err) != RP_OK) {
                fprintf(stderr, "skipped: %s\n", err.message);
                return 77;
            }
        } else if (strcmp(argv[i], "--driver") != 0 || strcmp(argv[i + 1], "host") != 0) {
            fprintf(stderr, "usage: callable_threads [--threads N] [--rounds N] [--seed SEED] "
                            "[--driver host|cuda]\n");
            return 2;
        }
    }
    return run_all(driver, threads, rounds, seed) ? 0 : 1;
}
