/* SPDX-License-Identifier: MIT
 *
 * Planning recordings through the public functions.
 */
#include "recording/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Blocks of 512: 1 is freed before 2 is made, and 3 stays. */
#define BLOCKS                                                                                     \
    "\"nodes\":[\"kernel\",\"kernel\"],\"edges\":[[0,1]],\"streams\":1,\"events\":["               \
    "[\"alloc\",1,512,0,[0]],[\"free\",1,0,[1]],[\"alloc\",2,100,0,[1]],[\"free\",2,0,[1]],"       \
    "[\"alloc\",3,1,0,[1]]]"
#define COMPOSED(kind)                                                                             \
    "{\"format\":\"reprise-capture/1\",\"captures\":[{\"name\":\"a\"," BLOCKS                      \
    "},{\"name\":\"b\"," BLOCKS "}],\"compose\":{\"" kind "\":[\"a\",\"b\"]}}"

static struct rp_layout *planned(const char *text, const struct rp_plan_options *options)
{
    struct rp_recording *recording = NULL;
    struct rp_layout *layout = NULL;
    struct rp_error err = {0};
    if (rpi_recording_parse("in", text, strlen(text), &recording, &err) != RP_OK ||
        rp_recording_plan(recording, options, &layout, &err) != RP_OK)
        fail_msg("%s", err.message);
    rp_recording_destroy(recording); /* the layout needs it no more */
    return layout;
}

static void expect_pool(const char *text, uint64_t pool, uint64_t planned_a)
{
    struct rp_layout *layout = planned(text, NULL);
    struct rp_layout_info info = {.size = sizeof info};
    struct rp_layout_capture a = {.size = sizeof a};
    rp_layout_info(layout, &info);
    rp_layout_capture(layout, 0, &a);
    assert_int_equal(info.captures, 2);
    assert_int_equal(info.pool_bytes, pool);
    assert_int_equal(info.lower_bound_bytes, pool);
    assert_true(info.optimal && info.bound_exact);
    assert_string_equal(info.proof, "bound");
    assert_int_equal(a.planned_bytes, planned_a);
    assert_string_equal(a.name, "a");
    assert_int_equal(a.blocks, 3);
    assert_int_equal(a.total_bytes, 3 * 512);
    assert_int_equal(a.peak_bytes, 512);
    assert_int_equal(a.lower_bound_bytes, 512);
    rp_layout_destroy(layout);
}

/* What a keeps is in b's way in a sequence; everything is when they are concurrent. */
static void compositions_take_what_they_must(void **state)
{
    (void)state;
    expect_pool(COMPOSED("alternatives"), 512, 512);
    expect_pool(COMPOSED("sequence"), 1024, 512);
    expect_pool(COMPOSED("concurrent"), 1024, 512);
}

/* Each capture makes one block of 20 MiB and keeps it. */
static void c10_keeps_results_that_are_needed(void **state)
{
    (void)state;
#define BIG(name)                                                                                  \
    "{\"name\":\"" name "\",\"nodes\":[],\"edges\":[],\"streams\":1,\"events\":["                  \
    "[\"alloc\",1,20971520,0,[]]]}"
#define BIG_FILE(compose)                                                                          \
    "{\"format\":\"reprise-capture/1\",\"captures\":[" BIG("a") "," BIG("b") "," BIG(              \
        "c") "],\"compose\":" compose "}"
    static const struct {
        const char *text;
        uint64_t mib;
    } cases[] = {
        {BIG_FILE("{\"alternatives\":[\"a\",\"b\",\"c\"]}"), 20},
        {BIG_FILE("{\"sequence\":[\"a\",\"b\",\"c\"]}"), 60},
        {BIG_FILE("{\"concurrent\":[\"a\",\"b\",\"c\"]}"), 60},
        {BIG_FILE("{\"sequence\":[\"a\",{\"alternatives\":[\"b\",\"c\"]}]}"), 40},
        {BIG_FILE("{\"sequence\":[{\"alternatives\":[\"a\",\"b\"]},\"c\"]}"), 60},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rp_layout *layout = planned(cases[i].text, NULL);
        struct rp_layout_info info = {.size = sizeof info};
        rp_layout_info(layout, &info);
        assert_int_equal(info.c10_default_bytes >> 20, cases[i].mib);
        assert_int_equal(info.c10_reuse_bytes >> 20, cases[i].mib);
        rp_layout_destroy(layout);
    }
}

static void captures_without_blocks_take_nothing(void **state)
{
    (void)state;
    struct rp_layout *layout =
        planned("{\"format\":\"reprise-capture/1\",\"captures\":[{\"name\":\"a\",\"nodes\":[],"
                "\"edges\":[],\"streams\":0,\"events\":[]}]}",
                NULL);
    struct rp_layout_info info = {.size = sizeof info};
    rp_layout_info(layout, &info);
    assert_int_equal(info.pool_bytes, 0);
    assert_true(info.optimal);
    rp_layout_destroy(layout);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    static const char text[] = "id,lower,upper,size\na,0,1,4611686018427387904\n";
    struct rp_recording *recording = NULL;
    struct rp_layout *layout = NULL;
    struct rp_error err = {0};
    assert_int_equal(rpi_recording_parse("in", text, strlen(text), &recording, &err), RP_OK);
    struct rp_plan_options options = RP_PLAN_OPTIONS_INIT;
    options.alignment = 48;
    assert_int_equal(rp_recording_plan(recording, &options, &layout, &err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "48"));
    options = (struct rp_plan_options){0};
    assert_int_equal(rp_recording_plan(recording, &options, &layout, &err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "RP_PLAN_OPTIONS_INIT"));
    assert_null(layout);
    rp_recording_destroy(recording);
    rp_layout_destroy(NULL);
}

static void sizes_that_rounding_takes_too_far_are_refused(void **state)
{
    (void)state;
    static const char text[] = "id,lower,upper,size\na,0,1,4611686018427387903\nb,0,1,1\n";
    struct rp_recording *recording = NULL;
    struct rp_layout *layout = NULL;
    struct rp_error err = {0};
    struct rp_plan_options options = RP_PLAN_OPTIONS_INIT;
    options.alignment = 512;
    assert_int_equal(rpi_recording_parse("in", text, strlen(text), &recording, &err), RP_OK);
    assert_int_equal(rp_recording_plan(recording, &options, &layout, &err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "smaller alignment"));
    rp_recording_destroy(recording);
}

static void a_capacity_is_answered(void **state)
{
    (void)state;
    static const struct {
        uint64_t capacity;
        int fits;
    } cases[] = {{1024, 1}, {2048, 1}, {1023, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rp_plan_options options = RP_PLAN_OPTIONS_INIT;
        options.capacity_bytes = cases[i].capacity;
        struct rp_layout *layout = planned(COMPOSED("sequence"), &options);
        struct rp_layout_info info = {.size = sizeof info};
        rp_layout_info(layout, &info);
        assert_int_equal(info.fits, cases[i].fits);
        rp_layout_destroy(layout);
    }
}

static void layouts_are_written_whole_or_not_at_all(void **state)
{
    (void)state;
    struct rp_layout *layout = planned(COMPOSED("sequence"), NULL);
    char folder[] = "layout-XXXXXX", path[64], part[80], text[512] = "";
    struct rp_error err = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out.json", folder);
    snprintf(part, sizeof part, "%s.part", path);
    assert_int_equal(rp_layout_write(layout, path, &err), RP_OK);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    assert_true(fread(text, 1, sizeof text - 1, in) > 0);
    fclose(in);
    assert_non_null(strstr(text, "{\"format\":\"reprise-layout/1\",\"alignment\":512,"));
    assert_non_null(strstr(text, "{\"name\":\"b\",\"offsets\":[[1,"));
    assert_int_equal(access(part, F_OK), -1);
    unlink(path);
    snprintf(path, sizeof path, "%s/none/out.json", folder);
    assert_int_equal(rp_layout_write(layout, path, &err), RP_ERROR_IO);
    assert_non_null(strstr(err.message, "none/out.json"));
    assert_int_equal(rp_layout_write(layout, folder, &err), RP_ERROR_IO);
    assert_int_equal(rp_layout_write(layout, "/dev/full", &err), RP_ERROR_IO);
    rmdir(folder);
    rp_layout_destroy(layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compositions_take_what_they_must),
        cmocka_unit_test(c10_keeps_results_that_are_needed),
        cmocka_unit_test(captures_without_blocks_take_nothing),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(sizes_that_rounding_takes_too_far_are_refused),
        cmocka_unit_test(a_capacity_is_answered),
        cmocka_unit_test(layouts_are_written_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
