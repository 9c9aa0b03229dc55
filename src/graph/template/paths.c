/* SPDX-License-Identifier: MIT */
#include "graph/template/paths.h"

#include "base/hostmem.h"

#include <assert.h>

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

/* Numbers of the nodes in the order in which the driver takes them. */
static bool list_in_order(const struct dependents *d, const struct rpi_path_edge *edges,
                          size_t edge_count, size_t node_count, uint32_t *out_order)
{
    bool ordered = true;
    for (size_t e = 0; ordered && e < edge_count; e++)
        ordered = edges[e].from < edges[e].to;
    for (size_t i = 0; ordered && i < node_count; i++)
        out_order[i] = (uint32_t)i;
    if (ordered)
        return true;
    uint32_t *ahead = rpi_calloc(node_count + 1, sizeof *ahead); /* not listed yet, of each node */
    size_t count = 0;
    if (!ahead)
        return false;
    for (size_t e = 0; e < edge_count; e++)
        ahead[edges[e].to]++;
    for (size_t i = 0; i < node_count; i++)
        if (!ahead[i])
            out_order[count++] = (uint32_t)i;
    for (size_t next = 0; next < count; next++)
        for (size_t k = d->first[out_order[next]]; k < d->first[out_order[next] + 1]; k++)
            if (!--ahead[d->behind[k]])
                out_order[count++] = d->behind[k];
    rpi_free(ahead);
    return true;
}

bool rpi_paths_count(const struct rpi_path_edge *edges, size_t edge_count, size_t node_count,
                     size_t *out_paths)
{
    struct dependents d = {NULL, NULL};
    bool *laid = rpi_calloc(node_count + 1, sizeof *laid);
    uint32_t *order = rpi_calloc(node_count + 1, sizeof *order);
    bool made = laid && order && dependents_init(&d, edges, edge_count, node_count) &&
                list_in_order(&d, edges, edge_count, node_count, order);
    size_t paths = 0;
    for (size_t n = 0; made && n < node_count; n++) {
        uint32_t i = order[n];
        paths += !laid[i];
        laid[i] = true;
        paths += lay_out(d.behind + d.first[i], d.first[i + 1] - d.first[i], laid);
    }
    dependents_finish(&d);
    rpi_free(laid);
    rpi_free(order);
    if (made)
        assert(paths <= node_count);
    *out_paths = paths;
    return made;
}
