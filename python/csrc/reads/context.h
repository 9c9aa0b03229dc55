/* SPDX-License-Identifier: MIT
 *
 * Has a context variable another value? Asking the interpreter for one takes code and memory that
 * other work has put out of the processor's caches. But all values of a context lie in one object that
 * never changes, a tree: setting a variable gives the context another one, and so does entering
 * another context. Where a thread has its context, and a context its tree, no interface promises;
 * both places are proved once, on a context made for it (seen in CPython 3.10 to 3.13). Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_CONTEXT_H
#define REPRISE_PYTHON_CONTEXT_H

#include "base/python.h"

#include <stdbool.h>

/* Proves the places. No exception is set. */
void rpp_contexts_prepare(void);
/* Were they proved? */
bool rpp_contexts_are_known(void);

/* What was seen to have the values of a context: a weak reference, as these are the program's. Zeroed:
 * nothing was seen. */
struct rpp_context_seen {
    PyObject *reference;
    bool is_empty; /* the thread had no context */
};

/* Are the values of this thread's variables those that were seen? */
bool rpp_context_holds(const struct rpp_context_seen *seen);
/* Sees those that are there now; where that fails they never hold. No exception is set. */
void rpp_context_see(struct rpp_context_seen *seen);
void rpp_context_forget(struct rpp_context_seen *seen); /* a zeroed one is allowed */

#endif
