/* SPDX-License-Identifier: MIT
 *
 * Modules, functions and kernel launches in both parameter forms.
 */
#include "conformance.h"

#include "kernels/kernels.h"

#include <stddef.h>

void case_module_missing_names(struct rpt *t)
{
    CUfunction function;
    CUdeviceptr address;
    size_t bytes;
    EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, t->module, "rpt_missing"));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&address, &bytes, t->module, "rpt_missing"));
}

void case_module_bad_image_undocumented(struct rpt *t)
{
    static const char text[64] = "this is neither PTX nor a kernel image";
    CUmodule module;
    REFUSED(cuModuleLoadData(&module, text));
}

void case_module_loaded_twice(struct rpt *t)
{
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, rpt_kernel_image(t->d)));
    OK(cuModuleGetFunction(&function, module, "rpt_mix"));
    REQUIRE(function != rpt_function(t, "rpt_mix"));
    OK(cuModuleUnload(module));
}

void case_function_name(struct rpt *t)
{
    const char *name = NULL;
    if (!t->d->cuFuncGetName)
        rpt_skip(t, "the driver lacks cuFuncGetName");
    OK(cuFuncGetName(&name, rpt_function(t, "rpt_saxpy")));
    REQUIRE(name && !strcmp(name, "rpt_saxpy"));
}

void case_function_attributes(struct rpt *t)
{
    int value = 0;
    CUfunction function = rpt_function(t, "rpt_fill");
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    REQUIRE(value >= 64 && value <= 1024);
    OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
    EQUAL(value, 4096);
}

static void expect_params(struct rpt *t, const char *name, size_t count, const size_t (*wants)[2])
{
    CUfunction function = rpt_function(t, name);
    size_t offset = 0, bytes = 0;
    for (size_t i = 0; i < count; i++) {
        OK(cuFuncGetParamInfo(function, i, &offset, &bytes));
        EQUAL(offset, wants[i][0]);
        EQUAL(bytes, wants[i][1]);
    }
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(function, count, &offset, &bytes));
}

void case_function_param_info(struct rpt *t)
{
    if (!t->d->cuFuncGetParamInfo)
        rpt_skip(t, "the driver lacks cuFuncGetParamInfo");
    expect_params(t, "rpt_fill", 3, (const size_t[][2]){{0, 8}, {8, 4}, {12, 4}});
    expect_params(t, "rpt_slow", 3, (const size_t[][2]){{0, 8}, {8, 4}, {16, 8}});
    expect_params(t, "rpt_padded", 1, (const size_t[][2]){{0, sizeof(struct rpt_padded_param)}});
    expect_params(t, "rpt_nothing", 0, NULL);
}

void case_launch_with_an_array_of_parameters(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 400);
    CUstream stream = rpt_stream(t);
    rpt_fill(t, stream, to, 2.5f, 99);
    REQUIRE(rpt_float(t, to + 4 * 98) == 2.5f);
    REQUIRE(rpt_float(t, to + 4 * 99) == 0.0f);
}

void case_launch_with_packed_parameters(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 400);
    CUstream stream = rpt_stream(t);
    struct {
        CUdeviceptr to;
        float value;
        uint32_t count;
    } packed = {to, 3.5f, 99};
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(rpt_function(t, "rpt_fill"), 1, 1, 1, 64, 1, 1, 0, stream, NULL, extra));
    REQUIRE(rpt_float(t, to + 4 * 98) == 3.5f);
    REQUIRE(rpt_float(t, to + 4 * 99) == 0.0f);
}

void case_launch_with_both_forms_refused(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 4);
    uint32_t value = 3;
    CUstream stream = rpt_stream(t);
    void *params[] = {&to, &value};
    struct {
        CUdeviceptr to;
        uint32_t value;
    } packed = {to, value};
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuLaunchKernel(rpt_function(t, "rpt_mix"), 1, 1, 1, 1, 1, 1, 0, stream, params, extra));
    EQUAL(rpt_word(t, to), 0);
}

void case_launch_with_a_structure(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 64);
    CUstream stream = rpt_stream(t);
    struct rpt_padded_param param = {.tag = 200, .to = (uint32_t *)(uintptr_t)to, .index = 5};
    void *params[] = {&param};
    CUfunction function = rpt_function(t, "rpt_padded");
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    EQUAL(rpt_word(t, to + 20), 200);
    param.index = 6;
    param.tag = 201;
    size_t bytes = sizeof param;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &param, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, extra));
    EQUAL(rpt_word(t, to + 24), 201);
}

void case_launch_without_parameters(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    OK(cuLaunchKernel(rpt_function(t, "rpt_nothing"), 3, 2, 1, 32, 1, 1, 0, stream, NULL, NULL));
    OK(cuStreamSynchronize(stream));
}

void case_launch_shape(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 28);
    CUstream stream = rpt_stream(t);
    void *params[] = {&to};
    const uint32_t expected[] = {5, 4, 3, 8, 2, 2, 1024};
    OK(cuLaunchKernel(rpt_function(t, "rpt_shape"), 5, 4, 3, 8, 2, 2, 1024, stream, params, NULL));
    for (unsigned i = 0; i < 7; i++)
        EQUAL(rpt_word(t, to + 4 * i), expected[i]);
}

void case_launch_bad_shapes_refused(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUfunction function = rpt_function(t, "rpt_nothing");
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuLaunchKernel(function, 1, 1, 1, 1, 0, 1, 0, stream, NULL, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, stream, NULL, NULL));
    rpt_usable(t, stream);
}

/* Parameters are copied when the launch is called. */
void case_launch_copies_parameters(struct rpt *t)
{
    CUdeviceptr word = rpt_memory(t, 8), to = word;
    uint32_t value = 10;
    CUstream stream = rpt_stream(t);
    void *params[] = {&to, &value};
    rpt_hold(t, stream);
    OK(cuLaunchKernel(rpt_function(t, "rpt_mix"), 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    to = word + 4;
    value = 11;
    rpt_open(t);
    EQUAL(rpt_word(t, word), 10);
    EQUAL(rpt_word(t, word + 4), 0);
}

void case_launch_ex(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 28);
    void *params[] = {&to};
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                     .value = {.cooperative = 1}};
    CUlaunchConfig config = {.gridDimX = 2,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = rpt_stream(t)};
    OK(cuLaunchKernelEx(&config, rpt_function(t, "rpt_shape"), params, NULL));
    EQUAL(rpt_word(t, to), 2);
    config.gridDimX = 4;
    config.attrs = &cooperative;
    config.numAttrs = 1;
    OK(cuLaunchKernelEx(&config, rpt_function(t, "rpt_shape"), params, NULL));
    EQUAL(rpt_word(t, to), 4);
}

/* What is computed is rounded as on every other driver: a * x + y, product rounded first. */
void case_kernel_arithmetic(struct rpt *t)
{
    CUdeviceptr x = rpt_memory(t, 4), y = rpt_memory(t, 4);
    CUstream stream = rpt_stream(t);
    float a = 1.1f, three = 3.3f, start = 0.7f;
    uint32_t one = 1;
    void *params[] = {&y, &x, &a, &one};
    OK(cuMemcpyHtoD(x, &three, 4));
    OK(cuMemcpyHtoD(y, &start, 4));
    OK(cuCtxSynchronize());
    OK(cuLaunchKernel(rpt_function(t, "rpt_saxpy"), 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    volatile float product = a * three;
    volatile float sum = product + start;
    REQUIRE(rpt_float(t, y) == sum);
}
