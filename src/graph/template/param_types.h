/* SPDX-License-Identifier: MIT
 *
 * What the name of a kernel tells of its parameters. A kernel of C++ has the types of its
 * parameters in its mangled name; the driver tells sizes only.
 *
 * A class of 8 bytes may have padding, which holds what was on the stack:
 *
 *     | 1 or 2 bytes | padding up to byte 3 | 4 bytes |       (PyTorch's StoreWithCast<1>)
 *
 * A pointer, an integer and a floating-point number have none.
 */
#ifndef REPRISE_GRAPH_TEMPLATE_PARAM_TYPES_H
#define REPRISE_GRAPH_TEMPLATE_PARAM_TYPES_H

#include "driver/driver.h"

#include <stdbool.h>
#include <stddef.h>

/* Is a parameter, counted from 0, of a class that names no pointer? `prototype` is a kernel's
 * name as C++ writes it, "void f<A>(int, B<2>)"; false for what is not understood. */
bool rpi_prototype_has_class(const char *prototype, size_t parameter);

/* The same of a function. Asks the C++ library that the process has; false where there is none, or
 * the name is not C++'s. Any thread. */
bool rpi_param_is_class(const struct rp_driver *driver, CUfunction function, size_t parameter);

#endif
