/*
 * status.h - how things stand, for the operator: written when the launcher asks.
 *
 * Names and ids of tenants, counts, ages, and the last errors and warnings of the log; no
 * prompt, no output, no token.
 */
#ifndef DAEMON_STATUS_STATUS_H
#define DAEMON_STATUS_STATUS_H

#include "daemon/event/bus.h"
#include "daemon/http/http.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/store/store.h"
#include "daemon/tenant/roster.h"
#include "daemon/turn/turns.h"

#define STATUS_TENANT_SERIES 100 /* tenants; with more, metrics tell of none by name */

struct status_of {
	struct store *store;
	struct turns *turns;
	struct sandboxes *sandboxes;
	struct bus *bus;
	struct roster *roster;
	struct http_server *_Atomic http; /* NULL until it serves */
	const char *boundary;
	unsigned int max_sandboxes;
	unsigned int max_streams;
	uint64_t begun_ms; /* monotonic: since when it serves */
};

/* fd: a view of the launcher's (daemon/launcher/view.h). */
int status_write(const struct status_of *of, int fd, struct err *e) must_check;

/* Append what Prometheus reads: what is counted, and how things stand. */
void status_metrics(const struct status_of *of, struct buf *out);

#endif
