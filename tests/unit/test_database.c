/* SPDX-License-Identifier: MIT
 *
 * Databases while SQLite runs out of memory: its allocations fail in turn, alone, and the advice is
 * an error or what it is without. Which allocations: those of tests/fault_loop.h.
 */
#include "reprise.h"
#include "reprise_tools.h"

#include "fault_loop.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h wants the four above it. */
#include <cmocka.h>

#define MODEL SOURCE_DIR "/tests/fuzz/corpus_database/model.sqlite"

/* sqlite3_mem_methods of sqlite3.h, and how it is asked for and set. */
struct methods {
    void *(*allocate)(int bytes);
    void (*release)(void *memory);
    void *(*resize)(void *memory, int bytes);
    int (*size)(void *memory);
    int (*round_up)(int bytes);
    int (*init)(void *data);
    void (*shutdown)(void *data);
    void *data;
};
enum { CONFIG_MALLOC = 4, CONFIG_GETMALLOC = 5 };

static struct methods real;
static long calls, failing = -1; /* which call fails; -1: none */
static bool noting;

static bool is_to_fail(void)
{
    if (noting)
        rpt_note_call((uint64_t)calls, true);
    return calls++ == failing;
}

static void *allocate(int bytes)
{
    return is_to_fail() ? NULL : real.allocate(bytes);
}

static void *resize(void *memory, int bytes)
{
    return is_to_fail() ? NULL : real.resize(memory, bytes);
}

/* The advice as JSON, to be freed; NULL: refused, with err filled. */
static char *advise(struct rp_error *err)
{
    struct rp_advice *advice = NULL;
    const char *text = NULL;
    calls = 0;
    if (rp_advise(MODEL, NULL, &advice, err) != RP_OK) {
        assert_null(advice);
        return NULL;
    }
    assert_int_equal(rp_advice_render(advice, RP_ADVICE_JSON, &text, err), RP_OK);
    char *copy = strdup(text);
    rp_advice_destroy(advice);
    return copy;
}

static void test_each_allocation_fails(void **state)
{
    (void)state;
    struct rp_error err;
    noting = true;
    char *whole = advise(&err);
    noting = false;
    assert_non_null(whole);
    long count = calls, refused = 0;
    assert_true(count > 50);
    const struct rpt_scenario each = {.step = 1};
    rpt_choose_calls((uint64_t)count);
    for (uint64_t call = 0; (call = rpt_next_call(&each, call)) < (uint64_t)count; call++) {
        failing = (long)call;
        memset(&err, 0, sizeof err);
        char *text = advise(&err);
        if (text)
            assert_string_equal(text, whole); /* SQLite did without */
        else
            assert_true(err.status != RP_OK && strstr(err.message, "corpus_database/model.sqlite"));
        refused += text == NULL;
        free(text);
    }
    failing = -1;
    assert_true(refused > 20);
    char *again = advise(&err);
    assert_string_equal(again, whole);
    free(again);
    free(whole);
}

static int replace_allocator(void **state)
{
    (void)state;
    void *library = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL); /* stays loaded */
    int (*config)(int option, ...) = NULL;
    void *symbol = library ? dlsym(library, "sqlite3_config") : NULL;
    memcpy(&config, &symbol, sizeof symbol);
    if (!config || config(CONFIG_GETMALLOC, &real) != 0)
        return -1;
    struct methods ours = real;
    ours.allocate = allocate;
    ours.resize = resize;
    return config(CONFIG_MALLOC, &ours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation_fails)};
    if (!dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL)) {
        fprintf(stderr, "skipped: there is no libsqlite3.so.0\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, replace_allocator, NULL);
}
