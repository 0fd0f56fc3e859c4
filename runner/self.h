/*
 * self.h - what the runner demands of itself before it does anything.
 */
#ifndef RUNNER_SELF_H
#define RUNNER_SELF_H

#include "common/err.h"

/*
 * Give up what exec could grant (no_new_privs) and life beyond the parent's.
 * The first thing the program does, before it reads anything.
 */
int self_lower(struct err *e) must_check;

/*
 * Close this process to debuggers of the same user.  Once all children are made:
 * they inherit it, and must be visible in a /proc that hides what cannot be traced.
 */
int self_seal(struct err *e) must_check;

/* Refuse root, capabilities, supplementary groups and set-user-ID traces. */
int self_check(struct err *e) must_check;

/* Refuse a kernel that cannot confine the daemon's files (Landlock); the runner itself needs it
 * not. */
int self_check_landlock(struct err *e) must_check;

/* Standard input must be the read end of a pipe and standard output the write end of one. */
int self_check_pipes(struct err *e) must_check;

#endif
