/* SPDX-License-Identifier: MIT */
#include "gpu.h"

#include <stdio.h>

rp_status gpu_init(struct gpu *out_gpu, const struct rp_device *device, struct rp_error *err)
{
#define X(name, params) #name,
    static const char *const names[] = {GPU_FUNCTIONS(X)};
#undef X
    enum { COUNT = sizeof names / sizeof *names };
    union {
        struct gpu gpu;
        void (*functions[COUNT])(void);
    } table;
    _Static_assert(sizeof(struct gpu) == sizeof table, "struct gpu holds functions only");
    for (size_t i = 0; i < COUNT; i++) {
        table.functions[i] = rp_device_function(device, names[i]);
        if (!table.functions[i])
            return cli_error(err, RP_ERROR_UNSUPPORTED, "rp_device_function",
                             "the driver has no %s: a newer driver is needed", names[i]);
    }
    *out_gpu = table.gpu;
    return RP_OK;
}

rp_status gpu_check(const struct gpu *gpu, unsigned result, const char *function,
                    struct rp_error *err)
{
    if (!result)
        return RP_OK;
    enum { OUT_OF_MEMORY = 2 }; /* CUDA_ERROR_OUT_OF_MEMORY */
    const char *name = NULL, *text = NULL;
    gpu->cuGetErrorName(result, &name);
    gpu->cuGetErrorString(result, &text);
    rp_status status = result == OUT_OF_MEMORY ? RP_ERROR_OUT_OF_DEVICE_MEMORY : RP_ERROR_DRIVER;
    cli_error(err, status, function, "%s failed with %u, %s: %s", function, result,
              name ? name : "an unknown error", text ? text : "no text");
    if (err) {
        err->driver_code = (int)result;
        snprintf(err->driver_name, sizeof err->driver_name, "%s", name ? name : "");
    }
    return status;
}
