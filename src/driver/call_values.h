/* SPDX-License-Identifier: MIT
 *
 * The arguments of a driver call as integers, for wrappers that look at all calls alike:
 *
 *     const uint64_t values[] = {RPI_CALL_VALUES args 0};
 *
 * where args is the argument list of symbols.def, "(to, from, bytes)". Integers keep their sign
 * bits, pointers their address. The 0 is there because a list may be empty.
 */
#ifndef REPRISE_DRIVER_CALL_VALUES_H
#define REPRISE_DRIVER_CALL_VALUES_H

#include <stdint.h>

#define RPI_VALUE(x)                                                  (uint64_t)(uintptr_t)(x),
#define RPI_VALUES1(a)                                                RPI_VALUE(a)
#define RPI_VALUES2(a, ...)                                           RPI_VALUE(a) RPI_VALUES1(__VA_ARGS__)
#define RPI_VALUES3(a, ...)                                           RPI_VALUE(a) RPI_VALUES2(__VA_ARGS__)
#define RPI_VALUES4(a, ...)                                           RPI_VALUE(a) RPI_VALUES3(__VA_ARGS__)
#define RPI_VALUES5(a, ...)                                           RPI_VALUE(a) RPI_VALUES4(__VA_ARGS__)
#define RPI_VALUES6(a, ...)                                           RPI_VALUE(a) RPI_VALUES5(__VA_ARGS__)
#define RPI_VALUES7(a, ...)                                           RPI_VALUE(a) RPI_VALUES6(__VA_ARGS__)
#define RPI_VALUES8(a, ...)                                           RPI_VALUE(a) RPI_VALUES7(__VA_ARGS__)
#define RPI_VALUES9(a, ...)                                           RPI_VALUE(a) RPI_VALUES8(__VA_ARGS__)
#define RPI_VALUES10(a, ...)                                          RPI_VALUE(a) RPI_VALUES9(__VA_ARGS__)
#define RPI_VALUES11(a, ...)                                          RPI_VALUE(a) RPI_VALUES10(__VA_ARGS__)
#define RPI_VALUES_PICK(a, b, c, d, e, f, g, h, i, j, k, chosen, ...) chosen
#define RPI_CALL_VALUES(...)                                                                       \
    __VA_OPT__(RPI_VALUES_PICK(__VA_ARGS__, RPI_VALUES11, RPI_VALUES10, RPI_VALUES9, RPI_VALUES8,  \
                               RPI_VALUES7, RPI_VALUES6, RPI_VALUES5, RPI_VALUES4, RPI_VALUES3,    \
                               RPI_VALUES2, RPI_VALUES1)(__VA_ARGS__))

#endif
