/* json-c has types of these names too. */
#define json_type jsonc_type
#define json_bool jsonc_bool
#include <json-c/json.h>
#undef json_type
#undef json_bool

#include "common/json.h"
#include "common/utf8.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * json-c stands for null with a NULL pointer, which could not be told from an
 * absent value.  Outside this file null is the address of null_value; every
 * other struct json is a json_object under another name.
 */
struct json {
	char unused;
};
static struct json null_value;

static struct json *wrap(struct json_object *o)
{
	return o ? (struct json *)(void *)o : &null_value;
}

/* json-c takes even what it only reads without const; a union says so without a cast. */
static struct json_object *unwrap(const struct json *v)
{
	union {
		const struct json *ours;
		struct json_object *theirs;
	} name = { .ours = v };

	return v == &null_value ? NULL : name.theirs;
}

static struct json_object *made(struct json_object *o)
{
	if (!o)
		abort();
	return o;
}

/* -- parsing ------------------------------------------------------------------------- */

int json_parse(const char *text, size_t len, struct json **ret, struct err *e)
{
	struct json_tokener *tok;
	struct json_object *o;
	enum json_tokener_error outcome;

	if (json_check(text, len, e) < 0)
		return -1;
	tok = json_tokener_new_ex(JSON_MAX_DEPTH + 2);
	if (!tok)
		return err_set(e, ENOMEM, "no memory to read JSON");
	o = json_tokener_parse_ex(tok, text, (int)len);
	/* A bare number or word could go on, as far as json-c can tell. */
	if (json_tokener_get_error(tok) == json_tokener_continue)
		o = json_tokener_parse_ex(tok, "", 1);
	outcome = json_tokener_get_error(tok);
	json_tokener_free(tok);
	if (outcome != json_tokener_success) {
		json_object_put(o);
		return err_set(e, EINVAL, "%s", json_tokener_error_desc(outcome));
	}
	*ret = wrap(o);
	return 0;
}

void json_free(struct json **v)
{
	if (*v)
		json_object_put(unwrap(*v));
	*v = NULL;
}

/* -- reading ------------------------------------------------------------------------- */

enum json_type json_type(const struct json *v)
{
	switch (json_object_get_type(unwrap(v))) {
	case json_type_boolean:
		return JSON_BOOL;
	case json_type_int:
		return JSON_INT;
	case json_type_double:
		return JSON_DOUBLE;
	case json_type_string:
		return JSON_STRING;
	case json_type_array:
		return JSON_ARRAY;
	case json_type_object:
		return JSON_OBJECT;
	case json_type_null:
	default:
		return JSON_NULL;
	}
}

static bool is(const struct json *v, enum json_type type)
{
	return v && json_type(v) == type;
}

const char *json_str(const struct json *v)
{
	return is(v, JSON_STRING) ? json_object_get_string(unwrap(v)) : NULL;
}

size_t json_str_len(const struct json *v)
{
	return is(v, JSON_STRING) ? (size_t)json_object_get_string_len(unwrap(v)) : 0;
}

int64_t json_int(const struct json *v)
{
	return is(v, JSON_INT) ? json_object_get_int64(unwrap(v)) : 0;
}

double json_double(const struct json *v)
{
	return is(v, JSON_DOUBLE) || is(v, JSON_INT) ? json_object_get_double(unwrap(v)) : 0;
}

bool json_bool(const struct json *v)
{
	return is(v, JSON_BOOL) && json_object_get_boolean(unwrap(v));
}

size_t json_len(const struct json *array)
{
	return is(array, JSON_ARRAY) ? json_object_array_length(unwrap(array)) : 0;
}

const struct json *json_at(const struct json *array, size_t i)
{
	if (i >= json_len(array))
		return NULL;
	return wrap(json_object_array_get_idx(unwrap(array), i));
}

const struct json *json_get(const struct json *object, const char *key)
{
	struct json_object *value;

	if (!is(object, JSON_OBJECT) || !json_object_object_get_ex(unwrap(object), key, &value))
		return NULL;
	return wrap(value);
}

void json_each(const struct json *object,
               void (*fn)(void *ctx, const char *key, const struct json *value), void *ctx)
{
	struct lh_entry *entry;

	if (!is(object, JSON_OBJECT))
		return;
	lh_foreach(json_object_get_object(unwrap(object)), entry)
		fn(ctx, lh_entry_k(entry), wrap(lh_entry_v(entry)));
}

/* -- faults -------------------------------------------------------------------------- */

void json_fault(struct json_faults *f, const char *path, const char *fmt, ...)
{
	struct err text = ERR_INIT;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text.text, sizeof(text.text), fmt, ap);
	va_end(ap);
	if (f->report)
		f->report(f->ctx, path, text.text);
	if (f->count++ == 0) {
		(void)err_set(&f->first, EINVAL, "%s", text.text);
		if (*path)
			(void)err_wrap(&f->first, "%s", path);
	}
}

void json_report_line(void *ctx, const char *path, const char *text)
{
	const struct json_lines *to = ctx;
	char line[1024];

	(void)snprintf(line, sizeof(line), "%s%s%s", path, *path ? ": " : "", text);
	to->line(to->ctx, line);
}

/* Keys come from the document: they must not forge a line of output. */
static void mask_control(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

static void end_whole(char *text, int wanted, size_t size)
{
	if (wanted >= 0 && (size_t)wanted >= size)
		text[utf8_whole(text, strlen(text))] = '\0';
	mask_control(text);
}

void json_path_field(char *ret, size_t size, const char *path, const char *name)
{
	end_whole(ret, snprintf(ret, size, "%s%s%s", path, *path ? "." : "", name), size);
}

void json_path_index(char *ret, size_t size, const char *path, size_t index)
{
	end_whole(ret, snprintf(ret, size, "%s[%zu]", path, index), size);
}

static const char *type_name(enum json_type type)
{
	static const char *const names[] = {
		[JSON_NULL] = "null",        [JSON_BOOL] = "a boolean",
		[JSON_INT] = "an integer",   [JSON_DOUBLE] = "a number",
		[JSON_STRING] = "a string",  [JSON_ARRAY] = "an array",
		[JSON_OBJECT] = "an object", [JSON_ANY] = "a value other than null",
	};

	return names[type];
}

static bool type_fits(enum json_type wanted, enum json_type actual)
{
	switch (wanted) {
	case JSON_ANY:
		return actual != JSON_NULL;
	case JSON_DOUBLE:
		return actual == JSON_DOUBLE || actual == JSON_INT;
	case JSON_NULL:
	case JSON_BOOL:
	case JSON_INT:
	case JSON_STRING:
	case JSON_ARRAY:
	case JSON_OBJECT:
	default:
		return actual == wanted;
	}
}

struct closed_table {
	const struct json_field *fields;
	size_t n;
	const char *path;
	struct json_faults *faults;
};

static void refuse_unknown(void *ctx, const char *key, const struct json *value)
{
	const struct closed_table *t = ctx;
	char path[256];

	(void)value;
	for (size_t i = 0; i < t->n; i++)
		if (strcmp(t->fields[i].name, key) == 0)
			return;
	json_path_field(path, sizeof(path), t->path, key);
	json_fault(t->faults, path, "unknown field");
}

static const struct json *match_field(const struct json *object, const char *parent,
                                      const struct json_field *field, struct json_faults *f)
{
	const struct json *v = json_get(object, field->name);
	enum json_type type = json_type(v);
	char path[256];

	json_path_field(path, sizeof(path), parent, field->name);
	if (v && type == JSON_NULL && field->nullable)
		v = NULL;
	if (!v) {
		if (field->required)
			json_fault(f, path, "required field is missing");
		return NULL;
	}
	if (type_fits(field->type, type))
		return v;
	json_fault(f, path, "expected %s, found %s", type_name(field->type), type_name(type));
	return NULL;
}

bool json_fields(const struct json *object, const char *path, const struct json_field *fields,
                 size_t n, const struct json **ret, struct json_faults *f)
{
	struct closed_table t = { .fields = fields, .n = n, .path = path, .faults = f };
	size_t before = f->count;

	for (size_t i = 0; i < n; i++)
		ret[i] = NULL;
	if (json_type(object) != JSON_OBJECT) {
		json_fault(f, path, "expected an object, found %s", type_name(json_type(object)));
		return false;
	}
	json_each(object, refuse_unknown, &t);
	for (size_t i = 0; i < n; i++)
		ret[i] = match_field(object, path, &fields[i], f);
	return f->count == before;
}

/* -- building ------------------------------------------------------------------------ */

struct json *json_new_object(void)
{
	return wrap(made(json_object_new_object()));
}

struct json *json_new_array(void)
{
	return wrap(made(json_object_new_array()));
}

static void put(struct json *object, const char *key, struct json_object *value)
{
	if (json_object_object_add(unwrap(object), key, value) < 0)
		abort();
}

static struct json_object *new_string(const char *value, size_t len)
{
	if (len > INT_MAX)
		abort();
	return made(json_object_new_string_len(value, (int)len));
}

void json_put_strn(struct json *object, const char *key, const char *value, size_t len)
{
	put(object, key, new_string(value, len));
}

void json_put_str(struct json *object, const char *key, const char *value)
{
	put(object, key, value ? new_string(value, strlen(value)) : NULL);
}

void json_put_int(struct json *object, const char *key, int64_t value)
{
	put(object, key, made(json_object_new_int64(value)));
}

/* The shortest of three forms that reads back as the same number. */
static void format_double(double value, char *ret, size_t size)
{
	for (int digits = 15; digits <= 17; digits++) {
		(void)snprintf(ret, size, "%.*g", digits, value);
		if (digits == 17 || fabs(strtod(ret, NULL) - value) <= 0)
			break;
	}
}

void json_put_double(struct json *object, const char *key, double value)
{
	put(object, key, isfinite(value) ? made(json_object_new_double(value)) : NULL);
}

void json_put_bool(struct json *object, const char *key, bool value)
{
	put(object, key, made(json_object_new_boolean(value)));
}

void json_put_null(struct json *object, const char *key)
{
	put(object, key, NULL);
}

void json_put(struct json *object, const char *key, struct json *value)
{
	put(object, key, unwrap(value));
}

void json_push(struct json *array, struct json *value)
{
	if (json_object_array_add(unwrap(array), unwrap(value)) < 0)
		abort();
}

void json_push_str(struct json *array, const char *value)
{
	json_push(array, wrap(new_string(value, strlen(value))));
}

struct json *json_copy(const struct json *v)
{
	struct json_object *copy = NULL;

	if (unwrap(v) && json_object_deep_copy(unwrap(v), &copy, NULL) < 0)
		abort();
	return wrap(copy);
}

/* -- writing ------------------------------------------------------------------------- */

void json_write_string(const char *text, size_t len, struct buf *b)
{
	static const char escapes[] = "\"\"\\\\\bb\ff\nn\rr\tt";
	size_t start = 0;

	buf_addc(b, '"');
	for (size_t i = 0; i < len; i++) {
		const char *found = NULL;

		if ((unsigned char)text[i] >= 0x20 && text[i] != '"' && text[i] != '\\')
			continue;
		buf_add(b, text + start, i - start);
		start = i + 1;
		for (size_t k = 0; k < sizeof(escapes) - 1 && !found; k += 2)
			if (escapes[k] == text[i])
				found = &escapes[k + 1];
		if (found)
			buf_addf(b, "\\%c", *found);
		else
			buf_addf(b, "\\u%04x", (unsigned int)(unsigned char)text[i]);
	}
	buf_add(b, text + start, len - start);
	buf_addc(b, '"');
}

static void write_double(const struct json *v, struct buf *b)
{
	const char *original = json_object_get_userdata(unwrap(v));
	char text[40];

	if (!original) {
		format_double(json_object_get_double(unwrap(v)), text, sizeof(text));
		original = text;
	}
	buf_adds(b, original);
}

static void write_array(const struct json *v, struct buf *b)
{
	buf_addc(b, '[');
	for (size_t i = 0; i < json_len(v); i++) {
		if (i)
			buf_addc(b, ',');
		json_write(json_at(v, i), b);
	}
	buf_addc(b, ']');
}

static void write_object(const struct json *v, struct buf *b)
{
	struct lh_entry *entry;
	const char *sep = "{";

	lh_foreach(json_object_get_object(unwrap(v)), entry)
	{
		const char *key = lh_entry_k(entry);

		buf_adds(b, sep);
		json_write_string(key, strlen(key), b);
		buf_addc(b, ':');
		json_write(wrap(lh_entry_v(entry)), b);
		sep = ",";
	}
	buf_adds(b, *sep == '{' ? "{}" : "}");
}

/* Written here, because json-c's writer keeps a second copy of the text in the value. */
void json_write(const struct json *v, struct buf *b)
{
	switch (json_type(v)) {
	case JSON_BOOL:
		buf_adds(b, json_bool(v) ? "true" : "false");
		return;
	case JSON_INT:
		buf_addf(b, "%lld", (long long)json_int(v));
		return;
	case JSON_DOUBLE:
		write_double(v, b);
		return;
	case JSON_STRING:
		json_write_string(json_object_get_string(unwrap(v)), json_str_len(v), b);
		return;
	case JSON_ARRAY:
		write_array(v, b);
		return;
	case JSON_OBJECT:
		write_object(v, b);
		return;
	case JSON_NULL:
	case JSON_ANY:
	default:
		buf_adds(b, "null");
	}
}
