/* SPDX-License-Identifier: MIT
 *
 * Reading a SQLite database, row by row. The library is loaded when the first database is opened:
 * nothing else needs it, so programs need not have it.
 */
#ifndef REPRISE_PROFILE_SQLITE_H
#define REPRISE_PROFILE_SQLITE_H

#include "reprise.h"

#include <stdbool.h>
#include <stddef.h>

struct rpi_database;

/* Opens for reading a file that a stranger may have made. Views, triggers and virtual tables are
 * never used, texts and queries are bounded, and a query takes at most a number of steps that grows
 * with the file: RP_ERROR_LIMIT where it would take more.
 *
 * Errors: RP_ERROR_UNSUPPORTED when there is no libsqlite3.so.0; RP_ERROR_OUT_OF_HOST_MEMORY;
 * RP_ERROR_IO when the file can't be read or another program has locked it; RP_ERROR_FORMAT with
 * the library's own words. Whatever fails below fails with one of these too. */
rp_status rpi_database_open(const char *path, struct rpi_database **out_database,
                            struct rp_error *err);
void rpi_database_close(struct rpi_database *db); /* NULL is allowed */

/* Does the table have this column? A table that is not there has none. RP_ERROR_FORMAT: the name is
 * that of a view or a virtual table, or the table computes columns. */
rp_status rpi_database_has(struct rpi_database *db, const char *table, const char *column,
                           bool *out_has, struct rp_error *err);

/* Values of the row at hand. A NULL is 0 and "". Texts are valid until the row function returns. */
int64_t rpi_database_whole(struct rpi_database *db, int column);
/* False where the value is no integer: NULL, a text, bytes or a number with a fraction. */
bool rpi_database_integer(struct rpi_database *db, int column, int64_t *out_value);
rp_status rpi_database_text(struct rpi_database *db, int column, const char **out_text,
                            size_t *out_bytes, struct rp_error *err);

/* Runs a query and gives each row to the function, until one fails. One query at a time. */
typedef rp_status (*rpi_database_row)(struct rpi_database *db, void *user, struct rp_error *err);
rp_status rpi_database_query(struct rpi_database *db, const char *query, rpi_database_row function,
                             void *user, struct rp_error *err);

#endif
