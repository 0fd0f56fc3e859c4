/* A server that is none: what it says while somebody logs in, and how long that may take. */
#include "daemon/store/test_fixture.h"

#include "daemon/store/pg.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SAYS                                        \
	"R\0\0\0\x08\0\0\0\0"                       \
	"N\0\0\0\x1bSWARNING\0Mone\n\x1b[2Jtwo\0\0" \
	"Z\0\0\0\x05I"

static int listener = -1;

static void *serve(void *ctx)
{
	auto_close int fd = accept(listener, NULL, NULL);
	char scrap[4096];

	(void)ctx;
	assert_true(recv(fd, scrap, sizeof(scrap), 0) > 0);
	assert_int_equal(send(fd, SAYS, sizeof(SAYS) - 1, MSG_NOSIGNAL), sizeof(SAYS) - 1);
	(void)recv(fd, scrap, sizeof(scrap), 0); /* until the client closes */
	return NULL;
}

static void a_notice_is_not_printed(void **state)
{
	const struct pg_place at = { state_dir, "5432", NULL };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	auto_close int log = memfd_create("log", MFD_CLOEXEC);
	auto_close int old = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	struct pg *pg = NULL;
	pthread_t thread;
	int rc;

	(void)state;
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/.s.PGSQL.5432", state_dir);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
	assert_int_equal(dup2(log, STDERR_FILENO), STDERR_FILENO);
	rc = pg_connect(&at, "somebody", "something", &pg, &e);
	assert_int_equal(dup2(old, STDERR_FILENO), STDERR_FILENO);
	assert_ok(rc);
	pg_close(&pg);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(lseek(log, 0, SEEK_END), 0);
	fd_close(&listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_notice_is_not_printed),
	};
	int failed;

	become_service_user();
	assert_non_null(mkdtemp(state_dir));
	failed = RUN_TESTS(tests);
	return remove_tree_at(state_dir) < 0 ? 1 : failed;
}
