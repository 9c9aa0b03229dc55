/* SPDX-License-Identifier: MIT
 *
 * A functools.lru_cache with a limit keeps each result in a link: its dict refers to that, and so does
 * a list, in the order of use. A result that is taken out of the dict alone lives on in the list
 * until it is the oldest. Where links have their neighbours is proved once, on a cache made for it
 * (seen in CPython 3.10 to 3.13). Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_MEMO_LINKS_H
#define REPRISE_PYTHON_MEMO_LINKS_H

#include "base/python.h"

/* learn_links((first, second, third)): those of one cache, in the order of their use. Is it known now
 * where links have their neighbours? */
PyObject *rpp_learn_links(PyObject *module, PyObject *links);
/* unlink(link): takes it out of the list of its cache; the dict's is the caller's to take. False where
 * that is not known. */
PyObject *rpp_unlink(PyObject *module, PyObject *link);

#endif
