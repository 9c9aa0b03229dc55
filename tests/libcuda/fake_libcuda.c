/* SPDX-License-Identifier: MIT
 *
 * A library that looks like libcuda.so.1 to the loader. Built three times: with ENTRY_V2
 * (CUDA 12 and later), with ENTRY_V1 (CUDA 11), and with neither. What it lacks comes from the
 * environment: FAKE_VERSION, FAKE_MISSING (one function's name), FAKE_RESULT (what
 * cuGetProcAddress returns). Two functions return numbers of their own, when asked for in the right
 * form, so that a test sees whether they lie in their slots.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int fake_driver_version(int *version);
unsigned long long fake_any(void);
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                        int *status);
int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);

#define EXPORT __attribute__((visibility("default")))

static int number(const char *name, int fallback)
{
    const char *value = getenv(name);
    return value ? atoi(value) : fallback;
}

int fake_driver_version(int *version)
{
    *version = number("FAKE_VERSION", 13000);
    return 0;
}

/* Distinct results for the functions that the tests call. */
static int returns_1001(void)
{
    return 1001;
}
static int returns_1002(void)
{
    return 1002;
}
static int returns_0(void)
{
    return 0;
}

static int give(const char *name, void **function, int version, uint64_t flags)
{
    int (*chosen)(void) = returns_0;
    *function = NULL;
    int result = number("FAKE_RESULT", 0);
    /* Only legacy-stream forms are to be asked for. A form newer than the driver is answered too,
     * with what would be an older form: the loader must not ask. */
    if (result || flags != 1)
        return result ? result : 1;
    const char *missing = getenv("FAKE_MISSING");
    if (missing && !strcmp(missing, name))
        return 0;
    if (!strcmp(name, "cuMemAlloc") && version == 3020)
        chosen = returns_1001;
    if (!strcmp(name, "cuFuncGetName") && version == 12030)
        chosen = returns_1002;
    memcpy(function, &chosen, sizeof chosen);
    if (!strcmp(name, "cuDriverGetVersion")) {
        int (*get)(int *) = fake_driver_version;
        memcpy(function, &get, sizeof get);
    }
    return 0;
}

#ifdef ENTRY_V2
EXPORT int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                               int *status)
{
    int result = give(name, function, version, flags);
    if (status)
        *status = *function ? 0 : 1;
    return result;
}
#endif

#ifdef ENTRY_V1
EXPORT int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    return give(name, function, version, flags);
}
#endif

/* Uses the static functions in the build that has no entry point. */
EXPORT unsigned long long fake_any(void)
{
    void *function;
    return (unsigned long long)give("", &function, 0, 0);
}
