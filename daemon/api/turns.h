/* turns.h - /v1/turns and what belongs to a turn. */
#ifndef DAEMON_API_TURNS_H
#define DAEMON_API_TURNS_H

#include "daemon/http/http.h"

void turns_list(const struct http_request *req, struct http_response *res, void *ctx);
void turns_create(const struct http_request *req, struct http_response *res, void *ctx);
void turns_show(const struct http_request *req, struct http_response *res, void *ctx);
void turns_result(const struct http_request *req, struct http_response *res, void *ctx);
void turns_end(const struct http_request *req, struct http_response *res, void *ctx);

#endif
