/* SPDX-License-Identifier: MIT */
#include "base/caller.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void rpi_caller_describe(const void *address, char *text, size_t bytes)
{
    Dl_info info;
    text[0] = '\0';
    if (!address)
        return;
    /* The call itself ends before the place that it returns to. */
    uintptr_t call = (uintptr_t)address - 1;
    if (!dladdr((const void *)call, &info) || !info.dli_fname)
        return;
    if (info.dli_sname)
        snprintf(text, bytes, "%s+0x%zx in %s", info.dli_sname,
                 (size_t)(call - (uintptr_t)info.dli_saddr), file_name(info.dli_fname));
    else
        snprintf(text, bytes, "%s+0x%zx", file_name(info.dli_fname),
                 (size_t)(call - (uintptr_t)info.dli_fbase));
}
