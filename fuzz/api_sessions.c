#include "fuzz/api.h"

#include "fuzz/fuzz.h"

#include "daemon/model/model.h"

static const struct session *row(void)
{
	static struct session s = { .cwd = "/workspace",
		                    .model = "demo",
		                    .effort = "low",
		                    .approvals = "ask",
		                    .title = "a title",
		                    .created_ms = 1000,
		                    .updated_ms = 2000,
		                    .cost_nano = -1 };

	s.id = row_id;
	(void)snprintf(s.harness, sizeof(s.harness), "%s",
	               given.choice & HAS_HARNESS ? "[\"run\"]" : "");
	s.setup.state = given.choice & IS_OVER ? SETUP_FAILED : SETUP_NONE;
	return &s;
}

int session_insert(struct store *s, const struct uuid *tenant, struct session *io,
                   const struct client_request *key, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(&io->id);
	check_cwd(io->cwd);
	check_text(io->title, SESSION_TITLE_MAX);
	check_text(io->instructions, SESSION_INSTRUCTIONS_MAX);
	check_harness(io->harness);
	check_repository(&io->setup);
	check_key(key);
	demand(effort_named(io->effort) < EFFORTS);
	demand(strcmp(io->approvals, "sandbox") == 0 || strcmp(io->approvals, "ask") == 0);
	demand(!(given.choice & IS_ASKED) || strcmp(io->approvals, "ask") == 0);
	demand(!(given.choice & HAS_MODELS) || io->harness[0]);
	demand(!io->harness[0] || (!io->planning && !io->instructions[0]));
	return store_says(e);
}

int session_get(struct store *s, const struct uuid *tenant, const struct uuid *id,
                struct session *ret, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(id);
	*ret = *row();
	return store_says(e);
}

int session_each(struct store *s, const struct uuid *tenant, const struct session_ids *ids,
                 void (*fn)(void *ctx, const struct session *row), void *ctx, struct err *e)
{
	struct session one;

	(void)s;
	check_id(tenant);
	demand(ids->n == 1);
	check_id(&ids->ids[0]);
	if (store_says(e))
		return -1;
	one = *row();
	one.id = ids->ids[0];
	fn(ctx, &one);
	return 0;
}

int session_list(struct store *s, const struct uuid *tenant, struct session_page *page,
                 void (*fn)(void *ctx, const struct session *row), void *ctx, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_limit(page->limit);
	if (page->after)
		check_after(page->after->updated_ms, &page->after->id);
	if (store_says(e))
		return -1;
	fn(ctx, row());
	page->more = given.choice & IS_OVER;
	return 0;
}

int session_update(struct store *s, const struct uuid *tenant, const struct uuid *id,
                   const struct session_change *change, struct session *ret, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(id);
	check_text(change->title, SESSION_TITLE_MAX);
	check_text(change->instructions, SESSION_INSTRUCTIONS_MAX);
	demand(!!change->title + !!change->archived + !!change->instructions == 1);
	*ret = *row();
	return store_says(e);
}

int session_delete(struct store *s, const struct uuid *tenant, const struct uuid *id, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(id);
	return store_says(e);
}

int session_fork(struct store *s, const struct uuid *tenant, const struct session_fork *fork,
                 struct session *io, struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(&fork->source);
	check_text(fork->title, SESSION_TITLE_MAX);
	if (fork->cwd)
		check_cwd(fork->cwd);
	demand(!fork->through || (*fork->through <= INT32_MAX && !fork->title && !fork->cwd));
	check_key(fork->key);
	(void)snprintf(io->model, sizeof(io->model), "demo");
	return store_says(e);
}
