/* How many sockets are read on after their end. */
#include "common/test.h"

#include "common/fd.h"
#include "daemon/http/linger.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define NOW_MS 1000

/* Whose answer was written and whose socket is closed, by all but the list; the client's end. */
static int answered(struct linger_list *l)
{
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	linger_add(l, ends[0], NOW_MS);
	fd_close(&ends[0]);
	return ends[1];
}

/* Whether its bytes are still taken: who meets a reset may lose the answer. */
static bool is_heard(int client)
{
	if (send(client, "x", 1, MSG_NOSIGNAL) == 1)
		return true;
	assert_int_equal(errno, EPIPE);
	return false;
}

static void one_more_is_closed_at_once(void **state)
{
	auto_close int epoll = epoll_create1(EPOLL_CLOEXEC);
	int clients[LINGER_MAX + 1], later;
	struct linger_list list;

	(void)state;
	linger_init(&list, epoll);
	for (int i = 0; i <= LINGER_MAX; i++)
		clients[i] = answered(&list);
	for (int i = 0; i < LINGER_MAX; i++)
		assert_true(is_heard(clients[i]));
	assert_false(is_heard(clients[LINGER_MAX]));
	assert_int_equal(linger_expire(&list, NOW_MS + LINGER_MS), 0);
	assert_false(is_heard(clients[0]));
	later = answered(&list);
	assert_true(is_heard(later));
	linger_release(&list);
	for (int i = 0; i <= LINGER_MAX; i++)
		fd_close(&clients[i]);
	fd_close(&later);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_more_is_closed_at_once),
	};

	return RUN_TESTS(tests);
}
