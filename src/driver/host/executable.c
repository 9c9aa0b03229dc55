/* SPDX-License-Identifier: MIT
 *
 * Executable graphs. Instantiation clones the graph deeply and lays its nodes, child graphs
 * included, into one list of steps in a topological order (Kahn). A launch makes a task of each
 * step with the graph's edges between them, a marker before and one after. Ops are immutable, so
 * setting a node's parameters gives the exec another op and leaves launches in flight alone.
 * Launches of one exec run one after the other.
 */
#include "base/held.h"
#include "driver/host/state.h"

#include <assert.h>

/* ---- instantiation ------------------------------------------------------------------------- */

static uint32_t add_step(CUgraphExec exec, CUgraphNode node)
{
    struct rpi_host_step step = {.node = node};
    return rpi_vec_push(&exec->steps, step) ? (uint32_t)(exec->steps.count - 1) : UINT32_MAX;
}

static bool step_after(CUgraphExec exec, uint32_t step, uint32_t before)
{
    return rpi_vec_push(&exec->steps.data[step].before, before);
}

static CUresult flatten(CUgraphExec exec, CUgraph graph, uint32_t entry);

/* The steps of one node; node->mark becomes the step that ends it. entry: the step that begins the
 * child graph which the node is in, or UINT32_MAX. */
static CUresult flatten_node(CUgraphExec exec, CUgraphNode node, uint32_t entry)
{
    assert(entry == UINT32_MAX || entry < exec->steps.count);
    uint32_t begin = add_step(exec, node->child ? NULL : node);
    if (begin == UINT32_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < node->before.count; i++)
        if (!step_after(exec, begin, (uint32_t)node->before.data[i].node->mark))
            return CUDA_ERROR_OUT_OF_MEMORY;
    if (node->before.count == 0 && entry != UINT32_MAX && !step_after(exec, begin, entry))
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->mark = begin;
    if (!node->child)
        return CUDA_SUCCESS;
    CUresult result = flatten(exec, node->child, begin);
    if (result)
        return result;
    uint32_t end = add_step(exec, NULL);
    if (end == UINT32_MAX || !step_after(exec, end, begin))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < node->child->nodes.count; i++) {
        CUgraphNode inner = node->child->nodes.data[i];
        if (inner->after.count == 0 && !step_after(exec, end, (uint32_t)inner->mark))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    assert(end > begin && end < exec->steps.count);
    node->mark = end;
    return CUDA_SUCCESS;
}

static CUresult flatten(CUgraphExec exec, CUgraph graph, uint32_t entry)
{
    size_t count = graph->nodes.count, ready = 0;
    size_t *missing = rpi_calloc(count, sizeof *missing);
    CUgraphNode *queue = rpi_calloc(count, sizeof(CUgraphNode));
    CUresult result = missing && queue ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count && !result; i++) {
        missing[i] = graph->nodes.data[i]->before.count;
        if (missing[i] == 0)
            queue[ready++] = graph->nodes.data[i];
    }
    size_t taken = 0;
    for (; taken < ready && !result; taken++) {
        CUgraphNode node = queue[taken];
        result = flatten_node(exec, node, entry);
        for (size_t i = 0; i < node->after.count; i++)
            if (--missing[node->after.data[i].node->index] == 0)
                queue[ready++] = node->after.data[i].node;
    }
    assert(ready <= count && taken <= ready);
    if (!result && taken < count)
        result = CUDA_ERROR_INVALID_VALUE; /* the edges close a cycle */
    rpi_free(missing);
    rpi_free(queue);
    return result;
}

static void mark_last_steps(CUgraphExec exec)
{
    for (size_t i = 0; i < exec->steps.count; i++)
        exec->steps.data[i].last = true;
    for (size_t i = 0; i < exec->steps.count; i++)
        for (size_t j = 0; j < exec->steps.data[i].before.count; j++)
            exec->steps.data[exec->steps.data[i].before.data[j]].last = false;
}

static bool find_records(CUgraphExec exec)
{
    for (uint32_t i = 0; i < exec->steps.count; i++) {
        CUgraphNode node = exec->steps.data[i].node;
        if (node && node->op->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD &&
            !rpi_vec_push(&exec->records, i))
            return false;
    }
    return true;
}

static void free_exec(CUgraphExec exec)
{
    for (unsigned k = 0; exec->context && k < RPI_HOST_MOST_EXEC_POOLS; k++) {
        uint64_t *taken = &exec->context->exec_pools[k].taken;
        *taken -= exec->bytes[k] < *taken ? exec->bytes[k] : *taken; /* the context may be gone */
    }
    for (size_t i = 0; i < exec->steps.count; i++)
        rpi_vec_finish(&exec->steps.data[i].before);
    rpi_vec_finish(&exec->steps);
    for (size_t i = 0; exec->parts && i <= exec->records.count; i++)
        rpi_vec_finish(&exec->parts[i]);
    rpi_free(exec->parts);
    rpi_vec_finish(&exec->records);
    rpi_free(exec->reaches);
    rpi_host_task_drop(exec->last);
    if (exec->graph)
        rpi_host_graph_destroy(exec->graph);
    rpi_free(exec);
}

/* Whether every kernel can still be launched. */
static bool functions_are_loaded(CUgraph graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++) {
        CUgraphNode node = graph->nodes.data[i];
        if (node->child && !functions_are_loaded(node->child))
            return false;
        if (node->op->type == CU_GRAPH_NODE_TYPE_KERNEL &&
            !node->op->kernel.function->module->loaded)
            return false;
    }
    return true;
}

static bool memory_is_there(CUgraphExec exec)
{
    for (size_t i = 0; i < exec->steps.count; i++) {
        CUgraphNode node = exec->steps.data[i].node;
        if (node && !rpi_host_op_has_memory(node->op))
            return false;
    }
    return true;
}

/* Each step goes on with the path of the first step before it whose path nobody has taken up yet,
 * or begins one. */
static size_t count_paths(CUgraphExec exec, bool *taken_up)
{
    size_t paths = 0;
    for (size_t i = 0; i < exec->steps.count; i++) {
        const struct rpi_host_step *step = &exec->steps.data[i];
        size_t j = 0;
        while (j < step->before.count && taken_up[step->before.data[j]])
            j++;
        if (j < step->before.count)
            taken_up[step->before.data[j]] = true;
        else
            paths++;
    }
    return paths;
}

/* What an exec takes of a pool. */
static uint64_t pool_bytes(uint64_t paths, uint64_t charged, unsigned pool)
{
    assert(pool < RPI_HOST_MOST_EXEC_POOLS);
    const struct rpi_host_options *options = &rpi_host.options;
    uint64_t count = options->exec_pools ? options->exec_pools : 1, parts = count * (count + 1) / 2;
    return (options->exec_path_bytes * paths * (pool + 1) +
            options->exec_node_bytes * charged * (count - pool)) /
           parts;
}

/* Nothing, where not all pools have enough. */
static CUresult take_memory(CUgraphExec exec)
{
    rpi_assert_held(&rpi_host.lock);
    assert(!exec->context);
    const struct rpi_host_options *options = &rpi_host.options;
    uint64_t step = options->exec_step_bytes ? options->exec_step_bytes : 1, charged = 0, paths;
    uint64_t more[RPI_HOST_MOST_EXEC_POOLS] = {0}, all = 0;
    unsigned pools = options->exec_pools ? options->exec_pools : 1;
    if (!options->exec_path_bytes && !options->exec_node_bytes)
        return CUDA_SUCCESS;
    bool *taken_up = rpi_calloc(exec->steps.count + 1, sizeof *taken_up);
    if (!taken_up)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < exec->steps.count; i++) {
        CUgraphNode node = exec->steps.data[i].node;
        charged += node && (node->op->type == CU_GRAPH_NODE_TYPE_KERNEL ||
                            node->op->type == CU_GRAPH_NODE_TYPE_MEMCPY);
    }
    paths = count_paths(exec, taken_up);
    rpi_free(taken_up);
    CUcontext context = rpi_host_current();
    for (unsigned k = 0; k < pools; k++) {
        uint64_t held = context->exec_pools[k].held;
        uint64_t wanted = context->exec_pools[k].taken + pool_bytes(paths, charged, k);
        more[k] = wanted > held ? (wanted - held + step - 1) / step * step : 0;
        all += more[k];
    }
    if (all && rpi_host_memory_used(context->device) + all > options->total_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->context = context;
    for (unsigned k = 0; k < pools; k++) {
        exec->bytes[k] = pool_bytes(paths, charged, k);
        context->exec_pools[k].taken += exec->bytes[k];
        context->exec_pools[k].held += more[k];
    }
    rpi_host.memory.execs[context->device] += all;
    return CUDA_SUCCESS;
}

/* With the context, whatever is there yet. */
void rpi_host_execs_leave(CUcontext context)
{
    rpi_assert_held(&rpi_host.lock);
    for (unsigned k = 0; k < RPI_HOST_MOST_EXEC_POOLS; k++)
        rpi_host.memory.execs[context->device] -= context->exec_pools[k].held;
}

CUresult rpi_host_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                              unsigned long long flags)
{
    const unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (!exec || !rpi_host_handle_is(graph, RPI_HOST_GRAPH) || !functions_are_loaded(graph))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (flags & ~known) /* uploading needs a stream, which this form does not have */
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExec made = rpi_calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->flags = flags;
    CUresult result = rpi_host_graph_clone(graph, NULL, true, &made->graph);
    if (!result)
        result = flatten(made, made->graph, UINT32_MAX);
    if (!result && !memory_is_there(made))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && !find_records(made))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result)
        result = take_memory(made);
    if (!result && !rpi_host_handle_add(made, RPI_HOST_EXEC))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        free_exec(made);
        return result;
    }
    mark_last_steps(made);
    for (size_t i = 0; i < made->steps.count; i++)
        if (made->steps.data[i].node)
            rpi_host_op_settle(made->steps.data[i].node->op);
    rpi_host.exec_count++;
    *exec = made;
    return CUDA_SUCCESS;
}

/* Launches in flight hold what they need. */
static void remove_exec(CUgraphExec exec)
{
    rpi_host_handle_remove(exec);
    rpi_host.exec_count--;
    free_exec(exec);
}

CUresult rpi_host_cuGraphExecDestroy(CUgraphExec exec)
{
    if (!rpi_host_handle_is(exec, RPI_HOST_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = rpi_host_capture_unsafe();
    if (!result)
        remove_exec(exec);
    return result;
}

void rpi_host_execs_finish(void)
{
    rpi_assert_held(&rpi_host.lock);
    CUgraphExec exec;
    while ((exec = rpi_host_handle_any(RPI_HOST_EXEC)))
        remove_exec(exec);
}

void rpi_host_execs_forget(void)
{
    rpi_assert_held(&rpi_host.lock);
    const struct rpi_host_handles *handles = &rpi_host.handles;
    for (size_t i = 0; i < handles->capacity; i++) {
        if (!handles->slots[i].pointer || handles->slots[i].kind != RPI_HOST_EXEC)
            continue;
        CUgraphExec exec = (CUgraphExec)(uintptr_t)handles->slots[i].pointer;
        rpi_host_task_set(&exec->last, NULL);
        exec->clock = (struct rpi_host_clock){0};
        exec->accessible = exec->checked = 0;
        exec->context = NULL; /* all memory goes */
    }
}

/* ---- launching ----------------------------------------------------------------------------- */

/* The work of a step; markers do nothing. */
static struct rpi_host_op *work_of(const struct rpi_host_step *step)
{
    CUgraphNodeType type = step->node ? step->node->op->type : CU_GRAPH_NODE_TYPE_EMPTY;
    bool runs = type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_HOST;
    return runs ? step->node->op : NULL;
}

/* The event of an event node of this type, or NULL. */
static CUevent event_of(const struct rpi_host_step *step, CUgraphNodeType type)
{
    if (!step->node || step->node->op->type != type ||
        !rpi_host_handle_is(step->node->op->event, RPI_HOST_EVENT))
        return NULL;
    return step->node->op->event;
}

/* Tasks [0] begin, [1 .. steps] the steps, [steps + 1] end, with all their order. Where host memory
 * is short fewer are made, and they are the caller's to cancel. */
static bool make_tasks(CUgraphExec exec, CUstream stream, struct rpi_host_task **tasks)
{
    rpi_assert_held(&rpi_host.lock);
    size_t count = exec->steps.count;
    struct rpi_host_task **begin = &tasks[0], **step_tasks = tasks + 1, **end = &tasks[count + 1];
    *begin = rpi_host_task_create(NULL);
    if (!*begin || !rpi_host_stream_order(stream, *begin) ||
        !rpi_host_task_after(*begin, exec->last))
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct rpi_host_step *step = &exec->steps.data[i];
        struct rpi_host_task *task = step_tasks[i] = rpi_host_task_create(work_of(step));
        if (!task || (step->before.count == 0 && !rpi_host_task_after(task, *begin)))
            return false;
        for (size_t j = 0; j < step->before.count; j++)
            if (!rpi_host_task_after(task, step_tasks[step->before.data[j]]))
                return false;
        CUevent event = event_of(step, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
        if (event && !rpi_host_task_after(task, event->task))
            return false;
    }
    *end = rpi_host_task_create(NULL);
    if (!*end || !rpi_host_task_after(*end, *begin))
        return false;
    for (size_t i = 0; i < count; i++)
        if (exec->steps.data[i].last && !rpi_host_task_after(*end, step_tasks[i]))
            return false;
    return true;
}

/* The launch is the stream's next op: its place in the order, its races, its events. Who waits for
 * an event comes after the part of the launch that the event comes after, not after all of it. */
static void commit(CUgraphExec exec, CUstream stream, struct rpi_host_task **tasks)
{
    rpi_assert_held(&rpi_host.lock);
    size_t count = exec->steps.count;
    rpi_host_clock_join(&stream->clock, &exec->clock);
    for (size_t i = 0; i < count; i++) {
        CUevent event = event_of(&exec->steps.data[i], CU_GRAPH_NODE_TYPE_WAIT_EVENT);
        if (event)
            rpi_host_clock_join(&stream->clock, &event->clock);
    }
    struct rpi_host_clock clock;
    rpi_host_stream_clock(stream, &clock);
    uint64_t *position = &rpi_host.lane_positions[stream->lane];
    rpi_host_race_exec(exec, stream->lane, &clock, *position + 1);
    for (size_t r = 0; r < exec->records.count; r++) {
        uint32_t step = exec->records.data[r];
        CUevent event = event_of(&exec->steps.data[step], CU_GRAPH_NODE_TYPE_EVENT_RECORD);
        clock.at[stream->lane] = ++*position;
        if (event)
            rpi_host_event_set(event, tasks[step + 1], &clock);
    }
    rpi_host_stream_advance(stream, tasks[count + 1]);
    rpi_host_task_set(&exec->last, tasks[count + 1]);
    exec->clock = stream->clock;
    rpi_host.graph_launches++;
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
    size_t count = exec->steps.count + 2;
    struct rpi_host_task **tasks = rpi_calloc(count, sizeof(struct rpi_host_task *));
    if (!tasks)
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool ok = make_tasks(exec, stream, tasks);
    if (ok)
        commit(exec, stream, tasks);
    /* The begin is submitted last: then all is ready to be picked from at once. */
    for (size_t i = count; i-- > 0;) {
        if (!tasks[i])
            continue;
        if (ok)
            rpi_host_task_submit(tasks[i]);
        else
            rpi_host_task_cancel(tasks[i]);
        rpi_host_task_drop(tasks[i]);
    }
    rpi_free(tasks);
    return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Neither a launch nor an upload can be captured; trying ends the capture. */
static CUresult refuse_in_capture(CUstream stream)
{
    rpi_assert_held(&rpi_host.lock);
    CUresult result = rpi_host_capture_check(stream);
    if (!result && stream->capture) {
        stream->capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult rpi_host_cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!rpi_host_handle_is(exec, RPI_HOST_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = refuse_in_capture(stream);
    if (result)
        return result;
    if (!functions_are_loaded(exec->graph))
        return CUDA_ERROR_INVALID_HANDLE;
    if (exec->accessible != rpi_host.memory.generation) {
        if (!memory_is_there(exec))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        exec->accessible = rpi_host.memory.generation;
    }
    return launch(exec, stream);
}

CUresult rpi_host_cuGraphUpload(CUgraphExec exec, CUstream handle)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!rpi_host_handle_is(exec, RPI_HOST_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    return refuse_in_capture(stream); /* a CPU has nothing to upload */
}

/* ---- parameters of one node ---------------------------------------------------------------- */

/* The exec's own node for a node of the graph that it was instantiated from, or NULL. */
static CUgraphNode own_node(CUgraph graph, CUgraphNode node)
{
    assert(node->graph);
    if (node->graph->parent) {
        CUgraphNode parent = own_node(graph, node->graph->parent);
        if (!parent || !parent->child)
            return NULL;
        graph = parent->child;
    }
    if (node->index < graph->nodes.count && graph->nodes.data[node->index]->cloned_from == node->id)
        return graph->nodes.data[node->index];
    /* Nodes were destroyed since: the places have moved. */
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.data[i]->cloned_from == node->id)
            return graph->nodes.data[i];
    return NULL;
}

static CUgraphNode find(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type)
{
    if (!rpi_host_handle_is(exec, RPI_HOST_EXEC) || !rpi_host_handle_is(node, RPI_HOST_NODE))
        return NULL;
    CUgraphNode own = own_node(exec->graph, node);
    return own && own->op->type == type ? own : NULL;
}

/* Gives the node an op, which is consumed, where the change is one that an exec can make. */
static CUresult replace(CUgraphExec exec, CUgraphNode node, struct rpi_host_op *op)
{
    assert(node->op->type == op->type);
    bool keep_priority = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (rpi_host_update_allowed(node->op, op, keep_priority) != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        rpi_host_op_drop(op);
        return CUDA_ERROR_INVALID_VALUE;
    }
    rpi_host_op_drop(node->op);
    node->op = op;
    exec->checked = 0;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUgraphNode own = find(exec, node, CU_GRAPH_NODE_TYPE_KERNEL);
    if (!own || !params)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op;
    CUresult result = rpi_host_kernel_op(params, &own->op->kernel, &op);
    return result ? result : replace(exec, own, op);
}

CUresult rpi_host_cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 const CUDA_MEMCPY3D *params, CUcontext context)
{
    CUgraphNode own = find(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY);
    if (!own || !params || !rpi_host_is_context(context))
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_MEMCPY3D *former = &own->op->copy;
    if (params->Height != 1 || params->Depth != 1 || former->Height != 1 || former->Depth != 1)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op;
    CUresult result = rpi_host_copy_op(params, &op);
    if (result)
        return result;
    if (!rpi_host_copy_moves(own->op, op)) {
        rpi_host_op_drop(op);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return replace(exec, own, op);
}

CUresult rpi_host_cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 const CUDA_MEMSET_NODE_PARAMS *params,
                                                 CUcontext context)
{
    CUgraphNode own = find(exec, node, CU_GRAPH_NODE_TYPE_MEMSET);
    if (!own || !params || !rpi_host_is_context(context))
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op;
    CUresult result = rpi_host_fill_op(params, false, &op);
    return result ? result : replace(exec, own, op);
}

CUresult rpi_host_cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               const CUDA_HOST_NODE_PARAMS *params)
{
    CUgraphNode own = find(exec, node, CU_GRAPH_NODE_TYPE_HOST);
    if (!own || !params)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op;
    CUresult result = rpi_host_function_op(params, &op);
    return result ? result : replace(exec, own, op);
}

CUresult rpi_host_cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                     CUgraph child)
{
    CUgraphNode own = find(exec, node, CU_GRAPH_NODE_TYPE_GRAPH);
    if (!own || !rpi_host_handle_is(child, RPI_HOST_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExecUpdateResultInfo info;
    bool keep_priority = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (rpi_host_update(own->child, child, keep_priority, &info) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    exec->accessible = exec->checked = 0;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph,
                                    CUgraphExecUpdateResultInfo *info)
{
    CUgraphExecUpdateResultInfo found = {0};
    if (!rpi_host_handle_is(exec, RPI_HOST_EXEC) || !rpi_host_handle_is(graph, RPI_HOST_GRAPH)) {
        found.result = CU_GRAPH_EXEC_UPDATE_ERROR;
        if (info)
            *info = found;
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool keep_priority = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    rpi_host_update(exec->graph, graph, keep_priority, &found);
    if (info)
        *info = found;
    if (found.result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    exec->accessible = exec->checked = 0;
    return CUDA_SUCCESS;
}
