/* SPDX-License-Identifier: MIT
 *
 * Kernels of PTX and their parameters:
 *
 *     .visible .entry NAME(
 *         .param .u64 NAME_param_0,
 *         .param .align 8 .b8 NAME_param_1[32]
 *     )
 *
 * A parameter lies at the next multiple of its alignment.
 */
#include "libcuda/image.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARAMS = 256, MOST_NAME = 1024 };

/* The bits that a type's name ends with: .u64, .b8, .f32, .pred is none. */
static uint32_t type_bytes(const char *type)
{
    while (*type && !isdigit((unsigned char)*type))
        type++;
    return (uint32_t)strtoul(type, NULL, 10) / 8;
}

/* One parameter's text, up to its comma; adds it behind those before. */
static bool read_param(char *text, struct rp_host_param *params, uint32_t *count)
{
    uint32_t align = 0, bytes = 0;
    const char *extent = strchr(text, '[');
    uint32_t elements = extent ? (uint32_t)strtoul(extent + 1, NULL, 10) : 1;
    char *rest = NULL;
    for (char *word = strtok_r(text, " \t\r\n", &rest); word;
         word = strtok_r(NULL, " \t\r\n", &rest)) {
        if (strcmp(word, ".align") == 0) {
            word = strtok_r(NULL, " \t\r\n", &rest);
            align = word ? (uint32_t)strtoul(word, NULL, 10) : 0;
        } else if (word[0] == '.' && strcmp(word, ".param") != 0 && strcmp(word, ".ptr") != 0 &&
                   strcmp(word, ".global") != 0 && !bytes) {
            bytes = type_bytes(word);
        }
    }
    if (!bytes || !elements || *count == MOST_PARAMS)
        return false;
    if (!align)
        align = bytes;
    const struct rp_host_param *last = *count ? &params[*count - 1] : NULL;
    uint32_t end = last ? last->offset + last->bytes : 0;
    params[(*count)++] =
        (struct rp_host_param){(end + align - 1) / align * align, bytes * elements};
    return true;
}

/* What stands between the parentheses. */
static bool read_params(const char *from, const char *to, struct rp_host_param *params,
                        uint32_t *count)
{
    while (from < to) {
        const char *comma = memchr(from, ',', (size_t)(to - from));
        const char *end = comma ? comma : to;
        char text[MOST_NAME + 64];
        int length = snprintf(text, sizeof text, "%.*s", (int)(end - from), from);
        bool blank = strspn(text, " \t\r\n") == (size_t)length;
        if (length >= (int)sizeof text || (!blank && !read_param(text, params, count)))
            return false;
        from = end + 1;
    }
    return true;
}

CUresult rpi_image_add_ptx(struct rpi_image *image, const char *text)
{
    static const char ENTRY[] = ".entry";
    for (const char *at = strstr(text, ENTRY); at; at = strstr(at, ENTRY)) {
        at += sizeof ENTRY - 1;
        at += strspn(at, " \t\r\n");
        char name[MOST_NAME];
        size_t length = strcspn(at, " \t\r\n(");
        const char *open = at + length + strspn(at + length, " \t\r\n");
        const char *close = *open == '(' ? strchr(open, ')') : open;
        struct rp_host_param params[MOST_PARAMS];
        uint32_t count = 0;
        if (!length || length >= sizeof name || !close)
            return CUDA_ERROR_INVALID_PTX;
        memcpy(name, at, length);
        name[length] = 0;
        if (close > open && !read_params(open + 1, close, params, &count))
            return CUDA_ERROR_INVALID_PTX;
        if (!rpi_image_add(image, name, params, count, 0))
            return CUDA_ERROR_OUT_OF_MEMORY;
        at = close;
    }
    return image->image.kernel_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}
