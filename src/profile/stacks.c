/* SPDX-License-Identifier: MIT
 *
 * A sweep along each thread: frames are pushed as they begin and popped once they have ended.
 * Frames of one thread nest, save for a nanosecond of rounding; one that has ended below the top
 * goes when it becomes the top.
 */
#include "profile/stacks.h"

#include "base/status.h"

#include <stdlib.h>

static int compare_moments(const void *left, const void *right)
{
    const struct rpi_moment *a = left, *b = right;
    if (a->lane != b->lane)
        return a->lane < b->lane ? -1 : 1;
    return (a->time > b->time) - (a->time < b->time);
}

struct stack {
    RPI_VEC(uint32_t);
};

static void pop_ended(const struct rpi_events *events, struct stack *stack, uint64_t time)
{
    while (stack->count && rpi_event_end(&events->data[stack->data[stack->count - 1]]) <= time)
        stack->count--;
}

static bool sweep(const struct rpi_events *events, const struct rpi_moments *moments,
                  struct stack *stack, rpi_stack_visit visit, void *user)
{
    size_t at = 0;
    uint32_t lane = UINT32_MAX;
    for (size_t m = 0; m < moments->count; m++) {
        const struct rpi_moment *moment = &moments->data[m];
        if (moment->lane != lane)
            stack->count = 0;
        lane = moment->lane;
        for (; at < events->count; at++) {
            const struct rpi_event *event = &events->data[at];
            if (event->lane > lane || (event->lane == lane && event->start > moment->time))
                break;
            if (event->lane < lane)
                continue;
            pop_ended(events, stack, event->start);
            if (!rpi_vec_push(stack, (uint32_t)at))
                return false;
        }
        pop_ended(events, stack, moment->time);
        if (!visit(user, moment, stack->data, stack->count))
            return false;
    }
    return true;
}

rp_status rpi_stacks_visit(const struct rpi_events *events, struct rpi_moments *moments,
                           rpi_stack_visit visit, void *user, struct rp_error *err)
{
    struct stack stack = {0};
    if (moments->count)
        qsort(moments->data, moments->count, sizeof *moments->data, compare_moments);
    bool ok = sweep(events, moments, &stack, visit, user);
    rpi_vec_finish(&stack);
    return ok ? RP_OK : rpi_error_host_memory(err, "advise", events->count);
}
