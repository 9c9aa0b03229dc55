/* SPDX-License-Identifier: MIT
 *
 * Device and pinned memory, copies and fills.
 */
#include "conformance.h"

void case_memory_allocate(struct rpt *t)
{
    size_t free_bytes = 0, total_bytes = 0;
    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    REQUIRE(total_bytes > 0 && free_bytes <= total_bytes);
    CUdeviceptr a = rpt_memory(t, 100), b = rpt_memory(t, 1 << 20);
    REQUIRE(a && b && a % 256 == 0 && b % 256 == 0);
    REQUIRE(a + 100 <= b || b + (1 << 20) <= a);
}

void case_memory_allocate_refusals(struct rpt *t)
{
    CUdeviceptr address;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&address, 0));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&address, (size_t)1 << 50));
    rpt_memory(t, 4);
}

void case_memory_free_refusals(struct rpt *t)
{
    CUdeviceptr address = rpt_memory(t, 4096);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(address + 256));
    rpt_forget(t, TRACKED_MEMORY, address);
    OK(cuMemFree(address));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(address));
}

void case_memory_copies(struct rpt *t)
{
    uint32_t in[64], out[64] = {0};
    for (uint32_t i = 0; i < 64; i++)
        in[i] = i * 2654435761u;
    CUdeviceptr a = rpt_memory(t, sizeof in), b = rpt_memory(t, sizeof in);
    OK(cuMemcpyHtoD(a, in, sizeof in));
    OK(cuMemcpyDtoD(b, a, sizeof in));
    OK(cuMemcpyDtoH(out, b, sizeof in));
    REQUIRE(!memcmp(in, out, sizeof in));
    OK(cuMemcpyHtoD(a + 4, in, 4));
    EQUAL(rpt_word(t, a + 4), in[0]);
    EQUAL(rpt_word(t, a + 8), in[2]);
}

/* cuMemcpy finds out by itself where an address lies. */
void case_memory_copy_by_address(struct rpt *t)
{
    uint32_t *host = rpt_pinned(t, 8);
    CUdeviceptr device = rpt_memory(t, 8);
    host[0] = 41;
    OK(cuMemcpy(device, HANDLE_OF(host), 4));
    OK(cuMemcpy(HANDLE_OF(host + 1), device, 4));
    OK(cuCtxSynchronize());
    EQUAL(host[1], 41);
}

void case_memory_copies_on_a_stream(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    uint32_t *host = rpt_pinned(t, 16);
    CUdeviceptr a = rpt_memory(t, 16), b = rpt_memory(t, 16);
    host[0] = 1234;
    OK(cuMemcpyHtoDAsync(a, host, 4, stream));
    OK(cuMemcpyDtoDAsync(b, a, 4, stream));
    OK(cuMemcpyDtoHAsync(host + 1, b, 4, stream));
    OK(cuMemcpyAsync(HANDLE_OF(host + 2), b, 4, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(host[1], 1234);
    EQUAL(host[2], 1234);
}

void case_memory_fills(struct rpt *t)
{
    CUdeviceptr a = rpt_memory(t, 64);
    CUstream stream = rpt_stream(t);
    OK(cuMemsetD8(a, 0x11, 4));
    OK(cuMemsetD32(a + 4, 0x22334455, 1));
    OK(cuCtxSynchronize());
    OK(cuMemsetD8Async(a + 8, 0x66, 4, stream));
    OK(cuMemsetD16Async(a + 12, 0x7788, 2, stream));
    OK(cuMemsetD32Async(a + 16, 0x99aabbcc, 2, stream));
    OK(cuStreamSynchronize(stream));
    const uint32_t expected[] = {0x11111111, 0x22334455, 0x66666666, 0x77887788,
                                 0x99aabbcc, 0x99aabbcc, 0};
    for (unsigned i = 0; i < 7; i++)
        EQUAL(rpt_word(t, a + 4 * i), expected[i]);
}

void case_memory_fill_2d(struct rpt *t)
{
    CUdeviceptr a = rpt_memory(t, 64);
    CUstream stream = rpt_stream(t);
    OK(cuMemsetD2D8Async(a, 16, 0xff, 4, 3, stream));
    OK(cuStreamSynchronize(stream));
    for (unsigned row = 0; row < 4; row++) {
        EQUAL(rpt_word(t, a + 16 * row), row < 3 ? 0xffffffff : 0);
        EQUAL(rpt_word(t, a + 16 * row + 4), 0);
    }
}

void case_memory_copy_2d(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    uint32_t *host = rpt_pinned(t, 64);
    CUdeviceptr device = rpt_memory(t, 256);
    for (uint32_t i = 0; i < 16; i++)
        host[i] = i;
    /* A 2 by 2 block of a 4 by 4 matrix, into rows 64 bytes apart. */
    CUDA_MEMCPY2D copy = {.srcXInBytes = 4,
                          .srcY = 1,
                          .srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .srcPitch = 16,
                          .dstXInBytes = 8,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = device,
                          .dstPitch = 64,
                          .WidthInBytes = 8,
                          .Height = 2};
    OK(cuMemcpy2DAsync(&copy, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(rpt_word(t, device + 8), 5);
    EQUAL(rpt_word(t, device + 12), 6);
    EQUAL(rpt_word(t, device + 72), 9);
    EQUAL(rpt_word(t, device + 76), 10);
    EQUAL(rpt_word(t, device + 4), 0);
    EQUAL(rpt_word(t, device + 16), 0);
}

void case_memory_copy_3d(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr from = rpt_memory(t, 256), to = rpt_memory(t, 256);
    uint32_t words[64];
    for (uint32_t i = 0; i < 64; i++)
        words[i] = i;
    OK(cuMemcpyHtoD(from, words, sizeof words));
    OK(cuCtxSynchronize());
    /* From 4 slices of 4 rows of 4 words, the corner of 2 by 2 by 2. */
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = from,
                          .srcPitch = 16,
                          .srcHeight = 4,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = to,
                          .dstPitch = 8,
                          .dstHeight = 2,
                          .WidthInBytes = 8,
                          .Height = 2,
                          .Depth = 2};
    OK(cuMemcpy3DAsync(&copy, stream));
    OK(cuStreamSynchronize(stream));
    const uint32_t expected[] = {0, 1, 4, 5, 16, 17, 20, 21, 0};
    for (unsigned i = 0; i < 9; i++)
        EQUAL(rpt_word(t, to + 4 * i), expected[i]);
}

void case_memory_copy_of_nothing(struct rpt *t)
{
    CUdeviceptr a = rpt_memory(t, 4);
    uint32_t word = 5;
    OK(cuMemcpyHtoD(a, &word, 0));
    EQUAL(rpt_word(t, a), 0);
}

void case_pointer_attributes(struct rpt *t)
{
    CUdeviceptr address = rpt_memory(t, 4096), start = 0;
    size_t bytes = 0;
    unsigned type = 0;
    CUcontext context = NULL;
    int ordinal = -1;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 100));
    EQUAL(type, CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 100));
    EQUAL(start, address);
    OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 100));
    EQUAL(bytes, 4096);
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    REQUIRE(context == t->context);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    EQUAL(ordinal, 0);
}

void case_pointer_attributes_of_host_memory(struct rpt *t)
{
    void *pinned = rpt_pinned(t, 64);
    unsigned type = 0;
    int on_the_stack = 0;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, HANDLE_OF(pinned)));
    EQUAL(type, CU_MEMORYTYPE_HOST);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                           HANDLE_OF(&on_the_stack)));
}
