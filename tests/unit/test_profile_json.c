/* SPDX-License-Identifier: MIT
 *
 * The pull parser: tokens, what it refuses, and that it does not matter where its buffer ends.
 */
#include "profile/json_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/reprise-json-XXXXXX";

static void write_file(const char *lead, size_t blanks, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(lead, file);
    while (blanks--)
        putc(' ', file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* All tokens of the file in one line, as "{ k:a 1 }"; or "error: message". */
static void read_tokens(char *out, size_t room)
{
    struct rpi_source *source = NULL;
    struct rpi_json json;
    struct rp_error err = {0};
    size_t used = 0;
    assert_int_equal(rpi_source_open(path, &source, &err), RP_OK);
    assert_int_equal(rpi_json_init(&json, "f", source, &err), RP_OK);
    for (;;) {
        static const char *const marks[] = {"",   "",   "{", "}", "[", "]",
                                            "k:", "\"", "#", "T", "F", "N"};
        enum rpi_json_token token = rpi_json_next(&json, &err);
        if (token == RPI_JSON_END)
            break;
        if (token == RPI_JSON_ERROR) {
            snprintf(out, room, "error: %s", err.message);
            break;
        }
        bool text = token == RPI_JSON_KEY || token == RPI_JSON_TEXT || token == RPI_JSON_NUMBER;
        used += (size_t)snprintf(out + used, room - used, "%s%s%.*s", used ? " " : "", marks[token],
                                 text ? (int)json.bytes : 0, text ? json.text : "");
        assert_true(used < room);
    }
    rpi_json_finish(&json);
    rpi_source_destroy(source);
}

static void test_tokens(void **state)
{
    (void)state;
    char tokens[1024];
    write_file("", 3,
               "{\"a\" : [1, -2.5e3,true,false , null], \"b\":{}, \"\":\"x\\ty\\u00e9\\ud83d"
               "\\ude00\\ud83d!\"}\n");
    read_tokens(tokens, sizeof tokens);
    assert_string_equal(tokens, "{ k:a [ #1 #-2.5e3 T F N ] k:b { } k: \"x\ty\xc3\xa9\xf0\x9f\x98"
                                "\x80\xef\xbf\xbd! }");
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",           "{",     "[1",        "[1,",           "[1,]",       "{\"a\"}", "{\"a\":}",
        "{\"a\":1,}", "{a:1}", "[1 2]",     "[01]",          "[1.]",       "[.5]",    "[+1]",
        "[1e]",       "[tru]", "[\"\\x\"]", "[\"\\u12g4\"]", "[\"a\nb\"]", "[1]]",    "1 2",
        "[}",         "{]",    "{\"a\" 1}", "nul",           "\"abc",      ",",       "[-]",
    };
    char tokens[1024];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file("", 0, bad[i]);
        read_tokens(tokens, sizeof tokens);
        assert_memory_equal(tokens, "error: f: byte ", 15);
    }
}

static void test_depth(void **state)
{
    (void)state;
    char text[200] = "", tokens[1024];
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    write_file("", 0, text);
    read_tokens(tokens, sizeof tokens);
    assert_memory_equal(tokens, "[ [", 3);
    write_file("[", 0, text);
    read_tokens(tokens, sizeof tokens);
    assert_non_null(strstr(tokens, "64 deep"));
}

/* The buffer's first end, 256 KiB into the file, at every byte of a document. */
static void test_every_boundary(void **state)
{
    (void)state;
    const char *text = "{\"key one\" : \"te\\u0078t\" ,\"n\": -12.125,\"l\":[true,{}]}";
    char tokens[1024];
    for (size_t i = 0; i <= strlen(text) + 1; i++) {
        write_file("", (1 << 18) - i, text);
        read_tokens(tokens, sizeof tokens);
        assert_string_equal(tokens, "{ k:key one \"text k:n #-12.125 k:l [ T { } ] }");
    }
}

/* A text longer than the buffer. */
static void test_long_text(void **state)
{
    (void)state;
    size_t bytes = 700000;
    char *text = malloc(bytes + 3);
    assert_non_null(text);
    memset(text, 'x', bytes + 2);
    text[0] = text[bytes + 1] = '"';
    text[bytes + 2] = '\0';
    write_file("", 0, text);
    struct rpi_source *source = NULL;
    struct rpi_json json;
    struct rp_error err = {0};
    assert_int_equal(rpi_source_open(path, &source, &err), RP_OK);
    assert_int_equal(rpi_json_init(&json, "f", source, &err), RP_OK);
    assert_int_equal(rpi_json_next(&json, &err), RPI_JSON_TEXT);
    assert_int_equal(json.bytes, bytes);
    assert_memory_equal(json.text, text + 1, bytes);
    assert_int_equal(rpi_json_next(&json, &err), RPI_JSON_END);
    rpi_json_finish(&json);
    rpi_source_destroy(source);
    free(text);
}

static void test_thousandths(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"12.5", true, 12500},
        {"-0.001", true, -1},
        {"1712867402348256.123", true, 1712867402348256123},
        {"4383109407920.73799", true, 4383109407920737},
        {"1e3", true, 1000000},
        {"2.5E-1", true, 250},
        {"9223372036854774.807", true, 9223372036854774807},
        {"99999999999999999", false, 0},
        {"nan", false, 0},
        {"-Infinity", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rpi_json json = {.text = cases[i].text, .bytes = strlen(cases[i].text)};
        int64_t value = 0;
        assert_int_equal(rpi_json_thousandths(&json, &value), cases[i].ok);
        assert_true(value == cases[i].value);
    }
}

static int make_file(void **state)
{
    (void)state;
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_depth),     cmocka_unit_test(test_every_boundary),
        cmocka_unit_test(test_long_text), cmocka_unit_test(test_thousandths),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
