/* Removing what a tenant left behind, as a tenant would leave it. */
#include "common/test.h"

#include "common/fd.h"
#include "daemon/launcher/purge.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define TENANT "01980000-0000-7000-8000-00000000ac3e"
#define OTHER  "01980000-0000-7000-8000-00000000ac3f"
#define DEPTH  3000

static char world[64];
static int state_fd = -1;

static int begin(void **state)
{
	(void)state;
	(void)snprintf(world, sizeof(world), "/tmp/purge-XXXXXX");
	if (!mkdtemp(world))
		return -1;
	state_fd = open(world, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return state_fd < 0 ? -1 : 0;
}

static void make(const char *path)
{
	assert_int_equal(mkdirat(state_fd, path, 0700), 0);
}

static void touch(const char *path)
{
	int fd = openat(state_fd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	close(fd);
}

static bool there(const char *path)
{
	return faccessat(state_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void purge(const char *tenant)
{
	struct uuid id;
	struct err e = ERR_INIT;

	assert_true(uuid_parse(tenant, &id));
	if (purge_files(state_fd, &id, &e) < 0)
		fail_msg("%s", e.text);
}

static int end(void **state)
{
	(void)state;
	purge(OTHER);
	(void)unlinkat(state_fd, "outside/kept", 0);
	(void)unlinkat(state_fd, "outside", AT_REMOVEDIR);
	(void)unlinkat(state_fd, "tenants", AT_REMOVEDIR);
	fd_close(&state_fd);
	return rmdir(world);
}

static void nothing_there_is_no_fault(void **state)
{
	(void)state;
	purge(TENANT);
	make("tenants");
	purge(TENANT);
}

static void takes_one_tenant_and_follows_no_link(void **state)
{
	(void)state;
	make("outside");
	touch("outside/kept");
	make("tenants");
	make("tenants/" OTHER);
	touch("tenants/" OTHER "/kept");
	make("tenants/" TENANT);
	make("tenants/" TENANT "/state");
	assert_int_equal(symlinkat("../../../outside", state_fd, "tenants/" TENANT "/state/link"),
	                 0);
	assert_int_equal(symlinkat(world, state_fd, "tenants/" TENANT "/absolute"), 0);
	assert_int_equal(linkat(state_fd, "outside/kept", state_fd, "tenants/" TENANT "/hard", 0),
	                 0);
	purge(TENANT);
	assert_false(there("tenants/" TENANT));
	assert_false(there("tenants/" TENANT ".purged"));
	assert_true(there("outside/kept"));
	assert_true(there("tenants/" OTHER "/kept"));
}

static void takes_what_has_no_rights_and_every_kind(void **state)
{
	(void)state;
	make("tenants");
	make("tenants/" TENANT);
	make("tenants/" TENANT "/a");
	make("tenants/" TENANT "/a/b");
	touch("tenants/" TENANT "/a/b/\xff\n");
	make("tenants/" TENANT "/.purge-1"); /* the names that are used for moving */
	make("tenants/" TENANT "/.purge-2");
	touch("tenants/" TENANT "/.purge-2/x");
	assert_int_equal(mkfifoat(state_fd, "tenants/" TENANT "/pipe", 0), 0);
	assert_int_equal(fchmodat(state_fd, "tenants/" TENANT "/a/b", 0, 0), 0);
	assert_int_equal(fchmodat(state_fd, "tenants/" TENANT "/a", 0, 0), 0);
	purge(TENANT);
	assert_false(there("tenants/" TENANT));
}

/* Deeper than any path and any limit of descriptors. */
static void takes_a_deep_tree(void **state)
{
	int at;

	(void)state;
	make("tenants");
	make("tenants/" TENANT);
	at = openat(state_fd, "tenants/" TENANT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < DEPTH; i++) {
		int next;

		assert_int_equal(mkdirat(at, "down", 0700), 0);
		if (i % 100 == 0)
			close(openat(at, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
		next = openat(at, "down", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(at);
		at = next;
	}
	close(at);
	purge(TENANT);
	assert_false(there("tenants/" TENANT));
}

static void goes_on_after_an_interruption(void **state)
{
	(void)state;
	make("tenants");
	make("tenants/" TENANT ".purged");
	make("tenants/" TENANT ".purged/left");
	touch("tenants/" TENANT ".purged/left/x");
	make("tenants/" TENANT);
	touch("tenants/" TENANT "/new");
	purge(TENANT);
	assert_false(there("tenants/" TENANT));
	assert_false(there("tenants/" TENANT ".purged"));
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(nothing_there_is_no_fault),
		CASE(takes_one_tenant_and_follows_no_link),
		CASE(takes_what_has_no_rights_and_every_kind),
		CASE(takes_a_deep_tree),
		CASE(goes_on_after_an_interruption),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
