/* SPDX-License-Identifier: MIT */
#include "graph/template/param_types.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- Prototypes ---------------------------------------------------------------------------- */

struct text {
    const char *begin, *end;
};

static bool opens(char c)
{
    return c != '\0' && strchr("([{<", c);
}

static bool closes(char c)
{
    return c != '\0' && strchr(")]}>", c);
}

/* The list of parameters: what is in the last parentheses, which end the prototype. */
static bool find_parameters(const char *prototype, struct text *out)
{
    const char *end = prototype + strlen(prototype);
    size_t depth = 0;
    if (end == prototype || end[-1] != ')')
        return false;
    for (const char *at = end; at-- > prototype;) {
        depth += closes(*at);
        if (!opens(*at))
            continue;
        if (depth == 0)
            return false;
        if (--depth == 0) {
            *out = (struct text){at + 1, end - 1};
            return *at == '(';
        }
    }
    return false;
}

/* Where the parameter ends that begins there: at a comma of the list itself, or at its end. */
static const char *end_of(const char *at, const char *end)
{
    for (size_t depth = 0; at < end; at++) {
        if (*at == ',' && depth == 0)
            return at;
        if (closes(*at) && depth == 0)
            return NULL; /* an operator's name */
        depth += opens(*at);
        depth -= closes(*at);
    }
    return at;
}

static bool has(struct text text, const char *piece)
{
    return memmem(text.begin, (size_t)(text.end - text.begin), piece, strlen(piece));
}

/* Has it the name of a class? Those of numbers have neither scope nor arguments. */
static bool is_class(struct text type)
{
    return (has(type, "::") || has(type, "<")) && !has(type, "*") && !has(type, "&");
}

bool rpi_prototype_has_class(const char *prototype, size_t parameter)
{
    struct text list;
    if (!find_parameters(prototype, &list))
        return false;
    for (const char *at = list.begin; at && at < list.end;) {
        struct text type = {at, end_of(at, list.end)};
        if (!type.end)
            return false;
        if (parameter-- == 0)
            return is_class(type);
        at = type.end + 1;
    }
    return false;
}

/* ---- Names --------------------------------------------------------------------------------- */

typedef char *(*demangle_function)(const char *mangled, char *buffer, size_t *bytes, int *status);

/* Of the C++ library that the process has, whoever brought it; NULL: there is none. */
static demangle_function find_demangle(void)
{
    static const char *const libraries[] = {"libstdc++.so.6", "libc++abi.so.1"};
    demangle_function found = NULL;
    for (size_t i = 0; !found && i < sizeof libraries / sizeof *libraries; i++) {
        void *handle = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        void *symbol = handle ? dlsym(handle, "__cxa_demangle") : NULL;
        memcpy(&found, &symbol, sizeof found);
        if (handle)
            dlclose(handle); /* who brought it holds it */
    }
    return found;
}

bool rpi_param_is_class(const struct rp_driver *driver, CUfunction function, size_t parameter)
{
    const char *name = NULL;
    if (!function || !(driver->capabilities & RPI_CAP_FUNC_NAME) ||
        driver->cuFuncGetName(&name, function) != CUDA_SUCCESS || !name)
        return false;
    demangle_function demangle = find_demangle();
    char *prototype = demangle ? demangle(name, NULL, NULL, NULL) : NULL;
    bool found = prototype && rpi_prototype_has_class(prototype, parameter);
    free(prototype); /* the C++ library's malloc is the process's */
    return found;
}
