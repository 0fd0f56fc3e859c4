-- Run in the database that all others are copies of, and once in each database of a managed
-- cluster that was made without it.

-- The scripts of trusted extensions run as superuser for whoever owns a database.  Here a
-- privilege cannot stop that: the owner of a database grants itself what it likes.
CREATE SCHEMA IF NOT EXISTS privileged;

ALTER SCHEMA privileged OWNER TO CURRENT_USER;

CREATE OR REPLACE FUNCTION privileged.refuse_extension() RETURNS event_trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RAISE EXCEPTION 'permission denied for %', tg_tag USING ERRCODE = 'insufficient_privilege';
END
$$;

ALTER FUNCTION privileged.refuse_extension() OWNER TO CURRENT_USER;

DROP EVENT TRIGGER IF EXISTS refuse_extension;

CREATE EVENT TRIGGER refuse_extension ON ddl_command_start
	WHEN TAG IN ('CREATE EXTENSION', 'ALTER EXTENSION', 'CREATE LANGUAGE')
	EXECUTE FUNCTION privileged.refuse_extension();

