/* SPDX-License-Identifier: MIT
 *
 * New memory for what a graph makes: tensors of PyTorch's, of a size, strides and type that the
 * capture told. With the GIL; PyTorch lets other threads run while it allocates.
 */
#ifndef REPRISE_PYTHON_RESULTS_H
#define REPRISE_PYTHON_RESULTS_H

#include "base/dlpack.h"
#include "base/python.h"

/* What tensors are made with: functions of torch, and a name. quick_empty may be None. */
struct rpp_maker {
    const struct dl_exchange *exchange;
    PyObject *empty, *quick_empty, *resize;
};

/* With new references to torch.empty_strided and what is quicker; false with an exception set, and
 * the maker to be dropped either way. tensor_type: torch.Tensor. */
bool rpp_maker_set(struct rpp_maker *maker, PyObject *tensor_type, PyObject *empty,
                   PyObject *quick_empty);
void rpp_maker_drop(struct rpp_maker *maker); /* a zeroed one is allowed */

/* How one is made. */
struct rpp_result {
    PyObject *whole;           /* (shape, strides, dtype) */
    PyObject *place, *options; /* the same as arguments and keywords of torch.empty_strided */
    PyObject *cut;             /* the shape that it is cut to; or NULL */
};

/* how: (shape, strides, dtype), and perhaps the shape to cut it to. False with an exception set,
 * and the result to be dropped. */
bool rpp_result_read(struct rpp_result *result, PyObject *how, int32_t ordinal);
void rpp_result_drop(struct rpp_result *result); /* a zeroed one is allowed */

/* A new tensor on the device, and where it lies; NULL with an exception set. */
PyObject *rpp_result_make(const struct rpp_result *result, const struct rpp_maker *maker,
                          int32_t ordinal, struct dl_tensor *out_tensor);

#endif
