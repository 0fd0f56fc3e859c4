/* Sessions that are changed, forked or deleted: only while they do nothing. */
#include "daemon/store/internal.h"

#include "common/fd.h"

#include <stdio.h>
#include <string.h>

/* -- steps -- */

int session_lock(struct pg *pg, const struct uuid *id, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (pg_query(pg, "SELECT FROM app.session WHERE id = $1 FOR NO KEY UPDATE",
	             PG_PARAMS(pg_uuid(id)), &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 0)
		return err_set(e, STORE_NOT_FOUND, "there is no session %s", id->text);
	return 0;
}

int session_check_idle(struct pg *pg, const struct uuid *id, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (pg_query(pg, "SELECT FROM app.turn WHERE session = $1 AND " TURN_UNFINISHED,
	             PG_PARAMS(pg_uuid(id)), &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) > 0)
		return err_set(e, STORE_BUSY, "the session has an active turn");
	return 0;
}

struct job {
	struct store *store;
	struct tenant_db *db;
	const struct uuid *id;
	const struct session_change *change;
	const struct session_fork *fork;
	const struct session *in;
	struct session out;
	uint64_t bytes; /* that a deletion takes away */
};

/* -- change -- */

static int update(struct pg *pg, void *ctx, struct err *e)
{
	struct job *j = ctx;
	const struct session_change *c = j->change;

	if (session_lock(pg, j->id, e) < 0 || session_check_idle(pg, j->id, e) < 0 ||
	    pg_exec(pg,
	            "UPDATE app.session SET updated_ms = greatest(updated_ms, $2), "
	            "title = coalesce($3, title), "
	            "title_is_manual = coalesce($3 <> '', title_is_manual), "
	            "archived = coalesce($4::boolean, archived), "
	            "instructions = coalesce($5, instructions) WHERE id = $1",
	            PG_PARAMS(pg_uuid(j->id), pg_int((int64_t)c->now_ms), pg_text(c->title),
	                      c->archived ? pg_bool(*c->archived) : pg_text(NULL),
	                      pg_text(c->instructions)),
	            e) < 0)
		return -1;
	return session_read(pg, j->id, &j->out, e);
}

int session_update(struct store *s, const struct uuid *tenant, const struct uuid *id,
                   const struct session_change *change, struct session *ret, struct err *e)
{
	struct job j = { .id = id, .change = change };

	if (tenant_transaction(s, tenant, update, &j, e) < 0)
		return -1;
	*ret = j.out;
	return 0;
}

/* -- delete -- */

/* As they are stored, which may be compressed. */
static int count_bytes(struct pg *pg, const struct uuid *id, uint64_t *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (pg_query(pg,
	             "WITH gone AS (SELECT id FROM app.turn WHERE session = $1), n AS ("
	             "SELECT sum(pg_column_size(input) + attachment_bytes) FROM app.turn "
	             "WHERE session = $1 "
	             "UNION ALL SELECT sum(pg_column_size(body) + "
	             "coalesce(pg_column_size(opaque), 0)) "
	             "FROM app.item WHERE turn IN (SELECT id FROM gone) "
	             "UNION ALL SELECT sum(pg_column_size(line)) "
	             "FROM app.harness_line WHERE turn IN (SELECT id FROM gone) "
	             "UNION ALL SELECT sum(pg_column_size(body)) "
	             "FROM app.summary WHERE turn IN (SELECT id FROM gone) "
	             "UNION ALL SELECT sum(pg_column_size(detail)) "
	             "FROM app.agent_step WHERE turn IN (SELECT id FROM gone)) "
	             "SELECT coalesce(sum(sum), 0)::bigint FROM n",
	             PG_PARAMS(pg_uuid(id)), &rows, e) < 0)
		return -1;
	*ret = (uint64_t)pg_get_int(rows, 0, 0);
	return pg_rows_check(rows, "size", e);
}

static int remove_whole(struct pg *pg, void *ctx, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	struct job *j = ctx;

	if (session_lock(pg, j->id, e) < 0 || session_check_idle(pg, j->id, e) < 0 ||
	    count_bytes(pg, j->id, &j->bytes, e) < 0)
		return -1;
	/* Nothing is inserted; this measures, so that room_return() can judge. */
	if (room_take(j->store, j->db, pg, 0, e) < 0 && e->code != STORE_TENANT_FULL)
		return -1;
	if (pg_query(pg, "SELECT app.delete_session($1)", PG_PARAMS(pg_uuid(j->id)), &rows, e) < 0)
		return -1;
	if (!pg_get_bool(rows, 0, 0))
		return err_set(e, STORE_BUSY, "the session has an active turn");
	return pg_rows_check(rows, "deletion", e);
}

int session_delete(struct store *s, const struct uuid *tenant, const struct uuid *id, struct err *e)
{
	struct job j = { .store = s, .id = id };

	if (tenant_db_get(s, tenant, &j.db, e) < 0 ||
	    db_transaction(s->pool, &j.db->key, remove_whole, &j, e) < 0)
		return -1;
	room_return(s, j.db, j.bytes);
	return 0;
}

/* -- fork -- */

/* How many turns are copied, or all; null is no limit to PostgreSQL. */
static struct pg_param copied(const struct session_fork *f)
{
	return f->through ? pg_int((int64_t)*f->through + 1) : pg_text(NULL);
}

static int check_fork(struct pg *pg, const struct job *j, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct session_fork *f = j->fork;
	int64_t turns, bytes;

	if (pg_query(
		    pg,
		    "WITH chosen AS (SELECT id, octet_length(input) + attachment_bytes AS n FROM app.turn "
		    "WHERE session = $1 ORDER BY created_ms, id LIMIT $2) "
		    "SELECT count(*), (coalesce(sum(n), 0) + coalesce((SELECT sum(256 + "
		    "octet_length(body) + coalesce(octet_length(opaque), 0)) FROM app.item WHERE turn IN (SELECT id FROM chosen)), "
		    "0))::bigint FROM chosen",
		    PG_PARAMS(pg_uuid(&f->source), copied(f)), &rows, e) < 0)
		return -1;
	turns = pg_get_int(rows, 0, 0);
	bytes = pg_get_int(rows, 0, 1);
	if (pg_rows_check(rows, "count", e) < 0)
		return -1;
	if (f->through && turns <= (int64_t)*f->through)
		return err_set(e, STORE_NO_SUCH_TURN, "the session has no turn of index %u",
		               *f->through);
	return room_take(j->store, j->db, pg, (uint64_t)bytes, e);
}

/* Copies get ids of version 7 too: the time, then the random digits of a version 4. */
static int copy_turns(struct pg *pg, const struct job *j, struct err *e)
{
	int n = pg_exec(
		pg,
		"WITH chosen AS MATERIALIZED (SELECT id AS original, (lpad(to_hex($4::bigint), "
		"12, '0') || '7' || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid "
		"AS copy FROM app.turn WHERE session = $1 ORDER BY created_ms, id LIMIT $3), "
		"turns AS (INSERT INTO app.turn (id, session, state, cancel_requested, created_ms, "
		"started_ms, finished_ms, error_code, error, input, attachments, attachment_bytes) "
		"SELECT copy, $2, state, cancel_requested, created_ms, started_ms, finished_ms, "
		"error_code, error, input, attachments, attachment_bytes "
		"FROM app.turn JOIN chosen ON original = id), "
		"summaries AS (INSERT INTO app.summary (turn, through, created_ms, body) SELECT "
		"copy, through, created_ms, body FROM app.summary JOIN chosen ON original = turn), "
		"agents AS (INSERT INTO app.agent_step (turn, call, number, state, title, detail) "
		"SELECT copy, call, number, s.state, s.title, detail FROM app.agent_step s "
		"JOIN chosen ON original = turn), "
		"attached AS (INSERT INTO app.attachment (turn, number, data) SELECT copy, number, "
		"data FROM app.attachment JOIN chosen ON original = turn) "
		"INSERT INTO app.item (turn, seq, kind, call_id, tool, call_state, answers, lossy, "
		"truncated, total_bytes, body, details, origin, opaque) SELECT copy, seq, kind, "
		"call_id, tool, call_state, answers, lossy, truncated, total_bytes, body, details, "
		"origin, opaque "
		"FROM app.item JOIN chosen ON original = turn",
		PG_PARAMS(pg_uuid(&j->fork->source), pg_uuid(&j->out.id), copied(j->fork),
	                  pg_int((int64_t)j->out.created_ms)),
		e);

	return n < 0 ? -1 : 0;
}

/* What the new session takes over from its source. */
static void inherit(struct job *j, struct session *source)
{
	const struct session_fork *f = j->fork;

	source->id = j->in->id;
	source->created_ms = j->in->created_ms;
	source->updated_ms = j->in->updated_ms;
	source->archived = false;
	source->setup = (struct setup){ .state = SETUP_NONE };
	source->input_tokens = source->output_tokens = source->cached_tokens = 0;
	source->reasoning_tokens = 0;
	source->cost_nano = -1;
	if (f->title) {
		(void)snprintf(source->title, sizeof(source->title), "%s", f->title);
		source->title_is_manual = *f->title != '\0';
	}
	if (f->cwd)
		(void)snprintf(source->cwd, sizeof(source->cwd), "%s", f->cwd);
	j->out = *source;
}

static int fork_session(struct pg *pg, void *ctx, struct err *e)
{
	struct job *j = ctx;
	const struct session_fork *f = j->fork;
	struct session source;
	bool existing = false;

	if (f->key && session_find_key(pg, f->key, &j->out, &existing, e) < 0)
		return -1;
	if (existing)
		return 0;
	if (session_lock(pg, &f->source, e) < 0 || session_check_idle(pg, &f->source, e) < 0 ||
	    session_read(pg, &f->source, &source, e) < 0 || check_fork(pg, j, e) < 0)
		return -1;
	inherit(j, &source);
	if (session_put(pg, &j->out, f->key, &existing, e) < 0)
		return -1;
	return existing ? 0 : copy_turns(pg, j, e);
}

int session_fork(struct store *s, const struct uuid *tenant, const struct session_fork *fork,
                 struct session *io, struct err *e)
{
	struct job j = { .store = s, .fork = fork, .in = io };

	if (tenant_db_get(s, tenant, &j.db, e) < 0 ||
	    db_transaction(s->pool, &j.db->key, fork_session, &j, e) < 0)
		return -1;
	*io = j.out;
	return 0;
}
