#include "common/test.h"

#include "daemon/launcher/notify.h"

#include "common/fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The manager's side: a socket, named in the environment as text. */
static int manager(const struct sockaddr_un *address, socklen_t len, const char *text)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)address, len), 0);
	assert_int_equal(setenv("NOTIFY_SOCKET", text, 1), 0);
	assert_int_equal(setenv("WATCHDOG_PID", "1", 1), 0);
	assert_int_equal(setenv("WATCHDOG_USEC", "30000000", 1), 0);
	return fd;
}

static void assert_environment_clean(void)
{
	assert_null(getenv("NOTIFY_SOCKET"));
	assert_null(getenv("WATCHDOG_PID"));
	assert_null(getenv("WATCHDOG_USEC"));
}

static void assert_told(int fd, const char *expected)
{
	char got[64];
	ssize_t n = recv(fd, got, sizeof(got), 0);

	assert_int_equal(n, strlen(expected));
	assert_memory_equal(got, expected, (size_t)n);
	/* One datagram, not more. */
	assert_int_equal(recv(fd, got, sizeof(got), 0), -1);
	assert_int_equal(errno, EAGAIN);
}

static void test_path(void **state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	auto_close int fd = -1;
	struct notify n;
	struct err e = ERR_INIT;

	(void)state;
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/test-notify-%d",
	               (int)getpid());
	fd = manager(&address, sizeof(address), address.sun_path);
	assert_int_equal(notify_take(&n, &e), 0);
	assert_environment_clean();
	assert_int_equal(notify_send(&n, "READY=1", &e), 0);
	assert_told(fd, "READY=1");
	assert_int_equal(notify_send(&n, "STOPPING=1\nSTATUS=a b", &e), 0);
	assert_told(fd, "STOPPING=1\nSTATUS=a b");
	/* The manager is gone: said, not waited for. */
	assert_int_equal(unlink(address.sun_path), 0);
	assert_int_equal(notify_send(&n, "READY=1", &e), -1);
	assert_int_equal(e.code, ENOENT);
}

static void test_abstract(void **state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char name[64];
	int len = snprintf(name, sizeof(name), "@test-notify-%d", (int)getpid());
	auto_close int fd = -1;
	struct notify n;
	struct err e = ERR_INIT;

	(void)state;
	memcpy(address.sun_path + 1, name + 1, (size_t)len - 1);
	fd = manager(&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)len),
	             name);
	assert_int_equal(notify_take(&n, &e), 0);
	assert_environment_clean();
	assert_int_equal(notify_send(&n, "READY=1", &e), 0);
	assert_told(fd, "READY=1");
}

static void test_nobody_asked(void **state)
{
	struct notify n;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
	assert_int_equal(notify_take(&n, &e), 0);
	assert_int_equal(notify_send(&n, "READY=1", &e), 0);
}

static void test_full(void **state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	auto_close int fd = -1;
	struct notify n;
	struct err e = ERR_INIT;
	int sent = 0;

	(void)state;
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/test-notify-%d",
	               (int)getpid());
	fd = manager(&address, sizeof(address), address.sun_path);
	assert_true(fd >= 0);
	assert_int_equal(notify_take(&n, &e), 0);
	while (sent < 100000 && notify_send(&n, "READY=1", &e) == 0)
		sent++;
	/* A manager that does not read stops nobody. */
	assert_in_range(sent, 1, 99999);
	assert_int_equal(e.code, EAGAIN);
	assert_int_equal(unlink(address.sun_path), 0);
}

static void assert_refused(const char *name, int code)
{
	struct notify n;
	struct err e = ERR_INIT;

	assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
	assert_int_equal(notify_take(&n, &e), -1);
	assert_int_equal(e.code, code);
	assert_environment_clean();
	assert_int_equal(n.len, 0);
}

static void test_addresses_of_no_use(void **state)
{
	char name[200];
	struct notify n;
	struct err e = ERR_INIT;

	(void)state;
	assert_refused("", EAFNOSUPPORT);
	assert_refused("@", EAFNOSUPPORT);
	assert_refused("relative", EAFNOSUPPORT);
	assert_refused("vsock:2:1", EAFNOSUPPORT);
	memset(name, 'x', sizeof(name));
	name[0] = '/';
	name[sizeof(n.address.sun_path)] = '\0';
	assert_refused(name, ENAMETOOLONG);
	name[sizeof(n.address.sun_path) - 1] = '\0';
	assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
	assert_int_equal(notify_take(&n, &e), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_path),
		cmocka_unit_test(test_abstract),
		cmocka_unit_test(test_nobody_asked),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_addresses_of_no_use),
	};

	return RUN_TESTS(tests);
}
