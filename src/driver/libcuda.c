/* SPDX-License-Identifier: MIT
 *
 * The libcuda provider: NVIDIA's driver, loaded at run time.
 *
 * libcuda.so.1 comes with the GPU driver, not with the CUDA toolkit, so nothing of NVIDIA's is
 * needed to build. Its functions are versioned: cuGetProcAddress gives the form of a function that
 * a named CUDA version had, and symbols.def says which form the table holds. Asked for a version
 * newer than the driver, cuGetProcAddress of some drivers refuses and of others gives an older
 * form, whose parameters differ; so newer forms are not asked for at all.
 *
 * The first success is kept for the life of the process. A failure is not: the next call tries
 * again, so that its caller gets the reason too.
 */
#include "base/env.h"
#include "base/log.h"
#include "driver/driver.h"

#include <assert.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { RPI_CAP_REQUIRED = 0 }; /* lets RPI_CAP_##need be written for required functions too */

/* Where each function of symbols.def goes in the table. */
struct symbol {
    const char *name;
    int version;   /* the CUDA version whose form is wanted */
    unsigned need; /* capability bit, or 0 for required */
    size_t slot;   /* offset in struct rp_driver */
};

static const struct symbol symbols[] = {
#define X(need, name, version, params, args)                                                       \
    {#name, version, RPI_CAP_##need, offsetof(struct rp_driver, name)},
#include "driver/symbols.def"
#undef X
};
enum { SYMBOL_COUNT = sizeof symbols / sizeof *symbols };

typedef void (*any_function)(void);
typedef CUresult (*get_proc_v2)(const char *name, void **function, int version, cuuint64_t flags,
                                CUdriverProcAddressQueryResult *status);
typedef CUresult (*get_proc_v1)(const char *name, void **function, int version, cuuint64_t flags);

/* A library being loaded. */
struct library {
    void *handle;
    const char *path; /* as the dynamic linker resolved it; borrowed from handle */
    get_proc_v2 find_v2;
    get_proc_v1 find_v1; /* used where find_v2 is NULL: before CUDA 12 */
};

static struct {
    pthread_mutex_t lock; /* guards the rest until loaded; then they never change */
    bool loaded;
    struct rp_driver table;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* dlsym gives an object pointer; POSIX says that it may be read as a function's. */
static any_function library_symbol(void *handle, const char *name)
{
    void *address = dlsym(handle, name);
    any_function function;
    _Static_assert(sizeof function == sizeof address, "functions are addresses");
    memcpy(&function, &address, sizeof function);
    return function;
}

static const char *library_path(void *handle, const char *fallback)
{
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) || !map || !map->l_name[0])
        return fallback;
    return map->l_name;
}

/* The function in the form of `version`; NULL when the driver does not have it. *out_result is what
 * cuGetProcAddress returned. */
static void *find(const struct library *library, const char *name, int version,
                  CUresult *out_result)
{
    assert(library->find_v2 || library->find_v1);
    void *function = NULL;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    if (library->find_v2)
        *out_result =
            library->find_v2(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
    else
        *out_result = library->find_v1(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    return *out_result == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS ? function : NULL;
}

static rp_status stub_error(const struct library *library, struct rp_error *err)
{
    rp_status status = rpi_error_driver(err, CUDA_ERROR_STUB_LIBRARY, "cuGetProcAddress",
                                        "loading %s", library->path);
    if (err)
        snprintf(err->message, sizeof err->message,
                 "%s is the CUDA toolkit's stub, which programs are linked with, not NVIDIA's "
                 "driver: take its directory out of LD_LIBRARY_PATH, and install the driver if "
                 "there is none",
                 library->path);
    return status;
}

/* Loads the library and finds its cuGetProcAddress. The caller closes handle, on failure too. */
static rp_status library_open(struct library *library, struct rp_error *err)
{
    const char *wanted = rpi_env(RPI_ENV_LIBCUDA);
    const char *name = wanted ? wanted : "libcuda.so.1";
    library->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library->handle)
        return rpi_error(err, RP_ERROR_NO_DRIVER, "dlopen",
                         "NVIDIA's driver could not be loaded: %s%s", dlerror(),
                         wanted ? " (the file is named by REPRISE_LIBCUDA)"
                                : "; install the NVIDIA driver, or use the host driver");
    library->path = library_path(library->handle, name);
    library->find_v2 = (get_proc_v2)library_symbol(library->handle, "cuGetProcAddress_v2");
    library->find_v1 = (get_proc_v1)library_symbol(library->handle, "cuGetProcAddress");
    if (!library->find_v2 && !library->find_v1)
        return rpi_error(
            err, RP_ERROR_NO_DRIVER, "cuGetProcAddress",
            "%s has no cuGetProcAddress: it is not NVIDIA's driver, or one from before "
            "CUDA 11.3; install a newer one",
            library->path);
    return RP_OK;
}

/* Asked first: which forms may be asked for depends on it. */
static rp_status query_version(const struct library *library, int *out_version,
                               struct rp_error *err)
{
    CUresult result;
    void *address = find(library, "cuDriverGetVersion", 2020, &result);
    if (!address && result == CUDA_ERROR_STUB_LIBRARY)
        return stub_error(library, err);
    if (!address)
        return rpi_error(err, RP_ERROR_NO_DRIVER, "cuGetProcAddress",
                         "%s does not give cuDriverGetVersion: it is not NVIDIA's driver (%s)",
                         library->path, rpi_result_name(result));
    CUresult (*get_version)(int *version);
    memcpy(&get_version, &address, sizeof get_version);
    int version = 0;
    result = get_version(&version);
    if (result == CUDA_ERROR_STUB_LIBRARY)
        return stub_error(library, err);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuDriverGetVersion", "asking %s for its version",
                                library->path);
    *out_version = version;
    return RP_OK;
}

static rp_status missing_error(const struct library *library, const struct symbol *symbol,
                               int missing, int version, struct rp_error *err)
{
    return rpi_error(err, RP_ERROR_NO_DRIVER, symbol->name,
                     "%s, for CUDA %d.%d, lacks %s in the form of CUDA %d.%d (%d of %d required "
                     "functions missing): install a newer NVIDIA driver",
                     library->path, version / 1000, version % 1000 / 10, symbol->name,
                     symbol->version / 1000, symbol->version % 1000 / 10, missing, SYMBOL_COUNT);
}

/* Fills the slots of *table. A capability holds when all its functions exist; without it they are
 * all NULL, so that nobody calls half of it. */
static rp_status fill(const struct library *library, struct rp_driver *table, struct rp_error *err)
{
    unsigned lost = 0;
    int missing = 0;
    const struct symbol *first_missing = NULL;
    for (size_t i = 0; i < SYMBOL_COUNT; i++) {
        const struct symbol *symbol = &symbols[i];
        CUresult result;
        void *address = NULL;
        if (symbol->version <= table->version)
            address = find(library, symbol->name, symbol->version, &result);
        memcpy((char *)table + symbol->slot, &address, sizeof address);
        if (address)
            continue;
        lost |= symbol->need;
        if (symbol->need == RPI_CAP_REQUIRED && !missing++)
            first_missing = symbol;
    }
    if (first_missing)
        return missing_error(library, first_missing, missing, table->version, err);
    for (size_t i = 0; i < SYMBOL_COUNT; i++)
        if (symbols[i].need & lost)
            memset((char *)table + symbols[i].slot, 0, sizeof(any_function));
#define X(name, bit, text)                                                                         \
    if (lost & RPI_CAP_##name)                                                                     \
        rpi_log(RP_LOG_INFO, "%s lacks %s: %s", library->path, #name, text);                       \
    else                                                                                           \
        table->capabilities |= RPI_CAP_##name;
    RPI_CAPABILITIES(X)
#undef X
    return RP_OK;
}

static rp_status load(struct rp_driver *table, struct rp_error *err)
{
    struct library library = {0};
    memset(table, 0, sizeof *table);
    table->provider = "cuda";
    rp_status status = library_open(&library, err);
    if (status == RP_OK)
        status = query_version(&library, &table->version, err);
    if (status == RP_OK)
        status = fill(&library, table, err);
    if (status != RP_OK && library.handle)
        dlclose(library.handle);
    return status;
}

rp_status rpi_driver_libcuda(const struct rp_driver **out_driver, struct rp_error *err)
{
    pthread_mutex_lock(&state.lock);
    rp_status status = RP_OK;
    if (!state.loaded)
        status = load(&state.table, err);
    state.loaded = status == RP_OK;
    pthread_mutex_unlock(&state.lock);
    if (status == RP_OK)
        *out_driver = &state.table;
    return status;
}
