-- Run once, in single-user mode as the bootstrap superuser, in template1 of a new
-- cluster, behind 3_guard.sql.  A statement ends with a semicolon and an empty line.
--
-- Every tenant database is a copy of template1, so what PUBLIC loses here it never
-- has there: the public schema, procedural languages, and the functions that write
-- large objects (which belong to no table and would escape every grant).

DROP SCHEMA public CASCADE;

CREATE ROLE cloister_owner LOGIN NOSUPERUSER CREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;

CREATE ROLE cloister_runtime NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;

REVOKE ALL ON LANGUAGE plpgsql FROM PUBLIC;

GRANT USAGE ON LANGUAGE plpgsql TO cloister_owner;

REVOKE ALL ON FUNCTION lo_creat(integer), lo_create(oid), lo_from_bytea(oid, bytea), lo_open(oid, integer), lo_put(oid, bigint, bytea), lo_truncate(integer, integer), lo_truncate64(integer, bigint), lo_unlink(oid), lowrite(integer, bytea) FROM PUBLIC;

CREATE DATABASE cloister TEMPLATE template1;

