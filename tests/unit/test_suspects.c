/* SPDX-License-Identifier: MIT
 *
 * Numbers that are computed from scalars, in structs with padding, on the host driver: whatever the
 * padding beside them holds, a capture that would freeze one is refused. Structs are random; the
 * rubbish is nothing, constant, in turn, random, an address of any kind, or half of one.
 */
#include "graph_fixture.h"

#include "graph/capture/suspects.h"
#include "reprise_framework.h"

#include <stdlib.h>

enum { STRUCTS = 6000, TURNS = 8, SETS = 2 };
enum { WORD = 8, FREE_WORDS = 2, FREE_BYTES = WORD * FREE_WORDS }; /* behind and before a pointer */

static const double sets[SETS] = {0.377381, 0.583914};
static const unsigned turns[TURNS] = {0, 1, 1, 0, 1, 0, 0, 1}; /* as the package has them */

enum kind { IMAGE, COMPUTED, CONSTANT, PADDING, KINDS };

struct cell {
    enum kind kind;
    uint32_t offset, bytes;
    unsigned way; /* how it is computed, or what it holds */
    uint64_t base;
};

struct subject {
    const struct rpt_fixture *f;
    CUdeviceptr memory;
    void *heap;
    uint64_t first_block; /* of the rehearsal */
    uint64_t random;
    unsigned runs;
    struct cell cells[FREE_BYTES];
    size_t count;
};

static uint64_t draw(struct subject *subject)
{
    uint64_t x = subject->random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* An address of the device's or of the host's. */
static uint64_t address(struct subject *subject, unsigned way, uint64_t argument)
{
    const uint64_t addresses[] = {argument, subject->first_block, subject->memory,
                                  (uint64_t)(uintptr_t)subject->heap,
                                  (uint64_t)(uintptr_t)&subject};
    return addresses[way % (sizeof addresses / sizeof *addresses)];
}

/* ---- What stands in cells ------------------------------------------------------------------ */

static uint64_t bits_of(double x, uint32_t bytes)
{
    uint64_t bits = 0;
    float rounded = (float)x;
    memcpy(&bits, bytes == sizeof x ? (void *)&x : (void *)&rounded,
           bytes == sizeof x ? sizeof x : sizeof rounded);
    return bits;
}

/* Plain, near one, tiny, of few digits, whole, a step, or whole and not far from an address. */
static uint64_t compute(struct cell *cell, double x)
{
    enum { WAYS = 8, SHORT = 0xffff0000 };
    bool real = cell->bytes >= sizeof(float);
    switch (cell->way % WAYS) {
    case 0:
        return real ? bits_of(x / 15, cell->bytes) : (uint64_t)(x * 200);
    case 1:
        return real ? bits_of(1 + x / 4096, cell->bytes) : (uint64_t)(x * 100);
    case 2:
        return real ? bits_of(x * 1e-12, cell->bytes) : (uint64_t)(256 * x);
    case 3:
        return real ? bits_of(x * x, 4) & SHORT : (uint64_t)(255 - 77 * x);
    case 4:
        return (uint64_t)(x * 100);
    case 5:
        return (uint64_t)(2 * x); /* the same in two turns of three */
    case 6:
        return cell->bytes == WORD ? bits_of((float)(x * x), WORD) : (uint64_t)(x * 111);
    default:
        return cell->base + (uint64_t)(x * 64);
    }
}

static uint64_t leave(struct subject *subject, const struct cell *cell, uint64_t argument)
{
    enum { WAYS = 9, IN_TURN = 7 };
    uint64_t random = draw(subject);
    switch (cell->way % WAYS) {
    case 0:
        return 0;
    case 1:
        return cell->base;
    case 2:
        return random;
    case 3:
        return subject->runs % 2 ? cell->base : random >> 32;
    case 4: /* the upper half, or all, of an address */
        return address(subject, (unsigned)cell->base, argument) >> (cell->bytes == WORD ? 0 : 32);
    case 5:
        return address(subject, (unsigned)random, argument) >> (random >> 63 ? 32 : 0);
    case 6:
        return subject->runs * 3 + cell->base;
    case IN_TURN: /* with the numbers, but for now and then */
        return random % 4 ? cell->base * (1 + turns[subject->runs % TURNS]) : random;
    default:
        return address(subject, (unsigned)cell->base, argument) + (random & 0xfff0);
    }
}

static uint64_t hold(struct subject *subject, struct cell *cell, double factor, uint64_t argument)
{
    enum { FORMS = 3 };
    switch (cell->kind) {
    case IMAGE:
        return cell->bytes == WORD
                   ? bits_of(cell->way % 2 ? -factor : factor, WORD)
                   : bits_of(cell->way % FORMS == 0 ? -factor : factor, sizeof(float));
    case COMPUTED:
        return compute(cell, factor);
    case PADDING:
        return leave(subject, cell, argument);
    default:
        return cell->base;
    }
}

static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    double factor = sets[turns[subject->runs % TURNS]];
    uint64_t argument = rp_call_arg(call, 0);
    unsigned char bytes[FREE_BYTES] = {0};
    struct rpt_padded_param param;
    void *params[] = {&param};
    if (!subject->first_block)
        subject->first_block = argument;
    for (size_t i = 0; i < subject->count; i++) {
        struct cell *cell = &subject->cells[i];
        uint64_t word = hold(subject, cell, factor, argument);
        memcpy(bytes + cell->offset, &word, cell->bytes);
    }
    subject->runs++;
    memcpy(&param, bytes, WORD);
    param.to = (uint32_t *)(uintptr_t)argument;
    memcpy((char *)&param + offsetof(struct rpt_padded_param, index), bytes + WORD, WORD);
    rp_status status =
        rpt_launch(subject->f, subject->f->padded, rp_call_stream(call), params, err);
    return status == RP_OK ? rp_call_scalar(call, factor, err) : status;
}

/* ---- Structs ------------------------------------------------------------------------------- */

/* Cells of 1, 2, 4 or 8 bytes, aligned to their size. */
static void make_cells(struct subject *subject, bool computes)
{
    subject->count = 0;
    for (uint32_t offset = 0; offset < FREE_BYTES;) {
        uint32_t bytes = 1u << draw(subject) % 4;
        while (offset % bytes)
            bytes /= 2;
        enum kind kind = (enum kind)(draw(subject) % KINDS);
        if ((kind == IMAGE && bytes < sizeof(float)) || (kind == COMPUTED && !computes) ||
            (kind == COMPUTED && bytes == 1 && offset % 4 == 3))
            kind = PADDING; /* the last byte of 4 is no number with padding ahead */
        struct cell cell = {kind, offset, bytes, (unsigned)draw(subject), draw(subject)};
        if (kind == COMPUTED) /* beside padding that makes a whole address of it */
            cell.base = address(subject, cell.way >> 8, subject->first_block);
        if (kind == PADDING && bytes == sizeof(float) && subject->count &&
            subject->cells[subject->count - 1].kind == COMPUTED && draw(subject) % 2) {
            cell.way = 1;
            cell.base = subject->cells[subject->count - 1].base >> 32;
        }
        subject->cells[subject->count++] = cell;
        offset += bytes;
    }
}

/* Do the two runs of an attempt hold different numbers that were computed? */
static bool differs(struct subject *subject)
{
    for (size_t i = 0; i < subject->count; i++) {
        struct cell *cell = &subject->cells[i];
        uint64_t first = compute(cell, sets[0]), second = compute(cell, sets[1]);
        if (cell->kind == COMPUTED && memcmp(&first, &second, cell->bytes) != 0)
            return true;
    }
    return false;
}

static rp_status capture(struct subject *subject)
{
    struct rp_graph *graph = NULL;
    struct rp_arg arg = rpt_arg(subject->memory, 1, RP_ARG_OUT);
    struct rpt_fixture *f = (struct rpt_fixture *)subject->f;
    subject->runs = 0;
    rp_status status = rp_graph_capture(f->pool, NULL, work, subject, &arg, 1, &graph, &f->err);
    rp_graph_destroy(graph);
    return status;
}

static void init(struct subject *subject, struct rpt_fixture *f)
{
    *subject = (struct subject){.f = f, .heap = malloc(1 << 20)};
    assert_non_null(subject->heap);
    assert_int_equal(f->driver->cuMemAlloc(&subject->memory, 256), 0);
    RPT_OK(f, capture(subject)); /* gives first_block */
}

static void finish(struct subject *subject)
{
    subject->f->driver->cuMemFree(subject->memory);
    free(subject->heap);
}

static void numbers_that_differ_are_never_frozen(void **state)
{
    struct subject subject;
    unsigned refused = 0;
    init(&subject, *state);
    for (unsigned i = 0; i < STRUCTS; i++) {
        subject.random = i;
        make_cells(&subject, true);
        rp_status status = capture(&subject);
        if (status == RP_OK && differs(&subject))
            fail_msg("struct %u was captured in %u runs", i, subject.runs);
        refused += status == RP_ERROR_DIVERGED;
    }
    finish(&subject);
    assert_in_range(refused, STRUCTS / 2, STRUCTS);
}

/* Padding follows the numbers by chance, and is refused then: rarely. */
static void other_structs_are_captured(void **state)
{
    struct subject subject;
    unsigned captured = 0;
    init(&subject, *state);
    for (unsigned i = 0; i < STRUCTS; i++) {
        subject.random = i;
        make_cells(&subject, false);
        captured += capture(&subject) == RP_OK;
    }
    finish(&subject);
    print_message("%u of %u captured\n", captured, (unsigned)STRUCTS);
    assert_in_range(captured, STRUCTS * 9 / 10, STRUCTS);
}

/* ---- Attempts ------------------------------------------------------------------------------ */

/* Two runs of a kernel of one byte, with numbers of those turns. */
static void see(struct rpi_suspects *attempt, unsigned before, unsigned after, unsigned char byte,
                unsigned char other, const void *kernel)
{
    double a = before, b = after;
    struct rpi_scalars first = {.data = &a, .count = 1}, second = {.data = &b, .count = 1};
    assert_true(rpi_suspects_init(attempt, &first, &second));
    assert_true(rpi_suspects_add(attempt, kernel, 0, &byte, &other, 1));
}

static bool is_suspect(struct rpi_suspects *attempts, size_t count)
{
    struct rpi_suspect first;
    return rpi_suspects_complete(&attempts[count - 1], attempts, count - 1, &first);
}

/* What is the same in both runs of an attempt may have been another in one before: a step. */
static void all_runs_count(void **state)
{
    (void)state;
    enum { ATTEMPTS = 3 };
    struct rpi_suspects attempts[ATTEMPTS];
    see(&attempts[0], 0, 1, 0, 1, "kernel");
    assert_true(is_suspect(attempts, 1));
    see(&attempts[1], 2, 0, 1, 0, "kernel");
    assert_true(is_suspect(attempts, 2));
    see(&attempts[2], 1, 2, 1, 1, "kernel");
    assert_true(is_suspect(attempts, 3));
    rpi_suspects_finish(&attempts[2]);
    see(&attempts[2], 1, 2, 7, 1, "kernel");
    assert_false(is_suspect(attempts, 3));
    for (size_t i = 0; i < ATTEMPTS; i++)
        rpi_suspects_finish(&attempts[i]);
}

/* Two runs of a kernel of 4 bytes in a struct, with numbers of those sets. */
static void see_four(struct rpi_suspects *attempt, unsigned before, unsigned after,
                     const char *first, const char *second, enum rpi_byte state)
{
    struct rpi_scalars a = {.data = (double[]){before}, .count = 1};
    struct rpi_scalars b = {.data = (double[]){after}, .count = 1};
    assert_true(rpi_suspects_init(attempt, &a, &b));
    assert_true(rpi_suspects_add(attempt, "kernel", 0, (const unsigned char *)first,
                                 (const unsigned char *)second, 4));
    rpi_suspects_mark(attempt, 0, 4, state);
}

/* The uppermost byte of an address has few values; any other may be a number beside padding. */
static void the_end_of_rubbish_is_rubbish(void **state)
{
    (void)state;
    static const struct {
        const char *words[4]; /* of sets 0, 1, 1, 0 */
        enum rpi_byte state;
        bool suspect;
    } cases[] = {
        {{"abcX", "defY", "ghiY", "jklX"}, RPI_BYTE_OF_STRUCT, false},
        {{"abcX", "defY", "ghiY", "jklX"}, RPI_BYTE_ANY, true},
        {{"abcX", "dbfY", "gbiY", "jblX"}, RPI_BYTE_OF_STRUCT, true},
        {{"abXc", "deYf", "ghYi", "jkXl"}, RPI_BYTE_OF_STRUCT, true},
        {{"Xabc", "Ydef", "Yghi", "Xjkl"}, RPI_BYTE_OF_STRUCT, true},
        {{"abcX", "defX", "ghiX", "jklX"}, RPI_BYTE_OF_STRUCT, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rpi_suspects attempts[2];
        see_four(&attempts[0], 0, 1, cases[i].words[0], cases[i].words[1], cases[i].state);
        assert_true(is_suspect(attempts, 1));
        see_four(&attempts[1], 1, 0, cases[i].words[2], cases[i].words[3], cases[i].state);
        assert_int_equal(is_suspect(attempts, 2), cases[i].suspect);
        rpi_suspects_finish(&attempts[0]);
        rpi_suspects_finish(&attempts[1]);
    }
}

/* What another kernel held, or one of an attempt that broke off, tells nothing. */
static void other_kernels_tell_nothing(void **state)
{
    (void)state;
    struct rpi_suspects attempts[2];
    see(&attempts[0], 0, 1, 5, 6, "kernel");
    see(&attempts[1], 2, 0, 7, 8, "kernel");
    assert_true(is_suspect(attempts, 2)); /* the first is not complete */
    assert_true(is_suspect(attempts, 1));
    assert_false(is_suspect(attempts, 2));
    attempts[0].nodes.data[0].kernel = "another";
    assert_true(is_suspect(attempts, 2));
    attempts[0].nodes.data[0].kernel = attempts[1].nodes.data[0].kernel;
    unsigned char more = 0;
    assert_true(rpi_suspects_add(&attempts[0], "another", 1, &more, &more, 1));
    assert_true(is_suspect(attempts, 2));
    for (size_t i = 0; i < 2; i++)
        rpi_suspects_finish(&attempts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(numbers_that_differ_are_never_frozen),
        RPT_TEST(other_structs_are_captured),
        cmocka_unit_test(all_runs_count),
        cmocka_unit_test(the_end_of_rubbish_is_rubbish),
        cmocka_unit_test(other_kernels_tell_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
