#include "daemon/options.h"

#include "common/buf.h"
#include "common/fd.h"
#include "daemon/tenant/policy.h"
#include "daemon/tenant/registry.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POSTGRES_ROOT "/usr/lib/postgresql"
#define PATH_BYTES    4096
#define ORIGIN_BYTES  240

enum kind {
	KIND_PATH,
	KIND_ADDRESS,
	KIND_NUMBER,
	KIND_CHOICE,    /* stored as the index of the word */
	KIND_WORD,      /* stored as the word, which is static */
	KIND_NETWORKS,  /* may stand more than once */
	KIND_ORIGINS,   /* as well */
	KIND_ADDRESSES, /* as well */
	KIND_PATHS,     /* as well */
	KIND_NAME,      /* of a tenant */
	KIND_FLAG,      /* has no value */
};

struct option_row {
	const char *name;
	const char *value; /* what the help calls it */
	const char *help;
	const char *standard; /* default; NULL = none, or found by find_defaults() */
	const char *words[5]; /* of a choice */
	size_t at;            /* offset in struct options */
	size_t no_more_than;  /* offset of the limit that this one is a share of; 0 = none */
	unsigned int min, max;
	enum kind kind;
	bool required;
	unsigned int also; /* commands besides serve and doctor, as OF() has them */
	unsigned int only; /* or instead of these; 0 = no */
};

#define OF(command) (1U << COMMAND_##command)
#define AT(member)  .at = offsetof(struct options, member)
#define PATH(n, v, member, ...)                                                   \
	{                                                                         \
		.name = n, .value = v, .kind = KIND_PATH, AT(member), __VA_ARGS__ \
	}
#define NUMBER(n, v, member, low, high, normal, ...)                                             \
	{                                                                                        \
		.name = n, .value = v, .kind = KIND_NUMBER, AT(member), .min = low, .max = high, \
		.standard = normal, __VA_ARGS__                                                  \
	}
#define SHARE_OF(member) .no_more_than = offsetof(struct options, member)

/* clang-format off */
static const struct option_row rows[] = {
	PATH("tenants", "FILE", tenants,
	     .help = "registry of the tenants (required, or --workspace-root)"),
	{ .name = "workspace-root", .value = "DIR", .kind = KIND_PATHS, AT(workspace_roots),
	  .help = "local mode, for one person: what the sandbox sees as /workspace; repeatable" },
	PATH("models", "FILE", models, .also = OF(CHECK),
	     .help = "models of providers (default: the built-in one alone)"),
	PATH("mcp", "FILE", mcp, .also = OF(CHECK),
	     .help = "MCP servers, whose tools tenants may have (default: none)"),
	PATH("token-file", "FILE", token_file,
	     .help = "local mode: the bearer token (default: CLOISTER_TOKEN, or none)"),
	PATH("metrics-token-file", "FILE", metrics_token_file,
	     .help = "the bearer token for GET /metrics (default: there is no /metrics)"),
	{ .name = "allow-http-repositories", .kind = KIND_FLAG, AT(allow_http_repositories),
	  .help = "sessions may begin with a repository at http://, where anybody on the way "
	          "reads credentials and changes code" },
	{ .name = "allow-remote", .kind = KIND_FLAG, AT(allow_remote),
	  .help = "local mode: --host may be another address than 127.0.0.1 or ::1" },
	{ .name = "cors-origin", .value = "ORIGIN", .kind = KIND_ORIGINS, AT(cors_origins),
	  .help = "whose pages may use the API, such as https://app.example; repeatable" },
	{ .name = "trusted-proxy", .value = "ADDRESS", .kind = KIND_ADDRESSES, AT(trusted_proxies),
	  .help = "whose X-Forwarded-For says where a request comes from; repeatable" },
	PATH("state", "DIR", state, .required = true, .also = OF(CHECK) | OF(RELOAD) | OF(TENANT) | OF(STATUS) | OF(DRAIN),
	     .help = "private directory for the database and the tenants' guest state"),
	PATH("rootfs", "DIR", rootfs, .required = true,
	     .help = "root filesystem of the sandboxes, read only"),
	{ .name = "boundary", .value = "PROFILE", .kind = KIND_WORD, AT(boundary),
	  .standard = "service", .words = { "service", "development" },
	  .help = "what holds tenants and machine apart; development: no cgroup limits, loopback" },
	{ .name = "host", .value = "ADDRESS", .kind = KIND_ADDRESS, AT(host),
	  .standard = "127.0.0.1", .help = "address to listen on" },
	NUMBER("port", "N", port, 0, 65535, "4096",
	       .help = "port to listen on; 0 = any free one"),
	PATH("runner", "FILE", runner, .help = "cloister-runner (default: beside cloisterd)"),
	PATH("guest", "FILE", guest, .help = "cloister-guest (default: beside cloisterd)"),
	PATH("runsc", "FILE", runsc, .standard = "/usr/bin/runsc", .help = "gVisor"),
	PATH("slirp4netns", "FILE", slirp4netns, .standard = "/usr/bin/slirp4netns",
	     .help = "network of the sandboxes"),
	PATH("postgres-bin", "DIR", postgres_bin,
	     .help = "programs of PostgreSQL (default: in " POSTGRES_ROOT ", the version that made "
	             "the database, or the newest)"),
	PATH("database-url-file", "FILE", database_url_file,
	     .help = "URL of an external PostgreSQL, in place of the managed one; see "
	             "docs/architecture.md"),
	NUMBER("drain-seconds", "SECONDS", drain_seconds, 0, 3600, "25",
	       .help = "how long running turns may go on when the service stops"),
	NUMBER("sandbox-idle-seconds", "SECONDS", sandbox_idle_seconds, 1, 86400, "900",
	       .help = "stop a sandbox that was idle that long"),
	NUMBER("max-active-sandboxes", "N", max_active_sandboxes, 1, 4096, "64",
	       .help = "sandboxes that run at once"),
	NUMBER("disk-start-mb", "MB", disk_start_mb, 0, 1048576, "512",
	       .help = "no sandbox starts when less is free on the disk of --state, in MiB"),
	NUMBER("disk-end-mb", "MB", disk_end_mb, 0, 1048576, "256", SHARE_OF(disk_start_mb),
	       .help = "below that, sandboxes that write there are ended: the database needs it"),
	NUMBER("disk-reserve-mb", "MB", disk_reserve_mb, 0, 65536, "64",
	       .help = "held back in --state for the database of a machine that is full"),
	{ .name = "host-address", .value = "CIDR", .kind = KIND_NETWORKS, AT(host_addresses),
	  .help = "network that no sandbox may reach, besides this machine's own; repeatable" },
	NUMBER("max-running-turns", "N", max_running_turns, 1, 1024, "16",
	       .help = "turns that run at once"),
	NUMBER("max-running-turns-per-tenant", "N", max_running_turns_per_tenant, 1, 1024, "4",
	       SHARE_OF(max_running_turns), .help = "of these, of one tenant"),
	NUMBER("max-queued-turns", "N", max_queued_turns, 1, 65536, "256",
	       .help = "turns that wait to run"),
	NUMBER("max-queued-turns-per-tenant", "N", max_queued_turns_per_tenant, 1, 65536, "64",
	       SHARE_OF(max_queued_turns), .help = "of these, of one tenant"),
	NUMBER("max-queued-bytes", "BYTES", max_queued_bytes, 16777216, 1073741824, "83886080",
	       .help = "input of turns that wait to run"),
	NUMBER("max-queued-bytes-per-tenant", "BYTES", max_queued_bytes_per_tenant, 16777216,
	       1073741824, "41943040", SHARE_OF(max_queued_bytes),
	       .help = "of these, of one tenant"),
	NUMBER("max-waiting-turns-per-tenant", "N", max_waiting_turns_per_tenant, 1, 4096, "64",
	       .help = "turns of one tenant that wait for a person; one more fails"),
	NUMBER("max-turn-bytes", "BYTES", max_turn_bytes, 65536, 1073741824, "16777216",
	       .help = "what the model and the tools say in one turn; one that says more fails"),
	NUMBER("max-turn-steps", "N", max_turn_steps, 1, 10000, "256",
	       .help = "answers of the model in one turn, its child agents' too; one that is "
	               "not done by then fails"),
	NUMBER("harness-silence-seconds", "SECONDS", harness_silence_seconds, 1, 86400, "3600",
	       .help = "a turn fails whose harness says nothing for that long"),
	NUMBER("max-event-streams", "N", max_event_streams, 1, 65536, "1024",
	       .help = "event streams open at once"),
	NUMBER("max-event-streams-per-tenant", "N", max_event_streams_per_tenant, 1, 65536, "256",
	       SHARE_OF(max_event_streams), .help = "of these, of one tenant"),
	NUMBER("event-replay-limit", "N", event_replay_limit, 1, 100000, "1000",
	       .help = "past events kept for streams that come back"),
	NUMBER("max-request-bytes", "BYTES", max_request_bytes, 1024, 33554432, "33554432",
	       .help = "largest body of a request; all bodies together: eight times that"),
	NUMBER("request-seconds", "SECONDS", request_seconds, 1, 3600, "30",
	       .help = "how long a request may take to arrive"),
	NUMBER("max-failed-attempts", "N", max_failed_attempts, 1, 1000000, "120",
	       .help = "wrong tokens from one address in a minute; 429 too_many_attempts beyond"),
	NUMBER("max-db-connections", "N", max_db_connections, 4, 1000, "16",
	       .help = "connections to PostgreSQL, over all tenants"),
	NUMBER("max-tenant-database-mb", "MB", max_tenant_database_mb, 16, 1048576, "1024",
	       .help = "largest database of a tenant, in MiB; 507 tenant_storage_full beyond"),
	{ .name = "confine", .value = "MODE", .kind = KIND_CHOICE, AT(confine),
	  .standard = "enforce", .words = { "enforce", "kill" },
	  .help = "what a system call outside the server's list comes to: an error, or its end" },
	{ .name = "log-level", .value = "LEVEL", .kind = KIND_CHOICE, AT(log_level),
	  .standard = "info", .words = { "error", "warn", "info", "debug" },
	  .help = "the most detailed messages that are written to standard error" },
	{ .name = "log", .value = "FORMAT", .kind = KIND_CHOICE, AT(log_format),
	  .standard = "text", .words = { "text", "json", "journal" },
	  .help = "the form of its lines; journal: with the priorities that systemd reads" },
	{ .name = "json", .kind = KIND_FLAG, AT(json), .only = OF(STATUS),
	  .help = "for programs" },
	{ .name = "tenant", .value = "NAME", .kind = KIND_NAME, AT(tenant_name), .only = OF(TOKEN),
	  .help = "whose token it will be: says where to declare it" },
};
/* clang-format on */

/* -- storing a value ------------------------------------------------------------------- */

static char **text_at(struct options *o, size_t at)
{
	return (char **)(void *)((char *)o + at);
}

static const char **word_at(struct options *o, size_t at)
{
	return (const char **)(void *)((char *)o + at);
}

static unsigned int *number_at(struct options *o, size_t at)
{
	return (unsigned int *)(void *)((char *)o + at);
}

static struct option_list *list_at(struct options *o, size_t at)
{
	return (struct option_list *)(void *)((char *)o + at);
}

static int store_text(struct options *o, size_t at, struct buf *text, struct err *e)
{
	if (buf_failed(text))
		return err_set(e, EINVAL, "longer than %d bytes", PATH_BYTES);
	*text_at(o, at) = buf_take(text);
	return *text_at(o, at) ? 0 : err_set(e, ENOMEM, "no memory for the options");
}

static int set_text(struct options *o, size_t at, const char *value, struct err *e)
{
	auto_buf struct buf text = BUF_INIT(PATH_BYTES);

	buf_adds(&text, value);
	return store_text(o, at, &text, e);
}

static int set_path(struct options *o, size_t at, const char *value, struct err *e)
{
	auto_buf struct buf path = BUF_INIT(PATH_BYTES);
	char cwd[PATH_BYTES + 1];

	if (!*value)
		return err_set(e, EINVAL, "must not be empty");
	if (*value != '/') {
		if (!getcwd(cwd, sizeof(cwd)))
			return err_errno(e, "working directory");
		buf_adds(&path, cwd);
		buf_addc(&path, '/');
	}
	buf_adds(&path, value);
	return store_text(o, at, &path, e);
}

static int set_address(struct options *o, size_t at, const char *value, struct err *e)
{
	struct in6_addr address;

	if (inet_pton(AF_INET, value, &address) != 1 && inet_pton(AF_INET6, value, &address) != 1)
		return err_set(e, EINVAL, "%.64s is not an IPv4 or IPv6 address", value);
	return set_text(o, at, value, e);
}

static int set_name(struct options *o, size_t at, const char *value, struct err *e)
{
	if (!registry_name_valid(value))
		return err_set(e, EINVAL,
		               "%.64s is not 1 to %d of a-z, 0-9 and \"-\" with a letter in front",
		               value, TENANT_NAME_MAX);
	return set_text(o, at, value, e);
}

_Static_assert(offsetof(struct option_list, v) == 0, "a list is where its first value is");

static bool repeats(enum kind kind)
{
	return kind == KIND_NETWORKS || kind == KIND_ORIGINS || kind == KIND_ADDRESSES ||
	       kind == KIND_PATHS;
}

/* As a browser writes it: scheme, host in lower case, port; nothing behind. */
static int check_origin(const char *value, struct err *e)
{
	size_t scheme = strncmp(value, "https://", 8) == 0  ? 8
	                : strncmp(value, "http://", 7) == 0 ? 7
	                                                    : 0;
	const char *host = value + scheme;

	if (scheme && *host && strlen(value) <= ORIGIN_BYTES &&
	    strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789-._:[]") == strlen(host))
		return 0;
	return err_set(e, EINVAL,
	               "%.64s is not http:// or https:// with a host in lower case, and a port "
	               "where it is not the usual one",
	               value);
}

static int add_value(struct options *o, const struct option_row *row, const char *value,
                     struct err *e)
{
	struct option_list *list = list_at(o, row->at);
	size_t at = row->at + list->n * sizeof(list->v[0]);

	if (row->kind == KIND_NETWORKS && policy_cidr(value, e) < 0)
		return err_wrap(e, "%.64s", value);
	if (row->kind == KIND_ORIGINS && check_origin(value, e) < 0)
		return -1;
	if (list->n == OPTION_LIST_MAX)
		return err_set(e, EINVAL, "more than %d of them", OPTION_LIST_MAX);
	if ((row->kind == KIND_PATHS       ? set_path
	     : row->kind == KIND_ADDRESSES ? set_address
	                                   : set_text)(o, at, value, e) < 0)
		return -1;
	list->n++;
	return 0;
}

static int set_number(struct options *o, const struct option_row *row, const char *value,
                      struct err *e)
{
	size_t digits = strspn(value, "0123456789");
	unsigned long v =
		digits && digits <= 10 && !value[digits] ? strtoul(value, NULL, 10) : ULONG_MAX;

	if (v < row->min || v > row->max)
		return err_set(e, EINVAL, "%.64s is not a number from %u to %u", value, row->min,
		               row->max);
	*number_at(o, row->at) = (unsigned int)v;
	return 0;
}

/* "service or development", "error, warn, info or debug". */
static void list_words(const struct option_row *row, char *ret, size_t size)
{
	size_t len = 0;

	ret[0] = '\0';
	for (size_t i = 0; row->words[i] && len < size; i++)
		len += (size_t)snprintf(ret + len, size - len, "%s%s",
		                        !i                  ? ""
		                        : row->words[i + 1] ? ", "
		                                            : " or ",
		                        row->words[i]);
}

static int set_choice(struct options *o, const struct option_row *row, const char *value,
                      struct err *e)
{
	char words[64];

	for (unsigned int i = 0; row->words[i]; i++) {
		if (strcmp(row->words[i], value) != 0)
			continue;
		if (row->kind == KIND_WORD)
			*word_at(o, row->at) = row->words[i];
		else
			*number_at(o, row->at) = i;
		return 0;
	}
	list_words(row, words, sizeof(words));
	return err_set(e, EINVAL, "%.64s is not one of %s", value, words);
}

static int set_value(struct options *o, const struct option_row *row, const char *value,
                     struct err *e)
{
	int r = -1;

	switch (row->kind) {
	case KIND_PATH:
		r = set_path(o, row->at, value, e);
		break;
	case KIND_ADDRESS:
		r = set_address(o, row->at, value, e);
		break;
	case KIND_NAME:
		r = set_name(o, row->at, value, e);
		break;
	case KIND_NUMBER:
		r = set_number(o, row, value, e);
		break;
	case KIND_CHOICE:
	case KIND_WORD:
		r = set_choice(o, row, value, e);
		break;
	case KIND_NETWORKS:
	case KIND_ORIGINS:
	case KIND_ADDRESSES:
	case KIND_PATHS:
		r = add_value(o, row, value, e);
		break;
	case KIND_FLAG:
		*number_at(o, row->at) = 1;
		return 0;
	}
	return r < 0 ? err_wrap(e, "--%s", row->name) : 0;
}

/* -- defaults -------------------------------------------------------------------------- */

static int beside_program(struct options *o, size_t at, const char *name, struct err *e)
{
	char path[PATH_BYTES + 1];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *slash;

	if (n < 0)
		return err_errno(e, "/proc/self/exe");
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash || (size_t)(slash + 1 - path) + strlen(name) > PATH_BYTES)
		return err_set(e, EINVAL, "%.200s: no place for %s beside it", path, name);
	(void)snprintf(slash + 1, sizeof(path) - (size_t)(slash + 1 - path), "%s", name);
	return set_text(o, at, path, e);
}

/* The major version that made the database of a state directory; -1: there is none. */
static long made_by(const char *state)
{
	struct err ignored = ERR_INIT;
	auto_free char *text = NULL;
	auto_close int fd = -1;
	char path[PATH_BYTES + 32];
	size_t len;

	(void)snprintf(path, sizeof(path), "%.*s/pg/data/PG_VERSION", PATH_BYTES, state);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fd_read_all(fd, 64, &text, &len, &ignored) < 0)
		return -1;
	return strtol(text, NULL, 10);
}

int options_find_postgres(const char *root, const char *state, char **ret_dir, struct err *e)
{
	auto_dir DIR *dir = opendir(root);
	auto_buf struct buf found = BUF_INIT(PATH_BYTES);
	const struct dirent *entry;
	long wanted = made_by(state), newest = 0;

	while (dir && (entry = readdir(dir))) {
		char path[512];
		char *end;
		long version = strtol(entry->d_name, &end, 10);

		(void)snprintf(path, sizeof(path), "%.200s/%.200s/bin/postgres", root,
		               entry->d_name);
		if (*end || access(path, X_OK) < 0)
			continue;
		if (version == wanted || (newest != wanted && version > newest))
			newest = version;
	}
	if (!newest)
		return err_set(
			e, ENOENT,
			"no PostgreSQL in %.200s; install the package postgresql or name the "
			"directory of its programs",
			root);
	buf_addf(&found, "%s/%ld/bin", root, newest);
	*ret_dir = buf_take(&found);
	return *ret_dir ? 0 : err_set(e, ENOMEM, "no memory for the options");
}

static int find_defaults(struct options *o, struct err *e)
{
	if (!o->runner &&
	    beside_program(o, offsetof(struct options, runner), "cloister-runner", e) < 0)
		return err_wrap(e, "--runner");
	if (!o->guest &&
	    beside_program(o, offsetof(struct options, guest), "cloister-guest", e) < 0)
		return err_wrap(e, "--guest");
	/* That there is none is for the doctor to say, among all else. */
	if (!o->database_url_file && !o->postgres_bin &&
	    options_find_postgres(POSTGRES_ROOT, o->state, &o->postgres_bin, e) < 0 &&
	    o->command != COMMAND_DOCTOR)
		return err_wrap(e, "--postgres-bin");
	return 0;
}

/* -- the whole ------------------------------------------------------------------------- */

static bool is_loopback(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/* Who is not listed in a registry is whoever reaches the port, so few may. */
static int check_mode(const struct options *o, struct err *e)
{
	bool local = o->workspace_roots.n > 0;

	if (local && o->tenants)
		return err_set(e, EINVAL, "--tenants and --workspace-root exclude one another");
	if (!local && (o->token_file || o->allow_remote))
		return err_set(e, EINVAL, "--%s: only in local mode, with --workspace-root",
		               o->token_file ? "token-file" : "allow-remote");
	if (local && !o->allow_remote && !options_host_is_local(o))
		return err_set(e, EINVAL,
		               "--host: %.64s is neither 127.0.0.1 nor ::1; local mode listens "
		               "there only with --allow-remote and a token",
		               o->host);
	return 0;
}

bool options_host_is_local(const struct options *o)
{
	return strcmp(o->host, "127.0.0.1") == 0 || strcmp(o->host, "::1") == 0;
}

static int check_database(const struct options *o, struct err *e)
{
	if (o->database_url_file && o->postgres_bin)
		return err_set(e, EINVAL,
		               "--database-url-file and --postgres-bin exclude one another: an "
		               "external database is run by somebody else");
	return 0;
}

static int check_boundary(const struct options *o, struct err *e)
{
	if (strcmp(o->boundary, "development") == 0 && !is_loopback(o->host))
		return err_set(e, EINVAL,
		               "--host: %.64s is not a loopback address (127.0.0.0/8 or ::1), and "
		               "--boundary development allows no other",
		               o->host);
	return 0;
}

/* A tenant's share defaults to the whole where the whole is smaller than the default share. */
static int check_share(struct options *o, const struct option_row *row, bool given, struct err *e)
{
	unsigned int *share = number_at(o, row->at), whole = *number_at(o, row->no_more_than);
	const char *of = "";

	if (*share <= whole)
		return 0;
	if (!given) {
		*share = whole;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].at == row->no_more_than)
			of = rows[i].name;
	return err_set(e, EINVAL, "--%s: %u is more than --%s, %u", row->name, *share, of, whole);
}

/* The doctor takes what serve takes, so that it examines what would be served. */
static bool like_serve(enum command command)
{
	return command == COMMAND_SERVE || command == COMMAND_DOCTOR;
}

static bool applies(const struct option_row *row, enum command command)
{
	unsigned int also = row->only ? row->only : row->also;

	return (!row->only && like_serve(command)) || (also & (1U << command));
}

/* Fill in what was not given, then compare the values with one another. */
static int complete(struct options *o, const bool *given, struct err *e)
{
	if (!o->tenants && !o->workspace_roots.n)
		return err_set(e, EINVAL,
		               "--tenants FILE: required, or --workspace-root DIR for one person");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct option_row *row = &rows[i];

		if (given[i])
			continue;
		if (row->required)
			return err_set(e, EINVAL, "--%s %s: required", row->name, row->value);
		if (row->standard && set_value(o, row, row->standard, e) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].no_more_than && check_share(o, &rows[i], given[i], e) < 0)
			return -1;
	if (check_mode(o, e) < 0 || check_boundary(o, e) < 0 || check_database(o, e) < 0)
		return -1;
	return find_defaults(o, e);
}

static const struct option_row *find_row(const char *name, size_t len, enum command command)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (strlen(rows[i].name) == len && strncmp(rows[i].name, name, len) == 0 &&
		    applies(&rows[i], command))
			return &rows[i];
	return NULL;
}

static const char *command_name(enum command command)
{
	static const char *const names[] = { "",       "serve",           "check",  "doctor",
		                             "reload", "tenant",          "status", "drain",
		                             "token",  "database-script", "version" };

	return names[command];
}

/* One option at argv[*at], with its value there or in the next argument. */
static int parse_option(struct options *o, char *const argv[], int *at, bool *given, struct err *e)
{
	const char *name = argv[*at] + 2;
	size_t len = strcspn(name, "=");
	const struct option_row *row = find_row(name, len, o->command);
	const char *value = name[len] ? name + len + 1 : argv[*at + 1];
	bool flag = row && row->kind == KIND_FLAG;

	if (!row)
		return err_set(e, EINVAL, "--%.*s: no such option; see cloisterd %s --help",
		               len > 64 ? 64 : (int)len, name, command_name(o->command));
	if (flag && name[len])
		return err_set(e, EINVAL, "--%s: takes no value", row->name);
	if (!value && !flag)
		return err_set(e, EINVAL, "--%s: needs a value", row->name);
	if (given[row - rows] && !repeats(row->kind))
		return err_set(e, EINVAL, "--%s: given twice", row->name);
	given[row - rows] = true;
	*at += name[len] || flag ? 0 : 1;
	return set_value(o, row, value, e);
}

/* "purge ID" */
static int parse_tenant_operand(struct options *o, const char *value, struct err *e)
{
	if (!o->purge && strcmp(value, "purge") != 0)
		return err_set(e, EINVAL, "%.64s: not purge; see cloisterd tenant --help", value);
	if (o->purge && o->tenant.text[0])
		return err_set(e, EINVAL, "%.64s: unexpected; see cloisterd tenant --help", value);
	if (o->purge && !uuid_parse(value, &o->tenant))
		return err_set(e, EINVAL, "%.64s is not a UUID in canonical form, lower case",
		               value);
	o->purge = true;
	return 0;
}

static int parse_token_operand(struct options *o, const char *value, struct err *e)
{
	if (o->new_token || strcmp(value, "new") != 0)
		return err_set(e, EINVAL, "%.64s: %s; see cloisterd token --help", value,
		               o->new_token ? "unexpected" : "not new");
	o->new_token = true;
	return 0;
}

static int parse_operand(struct options *o, const char *value, struct err *e)
{
	if (o->command == COMMAND_TENANT)
		return parse_tenant_operand(o, value, e);
	if (o->command == COMMAND_TOKEN)
		return parse_token_operand(o, value, e);
	if (o->command != COMMAND_CHECK || o->tenants)
		return err_set(e, EINVAL, "%.64s: unexpected; see cloisterd %s --help", value,
		               command_name(o->command));
	if (set_path(o, offsetof(struct options, tenants), value, e) < 0)
		return err_wrap(e, "FILE");
	return 0;
}

/* A word to the service that runs on --state. */
static bool asks_running(enum command command)
{
	return command == COMMAND_RELOAD || command == COMMAND_TENANT ||
	       command == COMMAND_STATUS || command == COMMAND_DRAIN;
}

static int parse_arguments(struct options *o, char *const argv[], struct err *e)
{
	bool given[ARRAY_LEN(rows)] = { false };

	for (int i = 2; argv[i]; i++) {
		int r;

		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			o->help = true;
			return 0;
		}
		r = strncmp(argv[i], "--", 2) == 0 ? parse_option(o, argv, &i, given, e)
		                                   : parse_operand(o, argv[i], e);
		if (r < 0)
			return -1;
	}
	if (o->command == COMMAND_CHECK && !o->tenants)
		return err_set(e, EINVAL, "which FILE?  See cloisterd check --help");
	if (o->command == COMMAND_TENANT && !o->tenant.text[0])
		return err_set(e, EINVAL, "purge whom?  See cloisterd tenant --help");
	if (o->command == COMMAND_TOKEN && !o->new_token)
		return err_set(e, EINVAL, "token: 'cloisterd token new [--tenant NAME]' draws one");
	if (asks_running(o->command) && !o->state)
		return err_set(e, EINVAL, "--state DIR: required");
	return like_serve(o->command) ? complete(o, given, e) : 0;
}

int options_parse(int argc, char *const argv[], struct options *ret, struct err *e)
{
	const char *word = argc > 1 ? argv[1] : NULL;

	if (!word)
		return err_set(e, EINVAL,
		               "no command; serve runs the service, cloisterd --help lists all");
	if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
		ret->help = true;
		return 0;
	}
	for (enum command c = COMMAND_SERVE; c <= COMMAND_VERSION; c++)
		if (strcmp(word, command_name(c)) == 0)
			ret->command = c;
	if (ret->command == COMMAND_NONE)
		return err_set(e, EINVAL, "%.64s: no such command; see cloisterd --help", word);
	if (parse_arguments(ret, argv, e) < 0) {
		options_release(ret);
		return -1;
	}
	if (ret->help) {
		enum command topic = ret->command;

		options_release(ret);
		ret->command = topic;
		ret->help = true;
	}
	return 0;
}

void options_release(struct options *o)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct option_list *list = list_at(o, rows[i].at);

		if (rows[i].kind == KIND_PATH || rows[i].kind == KIND_ADDRESS ||
		    rows[i].kind == KIND_NAME)
			free(*text_at(o, rows[i].at));
		if (!repeats(rows[i].kind))
			continue;
		while (list->n)
			free(list->v[--list->n]);
	}
	*o = (struct options){ .command = COMMAND_NONE };
}

/* -- help ------------------------------------------------------------------------------ */

static void help_row(const struct option_row *row, bool required, FILE *out)
{
	char words[64];

	(void)fprintf(out, "\n  --%s%s%s\n      %s", row->name, row->value ? " " : "",
	              row->value ? row->value : "", row->help);
	if (row->words[0]) {
		list_words(row, words, sizeof(words));
		(void)fprintf(out, "\n      (%s; default %s)", words, row->standard);
	} else if (row->kind == KIND_NUMBER) {
		(void)fprintf(out, " (%u to %u; default %s)", row->min, row->max, row->standard);
	} else if (required) {
		(void)fputs(" (required)", out);
	} else if (row->standard) {
		(void)fprintf(out, " (default %s)", row->standard);
	}
}

static const char *const usage[] = {
	[COMMAND_NONE] = "usage: cloisterd COMMAND [OPTION...]\n\n"
			 "  serve     run the service\n"
			 "  check     validate a registry of tenants\n"
			 "  doctor    examine this machine, with a sandbox of its own\n"
			 "  reload    have a running service read its registry again\n"
			 "  tenant    drop what is kept of a tenant\n"
			 "  status    how a running service stands\n"
			 "  drain     have a running service take no more work, and wait\n"
			 "  token     draw a token, and its hash\n"
			 "  database-script\n"
			 "            print what prepares an external database\n"
			 "  version   print the version\n\n"
			 "cloisterd COMMAND --help lists the options of a command.\n",
	[COMMAND_SERVE] = "usage: cloisterd serve --tenants FILE --state DIR --rootfs DIR "
			  "[OPTION...]\n"
			  "       cloisterd serve --workspace-root DIR --state DIR --rootfs DIR "
			  "[OPTION...]\n\n"
			  "Runs the service in the foreground until TERM or INT.\n",
	[COMMAND_CHECK] =
		"usage: cloisterd check FILE [--state DIR] [--models FILE] [--mcp FILE]\n\n"
		"Validates a registry of tenants, models and MCP servers, as serve does, and "
		"prints every fault.\nExit status: 0 without a fault, 1 with any.\n",
	[COMMAND_DOCTOR] = "usage: cloisterd doctor --tenants FILE --state DIR --rootfs DIR "
			   "[OPTION...]\n\n"
			   "Examines whether serve would work here with the same options, and "
			   "boots a sandbox\nof its own for it.  A running service is not "
			   "disturbed.  One line a check: ok,\nfailed or n/a.  Exit status: 0 "
			   "when nothing failed, 1 otherwise.\n",
	[COMMAND_RELOAD] =
		"usage: cloisterd reload --state DIR\n\n"
		"Has the service that runs on DIR read its registry again, as HUP does, and "
		"waits.\nPrints every fault; with any, the registry in force stays.  Exit "
		"status: 0 when the\nnew one is in force, 1 otherwise.\n",
	[COMMAND_TENANT] =
		"usage: cloisterd tenant purge ID --state DIR\n\n"
		"Has the service that runs on DIR drop the database and the guest state of a "
		"tenant\nthat the registry in force does not declare.  Its workspace is not "
		"touched.\nExit status: 0 when nothing is left, 1 otherwise.\n",
	[COMMAND_STATUS] =
		"usage: cloisterd status --state DIR [--json]\n\n"
		"Says how the service that runs on DIR stands: tenants, sandboxes, turns, "
		"streams,\nconnections to the database, and the last errors of its log.\n",
	[COMMAND_DRAIN] =
		"usage: cloisterd drain --state DIR\n\n"
		"Has the service that runs on DIR take no more work (503 server_stopping, also "
		"from\n/readyz), and waits until no turn runs.  What is queued goes on after "
		"the next start,\nwhich alone ends the drain.  Exit status: 0 when nothing "
		"runs.  An end of this\ncommand takes nothing back.\n",
	[COMMAND_TOKEN] =
		"usage: cloisterd token new [--tenant NAME]\n\n"
		"Draws a token of 256 random bits and prints it, once, with the hash that is "
		"declared\nin its place.  Nothing is stored.\n",
	[COMMAND_DATABASE_SCRIPT] =
		"usage: cloisterd database-script\n\n"
		"Prints the SQL that prepares a PostgreSQL server for --database-url-file.  A "
		"superuser\nof that server has psql run it, once and again after each release "
		"that asks for it:\n\n"
		"    cloisterd database-script | psql -X -d postgres\n\n"
		"It makes two roles and two databases, and changes nothing of another one.\n",
	[COMMAND_VERSION] = "usage: cloisterd version\n",
};

void options_help(enum command topic, FILE *out)
{
	bool any = false;

	(void)fputs(usage[topic], out);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (!applies(&rows[i], topic))
			continue;
		help_row(&rows[i], rows[i].required && (like_serve(topic) || asks_running(topic)),
		         out);
		any = true;
	}
	if (any)
		(void)fputc('\n', out);
}
