/* Starting and ending runners. */
#include "daemon/launcher/test_world.h"

#include "daemon/launcher/runner.h"
#include "daemon/launcher/state.h"

/* -- runners --------------------------------------------------------------------------- */

static void test_runner_starts_and_ends(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	char text[16];
	int fds[2];

	begin(w);
	start_runner(w, ECHO, 7, fds);
	assert_int_equal(write(fds[0], "hello\n", 6), 6);
	read_until(fds[1], "\n", text, sizeof(text));
	assert_string_equal(text, "hello\n");
	close_both(fds);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_string_equal(m.tenant.text, ECHO);
	assert_int_equal(m.generation, 7);
	assert_int_equal(m.status, 0);
	assert_string_equal(m.cause, "");
	/* And again, for the same tenant. */
	start_runner(w, ECHO, 8, fds);
	close_both(fds);
	assert_int_equal(hear(w, LAUNCHER_EXITED, NULL).generation, 8);
	start_runner(w, LIMITED, 9, fds);
	close_both(fds);
	assert_int_equal(hear(w, LAUNCHER_EXITED, NULL).generation, 9);
	stop(w);
}

static void expect_fact(const char *report, const char *fact)
{
	if (!strstr(report, fact))
		fail_msg("'%s' is not in:\n%s", fact, report);
}

static void test_what_a_runner_is_given(void **state)
{
	struct world *w = *state;
	char report[8192], fact[512];
	struct stat work, own;
	int fds[2];
	int leak = dup(0); /* not close-on-exec: whoever started the launcher was careless */

	assert_int_equal(setenv("SECRET", "of the daemon", 1), 0);
	begin(w);
	fd_close(&leak);
	start_runner(w, TELLING, 1, fds);
	read_until(fds[1], "end\n", report, sizeof(report));
	close_both(fds);
	(void)hear(w, LAUNCHER_EXITED, NULL);
	expect_fact(report, "fds 3\n");
	expect_fact(report, "environment empty\n");
	expect_fact(report, "group own\n");
	expect_fact(report, "death 9\n");
	expect_fact(report, "blocked 0\n");
	expect_fact(report, "pipe default\n");
	expect_fact(report, "cwd /\n");
	(void)snprintf(fact, sizeof(fact), "%s/work5", w->dir);
	assert_int_equal(stat(fact, &work), 0);
	(void)snprintf(fact, sizeof(fact), "%s/tenants/%s/state", w->state, TELLING);
	assert_int_equal(lstat(fact, &own), 0);
	assert_int_equal(own.st_mode & 07777, 0700);
	(void)snprintf(fact, sizeof(fact),
	               "serve --tenant %s --workspace %s/work5 --workspace-id %lu:%lu --state "
	               "%s/tenants/%s/state --state-id %lu:%lu --rootfs %s --guest ",
	               TELLING, w->dir, work.st_dev, work.st_ino, w->state, TELLING, own.st_dev,
	               own.st_ino, w->rootfs);
	expect_fact(report, fact);
	/* And nothing else: what is not declared is the runner's default. */
	(void)snprintf(fact, sizeof(fact),
	               "--runtime-dir %s/tenants/%s/run --boundary development\nend\n", w->state,
	               TELLING);
	expect_fact(report, fact);
	stop(w);
}

/* What a runner tells that was started on this ground. */
static void hear_arguments(const struct runner_ground *ground, const char *id, char *ret,
                           size_t size)
{
	struct runner *r = NULL;
	struct uuid tenant;
	struct err e = ERR_INIT;
	int pipes[2], status;

	assert_true(uuid_parse(id, &tenant));
	if (runner_start(ground, registry_find(ground->conf->registry, &tenant), &r, pipes, &e) < 0)
		fail_msg("%s", e.text);
	read_until(pipes[1], "end\n", ret, size);
	close_both(pipes);
	assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
	runner_free(&r);
}

static void test_policy_reaches_the_runner(void **state)
{
	static char hosts[2][16] = { "203.0.113.0/24", "100.64.0.1/32" };
	char *const list[] = { hosts[0], hosts[1] };
	struct world *w = *state;
	struct launcher_conf conf = w->conf;
	struct runner_ground ground = { .conf = &conf, .state_fd = -1 };
	char report[8192];
	struct err e = ERR_INIT;

	assert_int_equal(state_open(w->state, &ground.state_fd, &e), 0);
	hear_arguments(&ground, LIMITED, report, sizeof(report));
	expect_fact(report, "--boundary development --cpus 50 --memory 536870912 --processes 64 "
	                    "--egress allow --egress-allow 192.0.2.0/24 "
	                    "--egress-allow 198.51.100.7/32:443,80-81 --dns 9.9.9.9,1.1.1.1\nend");
	conf.host_addresses = list;
	conf.host_address_count = 2;
	hear_arguments(&ground, TELLING, report, sizeof(report));
	expect_fact(report, "--boundary development --host-address 203.0.113.0/24 "
	                    "--host-address 100.64.0.1/32\nend");
	/* The service profile leaves nothing to the runner's defaults. */
	conf.boundary = "service";
	ground.cgroup = "/sys/fs/cgroup/c.service";
	conf.host_address_count = 0;
	hear_arguments(&ground, TELLING, report, sizeof(report));
	expect_fact(report, "--boundary service --cgroup /sys/fs/cgroup/c.service --cpus 200 "
	                    "--memory 2147483648 --processes 512\nend");
	fd_close(&ground.state_fd);
}

/* The most that can be named fits; one more is refused, not cut. */
static void test_most_host_addresses(void **state)
{
	static char text[] = "203.0.113.0/24";
	struct world *w = *state;
	char *list[LAUNCHER_HOSTS_MAX + 1];
	struct launcher_conf conf = w->conf;
	struct runner_ground ground = { .conf = &conf, .state_fd = -1 };
	const struct tenant *tenant = registry_at(w->registry, 4);
	char report[16384];
	struct runner *r = NULL;
	int pipes[2];
	struct err e = ERR_INIT;

	for (size_t i = 0; i < ARRAY_LEN(list); i++)
		list[i] = text;
	conf.host_addresses = list;
	conf.host_address_count = LAUNCHER_HOSTS_MAX;
	assert_int_equal(state_open(w->state, &ground.state_fd, &e), 0);
	hear_arguments(&ground, TELLING, report, sizeof(report));
	conf.host_address_count++;
	assert_int_equal(runner_start(&ground, tenant, &r, pipes, &e), -1);
	assert_string_equal(e.text, "more than 256 host addresses");
	fd_close(&ground.state_fd);
}

static void test_failed_start_tells_the_reason(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	int fds[2];

	begin(w);
	start_runner(w, REFUSING, 3, fds);
	close_both(fds);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_int_equal(m.status, 2);
	assert_string_equal(m.cause, "there is no network today; come back tomorrow");
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	end_server(w, 0);
	expect_exit(w, 0, "error cloisterd: tenant " REFUSING ": runner: there is no network");
}

static void test_runner_that_cannot_be_executed(void **state)
{
	struct world *w = *state;
	char text[] = "not a program";
	char path[128];
	struct launcher_message m;
	int fds[2];

	write_text(w->dir, "broken", text);
	(void)snprintf(path, sizeof(path), "%s/broken", w->dir);
	assert_int_equal(chmod(path, 0700), 0);
	w->conf.runner = path;
	begin(w);
	start_runner(w, ECHO, 3, fds);
	close_both(fds);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_int_equal(m.status, 127);
	assert_non_null(strstr(m.cause, "cannot execute"));
	assert_non_null(strstr(m.cause, "Exec format error"));
	stop(w);
}

static void test_kill_needs_the_right_generation(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	int fds[2], other[2];

	begin(w);
	start_runner(w, ECHO, 7, fds);
	start_runner(w, SECOND, 7, other);
	say(w, LAUNCHER_KILL, ECHO, 6);
	say(w, LAUNCHER_KILL, ECHO, 8);
	say(w, LAUNCHER_KILL, UNDECLARED, 7);
	expect_silence(w);
	say(w, LAUNCHER_KILL, ECHO, 7);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_string_equal(m.tenant.text, ECHO);
	assert_int_equal(m.status, 128 + SIGKILL);
	assert_non_null(strstr(m.cause, "signal 9"));
	/* Late word about one that is gone. */
	say(w, LAUNCHER_KILL, ECHO, 7);
	expect_silence(w);
	close_both(fds);
	close_both(other);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_string_equal(m.tenant.text, SECOND);
	assert_int_equal(m.status, 0);
	stop(w);
}

static void test_second_start_is_refused(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	int fds[2];

	begin(w);
	start_runner(w, ECHO, 7, fds);
	say(w, LAUNCHER_START, ECHO, 8);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_int_equal(m.generation, 8);
	assert_int_equal(m.status, -1);
	assert_non_null(strstr(m.cause, "has not ended"));
	/* The first lives on. */
	assert_int_equal(write(fds[0], "x", 1), 1);
	assert_int_equal(read(fds[1], &(char){ 0 }, 1), 1);
	close_both(fds);
	assert_int_equal(hear(w, LAUNCHER_EXITED, NULL).generation, 7);
	stop(w);
}

static void test_undeclared_tenant_is_refused(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	char path[192];

	begin(w);
	say(w, LAUNCHER_START, UNDECLARED, 1);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_int_equal(m.status, -1);
	assert_non_null(strstr(m.cause, "not declared"));
	(void)snprintf(path, sizeof(path), "%s/tenants/%s", w->state, UNDECLARED);
	assert_int_equal(access(path, F_OK), -1);
	stop(w);
}

/* A link in the place of a state directory leads nowhere. */
static void test_planted_link_is_not_followed(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	char own[192], elsewhere[192];
	int fds[2];

	begin(w);
	start_runner(w, SECOND, 1, fds);
	close_both(fds);
	(void)hear(w, LAUNCHER_EXITED, NULL);
	(void)snprintf(own, sizeof(own), "%s/tenants/%s/state", w->state, SECOND);
	(void)snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", w->dir);
	assert_int_equal(rename(own, elsewhere), 0);
	assert_int_equal(symlink(elsewhere, own), 0);
	say(w, LAUNCHER_START, SECOND, 2);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_int_equal(m.status, -1);
	assert_non_null(strstr(m.cause, "open state"));
	assert_int_equal(unlink(own), 0);
	stop(w);
}

static size_t peak_kib(pid_t pid)
{
	char path[64];
	auto_free char *text = NULL;
	auto_close int fd = -1;
	struct err e = ERR_INIT;
	size_t len;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fd_read_all(fd, 65536, &text, &len, &e), 0);
	return strtoul(strstr(text, "VmHWM:") + 6, NULL, 10);
}

static void test_flood_of_log_is_bounded(void **state)
{
	struct world *w = *state;
	auto_free char *text = NULL;
	struct launcher_message m;
	size_t before, lines = 0;
	int fds[2];

	begin(w);
	before = peak_kib(w->launcher);
	start_runner(w, FLOODING, 1, fds);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_int_equal(m.status, 3);
	assert_string_equal(m.cause, "the flood is over");
	assert_true(peak_kib(w->launcher) < before + 1024);
	close_both(fds);
	text = log_text(w);
	for (const char *p = text; (p = strstr(p, "runner: ")); p++)
		lines++;
	assert_true(lines >= RUNNER_LOG_BURST);
	assert_true(lines < RUNNER_LOG_BURST + 150);
	assert_true(strlen(text) < 524288);
	assert_non_null(strstr(text, "lines left out here"));
	stop(w);
}

int main(int argc, char **argv, char **env)
{
	const struct CMUnitTest tests[] = {
		CASE(test_runner_starts_and_ends),
		CASE(test_what_a_runner_is_given),
		CASE(test_policy_reaches_the_runner),
		CASE(test_most_host_addresses),
		CASE(test_failed_start_tells_the_reason),
		CASE(test_runner_that_cannot_be_executed),
		CASE(test_kill_needs_the_right_generation),
		CASE(test_second_start_is_refused),
		CASE(test_undeclared_tenant_is_refused),
		CASE(test_planted_link_is_not_followed),
		CASE(test_flood_of_log_is_bounded),
	};

	return RUN_WORLD(tests);
}
