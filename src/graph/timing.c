/* SPDX-License-Identifier: MIT */
#include "graph/timing.h"

#include "base/clock.h"
#include "memory/arena.h"

#include <assert.h>

enum { SLOTS = sizeof((struct rpi_timing *)0)->slots / sizeof(struct rpi_timing_slot) };

static struct rpi_timing_slot *slot_at(struct rpi_timing *timing, uint32_t place)
{
    return &timing->slots[(timing->oldest + place) % SLOTS];
}

static void destroy_events(const struct rp_driver *driver, struct rpi_timing_slot *slot)
{
    if (slot->begin)
        driver->cuEventDestroy(slot->begin);
    if (slot->end)
        driver->cuEventDestroy(slot->end);
    slot->begin = slot->end = NULL;
}

static bool has_events(const struct rp_driver *driver, struct rpi_timing_slot *slot)
{
    if (slot->end)
        return true;
    if (driver->cuEventCreate(&slot->begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
        driver->cuEventCreate(&slot->end, CU_EVENT_DEFAULT) == CUDA_SUCCESS)
        return true;
    destroy_events(driver, slot);
    return false;
}

/* Reads the slot; false: the device has not passed it yet. */
static bool read_slot(const struct rp_driver *driver, struct rpi_timing_slot *slot)
{
    float ms = 0;
    CUresult result = driver->cuEventQuery(slot->end);
    if (result == CUDA_ERROR_NOT_READY)
        return false;
    if (result == CUDA_SUCCESS)
        result = driver->cuEventElapsedTime(&ms, slot->begin, slot->end);
    if (result == CUDA_SUCCESS)
        rpi_chooser_sample(slot->chooser, &slot->plan, slot->host_ns, (double)ms * 1e6);
    else
        destroy_events(driver, slot); /* whoever uses the slot next begins afresh */
    return true;
}

void rpi_timing_collect(struct rpi_timing *timing)
{
    if (!timing->busy)
        return;
    int mode = rpi_relax_begin(timing->driver);
    while (timing->busy && read_slot(timing->driver, slot_at(timing, 0))) {
        timing->oldest = (timing->oldest + 1) % SLOTS;
        timing->busy--;
    }
    rpi_relax_end(timing->driver, mode);
}

void rpi_timing_begin(struct rpi_timing *timing, struct rpi_chooser *chooser,
                      const struct rpi_plan_of_call *plan, CUstream stream)
{
    assert(!timing->open);
    if (!plan->measure || timing->busy == SLOTS)
        return;
    /* An event of a capture may not be asked for. */
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    struct rpi_timing_slot *slot = slot_at(timing, timing->busy);
    if (timing->driver->cuStreamIsCapturing(stream, &capturing) != CUDA_SUCCESS ||
        capturing != CU_STREAM_CAPTURE_STATUS_NONE || !has_events(timing->driver, slot) ||
        timing->driver->cuEventRecord(slot->begin, stream) != CUDA_SUCCESS)
        return;
    slot->chooser = chooser;
    slot->plan = *plan;
    slot->start_ns = rpi_clock_ns();
    timing->open = true;
}

void rpi_timing_end(struct rpi_timing *timing, CUstream stream, bool worked)
{
    if (!timing->open)
        return;
    struct rpi_timing_slot *slot = slot_at(timing, timing->busy);
    timing->open = false;
    slot->host_ns = (double)(rpi_clock_ns() - slot->start_ns);
    if (worked && timing->driver->cuEventRecord(slot->end, stream) == CUDA_SUCCESS)
        timing->busy++;
}

void rpi_timing_finish(struct rpi_timing *timing)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        destroy_events(timing->driver, &timing->slots[i]);
    timing->busy = 0;
}
