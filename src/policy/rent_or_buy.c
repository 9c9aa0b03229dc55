/* SPDX-License-Identifier: MIT */
#include "policy/rent_or_buy.h"

#include <assert.h>
#include <math.h>

/* Prices that must be due before a graph buys where not all have room: from what was saved already,
 * and on credit. */
enum { SURE = 2, SURE_ON_CREDIT = 8 };

/* ---- Heat ---------------------------------------------------------------------------------- */

/* What is left of a figure after some turns. */
static double cooled(const struct rpi_rent *rent, double figure, uint64_t since)
{
    assert(since <= rent->turns);
    if (figure == 0 || since == rent->turns)
        return figure;
    double half_life = (double)RPI_RENT_MEMORY * (double)(rent->graphs ? rent->graphs : 1);
    double lives = (double)(rent->turns - since) / half_life;
    if (lives < 0x1p-6) /* most calls: exp2 to the third digit of what goes */
        return figure * (1 - lives * 0.69);
    return figure * exp2(-lives);
}

static double heat_of(const struct rpi_rent *rent, const struct rpi_rent_graph *graph)
{
    return cooled(rent, graph->heat, graph->heated);
}

/* Would its class pay for it at its very next replay, were the exec lost to one for the graph? */
static bool is_needed(const struct rpi_rent_exec *exec, const struct rpi_rent_graph *graph)
{
    const struct rpi_rent_class *class = exec->class;
    size_t more = class == graph->class;
    if (class->exec_count + more == 1 || (!more && exec->tenant && exec->tenant == class->last))
        return true;
    return !exec->owner && class->owners + more < class->graphs;
}

/* What its loss would cost, by what came lately. Nothing, where its owner did not come in all the
 * time in which the graph paid. */
static double worth(const struct rpi_rent *rent, const struct rpi_rent_exec *exec,
                    const struct rpi_rent_graph *graph)
{
    const struct rpi_rent_class *class = exec->class;
    if (is_needed(exec, graph))
        return cooled(rent, class->visits, class->visited) * class->make_us;
    return exec->owner && exec->used >= graph->since ? heat_of(rent, exec->owner) : 0;
}

/* ---- Coming and going ---------------------------------------------------------------------- */

/* What is due from now on. */
static void count_anew(const struct rpi_rent *rent, struct rpi_rent_graph *graph)
{
    graph->due = 0;
    graph->since = rent->turns;
}

static void lose_owner(const struct rpi_rent *rent, struct rpi_rent_exec *exec)
{
    assert(!exec->owner || exec->class->owners);
    if (!exec->owner)
        return;
    count_anew(rent, exec->owner);
    exec->owner = NULL;
    exec->class->owners--;
}

void rpi_rent_join(struct rpi_rent *rent, struct rpi_rent_class *class,
                   struct rpi_rent_graph *graph)
{
    assert(!graph->exec);
    if (!class->graphs) {
        class->next = rent->classes;
        if (rent->classes)
            rent->classes->previous = class;
        rent->classes = class;
    }
    class->graphs++;
    rent->graphs++;
    rent->wanted += class->bytes;
    graph->class = class;
    graph->heated = graph->since = rent->turns;
}

void rpi_rent_leave(struct rpi_rent *rent, struct rpi_rent_graph *graph)
{
    assert(graph->class && graph->class->graphs && rent->graphs);
    struct rpi_rent_class *class = graph->class;
    if (graph->exec) {
        lose_owner(rent, graph->exec);
        graph->exec->tenant = NULL;
        graph->exec = NULL;
    }
    if (class->last == graph)
        class->last = NULL;
    rent->graphs--;
    rent->wanted -= class->bytes;
    if (--class->graphs)
        return;
    if (class->previous)
        class->previous->next = class->next;
    else
        rent->classes = class->next;
    if (class->next)
        class->next->previous = class->previous;
    class->previous = class->next = NULL;
}

void rpi_rent_add(struct rpi_rent *rent, struct rpi_rent_graph *graph, struct rpi_rent_exec *exec)
{
    assert(!exec->class && !exec->owner && !exec->tenant);
    struct rpi_rent_class *class = graph->class;
    if (graph->exec) {
        assert(graph->exec->owner != graph);
        graph->exec->tenant = NULL;
    }
    exec->class = class;
    exec->owner = exec->tenant = graph;
    exec->launches = graph->launches;
    exec->used = rent->turns;
    exec->next = class->execs;
    if (class->execs)
        class->execs->previous = exec;
    class->execs = exec;
    class->exec_count++;
    class->owners++;
    rent->exec_count++;
    rent->bytes += class->bytes;
    graph->exec = exec;
    graph->paid = 0;
    assert(rpi_rent_is_valid(rent));
}

void rpi_rent_drop(struct rpi_rent *rent, struct rpi_rent_exec *exec)
{
    assert(exec->class->exec_count && rent->exec_count);
    struct rpi_rent_class *class = exec->class;
    lose_owner(rent, exec);
    if (exec->tenant)
        exec->tenant->exec = NULL;
    exec->tenant = NULL;
    if (exec->previous)
        exec->previous->next = exec->next;
    else
        class->execs = exec->next;
    if (exec->next)
        exec->next->previous = exec->previous;
    exec->previous = exec->next = NULL;
    class->exec_count--;
    rent->exec_count--;
    rent->bytes -= class->bytes;
}

void rpi_rent_lend(struct rpi_rent *rent, struct rpi_rent_graph *graph, struct rpi_rent_exec *exec)
{
    assert(exec->class == graph->class && !graph->exec);
    if (exec->owner) /* it will buy when it comes again */
        exec->owner->paid = graph->class->make_us;
    lose_owner(rent, exec);
    if (exec->tenant)
        exec->tenant->exec = NULL;
    exec->tenant = graph;
    exec->changed |= exec->launches != graph->launches;
    exec->stay = 0;
    exec->used = rent->turns;
    graph->exec = exec;
}

struct rpi_rent_exec *rpi_rent_idle(struct rpi_rent *rent, struct rpi_rent_class *class)
{
    if (class->owners < class->graphs)
        return NULL;
    for (struct rpi_rent_exec *exec = class->execs; exec; exec = exec->next) {
        if (exec->owner || exec->pins)
            continue;
        rpi_rent_drop(rent, exec);
        return exec;
    }
    return NULL;
}

void rpi_rent_forget(struct rpi_rent *rent)
{
    assert(!rent->exec_count);
    rent->cost = rent->always = 0;
}

void rpi_rent_forget_class(struct rpi_rent_class *class)
{
    assert(!class->execs && !class->exec_count);
    class->seen = class->changed = false;
    class->last = NULL;
    class->visits = 0;
}

void rpi_rent_forget_graph(const struct rpi_rent *rent, struct rpi_rent_graph *graph)
{
    graph->paid = graph->heat = 0;
    count_anew(rent, graph);
}

/* ---- Room ---------------------------------------------------------------------------------- */

/* Does exec a go before b? That of less worth; of equals that for rent, or else the older. */
static bool goes_first(const struct rpi_rent_exec *a, double a_worth, const struct rpi_rent_exec *b,
                       double b_worth)
{
    if (a_worth != b_worth)
        return a_worth < b_worth;
    return !a->owner != !b->owner ? !a->owner : a->used < b->used;
}

/* needed: those that are needed too. */
static struct rpi_rent_exec *least_worth(const struct rpi_rent *rent,
                                         const struct rpi_rent_graph *graph, bool needed,
                                         double *out_worth)
{
    struct rpi_rent_exec *least = NULL;
    for (struct rpi_rent_class *class = rent->classes; class; class = class->next)
        for (struct rpi_rent_exec *exec = class->execs; exec; exec = exec->next) {
            if (exec->pins || exec->marked == rent->turns || (!needed && is_needed(exec, graph)))
                continue;
            double value = worth(rent, exec, graph);
            if (least && !goes_first(exec, value, least, *out_worth))
                continue;
            least = exec;
            *out_worth = value;
        }
    return least;
}

/* Marks what has to go so that an exec for the graph fits, and tells what that was worth together.
 * False when there is not enough. */
static bool find_room(struct rpi_rent *rent, const struct rpi_rent_graph *graph, bool needed,
                      double *out_worth)
{
    uint64_t bytes = rent->bytes, wanted = graph->class->bytes;
    size_t count = rent->exec_count;
    *out_worth = 0;
    while (count && (bytes > rent->budget || rent->budget - bytes < wanted)) {
        double value = 0;
        struct rpi_rent_exec *least = least_worth(rent, graph, needed, &value);
        if (!least)
            return false;
        least->marked = rent->turns;
        bytes -= least->class->bytes;
        count--;
        *out_worth += value;
    }
    return true;
}

static void forget_room(struct rpi_rent *rent)
{
    for (struct rpi_rent_class *class = rent->classes; class; class = class->next)
        for (struct rpi_rent_exec *exec = class->execs; exec; exec = exec->next)
            exec->marked = 0;
}

static bool has_room(const struct rpi_rent *rent, const struct rpi_rent_class *class)
{
    return !rent->exec_count ||
           (rent->bytes <= rent->budget && rent->budget - rent->bytes >= class->bytes);
}

struct rpi_rent_exec *rpi_rent_evict(struct rpi_rent *rent, const struct rpi_rent_graph *graph)
{
    if (has_room(rent, graph->class))
        return NULL;
    for (struct rpi_rent_class *class = rent->classes; class; class = class->next)
        for (struct rpi_rent_exec *exec = class->execs; exec; exec = exec->next) {
            if (exec->marked != rent->turns || exec->pins)
                continue;
            rpi_rent_drop(rent, exec);
            return exec;
        }
    return NULL;
}

/* ---- Choosing ------------------------------------------------------------------------------ */

/* What always updating would pay for this replay. */
static double price_always(struct rpi_rent_class *class, const struct rpi_rent_graph *graph)
{
    if (!class->seen) {
        class->seen = true;
        class->last = graph;
        class->launches = graph->launches;
        return class->make_us;
    }
    double price = class->last == graph ? 0 : class->update_us;
    class->last = graph;
    class->changed |= class->launches != graph->launches;
    return price + (class->changed ? graph->slow_us : 0);
}

static void count_turn(struct rpi_rent *rent, struct rpi_rent_graph *graph)
{
    struct rpi_rent_class *class = graph->class;
    bool first = !class->seen;
    rent->turns++;
    class->visits = cooled(rent, class->visits, class->visited) + 1;
    class->visited = rent->turns;
    double price = price_always(class, graph);
    rent->always += price;
    graph->heat = heat_of(rent, graph) + (first ? 0 : price);
    graph->heated = rent->turns;
    graph->due += first ? 0 : price;
}

static bool may_take(const struct rpi_rent *rent, const struct rpi_rent_graph *graph,
                     const struct rpi_rent_exec *exec, bool apart_too)
{
    if (exec->pins)
        return false;
    return apart_too || !rent->apart || !exec->tenant || !rent->apart(graph, exec->tenant);
}

/* Is a better to rent than b? One that is for rent and launches as the graph does, one that is for
 * rent, the one whose owner is coldest; of equals the one that was not used for longest. */
static bool is_better(const struct rpi_rent *rent, const struct rpi_rent_graph *graph,
                      const struct rpi_rent_exec *a, const struct rpi_rent_exec *b)
{
    if (!a->owner != !b->owner)
        return !a->owner;
    bool a_alike = !a->changed && a->launches == graph->launches;
    bool b_alike = !b->changed && b->launches == graph->launches;
    if (!a->owner && a_alike != b_alike)
        return a_alike;
    if (a->owner) {
        double a_heat = heat_of(rent, a->owner), b_heat = heat_of(rent, b->owner);
        if (a_heat != b_heat)
            return a_heat < b_heat;
    }
    return a->used < b->used;
}

static struct rpi_rent_exec *find_rental(const struct rpi_rent *rent,
                                         const struct rpi_rent_graph *graph, bool apart_too)
{
    struct rpi_rent_exec *best = NULL;
    for (struct rpi_rent_exec *exec = graph->class->execs; exec; exec = exec->next)
        if (may_take(rent, graph, exec, apart_too) && (!best || is_better(rent, graph, exec, best)))
            best = exec;
    return best;
}

/* May the graph buy, instead of paying `price` for renting `rental`? Marks what has to go. */
static bool buys(struct rpi_rent *rent, struct rpi_rent_graph *graph,
                 const struct rpi_rent_exec *rental, double price, double slow)
{
    double make = graph->class->make_us, lost = 0;
    if (price <= 0 || rent->never_buys)
        return false;
    if (rent->wanted <= rent->budget)
        return graph->paid + price > make && find_room(rent, graph, false, &lost) &&
               lost <= heat_of(rent, graph);
    if (rent->cost > rent->always)
        return false;
    bool saved = rent->cost + make <= rent->always;
    if (graph->due >= (saved ? SURE : SURE_ON_CREDIT) * make) {
        if (find_room(rent, graph, false, &lost) && graph->due >= SURE * (make + lost))
            return true;
        forget_room(rent);
        count_anew(rent, graph);
    }
    bool stays = rental == graph->exec && rental->stay + slow > make;
    if (!stays || rental->pins)
        return false;
    graph->exec->marked = rent->turns; /* made anew in place */
    return true;
}

static enum rpi_rent_way make(struct rpi_rent *rent, struct rpi_rent_graph *graph)
{
    rent->cost += graph->class->make_us;
    return RPI_RENT_MAKE;
}

/* There is nothing to rent: always updating has to make one too. */
static enum rpi_rent_way make_first(struct rpi_rent *rent, struct rpi_rent_graph *graph, bool seen)
{
    if (seen)
        rent->always += graph->class->make_us;
    return make(rent, graph);
}

enum rpi_rent_way rpi_rent_take(struct rpi_rent *rent, struct rpi_rent_graph *graph,
                                struct rpi_rent_exec **out_exec)
{
    assert(graph->class);
    struct rpi_rent_exec *held = graph->exec, *rental = held;
    bool seen = graph->class->seen, each = rent->budget == RPI_RENT_ONE_EACH;
    if (!held && !each) {
        rental = find_rental(rent, graph, false);
        if (!rental && !has_room(rent, graph->class))
            rental = find_rental(rent, graph, true);
    }
    double lost;
    rent->turns++; /* of marks, if it comes to a wait */
    bool wait = !rental && !find_room(rent, graph, true, &lost);
    if (wait)
        forget_room(rent);
    rent->turns--;
    if (wait)
        return RPI_RENT_WAIT;
    count_turn(rent, graph);
    if (!rental)
        return make_first(rent, graph, seen);
    *out_exec = rental;
    rental->used = rent->turns;
    if (rental->owner == graph)
        return RPI_RENT_HELD;
    bool changes = rental->changed || rental->launches != graph->launches;
    double slow = changes ? graph->slow_us : 0;
    double price = slow + (held ? 0 : graph->class->update_us);
    if (buys(rent, graph, rental, price, slow))
        return make(rent, graph);
    rent->cost += price;
    graph->paid += price;
    if (!held)
        return RPI_RENT_UPDATE;
    held->stay += slow;
    return RPI_RENT_HELD;
}

enum rpi_rent_way rpi_rent_take_anew(struct rpi_rent *rent, struct rpi_rent_graph *graph)
{
    double lost;
    if (!find_room(rent, graph, true, &lost)) {
        forget_room(rent);
        return RPI_RENT_WAIT;
    }
    return make_first(rent, graph, true);
}

bool rpi_rent_wants_first(struct rpi_rent *rent, struct rpi_rent_graph *graph)
{
    struct rpi_rent_class *class = graph->class;
    bool each = rent->budget == RPI_RENT_ONE_EACH;
    if (!each && (class->exec_count || !has_room(rent, class)))
        return false;
    rent->cost += class->make_us;
    rent->always += class->seen ? class->make_us : price_always(class, graph);
    return true;
}
