/* render.h - the public form of a human request, the same in events and in answers. */
#ifndef DAEMON_TURN_RENDER_H
#define DAEMON_TURN_RENDER_H

#include "common/json.h"
#include "daemon/store/turn.h"

struct json *request_json(const struct request *q);

/* Data of "request.resolved": "answered" or "expired". */
struct json *request_resolved_json(const struct uuid *id, const char *status);

/* Billionths of a currency as a number of it; null for -1, which is not known. */
void json_put_cost(struct json *o, const char *key, int64_t nano);

/* "usage" of a turn or a session; cost_nano as json_put_cost() has it. */
struct json *usage_json(uint64_t input, uint64_t output, uint64_t cached, uint64_t reasoning,
                        int64_t cost_nano);

/* RFC 3339 text, or null for 0. */
void json_put_time(struct json *o, const char *key, uint64_t wall_ms);

#endif
