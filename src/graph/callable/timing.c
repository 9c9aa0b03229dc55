/* SPDX-License-Identifier: MIT */
#include "graph/callable/timing.h"

#include "base/clock.h"
#include "memory/range/arena.h"

#include <assert.h>

enum { SLOTS = sizeof((struct rpi_timing *)0)->slots / sizeof(struct rpi_timing_slot) };
/* Between looks at a device that is behind: where calls take longer, each of them looks. */
enum { FIRST_PAUSE_NS = 5000, MOST_PAUSE_NS = 200000 };
/* Between calls in a row: what a loop and its bookkeeping take. */
static const double GAP_NS = 20e3;

/* ---- Slots --------------------------------------------------------------------------------- */

static void destroy_events(const struct rp_driver *driver, struct rpi_timing_slot *slot)
{
    for (int i = 0; i < 2 * RPI_MEASURED; i++) {
        if (slot->events[i])
            driver->cuEventDestroy(slot->events[i]);
        slot->events[i] = NULL;
    }
}

/* Of those in this state, the one whose calls came first. */
static struct rpi_timing_slot *oldest(struct rpi_timing *timing, enum rpi_timing_state state)
{
    struct rpi_timing_slot *found = NULL;
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct rpi_timing_slot *slot = &timing->slots[i];
        if (slot->state == state && (!found || slot->number < found->number))
            found = slot;
    }
    return found;
}

static void lose(struct rpi_timing_slot *slot)
{
    slot->state = RPI_TIMING_FREE;
    rpi_chooser_lost(slot->chooser, &slot->plan);
}

/* A slot for a new block. Where all are open, the calls of a shape may not go on: the oldest block
 * gives its own up. NULL: the device is behind with all. */
static struct rpi_timing_slot *take_slot(struct rpi_timing *timing)
{
    struct rpi_timing_slot *slot = oldest(timing, RPI_TIMING_FREE);
    if (slot)
        return slot;
    slot = oldest(timing, RPI_TIMING_OPEN);
    if (!slot)
        return NULL;
    slot->block->slot = NULL;
    lose(slot);
    return slot;
}

/* ---- Reading ------------------------------------------------------------------------------- */

static CUresult elapsed_ns(const struct rp_driver *driver, const struct rpi_timing_slot *slot,
                           double *out_ns)
{
    assert(slot->recorded % 2 == 0);
    double sum = 0;
    for (uint32_t i = 0; i < slot->recorded; i += 2) {
        float ms = 0;
        CUresult result = driver->cuEventElapsedTime(&ms, slot->events[i], slot->events[i + 1]);
        if (result != CUDA_SUCCESS)
            return result;
        sum += (double)ms * 1e6;
    }
    *out_ns = sum;
    return CUDA_SUCCESS;
}

/* Reads the slot; false: the device has not passed it yet. */
static bool read_slot(const struct rp_driver *driver, struct rpi_timing_slot *slot)
{
    assert(slot->state == RPI_TIMING_WAITING && slot->recorded && slot->recorded % 2 == 0);
    double ns;
    CUresult result = driver->cuEventQuery(slot->events[slot->recorded - 1]);
    if (result == CUDA_ERROR_NOT_READY)
        return false;
    if (result == CUDA_SUCCESS)
        result = elapsed_ns(driver, slot, &ns);
    if (result == CUDA_SUCCESS) {
        slot->state = RPI_TIMING_FREE;
        double calls = slot->plan.of - 1;
        rpi_chooser_sample(slot->chooser, &slot->plan, slot->host_ns / calls, ns / calls);
        return true;
    }
    destroy_events(driver, slot); /* whoever uses the slot next begins afresh */
    lose(slot);
    return true;
}

/* When to look again, after a look that found nothing or something. */
static void set_pause(struct rpi_timing *timing, bool found)
{
    uint64_t longer = timing->pause_ns ? 2 * timing->pause_ns : FIRST_PAUSE_NS;
    timing->pause_ns = found ? 0 : longer;
    if (timing->pause_ns > MOST_PAUSE_NS)
        timing->pause_ns = MOST_PAUSE_NS;
    if (timing->waiting && timing->pause_ns)
        timing->look_ns = rpi_clock_ns() + timing->pause_ns;
}

void rpi_timing_collect(struct rpi_timing *timing)
{
    if (!timing->waiting || (timing->pause_ns && rpi_clock_ns() < timing->look_ns))
        return;
    int mode = rpi_relax_begin(timing->driver);
    uint32_t before = timing->waiting;
    while (timing->waiting && read_slot(timing->driver, oldest(timing, RPI_TIMING_WAITING)))
        timing->waiting--;
    rpi_relax_end(timing->driver, mode);
    set_pause(timing, timing->waiting < before);
}

/* ---- Measuring ----------------------------------------------------------------------------- */

static bool record(const struct rp_driver *driver, struct rpi_timing_slot *slot)
{
    CUevent *event = &slot->events[slot->recorded];
    if (!*event && driver->cuEventCreate(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        *event = NULL;
        return false;
    }
    if (driver->cuEventRecord(*event, slot->stream) != CUDA_SUCCESS)
        return false;
    slot->recorded++;
    return true;
}

static void open_slot(struct rpi_timing *timing, struct rpi_timing_block *block,
                      struct rpi_chooser *chooser, const struct rpi_plan_of_call *plan,
                      CUstream stream)
{
    assert(!block->slot && plan->step == 1);
    struct rpi_timing_slot *slot = take_slot(timing);
    if (!slot) {
        rpi_chooser_lost(chooser, plan);
        return;
    }
    slot->chooser = chooser;
    slot->block = block;
    slot->plan = *plan;
    slot->in_call = false;
    slot->state = RPI_TIMING_OPEN;
    slot->number = timing->blocks++;
    slot->stream = stream;
    slot->recorded = 0;
    slot->each = false;
    slot->host_ns = slot->apart_ns = 0;
    block->slot = slot;
}

/* Does the call go on where the block stands? An event of a capture may not be asked for. */
static bool goes_on(const struct rpi_timing *timing, const struct rpi_timing_slot *slot,
                    const struct rpi_plan_of_call *plan, CUstream stream)
{
    assert(slot->state == RPI_TIMING_OPEN);
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    return !slot->in_call && plan->step == slot->plan.step + 1 && plan->way == slot->plan.way &&
           plan->round == slot->plan.round &&
           timing->driver->cuStreamIsCapturing(stream, &capturing) == CUDA_SUCCESS &&
           capturing == CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A gap now and then is the caller's pause, and spoils one block. */
static void count_gaps(struct rpi_timing_block *block, bool had_some)
{
    if (had_some)
        block->gaps += block->gaps < 2 * RPI_MANY_GAPS;
    else
        block->gaps -= block->gaps > 0;
}

/* Host time ahead of a call that is part of its cost counts; ahead of an eager one it is what
 * asking costs, and keeps the calls apart. */
static bool begin_measured(const struct rpi_timing *timing, struct rpi_timing_block *block,
                           const struct rpi_plan_of_call *plan, CUstream stream, double ahead_ns)
{
    assert(plan->step > 1 && block->slot);
    struct rpi_timing_slot *slot = block->slot;
    bool counts = plan->way != RPI_WAY_EAGER;
    double apart = (double)(rpi_clock_ns() - slot->mark_ns) - (counts ? ahead_ns : 0);
    bool alone = slot->stream != stream || (!counts && ahead_ns > 0);
    if (plan->step == 2) {
        slot->each = block->gaps >= RPI_MANY_GAPS || alone || apart > GAP_NS;
    } else if (alone && !slot->each) {
        count_gaps(block, true);
        return false;
    } else {
        slot->apart_ns += apart;
    }
    slot->stream = stream;
    slot->host_ns += counts ? ahead_ns : 0;
    return (!slot->each && plan->step > 2) || record(timing->driver, slot);
}

void rpi_timing_begin(struct rpi_timing *timing, struct rpi_timing_block *block,
                      struct rpi_chooser *chooser, const struct rpi_plan_of_call *plan,
                      CUstream stream, double ahead_ns)
{
    bool is_measured = false;
    if (plan->step == 1) {
        if (block->slot)
            lose(block->slot);
        block->slot = NULL;
        open_slot(timing, block, chooser, plan, stream);
        is_measured = block->slot != NULL;
    } else if (block->slot) {
        is_measured = goes_on(timing, block->slot, plan, stream) &&
                      begin_measured(timing, block, plan, stream, ahead_ns);
        if (!is_measured)
            lose(block->slot);
    }
    if (!is_measured) {
        block->slot = NULL;
        return;
    }
    block->slot->plan = *plan;
    block->slot->in_call = true;
    block->slot->mark_ns = rpi_clock_ns();
}

/* After the block's last call. Calls in a row that were far apart are none. */
static void close_slot(struct rpi_timing *timing, struct rpi_timing_block *block)
{
    assert(block->slot && block->slot->state == RPI_TIMING_OPEN && !block->slot->in_call);
    struct rpi_timing_slot *slot = block->slot;
    block->slot = NULL;
    bool had_gaps = slot->apart_ns > slot->plan.of * GAP_NS + slot->host_ns / 4;
    if (slot->plan.of > RPI_DEAR_BLOCK) /* there are gaps to be seen */
        count_gaps(block, had_gaps);
    if (had_gaps && !slot->each) {
        lose(slot);
        return;
    }
    slot->state = RPI_TIMING_WAITING;
    timing->waiting++;
}

void rpi_timing_end(struct rpi_timing *timing, struct rpi_timing_block *block,
                    const struct rpi_plan_of_call *plan, bool worked)
{
    struct rpi_timing_slot *slot = block->slot;
    if (!slot || !slot->in_call || plan->step != slot->plan.step)
        return; /* of a block that was lost meanwhile */
    uint64_t now = rpi_clock_ns();
    slot->in_call = false;
    if (plan->step > 1)
        slot->host_ns += (double)(now - slot->mark_ns);
    bool is_last = plan->step == slot->plan.of;
    if (worked && plan->step > 1 && (slot->each || is_last))
        worked = record(timing->driver, slot);
    slot->mark_ns = rpi_clock_ns();
    if (!worked) {
        lose(slot);
        block->slot = NULL;
    } else if (is_last) {
        close_slot(timing, block);
    }
}

void rpi_timing_pass(struct rpi_timing_block *block)
{
    if (!block->slot || !block->slot->in_call)
        return;
    lose(block->slot);
    block->slot = NULL;
}

void rpi_timing_forget(struct rpi_timing *timing, const struct rpi_chooser *chooser)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct rpi_timing_slot *slot = &timing->slots[i];
        if (slot->state == RPI_TIMING_FREE || slot->chooser != chooser)
            continue;
        timing->waiting -= slot->state == RPI_TIMING_WAITING;
        slot->state = RPI_TIMING_FREE;
    }
}

void rpi_timing_finish(struct rpi_timing *timing)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        destroy_events(timing->driver, &timing->slots[i]);
    timing->waiting = 0;
}
