/* Servers that are not what they should be: libpq hears why, and they hear no password. */
#include "daemon/link/test_far.h"

#include "common/authorities.h"
#include "daemon/link/database.h"

#include <openssl/err.h>
#include <pthread.h>
#include <signal.h>

#define SILENCES 5

enum how {
	CLOSES,
	SAYS_NO_TLS,
	SAYS_NONSENSE,
	SILENT_BEFORE_TLS,
	SILENT_IN_TLS,
	/* from here on there is TLS */
	CLOSES_AFTER_TLS,
	SILENT_AFTER_TLS,
	SILENT_AFTER_OFFER,
	ASKS_CLEARTEXT,
	ASKS_MD5,
	ASKS_LATER,
	OFFERS_TOO_MUCH,
	SAYS_ELSE,
	FAILS,
};

struct fake {
	enum how how;
	SSL_CTX *tls;
	int listener;
	uint16_t port;
	pthread_t thread;
	size_t heard_len;
	char heard[16384];
};

static struct authority theirs;

/* What stands in a certificate that is fine. */
static const struct wanted fine = { "localhost", "DNS:localhost,IP:127.0.0.1", -DAY, DAY };

/* -- the server that the test plays --------------------------------------------------------------
 */

static ssize_t hear_some(struct fake *f, int fd, SSL *tls)
{
	char *at = f->heard + f->heard_len;
	size_t room = sizeof(f->heard) - f->heard_len;
	ssize_t n = tls ? SSL_read(tls, at, (int)room) : recv(fd, at, room, 0);

	f->heard_len += n > 0 ? (size_t)n : 0;
	return n;
}

static void hear_all(struct fake *f, int fd, SSL *tls)
{
	while (hear_some(f, fd, tls) > 0)
		;
}

static void say(SSL *tls, const char *text, size_t len)
{
	assert_int_equal(SSL_write(tls, text, (int)len), (int)len);
}

#define SAY(tls, text) say(tls, text, sizeof(text) - 1)

static void say_too_much(SSL *tls)
{
	static const char offer[3000] = "R\0\0\x0b\xb7\0\0\0\x0a";

	say(tls, offer, sizeof(offer));
}

static void speak(struct fake *f, SSL *tls)
{
	static const char offer[] = "R\0\0\0\x2a\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0";

	(void)hear_some(f, -1, tls); /* who wants to log in */
	if (f->how == ASKS_CLEARTEXT)
		SAY(tls, "R\0\0\0\x08\0\0\0\x03");
	if (f->how == ASKS_MD5)
		SAY(tls, "R\0\0\0\x0c\0\0\0\x05salt");
	if (f->how == OFFERS_TOO_MUCH)
		say_too_much(tls);
	if (f->how == SAYS_ELSE)
		SAY(tls, "Z\0\0\0\x05I");
	if (f->how == FAILS)
		SAY(tls, "E\0\0\0\x24SFATAL\0C53300\0Mtoo many of you\0\0");
	if (f->how == ASKS_LATER || f->how == SILENT_AFTER_OFFER)
		say(tls, offer, sizeof(offer));
	if (f->how == ASKS_LATER) {
		(void)hear_some(f, -1, tls);
		SAY(tls, "R\0\0\0\x08\0\0\0\x03");
	}
	if (f->how == SILENT_AFTER_TLS || f->how == SILENT_AFTER_OFFER)
		hear_all(f, -1, tls);
	else if (f->how != CLOSES_AFTER_TLS && f->how != FAILS)
		(void)hear_some(f, -1, tls); /* the answer, if there is one */
	(void)SSL_shutdown(tls);
}

static void speak_tls(struct fake *f, int fd)
{
	SSL *tls = SSL_new(f->tls);

	assert_int_equal(SSL_set_fd(tls, fd), 1);
	if (SSL_accept(tls) == 1)
		speak(f, tls);
	else
		hear_all(f, fd, NULL);
	SSL_free(tls);
}

static void *play(void *ctx)
{
	struct fake *f = ctx;
	auto_close int fd = accept(f->listener, NULL, NULL);

	if (f->how == CLOSES)
		return NULL;
	(void)hear_some(f, fd, NULL);
	if (f->how == SAYS_NO_TLS)
		(void)send(fd, "N", 1, MSG_NOSIGNAL);
	if (f->how == SAYS_NONSENSE)
		(void)send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, MSG_NOSIGNAL);
	if (f->how >= SILENT_IN_TLS)
		(void)send(fd, "S", 1, MSG_NOSIGNAL);
	if (f->how > SILENT_IN_TLS)
		speak_tls(f, fd);
	else
		hear_all(f, fd, NULL);
	return NULL;
}

static struct fake *new_fake(enum how how, const struct wanted *w, const struct authority *by)
{
	struct fake *f = calloc(1, sizeof(*f));
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = new_certificate(key, w, by);

	assert_non_null(f);
	f->how = how;
	f->listener = open_port(16, &f->port);
	f->tls = SSL_CTX_new(TLS_server_method());
	assert_int_equal(SSL_CTX_use_certificate(f->tls, cert), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(f->tls, key), 1);
	X509_free(cert);
	EVP_PKEY_free(key);
	return f;
}

static void start_fake(struct fake *f)
{
	assert_int_equal(pthread_create(&f->thread, NULL, play, f), 0);
}

static bool has_heard(const struct fake *f, const char *text)
{
	return memmem(f->heard, f->heard_len, text, strlen(text));
}

static void free_fake(struct fake *f)
{
	fd_close(&f->listener);
	SSL_CTX_free(f->tls);
	free(f);
}

/* Once the link has closed.  What is no secret may be said where there is verified TLS. */
static void end_fake(struct fake *f)
{
	assert_int_equal(pthread_join(f->thread, NULL), 0);
	assert_false(has_heard(f, PASSWORD));
	free_fake(f);
}

/* -- what libpq is told --------------------------------------------------------------------------
 */

static void expect_refusal(const char *host, struct fake *f, const char *text)
{
	struct far far = start_far(host, f->port, 5);

	start_fake(f);
	expect_no_session(&far, text);
	assert_int_equal(pthread_join(f->thread, NULL), 0);
	assert_int_equal(has_heard(f, "alice"), f->how > SILENT_IN_TLS && strstr(text, "Postgre"));
	start_fake(f); /* for end_fake(): another visit, and the same */
	expect_no_session(&far, text);
	stop_far(&far);
	end_fake(f);
}

static void certificates_that_do_not_do(void **state)
{
	const struct wanted other = { "localhost", "DNS:db.example.org,IP:127.0.0.9", -DAY, DAY };
	const struct wanted name = { "localhost", "DNS:localhost", -DAY, DAY };
	const struct wanted old = { "localhost", "DNS:localhost", -2 * DAY, -DAY };
	const struct wanted early = { "localhost", "DNS:localhost", DAY, 2 * DAY };
	const struct wanted subject = { "localhost", NULL, -DAY, DAY };
	const struct wanted partial = { "localhost", "DNS:l*.org", -DAY, DAY };
	const struct {
		const char *host;
		const struct wanted *wanted;
		const struct authority *by;
		const char *text;
	} cases[] = {
		{ "localhost", &fine, &theirs, "unable to get local issuer certificate" },
		{ "localhost", &fine, NULL, "self-signed certificate" },
		{ "localhost", &other, &ours, "ostname mismatch" },
		{ "localhost", &partial, &ours, "ostname mismatch" },
		{ "localhost", &subject, &ours, "ostname mismatch" },
		{ "127.0.0.1", &other, &ours, "IP address mismatch" },
		{ "127.0.0.1", &name, &ours, "IP address mismatch" },
		{ "localhost", &old, &ours, "certificate has expired" },
		{ "localhost", &early, &ours, "certificate is not yet valid" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		expect_refusal(cases[i].host,
		               new_fake(SILENT_AFTER_TLS, cases[i].wanted, cases[i].by),
		               cases[i].text);
}

static void servers_without_tls(void **state)
{
	struct fake *f = new_fake(ASKS_CLEARTEXT, &fine, &ours);

	(void)state;
	expect_refusal("localhost", new_fake(SAYS_NO_TLS, &fine, &ours),
	               "has no TLS; set ssl = on");
	expect_refusal("localhost", new_fake(SAYS_NONSENSE, &fine, &ours),
	               "gave no answer of PostgreSQL's");
	expect_refusal("localhost", new_fake(CLOSES, &fine, &ours), "closed the connection when");
	SSL_CTX_set_security_level(f->tls, 0);
	assert_int_equal(SSL_CTX_set_min_proto_version(f->tls, TLS1_VERSION), 1);
	assert_int_equal(SSL_CTX_set_max_proto_version(f->tls, TLS1_1_VERSION), 1);
	expect_refusal("localhost", f, "TLS with localhost");
}

static void logins_that_do_not_do(void **state)
{
	static const struct {
		enum how how;
		const char *text;
	} cases[] = {
		{ ASKS_CLEARTEXT, "it asks for the password in "
		                  "cleartext; let the database's roles" },
		{ ASKS_MD5, "it asks for the password by MD5" },
		{ ASKS_LATER, "it asks for the password in "
		              "cleartext" },
		{ OFFERS_TOO_MUCH, "the length of a message" },
		{ SAYS_ELSE, "it says something else" },
		{ CLOSES_AFTER_TLS, "it closes the connection "
		                    "before the login is over" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct fake *f = new_fake(cases[i].how, &fine, &ours);
		char text[300];

		(void)snprintf(text, sizeof(text), "PostgreSQL at localhost, port %u: %s", f->port,
		               cases[i].text);
		expect_refusal("localhost", f, text);
	}
}

/* What a server says of itself comes as it is. */
static void an_error_of_the_server(void **state)
{
	struct fake *f = new_fake(FAILS, &fine, &ours);
	struct far far = start_far("localhost", f->port, 5);

	(void)state;
	start_fake(f);
	expect_no_session(&far, "too many of you");
	stop_far(&far);
	end_fake(f);
}

/* It is the link that keeps the password back: to the same server, libpq gives it away. */
static void what_libpq_would_do_alone(void **state)
{
	struct fake *f = new_fake(ASKS_CLEARTEXT, &fine, &ours);
	char conninfo[300];
	PGconn *conn;

	(void)state;
	(void)snprintf(conninfo, sizeof(conninfo),
	               "host=127.0.0.1 port=%u user=alice password='" PASSWORD
	               "' dbname=postgres sslmode=verify-full sslrootcert=%s sslcert=none.pem "
	               "gssencmode=disable",
	               f->port, ours_path);
	start_fake(f);
	conn = PQconnectdb(conninfo);
	if (!PQconnectionUsedPassword(conn))
		fail_msg("%s", PQerrorMessage(conn));
	PQfinish(conn);
	assert_int_equal(pthread_join(f->thread, NULL), 0);
	assert_true(has_heard(f, PASSWORD));
	free_fake(f);
}

static void nobody_is_there(void **state)
{
	uint16_t port;
	auto_close int fd = open_port(-1, &port);
	struct far far = start_far("localhost", port, 5);

	(void)state;
	expect_no_session(&far, "nobody listens at localhost");
	stop_far(&far);
	far = start_far("nowhere.invalid", port, 5);
	expect_no_session(&far, "nowhere.invalid");
	stop_far(&far);
}

/* -- silence
 * --------------------------------------------------------------------------------------- */

struct silence {
	struct far far;
	PGconn *conn;
	uint64_t ended_ms; /* 0 = not yet */
	const char *text;
};

/* No SYN is answered any more. */
static int deaf_port(uint16_t *ret_port, int fillers[4])
{
	int fd = open_port(0, ret_port);
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(*ret_port) };

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < 4; i++) {
		fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void)connect(fillers[i], (const struct sockaddr *)&to, sizeof(to));
	}
	return fd;
}

/* The link, whose process is made before there are threads; it is asked later. */
static void begin_silence(struct silence *s, uint16_t port, const char *text)
{
	s->far = start_far("localhost", port, 5);
	s->text = text;
}

static void ask_silence(struct silence *s)
{
	char conninfo[200];

	(void)snprintf(conninfo, sizeof(conninfo),
	               "host=%.63s user=alice password='" PASSWORD "' dbname=postgres", s->far.dir);
	s->conn = PQconnectStart(conninfo);
}

static void await_all(struct silence s[SILENCES])
{
	uint64_t deadline = clock_mono_ms() + GENEROUS_MS;
	int left = SILENCES;

	for (; left > 0 && clock_mono_ms() < deadline; usleep(5000))
		for (int i = 0; i < SILENCES; i++) {
			if (s[i].ended_ms || PQconnectPoll(s[i].conn) != PGRES_POLLING_FAILED)
				continue;
			s[i].ended_ms = clock_mono_ms();
			left--;
		}
	assert_int_equal(left, 0);
}

/* Five seconds, and all of them at once, so that the test takes no more than that. */
static void silence_has_an_end(void **state)
{
	struct fake *fakes[] = { new_fake(SILENT_BEFORE_TLS, &fine, &ours),
		                 new_fake(SILENT_IN_TLS, &fine, &ours),
		                 new_fake(SILENT_AFTER_TLS, &fine, &ours),
		                 new_fake(SILENT_AFTER_OFFER, &fine, &ours) };
	struct silence s[SILENCES] = { 0 };
	uint64_t began;
	int fillers[4], deaf;
	uint16_t port;

	(void)state;
	deaf = deaf_port(&port, fillers);
	begin_silence(&s[4], port, "no answer from localhost");
	for (int i = 0; i < 4; i++) {
		begin_silence(&s[i], fakes[i]->port,
		              i < 2 ? "no answer from localhost" : "silent for 5 s during");
	}
	for (int i = 0; i < 4; i++)
		start_fake(fakes[i]);
	began = clock_mono_ms();
	for (int i = 0; i < SILENCES; i++)
		ask_silence(&s[i]);
	await_all(s);
	for (int i = 0; i < SILENCES; i++) {
		assert_in_range(s[i].ended_ms - began, LINK_PATIENCE_MS, 4 * LINK_PATIENCE_MS);
		if (!strstr(PQerrorMessage(s[i].conn), s[i].text))
			fail_msg("%d: %s", i, PQerrorMessage(s[i].conn));
		PQfinish(s[i].conn);
		stop_far(&s[i].far);
		fd_close(&fillers[i % 4]);
	}
	for (int i = 0; i < 4; i++)
		end_fake(fakes[i]);
	fd_close(&deaf);
}

/* -- starts
 * ---------------------------------------------------------------------------------------- */

static void starts_that_fail(void **state)
{
	char none[64], empty[64], broken[64], dir[64], far_dir[200];
	struct link_conf conf = { "localhost", 5432, ours_path, 5, CONFINE_ENFORCE };
	int sock = -1;

	(void)state;
	assert_int_equal(mkdir(path_of("starts", dir), 0700), 0);
	conf.ca_file = path_of("none.pem", none);
	assert_code(link_start(&conf, dir, &sock, &e), ENOENT);
	assert_non_null(strstr(e.text, "none.pem"));
	conf.ca_file = path_of("empty.pem", empty);
	put_bytes(empty, "", 0);
	assert_int_equal(link_start(&conf, dir, &sock, &e), -1);
	assert_non_null(strstr(e.text, "empty.pem: no certificate in it"));
	conf.ca_file = path_of("broken.pem", broken);
	put_bytes(broken, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 59);
	assert_int_equal(link_start(&conf, dir, &sock, &e), -1);
	assert_non_null(strstr(e.text, "broken.pem: a certificate is malformed"));
	conf.ca_file = ours_path;
	(void)snprintf(far_dir, sizeof(far_dir), "%s/%0*d", dir, 100, 0);
	assert_code(link_start(&conf, far_dir, &sock, &e), ENAMETOOLONG);
	conf.connections = LINK_CONNECTIONS_MAX + 1;
	assert_code(link_start(&conf, dir, &sock, &e), EINVAL);
	conf.connections = 0;
	assert_code(link_start(&conf, dir, &sock, &e), EINVAL);
	conf.connections = 1;
	conf.host = "";
	assert_code(link_start(&conf, dir, &sock, &e), EINVAL);
	assert_int_equal(sock, -1);
	assert_int_equal(waitpid(-1, NULL, 0), -1); /* nothing goes on */
}

/* A certificate, and then nothing that counts; with one byte more nothing starts. */
static void authorities_are_bounded(void **state)
{
	char many[64], dir[64];
	const struct link_conf conf = { "localhost", 5432, many, 5, CONFINE_KILL };
	int sock;

	(void)state;
	assert_int_equal(mkdir(path_of("bounded", dir), 0700), 0);
	write_pem(path_of("many.pem", many), ours.cert, NULL);
	assert_int_equal(truncate(many, AUTHORITIES_MAX), 0);
	assert_ok(link_start(&conf, dir, &sock, &e));
	fd_close(&sock);
	assert_true(wait(NULL) > 0);
	assert_int_equal(truncate(many, AUTHORITIES_MAX + 1), 0);
	assert_code(link_start(&conf, dir, &sock, &e), EFBIG);
	assert_non_null(strstr(e.text, "many.pem: larger than 16777216 bytes"));
}

/* The socket lies below it. */
static void the_state_directory_is_bounded(void **state)
{
	const size_t most = CLUSTER_SOCKET_DIR_MAX - strlen("/db");
	struct database_url url = { .host = "localhost", .port = 5432 };
	char deep[CLUSTER_SOCKET_DIR_MAX];
	struct database d = { &url, deep, 5, CONFINE_KILL, -1, -1, "" };

	(void)state;
	memcpy(url.ca_file, ours_path, sizeof(ours_path));
	(void)snprintf(deep, sizeof(deep), "%s/%0*d", state_dir, (int)(most - sizeof(state_dir)),
	               0);
	assert_int_equal(strlen(deep), most);
	assert_int_equal(mkdir(deep, 0700), 0);
	assert_ok(database_link(&d, &e));
	database_release(&d);
	assert_true(wait(NULL) > 0);
	memcpy(deep + most, "0", 2);
	assert_code(database_link(&d, &e), ENAMETOOLONG);
	assert_non_null(strstr(e.text, "is longer than 77 bytes"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(certificates_that_do_not_do),
		cmocka_unit_test(servers_without_tls),
		cmocka_unit_test(logins_that_do_not_do),
		cmocka_unit_test(an_error_of_the_server),
		cmocka_unit_test(what_libpq_would_do_alone),
		cmocka_unit_test(nobody_is_there),
		cmocka_unit_test(silence_has_an_end),
		cmocka_unit_test(starts_that_fail),
		cmocka_unit_test(authorities_are_bounded),
		cmocka_unit_test(the_state_directory_is_bounded),
	};
	int failed;

	(void)signal(SIGPIPE, SIG_IGN);
	far_begin();
	theirs = new_authority("somebody else's authority");
	failed = RUN_TESTS(tests);
	free_authority(&theirs);
	return far_end(failed);
}
