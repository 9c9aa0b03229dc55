/* SPDX-License-Identifier: MIT
 *
 * Graphs that PyTorch captures and replays itself (torch.cuda.graph, reprise.graph): such a capture
 * is taken once, so the library adopts it (rp_graph_adopt) and places its blocks while it goes on.
 *
 *     lease    a pool of PyTorch's, by its id, and the pool of the library's that stands for it: a
 *              sequence of its own, or the reprise.Pool that it was bound to
 *     once     one capture in it, adopted at its first allocation
 *
 * What PyTorch tells: a capture begins in a pool, ends in it, and later a graph of the pool is no
 * more, though not which. A capture that fails begins and never ends; the next beginning finds it.
 * So the graphs of a lease go all together, once PyTorch has released them all, and each when no
 * tensor lies in it any more; at the next sweep, as nobody knows what runs until the device is
 * waited for.
 *
 * rpp_state.lock guards all of it; the functions that say so are called with it held.
 */
#ifndef REPRISE_PYTHON_ONCE_H
#define REPRISE_PYTHON_ONCE_H

#include "base/state.h"

struct rpp_pool_id {
    uint64_t words[2];
};

void rpp_once_begin(int ordinal, struct rpp_pool_id id);
void rpp_once_end(int ordinal, struct rpp_pool_id id);
void rpp_once_release(int ordinal, struct rpp_pool_id id);

/* A capture of PyTorch's that this thread began has failed. One that took memory is found out at
 * the next beginning; of one that took none nobody knows otherwise, and streams are asked about. */
void rpp_once_abandon(void);

/* Memory on a stream that is capturing. False: there is no lease that would take it. */
bool rpp_once_alloc(uint64_t bytes, int ordinal, struct CUstream_st *stream, uint64_t *out_address,
                    rp_status *out_status, struct rp_error *err);
/* Of a block whose `once` is set. With the lock held. */
void rpp_once_free(const struct rpp_block *block);
void rpp_once_use(const struct rpp_block *block, struct CUstream_st *stream);

/* The next allocation of this thread is to be this block of the lease, which was the stream's and was
 * freed since its capture; 0: no more. */
void rpp_once_want(struct rpp_pool_id id, uint64_t address, struct CUstream_st *stream);
/* False: none is wanted. */
bool rpp_once_hold(uint64_t bytes, int ordinal, uint64_t *out_address, rp_status *out_status,
                   struct rp_error *err);

/* Destroys what nobody needs any more; waits for the device where there is anything. Nothing while
 * a capture is under way. */
void rpp_once_sweep(void);

/* PyTorch's pool stands for this one from now on; the keeper, a reference that the lease owns,
 * keeps it alive. False: a lease of that id has another pool already. Without host memory too. */
bool rpp_once_bind(int ordinal, struct rpp_pool_id id, struct rp_pool *pool, void *keeper);
/* A keeper that no lease needs any more, which is the caller's then; NULL: there is none. */
void *rpp_once_unbind(void);

/* What the leases of a device hold, in bytes: of tensors, and of device memory. */
void rpp_once_totals(int ordinal, int64_t *out_allocated, int64_t *out_reserved);

/* Facts for reports: one for each lease and each capture in it, copied. */
struct rpp_once_facts {
    int ordinal;
    struct rpp_pool_id id;
    bool bound, under_way;
    uint64_t alive_bytes;
    struct rp_pool_info pool;
    struct rp_graph_info graph;
    char name[64];
};
/* An array to be freed; NULL where there are none, or no host memory. */
struct rpp_once_facts *rpp_once_facts(size_t *out_count);
/* Blocks of a lease that tensors lie in: an array to be freed; NULL where there are none, or no
 * host memory. */
struct rpp_once_block {
    uint64_t address, bytes;
    struct CUstream_st *stream; /* that it was allocated for */
};
struct rpp_once_block *rpp_once_blocks(int ordinal, struct rpp_pool_id id, size_t *out_count);
/* The memory of a device's leases, likewise; none where nothing was captured yet. */
struct rpp_once_pool {
    struct rpp_pool_id id;
    uint64_t address, bytes;
};
struct rpp_once_pool *rpp_once_pools(int ordinal, size_t *out_count);
/* rp_pool_draw of the pool that stands for it. */
rp_status rpp_once_draw(int ordinal, struct rpp_pool_id id, const char *path, struct rp_error *err);

#endif
