#include "common/test.h"

#include "common/json.h"
#include "common/utf8.h"
#include "daemon/model/fault.h"
#include "daemon/model/prompt.h"
#include "daemon/model/redact.h"
#include "daemon/model/test_items.h"

#include <string.h>

/* -- prompts ------------------------------------------------------------------------------- */

static const struct model_tool tools[] = {
	{ "shell", "Run it", "{\"type\":\"object\",\"properties\":{}}" },
};

static int write_to(struct buf *out, enum dialect dialect, struct err *e)
{
	struct item_list transcript = { NULL, 0 };
	const struct model_prompt p = {
		.transcript = &transcript, .system = "Be brief.", .tools = tools, .tool_count = 1
	};
	const struct prompt_target to = { dialect, "m", 100 };
	int rc;

	add(&transcript, ITEM_USER, "Gr\xc3\xbc\xc3\x9f \"mich\"\n", "");
	add(&transcript, ITEM_ASSISTANT, "I look.", "");
	add(&transcript, ITEM_TOOL_CALL, "{\"command\":\"ls\"}", "c1");
	add(&transcript, ITEM_TOOL_CALL, "{\"path\": x", "c2");
	add(&transcript, ITEM_TOOL_CALL, "[1]", "lost");
	add(&transcript, ITEM_TOOL_RESULT, "a\xff", "c1");
	add(&transcript, ITEM_TOOL_RESULT, "error", "c2");
	rc = prompt_write(&p, &to, out, e);
	item_list_release(&transcript);
	return rc;
}

static void write_prompt(enum dialect dialect, const char *wanted)
{
	auto_buf struct buf out = BUF_INIT(PROMPT_BYTES_MAX);
	struct err e = ERR_INIT;

	assert_int_equal(write_to(&out, dialect, &e), 0);
	assert_string_equal(out.data, wanted);
	assert_int_equal(json_check(out.data, out.len, &e), 0);
}

/* Two turns of a session; images came with an input and from a tool. */
static void write_turns(struct buf *out, enum dialect dialect, bool sees)
{
	static char data[] = "\xff\xd8\xff";
	static const struct model_image images[] = { { 6, "image/png", data, 2 },
		                                     { 0, "image/jpeg", data, 3 },
		                                     { 4, "image/gif", data, 1 } };
	struct item_list transcript = { NULL, 0 };
	const struct model_prompt p = { .transcript = &transcript,
		                        .images = images,
		                        .image_count = ARRAY_LEN(images) };
	const struct prompt_target to = { dialect, "m", 100, sees };
	struct err e = ERR_INIT;

	add(&transcript, ITEM_USER, "first", "");
	add(&transcript, ITEM_ASSISTANT, "I look.", "");
	add(&transcript, ITEM_TOOL_CALL, "{}", "c1");
	add(&transcript, ITEM_TOOL_CALL, "{}", "c2");
	add(&transcript, ITEM_TOOL_RESULT, "seen", "c1");
	add(&transcript, ITEM_TOOL_RESULT, "read", "c2");
	add(&transcript, ITEM_USER, "second", "");
	assert_int_equal(prompt_write(&p, &to, out, &e), 0);
	assert_int_equal(json_check(out->data, out->len, &e), 0);
	item_list_release(&transcript);
}

static void turns_with_images(enum dialect dialect, const char *wanted)
{
	auto_buf struct buf out = BUF_INIT(PROMPT_BYTES_MAX);
	const char *at;

	write_turns(&out, dialect, true);
	at = strstr(out.data, dialect == DIALECT_RESPONSES ? "\"input\":" : "\"messages\":");
	assert_non_null(at);
	assert_string_equal(at, wanted);
}

static void images_in_chat_completions(void **state)
{
	(void)state;
	turns_with_images(
		DIALECT_CHAT,
		"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
		"\"first\"},{\"type\":\"image_url\",\"image_url\":{\"url\":"
		"\"data:image/jpeg;base64,/9j/\"}}]},"
		"{\"role\":\"assistant\",\"content\":\"I look.\",\"tool_calls\":["
		"{\"type\":\"function\",\"id\":\"c1\",\"function\":{\"name\":\"shell\","
		"\"arguments\":\"{}\"}},"
		"{\"type\":\"function\",\"id\":\"c2\",\"function\":{\"name\":\"read_file\","
		"\"arguments\":\"{}\"}}]},"
		"{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"seen\"},"
		"{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"read\"},"
		"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
		"\"[what the call c1 returned:]\"},{\"type\":\"image_url\",\"image_url\":"
		"{\"url\":\"data:image/gif;base64,/w==\"}}]},"
		"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"second\"},"
		"{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,/9g=\"}}]}]}");
}

static void images_in_responses(void **state)
{
	(void)state;
	turns_with_images(
		DIALECT_RESPONSES,
		"\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"
		"\"first\"},{\"type\":\"input_image\",\"image_url\":"
		"\"data:image/jpeg;base64,/9j/\"}]},"
		"{\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":"
		"\"I look.\"}]},"
		"{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"shell\",\"arguments\":"
		"\"{}\"},"
		"{\"type\":\"function_call\",\"call_id\":\"c2\",\"name\":\"read_file\","
		"\"arguments\":\"{}\"},"
		"{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":[{\"type\":"
		"\"input_text\",\"text\":\"seen\"},{\"type\":\"input_image\",\"image_url\":"
		"\"data:image/gif;base64,/w==\"}]},"
		"{\"type\":\"function_call_output\",\"call_id\":\"c2\",\"output\":\"read\"},"
		"{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"second\"},"
		"{\"type\":\"input_image\",\"image_url\":\"data:image/png;base64,/9g=\"}]}]}");
}

static void images_in_messages(void **state)
{
	(void)state;
	turns_with_images(
		DIALECT_MESSAGES,
		"\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":"
		"{\"type\":\"base64\",\"media_type\":\"image/jpeg\",\"data\":\"/9j/\"}},"
		"{\"type\":\"text\",\"text\":\"first\"}]},"
		"{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"I look.\"},"
		"{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"shell\",\"input\":{}},"
		"{\"type\":\"tool_use\",\"id\":\"c2\",\"name\":\"read_file\",\"input\":{}}]},"
		"{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"c1\","
		"\"content\":[{\"type\":\"text\",\"text\":\"seen\"},{\"type\":\"image\","
		"\"source\":{\"type\":\"base64\",\"media_type\":\"image/gif\",\"data\":"
		"\"/w==\"}}]},{\"type\":\"tool_result\",\"tool_use_id\":\"c2\",\"content\":"
		"\"read\"},{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":"
		"\"image/png\",\"data\":\"/9g=\"}},{\"type\":\"text\",\"text\":\"second\","
		"\"cache_control\":{\"type\":\"ephemeral\"}}]}]}");
}

/* Nothing of the images themselves, but a line where each of them is. */
static void a_model_that_sees_no_images(void **state)
{
	static const char *const lines[] = {
		"\"first\\n[an image is here that this model cannot see: image/jpeg, 3 bytes]\"",
		"\"seen\\n[an image is here that this model cannot see: image/gif, 1 bytes]\"",
		"\"second\\n[an image is here that this model cannot see: image/png, 2 bytes]\"",
	};

	(void)state;
	for (enum dialect dialect = DIALECT_CHAT; dialect <= DIALECT_MESSAGES; dialect++) {
		auto_buf struct buf out = BUF_INIT(PROMPT_BYTES_MAX);

		write_turns(&out, dialect, false);
		for (size_t i = 0; i < ARRAY_LEN(lines); i++)
			assert_non_null(strstr(out.data, lines[i]));
		assert_null(strstr(out.data, "base64"));
	}
}

/* What is left of a turn that was cancelled, and the one after it. */
static void an_earlier_turn_without_an_answer(void **state)
{
	static const char *const wanted[] = {
		[DIALECT_CHAT] = "[{\"role\":\"user\",\"content\":\"first\"},"
				 "{\"role\":\"user\",\"content\":\"second\"}]}",
		[DIALECT_RESPONSES] =
			"[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"
			"\"first\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
			"\"text\":\"second\"}]}]}",
		[DIALECT_MESSAGES] =
			"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"first\"},"
			"{\"type\":\"text\",\"text\":\"second\",\"cache_control\":{\"type\":"
			"\"ephemeral\"}}]}]}",
	};

	(void)state;
	for (enum dialect dialect = DIALECT_CHAT; dialect <= DIALECT_MESSAGES; dialect++) {
		auto_buf struct buf out = BUF_INIT(PROMPT_BYTES_MAX);
		struct item_list transcript = { NULL, 0 };
		const struct model_prompt p = { .transcript = &transcript };
		const struct prompt_target to = { dialect, "m", 100 };
		struct err e = ERR_INIT;

		add(&transcript, ITEM_USER, "first", "");
		add(&transcript, ITEM_TOOL_CALL, "{}", "lost");
		add(&transcript, ITEM_USER, "second", "");
		assert_int_equal(prompt_write(&p, &to, &out, &e), 0);
		assert_non_null(strstr(out.data, wanted[dialect]));
		item_list_release(&transcript);
	}
}

static void chat_completions(void **state)
{
	(void)state;
	write_prompt(
		DIALECT_CHAT,
		"{\"model\":\"m\",\"stream\":true,\"tools\":[{\"type\":\"function\",\"function\":"
		"{\"name\":\"shell\",\"description\":\"Run it\",\"parameters\":{\"type\":"
		"\"object\",\"properties\":{}}}}],\"max_completion_tokens\":100,"
		"\"stream_options\":{\"include_usage\":true},\"messages\":["
		"{\"role\":\"system\",\"content\":\"Be brief.\"},"
		"{\"role\":\"user\",\"content\":\"Gr\xc3\xbc\xc3\x9f \\\"mich\\\"\\n\"},"
		"{\"role\":\"assistant\",\"content\":\"I look.\",\"tool_calls\":["
		"{\"type\":\"function\",\"id\":\"c1\",\"function\":{\"name\":\"shell\","
		"\"arguments\":\"{\\\"command\\\":\\\"ls\\\"}\"}},"
		"{\"type\":\"function\",\"id\":\"c2\",\"function\":{\"name\":\"read_file\","
		"\"arguments\":\"{\\\"path\\\": x\"}}]},"
		"{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"a\xef\xbf\xbd\"},"
		"{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"error\"}]}");
}

static void responses(void **state)
{
	(void)state;
	write_prompt(
		DIALECT_RESPONSES,
		"{\"model\":\"m\",\"stream\":true,\"tools\":[{\"name\":\"shell\",\"description\":"
		"\"Run it\",\"parameters\":{\"type\":\"object\",\"properties\":{}},\"type\":"
		"\"function\",\"strict\":false}],\"max_output_tokens\":100,\"store\":false,"
		"\"instructions\":\"Be brief.\",\"input\":["
		"{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"
		"\"Gr\xc3\xbc\xc3\x9f \\\"mich\\\"\\n\"}]},"
		"{\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":"
		"\"I look.\"}]},"
		"{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"shell\",\"arguments\":"
		"\"{\\\"command\\\":\\\"ls\\\"}\"},"
		"{\"type\":\"function_call\",\"call_id\":\"c2\",\"name\":\"read_file\","
		"\"arguments\":\"{\\\"path\\\": x\"},"
		"{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"a\xef\xbf\xbd\"},"
		"{\"type\":\"function_call_output\",\"call_id\":\"c2\",\"output\":\"error\"}]}");
}

static void messages(void **state)
{
	(void)state;
	write_prompt(
		DIALECT_MESSAGES,
		"{\"model\":\"m\",\"stream\":true,\"tools\":[{\"name\":\"shell\",\"description\":"
		"\"Run it\",\"input_schema\":{\"type\":\"object\",\"properties\":{}}}],"
		"\"max_tokens\":100,\"system\":\"Be brief.\",\"messages\":["
		"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
		"\"Gr\xc3\xbc\xc3\x9f \\\"mich\\\"\\n\"}]},"
		"{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"I look.\"},"
		"{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"shell\",\"input\":{\"command\":"
		"\"ls\"}},"
		"{\"type\":\"tool_use\",\"id\":\"c2\",\"name\":\"read_file\",\"input\":"
		"{\"malformed_arguments\":\"{\\\"path\\\": x\"}}]},"
		"{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"c1\","
		"\"content\":\"a\xef\xbf\xbd\"},"
		"{\"type\":\"tool_result\",\"tool_use_id\":\"c2\",\"content\":\"error\","
		"\"cache_control\":{\"type\":\"ephemeral\"}}]}]}");
}

static void a_conversation_is_bounded(void **state)
{
	auto_buf struct buf whole = BUF_INIT(PROMPT_BYTES_MAX);
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(write_to(&whole, DIALECT_CHAT, &e), 0);
	for (size_t less = 0; less < 2; less++) {
		auto_buf struct buf out = BUF_INIT(whole.len - less);

		assert_int_equal(write_to(&out, DIALECT_CHAT, &e), less ? -1 : 0);
	}
	assert_int_equal(e.code, MODEL_CONTEXT);
}

/* -- secrets ------------------------------------------------------------------------------- */

static void expect_redacted(const char *secret, const char *in, const char *out)
{
	size_t len = strlen(in);

	for (size_t first = 0; first <= len; first++) {
		for (size_t second = first; second <= len; second++) {
			auto_buf struct buf got = BUF_INIT(4096);
			struct redact r;

			redact_init(&r, secret);
			redact_take(&r, in, first, &got);
			redact_take(&r, in + first, second - first, &got);
			redact_take(&r, in + second, len - second, &got);
			redact_end(&r, &got);
			assert_string_equal(got.data ? got.data : "", out);
		}
	}
}

static void a_secret_is_blotted_out(void **state)
{
	(void)state;
	expect_redacted("secret", "a secret, secretsecret; secre",
	                "a [redacted], [redacted][redacted]; secre");
	expect_redacted("aab", "aaab aaaab aaa", "a[redacted] aa[redacted] aaa");
	expect_redacted("abcabd", "abcabcabd abcabc", "abc[redacted] abcabc");
	expect_redacted("", "nothing is secret", "nothing is secret");
	expect_redacted("secret", "", "");
}

/* As encoders of JSON write it that escape more than they have to. */
static void an_escaped_secret_is_one(void **state)
{
	(void)state;
	expect_redacted("a/b+==", "[a\\/b+==] a/b\\u002B\\u003d\\u003D", "[[redacted]] [redacted]");
	expect_redacted("a/b", "a\\u002fb a\\/\\u0062 \\u0061/b",
	                "[redacted] [redacted] [redacted]");
	expect_redacted("a/b", "a\\/a\\/b \\a/b \\\\a/b",
	                "a\\/[redacted] \\[redacted] \\\\[redacted]");
	expect_redacted("a/b", "a\\/ \\u00 a\\u0 a\\u0161/b a\\",
	                "a\\/ \\u00 a\\u0 a\\u0161/b a\\");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chat_completions),
		cmocka_unit_test(images_in_chat_completions),
		cmocka_unit_test(images_in_responses),
		cmocka_unit_test(images_in_messages),
		cmocka_unit_test(a_model_that_sees_no_images),
		cmocka_unit_test(an_earlier_turn_without_an_answer),
		cmocka_unit_test(responses),
		cmocka_unit_test(messages),
		cmocka_unit_test(a_conversation_is_bounded),
		cmocka_unit_test(a_secret_is_blotted_out),
		cmocka_unit_test(an_escaped_secret_is_one),
	};

	return RUN_TESTS(tests);
}
