#include "daemon/sandbox/jobs.h"

#include "common/sanitizer.h"
#include "daemon/sandbox/call.h"
#include "daemon/sandbox/stream.h"

/* Commands that stay, on the real guest. */

#define INPUT_MAX ((size_t)4 << 20)

static struct buf got; /* standard output */

static void keep(void *ctx, int stream, const char *data, size_t len)
{
	(void)ctx;
	if (stream == 1)
		buf_add(&got, data, len);
}

static const struct output_sink sink = { keep, NULL };

static struct stream *open_line(const char *shell)
{
	static struct uuid id;
	const struct sandbox_use use = { boxes, &id, NULL };
	const struct exec_spec spec = { .shell = shell, .cwd = "/" };
	struct stream *s = NULL;
	struct err e = ERR_INIT;

	id = tenant(0);
	assert_int_equal(stream_open(&use, &spec, &s, &e), 0);
	return s;
}

static int begin_test(void **state)
{
	(void)state;
	got = (struct buf)BUF_INIT(64 << 20);
	begin(behave_real, START_MS, 60000);
	return 0;
}

static int end_test(void **state)
{
	(void)state;
	end();
	buf_release(&got);
	return 0;
}

static void write_text(struct stream *s, const char *text)
{
	struct err e = ERR_INIT;

	assert_int_equal(stream_write(s, text, strlen(text), INPUT_MAX, &e), 0);
}

/* Until so much has come, or the end; false at the end. */
static bool take_until(struct stream *s, size_t len)
{
	bool open = true;

	for (int i = 0; i < 20000 && open && got.len < len; i++) {
		open = stream_take(s, &sink);
		if (open && got.len < len)
			(void)stream_wait(s, NULL, 1000);
	}
	return open;
}

static struct exec_result end_of(struct stream *s)
{
	struct exec_result r;
	struct err e = ERR_INIT;

	assert_false(take_until(s, SIZE_MAX));
	assert_int_equal(stream_result(s, &r, &e), 0);
	return r;
}

static void test_talk(void **state)
{
	struct stream *s = open_line("while read x; do echo \"<$x>\"; done; exit 7");
	struct exec_result r;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(stream_result(s, &r, &e), -1);
	write_text(s, "one\n");
	assert_true(take_until(s, 6));
	write_text(s, "two\n");
	assert_true(take_until(s, 12));
	assert_string_equal(got.data, "<one>\n<two>\n");
	stream_end_input(s);
	r = end_of(s);
	assert_int_equal(r.reason, EXEC_EXITED);
	assert_int_equal(r.code, 7);
	assert_false(stream_take(s, &sink));
	stream_close(&s);
	assert_null(s);
}

/* Far more than the credit of either direction. */
static void test_much(void **state)
{
	struct stream *s = open_line("cat");
	struct err e = ERR_INIT;
	auto_free char *big = malloc(INPUT_MAX + 1);

	(void)state;
	assert_non_null(big);
	for (size_t i = 0; i < INPUT_MAX; i++)
		big[i] = (char)('a' + i % 23);
	assert_int_equal(stream_write(s, big, INPUT_MAX + 1, INPUT_MAX, &e), -1);
	assert_int_equal(e.code, ENOBUFS);
	assert_int_equal(stream_write(s, big, INPUT_MAX, INPUT_MAX, &e), 0);
	assert_int_equal(stream_write(s, big, 1, INPUT_MAX, &e), -1);
	stream_end_input(s);
	assert_int_equal(end_of(s).code, 0);
	assert_int_equal(got.len, INPUT_MAX);
	assert_memory_equal(got.data, big, INPUT_MAX);
	stream_close(&s);
}

static size_t queued(struct stream *s)
{
	struct sandbox *sb = NULL;
	const struct uuid id = tenant(0);
	size_t len = 0;

	(void)s;
	pthread_mutex_lock(&boxes->lock);
	sb = pool_find(boxes, &id);
	for (size_t i = 0; i < FRAME_CALLS_MAX; i++)
		if (sb->calls[i])
			len = sb->calls[i]->queue.len;
	pthread_mutex_unlock(&boxes->lock);
	return len;
}

/* Whoever is not read blocks; other calls go on. */
static void test_unread(void **state)
{
	struct stream *s = open_line("exec yes");
	uint64_t took;

	(void)state;
	for (int i = 0; i < 6000 && queued(s) < FRAME_WINDOW; i++)
		(void)usleep(10000);
	assert_works(0);
	assert_in_range(queued(s), FRAME_WINDOW, FRAME_WINDOW + 4096);
	assert_true(take_until(s, (size_t)4 * FRAME_WINDOW));
	took = clock_mono_ms();
	stream_close(&s);
	took = clock_mono_ms() - took;
	assert_works(0);
	/* What counts its leaks when it is killed, or stands still, may be given up with its
	 * sandbox. */
	if (!SANITIZED && took < CANCEL_GRACE_MS)
		assert_int_equal(fake.starts, 1);
}

/* False when the guest stood still for so long that it was given up. */
static bool killed_in_time(void)
{
	struct stream *s = open_line("trap '' TERM INT; setsid sleep 1000 & exec yes");
	struct exec_result r;
	struct err e = ERR_INIT;
	uint64_t began;

	assert_true(take_until(s, 1));
	began = clock_mono_ms();
	stream_kill(s);
	stream_kill(s);
	assert_false(take_until(s, SIZE_MAX));
	assert_int_equal(stream_result(s, &r, &e), 0);
	assert_int_equal(r.reason, EXEC_CANCELLED);
	stream_close(&s);
	if (clock_mono_ms() - began >= CANCEL_GRACE_MS)
		return false;
	assert_works(0);
	assert_int_equal(fake.starts, 1);
	assert_int_equal(fake.kills, 0);
	return true;
}

/* Nobody takes anything: a kill ends it, its children too, and the sandbox lives on. */
static void test_kill(void **state)
{
	int tries = 0;

	while (!killed_in_time()) {
		assert_true(++tries < 5);
		(void)end_test(state);
		(void)begin_test(state);
	}
}

static void test_not_found(void **state)
{
	static const char *const argv[] = { "/no/such/program", NULL };
	const struct uuid id = tenant(0);
	const struct sandbox_use use = { boxes, &id, NULL };
	const struct exec_spec spec = { .argv = argv, .cwd = "/" };
	struct stream *s = NULL;
	struct exec_result r;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(stream_open(&use, &spec, &s, &e), 0);
	assert_false(take_until(s, SIZE_MAX));
	assert_int_equal(stream_result(s, &r, &e), -1);
	assert_int_equal(e.code, SANDBOX_NOT_FOUND);
	stream_close(&s);
}

static void test_refused(void **state)
{
	const struct uuid id = tenant(0);
	const struct sandbox_use use = { boxes, &id, NULL };
	const struct exec_spec spec = { .cwd = "/" };
	struct stream *s = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(stream_open(&use, &spec, &s, &e), -1);
	assert_int_equal(e.code, SANDBOX_INVALID);
	assert_null(s);
	stream_close(&s);
}

/* -- idleness ------------------------------------------------------------------------------- */

static void test_rest(void **state)
{
	struct stream *s;
	struct exec_result r;

	(void)state;
	end();
	begin(behave_real, START_MS, 300);
	s = open_line("exec cat");
	(void)usleep(1000000);
	assert_true(one_runs()); /* it is work */
	stream_rest(s, true);
	stream_rest(s, true);
	r = end_of(s);
	assert_int_equal(r.reason, EXEC_LOST);
	wait_for(none_runs);
	stream_rest(s, true);
	stream_rest(s, false);
	stream_close(&s);
	assert_works(0);
}

/* A call beside it is work, and so is one that was taken up again. */
static void test_rest_ends(void **state)
{
	struct job j = { .shell = "sleep 4" };
	struct sandbox_view view;
	struct stream *s;

	(void)state;
	end();
	begin(behave_real, START_MS, 3000); /* longer than this program may stand still */
	s = open_line("exec cat");
	stream_rest(s, true);
	assert_int_equal(sandboxes_view(boxes, &view, 1), 1);
	assert_int_equal(view.calls, 0);
	job_run(&j);
	assert_ok(&j);
	stream_rest(s, false);
	assert_int_equal(sandboxes_view(boxes, &view, 1), 1);
	assert_int_equal(view.calls, 1);
	assert_int_equal(view.idle_ms, 0);
	(void)usleep(4000000);
	assert_true(one_runs());
	assert_int_equal(fake.starts, 1);
	write_text(s, "x");
	assert_true(take_until(s, 1));
	stream_close(&s);
}

/* The end of the whole pool, and a guest that does not let go of a killed call. */
static void behave_stubborn(struct guest *g)
{
	guest_shake(g);
	while (guest_next(g))
		;
}

static uint64_t close_a_stubborn_one(void)
{
	struct stream *s;
	uint64_t began, took;

	end();
	begin(behave_stubborn, START_MS, 60000);
	s = open_line("true");
	began = clock_mono_ms();
	stream_close(&s);
	took = clock_mono_ms() - began;
	assert_int_equal(fake_kills(&fake, 1), 1);
	return took;
}

static void test_stubborn(void **state)
{
	(void)state;
	expect_within(close_a_stubborn_one, CANCEL_GRACE_MS, CANCEL_GRACE_MS + 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_talk, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_much, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_unread, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_kill, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_not_found, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_refused, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_rest, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_rest_ends, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_stubborn, begin_test, end_test),
	};

	return RUN_TESTS(tests);
}
