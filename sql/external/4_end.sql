-- What cloister_owner was set to, everywhere or in one database: who had its password can have
-- done that.  What databases are set to is not touched.

ALTER ROLE cloister_owner RESET ALL;

DO $$
DECLARE
	place name;
BEGIN
	FOR place IN SELECT d.datname FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
			WHERE s.setrole = 'cloister_owner'::regrole LOOP
		EXECUTE format('ALTER ROLE cloister_owner IN DATABASE %I RESET ALL', place);
	END LOOP;
END
$$;

-- The log of that server is somebody else's: without the values that are in statements, as a
-- managed cluster has it.  Only a superuser changes these.

ALTER ROLE cloister_owner SET log_min_error_statement = 'panic';
ALTER ROLE cloister_owner SET log_error_verbosity = 'terse';
ALTER ROLE cloister_owner SET log_parameter_max_length = 0;

COMMIT;

