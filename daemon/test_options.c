#include "common/test.h"

#include "common/fd.h"
#include "common/log.h"
#include "daemon/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What every call of serve needs. */
#define NEEDED           "--tenants", "/t.json", "--state", "/s", "--rootfs", "/r", "--postgres-bin", "/p"
#define SERVE            "serve", NEEDED, "--boundary", "development"
#define parse(o, e, ...) parse_list(o, e, (const char *const[]){ "cloisterd", __VA_ARGS__, NULL })

static int parse_list(struct options *o, struct err *e, const char *const *list)
{
	char *argv[2 * OPTION_LIST_MAX + 40];
	int argc = 0, r;

	while (list[argc]) {
		argv[argc] = strdup(list[argc]);
		assert_non_null(argv[argc]);
		argc++;
	}
	argv[argc] = NULL;
	r = options_parse(argc, argv, o, e);
	while (argc-- > 0)
		free(argv[argc]);
	return r;
}

#define refuse(text, ...) refuse_list(text, (const char *const[]){ "cloisterd", __VA_ARGS__, NULL })

static void refuse_list(const char *text, const char *const *list)
{
	static const struct options zero;
	struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	assert_int_equal(parse_list(&o, &e, list), -1);
	assert_string_equal(e.text, text);
	assert_memory_equal(&o, &zero, sizeof(o));
}

static void test_defaults(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;
	char beside[4096];
	ssize_t n = readlink("/proc/self/exe", beside, sizeof(beside) - 1);

	(void)state;
	assert_int_equal(parse(&o, &e, SERVE), 0);
	assert_int_equal(o.command, COMMAND_SERVE);
	assert_false(o.help);
	assert_string_equal(o.tenants, "/t.json");
	assert_string_equal(o.state, "/s");
	assert_string_equal(o.rootfs, "/r");
	assert_string_equal(o.postgres_bin, "/p");
	assert_string_equal(o.host, "127.0.0.1");
	assert_string_equal(o.runsc, "/usr/bin/runsc");
	assert_string_equal(o.slirp4netns, "/usr/bin/slirp4netns");
	assert_int_equal(o.port, 4096);
	assert_string_equal(o.boundary, "development");
	assert_int_equal(o.log_level, LOG_INFO);
	assert_int_equal(o.drain_seconds, 25);
	assert_int_equal(o.sandbox_idle_seconds, 900);
	assert_int_equal(o.max_active_sandboxes, 64);
	assert_int_equal(o.disk_start_mb, 512);
	assert_int_equal(o.disk_end_mb, 256);
	assert_int_equal(o.disk_reserve_mb, 64);
	assert_int_equal(o.host_addresses.n, 0);
	assert_int_equal(o.max_running_turns, 16);
	assert_int_equal(o.max_running_turns_per_tenant, 4);
	assert_int_equal(o.max_queued_turns, 256);
	assert_int_equal(o.max_queued_turns_per_tenant, 64);
	assert_int_equal(o.max_event_streams, 1024);
	assert_int_equal(o.max_event_streams_per_tenant, 256);
	assert_int_equal(o.event_replay_limit, 1000);
	assert_int_equal(o.max_request_bytes, 33554432);
	assert_int_equal(o.request_seconds, 30);
	assert_int_equal(o.max_db_connections, 16);
	assert_true(n > 0);
	beside[n] = '\0';
	*strrchr(beside, '/') = '\0';
	assert_memory_equal(o.runner, beside, strlen(beside));
	assert_string_equal(o.runner + strlen(beside), "/cloister-runner");
	assert_string_equal(o.guest + strlen(beside), "/cloister-guest");
}

static void test_both_spellings(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(&o, &e, SERVE, "--port=0", "--log-level", "debug", "--runner=/a=b",
	                       "--guest", "--port"),
	                 0);
	assert_int_equal(o.port, 0);
	assert_int_equal(o.log_level, LOG_DEBUG);
	assert_string_equal(o.runner, "/a=b");
	/* A value is a value, whatever it looks like. */
	assert_string_equal(strrchr(o.guest, '/'), "/--port");
}

static const struct {
	const char *name;
	unsigned int min, max;
	size_t at;
} numbers[] = {
	{ "port", 0, 65535, offsetof(struct options, port) },
	{ "drain-seconds", 0, 3600, offsetof(struct options, drain_seconds) },
	{ "sandbox-idle-seconds", 1, 86400, offsetof(struct options, sandbox_idle_seconds) },
	{ "max-active-sandboxes", 1, 4096, offsetof(struct options, max_active_sandboxes) },
	{ "disk-start-mb", 0, 1048576, offsetof(struct options, disk_start_mb) },
	{ "disk-reserve-mb", 0, 65536, offsetof(struct options, disk_reserve_mb) },
	{ "max-running-turns", 1, 1024, offsetof(struct options, max_running_turns) },
	{ "max-queued-turns", 1, 65536, offsetof(struct options, max_queued_turns) },
	{ "max-event-streams", 1, 65536, offsetof(struct options, max_event_streams) },
	{ "event-replay-limit", 1, 100000, offsetof(struct options, event_replay_limit) },
	{ "max-request-bytes", 1024, 33554432, offsetof(struct options, max_request_bytes) },
	{ "max-turn-bytes", 65536, 1073741824, offsetof(struct options, max_turn_bytes) },
	{ "max-turn-steps", 1, 10000, offsetof(struct options, max_turn_steps) },
	{ "harness-silence-seconds", 1, 86400, offsetof(struct options, harness_silence_seconds) },
	{ "request-seconds", 1, 3600, offsetof(struct options, request_seconds) },
	{ "max-queued-bytes", 16777216, 1073741824, offsetof(struct options, max_queued_bytes) },
	{ "max-waiting-turns-per-tenant", 1, 4096,
	  offsetof(struct options, max_waiting_turns_per_tenant) },
	{ "max-db-connections", 4, 1000, offsetof(struct options, max_db_connections) },
	{ "max-tenant-database-mb", 16, 1048576, offsetof(struct options, max_tenant_database_mb) },
};

static void try_number(const char *name, long value, unsigned int min, unsigned int max, size_t at)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;
	char option[64], want[128];
	int r;

	(void)snprintf(option, sizeof(option), "--%s=%ld", name, value);
	r = parse(&o, &e, SERVE, option);
	if (value >= (long)min && value <= (long)max) {
		assert_int_equal(r, 0);
		assert_int_equal(*(unsigned int *)(void *)((char *)&o + at), value);
		return;
	}
	(void)snprintf(want, sizeof(want), "--%s: %ld is not a number from %u to %u", name, value,
	               min, max);
	assert_int_equal(r, -1);
	assert_string_equal(e.text, want);
}

static void test_bounds(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		long min = numbers[i].min, max = numbers[i].max;
		const long values[] = { min - 1, min, max, max + 1 };

		for (size_t k = 0; k < ARRAY_LEN(values); k++)
			try_number(numbers[i].name, values[k], numbers[i].min, numbers[i].max,
			           numbers[i].at);
	}
}

static void test_what_is_no_number(void **state)
{
	static const char *const bad[] = { "",
		                           " 1",
		                           "1 ",
		                           "+1",
		                           "-1",
		                           "0x10",
		                           "1e3",
		                           "1.0",
		                           "four",
		                           "\xd9\xa1",
		                           "70000",
		                           "4294967297",
		                           "18446744073709551617",
		                           "99999999999999999999999" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char want[128];

		(void)snprintf(want, sizeof(want), "--port: %s is not a number from 0 to 65535",
		               bad[i]);
		refuse(want, SERVE, "--port", bad[i]);
	}
}

static void test_refusals(void **state)
{
	(void)state;
	refuse("serv: no such command; see cloisterd --help", "serv");
	refuse("--port: no such command; see cloisterd --help", "--port", "1");
	refuse("--tenants FILE: required, or --workspace-root DIR for one person", "serve");
	refuse("--state DIR: required", "serve", "--tenants", "/t", "--rootfs", "/r");
	refuse("--rootfs DIR: required", "serve", "--tenants", "/t", "--state", "/s");
	refuse("--por: no such option; see cloisterd serve --help", SERVE, "--por", "1");
	refuse("--port-: no such option; see cloisterd serve --help", SERVE, "--port-=1");
	refuse("--: no such option; see cloisterd serve --help", SERVE, "--");
	refuse("-p: unexpected; see cloisterd serve --help", SERVE, "-p");
	refuse("extra: unexpected; see cloisterd serve --help", SERVE, "extra");
	refuse("--port: needs a value", SERVE, "--port");
	refuse("--port: given twice", SERVE, "--port", "1", "--port=1");
	refuse("--runsc: must not be empty", SERVE, "--runsc", "");
	refuse("--log-level: all is not one of error, warn, info or debug", SERVE, "--log-level",
	       "all");
	refuse("--boundary: none is not one of service or development", "serve", NEEDED,
	       "--boundary", "none");
	refuse("--host: localhost is not an IPv4 or IPv6 address", SERVE, "--host", "localhost");
	refuse("--host: 127.1 is not an IPv4 or IPv6 address", SERVE, "--host", "127.1");
	refuse("--host: [::1] is not an IPv4 or IPv6 address", SERVE, "--host=[::1]");
}

static void test_no_arguments(void **state)
{
	struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;
	char name[] = "cloisterd";
	char *argv[] = { name, NULL }, *nothing[] = { NULL };

	(void)state;
	assert_int_equal(options_parse(1, argv, &o, &e), -1);
	assert_string_equal(e.text,
	                    "no command; serve runs the service, cloisterd --help lists all");
	assert_int_equal(options_parse(0, nothing, &o, &e), -1);
}

/* Service is the default, with which any address may be listened on. */
static void test_service_boundary(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(&o, &e, "serve", NEEDED, "--host", "0.0.0.0"), 0);
	assert_string_equal(o.boundary, "service");
}

static void test_host_addresses(void **state)
{
	const char *argv[2 * OPTION_LIST_MAX + 32] = { "cloisterd", SERVE };
	auto_options struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;
	int argc = 0;

	(void)state;
	refuse("--host-address: 192.0.2.1: must be an IPv4 network such as 198.51.100.0/24", SERVE,
	       "--host-address", "10.0.0.0/8", "--host-address", "192.0.2.1");
	refuse("--host-address: needs a value", SERVE, "--host-address");
	while (argv[argc])
		argc++;
	for (int i = 0; i < OPTION_LIST_MAX; i++) {
		argv[argc++] = "--host-address";
		argv[argc++] = i ? "10.0.0.0/8" : "0.0.0.0/0";
	}
	assert_int_equal(parse_list(&o, &e, argv), 0);
	assert_int_equal(o.host_addresses.n, OPTION_LIST_MAX);
	assert_string_equal(o.host_addresses.v[0], "0.0.0.0/0");
	assert_string_equal(o.host_addresses.v[OPTION_LIST_MAX - 1], "10.0.0.0/8");
	argv[argc++] = "--host-address=10.0.0.0/8";
	refuse_list("--host-address: more than 256 of them", argv);
}

static void test_doctor(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(&o, &e, "doctor", NEEDED, "--boundary", "development", "--port=1"),
	                 0);
	assert_int_equal(o.command, COMMAND_DOCTOR);
	assert_int_equal(o.port, 1);
	assert_string_equal(o.runsc, "/usr/bin/runsc");
	refuse("--tenants FILE: required, or --workspace-root DIR for one person", "doctor");
	refuse("--prot: no such option; see cloisterd doctor --help", "doctor", NEEDED, "--prot=1");
	refuse("extra: unexpected; see cloisterd doctor --help", "doctor", NEEDED, "extra");
}

/* Who runs the database is one of two. */
static void test_external_database(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(&o, &e, "serve", "--tenants=/t.json", "--state=/s", "--rootfs=/r",
	                       "--database-url-file", "/u"),
	                 0);
	assert_string_equal(o.database_url_file, "/u");
	assert_null(o.postgres_bin);
	options_release(&o);
	assert_int_equal(parse(&o, &e, SERVE), 0);
	assert_null(o.database_url_file);
	options_release(&o);
	assert_int_equal(parse(&o, &e, "database-script"), 0);
	assert_int_equal(o.command, COMMAND_DATABASE_SCRIPT);
	refuse("--database-url-file and --postgres-bin exclude one another: an external database "
	       "is run by somebody else",
	       SERVE, "--database-url-file=/u");
	refuse("--database-url-file: no such option; see cloisterd check --help", "check",
	       "/t.json", "--database-url-file=/u");
	refuse("extra: unexpected; see cloisterd database-script --help", "database-script",
	       "extra");
}

#define LOCAL \
	"serve", "--workspace-root", "/w", "--state", "/s", "--rootfs", "/r", "--postgres-bin=/p"

static void test_local_mode(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(&o, &e, LOCAL, "--boundary=development", "--workspace-root=/x",
	                       "--token-file", "/t", "--cors-origin", "https://a.example",
	                       "--cors-origin=http://[::1]:3000"),
	                 0);
	assert_null(o.tenants);
	assert_int_equal(o.workspace_roots.n, 2);
	assert_string_equal(o.workspace_roots.v[0], "/w");
	assert_string_equal(o.workspace_roots.v[1], "/x");
	assert_string_equal(o.token_file, "/t");
	assert_int_equal(o.allow_remote, 0);
	assert_int_equal(o.cors_origins.n, 2);
	assert_string_equal(o.cors_origins.v[1], "http://[::1]:3000");
	assert_true(options_host_is_local(&o));
	refuse("--tenants and --workspace-root exclude one another", LOCAL, "--tenants", "/t");
	refuse("--token-file: only in local mode, with --workspace-root", SERVE, "--token-file=/t");
	refuse("--allow-remote: only in local mode, with --workspace-root", SERVE,
	       "--allow-remote");
	refuse("--allow-remote: takes no value", LOCAL, "--allow-remote=");
	refuse("--token-file: given twice", LOCAL, "--token-file=/t", "--token-file=/t");
}

static void test_local_mode_stays_here(void **state)
{
	static const struct {
		const char *host;
		bool local;
	} hosts[] = {
		{ "127.0.0.1", true }, { "::1", true },       { "127.0.0.2", false },
		{ "0.0.0.0", false },  { "10.0.0.1", false }, { "0:0:0:0:0:0:0:1", false },
		{ "::", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
		for (int remote = 0; remote < 2; remote++) {
			auto_options struct options o = { .command = COMMAND_NONE };
			struct err e = ERR_INIT;
			bool good = remote || hosts[i].local;
			int r = remote ? parse(&o, &e, LOCAL, "--host", hosts[i].host,
			                       "--allow-remote")
			               : parse(&o, &e, LOCAL, "--host", hosts[i].host);

			assert_int_equal(r, good ? 0 : -1);
			if (good)
				assert_int_equal(options_host_is_local(&o), hosts[i].local);
			else
				assert_non_null(strstr(e.text, "only with --allow-remote"));
		}
	}
}

static void test_origins(void **state)
{
	static const char *const bad[] = {
		"",
		"*",
		"null",
		"a.example",
		"https://",
		"https:/a",
		"HTTPS://a",
		"https://A.example",
		"https://a/",
		"https://a?b",
		"https://a b",
		"ftp://a",
		"https://u@a",
		"https://a#b",
		"https://a\r\nX: y",
	};
	char longest[300] = "https://";

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		auto_options struct options o = { .command = COMMAND_NONE };
		struct err e = ERR_INIT;

		assert_int_equal(parse(&o, &e, SERVE, "--cors-origin", bad[i]), -1);
		assert_memory_equal(e.text, "--cors-origin: ", 15);
	}
	for (int over = 0; over < 2; over++) {
		auto_options struct options o = { .command = COMMAND_NONE };
		struct err e = ERR_INIT;

		memset(longest + 8, 'a', sizeof(longest) - 8);
		longest[240 + over] = '\0';
		assert_int_equal(parse(&o, &e, SERVE, "--cors-origin", longest), -over);
	}
}

static void test_orders(void **state)
{
	static const char id[] = "01980000-0000-7000-8000-00000000ac3e";
	auto_options struct options reload = { .command = COMMAND_NONE };
	auto_options struct options purge = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(&reload, &e, "reload", "--state", "/s"), 0);
	assert_int_equal(reload.command, COMMAND_RELOAD);
	assert_false(reload.purge);
	assert_int_equal(parse(&purge, &e, "tenant", "purge", id, "--state=/s"), 0);
	assert_int_equal(purge.command, COMMAND_TENANT);
	assert_true(purge.purge);
	assert_string_equal(purge.tenant.text, id);
	refuse("--state DIR: required", "reload");
	refuse("--state DIR: required", "tenant", "purge", id);
	refuse("--tenants: no such option; see cloisterd reload --help", "reload", "--tenants=/t");
	refuse("now: unexpected; see cloisterd reload --help", "reload", "now", "--state=/s");
	refuse("purge whom?  See cloisterd tenant --help", "tenant", "--state=/s");
	refuse("purge whom?  See cloisterd tenant --help", "tenant", "purge", "--state=/s");
	refuse("drop: not purge; see cloisterd tenant --help", "tenant", "drop", id, "--state=/s");
	refuse("x is not a UUID in canonical form, lower case", "tenant", "purge", "x");
	refuse("purge: unexpected; see cloisterd tenant --help", "tenant", "purge", id, "purge");
}

static void test_tokens(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	auto_options struct options named = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(&o, &e, "token", "new"), 0);
	assert_int_equal(o.command, COMMAND_TOKEN);
	assert_null(o.tenant_name);
	assert_int_equal(parse(&named, &e, "token", "--tenant=acme", "new"), 0);
	assert_string_equal(named.tenant_name, "acme");
	refuse("token: 'cloisterd token new [--tenant NAME]' draws one", "token");
	refuse("token: 'cloisterd token new [--tenant NAME]' draws one", "token", "--tenant",
	       "acme");
	refuse("old: not new; see cloisterd token --help", "token", "old");
	refuse("new: unexpected; see cloisterd token --help", "token", "new", "new");
	refuse("--state: no such option; see cloisterd token --help", "token", "new", "--state=/s");
	refuse("--tenant: no such option; see cloisterd serve --help", SERVE, "--tenant", "acme");
	refuse("--tenant: Acme is not 1 to 64 of a-z, 0-9 and \"-\" with a letter in front",
	       "token", "new", "--tenant", "Acme");
}

static void test_status_and_drain(void **state)
{
	auto_options struct options status = { .command = COMMAND_NONE };
	auto_options struct options drain = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(&status, &e, "status", "--state=/s", "--json"), 0);
	assert_int_equal(status.command, COMMAND_STATUS);
	assert_int_equal(status.json, 1);
	assert_int_equal(parse(&drain, &e, "drain", "--state=/s"), 0);
	assert_int_equal(drain.command, COMMAND_DRAIN);
	refuse("--state DIR: required", "status");
	refuse("--state DIR: required", "drain");
	refuse("--json: takes no value", "status", "--state=/s", "--json=1");
	refuse("--json: no such option; see cloisterd drain --help", "drain", "--json");
	refuse("--json: no such option; see cloisterd serve --help", SERVE, "--json");
	refuse("x: unexpected; see cloisterd status --help", "status", "x");
}

static void test_log_formats(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	auto_options struct options json = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(&o, &e, SERVE), 0);
	assert_int_equal(o.log_format, LOG_TEXT);
	assert_int_equal(parse(&json, &e, SERVE, "--log=json"), 0);
	assert_int_equal(json.log_format, LOG_JSON);
	refuse("--log: xml is not one of text, json or journal", SERVE, "--log=xml");
}

static void test_proxies(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(&o, &e, SERVE, "--trusted-proxy=127.0.0.1", "--trusted-proxy=::1",
	                       "--max-failed-attempts=1"),
	                 0);
	assert_int_equal(o.trusted_proxies.n, 2);
	assert_string_equal(o.trusted_proxies.v[1], "::1");
	assert_int_equal(o.max_failed_attempts, 1);
	refuse("--trusted-proxy: 10.0.0.0/8 is not an IPv4 or IPv6 address", SERVE,
	       "--trusted-proxy=10.0.0.0/8");
}

static void test_loopback_only(void **state)
{
	static const struct {
		const char *host;
		bool good;
	} hosts[] = {
		{ "127.0.0.1", true },
		{ "127.255.255.254", true },
		{ "::1", true },
		{ "0:0:0:0:0:0:0:1", true },
		{ "0.0.0.0", false },
		{ "126.255.255.255", false },
		{ "128.0.0.1", false },
		{ "10.0.0.1", false },
		{ "::", false },
		{ "::2", false },
		{ "::ffff:127.0.0.1", false },
		{ "1::1", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
		auto_options struct options o = { .command = COMMAND_NONE };
		struct err e = ERR_INIT;
		int r = parse(&o, &e, SERVE, "--host", hosts[i].host);

		assert_int_equal(r, hosts[i].good ? 0 : -1);
		if (!hosts[i].good)
			assert_non_null(strstr(e.text, "is not a loopback address"));
	}
}

static void test_shares(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	(void)state;
	refuse("--max-running-turns-per-tenant: 17 is more than --max-running-turns, 16", SERVE,
	       "--max-running-turns-per-tenant", "17");
	refuse("--max-queued-turns-per-tenant: 3 is more than --max-queued-turns, 2", SERVE,
	       "--max-queued-turns-per-tenant", "3", "--max-queued-turns", "2");
	refuse("--max-event-streams-per-tenant: 1025 is more than --max-event-streams, 1024", SERVE,
	       "--max-event-streams-per-tenant", "1025");
	assert_int_equal(parse(&o, &e, SERVE, "--max-running-turns", "2",
	                       "--max-queued-turns-per-tenant=256"),
	                 0);
	assert_int_equal(o.max_running_turns_per_tenant, 2);
	assert_int_equal(o.max_queued_turns_per_tenant, 256);
	assert_int_equal(o.max_event_streams_per_tenant, 256);
}

static void test_paths_become_absolute(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	auto_free char *cwd = getcwd(NULL, 0);
	struct err e = ERR_INIT;

	(void)state;
	assert_non_null(cwd);
	assert_int_equal(parse(&o, &e, "check", "sub/t.json", "--state", "s"), 0);
	assert_int_equal(o.command, COMMAND_CHECK);
	assert_memory_equal(o.tenants, cwd, strlen(cwd));
	assert_string_equal(o.tenants + strlen(cwd), "/sub/t.json");
	assert_string_equal(o.state + strlen(cwd), "/s");
}

static void test_path_length(void **state)
{
	char path[4098];

	(void)state;
	memset(path, 'a', sizeof(path));
	path[0] = '/';
	path[4097] = '\0';
	refuse("--runsc: longer than 4096 bytes", SERVE, "--runsc", path);
	path[4096] = '\0';
	{
		auto_options struct options o = { .command = COMMAND_NONE };
		struct err e = ERR_INIT;

		assert_int_equal(parse(&o, &e, SERVE, "--runsc", path), 0);
		assert_string_equal(o.runsc, path);
	}
	refuse("--runsc: longer than 4096 bytes", SERVE, "--runsc", path + 1); /* relative */
}

static void test_check(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(&o, &e, "check", "/t.json"), 0);
	assert_string_equal(o.tenants, "/t.json");
	assert_null(o.state);
	refuse("which FILE?  See cloisterd check --help", "check");
	refuse("/b: unexpected; see cloisterd check --help", "check", "/a", "/b");
	refuse("--port: no such option; see cloisterd check --help", "check", "/a", "--port", "1");
	refuse("FILE: must not be empty", "check", "");
	refuse("x: unexpected; see cloisterd version --help", "version", "x");
}

static void test_version_needs_nothing(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(&o, &e, "version"), 0);
	assert_int_equal(o.command, COMMAND_VERSION);
}

static void help_of(enum command topic, char **ret)
{
	size_t len;
	FILE *out = open_memstream(ret, &len);

	assert_non_null(out);
	options_help(topic, out);
	assert_int_equal(fclose(out), 0);
}

static void test_help(void **state)
{
	auto_options struct options o = { .command = COMMAND_NONE };
	auto_free char *all = NULL, *serve = NULL, *check = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(&o, &e, "--help"), 0);
	assert_true(o.help && o.command == COMMAND_NONE);
	/* It is answered before anything that is missing or wrong behind it. */
	assert_int_equal(parse(&o, &e, "serve", "--port", "1", "--help", "--nonsense"), 0);
	assert_true(o.help && o.command == COMMAND_SERVE);
	help_of(COMMAND_NONE, &all);
	help_of(COMMAND_SERVE, &serve);
	help_of(COMMAND_CHECK, &check);
	assert_non_null(strstr(all, "check"));
	assert_null(strstr(all, "--port"));
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		char range[64], name[64];

		(void)snprintf(name, sizeof(name), "--%s ", numbers[i].name);
		(void)snprintf(range, sizeof(range), "(%u to %u; default ", numbers[i].min,
		               numbers[i].max);
		assert_non_null(strstr(serve, name));
		assert_non_null(strstr(serve, range));
	}
	assert_non_null(strstr(serve, "(service or development; default service)"));
	assert_non_null(strstr(check, "--state DIR"));
	assert_null(strstr(check, "--port"));
	assert_null(strstr(check, "(required)"));
}

static void make_program(const char *root, const char *name, mode_t mode)
{
	char path[256];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", root, name);
	assert_int_equal(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/%s/bin", root, name);
	assert_int_equal(mkdir(path, 0700), 0);
	if (!mode)
		return;
	(void)snprintf(path, sizeof(path), "%s/%s/bin/postgres", root, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
	assert_true(fd >= 0);
	fd_close(&fd);
}

static void remove_program(const char *root, const char *name)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s/bin/postgres", root, name);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/%s/bin", root, name);
	assert_int_equal(rmdir(path), 0);
	(void)snprintf(path, sizeof(path), "%s/%s", root, name);
	assert_int_equal(rmdir(path), 0);
}

/* What options_find_postgres() finds below root, as it is named there. */
static void expect_postgres(const char *root, const char *state, const char *version)
{
	auto_free char *dir = NULL;
	struct err e = ERR_INIT;
	char want[64];

	assert_int_equal(options_find_postgres(root, state, &dir, &e), 0);
	(void)snprintf(want, sizeof(want), "%s/%s/bin", root, version);
	assert_string_equal(dir, want);
}

/* A state directory with a database of that version. */
static void make_database(char *dir, const char *version)
{
	char path[64];
	FILE *file;

	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/pg", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/pg/data", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/pg/data/PG_VERSION", dir);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fprintf(file, "%s\n", version) > 0);
	assert_int_equal(fclose(file), 0);
}

static void remove_database(const char *dir)
{
	static const char *const names[] = { "/pg/data/PG_VERSION", "/pg/data", "/pg", "" };
	char path[64];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		(void)snprintf(path, sizeof(path), "%s%s", dir, names[i]);
		assert_int_equal(remove(path), 0);
	}
}

static void test_postgres_of_the_database(void **state)
{
	static const char *const there[] = { "13", "15", "17" };
	char root[] = "/tmp/options-XXXXXX", ours[] = "/tmp/options-XXXXXX";
	char lost[] = "/tmp/options-XXXXXX";

	(void)state;
	assert_non_null(mkdtemp(root));
	for (size_t i = 0; i < ARRAY_LEN(there); i++)
		make_program(root, there[i], 0700);
	make_database(ours, "15");
	make_database(lost, "14");
	expect_postgres(root, ours, "15");
	expect_postgres(root, lost, "17"); /* which refuses it by name */
	expect_postgres(root, "/nonexistent", "17");
	for (size_t i = 0; i < ARRAY_LEN(there); i++)
		remove_program(root, there[i]);
	assert_int_equal(rmdir(root), 0);
	remove_database(ours);
	remove_database(lost);
}

static void test_newest_postgres(void **state)
{
	static const struct {
		const char *name;
		mode_t mode;
	} found[] = { { "9.6", 0700 }, { "9", 0700 },   { "15", 0700 }, { "17", 0600 },
		      { "18", 0 },     { "x99", 0700 }, { "99x", 0700 } };
	char root[] = "/tmp/options-XXXXXX";
	auto_free char *dir = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_non_null(mkdtemp(root));
	assert_int_equal(options_find_postgres(root, root, &dir, &e), -1);
	assert_int_equal(e.code, ENOENT);
	assert_non_null(strstr(e.text, "install the package postgresql"));
	for (size_t i = 0; i < ARRAY_LEN(found); i++)
		make_program(root, found[i].name, found[i].mode);
	expect_postgres(root, root, "15");
	for (size_t i = 0; i < ARRAY_LEN(found); i++)
		remove_program(root, found[i].name);
	assert_int_equal(rmdir(root), 0);
	assert_int_equal(options_find_postgres(root, root, &dir, &e), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_both_spellings),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_what_is_no_number),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_no_arguments),
		cmocka_unit_test(test_service_boundary),
		cmocka_unit_test(test_host_addresses),
		cmocka_unit_test(test_doctor),
		cmocka_unit_test(test_external_database),
		cmocka_unit_test(test_local_mode),
		cmocka_unit_test(test_local_mode_stays_here),
		cmocka_unit_test(test_origins),
		cmocka_unit_test(test_orders),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_proxies),
		cmocka_unit_test(test_status_and_drain),
		cmocka_unit_test(test_log_formats),
		cmocka_unit_test(test_loopback_only),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_paths_become_absolute),
		cmocka_unit_test(test_path_length),
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_version_needs_nothing),
		cmocka_unit_test(test_help),
		cmocka_unit_test(test_newest_postgres),
		cmocka_unit_test(test_postgres_of_the_database),
	};

	return RUN_TESTS(tests);
}
