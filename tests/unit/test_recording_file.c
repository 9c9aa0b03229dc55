/* SPDX-License-Identifier: MIT
 *
 * The readers: what they take, and that everything else is refused with file, place and reason.
 */
#include "memory/order/lifetimes.h"
#include "recording/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static rp_status parse(const char *text, struct rp_recording **out, struct rp_error *err)
{
    return rpi_recording_parse("in.json", text, strlen(text), out, err);
}

static void refused(const char *text, const char *place, const char *reason)
{
    struct rp_recording *recording = NULL;
    struct rp_error err = {0};
    rp_status status = parse(text, &recording, &err);
    if (status != RP_ERROR_FORMAT)
        fail_msg("status %s for %s", rp_status_name(status), text);
    assert_null(recording);
    assert_int_equal(err.status, RP_ERROR_FORMAT);
    if (strncmp(err.message, "in.json: ", 9) || !strstr(err.message, place) ||
        !strstr(err.message, reason))
        fail_msg("'%s' should name '%s' and '%s'", err.message, place, reason);
}

static struct rp_recording *accepted(const char *text)
{
    struct rp_recording *recording = NULL;
    struct rp_error err = {0};
    if (parse(text, &recording, &err) != RP_OK)
        fail_msg("%s", err.message);
    return recording;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

#define FILE_OF(captures) "{\"format\":\"reprise-capture/1\",\"captures\":[" captures "]}"
#define CAPTURE(name, edges, events)                                                               \
    "{\"name\":\"" name "\",\"nodes\":[\"kernel\",\"memset\",\"kernel\"],\"edges\":[" edges        \
    "],\"streams\":2,\"events\":[" events "]}"
#define EVENTS(events) FILE_OF(CAPTURE("a", "[0,1],[1,2]", events))
#define EDGES(edges)   FILE_OF(CAPTURE("a", edges, ""))

static const struct {
    const char *text, *place, *reason;
} bad_json[] = {
    {"{", "line 1", "string or '}' expected"},
    {"{}", "format", "reprise-capture/1"},
    {"[]", "", "one JSON object"},
    {"{\"format\":\"reprise-capture/2\"}", "format", "reprise-capture/1"},
    {"{\"traceEvents\":[]}", "format", "`reprise advise` reads"},
    {"{\"format\":\"reprise-capture/1\"}", "captures", "list"},
    {FILE_OF(""), "captures", "at least one"},
    {FILE_OF("7"), "captures[0]", "object"},
    {FILE_OF("{}"), "captures[0].name", "text"},
    {FILE_OF("{\"name\":\"\"}"), "captures[0].name", "text"},
    {FILE_OF("{\"name\":\"a\\u001b[31m\"}"), "captures[0].name", "control"},
    {FILE_OF("{\"name\":\"a\"}"), "captures[0].streams", "streams"},
    {FILE_OF("{\"name\":\"a\",\"streams\":-1}"), "captures[0].streams", "streams"},
    {FILE_OF("{\"name\":\"a\",\"streams\":1e3}"), "captures[0].streams", "streams"},
    {FILE_OF("{\"name\":\"a\",\"streams\":1}"), "captures[0].nodes", "list"},
    {FILE_OF("{\"name\":\"a\",\"streams\":1,\"nodes\":[0]}"), "nodes[0]", "text"},
    {FILE_OF("{\"name\":\"a\",\"streams\":1,\"nodes\":[]}"), "edges", "list"},
    {FILE_OF("{\"name\":\"a\",\"streams\":1,\"nodes\":[],\"edges\":[]}"), "events", "list"},
    {FILE_OF("{\"name\":\"a\",\"name\":\"b\"}"), "line 1", "duplicate"},
    {FILE_OF(CAPTURE("a", "", "")) " x", "line 1", "end of file expected"},
    {EDGES("[0]"), "edges[0]", "[from, to]"},
    {EDGES("[0,1],[0,1,2]"), "edges[1]", "programmatic"},
    {EDGES("[0,1,\"full\"]"), "edges[0]", "programmatic"},
    {EDGES("[0,3]"), "edges[0]", "below 3"},
    {EDGES("[-1,0]"), "edges[0]", "below 3"},
    {EDGES("[0,1.0]"), "edges[0]", "below 3"},
    {EDGES("[0,\"1\"]"), "edges[0]", "below 3"},
    {EDGES("[2,2]"), "edges[0]", "before itself"},
    {EDGES("[0,1],[1,0]"), "edges", "cycle"},
    {EDGES("[0,1],[2,1],[1,2]"), "edges", "cycle"},
    {EVENTS("7"), "events[0]", "begins with"},
    {EVENTS("[]"), "events[0]", "begins with"},
    {EVENTS("[\"realloc\",1]"), "events[0]", "begins with"},
    {EVENTS("[\"alloc\"]"), "events[0]", "id"},
    {EVENTS("[\"alloc\",\"x\",1,0,[]]"), "events[0]", "id"},
    {EVENTS("[\"alloc\",1,1,0]"), "events[0]", "[\"alloc\", id"},
    {EVENTS("[\"alloc\",1,1,0,[],0]"), "events[0]", "[\"alloc\", id"},
    {EVENTS("[\"alloc\",1,0,0,[0]]"), "events[0]", "from 1 to 2^63 - 1"},
    {EVENTS("[\"alloc\",1,-512,0,[0]]"), "events[0]", "from 1 to 2^63 - 1"},
    {EVENTS("[\"alloc\",1,512.0,0,[0]]"), "events[0]", "from 1 to 2^63 - 1"},
    {EVENTS("[\"alloc\",1,\"512\",0,[0]]"), "events[0]", "from 1 to 2^63 - 1"},
    {EVENTS("[\"alloc\",1,NaN,0,[0]]"), "line 1", "invalid token"},
    {EVENTS("[\"alloc\",1,9223372036854775808,0,[0]]"), "line 1", "too big integer"},
    {EVENTS("[\"alloc\",1,9223372036854775807,0,[0]]"), "events[0]", "add up"},
    {EVENTS("[\"alloc\",1,1,2,[0]]"), "events[0]", "stream"},
    {EVENTS("[\"alloc\",1,1,0,0]"), "events[0]", "terminals"},
    {EVENTS("[\"alloc\",1,1,0,[0,3]]"), "events[0]", "terminal 1"},
    {EVENTS("[\"alloc\",1,1,0,[0]],[\"alloc\",1,1,0,[0]]"), "events[1]", "allocated twice"},
    {EVENTS("[\"alloc\",1,1,0,[0]],[\"free\",1,0,[0]],[\"alloc\",1,1,0,[0]]"), "events[2]",
     "allocated twice"},
    {EVENTS("[\"free\",1,0,[0]]"), "events[0]", "not allocated"},
    {EVENTS("[\"use\",1,0]"), "events[0]", "not allocated"},
    {EVENTS("[\"alloc\",1,1,0,[0]],[\"use\",1]"), "events[1]", "[\"use\", id"},
    {EVENTS("[\"alloc\",1,1,0,[0]],[\"use\",1,2]"), "events[1]", "stream"},
    {EVENTS("[\"alloc\",1,1,0,[0]],[\"free\",1,0]"), "events[1]", "[\"free\", id"},
    {EVENTS("[\"alloc\",1,1,0,[0]],[\"free\",1,0,[7]]"), "events[1]", "terminal 0"},
    {EVENTS("[\"alloc\",1,1,0,[0]],[\"free\",1,0,[0]],[\"free\",1,0,[0]]"), "events[2]",
     "freed again"},
    {EVENTS("[\"alloc\",1,1,0,[0]],[\"free\",1,0,[0]],[\"use\",1,1]"), "events[2]",
     "used after its free"},
    /* 1 gives to 2 and 2 to 3, but 1 does not give to 3: 2's free comes before its alloc. */
    {EVENTS("[\"alloc\",1,1,0,[1]],[\"free\",1,0,[1]],[\"alloc\",2,1,0,[1]],[\"free\",2,0,[0]],"
            "[\"alloc\",3,1,0,[0]]"),
     "captures[0].events", "block 2"},
    {FILE_OF(CAPTURE("a", "", "") "," CAPTURE("a", "", "")), "captures", "the name 'a'"},
};

static void malformed_json_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_json / sizeof *bad_json; i++)
        refused(bad_json[i].text, bad_json[i].place, bad_json[i].reason);
}

#define COMPOSED(compose)                                                                          \
    "{\"format\":\"reprise-capture/1\",\"compose\":" compose                                       \
    ",\"captures\":[" CAPTURE("a", "", "") "," CAPTURE("b", "", "") "]}"

static void malformed_compositions_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *compose, *reason;
    } cases[] = {
        {COMPOSED("\"a\""), "leaves out the capture 'b'"},
        {COMPOSED("{\"sequence\":[\"a\",\"c\"]}"), "no capture 'c'"},
        {COMPOSED("{\"sequence\":[\"a\",\"b\",\"a\"]}"), "twice: 'a'"},
        {COMPOSED("{\"sequence\":[\"a\",{\"concurrent\":[\"a\",\"b\"]}]}"), "twice: 'a'"},
        {COMPOSED("{\"sequence\":[]}"), "list of parts"},
        {COMPOSED("{\"sequence\":\"a\"}"), "list of parts"},
        {COMPOSED("{\"parallel\":[\"a\",\"b\"]}"), "\"concurrent\""},
        {COMPOSED("{}"), "one key"},
        {COMPOSED("null"), "one key"},
        {COMPOSED("{\"sequence\":[\"a\"],\"concurrent\":[\"b\"]}"), "one key"},
        {COMPOSED("{\"sequence\":[\"a\",7]}"), "a capture's name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(cases[i].compose, "compose: ", cases[i].reason);
}

static void compositions_may_not_be_endless(void **state)
{
    (void)state;
    char text[8192];
    size_t used = (size_t)snprintf(text, sizeof text,
                                   "{\"format\":\"reprise-capture/1\","
                                   "\"captures\":[%s],\"compose\":",
                                   CAPTURE("a", "", ""));
    for (int i = 0; i < 200; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "{\"sequence\":[");
    used += (size_t)snprintf(text + used, sizeof text - used, "\"a\"");
    for (int i = 0; i < 200; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "]}");
    snprintf(text + used, sizeof text - used, "}");
    refused(text, "compose: ", "too deeply");
}

static void captures_are_read_whole(void **state)
{
    (void)state;
    struct rp_recording *recording = accepted(
        FILE_OF(CAPTURE("first", "[0,1],[1,2,\"programmatic\"]",
                        "[\"alloc\",-3,100,1,[0]],[\"use\",-3,0],[\"free\",-3,1,[1,2]],"
                        "[\"alloc\",9,4611686018427387000,0,[2]]") "," CAPTURE("second", "", "")));
    assert_false(rp_recording_is_csv(recording));
    assert_int_equal(recording->captures.count, 2);
    const struct rpi_capture_record *first = &recording->captures.data[0];
    assert_string_equal(first->name, "first");
    assert_int_equal(first->edges, 2);
    assert_int_equal(first->streams, 2);
    assert_int_equal(first->node_kinds.count, 3);
    assert_int_equal(first->node_kinds.data[1], 2);
    assert_int_equal(first->blocks.count, 2);
    assert_int_equal(first->blocks.data[0].id, -3);
    assert_int_equal(first->blocks.data[0].free_event, 2);
    assert_int_equal(first->blocks.data[1].free_event, RPI_NO_EVENT);
    assert_true(rpi_order_reaches(first->order, 0, 2));
    assert_int_equal(recording->compose.kind, RPI_COMPOSE_ALTERNATIVES);
    assert_int_equal(recording->compose.child_count, 2);
    rp_recording_destroy(recording);
}

/* The nodes run 2, 0, 1: the block freed after 0 may be taken from 1 on, not from 0. */
static void nodes_may_come_in_any_order(void **state)
{
    (void)state;
    struct rp_recording *recording = accepted(
        FILE_OF(CAPTURE("a", "[2,0],[0,1]",
                        "[\"alloc\",1,512,0,[2]],[\"free\",1,0,[0]],[\"alloc\",2,512,0,[2]],"
                        "[\"alloc\",3,512,0,[1]]")));
    const struct rpi_capture_record *record = &recording->captures.data[0];
    assert_int_equal(record->node_kinds.data[2], 2); /* the memset is last now */
    struct rpi_lifetimes lifetimes;
    assert_int_equal(rpi_lifetimes_from_record(record, 512, &lifetimes, NULL), RP_OK);
    assert_false(rpi_lifetimes_before(&lifetimes, 0, 1));
    assert_true(rpi_lifetimes_before(&lifetimes, 0, 2));
    rpi_lifetimes_finish(&lifetimes);
    rp_recording_destroy(recording);
}

static void compositions_are_read_as_trees(void **state)
{
    (void)state;
    struct rp_recording *recording =
        accepted(COMPOSED("{\"sequence\":[\"b\",{\"concurrent\":[\"a\"]}]}"));
    const struct rpi_compose *root = &recording->compose;
    assert_int_equal(root->kind, RPI_COMPOSE_SEQUENCE);
    assert_int_equal(root->children[0].capture, 1);
    assert_int_equal(root->children[1].kind, RPI_COMPOSE_CONCURRENT);
    assert_int_equal(root->children[1].children[0].capture, 0);
    rp_recording_destroy(recording);
}

/* ---- CSV ----------------------------------------------------------------------------------- */

static void malformed_csv_is_refused(void **state)
{
    (void)state;
#define HEADER "id,lower,upper,size\n"
    static const struct {
        const char *text, *place, *reason;
    } cases[] = {
        {"", "", "empty"},
        {" \n\n", "", "empty"},
        {"id,lower,upper\n0,1,2\n", "line 1", "header"},
        {"id,lower,upper,size,offset\n0,1,2,3,4\n", "line 1", "header"},
        {"id,lower,upper,bytes\n0,1,2,3\n", "line 1", "header"},
        {"id,lower,lower,size\n0,1,2,3\n", "line 1", "header"},
        {"0,1,2,3\n", "line 1", "header"},
        {HEADER, "line 1", "no blocks"},
        {HEADER "0,1,2\n", "line 2", "four fields"},
        {HEADER "0,1,2,3,4\n", "line 2", "four fields"},
        {HEADER ",1,2,3\n", "line 2", "id"},
        {HEADER "\"0\",1,2,3\n", "line 2", "quotes"},
        {HEADER "0,x,2,3\n", "line 2", "lower must be"},
        {HEADER "0,1,2.5,3\n", "line 2", "upper must be"},
        {HEADER "0,,2,3\n", "line 2", "lower must be"},
        {HEADER "0, 1,2,3\n", "line 2", "lower must be"},
        {HEADER "0,+1,2,3\n", "line 2", "lower must be"},
        {HEADER "0,1,9223372036854775808,3\n", "line 2", "upper must be"},
        {HEADER "0,2,2,3\n", "line 2", "below upper"},
        {HEADER "0,3,2,3\n", "line 2", "below upper"},
        {HEADER "0,1,2,0\n", "line 2", "size must be"},
        {HEADER "0,1,2,-1\n", "line 2", "size must be"},
        {HEADER "0,1,2,nan\n", "line 2", "size must be"},
        {HEADER "0,1,2,9223372036854775808\n", "line 2", "size must be"},
        {HEADER "0,1,2,4611686018427387904\n1,1,2,1\n", "line 3", "add up"},
        {HEADER "0,1,2,3\n1,2,3,4\n0,5,6,7\n", "", "the id '0'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(cases[i].text, cases[i].place, cases[i].reason);
}

static void csv_is_read_whole(void **state)
{
    (void)state;
    static const char *const texts[] = {HEADER "x,-5,4,10\ny 2,2,6,20\n",
                                        "size,upper,id,lower\r\n10,4,x,-5\r\n20,6,y 2,2"};
    for (int i = 0; i < 2; i++) {
        struct rp_recording *recording = accepted(texts[i]);
        const struct rpi_intervals *rows = &recording->intervals;
        assert_true(rp_recording_is_csv(recording));
        assert_int_equal(rows->count, 2);
        assert_string_equal(rows->text + rows->id[1], "y 2");
        assert_int_equal(rows->lower[0], -5);
        assert_int_equal(rows->upper[1], 6);
        assert_int_equal(rows->bytes[1], 20);
        rp_recording_destroy(recording);
    }
}

/* ---- gzip and files ------------------------------------------------------------------------ */

static size_t gzipped(const char *text, size_t bytes, unsigned char *out, size_t room)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (z_const Bytef *)text;
    z.avail_in = (uInt)bytes;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

static void expect_gzip(const unsigned char *data, size_t bytes, const char *reason)
{
    struct rp_recording *recording = NULL;
    struct rp_error err = {0};
    rp_status status = rpi_recording_parse("in.gz", data, bytes, &recording, &err);
    if (!reason) {
        assert_int_equal(status, RP_OK);
        rp_recording_destroy(recording);
        return;
    }
    assert_int_equal(status, RP_ERROR_FORMAT);
    if (!strstr(err.message, reason))
        fail_msg("'%s' should say '%s'", err.message, reason);
}

static void damaged_gzip_is_refused(void **state)
{
    (void)state;
    static const char text[] = EVENTS("[\"alloc\",1,512,0,[0]],[\"free\",1,0,[1]]");
    unsigned char data[1024];
    size_t bytes = gzipped(text, strlen(text), data, sizeof data - 8);
    expect_gzip(data, bytes, NULL);
    for (size_t cut = 2; cut < bytes; cut++)
        expect_gzip(data, cut, "cut short");
    data[bytes] = 'x';
    expect_gzip(data, bytes + 1, "1 bytes follow");
    data[bytes - 6] ^= 1; /* the checksum */
    expect_gzip(data, bytes, "damaged");
}

/* Parallel compressors write several members; spreadsheets write a byte order mark and end in an
 * empty line. */
static void common_variants_are_read(void **state)
{
    (void)state;
    static const char head[] = "\xef\xbb\xbfid,lower,upper,size\r\n", body[] = "\r\na,0,4,512\n\n";
    unsigned char data[256];
    size_t first = gzipped(head, strlen(head), data, sizeof data);
    size_t bytes = first + gzipped(body, strlen(body), data + first, sizeof data - first);
    expect_gzip(data, bytes, NULL);
    expect_gzip(data, bytes - 1, "cut short");
    expect_gzip(data, first, "no blocks follow");
    expect_gzip(data, first + 2, "cut short"); /* the second member's magic, and no more */
    expect_gzip(data, first + 1, "1 bytes follow");
}

/* More blanks than a file may have, in a few hundred KiB. */
static void bombs_are_refused(void **state)
{
    (void)state;
    size_t step = 1 << 20, room = 4 << 20;
    char *blanks = malloc(step);
    unsigned char *data = malloc(room);
    assert_non_null(blanks);
    assert_non_null(data);
    memset(blanks, ' ', step);
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = data;
    z.avail_out = (uInt)room;
    for (int i = 0; i < 257; i++) {
        z.next_in = (Bytef *)blanks;
        z.avail_in = (uInt)step;
        assert_int_equal(deflate(&z, Z_NO_FLUSH), Z_OK);
    }
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    expect_gzip(data, z.total_out, "256 MiB");
    free(blanks);
    free(data);
}

/* 80 MiB of empty lists would take more than 4 GiB as values. */
static void endless_lists_are_refused(void **state)
{
    (void)state;
    size_t bytes = (size_t)80 << 20;
    char *text = malloc(bytes);
    assert_non_null(text);
    text[0] = '[';
    for (size_t i = 1; i < bytes; i++)
        text[i] = "[],"[i % 3];
    struct rp_recording *recording = NULL;
    struct rp_error err = {0};
    assert_int_equal(rpi_recording_parse("in.json", text, bytes, &recording, &err), RP_ERROR_LIMIT);
    assert_non_null(strstr(err.message, "in.json: has so many values"));
    free(text);
}

static void files_that_cannot_be_read_say_why(void **state)
{
    (void)state;
    struct rp_recording *recording = NULL;
    struct rp_error err = {0};
    assert_int_equal(rp_recording_load("no/such/file", &recording, &err), RP_ERROR_IO);
    assert_non_null(strstr(err.message, "no/such/file: cannot be opened: No such file"));
    assert_int_equal(rp_recording_load("/", &recording, &err), RP_ERROR_IO);
    assert_non_null(strstr(err.message, "directory"));
    assert_null(recording);
}

static void bundled_captures_load(void **state)
{
    (void)state;
    struct rp_recording *recording = NULL;
    struct rp_error err = {0};
    assert_int_equal(
        rp_recording_load(SOURCE_DIR "/examples/captures/llama.json.gz", &recording, &err), RP_OK);
    assert_int_equal(recording->captures.count, 7);
    assert_int_equal(recording->captures.data[0].blocks.count, 781);
    assert_int_equal(rpi_order_nodes(recording->captures.data[0].order), 750);
    rp_recording_destroy(recording);
    rp_recording_destroy(NULL);
}

/* ---- Host memory --------------------------------------------------------------------------- */

static size_t allocations_left;

static void *failing_malloc(size_t bytes, void *user)
{
    (void)user;
    return allocations_left-- ? malloc(bytes) : (allocations_left = 0, NULL);
}

static void *failing_realloc(void *pointer, size_t bytes, void *user)
{
    (void)user;
    return allocations_left-- ? realloc(pointer, bytes) : (allocations_left = 0, NULL);
}

static void plain_free(void *pointer, void *user)
{
    (void)user;
    free(pointer);
}

#define SMALL(name)                                                                                \
    CAPTURE(name, "", "[\"alloc\",1,512,0,[0]],[\"free\",1,0,[0]],[\"alloc\",2,512,0,[0]]")

/* Loads and plans with allocation N failing, N = 0, 1, 2 .. until success. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"format\":\"reprise-capture/1\",\"compose\":{\"sequence\":[\"b\","
        "{\"alternatives\":[\"a\",\"c\"]}]},\"captures\":[" SMALL("a") "," SMALL("b") "," SMALL(
            "c") "]}",
        EVENTS("[\"alloc\",1,512,0,[0]],[\"free\",1,0,[1]],[\"alloc\",2,512,0,[2]]"),
        HEADER "x,-5,4,10\ny,2,6,20\n"};
    const struct rp_host_memory functions = {failing_malloc, failing_realloc, plain_free, NULL};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        rp_status status = RP_ERROR_OUT_OF_HOST_MEMORY;
        size_t n = 0;
        for (; status != RP_OK && n < 1000; n++) {
            struct rp_recording *recording = NULL;
            struct rp_layout *layout = NULL;
            struct rp_error err = {0};
            allocations_left = n;
            rp_set_host_memory(&functions);
            status = parse(texts[t], &recording, &err);
            if (status == RP_OK)
                status = rp_recording_plan(recording, NULL, &layout, &err);
            rp_layout_destroy(layout);
            rp_recording_destroy(recording);
            rp_set_host_memory(NULL);
            assert_true(status == RP_OK || status == RP_ERROR_OUT_OF_HOST_MEMORY);
        }
        assert_true(n > 10 && n < 1000);
    }
}

/* A capture may say that it has 65,536 streams in a few bytes: what is kept goes by those that its
 * events name, which stay as different as they were. */
static void streams_cost_what_events_name(void **state)
{
    (void)state;
    struct rp_recording *recording =
        accepted(FILE_OF("{\"name\":\"a\",\"nodes\":[],\"edges\":[],\"streams\":65536,"
                         "\"events\":[[\"alloc\",1,8,65535,[]],[\"alloc\",2,8,0,[]],"
                         "[\"alloc\",3,8,7,[]],[\"use\",1,7],[\"use\",2,65535]]}"));
    const struct rpi_capture_record *record = &recording->captures.data[0];
    const uint32_t expected[] = {1, 0, 2, 2, 1};
    assert_int_equal(record->streams, 3);
    assert_int_equal(record->events.count, 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(record->events.data[i].stream, expected[i]);
    rp_recording_destroy(recording);
    recording = accepted(EVENTS("[\"alloc\",1,8,1,[]],[\"use\",1,0]"));
    assert_int_equal(recording->captures.data[0].events.data[0].stream, 1); /* few: as they are */
    rp_recording_destroy(recording);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_cost_what_events_name),
        cmocka_unit_test(malformed_json_is_refused),
        cmocka_unit_test(malformed_compositions_are_refused),
        cmocka_unit_test(compositions_may_not_be_endless),
        cmocka_unit_test(captures_are_read_whole),
        cmocka_unit_test(nodes_may_come_in_any_order),
        cmocka_unit_test(compositions_are_read_as_trees),
        cmocka_unit_test(malformed_csv_is_refused),
        cmocka_unit_test(csv_is_read_whole),
        cmocka_unit_test(damaged_gzip_is_refused),
        cmocka_unit_test(common_variants_are_read),
        cmocka_unit_test(bombs_are_refused),
        cmocka_unit_test(endless_lists_are_refused),
        cmocka_unit_test(files_that_cannot_be_read_say_why),
        cmocka_unit_test(bundled_captures_load),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
