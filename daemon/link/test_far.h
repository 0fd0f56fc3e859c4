/* test_far.h - links of a test, and connections through them. */
#ifndef DAEMON_LINK_TEST_FAR_H
#define DAEMON_LINK_TEST_FAR_H

#include "daemon/store/test_fixture.h"

#include "common/log.h"
#include "common/sanitizer.h"
#include "common/test_net.h"
#include "daemon/link/link.h"
#include "daemon/link/test_tls.h"

#include <libpq-fe.h>
#include <poll.h>
#include <sys/wait.h>

#define PASSWORD    "correct horse battery staple"
#define GENEROUS_MS 60000 /* for what happens at once, on a slow machine too */

struct far {
	char dir[64]; /* of its socket */
	int sock;
	pid_t keeper;
};

static struct authority ours;
static char ours_path[64];

static inline char *path_of(const char *name, char ret[64])
{
	(void)snprintf(ret, 64, "%s/%s", state_dir, name);
	return ret;
}

static inline void far_begin(void)
{
	log_setup("test", LOG_ERROR);
	assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	become_service_user();
	assert_non_null(mkdtemp(state_dir));
	ours = new_authority("an authority of a test");
	write_pem(path_of("authority.pem", ours_path), ours.cert, NULL);
}

static inline int far_end(int result)
{
	free_authority(&ours);
	return remove_tree_at(state_dir) < 0 ? 1 : result;
}

/* The youngest one. */
static inline pid_t child_of(pid_t pid)
{
	char path[64], line[1000] = "", *at = line;
	pid_t last = -1;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	if (fgets(line, sizeof(line), f))
		for (long n; (n = strtol(at, &at, 10)) > 0;)
			last = (pid_t)n;
	assert_int_equal(fclose(f), 0);
	return last;
}

/* In kill mode, so that a call that is missing from the list ends the link. */
static inline struct far start_far(const char *host, uint16_t port, unsigned int connections)
{
	static int number;
	const struct link_conf conf = { .host = host,
		                        .port = port,
		                        .ca_file = ours_path,
		                        .connections = connections,
		                        .mode = CONFINE_KILL };
	struct far far;

	(void)snprintf(far.dir, sizeof(far.dir), "%s/%d", state_dir, number++);
	assert_int_equal(mkdir(far.dir, 0700), 0);
	assert_ok(link_start(&conf, far.dir, &far.sock, &e));
	far.keeper = child_of(getpid());
	return far;
}

static inline void stop_far(struct far *far)
{
	fd_close(&far->sock);
	assert_int_equal(waitpid(far->keeper, NULL, 0), far->keeper);
}

static inline PGconn *connect_as(const struct far *far, const char *user)
{
	char conninfo[300];

	(void)snprintf(conninfo, sizeof(conninfo),
	               "host=%s user=%s password='" PASSWORD "' dbname=postgres", far->dir, user);
	return PQconnectdb(conninfo);
}

static inline PGconn *connected_as(const struct far *far, const char *user)
{
	PGconn *conn = connect_as(far, user);

	if (PQstatus(conn) != CONNECTION_OK)
		fail_msg("%s", PQerrorMessage(conn));
	return conn;
}

/* That there is no session, and that libpq was told why; *text is in what it says. */
static inline void expect_no_session(const struct far *far, const char *text)
{
	PGconn *conn = connect_as(far, "alice");

	assert_int_equal(PQstatus(conn), CONNECTION_BAD);
	if (!strstr(PQerrorMessage(conn), text) || !strstr(PQerrorMessage(conn), "FATAL:  "))
		fail_msg("not \"%s\": %s", text, PQerrorMessage(conn));
	PQfinish(conn);
}

#endif
