/* sessions.h - /v1/sessions. */
#ifndef DAEMON_API_SESSIONS_H
#define DAEMON_API_SESSIONS_H

#include "daemon/http/http.h"

void sessions_create(const struct http_request *req, struct http_response *res, void *ctx);
void sessions_list(const struct http_request *req, struct http_response *res, void *ctx);
void sessions_show(const struct http_request *req, struct http_response *res, void *ctx);

#endif
