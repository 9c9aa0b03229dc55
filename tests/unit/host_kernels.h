/* SPDX-License-Identifier: MIT
 *
 * Kernels and small helpers for tests that run on the host driver.
 */
#ifndef REPRISE_TESTS_HOST_KERNELS_H
#define REPRISE_TESTS_HOST_KERNELS_H

#include "driver/driver.h"
#include "driver/host/host.h"
#include "reprise_tools.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)

/* add(out, in, value, count): out[i] = in[i] + value */
static void run_add(const struct rp_host_launch *launch)
{
    uint64_t out = *(uint64_t *)launch->params[0], in = *(uint64_t *)launch->params[1];
    uint32_t value = *(uint32_t *)launch->params[2], count = *(uint32_t *)launch->params[3];
    for (uint32_t i = 0; i < count; i++)
        ((uint32_t *)out)[i] = ((const uint32_t *)in)[i] + value;
}

static void access_add(const struct rp_host_launch *launch, rp_host_access report, void *context)
{
    uint32_t count = *(uint32_t *)launch->params[3];
    report(context, *(uint64_t *)launch->params[1], (uint64_t)count * 4, 0);
    report(context, *(uint64_t *)launch->params[0], (uint64_t)count * 4, 1);
}

/* touch(out, count): declares to write, does nothing: for races that must not really happen. */
static void run_touch(const struct rp_host_launch *launch)
{
    (void)launch;
}

static void access_touch(const struct rp_host_launch *launch, rp_host_access report, void *context)
{
    report(context, *(uint64_t *)launch->params[0], *(uint32_t *)launch->params[1], 1);
}

static void access_look(const struct rp_host_launch *launch, rp_host_access report, void *context)
{
    report(context, *(uint64_t *)launch->params[0], *(uint32_t *)launch->params[1], 0);
}

static const struct rp_host_param add_params[] = {{0, 8}, {8, 8}, {16, 4}, {20, 4}};
static const struct rp_host_param touch_params[] = {{0, 8}, {8, 4}};
static const struct rp_host_kernel test_kernels[] = {
    {"add", run_add, access_add, add_params, 4, 0},
    {"touch", run_touch, access_touch, touch_params, 2, 256},
    {"look", run_touch, access_look, touch_params, 2, 0},
};
static const struct rp_host_image test_image = {RP_HOST_IMAGE_MAGIC, 3, 0, test_kernels};

struct host_fixture {
    const struct rp_driver *d;
    CUcontext context;
    CUmodule module;
    CUfunction add, touch, look;
};

static inline void host_open(struct host_fixture *f)
{
    rpi_host_reset();
    f->d = rpi_driver_host();
    OK(f->d->cuInit(0));
    OK(f->d->cuDevicePrimaryCtxRetain(&f->context, 0));
    OK(f->d->cuCtxSetCurrent(f->context));
    OK(f->d->cuModuleLoadData(&f->module, &test_image));
    OK(f->d->cuModuleGetFunction(&f->add, f->module, "add"));
    OK(f->d->cuModuleGetFunction(&f->touch, f->module, "touch"));
    OK(f->d->cuModuleGetFunction(&f->look, f->module, "look"));
}

static inline CUresult host_add(const struct host_fixture *f, CUstream stream, CUdeviceptr out,
                                CUdeviceptr in, uint32_t value, uint32_t count)
{
    void *params[] = {&out, &in, &value, &count};
    return f->d->cuLaunchKernel(f->add, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static inline CUresult host_touch(const struct host_fixture *f, CUfunction function,
                                  CUstream stream, CUdeviceptr out, uint32_t bytes)
{
    void *params[] = {&out, &bytes};
    return f->d->cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

/* A host function that holds its stream until it is opened. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int open;
};
#define GATE_INIT                                                                                  \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0                                     \
    }
static inline void gate_wait(void *gate)
{
    struct gate *g = gate;
    pthread_mutex_lock(&g->lock);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}
static inline void gate_open(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = 1;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

#endif
