/* A server that is none: what it says while somebody logs in, and how long that may take. */
#include "daemon/store/test_fixture.h"

#include "daemon/store/login.h"
#include "daemon/store/pg.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SAYS                                        \
	"R\0\0\0\x08\0\0\0\0"                       \
	"N\0\0\0\x1bSWARNING\0Mone\n\x1b[2Jtwo\0\0" \
	"Z\0\0\0\x05I"

#define ASKS "R\0\0\0\x08\0\0\0\x03" /* for a password, as it is */

struct saying {
	const char *data;
	size_t len;
	bool asks; /* and is told it, before */
};

static int listener = -1;

static void *serve(void *ctx)
{
	const struct saying *says = ctx;
	auto_close int fd = accept(listener, NULL, NULL);
	char scrap[4096];

	assert_true(recv(fd, scrap, sizeof(scrap), 0) > 0);
	if (says->asks) {
		assert_int_equal(send(fd, ASKS, sizeof(ASKS) - 1, MSG_NOSIGNAL), sizeof(ASKS) - 1);
		assert_true(recv(fd, scrap, sizeof(scrap), 0) > 0);
	}
	assert_int_equal(send(fd, says->data, says->len, MSG_NOSIGNAL), says->len);
	(void)shutdown(fd, SHUT_WR);
	(void)recv(fd, scrap, sizeof(scrap), 0); /* until the client closes */
	return NULL;
}

static int connect_to(const struct saying *says, struct pg **ret)
{
	const struct pg_place at = { state_dir, "5432", NULL };
	struct saying copy = *says;
	pthread_t thread;
	int rc;

	assert_int_equal(pthread_create(&thread, NULL, serve, &copy), 0);
	rc = pg_connect(&at, "somebody", "something", ret, &e);
	if (rc == 0)
		pg_close(ret);
	assert_int_equal(pthread_join(thread, NULL), 0);
	return rc;
}

static void opens_the_listener(void **state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	(void)state;
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/.s.PGSQL.5432", state_dir);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 1), 0);
}

static void closes_the_listener(void **state)
{
	(void)state;
	fd_close(&listener);
}

static void a_notice_is_not_printed(void **state)
{
	const struct saying says = { SAYS, sizeof(SAYS) - 1 };
	auto_close int log = memfd_create("log", MFD_CLOEXEC);
	auto_close int old = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	struct pg *pg = NULL;
	int rc;

	(void)state;
	assert_int_equal(dup2(log, STDERR_FILENO), STDERR_FILENO);
	rc = connect_to(&says, &pg);
	assert_int_equal(dup2(old, STDERR_FILENO), STDERR_FILENO);
	assert_ok(rc);
	assert_int_equal(lseek(log, 0, SEEK_END), 0);
}

/* -- who lets somebody in, and reads nothing then ---------------------------------------- */

#define MUCH ((size_t)8 << 20)
#define ANSWERED           \
	"1\0\0\0\x04"      \
	"2\0\0\0\x04"      \
	"n\0\0\0\x04"      \
	"C\0\0\0\x08SET\0" \
	"Z\0\0\0\x05I"

static sem_t reads_now;

/* A statement that no socket takes at once; owned by the caller. */
static char *much(void)
{
	char *sql = malloc(MUCH + 1);

	assert_non_null(sql);
	memset(sql, ' ', MUCH);
	sql[MUCH] = '\0';
	return sql;
}

static void *read_late(void *ctx)
{
	auto_close int fd = accept(listener, NULL, NULL);
	char scrap[65536];
	size_t got = 0;
	ssize_t n;

	(void)ctx;
	assert_true(recv(fd, scrap, sizeof(scrap), 0) > 0);
	assert_int_equal(send(fd, SAYS, sizeof(SAYS) - 1, MSG_NOSIGNAL), sizeof(SAYS) - 1);
	while (sem_wait(&reads_now) < 0)
		;
	while (got < MUCH && (n = recv(fd, scrap, sizeof(scrap), 0)) > 0)
		got += (size_t)n;
	if (got < MUCH)
		return NULL;
	assert_int_equal(send(fd, ANSWERED, sizeof(ANSWERED) - 1, MSG_NOSIGNAL),
	                 sizeof(ANSWERED) - 1);
	while (recv(fd, scrap, sizeof(scrap), 0) > 0)
		;
	return NULL;
}

static void *answer_at_once(void *ctx)
{
	auto_close int fd = accept(listener, NULL, NULL);
	char scrap[4096];

	(void)ctx;
	assert_true(recv(fd, scrap, sizeof(scrap), 0) > 0);
	assert_int_equal(send(fd, SAYS, sizeof(SAYS) - 1, MSG_NOSIGNAL), sizeof(SAYS) - 1);
	assert_true(recv(fd, scrap, sizeof(scrap), 0) > 0); /* the beginning of it */
	assert_int_equal(send(fd, ANSWERED, sizeof(ANSWERED) - 1, MSG_NOSIGNAL),
	                 sizeof(ANSWERED) - 1);
	while (sem_wait(&reads_now) < 0)
		;
	return NULL;
}

/* What was not sent yet must not wait for the next statement. */
static void who_answers_before_it_was_asked_is_given_up(void **state)
{
	const struct pg_place at = { state_dir, "5432", NULL };
	auto_free char *sql = much();
	struct pg *pg = NULL;
	pthread_t thread;

	(void)state;
	for (int asked = 0; asked < 2; asked++) {
		auto_rows struct pg_rows *rows = NULL;

		assert_int_equal(sem_init(&reads_now, 0, 0), 0);
		assert_int_equal(pthread_create(&thread, NULL, answer_at_once, NULL), 0);
		assert_ok(pg_connect(&at, "somebody", "something", &pg, &e));
		if (asked) {
			assert_ok(pg_ask(pg, sql, &e));
			assert_int_equal(pg_answer(pg, clock_mono_ms() + 30000, &rows, &e), -1);
		} else {
			assert_int_equal(pg_exec(pg, sql, PG_NO_PARAMS, &e), -1);
		}
		assert_int_equal(e.code, STORE_UNAVAILABLE);
		assert_non_null(strstr(e.text, "answered before it was asked"));
		assert_true(pg_broken(pg));
		pg_close(&pg);
		assert_int_equal(sem_post(&reads_now), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
		(void)sem_destroy(&reads_now);
	}
}

/* Whether it is read at last, or given up. */
static void ask_much(bool read)
{
	const struct pg_place at = { state_dir, "5432", NULL };
	auto_rows struct pg_rows *rows = NULL;
	auto_free char *sql = much();
	struct pg *pg = NULL;
	pthread_t thread;

	assert_int_equal(sem_init(&reads_now, 0, 0), 0);
	assert_int_equal(pthread_create(&thread, NULL, read_late, NULL), 0);
	assert_ok(pg_connect(&at, "somebody", "something", &pg, &e));
	assert_ok(pg_ask(pg, sql, &e));
	assert_int_equal(pg_answer(pg, clock_mono_ms() + 100, &rows, &e), 0);
	if (read) {
		assert_int_equal(sem_post(&reads_now), 0);
		assert_int_equal(pg_answer(pg, clock_mono_ms() + 30000, &rows, &e), 1);
	}
	pg_close(&pg);
	if (!read)
		assert_int_equal(sem_post(&reads_now), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	(void)sem_destroy(&reads_now);
}

static void who_does_not_read_is_not_waited_for(void **state)
{
	(void)state;
	alarm(300);
	ask_much(true);
	ask_much(false);
	alarm(0);
}

/* -- who is not let in ------------------------------------------------------------------------ */

struct refusal {
	const char *severity, *sqlstate, *message; /* NULL = that field is not sent */
	int code;
};

static const struct refusal refusals[] = {
	{ "FATAL", "28P01", "password authentication failed for user \"x\"", STORE_UNFIT },
	{ "FATAL", "28000", "no pg_hba.conf entry", STORE_UNFIT },
	{ "FATAAL", "28P01", "in another language", STORE_UNFIT },
	{ "FATAL", "3D000", "database \"x\" does not exist", STORE_UNFIT },
	{ "FATAL", "42501", "permission denied for database", STORE_UNFIT },
	{ "FATAL", "53300", "sorry, too many clients already", STORE_UNAVAILABLE },
	{ "FATAL", "57P03", "the database system is starting up", STORE_UNAVAILABLE },
	{ "FATAL", "57P01", "terminating connection", STORE_UNAVAILABLE },
	{ "FATAL", "08006", "of the link", STORE_UNAVAILABLE },
	{ "FATAL", "3D001", "another of that class", STORE_UNAVAILABLE },
	/* Words of another place. */
	{ "FATAL", "53300", "28P01: password authentication failed", STORE_UNAVAILABLE },
	{ "FATAL", "53300", "failed: FATAL:  28P01: no", STORE_UNAVAILABLE },
	{ "FATAL", "57P03", "x\nFATAL:  28P01: no", STORE_UNAVAILABLE },
	{ "x\nFATAL:  28P01: y", "57P03", "no", STORE_UNAVAILABLE },
	/* What is no SQLSTATE. */
	{ "FATAL", "28P0", "short", STORE_UNAVAILABLE },
	{ "FATAL", "28P011", "long", STORE_UNAVAILABLE },
	{ "FATAL", "28p01", "small", STORE_UNAVAILABLE },
	{ "FATAL", "", "empty", STORE_UNAVAILABLE },
	{ "FATAL", NULL, "none", STORE_UNAVAILABLE },
	{ NULL, "28P01", NULL, STORE_UNAVAILABLE },
	{ NULL, NULL, NULL, STORE_UNAVAILABLE },
};

static size_t put_field(char *at, char kind, const char *text)
{
	if (!text)
		return 0;
	at[0] = kind;
	memcpy(at + 1, text, strlen(text) + 1);
	return strlen(text) + 2;
}

static void what_a_server_says_is_judged_by_its_code(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_LEN(refusals); i++) {
		const struct refusal *r = &refusals[i / 2];
		char message[256] = "E";
		struct saying says = { message, 5, i % 2 };
		struct pg *pg = NULL;

		says.len += put_field(message + says.len, 'S', r->severity);
		says.len += put_field(message + says.len, 'C', r->sqlstate);
		says.len += put_field(message + says.len, 'M', r->message);
		message[says.len++] = '\0';
		message[4] = (char)(says.len - 1);
		assert_code(connect_to(&says, &pg), r->code);
		assert_null(strchr(e.text, '\n'));
		assert_memory_equal(e.text,
		                    "cannot connect to database something as somebody: ", 50);
	}
}

static void who_says_nothing_of_use_is_not_there(void **state)
{
	static const struct saying sayings[] = {
		{ "", 0, false },
		{ "", 0, true },
		{ "E28P01: of long ago\n", 20, false },
		{ "E\0\0\0\x04", 5, true },
		{ "E\xff\xff\xff\xff"
		  "SFATAL\0C28P01\0",
		  19, true },
		{ "HTTP/1.1 400 Bad Request\r\n\r\n", 28, false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sayings); i++) {
		struct pg *pg = NULL;

		assert_code(connect_to(&sayings[i], &pg), STORE_UNAVAILABLE);
	}
}

static void a_state_is_found_where_it_stands_alone(void **state)
{
	static const char whole[] =
		"connection to server on socket \"/x\" failed: FATAL:  28P01: no";
	static const char *const none[] = {
		"",
		"28P01",
		"28P01: no",
		"FATAL:  28P01: no",
		"failed: 28P01: no",
		"failed: FATAL: 28P01: no",
		"failed: FATAL:  \n28P01: no",
		"failed: \nFATAL:  28P01: no",
	};
	char found[SQLSTATE_SIZE];

	(void)state;
	assert_true(login_sqlstate(whole, found));
	assert_string_equal(found, "28P01");
	for (size_t len = 0; len < strlen(whole); len++) {
		/* Of that size, so that a sanitizer sees a look behind its end. */
		auto_free char *part = strndup(whole, len);

		assert_int_equal(login_sqlstate(part, found), len >= strlen(whole) - 3);
		assert_string_equal(found, len >= strlen(whole) - 3 ? "28P01" : "");
	}
	for (size_t i = 0; i < ARRAY_LEN(none); i++)
		assert_false(login_sqlstate(none[i], found));
}

/* Servers that libpq itself does not want: there is no SQLSTATE. */
static void what_libpq_refuses(void **state)
{
	(void)state;
	assert_true(
		login_is_refused("connection to server on socket \"/s\" failed: incorrect server "
	                         "signature\n"));
	assert_true(login_is_refused("connection to server on socket \"/s\" failed: authentication "
	                             "method requirement \"scram-sha-256\" failed: server did not "
	                             "complete authentication\n"));
	assert_false(
		login_is_refused("connection to server on socket \"/s\" failed: server closed the "
	                         "connection unexpectedly\nserver signature"));
	assert_false(
		login_is_refused("connection to server on socket \"/s\" failed: FATAL:  57P03: "
	                         "server signature\n"));
	assert_false(login_is_refused(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_libpq_refuses),
		cmocka_unit_test(opens_the_listener),
		cmocka_unit_test(a_notice_is_not_printed),
		cmocka_unit_test(who_does_not_read_is_not_waited_for),
		cmocka_unit_test(who_answers_before_it_was_asked_is_given_up),
		cmocka_unit_test(what_a_server_says_is_judged_by_its_code),
		cmocka_unit_test(who_says_nothing_of_use_is_not_there),
		cmocka_unit_test(a_state_is_found_where_it_stands_alone),
		cmocka_unit_test(closes_the_listener),
	};
	int failed;

	become_service_user();
	assert_non_null(mkdtemp(state_dir));
	failed = RUN_TESTS(tests);
	return remove_tree_at(state_dir) < 0 ? 1 : failed;
}
