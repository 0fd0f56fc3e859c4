#include "common/test.h"

#include "common/json.h"
#include "daemon/turn/redact.h"
#include "daemon/turn/tell.h"

#include <stdio.h>
#include <string.h>

static struct item call_with(char *arguments)
{
	return (struct item){ .kind = ITEM_TOOL_CALL,
		              .call_id = "c",
		              .tool = "t",
		              .body = arguments,
		              .body_len = strlen(arguments) };
}

/* What a person is shown of the arguments; NULL as want: exactly what is there. */
static void shows(const char *arguments, const char *want)
{
	char copy[256];
	struct item call;
	struct json *told;
	auto_buf struct buf out = BUF_INIT(REDACT_MAX);

	(void)snprintf(copy, sizeof(copy), "%s", arguments);
	call = call_with(copy);
	assert_int_equal(redact_arguments(&call, &out), want != NULL);
	if (want) {
		buf_add(&out, "", 1);
		assert_string_equal(out.data, want);
	}
	assert_string_equal(call.body, arguments);
	told = tell_call(&call);
	assert_string_equal(json_str(json_get(told, "arguments")), want ? want : arguments);
	assert_int_equal(json_bool(json_get(told, "argumentsEncrypted")), want != NULL);
	json_free(&told);
}

static void secrets_are_not_told(void **state)
{
	(void)state;
	shows("{\"encrypted_content\":\"x\"}", "{\"encrypted_content\":\"[redacted]\"}");
	shows("{\"EncryptedFunctionArgs\":{\"a\":1}}",
	      "{\"EncryptedFunctionArgs\":\"[redacted]\"}");
	shows("{\"a\":[{\"PASS_word\":null}],\"b\":2}",
	      "{\"a\":[{\"PASS_word\":\"[redacted]\"}],\"b\":2}");
	shows("[{\"api_key\":\"k\"},{\"Secret\":\"s\"}]",
	      "[{\"api_key\":\"[redacted]\"},{\"Secret\":\"[redacted]\"}]");
}

static void all_else_is_told_byte_for_byte(void **state)
{
	(void)state;
	shows("{}", NULL);
	shows(" { \"path\" : 1e0 , \"secrets\":\"\\u0041\" }", NULL);
	shows("{\"a\":\"secret\",\"b\":[\"password\"]}", NULL);
	shows("{\"encrypted_contents_of_a_very_very_long_name\":1}", NULL);
	shows("no JSON at all", NULL);
	shows("{\"path\":", NULL);
	shows("", NULL);
}

static void what_cannot_be_read_is_not_told_when_it_names_a_secret(void **state)
{
	(void)state;
	shows("{\"secret\":\"s3cret\"", "[redacted]");
	shows("{'a':1,\"encrypted_content\":\"s3cret\"}", "[redacted]");
	shows("{\"password\":\"a\",\"password\":\"b\"}", "[redacted]");
	shows("\"\"secret\" x", "[redacted]");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(secrets_are_not_told),
		cmocka_unit_test(all_else_is_told_byte_for_byte),
		cmocka_unit_test(what_cannot_be_read_is_not_told_when_it_names_a_secret),
	};

	return RUN_TESTS(tests);
}
