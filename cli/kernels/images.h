/* SPDX-License-Identifier: MIT
 *
 * The decoder's kernels (decoder.h) in the two forms that cuModuleLoadData takes.
 */
#ifndef REPRISE_KERNELS_IMAGES_H
#define REPRISE_KERNELS_IMAGES_H

#include "reprise.h"
#include "reprise_tools.h"

extern const struct rp_host_image decoder_host_image; /* for the host driver */
extern const char decoder_ptx[];                      /* for NVIDIA's: PTX, as text */

#endif
