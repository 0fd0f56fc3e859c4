#include "daemon/launcher/runner.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/sanitizer.h"
#include "daemon/launcher/child.h"
#include "daemon/launcher/state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOG_CHUNK    16384 /* bytes a read */
#define LOG_READS    4     /* per turn of the loop, so that one runner cannot hold it */
#define LOG_END_READ 64    /* after the runner's death: what the pipe can hold at most, 1 MiB */

#define PLACE_ID_SIZE 44 /* two 64-bit numbers and a colon */
#define NUMBER_SIZE   24

/* Fixed words, and two for each network that is named. */
#define WORDS_MAX (64 + 2 * REGISTRY_MAX_PARTS + 2 * (EGRESS_ALLOW_MAX + LAUNCHER_HOSTS_MAX))

/* Everything the child needs, made before the fork. */
struct plan {
	const char *program;
	char workspace_id[PLACE_ID_SIZE];
	char state_id[PLACE_ID_SIZE];
	char parts[REGISTRY_MAX_PARTS][PLACE_ID_SIZE + PATH_MAX];
	char cpus[NUMBER_SIZE], memory[NUMBER_SIZE], processes[NUMBER_SIZE];
	struct state_tenant state;
	size_t words;
	const char *argv[WORDS_MAX + 1];
};

static void place_id(char ret_text[PLACE_ID_SIZE], uint64_t device, uint64_t inode)
{
	(void)snprintf(ret_text, PLACE_ID_SIZE, "%" PRIu64 ":%" PRIu64, device, inode);
}

static void add(struct plan *p, const char *option, const char *value)
{
	p->argv[p->words++] = option;
	p->argv[p->words++] = value;
	p->argv[p->words] = NULL;
}

static void add_places(struct plan *p, const struct launcher_conf *conf,
                       const struct tenant *tenant)
{
	p->argv[p->words++] = conf->runner;
	p->argv[p->words++] = "serve";
	add(p, "--tenant", tenant->id.text);
	if (!tenant->part_count) {
		add(p, "--workspace", tenant->workspace);
		add(p, "--workspace-id", p->workspace_id);
	}
	for (size_t i = 0; i < tenant->part_count; i++)
		add(p, "--workspace-part", p->parts[i]);
	add(p, "--state", p->state.state);
	add(p, "--state-id", p->state_id);
	add(p, "--rootfs", conf->rootfs);
	add(p, "--guest", conf->guest);
	add(p, "--runsc", conf->runsc);
	add(p, "--slirp4netns", conf->slirp4netns);
	add(p, "--runtime-dir", p->state.run);
	add(p, "--boundary", conf->boundary);
}

static void add_limits(struct plan *p, const struct limits *limits)
{
	(void)snprintf(p->cpus, sizeof(p->cpus), "%u", limits->cpus);
	(void)snprintf(p->memory, sizeof(p->memory), "%" PRIu64, limits->memory);
	(void)snprintf(p->processes, sizeof(p->processes), "%u", limits->processes);
	add(p, "--cpus", p->cpus);
	add(p, "--memory", p->memory);
	add(p, "--processes", p->processes);
}

static void add_egress(struct plan *p, const struct launcher_conf *conf,
                       const struct egress *egress)
{
	if (egress->given) {
		add(p, "--egress", egress_mode_name(egress->mode));
		for (size_t i = 0; i < egress->allow_count; i++)
			add(p, "--egress-allow", egress->allow[i]);
		add(p, "--dns", egress->dns);
	}
	for (size_t i = 0; i < conf->host_address_count; i++)
		add(p, "--host-address", conf->host_addresses[i]);
}

static int make_plan(const struct runner_ground *g, const struct tenant *tenant, struct plan *p,
                     struct err *e)
{
	if (state_tenant(g->state_fd, g->conf->state_dir, &tenant->id, &p->state, e) < 0)
		return -1;
	if (g->conf->host_address_count > LAUNCHER_HOSTS_MAX)
		return err_set(e, E2BIG, "more than %d host addresses", LAUNCHER_HOSTS_MAX);
	place_id(p->workspace_id, tenant->place.device, tenant->place.inode);
	place_id(p->state_id, p->state.device, p->state.inode);
	for (size_t i = 0; i < tenant->part_count; i++)
		(void)snprintf(p->parts[i], sizeof(p->parts[i]), "%" PRIu64 ":%" PRIu64 ":%s",
		               tenant->parts[i].place.device, tenant->parts[i].place.inode,
		               tenant->parts[i].path);
	p->program = g->conf->runner;
	add_places(p, g->conf, tenant);
	if (g->cgroup)
		add(p, "--cgroup", g->cgroup);
	if (g->cgroup || tenant->limits.given)
		add_limits(p, &tenant->limits);
	add_egress(p, g->conf, &tenant->egress);
	return 0;
}

/* execve(2) does not write to what it is given, only its prototype says so. */
static void execute(const char *program, const char *const *argv)
{
	union {
		const char *const *in;
		char *const *out;
	} args = { .in = argv };
	char *const environment[] = { sanitizer_asked(), NULL };

	(void)execve(program, args.out, environment);
}

/* The child's side: nothing of the launcher remains but three descriptors. */
static no_return void become_runner(const struct plan *p, pid_t launcher, int in, int out, int log)
{
	child_begin(launcher);
	if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
	    dup2(log, STDERR_FILENO) < 0)
		_exit(127);
	fd_close_from(STDERR_FILENO + 1, NULL, 0);
	if (chdir("/") == 0)
		execute(p->program, p->argv);
	dprintf(STDERR_FILENO, "cannot execute %s: %s\n", p->program, strerror(errno));
	_exit(127);
}

static int make_pipe(int *ret_read, int *ret_write, struct err *e)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_errno(e, "make a pipe");
	*ret_read = ends[0];
	*ret_write = ends[1];
	return 0;
}

static struct runner *new_runner(const struct uuid *tenant)
{
	struct runner *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->tenant = *tenant;
	r->log_fd = -1;
	runner_log_init(&r->log, tenant, clock_mono_ms());
	return r;
}

int runner_start(const struct runner_ground *ground, const struct tenant *tenant,
                 struct runner **ret, int ret_pipes[2], struct err *e)
{
	auto_close int in = -1, to_in = -1, out = -1, from_out = -1, log = -1, from_log = -1;
	auto_free struct runner *r = new_runner(&tenant->id);
	auto_free struct plan *plan = calloc(1, sizeof(*plan));
	pid_t launcher = getpid();

	if (!r || !plan)
		return err_set(e, ENOMEM, "no memory for a runner");
	if (make_plan(ground, tenant, plan, e) < 0)
		return -1;
	if (make_pipe(&in, &to_in, e) < 0 || make_pipe(&from_out, &out, e) < 0 ||
	    make_pipe(&from_log, &log, e) < 0 || fd_set_nonblocking(from_log, e) < 0)
		return -1;
	r->pid = fork();
	if (r->pid < 0)
		return err_errno(e, "start a process for the runner");
	if (r->pid == 0)
		become_runner(plan, launcher, in, out, log);
	r->log_fd = fd_take(&from_log);
	ret_pipes[0] = fd_take(&to_in);
	ret_pipes[1] = fd_take(&from_out);
	*ret = mem_take(&r);
	return 0;
}

static bool read_log(struct runner *r, int reads)
{
	char chunk[LOG_CHUNK];

	while (reads-- > 0) {
		ssize_t n = read(r->log_fd, chunk, sizeof(chunk));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		if (n == 0)
			return false;
		runner_log_feed(&r->log, chunk, (size_t)n, clock_mono_ms());
	}
	return true;
}

bool runner_read_log(struct runner *r)
{
	return read_log(r, LOG_READS);
}

void runner_end(struct runner *r, int wait_status, char ret_cause[RUNNER_LOG_REASON])
{
	int code = child_code(wait_status);
	char end[CHILD_END_SIZE];

	if (r->log_fd >= 0)
		(void)read_log(r, LOG_END_READ);
	fd_close(&r->log_fd);
	disk_places_close(&r->places);
	runner_log_end(&r->log, clock_mono_ms());
	child_describe(wait_status, end);
	ret_cause[0] = '\0';
	/* The last line of a runner that was killed says what it did before, not why it ended. */
	if (code > 128)
		(void)snprintf(ret_cause, RUNNER_LOG_REASON, "the runner was ended by %s", end);
	else if (code != 0 && r->log.reason[0])
		(void)snprintf(ret_cause, RUNNER_LOG_REASON, "%s", r->log.reason);
	else if (code != 0)
		(void)snprintf(ret_cause, RUNNER_LOG_REASON, "the runner gave no reason (%s)", end);
}

void runner_free(struct runner **r)
{
	if (!*r)
		return;
	fd_close(&(*r)->log_fd);
	disk_places_close(&(*r)->places);
	free(*r);
	*r = NULL;
}
