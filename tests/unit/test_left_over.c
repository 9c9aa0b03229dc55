/* SPDX-License-Identifier: MIT
 *
 * Addresses of earlier captures in a kernel's struct, on the host driver: what nobody has any more
 * was left there by a call before, what somebody has refuses the capture (rp_in_use_fn).
 */
#include "graph_fixture.h"

enum { COUNT = 1 << 16 };
enum { BLOCK = 2 << 16 }; /* bytes: the next multiple of half of them lies in it */

struct subject {
    const struct rpt_fixture *f;
    uint64_t stale;  /* an address in a block of the first rehearsal of all */
    int runs;        /* of this capture */
    bool leaves;     /* it stands in the struct, */
    bool only_later; /* but not in the rehearsal */
    bool as_pointer; /* it is a parameter of its own */
    int records;     /* of so many it has an address of the rehearsal ahead of it */
    uint64_t own;    /* in a block of the latest run */
    int in_use;
    uint64_t asked;
};

static int is_in_use(uint64_t address, void *user)
{
    struct subject *subject = user;
    subject->asked = address;
    return subject->in_use;
}

/* y[index] = 3, where the index is the lower part of what stands in the struct's last word. */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    const struct rpt_fixture *f = subject->f;
    uint64_t block, word = 5;
    struct rpt_padded_param padded;
    void *params[] = {&padded};
    bool leaves = subject->leaves && (subject->runs || !subject->only_later);
    rp_status status = rp_call_alloc(call, BLOCK, rp_call_stream(call), &block, err);
    if (status != RP_OK)
        return status;
    if (!subject->stale)
        subject->stale = (block + UINT16_MAX) & ~(uint64_t)UINT16_MAX;
    if (leaves)
        word |= subject->stale;
    if (subject->runs % 2 == 1 && subject->runs / 2 < subject->records)
        word |= subject->own;
    subject->own = (block + UINT16_MAX) & ~(uint64_t)UINT16_MAX;
    subject->runs++;
    memset(&padded, 0, sizeof padded);
    padded.tag = 3;
    padded.to = (uint32_t *)(uintptr_t)rp_call_arg(call, 0);
    memcpy((char *)&padded + offsetof(struct rpt_padded_param, index), &word, sizeof word);
    status = rpt_fill(f, rp_call_stream(call), rp_call_arg(call, 0), 0, COUNT, err);
    if (status == RP_OK && subject->as_pointer)
        status = rpt_fill(f, rp_call_stream(call), subject->stale, 0, 1, err);
    if (status == RP_OK)
        status = rpt_launch(f, f->padded, rp_call_stream(call), params, err);
    return status == RP_OK ? rp_call_free(call, block, err) : status;
}

static rp_status capture(struct subject *subject, bool asks, const struct rp_arg *arg,
                         struct rp_error *err)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rp_graph *graph = NULL;
    float got[8];
    subject->runs = 0;
    subject->asked = 0;
    options.in_use = asks ? is_in_use : NULL;
    rp_status status =
        rp_graph_capture(subject->f->pool, &options, work, subject, arg, 1, &graph, err);
    if (status != RP_OK)
        return status;
    assert_int_equal(rp_graph_replay(graph, arg, 1, NULL, err), RP_OK);
    rpt_read(subject->f, arg->address, got, 8);
    uint32_t bits;
    memcpy(&bits, &got[5], sizeof bits);
    assert_int_equal(bits, 3);
    rp_graph_destroy(graph);
    return RP_OK;
}

static void what_nobody_has_is_left_over(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject = {.f = f};
    const struct rp_arg arg = rpt_arg(rpt_buffer(f, COUNT, 0), COUNT, RP_ARG_OUT);
    RPT_OK(f, capture(&subject, false, &arg, &f->err));
    subject.leaves = true;
    subject.in_use = 0;
    RPT_OK(f, capture(&subject, true, &arg, &f->err));
    assert_true(subject.asked >> 16 == subject.stale >> 16);
    f->driver->cuMemFree(arg.address);
}

static void what_somebody_has_refuses_the_capture(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject = {.f = f, .in_use = 1};
    const struct rp_arg arg = rpt_arg(rpt_buffer(f, COUNT, 0), COUNT, RP_ARG_OUT);
    RPT_OK(f, capture(&subject, true, &arg, &f->err));
    assert_int_equal(subject.asked, 0);
    subject.leaves = true;
    for (int asks = 0; asks < 2; asks++) {
        assert_int_equal(capture(&subject, asks, &arg, &f->err), RP_ERROR_CAPTURE);
        rpt_says(f, "belonged to an earlier run");
        rpt_says(f, "stood in the rehearsal");
    }
    f->driver->cuMemFree(arg.address);
}

static void what_is_a_parameter_of_its_own_is_not_left_over(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject = {.f = f};
    const struct rp_arg arg = rpt_arg(rpt_buffer(f, COUNT, 0), COUNT, RP_ARG_OUT);
    RPT_OK(f, capture(&subject, true, &arg, &f->err));
    subject.as_pointer = true;
    assert_int_equal(capture(&subject, true, &arg, &f->err), RP_ERROR_CAPTURE);
    rpt_says(f, "belonged to an earlier run");
    assert_int_equal(subject.asked, 0);
    f->driver->cuMemFree(arg.address);
}

static void what_the_rehearsal_had_itself_is_not_left_over(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject = {.f = f, .leaves = true};
    const struct rp_arg arg = rpt_arg(rpt_buffer(f, COUNT, 0), COUNT, RP_ARG_OUT);
    assert_int_equal(capture(&subject, true, &arg, &f->err), RP_ERROR_CAPTURE);
    rpt_says(f, "belonged to block 0");
    assert_int_equal(subject.asked, 0);
    f->driver->cuMemFree(arg.address);
}

static void what_was_not_there_in_the_rehearsal_is_left_over(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject = {.f = f, .in_use = 1};
    const struct rp_arg arg = rpt_arg(rpt_buffer(f, COUNT, 0), COUNT, RP_ARG_OUT);
    RPT_OK(f, capture(&subject, true, &arg, &f->err));
    subject.leaves = subject.only_later = true;
    RPT_OK(f, capture(&subject, true, &arg, &f->err));
    assert_int_equal(subject.asked, 0);
    f->driver->cuMemFree(arg.address);
}

/* Another capture need not have it there. */
static void what_another_capture_lacks_is_left_over(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject = {.f = f, .records = 2};
    const struct rp_arg arg = rpt_arg(rpt_buffer(f, COUNT, 0), COUNT, RP_ARG_OUT);
    RPT_OK(f, capture(&subject, true, &arg, &f->err));
    assert_int_equal(subject.runs, 6);
    subject.records = 3;
    assert_int_equal(capture(&subject, true, &arg, &f->err), RP_ERROR_CAPTURE);
    rpt_says(f, "belonged to block 0");
    assert_int_equal(subject.runs, 6);
    f->driver->cuMemFree(arg.address);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(what_nobody_has_is_left_over),
        RPT_TEST(what_somebody_has_refuses_the_capture),
        RPT_TEST(what_is_a_parameter_of_its_own_is_not_left_over),
        RPT_TEST(what_the_rehearsal_had_itself_is_not_left_over),
        RPT_TEST(what_was_not_there_in_the_rehearsal_is_left_over),
        RPT_TEST(what_another_capture_lacks_is_left_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
