/* SPDX-License-Identifier: MIT
 *
 * Copies by the library's kernel (rp_device_copy): in a capture replays bind what they copy from and
 * to, and where the driver refuses the kernel they are made all the same.
 */
#include "graph_fixture.h"

#include "reprise_framework.h"

#include <math.h>

enum { MANY = 2 * RPI_COPY_MOST + 5, FLOATS = 3, PAIRS = 2 };

static struct rpt_fixture fixture;

static int open_fixture(void **state)
{
    rpt_open_on(&fixture, rpi_driver_fault(rpi_driver_host()), NULL);
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    *state = &fixture;
    return 0;
}

static int close_fixture(void **state)
{
    rpt_close(*state);
    return 0;
}

static uint64_t memory_of(size_t floats)
{
    CUdeviceptr memory;
    assert_int_equal(fixture.driver->cuMemAlloc(&memory, floats * sizeof(float)), 0);
    return memory;
}

/* floats[i] is first + i */
static void fill(uint64_t memory, size_t floats, float first)
{
    float *values = malloc(floats * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < floats; i++)
        values[i] = first + (float)i;
    assert_int_equal(fixture.driver->cuMemcpyHtoD(memory, values, floats * sizeof *values), 0);
    free(values);
}

static float float_at(uint64_t memory, size_t i)
{
    float value = NAN;
    assert_int_equal(fixture.driver->cuCtxSynchronize(), 0);
    assert_int_equal(fixture.driver->cuMemcpyDtoH(&value, memory + i * sizeof value, sizeof value),
                     0);
    return value;
}

/* Copies of FLOATS floats, each to a place of its own; every seventh has no bytes. Where they go: memory
 * that holds -1 everywhere. */
static uint64_t copies_of(struct rp_copy *copies, uint64_t *out_from)
{
    size_t floats = (size_t)MANY * FLOATS;
    uint64_t to = memory_of(floats);
    *out_from = memory_of(floats);
    fill(*out_from, floats, 0);
    for (size_t i = 0; i < floats; i++)
        fill(to + i * sizeof(float), 1, -1);
    for (uint64_t i = 0; i < MANY; i++) {
        uint64_t at = i * FLOATS * sizeof(float);
        copies[i] = (struct rp_copy){to + at, *out_from + at, i % 7 ? FLOATS * sizeof(float) : 0};
    }
    return to;
}

static void check(uint64_t to)
{
    for (size_t i = 0; i < (size_t)MANY * FLOATS; i++) {
        float expected = i / FLOATS % 7 ? (float)i : -1;
        assert_float_equal(float_at(to, i), expected, 0);
    }
}

static void any_number_of_any_sizes(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_copy copies[MANY];
    uint64_t from, to = copies_of(copies, &from);
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    RPT_OK(f, rp_device_copy(f->device, copies, MANY, f->streams[0], &f->err));
    assert_in_range(rpi_driver_fault_calls(), 2, 10); /* not one for each */
    check(to);
    RPT_OK(f, rp_device_copy(f->device, NULL, 0, f->streams[0], &f->err));
    f->driver->cuMemFree(to);
    f->driver->cuMemFree(from);
}

static void without_the_kernel_too(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_copy copies[MANY];
    uint64_t from, to = copies_of(copies, &from);
    f->device->copier.state = RPI_COPIER_REFUSED;
    RPT_OK(f, rp_device_copy(f->device, copies, MANY, f->streams[0], &f->err));
    check(to);
    f->driver->cuMemFree(to);
    f->driver->cuMemFree(from);
}

/* The arguments in pairs: the first of each to the second. */
static rp_status copy_pairs(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = user;
    struct rp_copy copies[PAIRS];
    for (size_t i = 0; i < PAIRS; i++)
        copies[i] = (struct rp_copy){rp_call_arg(call, 2 * i + 1), rp_call_arg(call, 2 * i),
                                     FLOATS * sizeof(float)};
    return rp_device_copy(f->device, copies, PAIRS, rp_call_stream(call), err);
}

static void replays_bind_what_they_copy(void **state)
{
    struct rpt_fixture *f = *state;
    enum { ARGS = 2 * PAIRS, APART = 64 };
    struct rp_arg args[ARGS];
    struct rp_graph *graph = NULL;
    uint64_t memory[2];
    for (int set = 0; set < 2; set++)
        memory[set] = memory_of((size_t)ARGS * APART);
    for (int set = 0; set < 2; set++) {
        for (size_t i = 0; i < ARGS; i++) {
            args[i] = rpt_arg(memory[set] + i * APART * sizeof(float), FLOATS,
                              i % 2 ? RP_ARG_OUT : RP_ARG_IN);
            fill(args[i].address, FLOATS, (float)(100 * set + 10 * (int)i));
        }
        if (!graph)
            RPT_OK(f, rp_graph_capture(f->pool, NULL, copy_pairs, f, args, ARGS, &graph, &f->err));
        RPT_OK(f, rp_graph_replay(graph, args, ARGS, f->streams[0], &f->err));
        for (size_t i = 1; i < ARGS; i += 2) {
            float expected = (float)(100 * set + 10 * ((int)i - 1) + 2);
            assert_float_equal(float_at(args[i].address, 2), expected, 0);
        }
    }
    for (size_t i = 0; i < ARGS; i++) {
        struct rp_graph_arg_info info = {.size = sizeof info};
        RPT_OK(f, rp_graph_arg_info(graph, i, &info, &f->err));
        assert_true(info.bound);
    }
    rp_graph_destroy(graph);
    for (int set = 0; set < 2; set++)
        f->driver->cuMemFree(memory[set]);
}

static void what_fails_is_told(void **state)
{
    struct rpt_fixture *f = *state;
    uint64_t memory = memory_of(8);
    struct rp_copy copy = {memory, memory + 16, 16};
    assert_int_equal(rp_device_copy(f->device, NULL, 1, f->streams[0], &f->err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_device_copy(NULL, &copy, 1, f->streams[0], &f->err),
                     RP_ERROR_INVALID_ARGUMENT);
    RPT_OK(f, rp_device_copy(f->device, &copy, 1, f->streams[0], &f->err));
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    RPT_OK(f, rp_device_copy(f->device, &copy, 1, f->streams[0], &f->err));
    rpi_driver_fault_at(rpi_driver_fault_calls() - 1, CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(rp_device_copy(f->device, &copy, 1, f->streams[0], &f->err), RP_ERROR_DRIVER);
    assert_string_equal(rpi_driver_fault_hit(), "cuLaunchKernel");
    rpt_says(f, "copying 1 ");
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    f->driver->cuMemFree(memory);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(any_number_of_any_sizes),
        TEST(without_the_kernel_too),
        TEST(replays_bind_what_they_copy),
        TEST(what_fails_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
