#include "daemon/turn/brief.h"

#include "daemon/turn/offered.h"
#include "daemon/turn/remote.h"
#include "daemon/turn/summarise.h"
#include "daemon/turn/system_prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE_TOKENS 2000 /* at most, of those that providers take */

static size_t tokens_of_tools(const struct model_tool *tools, size_t n)
{
	size_t tokens = 0;

	for (size_t i = 0; i < n; i++)
		tokens += context_tokens(strlen(tools[i].name) + strlen(tools[i].description) +
		                         strlen(tools[i].schema));
	return tokens;
}

/* What the prompt comes to beside its items. */
static size_t overhead(const struct model_prompt *p)
{
	return context_tokens(strlen(p->system)) + tokens_of_tools(p->tools, p->tool_count) +
	       p->image_count * IMAGE_TOKENS;
}

/* It tells of our own tools alone: what servers say of theirs is not ours to say. */
static int say_system(struct run *r, struct brief *b, struct err *e)
{
	size_t own;
	const struct model_tool *ours = offered_tools(&own);

	b->system = (struct buf)BUF_INIT(SYSTEM_PROMPT_MAX);
	b->prompt.tools = remote_offer(r, &b->prompt.tool_count);
	system_prompt(&r->session, ours, own, &b->system);
	b->prompt.system = b->system.data;
	return buf_failed(&b->system) ? err_set(e, ENOMEM, "no memory for a system prompt") : 0;
}

static int read_all(struct run *r, struct brief *b, struct err *e)
{
	struct store *store = r->conf->store;

	if (context_read(&r->context, r->model, store, &r->job->tenant, &r->job->turn, e) ||
	    attached_image(&r->attached, store, &r->job->tenant, &b->images[0], e))
		return -1;
	b->prompt.image_count = (b->images[0].data ? 1 : 0) + r->seen.count;
	if (say_system(r, b, e))
		return -1;
	b->beside = overhead(&b->prompt);
	return 0;
}

static int compose(struct run *r, struct brief *b, struct err *e)
{
	size_t room = context_room(r->model);

	if (context_compose(&r->context, &r->job->turn, &r->transcript,
	                    room > b->beside ? room - b->beside : 0, &b->composed, e))
		return -1;
	b->prompt.transcript = &b->composed.list;
	b->images[0].item = b->composed.input;
	b->prompt.images = b->images[0].data ? b->images : b->images + 1;
	b->prompt.image_count =
		(b->images[0].data ? 1 : 0) + seen_in(&r->seen, &b->composed.list, b->images + 1);
	return 0;
}

static enum round not_made(const struct err *e)
{
	return e->code == STORE_UNAVAILABLE ? ROUND_STORE : ROUND_FAILED;
}

enum round brief_make(struct run *r, size_t answer_max, struct brief *ret, struct err *e)
{
	struct store *store = r->conf->store;
	enum round round;
	bool made;

	*ret = (struct brief){ .prompt = { .effort = r->session.effort,
		                           .answer_max = answer_max } };
	if (read_all(r, ret, e))
		return not_made(e);
	round = summarise(r, ret->beside, false, &made, e);
	if (round != ROUND_AGAIN)
		return round;
	/* After a summary it is read anew. */
	if (context_read(&r->context, r->model, store, &r->job->tenant, &r->job->turn, e) ||
	    compose(r, ret, e))
		return not_made(e);
	return ROUND_AGAIN;
}

void brief_release(struct brief *b)
{
	composed_release(&b->composed);
	buf_release(&b->system);
	free(b->images[0].data);
	b->images[0].data = NULL;
}
