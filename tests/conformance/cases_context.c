/* SPDX-License-Identifier: MIT
 *
 * The driver itself, devices, contexts and which of them is current on a thread.
 */
#include "conformance.h"

void case_init_again(struct rpt *t)
{
    OK(cuInit(0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuInit(1));
}

void case_driver_version(struct rpt *t)
{
    int version = 0;
    OK(cuDriverGetVersion(&version));
    EQUAL(version, (uint64_t)t->d->version);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuDriverGetVersion(NULL));
}

void case_error_texts(struct rpt *t)
{
    const char *text = NULL;
    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    REQUIRE(!strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"));
    OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    REQUIRE(text && text[0]);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
    REQUIRE(text == NULL);
}

/* Every code that the driver knows has the name that results.def gives it. */
void case_error_names_agree(struct rpt *t)
{
    for (int code = 0; code < 1000; code++) {
        const char *name = NULL;
        if (t->d->cuGetErrorName((CUresult)code, &name) != CUDA_SUCCESS)
            continue;
        REQUIRE(!strcmp(name, rpi_result_name((CUresult)code)) ||
                !strcmp(rpi_result_name((CUresult)code), "CUDA_ERROR_?"));
    }
}

void case_device_queries(struct rpt *t)
{
    int count = 0, value = 0;
    size_t bytes = 0;
    char name[64] = "";
    CUdevice device;
    OK(cuDeviceGetCount(&count));
    REQUIRE(count >= 1);
    OK(cuDeviceGetName(name, sizeof name, t->device));
    REQUIRE(name[0]);
    OK(cuDeviceTotalMem(&bytes, t->device));
    REQUIRE(bytes > 0);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, t->device));
    EQUAL(value, 32);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                            t->device));
    EQUAL(value, 1);
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, count));
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, -1));
}

struct context_calls {
    CUcontext current;
    CUdeviceptr address;
    CUstream stream;
    CUdevice device;
    CUresult get_current, alloc, stream_create, get_device, synchronize, pop;
};

static void call_without_context(struct rpt *t, void *data)
{
    struct context_calls *calls = data;
    calls->get_current = t->d->cuCtxGetCurrent(&calls->current);
    calls->alloc = t->d->cuMemAlloc(&calls->address, 4);
    calls->stream_create = t->d->cuStreamCreate(&calls->stream, 0);
    calls->get_device = t->d->cuCtxGetDevice(&calls->device);
    calls->synchronize = t->d->cuCtxSynchronize();
    calls->pop = t->d->cuCtxPopCurrent(&calls->current);
}

void case_no_current_context(struct rpt *t)
{
    struct context_calls calls = {.current = t->context};
    rpt_on_thread(t, call_without_context, &calls, false);
    EQUAL(calls.get_current, CUDA_SUCCESS);
    REQUIRE(calls.current == NULL);
    EQUAL(calls.alloc, CUDA_ERROR_INVALID_CONTEXT);
    EQUAL(calls.stream_create, CUDA_ERROR_INVALID_CONTEXT);
    EQUAL(calls.get_device, CUDA_ERROR_INVALID_CONTEXT);
    EQUAL(calls.synchronize, CUDA_ERROR_INVALID_CONTEXT);
    EQUAL(calls.pop, CUDA_ERROR_INVALID_CONTEXT);
}

void case_context_current_per_thread(struct rpt *t)
{
    struct context_calls calls = {0};
    CUcontext current = NULL;
    rpt_on_thread(t, call_without_context, &calls, true);
    EQUAL(calls.alloc, CUDA_SUCCESS);
    EQUAL(calls.stream_create, CUDA_SUCCESS);
    rpt_track(t, TRACKED_MEMORY, calls.address, 4);
    rpt_track(t, TRACKED_STREAM, HANDLE_OF(calls.stream), 0);
    EQUAL(calls.pop, CUDA_SUCCESS);
    REQUIRE(calls.current == t->context);
    OK(cuCtxGetCurrent(&current));
    REQUIRE(current == t->context);
}

void case_context_push_pop(struct rpt *t)
{
    CUcontext context = NULL;
    OK(cuCtxPushCurrent(t->context));
    OK(cuCtxGetCurrent(&context));
    REQUIRE(context == t->context);
    context = NULL;
    OK(cuCtxPopCurrent(&context));
    REQUIRE(context == t->context);
    OK(cuCtxGetCurrent(&context));
    REQUIRE(context == t->context);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCtxPushCurrent(NULL));
}

/* cuCtxSetCurrent(NULL) pops; on an empty stack it does nothing. */
static void set_null(struct rpt *t, void *data)
{
    CUcontext *seen = data;
    t->d->cuCtxPushCurrent(t->context);
    t->d->cuCtxPushCurrent(t->context);
    t->d->cuCtxSetCurrent(NULL);
    t->d->cuCtxGetCurrent(&seen[0]);
    t->d->cuCtxSetCurrent(NULL);
    t->d->cuCtxGetCurrent(&seen[1]);
    if (t->d->cuCtxSetCurrent(NULL) == CUDA_SUCCESS)
        t->d->cuCtxGetCurrent(&seen[2]);
}

void case_context_set_null_pops(struct rpt *t)
{
    CUcontext seen[3] = {NULL, t->context, t->context};
    rpt_on_thread(t, set_null, seen, false);
    REQUIRE(seen[0] == t->context);
    REQUIRE(seen[1] == NULL);
    REQUIRE(seen[2] == NULL);
}

void case_primary_context_is_counted(struct rpt *t)
{
    unsigned flags = 0;
    int active = 0;
    CUcontext again = NULL;
    OK(cuDevicePrimaryCtxGetState(t->device, &flags, &active));
    EQUAL(active, 1);
    OK(cuDevicePrimaryCtxRetain(&again, t->device));
    REQUIRE(again == t->context);
    OK(cuDevicePrimaryCtxRelease(t->device));
    OK(cuDevicePrimaryCtxGetState(t->device, &flags, &active));
    EQUAL(active, 1);
    OK(cuCtxSynchronize());
}

void case_context_device(struct rpt *t)
{
    CUdevice device = -1;
    OK(cuCtxGetDevice(&device));
    EQUAL(device, (uint64_t)t->device);
}

void case_context_beside_the_primary(struct rpt *t)
{
    CUcontext made = NULL, current = NULL;
    CUdevice device = -1;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCtxCreate(NULL, 0, t->device));
    OK(cuCtxCreate(&made, 0, t->device));
    REQUIRE(made != t->context);
    OK(cuCtxGetCurrent(&current));
    REQUIRE(current == made);
    OK(cuCtxGetDevice(&device));
    EQUAL(device, (uint64_t)t->device);
    OK(cuCtxPushCurrent(t->context));
    OK(cuCtxPopCurrent(&current));
    REQUIRE(current == t->context);
    OK(cuCtxDestroy(made)); /* and pops it */
    OK(cuCtxGetCurrent(&current));
    REQUIRE(current == t->context);
    OK(cuCtxCreate(&made, 0, t->device));
    OK(cuCtxPopCurrent(&current));
    REQUIRE(current == made);
    OK(cuCtxDestroy(made));
    OK(cuCtxGetCurrent(&current));
    REQUIRE(current == t->context);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuCtxDestroy(NULL));
}

/* What was made in it goes with it, and nothing else. */
void case_context_beside_the_primary_has_its_own(struct rpt *t)
{
    CUcontext made = NULL, of = NULL;
    CUdeviceptr theirs = 0, ours = rpt_memory(t, 64);
    CUstream stream = NULL;
    OK(cuCtxCreate(&made, 0, t->device));
    OK(cuMemAlloc(&theirs, 64));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD32Async(theirs, 7, 16, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, theirs));
    REQUIRE(of == made);
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, ours));
    REQUIRE(of == t->context);
    OK(cuCtxDestroy(made));
    REQUIRE(t->d->cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, theirs) != CUDA_SUCCESS);
    OK(cuMemsetD32(ours, 1, 16));
    OK(cuCtxSynchronize());
}

void case_null_outputs_refused(struct rpt *t)
{
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetCount(NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(NULL, 4));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(NULL, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventCreate(NULL, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(NULL, 0));
}
