/*
 * Files and texts that are a secret: tokens and their hashes, keys of providers, the operator's
 * token, the line that names an external database.  What is taken, and what it is taken for, is
 * what a second reader written here says; what is refused leaves nothing, and says nothing of it.
 *
 * The first byte says how the file lies there: its mode, in which directory, and as what.
 */
#include "fuzz/files.h"
#include "fuzz/fuzz.h"

#include "common/fd.h"
#include "daemon/local.h"
#include "daemon/model/endpoint.h"
#include "daemon/operator.h"
#include "daemon/tenant/token.h"
#include "daemon/tenant/trusted.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <stdbool.h>
#include <strings.h>
#include <sys/stat.h>

#define BLANKS       " \t\r\n"
#define TENANT_TOKEN "cloister_0Vb3Yx7RkQ2mZt9LwJh5Np8sFd4Ge6Uc"

/* A secret, without the white space around it. */
struct words {
	const char *at;
	size_t len;
};

static struct words trim(const char *text, size_t len)
{
	while (len && strchr(BLANKS, *text) && *text) {
		text++;
		len--;
	}
	while (len && text[len - 1] && strchr(BLANKS, text[len - 1]))
		len--;
	return (struct words){ text, len };
}

static bool is_visible(struct words w)
{
	for (size_t i = 0; i < w.len; i++)
		if ((unsigned char)w.at[i] < 0x21 || (unsigned char)w.at[i] > 0x7e)
			return false;
	return true;
}

/* No run of the secret's is in the text; none of ours are so long without a blank. */
static void check_silent(const char *text, struct words secret)
{
	size_t run = 0;

	for (size_t i = 0; i < secret.len; i++) {
		char piece[17] = "";

		run = (unsigned char)secret.at[i] > ' ' ? run + 1 : 0;
		if (run < 16)
			continue;
		memcpy(piece, secret.at + i - 15, 16);
		demand(!strstr(text, piece));
	}
}

/* -- tokens ----------------------------------------------------------------------------------- */

static size_t count_kinds(struct words w)
{
	bool seen[256] = { false };
	size_t n = 0;

	for (size_t i = 0; i < w.len; i++)
		seen[(unsigned char)w.at[i]] = true;
	for (size_t i = 0; i < 256; i++)
		n += seen[i];
	return n;
}

/* The shortest piece that the whole repeats, by how much of its end is its beginning. */
static size_t find_period(struct words w)
{
	size_t *border = (size_t *)(void *)room_for((w.len + 1) * sizeof(*border)), k = 0, period;

	border[0] = border[1] = 0;
	for (size_t i = 1; i < w.len; i++) {
		while (k && w.at[k] != w.at[i])
			k = border[k];
		k += w.at[k] == w.at[i];
		border[i + 1] = k;
	}
	period = w.len - border[w.len];
	free(border);
	return period;
}

static size_t count_steps(struct words w, int step)
{
	size_t n = 0;

	for (size_t i = 1; i < w.len; i++)
		n += w.at[i] - w.at[i - 1] == step;
	return n;
}

static bool looks_made(struct words w)
{
	return count_kinds(w) < 8 || find_period(w) * 2 <= w.len ||
	       count_steps(w, 1) * 4 > w.len * 3 || count_steps(w, -1) * 4 > w.len * 3;
}

/* The word in quotes, of a reason that names one. */
static bool names_its_word(const char *reason, struct words w)
{
	const char *word = strchr(reason, '"'), *end = word ? strchr(word + 1, '"') : NULL;
	size_t len = end ? (size_t)(end - word) - 1 : 0;

	for (size_t i = 0; len && i + len <= w.len; i++)
		if (strncasecmp(w.at + i, word + 1, len) == 0)
			return true;
	return false;
}

static bool has_word(struct words w)
{
	static const char *const some[] = { "changeme", "password", "placeholder", "example" };

	for (size_t k = 0; k < sizeof(some) / sizeof(some[0]); k++)
		for (size_t i = 0; i + strlen(some[k]) <= w.len; i++)
			if (strncasecmp(w.at + i, some[k], strlen(some[k])) == 0)
				return true;
	return false;
}

static bool is_hash(struct words w)
{
	for (size_t i = 0; i < w.len; i++)
		if (!(w.at[i] >= '0' && w.at[i] <= '9') && !(w.at[i] >= 'a' && w.at[i] <= 'f'))
			return false;
	return w.len == 64;
}

static void check_hash(struct words w, int rc, const unsigned char *digest, const struct err *e)
{
	char hex[65];

	for (size_t i = 0; i < 32; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	if (rc == 0)
		demand(is_hash(w) && count_kinds(w) >= 8 && memcmp(hex, w.at, 64) == 0);
	else
		demand(!is_hash(w) || count_kinds(w) < 8 || strstr(e->text, "is the hash of"));
}

static bool is_marked(struct words w)
{
	return w.len >= 7 && strncasecmp(w.at, "sha256:", 7) == 0;
}

static void check_drawn(struct words w, int rc, const unsigned char *digest, const struct err *e)
{
	unsigned char wanted[32];
	bool bad = w.len < 32 || !is_visible(w) || looks_made(w);

	if (rc < 0) {
		demand(bad || names_its_word(e->text, w));
		return;
	}
	demand(!bad && !has_word(w));
	demand(SHA256((const unsigned char *)w.at, w.len, wanted));
	demand(memcmp(wanted, digest, sizeof(wanted)) == 0);
}

/* The same as token_read(), which has been held against the second reader. */
static int check_token(const char *text, size_t len, unsigned char ret[TOKEN_DIGEST])
{
	struct words w = trim(text, len);
	struct err e = ERR_INIT;
	int rc;

	memset(ret, 0, TOKEN_DIGEST);
	rc = token_read(text, len, ret, &e);
	demand((rc < 0) == !!e.text[0]);
	check_silent(e.text, w);
	if (is_marked(w))
		check_hash((struct words){ w.at + 7, w.len - 7 }, rc, ret, &e);
	else
		check_drawn(w, rc, ret, &e);
	return rc;
}

static void check_declared_hash(const char *text)
{
	unsigned char digest[TOKEN_DIGEST] = { 0 };
	struct err e = ERR_INIT;
	int rc = token_read_hash(text, digest, &e);

	check_hash((struct words){ text, strlen(text) }, rc, digest, &e);
	check_silent(e.text, (struct words){ text, strlen(text) });
}

/* Out of the environment, of which nothing stays. */
static void check_variable(const char *text, int rc, const unsigned char *digest)
{
	const size_t at = strlen("CLOISTER_TOKEN=");
	char *line = room_for(at + strlen(text) + 1);
	struct local_token token;

	memcpy(line, "CLOISTER_TOKEN=", at);
	memcpy(line + at, text, strlen(text) + 1);
	demand(putenv(line) == 0);
	local_take_token(&token);
	demand(token.given && !getenv("CLOISTER_TOKEN") && (token.fault.code != 0) == (rc < 0));
	demand(rc < 0 || memcmp(token.digest, digest, TOKEN_DIGEST) == 0);
	for (size_t i = 0; i < strlen(text); i++)
		demand(!line[at + i]);
	free(line);
}

/* -- how a file lies -------------------------------------------------------------------------- */

enum place {
	ELSEWHERE,
	IN_STATE,
	IN_FIRST, /* directory that the agent sees */
	IN_SECOND,
	PLACES,
};

static const char *const places[PLACES] = { "else", "state", "one", "two" };

enum kind {
	PLAIN,
	LINK,        /* to the file */
	BEHIND_LINK, /* to its directory */
	FIFO,
	KINDS,
};

static const char *const kinds[KINDS] = { "/secret", "/link", "-link/secret", "/fifo" };

static const mode_t modes[] = { 0600, 0400, 0, 0640, 0604, 0620, 0602, 0700 };

struct lies {
	char path[128];
	enum place place;
	enum kind kind;
	bool is_secret; /* by its mode and size */
};

static struct registry *nobody;

static void put_path(char *ret, size_t size, enum place place, const char *rest)
{
	(void)snprintf(ret, size, "%s/%s%s", input_dir(), places[place], rest);
}

static void make_place(enum place place)
{
	char path[128], other[128];

	put_path(path, sizeof(path), place, "");
	put_path(other, sizeof(other), place, "-link");
	demand(mkdir(path, 0700) == 0 && symlink(path, other) == 0);
	put_path(path, sizeof(path), place, kinds[PLAIN]);
	put_path(other, sizeof(other), place, kinds[LINK]);
	demand(symlink(path, other) == 0);
	put_path(other, sizeof(other), place, kinds[FIFO]);
	demand(mkfifo(other, 0600) == 0);
}

static void state_dir(char ret[128])
{
	put_path(ret, 128, IN_STATE, "");
}

static void begin(void)
{
	static char state[128], one[128], two[128];
	static char *const roots[] = { one, two };
	unsigned char digest[TOKEN_DIGEST];
	struct err e = ERR_INIT;

	if (nobody)
		return;
	for (enum place p = ELSEWHERE; p < PLACES; p++)
		make_place(p);
	state_dir(state);
	put_path(one, sizeof(one), IN_FIRST, "");
	put_path(two, sizeof(two), IN_SECOND, "");
	demand(token_read(TENANT_TOKEN, strlen(TENANT_TOKEN), digest, &e) == 0);
	demand(registry_local(roots, 2, state, digest, &nobody, &e) == 0);
}

static struct lies put_file(uint8_t how, const char *text, size_t len)
{
	struct lies l = { .place = (how >> 3) % PLACES, .kind = (how >> 5) % KINDS };
	mode_t mode = modes[how % 8];
	auto_close int fd = -1;

	put_path(l.path, sizeof(l.path), l.place, kinds[PLAIN]);
	fd = open(l.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	demand(fd >= 0 && write(fd, text, len) == (ssize_t)len && fchmod(fd, mode) == 0);
	put_path(l.path, sizeof(l.path), l.place, kinds[l.kind]);
	l.is_secret = !(mode & 0177) && len <= 4096;
	return l;
}

static bool is_readable(const struct lies *l)
{
	return l->is_secret && l->kind == PLAIN;
}

/* Of a canonical path, on which links are followed first. */
static bool is_readable_anyhow(const struct lies *l)
{
	return l->is_secret && l->kind != FIFO && l->place == ELSEWHERE;
}

/* -- files ------------------------------------------------------------------------------------ */

static void check_token_file(const struct lies *l, int as_text, const unsigned char *wanted)
{
	unsigned char digest[TOKEN_DIGEST];
	struct err e = ERR_INIT;
	int rc = token_read_file(l->path, digest, &e);

	demand((rc == 0) == (is_readable(l) && as_text == 0));
	demand(rc < 0 ? strncmp(e.text, input_dir(), strlen(input_dir())) == 0
	              : memcmp(digest, wanted, sizeof(digest)) == 0);
}

static void check_operator_token(struct lies *l, int as_text, const unsigned char *wanted)
{
	const struct options o = { .metrics_token_file = l->path };
	unsigned char digest[TOKEN_DIGEST];
	struct err e = ERR_INIT;
	char state[128];
	int rc;

	state_dir(state);
	rc = operator_token(&o, state, nobody, digest, &e);
	demand((rc == 0) ==
	       (is_readable_anyhow(l) && as_text == 0 && !registry_match(nobody, wanted, NULL)));
	demand(rc == 0 || e.text[0]);
	demand(rc < 0 || memcmp(digest, wanted, sizeof(digest)) == 0);
}

static bool is_key(struct words w)
{
	return w.len >= 8 && w.len <= 1024 && is_visible(w) && !memchr(w.at, '"', w.len) &&
	       !memchr(w.at, '\\', w.len);
}

static void check_key(const struct lies *l, struct words w)
{
	struct endpoint ep = { "" };
	char key[ENDPOINT_KEY_MAX + 1];
	struct err e = ERR_INIT;
	bool wanted = is_readable(l) && is_key(w);

	(void)snprintf(ep.key_file, sizeof(ep.key_file), "%s", l->path);
	demand((endpoint_key(&ep, key, &e) == 0) == wanted && wanted == !e.text[0]);
	demand(strlen(key) == (wanted ? w.len : 0) && memcmp(key, w.at, strlen(key)) == 0);
	wanted = wanted && l->place != IN_FIRST && l->place != IN_SECOND;
	demand((endpoint_key_file(&ep, l->path, nobody, &e) == 0) == wanted);
	demand(strcmp(ep.key_file, l->path) == 0);
}

/* Its file is read by a process of its own: not with every input. */
static void check_url(struct lies *l, const char *text, size_t len)
{
	const struct options o = { .database_url_file = l->path };
	struct database_url url, wanted;
	struct err e = ERR_INIT, why = ERR_INIT;
	char state[128];
	bool fits = url_parse(text, len, &wanted, &why) == 0 && is_readable_anyhow(l);
	int rc;

	state_dir(state);
	rc = operator_database_url(&o, state, nobody, &url, &e);
	demand(rc < 0 || fits);
	demand(rc == 0 || (e.text[0] && !url.password[0]));
	/* What is a path is looked up, and may be refused for where it leads. */
	if (fits && !wanted.local && !wanted.ca_file[0])
		demand(rc == 0 && strcmp(url.host, wanted.host) == 0 && url.port == wanted.port);
	if (rc == 0)
		demand(strcmp(url.password, wanted.password) == 0 && url.local == wanted.local);
}

/* -- paths ------------------------------------------------------------------------------------ */

static bool is_control(const char *at)
{
	unsigned char c = (unsigned char)at[0], next = (unsigned char)at[1];

	return c < 0x20 || c == 0x7f || (c == 0xc2 && next >= 0x80 && next < 0xa0);
}

/* Put together of its names again, it is the same. */
static bool is_path(const char *text)
{
	char *copy = text_of(text, strlen(text)), *again = room_for(strlen(text) + 2), *rest = copy;
	size_t len = 0;
	bool same, tame = true;

	for (char *name; (name = strsep(&rest, "/"));)
		if (*name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
			again[len++] = '/';
			memcpy(again + len, name, strlen(name));
			len += strlen(name);
		}
	again[len] = '\0';
	same = len && len <= 4096 && strcmp(again, text) == 0;
	for (const char *c = text; *c; c++)
		tame = tame && !is_control(c);
	free(copy);
	free(again);
	return same && tame;
}

static void check_path(const char *text)
{
	struct err e = ERR_INIT;
	bool taken = trusted_path_check(text, &e) == 0;

	demand(taken == is_path(text) && taken == !e.text[0]);
	demand(!taken || (trusted_path_inside(text, "/") && trusted_path_inside(text, text)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char digest[TOKEN_DIGEST];
	int rc, free_fd = lowest_fd();
	struct lies l;
	char *text;

	if (!size || size > 8192)
		return 0;
	begin();
	text = text_of(data + 1, --size);
	l = put_file(data[0], text, size);
	rc = check_token(text, size, digest);
	check_token_file(&l, rc, digest);
	check_operator_token(&l, rc, digest);
	check_key(&l, trim(text, size));
	if (size > 8 && memcmp(text, "postgres", 8) == 0)
		check_url(&l, text, size);
	check_declared_hash(text);
	check_path(text);
	if (!memchr(text, '\0', size))
		check_variable(text, rc, digest);
	demand(lowest_fd() == free_fd);
	free(text);
	return 0;
}
