/* SPDX-License-Identifier: MIT
 *
 * What two captures of one callable may not differ in: each property of a node, changed alone, is
 * found, and the capture is refused with a word on what changed. Where it is the third capture that
 * differs, which verifies, arguments are copied.
 */
#include "graph_fixture.h"

#include <stdio.h>

enum what {
    GRID_X,
    GRID_Y,
    GRID_Z,
    BLOCK_X,
    BLOCK_Y,
    BLOCK_Z,
    SHARED,
    KERNEL,
    VALUE,
    POINTER,
    TYPE,
    SET_VALUE,
    SET_WIDTH,
    COPY_BYTES,
    CHILD_VALUE,
    WHATS
};

static const char *const words[WHATS] = {
    [GRID_X] = "its grid changed",
    [GRID_Y] = "its grid changed",
    [GRID_Z] = "its grid changed",
    [BLOCK_X] = "its block size changed",
    [BLOCK_Y] = "its block size changed",
    [BLOCK_Z] = "its block size changed",
    [SHARED] = "its shared memory changed",
    [KERNEL] = "it was another kernel",
    [VALUE] = "the 4 bytes at byte 8 of its parameters changed",
    [POINTER] = "the address at byte 0 of its parameters was of block",
    [TYPE] = "it was of another type",
    [SET_VALUE] = "of its parameters",
    [SET_WIDTH] = "of its parameters",
    [COPY_BYTES] = "of its parameters",
    [CHILD_VALUE] = "the 4 bytes at byte 8 of its parameters changed",
};

struct subject {
    const struct rpt_fixture *f;
    enum what what;
    bool differs; /* else it is the same each time, and accepted */
    bool third;   /* only the second of each three does, which verifies */
    int calls;
    char said[512];
};

/* One kernel node in a child graph of the capture. */
static CUresult add_child(const struct rpt_fixture *f, CUstream s,
                          const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUgraph child = NULL;
    CUgraphNode node;
    CUresult result = f->driver->cuGraphCreate(&child, 0);
    if (result == CUDA_SUCCESS)
        result = f->driver->cuGraphAddKernelNode(&node, child, NULL, 0, params);
    if (result == CUDA_SUCCESS)
        result = rpt_add_child(f, s, child);
    if (child)
        f->driver->cuGraphDestroy(child);
    return result;
}

static rp_status differs(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    const struct rpt_fixture *f = subject->f;
    CUstream s = rp_call_stream(call);
    uint64_t blocks[2] = {0, 0};
    int call_number = subject->calls++;
    unsigned more = subject->differs && call_number % (subject->third ? 3 : 2) == 1;
    rp_status status = RP_OK;
    for (int i = 0; i < 2 && status == RP_OK; i++)
        status = rp_call_alloc(call, 4096, s, &blocks[i], err);
    if (status != RP_OK)
        return status;
    enum what what = subject->what;
    uint64_t to = blocks[what == POINTER ? more : 0];
    float value = (what == VALUE || what == CHILD_VALUE) && more ? 2 : 1;
    uint32_t count = 4;
    void *params[] = {&to, &value, &count};
    CUDA_KERNEL_NODE_PARAMS p = {.func = what == KERNEL && more ? f->nothing : f->fill,
                                 .gridDimX = 1 + (what == GRID_X ? more : 0),
                                 .gridDimY = 1 + (what == GRID_Y ? more : 0),
                                 .gridDimZ = 1 + (what == GRID_Z ? more : 0),
                                 .blockDimX = 1 + (what == BLOCK_X ? more : 0),
                                 .blockDimY = 1 + (what == BLOCK_Y ? more : 0),
                                 .blockDimZ = 1 + (what == BLOCK_Z ? more : 0),
                                 .sharedMemBytes = what == SHARED ? 64 * more : 0,
                                 .kernelParams = params};
    CUresult result;
    if (what == COPY_BYTES)
        result = f->driver->cuMemcpyDtoDAsync(to, blocks[1], 64 + 64 * more, s);
    else if (what == SET_VALUE || what == SET_WIDTH || (what == TYPE && more))
        result = f->driver->cuMemsetD32Async(to, what == SET_VALUE ? more : 0,
                                             what == SET_WIDTH ? 8 + more : 8, s);
    else if (what == CHILD_VALUE)
        result = add_child(f, s, &p);
    else
        result =
            f->driver->cuLaunchKernel(p.func, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX,
                                      p.blockDimY, p.blockDimZ, p.sharedMemBytes, s, params, NULL);
    return result == CUDA_SUCCESS ? RP_OK : rpi_error_driver(err, result, "differs", "launching");
}

static void each_difference_is_found(void **state)
{
    struct rpt_fixture f;
    (void)state;
    rpt_open(&f);
    for (enum what what = 0; what < WHATS; what++) {
        struct subject subject = {.f = &f, .what = what};
        struct rp_graph *graph = NULL;
        RPT_OK(&f, rp_graph_capture(f.pool, NULL, differs, &subject, NULL, 0, &graph, &f.err));
        rp_graph_destroy(graph);
        subject.differs = true;
        assert_int_equal(rp_graph_capture(f.pool, NULL, differs, &subject, NULL, 0, &graph, &f.err),
                         RP_ERROR_DIVERGED);
        if (!strstr(f.err.message, words[what]))
            print_error("%d: %s\n", (int)what, f.err.message);
        assert_non_null(strstr(f.err.message, words[what]));
    }
    rpt_close(&f);
}

static void keep(enum rp_log_level level, const char *message, void *user)
{
    struct subject *subject = user;
    if (level == RP_LOG_WARNING)
        snprintf(subject->said, sizeof subject->said, "%s", message);
}

/* What the third capture differs in: a word of the warning. */
static const char *third_word(enum what what)
{
    if (what == POINTER)
        return "held another address in place of a block's";
    if (what < VALUE)
        return words[what];
    return "held another value";
}

static void each_difference_of_a_third_capture_is_found(void **state)
{
    struct rpt_fixture f;
    (void)state;
    rpt_open(&f);
    for (enum what what = 0; what < WHATS; what++) {
        struct subject subject = {.f = &f, .what = what, .differs = true, .third = true};
        struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
        struct rp_graph *graph = NULL;
        options.verify = RP_VERIFY_CAPTURE;
        rp_set_log(keep, &subject, RP_LOG_WARNING);
        rp_status status =
            rp_graph_capture(f.pool, &options, differs, &subject, NULL, 0, &graph, &f.err);
        assert_int_equal(status, what == TYPE ? RP_ERROR_DIVERGED : RP_OK);
        const char *said = what == TYPE ? f.err.message : subject.said;
        const char *word = what == TYPE ? "it was of another type in a third" : third_word(what);
        if (!strstr(said, word))
            fail_msg("%d: %s", (int)what, said);
        rp_graph_destroy(graph);
    }
    rp_set_log(NULL, NULL, RP_LOG_ERROR);
    rpt_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_difference_is_found),
        cmocka_unit_test(each_difference_of_a_third_capture_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
