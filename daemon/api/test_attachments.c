/* What is base64 and what is not, and types of images; the rest is tested where requests are. */
#include "common/test.h"

#include "daemon/api/attachments.h"

#include <sodium.h>

/* The bytes that a file of this data has, or -1 when it is refused. */
static int read_file(const char *data, struct attachments *a)
{
	const struct http_request req = { .request_id = "1" };
	struct http_response res = { .body = BUF_INIT(4096) };
	auto_json struct json *files = json_new_array();
	struct json *o = json_new_object();
	bool right;

	json_put_str(o, "name", "a");
	json_put_str(o, "mimeType", "a/b");
	json_put_str(o, "data", data);
	json_push(files, o);
	right = attachments_read(&req, &res, NULL, files, a);
	assert_int_equal(res.status, right ? 0 : 422);
	buf_release(&res.body);
	return right ? (int)a->v[0].len : -1;
}

static void a_byte_is_written_in_one_way_only(void **state)
{
	static const struct {
		const char *data;
		int len;
	} rows[] = {
		{ "YWJj", 3 },
		{ "YWI=", 2 },
		{ "YQ==", 1 },
		{ "////", 3 },
		{ "++++", 3 },
		{ "YWJjYQ==", 4 },
		{ "", -1 },
		{ "YQ", -1 },
		{ "YQ=", -1 },
		{ "YR==", -1 },
		{ "YWJ=", -1 },
		{ "Y===", -1 },
		{ "====", -1 },
		{ "YQ==YQ==", -1 },
		{ "YQ=a", -1 },
		{ "YWJ-", -1 },
		{ "YW\n=", -1 },
		{ "YW\xc3\xbf", -1 },
		{ "\xff\xff\xff\xff", -1 },
		{ "YW\x80=", -1 },
		{ "YWJj\xc3\xa9=", -1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		auto_attachments struct attachments a = { .count = 0 };
		int len = read_file(rows[i].data, &a);

		if (len != rows[i].len)
			fail_msg("%s: %d, not %d", rows[i].data, len, rows[i].len);
	}
}

static void a_type_is_compared_in_all_its_length(void **state)
{
	static const struct {
		const char *type;
		size_t len;
		bool right;
	} rows[] = { { "image/jpeg", 10, true },
		     { "image/jpeg\0", 11, false },
		     { "image/jpe", 9, false } };
	const struct http_request req = { .request_id = "1" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct http_response res = { .body = BUF_INIT(4096) };
		auto_attachments struct attachments a = { .count = 0 };
		auto_json struct json *images = json_new_array();
		struct json *o = json_new_object();

		json_put_strn(o, "mimeType", rows[i].type, rows[i].len);
		json_put_str(o, "data", "/9j/");
		json_push(images, o);
		assert_int_equal(attachments_read(&req, &res, images, NULL, &a), rows[i].right);
		assert_int_equal(a.count, rows[i].right ? 1 : 0);
		buf_release(&res.body);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_byte_is_written_in_one_way_only),
		cmocka_unit_test(a_type_is_compared_in_all_its_length),
	};

	if (sodium_init() < 0)
		return 1;
	return RUN_TESTS(tests);
}
