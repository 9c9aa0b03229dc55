/* SPDX-License-Identifier: MIT
 *
 * The stack of the calling thread below where it is used. Padding in kernels' parameters is what
 * lay there.
 */
#ifndef REPRISE_BASE_STACK_H
#define REPRISE_BASE_STACK_H

#include <stddef.h>

enum { RPI_STACK_KEPT = 48 * 1024 }; /* at a stack's far end, for whoever is called next */

/* Fills it with zeros, as far as `most` bytes down; what is kept, and a stack that is not the
 * thread's own, stay as they are. */
void rpi_stack_clean(size_t most);

#endif
