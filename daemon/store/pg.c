#include "daemon/store/pg.h"

#include "common/clock.h"
#include "common/fd.h"
#include "daemon/store/login.h"
#include "daemon/store/prepared.h"
#include "daemon/store/store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* To take a statement and answer it; longer than the statement_timeout of tenants' roles, so the
 * server normally speaks first. */
#define ANSWER_MS 40000

/* To connect; what stands between us and an external server has 5 seconds of its own. */
#define MANAGED_MS  5000
#define EXTERNAL_MS 8000

#define BYTEA_OID 17

struct pg {
	PGconn *conn;
	bool broken;
	uint64_t asked_by; /* monotonic, when pg_ask() has to be answered; 0 = it has been */
	PGresult *answer;  /* what has come of that; NULL = nothing yet */
	struct prepared_set prepared;
};

struct pg_rows {
	PGresult *result;
	bool bad;
};

/* -- connections -- */

static void swallow_notice(void *arg, const PGresult *result)
{
	(void)arg;
	(void)result; /* libpq would print it, with values of a tenant in it */
}

/* Ends a list of parameters where libpq does not know the one that would stand there. */
static const char *since(int version, const char *keyword)
{
	return PQlibVersion() >= version ? keyword : NULL;
}

static PGconn *begin_connection(const struct pg_place *at, const char *user, const char *database,
                                const char *password)
{
	/*
	 * Everything that libpq would otherwise take from the environment.  The password
	 * is never asked for; giving one keeps libpq from looking for ~/.pgpass.
	 *
	 * What is asked for again and again has an index.  A plan that reads a whole table,
	 * because that was small, would stay while the table grows.
	 */
	const char *const keys[] = { "host",
		                     "port",
		                     "user",
		                     "dbname",
		                     "password",
		                     "client_encoding",
		                     "sslmode",
		                     "gssencmode",
		                     "options",
		                     "application_name",
		                     at->secret ? since(160000, "require_auth") : NULL,
		                     NULL };
	const char *const values[] = {
		at->socket_dir, at->port,        user,
		database,       password,        "UTF8",
		"disable",      "disable",       "-c enable_seqscan=off",
		"cloisterd",    "scram-sha-256", NULL,
	};

	return PQconnectStartParams(keys, values, 0);
}

/* What the server says meanwhile is not printed, either; false when it takes too long. */
static bool complete(PGconn *conn, uint64_t deadline)
{
	PostgresPollingStatusType next = PGRES_POLLING_WRITING;

	(void)PQsetNoticeReceiver(conn, swallow_notice, NULL);
	while (next == PGRES_POLLING_READING || next == PGRES_POLLING_WRITING) {
		struct pollfd p = { .fd = PQsocket(conn),
			            .events = next == PGRES_POLLING_READING ? POLLIN : POLLOUT };

		if (PQstatus(conn) == CONNECTION_BAD)
			return true;
		if (poll(&p, 1, clock_left_ms(deadline)) == 0 || clock_left_ms(deadline) == 0)
			return false;
		next = PQconnectPoll(conn);
	}
	return true;
}

/* Who asks for no password has not shown either that it is the server that has it. */
static int check_asked(const struct pg_place *at, PGconn *conn, struct err *e)
{
	if (!at->secret || PQconnectionUsedPassword(conn))
		return 0;
	return err_set(e, STORE_UNFIT,
	               "it lets in whoever comes; let the database's roles log in by scram-sha-256 "
	               "in its pg_hba.conf");
}

/* conn: NULL without memory. */
static int not_connected(PGconn *conn, bool in_time, struct err *e)
{
	const char *text = conn ? PQerrorMessage(conn) : "no memory";

	if (!in_time)
		return err_set(e, STORE_UNAVAILABLE, "no answer in time");
	return err_set(e, login_is_refused(text) ? STORE_UNFIT : STORE_UNAVAILABLE, "%.*s",
	               (int)strcspn(text, "\n"), text);
}

/* The caller closes it in any case. */
static int log_in(const struct pg_place *at, PGconn *conn, struct err *e)
{
	bool in_time;

	if (!conn)
		return not_connected(conn, true, e);
	(void)PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
	in_time = complete(conn, clock_mono_ms() + (at->secret ? EXTERNAL_MS : MANAGED_MS));
	(void)PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
	if (!in_time || PQstatus(conn) != CONNECTION_OK)
		return not_connected(conn, in_time, e);
	/* Nothing waits for a server that does not read, but where there is a deadline. */
	if (PQsetnonblocking(conn, 1) != 0)
		return err_set(e, STORE_UNAVAILABLE, "it is lost already");
	return check_asked(at, conn, e);
}

int pg_connect(const struct pg_place *at, const char *user, const char *database, struct pg **ret,
               struct err *e)
{
	auto_free struct pg *pg = calloc(1, sizeof(*pg));
	char password[SECRET_PASSWORD_SIZE] = "-";

	if (!pg)
		return err_set(e, STORE_UNAVAILABLE, "no memory for a database connection");
	if (at->secret)
		secret_password(at->secret, user, password);
	pg->conn = begin_connection(at, user, database, password);
	secret_wipe(password, sizeof(password));
	if (log_in(at, pg->conn, e) < 0) {
		PQfinish(pg->conn);
		return err_wrap(e, "cannot connect to database %s as %s", database, user);
	}
	*ret = mem_take(&pg);
	return 0;
}

int pg_verifier(struct pg *pg, const char *user, const char *password, char **ret, struct err *e)
{
	char *made = PQencryptPasswordConn(pg->conn, password, user, "scram-sha-256");

	if (!made)
		return err_set(e, STORE_UNAVAILABLE, "a password cannot be prepared: %.*s",
		               (int)strcspn(PQerrorMessage(pg->conn), "\n"),
		               PQerrorMessage(pg->conn));
	*ret = strdup(made);
	PQfreemem(made);
	return *ret ? 0 : err_set(e, STORE_UNAVAILABLE, "no memory for a password");
}

void pg_close(struct pg **pg)
{
	if (!*pg)
		return;
	PQclear((*pg)->answer);
	PQfinish((*pg)->conn);
	prepared_release(&(*pg)->prepared);
	free(*pg);
	*pg = NULL;
}

bool pg_broken(const struct pg *pg)
{
	return pg->broken || PQstatus(pg->conn) != CONNECTION_OK;
}

bool pg_idle(const struct pg *pg)
{
	return PQtransactionStatus(pg->conn) == PQTRANS_IDLE;
}

/* -- statements -- */

static int lost(struct pg *pg, const char *why, struct err *e)
{
	pg->broken = true;
	return err_set(e, STORE_UNAVAILABLE, "the database connection was lost (%.*s)",
	               (int)strcspn(why, "\n"), why);
}

/*
 * 1 when PQgetResult() does not block, 0 when it would still do so at that time.  What was not
 * sent yet is sent meanwhile, and what comes is read, so that neither side waits for the other.
 */
static int await_some(struct pg *pg, uint64_t until, struct err *e)
{
	struct pollfd p = { .fd = PQsocket(pg->conn) };

	for (;;) {
		int unsent = PQflush(pg->conn), ready;

		if (unsent < 0)
			return lost(pg, PQerrorMessage(pg->conn), e);
		if (!PQisBusy(pg->conn))
			return 1;
		p.events = unsent ? POLLIN | POLLOUT : POLLIN;
		ready = poll(&p, 1, clock_left_ms(until));
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready == 0)
			return 0;
		if (!PQconsumeInput(pg->conn))
			return lost(pg, PQerrorMessage(pg->conn), e);
		/* Who sends or takes a little again and again has no more time. */
		if (PQisBusy(pg->conn) && clock_left_ms(until) == 0)
			return 0;
	}
}

static int await_answer(struct pg *pg, uint64_t deadline, struct err *e)
{
	int rc = await_some(pg, deadline, e);

	if (rc == 0)
		return lost(pg, "no answer in time", e);
	return rc < 0 ? -1 : 0;
}

static enum store_code code_of(const char *state)
{
	if (strncmp(state, "22", 2) == 0 || strncmp(state, "23", 2) == 0)
		return STORE_CONFLICT;
	/* Resources, locks, timeouts, shutdown, serialisation, connection. */
	if (strncmp(state, "53", 2) == 0 || strncmp(state, "55", 2) == 0 ||
	    strncmp(state, "57", 2) == 0 || strncmp(state, "58", 2) == 0 ||
	    strncmp(state, "40", 2) == 0 || strncmp(state, "08", 2) == 0 ||
	    strncmp(state, "25P03", 5) == 0)
		return STORE_UNAVAILABLE;
	return STORE_CORRUPT;
}

/* What the server refused.  Messages of class 22 quote the value, so they are left out. */
static int refused(struct pg *pg, const PGresult *result, struct err *e)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

	/* After a fatal error the server closes, which is not seen yet. */
	if (!state || !severity || strcmp(severity, "ERROR") != 0 ||
	    PQstatus(pg->conn) != CONNECTION_OK)
		return lost(pg, text ? text : PQerrorMessage(pg->conn), e);
	if (strncmp(state, "22", 2) == 0)
		text = "a value is not acceptable";
	return err_set(e, (int)code_of(state), "database: %.300s (%s)", text ? text : "", state);
}

/* Check one result; -1 when it is not what a statement without COPY gives. */
static int inspect(struct pg *pg, const PGresult *result, struct err *e)
{
	/* Not a switch: newer versions of libpq know more of these. */
	ExecStatusType status = PQresultStatus(result);

	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
		return 0;
	if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH)
		return lost(pg, "unexpected COPY", e); /* it would have to be ended first */
	return refused(pg, result, e);
}

/* Behind the last result.  What lies unsent would otherwise grow with each statement. */
static int all_was_sent(struct pg *pg, struct err *e)
{
	return PQflush(pg->conn) ? lost(pg, "answered before it was asked", e) : 0;
}

/* The last result of what was sent, owned by the caller; NULL when any of them is an error. */
static PGresult *collect(struct pg *pg, struct err *e)
{
	uint64_t deadline = clock_mono_ms() + ANSWER_MS;
	PGresult *last = NULL, *next;
	int rc = 0;

	for (;;) {
		if (await_answer(pg, deadline, e) < 0) {
			rc = -1;
			break;
		}
		next = PQgetResult(pg->conn);
		if (!next) {
			rc = all_was_sent(pg, e) < 0 ? -1 : rc;
			break;
		}
		PQclear(last);
		last = next;
		if (inspect(pg, last, e) < 0)
			rc = -1;
		if (pg->broken)
			break;
	}
	if (rc == 0 && !last)
		rc = lost(pg, "no result", e);
	if (rc == 0)
		return last;
	PQclear(last);
	return NULL;
}

/* Parameters in the form that libpq takes. */
struct values {
	int n;
	uint32_t bytes; /* those with that type, a bit each */
	const char *at[PG_PARAMS_MAX];
	char numbers[PG_PARAMS_MAX][24];
	int lengths[PG_PARAMS_MAX], formats[PG_PARAMS_MAX];
	Oid types[PG_PARAMS_MAX];
};
_Static_assert(PG_PARAMS_MAX <= 32, "a bit for each");

static int fill(struct values *v, const struct pg_param *params, size_t n, struct err *e)
{
	v->n = (int)n;
	v->bytes = 0;
	if (n > PG_PARAMS_MAX)
		return err_set(e, STORE_CORRUPT, "%zu parameters are too many", n);
	for (size_t i = 0; i < n; i++) {
		const struct pg_param *p = &params[i];

		if (p->kind == PG_INT)
			(void)snprintf(v->numbers[i], sizeof(v->numbers[i]), "%lld",
			               (long long)p->number);
		if (p->len > INT32_MAX)
			return err_set(e, STORE_CONFLICT, "a value is too large");
		v->at[i] = p->kind == PG_INT ? v->numbers[i] : p->data;
		v->lengths[i] = (int)p->len;
		v->formats[i] = p->kind == PG_BYTES;
		v->types[i] = p->kind == PG_BYTES ? BYTEA_OID : 0;
		v->bytes |= (uint32_t)v->formats[i] << i;
	}
	return 0;
}

static int prepare(struct pg *pg, const char *name, const char *sql, const struct values *v,
                   struct err *e)
{
	PGresult *result;

	if (!PQsendPrepare(pg->conn, name, sql, v->n, v->types))
		return lost(pg, PQerrorMessage(pg->conn), e);
	result = collect(pg, e);
	if (!result)
		return -1;
	PQclear(result);
	return 0;
}

/* What was asked before, and is of no use any more. */
static int drain(struct pg *pg, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (!pg->asked_by)
		return 0;
	if (pg_answer(pg, pg->asked_by, &rows, e) < 0 && pg_broken(pg))
		return -1;
	return 0;
}

static int send_query(struct pg *pg, const char *sql, const struct pg_param *params, size_t n,
                      struct err *e)
{
	char name[PREPARED_NAME_SIZE];
	struct prepared *known;
	struct values v;
	int sent;

	if (fill(&v, params, n, e) < 0 || drain(pg, e) < 0)
		return -1;
	known = prepared_use(&pg->prepared, sql, v.bytes);
	if (known && known->again) {
		prepared_name(&pg->prepared, known, name);
		if (!known->ready && prepare(pg, name, sql, &v, e) < 0)
			return -1;
		known->ready = true;
		sent = PQsendQueryPrepared(pg->conn, name, v.n, v.at, v.lengths, v.formats, 1);
	} else {
		sent = PQsendQueryParams(pg->conn, sql, v.n, v.types, v.at, v.lengths, v.formats,
		                         1);
	}
	return sent ? 0 : lost(pg, PQerrorMessage(pg->conn), e);
}

int pg_query(struct pg *pg, const char *sql, const struct pg_param *params, size_t n,
             struct pg_rows **ret, struct err *e)
{
	auto_free struct pg_rows *rows = calloc(1, sizeof(*rows));

	if (!rows)
		return err_set(e, STORE_UNAVAILABLE, "no memory for a result");
	if (send_query(pg, sql, params, n, e) < 0)
		return -1;
	rows->result = collect(pg, e);
	if (!rows->result)
		return -1;
	*ret = mem_take(&rows);
	return 0;
}

int pg_exec(struct pg *pg, const char *sql, const struct pg_param *params, size_t n, struct err *e)
{
	PGresult *result;
	int count;

	if (send_query(pg, sql, params, n, e) < 0)
		return -1;
	result = collect(pg, e);
	if (!result)
		return -1;
	count = (int)strtol(PQcmdTuples(result), NULL, 10);
	PQclear(result);
	return count;
}

int pg_script(struct pg *pg, const char *sql, struct err *e)
{
	PGresult *result;

	if (drain(pg, e) < 0)
		return -1;
	if (!PQsendQuery(pg->conn, sql))
		return lost(pg, PQerrorMessage(pg->conn), e);
	result = collect(pg, e);
	if (!result)
		return -1;
	PQclear(result);
	return 0;
}

/* -- an answer that is not waited for -- */

int pg_ask(struct pg *pg, const char *sql, struct err *e)
{
	if (pg->asked_by)
		return 0;
	if (!PQsendQueryParams(pg->conn, sql, 0, NULL, NULL, NULL, NULL, 1))
		return lost(pg, PQerrorMessage(pg->conn), e);
	pg->asked_by = clock_mono_ms() + ANSWER_MS;
	return 0;
}

bool pg_asked(const struct pg *pg)
{
	return pg->asked_by > 0;
}

/* 1 when all of it is in pg->answer. */
static int take_answer(struct pg *pg, uint64_t until, struct err *e)
{
	for (int results = 0; results < 8; results++) {
		int rc = await_some(pg, until, e);
		PGresult *next;

		if (rc == 0 && clock_left_ms(pg->asked_by) == 0)
			return lost(pg, "no answer in time", e);
		if (rc < 1)
			return rc;
		next = PQgetResult(pg->conn);
		if (!next && all_was_sent(pg, e) < 0)
			return -1;
		if (!next)
			return pg->answer ? 1 : lost(pg, "no result", e);
		PQclear(pg->answer);
		pg->answer = next;
	}
	return lost(pg, "more answers than were asked for", e);
}

int pg_answer(struct pg *pg, uint64_t until, struct pg_rows **ret, struct err *e)
{
	auto_rows struct pg_rows *rows = calloc(1, sizeof(*rows));
	int rc;

	if (!rows)
		return err_set(e, STORE_UNAVAILABLE, "no memory for a result");
	rc = take_answer(pg, until, e);
	if (rc < 1)
		return rc;
	rows->result = pg->answer;
	pg->answer = NULL;
	pg->asked_by = 0;
	if (inspect(pg, rows->result, e) < 0)
		return -1;
	*ret = mem_take(&rows);
	return 1;
}

bool pg_alive(struct pg *pg)
{
	struct pollfd p = { .fd = PQsocket(pg->conn), .events = POLLIN };
	auto_rows struct pg_rows *rows = NULL;
	struct err e = ERR_INIT;

	if (pg->asked_by && pg_answer(pg, clock_mono_ms(), &rows, &e) == 0)
		return !pg_broken(pg);
	/* The server says nothing to an idle client except that it ends the connection. */
	if (poll(&p, 1, 0) != 0)
		pg->broken = true;
	return !pg_broken(pg);
}

/* -- rows -- */

void pg_rows_free(struct pg_rows **rows)
{
	if (!*rows)
		return;
	PQclear((*rows)->result);
	free(*rows);
	*rows = NULL;
}

int pg_rows_count(const struct pg_rows *rows)
{
	return PQntuples(rows->result);
}

bool pg_null(const struct pg_rows *rows, int row, int column)
{
	return PQgetisnull(rows->result, row, column);
}

/* The bytes of a value that is not null and has the given size. */
static const unsigned char *value_of(struct pg_rows *rows, int row, int column, int size)
{
	if (pg_null(rows, row, column) || PQgetlength(rows->result, row, column) != size) {
		rows->bad = true;
		return NULL;
	}
	return (const unsigned char *)PQgetvalue(rows->result, row, column);
}

int64_t pg_get_int(struct pg_rows *rows, int row, int column)
{
	int size = PQgetlength(rows->result, row, column) == 4 ? 4 : 8;
	const unsigned char *v = value_of(rows, row, column, size);
	uint64_t number = 0;

	if (!v)
		return 0;
	for (int i = 0; i < size; i++)
		number = number << 8 | v[i];
	return size == 4 ? (int32_t)(uint32_t)number : (int64_t)number;
}

uint64_t pg_get_ms(struct pg_rows *rows, int row, int column)
{
	return pg_null(rows, row, column) ? 0 : (uint64_t)pg_get_int(rows, row, column);
}

bool pg_get_bool(struct pg_rows *rows, int row, int column)
{
	const unsigned char *v = value_of(rows, row, column, 1);

	return v && *v;
}

struct uuid pg_get_uuid(struct pg_rows *rows, int row, int column)
{
	struct uuid id = { "" };
	const unsigned char *v;
	size_t at = 0;

	if (pg_null(rows, row, column))
		return id;
	v = value_of(rows, row, column, 16);
	for (int i = 0; v && i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			id.text[at++] = '-';
		id.text[at++] = "0123456789abcdef"[v[i] >> 4];
		id.text[at++] = "0123456789abcdef"[v[i] & 15];
	}
	id.text[at] = '\0';
	return id;
}

void pg_get_text(struct pg_rows *rows, int row, int column, char *ret, size_t size)
{
	size_t len = (size_t)PQgetlength(rows->result, row, column);

	ret[0] = '\0';
	if (pg_null(rows, row, column) || len >= size) {
		rows->bad = true;
		return;
	}
	memcpy(ret, PQgetvalue(rows->result, row, column), len);
	ret[len] = '\0';
}

char *pg_get_bytes(struct pg_rows *rows, int row, int column, size_t *ret_len)
{
	size_t len = (size_t)PQgetlength(rows->result, row, column);
	char *copy;

	*ret_len = len;
	if (pg_null(rows, row, column))
		return NULL;
	copy = malloc(len + 1);
	if (!copy) {
		rows->bad = true;
		return NULL;
	}
	memcpy(copy, PQgetvalue(rows->result, row, column), len);
	copy[len] = '\0';
	return copy;
}

int pg_rows_check(const struct pg_rows *rows, const char *what, struct err *e)
{
	if (rows->bad)
		return err_set(e, STORE_CORRUPT, "a stored %s cannot be understood", what);
	return 0;
}
