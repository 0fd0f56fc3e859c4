/*
 * json.h - strict JSON.
 *
 * json-c sits behind this module.  Because json-c accepts duplicate keys, single
 * quotes and NaN even in strict mode and clamps large integers, every text first
 * passes json_check(), which accepts exactly I-JSON (RFC 7493) with a few bounds:
 * UTF-8 without U+0000, no lone surrogates, no duplicate keys, integers within
 * +-(2^53-1), finite doubles, at most 64 levels, nothing after the value.
 * Syntax faults name line and column; type and field faults name the JSON path.
 */
#ifndef COMMON_JSON_H
#define COMMON_JSON_H

#include "common/attr.h"
#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_MAX_DEPTH 64

struct json; /* a value; the root is owned, everything below it is borrowed */

enum json_type {
	JSON_NULL,
	JSON_BOOL,
	JSON_INT,
	JSON_DOUBLE,
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT,
	JSON_ANY, /* in a field table only: any type but null */
};

#define auto_json __attribute__((cleanup(json_free)))

/* Error text: "line 3, column 7: duplicate key \"a\"".  Code EINVAL. */
int json_check(const char *text, size_t len, struct err *e) must_check;

/*
 * Whether a text of somebody else's has more than max values, counted about and never too few:
 * one of two bytes takes up to 800 when it is parsed.  What is long in an honest text is strings.
 */
#define JSON_VALUES_MAX 65536 /* for texts that have no closer bound */
bool json_too_many(const char *text, size_t len, size_t max);

/* Check and parse.  The caller owns *ret and ends it with json_free(). */
int json_parse(const char *text, size_t len, struct json **ret, struct err *e) must_check;

void json_free(struct json **v);

/* -- reading; wrong types give NULL, 0 or false, so check the type (or use json_fields) first -- */
enum json_type json_type(const struct json *v);
const char *json_str(const struct json *v);
size_t json_str_len(const struct json *v);
int64_t json_int(const struct json *v);
double json_double(const struct json *v);
bool json_bool(const struct json *v);
size_t json_len(const struct json *array);
const struct json *json_at(const struct json *array, size_t i);
const struct json *json_get(const struct json *object, const char *key);

/* Calls fn for each member in document order. */
void json_each(const struct json *object,
               void (*fn)(void *ctx, const char *key, const struct json *value), void *ctx);

/*
 * Faults found while reading a document.  Each is reported with its path; the
 * first is kept as well, for callers who answer with one.
 */
struct json_faults {
	void (*report)(void *ctx, const char *path, const char *text); /* may be NULL */
	void *ctx;
	size_t count;
	struct err first; /* "<path>: <text>", code EINVAL */
};

void json_fault(struct json_faults *f, const char *path, const char *fmt, ...) printf_like(3, 4);

/* As report, with a struct json_lines as ctx: one line for each fault, "PATH: TEXT". */
struct json_lines {
	void (*line)(void *ctx, const char *line);
	void *ctx;
};

void json_report_line(void *ctx, const char *path, const char *text);

struct json_field {
	const char *name;
	enum json_type type;
	bool required;
	bool nullable; /* null counts as absent */
};

/*
 * Match an object against a closed table of n fields.  ret[i] is the borrowed
 * value of fields[i], or NULL when absent.  Reports unknown fields, missing
 * required ones and wrong types below path ("" for the root), all of them;
 * false when there was any.
 */
bool json_fields(const struct json *object, const char *path, const struct json_field *fields,
                 size_t n, const struct json **ret, struct json_faults *f);

/* "a.b" or "b" when path is empty; "a[3]". */
void json_path_field(char *ret, size_t size, const char *path, const char *name);
void json_path_index(char *ret, size_t size, const char *path, size_t index);

/* -- building; a failed allocation ends the program (the values built are small and bounded) -- */
struct json *json_new_object(void);
struct json *json_new_array(void);
void json_put_str(struct json *object, const char *key, const char *value); /* NULL value: null */
void json_put_strn(struct json *object, const char *key, const char *value, size_t len);
void json_put_int(struct json *object, const char *key, int64_t value);
void json_put_double(struct json *object, const char *key, double value);
void json_put_bool(struct json *object, const char *key, bool value);
void json_put_null(struct json *object, const char *key);
void json_put(struct json *object, const char *key, struct json *value); /* takes value */
void json_push(struct json *array, struct json *value);                  /* takes value */
void json_push_str(struct json *array, const char *value);
struct json *json_copy(const struct json *v); /* deep copy, owned by the caller */

/* Append the compact text of v (one line, "/" not escaped) to b. */
void json_write(const struct json *v, struct buf *b);

/* Append text as a JSON string, quotes included.  text must be UTF-8. */
void json_write_string(const char *text, size_t len, struct buf *b);

#endif
