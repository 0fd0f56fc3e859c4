#include "daemon/event/bus.h"

#include "common/clock.h"
#include "common/log.h"
#include "daemon/metrics/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS        1024
#define EVENT_MAX      ((size_t)1024 * 1024) /* bytes of one event's wire form */
#define COUNTER_BITS   32
#define GENERATION_MAX ((UINT64_C(1) << 21) - 1)

static const char reset_event[] = "event: replay.reset\n"
				  "data: {\"reason\":\"event_gap\",\"refetch\":true}\n\n";

/* One event in its wire form, shared by the ring and by subscribers that are sending it. */
struct blob {
	unsigned int refs;
	bool ends_turn;
	struct uuid turn, session; /* text "" = none */
	size_t len;
	char data[];
};

/*
 * The kept events of a tenant have the consecutive counters oldest .. newest, and
 * the one with counter c stands in ring[c % replay_events].
 */
struct channel {
	struct channel *next; /* in its bucket */
	struct uuid tenant;
	uint64_t generation;
	uint32_t oldest; /* newest + 1 when nothing is kept */
	uint32_t newest; /* 0 = none yet */
	size_t bytes;
	size_t subscribers;
	struct subscription *first;
	struct blob *ring[];
};

struct subscription {
	struct bus *bus;
	struct channel *channel;
	struct subscription *prev, *next;
	struct blob *held;         /* what the reader is sending */
	uint64_t wanted;           /* counter of the next event to give */
	struct uuid turn, session; /* only those of it; text "" = all */
	bool reset;                /* tell of a gap first */
	bool over;                 /* nothing comes any more */
	bool idle;                 /* bus_next() said 0 and nobody woke it since */
	void (*wake)(void *ctx);
	void *wake_ctx;
};

struct bus {
	struct bus_conf conf;
	pthread_mutex_t lock; /* guards everything below, channels and blobs included */
	struct channel *buckets[BUCKETS];
};

int bus_new(const struct bus_conf *conf, struct bus **ret, struct err *e)
{
	struct bus *b;

	if (conf->generation > GENERATION_MAX)
		return err_set(e, ERANGE,
		               "start generation %" PRIu64 " is used up (at most %" PRIu64 ")",
		               conf->generation, GENERATION_MAX);
	b = calloc(1, sizeof(*b));
	if (!b)
		return err_set(e, ENOMEM, "no memory for the event bus");
	b->conf = *conf;
	if (!b->conf.counter_max)
		b->conf.counter_max = UINT32_MAX - 1; /* oldest is one more when nothing is kept */
	pthread_mutex_init(&b->lock, NULL);
	*ret = b;
	return 0;
}

static void blob_unref(struct blob *blob)
{
	if (blob && --blob->refs == 0)
		free(blob);
}

static struct blob **slot(const struct bus *b, struct channel *c, uint32_t counter)
{
	return &c->ring[counter % b->conf.replay_events];
}

static void drop_oldest(struct bus *b, struct channel *c)
{
	struct blob **at = slot(b, c, c->oldest);

	c->bytes -= (*at)->len;
	blob_unref(*at);
	*at = NULL;
	c->oldest++;
}

static void drop_all(struct bus *b, struct channel *c)
{
	while (c->oldest <= c->newest)
		drop_oldest(b, c);
}

void bus_free(struct bus **bp)
{
	struct bus *b = *bp;

	if (!b)
		return;
	for (size_t i = 0; i < BUCKETS; i++) {
		while (b->buckets[i]) {
			struct channel *c = b->buckets[i];

			b->buckets[i] = c->next;
			drop_all(b, c);
			free(c);
		}
	}
	pthread_mutex_destroy(&b->lock);
	free(b);
	*bp = NULL;
}

/* The tenant's channel, made on first use; NULL = no memory. */
static struct channel *channel_of(struct bus *b, const struct uuid *tenant)
{
	size_t i = uuid_hash(tenant) % BUCKETS;
	struct channel *c;

	for (c = b->buckets[i]; c; c = c->next)
		if (uuid_equal(&c->tenant, tenant))
			return c;
	c = calloc(1, sizeof(*c) + b->conf.replay_events * sizeof(struct blob *));
	if (!c)
		return NULL;
	c->tenant = *tenant;
	c->generation = b->conf.generation;
	c->oldest = 1;
	c->next = b->buckets[i];
	b->buckets[i] = c;
	return c;
}

static uint64_t event_id(const struct channel *c, uint64_t counter)
{
	return c->generation << COUNTER_BITS | counter;
}

static void put_optional_id(struct json *o, const char *key, const struct uuid *id)
{
	json_put_str(o, key, id ? id->text : NULL);
}

/* Everything but id and mark; takes data.  at_ms 0 = null. */
static void put_envelope(struct json *o, const struct bus_event *event, struct json *data,
                         uint64_t at_ms)
{
	char at[CLOCK_TEXT_SIZE];

	if (at_ms)
		clock_format(at_ms, at);
	json_put_str(o, "type", event->type);
	put_optional_id(o, "turnId", event->turn);
	put_optional_id(o, "sessionId", event->session);
	json_put(o, "data", data);
	json_put_str(o, "at", at_ms ? at : NULL);
}

void bus_rebuilt(struct buf *out, const struct bus_event *event, uint64_t at_ms)
{
	auto_json struct json *o = json_new_object();

	json_put_null(o, "id");
	put_envelope(o, event, event->data ? event->data : json_new_object(), at_ms);
	json_put_bool(o, "rebuilt", true);
	buf_addf(out, "event: %s\ndata: ", event->type);
	json_write(o, out);
	buf_adds(out, "\n\n");
}

static struct blob *encode(const struct bus_event *event, uint64_t id, struct json *data)
{
	static const struct uuid none = { "" };
	auto_buf struct buf text = BUF_INIT(EVENT_MAX);
	auto_json struct json *o = json_new_object();
	struct blob *blob;

	json_put_int(o, "id", (int64_t)id);
	put_envelope(o, event, data, clock_wall_ms());
	buf_addf(&text, "id: %" PRIu64 "\nevent: %s\ndata: ", id, event->type);
	json_write(o, &text);
	buf_adds(&text, "\n\n");
	if (buf_failed(&text))
		return NULL;
	blob = malloc(sizeof(*blob) + text.len);
	if (!blob)
		return NULL;
	blob->refs = 1;
	blob->ends_turn = event->ends_turn;
	blob->turn = event->turn ? *event->turn : none;
	blob->session = event->session ? *event->session : none;
	blob->len = text.len;
	memcpy(blob->data, text.data, text.len);
	return blob;
}

static bool wants(const struct subscription *s, const struct blob *blob)
{
	return (!s->turn.text[0] || uuid_equal(&s->turn, &blob->turn)) &&
	       (!s->session.text[0] || uuid_equal(&s->session, &blob->session));
}

/* Who does not want the newest is moved past it, or would seem to miss it later. */
static void wake_idle(struct channel *c, const struct blob *newest)
{
	for (struct subscription *s = c->first; s; s = s->next) {
		if (s->idle && !s->reset && newest && s->wanted == c->newest && !wants(s, newest)) {
			s->wanted++;
			continue;
		}
		if (!s->idle || !s->wake)
			continue;
		s->idle = false;
		s->wake(s->wake_ctx);
	}
}

static void keep(struct bus *b, struct channel *c, struct blob *blob)
{
	while (c->oldest <= c->newest && (c->newest - c->oldest + 1 >= b->conf.replay_events ||
	                                  c->bytes + blob->len > b->conf.replay_bytes))
		drop_oldest(b, c);
	c->newest++;
	*slot(b, c, c->newest) = blob;
	c->bytes += blob->len;
}

/*
 * An event that cannot be kept (no memory) still uses up its number, and the
 * window restarts behind it, so that every reader is told of the gap.
 */
static void lose(struct bus *b, struct channel *c)
{
	drop_all(b, c);
	c->newest++;
	c->oldest = c->newest + 1;
}

/*
 * Is there a number for one more event?  The counter of a channel never begins again in the
 * same generation: an id that means two events would hide a gap from who has seen the first.
 */
static bool has_number(struct bus *b, struct channel *c)
{
	struct err e = ERR_INIT;
	uint64_t next;

	if (c->newest < b->conf.counter_max)
		return true;
	(void)err_set(&e, ERANGE, "there is none");
	if (!b->conf.next_generation || b->conf.next_generation(b->conf.ctx, &next, &e) < 0 ||
	    next > GENERATION_MAX || next <= c->generation) {
		log_error("events of tenant %s are lost, because a new generation is needed: %s",
		          c->tenant.text, e.text);
		return false;
	}
	drop_all(b, c);
	c->generation = next;
	c->oldest = 1;
	c->newest = 0;
	for (struct subscription *s = c->first; s; s = s->next) {
		s->wanted = 1;
		s->reset = true;
	}
	return true;
}

void bus_publish(struct bus *b, const struct uuid *tenant, const struct bus_event *event)
{
	struct json *data = event->data ? event->data : json_new_object();
	struct channel *c;
	struct blob *blob;

	pthread_mutex_lock(&b->lock);
	c = channel_of(b, tenant);
	if (!c || !has_number(b, c)) {
		json_free(&data);
	} else {
		blob = encode(event, event_id(c, c->newest + 1), data);
		metric_count(METRIC_EVENTS, 0);
		if (blob)
			keep(b, c, blob);
		else
			lose(b, c);
		wake_idle(c, blob);
	}
	pthread_mutex_unlock(&b->lock);
}

/* Where a reader that has seen last_id goes on, and whether it missed something. */
static void place(const struct channel *c, int64_t last_id, struct subscription *s)
{
	uint64_t seen = (uint64_t)last_id;

	if (last_id < 0) {
		s->wanted = (uint64_t)c->newest + 1;
		return;
	}
	s->reset = seen + 1 < event_id(c, c->oldest) || seen > event_id(c, c->newest);
	s->wanted = s->reset ? c->oldest : seen + 1 - event_id(c, 0);
}

int bus_subscribe(struct bus *b, const struct uuid *tenant, const struct bus_wish *wish,
                  struct subscription **ret, struct err *e)
{
	struct subscription *s = calloc(1, sizeof(*s));
	struct channel *c;
	int rc = 0;

	if (!s)
		return err_set(e, ERR_SHORTAGE, "no memory for a subscription");
	pthread_mutex_lock(&b->lock);
	c = channel_of(b, tenant);
	if (!c) {
		rc = err_set(e, ERR_SHORTAGE, "no memory for a channel");
	} else if (c->subscribers >= b->conf.tenant_subscribers) {
		rc = err_set(e, BUS_TENANT_LIMIT,
		             "the tenant has %zu event streams open, the limit", c->subscribers);
	} else {
		s->bus = b;
		s->channel = c;
		if (wish->turn)
			s->turn = *wish->turn;
		if (wish->session)
			s->session = *wish->session;
		place(c, wish->last_id, s);
		s->next = c->first;
		if (c->first)
			c->first->prev = s;
		c->first = s;
		c->subscribers++;
	}
	pthread_mutex_unlock(&b->lock);
	if (rc)
		free(s);
	else
		*ret = s;
	return rc;
}

void bus_on_wake(struct subscription *s, void (*wake)(void *ctx), void *ctx)
{
	pthread_mutex_lock(&s->bus->lock);
	s->wake = wake;
	s->wake_ctx = ctx;
	pthread_mutex_unlock(&s->bus->lock);
}

/* With the lock held: the next one that s wants, behind which it is moved; NULL = none now. */
static struct blob *find_next(struct subscription *s)
{
	struct channel *c = s->channel;

	while (s->wanted <= c->newest) {
		struct blob *blob = *slot(s->bus, c, (uint32_t)s->wanted);

		s->wanted++;
		if (wants(s, blob))
			return blob;
	}
	return NULL;
}

static void check_gap(struct subscription *s)
{
	if (s->wanted >= s->channel->oldest)
		return;
	s->wanted = s->channel->oldest;
	s->reset = true;
}

/* Called with the lock held. */
static int take_next(struct subscription *s, const char **ret_data, size_t *ret_len)
{
	blob_unref(s->held);
	s->held = NULL;
	if (s->over)
		return -1;
	check_gap(s);
	if (s->reset) {
		s->reset = false;
		s->over = s->turn.text[0];
		metric_count(METRIC_STREAM_RESETS, 0);
		*ret_data = reset_event;
		*ret_len = sizeof(reset_event) - 1;
		return 1;
	}
	s->held = find_next(s);
	if (!s->held) {
		s->idle = true;
		return 0;
	}
	s->held->refs++;
	s->over = s->turn.text[0] && s->held->ends_turn;
	*ret_data = s->held->data;
	*ret_len = s->held->len;
	return 1;
}

bool bus_has_end(struct subscription *s)
{
	uint64_t wanted;
	bool found = false;

	pthread_mutex_lock(&s->bus->lock);
	check_gap(s);
	wanted = s->wanted;
	for (struct blob *blob; !s->reset && !found && (blob = find_next(s));)
		found = blob->ends_turn;
	s->wanted = wanted;
	pthread_mutex_unlock(&s->bus->lock);
	return found;
}

int bus_next(struct subscription *s, const char **ret_data, size_t *ret_len)
{
	int rc;

	pthread_mutex_lock(&s->bus->lock);
	rc = take_next(s, ret_data, ret_len);
	pthread_mutex_unlock(&s->bus->lock);
	return rc;
}

void bus_unsubscribe(struct subscription *s)
{
	struct bus *b = s->bus;

	pthread_mutex_lock(&b->lock);
	if (s->prev)
		s->prev->next = s->next;
	else
		s->channel->first = s->next;
	if (s->next)
		s->next->prev = s->prev;
	s->channel->subscribers--;
	blob_unref(s->held);
	pthread_mutex_unlock(&b->lock);
	free(s);
}

size_t bus_subscribers(struct bus *b, const struct uuid *tenant)
{
	size_t n = 0;

	pthread_mutex_lock(&b->lock);
	for (const struct channel *c = b->buckets[uuid_hash(tenant) % BUCKETS]; c; c = c->next)
		if (uuid_equal(&c->tenant, tenant))
			n = c->subscribers;
	pthread_mutex_unlock(&b->lock);
	return n;
}
