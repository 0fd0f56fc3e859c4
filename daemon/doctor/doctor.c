#include "daemon/doctor/doctor.h"

#include "common/fd.h"
#include "daemon/doctor/host.h"
#include "daemon/doctor/inside.h"
#include "daemon/doctor/report.h"
#include "daemon/launcher/cluster.h"
#include "daemon/launcher/state.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TENANT      "d0c70000-0000-7000-8000-000000000001" /* of the doctor */
#define CREDENTIAL  "d0c70000-0000-7000-8000-000000000002"
#define PLACE       "/doctor-XXXXXX"
#define PLACE_MAX   (CLUSTER_SOCKET_DIR_MAX - strlen("/pg/run"))
#define OF_REGISTRY 1024 /* bytes, besides paths */

struct doctor {
	const struct doctor_conf *conf;
	struct report *report;
	bool service;
	char cgroup[PATH_MAX]; /* of the unit, "" without */
	char place[PATH_MAX];  /* temporary directory, "" = none */
};

/* -- a place for it all -------------------------------------------------------------------- */

/* In the state directory, because that is the disk that will be used; or beside it. */
static int choose_base(const char *state, char ret[PATH_MAX], struct err *e)
{
	struct stat st;

	if (state_canonical(state, ret, e) < 0)
		return -1;
	if (lstat(ret, &st) < 0 && errno == ENOENT)
		*strrchr(ret, '/') = '\0';
	if (!ret[0] || strlen(ret) + strlen(PLACE) > PLACE_MAX)
		(void)snprintf(ret, PATH_MAX, "/tmp");
	return 0;
}

static int make_place(struct doctor *d, struct err *e)
{
	char base[PATH_MAX];

	if (choose_base(d->conf->serve.state_dir, base, e) < 0)
		return -1;
	(void)snprintf(d->place, sizeof(d->place), "%.*s" PLACE, (int)PLACE_MAX, base);
	if (mkdtemp(d->place))
		return 0;
	d->place[0] = '\0';
	return err_errno(e,
	                 "nothing can be made in %s; let it exist, with space, mode 0700, owned "
	                 "by the service user (StateDirectory= of the unit)",
	                 base);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void remove_place(struct doctor *d)
{
	if (d->place[0] && nftw(d->place, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) < 0)
		report_failed(d->report, "cleanup", "%s: %m; remove it", d->place);
}

static bool check_state(struct doctor *d)
{
	char state[PATH_MAX];
	struct err e = ERR_INIT;

	if (state_canonical(d->conf->serve.state_dir, state, &e) < 0 ||
	    state_examine(state, &e) < 0 || make_place(d, &e) < 0) {
		report_failed(d->report, "state", "%s", e.text);
		return false;
	}
	report_ok(d->report, "state", "%s can be written", d->place);
	return true;
}

/* -- a tenant ------------------------------------------------------------------------------- */

static int write_file(const struct doctor *d, const char *name, const char *text, struct err *e)
{
	char path[PATH_MAX + 32];
	auto_close int fd = -1;

	(void)snprintf(path, sizeof(path), "%s/%s", d->place, name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_errno(e, "%s", path);
	return fd_write_all(fd, text, strlen(text), e);
}

static int write_token(const struct doctor *d, struct err *e)
{
	unsigned char bytes[32];
	char token[2 * sizeof(bytes) + 1];

	randombytes_buf(bytes, sizeof(bytes));
	(void)sodium_bin2hex(token, sizeof(token), bytes, sizeof(bytes));
	return write_file(d, "token", token, e);
}

static void keep_fault(void *ctx, const char *line)
{
	(void)err_set(ctx, EINVAL, "%s", line);
}

/* A registry of its own, read as every other one is. */
static int declare(const struct doctor *d, struct registry **ret, struct err *e)
{
	char text[2 * PATH_MAX + OF_REGISTRY], path[PATH_MAX + 32];
	struct err fault = ERR_INIT;

	(void)snprintf(path, sizeof(path), "%s/work", d->place);
	if (mkdir(path, 0700) < 0)
		return err_errno(e, "%s", path);
	(void)snprintf(text, sizeof(text),
	               "{\"version\":1,\"tenants\":[{\"id\":\"" TENANT "\",\"name\":\"doctor\","
	               "\"workspaceRoot\":\"%s/work\",%s"
	               "\"egress\":{\"mode\":\"public\",\"dns\":\"host\"},"
	               "\"credentials\":[{\"id\":\"" CREDENTIAL
	               "\",\"tokenFile\":\"%s/token\"}]}]}",
	               d->place, d->service ? "\"limits\":{\"memoryMiB\":256}," : "", d->place);
	if (write_token(d, e) < 0 || write_file(d, "tenants.json", text, e) < 0)
		return -1;
	(void)snprintf(path, sizeof(path), "%s/tenants.json", d->place);
	if (registry_load(path, NULL, ret, keep_fault, &fault, e) == 0)
		return 0;
	*e = fault;
	return -1;
}

/* -- a sandbox ------------------------------------------------------------------------------ */

/* What was not reported before, because of something that was. */
static void give_up(struct report *r, const char *why)
{
	static const char *const names[] = {
		"registry",        "workspaces",  "cgroup",        "state",       "postgresql",
		"sandbox",         "workspace",   "egress-public", "egress-host", "egress-private",
		"egress-metadata", "egress-ipv6", "dns",           "limits",      "memory-limit",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!report_has(r, names[i]))
			report_na(r, names[i], "%s", why);
}

static void launch(struct doctor *d, const struct registry *registry)
{
	char state[PATH_MAX + 8], work[PATH_MAX + 8], leaf[PATH_MAX + 64];
	const struct tenant *tenant = registry_at(registry, 0);
	struct inside inside = {
		.report = d->report,
		.tenant = tenant->id,
		.limits = d->service ? &tenant->limits : NULL,
		.leaf = d->service ? leaf : NULL,
		.workspace = work,
	};
	struct launcher_conf conf = d->conf->serve;
	struct err e = ERR_INIT;
	int status;

	(void)snprintf(state, sizeof(state), "%s/state", d->place);
	(void)snprintf(work, sizeof(work), "%s/work", d->place);
	(void)snprintf(leaf, sizeof(leaf), "%s/sandboxes/" TENANT, d->cgroup);
	conf.state_dir = state;
	conf.postgres_bin = conf.host = NULL;
	conf.drain_seconds = 0;
	conf.disk = (struct disk_limits){ 0 };
	conf.registry = registry;
	conf.server = inside_main;
	conf.ctx = &inside;
	status = launcher_run(&conf, &e);
	if (status < 0)
		report_failed(d->report, "sandbox", "%s", e.text);
	else if (status != 0)
		report_failed(d->report, report_has(d->report, "sandbox") ? "end" : "sandbox",
		              "the examination did not come to its end (status %d); "
		              "--log-level debug shows why",
		              status);
}

static void check_sandbox(struct doctor *d)
{
	struct registry *registry = NULL;
	struct err e = ERR_INIT;

	if (declare(d, &registry, &e) < 0) {
		report_failed(d->report, "sandbox", "%s", e.text);
		return;
	}
	launch(d, registry);
	registry_free(&registry);
}

/* -- the whole ------------------------------------------------------------------------------ */

static void examine(struct doctor *d)
{
	const struct launcher_conf *serve = &d->conf->serve;
	bool fit, programs;

	host_kernel(d->report, d->service);
	fit = host_identity(d->report, d->service);
	programs = host_programs(d->report, serve, d->service);
	if (!fit) {
		give_up(d->report, "needs the service user");
		return;
	}
	host_registry(d->report, d->conf);
	fit = host_cgroup(d->report, d->service, d->cgroup);
	if (!check_state(d)) {
		give_up(d->report, "needs a state directory");
		return;
	}
	host_postgresql(d->report, d->conf, d->place);
	if (programs && fit)
		check_sandbox(d);
	give_up(d->report, "no sandbox, see above");
	remove_place(d);
}

int doctor_run(const struct doctor_conf *conf)
{
	struct doctor d = {
		.conf = conf,
		.service = strcmp(conf->serve.boundary, "service") == 0,
	};
	struct err e = ERR_INIT;
	unsigned int failures;

	if (report_open(&d.report, &e) < 0) {
		(void)fprintf(stderr, "cloisterd: %s\n", e.text);
		return 1;
	}
	examine(&d);
	failures = report_failures(d.report);
	report_close(&d.report);
	return failures ? 1 : 0;
}
