/*
 * child.h - what every child of the launcher does first, and how its end is told.
 */
#ifndef DAEMON_LAUNCHER_CHILD_H
#define DAEMON_LAUNCHER_CHILD_H

#include <stddef.h>
#include <sys/types.h>

/*
 * To be called in the child before anything else, with the launcher's pid: a process
 * group of its own (Ctrl-C reaches the launcher alone), death with the launcher, and
 * the signal mask and dispositions that a program expects, but for SIGHUP, which is ignored
 * from here on.  Ends the child when the launcher is gone already.
 */
void child_begin(pid_t launcher);

/* Exit code, or 128 + signal, from a status of waitpid(2). */
int child_code(int wait_status);

#define CHILD_END_SIZE 64

/* "exit status 2" or "signal 9 (Killed)". */
void child_describe(int wait_status, char ret_text[CHILD_END_SIZE]);

#endif
