/* requests.h - /v1/requests: what waits for a person. */
#ifndef DAEMON_API_REQUESTS_H
#define DAEMON_API_REQUESTS_H

#include "daemon/http/http.h"

void requests_list(const struct http_request *req, struct http_response *res, void *ctx);
void requests_resolve(const struct http_request *req, struct http_response *res, void *ctx);

#endif
