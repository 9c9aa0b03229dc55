/* SPDX-License-Identifier: MIT
 *
 * The trace wrapper: each driver call becomes one line.
 *
 *     12 4711 cuMemcpyAsync(to=0x7f0000000000, from=0x7f0000400000, bytes=0x400, stream=0x0)
 *         = CUDA_SUCCESS 3.1 us                                               (on the same line)
 *
 * Sequence numbers are given when a call begins, lines are written when it ends, so that lines of
 * threads and of calls made by host functions may stand out of order. A line is built in a buffer
 * and written by one call, so lines never mix.
 *
 * Functions of a table have no room for a pointer of ours, so that each driver that is traced has
 * functions of its own, generated for each slot; a slot is filled once and stays.
 *
 * Threads: any thread may call anything here.
 */
#include "base/clock.h"
#include "base/log.h"
#include "driver/call_values.h"
#include "driver/driver.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLOTS = 2 }; /* one for each provider; the functions below are generated as often */

static struct slot {
    const struct rp_driver *inner; /* NULL: free */
    FILE *sink;                    /* borrowed */
    struct rp_driver table;
    _Atomic uint64_t calls;
} slots[SLOTS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while a slot is filled */

/* A line under construction; longer text is cut. */
struct line {
    char text[1024];
    size_t used;
};

static void append(struct line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void append(struct line *line, const char *format, ...)
{
    size_t room = sizeof line->text - line->used;
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(line->text + line->used, room, format, args);
    va_end(args);
    if (wanted > 0)
        line->used += (size_t)wanted < room ? (size_t)wanted : room - 1;
}

/* names is the argument list as it stands in symbols.def, "(to, from, bytes)", values theirs. */
static void write_line(FILE *sink, uint64_t call, const char *function, const char *names,
                       const uint64_t *values, CUresult result, uint64_t start_ns)
{
    double microseconds = rpi_ms_since(start_ns) * 1e3;
    struct line line = {.used = 0};
    append(&line, "%" PRIu64 " %ld %s(", call, (long)syscall(SYS_gettid), function);
    const char *name = names + 1;
    for (size_t i = 0; *name != ')'; i++) {
        size_t length = strcspn(name, ",)");
        append(&line, "%s%.*s=0x%" PRIx64, i ? ", " : "", (int)length, name, values[i]);
        name += length;
        name += strspn(name, ", ");
    }
    append(&line, ") = %s %.1f us\n", rpi_result_name(result), microseconds);
    fputs(line.text, sink);
}

#define TRACED(slot, name, params, args)                                                           \
    static CUresult trace_##slot##_##name params                                                   \
    {                                                                                              \
        uint64_t call = atomic_fetch_add(&slots[slot].calls, 1);                                   \
        const uint64_t values[] = {RPI_CALL_VALUES args 0};                                        \
        uint64_t start_ns = rpi_clock_ns();                                                        \
        CUresult result = slots[slot].inner->name args;                                            \
        write_line(slots[slot].sink, call, #name, #args, values, result, start_ns);                \
        return result;                                                                             \
    }
#define X(need, name, version, params, args)                                                       \
    TRACED(0, name, params, args)                                                                  \
    TRACED(1, name, params, args)
#include "driver/symbols.def"
#undef X

static void fill_table(struct rp_driver *table, const struct rp_driver *inner, size_t slot)
{
    *table = *inner;
#define X(need, name, version, params, args)                                                       \
    if (inner->name)                                                                               \
        table->name = slot == 0 ? trace_0_##name : trace_1_##name;
#include "driver/symbols.def"
#undef X
}

/* With the lock held. NULL: all slots are taken. */
static const struct rp_driver *find_or_fill(const struct rp_driver *inner, FILE *sink)
{
    for (size_t i = 0; i < SLOTS; i++) {
        struct slot *slot = &slots[i];
        assert(inner != &slot->table);
        if (slot->inner == inner)
            return &slot->table;
        if (slot->inner)
            continue;
        slot->inner = inner;
        slot->sink = sink;
        fill_table(&slot->table, inner, i);
        return &slot->table;
    }
    return NULL;
}

const struct rp_driver *rpi_driver_trace(const struct rp_driver *inner, FILE *sink)
{
    pthread_mutex_lock(&lock);
    const struct rp_driver *traced = find_or_fill(inner, sink);
    pthread_mutex_unlock(&lock);
    if (traced)
        return traced;
    rpi_log(RP_LOG_WARNING, "the %s driver is not traced: %d others are", inner->provider, SLOTS);
    return inner;
}
