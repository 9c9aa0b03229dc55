/* SPDX-License-Identifier: MIT
 *
 * The choice between eager and graph, on a simulated clock: over 20,000 calls of seeded traces
 * (noisy, drifting, bimodal) it costs at most 2 % and 50 ms more than the best that never changes,
 * capture and trials included. Where a capture is dearer than that, the price counts on both sides.
 */
#include "policy/choose.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 20000, SEEDS = 5 };

/* ---- Random numbers ------------------------------------------------------------------------ */

static double uniform(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static double normal(uint64_t *state)
{
    double u = uniform(state), v = uniform(state);
    return sqrt(-2 * log(u + 1e-300)) * cos(2 * 3.14159265358979 * v);
}

/* ---- Traces -------------------------------------------------------------------------------- */

/* How the time of one way goes, beside its level. */
enum course {
    STEADY,
    RISING,  /* to twice the level */
    FALLING, /* to half of it */
    STEP_UP, /* twice the level from the middle on */
    BIMODAL, /* one call in five takes five times as long */
    RARE,    /* one call in twenty takes 6 times as long */
    PHASES   /* 500 calls at the level, 500 at twice that, and so on */
};

struct trace {
    const char *name;
    double eager_us, bind_us, copy_us; /* copy_us 0: copies are not to be had */
    enum course eager, graph;
    double noise;      /* of each call, a share */
    double host_share; /* of eager calls */
    double price_ms;
    double shared; /* slowness that comes and goes, and hits every way: a share */
};

static const struct trace traces[] = {
    {"launch-bound", 200, 40, 0, STEADY, STEADY, 0.1, 1, 10, 0},
    {"launch-bound, copies better", 200, 60, 45, STEADY, STEADY, 0.1, 1, 10, 0},
    {"graph 4 times slower", 100, 400, 420, STEADY, STEADY, 0.1, 1, 10, 0},
    {"graph 5 % slower", 300, 315, 0, STEADY, STEADY, 0.1, 0.4, 10, 0},
    {"graph 5 % faster", 300, 285, 0, STEADY, STEADY, 0.1, 0.9, 10, 0},
    {"no difference", 300, 300, 301, STEADY, STEADY, 0.2, 0.5, 10, 0},
    {"noisy", 200, 150, 170, STEADY, STEADY, 0.4, 1, 10, 0.3},
    {"noisy, graph slower", 150, 200, 220, STEADY, STEADY, 0.5, 1, 10, 0.3},
    {"graph gets dearer", 150, 100, 0, STEADY, RISING, 0.1, 1, 10, 0},
    {"eager gets cheaper", 200, 120, 0, FALLING, STEADY, 0.1, 1, 10, 0},
    {"eager gets dearer", 100, 130, 0, STEP_UP, STEADY, 0.1, 1, 10, 0},
    {"graph gets dearer at once", 150, 100, 110, STEADY, STEP_UP, 0.1, 1, 10, 0},
    {"bimodal graph", 200, 150, 0, STEADY, BIMODAL, 0.1, 1, 10, 0},
    {"bimodal eager", 100, 150, 0, BIMODAL, STEADY, 0.1, 1, 10, 0},
    {"rare and dear", 100, 90, 0, STEADY, RARE, 0.1, 1, 10, 0},
    {"phases", 100, 140, 0, PHASES, STEADY, 0.1, 1, 10, 0},
    {"long and device-bound", 40000, 40400, 40800, STEADY, STEADY, 0.02, 0.1, 400, 0},
    {"long, graph faster", 30000, 24000, 0, STEADY, STEADY, 0.05, 1, 300, 0},
    {"long, graph slower", 10000, 40000, 0, STEADY, STEADY, 0.05, 1, 200, 0},
    {"graph 3 times slower", 316, 964, 0, STEADY, STEADY, 0.02, 0.2, 75, 0},
    {"noisy, graph 4 times slower", 250, 1000, 0, STEADY, STEADY, 0.3, 0.9, 30, 0.3},
    {"long launches", 4400, 940, 0, STEADY, STEADY, 0.2, 1, 150, 0},
    {"tiny, shared machine", 10, 6, 0, STEADY, STEADY, 0.2, 1, 5, 0.3},
    {"tiny", 8, 4, 9, STEADY, STEADY, 0.2, 1, 5, 0},
    {"tiny, graph slower", 4, 9, 11, STEADY, STEADY, 0.2, 1, 5, 0},
};

static double course_factor(enum course course, size_t call, uint64_t *state)
{
    double part = (double)call / CALLS;
    switch (course) {
    case STEADY:
        return 1;
    case RISING:
        return 1 + part;
    case FALLING:
        return 1 - part / 2;
    case STEP_UP:
        return part < 0.5 ? 1 : 2;
    case BIMODAL:
        return uniform(state) < 0.2 ? 5 : 1;
    case RARE:
        return uniform(state) < 0.05 ? 6 : 1;
    case PHASES:
        return call / 500 % 2 ? 2 : 1;
    }
    return 1;
}

/* What each way would take at this call, in nanoseconds. */
static void draw(const struct trace *trace, size_t call, uint64_t *state, double out_ns[RPI_WAYS])
{
    const double levels[RPI_WAYS] = {trace->eager_us, trace->bind_us, trace->copy_us};
    double pace = 1 + trace->shared * (sin((double)call / 700) > 0);
    double graph = course_factor(trace->graph, call, state);
    for (int way = 0; way < RPI_WAYS; way++) {
        double factor = way == RPI_WAY_EAGER ? course_factor(trace->eager, call, state) : graph;
        double noise = exp(trace->noise * normal(state));
        double hiccup = uniform(state) < 0.001 ? 10 : 1;
        out_ns[way] = levels[way] * 1e3 * factor * noise * hiccup * pace;
    }
}

struct result {
    double fixed_ns[RPI_WAYS], auto_ns;
    uint64_t ways[RPI_WAYS], measured;
    struct rpi_chooser chooser;
};

/* A block's sample comes `late` calls after its last call. */
struct pending {
    struct rpi_plan_of_call plan;
    double host_ns, device_ns;
    size_t due;
};

/* Notes a call of a block, and gives what is due by now. */
static void give_samples(struct result *r, struct pending *block, struct pending *pending,
                         const struct rpi_plan_of_call *plan, double host_ns, double device_ns,
                         size_t now, size_t late)
{
    if (plan->step == 1)
        *block = (struct pending){.plan = *plan};
    if (plan->step > 1) {
        block->host_ns += host_ns / RPI_MEASURED;
        block->device_ns += device_ns / RPI_MEASURED;
        r->measured++;
    }
    if (plan->step == RPI_BLOCK) {
        size_t i = 0;
        while (pending[i].due)
            i++;
        pending[i] = *block;
        pending[i].due = now + late;
    }
    for (size_t i = 0; i < 64; i++) {
        if (!pending[i].due || pending[i].due > now)
            continue;
        rpi_chooser_sample(&r->chooser, &pending[i].plan, pending[i].host_ns, pending[i].device_ns);
        memmove(&pending[i], &pending[i + 1], (63 - i) * sizeof *pending);
        pending[63].due = 0;
        i--;
    }
}

static void simulate(const struct trace *trace, uint64_t seed, size_t late, struct result *r)
{
    struct pending block = {.due = 0}, pending[64] = {{.due = 0}};
    uint64_t state = seed * 1000003;
    memset(r, 0, sizeof *r);
    rpi_chooser_init(&r->chooser, trace->price_ms * 1e6 / 2); /* expected too low */
    for (size_t call = 0; call < CALLS; call++) {
        double ns[RPI_WAYS];
        draw(trace, call, &state, ns);
        struct rpi_plan_of_call plan = rpi_chooser_next(&r->chooser);
        if (plan.capture) {
            r->auto_ns += trace->price_ms * 1e6;
            rpi_chooser_captured(&r->chooser, trace->price_ms * 1e6, true, trace->copy_us > 0);
            plan = rpi_chooser_next(&r->chooser);
            assert_false(plan.capture);
        }
        for (int way = 0; way < RPI_WAYS; way++)
            r->fixed_ns[way] += ns[way];
        r->auto_ns += ns[plan.way] + (plan.step > 1 ? 3000 : 0); /* two events and bookkeeping */
        r->ways[plan.way]++;
        double host = plan.way == RPI_WAY_EAGER ? trace->host_share : 0.1;
        give_samples(r, &block, pending, &plan, host * ns[plan.way], ns[plan.way], call + 1, late);
    }
}

/* Over what is allowed; above 1 it is too much. */
static double regret_of(const struct trace *trace, uint64_t seed, size_t late, struct result *r)
{
    simulate(trace, seed, late, r);
    /* A price beyond what the bound leaves room for is the graph's too. */
    double price = trace->price_ms > 40 ? trace->price_ms * 1e6 : 0;
    double best = r->fixed_ns[RPI_WAY_EAGER];
    for (int way = 1; way < RPI_WAYS; way++)
        if ((way == RPI_WAY_BIND || trace->copy_us > 0) && r->fixed_ns[way] + price < best)
            best = r->fixed_ns[way] + price;
    return (r->auto_ns - best) / (0.02 * best + 50e6);
}

static void regret_is_bounded(void **state)
{
    (void)state;
    /* A device that is busy may be a thousand calls behind. */
    static const size_t lateness[] = {0, 10, 20, 600, 1200};
    bool bounded = true;
    for (size_t t = 0; t < sizeof traces / sizeof *traces; t++) {
        double worst = -INFINITY;
        struct result r;
        for (uint64_t seed = 1; seed <= SEEDS; seed++)
            for (size_t i = 0; i < sizeof lateness / sizeof *lateness; i++)
                if (lateness[i] < 100 || traces[t].host_share <= 0.5)
                    worst = fmax(worst, regret_of(&traces[t], seed, lateness[i], &r));
        if (worst > 1)
            print_error("%s: the regret is %.2f of what is allowed\n", traces[t].name, worst);
        bounded &= worst <= 1;
    }
    assert_true(bounded);
}

/* What is settled is told: which way, and why. */
static void the_choice_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *trace;
        enum rpi_way way;
        enum rpi_reason reason;
    } wanted[] = {
        {"launch-bound", RPI_WAY_BIND, RPI_REASON_FASTER},
        {"launch-bound, copies better", RPI_WAY_COPY, RPI_REASON_FASTER},
        {"long, graph slower", RPI_WAY_EAGER, RPI_REASON_FASTER},
        {"graph 5 % slower", RPI_WAY_EAGER, RPI_REASON_FASTER},
        {"tiny, graph slower", RPI_WAY_EAGER, RPI_REASON_FASTER},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        size_t t = 0;
        struct result r;
        while (strcmp(traces[t].name, wanted[i].trace) != 0)
            t++;
        simulate(&traces[t], 2, 0, &r);
        assert_int_equal(r.chooser.incumbent, wanted[i].way);
        assert_int_equal(rpi_chooser_reason(&r.chooser), wanted[i].reason);
        assert_true(r.measured < CALLS / 6); /* knowing is a small part of the work */
    }
}

/* A way that takes three times as long is known to be worse after three rounds, and what it may
 * cost from then on is next to nothing. */
static void slow_ways_are_given_up(void **state)
{
    (void)state;
    struct rpi_chooser chooser;
    rpi_chooser_init(&chooser, 1e6);
    while (!rpi_chooser_next(&chooser).capture)
        rpi_chooser_sample(&chooser, &(struct rpi_plan_of_call){.step = RPI_BLOCK}, 1e5, 3e5);
    rpi_chooser_captured(&chooser, 1e6, true, false);
    int rounds = 0, decided = 0;
    for (int call = 1; call <= CALLS; call++) {
        struct rpi_plan_of_call plan = rpi_chooser_next(&chooser);
        bool slow = plan.way == RPI_WAY_BIND;
        if (plan.step == RPI_BLOCK)
            rpi_chooser_sample(&chooser, &plan, 1e5, slow ? 9e5 : 3e5);
        rounds += slow && plan.step == 1;
        if (!decided && rpi_chooser_reason(&chooser) == RPI_REASON_FASTER)
            decided = rounds;
    }
    assert_int_equal(decided, 3);
    assert_true(rounds > 3); /* it may have become faster */
    assert_true(rounds * RPI_BLOCK * 6e5 <= RPI_TRIAL_NS + RPI_HOPELESS_SHARE * chooser.spent_ns);
}

/* Calls `count` times eagerly, a sample each block. */
static void call_eagerly(struct rpi_chooser *chooser, int count, double host_ns, double device_ns)
{
    for (int i = 0; i < count; i++) {
        struct rpi_plan_of_call plan = rpi_chooser_next(chooser);
        assert_false(plan.capture);
        assert_int_equal(plan.way, RPI_WAY_EAGER);
        if (plan.step == RPI_BLOCK)
            rpi_chooser_sample(chooser, &plan, host_ns, device_ns);
    }
}

/* A dear capture waits until the calls may pay for it: soon where launches take the time, late
 * where the device is busy. */
static void a_capture_waits_for_its_price(void **state)
{
    (void)state;
    struct rpi_chooser chooser;
    rpi_chooser_init(&chooser, 1e9);
    assert_int_equal(rpi_chooser_reason(&chooser), RPI_REASON_NOTHING_KNOWN);
    call_eagerly(&chooser, 1900, 1e6, 1e6); /* 1.9 s of launching: half of it is below the price */
    assert_int_equal(rpi_chooser_reason(&chooser), RPI_REASON_PRICE);
    call_eagerly(&chooser, 30, 1e6, 1e6);
    for (int i = 0; i < 200 && !rpi_chooser_next(&chooser).capture; i++)
        ;
    assert_true(rpi_chooser_next(&chooser).capture);
    rpi_chooser_init(&chooser, 1e9);
    call_eagerly(&chooser, 20000, 1e5, 1e6); /* 20 s, but the device has to work anyway */
    assert_int_equal(rpi_chooser_reason(&chooser), RPI_REASON_PRICE);
    rpi_chooser_init(&chooser, 1e6);
    call_eagerly(&chooser, 2 * RPI_BLOCK, 1e6, 1e6);
    assert_true(rpi_chooser_next(&chooser).capture);
}

/* What cannot be captured is tried once, and again only when that has become cheap. */
static void a_refusal_is_remembered(void **state)
{
    (void)state;
    struct rpi_chooser chooser;
    rpi_chooser_init(&chooser, 1e6);
    call_eagerly(&chooser, 2 * RPI_BLOCK, 1e6, 1e6);
    assert_true(rpi_chooser_next(&chooser).capture);
    rpi_chooser_refused(&chooser, 1e6);
    call_eagerly(&chooser, 1000, 1e6, 1e6);
    assert_int_equal(rpi_chooser_reason(&chooser), RPI_REASON_REFUSED);
    int calls = 0;
    while (!rpi_chooser_next(&chooser).capture && calls < 1000)
        calls++;
    assert_true(calls > 0 && calls < 200);
}

static void a_way_can_be_forced(void **state)
{
    (void)state;
    struct rpi_chooser chooser;
    rpi_chooser_init(&chooser, 1e9);
    rpi_chooser_force(&chooser, RPI_WAY_BIND);
    assert_true(rpi_chooser_next(&chooser).capture);
    rpi_chooser_captured(&chooser, 1e9, false, true);
    struct rpi_plan_of_call plan = rpi_chooser_next(&chooser);
    assert_true(plan.way == RPI_WAY_COPY && !plan.capture && !plan.step); /* none binds */
    assert_int_equal(rpi_chooser_reason(&chooser), RPI_REASON_FORCED);
    rpi_chooser_init(&chooser, 0);
    rpi_chooser_force(&chooser, RPI_WAY_EAGER);
    for (int i = 0; i < 100; i++) {
        plan = rpi_chooser_next(&chooser);
        assert_true(plan.way == RPI_WAY_EAGER && !plan.capture && !plan.step);
    }
}

/* The sums by hand: 9 values and one that is no call's. */
static void a_window_reads_right(void **state)
{
    (void)state;
    struct rpi_measure m = {.held = 0};
    assert_int_equal(rpi_measure_read(&m).values, 0);
    rpi_measure_add(&m, 5);
    assert_true(rpi_measure_read(&m).mean == 5 && rpi_measure_read(&m).error == 0);
    for (int i = 1; i <= 8; i++)
        rpi_measure_add(&m, i);
    rpi_measure_add(&m, 1e6);
    struct rpi_measured read = rpi_measure_read(&m);
    assert_int_equal(read.values, 10);
    assert_true(fabs(read.median - 5) < 1e-9);
    assert_true(fabs(read.mean - 41.0 / 9) < 1e-9); /* without the one that is far off */
    assert_true(fabs(rpi_measure_newest(&m, 3).mean - (7 + 8 + 160) / 3.0) < 1e-9);
    for (int i = 0; i < 200; i++)
        rpi_measure_add(&m, i % 2);
    read = rpi_measure_read(&m);
    assert_int_equal(read.values, RPI_WINDOW);
    assert_true(fabs(read.mean - 0.5) < 0.01 && fabs(read.error - 0.0629) < 0.001);
    rpi_measure_keep(&m, 3);
    assert_int_equal(rpi_measure_read(&m).values, 3);
    assert_int_equal(m.count, 210);
}

/* Calls that are made without asking are as many as nothing is measured in, and count. */
static void rests_are_counted(void **state)
{
    (void)state;
    struct rpi_chooser chooser;
    rpi_chooser_init(&chooser, 1e9); /* too dear to be tried */
    call_eagerly(&chooser, 2 * RPI_BLOCK, 1e4, 1e5);
    uint64_t rested = 0, asked = 0;
    while (chooser.calls < CALLS) {
        uint32_t rest = rpi_chooser_rest(&chooser, 255);
        rested += rest;
        if (rest)
            continue;
        call_eagerly(&chooser, 1, 1e4, 1e5);
        asked++;
    }
    assert_int_equal(rested + asked + 2 * RPI_BLOCK, chooser.calls);
    assert_true(rested > 4 * asked && asked > CALLS / 50);
    assert_true(fabs(chooser.spent_ns / (1e5 * (double)chooser.calls) - 1) < 0.01);
    rpi_chooser_force(&chooser, RPI_WAY_EAGER);
    assert_int_equal(rpi_chooser_rest(&chooser, 255), 255);
}

/* A block whose sample never comes ends its round, and the next one decides. */
static void lost_blocks_are_made_up_for(void **state)
{
    (void)state;
    struct rpi_chooser chooser;
    rpi_chooser_init(&chooser, 1e6);
    call_eagerly(&chooser, 2 * RPI_BLOCK, 1e6, 1e6);
    assert_true(rpi_chooser_next(&chooser).capture);
    rpi_chooser_captured(&chooser, 1e6, true, false);
    uint64_t state_of_noise = 1;
    for (int call = 0; call < 2000; call++) {
        struct rpi_plan_of_call plan = rpi_chooser_next(&chooser);
        if (plan.step != RPI_BLOCK)
            continue;
        if (uniform(&state_of_noise) < 0.5)
            rpi_chooser_lost(&chooser, &plan);
        else
            rpi_chooser_sample(&chooser, &plan, 0, plan.way == RPI_WAY_EAGER ? 1e6 : 2e5);
    }
    assert_int_equal(chooser.incumbent, RPI_WAY_BIND);
    assert_int_equal(rpi_chooser_reason(&chooser), RPI_REASON_FASTER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_reads_right),
        cmocka_unit_test(regret_is_bounded),
        cmocka_unit_test(the_choice_is_told),
        cmocka_unit_test(a_capture_waits_for_its_price),
        cmocka_unit_test(a_refusal_is_remembered),
        cmocka_unit_test(a_way_can_be_forced),
        cmocka_unit_test(slow_ways_are_given_up),
        cmocka_unit_test(rests_are_counted),
        cmocka_unit_test(lost_blocks_are_made_up_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
