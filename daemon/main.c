/*
 * cloisterd starts with the rights of its own user and refuses to hold more.  Before it
 * reads a single argument it gives up what execve(2) could grant it (no_new_privs), what
 * a debugger of the same user could read from it (dumpable), descriptors that it was not
 * given on purpose, and files that others could read (umask).
 *
 * Before even that it blocks SIGHUP, which asks a service to read its registry again and would
 * end one that is not ready to be asked.  It stays blocked: the launcher takes it from a
 * descriptor, and what it starts ignores it (child.h).
 *
 * Everything is read into a plan first: options, then the registry, then paths.  Only then
 * does launcher_run() begin to start things; the network is reached by its child alone.
 */
#include "common/fd.h"
#include "common/log.h"
#include "common/sanitizer.h"
#include "daemon/doctor/doctor.h"
#include "daemon/kept.h"
#include "daemon/launcher/control.h"
#include "daemon/launcher/launcher.h"
#include "daemon/launcher/preflight.h"
#include "daemon/launcher/state.h"
#include "daemon/local.h"
#include "daemon/mcp/servers.h"
#include "daemon/model/models.h"
#include "daemon/operator.h"
#include "daemon/options.h"
#include "daemon/server.h"
#include "daemon/store/sql.h"
#include "daemon/tenant/registry.h"
#include "daemon/tenant/trusted.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define VERSION "0.1.0"

#define EXIT_FAULTS  1 /* check, reload, tenant: faults, or the service refused */
#define EXIT_REFUSED 2 /* wrong command line, or something is missing: nothing was started */

#define auto_registry __attribute__((cleanup(registry_free)))
#define auto_models   __attribute__((cleanup(models_free)))
#define auto_mcp      __attribute__((cleanup(mcp_servers_free)))

/* A descriptor that is opened later must not become standard output by accident. */
static int fill_standard_descriptors(struct err *e)
{
	int fd;

	do
		fd = open("/dev/null",
		          O_RDWR); /* not close-on-exec: children have these three too */
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd < 0)
		return err_errno(e, "/dev/null");
	fd_close_from(STDERR_FILENO + 1, NULL, 0);
	return 0;
}

static int lower(struct err *e)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_errno(e, "set no_new_privs");
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_errno(e, "clear dumpable");
	(void)umask(077);
	return fill_standard_descriptors(e);
}

static int refuse(const struct err *e)
{
	if (log_form() != LOG_TEXT)
		log_error("%s", e->text);
	else
		(void)fprintf(stderr, "cloisterd: %s\n", e->text);
	return EXIT_REFUSED;
}

static void print_fault(void *ctx, const char *line)
{
	if (log_form() != LOG_TEXT) {
		log_error("%s", line);
		return;
	}
	(void)fprintf(ctx, "%s\n", line);
}

static int faulty(const struct err *e)
{
	(void)fflush(stdout);
	(void)fprintf(stderr, "cloisterd: %s\n", e->text);
	return EXIT_FAULTS;
}

/* Whose a file may be depends on who asks, and who asks is seldom the one that will serve. */
static int check_faulty(const struct options *o, const struct err *e)
{
	int r = faulty(e);

	if (geteuid() == 0)
		(void)fprintf(
			stderr,
			"cloisterd: judged as root, who takes only what is root's; run it as the "
			"service user: setpriv --reuid cloister --regid cloister "
			"--clear-groups cloisterd check %s\n",
			o->tenants);
	return r;
}

static int check(const struct options *o)
{
	auto_registry struct registry *registry = NULL;
	auto_models struct models *models = NULL;
	auto_mcp struct mcp_servers *mcp = NULL;
	auto_guarded struct guarded guarded = { .place_count = 0 };
	struct err e = ERR_INIT;

	kept_options(&guarded, o);
	if (registry_load(o->tenants, o->state, &registry, print_fault, stdout, &e) < 0)
		return check_faulty(o, &e);
	if (o->models && models_load(o->models, registry, &models, print_fault, stdout, &e) < 0)
		return check_faulty(o, &e);
	if (o->mcp && mcp_servers_load(o->mcp, registry, &mcp, print_fault, stdout, &e) < 0)
		return check_faulty(o, &e);
	kept_models(&guarded, models);
	kept_mcp(&guarded, mcp);
	if (guarded_check(&guarded, registry, print_fault, stdout, &e) < 0)
		return check_faulty(o, &e);
	printf("ok: %zu tenant%s", registry_count(registry),
	       registry_count(registry) == 1 ? "" : "s");
	if (models)
		printf(", %zu model%s", models->n, models->n == 1 ? "" : "s");
	if (mcp)
		printf(", %zu MCP server%s", mcp->n, mcp->n == 1 ? "" : "s");
	printf("\n");
	return 0;
}

/* One stream and one sandbox cost descriptors each; the hard limit is the operator's word. */
static int raise_descriptor_limit(struct err *e)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return err_errno(e, "read the limit of descriptors");
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return err_errno(e, "raise the limit of descriptors");
	return 0;
}

/* One that cannot be followed stays as it is: to use it fails, and says why. */
static void make_canonical(char **path)
{
	struct err ignored = ERR_INIT;
	char *found = NULL;

	if (trusted_canonical(*path, &found, &ignored) < 0)
		return;
	free(*path);
	*path = found;
}

/* What the runner is given must be canonical: it follows no link. */
static void settle_programs(struct options *o)
{
	char **const paths[] = { &o->runner, &o->guest,       &o->rootfs,
		                 &o->runsc,  &o->slirp4netns, &o->postgres_bin };

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		if (*paths[i])
			make_canonical(paths[i]);
}

static struct launcher_conf launcher_of(const struct options *o)
{
	return (struct launcher_conf){
		.state_dir = o->state,
		.runner = o->runner,
		.guest = o->guest,
		.rootfs = o->rootfs,
		.runsc = o->runsc,
		.slirp4netns = o->slirp4netns,
		.postgres_bin = o->postgres_bin,
		.db_connections = o->max_db_connections,
		.boundary = o->boundary,
		.host = o->host,
		.host_addresses = o->host_addresses.v,
		.host_address_count = o->host_addresses.n,
		.drain_seconds = o->drain_seconds,
		/* The reserve is for the database. */
		.disk = { o->disk_start_mb, o->disk_end_mb,
		          o->database_url_file ? 0 : o->disk_reserve_mb },
	};
}

/* What the operator's files say. */
struct declared {
	struct registry *registry;
	const struct models *models;
	const struct mcp_servers *mcp;
	const unsigned char *operator_digest; /* NULL = none */
	struct database_url *database;        /* NULL = the managed one */
	const struct guarded *guarded;
};

/* The launcher connects to no database. */
static void forget_password(void *ctx)
{
	const struct server_conf *server = ctx;

	if (server->database)
		url_wipe(server->database);
}

static int run(const struct options *o, const char *state, const struct declared *d, struct err *e)
{
	struct server_conf server = {
		.options = o,
		.registry = d->registry,
		.models = d->models,
		.mcp = d->mcp,
		.operator_digest = d->operator_digest,
		.database = d->database,
		.state_dir = state,
		.anyone = local_anyone(o, d->registry),
	};
	struct launcher_conf conf = launcher_of(o);

	conf.state_dir = state;
	conf.registry = d->registry;
	conf.registry_path = o->tenants;
	conf.guarded = d->guarded;
	conf.server = server_main;
	conf.forget = forget_password;
	conf.ctx = &server;
	if (server.anyone)
		log_warn("local mode without a token: whatever can connect to %.64s may use the "
		         "workspace; give it a token with --token-file or CLOISTER_TOKEN",
		         o->host);
	return launcher_run(&conf, e);
}

/* No registry comes in force, now or later, that makes anything of it a sandbox's. */
static int guard(struct guarded *g, const struct declared *d, struct err *e)
{
	kept_models(g, d->models);
	kept_mcp(g, d->mcp);
	kept_metrics(g, d->operator_digest);
	kept_database(g, d->database);
	return guarded_check(g, d->registry, print_fault, stderr, e);
}

static int serve(struct options *o)
{
	auto_guarded struct guarded guarded = { .place_count = 0 };
	auto_registry struct registry *registry = NULL;
	auto_models struct models *models = NULL;
	auto_mcp struct mcp_servers *mcp = NULL;
	char state[PATH_MAX];
	unsigned char operator_digest[TOKEN_DIGEST];
	struct database_url database;
	struct declared declared;
	struct local_token token;
	struct err e = ERR_INIT;
	int status, loaded;

	log_setup("cloisterd", (enum log_level)o->log_level);
	log_begin((enum log_format)o->log_format);
	local_take_token(&token);
	kept_options(&guarded, o);
	settle_programs(o);
	if (preflight_self(&e) < 0 || raise_descriptor_limit(&e) < 0 ||
	    state_canonical(o->state, state, &e) < 0 || local_check(o, &token, &e) < 0)
		return refuse(&e);
	if (o->tenants)
		loaded = registry_load(o->tenants, state, &registry, print_fault, stderr, &e);
	else
		loaded = local_registry(o, state, &token, &registry, &e);
	if (loaded == 0 && o->models)
		loaded = models_load(o->models, registry, &models, print_fault, stderr, &e);
	if (loaded == 0 && o->mcp)
		loaded = mcp_servers_load(o->mcp, registry, &mcp, print_fault, stderr, &e);
	if (loaded == 0 && o->metrics_token_file)
		loaded = operator_token(o, state, registry, operator_digest, &e);
	if (loaded == 0 && o->database_url_file)
		loaded = operator_database_url(o, state, registry, &database, &e);
	if (loaded < 0)
		return refuse(&e);
	declared = (struct declared){ registry,
		                      models,
		                      mcp,
		                      o->metrics_token_file ? operator_digest : NULL,
		                      o->database_url_file ? &database : NULL,
		                      &guarded };
	if (guard(&guarded, &declared, &e) < 0)
		return refuse(&e);
	status = run(o, state, &declared, &e);
	sanitizer_fault("launcher");
	return status < 0 ? refuse(&e) : status;
}

/* Its lines are all that is wanted, unless somebody wants to know everything. */
static int doctor(struct options *o)
{
	auto_guarded struct guarded guarded = { .place_count = 0 };
	struct doctor_conf conf = { .tenants = o->tenants };
	struct database_url database;
	char state[PATH_MAX];
	struct err e = ERR_INIT;

	if (raise_descriptor_limit(&e) < 0)
		return refuse(&e);
	kept_options(&guarded, o);
	settle_programs(o);
	conf.serve = launcher_of(o);
	conf.serve.guarded = &guarded;
	log_setup("cloisterd", o->log_level == LOG_DEBUG ? LOG_DEBUG : LOG_ERROR);
	if (o->database_url_file) {
		conf.database = &database;
		if (state_canonical(o->state, state, &conf.database_fault) == 0)
			(void)!operator_database_url(o, state, NULL, &database,
			                             &conf.database_fault);
	}
	return doctor_run(&conf);
}

static void say_line(bool error, const char *line)
{
	(void)fprintf(error ? stderr : stdout, "%s\n", line);
}

/* A drain is asked about again and again: what is new is said. */
static void say_news(bool error, const char *line)
{
	static char before[128];

	if (!error && strcmp(before, line) == 0)
		return;
	(void)snprintf(before, sizeof(before), "%s", line);
	say_line(error, line);
	(void)fflush(stdout);
}

static struct control_request request_of(const struct options *o)
{
	struct control_request request = { .word = CONTROL_RELOAD };

	if (o->command == COMMAND_STATUS)
		request.word = o->json ? CONTROL_STATUS_JSON : CONTROL_STATUS;
	if (o->command == COMMAND_DRAIN)
		request.word = CONTROL_DRAIN;
	if (o->purge) {
		request.word = CONTROL_PURGE;
		request.tenant = o->tenant;
	}
	return request;
}

static int ask_running(const struct options *o)
{
	const struct timespec pause = { .tv_nsec = 200000000 };
	const struct control_request request = request_of(o);
	char state[PATH_MAX];
	struct err e = ERR_INIT;
	int status;

	if (state_canonical(o->state, state, &e) < 0)
		return refuse(&e);
	while ((status = control_ask(state, &request,
	                             o->command == COMMAND_DRAIN ? say_news : say_line, &e)) ==
	       CONTROL_BUSY)
		(void)nanosleep(&pause, NULL);
	if (status >= 0)
		return status;
	(void)refuse(&e);
	return EXIT_FAULTS;
}

/* Last, and by itself: what a terminal shows at the end is what is copied. */
static int new_token(const struct options *o)
{
	const char *name = o->tenant_name ? o->tenant_name : "NAME";
	const struct uuid id = uuid_new();
	struct token_text text;

	token_draw(&text);
	printf("Declare the hash.  In a registry, in \"credentials\" of the tenant:\n\n"
	       "    {\"id\": \"%s\", \"tokenHash\": \"%s\"}\n\n"
	       "or on NixOS, with any name for main:\n\n"
	       "    services.cloister.tenants.%s.tokenHashes.main = \"%s\";\n\n"
	       "Give the token to whom it is for.  It is shown this once, and stored nowhere:\n\n"
	       "%s\n",
	       id.text, text.hash, name, text.hash, text.token);
	return fflush(stdout) == 0 ? 0 : EXIT_FAULTS;
}

static int dispatch(struct options *o)
{
	if (o->help) {
		options_help(o->command, stdout);
		return 0;
	}
	switch (o->command) {
	case COMMAND_SERVE:
		return serve(o);
	case COMMAND_CHECK:
		return check(o);
	case COMMAND_DOCTOR:
		return doctor(o);
	case COMMAND_RELOAD:
	case COMMAND_TENANT:
	case COMMAND_STATUS:
	case COMMAND_DRAIN:
		return ask_running(o);
	case COMMAND_TOKEN:
		return new_token(o);
	case COMMAND_DATABASE_SCRIPT:
		sql_script(stdout);
		return fflush(stdout) == 0 ? 0 : EXIT_FAULTS;
	case COMMAND_VERSION:
		puts("cloisterd " VERSION);
		return 0;
	case COMMAND_NONE:
		break;
	}
	options_help(COMMAND_NONE, stderr);
	return EXIT_REFUSED;
}

int main(int argc, char *argv[])
{
	auto_options struct options options = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;
	sigset_t hangup, before;

	(void)sigemptyset(&hangup);
	(void)sigaddset(&hangup, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &hangup, &before);
	if (lower(&e) < 0 || options_parse(argc, argv, &options, &e) < 0)
		return refuse(&e);
	/* What only asks a service, or looks at things, ends with its terminal. */
	if (options.command != COMMAND_SERVE)
		(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return dispatch(&options);
}
