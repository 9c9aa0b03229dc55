/* SPDX-License-Identifier: MIT
 *
 * Traces of Nsight Systems: the SQLite database that `nsys export --type sqlite` writes, by the
 * schema in NVIDIA's documentation ("SQLite Schema Reference"). One table after the other, a row at
 * a time:
 *
 *     CUPTI_ACTIVITY_KIND_RUNTIME   calls: start, end, globalTid, correlationId, nameId
 *     CUPTI_ACTIVITY_KIND_KERNEL    kernels: start, end, deviceId, streamId, correlationId, names
 *     CUPTI_ACTIVITY_KIND_MEMCPY    copies, with copyKind, and CUPTI_ACTIVITY_KIND_MEMSET, fills
 *     NVTX_EVENTS                   ranges: PyTorch's operators (torch.autograd.profiler.emit_nvtx)
 *                                   and what the program named
 *     StringIds, TARGET_INFO_GPU    names
 *
 * Tables are only there when something was recorded for them, and columns differ from version to
 * version, so each is asked for.
 */
#include "profile/sqlite.h"
#include "profile/trace.h"

#include "base/status.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

struct reading {
    struct rpi_trace *trace;
    enum rpi_event_kind kind;
    char name[64]; /* of copies and fills */
};

/* A globalTid holds the process in bits 24 to 47 and the thread in the lowest 24. */
static int64_t pid_of(int64_t global)
{
    return global >> 24 & 0xffffff;
}

static int64_t tid_of(int64_t global)
{
    return global & 0xffffff;
}

/* "cudaLaunchKernel_v7000" without the version of the interface, which a trace of PyTorch's
 * profiler does not have either; "cuMemAlloc_v2" is another name than cuMemAlloc, and stays. */
static size_t without_version(const char *name, size_t bytes)
{
    size_t digits = 0;
    while (digits < bytes && name[bytes - 1 - digits] >= '0' && name[bytes - 1 - digits] <= '9')
        digits++;
    bool version = digits >= 4 && bytes > digits + 2 && name[bytes - digits - 1] == 'v' &&
                   name[bytes - digits - 2] == '_';
    return version ? bytes - digits - 2 : bytes;
}

/* Columns 0 and 1, start and end: integers, or the event has no time. */
static void take_times(struct rpi_database *db, struct rpi_raw_event *raw)
{
    int64_t end = 0;
    raw->timeless = !rpi_database_integer(db, 0, &raw->start_ns) ||
                    !rpi_database_integer(db, 1, &end) ||
                    __builtin_sub_overflow(end, raw->start_ns, &raw->span_ns);
}

static rp_status add(struct reading *r, struct rpi_raw_event *raw, struct rp_error *err)
{
    raw->kind = r->kind;
    r->trace->events++;
    return rpi_trace_add(r->trace, raw, err);
}

/* start, end, globalTid, correlationId, name */
static rp_status add_call(struct rpi_database *db, void *user, struct rp_error *err)
{
    struct rpi_raw_event raw = {0};
    int64_t global = rpi_database_whole(db, 2);
    take_times(db, &raw);
    raw.lane_a = pid_of(global);
    raw.lane_b = tid_of(global);
    raw.correlation = (uint32_t)rpi_database_whole(db, 3);
    rp_status status = rpi_database_text(db, 4, &raw.name, &raw.name_bytes, err);
    if (status != RP_OK)
        return status;
    raw.name_bytes = without_version(raw.name, raw.name_bytes);
    return add(user, &raw, err);
}

/* PyTorch's profiler tells where from and where to in the name, which is what obstacles go by. */
static void name_copy(int64_t kind, char *name, size_t bytes)
{
    static const char *const kinds[] = {[1] = "HtoD (Pinned -> Device)",
                                        [2] = "DtoH (Device -> Pinned)",
                                        [8] = "DtoD (Device -> Device)",
                                        [10] = "PtoP (Device -> Device)"};
    const char *text = kind >= 0 && kind <= 10 ? kinds[kind] : NULL;
    snprintf(name, bytes, "Memcpy %s", text ? text : "(other)");
}

/* start, end, deviceId, streamId, correlationId, graphNodeId, name or copyKind */
static rp_status add_work(struct rpi_database *db, void *user, struct rp_error *err)
{
    struct reading *r = user;
    struct rpi_raw_event raw = {0};
    take_times(db, &raw);
    raw.lane_a = rpi_database_whole(db, 2);
    raw.lane_b = rpi_database_whole(db, 3);
    raw.correlation = (uint32_t)rpi_database_whole(db, 4);
    raw.in_graph = rpi_database_whole(db, 5) != 0;
    if (r->kind == RPI_WORK_KERNEL) {
        rp_status status = rpi_database_text(db, 6, &raw.name, &raw.name_bytes, err);
        return status == RP_OK ? add(r, &raw, err) : status;
    }
    if (r->kind == RPI_WORK_COPY)
        name_copy(rpi_database_whole(db, 6), r->name, sizeof r->name);
    else
        snprintf(r->name, sizeof r->name, "Memset (Device)");
    raw.name = r->name;
    raw.name_bytes = strlen(r->name);
    return add(r, &raw, err);
}

/* start, end, globalTid, name. What PyTorch emits reads "aten::add, seq = 5, ...". */
static rp_status add_range(struct rpi_database *db, void *user, struct rp_error *err)
{
    struct reading *r = user;
    struct rpi_raw_event raw = {0};
    int64_t global = rpi_database_whole(db, 2);
    take_times(db, &raw);
    raw.lane_a = pid_of(global);
    raw.lane_b = tid_of(global);
    rp_status status = rpi_database_text(db, 3, &raw.name, &raw.name_bytes, err);
    if (status != RP_OK)
        return status;
    const char *comma = memchr(raw.name, ',', raw.name_bytes);
    bool op = strncmp(raw.name, "aten::", 6) == 0;
    if (op && comma)
        raw.name_bytes = (size_t)(comma - raw.name);
    r->kind = op ? RPI_FRAME_OP : RPI_FRAME_ANNOTATION;
    r->trace->is_pytorch |= op;
    return add(r, &raw, err);
}

static rp_status take_device(struct rpi_database *db, void *user, struct rp_error *err)
{
    struct rpi_trace *trace = user;
    const char *name;
    size_t bytes;
    rp_status status = rpi_database_text(db, 0, &name, &bytes, err);
    if (status == RP_OK && !trace->device_name[0]) {
        snprintf(trace->device_name, sizeof trace->device_name, "%s", name);
        rpi_text_mask(trace->device_name, strlen(trace->device_name));
    }
    return status;
}

/* ---- Tables -------------------------------------------------------------------------------- */

static rp_status read_device(struct rpi_database *db, struct rpi_trace *trace, struct rp_error *err)
{
    bool there = false;
    rp_status status = rpi_database_has(db, "TARGET_INFO_GPU", "name", &there, err);
    if (status != RP_OK || !there)
        return status;
    return rpi_database_query(db, "SELECT name FROM TARGET_INFO_GPU", take_device, trace, err);
}

/* A table of work, with what names it. */
static rp_status read_work(struct rpi_database *db, struct rpi_trace *trace, const char *table,
                           enum rpi_event_kind kind, struct rp_error *err)
{
    char query[512], name[128] = "0";
    struct reading reading = {.trace = trace, .kind = kind};
    bool there = false, demangled = false, nodes = false;
    rp_status status = rpi_database_has(db, table, "start", &there, err);
    if (status != RP_OK || !there)
        return status;
    status = rpi_database_has(db, table, "demangledName", &demangled, err);
    if (status == RP_OK)
        status = rpi_database_has(db, table, "graphNodeId", &nodes, err);
    if (status != RP_OK)
        return status;
    if (kind == RPI_WORK_KERNEL)
        snprintf(name, sizeof name, "(SELECT value FROM StringIds WHERE id = w.%s)",
                 demangled ? "demangledName" : "shortName");
    else if (kind == RPI_WORK_COPY)
        snprintf(name, sizeof name, "w.copyKind");
    snprintf(query, sizeof query,
             "SELECT w.start, w.end, w.deviceId, w.streamId, w.correlationId, %s, %s FROM %s w",
             nodes ? "w.graphNodeId" : "0", name, table);
    return rpi_database_query(db, query, add_work, &reading, err);
}

static rp_status read_calls(struct rpi_database *db, struct rpi_trace *trace, struct rp_error *err)
{
    struct reading reading = {.trace = trace, .kind = RPI_CALL_RUNTIME};
    bool there = false;
    rp_status status = rpi_database_has(db, "CUPTI_ACTIVITY_KIND_RUNTIME", "nameId", &there, err);
    if (status != RP_OK || !there)
        return status;
    return rpi_database_query(db,
                              "SELECT r.start, r.end, r.globalTid, r.correlationId, s.value FROM "
                              "CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId",
                              add_call, &reading, err);
}

/* Ranges that were pushed and popped, or started and ended: event types 59 and 60. */
static rp_status read_ranges(struct rpi_database *db, struct rpi_trace *trace, struct rp_error *err)
{
    char query[512];
    struct reading reading = {.trace = trace};
    bool there = false, by_id = false;
    rp_status status = rpi_database_has(db, "NVTX_EVENTS", "text", &there, err);
    if (status != RP_OK || !there)
        return status;
    status = rpi_database_has(db, "NVTX_EVENTS", "textId", &by_id, err);
    if (status != RP_OK)
        return status;
    snprintf(
        query, sizeof query,
        "SELECT n.start, n.end, n.globalTid, %s FROM NVTX_EVENTS n WHERE n.end IS NOT NULL AND "
        "n.eventType IN (59, 60)",
        by_id ? "coalesce(n.text, (SELECT value FROM StringIds WHERE id = n.textId))" : "n.text");
    return rpi_database_query(db, query, add_range, &reading, err);
}

static rp_status read_tables(struct rpi_database *db, struct rpi_trace *trace, struct rp_error *err)
{
    bool names = false; /* looked for first: others are joined with them */
    rp_status status = rpi_database_has(db, "StringIds", "value", &names, err);
    if (status == RP_OK && !names)
        status = rpi_error(err, RP_ERROR_FORMAT, "advise",
                           "%s: is an SQLite database without StringIds: not one that Nsight "
                           "Systems exports",
                           trace->file);
    if (status == RP_OK)
        status = read_device(db, trace, err);
    if (status == RP_OK)
        status = read_calls(db, trace, err);
    if (status == RP_OK)
        status = read_work(db, trace, "CUPTI_ACTIVITY_KIND_KERNEL", RPI_WORK_KERNEL, err);
    if (status == RP_OK)
        status = read_work(db, trace, "CUPTI_ACTIVITY_KIND_MEMCPY", RPI_WORK_COPY, err);
    if (status == RP_OK)
        status = read_work(db, trace, "CUPTI_ACTIVITY_KIND_MEMSET", RPI_WORK_FILL, err);
    if (status == RP_OK)
        status = read_ranges(db, trace, err);
    return status;
}

rp_status rpi_trace_read_nsys(struct rpi_trace *trace, struct rp_error *err)
{
    struct rpi_database *db = NULL;
    trace->from_nsys = true;
    rp_status status = rpi_database_open(trace->file, &db, err);
    if (status == RP_OK)
        status = read_tables(db, trace, err);
    rpi_database_close(db);
    if (status == RP_OK)
        status = rpi_trace_check(trace, err);
    if (status == RP_OK && !trace->work.count)
        status = rpi_error(err, RP_ERROR_FORMAT, "advise",
                           "%s: has %llu events but no GPU work: profile with nsys profile "
                           "--trace=cuda,nvtx",
                           trace->file, (unsigned long long)trace->events);
    return status;
}
