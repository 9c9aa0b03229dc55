/* SPDX-License-Identifier: MIT */
#include "base/symbol.h"

#include <assert.h>
#include <dlfcn.h>
#include <stddef.h>

void *rpp_torch_symbol(const char *library, const char *name)
{
    assert(library && name);
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    void *found = handle ? dlsym(handle, name) : NULL;
    if (handle)
        dlclose(handle); /* PyTorch holds it */
    return found;
}
