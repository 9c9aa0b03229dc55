/* SPDX-License-Identifier: MIT
 *
 * Bind or copy: which arguments of a graph are copied though they could be bound. The rule alone,
 * without a driver; prices are microseconds of host and device together, so that copying a large
 * argument is never cheap.
 *
 *     bound     costs a replay the nodes that hold an address which changed, each once for all that
 *               it holds; nothing where none changed
 *     copied    costs each replay a copy in, a copy out or both; copies of one direction share a
 *               launch
 *     group     nodes that hold addresses of the same arguments
 *     incumbent the set of arguments that is copied
 *     challenger another set, that would have cost less lately
 *     ahead     by how much less, since it became the challenger; never below zero
 *
 * What would have been best for one replay is a minimum cut: an argument is copied and paid for, or
 * bound, and then all groups that it is in are paid for. The cut is found by a flow from arguments
 * through groups, once for each choice of the directions that are launched; it is exact but where
 * augmenting paths run out of their number (four times arguments and groups), and looks at each use
 * once in the common case.
 *
 * The challenger replaces the incumbent when it is ahead by RPI_BIND_PATIENCE times what changing
 * over costs, and more after each change, up to RPI_BIND_MOST_PATIENCE times as much. With two sets
 * A and B, and W the lead that is asked for: what is spent under A beyond B is at most W before B
 * takes over, and B then saves no less than W before A comes back. So replays cost at most twice
 * the better of always A and always B, plus what changing costs, which is one part in
 * RPI_BIND_PATIENCE of W at first and vanishes, plus W once. No rule that does not guess can do
 * better than twice.
 */
#ifndef REPRISE_POLICY_BIND_OR_COPY_H
#define REPRISE_POLICY_BIND_OR_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RPI_BIND_PATIENCE = 4, RPI_BIND_MOST_PATIENCE = 16 };

struct rpi_copy_prices {
    double launch; /* of copies in one direction */
    double entry;  /* each copy of it */
    double single; /* a copy by a call of its own */
    double byte;   /* of a copy in a launch */
    double single_byte;
    bool no_launches; /* copies are single ones only */
};

/* Most copies that one launch makes. */
enum { RPI_COPIES_A_LAUNCH = 144 };

/* Is a copy so large that a call of its own is better, whatever else is launched? */
static inline bool rpi_copy_wants_call(const struct rpi_copy_prices *prices, uint64_t bytes)
{
    return prices->single + (double)bytes * prices->single_byte <
           prices->entry + (double)bytes * prices->byte;
}

/* What so many copies cost by launches, bytes left out. */
static inline double rpi_copies_launched_us(const struct rpi_copy_prices *prices, size_t count)
{
    size_t launches = (count + RPI_COPIES_A_LAUNCH - 1) / RPI_COPIES_A_LAUNCH;
    return (double)launches * prices->launch + (double)count * prices->entry;
}

/* Is that less than in calls of their own, of copies of so many bytes together? */
static inline bool rpi_copies_want_launch(const struct rpi_copy_prices *prices, size_t count,
                                          double bytes)
{
    return rpi_copies_launched_us(prices, count) + bytes * prices->byte <
           (double)count * prices->single + bytes * prices->single_byte;
}

struct rpi_bind_prices {
    struct rpi_copy_prices copies;
    double node; /* changing a node, with what that adds to the next launch */
    bool known;  /* measured: until then the rule only says when it would matter */
};

struct rpi_bind_group {
    uint32_t first, count; /* of the members */
    uint32_t nodes;
};

struct rpi_bind_arg_uses {
    uint64_t bytes;
    bool in, out;    /* copied in, copied out */
    bool only_bound; /* nobody may copy it; the nodes that it changes are paid for all the same */
};

struct rpi_bind_flow;

struct rpi_bind_choice {
    size_t arg_count, group_count;
    struct rpi_bind_arg_uses *args;
    const struct rpi_bind_group *groups;
    const uint32_t *members; /* arguments, by group */
    struct rpi_bind_flow *flow;
    unsigned char *copied, *challenger, *best; /* sets: a byte for each argument */
    unsigned char *changed;                    /* in the replay that was looked at last */
    bool looked, challenged;
    double own_us, challenger_us, best_us; /* what that replay costs under each */
    double ahead, lead;                    /* of the challenger, and what is asked of it */
    struct rpi_bind_prices prices;         /* that this was reckoned with */
    unsigned switches;
    uint64_t solved; /* cuts that were looked for */
};

/* Copies what it is given; nothing is copied at first. False without host memory. */
bool rpi_bind_choice_init(struct rpi_bind_choice *choice, const struct rpi_bind_arg_uses *args,
                          size_t arg_count, const struct rpi_bind_group *groups, size_t group_count,
                          const uint32_t *members);
void rpi_bind_choice_finish(struct rpi_bind_choice *choice); /* allowed on a zeroed one */

/* From now on the argument is bound, whatever that costs. Nothing was copied so far. */
void rpi_bind_choice_bind_only(struct rpi_bind_choice *choice, size_t arg);

enum rpi_bind_step {
    RPI_BIND_STAYS,
    RPI_BIND_LEARN,   /* a challenger would take over if its prices were known */
    RPI_BIND_SWITCHES /* `copied` is another set from this replay on */
};
/* A replay comes in which these arguments have other addresses than in the last one. */
enum rpi_bind_step rpi_bind_choice_next(struct rpi_bind_choice *choice,
                                        const struct rpi_bind_prices *prices,
                                        const unsigned char *changed);

/* What one replay costs when this set is copied, and the set that costs least, for tests too. */
double rpi_bind_cost(const struct rpi_bind_choice *choice, const struct rpi_bind_prices *prices,
                     const unsigned char *copied, const unsigned char *changed);
double rpi_bind_solve(struct rpi_bind_choice *choice, const struct rpi_bind_prices *prices,
                      const unsigned char *changed, unsigned char *out_copied);

/* A price that is learned from samples: waits for something else make samples too large, nothing
 * makes them too small, so it follows small ones faster. */
struct rpi_bind_price {
    double us;
    unsigned samples;
};
void rpi_bind_price_add(struct rpi_bind_price *price, double us);

#endif
