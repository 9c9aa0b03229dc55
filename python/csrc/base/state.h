/* SPDX-License-Identifier: MIT
 *
 * What the process has: devices, heaps, and the call of a callable that is under way. PyTorch's
 * allocator is one for the process, so this is too.
 *
 *     device    opened at first use, one for each ordinal, never closed
 *     heap      of a device: memory for eager work once PyTorch's allocator is Reprise's
 *     lease     a pool of the library's for each pool of graphs that PyTorch captures itself
 *               (once.h)
 *     call      while a callable is captured, allocations on its capturing streams are its blocks
 *
 * Any thread may call the hooks: PyTorch does from the caller's and from autograd's. One call at a
 * time: `lock` guards it, its table and the leases. It is never held while the GIL is asked
 * for, nor across an exception.
 */
#ifndef REPRISE_PYTHON_STATE_H
#define REPRISE_PYTHON_STATE_H

#include "base/addresses.h"

#include <assert.h>
#include <pthread.h>
#include <reprise.h>
#include <reprise_heap.h>
#include <stdatomic.h>
#include <stdio.h>

enum { RPP_DEVICES = 64 };

/* Asserts that somebody holds the lock: it finds one that nobody took. */
#ifdef NDEBUG
#define rpp_assert_held(lock) ((void)sizeof(lock))
#else
#define rpp_assert_held(lock) assert(rpp_is_held(lock))

static inline bool rpp_is_held(pthread_mutex_t *lock)
{
    if (pthread_mutex_trylock(lock) != 0)
        return true;
    pthread_mutex_unlock(lock);
    return false;
}
#endif

struct rpp_device {
    struct rp_device *device;
    _Atomic(struct rp_heap *) heap; /* made at the first allocation */
    uint64_t exec_budget;           /* 0: the default */
    _Atomic uint64_t allowed_bytes; /* by the program's fraction of its memory; 0: it set none */
    /* Of the driver; set when the device is opened. */
    int (*is_capturing)(struct CUstream_st *stream, int *out_status);
    int (*capture_info)(struct CUstream_st *stream, int *out_status, unsigned long long *out_id,
                        void *out_graph, void *out_nodes, void *out_edges, size_t *out_count);
    int (*graph_nodes)(void *graph, void *out_nodes, size_t *out_count);
    int (*destroy_node)(void *node);
    int (*synchronize)(void);
    int (*mem_info)(size_t *out_free, size_t *out_total);
};

/* A block of a call that is to lie where an argument does. */
struct rpp_place {
    uint32_t index; /* of the allocation in the call */
    uint64_t bytes;
    size_t arg;
};

struct rpp_call {
    struct rp_call *call; /* NULL: no call is under way */
    const struct rp_pool *pool;
    int ordinal;
    bool captures;    /* false: it runs eagerly, to verify captures */
    pthread_t thread; /* that it is called on */
    uint64_t number;
    uint32_t allocations;
    uint32_t strays; /* asked for streams that are not in the capture */
    const struct rpp_place *places;
    size_t place_count;
    struct rpp_addresses blocks; /* of this call; of earlier ones, and of captures of PyTorch's
                                    own, those still alive */
};

struct rpp_lease;

struct rpp_state {
    pthread_mutex_t opening; /* guards the making of devices and heaps */
    struct rp_heap_options heap_options;
    struct rpp_device devices[RPP_DEVICES];
    pthread_mutex_t lock;
    struct rpp_call call;
    _Atomic bool calling;      /* call.call is not NULL */
    _Atomic size_t call_count; /* call.blocks.count */
    struct rpp_lease *leases;
    uint64_t beginnings;  /* of captures of PyTorch's own */
    _Atomic int begun;    /* leases in which a capture is under way, and uses of memory pools */
    _Atomic bool leaving; /* the interpreter is going: free nothing any more */
    /* Told of each request that failed for want of memory, with no lock held; NULL: nobody is. */
    void (*_Atomic on_shortage)(int ordinal, uint64_t bytes, uint64_t total, uint64_t free);
    /* Told of each allocation behind it, and of each free before it, with no lock held; NULL: nobody
     * is (listen.h). */
    void (*_Atomic on_memory)(bool freed, uint64_t address, uint64_t bytes, int ordinal);
    _Atomic size_t parked;       /* graphs that tensors outlived */
    void (*ask_for_sweep)(void); /* has Python's main thread look at those; any thread */
};

extern struct rpp_state rpp_state;

/* Set while this thread calls a heap with the lock held: no stack may be gathered then, as that
 * asks for the GIL. */
extern _Thread_local bool rpp_holds_lock;

/* Of what did not fit into the process's own memory; the status. */
static inline rp_status rpp_no_host_memory(struct rp_error *err)
{
    snprintf(err->message, sizeof err->message, "out of host memory");
    return err->status = RP_ERROR_OUT_OF_HOST_MEMORY;
}

/* Fills the slot of a device that was opened. */
void rpp_device_set(struct rpp_device *slot, struct rp_device *device);
/* The device, opened. */
rp_status rpp_device_get(int ordinal, struct rpp_device **out_device, struct rp_error *err);
/* How much memory executable graphs may take, from now on or from the opening; 0: the default. */
rp_status rpp_device_set_budget(int ordinal, uint64_t bytes, struct rp_error *err);
/* The heap's options, for heaps that are made from now on, and rp_heap_set_options of others. */
rp_status rpp_heap_configure(const struct rp_heap_options *options, struct rp_error *err);
/* Its heap; NULL where it was not made yet. */
static inline struct rp_heap *rpp_heap_made(int ordinal)
{
    return ordinal >= 0 && ordinal < RPP_DEVICES
               ? atomic_load_explicit(&rpp_state.devices[ordinal].heap, memory_order_acquire)
               : NULL;
}
/* The same, made. */
rp_status rpp_heap_get(int ordinal, struct rp_heap **out_heap, struct rp_error *err);

#endif
