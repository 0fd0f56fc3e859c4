-- The repository that a session begins with.  Its credential is in memory only; here stands
-- whether there was one.

CREATE TABLE app.setup (
	session uuid PRIMARY KEY REFERENCES app.session ON DELETE CASCADE,
	url text NOT NULL CHECK (octet_length(url) BETWEEN 1 AND 2048),
	ref text NOT NULL DEFAULT '' CHECK (octet_length(ref) <= 255),
	branch text NOT NULL DEFAULT '' CHECK (octet_length(branch) <= 255),
	private boolean NOT NULL,
	setup_state text NOT NULL CHECK (setup_state IN ('pending', 'running', 'ready', 'failed')),
	head text NOT NULL DEFAULT '' CHECK (octet_length(head) <= 64),
	setup_code text NOT NULL DEFAULT '' CHECK (octet_length(setup_code) <= 63),
	setup_error text NOT NULL DEFAULT '' CHECK (octet_length(setup_error) <= 500),
	CHECK ((setup_state = 'ready') = (head <> '')),
	CHECK ((setup_state = 'failed') = (setup_code <> ''))
);
CREATE INDEX setup_unfinished ON app.setup (session) WHERE setup_state IN ('pending', 'running');

DO $$
DECLARE
	runtime text := 'cr_' || substr(current_database(), 4);
BEGIN
	EXECUTE format('GRANT SELECT, INSERT ON app.setup TO %I', runtime);
	EXECUTE format('GRANT UPDATE (private, setup_state, head, setup_code, setup_error) '
		'ON app.setup TO %I', runtime);
END
$$;
