/*
 * A fork bomb outruns whoever kills one process after the other.  So everything
 * found is stopped first, and the search is repeated until it finds nothing new:
 * a stopped process forks no more, and the process limit ends the race.  Only
 * then everything is killed.  Signals go to process groups, because the kernel
 * reaches all members in one step; no group of a descendant has members outside
 * the tree, since an exec starts with its own session.
 */
#include "guest/tree.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/fd.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCS_MAX     65536
#define FREEZE_ROUNDS 32
#define PAUSE_MS      2

struct proc {
	pid_t pid;
	pid_t parent;
	pid_t group;
	bool zombie;
	bool below; /* a descendant of the caller */
};

struct procs {
	struct buf bytes;
	struct proc *at;
	size_t n;
};

#define PROCS_INIT                                                 \
	{                                                          \
		.bytes = BUF_INIT(PROCS_MAX * sizeof(struct proc)) \
	}
#define auto_procs __attribute__((cleanup(procs_release)))

static void procs_release(struct procs *p)
{
	buf_release(&p->bytes);
}

/* "12 (any (name)) S 1 12 ...": the name may hold anything, so start at the last parenthesis. */
static bool parse_stat(const char *text, struct proc *p)
{
	const char *at = strrchr(text, ')');
	char *end;

	if (!at || strlen(at) < 5)
		return false;
	p->zombie = at[2] == 'Z' || at[2] == 'X';
	p->parent = (pid_t)strtol(at + 3, &end, 10);
	at = end;
	p->group = (pid_t)strtol(at, &end, 10);
	return end > at;
}

static bool read_proc(int dir, const char *name, struct proc *p)
{
	char path[32], text[512];
	auto_close int fd = -1;
	ssize_t n;

	if (!isdigit((unsigned char)name[0]))
		return false;
	p->pid = (pid_t)strtol(name, NULL, 10);
	(void)snprintf(path, sizeof(path), "%d/stat", p->pid);
	fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = '\0';
	return parse_stat(text, p);
}

static int compare_pid(const void *a, const void *b)
{
	const struct proc *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

static struct proc *find_pid(const struct procs *all, pid_t pid)
{
	struct proc key = { .pid = pid };

	return all->n ? bsearch(&key, all->at, all->n, sizeof(key), compare_pid) : NULL;
}

/* Ancestors may die while they are read; such a chain is found complete in the next scan. */
static bool is_below(const struct procs *all, const struct proc *p, pid_t root)
{
	for (size_t depth = 0; p && depth <= all->n; depth++) {
		if (p->parent == root || p->below)
			return true;
		p = find_pid(all, p->parent);
	}
	return false;
}

static void procs_scan(struct procs *all)
{
	auto_dir DIR *dir = opendir("/proc");
	struct proc p = { .pid = 0 };
	pid_t root = getpid();
	struct dirent *d;

	buf_reset(&all->bytes);
	while (dir && (d = readdir(dir)))
		if (read_proc(dirfd(dir), d->d_name, &p))
			buf_add(&all->bytes, &p, sizeof(p));
	all->at = (struct proc *)(void *)all->bytes.data;
	all->n = all->bytes.len / sizeof(p);
	if (all->n)
		qsort(all->at, all->n, sizeof(p), compare_pid);
	for (size_t i = 0; i < all->n; i++)
		all->at[i].below = is_below(all, &all->at[i], root);
}

size_t tree_count(void)
{
	auto_procs struct procs all = PROCS_INIT;
	size_t n = 0;

	procs_scan(&all);
	for (size_t i = 0; i < all.n; i++)
		n += all.at[i].below && !all.at[i].zombie;
	return n;
}

static void signal_proc(const struct proc *p, int signo)
{
	if (p->group > 1 && p->group != getpgrp())
		(void)kill(-p->group, signo);
	else
		(void)kill(p->pid, signo);
}

/* Signal every descendant that is not in before; returns how many those were. */
static size_t signal_new(const struct procs *all, const struct procs *before, int signo)
{
	pid_t last_group = 0;
	size_t n = 0;

	for (size_t i = 0; i < all->n; i++) {
		const struct proc *p = &all->at[i], *old;

		if (!p->below || p->zombie)
			continue;
		old = before ? find_pid(before, p->pid) : NULL;
		if (old && old->below)
			continue;
		n++;
		if (p->group == last_group && p->group != getpgrp())
			continue;
		signal_proc(p, signo);
		last_group = p->group;
	}
	return n;
}

static void freeze_and_kill(void)
{
	auto_procs struct procs one = PROCS_INIT;
	auto_procs struct procs two = PROCS_INIT;
	struct procs *now = &one, *before = &two;
	size_t fresh = 1;

	for (int round = 0; fresh && round < FREEZE_ROUNDS; round++) {
		struct procs *swap = before;

		before = now;
		now = swap;
		procs_scan(now);
		fresh = signal_new(now, before, SIGSTOP);
	}
	(void)signal_new(now, NULL, SIGKILL);
}

/* False when there is no child left. */
static bool reap(pid_t leader, int *ret_status)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == leader)
			*ret_status = status;
	return pid == 0;
}

static void pause_for_child(void)
{
	struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000L };
	sigset_t child;

	(void)sigemptyset(&child);
	(void)sigaddset(&child, SIGCHLD);
	(void)sigtimedwait(&child, NULL, &pause);
}

bool tree_kill(pid_t leader, int *ret_status, uint64_t deadline_ms)
{
	if (leader > 0)
		(void)kill(-leader, SIGKILL);
	for (;;) {
		pause_for_child();
		if (!reap(leader, ret_status))
			return true;
		if (clock_mono_ms() >= deadline_ms)
			return false;
		freeze_and_kill();
	}
}
