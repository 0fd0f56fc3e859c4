#include "daemon/turn/context.h"

#include "common/buf.h"
#include "common/fd.h"
#include "common/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/*
 * Text has about four bytes to a token, code and other scripts three, and what is about an
 * item beside its text (roles, ids, quotes) comes to some tokens more.
 */
#define BYTES_PER_TOKEN 3
#define ITEM_TOKENS     16
#define NOTE_BYTES      16384

size_t context_tokens(size_t bytes)
{
	return bytes / BYTES_PER_TOKEN + 1;
}

size_t context_room(const struct model *m)
{
	size_t window = (size_t)m->context_window, answer = (size_t)m->max_output_tokens;

	if (!window)
		return SIZE_MAX;
	return answer < window / 2 ? window - answer : window / 2;
}

size_t context_tokens_of(const struct item *items, size_t n)
{
	size_t tokens = 0;

	for (size_t i = 0; i < n; i++)
		if (items[i].kind != ITEM_DISCARDED) /* which no model is told */
			tokens += context_tokens(items[i].body_len + items[i].opaque_len) +
			          ITEM_TOKENS;
	return tokens;
}

/* -- what is told with an input ----------------------------------------------------------- */

/* How the turn before ended, when that was not with an answer. */
static void note_end(const struct earlier_turn *before, struct buf *text)
{
	if (before->state == TURN_CANCELLED)
		buf_adds(text, "[The turn before this message was cancelled by the user; what it "
		               "had begun may be unfinished.]\n\n");
	else if (before->state == TURN_FAILED)
		buf_addf(text,
		         "[The turn before this message failed (%s) and has no answer; what it had "
		         "begun may be unfinished.]\n\n",
		         before->error_code);
}

static void note_attachments(const struct earlier_turn *t, struct buf *text)
{
	auto_json struct json *list = NULL;
	struct err ignored = ERR_INIT;

	if (!t->attachments || json_parse(t->attachments, strlen(t->attachments), &list, &ignored))
		return;
	buf_adds(text, "\n\n[attached to this message, then below /workspace/.cloister:");
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *one = json_at(list, i);

		buf_addf(text, "\n%s (%s, %" PRId64 " bytes)", json_str(json_get(one, "name")),
		         json_str(json_get(one, "mimeType")), json_int(json_get(one, "size")));
	}
	buf_adds(text, "]");
}

/* The item's body with what is told before and after it; *ret NULL when that is nothing. */
static int join(const struct buf *before, const struct item *item, const struct buf *after,
                struct buf *ret, struct err *e)
{
	*ret = (struct buf)BUF_INIT(before->len + item->body_len + after->len);
	if (before->len + after->len == 0)
		return 0;
	buf_add(ret, before->data, before->len);
	buf_add(ret, item->body, item->body_len);
	buf_add(ret, after->data, after->len);
	if (!buf_failed(before) && !buf_failed(after) && !buf_failed(ret))
		return 0;
	buf_release(ret);
	return err_set(e, ENOMEM, "no memory for what was said before");
}

static int tell_turn(const struct earlier_turn *t, bool first, struct item *input, struct err *e)
{
	auto_buf struct buf before = BUF_INIT(NOTE_BYTES), after = BUF_INIT(NOTE_BYTES);
	auto_buf struct buf text = BUF_INIT(0);

	if (!first)
		note_end(t - 1, &before);
	note_attachments(t, &after);
	if (join(&before, input, &after, &text, e))
		return -1;
	if (!text.data)
		return 0;
	free(input->body);
	input->body_len = text.len;
	input->body = buf_take(&text);
	return 0;
}

static int tell(struct earlier *earlier, struct err *e)
{
	for (size_t i = 0; i < earlier->turn_count; i++) {
		const struct earlier_turn *t = &earlier->turns[i];

		if (tell_turn(t, i == 0, &earlier->items.items[t->first], e))
			return -1;
	}
	return 0;
}

int context_read(struct context *c, const struct model *m, struct store *s,
                 const struct uuid *tenant, const struct uuid *turn, struct err *e)
{
	const struct earlier_range range = { turn, &c->summary, CONTEXT_BYTES_MAX };

	if (c->known || !m->context_window)
		return 0;
	context_release(c);
	if (summary_get(s, tenant, turn, &c->summary, e) ||
	    session_earlier(s, tenant, &range, &c->earlier, e) || tell(&c->earlier, e))
		return -1;
	c->known = true;
	return 0;
}

void context_release(struct context *c)
{
	summary_release(&c->summary);
	earlier_release(&c->earlier);
	c->known = false;
}

size_t context_covered(const struct context *c, const struct uuid *turn)
{
	return c->summary.text && uuid_equal(&c->summary.turn, turn) ? c->summary.through + 1 : 1;
}

/* -- composing ------------------------------------------------------------------------------ */

/* The first of the earlier turns for which there is room. */
static size_t first_turn(const struct context *c, size_t tokens)
{
	size_t first = c->earlier.turn_count;

	while (first > 0) {
		const struct earlier_turn *t = &c->earlier.turns[first - 1];
		size_t needed = context_tokens_of(c->earlier.items.items + t->first, t->count);

		if (needed > tokens)
			break;
		tokens -= needed;
		first--;
	}
	return first;
}

/* The item's body becomes *ret: what is told before it, and it. */
static int put_before(struct item *item, const struct buf *before, char **ret, struct err *e)
{
	const struct buf nothing = BUF_INIT(0);
	struct buf text;

	if (join(before, item, &nothing, &text, e))
		return -1;
	if (!text.data)
		return 0;
	item->body_len = text.len;
	*ret = item->body = buf_take(&text);
	return 0;
}

static int tell_composed(const struct context *c, bool cut, struct composed *to, struct err *e)
{
	auto_buf struct buf end = BUF_INIT(NOTE_BYTES), lead = BUF_INIT(SUMMARY_MAX + NOTE_BYTES);
	const struct earlier *earlier = &c->earlier;

	if (earlier->turn_count)
		note_end(&earlier->turns[earlier->turn_count - 1], &end);
	if (c->summary.text) {
		buf_adds(&lead, "[A summary of what this session said and did before:]\n");
		buf_add(&lead, c->summary.text, c->summary.len);
		buf_adds(&lead, "\n[The end of the summary.]\n\n");
	}
	if (cut)
		buf_adds(&lead, "[What this session said and did before is left out here: it is "
		                "too long.]\n\n");
	if (put_before(&to->list.items[to->input], &end, &to->text[0], e))
		return -1;
	return put_before(&to->list.items[0], &lead, &to->text[1], e);
}

/* The earlier turns from that one on, then the transcript without what the summary covers. */
static int gather(const struct context *c, size_t first, const struct transcript *t, size_t covered,
                  struct composed *ret, struct err *e)
{
	const struct earlier *earlier = &c->earlier;
	size_t from =
		first < earlier->turn_count ? earlier->turns[first].first : earlier->items.count;
	const struct item *items = t->list.items;

	*ret = (struct composed){ .input = earlier->items.count - from };
	ret->list.count = ret->input + 1 + t->list.count - covered;
	ret->list.items = calloc(ret->list.count, sizeof(*items));
	if (!ret->list.items)
		return err_set(e, ENOMEM, "no memory for a prompt");
	if (ret->input)
		memcpy(ret->list.items, earlier->items.items + from, ret->input * sizeof(*items));
	ret->list.items[ret->input] = items[0];
	if (t->list.count > covered)
		memcpy(ret->list.items + ret->input + 1, items + covered,
		       (t->list.count - covered) * sizeof(*items));
	return 0;
}

int context_compose(const struct context *c, const struct uuid *turn, const struct transcript *t,
                    size_t tokens, struct composed *ret, struct err *e)
{
	size_t covered = context_covered(c, turn);
	size_t own = context_tokens_of(t->list.items, 1), first;

	if (covered > t->list.count)
		return err_set(e, STORE_CORRUPT, "a summary covers more than its turn has");
	own += context_tokens_of(t->list.items + covered, t->list.count - covered);
	own += c->summary.text ? context_tokens(c->summary.len) : 0;
	first = first_turn(c, own < tokens ? tokens - own : 0);
	if (gather(c, first, t, covered, ret, e) == 0 &&
	    tell_composed(c, first || c->earlier.cut, ret, e) == 0)
		return 0;
	composed_release(ret);
	return -1;
}

void composed_release(struct composed *composed)
{
	free(composed->text[0]);
	free(composed->text[1]);
	free(composed->list.items);
	*composed = (struct composed){ .input = 0 };
}
