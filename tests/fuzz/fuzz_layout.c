/* SPDX-License-Identifier: MIT
 *
 * Fuzzes what is written of a recording: whatever can be planned is written as a layout that parses
 * and has each block of each capture under its name, and drawn as SVG of characters that XML
 * allows. With CSV the bytes are rows below a header, which few mutations of a whole file would
 * keep.
 */
#include "base/text.h"
#include "recording/layout.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#undef NDEBUG
#include <assert.h>

enum { MOST_BLOCKS = 200, MOST_CAPTURES = 20 };

static bool is_small(const struct rp_recording *recording)
{
    size_t blocks = recording->intervals.count;
    for (size_t c = 0; c < recording->captures.count; c++)
        blocks += recording->captures.data[c].blocks.count;
    return blocks <= MOST_BLOCKS && recording->captures.count <= MOST_CAPTURES;
}

/* What a writer writes, with a NUL behind it; freed by the caller. */
static char *written(const struct rp_layout *layout,
                     rp_status (*write)(const struct rp_layout *, const char *, struct rp_error *))
{
    char path[64];
    struct rp_error err;
    int file = memfd_create("layout", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    assert(file >= 0 && write(layout, path, &err) == RP_OK);
    size_t bytes = (size_t)lseek(file, 0, SEEK_END);
    char *text = calloc(1, bytes + 1);
    assert(text && pread(file, text, bytes, 0) == (ssize_t)bytes && strlen(text) == bytes);
    close(file);
    return text;
}

static void check_lines(const char *text)
{
    while (*text) {
        size_t line = strcspn(text, "\n");
        assert(rpi_text_is_plain(text, line));
        text += line + (text[line] == '\n');
    }
}

static void check_json(const struct rp_layout *layout, const char *text)
{
    json_error_t why;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    const json_t *captures = json_object_get(root, "captures");
    assert(json_array_size(captures) == layout->capture_count);
    for (size_t c = 0; c < layout->capture_count; c++) {
        const json_t *capture = json_array_get(captures, c);
        const json_t *offsets = json_object_get(capture, "offsets");
        const char *name = json_string_value(json_object_get(capture, "name"));
        assert(name && !strcmp(name, layout->captures[c].name));
        assert(json_array_size(offsets) == layout->captures[c].info.blocks);
    }
    json_decref(root);
}

/* Every '<' begins a tag that '>' ends, and tags are closed in order. */
static void check_svg(const char *text)
{
    int depth = 0;
    for (const char *at = strchr(text, '<'); at; at = strchr(at, '<')) {
        const char *end = strchr(at, '>');
        assert(end && !memchr(at + 1, '<', (size_t)(end - at - 1)));
        depth += at[1] == '/' ? -1 : at[1] == '?' || at[1] == '!' || end[-1] == '/' ? 0 : 1;
        assert(depth >= 0);
        at = end;
    }
    assert(depth == 0);
}

static void check_written(const struct rp_layout *layout)
{
    char *text = written(layout, rp_layout_write);
    check_lines(text);
    if (!layout->csv)
        check_json(layout, text);
    free(text);
    text = written(layout, rp_layout_draw);
    check_lines(text);
    check_svg(text);
    free(text);
}

/* The bytes that are read: those given, or rows below a header. */
static uint8_t *make_input(const uint8_t *data, size_t *bytes)
{
#ifdef CSV
    static const char header[] = "id,lower,upper,size\n";
#else
    static const char header[] = "";
#endif
    uint8_t *made = malloc(*bytes + sizeof header);
    assert(made);
    memcpy(made, header, sizeof header - 1);
    if (*bytes)
        memcpy(made + sizeof header - 1, data, *bytes);
    *bytes += sizeof header - 1;
    return made;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct rp_recording *recording = NULL;
    struct rp_layout *layout = NULL;
    struct rp_error err;
    struct rp_plan_options options = RP_PLAN_OPTIONS_INIT;
    options.budget_ms = 1;
    uint8_t *input = make_input(data, &bytes);
    rp_status status = rpi_recording_parse("<in & \xff>.json", input, bytes, &recording, &err);
    free(input);
    if (status == RP_OK && is_small(recording))
        status = rp_recording_plan(recording, &options, &layout, &err);
    if (status != RP_OK)
        assert(rpi_text_is_plain(err.message, strlen(err.message)) && *err.message);
    if (layout)
        check_written(layout);
    rp_layout_destroy(layout);
    rp_recording_destroy(recording);
    return 0;
}
