-- A session is deleted by the ids of its turns, of which each table has an index: requests were
-- looked for by their session, which took as long as there were requests of others.

CREATE OR REPLACE FUNCTION app.delete_session(target uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	turns uuid[];
BEGIN
	PERFORM FROM app.session WHERE id = target FOR UPDATE;
	IF EXISTS (SELECT FROM app.turn WHERE session = target
			AND state IN ('queued', 'running', 'waiting_for_input')) THEN
		RETURN false;
	END IF;
	turns := ARRAY(SELECT id FROM app.turn WHERE session = target);
	DELETE FROM app.request WHERE turn = ANY (turns);
	DELETE FROM app.item WHERE turn = ANY (turns);
	DELETE FROM app.turn WHERE session = target;
	DELETE FROM app.session WHERE id = target;
	RETURN true;
END
$$;
