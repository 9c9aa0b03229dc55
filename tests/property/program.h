/* SPDX-License-Identifier: MIT
 *
 * Random programs: what they are, how one is drawn from a seed, what it computes, and its text.
 *
 * A program allocates blocks of floats on several streams, writes, reads and changes them from any
 * of them, lets streams wait for each other, and frees. Each stream has an accumulator; reading a
 * block adds it there; the output is the sum of all accumulators. Values are small whole numbers,
 * and every sum is made in the order of the program, so results are equal to the bit.
 *
 * Blocks 0 and 1 are the arguments that are read (in) and changed (inout); they are never freed.
 * A program runs many times: as a rehearsal, as a record, and eagerly. Two of its parts may differ
 * between rehearsal and record: when a free comes, and how many bytes an allocation asks for beyond
 * what is used.
 */
#ifndef TESTS_PROPERTY_PROGRAM_H
#define TESTS_PROPERTY_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    STREAMS = 5,      /* the one that a callable is given, and four more */
    WIDTH = 64,       /* floats of an accumulator, an argument, and the largest block's used part */
    STEPS_MOST = 160, /* so many operations, and so many blocks */
    BLOCK_IN = 0,
    BLOCK_INOUT = 1,
    BLOCKS_FIRST = 2,
    BLOCKS_MOST = STEPS_MOST + BLOCKS_FIRST,
    NEVER = 1000000, /* steps after which something comes that never does */
};

enum op_kind {
    OP_FILL,   /* block = value, by a kernel */
    OP_MEMSET, /* block = value, by a memset */
    OP_SCALE,  /* block = -from[0] */
    OP_COPY,   /* block = from[0], by a copy */
    OP_ADD,    /* block = from[0] + from[1] */
    OP_CHILD,  /* block = value, then block += from[0], in a child graph */
    OP_EMPTY,  /* block of no bytes */
    OP_READ,   /* accumulator of the stream += value * from[0] */
    OP_UPDATE, /* block += value * from[0], block being there already */
    OP_FREE,   /* block */
    OP_JOIN,   /* stream waits for other */
    OP_HOST,   /* a host function on the stream */
    OP_KINDS
};

struct op {
    enum op_kind kind;
    int stream, other; /* other: that a join waits for, or that the stream is forked from */
    int block, from[2];
    uint32_t count; /* floats that are used */
    float value;
    uint32_t pad[2]; /* bytes asked for beyond them, in the rehearsal and in the record */
    int delay[2];    /* steps by which a free comes later, in the rehearsal and in the record */
    bool early;      /* asks for memory before its stream has become part of the capture */
};

/* How the record of a program differs from its rehearsal. */
enum difference {
    SAME,       /* not at all: every block goes where it was planned */
    LATE_FREES, /* frees come later, or never, in one of them */
    OTHER_SIZES /* nearly all blocks have other sizes: they are placed online */
};

struct program {
    uint64_t seed;
    enum difference difference;
    bool events; /* streams wait for the event of a block's last write, not for all of a stream */
    int streams, count;
    struct op ops[STEPS_MOST];
};

struct arguments {
    float in[WIDTH], inout[WIDTH], out[WIDTH];
};

uint64_t next_random(uint64_t *state);
int below(uint64_t *state, int limit);

bool op_makes_block(enum op_kind kind);
/* How many blocks it reads as from[]. */
int op_sources(enum op_kind kind);

void program_generate(struct program *p, uint64_t seed);
/* What the arguments are after it, on a plain processor where every block has memory of its own. */
void program_expect(const struct program *p, struct arguments *args);
void program_print(const struct program *p, FILE *file);

#endif
