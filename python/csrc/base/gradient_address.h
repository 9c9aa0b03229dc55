/* SPDX-License-Identifier: MIT
 *
 * Which gradient a tensor has, in three loads, and whether it wants one, in a fourth. PyTorch's
 * attributes tell that in some 100 and 70 ns, which for hundreds of parameters is several times
 * what a launch costs. As in tensor_address.h the words are learned from the PyTorch that runs:
 *
 *     tensor -> its TensorImpl -> what autograd keeps of it -> the TensorImpl of its gradient
 *                                                         '--> does it want one? A byte
 *
 * Of a tensor that never wanted a gradient autograd keeps nothing; where there is none, the word is
 * the address of an object that stands for that. Tensors whose gradients are known are searched for
 * these places through a pipe, which refuses what is no memory. Only types that were seen so are
 * looked at, as others may have attributes of their own.
 */
#ifndef REPRISE_PYTHON_GRADIENT_ADDRESS_H
#define REPRISE_PYTHON_GRADIENT_ADDRESS_H

#include "base/python.h"
#include "base/tensor_address.h"

/* In words from the start of each object, `wants` in bytes. */
struct rpp_gradient_layout {
    bool known;
    uint32_t kept, grad, wants;
    uint64_t none;
    PyTypeObject *types[2]; /* of tensors that were seen */
};
extern struct rpp_gradient_layout rpp_gradient_layout;

/* Is this an object that the following are for? */
static inline bool rpp_gradient_is_known(const PyObject *tensor)
{
    const struct rpp_gradient_layout *at = &rpp_gradient_layout;
    return at->known && (Py_TYPE(tensor) == at->types[0] || Py_TYPE(tensor) == at->types[1]);
}

/* The TensorImpl of its gradient, valid while it has that; NULL where there is none. */
static inline const uint64_t *rpp_gradient_of(const PyObject *tensor)
{
    const uint64_t *kept = ((uint64_t *const *)rpp_tensor_impl(tensor))[rpp_gradient_layout.kept];
    uint64_t grad = kept ? kept[rpp_gradient_layout.grad] : rpp_gradient_layout.none;
    return grad == rpp_gradient_layout.none ? NULL : (const uint64_t *)(uintptr_t)grad;
}

enum rpp_wish { RPP_WANTS_NONE, RPP_WANTS_ONE, RPP_ASK_FOR_WISH };

/* Does it want a gradient? One that was made by an operation may, whatever the byte is. */
static inline enum rpp_wish rpp_gradient_wish(const PyObject *tensor)
{
    const void *kept = ((void *const *)rpp_tensor_impl(tensor))[rpp_gradient_layout.kept];
    if (!kept)
        return RPP_WANTS_NONE;
    return ((const uint8_t *)kept)[rpp_gradient_layout.wants] ? RPP_WANTS_ONE : RPP_ASK_FOR_WISH;
}

/* see_gradient(..) and settle_gradients(): how the places of these words are learned. */
PyObject *rpp_see_gradient(PyObject *module, PyObject *args);
PyObject *rpp_settle_gradients(PyObject *module, PyObject *unused);

#endif
