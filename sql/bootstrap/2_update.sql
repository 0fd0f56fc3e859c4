-- Run at every start, in single-user mode as the bootstrap superuser, in the control
-- database: puts roles, database access and the one privileged function back into the
-- state that this release expects.  A statement ends with a semicolon and an empty line.

ALTER ROLE cloister_bootstrap NOLOGIN;

ALTER ROLE cloister_owner LOGIN NOSUPERUSER CREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;

ALTER ROLE cloister_runtime NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;

REVOKE ALL ON DATABASE cloister, postgres, template1, template0 FROM PUBLIC;

-- A database that is copied from this one would lack what template1 has.
UPDATE pg_database SET datistemplate = false WHERE datname = 'template0' AND datistemplate;

GRANT CONNECT ON DATABASE cloister TO cloister_owner;

CREATE SCHEMA IF NOT EXISTS control AUTHORIZATION cloister_owner;

CREATE SCHEMA IF NOT EXISTS privileged;

REVOKE ALL ON SCHEMA privileged FROM PUBLIC;

GRANT USAGE ON SCHEMA privileged TO cloister_owner;

-- The one thing the server may have done with superuser powers: a login role for a
-- tenant.  The argument is a UUID, so no text of the caller reaches the statement, and
-- the attributes are fixed here.
CREATE OR REPLACE FUNCTION privileged.make_tenant_role(tenant uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	role_name text := 'cr_' || replace(tenant::text, '-', '');
BEGIN
	IF tenant IS NULL THEN
		RAISE EXCEPTION 'a tenant is needed';
	END IF;
	PERFORM pg_advisory_xact_lock(7740319, 1);
	IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
		EXECUTE format('CREATE ROLE %I IN ROLE cloister_runtime', role_name);
	END IF;
	EXECUTE format('ALTER ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT '
		'NOREPLICATION NOBYPASSRLS CONNECTION LIMIT -1', role_name);
	EXECUTE format('ALTER ROLE %I SET search_path = app, pg_temp', role_name);
	EXECUTE format('ALTER ROLE %I SET statement_timeout = ''30s''', role_name);
	EXECUTE format('ALTER ROLE %I SET lock_timeout = ''5s''', role_name);
	EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = ''30s''', role_name);
END
$$;

-- And its end.  A role whose database exists is in use, so that this takes from a tenant
-- nothing that the database's owner could not take as well.
CREATE OR REPLACE FUNCTION privileged.drop_tenant_role(tenant uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	hex text := replace(tenant::text, '-', '');
BEGIN
	IF tenant IS NULL THEN
		RAISE EXCEPTION 'a tenant is needed';
	END IF;
	PERFORM pg_advisory_xact_lock(7740319, 1);
	IF EXISTS (SELECT FROM pg_database WHERE datname = 'ct_' || hex) THEN
		RAISE EXCEPTION 'the database of this tenant exists';
	END IF;
	IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'cr_' || hex) THEN
		EXECUTE format('DROP ROLE %I', 'cr_' || hex);
	END IF;
END
$$;

REVOKE ALL ON FUNCTION privileged.drop_tenant_role(uuid) FROM PUBLIC;

GRANT EXECUTE ON FUNCTION privileged.drop_tenant_role(uuid) TO cloister_owner;

REVOKE ALL ON FUNCTION privileged.make_tenant_role(uuid) FROM PUBLIC;

GRANT EXECUTE ON FUNCTION privileged.make_tenant_role(uuid) TO cloister_owner;

-- Where this database lacks the guard (3_guard.sql), others may, and get it: this one last, so
-- that an update that was broken off is done again.
SELECT datname FROM pg_database WHERE datname ~ '^[a-z][a-z0-9_]*$' AND datname NOT IN ('template0', 'postgres') AND datconnlimit <> -2 AND NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'refuse_extension') ORDER BY datname = 'cloister', datname <> 'template1', datname;

