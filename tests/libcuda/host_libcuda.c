/* SPDX-License-Identifier: MIT
 *
 * The host driver as a library that the loader takes for libcuda.so.1, for tests of what opens
 * NVIDIA's driver by name: the PyTorch package. HOST_LIBCUDA_TRACE names a file that every call is
 * written to.
 */
#include "driver/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) int
cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status);

static const struct rp_driver *driver(void)
{
    const char *path = getenv("HOST_LIBCUDA_TRACE");
    FILE *sink = path ? fopen(path, "w") : NULL;
    const struct rp_driver *host = rpi_driver_host();
    return sink ? rpi_driver_trace(host, sink) : host;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    static const struct rp_driver *table; /* asked for by one thread at a time */
    if (!table)
        table = driver();
    *function = NULL;
    (void)version, (void)flags;
#define X(need, symbol, since, parameters, arguments)                                              \
    if (!strcmp(name, #symbol))                                                                    \
        memcpy(function, &table->symbol, sizeof *function);
#include "driver/symbols.def"
#undef X
    *status = *function ? 0 : 1;
    return 0;
}
