/* SPDX-License-Identifier: MIT
 *
 * The prices of execs in device memory: which chips are known, and what is learned of others, on a
 * host driver whose execs are given prices of their own.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "graph/exec/exec_cache.h"
#include "graph/handles/device.h"
#include "graph/objects/byte_prices.h"

#include <math.h>
#include <pthread.h>

#define MIB ((uint64_t)1 << 20)

/* A driver that tells another name, and free memory as others would leave it. */
static struct {
    struct rp_driver table;
    const char *name;
    int multiprocessors, major;
    _Atomic size_t instantiated, readings, captures;
    size_t captures_before; /* when the first exec was made */
    size_t jump_at;         /* the reading from which free memory is another */
    int64_t jump;
} chip;

static CUresult tell_name(char *name, int length, CUdevice device)
{
    (void)device;
    snprintf(name, (size_t)length, "%s", chip.name);
    return CUDA_SUCCESS;
}

static CUresult tell_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CUresult result = rpi_driver_host()->cuDeviceGetAttribute(value, attribute, device);
    if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        *value = chip.multiprocessors;
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        *value = chip.major;
    return result;
}

static CUresult tell_memory(size_t *out_free, size_t *out_total)
{
    CUresult result = rpi_driver_host()->cuMemGetInfo(out_free, out_total);
    if (atomic_fetch_add(&chip.readings, 1) >= chip.jump_at)
        *out_free = (size_t)((int64_t)*out_free + chip.jump);
    return result;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    if (!atomic_fetch_add(&chip.instantiated, 1))
        chip.captures_before = atomic_load(&chip.captures);
    return rpi_driver_host()->cuGraphInstantiateWithFlags(exec, graph, flags);
}

static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode)
{
    atomic_fetch_add(&chip.captures, 1);
    return rpi_driver_host()->cuStreamBeginCapture(stream, mode);
}

/* Of no kind that is known. */
static void make_chip(void)
{
    memset(&chip, 0, sizeof chip);
    chip.table = *rpi_driver_host();
    chip.name = "Another chip";
    chip.multiprocessors = 108;
    chip.major = 8;
    chip.jump_at = SIZE_MAX;
    chip.table.cuDeviceGetName = tell_name;
    chip.table.cuDeviceGetAttribute = tell_attribute;
    chip.table.cuMemGetInfo = tell_memory;
    chip.table.cuGraphInstantiateWithFlags = instantiate;
    chip.table.cuStreamBeginCapture = begin_capture;
    unsetenv("REPRISE_EXEC_PRICES");
    rpi_device_prices_forget();
}

static struct rpi_byte_prices given; /* of the host driver's execs */

static void give_prices_in_pools(unsigned pools, uint64_t path, uint64_t node, uint64_t step)
{
    struct rpi_host_options host = RPI_HOST_OPTIONS_INIT;
    given = (struct rpi_byte_prices){path, node};
    host.exec_pools = pools;
    host.exec_path_bytes = path;
    host.exec_node_bytes = node;
    host.exec_step_bytes = step;
    rpi_host_configure(&host);
}

static void give_prices(uint64_t path, uint64_t node, uint64_t step)
{
    give_prices_in_pools(1, path, node, step);
}

static struct rpt_fixture f;

static int set_up(void **state)
{
    (void)state;
    make_chip();
    give_prices(60000, 5000, 2 * MIB);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unsetenv("REPRISE_EXEC_PRICES");
    rpi_device_prices_forget();
    rpi_host_configure(NULL);
    return 0;
}

static struct rp_device_exec_info info_now(void)
{
    struct rp_device_exec_info info = {.size = sizeof info};
    rp_device_exec_info(f.device, &info);
    return info;
}

static double off(uint64_t learned, uint64_t right)
{
    return fabs((double)learned / (double)right - 1);
}

static void assert_measured(double within)
{
    struct rp_device_exec_info info = info_now();
    if (info.price_reason)
        print_error("not measured: %s\n", info.price_reason);
    assert_int_equal(info.price_source, RP_EXEC_PRICES_MEASURED);
    assert_string_equal(info.price_text, "measured here");
    assert_null(info.price_reason);
    if (off(info.path_bytes, given.path) > within || off(info.node_bytes, given.node) > within)
        print_error("%llu and %llu of %llu and %llu\n", (unsigned long long)info.path_bytes,
                    (unsigned long long)info.node_bytes, (unsigned long long)given.path,
                    (unsigned long long)given.node);
    assert_true(off(info.path_bytes, given.path) <= within);
    assert_true(off(info.node_bytes, given.node) <= within);
}

static void assert_assumed(const char *reason)
{
    struct rp_device_exec_info info = info_now();
    assert_int_equal(info.price_source, RP_EXEC_PRICES_ASSUMED);
    assert_string_equal(info.price_text, "assumed: as on NVIDIA H200");
    assert_int_equal(info.path_bytes, rpi_h200_byte_prices.path);
    assert_int_equal(info.node_bytes, rpi_h200_byte_prices.node);
    assert_int_equal(reason != NULL, info.price_reason != NULL);
    if (!reason || !info.price_reason)
        return;
    if (!strstr(info.price_reason, reason))
        print_error("'%s' for '%s'\n", info.price_reason, reason);
    assert_non_null(strstr(info.price_reason, reason));
}

static void learn(void)
{
    RPT_OK(&f, rp_device_exec_learn_prices(f.device, &f.err));
}

/* ---- Known chips --------------------------------------------------------------------------- */

static enum rp_exec_price_source source_of(void)
{
    struct rp_device *device;
    struct rp_device_exec_info info = {.size = sizeof info};
    struct rp_error err;
    assert_int_equal(rpi_device_open_on(&chip.table, 0, &device, &err), RP_OK);
    rp_device_exec_info(device, &info);
    assert_int_equal(info.path_bytes, 113664);
    assert_int_equal(info.node_bytes, 2458);
    assert_string_equal(info.price_text, info.price_source == RP_EXEC_PRICES_FITTED
                                             ? "fitted on NVIDIA H200, driver 580"
                                             : "assumed: as on NVIDIA H200");
    rp_device_destroy(device);
    return info.price_source;
}

static void be_an_h200(void)
{
    make_chip();
    chip.table.provider = "cuda";
    chip.name = "NVIDIA H200";
    chip.multiprocessors = 132;
    chip.major = 9;
}

static void only_an_h200_with_its_driver_is_known(void **state)
{
    (void)state;
    be_an_h200();
    assert_int_equal(source_of(), RP_EXEC_PRICES_FITTED);
    chip.name = "NVIDIA H100 80GB HBM3";
    assert_int_equal(source_of(), RP_EXEC_PRICES_ASSUMED);
    be_an_h200();
    chip.multiprocessors = 114;
    assert_int_equal(source_of(), RP_EXEC_PRICES_ASSUMED);
    be_an_h200();
    chip.major = 10;
    assert_int_equal(source_of(), RP_EXEC_PRICES_ASSUMED);
    be_an_h200();
    chip.table.version = 13010;
    assert_int_equal(source_of(), RP_EXEC_PRICES_ASSUMED);
    be_an_h200();
    chip.table.provider = "host";
    assert_int_equal(source_of(), RP_EXEC_PRICES_ASSUMED);
    assert_int_equal(chip.instantiated, 0);
}

static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    (void)user;
    return rpt_launch(&f, f.nothing, rp_call_stream(call), NULL, err);
}

static struct rp_graph *capture(void)
{
    struct rp_graph *graph;
    RPT_OK(&f, rp_graph_capture(f.pool, NULL, work, NULL, NULL, 0, &graph, &f.err));
    return graph;
}

static uint64_t exec_bytes(const struct rp_graph *graph)
{
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(graph, &info);
    return info.exec_bytes;
}

static void the_host_driver_is_not_measured(void **state)
{
    (void)state;
    rpt_open(&f);
    struct rp_graph *graph = capture();
    assert_assumed(NULL);
    assert_int_equal(exec_bytes(graph), rpi_h200_byte_prices.path + rpi_h200_byte_prices.node);
    rp_graph_destroy(graph);
    rpt_close(&f);
}

/* ---- Unknown ones -------------------------------------------------------------------------- */

static rp_status much_work(struct rp_call *call, void *user, struct rp_error *err)
{
    rp_status status = RP_OK;
    for (uint64_t nodes = *(const uint64_t *)user; nodes && status == RP_OK; nodes--)
        status = work(call, NULL, err);
    return status;
}

/* Whose exec is thought to take as many bytes. */
static struct rp_graph *capture_of(uint64_t bytes)
{
    struct rp_graph *graph;
    uint64_t nodes = (bytes - rpi_h200_byte_prices.path) / rpi_h200_byte_prices.node;
    RPT_OK(&f, rp_graph_capture(f.pool, NULL, much_work, &nodes, NULL, 0, &graph, &f.err));
    return graph;
}

static void a_capture_learns_where_execs_take_a_quarter_of_the_budget(void **state)
{
    (void)state;
    rpt_open_on(&f, &chip.table, NULL);
    assert_assumed(NULL);
    struct rp_graph *first = capture_of(RPI_EXEC_DEFAULT_BUDGET / RPI_EXEC_COUNTING_SHARE),
                    *second = capture();
    assert_assumed(NULL); /* the first takes a little less, and the second was not there yet */
    size_t instantiated = chip.instantiated;
    struct rp_graph *third = capture_of(RPI_EXEC_DEFAULT_BUDGET / 8);
    assert_measured(0.03);
    assert_true(chip.instantiated > instantiated + 1);
    struct rp_device_exec_info info = info_now();
    assert_true(exec_bytes(second) == rpi_h200_byte_prices.path + rpi_h200_byte_prices.node);
    assert_true(exec_bytes(third) > info.path_bytes + info.node_bytes);
    assert_int_equal(info.bytes, exec_bytes(first) + exec_bytes(second) + exec_bytes(third));
    assert_int_equal(info.execs, 3);
    struct rpi_host_statistics left;
    rpi_host_statistics(&left);
    assert_int_equal(left.execs, 3);
    rp_graph_destroy(first);
    rp_graph_destroy(second);
    rp_graph_destroy(third);
    rpt_close(&f);
}

static void a_capture_that_has_to_learn_does_so_ahead_of_itself(void **state)
{
    (void)state;
    setenv("REPRISE_EXEC_PRICES", "measure", 1);
    rpt_open_on(&f, &chip.table, NULL);
    struct rp_graph *graph = capture();
    assert_measured(0.03);
    assert_int_equal(chip.captures_before, 0);
    assert_int_equal(exec_bytes(graph), info_now().path_bytes + info_now().node_bytes);
    rp_graph_destroy(graph);
    rpt_close(&f);
}

static void an_estimate_learns_ahead_of_itself(void **state)
{
    (void)state;
    struct rp_estimate *estimate;
    struct rp_estimate_info info = {.size = sizeof info};
    rpt_open_on(&f, &chip.table, NULL);
    RPT_OK(&f, rp_estimate_create(&estimate, &f.err));
    RPT_OK(&f, rp_estimate_add(estimate, f.pool, NULL, work, NULL, NULL, 0, &f.err));
    assert_measured(0.03);
    assert_int_equal(chip.captures_before, 0);
    rp_estimate_info(estimate, &info);
    assert_int_equal(info.exec_bytes, info_now().path_bytes + info_now().node_bytes);
    rp_estimate_destroy(estimate);
    rpt_close(&f);
}

static void other_prices_and_steps_are_learned(void **state)
{
    (void)state;
    static const struct {
        uint64_t path, node, step;
    } chips[] = {{113664, 2458, 2 * MIB}, {60000, 5000, 2 * MIB}, {227328, 1229, 2 * MIB},
                 {113664, 2458, 0},       {90000, 9000, MIB},     {150000, 2000, 3 * MIB},
                 {40000, 3000, 65536},    {113664, 2458, 4 * MIB}};
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        make_chip();
        give_prices(chips[i].path, chips[i].node, chips[i].step);
        rpt_open_on(&f, &chip.table, NULL);
        learn();
        assert_measured(0.05);
        rpt_close(&f);
    }
}

static uint64_t free_now(void)
{
    size_t free, total;
    assert_int_equal(f.driver->cuMemGetInfo(&free, &total), 0);
    return free;
}

/* As on an H200. What was taken is given back. */
static void drivers_with_several_pools_are_learned(void **state)
{
    (void)state;
    for (unsigned pools = 2; pools <= 5; pools++) {
        make_chip();
        give_prices_in_pools(pools, 113664, 2458, 2 * MIB);
        rpt_open_on(&f, &chip.table, NULL);
        uint64_t before = free_now();
        learn();
        assert_measured(0.05);
        assert_int_equal(free_now(), before);
        CUcontext context = NULL;
        assert_int_equal(f.driver->cuCtxGetCurrent(&context), 0);
        assert_ptr_equal(context, f.device->context);
        rpt_close(&f);
    }
}

static void what_the_driver_has_in_hand_is_left_out(void **state)
{
    (void)state;
    enum { SHORT = 40 };
    CUgraphExec execs[SHORT];
    rpt_open_on(&f, &chip.table, NULL);
    CUgraph graph;
    CUgraphNode node;
    assert_int_equal(f.driver->cuGraphCreate(&graph, 0), 0);
    assert_int_equal(f.driver->cuGraphAddEmptyNode(&node, graph, NULL, 0), 0);
    for (int i = 0; i < SHORT; i++)
        assert_int_equal(f.driver->cuGraphInstantiateWithFlags(&execs[i], graph, 0), 0);
    for (int i = 0; i < SHORT; i++)
        assert_int_equal(f.driver->cuGraphExecDestroy(execs[i]), 0);
    assert_int_equal(f.driver->cuGraphDestroy(graph), 0);
    learn();
    assert_measured(0.03);
    rpt_close(&f);
}

/* A driver that has taken steps for the first measurement would take none for a second. */
static void a_process_measures_once_for_each_kind(void **state)
{
    (void)state;
    rpt_open_on(&f, &chip.table, NULL);
    learn();
    struct rp_device_exec_info first = info_now();
    size_t made = chip.instantiated;
    assert_true(made > 50);
    learn();
    struct rp_graph *graph = capture();
    rp_graph_destroy(graph);
    assert_int_equal(chip.instantiated, made + 1);
    rpt_close(&f);
    give_prices(90000, 2000, 2 * MIB);
    rpt_open_on(&f, &chip.table, NULL);
    learn();
    assert_int_equal(chip.instantiated, made + 1);
    assert_int_equal(info_now().price_source, RP_EXEC_PRICES_MEASURED);
    assert_int_equal(info_now().path_bytes, first.path_bytes);
    assert_int_equal(info_now().node_bytes, first.node_bytes);
    rpt_close(&f);
    chip.name = "A third chip";
    rpt_open_on(&f, &chip.table, NULL);
    learn();
    assert_measured(0.03);
    rpt_close(&f);
}

/* ---- Disturbed ----------------------------------------------------------------------------- */

/* Free memory jumps once. False: that was noticed, or did no harm. */
static bool misled(size_t at, int64_t jump)
{
    make_chip();
    rpi_host_configure(NULL);
    give_prices(113664, 2458, 2 * MIB);
    chip.jump_at = at;
    chip.jump = jump;
    rpt_open_on(&f, &chip.table, NULL);
    learn();
    struct rp_device_exec_info info = info_now();
    assert_true(info.price_source == RP_EXEC_PRICES_MEASURED || info.price_reason);
    rpt_close(&f);
    return off(info.path_bytes, given.path) > 0.08 || off(info.node_bytes, given.node) > 0.12;
}

/* At each reading, by each of the jumps in turn. */
static void memory_that_others_take_or_give_does_not_mislead(void **state)
{
    (void)state;
    static const int64_t jumps[] = {-1, 1, -2, 2, -3, -6, 6, -40, 40};
    enum { JUMPS = sizeof jumps / sizeof *jumps };
    for (size_t j = 0; j < JUMPS; j++)
        for (size_t at = j; at < 320; at += JUMPS) {
            bool wrong = misled(at, jumps[j] * (int64_t)MIB);
            if (wrong)
                print_error("misled by %d MiB from reading %zu on\n", (int)jumps[j], at);
            assert_false(wrong);
        }
}

static void a_disturbed_measurement_is_told(void **state)
{
    (void)state;
    enum { WITHIN = 20, IN_A_LINE = 400 }; /* in the first series of each way */
    chip.jump_at = WITHIN;
    chip.jump = 6 * (int64_t)MIB;
    rpt_open_on(&f, &chip.table, NULL);
    learn();
    struct rp_graph *graph = capture();
    assert_assumed("free device memory rose");
    assert_int_equal(exec_bytes(graph), rpi_h200_byte_prices.path + rpi_h200_byte_prices.node);
    rp_graph_destroy(graph);
    rpt_close(&f);
    make_chip();
    give_prices_in_pools(3, 113664, 2458, 2 * MIB);
    chip.jump_at = IN_A_LINE;
    chip.jump = -20 * (int64_t)MIB;
    rpt_open_on(&f, &chip.table, NULL);
    learn();
    assert_assumed("two measurements of the same executable graphs differ");
    size_t made = chip.instantiated;
    learn(); /* once and for all */
    assert_int_equal(chip.instantiated, made);
    rpt_close(&f);
}

static void what_tells_nothing_is_told(void **state)
{
    (void)state;
    rpi_host_configure(NULL); /* execs that take nothing */
    rpt_open_on(&f, &chip.table, NULL);
    learn();
    assert_assumed("did not fall evenly");
    assert_true(chip.instantiated < 300);
    rpt_close(&f);
    make_chip();
    give_prices(113664, 2458, 32 * MIB); /* steps too large */
    rpt_open_on(&f, &chip.table, NULL);
    learn();
    assert_assumed("did not fall evenly");
    rpt_close(&f);
    make_chip();
    give_prices(113664, 100, 2 * MIB);
    rpt_open_on(&f, &chip.table, NULL);
    learn();
    assert_assumed("more than ten times off");
    rpt_close(&f);
}

/* ---- Where it is left ---------------------------------------------------------------------- */

static void it_is_left_where_there_is_no_room(void **state)
{
    (void)state;
    rpt_open_on(&f, &chip.table, NULL);
    RPT_OK(&f, rp_device_exec_set_budget(f.device, 63 * MIB, &f.err));
    learn();
    struct rp_graph *graph = capture();
    assert_assumed("the budget of executable graphs has no room");
    assert_int_equal(chip.instantiated, 1);
    uint64_t assumed = exec_bytes(graph);
    RPT_OK(&f, rp_device_exec_set_budget(f.device, 64 * MIB, &f.err));
    chip.jump_at = 0;
    chip.jump = -(int64_t)(15 * 1024 + 600) * (int64_t)MIB;
    learn();
    assert_assumed("too little device memory is free");
    assert_int_equal(chip.instantiated, 1);
    chip.jump = 0;
    learn();
    assert_measured(0.03);
    assert_int_equal(exec_bytes(graph), assumed); /* as it was when it joined */
    rp_graph_destroy(graph);
    rpt_close(&f);
}

static rp_status learn_in_a_capture(struct rp_call *call, void *user, struct rp_error *err)
{
    size_t *made = user;
    rp_status status = rp_device_exec_learn_prices(f.device, err);
    *made += chip.instantiated;
    return status == RP_OK ? work(call, NULL, err) : status;
}

static void a_callable_that_is_captured_does_not_measure(void **state)
{
    (void)state;
    struct rp_graph *graph;
    size_t made = 0;
    rpt_open_on(&f, &chip.table, NULL);
    RPT_OK(&f, rp_device_exec_set_budget(f.device, 1, &f.err));
    setenv("REPRISE_EXEC_PRICES", "measure", 1);
    rpt_close(&f);
    rpt_open_on(&f, &chip.table, NULL);
    chip.jump_at = 0;
    chip.jump = -(int64_t)(15 * 1024 + 600) * (int64_t)MIB; /* not ahead of the capture */
    struct rp_device *device = f.device;
    assert_false(device->prices.settled);
    RPT_OK(&f, rp_graph_capture(f.pool, NULL, learn_in_a_capture, &made, NULL, 0, &graph, &f.err));
    assert_int_equal(made, 0);
    rp_graph_destroy(graph);
    rpt_close(&f);
}

/* While others capture, in any mode, whose captures go on. */
static void captures_of_others_go_on(void **state)
{
    (void)state;
    CUgraph graph = NULL;
    rpt_open_on(&f, &chip.table, NULL);
    assert_int_equal(f.driver->cuStreamBeginCapture(f.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL),
                     0);
    learn();
    assert_measured(0.03);
    assert_true(rpt_is_capturing(&f, f.streams[0]));
    assert_int_equal(f.driver->cuStreamEndCapture(f.streams[0], &graph), 0);
    assert_int_equal(f.driver->cuGraphDestroy(graph), 0);
    rpt_close(&f);
}

static void the_environment_overrules(void **state)
{
    (void)state;
    setenv("REPRISE_EXEC_PRICES", "measure", 1);
    rpt_open(&f); /* of a kind that is known */
    RPT_OK(&f, rp_device_exec_set_budget(f.device, 1, &f.err));
    learn();
    assert_measured(0.03);
    rpt_close(&f);
    setenv("REPRISE_EXEC_PRICES", "assume", 1);
    rpt_open_on(&f, &chip.table, NULL);
    learn();
    assert_assumed("turned off");
    assert_int_equal(chip.instantiated, 0);
    rpt_close(&f);
    setenv("REPRISE_EXEC_PRICES", "guess", 1);
    assert_int_equal(rpi_device_open_on(&chip.table, 0, &f.device, &f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    rpt_says(&f, "REPRISE_EXEC_PRICES is 'guess'; it may be 'measure' or 'assume'");
    assert_int_equal(rp_device_exec_learn_prices(NULL, &f.err), RP_ERROR_INVALID_ARGUMENT);
}

/* ---- Threads and failures ------------------------------------------------------------------ */

static void *learn_and_look(void *user)
{
    struct rp_device_exec_info *info = user;
    struct rp_error err;
    info->size = sizeof *info;
    if (rp_device_exec_learn_prices(f.device, &err) == RP_OK)
        rp_device_exec_info(f.device, info);
    return NULL;
}

static void threads_measure_once(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    struct rp_device_exec_info infos[THREADS] = {{0}};
    rpt_open_on(&f, &chip.table, NULL);
    learn();
    size_t once = chip.instantiated;
    rpt_close(&f);
    make_chip();
    rpt_open_on(&f, &chip.table, NULL);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, learn_and_look, &infos[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(infos[i].price_source, RP_EXEC_PRICES_MEASURED);
    assert_int_equal(chip.instantiated, once);
    assert_measured(0.03);
    rpt_close(&f);
}

/* A driver that refuses to make execs is asked three times. */
static CUresult refuse(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)exec;
    (void)graph;
    (void)flags;
    atomic_fetch_add(&chip.instantiated, 1);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static void a_refusal_is_not_the_last_word(void **state)
{
    (void)state;
    chip.table.cuGraphInstantiateWithFlags = refuse;
    rpt_open_on(&f, &chip.table, NULL);
    for (size_t i = 1; i <= 5; i++) {
        learn();
        assert_assumed("could not be made");
        assert_int_equal(chip.instantiated, i < 3 ? i : 3);
    }
    rpt_close(&f);
    make_chip();
    rpt_open_on(&f, &chip.table, NULL);
    learn(); /* nothing was kept of it */
    assert_measured(0.03);
    rpt_close(&f);
}

static bool learns(const struct rp_driver *driver, void *user)
{
    (void)user;
    struct rpt_scene scene;
    rpi_device_prices_forget();
    bool worked = rpt_scene_open(&scene, driver) &&
                  rp_device_exec_learn_prices(scene.device, &scene.err) == RP_OK;
    assert_true(worked || scene.err.message[0]);
    rpt_scene_close(&scene);
    return worked;
}

static const char *left_over(void *user)
{
    (void)user;
    struct rpi_host_statistics left;
    rpi_host_statistics(&left);
    return left.execs
               ? "execs"
               : (left.graphs ? "graphs"
                              : (left.allocations ? "memory" : (left.streams ? "streams" : NULL)));
}

static void every_failure(void **state)
{
    (void)state;
    const struct rpt_scenario scenario = {
        .run = learns, .left = left_over, .step = RPT_LONG_LOOP_STEP};
    give_prices(1100000, 24000, 4 * MIB); /* so dear that few of them tell */
    setenv("REPRISE_EXEC_PRICES", "measure", 1);
    struct rpi_host_options before = rpt_ignore_races();
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 0);
    assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > 0);
    rpi_host_configure(&before);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(only_an_h200_with_its_driver_is_known),
        TEST(the_host_driver_is_not_measured),
        TEST(a_capture_learns_where_execs_take_a_quarter_of_the_budget),
        TEST(a_capture_that_has_to_learn_does_so_ahead_of_itself),
        TEST(an_estimate_learns_ahead_of_itself),
        TEST(other_prices_and_steps_are_learned),
        TEST(drivers_with_several_pools_are_learned),
        TEST(what_the_driver_has_in_hand_is_left_out),
        TEST(a_process_measures_once_for_each_kind),
        TEST(memory_that_others_take_or_give_does_not_mislead),
        TEST(a_disturbed_measurement_is_told),
        TEST(what_tells_nothing_is_told),
        TEST(it_is_left_where_there_is_no_room),
        TEST(a_callable_that_is_captured_does_not_measure),
        TEST(captures_of_others_go_on),
        TEST(the_environment_overrules),
        TEST(threads_measure_once),
        TEST(a_refusal_is_not_the_last_word),
        TEST(every_failure),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
