/* SPDX-License-Identifier: MIT
 *
 * Where a tensor lies, in four loads, and what kind of tensor it is, in two. PyTorch tells the one
 * through DLPack in some 50 ns, which for a model of hundreds of parameters is more than a launch
 * costs, and of the other (is it a lazy view, an inference tensor?) one answer in 150. The words
 * that answer lie at distances that no interface promises:
 *
 *     tensor (a Python object) -> its TensorImpl -> its StorageImpl -> the data
 *                                              '--> the storage offset, in elements
 *                                              '--> its dispatch keys, a set in one word
 *
 * So they are learned from the PyTorch that runs: tensors of which Python knows each of these
 * values are searched for them, before and after everything that moves a tensor (`.data`, set_,
 * resize_, swap_tensors). Only words that held the right value every time are used, each guard
 * compares them with what DLPack says when it is set, and where anything does not fit DLPack is
 * asked in every call. What is read belongs to the tensor and lives as long as it does.
 */
#ifndef REPRISE_PYTHON_TENSOR_ADDRESS_H
#define REPRISE_PYTHON_TENSOR_ADDRESS_H

#include "base/dlpack.h"
#include "base/python.h"

#include <stdbool.h>
#include <stdint.h>

/* In words of 8 bytes from the start of each object. */
struct rpp_tensor_layout {
    bool known;
    uint32_t impl, storage, data, offset, keys;
    uint32_t form; /* of the impl: rank, then places of five sizes and five strides; 0: not known */
    uint32_t type,
        type_shift; /* the word with the number of its dtype, from that bit on; 0: likewise */
};
extern struct rpp_tensor_layout rpp_tensor_layout;

/* Of a tensor's memory: it moved when one of them changed. */
struct rpp_tensor_place {
    uint64_t data;   /* of the storage */
    uint64_t offset; /* elements from there */
};

/* The following with the layout known; of an object that is a torch.Tensor, its impl. */
static inline const uint64_t *rpp_tensor_impl(const void *tensor)
{
    return ((const uint64_t *const *)tensor)[rpp_tensor_layout.impl];
}

static inline struct rpp_tensor_place rpp_impl_place(const uint64_t *impl)
{
    const struct rpp_tensor_layout *at = &rpp_tensor_layout;
    const uint64_t *storage = ((const uint64_t *const *)impl)[at->storage];
    return (struct rpp_tensor_place){storage ? storage[at->data] : 0, impl[at->offset]};
}

static inline struct rpp_tensor_place rpp_tensor_place(const void *tensor)
{
    return rpp_impl_place(rpp_tensor_impl(tensor));
}

static inline bool rpp_tensor_same_place(struct rpp_tensor_place a, struct rpp_tensor_place b)
{
    return a.data == b.data && a.offset == b.offset;
}

/* Where DLPack says that a tensor begins. */
static inline uint64_t rpp_tensor_seen(const struct dl_tensor *seen)
{
    return (uintptr_t)seen->data + seen->byte_offset;
}

/* Is its place where DLPack saw the tensor? */
static inline bool rpp_tensor_is_placed(const void *tensor, const struct dl_tensor *seen)
{
    struct rpp_tensor_place place = rpp_tensor_place(tensor);
    return place.data + place.offset * seen->type.bits * seen->type.lanes / 8 ==
           rpp_tensor_seen(seen);
}

/* The tensor's dispatch keys: what PyTorch's operators would do with it beside computing. */
static inline uint64_t rpp_tensor_keys(const void *tensor)
{
    return rpp_tensor_impl(tensor)[rpp_tensor_layout.keys];
}

/* Sizes and strides of up to so many dimensions lie behind the rank. Each of these, and then the dtype, is multiplied
 * by a number of its own. */
enum { RPP_FORM_RANK = 5 };
extern const uint64_t rpp_form_mix[2 * RPP_FORM_RANK + 1];

/* A number for dtype, sizes and strides, which may change where a tensor stays. What is not known adds nothing, nor
 * do sizes that lie elsewhere, in memory of their own. A guard asks it of each parameter: no product waits for
 * another one. */
static inline uint64_t rpp_impl_form(const uint64_t *impl)
{
    const struct rpp_tensor_layout *at = &rpp_tensor_layout;
    const uint64_t *form = impl + at->form;
    uint64_t type = at->type ? (uint16_t)(impl[at->type] >> at->type_shift) : 0;
    uint64_t mixed = type * rpp_form_mix[2 * RPP_FORM_RANK];
    if (!at->form || form[0] > RPP_FORM_RANK)
        return mixed;
    uint64_t rank = form[0];
    mixed += rank + 1;
    for (uint64_t i = 0; i < rank; i++)
        mixed += form[1 + i] * rpp_form_mix[i] +
                 form[1 + RPP_FORM_RANK + i] * rpp_form_mix[RPP_FORM_RANK + i];
    return mixed;
}

static inline uint64_t rpp_tensor_form(const void *tensor)
{
    return rpp_tensor_layout.known ? rpp_impl_form(rpp_tensor_impl(tensor)) : 0;
}

/* see_tensor(..) and settle_layout(): how the places of these words are learned. */
PyObject *rpp_see_tensor(PyObject *module, PyObject *args);
PyObject *rpp_settle_layout(PyObject *module, PyObject *unused);
/* tensor_places(tensors): where each of a list lies and its form, as bytes to compare; None: that is not known. */
PyObject *rpp_tensor_places(PyObject *module, PyObject *tensors);

#endif
