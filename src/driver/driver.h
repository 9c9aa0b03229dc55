/* SPDX-License-Identifier: MIT
 *
 * The one abstraction of the GPU: the CUDA driver API as a table of function pointers.
 *
 *   provider   who fills a table: libcuda (NVIDIA's driver) or host (a CPU with the same API)
 *   wrapper    a table whose functions do something and then call another table: trace, fault
 *   capability what an optional function makes possible; a bit in rp_driver.capabilities
 *
 * Everything above this directory sees `const struct rp_driver *` and never asks who filled it. The
 * functions obey NVIDIA's documentation, whoever provides them; tests/conformance holds both to it.
 * A table is immutable once made, lives until the process ends, and may be used by any thread.
 */
#ifndef REPRISE_DRIVER_DRIVER_H
#define REPRISE_DRIVER_DRIVER_H

#include "base/status.h"
#include "driver/cuda_abi.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct rp_host_image;

/* X(name, bit, what is lost without it) */
#define RPI_CAPABILITIES(X)                                                                        \
    X(PARAM_INFO, 0, "kernels that are not launched with one packed buffer cannot be captured")    \
    X(FUNC_NAME, 1, "kernels are reported by address, not by name")                                \
    X(CAPTURE_TO_GRAPH, 2, "work cannot be captured into an existing graph")                       \
    X(LIBRARY, 3, "kernels that belong to no context cannot be looked into")                       \
    X(SHARE, 4, "other processes cannot be given memory")

enum rpi_capability {
#define X(name, bit, lost) RPI_CAP_##name = 1u << (bit),
    RPI_CAPABILITIES(X)
#undef X
};

struct rp_driver {
    const char *provider;  /* "cuda" or "host": static text; a wrapper keeps its inner's */
    int version;           /* CUDA version, as cuDriverGetVersion gives it: 13000 is 13.0 */
    unsigned capabilities; /* RPI_CAP_ bits; a function without its bit is NULL */
#define X(need, name, version, params, args) CUresult(*name) params;
#include "driver/symbols.def"
#undef X
};

/* Of kernels in both forms the one that this driver's cuModuleLoadData takes. */
static inline const void *rpi_driver_image(const struct rp_driver *driver,
                                           const struct rp_host_image *host, const void *image)
{
    return strcmp(driver->provider, "host") == 0 ? (const void *)host : image;
}

/* Loads libcuda.so.1 once and fills a table from it through cuGetProcAddress, legacy default-stream
 * semantics. Does not call cuInit. REPRISE_LIBCUDA names another file to load. Success is kept for
 * the process; a failure is not, and may be tried again. Any thread. Errors: RP_ERROR_NO_DRIVER
 * when the library is not there, is a stub, or lacks a required function (the message names it and
 * the driver's version). */
rp_status rpi_driver_libcuda(const struct rp_driver **out_driver, struct rp_error *err);

/* The host driver; see driver/host/host.h for its options. Never fails. */
const struct rp_driver *rpi_driver_host(void);

/* Wraps inner so that each call is written to sink as one line: sequence number, thread, function,
 * arguments that are integers or addresses in hexadecimal, result, microseconds. Each inner has one
 * trace in a process: wrapping it again gives the same table, its numbers go on, its sink stays the
 * first one, which is borrowed for ever. A process traces two drivers at most; a third comes back
 * as it is, with a warning in the log. Any thread. */
const struct rp_driver *rpi_driver_trace(const struct rp_driver *inner, FILE *sink);

/* Wraps inner so that one call fails without reaching it. One fault wrapper exists in a process. */
const struct rp_driver *rpi_driver_fault(const struct rp_driver *inner);
/* Call number `call` (from 0, counted over all functions and threads from this moment on) returns
 * `result`; UINT64_MAX: none does. Queries of error texts and calls that only give something back
 * (destroy, free, unmap, release, pop) are counted but let through, as a driver that cannot give
 * back leaves no state to test. cuStreamEndCapture is made to fail as a real one does: the capture
 * is over, its graph destroyed. */
void rpi_driver_fault_at(uint64_t call, CUresult result);
uint64_t rpi_driver_fault_calls(void);  /* calls since rpi_driver_fault_at */
const char *rpi_driver_fault_hit(void); /* the function that was made to fail, or NULL */
/* Tells of each call before it is made, on its thread: its number, and whether it could be made to
 * fail. NULL: of none. */
typedef void rpi_driver_call_fn(uint64_t call, bool fails);
void rpi_driver_fault_watch(rpi_driver_call_fn *watch);

/* Text of a code from results.def: "CUDA_ERROR_INVALID_VALUE"; "CUDA_ERROR_?" when unknown. */
const char *rpi_result_name(CUresult result);
const char *rpi_result_meaning(CUresult result);
/* The one mapping of driver codes: out of memory stays RP_ERROR_OUT_OF_DEVICE_MEMORY, 900 to 908
 * and are RP_ERROR_CAPTURE, missing driver or device RP_ERROR_NO_DRIVER, all else RP_ERROR_DRIVER.
 */
rp_status rpi_result_status(CUresult result);

/* Fills err from a driver call that failed and returns its status; `operation` says what the
 * library was doing ("mapping 64 MiB of the pool"), `function` the driver's function. err may be
 * NULL. */
rp_status rpi_error_driver(struct rp_error *err, CUresult result, const char *function,
                           const char *operation, ...) __attribute__((format(printf, 4, 5)));

#endif
