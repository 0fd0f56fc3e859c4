/*
 * The runner's command line: an input is its words, one a line.  It is taken when a second
 * reader, written here, takes it, and then it is read as the same; what is refused leaves the
 * plan as it was.  Of egress and DNS, "words" looks at each value; here they must add up.
 */
#include "fuzz/fuzz.h"

#include "common/attr.h"
#include "runner/args.h"

#include <stdbool.h>

#define WORDS_MAX 4200 /* more than there can be options */

enum kind {
	UUID,
	PATH,
	ID,
	PART,
	WORD,   /* either of two */
	NUMBER, /* from min to max */
	EGRESS,
};

enum {
	TENANT,
	WORKSPACE,
	WORKSPACE_ID,
	WORKSPACE_PART,
	STATE,
	STATE_ID,
	ROOTFS,
	GUEST,
	RUNSC,
	SLIRP4NETNS,
	RUNTIME_DIR,
	BOUNDARY,
	CGROUP,
	CPUS,
	MEMORY,
	PROCESSES,
	MODE,
	ALLOW,
	DNS,
	HOST,
	DEBUG_LOG,
	CONFINE,
	OPTIONS,
};

static const struct row {
	const char *name;
	enum kind kind;
	bool needed, often;
	const char *words[2];
	unsigned long long min, max;
} rows[OPTIONS] = {
	[TENANT] = { "--tenant", UUID, true },
	[WORKSPACE] = { "--workspace", PATH },
	[WORKSPACE_ID] = { "--workspace-id", ID },
	[WORKSPACE_PART] = { "--workspace-part", PART, .often = true },
	[STATE] = { "--state", PATH, true },
	[STATE_ID] = { "--state-id", ID, true },
	[ROOTFS] = { "--rootfs", PATH, true },
	[GUEST] = { "--guest", PATH, true },
	[RUNSC] = { "--runsc", PATH, true },
	[SLIRP4NETNS] = { "--slirp4netns", PATH, true },
	[RUNTIME_DIR] = { "--runtime-dir", PATH, true },
	[BOUNDARY] = { "--boundary", WORD, true, .words = { "development", "service" } },
	[CGROUP] = { "--cgroup", PATH },
	[CPUS] = { "--cpus", NUMBER, .min = 10, .max = 6400 },
	[MEMORY] = { "--memory", NUMBER, .min = 1ULL << 28, .max = 1ULL << 40 },
	[PROCESSES] = { "--processes", NUMBER, .min = 16, .max = 32768 },
	[MODE] = { "--egress", EGRESS },
	[ALLOW] = { "--egress-allow", EGRESS, .often = true },
	[DNS] = { "--dns", EGRESS },
	[HOST] = { "--host-address", EGRESS, .often = true },
	[DEBUG_LOG] = { "--debug-log", PATH },
	[CONFINE] = { "--confine", WORD, .words = { "enforce", "kill" } },
};

/* -- the second reader ------------------------------------------------------------------------ */

struct wanted {
	const char *values[OPTIONS]; /* NULL = is not there; the last */
	const char *parts[PARTS_MAX];
	size_t n_parts;
	struct egress egress;
};

/* Written again it is the same, so it has no sign, no zero in front, and is not too large. */
static bool read_number(const char *text, char end, unsigned long long *ret, const char **ret_rest)
{
	char again[32];
	int len;

	*ret = strtoull(text, NULL, 10);
	len = snprintf(again, sizeof(again), "%llu%c", *ret, end);
	*ret_rest = text + len;
	return strncmp(text, again, end ? (size_t)len : (size_t)len + 1) == 0;
}

static bool is_id(const char *text, char end, struct place_id *ret, const char **ret_rest)
{
	unsigned long long device, inode;

	if (!read_number(text, ':', &device, &text) || !read_number(text, end, &inode, ret_rest))
		return false;
	*ret = (struct place_id){ device, inode };
	return true;
}

static bool is_path(const char *text)
{
	for (const unsigned char *c = (const unsigned char *)text; *c; c++)
		if (*c < ' ')
			return false;
	return text[0] == '/' && strlen(text) <= 4095;
}

static bool is_part(const char *text, struct place_id *ret_id, const char **ret_path)
{
	return is_id(text, ':', ret_id, ret_path) && is_path(*ret_path) &&
	       (*ret_path)[strlen(*ret_path) - 1] != '/';
}

static bool is_uuid(const char *text)
{
	static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
	size_t i = 0;

	for (; text[i] && form[i]; i++)
		if (form[i] == '-' ? text[i] != '-' : !strchr("0123456789abcdef", text[i]))
			return false;
	return !text[i] && !form[i];
}

/* "words" has its own opinion of these. */
static bool takes_egress(struct egress *g, const char *name, const char *text)
{
	struct err e = ERR_INIT;

	if (strcmp(name, "--egress") == 0)
		return egress_mode(g, text, &e) == 0;
	if (strcmp(name, "--egress-allow") == 0)
		return egress_allow(g, text, &e) == 0;
	if (strcmp(name, "--dns") == 0)
		return egress_dns(g, text, &e) == 0;
	return egress_host(g, text, &e) == 0;
}

static bool is_one_of(const char *text, const char *const words[2])
{
	return strcmp(text, words[0]) == 0 || strcmp(text, words[1]) == 0;
}

static bool takes(struct wanted *w, const struct row *row, const char *text)
{
	struct place_id id;
	unsigned long long n;
	const char *rest;

	switch (row->kind) {
	case UUID:
		return is_uuid(text);
	case PATH:
		return is_path(text);
	case ID:
		return is_id(text, '\0', &id, &rest);
	case PART:
		return is_part(text, &id, &rest) && w->n_parts < PARTS_MAX &&
		       (w->parts[w->n_parts++] = text);
	case WORD:
		return is_one_of(text, row->words);
	case NUMBER:
		return read_number(text, '\0', &n, &rest) && n >= row->min && n <= row->max;
	case EGRESS:
		return takes_egress(&w->egress, row->name, text);
	}
	return false;
}

static bool takes_pair(struct wanted *w, const char *name, const char *value)
{
	for (size_t i = 0; i < OPTIONS; i++)
		if (strcmp(rows[i].name, name) == 0) {
			bool again = w->values[i] && !rows[i].often;

			w->values[i] = value;
			return !again && takes(w, &rows[i], value);
		}
	return false;
}

/* What goes together. */
static bool is_whole(struct wanted *w)
{
	bool plain = w->values[WORKSPACE] && w->values[WORKSPACE_ID];
	bool parts = !w->values[WORKSPACE] && !w->values[WORKSPACE_ID] && w->n_parts;
	struct err e = ERR_INIT;

	for (size_t i = 0; i < OPTIONS; i++)
		if (rows[i].needed && !w->values[i])
			return false;
	return (w->n_parts ? parts : plain) &&
	       (strcmp(w->values[BOUNDARY], "service") == 0) == !!w->values[CGROUP] &&
	       egress_settle(&w->egress, &e) == 0;
}

static bool takes_line(struct wanted *w, char *const *words, size_t n)
{
	if (n < 2 || n % 2 || strcmp(words[1], "serve") != 0)
		return false;
	for (size_t i = 2; i < n; i += 2)
		if (!takes_pair(w, words[i], words[i + 1]))
			return false;
	return is_whole(w);
}

/* -- the same --------------------------------------------------------------------------------- */

static void check_id(const struct wanted *w, size_t option, const struct place_id *id)
{
	const char *rest;
	struct place_id wanted = { 0 };

	demand(!w->values[option] || is_id(w->values[option], '\0', &wanted, &rest));
	demand(id->device == wanted.device && id->inode == wanted.inode);
}

static void check_parts(const struct wanted *w, const struct runner_args *a)
{
	demand(a->n_parts == w->n_parts);
	for (size_t i = 0; i < w->n_parts; i++) {
		struct place_id id;
		const char *path;

		demand(is_part(w->parts[i], &id, &path) && path == a->parts[i].path);
		demand(id.device == a->parts[i].id.device && id.inode == a->parts[i].id.inode);
	}
}

static void check_number(const struct wanted *w, size_t option, unsigned long long n,
                         unsigned long long usual)
{
	demand(n == (w->values[option] ? strtoull(w->values[option], NULL, 10) : usual));
}

static void check_limits(const struct wanted *w, const struct limits *l)
{
	check_number(w, CPUS, l->cpus, 200);
	check_number(w, MEMORY, l->memory, 2ULL << 30);
	check_number(w, PROCESSES, l->processes, 512);
}

static bool is_same_row(const struct egress_row *a, const struct egress_row *b)
{
	return a->to.addr == b->to.addr && a->to.len == b->to.len && a->n_ports == b->n_ports &&
	       memcmp(a->ports, b->ports, a->n_ports * sizeof(a->ports[0])) == 0;
}

static void check_egress(const struct egress *w, const struct egress *g)
{
	demand(g->mode == w->mode && g->dns == w->dns && g->n_resolvers == w->n_resolvers);
	demand(!memcmp(g->resolvers, w->resolvers, g->n_resolvers * sizeof(g->resolvers[0])));
	demand(g->n_allow == w->n_allow && g->n_hosts == w->n_hosts);
	demand(memcmp(g->hosts, w->hosts, g->n_hosts * sizeof(g->hosts[0])) == 0);
	for (size_t i = 0; i < g->n_allow; i++)
		demand(is_same_row(&g->allow[i], &w->allow[i]));
}

static void check_plan(const struct wanted *w, const struct runner_args *a)
{
	const char *const paths[][2] = {
		{ a->workspace, w->values[WORKSPACE] },
		{ a->state, w->values[STATE] },
		{ a->rootfs, w->values[ROOTFS] },
		{ a->guest, w->values[GUEST] },
		{ a->runsc, w->values[RUNSC] },
		{ a->slirp4netns, w->values[SLIRP4NETNS] },
		{ a->runtime_dir, w->values[RUNTIME_DIR] },
		{ a->cgroup, w->values[CGROUP] },
		{ a->debug_log, w->values[DEBUG_LOG] },
	};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		demand(paths[i][0] == paths[i][1]);
	demand(strcmp(a->tenant.text, w->values[TENANT]) == 0);
	check_id(w, WORKSPACE_ID, &a->workspace_id);
	check_id(w, STATE_ID, &a->state_id);
	check_parts(w, a);
	demand(a->boundary == (w->values[CGROUP] ? BOUNDARY_SERVICE : BOUNDARY_DEVELOPMENT));
	demand((a->confine == CONFINE_KILL) ==
	       (w->values[CONFINE] && strcmp(w->values[CONFINE], "kill") == 0));
	check_limits(w, &a->limits);
	check_egress(&w->egress, &a->egress);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char *words[WORDS_MAX + 1];
	static struct runner_args plan;
	static struct wanted wanted;
	char *text = text_of(data, size), *rest = text, program[] = "cloister-runner";
	struct err e = ERR_INIT;
	size_t n = 1;

	words[0] = program;
	while (rest && n < WORDS_MAX)
		words[n++] = strsep(&rest, "\n");
	words[n] = NULL;
	memset(&wanted, 0, sizeof(wanted));
	memset(&plan, 0x55, sizeof(plan));
	if (args_parse((int)n, words, &plan, &e) == 0) {
		demand(takes_line(&wanted, words, n));
		check_plan(&wanted, &plan);
	} else {
		demand(!takes_line(&wanted, words, n) && e.code && e.text[0]);
		for (size_t i = 0; i < sizeof(plan); i++)
			demand(((const unsigned char *)&plan)[i] == 0x55);
	}
	free(text);
	return 0;
}
