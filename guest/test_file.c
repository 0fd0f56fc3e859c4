#include "common/test.h"

#include "guest/test_root.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* Start an operation on name below root; more is further JSON, "" or ",\"limit\":1". */
static uint64_t start_on(struct guest *g, const char *op, const char *name, const char *more)
{
	auto_buf struct buf b = BUF_INIT(20000);

	buf_addf(&b, "{\"op\":\"%s\",\"path\":\"%s/%s\"%s}", op, root, name, more);
	return guest_start(g, b.data);
}

static void call_on(struct guest *g, const char *op, const char *name, const char *more,
                    struct result *r)
{
	guest_finish(g, start_on(g, op, name, more), r);
}

static void expect_on(struct guest *g, const char *op, const char *name, const char *word)
{
	struct result r;

	call_on(g, op, name, "", &r);
	assert_string_equal(result_word(&r), word);
	result_release(&r);
}

static void write_file(struct guest *g, const char *name, const char *more, const char *text,
                       struct result *r)
{
	uint64_t call = start_on(g, "write", name, more);

	guest_send(g, FRAME_INPUT, call, text, strlen(text));
	guest_send(g, FRAME_END, call, "", 0);
	guest_finish(g, call, r);
}

static void expect_write(struct guest *g, const char *name, const char *word)
{
	struct result r;

	write_file(g, name, "", "x", &r);
	assert_string_equal(result_word(&r), word);
	result_release(&r);
}

/* One of each thing that is not a regular file. */
static void make_things(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	auto_close int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(mkfifo("fifo", 0600), 0);
	assert_int_equal(mkdir("dir", 0700), 0);
	assert_int_equal(symlink("/dev/zero", "device"), 0);
	assert_int_equal(symlink("fifo", "to-fifo"), 0);
	assert_int_equal(symlink("loop", "loop"), 0);
	assert_int_equal(symlink("gone", "dangling"), 0);
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "socket");
	assert_int_equal(bind(sock, (struct sockaddr *)&a, sizeof(a)), 0);
	put("file", "content");
}

static void test_read(void **state)
{
	struct guest g;
	struct result r;

	(void)state;
	make_things();
	assert_int_equal(symlink("file", "link"), 0);
	guest_begin(&g);
	call_on(&g, "read", "link", ",\"offset\":2,\"limit\":3", &r);
	assert_string_equal(result_text(&r, 0), "nte");
	assert_int_equal(result_int(&r, "size"), 7);
	assert_int_equal(result_int(&r, "bytes"), 3);
	result_release(&r);
	call_on(&g, "read", "file", ",\"offset\":99", &r);
	assert_int_equal(result_int(&r, "bytes"), 0);
	assert_int_equal(result_int(&r, "size"), 7);
	result_release(&r);
	call_on(&g, "read", "file", ",\"limit\":0", &r);
	assert_int_equal(result_int(&r, "bytes"), 0);
	result_release(&r);
	guest_end(&g);
}

static void test_read_only_regular_files(void **state)
{
	static const char *const others[] = { "fifo", "dir", "device", "to-fifo", "socket" };
	struct guest g;

	(void)state;
	make_things();
	guest_begin(&g);
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		expect_on(&g, "read", others[i], "not_a_file");
	expect_on(&g, "read", "missing", "not_found");
	expect_on(&g, "read", "dangling", "not_found");
	expect_on(&g, "read", "file/below", "not_a_directory");
	expect_on(&g, "read", "loop", "invalid");
	guest_end(&g);
}

static void test_long_path(void **state)
{
	auto_buf struct buf b = BUF_INIT(10000);
	struct guest g;

	(void)state;
	put("file", "x");
	guest_begin(&g);
	for (int over = 0; over < 2; over++) {
		buf_reset(&b);
		while (b.len + strlen(root) + 1 + 4 < 4096U + (unsigned int)over)
			buf_addc(&b, '/');
		buf_adds(&b, "file");
		/* The system takes 4,095 bytes and a NUL; ours is one more, so both refuse. */
		expect_on(&g, "read", b.data, "invalid");
	}
	guest_end(&g);
}

static void test_read_waits_for_credit(void **state)
{
	auto_close int fd = open("big", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	size_t got = 0;
	struct guest g;
	struct result r;
	struct frame f;
	uint64_t call;

	(void)state;
	assert_int_equal(ftruncate(fd, 1000000), 0);
	guest_begin(&g);
	call = start_on(&g, "read", "big", "");
	while (got < FRAME_WINDOW && guest_frame(&g, &f))
		got += f.len;
	assert_int_equal(got, FRAME_WINDOW);
	guest_send(&g, FRAME_PING, 1, "", 0);
	assert_true(guest_frame(&g, &f));
	assert_int_equal(f.type, FRAME_PONG);
	guest_credit(&g, call, 1);
	assert_true(guest_frame(&g, &f));
	assert_int_equal(f.len, 1);
	guest_send(&g, FRAME_CANCEL, call, "", 0);
	guest_finish(&g, call, &r);
	assert_string_equal(result_word(&r), "cancelled");
	result_release(&r);
	guest_end(&g);
}

static void test_write(void **state)
{
	struct stat st;
	struct guest g;
	struct result r;

	(void)state;
	make_things();
	guest_begin(&g);
	write_file(&g, "new/sub/file", "", "hello", &r);
	assert_int_equal(result_int(&r, "bytes"), 5);
	result_release(&r);
	expect_text("new/sub/file", "hello");
	assert_int_equal(stat("new/sub/file", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	write_file(&g, "file", ",\"mode\":493", "", &r);
	assert_int_equal(result_int(&r, "bytes"), 0);
	result_release(&r);
	expect_text("file", "");
	assert_int_equal(stat("file", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	guest_end(&g);
	assert_int_equal(count_entries("new/sub"), 1);
}

/* A symbolic link is replaced, what it pointed to is not touched. */
static void test_write_over_link(void **state)
{
	struct stat st;
	struct guest g;
	struct result r;

	(void)state;
	put("target", "old");
	assert_int_equal(symlink("target", "link"), 0);
	guest_begin(&g);
	write_file(&g, "link", "", "new", &r);
	assert_int_equal(result_int(&r, "bytes"), 3);
	result_release(&r);
	guest_end(&g);
	expect_text("target", "old");
	expect_text("link", "new");
	assert_int_equal(lstat("link", &st), 0);
	assert_true(S_ISREG(st.st_mode));
}

static void test_write_only_regular_files(void **state)
{
	struct guest g;
	int before;

	(void)state;
	make_things();
	before = count_entries(".");
	guest_begin(&g);
	expect_write(&g, "fifo", "not_a_file");
	expect_write(&g, "socket", "not_a_file");
	expect_write(&g, "dir", "not_a_file");
	expect_write(&g, "dir/", "not_a_file");
	expect_write(&g, "dir/..", "not_a_file");
	expect_write(&g, "file/below", "not_a_directory");
	expect_write(&g, "../../dev/null", "not_a_file");
	guest_end(&g);
	assert_int_equal(count_entries("."), before);
}

/* Until END the target has its old content; without END nothing remains. */
static void test_write_is_atomic(void **state)
{
	struct guest g;
	struct result r;
	struct frame f;
	uint64_t call;

	(void)state;
	put("file", "old");
	guest_begin(&g);
	call = start_on(&g, "write", "file", "");
	guest_send(&g, FRAME_INPUT, call, "new", 3);
	assert_true(guest_frame(&g, &f));
	assert_int_equal(f.type, FRAME_CREDIT);
	assert_int_equal(frame_number(&f), 3);
	expect_text("file", "old");
	assert_int_equal(count_entries("."), 2);
	guest_send(&g, FRAME_CANCEL, call, "", 0);
	guest_finish(&g, call, &r);
	assert_string_equal(result_word(&r), "cancelled");
	result_release(&r);
	guest_send(&g, FRAME_END, call, "", 0);
	guest_send(&g, FRAME_PING, 1, "", 0);
	assert_true(guest_frame(&g, &f));
	expect_text("file", "old");
	assert_int_equal(count_entries("."), 1);
	call = start_on(&g, "write", "file", "");
	guest_send(&g, FRAME_INPUT, call, "newer", 5);
	guest_end(&g);
	expect_text("file", "old");
	assert_int_equal(count_entries("."), 1);
}

/* A file size limit makes write(2) fail, as a full disk would. */
static void test_write_fails_midway(void **state)
{
	static char block[FRAME_DATA_MAX];
	struct rlimit old, small;
	struct guest g;
	struct result r;
	uint64_t call;

	(void)state;
	put("file", "old");
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 100000;
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	guest_begin(&g);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	call = start_on(&g, "write", "file", "");
	for (int i = 0; i < 4; i++)
		guest_send(&g, FRAME_INPUT, call, block, sizeof(block));
	guest_finish(&g, call, &r);
	assert_string_equal(result_word(&r), "too_large");
	result_release(&r);
	guest_end(&g);
	expect_text("file", "old");
	assert_int_equal(count_entries("."), 1);
}

static void test_list(void **state)
{
	struct guest g;
	struct result r;

	(void)state;
	make_things();
	put("b\xff\"\n", "1234");
	guest_begin(&g);
	call_on(&g, "list", "", "", &r);
	assert_int_equal(result_int(&r, "entries"), 9);
	assert_int_equal(result_int(&r, "total"), 9);
	assert_non_null(strstr(result_text(&r, 0), "{\"name\":\"fifo\",\"type\":\"other\","));
	assert_non_null(strstr(result_text(&r, 0), "{\"name\":\"dir\",\"type\":\"directory\","));
	assert_non_null(strstr(result_text(&r, 0), "{\"name\":\"loop\",\"type\":\"symlink\","));
	assert_non_null(strstr(result_text(&r, 0),
	                       "{\"name\":\"file\",\"type\":\"file\",\"size\":7,\"mtimeMs\":"));
	assert_non_null(strstr(result_text(&r, 0), "{\"name\":\"b\xef\xbf\xbd\\\"\\n\","));
	assert_non_null(strstr(result_text(&r, 0), ",\"lossy\":true}\n"));
	result_release(&r);
	expect_on(&g, "list", "file", "not_a_directory");
	expect_on(&g, "list", "fifo", "not_a_directory");
	expect_on(&g, "list", "missing", "not_found");
	guest_end(&g);
}

/* The first names in order, however the directory stores them; all are counted. */
static void test_list_limit(void **state)
{
	char name[32];
	struct guest g;
	struct result r;

	(void)state;
	for (int i = 0; i < 1500; i++) {
		(void)snprintf(name, sizeof(name), "n%04d", (i * 7) % 1500);
		put(name, "");
	}
	guest_begin(&g);
	call_on(&g, "list", "", ",\"limit\":3", &r);
	assert_int_equal(result_int(&r, "entries"), 3);
	assert_int_equal(result_int(&r, "total"), 1500);
	assert_non_null(strstr(result_text(&r, 0), "n0000"));
	assert_non_null(strstr(result_text(&r, 0), "n0002"));
	assert_null(strstr(result_text(&r, 0), "n0003"));
	assert_true(strstr(result_text(&r, 0), "n0001") < strstr(result_text(&r, 0), "n0002"));
	result_release(&r);
	call_on(&g, "list", "", "", &r);
	assert_int_equal(result_int(&r, "entries"), 1000);
	assert_non_null(strstr(result_text(&r, 0), "n0999"));
	assert_null(strstr(result_text(&r, 0), "n1000"));
	result_release(&r);
	guest_end(&g);
}

/* More lists than may hold names at once: the others wait, also when one is cancelled. */
static void test_many_lists(void **state)
{
	char name[64];
	struct guest g;
	struct result r;
	struct frame f;
	int ended = 0;

	(void)state;
	for (int i = 0; i < 6000; i++) {
		(void)snprintf(name, sizeof(name), "a-name-that-is-rather-long-%04d", i);
		put(name, "");
	}
	guest_begin(&g);
	for (int i = 0; i < 8; i++) /* no credit is granted: these stop at the window */
		(void)start_on(&g, "list", "", ",\"limit\":10000");
	for (int i = 0; i < 20; i++)
		(void)start_on(&g, "list", "", ",\"limit\":5");
	guest_send(&g, FRAME_PING, 1, "", 0);
	do
		assert_true(guest_frame(&g, &f) && f.type != FRAME_EXIT);
	while (f.type != FRAME_PONG);
	guest_send(&g, FRAME_CANCEL, 3, "", 0);
	guest_finish(&g, 3, &r);
	assert_string_equal(result_word(&r), "cancelled");
	result_release(&r);
	while (ended < 20) {
		assert_true(guest_frame(&g, &f));
		ended += f.type == FRAME_EXIT;
	}
	guest_end(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_ROOT(test_read),
		IN_ROOT(test_read_only_regular_files),
		IN_ROOT(test_long_path),
		IN_ROOT(test_read_waits_for_credit),
		IN_ROOT(test_write),
		IN_ROOT(test_write_over_link),
		IN_ROOT(test_write_only_regular_files),
		IN_ROOT(test_write_is_atomic),
		IN_ROOT(test_write_fails_midway),
		IN_ROOT(test_list),
		IN_ROOT(test_list_limit),
		IN_ROOT(test_many_lists),
	};

	return RUN_TESTS(tests);
}
