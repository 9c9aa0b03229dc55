/* SPDX-License-Identifier: MIT
 *
 * What the tests of the heap share: a device on the host driver with a heap, a few streams, and
 * host functions that hold a stream until the test lets it go.
 */
#ifndef TESTS_HEAP_FIXTURE_H
#define TESTS_HEAP_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "driver/host/host.h"
#include "graph/handles/device.h"
#include "graph/objects/objects.h"
#include "memory/heap/heap.h"

#include <pthread.h>

#define MIB ((uint64_t)1 << 20)

enum { HEAP_STREAMS = 4 };

struct heap_fixture {
    const struct rp_driver *driver;
    struct rp_device *device;
    struct rp_heap *heap;
    CUstream streams[HEAP_STREAMS];
    struct rp_error err;
    struct rpi_host_options host; /* as they were */
};

#define HEAP_OK(f, call)                                                                           \
    do {                                                                                           \
        rp_status status_ = (call);                                                                \
        if (status_ != RP_OK)                                                                      \
            print_error("%s: %s\n", rp_status_name(status_), (f)->err.message);                    \
        assert_int_equal(status_, RP_OK);                                                          \
    } while (0)

/* total_bytes: of the device. The device's context is current until heap_close. */
static inline void heap_open(struct heap_fixture *f, const struct rp_driver *driver,
                             const struct rp_heap_options *options, uint64_t total_bytes)
{
    memset(f, 0, sizeof *f);
    f->driver = driver;
    rpi_host_options(&f->host);
    struct rpi_host_options host = f->host;
    host.total_bytes = total_bytes;
    rpi_host_configure(&host);
    HEAP_OK(f, rpi_device_open_on(driver, 0, &f->device, &f->err));
    HEAP_OK(f, rp_device_push(f->device, &f->err));
    for (int i = 0; i < HEAP_STREAMS; i++)
        assert_int_equal(driver->cuStreamCreate(&f->streams[i], CU_STREAM_NON_BLOCKING), 0);
    HEAP_OK(f, rp_heap_create(f->device, options, &f->heap, &f->err));
}

static inline void heap_close(struct heap_fixture *f)
{
    assert_true(rpi_heap_is_valid(f->heap));
    rp_heap_destroy(f->heap);
    for (int i = 0; i < HEAP_STREAMS; i++)
        f->driver->cuStreamDestroy(f->streams[i]);
    rp_device_pop(f->device);
    rp_device_destroy(f->device);
    struct rpi_host_statistics left;
    rpi_host_statistics(&left);
    rpi_host_reset();
    rpi_host_races_clear();
    rpi_host_configure(&f->host);
    assert_int_equal(left.physical_bytes, 0);
    assert_int_equal(left.chunks, 0);
    assert_int_equal(left.mappings, 0);
    assert_int_equal(left.reservations, 0);
    assert_int_equal(left.events, 0);
    assert_int_equal(left.races, 0);
}

static inline uint64_t heap_take(struct heap_fixture *f, uint64_t bytes, CUstream stream)
{
    uint64_t address = 0;
    HEAP_OK(f, rp_heap_alloc(f->heap, bytes, stream, &address, &f->err));
    return address;
}

static inline void heap_give(struct heap_fixture *f, uint64_t address)
{
    HEAP_OK(f, rp_heap_free(f->heap, address, &f->err));
}

static inline int64_t heap_stat(struct heap_fixture *f, const char *name)
{
    int64_t value = -7;
    HEAP_OK(f, rp_heap_stat(f->heap, name, &value, &f->err));
    return value;
}

/* Holds a stream until it is opened. */
struct heap_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int open;
};
#define HEAP_GATE_INIT                                                                             \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0                                     \
    }

static inline void heap_gate_wait(void *user)
{
    struct heap_gate *gate = user;
    pthread_mutex_lock(&gate->lock);
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static inline void heap_gate_open(struct heap_gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = 1;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

static inline void heap_hold(struct heap_fixture *f, CUstream stream, struct heap_gate *gate)
{
    assert_int_equal(f->driver->cuLaunchHostFunc(stream, heap_gate_wait, gate), 0);
}

#endif
