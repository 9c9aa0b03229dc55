/* SPDX-License-Identifier: MIT
 *
 * The contract of a replay: arguments of another type, shape or strides than those captured are
 * refused with both spelled out, before anything is launched, and descriptions that cannot be are
 * refused in every call that takes arguments. So are addresses that are no memory to use.
 */
#include "graph_fixture.h"

#include <stdbool.h>

enum { COUNT = 64 };

/* ---- Arguments ------------------------------------------------------------------------------*/

static rp_status twice(struct rp_call *call, void *user, struct rp_error *err)
{
    return rpt_scale(user, rp_call_stream(call), rp_call_arg(call, 1), rp_call_arg(call, 0), 2,
                     COUNT, err);
}

static struct rp_arg tensor(uint64_t address, enum rp_arg_role role, uint32_t dtype, uint32_t rank,
                            const int64_t *shape, const int64_t *strides)
{
    struct rp_arg arg = rpt_arg(address, COUNT, role);
    arg.dtype = dtype;
    arg.rank = rank;
    arg.shape = shape;
    arg.strides = strides;
    return arg;
}

/* What a graph captured with float32[4,16] says of other arguments of the same bytes. */
static void test_shapes(void **state)
{
    struct rpt_fixture *f = *state;
    int64_t shape[] = {4, 16}, rows[] = {16, 1}, columns[] = {1, 4}, flat[] = {64};
    int64_t other[] = {8, 8}, ones[] = {4, 1, 16}, loose[] = {16, 77, 1}, wide[70] = {0};
    uint64_t in = rpt_buffer(f, COUNT, 1), out = rpt_buffer(f, COUNT, 0);
    struct rp_arg args[] = {tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 2, shape, NULL),
                            tensor(out, RP_ARG_OUT, RP_DTYPE_BYTES, 0, NULL, NULL)};
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    options.name = "step";
    struct rp_graph *graph;
    RPT_OK(f, rp_graph_capture(f->pool, &options, twice, f, args, 2, &graph, &f->err));
    const struct {
        struct rp_arg arg;
        rp_status status;
        const char *says[2];
    } cases[] = {
        {tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 2, shape, NULL), RP_OK, {0}},
        {tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 2, shape, rows), RP_OK, {0}},
        {tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 2, other, NULL),
         RP_ERROR_CONTRACT,
         {"float32[4,16] when", "float32[8,8] now"}},
        {tensor(in, RP_ARG_IN, RP_DTYPE_INT32, 2, shape, NULL),
         RP_ERROR_CONTRACT,
         {"float32[4,16]", "int32[4,16] now"}},
        {tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 2, shape, columns),
         RP_ERROR_CONTRACT,
         {"argument 0 of graph 'step'", "float32[4,16] of strides [1,4] now"}},
        {tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 1, flat, NULL),
         RP_ERROR_CONTRACT,
         {"float32[4,16]", "float32[64]"}},
        {tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 3, ones, loose),
         RP_ERROR_CONTRACT,
         {"float32[4,16]", "float32[4,1,16] now"}},
        {tensor(in, RP_ARG_IN, RP_DTYPE_BYTES, 0, NULL, NULL),
         RP_ERROR_CONTRACT,
         {"float32[4,16]", "256 bytes now"}},
        {tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT64, 2, shape, NULL),
         RP_ERROR_INVALID_ARGUMENT,
         {"reach 512 bytes", "it has 256"}},
        {tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 2, NULL, NULL),
         RP_ERROR_INVALID_ARGUMENT,
         {"shape is NULL", ""}},
        {tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 70, wide, NULL),
         RP_ERROR_INVALID_ARGUMENT,
         {"70 dimensions", "64"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rp_arg given[] = {cases[i].arg, args[1]};
        rp_status status = rp_graph_replay(graph, given, 2, NULL, &f->err);
        assert_int_equal(status, cases[i].status);
        for (int k = 0; k < 2 && cases[i].says[k]; k++)
            rpt_says(f, cases[i].says[k]);
    }
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(graph, &info);
    assert_int_equal(info.replays, 2);
    rp_graph_destroy(graph);
    f->driver->cuMemFree(in);
    f->driver->cuMemFree(out);
}

/* Strides that say nothing are not compared; the same graph takes them all. */
static void test_strides_that_say_nothing(void **state)
{
    struct rpt_fixture *f = *state;
    int64_t one[] = {4, 1, 16}, loose[] = {16, 999, 1}, none[] = {0, 5}, far[] = {INT64_MAX, 7};
    uint64_t in = rpt_buffer(f, COUNT, 1), out = rpt_buffer(f, COUNT, 0);
    struct rp_arg args[] = {tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 3, one, loose),
                            tensor(out, RP_ARG_OUT, RP_DTYPE_FLOAT32, 2, none, far)};
    struct rp_graph *graph;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, twice, f, args, 2, &graph, &f->err));
    RPT_OK(f, rp_graph_replay(graph, args, 2, NULL, &f->err));
    args[0].strides = NULL;
    args[1].strides = NULL;
    RPT_OK(f, rp_graph_replay(graph, args, 2, NULL, &f->err));
    rp_graph_destroy(graph);
    f->driver->cuMemFree(in);
    f->driver->cuMemFree(out);
}

static void test_impossible_descriptions(void **state)
{
    struct rpt_fixture *f = *state;
    int64_t negative[] = {4, -1}, shape[] = {2, 2}, back[] = {-2, 1};
    int64_t huge[] = {INT64_MAX, INT64_MAX}, far[] = {INT64_MAX, INT64_MAX}, over[] = {63, 1};
    uint64_t in = rpt_buffer(f, COUNT, 1), out = rpt_buffer(f, COUNT, 0);
    struct rp_arg bad[] = {
        tensor(in, RP_ARG_IN, 99, 0, NULL, NULL),
        tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 65, shape, NULL),
        tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 1, NULL, NULL),
        tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 2, negative, NULL),
        tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 2, shape, back),
        tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 2, huge, NULL),
        tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 2, shape, far),
        tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 2, shape, over), /* one element too far */
        tensor(in, RP_ARG_IN, RP_DTYPE_COMPLEX128, 1, (int64_t[]){17}, NULL),
        rpt_arg(in, COUNT, RP_ARG_IN),
        rpt_arg(in, COUNT, RP_ARG_IN),
    };
    bad[9].flags = 1;
    bad[10].reserved[1] = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rp_arg args[] = {bad[i], rpt_arg(out, COUNT, RP_ARG_OUT)};
        struct rp_graph *graph = NULL;
        assert_int_equal(rp_graph_capture(f->pool, NULL, twice, f, args, 2, &graph, &f->err),
                         RP_ERROR_INVALID_ARGUMENT);
        rpt_says(f, "argument 0");
        assert_int_equal(rp_run(f->pool, twice, f, args, 2, NULL, &f->err),
                         RP_ERROR_INVALID_ARGUMENT);
    }
    f->driver->cuMemFree(in);
    f->driver->cuMemFree(out);
}

static void test_dtype_names(void **state)
{
    (void)state;
    assert_string_equal(rpi_dtype_name(RP_DTYPE_BFLOAT16), "bfloat16");
    assert_int_equal(rpi_dtype_bytes(RP_DTYPE_COMPLEX128), 16);
    assert_null(rpi_dtype_name(RP_DTYPE_QINT32 + 1));
    assert_int_equal(rpi_dtype_bytes(UINT32_MAX), 0);
    for (uint32_t i = 0; i <= RP_DTYPE_QINT32; i++) {
        assert_non_null(rpi_dtype_name(i));
        assert_true(rpi_dtype_bytes(i) > 0);
    }
}

/* A shape too long for a message is cut, not written past its end. */
static void test_long_shapes(void **state)
{
    struct rpt_fixture *f = *state;
    int64_t shape[64], other[64], strides[64] = {0};
    for (int i = 0; i < 64; i++)
        shape[i] = other[i] = 1000;
    other[63] = COUNT;
    uint64_t in = rpt_buffer(f, COUNT, 1), out = rpt_buffer(f, COUNT, 0);
    struct rp_arg args[] = {tensor(in, RP_ARG_IN, RP_DTYPE_FLOAT32, 64, shape, strides),
                            rpt_arg(out, COUNT, RP_ARG_OUT)};
    struct rp_graph *graph;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, twice, f, args, 2, &graph, &f->err));
    args[0].shape = other;
    assert_int_equal(rp_graph_replay(graph, args, 2, NULL, &f->err), RP_ERROR_CONTRACT);
    rpt_says(f, "float32[1000,1000,");
    rpt_says(f, "... now");
    rp_graph_destroy(graph);
    f->driver->cuMemFree(in);
    f->driver->cuMemFree(out);
}

/* ---- Where arguments lie --------------------------------------------------------------------*/

/* The host driver, with its answers about addresses counted and one of them changed. */
static struct {
    uint64_t asked;
    int ordinal;
    bool no_record, no_wait; /* cuEventRecord and cuStreamSynchronize fail */
} watched;

static CUresult watch_attribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    CUresult result = rpi_driver_host()->cuPointerGetAttribute(value, attribute, address);
    watched.asked++;
    if (result == CUDA_SUCCESS && attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        memcpy(value, &watched.ordinal, sizeof watched.ordinal);
    return result;
}

static CUresult watch_record(CUevent event, CUstream stream)
{
    return watched.no_record ? CUDA_ERROR_UNKNOWN : rpi_driver_host()->cuEventRecord(event, stream);
}

static CUresult watch_wait(CUstream stream)
{
    return watched.no_wait ? CUDA_ERROR_UNKNOWN : rpi_driver_host()->cuStreamSynchronize(stream);
}

static int open_watched(void **state)
{
    static struct rpt_fixture fixture;
    static struct rp_driver driver;
    driver = *rpi_driver_host();
    driver.cuPointerGetAttribute = watch_attribute;
    driver.cuEventRecord = watch_record;
    driver.cuStreamSynchronize = watch_wait;
    memset(&watched, 0, sizeof watched);
    rpt_open_on(&fixture, &driver, NULL);
    *state = &fixture;
    return 0;
}

/* Addresses that a callable should not have kept. */
struct keeping {
    struct rpt_fixture *f;
    int calls;
    uint64_t eager, rehearsed; /* of its argument or block in the first and second run */
};

static rp_status twice_and_keep(struct rp_call *call, void *user, struct rp_error *err)
{
    struct keeping *k = user;
    uint64_t block;
    rp_status status =
        rp_call_alloc(call, COUNT * sizeof(float), rp_call_stream(call), &block, err);
    if (k->calls++ == 0)
        k->eager = block;
    else if (k->calls == 2)
        k->rehearsed = rp_call_arg(call, 0);
    return status == RP_OK ? twice(call, k->f, err) : status;
}

static void test_memory_of_arguments(void **state)
{
    struct rpt_fixture *f = *state;
    struct keeping k = {.f = f};
    uint64_t in = rpt_buffer(f, COUNT, 1), out = rpt_buffer(f, COUNT, 0);
    uint64_t freed = rpt_buffer(f, COUNT, 0);
    struct rp_arg args[] = {rpt_arg(in, COUNT, RP_ARG_IN), rpt_arg(out, COUNT, RP_ARG_OUT)};
    struct rp_graph *graph;
    float *host = calloc(2 * COUNT, sizeof *host);
    f->driver->cuMemFree(freed);
    RPT_OK(f, rp_run(f->pool, twice_and_keep, &k, args, 2, NULL, &f->err));
    RPT_OK(f, rp_graph_capture(f->pool, NULL, twice_and_keep, &k, args, 2, &graph, &f->err));
    uint64_t pool = f->pool->core->memory.arena.base;
    const struct {
        uint64_t address;
        const char *says;
    } cases[] = {
        {(uint64_t)(uintptr_t)host, "is no memory that the driver knows"},
        {freed, "is no memory that the driver knows"},
        {in + 4, "reaches past the end of its allocation of 256 bytes"},
        {UINT64_MAX - 8, "reaches past the last address"},
        {k.eager, "lies in memory of eager runs of pool 'pool'"},
        {k.rehearsed, "was an address of a rehearsal"},
        {f->pool->core->staging.base, "lies where arguments of the pool's graphs are copied to"},
        {pool + (1u << 20), "lies in memory of the pool that no graph has now"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rp_arg given[] = {args[0], args[1]};
        given[0].address = cases[i].address;
        assert_int_equal(rp_graph_replay(graph, given, 2, NULL, &f->err), RP_ERROR_CONTRACT);
        rpt_says(f, "argument 0 of graph 'graph', 256 bytes at 0x");
        rpt_says(f, cases[i].says);
    }
    watched.ordinal = 1;
    assert_int_equal(rp_graph_replay(graph, args, 2, NULL, &f->err), RP_ERROR_CONTRACT);
    rpt_says(f, "is memory of device 1, but the graph runs on device 0");
    watched.ordinal = 0;
    RPT_OK(f, rp_graph_replay(graph, args, 2, NULL, &f->err));
    rp_graph_destroy(graph);
    free(host);
    f->driver->cuMemFree(in);
    f->driver->cuMemFree(out);
}

/* The driver is asked about what is new, and once for each allocation. */
static void test_known_memory_is_free(void **state)
{
    struct rpt_fixture *f = *state;
    uint64_t in = rpt_buffer(f, 4 * COUNT, 1), out = rpt_buffer(f, 4 * COUNT, 0);
    struct rp_arg args[] = {rpt_arg(in, COUNT, RP_ARG_IN), rpt_arg(out, COUNT, RP_ARG_OUT)};
    struct rp_graph *graph;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, twice, f, args, 2, &graph, &f->err));
    watched.asked = 0;
    RPT_OK(f, rp_graph_replay(graph, args, 2, NULL, &f->err));
    assert_in_range(watched.asked, 2, 12);
    watched.asked = 0;
    RPT_OK(f, rp_graph_replay(graph, args, 2, NULL, &f->err));
    args[0].address += COUNT * sizeof(float);
    RPT_OK(f, rp_graph_replay(graph, args, 2, NULL, &f->err));
    args[1].address += 3 * COUNT * sizeof(float); /* to the end of it */
    RPT_OK(f, rp_graph_replay(graph, args, 2, NULL, &f->err));
    assert_int_equal(watched.asked, 0);
    args[1].address += sizeof(float);
    assert_int_equal(rp_graph_replay(graph, args, 2, NULL, &f->err), RP_ERROR_CONTRACT);
    rp_graph_destroy(graph);
    f->driver->cuMemFree(in);
    f->driver->cuMemFree(out);
}

/* A replay whose event could not be recorded: who comes next on another stream waits for all of its
 * stream, or fails, and never for the event of an earlier replay. */
static void test_unrecorded_event(void **state)
{
    struct rpt_fixture *f = *state;
    uint64_t in = rpt_buffer(f, COUNT, 1), out = rpt_buffer(f, COUNT, 0);
    struct rp_arg args[] = {rpt_arg(in, COUNT, RP_ARG_IN), rpt_arg(out, COUNT, RP_ARG_OUT)};
    struct rp_graph *graph;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, twice, f, args, 2, &graph, &f->err));
    RPT_OK(f, rp_graph_replay(graph, args, 2, f->streams[0], &f->err));
    watched.no_record = watched.no_wait = true;
    assert_int_equal(rp_graph_replay(graph, args, 2, f->streams[0], &f->err), RP_ERROR_DRIVER);
    watched.no_record = false;
    assert_int_equal(rp_graph_replay(graph, args, 2, f->streams[1], &f->err), RP_ERROR_DRIVER);
    rpt_says(f, "whose event could not be recorded");
    watched.no_wait = false;
    RPT_OK(f, rp_graph_replay(graph, args, 2, f->streams[1], &f->err));
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    rp_graph_destroy(graph);
    f->driver->cuMemFree(in);
    f->driver->cuMemFree(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(test_shapes),
        RPT_TEST(test_strides_that_say_nothing),
        RPT_TEST(test_impossible_descriptions),
        cmocka_unit_test(test_dtype_names),
        RPT_TEST(test_long_shapes),
        cmocka_unit_test_setup_teardown(test_memory_of_arguments, open_watched, rpt_teardown),
        cmocka_unit_test_setup_teardown(test_known_memory_is_free, open_watched, rpt_teardown),
        cmocka_unit_test_setup_teardown(test_unrecorded_event, open_watched, rpt_teardown),
    };
    return cmocka_run_group_tests_name("contract", tests, NULL, NULL);
}
