/* SPDX-License-Identifier: MIT
 *
 * Eager or graph: decided from measured times of one callable with one shape on one device. Knows
 * no clock, driver or graph: the caller asks before each call what to do, and tells what it took.
 *
 *   way         how a call is made: eagerly or by the graph
 *   incumbent   the way that calls go unless something is to be learned
 *   challenger  the other one, once there is a graph
 *   block       some calls of one way in a row, measured together, but for the first: what came
 *               before it has left the device as another way leaves it. Of calls that take more
 *               than RPI_DEAR_NS one is measured, of others RPI_MEASURED
 *   round       a block of the challenger and one of the incumbent: a pair that a change of the
 *               machine's pace hits alike
 *
 * The challenger becomes the incumbent when the mean of the rounds' differences is below zero by
 * RPI_CONFIDENCE standard errors (99.5 % of being right, for one look; more where rounds are few,
 * as Student's distribution has it), or when a full window of rounds shows it cheaper by half a per
 * cent. A graph that is as sure to be no more than half a per cent dearer, and takes less than half
 * of the host's time, does as well: the host is waited for behind each call that waits for the
 * device, which rounds in a row of calls hardly see. Where the cheapest of the incumbent's newest samples, two at least, is RPI_FAR times what
 * the challenger takes, it is at once: waiting for a test would cost more than it is worth. A first
 * call that was dear because it was the first does not count there, as the cheapest is asked for.
 *
 * Whether to capture is renting or buying (Karp 1992). The price is known from captures of other
 * shapes; before there is one it is taken to be RPI_PRICE_NS and the host time of RPI_PRICE_RUNS
 * eager calls, as a capture runs the callable on the host at least so often. A capture is tried
 * when its price is within RPI_CAPTURE_NS and a share of the time spent: half of it where the
 * host's launches are what takes the time, for then a graph may well save that much; a hundredth
 * where the device is busy anyway. One sample is enough to ask, so that dear calls that wait for
 * the host are captured after the first block. Once a capture was refused, none is tried until the
 * time spent is 100 times as long.
 *
 * What knowing may cost. Rounds run while what they lost so far, challenger against incumbent, is
 * within RPI_TRIAL_NS and RPI_TRIAL_SHARE of the time that the calls took, however many rounds that
 * is; the first two run in any case, and a third where these differ. Of a challenger that three
 * rounds or more show to take twice as long, or that is far off as above, the share is
 * RPI_HOPELESS_SHARE. So over a run that takes T with the better way, with ways that keep their
 * pace, regret is at most
 *
 *     price of one capture + RPI_TRIAL_NS + RPI_TRIAL_SHARE x T          rounds
 *                          + 3 blocks of each way + eager calls until the first sample came
 *
 * and what is lost to noise: 3 to RPI_WINDOW rounds at the worse of two ways that are close.
 * rpi_chooser.lost_ns has what rounds lost; tests/unit/test_choose.c holds simulated runs to it.
 *
 * Drift. A block of the incumbent is measured every RPI_SPOT calls, every RPI_MOST_GAP / 4 in the
 * end, or so seldom that what the caller spends on asking for its calls is RPI_LOOK_SHARE of the
 * time; rounds go on ever more seldom. When its newest samples, or the challenger's, leave their
 * window, what was known is forgotten and rounds start afresh. All other calls cost a count.
 */
#ifndef REPRISE_POLICY_CHOOSE_H
#define REPRISE_POLICY_CHOOSE_H

#include "policy/measure.h"

#include <stdbool.h>

enum rpi_way { RPI_WAY_EAGER, RPI_WAY_GRAPH, RPI_WAYS };

#define RPI_CONFIDENCE     2.58 /* standard errors: 99.5 %, one side */
#define RPI_FAR            2.0
#define RPI_DEAR_NS        1e6
#define RPI_TRIAL_NS       8e6
#define RPI_TRIAL_SHARE    0.008
#define RPI_HOPELESS_SHARE 0.002
#define RPI_LOOK_SHARE     0.003
#define RPI_CAPTURE_NS     30e6
#define RPI_PRICE_NS       5e6
#define RPI_PRICE_RUNS     2
enum {
    RPI_MEASURED = 4,             /* calls of a block that are measured, at most */
    RPI_BLOCK = 1 + RPI_MEASURED, /* all of them */
    RPI_DEAR_BLOCK = 2,
    RPI_SPOT = 32,
    RPI_MOST_GAP = 512
};

enum rpi_reason {
    RPI_REASON_NOTHING_KNOWN, /* eager: too few calls were measured */
    RPI_REASON_PRICE,         /* eager: a capture costs more than these calls are worth yet */
    RPI_REASON_REFUSED,       /* eager: the callable could not be captured */
    RPI_REASON_TRIAL,         /* graph and eager are being compared */
    RPI_REASON_FASTER,        /* measured to be the fastest */
    RPI_REASON_NO_DIFFERENCE  /* no difference could be measured: as it was */
};

struct rpi_chooser {
    struct rpi_measure calls[RPI_WAYS]; /* nanoseconds of a call, the mean of each block */
    double mean_ns[RPI_WAYS];           /* of these, kept at hand */
    double round_ns[RPI_WAYS];          /* in the round under way; 0: not measured yet */
    struct rpi_measure differences;     /* of each round: the challenger's less the incumbent's */
    enum rpi_way incumbent;
    uint32_t round;       /* number of the latest round, from 1 */
    uint32_t round_left;  /* calls of it to come; 0: none is under way */
    uint32_t gap, wait;   /* calls between rounds, and until the next */
    uint32_t spot_left;   /* calls to come of a block outside rounds */
    uint32_t spot_wait;   /* calls until the next of these begins */
    uint32_t spots;       /* such blocks that followed each other at the start */
    uint32_t block;       /* calls of each block that is under way */
    uint32_t lost_blocks; /* since the last that was not */
    uint64_t calls_made, measured;
    double spent_ns;          /* in calls, as far as measured */
    double lost_ns;           /* in rounds, the challenger's more than the incumbent's */
    double look_ns;           /* what the caller spends on asking, beside the call */
    double host_ns[RPI_WAYS]; /* that a call needs of the host, of the latest blocks */
    double host_share;        /* of an eager call's time that the host needs to launch it */
    double price_ns;          /* of a capture: expected, or what the last took; 0: not known */
    double retry_after_ns;    /* spent time before which no capture is tried */
    uint32_t switches, drifts, captures;
    bool has_graph;
    bool is_awaited; /* samples of the latest round are yet to come */
    bool won;        /* the incumbent became it by rounds, and nothing drifted since */
};

/* price_ns: what a capture is expected to take; 0 where nothing tells. */
void rpi_chooser_init(struct rpi_chooser *chooser, double price_ns);

struct rpi_plan_of_call {
    enum rpi_way way;
    bool capture;   /* capture first, tell rpi_chooser_captured or _refused, and ask again */
    uint32_t step;  /* the call's number in its block, from 1; 0: it is in none */
    uint32_t of;    /* calls of the block, 2 to RPI_BLOCK */
    uint32_t round; /* that the block belongs to; 0: none */
};
/* What the next call is to be. Counts it, unless `capture` is set. */
struct rpi_plan_of_call rpi_chooser_next(struct rpi_chooser *chooser);
/* What the caller spent on the host before it asked, on a call that would need none of it if it
 * were made without asking. */
void rpi_chooser_looked(struct rpi_chooser *chooser, double ns);
/* Of how many next calls, `most` at most, it is known that they go the incumbent's way and are not
 * measured. Counts them: they are made without asking. */
uint32_t rpi_chooser_rest(struct rpi_chooser *chooser, uint32_t most);

void rpi_chooser_captured(struct rpi_chooser *chooser, double price_ns);
void rpi_chooser_refused(struct rpi_chooser *chooser, double price_ns);
/* A measured block, in the order of the calls though maybe late, by the plan of any of its calls:
 * what the host needed to enqueue a call of it, and the device for a call, in the mean. A call
 * takes the longer of the two: in a row of calls the one hides behind the other. */
void rpi_chooser_sample(struct rpi_chooser *chooser, const struct rpi_plan_of_call *plan,
                        double host_ns, double device_ns);

/* A block that could not be measured: there will be no sample of it. */
void rpi_chooser_lost(struct rpi_chooser *chooser, const struct rpi_plan_of_call *plan);

enum rpi_reason rpi_chooser_reason(const struct rpi_chooser *chooser);
const char *rpi_way_name(enum rpi_way way);          /* "eager" */
const char *rpi_reason_text(enum rpi_reason reason); /* static */

#endif
