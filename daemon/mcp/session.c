#include "daemon/mcp/session.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define GIVE_UP_MS 500U   /* for the word that a request is given up; a cancel waits for it */
#define STOP_MS    1000U  /* for the ends of all sessions */
#define REST_MS    15000U /* without a server that kept somebody waiting */

struct session {
	struct uuid tenant;
	size_t server;
	char name[COURIER_SESSION_MAX + 1];    /* "" = it has none */
	char version[COURIER_VERSION_MAX + 1]; /* "" = not begun */
	uint64_t used;                         /* a count */
	uint64_t rests_until_ms;               /* monotonic */
};

struct mcp {
	const struct mcp_servers *servers;
	int courier;
	atomic_int_fast64_t last_id;
	pthread_mutex_t lock; /* guards the sessions */
	struct session sessions[MCP_SESSIONS_MAX];
	size_t count;
	uint64_t uses;
};

int mcp_new(const struct mcp_servers *servers, int courier, struct mcp **ret, struct err *e)
{
	struct mcp *m = calloc(1, sizeof(*m));

	if (!m)
		return err_set(e, ENOMEM, "no memory for MCP");
	m->servers = servers;
	m->courier = courier;
	pthread_mutex_init(&m->lock, NULL);
	*ret = m;
	return 0;
}

static void end(const struct mcp_peer *peer)
{
	const struct cancel never = { .fd = -1 };
	const struct courier_wait wait = { &never, clock_mono_ms() + GIVE_UP_MS };
	auto_buf struct buf body = BUF_INIT(8);
	struct err e = ERR_INIT;

	if (!peer->session[0])
		return;
	buf_adds(&body, "{}");
	if (mcp_tell(peer, COURIER_TO_MCP_END, &body, &wait, &e) < 0)
		log_debug("MCP: %s", e.text);
}

/* As many as are ended in a second; servers forget the others by themselves. */
static void end_all(struct mcp *m)
{
	uint64_t deadline_ms = clock_mono_ms() + STOP_MS;

	for (size_t i = 0; i < m->count && clock_left_ms(deadline_ms) > 0; i++) {
		const struct session *s = &m->sessions[i];
		struct mcp_peer peer = { .courier = m->courier, .place = (uint32_t)s->server };

		memcpy(peer.session, s->name, sizeof(peer.session));
		memcpy(peer.version, s->version, sizeof(peer.version));
		end(&peer);
	}
}

void mcp_free(struct mcp **at)
{
	struct mcp *m = *at;

	if (!m)
		return;
	end_all(m);
	pthread_mutex_destroy(&m->lock);
	free(m);
	*at = NULL;
}

const struct mcp_servers *mcp_servers_of(const struct mcp *m)
{
	return m->servers;
}

/* -- the table; with the lock held ------------------------------------------------------------ */

static struct session *take_place(struct mcp *m)
{
	struct session *oldest = &m->sessions[0];

	if (m->count < MCP_SESSIONS_MAX)
		return &m->sessions[m->count++];
	for (size_t i = 1; i < m->count; i++)
		if (m->sessions[i].used < oldest->used)
			oldest = &m->sessions[i];
	return oldest;
}

static struct session *find(struct mcp *m, const struct uuid *tenant, size_t server)
{
	struct session *s = NULL;

	for (size_t i = 0; i < m->count && !s; i++)
		if (m->sessions[i].server == server && uuid_equal(&m->sessions[i].tenant, tenant))
			s = &m->sessions[i];
	if (!s) {
		s = take_place(m);
		*s = (struct session){ .tenant = *tenant, .server = server };
	}
	s->used = ++m->uses;
	return s;
}

/* -- a session's state --------------------------------------------------------------------------
 */

static void look_up(const struct mcp_use *u, struct mcp_peer *ret)
{
	struct mcp *m = u->mcp;
	const struct session *s;

	*ret = (struct mcp_peer){ .courier = m->courier, .place = (uint32_t)u->server };
	pthread_mutex_lock(&m->lock);
	s = find(m, &u->tenant, u->server);
	memcpy(ret->session, s->name, sizeof(ret->session));
	memcpy(ret->version, s->version, sizeof(ret->version));
	pthread_mutex_unlock(&m->lock);
}

/* Somebody else may have begun one meanwhile: then that one is kept, and ours is to be ended. */
static bool keep(const struct mcp_use *u, struct mcp_peer *peer)
{
	struct mcp *m = u->mcp;
	struct session *s;
	bool first;

	pthread_mutex_lock(&m->lock);
	s = find(m, &u->tenant, u->server);
	first = !s->version[0];
	if (first) {
		memcpy(s->name, peer->session, sizeof(s->name));
		memcpy(s->version, peer->version, sizeof(s->version));
		s->rests_until_ms = 0;
	}
	pthread_mutex_unlock(&m->lock);
	return first;
}

static void forget(const struct mcp_use *u, const struct mcp_peer *peer)
{
	struct session *s;

	pthread_mutex_lock(&u->mcp->lock);
	s = find(u->mcp, &u->tenant, u->server);
	if (strcmp(s->name, peer->session) == 0)
		s->name[0] = s->version[0] = '\0';
	pthread_mutex_unlock(&u->mcp->lock);
}

bool mcp_is_resting(struct mcp *m, const struct uuid *tenant, size_t server)
{
	bool rests;

	pthread_mutex_lock(&m->lock);
	rests = find(m, tenant, server)->rests_until_ms > clock_mono_ms();
	pthread_mutex_unlock(&m->lock);
	return rests;
}

void mcp_rest(struct mcp *m, const struct uuid *tenant, size_t server)
{
	pthread_mutex_lock(&m->lock);
	find(m, tenant, server)->rests_until_ms = clock_mono_ms() + REST_MS;
	pthread_mutex_unlock(&m->lock);
}

/* -- the beginning of one -----------------------------------------------------------------------
 */

static int agree(struct mcp_peer *peer, const struct json *result, struct err *e)
{
	static const char *const known[] = { "2025-03-26", MCP_VERSION, "2025-11-25" };
	const char *version = json_str(json_get(result, "protocolVersion"));

	for (size_t i = 0; version && i < ARRAY_LEN(known); i++) {
		if (strcmp(known[i], version) != 0)
			continue;
		(void)snprintf(peer->version, sizeof(peer->version), "%s", version);
		return 0;
	}
	return err_set(e, MCP_MALFORMED, "the server speaks no version of MCP that is known here");
}

static int begin(const struct mcp_use *u, struct mcp_peer *peer, struct err *e)
{
	struct mcp_exchange x = { .peer = peer,
		                  .id = atomic_fetch_add(&u->mcp->last_id, 1) + 1,
		                  .wait = { u->cancel, u->deadline_ms } };
	auto_buf struct buf body = BUF_INIT(4096), word = BUF_INIT(4096);
	auto_json struct json *message = NULL;

	peer->session[0] = peer->version[0] = '\0';
	x.body = &body;
	rpc_request(&body, x.id, "initialize",
	            "{\"protocolVersion\":\"" MCP_VERSION "\",\"capabilities\":{},"
	            "\"clientInfo\":{\"name\":\"cloister\",\"version\":\"0.1\"}}");
	if (mcp_exchange(&x, &message, e) < 0 || agree(peer, json_get(message, "result"), e) < 0)
		return -1;
	memcpy(peer->session, x.session, sizeof(peer->session));
	rpc_notification(&word, "notifications/initialized", "{}");
	return mcp_tell(peer, COURIER_TO_MCP, &word, &x.wait, e);
}

static int ready(const struct mcp_use *u, struct mcp_peer *peer, struct err *e)
{
	look_up(u, peer);
	if (peer->version[0])
		return 0;
	if (begin(u, peer, e) < 0)
		return -1;
	if (keep(u, peer))
		return 0;
	end(peer);
	look_up(u, peer);
	return peer->version[0] ? 0 : err_set(e, MCP_EXPIRED, "the session ended at once");
}

/* -- questions ----------------------------------------------------------------------------------
 */

/* Not for long, and not stopped by the cancel that may be its reason. */
static void give_up(const struct mcp_peer *peer, int64_t id)
{
	const struct cancel never = { .fd = -1 };
	const struct courier_wait wait = { &never, clock_mono_ms() + GIVE_UP_MS };
	auto_buf struct buf body = BUF_INIT(4096), params = BUF_INIT(4096);
	struct err e = ERR_INIT;

	buf_addf(&params, "{\"requestId\":%lld,\"reason\":\"given up\"}", (long long)id);
	rpc_notification(&body, "notifications/cancelled", params.data);
	if (mcp_tell(peer, COURIER_TO_MCP, &body, &wait, &e) < 0)
		log_debug("MCP: %s", e.text);
}

static int ask_once(struct mcp_use *u, const struct mcp_peer *peer, const struct mcp_question *q,
                    struct json **ret, struct err *e)
{
	struct mcp_exchange x = { .peer = peer,
		                  .id = atomic_fetch_add(&u->mcp->last_id, 1) + 1,
		                  .wait = { u->cancel, u->deadline_ms } };
	auto_buf struct buf body = BUF_INIT(MCP_REQUEST_MAX);
	int rc;

	x.body = &body;
	q->write(q->ctx, x.id, &body);
	rc = mcp_exchange(&x, ret, e);
	u->list_changed = u->list_changed || x.list_changed;
	u->sent = x.sent;
	if (rc < 0 && x.sent && (e->code == MCP_CANCELLED || e->code == MCP_TIMEOUT))
		give_up(peer, x.id);
	return rc;
}

int mcp_ask(struct mcp_use *u, const struct mcp_question *q, struct json **ret, struct err *e)
{
	struct mcp_peer peer;

	u->sent = false;
	for (int tries = 0;; tries++) {
		if (ready(u, &peer, e) < 0)
			return -1;
		if (ask_once(u, &peer, q, ret, e) == 0)
			return 0;
		if (e->code != MCP_EXPIRED && !(q->repeatable && e->code == MCP_BAD))
			return -1;
		forget(u, &peer);
		u->sent = false;
		if (tries)
			return -1;
	}
}
