/*
 * What a harness says and which tools it uses become items of the turn.  Its vocabulary: a
 * round begins with text, "tool_start" names the tools of it, "tool_calls" says with which
 * arguments, "tool_running" and "tool" that one begins and ends.  Any of these may be
 * missing, and the order of the first two does not count.
 */
#include "common/fd.h"
#include "common/utf8.h"
#include "daemon/tool/output.h"
#include "daemon/turn/harness_run.h"
#include "daemon/turn/tell.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- text --------------------------------------------------------------------------------- */

void harness_begin_round(struct run *r)
{
	if (!r->harness->in_round)
		run_publish(r, "agent.turn.started", NULL);
	r->harness->in_round = true;
}

static void publish_text(const struct run *r, const char *text, size_t len)
{
	while (len > 0) {
		size_t n = output_prefix(text, len, TELL_CHARS);
		struct json *data = json_new_object();

		json_put_strn(data, "text", text, n);
		json_put_bool(data, "truncated", false);
		run_publish(r, "response.text.delta", data);
		text += n;
		len -= n;
	}
}

int harness_say(struct run *r, const char *text, size_t len, struct err *e)
{
	struct harness_run *h = r->harness;

	harness_begin_round(r);
	publish_text(r, text, len);
	buf_add(&h->text, text, len);
	if (buf_failed(&h->text) || h->bytes + h->text.len > r->conf->max_turn_bytes)
		return err_set(e, TURNS_TOO_LARGE,
		               "the harness said more than the %zu bytes that the turn may have "
		               "(--max-turn-bytes)",
		               r->conf->max_turn_bytes);
	return 0;
}

/* -- calls -------------------------------------------------------------------------------- */

void harness_call_id(struct harness_run *h, char *ret, size_t size)
{
	(void)snprintf(ret, size, "h%u", ++h->calls_made);
}

static void remove_call(struct harness_run *h, size_t i)
{
	free(h->calls[i].item.body);
	h->call_count--;
	memmove(&h->calls[i], &h->calls[i + 1], (h->call_count - i) * sizeof(h->calls[i]));
}

int harness_discard(struct run *r, struct err *e)
{
	struct harness_run *h = r->harness;
	char details[] = "{\"reason\":\"retry\"}";
	struct item item = { .kind = ITEM_DISCARDED,
		             .details = details,
		             .total_bytes = h->text.len,
		             .body = h->text.data,
		             .body_len = h->text.len };
	struct turn_step step = { .items = &item, .count = 1, .cost_nano = -1 };
	struct json *data;

	for (size_t i = h->call_count; i-- > 0;)
		if (!h->calls[i].item.seq)
			remove_call(h, i);
	if (!h->text.len)
		return 0;
	if (harness_commit(r, &step, e))
		return -1;
	buf_release(&h->text);
	data = json_new_object();
	json_put_str(data, "reason", "retry");
	json_put_bool(data, "displayOnly", true);
	run_publish(r, "response.attempt.discarded", data);
	return 0;
}

/* NULL when there are too many, or for want of memory: such a use is told of by its line alone. */
static struct harness_call *add_call(struct harness_run *h, const char *name)
{
	auto_buf struct buf none = BUF_INIT(8);
	size_t len = strlen(name);
	struct harness_call *c;

	if (h->call_count == HARNESS_CALLS_MAX)
		return NULL;
	c = &h->calls[h->call_count];
	*c = (struct harness_call){ .item = { .kind = ITEM_TOOL_CALL,
		                              .call_state = CALL_PENDING } };
	buf_adds(&none, "{}");
	c->item.body = buf_take(&none);
	if (!c->item.body)
		return NULL;
	c->item.body_len = strlen(c->item.body);
	len = len < sizeof(c->item.tool) ? len : utf8_whole(name, sizeof(c->item.tool) - 1);
	memcpy(c->item.tool, name, len);
	harness_call_id(h, c->item.call_id, sizeof(c->item.call_id));
	h->call_count++;
	return c;
}

/* A use is named by a text, or by an object with one. */
static const char *name_of(const struct json *v)
{
	const char *name = json_str(v);

	if (!name)
		name = json_str(json_get(v, "name"));
	if (!name)
		name = json_str(json_get(v, "tool"));
	return name && *name ? name : NULL;
}

static bool is_called(const struct harness_call *c, const char *name)
{
	return strncmp(c->item.tool, name, strlen(c->item.tool)) == 0 &&
	       (strlen(name) == strlen(c->item.tool) || strlen(c->item.tool) > 60);
}

int harness_tool_names(struct run *r, const struct json *data, struct err *e)
{
	struct harness_run *h = r->harness;

	(void)e;
	harness_begin_round(r);
	for (size_t i = 0; i < json_len(data); i++) {
		const char *name = name_of(json_at(data, i));
		struct harness_call *c = NULL;

		for (size_t k = 0; name && k < h->call_count && !c; k++)
			if (!h->calls[k].item.seq && !h->calls[k].named &&
			    is_called(&h->calls[k], name))
				c = &h->calls[k];
		if (name && !c)
			c = add_call(h, name);
		if (c)
			c->named = true;
	}
	return 0;
}

/* What it is called with, as JSON; what cannot be kept stays "{}". */
static void describe(struct harness_call *c, const struct json *args, size_t max)
{
	auto_buf struct buf text = BUF_INIT(max);
	char *body;

	c->described = true;
	if (!args)
		return;
	json_write(args, &text);
	body = buf_failed(&text) ? NULL : buf_take(&text);
	if (!body)
		return;
	free(c->item.body);
	c->item.body = body;
	c->item.body_len = strlen(body);
}

int harness_tool_calls(struct run *r, const struct json *data, struct err *e)
{
	struct harness_run *h = r->harness;

	harness_begin_round(r);
	for (size_t i = 0; i < json_len(data); i++) {
		const struct json *v = json_at(data, i), *args = json_get(v, "args");
		const char *name = name_of(v);
		struct harness_call *c = NULL;

		for (size_t k = 0; name && k < h->call_count && !c; k++)
			if (!h->calls[k].item.seq && !h->calls[k].described &&
			    is_called(&h->calls[k], name))
				c = &h->calls[k];
		if (name && !c)
			c = add_call(h, name);
		if (c)
			describe(c, args ? args : json_get(v, "arguments"),
			         r->conf->max_turn_bytes);
	}
	return harness_check_bytes(r, e);
}

/* Text and calls that are in no item yet, in this order. */
int harness_end_round(struct run *r, struct err *e)
{
	struct harness_run *h = r->harness;
	auto_free struct item *items = calloc(h->call_count + 1, sizeof(*items));
	const struct model_answer none = { .cost_nano = -1 }; /* until the result */
	struct turn_step step = { .items = items, .cost_nano = -1 };
	size_t n = 0;

	if (!items)
		return err_set(e, ENOMEM, "no memory for what was said");
	if (h->text.len)
		items[n++] = (struct item){ .kind = ITEM_ASSISTANT,
			                    .body = h->text.data,
			                    .body_len = h->text.len };
	for (size_t i = 0; i < h->call_count; i++)
		if (!h->calls[i].item.seq)
			items[n++] = h->calls[i].item;
	step.count = n;
	if (n == 0)
		return 0;
	if (harness_commit(r, &step, e))
		return -1;
	n = h->text.len ? 1 : 0;
	for (size_t i = 0; i < h->call_count; i++)
		if (!h->calls[i].item.seq)
			h->calls[i].item.seq = items[n++].seq;
	run_publish(r, "agent.turn.finished",
	            tell_answer(&r->job->turn, &items[step.count - 1], &none));
	h->in_round = false;
	buf_release(&h->text);
	return 0;
}

/* The oldest of that name in that state; any name when there is none of it. */
static struct harness_call *find_call(struct harness_run *h, const char *name,
                                      enum call_state state, bool any)
{
	for (size_t i = 0; i < h->call_count; i++)
		if (h->calls[i].item.call_state == state &&
		    (any || (name && is_called(&h->calls[i], name))))
			return &h->calls[i];
	return NULL;
}

static int start(struct run *r, const char *name, struct harness_call **ret, struct err *e)
{
	struct harness_run *h = r->harness;
	struct harness_call *c = find_call(h, name, CALL_PENDING, !name);

	harness_begin_round(r);
	if (!c && name)
		c = add_call(h, name);
	*ret = c;
	if (harness_end_round(r, e))
		return -1;
	return c ? harness_start_call(r, c, e) : 0;
}

int harness_tool_runs(struct run *r, const struct json *data, struct err *e)
{
	struct harness_call *c;

	return start(r, name_of(data), &c, e);
}

/* What a tool gave, as far as the harness says so. */
static const char *output_of(const struct json *data)
{
	static const char *const keys[] = { "output", "result", "content" };

	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (json_str(json_get(data, keys[i])))
			return json_str(json_get(data, keys[i]));
	return "";
}

static int finish(struct run *r, struct harness_call *c, const struct json *data, struct err *e)
{
	const char *text = output_of(data);
	struct item result = { .body_len = strlen(text), .total_bytes = strlen(text) };
	int rc;

	result.body = strdup(text);
	result.details = strdup("{\"reason\":\"done\"}");
	if (!result.body || !result.details) {
		free(result.body);
		free(result.details);
		return err_set(e, ENOMEM, "no memory for a result");
	}
	memcpy(result.call_id, c->item.call_id, sizeof(result.call_id));
	memcpy(result.tool, c->item.tool, sizeof(result.tool));
	rc = harness_finish_call(r, c, &result, e);
	free(result.body);
	free(result.details);
	return rc;
}

int harness_tool_ended(struct run *r, const struct json *data, struct err *e)
{
	struct harness_run *h = r->harness;
	const char *name = name_of(data);
	struct harness_call *c = find_call(h, name, CALL_STARTED, false);

	if (!c && find_call(h, name, CALL_PENDING, false) && start(r, name, &c, e))
		return -1;
	if (!c)
		c = find_call(h, name, CALL_STARTED, !name);
	if (!c && start(r, name, &c, e))
		return -1;
	if (!c)
		return 0;
	if (finish(r, c, data, e))
		return -1;
	remove_call(h, (size_t)(c - h->calls));
	return 0;
}
