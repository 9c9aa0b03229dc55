/* SPDX-License-Identifier: MIT
 *
 * What a call of the fast path is made of: plain tensors, values that are part of the shape (None,
 * bool, int, float, str), and objects that are known (objects.h), by position or by name.
 * Everything else is for Python to look at.
 * Small tensors on the CPU are taken too, where Python says what of each is part of the shape: its
 * form alone, what kind of number it is, or its contents.
 *
 *     inputs      of one call: borrowed, valid while its arguments are, but for tensors of objects
 *     extent      memory that one tensor lies in, or several that overlap: an argument of the graph
 *     signature   of a shape: what inputs have to look like for it, and how they lie
 */
#ifndef REPRISE_PYTHON_INPUTS_H
#define REPRISE_PYTHON_INPUTS_H

#include "base/dlpack.h"
#include "base/python.h"
#include "call/objects.h"

enum { RPP_MOST_INPUTS = 256, RPP_MOST_TENSORS = 256, RPP_MOST_RANK = 8, RPP_MOST_ON_CPU = 16 };

struct rpp_inputs {
    size_t count, tensor_count, held_count;
    int32_t ordinal; /* of the device that all tensors lie on; -1: there are none */
    PyObject *args, *kwargs;
    /* By position, then by name, in the order they came: a constant, of an object its token; NULL:
     * a tensor; Ellipsis, which is no constant: one on the CPU. */
    PyObject *values[RPP_MOST_INPUTS];
    PyObject *names[RPP_MOST_INPUTS];    /* NULL: by position */
    PyObject *objects[RPP_MOST_TENSORS]; /* the tensors */
    PyObject *held[RPP_MOST_TENSORS];    /* those of them that objects bring: references */
    struct dl_tensor tensors[RPP_MOST_TENSORS];
    uint64_t keys[RPP_MOST_TENSORS]; /* rpp_tensor_keys, 0 where these are not known */
    bool wants[RPP_MOST_TENSORS];    /* a gradient; false until the caller says so */
    uintptr_t own[RPP_MOST_TENSORS]; /* the object, where the callable reads it beside its arguments
                                      * too; 0 until the caller says so */
    size_t cpu_count;                /* those on the CPU, which are none of the tensors above */
    PyObject *on_cpu[RPP_MOST_ON_CPU];
    struct dl_tensor cpu[RPP_MOST_ON_CPU];
    uint64_t cpu_keys[RPP_MOST_ON_CPU];
    uintptr_t cpu_own[RPP_MOST_ON_CPU];
};

struct rpp_tensor_form {
    struct dl_type type;
    int32_t rank;
    int64_t shape[RPP_MOST_RANK], strides[RPP_MOST_RANK];
    uint64_t bytes; /* from the first element to behind the last */
    uint64_t keys;
    size_t extent;   /* that it lies in */
    uint64_t offset; /* there, in bytes */
    size_t same;     /* the first tensor that is the same object: this one, if no other is */
    uintptr_t own;   /* as of the inputs */
    bool wants;
};

/* A tensor on the CPU. */
struct rpp_cpu_form {
    struct rpp_tensor_form form;
    PyObject *contents; /* bytes that it has to hold; NULL: any */
    int kind;           /* of the number that it has to hold, rpp_kind_of; 0: any */
};

struct rpp_signature {
    size_t count, tensor_count, extent_count, cpu_count;
    int32_t ordinal;      /* as of the inputs */
    uint64_t hash;        /* rpp_inputs_hash of such inputs */
    PyObject **constants; /* of each input; NULL: a tensor */
    PyObject **names;     /* of each input, or NULL */
    uint64_t *extents;    /* bytes of each, in the order of their first tensors */
    struct rpp_tensor_form *tensors;
    struct rpp_cpu_form *on_cpu;
};

/* Of objects that are plain tensors: torch.Tensor and torch.nn.Parameter, or NULL. */
struct rpp_tensor_types {
    PyObject *tensor, *parameter;
};

/* Reads a call; false, without an exception, when it is for Python to look at. kwargs: a dict.
 * Either way the caller lets go of the inputs afterwards. */
bool rpp_inputs_read(struct rpp_inputs *inputs, const struct dl_exchange *exchange,
                     const struct rpp_tensor_types *types, const struct rpp_object_table *known,
                     PyObject *args, PyObject *kwargs);
void rpp_inputs_let_go(struct rpp_inputs *inputs);
/* Do the tensors, which fit the signature, lie in extents as those did that it was made of? Fills in
 * where each extent starts: out_starts has room for RPP_MOST_TENSORS. */
bool rpp_inputs_lie(const struct rpp_inputs *inputs, const struct rpp_signature *signature,
                    uint64_t *out_starts);

/* The same for all inputs that fit a signature. */
uint64_t rpp_inputs_hash(const struct rpp_inputs *inputs);

/* Of such inputs. told: a tuple that has of each tensor on the CPU bytes, its contents; an int, the
 * kind of number that it is; or None; NULL: there are none. These are what the shape was captured
 * for: the tensors may hold something else by now. False, and nothing made, where tensors are none
 * that the fast path knows, where some overlap and others are empty, or with an exception set. */
bool rpp_signature_make(struct rpp_signature *signature, const struct rpp_inputs *inputs,
                        PyObject *told);
bool rpp_signature_fits(const struct rpp_signature *signature, const struct rpp_inputs *inputs);
void rpp_signature_drop(struct rpp_signature *signature); /* a zeroed one is allowed */

#endif
