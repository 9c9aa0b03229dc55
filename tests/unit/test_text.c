/* SPDX-License-Identifier: MIT */
#include "base/status.h"
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h wants the four above it. */
#include <cmocka.h>

/* Every code point, written as the standard says, is read; the ends of each form too. */
static void test_every_character(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x110000; code++) {
        char text[5] = {0};
        size_t bytes;
        uint32_t read = 0;
        if (code < 0x80) {
            text[0] = (char)code;
            bytes = 1;
        } else if (code < 0x800) {
            text[0] = (char)(0xc0 | code >> 6);
            bytes = 2;
        } else if (code < 0x10000) {
            text[0] = (char)(0xe0 | code >> 12);
            bytes = 3;
        } else {
            text[0] = (char)(0xf0 | code >> 18);
            bytes = 4;
        }
        for (size_t i = 1; i < bytes; i++)
            text[i] = (char)(0x80 | (code >> 6 * (bytes - 1 - i) & 63));
        bool surrogate = code >= 0xd800 && code < 0xe000;
        assert_int_equal(rpi_utf8_get(text, bytes, &read), surrogate ? 0 : bytes);
        assert_true(surrogate || read == code);
        assert_int_equal(rpi_utf8_get(text, bytes - 1, &read), 0);
    }
}

static void test_broken_bytes(void **state)
{
    (void)state;
    static const char *const broken[] = {"\x80",
                                         "\xbf",
                                         "\xc0\x80",
                                         "\xc1\xbf",
                                         "\xe0\x9f\xbf",
                                         "\xed\xa0\x80",
                                         "\xf0\x8f\xbf\xbf",
                                         "\xf4\x90\x80\x80",
                                         "\xf5\x80\x80\x80",
                                         "\xff",
                                         "\xc3("};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        uint32_t code;
        assert_int_equal(rpi_utf8_get(broken[i], strlen(broken[i]), &code), 0);
        assert_false(rpi_text_is_plain(broken[i], strlen(broken[i])));
    }
}

/* Each control is found wherever it stands in the eight bytes that are looked at together. */
static void test_controls_at_every_place(void **state)
{
    (void)state;
    static const char *const controls[] = {"\x01",
                                           "\n",
                                           "\x1b",
                                           "\x1f",
                                           "\x7f",
                                           "\xc2\x80",
                                           "\xc2\x9b",
                                           "\xc2\x9f",
                                           "\xd8\x9c",
                                           "\xe2\x80\x8e",
                                           "\xe2\x80\xa8",
                                           "\xe2\x80\xae",
                                           "\xe2\x81\xa6",
                                           "\xe2\x81\xa9",
                                           "\xef\xb7\x90",
                                           "\xef\xbf\xbe",
                                           "\xf4\x8f\xbf\xbf"};
    for (size_t i = 0; i < sizeof controls / sizeof *controls; i++)
        for (size_t place = 0; place < 24; place++) {
            char text[64];
            snprintf(text, sizeof text, "%.*s%s%s", (int)place, "abcdefghijklmnopqrstuvwxyz",
                     controls[i], "0123456789");
            assert_false(rpi_text_is_plain(text, strlen(text)));
            size_t bytes = rpi_text_mask(text, strlen(text));
            assert_int_equal(bytes, place + 11);
            assert_int_equal(text[place], *controls[i] == '\n' ? ' ' : '?');
            assert_string_equal(text + place + 1, "0123456789");
            assert_true(rpi_text_is_plain(text, bytes));
        }
    static const char plain[] = " ~gr\xc3\xb6\xc3\x9f"
                                "e \xe8\xa1\x8c\xe5\x88\x97 \xf0\x9f\x98\x80\xc2\xa0\xef\xbf\xbd";
    assert_true(rpi_text_is_plain(plain, strlen(plain)));
    char copy[sizeof plain];
    memcpy(copy, plain, sizeof plain);
    assert_int_equal(rpi_text_mask(copy, strlen(copy)), strlen(plain));
    assert_string_equal(copy, plain);
}

static void test_lines_stay(void **state)
{
    (void)state;
    char text[] = "a\xc2\x9b"
                  "b\n\x1b[2J\r\n\n\xff\t";
    size_t bytes = rpi_text_mask_lines(text, strlen(text));
    assert_string_equal(text, "a?b\n?[2J \n\n? ");
    assert_int_equal(bytes, strlen(text));
}

static void test_long_messages_keep_both_ends(void **state)
{
    (void)state;
    struct rp_error err;
    static const size_t lengths[] = {400, 501, 502, 511, 512, 600, 1023, 1024, 5000, 200000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char *path = malloc(lengths[i] + 1);
        assert_non_null(path);
        for (size_t k = 0; k < lengths[i]; k++)
            path[k] = k % 2 ? '\xa4' : '\xc3'; /* cut between the two it would be no UTF-8 */
        path[lengths[i]] = '\0';
        rpi_error(&err, RP_ERROR_IO, "test", "/begin/%s: cannot be opened: %s", path, "the reason");
        assert_memory_equal(err.message, "/begin/", 7);
        const char *end = err.message + strlen(err.message);
        assert_true(end < err.message + sizeof err.message);
        assert_string_equal(end - 11, " the reason");
        free(path);
    }
    rpi_error(&err, RP_ERROR_IO, "test",
              "a\x1b[2J\nb\xff"
              "c");
    assert_string_equal(err.message, "a?[2J b?c");
}

static char *json(const char *text)
{
    char *out = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&out, &bytes);
    rpi_text_json(file, text);
    fclose(file);
    return out;
}

static char *xml(const char *text)
{
    char *out = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&out, &bytes);
    rpi_text_xml(file, text);
    fclose(file);
    return out;
}

static void expect(char *found, const char *expected)
{
    assert_string_equal(found, expected);
    free(found);
}

static void test_json_and_xml(void **state)
{
    (void)state;
    expect(json("a\"\\\n\x7f\xc3\xa4"), "\"a\\\"\\\\\\u000a\\u007f\xc3\xa4\"");
    expect(json("\xff\xc2\x9b\xe2\x80\xae\xef\xbf\xbe"), "\"\\ufffd\\u009b\\u202e\\ufffe\"");
    expect(json("\xf4\x8f\xbf\xbf"), "\"\\udbff\\udfff\"");
    expect(json("\xf0\x9f\x98"), "\"\\ufffd\\ufffd\\ufffd\""); /* cut short at the end */
    expect(xml("<a b=\"&\">\n\t"), "&lt;a b=&quot;&amp;&quot;&gt;  ");
    expect(xml("\xff\x01\xef\xbf\xbe\xc2\x9b\xc3\xa4"),
           "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xc3\xa4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_character),
        cmocka_unit_test(test_broken_bytes),
        cmocka_unit_test(test_controls_at_every_place),
        cmocka_unit_test(test_lines_stay),
        cmocka_unit_test(test_long_messages_keep_both_ends),
        cmocka_unit_test(test_json_and_xml),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
