/* SPDX-License-Identifier: MIT */
#include "base/env.h"

#include <assert.h>
#include <stdlib.h>

static const struct {
    const char *name, *meaning;
} variables[] = {
#define X(name, meaning) {"REPRISE_" #name, meaning},
#include "base/env.def"
#undef X
};

const char *rpi_env(enum rpi_env variable)
{
    assert(variable < RPI_ENV_COUNT);
    const char *value = getenv(variables[variable].name);
    return value && value[0] ? value : NULL;
}

const char *rpi_env_name(enum rpi_env variable)
{
    assert(variable < RPI_ENV_COUNT);
    return variables[variable].name;
}

const char *rpi_env_meaning(enum rpi_env variable)
{
    assert(variable < RPI_ENV_COUNT);
    return variables[variable].meaning;
}
