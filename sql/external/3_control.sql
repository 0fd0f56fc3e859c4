COMMIT;

-- The control database, from the same template, which nobody may be connected to for that.

SELECT NOT EXISTS (SELECT FROM pg_database WHERE datname = 'cloister') AS fresh \gset

\connect :home
SET client_min_messages = warning;
SET search_path = pg_catalog;
ALTER DATABASE cloister_template ALLOW_CONNECTIONS false;

\if :fresh
CREATE DATABASE cloister TEMPLATE cloister_template;
\endif

\connect cloister
SET client_min_messages = warning;
SET search_path = pg_catalog;
BEGIN;

DO $$
BEGIN
	IF to_regnamespace('privileged') IS NULL THEN
		RAISE EXCEPTION 'this script did not make database cloister; rename it';
	END IF;
END
$$;

