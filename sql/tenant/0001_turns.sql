-- A tenant's database: sessions, turns, their items, and requests to people.  What is
-- executed or approved is bytea: jsonb and text would change or refuse some of it.

CREATE TABLE app.session (
	id uuid PRIMARY KEY,
	created_ms bigint NOT NULL CHECK (created_ms > 0),
	updated_ms bigint NOT NULL CHECK (updated_ms > 0),
	model text NOT NULL CHECK (octet_length(model) BETWEEN 1 AND 128),
	effort text NOT NULL DEFAULT '' CHECK (octet_length(effort) <= 15),
	cwd text NOT NULL CHECK (octet_length(cwd) <= 4096 AND cwd LIKE '/%'),
	title text NOT NULL DEFAULT '' CHECK (octet_length(title) <= 512),
	title_is_manual boolean NOT NULL DEFAULT false,
	archived boolean NOT NULL DEFAULT false,
	input_tokens bigint NOT NULL DEFAULT 0 CHECK (input_tokens >= 0),
	output_tokens bigint NOT NULL DEFAULT 0 CHECK (output_tokens >= 0),
	cached_tokens bigint NOT NULL DEFAULT 0 CHECK (cached_tokens >= 0)
);
CREATE INDEX session_newest ON app.session (updated_ms, id);
CREATE INDEX session_newest_by_archive ON app.session (archived, updated_ms, id);

CREATE TABLE app.turn (
	id uuid PRIMARY KEY,
	session uuid NOT NULL REFERENCES app.session,
	client_request uuid UNIQUE,
	state text NOT NULL CHECK (state IN
		('queued', 'running', 'waiting_for_input', 'completed', 'failed', 'cancelled')),
	cancel_requested boolean NOT NULL DEFAULT false,
	created_ms bigint NOT NULL CHECK (created_ms > 0),
	started_ms bigint CHECK (started_ms > 0),
	finished_ms bigint CHECK (finished_ms > 0),
	error_code text NOT NULL DEFAULT '' CHECK (octet_length(error_code) <= 63),
	error text NOT NULL DEFAULT '' CHECK (octet_length(error) <= 500),
	input bytea NOT NULL CHECK (octet_length(input) <= 16777216),
	UNIQUE (id, session),
	CHECK ((finished_ms IS NOT NULL) = (state IN ('completed', 'failed', 'cancelled'))),
	CHECK (state NOT IN ('running', 'waiting_for_input') OR started_ms IS NOT NULL)
);
CREATE UNIQUE INDEX turn_one_active ON app.turn (session)
	WHERE state IN ('queued', 'running', 'waiting_for_input');
CREATE INDEX turn_unfinished ON app.turn (created_ms, id)
	WHERE state IN ('queued', 'running', 'waiting_for_input');
CREATE INDEX turn_by_session ON app.turn (session, created_ms, id);

-- previous makes the list gapless: an item needs the one before it.
CREATE TABLE app.item (
	turn uuid NOT NULL REFERENCES app.turn,
	seq integer NOT NULL CHECK (seq >= 0),
	previous integer GENERATED ALWAYS AS (nullif(seq, 0) - 1) STORED,
	kind text NOT NULL CHECK (kind IN ('user', 'assistant', 'tool_call', 'tool_result')),
	call_id text NOT NULL DEFAULT '' CHECK (octet_length(call_id) <= 64),
	tool text NOT NULL DEFAULT '' CHECK (octet_length(tool) <= 64),
	call_state text CHECK (call_state IN ('pending', 'started', 'done')),
	answers integer, -- tool result: seq of its call
	lossy boolean NOT NULL DEFAULT false,
	truncated boolean NOT NULL DEFAULT false,
	total_bytes bigint NOT NULL DEFAULT 0 CHECK (total_bytes >= 0),
	body bytea NOT NULL CHECK (octet_length(body) <= 16777216),
	PRIMARY KEY (turn, seq),
	FOREIGN KEY (turn, previous) REFERENCES app.item (turn, seq),
	FOREIGN KEY (turn, answers) REFERENCES app.item (turn, seq),
	CHECK ((kind = 'tool_call') = (call_state IS NOT NULL)),
	CHECK ((kind = 'tool_result') = (answers IS NOT NULL)),
	CHECK (answers < seq),
	CHECK ((seq = 0) <= (kind = 'user'))
);
CREATE UNIQUE INDEX item_one_result ON app.item (turn, answers) WHERE kind = 'tool_result';

CREATE TABLE app.request (
	id uuid PRIMARY KEY,
	turn uuid NOT NULL,
	session uuid NOT NULL,
	kind text NOT NULL CHECK (octet_length(kind) BETWEEN 1 AND 31),
	call_id text NOT NULL CHECK (octet_length(call_id) <= 64),
	call_seq integer NOT NULL,
	state text NOT NULL CHECK (state IN ('open', 'answered', 'withdrawn')),
	created_ms bigint NOT NULL CHECK (created_ms > 0),
	answered_ms bigint CHECK (answered_ms > 0),
	prompt bytea NOT NULL CHECK (octet_length(prompt) <= 1048576),
	options bytea NOT NULL CHECK (octet_length(options) <= 65536),
	decision bytea CHECK (octet_length(decision) <= 65536),
	value bytea CHECK (octet_length(value) <= 1048576),
	FOREIGN KEY (turn, session) REFERENCES app.turn (id, session),
	FOREIGN KEY (turn, call_seq) REFERENCES app.item (turn, seq),
	CHECK ((state = 'answered') = (decision IS NOT NULL)),
	CHECK ((state = 'answered') = (answered_ms IS NOT NULL)),
	CHECK (value IS NULL OR state = 'answered')
);
CREATE UNIQUE INDEX request_one_open ON app.request (turn) WHERE state = 'open';
CREATE UNIQUE INDEX request_one_per_call ON app.request (turn, call_seq);
CREATE INDEX request_open ON app.request (created_ms, id) WHERE state = 'open';

-- The tenant's role reads and appends; of what is there it changes only what a rule of
-- the code changes.  Nothing is deleted yet, so it may not delete.
DO $$
DECLARE
	runtime text := 'cr_' || substr(current_database(), 4);
BEGIN
	EXECUTE format('GRANT USAGE ON SCHEMA app TO %I', runtime);
	EXECUTE format('GRANT SELECT, INSERT ON app.session, app.turn, app.item, app.request TO %I',
		runtime);
	EXECUTE format('GRANT UPDATE (updated_ms, model, effort, title, title_is_manual, archived, '
		'input_tokens, output_tokens, cached_tokens) ON app.session TO %I', runtime);
	EXECUTE format('GRANT UPDATE (state, cancel_requested, started_ms, finished_ms, error_code, '
		'error) ON app.turn TO %I', runtime);
	EXECUTE format('GRANT UPDATE (call_state) ON app.item TO %I', runtime);
	EXECUTE format('GRANT UPDATE (state, answered_ms, decision, value) ON app.request TO %I',
		runtime);
END
$$;
