/* SPDX-License-Identifier: MIT */
#include "base/stack.h"

#include "reprise_framework.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

size_t rp_stack_below(const void *frame)
{
    uintptr_t address = (uintptr_t)frame;
    static _Thread_local uintptr_t end; /* asking takes longer than cleaning */
    static _Thread_local size_t bytes;
    pthread_attr_t attr;
    void *lowest;
    if (!end && pthread_getattr_np(pthread_self(), &attr) == 0) {
        if (pthread_attr_getstack(&attr, &lowest, &bytes) == 0)
            end = (uintptr_t)lowest;
        pthread_attr_destroy(&attr);
    }
    return address - end < bytes ? address - end : 0;
}

__attribute__((noinline)) void rpi_stack_clean(size_t most)
{
    size_t below = rp_stack_below(__builtin_frame_address(0));
    size_t bytes = below > RPI_STACK_KEPT ? below - RPI_STACK_KEPT : 0;
    if (bytes > most)
        bytes = most;
    char *stack = __builtin_alloca(bytes + 1);
    memset(stack, 0, bytes + 1);
    __asm__ volatile("" : : "r"(stack) : "memory"); /* keeps the memset */
}
