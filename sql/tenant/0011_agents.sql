-- The steps of child agents, as they are shown: which call of a turn they work for, what they
-- did and how it ended.

CREATE TABLE app.agent_step (
	turn uuid NOT NULL REFERENCES app.turn (id) ON DELETE CASCADE,
	call integer NOT NULL, -- seq of the call
	number integer NOT NULL CHECK (number >= 0),
	state text NOT NULL CHECK (state IN ('completed', 'failed', 'info')),
	title text NOT NULL CHECK (octet_length(title) <= 64),
	detail bytea NOT NULL CHECK (octet_length(detail) <= 2048),
	PRIMARY KEY (turn, call, number),
	FOREIGN KEY (turn, call) REFERENCES app.item (turn, seq) ON DELETE CASCADE
);

DO $$
BEGIN
	EXECUTE format('GRANT SELECT, INSERT ON app.agent_step TO %I',
		'cr_' || substr(current_database(), 4));
END
$$;
