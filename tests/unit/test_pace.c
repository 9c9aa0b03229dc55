/* SPDX-License-Identifier: MIT
 *
 * Restoring the pace of graphs: what is measured, when a context is made for it, and that nothing
 * is left of either, whatever fails. Times of the host driver mean nothing: which pace was the best
 * is set here.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "graph/objects/objects.h"

#include <float.h>

static unsigned contexts; /* that were made */
static struct rp_driver table;

static CUresult create(CUcontext *context, unsigned flags, CUdevice device)
{
    contexts++;
    return rpi_driver_host()->cuCtxCreate(context, flags, device);
}

static void restored_until_it_is_the_best(void **state)
{
    (void)state;
    struct rpt_fixture f;
    struct rp_pace pace = {.size = sizeof pace};
    CUcontext before = NULL, after = NULL;
    contexts = 0;
    table = *rpi_driver_host();
    table.cuCtxCreate = create;
    rpt_open_on(&f, &table, NULL);
    assert_int_equal(f.driver->cuCtxGetCurrent(&before), 0);
    RPT_OK(&f, rp_device_restore_pace(f.device, &pace, &f.err));
    assert_int_equal(contexts, 1); /* nothing to compare with */
    assert_true(pace.restored);
    assert_true(pace.before_us > 0 && pace.after_us > 0 && pace.ms > 0);
    double best = pace.before_us < pace.after_us ? pace.before_us : pace.after_us;
    assert_true(f.device->pace.best_us == best);
    f.device->pace.best_us = DBL_MAX;
    RPT_OK(&f, rp_device_restore_pace(f.device, &pace, &f.err));
    assert_int_equal(contexts, 1);
    assert_false(pace.restored);
    assert_true(pace.after_us == pace.before_us && pace.ms == 0);
    assert_true(f.device->pace.best_us == pace.before_us);
    f.device->pace.best_us = DBL_MIN;
    RPT_OK(&f, rp_device_restore_pace(f.device, NULL, &f.err));
    assert_int_equal(contexts, 2);
    assert_true(f.device->pace.best_us == DBL_MIN);
    assert_int_equal(f.driver->cuCtxGetCurrent(&after), 0);
    assert_ptr_equal(before, after);
    assert_int_equal(rp_device_restore_pace(NULL, &pace, &f.err), RP_ERROR_INVALID_ARGUMENT);
    rpt_says(&f, "device is NULL");
    rpt_close(&f);
}

/* A context that nobody made is the driver's, not ours, to complain of. */
static CUresult no_room(CUcontext *context, unsigned flags, CUdevice device)
{
    (void)context;
    (void)flags;
    (void)device;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void without_room_for_a_context(void **state)
{
    (void)state;
    struct rpt_fixture f;
    struct rp_pace pace = {.size = sizeof pace, .ms = 7};
    table = *rpi_driver_host();
    table.cuCtxCreate = no_room;
    rpt_open_on(&f, &table, NULL);
    assert_int_equal(rp_device_restore_pace(f.device, &pace, &f.err),
                     RP_ERROR_OUT_OF_DEVICE_MEMORY);
    rpt_says(&f, "restoring the pace of graphs");
    assert_true(pace.ms == 7);
    rpt_close(&f);
}

/* While somebody else captures, in any mode, and leaves his capture as it was. */
static void beside_a_capture(void **state)
{
    struct rpt_fixture *f = *state;
    CUgraph graph = NULL;
    assert_int_equal(f->driver->cuStreamBeginCapture(f->streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL),
                     0);
    RPT_OK(f, rp_device_restore_pace(f->device, NULL, &f->err));
    assert_int_equal(f->driver->cuStreamEndCapture(f->streams[0], &graph), 0);
    assert_int_equal(f->driver->cuGraphDestroy(graph), 0);
}

static bool restores(const struct rp_driver *driver, void *user)
{
    (void)user;
    struct rpt_scene scene;
    bool worked = rpt_scene_open(&scene, driver) &&
                  rp_device_restore_pace(scene.device, NULL, &scene.err) == RP_OK;
    assert_true(worked || scene.err.message[0]);
    rpt_scene_close(&scene);
    return worked;
}

static void every_failure(void **state)
{
    (void)state;
    const struct rpt_scenario scenario = {.run = restores, .step = RPT_LONG_LOOP_STEP};
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 0);
    assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restored_until_it_is_the_best),
        cmocka_unit_test(without_room_for_a_context),
        cmocka_unit_test_setup_teardown(beside_a_capture, rpt_setup, rpt_teardown),
        cmocka_unit_test(every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
