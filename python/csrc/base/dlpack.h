/* SPDX-License-Identifier: MIT
 *
 * The part of DLPack 1.x that is used: how to look at a tensor, and at PyTorch's current stream,
 * without going through Python. Layouts are those of the standard (dlpack.h, the C exchange API),
 * which PyTorch offers as torch.Tensor.__dlpack_c_exchange_api__.
 */
#ifndef REPRISE_PYTHON_DLPACK_H
#define REPRISE_PYTHON_DLPACK_H

#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2 };
enum { DL_FLOAT = 2, DL_COMPLEX = 5 };

struct dl_device {
    int32_t type, ordinal;
};

struct dl_type {
    uint8_t code, bits;
    uint16_t lanes;
};

/* shape and strides, in elements, belong to the tensor that was looked at. */
struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t rank;
    struct dl_type type;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct dl_exchange {
    struct {
        uint32_t major, minor;
        const void *previous;
    } header;
    void *allocate, *managed_from_object, *managed_to_object; /* not used */
    int (*look)(void *object, struct dl_tensor *out_tensor);  /* 0, or -1 and an exception */
    int (*stream)(int32_t device_type, int32_t ordinal, void **out_stream);
};

#endif
