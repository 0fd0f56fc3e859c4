#include "runner/args.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option_kind {
	OPTION_TENANT,
	OPTION_PATH,
	OPTION_PLACE_ID,
	OPTION_BOUNDARY,
};

struct option_row {
	const char *name;
	const char *value;
	const char *help;
	size_t offset;
	enum option_kind kind;
	bool optional;
};

#define AT(field) offsetof(struct runner_args, field)

static const struct option_row options[] = {
	{ "--tenant", "UUID", "whose sandbox this is", AT(tenant), OPTION_TENANT, false },
	{ "--workspace", "PATH", "directory that the sandbox sees as /workspace", AT(workspace),
	  OPTION_PATH, false },
	{ "--workspace-id", "DEV:INO", "what it must be, as stat(2) numbers it", AT(workspace_id),
	  OPTION_PLACE_ID, false },
	{ "--state", "PATH", "directory that the sandbox sees as /state", AT(state), OPTION_PATH,
	  false },
	{ "--state-id", "DEV:INO", "what it must be", AT(state_id), OPTION_PLACE_ID, false },
	{ "--rootfs", "DIR", "root filesystem, used read-only", AT(rootfs), OPTION_PATH, false },
	{ "--guest", "FILE", "cloister-guest, the sandbox's first process", AT(guest), OPTION_PATH,
	  false },
	{ "--runsc", "FILE", "gVisor", AT(runsc), OPTION_PATH, false },
	{ "--slirp4netns", "FILE", "user-mode network", AT(slirp4netns), OPTION_PATH, false },
	{ "--runtime-dir", "DIR", "private directory for locks", AT(runtime_dir), OPTION_PATH,
	  false },
	{ "--boundary", "development|service", "what confines the sandbox", AT(boundary),
	  OPTION_BOUNDARY, false },
	{ "--debug-log", "FILE", "append gVisor's debug log to it", AT(debug_log), OPTION_PATH,
	  true },
};

void args_help(void)
{
	puts("usage: cloister-runner serve OPTION...\n\n"
	     "Runs one tenant's sandbox; standard input and output are the guest protocol.\n");
	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		printf("  %-14s %-20s %s%s\n", options[i].name, options[i].value, options[i].help,
		       options[i].optional ? " (optional)" : "");
	puts("\nexit status: 0 ended with its input, 2 refused or failed to start, 3 sandbox lost");
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

static int parse_boundary(const char *value, enum boundary *ret, struct err *e)
{
	if (strcmp(value, "development") == 0)
		*ret = BOUNDARY_DEVELOPMENT;
	else if (strcmp(value, "service") == 0)
		*ret = BOUNDARY_SERVICE;
	else
		return err_set(e, EINVAL, "--boundary: neither development nor service");
	return 0;
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
	case OPTION_BOUNDARY:
		return parse_boundary(value, field, e);
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

int args_parse(int argc, char *const *argv, struct runner_args *ret, struct err *e)
{
	struct runner_args a = { .boundary = BOUNDARY_NONE };
	bool seen[ARRAY_LEN(options)] = { false };

	if (argc < 2 || strcmp(argv[1], "serve") != 0)
		return err_set(e, EINVAL, "the first argument must be serve; see --help");
	for (int i = 2; i < argc; i += 2) {
		size_t k = find_option(argv[i]);

		if (k == ARRAY_LEN(options))
			return err_set(e, EINVAL, "unknown option '%.64s'; see --help", argv[i]);
		if (seen[k])
			return err_set(e, EINVAL, "%s stands twice", argv[i]);
		if (i + 1 == argc)
			return err_set(e, EINVAL, "%s needs a value", argv[i]);
		if (parse_value(&options[k], argv[i + 1], &a, e) < 0)
			return -1;
		seen[k] = true;
	}
	for (size_t k = 0; k < ARRAY_LEN(options); k++)
		if (!seen[k] && !options[k].optional)
			return err_set(e, EINVAL, "%s is missing; see --help", options[k].name);
	*ret = a;
	return 0;
}
