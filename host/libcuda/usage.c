/* SPDX-License-Identifier: MIT
 *
 * Which kernels a program used. What a kernel that does nothing should have written is not defined,
 * so the program is told at its end which of them it launched or captured. REPRISE_HOST_KERNELS
 * names a file to which every kernel that was used is added.
 */
#include "libcuda/libcuda.h"

#include "base/env.h"
#include "driver/host/state.h"
#include "libcuda/image.h"

#include <stdio.h>
#include <stdlib.h>

struct used {
    const struct rp_host_kernel *kernel; /* NULL: free */
    uint64_t launches;
};

static struct {
    pthread_mutex_t lock; /* guards the rest */
    struct used *kernels; /* open addressing by the kernel's address; [room], a power of two */
    size_t room, count;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct used *place_of(const struct rp_host_kernel *kernel)
{
    size_t at = ((uintptr_t)kernel >> 4) * 0x9e3779b97f4a7c15u;
    while (state.kernels[at & (state.room - 1)].kernel &&
           state.kernels[at & (state.room - 1)].kernel != kernel)
        at++;
    return &state.kernels[at & (state.room - 1)];
}

static bool grow(void)
{
    struct used *old = state.kernels;
    size_t old_room = state.room, room = old_room ? 2 * old_room : 256;
    struct used *more = calloc(room, sizeof *more);
    if (!more)
        return false;
    state.kernels = more;
    state.room = room;
    for (size_t i = 0; i < old_room; i++)
        if (old[i].kernel)
            *place_of(old[i].kernel) = old[i];
    free(old);
    return true;
}

static const struct rp_host_kernel *kernel_of(CUfunction function)
{
    const struct rp_host_kernel *kernel = NULL;
    rpi_host_lock();
    CUfunction found = function;
    bool ok = true;
    if (rpi_host_handle_is(function, RPI_HOST_KERNEL))
        ok = rpi_host_current() &&
             rpi_host_function_in(rpi_host_current(), (CUkernel)(void *)function, &found) ==
                 CUDA_SUCCESS;
    if (ok && rpi_host_handle_is(found, RPI_HOST_FUNCTION))
        kernel = found->kernel;
    rpi_host_unlock();
    return kernel;
}

void rpi_usage_note(CUfunction function)
{
    const struct rp_host_kernel *kernel = kernel_of(function);
    if (!kernel)
        return;
    pthread_mutex_lock(&state.lock);
    if (2 * state.count < state.room || grow()) {
        struct used *used = place_of(kernel);
        state.count += !used->kernel;
        used->kernel = kernel;
        used->launches++;
    }
    pthread_mutex_unlock(&state.lock);
}

static int by_launches(const void *a, const void *b)
{
    const struct used *x = a, *y = b;
    return (y->launches > x->launches) - (y->launches < x->launches);
}

static void tell(void)
{
    size_t nothing = 0;
    for (size_t i = 0; i < state.room; i++)
        nothing += state.kernels[i].kernel && rpi_image_does_nothing(state.kernels[i].kernel);
    if (!nothing)
        return;
    fprintf(stderr,
            "reprise host: the program used %zu kernel%s that did nothing here; what %s should "
            "have written is not defined:\n",
            nothing, nothing == 1 ? "" : "s", nothing == 1 ? "it" : "they");
    for (size_t i = 0; i < state.room; i++)
        if (state.kernels[i].kernel && rpi_image_does_nothing(state.kernels[i].kernel))
            fprintf(stderr, "reprise host: %8llu x %.400s\n",
                    (unsigned long long)state.kernels[i].launches, state.kernels[i].kernel->name);
}

static void add_to_file(const char *path)
{
    FILE *file = fopen(path, "a");
    if (!file)
        return;
    for (size_t i = 0; i < state.room; i++)
        if (state.kernels[i].kernel)
            fprintf(file, "%llu %s %s\n", (unsigned long long)state.kernels[i].launches,
                    rpi_image_does_nothing(state.kernels[i].kernel) ? "nothing" : "computed",
                    state.kernels[i].kernel->name);
    fclose(file);
}

__attribute__((destructor)) static void at_end(void)
{
    pthread_mutex_lock(&state.lock);
    if (state.room)
        qsort(state.kernels, state.room, sizeof *state.kernels, by_launches);
    if (!rpi_env(RPI_ENV_HOST_QUIET))
        tell();
    const char *path = rpi_env(RPI_ENV_HOST_KERNELS);
    if (path)
        add_to_file(path);
    state.room = state.count = 0; /* no more is noted: the order is lost */
    free(state.kernels);
    state.kernels = NULL;
    pthread_mutex_unlock(&state.lock);
}
