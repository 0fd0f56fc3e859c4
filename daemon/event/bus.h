/*
 * bus.h - events of tenants: numbered, replayable within a window, pulled by subscribers.
 *
 * Every tenant has its own channel and counter, so that ids tell nothing about other
 * tenants.  Event id = generation x 2^32 + counter, which keeps growing over restarts, each
 * of which begins a generation, and stays below 2^53.  A tenant that has used up the
 * counter is given a new generation, and its subscribers are told of a gap.  A channel keeps the
 * newest events up to a count and a number of bytes.  Subscribers hold a position and no queue: one
 * that falls out of the window is told so (replay.reset) and goes on with the oldest event kept.
 * Publishing never blocks on a reader.  Thread-safe.
 */
#ifndef DAEMON_EVENT_BUS_H
#define DAEMON_EVENT_BUS_H

#include "common/buf.h"
#include "common/err.h"
#include "common/id.h"
#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bus_code {
	BUS_TENANT_LIMIT = ERR_PROGRAM_BASE + 200, /* subscribers of this tenant */
};

struct bus_conf {
	uint64_t generation;       /* below 2^21 */
	size_t replay_events;      /* kept per tenant */
	size_t replay_bytes;       /* kept per tenant; the newest event is kept whatever its size */
	size_t tenant_subscribers; /* at most, per tenant */
	uint32_t counter_max;      /* events of a tenant in one generation; 0 = 2^32 - 2 */
	/*
	 * A generation above all that were used.  It may block.  NULL, or while it fails:
	 * what is published in want of one is lost.
	 */
	int (*next_generation)(void *ctx, uint64_t *ret, struct err *e);
	void *ctx;
};

struct bus;
struct subscription;

int bus_new(const struct bus_conf *conf, struct bus **ret, struct err *e) must_check;
void bus_free(struct bus **b); /* no subscription may be left */

/* What an event is about; NULL members become null. */
struct bus_event {
	const char *type; /* letters, digits, dots; static */
	const struct uuid *turn;
	const struct uuid *session;
	struct json *data; /* taken; NULL = {} */
	bool ends_turn;    /* the last one of its turn */
};

/* Number the event and hand it to the tenant's subscribers.  Call it after the commit it reports.
 */
void bus_publish(struct bus *b, const struct uuid *tenant, const struct bus_event *event);

/* What a reader wants. */
struct bus_wish {
	int64_t last_id;         /* begin after this one; negative = with what comes from now on */
	const struct uuid *turn; /* only what is about it, and nothing after its end; NULL = all */
	const struct uuid *session; /* likewise, without an end */
};

/*
 * Taking the position is one step with respect to publishing: nothing is lost or doubled.
 */
int bus_subscribe(struct bus *b, const struct uuid *tenant, const struct bus_wish *wish,
                  struct subscription **ret, struct err *e) must_check;

/* The end of the subscription's turn is among what it will be given, without a gap before. */
bool bus_has_end(struct subscription *s);

/* wake(ctx) is called once whenever something can be had after bus_next() returned 0. */
void bus_on_wake(struct subscription *s, void (*wake)(void *ctx), void *ctx);

/*
 * The next event in its wire form (SSE), borrowed until the next call: 1; 0 when there is
 * none now; -1 when none will come: after the end of the one turn that is wanted, and after
 * a gap in what is about it, which may have held its end.
 */
int bus_next(struct subscription *s, const char **ret_data, size_t *ret_len);

/* How many subscriptions a tenant has. */
size_t bus_subscribers(struct bus *b, const struct uuid *tenant);

void bus_unsubscribe(struct subscription *s);

/*
 * Append the wire form of an event that is told again from what is stored: without an id,
 * marked with "rebuilt".  at_ms 0 = nobody knows when it was.  Takes event->data.
 */
void bus_rebuilt(struct buf *out, const struct bus_event *event, uint64_t at_ms);

#endif
