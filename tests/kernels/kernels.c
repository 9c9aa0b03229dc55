/* SPDX-License-Identifier: MIT */
#include "kernels.h"
#include "kernels_ptx.h"

#include <string.h>

const void *rpt_kernel_image(const struct rp_driver *driver)
{
    return strcmp(driver->provider, "host") ? (const void *)ptx_base : &rpt_host_image;
}

const void *rpt_kernel_image_sm90(const struct rp_driver *driver)
{
    return strcmp(driver->provider, "host") ? (const void *)ptx_sm90 : &rpt_host_image;
}
