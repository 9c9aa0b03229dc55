/* SPDX-License-Identifier: MIT
 *
 * Opening a device: which driver, which ordinal, what it is. The only file that names providers.
 */
#include "graph/handles/device.h"

#include "base/hostmem.h"
#include "base/log.h"
#include "base/refuse.h"
#include "base/sized.h"
#include "driver/host/host.h"
#include "driver/watch.h"
#include "graph/exec/exec_cache.h"
#include "graph/objects/device_context.h"
#include "memory/range/shared.h"
#include "reprise_heap.h"
#include "reprise_tools.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static rp_status no_driver(struct rp_error *err, const char *driver, const char *why)
{
    return rpi_error(err, RP_ERROR_NO_DRIVER, "rp_device_open", "%s: %s", driver, why);
}

/* The driver's table once it is initialised and has the device. */
static rp_status start_driver(const struct rp_driver *driver, int ordinal, struct rp_error *err)
{
    CUresult result = driver->cuInit(0);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuInit", "starting the %s driver", driver->provider);
    int count = 0;
    result = driver->cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuDeviceGetCount", "counting the devices of %s",
                                driver->provider);
    if (ordinal < 0 || ordinal >= count)
        return rpi_error(err, RP_ERROR_NO_DRIVER, "rp_device_open",
                         "there is no device %d: the %s driver has %d", ordinal, driver->provider,
                         count);
    return RP_OK;
}

static rp_status read_attribute(struct rp_device *device, CUdevice_attribute attribute, int *out,
                                struct rp_error *err)
{
    CUresult result = device->driver->cuDeviceGetAttribute(out, attribute, device->handle);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuDeviceGetAttribute", "reading device attribute %d",
                                (int)attribute);
    return RP_OK;
}

static rp_status read_device(struct rp_device *device, int ordinal, struct rp_error *err)
{
    assert(ordinal >= 0);
    const struct rp_driver *driver = device->driver;
    CUresult result = driver->cuDeviceGet(&device->handle, ordinal);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuDeviceGet", "opening device %d", ordinal);
    result = driver->cuDeviceGetName(device->name, (int)sizeof device->name, device->handle);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuDeviceGetName", "opening device %d", ordinal);
    size_t total = 0;
    result = driver->cuDeviceTotalMem(&total, device->handle);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuDeviceTotalMem", "opening device %d", ordinal);
    device->total_bytes = total;
    const struct {
        CUdevice_attribute attribute;
        int *out;
    } wanted[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &device->compute_major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &device->compute_minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &device->multiprocessors},
    };
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < sizeof wanted / sizeof *wanted; i++)
        status = read_attribute(device, wanted[i].attribute, wanted[i].out, err);
    int virtual_memory = 0;
    if (status == RP_OK)
        status = read_attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                &virtual_memory, err);
    if (status == RP_OK && !virtual_memory)
        return rpi_error(err, RP_ERROR_UNSUPPORTED, "rp_device_open",
                         "device %d (%s) has no virtual memory management, which pools are made of",
                         ordinal, device->name);
    return status;
}

/* What others find the device's memory by. */
static bool init_lists(struct rp_device *device)
{
    if (pthread_mutex_init(&device->address_owners.lock, NULL) == 0) {
        if (rpi_heaps_init(&device->heaps)) {
            if (rpi_peers_init(&device->peers))
                return true;
            rpi_heaps_finish(&device->heaps);
        }
        pthread_mutex_destroy(&device->address_owners.lock);
    }
    return false;
}

static void finish_lists(struct rp_device *device)
{
    rpi_peers_finish(&device->peers);
    rpi_heaps_finish(&device->heaps);
    rpi_vec_finish(&device->address_owners);
    rpi_vec_finish(&device->address_owners.held);
    pthread_mutex_destroy(&device->address_owners.lock);
}

static rp_status init_streams(struct rp_device *device, struct rp_error *err)
{
    rp_status status = rpi_streams_init(&device->streams, err);
    if (status != RP_OK)
        return status;
    status = rpi_device_prices_init(device, err);
    if (status != RP_OK)
        rpi_streams_finish(&device->streams, device->driver);
    return status;
}

static rp_status init_locks(struct rp_device *device, struct rp_error *err)
{
    rp_status status = rpi_error_host_memory(err, "rp_device_open", sizeof device->pace.lock);
    if (pthread_mutex_init(&device->pace.lock, NULL) == 0) {
        if (init_lists(device)) {
            status = init_streams(device, err);
            if (status == RP_OK)
                return RP_OK;
            finish_lists(device);
        }
        pthread_mutex_destroy(&device->pace.lock);
    }
    return status;
}

static void destroy_locks(struct rp_device *device)
{
    rpi_device_prices_finish(device);
    rpi_streams_finish(&device->streams, device->driver);
    finish_lists(device);
    pthread_mutex_destroy(&device->pace.lock);
}

rp_status rpi_device_open_on(const struct rp_driver *driver, int ordinal,
                             struct rp_device **out_device, struct rp_error *err)
{
    assert(driver->provider);
    rp_status status = start_driver(driver, ordinal, err);
    if (status != RP_OK)
        return status;
    rpi_forbid_forks();
    struct rp_device *device = rpi_calloc(1, sizeof *device);
    if (!device)
        return rpi_error_host_memory(err, "rp_device_open", sizeof *device);
    device->driver = driver;
    device->given = rpi_driver_watch(driver);
    status = read_device(device, ordinal, err);
    if (status == RP_OK)
        status = rpi_exec_cache_create(&device->execs, device, err);
    if (status == RP_OK)
        status = init_locks(device, err);
    if (status == RP_OK) {
        status = rpi_copier_init(&device->copier, driver, device->multiprocessors, err);
        if (status != RP_OK)
            destroy_locks(device);
    }
    if (status != RP_OK) {
        rpi_exec_cache_destroy(device->execs);
        rpi_free(device);
        return status;
    }
    CUresult result = driver->cuDevicePrimaryCtxRetain(&device->context, device->handle);
    if (result != CUDA_SUCCESS) {
        rpi_copier_finish(&device->copier);
        destroy_locks(device);
        rpi_exec_cache_destroy(device->execs);
        rpi_free(device);
        return rpi_error_driver(err, result, "cuDevicePrimaryCtxRetain",
                                "retaining the primary context of device %d", ordinal);
    }
    *out_device = device;
    return RP_OK;
}

static rp_status open_cuda(const struct rp_device_options *options, struct rp_device **out_device,
                           struct rp_error *err)
{
    const struct rp_driver *driver = NULL;
    rp_status status = rpi_driver_libcuda(&driver, err);
    if (status != RP_OK)
        return status;
    if (options->trace)
        driver = rpi_driver_trace(driver, stderr);
    return rpi_device_open_on(driver, options->ordinal, out_device, err);
}

static rp_status open_host(const struct rp_device_options *options, struct rp_device **out_device,
                           struct rp_error *err)
{
    const struct rp_driver *driver = rpi_driver_host();
    struct rpi_host_options host;
    rpi_host_options(&host);
    host.seed = options->host_seed;
    host.check_races = options->host_check_races != 0;
    rpi_host_configure(&host);
    if (options->trace)
        driver = rpi_driver_trace(driver, stderr);
    return rpi_device_open_on(driver, options->ordinal, out_device, err);
}

/* cuda where it works, host elsewhere. A device without what Reprise needs counts as not working,
 * and the log says why it was passed over. */
static rp_status open_any(const struct rp_device_options *options, struct rp_device **out_device,
                          struct rp_error *err)
{
    struct rp_error cuda = {0}, host = {0};
    rp_status status = open_cuda(options, out_device, &cuda);
    if (status == RP_OK || status == RP_ERROR_OUT_OF_HOST_MEMORY) {
        if (status != RP_OK && err)
            *err = cuda;
        return status;
    }
    rpi_log(RP_LOG_INFO, "the host driver is used: %s", cuda.message);
    status = open_host(options, out_device, &host);
    if (status == RP_ERROR_NO_DRIVER)
        return rpi_error(err, status, "rp_device_open", "cuda: %.220s; host: %.220s", cuda.message,
                         host.message);
    if (status != RP_OK && err)
        *err = host;
    return status;
}

rp_status rp_device_open(const struct rp_device_options *options, struct rp_device **out_device,
                         struct rp_error *err)
{
    if (rpi_is_forked() || !out_device)
        return rpi_refuse(err, "rp_device_open", "out_device");
    struct rp_device_options chosen = RP_DEVICE_OPTIONS_INIT;
    rp_status status = rpi_take_options(&chosen, sizeof chosen, options, "rp_device_open",
                                        "RP_DEVICE_OPTIONS_INIT", err);
    if (status != RP_OK)
        return status;
    struct rp_device *device = NULL;
    if (!chosen.driver)
        status = open_any(&chosen, &device, err);
    else if (strcmp(chosen.driver, "cuda") == 0)
        status = open_cuda(&chosen, &device, err);
    else if (strcmp(chosen.driver, "host") == 0)
        status = open_host(&chosen, &device, err);
    else
        return no_driver(err, chosen.driver, "no such driver; it may be \"cuda\" or \"host\"");
    if (status != RP_OK)
        return status;
    rpi_exec_cache_set_budget(device->execs, chosen.exec_budget_bytes);
    *out_device = device;
    return RP_OK;
}

void rp_device_destroy(struct rp_device *device)
{
    if (!device || rpi_is_forked())
        return;
    size_t users = atomic_load(&device->pools);
    if (users) {
        rpi_log(RP_LOG_ERROR,
                "rp_device_destroy: the device stays, as %zu of its pools and heaps are left: "
                "destroy them first",
                users);
        return;
    }
    bool pushed = rpi_device_push_to_release(device);
    rpi_rehearsal_range_finish(&device->rehearsal_range);
    rpi_exec_cache_destroy(device->execs);
    rpi_copier_finish(&device->copier);
    destroy_locks(device);
    if (pushed)
        rp_device_pop(device);
    device->driver->cuDevicePrimaryCtxRelease(device->handle);
    rpi_free(device);
}

rp_status rp_device_add_peer(struct rp_device *device, const struct rp_device *peer,
                             struct rp_error *err)
{
    if (rpi_is_forked() || !device || !peer)
        return rpi_refuse(err, "rp_device_add_peer", !device ? "device" : "peer");
    if (strcmp(device->driver->provider, peer->driver->provider) != 0)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_device_add_peer",
                         "the devices are of two drivers, %s and %s", device->driver->provider,
                         peer->driver->provider);
    if (device->handle == peer->handle)
        return RP_OK;
    rp_status status = rp_device_push(device, err);
    if (status != RP_OK)
        return status;
    rpi_peers_add(&device->peers, peer->handle);
    rp_device_pop(device);
    return RP_OK;
}

rp_status rp_device_map_shared(struct rp_device *device, const int *files, size_t count,
                               uint64_t file_bytes, uint64_t *out_address, struct rp_error *err)
{
    if (rpi_is_forked() || !device || !files || !out_address)
        return rpi_refuse(err, "rp_device_map_shared",
                          !device  ? "device"
                          : !files ? "files"
                                   : "out_address");
    rp_status status = rp_device_push(device, err);
    if (status != RP_OK)
        return status;
    status = rpi_shared_map(device->driver, device->handle, &device->peers, files, count,
                            file_bytes, out_address, err);
    rp_device_pop(device);
    return status;
}

rp_status rp_device_unmap_shared(struct rp_device *device, uint64_t address, size_t count,
                                 uint64_t file_bytes, struct rp_error *err)
{
    if (rpi_is_forked() || !device)
        return rpi_refuse(err, "rp_device_unmap_shared", "device");
    bool pushed = rpi_device_push_to_release(device);
    rp_status status = rpi_shared_unmap(device->driver, address, count * file_bytes, err);
    if (pushed)
        rp_device_pop(device);
    return status;
}

rp_status rp_device_trim(struct rp_device *device, uint64_t *out_bytes, struct rp_error *err)
{
    if (rpi_is_forked() || !device)
        return rpi_refuse(err, "rp_device_trim", "device");
    if (out_bytes)
        *out_bytes = 0;
    if (!rpi_gate_try(&device->rehearsal_gate))
        return RP_OK; /* a rehearsal needs it */
    rp_status status = RP_OK;
    uint64_t before = rpi_rehearsal_range_bytes(&device->rehearsal_range);
    if (before && (status = rp_device_push(device, err)) == RP_OK) {
        rpi_rehearsal_range_trim(&device->rehearsal_range);
        if (out_bytes)
            *out_bytes = before - rpi_rehearsal_range_bytes(&device->rehearsal_range);
        rp_device_pop(device);
    }
    rpi_gate_leave(&device->rehearsal_gate);
    return status;
}

void rp_device_info(const struct rp_device *device, struct rp_device_info *out_info)
{
    if (rpi_is_forked() || !device || !out_info) {
        rpi_give_nothing(out_info);
        return;
    }
    struct rpi_host_statistics host = {0};
    if (strcmp(device->driver->provider, "host") == 0)
        rpi_host_statistics(&host);
    const struct rp_device_info info = {.driver = device->driver->provider,
                                        .name = device->name,
                                        .driver_version = device->driver->version,
                                        .compute_major = device->compute_major,
                                        .compute_minor = device->compute_minor,
                                        .multiprocessors = device->multiprocessors,
                                        .total_bytes = device->total_bytes,
                                        .host_races = host.races};
    rpi_give(out_info, &info, sizeof info, __func__);
}

int rp_device_capability(const struct rp_device *device, size_t index,
                         struct rp_capability *out_capability)
{
    if (rpi_is_forked() || !device || !out_capability)
        return 0;
    static const struct {
        const char *name, *lost;
        unsigned bit;
    } all[] = {
#define X(name, bit, lost) {#name, lost, RPI_CAP_##name},
        RPI_CAPABILITIES(X)
#undef X
    };
    if (index >= sizeof all / sizeof *all)
        return 0;
    *out_capability = (struct rp_capability){all[index].name, all[index].lost,
                                             (device->driver->capabilities & all[index].bit) != 0};
    return 1;
}

/* Where each function lies in the table, by name. */
static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define X(need, name, version, params, args) {#name, offsetof(struct rp_driver, name)},
#include "driver/symbols.def"
#undef X
};

void (*rp_device_function(const struct rp_device *device, const char *name))(void)
{
    if (rpi_is_forked() || !device || !name)
        return NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].name, name) != 0)
            continue;
        void (*function)(void);
        memcpy(&function, (const char *)device->given + functions[i].offset, sizeof function);
        return function;
    }
    return NULL;
}
