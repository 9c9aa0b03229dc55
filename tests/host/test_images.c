/* SPDX-License-Identifier: MIT
 *
 * Images in NVIDIA's formats, made here byte by byte, and kernels of PyTorch that are found by
 * their names and run. What a GPU gives for the same seed is known for the random numbers.
 */
#include "graph/ground/copy_kernel.h"
#include "kernels/kernel.h"
#include "libcuda/image.h"

#include <elf.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>
#include <zstd.h>

/* ---- Cubins and fat binaries ---------------------------------------------------------------- */

/* One kernel, "adder", of a pointer at 0, a float at 8 and 24 bytes at 16, which are told in
 * another order, and of at most 256 threads. */
struct cubin {
    Elf64_Ehdr header;
    unsigned char info[64];
    char names[32];
    Elf64_Shdr sections[3];
};

static unsigned char *add_param(unsigned char *at, uint16_t ordinal, uint16_t offset,
                                uint32_t bytes)
{
    unsigned char param[16] = {4, 0x17, 12, 0};
    uint32_t flags = bytes << 18 | 0x1f000;
    memcpy(param + 8, &ordinal, 2);
    memcpy(param + 10, &offset, 2);
    memcpy(param + 12, &flags, 4);
    memcpy(at, param, sizeof param);
    return at + sizeof param;
}

static struct cubin make_cubin(void)
{
    static const char names[] = "\0.nv.info.adder\0.names";
    static const unsigned char threads[16] = {4, 5, 12, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1};
    struct cubin cubin;
    memset(&cubin, 0, sizeof cubin);
    memcpy(cubin.header.e_ident, ELFMAG, SELFMAG);
    cubin.header.e_ident[EI_CLASS] = ELFCLASS64;
    cubin.header.e_shoff = offsetof(struct cubin, sections);
    cubin.header.e_shentsize = sizeof(Elf64_Shdr);
    cubin.header.e_shnum = 3;
    cubin.header.e_shstrndx = 2;
    unsigned char *at = add_param(cubin.info, 2, 16, 24);
    at = add_param(at, 0, 0, 8);
    at = add_param(at, 1, 8, 4);
    memcpy(at, threads, sizeof threads);
    memcpy(cubin.names, names, sizeof names);
    cubin.sections[1] = (Elf64_Shdr){
        .sh_name = 1, .sh_offset = offsetof(struct cubin, info), .sh_size = sizeof cubin.info};
    cubin.sections[2] = (Elf64_Shdr){
        .sh_name = 16, .sh_offset = offsetof(struct cubin, names), .sh_size = sizeof names};
    return cubin;
}

static void check_adder(const void *code)
{
    static const struct rp_host_param want[] = {{0, 8}, {8, 4}, {16, 24}};
    const struct rp_host_image *image;
    assert_int_equal(rpi_image_read(code, &image), CUDA_SUCCESS);
    assert_int_equal(image->kernel_count, 1);
    assert_string_equal(image->kernels[0].name, "adder");
    assert_int_equal(image->kernels[0].param_count, 3);
    assert_memory_equal(image->kernels[0].params, want, sizeof want);
    assert_int_equal(image->kernels[0].max_threads, 256);
    assert_true(rpi_image_does_nothing(&image->kernels[0]));
}

static void test_cubin(void **state)
{
    (void)state;
    struct cubin cubin = make_cubin();
    check_adder(&cubin);
}

static void test_broken_cubins(void **state)
{
    (void)state;
    const struct rp_host_image *image;
    struct cubin cubin = make_cubin();
    cubin.sections[1].sh_size = 60; /* in the middle of an attribute */
    assert_int_equal(rpi_image_read(&cubin, &image), CUDA_ERROR_INVALID_IMAGE);
    cubin = make_cubin();
    cubin.sections[1].sh_offset = sizeof cubin;
    assert_int_equal(rpi_image_read(&cubin, &image), CUDA_ERROR_INVALID_IMAGE);
    cubin = make_cubin();
    cubin.header.e_shstrndx = 3;
    assert_int_equal(rpi_image_read(&cubin, &image), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(rpi_image_read("neither", &image), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(rpi_image_read(NULL, &image), CUDA_ERROR_INVALID_VALUE);
}

/* Adds an entry of the architecture; compressed where `packed` is its size. */
static unsigned char *add_entry(unsigned char *at, uint16_t kind, uint32_t architecture,
                                const void *payload, size_t bytes, uint32_t packed, size_t unpacked)
{
    uint32_t header = 64;
    uint64_t padded = (bytes + 7) / 8 * 8, flags = packed ? 0x8000 : 0;
    memset(at, 0, header + padded);
    memcpy(at, &kind, 2);
    memcpy(at + 4, &header, 4);
    memcpy(at + 8, &padded, 8);
    memcpy(at + 16, &packed, 4);
    memcpy(at + 28, &architecture, 4);
    memcpy(at + 40, &flags, 8);
    memcpy(at + 56, &unpacked, 8);
    memcpy(at + header, payload, bytes);
    return at + header + padded;
}

static void finish_container(unsigned char *container, const unsigned char *end)
{
    uint32_t magic = 0xba55ed50;
    uint16_t version = 1, header = 16;
    uint64_t bytes = (uint64_t)(end - container) - header;
    memcpy(container, &magic, 4);
    memcpy(container + 4, &version, 2);
    memcpy(container + 6, &header, 2);
    memcpy(container + 8, &bytes, 8);
}

static void test_fat_binary(void **state)
{
    (void)state;
    static unsigned char container[4096];
    struct cubin cubin = make_cubin(), other = make_cubin();
    memcpy(other.names + 10, "wrong", 5);
    unsigned char *end = add_entry(container + 16, 2, 80, &other, sizeof other, 0, 0);
    end = add_entry(end, 1, 90, "PTX of no interest", 18, 0, 0);
    end = add_entry(end, 2, 90, &cubin, sizeof cubin, 0, 0);
    end = add_entry(end, 2, 100, &other, sizeof other, 0, 0);
    finish_container(container, end);
    check_adder(container);
    const struct {
        uint32_t magic, version;
        const void *container, *unused;
    } wrapper = {0x466243b1, 1, container, NULL};
    check_adder(&wrapper);
}

static void test_compressed(void **state)
{
    (void)state;
    static unsigned char container[4096], packed[2048];
    struct cubin cubin = make_cubin();
    size_t bytes = ZSTD_compress(packed, sizeof packed, &cubin, sizeof cubin, 1);
    assert_false(ZSTD_isError(bytes));
    unsigned char *end =
        add_entry(container + 16, 2, 90, packed, bytes, (uint32_t)bytes, sizeof cubin);
    finish_container(container, end);
    check_adder(container);
    const struct rp_host_image *image;
    container[16 + 64] ^= 0xff;
    assert_int_equal(rpi_image_read(container, &image), CUDA_ERROR_INVALID_IMAGE);
}

static unsigned char *put_length(unsigned char *to, size_t length)
{
    if (length < 15)
        return to;
    for (length -= 15; length >= 255; length -= 255)
        *to++ = 255;
    *to++ = (unsigned char)length;
    return to;
}

/* An LZ4 block in which bytes that repeat the one before are matches; the bytes packed. */
static size_t pack_lz4(const unsigned char *from, size_t bytes, unsigned char *to)
{
    enum { LEAST_MATCH = 4, LITERALS_AT_THE_END = 5 };
    unsigned char *start = to;
    for (size_t at = 0, next, match; at < bytes; at = next + match) {
        for (next = at, match = 0; next < bytes && match < LEAST_MATCH; next += match == 0) {
            size_t room =
                bytes > next + LITERALS_AT_THE_END ? bytes - next - LITERALS_AT_THE_END : 0;
            for (match = 0; next > at && match < room && from[next + match] == from[next - 1];)
                match++;
            match = match < LEAST_MATCH ? 0 : match;
        }
        size_t literals = next - at, more = match ? match - LEAST_MATCH : 0;
        *to++ = (unsigned char)((literals < 15 ? literals : 15) << 4 | (more < 15 ? more : 15));
        to = put_length(to, literals);
        memcpy(to, from + at, literals);
        to += literals;
        if (match) {
            *to++ = 1; /* distance */
            *to++ = 0;
            to = put_length(to, more);
        }
    }
    return (size_t)(to - start);
}

/* What nvcc writes by default before CUDA 13. */
static void test_compressed_as_lz4(void **state)
{
    (void)state;
    static unsigned char container[4096], packed[2048];
    const uint64_t is_lz4 = 0x2000;
    struct cubin cubin = make_cubin();
    size_t bytes = pack_lz4((const unsigned char *)&cubin, sizeof cubin, packed);
    assert_true(bytes < sizeof cubin);
    for (int broken = 0; broken < 3; broken++) {
        /* Whole; with a byte too few; with more literals than there are bytes. */
        uint32_t given = (uint32_t)bytes - (broken == 1);
        unsigned char *end = add_entry(container + 16, 2, 90, packed, bytes, given, sizeof cubin);
        memcpy(container + 16 + 40, &is_lz4, sizeof is_lz4);
        finish_container(container, end);
        const struct rp_host_image *image;
        if (broken == 2)
            memset(container + 16 + 64, 0xff, 3); /* 15 + 255 + 255 literals and more */
        if (broken)
            assert_int_equal(rpi_image_read(container, &image), CUDA_ERROR_INVALID_IMAGE);
        else
            check_adder(container);
    }
}

static void test_no_code_for_the_device(void **state)
{
    (void)state;
    static unsigned char container[4096];
    struct cubin cubin = make_cubin();
    const struct rp_host_image *image;
    finish_container(container, add_entry(container + 16, 2, 80, &cubin, sizeof cubin, 0, 0));
    assert_int_equal(rpi_image_read(container, &image), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

static void test_ptx(void **state)
{
    (void)state;
    const struct rp_host_image *image;
    /* The library's own copy kernel: its PTX has the C function's parameters, and is run as C. */
    assert_int_equal(rpi_image_read(rpi_copy_ptx, &image), CUDA_SUCCESS);
    assert_int_equal(image->kernel_count, rpi_copy_host_image.kernel_count);
    for (uint32_t k = 0; k < image->kernel_count; k++) {
        const struct rp_host_kernel *read = &image->kernels[k],
                                    *own = &rpi_copy_host_image.kernels[k];
        assert_string_equal(read->name, own->name);
        assert_int_equal(read->param_count, own->param_count);
        assert_memory_equal(read->params, own->params, own->param_count * sizeof *own->params);
        assert_ptr_equal(read->run, own->run);
    }
    assert_int_equal(rpi_image_read(".version 8.0\n.visible .entry f(\n.param .u8 f_0,\n"
                                    ".param .align 16 .b8 f_1[20]\n)\n{\n}\n.entry g()\n{\n}\n",
                                    &image),
                     CUDA_SUCCESS);
    assert_int_equal(image->kernel_count, 2);
    assert_int_equal(image->kernels[0].params[1].offset, 16);
    assert_int_equal(image->kernels[0].params[1].bytes, 20);
    assert_int_equal(image->kernels[1].param_count, 0);
    assert_int_equal(rpi_image_read(".version 8.0\n", &image), CUDA_ERROR_INVALID_PTX);
}

/* ---- Kernels -------------------------------------------------------------------------------- */

/* A kernel that is found by its name and by its parameters' sizes. */
struct found {
    struct rp_host_kernel kernel;
    struct rpi_kernel *details;
};

static struct found find(const char *name, const uint32_t *bytes, uint32_t count)
{
    struct rpi_kernel *details = calloc(1, sizeof *details + count * sizeof *details->params);
    assert_non_null(details);
    uint32_t offset = 0;
    for (uint32_t i = 0; i < count; i++) {
        details->params[i] = (struct rp_host_param){offset, bytes[i]};
        offset += (bytes[i] + 7) / 8 * 8;
    }
    rpi_run run = rpi_kernel_find(name, details, count);
    return (struct found){{name, run, NULL, details->params, count, 0}, details};
}

static void run(const struct found *found, unsigned blocks, unsigned threads, void *const *params)
{
    struct rp_host_launch launch = {.grid = {blocks, 1, 1},
                                    .block = {threads, 1, 1},
                                    .cluster = {1, 1, 1},
                                    .params = params,
                                    .kernel = &found->kernel};
    assert_non_null(found->kernel.run);
    found->kernel.run(&launch);
    free(found->details);
}

static void test_elementwise(void **state)
{
    (void)state;
    enum { COUNT = 600 };
    static float out[COUNT], a[COUNT], b[COUNT];
    struct found add = find("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_"
                            "addIfEESt5arrayIPcLm3EEEEviT0_T1_",
                            (uint32_t[]){4, 4, 24}, 3);
    for (int i = 0; i < COUNT; i++) {
        a[i] = (float)i;
        b[i] = 1;
    }
    int32_t count = COUNT;
    float alpha = 0.5f;
    void *pointers[] = {out, a, b};
    run(&add, 1, 128, (void *[]){&count, &alpha, pointers});
    for (int i = 0; i < COUNT; i++)
        assert_true(out[i] == (float)i + 0.5f);
}

static void test_strided(void **state)
{
    (void)state;
    /* A column of a matrix of 4 rows of 3: {offset calculator of 1, the pointer, the value, unused}
     */
    static float matrix[12];
    struct {
        uint32_t dims, sizes[75], strides[25];
        float *data;
        float value;
        void *unused;
    } closure = {1, {4, 0, 0}, {12}, matrix + 1, 7, NULL};
    struct found fill = find("_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_"
                             "nocastINS0_11FillFunctorIfEEEEvRNS_18TensorIteratorBaseERKT_EUliE_"
                             "EEviT1_",
                             (uint32_t[]){4, sizeof closure}, 2);
    int32_t count = 4;
    assert_int_equal(sizeof closure, 432);
    run(&fill, 1, 128, (void *[]){&count, &closure});
    for (int i = 0; i < 12; i++)
        assert_true(matrix[i] == (i % 3 == 1 ? 7 : 0));
}

static void test_random(void **state)
{
    (void)state;
    /* What torch.manual_seed(0); torch.rand(3, device="cuda") gives. */
    static const float want[] = {0.3990f, 0.5167f, 0.0249f};
    float out[3] = {0};
    int64_t count = 3;
    uint64_t philox[4] = {0};
    char draw = 0;
    struct {
        float *out;
        int32_t stride;
        float range, from, to;
    } closure = {out, 4, 1, 0, 1};
    struct found rand = find(
        "_ZN2at6native57_GLOBAL__N__f91d43e4_22_DistributionUniform_cu_f4e0e5f243distribution_"
        "elementwise_grid_stride_kernelIfLi4EZNS0_9templates4cuda21uniform_and_transformIffPNS_"
        "17CUDAGeneratorImplEZZZNS4_14uniform_kernelIS7_EE",
        (uint32_t[]){8, 32, 1, sizeof closure}, 4);
    run(&rand, 1, 256, (void *[]){&count, philox, &draw, &closure});
    for (int i = 0; i < 3; i++)
        assert_true(fabsf(out[i] - want[i]) < 5e-5f);
}

static void test_unknown_layouts_do_nothing(void **state)
{
    (void)state;
    static const char NAME[] = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_"
                               "addIfEESt5arrayIPcLm3EEEEviT0_T1_";
    struct found wider = find(NAME, (uint32_t[]){4, 8, 24}, 3);
    struct found more = find(NAME, (uint32_t[]){4, 4, 24, 8}, 4);
    assert_null(wider.kernel.run);
    assert_null(more.kernel.run);
    free(wider.details);
    free(more.details);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cubin),
        cmocka_unit_test(test_broken_cubins),
        cmocka_unit_test(test_fat_binary),
        cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_compressed_as_lz4),
        cmocka_unit_test(test_no_code_for_the_device),
        cmocka_unit_test(test_ptx),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_strided),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_unknown_layouts_do_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
