/*
 * login.h - why a server lets nobody in, from what libpq tells of it.
 *
 * libpq gives the SQLSTATE of a failed login in its text alone, and there only when asked for
 * (PQERRORS_VERBOSE): 'connection to server ... failed: FATAL:  28P01: ...'.  It is taken from
 * that place.  The server has chosen severity and message too, so it can name any SQLSTATE, and
 * nothing more follows from what it says.
 */
#ifndef DAEMON_STORE_LOGIN_H
#define DAEMON_STORE_LOGIN_H

#include <stdbool.h>

#define SQLSTATE_SIZE 6

/* False, and "", when the first line has none: what libpq found by itself has no SQLSTATE. */
bool login_sqlstate(const char *text, char ret_state[SQLSTATE_SIZE]);

/*
 * Neither time nor a server that is started helps: role, password, rules or database are wrong,
 * or the server does not log us in by SCRAM or does not know the password, which libpq finds out
 * by itself.
 */
bool login_is_refused(const char *text);

/* What an operator does about a server that says so; NULL = nothing that is known. */
const char *login_remedy(const char *state);

#endif
