/*
 * database.h - the server's way to an external database (--database-url-file).
 *
 * In the order of the calls: the password is put aside before the first process is forked from
 * the server, so that none of these has it in its memory; the link is started, where the
 * database is reached over TCP; the password is taken back; and once the server is confined,
 * the store is opened with it, and it is forgotten.
 */
#ifndef DAEMON_LINK_DATABASE_H
#define DAEMON_LINK_DATABASE_H

#include "daemon/confine/confine.h"
#include "daemon/store/store.h"
#include "daemon/store/url.h"

struct database {
	struct database_url *url; /* NULL = the managed one, and every call does nothing */
	const char *state_dir;
	unsigned int connections;
	enum confine_mode mode;
	int aside; /* from -1 on; holds the password; -1 = nothing does */
	int link;  /* from -1 on; readable when there will be no link any more; -1 = none is needed
	            */
	char socket_dir[URL_HOST_MAX + 1];
};

int database_put_aside(struct database *d, struct err *e) must_check;
int database_link(struct database *d, struct err *e) must_check;
int database_take_back(struct database *d, struct err *e) must_check;

/*
 * Complete conf and open the store.  An external server that cannot be reached is tried again
 * for 30 s, or until stop_fd becomes readable (ECANCELED).
 */
int database_open(struct database *d, struct store_conf *conf, int stop_fd, struct store **ret,
                  struct err *e) must_check;

/* The same without the store: is the server there, and as it has to be?  ret_text: what it is. */
int database_examine(struct database *d, char *ret_text, size_t size, struct err *e) must_check;

void database_release(struct database *d);

#endif
