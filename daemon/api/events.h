/* events.h - /v1/events. */
#ifndef DAEMON_API_EVENTS_H
#define DAEMON_API_EVENTS_H

#include "daemon/http/http.h"

void events_stream(const struct http_request *req, struct http_response *res, void *ctx);

/* The value of Last-Event-ID, -1 for NULL; false when it is no number from 0 to 2^63-1. */
bool events_last_id(const char *text, int64_t *ret);

#endif
