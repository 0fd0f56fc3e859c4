/*
 * removal.h - whether a command line looks as if it removed everything (inside this folder
 * only).
 *
 * It reads shell text without understanding it, and is wrong rather to the careful side: a
 * person is asked once too often.  It protects from mistakes and is no boundary of security:
 * a script, a variable that was set earlier, or text that is decoded first pass it by.
 */
#ifndef DAEMON_TURN_REMOVAL_H
#define DAEMON_TURN_REMOVAL_H

#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * True when text may remove, with all below it, "/", "/workspace", a home directory, the
 * current directory as a whole, or a directory of the system.
 */
bool removal_of_all(const char *text, size_t len);

/* The same for the texts that a call's arguments may hand to a shell, and its directory. */
bool removal_in_call(const struct json *arguments);

#endif
