/* Starting, stopping and crashing a real cluster. */
#include "daemon/store/test_fixture.h"

#include "daemon/launcher/cluster_exec.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void kill_cluster(void)
{
	assert_int_equal(kill(cluster.pid, SIGKILL), 0);
	assert_int_equal(waitpid(cluster.pid, NULL, 0), cluster.pid);
	cluster.pid = -1;
}

static void killed_cluster_loses_nothing(void **state)
{
	struct session s = new_session(&acme), found;
	uint64_t generation = store_generation(store);

	(void)state;
	kill_cluster();
	/* The backends notice within moments; until then they may still answer. */
	for (int i = 0; i < 3000 && store_ping(store, &e) == 0; i++)
		usleep(10000);
	assert_code(store_ping(store, &e), STORE_UNAVAILABLE);
	for (int i = 0; i < 3000 && session_get(store, &acme, &s.id, &found, &e) == 0; i++)
		usleep(10000);
	assert_code(session_get(store, &acme, &s.id, &found, &e), STORE_UNAVAILABLE);
	assert_ok(cluster_start(&cluster, state_dir, postgres_bin, CLUSTER_CONNECTIONS, &e));
	assert_ok(session_get(store, &acme, &s.id, &found, &e));
	assert_ok(store_ping(store, &e));
	store_close(&store);
	opens_the_store(NULL);
	assert_int_equal(store_generation(store), generation + 1);
	assert_ok(session_get(store, &acme, &s.id, &found, &e));
}

static void running_cluster_is_not_started_twice(void **state)
{
	struct cluster other;

	(void)state;
	assert_code(cluster_start(&other, state_dir, postgres_bin, CLUSTER_CONNECTIONS, &e), EBUSY);
	assert_non_null(strstr(e.text, "another PostgreSQL"));
	assert_ok(store_ping(store, &e));
}

static void restart_waits_for_a_predecessor(void **state)
{
	pid_t old = cluster.pid;

	(void)state;
	store_close(&store);
	assert_int_equal(kill(old, SIGINT), 0); /* as when the launcher dies */
	assert_ok(cluster_start(&cluster, state_dir, postgres_bin, CLUSTER_CONNECTIONS, &e));
	assert_int_equal(waitpid(old, NULL, 0), old);
	opens_the_store(NULL);
}

/* The stale file of a crash names a process that lives, but is something else. */
static void recycled_pid_does_not_hinder(void **state)
{
	char path[4200], line[32];
	FILE *f;

	(void)state;
	store_close(&store);
	kill_cluster();
	(void)snprintf(path, sizeof(path), "%s/postmaster.pid", cluster.data_dir);
	f = fopen(path, "r+e");
	assert_non_null(f);
	(void)snprintf(line, sizeof(line), "%d\n", (int)getpid());
	assert_true(fputs(line, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_ok(cluster_start(&cluster, state_dir, postgres_bin, CLUSTER_CONNECTIONS, &e));
	opens_the_store(NULL);
}

/* One that somebody started by hand has no lock, but works in the directory. */
static void foreign_postmaster_is_not_touched(void **state)
{
	char postgres[300];
	const char *const argv[] = { postgres, "-D", cluster.data_dir, NULL };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct cluster other;
	pid_t pid;

	(void)state;
	store_close(&store);
	assert_ok(cluster_stop(&cluster, &e));
	(void)snprintf(postgres, sizeof(postgres), "%s/postgres", postgres_bin);
	pid = cluster_spawn(&(struct cluster_child){ argv, null, null, -1, SIGINT }, &e);
	assert_true(pid > 0);
	assert_int_equal(close(null), 0);
	for (int i = 0;
	     i < 3000 && store_open(&(struct store_conf){ cluster.socket_dir, 4 }, &store, &e) < 0;
	     i++)
		usleep(10000);
	assert_code(cluster_start(&other, state_dir, postgres_bin, CLUSTER_CONNECTIONS, &e), EBUSY);
	assert_non_null(strstr(e.text, "another PostgreSQL"));
	assert_ok(store_ping(store, &e));
	store_close(&store);
	assert_int_equal(kill(pid, SIGINT), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_ok(cluster_start(&cluster, state_dir, postgres_bin, CLUSTER_CONNECTIONS, &e));
	opens_the_store(NULL);
}

/* Starts a cluster in dir, reports the postmaster's pid and waits to be killed. */
static no_return void be_a_launcher(const char *dir, int report)
{
	struct cluster own;

	if (cluster_start(&own, dir, postgres_bin, CLUSTER_CONNECTIONS, &e) < 0 ||
	    write(report, &own.pid, sizeof(own.pid)) != sizeof(own.pid))
		_exit(1);
	for (;;)
		pause();
}

static void cluster_ends_with_its_launcher(void **state)
{
	char dir[] = "/tmp/cl-XXXXXX";
	struct cluster next;
	pid_t launcher, old = 0;
	int report[2];

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(pipe2(report, O_CLOEXEC), 0);
	launcher = fork();
	if (launcher == 0)
		be_a_launcher(dir, report[1]);
	assert_int_equal(close(report[1]), 0);
	assert_int_equal(read(report[0], &old, sizeof(old)), sizeof(old));
	assert_int_equal(close(report[0]), 0);
	assert_int_equal(kill(old, 0), 0);
	assert_int_equal(kill(launcher, SIGKILL), 0);
	assert_int_equal(waitpid(launcher, NULL, 0), launcher);
	assert_ok(cluster_start(&next, dir, postgres_bin, CLUSTER_CONNECTIONS,
	                        &e)); /* it waits for the old one */
	assert_int_not_equal(next.pid, old);
	assert_ok(cluster_stop(&next, &e));
	assert_int_equal(remove_tree_at(dir), 0);
}

static void read_log(char *ret, size_t size)
{
	char path[4200];
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/log", cluster.dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	n = read(fd, ret, size - 1);
	assert_true(n >= 0);
	ret[n] = '\0';
	assert_int_equal(close(fd), 0);
}

static void log_holds_no_data_and_is_bounded(void **state)
{
	struct session s = new_session(&acme);
	char path[4200], text[65536];
	struct stat st;

	(void)state;
	s.cwd[0] = '!';
	(void)snprintf(s.title, sizeof(s.title), "secret-title");
	assert_code(session_insert(store, &acme, &s, NULL, &e), STORE_CONFLICT);
	assert_null(strstr(e.text, "secret"));
	read_log(text, sizeof(text));
	assert_non_null(strstr(text, "ready to accept connections"));
	assert_null(strstr(text, "secret"));
	assert_null(strstr(text, "INSERT"));
	(void)snprintf(path, sizeof(path), "%s/log", cluster.dir);
	assert_int_equal(truncate(path, 4 << 20), 0);
	cluster_trim_log(&cluster);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 4 << 20);
	assert_int_equal(truncate(path, (4 << 20) + 1), 0);
	cluster_trim_log(&cluster);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 0);
}

static void cluster_names_what_is_wrong(void **state)
{
	struct cluster other;

	(void)state;
	assert_code(cluster_start(&other, state_dir, "/nonexistent", CLUSTER_CONNECTIONS, &e),
	            ENOENT);
	assert_non_null(strstr(e.text, "install PostgreSQL"));
	assert_code(cluster_start(&other, "/proc", postgres_bin, CLUSTER_CONNECTIONS, &e), ENOENT);
	assert_non_null(strstr(e.text, "must be writable"));
}

static void state_directory_is_bounded(void **state)
{
	const size_t most = CLUSTER_SOCKET_DIR_MAX - strlen("/pg/run");
	char dir[] = "/tmp/cl-XXXXXX", deep[CLUSTER_SOCKET_DIR_MAX];
	struct cluster other;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(deep, sizeof(deep), "%s/%0*d", dir, (int)(most - sizeof(dir)), 0);
	assert_int_equal(strlen(deep), most);
	assert_int_equal(mkdir(deep, 0700), 0);
	assert_ok(cluster_start(&other, deep, postgres_bin, CLUSTER_CONNECTIONS, &e));
	assert_ok(cluster_stop(&other, &e));
	memcpy(deep + most, "0", 2);
	assert_code(cluster_start(&other, deep, postgres_bin, CLUSTER_CONNECTIONS, &e),
	            ENAMETOOLONG);
	assert_non_null(strstr(e.text, "is longer than 73 bytes"));
	assert_non_null(strstr(e.text, "use a shorter one"));
	assert_int_equal(remove_tree_at(dir), 0);
}

static void other_major_version_is_refused(void **state)
{
	char dir[] = "/tmp/cv-XXXXXX", path[64];
	struct cluster other;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/pg", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/pg/data", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_code(cluster_start(&other, dir, postgres_bin, CLUSTER_CONNECTIONS, &e), ENOENT);
	(void)snprintf(path, sizeof(path), "%s/pg/data/PG_VERSION", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "13\n", 3), 3);
	assert_int_equal(close(fd), 0);
	assert_code(cluster_start(&other, dir, postgres_bin, CLUSTER_CONNECTIONS, &e), EINVAL);
	assert_non_null(strstr(e.text, "was made by PostgreSQL 13"));
	assert_non_null(strstr(e.text, "upgrade it: upgrade-database STATE USER OLD_BIN NEW_BIN"));
	assert_int_equal(remove_tree_at(dir), 0);
}

static void make_below(const char *dir, const char *name)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static void remove_below(const char *dir, const char *name)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(rmdir(path), 0);
}

/* Between the two renames of an upgrade there is no "data", and an empty one would follow. */
static void no_cluster_is_made_after_an_upgrade_that_was_broken_off(void **state)
{
	char dir[] = "/tmp/cu-XXXXXX", data[64];
	struct cluster other;

	(void)state;
	assert_non_null(mkdtemp(dir));
	make_below(dir, "pg");
	make_below(dir, "pg/upgrade");
	assert_code(cluster_start(&other, dir, postgres_bin, CLUSTER_CONNECTIONS, &e), EEXIST);
	assert_non_null(strstr(e.text, "upgrade, of an upgrade that was broken off, is there"));
	make_below(dir, "pg/data.9");
	make_below(dir, "pg/data.15");
	assert_code(cluster_start(&other, dir, postgres_bin, CLUSTER_CONNECTIONS, &e), EEXIST);
	assert_non_null(strstr(e.text, "pg/data.15 to data and upgrade again"));
	(void)snprintf(data, sizeof(data), "%s/pg/data", dir);
	assert_int_equal(access(data, F_OK), -1);
	remove_below(dir, "pg/upgrade");
	remove_below(dir, "pg/data.9");
	remove_below(dir, "pg/data.15");
	make_below(dir, "pg/data.new"); /* of a start that was broken off */
	assert_ok(cluster_start(&other, dir, postgres_bin, CLUSTER_CONNECTIONS, &e));
	assert_ok(cluster_stop(&other, &e));
	assert_int_equal(remove_tree_at(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_the_store),
		cmocka_unit_test(killed_cluster_loses_nothing),
		cmocka_unit_test(running_cluster_is_not_started_twice),
		cmocka_unit_test(restart_waits_for_a_predecessor),
		cmocka_unit_test(recycled_pid_does_not_hinder),
		cmocka_unit_test(foreign_postmaster_is_not_touched),
		cmocka_unit_test(cluster_ends_with_its_launcher),
		cmocka_unit_test(log_holds_no_data_and_is_bounded),
		cmocka_unit_test(cluster_names_what_is_wrong),
		cmocka_unit_test(state_directory_is_bounded),
		cmocka_unit_test(other_major_version_is_refused),
		cmocka_unit_test(no_cluster_is_made_after_an_upgrade_that_was_broken_off),
		cmocka_unit_test(closes_the_store),
	};

	fixture_begin();
	return fixture_end(RUN_TESTS(tests));
}
