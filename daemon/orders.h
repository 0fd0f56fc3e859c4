/*
 * orders.h - what the launcher has the server do while it serves: take another registry,
 * drop the database of a tenant that is not declared, say how things stand, take no more work.
 *
 * One thread carries them out, and what follows from them: tenants that are not declared
 * any more have their turns cancelled and their sandboxes stopped, as often as it takes.
 */
#ifndef DAEMON_ORDERS_H
#define DAEMON_ORDERS_H

#include "daemon/http/http.h"
#include "daemon/launcher/message.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/status/status.h"
#include "daemon/store/store.h"
#include "daemon/tenant/roster.h"
#include "daemon/turn/turns.h"

struct orders;

struct orders_conf {
	int launcher_sock; /* borrowed */
	struct roster *roster;
	struct store *store;
	struct turns *turns;
	struct sandboxes *sandboxes;
	struct http_server *http;
	const struct status_of *status;
};

int orders_start(const struct orders_conf *conf, struct orders **ret, struct err *e) must_check;

/* Finish what is under way, join, free. */
void orders_stop(struct orders **at);

/* An order has come, with *fd when it has a descriptor, which is taken.  Never blocks. */
void orders_take(struct orders *o, const struct launcher_message *m, int *fd);

/*
 * Before anything runs: cancel the unfinished turns of tenants that are not declared, which
 * an earlier daemon left.  Waits for a database that is away (daemon/store/patience.h); -1 when
 * it stays away or stop_fd says that it is time to end.  What cannot be cancelled for another
 * reason, or is more than fits, is later, by orders_start().
 */
int orders_cancel_leftovers(struct store *store, struct roster *roster, int stop_fd, struct err *e)
	must_check;

#endif
