/* SPDX-License-Identifier: MIT */
#include "graph/verify/verify.h"

#include "base/hostmem.h"
#include "base/idmap.h"
#include "base/log.h"
#include "graph/capture/word_proof.h"
#include "graph/template/view.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* How far an argument or block moved from the rehearsal to the third capture and to the record. */
struct move {
    uint64_t third, record;
};

enum { CAPTURES = 3 }; /* rehearsal, third, record: in all arrays of three */
enum { REHEARSAL, THIRD, RECORD };

struct verifying {
    const struct rp_driver *driver;
    const struct rpi_rehearsal *rehearsal, *third;
    const struct rpi_recorded *recorded;
    const struct rpi_sites *sites;
    size_t arg_count;
    size_t next_site;                   /* the first of the node at hand, or behind it */
    struct rpi_params params[CAPTURES]; /* of the node at hand */
    uint32_t node;                      /* its number */
    struct move *moves;                 /* of arguments and blocks, sorted */
    size_t move_count;
    struct rpi_verdict made;
};

rp_status rpi_verify_check(const char *function, enum rp_verify verify, struct rp_error *err)
{
    if (verify == RP_VERIFY_NONE || verify == RP_VERIFY_CAPTURE || verify == RP_VERIFY_RUN)
        return RP_OK;
    return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                     "verify is %d, which is no enum rp_verify", (int)verify);
}

void rpi_verdict_finish(struct rpi_verdict *verdict)
{
    rpi_free(verdict->args);
    *verdict = (struct rpi_verdict){0};
}

/* ---- Blame --------------------------------------------------------------------------------- */

static void blame(struct rpi_blame *blamed, const struct verifying *v, uint32_t offset,
                  const char *what)
{
    if (!blamed->what)
        *blamed = (struct rpi_blame){what, v->node, offset};
}

/* The argument that the word would be an address of in the third capture, RPI_ABSENT for none. */
static uint32_t owner_of(const struct verifying *v, uint64_t word)
{
    for (uint32_t k = 0; k < v->arg_count; k++) {
        const struct rpi_rehearsed *arg = &v->third->blocks.data[k];
        if (word - arg->address <= arg->bytes)
            return k;
    }
    return RPI_ABSENT;
}

/* A word of the third capture that should be another: whose address it is, is to blame. */
static bool blame_owner(struct verifying *v, uint32_t offset, uint64_t word)
{
    uint32_t owner = owner_of(v, word);
    if (owner == RPI_ABSENT)
        return false;
    blame(&v->made.args[owner], v, offset, "its address stood where none was expected");
    return true;
}

/* ---- Words --------------------------------------------------------------------------------- */

static uint64_t word_of(const struct verifying *v, int capture, uint32_t offset)
{
    assert(capture < CAPTURES && offset + sizeof(uint64_t) <= v->params[capture].image.count);
    uint64_t word;
    memcpy(&word, v->params[capture].image.data + offset, sizeof word);
    return word;
}

/* The address that the site should hold in the third capture; false where there is no such block.
 */
static bool expected_at(const struct verifying *v, const struct rpi_site *site, uint64_t *out_word)
{
    if (site->block >= v->third->blocks.count)
        return false;
    *out_word = v->third->blocks.data[site->block].address + (uint64_t)site->delta;
    return true;
}

static void check_site(struct verifying *v, const struct rpi_site *site)
{
    assert(site->node == v->node);
    uint64_t expected, word = word_of(v, THIRD, site->offset);
    if (expected_at(v, site, &expected) && word == expected)
        return;
    if (site->block < v->arg_count)
        blame(&v->made.args[site->block], v, site->offset,
              "its address was not where it should be");
    else
        blame(&v->made.all, v, site->offset, "held another address in place of a block's");
    blame_owner(v, site->offset, word);
}

/* Does a site of the node at hand share a byte with the word there? */
static bool is_site(const struct verifying *v, uint32_t offset)
{
    for (size_t i = v->next_site; i < v->sites->count && v->sites->data[i].node == v->node; i++) {
        uint32_t site = v->sites->data[i].offset;
        if (site < offset + 8 && offset < site + 8)
            return true;
    }
    return false;
}

/* ---- Words that move with arguments ---------------------------------------------------------- */

static uint64_t address_of(const struct verifying *v, int capture, size_t block)
{
    assert(capture < CAPTURES);
    if (capture == RECORD)
        return v->recorded->addresses.data[block];
    return (capture == THIRD ? v->third : v->rehearsal)->blocks.data[block].address;
}

static struct move move_of(const struct verifying *v, size_t block)
{
    uint64_t from = address_of(v, REHEARSAL, block);
    return (struct move){address_of(v, THIRD, block) - from, address_of(v, RECORD, block) - from};
}

static int compare_moves(const void *left, const void *right)
{
    const struct move *a = left, *b = right;
    if (a->third != b->third)
        return a->third < b->third ? -1 : 1;
    return (a->record > b->record) - (a->record < b->record);
}

static rp_status make_moves(struct verifying *v, struct rp_error *err)
{
    size_t count = v->rehearsal->blocks.count;
    if (count > v->third->blocks.count)
        count = v->third->blocks.count;
    if (count > v->recorded->addresses.count)
        count = v->recorded->addresses.count;
    v->moves = rpi_calloc(count + 1, sizeof *v->moves);
    if (!v->moves)
        return rpi_error_host_memory(err, "rp_graph_capture", count * sizeof *v->moves);
    for (size_t i = 0; i < count; i++)
        v->moves[i] = move_of(v, i);
    v->move_count = count;
    qsort(v->moves, count, sizeof *v->moves, compare_moves);
    return RP_OK;
}

/* Did any argument or block move so? 0 is nobody's: a word of one address. */
static bool is_move(const struct verifying *v, uint64_t third, uint64_t record)
{
    struct move wanted = {third, record};
    return (!third && !record) ||
           bsearch(&wanted, v->moves, v->move_count, sizeof wanted, compare_moves);
}

/* Is the value, of the rehearsal, how far the argument lies from a block that moved so, give or
 * take what both have bytes? A word of rubbish may move as two blocks do, and is no such distance.
 */
static bool is_distance(const struct verifying *v, size_t arg, struct move wanted, uint64_t value)
{
    assert(arg < v->arg_count);
    const struct rpi_rehearsed *blocks = v->rehearsal->blocks.data;
    if (!is_move(v, wanted.third, wanted.record))
        return false;
    if (!wanted.third && !wanted.record)
        return true; /* of one address */
    for (size_t b = 0; b < v->move_count; b++) {
        struct move own = move_of(v, b);
        uint64_t reach = blocks[arg].bytes + blocks[b].bytes;
        uint64_t off = value - (blocks[arg].address - blocks[b].address);
        if (own.third == wanted.third && own.record == wanted.record && off + reach <= 2 * reach)
            return true;
    }
    return false;
}

/* Was the word computed from the argument's address: as a + c, c - a, or as the distance to another
 * argument or block, counted in elements of 1, 2, 4 .. bytes? */
static bool moves_with(const struct verifying *v, size_t arg, uint64_t before, struct move word)
{
    enum { MOST_SHIFT = 4 };
    struct move a = move_of(v, arg);
    for (int shift = 0; shift <= MOST_SHIFT; shift++) {
        uint64_t third = word.third << shift, record = word.record << shift;
        struct move behind = {a.third - third, a.record - record};
        struct move ahead = {a.third + third, a.record + record};
        if (is_distance(v, arg, behind, before << shift) ||
            is_distance(v, arg, ahead, -(before << shift)))
            return true;
    }
    return false;
}

static void check_computed(struct verifying *v, uint32_t offset)
{
    uint64_t before = word_of(v, REHEARSAL, offset);
    struct move word = {word_of(v, THIRD, offset) - before, word_of(v, RECORD, offset) - before};
    for (size_t k = 0; k < v->arg_count; k++)
        if (moves_with(v, k, before, word))
            blame(&v->made.args[k], v, offset, "a word was computed from its address");
}

/* Is the word as far from a block in all three captures? An argument that it may be computed from
 * is to blame. */
static bool follows_blocks(struct verifying *v, uint32_t offset)
{
    uint64_t before = word_of(v, REHEARSAL, offset);
    struct move word = {word_of(v, THIRD, offset) - before, word_of(v, RECORD, offset) - before};
    for (size_t k = 0; k < v->arg_count; k++) {
        struct move own = move_of(v, k);
        if (own.third == word.third && own.record == word.record)
            blame(&v->made.args[k], v, offset, "a word was computed from its address");
    }
    return is_move(v, word.third, word.record);
}

/* ---- Fields -------------------------------------------------------------------------------- */

static void check_word(struct verifying *v, const struct rpi_field *field, uint32_t offset)
{
    uint64_t third = word_of(v, THIRD, offset), record = word_of(v, RECORD, offset);
    bool same = third == record && record == word_of(v, REHEARSAL, offset);
    if (same || field->kind == RPI_FIELD_HOST || is_site(v, offset))
        return;
    if (blame_owner(v, offset, third))
        return;
    if (field->kind == RPI_FIELD_STRUCT)
        check_computed(v, offset);
    else if (third != record && !follows_blocks(v, offset) &&
             !(field->bytes == 8 && rpi_are_host(v->driver, record, third)) &&
             !rpi_are_padding(v->driver, &v->params[RECORD], field, record, third))
        blame(&v->made.all, v, offset, "held another value");
}

static void check_field(struct verifying *v, const struct rpi_field *field)
{
    assert(field->offset + field->bytes <= v->params[RECORD].image.count);
    uint32_t end = field->offset + field->bytes, offset = (field->offset + 7u) & ~7u;
    for (; offset + 8 <= end; offset += 8)
        check_word(v, field, offset);
    /* One byte is mostly an empty struct of C++, given as whatever the stack held. */
    bool is_short = field->kind == RPI_FIELD_VALUE && field->bytes < 8 && field->bytes > 1;
    if (is_short && memcmp(v->params[THIRD].image.data + field->offset,
                           v->params[RECORD].image.data + field->offset, field->bytes) != 0)
        blame(&v->made.all, v, field->offset, "held another value");
}

/* ---- Nodes --------------------------------------------------------------------------------- */

static rp_status another_graph(const struct verifying *v, struct rp_error *err, const char *why)
{
    char name[160];
    rpi_params_describe(&v->params[RECORD], v->driver, name, sizeof name);
    return rpi_error(
        err, RP_ERROR_DIVERGED, "rp_graph_capture",
        "'%.60s': node %u (%s): %s in a third capture of the same work, which was made "
        "to verify the graph. The callable must do the same each time",
        v->rehearsal->record.name, v->node, name, why);
}

/* Of one type in all three. */
static void check_params(struct verifying *v, const CUgraphNode nodes[CAPTURES])
{
    const struct rpi_params *record = &v->params[RECORD], *third = &v->params[THIRD];
    const char *difference = NULL;
    if (record->type == CU_GRAPH_NODE_TYPE_KERNEL)
        difference = rpi_kernels_differ(v->driver, record, third, nodes[RECORD], nodes[THIRD]);
    if (!difference &&
        (record->image.count != third->image.count || record->fields.count != third->fields.count))
        difference = "the size of its parameters changed";
    if (difference) {
        blame(&v->made.all, v, 0, difference);
        return;
    }
    for (size_t i = v->next_site; i < v->sites->count && v->sites->data[i].node == v->node; i++)
        check_site(v, &v->sites->data[i]);
    for (size_t i = 0; i < record->fields.count; i++)
        check_field(v, &record->fields.data[i]);
}

static rp_status check_graph(struct verifying *v, const CUgraph graphs[CAPTURES],
                             struct rp_error *err);

static rp_status check_node(struct verifying *v, const CUgraphNode nodes[CAPTURES],
                            struct rp_error *err)
{
    rp_status status = RP_OK;
    CUgraph children[CAPTURES];
    for (int i = 0; status == RP_OK && i < CAPTURES; i++) {
        status = rpi_params_read(&v->params[i], v->driver, nodes[i], err);
        children[i] = v->params[i].child;
    }
    if (status != RP_OK)
        return status;
    if (v->params[THIRD].type != v->params[RECORD].type)
        return another_graph(v, err, "it was of another type");
    check_params(v, nodes);
    while (v->next_site < v->sites->count && v->sites->data[v->next_site].node == v->node)
        v->next_site++;
    v->node++;
    return children[RECORD] ? check_graph(v, children, err) : RP_OK;
}

static rp_status check_edges(const struct verifying *v, const struct rpi_template_view *third,
                             const struct rpi_template_view *record, struct rp_error *err)
{
    assert(third->edge_count == record->edge_count);
    for (size_t i = 0; i < record->edge_count; i++)
        if (rpi_edge_compare(&third->edges[i], &record->edges[i]) != 0)
            return rpi_error(err, RP_ERROR_DIVERGED, "rp_graph_capture",
                             "'%.60s': the edge from node %u to node %u was another in a third "
                             "capture of the same work, which was made to verify the graph. The "
                             "callable must do the same each time",
                             v->rehearsal->record.name, record->edges[i].from, record->edges[i].to);
    return RP_OK;
}

static rp_status check_views(struct verifying *v, const struct rpi_template_view views[CAPTURES],
                             struct rp_error *err)
{
    const struct rpi_template_view *third = &views[THIRD], *record = &views[RECORD];
    /* Nodes first, as far as both go: the first node that differs says more than a count. */
    size_t count = record->node_count < third->node_count ? record->node_count : third->node_count;
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < count; i++) {
        const CUgraphNode nodes[CAPTURES] = {views[REHEARSAL].nodes[i], third->nodes[i],
                                             record->nodes[i]};
        status = check_node(v, nodes, err);
    }
    if (status != RP_OK)
        return status;
    if (record->node_count != third->node_count || record->edge_count != third->edge_count)
        return rpi_error(err, RP_ERROR_DIVERGED, "rp_graph_capture",
                         "'%.60s': there were %zu nodes and %zu edges in a third capture of the "
                         "same work, which was made to verify the graph, not %zu and %zu. The "
                         "callable must do the same each time",
                         v->rehearsal->record.name, third->node_count, third->edge_count,
                         record->node_count, record->edge_count);
    return check_edges(v, third, record, err);
}

static rp_status check_graph(struct verifying *v, const CUgraph graphs[CAPTURES],
                             struct rp_error *err)
{
    struct rpi_template_view views[CAPTURES] = {{0}};
    rp_status status = RP_OK;
    for (int i = 0; status == RP_OK && i < CAPTURES; i++)
        status = rpi_view_read(&views[i], v->driver, graphs[i], err);
    if (status == RP_OK)
        status = check_views(v, views, err);
    for (int i = 0; i < CAPTURES; i++)
        rpi_view_finish(&views[i]);
    return status;
}

/* ---- All of it ----------------------------------------------------------------------------- */

rp_status rpi_verify(const struct rp_driver *driver, const struct rpi_rehearsal *rehearsal,
                     const struct rpi_rehearsal *third, const struct rpi_recorded *recorded,
                     const struct rpi_comparison *comparison, size_t arg_count,
                     struct rpi_verdict *out_verdict, struct rp_error *err)
{
    struct verifying v = {.driver = driver,
                          .rehearsal = rehearsal,
                          .third = third,
                          .recorded = recorded,
                          .sites = &comparison->sites,
                          .arg_count = arg_count};
    const CUgraph graphs[CAPTURES] = {rehearsal->template, third->template, recorded->template};
    rp_status status = RP_OK;
    v.made.args = rpi_calloc(arg_count + 1, sizeof *v.made.args);
    if (!v.made.args)
        status = rpi_error_host_memory(err, "rp_graph_capture", arg_count * sizeof *v.made.args);
    if (status == RP_OK)
        status = make_moves(&v, err);
    if (status == RP_OK)
        status = check_graph(&v, graphs, err);
    for (int i = 0; i < CAPTURES; i++)
        rpi_params_finish(&v.params[i]);
    rpi_free(v.moves);
    if (status == RP_OK)
        *out_verdict = v.made;
    else
        rpi_verdict_finish(&v.made);
    return status;
}

void rpi_verdict_apply(const struct rpi_verdict *verdict, const char *name,
                       struct rpi_binding *binding)
{
    const struct rpi_blame *all = &verdict->all;
    if (all->what)
        rpi_log(RP_LOG_WARNING,
                "'%.60s': all arguments are copied in every replay: in a third capture, node %u at "
                "byte %u of its parameters: %s",
                name, all->node, all->offset, all->what);
    for (size_t k = 0; k < binding->arg_count; k++) {
        const struct rpi_blame *own = &verdict->args[k];
        bool bound = binding->args[k].never == RPI_COPY_NOT;
        if (bound && own->what)
            rpi_log(RP_LOG_WARNING,
                    "'%.60s': argument %zu is copied in every replay: in a third capture, node %u "
                    "at byte %u of its parameters: %s",
                    name, k, own->node, own->offset, own->what);
        if (own->what || all->what)
            rpi_binding_demote(binding, k, RPI_COPY_UNVERIFIED);
    }
}
