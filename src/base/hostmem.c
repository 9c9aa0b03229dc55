/* SPDX-License-Identifier: MIT */
#include "base/hostmem.h"

#include "base/log.h"
#include "reprise.h"

#include <stdlib.h>
#include <string.h>

static void *libc_malloc(size_t bytes, void *user)
{
    (void)user;
    return malloc(bytes);
}

static void *libc_realloc(void *pointer, size_t bytes, void *user)
{
    (void)user;
    return realloc(pointer, bytes);
}

static void libc_free(void *pointer, void *user)
{
    (void)user;
    free(pointer);
}

static const struct rp_host_memory libc_memory = {libc_malloc, libc_realloc, libc_free, NULL};
static struct rp_host_memory host_memory = {libc_malloc, libc_realloc, libc_free, NULL};

void rp_set_host_memory(const struct rp_host_memory *functions)
{
    if (!functions)
        host_memory = libc_memory;
    else if (functions->malloc_fn && functions->realloc_fn && functions->free_fn)
        host_memory = *functions;
    else
        rpi_log(RP_LOG_ERROR, "rp_set_host_memory: a function is NULL; nothing is changed");
}

void *rpi_malloc(size_t bytes)
{
    return host_memory.malloc_fn(bytes ? bytes : 1, host_memory.user);
}

void *rpi_calloc(size_t count, size_t bytes)
{
    if (bytes && count > (size_t)-1 / bytes)
        return NULL;
    void *pointer = rpi_malloc(count * bytes);
    if (pointer)
        memset(pointer, 0, count * bytes);
    return pointer;
}

void *rpi_realloc(void *pointer, size_t bytes)
{
    return host_memory.realloc_fn(pointer, bytes ? bytes : 1, host_memory.user);
}

void *rpi_reallocarray(void *pointer, size_t count, size_t bytes)
{
    if (bytes && count > (size_t)-1 / bytes)
        return NULL;
    return rpi_realloc(pointer, count * bytes);
}

void rpi_free(void *pointer)
{
    if (pointer)
        host_memory.free_fn(pointer, host_memory.user);
}

char *rpi_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = rpi_malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}
