/* SPDX-License-Identifier: MIT
 *
 * What a template's reading counts for the estimate of an exec: kernel nodes, and paths. Known
 * shapes, captured work, child graphs, and random graphs against a count that follows each path.
 */
#include "graph_fixture.h"

#include "graph/topology.h"

enum { MOST = 40 };

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
    size_t nodes, kernels, paths;
};

/* Reads the graph and destroys it. */
static struct counted count(CUgraph graph)
{
    struct rpi_topology topology;
    RPT_OK(&f, rpi_topology_read(&topology, f.driver, graph, &f.err));
    struct counted counted = {topology.nodes, topology.kernels, topology.paths};
    rpi_topology_finish(&topology);
    assert_int_equal(f.driver->cuGraphDestroy(graph), 0);
    return counted;
}

/* The oracle: each node that no path reaches begins one, which goes from node to the lowest node
 * behind it until that lies on a path already. */
static size_t count_paths(const struct dag *dag)
{
    bool heir[MOST] = {0};
    size_t paths = 0;
    for (size_t i = 0; i < dag->count; i++)
        for (size_t j = 0; j < dag->count; j++)
            if (dag->edge[i][j]) {
                heir[j] = true;
                break;
            }
    bool lies[MOST] = {0};
    for (size_t i = 0; i < dag->count; i++) {
        if (heir[i])
            continue;
        paths++;
        for (size_t at = i; at < dag->count && !lies[at];) {
            lies[at] = true;
            size_t next = 0;
            while (next < dag->count && !dag->edge[at][next])
                next++;
            at = next;
        }
    }
    for (size_t i = 0; i < dag->count; i++)
        assert_true(lies[i]);
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

/* As captured on two streams, where the second one's work is behind all that it did before. */
static void test_what_a_capture_records(void **state)
{
    (void)state;
    rpt_open(&f);
    CUstream main = f.streams[0], side = f.streams[1];
    CUgraph graph;
    assert_int_equal(f.driver->cuStreamBeginCapture(main, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    for (int i = 0; i < 4; i++) {
        RPT_OK(&f, rpt_launch(&f, f.nothing, main, NULL, &f.err));
        RPT_OK(&f, rpt_join(&f, main, side, &f.err));
        RPT_OK(&f, rpt_launch(&f, f.nothing, side, NULL, &f.err));
        RPT_OK(&f, rpt_launch(&f, f.nothing, main, NULL, &f.err));
        RPT_OK(&f, rpt_join(&f, side, main, &f.err));
    }
    RPT_OK(&f, rpt_launch(&f, f.nothing, main, NULL, &f.err));
    assert_int_equal(f.driver->cuStreamEndCapture(main, &graph), 0);
    struct counted read = count(graph);
    assert_int_equal(read.nodes, 13);
    assert_int_equal(read.kernels, 13);
    assert_int_equal(read.paths, 5);
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
        assert_int_equal(read.kernels, count_kernels(&dag));
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
        assert_int_equal(read.kernels, kernels);
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
        cmocka_unit_test(test_what_a_capture_records),
        cmocka_unit_test(test_random_graphs),
        cmocka_unit_test(test_random_child_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
