/* SPDX-License-Identifier: MIT */
#include "recording/c10_walk.h"

void rpi_c10_walk_finish(struct rpi_c10_walk *walk)
{
    for (size_t s = 0; s < walk->visited.count; s++)
        rpi_idmap_finish(&walk->visited.data[s]);
    rpi_vec_finish(&walk->visited);
    rpi_vec_finish(&walk->stack);
}

static bool open_stream(struct rpi_c10_walk *walk, uint32_t stream)
{
    struct rpi_idmap none = {0};
    while (walk->visited.count <= stream)
        if (!rpi_vec_push(&walk->visited, none))
            return false;
    return true;
}

/* Puts the node's direct predecessors on the stack. */
static bool push_predecessors(struct rpi_c10_walk *walk, uint32_t node)
{
    const struct rpi_predecessors *all = walk->predecessors;
    uint32_t first = node ? all->ends.data[node - 1] : 0, end = all->ends.data[node];
    if (!rpi_vec_reserve(&walk->stack, walk->stack.count + (end - first)))
        return false;
    for (uint32_t i = first; i < end; i++)
        walk->stack.data[walk->stack.count++] = all->nodes.data[i];
    return true;
}

bool rpi_c10_walk_extend(struct rpi_c10_walk *walk, uint32_t stream, const uint32_t *terminals,
                         size_t count)
{
    walk->stack.count = 0;
    if (!open_stream(walk, stream) || !rpi_vec_reserve(&walk->stack, count))
        return false;
    for (size_t i = 0; i < count; i++)
        walk->stack.data[walk->stack.count++] = terminals[i];
    struct rpi_idmap *visited = &walk->visited.data[stream];
    while (walk->stack.count) {
        uint32_t node = walk->stack.data[--walk->stack.count];
        if (rpi_idmap_get(visited, node) != RPI_ABSENT)
            continue;
        if (!rpi_idmap_set(visited, node, 0) || !push_predecessors(walk, node))
            return false;
    }
    return true;
}

bool rpi_c10_walk_holds(const struct rpi_c10_walk *walk, uint32_t stream, uint32_t node)
{
    return stream < walk->visited.count &&
           rpi_idmap_get(&walk->visited.data[stream], node) != RPI_ABSENT;
}
