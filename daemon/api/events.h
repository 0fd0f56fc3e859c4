/* events.h - /v1/events. */
#ifndef DAEMON_API_EVENTS_H
#define DAEMON_API_EVENTS_H

#include "daemon/http/http.h"

void events_stream(const struct http_request *req, struct http_response *res, void *ctx);

#endif
