#include "daemon/server.h"

#include "common/cancel.h"
#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/api/api.h"
#include "daemon/confine/confine.h"
#include "daemon/event/bus.h"
#include "daemon/http/http.h"
#include "daemon/launcher/message.h"
#include "daemon/link/database.h"
#include "daemon/mcp/session.h"
#include "daemon/model/courier.h"
#include "daemon/model/model.h"
#include "daemon/orders.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/store/store.h"
#include "daemon/turn/turns.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#define REPLAY_BYTES     ((size_t)4 * 1024 * 1024) /* of events kept for a tenant */
#define START_TIMEOUT_MS 60000
#define HEARTBEAT_MS     15000
#define PROOF_MS         60000 /* that a turn waits for the end of an earlier sandbox */
#define HOLD_MS          250   /* between two looks at the lock of a database that is not ours */
#define WORKERS          8
#define ARENAS           2
#define CONNECTIONS      4096
#define SANDBOX_FAULTS   32

/* Everything the server process has, in the order in which it is made. */
struct server {
	const struct server_conf *conf;
	int launcher_sock;
	int courier;       /* the socket of the process that speaks to providers; -1 = none */
	struct cancel end; /* the launcher wants us to end, or is gone */
	atomic_bool orphaned;
	struct database database;
	struct roster *roster;
	struct store *store;
	struct bus *bus;
	struct sandboxes *sandboxes;
	struct mcp *mcp; /* NULL = no MCP servers */
	struct setups *setups;
	struct turns *turns;
	struct api api;
	struct status_of status;
	struct http_server *http;
	struct orders *orders;
};

static void on_launcher(void *ctx, int op)
{
	struct server *s = ctx;

	if (op != LAUNCHER_DRAIN)
		atomic_store(&s->orphaned, true);
	cancel_fire(&s->end);
}

/* Only after READY, so the thread that takes orders is there. */
static void on_order(void *ctx, const struct launcher_message *m, int *fd)
{
	struct server *s = ctx;

	orders_take(s->orders, m, fd);
}

/*
 * The launcher ends the server with a message or SIGKILL.  A Ctrl-C at the terminal is
 * the launcher's to handle, and a client that went away is no reason to die.
 */
static void ignore_signals(void)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN };

	(void)sigaction(SIGINT, &ignore, NULL);
	(void)sigaction(SIGTERM, &ignore, NULL);
	(void)sigaction(SIGHUP, &ignore, NULL);
	(void)sigaction(SIGPIPE, &ignore, NULL);
}

/*
 * The soft limit on descriptors is made for programs that use select(2); connections and
 * streams need more.  http_start() says so when the hard limit is too low as well.
 */
static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* Before the first thread and the first connection, which is to the database. */
static int confine(const struct options *o, struct err *e)
{
	const struct confine_conf conf = {
		.mode = (enum confine_mode)o->confine,
		.port = (uint16_t)o->port,
		.need_landlock = strcmp(o->boundary, "service") == 0,
	};

	return confine_self(&conf, e);
}

static int next_generation(void *ctx, uint64_t *ret, struct err *e)
{
	struct server *s = ctx;

	return store_next_generation(s->store, ret, e);
}

/* While a process can still be forked. */
static int start_courier(struct server *s, struct err *e)
{
	const struct models *models = s->conf->models;
	const struct mcp_servers *mcp = s->conf->mcp;
	const struct courier_conf courier = {
		.models = models,
		.mcp = mcp ? mcp->at : NULL,
		.mcp_count = mcp ? mcp->n : 0,
		.mode = (enum confine_mode)s->conf->options->confine,
	};

	if (!models && !mcp)
		return 0;
	if (courier_start(&courier, &s->courier, e))
		return -1;
	if (models)
		model_declare(models, s->courier);
	return mcp ? mcp_new(mcp, s->courier, &s->mcp, e) : 0;
}

static int start_state(struct server *s, const char *socket_dir, struct err *e)
{
	const struct options *o = s->conf->options;
	struct store_conf store = { socket_dir, o->max_db_connections,
		                    (uint64_t)o->max_tenant_database_mb << 20 };
	struct bus_conf bus = {
		.replay_events = o->event_replay_limit,
		.replay_bytes = REPLAY_BYTES,
		.tenant_subscribers = o->max_event_streams_per_tenant,
		.next_generation = next_generation,
		.ctx = s,
	};

	if (cancel_init(&s->end, e) ||
	    database_open(&s->database, &store, s->launcher_sock, &s->store, e) ||
	    roster_new(s->conf->registry, s->conf->anyone, &s->roster, e) ||
	    orders_cancel_leftovers(s->store, s->roster, s->launcher_sock, e))
		return -1;
	bus.generation = store_generation(s->store);
	return bus_new(&bus, &s->bus, e);
}

static int start_setups(struct server *s, struct err *e)
{
	const struct setups_conf setups = {
		.store = s->store,
		.sandboxes = s->sandboxes,
		.bus = s->bus,
		.allow_http = s->conf->options->allow_http_repositories,
		.end = &s->end,
		.orphaned = &s->orphaned,
	};

	return setups_start(&setups, &s->setups, e);
}

static int start_work(struct server *s, struct err *e)
{
	const struct options *o = s->conf->options;
	struct sandboxes_conf sandboxes = {
		.launcher_sock = s->launcher_sock,
		.start_timeout_ms = START_TIMEOUT_MS,
		.idle_ms = o->sandbox_idle_seconds * 1000,
		.max_active = o->max_active_sandboxes,
		.max_faults = SANDBOX_FAULTS,
		.launcher_message = on_launcher,
		.launcher_order = on_order,
		.ctx = s,
	};
	struct turns_conf turns = {
		.max_running = o->max_running_turns,
		.max_running_tenant = o->max_running_turns_per_tenant,
		.max_queued = o->max_queued_turns,
		.max_queued_tenant = o->max_queued_turns_per_tenant,
		.max_waiting_tenant = o->max_waiting_turns_per_tenant,
		.max_turn_bytes = o->max_turn_bytes,
		.max_turn_steps = o->max_turn_steps,
		.harness_silence_ms = o->harness_silence_seconds * 1000,
		.max_queued_bytes = o->max_queued_bytes,
		.max_queued_bytes_tenant = o->max_queued_bytes_per_tenant,
		.proof_ms = PROOF_MS,
		.end = &s->end,
		.orphaned = &s->orphaned,
	};

	if (sandboxes_start(&sandboxes, &s->sandboxes, e) || start_setups(s, e))
		return -1;
	turns.store = s->store;
	turns.setups = s->setups;
	turns.bus = s->bus;
	turns.mcp = s->mcp;
	turns.roster = s->roster;
	turns.sandboxes = s->sandboxes;
	return turns_start(&turns, &s->turns, e);
}

static int start_orders(struct server *s, struct err *e)
{
	const struct orders_conf orders = {
		.launcher_sock = s->launcher_sock,
		.roster = s->roster,
		.store = s->store,
		.turns = s->turns,
		.sandboxes = s->sandboxes,
		.http = s->http,
		.status = &s->status,
	};

	return orders_start(&orders, &s->orders, e);
}

static int start_http(struct server *s, struct err *e)
{
	const struct options *o = s->conf->options;
	struct launcher_message ready = { .op = LAUNCHER_READY };
	struct http_conf http = {
		.host = o->host,
		.port = (uint16_t)o->port,
		.max_body = o->max_request_bytes,
		.request_ms = o->request_seconds * 1000,
		.workers = WORKERS,
		.max_connections = CONNECTIONS,
		.max_streams = o->max_event_streams,
		.heartbeat_ms = HEARTBEAT_MS,
		.routes = api_routes(),
		.origins = (const char *const *)o->cors_origins.v,
		.origin_count = o->cors_origins.n,
		.max_attempts = o->max_failed_attempts,
		.proxies = (const char *const *)o->trusted_proxies.v,
		.proxy_count = o->trusted_proxies.n,
		.local_hosts = o->workspace_roots.n && options_host_is_local(o),
		.authenticate = api_authenticate,
		.release = api_release,
		.still = api_still,
		.party = api_party,
		.ctx = &s->api,
	};

	s->status = (struct status_of){ s->store,
		                        s->turns,
		                        s->sandboxes,
		                        s->bus,
		                        s->roster,
		                        NULL,
		                        o->boundary,
		                        o->max_active_sandboxes,
		                        o->max_event_streams,
		                        clock_mono_ms() };
	s->api = (struct api){ s->roster, s->store,    s->turns,  s->bus,
		               s->setups, o->boundary, &s->status };
	if (s->conf->operator_digest) {
		memcpy(s->api.operator_digest, s->conf->operator_digest, TOKEN_DIGEST);
		http.is_operator = api_is_operator;
	}
	if (http_start(&http, &s->http, e))
		return -1;
	s->status.http = s->http;
	if (start_orders(s, e))
		return -1;
	ready.port = http_port(s->http);
	return launcher_send(s->launcher_sock, &ready, NULL, e);
}

/* Nobody but PostgreSQL can tell, and none of ours may go on beside another daemon's. */
static bool is_taken(struct server *s)
{
	struct err e = ERR_INIT;

	if (store_hold(s->store, &e) == 0 || e.code != STORE_TAKEN)
		return false;
	log_error("the connection that kept other daemons away was lost, and %s; this one ends",
	          e.text);
	return true;
}

/*
 * Without the keeper of the courier no model can be asked again, without that of the link no
 * database, and this process cannot fork another one.  So it ends, as if the launcher were gone:
 * what manages the service starts it again, and turns go on from their last committed step.
 */
static void wait_for_end(struct server *s)
{
	struct pollfd p[] = { { .fd = s->end.fd, .events = POLLIN },
		              { .fd = s->courier },
		              { .fd = s->database.link } };
	int n;

	while ((n = poll(p, 3, s->database.url ? HOLD_MS : -1)) < 1) {
		if (n == 0 && is_taken(s)) {
			atomic_store(&s->orphaned, true);
			return;
		}
	}
	if (p[0].revents)
		return;
	log_error("the process that speaks to %s, and the one that starts it again, are gone; the "
	          "service ends, to be started anew",
	          p[1].revents ? "providers" : "the database");
	atomic_store(&s->orphaned, true);
}

/* In the reverse order; what was never made is skipped. */
static void stop(struct server *s)
{
	if (s->http)
		http_drain(s->http);
	if (s->turns && !atomic_load(&s->orphaned) &&
	    !turns_drain(s->turns, s->conf->options->drain_seconds))
		log_warn("some turns did not end in time; they go on after the next start");
	orders_stop(&s->orders);
	if (s->http)
		http_stop(&s->http); /* first: its handlers use what follows */
	if (s->turns)
		turns_stop(&s->turns);
	setups_stop(&s->setups);
	if (s->sandboxes)
		sandboxes_stop(&s->sandboxes);
	if (s->bus)
		bus_free(&s->bus);
	if (s->store)
		store_close(&s->store);
	roster_free(&s->roster);
	cancel_release(&s->end);
	mcp_free(&s->mcp);
	fd_close(&s->courier);
	database_release(&s->database);
}

/* What has to be done before the server is confined. */
static int start_helpers(struct server *s, struct err *e)
{
	if (database_put_aside(&s->database, e) || start_courier(s, e) ||
	    database_link(&s->database, e))
		return -1;
	return database_take_back(&s->database, e);
}

/*
 * glibc gives threads arenas of their own, eight for each processor, and what was freed in one
 * is of no use to the others.  Most threads here wait for a client, a model or a sandbox.
 */
static void share_memory(void)
{
	(void)mallopt(M_ARENA_MAX, ARENAS);
}

int server_main(void *ctx, int launcher_sock, const char *database_socket_dir)
{
	struct server s = {
		.conf = ctx, .launcher_sock = launcher_sock, .courier = -1, .end = { -1 }
	};
	const struct options *o = s.conf->options;
	struct err e = ERR_INIT;
	int rc;

	s.database = (struct database){ s.conf->database,
		                        s.conf->state_dir,
		                        o->max_db_connections,
		                        (enum confine_mode)o->confine,
		                        -1,
		                        -1,
		                        "" };
	log_forget();
	ignore_signals();
	share_memory();
	raise_descriptors();
	(void)http_check_pages();
	rc = start_helpers(&s, &e);
	if (rc == 0)
		rc = confine(o, &e);
	if (rc == 0)
		rc = start_state(&s, database_socket_dir, &e);
	if (rc == 0)
		rc = start_work(&s, &e);
	if (rc == 0)
		rc = start_http(&s, &e);
	if (rc == 0)
		wait_for_end(&s);
	else
		log_error("%s", e.text);
	stop(&s);
	return (rc == 0 || e.code == ECANCELED) && !atomic_load(&s.orphaned) ? 0 : 1;
}
