/* SPDX-License-Identifier: MIT
 *
 * Has the order of an OrderedDict changed? move_to_end() changes nothing in the dict that it is, so
 * marks do not tell. It counts what happens to its list of keys, though, in a word that no
 * interface promises: the word is proved once, on one that is made for it (the same in CPython
 * 3.10 to 3.13). Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_ORDER_H
#define REPRISE_PYTHON_ORDER_H

#include "base/python.h"

#include <stdbool.h>
#include <stdint.h>

/* Proves the word. No exception is set. */
void rpp_orders_prepare(void);
/* Is the object one whose order has a tag? */
bool rpp_has_order_tag(PyObject *object);
/* What changes with the order of such an object. */
uint64_t rpp_order_tag(const void *ordered);

#endif
