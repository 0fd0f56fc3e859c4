/* The server's end of a request, with a courier that this test plays itself; and the real one. */
#include "common/test.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/model/courier_client.h"
#include "daemon/model/fault.h"
#include "daemon/model/provider.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

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
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	char word;
	struct iovec iov = { &word, 1 };
	struct msghdr m = { .msg_iov = &iov,
		            .msg_iovlen = 1,
		            .msg_control = control.bytes,
		            .msg_controllen = sizeof(control.bytes) };
	int fd = -1;

	if (recvmsg(sock, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
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

/* In all it may take so long, and there is no second attempt, whatever it is that comes. */
static void an_attempt_has_an_end(const char *event, bool heard)
{
	struct models models = { .v = { { .id = "m",
		                          .dialect = DIALECT_CHAT,
		                          .model = "m",
		                          .max_output_tokens = 1,
		                          .idle_ms = GENEROUS_MS } },
		                 .n = 1 };
	const struct item_list transcript = { 0 };
	const struct model_prompt prompt = { .transcript = &transcript };
	struct provider p = { .models = &models, .attempt_ms = 300 };
	struct fake fake = { .event = event };
	struct model_answer answer;
	struct err e = ERR_INIT;
	uint64_t began = clock_mono_ms();
	size_t bytes = 0;
	const struct model_sink sink = { .text = hear, .ctx = &bytes };
	pthread_t thread;
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	p.sock = ends[0];
	fake.sock = ends[1];
	assert_int_equal(pthread_create(&thread, NULL, chatter, &fake), 0);
	assert_int_equal(provider_respond(&p, &prompt, &sink, &cancel, &answer, &e), -1);
	fd_close(&ends[0]);
	assert_int_equal(pthread_join(thread, NULL), 0);
	fd_close(&ends[1]);
	assert_int_equal(e.code, MODEL_FAILED);
	assert_non_null(strstr(e.text, "not whole after"));
	assert_true(clock_mono_ms() - began >= 300);
	assert_int_equal(fake.requests, 1);
	assert_int_equal(bytes > 0, heard);
}

static void an_answer_that_never_ends(void **state)
{
	(void)state;
	an_attempt_has_an_end("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n", true);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_answer_that_never_ends, begin_cancel,
		                                end_cancel),
		cmocka_unit_test_setup_teardown(noise_that_never_ends, begin_cancel, end_cancel),
		cmocka_unit_test_setup_teardown(silence_that_never_ends, begin_cancel, end_cancel),
	};

	log_setup("test", LOG_ERROR);
	return RUN_TESTS(tests);
}
