#include "runner/args.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_MIN (UINT64_C(256) << 20)
#define MEMORY_MAX (UINT64_C(1) << 40)

enum option_kind {
	OPTION_TENANT,
	OPTION_PATH,
	OPTION_PLACE_ID,
	OPTION_PART,
	OPTION_BOUNDARY,
	OPTION_CONFINE,
	OPTION_CPUS,
	OPTION_MEMORY,
	OPTION_PROCESSES,
	OPTION_EGRESS,
	OPTION_ALLOW,
	OPTION_DNS,
	OPTION_HOST,
};

enum option_count {
	ONCE,
	MAYBE,
	OFTEN,
};

struct option_row {
	const char *name;
	const char *value;
	const char *help;
	size_t offset;
	enum option_kind kind;
	enum option_count count;
};

#define AT(field) offsetof(struct runner_args, field)

static const struct option_row options[] = {
	{ "--tenant", "UUID", "whose sandbox this is", AT(tenant), OPTION_TENANT, ONCE },
	{ "--workspace", "PATH", "directory that the sandbox sees as /workspace", AT(workspace),
	  OPTION_PATH, MAYBE },
	{ "--workspace-id", "DEV:INO", "what it must be, as stat(2) numbers it", AT(workspace_id),
	  OPTION_PLACE_ID, MAYBE },
	{ "--workspace-part", "DEV:INO:PATH", "instead: seen below /workspace by its last name",
	  AT(parts), OPTION_PART, OFTEN },
	{ "--state", "PATH", "directory that the sandbox sees as /state", AT(state), OPTION_PATH,
	  ONCE },
	{ "--state-id", "DEV:INO", "what it must be", AT(state_id), OPTION_PLACE_ID, ONCE },
	{ "--rootfs", "DIR", "root filesystem, used read-only", AT(rootfs), OPTION_PATH, ONCE },
	{ "--guest", "FILE", "cloister-guest, the sandbox's first process", AT(guest), OPTION_PATH,
	  ONCE },
	{ "--runsc", "FILE", "gVisor", AT(runsc), OPTION_PATH, ONCE },
	{ "--slirp4netns", "FILE", "user-mode network", AT(slirp4netns), OPTION_PATH, ONCE },
	{ "--runtime-dir", "DIR", "private directory for locks", AT(runtime_dir), OPTION_PATH,
	  ONCE },
	{ "--boundary", "development|service", "what confines the sandbox", AT(boundary),
	  OPTION_BOUNDARY, ONCE },
	{ "--cgroup", "DIR", "service only: the unit's own cgroup", AT(cgroup), OPTION_PATH,
	  MAYBE },
	{ "--cpus", "N", "hundredths of a CPU (10 to 6400, default 200)", AT(limits.cpus),
	  OPTION_CPUS, MAYBE },
	{ "--memory", "BYTES", "256 MiB to 1 TiB (default 2 GiB)", AT(limits.memory), OPTION_MEMORY,
	  MAYBE },
	{ "--processes", "N", "16 to 32768 (default 512)", AT(limits.processes), OPTION_PROCESSES,
	  MAYBE },
	{ "--egress", "public|none|allow", "what it may reach (default public)", AT(egress),
	  OPTION_EGRESS, MAYBE },
	{ "--egress-allow", "NET[:PORTS]", "a network, and which ports of it", AT(egress),
	  OPTION_ALLOW, OFTEN },
	{ "--dns", "off|host|ADDR,...", "its resolvers (default off)", AT(egress), OPTION_DNS,
	  MAYBE },
	{ "--host-address", "NET", "a network that counts as the host's", AT(egress), OPTION_HOST,
	  OFTEN },
	{ "--debug-log", "FILE", "append gVisor's debug log to it", AT(debug_log), OPTION_PATH,
	  MAYBE },
	{ "--confine", "enforce|kill",
	  "calls that the runner does not need are refused, or kill it", AT(confine),
	  OPTION_CONFINE, MAYBE },
};

void args_help(void)
{
	static const char *const counts[] = {
		[ONCE] = "", [MAYBE] = " (optional)", [OFTEN] = " (any number)"
	};

	puts("usage: cloister-runner serve OPTION...\n"
	     "       cloister-runner probe --runsc FILE\n\n"
	     "serve runs one tenant's sandbox; standard input and output are the guest protocol.\n"
	     "probe says what the given gVisor is and can, as one line of JSON.\n");
	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		printf("  %-14s %-20s %s%s\n", options[i].name, options[i].value, options[i].help,
		       counts[options[i].count]);
	puts("\nexit status: 0 ended with its input, 2 refused or failed to start, 3 sandbox lost,\n"
	     "4 its limit of memory ended it, 5 the limit of processes around it ended it");
}

/* Digits without sign or leading zero, ended by the given character. */
static bool parse_number(const char *text, char end, uint64_t *ret, const char **ret_rest)
{
	uint64_t n = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
			return false;
	if (p == text || *p != end || (*text == '0' && p - text > 1))
		return false;
	*ret = n;
	*ret_rest = p + 1;
	return true;
}

bool args_place_id(const char *text, struct place_id *ret)
{
	struct place_id id;
	const char *rest;

	if (!parse_number(text, ':', &id.device, &rest) ||
	    !parse_number(rest, '\0', &id.inode, &rest))
		return false;
	*ret = id;
	return true;
}

static int parse_path(const char *name, const char *value, const char **ret, struct err *e)
{
	if (value[0] != '/' || strlen(value) >= 4096)
		return err_set(e, EINVAL, "%s: not an absolute path of less than 4096 bytes", name);
	for (const char *p = value; *p; p++)
		if ((unsigned char)*p < 0x20)
			return err_set(e, EINVAL, "%s: control character in the path", name);
	*ret = value;
	return 0;
}

static int parse_part(const char *name, const char *value, struct runner_args *a, struct err *e)
{
	struct part *part = &a->parts[a->n_parts];
	const char *rest;

	if (a->n_parts == PARTS_MAX)
		return err_set(e, EINVAL, "%s: more than %d of them", name, PARTS_MAX);
	if (!parse_number(value, ':', &part->id.device, &rest) ||
	    !parse_number(rest, ':', &part->id.inode, &rest))
		return err_set(e, EINVAL, "%s: not DEV:INO:PATH", name);
	if (parse_path(name, rest, &part->path, e) < 0)
		return -1;
	if (!strrchr(rest, '/')[1])
		return err_set(e, EINVAL, "%s: a path without a last name", name);
	a->n_parts++;
	return 0;
}

static int check_workspace(const struct runner_args *a, bool id_given, struct err *e)
{
	if (a->n_parts && (a->workspace || id_given))
		return err_set(e, EINVAL, "--workspace and --workspace-part exclude one another");
	if (!a->n_parts && !a->workspace)
		return err_set(e, EINVAL, "--workspace is missing; see --help");
	if (!a->n_parts && !id_given)
		return err_set(e, EINVAL, "--workspace-id is missing; see --help");
	return 0;
}

static int parse_word(const char *name, const char *value, const char *const words[2], int *ret,
                      struct err *e)
{
	for (int i = 0; i < 2; i++) {
		if (strcmp(value, words[i]) == 0) {
			*ret = i;
			return 0;
		}
	}
	return err_set(e, EINVAL, "%s: neither %s nor %s", name, words[0], words[1]);
}

static int parse_boundary(const char *name, const char *value, enum boundary *ret, struct err *e)
{
	static const char *const words[] = { "development", "service" };
	int i = 0;

	if (parse_word(name, value, words, &i, e) < 0)
		return -1;
	*ret = i == 0 ? BOUNDARY_DEVELOPMENT : BOUNDARY_SERVICE;
	return 0;
}

static int parse_confine(const char *name, const char *value, enum confine_mode *ret, struct err *e)
{
	static const char *const words[] = { "enforce", "kill" };
	int i = 0;

	if (parse_word(name, value, words, &i, e) < 0)
		return -1;
	*ret = i == 0 ? CONFINE_ENFORCE : CONFINE_KILL;
	return 0;
}

static int parse_limit(const char *name, const char *value, uint64_t min, uint64_t max,
                       uint64_t *ret, struct err *e)
{
	uint64_t n;
	const char *rest;

	if (!parse_number(value, '\0', &n, &rest) || n < min || n > max)
		return err_set(e, EINVAL, "%s: not a number from %llu to %llu", name,
		               (unsigned long long)min, (unsigned long long)max);
	*ret = n;
	return 0;
}

static int parse_small(const char *name, const char *value, uint32_t min, uint32_t max,
                       uint32_t *ret, struct err *e)
{
	uint64_t n = 0;

	if (parse_limit(name, value, min, max, &n, e) < 0)
		return -1;
	*ret = (uint32_t)n;
	return 0;
}

static int parse_limits(const struct option_row *row, const char *value, void *field, struct err *e)
{
	if (row->kind == OPTION_MEMORY)
		return parse_limit(row->name, value, MEMORY_MIN, MEMORY_MAX, field, e);
	if (row->kind == OPTION_CPUS)
		return parse_small(row->name, value, 10, 6400, field, e);
	return parse_small(row->name, value, 16, 32768, field, e);
}

static int parse_egress(const struct option_row *row, const char *value, struct egress *g,
                        struct err *e)
{
	int got;

	if (row->kind == OPTION_EGRESS)
		got = egress_mode(g, value, e);
	else if (row->kind == OPTION_ALLOW)
		got = egress_allow(g, value, e);
	else if (row->kind == OPTION_DNS)
		got = egress_dns(g, value, e);
	else
		got = egress_host(g, value, e);
	return got < 0 ? err_wrap(e, "%s", row->name) : 0;
}

static int parse_value(const struct option_row *row, const char *value, struct runner_args *a,
                       struct err *e)
{
	void *field = (char *)a + row->offset;

	switch (row->kind) {
	case OPTION_TENANT:
		if (!uuid_parse(value, field))
			return err_set(e, EINVAL, "%s: not a canonical UUID", row->name);
		return 0;
	case OPTION_PATH:
		return parse_path(row->name, value, field, e);
	case OPTION_PLACE_ID:
		if (!args_place_id(value, field))
			return err_set(e, EINVAL, "%s: not DEV:INO in decimal", row->name);
		return 0;
	case OPTION_PART:
		return parse_part(row->name, value, a, e);
	case OPTION_BOUNDARY:
		return parse_boundary(row->name, value, field, e);
	case OPTION_CONFINE:
		return parse_confine(row->name, value, field, e);
	case OPTION_CPUS:
	case OPTION_MEMORY:
	case OPTION_PROCESSES:
		return parse_limits(row, value, field, e);
	case OPTION_EGRESS:
	case OPTION_ALLOW:
	case OPTION_DNS:
	case OPTION_HOST:
		return parse_egress(row, value, field, e);
	}
	abort();
}

static size_t find_option(const char *name)
{
	size_t i = 0;

	while (i < ARRAY_LEN(options) && strcmp(options[i].name, name) != 0)
		i++;
	return i;
}

/* One option and its value from argv[i] on. */
static int parse_option(int argc, char *const *argv, int i, struct runner_args *a,
                        bool seen[ARRAY_LEN(options)], struct err *e)
{
	size_t k = find_option(argv[i]);

	if (k == ARRAY_LEN(options))
		return err_set(e, EINVAL, "unknown option '%.64s'; see --help", argv[i]);
	if (seen[k] && options[k].count != OFTEN)
		return err_set(e, EINVAL, "%s stands twice", argv[i]);
	if (i + 1 == argc)
		return err_set(e, EINVAL, "%s needs a value", argv[i]);
	seen[k] = true;
	return parse_value(&options[k], argv[i + 1], a, e);
}

int args_parse(int argc, char *const *argv, struct runner_args *ret, struct err *e)
{
	struct runner_args a = {
		.boundary = BOUNDARY_NONE,
		.limits = { .cpus = 200, .memory = UINT64_C(2) << 30, .processes = 512 },
	};
	bool seen[ARRAY_LEN(options)] = { false };

	if (argc < 2 || strcmp(argv[1], "serve") != 0)
		return err_set(e, EINVAL, "the first argument must be serve or probe; see --help");
	for (int i = 2; i < argc; i += 2)
		if (parse_option(argc, argv, i, &a, seen, e) < 0)
			return -1;
	for (size_t k = 0; k < ARRAY_LEN(options); k++)
		if (!seen[k] && options[k].count == ONCE)
			return err_set(e, EINVAL, "%s is missing; see --help", options[k].name);
	if (check_workspace(&a, seen[find_option("--workspace-id")], e) < 0)
		return -1;
	if (a.boundary == BOUNDARY_SERVICE && !a.cgroup)
		return err_set(e, EINVAL, "--boundary service needs --cgroup");
	if (a.boundary != BOUNDARY_SERVICE && a.cgroup)
		return err_set(e, EINVAL, "--cgroup goes with --boundary service only");
	if (egress_settle(&a.egress, e) < 0)
		return -1;
	*ret = a;
	return 0;
}
