/* SPDX-License-Identifier: MIT
 *
 * Streams of captures outlive their pools: what a callable saw may be asked for later.
 */
#include "graph_fixture.h"

#include "reprise_framework.h"

static rp_status remember(struct rp_call *call, void *user, struct rp_error *err)
{
    struct CUstream_st **seen = user;
    uint64_t block;
    *seen = rp_call_stream(call);
    rp_status status = rp_call_alloc(call, 4096, *seen, &block, err);
    return status ? status : rp_call_free(call, block, err);
}

static struct CUstream_st *capture_and_forget(struct rpt_fixture *f)
{
    struct rp_pool *pool = NULL;
    struct rp_graph *graph = NULL;
    struct CUstream_st *seen = NULL;
    RPT_OK(f, rp_pool_create(f->device, NULL, &pool, &f->err));
    RPT_OK(f, rp_graph_capture(pool, NULL, remember, &seen, NULL, 0, &graph, &f->err));
    rp_graph_destroy(graph);
    rp_pool_destroy(pool);
    return seen;
}

static void streams_outlive_their_pools(void **state)
{
    (void)state;
    struct rpt_fixture f;
    rpt_open(&f);
    struct CUstream_st *first = capture_and_forget(&f);
    CUevent event;
    assert_int_equal(f.driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0);
    assert_int_equal(f.driver->cuEventRecord(event, first), 0);
    assert_int_equal(f.driver->cuEventSynchronize(event), 0);
    assert_int_equal(f.driver->cuEventDestroy(event), 0);
    assert_ptr_equal(capture_and_forget(&f), first); /* and are used again */
    rpt_close(&f);
}

static void pools_at_once_have_streams_of_their_own(void **state)
{
    (void)state;
    enum { POOLS = 5 };
    struct rpt_fixture f;
    struct rp_pool *pools[POOLS];
    struct rp_graph *graphs[POOLS];
    struct CUstream_st *seen[POOLS];
    rpt_open(&f);
    for (int i = 0; i < POOLS; i++) {
        RPT_OK(&f, rp_pool_create(f.device, NULL, &pools[i], &f.err));
        RPT_OK(&f,
               rp_graph_capture(pools[i], NULL, remember, &seen[i], NULL, 0, &graphs[i], &f.err));
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(seen[i], seen[k]);
    }
    for (int i = 0; i < POOLS; i++) {
        rp_graph_destroy(graphs[i]);
        rp_pool_destroy(pools[i]);
    }
    rpt_close(&f);
}

static void the_one_beside_is_kept_from_captures(void **state)
{
    (void)state;
    struct rpt_fixture f;
    struct CUstream_st *first = NULL, *second = NULL;
    rpt_open(&f);
    RPT_OK(&f, rp_device_stream(f.device, &first, &f.err));
    assert_non_null(first);
    assert_ptr_not_equal(capture_and_forget(&f), first);
    RPT_OK(&f, rp_device_stream(f.device, &second, &f.err));
    assert_ptr_equal(second, first);
    assert_int_equal(rp_device_stream(f.device, NULL, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_device_stream(NULL, &second, &f.err), RP_ERROR_INVALID_ARGUMENT);
    rpt_close(&f);
}

static void a_stream_that_is_refused_is_asked_for_again(void **state)
{
    (void)state;
    struct rpt_fixture f;
    struct CUstream_st *stream = NULL;
    rpt_open_on(&f, rpi_driver_fault(rpi_driver_host()), NULL);
    bool failed = false;
    for (uint64_t call = 1; !stream; call++) { /* the first asks for the context */
        rpi_driver_fault_at(call, CUDA_ERROR_OUT_OF_MEMORY);
        rp_status status = rp_device_stream(f.device, &stream, &f.err);
        assert_true((status == RP_OK) == (stream != NULL));
        failed |= status != RP_OK;
    }
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    assert_true(failed);
    rpt_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_outlive_their_pools),
        cmocka_unit_test(pools_at_once_have_streams_of_their_own),
        cmocka_unit_test(the_one_beside_is_kept_from_captures),
        cmocka_unit_test(a_stream_that_is_refused_is_asked_for_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
