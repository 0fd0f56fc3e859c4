/* Sessions with a real PostgreSQL that has TLS and SCRAM, through a link in kill mode. */
#include "daemon/link/test_far.h"

#include "common/buf.h"
#include "daemon/launcher/cluster_exec.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#define SESSIONS  6
#define ROWS      102400
#define ROW_BYTES 1024 /* with its end */

static struct {
	char data[64];
	uint16_t port;
	int held; /* the port, also while no server has it */
	pid_t pid;
} far_server = { .pid = -1, .held = -1 };

static struct far through; /* most tests */

/* -- the server -------------------------------------------------------------------------------- */

static void run_initdb(void)
{
	char initdb[300];
	const char *const argv[] = { initdb,  "-D",        far_server.data, "-A",
		                     "trust", "-U",        "postgres",      "-E",
		                     "UTF8",  "--no-sync", "--locale=C",    NULL };
	auto_buf struct buf output = BUF_INIT(1 << 20);

	(void)snprintf(initdb, sizeof(initdb), "%s/initdb", postgres_bin);
	assert_ok(cluster_command(argv, NULL, &output, &e));
}

static void configure(void)
{
	static const char hba[] = "local all postgres trust\n"
				  "hostssl all cleartext 127.0.0.1/32 password\n"
				  "hostssl all md5 127.0.0.1/32 md5\n"
				  "hostssl all trusted 127.0.0.1/32 trust\n"
				  "hostssl all all 127.0.0.1/32 scram-sha-256\n";
	char text[1000], path[100];

	(void)snprintf(text, sizeof(text),
	               "listen_addresses = '127.0.0.1'\nport = %u\n"
	               "unix_socket_directories = '%s'\nfsync = off\nssl = on\n"
	               "ssl_cert_file = 'server.pem'\nssl_key_file = 'server.pem'\n"
	               "max_connections = 30\nautovacuum = off\nwal_level = minimal\n"
	               "max_wal_senders = 0\nlog_min_messages = fatal\n"
	               "password_encryption = 'scram-sha-256'\n",
	               far_server.port, far_server.data);
	(void)snprintf(path, sizeof(path), "%s/postgresql.conf", far_server.data);
	put_bytes(path, text, strlen(text));
	(void)snprintf(path, sizeof(path), "%s/pg_hba.conf", far_server.data);
	put_bytes(path, hba, strlen(hba));
}

static void certify(void)
{
	const struct wanted w = { "db.example.org", "DNS:localhost,IP:127.0.0.1", -DAY, DAY };
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = new_certificate(key, &w, &ours);
	char path[100];

	(void)snprintf(path, sizeof(path), "%s/server.pem", far_server.data);
	write_pem(path, cert, key);
	X509_free(cert);
	EVP_PKEY_free(key);
}

/* Past the link, as its superuser. */
static PGconn *connect_directly(void)
{
	char conninfo[200];

	(void)snprintf(conninfo, sizeof(conninfo), "host=%s port=%u user=postgres dbname=postgres",
	               far_server.data, far_server.port);
	return PQconnectdb(conninfo);
}

static void start_server(void)
{
	char postgres[300];
	const char *const argv[] = { postgres, "-D", far_server.data, NULL };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	uint64_t deadline = clock_mono_ms() + GENEROUS_MS;
	bool up = false;

	(void)snprintf(postgres, sizeof(postgres), "%s/postgres", postgres_bin);
	far_server.pid = cluster_spawn(&(struct cluster_child){ argv, null, null, -1, SIGINT }, &e);
	assert_true(far_server.pid > 0);
	assert_int_equal(close(null), 0);
	while (!up && clock_mono_ms() < deadline) {
		PGconn *conn = connect_directly();

		up = PQstatus(conn) == CONNECTION_OK;
		PQfinish(conn);
		usleep(10000);
	}
	assert_true(up);
}

static void stop_server(void)
{
	assert_int_equal(kill(far_server.pid, SIGINT), 0);
	assert_int_equal(waitpid(far_server.pid, NULL, 0), far_server.pid);
}

static void must(PGconn *conn, const char *sql)
{
	PGresult *r = PQexec(conn, sql);

	if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK)
		fail_msg("%s: %s", sql, PQerrorMessage(conn));
	PQclear(r);
}

/* The one value that a query gives, in a buffer of this function. */
static const char *value(PGconn *conn, const char *sql)
{
	static char text[200];
	PGresult *r = PQexec(conn, sql);

	if (PQresultStatus(r) != PGRES_TUPLES_OK)
		fail_msg("%s: %s", sql, PQerrorMessage(conn));
	(void)snprintf(text, sizeof(text), "%s", PQgetvalue(r, 0, 0));
	PQclear(r);
	return text;
}

static void make_roles(void)
{
	PGconn *conn = connect_directly();

	must(conn, "CREATE ROLE alice LOGIN PASSWORD '" PASSWORD "'");
	must(conn, "CREATE ROLE bob LOGIN PASSWORD '" PASSWORD "'");
	must(conn, "CREATE ROLE cleartext LOGIN PASSWORD '" PASSWORD "'");
	must(conn, "CREATE ROLE trusted LOGIN PASSWORD '" PASSWORD "'");
	must(conn, "SET password_encryption = 'md5'");
	must(conn, "CREATE ROLE md5 LOGIN PASSWORD '" PASSWORD "'");
	must(conn, "GRANT ALL ON SCHEMA public TO alice");
	PQfinish(conn);
}

static int begin_all(void **state)
{
	int on = 1;

	(void)state;
	path_of("data", far_server.data);
	far_server.held = open_port(-1, &far_server.port);
	assert_int_equal(setsockopt(far_server.held, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
	run_initdb();
	configure();
	certify();
	start_server();
	make_roles();
	through = start_far("localhost", far_server.port, 20);
	return 0;
}

static int end_all(void **state)
{
	(void)state;
	stop_far(&through);
	stop_server();
	fd_close(&far_server.held);
	return 0;
}

/* -- sessions ---------------------------------------------------------------------------------- */

/* By name and by address; SCRAM from end to end, and TLS as the server sees it. */
static void a_session(void **state)
{
	const char *const hosts[] = { "localhost", "127.0.0.1" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
		struct far far = start_far(hosts[i], far_server.port, 5);
		PGconn *conn = connected_as(&far, "alice");

		assert_true(PQconnectionUsedPassword(conn));
		assert_string_equal(value(conn, "SELECT current_user"), "alice");
		assert_string_equal(value(conn, "SELECT ssl AND version >= 'TLSv1.2' "
		                                "FROM pg_stat_ssl WHERE pid = pg_backend_pid()"),
		                    "t");
		PQfinish(conn);
		stop_far(&far);
	}
}

static void a_wrong_password(void **state)
{
	char conninfo[200];
	PGconn *conn;

	(void)state;
	(void)snprintf(conninfo, sizeof(conninfo),
	               "host=%s user=alice password=wrong dbname=postgres", through.dir);
	conn = PQconnectdb(conninfo);
	assert_non_null(strstr(PQerrorMessage(conn), "password authentication failed"));
	PQfinish(conn);
}

/* The server would take it; the link does not let libpq say it. */
static void no_login_that_shows_the_password(void **state)
{
	PGconn *conn;

	(void)state;
	conn = connect_as(&through, "cleartext");
	assert_non_null(strstr(PQerrorMessage(conn), "asks for the password in cleartext"));
	assert_false(PQconnectionUsedPassword(conn));
	PQfinish(conn);
	conn = connect_as(&through, "md5");
	assert_non_null(strstr(PQerrorMessage(conn), "asks for the password by MD5"));
	PQfinish(conn);
}

/* The server asks for no password, and libpq alone would be content (before 16). */
static void no_login_without_a_password(void **state)
{
	PGconn *conn = connect_as(&through, "trusted");

	(void)state;
	assert_int_equal(PQstatus(conn), CONNECTION_BAD);
	assert_non_null(strstr(PQerrorMessage(conn), "it lets in whoever comes; let the "));
	PQfinish(conn);
}

static void ask(PGconn *conn, int who, int round)
{
	char sql[200];

	(void)snprintf(sql, sizeof(sql), "SELECT current_user || repeat(' %d of %d', 5000)", who,
	               round);
	assert_int_equal(PQsendQuery(conn, sql), 1);
}

static void expect_answer(PGconn *conn, int who, int round)
{
	const char *const name = who % 2 ? "bob" : "alice";
	PGresult *r = PQgetResult(conn);
	const char *got = PQgetvalue(r, 0, 0);
	char wanted[64];
	size_t n = (size_t)snprintf(wanted, sizeof(wanted), " %d of %d", who, round);

	assert_int_equal(strlen(got), strlen(name) + 5000 * n);
	assert_memory_equal(got, name, strlen(name));
	got += strlen(name);
	for (; *got; got += n)
		assert_memory_equal(got, wanted, n);
	PQclear(r);
	assert_null(PQgetResult(conn));
}

/* Each asks at once for what only it knows, and the answers are fetched in another order. */
static void sessions_do_not_mix(void **state)
{
	PGconn *conns[SESSIONS];

	(void)state;
	for (int i = 0; i < SESSIONS; i++)
		conns[i] = connected_as(&through, i % 2 ? "bob" : "alice");
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < SESSIONS; i++)
			ask(conns[i], i, round);
		for (int i = SESSIONS; i-- > 0;)
			expect_answer(conns[i], i, round);
	}
	for (int i = 0; i < SESSIONS; i++)
		PQfinish(conns[i]);
}

static void a_query_is_cancelled(void **state)
{
	PGconn *conn = connected_as(&through, "alice");
	PGcancel *cancel = PQgetCancel(conn);
	char why[200] = "";
	PGresult *r;

	(void)state;
	assert_int_equal(PQsendQuery(conn, "SELECT pg_sleep(3600)"), 1);
	assert_int_equal(PQflush(conn), 0);
	do { /* it does nothing before the query has begun */
		if (!PQcancel(cancel, why, sizeof(why)))
			fail_msg("%s", why);
		(void)poll(&(struct pollfd){ PQsocket(conn), POLLIN, 0 }, 1, 100);
		assert_int_equal(PQconsumeInput(conn), 1);
	} while (PQisBusy(conn));
	r = PQgetResult(conn);
	assert_string_equal(PQresultErrorField(r, PG_DIAG_SQLSTATE), "57014");
	PQclear(r);
	PQfreeCancel(cancel);
	PQfinish(conn);
}

/* -- much of it -------------------------------------------------------------------------------- */

static void fill_row(char row[ROW_BYTES + 1], unsigned int n)
{
	uint64_t x = n * 0x9e3779b97f4a7c15u + 1;
	int at = snprintf(row, ROW_BYTES, "%u\t", n);

	for (; at < ROW_BYTES - 1; at++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		row[at] = (char)('!' + x % 58); /* up to 'Z': no backslash, which would escape */
	}
	row[ROW_BYTES - 1] = '\n';
	row[ROW_BYTES] = '\0';
}

static long status_of(pid_t pid, const char *field)
{
	char path[64], line[256];
	long found = -1;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, field, strlen(field)) == 0)
			found = strtol(line + strlen(field), NULL, 10);
	(void)fclose(f);
	return found;
}

static void copy_in(PGconn *conn)
{
	char row[ROW_BYTES + 1];
	PGresult *r = PQexec(conn, "COPY much FROM STDIN");

	assert_int_equal(PQresultStatus(r), PGRES_COPY_IN);
	PQclear(r);
	for (unsigned int n = 0; n < ROWS; n++) {
		fill_row(row, n);
		assert_int_equal(PQputCopyData(conn, row, ROW_BYTES), 1);
	}
	assert_int_equal(PQputCopyEnd(conn, NULL), 1);
	r = PQgetResult(conn);
	if (PQresultStatus(r) != PGRES_COMMAND_OK)
		fail_msg("%s", PQerrorMessage(conn));
	PQclear(r);
	assert_null(PQgetResult(conn));
}

static void copy_out(PGconn *conn)
{
	PGresult *r = PQexec(conn, "COPY much TO STDOUT");
	char row[ROW_BYTES + 1], *got;
	unsigned int n = 0;
	int len;

	assert_int_equal(PQresultStatus(r), PGRES_COPY_OUT);
	PQclear(r);
	for (; (len = PQgetCopyData(conn, &got, 0)) > 0; n++) {
		fill_row(row, n);
		assert_int_equal(len, ROW_BYTES);
		assert_memory_equal(got, row, ROW_BYTES);
		PQfreemem(got);
	}
	assert_int_equal(len, -1);
	assert_int_equal(n, ROWS);
	r = PQgetResult(conn);
	assert_int_equal(PQresultStatus(r), PGRES_COMMAND_OK);
	PQclear(r);
	assert_null(PQgetResult(conn));
}

/* 100 MiB there and back take some seconds: fewer would fit into buffers. */
static void much_arrives_as_it_is(void **state)
{
	PGconn *conn = connected_as(&through, "alice");
	pid_t link = child_of(through.keeper);
	long before = status_of(link, "VmHWM:");

	(void)state;
	assert_true(before > 0);
	must(conn, "CREATE UNLOGGED TABLE much (n int, text text)");
	copy_in(conn);
	assert_string_equal(value(conn, "SELECT count(*) FROM much"), "102400");
	copy_out(conn);
	must(conn, "DROP TABLE much");
	if (!SANITIZED)
		assert_in_range(status_of(link, "VmHWM:") - before, 0, 4096); /* KiB */
	PQfinish(conn);
}

/* -- ends -------------------------------------------------------------------------------------- */

static void await_sessions(const char *user, int wanted)
{
	PGconn *conn = connect_directly();
	uint64_t deadline = clock_mono_ms() + GENEROUS_MS;
	char sql[200];

	(void)snprintf(sql, sizeof(sql),
	               "SELECT count(*) FROM pg_stat_activity WHERE usename = '%s'", user);
	while (strtol(value(conn, sql), NULL, 10) != wanted) {
		assert_true(clock_mono_ms() < deadline);
		usleep(20000);
	}
	PQfinish(conn);
}

/* True when nobody has the other end any more. */
static bool is_closed(PGconn *conn)
{
	uint64_t deadline = clock_mono_ms() + GENEROUS_MS;
	struct pollfd p = { .fd = PQsocket(conn), .events = POLLRDHUP };

	while (clock_mono_ms() < deadline)
		if (poll(&p, 1, 1000) == 1 && p.revents & (POLLRDHUP | POLLHUP))
			return true;
	return false;
}

static void the_client_closes(void **state)
{
	PGconn *conns[3];

	(void)state;
	await_sessions("bob", 0);
	for (size_t i = 0; i < ARRAY_LEN(conns); i++)
		conns[i] = connected_as(&through, "bob");
	await_sessions("bob", 3);
	PQfinish(conns[0]);
	/* as if its process had died: without the message that says so */
	assert_int_equal(shutdown(PQsocket(conns[1]), SHUT_RDWR), 0);
	await_sessions("bob", 1);
	PQfinish(conns[1]);
	PQfinish(conns[2]);
	await_sessions("bob", 0);
}

static void the_server_closes(void **state)
{
	PGconn *conn = connected_as(&through, "bob"), *root = connect_directly();
	PGresult *r;

	(void)state;
	must(root, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'bob'");
	assert_true(is_closed(conn));
	r = PQexec(conn, "SELECT 1");
	assert_non_null(strstr(PQerrorMessage(conn), "terminating connection due to admin"));
	assert_int_equal(PQstatus(conn), CONNECTION_BAD);
	PQclear(r);
	PQfinish(conn);
	PQfinish(root);
}

static void the_server_starts_anew(void **state)
{
	PGconn *conn = connected_as(&through, "alice");

	(void)state;
	stop_server();
	assert_true(is_closed(conn));
	PQfinish(conn);
	expect_no_session(&through, "nobody listens at localhost");
	start_server();
	conn = connected_as(&through, "alice");
	PQfinish(conn);
}

/* Those who come before there is another one wait for it. */
static void the_link_dies(void **state)
{
	pid_t link = child_of(through.keeper);

	(void)state;
	for (int i = 0; i < 2; i++) {
		PGconn *conn = connected_as(&through, "alice");
		pid_t old = link;

		assert_int_equal(kill(link, SIGKILL), 0);
		assert_true(is_closed(conn));
		PQfinish(conn);
		conn = connected_as(&through, "alice");
		assert_string_equal(value(conn, "SELECT 1"), "1");
		PQfinish(conn);
		link = child_of(through.keeper);
		assert_int_not_equal(link, old);
	}
}

/* Whoever has the socket of the link dies, and with that the link and all sessions. */
static void the_link_ends_with_its_server(void **state)
{
	struct far far = start_far("localhost", far_server.port, 5);
	PGconn *conn = connected_as(&far, "alice");
	uint64_t deadline = clock_mono_ms() + GENEROUS_MS;
	bool refused = false;

	(void)state;
	stop_far(&far);
	assert_true(is_closed(conn));
	PQfinish(conn);
	/* It may die between the end of a session and that of its socket. */
	while (!refused && clock_mono_ms() < deadline) {
		conn = connect_as(&far, "alice");
		assert_int_equal(PQstatus(conn), CONNECTION_BAD);
		refused = strstr(PQerrorMessage(conn), "Connection refused");
		PQfinish(conn);
	}
	assert_true(refused);
}

/* -- bounds and walls ----------------------------------------------------------------------------
 */

static void as_many_as_declared(void **state)
{
	struct far far = start_far("localhost", far_server.port, 3);
	PGconn *conns[3];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(conns); i++)
		conns[i] = connected_as(&far, "alice");
	for (int i = 0; i < 2; i++)
		expect_no_session(&far, "all 3 connections");
	/* A place that was given up may be taken at once, although its way out takes a moment. */
	for (int i = 0; i < 50; i++) {
		PQfinish(conns[i % 3]);
		conns[i % 3] = connected_as(&far, "alice");
	}
	for (size_t i = 0; i < ARRAY_LEN(conns); i++) {
		assert_string_equal(value(conns[i], "SELECT 1"), "1");
		PQfinish(conns[i]);
	}
	stop_far(&far);
}

static void the_link_is_confined(void **state)
{
	pid_t link = child_of(through.keeper);

	(void)state;
	assert_int_equal(status_of(link, "Seccomp:"), 2);
	assert_int_equal(status_of(link, "NoNewPrivs:"), 1);
	assert_int_equal(status_of(link, "CapEff:"), 0);
}

static void a_socket_that_is_left_over(void **state)
{
	struct link_conf conf = { "localhost", far_server.port, ours_path, 5, CONFINE_KILL };
	char dir[64], path[100];
	struct stat st;
	int sock;

	(void)state;
	path_of("left", dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/.s.PGSQL.5432", dir);
	for (int i = 0; i < 2; i++) {
		assert_ok(link_start(&conf, dir, &sock, &e));
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode, S_IFSOCK | 0600);
		fd_close(&sock);
		assert_int_equal(waitpid(child_of(getpid()), NULL, 0) > 0, 1);
	}
	assert_int_equal(unlink(path), 0);
	put_bytes(path, "x", 1);
	assert_code(link_start(&conf, dir, &sock, &e), EEXIST);
	assert_non_null(strstr(e.text, "no socket"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_session),
		cmocka_unit_test(a_wrong_password),
		cmocka_unit_test(no_login_that_shows_the_password),
		cmocka_unit_test(no_login_without_a_password),
		cmocka_unit_test(sessions_do_not_mix),
		cmocka_unit_test(a_query_is_cancelled),
		cmocka_unit_test(much_arrives_as_it_is),
		cmocka_unit_test(the_client_closes),
		cmocka_unit_test(the_server_closes),
		cmocka_unit_test(the_server_starts_anew),
		cmocka_unit_test(the_link_dies),
		cmocka_unit_test(the_link_ends_with_its_server),
		cmocka_unit_test(as_many_as_declared),
		cmocka_unit_test(the_link_is_confined),
		cmocka_unit_test(a_socket_that_is_left_over),
	};
	int failed;

	far_begin();
	find_postgres();
	begin_all(NULL);
	failed = RUN_TESTS(tests);
	end_all(NULL);
	return far_end(failed);
}
