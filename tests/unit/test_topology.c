/* SPDX-License-Identifier: MIT
 *
 * What a template's reading counts for the estimate of an exec: kernels and copies, and paths.
 * Known shapes, captured work, child graphs, and random graphs against a count that gives each node
 * its path.
 */
#include "graph_fixture.h"

#include "graph/template/topology.h"

enum { MOST = 40 };
#define NO_PATH ((size_t)-1)

static struct rpt_fixture f;

/* A graph, as a matrix: edge[i][j] where j is behind i. */
struct dag {
    size_t count;
    bool edge[MOST][MOST], kernel[MOST];
};

static CUgraphNode add_node(CUgraph graph, bool kernel)
{
    const CUDA_KERNEL_NODE_PARAMS params = {.func = f.nothing,
                                            .gridDimX = 1,
                                            .gridDimY = 1,
                                            .gridDimZ = 1,
                                            .blockDimX = 1,
                                            .blockDimY = 1,
                                            .blockDimZ = 1};
    CUgraphNode node = NULL;
    if (kernel)
        assert_int_equal(f.driver->cuGraphAddKernelNode(&node, graph, NULL, 0, &params), 0);
    else
        assert_int_equal(f.driver->cuGraphAddEmptyNode(&node, graph, NULL, 0), 0);
    return node;
}

static CUgraph build(const struct dag *dag)
{
    CUgraph graph;
    CUgraphNode nodes[MOST];
    assert_int_equal(f.driver->cuGraphCreate(&graph, 0), 0);
    for (size_t i = 0; i < dag->count; i++)
        nodes[i] = add_node(graph, dag->kernel[i]);
    for (size_t i = 0; i < dag->count; i++)
        for (size_t j = 0; j < dag->count; j++)
            if (dag->edge[i][j])
                assert_int_equal(
                    f.driver->cuGraphAddDependencies(graph, &nodes[i], &nodes[j], NULL, 1), 0);
    return graph;
}

struct counted {
    size_t nodes, charged, paths;
};

/* Reads the graph and destroys it. */
static struct counted count(CUgraph graph)
{
    struct rpi_topology topology;
    RPT_OK(&f, rpi_topology_read(&topology, f.driver, graph, &f.err));
    struct counted counted = {topology.nodes, topology.charged, topology.paths};
    rpi_topology_finish(&topology);
    assert_int_equal(f.driver->cuGraphDestroy(graph), 0);
    return counted;
}

/* The nodes behind node i that lie on no path. */
static size_t list_free(const struct dag *dag, size_t i, const size_t *path, size_t *out_free)
{
    size_t count = 0;
    for (size_t j = 0; j < dag->count; j++)
        if (dag->edge[i][j] && path[j] == NO_PATH)
            out_free[count++] = j;
    return count;
}

/* Their own where none stands ahead of one that it is behind; otherwise by generations: each
 * follows the last of those that it is behind, in the order of those. */
static void list_in_order(const struct dag *dag, size_t *out_order)
{
    size_t place[MOST], last[MOST], count = 0;
    bool ordered = true, listed[MOST] = {false};
    for (size_t i = 0; i < dag->count; i++)
        for (size_t j = 0; j < i; j++)
            ordered &= !dag->edge[i][j];
    for (size_t i = 0; ordered && i < dag->count; i++)
        out_order[count++] = i;
    while (count < dag->count) {
        size_t best = NO_PATH;
        for (size_t i = 0; i < dag->count; i++) {
            bool ready = !listed[i];
            last[i] = 0; /* roots come first */
            for (size_t j = 0; j < dag->count && ready; j++) {
                ready = !dag->edge[j][i] || listed[j];
                if (ready && dag->edge[j][i] && last[i] < place[j] + 1)
                    last[i] = place[j] + 1;
            }
            if (ready && (best == NO_PATH || last[i] < last[best]))
                best = i;
        }
        listed[best] = true;
        place[best] = count;
        out_order[count++] = best;
    }
}

/* The oracle: gives each node its path. A path is a chain of the graph's edges. */
static size_t count_paths(const struct dag *dag)
{
    size_t path[MOST], end[MOST], free_nodes[MOST], order[MOST], paths = 0;
    list_in_order(dag, order);
    for (size_t i = 0; i < dag->count; i++)
        path[i] = NO_PATH;
    for (size_t n = 0; n < dag->count; n++) {
        size_t i = order[n];
        if (path[i] == NO_PATH)
            end[path[i] = paths++] = i;
        size_t count = list_free(dag, i, path, free_nodes);
        for (size_t k = 0; k < count; k++) {
            bool goes_on = k == 0, left = k + 1 == count && count > 1;
            if (goes_on) {
                path[free_nodes[k]] = path[i];
                assert_true(dag->edge[end[path[i]]][free_nodes[k]]);
                end[path[i]] = free_nodes[k];
            } else if (!left) {
                end[path[free_nodes[k]] = paths++] = free_nodes[k];
            }
        }
    }
    return paths;
}

/* ---- Known shapes -------------------------------------------------------------------------- */

static void check_known(const struct dag *dag, size_t paths)
{
    struct counted read = count(build(dag));
    assert_int_equal(count_paths(dag), paths);
    assert_int_equal(read.paths, paths);
    assert_int_equal(read.nodes, dag->count);
}

static void test_chains_are_one_path(void **state)
{
    (void)state;
    rpt_open(&f);
    check_known(&(struct dag){0}, 0);
    for (size_t count = 1; count <= MOST; count += 13) {
        struct dag dag = {.count = count};
        for (size_t i = 1; i < count; i++)
            dag.edge[i - 1][i] = true;
        check_known(&dag, 1);
        for (size_t i = 3; i < count; i++)
            dag.edge[i - 3][i] = true; /* no other order */
        check_known(&dag, 1);
    }
    rpt_close(&f);
}

static void test_forks_are_a_path_each_branch(void **state)
{
    (void)state;
    rpt_open(&f);
    for (size_t branches = 1; branches <= 32; branches *= 2) {
        struct dag dag = {.count = branches + 1};
        for (size_t i = 1; i <= branches; i++)
            dag.edge[0][i] = true;
        check_known(&dag, branches);
        dag.count++; /* the join */
        for (size_t i = 1; i <= branches; i++)
            dag.edge[i][branches + 1] = true;
        check_known(&dag, branches);
    }
    check_known(&(struct dag){.count = 7}, 7);
    rpt_close(&f);
}

static void test_each_diamond_adds_one(void **state)
{
    (void)state;
    rpt_open(&f);
    struct dag dag = {.count = 1};
    for (size_t diamonds = 1; diamonds <= 12; diamonds++) {
        size_t first = dag.count - 1;
        for (size_t branch = first + 1; branch <= first + 2; branch++)
            dag.edge[first][branch] = dag.edge[branch][first + 3] = true;
        dag.count += 3;
        check_known(&dag, 1 + diamonds);
    }
    rpt_close(&f);
}

/* Work that forks to a second stream and joins it, captured: either may go on first. */
static CUgraph capture_forks(int forks, bool second_first)
{
    CUstream first = f.streams[0], second = f.streams[1];
    CUgraph graph;
    assert_int_equal(f.driver->cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    RPT_OK(&f, rpt_launch(&f, f.nothing, first, NULL, &f.err));
    for (int i = 0; i < forks; i++) {
        RPT_OK(&f, rpt_join(&f, first, second, &f.err));
        for (int k = 0; k < 2; k++)
            RPT_OK(&f, rpt_launch(&f, f.nothing, (k == 0) == second_first ? second : first, NULL,
                                  &f.err));
        RPT_OK(&f, rpt_join(&f, second, first, &f.err));
        RPT_OK(&f, rpt_launch(&f, f.nothing, first, NULL, &f.err));
    }
    assert_int_equal(f.driver->cuStreamEndCapture(first, &graph), 0);
    return graph;
}

/* What the second stream does is behind all that it did before, though the join was. */
static void test_captures_of_two_streams(void **state)
{
    (void)state;
    rpt_open(&f);
    for (int forks = 1; forks <= 6; forks++) {
        struct counted read = count(capture_forks(forks, true));
        assert_int_equal(read.charged, 1 + 3 * forks);
        assert_int_equal(read.paths, 1 + forks);
        assert_int_equal(count(capture_forks(forks, false)).paths, 2);
    }
    rpt_close(&f);
}

/* Two chains that wait for each other at every step, or one for the other. */
static void test_chains_that_wait(void **state)
{
    (void)state;
    rpt_open(&f);
    for (int both = 0; both < 2; both++) {
        struct dag dag = {.count = 20};
        for (size_t i = 0; i + 2 < dag.count; i++)
            dag.edge[i][i + 2] = true;
        for (size_t i = 0; i + 3 < dag.count; i += 2)
            dag.edge[i][i + 3] = dag.edge[i + 1][i + 2] = both;
        for (size_t i = 0; !both && i < dag.count; i += 2)
            dag.edge[i][i + 1] = true;
        check_known(&dag, 2);
    }
    rpt_close(&f);
}

static void test_kernels_and_copies_are_charged(void **state)
{
    (void)state;
    rpt_open(&f);
    CUcontext context;
    CUgraph graph;
    CUgraphNode last;
    CUdeviceptr memory;
    assert_int_equal(f.driver->cuMemAlloc(&memory, 64), 0);
    const CUDA_MEMSET_NODE_PARAMS fill = {.dst = memory, .elementSize = 4, .width = 4, .height = 1};
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = memory,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = memory + 32,
                                .WidthInBytes = 16,
                                .Height = 1,
                                .Depth = 1};
    assert_int_equal(f.driver->cuCtxGetCurrent(&context), 0);
    assert_int_equal(f.driver->cuGraphCreate(&graph, 0), 0);
    last = add_node(graph, true);
    assert_int_equal(f.driver->cuGraphAddMemcpyNode(&last, graph, &last, 1, &copy, context), 0);
    assert_int_equal(f.driver->cuGraphAddMemsetNode(&last, graph, &last, 1, &fill, context), 0);
    assert_int_equal(f.driver->cuGraphAddEmptyNode(&last, graph, &last, 1), 0);
    struct counted read = count(graph);
    assert_int_equal(read.nodes, 4);
    assert_int_equal(read.charged, 2);
    assert_int_equal(read.paths, 1);
    f.driver->cuMemFree(memory);
    rpt_close(&f);
}

/* ---- Random graphs ------------------------------------------------------------------------- */

static uint64_t next(uint64_t *random)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return *random >> 33;
}

/* Edges follow an order of their own: the driver need not list nodes in theirs. */
static struct dag random_dag(uint64_t *random, size_t most)
{
    struct dag dag = {.count = 1 + next(random) % most};
    size_t order[MOST];
    uint64_t share = 1 + next(random) % 400;
    for (size_t i = 0; i < dag.count; i++) {
        size_t other = next(random) % (i + 1);
        order[i] = i; /* where other is i */
        order[i] = order[other];
        order[other] = i;
        dag.kernel[i] = next(random) % 4 != 0;
    }
    for (size_t i = 0; i < dag.count; i++)
        for (size_t j = i + 1; j < dag.count; j++)
            dag.edge[order[i]][order[j]] = next(random) % 1000 < share;
    return dag;
}

static size_t count_kernels(const struct dag *dag)
{
    size_t kernels = 0;
    for (size_t i = 0; i < dag->count; i++)
        kernels += dag->kernel[i];
    return kernels;
}

static void test_random_graphs(void **state)
{
    (void)state;
    uint64_t random = 11;
    rpt_open(&f);
    for (int i = 0; i < 400; i++) {
        struct dag dag = random_dag(&random, MOST);
        struct counted read = count(build(&dag));
        assert_int_equal(read.nodes, dag.count);
        assert_int_equal(read.charged, count_kernels(&dag));
        assert_int_equal(read.paths, count_paths(&dag));
    }
    rpt_close(&f);
}

/* A child graph's nodes count, and its paths but the one that its node lies on. */
static void test_random_child_graphs(void **state)
{
    (void)state;
    uint64_t random = 12;
    rpt_open(&f);
    for (int i = 0; i < 100; i++) {
        struct dag outer = random_dag(&random, 12);
        size_t paths = count_paths(&outer), kernels = count_kernels(&outer), nodes = outer.count;
        CUgraph graph = build(&outer);
        for (size_t children = next(&random) % 4; children > 0; children--) {
            struct dag inner = random_dag(&random, 12);
            inner.count = children == 3 ? 0 : inner.count;
            CUgraph within = build(&inner);
            CUgraphNode node;
            assert_int_equal(f.driver->cuGraphAddChildGraphNode(&node, graph, NULL, 0, within), 0);
            assert_int_equal(f.driver->cuGraphDestroy(within), 0);
            paths += inner.count ? count_paths(&inner) : 1; /* the node begins one */
            kernels += count_kernels(&inner);
            nodes += 1 + inner.count;
        }
        struct counted read = count(graph);
        assert_int_equal(read.nodes, nodes);
        assert_int_equal(read.charged, kernels);
        assert_int_equal(read.paths, paths);
    }
    rpt_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains_are_one_path),
        cmocka_unit_test(test_forks_are_a_path_each_branch),
        cmocka_unit_test(test_each_diamond_adds_one),
        cmocka_unit_test(test_captures_of_two_streams),
        cmocka_unit_test(test_chains_that_wait),
        cmocka_unit_test(test_kernels_and_copies_are_charged),
        cmocka_unit_test(test_random_graphs),
        cmocka_unit_test(test_random_child_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
