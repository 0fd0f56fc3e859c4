-- Run once, in single-user mode, in template1 of a new cluster, behind the roles, the guard and
-- what PUBLIC loses (sql/bootstrap).

CREATE DATABASE cloister TEMPLATE template1;

