/* SPDX-License-Identifier: MIT
 *
 * What a shape of the fast path has to do with gradients, a parameter each:
 *
 *     looked   its calls are those with a gradient there, or those without
 *     used     the graph reads or writes the gradient where it lies: one that lies elsewhere needs
 *              another graph
 *     given    a call leaves this gradient, in the memory of the graph, or none: a plain tensor has
 *              to lie where it did, as the program may point it at other memory (`p.grad.data = `)
 *
 * Which gradient a parameter has is looked up in its memory (gradient_address.h), or in the way of
 * Python where that is not known of it: once in a call then, before the launch where it decides,
 * behind it where it is only given. Guarded by the GIL. Reading and setting them may let others
 * run, and frees what they please: the caller keeps the gradients meanwhile.
 */
#ifndef REPRISE_PYTHON_GRADIENTS_H
#define REPRISE_PYTHON_GRADIENTS_H

#include "base/dlpack.h"
#include "base/python.h"

struct rpp_gradients;

/* list: for each parameter a tuple
 *
 *     (parameter, is it missing: None where that does not matter, address or None[, given or None])
 *
 * without the last where a call leaves it alone. NULL, perhaps without an exception, where one that
 * is used is not a plain tensor at its address now. */
struct rpp_gradients *rpp_gradients_create(PyObject *list, const struct dl_exchange *exchange,
                                           PyObject *tensor_type);
void rpp_gradients_destroy(struct rpp_gradients *gradients); /* NULL is allowed */

/* Are they those of such a call? No exception is set. */
bool rpp_gradients_fit(struct rpp_gradients *gradients);
/* Behind the launch of a call that they fitted: gives the parameters theirs. False with an
 * exception set. */
bool rpp_gradients_give(struct rpp_gradients *gradients);

/* For Python's garbage collector; NULL is allowed. */
int rpp_gradients_traverse(const struct rpp_gradients *gradients, visitproc visit, void *arg);

/* with_gradients(parameters): the numbers of those that have a gradient now, a list. Of most kinds of
 * tensors their memory tells, of others their attribute. */
PyObject *rpp_with_gradients(PyObject *module, PyObject *params);

/* Interns a name; -1 with an exception set. */
int rpp_gradients_prepare(void);

#endif
