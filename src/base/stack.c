/* SPDX-License-Identifier: MIT */
#include "base/stack.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the thread's stack below the address; 0: not known, or a stack of the program's own. */
static size_t bytes_below(uintptr_t address)
{
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
    size_t below = bytes_below((uintptr_t)__builtin_frame_address(0));
    size_t bytes = below > RPI_STACK_KEPT ? below - RPI_STACK_KEPT : 0;
    if (bytes > most)
        bytes = most;
    char *stack = __builtin_alloca(bytes + 1);
    memset(stack, 0, bytes + 1);
    __asm__ volatile("" : : "r"(stack) : "memory"); /* keeps the memset */
}
