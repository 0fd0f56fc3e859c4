#include "daemon/harness/message.h"

#include "common/id.h"
#include "daemon/harness/line.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const type_names[] = {
	[MESSAGE_MALFORMED] = "malformed", [MESSAGE_UNKNOWN] = "unknown",
	[MESSAGE_READY] = "ready",         [MESSAGE_HELLO] = "hello",
	[MESSAGE_PONG] = "pong",           [MESSAGE_ERROR] = "error",
	[MESSAGE_START] = "start",         [MESSAGE_DELTA] = "delta",
	[MESSAGE_NOTIFY] = "notify",       [MESSAGE_LOG] = "log",
	[MESSAGE_RESULT] = "result",
};

const char *message_type_name(enum message_type type)
{
	return type_names[type];
}

/* -- reading ------------------------------------------------------------------------------ */

static int parse(const char *line, size_t len, struct message *m)
{
	if (json_too_many(line, len, HARNESS_VALUES_MAX))
		return err_set(&m->why, EINVAL, "more than %d values", HARNESS_VALUES_MAX);
	if (json_parse(line, len, &m->doc, &m->why))
		return -1;
	if (json_type(m->doc) != JSON_OBJECT)
		return err_set(&m->why, EINVAL, "not an object");
	return 0;
}

/* A text that may be missing or null, and nothing else. */
static int take_text(struct message *m, const char *key, size_t max, const char **ret)
{
	const struct json *v = json_get(m->doc, key);

	if (!v || json_type(v) == JSON_NULL)
		return 0;
	if (json_type(v) != JSON_STRING || json_str_len(v) > max)
		return err_set(&m->why, EINVAL, "%s: not a string of at most %zu bytes", key, max);
	*ret = json_str(v);
	return 0;
}

static int take_seq(struct message *m)
{
	const struct json *v = json_get(m->doc, "seq");

	if (!v || json_type(v) == JSON_NULL)
		return 0;
	if (json_type(v) != JSON_INT || json_int(v) < 1)
		return err_set(&m->why, EINVAL, "seq: not an integer from 1 on");
	m->seq = json_int(v);
	return 0;
}

static int take_envelope(struct message *m)
{
	return take_seq(m) || take_text(m, "run_id", HARNESS_RUN_ID_MAX, &m->run_id) ||
	                       take_text(m, "op_id", HARNESS_RUN_ID_MAX, &m->op_id)
	               ? -1
	               : 0;
}

static int need(struct message *m, const char *key, const char *value)
{
	return value ? 0 : err_set(&m->why, EINVAL, "%s: missing", key);
}

/* The message of an error stands in it, and flat beside it. */
static int take_error(struct message *m)
{
	const struct json *error = json_get(m->doc, "error");

	if (take_text(m, "message", HARNESS_LINE_MAX, &m->text))
		return -1;
	if (!m->text && error)
		m->text = json_str(json_type(error) == JSON_STRING ? error
		                                                   : json_get(error, "message"));
	if (!m->text)
		m->text = "";
	return 0;
}

static int take_content(struct message *m)
{
	switch (m->type) {
	case MESSAGE_DELTA:
		return take_text(m, "text", HARNESS_LINE_MAX, &m->text) || need(m, "text", m->text)
		               ? -1
		               : 0;
	case MESSAGE_LOG:
		return take_text(m, "message", HARNESS_LINE_MAX, &m->text) ||
		                       need(m, "message", m->text)
		               ? -1
		               : 0;
	case MESSAGE_NOTIFY:
		m->data = json_get(m->doc, "data");
		return take_text(m, "kind", HARNESS_LINE_MAX, &m->kind) || need(m, "kind", m->kind)
		               ? -1
		               : 0;
	case MESSAGE_ERROR:
		return take_error(m);
	case MESSAGE_MALFORMED:
	case MESSAGE_UNKNOWN:
	case MESSAGE_READY:
	case MESSAGE_HELLO:
	case MESSAGE_PONG:
	case MESSAGE_START:
	case MESSAGE_RESULT:
		break;
	}
	return 0;
}

static int take_type(struct message *m)
{
	const struct json *v = json_get(m->doc, "type");
	const char *name = v && json_type(v) == JSON_STRING ? json_str(v) : NULL;

	if (!name)
		return err_set(&m->why, EINVAL, "type: missing, or not a string");
	m->type = MESSAGE_UNKNOWN;
	for (size_t i = MESSAGE_READY; i < ARRAY_LEN(type_names); i++)
		if (strcmp(type_names[i], name) == 0)
			m->type = (enum message_type)i;
	return 0;
}

void message_read(const char *line, size_t len, struct message *ret)
{
	*ret = (struct message){ .type = MESSAGE_MALFORMED };
	if (parse(line, len, ret) == 0 && take_type(ret) == 0 && take_envelope(ret) == 0 &&
	    take_content(ret) == 0)
		return;
	message_release(ret);
}

void message_release(struct message *m)
{
	struct err why = m->why;

	json_free(&m->doc);
	*m = (struct message){ .type = MESSAGE_MALFORMED, .why = why };
}

/* -- abilities ---------------------------------------------------------------------------- */

static int64_t version_of(const struct message *m)
{
	static const char *const keys[] = { "protocol_version", "protocol" };

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const struct json *v = json_get(m->doc, keys[i]);

		if (v)
			return json_type(v) == JSON_INT ? json_int(v) : HARNESS_PROTOCOL;
	}
	return HARNESS_PROTOCOL;
}

static bool is_able(const struct message *m, const char *ability)
{
	const struct json *list = json_get(m->doc, "capabilities");

	for (size_t i = 0; i < json_len(list); i++)
		if (json_str(json_at(list, i)) && strcmp(json_str(json_at(list, i)), ability) == 0)
			return true;
	return false;
}

void message_abilities(const struct message *m, struct message_abilities *ret)
{
	ret->version = version_of(m);
	ret->pid = json_int(json_get(m->doc, "pid"));
	ret->hello = is_able(m, "hello");
	ret->op_id = is_able(m, "op_id");
	ret->ping = is_able(m, "ping");
	ret->ask_id = is_able(m, "ask_id");
}

/* -- writing ------------------------------------------------------------------------------ */

static struct json *new_op(const char *op, const char *op_id)
{
	struct json *o = json_new_object();

	json_put_str(o, "op", op);
	if (op_id)
		json_put_str(o, "op_id", op_id);
	return o;
}

static void put(struct buf *out, struct json *op)
{
	json_write(op, out);
	buf_addc(out, '\n');
	json_free(&op);
}

void message_put_submit(struct buf *out, const char *run_id, const char *prompt, const char *op_id)
{
	struct json *o = new_op("submit", op_id);

	json_put_str(o, "run_id", run_id);
	json_put_str(o, "prompt", prompt);
	put(out, o);
}

void message_put_answer(struct buf *out, const char *run_id, const struct json *answers,
                        const char *ask_id, const char *op_id)
{
	struct json *o = new_op("answer", op_id);

	json_put_str(o, "run_id", run_id);
	json_put(o, "answers", json_copy(answers));
	if (ask_id)
		json_put_str(o, "ask_id", ask_id);
	put(out, o);
}

void message_put_cancel(struct buf *out, const char *run_id, const char *op_id)
{
	struct json *o = new_op("cancel", op_id);

	json_put_str(o, "run_id", run_id);
	put(out, o);
}

void message_put_hello(struct buf *out, const char *op_id)
{
	buf_addf(out, "{\"op\":\"hello\",\"op_id\":\"%s\",\"protocol_versions\":[%d]}\n", op_id,
	         HARNESS_PROTOCOL);
}

void message_put_ping(struct buf *out, const char *op_id)
{
	put(out, new_op("ping", op_id));
}

void message_put_shutdown(struct buf *out)
{
	put(out, new_op("shutdown", NULL));
}

void message_op_id(char ret[HARNESS_OP_ID_LEN + 1])
{
	unsigned char bytes[HARNESS_OP_ID_LEN / 2];

	random_bytes(bytes, sizeof(bytes));
	for (size_t i = 0; i < sizeof(bytes); i++)
		(void)snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}
