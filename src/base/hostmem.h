/* SPDX-License-Identifier: MIT
 *
 * Host memory, through the functions that rp_set_host_memory gave. Everything in the library
 * allocates here, so that a test can make allocation N fail. Nothing aborts: NULL is returned.
 */
#ifndef REPRISE_BASE_HOSTMEM_H
#define REPRISE_BASE_HOSTMEM_H

#include <stddef.h>

void *rpi_malloc(size_t bytes);
void *rpi_calloc(size_t count, size_t bytes); /* NULL when count * bytes overflows */
void *rpi_realloc(void *pointer, size_t bytes);
void *rpi_reallocarray(void *pointer, size_t count, size_t bytes);
void rpi_free(void *pointer);
char *rpi_strdup(const char *text);

#endif
