/*
 * Each call looks its output up anew in every step: it may have been dropped since.
 */
#include "guest/output.h"

#include "common/clock.h"
#include "guest/exec.h"
#include "guest/fault.h"
#include "guest/loop.h"
#include "guest/spool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MAX     60000 /* milliseconds */
#define COMMANDS_MAX 32    /* told of at once */

struct output_call {
	struct call call;
	char id[SPOOL_ID];
	uint64_t deadline_ms; /* to wait for output; 0 = not at all */
	bool begun;           /* offset is where the first byte is */
	uint64_t offset;      /* of the first byte sent */
	uint64_t sent;
	uint64_t left;
};

static char chunk[FRAME_DATA_MAX];

static struct output_call *output_of(struct call *c)
{
	return source_owner(c, struct output_call, call);
}

static struct spool *find(const char *id, struct err *e)
{
	struct spool *s = spool_find(id);

	if (!s)
		(void)err_set(e, ENOENT, "no output %s, or it is not kept any more", id);
	return s;
}

static struct json *state_of(const struct spool *s)
{
	struct json *o = s->result ? json_copy(s->result) : json_new_object();

	json_put_bool(o, "running", s->owner != NULL);
	json_put_int(o, "total", (int64_t)s->total);
	return o;
}

/* -- output --------------------------------------------------------------------------------- */

static void output_exit(struct output_call *o, const struct spool *s)
{
	struct json *result = state_of(s);
	uint64_t from, to;

	spool_gap(s, &from, &to);
	json_put_int(result, "offset", (int64_t)o->offset);
	json_put_int(result, "bytes", (int64_t)o->sent);
	json_put_int(result, "gapFrom", (int64_t)from);
	json_put_int(result, "gapTo", (int64_t)to);
	call_exit(&o->call, result);
}

/* The first byte that is there, from the one that was asked for on. */
static void begin(struct output_call *o, const struct spool *s)
{
	uint64_t from, to;

	spool_gap(s, &from, &to);
	if (o->offset >= from && o->offset < to)
		o->offset = to;
	if (o->offset + o->left > s->total)
		o->left = o->offset < s->total ? s->total - o->offset : 0;
	o->begun = true;
}

/* False when what comes next has been dropped since. */
static bool in_reach(const struct output_call *o, const struct spool *s)
{
	uint64_t from, to, at = o->offset + o->sent;

	spool_gap(s, &from, &to);
	return at < from || at >= to;
}

static void output_step(struct call *c, struct turn *t)
{
	struct output_call *o = output_of(c);
	struct err e = ERR_INIT;
	const struct spool *s = find(o->id, &e);
	size_t n = call_sendable(c);

	if (!s) {
		call_fail(c, &e);
		return;
	}
	if (!o->begun && s->owner && s->total <= o->offset && t->now_ms < o->deadline_ms) {
		turn_wake(t, o->deadline_ms);
		return;
	}
	if (!o->begun)
		begin(o, s);
	if (!n && o->left)
		return;
	n = n < o->left ? n : (size_t)o->left;
	n = n && in_reach(o, s) ? spool_read(s, o->offset + o->sent, chunk, n) : 0;
	if (!n) {
		output_exit(o, s);
		return;
	}
	call_send(c, FRAME_STDOUT, chunk, n);
	o->sent += n;
	o->left -= n;
	turn_wake(t, t->now_ms);
}

/* -- input, stop, commands -------------------------------------------------------------------- */

static void stop_step(struct call *c, struct turn *t)
{
	struct err e = ERR_INIT;
	const struct spool *s = find(output_of(c)->id, &e);

	(void)t;
	if (!s)
		call_fail(c, &e);
	else if (!s->owner)
		call_exit(c, state_of(s));
}

static void output_release(struct call *c)
{
	free(output_of(c));
}

static const struct call_kind output_kind = {
	.input = call_drop_input,
	.end = call_ignore_end,
	.cancel = call_cancelled,
	.step = output_step,
	.release = output_release,
};

static const struct call_kind stop_kind = {
	.input = call_drop_input,
	.end = call_ignore_end,
	.cancel = call_cancelled,
	.step = stop_step,
	.release = output_release,
};

/* Answered as soon as it has an id. */
struct answer_call {
	struct call call;
	struct json *result; /* owned until it is sent */
};

static void answer_step(struct call *c, struct turn *t)
{
	struct answer_call *a = source_owner(c, struct answer_call, call);
	struct json *result = a->result;

	(void)t;
	a->result = NULL;
	call_exit(c, result);
}

static void answer_release(struct call *c)
{
	struct answer_call *a = source_owner(c, struct answer_call, call);

	json_free(&a->result);
	free(a);
}

static const struct call_kind answer_kind = {
	.input = call_drop_input,
	.end = call_ignore_end,
	.cancel = call_cancelled,
	.step = answer_step,
	.release = answer_release,
};

/* Takes result. */
static struct call *answer(struct json *result, struct err *e)
{
	struct answer_call *a = calloc(1, sizeof(*a));

	if (!a) {
		json_free(&result);
		(void)err_set(e, ENOMEM, "no memory for a call");
		return NULL;
	}
	a->result = result;
	return call_init(&a->call, &answer_kind);
}

/* -- requests ------------------------------------------------------------------------------- */

static int match(const struct json *request, const struct json_field *fields, size_t n,
                 const struct json **v, struct err *e)
{
	struct json_faults faults = { .count = 0 };

	if (!json_fields(request, "", fields, n, v, &faults))
		return err_set(e, FAULT_INVALID, "%s", faults.first.text);
	if (n > 1 && json_str_len(v[1]) >= SPOOL_ID)
		return err_set(e, FAULT_INVALID, "id: too long");
	return 0;
}

static struct output_call *new_call(const struct json *id, const struct call_kind *kind,
                                    struct err *e)
{
	struct output_call *o = calloc(1, sizeof(*o));

	if (!o) {
		(void)err_set(e, ENOMEM, "no memory for a call");
		return NULL;
	}
	(void)call_init(&o->call, kind);
	memcpy(o->id, json_str(id), json_str_len(id) + 1);
	return o;
}

struct call *output_start(const struct json *request, struct err *e)
{
	static const struct json_field fields[] = {
		{ .name = "op", .type = JSON_STRING, .required = true },
		{ .name = "id", .type = JSON_STRING, .required = true },
		{ .name = "offset", .type = JSON_INT },
		{ .name = "limit", .type = JSON_INT },
		{ .name = "waitMs", .type = JSON_INT },
	};
	const struct json *v[ARRAY_LEN(fields)];
	struct output_call *o;

	if (match(request, fields, ARRAY_LEN(fields), v, e) < 0 || !find(json_str(v[1]), e))
		return NULL;
	for (size_t i = 2; i < ARRAY_LEN(fields); i++) {
		if (v[i] && json_int(v[i]) < 0) {
			(void)err_set(e, FAULT_INVALID, "%s: must not be negative", fields[i].name);
			return NULL;
		}
	}
	if (v[4] && json_int(v[4]) > WAIT_MAX) {
		(void)err_set(e, FAULT_INVALID, "waitMs: at most %d", WAIT_MAX);
		return NULL;
	}
	o = new_call(v[1], &output_kind, e);
	if (!o)
		return NULL;
	o->offset = v[2] ? (uint64_t)json_int(v[2]) : 0;
	o->left = v[3] ? (uint64_t)json_int(v[3]) : UINT32_MAX;
	o->deadline_ms = v[4] ? clock_mono_ms() + (uint64_t)json_int(v[4]) : 0;
	return &o->call;
}

/* The background command of an id; NULL with e, also when it has ended. */
static struct exec *running(const struct json *id, struct err *e)
{
	const struct spool *s = find(json_str(id), e);

	if (s && (!s->owner || !s->background))
		(void)err_set(e, FAULT_INVALID, "%s does not run in the background", s->id);
	return s && s->background ? s->owner : NULL;
}

struct call *input_start(const struct json *request, struct err *e)
{
	static const struct json_field fields[] = {
		{ .name = "op", .type = JSON_STRING, .required = true },
		{ .name = "id", .type = JSON_STRING, .required = true },
		{ .name = "data", .type = JSON_STRING, .required = true },
		{ .name = "end", .type = JSON_BOOL },
	};
	const struct json *v[ARRAY_LEN(fields)];
	struct json *result;
	struct exec *x;

	if (match(request, fields, ARRAY_LEN(fields), v, e) < 0)
		return NULL;
	x = running(v[1], e);
	if (!x || exec_write(x, json_str(v[2]), json_str_len(v[2]), v[3] && json_bool(v[3]), e) < 0)
		return NULL;
	result = json_new_object();
	json_put_int(result, "bytes", (int64_t)json_str_len(v[2]));
	return answer(result, e);
}

struct call *stop_start(const struct json *request, struct err *e)
{
	static const struct json_field fields[] = {
		{ .name = "op", .type = JSON_STRING, .required = true },
		{ .name = "id", .type = JSON_STRING, .required = true },
	};
	const struct json *v[ARRAY_LEN(fields)];
	struct output_call *o;
	struct exec *x;

	if (match(request, fields, ARRAY_LEN(fields), v, e) < 0)
		return NULL;
	x = running(v[1], e);
	o = x ? new_call(v[1], &stop_kind, e) : NULL;
	if (!o)
		return NULL;
	exec_stop(x);
	return &o->call;
}

static void add_command(void *ctx, const struct spool *s)
{
	struct json *list = ctx, *o;

	if (!s->background || json_len(list) == COMMANDS_MAX)
		return;
	o = state_of(s);
	json_put_str(o, "id", s->id);
	json_put_str(o, "command", s->name);
	json_push(list, o);
}

struct call *commands_start(const struct json *request, struct err *e)
{
	static const struct json_field fields[] = {
		{ .name = "op", .type = JSON_STRING, .required = true },
	};
	const struct json *v[ARRAY_LEN(fields)];
	struct json *result, *list;

	if (match(request, fields, ARRAY_LEN(fields), v, e) < 0)
		return NULL;
	result = json_new_object();
	list = json_new_array();
	spool_each(add_command, list);
	json_put(result, "commands", list);
	return answer(result, e);
}
