/* SPDX-License-Identifier: MIT */
#include "policy/bind_or_copy.h"

#include "base/hostmem.h"

#include <assert.h>
#include <string.h>

/* Uses are numbered by group, as members are. Amounts are nanoseconds. */
struct rpi_bind_flow {
    size_t uses;
    uint32_t *group;             /* of each use */
    uint32_t *by_arg, *arg_uses; /* uses of argument a: arg_uses[by_arg[a]] up to by_arg[a + 1] */
    int64_t *through;            /* each use */
    int64_t *left;               /* that each group can still take */
    int64_t *excess;             /* of each argument, that found no group yet */
    uint32_t *arg_from, *group_from; /* the use by which the search came */
    uint32_t *arg_mark, *group_mark; /* number of that search */
    uint32_t *queue;
    unsigned char *set;
    uint32_t search;
    size_t paths; /* that may still be tried */
};

/* Marks of what no path leads on from: such arguments are bound. */
static const uint32_t SHUT = UINT32_MAX;
static const int64_t NEVER = INT64_MAX / 4;

/* ---- Making -------------------------------------------------------------------------------- */

static void free_flow(struct rpi_bind_flow *flow)
{
    if (!flow)
        return;
    rpi_free(flow->group);
    rpi_free(flow->by_arg);
    rpi_free(flow->arg_uses);
    rpi_free(flow->through);
    rpi_free(flow->left);
    rpi_free(flow->excess);
    rpi_free(flow->arg_from);
    rpi_free(flow->group_from);
    rpi_free(flow->arg_mark);
    rpi_free(flow->group_mark);
    rpi_free(flow->queue);
    rpi_free(flow->set);
    rpi_free(flow);
}

static bool make_arrays(struct rpi_bind_flow *flow, size_t args, size_t groups, size_t uses)
{
    flow->uses = uses;
    flow->group = rpi_calloc(uses + 1, sizeof *flow->group);
    flow->by_arg = rpi_calloc(args + 2, sizeof *flow->by_arg);
    flow->arg_uses = rpi_calloc(uses + 1, sizeof *flow->arg_uses);
    flow->through = rpi_calloc(uses + 1, sizeof *flow->through);
    flow->left = rpi_calloc(groups + 1, sizeof *flow->left);
    flow->excess = rpi_calloc(args + 1, sizeof *flow->excess);
    flow->arg_from = rpi_calloc(args + 1, sizeof *flow->arg_from);
    flow->group_from = rpi_calloc(groups + 1, sizeof *flow->group_from);
    flow->arg_mark = rpi_calloc(args + 1, sizeof *flow->arg_mark);
    flow->group_mark = rpi_calloc(groups + 1, sizeof *flow->group_mark);
    flow->queue = rpi_calloc(args + 1, sizeof *flow->queue);
    flow->set = rpi_calloc(args + 1, sizeof *flow->set);
    return flow->group && flow->by_arg && flow->arg_uses && flow->through && flow->left &&
           flow->excess && flow->arg_from && flow->group_from && flow->arg_mark &&
           flow->group_mark && flow->queue && flow->set;
}

/* A counting sort; by_arg is one ahead until it is filled. */
static void list_uses(struct rpi_bind_flow *flow, const struct rpi_bind_choice *choice)
{
    assert(!flow->by_arg[choice->arg_count + 1]);
    for (size_t g = 0; g < choice->group_count; g++)
        for (uint32_t i = 0; i < choice->groups[g].count; i++) {
            uint32_t use = choice->groups[g].first + i;
            flow->group[use] = (uint32_t)g;
            flow->by_arg[choice->members[use] + 2]++;
        }
    for (size_t a = 2; a < choice->arg_count + 2; a++)
        flow->by_arg[a] += flow->by_arg[a - 1];
    for (size_t use = 0; use < flow->uses; use++)
        flow->arg_uses[flow->by_arg[choice->members[use] + 1]++] = (uint32_t)use;
}

bool rpi_bind_choice_init(struct rpi_bind_choice *choice, const struct rpi_bind_arg_uses *args,
                          size_t arg_count, const struct rpi_bind_group *groups, size_t group_count,
                          const uint32_t *members)
{
    size_t uses = 0;
    for (size_t g = 0; g < group_count; g++)
        uses += groups[g].count;
    struct rpi_bind_arg_uses *kept_args = rpi_calloc(arg_count + 1, sizeof *args);
    struct rpi_bind_group *kept_groups = rpi_calloc(group_count + 1, sizeof *groups);
    uint32_t *kept_members = rpi_calloc(uses + 1, sizeof *members);
    *choice = (struct rpi_bind_choice){
        .arg_count = arg_count,
        .group_count = group_count,
        .args = kept_args,
        .groups = kept_groups,
        .members = kept_members,
        .flow = rpi_calloc(1, sizeof *choice->flow),
        .copied = rpi_calloc(arg_count + 1, 1),
        .challenger = rpi_calloc(arg_count + 1, 1),
        .best = rpi_calloc(arg_count + 1, 1),
        .changed = rpi_calloc(arg_count + 1, 1),
    };
    if (!kept_args || !kept_groups || !kept_members || !choice->flow || !choice->copied ||
        !choice->challenger || !choice->best || !choice->changed ||
        !make_arrays(choice->flow, arg_count, group_count, uses)) {
        rpi_bind_choice_finish(choice);
        return false;
    }
    memcpy(kept_args, args, arg_count * sizeof *args);
    memcpy(kept_groups, groups, group_count * sizeof *groups);
    memcpy(kept_members, members, uses * sizeof *members);
    list_uses(choice->flow, choice);
    return true;
}

void rpi_bind_choice_bind_only(struct rpi_bind_choice *choice, size_t arg)
{
    assert(arg < choice->arg_count);
    choice->args[arg].only_bound = true;
}

void rpi_bind_choice_finish(struct rpi_bind_choice *choice)
{
    free_flow(choice->flow);
    rpi_free(choice->args);
    rpi_free((void *)choice->groups);
    rpi_free((void *)choice->members);
    rpi_free(choice->copied);
    rpi_free(choice->challenger);
    rpi_free(choice->best);
    rpi_free(choice->changed);
    *choice = (struct rpi_bind_choice){0};
}

/* ---- What a set costs ---------------------------------------------------------------------- */

/* Copies of one direction. */
struct direction {
    size_t count; /* of those that may be launched */
    double bytes; /* and theirs */
    double us;    /* of large ones */
};

static void add_copy(struct direction *direction, const struct rpi_copy_prices *prices,
                     uint64_t bytes)
{
    if (!prices->no_launches && rpi_copy_wants_call(prices, bytes)) {
        direction->us += prices->single + (double)bytes * prices->single_byte;
        return;
    }
    direction->count++;
    direction->bytes += (double)bytes;
}

static double direction_cost(const struct rpi_copy_prices *prices,
                             const struct direction *direction)
{
    if (!prices->no_launches && rpi_copies_want_launch(prices, direction->count, direction->bytes))
        return direction->us + rpi_copies_launched_us(prices, direction->count) +
               direction->bytes * prices->byte;
    return direction->us + (double)direction->count * prices->single +
           direction->bytes * prices->single_byte;
}

double rpi_bind_cost(const struct rpi_bind_choice *choice, const struct rpi_bind_prices *prices,
                     const unsigned char *copied, const unsigned char *changed)
{
    uint64_t nodes = 0;
    struct direction in = {0}, out = {0};
    for (size_t g = 0; g < choice->group_count; g++) {
        const struct rpi_bind_group *group = &choice->groups[g];
        const uint32_t *members = choice->members + group->first;
        uint32_t i = 0;
        while (i < group->count && (!changed[members[i]] || copied[members[i]]))
            i++;
        nodes += i < group->count ? group->nodes : 0;
    }
    for (size_t a = 0; a < choice->arg_count; a++) {
        if (!copied[a])
            continue;
        if (choice->args[a].in)
            add_copy(&in, &prices->copies, choice->args[a].bytes);
        if (choice->args[a].out)
            add_copy(&out, &prices->copies, choice->args[a].bytes);
    }
    return (double)nodes * prices->node + direction_cost(&prices->copies, &in) +
           direction_cost(&prices->copies, &out);
}

/* ---- The set that costs least -------------------------------------------------------------- */

static int64_t nanoseconds(double us)
{
    return us < 1e12 ? (int64_t)(us * 1000) : NEVER;
}

/* One copy, where a launch is paid for or is not. */
static double one_copy(const struct rpi_copy_prices *prices, uint64_t bytes, bool launched)
{
    double call = prices->single + (double)bytes * prices->single_byte;
    double entry = prices->entry + (double)bytes * prices->byte;
    return launched && entry < call ? entry : call;
}

/* An argument's copies where the directions' launches are paid, or not. */
static int64_t copy_price(const struct rpi_bind_arg_uses *arg, const struct rpi_bind_prices *prices,
                          bool launched_in, bool launched_out)
{
    double us = 0;
    if (arg->only_bound)
        return NEVER;
    if (arg->in)
        us += one_copy(&prices->copies, arg->bytes, launched_in);
    if (arg->out)
        us += one_copy(&prices->copies, arg->bytes, launched_out);
    return nanoseconds(us);
}

/* Sends what it can from each argument straight to its groups. */
static void pour(struct rpi_bind_flow *flow, size_t a)
{
    assert(flow->excess[a] >= 0);
    for (uint32_t i = flow->by_arg[a]; flow->excess[a] && i < flow->by_arg[a + 1]; i++) {
        uint32_t use = flow->arg_uses[i], group = flow->group[use];
        int64_t amount = flow->excess[a] < flow->left[group] ? flow->excess[a] : flow->left[group];
        flow->through[use] += amount;
        flow->left[group] -= amount;
        flow->excess[a] -= amount;
    }
}

/* Sends as much as the path to this group can take. */
static void augment(struct rpi_bind_flow *flow, const uint32_t *members, size_t source,
                    uint32_t group)
{
    assert(flow->left[group] > 0 && flow->excess[source] > 0);
    int64_t amount = flow->left[group];
    uint32_t at = group, arg;
    while ((arg = members[flow->group_from[at]]) != source) {
        uint32_t back = flow->arg_from[arg];
        amount = flow->through[back] < amount ? flow->through[back] : amount;
        at = flow->group[back];
    }
    amount = flow->excess[source] < amount ? flow->excess[source] : amount;
    assert(amount > 0);
    flow->left[group] -= amount;
    flow->excess[source] -= amount;
    for (at = group;;) {
        uint32_t use = flow->group_from[at];
        flow->through[use] += amount;
        if (members[use] == source)
            return;
        uint32_t back = flow->arg_from[members[use]];
        flow->through[back] -= amount;
        at = flow->group[back];
    }
}

/* A full group: arguments that send something through it may send that elsewhere. */
static void visit_members(struct rpi_bind_flow *flow, const struct rpi_bind_choice *choice,
                          uint32_t g, size_t *end)
{
    assert(g < choice->group_count && !flow->left[g]);
    const struct rpi_bind_group *group = &choice->groups[g];
    for (uint32_t use = group->first; use < group->first + group->count; use++) {
        uint32_t arg = choice->members[use];
        if (!flow->through[use] || flow->arg_mark[arg] == flow->search ||
            flow->arg_mark[arg] == SHUT)
            continue;
        flow->arg_mark[arg] = flow->search;
        flow->arg_from[arg] = use;
        flow->queue[(*end)++] = arg;
    }
}

/* Looks for a path from the argument to a group with room, the shortest first. Where there is none,
 * all that was reached is shut. */
static bool find_path(struct rpi_bind_flow *flow, const struct rpi_bind_choice *choice,
                      size_t source)
{
    assert(flow->excess[source] > 0 && flow->arg_mark[source] != SHUT);
    size_t begin = 0, end = 0;
    flow->search++;
    flow->arg_mark[source] = flow->search;
    flow->queue[end++] = (uint32_t)source;
    for (; begin < end; begin++) {
        uint32_t arg = flow->queue[begin];
        for (uint32_t i = flow->by_arg[arg]; i < flow->by_arg[arg + 1]; i++) {
            uint32_t use = flow->arg_uses[i], group = flow->group[use];
            if (flow->group_mark[group] == flow->search || flow->group_mark[group] == SHUT)
                continue;
            flow->group_mark[group] = flow->search;
            flow->group_from[group] = use;
            if (flow->left[group]) {
                augment(flow, choice->members, source, group);
                return true;
            }
            visit_members(flow, choice, group, &end);
        }
    }
    for (size_t i = 0; i < end; i++) {
        uint32_t arg = flow->queue[i];
        flow->arg_mark[arg] = SHUT;
        for (uint32_t u = flow->by_arg[arg]; u < flow->by_arg[arg + 1]; u++)
            flow->group_mark[flow->group[flow->arg_uses[u]]] = SHUT;
    }
    return false;
}

/* The cut where these launches are paid: flow->set are the arguments to copy. */
static void cut(struct rpi_bind_choice *choice, const struct rpi_bind_prices *prices,
                const unsigned char *changed, bool launched_in, bool launched_out)
{
    struct rpi_bind_flow *flow = choice->flow;
    memset(flow->through, 0, flow->uses * sizeof *flow->through);
    memset(flow->arg_mark, 0, choice->arg_count * sizeof *flow->arg_mark);
    memset(flow->group_mark, 0, choice->group_count * sizeof *flow->group_mark);
    flow->search = 0;
    flow->paths = 4 * (choice->arg_count + choice->group_count);
    for (size_t g = 0; g < choice->group_count; g++)
        flow->left[g] = nanoseconds(prices->node * (double)choice->groups[g].nodes);
    for (size_t a = 0; a < choice->arg_count; a++) {
        flow->excess[a] =
            changed[a] ? copy_price(&choice->args[a], prices, launched_in, launched_out) : 0;
        pour(flow, a);
    }
    for (size_t a = 0; a < choice->arg_count; a++)
        while (flow->excess[a] && flow->arg_mark[a] != SHUT) {
            bool more = flow->paths && find_path(flow, choice, a);
            flow->paths -= more;
            if (!more)
                flow->arg_mark[a] = SHUT;
        }
    for (size_t a = 0; a < choice->arg_count; a++)
        flow->set[a] = changed[a] && !choice->args[a].only_bound && flow->arg_mark[a] != SHUT;
}

double rpi_bind_solve(struct rpi_bind_choice *choice, const struct rpi_bind_prices *prices,
                      const unsigned char *changed, unsigned char *out_copied)
{
    memset(out_copied, 0, choice->arg_count);
    double least = rpi_bind_cost(choice, prices, out_copied, changed);
    choice->solved++;
    for (unsigned launches = 0; launches < (prices->copies.no_launches ? 1 : 4); launches++) {
        cut(choice, prices, changed, launches & 1, launches & 2);
        double us = rpi_bind_cost(choice, prices, choice->flow->set, changed);
        if (us >= least)
            continue;
        least = us;
        memcpy(out_copied, choice->flow->set, choice->arg_count);
    }
    return least;
}

/* ---- Staying or changing ------------------------------------------------------------------- */

static bool differ(double a, double b)
{
    return a > 1.05 * b || b > 1.05 * a;
}

static bool are_other_prices(const struct rpi_bind_prices *a, const struct rpi_bind_prices *b)
{
    return differ(a->node, b->node) || differ(a->copies.launch, b->copies.launch) ||
           differ(a->copies.entry, b->copies.entry) || differ(a->copies.single, b->copies.single) ||
           differ(a->copies.byte, b->copies.byte) ||
           differ(a->copies.single_byte, b->copies.single_byte) ||
           a->copies.no_launches != b->copies.no_launches || a->known != b->known;
}

/* What going over to the challenger costs: the nodes of all arguments that it treats otherwise. */
static double price_of_switch(const struct rpi_bind_choice *choice)
{
    uint64_t nodes = 0;
    for (size_t g = 0; g < choice->group_count; g++) {
        const struct rpi_bind_group *group = &choice->groups[g];
        const uint32_t *members = choice->members + group->first;
        uint32_t i = 0;
        while (i < group->count && choice->copied[members[i]] == choice->challenger[members[i]])
            i++;
        nodes += i < group->count ? group->nodes : 0;
    }
    return (double)nodes * choice->prices.node + choice->prices.copies.launch;
}

/* Reckons what the replay costs in each way, unless it is as the last one was. */
static void look(struct rpi_bind_choice *choice, const struct rpi_bind_prices *prices,
                 const unsigned char *changed)
{
    bool other_prices = !choice->looked || are_other_prices(prices, &choice->prices);
    if (!other_prices && memcmp(changed, choice->changed, choice->arg_count) == 0)
        return;
    memcpy(choice->changed, changed, choice->arg_count);
    if (choice->prices.known != prices->known) /* the lead was reckoned with guesses */
        choice->challenged = false;
    choice->looked = true;
    if (other_prices)
        choice->prices = *prices;
    prices = &choice->prices;
    choice->own_us = rpi_bind_cost(choice, prices, choice->copied, changed);
    choice->best_us = rpi_bind_solve(choice, prices, changed, choice->best);
    if (choice->challenged)
        choice->challenger_us = rpi_bind_cost(choice, prices, choice->challenger, changed);
}

/* The set that is best now challenges, where it saves more in this replay than the challenger has
 * in all. */
static void challenge(struct rpi_bind_choice *choice)
{
    unsigned times = 1 + choice->switches;
    double gain = choice->own_us - choice->best_us;
    if (choice->challenged) {
        choice->ahead += choice->own_us - choice->challenger_us;
        choice->challenged = choice->ahead > 0;
    }
    if (!choice->challenged)
        choice->ahead = 0;
    if (gain <= choice->ahead)
        return;
    memcpy(choice->challenger, choice->best, choice->arg_count);
    choice->challenged = true;
    choice->ahead = gain;
    choice->challenger_us = choice->best_us;
    times = times < RPI_BIND_MOST_PATIENCE ? times : RPI_BIND_MOST_PATIENCE;
    choice->lead = RPI_BIND_PATIENCE * times * price_of_switch(choice);
}

enum rpi_bind_step rpi_bind_choice_next(struct rpi_bind_choice *choice,
                                        const struct rpi_bind_prices *prices,
                                        const unsigned char *changed)
{
    look(choice, prices, changed);
    challenge(choice);
    if (!choice->challenged || choice->ahead < choice->lead)
        return RPI_BIND_STAYS;
    if (!prices->known)
        return RPI_BIND_LEARN;
    memcpy(choice->copied, choice->challenger, choice->arg_count);
    choice->challenged = choice->looked = false;
    choice->ahead = 0;
    choice->switches++;
    return RPI_BIND_SWITCHES;
}

void rpi_bind_price_add(struct rpi_bind_price *price, double us)
{
    double share = !price->samples ? 1 : (us < price->us ? 0.5 : 0.0625);
    price->us += (us - price->us) * share;
    price->samples += price->samples < UINT32_MAX;
}
