/* SPDX-License-Identifier: MIT
 *
 * The few functions of SQLite's stable interface that are needed, declared here and found by name.
 * SQLite's own advice for files of strangers ("Defense Against The Dark Arts") is followed, as far
 * as the library at hand knows how.
 */
#include "profile/sqlite.h"

#include "base/hostmem.h"
#include "base/status.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct sqlite3;
struct sqlite3_stmt;

/* Of sqlite3.h, where they are stable. */
enum { OK = 0, BUSY = 5, LOCKED = 6, NOMEM = 7, INTERRUPT = 9, IOERR = 10, CANTOPEN = 14 };
enum { ROW = 100, DONE = 101, OPEN_READONLY = 1, TYPE_INTEGER = 1, TYPE_NULL = 5 };
enum {
    CONFIG_ENABLE_TRIGGER = 1003,
    CONFIG_DEFENSIVE = 1010,
    CONFIG_ENABLE_VIEW = 1015,
    CONFIG_TRUSTED_SCHEMA = 1017
};

/* SQLITE_LIMIT_ numbers, and what a reader of plain tables needs at most. */
static const struct {
    int limit, most;
} limits[] = {
    {0, 16 << 20}, /* bytes of a text or a row */
    {1, 1 << 16},  /* bytes of SQL, the schema's included */
    {2, 256},      /* columns */
    {3, 64},       /* depth of an expression */
    {4, 4},        /* terms of a compound SELECT */
    {5, 1 << 14},  /* instructions of a query */
    {6, 16},       /* arguments of a function */
    {7, 0},        /* attached databases */
    {8, 256},      /* bytes of a LIKE pattern */
    {9, 16},       /* variables */
    {10, 0},       /* depth of triggers */
    {11, 0},       /* worker threads */
};

/* Steps of SQLite's virtual machine: a row that is read takes some thirty, a name that is looked up
 * by its id as many again, and no row is shorter than a few bytes. */
enum { STEPS_AT_ONCE = 1000, STEPS_A_BYTE = 32, WAIT_MS = 500 };
#define LEAST_STEPS ((uint64_t)2 * 1000 * 1000)

/* X(result, name, parameters) */
#define FUNCTIONS(X)                                                                               \
    X(int, sqlite3_open_v2, (const char *path, struct sqlite3 **out, int flags, const char *vfs))  \
    X(int, sqlite3_close, (struct sqlite3 * database))                                             \
    X(const char *, sqlite3_errmsg, (struct sqlite3 * database))                                   \
    X(int, sqlite3_errcode, (struct sqlite3 * database))                                           \
    X(int, sqlite3_limit, (struct sqlite3 * database, int limit, int value))                       \
    X(int, sqlite3_db_config, (struct sqlite3 * database, int option, ...))                        \
    X(int, sqlite3_busy_timeout, (struct sqlite3 * database, int ms))                              \
    X(void, sqlite3_progress_handler,                                                              \
      (struct sqlite3 * database, int steps, int (*handler)(void *), void *user))                  \
    X(int, sqlite3_prepare_v2,                                                                     \
      (struct sqlite3 * database, const char *text, int bytes, struct sqlite3_stmt **out,          \
       const char **tail))                                                                         \
    X(int, sqlite3_step, (struct sqlite3_stmt * statement))                                        \
    X(int, sqlite3_finalize, (struct sqlite3_stmt * statement))                                    \
    X(int, sqlite3_column_type, (struct sqlite3_stmt * statement, int column))                     \
    X(int64_t, sqlite3_column_int64, (struct sqlite3_stmt * statement, int column))                \
    X(const unsigned char *, sqlite3_column_text, (struct sqlite3_stmt * statement, int column))   \
    X(int, sqlite3_column_bytes, (struct sqlite3_stmt * statement, int column))

struct rpi_database {
    const char *path; /* unowned */
    void *library;
    struct sqlite3 *handle;
    struct sqlite3_stmt *row;   /* of the query under way */
    uint64_t steps, most_steps; /* of that query */
#define X(result, name, params) result(*name) params;
    FUNCTIONS(X)
#undef X
};

/* ---- Opening ------------------------------------------------------------------------------- */

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

/* What SQLite's code means here; extended codes have the code in their lowest byte. */
static rp_status failed(struct rpi_database *db, int code, struct rp_error *err)
{
    switch (code & 0xff) {
    case NOMEM:
        return rpi_error(err, RP_ERROR_OUT_OF_HOST_MEMORY, "advise",
                         "%s: SQLite could not allocate host memory", db->path);
    case BUSY:
    case LOCKED:
        return rpi_error(err, RP_ERROR_IO, "advise",
                         "%s: another program has locked the database; wait until it is done, or "
                         "end it",
                         db->path);
    case INTERRUPT:
        return rpi_error(err, RP_ERROR_LIMIT, "advise",
                         "%s: reading the database takes more than %llu steps, which no export of "
                         "Nsight Systems of its size does",
                         db->path, (unsigned long long)db->most_steps);
    default:
        return rpi_error(err, (code & 0xff) == IOERR ? RP_ERROR_IO : RP_ERROR_FORMAT, "advise",
                         "%s: cannot be read as an SQLite database: %s", db->path,
                         db->handle ? db->sqlite3_errmsg(db->handle) : "no handle");
    }
}

/* SQLite's progress handler: nonzero ends the query. */
static int count_steps(void *user)
{
    struct rpi_database *db = user;
    db->steps += STEPS_AT_ONCE;
    return db->steps > db->most_steps;
}

/* Older libraries lack some of it, and answer so: no error, for what they lack here is guarded in
 * check_plain too. */
static void harden(struct rpi_database *db)
{
    struct stat about;
    uint64_t bytes = stat(db->path, &about) == 0 ? (uint64_t)about.st_size : 0;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        db->sqlite3_limit(db->handle, limits[i].limit, limits[i].most);
    db->sqlite3_db_config(db->handle, CONFIG_DEFENSIVE, 1, (int *)NULL);
    db->sqlite3_db_config(db->handle, CONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
    db->sqlite3_db_config(db->handle, CONFIG_ENABLE_TRIGGER, 0, (int *)NULL);
    db->sqlite3_db_config(db->handle, CONFIG_ENABLE_VIEW, 0, (int *)NULL);
    db->sqlite3_busy_timeout(db->handle, WAIT_MS);
    db->most_steps = LEAST_STEPS + STEPS_A_BYTE * bytes;
    db->sqlite3_progress_handler(db->handle, STEPS_AT_ONCE, count_steps, db);
}

rp_status rpi_database_open(const char *path, struct rpi_database **out_database,
                            struct rp_error *err)
{
    struct rpi_database *db = rpi_calloc(1, sizeof *db);
    if (!db)
        return rpi_error_host_memory(err, "advise", sizeof *db);
    db->path = path;
    rp_status status = load(db, err);
    if (status == RP_OK) {
        int code = db->sqlite3_open_v2(path, &db->handle, OPEN_READONLY, NULL);
        if (code != OK)
            status = failed(db, db->handle ? code : NOMEM, err);
        else
            harden(db);
    }
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

/* ---- Rows ---------------------------------------------------------------------------------- */

int64_t rpi_database_whole(struct rpi_database *db, int column)
{
    return db->sqlite3_column_int64(db->row, column);
}

bool rpi_database_integer(struct rpi_database *db, int column, int64_t *out_value)
{
    if (db->sqlite3_column_type(db->row, column) != TYPE_INTEGER)
        return false;
    *out_value = db->sqlite3_column_int64(db->row, column);
    return true;
}

rp_status rpi_database_text(struct rpi_database *db, int column, const char **out_text,
                            size_t *out_bytes, struct rp_error *err)
{
    *out_text = "";
    *out_bytes = 0;
    if (db->sqlite3_column_type(db->row, column) == TYPE_NULL)
        return RP_OK;
    const char *text = (const char *)db->sqlite3_column_text(db->row, column);
    if (!text) /* an empty BLOB, or there was no memory to make a text of the value */
        return db->sqlite3_errcode(db->handle) == NOMEM ? failed(db, NOMEM, err) : RP_OK;
    *out_text = text;
    *out_bytes = (size_t)db->sqlite3_column_bytes(db->row, column);
    return RP_OK;
}

rp_status rpi_database_query(struct rpi_database *db, const char *query, rpi_database_row function,
                             void *user, struct rp_error *err)
{
    db->steps = 0;
    int code = db->sqlite3_prepare_v2(db->handle, query, -1, &db->row, NULL);
    if (code != OK)
        return failed(db, code, err);
    rp_status status = RP_OK;
    int step = ROW;
    while (status == RP_OK && (step = db->sqlite3_step(db->row)) == ROW)
        status = function(db, user, err);
    if (status == RP_OK && step != DONE)
        status = failed(db, step, err);
    db->sqlite3_finalize(db->row);
    db->row = NULL;
    return status;
}

/* ---- What there is ------------------------------------------------------------------------- */

static rp_status count_row(struct rpi_database *db, void *user, struct rp_error *err)
{
    (void)err;
    *(int64_t *)user = rpi_database_whole(db, 0);
    return RP_OK;
}

/* The number that a query counts. */
static rp_status ask(struct rpi_database *db, const char *query, int64_t *out_value,
                     struct rp_error *err)
{
    *out_value = 0;
    return rpi_database_query(db, query, count_row, out_value, err);
}

/* Is everything of this name a table that holds what is read from it? Names in a schema are
 * compared as SQLite does, without regard to case. A computed column is "hidden" 2 or 3, one of a
 * virtual table 1. table is a name of ours. */
static rp_status check_plain(struct rpi_database *db, const char *table, struct rp_error *err)
{
    char query[512];
    int64_t others = 0, computed = 0;
    snprintf(query, sizeof query,
             "SELECT count(*) FROM sqlite_master WHERE lower(name) = lower('%s') AND (type <> "
             "'table' OR coalesce(rootpage, 0) = 0 OR sql LIKE 'CREATE VIRTUAL%%')",
             table);
    rp_status status = ask(db, query, &others, err);
    snprintf(query, sizeof query, "SELECT count(*) FROM pragma_table_xinfo('%s') WHERE hidden <> 0",
             table);
    if (status == RP_OK && !others)
        status = ask(db, query, &computed, err);
    if (status == RP_OK && (others || computed))
        status =
            rpi_error(err, RP_ERROR_FORMAT, "advise",
                      "%s: %s is no plain table, as in each export of Nsight Systems: the file "
                      "is of something else",
                      db->path, table);
    return status;
}

rp_status rpi_database_has(struct rpi_database *db, const char *table, const char *column,
                           bool *out_has, struct rp_error *err)
{
    char query[512];
    int64_t count = 0;
    rp_status status = check_plain(db, table, err);
    snprintf(query, sizeof query, "SELECT count(*) FROM pragma_table_info('%s') WHERE name = '%s'",
             table, column);
    if (status == RP_OK)
        status = ask(db, query, &count, err);
    *out_has = count > 0;
    return status;
}
