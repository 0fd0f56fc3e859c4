/* test_fixture.h - a cluster of its own for a test program, as the service user. */
#ifndef DAEMON_STORE_TEST_FIXTURE_H
#define DAEMON_STORE_TEST_FIXTURE_H

#include "common/test.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/test_files.h"
#include "daemon/launcher/cluster.h"
#include "daemon/store/internal.h"
#include "daemon/store/session.h"

#include <errno.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MAX_CONNECTIONS 8 /* the guard and seven in the pool */

static char state_dir[] = "/tmp/cs-XXXXXX"; /* short, for the socket's path */
static char postgres_bin[256];
static struct cluster cluster;
static struct store *store;
static struct err e;

static const struct uuid acme __attribute__((unused)) = { "01980000-0000-7000-8000-00000000ac3e" };
static const struct uuid globex
	__attribute__((unused)) = { "01980000-0000-7000-8000-00000091b0e5" };

#define assert_ok(call)             expect((call) < 0 ? -1 : 0, 0, #call, __FILE__, __LINE__)
#define assert_code(call, expected) expect((call), (expected), #call, __FILE__, __LINE__)

/* Code 0: rc must be 0.  Else rc must be -1 and the error have that code. */
static inline void expect(int rc, int code, const char *call, const char *file, int line)
{
	if (rc == (code ? -1 : 0) && (rc == 0 || e.code == code))
		return;
	print_error("%s: %d, code %d: %s\n", call, rc, e.code, e.text);
	_fail(file, line);
}

/* PostgreSQL refuses to run as root.  Dumpable again, for the sanitizers and /proc/self/fd. */
static inline void become_service_user(void)
{
	const struct passwd *pw;

	if (geteuid() != 0)
		return;
	pw = getpwnam("cloister");
	if (!pw)
		pw = getpwnam("postgres");
	if (!pw || setgroups(0, NULL) < 0 || setresgid(pw->pw_gid, pw->pw_gid, pw->pw_gid) < 0 ||
	    setresuid(pw->pw_uid, pw->pw_uid, pw->pw_uid) < 0 || chdir("/") < 0 ||
	    prctl(PR_SET_DUMPABLE, 1) < 0) {
		perror("cannot become user cloister or postgres");
		exit(1);
	}
}

static inline void find_postgres(void)
{
	glob_t found;

	if (glob("/usr/lib/postgresql/*/bin", 0, NULL, &found) != 0 || found.gl_pathc == 0) {
		(void)fprintf(stderr, "PostgreSQL is not installed\n");
		exit(1);
	}
	(void)snprintf(postgres_bin, sizeof(postgres_bin), "%s",
	               found.gl_pathv[found.gl_pathc - 1]);
	globfree(&found);
}

/* Before the tests: fails the program when there is no cluster to test with. */
static inline void fixture_begin(void)
{
	become_service_user();
	find_postgres();
	if (!mkdtemp(state_dir) ||
	    cluster_start(&cluster, state_dir, postgres_bin, CLUSTER_CONNECTIONS, &e) < 0) {
		(void)fprintf(stderr, "cannot start a cluster: %s\n", e.text);
		exit(1);
	}
}

/* After the tests; result is theirs. */
static inline int fixture_end(int result)
{
	if (cluster_stop(&cluster, &e) < 0) {
		(void)fprintf(stderr, "%s\n", e.text);
		result = 1;
	}
	return remove_tree_at(state_dir) < 0 ? 1 : result;
}

/* The first and the last test: between them descriptors are open. */
static inline void opens_the_store(void **state)
{
	const struct store_conf conf = { cluster.socket_dir, MAX_CONNECTIONS };

	(void)state;
	alarm(300); /* real fsync on a machine that does other things too */
	if (store_open(&conf, &store, &e) == 0)
		return;
	(void)fprintf(stderr, "%s\n", e.text);
	exit(1); /* no other test makes sense */
}

static inline void closes_the_store(void **state)
{
	(void)state;
	store_close(&store);
	assert_null(store);
}

static inline struct session new_session(const struct uuid *tenant)
{
	struct session in = {
		.id = uuid_new(),
		.created_ms = clock_wall_ms(),
		.model = "demo",
		.cwd = "/workspace",
	};

	in.updated_ms = in.created_ms;
	assert_ok(session_insert(store, tenant, &in, NULL, &e));
	return in;
}

#endif
