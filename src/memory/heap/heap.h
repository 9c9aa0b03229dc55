/* SPDX-License-Identifier: MIT
 *
 * The caching allocator for eager work: what the files heap*.c share.
 *
 *     class    small (requests up to 1 MiB) or large, as in c10; oversize, where the heap has a
 *              max_split_bytes, from that on
 *     shelf    the memory of one stream and one class: its own addresses, free blocks and lock
 *     range    reserved addresses of a shelf, a grid of chunks of 2 MiB (20 MiB when large)
 *     chunk    one square of that grid; memory is mapped behind it late and given back early
 *     block    a part of a range: a hole (nothing mapped), free, live, or waiting (freed, but work
 *              on other streams may still use it)
 *     use      one other stream that uses a block, and the event that tells when it no longer does
 *     gauge    a figure that is summed over shelves and whose peak is kept (gauge.h)
 *
 *     range   |  chunk 0      |  chunk 1      |  chunk 2      |  chunk 3 ..
 *     blocks  | live | free   | live   | wait | hole                      |
 *
 * Every range is covered by its blocks without a gap. A hole is whole chunks; no two free blocks
 * and no two holes are neighbours. Oversize blocks are whole chunks that were mapped at once: they
 * are never cut or joined, only given out, and given back, as they are. Free blocks are in the
 * shelf's bins, holes in its list of holes, the starts of live and waiting blocks in the tables of
 * their chunks.
 *
 * Who may do what
 *   A shelf and its blocks are read and written under shelf.lock only.
 *   What is marked "growth" in struct rp_heap is read and written under heap.growth only.
 *   A thread holds one shelf.lock at a time, and never asks for growth while it holds one; a thread
 *   that holds growth may take any number of shelf locks, in any order. So there is no cycle.
 *   The history's lock is the last: nothing is asked for under it.
 *   Which shelf a stream or an address belongs to is looked up without a lock: both tables are
 *   written under growth, only from empty to a pointer, and what the pointer leads to for the
 * lookup (stream, class, base, bytes, shelf) never changes until the heap is destroyed. Allocating
 * where the shelf has a block that fits, and freeing a block that no other stream used, takes
 * shelf.lock alone and makes no driver call. growth is taken to map or unmap, when a gauge may
 * reach a new peak, and to look at several shelves at once. Mapping, unmapping and waiting happen
 * under growth and the lock of the shelf concerned.
 */
#ifndef REPRISE_MEMORY_HEAP_HEAP_H
#define REPRISE_MEMORY_HEAP_HEAP_H

#include "memory/heap/bins.h"
#include "memory/heap/gauge.h"
#include "memory/heap/lock.h"
#include "memory/heap/watch.h"
#include "memory/range/arena.h"
#include "reprise_heap.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#define RPI_HEAP_SMALL_SHIFT 20
#define RPI_HEAP_SMALL_MOST  ((uint64_t)1 << RPI_HEAP_SMALL_SHIFT) /* largest small request */

enum {
    RPI_HEAP_SHELVES = 1536, /* most of them in a heap: streams times three */
    RPI_HEAP_SLOTS = 4096,   /* of each lookup table: at most half full */
    RPI_HEAP_UNIT_SHIFT = 21 /* 2 MiB: chunks are multiples of it */
};

enum rpi_heap_class { RPI_HEAP_SMALL, RPI_HEAP_LARGE, RPI_HEAP_OVERSIZE, RPI_HEAP_CLASSES };

/* Where something was allocated or freed, as the program's callback knows it. */
struct rpi_heap_stack {
    _Atomic unsigned owners;
    uint64_t id;
};

struct rpi_heap_use {
    CUstream stream;
    CUevent event;  /* NULL: not recorded yet; then the block is waiting for more than the event */
    bool elsewhere; /* the event is another device's, as the stream is */
    struct rpi_heap_use *next;
};

struct rpi_heap_chunk {
    CUmemGenericAllocationHandle handle;
    uint32_t span; /* chunks that the handle's memory is behind; 0: that of one before this */
    struct rpi_heap_block *
        *starts; /* live and waiting blocks by where they start; NULL: not mapped */
};

struct rpi_heap_range {
    struct rpi_shelf *shelf;
    uint64_t base, bytes;
    struct rpi_heap_block *first; /* the one at base */
    struct {
        RPI_VEC(struct rpi_heap_chunk); /* as far as was ever mapped */
    } chunks;
    struct rp_heap_source source; /* of a sourced shelf's: where it goes */
    struct rpi_heap_range *next;  /* of a sourced shelf's that is gone */
};

struct rpi_shelf {
    struct rp_heap *heap;
    CUstream stream;
    enum rpi_heap_class class;
    uint32_t pool; /* 0: everybody's */
    uint32_t kind; /* of class and pool, rpi_heap_kind */
    bool whole;    /* oversize: blocks are neither cut nor joined */
    bool sourced;  /* its pool has a source: ranges are segments of that (segment.c) */
    uint64_t chunk_bytes;
    uint32_t chunk_units; /* the same in units of 1 << RPI_HEAP_UNIT_SHIFT */
    unsigned start_shift; /* no two live blocks start within 1 << start_shift bytes of a chunk */
    struct rpi_heap_lock lock; /* guards all that follows */
    struct rpi_gauges gauges;
    struct rpi_heap_bins bins;
    struct rpi_heap_block *holes; /* list */
    struct rpi_heap_block *spare; /* descriptors not in use, a list through `after` */
    struct {
        RPI_VEC(struct rpi_heap_block *); /* arrays of descriptors */
    } slabs;
    struct {
        RPI_VEC(struct rpi_heap_range *);
    } ranges;
    struct rpi_heap_range *retired; /* of a sourced shelf, to be used again; a list */
    struct {
        RPI_VEC(CUevent); /* not in use */
    } events;
    struct rpi_heap_block *waiting, **waiting_end; /* oldest first */
    unsigned poll_gap, poll_in; /* allocations between looks at the waiting blocks */
};

struct rpi_heap_event {
    enum rp_heap_event action;
    uint64_t address; /* for OOM: bytes free on the device */
    uint64_t bytes;
    CUstream stream;
    uint32_t pool;                /* of the shelf; 0: everybody's */
    uint64_t time_us;             /* since 1970 */
    uint64_t mark;                /* the program's, of that time */
    struct rpi_heap_stack *stack; /* one owner, or NULL */
};

struct rpi_heap_history {
    pthread_mutex_t lock;        /* guards what follows */
    struct rpi_heap_event *ring; /* the oldest of capacity entries is at written % capacity */
    size_t capacity;             /* most entries */
    size_t room;                 /* entries that there is host memory for: it grows to capacity */
    uint64_t written;
    uint64_t skip;  /* events that are not kept: 1 << enum rp_heap_event */
    bool in_events; /* events name stacks; false: only blocks do */
    uint64_t mark;
};

/* Ranges of sourced shelves, by address. */
struct rpi_heap_sourced {
    pthread_mutex_t lock; /* guards what follows; the last that is taken */
    _Atomic size_t count; /* read without the lock */
    struct {
        RPI_VEC(struct rpi_heap_range *);
    } ranges;
};

struct rp_heap {
    const struct rp_driver *driver;
    CUdevice device;
    CUcontext context;
    _Atomic size_t *device_users; /* counted down when the heap is destroyed; may be NULL */
    struct rpi_peers *peers;      /* who else may use its memory; may be NULL */
    struct rpi_mapper mapper;     /* of peers */
    struct rpi_heaps *among;      /* unowned; NULL: none. It guards next (heap_watch.h) */
    struct rp_heap *next;
    uint64_t number; /* among them */
    uint64_t total_bytes, granularity, range_bytes;
    unsigned range_shift; /* range_bytes == 1 << range_shift */
    bool shareable;       /* what it maps can be given to other processes */
    bool share_early;     /* other streams' idle memory is tried before growing */
    /* rp_heap_set_options changes these, one by one, and nobody minds to see a part of them. */
    _Atomic double gc_threshold;                          /* 0: off */
    _Atomic uint64_t max_split_bytes, non_split_rounding; /* UINT64_MAX: nothing is oversize */
    _Atomic bool rounds;                                  /* any of divisions is above 1 */
    _Atomic unsigned divisions[RP_HEAP_ROUNDINGS];
    _Atomic uint64_t
        ticks; /* large allocations, where the threshold is on: free blocks age by it */
    struct rp_heap_frames frames;
    _Atomic int recording; /* of the history: 0, or 1 and its enum rp_heap_stacks */
    struct rpi_heap_history history;

    _Atomic unsigned pools[RP_HEAP_POOLS]; /* flags of each: enum rp_heap_pool */

    pthread_mutex_t growth;
    struct rp_heap_source *sources; /* growth; of each pool, or NULL: none has any */
    struct rpi_heap_range *orphans; /* growth; what is to be given to its source; a list */
    struct rpi_heap_sourced sourced;
    struct rpi_heap_stack *cause;  /* growth; where what is mapped or given back was asked for */
    uint64_t limit_bytes;          /* growth; UINT64_MAX: none */
    uint64_t fraction_bytes;       /* growth; UINT64_MAX: none */
    struct rpi_heap_totals totals; /* growth */
    size_t shelf_count;            /* growth */
    struct rpi_shelf **shelves;    /* growth; RPI_HEAP_SHELVES */
    size_t range_count;            /* growth */
    _Atomic(struct rpi_shelf *) by_stream[RPI_HEAP_SLOTS];
    _Atomic(struct rpi_heap_range *) by_address[RPI_HEAP_SLOTS];
};

/* What rp_heap_create does once it knows the device. The context stays the caller's. */
rp_status rpi_heap_create_on(const struct rp_driver *driver, CUdevice device, CUcontext context,
                             uint64_t total_bytes, const struct rp_heap_options *options,
                             struct rp_heap **out_heap, struct rp_error *err);

/* ---- heap_share.c: memory that other processes are given --------------------------------------*/

/* Asks the device whether it can share memory. In a scope. */
void rpi_heap_ask_shareable(struct rp_heap *heap);
/* Properties of what the heap maps. */
CUmemAllocationProp rpi_heap_memory(const struct rp_heap *heap);

/* ---- heap_driver.c: calls to the driver ------------------------------------------------------*/

/* Between the two the device's context is current on this thread, and a capture in global mode is
 * not broken by what the heap asks of the driver. */
struct rpi_heap_scope {
    int mode;
};
CUresult rpi_heap_enter(const struct rp_heap *heap, struct rpi_heap_scope *out_scope);
void rpi_heap_leave(const struct rp_heap *heap, const struct rpi_heap_scope *scope);
/* Whether the stream takes work, not nodes. False where the driver does not say. In a scope. */
bool rpi_heap_stream_runs(const struct rp_heap *heap, CUstream stream);

/* ---- heap_shelf.c: shelves, ranges, blocks; the shelf's lock is held where one is named -------*/

/* What a shelf is found by beside its stream. */
static inline uint32_t rpi_heap_kind(uint32_t pool, enum rpi_heap_class class)
{
    return pool << 2 | (uint32_t) class;
}
/* The shelf of a stream and kind; NULL when there is none yet. No lock is needed. */
struct rpi_shelf *rpi_heap_shelf(struct rp_heap *heap, CUstream stream, uint32_t kind);
/* The same, made where there is none. Takes growth. */
rp_status rpi_heap_shelf_make(struct rp_heap *heap, CUstream stream, uint32_t kind,
                              struct rpi_shelf **out_shelf, struct rp_error *err);
static inline bool rpi_shelf_pool_is(const struct rpi_shelf *shelf, enum rp_heap_pool flag)
{
    return atomic_load_explicit(&shelf->heap->pools[shelf->pool], memory_order_relaxed) & flag;
}
/* Frees host memory and addresses; nothing is mapped any more. */
void rpi_shelf_destroy(struct rpi_shelf *shelf);
/* The range that holds the address, or NULL. No lock is needed. */
struct rpi_heap_range *rpi_heap_range_of(struct rp_heap *heap, uint64_t address);
/* The live or waiting block that holds an address of the range, or NULL. Looks back through the
 * table of starts: at most 2,048 of its entries in a small shelf, one for each start_shift bytes up
 * to the last block before the address in the others. */
struct rpi_heap_block *rpi_heap_block_of(const struct rpi_heap_range *range, uint64_t address);

/* Tables of starts for chunks of a range; false: no host memory. */
bool rpi_heap_make_tables(struct rpi_heap_range *range, size_t first, size_t count);
void rpi_heap_free_tables(struct rpi_heap_range *range, size_t first, size_t count);

/* Reserves further addresses for the shelf, in a scope; growth and the lock are held. */
rp_status rpi_shelf_add_range(struct rpi_shelf *shelf, struct rp_error *err);

/* More descriptors; false when there is no host memory. */
bool rpi_shelf_add_slab(struct rpi_shelf *shelf);
/* One or two descriptors can be taken without fail; false when there is no host memory. */
static inline bool rpi_shelf_reserve(struct rpi_shelf *shelf, int count)
{
    return (shelf->spare && (count == 1 || shelf->spare->after)) || rpi_shelf_add_slab(shelf);
}
static inline struct rpi_heap_block *rpi_shelf_descriptor(struct rpi_shelf *shelf)
{
    struct rpi_heap_block *block = shelf->spare;
    assert(block);
    shelf->spare = block->after;
    return block;
}
void rpi_shelf_discard(struct rpi_shelf *shelf, struct rpi_heap_block *block);
void rpi_shelf_add_hole(struct rpi_shelf *shelf, struct rpi_heap_block *block);
void rpi_shelf_remove_hole(struct rpi_shelf *shelf, struct rpi_heap_block *block);
/* Cuts the block in two at `bytes`; the second part is returned, in the first one's state, in no
 * bin or list. A descriptor is there. */
struct rpi_heap_block *rpi_shelf_cut(struct rpi_shelf *shelf, struct rpi_heap_block *block,
                                     uint64_t bytes);
/* Makes the block one with its successor, whose descriptor goes. */
void rpi_shelf_join(struct rpi_shelf *shelf, struct rpi_heap_block *block);
/* The part of a block made of whole chunks; false when there is none. */
bool rpi_shelf_whole_chunks(const struct rpi_shelf *shelf, const struct rpi_heap_range *range,
                            uint64_t address, uint64_t bytes, uint64_t *out_first,
                            uint64_t *out_end);

/* Number of the chunk at an offset. A division of 64 bits is what this would cost otherwise. */
static inline uint64_t rpi_shelf_chunk(const struct rpi_shelf *shelf, uint64_t offset)
{
    uint32_t units = (uint32_t)(offset >> RPI_HEAP_UNIT_SHIFT);
    return shelf->chunk_units == 1 ? units : units / shelf->chunk_units;
}

/* Bytes of a free block that can't be given back: those in chunks that it does not cover. */
static inline uint64_t rpi_shelf_stuck(const struct rpi_shelf *shelf,
                                       const struct rpi_heap_range *range, uint64_t address,
                                       uint64_t bytes)
{
    uint64_t first, end;
    if (bytes < shelf->chunk_bytes ||
        !rpi_shelf_whole_chunks(shelf, range, address, bytes, &first, &end))
        return bytes;
    return bytes - (end - first);
}

/* Where the table of starts has this address, which is mapped; NULL when it is not. */
static inline struct rpi_heap_block **rpi_shelf_start(const struct rpi_heap_range *range,
                                                      uint64_t address)
{
    const struct rpi_shelf *shelf = range->shelf;
    uint64_t offset = address - range->base, chunk = rpi_shelf_chunk(shelf, offset);
    if (chunk >= range->chunks.count || !range->chunks.data[chunk].starts)
        return NULL;
    return &range->chunks.data[chunk]
                .starts[(offset - chunk * shelf->chunk_bytes) >> shelf->start_shift];
}

/* ---- heap_free.c: from free to live and back -------------------------------------------------*/

/* Takes the best fitting free block of the shelf for `stream`. Without `slow`: RPI_HEAP_SLOW when a
 * gauge may reach a new peak; with it, growth is held and that can't happen. */
enum rpi_heap_outcome { RPI_HEAP_DONE, RPI_HEAP_MISS, RPI_HEAP_SLOW, RPI_HEAP_NO_MEMORY };
enum rpi_heap_outcome rpi_shelf_take(struct rpi_shelf *shelf, uint64_t bytes, uint64_t requested,
                                     CUstream stream, bool slow, struct rpi_heap_block **out_block);
/* A live or waiting block without uses becomes free and one with its free neighbours. Without
 * `slow`: false, and nothing changed, when a gauge may reach a new peak. */
bool rpi_shelf_give(struct rpi_shelf *shelf, struct rpi_heap_block *block, bool slow);
/* A block just mapped, in no bin and no list, joins its free neighbours. growth is held. */
void rpi_shelf_settle(struct rpi_shelf *shelf, struct rpi_heap_block *block);

/* ---- heap_wait.c: blocks that other streams use ----------------------------------------------*/

/* Adds a use; false when there is no host memory. */
bool rpi_heap_block_use(struct rpi_heap_block *block, CUstream stream);
/* A live block with uses begins to wait. */
void rpi_shelf_wait(struct rpi_shelf *shelf, struct rpi_heap_block *block);
/* Asks the driver which waiting blocks are done, and gives those to the bins; in a scope of its
 * own. `finish`: waits for them (growth is held). Returns false when blocks are left that only
 * wait for growth to be held. */
bool rpi_shelf_poll(struct rpi_shelf *shelf, bool slow, bool finish);
/* Where more than a share of the heap's memory waits in the shelf, its stream waits for the oldest
 * blocks, and they are free, until `bytes` fit or no more than that share waits. Returns whether
 * they fit. No thread waits. growth is held; in a scope of its own. */
bool rpi_shelf_follow(struct rpi_shelf *shelf, uint64_t bytes);
/* Whether it is time to poll, as far as an allocation that may find a block anyway is concerned. */
bool rpi_shelf_poll_due(struct rpi_shelf *shelf);

/* ---- heap_map.c: memory behind addresses; growth and the shelf's lock are held, in a scope ----*/

/* Maps enough that a free block of `bytes` is there. Errors: RP_ERROR_LIMIT,
 * RP_ERROR_OUT_OF_DEVICE_MEMORY (both without a message), host memory, driver. */
rp_status rpi_shelf_grow(struct rpi_shelf *shelf, uint64_t bytes, struct rp_error *err);
/* Unmaps the whole chunks of free blocks that were freed at or before tick `until`; *bytes counts
 * what was given back. A shelf whose stream is capturing is left alone. */
rp_status rpi_shelf_shrink(struct rpi_shelf *shelf, uint64_t until, uint64_t *bytes,
                           struct rp_error *err);
/* Unmaps a free oversize block. */
rp_status rpi_shelf_unmap(struct rpi_shelf *shelf, struct rpi_heap_block *block,
                          struct rp_error *err);
/* A mapper's let_in: lets another device in to all that the heap has mapped. Takes growth. */
void rpi_heap_let_in(struct rpi_mapper *mapper, CUdevice peer);
/* Unmaps all of a range, for a heap that is destroyed: its tables stay as they were. */
void rpi_heap_empty_range(struct rpi_heap_range *range);
/* Most bytes that may be mapped. growth is held. */
static inline uint64_t rpi_heap_limit(const struct rp_heap *heap)
{
    return heap->limit_bytes < heap->fraction_bytes ? heap->limit_bytes : heap->fraction_bytes;
}

/* ---- source.c: pools with a source of their own, and where its segments are -------------------*/

/* growth is held. */
bool rpi_heap_has_source(const struct rp_heap *heap, uint32_t pool);
/* The range that holds the address; no lock is needed. */
struct rpi_heap_range *rpi_heap_sourced_range_of(struct rp_heap *heap, uint64_t address);
/* Enters a range in the table, false: no host memory; takes it out. growth is held. */
bool rpi_heap_sourced_enter(struct rp_heap *heap, struct rpi_heap_range *range);
void rpi_heap_sourced_leave(struct rp_heap *heap, const struct rpi_heap_range *range);

/* ---- segment.c: what a source gives; growth is held -------------------------------------------*/

/* A segment that a source is to be asked for. */
struct rpi_heap_wish {
    uint64_t bytes;
    struct rp_heap_source source;
};
/* For a request of `bytes`; false: the heap's limit forbids it. */
bool rpi_heap_source_wish(const struct rpi_shelf *shelf, uint64_t bytes,
                          struct rpi_heap_wish *out_wish);
/* Makes what the source gave a free block. The shelf's lock is held too, as below. */
rp_status rpi_heap_source_add(struct rpi_shelf *shelf, uint64_t address,
                              const struct rpi_heap_wish *wish, struct rp_error *err);
/* Takes a free block that is all of its range out of the shelf, for rpi_heap_let_go. */
void rpi_heap_source_remove(struct rpi_shelf *shelf, struct rpi_heap_block *block);
/* Gives what was taken out to its sources; growth is let go of meanwhile. False: nothing was. */
bool rpi_heap_let_go(struct rp_heap *heap);
/* Gives all of a shelf away, for a heap that is destroyed. */
void rpi_heap_source_finish(struct rpi_shelf *shelf);

/* ---- heap_reclaim.c: when memory is short; growth is held and no shelf's lock -----------------*/

/* Waits for the blocks that were freed while other streams used them. */
void rpi_heap_finish_waiting(struct rp_heap *heap);
/* Gives back all whole free chunks, but for those of pools that keep theirs. The first error is
 * returned, what can go has gone. */
rp_status rpi_heap_give_back(struct rp_heap *heap, struct rp_error *err);
/* Gives back free oversize blocks of a stream in a pool: the smallest that is large enough for
 * `bytes`, else the largest until they are together. */
void rpi_heap_release_oversize(struct rp_heap *heap, CUstream stream, uint32_t pool,
                               uint64_t bytes);
/* c10's garbage collection: gives back free chunks of the large class, the oldest first, where
 * mapping `more` bytes would pass the threshold. */
void rpi_heap_collect(struct rp_heap *heap, uint64_t more);
/* Takes a block of another stream's shelf, where that stream has finished all its work, of the same
 * pool or of one that lends. The lock of that shelf is held when it returns RPI_HEAP_DONE. */
enum rpi_heap_outcome rpi_heap_borrow(struct rpi_shelf *own, uint64_t bytes, uint64_t requested,
                                      struct rpi_heap_block **out_block);
/* Fills err for a request that nothing could satisfy, and returns `status`. */
rp_status rpi_heap_out_of_memory(const struct rpi_shelf *shelf, uint64_t requested,
                                 rp_status status, struct rp_error *err);

/* ---- heap_history.c ---------------------------------------------------------------------------*/

/* NULL when there is no callback or no host memory. No lock is held. */
struct rpi_heap_stack *rpi_heap_stack_make(struct rp_heap *heap);
struct rpi_heap_stack *rpi_heap_stack_share(struct rpi_heap_stack *stack);
void rpi_heap_stack_release(struct rp_heap *heap, struct rpi_heap_stack *stack);
/* The caller's, where stacks of so much are asked for. */
static inline struct rpi_heap_stack *rpi_heap_stack_capture(struct rp_heap *heap,
                                                            enum rp_heap_stacks least)
{
    return atomic_load_explicit(&heap->recording, memory_order_relaxed) > (int)least
               ? rpi_heap_stack_make(heap)
               : NULL;
}
static inline void rpi_heap_stack_drop(struct rp_heap *heap, struct rpi_heap_stack *stack)
{
    if (stack)
        rpi_heap_stack_release(heap, stack);
}
/* Appends to the ring, unless such events are skipped; shares the stack. */
void rpi_heap_append(struct rp_heap *heap, enum rp_heap_event action, uint64_t address,
                     uint64_t bytes, CUstream stream, uint32_t pool, struct rpi_heap_stack *stack);
static inline void rpi_heap_note(struct rp_heap *heap, enum rp_heap_event action, uint64_t address,
                                 uint64_t bytes, CUstream stream, uint32_t pool,
                                 struct rpi_heap_stack *stack)
{
    if (atomic_load_explicit(&heap->recording, memory_order_relaxed))
        rpi_heap_append(heap, action, address, bytes, stream, pool, stack);
}
void rpi_heap_history_finish(struct rp_heap *heap);
const char *rpi_heap_event_name(enum rp_heap_event action);

/* Locks every shelf; growth is held. */
void rpi_heap_lock_shelves(struct rp_heap *heap);
void rpi_heap_unlock_shelves(struct rp_heap *heap);

/* Walks everything and recounts; for tests and asserts. Takes growth and every shelf. */
bool rpi_heap_is_valid(struct rp_heap *heap);

#endif
