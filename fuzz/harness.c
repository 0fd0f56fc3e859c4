/*
 * Standard output of a harness: cut anywhere it is the same lines, each is a message or says
 * why it is none, and what is read out of messages keeps its bounds.  The first byte is the
 * size of the pieces.
 */
#include "fuzz/fuzz.h"

#include "common/utf8.h"
#include "daemon/harness/ask.h"
#include "daemon/harness/line.h"
#include "daemon/harness/message.h"
#include "daemon/harness/outcome.h"

#include <string.h>

/* -- messages ------------------------------------------------------------------------------- */

static void check_ask(const struct json *data)
{
	struct err e = ERR_INIT;
	struct ask ask;

	if (ask_read(data, &ask, &e) < 0) {
		demand(e.text[0]);
		return;
	}
	demand(ask.count >= 1 && ask.count <= ASK_QUESTIONS_MAX);
	demand(!ask.id || strlen(ask.id) <= ASK_ID_MAX);
	for (size_t i = 0; i < ask.count; i++) {
		auto_json struct json *options = ask_options(&ask, i);

		demand(ask_text(&ask, i) && *ask_text(&ask, i));
		demand(json_len(options) >= 1 && json_len(options) <= ASK_OPTIONS_MAX + 1);
		for (size_t k = 0; k < json_len(options); k++)
			demand(json_str(json_at(options, k)));
	}
}

static void check_usage(const struct json *data)
{
	struct outcome_usage usage = outcome_usage(data);

	demand(usage.input <= OUTCOME_TOKENS_MAX && usage.output <= OUTCOME_TOKENS_MAX);
}

static void check_outcome(const struct message *m, struct outcome *o)
{
	if (m->type == MESSAGE_RESULT)
		outcome_take(o, m->doc);
	else
		outcome_add(o, m->data ? m->data : json_get(m->doc, "error"));
	demand(o->errors.len <= OUTCOME_ERRORS_MAX && !buf_failed(&o->errors));
	demand(!o->errors.len || utf8_valid(o->errors.data, o->errors.len));
	demand(memchr(o->code, '\0', sizeof(o->code)));
}

/* What we write for what came is one line of JSON, which says the same. */
static void check_writing(const struct message *m)
{
	auto_buf struct buf out = BUF_INIT(8 * HARNESS_LINE_MAX);
	auto_json struct json *again = NULL;
	struct err e = ERR_INIT;

	message_put_answer(&out, m->run_id, m->data, m->op_id, NULL);
	demand(!buf_failed(&out) && memchr(out.data, '\n', out.len) == out.data + out.len - 1);
	demand(json_parse(out.data, out.len, &again, &e) == 0);
	demand(strcmp(json_str(json_get(again, "run_id")), m->run_id) == 0);
}

static void check_message(const char *line, size_t len, struct outcome *o)
{
	struct message_abilities abilities;
	auto_message struct message m;

	message_read(line, len, &m);
	demand(message_type_name(m.type));
	demand((m.type == MESSAGE_MALFORMED) == !m.doc && (m.doc || m.why.text[0]));
	demand(m.doc || (!m.run_id && !m.op_id && !m.text && !m.kind && !m.data && !m.seq));
	demand(m.seq >= 0 && (!m.run_id || strlen(m.run_id) <= HARNESS_RUN_ID_MAX));
	if (!m.doc)
		return;
	demand(m.text || (m.type != MESSAGE_DELTA && m.type != MESSAGE_LOG));
	demand(m.kind || m.type != MESSAGE_NOTIFY);
	message_abilities(&m, &abilities);
	check_ask(m.data);
	check_usage(m.data);
	check_outcome(&m, o);
	if (m.run_id && m.data)
		check_writing(&m);
}

/* -- lines ---------------------------------------------------------------------------------- */

/* Every line with its end, into told; o NULL: its messages are not looked at. */
static void read_in_pieces(const char *data, size_t size, size_t piece, struct buf *told,
                           struct outcome *o)
{
	struct line_reader r;
	size_t used;

	line_init(&r);
	for (size_t at = 0; at < size; at += used) {
		size_t n = size - at < piece ? size - at : piece;
		enum line_result got = line_take(&r, data + at, n, &used);

		demand(used >= 1 && used <= n && (got == LINE_NONE || got == LINE_WHOLE));
		demand(got == LINE_WHOLE ? data[at + used - 1] == '\n' : used == n);
		if (got == LINE_NONE)
			continue;
		buf_add(told, r.text.data, r.text.len);
		buf_addc(told, '\n');
		if (o)
			check_message(r.text.len ? r.text.data : "", r.text.len, o);
	}
	line_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf struct buf whole = BUF_INIT(size + 1), cut = BUF_INIT(size + 1);
	auto_outcome struct outcome o = { .count = 0 };

	if (size < 1)
		return 0;
	outcome_init(&o);
	read_in_pieces((const char *)data + 1, size - 1, size, &whole, &o);
	read_in_pieces((const char *)data + 1, size - 1, data[0] % 64 + 1U, &cut, NULL);
	demand(!buf_failed(&whole) && !buf_failed(&cut) && whole.len == cut.len);
	demand(!whole.len || memcmp(whole.data, cut.data, whole.len) == 0);
	return 0;
}
