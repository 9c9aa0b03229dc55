/* SPDX-License-Identifier: MIT */
#include "graph/paths.h"

#include "base/hostmem.h"

/* What is behind each node, in order: of node i behind[first[i]] up to behind[first[i + 1]]. */
struct dependents {
    size_t *first;
    uint32_t *behind;
};

static bool dependents_init(struct dependents *d, const struct rpi_path_edge *edges,
                            size_t edge_count, size_t node_count)
{
    d->first = rpi_calloc(node_count + 2, sizeof *d->first);
    d->behind = rpi_calloc(edge_count + 1, sizeof *d->behind);
    if (!d->first || !d->behind)
        return false;
    /* Counted two further on, so that placing them leaves each node's first one further on. */
    for (size_t i = 0; i < edge_count; i++)
        d->first[edges[i].from + 2]++;
    for (size_t i = 2; i < node_count + 2; i++)
        d->first[i] += d->first[i - 1];
    for (size_t i = 0; i < edge_count; i++)
        d->behind[d->first[edges[i].from + 1]++] = edges[i].to;
    return true;
}

static void dependents_finish(struct dependents *d)
{
    rpi_free(d->first);
    rpi_free(d->behind);
}

/* What of a node's dependents lies on a path because of it; how many paths begin so. */
static size_t lay_out(const uint32_t *behind, size_t count, bool *laid)
{
    size_t begun = 0;
    while (count && laid[behind[count - 1]])
        count--;
    bool handed_on = false;
    for (size_t i = 0; i < count; i++) {
        bool last = i + 1 == count;
        if (laid[behind[i]] || (last && handed_on))
            continue;
        laid[behind[i]] = true;
        begun += handed_on;
        handed_on = true;
    }
    return begun;
}

struct walk {
    bool *laid;          /* on a path */
    uint32_t *waits_for; /* nodes that it is behind and that were not visited; VISITED */
    struct dependents dependents;
    size_t paths;
};

static const uint32_t VISITED = UINT32_MAX;

static void visit(struct walk *walk, size_t node)
{
    const size_t *first = walk->dependents.first + node;
    const uint32_t *behind = walk->dependents.behind + first[0];
    size_t count = first[1] - first[0];
    walk->paths += !walk->laid[node];
    walk->laid[node] = true;
    walk->paths += lay_out(behind, count, walk->laid);
    walk->waits_for[node] = VISITED;
    for (size_t i = 0; i < count; i++)
        walk->waits_for[behind[i]]--;
}

/* Visits, in their order, the nodes that wait for none; how many those were. */
static size_t sweep(struct walk *walk, size_t node_count)
{
    size_t visited = 0;
    for (size_t i = 0; i < node_count; i++)
        if (!walk->waits_for[i]) {
            visit(walk, i);
            visited++;
        }
    return visited;
}

bool rpi_paths_count(const struct rpi_path_edge *edges, size_t edge_count, size_t node_count,
                     size_t *out_paths)
{
    struct walk walk = {NULL};
    walk.laid = rpi_calloc(node_count + 1, sizeof *walk.laid);
    walk.waits_for = rpi_calloc(node_count + 1, sizeof *walk.waits_for);
    bool made = walk.laid && walk.waits_for &&
                dependents_init(&walk.dependents, edges, edge_count, node_count);
    for (size_t e = 0; made && e < edge_count; e++)
        walk.waits_for[edges[e].to]++;
    for (size_t left = made ? node_count : 0, done = 1; left && done; left -= done)
        done = sweep(&walk, node_count);
    if (made)
        *out_paths = walk.paths;
    dependents_finish(&walk.dependents);
    rpi_free(walk.laid);
    rpi_free(walk.waits_for);
    return made;
}
