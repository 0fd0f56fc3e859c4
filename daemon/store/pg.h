/*
 * pg.h - libpq in words of our own: connections, statements with typed parameters, rows.
 *
 * Values go as parameters and come back in binary form, so nothing is quoted or
 * parsed.  Every call ends within a bounded time, whatever the server does; how long an answer may
 * be is that server's to say, and what is asked for is bounded by the asker.
 * Errors carry store codes and never a value.  A connection belongs to one thread at a time.
 */
#ifndef DAEMON_STORE_PG_H
#define DAEMON_STORE_PG_H

#include "common/err.h"
#include "common/id.h"
#include "daemon/store/secret.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- connections -- */
struct pg;

/* Where a server is. */
struct pg_place {
	const char *socket_dir;
	const char *port;
	const struct secret *secret; /* NULL = it asks nobody for a password */
};

/*
 * STORE_UNFIT when the server is there and will never let that user in, by what its answer says
 * (login.h), STORE_UNAVAILABLE when it cannot be reached, starts, or has no room.
 */
int pg_connect(const struct pg_place *at, const char *user, const char *database, struct pg **ret,
               struct err *e) must_check;
void pg_close(struct pg **pg);

/* The connection is lost; only pg_close() makes sense. */
bool pg_broken(const struct pg *pg);

/* An idle connection that the server has not closed meanwhile. */
bool pg_alive(struct pg *pg);

/* No transaction is open. */
bool pg_idle(const struct pg *pg);

/* What proves a password, without telling it; owned by the caller. */
int pg_verifier(struct pg *pg, const char *user, const char *password, char **ret, struct err *e)
	must_check;

/* -- statements -- */
struct pg_param {
	enum {
		PG_NULL,
		PG_TEXT,
		PG_INT,
		PG_BYTES
	} kind;
	const char *data; /* borrowed */
	size_t len;
	int64_t number;
};

static inline struct pg_param pg_text(const char *text) /* NULL = null */
{
	return (struct pg_param){ text ? PG_TEXT : PG_NULL, text, 0, 0 };
}

static inline struct pg_param pg_uuid(const struct uuid *id)
{
	return pg_text(id->text);
}

static inline struct pg_param pg_int(int64_t number)
{
	return (struct pg_param){ PG_INT, NULL, 0, number };
}

static inline struct pg_param pg_bool(bool v)
{
	return pg_text(v ? "t" : "f");
}

static inline struct pg_param pg_bytes(const void *data, size_t len)
{
	return (struct pg_param){ PG_BYTES, data ? data : "", len, 0 };
}

#define PG_PARAMS_MAX 20
#define PG_PARAMS(...)                            \
	(const struct pg_param[]){ __VA_ARGS__ }, \
		sizeof((const struct pg_param[]){ __VA_ARGS__ }) / sizeof(struct pg_param)
#define PG_NO_PARAMS NULL, 0

struct pg_rows;
#define auto_rows __attribute__((cleanup(pg_rows_free)))

/* One statement.  The rows are owned by the caller. */
int pg_query(struct pg *pg, const char *sql, const struct pg_param *params, size_t n,
             struct pg_rows **ret, struct err *e) must_check;

/* One statement whose rows do not matter; the number of affected rows, or -1. */
int pg_exec(struct pg *pg, const char *sql, const struct pg_param *params, size_t n, struct err *e)
	must_check;

/* Any number of statements without parameters; stops at the first that fails. */
int pg_script(struct pg *pg, const char *sql, struct err *e) must_check;

/*
 * A question whose answer may be late.  One at a time; any other statement waits for it first.
 * pg_answer(): 1 with the rows, which are owned by the caller; 0 when they have not come until
 * then (monotonic), and may be asked for again.  After the time that every answer has, the
 * connection is lost.
 */
int pg_ask(struct pg *pg, const char *sql, struct err *e) must_check;
bool pg_asked(const struct pg *pg);
int pg_answer(struct pg *pg, uint64_t until, struct pg_rows **ret, struct err *e) must_check;

/* -- rows: a value of another type or size than asked for, or null, marks the rows as bad -- */
void pg_rows_free(struct pg_rows **rows);
int pg_rows_count(const struct pg_rows *rows);
bool pg_null(const struct pg_rows *rows, int row, int column);
int64_t pg_get_int(struct pg_rows *rows, int row, int column);
uint64_t pg_get_ms(struct pg_rows *rows, int row, int column); /* null = 0 */
bool pg_get_bool(struct pg_rows *rows, int row, int column);
struct uuid pg_get_uuid(struct pg_rows *rows, int row, int column); /* null = text "" */
void pg_get_text(struct pg_rows *rows, int row, int column, char *ret, size_t size);
/* A copy with a NUL behind it, owned by the caller; NULL for null (which is not bad). */
char *pg_get_bytes(struct pg_rows *rows, int row, int column, size_t *ret_len);

/* STORE_CORRUPT when a value was bad. */
int pg_rows_check(const struct pg_rows *rows, const char *what, struct err *e) must_check;

#endif
