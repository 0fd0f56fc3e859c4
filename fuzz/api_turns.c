#include "fuzz/api.h"

#include "fuzz/fuzz.h"

#include "common/attr.h"
#include "common/utf8.h"
#include "daemon/store/agent.h"
#include "daemon/store/harness_line.h"
#include "daemon/turn/turns.h"

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
	if (store_says(e))
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
	return store_says(e);
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
	if (store_says(e))
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
	if (store_says(e))
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

	if (store_says(e))
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
	if (store_says(e))
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
	if (store_says(e))
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
	if (store_says(e))
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
	return store_says(e);
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
	if (store_says(e))
		return -1;
	fill_request(ret);
	return 0;
}

void turns_forget_session(struct turns *ts, const struct uuid *session)
{
	(void)ts;
	check_id(session);
}
