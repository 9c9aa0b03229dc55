/* SPDX-License-Identifier: MIT
 *
 * The generator keeps to what a correct program may do: it reads and changes living blocks only,
 * and values stay below 2^20, far from where floats stop being whole numbers.
 */
#include "property/program.h"

#include <string.h>

uint64_t next_random(uint64_t *state)
{
    /* splitmix64 (Steele, Lea and Flood 2014) */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int below(uint64_t *state, int limit)
{
    return (int)(next_random(state) % (uint64_t)limit);
}

bool op_makes_block(enum op_kind kind)
{
    return kind <= OP_EMPTY;
}

int op_sources(enum op_kind kind)
{
    switch (kind) {
    case OP_SCALE:
    case OP_COPY:
    case OP_CHILD:
    case OP_READ:
    case OP_UPDATE:
        return 1;
    case OP_ADD:
        return 2;
    default:
        return 0;
    }
}

/* ---- Drawing one --------------------------------------------------------------------------- */

struct drawing {
    struct program *p;
    uint64_t random;
    int blocks;            /* made so far, the arguments included */
    int live[BLOCKS_MOST]; /* those that may be read */
    int alive;
    uint32_t counts[BLOCKS_MOST];
    float most[BLOCKS_MOST]; /* no value of the block is larger */
    int empty[BLOCKS_MOST];  /* blocks of no bytes that are not freed */
    int empties;
    int frees_percent;
};

#define MOST_VALUE 1048576.0f

static int draw(struct drawing *d, int limit)
{
    return below(&d->random, limit);
}

static int some_block(struct drawing *d)
{
    return d->live[draw(d, d->alive)];
}

/* Sizes in bytes beyond what is used: mostly none, now and then many. */
static uint32_t some_pad(struct drawing *d)
{
    switch (draw(d, 8)) {
    case 0:
        return (uint32_t)draw(d, 16384);
    case 1:
    case 2:
        return (uint32_t)draw(d, 1024);
    default:
        return 0;
    }
}

static void draw_pads(struct drawing *d, struct op *op)
{
    op->pad[0] = op->pad[1] = some_pad(d);
    if (d->p->difference == OTHER_SIZES)
        op->pad[draw(d, 2)] += 1 + (uint32_t)draw(d, 2048);
}

static void draw_empty(struct drawing *d, struct op *op)
{
    op->kind = OP_EMPTY;
    op->block = d->blocks++;
    d->empty[d->empties++] = op->block;
}

static void draw_make(struct drawing *d, struct op *op)
{
    static const enum op_kind kinds[] = {OP_FILL,  OP_FILL, OP_MEMSET, OP_SCALE,
                                         OP_SCALE, OP_COPY, OP_ADD,    OP_CHILD};
    op->kind = kinds[draw(d, (int)(sizeof kinds / sizeof *kinds))];
    op->count = 1 + (uint32_t)draw(d, WIDTH);
    op->early = draw(d, 4) == 0;
    float most = op->value;
    for (int i = 0; i < op_sources(op->kind); i++) {
        op->from[i] = some_block(d);
        most += d->most[op->from[i]];
        if (op->count > d->counts[op->from[i]])
            op->count = d->counts[op->from[i]];
    }
    if (most > MOST_VALUE) {
        op->kind = OP_FILL;
        most = op->value;
    }
    op->block = d->blocks++;
    d->counts[op->block] = op->count;
    d->most[op->block] = most;
    d->live[d->alive++] = op->block;
    draw_pads(d, op);
}

static void draw_use(struct drawing *d, struct op *op)
{
    op->from[0] = some_block(d);
    op->count = d->counts[op->from[0]];
    op->kind = OP_READ;
    op->block = some_block(d);
    float most = d->most[op->block] + op->value * d->most[op->from[0]];
    if (draw(d, 3) || op->block == BLOCK_IN || op->block == op->from[0] || most > MOST_VALUE)
        return;
    op->kind = OP_UPDATE;
    d->most[op->block] = most;
    if (op->count > d->counts[op->block])
        op->count = d->counts[op->block];
}

static void draw_delay(struct drawing *d, struct op *op)
{
    if (d->p->difference == SAME || draw(d, 3) > 0)
        return;
    int *delay = &op->delay[draw(d, 4) > 0]; /* the record's, most often */
    *delay = draw(d, 3) ? 1 + draw(d, 20) : NEVER;
}

static bool draw_free(struct drawing *d, struct op *op)
{
    op->kind = OP_FREE;
    if (d->empties && draw(d, 4) == 0) {
        op->block = d->empty[--d->empties];
    } else {
        int victim = draw(d, d->alive);
        op->block = d->live[victim];
        if (op->block < BLOCKS_FIRST)
            return false;
        d->live[victim] = d->live[--d->alive];
    }
    draw_delay(d, op);
    return true;
}

static struct op draw_op(struct drawing *d)
{
    for (;;) {
        struct op op = {.stream = draw(d, d->p->streams),
                        .other = draw(d, d->p->streams),
                        .value = (float)(1 + draw(d, 9))};
        int what = draw(d, 100);
        if (what < d->frees_percent) {
            if (!draw_free(d, &op))
                continue;
        } else if (what < 60) {
            draw_make(d, &op);
        } else if (what < 62) {
            draw_empty(d, &op);
        } else if (what < 85) {
            draw_use(d, &op);
        } else if (what < 97) {
            op.kind = OP_JOIN;
        } else {
            op.kind = OP_HOST;
        }
        return op;
    }
}

void program_generate(struct program *p, uint64_t seed)
{
    static const enum difference differences[] = {SAME, SAME, LATE_FREES, OTHER_SIZES};
    struct drawing d = {.p = p, .random = seed, .blocks = BLOCKS_FIRST, .alive = BLOCKS_FIRST};
    *p = (struct program){.seed = seed};
    for (int i = 0; i < BLOCKS_FIRST; i++) {
        d.live[i] = i;
        d.counts[i] = WIDTH;
        d.most[i] = 256; /* arguments are smaller */
    }
    p->difference = differences[draw(&d, 4)];
    p->events = draw(&d, 2);
    p->streams = 1 + draw(&d, STREAMS);
    d.frees_percent = 22 + draw(&d, 20);
    int count = 4 + draw(&d, STEPS_MOST - 4);
    while (p->count < count)
        p->ops[p->count++] = draw_op(&d);
}

/* ---- On the processor ---------------------------------------------------------------------- */

struct memory {
    float blocks[BLOCKS_MOST][WIDTH], sums[STREAMS][WIDTH];
};

static void do_op(struct memory *m, const struct op *op)
{
    float *to = m->blocks[op->block];
    const float *a = m->blocks[op->from[0]], *b = m->blocks[op->from[1]];
    for (uint32_t k = 0; k < op->count; k++) {
        switch (op->kind) {
        case OP_FILL:
        case OP_MEMSET:
            to[k] = op->value;
            break;
        case OP_SCALE:
            to[k] = a[k] * -1.0f;
            break;
        case OP_COPY:
            to[k] = a[k];
            break;
        case OP_ADD:
            to[k] = a[k] + b[k];
            break;
        case OP_CHILD:
            to[k] = 1.0f * a[k] + op->value;
            break;
        case OP_READ:
            m->sums[op->stream][k] = op->value * a[k] + m->sums[op->stream][k];
            break;
        case OP_UPDATE:
            to[k] = op->value * a[k] + to[k];
            break;
        default:
            break;
        }
    }
}

void program_expect(const struct program *p, struct arguments *args)
{
    static struct memory m;
    memset(&m, 0, sizeof m);
    memcpy(m.blocks[BLOCK_IN], args->in, sizeof args->in);
    memcpy(m.blocks[BLOCK_INOUT], args->inout, sizeof args->inout);
    for (int i = 0; i < p->count; i++)
        do_op(&m, &p->ops[i]);
    memcpy(args->inout, m.blocks[BLOCK_INOUT], sizeof args->inout);
    for (uint32_t k = 0; k < WIDTH; k++) {
        args->out[k] = 0;
        for (int s = 0; s < p->streams; s++)
            args->out[k] = 1.0f * m.sums[s][k] + args->out[k];
    }
}

/* ---- As text ------------------------------------------------------------------------------- */

static const char *const kind_names[OP_KINDS] = {
    [OP_FILL] = "fill",     [OP_MEMSET] = "memset", [OP_SCALE] = "scale", [OP_COPY] = "copy",
    [OP_ADD] = "add",       [OP_CHILD] = "child",   [OP_EMPTY] = "empty", [OP_READ] = "read",
    [OP_UPDATE] = "update", [OP_FREE] = "free",     [OP_JOIN] = "join",   [OP_HOST] = "host",
};

static void print_delay(int delay, const char *where, FILE *file)
{
    if (delay == NEVER)
        fprintf(file, ", never in the %s", where);
    else if (delay)
        fprintf(file, ", %d steps later in the %s", delay, where);
}

static void print_op(const struct op *op, FILE *file)
{
    fprintf(file, "stream %d: %s", op->stream, kind_names[op->kind]);
    if (op->kind == OP_JOIN)
        fprintf(file, " stream %d", op->other);
    if (op_makes_block(op->kind) || op->kind == OP_UPDATE || op->kind == OP_FREE)
        fprintf(file, " b%d", op->block);
    for (int i = 0; i < op_sources(op->kind); i++)
        fprintf(file, "%s b%d", i ? " and" : " from", op->from[i]);
    if (op->count)
        fprintf(file, ", %u floats, value %g", op->count, (double)op->value);
    if (op->pad[0] || op->pad[1])
        fprintf(file, ", %u / %u bytes more", op->pad[0], op->pad[1]);
    if (op->early)
        fprintf(file, ", memory before a fork from stream %d", op->other);
    print_delay(op->delay[0], "rehearsal", file);
    print_delay(op->delay[1], "record", file);
    fprintf(file, "\n");
}

void program_print(const struct program *p, FILE *file)
{
    static const char *const differences[] = {
        [SAME] = "the same in rehearsal and record",
        [LATE_FREES] = "frees that come later in rehearsal or record",
        [OTHER_SIZES] = "other sizes in rehearsal and record",
    };
    fprintf(file, "program %llu: %d streams, waits for %s, %s; b0 is in, b1 is inout\n",
            (unsigned long long)p->seed, p->streams, p->events ? "events" : "streams",
            differences[p->difference]);
    for (int i = 0; i < p->count; i++) {
        fprintf(file, "%4d  ", i);
        print_op(&p->ops[i], file);
    }
}
