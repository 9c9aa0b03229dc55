/* SPDX-License-Identifier: MIT */
#include "profile/json_stream.h"

#include "base/hostmem.h"
#include "base/status.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 1 << 18, MOST_CAPACITY = 1 << 26 };

static enum rpi_json_token fail(struct rpi_json *j, struct rp_error *err, const char *what)
{
    if (!j->failed)
        rpi_error(err, RP_ERROR_FORMAT, "advise", "%s: byte %llu: %s", j->file,
                  (unsigned long long)(j->consumed + (uint64_t)(j->at - j->buffer)), what);
    j->failed = true;
    return RPI_JSON_ERROR;
}

static enum rpi_json_token fail_cut(struct rpi_json *j, struct rp_error *err)
{
    j->cut = true;
    return fail(j, err, "the JSON ends too early: the trace is cut short; export it again");
}

rp_status rpi_json_init(struct rpi_json *j, const char *file, struct rpi_source *source,
                        struct rp_error *err)
{
    *j = (struct rpi_json){.file = file, .source = source, .value_due = true};
    j->buffer = j->at = j->end = rpi_malloc(FIRST_CAPACITY);
    j->capacity = FIRST_CAPACITY;
    return j->buffer ? RP_OK : rpi_error_host_memory(err, "advise", FIRST_CAPACITY);
}

void rpi_json_finish(struct rpi_json *j)
{
    rpi_free(j->buffer);
    j->buffer = NULL;
}

/* Room for reading behind `end`: what lies before `keep` goes, and the buffer grows if a single
 * token fills it. *keep moves along. */
static bool make_room(struct rpi_json *j, char **keep, struct rp_error *err)
{
    size_t kept = (size_t)(j->end - *keep), offset = (size_t)(j->at - *keep);
    j->consumed += (uint64_t)(*keep - j->buffer);
    memmove(j->buffer, *keep, kept);
    if (kept == j->capacity) {
        if (j->capacity >= MOST_CAPACITY) {
            fail(j, err, "a text of more than 64 MiB");
            return false;
        }
        char *grown = rpi_realloc(j->buffer, 2 * j->capacity);
        if (!grown) {
            j->failed = true;
            rpi_error_host_memory(err, "advise", 2 * j->capacity);
            return false;
        }
        j->buffer = grown;
        j->capacity *= 2;
    }
    j->end = j->buffer + kept;
    j->at = j->buffer + offset;
    *keep = j->buffer;
    return true;
}

/* Reads on when everything has been taken. False at the end of the file and after an error. */
static bool more(struct rpi_json *j, char **keep, struct rp_error *err)
{
    assert(j->at == j->end);
    if (j->ended || j->failed || !make_room(j, keep, err))
        return false;
    size_t got = 0;
    size_t room = j->capacity - (size_t)(j->end - j->buffer);
    if (rpi_source_read(j->source, j->end, room, &got, err) != RP_OK) {
        j->failed = true;
        return false;
    }
    j->ended = !got;
    j->end += got;
    return got != 0;
}

/* The next byte that is no blank, not taken; -1 at the end or after an error. What lies between
 * *keep and it stays in the buffer. */
static int peek(struct rpi_json *j, char **keep, struct rp_error *err)
{
    for (;;) {
        while (j->at < j->end &&
               (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t'))
            j->at++;
        if (j->at < j->end)
            return (unsigned char)*j->at;
        if (!more(j, keep, err))
            return -1;
    }
}

/* ---- Texts --------------------------------------------------------------------------------- */

static int hex(const char *p)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static char *put_utf8(char *to, unsigned c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 63));
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    }
    return to;
}

/* \uXXXX at p (after the u), a surrogate pair together; NULL: not valid. A lone surrogate becomes
 * U+FFFD. */
static const char *decode_unicode(const char *p, const char *end, char **to)
{
    int high = end - p >= 4 ? hex(p) : -1;
    if (high < 0)
        return NULL;
    p += 4;
    unsigned c = (unsigned)high;
    if (c >= 0xd800 && c < 0xe000) {
        int low = c < 0xdc00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? hex(p + 2) : -1;
        if (low >= 0xdc00 && low < 0xe000) {
            c = 0x10000 + ((c - 0xd800) << 10) + ((unsigned)low - 0xdc00);
            p += 6;
        } else {
            c = 0xfffd;
        }
    }
    *to = put_utf8(*to, c);
    return p;
}

/* Decodes escapes in place: what they stand for is never longer. */
static bool decode(struct rpi_json *j, char *start, char *end)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    char *to = start;
    for (const char *p = start; p < end;) {
        if (*p != '\\') {
            *to++ = *p++;
            continue;
        }
        const char *known = p[1] ? strchr(from, p[1]) : NULL;
        if (known) {
            *to++ = into[known - from];
            p += 2;
        } else if (p[1] != 'u' || !(p = decode_unicode(p + 2, end, &to))) {
            return false;
        }
    }
    j->bytes = (size_t)(to - start);
    return true;
}

/* The text whose opening quote comes next. With keep, it stays in the buffer and is decoded. */
static bool take_text(struct rpi_json *j, bool keep, struct rp_error *err)
{
    bool escaped = false;
    char *start = ++j->at;
    for (;;) {
        if (j->at == j->end) {
            char *from = keep ? start : j->at;
            if (!more(j, &from, err)) {
                fail_cut(j, err);
                return false;
            }
            start = keep ? from : start;
        }
        unsigned char c = (unsigned char)*j->at;
        if (c == '"')
            break;
        if (c < 0x20) {
            fail(j, err, "a control character inside a text");
            return false;
        }
        j->at++;
        if (c != '\\')
            continue;
        escaped = true;
        if (j->at == j->end) {
            char *from = keep ? start : j->at;
            if (!more(j, &from, err)) {
                fail_cut(j, err);
                return false;
            }
            start = keep ? from : start;
        }
        j->at++;
    }
    if (keep) {
        j->text = start;
        j->bytes = (size_t)(j->at - start);
        if (escaped && !decode(j, start, j->at)) {
            fail(j, err, "an escape that JSON does not have");
            return false;
        }
    }
    j->at++;
    return true;
}

/* ---- Numbers and words --------------------------------------------------------------------- */

static bool is_word_byte(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '+' || c == '.';
}

/* Digits at *p, at least one. */
static bool take_digits(const char **p, const char *end)
{
    const char *start = *p;
    while (*p < end && **p >= '0' && **p <= '9')
        ++*p;
    return *p > start;
}

static bool is_number(const char *p, size_t bytes)
{
    const char *end = p + bytes;
    if (p < end && *p == '-')
        p++;
    size_t rest = (size_t)(end - p);
    if ((rest == 3 && (!memcmp(p, "nan", 3) || !memcmp(p, "NaN", 3) || !memcmp(p, "inf", 3))) ||
        (rest == 8 && !memcmp(p, "Infinity", 8)))
        return true;
    if (p + 1 < end && p[0] == '0' && p[1] >= '0' && p[1] <= '9')
        return false;
    if (!take_digits(&p, end))
        return false;
    if (p < end && *p == '.' && (p++, !take_digits(&p, end)))
        return false;
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            p++;
        if (!take_digits(&p, end))
            return false;
    }
    return p == end;
}

static enum rpi_json_token take_word(struct rpi_json *j, struct rp_error *err)
{
    char *start = j->at;
    for (;;) {
        while (j->at < j->end && is_word_byte(*j->at))
            j->at++;
        if (j->at < j->end || !more(j, &start, err))
            break;
    }
    if (j->failed)
        return RPI_JSON_ERROR;
    j->text = start;
    j->bytes = (size_t)(j->at - start);
    if (is_number(start, j->bytes))
        return RPI_JSON_NUMBER;
    if (rpi_json_is(j, "true"))
        return RPI_JSON_TRUE;
    if (rpi_json_is(j, "false"))
        return RPI_JSON_FALSE;
    if (rpi_json_is(j, "null"))
        return RPI_JSON_NULL;
    if (j->ended && j->at == j->end && j->bytes)
        return fail_cut(j, err);
    return fail(j, err, "this is no JSON value");
}

bool rpi_json_is(const struct rpi_json *j, const char *literal)
{
    return strlen(literal) == j->bytes && !memcmp(literal, j->text, j->bytes);
}

/* The plain decimal form, which is all that profilers write; false: an exponent, or too long. */
static bool plain_thousandths(const char *p, size_t bytes, int64_t *out)
{
    int64_t value = 0;
    int decimals = -1;
    if (!bytes || bytes > 40)
        return false;
    for (const char *end = p + bytes; p < end; p++) {
        if (*p == '.' && decimals < 0) {
            decimals = 0;
        } else if (*p >= '0' && *p <= '9') {
            if (decimals == 3)
                continue;
            if (value > (INT64_MAX - 9) / 10)
                return false;
            value = value * 10 + (*p - '0');
            decimals += decimals >= 0;
        } else {
            return false;
        }
    }
    for (decimals = decimals < 0 ? 0 : decimals; decimals < 3; decimals++) {
        if (value > INT64_MAX / 10)
            return false;
        value *= 10;
    }
    *out = value;
    return true;
}

bool rpi_json_thousandths(const struct rpi_json *j, int64_t *out)
{
    bool negative = j->bytes && *j->text == '-';
    int64_t value;
    if (plain_thousandths(j->text + negative, j->bytes - negative, &value)) {
        *out = negative ? -value : value;
        return true;
    }
    char copy[64];
    if (j->bytes >= sizeof copy)
        return false;
    memcpy(copy, j->text, j->bytes);
    copy[j->bytes] = '\0';
    double number = strtod(copy, NULL) * 1000;
    if (!(number > -9e18 && number < 9e18))
        return false;
    *out = (int64_t)number;
    return true;
}

/* ---- Structure ----------------------------------------------------------------------------- */

static enum rpi_json_token open_container(struct rpi_json *j, bool object, struct rp_error *err)
{
    if (j->depth == RPI_JSON_MOST_DEPTH)
        return fail(j, err, "values nested more than 64 deep");
    j->at++;
    j->in_object[j->depth++] = object;
    j->comma_due = false;
    return object ? RPI_JSON_OBJECT : RPI_JSON_ARRAY;
}

static enum rpi_json_token take_value(struct rpi_json *j, struct rp_error *err)
{
    j->value_due = false;
    j->comma_due = true;
    if (*j->at == '{' || *j->at == '[')
        return open_container(j, *j->at == '{', err);
    if (*j->at == '"')
        return take_text(j, !j->skipping, err) ? RPI_JSON_TEXT : RPI_JSON_ERROR;
    return take_word(j, err);
}

static enum rpi_json_token take_key(struct rpi_json *j, struct rp_error *err)
{
    if (*j->at != '"')
        return fail(j, err, "a key must follow here");
    if (!take_text(j, !j->skipping, err))
        return RPI_JSON_ERROR;
    char *keep = j->skipping ? NULL : (char *)j->text; /* in the buffer, which is the parser's */
    int c = peek(j, keep ? &keep : &j->at, err);
    j->text = keep;
    if (c < 0)
        return fail_cut(j, err);
    if (c != ':')
        return fail(j, err, "a colon must follow the key");
    j->at++;
    j->value_due = true;
    return RPI_JSON_KEY;
}

/* Inside a container whose next byte that is no blank is c. */
static enum rpi_json_token take_element(struct rpi_json *j, int c, struct rp_error *err)
{
    bool object = j->in_object[j->depth - 1];
    if (c == (object ? '}' : ']')) {
        j->at++;
        j->depth--;
        j->comma_due = true;
        return object ? RPI_JSON_OBJECT_END : RPI_JSON_ARRAY_END;
    }
    if (j->comma_due) {
        if (c != ',')
            return fail(j, err, "a comma or the end of the list must follow");
        j->at++;
        c = peek(j, &j->at, err);
        if (c < 0)
            return fail_cut(j, err);
    }
    return object ? take_key(j, err) : take_value(j, err);
}

enum rpi_json_token rpi_json_next(struct rpi_json *j, struct rp_error *err)
{
    if (j->failed)
        return RPI_JSON_ERROR;
    int c = peek(j, &j->at, err);
    if (c < 0) {
        if (!j->failed && !j->depth && !j->value_due)
            return RPI_JSON_END;
        return fail_cut(j, err);
    }
    if (j->value_due) {
        if (c == '}' || c == ']' || c == ',')
            return fail(j, err, "a value must follow here");
        return take_value(j, err);
    }
    if (!j->depth)
        return fail(j, err, "something follows the end of the JSON value");
    return take_element(j, c, err);
}

bool rpi_json_skip(struct rpi_json *j, enum rpi_json_token token, struct rp_error *err)
{
    if (token != RPI_JSON_OBJECT && token != RPI_JSON_ARRAY)
        return token != RPI_JSON_ERROR;
    unsigned outside = j->depth - 1;
    j->skipping = true;
    while (token != RPI_JSON_ERROR && j->depth > outside)
        token = rpi_json_next(j, err);
    j->skipping = false;
    return token != RPI_JSON_ERROR;
}
