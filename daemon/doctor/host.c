#include "daemon/doctor/host.h"

#include "common/fd.h"
#include "common/json.h"
#include "daemon/launcher/cluster.h"
#include "daemon/launcher/cluster_exec.h"
#include "daemon/launcher/delegation.h"
#include "daemon/launcher/preflight.h"
#include "daemon/link/database.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define OUTPUT_MAX 65536

#define auto_registry __attribute__((cleanup(registry_free)))

/* -- who we are --------------------------------------------------------------------------- */

bool host_identity(struct report *r, bool service)
{
	struct err e = ERR_INIT;

	if (preflight_self(&e) < 0 || (service && preflight_dedicated(&e) < 0)) {
		report_failed(r, "identity", "%s", e.text);
		return false;
	}
	report_ok(r, "identity", "uid %u, gid %u, no capabilities, no other groups", geteuid(),
	          getegid());
	return true;
}

/* -- what is declared --------------------------------------------------------------------- */

struct first_fault {
	char line[400];
};

static void keep_first(void *ctx, const char *line)
{
	struct first_fault *first = ctx;

	if (!first->line[0])
		(void)snprintf(first->line, sizeof(first->line), "%s", line);
}

static void check_workspaces(struct report *r, const struct registry *registry)
{
	size_t n = registry_count(registry);

	for (size_t i = 0; i < n; i++) {
		const struct tenant *t = registry_at(registry, i);

		if (faccessat(AT_FDCWD, t->workspace, R_OK | W_OK | X_OK, AT_EACCESS) == 0)
			continue;
		report_failed(
			r, "workspaces",
			"%.300s of tenant %s: %m; let the service user own it, and name it or "
			"its parent in ReadWritePaths= of the unit",
			t->workspace, t->name);
		return;
	}
	report_ok(r, "workspaces", "%zu, all writable", n);
}

void host_registry(struct report *r, const struct doctor_conf *conf)
{
	auto_registry struct registry *registry = NULL;
	struct first_fault first = { "" };
	struct err e = ERR_INIT;

	if (!conf->tenants) {
		report_na(r, "registry", "none is used: local mode");
		report_na(r, "workspaces", "no registry");
		return;
	}
	if (registry_load(conf->tenants, conf->serve.state_dir, &registry, keep_first, &first, &e) <
	    0) {
		report_failed(r, "registry", "%s, the first: %s; cloisterd check lists them all",
		              e.text, first.line);
		report_na(r, "workspaces", "the registry has faults");
		return;
	}
	if (conf->serve.guarded &&
	    guarded_check(conf->serve.guarded, registry, keep_first, &first, &e) < 0) {
		report_failed(r, "registry", "%s, the first: %s", e.text, first.line);
		report_na(r, "workspaces", "the registry has faults");
		return;
	}
	report_ok(r, "registry", "%zu tenant%s", registry_count(registry),
	          registry_count(registry) == 1 ? "" : "s");
	check_workspaces(r, registry);
}

/* -- programs ----------------------------------------------------------------------------- */

static bool check_programs(struct report *r, const struct launcher_conf *conf)
{
	struct err e = ERR_INIT;

	if (preflight_program("--runner", conf->runner,
	                      "build Cloister and name its cloister-runner with --runner",
	                      &e) < 0 ||
	    preflight_program("--guest", conf->guest,
	                      "build Cloister and name its cloister-guest with --guest", &e) < 0) {
		report_failed(r, "programs", "%s", e.text);
		return false;
	}
	report_ok(r, "programs", "%s, %s", conf->runner, conf->guest);
	return true;
}

static bool check_rootfs(struct report *r, const struct launcher_conf *conf)
{
	struct err e = ERR_INIT;

	if (preflight_rootfs(conf->rootfs, &e) < 0) {
		report_failed(r, "rootfs", "%s", e.text);
		return false;
	}
	report_ok(r, "rootfs", "%s", conf->rootfs);
	return true;
}

static bool check_installed(struct report *r, const struct launcher_conf *conf, bool service)
{
	struct err e = ERR_INIT;

	if (!service) {
		report_na(r, "installed", "boundary development runs programs of any owner");
		return true;
	}
	if (preflight_installed(conf, &e) < 0) {
		report_failed(r, "installed", "%s", e.text);
		return false;
	}
	report_ok(r, "installed", "root alone can change programs and root filesystem");
	return true;
}

static bool check_tun(struct report *r)
{
	struct err e = ERR_INIT;

	if (preflight_tun("/dev/net/tun", &e) < 0) {
		report_failed(r, "tun", "%s", e.text);
		return false;
	}
	report_ok(r, "tun", "/dev/net/tun can be opened");
	return true;
}

bool host_judge_probe(const char *json, size_t len, char *ret_text, size_t size)
{
	auto_json struct json *doc = NULL;
	const struct json *missing;
	struct err e = ERR_INIT;
	const char *version;

	if (json_parse(json, len, &doc, &e) < 0 || !json_str(json_get(doc, "version"))) {
		(void)snprintf(ret_text, size, "the runner's answer is not understood: %s", e.text);
		return false;
	}
	version = json_str(json_get(doc, "version"));
	missing = json_get(doc, "missing");
	if (json_bool(json_get(doc, "usable"))) {
		(void)snprintf(ret_text, size, "gVisor %.100s, usable", version);
		return true;
	}
	(void)snprintf(ret_text, size, "gVisor %.100s does not know %.100s", version,
	               json_len(missing) ? json_str(json_at(missing, 0)) : "what is needed");
	return false;
}

static bool check_runsc(struct report *r, const struct launcher_conf *conf)
{
	const char *const argv[] = { conf->runner, "probe", "--runsc", conf->runsc, NULL };
	auto_buf struct buf output = BUF_INIT(OUTPUT_MAX);
	const char *remedy = "install gVisor (Debian: runsc), or name it with --runsc";
	char text[400];
	struct err e = ERR_INIT;
	int ran;

	if (preflight_program("--runsc", conf->runsc, remedy, &e) < 0) {
		report_failed(r, "runsc", "%s", e.text);
		return false;
	}
	ran = cluster_command(argv, NULL, &output, &e);
	if (output.data && output.data[0] == '{' &&
	    host_judge_probe(output.data, strcspn(output.data, "\n"), text, sizeof(text)) &&
	    ran == 0) {
		report_ok(r, "runsc", "%s: %s", conf->runsc, text);
		return true;
	}
	report_failed(r, "runsc", "%s: %s; %s", conf->runsc,
	              output.data && output.data[0] == '{' ? text : e.text, remedy);
	return false;
}

static bool check_slirp(struct report *r, const struct launcher_conf *conf)
{
	const char *const argv[] = { conf->slirp4netns, "--version", NULL };
	auto_buf struct buf output = BUF_INIT(OUTPUT_MAX);
	const char *remedy = "install slirp4netns, or name it with --slirp4netns";
	struct err e = ERR_INIT;

	if (preflight_program("--slirp4netns", conf->slirp4netns, remedy, &e) < 0) {
		report_failed(r, "slirp4netns", "%s", e.text);
		return false;
	}
	if (cluster_command(argv, NULL, &output, &e) < 0 || !output.data) {
		report_failed(r, "slirp4netns", "%s; %s", e.text, remedy);
		return false;
	}
	report_ok(r, "slirp4netns", "%s: %.*s", conf->slirp4netns, (int)strcspn(output.data, "\n"),
	          output.data);
	return true;
}

bool host_programs(struct report *r, const struct launcher_conf *conf, bool service)
{
	bool programs = check_programs(r, conf);
	bool rootfs = check_rootfs(r, conf);
	bool installed = check_installed(r, conf, service);
	bool tun = check_tun(r);
	bool slirp = check_slirp(r, conf);

	if (programs)
		return check_runsc(r, conf) && rootfs && installed && tun && slirp;
	report_na(r, "runsc", "the runner, which examines it, is missing");
	return false;
}

/* -- limits and database ------------------------------------------------------------------ */

bool host_cgroup(struct report *r, bool service, char ret_dir[PATH_MAX])
{
	struct err e = ERR_INIT;

	ret_dir[0] = '\0';
	if (!service) {
		report_na(r, "cgroup", "boundary development has no cgroup limits");
		return true;
	}
	if (delegation_prepare(ret_dir, &e) < 0) {
		report_failed(r, "cgroup", "%s", e.text);
		ret_dir[0] = '\0';
		return false;
	}
	report_ok(r, "cgroup", "%s: delegated, with cpu, memory and pids", ret_dir);
	return true;
}

static void examine_external(struct report *r, const struct doctor_conf *conf, const char *place)
{
	struct database d = { .url = conf->database,
		              .state_dir = place,
		              .connections = 1,
		              .mode = CONFINE_ENFORCE,
		              .aside = -1,
		              .link = -1 };
	struct err e = conf->database_fault;
	char what[128];

	if (e.code == 0 && database_put_aside(&d, &e) == 0 && database_link(&d, &e) == 0 &&
	    database_take_back(&d, &e) == 0 && database_examine(&d, what, sizeof(what), &e) == 0)
		report_ok(r, "postgresql", "%.200s port %u: %s", conf->database->host,
		          conf->database->port, what);
	else
		report_failed(r, "postgresql", "%s", e.text);
	database_release(&d);
}

void host_postgresql(struct report *r, const struct doctor_conf *conf, const char *place)
{
	const char *bin = conf->serve.postgres_bin;
	struct cluster cluster;
	struct err e = ERR_INIT;

	if (conf->database) {
		examine_external(r, conf, place);
		return;
	}
	if (!bin) {
		report_failed(r, "postgresql",
		              "none is installed; install the package postgresql, or name the "
		              "directory of its programs with --postgres-bin");
		return;
	}
	if (cluster_start(&cluster, place, bin, CLUSTER_CONNECTIONS, &e) < 0 ||
	    cluster_stop(&cluster, &e) < 0)
		report_failed(r, "postgresql", "%s", e.text);
	else
		report_ok(r, "postgresql", "%s: a cluster was made, started and stopped", bin);
}
