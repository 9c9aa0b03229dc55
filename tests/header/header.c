/* SPDX-License-Identifier: MIT
 *
 * The public header, alone and first, as C11 and as C++17 without extensions. What a user writes
 * from it by macro is written here too.
 */
#include "reprise.h"

void use_the_macros(void);
void use_the_macros(void)
{
    struct rp_device_options device = RP_DEVICE_OPTIONS_INIT;
    struct rp_pool_options pool = RP_POOL_OPTIONS_INIT;
    struct rp_capture_options capture = RP_CAPTURE_OPTIONS_INIT;
    struct rp_plan_options plan = RP_PLAN_OPTIONS_INIT;
    struct rp_host_image image = {RP_HOST_IMAGE_MAGIC, 0, 0, NULL};
    (void)device;
    (void)pool;
    (void)capture;
    (void)plan;
    (void)image;
}
