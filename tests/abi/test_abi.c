/* SPDX-License-Identifier: MIT
 *
 * src/driver/cuda_abi.h, symbols.def and results.def against NVIDIA's cuda.h: sizes, alignments,
 * offsets, values, codes and prototypes. Where no cuda.h was found when the project was configured,
 * the test says so and is skipped (exit code 77).
 */
#include "facts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_SKIPPED = 77 };

/* Every enumerator and macro of cuda_abi.h must be among the facts, so that none is added there
 * unchecked. */
static int is_listed(const char *name, size_t length)
{
    struct facts ours = abi_ours();
    for (size_t i = 0; i < ours.count; i++) {
        const char *last = strrchr(ours.facts[i].what, ' ') + 1;
        if (strlen(last) == length && !memcmp(last, name, length))
            return 1;
    }
    return 0;
}

static char *read_file(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_true(bytes < sizeof text - 1);
    text[bytes] = 0;
    return text;
}

static void test_every_constant_is_checked(void **state)
{
    (void)state;
    const char *at = read_file(SOURCE_DIR "/src/driver/cuda_abi.h");
    size_t seen = 0;
    while ((at = strstr(at, "CU_")) || 0) {
        size_t length = 0;
        while (isupper((unsigned char)at[length]) || isdigit((unsigned char)at[length]) ||
               at[length] == '_')
            length++;
        if (!islower((unsigned char)at[length]) && !is_listed(at, length))
            fail_msg("%.*s is not in facts.def", (int)length, at);
        at += length;
        seen++;
    }
    assert_true(seen > 50);
}

#ifdef HAVE_CUDA_H
static void test_facts(void **state)
{
    (void)state;
    struct facts ours = abi_ours(), theirs = abi_theirs();
    assert_true(theirs.count == ours.count ||
                (theirs.count < ours.count && abi_cuda_version() < 13000));
    size_t wrong = 0;
    for (size_t i = 0; i < theirs.count; i++) {
        const struct fact *our = &ours.facts[i], *their = &theirs.facts[i];
        assert_string_equal(our->what, their->what);
        if (our->first == their->first && our->second == their->second)
            continue;
        wrong++;
        print_error("%s: %llu, %llu here; %llu, %llu in cuda.h\n", our->what, our->first,
                    our->second, their->first, their->second);
    }
    assert_int_equal(wrong, 0);
    print_message("%zu of %zu facts equal those of cuda.h %d\n", theirs.count, ours.count,
                  abi_cuda_version());
}

static void test_prototypes(void **state)
{
    (void)state;
    size_t count, wrong = 0;
    const struct prototype *prototypes = abi_prototypes(&count);
    for (size_t i = 0; i < count; i++) {
        if (prototypes[i].same)
            continue;
        wrong++;
        print_error("%s (form of %d) differs from cuda.h's\n", prototypes[i].name,
                    prototypes[i].version);
    }
    assert_int_equal(wrong, 0);
    print_message("%zu prototypes equal those of cuda.h\n", count);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_constant_is_checked),
#ifdef HAVE_CUDA_H
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_prototypes),
#endif
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
#ifndef HAVE_CUDA_H
    if (!failed) {
        printf("skipped: no cuda.h of CUDA 12.3 or later was found to compare with\n");
        return EXIT_SKIPPED;
    }
#endif
    return failed;
}
