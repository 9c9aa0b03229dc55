/* SPDX-License-Identifier: MIT
 *
 * Random programs, captured with plan and with place, replayed in adversarial orders.
 *
 * A group is some programs in one pool: alternatives, a sequence, or concurrent. Each is captured;
 * all are replayed many times, without waiting in between, on any stream, with other arguments each
 * time, while the host driver takes another order for every replay and looks for races; then some
 * graphs are destroyed, others are captured in their place, and all is replayed again. Every replay
 * must give what the program computes where nothing shares memory, to the bit.
 *
 *     property_programs [--programs N] [--first SEED] [--seed SEED] [--driver host|cuda]
 *                       [--progress]
 *
 * --seed repeats one group and prints its programs.
 */
#include "property/callable.h"

#include "base/clock.h"
#include "walkers.h"

#include <inttypes.h>
#include <signal.h>
#include <unistd.h>

enum { MEMBERS_MOST = 4, REPLAYS = 6, ROUNDS = 2, GROUPS_A_DEVICE = 50 };

struct member {
    struct program program;
    struct subject subject;
    struct rp_graph *graph;
    int replays;
};

/* What one replay is given, and must give. */
struct replay {
    int member;
    struct arguments before, expected;
    uint64_t in, inout, out;
};

struct totals {
    uint64_t programs, replays, blocks, diverged, different;
    /* Of programs that do not differ, in pools of alternatives: those start at the bottom. */
    uint64_t total_bytes, planned_bytes, bound_bytes;
};

struct group {
    struct rpt_fixture f;
    uint64_t seed, random, alignment;
    enum rp_pool_kind kind;
    int members;
    struct member member[MEMBERS_MOST];
    CUevent events[BLOCKS_MOST];
    CUdeviceptr buffers; /* 3 * REPLAYS arguments */
    struct replay replay[REPLAYS];
    bool prints;
};

/* ---- Saying what failed -------------------------------------------------------------------- */

static struct {
    const struct group *group; /* NULL: none is at work */
} at_work;

static void say_where(void)
{
    const struct group *g = at_work.group;
    if (!g)
        return;
    at_work.group = NULL;
    /* NOLINTBEGIN(bugprone-signal-handler): see say_where_on_abort */
    fprintf(stderr,
            "group %" PRIu64 " failed (pool of kind %d); repeat it with --seed %" PRIu64 "\n",
            g->seed, (int)g->kind, g->seed);
    for (int i = 0; i < g->members; i++)
        program_print(&g->member[i].program, stderr);
    /* NOLINTEND(bugprone-signal-handler) */
}

/* abort raises the signal in the thread that calls it, outside of any other call: printing is safe.
 */
static void say_where_on_abort(int signal_number)
{
    say_where();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

__attribute__((format(printf, 3, 4))) static bool holds(bool condition, const struct group *g,
                                                        const char *format, ...)
{
    if (condition)
        return true;
    va_list values;
    fprintf(stderr, "group %" PRIu64 ": ", g->seed);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "\n");
    return false;
}

/* ---- One group ----------------------------------------------------------------------------- */

/* Blocks of another size in the record than in the rehearsal. */
static size_t resized_blocks(const struct program *p)
{
    size_t count = 0;
    for (int i = 0; i < p->count; i++)
        count += p->ops[i].pad[0] != p->ops[i].pad[1];
    return count;
}

static bool capture(struct group *g, int i, struct totals *totals)
{
    struct member *m = &g->member[i];
    program_generate(&m->program, next_random(&g->random));
    m->subject = (struct subject){
        .program = &m->program, .f = &g->f, .events = g->events, .alignment = g->alignment};
    m->replays = 0;
    if (g->prints)
        program_print(&m->program, stdout);
    struct rp_arg args[] = {rpt_arg(g->buffers, WIDTH, RP_ARG_IN),
                            rpt_arg(g->buffers, WIDTH, RP_ARG_INOUT),
                            rpt_arg(g->buffers, WIDTH, RP_ARG_OUT)};
    struct rp_error err = {0};
    rp_status status =
        rp_graph_capture(g->f.pool, NULL, subject_run, &m->subject, args, 3, &m->graph, &err);
    if (!holds(status == RP_OK, g, "capturing program %d: %s", i, err.message))
        return false;
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(m->graph, &info);
    bool same = m->program.difference == SAME;
    totals->programs++;
    totals->blocks += info.blocks;
    totals->diverged += info.diverged_blocks;
    totals->different += !same;
    bool summed = same && g->kind == RP_POOL_ALTERNATIVES;
    totals->total_bytes += summed ? info.total_bytes : 0;
    totals->planned_bytes += summed ? info.planned_bytes : 0;
    totals->bound_bytes += summed ? info.lower_bound_bytes : 0;
    return holds(m->subject.mistakes == 0, g, "program %d: %s (and %d more)", i, m->subject.mistake,
                 m->subject.mistakes - 1) &&
           holds(info.rehearsals == 1, g, "program %d was rehearsed %zu times", i,
                 info.rehearsals) &&
           holds(!same || info.diverged_blocks == 0, g,
                 "program %d did the same twice, and %zu blocks were not placed as planned", i,
                 info.diverged_blocks) &&
           holds(info.diverged_blocks >= resized_blocks(&m->program), g,
                 "program %d: %zu blocks went as planned though their size changed", i,
                 resized_blocks(&m->program) - info.diverged_blocks) &&
           holds(!same || info.planned_bytes >= info.lower_bound_bytes, g,
                 "program %d was planned below its bound", i);
}

static void draw_arguments(struct group *g, struct replay *r)
{
    memset(&r->before, 0, sizeof r->before);
    for (int k = 0; k < WIDTH; k++) {
        r->before.in[k] = (float)below(&g->random, 100);
        r->before.inout[k] = (float)below(&g->random, 100);
        r->before.out[k] = -1;
    }
    r->expected = r->before;
    program_expect(&g->member[r->member].program, &r->expected);
}

static void reseed(struct group *g)
{
    struct rpi_host_options options;
    rpi_host_options(&options);
    options.seed = next_random(&g->random);
    options.threads = 1 + (unsigned)below(&g->random, 3);
    options.check_races = true;
    rpi_host_configure(&options);
}

static void write_floats(const struct group *g, uint64_t to, const float *from)
{
    assert_int_equal(g->f.driver->cuMemcpyHtoD(to, from, WIDTH * sizeof(float)), 0);
}

static bool is_equal(const struct group *g, int i, const char *what, uint64_t address,
                     const float *expected)
{
    float seen[WIDTH];
    rpt_read(&g->f, address, seen, WIDTH);
    for (int k = 0; k < WIDTH; k++) {
        uint32_t got, right;
        memcpy(&got, &seen[k], sizeof got);
        memcpy(&right, &expected[k], sizeof right);
        if (got != right)
            return holds(false, g, "program %d: %s[%d] is %g, not %g", i, what, k, (double)seen[k],
                         (double)expected[k]);
    }
    return true;
}

static bool check_replay(struct group *g, int number)
{
    const struct replay *r = &g->replay[number];
    return is_equal(g, r->member, "out", r->out, r->expected.out) &&
           is_equal(g, r->member, "inout", r->inout, r->expected.inout) &&
           is_equal(g, r->member, "in", r->in, r->before.in);
}

static bool start_replay(struct group *g, int number, bool eagerly)
{
    struct replay *r = &g->replay[number];
    struct member *m = &g->member[r->member];
    CUstream stream = g->f.streams[below(&g->random, RPT_STREAMS)];
    struct rp_arg args[] = {rpt_arg(r->in, WIDTH, RP_ARG_IN),
                            rpt_arg(r->inout, WIDTH, RP_ARG_INOUT),
                            rpt_arg(r->out, WIDTH, RP_ARG_OUT)};
    struct rp_error err = {0};
    reseed(g);
    if (eagerly)
        m->subject.runs = 0;
    rp_status status = eagerly ? rp_run(g->f.pool, subject_run, &m->subject, args, 3, NULL, &err)
                               : rp_graph_replay(m->graph, args, 3, stream, &err);
    m->replays++;
    return holds(status == RP_OK, g, "replaying program %d: %s", r->member, err.message);
}

/* Replays members in any order, all enqueued before the first is looked at; then one runs eagerly.
 */
static bool replay_round(struct group *g, struct totals *totals)
{
    for (int i = 0; i < REPLAYS; i++) {
        struct replay *r = &g->replay[i];
        r->member = i < g->members ? i : below(&g->random, g->members);
        uint64_t *addresses[] = {&r->in, &r->inout, &r->out};
        for (int k = 0; k < 3; k++)
            *addresses[k] = g->buffers + (uint64_t)(3 * i + k) * WIDTH * sizeof(float);
        draw_arguments(g, r);
        write_floats(g, r->in, r->before.in);
        write_floats(g, r->inout, r->before.inout);
        write_floats(g, r->out, r->before.out);
    }
    bool fine = true;
    for (int i = 0; i < REPLAYS && fine; i++)
        fine = start_replay(g, i, i + 1 == REPLAYS && below(&g->random, 4) == 0);
    totals->replays += REPLAYS;
    for (int i = 0; i < REPLAYS && fine; i++)
        fine = check_replay(g, i);
    return fine;
}

static bool check_host_calls(const struct group *g, int i)
{
    const struct member *m = &g->member[i];
    int seen = atomic_load(&m->subject.host_calls), due = m->replays * m->subject.host_ops;
    return holds(seen == due, g, "program %d: %d host functions ran, not %d", i, seen, due);
}

static bool check_races(const struct group *g)
{
    struct rpi_host_statistics statistics;
    struct rpi_host_race race;
    rpi_host_statistics(&statistics);
    if (!statistics.races || !rpi_host_races(&race, 1))
        return true;
    return holds(false, g,
                 "%" PRIu64 " races; the first: %s (%s) and %s (%s) at 0x%" PRIx64 ", %" PRIu64
                 " bytes",
                 statistics.races, race.first, race.first_writes ? "writes" : "reads", race.second,
                 race.second_writes ? "writes" : "reads", race.address, race.bytes);
}

/* A pool is as high as the highest of its graphs, and no lower than its bound. */
static bool check_pool(const struct group *g)
{
    struct rp_pool_info pool = {.size = sizeof pool};
    uint64_t highest = 0;
    rp_pool_info(g->f.pool, &pool);
    for (int i = 0; i < g->members; i++) {
        struct rp_graph_info info = {.size = sizeof info};
        rp_graph_info(g->member[i].graph, &info);
        highest = info.planned_bytes > highest ? info.planned_bytes : highest;
    }
    return holds(pool.planned_bytes == highest && pool.mapped_bytes >= highest &&
                     pool.lower_bound_bytes <= highest,
                 g,
                 "the pool plans %" PRIu64 " and maps %" PRIu64 " bytes (bound %" PRIu64
                 ") for graphs of up to %" PRIu64,
                 pool.planned_bytes, pool.mapped_bytes, pool.lower_bound_bytes, highest);
}

static bool run_round(struct group *g, struct totals *totals)
{
    bool fine = check_pool(g) && replay_round(g, totals) && check_races(g);
    for (int i = 0; i < g->members && fine; i++)
        fine = check_host_calls(g, i);
    const char *wrong = fine ? rpt_walk(g->f.pool) : NULL;
    return fine && holds(!wrong, g, "%s does not hold", wrong ? wrong : "");
}

/* Destroys one graph, often, and captures another program in its place. */
static bool exchange_member(struct group *g, struct totals *totals)
{
    int i = below(&g->random, g->members);
    rp_graph_destroy(g->member[i].graph);
    g->member[i].graph = NULL;
    return capture(g, i, totals);
}

static bool open_pool(struct group *g)
{
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    static const uint64_t alignments[] = {16, 64, 512, 512};
    options.alignment = g->alignment = alignments[below(&g->random, 4)];
    options.plan_budget_ms = 1 + (unsigned)below(&g->random, 3);
    static const enum rp_pool_kind kinds[] = {RP_POOL_ALTERNATIVES, RP_POOL_ALTERNATIVES,
                                              RP_POOL_SEQUENCE, RP_POOL_CONCURRENT};
    options.kind = g->kind = kinds[below(&g->random, 4)];
    struct rp_error err = {0};
    return holds(rp_pool_create(g->f.device, &options, &g->f.pool, &err) == RP_OK, g, "%s",
                 err.message);
}

static bool run_group(struct group *g, uint64_t seed, struct totals *totals)
{
    g->seed = seed;
    g->random = seed * 0x632be59bd9b4e019u;
    g->members = 0;
    at_work.group = g;
    struct rp_pool *fixtures = g->f.pool;
    bool fine = open_pool(g);
    int members = 1 + below(&g->random, MEMBERS_MOST);
    for (int i = 0; i < members && fine; i++) {
        g->members = i + 1;
        fine = capture(g, i, totals);
    }
    for (int round = 0; round < ROUNDS && fine; round++) {
        if (round > 0 && below(&g->random, 2))
            fine = exchange_member(g, totals);
        fine = fine && run_round(g, totals);
    }
    if (!fine)
        return false;
    for (int i = 0; i < g->members; i++)
        rp_graph_destroy(g->member[i].graph);
    rp_pool_destroy(g->f.pool);
    g->f.pool = fixtures;
    at_work.group = NULL;
    return true;
}

/* ---- Many groups --------------------------------------------------------------------------- */

struct request {
    const struct rp_driver *driver;
    uint64_t programs, first;
    bool one, progress;
};

static void open_device(struct group *g, const struct request *request)
{
    rpt_open_on(&g->f, request->driver, NULL);
    for (int i = 0; i < BLOCKS_MOST; i++)
        assert_int_equal(g->f.driver->cuEventCreate(&g->events[i], CU_EVENT_DISABLE_TIMING), 0);
    assert_int_equal(g->f.driver->cuMemAlloc(&g->buffers, 3 * REPLAYS * WIDTH * sizeof(float)), 0);
}

static void close_device(struct group *g)
{
    g->f.driver->cuMemFree(g->buffers);
    for (int i = 0; i < BLOCKS_MOST; i++)
        g->f.driver->cuEventDestroy(g->events[i]);
    rpt_close(&g->f); /* and nothing is left */
}

static void show_progress(const struct request *request, const struct totals *totals, bool last)
{
    if (!request->progress)
        return;
    fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " programs, %" PRIu64 " replays%s",
            totals->programs, request->programs, totals->replays, last ? "\n" : "");
}

static bool run_groups(const struct request *request, struct totals *totals)
{
    static struct group g;
    g.prints = request->one;
    uint64_t seed = request->first, groups = 0;
    while (groups == 0 || (!request->one && totals->programs < request->programs)) {
        if (groups % GROUPS_A_DEVICE == 0)
            open_device(&g, request);
        if (!run_group(&g, seed++, totals)) {
            say_where();
            return false;
        }
        if (++groups % GROUPS_A_DEVICE == 0) {
            close_device(&g);
            show_progress(request, totals, false);
        }
    }
    if (groups % GROUPS_A_DEVICE != 0)
        close_device(&g);
    show_progress(request, totals, true);
    return true;
}

/* The programs are such that memory is shared, and that many differ and some blocks diverge. */
static bool totals_make_sense(const struct totals *t)
{
    bool sense = t->planned_bytes * 10 < t->total_bytes * 9 &&
                 t->planned_bytes * 10 < t->bound_bytes * 11 && t->diverged > t->programs &&
                 t->different * 3 > t->programs;
    if (!sense)
        fprintf(stderr, "these programs do not test what they are meant to\n");
    return sense;
}

static bool read_number(const char *text, uint64_t *out)
{
    char *end = NULL;
    *out = text ? strtoull(text, &end, 10) : 0;
    return text && *text && !*end;
}

static bool read_driver(const char *name, const struct rp_driver **out_driver)
{
    struct rp_error err;
    *out_driver = NULL;
    if (!strcmp(name, "host"))
        *out_driver = rpi_driver_host();
    else if (strcmp(name, "cuda") != 0)
        return false;
    else if (rpi_driver_libcuda(out_driver, &err) != RP_OK)
        fprintf(stderr, "%s\n", err.message);
    return *out_driver != NULL;
}

static bool read_request(int argc, char **argv, struct request *request)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool known = true;
        if (!strcmp(argv[i], "--progress")) {
            request->progress = true;
            continue;
        } else if (!strcmp(argv[i], "--programs")) {
            known = read_number(value, &request->programs);
        } else if (!strcmp(argv[i], "--driver")) {
            known = value && read_driver(value, &request->driver);
        } else if (!strcmp(argv[i], "--first") || !strcmp(argv[i], "--seed")) {
            request->one |= !strcmp(argv[i], "--seed");
            known = read_number(value, &request->first);
        } else {
            known = false;
        }
        if (!known) {
            fprintf(stderr, "usage: property_programs [--programs N] [--first SEED] [--seed SEED] "
                            "[--driver host|cuda] [--progress]\n");
            return false;
        }
        i++;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct request request = {.programs = 1000, .driver = rpi_driver_host()};
    struct totals totals = {0};
    if (!read_request(argc, argv, &request))
        return 2;
    request.progress |= isatty(2);
    atexit(say_where);
    signal(SIGABRT, say_where_on_abort);
    uint64_t start = rpi_clock_ns();
    bool fine = run_groups(&request, &totals);
    fine = fine && (request.one || request.programs < 200 || totals_make_sense(&totals));
    printf("%" PRIu64 " programs, %" PRIu64 " replays, %" PRIu64 " blocks, %" PRIu64
           " of them placed online; total %" PRIu64 ", planned %" PRIu64 ", bound %" PRIu64
           " bytes; %.1f s: %s\n",
           totals.programs, totals.replays, totals.blocks, totals.diverged, totals.total_bytes,
           totals.planned_bytes, totals.bound_bytes, rpi_ms_since(start) / 1000,
           fine ? "all as expected" : "FAILED");
    return fine ? 0 : 1;
}
