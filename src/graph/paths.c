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

bool rpi_paths_count(const struct rpi_path_edge *edges, size_t edge_count, size_t node_count,
                     size_t *out_paths)
{
    struct dependents d = {NULL, NULL};
    bool *laid = rpi_calloc(node_count + 1, sizeof *laid);
    bool made = laid && dependents_init(&d, edges, edge_count, node_count);
    size_t paths = 0;
    for (size_t i = 0; made && i < node_count; i++) {
        paths += !laid[i];
        laid[i] = true;
        paths += lay_out(d.behind + d.first[i], d.first[i + 1] - d.first[i], laid);
    }
    dependents_finish(&d);
    rpi_free(laid);
    if (made)
        *out_paths = paths;
    return made;
}
