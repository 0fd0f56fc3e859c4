-- Sessions that a tenant's own program drives: the command that runs it, as JSON bytes; and
-- the lines that it said in a turn, as they came.

ALTER TABLE app.session
	ADD COLUMN harness bytea CHECK (octet_length(harness) BETWEEN 5 AND 4096);

CREATE TABLE app.harness_line (
	turn uuid NOT NULL REFERENCES app.turn (id) ON DELETE CASCADE,
	number integer NOT NULL CHECK (number > 0),
	line bytea NOT NULL CHECK (octet_length(line) <= 4194304),
	PRIMARY KEY (turn, number)
);

DO $$
BEGIN
	EXECUTE format('GRANT SELECT, INSERT ON app.harness_line TO %I',
		'cr_' || substr(current_database(), 4));
END
$$;
