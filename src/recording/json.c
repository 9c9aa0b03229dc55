/* SPDX-License-Identifier: MIT
 *
 * The reader of `reprise-capture/1`. Nodes may come in any order: they are sorted topologically,
 * and node i of the record's order is the i-th in that order, not in the file. A refusal names the
 * file, the place as a path into the JSON, and the reason.
 */
#include "base/idmap.h"
#include "base/text.h"
#include "memory/order/lifetimes.h"
#include "recording/compose.h"
#include "recording/file.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Where the reader is, for messages; -1 and NULL: not inside one. */
struct reader {
    const char *file;
    struct rp_error *err;
    long capture;
    const char *list;
    long index;
    uint64_t total_bytes; /* of all blocks of the file so far */
};

static rp_status refuse(struct reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static rp_status refuse(struct reader *reader, const char *format, ...)
{
    char place[96] = "", reason[384];
    size_t used = 0;
    if (reader->capture >= 0)
        used = (size_t)snprintf(place, sizeof place, "captures[%ld]", reader->capture);
    if (reader->list && reader->index >= 0)
        snprintf(place + used, sizeof place - used, ".%s[%ld]", reader->list, reader->index);
    else if (reader->list)
        snprintf(place + used, sizeof place - used, "%s%s", used ? "." : "", reader->list);
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    rpi_error(reader->err, RP_ERROR_FORMAT, "recording", "%s: %s%s%s", reader->file, place,
              *place ? ": " : "", reason);
    return RP_ERROR_FORMAT;
}

static rp_status no_memory(struct reader *reader, size_t bytes)
{
    rpi_error_host_memory(reader->err, "recording", bytes);
    return RP_ERROR_OUT_OF_HOST_MEMORY;
}

/* An integer from 0 to most, or false. */
static bool get_index(const json_t *json, uint64_t most, uint32_t *out)
{
    if (!json_is_integer(json) || json_integer_value(json) < 0 ||
        (uint64_t)json_integer_value(json) > most)
        return false;
    *out = (uint32_t)json_integer_value(json);
    return true;
}

/* Names go to terminals and file names of other tools: no control characters, no endless ones. */
static bool name_is_valid(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length <= 255 && rpi_text_is_plain(name, length);
}

/* ---- The graph ----------------------------------------------------------------------------- */

/* A capture's graph as the file has it. */
struct graph {
    uint32_t nodes, edges;
    uint32_t *from, *to; /* [edges] */
    uint32_t *rank;      /* [nodes]: the file's node to the record's */
};

static void graph_finish(struct graph *graph)
{
    rpi_free(graph->from);
    rpi_free(graph->to);
    rpi_free(graph->rank);
}

/* In the order of CUgraphNodeType. */
static const char *const kinds[] = {
    "kernel",       "memcpy",       "memset",           "host",           "graph",     "empty",
    "wait_event",   "event_record", "semaphore_signal", "semaphore_wait", "mem_alloc", "mem_free",
    "batch_mem_op", "conditional",
};
#define KIND_OTHER UINT8_MAX

static uint8_t kind_of(const char *text)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (!strcmp(text, kinds[k]))
            return (uint8_t)k;
    return KIND_OTHER;
}

/* node_kinds in the file's order; sort_kinds puts them into the record's. */
static rp_status read_nodes(struct reader *reader, const json_t *nodes, struct graph *graph,
                            struct rpi_capture_record *record)
{
    reader->list = "nodes";
    reader->index = -1;
    if (!json_is_array(nodes))
        return refuse(reader, "must be a list of node kinds");
    size_t count = json_array_size(nodes);
    if (!rpi_vec_reserve(&record->node_kinds, count))
        return no_memory(reader, count);
    for (size_t i = 0; i < count; i++) {
        const json_t *kind = json_array_get(nodes, i);
        reader->index = (long)i;
        if (!json_is_string(kind))
            return refuse(reader, "must be a text such as \"kernel\"");
        record->node_kinds.data[i] = kind_of(json_string_value(kind));
    }
    record->node_kinds.count = count;
    graph->nodes = (uint32_t)count;
    return RP_OK;
}

static rp_status read_edge(struct reader *reader, const json_t *edge, struct graph *graph)
{
    assert(graph->from && graph->to);
    size_t size = json_is_array(edge) ? json_array_size(edge) : 0;
    uint32_t from, to;
    if (size != 2 && size != 3)
        return refuse(reader, "must be [from, to] or [from, to, \"programmatic\"]");
    if (!graph->nodes || !get_index(json_array_get(edge, 0), graph->nodes - 1, &from) ||
        !get_index(json_array_get(edge, 1), graph->nodes - 1, &to))
        return refuse(reader, "both ends must be node numbers below %" PRIu32, graph->nodes);
    if (size == 3) {
        const char *type = json_string_value(json_array_get(edge, 2));
        if (!type || strcmp(type, "programmatic"))
            return refuse(reader, "the third element must be \"programmatic\"");
    }
    if (from == to)
        return refuse(reader, "node %" PRIu32 " would run before itself", from);
    assert(from < graph->nodes && to < graph->nodes);
    graph->from[graph->edges] = from;
    graph->to[graph->edges++] = to;
    return RP_OK;
}

static rp_status read_edges(struct reader *reader, const json_t *edges, struct graph *graph)
{
    reader->list = "edges";
    reader->index = -1;
    if (!json_is_array(edges))
        return refuse(reader, "must be a list of [from, to]");
    size_t count = json_array_size(edges);
    graph->from = rpi_reallocarray(NULL, count, sizeof *graph->from);
    graph->to = rpi_reallocarray(NULL, count, sizeof *graph->to);
    if (!graph->from || !graph->to)
        return no_memory(reader, count * sizeof *graph->from);
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < count; i++) {
        reader->index = (long)i;
        status = read_edge(reader, json_array_get(edges, i), graph);
    }
    return status;
}

/* Edges gathered by one of their ends: those of node v are other[first[v]] to other[first[v + 1]].
 */
struct adjacency {
    uint32_t *first, *other;
};

static bool gather(struct adjacency *a, const struct graph *graph, const uint32_t *by,
                   const uint32_t *other)
{
    assert(!a->first && !a->other);
    a->first = rpi_calloc((size_t)graph->nodes + 2, sizeof *a->first);
    a->other = rpi_reallocarray(NULL, graph->edges, sizeof *a->other);
    if (!a->first || !a->other)
        return false;
    for (uint32_t e = 0; e < graph->edges; e++)
        a->first[by[e] + 2]++;
    for (uint32_t v = 0; v < graph->nodes; v++)
        a->first[v + 2] += a->first[v + 1];
    for (uint32_t e = 0; e < graph->edges; e++)
        a->other[a->first[by[e] + 1]++] = other[e];
    return true;
}

static void adjacency_finish(struct adjacency *a)
{
    rpi_free(a->first);
    rpi_free(a->other);
}

/* Kahn's sort: sorted becomes the nodes in a topological order; returns how many it got to. waiting
 * counts each node's predecessors that are not sorted yet. */
static uint32_t sort_nodes(const struct graph *graph, const struct adjacency *after,
                           uint32_t *waiting, uint32_t *sorted)
{
    uint32_t head = 0, tail = 0;
    for (uint32_t e = 0; e < graph->edges; e++)
        waiting[graph->to[e]]++;
    for (uint32_t v = 0; v < graph->nodes; v++)
        if (!waiting[v])
            sorted[tail++] = v;
    while (head < tail) {
        uint32_t v = sorted[head++];
        for (uint32_t i = after->first[v]; i < after->first[v + 1]; i++)
            if (!--waiting[after->other[i]])
                sorted[tail++] = after->other[i];
    }
    assert(head == tail && tail <= graph->nodes);
    return tail;
}

/* A node on a cycle: walking back among nodes that still wait must come round. */
static uint32_t find_cycle(const struct graph *graph, const struct adjacency *before,
                           const uint32_t *waiting)
{
    assert(graph->nodes && graph->edges);
    uint32_t v = 0;
    while (!waiting[v])
        v++;
    for (uint32_t step = 0; step < graph->nodes; step++) {
        uint32_t i = before->first[v];
        while (!waiting[before->other[i]])
            i++;
        v = before->other[i];
    }
    return v;
}

/* Adds the nodes to the record's order as sorted says. */
static rp_status add_nodes(struct reader *reader, struct graph *graph,
                           const struct adjacency *before, const uint32_t *sorted,
                           struct rpi_capture_record *record)
{
    assert(!rpi_order_nodes(record->order));
    struct {
        RPI_VEC(uint32_t);
    } predecessors = {0};
    rp_status status = RP_OK;
    for (uint32_t i = 0; status == RP_OK && i < graph->nodes; i++) {
        uint32_t v = sorted[i];
        predecessors.count = 0;
        for (uint32_t e = before->first[v]; e < before->first[v + 1]; e++)
            if (!rpi_vec_push(&predecessors, graph->rank[before->other[e]]))
                status = no_memory(reader, sizeof v);
        if (status == RP_OK)
            status = rpi_order_add(record->order, predecessors.data, predecessors.count,
                                   &graph->rank[v], reader->err);
    }
    rpi_vec_finish(&predecessors);
    return status;
}

static bool is_sorted(const struct graph *graph)
{
    for (uint32_t e = 0; e < graph->edges; e++)
        if (graph->from[e] >= graph->to[e])
            return false;
    return true;
}

/* Sorts with room for all that it needs: scratch holds waiting and sorted. */
static rp_status sort_and_add(struct reader *reader, struct graph *graph, uint32_t *scratch,
                              const struct adjacency *after, const struct adjacency *before,
                              struct rpi_capture_record *record)
{
    uint32_t *waiting = scratch, *sorted = scratch + graph->nodes;
    if (is_sorted(graph)) {
        for (uint32_t v = 0; v < graph->nodes; v++)
            sorted[v] = v;
    } else if (sort_nodes(graph, after, waiting, sorted) < graph->nodes) {
        return refuse(reader, "node %" PRIu32 " lies on a cycle",
                      find_cycle(graph, before, waiting));
    }
    return add_nodes(reader, graph, before, sorted, record);
}

static void sort_kinds(const struct graph *graph, uint8_t *kinds_in_order, uint8_t *scratch)
{
    assert(graph->nodes && graph->rank);
    memcpy(scratch, kinds_in_order, graph->nodes);
    for (uint32_t v = 0; v < graph->nodes; v++)
        kinds_in_order[graph->rank[v]] = scratch[v];
}

static rp_status order_graph(struct reader *reader, struct graph *graph,
                             struct rpi_capture_record *record)
{
    reader->list = "edges";
    reader->index = -1;
    struct adjacency after = {0}, before = {0};
    uint32_t *scratch = rpi_calloc((size_t)graph->nodes * 2, sizeof *scratch);
    graph->rank = rpi_reallocarray(NULL, graph->nodes, sizeof *graph->rank);
    rp_status status;
    if (!scratch || !graph->rank || !gather(&after, graph, graph->from, graph->to) ||
        !gather(&before, graph, graph->to, graph->from))
        status = no_memory(reader, ((size_t)graph->nodes + graph->edges) * sizeof *scratch);
    else
        status = sort_and_add(reader, graph, scratch, &after, &before, record);
    if (status == RP_OK && graph->nodes)
        sort_kinds(graph, record->node_kinds.data, (uint8_t *)scratch);
    record->edges = graph->edges;
    adjacency_finish(&after);
    adjacency_finish(&before);
    rpi_free(scratch);
    return status;
}

/* ---- Events -------------------------------------------------------------------------------- */

/* Block ids to blocks: open addressing, at most half full; a slot holds the block's index + 1. */
struct events {
    struct rpi_capture_record *record;
    const struct graph *graph;
    uint32_t streams;
    bool renumber; /* more streams than events: tables of them would cost more than is read */
    struct rpi_idmap
        numbers; /* then: the file's numbers to the record's, by first appearance, 0 to 0 */
    uint32_t *slots;
    size_t slot_count; /* a power of two */
    struct {
        RPI_VEC(uint32_t);
    } terminals; /* of the event being read */
};

/* The slot of id: its block's, or the empty one where it belongs. */
static uint32_t *find_id(const struct events *events, int64_t id)
{
    uint64_t h = (uint64_t)id;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    size_t at = (size_t)(h ^ h >> 33) & (events->slot_count - 1);
    while (events->slots[at] && events->record->blocks.data[events->slots[at] - 1].id != id)
        at = (at + 1) & (events->slot_count - 1);
    return &events->slots[at];
}

static rp_status read_stream(struct reader *reader, struct events *events, const json_t *json,
                             uint32_t *out)
{
    if (!events->streams || !get_index(json, events->streams - 1, out))
        return refuse(reader, "the stream must be a number below %" PRIu32, events->streams);
    if (!events->renumber || *out == 0)
        return RP_OK;
    uint32_t number = rpi_idmap_get(&events->numbers, *out);
    if (number == RPI_ABSENT) {
        number = (uint32_t)events->numbers.count + 1;
        if (!rpi_idmap_set(&events->numbers, *out, number))
            return no_memory(reader, sizeof number);
    }
    *out = number;
    return RP_OK;
}

static rp_status read_terminals(struct reader *reader, struct events *events, const json_t *list)
{
    if (!json_is_array(list))
        return refuse(reader, "the terminals must be a list of nodes");
    size_t count = json_array_size(list);
    events->terminals.count = 0;
    if (!rpi_vec_reserve(&events->terminals, count))
        return no_memory(reader, count * sizeof(uint32_t));
    for (size_t i = 0; i < count; i++) {
        uint32_t node;
        if (!events->graph->nodes ||
            !get_index(json_array_get(list, i), events->graph->nodes - 1, &node))
            return refuse(reader, "terminal %zu must be a node number below %" PRIu32, i,
                          events->graph->nodes);
        events->terminals.data[events->terminals.count++] = events->graph->rank[node];
    }
    return RP_OK;
}

/* ["alloc", id, bytes, stream, [nodes]] */
static rp_status read_alloc(struct reader *reader, struct events *events, const json_t *event,
                            int64_t id)
{
    const json_t *bytes = json_array_get(event, 2);
    uint32_t stream = 0, block = 0;
    if (json_array_size(event) != 5)
        return refuse(reader, "must be [\"alloc\", id, bytes, stream, [nodes]]");
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 1)
        return refuse(reader, "block %" PRId64 ": the size must be from 1 to 2^63 - 1", id);
    reader->total_bytes += (uint64_t)json_integer_value(bytes);
    if (reader->total_bytes > RPI_MOST_BYTES)
        return refuse(reader, "block %" PRId64 ": the sizes add up to more than 2^62", id);
    uint32_t *slot = find_id(events, id);
    if (*slot)
        return refuse(reader, "block %" PRId64 " is allocated twice", id);
    rp_status status = read_stream(reader, events, json_array_get(event, 3), &stream);
    if (status == RP_OK)
        status = read_terminals(reader, events, json_array_get(event, 4));
    if (status == RP_OK)
        status = rpi_capture_record_alloc(events->record, id, (uint64_t)json_integer_value(bytes),
                                          stream, events->terminals.data, events->terminals.count,
                                          &block, reader->err);
    if (status == RP_OK)
        *slot = block + 1;
    return status;
}

/* ["use", id, stream] */
static rp_status read_use(struct reader *reader, struct events *events, const json_t *event,
                          uint32_t block)
{
    uint32_t stream = 0;
    if (json_array_size(event) != 3)
        return refuse(reader, "must be [\"use\", id, stream]");
    rp_status status = read_stream(reader, events, json_array_get(event, 2), &stream);
    if (status == RP_OK)
        status = rpi_capture_record_use(events->record, block, stream, reader->err);
    return status;
}

/* ["free", id, stream, [nodes]] */
static rp_status read_free(struct reader *reader, struct events *events, const json_t *event,
                           uint32_t block)
{
    uint32_t stream = 0;
    if (json_array_size(event) != 4)
        return refuse(reader, "must be [\"free\", id, stream, [nodes]]");
    rp_status status = read_stream(reader, events, json_array_get(event, 2), &stream);
    if (status == RP_OK)
        status = read_terminals(reader, events, json_array_get(event, 3));
    if (status == RP_OK)
        status = rpi_capture_record_free(events->record, block, events->terminals.data,
                                         events->terminals.count, reader->err);
    return status;
}

static rp_status read_event(struct reader *reader, struct events *events, const json_t *event)
{
    const char *kind = json_string_value(json_array_get(event, 0));
    const json_t *id_json = json_array_get(event, 1);
    bool is_free = kind && !strcmp(kind, "free");
    if (!kind || (!is_free && strcmp(kind, "alloc") && strcmp(kind, "use")))
        return refuse(reader, "must be a list that begins with \"alloc\", \"use\" or \"free\"");
    if (!json_is_integer(id_json))
        return refuse(reader, "the block's id must be an integer");
    int64_t id = json_integer_value(id_json);
    if (*kind == 'a')
        return read_alloc(reader, events, event, id);
    uint32_t slot = *find_id(events, id);
    if (!slot)
        return refuse(reader, "%s of block %" PRId64 ", which was not allocated", kind, id);
    if (events->record->blocks.data[slot - 1].free_event != RPI_NO_EVENT)
        return refuse(reader, "block %" PRId64 " is %s after its free", id,
                      is_free ? "freed again" : "used");
    return is_free ? read_free(reader, events, event, slot - 1)
                   : read_use(reader, events, event, slot - 1);
}

static rp_status read_events(struct reader *reader, const json_t *list, uint32_t streams,
                             const struct graph *graph, struct rpi_capture_record *record)
{
    reader->list = "events";
    reader->index = -1;
    if (!json_is_array(list))
        return refuse(reader, "must be a list of events");
    struct events events = {.record = record, .graph = graph, .streams = streams, .slot_count = 2};
    size_t count = json_array_size(list);
    events.renumber = streams > count;
    while (events.slot_count < 2 * count)
        events.slot_count *= 2;
    events.slots = rpi_calloc(events.slot_count, sizeof *events.slots);
    rp_status status =
        events.slots ? RP_OK : no_memory(reader, events.slot_count * sizeof *events.slots);
    for (size_t i = 0; status == RP_OK && i < count; i++) {
        reader->index = (long)i;
        status = read_event(reader, &events, json_array_get(list, i));
    }
    rpi_free(events.slots);
    rpi_vec_finish(&events.terminals);
    rpi_idmap_finish(&events.numbers);
    return status;
}

/* ---- Captures and the file ----------------------------------------------------------------- */

static rp_status check_relation(struct reader *reader, const struct rpi_capture_record *record)
{
    struct rpi_lifetimes lifetimes;
    struct rp_error why;
    rp_status status = rpi_lifetimes_from_record(record, 1, &lifetimes, &why);
    if (status == RP_OK) {
        rpi_lifetimes_finish(&lifetimes);
        return RP_OK;
    }
    reader->list = "events";
    reader->index = -1;
    if (status == RP_ERROR_FORMAT)
        return refuse(reader, "%s", why.message);
    if (reader->err)
        *reader->err = why;
    return status;
}

static rp_status read_capture(struct reader *reader, const json_t *capture,
                              struct rpi_capture_record *record)
{
    uint32_t streams;
    struct graph graph = {0};
    reader->list = "streams";
    if (!get_index(json_object_get(capture, "streams"), RPI_MOST_STREAMS, &streams))
        return refuse(reader, "must be a number of streams, at most %d", RPI_MOST_STREAMS);
    rp_status status = read_nodes(reader, json_object_get(capture, "nodes"), &graph, record);
    if (status == RP_OK)
        status = read_edges(reader, json_object_get(capture, "edges"), &graph);
    if (status == RP_OK)
        status = order_graph(reader, &graph, record);
    if (status == RP_OK)
        status = read_events(reader, json_object_get(capture, "events"), streams, &graph, record);
    if (status == RP_OK)
        status = check_relation(reader, record);
    graph_finish(&graph);
    return status;
}

/* Makes the next record, under a name that no earlier one has. */
static rp_status open_capture(struct reader *reader, const json_t *capture,
                              struct rp_recording *recording)
{
    reader->list = NULL;
    reader->index = -1;
    if (!json_is_object(capture))
        return refuse(reader, "must be an object");
    const char *name = json_string_value(json_object_get(capture, "name"));
    reader->list = "name";
    if (!name || !name_is_valid(name))
        return refuse(reader, "must be a text of 1 to 255 bytes without control characters");
    if (!rpi_vec_reserve(&recording->captures, recording->captures.count + 1))
        return no_memory(reader, sizeof *recording->captures.data);
    rp_status status = rpi_capture_record_init(&recording->captures.data[recording->captures.count],
                                               name, reader->err);
    if (status == RP_OK)
        recording->captures.count++;
    return status;
}

static rp_status read_captures(struct reader *reader, const json_t *root,
                               struct rp_recording *recording)
{
    const json_t *captures = json_object_get(root, "captures");
    reader->list = "captures";
    if (!json_is_array(captures) || !json_array_size(captures))
        return refuse(reader, "must be a list of at least one capture");
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < json_array_size(captures); i++) {
        reader->capture = (long)i;
        status = open_capture(reader, json_array_get(captures, i), recording);
        if (status == RP_OK)
            status = read_capture(reader, json_array_get(captures, i),
                                  &recording->captures.data[recording->captures.count - 1]);
    }
    return status;
}

static rp_status read_root(struct reader *reader, const json_t *root,
                           struct rp_recording *recording)
{
    if (!json_is_object(root))
        return refuse(reader, "must hold one JSON object");
    const char *format = json_string_value(json_object_get(root, "format"));
    reader->list = "format";
    if (!format && json_object_get(root, "traceEvents"))
        return refuse(reader, "must be \"reprise-capture/1\"; this is a profiler's trace, which "
                              "`reprise advise` reads");
    if (!format || strcmp(format, "reprise-capture/1"))
        return refuse(reader, "must be \"reprise-capture/1\"");
    rp_status status = read_captures(reader, root, recording);
    if (status == RP_OK)
        status = rpi_compose_read(recording, json_object_get(root, "compose"), reader->err);
    return status;
}

/* About what the text takes as a tree of values: an array 128 bytes, an object 256, any value with
 * its place in a list 48. A short file may hold many values once it is decompressed. */
#define MOST_TREE_BYTES ((size_t)4 << 30)

static rp_status check_tree_bytes(const char *file, const char *text, size_t bytes,
                                  struct rp_error *err)
{
    size_t tree = bytes;
    for (size_t i = 0; i < bytes; i++)
        tree += text[i] == ',' ? 48 : text[i] == '[' ? 128 : text[i] == '{' ? 256 : 0;
    if (tree <= MOST_TREE_BYTES)
        return RP_OK;
    return rpi_error(err, RP_ERROR_LIMIT, "recording",
                     "%s: has so many values that reading it would take about %zu MiB of host "
                     "memory; the most is %zu",
                     file, tree >> 20, MOST_TREE_BYTES >> 20);
}

rp_status rpi_recording_parse_json(struct rp_recording *recording, const char *text, size_t bytes,
                                   struct rp_error *err)
{
    rp_status status = check_tree_bytes(recording->file, text, bytes, err);
    if (status != RP_OK)
        return status;
    json_error_t why;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!root && json_error_code(&why) == json_error_out_of_memory)
        return rpi_error_host_memory(err, "recording", bytes);
    if (!root)
        return rpi_error(err, RP_ERROR_FORMAT, "recording", "%s: line %d, column %d: %s",
                         recording->file, why.line, why.column, why.text);
    struct reader reader = {.file = recording->file, .err = err, .capture = -1, .index = -1};
    status = read_root(&reader, root, recording);
    json_decref(root);
    return status;
}
