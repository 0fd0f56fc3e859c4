/*
 * Answers of providers in the three wire formats: cut anywhere, they say the same.  The first
 * byte chooses the format, the second the size of the pieces.  And the same as the body of an
 * error, with a status that the two of them choose: a line for the tenant, in which the
 * provider's own words are only where they may be.
 */
#include "fuzz/fuzz.h"

#include "common/buf.h"
#include "common/utf8.h"
#include "daemon/model/answer.h"
#include "daemon/model/reader.h"

#include <string.h>

struct told {
	struct buf log;
	struct answer answer;
};

static void take(void *ctx, const struct said *said)
{
	struct told *t = ctx;

	if (said->kind == SAID_CALL || said->kind == SAID_ARGUMENTS || said->kind == SAID_CALL_END)
		demand(said->call < READER_CALLS_MAX);
	if (said->text) {
		demand(said->len > 0 || said->kind == SAID_REASONING_END);
		demand(said->text[said->len] == '\0');
		demand(utf8_valid(said->text, said->len));
		buf_add(&t->log, said->text, said->len);
	}
	answer_take(&t->answer, said);
}

static int read_in_pieces(enum dialect dialect, const char *data, size_t size, size_t piece,
                          struct told *ret)
{
	const struct reader_sink sink = { take, ret };
	struct reader *r = reader_new(dialect, &sink);
	struct item_list items = { 0 };
	struct err e = ERR_INIT;
	int rc = 0;

	for (size_t at = 0; rc == 0 && at < size; at += piece)
		rc = reader_feed(r, data + at, size - at < piece ? size - at : piece, &e);
	if (rc == 0)
		rc = reader_end(r, &e);
	if (rc == 0 && answer_items(&ret->answer, "somebody", &items, &e) == 0)
		for (size_t i = 0; i < items.count; i++)
			demand(utf8_valid(items.items[i].body, items.items[i].body_len));
	item_list_release(&items);
	reader_free(&r);
	return rc;
}

static void check_fault(int status, const char *body, size_t len)
{
	struct err e = ERR_INIT;

	demand(fault_read(status, body, len, &e) == -1);
	demand(e.code >= MODEL_FAILED && e.code <= MODEL_TOO_LONG);
	demand(e.text[0] && utf8_valid(e.text, strlen(e.text)));
	for (const char *c = e.text; *c; c++)
		demand((unsigned char)*c >= ' ' && *c != 127);
	demand(e.code == MODEL_CONTEXT || e.code == MODEL_REJECTED || strlen(e.text) < 100);
	demand(status != 401 || !fault_passes(e.code));
	demand(status < 500 || e.code != MODEL_REJECTED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct told whole = { .log = BUF_INIT(1 << 20) }, cut = { .log = BUF_INIT(1 << 20) };
	enum dialect dialect;
	int rc;

	if (size < 2)
		return 0;
	check_fault(300 + data[0] + data[1] % 8, (const char *)data + 2, size - 2);
	dialect = (enum dialect)(data[0] % 3);
	answer_init(&whole.answer, 0);
	answer_init(&cut.answer, 0);
	rc = read_in_pieces(dialect, (const char *)data + 2, size - 2, size, &whole);
	demand(read_in_pieces(dialect, (const char *)data + 2, size - 2, data[1] % 32 + 1U, &cut) ==
	       rc);
	demand(rc || (whole.log.len == cut.log.len &&
	              (!cut.log.len || memcmp(whole.log.data, cut.log.data, cut.log.len) == 0)));
	answer_release(&whole.answer);
	answer_release(&cut.answer);
	buf_release(&whole.log);
	buf_release(&cut.log);
	return 0;
}
