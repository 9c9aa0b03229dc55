/* SPDX-License-Identifier: MIT
 *
 * Environment variables, through the one table in env.def, so that none is read that is not listed
 * and documented.
 */
#ifndef REPRISE_BASE_ENV_H
#define REPRISE_BASE_ENV_H

enum rpi_env {
#define X(name, meaning) RPI_ENV_##name,
#include "base/env.def"
#undef X
    RPI_ENV_COUNT
};

/* The value, or NULL where it is not set or empty. Borrowed from the environment: valid until the
 * program changes it. */
const char *rpi_env(enum rpi_env variable);
/* "REPRISE_LIBCUDA" and what it does. Static text. */
const char *rpi_env_name(enum rpi_env variable);
const char *rpi_env_meaning(enum rpi_env variable);

#endif
