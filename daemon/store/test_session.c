/* Sessions that are changed, deleted and forked, lists of turns, and the bound of a database. */
#include "daemon/store/harness_line.h"
#include "daemon/store/test_fixture.h"

#include <pthread.h>

/* -- helpers -- */

static struct uuid put_turn(const struct uuid *session, const char *input, uint64_t created_ms)
{
	struct turn t = { .id = uuid_new(), .session = *session, .created_ms = created_ms };
	bool existing;

	t.input = strdup(input);
	assert_ok(turn_insert(store, &acme, &t, &existing, &e));
	turn_release(&t);
	return t.id;
}

static void end_turn(const struct uuid *id)
{
	const struct turn_end end = { .state = TURN_COMPLETED, .now_ms = 5000 };

	assert_ok(turn_finish(store, &acme, id, &end, &e));
}

static struct uuid ended_turn(const struct session *s, const char *input)
{
	struct uuid id = put_turn(&s->id, input, clock_wall_ms());

	end_turn(&id);
	return id;
}

static int append_text(const struct uuid *turn, char *text, size_t len)
{
	struct item item = { .kind = ITEM_ASSISTANT, .body_len = len };
	struct turn_step step = { .items = &item, .count = 1 };

	item.body = text;
	return turn_append(store, &acme, turn, &step, &e);
}

/* A call with its result and details, then an answer. */
static struct uuid turn_with_call(const struct session *s)
{
	struct uuid id = put_turn(&s->id, "do it", clock_wall_ms());
	char arguments[] = "{\"a\":1, \"a\":2}", output[] = "out\0put", details[] = "{\"x\": 1}";
	struct item call = { .kind = ITEM_TOOL_CALL,
		             .call_id = "c",
		             .tool = "shell",
		             .call_state = CALL_PENDING,
		             .body = arguments,
		             .body_len = sizeof(arguments) - 1 };
	struct item result = { .call_id = "c",
		               .tool = "shell",
		               .lossy = true,
		               .total_bytes = 77,
		               .details = details,
		               .body = output,
		               .body_len = sizeof(output) };
	struct turn_step step = { .items = &call, .count = 1 };

	assert_ok(turn_mark_running(store, &acme, &id, 1000, &e));
	assert_ok(turn_append(store, &acme, &id, &step, &e));
	assert_ok(turn_start_call(store, &acme, &id, 1, &e));
	assert_ok(turn_finish_call(store, &acme, &id, 1, &result, &e));
	assert_ok(append_text(&id, output, 3));
	end_turn(&id);
	return id;
}

/* A turn that asked, and ended without an answer. */
static struct uuid turn_with_request(const struct session *s)
{
	struct item call = { .kind = ITEM_TOOL_CALL, .call_state = CALL_PENDING };
	struct turn_step step = { .items = &call, .count = 1 };
	char none[] = "[]";
	struct request r = { .id = uuid_new(),
		             .kind = "plan_question",
		             .call_id = "c",
		             .call_seq = 1,
		             .created_ms = 1,
		             .prompt = none,
		             .options = none };

	r.turn = put_turn(&s->id, "ask", clock_wall_ms());
	r.session = s->id;
	assert_ok(turn_mark_running(store, &acme, &r.turn, 1, &e));
	assert_ok(turn_append(store, &acme, &r.turn, &step, &e));
	assert_ok(request_insert(store, &acme, &r, &e));
	end_turn(&r.turn);
	return r.turn;
}

static int64_t count_of(const char *sql, const struct uuid *id)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = { sql, PG_PARAMS(pg_uuid(id)) };

	assert_ok(tenant_rows(store, &acme, &q, &rows, &e));
	return pg_get_int(rows, 0, 0);
}

/* -- change -- */

static void changes_one_thing(void **state)
{
	struct session s = new_session(&acme), got;
	struct session_change change = { .title = "t", .now_ms = s.updated_ms + 5 };
	struct uuid none = uuid_new();
	bool archived = true;

	(void)state;
	assert_ok(session_update(store, &acme, &s.id, &change, &got, &e));
	assert_string_equal(got.title, "t");
	assert_true(got.title_is_manual && !got.archived);
	assert_int_equal(got.updated_ms, s.updated_ms + 5);
	change = (struct session_change){ .archived = &archived, .now_ms = 1 };
	assert_ok(session_update(store, &acme, &s.id, &change, &got, &e));
	assert_string_equal(got.title, "t");
	assert_true(got.title_is_manual && got.archived);
	assert_int_equal(got.updated_ms, s.updated_ms + 5); /* the clock stepped back */
	change = (struct session_change){ .title = "", .now_ms = 1 };
	assert_ok(session_update(store, &acme, &s.id, &change, &got, &e));
	assert_true(!got.title_is_manual && got.archived);
	assert_code(session_update(store, &acme, &none, &change, &got, &e), STORE_NOT_FOUND);
	assert_code(session_update(store, &globex, &s.id, &change, &got, &e), STORE_NOT_FOUND);
}

static void a_busy_session_stays_as_it_is(void **state)
{
	struct session s = new_session(&acme), got = { .id = uuid_new() };
	const struct session_change change = { .title = "t", .now_ms = 1 };
	const struct session_fork fork = { .source = s.id };
	struct uuid turn = put_turn(&s.id, "x", 1);

	(void)state;
	assert_code(session_update(store, &acme, &s.id, &change, &got, &e), STORE_BUSY);
	assert_code(session_delete(store, &acme, &s.id, &e), STORE_BUSY);
	assert_code(session_fork(store, &acme, &fork, &got, &e), STORE_BUSY);
	end_turn(&turn);
	assert_ok(session_delete(store, &acme, &s.id, &e));
}

/* -- delete -- */

static void deletes_all_of_one_session(void **state)
{
	struct session s = new_session(&acme), other = new_session(&acme), got;
	struct uuid turn = turn_with_call(&s), kept = turn_with_call(&other);
	struct item_list items;

	(void)state;
	(void)turn_with_request(&s);
	assert_code(session_delete(store, &globex, &s.id, &e), STORE_NOT_FOUND);
	assert_ok(session_delete(store, &acme, &s.id, &e));
	assert_code(session_delete(store, &acme, &s.id, &e), STORE_NOT_FOUND);
	assert_code(session_get(store, &acme, &s.id, &got, &e), STORE_NOT_FOUND);
	assert_int_equal(count_of("SELECT count(*) FROM app.turn WHERE session = $1", &s.id), 0);
	assert_int_equal(count_of("SELECT count(*) FROM app.item WHERE turn = $1", &turn), 0);
	assert_int_equal(count_of("SELECT count(*) FROM app.request WHERE session = $1", &s.id), 0);
	assert_ok(turn_items(store, &acme, &kept, &items, &e));
	assert_int_equal(items.count, 4);
	item_list_release(&items);
}

/* How many tables this connection has read from end to end, as far as it was not told yet. */
static int64_t whole_reads(struct pg *pg)
{
	auto_rows struct pg_rows *rows = NULL;

	assert_ok(pg_query(pg,
	                   "SELECT coalesce(sum(seq_scan), 0)::bigint FROM "
	                   "pg_stat_xact_user_tables WHERE schemaname = 'app'",
	                   PG_NO_PARAMS, &rows, &e));
	return pg_get_int(rows, 0, 0);
}

static int delete_by_index(struct pg *pg, void *ctx, struct err *ret)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct uuid *session = ctx;
	int64_t before = whole_reads(pg);

	if (pg_query(pg, "SELECT app.delete_session($1)", PG_PARAMS(pg_uuid(session)), &rows, ret))
		return -1;
	assert_true(pg_get_bool(rows, 0, 0));
	assert_int_equal(whole_reads(pg), before);
	return 0;
}

/* What is to be deleted is looked for by an index, however much there is of others. */
static void a_deletion_reads_no_whole_table(void **state)
{
	struct session s = new_session(&acme);
	struct tenant_db *db;

	(void)state;
	(void)turn_with_call(&s);
	(void)turn_with_request(&s);
	assert_ok(tenant_db_get(store, &acme, &db, &e));
	assert_ok(db_transaction(store->pool, &db->key, delete_by_index, &s.id, &e));
	assert_int_equal(count_of("SELECT count(*) FROM app.request WHERE session = $1", &s.id), 0);
}

/* What deletes for the role judges for itself, whoever calls it. */
static void the_deleting_function_spares_a_busy_session(void **state)
{
	auto_rows struct pg_rows *rows = NULL;
	struct session s = new_session(&acme);
	struct uuid turn = put_turn(&s.id, "x", 1);
	const struct query q = { "SELECT app.delete_session($1)", PG_PARAMS(pg_uuid(&s.id)) };

	(void)state;
	assert_ok(tenant_rows(store, &acme, &q, &rows, &e));
	assert_false(pg_get_bool(rows, 0, 0));
	assert_int_equal(count_of("SELECT count(*) FROM app.turn WHERE id = $1", &turn), 1);
	end_turn(&turn);
}

/* -- keys -- */

static void a_key_makes_one_session(void **state)
{
	struct client_request key = { .id = uuid_new(), .digest = { 1 } };
	struct session one = { .id = uuid_new(), .created_ms = 1, .updated_ms = 1, .cwd = "/" };
	struct session two = one;
	struct uuid first = one.id;

	(void)state;
	(void)snprintf(one.model, sizeof(one.model), "demo");
	two.id = uuid_new();
	assert_ok(session_insert(store, &acme, &one, &key, &e));
	assert_string_equal(one.id.text, first.text);
	assert_ok(session_insert(store, &acme, &two, &key, &e));
	assert_string_equal(two.id.text, first.text);
	assert_string_equal(two.model, "demo");
	key.digest[31] = 1;
	assert_code(session_insert(store, &acme, &one, &key, &e), STORE_KEY_REUSED);
	assert_ok(session_delete(store, &acme, &first, &e));
	one.id = uuid_new();
	assert_ok(session_insert(store, &acme, &one, &key, &e));
	assert_string_not_equal(one.id.text, first.text);
}

static const struct client_request shared_key = {
	.id = { "01980000-0000-7000-8000-000000000abc" },
};

static void *insert_with_key(void *arg)
{
	struct session in = {
		.id = uuid_new(), .created_ms = 1, .updated_ms = 1, .model = "demo", .cwd = "/"
	};
	struct err err = ERR_INIT;

	*(struct uuid *)arg = session_insert(store, &acme, &in, &shared_key, &err) == 0
	                              ? in.id
	                              : (struct uuid){ "" };
	return NULL;
}

static void a_key_at_once_makes_one_session(void **state)
{
	pthread_t threads[6];
	struct uuid ids[6];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, insert_with_key, &ids[i]), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	assert_true(ids[0].text[0]);
	for (size_t i = 1; i < ARRAY_LEN(threads); i++)
		assert_string_equal(ids[i].text, ids[0].text);
}

/* -- fork -- */

struct history {
	struct uuid ids[8];
	size_t count, stop;
};

static bool see(void *ctx, const struct turn *t)
{
	struct history *h = ctx;

	assert_true(h->count < ARRAY_LEN(h->ids));
	h->ids[h->count++] = t->id;
	return h->count != h->stop;
}

static struct history history_of(const struct uuid *session, struct history_page *page)
{
	struct history h = { .stop = 0 };

	page->session = session;
	assert_ok(turn_history(store, &acme, page, see, &h, &e));
	return h;
}

static void a_fork_copies_every_byte(void **state)
{
	struct session s = new_session(&acme), copy = { .id = uuid_new(), .created_ms = 9 };
	struct uuid original = turn_with_call(&s);
	struct session_fork fork = { .source = s.id, .title = "new", .cwd = "/elsewhere" };
	struct history_page page = { .before = UINT64_MAX, .limit = 8 };
	struct item_list a, b;
	struct history h;

	(void)state;
	ended_turn(&s, "second");
	copy.updated_ms = 9;
	assert_ok(session_fork(store, &acme, &fork, &copy, &e));
	assert_string_equal(copy.model, s.model);
	assert_string_equal(copy.title, "new");
	assert_string_equal(copy.cwd, "/elsewhere");
	assert_int_equal(copy.created_ms, 9);
	h = history_of(&copy.id, &page);
	assert_int_equal(page.total, 2);
	assert_int_equal(h.ids[1].text[14], '7');
	assert_ok(turn_items(store, &acme, &original, &a, &e));
	assert_ok(turn_items(store, &acme, &h.ids[1], &b, &e));
	assert_int_equal(a.count, b.count);
	for (size_t i = 0; i < a.count; i++) {
		assert_int_equal(a.items[i].kind, b.items[i].kind);
		assert_int_equal(a.items[i].call_state, b.items[i].call_state);
		assert_int_equal(a.items[i].lossy, b.items[i].lossy);
		assert_int_equal(a.items[i].total_bytes, b.items[i].total_bytes);
		assert_int_equal(a.items[i].body_len, b.items[i].body_len);
		assert_memory_equal(a.items[i].body, b.items[i].body, a.items[i].body_len);
	}
	assert_string_equal(b.items[2].details, "{\"x\": 1}");
	item_list_release(&a);
	item_list_release(&b);
}

static void a_fork_ends_where_it_shall(void **state)
{
	struct session s = new_session(&acme);
	uint32_t through = 0;
	struct session_fork fork = { .source = s.id, .through = &through };
	struct history_page page = { .before = UINT64_MAX, .limit = 8 };

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		ended_turn(&s, "x");
	for (through = 0; through < 4; through++) {
		struct session copy = { .id = uuid_new(), .created_ms = 9, .updated_ms = 9 };
		int rc = session_fork(store, &acme, &fork, &copy, &e);

		if (through == 3) {
			assert_code(rc, STORE_NO_SUCH_TURN);
			assert_code(session_get(store, &acme, &copy.id, &copy, &e),
			            STORE_NOT_FOUND);
			break;
		}
		assert_ok(rc);
		(void)history_of(&copy.id, &page);
		assert_int_equal(page.total, through + 1);
	}
	assert_code(session_fork(store, &globex, &fork, &s, &e), STORE_NOT_FOUND);
}

/* -- lists -- */

static void the_order_of_a_session_ignores_the_clock(void **state)
{
	struct session s = new_session(&acme);
	struct history_page page = { .before = UINT64_MAX, .limit = 8 };
	struct uuid ids[3];
	struct history h;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		ids[i] = put_turn(&s.id, "x", 1000 - i);
		end_turn(&ids[i]);
	}
	h = history_of(&s.id, &page);
	for (size_t i = 0; i < 3; i++)
		assert_string_equal(h.ids[2 - i].text, ids[i].text);
	assert_int_equal(count_of("SELECT max(created_ms) FROM app.turn WHERE session = $1", &s.id),
	                 1002);
}

static void history_is_cut_by_index(void **state)
{
	static const struct {
		uint64_t before;
		size_t limit, count, end;
	} cases[] = { { UINT64_MAX, 2, 2, 5 }, { 5, 8, 5, 5 }, { 6, 1, 1, 5 },
		      { 3, 2, 2, 3 },          { 1, 2, 1, 1 }, { 0, 2, 0, 0 } };
	struct session s = new_session(&acme);
	struct history stopping = { .stop = 2 };
	struct history_page page;
	struct uuid ids[5], none = uuid_new();

	(void)state;
	for (size_t i = 0; i < 5; i++)
		ids[i] = ended_turn(&s, "x");
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct history h;

		page = (struct history_page){ .before = cases[i].before, .limit = cases[i].limit };
		h = history_of(&s.id, &page);
		assert_int_equal(h.count, cases[i].count);
		assert_int_equal(page.end, cases[i].end);
		assert_int_equal(page.total, 5);
		for (size_t j = 0; j < h.count; j++)
			assert_string_equal(h.ids[j].text, ids[page.end - 1 - j].text);
	}
	page = (struct history_page){ .session = &s.id, .before = UINT64_MAX, .limit = 5 };
	assert_ok(turn_history(store, &acme, &page, see, &stopping, &e));
	assert_int_equal(stopping.count, 2);
	page.before = UINT64_MAX;
	(void)history_of(&none, &page);
	assert_int_equal(page.total + page.end, 0);
}

struct listed {
	struct uuid ids[8];
	struct turn_key last;
	size_t count;
};

static void list_turn(void *ctx, const struct turn *t)
{
	struct listed *l = ctx;

	assert_true(l->count < ARRAY_LEN(l->ids));
	l->ids[l->count++] = t->id;
	l->last = (struct turn_key){ t->created_ms, t->id };
}

/* Five turns far in the future, so that they are the newest; two pairs at equal times. */
static void turns_are_listed_by_pages(void **state)
{
	static const uint64_t times[] = { 5, 5, 4, 4, 3 };
	const uint64_t base = (uint64_t)1 << 42;
	struct turn_page page = { .limit = 2 };
	struct listed l = { .count = 0 };
	struct uuid ids[5], first = { "" };

	(void)state;
	for (size_t i = 5; i-- > 0;) {
		struct session s = new_session(&acme);

		first = s.id;
		ids[i] = put_turn(&s.id, "x", base + times[i]);
		end_turn(&ids[i]);
	}
	for (size_t i = 0; i < 2; i++) {
		struct session newer = new_session(&acme);

		assert_ok(turn_list(store, &acme, &page, list_turn, &l, &e));
		assert_true(page.more);
		page.after = &l.last;
		put_turn(&newer.id, "newer", base + 9); /* changes nothing below */
	}
	page.limit = 1;
	assert_ok(turn_list(store, &acme, &page, list_turn, &l, &e));
	assert_int_equal(l.count, 5);
	for (size_t i = 0; i < 5; i++)
		assert_string_equal(l.ids[i].text, ids[i].text);
	page = (struct turn_page){ .session = &first, .limit = 8 };
	l.count = 0;
	assert_ok(turn_list(store, &acme, &page, list_turn, &l, &e));
	assert_int_equal(l.count, 1);
	assert_false(page.more);
}

static void see_input(void *ctx, const struct turn *t)
{
	*(size_t *)ctx = strlen(t->input);
}

static void lists_give_the_beginning_of_an_input(void **state)
{
	static char input[TURN_INPUT_SHOWN + 2];
	struct session s = new_session(&acme);
	struct turn_page page = { .session = &s.id, .limit = 1 };
	struct uuid id;
	size_t shown = 0;

	(void)state;
	for (size_t len = TURN_INPUT_SHOWN; len <= TURN_INPUT_SHOWN + 1; len++) {
		memset(input, 'x', len);
		id = put_turn(&s.id, input, clock_wall_ms());
		assert_ok(turn_list(store, &acme, &page, see_input, &shown, &e));
		assert_int_equal(shown, TURN_INPUT_SHOWN);
		end_turn(&id);
	}
}

/* -- items -- */

static void tokens_are_added_up(void **state)
{
	static const uint64_t max = 9007199254740991;
	struct session s = new_session(&acme), got;
	struct uuid turn = put_turn(&s.id, "x", 1);
	char text[] = "x";
	struct item item = { .kind = ITEM_ASSISTANT, .body = text, .body_len = 1 };
	struct turn_step step = { &item, 1, 3, 5, 7 };

	(void)state;
	assert_code(turn_append(store, &acme, &turn, &step, &e), STORE_CONFLICT);
	assert_ok(turn_mark_running(store, &acme, &turn, 1, &e));
	assert_ok(turn_append(store, &acme, &turn, &step, &e));
	assert_ok(turn_append(store, &acme, &turn, &step, &e));
	assert_ok(session_get(store, &acme, &s.id, &got, &e));
	assert_int_equal(got.input_tokens, 6);
	assert_int_equal(got.output_tokens, 10);
	assert_int_equal(got.cached_tokens, 14);
	step.input_tokens = UINT64_MAX;
	step.output_tokens = max - 10;
	step.cached_tokens = max;
	assert_ok(turn_append(store, &acme, &turn, &step, &e));
	assert_ok(session_get(store, &acme, &s.id, &got, &e));
	assert_int_equal(got.input_tokens, max);
	assert_int_equal(got.output_tokens, max);
	assert_int_equal(got.cached_tokens, max);
	end_turn(&turn);
}

static void shown_items_are_bounded(void **state)
{
	static char text[ITEM_TEXT_SHOWN + 1];
	struct session s = new_session(&acme);
	struct uuid turn = put_turn(&s.id, "x", 1);
	struct item call = { .kind = ITEM_TOOL_CALL,
		             .call_state = CALL_PENDING,
		             .body = text,
		             .body_len = sizeof(text) };
	struct turn_step step = { .items = &call, .count = 1 };
	struct item_list list;

	(void)state;
	memset(text, 'x', sizeof(text));
	assert_ok(turn_mark_running(store, &acme, &turn, 1, &e));
	assert_ok(append_text(&turn, text, ITEM_TEXT_SHOWN));
	assert_ok(append_text(&turn, text, ITEM_TEXT_SHOWN + 1));
	assert_ok(turn_append(store, &acme, &turn, &step, &e));
	for (int i = 0; i < 2; i++)
		assert_ok(append_text(&turn, text, ITEM_TEXT_SHOWN));
	assert_ok(append_text(&turn, text, 0));
	assert_ok(turn_items_shown(store, &acme, &turn, &list, &e));
	assert_int_equal(list.count, 7);
	assert_false(list.items[1].beginning);
	assert_int_equal(list.items[1].body_len, ITEM_TEXT_SHOWN);
	assert_true(list.items[2].beginning);
	assert_int_equal(list.items[2].body_len, ITEM_TEXT_SHOWN);
	assert_false(list.items[3].beginning); /* arguments are whole */
	assert_int_equal(list.items[3].body_len, sizeof(text));
	assert_false(list.items[4].beginning); /* 196,610 bytes were given before it */
	assert_true(list.items[5].beginning);  /* 262,146 */
	assert_int_equal(list.items[5].body_len, 0);
	assert_false(list.items[6].beginning); /* there is nothing to miss */
	item_list_release(&list);
	end_turn(&turn);
}

/* -- the bound -- */

static uint64_t database_size(void)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = { "SELECT pg_database_size(current_database())", PG_NO_PARAMS };

	assert_ok(tenant_rows(store, &acme, &q, &rows, &e));
	return (uint64_t)pg_get_int(rows, 0, 0);
}

static int take_room(struct pg *pg, void *ctx, struct err *err)
{
	struct tenant_db *db = NULL;

	if (tenant_db_get(store, &acme, &db, err) < 0)
		return -1;
	return room_take(store, db, pg, *(uint64_t *)ctx, err);
}

static int take(uint64_t bytes)
{
	return tenant_transaction(store, &acme, take_room, &bytes, &e);
}

/* What take() says: 0, or the code of its error. */
static int outcome_of(uint64_t bytes)
{
	e = (struct err)ERR_INIT;
	return take(bytes) < 0 ? e.code : 0;
}

/* False when it took so long that it was measured anew in between, which changes the sums. */
static bool bound_holds(struct tenant_db *db)
{
	uint64_t row = 256, measured;
	int more, all, past;

	db->size.measured_ms = 0;
	assert_ok(take(0)); /* measures, and counts a row */
	measured = db->size.measured_ms;
	assert_in_range(db->size.bytes, 1, database_size());
	row = store->max_tenant_bytes - db->size.bytes - db->size.added - row;
	more = outcome_of(row + 1);
	all = outcome_of(store->max_tenant_bytes - db->size.bytes - db->size.added - 256);
	past = outcome_of(0);
	if (db->size.measured_ms != measured)
		return false;
	assert_int_equal(more, STORE_TENANT_FULL);
	assert_int_equal(all, 0);
	assert_int_equal(past, STORE_TENANT_FULL);
	return true;
}

static void the_bound_and_one_byte_more(void **state)
{
	struct tenant_db *db = NULL;
	int tries = 0;

	(void)state;
	assert_ok(tenant_db_get(store, &acme, &db, &e));
	store->max_tenant_bytes = database_size() * 2;
	while (!bound_holds(db))
		assert_true(++tries < 10);
	/* Nothing was really inserted, which the next measurement sees. */
	db->size.measured_ms -= 1000;
	assert_ok(take(0));
	store->max_tenant_bytes = 0;
	assert_ok(take(UINT64_MAX / 2));
}

/* As bound_holds(). */
static bool holes_count(struct tenant_db *db, uint64_t max)
{
	uint64_t left, measured;
	int more, all;

	db->size.measured_ms = 0;
	db->size.holes = 0;
	assert_ok(take(0));
	measured = db->size.measured_ms;
	room_return(store, db, 1000);
	assert_int_equal(db->size.holes, 1000);
	left = max - db->size.bytes - db->size.added;
	more = outcome_of(left + 1000 - 256 + 1);
	all = outcome_of(left + 1000 - 256);
	if (db->size.measured_ms != measured)
		return false;
	assert_int_equal(more, STORE_TENANT_FULL);
	assert_int_equal(all, 0);
	return true;
}

/* Holes count as room at once, but never more than a sixteenth of the bound. */
static void holes_are_room(void **state)
{
	struct tenant_db *db = NULL;
	int tries = 0;
	uint64_t max;

	(void)state;
	assert_ok(tenant_db_get(store, &acme, &db, &e));
	max = store->max_tenant_bytes = database_size() * 2;
	while (!holes_count(db, max))
		assert_true(++tries < 10);
	db->size.added = 0;
	room_return(store, db, max);
	assert_int_equal(db->size.holes,
	                 max / 16); /* the bound is not near: nothing is rewritten */
	db->size.holes = 0;
	store->max_tenant_bytes = 0;
}

/* What is there fills the database: deleting the session makes room for another one. */
static void expect_room_back(const struct session *s, const struct uuid *turn, uint64_t before)
{
	struct session full = *s;

	full.id = uuid_new();
	assert_code(session_insert(store, &acme, &full, NULL, &e), STORE_TENANT_FULL);
	end_turn(turn); /* an end is never refused */
	assert_ok(session_delete(store, &acme, &s->id, &e));
	assert_in_range(database_size(), 1, before + (1 << 20));
	assert_ok(session_insert(store, &acme, &full, NULL, &e));
	store->max_tenant_bytes = 0;
}

static void bound_to_what_is_there(void)
{
	struct tenant_db *db = NULL;

	assert_ok(tenant_db_get(store, &acme, &db, &e));
	store->max_tenant_bytes = database_size();
	db->size.measured_ms = 0;
	db->size.holes = 0;
}

static void deleting_gives_the_room_back(void **state)
{
	static char noise[1 << 20];
	struct session s = new_session(&acme);
	struct uuid turn = put_turn(&s.id, "x", 1);
	uint64_t before = database_size();

	(void)state;
	assert_ok(turn_mark_running(store, &acme, &turn, 1, &e));
	for (int i = 0; i < 8; i++) {
		random_bytes(noise, sizeof(noise));
		assert_ok(append_text(&turn, noise, sizeof(noise)));
	}
	bound_to_what_is_there();
	assert_code(append_text(&turn, noise, 100), STORE_TENANT_FULL);
	expect_room_back(&s, &turn, before);
}

/* What a harness said in a turn is in a table of its own. */
static void deleting_gives_the_room_of_lines_back(void **state)
{
	static char noise[1 << 20];
	struct session s = new_session(&acme);
	struct uuid turn = put_turn(&s.id, "x", 1);
	uint64_t before = database_size();

	(void)state;
	for (uint32_t i = 1; i <= 8; i++) {
		const struct harness_line line = { i, noise, sizeof(noise) };

		random_bytes(noise, sizeof(noise));
		assert_ok(harness_lines_keep(store, &acme, &turn, &line, 1, &e));
	}
	bound_to_what_is_there();
	expect_room_back(&s, &turn, before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_the_store),
		cmocka_unit_test(changes_one_thing),
		cmocka_unit_test(a_busy_session_stays_as_it_is),
		cmocka_unit_test(deletes_all_of_one_session),
		cmocka_unit_test(a_deletion_reads_no_whole_table),
		cmocka_unit_test(the_deleting_function_spares_a_busy_session),
		cmocka_unit_test(a_key_makes_one_session),
		cmocka_unit_test(a_key_at_once_makes_one_session),
		cmocka_unit_test(a_fork_copies_every_byte),
		cmocka_unit_test(a_fork_ends_where_it_shall),
		cmocka_unit_test(the_order_of_a_session_ignores_the_clock),
		cmocka_unit_test(history_is_cut_by_index),
		cmocka_unit_test(turns_are_listed_by_pages),
		cmocka_unit_test(lists_give_the_beginning_of_an_input),
		cmocka_unit_test(tokens_are_added_up),
		cmocka_unit_test(shown_items_are_bounded),
		cmocka_unit_test(the_bound_and_one_byte_more),
		cmocka_unit_test(holes_are_room),
		cmocka_unit_test(deleting_gives_the_room_back),
		cmocka_unit_test(deleting_gives_the_room_of_lines_back),
		cmocka_unit_test(closes_the_store),
	};

	fixture_begin();
	return fixture_end(RUN_TESTS(tests));
}
