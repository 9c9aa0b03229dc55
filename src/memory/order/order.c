/* SPDX-License-Identifier: MIT
 *
 * Chains and vector clocks; order.h has the method. Laid out so:
 *
 *     nodes    { clock, position }   8 bytes a node
 *     clocks   { chain, width, first word }   one for each run of nodes that share it
 *     words    the clocks' positions, one after the other
 *     tails    last position of each chain
 *
 * A clock belongs to one chain, so a node's chain is its clock's. The own chain's entry of a clock
 * is never read (the node's position says it). Widths are cut at the last chain that matters.
 */
#include "memory/order/order.h"

#include "base/hostmem.h"
#include "base/vec.h"

#include <assert.h>
#include <string.h>

/* Clocks may have so many positions in all (512 MiB). A graph of that many forks times chains is no
 * capture of streams, and must not take the machine down. */
#define MOST_WORDS ((size_t)1 << 27)

struct node {
    uint32_t clock;
    uint32_t position; /* on the chain, from 1 */
};

struct clock {
    uint32_t chain;
    uint32_t width; /* entries in words; chains beyond it count as 0 */
    size_t first;
};

struct rpi_order {
    struct {
        RPI_VEC(struct node);
    } nodes;
    struct {
        RPI_VEC(struct clock);
    } clocks;
    struct {
        RPI_VEC(uint32_t);
    } words;
    struct {
        RPI_VEC(uint32_t);
    } tails;
};

rp_status rpi_order_create(struct rpi_order **out_order, struct rp_error *err)
{
    struct rpi_order *order = rpi_calloc(1, sizeof *order);
    if (!order)
        return rpi_error_host_memory(err, "order", sizeof *order);
    *out_order = order;
    return RP_OK;
}

void rpi_order_destroy(struct rpi_order *order)
{
    if (!order)
        return;
    rpi_vec_finish(&order->nodes);
    rpi_vec_finish(&order->clocks);
    rpi_vec_finish(&order->words);
    rpi_vec_finish(&order->tails);
    rpi_free(order);
}

uint32_t rpi_order_nodes(const struct rpi_order *order)
{
    return (uint32_t)order->nodes.count;
}

uint32_t rpi_order_chains(const struct rpi_order *order)
{
    return (uint32_t)order->tails.count;
}

uint32_t rpi_order_chain_of(const struct rpi_order *order, uint32_t node)
{
    assert(node < order->nodes.count);
    return order->clocks.data[order->nodes.data[node].clock].chain;
}

uint32_t rpi_order_position_of(const struct rpi_order *order, uint32_t node)
{
    assert(node < order->nodes.count);
    return order->nodes.data[node].position;
}

bool rpi_order_reaches(const struct rpi_order *order, uint32_t u, uint32_t v)
{
    assert(u < rpi_order_nodes(order) && v < rpi_order_nodes(order));
    assert(u < order->nodes.count && v < order->nodes.count);
    uint32_t chain = rpi_order_chain_of(order, u);
    uint32_t position = order->nodes.data[u].position;
    const struct clock *clock = &order->clocks.data[order->nodes.data[v].clock];
    if (clock->chain == chain)
        return position <= order->nodes.data[v].position;
    return chain < clock->width && position <= order->words.data[clock->first + chain];
}

static bool is_tail(const struct rpi_order *order, uint32_t node)
{
    return order->tails.data[rpi_order_chain_of(order, node)] == order->nodes.data[node].position;
}

/* The predecessor that all others are before or equal to, where there is one: a single pass meets
 * it and keeps it. Otherwise some maximal one. */
static uint32_t find_top(const struct rpi_order *order, const uint32_t *predecessors, size_t count,
                         bool *out_covers_all)
{
    uint32_t top = predecessors[0];
    for (size_t i = 1; i < count; i++)
        if (rpi_order_reaches(order, top, predecessors[i]))
            top = predecessors[i];
    *out_covers_all = true;
    for (size_t i = 0; i < count; i++)
        *out_covers_all &= rpi_order_reaches(order, predecessors[i], top);
    return top;
}

/* Raises positions to hold all that lies before or is `node`. positions has room for its width. */
static void merge(const struct rpi_order *order, uint32_t node, uint32_t *positions)
{
    const struct clock *clock = &order->clocks.data[order->nodes.data[node].clock];
    const uint32_t *words = order->words.data + clock->first;
    for (uint32_t c = 0; c < clock->width; c++)
        if (positions[c] < words[c])
            positions[c] = words[c];
    if (positions[clock->chain] < order->nodes.data[node].position)
        positions[clock->chain] = order->nodes.data[node].position;
}

/* Chains to write down for a node after these predecessors. */
static uint32_t merged_width(const struct rpi_order *order, const uint32_t *predecessors,
                             size_t count)
{
    uint32_t width = 0;
    for (size_t i = 0; i < count; i++) {
        const struct clock *clock = &order->clocks.data[order->nodes.data[predecessors[i]].clock];
        if (width < clock->width)
            width = clock->width;
        if (width < clock->chain + 1)
            width = clock->chain + 1;
    }
    return width;
}

/* The chain to continue: a predecessor's where it ends there, otherwise any that ends before the
 * node (so that forks after a join use the chains of forks before it), otherwise a new one. */
static uint32_t choose_chain(const struct rpi_order *order, const uint32_t *predecessors,
                             size_t count, const uint32_t *positions, uint32_t width)
{
    for (size_t i = 0; i < count; i++)
        if (is_tail(order, predecessors[i]))
            return rpi_order_chain_of(order, predecessors[i]);
    for (uint32_t c = 0; c < width; c++)
        if (positions[c] == order->tails.data[c])
            return c;
    return (uint32_t)order->tails.count;
}

/* Appends a clock for a node after these predecessors. Room for one clock and one chain is there.
 */
static rp_status push_clock(struct rpi_order *order, const uint32_t *predecessors, size_t count,
                            struct rp_error *err)
{
    uint32_t width = merged_width(order, predecessors, count);
    if (order->words.count + width > MOST_WORDS)
        return rpi_error(err, RP_ERROR_LIMIT, "order",
                         "the graph has %zu parallel chains and %zu forks and joins: ordering it "
                         "would take more than %zu MiB of host memory",
                         order->tails.count, order->clocks.count, MOST_WORDS * 4 >> 20);
    /* One more, so that there is an array to point into also when there are no words yet. */
    if (!rpi_vec_reserve(&order->words, order->words.count + width + 1))
        return rpi_error_host_memory(err, "order", (order->words.count + width) * 4);
    uint32_t *positions = order->words.data + order->words.count;
    if (width)
        memset(positions, 0, width * sizeof *positions);
    for (size_t i = 0; i < count; i++)
        merge(order, predecessors[i], positions);
    struct clock clock = {choose_chain(order, predecessors, count, positions, width), width,
                          order->words.count};
    if (clock.chain == order->tails.count)
        order->tails.data[order->tails.count++] = 0;
    order->words.count += width;
    order->clocks.data[order->clocks.count++] = clock;
    return RP_OK;
}

rp_status rpi_order_add(struct rpi_order *order, const uint32_t *predecessors, size_t count,
                        uint32_t *out_node, struct rp_error *err)
{
    uint32_t node = (uint32_t)order->nodes.count;
    for (size_t i = 0; i < count; i++)
        assert(predecessors[i] < node);
    if (node == UINT32_MAX)
        return rpi_error(err, RP_ERROR_LIMIT, "order", "a graph may have at most %u nodes", node);
    if (!rpi_vec_reserve(&order->nodes, order->nodes.count + 1) ||
        !rpi_vec_reserve(&order->clocks, order->clocks.count + 1) ||
        !rpi_vec_reserve(&order->tails, order->tails.count + 1))
        return rpi_error_host_memory(err, "order", order->nodes.count * 2 * sizeof(struct node));

    bool shares = false;
    uint32_t top = count ? find_top(order, predecessors, count, &shares) : 0;
    struct node added;
    if (shares && is_tail(order, top)) {
        added.clock = order->nodes.data[top].clock;
    } else {
        rp_status status = push_clock(order, predecessors, count, err);
        if (status != RP_OK)
            return status;
        added.clock = (uint32_t)order->clocks.count - 1;
    }
    added.position = ++order->tails.data[order->clocks.data[added.clock].chain];
    order->nodes.data[order->nodes.count++] = added;
    *out_node = node;
    return RP_OK;
}

rp_status rpi_frontier_set(struct rpi_frontier *frontier, const struct rpi_order *order,
                           const uint32_t *nodes, size_t count, struct rp_error *err)
{
    uint32_t chains = rpi_order_chains(order);
    if (frontier->chains < chains) {
        uint32_t *grown = rpi_reallocarray(frontier->clock, chains, sizeof *grown);
        if (!grown)
            return rpi_error_host_memory(err, "frontier", chains * sizeof *grown);
        frontier->clock = grown;
        frontier->chains = chains;
    }
    if (frontier->chains)
        memset(frontier->clock, 0, frontier->chains * sizeof *frontier->clock);
    for (size_t i = 0; i < count; i++)
        merge(order, nodes[i], frontier->clock);
    return RP_OK;
}

void rpi_frontier_finish(struct rpi_frontier *frontier)
{
    rpi_free(frontier->clock);
    frontier->clock = NULL;
    frontier->chains = 0;
}

bool rpi_frontier_holds(const struct rpi_frontier *frontier, const struct rpi_order *order,
                        uint32_t node)
{
    assert(node < rpi_order_nodes(order));
    uint32_t chain = rpi_order_chain_of(order, node);
    return chain < frontier->chains && frontier->clock[chain] >= rpi_order_position_of(order, node);
}
