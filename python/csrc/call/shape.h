/* SPDX-License-Identifier: MIT
 *
 * The shapes that the fast path of calls knows: what inputs look like, the graph for them, how the
 * results are made, and what gradients there are before and behind a call. Found by hash, the one
 * that was called last at once: hundreds of batch sizes in turn cost no more than one. Shapes of
 * the same inputs differ by their gradients. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_SHAPE_H
#define REPRISE_PYTHON_SHAPE_H

#include "call/inputs.h"
#include "call/results.h"
#include "grad/gradients.h"

enum { RPP_MOST_RESULTS = 512 }; /* a cache has two tensors a layer */
/* What calls set has four parts: a dict, a key, a value and what is done with it. */
enum { RPP_SET_PARTS = 4 };
enum rpp_set_how {
    RPP_SET_VALUE, /* put there */
    RPP_SET_ADDED, /* added to the whole number that is there */
    RPP_SET_MADE,  /* the number of what is made beside the result, which is put there */
};

struct rpp_shape {
    struct rpp_shape *next; /* in its bucket */
    size_t users;           /* the table it is in, and calls that are under way */
    struct rpp_signature signature;
    int32_t ordinal;         /* of the device that it works on */
    struct rpp_graph *graph; /* NULL: there is none, and calls are eager */
    PyObject *sets;          /* NULL: nothing; or what calls set, RPP_SET_PARTS of each */
    PyObject *choice;        /* a Choice that says how calls go; NULL: by the graph, if any */
    size_t result_count;
    struct rpp_result *results;
    PyObject *build;        /* a Builder, or takes the list of results; NULL: the only one is it */
    bool is_split;          /* forward and backward are two graphs: build replays */
    struct rpp_graph *back; /* that of the backward pass; NULL: there is none */
    struct rpp_gradients *gradients; /* NULL: calls have nothing to do with any */
};

/* Of such calls on a device, with new references and without gradients; NULL, perhaps with an
 * exception, where the fast path is not for them. Objects that may be None: graph, build, choice.
 * results: (shape, strides, dtype) of each; told: as for rpp_signature_make. */
struct rpp_shape *rpp_shape_create(const struct rpp_inputs *inputs, int32_t ordinal,
                                   PyObject *graph, PyObject *results, PyObject *build,
                                   PyObject *choice, PyObject *told);
void rpp_shape_release(struct rpp_shape *shape);
/* Do calls find whole numbers where they add to some? */
bool rpp_shape_can_set(const struct rpp_shape *shape);
/* Is made what calls return and what they set beside it? Then it is a tuple of the result and of a
 * tuple. */
bool rpp_shape_makes_sets(const struct rpp_shape *shape);
/* Sets what calls of it set; false with an exception set. Values that are replaced may run Python as
 * they go. made: the tuple of what is made beside the result, or NULL. */
bool rpp_shape_set(const struct rpp_shape *shape, PyObject *made);
/* Are the scalars of its graph such as that was captured for? */
bool rpp_shape_has_its_scalars(const struct rpp_shape *shape);

struct rpp_shape_table {
    struct rpp_shape **buckets, *last;
    size_t bucket_count, count; /* buckets: 0 or a power of two */
    size_t changes;             /* shapes that came, and times that some went */
};

/* The shape that the inputs and the gradients of now fit, with a use that the caller releases; or
 * NULL. Reading gradients may let others run, and change the table: then it is NULL. */
struct rpp_shape *rpp_shapes_take(struct rpp_shape_table *table, const struct rpp_inputs *inputs);
/* Takes the shape's first use; false, and nothing taken, without memory. */
bool rpp_shapes_add(struct rpp_shape_table *table, struct rpp_shape *shape);
void rpp_shapes_remove(struct rpp_shape_table *table, struct rpp_shape *shape);
void rpp_shapes_clear(struct rpp_shape_table *table); /* a zeroed one is allowed */
/* For Python's garbage collector: of what shapes hold, what may refer to who has the table. */
int rpp_shapes_traverse(const struct rpp_shape_table *table, visitproc visit, void *arg);

#endif
