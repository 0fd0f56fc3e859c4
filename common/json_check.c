/*
 * The gate in front of json-c: what passes here, json-c reads the same way.
 *
 * One pass over the text by recursive descent, which JSON_MAX_DEPTH bounds.  The
 * keys of the objects that are open lie on one stack; when an object closes, its
 * keys are sorted, so that equal ones meet.  Sorting, unlike a hash table, has no
 * bad case that a sender could aim for: 16 MiB of keys cost tens of milliseconds.
 *
 * Noncharacters such as U+FFFE pass, although RFC 7493 bans them: file names and
 * output of programs may hold them, and every reader takes them.
 */
#include "common/json.h"
#include "common/utf8.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MAX  512 /* characters; a double never needs more than 17 digits */
#define INTEGER_MAX 9007199254740991LL

struct key {
	uint32_t at; /* where the decoded bytes begin in checker.names */
	uint32_t len;
	uint32_t pos; /* offset of the opening quote in the text */
};

struct checker {
	const char *text;
	size_t len;
	size_t pos;
	unsigned int depth;
	struct buf names; /* decoded keys of the open objects */
	struct buf keys;  /* struct key of the open objects */
	struct err *e;
};

static int check_value(struct checker *c);

/* The line and column (in characters, from 1) of an offset. */
static void place(const struct checker *c, size_t pos, size_t *ret_line, size_t *ret_column)
{
	*ret_line = *ret_column = 1;
	for (size_t i = 0; i < pos && i < c->len; i++) {
		if (c->text[i] == '\n') {
			++*ret_line;
			*ret_column = 1;
		} else if (((unsigned char)c->text[i] & 0xc0) != 0x80) {
			++*ret_column;
		}
	}
}

static int fault_at(struct checker *c, size_t pos, const char *what)
{
	size_t line, column;

	place(c, pos, &line, &column);
	return err_set(c->e, EINVAL, "line %zu, column %zu: %s", line, column, what);
}

static int fault(struct checker *c, const char *what)
{
	if (c->pos >= c->len)
		return fault_at(c, c->len, "the text ends too early");
	return fault_at(c, c->pos, what);
}

static int peek(const struct checker *c)
{
	return c->pos < c->len ? (unsigned char)c->text[c->pos] : -1;
}

static void skip_space(struct checker *c)
{
	while (c->pos < c->len && c->text[c->pos] && strchr(" \t\r\n", c->text[c->pos]))
		c->pos++;
}

static bool is_digit(int ch)
{
	return ch >= '0' && ch <= '9';
}

/* -- strings --------------------------------------------------------------------- */

/* Four hex digits at offset pos; -1 when they are not that. */
static int hex4(const struct checker *c, size_t pos)
{
	int v = 0;

	if (c->len - pos < 4)
		return -1;
	for (size_t i = pos; i < pos + 4; i++) {
		char ch = c->text[i];

		if (is_digit(ch))
			v = v << 4 | (ch - '0');
		else if ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'f')
			v = v << 4 | ((ch | 0x20) - 'a' + 10);
		else
			return -1;
	}
	return v;
}

static void put_char(struct buf *out, unsigned int v)
{
	char b[4];
	size_t n = v < 0x80 ? 1 : v < 0x800 ? 2 : v < 0x10000 ? 3 : 4;
	static const unsigned char lead[] = { 0, 0x00, 0xc0, 0xe0, 0xf0 };

	for (size_t i = n; i-- > 0; v >>= 6)
		b[i] = (char)(i ? 0x80 | (v & 0x3f) : lead[n] | v);
	buf_add(out, b, n);
}

/* After "\u".  A high surrogate must be followed by an escaped low one. */
static int check_unicode(struct checker *c, struct buf *out)
{
	size_t start = c->pos - 2;
	int v = hex4(c, c->pos), low;

	if (v < 0)
		return fault_at(c, start, "\\u without four hex digits");
	if (v == 0)
		return fault_at(c, start, "U+0000 is not allowed");
	c->pos += 4;
	if (v >= 0xdc00 && v <= 0xdfff)
		return fault_at(c, start, "lone surrogate");
	if (v >= 0xd800 && v <= 0xdbff) {
		low = c->len - c->pos >= 6 && c->text[c->pos] == '\\' && c->text[c->pos + 1] == 'u'
		              ? hex4(c, c->pos + 2)
		              : -1;
		if (low < 0xdc00 || low > 0xdfff)
			return fault_at(c, start, "lone surrogate");
		c->pos += 6;
		v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
	}
	if (out)
		put_char(out, (unsigned int)v);
	return 0;
}

/* After the backslash. */
static int check_escape(struct checker *c, struct buf *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	int ch = peek(c);
	const char *found;

	if (ch == 'u') {
		c->pos++;
		return check_unicode(c, out);
	}
	found = ch > 0 ? strchr(from, ch) : NULL;
	if (!found)
		return fault(c, "unknown escape");
	c->pos++;
	if (out)
		buf_addc(out, to[found - from]);
	return 0;
}

/* The part of a string up to a quote or a backslash. */
static int check_plain(struct checker *c, struct buf *out)
{
	size_t start = c->pos;

	while (c->pos < c->len) {
		unsigned char ch = (unsigned char)c->text[c->pos];
		size_t n = 1;

		if (ch == '"' || ch == '\\')
			break;
		if (ch < 0x20)
			return fault(c, ch ? "control character in a string"
			                   : "U+0000 is not allowed");
		if (ch >= 0x80)
			n = utf8_char(c->text + c->pos, c->len - c->pos);
		if (!n)
			return fault(c, "not UTF-8");
		c->pos += n;
	}
	if (out)
		buf_add(out, c->text + start, c->pos - start);
	return 0;
}

/* At the opening quote.  out, when given, receives the decoded bytes. */
static int check_string(struct checker *c, struct buf *out)
{
	c->pos++;
	for (;;) {
		if (check_plain(c, out) < 0)
			return -1;
		if (c->pos >= c->len)
			return fault(c, "");
		if (c->text[c->pos++] == '"')
			return 0;
		if (check_escape(c, out) < 0)
			return -1;
	}
}

/* -- numbers and words ------------------------------------------------------------- */

static bool skip_digits(struct checker *c)
{
	size_t start = c->pos;

	while (is_digit(peek(c)))
		c->pos++;
	return c->pos > start;
}

/* The grammar alone; *ret_integer when there is neither fraction nor exponent. */
static int scan_number(struct checker *c, bool *ret_integer)
{
	*ret_integer = true;
	if (peek(c) == '-')
		c->pos++;
	if (peek(c) == '0')
		c->pos++;
	else if (!skip_digits(c))
		return fault(c, "a number needs a digit here");
	if (is_digit(peek(c)))
		return fault(c, "a number must not start with 0");
	if (peek(c) == '.') {
		*ret_integer = false;
		c->pos++;
		if (!skip_digits(c))
			return fault(c, "a number needs a digit here");
	}
	if (peek(c) == 'e' || peek(c) == 'E') {
		*ret_integer = false;
		c->pos++;
		if (peek(c) == '+' || peek(c) == '-')
			c->pos++;
		if (!skip_digits(c))
			return fault(c, "a number needs a digit here");
	}
	return 0;
}

static int check_number(struct checker *c)
{
	char number[NUMBER_MAX + 1];
	size_t start = c->pos, n;
	bool integer;
	long long v;

	if (scan_number(c, &integer) < 0)
		return -1;
	n = c->pos - start;
	if (n > NUMBER_MAX)
		return fault_at(c, start, "number of more than 512 characters");
	memcpy(number, c->text + start, n);
	number[n] = '\0';
	if (integer) {
		errno = 0;
		v = strtoll(number, NULL, 10);
		if (errno || v > INTEGER_MAX || v < -INTEGER_MAX)
			return fault_at(c, start, "integer beyond 9007199254740991");
	} else if (!isfinite(strtod(number, NULL))) {
		return fault_at(c, start, "number too large");
	}
	return 0;
}

static int check_word(struct checker *c, const char *word)
{
	size_t n = strlen(word);

	if (c->len - c->pos < n || memcmp(c->text + c->pos, word, n) != 0)
		return fault(c, "expected a value");
	c->pos += n;
	return 0;
}

/* -- arrays and objects -------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b, void *names)
{
	const struct key *x = a, *y = b;
	const char *bytes = names;
	int order;

	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	order = x->len ? memcmp(bytes + x->at, bytes + y->at, x->len) : 0;
	if (order)
		return order;
	return x->pos < y->pos ? -1 : x->pos > y->pos;
}

static int fault_duplicate(struct checker *c, const struct key *k)
{
	char what[128];
	size_t line, column, n = k->len;
	const char *cut = "";

	if (n > 64) {
		n = utf8_whole(c->names.data + k->at, 64);
		cut = "...";
	}
	(void)snprintf(what, sizeof(what), "duplicate key \"%.*s%s\"", (int)n,
	               n ? c->names.data + k->at : "", cut);
	for (char *p = what; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	place(c, k->pos, &line, &column);
	return err_set(c->e, EINVAL, "line %zu, column %zu: %s", line, column, what);
}

/* The keys above first belong to the object that closes: equal ones are a fault. */
static int check_unique(struct checker *c, size_t first)
{
	size_t n = (c->keys.len - first) / sizeof(struct key);
	const struct key *worst = NULL;
	struct key *keys;

	if (n < 2)
		return 0;
	keys = (struct key *)(void *)(c->keys.data + first);
	qsort_r(keys, n, sizeof(*keys), compare_keys, c->names.data);
	for (size_t i = 1; i < n; i++) {
		const struct key *a = &keys[i - 1], *b = &keys[i];

		if (a->len == b->len &&
		    (!a->len || !memcmp(c->names.data + a->at, c->names.data + b->at, a->len)) &&
		    (!worst || b->pos < worst->pos))
			worst = b;
	}
	return worst ? fault_duplicate(c, worst) : 0;
}

static int check_member(struct checker *c)
{
	struct key k = { .at = (uint32_t)c->names.len, .pos = (uint32_t)c->pos };

	if (peek(c) != '"')
		return fault(c, "expected a key in double quotes");
	if (check_string(c, &c->names) < 0)
		return -1;
	k.len = (uint32_t)(c->names.len - k.at);
	buf_add(&c->keys, &k, sizeof(k));
	if (buf_failed(&c->names) || buf_failed(&c->keys))
		return err_set(c->e, ENOMEM, "no memory to check the keys");
	skip_space(c);
	if (peek(c) != ':')
		return fault(c, "expected ':'");
	c->pos++;
	return check_value(c);
}

/* After the opening bracket; member reads one element. */
static int check_members(struct checker *c, int end, int (*member)(struct checker *))
{
	skip_space(c);
	if (peek(c) == end) {
		c->pos++;
		return 0;
	}
	for (;;) {
		skip_space(c);
		if (member(c) < 0)
			return -1;
		skip_space(c);
		if (peek(c) == end) {
			c->pos++;
			return 0;
		}
		if (peek(c) != ',')
			return fault(c, end == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
		c->pos++;
	}
}

static int check_container(struct checker *c)
{
	size_t keys = c->keys.len, names = c->names.len;
	bool object = peek(c) == '{';

	if (c->depth == JSON_MAX_DEPTH)
		return fault(c, "more than 64 levels");
	c->depth++;
	c->pos++;
	if (object) {
		if (check_members(c, '}', check_member) < 0 || check_unique(c, keys) < 0)
			return -1;
		c->keys.len = keys;
		c->names.len = names;
	} else if (check_members(c, ']', check_value) < 0) {
		return -1;
	}
	c->depth--;
	return 0;
}

static int check_value(struct checker *c)
{
	skip_space(c);
	switch (peek(c)) {
	case '{':
	case '[':
		return check_container(c);
	case '"':
		return check_string(c, NULL);
	case 't':
		return check_word(c, "true");
	case 'f':
		return check_word(c, "false");
	case 'n':
		return check_word(c, "null");
	default:
		if (peek(c) == '-' || is_digit(peek(c)))
			return check_number(c);
		return fault(c, "expected a value");
	}
}

int json_check(const char *text, size_t len, struct err *e)
{
	struct checker c = {
		.text = text,
		.len = len,
		.names = BUF_INIT(len),
		.keys = BUF_INIT(len * sizeof(struct key)),
		.e = e,
	};
	int r;

	if (len > INT_MAX / 16)
		return err_set(e, EINVAL, "more than %d bytes", INT_MAX / 16);
	r = check_value(&c);
	if (r == 0) {
		skip_space(&c);
		if (c.pos < c.len)
			r = fault(&c, "more text after the value");
	}
	buf_release(&c.names);
	buf_release(&c.keys);
	return r;
}

bool json_too_many(const char *text, size_t len, size_t max)
{
	size_t n = 0;
	bool quoted = false;

	for (size_t i = 0; i < len && n <= max; i++) {
		if (quoted && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			quoted = !quoted;
		else if (!quoted)
			n += text[i] == ',' || text[i] == ':' || text[i] == '[' || text[i] == '{';
	}
	return n > max;
}
