/* SPDX-License-Identifier: MIT
 *
 * Small kernels for tests, the same on every driver: kernels.inc is their one source, compiled as
 * C functions for the host driver and to PTX for NVIDIA's. Names are as in kernels.inc.
 *
 *     driver->cuModuleLoadData(&module, rpt_kernel_image(driver));
 *     driver->cuModuleGetFunction(&function, module, "rpt_fill");
 */
#ifndef TESTS_KERNELS_KERNELS_H
#define TESTS_KERNELS_KERNELS_H

#include <stdint.h>

/* The parameter of rpt_padded: bytes 1 to 7 and 18 to 23 belong to nobody. */
struct rpt_padded_param {
    uint8_t tag;
    uint32_t *to;
    uint16_t index;
};

/* What cuTensorMapEncodeTiled writes. The kernels for the host driver read the first word, the
 * tensor's address: there it is a table of rows of RPT_TILE floats. */
struct rpt_tensor_map {
#ifdef __cplusplus
    alignas(64) uint64_t words[16];
#else
    _Alignas(64) uint64_t words[16];
#endif
};
enum { RPT_TILE = 256 };

#ifndef __CUDACC__
#include "driver/driver.h"
#include "reprise.h"

/* All kernels as C functions, for the host driver. */
extern const struct rp_host_image rpt_host_image;

/* What to give cuModuleLoadData. Static. */
const void *rpt_kernel_image(const struct rp_driver *driver);
/* The kernels that need compute capability 9.0: rpt_cluster, rpt_pdl_first, rpt_pdl_second,
 * rpt_tile. */
const void *rpt_kernel_image_sm90(const struct rp_driver *driver);
#endif

#endif
