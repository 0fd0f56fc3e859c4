-- What a model said of the beginning of its session when that became too long for it: told
-- instead of the items up to one of a turn, which stay.

CREATE TABLE app.summary (
	turn uuid NOT NULL REFERENCES app.turn (id) ON DELETE CASCADE,
	through integer NOT NULL, -- seq of the last item that it covers
	created_ms bigint NOT NULL CHECK (created_ms > 0),
	body bytea NOT NULL CHECK (octet_length(body) BETWEEN 1 AND 262144),
	PRIMARY KEY (turn, through),
	FOREIGN KEY (turn, through) REFERENCES app.item (turn, seq) ON DELETE CASCADE
);

DO $$
BEGIN
	EXECUTE format('GRANT SELECT, INSERT ON app.summary TO %I',
		'cr_' || substr(current_database(), 4));
END
$$;
