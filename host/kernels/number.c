/* SPDX-License-Identifier: MIT */
#include "kernels/number.h"

#include <math.h>

/* By hand, as not every compiler has a half type: 1 bit of sign, 5 of exponent, 10 of fraction. */
float rpi_from_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 0    ? ldexp(fraction, -24)
                   : exponent == 31 ? (fraction ? NAN : INFINITY)
                                    : ldexp(1024 + fraction, exponent - 25);
    return (float)(bits & 0x8000 ? -value : value);
}

/* To the nearest, ties to even: what lies between two halves is counted in the lower one's steps.
 */
uint16_t rpi_to_half(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs((double)value);
    int exponent;
    if (isnan(value))
        return sign | 0x7e00;
    if (size >= 65520)
        return sign | 0x7c00;
    if (size < 0x1p-14)
        return (uint16_t)(sign | (unsigned)nearbyint(ldexp(size, 24)));
    frexp(size, &exponent); /* size = [0.5, 1) * 2^exponent */
    unsigned steps = (unsigned)nearbyint(ldexp(size, 11 - exponent)); /* 1024 to 2048 */
    return (uint16_t)(sign | (((unsigned)(exponent + 14) << 10) + steps - 1024));
}

/* X(type, C's type) of all that C has. */
#define C_TYPES(X)                                                                                 \
    X(RPI_U8, uint8_t)                                                                             \
    X(RPI_I8, int8_t)                                                                              \
    X(RPI_I16, int16_t)                                                                            \
    X(RPI_I32, int32_t)                                                                            \
    X(RPI_I64, int64_t)                                                                            \
    X(RPI_FLOAT, float)                                                                            \
    X(RPI_DOUBLE, double)

size_t rpi_type_bytes(int type)
{
    switch (type) {
#define X(number, c)                                                                               \
    case number:                                                                                   \
        return sizeof(c);
        C_TYPES(X)
#undef X
    case RPI_BOOL:
        return 1;
    case RPI_HALF:
    case RPI_BF16:
        return 2;
    default:
        return 0;
    }
}

int rpi_type_is_whole(int type)
{
    return (type >= RPI_U8 && type <= RPI_I64) || type == RPI_BOOL;
}

double rpi_load(const void *at, int type)
{
    switch (type) {
#define X(number, c)                                                                               \
    case number:                                                                                   \
        return (double)*(const c *)at;
        C_TYPES(X)
#undef X
    case RPI_BOOL:
        return *(const uint8_t *)at != 0;
    case RPI_HALF:
        return rpi_from_half(*(const uint16_t *)at);
    case RPI_BF16:
        return rpi_from_bf16(*(const uint16_t *)at);
    default:
        return 0;
    }
}

/* As C's conversions where those are defined. */
static int64_t to_whole(double value)
{
    return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
}

int64_t rpi_load_whole(const void *at, int type)
{
    switch (type) {
    case RPI_U8:
        return *(const uint8_t *)at;
    case RPI_I8:
        return *(const int8_t *)at;
    case RPI_I16:
        return *(const int16_t *)at;
    case RPI_I32:
        return *(const int32_t *)at;
    case RPI_I64:
        return *(const int64_t *)at;
    case RPI_BOOL:
        return *(const uint8_t *)at != 0;
    default:
        return to_whole(rpi_load(at, type));
    }
}

void rpi_store_whole(void *at, int type, int64_t value)
{
    switch (type) {
    case RPI_U8:
        *(uint8_t *)at = (uint8_t)value;
        break;
    case RPI_I8:
        *(int8_t *)at = (int8_t)value;
        break;
    case RPI_I16:
        *(int16_t *)at = (int16_t)value;
        break;
    case RPI_I32:
        *(int32_t *)at = (int32_t)value;
        break;
    case RPI_I64:
        *(int64_t *)at = value;
        break;
    case RPI_BOOL:
        *(uint8_t *)at = value != 0;
        break;
    default:
        rpi_store(at, type, (double)value);
    }
}

void rpi_store(void *at, int type, double value)
{
    switch (type) {
    case RPI_FLOAT:
        *(float *)at = (float)value;
        break;
    case RPI_DOUBLE:
        *(double *)at = value;
        break;
    case RPI_HALF:
        *(uint16_t *)at = rpi_to_half((float)value);
        break;
    case RPI_BF16:
        *(uint16_t *)at = rpi_to_bf16((float)value);
        break;
    case RPI_BOOL:
        *(uint8_t *)at = value != 0;
        break;
    default:
        rpi_store_whole(at, type, to_whole(value));
    }
}

double rpi_round_to(double value, int type)
{
    uint64_t word;
    if (type == RPI_DOUBLE || !rpi_type_bytes(type))
        return value;
    rpi_store(&word, type, value);
    return rpi_load(&word, type);
}
