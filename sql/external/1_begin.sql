-- Prepares a PostgreSQL server for Cloister (--database-url-file).  Printed by
--
--     cloisterd database-script
--
-- and run by psql as a superuser of that server: once, and again after each release of
-- Cloister that asks for it.  It makes the roles cloister_owner and cloister_runtime and the
-- databases cloister_template and cloister, changes of other databases only what cloister_owner is set
-- to there, and may be run at any time.  The password of cloister_owner is yours to set: \password cloister_owner

\set ON_ERROR_STOP on
SELECT pg_catalog.current_database() AS home \gset
SET client_min_messages = warning;
SET search_path = pg_catalog;

DO $$
BEGIN
	IF current_setting('server_version_num')::integer < 150000 THEN
		RAISE EXCEPTION 'Cloister needs PostgreSQL 15 or later, and this is %',
			current_setting('server_version');
	END IF;
	IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
		RAISE EXCEPTION 'a superuser has to run this, and % is none', current_user;
	END IF;
	-- What another role made may have anything in it, which this would run as superuser.
	IF EXISTS (SELECT FROM pg_database d JOIN pg_roles r ON r.oid = d.datdba
			WHERE d.datname IN ('cloister', 'cloister_template') AND NOT r.rolsuper) THEN
		RAISE EXCEPTION 'database cloister or cloister_template belongs to no superuser: '
			'rename what this script did not make, and ALTER DATABASE ... OWNER TO a '
			'superuser for what it did';
	END IF;
END
$$;

