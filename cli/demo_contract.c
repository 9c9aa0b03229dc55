/* SPDX-License-Identifier: MIT
 *
 * The contract: two callables of a sequence, of which the second reads a block that the first
 * keeps. Called in the wrong order they would give wrong numbers with any other system; here the
 * call is refused, and what it is told is kept. Then both are called in order, which is checked
 * too.
 */
#include "demo.h"
#include "error.h"
#include "gpu.h"

#include <stdio.h>

enum { BYTES = 4096 };

struct pair {
    struct gpu gpu;
    struct rp_device *device;
    struct rp_pool *pool;
    struct rp_callable *encode, *decode;
    uint64_t kept;    /* what encode leaves, and decode reads */
    uint64_t buffers; /* in, then out */
};

static rp_status copy(const struct pair *p, uint64_t to, uint64_t from, struct rp_call *call,
                      struct rp_error *err)
{
    return gpu_check(&p->gpu, p->gpu.cuMemcpyDtoDAsync(to, from, BYTES, rp_call_stream(call)),
                     "cuMemcpyDtoDAsync", err);
}

static rp_status encode(struct rp_call *call, void *user, struct rp_error *err)
{
    struct pair *p = user;
    rp_status status = rp_call_alloc(call, BYTES, rp_call_stream(call), &p->kept, err);
    return status ? status : copy(p, p->kept, rp_call_arg(call, 0), call, err);
}

static rp_status decode(struct rp_call *call, void *user, struct rp_error *err)
{
    struct pair *p = user;
    return copy(p, rp_call_arg(call, 0), p->kept, call, err);
}

static rp_status create(struct pair *p, struct rp_error *err)
{
    struct rp_pool_options pool = RP_POOL_OPTIONS_INIT;
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    rp_status status = gpu_init(&p->gpu, p->device, err);
    if (!status)
        status = gpu_check(&p->gpu, p->gpu.cuMemAlloc(&p->buffers, (size_t)2 * BYTES), "cuMemAlloc",
                           err);
    pool.kind = RP_POOL_SEQUENCE;
    if (!status)
        status = rp_pool_create(p->device, &pool, &p->pool, err);
    options.pool = p->pool;
    options.name = "encode";
    if (!status)
        status = rp_callable_create(p->device, &options, encode, p, &p->encode, err);
    options.name = "decode";
    if (!status)
        status = rp_callable_create(p->device, &options, decode, p, &p->decode, err);
    return status;
}

static void destroy(struct pair *p)
{
    rp_callable_destroy(p->decode);
    rp_callable_destroy(p->encode);
    rp_pool_destroy(p->pool);
    if (p->buffers)
        p->gpu.cuMemFree(p->buffers);
}

/* Captures both, then calls them in the wrong order and in the right one. */
static rp_status call_both(struct pair *p, struct demo_facts *facts, struct rp_error *err)
{
    struct rp_arg in = {.address = p->buffers, .bytes = BYTES, .role = RP_ARG_IN};
    struct rp_arg out = {.address = p->buffers + BYTES, .bytes = BYTES, .role = RP_ARG_OUT};
    struct rp_inputs to_encode = {.args = &in, .arg_count = 1};
    struct rp_inputs to_decode = {.args = &out, .arg_count = 1};
    rp_status status = rp_callable_capture(p->encode, &to_encode, 1, NULL, NULL, NULL, err);
    if (!status)
        status = rp_callable_capture(p->decode, &to_decode, 1, NULL, NULL, NULL, err);
    if (status)
        return status;
    struct rp_error refusal;
    status = rp_callable_call(p->decode, &to_decode, NULL, &refusal);
    if (status != RP_ERROR_CONTRACT)
        return cli_error(err, RP_ERROR_INTERNAL, "rp_callable_call",
                         "a call in the wrong order was not refused (%s)", rp_status_name(status));
    snprintf(facts->refused, sizeof facts->refused, "%s", refusal.message);
    status = rp_callable_call(p->encode, &to_encode, NULL, err);
    return status ? status : rp_callable_call(p->decode, &to_decode, NULL, err);
}

rp_status demo_contract(struct rp_device *device, struct demo_facts *facts, struct rp_error *err)
{
    struct pair pair = {.device = device};
    rp_status status = rp_device_push(device, err);
    if (status)
        return status;
    status = create(&pair, err);
    if (!status)
        status = call_both(&pair, facts, err);
    destroy(&pair);
    rp_device_pop(device);
    return status;
}
