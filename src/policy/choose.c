/* SPDX-License-Identifier: MIT */
#include "policy/choose.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    FIRST_SAMPLES = 2, /* blocks of eager calls before a capture is considered */
    ROUND_CALLS = 2 * RPI_BLOCK,
    FEW_ROUNDS = 3,           /* below these no test is made */
    SOME_ROUNDS = 8,          /* below these the next one comes at once */
    FULL_ROUNDS = RPI_WINDOW, /* from these on the mean is believed */
    NEWEST = 4,               /* samples that are compared with those before them */
    FIRST_GAP = 16,
    PATIENCE = 1 << 16 /* calls until a round whose samples do not come is given up: a device may
                          be a thousand calls behind */
};
static const double LAUNCH_BOUND = 0.7; /* share of a call that the host needs */
static const double BET_LAUNCH_BOUND = 0.5, BET_DEVICE_BOUND = 0.01;
static const double DRIFT = 0.1; /* change of the mean that counts, beside the standard errors */
static const double WORTH = 0.005;

void rpi_chooser_init(struct rpi_chooser *chooser, double price_ns)
{
    memset(chooser, 0, sizeof *chooser);
    chooser->price_ns = price_ns;
    chooser->host_share = 1;
    chooser->ways[RPI_WAY_EAGER].state = RPI_WAY_READY;
    chooser->incumbent = chooser->challenger = RPI_WAY_EAGER;
}

void rpi_chooser_force(struct rpi_chooser *chooser, enum rpi_way way)
{
    chooser->forced = true;
    chooser->incumbent = way;
}

static double mean_of(const struct rpi_chooser *chooser, enum rpi_way way)
{
    return chooser->ways[way].mean_ns;
}

/* The variance of one block. */
static double variance_of(const struct rpi_chooser *chooser, enum rpi_way way)
{
    struct rpi_measured calls = rpi_measure_read(&chooser->ways[way].calls);
    return calls.values > 1 ? calls.error * calls.error * (double)(calls.values - 1) : 0;
}

/* Is the way's difference from the incumbent below zero or above, by as much as it has to be? A few
 * rounds may all have missed a mode that the calls are known to have, so the calls' variance counts
 * too. */
static bool is_certain(const struct rpi_chooser *chooser, enum rpi_way way,
                       const struct rpi_measured *difference)
{
    double rounds = (double)difference->values;
    double known = variance_of(chooser, way) + variance_of(chooser, chooser->incumbent);
    double missed = difference->values < FULL_ROUNDS ? sqrt(known / rounds) : 0;
    double error = fmax(difference->error, missed);
    double student = 1 + 4 / (rounds + 1);
    return fabs(difference->mean) > RPI_CONFIDENCE * student * error;
}

/* ---- Whether to capture -------------------------------------------------------------------- */

static bool wants_capture(const struct rpi_chooser *chooser)
{
    if (chooser->ways[RPI_WAY_BIND].state != RPI_WAY_UNKNOWN &&
        chooser->ways[RPI_WAY_COPY].state != RPI_WAY_UNKNOWN)
        return false;
    if (chooser->ways[RPI_WAY_EAGER].calls.count < FIRST_SAMPLES ||
        chooser->spent_ns < chooser->retry_after_ns)
        return false;
    bool launch_bound = chooser->host_share >= LAUNCH_BOUND;
    double bet = launch_bound ? BET_LAUNCH_BOUND : BET_DEVICE_BOUND;
    return chooser->price_ns <= RPI_CAPTURE_NS + bet * chooser->spent_ns;
}

void rpi_chooser_captured(struct rpi_chooser *chooser, double price_ns, bool binds, bool copies)
{
    chooser->price_ns = price_ns;
    chooser->captures++;
    chooser->ways[RPI_WAY_BIND].state = binds ? RPI_WAY_READY : RPI_WAY_IMPOSSIBLE;
    chooser->ways[RPI_WAY_COPY].state = copies ? RPI_WAY_READY : RPI_WAY_IMPOSSIBLE;
    chooser->gap = chooser->wait = 0;
    if (chooser->forced && chooser->incumbent != RPI_WAY_EAGER &&
        chooser->ways[chooser->incumbent].state != RPI_WAY_READY)
        chooser->incumbent = binds ? RPI_WAY_BIND : RPI_WAY_COPY;
}

void rpi_chooser_refused(struct rpi_chooser *chooser, double price_ns)
{
    enum { LONGER = 100 };
    chooser->price_ns = price_ns;
    chooser->captures++;
    chooser->incumbent = RPI_WAY_EAGER;
    double spent = chooser->spent_ns + price_ns;
    chooser->retry_after_ns = spent * LONGER;
}

/* ---- Rounds -------------------------------------------------------------------------------- */

/* How much a round with it may tell: the way that looks cheapest first, one never tried before all.
 */
static double promise_of(const struct rpi_chooser *chooser, enum rpi_way way)
{
    struct rpi_measured d = rpi_measure_read(&chooser->ways[way].differences);
    return d.values ? d.mean : -INFINITY;
}

/* Which way to measure beside the incumbent: the most promising; every fourth time the one with the
 * fewest rounds. The incumbent where there is no other. */
static enum rpi_way choose_challenger(const struct rpi_chooser *chooser)
{
    bool fewest = chooser->round % 4 == 3;
    enum rpi_way found = chooser->incumbent;
    double least = INFINITY;
    for (enum rpi_way way = 0; way < RPI_WAYS; way++) {
        if (way == chooser->incumbent || chooser->ways[way].state != RPI_WAY_READY)
            continue;
        double rank =
            fewest ? (double)chooser->ways[way].differences.count : promise_of(chooser, way);
        if (found == chooser->incumbent || rank < least) {
            found = way;
            least = rank;
        }
    }
    return found;
}

/* What a round with this challenger loses, by what is known of both, as one round's own difference
 * is noise, half of which would count as loss; 0 for a way that is not known. */
static double loss_of_round(const struct rpi_chooser *chooser, enum rpi_way way)
{
    if (!chooser->ways[way].calls.held)
        return 0;
    double more = mean_of(chooser, way) - mean_of(chooser, chooser->incumbent);
    return more > 0 ? RPI_BLOCK * more : 0;
}

/* Is the way known to take at least twice as long as the incumbent? Few rounds tell that. */
static bool is_hopeless(const struct rpi_chooser *chooser, enum rpi_way way)
{
    struct rpi_measured d = rpi_measure_read(&chooser->ways[way].differences);
    return d.values >= FEW_ROUNDS && d.mean > mean_of(chooser, chooser->incumbent) &&
           is_certain(chooser, way, &d);
}

/* In how many calls a round with it is within what rounds may lose; 0: it is now. */
static uint32_t calls_until_affordable(const struct rpi_chooser *chooser, enum rpi_way way)
{
    double share = is_hopeless(chooser, way) ? RPI_HOPELESS_SHARE : RPI_TRIAL_SHARE;
    double lost = chooser->lost_ns + loss_of_round(chooser, way);
    double missing = lost - RPI_TRIAL_NS - share * chooser->spent_ns;
    if (missing <= 0)
        return 0;
    double calls = missing / (share * mean_of(chooser, chooser->incumbent));
    return (uint32_t)fmin(fmax(calls, FIRST_GAP), RPI_MOST_GAP);
}

static void begin_round(struct rpi_chooser *chooser)
{
    enum rpi_way way = choose_challenger(chooser);
    chooser->wait = way == chooser->incumbent ? RPI_MOST_GAP : calls_until_affordable(chooser, way);
    if (chooser->wait)
        return;
    chooser->challenger = way;
    chooser->round_left = ROUND_CALLS;
    chooser->round++;
    chooser->wait = PATIENCE; /* until its last sample has come */
    for (enum rpi_way w = 0; w < RPI_WAYS; w++)
        chooser->ways[w].round_ns = 0;
}

/* Is the challenger cheaper, as sure as it has to be? */
static bool wins(const struct rpi_chooser *chooser)
{
    struct rpi_measured d = rpi_measure_read(&chooser->ways[chooser->challenger].differences);
    if (d.values < FEW_ROUNDS || d.mean >= 0)
        return false;
    if (is_certain(chooser, chooser->challenger, &d))
        return true;
    return d.values >= FULL_ROUNDS && -d.mean > WORTH * mean_of(chooser, chooser->incumbent);
}

static bool is_settled(const struct rpi_chooser *chooser, enum rpi_way way)
{
    struct rpi_measured d = rpi_measure_read(&chooser->ways[way].differences);
    return d.values >= FULL_ROUNDS || is_hopeless(chooser, way) ||
           (d.values >= SOME_ROUNDS && is_certain(chooser, way, &d));
}

static bool all_settled(const struct rpi_chooser *chooser)
{
    for (enum rpi_way way = 0; way < RPI_WAYS; way++)
        if (way != chooser->incumbent && chooser->ways[way].state == RPI_WAY_READY &&
            !is_settled(chooser, way))
            return false;
    return true;
}

/* The differences were from the old incumbent. What the new one won by is not kept: few rounds may
 * all have missed a mode of its calls. */
static void take_over(struct rpi_chooser *chooser)
{
    enum rpi_way before = chooser->incumbent;
    chooser->incumbent = chooser->challenger;
    chooser->challenger = before;
    for (enum rpi_way way = 0; way < RPI_WAYS; way++)
        rpi_measure_keep(&chooser->ways[way].differences, 0);
    chooser->won = true;
    chooser->switches++;
    chooser->gap = chooser->spot_left = 0;
}

/* After the last sample of a round. */
static void end_round(struct rpi_chooser *chooser)
{
    struct rpi_way_knowledge *challenger = &chooser->ways[chooser->challenger];
    struct rpi_way_knowledge *incumbent = &chooser->ways[chooser->incumbent];
    if (challenger->round_ns <= 0) /* its block was lost */
        return;
    rpi_measure_add(&challenger->differences, challenger->round_ns - incumbent->round_ns);
    challenger->round_ns = incumbent->round_ns = 0;
    chooser->lost_ns += loss_of_round(chooser, chooser->challenger);
    if (wins(chooser))
        take_over(chooser);
    else if (all_settled(chooser))
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
    return gap > RPI_SPOT ? gap : RPI_SPOT;
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
        chooser->spot_left = RPI_BLOCK;
        chooser->spot_wait = chooser->first_spots < FIRST_SAMPLES ? 0 : gap_of_spots(chooser);
        chooser->first_spots += chooser->first_spots < FIRST_SAMPLES;
    }
    return RPI_BLOCK - --chooser->spot_left;
}

static struct rpi_plan_of_call plan(struct rpi_chooser *chooser)
{
    struct rpi_plan_of_call plan = {.way = chooser->incumbent};
    if (!chooser->round_left) {
        chooser->wait -= chooser->wait > 0;
        plan.step = step_of_spot(chooser);
        return plan;
    }
    uint32_t done = ROUND_CALLS - chooser->round_left--;
    plan.way = done < RPI_BLOCK ? chooser->challenger : chooser->incumbent;
    plan.step = done % RPI_BLOCK + 1;
    plan.round = chooser->round;
    return plan;
}

struct rpi_plan_of_call rpi_chooser_next(struct rpi_chooser *chooser)
{
    struct rpi_plan_of_call next = {.way = chooser->incumbent};
    bool missing = chooser->ways[chooser->incumbent].state == RPI_WAY_UNKNOWN;
    if (chooser->forced ? missing : wants_capture(chooser)) {
        next.capture = true;
        return next;
    }
    if (!chooser->forced) {
        if (!chooser->round_left && !chooser->spot_left && !chooser->wait &&
            chooser->ways[chooser->incumbent].calls.held >= FIRST_SAMPLES)
            begin_round(chooser);
        next = plan(chooser);
    }
    chooser->calls++;
    chooser->spent_ns += mean_of(chooser, next.way);
    return next;
}

uint32_t rpi_chooser_rest(struct rpi_chooser *chooser, uint32_t most)
{
    if (!chooser->forced) {
        if (chooser->round_left || chooser->spot_left)
            return 0;
        most = most < chooser->wait ? most : chooser->wait;
        most = most < chooser->spot_wait ? most : chooser->spot_wait;
        chooser->wait -= most;
        chooser->spot_wait -= most;
    }
    chooser->calls += most;
    chooser->spent_ns += most * mean_of(chooser, chooser->incumbent);
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
    for (enum rpi_way way = 0; way < RPI_WAYS; way++) {
        rpi_measure_keep(&chooser->ways[way].differences, 0);
        rpi_measure_keep(&chooser->ways[way].calls, NEWEST);
    }
    chooser->drifts++;
    chooser->won = false;
    chooser->gap = chooser->wait = 0;
}

void rpi_chooser_lost(struct rpi_chooser *chooser, const struct rpi_plan_of_call *plan_of_call)
{
    if (plan_of_call->round && plan_of_call->round == chooser->round)
        chooser->wait = FIRST_GAP; /* the next one comes soon */
}

void rpi_chooser_sample(struct rpi_chooser *chooser, const struct rpi_plan_of_call *plan_of_call,
                        double host_ns, double device_ns)
{
    enum rpi_way way = plan_of_call->way;
    struct rpi_way_knowledge *known = &chooser->ways[way];
    double took = host_ns > device_ns ? host_ns : device_ns;
    if (took <= 0)
        return;
    if (!known->calls.count) /* what was called so far had no price */
        chooser->spent_ns += took * (way == RPI_WAY_EAGER ? (double)chooser->calls : RPI_BLOCK);
    rpi_measure_add(&known->calls, took);
    known->mean_ns = rpi_measure_read(&known->calls).mean;
    if (way == RPI_WAY_EAGER) {
        double samples = known->calls.count < NEWEST ? (double)known->calls.count : NEWEST;
        chooser->host_share += (host_ns / took - chooser->host_share) / samples;
    }
    if (plan_of_call->round && plan_of_call->round == chooser->round) {
        known->round_ns = took;
        if (way == chooser->incumbent)
            end_round(chooser);
    }
    if (drifted(&known->calls))
        forget(chooser);
}

/* ---- Telling ------------------------------------------------------------------------------- */

enum rpi_reason rpi_chooser_reason(const struct rpi_chooser *chooser)
{
    if (chooser->forced)
        return RPI_REASON_FORCED;
    bool graph = chooser->ways[RPI_WAY_BIND].state == RPI_WAY_READY ||
                 chooser->ways[RPI_WAY_COPY].state == RPI_WAY_READY;
    if (!graph && chooser->retry_after_ns > 0)
        return RPI_REASON_REFUSED;
    if (!graph)
        return chooser->ways[RPI_WAY_EAGER].calls.count < FIRST_SAMPLES ? RPI_REASON_NOTHING_KNOWN
                                                                        : RPI_REASON_PRICE;
    bool conclusive = false;
    for (enum rpi_way way = 0; way < RPI_WAYS; way++) {
        if (way == chooser->incumbent || chooser->ways[way].state != RPI_WAY_READY)
            continue;
        struct rpi_measured d = rpi_measure_read(&chooser->ways[way].differences);
        if (!is_settled(chooser, way) && (!chooser->won || (d.values >= FEW_ROUNDS && d.mean < 0)))
            return RPI_REASON_TRIAL;
        conclusive |= d.mean > 0 && is_certain(chooser, way, &d);
    }
    return conclusive || chooser->won ? RPI_REASON_FASTER : RPI_REASON_NO_DIFFERENCE;
}

const char *rpi_way_name(enum rpi_way way)
{
    static const char *const names[RPI_WAYS] = {"eager", "graph", "graph, arguments copied"};
    return names[way];
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
    case RPI_REASON_FORCED:
        return "asked for";
    }
    return "";
}
