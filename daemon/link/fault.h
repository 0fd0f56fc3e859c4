/*
 * fault.h - how it is told that there is no session.
 */
#ifndef DAEMON_LINK_FAULT_H
#define DAEMON_LINK_FAULT_H

#define FAULT_LOG_MS 60000 /* at least, between two lines of the log that say the same */
#define FAULT_KINDS  16    /* are remembered for that */

/*
 * To libpq, as PostgreSQL would: a FATAL ErrorResponse with an SQLSTATE of five characters.
 * Never blocks: what does not fit into the socket is lost with the connection, which ends.
 */
void fault_tell(int client, const char *sqlstate, const char *text);

/* To people, and not again and again.  Any thread. */
void fault_log(const char *text);

#endif
