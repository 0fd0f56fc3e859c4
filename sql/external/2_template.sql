-- What every tenant's database is a copy of.  Nobody connects to it but this script.

SELECT 'CREATE DATABASE cloister_template TEMPLATE template0 IS_TEMPLATE true '
	'ALLOW_CONNECTIONS false ENCODING ''UTF8'' LOCALE_PROVIDER libc LOCALE ''C'''
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'cloister_template') \gexec

REVOKE ALL ON DATABASE cloister_template FROM PUBLIC;
ALTER DATABASE cloister_template IS_TEMPLATE true ALLOW_CONNECTIONS true;

\connect cloister_template
SET client_min_messages = warning;
SET search_path = pg_catalog;
BEGIN;

DO $$
BEGIN
	IF EXISTS (SELECT FROM pg_class WHERE relnamespace::regnamespace::text
			NOT IN ('pg_catalog', 'pg_toast', 'information_schema')) THEN
		RAISE EXCEPTION 'database cloister_template has tables: this script did not make it; rename it';
	END IF;
END
$$;

