-- Run at every start, in single-user mode as the bootstrap superuser, in the control
-- database, behind the roles and the privileged functions (sql/bootstrap).

ALTER ROLE cloister_bootstrap NOLOGIN;

REVOKE ALL ON DATABASE postgres, template1, template0 FROM PUBLIC;

-- A database that is copied from this one would lack what template1 has.
UPDATE pg_database SET datistemplate = false WHERE datname = 'template0' AND datistemplate;

-- Where this database lacks the guard (3_guard.sql), others may, and get it: this one last, so
-- that an update that was broken off is done again.
SELECT datname FROM pg_database WHERE datname ~ '^[a-z][a-z0-9_]*$' AND datname NOT IN ('template0', 'postgres') AND datconnlimit <> -2 AND NOT EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'refuse_extension') ORDER BY datname = 'cloister', datname <> 'template1', datname;

