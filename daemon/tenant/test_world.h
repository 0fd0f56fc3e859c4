/*
 * test_world.h - for the tests of the registry: directories and files that it can be about.
 */
#ifndef DAEMON_TENANT_TEST_WORLD_H
#define DAEMON_TENANT_TEST_WORLD_H

#include "common/test.h"

#include "common/buf.h"
#include "common/fd.h"
#include "daemon/tenant/registry.h"
#include "daemon/tenant/trusted.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/*
 * A world is a fresh directory with a registry of two tenants that has no fault.
 * In texts '@' stands for that directory, "$3" for the UUID that ends in 3 and "~"
 * for a name of 64 characters.
 */
#define GOOD                                                               \
	"{\"version\":1,\"tenants\":["                                     \
	"{\"id\":\"$1\",\"name\":\"acme\",\"workspaceRoot\":\"@/ws/a\","   \
	"\"credentials\":[{\"id\":\"$2\",\"tokenFile\":\"@/tokens/a\"}]}," \
	"{\"id\":\"$3\",\"name\":\"globex\",\"workspaceRoot\":\"@/ws/b\"," \
	"\"credentials\":[{\"id\":\"$4\",\"tokenFile\":\"@/tokens/b\"}]}]}"

#define TOKEN_A "token-a-0123456789abcdef01234567" /* 32 bytes, the shortest */
#define TOKEN_B "token-b-0123456789abcdef0123456789"
#define NAME_64 "n23456789-123456789-123456789-123456789-123456789-123456789-1234"

static char world[64];

static inline char *in_world(const char *name)
{
	static char paths[4][8192];
	static unsigned int next;
	char *path = paths[next++ % 4];

	(void)snprintf(path, sizeof(paths[0]), "%s/%s", world, name);
	return path;
}

static inline void expand(struct buf *out, const char *text)
{
	buf_adds(out, "");
	for (; *text; text++) {
		if (*text == '@')
			buf_adds(out, world);
		else if (*text == '~')
			buf_adds(out, NAME_64);
		else if (*text == '$')
			buf_addf(out, "00000000-0000-7000-8000-00000000000%c", *++text);
		else
			buf_addc(out, *text);
	}
}

static inline void put_bytes(const char *name, mode_t mode, const char *data, size_t len)
{
	auto_close int fd = open(in_world(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct err e = ERR_INIT;

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, len, &e), 0);
	assert_int_equal(fchmod(fd, mode), 0);
}

static inline void put(const char *name, mode_t mode, const char *text)
{
	auto_buf struct buf b = BUF_INIT(REGISTRY_MAX_BYTES);

	expand(&b, text);
	put_bytes(name, mode, b.data, b.len);
}

static inline void make_dir(const char *name)
{
	assert_int_equal(mkdir(in_world(name), 0700), 0);
}

static inline int begin_world(void **state)
{
	(void)state;
	(void)umask(022);
	(void)snprintf(world, sizeof(world), "/tmp/registry-XXXXXX");
	if (!mkdtemp(world))
		return -1;
	make_dir("ws");
	make_dir("ws/a");
	make_dir("ws/b");
	make_dir("tokens");
	make_dir("state");
	put("tokens/a", 0600, TOKEN_A);
	put("tokens/b", 0400, "\r\n\t " TOKEN_B " \n");
	put("tenants.json", 0600, GOOD);
	return 0;
}

/* By descriptors, because paths below the world may be longer than PATH_MAX. */
static inline int empty_dir(int fd)
{
	auto_dir DIR *dir = fdopendir(fd);
	const struct dirent *entry;
	int failed = !dir;

	while (dir && (entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
		    unlinkat(dirfd(dir), name, 0) == 0)
			continue;
		failed |= empty_dir(openat(dirfd(dir), name, O_DIRECTORY | O_CLOEXEC));
		failed |= unlinkat(dirfd(dir), name, AT_REMOVEDIR);
	}
	return failed;
}

static inline int end_world(void **state)
{
	(void)state;
	return empty_dir(open(world, O_DIRECTORY | O_CLOEXEC)) | rmdir(world);
}

static inline void gather(void *ctx, const char *line)
{
	buf_adds(ctx, line);
	buf_addc(ctx, '\n');
}

/* Load; every line of faults, and nothing else, must be reported. */
static inline void load(const char *faults, struct registry **ret)
{
	auto_buf struct buf want = BUF_INIT(1 << 16), got = BUF_INIT(1 << 20);
	struct err e = ERR_INIT;
	int r;

	expand(&want, faults);
	buf_adds(&got, "");
	r = registry_load(in_world("tenants.json"), in_world("state"), ret, gather, &got, &e);
	assert_string_equal(got.data, want.data);
	assert_int_equal(r, *faults ? -1 : 0);
	assert_int_equal(e.code, *faults ? EINVAL : 0);
}

static inline void expect(const char *faults)
{
	struct registry *r = NULL;

	load(faults, &r);
	assert_int_equal(r != NULL, !*faults);
	registry_free(&r);
	assert_null(r);
}

#define in_a_world(test) cmocka_unit_test_setup_teardown(test, begin_world, end_world)

#endif
