/* The agents of a turn and what they did: its own, and those that it gave tasks to. */
#include "daemon/api/history.h"

#include "daemon/api/api.h"
#include "daemon/api/public.h"
#include "daemon/store/agent.h"

#include <stdio.h>
#include <string.h>

#define AGENTS_MAX   100
#define STEPS_MAX    100
#define DETAIL_CHARS 256

static bool is_child(const struct item *item)
{
	return item->kind == ITEM_TOOL_CALL && strcmp(item->tool, "task") == 0;
}

static const struct item *result_of(const struct item_list *list, size_t call)
{
	for (size_t i = call + 1; i < list->count; i++)
		if (list->items[i].kind == ITEM_TOOL_RESULT &&
		    strcmp(list->items[i].call_id, list->items[call].call_id) == 0)
			return &list->items[i];
	return NULL;
}

static bool succeeded(const struct item *result)
{
	auto_json struct json *details = public_details(result);
	const char *reason = details ? json_str(json_get(details, "reason")) : NULL;
	const struct json *code = details ? json_get(details, "exitCode") : NULL;

	if (!reason || strcmp(reason, "done") == 0)
		return true;
	return strcmp(reason, "exited") == 0 && code && json_type(code) == JSON_INT &&
	       json_int(code) == 0;
}

static const char *call_step(const struct turn *t, const struct item_list *list, size_t i)
{
	const struct item *result = result_of(list, i);

	if (result)
		return succeeded(result) ? "completed" : "failed";
	return turn_state_terminal(t->state) ? "failed" : "running";
}

static struct json *step_json(const struct turn *t, const struct item_list *list, size_t i)
{
	const struct item *item = &list->items[i];
	bool call = item->kind == ITEM_TOOL_CALL;
	struct json *o = json_new_object();

	json_put_str(o, "state", call ? call_step(t, list, i) : "info");
	json_put_str(o, "title", call ? item->tool : item->kind == ITEM_USER ? "input" : "answer");
	public_put_arguments(o, "detail", item, DETAIL_CHARS);
	return o;
}

static bool is_step(const struct item *item)
{
	return item->kind == ITEM_USER || item->kind == ITEM_ASSISTANT ||
	       item->kind == ITEM_TOOL_CALL;
}

static size_t count_steps(const struct item_list *list)
{
	size_t n = 0;

	for (size_t i = 0; i < list->count; i++)
		n += is_step(&list->items[i]);
	return n;
}

/* The last steps, of which the latest says where the agent is. */
static struct json *root_json(const struct turn *t, const struct session *s,
                              const struct item_list *list)
{
	struct json *o = json_new_object(), *steps = json_new_array();
	size_t count = count_steps(list), skip = count > STEPS_MAX ? count - STEPS_MAX : 0, n = 0;

	for (size_t i = 0; i < list->count; i++)
		if (is_step(&list->items[i]) && n++ >= skip)
			json_push(steps, step_json(t, list, i));
	json_put_str(o, "path", "/root");
	json_put_str(o, "status", turn_state_name(t->state));
	json_put_str(o, "model", s->model);
	json_put(o, "steps", steps);
	json_put_bool(o, "stepsTruncated", skip > 0 || list->count == ITEMS_SHOWN);
	return o;
}

/* -- child agents ------------------------------------------------------------------------- */

#define CHILDREN_MAX 32 /* more than a turn may have */

struct children {
	struct {
		uint32_t call;
		struct json *steps;
	} v[CHILDREN_MAX];
	size_t n;
};

static void add_step(void *ctx, const struct agent_step *step)
{
	struct children *c = ctx;
	struct json *o;

	if (c->n == 0 || c->v[c->n - 1].call != step->call) {
		if (c->n == CHILDREN_MAX)
			return;
		c->v[c->n].call = step->call;
		c->v[c->n++].steps = json_new_array();
	}
	o = json_new_object();
	json_put_str(o, "state", step->state);
	json_put_str(o, "title", step->title);
	json_put_strn(o, "detail", step->detail, step->detail_len);
	json_push(c->v[c->n - 1].steps, o);
}

static void release(struct children *c)
{
	for (size_t i = 0; i < c->n; i++)
		json_free(&c->v[i].steps);
}

static const struct json *steps_of(const struct children *c, uint32_t call)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->v[i].call == call)
			return c->v[i].steps;
	return NULL;
}

/* What the call of a child has come to, in the words of a turn's status. */
static const char *child_status(const struct turn *t, const struct item_list *list, size_t i)
{
	const struct item *result = result_of(list, i);

	if (result)
		return succeeded(result) ? "completed" : "failed";
	if (turn_state_terminal(t->state))
		return turn_state_name(t->state == TURN_COMPLETED ? TURN_FAILED : t->state);
	return list->items[i].call_state == CALL_STARTED ? "running" : "queued";
}

static struct json *child_json(const struct turn *t, const struct session *s,
                               const struct item_list *list, size_t i, const struct json *all)
{
	struct json *o = json_new_object(), *steps = json_new_array();
	size_t count = all ? json_len(all) : 0, skip = count > STEPS_MAX ? count - STEPS_MAX : 0;
	char path[32];
	size_t number = 0;

	for (size_t k = 0; k <= i; k++)
		number += is_child(&list->items[k]);
	(void)snprintf(path, sizeof(path), "/root/task-%zu", number);
	for (size_t k = skip; k < count; k++)
		json_push(steps, json_copy(json_at(all, k)));
	json_put_str(o, "path", path);
	json_put_str(o, "status", child_status(t, list, i));
	json_put_str(o, "model", s->model);
	json_put(o, "steps", steps);
	json_put_bool(o, "stepsTruncated", skip > 0 || count >= AGENT_STEPS_MAX);
	return o;
}

static void push_children(struct json *data, const struct turn *t, const struct session *s,
                          const struct item_list *list, const struct children *children)
{
	for (size_t i = 0; i < list->count && json_len(data) < AGENTS_MAX; i++)
		if (is_child(&list->items[i]))
			json_push(data, child_json(t, s, list, i,
			                           steps_of(children, list->items[i].seq)));
}

/* -- all of them -------------------------------------------------------------------------- */

static int read_agents(const struct api *api, const struct uuid *tenant, const struct uuid *id,
                       struct json *data, struct err *e)
{
	struct children children = { .n = 0 };
	struct item_list list = { 0 };
	struct turn t = { 0 };
	struct session s;
	int rc = turn_get(api->store, tenant, id, &t, e);

	if (rc == 0)
		rc = session_get(api->store, tenant, &t.session, &s, e);
	if (rc == 0)
		rc = turn_items_shown(api->store, tenant, id, &list, e);
	if (rc == 0)
		rc = agent_steps(api->store, tenant, id, add_step, &children, e);
	if (rc == 0) {
		json_push(data, root_json(&t, &s, &list));
		push_children(data, &t, &s, &list, &children);
	}
	release(&children);
	item_list_release(&list);
	turn_release(&t);
	return rc;
}

void agents_list(const struct http_request *req, struct http_response *res, void *ctx)
{
	auto_json struct json *data = json_new_array();
	struct err e = ERR_INIT;
	struct json *o;
	struct uuid id;

	if (!api_no_query(req, res))
		return;
	if (!uuid_parse(req->params[0], &id)) {
		api_not_found(req, res, "turn");
		return;
	}
	if (read_agents(ctx, api_tenant(req), &id, data, &e)) {
		api_fail_about(req, res, "turn", &e);
		return;
	}
	o = json_new_object();
	json_put(o, "data", json_copy(data));
	api_json(res, 200, o);
}
