/*
 * Every script of the provider fixture through its reader: whole, byte by byte, and cut
 * in two at every place.  The events must be those that stand beside it, every time.
 */
#include "common/test.h"

#include "common/buf.h"
#include "common/fd.h"
#include "common/json.h"
#include "common/log.h"
#include "common/utf8.h"
#include "daemon/model/reader_format.h"
#include "daemon/model/sse.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define SCRIPTS "integration/provider/scripts"

static void note_text(struct buf *log, const char *label, const struct said *said)
{
	buf_adds(log, label);
	json_write_string(said->text, said->len, log);
	buf_addc(log, '\n');
}

static void note(void *ctx, const struct said *said)
{
	static const char *const stops[] = { "none", "end", "calls", "length", "refusal" };
	struct buf *log = ctx;

	switch (said->kind) {
	case SAID_TEXT:
		note_text(log, "text ", said);
		break;
	case SAID_REASONING:
		note_text(log, "reasoning ", said);
		break;
	case SAID_REASONING_END:
		note_text(log, "reasoning-end ", said);
		break;
	case SAID_REFUSAL:
		note_text(log, "refusal ", said);
		break;
	case SAID_CALL:
		buf_addf(log, "call %u %s\n", said->call, said->text);
		break;
	case SAID_ARGUMENTS:
		buf_addf(log, "arguments %u ", said->call);
		note_text(log, "", said);
		break;
	case SAID_CALL_END:
		buf_addf(log, "end %u\n", said->call);
		break;
	case SAID_USAGE:
		buf_addf(log, "usage input %ju cached %ju output %ju reasoning %ju\n",
		         (uintmax_t)said->usage.input, (uintmax_t)said->usage.cached,
		         (uintmax_t)said->usage.output, (uintmax_t)said->usage.reasoning);
		break;
	case SAID_STOP:
		buf_addf(log, "stop %s\n", stops[said->stop]);
		break;
	}
}

static const char *fault_name(int code)
{
	static const struct {
		int code;
		const char *name;
	} names[] = {
		{ MODEL_FAILED, "failed" },   { MODEL_BUSY, "busy" },
		{ MODEL_CUT, "cut" },         { MODEL_MALFORMED, "malformed" },
		{ MODEL_DENIED, "denied" },   { MODEL_REJECTED, "rejected" },
		{ MODEL_CONTEXT, "context" },
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (names[i].code == code)
			return names[i].name;
	return "?";
}

struct script {
	enum dialect dialect;
	const char *data;
	size_t len;
};

/* Feed in pieces of at most size bytes after a first one of first bytes. */
static void play(const struct script *s, size_t first, size_t size, struct buf *log)
{
	const struct reader_sink sink = { note, log };
	struct reader *reader = reader_new(s->dialect, &sink);
	size_t at = 0, n = first;
	struct err e = ERR_INIT;
	int rc = 0;

	buf_reset(log);
	while (rc == 0 && at < s->len) {
		n = n < s->len - at ? n : s->len - at;
		rc = reader_feed(reader, s->data + at, n, &e);
		at += n;
		n = size;
	}
	if (rc == 0)
		rc = reader_end(reader, &e);
	assert_true(rc == 0 || !reader_done(reader));
	if (rc)
		buf_addf(log, "fault %s: %s\n", fault_name(e.code), e.text);
	reader_free(&reader);
}

static void read_file(const char *dialect, const char *name, const char *suffix, char **ret,
                      size_t *ret_len)
{
	char path[512];
	struct err e = ERR_INIT;
	auto_close int fd = -1;

	(void)snprintf(path, sizeof(path), SCRIPTS "/%s/%s%s", dialect, name, suffix);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		print_error("%s: %m\n", path);
	assert_true(fd >= 0);
	assert_int_equal(fd_read_all(fd, 1 << 20, ret, ret_len, &e), 0);
}

static void check_script(enum dialect dialect, const char *directory, const char *name)
{
	auto_buf struct buf log = BUF_INIT(1 << 20);
	auto_free char *data = NULL, *expected = NULL;
	size_t len, expected_len;
	struct script s = { .dialect = dialect };

	read_file(directory, name, ".sse", &data, &len);
	read_file(directory, name, ".events", &expected, &expected_len);
	s.data = data;
	s.len = len;
	play(&s, len, len, &log);
	if (strcmp(log.data, expected) != 0)
		print_error("%s/%s\n", directory, name);
	assert_string_equal(log.data, expected);
	play(&s, 1, 1, &log);
	assert_string_equal(log.data, expected);
	for (size_t first = 1; first < len; first++) {
		play(&s, first, len, &log);
		assert_string_equal(log.data, expected);
	}
}

static void check_all(enum dialect dialect, const char *directory, int at_least)
{
	auto_dir DIR *dir = NULL;
	const struct dirent *entry;
	char path[256];
	int n = 0;

	(void)snprintf(path, sizeof(path), SCRIPTS "/%s", directory);
	dir = opendir(path);
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		const char *suffix = strstr(entry->d_name, ".sse");
		char name[128];

		if (!suffix)
			continue;
		(void)snprintf(name, sizeof(name), "%.*s", (int)(suffix - entry->d_name),
		               entry->d_name);
		check_script(dialect, directory, name);
		n++;
	}
	assert_true(n >= at_least);
}

static void chat_completions(void **state)
{
	(void)state;
	check_all(DIALECT_CHAT, "chat-completions", 19);
}

static void responses(void **state)
{
	(void)state;
	check_all(DIALECT_RESPONSES, "responses", 15);
}

static void messages(void **state)
{
	(void)state;
	check_all(DIALECT_MESSAGES, "messages", 18);
}

/* -- bounds -------------------------------------------------------------------------------- */

static void calls_are_bounded(void **state)
{
	auto_buf struct buf log = BUF_INIT(1 << 20), script = BUF_INIT(1 << 20);
	struct script s = { .dialect = DIALECT_CHAT };

	(void)state;
	for (int i = 0; i < READER_CALLS_MAX; i++)
		buf_addf(&script,
		         "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":%d,"
		         "\"function\":{\"name\":\"a\"}}]}}]}\n\n",
		         i);
	buf_adds(&script, "data: {\"choices\":[{\"finish_reason\":\"tool_calls\"}]}\n\n");
	s.data = script.data;
	s.len = script.len;
	play(&s, s.len, s.len, &log);
	assert_non_null(strstr(log.data, "call 63 a\n"));
	assert_non_null(strstr(log.data, "stop calls\n"));
	buf_truncate(
		&script,
		script.len -
			strlen("data: {\"choices\":[{\"finish_reason\":\"tool_calls\"}]}\n\n"));
	buf_adds(&script, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":64,"
	                  "\"function\":{\"name\":\"a\"}}]}}]}\n\n");
	s.data = script.data;
	s.len = script.len;
	play(&s, s.len, s.len, &log);
	assert_non_null(strstr(log.data, "fault failed: more than 64 tool calls in one answer\n"));
}

static int count_event(void *ctx, const char *type, const char *data, size_t len, struct err *e)
{
	(void)type;
	(void)data;
	(void)e;
	*(size_t *)ctx += len;
	return 0;
}

static void feed_one_line(size_t payload, size_t *ret_bytes, int wanted)
{
	const struct sse_receiver to = { count_event, ret_bytes };
	auto_buf struct buf line = BUF_INIT(SSE_EVENT_MAX + 16);
	struct err e = ERR_INIT;
	struct sse s;

	*ret_bytes = 0;
	buf_adds(&line, "data:");
	memset(buf_extend(&line, payload), 'x', payload);
	buf_adds(&line, "\n\n");
	sse_init(&s);
	assert_int_equal(sse_feed(&s, line.data, line.len, &to, &e), wanted);
	assert_int_equal(e.code, wanted ? EMSGSIZE : 0);
	sse_release(&s);
}

static void a_line_is_bounded(void **state)
{
	size_t bytes;

	(void)state;
	feed_one_line(SSE_EVENT_MAX - 5, &bytes, 0);
	assert_int_equal(bytes, SSE_EVENT_MAX - 5);
	feed_one_line(SSE_EVENT_MAX - 4, &bytes, -1);
	assert_int_equal(bytes, 0);
}

static void an_event_of_many_lines_is_bounded(void **state)
{
	static char line[65536 + 7];
	size_t bytes = 0;
	const struct sse_receiver to = { count_event, &bytes };
	struct err e = ERR_INIT;
	struct sse s;
	int rc = 0, n = 0;

	(void)state;
	(void)snprintf(line, sizeof(line), "data:");
	memset(line + 5, 'x', sizeof(line) - 5);
	line[sizeof(line) - 1] = '\n';
	sse_init(&s);
	while (rc == 0 && n++ < 100)
		rc = sse_feed(&s, line, sizeof(line), &to, &e);
	if (rc == 0)
		rc = sse_feed(&s, "\n", 1, &to, &e);
	sse_release(&s);
	assert_int_equal(rc, -1);
	assert_int_equal(e.code, EMSGSIZE);
	assert_int_equal(bytes, 0);
}

/* Reasoning that grows by deltas of that kind to so many bytes. */
static void think(struct buf *script, const char *kind, size_t len)
{
	static char piece[65536];

	memset(piece, 'x', sizeof(piece));
	buf_reset(script);
	buf_adds(script, "data: {\"type\":\"content_block_start\",\"index\":0,"
	                 "\"content_block\":{\"type\":\"thinking\"}}\n\n");
	for (size_t at = 0; at < len; at += sizeof(piece)) {
		size_t n = len - at < sizeof(piece) ? len - at : sizeof(piece);

		buf_addf(script,
		         "data: {\"type\":\"content_block_delta\",\"index\":0,"
		         "\"delta\":{\"type\":\"%s_delta\",\"%s\":\"%.*s\"}}\n\n",
		         kind, kind, (int)n, piece);
	}
	buf_adds(script, "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
	                 "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":"
	                 "\"end_turn\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n");
}

static void reasoning_is_bounded(void **state)
{
	static const char *const kinds[] = { "thinking", "signature" };
	auto_buf struct buf log = BUF_INIT(2 * READER_THOUGHT_MAX);
	auto_buf struct buf script = BUF_INIT(2 * READER_THOUGHT_MAX);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		for (size_t more = 0; more < 2; more++) {
			struct script s = { .dialect = DIALECT_MESSAGES };

			think(&script, kinds[i], READER_THOUGHT_MAX + more);
			s.data = script.data;
			s.len = script.len;
			play(&s, s.len, s.len, &log);
			assert_int_equal(!strstr(log.data, "stop end\n"), more);
			assert_int_equal(!!strstr(log.data, "fault malformed: "), more);
		}
}

/* A stream of comments says nothing, and ends all the same. */
static void an_answer_is_bounded(void **state)
{
	static char comment[1 << 20];
	auto_buf struct buf log = BUF_INIT(1 << 20);
	const struct reader_sink sink = { note, &log };
	struct reader *reader = reader_new(DIALECT_MESSAGES, &sink);
	struct err e = ERR_INIT;
	size_t n = 0;

	(void)state;
	memset(comment, ':', sizeof(comment));
	comment[sizeof(comment) - 1] = '\n';
	while (n <= READER_BYTES_MAX && reader_feed(reader, comment, sizeof(comment), &e) == 0)
		n += sizeof(comment);
	reader_free(&reader);
	assert_int_equal(n, READER_BYTES_MAX);
	assert_int_equal(e.code, MODEL_FAILED);
	assert_int_equal(log.len, 0);
}

/* -- faults -------------------------------------------------------------------------------- */

static void errors_are_told_apart(void **state)
{
	static const struct {
		const char *body;
		int status;
		int code;
	} cases[] = {
		{ "{\"error\":{\"message\":\"bad field\",\"type\":\"invalid_request_error\"}}", 400,
		  MODEL_REJECTED },
		{ "{\"error\":{\"code\":\"context_length_exceeded\",\"message\":\"too much\"}}",
		  400, MODEL_CONTEXT },
		{ "{\"error\":{\"message\":\"This model's maximum context length is 8192 tokens\"}}",
		  400, MODEL_CONTEXT },
		{ "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long\"}}",
		  400, MODEL_CONTEXT },
		{ "", 413, MODEL_CONTEXT },
		{ "{\"error\":{\"message\":\"Incorrect key\",\"code\":\"invalid_api_key\"}}", 401,
		  MODEL_DENIED },
		{ "{\"error\":{\"type\":\"server_error\"}}", 401, MODEL_DENIED },
		{ "<html>no</html>", 403, MODEL_DENIED },
		{ "not found", 404, MODEL_REJECTED },
		{ "{\"error\":{\"code\":\"rate_limit_exceeded\"}}", 429, MODEL_BUSY },
		{ "{\"error\":{\"code\":\"insufficient_quota\",\"message\":\"pay\"}}", 429,
		  MODEL_DENIED },
		{ "", 429, MODEL_BUSY },
		{ "{\"error\":\"oops\"}", 500, MODEL_BUSY },
		{ "<html>", 502, MODEL_BUSY },
		{ "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}",
		  529, MODEL_BUSY },
		{ "", 302, MODEL_REJECTED },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e = ERR_INIT;

		assert_int_equal(
			fault_read(cases[i].status, cases[i].body, strlen(cases[i].body), &e), -1);
		if (e.code != cases[i].code)
			print_error("%d %s: %s\n", cases[i].status, cases[i].body, e.text);
		assert_int_equal(e.code, cases[i].code);
	}
}

/* Its words are for the tenant only where they are about the tenant's request. */
static void what_is_the_operators_is_not_told(void **state)
{
	static const struct {
		int status;
		bool told;
	} cases[] = { { 400, true },  { 404, true },  { 413, true },  { 401, false },
		      { 402, false }, { 403, false }, { 429, false }, { 500, false },
		      { 529, false }, { 0, false } };
	static const char body[] = "{\"error\":{\"message\":\"org-canary at 10.0.0.7\"}}";

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e = ERR_INIT;

		assert_int_equal(fault_read(cases[i].status, body, strlen(body), &e), -1);
		if (!strstr(e.text, "org-canary at 10.0.0.7") == cases[i].told)
			fail_msg("%d: %s", cases[i].status, e.text);
	}
}

static void a_message_is_one_bounded_line(void **state)
{
	auto_buf struct buf body = BUF_INIT(4096);
	struct err e = ERR_INIT;

	(void)state;
	buf_adds(&body, "{\"error\":{\"message\":\"a\\n\\u001b[31m");
	for (int i = 0; i < 500; i++)
		buf_adds(&body, "\xc3\xa9");
	buf_adds(&body, "\"}}");
	assert_int_equal(fault_read(400, body.data, body.len, &e), -1);
	assert_null(strpbrk(e.text, "\n\x1b"));
	assert_true(utf8_valid(e.text, strlen(e.text)));
	assert_true(strlen(e.text) < 400);
}

/* Wherever a stream is cut, what came is only an answer once it has said that it ends. */
static void every_cut_is_noticed(void **state)
{
	static const char *const directories[] = { "chat-completions", "responses", "messages" };

	(void)state;
	for (enum dialect dialect = DIALECT_CHAT; dialect <= DIALECT_MESSAGES; dialect++) {
		auto_buf struct buf log = BUF_INIT(1 << 20);
		auto_free char *data = NULL;
		struct script s = { .dialect = dialect };
		size_t len, whole = 0;

		read_file(directories[dialect], "text", ".sse", &data, &len);
		s.data = data;
		for (s.len = 0; s.len < len; s.len++) {
			play(&s, s.len, 1, &log);
			whole += log.data && strstr(log.data, "stop end");
			if (!whole && (!log.data || !strstr(log.data, "fault cut: ")))
				fail_msg("%s, %zu bytes: %s", directories[dialect], s.len,
				         log.data ? log.data : "");
		}
		assert_true(whole <= len / 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chat_completions),
		cmocka_unit_test(responses),
		cmocka_unit_test(messages),
		cmocka_unit_test(every_cut_is_noticed),
		cmocka_unit_test(calls_are_bounded),
		cmocka_unit_test(a_line_is_bounded),
		cmocka_unit_test(an_event_of_many_lines_is_bounded),
		cmocka_unit_test(reasoning_is_bounded),
		cmocka_unit_test(an_answer_is_bounded),
		cmocka_unit_test(errors_are_told_apart),
		cmocka_unit_test(what_is_the_operators_is_not_told),
		cmocka_unit_test(a_message_is_one_bounded_line),
	};

	log_setup("test", LOG_ERROR);
	return RUN_TESTS(tests);
}
