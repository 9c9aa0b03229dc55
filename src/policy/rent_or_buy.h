/* SPDX-License-Identifier: MIT
 *
 * Rent or buy: which exec a graph is launched with. The rule alone, without a driver: the cache of
 * execs asks it and does what it says, tests and benchmarks ask it under prices of their own.
 *
 *     class     graphs of one topology: an exec of one can be updated to any other
 *     rent      take an exec of the class by updating it. Costs the update, and at every replay the
 *               penalty of an exec whose functions or grids were updated (none where all of the
 *               class launch alike)
 *     buy       make an exec for this graph: costs more now and nothing after
 *     owner     the graph that an exec was made for, until another one takes it
 *     heat      what a graph would have cost lately without an exec of its own: halved every
 *               RPI_RENT_MEMORY replays for each graph
 *
 * Two other ways are the measure: *one each* makes an exec for every graph at its first replay;
 * *always update* makes one for each class and updates it whenever another graph comes.
 *
 * Where the budget holds an exec for every graph: rent until the rent paid since the graph last had
 * an exec of its own would exceed the price of one, then buy (Karlin, Manasse, Rudolph and Sleator,
 * Competitive snoopy caching, 1988). A graph whose exec is taken counts as having paid its price.
 * So each graph costs at most twice the cheaper of its rents and its price, and the whole at most
 * twice the cheaper of the two other ways, whatever is replayed. (Only a graph that joins a class
 * in which all others have their own adds one more price: it takes an exec from one of them.)
 *
 * Where it does not, an exec may be lost before it has paid. A graph buys when always updating
 * would have paid twice the price for it, since it last asked or had an exec of its own, and twice
 * the worth of what has to go: the heat of its owner, or nothing where that did not come in all
 * this time. A graph that stays the tenant of an exec until the penalties of this stay exceed the
 * price has it made anew in place. Both only while all that was done so far cost no more than
 * always updating would have, and for eight prices instead of two where what was saved does not
 * cover the price. So the whole never costs more than always updating plus the price of one exec,
 * whatever is replayed, as long as there is room for one exec of each class.
 *
 * Not synchronised. Prices are microseconds.
 */
#ifndef REPRISE_POLICY_RENT_OR_BUY_H
#define REPRISE_POLICY_RENT_OR_BUY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPI_RENT_ONE_EACH UINT64_MAX /* a budget: every graph has an exec of its own, at once */

enum { RPI_RENT_MEMORY = 64 };

struct rpi_rent_graph;

struct rpi_rent_exec {
    struct rpi_rent_class *class;
    struct rpi_rent_graph *owner;  /* NULL: it is for rent */
    struct rpi_rent_graph *tenant; /* whose graph it holds; NULL: one that has left */
    uint64_t launches;             /* those of the graph that it was made for */
    bool changed;                  /* to other ones at least once: slower from then on */
    _Atomic unsigned pins;         /* the caller's: nobody may take it while there are any */
    double stay;                   /* penalties since the tenant came */
    uint64_t used;                 /* turn */
    uint64_t marked;               /* turn; to be evicted in this one */
    struct rpi_rent_exec *previous, *next; /* in the class */
};

struct rpi_rent_class {
    uint64_t bytes;            /* of one exec */
    double make_us, update_us; /* prices, as the caller knows them now */
    struct rpi_rent_exec *execs;
    size_t exec_count, graphs, owners;
    double visits; /* replays lately, as heat */
    uint64_t visited;
    /* What always updating would have: */
    bool seen;                         /* its exec was made */
    const struct rpi_rent_graph *last; /* its tenant; compared only */
    uint64_t launches;                 /* of the graph it was made for */
    bool changed;
    struct rpi_rent_class *previous, *next; /* in the rule */
};

struct rpi_rent_graph {
    struct rpi_rent_class *class;
    uint64_t launches; /* tells functions and grids: equal where an update changes none */
    double slow_us;    /* penalty of a replay by a changed exec, as the caller knows it now */
    struct rpi_rent_exec *exec; /* that it is the tenant of; NULL: none */
    double paid;                /* rent since it last had an exec of its own */
    double due;                 /* what always updating would have paid for it since then */
    uint64_t since;             /* that turn */
    double heat;
    uint64_t heated; /* turn of heat */
};

struct rpi_rent {
    uint64_t budget; /* bytes; the first exec is made whatever it takes */
    uint64_t bytes;  /* of all execs */
    uint64_t wanted; /* of one exec for each graph */
    size_t graphs, exec_count;
    uint64_t turns;
    double cost, always; /* what was spent so far, and what always updating would have */
    bool never_buys;     /* always update: the measure, not the rule */
    struct rpi_rent_class *classes;
    /* May the two be in flight at the same time? Then they share an exec only where there is no
     * room for two. NULL: no two. */
    bool (*apart)(const struct rpi_rent_graph *a, const struct rpi_rent_graph *b);
};

/* A graph comes or goes. class is zeroed but for bytes when its first graph comes. What a graph
 * that goes was the tenant of stays, for rent. */
void rpi_rent_join(struct rpi_rent *rent, struct rpi_rent_class *class,
                   struct rpi_rent_graph *graph);
void rpi_rent_leave(struct rpi_rent *rent, struct rpi_rent_graph *graph);

enum rpi_rent_way {
    RPI_RENT_HELD,   /* launch out_exec as it is */
    RPI_RENT_UPDATE, /* rpi_rent_lend, and update out_exec to the graph */
    RPI_RENT_MAKE,   /* rpi_rent_evict until that is NULL, rpi_rent_add, and make the exec */
    RPI_RENT_WAIT    /* everything that could serve is pinned; nothing was counted */
};

/* All execs are gone, and what was paid for them is forgotten: the books of the whole, of a class
 * and of a graph. */
void rpi_rent_forget(struct rpi_rent *rent);
void rpi_rent_forget_class(struct rpi_rent_class *class);
void rpi_rent_forget_graph(const struct rpi_rent *rent, struct rpi_rent_graph *graph);

/* The graph is replayed: the turn is counted, its price too. */
enum rpi_rent_way rpi_rent_take(struct rpi_rent *rent, struct rpi_rent_graph *graph,
                                struct rpi_rent_exec **out_exec);
/* The exec that the rule gave could not be updated and is gone: RPI_RENT_MAKE or RPI_RENT_WAIT. */
enum rpi_rent_way rpi_rent_take_anew(struct rpi_rent *rent, struct rpi_rent_graph *graph);
/* Is an exec to be made for the graph before it is replayed? Where each has its own, and where the
 * class has none yet and the budget has room. Counted when true. */
bool rpi_rent_wants_first(struct rpi_rent *rent, struct rpi_rent_graph *graph);

void rpi_rent_lend(struct rpi_rent *rent, struct rpi_rent_graph *graph, struct rpi_rent_exec *exec);
/* exec is zeroed. */
void rpi_rent_add(struct rpi_rent *rent, struct rpi_rent_graph *graph, struct rpi_rent_exec *exec);
/* Takes out an exec: one that has to go so that there is room for the graph's, by the last
 * rpi_rent_take; NULL when there is room. */
struct rpi_rent_exec *rpi_rent_evict(struct rpi_rent *rent, const struct rpi_rent_graph *graph);
/* Takes out an exec of the class that nobody will rent, as all of its graphs have their own; NULL
 * when there is none. */
struct rpi_rent_exec *rpi_rent_idle(struct rpi_rent *rent, struct rpi_rent_class *class);
/* Takes out this one. */
void rpi_rent_drop(struct rpi_rent *rent, struct rpi_rent_exec *exec);

/* A walker, for tests and debug builds: do the lists, counts and sums agree? */
bool rpi_rent_is_valid(const struct rpi_rent *rent);

#endif
