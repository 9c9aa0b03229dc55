/* SPDX-License-Identifier: MIT
 *
 * A pull parser for JSON (RFC 8259) that never holds more than one token: the caller asks for the
 * next token and gets numbers and texts in place. Memory is one buffer, as long as the longest
 * token that is asked for; what is skipped is not kept at all.
 *
 * Taken beyond the RFC, because profilers write it: nan, inf, NaN and Infinity as numbers.
 * Bytes of 0x80 and above are not checked to be UTF-8.
 */
#ifndef REPRISE_PROFILE_JSON_STREAM_H
#define REPRISE_PROFILE_JSON_STREAM_H

#include "profile/source.h"

#include <stdbool.h>

enum rpi_json_token {
    RPI_JSON_ERROR, /* err has been filled; every later call returns it again */
    RPI_JSON_END,   /* the one value of the file is complete and nothing follows */
    RPI_JSON_OBJECT,
    RPI_JSON_OBJECT_END,
    RPI_JSON_ARRAY,
    RPI_JSON_ARRAY_END,
    RPI_JSON_KEY,
    RPI_JSON_TEXT,
    RPI_JSON_NUMBER,
    RPI_JSON_TRUE,
    RPI_JSON_FALSE,
    RPI_JSON_NULL
};

enum { RPI_JSON_MOST_DEPTH = 64 };

struct rpi_json {
    /* Of the last token; valid until the next call. */
    const char *text; /* of keys and texts, escapes decoded; digits of numbers. Not ended by NUL */
    size_t bytes;

    /* The parser's own. */
    const char *file;          /* unowned, for messages */
    struct rpi_source *source; /* unowned */
    char *buffer, *at, *end;
    size_t capacity;
    uint64_t consumed; /* bytes of the file before buffer */
    bool ended;        /* the source has no more */
    bool failed;
    bool cut;       /* failed because the file ended too early */
    bool value_due; /* a value, and nothing else, may follow */
    bool comma_due; /* a comma or the end of the container must follow */
    bool skipping;  /* texts are not kept */
    unsigned depth;
    bool in_object[RPI_JSON_MOST_DEPTH];
};

/* file and source must outlive the parser. */
rp_status rpi_json_init(struct rpi_json *json, const char *file, struct rpi_source *source,
                        struct rp_error *err);
enum rpi_json_token rpi_json_next(struct rpi_json *json, struct rp_error *err);
/* Takes the rest of the value that `token` began; false: an error. */
bool rpi_json_skip(struct rpi_json *json, enum rpi_json_token token, struct rp_error *err);
void rpi_json_finish(struct rpi_json *json);

/* The last token, a number, in thousandths, rounded towards zero: 12.5 is 12500. Numbers beyond
 * what an int64_t holds, and those that are none (nan), give false. */
bool rpi_json_thousandths(const struct rpi_json *json, int64_t *out);
/* Whether the last token's text is `literal`. */
bool rpi_json_is(const struct rpi_json *json, const char *literal);

#endif
