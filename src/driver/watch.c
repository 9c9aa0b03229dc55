/* SPDX-License-Identifier: MIT
 *
 * Functions of a table have no room for a pointer of ours, so that each driver that is watched has
 * functions of its own, generated for each slot; a slot is filled once and stays.
 *
 * Threads: any thread may call anything here; a watch belongs to the thread that began it.
 */
#include "driver/watch.h"

#include "driver/call_values.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

enum { SLOTS = 3 }; /* two providers, and a wrapper of one; generated as often below */

static struct slot {
    const struct rp_driver *inner; /* NULL: free */
    struct rp_driver table;
} slots[SLOTS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while a slot is filled */
static _Thread_local struct rpi_watch *current;

void rpi_watch_begin(struct rpi_watch *watch)
{
    watch->outer = current;
    if (!watch->observer && current)
        watch->observer = current->observer;
    current = watch;
}

void rpi_watch_end(struct rpi_watch *watch)
{
    assert(current == watch);
    current = watch->outer;
}

bool rpi_watch_is_on(void)
{
    return current && !current->eager;
}

const struct rpi_watch *rpi_watch_innermost(void)
{
    return current;
}

/* The place of a name in the list of arguments; SIZE_MAX: it is not there. */
static size_t find_argument(const char *names, const char *name)
{
    const char *at = names + 1;
    size_t wanted = strlen(name);
    for (size_t i = 0; *at != ')'; i++) {
        size_t length = strcspn(at, ",)");
        if (length == wanted && !strncmp(at, name, length))
            return i;
        at += length;
        at += strspn(at, ", ");
    }
    return SIZE_MAX;
}

bool rpi_watch_has(const struct rpi_watch_call *call, const char *name)
{
    return find_argument(call->names, name) != SIZE_MAX;
}

uint64_t rpi_watch_value(const struct rpi_watch_call *call, const char *name)
{
    size_t place = find_argument(call->names, name);
    return place == SIZE_MAX ? 0 : call->values[place];
}

static enum rpi_watch_way ask(struct rpi_watch *watch, const struct rpi_watch_call *call)
{
    struct rpi_watch_observer *observer = watch->observer;
    return observer && observer->before ? observer->before(observer, call) : RPI_WATCH_CALL;
}

static void note(struct rpi_watch *watch, const struct rpi_watch_call *call, CUresult result)
{
    const struct rpi_failed_call failed = {call->function, call->caller, result, call->number};
    if (!watch->first.function && rpi_result_status(result) == RP_ERROR_CAPTURE)
        watch->first = failed;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        watch->last = failed;
    struct rpi_watch_observer *observer = watch->observer;
    if (observer && observer->after)
        observer->after(observer, call, result);
}

/* Asks before the call; false: it is not to be made. */
static bool enter(const struct rp_driver *inner, struct rpi_watch *watch,
                  const struct rpi_watch_call *call, bool *out_relaxed)
{
    enum rpi_watch_way way = ask(watch, call);
    *out_relaxed = way == RPI_WATCH_RELAX;
    if (*out_relaxed) {
        watch->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        inner->cuThreadExchangeStreamCaptureMode(&watch->mode);
    }
    return way != RPI_WATCH_SKIP;
}

static CUresult leave(const struct rp_driver *inner, struct rpi_watch *watch,
                      const struct rpi_watch_call *call, bool relaxed, CUresult result)
{
    if (relaxed)
        inner->cuThreadExchangeStreamCaptureMode(&watch->mode);
    note(watch, call, result);
    return result;
}

/* Underscores, as the names of parameters are those of symbols.def. */
#define WATCHED(slot, name, params, args)                                                          \
    static CUresult watch_##slot##_##name params                                                   \
    {                                                                                              \
        const struct rp_driver *inner_ = slots[slot].inner;                                        \
        struct rpi_watch *watch_ = current;                                                        \
        if (!watch_)                                                                               \
            return inner_->name args;                                                              \
        const uint64_t values_[] = {RPI_CALL_VALUES args 0};                                       \
        const struct rpi_watch_call call_ = {#name, #args, values_, __builtin_return_address(0),   \
                                             ++watch_->calls};                                     \
        bool relaxed_;                                                                             \
        CUresult result_ = CUDA_SUCCESS;                                                           \
        if (enter(inner_, watch_, &call_, &relaxed_))                                              \
            result_ = inner_->name args;                                                           \
        return leave(inner_, watch_, &call_, relaxed_, result_);                                   \
    }
#define X(need, name, version, params, args)                                                       \
    WATCHED(0, name, params, args)                                                                 \
    WATCHED(1, name, params, args)                                                                 \
    WATCHED(2, name, params, args)
#include "driver/symbols.def"
#undef X

static void fill_table(struct rp_driver *table, const struct rp_driver *inner, size_t slot)
{
    *table = *inner;
#define X(need, name, version, params, args)                                                       \
    if (inner->name)                                                                               \
        table->name = slot == 0 ? watch_0_##name : slot == 1 ? watch_1_##name : watch_2_##name;
#include "driver/symbols.def"
#undef X
}

const struct rp_driver *rpi_driver_watch(const struct rp_driver *inner)
{
    const struct rp_driver *watched = inner;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < SLOTS; i++) {
        struct slot *slot = &slots[i];
        if (slot->inner && slot->inner != inner)
            continue;
        if (!slot->inner) {
            fill_table(&slot->table, inner, i);
            slot->inner = inner;
        }
        watched = &slot->table;
        break;
    }
    pthread_mutex_unlock(&lock);
    return watched;
}
