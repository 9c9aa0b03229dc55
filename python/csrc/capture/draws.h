/* SPDX-License-Identifier: MIT
 *
 * The generators that a graph draws from: seed and offset of each are values of a replay. With the
 * GIL.
 */
#ifndef REPRISE_PYTHON_DRAWS_H
#define REPRISE_PYTHON_DRAWS_H

#include "base/python.h"

struct rpp_draw {
    PyObject *generator;
    uint64_t increment; /* by which a replay moves its offset on */
};

struct rpp_draws {
    struct rpp_draw *list;
    uint64_t *values; /* of the replay under way: seed and offset of each */
    size_t count;
};

/* Reads what the next replay draws from, of the generators from `first` on; false with an exception
 * set. */
bool rpp_draws_read(const struct rpp_draws *draws, size_t first);
/* Has the next replay draw from (seed, offset) in the place of the first generator; false with an
 * exception set. */
bool rpp_draws_take(const struct rpp_draws *draws, PyObject *state);
/* Behind a replay: moves the generators from `first` on. False with an exception set. */
bool rpp_draws_advance(const struct rpp_draws *draws, size_t first);
/* A tuple of (generator, increment); false with an exception set. */
bool rpp_draws_set(struct rpp_draws *draws, PyObject *pairs);
void rpp_draws_finish(struct rpp_draws *draws);

/* probe_words(ordinal, stream, marker), last_node(..) and words_of(..): which words of device
 * memory PyTorch has a captured kernel read seed and offset from. */
PyObject *rpp_probe_words(PyObject *module, PyObject *args);
PyObject *rpp_last_node(PyObject *module, PyObject *args);
PyObject *rpp_words_of(PyObject *module, PyObject *args);

#endif
