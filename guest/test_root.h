/*
 * test_root.h - a directory of its own for each test of files.
 *
 * Include after common/test.h.
 */
#ifndef GUEST_TEST_ROOT_H
#define GUEST_TEST_ROOT_H

#include "common/test_files.h"
#include "guest/test_guest.h"

#include <sys/stat.h>

#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, enter_root, leave_root)

/* A directory of its own for each test; the working directory while the test runs. */
static char root[64];

static inline int enter_root(void **state)
{
	(void)state;
	(void)snprintf(root, sizeof(root), "/tmp/guest-file-XXXXXX");
	return mkdtemp(root) && chdir(root) == 0 ? 0 : -1;
}

static inline int leave_root(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0) {
		execlp("rm", "rm", "-rf", root, (char *)NULL);
		_exit(1);
	}
	return chdir("/") == 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -1;
}

static inline void put(const char *name, const char *text)
{
	put_bytes(name, text, strlen(text));
}

#endif
