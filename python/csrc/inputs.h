/* SPDX-License-Identifier: MIT
 *
 * What a call of the short way is made of: plain tensors, and values that are part of the shape
 * (None, bool, int, float, str), by position or by name. Everything else is for Python to look at.
 *
 *     inputs      of one call: borrowed, valid while its arguments are
 *     signature   of a shape: what inputs have to look like for it
 */
#ifndef REPRISE_PYTHON_INPUTS_H
#define REPRISE_PYTHON_INPUTS_H

#include "dlpack.h"
#include "python.h"

enum { RPP_MOST_INPUTS = 32, RPP_MOST_TENSORS = 16, RPP_MOST_RANK = 8 };

struct rpp_inputs {
    size_t count, tensor_count;
    int32_t ordinal; /* of the device that all tensors lie on; -1: there are none */
    PyObject *values[RPP_MOST_INPUTS]; /* by position, then by name, in the order they came */
    PyObject *names[RPP_MOST_INPUTS];  /* NULL: by position */
    size_t tensor_at[RPP_MOST_TENSORS];
    struct dl_tensor tensors[RPP_MOST_TENSORS];
    uint64_t keys[RPP_MOST_TENSORS]; /* rpp_tensor_keys, 0 where these are not known */
};

struct rpp_signature {
    size_t count, tensor_count;
    int32_t ordinal;                      /* as of the inputs */
    uint64_t hash;                        /* rpp_inputs_hash of such inputs */
    PyObject *constants[RPP_MOST_INPUTS]; /* NULL: a tensor */
    PyObject *names[RPP_MOST_INPUTS];     /* or NULL */
    struct {
        struct dl_type type;
        int32_t rank;
        int64_t shape[RPP_MOST_RANK], strides[RPP_MOST_RANK];
        uint64_t bytes; /* from the first element to behind the last */
        uint64_t keys;
    } tensors[RPP_MOST_TENSORS];
};

/* Reads a call; false, without an exception, when it is for Python to look at. kwargs: a dict. */
bool rpp_inputs_read(struct rpp_inputs *inputs, const struct dl_exchange *exchange,
                     PyObject *tensor_type, PyObject *args, PyObject *kwargs);
/* Do any two tensors share memory? They fit the signature. */
bool rpp_inputs_overlap(const struct rpp_inputs *inputs, const struct rpp_signature *signature);

/* The same for all inputs that fit a signature. */
uint64_t rpp_inputs_hash(const struct rpp_inputs *inputs);

/* Of such inputs. False, and nothing made, where tensors are none that the short way knows. */
bool rpp_signature_make(struct rpp_signature *signature, const struct rpp_inputs *inputs);
bool rpp_signature_fits(const struct rpp_signature *signature, const struct rpp_inputs *inputs);
void rpp_signature_drop(struct rpp_signature *signature); /* a zeroed one is allowed */

#endif
