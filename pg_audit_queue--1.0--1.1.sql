/* pg_audit_queue--1.0--1.1.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION pg_audit_queue UPDATE TO '1.1'" to load this file. \quit
