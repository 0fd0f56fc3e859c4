/*
 * The launcher holds one power that the server is to lack: it executes programs.  It
 * keeps that power harmless by knowing almost nothing.  It listens to no network, reads
 * no file of a tenant, and takes from the server a tenant's id, a number and one of four
 * words; paths come from its own copy of the registry, which it alone reads.  Root and the
 * service user may have it read again, or have it remove what is kept of a tenant that is
 * not declared any more (orders.h).
 * A word it does not know ends everything, because a server that says it is no longer
 * the program that was started.
 *
 * Everything it starts dies with it (child.h), and it ends what it started in one fixed
 * order: the server first, which may finish its turns; then the runners, whose sandboxes
 * nobody commands any more; PostgreSQL last, when nobody can commit.
 */
#include "daemon/launcher/launcher.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "common/sanitizer.h"
#include "daemon/launcher/child.h"
#include "daemon/launcher/cluster.h"
#include "daemon/launcher/delegation.h"
#include "daemon/launcher/disk.h"
#include "daemon/launcher/message.h"
#include "daemon/launcher/notify.h"
#include "daemon/launcher/orders.h"
#include "daemon/launcher/outbox.h"
#include "daemon/launcher/preflight.h"
#include "daemon/launcher/remains.h"
#include "daemon/launcher/runner.h"
#include "daemon/launcher/state.h"
#include "daemon/launcher/view.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Milliseconds. */
#define READY_TIMEOUT  90000
#define DRAIN_GRACE    10000 /* on top of what the operator grants */
#define CLOSED_TIMEOUT 5000  /* between the server's end of its socket and its own */
#define TERM_TIMEOUT   10000
#define KILL_TIMEOUT   5000
#define TRIM_INTERVAL  60000
#define EVICT_AFTER    10000 /* the server ends the sandboxes of removed tenants within that */
#define ECHO_WINDOW    500   /* a second signal within it is the first once more */

enum phase {
	PHASE_SERVE,        /* the server lives and nobody asked it to end */
	PHASE_DRAIN,        /* it was asked to finish */
	PHASE_KILL_SERVER,  /* it was killed, not reaped yet */
	PHASE_END_RUNNERS,  /* the server is gone; runners were told to end */
	PHASE_KILL_RUNNERS, /* they were killed */
	PHASE_DONE,
};

struct launcher {
	const struct launcher_conf *conf;
	pid_t pid;
	int state_fd;
	int epoll_fd;
	int signal_fd;
	int sock;     /* to the server; -1 = closed */
	pid_t server; /* -1 = reaped */
	struct notify notify;
	char cgroup[PATH_MAX]; /* of the unit; "" in the development profile */
	struct cluster cluster;
	struct runner *runners;
	struct remains remains;
	struct runner_log_past *logs; /* of tenants that had a runner just now */
	struct outbox outbox;
	struct orders orders;
	struct disk disk;
	enum phase phase;
	uint64_t deadline_ms; /* of the phase, monotonic; 0 = none */
	uint64_t asked_ms;    /* when the last TERM or INT came; 0 = never */
	uint64_t evict_ms;    /* when runners of tenants that are not declared end; 0 = never */
	uint64_t trim_ms;     /* when PostgreSQL's log is looked at again */
	uint64_t disk_ms;     /* when room on the disk is looked at again */
	bool ready;
	int status; /* to be returned */
};

static void enter(struct launcher *l, enum phase phase);

/* -- sources of the loop --------------------------------------------------------------- */

/* What epoll hands back: a fixed descriptor's own address, or a runner. */
static int watch(struct launcher *l, int fd, uint32_t events, void *source, struct err *e)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return err_errno(e, "watch a descriptor");
	return 0;
}

static void unwatch(struct launcher *l, int *fd)
{
	if (*fd >= 0)
		(void)epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
	fd_close(fd);
}

/* -- phases: how everything ends ------------------------------------------------------- */

/* A fault that leaves nothing to serve: say so, end all, and tell it by the exit status. */
static void printf_like(2, 3) fail(struct launcher *l, const char *fmt, ...)
{
	struct err e = ERR_INIT;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(e.text, sizeof(e.text), fmt, ap);
	va_end(ap);
	log_error("%s; ending everything", e.text);
	l->status = 1;
	if (l->phase < PHASE_KILL_SERVER)
		enter(l, PHASE_KILL_SERVER);
}

/* The service manager, when there is one: it acts on this, nothing here depends on it. */
static void announce(const struct launcher *l, const char *state)
{
	struct err e = ERR_INIT;

	if (notify_send(&l->notify, state, &e) < 0)
		log_error("%s: %s", state, e.text);
}

static void flush(struct launcher *l)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = &l->sock };
	struct err e = ERR_INIT;

	if (l->sock < 0)
		return;
	if (outbox_flush(&l->outbox, l->sock, &e) < 0) {
		/* Nobody reads there any more; what became of the server shows when it is reaped.
		 */
		outbox_release(&l->outbox);
		return;
	}
	if (!outbox_empty(&l->outbox))
		event.events |= EPOLLOUT;
	(void)epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, l->sock, &event);
}

/* Takes the descriptors. */
static void tell(struct launcher *l, const struct launcher_message *m, int fds[2])
{
	struct err e = ERR_INIT;

	if (l->phase >= PHASE_KILL_SERVER || l->sock < 0) {
		if (fds) {
			fd_close(&fds[0]);
			fd_close(&fds[1]);
		}
		return;
	}
	if (outbox_put(&l->outbox, m, fds, &e) < 0) {
		fail(l, "message to the server: %s", e.text);
		return;
	}
	flush(l);
}

static void signal_runners(struct launcher *l, int sig)
{
	for (struct runner *r = l->runners; r; r = r->next)
		(void)!kill(r->pid, sig);
}

/* The one place where a phase begins. */
static void enter(struct launcher *l, enum phase phase)
{
	uint64_t now = clock_mono_ms();

	l->phase = phase;
	if (phase != PHASE_SERVE)
		orders_accept(&l->orders, false);
	switch (phase) {
	case PHASE_SERVE:
		l->deadline_ms = now + READY_TIMEOUT;
		break;
	case PHASE_DRAIN:
		announce(l, "STOPPING=1");
		log_info("draining for at most %u s", l->conf->drain_seconds);
		l->deadline_ms = now + (uint64_t)l->conf->drain_seconds * 1000 + DRAIN_GRACE;
		tell(l, &(struct launcher_message){ .op = LAUNCHER_DRAIN }, NULL);
		break;
	case PHASE_KILL_SERVER:
		l->deadline_ms = now + KILL_TIMEOUT;
		if (l->server > 0)
			(void)!kill(l->server, SIGKILL);
		unwatch(l, &l->sock);
		break;
	case PHASE_END_RUNNERS:
		l->deadline_ms = now + TERM_TIMEOUT;
		unwatch(l, &l->sock);
		signal_runners(l, SIGTERM);
		break;
	case PHASE_KILL_RUNNERS:
		l->deadline_ms = now + KILL_TIMEOUT;
		signal_runners(l, SIGKILL);
		break;
	case PHASE_DONE:
		l->deadline_ms = 0;
		break;
	}
	if (l->phase >= PHASE_END_RUNNERS && !l->runners)
		l->phase = PHASE_DONE;
}

static void deadline_passed(struct launcher *l)
{
	switch (l->phase) {
	case PHASE_SERVE:
		if (l->sock < 0)
			fail(l, "the server closed its socket and lives on");
		else
			fail(l, "the server was not ready within %d s", READY_TIMEOUT / 1000);
		break;
	case PHASE_DRAIN:
		log_error("the server did not end in time; killing it");
		l->status = 1;
		enter(l, PHASE_KILL_SERVER);
		break;
	case PHASE_KILL_SERVER:
		log_error("the server cannot be killed; leaving it behind");
		l->status = 1;
		enter(l, PHASE_END_RUNNERS);
		break;
	case PHASE_END_RUNNERS:
		log_warn("runners did not end within %d s; killing them", TERM_TIMEOUT / 1000);
		enter(l, PHASE_KILL_RUNNERS);
		break;
	case PHASE_KILL_RUNNERS:
		log_error("runners cannot be killed; leaving them behind");
		l->status = 1;
		enter(l, PHASE_DONE);
		break;
	case PHASE_DONE:
		break;
	}
}

/* TERM or INT: the next step of the same end, sooner. */
static void stop_asked(struct launcher *l)
{
	uint64_t now = clock_mono_ms();

	/* timeout(1), say, signals its child and then the group that the child is in. */
	if (l->asked_ms != 0 && now - l->asked_ms < ECHO_WINDOW)
		return;
	l->asked_ms = now;
	switch (l->phase) {
	case PHASE_SERVE:
		enter(l, PHASE_DRAIN);
		break;
	case PHASE_DRAIN:
		log_info("asked again: ending without drain");
		enter(l, PHASE_KILL_SERVER);
		break;
	case PHASE_END_RUNNERS:
		enter(l, PHASE_KILL_RUNNERS);
		break;
	case PHASE_KILL_SERVER:
	case PHASE_KILL_RUNNERS:
	case PHASE_DONE:
		break;
	}
}

/* -- runners --------------------------------------------------------------------------- */

static struct runner *find_runner(struct launcher *l, const struct uuid *tenant)
{
	for (struct runner *r = l->runners; r; r = r->next)
		if (uuid_equal(&r->tenant, tenant))
			return r;
	return NULL;
}

static void tell_exited(struct launcher *l, const struct uuid *tenant, uint64_t generation,
                        int status, const char *cause)
{
	struct launcher_message m = {
		.op = LAUNCHER_EXITED,
		.generation = generation,
		.tenant = *tenant,
		.status = status,
	};

	(void)snprintf(m.cause, sizeof(m.cause), "%s", cause);
	tell(l, &m, NULL);
}

/* Takes the places, whatever happens. */
static int add_runner(struct launcher *l, const struct launcher_message *m,
                      const struct tenant *tenant, struct disk_places *places, int ret_pipes[2],
                      struct err *e)
{
	const struct runner_ground ground = {
		.conf = l->conf,
		.state_fd = l->state_fd,
		.cgroup = l->cgroup[0] ? l->cgroup : NULL,
	};
	struct runner *r;

	if (runner_start(&ground, tenant, &r, ret_pipes, e) < 0) {
		disk_places_close(places);
		return -1;
	}
	runner_log_resume(&r->log, &l->logs, clock_mono_ms());
	r->places = *places;
	l->disk_ms = clock_mono_ms() + DISK_INTERVAL;
	remains_forget(&l->remains, &r->tenant);
	r->generation = m->generation;
	r->next = l->runners;
	l->runners = r;
	log_info("tenant %s: runner %d started, generation %" PRIu64, r->tenant.text, (int)r->pid,
	         r->generation);
	/* Without its log it would hang once the pipe is full: then it must not run. */
	if (watch(l, r->log_fd, EPOLLIN, r, e) < 0) {
		(void)!kill(r->pid, SIGKILL);
		fd_close(&r->log_fd);
		log_error("tenant %s: runner killed: %s", r->tenant.text, e->text);
	}
	return 0;
}

/* The places are opened only if they have to be looked at. */
static bool has_room(struct launcher *l, const struct tenant *tenant, struct disk_places *places)
{
	places->n = 0;
	if (disk_look(&l->disk) == DISK_ENOUGH)
		return true;
	disk_places_open(places, l->state_fd, tenant);
	if (!disk_short(places, l->disk.limits.start))
		return true;
	disk_places_close(places);
	return false;
}

static void start_runner(struct launcher *l, const struct launcher_message *m)
{
	const struct tenant *tenant = orders_tenant(&l->orders, &m->tenant);
	struct launcher_message started = {
		.op = LAUNCHER_STARTED,
		.generation = m->generation,
		.tenant = m->tenant,
	};
	struct disk_places places;
	struct err e = ERR_INIT;
	int pipes[2] = { -1, -1 };

	if (!tenant) {
		log_error("the server asked for tenant %s, which is not declared", m->tenant.text);
		tell_exited(l, &m->tenant, m->generation, -1, "this tenant is not declared");
	} else if (find_runner(l, &m->tenant)) {
		tell_exited(l, &m->tenant, m->generation, -1,
		            "the tenant's former runner has not ended yet");
	} else if (!has_room(l, tenant, &places)) {
		tell_exited(l, &m->tenant, m->generation, RUNNER_NO_ROOM,
		            "the disk of this machine is too full for a sandbox; try again later");
	} else if (add_runner(l, m, tenant, &places, pipes, &e) < 0) {
		log_error("tenant %s: start the runner: %s", m->tenant.text, e.text);
		tell_exited(l, &m->tenant, m->generation, -1, e.text);
	} else {
		started.processes = tenant->limits.processes;
		tell(l, &started, pipes);
	}
}

/* A late word about an earlier generation must not hit its successor. */
static void kill_runner(struct launcher *l, const struct launcher_message *m)
{
	struct runner *r = find_runner(l, &m->tenant);

	if (r && r->generation == m->generation)
		(void)!kill(r->pid, SIGKILL);
}

static void runner_logged(struct launcher *l, struct runner *r)
{
	if (!runner_read_log(r))
		unwatch(l, &r->log_fd);
}

static void runner_reaped(struct launcher *l, struct runner **at, int wait_status)
{
	struct runner *r = *at;
	char cause[RUNNER_LOG_REASON], end[CHILD_END_SIZE];

	*at = r->next;
	l->disk_ms = clock_mono_ms() + DISK_INTERVAL;
	(void)epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, r->log_fd, NULL);
	runner_end(r, wait_status, cause);
	runner_log_keep(&r->log, &l->logs, clock_mono_ms());
	child_describe(wait_status, end);
	log_info("tenant %s: runner %d ended: %s", r->tenant.text, (int)r->pid, end);
	if (r->no_room)
		tell_exited(l, &r->tenant, r->generation, RUNNER_NO_ROOM,
		            "the disk of this machine became too full");
	else
		tell_exited(l, &r->tenant, r->generation, child_code(wait_status), cause);
	if (l->cgroup[0])
		remains_add(&l->remains, &r->tenant);
	runner_free(&r);
	if (l->phase >= PHASE_END_RUNNERS && !l->runners)
		enter(l, PHASE_DONE);
}

/* Places of a sandbox that started while there was room are not open yet. */
static bool writes_where_short(struct launcher *l, struct runner *r)
{
	const struct tenant *tenant = orders_tenant(&l->orders, &r->tenant);

	if (!r->places.n && !tenant)
		return true; /* removed, and about to end */
	if (!r->places.n)
		disk_places_open(&r->places, l->state_fd, tenant);
	return disk_short(&r->places, l->disk.limits.end);
}

/*
 * Only SIGKILL is quick enough: what writes the disk full does not stop for SIGTERM.
 * The reserve is given back when nobody is left who would write that full as well.
 */
static void watch_disk(struct launcher *l, uint64_t now)
{
	bool left = false;

	l->disk_ms = now + (l->runners ? DISK_INTERVAL : TRIM_INTERVAL);
	if (disk_look(&l->disk) != DISK_END)
		return;
	for (struct runner *r = l->runners; r; r = r->next) {
		if (!r->no_room && !writes_where_short(l, r))
			continue;
		left = true;
		if (r->no_room)
			continue;
		log_warn("tenant %s: runner %d is ended: its sandbox writes where the disk is full",
		         r->tenant.text, (int)r->pid);
		r->no_room = true;
		(void)!kill(r->pid, SIGKILL);
	}
	if (!left)
		disk_release(&l->disk);
}

/* -- another registry ---------------------------------------------------------------------- */

static bool has_moved(const struct tenant *a, const struct tenant *b)
{
	return strcmp(a->workspace, b->workspace) != 0 || a->place.device != b->place.device ||
	       a->place.inode != b->place.inode;
}

/* Messages that may wait for the server: a few for each sandbox, and for what else is said. */
static size_t outbox_room(const struct registry *registry)
{
	return 4 * registry_count(registry) + 16;
}

/*
 * A sandbox keeps the workspace that it has, so it ends when that is not the declared one.
 * Those of removed tenants are the server's to end, once their turns are cancelled; later
 * they are ended here, whatever the server does.
 */
static void registry_changed(void *ctx, const struct registry *before)
{
	struct launcher *l = ctx;

	for (struct runner *r = l->runners; r; r = r->next) {
		const struct tenant *was = registry_find(before, &r->tenant);
		const struct tenant *is = registry_find(l->orders.registry, &r->tenant);

		if (!was || !is || !has_moved(was, is))
			continue;
		log_info("tenant %s: another workspace; runner %d ends", r->tenant.text,
		         (int)r->pid);
		(void)!kill(r->pid, SIGTERM);
	}
	l->outbox.limit = outbox_room(l->orders.registry);
	/* A tenant that was never declared has no turns, only what was started too early. */
	l->evict_ms = clock_mono_ms() + (before == l->orders.registry ? 0 : EVICT_AFTER);
}

static void evict(struct launcher *l)
{
	l->evict_ms = 0;
	for (struct runner *r = l->runners; r; r = r->next)
		if (!registry_find(l->orders.registry, &r->tenant))
			(void)!kill(r->pid, SIGTERM);
}

static void order_tell(void *ctx, const struct launcher_message *m, int fds[2])
{
	tell(ctx, m, fds);
}

static bool order_runs(void *ctx, const struct uuid *tenant)
{
	return find_runner(ctx, tenant) != NULL;
}

static int order_view(void *ctx, bool json, int *ret_fd, off_t *ret_at, struct err *e)
{
	const struct launcher *l = ctx;

	return view_open(l->runners, l->cgroup, json, ret_fd, ret_at, e);
}

/* -- the server ------------------------------------------------------------------------ */

static void server_ready(struct launcher *l, const struct launcher_message *m)
{
	bool v6 = l->conf->host && strchr(l->conf->host, ':');

	if (l->ready) {
		fail(l, "the server became ready twice");
		return;
	}
	l->ready = true;
	if (l->phase == PHASE_SERVE)
		l->deadline_ms = 0;
	if (l->conf->host && log_form() == LOG_TEXT)
		printf("cloisterd: ready on http://%s%s%s:%u\n", v6 ? "[" : "", l->conf->host,
		       v6 ? "]" : "", m->port);
	else if (l->conf->host)
		log_info("ready on http://%s%s%s:%u", v6 ? "[" : "", l->conf->host, v6 ? "]" : "",
		         m->port);
	(void)fflush(stdout);
	announce(l, "READY=1");
	if (l->phase == PHASE_SERVE)
		orders_accept(&l->orders, true);
}

static void take_message(struct launcher *l, const struct launcher_message *m)
{
	switch ((enum launcher_op)m->op) {
	case LAUNCHER_READY:
		server_ready(l, m);
		break;
	case LAUNCHER_START:
		start_runner(l, m);
		break;
	case LAUNCHER_KILL:
		kill_runner(l, m);
		break;
	case LAUNCHER_DONE:
		if (!orders_done(&l->orders, m) && l->phase == PHASE_SERVE)
			fail(l, "the server answered what it was not asked");
		break;
	case LAUNCHER_STARTED:
	case LAUNCHER_EXITED:
	case LAUNCHER_DRAIN:
	case LAUNCHER_REGISTRY:
	case LAUNCHER_PURGE:
	case LAUNCHER_STATUS:
	case LAUNCHER_PAUSE:
	default:
		fail(l, "the server sent message %u, which is not its to send", m->op);
	}
}

static void server_spoke(struct launcher *l)
{
	struct launcher_message m;
	int fds[2] = { -1, -1 };
	struct err e = ERR_INIT;
	int r = launcher_receive(l->sock, &m, fds, &e);

	if (r > 0 && fds[0] >= 0) {
		fd_close(&fds[0]);
		fd_close(&fds[1]);
		fail(l, "the server sent descriptors");
	} else if (r > 0) {
		take_message(l, &m);
	} else if (r == 0) {
		/* It is about to end, and how shows when it is reaped. */
		unwatch(l, &l->sock);
		outbox_release(&l->outbox);
		if (l->phase == PHASE_SERVE)
			l->deadline_ms = clock_mono_ms() + CLOSED_TIMEOUT;
	} else if (e.code != EAGAIN) {
		fail(l, "message from the server: %s", e.text);
	}
}

static void server_reaped(struct launcher *l, int wait_status)
{
	char end[CHILD_END_SIZE];

	child_describe(wait_status, end);
	l->server = -1;
	if (l->phase == PHASE_SERVE) {
		log_error("the server ended %s: %s", l->ready ? "by itself" : "before it was ready",
		          end);
		l->status = 1;
		if (!l->ready && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) != 0)
			l->status = WEXITSTATUS(wait_status);
	} else if (l->phase == PHASE_DRAIN && wait_status != 0) {
		log_error("the server did not end in order: %s", end);
		l->status = 1;
	}
	if (l->phase < PHASE_END_RUNNERS)
		enter(l, PHASE_END_RUNNERS);
}

/* The server's process: everything of the launcher's goes, but its end of the socket. */
static no_return void become_server(struct launcher *l, int sock)
{
	int status;

	child_begin(l->pid);
	fd_close(&l->sock);
	fd_close(&l->epoll_fd);
	fd_close(&l->signal_fd);
	fd_close(&l->state_fd);
	control_forget(&l->orders.control);
	status = l->conf->server(l->conf->ctx, sock, l->cluster.socket_dir);
	(void)fflush(NULL);
	sanitizer_await_children();
	sanitizer_fault("server");
	sanitizer_count_leaks();
	_exit(status);
}

static int start_server(struct launcher *l, struct err *e)
{
	auto_close int theirs = -1;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_errno(e, "make the server's socket");
	l->sock = pair[0];
	theirs = pair[1];
	if (fd_set_nonblocking(l->sock, e) < 0 || watch(l, l->sock, EPOLLIN, &l->sock, e) < 0)
		return -1;
	(void)fflush(NULL);
	l->server = fork();
	if (l->server < 0)
		return err_errno(e, "start the server's process");
	if (l->server == 0)
		become_server(l, fd_take(&theirs));
	if (l->conf->forget)
		l->conf->forget(l->conf->ctx);
	return 0;
}

/* -- the loop -------------------------------------------------------------------------- */

static void reaped(struct launcher *l, pid_t pid, int wait_status)
{
	char end[CHILD_END_SIZE];

	if (pid == l->server) {
		server_reaped(l, wait_status);
	} else if (pid == l->cluster.pid) {
		l->cluster.pid = -1;
		child_describe(wait_status, end);
		fail(l, "PostgreSQL ended by itself: %s", end);
	} else if (!orders_reaped(&l->orders, pid, wait_status)) {
		for (struct runner **at = &l->runners; *at; at = &(*at)->next) {
			if ((*at)->pid == pid) {
				runner_reaped(l, at, wait_status);
				return;
			}
		}
	}
}

static void reap(struct launcher *l)
{
	int wait_status;
	pid_t pid;

	while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0)
		reaped(l, pid, wait_status);
}

static void signalled(struct launcher *l)
{
	struct signalfd_siginfo info;

	while (read(l->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			reap(l);
		else if (info.ssi_signo == SIGHUP && l->conf->registry_path)
			orders_reload(&l->orders);
		else
			stop_asked(l);
	}
}

static int timeout_ms(const struct launcher *l)
{
	uint64_t next = l->trim_ms;

	if (l->deadline_ms != 0 && l->deadline_ms < next)
		next = l->deadline_ms;
	if (l->disk_ms < next)
		next = l->disk_ms;
	if (l->evict_ms != 0 && l->evict_ms < next)
		next = l->evict_ms;
	if (l->remains.look_ms != 0 && l->remains.look_ms < next)
		next = l->remains.look_ms;
	return clock_left_ms(next);
}

/* Fixed upkeep, once a turn. */
static void keep_up(struct launcher *l)
{
	uint64_t now = clock_mono_ms();

	if (l->deadline_ms != 0 && now >= l->deadline_ms)
		deadline_passed(l);
	if (l->evict_ms != 0 && now >= l->evict_ms)
		evict(l);
	if (l->remains.look_ms != 0 && now >= l->remains.look_ms)
		remains_look(&l->remains);
	if (now >= l->disk_ms)
		watch_disk(l, now);
	if (now >= l->trim_ms) {
		disk_refill(&l->disk);
		if (l->conf->postgres_bin)
			cluster_trim_log(&l->cluster);
		l->trim_ms = now + TRIM_INTERVAL;
	}
}

/* One event at a time: what it frees cannot be what a later one of the same batch means. */
static void turn(struct launcher *l)
{
	struct epoll_event event;
	int n = epoll_wait(l->epoll_fd, &event, 1, timeout_ms(l));

	if (n > 0 && event.data.ptr == &l->signal_fd) {
		signalled(l);
	} else if (n > 0 && event.data.ptr == &l->orders) {
		orders_serve(&l->orders);
	} else if (n > 0 && event.data.ptr == &l->sock) {
		if (event.events & EPOLLOUT)
			flush(l);
		if (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			server_spoke(l);
	} else if (n > 0) {
		runner_logged(l, event.data.ptr);
	}
	keep_up(l);
}

/* -- beginning and end ----------------------------------------------------------------- */

static int watch_signals(struct launcher *l, sigset_t *ret_old, struct err *e)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &set, ret_old) < 0)
		return err_errno(e, "block signals");
	l->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (l->signal_fd < 0)
		return err_errno(e, "open a signal descriptor");
	return watch(l, l->signal_fd, EPOLLIN, &l->signal_fd, e);
}

/* What the boundary profile demands beyond what every profile needs. */
static int prepare_boundary(struct launcher *l, struct err *e)
{
	if (strcmp(l->conf->boundary, "service") != 0) {
		log_warn("boundary development: no cgroup limits, for loopback only");
		return 0;
	}
	if (preflight_service(l->conf, e) < 0 || delegation_prepare(l->cgroup, e) < 0)
		return err_wrap(e, "boundary service");
	l->remains.dir = l->cgroup;
	log_info("boundary service, cgroup %s", l->cgroup);
	return 0;
}

static int start_database(struct launcher *l, struct err *e)
{
	if (!l->conf->postgres_bin)
		return 0;
	if (cluster_start(&l->cluster, l->conf->state_dir, l->conf->postgres_bin,
	                  l->conf->db_connections, e) == 0)
		return 0;
	l->cluster.pid = -1;
	return err_wrap(e, "database");
}

static int start_orders(struct launcher *l, struct err *e)
{
	l->orders.conf = l->conf;
	l->orders.state_fd = l->state_fd;
	l->orders.tell = order_tell;
	l->orders.changed = registry_changed;
	l->orders.runs = order_runs;
	l->orders.view = order_view;
	l->orders.ctx = l;
	if (orders_open(&l->orders, e) < 0)
		return -1;
	return watch(l, l->orders.control.epoll_fd, EPOLLIN, &l->orders, e);
}

static int begin(struct launcher *l, sigset_t *ret_old, struct err *e)
{
	if (notify_take(&l->notify, e) < 0 || preflight_check(l->conf, e) < 0 ||
	    state_open(l->conf->state_dir, &l->state_fd, e) < 0 || prepare_boundary(l, e) < 0)
		return -1;
	disk_open(&l->disk, l->state_fd, &l->conf->disk);
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd < 0)
		return err_errno(e, "open an epoll descriptor");
	if (watch_signals(l, ret_old, e) < 0)
		return -1;
	if (start_orders(l, e) < 0 || start_database(l, e) < 0)
		return -1;
	return start_server(l, e);
}

/* Whatever was begun. */
static int finish(struct launcher *l)
{
	struct err e = ERR_INIT;

	/* A database that stops in order writes a last time. */
	disk_release(&l->disk);
	if (l->cluster.pid > 0 && cluster_stop(&l->cluster, &e) < 0) {
		log_error("stop PostgreSQL: %s", e.text);
		l->status = 1;
	}
	remains_release(&l->remains);
	runner_log_forget(&l->logs);
	orders_close(&l->orders);
	outbox_release(&l->outbox);
	fd_close(&l->sock);
	fd_close(&l->signal_fd);
	fd_close(&l->epoll_fd);
	fd_close(&l->state_fd);
	return l->status;
}

int launcher_run(const struct launcher_conf *conf, struct err *e)
{
	struct launcher l = {
		.conf = conf,
		.pid = getpid(),
		.state_fd = -1,
		.epoll_fd = -1,
		.signal_fd = -1,
		.sock = -1,
		.server = -1,
		.cluster.pid = -1,
		.orders = { .control = { .epoll_fd = -1,
		                         .listen_fd = -1,
		                         .reserve_fd = -1,
		                         .fd = -1 },
		            .remover = -1 },
	};
	sigset_t old;

	(void)sigprocmask(SIG_SETMASK, NULL, &old);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGCHLD,
	             SIG_DFL); /* ignored by whoever started us, children could not be reaped */
	outbox_init(&l.outbox, outbox_room(conf->registry));
	if (begin(&l, &old, e) < 0) {
		(void)finish(&l);
		(void)sigprocmask(SIG_SETMASK, &old, NULL);
		return -1;
	}
	l.trim_ms = l.disk_ms = clock_mono_ms() + TRIM_INTERVAL;
	enter(&l, PHASE_SERVE);
	while (l.phase != PHASE_DONE)
		turn(&l);
	(void)finish(&l);
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	return l.status;
}
