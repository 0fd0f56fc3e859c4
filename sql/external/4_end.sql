-- The log of that server is somebody else's: without the values that are in statements, as a
-- managed cluster has it.  Only a superuser changes these.

ALTER ROLE cloister_owner SET log_min_error_statement = 'panic';
ALTER ROLE cloister_owner SET log_error_verbosity = 'terse';
ALTER ROLE cloister_owner SET log_parameter_max_length = 0;

COMMIT;

