/* Sessions, turns, items and requests, against a real cluster. */
#include "daemon/store/test_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

/* -- helpers -- */

static struct turn turn_of(const struct session *s, const char *input)
{
	struct turn t = { .id = uuid_new(), .session = s->id, .created_ms = clock_wall_ms() };

	t.input = strdup(input);
	assert_non_null(t.input);
	return t;
}

static struct uuid new_turn(const struct uuid *tenant, const struct session *s)
{
	struct turn t = turn_of(s, "hello");
	bool existing = true;

	assert_ok(turn_insert(store, tenant, &t, &existing, &e));
	assert_false(existing);
	turn_release(&t);
	return t.id;
}

static struct uuid running_turn(const struct session *s)
{
	struct uuid id = new_turn(&acme, s);

	assert_ok(turn_mark_running(store, &acme, &id, 1000, &e));
	return id;
}

static int end_turn(const struct uuid *id, enum turn_state state)
{
	const struct turn_end end = { .state = state, .now_ms = 5000 };

	return turn_finish(store, &acme, id, &end, &e);
}

static int append(const struct uuid *turn, struct item *items, size_t count)
{
	struct turn_step step = { .items = items, .count = count };

	return turn_append(store, &acme, turn, &step, &e);
}

static void append_call(const struct uuid *turn, const char *arguments)
{
	char body[64];
	struct item call = { .kind = ITEM_TOOL_CALL,
		             .call_id = "call-1",
		             .tool = "shell",
		             .call_state = CALL_PENDING,
		             .body = body };

	(void)snprintf(body, sizeof(body), "%s", arguments);
	call.body_len = strlen(body);
	assert_ok(append(turn, &call, 1));
	assert_int_equal(call.seq, 1);
}

static struct request request_for(const struct session *s, const struct uuid *turn)
{
	struct request r = { .id = uuid_new(),
		             .turn = *turn,
		             .session = s->id,
		             .kind = "plan_question",
		             .call_id = "call-1",
		             .call_seq = 1,
		             .created_ms = clock_wall_ms() };

	r.prompt = strdup("Which one?");
	r.options = strdup("[\"a\",\"b\"]");
	assert_non_null(r.prompt);
	assert_non_null(r.options);
	return r;
}

static int answer(const struct uuid *request, const char *decision, struct err *err)
{
	char body[] = "a";
	const struct item result = { .kind = ITEM_TOOL_RESULT,
		                     .call_id = "call-1",
		                     .tool = "ask_user",
		                     .body = body,
		                     .body_len = 1 };
	const struct request_decision d = { decision, NULL, &result, 7000 };

	return request_answer(store, &acme, request, &d, err);
}

/* A session with a running turn that waits for a person. */
static struct request waiting_request(struct session *ret_session)
{
	struct session s = new_session(&acme);
	struct uuid turn = running_turn(&s);
	struct request r = request_for(&s, &turn);

	append_call(&turn, "{}");
	assert_ok(request_insert(store, &acme, &r, &e));
	*ret_session = s;
	return r;
}

/* -- sessions -- */

/* Two on one control database would both take up its unfinished turns. */
static void a_second_daemon_is_refused(void **state)
{
	const struct store_conf conf = { cluster.socket_dir, 4 };
	struct store *second = NULL;

	(void)state;
	assert_code(store_open(&conf, &second, &e), STORE_TAKEN);
	assert_non_null(strstr(e.text, "another cloisterd uses this database"));
	assert_null(second);
	assert_ok(store_ping(store, &e));
}

static void session_round_trips(void **state)
{
	struct session in = {
		.id = uuid_new(),
		.created_ms = 1700000000001,
		.updated_ms = 1700000000002,
		.model = "demo",
		.effort = "high",
		.cwd = "/workspace/\xc3\xa4 'quoted\"",
		.title = "title",
		.title_is_manual = true,
		.archived = true,
		.input_tokens = 1,
		.output_tokens = (uint64_t)1 << 52,
		.cached_tokens = 3,
	};
	struct session out;

	(void)state;
	assert_ok(session_insert(store, &acme, &in, NULL, &e));
	assert_ok(session_get(store, &acme, &in.id, &out, &e));
	assert_string_equal(out.id.text, in.id.text);
	assert_int_equal(out.created_ms, in.created_ms);
	assert_int_equal(out.updated_ms, in.updated_ms);
	assert_string_equal(out.model, in.model);
	assert_string_equal(out.effort, in.effort);
	assert_string_equal(out.cwd, in.cwd);
	assert_string_equal(out.title, in.title);
	assert_true(out.title_is_manual && out.archived);
	assert_int_equal(out.input_tokens, 1);
	assert_int_equal(out.output_tokens, in.output_tokens);
	assert_int_equal(out.cached_tokens, 3);
	assert_code(session_insert(store, &acme, &in, NULL, &e), STORE_CONFLICT);
}

static void session_rules_are_in_the_schema(void **state)
{
	struct session in = new_session(&acme);

	(void)state;
	in.id = uuid_new();
	in.cwd[0] = 'x';
	assert_code(session_insert(store, &acme, &in, NULL, &e), STORE_CONFLICT);
	in.cwd[0] = '/';
	in.model[0] = '\0';
	assert_code(session_insert(store, &acme, &in, NULL, &e), STORE_CONFLICT);
	(void)snprintf(in.model, sizeof(in.model), "\xff\xfe"); /* not UTF-8 */
	assert_code(session_insert(store, &acme, &in, NULL, &e), STORE_CONFLICT);
	assert_null(strstr(e.text, "0xff"));
}

static void tenants_do_not_see_each_other(void **state)
{
	struct session s = new_session(&acme), found;
	struct uuid turn = new_turn(&acme, &s);
	struct turn t;

	(void)state;
	assert_code(session_get(store, &globex, &s.id, &found, &e), STORE_NOT_FOUND);
	assert_code(turn_get(store, &globex, &turn, &t, &e), STORE_NOT_FOUND);
	assert_code(turn_request_cancel(store, &globex, &turn, &e), STORE_NOT_FOUND);
}

struct seen {
	struct uuid ids[8];
	uint64_t updated[8];
	size_t count;
};

static void see_session(void *ctx, const struct session *row)
{
	struct seen *seen = ctx;

	assert_true(seen->count < ARRAY_LEN(seen->ids));
	seen->updated[seen->count] = row->updated_ms;
	seen->ids[seen->count++] = row->id;
}

static void put_listed(const struct uuid *tenant, uint64_t updated_ms, bool archived,
                       struct uuid *ret)
{
	struct session in = { .id = uuid_new(), .created_ms = 1, .model = "demo", .cwd = "/" };

	in.updated_ms = updated_ms;
	in.archived = archived;
	assert_ok(session_insert(store, tenant, &in, NULL, &e));
	*ret = in.id;
}

/* Five sessions: 30, 20 (archived), 20, 20, 10; pages of two must cut inside equal times. */
static void sessions_are_listed_by_pages(void **state)
{
	struct uuid tenant = uuid_new(), ids[5];
	struct session_page page = { .filter = SESSION_ALL, .limit = 2 };
	struct session_key after;
	struct seen seen = { .count = 0 };

	(void)state;
	put_listed(&tenant, 30, false, &ids[0]);
	put_listed(&tenant, 20, true, &ids[3]);
	put_listed(&tenant, 20, false, &ids[2]);
	put_listed(&tenant, 20, false, &ids[1]);
	put_listed(&tenant, 10, false, &ids[4]);
	for (size_t i = 0; i < 3; i++) {
		assert_ok(session_list(store, &tenant, &page, see_session, &seen, &e));
		assert_int_equal(page.more, i < 2);
		after = (struct session_key){ seen.updated[seen.count - 1],
			                      seen.ids[seen.count - 1] };
		page.after = &after;
	}
	assert_int_equal(seen.count, 5);
	for (size_t i = 0; i < 5; i++)
		assert_string_equal(seen.ids[i].text, ids[i].text);

	seen.count = 0;
	page = (struct session_page){ .filter = SESSION_ARCHIVED, .limit = 8 };
	assert_ok(session_list(store, &tenant, &page, see_session, &seen, &e));
	assert_int_equal(seen.count, 1);
	assert_string_equal(seen.ids[0].text, ids[3].text);
	seen.count = 0;
	page.filter = SESSION_ACTIVE;
	assert_ok(session_list(store, &tenant, &page, see_session, &seen, &e));
	assert_int_equal(seen.count, 4);
	assert_false(page.more);
}

/* -- turns -- */

static void turn_round_trips(void **state)
{
	struct session s = new_session(&acme), after;
	struct turn t = turn_of(&s, "line\n\xe2\x82\xac"), out;
	struct item_list items;
	bool existing = true;

	(void)state;
	t.created_ms = s.updated_ms + 10;
	assert_ok(turn_insert(store, &acme, &t, &existing, &e));
	assert_false(existing);
	assert_ok(turn_get(store, &acme, &t.id, &out, &e));
	assert_int_equal(out.state, TURN_QUEUED);
	assert_string_equal(out.input, t.input);
	assert_string_equal(out.session.text, s.id.text);
	assert_string_equal(out.client_request.text, "");
	assert_int_equal(out.created_ms, t.created_ms);
	assert_int_equal(out.started_ms, 0);
	turn_release(&out);
	assert_ok(turn_items(store, &acme, &t.id, &items, &e));
	assert_int_equal(items.count, 1);
	assert_int_equal(items.items[0].kind, ITEM_USER);
	assert_string_equal(items.items[0].body, t.input);
	item_list_release(&items);
	assert_ok(session_get(store, &acme, &s.id, &after, &e));
	assert_int_equal(after.updated_ms, t.created_ms);
	assert_string_equal(after.title, "");
	turn_release(&t);
}

static void attachments_round_trip(void **state)
{
	char bytes[] = "\0\xff\n", more[] = "x";
	const struct attachment given[] = { { bytes, 3 }, { more, 1 } };
	struct session s = new_session(&acme);
	struct turn t = turn_of(&s, "x"), out;
	struct attachment got;
	bool existing = true;

	(void)state;
	t.attachments = strdup("[1,2]");
	t.attachment_bytes = 4;
	t.attached = given;
	t.attached_count = 2;
	assert_ok(turn_insert(store, &acme, &t, &existing, &e));
	assert_ok(turn_get(store, &acme, &t.id, &out, &e));
	assert_string_equal(out.attachments, "[1,2]");
	assert_int_equal(out.attachment_bytes, 4);
	turn_release(&out);
	for (int i = 0; i < 2; i++) {
		assert_ok(turn_attachment(store, &acme, &t.id, i + 1, &got, &e));
		assert_int_equal(got.len, given[i].len);
		assert_memory_equal(got.data, given[i].data, got.len);
		free(got.data);
	}
	assert_code(turn_attachment(store, &acme, &t.id, 3, &got, &e), STORE_CORRUPT);
	assert_code(turn_attachment(store, &globex, &t.id, 1, &got, &e), STORE_CORRUPT);
	turn_release(&t);
}

static void turn_needs_a_session_that_is_free(void **state)
{
	struct session s = new_session(&acme), none = { .id = uuid_new() };
	struct turn t = turn_of(&s, "second");
	bool existing;

	(void)state;
	new_turn(&acme, &s);
	assert_code(turn_insert(store, &acme, &t, &existing, &e), STORE_BUSY);
	t.session = none.id;
	assert_code(turn_insert(store, &acme, &t, &existing, &e), STORE_NOT_FOUND);
	assert_string_equal(t.input, "second");
	turn_release(&t);
}

static int insert_again(const struct session *s, const struct uuid *key, const char *input,
                        struct turn *ret)
{
	bool existing = false;
	int rc;

	*ret = turn_of(s, input);
	ret->client_request = *key;
	rc = turn_insert(store, &acme, ret, &existing, &e);
	if (rc < 0)
		turn_release(ret);
	return rc < 0 ? -1 : existing;
}

static void client_request_is_idempotent(void **state)
{
	struct session s = new_session(&acme), other = new_session(&acme);
	struct uuid key = uuid_new(), first;
	struct turn t;

	(void)state;
	assert_int_equal(insert_again(&s, &key, "one", &t), 0);
	first = t.id;
	turn_release(&t);
	assert_int_equal(insert_again(&s, &key, "one", &t), 1);
	assert_string_equal(t.id.text, first.text);
	assert_string_equal(t.client_request.text, key.text);
	turn_release(&t);
	assert_code(insert_again(&s, &key, "two", &t), STORE_KEY_REUSED);
	assert_code(insert_again(&other, &key, "one", &t), STORE_KEY_REUSED);
	assert_ok(end_turn(&first, TURN_CANCELLED));
	assert_int_equal(insert_again(&s, &key, "one", &t), 1);
	assert_int_equal(t.state, TURN_CANCELLED);
	turn_release(&t);
}

static void turn_goes_through_its_states(void **state)
{
	struct session s = new_session(&acme);
	struct uuid id = new_turn(&acme, &s), none = uuid_new();
	const struct turn_end failed = { TURN_FAILED, "model_failed", "why\xff", 3000 };
	struct turn t;

	(void)state;
	assert_code(turn_mark_running(store, &acme, &none, 1000, &e), STORE_NOT_FOUND);
	assert_ok(turn_mark_running(store, &acme, &id, 1000, &e));
	assert_ok(turn_mark_running(store, &acme, &id, 2000, &e));
	assert_ok(turn_request_cancel(store, &acme, &id, &e));
	assert_code(end_turn(&id, TURN_RUNNING), STORE_CONFLICT);
	assert_ok(turn_finish(store, &acme, &id, &failed, &e));
	assert_ok(turn_get(store, &acme, &id, &t, &e));
	assert_int_equal(t.state, TURN_FAILED);
	assert_int_equal(t.started_ms, 1000);
	assert_int_equal(t.finished_ms, 3000);
	assert_true(t.cancel_requested);
	assert_string_equal(t.error_code, "model_failed");
	assert_string_equal(t.error, "why\xef\xbf\xbd");
	turn_release(&t);
	assert_code(end_turn(&id, TURN_COMPLETED), STORE_CONFLICT);
	assert_code(turn_request_cancel(store, &acme, &id, &e), STORE_CONFLICT);
	assert_code(turn_mark_running(store, &acme, &id, 1, &e), STORE_CONFLICT);
}

/* What is no character counts as the one in its place, which has three bytes. */
static void errors_are_cut_between_characters(void **state)
{
	static const struct {
		const char *first;
		int zeros;
		const char *last;
		size_t kept;
	} cases[] = {
		{ "", TURN_ERROR_MAX - 1, "x", TURN_ERROR_MAX },
		{ "", TURN_ERROR_MAX, "x", TURN_ERROR_MAX },
		{ "", TURN_ERROR_MAX - 2, "\xc3\xa4", TURN_ERROR_MAX },
		{ "", TURN_ERROR_MAX - 1, "\xc3\xa4", TURN_ERROR_MAX - 1 },
		{ "", TURN_ERROR_MAX - 3, "\xf0\x9f\x98\x80", TURN_ERROR_MAX - 3 },
		{ "", TURN_ERROR_MAX - 1, "\xff", TURN_ERROR_MAX - 1 },
		{ "\xff", TURN_ERROR_MAX - 3, "", TURN_ERROR_MAX },
		{ "\xff", TURN_ERROR_MAX - 2, "", TURN_ERROR_MAX },
	};
	const struct session s = new_session(&acme);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char error[TURN_ERROR_MAX + 8];
		const struct turn_end end = { TURN_FAILED, "model_failed", error, 1000 };
		struct uuid id = new_turn(&acme, &s);
		struct turn t;

		(void)snprintf(error, sizeof(error), "%s%0*d%s", cases[i].first, cases[i].zeros, 0,
		               cases[i].last);
		assert_ok(turn_finish(store, &acme, &id, &end, &e));
		assert_ok(turn_get(store, &acme, &id, &t, &e));
		assert_int_equal(strlen(t.error), cases[i].kept);
		turn_release(&t);
	}
}

struct race {
	int (*run)(const struct race *r, struct err *err);
	const struct session *session;
	const struct uuid *id;
	atomic_int won, lost;
};

static void *run_race(void *arg)
{
	struct race *r = arg;
	struct err err = ERR_INIT;

	if (r->run(r, &err) == 0)
		atomic_fetch_add(&r->won, 1);
	else if (err.code == STORE_CONFLICT || err.code == STORE_BUSY)
		atomic_fetch_add(&r->lost, 1);
	return NULL;
}

/* Several threads at once: exactly one wins, the others get a conflict. */
static void assert_one_winner(struct race *r)
{
	pthread_t threads[6];

	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_race, r), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(r->won, 1);
	assert_int_equal(r->lost, ARRAY_LEN(threads) - 1);
}

static int race_insert(const struct race *r, struct err *err)
{
	struct turn t = { .id = uuid_new(), .session = r->session->id, .created_ms = 1 };
	bool existing;
	int rc;

	t.input = strdup("race");
	rc = turn_insert(store, &acme, &t, &existing, err);
	turn_release(&t);
	return rc;
}

static int race_start(const struct race *r, struct err *err)
{
	return turn_start_call(store, &acme, r->id, 1, err);
}

static int race_answer(const struct race *r, struct err *err)
{
	return answer(r->id, "a", err);
}

static int race_finish(const struct race *r, struct err *err)
{
	const struct turn_end end = { .state = TURN_COMPLETED, .now_ms = 1 };

	return turn_finish(store, &acme, r->id, &end, err);
}

static void races_have_one_winner(void **state)
{
	struct session s = new_session(&acme), waiting;
	struct request request = waiting_request(&waiting);
	struct race insert = { .run = race_insert, .session = &s };
	struct race answers = { .run = race_answer, .id = &request.id };
	struct session other = new_session(&acme);
	struct uuid turn = running_turn(&other);
	struct race start = { .run = race_start, .id = &turn };
	struct race finish = { .run = race_finish, .id = &turn };

	(void)state;
	append_call(&turn, "{}");
	assert_one_winner(&insert);
	assert_one_winner(&start);
	assert_one_winner(&answers);
	assert_one_winner(&finish);
	request_release(&request);
}

/* -- items -- */

static void items_keep_every_byte(void **state)
{
	struct session s = new_session(&acme);
	struct uuid turn = running_turn(&s);
	unsigned char bytes[512];
	struct item in[2] = { { .kind = ITEM_ASSISTANT },
		              { .kind = ITEM_TOOL_CALL,
		                .call_id = "c",
		                .tool = "shell",
		                .call_state = CALL_PENDING } };
	struct item_list list;

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)i;
	in[0].body = in[1].body = (char *)bytes;
	in[0].body_len = in[1].body_len = sizeof(bytes);
	assert_ok(append(&turn, in, 2));
	assert_int_equal(in[1].seq, 2);
	assert_ok(turn_items(store, &acme, &turn, &list, &e));
	assert_int_equal(list.count, 3);
	for (size_t i = 1; i < 3; i++) {
		assert_int_equal(list.items[i].seq, i);
		assert_int_equal(list.items[i].body_len, sizeof(bytes));
		assert_memory_equal(list.items[i].body, bytes, sizeof(bytes));
	}
	assert_int_equal(list.items[1].call_state, CALL_NONE);
	assert_int_equal(list.items[2].call_state, CALL_PENDING);
	item_list_release(&list);
	turn = uuid_new();
	assert_code(turn_items(store, &acme, &turn, &list, &e), STORE_NOT_FOUND);
}

/* Reasoning is opaque to us, and the store would not confuse it with anything else. */
static void reasoning_comes_back_as_it_came(void **state)
{
	struct session s = new_session(&acme);
	struct uuid turn = running_turn(&s);
	char opaque[] = "a\0b\xff", details[] = "{\"reason\":\"why\"}", text[] = "half a";
	struct item in[] = { { .kind = ITEM_DISCARDED, .details = details, .body = text },
		             { .kind = ITEM_REASONING, .origin = "of-a", .opaque = opaque },
		             { .kind = ITEM_REASONING, .origin = "of-a" },
		             { .kind = ITEM_ASSISTANT } };
	struct item wrong = { .kind = ITEM_ASSISTANT, .opaque = opaque, .opaque_len = 1 };
	struct item_list list;

	(void)state;
	in[0].body_len = strlen(text);
	in[1].opaque_len = sizeof(opaque);
	assert_ok(append(&turn, in, 4));
	assert_code(append(&turn, &wrong, 1), STORE_CONFLICT);
	assert_ok(turn_items(store, &acme, &turn, &list, &e));
	assert_int_equal(list.count, 5);
	assert_int_equal(list.items[1].kind, ITEM_DISCARDED);
	assert_string_equal(list.items[1].body, text);
	assert_string_equal(list.items[1].details, details);
	assert_int_equal(list.items[2].kind, ITEM_REASONING);
	assert_string_equal(list.items[2].origin, "of-a");
	assert_true(list.items[2].sealed && !list.items[3].sealed);
	assert_int_equal(list.items[2].opaque_len, sizeof(opaque));
	assert_memory_equal(list.items[2].opaque, opaque, sizeof(opaque));
	assert_null(list.items[3].opaque);
	item_list_release(&list);
	assert_ok(turn_items_shown(store, &acme, &turn, &list, &e));
	assert_true(list.items[2].sealed && !list.items[3].sealed);
	assert_null(list.items[2].opaque); /* nobody is shown it */
	item_list_release(&list);
}

static void items_go_to_running_turns_only(void **state)
{
	struct session s = new_session(&acme);
	struct uuid turn = new_turn(&acme, &s);
	struct item text = { .kind = ITEM_ASSISTANT };
	struct item result = { .kind = ITEM_TOOL_RESULT };
	struct item done = { .kind = ITEM_TOOL_CALL, .call_state = CALL_DONE };

	(void)state;
	assert_code(append(&turn, &text, 1), STORE_CONFLICT);
	assert_ok(turn_mark_running(store, &acme, &turn, 1, &e));
	assert_code(append(&turn, &result, 1), STORE_CONFLICT);
	assert_code(append(&turn, &done, 1), STORE_CONFLICT);
	assert_ok(append(&turn, &text, 1));
	assert_ok(end_turn(&turn, TURN_COMPLETED));
	assert_code(append(&turn, &text, 1), STORE_CONFLICT);
}

static void appending_is_all_or_nothing(void **state)
{
	struct session s = new_session(&acme);
	struct uuid turn = running_turn(&s);
	struct item in[2] = { { .kind = ITEM_ASSISTANT }, { .kind = ITEM_ASSISTANT } };
	struct item_list list;

	(void)state;
	memcpy(in[1].tool, "\xff", 2); /* the second is refused by the database */
	assert_code(append(&turn, in, 2), STORE_CONFLICT);
	assert_ok(turn_items(store, &acme, &turn, &list, &e));
	assert_int_equal(list.count, 1);
	item_list_release(&list);
}

static void call_runs_once(void **state)
{
	struct session s = new_session(&acme);
	struct uuid turn = running_turn(&s);
	char output[] = "out\0put";
	struct item result = { .call_id = "call-1",
		               .tool = "shell",
		               .lossy = true,
		               .truncated = true,
		               .total_bytes = 100000000,
		               .body = output,
		               .body_len = sizeof(output) };
	struct item_list list;

	(void)state;
	append_call(&turn, "{\"a\":1, \"a\":2}");
	assert_code(turn_start_call(store, &acme, &turn, 0, &e), STORE_CONFLICT);
	assert_code(turn_start_call(store, &acme, &turn, 9, &e), STORE_CONFLICT);
	assert_ok(turn_start_call(store, &acme, &turn, 1, &e));
	assert_code(turn_start_call(store, &acme, &turn, 1, &e), STORE_CONFLICT);
	assert_ok(turn_finish_call(store, &acme, &turn, 1, &result, &e));
	assert_int_equal(result.seq, 2);
	assert_code(turn_finish_call(store, &acme, &turn, 1, &result, &e), STORE_CONFLICT);
	assert_ok(turn_items(store, &acme, &turn, &list, &e));
	assert_int_equal(list.count, 3);
	assert_string_equal(list.items[1].body, "{\"a\":1, \"a\":2}");
	assert_int_equal(list.items[1].call_state, CALL_DONE);
	assert_int_equal(list.items[2].kind, ITEM_TOOL_RESULT);
	assert_true(list.items[2].lossy && list.items[2].truncated);
	assert_int_equal(list.items[2].total_bytes, 100000000);
	assert_int_equal(list.items[2].body_len, sizeof(output));
	assert_memory_equal(list.items[2].body, output, sizeof(output));
	item_list_release(&list);
}

/* -- requests -- */

static void see_request(void *ctx, const struct request *r)
{
	struct seen *seen = ctx;

	assert_int_equal(r->state, REQUEST_OPEN);
	assert_null(r->decision);
	seen->ids[seen->count++] = r->id;
}

static void request_waits_and_is_answered_once(void **state)
{
	struct session s;
	struct request r = waiting_request(&s), found;
	const struct request_page page = { &r.turn, 8 };
	struct seen seen = { .count = 0 };
	struct item_list list;
	struct turn t;

	(void)state;
	assert_ok(turn_get(store, &acme, &r.turn, &t, &e));
	assert_int_equal(t.state, TURN_WAITING);
	turn_release(&t);
	assert_code(turn_mark_running(store, &acme, &r.turn, 1, &e), STORE_CONFLICT);
	assert_code(request_insert(store, &acme, &r, &e), STORE_CONFLICT);
	assert_ok(request_list(store, &acme, &page, see_request, &seen, &e));
	assert_int_equal(seen.count, 1);
	assert_ok(answer(&r.id, "a", &e));
	assert_code(answer(&r.id, "b", &e), STORE_CONFLICT);
	assert_ok(request_get(store, &acme, &r.id, &found, &e));
	assert_int_equal(found.state, REQUEST_ANSWERED);
	assert_int_equal(found.answered_ms, 7000);
	assert_string_equal(found.decision, "a");
	assert_null(found.value);
	assert_string_equal(found.options, "[\"a\",\"b\"]");
	request_release(&found);
	assert_ok(turn_get(store, &acme, &r.turn, &t, &e));
	assert_int_equal(t.state, TURN_QUEUED);
	turn_release(&t);
	assert_ok(turn_items(store, &acme, &r.turn, &list, &e));
	assert_int_equal(list.items[1].call_state, CALL_DONE);
	assert_int_equal(list.items[2].kind, ITEM_TOOL_RESULT);
	item_list_release(&list);
	request_release(&r);
}

static void request_of_an_ended_turn_is_withdrawn(void **state)
{
	struct session s;
	struct request r = waiting_request(&s), found;
	struct uuid none = uuid_new();

	(void)state;
	assert_ok(end_turn(&r.turn, TURN_CANCELLED));
	assert_code(answer(&r.id, "a", &e), STORE_CONFLICT);
	assert_ok(request_get(store, &acme, &r.id, &found, &e));
	assert_int_equal(found.state, REQUEST_WITHDRAWN);
	request_release(&found);
	request_release(&r);
	assert_code(request_get(store, &acme, &none, &found, &e), STORE_NOT_FOUND);
	assert_code(answer(&none, "a", &e), STORE_NOT_FOUND);
}

static void requests_are_listed_newest_first(void **state)
{
	struct session s;
	struct request one = waiting_request(&s), two = waiting_request(&s);
	const struct request_page page = { NULL, 1 };
	struct seen seen = { .count = 0 };

	(void)state;
	assert_ok(request_list(store, &acme, &page, see_request, &seen, &e));
	assert_int_equal(seen.count, 1);
	assert_string_equal(seen.ids[0].text, two.id.text);
	request_release(&one);
	request_release(&two);
}

/* -- unfinished work -- */

static void look_for(void *ctx, const struct uuid *tenant)
{
	struct seen *seen = ctx;

	seen->count += uuid_equal(tenant, &seen->ids[0]);
}

static bool is_marked(const struct uuid *tenant)
{
	struct seen seen = { .ids = { *tenant } };

	assert_ok(store_each_unfinished(store, look_for, &seen, &e));
	return seen.count == 1;
}

static void count_turn(void *ctx, const struct turn *t)
{
	size_t *count = ctx;

	assert_false(turn_state_terminal(t->state));
	++*count;
}

static void unfinished_tenants_are_marked(void **state)
{
	struct uuid tenant = uuid_new(), turn;
	const struct turn_end end = { .state = TURN_CANCELLED, .now_ms = 1 };
	struct session s = new_session(&tenant);
	size_t count = 0;

	(void)state;
	assert_false(is_marked(&tenant));
	turn = new_turn(&tenant, &s);
	assert_true(is_marked(&tenant));
	assert_ok(store_settle(store, &tenant, &e));
	assert_true(is_marked(&tenant));
	assert_ok(turn_each_unfinished(store, &tenant, count_turn, &count, &e));
	assert_int_equal(count, 1);
	store_close(&store); /* a mark is durable */
	opens_the_store(NULL);
	assert_true(is_marked(&tenant));
	assert_ok(turn_finish(store, &tenant, &turn, &end, &e));
	assert_true(is_marked(&tenant));
	assert_ok(store_settle(store, &tenant, &e));
	assert_false(is_marked(&tenant));
	new_turn(&tenant, &s);
	assert_true(is_marked(&tenant));
}

/* A turn is being inserted while another one of the tenant ends. */
static void settling_spares_an_insertion(void **state)
{
	struct uuid tenant = uuid_new();
	struct tenant_db *db;

	(void)state;
	new_session(&tenant);
	assert_ok(mark_begin(store, &tenant, &db, &e));
	assert_ok(store_settle(store, &tenant, &e));
	assert_true(is_marked(&tenant));
	mark_end(db);
	assert_ok(store_settle(store, &tenant, &e));
	assert_false(is_marked(&tenant));
}

static bool is_same(void *ctx, const struct uuid *tenant)
{
	return uuid_equal(ctx, tenant);
}

/* A straggler of a purged tenant must not bring back what was taken away. */
static void a_purged_tenant_stays_away(void **state)
{
	struct uuid tenant = uuid_new(), other = uuid_new();
	struct session s = new_session(&tenant), again = { .id = uuid_new() };
	struct turn t;

	(void)state;
	new_turn(&tenant, &s);
	t = turn_of(&s, "late");
	assert_ok(store_purge(store, &tenant, &e));
	assert_false(is_marked(&tenant));
	assert_code(session_get(store, &tenant, &s.id, &again, &e), STORE_NOT_FOUND);
	assert_code(store_settle(store, &tenant, &e), STORE_NOT_FOUND);
	assert_code(turn_insert(store, &tenant, &t, &(bool){ false }, &e), STORE_NOT_FOUND);
	turn_release(&t);
	store_readmit(store, is_same, &other);
	assert_code(session_get(store, &tenant, &s.id, &again, &e), STORE_NOT_FOUND);
	assert_code(store_settle(store, &tenant, &e), STORE_NOT_FOUND);
	store_readmit(store, is_same, &tenant);
	assert_code(session_get(store, &tenant, &s.id, &again, &e), STORE_NOT_FOUND);
	(void)new_session(&tenant);
	assert_ok(store_settle(store, &tenant, &e));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_the_store),
		cmocka_unit_test(a_second_daemon_is_refused),
		cmocka_unit_test(session_round_trips),
		cmocka_unit_test(session_rules_are_in_the_schema),
		cmocka_unit_test(tenants_do_not_see_each_other),
		cmocka_unit_test(sessions_are_listed_by_pages),
		cmocka_unit_test(turn_round_trips),
		cmocka_unit_test(attachments_round_trip),
		cmocka_unit_test(turn_needs_a_session_that_is_free),
		cmocka_unit_test(client_request_is_idempotent),
		cmocka_unit_test(turn_goes_through_its_states),
		cmocka_unit_test(errors_are_cut_between_characters),
		cmocka_unit_test(races_have_one_winner),
		cmocka_unit_test(items_keep_every_byte),
		cmocka_unit_test(reasoning_comes_back_as_it_came),
		cmocka_unit_test(items_go_to_running_turns_only),
		cmocka_unit_test(appending_is_all_or_nothing),
		cmocka_unit_test(call_runs_once),
		cmocka_unit_test(request_waits_and_is_answered_once),
		cmocka_unit_test(request_of_an_ended_turn_is_withdrawn),
		cmocka_unit_test(requests_are_listed_newest_first),
		cmocka_unit_test(unfinished_tenants_are_marked),
		cmocka_unit_test(settling_spares_an_insertion),
		cmocka_unit_test(a_purged_tenant_stays_away),
		cmocka_unit_test(closes_the_store),
	};

	fixture_begin();
	return fixture_end(RUN_TESTS(tests));
}
