#include "daemon/turn/render.h"

#include "common/clock.h"

#include <string.h>

void json_put_time(struct json *o, const char *key, uint64_t wall_ms)
{
	char text[CLOCK_TEXT_SIZE];

	if (wall_ms)
		clock_format(wall_ms, text);
	json_put_str(o, key, wall_ms ? text : NULL);
}

void json_put_cost(struct json *o, const char *key, int64_t nano)
{
	if (nano < 0)
		json_put_null(o, key);
	else
		json_put_double(o, key, (double)nano / 1e9);
}

struct json *usage_json(uint64_t input, uint64_t output, uint64_t cached, uint64_t reasoning,
                        int64_t cost_nano)
{
	struct json *o = json_new_object();

	json_put_int(o, "input", (int64_t)input);
	json_put_int(o, "output", (int64_t)output);
	json_put_int(o, "cached", (int64_t)cached);
	json_put_int(o, "reasoning", (int64_t)reasoning);
	json_put_cost(o, "cost", cost_nano);
	return o;
}

struct json *request_json(const struct request *q)
{
	static const char *const states[] = { "open", "answered", "withdrawn", "expired" };
	struct json *o = json_new_object(), *options = NULL;
	struct err e = ERR_INIT;

	json_put_str(o, "id", q->id.text);
	json_put_str(o, "turnId", q->turn.text);
	json_put_str(o, "sessionId", q->session.text);
	json_put_str(o, "kind", q->kind);
	json_put_str(o, "prompt", q->prompt);
	if (json_parse(q->options, strlen(q->options), &options, &e))
		options = json_new_array();
	json_put(o, "options", options);
	json_put_time(o, "createdAt", q->created_ms);
	json_put_time(o, "expiresAt", q->expires_ms);
	json_put_str(o, "status", states[q->state]);
	json_put_str(o, "decision", q->decision);
	json_put_str(o, "value", q->value);
	return o;
}

struct json *request_resolved_json(const struct uuid *id, const char *status)
{
	struct json *o = json_new_object();

	json_put_str(o, "requestId", id->text);
	json_put_str(o, "status", status);
	return o;
}
