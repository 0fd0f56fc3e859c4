/*
 * Stages 9 and 10.  What the runner holds now: its standard input, only to see it
 * end; the watch on the host's routes; the socket that can change the rules of
 * this one sandbox; and its children, which die with it.
 */
#include "runner/runner.h"

#include "common/attr.h"
#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "common/sanitizer.h"
#include "runner/box.h"
#include "runner/local.h"
#include "runner/nft.h"
#include "runner/report.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUNSC_FAILED 128 /* its exit code when it is itself what failed; above: 128 + signal */

#define ROUTES_MS 20 /* changes of the host's routes are taken together for that long */

/* With a sanitizer the guest counts what it has lost before it ends. */
#define LAST_WORD_MS (SANITIZED ? 2000 : 500) /* for the box to end, once its input has */

#define TERM_MS (SANITIZED ? 6000 : 1500) /* from SIGTERM to SIGKILL */
#define KILL_MS 5000                      /* from SIGKILL to giving up */

enum source {
	SOURCE_SIGNALS,
	SOURCE_INPUT,
	SOURCE_ROUTES,
	SOURCE_CHANNEL,
	SOURCE_ERRORS,
	SOURCE_LOG,
	SOURCE_SLIRP,
	SOURCES,
};

/*
 * Did runsc make a sandbox in which it could not run the guest?  Its log says so, which no guest
 * writes to: one that did run can end with any code and last words.
 */
static bool guest_refused(struct runner *r, int code)
{
	char last[300];

	output_read(&r->log);
	output_last_line(&r->log, last, sizeof(last));
	return code == RUNSC_FAILED && strstr(last, "starting container");
}

static void note_box(struct runner *r, int status)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	char last[300];

	r->box = 0;
	r->box_ended_well = code == 0;
	output_read(&r->errors);
	output_last_line(&r->errors, last, sizeof(last));
	r->box_refused = code == BOX_NOT_STARTED || guest_refused(r, code);
	if (r->box_reason.code != 0)
		return;
	if (r->box_refused)
		err_set(&r->box_reason, ECHILD, "runsc could not start the sandbox: %s",
		        *last ? last : "it gave no reason");
	else if (code > RUNSC_FAILED)
		err_set(&r->box_reason, ECHILD, "the sandbox was killed by signal %d",
		        code - RUNSC_FAILED);
	else
		err_set(&r->box_reason, ECHILD, "the sandbox ended by itself with code %d", code);
}

/* Reap every child that has ended; true while another lives. */
static bool reap(struct runner *r)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == r->router)
			r->router = 0;
		else if (pid == r->slirp.pid)
			r->slirp.pid = 0;
		else if (pid == r->box)
			note_box(r, status);
	}
	return pid == 0;
}

static void log_counters(struct runner *r)
{
	struct nft_counters c;
	struct err e = ERR_INIT;

	if (r->policy.mode == EGRESS_NONE)
		log_info("egress none");
	else if (nft_read_counters(&r->rules, &c, &e) < 0)
		log_warn("%s", e.text);
	else
		log_info("egress accepted=%llu refused=%llu", (unsigned long long)c.accepted,
		         (unsigned long long)c.refused);
}

/* True when a signal asks for the end. */
static bool take_signals(struct runner *r)
{
	struct signalfd_siginfo info;
	bool end = false;

	while (read(r->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			(void)reap(r);
		else if (info.ssi_signo == SIGUSR1)
			log_counters(r);
		else
			end = true;
	}
	return end;
}

/*
 * Whoever sets up a network changes hundreds of addresses in a few milliseconds, and each
 * change would be a transaction and a line of the log.
 */
static bool routes_due(struct runner *r, bool said)
{
	uint64_t now = clock_mono_ms();

	if (said && r->routes_ms == 0)
		r->routes_ms = now + ROUTES_MS;
	return r->routes_ms != 0 && now >= r->routes_ms;
}

static int take_routes(struct runner *r, struct err *e)
{
	int grew = local_update(r->routes, &r->policy.local, e);

	r->routes_ms = 0;
	if (grew < 0)
		return -1;
	if (grew == 0)
		return 0;
	if (nft_refuse_local(&r->rules, &r->policy, e) < 0)
		return -1;
	log_info("the host has new local addresses; they are denied from now on");
	return 0;
}

static int keep_up(struct runner *r, struct err *e)
{
	if (take_routes(r, e) == 0)
		return 0;
	return err_wrap(e, "the sandbox ends because its network rules cannot be kept up");
}

static void take_outputs(struct runner *r)
{
	output_read(&r->errors);
	output_read(&r->log);
	output_read(&r->slirp_output);
}

static void serve_outputs(struct runner *r)
{
	uint64_t now = clock_mono_ms();

	output_serve(&r->errors, now);
	output_serve(&r->log, now);
	output_serve(&r->slirp_output, now);
}

/* Returns for how long to poll. */
static int fill_poll(const struct runner *r, struct pollfd p[SOURCES])
{
	uint64_t now = clock_mono_ms();
	uint64_t wake = r->routes_ms; /* 0: never */

	p[SOURCE_SIGNALS] = (struct pollfd){ .fd = r->signals, .events = POLLIN };
	/* Never read: no events but the end, when no writer is left. */
	p[SOURCE_INPUT] = (struct pollfd){ .fd = STDIN_FILENO, .events = 0 };
	p[SOURCE_ROUTES] = (struct pollfd){ .fd = r->routes_ms ? -1 : r->routes, .events = POLLIN };
	p[SOURCE_CHANNEL] = (struct pollfd){ .fd = r->channel, .events = POLLIN };
	p[SOURCE_ERRORS] =
		(struct pollfd){ .fd = output_poll(&r->errors, now, &wake), .events = POLLIN };
	p[SOURCE_LOG] = (struct pollfd){ .fd = output_poll(&r->log, now, &wake), .events = POLLIN };
	p[SOURCE_SLIRP] = (struct pollfd){ .fd = output_poll(&r->slirp_output, now, &wake),
		                           .events = POLLIN };
	return clock_left_ms(wake);
}

/*
 * The channel closes when runsc is executed; a record before that is its failure to.
 * Then the sandbox's limits are read from its own cgroup once more.
 */
static int take_channel(struct runner *r, struct err *e)
{
	struct report none;
	struct err why = ERR_INIT;

	if (report_wait(r->channel, REPORT_GO, 0, 0, &none, &why) < 0 && why.code != EPIPE)
		r->box_reason = why;
	fd_close(&r->channel);
	if (r->cgroup.dir < 0 || r->box == 0)
		return 0;
	return cgroup_verify(&r->cgroup, r->box, e);
}

static bool input_ended(void)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = 0 };

	return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR));
}

static int box_lost(const struct runner *r, struct err *e)
{
	*e = r->box_reason;
	return r->box_refused ? EXIT_REFUSED : EXIT_LOST;
}

/*
 * The daemon hangs up when it sees the guest's output end, too, and may be quicker than
 * the word of what ended it.  A guest that ends because its input did has ended well.
 * Until it has it may use the network, so the host's routes are watched to its end.
 */
static int end_with_input(struct runner *r, struct err *e)
{
	uint64_t deadline = clock_mono_ms() + LAST_WORD_MS;
	struct pollfd p[] = { { .fd = r->signals, .events = POLLIN },
		              { .fd = r->routes, .events = POLLIN } };

	while (r->box != 0 && clock_left_ms(deadline) > 0) {
		(void)poll(p, ARRAY_LEN(p), clock_left_ms(deadline));
		if (take_signals(r))
			return EXIT_ORDERLY;
		if ((p[1].revents || r->routes_ms) && keep_up(r, e) < 0)
			return EXIT_LOST;
	}
	return r->box != 0 || r->box_ended_well ? EXIT_ORDERLY : box_lost(r, e);
}

/* One turn.  Returns an exit code when it is time to end, -1 to go on. */
static int serve_turn(struct runner *r, struct err *e)
{
	struct pollfd p[SOURCES];

	if (poll(p, SOURCES, fill_poll(r, p)) < 0 && errno != EINTR) {
		err_errno(e, "poll");
		return EXIT_LOST;
	}
	serve_outputs(r);
	if (p[SOURCE_CHANNEL].revents && take_channel(r, e) < 0)
		return EXIT_LOST;
	if (p[SOURCE_SIGNALS].revents && take_signals(r))
		return EXIT_ORDERLY;
	if (input_ended())
		return end_with_input(r, e);
	if (r->box == 0)
		return box_lost(r, e);
	if (r->slirp.pid == 0 && r->policy.mode != EGRESS_NONE) {
		err_set(e, ECHILD, "slirp4netns ended; the sandbox ends with it");
		return EXIT_LOST;
	}
	if (routes_due(r, p[SOURCE_ROUTES].revents) && keep_up(r, e) < 0)
		return EXIT_LOST;
	return -1;
}

/*
 * What the kernel says of the end goes before what was seen of it.  Whoever hangs up may have
 * done so because the guest was gone, and a machine with much to do may not have told yet.
 * But a task that was refused ends no sandbox: one that ends in order did not end of that.
 */
static int find_cause(const struct runner *r, int code, struct err *e)
{
	const struct limits *l = &r->args->limits;

	switch (cgroup_cause(&r->cgroup)) {
	case CGROUP_MEMORY:
		err_set(e, ENOMEM, "the sandbox needed more than its %llu MiB of memory",
		        (unsigned long long)(l->memory >> 20));
		return EXIT_MEMORY;
	case CGROUP_MEMORY_AROUND:
		err_set(e, ENOMEM,
		        "the memory of all sandboxes together ran out; this one was ended");
		return EXIT_MEMORY;
	case CGROUP_PROCESSES:
		if (code == EXIT_ORDERLY)
			break;
		err_set(e, EAGAIN,
		        "the sandbox needed more tasks of the host than its %u processes account "
		        "for",
		        l->processes);
		return EXIT_PIDS;
	case CGROUP_OTHER:
		break;
	}
	return code;
}

int runner_serve(struct runner *r, struct err *e)
{
	int code;

	do
		code = serve_turn(r, e);
	while (code < 0);
	code = find_cause(r, code, e);
	take_outputs(r);
	output_log_tail(&r->errors);
	if (code != EXIT_ORDERLY)
		output_log_tail(&r->log);
	if (code != EXIT_ORDERLY && r->slirp.pid == 0)
		output_log_tail(&r->slirp_output);
	return code;
}

static void signal_child(pid_t pid, int sig)
{
	if (pid > 0)
		(void)kill(pid, sig);
}

/* Wait until no child is left; false at the deadline. */
static bool await_children(struct runner *r, uint64_t deadline)
{
	for (;;) {
		struct pollfd p = { .fd = r->signals, .events = POLLIN };
		struct signalfd_siginfo info;

		take_outputs(r);
		if (!reap(r))
			return true;
		if (clock_mono_ms() >= deadline)
			return false;
		(void)poll(&p, 1, clock_left_ms(deadline));
		while (read(r->signals, &info, sizeof(info)) > 0)
			continue;
	}
}

/* No child is left, and nothing in the leaf, which is then gone; false at the deadline. */
static bool is_quiet(struct runner *r)
{
	uint64_t deadline = clock_mono_ms() + KILL_MS;

	return await_children(r, deadline) && cgroup_remove(&r->cgroup, deadline);
}

static void end_children(struct runner *r)
{
	bool quiet;

	signal_child(r->router, SIGKILL);
	signal_child(r->box, SIGTERM);
	slirp_close(&r->slirp);
	(void)await_children(r, clock_mono_ms() + TERM_MS);
	signal_child(r->box, SIGKILL);
	signal_child(r->slirp.pid, SIGKILL);
	cgroup_kill(&r->cgroup);
	quiet = is_quiet(r);
	if (!quiet)
		log_error("the sandbox does not end; this runner stops itself and keeps the "
		          "tenant's lock");
	while (!quiet) {
		(void)raise(SIGSTOP);
		quiet = is_quiet(r);
	}
}

void runner_end(struct runner *r)
{
	fd_close(&r->channel);
	if (r->signals >= 0)
		end_children(r);
	output_close(&r->errors);
	output_close(&r->log);
	output_close(&r->slirp_output);
	nl_close(&r->rules);
	fd_close(&r->routes);
	fd_close(&r->signals);
	lock_release(&r->lock);
}
