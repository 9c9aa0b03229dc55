/* SPDX-License-Identifier: MIT
 *
 * For frameworks that own captures, replays and allocators of their own: captures that they begin
 * and end, values and numbers that replays may change, results of unknown size, what a graph uses
 * without the library's knowledge, and the policy that chooses between eager calls and a graph.
 * reprise.h has the conventions.
 */
#ifndef REPRISE_FRAMEWORK_H
#define REPRISE_FRAMEWORK_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Captures that a framework begins and ends --------------------------------------------- */

/* For frameworks that have to begin and end captures themselves, as they keep state of each. In a
 * run that is captured, and before anything is enqueued, the callable takes the capture over: the
 * library ends its own, and rp_call_stream captures no more. The callable begins a capture on that
 * stream, in any mode, and says so with rp_call_begun; from there on it takes and frees memory. It
 * ends the capture, whose graph it passes to rp_call_ended: a CUgraph, which stays the callable's
 * and of which the library takes a clone. RP_ERROR_INVALID_ARGUMENT where the run is not captured,
 * or in another order. A callable that fails in between has to end its capture all the same. */
struct CUgraph_st;
RP_API rp_status rp_call_take_over(struct rp_call *call, struct rp_error *err);
RP_API rp_status rp_call_begun(struct rp_call *call, struct rp_error *err);
RP_API rp_status rp_call_ended(struct rp_call *call, struct CUgraph_st *graph,
                               struct rp_error *err);

/* Memory for a capture that somebody else begins, ends, makes launchable and replays: a framework
 * with graphs of its own. It is taken once, so nothing is planned: each block is placed while the
 * capture goes on, over dead blocks where the order of the capture proves them dead, around what
 * other graphs of the pool hold, and the pool grows where it has to.
 *
 * `stream` is in the capture, which has begun. Until rp_graph_adopt_end *out_call serves
 * rp_call_alloc, rp_call_use and rp_call_free, from any thread; a block for a stream that is not in
 * the capture takes nobody's place, and nobody takes its. *out_graph is the capture's share of the
 * pool: for rp_graph_info, which knows nothing of nodes or replays, and to be destroyed when nobody
 * replays the capture any more. Of the options only the name is read. Nothing else is captured into
 * the pool's tree meanwhile.
 * The blocks that it keeps are in the program's hands: whatever the pool's kind, no later capture
 * is laid over one, until rp_graph_let_go says that the program needs it no more. Other graphs may
 * use them, by address or as arguments, and nothing is checked of it: the library does not see
 * these replays, and orders no others with them. That is the program's part, as it is in one
 * stream. Errors: RP_ERROR_INVALID_ARGUMENT when the stream is not capturing, or another capture
 * into the pool is under way: it is not waited for. */
RP_API rp_status rp_graph_adopt(struct rp_pool *pool, const struct rp_capture_options *options,
                                struct CUstream_st *stream, struct rp_graph **out_graph,
                                struct rp_call **out_call, struct rp_error *err);
/* The capture has ended, well or not; the call is valid no more. After an error it goes on, or
 * rp_graph_destroy drops it. */
RP_API rp_status rp_graph_adopt_end(struct rp_graph *graph, struct rp_error *err);
/* The program needs a kept block no more than the capture itself: later captures may be laid over
 * it. */
RP_API rp_status rp_graph_let_go(struct rp_graph *graph, uint64_t address, struct rp_error *err);
/* It needs such a block again: a replay has written it, say. No later capture is laid over it.
 * Whether one was meanwhile is for the program to know. */
RP_API rp_status rp_graph_hold(struct rp_graph *graph, uint64_t address, struct rp_error *err);

/* ---- What replays may change --------------------------------------------------------------- */

/* Names a word of 8 bytes of device memory that every replay sets, ahead of all nodes, to a value
 * that rp_graph_replay_values is given: what work reads from a place of its own and a call decides,
 * the seed and offset of random numbers for example. In each run of a capture, as often in each;
 * the addresses of the last run hold. The word is none of the run's blocks or arguments, lies at a
 * multiple of 8, and its memory lives as long as the graph. Not in the functions of rp_callable.
 * A capture whose runs name other numbers of values is RP_ERROR_DIVERGED.
 * The values travel in the parameters of a kernel node that the graph gets; where that cannot be
 * had they are fills ahead of the launch. RP_ERROR_INVALID_ARGUMENT where the run is not
 * captured. */
RP_API rp_status rp_call_value(struct rp_call *call, uint64_t address, struct rp_error *err);

/* Names a number that the work gives to kernels by value and that replays may change: a learning
 * rate, for example. In each run of a capture, as many and in the same order; the numbers
 * themselves differ from run to run, so that two captures prove which word of which kernel's
 * parameters holds which: as a double or a float, itself, negated, or inverted.
 * rp_graph_set_scalars says what replays write there. A number that no kernel holds is allowed.
 * What is computed from it in another way has to be named as well: a byte that differs between the
 * captures, and is part of no form of a named number, refuses the capture with RP_ERROR_DIVERGED;
 * so does the inverse, as a float, of a number x for which 1.0f / (float)x
 * is (float)(1.0 / x) in both captures, as they do not tell which it is. Give numbers between 0.1
 * and 10 that have all their digits, those of a run far from those of the run before, and none that
 * kernels are chosen by, as they may be by 0 or 1. A copy from the host is refused likewise.
 * The padding of a struct differs too. A capture that nothing else stands in the way of is taken up
 * to five times, two runs each, and where runs repeat numbers a byte that does not is known to be
 * padding. So give the runs two sets of numbers: a, b, b, a, b, a, a, b, and then again. Where no
 * set comes again, a kernel's padding may refuse the capture.
 * Captures that are to be verified name none (RP_ERROR_UNSUPPORTED). RP_ERROR_INVALID_ARGUMENT
 * where the number is not finite, or the run is not captured. */
RP_API rp_status rp_call_scalar(struct rp_call *call, double value, struct rp_error *err);

/* The same for a graph with values (rp_call_value): as many as the capture named, in that order.
 * They are read before the function returns. RP_ERROR_CONTRACT for another number. */
RP_API rp_status rp_graph_replay_values(struct rp_graph *graph, const struct rp_arg *args,
                                        size_t arg_count, const uint64_t *values,
                                        size_t value_count, struct CUstream_st *stream,
                                        struct rp_error *err);

/* What the graph's scalars (rp_call_scalar) are in replays from the next on: as many as the capture
 * named, in that order. Nodes whose words change are changed by that replay, and no others. Until
 * the first call a graph that has scalars is not replayed (RP_ERROR_CONTRACT). They are read before
 * the function returns. Any thread. RP_ERROR_CONTRACT for another number of them. */
RP_API rp_status rp_graph_set_scalars(struct rp_graph *graph, const double *scalars, size_t count,
                                      struct rp_error *err);
/* In how many places of nodes' parameters scalar `index` stands; 0: no kernel has it. */
RP_API rp_status rp_graph_scalar_info(const struct rp_graph *graph, size_t index,
                                      size_t *out_places, struct rp_error *err);
/* ---- Results whose size a run finds out ---------------------------------------------------- */

/* Names a result whose size the callable finds out as it runs: in the first run of a capture whose
 * options have `results`, and in no other run. From the next run on results are arguments, behind
 * those that the capture was given, in the order of their naming; rp_call_arg tells their
 * addresses, and the callable leaves them there. `block` is one of the run's that holds the result
 * and has its size: it is no block any more, and not to be freed; the runs that follow do not
 * allocate it. 0, where there is none: *out_address is for the callable to write the result to. */
RP_API rp_status rp_call_result(struct rp_call *call, uint64_t bytes, uint64_t block,
                                uint64_t *out_address, struct rp_error *err);

/* ---- What a graph uses --------------------------------------------------------------------- */

struct rp_memory {
    uint64_t address, bytes;
};
/* What a graph's nodes say of a range of memory, in bits. */
enum rp_named {
    RP_NAMED = 1, /* their parameters hold an address in it */
    RP_MISUSED =
        2 /* and it lies in the graph's pool, where others may write, or the graph itself */
};
/* Which of `count` ranges of device memory do the graph's nodes name, child graphs included, beside
 * arguments and blocks of the capture: what the callable used without the library's knowledge, in
 * memory of another allocator say. out_named[i] has bits of enum rp_named of ranges[i]. Memory in
 * the pool is misused unless an earlier graph of the sequence keeps it, or the program has it from
 * a graph that it replays. Addresses that lie in device memory are not seen; a word of padding that
 * looks like an address counts. Reads every node's parameters once, and holds up replays of the
 * pool meanwhile. Any thread. RP_ERROR_INVALID_ARGUMENT for a graph that others replay
 * (rp_graph_adopt); out of memory; a driver's error. */
RP_API rp_status rp_graph_names(const struct rp_graph *graph, const struct rp_memory *ranges,
                                size_t count, unsigned char *out_named, struct rp_error *err);
/* Where a graph's nodes name a range first, as rp_graph_names finds it: the kind of node, a kernel's
 * mangled name, and the byte of its parameters. Fills out_where with at most `bytes` of that, the NUL
 * at its end included; with an empty text where nothing names the range. Threads and errors: as of
 * rp_graph_names. */
RP_API rp_status rp_graph_where_named(const struct rp_graph *graph, const struct rp_memory *range,
                                      char *out_where, size_t bytes, struct rp_error *err);

/* Nonzero: the address is one that captures or eager runs of the library's give out, of whichever
 * pool, in use or not. Any thread. */
RP_API int rp_device_gives(struct rp_device *device, uint64_t address);

/* The parameters of a kernel node as one piece, each where the kernel has it: for frameworks that
 * look for what a launch of their own was given. Writes no more than `room` bytes; *out_bytes is
 * how many there are. RP_ERROR_INVALID_ARGUMENT for a node of another type. Any thread; a node of a
 * capture under way is allowed. */
struct CUgraphNode_st;
RP_API rp_status rp_node_params(struct rp_device *device, struct CUgraphNode_st *node,
                                void *out_params, size_t room, size_t *out_bytes,
                                struct rp_error *err);

/* The device's stream for captures that a framework makes beside those of the library: the same at
 * each call, non-blocking, the library's, and there as long as the device. Frameworks make streams by
 * the dozen: PyTorch's first one takes 70 MiB of an H100's memory. Any thread. */
struct CUstream_st;
RP_API rp_status rp_device_stream(struct rp_device *device, struct CUstream_st **out_stream,
                                  struct rp_error *err);

/* Bytes of the calling thread's stack below an address on it, as __builtin_frame_address(0) gives one.
 * 0: not known, or a stack of the program's own. Any thread; cheap behind a thread's first call. */
RP_API size_t rp_stack_below(const void *frame);

/* A copy of so many bytes from one place of the device's memory to another. */
struct rp_copy {
    uint64_t to, from, bytes;
};
/* Enqueues copies on the stream, by a kernel of the library's that makes many of them: a replay may
 * give a kernel's addresses any memory, but those of a driver's copy only memory of the same kind.
 * So a callable copies results by it. Where the driver does not take the kernel each copy is the
 * driver's. They must not overlap but in what they read. Any number, of any sizes; the array may go
 * when the call returns. The stream may be capturing, and is not synchronised. Any thread. Fails with
 * RP_ERROR_INVALID_ARGUMENT, and with what the driver says. */
RP_API rp_status rp_device_copy(struct rp_device *device, const struct rp_copy *copies,
                                size_t count, struct CUstream_st *stream, struct rp_error *err);

/* ---- Eager or graph: the policy without a callable ----------------------------------------- */

/* For those who run and replay by themselves: the policy of RP_POLICY_AUTO without a callable. A
 * judge is one function's, a choice that of one of its shapes. Around each call:
 *
 *     rp_way_choice_begin(choice, stream, 0, &turn);
 *     if (turn.way == RP_WAY_CAPTURE) {
 *         ... rp_way_choice_captured(choice, worked, ms);
 *         rp_way_choice_begin(choice, stream, 0, &turn);
 *     }
 *     worked = turn.way == RP_WAY_GRAPH ? replay(stream) : run(stream);
 *     rp_way_choice_end(choice, &turn, worked);
 *
 * Some of the calls are measured, by the host's clock and by events on the stream; nothing waits,
 * and what comes out is learned in later calls. A call's cost is the longer of the host's time to
 * enqueue it and the device's in a row of calls; where calls come apart from each other, or the
 * stream is waited for, the device's time from its begin to its end. The others cost a count. A
 * judge and its choices are used by one thread at a time; calls may overlap, or be within each
 * other, and are not measured then. */
struct rp_way_judge;
struct rp_way_choice;

enum rp_way {
    RP_WAY_EAGER = 0,
    RP_WAY_GRAPH = 1,  /* the graph decides which arguments it binds */
    RP_WAY_CAPTURE = 2 /* capture, tell, and begin the call again */
};

/* One call. */
struct rp_way_turn {
    enum rp_way way;
    uint32_t step, round; /* the library's */
    uint32_t reserved;
};

/* The device outlives the judge, the judge its choices. NULL may be destroyed. */
RP_API rp_status rp_way_judge_create(struct rp_device *device, struct rp_way_judge **out_judge,
                                     struct rp_error *err);
RP_API void rp_way_judge_destroy(struct rp_way_judge *judge);
RP_API rp_status rp_way_choice_create(struct rp_way_judge *judge, struct rp_way_choice **out_choice,
                                      struct rp_error *err);
RP_API void rp_way_choice_destroy(struct rp_way_choice *choice);

/* How the next call goes. ahead_us: what the caller spent on it before, on the host, and spends on
 * each call that may go by the graph: finding the shape, say. */
RP_API void rp_way_choice_begin(struct rp_way_choice *choice, struct CUstream_st *stream,
                                double ahead_us, struct rp_way_turn *out_turn);
/* It was enqueued on that stream; worked is 0 when it was not made whole. */
RP_API void rp_way_choice_end(struct rp_way_choice *choice, const struct rp_way_turn *turn,
                              int worked);
/* What became of RP_WAY_CAPTURE, or of a capture that nobody asked for, and what it took. */
RP_API void rp_way_choice_captured(struct rp_way_choice *choice, int worked, double ms);
/* How many of the next calls, `most` at most, go the way that is chosen now without being measured:
 * they are counted here, and made without rp_way_choice_begin. */
RP_API uint32_t rp_way_choice_rest(struct rp_way_choice *choice, uint32_t most);

struct rp_way_choice_info {
    size_t size;
    enum rp_way way;             /* that calls go now, but for those that compare */
    int is_settled;              /* nonzero: the ways were compared, and what was found stands */
    const char *choice, *reason; /* as in rp_shape_info. Static */
    double eager_us, graph_us;   /* mean of the latest measured calls; 0: none was measured */
    uint64_t calls, measured_calls;
    uint64_t switches; /* from one way to the other */
    uint64_t drifts;   /* times the measurements changed so that all was compared afresh */
    double capture_ms; /* what its captures took, those that failed too */
    double trial_ms;   /* what comparing took, beside calls that all go the better way */
};
RP_API void rp_way_choice_info(const struct rp_way_choice *choice,
                               struct rp_way_choice_info *out_info);

#ifdef __cplusplus
}
#endif

#endif
