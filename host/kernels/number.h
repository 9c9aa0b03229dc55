/* SPDX-License-Identifier: MIT
 *
 * Numbers of the types that kernels compute with, under PyTorch's numbers of types.
 */
#ifndef HOST_KERNELS_NUMBER_H
#define HOST_KERNELS_NUMBER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    RPI_U8 = 0,
    RPI_I8 = 1,
    RPI_I16 = 2,
    RPI_I32 = 3,
    RPI_I64 = 4,
    RPI_HALF = 5,
    RPI_FLOAT = 6,
    RPI_DOUBLE = 7,
    RPI_BOOL = 11,
    RPI_BF16 = 15,
    RPI_NO_TYPE = -1
};

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

float rpi_from_half(uint16_t bits);
uint16_t rpi_to_half(float value);

/* number.c. 0: not a type that is known. */
size_t rpi_type_bytes(int type);
int rpi_type_is_whole(int type);
double rpi_load(const void *at, int type);
int64_t rpi_load_whole(const void *at, int type);
void rpi_store(void *at, int type, double value);
void rpi_store_whole(void *at, int type, int64_t value);
/* The value as the type holds it. */
double rpi_round_to(double value, int type);

#endif
