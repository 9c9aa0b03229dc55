/* SPDX-License-Identifier: MIT
 *
 * Read by clang-tidy alone, before each file of the library. It sees one file at a time, so it must
 * be told that the functions which fill an error never return RP_OK.
 */
#define RP_UNSTABLE /* some files define it too, before their first include */
#include "driver/driver.h"

#define rpi_error(err, status, ...) ((void)rpi_error(err, status, __VA_ARGS__), (status))
#define rpi_error_host_memory(...)                                                                 \
    ((void)rpi_error_host_memory(__VA_ARGS__), RP_ERROR_OUT_OF_HOST_MEMORY)
#define rpi_error_driver(...) ((void)rpi_error_driver(__VA_ARGS__), RP_ERROR_DRIVER)
