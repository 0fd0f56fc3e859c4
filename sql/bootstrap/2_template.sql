-- Run in the database that all others are copies of, behind the roles and the guard.
--
-- What PUBLIC loses here it never has in a tenant's database: the public schema,
-- procedural languages, and the functions that write large objects (which belong to no
-- table and would escape every grant).

DROP SCHEMA IF EXISTS public CASCADE;

REVOKE ALL ON LANGUAGE plpgsql FROM PUBLIC;

GRANT USAGE ON LANGUAGE plpgsql TO cloister_owner;

REVOKE ALL ON FUNCTION lo_creat(integer), lo_create(oid), lo_from_bytea(oid, bytea), lo_open(oid, integer), lo_put(oid, bigint, bytea), lo_truncate(integer, integer), lo_truncate64(integer, bigint), lo_unlink(oid), lowrite(integer, bytea) FROM PUBLIC;

