/* Name service that does not answer, and hosts of which one address does not; it is played here. */
#include "common/test.h"

#include "common/clock.h"
#include "common/fd.h"
#include "daemon/link/names.h"
#include "daemon/link/reach.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#define GENEROUS_MS 60000

static struct err e;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static bool stuck;
static unsigned int waiting;

/* -- the resolver --------------------------------------------------------------------------------
 */

static struct addrinfo *address(const char *text, const char *port, struct addrinfo *next)
{
	struct addrinfo *one = calloc(1, sizeof(*one) + sizeof(struct sockaddr_in));
	struct sockaddr_in *at = (struct sockaddr_in *)(one + 1);

	assert_non_null(one);
	at->sin_family = AF_INET;
	at->sin_port = htons((uint16_t)strtol(port, NULL, 10));
	assert_int_equal(inet_pton(AF_INET, text, &at->sin_addr), 1);
	*one = (struct addrinfo){ .ai_family = AF_INET,
		                  .ai_addr = (struct sockaddr *)at,
		                  .ai_addrlen = sizeof(*at),
		                  .ai_next = next };
	return one;
}

/* In place of glibc's, with its names. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *req,
                struct addrinfo **pai)
{
	(void)req;
	pthread_mutex_lock(&lock);
	waiting++;
	while (stuck && strcmp(name, "stuck") == 0)
		pthread_cond_wait(&turned, &lock);
	waiting--;
	pthread_mutex_unlock(&lock);
	if (strcmp(name, "none") == 0)
		return EAI_NONAME;
	if (strcmp(name, "later") == 0)
		return EAI_AGAIN;
	*pai = address("127.0.0.1", service, NULL);
	if (strcmp(name, "two") == 0)
		*pai = address("127.0.0.2", service, *pai);
	return 0;
}

void freeaddrinfo(struct addrinfo *ai)
{
	while (ai) {
		struct addrinfo *next = ai->ai_next;

		free(ai);
		ai = next;
	}
}

static void set_stuck(bool value)
{
	pthread_mutex_lock(&lock);
	stuck = value;
	pthread_cond_broadcast(&turned);
	pthread_mutex_unlock(&lock);
}

static int look_up(const char *host, int client, unsigned int ms)
{
	struct addrinfo *found = NULL;
	int rc = names_look_up(host, 5432, client, clock_mono_ms() + ms, &found, &e);

	if (rc == 0)
		freeaddrinfo(found);
	return rc;
}

/* -- the tests ------------------------------------------------------------------------------------
 */

static void what_it_says(void **state)
{
	int ends[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(look_up("one", ends[0], GENEROUS_MS), 0);
	assert_int_equal(look_up("none", ends[0], GENEROUS_MS), -1);
	assert_string_equal(e.text, "name not found");
	assert_int_equal(look_up("later", ends[0], GENEROUS_MS), -1);
	assert_non_null(strstr(e.text, "name service: "));
	fd_close(&ends[0]);
	fd_close(&ends[1]);
}

static unsigned int count_waiting(void)
{
	unsigned int n;

	pthread_mutex_lock(&lock);
	n = waiting;
	pthread_mutex_unlock(&lock);
	return n;
}

/* Nobody waits longer than that, and not at all when the client has gone. */
static void no_answer(void **state)
{
	uint64_t began = clock_mono_ms();
	int ends[2];

	(void)state;
	set_stuck(true);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(look_up("stuck", ends[0], 100), -1);
	assert_int_equal(e.code, ETIMEDOUT);
	assert_true(clock_mono_ms() - began >= 100);
	fd_close(&ends[1]);
	assert_int_equal(look_up("stuck", ends[0], GENEROUS_MS), -1);
	assert_int_equal(e.code, ECANCELED);
	fd_close(&ends[0]);
	/* A thread may come to the resolver after it was given up: not in the next test. */
	while (count_waiting() < 2)
		(void)poll(NULL, 0, 1);
	set_stuck(false);
}

/* Those that were given up count, until they end. */
static void as_many_as_may_wait(void **state)
{
	uint64_t deadline = clock_mono_ms() + GENEROUS_MS;
	int ends[2];

	(void)state;
	while (count_waiting() && clock_mono_ms() < deadline)
		(void)poll(NULL, 0, 1);
	set_stuck(true);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	for (int i = 0; i < NAMES_LOOKUPS_MAX; i++) {
		/* Those of the test before have their answer, and may still count. */
		do
			assert_int_equal(look_up("stuck", ends[0], 1), -1);
		while (e.code == EAGAIN && clock_mono_ms() < deadline);
		assert_int_equal(e.code, ETIMEDOUT);
	}
	assert_int_equal(look_up("one", ends[0], GENEROUS_MS), -1);
	assert_int_equal(e.code, EAGAIN);
	set_stuck(false);
	while (look_up("one", ends[0], GENEROUS_MS) < 0)
		assert_true(e.code == EAGAIN && clock_mono_ms() < deadline);
	fd_close(&ends[0]);
	fd_close(&ends[1]);
}

static int listen_at(const char *text, uint16_t port, int backlog)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(inet_pton(AF_INET, text, &at.sin_addr), 1);
	assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

static void *say_no(void *ctx)
{
	auto_close int fd = accept(*(int *)ctx, NULL, NULL);
	char request[8];

	if (recv(fd, request, sizeof(request), MSG_WAITALL) == sizeof(request))
		(void)send(fd, "N", 1, MSG_NOSIGNAL);
	return NULL;
}

/* What the second of two addresses says, after the first one has refused, or kept silent. */
static void expect_second(const struct reach *r, int listener)
{
	pthread_t thread;
	int ends[2];
	SSL *tls;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(pthread_create(&thread, NULL, say_no, &listener), 0);
	assert_int_equal(reach_open(r, ends[0], &tls, &e), -1);
	assert_non_null(strstr(e.text, "has no TLS"));
	assert_int_equal(pthread_join(thread, NULL), 0);
	fd_close(&ends[0]);
	fd_close(&ends[1]);
}

static void another_address_is_tried(void **state)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	auto_close int second = listen_at("127.0.0.1", 0, 16);
	socklen_t len = sizeof(at);
	struct reach r = { .host = "two" };
	int first, fillers[4];

	(void)state;
	assert_int_equal(getsockname(second, (struct sockaddr *)&at, &len), 0);
	r.port = ntohs(at.sin_port);
	expect_second(&r, second);
	first = listen_at("127.0.0.2", r.port, 0);
	assert_int_equal(inet_pton(AF_INET, "127.0.0.2", &at.sin_addr), 1);
	for (int i = 0; i < 4; i++) {
		fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void)connect(fillers[i], (const struct sockaddr *)&at, sizeof(at));
	}
	expect_second(&r, second);
	for (int i = 0; i < 4; i++)
		fd_close(&fillers[i]);
	fd_close(&first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_it_says),
		cmocka_unit_test(no_answer),
		cmocka_unit_test(as_many_as_may_wait),
		cmocka_unit_test(another_address_is_tried),
	};

	return RUN_TESTS(tests);
}
