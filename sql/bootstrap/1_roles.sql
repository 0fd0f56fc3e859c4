-- The two roles that every database knows, with the attributes that this release expects.
-- Run as superuser, before anything else of this folder.  Each file here is run in
-- single-user mode in the managed cluster and by psql in an external one (sql/managed,
-- sql/external), may be run again, and ends a statement with a semicolon and an empty line.

DO $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'cloister_owner') THEN
		CREATE ROLE cloister_owner;
	END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'cloister_runtime') THEN
		CREATE ROLE cloister_runtime;
	END IF;
END
$$;

ALTER ROLE cloister_owner LOGIN NOSUPERUSER CREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;

ALTER ROLE cloister_runtime NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;

