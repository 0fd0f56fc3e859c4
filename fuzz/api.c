/*
 * Requests to each route, behind the server that read their heads: what reaches the store and
 * the turns keeps its bounds, and each answer is JSON with a status of its route.  Here the
 * store, the turns, the set-ups and the events are this program.
 *
 * The first byte chooses the route, the second what the store says and who asks; then come, up
 * to a NUL each, what stands at {id} in the path, the query and Last-Event-ID, and the body.
 */
#include "fuzz/fuzz.h"

#include "common/attr.h"
#include "common/utf8.h"
#include "daemon/api/api.h"
#include "daemon/http/target.h"
#include "daemon/model/model.h"
#include "daemon/setup/repository.h"
#include "daemon/store/agent.h"
#include "daemon/store/harness_line.h"
#include "daemon/turn/tell.h"

#include <inttypes.h>
#include <sodium.h>

/* The second byte: a number of what the store says, and these. */
enum {
	HAS_MODELS = 8, /* the registry lists the caller's models, and the built-in is none */
	IS_ASKED = 16,  /* the operator wants a person to be asked */
	HAS_HARNESS = 32,
	IS_OVER = 64, /* the turn that is asked for */
};

static const struct uuid row_id = { "0191d2b4-0000-7000-8000-00000000000a" };

static struct {
	struct target_query query;
	const char *last_event;
	uint8_t choice;
	unsigned int calls; /* of what stands in for the store */
	bool keyed;
	unsigned char digest[32];
} given;

static int say(struct err *e)
{
	static const int codes[] = {
		0,          STORE_NOT_FOUND,   STORE_UNAVAILABLE, STORE_CONFLICT,
		STORE_BUSY, STORE_TENANT_FULL, STORE_KEY_REUSED,  0,
	};
	int code = codes[given.choice % ARRAY_LEN(codes)];

	given.calls++;
	return code ? err_set(e, code, "the store says so") : 0;
}

/* -- the server, which has read the head ------------------------------------------------------ */

const char *http_query(const struct http_request *r, const char *name)
{
	(void)r;
	return target_value(&given.query, name);
}

void http_each_query(const struct http_request *r,
                     void (*fn)(void *ctx, const char *name, const char *value), void *ctx)
{
	(void)r;
	for (size_t i = 0; i < given.query.count; i++)
		fn(ctx, given.query.v[i].name, given.query.v[i].value);
}

const char *http_header(const struct http_request *r, const char *name)
{
	(void)r;
	return strcmp(name, "Last-Event-ID") == 0 ? given.last_event : NULL;
}

/* -- what it is handed ------------------------------------------------------------------------ */

static void check_id(const struct uuid *id)
{
	demand(uuid_valid(id->text, strlen(id->text)));
}

static void check_text(const char *text, size_t max)
{
	demand(!text || (strlen(text) <= max && utf8_valid(text, strlen(text))));
}

/* A place below /workspace, by its letters alone. */
static void check_cwd(const char *cwd)
{
	size_t len = strlen(cwd);

	check_text(cwd, SESSION_CWD_MAX);
	demand(strncmp(cwd, "/workspace", 10) == 0 && (!cwd[10] || cwd[10] == '/'));
	demand(!strstr(cwd, "//") && !strstr(cwd, "/./") && !strstr(cwd, "/../"));
	demand(cwd[len - 1] != '/' && strcmp(cwd + len - 2, "/.") != 0);
	demand(len < 3 || strcmp(cwd + len - 3, "/..") != 0);
}

static void check_limit(size_t limit)
{
	const char *text = target_value(&given.query, "limit");

	demand(limit >= 1 && limit <= 100 && limit == (text ? strtoul(text, NULL, 10) : 50));
}

/* The cursor that a page gives for that row is the one that came. */
static void check_after(uint64_t ms, const struct uuid *id)
{
	auto_json struct json *page = json_new_object();
	const char *text = target_value(&given.query, "cursor");

	check_id(id);
	api_put_keyset(page, true, ms, id);
	demand(text && strcmp(json_str(json_get(page, "nextCursor")), text) == 0);
}

/* Sent twice, a request is known again. */
static void check_key(const struct client_request *key)
{
	if (!key)
		return;
	check_id(&key->id);
	demand(!given.keyed || memcmp(given.digest, key->digest, sizeof(given.digest)) == 0);
	memcpy(given.digest, key->digest, sizeof(given.digest));
	given.keyed = true;
}

static void check_harness(const char *text)
{
	auto_json struct json *command = NULL;
	struct err e = ERR_INIT;

	if (!*text)
		return;
	check_text(text, SESSION_HARNESS_MAX);
	demand(json_parse(text, strlen(text), &command, &e) == 0);
	demand(json_len(command) >= 1 && json_len(command) <= 64);
	for (size_t i = 0; i < json_len(command); i++)
		demand(json_str(json_at(command, i)));
}

static void check_repository(const struct setup *s)
{
	demand(s->state == SETUP_NONE || s->state == SETUP_PENDING);
	if (s->state == SETUP_NONE)
		return;
	demand(!repository_url_fault(s->url, false));
	demand(!s->ref[0] || !repository_ref_fault(s->ref));
	demand(!s->branch[0] || !repository_ref_fault(s->branch));
	demand(strcmp(s->branch, "HEAD") != 0);
}

/* -- sessions --------------------------------------------------------------------------------- */

static const struct session *row(void)
{
	static struct session s = { .cwd = "/workspace",
		                    .model = "demo",
		                    .effort = "low",
		                    .approvals = "ask",
		                    .title = "a title",
		                    .created_ms = 1000,
		                    .updated_ms = 2000,
		                    .cost_nano = -1 };

	s.id = row_id;
	(void)snprintf(s.harness, sizeof(s.harness), "%s",
	               given.choice & HAS_HARNESS ? "[\"run\"]" : "");
	s.setup.state = given.choice & IS_OVER ? SETUP_FAILED : SETUP_NONE;
	return &s;
}

int session_insert(struct store *s, const struct uuid *tenant, struct session *io,
                   const struct client_request *key, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(&io->id);
	check_cwd(io->cwd);
	check_text(io->title, SESSION_TITLE_MAX);
	check_text(io->instructions, SESSION_INSTRUCTIONS_MAX);
	check_harness(io->harness);
	check_repository(&io->setup);
	check_key(key);
	demand(effort_named(io->effort) < EFFORTS);
	demand(strcmp(io->approvals, "sandbox") == 0 || strcmp(io->approvals, "ask") == 0);
	demand(!(given.choice & IS_ASKED) || strcmp(io->approvals, "ask") == 0);
	demand(!(given.choice & HAS_MODELS) || io->harness[0]);
	demand(!io->harness[0] || (!io->planning && !io->instructions[0]));
	return say(e);
}

int session_get(struct store *s, const struct uuid *tenant, const struct uuid *id,
                struct session *ret, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(id);
	*ret = *row();
	return say(e);
}

int session_each(struct store *s, const struct uuid *tenant, const struct session_ids *ids,
                 void (*fn)(void *ctx, const struct session *row), void *ctx, struct err *e)
{
	struct session one;

	(void)s;
	check_id(tenant);
	demand(ids->n == 1);
	check_id(&ids->ids[0]);
	if (say(e))
		return -1;
	one = *row();
	one.id = ids->ids[0];
	fn(ctx, &one);
	return 0;
}

int session_list(struct store *s, const struct uuid *tenant, struct session_page *page,
                 void (*fn)(void *ctx, const struct session *row), void *ctx, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_limit(page->limit);
	if (page->after)
		check_after(page->after->updated_ms, &page->after->id);
	if (say(e))
		return -1;
	fn(ctx, row());
	page->more = given.choice & IS_OVER;
	return 0;
}

int session_update(struct store *s, const struct uuid *tenant, const struct uuid *id,
                   const struct session_change *change, struct session *ret, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(id);
	check_text(change->title, SESSION_TITLE_MAX);
	check_text(change->instructions, SESSION_INSTRUCTIONS_MAX);
	demand(!!change->title + !!change->archived + !!change->instructions == 1);
	*ret = *row();
	return say(e);
}

int session_delete(struct store *s, const struct uuid *tenant, const struct uuid *id, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(id);
	return say(e);
}

int session_fork(struct store *s, const struct uuid *tenant, const struct session_fork *fork,
                 struct session *io, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(&fork->source);
	check_text(fork->title, SESSION_TITLE_MAX);
	if (fork->cwd)
		check_cwd(fork->cwd);
	demand(!fork->through || (*fork->through <= INT32_MAX && !fork->title && !fork->cwd));
	check_key(fork->key);
	(void)snprintf(io->model, sizeof(io->model), "demo");
	return say(e);
}

/* -- turns ------------------------------------------------------------------------------------ */

static void fill_turn(struct turn *t)
{
	*t = (struct turn){ .id = row_id,
		            .session = row_id,
		            .state = given.choice & IS_OVER ? TURN_COMPLETED : TURN_RUNNING,
		            .created_ms = 3000,
		            .input = text_of("an input", 8) };
}

static int give_turn(struct turn *ret, struct err *e)
{
	if (say(e))
		return -1;
	fill_turn(ret);
	return 0;
}

int turn_get(struct store *s, const struct uuid *tenant, const struct uuid *id, struct turn *ret,
             struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(id);
	return give_turn(ret, e);
}

static void check_turn(const struct turn *t)
{
	check_id(&t->session);
	if (t->client_request.text[0])
		check_id(&t->client_request);
	demand(t->input && t->input[strspn(t->input, " \t\r\n\v\f")]);
	demand(utf8_valid(t->input, strlen(t->input)));
	demand(t->attached_count <= ATTACHMENTS_MAX);
	demand(t->attachment_bytes <= ATTACHMENTS_BYTES_MAX);
}

/* The same one as came, where the input is freed. */
int turn_find(struct store *s, const struct uuid *tenant, struct turn *t, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_turn(t);
	return say(e);
}

int turn_list(struct store *s, const struct uuid *tenant, struct turn_page *page,
              void (*fn)(void *ctx, const struct turn *t), void *ctx, struct err *e)
{
	struct turn t;

	(void)s;
	check_id(tenant);
	check_limit(page->limit);
	if (page->after)
		check_after(page->after->created_ms, &page->after->id);
	if (page->session)
		check_id(page->session);
	if (say(e))
		return -1;
	fill_turn(&t);
	fn(ctx, &t);
	turn_release(&t);
	page->more = given.choice & IS_OVER;
	return 0;
}

int turn_history(struct store *s, const struct uuid *tenant, struct history_page *page,
                 bool (*fn)(void *ctx, const struct turn *t), void *ctx, struct err *e)
{
	const char *cursor = target_value(&given.query, "cursor");
	const char *before = target_value(&given.query, "before");
	struct turn t;

	(void)s;
	check_id(tenant);
	check_id(page->session);
	check_limit(page->limit);
	demand(!cursor || !before);
	before = cursor ? cursor : before;
	demand(page->before == (before ? strtoull(before, NULL, 10) : UINT64_MAX));
	demand(!before || page->before <= INT64_MAX);
	if (say(e))
		return -1;
	fill_turn(&t);
	(void)fn(ctx, &t);
	turn_release(&t);
	page->total = 9;
	page->end = 7;
	return 0;
}

static char *words(const char *text, size_t *ret_len)
{
	*ret_len = strlen(text);
	return text_of(text, *ret_len);
}

static int give_items(struct item_list *ret, struct err *e)
{
	static const struct item items[] = {
		{ .kind = ITEM_USER },
		{ .kind = ITEM_REASONING },
		{ .kind = ITEM_TOOL_CALL, .call_id = "c", .tool = "task" },
		{ .kind = ITEM_TOOL_RESULT, .call_id = "c", .tool = "task" },
		{ .kind = ITEM_ASSISTANT },
	};

	if (say(e))
		return -1;
	ret->items = (struct item *)room_for(sizeof(items));
	memcpy(ret->items, items, sizeof(items));
	ret->count = ARRAY_LEN(items);
	for (size_t i = 0; i < ret->count; i++)
		ret->items[i].body = words("{\"prompt\":\"x\"}", &ret->items[i].body_len);
	return 0;
}

int turn_items(struct store *s, const struct uuid *tenant, const struct uuid *turn,
               struct item_list *ret, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(turn);
	return give_items(ret, e);
}

int turn_items_shown(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                     struct item_list *ret, struct err *e)
{
	return turn_items(s, tenant, turn, ret, e);
}

int agent_steps(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                void (*fn)(void *ctx, const struct agent_step *step), void *ctx, struct err *e)
{
	const struct agent_step step = { .call = 2, .state = "info", .title = "t", .detail = "" };

	(void)s;
	check_id(tenant);
	check_id(turn);
	if (say(e))
		return -1;
	fn(ctx, &step);
	return 0;
}

int harness_lines_list(struct store *s, const struct uuid *tenant, struct harness_page *page,
                       void (*fn)(void *ctx, const struct harness_line *line), void *ctx,
                       struct err *e)
{
	const char *after = target_value(&given.query, "after");
	char text[] = "{\xff}";
	const struct harness_line line = { 3, text, 3 };

	(void)s;
	check_id(tenant);
	check_id(page->turn);
	check_limit(page->limit);
	demand(page->after == (after ? strtoull(after, NULL, 10) : 0) && page->after <= INT32_MAX);
	if (say(e))
		return -1;
	fn(ctx, &line);
	page->more = given.choice & IS_OVER;
	return 0;
}

static void fill_request(struct request *q)
{
	size_t len;

	*q = (struct request){
		.id = row_id, .turn = row_id, .session = row_id, .kind = "approval"
	};
	q->prompt = words("May I?", &len);
	q->options = words("[\"yes\",\"no\"]", &len);
}

int request_list(struct store *s, const struct uuid *tenant, const struct request_page *page,
                 void (*fn)(void *ctx, const struct request *r), void *ctx, struct err *e)
{
	struct request q;

	(void)s;
	check_id(tenant);
	if (page->turn)
		check_id(page->turn);
	demand(page->limit >= 1);
	if (say(e))
		return -1;
	fill_request(&q);
	fn(ctx, &q);
	request_release(&q);
	return 0;
}

int turns_submit(struct turns *ts, const struct uuid *tenant, struct turn *t, struct err *e)
{
	(void)ts;
	check_id(tenant);
	check_turn(t);
	return say(e);
}

int turns_cancel(struct turns *ts, const struct uuid *tenant, const struct uuid *id,
                 struct turn *ret, struct err *e)
{
	(void)ts;
	check_id(tenant);
	check_id(id);
	return give_turn(ret, e);
}

int turns_answer(struct turns *ts, const struct uuid *tenant, const struct uuid *request,
                 const struct answer *answer, struct request *ret, struct err *e)
{
	(void)ts;
	check_id(tenant);
	check_id(request);
	demand(answer->decision);
	check_text(answer->decision, 65536);
	check_text(answer->value, 65536);
	if (say(e))
		return -1;
	fill_request(ret);
	return 0;
}

void turns_forget_session(struct turns *ts, const struct uuid *session)
{
	(void)ts;
	check_id(session);
}

/* -- set-ups and events ----------------------------------------------------------------------- */

bool setups_allow_http(const struct setups *s)
{
	(void)s;
	return false;
}

int setups_take(struct setups *s, const struct uuid *tenant, struct setup_job **ret, struct err *e)
{
	(void)s;
	(void)ret;
	check_id(tenant);
	return given.choice & HAS_MODELS ? err_set(e, SETUPS_FULL, "too many") : 0;
}

void setups_drop(struct setup_job **at)
{
	*at = NULL;
}

void setups_run(struct setup_job **at, const struct uuid *session,
                const struct setup_credential *credential)
{
	(void)at;
	check_id(session);
	if (!credential)
		return;
	demand(!repository_secret_fault(credential->username, REPOSITORY_USERNAME_MAX));
	demand(!repository_secret_fault(credential->password, REPOSITORY_PASSWORD_MAX));
}

void setups_forget(struct setups *s, const struct uuid *tenant, const struct uuid *session)
{
	(void)s;
	check_id(tenant);
	check_id(session);
}

int setup_retry(struct store *s, const struct uuid *tenant, const struct uuid *session,
                bool private, struct err *e)
{
	(void)s;
	(void)private;
	check_id(tenant);
	check_id(session);
	return say(e);
}

static unsigned int subscribed;

int bus_subscribe(struct bus *b, const struct uuid *tenant, const struct bus_wish *wish,
                  struct subscription **ret, struct err *e)
{
	(void)b;
	check_id(tenant);
	demand(wish->last_id >= -1);
	if (wish->turn)
		check_id(wish->turn);
	if (wish->session)
		check_id(wish->session);
	if (say(e))
		return -1;
	*ret = (struct subscription *)&subscribed;
	subscribed++;
	return 0;
}

void bus_unsubscribe(struct subscription *s)
{
	demand(s == (struct subscription *)&subscribed && subscribed-- == 1);
}

bool bus_has_end(struct subscription *s)
{
	(void)s;
	return given.choice & HAS_HARNESS;
}

int bus_next(struct subscription *s, const char **ret_data, size_t *ret_len)
{
	(void)s;
	*ret_data = "";
	*ret_len = 0;
	return 0;
}

int tell_again(struct store *s, const struct uuid *tenant, const struct turn *t, struct buf *out,
               struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(&t->id);
	buf_adds(out, "event: x\n\n");
	return say(e);
}

int store_ping(struct store *s, struct err *e)
{
	(void)s;
	return say(e);
}

/* -- answers ---------------------------------------------------------------------------------- */

static void check_error(int status, const struct json *doc)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
	const struct json *error = json_get(doc, "error");
	const char *code = json_str(json_get(error, "code"));

	demand(code && *code && strspn(code, letters) == strlen(code));
	demand(json_str_len(json_get(error, "message")) > 0);
	demand(strcmp(json_str(json_get(error, "requestId")), "1") == 0);
	/* What the store may not say there is a fault of the server's own. */
	demand(status < 500 || given.calls || status == 503);
}

static void check_answer(const struct http_route *route, const struct http_response *res)
{
	auto_json struct json *doc = NULL;
	struct err e = ERR_INIT;
	int status = res->status ? res->status : 200;

	demand(!buf_failed(&res->body));
	if (res->stream.next) {
		demand(status == 200 && !res->body.len && route->flags & HTTP_STREAM);
		return;
	}
	demand((status == 204) == !res->body.len);
	if (status == 204)
		return;
	demand(json_parse(res->body.data, res->body.len, &doc, &e) == 0);
	demand((status >= 200 && status <= 202) || (status >= 400 && status <= 599));
	if (status >= 400)
		check_error(status, doc);
	else
		demand(given.calls || route->flags & HTTP_INLINE);
}

static int ask(const struct http_route *route, const struct http_request *req, bool together)
{
	struct api api = { .boundary = "development" };
	struct http_response res = { .body = BUF_INIT((size_t)64 << 20) }, *const all = &res;

	given.calls = 0;
	if (together && route->handle_all)
		route->handle_all(&req, &all, 1, &api);
	else
		route->handle(req, &res, &api);
	check_answer(route, &res);
	if (res.stream.next) {
		const char *data;
		size_t len;

		demand(res.stream.next(res.stream.ctx, &data, &len) >= 0);
		res.stream.close(res.stream.ctx);
	}
	demand(!subscribed);
	buf_release(&res.body);
	return res.stream.next ? 200 : res.status;
}

/* -- an input --------------------------------------------------------------------------------- */

struct rest {
	const uint8_t *at;
	size_t len;
};

static char *cut(struct rest *r)
{
	const uint8_t *stop = r->len ? memchr(r->at, '\0', r->len) : NULL;
	size_t len = stop ? (size_t)(stop - r->at) : r->len;
	char *text = text_of(r->at, len);

	len += stop != NULL;
	r->at += len;
	r->len -= len;
	return text;
}

static const struct http_route *choose(uint8_t number)
{
	const struct http_route *routes = api_routes();
	size_t n = 0;

	while (routes[n].method)
		n++;
	demand(n > 0);
	/* One is no JSON, the other has a number that our reader does not take; neither reads. */
	if (routes[number % n].flags & HTTP_OPERATOR ||
	    strcmp(routes[number % n].pattern, "/openapi.json") == 0)
		return &routes[0];
	return &routes[number % n];
}

static void run(const struct http_route *route, struct rest *rest)
{
	static char ids[1][TENANT_MODEL_MAX + 1] = { "another" };
	struct tenant tenant = { .id = { "0191d2b4-0000-7000-8000-000000000001" },
		                 .models = { given.choice & HAS_MODELS, ids, 1 },
		                 .approvals =
		                         given.choice & IS_ASKED ? TENANT_ASK : TENANT_SANDBOX };
	const struct caller caller = { .tenant = &tenant };
	char *id = cut(rest), *query = cut(rest), *last = cut(rest), *body;
	struct http_request req = { .method = route->method,
		                    .path = route->pattern,
		                    .params = { id },
		                    .body_len = rest->len,
		                    .request_id = "1",
		                    .principal = &caller };

	req.body = body = text_of(rest->at, rest->len);
	given.last_event = *last ? last : NULL;
	given.keyed = false;
	if (utf8_valid(id, strlen(id)) && !target_query(*query ? query : NULL, &given.query)) {
		int status = ask(route, &req, false);

		demand(ask(route, &req, true) == status);
	}
	free(id);
	free(query);
	free(last);
	free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rest rest = { data + 2, size - 2 };

	if (size < 2)
		return 0;
	demand(sodium_init() >= 0);
	given.choice = data[1];
	run(choose(data[0]), &rest);
	return 0;
}
