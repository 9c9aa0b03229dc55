/* SPDX-License-Identifier: MIT */
#include "policy/choose.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    FIRST_SPOTS = 2,          /* blocks of eager calls that follow each other at the start */
    FEW_ROUNDS = 3,           /* below these no test is made */
    SOME_ROUNDS = 8,          /* below these the next one comes at once */
    FULL_ROUNDS = RPI_WINDOW, /* from these on the mean is believed */
    NEWEST = 4,               /* samples that are compared with those before them */
    FIRST_GAP = 16,
    MOST_SELDOM = 1 << 13, /* calls between blocks of the incumbent, where asking is dear */
    MOST_LOST = 9,         /* blocks lost in a row that make the wait for the next one longer */
    PATIENCE = 1 << 16, /* calls until a round whose samples do not come is given up: a device may
                           be a thousand calls behind */
    NEVER = UINT32_MAX
};
static const double LAUNCH_BOUND = 0.7; /* share of a call that the host needs */
static const double BET_LAUNCH_BOUND = 0.5, BET_DEVICE_BOUND = 0.01;
static const double DRIFT = 0.1; /* change of the mean that counts, beside the standard errors */
static const double WORTH = 0.005;
static const double MUCH_LESS = 0.5; /* of the host's time */

void rpi_chooser_init(struct rpi_chooser *chooser, double price_ns)
{
    memset(chooser, 0, sizeof *chooser);
    chooser->price_ns = price_ns;
    chooser->host_share = 1;
    chooser->incumbent = RPI_WAY_EAGER;
}

static enum rpi_way challenger_of(const struct rpi_chooser *chooser)
{
    return chooser->incumbent == RPI_WAY_EAGER ? RPI_WAY_GRAPH : RPI_WAY_EAGER;
}

static double incumbent_ns(const struct rpi_chooser *chooser)
{
    return chooser->mean_ns[chooser->incumbent];
}

/* A whole number of calls, at least one. */
static uint32_t calls_in(double calls)
{
    assert(!isnan(calls));
    return (uint32_t)fmin(fmax(ceil(calls), 1), RPI_MOST_GAP);
}

/* Calls of a block of such that take so long. Nothing known, 0: the first look is a short one. */
static uint32_t length_of_block(double ns)
{
    return ns > 0 && ns <= RPI_DEAR_NS ? RPI_BLOCK : RPI_DEAR_BLOCK;
}

/* Both blocks of a round have the same. */
static uint32_t length_in_round(const struct rpi_chooser *chooser)
{
    return length_of_block(fmax(chooser->mean_ns[RPI_WAY_EAGER], chooser->mean_ns[RPI_WAY_GRAPH]));
}

/* ---- Comparing ----------------------------------------------------------------------------- */

/* The variance of one block. */
static double variance_of(const struct rpi_chooser *chooser, enum rpi_way way)
{
    struct rpi_measured calls = rpi_measure_read(&chooser->calls[way]);
    return calls.values > 1 ? calls.error * calls.error * (double)(calls.values - 1) : 0;
}

/* How far the difference may lie from what was measured. A few rounds may all have missed a mode
 * that the calls are known to have, so the calls' variance counts too. */
static double doubt_of(const struct rpi_chooser *chooser, const struct rpi_measured *difference)
{
    assert(difference->values);
    double rounds = (double)difference->values;
    double known = variance_of(chooser, RPI_WAY_EAGER) + variance_of(chooser, RPI_WAY_GRAPH);
    double missed = difference->values < FULL_ROUNDS ? sqrt(known / rounds) : 0;
    double error = fmax(difference->error, missed);
    double student = 1 + 4 / (rounds + 1);
    return RPI_CONFIDENCE * student * error;
}

/* Is the difference below zero or above, by as much as it has to be? */
static bool is_certain(const struct rpi_chooser *chooser, const struct rpi_measured *difference)
{
    return fabs(difference->mean) > doubt_of(chooser, difference);
}

/* Is the challenger hardly dearer, if at all, as sure as it has to be? */
static bool is_no_dearer(const struct rpi_chooser *chooser, const struct rpi_measured *difference)
{
    double hardly_ns = WORTH * incumbent_ns(chooser);
    if (difference->values >= FULL_ROUNDS)
        return difference->mean < hardly_ns / 2;
    return difference->values >= SOME_ROUNDS &&
           difference->mean + doubt_of(chooser, difference) < hardly_ns;
}

/* Would the challenger leave much of the host's time free? It is waited for where the device has
 * nothing to do: behind each call that waits for the device. */
static bool frees_the_host(const struct rpi_chooser *chooser)
{
    return challenger_of(chooser) == RPI_WAY_GRAPH &&
           chooser->host_ns[RPI_WAY_GRAPH] < MUCH_LESS * chooser->host_ns[RPI_WAY_EAGER];
}

/* Does each of the newest calls of the one way take so long that no test is needed? */
static bool is_far(const struct rpi_chooser *chooser, enum rpi_way dear, enum rpi_way cheap)
{
    return chooser->calls[dear].held > 1 && chooser->calls[cheap].held &&
           rpi_measure_least(&chooser->calls[dear], NEWEST) > RPI_FAR * chooser->mean_ns[cheap];
}

/* Is the challenger known to take at least twice as long as the incumbent? Few rounds tell that. */
static bool is_hopeless(const struct rpi_chooser *chooser)
{
    if (is_far(chooser, challenger_of(chooser), chooser->incumbent))
        return true;
    struct rpi_measured d = rpi_measure_read(&chooser->differences);
    return d.values >= FEW_ROUNDS && d.mean > incumbent_ns(chooser) && is_certain(chooser, &d);
}

/* Is the challenger cheaper, as sure as it has to be? */
static bool is_cheaper(const struct rpi_chooser *chooser, const struct rpi_measured *difference)
{
    if (difference->mean >= 0)
        return false;
    if (is_far(chooser, chooser->incumbent, challenger_of(chooser)))
        return true;
    if (difference->values >= FEW_ROUNDS && is_certain(chooser, difference))
        return true;
    return difference->values >= FULL_ROUNDS && -difference->mean > WORTH * incumbent_ns(chooser);
}

static bool wins(const struct rpi_chooser *chooser)
{
    struct rpi_measured d = rpi_measure_read(&chooser->differences);
    return is_cheaper(chooser, &d) || (is_no_dearer(chooser, &d) && frees_the_host(chooser));
}

static bool is_settled(const struct rpi_chooser *chooser)
{
    struct rpi_measured d = rpi_measure_read(&chooser->differences);
    return d.values >= FULL_ROUNDS || is_hopeless(chooser) ||
           (d.values >= SOME_ROUNDS && is_certain(chooser, &d));
}

/* ---- Whether to capture -------------------------------------------------------------------- */

static double expected_price_ns(const struct rpi_chooser *chooser)
{
    if (chooser->price_ns > 0)
        return chooser->price_ns;
    double host_ns = chooser->host_share * chooser->mean_ns[RPI_WAY_EAGER];
    return RPI_PRICE_NS + RPI_PRICE_RUNS * host_ns;
}

/* In how many calls a capture is to be tried, as far as is known now. */
static uint32_t calls_until_capture(const struct rpi_chooser *chooser)
{
    double mean_ns = chooser->mean_ns[RPI_WAY_EAGER];
    if (chooser->has_graph || mean_ns <= 0)
        return NEVER;
    bool launch_bound = chooser->host_share >= LAUNCH_BOUND;
    double bet = launch_bound ? BET_LAUNCH_BOUND : BET_DEVICE_BOUND;
    double worth_ns = (expected_price_ns(chooser) - RPI_CAPTURE_NS) / bet;
    double missing_ns = fmax(worth_ns, chooser->retry_after_ns) - chooser->spent_ns;
    return missing_ns > 0 ? calls_in(missing_ns / mean_ns) : 0;
}

void rpi_chooser_captured(struct rpi_chooser *chooser, double price_ns)
{
    chooser->price_ns = price_ns;
    chooser->captures++;
    chooser->has_graph = true;
    chooser->gap = chooser->wait = chooser->lost_blocks = 0;
    chooser->spot_left = 0; /* its calls do not follow each other any more */
}

void rpi_chooser_refused(struct rpi_chooser *chooser, double price_ns)
{
    enum { LONGER = 100 };
    chooser->price_ns = price_ns;
    chooser->captures++;
    chooser->spot_left = 0;
    double spent = chooser->spent_ns + price_ns;
    chooser->retry_after_ns = spent * LONGER;
}

/* ---- Rounds -------------------------------------------------------------------------------- */

/* What is to be expected of a call: of few samples one may be the machine's doing. */
static double typical_ns(const struct rpi_chooser *chooser, enum rpi_way way)
{
    struct rpi_measured calls = rpi_measure_read(&chooser->calls[way]);
    return calls.values < SOME_ROUNDS ? fmin(calls.median, calls.mean) : calls.mean;
}

/* What a round loses, by what is known of both ways, as one round's own difference is noise, half
 * of which would count as loss; 0 where the challenger is not known. */
static double loss_of_round(const struct rpi_chooser *chooser)
{
    double challenger_ns = typical_ns(chooser, challenger_of(chooser));
    double more_ns = challenger_ns - typical_ns(chooser, chooser->incumbent);
    return length_in_round(chooser) * fmax(more_ns, 0);
}

/* In how many calls a round is within what rounds may lose. One or two samples do not tell what
 * that is, unless both are far off. */
static uint32_t calls_until_affordable(const struct rpi_chooser *chooser)
{
    enum rpi_way way = challenger_of(chooser);
    if (chooser->calls[way].count < FEW_ROUNDS && !is_far(chooser, way, chooser->incumbent))
        return 0;
    double share = is_hopeless(chooser) ? RPI_HOPELESS_SHARE : RPI_TRIAL_SHARE;
    double loss = loss_of_round(chooser);
    double missing = chooser->lost_ns + loss - RPI_TRIAL_NS - share * chooser->spent_ns;
    if (loss <= 0 || missing <= 0)
        return 0;
    uint32_t calls = calls_in(missing / (share * incumbent_ns(chooser)));
    return calls > FIRST_GAP ? calls : FIRST_GAP;
}

static void begin_round(struct rpi_chooser *chooser)
{
    assert(chooser->has_graph && !chooser->round_left && !chooser->spot_left);
    chooser->wait = calls_until_affordable(chooser);
    if (chooser->wait)
        return;
    chooser->block = length_in_round(chooser);
    chooser->round_left = 2 * chooser->block;
    chooser->round++;
    chooser->is_awaited = true;
    chooser->wait = PATIENCE; /* until its last sample has come */
    chooser->round_ns[RPI_WAY_EAGER] = chooser->round_ns[RPI_WAY_GRAPH] = 0;
}

/* The differences were from the old incumbent. What the new one won by is not kept: few rounds may
 * all have missed a mode of its calls. */
static void take_over(struct rpi_chooser *chooser)
{
    assert(wins(chooser));
    struct rpi_measured d = rpi_measure_read(&chooser->differences);
    chooser->won = is_cheaper(chooser, &d);
    chooser->incumbent = challenger_of(chooser);
    rpi_measure_keep(&chooser->differences, 0);
    chooser->switches++;
    chooser->gap = chooser->spot_left = 0;
}

/* After the last sample of a round. */
static void end_round(struct rpi_chooser *chooser)
{
    assert(chooser->is_awaited && chooser->round_ns[RPI_WAY_EAGER] > 0 &&
           chooser->round_ns[RPI_WAY_GRAPH] > 0);
    double *ns = chooser->round_ns;
    rpi_measure_add(&chooser->differences, ns[challenger_of(chooser)] - ns[chooser->incumbent]);
    ns[RPI_WAY_EAGER] = ns[RPI_WAY_GRAPH] = 0;
    chooser->lost_ns += loss_of_round(chooser);
    chooser->lost_blocks = 0;
    chooser->is_awaited = false;
    if (wins(chooser))
        take_over(chooser);
    else if (is_settled(chooser))
        chooser->gap = chooser->gap ? 2 * chooser->gap : FIRST_GAP;
    else
        chooser->gap = 0;
    if (chooser->gap > RPI_MOST_GAP)
        chooser->gap = RPI_MOST_GAP;
    chooser->wait = chooser->gap;
}

/* ---- Calls --------------------------------------------------------------------------------- */

/* Calls between blocks of the incumbent outside rounds: more of them as rounds become seldom. */
static uint32_t gap_of_spots(const struct rpi_chooser *chooser)
{
    uint32_t gap = chooser->gap / 4;
    double look_ns = chooser->block * chooser->look_ns;
    double seldom = look_ns / (RPI_LOOK_SHARE * fmax(incumbent_ns(chooser), 1));
    gap = gap > RPI_SPOT ? gap : RPI_SPOT;
    return gap > seldom ? gap : (uint32_t)fmin(seldom, MOST_SELDOM);
}

/* A block of the incumbent outside rounds, if it is time for one: the first ones follow each other.
 */
static uint32_t step_of_spot(struct rpi_chooser *chooser)
{
    if (!chooser->spot_left) {
        if (chooser->spot_wait) {
            chooser->spot_wait--;
            return 0;
        }
        chooser->spots += chooser->spots < FIRST_SPOTS;
        chooser->block = chooser->spot_left = length_of_block(incumbent_ns(chooser));
        chooser->spot_wait = chooser->spots < FIRST_SPOTS ? 0 : gap_of_spots(chooser);
    }
    assert(chooser->spot_left && chooser->spot_left <= chooser->block);
    return chooser->block - --chooser->spot_left;
}

static struct rpi_plan_of_call plan(struct rpi_chooser *chooser)
{
    struct rpi_plan_of_call plan = {.way = chooser->incumbent};
    if (!chooser->round_left) {
        chooser->wait -= chooser->wait > 0;
        plan.step = step_of_spot(chooser);
        plan.of = plan.step ? chooser->block : 0;
        return plan;
    }
    uint32_t done = 2 * chooser->block - chooser->round_left--;
    assert(done < 2 * chooser->block);
    if (done < chooser->block)
        plan.way = challenger_of(chooser);
    plan.step = done % chooser->block + 1;
    plan.of = chooser->block;
    plan.round = chooser->round;
    return plan;
}

struct rpi_plan_of_call rpi_chooser_next(struct rpi_chooser *chooser)
{
    if (!calls_until_capture(chooser))
        return (struct rpi_plan_of_call){.way = RPI_WAY_EAGER, .capture = true};
    if (chooser->has_graph && !chooser->round_left && !chooser->spot_left && !chooser->wait &&
        chooser->calls[chooser->incumbent].held)
        begin_round(chooser);
    struct rpi_plan_of_call next = plan(chooser);
    chooser->calls_made++;
    chooser->spent_ns += chooser->mean_ns[next.way];
    return next;
}

/* May the next call be another one than the last, for what is measured comes in? */
static bool is_learning(const struct rpi_chooser *chooser)
{
    bool nothing_known = !chooser->calls[RPI_WAY_EAGER].count && chooser->lost_blocks < MOST_LOST;
    return chooser->round_left || chooser->spot_left || chooser->is_awaited || nothing_known;
}

void rpi_chooser_looked(struct rpi_chooser *chooser, double ns)
{
    double weight = chooser->look_ns > 0 ? 0.1 : 1;
    chooser->look_ns += weight * (ns - chooser->look_ns);
}

uint32_t rpi_chooser_rest(struct rpi_chooser *chooser, uint32_t most)
{
    if (is_learning(chooser))
        return 0;
    uint32_t change = chooser->has_graph ? chooser->wait : calls_until_capture(chooser);
    most = most < change ? most : change;
    most = most < chooser->spot_wait ? most : chooser->spot_wait;
    chooser->wait -= chooser->wait < most ? chooser->wait : most;
    chooser->spot_wait -= most;
    chooser->calls_made += most;
    chooser->spent_ns += most * incumbent_ns(chooser);
    return most;
}

/* Do the newest samples leave the window of those before them? The mean alone moves with an
 * interrupt, the median alone with a mode that comes up a few times in a row. */
static bool drifted(const struct rpi_measure *calls)
{
    if (calls->held < 3 * NEWEST)
        return false;
    struct rpi_measured all = rpi_measure_read(calls);
    struct rpi_measured newest = rpi_measure_newest(calls, NEWEST);
    double change = fmin(fabs(newest.median - all.median), fabs(newest.mean - all.mean));
    double error = all.error * sqrt((double)all.values / NEWEST);
    return change > DRIFT * all.median && change > 2 * RPI_CONFIDENCE * error;
}

static void forget(struct rpi_chooser *chooser)
{
    rpi_measure_keep(&chooser->differences, 0);
    rpi_measure_keep(&chooser->calls[RPI_WAY_EAGER], NEWEST);
    rpi_measure_keep(&chooser->calls[RPI_WAY_GRAPH], NEWEST);
    chooser->drifts++;
    chooser->won = false;
    chooser->gap = chooser->wait = 0;
}

/* Is it of the round that is awaited? */
static bool is_of_round(const struct rpi_chooser *chooser, const struct rpi_plan_of_call *plan)
{
    return chooser->is_awaited && plan->round == chooser->round;
}

/* The next one comes soon, but where one after the other is lost. The rest of its round would tell
 * nothing. */
void rpi_chooser_lost(struct rpi_chooser *chooser, const struct rpi_plan_of_call *plan_of_call)
{
    assert(chooser->lost_blocks <= MOST_LOST);
    bool first = !plan_of_call->round && !chooser->calls[RPI_WAY_EAGER].count;
    if (!first && !is_of_round(chooser, plan_of_call))
        return;
    uint32_t wait = 1u << chooser->lost_blocks;
    chooser->lost_blocks += chooser->lost_blocks < MOST_LOST;
    if (first) {
        chooser->spot_wait = wait < RPI_SPOT ? wait : RPI_SPOT;
        return;
    }
    chooser->round_left = 0;
    chooser->is_awaited = false;
    chooser->wait = wait;
}

static void learn_host_share(struct rpi_chooser *chooser, double share)
{
    assert(share >= 0 && share <= 1 && chooser->calls[RPI_WAY_EAGER].count);
    double count = (double)chooser->calls[RPI_WAY_EAGER].count;
    chooser->host_share += (share - chooser->host_share) / fmin(count, NEWEST);
}

void rpi_chooser_sample(struct rpi_chooser *chooser, const struct rpi_plan_of_call *plan_of_call,
                        double host_ns, double device_ns)
{
    assert(plan_of_call->of > 1 && plan_of_call->way <= RPI_WAY_GRAPH);
    enum rpi_way way = plan_of_call->way;
    struct rpi_measure *calls = &chooser->calls[way];
    double took = host_ns > device_ns ? host_ns : device_ns;
    if (took <= 0)
        return;
    if (!calls->count) /* what was called so far had no price */
        chooser->spent_ns +=
            took * (double)(way == RPI_WAY_EAGER ? chooser->calls_made : plan_of_call->of);
    chooser->measured += plan_of_call->of - 1;
    rpi_measure_add(calls, took);
    chooser->mean_ns[way] = rpi_measure_read(calls).mean;
    chooser->host_ns[way] +=
        (host_ns - chooser->host_ns[way]) / fmin((double)calls->count, (double)NEWEST);
    if (way == RPI_WAY_EAGER)
        learn_host_share(chooser, host_ns / took);
    if (is_of_round(chooser, plan_of_call)) {
        chooser->round_ns[way] = took;
        if (chooser->round_ns[RPI_WAY_EAGER] > 0 && chooser->round_ns[RPI_WAY_GRAPH] > 0)
            end_round(chooser);
    }
    if (drifted(calls))
        forget(chooser);
}

/* ---- Telling ------------------------------------------------------------------------------- */

enum rpi_reason rpi_chooser_reason(const struct rpi_chooser *chooser)
{
    if (!chooser->has_graph) {
        if (chooser->retry_after_ns > 0)
            return RPI_REASON_REFUSED;
        return chooser->calls[RPI_WAY_EAGER].count ? RPI_REASON_PRICE : RPI_REASON_NOTHING_KNOWN;
    }
    struct rpi_measured d = rpi_measure_read(&chooser->differences);
    if (!is_settled(chooser) && (!chooser->won || (d.values >= FEW_ROUNDS && d.mean < 0)))
        return RPI_REASON_TRIAL;
    bool slower = d.mean > 0 && is_certain(chooser, &d);
    return slower || chooser->won || is_hopeless(chooser) ? RPI_REASON_FASTER
                                                          : RPI_REASON_NO_DIFFERENCE;
}

const char *rpi_way_name(enum rpi_way way)
{
    return way == RPI_WAY_EAGER ? "eager" : "graph";
}

const char *rpi_reason_text(enum rpi_reason reason)
{
    switch (reason) {
    case RPI_REASON_NOTHING_KNOWN:
        return "too few calls were measured";
    case RPI_REASON_PRICE:
        return "a capture costs more than the calls so far may save";
    case RPI_REASON_REFUSED:
        return "the callable could not be captured";
    case RPI_REASON_TRIAL:
        return "eager and graph are being compared";
    case RPI_REASON_FASTER:
        return "measured to be the fastest";
    case RPI_REASON_NO_DIFFERENCE:
        return "no difference could be measured";
    }
    return "";
}
