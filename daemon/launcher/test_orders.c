/* Another registry and a purge, asked for by signal and through the control socket. */
#include "daemon/launcher/test_world.h"

#include "daemon/launcher/control.h"
#include "daemon/launcher/view.h"
#include "daemon/tenant/compiled.h"

#include <sys/un.h>

static char registry_path[128];

/* The eighth tenant is not among those that the world begins with. */
static void write_registry(struct world *w, const char *ids)
{
	char text[4096], eighth[128];
	int len = snprintf(text, sizeof(text), "{\"version\":1,\"tenants\":[");

	(void)snprintf(eighth, sizeof(eighth), "%s/work8", w->dir);
	assert_true(mkdir(eighth, 0700) == 0 || errno == EEXIST);
	write_text(w->dir, "token8", "8d2b7c0f4e6a91536c9e1f7a3b5d0488");
	for (const char *id = ids; *id; id++)
		len += snprintf(text + len, sizeof(text) - (size_t)len,
		                "%s{\"id\":\"" UUID_BEGIN "%c\",\"name\":\"t%c\","
		                "\"workspaceRoot\":\"%s/work%c\",\"credentials\":[{\"id\":\""
		                "01980000-0000-7000-8000-0000000000c%c\",\"tokenFile\":"
		                "\"%s/token%c\"}]}",
		                id > ids ? "," : "", *id, *id, w->dir, *id, *id, w->dir, *id);
	(void)snprintf(text + len, sizeof(text) - (size_t)len, "]}");
	write_text(w->dir, "tenants.json", text);
}

static void begin_ready(struct world *w)
{
	(void)snprintf(registry_path, sizeof(registry_path), "%s/tenants.json", w->dir);
	w->conf.registry_path = registry_path;
	begin(w);
	say(w, LAUNCHER_READY, ECHO, 1);
}

/* What the launcher hands over; its number. */
static uint64_t take(struct world *w, size_t tenants)
{
	struct registry *taken = NULL;
	int fds[2] = { -1, -1 };
	struct err e = ERR_INIT;
	struct launcher_message m = hear(w, LAUNCHER_REGISTRY, fds);

	assert_true(fds[0] >= 0);
	assert_int_equal(fds[1], -1);
	if (registry_take(fds[0], &taken, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(registry_count(taken), tenants);
	registry_free(&taken);
	fd_close(&fds[0]);
	return m.generation;
}

static void answer(struct world *w, uint64_t number, int status)
{
	struct launcher_message m = { .op = LAUNCHER_DONE, .generation = number, .status = status };
	struct err e = ERR_INIT;

	(void)snprintf(m.cause, sizeof(m.cause), "%s", status ? "the server says no" : "");
	assert_int_equal(launcher_send(w->sock, &m, NULL, &e), 0);
}

static void expect_undeclared(struct world *w, const char *tenant)
{
	say(w, LAUNCHER_START, tenant, 77);
	assert_string_equal(hear(w, LAUNCHER_EXITED, NULL).cause, "this tenant is not declared");
}

static void expect_declared(struct world *w, const char *tenant)
{
	int fds[2];

	start_runner(w, tenant, 78, fds);
	close_both(fds);
	(void)hear(w, LAUNCHER_EXITED, NULL);
}

#define EIGHTH UUID_BEGIN "8"

static void test_hup_hands_over_a_registry(void **state)
{
	struct world *w = *state;
	uint64_t number;

	write_registry(w, "1234567");
	begin_ready(w);
	write_registry(w, "128");
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	number = take(w, 3);
	/* The server may know it already, and what was declared is until it says so. */
	expect_declared(w, EIGHTH);
	expect_declared(w, SECOND);
	answer(w, number, 0);
	expect_undeclared(w, SECOND);
	expect_declared(w, EIGHTH);
	expect_declared(w, ECHO);
	stop(w);
}

static void test_what_the_server_refuses_is_not_in_force(void **state)
{
	struct world *w = *state;

	write_registry(w, "1234567");
	begin_ready(w);
	write_registry(w, "18");
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	answer(w, take(w, 2), 1);
	expect_undeclared(w, EIGHTH);
	expect_declared(w, SECOND);
	stop(w);
}

/* The server may ask for a tenant that it has just been told of, and then refuse the rest. */
static void test_what_was_started_too_early_ends(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	int early[2], other[2];
	uint64_t number;

	write_registry(w, "1234567");
	begin_ready(w);
	write_registry(w, "12345678");
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	number = take(w, 8);
	start_runner(w, EIGHTH, 1, early);
	start_runner(w, ECHO, 2, other);
	answer(w, number, 1);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_string_equal(m.tenant.text, EIGHTH);
	assert_int_equal(m.status, 128 + SIGTERM);
	close_both(early);
	expect_undeclared(w, EIGHTH);
	expect_silence(w); /* the other one goes on */
	close_both(other);
	(void)hear(w, LAUNCHER_EXITED, NULL);
	stop(w);
}

/* After one that was refused. */
static void expect_another_to_be_taken(struct world *w)
{
	expect_declared(w, SECOND);
	write_registry(w, "1");
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	answer(w, take(w, 1), 0);
	expect_undeclared(w, SECOND);
	stop(w);
}

static void test_a_faulty_file_is_not_handed_over(void **state)
{
	struct world *w = *state;

	write_registry(w, "1234567");
	begin_ready(w);
	write_registry(w, "11");
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	expect_silence(w);
	expect_another_to_be_taken(w);
}

static void test_no_workspace_gets_what_is_guarded(void **state)
{
	static char path[128]; /* the world is ended after this */
	static struct guarded guarded;
	struct world *w = *state;

	(void)snprintf(path, sizeof(path), "%s/work8/key", w->dir);
	guarded_file(&guarded, path, "the key of model one");
	w->conf.guarded = &guarded;
	write_registry(w, "1234567");
	begin_ready(w);
	write_registry(w, "18");
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	expect_silence(w);
	expect_undeclared(w, EIGHTH);
	expect_another_to_be_taken(w);
	guarded_release(&guarded);
}

static void test_asked_early_and_asked_meanwhile(void **state)
{
	struct world *w = *state;
	uint64_t first, second;

	write_registry(w, "1234567");
	(void)snprintf(registry_path, sizeof(registry_path), "%s/tenants.json", w->dir);
	w->conf.registry_path = registry_path;
	begin(w);
	write_registry(w, "12");
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	expect_silence(w); /* the server takes no orders yet */
	say(w, LAUNCHER_READY, ECHO, 1);
	first = take(w, 2);
	write_registry(w, "1");
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	expect_silence(w); /* one at a time */
	answer(w, first, 0);
	second = take(w, 1);
	assert_true(second > first);
	answer(w, second, 0);
	expect_silence(w);
	stop(w);
}

static void test_answers_without_a_question_end_everything(void **state)
{
	struct world *w = *state;

	write_registry(w, "1234567");
	begin_ready(w);
	answer(w, 1, 0);
	expect_exit(w, 1, "the server answered what it was not asked");
	fd_close(&w->sock);
	begin_ready(w);
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	answer(w, take(w, 7) + 1, 0);
	expect_exit(w, 1, "the server answered what it was not asked");
}

static void test_orders_are_not_the_servers_to_give(void **state)
{
	static const uint32_t ops[] = { LAUNCHER_PURGE, LAUNCHER_REGISTRY };
	struct world *w = *state;

	write_registry(w, "1234567");
	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		begin_ready(w);
		say(w, ops[i], UNDECLARED, 1);
		expect_exit(w, 1, i ? "descriptors" : "not its to send");
	}
}

static void test_without_a_registry_hup_ends(void **state)
{
	struct world *w = *state;

	begin_ready(w);
	stop(w);
	w->conf.registry_path = NULL;
	begin(w);
	say(w, LAUNCHER_READY, ECHO, 1);
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	end_server(w, 0);
	expect_exit(w, 0, "stand-in of PostgreSQL stopped");
}

static void test_another_workspace_ends_the_runner(void **state)
{
	struct world *w = *state;
	char from[128], to[128];
	int moved[2], kept[2];

	write_registry(w, "1234567");
	begin_ready(w);
	start_runner(w, ECHO, 5, moved);
	start_runner(w, SECOND, 6, kept);
	/* The same path, another directory. */
	(void)snprintf(from, sizeof(from), "%s/work1", w->dir);
	(void)snprintf(to, sizeof(to), "%s/gone1", w->dir);
	assert_int_equal(rename(from, to), 0);
	assert_int_equal(mkdir(from, 0700), 0);
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	answer(w, take(w, 7), 0);
	assert_int_equal(hear(w, LAUNCHER_EXITED, NULL).generation, 5);
	expect_silence(w);
	close_both(moved);
	close_both(kept);
	assert_int_equal(hear(w, LAUNCHER_EXITED, NULL).generation, 6);
	assert_int_equal(rmdir(from), 0);
	assert_int_equal(rename(to, from), 0);
	stop(w);
}

/* -- the control socket ------------------------------------------------------------------------ */

static void say_line(bool error, const char *line)
{
	(void)fprintf(error ? stderr : stdout, "%s\n", line);
}

/* Ask in a child, because control_ask() waits; its exit status comes with finish_call(). */
static pid_t call(struct world *w, uint32_t word, const char *tenant)
{
	struct control_request request = { .word = word };
	pid_t pid;

	if (tenant)
		memcpy(request.tenant.text, tenant, sizeof(request.tenant.text));
	pid = fork();
	if (pid == 0) {
		struct err e = ERR_INIT;
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		int status;

		(void)dup2(null, 1);
		(void)dup2(null, 2);
		status = control_ask(w->state, &request, say_line, &e);
		_exit(status < 0 ? 50 : status);
	}
	return pid;
}

static void finish_call(pid_t pid, int status)
{
	int end = -1;

	assert_int_equal(waitpid(pid, &end, 0), pid);
	assert_true(WIFEXITED(end));
	assert_int_equal(WEXITSTATUS(end), status);
}

static void test_reload_waits_for_the_server(void **state)
{
	struct world *w = *state;
	pid_t pid;
	uint64_t number;

	write_registry(w, "1234567");
	begin_ready(w);
	pid = call(w, CONTROL_RELOAD, NULL);
	number = take(w, 7);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	answer(w, number, 0);
	finish_call(pid, 0);
	pid = call(w, CONTROL_RELOAD, NULL);
	answer(w, take(w, 7), 1);
	finish_call(pid, 1);
	write_registry(w, "11");
	finish_call(call(w, CONTROL_RELOAD, NULL), 1);
	write_registry(w, "1234567");
	finish_call(call(w, 0, NULL), 50);
	finish_call(call(w, CONTROL_DRAIN + 1, NULL), 50);
	finish_call(call(w, CONTROL_STATUS, ECHO), 50);
	finish_call(call(w, CONTROL_DRAIN, ECHO), 50);
	finish_call(call(w, CONTROL_RELOAD, ECHO), 50);
	finish_call(call(w, CONTROL_PURGE, NULL), 50);
	stop(w);
	finish_call(call(w, CONTROL_RELOAD, NULL), 50);
}

/* A caller that has not asked yet. */
static int reach(struct world *w)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)snprintf(at.sun_path, sizeof(at.sun_path), "%.90s/control", w->state);
	assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static void ask(int fd, uint32_t word)
{
	const struct control_request request = { .word = word };

	assert_int_equal(send(fd, &request, sizeof(request), MSG_NOSIGNAL), sizeof(request));
}

/* A caller whose lines are kept. */
static int dial(struct world *w, uint32_t word)
{
	int fd = reach(w);

	ask(fd, word);
	return fd;
}

static void expect_packet(int fd, const char *wanted)
{
	char packet[4096];
	ssize_t n = recv(fd, packet, sizeof(packet) - 1, 0);

	assert_true(n > 0);
	packet[n] = '\0';
	assert_string_equal(packet, wanted);
}

/* What a server says that is not ours any more must not steer the operator's terminal. */
static void test_no_escape_reaches_the_caller(void **state)
{
	struct world *w = *state;
	struct launcher_message no = { .op = LAUNCHER_DONE, .status = 1 };
	char packet[2048];
	struct err e = ERR_INIT;
	ssize_t n;
	int fd;

	write_registry(w, "1234567");
	begin_ready(w);
	fd = dial(w, CONTROL_RELOAD);
	no.generation = take(w, 7);
	(void)snprintf(no.cause, sizeof(no.cause),
	               "a\x1b[2Jb\xc2\x9b"
	               "2Jc\xc3\x9f\n");
	assert_int_equal(launcher_send(w->sock, &no, NULL, &e), 0);
	n = recv(fd, packet, sizeof(packet) - 1, 0);
	assert_true(n > 0);
	packet[n] = '\0';
	assert_non_null(strstr(packet, ": a?[2Jb??2Jc\xc3\x9f?"));
	fd_close(&fd);
	stop(w);
}

static void test_a_caller_that_leaves_does_no_harm(void **state)
{
	struct world *w = *state;
	pid_t pid;
	uint64_t number;

	write_registry(w, "1234567");
	begin_ready(w);
	pid = call(w, CONTROL_RELOAD, NULL);
	number = take(w, 7);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	finish_call(call(w, CONTROL_RELOAD, NULL), 1); /* one is under way */
	answer(w, number, 0);
	pid = call(w, CONTROL_RELOAD, NULL);
	answer(w, take(w, 7), 0);
	finish_call(pid, 0);
	stop(w);
}

/* An order that nobody waits for ends between a caller's call and its request. */
static void test_a_caller_that_has_not_asked_yet_is_not_answered(void **state)
{
	struct world *w = *state;
	uint64_t number;
	int fd;

	write_registry(w, "1234567");
	begin_ready(w);
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	number = take(w, 7);
	fd = reach(w);
	expect_undeclared(w, UNDECLARED); /* the call came before this and is taken by now */
	answer(w, number, 0);
	expect_undeclared(w, UNDECLARED);
	ask(fd, CONTROL_RELOAD);
	answer(w, take(w, 7), 0);
	expect_packet(fd, "-registry in force: 7 tenants");
	fd_close(&fd);
	stop(w);
}

static void make_state(struct world *w, const char *tenant)
{
	char path[256];
	static const char *const names[] = { "", "/state", "/run", "/state/home" };

	(void)snprintf(path, sizeof(path), "%s/tenants", w->state);
	assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		(void)snprintf(path, sizeof(path), "%s/tenants/%s%s", w->state, tenant, names[i]);
		assert_int_equal(mkdir(path, 0700), 0);
	}
}

static bool has_state(struct world *w, const char *tenant)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/tenants/%s", w->state, tenant);
	return access(path, F_OK) == 0;
}

static void test_purge_takes_the_database_first(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	pid_t pid;

	write_registry(w, "1234567");
	begin_ready(w);
	make_state(w, UNDECLARED);
	finish_call(call(w, CONTROL_PURGE, ECHO), 1); /* declared */
	pid = call(w, CONTROL_PURGE, UNDECLARED);
	m = hear(w, LAUNCHER_PURGE, NULL);
	assert_string_equal(m.tenant.text, UNDECLARED);
	answer(w, m.generation, 1);
	finish_call(pid, 1);
	assert_true(has_state(w, UNDECLARED));
	pid = call(w, CONTROL_PURGE, UNDECLARED);
	m = hear(w, LAUNCHER_PURGE, NULL);
	assert_true(has_state(w, UNDECLARED));
	answer(w, m.generation, 0);
	finish_call(pid, 0);
	assert_false(has_state(w, UNDECLARED));
	stop(w);
}

static void test_purge_waits_for_no_sandbox(void **state)
{
	struct world *w = *state;
	int fds[2];

	write_registry(w, "1234567");
	begin_ready(w);
	start_runner(w, SECOND, 5, fds);
	write_registry(w, "1");
	assert_int_equal(kill(w->launcher, SIGHUP), 0);
	answer(w, take(w, 1), 0);
	finish_call(call(w, CONTROL_PURGE, SECOND), 1);
	close_both(fds);
	(void)hear(w, LAUNCHER_EXITED, NULL);
	write_registry(w, "1234567");
	stop(w);
}

/* -- status, and no more work ---------------------------------------------------------------- */

/* What the launcher shows; the file stays open in *ret_fd, at the place for lines. */
static uint64_t take_view(struct world *w, struct view_head *head, struct view_sandbox **rows,
                          int *ret_fd)
{
	int fds[2] = { -1, -1 };
	struct err e = ERR_INIT;
	struct launcher_message m = hear(w, LAUNCHER_STATUS, fds);

	assert_true(fds[0] >= 0);
	if (view_take(fds[0], head, rows, &e) < 0)
		fail_msg("%s", e.text);
	*ret_fd = fds[0];
	return m.generation;
}

static void test_a_status_is_passed_on(void **state)
{
	struct world *w = *state;
	struct view_sandbox *rows = NULL;
	struct view_head head;
	struct err e = ERR_INIT;
	int caller, view, fds[2];
	uint64_t number;

	write_registry(w, "1234567");
	begin_ready(w);
	start_runner(w, SECOND, 5, fds);
	caller = dial(w, CONTROL_STATUS);
	number = take_view(w, &head, &rows, &view);
	assert_int_equal(head.json, 0);
	assert_int_equal(head.sandboxes, 1);
	assert_string_equal(rows[0].tenant.text, SECOND);
	assert_int_equal(rows[0].generation, 5);
	assert_int_equal(rows[0].memory, VIEW_UNKNOWN); /* there are no cgroups here */
	free(rows);
	assert_int_equal(fd_write_all(view, "one\n\x1b[2Jtwo\n", 13, &e), 0);
	fd_close(&view);
	answer(w, number, 0);
	expect_packet(caller, "-one");
	expect_packet(caller, "-?[2Jtwo");
	expect_packet(caller, "=0");
	fd_close(&caller);
	close_both(fds);
	(void)hear(w, LAUNCHER_EXITED, NULL);
	stop(w);
}

static void test_a_status_cannot_grow(void **state)
{
	static const char block[65536] = { 0 };
	struct world *w = *state;
	struct view_sandbox *rows = NULL;
	struct view_head head;
	size_t written = 0;
	int caller, view;
	uint64_t number;
	ssize_t n;

	write_registry(w, "1234567");
	begin_ready(w);
	caller = dial(w, CONTROL_STATUS_JSON);
	number = take_view(w, &head, &rows, &view);
	assert_int_equal(head.json, 1);
	free(rows);
	while ((n = write(view, block, sizeof(block))) > 0)
		written += (size_t)n;
	assert_int_equal(written, VIEW_OUT_MAX);
	assert_int_equal(ftruncate(view, 1), -1);
	fd_close(&view);
	answer(w, number, 1);
	expect_packet(caller, "!the server says no");
	expect_packet(caller, "=1");
	fd_close(&caller);
	stop(w);
}

static void test_a_drain_is_over_when_nothing_runs(void **state)
{
	struct world *w = *state;
	struct launcher_message m = { .op = LAUNCHER_DONE, .processes = 2 };
	struct err e = ERR_INIT;
	int caller;

	write_registry(w, "1234567");
	begin_ready(w);
	caller = dial(w, CONTROL_DRAIN);
	m.generation = hear(w, LAUNCHER_PAUSE, NULL).generation;
	assert_int_equal(launcher_send(w->sock, &m, NULL, &e), 0);
	expect_packet(caller, "-2 turns still run");
	expect_packet(caller, "=3");
	fd_close(&caller);
	caller = dial(w, CONTROL_DRAIN);
	m.generation = hear(w, LAUNCHER_PAUSE, NULL).generation;
	m.processes = 0;
	assert_int_equal(launcher_send(w->sock, &m, NULL, &e), 0);
	expect_packet(caller, "-nothing runs");
	expect_packet(caller, "=0");
	fd_close(&caller);
	stop(w);
}

int main(int argc, char **argv, char **env)
{
	const struct CMUnitTest tests[] = {
		CASE(test_hup_hands_over_a_registry),
		CASE(test_what_the_server_refuses_is_not_in_force),
		CASE(test_what_was_started_too_early_ends),
		CASE(test_a_faulty_file_is_not_handed_over),
		CASE(test_no_workspace_gets_what_is_guarded),
		CASE(test_asked_early_and_asked_meanwhile),
		CASE(test_answers_without_a_question_end_everything),
		CASE(test_orders_are_not_the_servers_to_give),
		CASE(test_without_a_registry_hup_ends),
		CASE(test_another_workspace_ends_the_runner),
		CASE(test_reload_waits_for_the_server),
		CASE(test_no_escape_reaches_the_caller),
		CASE(test_a_caller_that_leaves_does_no_harm),
		CASE(test_a_caller_that_has_not_asked_yet_is_not_answered),
		CASE(test_purge_takes_the_database_first),
		CASE(test_purge_waits_for_no_sandbox),
		CASE(test_a_status_is_passed_on),
		CASE(test_a_status_cannot_grow),
		CASE(test_a_drain_is_over_when_nothing_runs),
	};

	return RUN_WORLD(tests);
}
