COMMIT;

-- The control database, from the same template, which nobody may be connected to for that.
-- Nobody can connect to it before PUBLIC has lost the right to.

SELECT NOT EXISTS (SELECT FROM pg_database WHERE datname = 'cloister') AS fresh \gset
SELECT NOT EXISTS (SELECT FROM pg_database WHERE datname = 'cloister' AND datallowconn) AS closed \gset

\connect :home
SET client_min_messages = warning;
SET search_path = pg_catalog;
ALTER DATABASE cloister_template ALLOW_CONNECTIONS false;

\if :fresh
CREATE DATABASE cloister TEMPLATE cloister_template ALLOW_CONNECTIONS false;
\endif
\if :closed
REVOKE ALL ON DATABASE cloister FROM PUBLIC;
ALTER DATABASE cloister ALLOW_CONNECTIONS true;
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

