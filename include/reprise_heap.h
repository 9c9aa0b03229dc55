/* SPDX-License-Identifier: MIT
 *
 * Reprise's heap: memory for eager work, as PyTorch's caching allocator gives it, with its pools,
 * statistics, history and snapshots, and memory that processes share. reprise.h has the
 * conventions.
 */
#ifndef REPRISE_HEAP_H
#define REPRISE_HEAP_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A caching allocator for work that is not captured, with the semantics of PyTorch's (c10's):
 * memory that was freed is kept and handed out again to the same stream at once, without waiting
 * for the device, as the stream puts the work in order. Requests are rounded up to 512 bytes; up to
 * 1 MiB they are "small", above "large". Each stream has addresses of its own for each of the two,
 * behind which memory is mapped late, in chunks of 2 MiB (small) or 20 MiB (large), and given back
 * early: any chunk that holds no block can go.
 *
 * All functions may be called by any thread, on blocks of any thread, with any context current or
 * none, but not from a host function or callback that runs on a stream. A hit makes no driver call
 * and takes no lock but its stream's. Streams given to a heap must exist until it is destroyed.
 * CU_STREAM_PER_THREAD is refused: it is another stream for each thread.
 *
 * The heap knows nothing of captures: memory of a captured graph comes from its pool. Its own calls
 * disturb no capture that is under way, and it asks nothing of a stream that is capturing. */
struct rp_heap;

/* A place in a program. Both texts are copied. */
struct rp_heap_frame {
    const char *filename, *name;
    int line;
};

/* Who knows where memory is asked for. The functions are called only while a history is recorded
 * (rp_heap_record_history) and must not call the heap. */
struct rp_heap_frames {
    /* Called in the thread that allocates or frees. Returns a number that stands for its stack. */
    uint64_t (*capture)(void *user);
    /* Called once for each capture, by any thread, when nothing refers to it any more; may be NULL.
     */
    void (*release)(uint64_t stack, void *user);
    /* Writes frame `index` of the stack, innermost first, and returns nonzero; 0 past the end. */
    int (*frame)(uint64_t stack, size_t index, struct rp_heap_frame *out_frame, void *user);
    void *user;
};

#define RP_HEAP_ROUNDINGS 16

struct rp_heap_options {
    size_t size;
    uint64_t limit_bytes; /* most device memory that the heap may map; 0: no limit */
    double gc_threshold; /* c10's garbage_collection_threshold: when mapped memory passes this share
                            of the limit (of the device where there is none), large free memory that
                            was not used for longer than the average is given back first; 0: off */
    int share_early;     /* nonzero: the free memory of other streams that have finished all their
                            work is lent to a stream before more is mapped; 0: only when no more can
                            be mapped */
    struct rp_heap_frames frames; /* all NULL: no stacks */
    uint64_t max_split_bytes; /* c10's max_split_size: blocks of so many bytes or more are mapped
                                 and given out whole, so that smaller requests never cut them, and
                                 only for requests of such a size; when memory is short, those of
                                 the stream go before all others. Above 20 MiB; 0: none are */
    uint64_t max_non_split_rounding_bytes; /* such a block serves no request that is smaller by this
                                              or more; above 20 MiB; 0: 20 MiB */
    /* c10's roundup_power2_divisions: requests are rounded up to the next of so many equal parts of
     * what lies between two powers of two, where that is more than 512 bytes. Element i is for
     * requests from 1 << i MiB to below twice that, the first for smaller ones too, the last for
     * larger ones. Powers of two; 0 and 1: to 512 bytes as ever. */
    unsigned roundup_power2_divisions[RP_HEAP_ROUNDINGS];
};
#define RP_HEAP_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(struct rp_heap_options), 0, 0, 0, {NULL, NULL, NULL, NULL}, 0, 0,                   \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Takes no device memory. options may be NULL. The device must outlive the heap. */
RP_API rp_status rp_heap_create(struct rp_device *device, const struct rp_heap_options *options,
                                struct rp_heap **out_heap, struct rp_error *err);
/* Gives all memory back, blocks not freed included. Synchronises the streams that it was asked for
 * memory on, and those that use blocks of it. No other thread may be in a call. NULL is allowed. */
RP_API void rp_heap_destroy(struct rp_heap *heap);

/* Memory for work on `stream`, aligned to 512 bytes. bytes may be 0: address 0, which may be freed.
 * When memory can't be mapped, blocks that wait for other streams are waited for, all free chunks
 * are given back, and it is tried again; then free memory of other streams that are idle is lent.
 * Errors after that: RP_ERROR_OUT_OF_DEVICE_MEMORY, or RP_ERROR_LIMIT for the heap's own limit,
 * with what was asked, held and free. */
RP_API rp_status rp_heap_alloc(struct rp_heap *heap, uint64_t bytes, struct CUstream_st *stream,
                               uint64_t *out_address, struct rp_error *err);
/* Pools of a heap: memory that only requests in the same pool are given, for streams, sizes and all
 * else as ever. A pool is a number from 1 on, below RP_HEAP_POOLS, that the program chooses; 0 is
 * everybody's, where rp_heap_alloc takes memory. Limits, statistics and history are of all. */
#define RP_HEAP_POOLS 1024
enum rp_heap_pool {
    RP_HEAP_POOL_KEEPS = 1, /* its free memory stays mapped, whatever is short; else it goes with
                               that of rp_heap_empty_cache */
    RP_HEAP_POOL_LENDS = 2, /* its free memory is given to requests in other pools that nothing else
                               can satisfy */
    RP_HEAP_POOL_WHOLE = 4  /* its blocks are mapped and given out whole, as oversize ones */
};
/* flags: enum rp_heap_pool, 0 at first. */
RP_API rp_status rp_heap_set_pool(struct rp_heap *heap, uint32_t pool, unsigned flags,
                                  struct rp_error *err);
RP_API rp_status rp_heap_alloc_in(struct rp_heap *heap, uint32_t pool, uint64_t bytes,
                                  struct CUstream_st *stream, uint64_t *out_address,
                                  struct rp_error *err);
/* Where a pool's memory comes from, in place of the device. Both functions are called with no lock
 * held, by threads that allocate and that give memory back; work on `stream` may use it. They may
 * not allocate from the pool, nor use a heap that is being destroyed. */
struct rp_heap_source {
    /* 2 MiB for small requests, 20 MiB for those below 10 MiB, and else what was asked for in steps
     * of 2 MiB. Returns an address that is aligned to 512 bytes; 0: there is no memory. */
    uint64_t (*alloc)(uint64_t bytes, struct CUstream_st *stream, void *user);
    /* What alloc returned, with its arguments: when all of it is free, and goes. */
    void (*free)(uint64_t address, uint64_t bytes, struct CUstream_st *stream, void *user);
    void *user;
};
/* Before the pool's first allocation; another one may follow, for what it takes from then on. A
 * pool that has a source has one for good. The memory counts as the heap's in limits and
 * statistics. Peers are not let in to it, and rp_heap_share refuses it. */
RP_API rp_status rp_heap_set_source(struct rp_heap *heap, uint32_t pool,
                                    const struct rp_heap_source *source, struct rp_error *err);
/* Bytes of blocks that are live in the pool, or wait for other streams. */
RP_API uint64_t rp_heap_pool_bytes(struct rp_heap *heap, uint32_t pool);
/* rp_heap_empty_cache for this pool, kept memory too; blocks that wait for other streams stay. */
RP_API rp_status rp_heap_empty_pool(struct rp_heap *heap, uint32_t pool, struct rp_error *err);
/* Ends the block's life: work enqueued so far may use it. Work on streams named with rp_heap_use is
 * waited for, by events, before the block is used again: by nobody as long as little memory waits,
 * and by the stream of the next allocation that would map more, where it is more than 64 MiB and a
 * sixteenth of what is mapped. RP_ERROR_INVALID_ARGUMENT when the address is not that of a live
 * block, with what is there instead. */
RP_API rp_status rp_heap_free(struct rp_heap *heap, uint64_t address, struct rp_error *err);
/* Says that work on `stream`, other than the stream of its allocation, uses the block (PyTorch's
 * record_stream). */
RP_API rp_status rp_heap_use(struct rp_heap *heap, uint64_t address, struct CUstream_st *stream,
                             struct rp_error *err);

/* Gives back every chunk in which no block is live. Waits for blocks that were freed, and for the
 * streams whose memory is given back; streams that are capturing are left alone. */
RP_API rp_status rp_heap_empty_cache(struct rp_heap *heap, struct rp_error *err);
/* gc_threshold, max_split_bytes, max_non_split_rounding_bytes and roundup_power2_divisions hold for
 * requests from here on; the other options stay. NULL: the defaults of these four. */
RP_API rp_status rp_heap_set_options(struct rp_heap *heap, const struct rp_heap_options *options,
                                     struct rp_error *err);
/* Most bytes that may be mapped; 0: no limit. What is above it stays until it is freed. */
RP_API void rp_heap_set_limit(struct rp_heap *heap, uint64_t bytes);
/* The same as a share of the device's memory, above 0 and at most 1; the lower of both holds. */
RP_API rp_status rp_heap_set_fraction(struct rp_heap *heap, double fraction, struct rp_error *err);

/* The live block that holds an address. */
struct rp_heap_block {
    size_t size;
    uint64_t address, bytes; /* of the whole block */
    uint64_t requested;
    struct CUstream_st *stream;
};
/* RP_ERROR_INVALID_ARGUMENT when there is none. */
RP_API rp_status rp_heap_find(struct rp_heap *heap, uint64_t address,
                              struct rp_heap_block *out_block, struct rp_error *err);

/* Shares memory of live blocks with other processes: writes the file descriptors of the memory that
 * [address, address + bytes) lies in, in order, each of *out_file_bytes, and where in the first of
 * them the address is. The descriptors are the caller's to close. Blocks have to stay live for as
 * long as others use them; the memory itself lives as long as anybody maps it. *out_count: how many
 * there are; where capacity is less, none is made, and out_files may be NULL.
 * RP_ERROR_INVALID_ARGUMENT where a byte is in no live block; RP_ERROR_UNSUPPORTED where the device
 * or the driver shares no memory so. */
RP_API rp_status rp_heap_share(struct rp_heap *heap, uint64_t address, uint64_t bytes,
                               size_t capacity, int *out_files, size_t *out_count,
                               uint64_t *out_file_bytes, uint64_t *out_offset,
                               struct rp_error *err);
/* Maps memory that another process shares, at consecutive addresses: `count` descriptors, each of
 * file_bytes. They may be closed afterwards. Kernels may read and write it, those of peers too. */
RP_API rp_status rp_device_map_shared(struct rp_device *device, const int *files, size_t count,
                                      uint64_t file_bytes, uint64_t *out_address,
                                      struct rp_error *err);
/* Unmaps count * file_bytes of it. No work uses it any more. */
RP_API rp_status rp_device_unmap_shared(struct rp_device *device, uint64_t address, size_t count,
                                        uint64_t file_bytes, struct rp_error *err);

/* Statistics: the names and meanings of torch.cuda.memory_stats(), in its order. `segment` counts
 * chunks, each oversize block as one; `inactive_split` free blocks part of which shares a chunk
 * with a block in use; max_split_size is -1 where there is none. All figures are of one moment,
 * peaks included. */
#define RP_HEAP_STATS 122
RP_API const char *rp_heap_stat_name(size_t index); /* NULL past the end. Static text. */
/* Writes the first `count` of them, and returns how many there are. */
RP_API size_t rp_heap_stats(struct rp_heap *heap, int64_t *out_values, size_t count);
/* One of them by name. */
RP_API rp_status rp_heap_stat(struct rp_heap *heap, const char *name, int64_t *out_value,
                              struct rp_error *err);
RP_API void rp_heap_reset_peak(struct rp_heap *heap); /* peaks become what is current */
RP_API void
rp_heap_reset_accumulated(struct rp_heap *heap); /* .allocated, .freed and num_ become 0 */

/* What a history tells, by c10's names: "alloc", "free_requested" and so on. A snapshot is an event
 * for later ones. */
enum rp_heap_event {
    RP_HEAP_EVENT_ALLOC,
    RP_HEAP_EVENT_FREE_REQUESTED,
    RP_HEAP_EVENT_FREE_COMPLETED,
    RP_HEAP_EVENT_SEGMENT_MAP,
    RP_HEAP_EVENT_SEGMENT_UNMAP,
    RP_HEAP_EVENT_SNAPSHOT,
    RP_HEAP_EVENT_OOM,
    RP_HEAP_EVENTS
};

/* Whose stacks the program's callback is asked for while a history is recorded. */
enum rp_heap_stacks {
    RP_HEAP_STACKS_NONE,
    RP_HEAP_STACKS_OF_BLOCKS,      /* allocations': what is alive names them, events do not */
    RP_HEAP_STACKS_OF_ALLOCATIONS, /* and events do: the block's, or of what it was mapped for */
    RP_HEAP_STACKS_ALL             /* and those of who frees, and of rp_heap_empty_cache */
};

struct rp_heap_history_options {
    size_t size;
    size_t entries; /* most events that are kept, the latest; 0 stops. Host memory for them, some 64
                       bytes each, is taken as they come */
    uint64_t skip;  /* events that are not kept: 1 << enum rp_heap_event */
    enum rp_heap_stacks stacks;
    int keep; /* nonzero: events of before stay, as far as there is room; 0: they go */
};
#define RP_HEAP_HISTORY_OPTIONS_INIT                                                               \
    {                                                                                              \
        sizeof(struct rp_heap_history_options), 0, 0, RP_HEAP_STACKS_ALL, 0                        \
    }

/* Records what happens from here on. options may be NULL: nothing is recorded. */
RP_API rp_status rp_heap_keep_history(struct rp_heap *heap,
                                      const struct rp_heap_history_options *options,
                                      struct rp_error *err);
/* The same with the latest `entries` events and all stacks. */
RP_API rp_status rp_heap_record_history(struct rp_heap *heap, size_t entries, struct rp_error *err);
/* A number of the program's that all events from here on have; 0 at first. */
RP_API void rp_heap_mark_history(struct rp_heap *heap, uint64_t mark);

/* What the heap holds at one moment: segments, which are stretches of mapped memory, the blocks in
 * them, and the history. A copy: valid until it is destroyed, which must be before its heap. */
struct rp_heap_snapshot;
RP_API rp_status rp_heap_snapshot_create(struct rp_heap *heap,
                                         struct rp_heap_snapshot **out_snapshot,
                                         struct rp_error *err);
RP_API void rp_heap_snapshot_destroy(struct rp_heap_snapshot *snapshot); /* NULL is allowed */

struct rp_heap_snapshot_segment {
    size_t size;
    uint64_t address, bytes;
    uint64_t allocated_bytes, active_bytes, requested_bytes;
    struct CUstream_st *stream;
    int is_large, is_oversize; /* an oversize block is a segment of its own, and large too */
    size_t first_block, block_count;
    uint32_t pool;
    int is_sourced; /* of a pool with a source */
};
struct rp_heap_snapshot_block {
    size_t size;
    uint64_t address, bytes, requested;
    const char *state;          /* "active_allocated", "active_pending_free" or "inactive" */
    struct CUstream_st *stream; /* whom it was given to; of a free block: the segment's */
    uint64_t stack;             /* what `capture` returned for its allocation, or 0 */
};
struct rp_heap_snapshot_event {
    size_t size;
    const char *action;
    uint64_t address; /* of "oom": the device's free bytes */
    uint64_t bytes;   /* as asked for; of "snapshot": active ones */
    uint64_t time_us;
    struct CUstream_st *stream;
    uint64_t stack; /* what `capture` returned, or 0 */
    uint64_t mark;  /* rp_heap_mark_history's */
    uint32_t pool;  /* as of segments */
};
/* By index; 0, with nothing written, past the end. Events come oldest first. */
RP_API int rp_heap_snapshot_segment(const struct rp_heap_snapshot *snapshot, size_t index,
                                    struct rp_heap_snapshot_segment *out_segment);
RP_API int rp_heap_snapshot_block(const struct rp_heap_snapshot *snapshot, size_t index,
                                  struct rp_heap_snapshot_block *out_block);
RP_API int rp_heap_snapshot_event(const struct rp_heap_snapshot *snapshot, size_t index,
                                  struct rp_heap_snapshot_event *out_event);
/* As torch.cuda.memory._snapshot() has it ("segments", "device_traces"), so that PyTorch's memory
 * viewer reads it. The text belongs to the snapshot; NULL when there is no host memory. */
RP_API const char *rp_heap_snapshot_json(struct rp_heap_snapshot *snapshot);

#ifdef __cplusplus
}
#endif

#endif
