/*
 * test_attack.h - a child that confines itself and then attacks.
 *
 * Each attack is a function that returns 0 when it worked, or the errno value that
 * it met.  The same function runs unconfined first: what fails there proves nothing.
 */
#ifndef DAEMON_CONFINE_TEST_ATTACK_H
#define DAEMON_CONFINE_TEST_ATTACK_H

#include "common/test.h"

#include "common/fd.h"
#include "common/log.h"
#include "common/sanitizer.h"
#include "daemon/confine/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum walls {
	UNCONFINED,
	FILES,    /* Landlock alone */
	CALLS,    /* seccomp alone */
	ALL,      /* as the server */
	ALL_KILL, /* in kill mode */
	COURIER,  /* as the process that speaks to providers */
	LINK,     /* as the one that speaks to a PostgreSQL elsewhere */
};

#define DIES   1000 /* killed by SIGSYS */
#define BROKEN 255  /* the child could not even confine itself */

typedef int attack_fn(void);

struct attack {
	const char *name;
	attack_fn *run;
	int unconfined; /* what it comes to without walls: 0 = it works */
	int confined;
};

/* What attacks aim at, made by world_make(). */
static struct {
	char dir[64]; /* somebody's directory, with "file" in it */
	char file[80];
	char other[80]; /* does not exist */
	int file_fd;    /* open since before; so are these */
	int dir_fd;
	int netns_fd;
	int program_fd;
	pid_t attacker; /* the last one */
	pid_t victim;   /* same user, same memory layout, waits */
	int secret;
	uint16_t port; /* what may be bound, or connected to by those that connect out */
} world;

static inline int outcome(long rc)
{
	return rc < 0 ? errno : 0;
}

static inline int confine_as(enum walls walls)
{
	const struct confine_conf conf = {
		.mode = walls == ALL_KILL ? CONFINE_KILL : CONFINE_ENFORCE,
		.port = world.port,
		.need_landlock = true,
	};
	struct err e = ERR_INIT;
	int abi = 0;

	switch (walls) {
	case UNCONFINED:
		return 0;
	case FILES:
		return confine_files(world.port, &abi, &e);
	case CALLS:
		return confine_calls(CONFINE_ENFORCE, &e);
	case ALL:
	case ALL_KILL:
		return confine_self(&conf, &e);
	case COURIER:
		return confine_courier(CONFINE_ENFORCE, &world.port, 1, &e);
	case LINK:
		return confine_link(CONFINE_ENFORCE, world.port, &e);
	}
	return -1;
}

static inline int child_outcome(pid_t pid)
{
	int status = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGSYS ? DIES : DIES + WTERMSIG(status);
	return WEXITSTATUS(status);
}

/* In a mount namespace of its own, so that a mount that works harms nobody. */
static inline int attempt(enum walls walls, attack_fn *run)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (unshare(CLONE_NEWNS) < 0 ||
		    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || confine_as(walls) < 0)
			_exit(BROKEN);
		_exit(run());
	}
	world.attacker = pid;
	return child_outcome(pid);
}

static inline void expect_outcome(const char *name, enum walls walls, attack_fn *run, int expected)
{
	static const char *const names[] = { "unconfined", "Landlock alone", "seccomp alone",
		                             "confined",   "in kill mode",   "courier",
		                             "link" };
	int got = attempt(walls, run);

	if (got != expected)
		fail_msg("%s, %s: %d (%s), not %d", name, names[walls], got,
		         got < DIES ? strerror(got) : "signal", expected);
}

static inline void expect_all(const struct attack *attacks, size_t n, enum walls walls)
{
	for (size_t i = 0; i < n; i++) {
		expect_outcome(attacks[i].name, UNCONFINED, attacks[i].run, attacks[i].unconfined);
		expect_outcome(attacks[i].name, walls, attacks[i].run, attacks[i].confined);
	}
}

static inline void world_victim(void)
{
	world.secret = 1;
	world.victim = fork();
	assert_true(world.victim >= 0);
	if (world.victim == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
}

static inline int world_make(void **state)
{
	(void)state;
	log_setup("test", LOG_ERROR);
	(void)snprintf(world.dir, sizeof(world.dir), "/tmp/confine-test-XXXXXX");
	assert_non_null(mkdtemp(world.dir));
	(void)snprintf(world.file, sizeof(world.file), "%s/file", world.dir);
	(void)snprintf(world.other, sizeof(world.other), "%s/other", world.dir);
	world.file_fd = open(world.file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(world.file_fd, "text", 4), 4);
	world.dir_fd = open(world.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	world.netns_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	world.program_fd = open("/bin/true", O_RDONLY | O_CLOEXEC);
	assert_true(world.dir_fd >= 0 && world.netns_fd >= 0 && world.program_fd >= 0);
	world_victim();
	return 0;
}

static inline int world_remove(void **state)
{
	(void)state;
	(void)kill(world.victim, SIGKILL);
	(void)waitpid(world.victim, NULL, 0);
	fd_close(&world.file_fd);
	fd_close(&world.dir_fd);
	fd_close(&world.netns_fd);
	fd_close(&world.program_fd);
	(void)unlink(world.file);
	(void)unlink(world.other);
	(void)rmdir(world.other);
	return rmdir(world.dir);
}

#endif
