-- The control database: which tenants exist here, how far their schema is, who has
-- unfinished work, and how often a daemon has started.

CREATE TABLE control.start (
	one_row boolean PRIMARY KEY DEFAULT true CHECK (one_row),
	generation bigint NOT NULL CHECK (generation BETWEEN 0 AND 2097151) -- event ids stay below 2^53
);
INSERT INTO control.start (generation) VALUES (0);

CREATE TABLE control.tenant (
	id uuid PRIMARY KEY,
	created_at timestamptz NOT NULL DEFAULT now(),
	schema_version integer NOT NULL DEFAULT 0 CHECK (schema_version >= 0),
	unfinished boolean NOT NULL DEFAULT false
);
CREATE INDEX tenant_unfinished ON control.tenant (id) WHERE unfinished;
