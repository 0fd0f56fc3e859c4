#include "common/test.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/json.h"
#include "common/log.h"
#include "common/utf8.h"

#include <fcntl.h>
#include <string.h>

static void one_line_and_then_silence(void **state)
{
	struct log_pace pace = { 0 };
	unsigned int left_out = 99;

	(void)state;
	assert_true(log_paced(&pace, &left_out));
	assert_int_equal(left_out, 0);
	for (int i = 0; i < 1000; i++)
		assert_false(log_paced(&pace, &left_out));
}

static void what_was_left_out_is_counted(void **state)
{
	struct log_pace pace = { 0 };
	unsigned int left_out;

	(void)state;
	assert_true(log_paced(&pace, &left_out));
	for (int i = 0; i < 5; i++)
		assert_false(log_paced(&pace, &left_out));
	atomic_store(&pace.next_ms, clock_mono_ms()); /* its time has come */
	assert_true(log_paced(&pace, &left_out));
	assert_int_equal(left_out, 5);
	atomic_store(&pace.next_ms, clock_mono_ms());
	assert_true(log_paced(&pace, &left_out));
	assert_int_equal(left_out, 0);
}

/* -- the three forms --------------------------------------------------------------------- */

static char said[2 * LOG_LINE_MAX];

/* What one call writes to standard error. */
static const char *write_one(enum log_format form, const char *text)
{
	auto_close int err = dup(STDERR_FILENO);
	int ends[2];
	ssize_t n;

	assert_true(err >= 0);
	assert_int_equal(pipe(ends), 0);
	log_begin(form);
	assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	log_warn("%s", text);
	assert_int_equal(dup2(err, STDERR_FILENO), STDERR_FILENO);
	fd_close(&ends[1]);
	n = read(ends[0], said, sizeof(said) - 1);
	fd_close(&ends[0]);
	assert_true(n > 0 && n <= LOG_LINE_MAX);
	said[n] = '\0';
	/* One line, whatever was in the text. */
	assert_ptr_equal(strchr(said, '\n'), said + n - 1);
	said[n - 1] = '\0';
	return said;
}

static const char *const hostile[] = {
	"plain",
	"a\n2026-01-31T12:00:00.123Z error cloisterd: forged",
	"a\r\nb\tc\x1b[31md\x7f",
	"\"},{\"message\":\"forged\",\"x\":\"\\",
	"caf\xc3\xa9 \xe2\x82\xac",
	"\xc2\x9b\x33\x31m is an escape too",
	"\xff\xfe not text \xc3",
};

static void no_text_forges_a_line(void **state)
{
	(void)state;
	log_setup("cloisterd", LOG_INFO);
	for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
		for (enum log_format f = LOG_TEXT; f <= LOG_JOURNAL; f++) {
			const char *line = write_one(f, hostile[i]);

			for (const unsigned char *p = (const unsigned char *)line; *p; p++)
				assert_false(*p < 0x20 || *p == 0x7f ||
				             (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f));
		}
	}
}

static void expect_member(const struct json *o, const char *name, const char *value)
{
	const char *is = json_str(json_get(o, name));

	assert_non_null(is);
	assert_string_equal(is, value);
}

static void json_is_json(void **state)
{
	static const char *const wanted[ARRAY_LEN(hostile)] = {
		[0] = "plain",
		[1] = "a?2026-01-31T12:00:00.123Z error cloisterd: forged",
		[3] = "\"},{\"message\":\"forged\",\"x\":\"\\",
		[4] = "caf\xc3\xa9 \xe2\x82\xac",
		[5] = "??31m is an escape too",
	};

	(void)state;
	log_request("req-1");
	for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
		const char *line = write_one(LOG_JSON, hostile[i]);
		struct json *o = NULL;
		struct err e = ERR_INIT;

		if (json_parse(line, strlen(line), &o, &e) < 0)
			fail_msg("%s: %s", line, e.text);
		expect_member(o, "level", "warn");
		expect_member(o, "program", "cloisterd");
		expect_member(o, "instance", log_instance());
		expect_member(o, "request", "req-1");
		if (wanted[i])
			expect_member(o, "message", wanted[i]);
		json_free(&o);
	}
	log_request(NULL);
	assert_null(strstr(write_one(LOG_JSON, "x"), "request"));
}

static void the_longest_line_is_whole(void **state)
{
	char text[3 * LOG_TEXT_MAX], id[129];
	const char *line;
	struct json *o = NULL;
	struct err e = ERR_INIT;

	(void)state;
	memset(text, '"', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	memset(id, 'r', sizeof(id) - 1);
	id[sizeof(id) - 1] = '\0';
	log_request(id);
	line = write_one(LOG_JSON, text);
	assert_int_equal(json_parse(line, strlen(line), &o, &e), 0);
	assert_int_equal(json_str_len(json_get(o, "message")), LOG_TEXT_MAX);
	json_free(&o);
	/* Cut between characters. */
	for (size_t i = 0; i + 2 < sizeof(text); i += 2)
		memcpy(text + i, "\xc3\xa9", 2);
	text[0] = 'x';
	text[1] = 'x';
	memmove(text + 1, text + 2, sizeof(text) - 3);
	line = write_one(LOG_JSON, text);
	assert_true(utf8_valid(line, strlen(line)));
	assert_null(strchr(line, '?'));
	log_request(NULL);
}

static void text_and_journal(void **state)
{
	char wanted[64];

	(void)state;
	log_request("req-2");
	(void)snprintf(wanted, sizeof(wanted), "warn cloisterd[%s]: request req-2: hello",
	               (write_one(LOG_TEXT, "hello"), log_instance()));
	assert_string_equal(said + strlen("2026-01-31T12:00:00.123Z "), wanted);
	(void)snprintf(wanted, sizeof(wanted), "<4>[%s] request req-2: hello",
	               (write_one(LOG_JOURNAL, "hello"), log_instance()));
	assert_string_equal(said, wanted);
	log_request(NULL);
}

static void the_last_errors_are_kept(void **state)
{
	struct log_line lines[LOG_RECENT];
	char text[32];

	(void)state;
	for (int i = 0; i < LOG_RECENT + 3; i++) {
		(void)snprintf(text, sizeof(text), "fault %d", i);
		(void)write_one(LOG_TEXT, text);
		log_debug("not this");
	}
	assert_int_equal(log_recent(lines), LOG_RECENT);
	assert_string_equal(lines[0].text, "fault 18");
	assert_string_equal(lines[LOG_RECENT - 1].text, "fault 3");
	assert_int_equal(lines[0].level, LOG_WARN);
	assert_true(lines[0].at_ms >= lines[1].at_ms);
	log_forget();
	assert_int_equal(log_recent(lines), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_line_and_then_silence),
		cmocka_unit_test(what_was_left_out_is_counted),
		cmocka_unit_test(no_text_forges_a_line),
		cmocka_unit_test(json_is_json),
		cmocka_unit_test(the_longest_line_is_whole),
		cmocka_unit_test(text_and_journal),
		cmocka_unit_test(the_last_errors_are_kept),
	};

	return RUN_TESTS(tests);
}
