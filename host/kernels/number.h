/* SPDX-License-Identifier: MIT
 *
 * Numbers of the types that kernels compute with, read and written as double or float.
 */
#ifndef HOST_KERNELS_NUMBER_H
#define HOST_KERNELS_NUMBER_H

#include <stdint.h>
#include <string.h>

static inline float rpi_from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* To the nearest, ties to even. */
static inline uint16_t rpi_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float rpi_from_half(uint16_t bits)
{
    _Float16 value;
    memcpy(&value, &bits, sizeof value);
    return (float)value;
}

static inline uint16_t rpi_to_half(float value)
{
    _Float16 half = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}

#endif
