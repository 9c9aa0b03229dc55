/* SPDX-License-Identifier: MIT
 *
 * Libraries: kernels that belong to no context, launched as they are or by their function, and as
 * graph nodes under either name.
 */
#include "conformance.h"

#include "kernels/kernels.h"

struct library {
    CUlibrary handle;
    CUkernel kernel;     /* rpt_mix */
    CUfunction function; /* of the kernel */
};

static struct library load(struct rpt *t)
{
    struct library l = {0};
    if (!t->d->cuLibraryLoadData)
        rpt_skip(t, "the driver lacks cuLibraryLoadData");
    OK(cuLibraryLoadData(&l.handle, rpt_kernel_image(t->d), NULL, NULL, 0, NULL, NULL, 0));
    rpt_track(t, TRACKED_LIBRARY, HANDLE_OF(l.handle), 0);
    OK(cuLibraryGetKernel(&l.kernel, l.handle, "rpt_mix"));
    OK(cuKernelGetFunction(&l.function, l.kernel));
    REQUIRE(l.kernel != NULL && l.function != NULL);
    return l;
}

static CUfunction as_function(CUkernel kernel)
{
    return (CUfunction)(void *)kernel;
}

void case_library_kernel_is_launched(struct rpt *t)
{
    struct library l = load(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUstream stream = rpt_stream(t);
    uint32_t value = 3;
    void *args[] = {&word, &value};
    OK(cuLaunchKernel(as_function(l.kernel), 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
    EQUAL(rpt_word(t, word), 3);
    value = 4;
    OK(cuLaunchKernel(l.function, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
    EQUAL(rpt_word(t, word), MIXED(3, 4));
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream};
    value = 5;
    OK(cuLaunchKernelEx(&config, as_function(l.kernel), args, NULL));
    EQUAL(rpt_word(t, word), MIXED(3, 4, 5));
}

void case_library_refusals(struct rpt *t)
{
    struct library l = load(t);
    CUkernel kernel;
    EXPECT(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&kernel, l.handle, "rpt_missing"));
    OK(cuLibraryUnload(l.handle));
    rpt_forget(t, TRACKED_LIBRARY, HANDLE_OF(l.handle));
}

/* What is no image is refused when it is loaded, or, by a driver that puts off loading, when
 * something of it is asked for. */
void case_library_bad_image_undocumented(struct rpt *t)
{
    static const char text[64] = "this is neither PTX nor a kernel image";
    CUlibrary bad;
    CUkernel kernel;
    CUfunction function;
    if (!t->d->cuLibraryLoadData)
        rpt_skip(t, "the driver lacks cuLibraryLoadData");
    if (t->d->cuLibraryLoadData(&bad, text, NULL, NULL, 0, NULL, NULL, 0) != CUDA_SUCCESS)
        return;
    rpt_track(t, TRACKED_LIBRARY, HANDLE_OF(bad), 0);
    REQUIRE(t->d->cuLibraryGetKernel(&kernel, bad, "rpt_mix") != CUDA_SUCCESS ||
            t->d->cuKernelGetFunction(&function, kernel) != CUDA_SUCCESS);
}

/* A kernel is no function, but where it is launched. */
void case_library_kernel_is_no_function_undocumented(struct rpt *t)
{
    struct library l = load(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraphNode node;
    uint32_t value = 3;
    int registers;
    void *args[] = {&word, &value};
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(as_function(l.kernel), 1, 1, args);
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuGraphAddKernelNode(&node, rpt_graph(t), NULL, 0, &params));
    EXPECT(CUDA_ERROR_INVALID_HANDLE,
           cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, as_function(l.kernel)));
}

static void expect_both(struct rpt *t, CUgraphNode node, const struct library *l)
{
    CUDA_KERNEL_NODE_PARAMS params = {0};
    OK(cuGraphKernelNodeGetParams(node, &params));
    REQUIRE(params.func == l->function);
    REQUIRE(params.kern == l->kernel);
}

/* However a library's kernel became a node, the node tells the kernel and its function. */
void case_library_nodes_tell_kernel_and_function_undocumented(struct rpt *t)
{
    struct library l = load(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUstream stream = rpt_stream(t);
    CUgraph graph = rpt_graph(t);
    uint32_t value = 3;
    void *args[] = {&word, &value};
    for (int i = 0; i < 2; i++) {
        CUfunction launched = i ? l.function : as_function(l.kernel);
        rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        OK(cuLaunchKernel(launched, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
        expect_both(t, rpt_node(t, rpt_end(t, stream), 0), &l);
    }
    for (int i = 1; i < 4; i++) {
        CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(i & 1 ? l.function : NULL, 1, 1, args);
        CUgraphNode node;
        params.kern = i & 2 ? l.kernel : NULL;
        OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
        expect_both(t, node, &l);
    }
    CUDA_KERNEL_NODE_PARAMS params = {0};
    OK(cuGraphKernelNodeGetParams(rpt_mix_node(t, graph, NULL, word, 1), &params));
    REQUIRE(params.kern == NULL); /* a module's function has none */
}

/* An exec takes either name, or both, for a node that was made with any. */
void case_library_kernel_is_set_under_either_name(struct rpt *t)
{
    struct library l = load(t);
    CUdeviceptr words = rpt_memory(t, 8), to = words + 4;
    CUstream stream = rpt_stream(t);
    uint32_t value = 9;
    void *args[] = {&words, &value}, *others[] = {&to, &value};
    for (int made = 0; made < 3; made++) {
        CUgraph graph = rpt_graph(t);
        CUgraphNode node;
        CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(
            made == 0 ? NULL : (made == 1 ? l.function : rpt_function(t, "rpt_mix")), 1, 1, args);
        params.kern = made == 0 ? l.kernel : NULL;
        OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
        CUgraphExec exec = rpt_instantiate(t, graph);
        for (int set = 1; set < 4; set++) {
            CUDA_KERNEL_NODE_PARAMS other =
                rpt_kernel_params(set & 1 ? l.function : NULL, 1, 1, others);
            other.kern = set & 2 ? l.kernel : NULL;
            OK(cuMemsetD8(words, 0, 8));
            OK(cuCtxSynchronize());
            OK(cuGraphExecKernelNodeSetParams(exec, node, &other));
            rpt_run(t, exec, stream);
            EQUAL(rpt_word(t, words), 0);
            EQUAL(rpt_word(t, words + 4), 9);
        }
    }
}

/* From one name to the other in a child graph, by an update of the whole and by its node. */
void case_library_kernel_in_a_child_graph(struct rpt *t)
{
    struct library l = load(t);
    CUdeviceptr words = rpt_memory(t, 12), to = words;
    CUgraph graphs[2], embedded;
    CUgraphNode node, holder;
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    uint32_t value = 9;
    void *args[] = {&to, &value};
    for (int i = 0; i < 2; i++) {
        CUgraph inner = rpt_graph(t);
        CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(i ? NULL : l.function, 1, 1, args);
        params.kern = i ? l.kernel : NULL;
        to = words + 4 * (unsigned)i;
        graphs[i] = rpt_graph(t);
        OK(cuGraphAddKernelNode(&node, inner, NULL, 0, &params));
        OK(cuGraphAddChildGraphNode(&holder, graphs[i], NULL, 0, inner));
    }
    CUgraphExec exec = rpt_instantiate(t, graphs[0]);
    OK(cuGraphExecUpdate(exec, graphs[1], &info));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, words), 0);
    EQUAL(rpt_word(t, words + 4), 9);
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(NULL, 1, 1, args);
    params.kern = l.kernel;
    to = words + 8;
    OK(cuGraphChildGraphNodeGetGraph(rpt_node(t, graphs[0], 0), &embedded));
    OK(cuGraphExecKernelNodeSetParams(exec, rpt_node(t, embedded, 0), &params));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, words + 4), 9);
    EQUAL(rpt_word(t, words + 8), 9);
}
