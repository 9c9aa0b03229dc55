/* SPDX-License-Identifier: MIT
 *
 * What orders the program: a stream that reads a block waits for its last writer (for its event, or
 * for all of the writer's stream); one that changes it waits for its readers as well.
 */
#include "property/callable.h"

struct block {
    uint64_t address, bytes; /* 0 bytes: not there */
    int writer;              /* -1: none since the run began */
    unsigned readers;        /* one bit a stream */
};

struct running {
    struct subject *subject;
    struct rp_call *call;
    int mode; /* 0: rehearsal; 1: record */
    CUstream streams[STREAMS];
    bool forked[STREAMS];
    uint64_t sums[STREAMS];
    struct block blocks[BLOCKS_MOST];
    int due[BLOCKS_MOST]; /* step at which a free that was put off comes; 0: none */
};

static rp_status driver_status(CUresult result, const char *function, struct rp_error *err)
{
    return result == CUDA_SUCCESS ? RP_OK : rpi_error_driver(err, result, function, "a program");
}

/* ---- Memory -------------------------------------------------------------------------------- */

static void note(struct subject *subject, const char *what, uint64_t address, uint64_t other)
{
    if (subject->mistakes++ == 0)
        snprintf(subject->mistake, sizeof subject->mistake, "0x%llx %s 0x%llx",
                 (unsigned long long)address, what, (unsigned long long)other);
}

/* No two blocks that the program holds may share an address, and each is aligned. */
static void check_address(struct running *r, uint64_t address, uint64_t bytes)
{
    if (address % r->subject->alignment)
        note(r->subject, "is not aligned to", address, r->subject->alignment);
    for (int i = 0; i < BLOCKS_MOST; i++) {
        const struct block *other = &r->blocks[i];
        if (other->bytes && address < other->address + other->bytes &&
            other->address < address + bytes)
            note(r->subject, "overlaps the block at", address, other->address);
    }
    for (int s = 0; s < STREAMS; s++)
        if (r->sums[s] && address < r->sums[s] + WIDTH * sizeof(float) &&
            r->sums[s] < address + bytes)
            note(r->subject, "overlaps the accumulator at", address, r->sums[s]);
}

static rp_status alloc(struct running *r, const struct op *op, struct rp_error *err)
{
    struct block *block = &r->blocks[op->block];
    uint64_t bytes = op->count * sizeof(float) + op->pad[r->mode];
    rp_status status = rp_call_alloc(r->call, bytes, r->streams[op->stream], &block->address, err);
    if (status != RP_OK)
        return status;
    check_address(r, block->address, bytes ? bytes : 1);
    block->bytes = bytes ? bytes : 1;
    block->writer = op->stream;
    block->readers = 0;
    return RP_OK;
}

static rp_status release(struct running *r, int block, struct rp_error *err)
{
    r->due[block] = 0;
    r->blocks[block].bytes = 0;
    return rp_call_free(r->call, r->blocks[block].address, err);
}

static rp_status free_or_put_off(struct running *r, const struct op *op, int step,
                                 struct rp_error *err)
{
    int delay = op->delay[r->mode];
    if (!delay)
        return release(r, op->block, err);
    r->due[op->block] = delay == NEVER ? NEVER : step + delay;
    return RP_OK;
}

static rp_status free_what_is_due(struct running *r, int step, struct rp_error *err)
{
    rp_status status = RP_OK;
    for (int i = BLOCKS_FIRST; i < BLOCKS_MOST && status == RP_OK; i++)
        if (r->due[i] && r->due[i] <= step)
            status = release(r, i, err);
    return status;
}

/* ---- Order --------------------------------------------------------------------------------- */

static rp_status join(struct running *r, int from, int to, struct rp_error *err)
{
    if (from == to || r->subject->forgets_join)
        return RP_OK;
    return rpt_join(r->subject->f, r->streams[from], r->streams[to], err);
}

/* Makes a stream part of the capture, and gives it its accumulator. */
static rp_status fork_stream(struct running *r, int stream, int from, struct rp_error *err)
{
    const struct rpt_fixture *f = r->subject->f;
    if (r->forked[stream])
        return RP_OK;
    r->forked[stream] = true;
    rp_status status = RP_OK;
    if (stream > 0)
        status = rpt_join(f, r->streams[r->forked[from] && from != stream ? from : 0],
                          r->streams[stream], err);
    uint64_t sum = 0;
    if (status == RP_OK)
        status = rp_call_alloc(r->call, WIDTH * sizeof(float), r->streams[stream], &sum, err);
    if (status != RP_OK)
        return status;
    check_address(r, sum, WIDTH * sizeof(float));
    r->sums[stream] = sum;
    return rpt_fill(f, r->streams[stream], sum, 0, WIDTH, err);
}

static rp_status use(struct running *r, int block, int stream, struct rp_error *err)
{
    if (block < BLOCKS_FIRST || r->subject->forgets_use)
        return RP_OK;
    return rp_call_use(r->call, r->blocks[block].address, r->streams[stream], err);
}

static rp_status wait_for_writer(struct running *r, int block, int stream, struct rp_error *err)
{
    const struct block *b = &r->blocks[block];
    if (b->writer == stream || b->writer < 0)
        return RP_OK;
    if (!r->subject->program->events || block < BLOCKS_FIRST)
        return join(r, b->writer, stream, err);
    return driver_status(
        r->subject->f->driver->cuStreamWaitEvent(r->streams[stream], r->subject->events[block], 0),
        "cuStreamWaitEvent", err);
}

static rp_status begin_read(struct running *r, int block, int stream, struct rp_error *err)
{
    rp_status status = wait_for_writer(r, block, stream, err);
    if (status == RP_OK)
        status = use(r, block, stream, err);
    r->blocks[block].readers |= 1u << stream;
    return status;
}

static rp_status begin_change(struct running *r, int block, int stream, struct rp_error *err)
{
    rp_status status = begin_read(r, block, stream, err);
    for (int s = 0; s < STREAMS && status == RP_OK; s++)
        if (r->blocks[block].readers >> s & 1)
            status = join(r, s, stream, err);
    r->blocks[block].writer = stream;
    r->blocks[block].readers = 0;
    return status;
}

static rp_status end_write(struct running *r, int block, int stream, struct rp_error *err)
{
    if (!r->subject->program->events)
        return RP_OK;
    return driver_status(
        r->subject->f->driver->cuEventRecord(r->subject->events[block], r->streams[stream]),
        "cuEventRecord", err);
}

/* ---- Work ---------------------------------------------------------------------------------- */

static void count_call(void *counter)
{
    atomic_fetch_add((atomic_int *)counter, 1);
}

/* Some copies and fills are nodes of child graphs too. */
static bool lies_in_child(const struct op *op)
{
    bool may = op->kind == OP_COPY || op->kind == OP_MEMSET;
    return op->kind == OP_CHILD || (may && op->count % 4 == 0);
}

static CUresult add_copy(const struct rpt_fixture *f, CUgraph graph, uint64_t to, uint64_t from,
                         size_t bytes)
{
    CUgraphNode node;
    CUcontext context = NULL;
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = from,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = to,
                          .WidthInBytes = bytes,
                          .Height = 1,
                          .Depth = 1};
    CUresult result = f->driver->cuCtxGetCurrent(&context);
    return result ? result : f->driver->cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context);
}

static CUresult add_set(const struct rpt_fixture *f, CUgraph graph, uint64_t to,
                        const struct op *op, CUgraphNode *out_node)
{
    CUcontext context = NULL;
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = to, .elementSize = sizeof op->value, .width = op->count, .height = 1};
    memcpy(&fill.value, &op->value, sizeof op->value);
    CUresult result = f->driver->cuCtxGetCurrent(&context);
    return result ? result
                  : f->driver->cuGraphAddMemsetNode(out_node, graph, NULL, 0, &fill, context);
}

/* block = value; block += from. */
static CUresult add_sum(const struct rpt_fixture *f, CUgraph graph, uint64_t to, uint64_t from,
                        const struct op *op)
{
    float one = 1;
    uint32_t count = op->count;
    void *add[] = {&to, &from, &one, &count};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = f->saxpy,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 32,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = add};
    CUgraphNode first, second;
    CUresult result = add_set(f, graph, to, op, &first);
    return result ? result : f->driver->cuGraphAddKernelNode(&second, graph, &first, 1, &kernel);
}

/* A graph that does the operation, made by hand; half of them hold it in a child of their own. */
static CUresult make_child(const struct rpt_fixture *f, uint64_t to, uint64_t from,
                           const struct op *op, CUgraph *out_graph)
{
    CUgraph outer = NULL;
    CUgraphNode node;
    CUresult result = f->driver->cuGraphCreate(out_graph, 0);
    if (result != CUDA_SUCCESS)
        return result;
    if (op->kind == OP_COPY)
        result = add_copy(f, *out_graph, to, from, op->count * sizeof(float));
    else if (op->kind == OP_MEMSET)
        result = add_set(f, *out_graph, to, op, &node);
    else
        result = add_sum(f, *out_graph, to, from, op);
    if (result != CUDA_SUCCESS || op->count / 4 % 2)
        return result;
    result = f->driver->cuGraphCreate(&outer, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = f->driver->cuGraphAddChildGraphNode(&node, outer, NULL, 0, *out_graph);
    f->driver->cuGraphDestroy(*out_graph);
    *out_graph = outer;
    return result;
}

static rp_status run_child(struct running *r, const struct op *op, struct rp_error *err)
{
    const struct rpt_fixture *f = r->subject->f;
    uint64_t to = r->blocks[op->block].address, from = r->blocks[op->from[0]].address;
    CUgraph child = NULL;
    CUresult result = make_child(f, to, from, op, &child);
    if (result == CUDA_SUCCESS)
        result = rpt_add_child(f, r->streams[op->stream], child);
    if (child)
        f->driver->cuGraphDestroy(child);
    return driver_status(result, "adding a child graph", err);
}

static rp_status run_sum(struct running *r, const struct op *op, struct rp_error *err)
{
    const struct rpt_fixture *f = r->subject->f;
    CUstream stream = r->streams[op->stream];
    uint64_t to = r->blocks[op->block].address, from = r->blocks[op->from[0]].address;
    rp_status status = rpt_fill(f, stream, to, op->value, op->count, err);
    return status == RP_OK ? rpt_saxpy(f, stream, to, from, 1, op->count, err) : status;
}

static rp_status launch(struct running *r, const struct op *op, struct rp_error *err)
{
    const struct rpt_fixture *f = r->subject->f;
    CUstream s = r->streams[op->stream];
    uint64_t to = r->blocks[op->block].address, from = r->blocks[op->from[0]].address;
    uint32_t bits;
    memcpy(&bits, &op->value, sizeof bits);
    if (lies_in_child(op) && rpt_is_capturing(f, s))
        return run_child(r, op, err);
    switch (op->kind) {
    case OP_FILL:
        return rpt_fill(f, s, to, op->value, op->count, err);
    case OP_MEMSET:
        return driver_status(f->driver->cuMemsetD32Async(to, bits, op->count, s),
                             "cuMemsetD32Async", err);
    case OP_SCALE:
        return rpt_scale(f, s, to, from, -1, op->count, err);
    case OP_COPY:
        return driver_status(f->driver->cuMemcpyDtoDAsync(to, from, op->count * sizeof(float), s),
                             "cuMemcpyDtoDAsync", err);
    case OP_ADD:
        return rpt_add(f, s, to, from, r->blocks[op->from[1]].address, op->count, err);
    case OP_CHILD:
        return run_sum(r, op, err);
    case OP_READ:
        return rpt_saxpy(f, s, r->sums[op->stream], from, op->value, op->count, err);
    case OP_UPDATE:
        return rpt_saxpy(f, s, to, from, op->value, op->count, err);
    default:
        return RP_OK;
    }
}

/* An operation on blocks: memory, order, work. */
static rp_status work(struct running *r, const struct op *op, struct rp_error *err)
{
    rp_status status = RP_OK;
    bool makes = op_makes_block(op->kind), writes = makes || op->kind == OP_UPDATE;
    if (makes && op->early)
        status = alloc(r, op, err);
    if (status == RP_OK)
        status = fork_stream(r, op->stream, op->other, err);
    for (int i = 0; i < op_sources(op->kind) && status == RP_OK; i++)
        status = begin_read(r, op->from[i], op->stream, err);
    if (status == RP_OK && makes && !op->early)
        status = alloc(r, op, err);
    if (status == RP_OK && op->kind == OP_UPDATE)
        status = begin_change(r, op->block, op->stream, err);
    if (status == RP_OK)
        status = launch(r, op, err);
    if (status == RP_OK && writes)
        status = end_write(r, op->block, op->stream, err);
    return status;
}

static rp_status step(struct running *r, const struct op *op, int number, struct rp_error *err)
{
    rp_status status = free_what_is_due(r, number, err);
    if (status != RP_OK)
        return status;
    if (op->kind == OP_FREE)
        return free_or_put_off(r, op, number, err);
    if (op->kind != OP_JOIN && op->kind != OP_HOST)
        return work(r, op, err);
    status = fork_stream(r, op->stream, op->other, err);
    if (status == RP_OK && op->kind == OP_JOIN)
        return r->forked[op->other] ? join(r, op->other, op->stream, err) : RP_OK;
    if (status == RP_OK)
        status = driver_status(r->subject->f->driver->cuLaunchHostFunc(
                                   r->streams[op->stream], count_call, &r->subject->host_calls),
                               "cuLaunchHostFunc", err);
    return status;
}

/* ---- All of it ----------------------------------------------------------------------------- */

static void begin(struct running *r)
{
    r->streams[0] = rp_call_stream(r->call);
    for (int s = 1; s < STREAMS; s++)
        r->streams[s] = r->subject->f->streams[s - 1];
    for (int i = 0; i < BLOCKS_FIRST; i++)
        r->blocks[i] = (struct block){.address = rp_call_arg(r->call, (size_t)i),
                                      .bytes = WIDTH * sizeof(float),
                                      .writer = -1};
}

/* Joins all streams and sums up; accumulators are given back. */
static rp_status end(struct running *r, struct rp_error *err)
{
    const struct rpt_fixture *f = r->subject->f;
    uint64_t out = rp_call_arg(r->call, 2);
    rp_status status = rpt_fill(f, r->streams[0], out, 0, WIDTH, err);
    for (int s = 0; s < STREAMS && status == RP_OK; s++) {
        if (!r->forked[s])
            continue;
        if (s > 0)
            status = rpt_join(f, r->streams[s], r->streams[0], err);
        if (status == RP_OK)
            status = rpt_saxpy(f, r->streams[0], out, r->sums[s], 1, WIDTH, err);
        if (status == RP_OK)
            status = rp_call_use(r->call, r->sums[s], r->streams[0], err);
        if (status == RP_OK)
            status = rp_call_free(r->call, r->sums[s], err);
    }
    return status;
}

rp_status subject_run(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    struct running r = {.subject = subject, .call = call, .mode = subject->runs++ % 2};
    const struct program *p = subject->program;
    begin(&r);
    subject->host_ops = 0;
    rp_status status = fork_stream(&r, 0, 0, err);
    for (int i = 0; i < p->count && status == RP_OK; i++) {
        subject->host_ops += p->ops[i].kind == OP_HOST;
        status = step(&r, &p->ops[i], i, err);
    }
    return status == RP_OK ? end(&r, err) : status;
}
