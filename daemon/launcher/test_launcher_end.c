/* How everything ends: in order, by force, and after a breach of the protocol. */
#include "daemon/launcher/test_world.h"

/* -- the end of everything ------------------------------------------------------------- */

/* Killed and reaped by the launcher. */
static void wait_for_end_of_server(const struct world *w)
{
	uint64_t deadline = clock_mono_ms() + HEARS_MS;

	while (kill(w->server, 0) == 0) {
		assert_true(clock_mono_ms() < deadline);
		(void)usleep(1000);
	}
}

static void test_ready_is_printed(void **state)
{
	struct world *w = *state;
	char text[64];

	w->conf.host = "::1";
	begin(w);
	say(w, LAUNCHER_READY, ECHO, 1);
	read_until(w->out, "\n", text, sizeof(text));
	assert_string_equal(text, "cloisterd: ready on http://[::1]:4096\n");
	stop(w);
}

static void test_drain_waits_for_the_server(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	int fds[2], late[2];

	begin(w);
	say(w, LAUNCHER_READY, ECHO, 1);
	start_runner(w, ECHO, 7, fds);
	assert_int_equal(kill(w->launcher, SIGINT), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	/* What runs goes on, and may still need a sandbox. */
	expect_silence(w);
	assert_int_equal(write(fds[0], "x", 1), 1);
	assert_int_equal(read(fds[1], &(char){ 0 }, 1), 1);
	start_runner(w, SECOND, 7, late);
	close_both(late);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_string_equal(m.tenant.text, SECOND);
	end_server(w, 0);
	/* The echo still has its input: it ends by TERM. */
	expect_exit(w, 0, "signal 15");
	close_both(fds);
}

static void test_server_that_fails_to_drain(void **state)
{
	struct world *w = *state;

	begin(w);
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	end_server(w, 4);
	expect_exit(w, 1, "did not end in order: exit status 4");
}

static void test_drain_has_a_deadline(void **state)
{
	struct world *w = *state;
	uint64_t begun;
	int status;

	w->conf.drain_seconds = 0;
	begin(w);
	begun = clock_mono_ms();
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	status = end_status(w, 19000);
	assert_in_range(clock_mono_ms() - begun, 10000, 19000);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	expect_log(w, "did not end in time");
}

static void test_second_signal_hastens(void **state)
{
	struct world *w = *state;
	int fds[2];

	begin(w);
	start_runner(w, STUBBORN, 1, fds);
	assert_int_equal(read(fds[1], &(char){ 0 }, 1), 1);
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	(void)usleep(600000);
	assert_int_equal(kill(w->server, 0), 0);
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	/* The server goes; the third, no echo of the second, ends the runner that ignores TERM. */
	wait_for_end_of_server(w);
	(void)usleep(600000);
	assert_int_equal(kill(w->launcher, 0), 0);
	assert_int_equal(kill(w->launcher, SIGINT), 0);
	expect_exit(w, 0, "asked again");
	close_both(fds);
}

/* False when the launcher took the second signal for another wish. */
static bool drains_through_echo(struct world *w)
{
	auto_free char *log = NULL;
	bool hastened;
	int status;

	begin(w);
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	assert_int_equal(kill(w->launcher, SIGINT), 0);
	(void)usleep(200000);
	(void)send(w->control, "", 1, MSG_NOSIGNAL); /* ends with 0 if it lives */
	status = end_status(w, ENDS_MS);
	log = log_text(w);
	fd_close(&w->log);
	hastened = strstr(log, "asked again") != NULL;
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_non_null(strstr(log, "stand-in of PostgreSQL stopped"));
	return !hastened;
}

/*
 * Some who stop a program signal it and its group: that is one wish, not two.  On a machine that
 * stood still between both they are two after all, and so it is tried again.
 */
static void test_echo_of_a_signal_does_not_hasten(void **state)
{
	bool drained = false;

	for (int tries = 0; tries < 5 && !drained; tries++)
		drained = drains_through_echo(*state);
	assert_true(drained);
}

static void test_launcher_killed_takes_all_with_it(void **state)
{
	struct world *w = *state;
	int fds[2], status;

	begin(w);
	start_runner(w, STUBBORN, 1, fds);
	assert_int_equal(read(fds[1], &(char){ 0 }, 1), 1);
	assert_int_equal(kill(w->launcher, SIGKILL), 0);
	status = end_status(w, ENDS_MS); /* asserts that nobody is left */
	assert_true(WIFSIGNALED(status));
	fd_close(&w->log);
	close_both(fds);
}

static void test_server_killed(void **state)
{
	struct world *w = *state;
	int fds[2];

	begin(w);
	say(w, LAUNCHER_READY, ECHO, 1);
	start_runner(w, ECHO, 1, fds);
	assert_int_equal(kill(w->server, SIGKILL), 0);
	expect_exit(w, 1, "the server ended by itself: signal 9");
	close_both(fds);
}

/* Even with status 0: nobody asked it to. */
static void test_server_leaves_unasked(void **state)
{
	struct world *w = *state;

	begin(w);
	say(w, LAUNCHER_READY, ECHO, 1);
	assert_int_equal(read(w->out, &(char){ 0 }, 1), 1);
	end_server(w, 0);
	expect_exit(w, 1, "the server ended by itself: exit status 0");
}

static void test_server_fails_to_start(void **state)
{
	struct world *w = *state;

	begin(w);
	end_server(w, 2);
	expect_exit(w, 2, "before it was ready: exit status 2");
}

static void test_server_closes_its_socket_and_stays(void **state)
{
	struct world *w = *state;

	begin(w);
	end_server(w, CLOSE_AND_STAY);
	assert_int_equal(read(w->control, &(char){ 0 }, 1), 1);
	fd_close(&w->sock);
	(void)usleep(4000000);
	expect_exit(w, 1, "closed its socket and lives on");
}

static void test_database_killed(void **state)
{
	struct world *w = *state;
	int fds[2];

	begin(w);
	start_runner(w, ECHO, 1, fds);
	assert_int_equal(kill(oldest_child(w->launcher), SIGKILL), 0);
	expect_exit(w, 1, "PostgreSQL ended by itself: signal 9");
	close_both(fds);
}

static void test_database_does_not_start(void **state)
{
	struct world *w = *state;

	w->conf.postgres_bin = "/missing";
	fork_launcher(w);
	expect_exit(w, 100, "database: no PostgreSQL in /missing");
}

/* As the doctor uses it. */
static void test_without_database_and_address(void **state)
{
	struct world *w = *state;
	struct launcher_message hello;
	int fds[2] = { -1, -1 };
	struct err e = ERR_INIT;
	char byte;

	w->conf.postgres_bin = w->conf.host = NULL;
	fork_launcher(w);
	assert_int_equal(launcher_receive(w->control, &hello, fds, &e), 1);
	assert_string_equal(hello.cause, "");
	w->sock = fds[0];
	fd_close(&fds[1]);
	say(w, LAUNCHER_READY, ECHO, 1);
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	end_server(w, 0);
	assert_int_equal(read(w->out, &byte, 1), 0);
	expect_exit(w, 0, "draining");
}

/* Nothing is started, and no cgroup touched, when what is to be confined could be replaced. */
static void test_service_boundary_refuses_the_start(void **state)
{
	struct world *w = *state;

	w->conf.boundary = "service";
	assert_int_equal(chmod(w->rootfs, 0777), 0);
	fork_launcher(w);
	expect_exit(w, 100, "boundary service: --rootfs: ");
	assert_int_equal(chmod(w->rootfs, 0700), 0);
	w->conf.boundary = "development";
}

static void test_missing_part_refuses_the_start(void **state)
{
	struct world *w = *state;

	w->conf.runsc = "/missing/runsc";
	fork_launcher(w);
	expect_exit(w, 100, "--runsc /missing/runsc: No such file or directory; install gVisor");
}

static void test_second_launcher_is_refused(void **state)
{
	struct world *w = *state;
	struct world second = *w;

	begin(w);
	fork_launcher(&second);
	/* Not end_status(): the first one's processes live. */
	assert_int_equal(waitpid(second.launcher, NULL, 0), second.launcher);
	fd_close(&second.control);
	fd_close(&second.out);
	expect_log(&second, "another cloisterd uses it");
	stop(w);
}

static void test_server_holds_nothing_of_the_launcher(void **state)
{
	struct world *w = *state;
	char path[64], target[128];
	struct dirent *entry;
	auto_dir DIR *d = NULL;

	begin(w);
	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)w->server);
	d = opendir(path);
	assert_non_null(d);
	while ((entry = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), entry->d_name, target, sizeof(target) - 1);

		if (n < 0)
			continue;
		target[n] = '\0';
		assert_null(strstr(target, "anon_inode"));
		assert_null(strstr(target, w->state));
	}
	stop(w);
}

/* -- words that a server does not say -------------------------------------------------- */

static void test_unknown_word_ends_everything(void **state)
{
	struct world *w = *state;
	struct launcher_message m = { .op = 77, .generation = 1 };
	struct err e = ERR_INIT;
	int fds[2];

	begin(w);
	start_runner(w, STUBBORN, 1, fds);
	assert_int_equal(read(fds[1], &(char){ 0 }, 1), 1);
	assert_int_equal(launcher_send(w->sock, &m, NULL, &e), 0);
	wait_for_end_of_server(w);
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	expect_exit(w, 1, "unknown message 77");
	close_both(fds);
}

static void test_words_of_the_launcher_are_not_the_servers(void **state)
{
	static const uint32_t ops[] = { LAUNCHER_EXITED, LAUNCHER_DRAIN };
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		begin(w);
		say(w, ops[i], ECHO, 1);
		expect_exit(w, 1, "not its to send");
	}
}

static void test_descriptors_from_the_server(void **state)
{
	struct world *w = *state;
	struct launcher_message m = { .op = LAUNCHER_STARTED, .generation = 1, .processes = 1 };
	struct err e = ERR_INIT;

	memcpy(m.tenant.text, ECHO, sizeof(m.tenant.text));
	begin(w);
	assert_int_equal(launcher_send(w->sock, &m, (int[2]){ 0, 1 }, &e), 0);
	expect_exit(w, 1, "the server sent descriptors");
}

static void test_ready_twice(void **state)
{
	struct world *w = *state;

	begin(w);
	say(w, LAUNCHER_READY, ECHO, 1);
	say(w, LAUNCHER_READY, ECHO, 1);
	expect_exit(w, 1, "became ready twice");
}

static void test_short_message(void **state)
{
	struct world *w = *state;

	begin(w);
	assert_int_equal(write(w->sock, "hi", 2), 2);
	expect_exit(w, 1, "less than");
}

/* Answers wait in the launcher, up to a bound, and then it is over. */
static void test_server_that_does_not_read(void **state)
{
	struct world *w = *state;
	struct launcher_message m = { .op = LAUNCHER_START, .generation = 1 };
	struct err e = ERR_INIT;
	int sent = 0;

	memcpy(m.tenant.text, UNDECLARED, sizeof(m.tenant.text));
	begin(w);
	while (sent < 100000 && launcher_send(w->sock, &m, NULL, &e) == 0)
		sent++;
	assert_true(sent < 100000);
	expect_exit(w, 1, "messages unread");
}

/* An honest burst is answered whole, in order. */
static void test_burst_is_answered(void **state)
{
	struct world *w = *state;

	begin(w);
	for (unsigned int i = 1; i <= 30; i++)
		say(w, LAUNCHER_START, UNDECLARED, i);
	for (unsigned int i = 1; i <= 30; i++)
		assert_int_equal(hear(w, LAUNCHER_EXITED, NULL).generation, i);
	stop(w);
}

int main(int argc, char **argv, char **env)
{
	const struct CMUnitTest tests[] = {
		CASE(test_ready_is_printed),
		CASE(test_drain_waits_for_the_server),
		CASE(test_server_that_fails_to_drain),
		CASE(test_drain_has_a_deadline),
		CASE(test_second_signal_hastens),
		CASE(test_echo_of_a_signal_does_not_hasten),
		CASE(test_launcher_killed_takes_all_with_it),
		CASE(test_server_killed),
		CASE(test_server_leaves_unasked),
		CASE(test_server_fails_to_start),
		CASE(test_server_closes_its_socket_and_stays),
		CASE(test_database_killed),
		CASE(test_database_does_not_start),
		CASE(test_without_database_and_address),
		CASE(test_service_boundary_refuses_the_start),
		CASE(test_missing_part_refuses_the_start),
		CASE(test_second_launcher_is_refused),
		CASE(test_server_holds_nothing_of_the_launcher),
		CASE(test_unknown_word_ends_everything),
		CASE(test_words_of_the_launcher_are_not_the_servers),
		CASE(test_descriptors_from_the_server),
		CASE(test_ready_twice),
		CASE(test_short_message),
		CASE(test_server_that_does_not_read),
		CASE(test_burst_is_answered),
	};

	return RUN_WORLD(tests);
}
