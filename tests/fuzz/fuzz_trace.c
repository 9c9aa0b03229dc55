/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the readers of profiler traces: torch.profiler's JSON, and with DATABASE Nsight Systems'
 * SQLite. Whatever the bytes, the file is refused with one plain line, or the advice that comes of
 * it can be rendered in each form: text without control characters, JSON that parses, a page of
 * UTF-8 that XML's rules for characters allow.
 */
#include "base/text.h"
#include "reprise.h"
#include "reprise_tools.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#undef NDEBUG
#include <assert.h>

/* Lines of plain text. */
static void check_lines(const char *text)
{
    while (*text) {
        size_t line = strcspn(text, "\n");
        assert(rpi_text_is_plain(text, line));
        text += line + (text[line] == '\n');
    }
}

static void check_json(const char *text)
{
    json_error_t why;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    assert(json_is_object(root));
    json_decref(root);
}

static void check_advice(struct rp_advice *advice)
{
    const char *text = NULL;
    struct rp_error err;
    struct rp_advice_info info = {.size = sizeof info};
    rp_advice_info(advice, &info);
    assert(info.iterations > 0 && info.eager_us >= 0 && info.graph_us >= 0);
    assert(rp_advice_render(advice, RP_ADVICE_TEXT, &text, &err) == RP_OK);
    check_lines(text);
    assert(rp_advice_render(advice, RP_ADVICE_JSON, &text, &err) == RP_OK);
    check_lines(text);
    check_json(text);
    assert(rp_advice_render(advice, RP_ADVICE_HTML, &text, &err) == RP_OK);
    check_lines(text);
}

static bool write_all(int file, const void *data, size_t bytes)
{
    return write(file, data, bytes) == (ssize_t)bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct rp_advice *advice = NULL;
    struct rp_error err;
    char path[64];
    int file = memfd_create("trace", 0);
    bool made = file >= 0;
#ifdef DATABASE
    static const char magic[16] = "SQLite format 3";
    size_t skipped = bytes < sizeof magic ? bytes : sizeof magic;
    made = made && write_all(file, magic, sizeof magic);
    data += skipped;
    bytes -= skipped;
#endif
    made = made && write_all(file, data, bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    rp_status status = made ? rp_advise(path, NULL, &advice, &err) : RP_ERROR_IO;
    if (made && status != RP_OK) {
        assert(err.status == status && *err.message);
        assert(rpi_text_is_plain(err.message, strlen(err.message)));
        assert(!advice);
    }
    if (status == RP_OK)
        check_advice(advice);
    rp_advice_destroy(advice);
    if (file >= 0)
        close(file);
    return 0;
}
