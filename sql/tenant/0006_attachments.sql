-- Files and images that came with a turn: what they are stands beside its input, their bytes
-- in rows of their own, which nobody reads who shows a turn.

ALTER TABLE app.turn
	ADD COLUMN attachments bytea CHECK (octet_length(attachments) BETWEEN 1 AND 16384),
	ADD COLUMN attachment_bytes bigint NOT NULL DEFAULT 0
		CHECK (attachment_bytes BETWEEN 0 AND 20971520),
	ADD CHECK ((attachments IS NULL) = (attachment_bytes = 0));

CREATE TABLE app.attachment (
	turn uuid NOT NULL REFERENCES app.turn (id) ON DELETE CASCADE,
	number integer NOT NULL CHECK (number BETWEEN 1 AND 5),
	data bytea NOT NULL CHECK (octet_length(data) BETWEEN 1 AND 20971520),
	PRIMARY KEY (turn, number)
);
-- Most of them are compressed already.
ALTER TABLE app.attachment ALTER COLUMN data SET STORAGE EXTERNAL;

DO $$
BEGIN
	EXECUTE format('GRANT SELECT, INSERT ON app.attachment TO %I',
		'cr_' || substr(current_database(), 4));
END
$$;
