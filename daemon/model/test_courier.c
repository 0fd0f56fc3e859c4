/* The server's end of a request, with a courier that this test plays itself; and the real one. */
#include "common/test.h"

#include "common/authorities.h"
#include "common/clock.h"
#include "common/fd.h"
#include "common/fdmsg.h"
#include "common/log.h"
#include "daemon/model/courier_client.h"
#include "daemon/model/fault.h"
#include "daemon/model/provider.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define WORD "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"
#define ARGUMENTS                                                                    \
	"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\"," \
	"\"function\":{\"name\":\"shell\",\"arguments\":\"x\"}}]}}]}\n\n"

#define GENEROUS_MS 20000 /* for what happens at once, on a slow machine too */

static struct cancel cancel;

static int begin_cancel(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	return cancel_init(&cancel, &e);
}

static int end_cancel(void **state)
{
	(void)state;
	cancel_release(&cancel);
	return 0;
}

/* -- an answer without an end ------------------------------------------------------------------ */

struct fake {
	int sock; /* the courier's end */
	const char *event;
	int requests;
};

static int take_descriptor(int sock)
{
	int fds[FDMSG_MAX];
	size_t count;
	char word;

	return fdmsg_receive(sock, &word, 1, fds, &count, 0) == 1 ? fds[0] : -1;
}

static bool say(int fd, enum courier_piece_kind kind, const void *data, size_t len)
{
	const struct courier_piece piece = { kind, (uint32_t)len };

	return send(fd, &piece, sizeof(piece), MSG_NOSIGNAL) == sizeof(piece) &&
	       send(fd, data, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static void await_close(int fd)
{
	char data[4096];

	while (recv(fd, data, sizeof(data), 0) > 0)
		;
}

/* Says the same event again and again, as fast as it is taken, or waits without one. */
static void *chatter(void *ctx)
{
	const struct courier_head head = { 200, -1, 1 };
	struct fake *f = ctx;
	int fd;

	while ((fd = take_descriptor(f->sock)) >= 0) {
		bool heard = say(fd, COURIER_HEAD, &head, sizeof(head));

		f->requests++;
		if (!f->event)
			await_close(fd);
		while (f->event && heard)
			heard = say(fd, COURIER_BODY, f->event, strlen(f->event));
		fd_close(&fd);
	}
	return NULL;
}

static void hear(void *ctx, const char *text, size_t len)
{
	(void)text;
	*(size_t *)ctx += len;
}

/* Asks it, and it is to be asked once. */
static void ask_chatterer(const char *event, unsigned int attempt_ms, size_t answer_max,
                          size_t *ret_heard, struct err *ret_err)
{
	static struct models models = { .v = { { .id = "m",
		                                 .dialect = DIALECT_CHAT,
		                                 .model = "m",
		                                 .max_output_tokens = 1,
		                                 .idle_ms = GENEROUS_MS } },
		                        .n = 1 };
	const struct item_list transcript = { 0 };
	const struct model_prompt prompt = { .transcript = &transcript, .answer_max = answer_max };
	const struct model_sink sink = { .text = hear, .ctx = ret_heard };
	struct provider p = { .models = &models, .attempt_ms = attempt_ms };
	struct fake fake = { .event = event };
	struct model_answer answer;
	pthread_t thread;
	int ends[2];

	*ret_heard = 0;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	p.sock = ends[0];
	fake.sock = ends[1];
	assert_int_equal(pthread_create(&thread, NULL, chatter, &fake), 0);
	assert_int_equal(provider_respond(&p, &prompt, &sink, &cancel, &answer, ret_err), -1);
	assert_int_equal(answer.items.count, *ret_heard > 0); /* what was heard is kept */
	item_list_release(&answer.items);
	fd_close(&ends[0]);
	assert_int_equal(pthread_join(thread, NULL), 0);
	fd_close(&ends[1]);
	assert_int_equal(fake.requests, 1);
}

#define ATTEMPT_MS 3000 /* longer than this program may stand still */

/* In all it may take so long, and there is no second attempt, whatever it is that comes. */
static void an_attempt_has_an_end(const char *event, bool heard)
{
	uint64_t began = clock_mono_ms();
	struct err e = ERR_INIT;
	size_t bytes;

	ask_chatterer(event, ATTEMPT_MS, 0, &bytes, &e);
	assert_int_equal(e.code, MODEL_FAILED);
	assert_non_null(strstr(e.text, "not whole after"));
	assert_true(clock_mono_ms() - began >= ATTEMPT_MS);
	assert_int_equal(bytes > 0, heard);
}

static void an_answer_that_never_ends(void **state)
{
	(void)state;
	an_attempt_has_an_end(WORD, true);
}

/* Nobody waits for its end, and nobody asks again. */
static void an_answer_that_is_too_long(void **state)
{
	struct err e = ERR_INIT;
	size_t bytes;

	(void)state;
	ask_chatterer(WORD, GENEROUS_MS, 1000, &bytes, &e);
	assert_int_equal(e.code, MODEL_TOO_LONG);
	assert_int_equal(bytes, 1001);
	ask_chatterer(ARGUMENTS, GENEROUS_MS, 1000, &bytes, &e);
	assert_int_equal(e.code, MODEL_TOO_LONG);
}

static void noise_that_never_ends(void **state)
{
	(void)state;
	an_attempt_has_an_end(": noise\n\n", false);
}

static void silence_that_never_ends(void **state)
{
	(void)state;
	an_attempt_has_an_end(NULL, false);
}

/* -- the way to the courier ----------------------------------------------------------------------
 */

static void *fire_later(void *ctx)
{
	(void)ctx;
	(void)poll(NULL, 0, 100);
	cancel_fire(&cancel);
	return NULL;
}

/* Nobody reads, so that the queue of the socket fills up. */
static int fill(int sock, const struct courier_wait *w, struct err *e)
{
	const struct courier_ask ask = { .len = 1 };
	int rc = 0;

	for (int i = 0; i < 100000 && rc == 0; i++) {
		auto_close int fd = -1;

		rc = courier_open(sock, &ask, "x", w, &fd, e);
	}
	return rc;
}

static void a_courier_that_takes_nothing(void **state)
{
	struct courier_wait w = { &cancel, clock_mono_ms() + 200 };
	struct err e = ERR_INIT;
	pthread_t thread;
	int ends[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(fill(ends[0], &w, &e), -1);
	assert_int_equal(e.code, MODEL_STALLED);
	assert_int_equal(pthread_create(&thread, NULL, fire_later, NULL), 0);
	w.deadline_ms = clock_mono_ms() + GENEROUS_MS;
	assert_int_equal(fill(ends[0], &w, &e), -1);
	assert_int_equal(e.code, MODEL_CANCELLED);
	assert_int_equal(pthread_join(thread, NULL), 0);
	fd_close(&ends[1]);
	fd_close(&ends[0]);
}

/* Its keeper has died: the server ends, and who waits for a model is cancelled by that. */
static void a_courier_that_is_gone(void **state)
{
	struct courier_wait w = { &cancel, clock_mono_ms() + 200 };
	struct err e = ERR_INIT;
	pthread_t thread;
	int ends[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	fd_close(&ends[1]);
	assert_int_equal(fill(ends[0], &w, &e), -1);
	assert_int_equal(e.code, MODEL_FAILED);
	assert_true(clock_mono_ms() >= w.deadline_ms);
	assert_int_equal(pthread_create(&thread, NULL, fire_later, NULL), 0);
	w.deadline_ms = clock_mono_ms() + GENEROUS_MS;
	assert_int_equal(fill(ends[0], &w, &e), -1);
	assert_int_equal(e.code, MODEL_CANCELLED);
	assert_int_equal(pthread_join(thread, NULL), 0);
	fd_close(&ends[0]);
}

/* What it says is taken by pieces, none of which is longer than there is room for. */
static void pieces_are_bounded(void **state)
{
	static char body[COURIER_PIECE_MAX + 1];
	const struct courier_wait w = { &cancel, clock_mono_ms() + GENEROUS_MS };
	auto_free struct courier_reply *reply = malloc(sizeof(*reply));
	struct err e = ERR_INIT;
	int ends[2];

	(void)state;
	assert_non_null(reply);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	assert_true(say(ends[1], COURIER_BODY, body, COURIER_PIECE_MAX));
	assert_int_equal(courier_next(ends[0], &w, reply, &e), 0);
	assert_int_equal(reply->piece.len, COURIER_PIECE_MAX);
	assert_true(say(ends[1], COURIER_BODY, body, COURIER_PIECE_MAX + 1));
	assert_int_equal(courier_next(ends[0], &w, reply, &e), -1);
	assert_int_equal(e.code, MODEL_FAILED);
	fd_close(&ends[1]);
	fd_close(&ends[0]);
}

/* -- the courier itself ---------------------------------------------------------------------------
 */

static int start_courier(const struct courier_conf *conf)
{
	struct err e = ERR_INIT;
	int sock = -1;

	assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	if (courier_start(conf, &sock, &e) < 0)
		fail_msg("%s", e.text);
	return sock;
}

static void send_two(int sock, int first, int second)
{
	assert_int_equal(fdmsg_send(sock, "x", 1, (int[]){ first, second }, 2, 0), 1);
}

/* Whether nobody has the other end any more. */
static bool is_closed(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char byte;

	return poll(&p, 1, GENEROUS_MS) == 1 && recv(fd, &byte, 1, 0) == 0;
}

/* A second descriptor would stay open in it for ever; neither is taken. */
static void one_descriptor_comes_with_a_request(void **state)
{
	const struct courier_conf conf = { .mode = CONFINE_ENFORCE };
	int first[2], second[2], sock = start_courier(&conf);

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, first), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, second), 0);
	send_two(sock, first[1], second[1]);
	fd_close(&first[1]);
	fd_close(&second[1]);
	assert_true(is_closed(second[0]));
	assert_true(is_closed(first[0]));
	fd_close(&first[0]);
	fd_close(&second[0]);
	fd_close(&sock);
	assert_true(wait(NULL) > 0);
}

static bool is_refused(int sock, const struct courier_ask *ask)
{
	const struct courier_wait w = { &cancel, clock_mono_ms() + GENEROUS_MS };
	auto_free struct courier_reply *reply = malloc(sizeof(*reply));
	auto_close int fd = -1;
	struct err e = ERR_INIT;

	/* What it does not take it closes, before it has all of it or after. */
	assert_non_null(reply);
	return courier_open(sock, ask, "{}", &w, &fd, &e) < 0 ||
	       (courier_next(fd, &w, reply, &e) < 0 && e.code == MODEL_UNREACHABLE);
}

/* No other place, and nothing that ends a header; what is sound is tried, and fails otherwise. */
static void nothing_is_sent_elsewhere(void **state)
{
	static struct endpoint place = { .url = "http://127.0.0.1:9/", .local = true, .port = 9 };
	const struct courier_conf conf = { .mcp = &place, .mcp_count = 1, .mode = CONFINE_ENFORCE };
	const struct courier_ask bad[] = {
		{ .len = 2 }, /* there are no models */
		{ .place = 1, .len = 2, .to = COURIER_TO_MCP },
		{ .place = UINT32_MAX, .len = 2, .to = COURIER_TO_MCP },
		{ .len = 2, .to = COURIER_TO_MCP_END + 1 },
		{ .len = 2, .to = COURIER_TO_MCP, .session = "a\r\nHost: x" },
		{ .len = 2, .to = COURIER_TO_MCP, .session = "a b" },
		{ .len = 2, .to = COURIER_TO_MCP, .session = "\xc3\xa9" },
		{ .len = 2, .to = COURIER_TO_MCP, .version = "1\nX: y" },
	};
	const struct courier_ask good = {
		.len = 2, .to = COURIER_TO_MCP, .session = "a", .version = "1"
	};
	struct courier_ask longest = good, endless;
	int sock = start_courier(&conf);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (!is_refused(sock, &bad[i]))
			fail_msg("taken: %zu", i);
	assert_false(is_refused(sock, &good));
	memset(longest.session, 'a', COURIER_SESSION_MAX);
	memset(longest.version, '1', COURIER_VERSION_MAX);
	assert_false(is_refused(sock, &longest));
	endless = longest;
	endless.session[COURIER_SESSION_MAX] = 'a';
	assert_true(is_refused(sock, &endless));
	endless = longest;
	endless.version[COURIER_VERSION_MAX] = '1';
	assert_true(is_refused(sock, &endless));
	fd_close(&sock);
	assert_true(wait(NULL) > 0);
}

/* With one byte more nothing starts, and the file is named. */
static void authorities_are_bounded(void **state)
{
	const struct endpoint place = { .secure = true, .port = 9 };
	const struct courier_conf conf = { .mcp = &place, .mcp_count = 1, .mode = CONFINE_ENFORCE };
	char path[] = "/tmp/authorities-XXXXXX";
	auto_close int fd = mkostemp(path, O_CLOEXEC);
	struct err e = ERR_INIT;
	int sock;

	(void)state;
	assert_int_equal(setenv("SSL_CERT_FILE", path, 1), 0);
	assert_int_equal(ftruncate(fd, AUTHORITIES_MAX), 0);
	sock = start_courier(&conf);
	fd_close(&sock);
	assert_true(wait(NULL) > 0);
	assert_int_equal(ftruncate(fd, AUTHORITIES_MAX + 1), 0);
	assert_int_equal(courier_start(&conf, &sock, &e), -1);
	assert_non_null(strstr(e.text, path));
	assert_non_null(strstr(e.text, ": larger than 16777216 bytes"));
	assert_int_equal(unsetenv("SSL_CERT_FILE"), 0);
	assert_int_equal(unlink(path), 0);
}

/* -- as many as there may be ----------------------------------------------------------------------
 */

/* A request that has not said yet what it wants. */
static int take_place(int sock)
{
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(fdmsg_send(sock, "x", 1, &ends[1], 1, 0), 1);
	fd_close(&ends[1]);
	return ends[0];
}

/* What is let in is tried, and fails otherwise. */
static void requests_are_bounded(void **state)
{
	static struct endpoint place = { .url = "http://127.0.0.1:9/", .local = true, .port = 9 };
	const struct courier_conf conf = { .mcp = &place, .mcp_count = 1, .mode = CONFINE_ENFORCE };
	const struct courier_ask ask = { .len = 2, .to = COURIER_TO_MCP };
	int sock, places[COURIER_REQUESTS_MAX];
	struct rlimit old, most;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	most = (struct rlimit){ old.rlim_max, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &most), 0);
	sock = start_courier(&conf);
	for (int i = 0; i < COURIER_REQUESTS_MAX - 1; i++)
		places[i] = take_place(sock);
	assert_false(is_refused(sock, &ask));
	places[COURIER_REQUESTS_MAX - 1] = take_place(sock);
	assert_true(is_refused(sock, &ask));
	for (int i = 0; i < COURIER_REQUESTS_MAX; i++)
		fd_close(&places[i]);
	fd_close(&sock);
	assert_true(wait(NULL) > 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

/* Seen by the courier and the test. */
struct looks {
	atomic_int begun;
	atomic_int courier; /* its process id */
};

static struct looks *looks;

/* In place of glibc's, with its names: it never answers. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *req,
                struct addrinfo **pai)
{
	(void)name, (void)service, (void)req, (void)pai;
	atomic_store(&looks->courier, getpid());
	atomic_fetch_add(&looks->begun, 1);
	for (;;)
		(void)poll(NULL, 0, -1);
}

static void await_looks(int wanted)
{
	uint64_t deadline = clock_mono_ms() + GENEROUS_MS;

	while (atomic_load(&looks->begun) < wanted && clock_mono_ms() < deadline)
		(void)poll(NULL, 0, 1);
	assert_int_equal(atomic_load(&looks->begun), wanted);
}

static void ask_at(int fd)
{
	const struct courier_ask ask = { .len = 2, .to = COURIER_TO_MCP };

	assert_int_equal(send(fd, &ask, sizeof(ask), MSG_NOSIGNAL), sizeof(ask));
	assert_int_equal(send(fd, "{}", 2, MSG_NOSIGNAL), 2);
}

static void expect_too_many(int fd)
{
	const struct courier_wait w = { &cancel, clock_mono_ms() + GENEROUS_MS };
	auto_free struct courier_reply *reply = malloc(sizeof(*reply));
	struct err e = ERR_INIT;

	assert_non_null(reply);
	assert_int_equal(courier_next(fd, &w, reply, &e), 0);
	assert_int_equal(reply->piece.kind, COURIER_END);
	assert_int_equal(reply->end.code, MODEL_UNREACHABLE);
	assert_non_null(strstr(reply->end.text, "too many wait for it"));
}

/* One more than there may be, and all but the first at once: the courier is held meanwhile. */
static void look_ups_are_bounded(void **state)
{
	static struct endpoint place = { .url = "http://nobody.example:9/", .port = 9 };
	const struct courier_conf conf = { .mcp = &place, .mcp_count = 1, .mode = CONFINE_ENFORCE };
	const struct courier_ask nowhere = { .place = 1, .len = 2, .to = COURIER_TO_MCP };
	struct pollfd p[COURIER_THREADS_MAX + 1];
	int sock, told = 0;

	(void)state;
	looks = mmap(NULL, sizeof(*looks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	             0);
	assert_ptr_not_equal(looks, MAP_FAILED);
	sock = start_courier(&conf);
	for (size_t i = 0; i < ARRAY_LEN(p); i++)
		p[i] = (struct pollfd){ .fd = take_place(sock), .events = POLLIN };
	assert_true(is_refused(sock, &nowhere)); /* so it has all of them */
	ask_at(p[0].fd);
	await_looks(1);
	assert_int_equal(kill(atomic_load(&looks->courier), SIGSTOP), 0);
	for (size_t i = 1; i < ARRAY_LEN(p); i++)
		ask_at(p[i].fd);
	assert_int_equal(kill(atomic_load(&looks->courier), SIGCONT), 0);
	await_looks(COURIER_THREADS_MAX);
	assert_int_equal(poll(p, ARRAY_LEN(p), GENEROUS_MS), 1);
	while (!p[told].revents)
		told++;
	expect_too_many(p[told].fd);
	assert_int_equal(atomic_load(&looks->begun), COURIER_THREADS_MAX);
	for (size_t i = 0; i < ARRAY_LEN(p); i++)
		fd_close(&p[i].fd);
	fd_close(&sock);
	assert_true(wait(NULL) > 0);
	assert_int_equal(munmap(looks, sizeof(*looks)), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_answer_that_never_ends, begin_cancel,
		                                end_cancel),
		cmocka_unit_test_setup_teardown(an_answer_that_is_too_long, begin_cancel,
		                                end_cancel),
		cmocka_unit_test_setup_teardown(noise_that_never_ends, begin_cancel, end_cancel),
		cmocka_unit_test_setup_teardown(silence_that_never_ends, begin_cancel, end_cancel),
		cmocka_unit_test_setup_teardown(a_courier_that_takes_nothing, begin_cancel,
		                                end_cancel),
		cmocka_unit_test_setup_teardown(a_courier_that_is_gone, begin_cancel, end_cancel),
		cmocka_unit_test_setup_teardown(pieces_are_bounded, begin_cancel, end_cancel),
		cmocka_unit_test(one_descriptor_comes_with_a_request),
		cmocka_unit_test(authorities_are_bounded),
		cmocka_unit_test_setup_teardown(nothing_is_sent_elsewhere, begin_cancel,
		                                end_cancel),
		cmocka_unit_test_setup_teardown(requests_are_bounded, begin_cancel, end_cancel),
		cmocka_unit_test_setup_teardown(look_ups_are_bounded, begin_cancel, end_cancel),
	};

	log_setup("test", LOG_ERROR);
	return RUN_TESTS(tests);
}
