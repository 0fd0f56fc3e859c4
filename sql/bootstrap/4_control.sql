-- Run in the control database: puts its privileges and the privileged functions into the
-- state that this release expects.

REVOKE ALL ON DATABASE cloister FROM PUBLIC;

GRANT CONNECT ON DATABASE cloister TO cloister_owner;

CREATE SCHEMA IF NOT EXISTS control AUTHORIZATION cloister_owner;

CREATE SCHEMA IF NOT EXISTS privileged;

ALTER SCHEMA privileged OWNER TO CURRENT_USER;

REVOKE ALL ON SCHEMA privileged FROM PUBLIC;

GRANT USAGE ON SCHEMA privileged TO cloister_owner;

-- Which state this is.  It grows with each change of this folder or of sql/external that a
-- daemon cannot do without, which then asks for it by that number (daemon/store/external.h).
CREATE OR REPLACE FUNCTION privileged.release() RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS 'SELECT 1';

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
	-- What the role set for itself, everywhere and in its own database.
	EXECUTE format('ALTER ROLE %I RESET ALL', role_name);
	IF EXISTS (SELECT FROM pg_database WHERE datname = 'ct_' || replace(tenant::text, '-', '')) THEN
		EXECUTE format('ALTER ROLE %I IN DATABASE %I RESET ALL', role_name,
			'ct_' || replace(tenant::text, '-', ''));
	END IF;
	EXECUTE format('ALTER ROLE %I SET search_path = app, pg_temp', role_name);
	EXECUTE format('ALTER ROLE %I SET statement_timeout = ''30s''', role_name);
	EXECUTE format('ALTER ROLE %I SET lock_timeout = ''5s''', role_name);
	EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = ''30s''', role_name);
	EXECUTE format('ALTER ROLE %I SET log_min_error_statement = ''panic''', role_name);
	EXECUTE format('ALTER ROLE %I SET log_error_verbosity = ''terse''', role_name);
	EXECUTE format('ALTER ROLE %I SET log_parameter_max_length = 0', role_name);
END
$$;

-- The same with a password, of which only what proves it comes here (RFC 5803).  None of its
-- letters could end a literal, and it is quoted all the same.
CREATE OR REPLACE FUNCTION privileged.make_tenant_role(tenant uuid, verifier text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF verifier IS NULL OR verifier !~ '^SCRAM-SHA-256\$[1-9][0-9]{0,4}:[A-Za-z0-9+/]{22}==\$[A-Za-z0-9+/]{43}=:[A-Za-z0-9+/]{43}=$' THEN
		RAISE EXCEPTION 'a SCRAM verifier is needed';
	END IF;
	PERFORM privileged.make_tenant_role(tenant);
	EXECUTE format('ALTER ROLE %I PASSWORD %L', 'cr_' || replace(tenant::text, '-', ''), verifier);
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

-- Whoever ran this for an earlier release may be superuser no more.
ALTER FUNCTION privileged.release() OWNER TO CURRENT_USER;

ALTER FUNCTION privileged.make_tenant_role(uuid) OWNER TO CURRENT_USER;

ALTER FUNCTION privileged.make_tenant_role(uuid, text) OWNER TO CURRENT_USER;

ALTER FUNCTION privileged.drop_tenant_role(uuid) OWNER TO CURRENT_USER;

REVOKE ALL ON FUNCTION privileged.release(), privileged.make_tenant_role(uuid), privileged.make_tenant_role(uuid, text), privileged.drop_tenant_role(uuid) FROM PUBLIC;

GRANT EXECUTE ON FUNCTION privileged.release(), privileged.make_tenant_role(uuid), privileged.make_tenant_role(uuid, text), privileged.drop_tenant_role(uuid) TO cloister_owner;

