/* SPDX-License-Identifier: MIT
 *
 * Who reads whom: which kept blocks of earlier graphs of its sequence a graph's nodes name, and
 * whether these blocks hold what the graph may expect when it is replayed.
 *
 *     writer     the graph whose block it is
 *     reader     one whose node parameters hold an address in the block; it may write there as well
 *     changer    a reader between writer and reader in the order of the sequence that changes the
 *                block, and is not followed by another such: by a copy or fill into it, or, where
 *                the pool is strict, by any kernel that names it
 *                A block of a graph that others replay (adopt.c) has no writer here: it is
 *                memory of the program's
 *     source     blocks of one writer that lie side by side and have the same changers. Where
 *                kept blocks of several alternatives hold an address, any of them will do
 *
 * A reader may be replayed when of each of its sources
 *
 *     1. the writer has been replayed, and lives;
 *     2. nothing else has written there since: no replay of a graph whose memory lies over it;
 *     3. each changer has been replayed since, or an alternative of it.
 *
 * For 2 every replay stamps the memory that it writes with its turn (write_stamps.h), where
 * anybody reads: the latest stamp on a source must be that of its writer's last replay. So a replay
 * pays for its own joined ranges and sources, however many graphs the pool has, and nothing where
 * no graph reads another's block.
 *
 * Guarded by the core's lock, all of it; rpi_reads_find and rpi_reads_take take it themselves.
 */
#ifndef REPRISE_GRAPH_OBJECTS_READS_H
#define REPRISE_GRAPH_OBJECTS_READS_H

#include "base/status.h"
#include "base/vec.h"
#include "memory/range/write_stamps.h"

struct rp_graph;
struct rp_pool;

/* What a node does to a block that it names, as far as that is known. */
enum rpi_touch {
    RPI_TOUCH_READS,   /* the source of a copy */
    RPI_TOUCH_UNKNOWN, /* a kernel */
    RPI_TOUCH_WRITES   /* a copy or fill into it */
};

/* A graph that may be destroyed before those who refer to it: then `graph` is NULL, and the rest
 * tells what it was. */
struct rpi_reads_party {
    struct rp_graph *graph;
    char *name;       /* of a destroyed one; NULL also for want of memory */
    uint64_t written; /* of a destroyed one: turn of its last whole replay */
};

struct rpi_reads_block {
    uint32_t block;  /* of the writer */
    uint32_t node;   /* the first that names it */
    uint32_t source; /* that it is part of */
    enum rpi_touch touch;
};

struct rpi_source {
    struct rpi_reads_party writer;
    struct rpi_range range; /* in the pool */
    struct rpi_write_span span;
    uint32_t first_block, block_count;
    uint32_t first_changer, changer_count;
    bool or_next; /* the next source would do as well: its writer is an alternative of this one, and
                     nothing tells which of the two is meant */
};

struct rpi_reads {
    struct {
        RPI_VEC(struct rpi_source);
    } sources;
    struct {
        RPI_VEC(struct rpi_reads_block);
    } blocks;
    struct {
        RPI_VEC(struct rpi_reads_party);
    } changers;
    struct {
        RPI_VEC(struct rpi_write_span);
    } covers;         /* the watched segments that the graph's own memory lies on */
    uint64_t serial;  /* number of the graph in its core */
    uint64_t written; /* turn of its last whole replay; 0: none */
    bool spoiled;     /* a graph that is no more wrote over some of its kept blocks */
    char *overwriter; /* the last of those; NULL also for want of memory */
    struct rp_graph *previous, *next; /* readers of the core */
    bool listed;
};

/* Of a core. */
struct rpi_readers {
    struct rp_graph *first;
    struct rpi_write_stamps stamps;
    bool stale; /* the stamps have to be made anew before they are used */
};
void rpi_readers_finish(struct rpi_readers *readers); /* allowed on zeroed ones */

/* ---- While a graph is captured ------------------------------------------------------------- */

/* An address in a record that is no block of the capture's own. */
struct rpi_foreign {
    enum {
        RPI_FOREIGN_UNKNOWN, /* in no memory of the library's pools, or in the program's hands */
        RPI_FOREIGN_KEPT,    /* in a kept block of an earlier graph of the capture's sequence */
        RPI_FOREIGN_REFUSED  /* elsewhere in the memory of a pool */
    } kind;
    char text[192]; /* REFUSED: "block 3 of graph 'a', which it frees" */
};
void rpi_reads_find(const struct rp_pool *pool, uint64_t address, struct rpi_foreign *out_foreign);

struct rpi_foreign_use {
    uint64_t offset; /* in the pool */
    uint32_t node;
    enum rpi_touch touch;
};
struct rpi_foreign_uses {
    RPI_VEC(struct rpi_foreign_use);
};

/* The graph in the making is a reader from now on, where there is any use. Sorts the uses.
 * RP_ERROR_CAPTURE where a writer was destroyed meanwhile. */
rp_status rpi_reads_take(struct rp_graph *graph, struct rpi_foreign_uses *uses,
                         struct rp_error *err);
/* It is no reader any more. Takes the core's lock where it was one. */
void rpi_reads_finish(struct rp_graph *graph);

/* ---- With the core's lock held ------------------------------------------------------------- */

/* The graph was added to its pool. */
void rpi_reads_added(struct rp_graph *graph);
/* It is about to be removed and destroyed: waits for those who read its blocks; they refuse from
 * now on. The context is current. */
void rpi_reads_removed(struct rp_graph *graph);

/* A walker, for tests and debug builds: is every reader listed once, and are its blocks, sources
 * and changers in their places, each in a block that its writer keeps? */
bool rpi_readers_are_valid(const struct rp_pool *pool);

/* It is no reader any more. */
void rpi_reads_delist(struct rp_graph *graph);

/* May it be replayed? RP_ERROR_CONTRACT names both graphs, the block, and what to do. */
rp_status rpi_reads_check(struct rp_graph *graph, struct rp_error *err);
/* It was replayed in the member's turn; whole: all of it was enqueued. */
void rpi_reads_done(struct rp_graph *graph, bool whole);

#endif
