/* SPDX-License-Identifier: MIT
 *
 * The few functions of SQLite's stable interface that are needed, declared here and found by name.
 */
#include "profile/sqlite.h"

#include "base/hostmem.h"
#include "base/status.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct sqlite3;
struct sqlite3_stmt;

enum { SQLITE_OK = 0, SQLITE_ROW = 100, SQLITE_DONE = 101, SQLITE_OPEN_READONLY = 1 };

/* X(result, name, parameters) */
#define FUNCTIONS(X)                                                                               \
    X(int, sqlite3_open_v2, (const char *path, struct sqlite3 **out, int flags, const char *vfs))  \
    X(int, sqlite3_close, (struct sqlite3 * database))                                             \
    X(const char *, sqlite3_errmsg, (struct sqlite3 * database))                                   \
    X(int, sqlite3_prepare_v2,                                                                     \
      (struct sqlite3 * database, const char *text, int bytes, struct sqlite3_stmt **out,          \
       const char **tail))                                                                         \
    X(int, sqlite3_step, (struct sqlite3_stmt * statement))                                        \
    X(int, sqlite3_finalize, (struct sqlite3_stmt * statement))                                    \
    X(int64_t, sqlite3_column_int64, (struct sqlite3_stmt * statement, int column))                \
    X(const unsigned char *, sqlite3_column_text, (struct sqlite3_stmt * statement, int column))   \
    X(int, sqlite3_column_bytes, (struct sqlite3_stmt * statement, int column))

struct rpi_database {
    const char *path; /* unowned */
    void *library;
    struct sqlite3 *handle;
    struct sqlite3_stmt *row; /* of the query under way */
#define X(result, name, params) result(*name) params;
    FUNCTIONS(X)
#undef X
};

static rp_status load(struct rpi_database *db, struct rp_error *err)
{
    db->library = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *to;
    } wanted[] = {
#define X(result, name, params) {#name, &db->name},
        FUNCTIONS(X)
#undef X
    };
    bool found = db->library != NULL;
    for (size_t i = 0; found && i < sizeof wanted / sizeof *wanted; i++) {
        void *symbol = dlsym(db->library, wanted[i].name);
        found = symbol != NULL;
        memcpy(wanted[i].to, &symbol, sizeof symbol);
    }
    if (found)
        return RP_OK;
    return rpi_error(err, RP_ERROR_UNSUPPORTED, "advise",
                     "%s: is an SQLite database, and libsqlite3.so.0 could not be loaded: install "
                     "libsqlite3-0 (Debian, Ubuntu) or sqlite-libs (Fedora, RHEL)",
                     db->path);
}

static rp_status failed(struct rpi_database *db, struct rp_error *err)
{
    return rpi_error(err, RP_ERROR_FORMAT, "advise", "%s: cannot be read as an SQLite database: %s",
                     db->path, db->handle ? db->sqlite3_errmsg(db->handle) : "no memory");
}

rp_status rpi_database_open(const char *path, struct rpi_database **out_database,
                            struct rp_error *err)
{
    struct rpi_database *db = rpi_calloc(1, sizeof *db);
    if (!db)
        return rpi_error_host_memory(err, "advise", sizeof *db);
    db->path = path;
    rp_status status = load(db, err);
    if (status == RP_OK &&
        db->sqlite3_open_v2(path, &db->handle, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        status = failed(db, err);
    if (status == RP_OK)
        *out_database = db;
    else
        rpi_database_close(db);
    return status;
}

void rpi_database_close(struct rpi_database *db)
{
    if (!db)
        return;
    if (db->handle)
        db->sqlite3_close(db->handle);
    if (db->library)
        dlclose(db->library);
    rpi_free(db);
}

int64_t rpi_database_whole(struct rpi_database *db, int column)
{
    return db->sqlite3_column_int64(db->row, column);
}

const char *rpi_database_text(struct rpi_database *db, int column, size_t *out_bytes)
{
    const char *text = (const char *)db->sqlite3_column_text(db->row, column);
    int bytes = text ? db->sqlite3_column_bytes(db->row, column) : 0;
    *out_bytes = (size_t)bytes;
    return text ? text : "";
}

rp_status rpi_database_query(struct rpi_database *db, const char *query, rpi_database_row function,
                             void *user, struct rp_error *err)
{
    if (db->sqlite3_prepare_v2(db->handle, query, -1, &db->row, NULL) != SQLITE_OK)
        return failed(db, err);
    rp_status status = RP_OK;
    int step = SQLITE_ROW;
    while (status == RP_OK && (step = db->sqlite3_step(db->row)) == SQLITE_ROW)
        status = function(db, user, err);
    if (status == RP_OK && step != SQLITE_DONE)
        status = failed(db, err);
    db->sqlite3_finalize(db->row);
    db->row = NULL;
    return status;
}

static rp_status count_row(struct rpi_database *db, void *user, struct rp_error *err)
{
    (void)err;
    *(int64_t *)user = rpi_database_whole(db, 0);
    return RP_OK;
}

bool rpi_database_has(struct rpi_database *db, const char *table, const char *column)
{
    char query[256];
    int64_t count = 0;
    snprintf(query, sizeof query, "SELECT count(*) FROM pragma_table_info('%s') WHERE name = '%s'",
             table, column);
    return rpi_database_query(db, query, count_row, &count, NULL) == RP_OK && count > 0;
}
