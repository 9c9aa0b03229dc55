/* SPDX-License-Identifier: MIT
 *
 * Names for places in code, for messages.
 */
#ifndef REPRISE_BASE_CALLER_H
#define REPRISE_BASE_CALLER_H

#include <stddef.h>

/* "decode_step+0x1c in libmodel.so"; without a name "libmodel.so+0x4f31", the offset being what
 * addr2line takes; "" where nothing is known. `address` is where a call returns to. Any thread. */
void rpi_caller_describe(const void *address, char *text, size_t bytes);

#endif
