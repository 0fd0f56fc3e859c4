/*
 * What a harness said and did, committed: items and tokens as every engine's, and its lines
 * as they came.
 */
#include "common/json.h"
#include "common/log.h"
#include "common/utf8.h"
#include "daemon/tool/output.h"
#include "daemon/turn/harness_run.h"
#include "daemon/turn/tell.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX ((size_t)100) /* bytes of a type or kind that are told */

/* -- items -------------------------------------------------------------------------------- */

static int too_large(const struct run *r, struct err *e)
{
	return err_set(e, TURNS_TOO_LARGE,
	               "what was said and done in the turn has more than the %zu bytes that it may "
	               "have (--max-turn-bytes)",
	               r->conf->max_turn_bytes);
}

int harness_check_bytes(const struct run *r, struct err *e)
{
	const struct harness_run *h = r->harness;
	size_t bytes = h->bytes + h->text.len;

	for (size_t i = 0; i < h->call_count; i++)
		bytes += h->calls[i].item.seq ? 0 : h->calls[i].item.body_len;
	return bytes > r->conf->max_turn_bytes ? too_large(r, e) : 0;
}

/* As long as nobody cancels; 0 when a try after one that was not heard of finds it done. */
static bool try_again(struct run *r, const struct err *e, unsigned int *ms, bool *unsure)
{
	if (e->code != STORE_UNAVAILABLE)
		return false;
	*unsure = true;
	return run_wait_retry(r->job, ms);
}

int harness_commit(struct run *r, struct turn_step *step, struct err *e)
{
	struct harness_run *h = r->harness;
	unsigned int ms = RUN_RETRY_MS;
	bool unsure = false;

	step->first = h->next;
	while (turn_append(r->conf->store, &r->job->tenant, &r->job->turn, step, e)) {
		if (e->code == STORE_CONFLICT && unsure)
			break;
		if (!try_again(r, e, &ms, &unsure))
			return -1;
	}
	h->next += (uint32_t)step->count;
	for (size_t i = 0; i < step->count; i++)
		h->bytes += step->items[i].body_len;
	return h->bytes > r->conf->max_turn_bytes ? too_large(r, e) : 0;
}

int harness_start_call(struct run *r, struct harness_call *c, struct err *e)
{
	unsigned int ms = RUN_RETRY_MS;
	bool unsure = false;

	while (turn_start_call(r->conf->store, &r->job->tenant, &r->job->turn, c->item.seq, e)) {
		if (e->code == STORE_CONFLICT && unsure)
			break;
		if (!try_again(r, e, &ms, &unsure))
			return -1;
	}
	c->item.call_state = CALL_STARTED;
	run_publish(r, "tool.started", tell_call(&c->item));
	return 0;
}

int harness_finish_call(struct run *r, struct harness_call *c, struct item *result, struct err *e)
{
	auto_json struct json *details = NULL;
	struct harness_run *h = r->harness;
	unsigned int ms = RUN_RETRY_MS;
	bool unsure = false;

	while (turn_finish_call(r->conf->store, &r->job->tenant, &r->job->turn, c->item.seq, result,
	                        e)) {
		if (e->code == STORE_CONFLICT && unsure)
			break;
		if (!try_again(r, e, &ms, &unsure))
			return -1;
	}
	h->next++;
	h->bytes += result->body_len;
	c->item.call_state = CALL_DONE;
	details = json_new_object();
	json_put_str(details, "reason", "done");
	run_publish(r, "tool.finished", tell_result(&c->item, result, details));
	return h->bytes > r->conf->max_turn_bytes ? too_large(r, e) : 0;
}

/* -- lines -------------------------------------------------------------------------------- */

static void forget_kept(struct harness_run *h)
{
	for (size_t i = 0; i < h->kept_count; i++)
		free(h->kept[i].text);
	h->kept_count = h->kept_size = 0;
}

int harness_flush(struct run *r, struct err *e)
{
	struct harness_run *h = r->harness;
	unsigned int ms = RUN_RETRY_MS;
	bool unsure = false;
	int rc = 0;

	while (h->kept_count && (rc = harness_lines_keep(r->conf->store, &r->job->tenant,
	                                                 &r->job->turn, h->kept, h->kept_count, e)))
		if (!try_again(r, e, &ms, &unsure))
			break;
	forget_kept(h);
	return rc;
}

/* False when it is not kept: there was too much before. */
static bool keep(struct harness_run *h, const struct buf *line, bool whole)
{
	char *text;

	if (h->kept_total + line->len > HARNESS_KEPT_MAX && !whole)
		return false;
	text = malloc(line->len + 1);
	if (!text)
		return false;
	memcpy(text, line->data ? line->data : "", line->len);
	h->kept[h->kept_count++] = (struct harness_line){ h->lines, text, line->len };
	h->kept_size += line->len;
	h->kept_total += line->len;
	return true;
}

static void put_shown(struct json *o, const char *key, const char *flag, const char *text,
                      size_t len)
{
	size_t n = output_prefix(text, len, TELL_CHARS);

	json_put_strn(o, key, text, n);
	json_put_bool(o, flag, n < len);
}

static void put_word(struct json *o, const char *key, const char *text)
{
	size_t len = text ? strlen(text) : 0;

	if (text)
		json_put_strn(o, key, text, len > WORD_MAX ? utf8_whole(text, WORD_MAX) : len);
	else
		json_put_null(o, key);
}

static struct json *line_json(const struct harness_run *h, const struct buf *line,
                              const struct harness_note *note)
{
	auto_buf struct buf text = BUF_INIT(3 * line->len + 1);
	struct json *data = json_new_object();

	json_put_int(data, "number", h->lines);
	put_word(data, "lineType", note->type);
	put_word(data, "kind", note->kind);
	json_put_int(data, "bytes", (int64_t)line->len);
	json_put_bool(data, "lossy", utf8_repair(line->data ? line->data : "", line->len, &text));
	put_shown(data, "line", "truncated", text.data ? text.data : "", text.len);
	json_put_str(data, "dropped", note->dropped);
	json_put_str(data, "malformed", note->malformed);
	if (note->seq_expected)
		json_put_int(data, "seqExpected", note->seq_expected);
	else
		json_put_null(data, "seqExpected");
	json_put_bool(data, "unknownKind", note->unknown_kind);
	return data;
}

/* One that is shown in part is stored before that is told. */
int harness_keep_line(struct run *r, const struct harness_note *note, struct err *e)
{
	const struct buf *line = process_line(harness_process(r->harness->resident));
	struct harness_run *h = r->harness;
	struct json *data;
	bool kept;

	kept = keep(h, line, note->whole);
	if ((h->kept_count == HARNESS_BATCH || h->kept_size > HARNESS_BATCH_SIZE ||
	     line->len > TELL_CHARS) &&
	    harness_flush(r, e))
		return -1;
	data = line_json(h, line, note);
	json_put_bool(data, "kept", kept);
	run_publish(r, "harness.line", data);
	return 0;
}

int harness_tell_skipped(struct run *r, struct err *e)
{
	struct json *data = json_new_object();

	(void)e;
	r->harness->lines++;
	json_put_int(data, "number", r->harness->lines);
	json_put_null(data, "lineType");
	json_put_null(data, "kind");
	json_put_int(data, "bytes",
	             (int64_t)process_skipped(harness_process(r->harness->resident)));
	json_put_bool(data, "lossy", true);
	json_put_str(data, "line", "");
	json_put_bool(data, "truncated", true);
	json_put_str(data, "dropped", "too_long");
	json_put_null(data, "malformed");
	json_put_null(data, "seqExpected");
	json_put_bool(data, "unknownKind", false);
	json_put_bool(data, "kept", false);
	run_publish(r, "harness.line", data);
	return 0;
}

void harness_warn(const struct run *r, const char *fmt, ...)
{
	struct json *data = json_new_object();
	char text[1000];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_put_strn(data, "text", text, utf8_whole(text, strlen(text)));
	json_put_bool(data, "truncated", strlen(text) == sizeof(text) - 1);
	run_publish(r, "warning", data);
}

/* -- the whole ---------------------------------------------------------------------------- */

struct harness_run *harness_run_new(size_t max_bytes)
{
	struct harness_run *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->text = (struct buf)BUF_INIT(max_bytes + 1);
	h->refusals = (struct buf)BUF_INIT(1000);
	outcome_init(&h->outcome);
	message_op_id(h->submit_id);
	return h;
}

void harness_run_free(void *run)
{
	struct harness_run *h = run;

	if (!h)
		return;
	forget_kept(h);
	for (size_t i = 0; i < h->call_count; i++)
		free(h->calls[i].item.body);
	json_free(&h->asking.data);
	json_free(&h->asking.answers);
	outcome_release(&h->outcome);
	buf_release(&h->text);
	buf_release(&h->refusals);
	free(h);
}
