/* SPDX-License-Identifier: MIT
 *
 * Parameters of 8 bytes that two captures differ in: the padding of a class may, nothing else.
 */
#include "graph/template/param_types.h"

#include "graph_fixture.h"
#include "reprise_tools.h"

#include <dlfcn.h>

static void the_prototype_tells_classes(void **state)
{
    static const struct {
        const char *prototype;
        size_t parameter;
        bool is_class;
    } cases[] = {
        {"void f<A>(int, m::Store<1>)", 1, true},
        {"void f<A>(int, m::Store<1>)", 0, false},
        {"void f<A>(int, m::Store<1>)", 2, false},
        {"void f(a::b<int, (c)4>, a::d<g(int, long)::{lambda(int, char)#1}>, int)", 1, true},
        {"void f(a::b<int, (c)4>, a::d<g(int, long)::{lambda(int, char)#1}>, int)", 2, false},
        {"f(std::array<char*, 1ul>)", 0, false},
        {"f(a::b*)", 0, false},
        {"f(a::b&)", 0, false},
        {"f(unsigned long long)", 0, false},
        {"f()", 0, false},
        {"f", 0, false},
        {"", 0, false},
        {")", 0, false},
        {"f(a::operator>, a::b)", 1, false},
        {"f(a::b<&(a::operator<)>, a::b)", 1, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (rpi_prototype_has_class(cases[i].prototype, cases[i].parameter) != cases[i].is_class)
            fail_msg("parameter %zu of %s", cases[i].parameter, cases[i].prototype);
}

/* ---- Captures ------------------------------------------------------------------------------ */

#define CLASS   "_Z4castIN6memory13StoreWithCastILi1EEEEvPfT_"
#define POINTER "_Z4castPfPc"
#define INTEGER "_Z4castPfy"
#define HOLDER  "_Z4castPfSt5arrayIPcLm1EE"
#define PLAIN   "cast"

static void run_nothing(const struct rp_host_launch *launch)
{
    (void)launch;
}

static const struct rp_host_param params[] = {{0, 8}, {8, 8}};
static const struct rp_host_kernel kernels[] = {
    {CLASS, run_nothing, NULL, params, 2, 0},   {POINTER, run_nothing, NULL, params, 2, 0},
    {INTEGER, run_nothing, NULL, params, 2, 0}, {HOLDER, run_nothing, NULL, params, 2, 0},
    {PLAIN, run_nothing, NULL, params, 2, 0},
};
static const struct rp_host_image image = {RP_HOST_IMAGE_MAGIC, 5, 0, kernels};

struct subject {
    const struct rpt_fixture *f;
    CUfunction function;
    uint64_t words[3]; /* of the calls, in turn */
    int calls;
};

static rp_status casts(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    uint64_t to = rp_call_arg(call, 0), word = subject->words[subject->calls++ % 3];
    void *values[] = {&to, &word};
    return rpt_launch(subject->f, subject->function, rp_call_stream(call), values, err);
}

/* What a capture says whose second run has another word, or, with a third one, that which verifies.
 */
static rp_status capture(const struct rpt_fixture *f, CUmodule module, const char *kernel,
                         const uint64_t words[3], struct rp_graph_info *out_info)
{
    struct subject subject = {.f = f, .words = {words[0], words[1], words[2]}};
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    CUdeviceptr memory;
    struct rp_graph *graph = NULL;
    struct rp_error err;
    options.verify = words[2] ? RP_VERIFY_CAPTURE : RP_VERIFY_NONE;
    assert_int_equal(f->driver->cuModuleGetFunction(&subject.function, module, kernel), 0);
    assert_int_equal(f->driver->cuMemAlloc(&memory, 64 * sizeof(float)), 0);
    struct rp_arg arg = rpt_arg(memory, 64, RP_ARG_OUT);
    rp_status status = rp_graph_capture(f->pool, &options, casts, &subject, &arg, 1, &graph, &err);
    if (status == RP_OK)
        rp_graph_info(graph, out_info);
    rp_graph_destroy(graph);
    f->driver->cuMemFree(memory);
    return status;
}

/* No addresses of the process, which the address sanitizer has many of. */
static const uint64_t one = 0x4000000450029b06, other = 0x4000000450000306;

static void only_padding_may_differ(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_graph_info info = {.size = sizeof info};
    CUmodule module;
    CUdeviceptr memory;
    assert_int_equal(f->driver->cuModuleLoadData(&module, &image), 0);
    assert_int_equal(f->driver->cuMemAlloc(&memory, 4096), 0);
    const struct {
        const char *kernel;
        uint64_t words[3];
        rp_status expected;
    } cases[] = {
        {CLASS, {one, other}, RP_OK},
        {CLASS, {one & ~0xff00ull, other}, RP_OK},
        {CLASS, {one, one + 1}, RP_ERROR_DIVERGED},          /* the byte ahead of the padding */
        {CLASS, {one, one ^ 1ull << 32}, RP_ERROR_DIVERGED}, /* what is behind it */
        {CLASS, {0x29b06, 0x306}, RP_ERROR_DIVERGED},        /* a small number */
        {CLASS, {memory, memory + 256}, RP_ERROR_DIVERGED},
        {POINTER, {one, other}, RP_ERROR_DIVERGED},
        {INTEGER, {one, other}, RP_ERROR_DIVERGED},
        {HOLDER, {one, other}, RP_ERROR_DIVERGED},
        {PLAIN, {one, other}, RP_ERROR_DIVERGED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (capture(f, module, cases[i].kernel, cases[i].words, &info) != cases[i].expected)
            fail_msg("case %zu, %s", i, cases[i].kernel);
    f->driver->cuMemFree(memory);
    f->driver->cuModuleUnload(module);
}

/* The argument is bound though the capture that verifies has other padding. */
static void padding_blames_nobody(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_graph_info info = {.size = sizeof info};
    const uint64_t words[] = {one, one ^ 0x2200, other};
    CUmodule module;
    assert_int_equal(f->driver->cuModuleLoadData(&module, &image), 0);
    assert_int_equal(capture(f, module, CLASS, words, &info), RP_OK);
    assert_int_equal(info.unverified_args, 0);
    assert_int_equal(capture(f, module, INTEGER, words, &info), RP_ERROR_DIVERGED);
    f->driver->cuModuleUnload(module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_prototype_tells_classes),
        RPT_TEST(only_padding_may_differ),
        RPT_TEST(padding_blames_nobody),
    };
    void *library = dlopen("libstdc++.so.6", RTLD_NOW); /* reads C++'s names */
    if (!library) {
        print_message("skipped: there is no libstdc++.so.6\n");
        return cmocka_run_group_tests_name("prototypes", (const struct CMUnitTest[]){tests[0]},
                                           NULL, NULL);
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dlclose(library);
    return failed;
}
