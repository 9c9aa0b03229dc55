/* SPDX-License-Identifier: MIT
 *
 * One public header, which the command line includes alone and first, as C11, C17 and C++17 without
 * extensions. What a user writes from it by macro is written here too.
 */

void use_the_macros(void);
void use_the_macros(void)
{
    struct rp_device_options device = RP_DEVICE_OPTIONS_INIT;
    struct rp_pool_options pool = RP_POOL_OPTIONS_INIT;
    struct rp_capture_options capture = RP_CAPTURE_OPTIONS_INIT;
    struct rp_callable_options callable = RP_CALLABLE_OPTIONS_INIT;
    struct rp_pool_info info;
    info.size = sizeof info;
    (void)device;
    (void)pool;
    (void)capture;
    (void)callable;
    (void)info;
#ifdef ALONE_REPRISE_HEAP
    struct rp_heap_options heap = RP_HEAP_OPTIONS_INIT;
    struct rp_heap_history_options history = RP_HEAP_HISTORY_OPTIONS_INIT;
    (void)heap;
    (void)history;
#endif
#ifdef ALONE_REPRISE_TOOLS
    struct rp_plan_options plan = RP_PLAN_OPTIONS_INIT;
    struct rp_advise_options advise = RP_ADVISE_OPTIONS_INIT;
    struct rp_host_image image = {RP_HOST_IMAGE_MAGIC, 0, 0, NULL};
    (void)plan;
    (void)advise;
    (void)image;
#endif
}
