/* Reasoning on its way back, and how much of it is asked for. */
#include "common/test.h"

#include "daemon/model/effort.h"
#include "daemon/model/prompt.h"
#include "daemon/model/test_items.h"

#include <string.h>

#define ORIGIN "0123456789abcdef0123456789abcdef"

static void think(struct item_list *list, const char *origin, const char *opaque)
{
	struct item *item;

	add(list, ITEM_REASONING, "what people read", "");
	item = &list->items[list->count - 1];
	(void)snprintf(item->origin, sizeof(item->origin), "%s", origin);
	item->opaque = strdup(opaque);
	item->opaque_len = strlen(opaque);
}

/* A whole turn, one that was cancelled after it had begun to call, and one that goes on. */
static void tell_story(struct item_list *list, const char *origin)
{
	add(list, ITEM_USER, "first", "");
	add(list, ITEM_DISCARDED, "half a wo", "");
	think(list, origin, "{\"r\":1}");
	add(list, ITEM_ASSISTANT, "done", "");
	add(list, ITEM_USER, "second", "");
	think(list, origin, "{\"r\":\"of a call that is lost\"}");
	add(list, ITEM_TOOL_CALL, "{}", "lost");
	add(list, ITEM_USER, "third", "");
	think(list, origin, "{\"r\":2}");
	think(list, origin, "{\"r\":3}");
	add(list, ITEM_ASSISTANT, "I look.", "");
	think(list, origin, "{\"r\":4}");
	add(list, ITEM_TOOL_CALL, "{}", "c1");
	add(list, ITEM_TOOL_RESULT, "seen", "c1");
}

struct asked {
	struct model_reasoning reasoning;
	const char *effort;
	int64_t max;
	const char *origin; /* of what is in the transcript */
};

static void write_story(struct buf *out, enum dialect dialect, const struct asked *asked)
{
	struct item_list list = { NULL, 0 };
	const struct model_prompt p = { .transcript = &list, .effort = asked->effort };
	const struct prompt_target to = { .dialect = dialect,
		                          .model = "m",
		                          .max_output_tokens = asked->max ? asked->max : 100,
		                          .reasoning = asked->reasoning,
		                          .origin = ORIGIN };
	struct err e = ERR_INIT;

	tell_story(&list, asked->origin ? asked->origin : ORIGIN);
	assert_int_equal(prompt_write(&p, &to, out, &e), 0);
	assert_int_equal(json_check(out->data, out->len, &e), 0);
	assert_null(strstr(out->data, "half a wo"));
	assert_null(strstr(out->data, "what people read"));
	assert_null(strstr(out->data, "lost"));
	item_list_release(&list);
}

static void expect(enum dialect dialect, const struct asked *asked, const char *wanted)
{
	auto_buf struct buf out = BUF_INIT(PROMPT_BYTES_MAX);

	write_story(&out, dialect, asked);
	if (!strstr(out.data, wanted))
		fail_msg("not in %s: %s", out.data, wanted);
}

static void expect_none(enum dialect dialect, const struct asked *asked, const char *unwanted)
{
	auto_buf struct buf out = BUF_INIT(PROMPT_BYTES_MAX);

	write_story(&out, dialect, asked);
	if (strstr(out.data, unwanted))
		fail_msg("in %s: %s", out.data, unwanted);
}

static void it_goes_back_where_it_stood(void **state)
{
	static const struct asked plain = { .effort = NULL };

	(void)state;
	expect(DIALECT_RESPONSES, &plain,
	       "\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"
	       "\"first\"}]},{\"r\":1},{\"role\":\"assistant\",\"content\":[{\"type\":"
	       "\"output_text\",\"text\":\"done\"}]},{\"role\":\"user\",\"content\":[{\"type\":"
	       "\"input_text\",\"text\":\"second\"}]},{\"role\":\"user\",\"content\":[{\"type\":"
	       "\"input_text\",\"text\":\"third\"}]},{\"r\":2},{\"r\":3},{\"role\":\"assistant\","
	       "\"content\":[{\"type\":\"output_text\",\"text\":\"I look.\"}]},{\"r\":4},"
	       "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"shell\",\"arguments\":"
	       "\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":"
	       "\"seen\"}]}");
	expect(DIALECT_MESSAGES, &plain,
	       "{\"role\":\"assistant\",\"content\":[{\"r\":1},{\"type\":\"text\",\"text\":"
	       "\"done\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
	       "\"second\"},{\"type\":\"text\",\"text\":\"third\"}]},{\"role\":\"assistant\","
	       "\"content\":[{\"r\":2},{\"r\":3},{\"type\":\"text\",\"text\":\"I look.\"},"
	       "{\"r\":4},{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"shell\",\"input\":{}}]}");
	expect(DIALECT_CHAT, &plain,
	       "{\"role\":\"assistant\",\"content\":\"I look.\",\"tool_calls\":[{\"type\":"
	       "\"function\",\"id\":\"c1\",\"function\":{\"name\":\"shell\",\"arguments\":"
	       "\"{}\"}}]}");
}

/* Also not by one bit, nor without an origin at all. */
static void another_model_is_not_told(void **state)
{
	static const struct asked others[] = { { .origin = "0123456789abcdef0123456789abcdee" },
		                               { .origin = "" } };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		expect_none(DIALECT_RESPONSES, &others[i], "{\"r\":");
		expect_none(DIALECT_MESSAGES, &others[i], "{\"r\":");
	}
}

#define LEVELS(...)                                \
	{                                          \
		.on = true, .efforts = __VA_ARGS__ \
	}
#define LOW    (1U << EFFORT_LOW)
#define MEDIUM (1U << EFFORT_MEDIUM)
#define HIGH   (1U << EFFORT_HIGH)

static void responses(void **state)
{
	static const struct asked plain = { LEVELS(LOW | HIGH), "medium" };
	static const struct asked both = { { .on = true, .efforts = HIGH, .summaries = true },
		                           "max" };
	static const struct asked nameless = { LEVELS(0), "high" }, off = { .effort = "high" };

	(void)state;
	expect(DIALECT_RESPONSES, &plain,
	       "\"store\":false,\"include\":[\"reasoning.encrypted_content\"],\"reasoning\":"
	       "{\"effort\":\"low\"},");
	expect(DIALECT_RESPONSES, &both,
	       "\"reasoning\":{\"effort\":\"high\",\"summary\":\"auto\"},");
	expect(DIALECT_RESPONSES, &nameless, "\"include\":[\"reasoning.encrypted_content\"]");
	expect_none(DIALECT_RESPONSES, &nameless, "\"reasoning\":");
	expect_none(DIALECT_RESPONSES, &off, "\"include\":");
	expect_none(DIALECT_RESPONSES, &off, "\"reasoning\":");
}

static void chat_completions(void **state)
{
	static const struct asked plain = { LEVELS(LOW | MEDIUM), "high" };
	static const struct asked off = { .effort = "high" };

	(void)state;
	expect(DIALECT_CHAT, &plain, "\"reasoning_effort\":\"medium\",");
	expect_none(DIALECT_CHAT, &off, "reasoning");
}

static void messages(void **state)
{
	static const struct asked plain = { LEVELS(LOW | HIGH), "high" };
	static const struct asked none = { LEVELS(LOW | HIGH), "none" };
	static const struct asked nameless = { LEVELS(0), "high" };
	static const struct asked summed = { { .on = true, .summaries = true }, "high" };

	(void)state;
	expect(DIALECT_MESSAGES, &plain,
	       "\"thinking\":{\"type\":\"adaptive\"},\"output_config\":{\"effort\":\"high\"},");
	expect(DIALECT_MESSAGES, &nameless, "\"thinking\":{\"type\":\"adaptive\"},\"messages\"");
	expect(DIALECT_MESSAGES, &summed,
	       "\"thinking\":{\"type\":\"adaptive\",\"display\":\"summarized\"},");
	expect_none(DIALECT_MESSAGES, &none, "\"thinking\":");
	expect_none(DIALECT_MESSAGES, &none, "output_config");
}

/* At least 1,024 tokens, and fewer than there are in all. */
static void messages_by_budget(void **state)
{
	static const struct {
		struct asked asked;
		const char *wanted; /* NULL = no thinking */
	} cases[] = {
		{ { .effort = "low", .max = 30000 }, "\"budget_tokens\":3000}" },
		{ { .effort = "medium", .max = 30000 }, "\"budget_tokens\":7500}" },
		{ { .effort = "max", .max = 30000 }, "\"budget_tokens\":24000}" },
		{ { .effort = "", .max = 30000 }, "\"budget_tokens\":7500}" },
		{ { .effort = NULL, .max = 30000 }, "\"budget_tokens\":7500}" },
		{ { .effort = "low", .max = 1025 }, "\"budget_tokens\":1024}" },
		{ { .effort = "low", .max = 1024 }, NULL },
		{ { .effort = "none", .max = 30000 }, NULL },
		/* The turn began with another model, whose reasoning cannot be sent. */
		{ { .effort = "low", .max = 30000, .origin = "another" }, NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct asked asked = cases[i].asked;

		asked.reasoning = (struct model_reasoning){ .on = true, .budget = true };
		if (cases[i].wanted)
			expect(DIALECT_MESSAGES, &asked, cases[i].wanted);
		else
			expect_none(DIALECT_MESSAGES, &asked, "\"thinking\":");
	}
}

static void the_nearest_level_below(void **state)
{
	static const struct model_reasoning some = LEVELS(LOW | HIGH), off = { .efforts = LOW };
	static const struct model_reasoning one = LEVELS(HIGH), none = LEVELS(0);

	(void)state;
	assert_string_equal(effort_for(&some, "none"), "low");
	assert_string_equal(effort_for(&some, "low"), "low");
	assert_string_equal(effort_for(&some, "medium"), "low");
	assert_string_equal(effort_for(&some, "max"), "high");
	assert_string_equal(effort_for(&one, "low"), "high");
	assert_null(effort_for(&one, ""));
	assert_null(effort_for(&one, NULL));
	assert_null(effort_for(&none, "high"));
	assert_null(effort_for(&off, "low"));
	for (enum effort i = EFFORT_NONE; i < EFFORTS; i++)
		assert_int_equal(effort_named(effort_name(i)), i);
	assert_int_equal(effort_named("minimal"), EFFORTS);
	assert_null(effort_name(EFFORTS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_goes_back_where_it_stood),
		cmocka_unit_test(another_model_is_not_told),
		cmocka_unit_test(responses),
		cmocka_unit_test(chat_completions),
		cmocka_unit_test(messages),
		cmocka_unit_test(messages_by_budget),
		cmocka_unit_test(the_nearest_level_below),
	};

	return RUN_TESTS(tests);
}
