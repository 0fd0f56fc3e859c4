-- Sessions that are changed, forked and deleted; keys that make a creation happen once;
-- what a tool call came to, as JSON bytes.

ALTER TABLE app.session
	ADD COLUMN client_request uuid UNIQUE,
	ADD COLUMN request_digest bytea CHECK (octet_length(request_digest) = 32),
	ADD CHECK ((client_request IS NULL) = (request_digest IS NULL));

ALTER TABLE app.item
	ADD COLUMN details bytea CHECK (octet_length(details) <= 65536),
	ADD CHECK (details IS NULL OR kind = 'tool_result');

CREATE INDEX turn_newest ON app.turn (created_ms, id);

-- Every item is looked for by the two keys that point at items when one is deleted.
CREATE INDEX item_previous ON app.item (turn, previous);
DROP INDEX app.item_one_result;
CREATE UNIQUE INDEX item_one_result ON app.item (turn, answers) WHERE answers IS NOT NULL;

-- The tenant's role still deletes nothing by itself: this takes away a whole session, and
-- only one that does nothing.
CREATE FUNCTION app.delete_session(target uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM FROM app.session WHERE id = target FOR UPDATE;
	IF EXISTS (SELECT FROM app.turn WHERE session = target
			AND state IN ('queued', 'running', 'waiting_for_input')) THEN
		RETURN false;
	END IF;
	DELETE FROM app.request WHERE session = target;
	DELETE FROM app.item WHERE turn IN (SELECT id FROM app.turn WHERE session = target);
	DELETE FROM app.turn WHERE session = target;
	DELETE FROM app.session WHERE id = target;
	RETURN true;
END
$$;
REVOKE ALL ON FUNCTION app.delete_session(uuid) FROM PUBLIC;

DO $$
BEGIN
	EXECUTE format('GRANT EXECUTE ON FUNCTION app.delete_session(uuid) TO %I',
		'cr_' || substr(current_database(), 4));
END
$$;
