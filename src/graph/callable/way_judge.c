/* SPDX-License-Identifier: MIT */
#include "graph/callable/way_judge.h"

#include "base/hostmem.h"
#include "base/refuse.h"
#include "base/sized.h"
#include "graph/objects/device_context.h"

#include <assert.h>
#include <string.h>

/* ---- Judges -------------------------------------------------------------------------------- */

void rpi_way_judge_init(struct rp_way_judge *judge, struct rp_device *device)
{
    memset(judge, 0, sizeof *judge);
    judge->device = device;
    judge->timing.driver = device->driver;
}

void rpi_way_judge_finish(struct rp_way_judge *judge)
{
    bool pushed = rpi_device_push_to_release(judge->device);
    rpi_timing_finish(&judge->timing);
    if (pushed)
        rp_device_pop(judge->device);
}

rp_status rp_way_judge_create(struct rp_device *device, struct rp_way_judge **out_judge,
                              struct rp_error *err)
{
    if (rpi_is_forked() || !device || !out_judge)
        return rpi_refuse(err, "rp_way_judge_create", !device ? "device" : "out_judge");
    struct rp_way_judge *judge = rpi_malloc(sizeof *judge);
    if (!judge)
        return rpi_error_host_memory(err, "rp_way_judge_create", sizeof *judge);
    rpi_way_judge_init(judge, device);
    *out_judge = judge;
    return RP_OK;
}

void rp_way_judge_destroy(struct rp_way_judge *judge)
{
    if (!judge || rpi_is_forked())
        return;
    rpi_way_judge_finish(judge);
    rpi_free(judge);
}

/* ---- Choices ------------------------------------------------------------------------------- */

/* What a capture will take, as far as those of other shapes tell; 0: there were none. */
static double expected_price_ns(const struct rp_way_judge *judge)
{
    return judge->captured ? judge->capture_ms / (double)judge->captured * 1e6 : 0;
}

rp_status rp_way_choice_create(struct rp_way_judge *judge, struct rp_way_choice **out_choice,
                               struct rp_error *err)
{
    if (rpi_is_forked() || !judge || !out_choice)
        return rpi_refuse(err, "rp_way_choice_create", !judge ? "judge" : "out_choice");
    struct rp_way_choice *choice = rpi_calloc(1, sizeof *choice);
    if (!choice)
        return rpi_error_host_memory(err, "rp_way_choice_create", sizeof *choice);
    choice->judge = judge;
    rpi_chooser_init(&choice->chooser, expected_price_ns(judge));
    *out_choice = choice;
    return RP_OK;
}

void rp_way_choice_destroy(struct rp_way_choice *choice)
{
    if (!choice || rpi_is_forked())
        return;
    rpi_timing_forget(&choice->judge->timing, &choice->chooser);
    rpi_free(choice);
}

void rp_way_choice_captured(struct rp_way_choice *choice, int worked, double ms)
{
    if (rpi_is_forked() || !choice)
        return;
    choice->judge->captured += worked != 0;
    choice->judge->capture_ms += ms;
    choice->capture_ms += ms;
    if (worked)
        rpi_chooser_captured(&choice->chooser, ms * 1e6);
    else
        rpi_chooser_refused(&choice->chooser, ms * 1e6);
}

/* ---- Calls --------------------------------------------------------------------------------- */

static struct rpi_plan_of_call plan_of(const struct rp_way_turn *turn)
{
    assert(turn->step);
    enum rpi_way way = turn->way == RP_WAY_GRAPH ? RPI_WAY_GRAPH : RPI_WAY_EAGER;
    return (struct rpi_plan_of_call){.way = way, .step = turn->step, .round = turn->round};
}

/* Events need the context; without it nothing is measured. */
static void collect(struct rp_way_judge *judge)
{
    bool pushed = false;
    if (!judge->timing.waiting || rpi_device_enter(judge->device, &pushed, NULL) != RP_OK)
        return;
    rpi_timing_collect(&judge->timing);
    if (pushed)
        rp_device_pop(judge->device);
}

static void begin_measuring(struct rp_way_choice *choice, const struct rpi_plan_of_call *plan,
                            struct CUstream_st *stream, double ahead_us)
{
    assert(plan->step);
    bool pushed = false;
    if (rpi_device_enter(choice->judge->device, &pushed, NULL) != RP_OK) {
        rpi_chooser_lost(&choice->chooser, plan);
        return;
    }
    rpi_timing_begin(&choice->judge->timing, &choice->block, &choice->chooser, plan, stream,
                     ahead_us * 1e3);
    if (pushed)
        rp_device_pop(choice->judge->device);
}

void rp_way_choice_begin(struct rp_way_choice *choice, struct CUstream_st *stream, double ahead_us,
                         struct rp_way_turn *out_turn)
{
    if (rpi_is_forked() || !choice || !out_turn)
        return;
    collect(choice->judge);
    rpi_chooser_looked(&choice->chooser, ahead_us * 1e3);
    struct rpi_plan_of_call plan = rpi_chooser_next(&choice->chooser);
    enum rp_way way = plan.way == RPI_WAY_EAGER ? RP_WAY_EAGER : RP_WAY_GRAPH;
    *out_turn = (struct rp_way_turn){
        .way = plan.capture ? RP_WAY_CAPTURE : way, .step = plan.step, .round = plan.round};
    if (plan.step)
        begin_measuring(choice, &plan, stream, ahead_us);
    else
        rpi_timing_pass(&choice->block);
}

void rp_way_choice_end(struct rp_way_choice *choice, const struct rp_way_turn *turn, int worked)
{
    if (rpi_is_forked() || !choice || !turn)
        return;
    if (!turn->step)
        return;
    struct rpi_plan_of_call plan = plan_of(turn);
    bool pushed = false;
    bool entered = rpi_device_enter(choice->judge->device, &pushed, NULL) == RP_OK;
    rpi_timing_end(&choice->judge->timing, &choice->block, &plan, worked && entered);
    if (pushed)
        rp_device_pop(choice->judge->device);
}

uint32_t rp_way_choice_rest(struct rp_way_choice *choice, uint32_t most)
{
    if (rpi_is_forked() || !choice)
        return 0;
    collect(choice->judge);
    return rpi_chooser_rest(&choice->chooser, most);
}

void rp_way_choice_info(const struct rp_way_choice *choice, struct rp_way_choice_info *out_info)
{
    if (rpi_is_forked() || !choice || !out_info) {
        rpi_give_nothing(out_info);
        return;
    }
    const struct rpi_chooser *chooser = &choice->chooser;
    enum rpi_reason reason = rpi_chooser_reason(chooser);
    struct rp_way_choice_info info = {
        .way = chooser->incumbent == RPI_WAY_EAGER ? RP_WAY_EAGER : RP_WAY_GRAPH,
        .is_settled = reason == RPI_REASON_FASTER || reason == RPI_REASON_NO_DIFFERENCE,
        .choice = rpi_way_name(chooser->incumbent),
        .reason = rpi_reason_text(reason),
        .eager_us = chooser->mean_ns[RPI_WAY_EAGER] * 1e-3,
        .graph_us = chooser->mean_ns[RPI_WAY_GRAPH] * 1e-3,
        .calls = chooser->calls_made,
        .measured_calls = chooser->measured,
        .switches = chooser->switches,
        .drifts = chooser->drifts,
        .capture_ms = choice->capture_ms,
        .trial_ms = chooser->lost_ns * 1e-6};
    rpi_give(out_info, &info, sizeof info, __func__);
}
