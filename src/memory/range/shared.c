/* SPDX-License-Identifier: MIT */
#include "memory/range/shared.h"

#include "memory/range/arena.h"
#include "reprise_heap.h"

#define MIB(bytes) ((double)(bytes) / 1048576.0)

/* The handle goes at once: the mapping keeps the memory. */
static rp_status map_file(const struct rp_driver *driver, int file, uint64_t address,
                          uint64_t bytes, struct rp_error *err)
{
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = driver->cuMemImportFromShareableHandle(
        &handle, (void *)(uintptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemImportFromShareableHandle",
                                "opening memory of another process");
    result = driver->cuMemMap(address, bytes, 0, handle, 0);
    driver->cuMemRelease(handle);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemMap", "mapping %.1f MiB of another process",
                                MIB(bytes));
    return RP_OK;
}

static rp_status map_files(const struct rp_driver *driver, CUdevice device,
                           const struct rpi_peers *peers, const int *files, size_t count,
                           uint64_t file_bytes, uint64_t base, struct rp_error *err)
{
    size_t done = 0;
    rp_status status = RP_OK;
    while (done < count && status == RP_OK) {
        status = map_file(driver, files[done], base + done * file_bytes, file_bytes, err);
        done += status == RP_OK;
    }
    if (status == RP_OK) {
        CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUresult result = driver->cuMemSetAccess(base, count * file_bytes, &access, 1);
        if (result == CUDA_SUCCESS) {
            rpi_peers_let_in(peers, driver, base, count * file_bytes);
            return RP_OK;
        }
        status = rpi_error_driver(err, result, "cuMemSetAccess",
                                  "allowing access to memory of another process");
    }
    for (size_t i = 0; i < done; i++)
        rpi_unmap(driver, base + i * file_bytes, file_bytes);
    return status;
}

rp_status rpi_shared_map(const struct rp_driver *driver, CUdevice device,
                         const struct rpi_peers *peers, const int *files, size_t count,
                         uint64_t file_bytes, uint64_t *out_address, struct rp_error *err)
{
    if (!(driver->capabilities & RPI_CAP_SHARE))
        return rpi_error(err, RP_ERROR_UNSUPPORTED, "rp_device_map_shared",
                         "this driver opens no memory of other processes");
    if (!count || !file_bytes || count > UINT64_MAX / 2 / file_bytes)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_device_map_shared",
                         "%zu descriptors of %llu bytes each", count,
                         (unsigned long long)file_bytes);
    int mode = rpi_relax_begin(driver);
    CUdeviceptr base = 0;
    CUresult result = driver->cuMemAddressReserve(&base, count * file_bytes, 0, 0, 0);
    rp_status status =
        result == CUDA_SUCCESS
            ? map_files(driver, device, peers, files, count, file_bytes, base, err)
            : rpi_error_driver(err, result, "cuMemAddressReserve",
                               "reserving %.1f MiB of addresses", MIB(count * file_bytes));
    if (status == RP_OK)
        *out_address = base;
    else if (result == CUDA_SUCCESS)
        driver->cuMemAddressFree(base, count * file_bytes);
    rpi_relax_end(driver, mode);
    return status;
}

rp_status rpi_shared_unmap(const struct rp_driver *driver, uint64_t address, uint64_t bytes,
                           struct rp_error *err)
{
    int mode = rpi_relax_begin(driver);
    CUresult result = rpi_unmap(driver, address, bytes);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemAddressFree(address, bytes);
    rpi_relax_end(driver, mode);
    return result == CUDA_SUCCESS ? RP_OK
                                  : rpi_error_driver(err, result, "cuMemUnmap",
                                                     "giving back memory of another process");
}
