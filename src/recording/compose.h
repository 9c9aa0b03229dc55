/* SPDX-License-Identifier: MIT
 *
 * How the captures of a file relate: reading `compose`, and asking for the relation of two
 * captures.
 */
#ifndef REPRISE_RECORDING_COMPOSE_H
#define REPRISE_RECORDING_COMPOSE_H

#include "recording/file.h"
#include "reprise_tools.h"

#include <jansson.h>

/* Fills recording->compose from the file's value; NULL: alternatives. Each capture must be named
 * exactly once. */
rp_status rpi_compose_read(struct rp_recording *recording, json_t *json, struct rp_error *err);

#endif
