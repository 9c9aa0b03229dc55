/* SPDX-License-Identifier: MIT
 *
 * The table of explanations: complete for capture errors, and found by number, name and message.
 */
#include "explain/explain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

static void test_every_capture_error_is_explained(void **state)
{
    (void)state;
    for (int code = 900; code <= 908; code++) {
        const struct rp_explanation *e = rpi_explanation_of_code(code);
        assert_non_null(e);
        assert_int_equal(e->code, code);
    }
    assert_non_null(rpi_explanation_of_code(910));
    assert_null(rpi_explanation_of_code(0));
    assert_null(rpi_explanation_of_code(909));
}

static void test_every_entry_is_whole(void **state)
{
    (void)state;
    const struct rp_explanation *e;
    size_t i = 0;
    for (; (e = rp_explanation_at(i)); i++) {
        assert_non_null(e->meaning);
        assert_non_null(e->causes[0]);
        assert_non_null(e->mends[0]);
        assert_null(e->causes[7]); /* the list ends inside the array */
        assert_null(e->mends[7]);
        assert_ptr_equal(rp_explain(e->key), e);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(e->key, rp_explanation_at(j)->key);
    }
    assert_true(i > 100);
    assert_null(rp_explanation_at(i + 1));
}

static void expect(const char *query, int code)
{
    const struct rp_explanation *e = rp_explain(query);
    if (!e) {
        fail_msg("nothing found for '%s'", query);
        return;
    }
    assert_int_equal(e->code, code);
}

/* The host driver, and reports, say the title of an error. */
static void test_titles(void **state)
{
    (void)state;
    const struct rp_explanation *e;
    size_t i = 0;
    for (; (e = rp_explanation_at(i)) && e->code > 0; i++) {
        char said[256];
        snprintf(said, sizeof said, "torch.AcceleratorError: CUDA error: %s\nSearch for it",
                 e->title);
        const struct rp_explanation *found = rp_explain(said);
        if (found != e)
            fail_msg("'%s' leads to %s", e->title, found ? found->key : "nothing");
    }
    assert_true(i > 30);
}

static void test_what_pytorch_says(void **state)
{
    (void)state;
    static const char *const said[][2] = {
        {"Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor "
         "is "
         "pinned. Please use tensor.pin_memory()",
         "copy-in"},
        {"Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture. If you need this "
         "call "
         "to be captured, please file an issue. Current cudaStreamCaptureStatus: 1",
         "random-state"},
        {"CUDAGeneratorImpl::set_current_seed can be called during stream capture only if new seed "
         "is "
         "the same as the original seed.",
         "random-state"},
        {"Attempt to increase offset for a CUDA generator not in capture mode.",
         "random-generator"},
        {"RNG op during graph capture but generator is not registered with the capturing graph. "
         "Call graph.register_generator_state() before capture_begin().",
         "random-generator"},
        {"RuntimeError: Generator not registered with the capturing graph.", "random-generator"},
        {"RNG op during graph capture but could not find the CUDAGraph object. This should not "
         "happen.",
         "random-in-unknown-capture"},
        {"CUDAPluggableAllocator does not yet support snapshot. If you need it, please file an "
         "issue describing your use case.",
         "process-group-allocator"},
        {"RuntimeError: Memory already registered with NCCL", "process-group-allocator"},
        {"The specified pointer resides on host memory and is not registered with any CUDA device.",
         NULL},
        {"Attempting CUDA graph capture of step() for an instance of Adam but param_groups' "
         "capturable "
         "is False.",
         "optimizer"},
        {"CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok "
         "to "
         "replay them on the default stream.)",
         "legacy-stream"},
        {"Offset increment outside graph capture encountered unexpectedly.",
         "generator-left-in-capture"},
        {"Only one capture at a time is allowed in a process.", "nested-graph"},
        {"Capturing NCCL collectives is only allowed with NCCL >= 2.9.6", "nccl-version"},
        {"CTCLoss cannot be graph captured with CPU length tensors. Move CPU length tensors to GPU",
         "copy-in"},
    };
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        const struct rp_explanation *found = rp_explain(said[i][0]);
        if (!said[i][1]) {
            assert_null(found);
            continue;
        }
        assert_non_null(found);
        assert_string_equal(found->key, said[i][1]);
    }
}

static void test_queries(void **state)
{
    (void)state;
    expect("901", 901);
    expect("cudaErrorStreamCaptureUnjoined", 904);
    expect("CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", 906);
    expect("torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing",
           900);
    expect("CUDA error: capturing stream has unjoined work", 904);
    expect("RuntimeError: CUDA error: device-side assert triggered", 710);
    expect("CUDA error: no kernel image is available for execution on the device", 209);
    expect("CUDA error: system not yet initialized", 802);
    expect("CUDA driver version is insufficient for CUDA runtime version", 36);
    expect("RuntimeError at line 17: driver returned 907.", 907);
    expect("error 42, then 905", 905);
    expect("an illegal memory access was encountered", 700);
    assert_string_equal(rp_explain("No Speedup")->key, "no-speedup");
    expect("CUDA error: 700", 700);
    expect("exit with error code 2", 2);
    assert_null(rp_explain("there are 3 items in row 700"));
    assert_null(rp_explain("everything is fine"));
    assert_null(rp_explain("12345678901234567890123"));
    assert_null(rp_explain("0"));
    assert_null(rp_explain(""));
    assert_null(rp_explain(NULL));
}

/* Every code that a case of the conformance suite names, found in its sources. */
static size_t check_names(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[512];
    size_t found = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        for (char *at = line; (at = strstr(at, "CUDA_ERROR_")); at++) {
            char name[64];
            snprintf(name, sizeof name, "%.*s",
                     (int)strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"), at);
            if (strlen(name) == strlen("CUDA_ERROR_")) /* a prefix, in a comparison */
                continue;
            const struct rp_explanation *e = rp_explain(name);
            if (!e || strcmp(e->key, name) != 0)
                fail_msg("%s: %s is not explained", path, name);
            found++;
        }
    }
    fclose(file);
    return found;
}

static void test_what_the_conformance_suite_produces_is_explained(void **state)
{
    (void)state;
    glob_t files;
    size_t found = 0;
    assert_int_equal(glob(SOURCE_DIR "/tests/conformance/cases_*.c", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++)
        found += check_names(files.gl_pathv[i]);
    globfree(&files);
    assert_true(found > 100);
}

/* Statuses too, so that an error without a driver's code leads somewhere. */
static void test_every_status_is_explained(void **state)
{
    (void)state;
#define X(name, value, text)                                                                       \
    if (value)                                                                                     \
        assert_string_equal(rp_explain(#name)->key, #name);
    RP_STATUS_MAP(X)
#undef X
}

static void test_calls(void **state)
{
    (void)state;
    assert_string_equal(rpi_explanation_of_call("cuCtxSynchronize")->kind, "synchronisation");
    assert_string_equal(rpi_explanation_of_call("cuMemAlloc")->kind, "allocation");
    assert_null(rpi_explanation_of_call("cuLaunchKernel"));
}

/* Every kind that a check gives an obstacle: rp_check's, as reprise.h lists them, and those of the
 * driver's calls. */
static void test_every_kind_is_explained(void **state)
{
    (void)state;
    static const char *const kinds[] = {
        "synchronisation", "host-copy",     "allocation",     "legacy-stream",    "outside-stream",
        "unjoined-stream", "lazy-state",    "nested-graph",   "refused-call",     "use-after-free",
        "divergence",      "kept-address",  "callable-error", "unsupported-node", "capture-error",
        "not-repeatable",  "other-results", "frozen-value",   "fails-eagerly"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct rp_explanation *e = rp_explain(kinds[i]);
        assert_non_null(e);
        assert_string_equal(e->key, kinds[i]);
    }
    static const char *const calls[] = {
#define X(function, kind, what, mend) kind,
#include "explain/calls.def"
#undef X
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        assert_non_null(rp_explain(calls[i]));
}

static void test_names_of_calls_and_operators(void **state)
{
    (void)state;
    assert_string_equal(rp_explain("aten::nonzero")->title, "a shape depends on device values");
    assert_string_equal(rp_explain("aten::nonzero")->obstacle, "data-shape");
    assert_string_equal(rp_explain("aten::item")->obstacle, "host-read");
    assert_string_equal(rp_explain("cuMemAlloc")->obstacle, "allocation");
    assert_null(rp_explain("allocation")->obstacle);
    assert_string_equal(rp_explain("cuMemcpy")->key, "cuMemcpy");
    assert_string_equal(rp_explain("trouble in cuMemcpyDtoH, somewhere")->key, "cuMemcpyDtoH");
    expect("cuStreamSynchronize returned 901", 901);
    assert_null(rp_explain("what a divergence")); /* kinds are words: only where they are all */
}

static void test_names_that_programs_and_profilers_use(void **state)
{
    (void)state;
    static const char *const named[][2] = {
        {"cudaStreamSynchronize", "cuStreamSynchronize"},
        {"cudaDeviceSynchronize", "cuCtxSynchronize"},
        {"waited in cudaFree for 3 ms", "cuMemFree"},
        {"cudaGraphLaunch_v10000", "cuGraphLaunch"},
        {"cudaMallocHost", "cuMemAllocHost"},
        {".item()", "aten::item"},
        {"x.item()", "aten::item"},
        {"torch.nonzero(mask > 0)", "aten::nonzero"},
        {"torch.unique", "aten::_unique2"},
        {".cpu()", "host-read"},
        {"torch.cuda.synchronize()", "synchronisation"},
        {"torch.cuda.manual_seed(7)", "random-state"},
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        const struct rp_explanation *e = rp_explain(named[i][0]);
        if (!e)
            fail_msg("nothing found for '%s'", named[i][0]);
        else
            assert_string_equal(e->key, named[i][1]);
    }
    assert_null(rp_explain("cudaMemcpyAsync")); /* may be captured, as cudaMemcpy may not */
    assert_null(rp_explain("mycudaFree"));
    assert_null(rp_explain("cuda"));
    assert_null(rp_explain("item")); /* a word */
    assert_null(rp_explain("the index (of two)"));
    assert_null(rp_explain("."));
    assert_null(rp_explain("()"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_capture_error_is_explained),
        cmocka_unit_test(test_every_entry_is_whole),
        cmocka_unit_test(test_queries),
        cmocka_unit_test(test_titles),
        cmocka_unit_test(test_what_pytorch_says),
        cmocka_unit_test(test_what_the_conformance_suite_produces_is_explained),
        cmocka_unit_test(test_every_status_is_explained),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_every_kind_is_explained),
        cmocka_unit_test(test_names_of_calls_and_operators),
        cmocka_unit_test(test_names_that_programs_and_profilers_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
