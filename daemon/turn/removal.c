/*
 * Quotes and backslashes are dropped, so that what they hide is seen; what a shell would
 * separate or substitute ends a command.  Each command is then looked at word by word: "rm"
 * anywhere in it (behind sudo, env, xargs or "sh -c"), a flag that means recursion before or
 * behind, and a place that is one of the roots.  A place that cannot be read, because it is
 * a variable or comes from another command, counts as a root when the text speaks of one.
 */
#include "daemon/turn/removal.h"

#include "common/attr.h"

#include <ctype.h>
#include <fnmatch.h>
#include <string.h>

#define WORD_MAX 256 /* bytes; what is longer is none of the roots */

#define UNKNOWN '\1' /* stands for what a variable or another command gives */
#define OPAQUE  '\2' /* for letters that are written in code */

static const char *const roots[] = {
	"/workspace", "/state", "/state/home", "/home",  "/root", "/etc", "/usr",
	"/bin",       "/sbin",  "/lib",        "/lib64", "/var",  "/opt", "/srv",
	"/boot",      "/dev",   "/proc",       "/sys",   "/run",  "/mnt", "/media",
};

/* Of other languages, for a tree as a whole. */
static const char *const removers[] = { "rmtree",         "rimraf", "rm_rf",
	                                "remove_dir_all", "rmSync", "remove_tree" };

/* What is known of the command that is being read. */
struct command {
	char word[WORD_MAX];
	size_t len;
	bool cut;  /* the word was longer */
	bool any;  /* the command has a word */
	bool rm;   /* or something unknown in its place */
	bool find; /* and what it does: */
	bool deletes, filters, filter_next;
	bool recursive;
	bool target; /* rm or find has been given a place */
	bool root;   /* one of them is a root */
	bool unknown;
	bool top; /* one of them would be a root, seen from "/" */
};

/* What is known of the text as a whole. */
struct text {
	struct command now;
	bool speaks;  /* of a root, anywhere */
	bool certain; /* a command removes one */
	bool maybe;   /* a command removes what cannot be read */
	bool at_top;  /* "/" is named somewhere */
	bool top;     /* a command removes what would be a root, seen from there */
};

/* -- places ------------------------------------------------------------------------------- */

/* Only wildcards: all that is in a directory. */
static bool is_all(const char *segment, size_t len)
{
	bool wild = false;

	for (size_t i = 0; i < len; i++) {
		const char *end = segment[i] == '[' ? memchr(segment + i, ']', len - i) : NULL;

		if (end)
			i = (size_t)(end - segment);
		else if (!strchr("*?.", segment[i]))
			return false;
		wild = wild || end || segment[i] == '*' || segment[i] == '?';
	}
	return wild;
}

static bool is_dots(const char *segment, size_t len, const char *dots)
{
	return len == strlen(dots) && memcmp(segment, dots, len) == 0;
}

/* The path without "." and "//", with ".." applied and wildcards at its end cut off. */
static void simplify(const char *path, char out[WORD_MAX + 1])
{
	size_t len = 0;

	out[0] = '\0';
	while (*path) {
		size_t n = strcspn(path, "/");

		if (is_dots(path, n, "..")) {
			while (len > 0 && out[--len] != '/')
				;
		} else if (n && !is_dots(path, n, ".") &&
		           !(is_all(path, n) && strspn(path + n, "/") == strlen(path + n))) {
			out[len++] = '/';
			memcpy(out + len, path, n);
			len += n;
		}
		out[len] = '\0';
		path += n + (path[n] == '/');
	}
}

/* word, seen from "/", is a root; wildcards may make it one. */
static bool leads_to_root(const char *word)
{
	char path[WORD_MAX + 1];

	simplify(word, path);
	if (!path[0])
		return true;
	for (size_t i = 0; i < ARRAY_LEN(roots); i++)
		if (fnmatch(path, roots[i], FNM_PATHNAME) == 0)
			return true;
	return false;
}

static bool is_top(const char *word)
{
	char path[WORD_MAX + 1];

	simplify(word, path);
	return !path[0];
}

/* A home directory: ~, ~name, $HOME, which reading has turned into ~. */
static bool is_home(const char *word)
{
	const char *rest = word + strcspn(word, "/");

	return word[0] == '~' && is_top(rest);
}

static bool is_root(const char *word)
{
	if (is_home(word))
		return true;
	return word[0] == '/' && leads_to_root(word);
}

static bool is_relative(const char *word)
{
	return word[0] && word[0] != '/' && word[0] != '~';
}

/* The current directory, all that is in it, or something above it. */
static bool is_here(const char *word)
{
	return is_relative(word) &&
	       (is_top(word) || (strncmp(word, "../", 3) == 0 && leads_to_root(word)));
}

/* -- words -------------------------------------------------------------------------------- */

static bool ends_as(const char *word, const char *name)
{
	const char *slash = strrchr(word, '/');

	return strcmp(slash ? slash + 1 : word, name) == 0;
}

static bool says_recursive(const char *word)
{
	if (word[0] != '-')
		return false;
	if (word[1] == '-')
		return strncmp(word, "--r", 3) == 0;
	return strpbrk(word, "rR") != NULL;
}

static void take_find_word(struct command *c, const char *word)
{
	static const char *const filters[] = { "-name",  "-iname", "-path",     "-ipath",
		                               "-regex", "-newer", "-wholename" };

	if (c->filter_next)
		c->filters = c->filters || !is_all(word, strlen(word));
	c->filter_next = false;
	for (size_t i = 0; i < ARRAY_LEN(filters); i++)
		c->filter_next = c->filter_next || strcmp(word, filters[i]) == 0;
	c->deletes = c->deletes || strcmp(word, "-delete") == 0;
}

static void take_target(struct command *c, const char *word)
{
	c->target = true;
	c->root = c->root || is_root(word) || is_here(word);
	c->top = c->top || (is_relative(word) && leads_to_root(word));
	if (word[strcspn(word, "\1\2")]) {
		const char *rest = word + strspn(word, "\1");
		c->unknown = true;
		/* "$DIR/" is "/" when there is no DIR; and code hides anything. */
		c->root =
			c->root || (*rest && rest != word && is_top(rest)) || strchr(word, OPAQUE);
	}
}

static void take_word(struct text *t, const char *word)
{
	struct command *c = &t->now;
	const char *value = strchr(word, '=');
	bool first = !c->any;

	c->any = true;
	t->speaks = t->speaks || is_root(word) || (value && is_root(value + 1)) ||
	            strcmp(word, "pwd") == 0;
	t->at_top = t->at_top || (word[0] == '/' && is_top(word));
	for (size_t i = 0; i < ARRAY_LEN(removers); i++)
		t->maybe = t->maybe || strstr(word, removers[i]);
	if (c->find)
		take_find_word(c, word);
	if (ends_as(word, "rm") && c->filters)
		c->root = c->top = false; /* what find hands over is not all of its place */
	if (ends_as(word, "rm") || (first && (word[0] == UNKNOWN || word[0] == '-')))
		c->rm = true;
	if (ends_as(word, "find"))
		c->find = true;
	else if (word[0] == '-')
		c->recursive = c->recursive || says_recursive(word);
	else if ((c->rm || c->find) && !ends_as(word, "rm"))
		take_target(c, word);
}

static void end_word(struct text *t)
{
	struct command *c = &t->now;

	c->word[c->len] = '\0';
	if (c->cut)
		c->any = c->target = c->root = true;
	else if (c->len)
		take_word(t, c->word);
	c->len = 0;
	c->cut = false;
}

static void end_command(struct text *t)
{
	struct command *c = &t->now;
	bool removes, all;

	end_word(t);
	removes = c->rm && c->recursive;
	all = c->find && c->deletes && !c->filters;
	t->certain = t->certain || ((removes || all) && c->root);
	t->certain = t->certain || (all && !c->target);
	t->top = t->top || ((removes || all) && c->top);
	t->maybe = t->maybe || (removes && (!c->target || c->unknown)) || (all && c->unknown);
	*c = (struct command){ .len = 0 };
}

/* -- text --------------------------------------------------------------------------------- */

static void add(struct command *c, char byte)
{
	if (byte == '/' && c->len && c->word[c->len - 1] == '/')
		return;
	if (c->len + 1 < WORD_MAX)
		c->word[c->len++] = byte;
	else
		c->cut = true;
}

/* A variable, at text[at] behind "$"; where it ends. */
static size_t take_variable(struct command *c, const char *text, size_t len, size_t at)
{
	static const char *const places[] = { "HOME", "PWD", "OLDPWD" };
	bool braces = at < len && text[at] == '{';
	size_t from = at + braces, to = from;

	while (to < len && (isalnum((unsigned char)text[to]) || text[to] == '_'))
		to++;
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		if (to - from == strlen(places[i]) &&
		    memcmp(text + from, places[i], to - from) == 0) {
			add(c, '~');
			from = to + 1;
		}
	}
	if (from <= to)
		add(c, UNKNOWN);
	while (braces && to < len && text[to] != '}' && text[to] != '\n')
		to++;
	return braces && to < len ? to + 1 : to;
}

/* Behind a "$" at text[at - 1]; where it ends. */
static size_t take_dollar(struct text *t, const char *text, size_t len, size_t at)
{
	if (at < len && text[at] == '(') {
		add(&t->now, UNKNOWN);
		end_command(t);
		return at + 1;
	}
	if (at < len && text[at] == '\'') {
		add(&t->now, OPAQUE);
		return at + 1;
	}
	return take_variable(&t->now, text, len, at);
}

static size_t take_byte(struct text *t, const char *text, size_t len, size_t at)
{
	char byte = text[at];

	if (byte == '$')
		return take_dollar(t, text, len, at + 1);
	if (byte == '\\' && at + 1 < len && text[at + 1] == '\n')
		return at + 2;
	if (byte == '`') {
		end_word(t); /* it may be the one that closes */
		add(&t->now, UNKNOWN);
	}
	if (byte && strchr("\n;&|(){}<>`", byte))
		end_command(t);
	else if (!byte || isspace((unsigned char)byte) || byte == ',')
		end_word(t);
	else if (!strchr("'\"\\", byte))
		add(&t->now, byte);
	return at + 1;
}

/* cwd: where it runs; NULL = it is not said. */
static bool judge(const char *text, size_t len, const char *cwd)
{
	struct text t = { .speaks = cwd && is_root(cwd), .at_top = cwd && is_top(cwd) };

	for (size_t at = 0; at < len;)
		at = take_byte(&t, text, len, at);
	end_command(&t);
	return t.certain || (t.maybe && t.speaks) || (t.top && t.at_top);
}

bool removal_of_all(const char *text, size_t len)
{
	return judge(text, len, NULL);
}

bool removal_in_call(const struct json *arguments)
{
	static const char *const texts[] = { "command", "input", "data", "text" };
	const char *cwd = json_str(json_get(arguments, "cwd"));
	if (cwd && strlen(cwd) >= WORD_MAX)
		cwd = NULL;

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		const struct json *text = json_get(arguments, texts[i]);

		if (json_str(text) && judge(json_str(text), json_str_len(text), cwd))
			return true;
	}
	return false;
}
