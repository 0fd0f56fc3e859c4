/*
 * Stages 1 to 8.  The runner's power on entry is that of an unprivileged user; the
 * stages add descriptors to it, never rights:
 *
 *   1 lock        must hold the tenant's lock before anything is touched
 *   2 places      must find the two directories as they were declared
 *   3 programs    must find all it will execute, to refuse with one clear reason
 *   4 locals      must watch what is local to the host before it takes stock
 *   5 cgroup      makes the leaf that every process made from here on is born in
 *   6 namespaces  makes router and box, which wait until they have been recorded
 *   7 slirp       starts the user-mode network of the router
 *   8 rules       loads the policy while the sandbox is still empty, and reads it back
 *   9 run         joins the two namespaces and lets the box execute runsc
 *
 * Stages 7 and 8, and all that joins the two namespaces, are left out for a sandbox
 * that gets no network.
 */
#include "runner/runner.h"

#include "common/attr.h"
#include "common/fd.h"
#include "common/log.h"
#include "runner/box.h"
#include "runner/bundle.h"
#include "runner/cell.h"
#include "runner/child.h"
#include "runner/confine.h"
#include "runner/link.h"
#include "runner/local.h"
#include "runner/nft.h"
#include "runner/place.h"
#include "runner/probe.h"
#include "runner/report.h"
#include "runner/self.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_TIMEOUT_MS 10000

void runner_init(struct runner *r, const struct runner_args *args)
{
	*r = (struct runner){
		.args = args,
		.lock = LOCK_INIT,
		.cgroup = { .parent = -1, .dir = -1 },
		.signals = -1,
		.routes = -1,
		.rules = NL_INIT,
		.channel = -1,
		.slirp = { 0, -1, -1, -1 },
		.errors = { .fd = -1 },
		.log = { .fd = -1 },
		.slirp_output = { .fd = -1 },
	};
}

static bool has_network(const struct runner *r)
{
	return r->args->egress.mode != EGRESS_NONE;
}

static int block_signals(struct runner *r, struct err *e)
{
	static const int handled[] = { SIGTERM, SIGINT, SIGCHLD, SIGUSR1 };
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(handled); i++)
		(void)sigaddset(&set, handled[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return err_errno(e, "block signals");
	r->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (r->signals < 0)
		return err_errno(e, "make a signalfd");
	/* Ignored, children would be reaped unseen. */
	(void)signal(SIGCHLD, SIG_DFL);
	(void)signal(SIGPIPE, SIG_IGN);
	/* It means the daemon's registry, and may be sent to all of a service. */
	(void)signal(SIGHUP, SIG_IGN);
	return 0;
}

/* -- 2 places ------------------------------------------------------------------- */

static int check_place(const char *path, const struct place_id *id, struct err *e)
{
	auto_close int fd = -1;

	/* Opened once more, and compared again, where the mounts are made. */
	if (place_open_dir(path, id, &fd, e) < 0)
		return -1;
	return place_check_own_mounts(path, e);
}

static int check_apart(const char *a, const char *what_a, const char *b, const char *what_b,
                       struct err *e)
{
	if (!place_within(a, b) && !place_within(b, a))
		return 0;
	return err_set(e, EINVAL, "%s %s and %s %s lie inside one another; keep them apart", what_a,
	               a, what_b, b);
}

static int check_workspace(const struct runner_args *a, const char *path, const struct place_id *id,
                           struct err *e)
{
	if (check_apart(path, "workspace", a->state, "state directory", e) < 0 ||
	    check_apart(path, "workspace", a->runtime_dir, "runtime directory", e) < 0)
		return -1;
	return check_place(path, id, e) < 0 ? err_wrap(e, "workspace") : 0;
}

static int check_parts(const struct runner_args *a, struct err *e)
{
	for (size_t i = 0; i < a->n_parts; i++) {
		const struct part *part = &a->parts[i];

		if (check_workspace(a, part->path, &part->id, e) < 0)
			return -1;
		for (size_t k = 0; k < i; k++)
			if (check_apart(part->path, "part", a->parts[k].path, "part", e) < 0)
				return -1;
	}
	return 0;
}

static int stage_places(const struct runner_args *a, struct err *e)
{
	if (check_apart(a->state, "state directory", a->runtime_dir, "runtime directory", e) < 0 ||
	    check_parts(a, e) < 0)
		return -1;
	if (a->workspace && check_workspace(a, a->workspace, &a->workspace_id, e) < 0)
		return -1;
	if (check_place(a->state, &a->state_id, e) < 0)
		return err_wrap(e, "state directory");
	return 0;
}

/* -- 3 programs ------------------------------------------------------------------- */

static int check_program(const char *path, const char *remedy, struct err *e)
{
	struct stat st;

	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "cannot execute %s: not a regular file; %s", path,
		               remedy);
	if (access(path, R_OK | X_OK) < 0)
		return err_set(e, errno, "cannot execute %s: %s; %s", path, strerror(errno),
		               remedy);
	return 0;
}

static int check_tun(struct err *e)
{
	auto_close int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	int cause = errno;

	if (fd >= 0)
		return 0;
	return err_set(e, cause, "cannot open /dev/net/tun: %s; %s", strerror(cause),
	               cause == EACCES || cause == EPERM
	                       ? "set its mode to 0666, and allow the device to this service"
	                       : "load the tun module and create the device (10:200, mode 0666)");
}

static int check_rootfs(const char *rootfs, struct err *e)
{
	static const char *const needed[] = {
		BUNDLE_GUEST, "/workspace", "/state", "/etc/resolv.conf", "/proc", "/dev", "/tmp",
		"/var/tmp",   "/run",       "/sys"
	};
	char path[8192];

	for (size_t i = 0; i < ARRAY_LEN(needed); i++) {
		(void)snprintf(path, sizeof(path), "%s%s", rootfs, needed[i]);
		if (access(path, R_OK) < 0)
			return err_set(e, errno,
			               "root filesystem: cannot use %s: %s; prepare it again", path,
			               strerror(errno));
	}
	return 0;
}

/* Every kind of runsc is called in its own way; which, is known before anything is made. */
static int ask_runsc(struct runner *r, struct err *e)
{
	const struct runner_args *a = r->args;
	const struct runsc_wish wish = { .network = a->egress.mode != EGRESS_NONE,
		                         .debug = a->debug_log != NULL };
	struct runsc_facts facts;

	if (probe_facts(a->runsc, a->runtime_dir, &facts, e) < 0)
		return -1;
	return runsc_decide(&facts, &wish, r->runsc, e);
}

static int stage_programs(const struct runner_args *a, struct err *e)
{
	if (a->egress.mode != EGRESS_NONE &&
	    (check_tun(e) < 0 || check_program(a->slirp4netns,
	                                       "install slirp4netns, or name it with "
	                                       "--slirp4netns",
	                                       e) < 0))
		return -1;
	if (check_program(a->runsc, "install runsc, or name it with --runsc", e) < 0 ||
	    check_program(a->guest, "install cloister-guest, or name it with --guest", e) < 0)
		return -1;
	return check_rootfs(a->rootfs, e);
}

/* -- 4 locals ------------------------------------------------------------------- */

static int stage_locals(struct runner *r, struct err *e)
{
	if (policy_init(&r->policy, &r->args->egress, e) < 0)
		return -1;
	if (!has_network(r))
		return 0;
	if (local_watch(&r->routes, e) < 0 || local_snapshot(&r->policy.local, e) < 0)
		return -1;
	return policy_check(&r->policy, e);
}

/* -- 5 cgroup ------------------------------------------------------------------- */

static int stage_cgroup(struct runner *r, struct err *e)
{
	const struct runner_args *a = r->args;

	if (a->boundary != BOUNDARY_SERVICE)
		return 0;
	return cgroup_make(a->cgroup, &a->tenant, &a->limits, &r->cgroup, e);
}

/* -- 6 namespaces --------------------------------------------------------------- */

/* Both ends of everything that the two processes need; those of the runner come first. */
struct joints {
	int router[2];
	int box[2];
	int errors[2];
	int log[2];
};

#define JOINTS_INIT                                             \
	{                                                       \
		{ -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 }, \
	}
#define auto_joints __attribute__((cleanup(joints_close)))

static void joints_close(struct joints *j)
{
	int *ends[] = { &j->router[0], &j->router[1], &j->box[0], &j->box[1],
		        &j->errors[0], &j->errors[1], &j->log[0], &j->log[1] };

	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		fd_close(ends[i]);
}

static int joints_open(struct joints *j, struct err *e)
{
	if (report_pair(j->router, e) < 0 || report_pair(j->box, e) < 0)
		return -1;
	if (pipe2(j->errors, O_CLOEXEC) < 0 || pipe2(j->log, O_CLOEXEC) < 0)
		return err_errno(e, "make a pipe");
	return 0;
}

static int make_debug_log(const char *path, struct err *e)
{
	auto_close int fd = -1;

	if (!path)
		return 0;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_errno(e, "open debug log %s", path);
	return 0;
}

struct spaces {
	int user;            /* U1 */
	int net;             /* the router's */
	struct nl links;     /* ROUTE socket of the router */
	struct nl box_links; /* ROUTE socket of the sandbox */
};

static void spaces_close(struct spaces *s)
{
	fd_close(&s->user);
	fd_close(&s->net);
	nl_close(&s->links);
	nl_close(&s->box_links);
}

static int let_go(struct runner *r, int channel, pid_t pid, struct err *e)
{
	const struct report go = { .step = REPORT_GO };

	if (lock_record(&r->lock, pid, e) < 0)
		return -1;
	return report_send(channel, &go, e);
}

/* Take over what the router made: each descriptor has one owner, also when this fails. */
static int take_router(struct runner *r, struct spaces *s, struct report *made, struct err *e)
{
	s->user = made->fds[0];
	s->net = made->fds[1];
	if (nl_adopt(made->fds[2], &r->rules, e) < 0) {
		fd_close(&made->fds[3]);
		return -1;
	}
	return nl_adopt(made->fds[3], &s->links, e);
}

static int clone_router(struct runner *r, struct joints *j, const struct buf *config, struct err *e)
{
	const struct box_plan plan = {
		.args = r->args,
		.mount_point = r->lock.mount_point,
		.runsc = r->runsc,
		.config = config,
		.router_channel = j->router[1],
		.box_channel = j->box[1],
		.errors = j->errors[1],
		.log = j->log[1],
	};
	uid_t uid = geteuid();
	gid_t gid = getegid();
	pid_t pid = child_clone_into(r->cgroup.dir, CLONE_NEWUSER | CLONE_NEWNET, e);

	if (pid == 0)
		router_main(&plan, uid, gid);
	if (pid < 0)
		return -1;
	r->router = pid;
	return 0;
}

static int stage_namespaces(struct runner *r, struct spaces *s, struct err *e)
{
	auto_joints struct joints j = JOINTS_INIT;
	auto_buf struct buf config = BUF_INIT(BUNDLE_MAX);
	struct report made;

	bundle_write(&r->args->limits, &config);
	if (buf_failed(&config))
		return err_set(e, ENOMEM, "no memory for the bundle");
	if (joints_open(&j, e) < 0 || make_debug_log(r->args->debug_log, e) < 0 ||
	    clone_router(r, &j, &config, e) < 0)
		return -1;
	/* With these closed, the end of a process shows as the end of its channel. */
	fd_close(&j.router[1]);
	fd_close(&j.box[1]);
	output_init(&r->errors, fd_take(&j.errors[0]), "sandbox", true);
	output_init(&r->log, fd_take(&j.log[0]), "runsc", false);
	r->channel = fd_take(&j.box[0]);
	if (let_go(r, j.router[0], r->router, e) < 0 ||
	    report_wait(j.router[0], REPORT_ROUTER, 4, STEP_TIMEOUT_MS, &made, e) < 0 ||
	    take_router(r, s, &made, e) < 0 ||
	    report_wait(j.router[0], REPORT_BOX, 0, STEP_TIMEOUT_MS, &made, e) < 0)
		return err_wrap(e, "make the router");
	r->box = made.value;
	return let_go(r, r->channel, r->box, e);
}

/* -- 7 slirp -------------------------------------------------------------------- */

static int stage_slirp(struct runner *r, struct spaces *s, struct err *e)
{
	if (!has_network(r))
		return 0;
	if (slirp_start(r->args->slirp4netns, s->user, s->net, r->cgroup.dir, &r->slirp, e) < 0)
		return err_wrap(e, "start slirp4netns");
	output_init(&r->slirp_output, fd_take(&r->slirp.output), "slirp4netns", false);
	return lock_record(&r->lock, r->slirp.pid, e);
}

/* -- 8 rules -------------------------------------------------------------------- */

static int stage_rules(struct runner *r, struct err *e)
{
	if (!has_network(r))
		return 0;
	/* What became local since the snapshot. */
	if (local_update(r->routes, &r->policy.local, e) < 0 || policy_check(&r->policy, e) < 0 ||
	    nft_load(&r->rules, &r->policy, e) < 0)
		return -1;
	return nft_verify(&r->rules, &r->policy, e);
}

/* -- 9 run ---------------------------------------------------------------------- */

static int set_up_router(struct runner *r, struct spaces *s, struct err *e)
{
	if (link_add_pair(&s->links, CELL_ROUTER, CELL_INSIDE, r->box, e) < 0 ||
	    link_no_ipv6(&s->links, CELL_ROUTER, e) < 0 ||
	    link_forward(&s->links, CELL_ROUTER, e) < 0 ||
	    link_add_address(&s->links, CELL_ROUTER, CELL_ROUTER_ADDR, CELL_PREFIX, e) < 0 ||
	    link_up(&s->links, CELL_ROUTER, e) < 0)
		return err_wrap(e, "set up the router");
	return 0;
}

static int set_up_box(struct spaces *s, struct err *e)
{
	if (link_no_ipv6(&s->box_links, CELL_INSIDE, e) < 0 ||
	    link_add_address(&s->box_links, CELL_INSIDE, CELL_INSIDE_ADDR, CELL_PREFIX, e) < 0 ||
	    link_up(&s->box_links, CELL_INSIDE, e) < 0 ||
	    link_add_unicast_routes(&s->box_links, CELL_ROUTER_ADDR, e) < 0)
		return err_wrap(e, "set up the sandbox's network");
	return 0;
}

static int join_namespaces(struct runner *r, struct spaces *s, struct err *e)
{
	struct report links;

	if (report_wait(r->channel, REPORT_LINKS, 1, STEP_TIMEOUT_MS, &links, e) < 0 ||
	    nl_adopt(links.fds[0], &s->box_links, e) < 0)
		return err_wrap(e, "make the sandbox's namespaces");
	if (link_up(&s->box_links, "lo", e) < 0)
		return err_wrap(e, "set up the sandbox's network");
	if (!has_network(r))
		return 0;
	return set_up_router(r, s, e) < 0 ? -1 : set_up_box(s, e);
}

static int wait_for_slirp(struct runner *r, struct err *e)
{
	struct err why = ERR_INIT;
	char last[300];

	if (slirp_wait(&r->slirp, &why) == 0)
		return 0;
	output_read(&r->slirp_output);
	output_last_line(&r->slirp_output, last, sizeof(last));
	return err_set(e, why.code, "%.150s: %s", why.text, *last ? last : "it gave no reason");
}

static int await_network(struct runner *r, struct spaces *s, struct err *e)
{
	if (!has_network(r))
		return 0;
	return wait_for_slirp(r, e) < 0 ? -1 : link_forward(&s->links, CELL_TAP, e);
}

/* Both are where the kernel counts them, before anything of the tenant is. */
static int verify_cgroup(const struct runner *r, struct err *e)
{
	if (r->cgroup.dir < 0)
		return 0;
	if (r->slirp.pid > 0 && cgroup_verify(&r->cgroup, r->slirp.pid, e) < 0)
		return -1;
	return cgroup_verify(&r->cgroup, r->box, e);
}

/* When the box ended by itself, its own word says why, and e only what came of it. */
static int explain(const struct runner *r, struct err *e)
{
	struct report root;
	struct err why = ERR_INIT;

	if (report_wait(r->channel, REPORT_ROOT, 0, 0, &root, &why) < 0 && why.code != EPIPE &&
	    why.code != ETIMEDOUT && why.code != EPROTO)
		*e = why;
	return -1;
}

static int stage_run(struct runner *r, struct spaces *s, struct err *e)
{
	const struct report run = { .step = REPORT_RUN };
	struct report root;

	if (join_namespaces(r, s, e) < 0)
		return explain(r, e);
	if (await_network(r, s, e) < 0 ||
	    report_wait(r->channel, REPORT_ROOT, 0, STEP_TIMEOUT_MS, &root, e) < 0 ||
	    verify_cgroup(r, e) < 0)
		return -1;
	return report_send(r->channel, &run, e);
}

/* The pipes are the sandbox's now; the runner watches the first and must not hold the second. */
static int let_go_of_output(struct err *e)
{
	auto_close int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (null < 0 || dup2(null, STDOUT_FILENO) < 0)
		return err_errno(e, "replace standard output");
	return 0;
}

static int seal(const struct runner *r, struct err *e)
{
	const struct confine c = {
		.mode = r->args->confine,
		.need_landlock = r->args->boundary == BOUNDARY_SERVICE,
		.children = { r->router, r->box, r->slirp.pid },
		.leaf = r->cgroup.dir,
		.sandboxes = r->cgroup.parent,
		.lock = r->lock.dir,
	};

	return self_seal(e) < 0 ? -1 : confine_self(&c, e);
}

int runner_start(struct runner *r, struct err *e)
{
	struct spaces s = { -1, -1, NL_INIT, NL_INIT };
	int got = -1;

	if (block_signals(r, e) < 0 ||
	    lock_take(r->args->runtime_dir, &r->args->tenant, &r->lock, e) < 0 ||
	    stage_places(r->args, e) < 0 || stage_programs(r->args, e) < 0 || ask_runsc(r, e) < 0 ||
	    stage_locals(r, e) < 0 || stage_cgroup(r, e) < 0)
		return -1;
	if (stage_namespaces(r, &s, e) == 0 && stage_slirp(r, &s, e) == 0 &&
	    stage_rules(r, e) == 0 && stage_run(r, &s, e) == 0 && let_go_of_output(e) == 0)
		got = 0;
	/* The way into the namespaces is closed; what stays is the socket for the rules. */
	spaces_close(&s);
	return got < 0 ? -1 : seal(r, e);
}
